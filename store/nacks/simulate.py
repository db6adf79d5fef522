"""Replay nacks through the old and the new timers: how early, how late, how often, how large.

Deterministic: the same events give the same numbers. Plain values in and out, so a sweep can run anywhere.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import field
from itertools import product

import numpy as np

from store.errors import InvalidValue
from store.frozen import frozen
from store.nacks.buckets import check_precision_bits
from store.nacks.load import GeneratedLoad, NackEvents, generate_events
from store.nacks.timers import CppTimer, DeadlineTimer, GoTimer, IntervalTimer, MergedTimer, NackTimer, Redelivery

SAMPLES = 100
"""Points of the memory curve."""


@frozen
class Distribution:
    """Of milliseconds; ``histogram`` pairs an upper bound (0, 1, 2, 4, …) with how many are at most that."""

    count: int
    mean_ms: float
    median_ms: int
    p90_ms: int
    p99_ms: int
    max_ms: int
    histogram: tuple[tuple[int, int], ...]


@frozen
class MemorySample:
    """State at one simulated time."""

    time_ms: int
    pending: int
    size_bytes: int | None = field(metadata={"json": "bytes"})


@frozen
class TimerResult:
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
    peak_bytes: int | None = field(metadata={"json": "peakBytes"})
    memory: tuple[MemorySample, ...]


@frozen
class SweepRow:
    """One point of a sweep."""

    messages_per_second: float
    delay_ms: int
    precision_bits: int
    timer: str
    redeliveries: int
    doubled: int
    firings: int
    mean_early_ms: float
    max_early_ms: int
    mean_late_ms: float
    max_late_ms: int
    peak_bytes: int | None = field(metadata={"json": "peakBytes"})


def simulate(events: NackEvents, precision_bits: int, base_delay_ms: int | None = None) -> list[TimerResult]:
    """Return the runs of all timers; BASE_DELAY_MS, of which some check every third: the delay configured [the shortest]."""
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


def sweep_loads(load: GeneratedLoad, rates: Iterable[float], delays_ms: Iterable[int]) -> list[GeneratedLoad]:
    """Return LOAD at every rate and with every (fixed) delay."""
    return [
        GeneratedLoad(
            messages_per_second=rate,
            duration_ms=load.duration_ms,
            min_delay_ms=delay_ms,
            max_delay_ms=delay_ms,
            batch_size=load.batch_size,
            entries_per_ledger=load.entries_per_ledger,
            nacked=load.nacked,
            processing_ms=load.processing_ms,
            seed=load.seed,
        )
        for rate, delay_ms in product(rates, delays_ms)
    ]


def simulate_point(load: GeneratedLoad, precision_bits: int) -> list[SweepRow]:
    """Return the timers' rows of one point of a sweep."""
    return [
        SweepRow(
            messages_per_second=load.messages_per_second,
            delay_ms=load.min_delay_ms,
            precision_bits=precision_bits,
            timer=result.timer,
            redeliveries=result.redeliveries,
            doubled=result.doubled,
            firings=result.firings,
            mean_early_ms=result.early.mean_ms,
            max_early_ms=result.early.max_ms,
            mean_late_ms=result.late.mean_ms,
            max_late_ms=result.late.max_ms,
            peak_bytes=result.peak_bytes,
        )
        for result in simulate(generate_events(load), precision_bits, load.min_delay_ms)
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
        """Note the state just before NOW_MS."""
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
    """Return the distribution of VALUES (ms, not negative)."""
    if not len(values):
        return Distribution(0, 0.0, 0, 0, 0, 0, ())
    median, p90, p99 = (int(np.quantile(values, share, method="higher")) for share in (0.5, 0.9, 0.99))
    largest = int(values.max())
    bounds = [0, *(1 << power for power in range(largest.bit_length() + 1))]
    counts = np.searchsorted(np.sort(values), bounds, side="right")
    last = int(np.argmax(counts == len(values)))
    histogram = tuple(zip(bounds[: last + 1], counts[: last + 1].tolist(), strict=True))
    return Distribution(len(values), float(values.mean()), median, p90, p99, largest, histogram)
