"""What a process reads of entries, counted where it is read; Spark adds it up over its workers."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol


class Read(NamedTuple):
    """Entries that were read, their bytes, how many do not have the digest that they should have, and the processor time, in ms."""

    entries: int = 0
    bytes: int = 0
    bad_digests: int = 0
    processor_ms: int = 0


class Sum(Protocol):
    """What numbers are added to."""

    def add(self, term: int) -> None:
        """Add a number."""


class _Counts:
    """What this process has read so far."""

    def __init__(self) -> None:
        self._read = Read()

    def add(self, entries: int, size_bytes: int, bad_digests: int) -> None:
        """Count entries that were read."""
        before = self._read
        self._read = Read(before.entries + entries, before.bytes + size_bytes, before.bad_digests + bad_digests)

    def now(self) -> Read:
        """Return what was read, and the processor time, since this process began."""
        return self._read._replace(processor_ms=time.process_time_ns() // 1_000_000)


COUNTS = _Counts()


@contextmanager
def counted_by(sums: Sequence[Sum]) -> Iterator[None]:
    """Add what the block reads to the sums of ``Read``'s fields; none: it is not counted."""
    before = COUNTS.now()
    try:
        yield
    finally:
        for total, now, then in zip(sums, COUNTS.now(), before, strict=False):
            total.add(now - then)
