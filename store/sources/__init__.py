"""Metadata and entries where a cluster keeps them: readers, and the writers that exports and repairs use."""
