"""A file scanned by an engine for the writer of the index: cut into slices that run side by side, put together again in order."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa

from store.errors import SourceChanged
from store.scan.arrow import packed_row
from store.scan.files import FileScan, LedgerDigests, Problem, Slice
from store.scan.local import FailedSlice, Finished
from store.scan.operations import Operation
from store.scan.runs import Runs, decode_runs, pack_runs
from store.scan.slices import Cut, FileRange, plan_slices

_SCHEMA = pa.schema([*((name, pa.binary()) for name in Runs.COLUMNS), ("state", pa.string())])


class Engine(Protocol):
    """What runs slices: ``LocalEngine`` or ``SparkEngine``."""

    failed: list[FailedSlice]

    @property
    def memory_bytes(self) -> int | None:
        """What one of its processes may use; None: it is not bounded."""

    def run(
        self, operation: Operation, pieces: Sequence[FileRange], finished: Finished
    ) -> Iterator[tuple[FileRange, pa.Table]]:
        """Yield (slice, its result) in any order."""


@dataclass(frozen=True)
class ScanRuns:
    """What the index needs of a slice: the runs of every batch, a row each, and in a last row how the scan ended."""

    digests: LedgerDigests
    verify: bool

    @property
    def schema(self) -> pa.Schema:
        return _SCHEMA

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        scan = FileScan(Slice(piece.path, piece.kind, piece.start, piece.end, piece.seek), self.digests, self.verify)
        for batch in scan.batches():
            runs = pack_runs(batch, keep_first=piece.kind == "journal")
            yield packed_row(_SCHEMA, *(column.tobytes() for column in runs.columns()), b"")
        state = {
            "problems": [list(asdict(problem).values()) for problem in scan.problems],
            "next_offset": scan.next_offset,
            "first_offset": scan.first_offset,
            "resume_offset": scan.resume_offset,
            "torn": scan.torn,
            "records": scan.records,
            "tail_records": scan.tail_records,
        }
        yield packed_row(_SCHEMA, *(b"" for _ in Runs.COLUMNS), json.dumps(state).encode())


@dataclass(slots=True)
class EngineScan:
    """One file whose slices an engine runs. ``pieces`` are what it is given; ``take`` takes their results in any order.

    The other fields are those of ``FileScan``, of the slices from the first one on that have their results.
    """

    slice: Slice
    file_id: int
    operation: ScanRuns
    pieces: list[FileRange] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    next_offset: int = 0
    torn: bool = False
    records: int = 0
    resume_offset: int = 0
    tail_records: int = 0
    _early: dict[FileRange, pa.Table] = field(default_factory=dict)
    _due: int = 0

    def plan(self, cut: Cut) -> list[FileRange]:
        """Cut the file into slices; raises SourceChanged when it is gone.

        Where it is cut does not depend on where the scan begins, so that one that goes on has the slices of the one before.
        """
        part = self.slice
        size = min(part.end, _size_of(part.path))
        pieces = [piece for piece in plan_slices([(part.path, self.file_id, size)], cut) if piece.end > part.start]
        if pieces and pieces[0].start <= part.start:
            pieces[0] = replace(pieces[0], start=part.start, seek=False)
        self.pieces = pieces
        self.next_offset = self.resume_offset = part.start
        return pieces

    @property
    def missing(self) -> FileRange | None:
        """The first slice without a result; what lies behind it has to wait."""
        return self.pieces[self._due] if self._due < len(self.pieces) else None

    def take(self, piece: FileRange, table: pa.Table) -> Iterator[tuple[FileRange, list[Runs]]]:
        """Take PIECE's result; yield (slice, its runs) of every one that was due, the fields above brought up to it."""
        self._early[piece] = table
        while (due := self.missing) in self._early:
            assert due is not None
            runs = self._join(due, self._early.pop(due))
            self._due += 1
            yield due, runs

    def _join(self, piece: FileRange, table: pa.Table) -> list[Runs]:
        """Return the runs of the next slice; one that begins elsewhere than the last ended is scanned again, here."""
        is_first = piece.start == self.slice.start
        if not is_first and self.next_offset >= piece.end:
            return []  # inside the last record
        state = _state_of(table)
        if not is_first and state["first_offset"] != self.next_offset:
            whole = replace(piece, start=self.next_offset, seek=False)
            table = pa.Table.from_batches(self.operation.run(whole), schema=_SCHEMA)
            state = _state_of(table)
        self._note(state)
        return [decode_runs([batch.column(name)[0].as_buffer() for name in Runs.COLUMNS]) for batch in _runs_of(table)]

    def _note(self, state: dict[str, Any]) -> None:  # Any: JSON
        self.problems += [Problem(*row) for row in state["problems"]]
        self.records += state["records"]
        # A slice without a good record moves nothing, unless all before it was good.
        if state["records"] > state["tail_records"] or self.resume_offset == self.next_offset:
            self.resume_offset, self.tail_records = state["resume_offset"], state["tail_records"]
        else:
            self.tail_records += state["records"]
        self.next_offset, self.torn = state["next_offset"], state["torn"]


def _state_of(table: pa.Table) -> dict[str, Any]:  # Any: JSON
    state: dict[str, Any] = json.loads(table.column("state")[-1].as_py())
    return state


def _runs_of(table: pa.Table) -> list[pa.RecordBatch]:
    """Return the rows of TABLE but the last, each as a batch."""
    rows: list[pa.RecordBatch] = table.slice(0, len(table) - 1).to_batches(max_chunksize=1)
    return rows


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise SourceChanged(
            f"{path} cannot be read: {error.strerror}",
            hint="bring the file back, or run `store refresh`",
            path=path,
        ) from error
