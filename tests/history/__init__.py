"""Tests of ``store.history``."""
