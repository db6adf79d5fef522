"""The places of many small parts of ledgers, made at once, are those of each."""

from __future__ import annotations

from itertools import permutations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pulsar_admin.store.db.blocks import Block
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.scan.operations import _run_round
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


@pytest.mark.parametrize("order", [*permutations((0, 1, 3))])
def test_rows_come_in_the_order_of_their_places(order: tuple[int, ...]) -> None:
    """However the engine ends its pieces; what it could not read, and what lies in no file, has none."""
    pieces: Any = [SimpleNamespace(files={1: "1.log"} if at != 2 else {}, batches=(at, 10 + at)) for at in range(5)]
    engine: Any = SimpleNamespace(failed=[])
    operation: Any = None
    engine.run = lambda operation, given, advance: [
        (pieces[at], pa.table({"rows": [at, 10 + at]})) for at in order if pieces[at] in given
    ]
    wanted = [(number, None if at in (2, 4) else {"rows": number}) for at in range(5) for number in (at, 10 + at)]
    assert [*_run_round(engine, operation, pieces)] == wanted
