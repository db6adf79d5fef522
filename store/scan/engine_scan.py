"""A file scanned by an engine: the interface of ``FileScan``, the work cut into slices that run side by side."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from store.errors import EntryLogCorrupt
from store.scan import kernel
from store.scan.files import FileScan, LedgerDigests, Problem, Records, Slice
from store.scan.local import FailedSlice, Finished
from store.scan.operations import Operation
from store.scan.slices import Cut, FileRange, plan_slices

_SCHEMA = pa.schema([("records", pa.binary()), ("state", pa.string())])


class Engine(Protocol):
    """What runs slices: ``LocalEngine`` or ``SparkEngine``."""

    failed: list[FailedSlice]

    def run(
        self, operation: Operation, pieces: Sequence[FileRange], finished: Finished
    ) -> Iterator[tuple[FileRange, pa.Table]]:
        """Yield (slice, its result) in any order."""


@dataclass(frozen=True)
class ScanRecords:
    """All records of a slice as one packed value, and how the scan ended; for the writer of the index."""

    digests: LedgerDigests
    verify: bool

    @property
    def schema(self) -> pa.Schema:
        return _SCHEMA

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield one row."""
        scan = FileScan(Slice(piece.path, piece.kind, piece.start, piece.end, piece.seek), self.digests, self.verify)
        packed = b"".join(batch.tobytes() for batch in scan.batches())
        state = {
            "problems": [list(asdict(problem).values()) for problem in scan.problems],
            "next_offset": scan.next_offset,
            "first_offset": scan.first_offset,
            "resume_offset": scan.resume_offset,
            "torn": scan.torn,
            "records": scan.records,
            "tail_records": scan.tail_records,
            "tail_problems": scan.tail_problems,
        }
        yield pa.RecordBatch.from_arrays([[packed], [json.dumps(state)]], schema=_SCHEMA)


@dataclass(slots=True)
class EngineScan:
    """Scans a slice of a file on an engine; fields as in ``FileScan`` once ``batches()`` is exhausted."""

    engine: Engine
    slice: Slice
    ledgers: LedgerDigests
    verify: bool = True
    cut: Cut = field(default_factory=Cut)
    problems: list[Problem] = field(default_factory=list)
    next_offset: int = 0
    torn: bool = False
    records: int = 0
    resume_offset: int = 0
    tail_records: int = 0
    tail_problems: int = 0

    def batches(self) -> Iterator[Records]:
        """Yield record arrays in file order; raises EntryLogCorrupt when a slice gave no result twice."""
        size = min(self.slice.end, os.stat(self.slice.path).st_size)
        pieces = plan_slices([(self.slice.path, -1, size)], self.cut)
        pieces = [piece for piece in pieces if piece.end > self.slice.start]
        if pieces and pieces[0].start <= self.slice.start:
            pieces[0] = replace(pieces[0], start=self.slice.start, seek=False)
        self.next_offset = self.resume_offset = self.slice.start
        early: dict[int, pa.Table] = {}
        order = {piece: index for index, piece in enumerate(pieces)}
        due = 0
        for piece, table in self.engine.run(ScanRecords(self.ledgers, self.verify), pieces, lambda _: None):
            early[order[piece]] = table
            while due in early:
                yield from self._take(pieces[due], early.pop(due))
                due += 1
        if due < len(pieces):
            failed = self.engine.failed[-1] if self.engine.failed else None
            raise EntryLogCorrupt(
                f"{self.slice.path}: bytes {pieces[due].start} to {pieces[due].end} could not be scanned"
                + (f": {failed.reason}" if failed else ""),
                hint="run the same command again: it goes on where it was",
                path=self.slice.path,
            )

    def _take(self, piece: FileRange, table: pa.Table) -> Iterator[Records]:
        """Yield the records of the next slice in order; one that begins elsewhere than the last ended is scanned again."""
        state = json.loads(table.column("state")[0].as_py())
        is_first = piece.start == self.slice.start
        if not is_first and state["first_offset"] != self.next_offset and self.next_offset < piece.end:
            yield from self._take(piece, self._again(piece))
            return
        if is_first or self.next_offset < piece.end:
            self._note(state)
            packed = table.column("records")[0].as_buffer()
            if packed.size:
                yield np.frombuffer(packed, kernel.RECORD).copy()

    def _again(self, piece: FileRange) -> pa.Table:
        whole = replace(piece, start=self.next_offset, seek=False)
        return pa.Table.from_batches(ScanRecords(self.ledgers, self.verify).run(whole), schema=_SCHEMA)

    def _note(self, state: dict[str, Any]) -> None:  # Any: JSON
        self.problems += [Problem(*row) for row in state["problems"]]
        self.records += state["records"]
        if state["records"] or state["problems"]:
            self.tail_records, self.tail_problems = state["tail_records"], state["tail_problems"]
            self.resume_offset = state["resume_offset"]
        elif self.resume_offset == self.next_offset:  # nothing but a ledgers map or padding, behind what is good
            self.resume_offset = state["resume_offset"]
        self.next_offset, self.torn = state["next_offset"], state["torn"]
