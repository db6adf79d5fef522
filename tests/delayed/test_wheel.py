"""The time wheel against a sorted list: nothing early by a tick or more, nothing late, nothing lost or doubled, over restarts."""

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from pulsar_admin.store.db.delayed_entries import DelayedRows, sorted_rows
from pulsar_admin.store.db.delayed_rules import IndexRules
from pulsar_admin.store.delayed import build, expiry_plans, trackers, waiting
from pulsar_admin.store.delayed.waiting import Load, TimeWheel, Waiting
from tests.at_bounds import A_TOPIC, UNREADABLE, Answers, N, asking

Key = tuple[int, int]


class Model:
    """What waits, as a plain dictionary; the wheel's source loads from it, and what was given is taken out of it."""

    def __init__(self) -> None:
        self.due: dict[Key, int] = {}

    def load(self, start_ms: int, end_ms: int) -> DelayedRows:
        chosen = [(time, *key) for key, time in self.due.items() if start_ms <= time < end_ms]
        columns = np.array(chosen, np.int64).reshape(-1, 3)
        return sorted_rows(columns[:, 0], columns[:, 1], columns[:, 2])

    def next_time_ms(self, start_ms: int) -> int | None:
        return min((time for time in self.due.values() if time >= start_ms), default=None)


def run_schedule(seed: int) -> int:
    """One random schedule: adds, clock steps and restarts at every step; returns how many messages were given."""
    draw = random.Random(seed)
    tick = draw.choice([1, 7, 500, 1000])
    rules = IndexRules(tick * draw.choice([1, 2, 3, 10, 37]) + draw.choice([0, 0, tick // 2]), tick)
    model, now, number, given = Model(), draw.randrange(0, 10**6), 0, 0
    wheel = TimeWheel(rules, model)
    reach = rules.granularity_ms * draw.choice([1, 3, 8])
    for _ in range(draw.randrange(1, 8)):
        for _ in range(draw.randrange(0, 4)):
            due = now + draw.randrange(-reach // 2 - 1, reach + 1)
            key, number = (10 + number // 3, number), number + 1
            model.due[key] = due
            # Before the first advance the wheel holds nothing, and is told so by its answer.
            wheel.add(due, *key)
        if draw.random() < 0.3:
            wheel = TimeWheel(rules, model)
        now += draw.randrange(0, reach)
        # A restart in the middle of an advance: the rest is given by the next wheel.
        stop_after = draw.choice([None, None, 0, 1])
        given += advance(wheel, model, now, tick, stop_after)
        if stop_after is not None:
            wheel = TimeWheel(rules, model)
            given += advance(wheel, model, now, tick, None)
        late = [key for key, due in model.due.items() if due <= now]
        assert not late, f"seed {seed}: {late} were due at {now}"
    assert given + len(model.due) == number, f"seed {seed}"
    return given


def advance(wheel: TimeWheel, model: Model, now: int, tick: int, stop_after: int | None) -> int:
    given, ticks = 0, []
    for count, dispatch in enumerate(wheel.advance(now)):
        ticks.append(dispatch.tick_ms)
        for key in zip(dispatch.rows.ledger_ids.tolist(), dispatch.rows.entry_ids.tolist(), strict=True):
            assert model.due.pop(key) < now + tick, "given early by a tick or more, or a second time"
            given += 1
        if count == stop_after:
            break
    assert all(before < after for before, after in pairwise(ticks)), "in time order"
    return given


def test_random_schedules() -> None:
    assert sum(map(run_schedule, range(1500))) > 3000


@pytest.mark.deep
def test_a_hundred_thousand_schedules() -> None:
    assert sum(map(run_schedule, range(100_000))) > 200_000


def rows_of(*times: int) -> DelayedRows:
    return DelayedRows(
        np.array(times, np.int64), np.full(len(times), 1, np.int64), np.arange(len(times), dtype=np.int64)
    )


class RowsSource:
    """Rows in memory, in order."""

    def __init__(self, rows: DelayedRows) -> None:
        self.rows = rows

    def load(self, start_ms: int, end_ms: int) -> DelayedRows:
        low, high = np.searchsorted(self.rows.times_ms, [start_ms, end_ms])
        return self.rows.take(slice(int(low), int(high)))

    def next_time_ms(self, start_ms: int) -> int | None:
        index = int(np.searchsorted(self.rows.times_ms, start_ms))
        return int(self.rows.times_ms[index]) if index < len(self.rows) else None


def test_memory_is_two_windows() -> None:
    """A message a millisecond over a hundred windows: never more than two windows' messages are held."""
    rules = IndexRules(1000, 10)
    wheel = TimeWheel(rules, RowsSource(rows_of(*range(100_000))))
    seen = most = 0
    for now in range(0, 100_001, 137):
        seen += sum(len(found.rows) for found in wheel.advance(now))
        most = max(most, wheel.held)
    seen += sum(len(found.rows) for found in wheel.advance(10**9))
    assert seen == 100_000
    assert most == 2000


def test_gaps_are_hopped_over() -> None:
    """Years without a message cost nothing, and a due time in the year 60000 is a time like any other."""
    far = 1_831_000_000_000_000
    wheel = TimeWheel(IndexRules(), RowsSource(rows_of(0, far)))
    assert [found.tick_ms for found in wheel.advance(far - 1)] == [0]
    assert [found.tick_ms for found in wheel.advance(far)] == [far]


def test_a_message_is_taken_where_its_window_is_loaded() -> None:
    wheel = TimeWheel(IndexRules(1000, 100), RowsSource(rows_of()))
    assert not wheel.add(5, 1, 1)  # nothing is loaded yet
    assert not list(wheel.advance(600))  # behind the half of a window the next one is loaded, too
    assert [wheel.add(time, 1, time) for time in (-1, 0, 600, 999, 1000, 1999, 2000)] == [*[True] * 6, False]
    assert [found.tick_ms for found in wheel.advance(1999)] == [-100, 0, 600, 900, 1000, 1900]


def test_next_window_is_loaded_before_it_is_needed() -> None:
    loads: list[int] = []

    class Counting(RowsSource):
        def load(self, start_ms: int, end_ms: int) -> DelayedRows:
            loads.append(start_ms)
            return super().load(start_ms, end_ms)

    wheel = TimeWheel(IndexRules(1000, 100), Counting(rows_of(100, 1100)))
    assert [found.tick_ms for found in wheel.advance(400)] == [100]
    assert loads == [0]
    assert not list(wheel.advance(600))
    assert loads == [0, 1000]
    assert [found.tick_ms for found in wheel.advance(1100)] == [1100]
    assert loads == [0, 1000]


@pytest.mark.parametrize("widths", [(100,), (100, 250)])
def test_messages_before_a_time_are_counted(widths: tuple[int, ...]) -> None:
    """Where an index has partitions of two widths, they overlap."""
    draw, model = random.Random(5), Model()
    model.due = {(1, number): draw.choice((0, 100, 499, draw.randrange(1000))) for number in range(60)}
    partitions = Counter((time // (width := draw.choice(widths)) * width, width) for time in model.due.values())
    loads = tuple(Load(*partition, count) for partition, count in sorted(partitions.items()))
    waiting = Waiting("t", "s", IndexRules(100, 1), model, loads)
    assert waiting.messages == 60
    assert waiting.edges() == (min(model.due.values()), max(model.due.values()))
    for end_ms in range(-1, 1002):
        expected = sorted(time for time in model.due.values() if time < end_ms)
        assert waiting.count_before(end_ms) == len(expected)
        found = [time for rows in waiting.iter_rows(50, end_ms) for time in rows.times_ms.tolist()]
        assert found == [time for time in expected if time >= 50]


def test_the_queue_holds_the_first_segment_of_a_sealed_bucket() -> None:
    """Room for 16 messages takes 384 bytes of it, for 32 it takes 768; the bitmaps are those of the same entries."""

    def bytes_of(*times_ms: int) -> int:
        entries = np.arange(len(times_ms))
        return trackers._bucket_bytes([N(rows=DelayedRows(np.array(times_ms), np.ones_like(entries), entries))], 0)

    assert bytes_of(*range(17)) - bytes_of(*range(16), 300_000) == 384
    assert trackers._bucket_bytes([N(rows=None), N(rows=DelayedRows(*[np.zeros(0, np.int64)] * 3))], 0) == 2 * 384


ANSWERS: Answers = {
    trackers.queue_bytes: [((16,), 384), ((17,), 768), ((2**21 // 3 + 1,), 2**25)],
    build.PartitionSource.next_time_ms: [
        ((N(_starts=[0, 150], _widest_ms=100, _partitions=[N(end_ms=100), N(end_ms=250)]), start_ms), answer)
        for start_ms, answer in ((99, 99), (100, 150))],
    build.iter_turns: [
        (([1 << 23, 1 << 23, 1], int), [[1 << 23, 1 << 23], [1]]), (([1] * 4097, int), [[1] * 4096, [1]])],
    expiry_plans._texts: [
        ((N(messages=count, first=[N(position="1:0", due_ms=0)], unread=0), "s", "early"),
         [f"s: early: {count}, first 1:0 due 1970-01-01T00:00:00.000Z{more}"]) for count, more in ((1, ""), (2, ", …"))],
    trackers._joined: [(([(1, 2)] * 3, 3), "1:2, 1:2, 1:2"), (([(1, 2)] * 3, 4), "1:2, 1:2, 1:2 …")],
    waiting.TimeWheel.add: [
        ((N(_current=N(end_ms=100, slot=5, slot_of=lambda one: one // 10, added={}), _overdue=set(),
            _next=None if end_ms is None else N(end_ms=end_ms, slot=10, slot_of=lambda one: one // 10,
            added={})), time_ms, 1, 2), answer)
        for end_ms, time_ms, answer in ((None, 99, True), (200, 100, True), (200, 200, False))],
    waiting.AtOnce.load: [((N(at_ms=5, _rows="rows"), 5, 6), "rows")],
    waiting.AtOnce.next_time_ms: [((N(at_ms=5), 5), 5)],
    waiting.Waiting.iter_rows: [
        ((N(rules=N(granularity_ms=10), source=N(
            next_time_ms=lambda start_ms: start_ms, load=lambda start_ms, end_ms: [start_ms, end_ms])), 0, 20), [[0, 10], [10, 20]])],
    expiry_plans._policy_delays: [((UNREADABLE, A_TOPIC), True)],
    expiry_plans.find_evicting_quotas: [({"txn": UNREADABLE, "topic": A_TOPIC, "assumed": False}, [])],
}  # fmt: skip
test_at_bounds = asking(ANSWERS)
