"""The places of many small parts of ledgers, made at once, are those of each."""

from __future__ import annotations

import numpy as np

from pulsar_admin.store.db.blocks import Block
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.scan.places import Places, is_small_part
from tests.stores import imported


def test_places_of_small_parts_are_those_of_each() -> None:
    with open_store(imported("small", "clean")) as store, store.read() as txn:
        blocks = [Block(key, row) for key, row in txn.items("entries")]
    parts = []
    for number, block in enumerate(blocks):
        for low in range(0, len(block), 1 + number % 5):
            part = block, low, min(low + 1 + number % 3, len(block))
            if is_small_part(*part):
                parts.append(part)
    assert len(parts) > len(blocks)
    found, expected = Places.of_small(parts), Places.joined([Places.of(*part) for part in parts])
    for name in Places.__slots__:
        column, other = getattr(found, name), getattr(expected, name)
        assert column.dtype == other.dtype, name
        assert np.array_equal(column, other), name
