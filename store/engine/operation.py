"""What engines run, what runs it, and what they say of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa
from msgspec import Struct

from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.errors import LimitExceeded, SliceFailed, StoreError

Finished = Callable[[FileRange], None]
Results = Iterator[tuple[FileRange, pa.Table]]


class Operation(Protocol):
    """Picklable work on one slice."""

    @property
    def schema(self) -> pa.Schema:
        """The columns that ``run`` yields."""

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield the result for one slice, in batches of bounded size."""


class FailedSlice(Struct, frozen=True):
    """A slice that gave no result, and why."""

    piece: FileRange
    reason: str
    out_of_memory: bool = False

    def error(self) -> StoreError:
        """Return what to report: SliceFailed, or LimitExceeded where memory was too small."""
        piece = self.piece
        where = f"{piece.path}, bytes {piece.start:,} to {piece.end:,}"
        facts = {"path": piece.path, "start": piece.start, "end": piece.end, "reason": self.reason}
        if self.out_of_memory:
            hint = "give --memory more, or run fewer --jobs"
            return LimitExceeded(f"{where} needs more memory: {self.reason}", hint=hint, **facts)
        hint = "the rest of the result is there; bring the file back, or run the same command again"
        return SliceFailed(f"{where} could not be read: {self.reason}", hint=hint, **facts)


class Engine(Protocol):
    """What runs slices: ``LocalEngine`` or ``SparkEngine``."""

    failed: list[FailedSlice]

    @property
    def memory_bytes(self) -> int | None:
        """What one of its processes may use; None: it is not bounded."""

    def run(self, operation: Operation, pieces: Sequence[FileRange], finished: Finished) -> Results:
        """Yield (slice, its result) in any order."""
