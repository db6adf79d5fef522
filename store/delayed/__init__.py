"""Delayed messages: an index of them by due time, the time wheel that reads it, and the trackers of real brokers.

The index of a topic and subscription is a directory of partitions by due time (a row of database ``delayed``); each
partition is one or a few ledgers under ``entries/`` (``store/db/delayed_entries.py``). Format:
docs/formats/delayed-index.md.
"""
