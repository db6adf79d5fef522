"""Tests of store.codec."""
