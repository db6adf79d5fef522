"""Rows put in order on disk are those that a plain sort gives, cut into the same partitions and pieces."""

import random
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from pulsar_admin.store.db.delayed_entries import DelayedRows
from pulsar_admin.store.db.delayed_rules import IndexRules
from pulsar_admin.store.delayed import runs as module
from pulsar_admin.store.delayed.runs import SortedRuns, open_runs
from pulsar_admin.store.delayed.trackers import MessagePlaces, distinct
from tests.deep import deep_but_for
from tests.delayed.world import messages_of

RULES = IndexRules(100, 10)
Rows = list[tuple[int, int, int]]


def columns(rows: Rows) -> DelayedRows:
    return DelayedRows(*np.array(rows, np.int64).reshape(-1, 3).T)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: Any) -> None:
    """Limits that a few rows cross: runs on disk, several reads a run, partitions in several pieces."""
    monkeypatch.setattr(module, "RUN_ROWS", 50)
    monkeypatch.setattr(module, "MEMORY_ROWS", 60)
    monkeypatch.setattr("pulsar_admin.store.scan.integer_rows._LEAST_READ_ROWS", 3)
    monkeypatch.setattr(module, "ENTRY_MESSAGES_MAX", 16)


@deep_but_for((0, 2), "span", [1, 30, 1000, 100_000])
@pytest.mark.parametrize("count", [0, 1, 49, 777])
def test_as_a_plain_sort(span: int, count: int) -> None:
    draw = np.random.default_rng(span + count)
    rows = [(int(time), 5 + number % 7, number) for number, time in enumerate(draw.integers(0, span, count))]
    wanted = sorted((time // 10 * 10, ledger, entry) for time, ledger, entry in rows)
    with open_runs() as file, open_runs() as other:
        found, beside = SortedRuns(file, RULES), SortedRuns(file, RULES)
        whole = SortedRuns(other, RULES)
        at = 0
        while at < count:
            step = int(draw.integers(1, 40))
            found.add(columns(rows[at : at + step]))
            beside.add(columns(rows[at : at + step]))
            at += step
            assert beside.next_time_ms(-1) == min(time // 10 * 10 for time, _, _ in rows[:at])
            assert len(beside.load(-50, span + 10)) == min(at, count)
        if rows:
            whole.add(columns(rows))
        pieces = [(start, messages_of(part)) for start, part in found.pieces()]
        assert [(start, row) for start, part in pieces for row in part] == [(partition_of(row), row) for row in wanted]
        assert dict(found.counts) == {start: len(list(rows)) for start, rows in groupby(wanted, key=partition_of)}
        for start, group in groupby(pieces, key=lambda piece: piece[0]):
            sizes = [len(part) for _, part in group]
            assert all(size == 16 for size in sizes[:-1]), start
        for low, high in ((-50, span + 10), (span // 3, span // 2), (span // 2, span // 2 + 10)):
            assert messages_of(found.load(low, high)) == [row for row in wanted if low <= row[0] < high]
            assert found.next_time_ms(low) == min((time for time, _, _ in wanted if time >= low), default=None)
        # Neither how the rows came nor what else is in the file matters.
        assert [(start, messages_of(part)) for start, part in beside.pieces()] == pieces
        assert [(start, messages_of(part)) for start, part in whole.pieces()] == pieces


def partition_of(row: tuple[int, int, int]) -> int:
    return row[0] // 100 * 100


# -- places ---------------------------------------------------------------------------------------------------------

Row = tuple[int, int, int]
LEDGERS = (3, 10, 11, 2**40)


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
        [7],
        (columns([(entry, 7, entry) for entry in range(at, at + 30_000)]) for at in range(0, 180_000, 30_000)),
    )
    assert len(exact) == 180_000
    assert exact.times_ms.tolist() == list(range(180_000))


def test_distinct() -> None:
    places, counts = distinct([columns([(1, 5, 2), (9, 5, 1)]), columns([]), columns([(7, 5, 2), (0, 4, 9)])])
    assert places.tolist() == [[4, 9], [5, 1], [5, 2]]
    assert counts.tolist() == [1, 1, 2]
    assert [len(part) for part in distinct([])] == [0, 0]
