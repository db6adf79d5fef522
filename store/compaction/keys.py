"""The results of phase one, in bounded memory: the latest message of every key, and places and message counts of entries.

They are computed here or by an engine's executors, which return columns.

Keys are added to a hash table. A table that reaches its limit is written to a run, sorted by hash, and emptied; at the
end the runs are merged in the table, one range of hashes at a time, so that the latest message of each key remains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from msgspec import Struct, field

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.compaction.batches import MessageBatch
from pulsar_admin.store.engine.memory import BASE_BYTES
from pulsar_admin.store.kernels import compaction as kernel
from pulsar_admin.store.kernels import slots as slot_kernel
from pulsar_admin.store.scan.integer_rows import RunFile, SortedRun, runs_of
from pulsar_admin.store.scan.places import Part

WHOLE = (kernel.ENCRYPTED_BATCH, kernel.STRANGE, kernel.CHUNK)
"""Kinds of entries that phase two must read whether or not they have the latest message of a key."""


class Survey(Struct):
    """Counts of the messages read. ``keyed``: messages with a key and a value; bytes as in ``CompactionResult``."""

    entries: int = 0
    bytes: int = 0
    message_bytes: int = 0
    keyed: int = 0
    null_values: int = 0
    keyless: int = 0
    encrypted: int = 0
    uncommitted: int = 0
    undecodable: int = 0
    markers: int = 0

    def add(self, other: Survey) -> None:
        """Add the counts of another survey."""
        for name in Survey.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class EntryFacts(Struct):
    """Facts of consecutive entries. ``runs``: their places as (ledger, first entry, count); ``counts``: messages per
    entry as u32, None if all have one.

    ``always``: mask of entries that phase two must read in any case; None: no entry. ``chunk_ends``: (uuid, number of
    the message) of messages' last chunks. Messages are numbered from the first one of these entries.
    """

    entries: int
    messages: int
    runs: tuple[Part, ...]
    counts: Array | None
    always: Array | None
    chunk_ends: list[tuple[bytes, int]] = field(default_factory=list)
    survey: Survey = field(default_factory=Survey)

    @staticmethod
    def of(batches: Iterable[MessageBatch], retain_keyless: bool) -> EntryFacts:
        """Return the facts of consecutive batches."""
        counts, always, ledgers, entries = [], [], [], []
        facts = EntryFacts(0, 0, (), None, None)
        for batch in batches:
            counts.append(np.diff(batch.firsts).astype(np.uint32))
            rows = batch.rows
            is_wanted: Array = np.isin(rows["kind"], WHOLE)
            if retain_keyless:
                keyless = batch.slots["key_length"] < 0
                is_wanted[np.repeat(np.arange(len(rows)), np.diff(batch.firsts))[keyless]] = True
            always.append(is_wanted)
            ledgers.append(batch.stored_ledgers)
            entries.append(batch.stored_entries)
            ends = (rows["kind"] == kernel.CHUNK) & (rows["chunk_id"] == rows["chunks"] - 1)
            facts.chunk_ends += [
                (uuid_of(batch, index), facts.messages + int(batch.firsts[index]))
                for index in np.flatnonzero(ends).tolist()
            ]
            facts.survey.add(survey(batch))
            facts.entries += len(batch.rows)
            facts.messages += len(batch.slots)
        if counts:
            facts.runs = _runs(np.concatenate(ledgers), np.concatenate(entries))
            facts.counts = _unless((joined := np.concatenate(counts)), bool((joined == 1).all()))
            facts.always = _unless((some := np.concatenate(always)), not some.any())
        return facts


def survey(batch: MessageBatch) -> Survey:
    """Return the counts of a batch."""
    rows, slots = batch.rows, batch.slots
    is_there = slots["flags"] & slot_kernel.COMPACTED_OUT == 0
    has_key = is_there & (slots["key_length"] >= 0)
    nulls = int((has_key & (slots["value_bytes"] <= 0)).sum())
    kinds, sizes = rows["kind"], np.maximum(rows["messages"], 1)
    overhead = np.where(rows["id_end"] > 0, 8 + rows["id_end"] - rows["id_start"], 0)
    return Survey(
        entries=len(rows),
        bytes=int((rows["end"] - rows["start"] + overhead).sum()),
        message_bytes=int((rows["end"] - rows["meta_end"]).sum()),
        keyed=int(has_key.sum()) - nulls,
        null_values=nulls,
        keyless=int(is_there.sum()) - int(has_key.sum()),
        encrypted=int(sizes[kinds == kernel.ENCRYPTED_BATCH].sum()),
        uncommitted=int(sizes[kinds == kernel.UNCOMMITTED].sum()),
        undecodable=int((kinds == kernel.STRANGE).sum()),
        markers=int((kinds == kernel.MARKER).sum()),
    )


def uuid_of(batch: MessageBatch, index: int) -> bytes:
    """Return the uuid that the chunks of one message share."""
    row = batch.rows[index]
    return bytes(batch.data.data[row["uuid_start"] : row["uuid_start"] + row["uuid_length"]])


def _unless(column: Array, empty: bool) -> Array | None:
    return None if empty else column


def _runs(ledgers: Array, entries: Array) -> tuple[Part, ...]:
    """Return runs of consecutive entries: (ledger, first entry, how many)."""
    runs = runs_of(ledgers, entries - np.arange(len(entries)))
    return tuple((int(ledgers[start]), int(entries[start]), end - start) for start, end in runs)


Table = tuple[Array, Array, Array]

KEY_BYTES = 24
LIMIT_KEYS = 2 << 20
"""Keys in memory: their table, twice as large, takes 96 MiB, sorting it as much again; so does merging as many keys."""

_LEAST_KEYS = 1 << 16
_KEY_PEAK_BYTES = 4 * KEY_BYTES  # two places in the table, half of them again while it grows, sorting
_BATCH_PEAK_BYTES = 96 << 20  # entries, their payloads decompressed, rows and slots
_FIRST_PLACES = 1 << 16
_RUN_ROWS = 1 << 14  # rows of a run that are read at once


def keys_for(memory_bytes: int | None) -> int:
    """Return how many keys a process with this memory may hold at once; None: the default number."""
    if memory_bytes is None:
        return LIMIT_KEYS
    room = max(memory_bytes - BASE_BYTES - _BATCH_PEAK_BYTES, 0) // _KEY_PEAK_BYTES
    return max(1 << max(room.bit_length() - 1, 0), _LEAST_KEYS)


class Latest(Struct, frozen=True):
    """The latest messages of all keys.

    ``bits``: one per message ordinal, set for latest ones; ``nulls``: deleted keys.
    """

    bits: Array  # u8
    messages: int
    keys: int
    nulls: int
    spilled_runs: int


class LatestKeys:
    """Collects the keys of messages in order. Use in a ``with`` block, which removes its temporary files.

    ``ordinal``: that of the next message; callers advance it themselves for messages that they skip or ``merge``.
    """

    def __init__(self, limit_keys: int = LIMIT_KEYS) -> None:
        self._limit_keys = max(limit_keys, 1)
        self._table = _empty_table(min(_FIRST_PLACES, 1 << (2 * self._limit_keys).bit_length()))
        self._keys = 0
        self.ordinal = 0
        self._runs: list[SortedRun] = []
        self._file = RunFile()

    def add(self, batch: MessageBatch) -> None:
        """Add the keyed messages of a batch, which follow all messages added before."""
        progress = np.array([0, self.ordinal, self._keys], np.int64)
        while not slot_kernel.add_keys(
            (batch.data, batch.scratch), batch.rows, batch.slots, batch.firsts, progress, self._table
        ):
            self._keys = int(progress[2])
            self._make_room(int(np.diff(batch.firsts[progress[0] : progress[0] + 2])[0]))
            progress[2] = self._keys
        self._keys = int(progress[2])
        self.ordinal += len(batch.slots)

    def adding(self, batches: Iterable[MessageBatch]) -> Iterator[MessageBatch]:
        """Yield batches, each after adding its keys."""
        for batch in batches:
            self.add(batch)
            yield batch

    @property
    def held(self) -> int:
        """The number of keys in memory."""
        return self._keys

    def merge(self, keys: Table) -> None:
        """Add ``keys``: two hashes and ``last`` of the latest message of each key among some messages."""
        self._merge(keys, self._make_room)

    def _merge(self, keys: Table, make_room: Callable[[int], None]) -> None:
        progress = np.array([0, self._keys], np.int64)
        while not slot_kernel.merge_keys(keys, progress, self._table):
            self._keys = int(progress[1])
            make_room(1)
            progress[1] = self._keys
        self._keys = int(progress[1])

    def take(self) -> Table:
        """Return the keys in memory, in no order, and forget them."""
        used = self._table[2] != slot_kernel.EMPTY
        taken = self._table[0][used], self._table[1][used], self._table[2][used]
        self._clear()
        return taken

    def _clear(self) -> None:
        self._table[2][:] = slot_kernel.EMPTY
        self._keys = 0

    def _make_room(self, wanted: int) -> None:
        """Make room for more keys: a larger table, or an empty one if that would pass the limit."""
        if self._keys and self._keys + wanted > self._limit_keys:
            self._spill()
        self._grow(wanted)

    def _grow(self, wanted: int) -> None:
        places = len(self._table[2])
        while (self._keys + wanted) * 2 > places:
            places *= 2
        if places > len(self._table[2]):
            larger = _empty_table(places)
            slot_kernel.move_keys(self._table, larger)
            self._table = larger

    def _spill(self) -> None:
        """Write the table to a run, sorted by first hash, and empty it. Raises DiskFull."""
        used = np.flatnonzero(self._table[2] != slot_kernel.EMPTY)
        places = used[np.argsort(self._table[0][used])]
        self._runs.append(self._file.keep(len(places), (column[places] for column in self._table)))
        self._clear()

    def finish(self) -> Latest:
        """Return which messages are the latest of their keys."""
        bits = np.zeros(self.ordinal // 8 + 1, np.uint8)
        kept = nulls = 0
        for last in self._latest():
            some_kept, some_nulls = slot_kernel.mark_last(last, bits)
            kept, nulls = kept + some_kept, nulls + some_nulls
        return Latest(bits, self.ordinal, kept, nulls, len(self._runs))

    def _latest(self) -> Iterator[Array]:
        """Yield the ``last`` column, one row per key."""
        if not self._runs:
            yield self._table[2]
            return
        self._spill()
        parts = -(-sum(run.rows for run in self._runs) // self._limit_keys)
        begins = [0 for _ in self._runs]
        for part in range(parts):
            self._clear()
            for number, run in enumerate(self._runs):
                begin, begins[number] = begins[number], run.first_at((2**64 * (part + 1)) // parts)
                for start in range(begin, begins[number], _RUN_ROWS):
                    first, second, last = run.read(start, min(start + _RUN_ROWS, begins[number]))
                    self._merge((first, second, last), self._grow)
            yield self._table[2]

    def __enter__(self) -> LatestKeys:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.__exit__(*error)


def _empty_table(places: int) -> Table:
    return np.zeros(places, np.uint64), np.zeros(places, np.uint64), np.full(places, slot_kernel.EMPTY)
