"""Looking messages up by their places says what a dictionary says."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pulsar_admin.store.db.delayed_entries import DelayedRows
from pulsar_admin.store.delayed.verify import MessagePlaces, distinct

Row = tuple[int, int, int]
LEDGERS = (3, 10, 11, 2**40)


def columns(rows: list[Row]) -> DelayedRows:
    return DelayedRows(*np.array(rows, np.int64).reshape(-1, 3).T)


@pytest.mark.parametrize("count", [0, 1, 300])
@pytest.mark.parametrize("in_order", [True, False])
def test_as_a_dictionary(count: int, in_order: bool) -> None:
    draw = random.Random(count)
    every = [(ledger, entry) for ledger in LEDGERS for entry in (*range(100), 2**32 - 1)]
    chosen = sorted(draw.sample(every, count))
    due = {place: draw.randrange(10**6) for place in chosen}
    rows = [(due[place], *place) for place in chosen]
    if not in_order:
        draw.shuffle(rows)
    exact = MessagePlaces.of(LEDGERS, [columns(rows[at : at + 7]) for at in range(0, count, 7)])
    assert [exact.place(index) for index in range(len(exact))] == chosen
    assert exact.times_ms.tolist() == [due[place] for place in chosen]
    strange = [(4, 1), (2, 0), (2**41, 5), (10, -1), (10, 2**32), (3, 1 << 40)]
    asked = [*every, *strange]
    found = exact.find(columns([(0, *place) for place in asked])).tolist()
    assert found == [chosen.index(place) if place in due else -1 for place in asked]
    for first, last in ((0, 2), (3, 3), (4, 10), (10, 11), (11, 2**41), (2**40, 2**40), (12, 13)):
        assert chosen[exact.between(first, last)] == [place for place in chosen if first <= place[0] <= last]


def test_many_batches_grow_the_columns() -> None:
    exact = MessagePlaces.of(
        [7], (columns([(entry, 7, entry) for entry in range(at, at + 30_000)]) for at in range(0, 180_000, 30_000))
    )
    assert len(exact) == 180_000
    assert exact.times_ms.tolist() == list(range(180_000))


def test_distinct() -> None:
    places, counts = distinct([columns([(1, 5, 2), (9, 5, 1)]), columns([]), columns([(7, 5, 2), (0, 4, 9)])])
    assert places.tolist() == [[4, 9], [5, 1], [5, 2]]
    assert counts.tolist() == [1, 1, 2]
    assert [len(part) for part in distinct([])] == [0, 0]
