"""Negative acknowledgements: the bitmap tracker of PIP-393 (apache/pulsar PR 23600, 23804), its sizes and its timing."""
