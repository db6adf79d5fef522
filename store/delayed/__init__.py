"""Delayed messages: the partitioned index of what falls due when, the time wheel that drives it, and what a real broker kept.

The index of a topic and subscription is a directory of partitions by due time (row of ``delayed``); each partition is one or a few
ledgers under ``entries/`` (``store/db/delayed_entries.py``). Format: docs/formats/delayed-index.md.
"""
