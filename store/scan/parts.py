"""The parts of files that a batch of a stream reads, cut into tasks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from store.aliases import Array
from store.engine.slices import FileRange
from store.frozen import frozen
from store.names import FileKind
from store.scan.offsets import Listed

Tasks = tuple[tuple[FileRange, ...], ...]


@frozen
class Part:
    """Bytes of a file that a batch reads.

    ``complete``: nothing comes behind. ``looked_at``: what came lately is left out. ``remembered``: it may come again.
    """

    file: Listed
    start: int
    end: int
    complete: bool
    looked_at: bool
    remembered: bool


@frozen
class Looked:
    """Good records of a part of a file, in its order, and where the part ends."""

    ids: Array
    offsets: Array
    ends: Array
    end: int

    def until(self, end: int) -> Looked:
        """Return those that end before END or there."""
        count = int(np.searchsorted(self.ends, end, "right"))
        return Looked(self.ids[:count], self.offsets[:count], self.ends[:count], end)


def pieces_of(file: Listed, start: int, end: int, slice_bytes: int) -> Iterator[FileRange]:
    """Cut bytes START to END of FILE, where records begin and end, into slices; journals are not cut."""
    count = 1 if file.kind == FileKind.JOURNAL else max(1, round((end - start) / slice_bytes))
    for index in range(count):
        first, last = (start + (end - start) * edge // count for edge in (index, index + 1))
        if last > first:
            yield FileRange(file.path, file.kind, -1, first, last, seek=index > 0, limit=end)


def pieces_without(part: Part, looked: Looked, again: Array, slice_bytes: int) -> Tasks:
    """Return the tasks of PART, but for the records AGAIN; small pieces share a task."""
    tasks: list[tuple[FileRange, ...]] = []
    held: list[FileRange] = []
    for start, end in _between(part, looked.offsets[again], looked.ends[again]):
        pieces = tuple(pieces_of(part.file, start, end, slice_bytes))
        if len(pieces) > 1:
            tasks += [(piece,) for piece in pieces]
            continue
        if held and sum(piece.bytes for piece in held) + end - start > slice_bytes:
            tasks.append(tuple(held))
            held = []
        held += pieces
    return (*tasks, *([tuple(held)] if held else []))


def _between(part: Part, starts: Array, ends: Array) -> Iterator[tuple[int, int]]:
    """Yield the bytes of PART between those from STARTS to ENDS."""
    breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    at = part.start
    for first, last in zip([0, *breaks.tolist()], [*(breaks - 1).tolist(), len(starts) - 1], strict=True):
        if last >= first and starts[first] > at:
            yield at, int(starts[first])
        at = int(ends[last]) if last >= first else at
    if at < part.end:
        yield at, part.end
