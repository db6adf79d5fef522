"""The latest message of every key, exact up to a collision of 128-bit hashes, in bounded memory.

Keys are entered into a table as they come. A table that reaches its limit is written out as a run, sorted by hash, and begun
anew; at the end the runs are merged range by range of hashes, the latest entry of a key winning.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from store.compactor import slot_kernel
from store.compactor.batches import MessageBatch

Array = np.ndarray[Any, Any]  # a column; its dtype is stated where it is made
Table = tuple[Array, Array, Array]

KEY_BYTES = 24
LIMIT_KEYS = 2 << 20
"""Keys in memory: a table twice as large, and the smaller one it grew out of, take 150 MiB; so does sorting it."""

_FIRST_PLACES = 1 << 16
_RUN_ROWS = 1 << 16  # rows of a run that are read at once


@dataclass(frozen=True, slots=True)
class Latest:
    """Which messages are the latest of their keys. ``bits``: one a message, by ordinal; ``nulls``: keys whose latest is null."""

    bits: Array  # u8
    messages: int
    keys: int
    nulls: int
    spilled_runs: int


class LatestKeys:
    """Collects the keys of messages in order. Use in ``with``: runs that were written out go away at its end.

    ``ordinal``: of the next message; who leaves messages out, or merges their keys, moves it on.
    """

    def __init__(self, limit_keys: int = LIMIT_KEYS) -> None:
        self._limit_keys = max(limit_keys, 1)
        self._table = _empty_table(min(_FIRST_PLACES, 1 << (2 * self._limit_keys).bit_length()))
        self._keys = 0
        self.ordinal = 0
        self._runs: list[_Run] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def add(self, batch: MessageBatch) -> None:
        """Enter the keyed messages of BATCH; its messages come behind all those before."""
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
        """Yield BATCHES, each once its keys are entered."""
        for batch in batches:
            self.add(batch)
            yield batch

    @property
    def held(self) -> int:
        """Keys in memory."""
        return self._keys

    def merge(self, keys: Table) -> None:
        """Enter KEYS, hashes and ``last``, each the latest of its key among some messages."""
        progress = np.array([0, self._keys], np.int64)
        while not slot_kernel.merge_keys(keys, progress, self._table):
            self._keys = int(progress[1])
            self._make_room(1)
            progress[1] = self._keys
        self._keys = int(progress[1])

    def take(self) -> Table:
        """Return the keys in memory, in no order, and forget them."""
        used = self._table[2] != slot_kernel.EMPTY
        taken = self._table[0][used], self._table[1][used], self._table[2][used]
        self._table[2][:] = slot_kernel.EMPTY
        self._keys = 0
        return taken

    def _make_room(self, wanted: int) -> None:
        """Make room for WANTED more keys: a larger table, or an empty one when the limit is reached."""
        if self._keys >= self._limit_keys:
            self._spill()
        places = len(self._table[2])
        while (self._keys + wanted) * 2 > places:
            places *= 2
        if places > len(self._table[2]):
            larger = _empty_table(places)
            slot_kernel.move_keys(self._table, larger)
            self._table = larger

    def _spill(self) -> None:
        """Write the table out as a run and begin anew."""
        import pyarrow as pa

        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="pulsar-admin-keys-")
        path = Path(self._folder.name) / f"{len(self._runs)}.arrow"
        columns = pa.table(list(_sorted(self._table)), names=["first", "second", "last"])
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, columns.schema) as writer:
            writer.write_table(columns, max_chunksize=_RUN_ROWS)
        self._runs.append(_Run(path, columns["first"].to_numpy()[::_RUN_ROWS].copy(), len(columns)))
        self._table[2][:] = slot_kernel.EMPTY
        self._keys = 0

    def finish(self) -> Latest:
        """Return which messages are the latest of their keys."""
        bits = np.zeros(self.ordinal // 8 + 1, np.uint8)
        kept = nulls = 0
        for last in self._latest():
            some_kept, some_nulls = slot_kernel.mark_last(last, bits)
            kept, nulls = kept + some_kept, nulls + some_nulls
        return Latest(bits, self.ordinal, kept, nulls, len(self._runs))

    def _latest(self) -> Iterator[Array]:
        """Yield the ``last`` column, one row a key."""
        if not self._runs:
            yield self._table[2]
            return
        self._spill()
        self._table = _empty_table(1)
        parts = -(-sum(run.rows for run in self._runs) // self._limit_keys)
        edges = [np.uint64((2**64 * part) // parts) for part in range(parts)]
        for part, edge in enumerate(edges):
            merged = [run.between(edge, edges[part + 1] if part + 1 < parts else None) for run in self._runs]
            yield _newest(tuple(np.concatenate([run[column] for run in merged]) for column in range(3)))  # type: ignore[arg-type]

    def __enter__(self) -> LatestKeys:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is not None:
            self._folder.cleanup()


def _empty_table(places: int) -> Table:
    return np.zeros(places, np.uint64), np.zeros(places, np.uint64), np.full(places, slot_kernel.EMPTY)


def _sorted(table: Table) -> Table:
    """Return the keys of TABLE in the order of their hashes."""
    used = table[2] != slot_kernel.EMPTY
    first, second, last = table[0][used], table[1][used], table[2][used]
    order = np.lexsort((last, second, first))
    return first[order], second[order], last[order]


@dataclass(frozen=True, slots=True)
class _Run:
    """Keys in a file, in the order of their hashes. ``firsts``: the first hash of every ``_RUN_ROWS`` rows."""

    path: Path
    firsts: Array  # u64
    rows: int

    def between(self, low: np.uint64, high: np.uint64 | None) -> Table:
        """Return the keys whose first hash is LOW or more and below HIGH (None: no end); reads no more than holds them."""
        import pyarrow as pa

        # The rows before one that begins with LOW may end with it.
        begin = max(int(np.searchsorted(self.firsts, low, "left")) - 1, 0)
        end = len(self.firsts) if high is None else int(np.searchsorted(self.firsts, high, "left"))
        with pa.OSFile(str(self.path)) as source:
            reader = pa.ipc.open_file(source)
            parts = [_cut(reader.get_batch(number), low, high) for number in range(begin, end)]
        first, second, last = (
            np.concatenate([np.empty(0, np.uint64), *(part[column] for part in parts)]) for column in range(3)
        )
        return first, second, last


def _cut(rows: Any, low: np.uint64, high: np.uint64 | None) -> Table:  # Any: pyarrow.RecordBatch
    first, second, last = (rows.column(number).to_numpy() for number in range(3))
    start = int(np.searchsorted(first, low, "left"))
    end = len(first) if high is None else int(np.searchsorted(first, high, "left"))
    return first[start:end], second[start:end], last[start:end]


def _newest(keys: Table) -> Array:
    """Return ``last`` of the newest row of every key."""
    first, second, last = keys
    order = np.lexsort((last, second, first))
    first, second, last = first[order], second[order], last[order]
    newest = np.append((first[1:] != first[:-1]) | (second[1:] != second[:-1]), True) if len(last) else last != last
    kept: Array = last[newest]
    return kept
