"""Phase one of the table ``entries``: a slice of a file → records sorted by ledger and entry, cut at the edges of ranges.

A staging file is Arrow IPC streams one behind the other, one for each range of keys that the slice has entries of, so that who
makes a range reads its part of every file with one request and nothing else. The driver is told where the parts are.
"""

from __future__ import annotations

import os
import platform
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.errors import DiskFull, NotFound, SourceChanged, SourceNotFound
from pulsar_admin.store.kernels import records as kernel
from pulsar_admin.store.kernels.producers import producer_spans, sequence_ids
from pulsar_admin.store.scan.arrow import column, spans_array
from pulsar_admin.store.scan.files import BATCH_RECORDS, FileScan, LedgerDigests, Slice
from pulsar_admin.store.tables.folder import Folder

UNSEEN = (
    "nothing was written; run it where all files can be read, or name paths that every executor sees (a shared mount)"
)
STAGED_ROWS = BATCH_RECORDS  # sorted at once: a staging file has about so many
NO_SEQUENCE = np.int64(-(1 << 63))
RECORD_FIELDS = tuple(name for name in kernel.RECORD.names or () if name != "length")
_NUMBERS = {name: pa.from_numpy_dtype(kernel.RECORD[name]) for name in RECORD_FIELDS}
STAGED = pa.schema([*_NUMBERS.items(), ("sequence_id", pa.int64()), ("producer", pa.string())])

SEGMENTS = pa.schema(
    [
        ("host", pa.string()),
        ("error", pa.string()),  # of a disk that is full: nobody tries again
        ("file", pa.string()),  # "": the slice's last row, which says how it ended
        ("bytes", pa.int64()),
        ("ranges", pa.list_(pa.int32())),  # by part
        ("offsets", pa.list_(pa.int64())),
        ("rows", pa.list_(pa.int64())),
        ("first_offset", pa.int64()),
        ("next_offset", pa.int64()),
        ("problems", pa.int64()),
    ]
)


class Edges(Struct, frozen=True):
    """Where ranges of (ledger id, entry id) begin, ascending; what lies before the first edge is range 0."""

    ledgers: Array  # i64
    entries: Array  # i64

    def cut(self, ledgers: Array, entries: Array) -> tuple[Array, Array]:
        """Return (range, its first row) of the ranges that have rows of sorted LEDGERS and ENTRIES, and the end as a last row."""
        low = int(np.searchsorted(self.ledgers, ledgers[0], "left"))
        high = int(np.searchsorted(self.ledgers, ledgers[-1], "right"))
        starts = np.searchsorted(ledgers, self.ledgers[low:high], "left")
        ends = np.searchsorted(ledgers, self.ledgers[low:high], "right")
        inside = [
            start + int(np.searchsorted(entries[start:end], entry))
            for start, end, entry in zip(starts.tolist(), ends.tolist(), self.entries[low:high].tolist(), strict=True)
        ]
        rows = np.array([0, *inside, len(ledgers)], np.int64)
        ranges = np.arange(low, low + len(rows) - 1, dtype=np.int32)
        filled = np.diff(rows) > 0
        return ranges[filled], np.append(rows[:-1][filled], len(ledgers))


class StageEntries(Struct, frozen=True):
    """One staging file or more a slice, in the folder's directory ``directory``."""

    folder: Folder
    directory: str
    edges: Edges
    digests: LedgerDigests = field(default_factory=lambda: LedgerDigests.of({}))
    staged_rows: int = STAGED_ROWS

    @property
    def schema(self) -> pa.Schema:
        return SEGMENTS

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield a row for each staging file, and one that says how the slice ended. Raises SourceNotFound, SourceChanged."""
        scan = FileScan(Slice(piece.path, piece.kind, piece.start, piece.end, piece.seek), self.digests)
        try:
            waiting: list[pa.RecordBatch] = []
            rows = 0
            for records in _present(scan, piece):
                waiting.append(_staged(records, scan))
                rows += len(records)
                if rows >= self.staged_rows:
                    yield _answer(**self._write(waiting))
                    rows = 0
            if rows:
                yield _answer(**self._write(waiting))
        except DiskFull as error:
            yield _answer(error=error.message)
        except NotFound as error:
            if isinstance(error, SourceNotFound):
                raise
            raise unseen(self.folder.at(self.directory)) from error
        yield _answer(first_offset=scan.first_offset, next_offset=scan.next_offset, problems=len(scan.problems))

    def _write(self, waiting: list[pa.RecordBatch]) -> dict[str, Any]:  # Any: columns of SEGMENTS
        """Write what is WAITING, and nothing is."""
        table = pa.Table.from_batches(waiting, STAGED).combine_chunks()
        waiting.clear()
        ledgers, entries = (table.column(name).to_numpy() for name in ("ledger_id", "entry_id"))
        order = np.lexsort((entries, ledgers))
        if not np.all(order[1:] > order[:-1]):
            table = table.take(pa.array(order))
        ranges, edges = self.edges.cut(ledgers[order], entries[order])
        name = f"{self.directory}/{uuid.uuid4().hex}.arrows"
        offsets = [0]
        with self.folder.create(name) as out:
            for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
                data = _packed(table.slice(start, end - start))
                out.write(data)
                offsets.append(offsets[-1] + data.size)
        parts = {"ranges": ranges.tolist(), "offsets": offsets, "rows": np.diff(edges).tolist()}
        return {"file": name, "bytes": offsets[-1], **parts}


def unseen(path: str) -> SourceNotFound:
    """Return the error of a path that this machine does not see."""
    return SourceNotFound(f"{platform.node()} does not see {path}", hint=UNSEEN, path=path)


def _packed(table: pa.Table) -> pa.Buffer:
    part = pa.BufferOutputStream()
    with pa.ipc.new_stream(part, STAGED, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return part.getvalue()


def _present(scan: FileScan, piece: FileRange) -> Iterator[Array]:
    """Yield the records of SCAN that the store knows: a file may have grown since; raises SourceNotFound for one not seen here."""
    try:
        for records in scan.batches():
            known = records[records["offset"] + 4 + records["size"] <= piece.end] if _is_last(piece) else records
            if len(known):
                yield known
    except SourceChanged as error:
        if os.path.exists(piece.path):
            raise
        raise unseen(piece.path) from error


def _is_last(piece: FileRange) -> bool:
    """Whether nothing of its file behind PIECE is read."""
    return isinstance(piece, LastRange)


class LastRange(FileRange, frozen=True):
    """The slice at the end of a file: what ends behind it came later."""


def _staged(records: Array, scan: FileScan) -> pa.RecordBatch:
    """Return RECORDS as columns, with producer and sequence id from the bytes they were read from."""
    window = scan.window
    assert window is not None
    first, last = records["offset"].min(), (records["offset"] + 4 + records["size"]).max()
    window.cover(int(first), int(last))
    at = records["offset"] - window.base
    starts, ends = at + 4 + 32 + records["digest_bytes"], at + 4 + records["size"]
    framed = records["flags"] & (kernel.UNFRAMED | kernel.BAD_DIGEST) == 0
    ends = np.where(framed, ends, starts)
    producers, sequences = senders(window.data, starts, ends)
    numbers = [column(records[name].copy()) for name in RECORD_FIELDS]
    return pa.RecordBatch.from_arrays([*numbers, column(sequences), producers], schema=STAGED)


def entry_keys(ledgers: Array, entries: Array) -> Array:
    """Return the pairs of LEDGERS and ENTRIES as one column, which can be compared and searched."""
    keys = np.empty(len(ledgers), [("ledger", np.int64), ("entry", np.int64)])
    keys["ledger"], keys["entry"] = ledgers, entries
    return keys


def senders(data: Array, starts: Array, ends: Array) -> tuple[pa.Array, Array]:
    """Return the producers of the messages whose bytes of DATA go from STARTS to ENDS, and their sequence ids."""
    spans = np.zeros((len(starts), 2), np.int64)
    producer_spans(data, starts, ends, spans)
    sequences = np.full(len(starts), NO_SEQUENCE)
    sequence_ids(data, starts, ends, sequences)
    try:
        producers = spans_array(data, spans[:, 0].copy(), spans[:, 1].copy(), pa.string())
    except pa.ArrowInvalid:  # not UTF-8: protobuf does not look
        raw = [bytes(data[start : start + size]) if size >= 0 else None for start, size in spans.tolist()]
        producers = pa.array([None if one is None else one.decode(errors="replace") for one in raw], pa.string())
    return producers, sequences


def _answer(**values: Any) -> pa.RecordBatch:  # Any: columns of SEGMENTS
    row = {"host": platform.node(), "file": "", **values}
    columns = [pa.array([row.get(item.name)], item.type) for item in SEGMENTS]
    return pa.RecordBatch.from_arrays(columns, schema=SEGMENTS)
