"""The places of many small parts of ledgers, made at once, are those of each."""

from itertools import chain, permutations, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pulsar_admin.store.db.blocks import Block
from pulsar_admin.store.scan.operations import _run_round
from pulsar_admin.store.scan.places import Places, is_small_part, split_places
from tests.stores import imported, read_rows


def test_places_of_small_parts_are_those_of_each() -> None:
    blocks = read_rows(imported("small", "clean"), lambda txn: [Block(key, row) for key, row in txn.items("entries")])
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


@pytest.mark.parametrize("length", range(1, 6))
def test_parts_have_twice_the_bytes_at_most_or_one_entry(length: int) -> None:
    """Every row of entries of these sizes: the parts are the whole, and what fits is not cut."""
    for sizes in product((1, 9, 10, 11, 19, 20, 21), repeat=length):
        column = np.array(sizes, np.uint32)
        parts = [part.sizes.tolist() for part in split_places(Places(*[column] * 6), 10)]
        assert ([*chain(*parts)], len(parts) == 1) == ([*sizes], sum(sizes) <= 20 or length == 1)
        assert all(part and (len(part) == 1 or sum(part) <= 20) for part in parts), sizes
