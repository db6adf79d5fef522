"""Cutting bulk work: files → slices that any process, here or on a cluster, reads on its own.

A record belongs to the slice in which it begins. A slice that starts inside a log finds its first record by structure
and checksum; if that is right, the slice before it ends exactly there. Code that joins slices checks this
(``store.index.scan``); a slice that is used alone reads some bytes before its start (``store.scan.files``).
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TypeVar

from msgspec import Struct

from pulsar_admin.store.names import FileKind

_T = TypeVar("_T")
SLICE_BYTES = 64 << 20
LEAST_SLICE_BYTES = 1 << 20


class Cut(Struct, frozen=True):
    """How to cut files: slices of about ``slice_bytes`` or, with ``slices``, this many of equal size over all files."""

    slice_bytes: int = SLICE_BYTES
    slices: int = 0


_USUAL = Cut()


class FileRange(Struct, frozen=True):
    """One slice of a file: its path or URL, kind, file id in the store (−1: none), and the range of bytes to read.

    ``seek``: ``start`` is an arbitrary offset, from which the first record is searched for. ``limit``: the file is read
    as if it ended there, without what was appended since (−1: to its end).
    """

    path: str
    kind: FileKind
    file_id: int
    start: int
    end: int
    seek: bool = False
    limit: int = -1

    @property
    def bytes(self) -> int:
        return self.end - self.start


def filled(items: Iterable[_T], weigh: Callable[[_T], int], full: int, most: int | None = None) -> Iterator[list[_T]]:
    """Yield items in lists, in order: a list ends with the item by which its weights reach ``full``, or that is its ``most``-th."""
    held: list[_T] = []
    weight = 0
    for item in items:
        held.append(item)
        weight += weigh(item)
        if weight >= full or len(held) == most:
            yield held
            held, weight = [], 0
    if held:
        yield held


def files_of(piece: FileRange) -> Iterable[str]:
    """Return the paths or URLs of the files of a slice; a slice of a topic's entries may have several."""
    files: dict[int, str] = getattr(piece, "files", {-1: piece.path})
    return files.values()


def kind_of(path: str) -> FileKind:
    """Return the kind of a file, from its name or URL."""
    return FileKind.JOURNAL if path.partition("?")[0].endswith(".txn") else FileKind.ENTRY_LOG


def plan_slices(files: Iterable[tuple[str, int, int]], cut: Cut = _USUAL) -> list[FileRange]:
    """Cut files (path, file id, bytes) into slices. Journals are never cut: their record starts cannot be verified."""
    listed = list(files)
    total = sum(size for _, _, size in listed)
    target = cut.slice_bytes if not cut.slices else max(LEAST_SLICE_BYTES, -(-total // cut.slices))
    pieces: list[FileRange] = []
    for path, file_id, size in listed:
        kind = kind_of(path)
        count = 1 if kind == FileKind.JOURNAL else max(1, round(size / target))
        edges = pairwise(size * index // count for index in range(count + 1))
        pieces += (FileRange(path, kind, file_id, start, end, start > 0) for start, end in edges if end > start)
    return pieces
