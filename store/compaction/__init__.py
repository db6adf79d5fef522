"""A topic's compacted view: reading it, its last message, its time search, making it and checking it (pulsar.md §4).

``view`` reads, ``last_id`` answers for the last message, ``tail`` for the end of the topic itself, ``status`` sums up; ``keys``,
``rebatch`` and ``compactor`` make a new compacted ledger, ``verify`` checks one.
"""

from pulsar_admin.store.compaction.view import (
    CompactedMessageEntry,
    CompactedView,
    find_compacted_view,
    read_compacted_entry,
)

__all__ = [
    "CompactedMessageEntry",
    "CompactedView",
    "find_compacted_view",
    "read_compacted_entry",
]
