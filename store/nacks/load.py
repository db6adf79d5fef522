"""Events of the simulator: which entry was negatively acknowledged when, for how long."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from store.codec.given import json_object
from store.errors import InvalidValue, LimitExceeded, reason_of
from store.frozen import frozen
from store.nacks.bitmaps import Int64s
from store.nacks.rows import add_times, check_column
from store.timespec import parse_duration_ms

EVENTS_MAX = 20_000_000
"""Nacks of one run: a few hundred bytes each while it lasts."""

_EVENT_KEYS = ("time", "ledgerId", "entryId", "delay")


@frozen
class NackEvents:
    """Columns of one length, in order of time; times in ms."""

    times_ms: Int64s
    ledger_ids: Int64s
    entry_ids: Int64s
    delays_ms: Int64s

    def __len__(self) -> int:
        return len(self.times_ms)


@frozen
class GeneratedLoad:
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


def check_load(load: GeneratedLoad) -> None:
    """Raise LimitExceeded where LOAD has too many messages."""
    count = load.messages_per_second * load.duration_ms / 1000
    if count > EVENTS_MAX:
        raise LimitExceeded(
            f"{count:,.0f} messages are more than {EVENTS_MAX:,}", hint="give a smaller --rate or --duration"
        )


def generate_events(load: GeneratedLoad) -> NackEvents:
    """Return the events of LOAD; equal loads give equal events."""
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
    """Return the events of ROWS (time ms, ledger id, entry id, delay ms), put in order of time.

    Raises InvalidValue for numbers that are negative or beyond 64 bits.
    """
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    times, ledgers, entries, delays = (
        check_column(name, column)
        for name, column in zip(("time", "ledger id", "entry id", "delay"), columns, strict=True)
    )
    add_times(delays, times)
    return _ordered(times, ledgers, entries, delays)


def read_events(lines: Iterable[str], source: str) -> NackEvents:
    """Return the events in LINES of SOURCE, a JSON object each; raises InvalidValue naming the line."""
    return events_of(_event(line, f"{source} line {number}") for number, line in enumerate(lines, 1) if line.strip())


def _event(line: str, where: str) -> tuple[int, int, int, int]:
    hint = 'an event is {"time":0,"ledgerId":10,"entryId":4,"delay":"1m"}; times and plain delays are ms'
    try:
        found = json_object(line)
        time_ms, ledger_id, entry_id, delay = (found[key] for key in _EVENT_KEYS)
        delay_ms = parse_duration_ms(delay) if isinstance(delay, str) else delay
    except InvalidValue as error:
        raise InvalidValue(f"{where}: {error.message}", hint=error.hint) from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidValue(f"{where} is not an event: {reason_of(error)}", hint=hint) from error
    values = time_ms, ledger_id, entry_id, delay_ms
    if any(type(value) is not int or not 0 <= value < 2**63 for value in values):
        raise InvalidValue(f"{where}: {', '.join(_EVENT_KEYS)} are whole numbers from 0 to 2^63 - 1", hint=hint)
    return values


def _drawn(random: np.random.RandomState, low: int, high: int, count: int) -> Int64s:
    share: npt.NDArray[np.float64] = random.random_sample(count)
    return low + np.floor(share * (high - low + 1)).astype(np.int64)


def _ordered(times: Int64s, ledgers: Int64s, entries: Int64s, delays: Int64s) -> NackEvents:
    order = np.argsort(times, kind="stable")
    return NackEvents(times[order], ledgers[order], entries[order], delays[order])
