"""A topic's compacted view: reading it, finding its last message or a time in it, making and checking it (pulsar.md §4).

``reading`` reads the view, ``last_id`` finds its last message, ``status`` sums it up; ``keys`` and ``compactor`` make a
new compacted ledger, ``verify`` checks one.
"""
