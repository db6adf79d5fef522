"""Counts the entries that a process reads; Spark sums the counts of its workers."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol


class Read(NamedTuple):
    """Counts of the entries read, of their bytes, and of wrong digests; and the processor time in ms."""

    entries: int = 0
    bytes: int = 0
    bad_digests: int = 0
    processor_ms: int = 0


class Sum(Protocol):
    """A sum to which numbers can be added, such as Spark's accumulator."""

    def add(self, term: int) -> None:
        """Add a number."""


class _Counts:
    """The counts of this process."""

    def __init__(self) -> None:
        self._read = Read()

    def add(self, entries: int, size_bytes: int, bad_digests: int) -> None:
        """Count entries that were read."""
        before = self._read
        self._read = Read(before.entries + entries, before.bytes + size_bytes, before.bad_digests + bad_digests)

    def now(self) -> Read:
        """Return the counts, and the processor time, since the start of this process."""
        return self._read._replace(processor_ms=time.process_time_ns() // 1_000_000)


COUNTS = _Counts()


@contextmanager
def counted_by(sums: Sequence[Sum]) -> Iterator[None]:
    """Add the counts of the block to ``sums``, one per field of ``Read``; if empty, nothing is counted."""
    before = COUNTS.now()
    try:
        yield
    finally:
        for total, now, then in zip(sums, COUNTS.now(), before, strict=False):
            total.add(now - then)
