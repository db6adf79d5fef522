"""A whole file, mapped, as the reference readers of entry logs and journals want it."""

from __future__ import annotations

import mmap
import struct
from typing import Any

from store.codec import journal
from store.codec.logscan import iter_candidates
from store.codec.proof import Proofs

_COUNTERS = struct.Struct(
    ">q"  # lastAddConfirmed
    "q"  #  length
)


class WholeFile:
    """The bytes of a file, and the sums that prove entries in them."""

    def __init__(self, file: Any) -> None:
        self.data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
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
        last_add_confirmed, length = _COUNTERS.unpack_from(self.data, item.offset + 20)
        return bool(last_add_confirmed < -1 or length < 0)
