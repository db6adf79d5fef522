"""Commands of the group ``nacks``."""
