"""Entries of a topic read by an engine: the places come from the index here, what an executor gets is files and offsets.

An executor never sees the store. It returns columns and, of each entry, the bytes up to the end of its metadata; what it finds
wrong, or could not read at all, is read again here and explained as ever.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.digest import DIGEST_SIZE
from pulsar_admin.store.db.blocks import Block
from pulsar_admin.store.engine.memory import slice_bytes
from pulsar_admin.store.engine.operation import Engine, Operation
from pulsar_admin.store.engine.slices import SLICE_BYTES, FileRange
from pulsar_admin.store.errors import EntryLogCorrupt, NotWritable, SourceChanged, StoreError
from pulsar_admin.store.files import open_regular
from pulsar_admin.store.kernels import records as kernel
from pulsar_admin.store.kernels.records import BAD_DIGEST, UNVERIFIED
from pulsar_admin.store.kernels.wire import find_metadata_ends
from pulsar_admin.store.model.ledgers import Ledger, find_metadata, iter_blocks
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan.arrow import packed_row
from pulsar_admin.store.scan.files import LedgerDigests
from pulsar_admin.store.scan.places import BATCH_BYTES, EntryBatch, Places, PlacesReader, doubtful, split_places

PIECE_BYTES = SLICE_BYTES
ROUND_ENTRIES = 1 << 20  # handed to the engine at once: they bound what waits on the driver
_HEADER_BYTES = 32


class EntryPlaces(FileRange, frozen=True, eq=False):
    """One slice of entries: where each lies, in batches, and the files they lie in."""

    batches: Sequence[Places] = ()
    files: dict[int, str] = field(default_factory=dict)


class PlainFiles:
    """Files by id and path, read without a store; as ``EntryFiles`` reads them."""

    def __init__(self, paths: dict[int, str]) -> None:
        self._paths = paths
        self._open: dict[int, int] = {}

    def read(self, file_id: int, offset: int, length: int) -> bytes:
        """Return LENGTH bytes at OFFSET; raises SourceChanged for a file that is gone or cut."""
        path = self._paths[file_id]
        try:
            if file_id not in self._open:
                self._open[file_id] = open_regular(path)
            raw = os.pread(self._open[file_id], length, offset)
        except FileNotFoundError as error:
            raise SourceChanged(f"{path} is gone", hint="bring the file back", path=path) from error
        except OSError as error:
            raise EntryLogCorrupt(f"{path} @ {offset:#x}: {error.strerror}", path=path, offset=offset) from error
        if len(raw) < length:
            raise SourceChanged(f"{path} @ {offset:#x}: expected {length} bytes, found {len(raw)}", path=path)
        return raw

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)


def iter_batches(piece: FileRange) -> Iterator[tuple[Places, PlainFiles]]:
    """Yield the batches of a slice of entries, each with the files it lies in; they are closed at the end."""
    assert isinstance(piece, EntryPlaces)
    files = PlainFiles(piece.files)
    try:
        for places in piece.batches:
            yield places, files
    finally:
        files.close()


class PlacesOperation:
    """Makes one row of each batch of entries at given places: what ``COLUMNS`` names, packed."""

    __slots__ = ()
    COLUMNS: ClassVar[tuple[str, ...]] = ("rows",)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, pa.binary()) for name in self.COLUMNS])

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield one row per batch of places."""
        for places, files in iter_batches(piece):
            yield packed_row(self.schema, *self.values(places, files))

    def values(self, places: Places, files: PlainFiles) -> Iterable[bytes]:
        """Return the row of the entries at PLACES in FILES."""
        raise AssertionError


class ReadHeads(Struct, PlacesOperation, frozen=True):
    """The rows of the entries at given places, one row per batch; with ``heads`` also their bytes up to the payload.

    ``digests`` are the kinds to verify with; None: as the places say.
    """

    heads: bool = True
    digests: LedgerDigests | None = None

    COLUMNS = ("rows", "data", "offsets", "held")

    def values(self, places: Places, files: PlainFiles) -> Iterable[bytes]:
        batch = PlacesReader(files, self.heads, self.digests).read_places(places)
        kept = _heads_only(batch) if self.heads else _rows_only(batch)
        return (part.tobytes() for part in kept)


def _rows_only(batch: EntryBatch) -> tuple[Array, ...]:
    return batch.rows, np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64)


def _heads_only(batch: EntryBatch) -> tuple[Array, ...]:
    """Return (rows, data, offsets, held) with each entry cut where its metadata ends."""
    starts = batch.offsets + 4 + _HEADER_BYTES + batch.rows["digest_bytes"]
    ends = batch.offsets + 4 + batch.held
    metadata_ends = np.empty_like(starts)
    find_metadata_ends(batch.data, starts, ends, metadata_ends)
    sizes = np.where(metadata_ends < 0, ends, metadata_ends) - batch.offsets
    offsets = np.cumsum(sizes) - sizes
    within = np.arange(int(sizes.sum())) - np.repeat(offsets, sizes)
    return batch.rows, batch.data[np.repeat(batch.offsets, sizes) + within], offsets, sizes - 4


def read_heads(engine: Engine, files: Any, groups: Iterable[Places]) -> Iterator[tuple[Places, EntryBatch | None]]:
    """Yield (places, their entries up to the payload) in order; None for entries that ENGINE could not give."""
    for places, row in run_places(engine, ReadHeads(), files, groups):
        yield places, None if row is None else _batch_of(places, row)


def iter_rows(
    engine: Engine, digests: LedgerDigests, files: Any, groups: Iterable[Places]
) -> Iterator[tuple[Places, Array | None]]:
    """Yield (places, their rows, digests verified) in order; None for rows that the engine could not give."""
    for places, row in run_places(engine, ReadHeads(heads=False, digests=digests), files, groups):
        yield places, None if row is None else np.frombuffer(row["rows"], kernel.RECORD).copy()


def _batch_of(places: Places, row: dict[str, bytes]) -> EntryBatch:
    rows = np.frombuffer(row["rows"], kernel.RECORD).copy()
    offsets, held = np.frombuffer(row["offsets"], np.int64), np.frombuffer(row["held"], np.int64)
    data = np.frombuffer(row["data"], np.uint8)
    return EntryBatch(places.ledger_ids, places.entry_ids, data, offsets, held, rows)


def run_places(
    engine: Engine,
    operation: Operation,
    files: Any,
    groups: Iterable[Places],
    weight: Callable[[Places], int] = len,
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[tuple[Places, dict[str, bytes] | None]]:  # Any: EntryFiles, or what has its ``path_of``
    """Yield (places, OPERATION's row for them) of every group, in order; None where the engine gave no result twice.

    WEIGHT: how many entries' heads a group's row takes on the driver, about. PIECE_BYTES: of entries in a slice.
    """
    pieces: list[EntryPlaces] = []
    entries = 0
    for piece in _pieces(files, groups, min(piece_bytes, slice_bytes(engine.memory_bytes))):
        pieces.append(piece)
        entries += sum(weight(places) for places in piece.batches)
        if entries >= ROUND_ENTRIES:
            yield from _run_round(engine, operation, pieces)
            pieces, entries = [], 0
    if pieces:
        yield from _run_round(engine, operation, pieces)


def _pieces(files: Any, groups: Iterable[Places], target_bytes: int) -> Iterator[EntryPlaces]:
    batches: list[Places] = []
    size_bytes = 0
    for places in groups:
        batches.append(places)
        size_bytes += int(places.sizes.sum(dtype=np.int64))
        if size_bytes >= target_bytes:
            yield _piece(files, batches, size_bytes)
            batches, size_bytes = [], 0
    if batches:
        yield _piece(files, batches, size_bytes)


def _piece(files: Any, batches: list[Places], size_bytes: int) -> EntryPlaces:
    ids = np.unique(np.concatenate([places.files for places in batches])).tolist()
    first = int(batches[0].offsets[0])
    try:
        paths = {file_id: str(files.path_of(file_id)) for file_id in ids}
    except (SourceChanged, NotWritable) as error:
        # No executor gets it: who reads it here finds the same and says so.
        return EntryPlaces(
            str(error.context.get("path")), FileKind.ENTRY_LOG, ids[0], first, first + size_bytes, batches=batches
        )
    return EntryPlaces(
        paths[ids[0]], FileKind.ENTRY_LOG, ids[0], first, first + size_bytes, batches=batches, files=paths
    )


def _run_round(
    engine: Engine, operation: Operation, pieces: list[EntryPlaces]
) -> Iterator[tuple[Places, dict[str, bytes] | None]]:
    order = {id(piece): index for index, piece in enumerate(pieces)}
    early: dict[int, pa.Table] = {}
    due = 0
    for piece, table in engine.run(operation, [piece for piece in pieces if piece.files], lambda _: None):
        early[order[id(piece)]] = table
        del table  # the consumer of its rows frees it
        while due in early:
            yield from zip(pieces[due].batches, _rows_of(early.pop(due)), strict=True)
            due += 1
    # What an executor could not give is read again here, and explained, or listed by who reads it.
    engine.failed[:] = [failed for failed in engine.failed if id(failed.piece) not in order]
    for index in range(due, len(pieces)):
        rows = _rows_of(early.pop(index)) if index in early else [None] * len(pieces[index].batches)
        yield from zip(pieces[index].batches, rows, strict=True)


def _rows_of(table: pa.Table) -> Iterator[dict[str, bytes]]:
    """Yield the rows one after the other: as Python's bytes they are in memory once more."""
    for batch in table.to_batches(max_chunksize=1):
        yield from batch.to_pylist()


# -- delays ------------------------------------------------------------------------------------------------------------
# When entries are to be delivered, as columns: the same function here, in processes and on Spark.


class ReadDelays(Struct, PlacesOperation, frozen=True):
    """The delayed entries among those at given places, packed: one row per batch of places.

    ``rows``: which of them (i32), ``due_ms``: their times (i64); ``doubtful``: which are to be read again by who has the store.
    """

    COLUMNS = ("rows", "due_ms", "doubtful")

    def values(self, places: Places, files: PlainFiles) -> Iterable[bytes]:
        batch = PlacesReader(files, True, None).read_places(places)
        wrong = doubtful(batch, places)
        due = batch.rows["deliver_at_ms"]
        rows = np.flatnonzero((due > 0) & ~wrong)
        found = (rows.astype(np.int32), due[rows], np.flatnonzero(wrong).astype(np.int32))
        return (column.tobytes() for column in found)


# -- verifying ---------------------------------------------------------------------------------------------------------
# Digests of whole ledgers verified by an engine: what ``verify_ledger`` asks for block by block, read ahead in slices.


Rows = list[tuple[int, int] | None]
"""(length field, payload bytes) of each entry that is good."""


class EngineRows:
    """The rows of the blocks of LEDGERS, in order; call it with each block in turn."""

    def __init__(self, engine: Engine, reader: EntryReader, ledgers: Sequence[int]) -> None:
        self._engine = engine
        self._reader = reader
        self._rows = self._read_ahead(ledgers)

    def __call__(self, reader: EntryReader, ledger: Ledger, block: Block) -> Rows:
        """Return the rows of BLOCK; None for what is to be read again, and explained, by the reader."""
        for key, rows in self._rows:
            if key == (ledger.ledger_id, block.entry_id(0)):
                return rows
        return [None] * len(block)

    def _read_ahead(self, ledgers: Sequence[int]) -> Iterator[tuple[tuple[int, int], Rows]]:
        due: deque[tuple[tuple[int, int], int]] = deque()  # blocks handed out: key, entries
        digests = _known_digests(self._reader, ledgers)
        rows: Rows = []
        for places, found in iter_rows(self._engine, digests, self._reader.files, self._pieces(ledgers, due)):
            rows += [None] * len(places) if found is None else _judged(places, found)
            key, entries = due[0]
            if len(rows) == entries:
                due.popleft()
                yield key, rows
                rows = []

    def _pieces(self, ledgers: Sequence[int], due: deque[tuple[tuple[int, int], int]]) -> Iterator[Places]:
        """Yield the places of every block, by pieces where its entries are large; tell DUE of each block before."""
        for ledger_id in ledgers:
            for block in iter_blocks(self._reader.txn, ledger_id):
                due.append(((ledger_id, block.entry_id(0)), len(block)))
                yield from split_places(Places.of(block, 0, len(block)), BATCH_BYTES)


def _judged(places: Places, rows: Array) -> Rows:
    good = rows["flags"] & (BAD_DIGEST | UNVERIFIED) == 0
    good &= (rows["entry_id"] == places.entry_ids) & (rows["ledger_id"] == places.ledger_ids)
    payload = np.maximum(places.sizes.astype(np.int64) - 32 - rows["digest_bytes"], 0)
    found = zip(good.tolist(), rows["length"].tolist(), payload.tolist(), strict=True)
    return [(length, size) if is_good else None for is_good, length, size in found]


def _known_digests(reader: EntryReader, ledgers: Sequence[int]) -> LedgerDigests:
    """Return the digest sizes that metadata names; the digest of any other ledger is found by trying."""
    kinds: dict[int, int] = {}
    for ledger_id in ledgers:
        try:
            metadata = find_metadata(reader.txn, ledger_id)
        except StoreError:
            continue
        if metadata is not None and metadata.digest_type is not None:
            kinds[ledger_id] = DIGEST_SIZE[metadata.digest_type]
    return LedgerDigests.of(kinds)
