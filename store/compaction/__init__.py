"""A topic's compacted view: reading it, its last message, its time search, making it and checking it (pulsar.md §4).

``view`` reads, ``last_id`` answers for the last message, ``status`` sums up; ``keys`` and ``compactor`` make a new compacted
ledger, ``verify`` checks one.
"""
