"""Commands of the group ``compaction``."""
