"""Scans a file for the index with an engine: slices run in parallel, and their results are joined in order."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import astuple, replace

from pulsar_admin.store.engine.local import LocalEngine
from pulsar_admin.store.engine.memory import cut_for, own_memory_bytes
from pulsar_admin.store.engine.operation import Engine
from pulsar_admin.store.engine.slices import Cut, FileRange, kind_of, plan_slices
from pulsar_admin.store.errors import SourceChanged
from pulsar_admin.store.kernels.columns import RECORD
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan.arrow import packed_row
from pulsar_admin.store.scan.files import FileScan, LedgerDigests, Problem, Records, Slice
from pulsar_admin.store.scan.ledgers_map import ledger_sizes
from pulsar_admin.store.scan.runs import Runs, decode_runs, pack_runs
from pulsar_admin.store.scan.sources import open_source
from pulsar_admin.store.urls import check_length, file_info, is_url, shown_path

Part = TypeVar("Part")
ROUND_SLICES = 8  # their records wait here for those before them


class ScanFile(Struct, Generic[Part], frozen=True):
    """A slice of a file scanned completely: one row per batch of records, and a last row with the state at its end.

    Subclasses say which values of a batch are kept (``encode``, one per column of ``COLUMNS``) and its form in this
    process (``decode``).
    """

    COLUMNS: ClassVar[tuple[str, ...]]
    LEAVES_CACHE: ClassVar[bool] = False
    digests: LedgerDigests
    verify: bool
    lengths: Mapping[int, tuple[int, int]] = {}
    """``FileScan.lengths`` before the slice."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*((name, pa.binary()) for name in self.COLUMNS), ("state", pa.string())])

    def encode(self, batch: Records, piece: FileRange) -> Iterable[bytes]:
        """Return the values to keep of a batch, one per column of ``COLUMNS``."""
        raise AssertionError

    def decode(self, columns: list[pa.Buffer]) -> Part:
        """Return the values that ``encode`` kept."""
        raise AssertionError

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield a row per batch of the slice, and a last one with the state at its end."""
        part = Slice(piece.path, piece.kind, piece.start, piece.end, piece.seek)
        if not is_url(piece.path):
            scan = FileScan(part, self.digests, self.verify, leaves_cache=self.LEAVES_CACHE, lengths=dict(self.lengths))
            yield from self._rows(scan, piece)
        else:
            with open_source(piece) as source:
                while True:
                    scan = FileScan(
                        replace(part, path=source.path), self.digests, self.verify, lengths=dict(self.lengths)
                    )
                    rows = [*self._rows(scan, piece)]
                    if source.end >= source.size_bytes or not scan.reaches(source.end):
                        break
                    source.extend(piece.end + 2 * (source.end - piece.end))
                shown = shown_path(piece.path)
                scan.problems = [replace(one, reason=one.reason.replace(source.path, shown)) for one in scan.problems]
            yield from rows
        state = {
            "file_id": piece.file_id,
            "start": piece.start,
            "problems": [list(astuple(problem)) for problem in scan.problems],
            "next_offset": scan.next_offset,
            "first_offset": scan.first_offset,
            "resume_offset": scan.resume_offset,
            "torn": scan.torn,
            "records": scan.records,
            "tail_records": scan.tail_records,
            "lengths": [(ledger_id, *counted) for ledger_id, counted in scan.lengths.items()],
            "unknown": [(ledger_id, *first) for ledger_id, first in scan.unknown.items()],
        }
        yield packed_row(self.schema, *(b"" for _ in self.COLUMNS), json.dumps(state).encode())

    def _rows(self, scan: FileScan, piece: FileRange) -> Iterator[pa.RecordBatch]:
        for batch in scan.batches():
            yield packed_row(self.schema, *self.encode(batch, piece), b"")


class ScanRuns(ScanFile[Runs], frozen=True):
    """The runs of every batch of a slice, for the index."""

    COLUMNS = Runs.COLUMNS
    LEAVES_CACHE = True

    def encode(self, batch: Records, piece: FileRange) -> Iterable[bytes]:
        return (column.tobytes() for column in pack_runs(batch, keep_first=piece.kind == FileKind.JOURNAL).columns())

    def decode(self, columns: list[pa.Buffer]) -> Runs:
        return decode_runs(columns)


class ScanRecords(ScanFile[Records], frozen=True):
    """The records of every batch, as the kernel made them."""

    COLUMNS = ("records",)

    def encode(self, batch: Records, piece: FileRange) -> Iterable[bytes]:
        return (batch.tobytes(),)

    def decode(self, columns: list[pa.Buffer]) -> Records:
        decoded: Records = np.frombuffer(columns[0], RECORD)
        return decoded


class ScanSizes(ScanFile[dict[int, int]], frozen=True):
    """How many bytes the records of each ledger have in every batch, with their size fields."""

    COLUMNS = ("ledgers", "sizes")

    def encode(self, batch: Records, piece: FileRange) -> Iterable[bytes]:
        return (column.tobytes() for column in ledger_sizes(batch))

    def decode(self, columns: list[pa.Buffer]) -> dict[int, int]:
        ledgers, sizes = (np.frombuffer(column, np.int64).tolist() for column in columns)
        return dict(zip(ledgers, sizes, strict=True))


class EngineScan(Struct, Generic[Part]):
    """One file whose slices an engine scans. ``pieces`` are its tasks; ``take`` takes their results in any order.

    The other fields are those of ``FileScan``, for the slices from the first one on that have results.
    """

    slice: Slice
    file_id: int
    operation: ScanFile[Part]
    pieces: list[FileRange] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    next_offset: int = 0
    torn: bool = False
    records: int = 0
    resume_offset: int = 0
    tail_records: int = 0
    _early: dict[FileRange, pa.Table] = field(default_factory=dict)
    _due: int = 0
    _lengths: dict[int, tuple[int, int]] = field(default_factory=dict)

    def plan(self, cut: Cut) -> list[FileRange]:
        """Cut the file into slices; raises SourceChanged when it is gone.

        The cuts do not depend on where the scan begins, so a continued scan has the same slices.
        """
        part = self.slice
        try:
            size = min(part.end, file_info(part.path)[0])
        except OSError as error:
            raise SourceChanged(
                f"{part.path} cannot be read: {error.strerror}",
                hint="restore the file, or run: pulsar-admin store refresh",
                path=part.path,
            ) from error
        if is_url(part.path):
            check_length(shown_path(part.path), part.end, size, "copy the file there again")
        pieces = [piece for piece in plan_slices([(part.path, self.file_id, size)], cut) if piece.end > part.start]
        if part.kind != kind_of(part.path) and size:  # its name does not say what it is
            pieces = [FileRange(part.path, part.kind, self.file_id, part.start, size)]
        if pieces and pieces[0].start <= part.start:
            pieces[0] = replace(pieces[0], start=part.start, seek=False)
        self.pieces = pieces
        self.next_offset = self.resume_offset = part.start
        return pieces

    @property
    def missing(self) -> FileRange | None:
        """The first slice without a result; slices after it must wait."""
        return self.pieces[self._due] if self._due < len(self.pieces) else None

    def take(self, piece: FileRange, table: pa.Table) -> Iterator[tuple[FileRange, list[Part]]]:
        """Accept a slice's result; update the fields and yield (slice, its parts) of all that are next in order."""
        self._early[piece] = table
        while (due := self.missing) in self._early:
            assert due is not None
            parts = self._join(due, self._early.pop(due))
            self._due += 1
            yield due, parts

    def _lacks_lengths(self, state: dict[str, Any]) -> bool:  # Any: JSON
        """Whether a slice depends on the lengths in entries before it: damage, or a ledger's too long first entry."""
        if not self._lengths:
            return False
        return any(ledger_id < 0 for _, _, _, ledger_id, _ in state["problems"]) or any(
            surplus + before > 0
            for ledger_id, entry_id, surplus in state["unknown"]
            for last_id, before in [self._lengths.get(ledger_id, (entry_id, 0))]
            if entry_id > last_id
        )

    def _join(self, piece: FileRange, table: pa.Table) -> list[Part]:
        """Return the parts of the next slice; if it does not begin where the last ended, it is scanned again here."""
        is_first = piece.start == self.slice.start
        if not is_first and self.next_offset >= piece.end:
            return []  # inside the last record
        state = _state_of(table)
        if not is_first and (state["first_offset"] != self.next_offset or self._lacks_lengths(state)):
            whole = replace(piece, start=self.next_offset, seek=False)
            operation = replace(self.operation, lengths=self._lengths)
            table = pa.Table.from_batches(operation.run(whole), schema=operation.schema)
            state = _state_of(table)
        self._lengths |= {ledger_id: (entry_id, length) for ledger_id, entry_id, length in state["lengths"]}
        self.problems += [Problem(*row) for row in state["problems"]]
        self.records += state["records"]
        # A slice without a good record moves nothing, unless all before it was good.
        if state["records"] > state["tail_records"] or self.resume_offset == self.next_offset:
            self.resume_offset, self.tail_records = state["resume_offset"], state["tail_records"]
        else:
            self.tail_records += state["records"]
        self.next_offset, self.torn = state["next_offset"], state["torn"]
        names = self.operation.COLUMNS
        # The last row tells how the slice ended; each of the others is a part.
        rows: list[pa.RecordBatch] = table.slice(0, len(table) - 1).to_batches(max_chunksize=1)
        return [self.operation.decode([row.column(name)[0].as_buffer() for name in names]) for row in rows]


class EngineLog(EngineScan[Part], Generic[Part]):
    """Like ``FileScan`` for a whole file that ``engine`` (None: this process) scans; ``batches`` yields the operation's
    parts instead of records.

    At most ``ROUND_SLICES`` results are in memory.
    """

    engine: Engine | None = None

    def batches(self) -> Iterator[Part]:
        """Yield the parts in file order; raises SourceChanged, EntryLogCorrupt for a slice unreadable here too."""
        engine = self.engine or LocalEngine(1, own_memory_bytes())
        pieces = self.plan(cut_for(engine.memory_bytes))
        for start in range(0, len(pieces), ROUND_SLICES):
            ours = pieces[start : start + ROUND_SLICES]
            for piece, table in engine.run(self.operation, ours, lambda _: None):
                yield from self._taken(piece, table)
            engine.failed[:] = [failed for failed in engine.failed if failed.piece not in ours]
            while (missing := self.missing) in ours:
                assert missing is not None
                table = pa.Table.from_batches(self.operation.run(missing), schema=self.operation.schema)
                yield from self._taken(missing, table)

    def _taken(self, piece: FileRange, table: pa.Table) -> Iterator[Part]:
        for _, parts in self.take(piece, table):
            yield from parts


def _state_of(table: pa.Table) -> dict[str, Any]:  # Any: JSON
    state: dict[str, Any] = json.loads(table.column("state")[-1].as_py())
    return state
