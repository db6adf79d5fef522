"""A whole file, read where it is looked at, as the reference readers of entry logs and journals want it."""

from __future__ import annotations

import struct
from typing import Any, overload

import numpy as np

from store.codec import journal
from store.codec.logscan import iter_candidates
from store.codec.proof import Proofs
from store.scan.filewindow import read_into

PAGE_BYTES = 1 << 16

_COUNTERS = struct.Struct(
    ">q"  # lastAddConfirmed
    "q"  #  length
)


class FileBytes:
    """The bytes of a file, ``store.codec.buffer.Bytes``: each page of it is read when it is first asked for, and once.

    Memory of ours, not a mapping: a file that is cut meanwhile would kill a process that has it mapped. What is looked at stays,
    so the memory is PAGE_BYTES for each page looked at and never more than the file's size. Raises SourceChanged where the file
    has less than FILE_BYTES by now.
    """

    def __init__(self, file: Any, file_bytes: int) -> None:
        self._file = file
        self._memory = memoryview(np.empty(file_bytes, np.uint8).data)  # costs nothing where nobody touches it
        self._is_read = bytearray(-(-file_bytes // PAGE_BYTES))

    def __len__(self) -> int:
        return len(self._memory)

    @overload
    def __getitem__(self, key: int) -> int: ...

    @overload
    def __getitem__(self, key: slice) -> memoryview: ...

    def __getitem__(self, key: int | slice) -> int | memoryview:
        start, stop, _ = (slice(key, key + 1) if isinstance(key, int) else key).indices(len(self._memory))
        if start < stop:
            self._read(start // PAGE_BYTES, (stop - 1) // PAGE_BYTES + 1)
        return self._memory[key]

    def _read(self, first: int, last: int) -> None:
        """Read those of the pages from FIRST to LAST that were not read yet."""
        while (page := self._is_read.find(0, first, last)) >= 0:
            first = self._is_read.find(1, page, last)
            first = last if first < 0 else first
            read_into(self._memory[: first * PAGE_BYTES][page * PAGE_BYTES :], self._file, page * PAGE_BYTES)
            self._is_read[page:first] = b"\1" * (first - page)


class WholeFile:
    """The bytes of a file, and the sums that prove entries in them."""

    def __init__(self, file: Any, file_bytes: int) -> None:
        self.data = FileBytes(file, file_bytes)
        self.proofs = Proofs(self.data)

    def find_journal_entry(self, start: int) -> int | None:
        """Return the first place from START on of an entry that its digest proves."""
        for offset in iter_candidates(self.data, start, len(self.data), self.proofs):
            end = offset + 4 + int.from_bytes(self.data[offset : offset + 4], "big")
            if end <= len(self.data) and self.proofs.digest_type(offset + 4, end):
                return offset
        return None

    def end_of(self, item: journal.JournalItem) -> int:
        """Return where a record or padding of a journal ends."""
        if isinstance(item, journal.Padding):
            return item.offset + item.length
        return item.offset + 4 + int.from_bytes(self.data[item.offset : item.offset + 4], "big")

    def is_no_entry(self, item: journal.JournalItem) -> bool:
        """Whether ITEM would be an entry but for its counters."""
        if not isinstance(item, journal.JournalEntry):
            return False
        start = item.offset + 20
        last_add_confirmed, length = _COUNTERS.unpack(self.data[start : start + _COUNTERS.size])
        return bool(last_add_confirmed < -1 or length < 0)
