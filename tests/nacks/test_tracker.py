"""The tracker: PIP-393's rules, and that bad input changes nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pulsar_admin.store.db.nacks import DEFAULT_PRECISION_BITS, trim_lower_bits
from pulsar_admin.store.errors import InvalidValue, StoreError
from pulsar_admin.store.nacks.tracker import UNKNOWN_PARTITION, NegativeAcksTracker
from pulsar_admin.store.names import LONG_MAX, Position

NOW = 1_700_000_000_000
Rows = list[tuple[int, int, int]]


def rows(tracker: NegativeAcksTracker) -> Rows:
    return [(group.bucket_ms, group.ledger_id, entry) for group in tracker.pending() for entry in group.entry_ids]


def popped(tracker: NegativeAcksTracker, now_ms: int) -> Rows:
    return [(group.bucket_ms, group.ledger_id, entry) for group in tracker.due(now_ms) for entry in group.entry_ids]


def test_trims_as_the_seed_shows() -> None:
    assert trim_lower_bits(0b1001, 1) == trim_lower_bits(0b1000, 1) == 0b1000
    assert trim_lower_bits(NOW + 255, 8) == NOW - NOW % 256 + 255 // 256 * 256 + (256 if NOW % 256 else 0)


def test_zero_bits_are_exact() -> None:
    tracker = NegativeAcksTracker(0)
    tracker.add(Position(3, 5), 60_000, now_ms=NOW)
    assert tracker.next_deadline_ms() == NOW + 60_000
    assert popped(tracker, NOW + 59_999) == []
    assert popped(tracker, NOW + 60_000) == [(NOW + 60_000, 3, 5)]
    assert not tracker
    assert tracker.next_deadline_ms() is None


def test_a_bucket_is_due_whole_and_never_late() -> None:
    tracker = NegativeAcksTracker(8)
    for delay in (1024 + 0, 1024 + 255, 1024 + 256):
        tracker.add(Position(1, delay), delay, now_ms=256 * 1000)
    assert tracker.next_deadline_ms() == 256 * 1004
    assert popped(tracker, 256 * 1004 - 1) == []
    assert popped(tracker, 256 * 1004) == [(257_024, 1, 1024), (257_024, 1, 1279)]
    assert rows(tracker) == [(257_280, 1, 1280)]


def test_messages_of_one_batch_do_not_disturb_each_other() -> None:
    tracker = NegativeAcksTracker(0)
    tracker.add(Position(1, 7, 0), 10_000, now_ms=NOW)
    tracker.add(Position(1, 7, 1), 20_000, now_ms=NOW)
    assert popped(tracker, NOW + 10_000) == [(NOW + 10_000, 1, 7)]
    assert popped(tracker, NOW + 20_000) == [(NOW + 20_000, 1, 7)]


def test_messages_of_one_batch_in_one_bucket_are_one_entry() -> None:
    tracker = NegativeAcksTracker(16)
    for index in range(5):
        tracker.add(Position(1, 7, index), 65_536, now_ms=0)
    assert len(tracker) == 1
    assert list(tracker.due(65_536).positions()) == [Position(1, 7)]


def test_due_is_in_order_of_bucket_ledger_entry() -> None:
    tracker = NegativeAcksTracker(4)
    for ledger, entry, delay in ((9, 1, 160), (2, 8, 320), (2, 3, 160), (9, 0, 160), (2, 9, 16)):
        tracker.add(Position(ledger, entry), delay, now_ms=0)
    assert popped(tracker, 1000) == [(16, 2, 9), (160, 2, 3), (160, 9, 0), (160, 9, 1), (320, 2, 8)]


def test_bulk_rows_that_do_not_fit_one_number() -> None:
    tracker = NegativeAcksTracker(0)
    ledgers = [0, LONG_MAX, 5, 0, 5] * 8
    entries = [LONG_MAX, 0, 5, LONG_MAX, 6] * 8
    tracker.add_many(ledgers, entries, [LONG_MAX, 0, 3, LONG_MAX, 3] * 8, now_ms=0)
    assert rows(tracker) == [(0, LONG_MAX, 0), (3, 5, 5), (3, 5, 6), (LONG_MAX, 0, LONG_MAX)]
    assert popped(tracker, 2**70)[-1] == (LONG_MAX, 0, LONG_MAX)


def test_arrays_are_the_rows() -> None:
    tracker = NegativeAcksTracker(4)
    tracker.add_many([1] * 40, range(40), range(40), now_ms=0)
    live = NegativeAcksTracker(4)
    live.add_many([1] * 5, range(5), range(5), now_ms=0)
    for one in (tracker, live, NegativeAcksTracker()):
        expected = rows(one)
        due = one.due(1000)
        assert [tuple(row) for row in np.stack(due.arrays(), axis=1).tolist()] == expected
        assert due.entry_count == len(expected)
        assert bool(due) == bool(expected)


def test_size_is_small_and_shrinks_as_buckets_go() -> None:
    tracker = NegativeAcksTracker(8)
    entries = np.arange(100_000)
    tracker.add_many(np.ones_like(entries), entries, 0, now_ms=entries)
    assert tracker.size_bytes <= 0.2 * len(entries)
    assert len(tracker.to_bytes()) == tracker.size_bytes + 48
    tracker.due(99_999)
    assert tracker.size_bytes == 0


BAD_SINGLE: list[Callable[[NegativeAcksTracker], Any]] = [
    lambda t: t.add(Position(1, 1), -1, now_ms=NOW),
    lambda t: t.add(Position(1, 1), 2**63, now_ms=NOW),
    lambda t: t.add(Position(1, 1), LONG_MAX, now_ms=1),
    lambda t: t.add(Position(1, 1), 5, now_ms=-1),
    lambda t: t.add(Position(-1, 1), 5, now_ms=NOW),
    lambda t: t.add(Position(1, -1), 5, now_ms=NOW),
    lambda t: t.add(Position(2**63, 1), 5, now_ms=NOW),
    lambda t: t.add(Position(1, 2**63), 5, now_ms=NOW),
    lambda t: t.add_many([1, 1], [1, -1], 5, now_ms=NOW),
    lambda t: t.add_many([2**63, 2**63], [1, 1], 5, now_ms=NOW),
    lambda t: t.add_many([1, 1], [1, 2**64], 5, now_ms=NOW),
    lambda t: t.add_many([1, 1], [1, 1], [5, -5], now_ms=NOW),
    lambda t: t.add_many([1] * 50, range(50), [5] * 49 + [LONG_MAX], now_ms=NOW),
    lambda t: t.add_many([1, 1], [1, 1], [5, 5, 5], now_ms=NOW),
    lambda t: t.add_many([1, 1], [1, 1, 1], 5, now_ms=NOW),
    lambda t: t.add_many([1, 1], [1, 1], [5, 5], now_ms=[NOW]),
    lambda t: t.add_many([1, 1, 1], [1, 1, 1], [5, 5, 5], now_ms=[NOW, NOW]),
    lambda t: t.add_many([1.0, 1.5], [1, 1], 5, now_ms=NOW),
    lambda t: t.add_many([[1, 1], [1]], [1, 1], 5, now_ms=NOW),
    lambda t: t.add_many([[1, 1]], [[1, 1]], 5, now_ms=NOW),
    lambda t: t.add_many(1, 1, 5, now_ms=NOW),
    lambda t: t.add_many(["1"], ["1"], 5, now_ms=NOW),
]


@pytest.mark.parametrize("bad", BAD_SINGLE)
def test_bad_input_adds_nothing(bad: Callable[[NegativeAcksTracker], Any]) -> None:
    tracker = NegativeAcksTracker()
    tracker.add(Position(7, 7), 1000, now_ms=NOW)
    before = tracker.to_bytes()
    with pytest.raises(InvalidValue) as caught:
        bad(tracker)
    assert caught.value.hint
    assert tracker.to_bytes() == before
    assert len(tracker) == 1


@pytest.mark.parametrize("bits", [-1, 63, 64, 2**40, 1.5, True, None])
def test_precision_bits_out_of_range(bits: Any) -> None:
    with pytest.raises(InvalidValue, match="precision bits"):
        NegativeAcksTracker(bits)


@pytest.mark.parametrize("partition", [-3, 2**31])
def test_partition_out_of_range(partition: int) -> None:
    with pytest.raises(InvalidValue):
        NegativeAcksTracker(partition_index=partition)


def test_the_largest_numbers_work() -> None:
    tracker = NegativeAcksTracker(62)
    tracker.add(Position(LONG_MAX, LONG_MAX), LONG_MAX, now_ms=0)
    assert popped(NegativeAcksTracker.from_bytes(tracker.to_bytes()), LONG_MAX) == [(2**62, LONG_MAX, LONG_MAX)]


def test_defaults_are_upstreams_and_nothing_is_in_it() -> None:
    tracker = NegativeAcksTracker()
    assert (tracker.precision_bits, tracker.partition_index) == (8, -2) == (DEFAULT_PRECISION_BITS, UNKNOWN_PARTITION)
    tracker.add_many([], [], [], now_ms=[])
    tracker.add_many([], [], 5, now_ms=NOW)
    assert (len(tracker), bool(tracker), tracker.next_deadline_ms()) == (0, False, None)
    assert not tracker.due(NOW)
    assert rows(NegativeAcksTracker.from_bytes(tracker.to_bytes())) == []


def test_a_file_works_and_stays_as_it_is(tmp_path: Path) -> None:
    tracker = NegativeAcksTracker(8)
    entries = np.arange(50_000)
    tracker.add_many(np.ones_like(entries), entries, 5000, now_ms=entries)
    path = tmp_path / "tracker"
    path.write_bytes(tracker.to_bytes())
    read = NegativeAcksTracker.open(path)
    read.add(Position(1, 99), 1, now_ms=0)
    assert read.due(20_000).entry_count == tracker.due(20_000).entry_count + 1
    assert rows(read) == rows(tracker)
    assert path.read_bytes() != tracker.to_bytes()


@pytest.mark.parametrize("content", [None, b"", b"PSNACKTR"])
def test_a_file_that_is_none(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "tracker"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StoreError):
        NegativeAcksTracker.open(path)


def test_scattered_rows_wait_as_columns_and_are_there_all_the_same() -> None:
    random = np.random.RandomState(3)
    tracker, expected = NegativeAcksTracker(4), set()
    for _ in range(5):
        ledgers, entries = random.randint(0, 3, 1000), random.randint(0, 500, 1000)
        due = random.randint(10_000, 90_000, 1000)
        expected |= set(zip((due >> 4 << 4).tolist(), ledgers.tolist(), entries.tolist(), strict=True))
        tracker.add_many(ledgers, entries, 0, now_ms=due)
        ledgers[:], entries[:] = 7, 7  # columns are the caller's again
    assert tracker
    assert tracker.next_deadline_ms() == min(expected)[0]
    assert tracker.size_bytes == 5 * 1000 * 24
    assert not tracker.due(min(expected)[0] - 1)
    saved = tracker.to_bytes()
    assert len(tracker) == len(expected)
    assert saved == NegativeAcksTracker.from_bytes(saved).to_bytes()
    found = set()
    for now in (30_000, 60_000, 90_000):
        found |= set(zip(*(column.tolist() for column in tracker.due(now).arrays()), strict=True))
        assert found == {row for row in expected if row[0] <= now}
        one = np.array([now + 100_000] * 16 + list(range(now + 200_000, now + 216_000, 1000)))
        tracker.add_many(np.arange(32), np.arange(32), 0, now_ms=one)
        expected |= set(zip((one >> 4 << 4).tolist(), range(32), range(32), strict=True))
    assert set(zip(*(column.tolist() for column in tracker.due(2**62).arrays()), strict=True)) == expected - found
    assert not tracker
