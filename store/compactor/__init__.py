"""Bulk work of compaction: the two phases, and the comparison of a compacted ledger with the log it was made from.

``kernel`` reads entries and ``slot_kernel`` their messages, ``batches`` hands them out in bounded memory, ``keys`` finds the latest
message of every key, ``spread`` does so on an engine, ``rewrite`` builds new entries, ``phases`` runs it all, ``verify`` compares.
"""
