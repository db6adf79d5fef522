"""Replay nacks through the timers of clients: how early, how late, how often, how large.

Deterministic: the same events give the same numbers. ``docs/examples/negative-acks.ipynb`` shows its figures.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from bench.nack_timers import CppTimer, DeadlineTimer, GoTimer, IntervalTimer, MergedTimer, NackTimer, Redelivery
from pulsar_admin.store.db.nacks import check_precision_bits
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.nacks.bitmaps import Int64s
from pulsar_admin.store.nacks.segments import add_times, check_column

SAMPLES = 100
"""Points of the memory curve."""


class Distribution(Struct, frozen=True):
    """Of milliseconds; ``histogram`` pairs an upper bound (0, 1, 2, 4, …) with how many are at most that."""

    count: int
    mean_ms: float
    median_ms: int
    p90_ms: int
    p99_ms: int
    max_ms: int
    histogram: tuple[tuple[int, int], ...]


class MemorySample(Struct, frozen=True):
    """State at one simulated time."""

    time_ms: int
    pending: int
    size_bytes: int | None


class TimerResult(Struct, frozen=True):
    """One timer's run. ``doubled``: redeliveries of an entry beyond its first; ``visited``: entries looked at."""

    timer: str
    precision_bits: int | None
    nacks: int
    redeliveries: int
    doubled: int
    firings: int
    visited: int
    early: Distribution
    late: Distribution
    peak_bytes: int | None
    memory: tuple[MemorySample, ...]


def simulate(events: NackEvents, precision_bits: int, base_delay_ms: int | None = None) -> list[TimerResult]:
    """Return the runs of all timers; ``base_delay_ms``, of which some check every third: the delay configured [the shortest]."""
    check_precision_bits(precision_bits)
    if base_delay_ms is None:
        base_delay_ms = int(events.delays_ms.min()) if len(events) else 0
    if base_delay_ms < 0:
        raise InvalidValue(f"base delay of {base_delay_ms} ms", hint="give the consumer's configured delay")
    return [
        _run("interval", None, IntervalTimer(base_delay_ms), events),
        _run("merged", precision_bits, MergedTimer(precision_bits), events),
        _run("cpp", None, CppTimer(base_delay_ms), events),
        _run("go", precision_bits, GoTimer(max(base_delay_ms, 1), precision_bits), events),
        _run("deadline", precision_bits, DeadlineTimer(precision_bits), events),
    ]


class _Recorder:
    """Counts what a timer does, and samples its memory at even steps of simulated time."""

    def __init__(self, timer: NackTimer, events: NackEvents) -> None:
        self.timer = timer
        self.firings = 0
        self.redelivered: Counter[tuple[int, int]] = Counter()
        self.differences: list[int] = []
        self.samples: list[MemorySample] = []
        self.peak_bytes: int | None = None
        start = int(events.times_ms[0]) if len(events) else 0
        end = int((events.times_ms + events.delays_ms).max()) if len(events) else 0
        self._step_ms = max((end - start) / SAMPLES, 1.0)
        self._next_sample_ms = float(start)

    def observe(self, now_ms: float) -> None:
        """Note the state just before ``now_ms``."""
        if now_ms < self._next_sample_ms:
            return
        size_bytes = self.timer.size_bytes
        if size_bytes is not None:
            self.peak_bytes = max(self.peak_bytes or 0, size_bytes)
        self.samples.append(MemorySample(int(now_ms), self.timer.pending, size_bytes))
        self._next_sample_ms += self._step_ms * math.ceil((now_ms - self._next_sample_ms + 1) / self._step_ms)

    def fire(self) -> None:
        now_ms = self.timer.next_fire_ms or 0.0
        self.observe(now_ms)
        redeliveries: list[Redelivery] = self.timer.fire()
        self.firings += 1
        at_ms = math.ceil(now_ms - 1e-6)
        for entry, asked in redeliveries:
            self.redelivered[entry] += 1
            self.differences += [at_ms - time for time in asked]


def _run(name: str, precision_bits: int | None, timer: NackTimer, events: NackEvents) -> TimerResult:
    recorder = _Recorder(timer, events)
    for time_ms, entry, delay_ms in _iter_events(events):
        while timer.next_fire_ms is not None and timer.next_fire_ms <= time_ms:
            recorder.fire()
        recorder.observe(time_ms)
        timer.add(entry, time_ms, delay_ms)
    while timer.next_fire_ms is not None:
        recorder.fire()
    differences = np.array(recorder.differences, dtype=np.int64)
    redeliveries = recorder.redelivered.total()
    return TimerResult(
        timer=name,
        precision_bits=precision_bits,
        nacks=len(events),
        redeliveries=redeliveries,
        doubled=redeliveries - len(recorder.redelivered),
        firings=recorder.firings,
        visited=timer.visited,
        early=describe(np.maximum(-differences, 0)),
        late=describe(np.maximum(differences, 0)),
        peak_bytes=recorder.peak_bytes,
        memory=tuple(recorder.samples),
    )


def _iter_events(events: NackEvents) -> Iterator[tuple[int, tuple[int, int], int]]:
    columns = (events.times_ms, events.ledger_ids, events.entry_ids, events.delays_ms)
    for time_ms, ledger_id, entry_id, delay_ms in zip(*(column.tolist() for column in columns), strict=True):
        yield time_ms, (ledger_id, entry_id), delay_ms


def describe(values: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Distribution:
    """Return the distribution of ``values`` (ms, not negative)."""
    if not len(values):
        return Distribution(0, 0.0, 0, 0, 0, 0, ())
    median, p90, p99 = (int(np.quantile(values, share, method="higher")) for share in (0.5, 0.9, 0.99))
    largest = int(values.max())
    bounds = [0, *(1 << power for power in range(largest.bit_length() + 1))]
    counts = np.searchsorted(np.sort(values), bounds, side="right")
    last = int(np.argmax(counts == len(values)))
    histogram = tuple(zip(bounds[: last + 1], counts[: last + 1].tolist(), strict=True))
    return Distribution(len(values), float(values.mean()), median, p90, p99, largest, histogram)


# -- events -----------------------------------------------------------------------------------------------------------


class NackEvents(Struct, frozen=True):
    """Columns of one length, in order of time; times in ms."""

    times_ms: Int64s
    ledger_ids: Int64s
    entry_ids: Int64s
    delays_ms: Int64s

    def __len__(self) -> int:
        return len(self.times_ms)


class GeneratedLoad(Struct, frozen=True):
    """A stream of messages in batches, some of them nacked some time after they were delivered.

    Every message is nacked with probability ``nacked``, up to ``processing_ms`` after delivery, for a delay drawn
    evenly from ``min_delay_ms`` to ``max_delay_ms``. Messages of one batch are drawn one by one. The same seed gives
    the same events on every machine.
    """

    messages_per_second: float = 1000.0
    duration_ms: int = 60_000
    min_delay_ms: int = 60_000
    max_delay_ms: int = 60_000
    batch_size: int = 1
    entries_per_ledger: int = 50_000
    nacked: float = 1.0
    processing_ms: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        delays_fine = 0 <= self.min_delay_ms <= self.max_delay_ms < 2**53
        sizes_fine = self.batch_size >= 1 and self.entries_per_ledger >= 1 and 0 <= self.processing_ms < 2**53
        rates_fine = self.messages_per_second > 0 and 0 < self.duration_ms < 2**53 and 0 <= self.nacked <= 1
        if not (delays_fine and sizes_fine and rates_fine and 0 <= self.seed < 2**32):
            raise InvalidValue(
                "a load that cannot be generated",
                hint="positive rate, duration and sizes; 0 <= minimum delay <= maximum; share nacked from 0 to 1",
            )


def generate_events(load: GeneratedLoad) -> NackEvents:
    """Return the events of ``load``; equal loads give equal events."""
    # RandomState's streams are frozen: numpy promises the same numbers in every version.
    random = np.random.RandomState(load.seed)
    count = int(load.messages_per_second * load.duration_ms / 1000)
    message = np.arange(count, dtype=np.int64)
    message = message[random.random_sample(count) < load.nacked]
    times = (message * (1000 / load.messages_per_second)).astype(np.int64)
    times += _drawn(random, 0, load.processing_ms, len(message))
    delays = _drawn(random, load.min_delay_ms, load.max_delay_ms, len(message))
    entry = message // load.batch_size
    return _ordered(times, entry // load.entries_per_ledger, entry % load.entries_per_ledger, delays)


def events_of(rows: Iterable[tuple[int, int, int, int]]) -> NackEvents:
    """Return the events of ``rows`` (time ms, ledger id, entry id, delay ms), put in order of time.

    Raises InvalidValue for numbers that are negative or beyond 64 bits.
    """
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    times, ledgers, entries, delays = (
        check_column(name, column)
        for name, column in zip(("time", "ledger id", "entry id", "delay"), columns, strict=True)
    )
    add_times(delays, times)
    return _ordered(times, ledgers, entries, delays)


def _drawn(random: np.random.RandomState, low: int, high: int, count: int) -> Int64s:
    share: npt.NDArray[np.float64] = random.random_sample(count)
    return low + np.floor(share * (high - low + 1)).astype(np.int64)


def _ordered(times: Int64s, ledgers: Int64s, entries: Int64s, delays: Int64s) -> NackEvents:
    order = np.argsort(times, kind="stable")
    return NackEvents(times[order], ledgers[order], entries[order], delays[order])
