"""One topic being written: its kernel state, its ledgers, its interceptors."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from msgspec import Struct

from bench.generate import draws, kernel
from bench.generate.logs import BUFFER_BYTES, EntryLogs
from bench.generate.pool import VARIANTS, bodies_of
from bench.generate.spec import Clock, Span, TopicSpec
from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.brokerentry import encode_broker_entry
from pulsar_admin.store.codec.interceptors import (
    Append,
    AppendBrokerTimestampMetadataInterceptor,
    AppendIndexMetadataInterceptor,
    InterceptorChain,
)

_GIVEN_ENTRIES = 4096

_NOTHING_GIVEN: tuple[Array, Array, int] = (np.zeros(1, np.uint8), np.zeros(1, np.int64), 0)


class WrittenLedger(Struct):
    """A ledger of the topic: its first entry's number in the topic, its entries and payload bytes."""

    ledger_id: int
    first: int
    entries: int
    size_bytes: int
    created_ms: int
    index: int = -1  # last index when it was closed


class TopicWriter:
    """Writes a topic's entries in order; ``ledgers`` grows as it does."""

    def __init__(self, seed: int, number: int, spec: TopicSpec, chain: InterceptorChain, pattern: Array) -> None:
        self.number = number
        self.spec = spec
        self.chain = chain
        self.ledgers: list[WrittenLedger] = []
        self._plan = np.zeros(1, kernel.PLAN)
        self._state = np.zeros(1, kernel.STATE)
        self._state["index"] = -1
        producers, names = _producers(spec.producers, spec.clocks)
        # Read alone, or written for a single entry: topics of a kind share them. Of producers each counts its messages.
        self._tables = (producers.copy(), names, *_pool(seed, spec.codecs, spec.size, spec.batch, spec.keys), pattern)
        self._fill_plan(seed, number)
        self._given = _NOTHING_GIVEN

    def _fill_plan(self, seed: int, number: int) -> None:
        spec, plan = self.spec, self._plan[0]
        plan["stream"], plan["messages"] = draws.stream(seed, 2 * number), draws.stream(seed, 2 * number + 1)
        plan["start_ms"], plan["period_us"] = spec.start_ms, spec.period_us
        plan["size_low"], plan["size_high"], plan["size_log"] = spec.size.low, spec.size.high, spec.size.by_doubling
        if spec.batch is not None:
            plan["batch_low"], plan["batch_high"] = spec.batch.low, spec.batch.high
        plan["keys"], plan["delayed"], plan["nulls"] = spec.keys, spec.delayed, spec.nulls
        plan["delay_low_ms"], plan["delay_high_ms"] = spec.delay_ms.low, spec.delay_ms.high
        plan["codecs"], plan["variants"] = len(spec.codecs), VARIANTS
        plan["flags"] = _flags(self.chain) | (kernel.EVENT_TIME if spec.event_time else 0)

    @property
    def entries(self) -> int:
        """Entries written so far."""
        return int(self._state["entry"][0])

    @property
    def messages(self) -> int:
        """Messages written so far."""
        return int(self._state["message"][0])

    @property
    def index(self) -> int:
        """The last index given out, −1 without an index interceptor or entries."""
        counters = [i.index for i in self.chain.interceptors if isinstance(i, AppendIndexMetadataInterceptor)]
        if not counters:
            return -1
        return counters[-1] if self._plan["flags"][0] & kernel.BROKER_GIVEN else int(self._state["index"][0])

    def open_ledger(self, ledger_id: int) -> None:
        """Begin a new ledger with the next entry."""
        created_ms = self.spec.broker_ms(self.entries)
        if self.ledgers:
            self.ledgers[-1].index = self.index
        self.ledgers.append(WrittenLedger(ledger_id, self.entries, 0, 0, created_ms))
        state = self._state[0]
        state["ledger_id"], state["entry_id"], state["length"] = ledger_id, 0, 0

    def write(self, logs: EntryLogs, stop: int) -> None:
        """Write the entries before number ``stop`` of the topic into the open ledger."""
        ledger = self.ledgers[-1]
        while self.entries < stop:
            first_entry = int(self._state["entry_id"][0])
            given, offsets, until = self._prefixes(stop)
            limits = (until, BUFFER_BYTES, logs.end_of_log)
            count, end = kernel.write_entries(
                logs.buffer, logs.at, limits, self._plan, self._state, self._tables, (given, offsets), logs.positions
            )
            if count:
                logs.took(ledger.ledger_id, first_entry, count, end)
            else:
                logs.roll()
        ledger.entries = self.entries - ledger.first
        ledger.size_bytes = int(self._state["length"][0])

    def _prefixes(self, stop: int) -> tuple[Array, Array, int]:
        """Return broker metadata of the next entries: bytes, offsets from the next entry on, and the number it ends before.

        The kernel makes those of the two known interceptors itself; others are asked entry by entry.
        """
        given, offsets, first = self._given
        if not self._plan["flags"][0] & kernel.BROKER_GIVEN:
            return given, offsets, stop
        next_entry = self.entries
        if next_entry >= first + len(offsets) - 1:
            given, offsets = self._ask_chain(next_entry, min(_GIVEN_ENTRIES, stop - next_entry))
            first = next_entry
            self._given = given, offsets, first
        return given, offsets[next_entry - first :], first + len(offsets) - 1

    def _ask_chain(self, first: int, count: int) -> tuple[Array, Array]:
        messages = np.empty(count, np.int64)
        kernel.count_messages(self._plan, self._tables[2], first, messages)
        parts: list[bytes] = []
        for number, told in enumerate(messages.tolist(), first):
            entry = self.chain.intercept(Append(self.spec.broker_ms(number), told))
            parts.append(encode_broker_entry(entry) if entry is not None else b"")
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum([len(part) for part in parts], out=offsets[1:])
        return np.frombuffer(b"".join(parts) or b"\0", np.uint8), offsets


def _flags(chain: InterceptorChain) -> int:
    flags = 0
    for interceptor in chain.interceptors:
        if type(interceptor) is AppendBrokerTimestampMetadataInterceptor:
            flags |= kernel.BROKER_TIME
        elif type(interceptor) is AppendIndexMetadataInterceptor:
            flags |= kernel.BROKER_INDEX
        else:
            return kernel.BROKER_GIVEN
    return flags


@lru_cache(maxsize=256)
def _producers(producers: int, clocks: tuple[Clock, ...]) -> tuple[Array, Array]:
    rows = np.zeros(max(producers, 1), kernel.PRODUCER)
    names = _producer_names(producers, clocks)
    rows["name_bytes"] = [len(name) for name in names]
    rows["name_at"] = np.cumsum(rows["name_bytes"]) - rows["name_bytes"]
    for number, row in enumerate(rows):
        clock = clocks[number % len(clocks)]
        row["skew_ms"], row["jump_ms"] = clock.skew_ms, clock.jump_ms
    return rows, np.frombuffer(b"".join(names), np.uint8)


def _producer_names(producers: int, clocks: tuple[Clock, ...]) -> list[bytes]:
    return [f"{clocks[n % len(clocks)].name}-{n}".encode() for n in range(max(producers, 1))]


@lru_cache(maxsize=256)
def _pool(seed: int, codecs: tuple[int, ...], size: Span, batch: Span | None, keys: int) -> tuple[Array, Array]:
    """Return the BODY rows, one blank row behind them for the kernel's own use, and all bodies in a row."""
    bodies = bodies_of(seed, codecs, size, batch, keys)
    rows = np.zeros(len(bodies) + 1, kernel.BODY)
    at = 0
    for row, (stored, uncompressed, messages, codec) in zip(rows[:-1], bodies, strict=True):
        row["at"], row["bytes"], row["uncompressed"] = at, len(stored), uncompressed
        row["messages"], row["codec"] = messages, codec
        at += len(stored)
    return rows, np.frombuffer(b"".join(body[0] for body in bodies) or b"\0", np.uint8)
