"""Random schedules of nacks against a plain sorted list of (time, position)."""

import bisect
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_admin.store.nacks import segments, tracker
from pulsar_admin.store.nacks.tracker import DueNacks, NegativeAcksTracker
from pulsar_admin.store.names import LONG_MAX, Position

Nack = tuple[int, tuple[int, int]]


@pytest.fixture(autouse=True, scope="module")
def _tiny_limits() -> Iterator[None]:
    """A few rows cross every boundary: of live bitmaps, of blocks, of segments, of loops against arrays."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "BLOCK_ROWS", 4)
        patch.setattr(tracker, "_TAIL_GROUPS", 5)
        patch.setattr(tracker, "_FAN_IN", 2)
        patch.setattr(tracker, "_FEW", 3)
        yield


class PlainList:
    """The specification: every nack in one list, sorted by the time asked for."""

    def __init__(self, bits: int) -> None:
        self.nacks: list[Nack] = []
        self.bits = bits

    def add(self, time_ms: int, ledger_id: int, entry_id: int) -> None:
        bisect.insort(self.nacks, (time_ms, (ledger_id, entry_id)))

    def take_due(self, now_ms: int) -> list[Nack]:
        """What a single timer must redeliver by NOW_MS: all whose time, rounded down to 2^bits, has come."""
        due = [nack for nack in self.nacks if nack[0] >> self.bits << self.bits <= now_ms]
        self.nacks = self.nacks[len(due) :]
        return due

    def rows(self, nacks: list[Nack]) -> list[Nack]:
        return sorted({(time >> self.bits << self.bits, position) for time, position in nacks})


def rows(nacks: DueNacks) -> list[Nack]:
    return [(group.bucket_ms, (group.ledger_id, entry)) for group in nacks for entry in group.entry_ids]


ids = st.one_of(st.integers(0, 3), st.integers(0, 40), st.integers(65_534, 65_538), st.sampled_from([2**32, LONG_MAX]))
delays = st.one_of(st.integers(0, 64), st.integers(0, 5000), st.sampled_from([2**40, 2**58]))
singles = st.tuples(st.just("add"), ids, ids, delays)
bulks = st.tuples(st.just("many"), st.lists(st.tuples(ids, ids, delays), max_size=12))
spans = st.tuples(st.just("span"), st.integers(0, 3), st.integers(0, 70_000), st.integers(1, 40), delays)
waits = st.tuples(st.just("wait"), st.integers(0, 3000))
timers = st.tuples(st.just("timer"))
bit_counts = st.one_of(st.integers(0, 12), st.sampled_from([16, 62]))
schedules = st.lists(st.one_of(singles, singles, bulks, spans, waits, timers), min_size=1, max_size=14)


class Run:
    """One schedule, on the tracker and on the list."""

    def __init__(self, bits: int) -> None:
        self.tracker = NegativeAcksTracker(bits)
        self.list = PlainList(bits)
        self.now = 1_000_000

    def step(self, operation: Any) -> None:
        getattr(self, operation[0])(*operation[1:])
        expected = self.list.rows(self.list.nacks)
        saved = self.tracker.to_bytes()
        loaded = NegativeAcksTracker.from_bytes(saved)
        assert rows(self.tracker.pending()) == rows(loaded.pending()) == expected
        assert loaded.to_bytes() == saved
        assert len(self.tracker) == len(expected)
        deadline = expected[0][0] if expected else None
        assert self.tracker.next_deadline_ms() == loaded.next_deadline_ms() == deadline

    def add(self, ledger: int, entry: int, delay: int) -> None:
        self.tracker.add(Position(ledger, entry), delay, now_ms=self.now)
        self.list.add(self.now + delay, ledger, entry)

    def many(self, nacks: list[tuple[int, int, int]]) -> None:
        columns = [list(column) for column in zip(*nacks, strict=True)] or [[], [], []]
        self.tracker.add_many(*columns, now_ms=self.now)
        for ledger, entry, delay in nacks:
            self.list.add(self.now + delay, ledger, entry)

    def span(self, ledger: int, first: int, count: int, delay: int) -> None:
        times = range(self.now, self.now + count)
        self.tracker.add_many([ledger] * count, range(first, first + count), delay, now_ms=times)
        for index, time in enumerate(times):
            self.list.add(time + delay, ledger, first + index)

    def wait(self, milliseconds: int) -> None:
        self.now += milliseconds
        self._pop()

    def timer(self) -> None:
        """Sleep until the deadline: everything that comes due was asked for now or less than a bucket later."""
        self.now = max(self.now, self.tracker.next_deadline_ms() or 0)
        self._pop()

    def _pop(self) -> None:
        popped = rows(self.tracker.due(self.now))
        asked = self.list.take_due(self.now)
        assert popped == self.list.rows(asked)
        buckets = {bucket for bucket, _ in popped}
        assert all(0 <= time - (time >> self.list.bits << self.list.bits) < 2**self.list.bits for time, _ in asked)
        assert all(time >> self.list.bits << self.list.bits in buckets for time, _ in asked)
        assert all(time > self.now - 2**self.list.bits for time, _ in self.list.nacks)


def check(bits: int, operations: list[Any]) -> None:
    run = Run(bits)
    for operation in operations:
        run.step(operation)
    run.now = LONG_MAX
    run.step(("wait", 0))
    assert not run.tracker


@settings(max_examples=30, derandomize=True, deadline=None, database=None)
@given(bits=bit_counts, operations=schedules)
def test_schedules(bits: int, operations: list[Any]) -> None:
    check(bits, operations)


@pytest.mark.deep
@settings(max_examples=100_000, derandomize=True, deadline=None, database=None)
@given(bits=bit_counts, operations=schedules)
def test_hundred_thousand_schedules(bits: int, operations: list[Any]) -> None:
    check(bits, operations)
