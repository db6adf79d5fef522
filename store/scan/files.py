"""Scanning one file, an entry log or a journal, into batches of records, in bounded memory.

A ``Slice`` is plain data that any process can run. The kernel reads valid records; where it stops, the reference readers of
``store.codec`` explain the bytes and say where to continue. Offsets are absolute.

Each stop wastes what the kernel read in vain: n wrong sizes that each claim the rest of the file cost n times its bytes. So a scan
reads at most VAIN_TIMES the bytes of its slice in vain (a stop counts as STOP_BYTES), and one window; after that only the reference
readers continue, a hundred times as slow, but in linear time whatever the bytes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec import journal, logscan
from pulsar_admin.store.codec.buffer import run_end
from pulsar_admin.store.codec.digest import DIGEST_SIZE, DigestType
from pulsar_admin.store.codec.entry import ENTRY_HEADER_BYTES, RECORD_MAX_BYTES, find_digest_type
from pulsar_admin.store.codec.entrylog import HEADER_BYTES, decode_header
from pulsar_admin.store.codec.proof import Proofs
from pulsar_admin.store.engine.counts import COUNTS
from pulsar_admin.store.errors import EntryLogCorrupt, JournalCorrupt, SourceChanged, Unsupported
from pulsar_admin.store.files import NotRegular, open_file
from pulsar_admin.store.kernels import records as kernel
from pulsar_admin.store.kernels.columns import BAD_DIGEST, RECORD, UNFRAMED, UNVERIFIED
from pulsar_admin.store.kernels.compiled import METER
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.pace import PACE, ColdPages
from pulsar_admin.store.urls import check_length

Records = np.ndarray[Any, np.dtype[np.void]]

BATCH_RECORDS = 1 << 18
VAIN_TIMES = 4
STOP_BYTES = 1 << 16
LOOK_BACK_BYTES = 6 << 20  # more than an entry has, unless Pulsar's limit of 5 MiB is raised
LARGE_ENTRY_BYTES = 2048  # a file with many entries even of this size is not first read a window in Python
_DAMAGE = {
    logscan.GapReason.UNREADABLE: "unreadable bytes",
    logscan.GapReason.ZEROS: "lost pages: zeros before more records",
}
_ALL_SIZES = tuple(DIGEST_SIZE.values())
_UNCHECKED = (DIGEST_SIZE[DigestType.DUMMY], DIGEST_SIZE[DigestType.HMAC])
ENTRY_ID_LIMIT = 1 << 31  # a flipped bit in an id that nothing verifies must not size an index row


class LedgerDigests(NamedTuple):
    """The digest size in bytes of each ledger whose metadata names it; for any other ledger the types are tried."""

    ledger_ids: np.ndarray[Any, np.dtype[np.int64]]
    """Sorted."""
    sizes: np.ndarray[Any, np.dtype[np.int16]]

    @classmethod
    def of(cls, sizes: Mapping[int, int]) -> LedgerDigests:
        """Return ledger id → bytes of its digest in the form that a scan takes."""
        ids = np.array(sorted(sizes), np.int64)
        return cls(ids, np.array([sizes[ledger_id] for ledger_id in ids.tolist()], np.int16))


class Slice(Struct, frozen=True):
    """Bytes ``start`` to ``end`` of one file; a record belongs to the slice in which it begins.

    ``seek``: ``start`` is an arbitrary offset in an entry log; the scan searches for the first record at or after it.
    ``limit``: the end of the file for this scan, even if it has grown since; −1: its actual end.
    """

    path: str
    kind: FileKind
    start: int
    end: int
    seek: bool = False
    limit: int = -1


class Problem(Struct, frozen=True):
    """Bytes that are not a good record: offset, length, reason, and the ledger id they claim (−1: none)."""

    offset: int
    length_bytes: int
    reason: str
    ledger_id: int = -1
    entry_id: int = -1


def has_good_digest(rows: Records) -> Array:
    """Return a mask of the records whose digest is right or could not be checked."""
    good: Array = rows["flags"] & BAD_DIGEST == 0
    return good


def note_read(rows: Records, sizes: Array) -> None:
    """Count records, and the bytes of each that were read."""
    wrong = len(rows) - int(np.count_nonzero(has_good_digest(rows)))
    COUNTS.add(len(rows), int(sizes.sum(dtype=np.int64)), wrong)


def digest_state(flags: int) -> Literal["ok", "bad", "unverified"]:
    """Return whether a record's digest is right, wrong or unverified."""
    return "bad" if flags & BAD_DIGEST else "unverified" if flags & UNVERIFIED else "ok"


def is_message(flags: int) -> bool:
    """Whether a record is framed as a message."""
    return not flags & UNFRAMED


class FileScan(Struct):
    """One run over a slice; after ``batches()`` is exhausted the other fields tell how it ended."""

    slice: Slice
    ledgers: LedgerDigests
    verify: bool = True
    leaves_cache: bool = False  # the page cache is afterwards as it was before
    is_copy: bool = False  # one that was just made, and is in the page cache for that alone
    is_alone: bool = False  # nobody compares where its slice begins with where the one before it ends
    problems: list[Problem] = field(default_factory=list)
    next_offset: int = 0  # how far the scan is
    torn: bool = False  # the file ends inside a record
    records: int = 0
    first_offset: int = 0  # where the first record begins
    is_inside: bool = False  # nothing in a slice that was cut anywhere looks like the head of a record
    resume_offset: int = 0  # behind the last good record: where a scan of the grown file goes on
    tail_records: int = 0  # of ``records`` and ``problems``, those at or behind ``resume_offset``
    tail_problems: int = 0
    vain_bytes: int = 0  # read and left again, see VAIN_TIMES
    window: FileWindow | None = None  # where the bytes of the batch lie that was yielded last
    _ends_counted: bool = False  # its ledger counts just the payload of the last record of a batch
    _whole: WholeFile | None = None
    _ends: bool = False  # no record follows in a journal
    _looked_back: int = -1  # from there, which is done once, so that a scan moves on
    lengths: dict[int, tuple[int, int]] = field(default_factory=dict)
    """See ``Proofs.lengths``: of what nothing else proves; may begin with those of what lies before the slice."""
    unknown: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Ledger → the id of its first entry, and the bytes that it has more than all payloads up to it, where ``lengths`` did not tell those
    before it."""

    def batches(self) -> Iterator[Records]:
        """Yield arrays of records in file order; each is overwritten by the next, so copy rows that you keep.

        Raises SourceChanged if the file is gone or becomes shorter, EntryLogCorrupt if the disk cannot read it.
        """
        with _translated(self.slice.path), open_file(self.slice.path) as file:
            size, limit = os.fstat(file.fileno()).st_size, self.slice.limit
            check_length(self.slice.path, limit, size, "restore the file")
            if limit >= 0:
                size = limit
            self.next_offset = self.resume_offset = self.slice.start
            if self.next_offset == 0 and size:
                self.next_offset = self._first_record(file, size)
            elif self.slice.seek and size:
                self.next_offset = self._seek(file, size)
            self.first_offset = self.next_offset
            if self.next_offset <= size:
                self._good_until(self.next_offset)
            stop = min(self.slice.end, size)
            cold = ColdPages(file.fileno(), self.slice.start, stop, ours=self.is_copy) if self.leaves_cache else None
            try:
                self.window = FileWindow(file, stop, size, cold)
                yield from self._scan(self.window)
            finally:
                self._whole = self.window = None
                if cold is not None:
                    cold.drop_all()
        self.tail_problems = sum(problem.offset >= self.resume_offset for problem in self.problems)

    def reaches(self, end: int) -> bool:
        """Whether bytes after ``end``, where the scan ended, may change its result."""
        is_vain = self.slice.seek and not self.records and not self.is_inside
        return is_vain or self.torn or self.next_offset >= end

    def _first_record(self, file: Any, size: int) -> int:
        """Return the offset from which to search for the first record: the header is only a hint."""
        head = os.pread(file.fileno(), HEADER_BYTES, 0)
        is_journal = self.slice.kind == FileKind.JOURNAL
        try:
            if is_journal:
                return journal.decode_header(head, "header").header_bytes
            decode_header(head, "header")
        except (EntryLogCorrupt, Unsupported) as error:
            self.problems.append(Problem(0, min(size, HEADER_BYTES), error.message))
        return journal.PADDED_HEADER_BYTES if is_journal else HEADER_BYTES

    def _seek(self, file: Any, size: int) -> int:
        """Return where the first record at or after the slice's start begins; the slice's end if none does."""
        stop = min(self.slice.end, size)
        if self.is_alone:
            back = max(self.slice.start - LOOK_BACK_BYTES, 0)
            part = replace(self.slice, start=back, end=self.slice.start, seek=back > 0)
            before = FileScan(part, self.ledgers, self.verify)
            for _ in before.batches():
                pass
            self.lengths = before.lengths
            if before.records or not back:
                self.is_inside = before.next_offset >= stop
                return min(before.next_offset, stop)
        whole = self._whole_of(file, size)
        begin = logscan.find_record(whole.data, self.slice.start, stop, whole.proofs)
        if begin is None:
            # Nothing here even looks like the head of a record: the slice is taken to lie inside one that begins before it.
            heads = logscan.iter_candidates(
                whole.data, self.slice.start, min(stop + logscan.HEAD_BYTES, size), whole.proofs
            )
            self.is_inside = next(heads, stop) >= stop
        return stop if begin is None else begin

    def _whole_of(self, file: Any, size: int) -> WholeFile:
        if self._whole is None:
            self._whole = WholeFile(file, size)
            self._whole.proofs.lengths, self._whole.proofs.digest_sizes = self.lengths, self._digest_sizes
        return self._whole

    def _good_until(self, offset: int) -> None:
        self.resume_offset, self.tail_records = offset, 0

    def _scan(self, window: FileWindow) -> Iterator[Records]:
        METER.expect((window.stop - self.next_offset) // LARGE_ENTRY_BYTES)
        rows = np.empty(BATCH_RECORDS, RECORD)  # 20 MB that are seldom needed: zeroing them takes 2 ms
        while self.next_offset < window.stop:
            if self._reads_in_vain(window):
                yield from self._read_on_carefully(window, rows)
                return
            window.move_to(self.next_offset)
            start = self.next_offset
            count, at, why = self._run_kernel(window, rows)
            is_least = why == kernel.FULL and count == 1
            if why in (kernel.MORE, kernel.FULL) and count and not is_least and rows[count - 1]["flags"] & UNVERIFIED:
                # It is read again with what follows it, which may show that its size is wrong.
                count, at = count - 1, int(rows[count - 1]["offset"])
            batch = rows[:count]
            batch["offset"] += window.base
            self.next_offset = window.base + at
            self._note_bad_digests(batch, window)
            whole_batch, batch = batch, self._until_wrong_size(batch, window)
            if len(batch) < len(whole_batch):
                why = kernel.FULL
            if why == kernel.END and self._ends_in_doubt(batch, window):
                why = kernel.STRANGE
            if why == kernel.STRANGE:
                batch = self._look_again(batch, window)
            self._count(batch, start, self.next_offset)
            if why == kernel.STRANGE:
                # What stands here is for the reference reader to say.
                self.vain_bytes += STOP_BYTES
                whole = self._whole_of(window.file, window.file_bytes)
                if self.slice.kind == FileKind.JOURNAL:
                    self._step_over_in_journal(whole)
                else:
                    self._step_over_in_log(whole)
            batch = self._without_impossible(batch)
            if len(batch):
                yield batch
            if why == kernel.MORE:
                window.widen(self.next_offset)
            elif (
                why == kernel.END
                and self.slice.kind == FileKind.JOURNAL
                and not self._goes_on(self._whole_of(window.file, window.file_bytes))
            ):
                return

    def _reads_in_vain(self, window: FileWindow) -> bool:
        """Whether the records that stopped the kernel have cost more than the limit at the top of this module."""
        again = self.slice.start + window.read_bytes - self.next_offset  # not all of the record was read
        allowed = VAIN_TIMES * (window.stop - self.slice.start) + 2 * len(window.data)
        return self.vain_bytes + max(again, 0) > allowed

    def _read_on_carefully(self, window: FileWindow, rows: Records) -> Iterator[Records]:
        """Read the rest with the reference readers, which digest each believed byte only once."""
        whole = self._whole_of(window.file, window.file_bytes)
        places = (
            self._journal_places(whole) if self.slice.kind == FileKind.JOURNAL else self._log_places(whole, window.stop)
        )
        for close in close_together(places, len(rows)):
            batch = rows[: len(close)]
            starts, sizes = np.array(close, np.int64).T.copy()
            start, end = int(starts[0]), int(starts[-1] + 4 + sizes[-1])
            window.cover(start, end)
            kernel.read_bodies(window.data, starts - window.base, sizes, tuple(self.ledgers), self.verify, batch)
            batch["offset"] = starts
            self._note_bad_digests(batch, window)
            self._count(batch, start, end)
            batch = self._without_impossible(batch)
            if len(batch):
                yield batch
        self.problems.sort(key=lambda problem: problem.offset)

    def _log_places(self, whole: WholeFile, stop: int) -> Iterator[tuple[int, int]]:
        """Yield (offset, size) of the records of a log that begin before ``stop``, and note the bytes between records."""
        for item in logscan.iter_records(whole.data, self.slice.path, self.next_offset, proofs=whole.proofs):
            self.next_offset = item.offset
            if item.offset >= stop:
                return
            if isinstance(item, logscan.Record):
                yield item.offset, item.size
            else:
                self._note(item)
        self.next_offset = len(whole.data)

    def _journal_places(self, whole: WholeFile) -> Iterator[tuple[int, int]]:
        """Yield (offset, size) of the entries of a journal, and note what lies between them."""
        while self.next_offset < len(whole.data):
            held: journal.JournalEntry | None = None  # nothing proves it: what follows must
            inside: int | None = None
            for item in self._sound_items(whole):
                if held is not None:
                    body, end = held.offset + 4, held.offset + 4 + held.size
                    is_long = not self._is_unchecked(held.ledger_id) or whole.proofs.is_too_long(body, end)
                    whole.proofs.note(body)
                    if is_long:
                        inside = self._find_journal_entry(whole, held.offset, end)
                    if inside is not None:
                        break
                    yield held.offset, held.size
                held = item if isinstance(item, journal.JournalEntry) and not self._is_proved(item, whole) else None
                if isinstance(item, journal.JournalEntry) and held is None:
                    yield item.offset, item.size
            if held is not None and inside is None and self._is_unchecked(held.ledger_id):
                body, end = held.offset + 4, held.offset + 4 + held.size
                is_counted = whole.proofs.is_counted(body, end)
                whole.proofs.note(body)
                if not is_counted:
                    inside = self._find_journal_entry(whole, held.offset, end)
                if inside is None:
                    yield held.offset, held.size
                    held = None
            if held is not None and inside is not None:
                self._note(_gap(held.offset, inside))
                self.next_offset = inside
                continue
            if held is not None:
                self.next_offset = held.offset
            if held is not None or not self._ends:
                self._step_over_in_journal(whole)
            elif not self._goes_on(whole):
                return

    def _sound_items(self, whole: WholeFile) -> Iterator[journal.JournalItem]:
        """Yield records and paddings of a journal, moving on after each, until something else comes or the journal ends."""
        self._ends = False
        try:
            for item in journal.iter_records(whole.data, self.slice.path, self.next_offset, whole.proofs):
                if isinstance(item, journal.Leftover):
                    break
                if isinstance(item, logscan.TornTail) and self._is_whole(item, whole):
                    item = whole.entry_at(item.offset)
                if isinstance(item, (logscan.TornTail, journal.UnknownRecord)) or whole.is_no_entry(item):
                    return
                self.next_offset = whole.end_of(item)
                yield item
        except JournalCorrupt:
            return
        self._ends = True

    def _is_whole(self, torn: logscan.TornTail, whole: WholeFile) -> bool:
        """Whether the ``torn`` bytes are a whole entry after all: of a ledger whose digests cannot be checked."""
        ledger_id = int.from_bytes(whole.data[torn.offset + 4 : torn.offset + 12], "big")
        return torn.offset + torn.wanted <= len(whole.data) and self._is_unchecked(ledger_id)

    def _is_proved(self, entry: journal.JournalEntry, whole: WholeFile) -> bool:
        """Whether the digest of an entry is correct, or is not to be checked."""
        if self._is_unchecked(entry.ledger_id):
            return False
        start, end = entry.offset + 4, entry.offset + 4 + entry.size
        return not self.verify or whole.proofs.digest_type(start, end, in_turn=True) is not None

    def _is_unchecked(self, ledger_id: int) -> bool:
        """Whether nothing can check the digests of a ledger: it has none, or its password is not known."""
        return len(sizes := self._digest_sizes(ledger_id)) == 1 and sizes[0] in _UNCHECKED

    def _digest_sizes(self, ledger_id: int) -> Sequence[int]:
        """Return how many bytes the digests of a ledger may have."""
        known, kinds = self.ledgers
        at = int(np.searchsorted(known, ledger_id))
        return (int(kinds[at]),) if at < len(known) and known[at] == ledger_id else _ALL_SIZES

    def _count(self, batch: Records, start: int, end: int) -> None:
        """Count a batch that was read from ``start`` to ``end``, and move ``resume_offset`` after its last good record."""
        note_read(batch, batch["size"])
        self.records += len(batch)
        good = np.flatnonzero(batch["flags"] & BAD_DIGEST == 0)
        # Nothing proves a journal's paddings: a scan of the grown file reads them again, from the last good entry on.
        proves_all = self.slice.kind == FileKind.ENTRY_LOG
        if proves_all and len(batch) and len(good) and good[-1] == len(batch) - 1:
            self._good_until(end)
        elif len(good):
            last = batch[good[-1]]
            self._good_until(int(last["offset"]) + 4 + int(last["size"]))
            self.tail_records = len(batch) - 1 - int(good[-1])
        elif len(batch):
            self.tail_records += len(batch)
        elif proves_all and self.resume_offset == start:
            self._good_until(end)

    def _note_lengths(self, rows: Records) -> None:
        order, firsts = _by_ledger(rows)
        last = rows[np.append(order[firsts[1:] - 1], order[-1:])]
        counted = zip(last["entry_id"].tolist(), last["length"].tolist(), strict=True)
        self.lengths.update(zip(last["ledger_id"].tolist(), counted, strict=True))

    def _without_impossible(self, batch: Records) -> Records:
        """Return a batch without entry ids that no ledger reaches: an index row reserves a place for every 1,024 ids."""
        impossible = batch["entry_id"] >= ENTRY_ID_LIMIT
        if not impossible.any():
            return batch
        for row in batch[impossible & (batch["flags"] & BAD_DIGEST == 0)]:
            reason = f"entry id {row['entry_id']} is beyond {ENTRY_ID_LIMIT}"
            self.problems.append(
                Problem(int(row["offset"]), 4 + int(row["size"]), reason, int(row["ledger_id"]), int(row["entry_id"]))
            )
        possible: Records = batch[~impossible]
        return possible

    def _run_kernel(self, window: FileWindow, rows: Records) -> tuple[int, int, int]:
        start = self.next_offset - window.base
        behind = min(window.file_bytes - window.base - len(window.data), RECORD_MAX_BYTES)
        if self.slice.kind == FileKind.JOURNAL:
            result = kernel.scan_journal(window.data, start, behind, tuple(self.ledgers), self.verify, rows)
        else:
            stop = window.stop - window.base
            result = kernel.scan_log(window.data, start, stop, behind, tuple(self.ledgers), self.verify, rows)
        count, at, why = result
        return count, at, why

    def _ends_in_doubt(self, batch: Records, window: FileWindow) -> bool:
        """Whether nothing proves the last record, and it may be shorter or longer than its size field says.

        A journal's may reach into the zeros that end the journal; a log's is doubtful if no record follows it.
        """
        if not len(batch) or not batch[-1]["flags"] & (BAD_DIGEST | UNVERIFIED):
            return False
        if self.slice.kind == FileKind.JOURNAL:
            return bool(batch[-1]["flags"] & BAD_DIGEST) or (
                not self._ends_counted
                and self._is_unchecked(int(batch[-1]["ledger_id"]))
                and self._find_inside(batch[-1], window) is not None
            )
        if self.next_offset >= window.file_bytes:
            return False
        window.move_to(self.next_offset)
        start = self.next_offset - window.base
        behind = min(window.file_bytes - window.base - len(window.data), RECORD_MAX_BYTES)
        row = np.zeros(1, RECORD)
        return bool(
            kernel.scan_log(window.data, start, start + 1, behind, tuple(self.ledgers), False, row)[2] == kernel.STRANGE
        )

    def _until_wrong_size(self, batch: Records, window: FileWindow) -> Records:
        """Drop the records from the first bad one on that has a good record inside, and continue at that.

        The bad record's size field is wrong, and happens to lead to the beginning of another record.
        """
        is_bad = ~has_good_digest(batch)
        unproved = np.flatnonzero(is_bad | np.isin(batch["digest_bytes"], _UNCHECKED))
        is_long, is_counted = _compare_with_counted(batch[unproved], self.lengths, self.unknown)
        self._ends_counted = bool(
            len(unproved) and unproved[-1] == len(batch) - 1 and is_counted[-1] and not is_bad[-1]
        )
        noted = 0
        for place in np.flatnonzero(is_bad[unproved] | is_long).tolist():
            index, offset = int(unproved[place]), int(batch[unproved[place]]["offset"])
            self._note_lengths(batch[unproved[noted : place + 1]])
            noted = place + 1
            inside = self._find_inside(batch[index], window, is_long=bool(is_long[place]))
            if inside is not None:
                self.problems = [problem for problem in self.problems if problem.offset < offset]
                self._note(_gap(offset, inside))
                self.vain_bytes += self.next_offset - inside
                self.next_offset = inside
                until: Records = batch[:index]
                return until
        self._note_lengths(batch[unproved[noted:]])
        return batch

    def _find_inside(
        self, row: Any, window: FileWindow, *, is_long: bool = False
    ) -> int | None:  # Any: a row of Records
        """Return where a good record begins inside one that nothing proves, and whose size field is wrong then; None: nowhere.

        ``is_long``: it has more bytes than its ledger counts for it.
        """
        start, end = int(row["offset"]), int(row["offset"]) + 4 + int(row["size"])
        whole = self._whole_of(window.file, window.file_bytes)
        if self.slice.kind == FileKind.JOURNAL:
            return self._find_journal_entry(whole, start, end)
        find = logscan.find_proved if row["flags"] & BAD_DIGEST and not is_long else logscan.find_good
        return find(whole.data, start + 1, end, whole.proofs)

    def _find_journal_entry(self, whole: WholeFile, start: int, stop: int | None = None) -> int | None:
        """Return where the next good entry of a journal begins, given that none begins at ``start``."""
        entry = None
        if start > self._looked_back:
            # A padding that is told too long may have taken the zeros that a length begins with.
            self._looked_back = start
            entry = whole.find_journal_entry(max(start - 3, self.slice.start), start, self._is_unchecked)
        return whole.find_journal_entry(start + 1, stop, self._is_unchecked) if entry is None else entry

    def _look_again(self, batch: Records, window: FileWindow) -> Records:
        """Drop the last record of a batch and go back to its start if its size field may be wrong: if its digest is bad, or cannot be
        checked and a good record begins inside it."""
        if not len(batch) or not batch[-1]["flags"] & (BAD_DIGEST | UNVERIFIED):
            return batch
        offset = int(batch[-1]["offset"])
        if batch[-1]["flags"] & BAD_DIGEST:
            self.problems.pop()
        elif self._ends_counted:
            return batch
        elif self.slice.kind == FileKind.JOURNAL:
            if not self._is_unchecked(int(batch[-1]["ledger_id"])) or self._find_inside(batch[-1], window) is None:
                return batch
        else:
            whole = self._whole_of(window.file, window.file_bytes)
            items = logscan.iter_records(whole.data, self.slice.path, offset, proofs=whole.proofs)
            if isinstance(next(items), logscan.Record):
                return batch
        self.vain_bytes += self.next_offset - offset
        self.next_offset = offset
        shorter: Records = batch[:-1]
        return shorter

    def _step_over_in_log(self, whole: WholeFile) -> None:
        for item in logscan.iter_records(whole.data, self.slice.path, self.next_offset, proofs=whole.proofs):
            if isinstance(item, logscan.Record) and item.offset != self.next_offset:
                self.next_offset = item.offset
                return
            self._note(item)
        self.next_offset = len(whole.data)

    def _note(self, item: logscan.Record | logscan.Gap | logscan.TornTail) -> None:
        if isinstance(item, logscan.TornTail):
            self.torn = True
            self.problems.append(Problem(item.offset, item.got, f"torn tail: {item.got} of {item.wanted} bytes"))
        elif isinstance(item, logscan.Gap) and item.reason in _DAMAGE:
            self.problems.append(Problem(item.offset, item.length, _DAMAGE[item.reason]))
        elif isinstance(item, logscan.Record):
            self.problems.append(Problem(item.offset, 4 + item.size, "digest mismatch", item.ledger_id, item.entry_id))

    def _step_over_in_journal(self, whole: WholeFile) -> None:
        start = self.next_offset
        whole.proofs.note(start + 4)
        reason, torn = "unreadable bytes", False
        try:
            item = next(journal.iter_records(whole.data, self.slice.path, start, whole.proofs), None)
            if isinstance(item, logscan.TornTail):
                reason, torn = f"torn tail: {item.got} of {item.wanted} bytes", True
            elif isinstance(item, journal.UnknownRecord):
                reason = f"unknown record: entry id {item.entry_id}"
        except JournalCorrupt as error:
            reason = error.message
        entry = self._find_journal_entry(whole, start)
        self.torn = torn and entry is None
        self.next_offset = len(whole.data) if entry is None else entry
        gap = _gap(start, self.next_offset)
        self.problems.append(Problem(gap.offset, gap.length, reason))

    def _goes_on(self, whole: WholeFile) -> bool:
        """Whether records follow the zero length at ``next_offset`` (lost pages); moves there and notes what lies between."""
        start, written_end = self.next_offset, whole.proofs.written_end(len(whole.data))
        if start >= written_end:
            return False
        written = run_end(whole.data, start, len(whole.data), 0)
        # The first bytes of its size field may also be zero.
        entry = whole.find_journal_entry(max(start + 1, written - 3), None, self._is_unchecked)
        reason = (
            "a length of zero before bytes that are not a record" if entry is None else _DAMAGE[logscan.GapReason.ZEROS]
        )
        self.problems.append(Problem(start, (written_end if entry is None else entry) - start, reason))
        self.next_offset = start if entry is None else entry
        return entry is not None

    def _note_bad_digests(self, batch: Records, window: FileWindow) -> None:
        """Give records whose digest is of another type a second chance; note the others as problems."""
        for index in np.flatnonzero(batch["flags"] & BAD_DIGEST).tolist():
            row = batch[index]
            at = int(row["offset"]) - window.base
            body = memoryview(window.data.data)[at + 4 : at + 4 + int(row["size"])]
            kind = find_digest_type(body)
            if kind is DigestType.HMAC:
                known = (row["ledger_id"].reshape(1), np.array([DIGEST_SIZE[kind]], np.int16))
                kernel.read_bodies(
                    window.data, np.array([at]), np.array([len(body)]), known, False, batch[index : index + 1]
                )
                batch[index]["offset"] = at + window.base
                continue
            self.problems.append(
                Problem(at + window.base, 4 + len(body), "digest mismatch", int(row["ledger_id"]), int(row["entry_id"]))
            )


def _by_ledger(rows: Records) -> tuple[Array, Array]:
    """Return the indexes of records sorted by ledger and then in file order, and where each ledger begins there."""
    ledgers = rows["ledger_id"].copy()
    order = np.arange(len(rows))
    if (ledgers[1:] < ledgers[:-1]).any():
        order = np.argsort(ledgers, kind="stable")
        ledgers = ledgers[order]
    return order, np.append(0, np.flatnonzero(ledgers[1:] != ledgers[:-1]) + 1)[: len(rows)]


def _compare_with_counted(
    rows: Records, lengths: Mapping[int, tuple[int, int]], unknown: dict[int, tuple[int, int]]
) -> tuple[Array, Array]:
    """Return which records are too long, and which have just the payload that their ledgers count, as ``Proofs`` has it.

    ``lengths``: of the entries before them; what these do not tell is added to ``unknown``.
    """
    order, firsts = _by_ledger(rows)
    ids, counted, digests = (rows[name][order] for name in ("entry_id", "length", "digest_bytes"))
    last_ids, before = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    last_ids[1:], before[1:] = ids[:-1], counted[:-1]
    surplus = rows["size"][order] - ENTRY_HEADER_BYTES - counted
    for first, ledger_id in zip(firsts.tolist(), rows["ledger_id"][order[firsts]].tolist(), strict=True):
        last_ids[first], before[first] = lengths.get(ledger_id, (-1, 0))
        if ledger_id not in lengths:
            unknown.setdefault(ledger_id, (int(ids[first]), int(surplus[first] - digests[first])))
    surplus[ids > last_ids] += before[ids > last_ids]
    is_long, is_counted = np.empty(len(rows), bool), np.empty(len(rows), bool)
    # A digest that is wrong may be of any type.
    is_long[order] = surplus > np.where(has_good_digest(rows)[order], digests, max(_ALL_SIZES))
    is_counted[order] = (ids == last_ids + 1) & (surplus == digests)
    return is_long, is_counted


def _gap(start: int, end: int) -> logscan.Gap:
    """Return the unreadable bytes up to a record at ``end``: also where it begins before ``start``, after a padding of a wrong length."""
    offset = min(start, end - 1)
    return logscan.Gap(offset, end - offset, logscan.GapReason.UNREADABLE)


@contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise SourceChanged(
            f"{path} is gone", hint="restore the file, or run: pulsar-admin store refresh", path=path
        ) from error
    except OSError as error:
        raise EntryLogCorrupt(
            f"{path} cannot be read: {error.strerror}",
            hint="" if isinstance(error, NotRegular) else "check the disk and the file's permissions",
            path=path,
        ) from error


# -- filewindow --------------------------------------------------------------------------------------------------------
# A part of a file in memory, moved along by the reader of the file.


WINDOW_BYTES = 8 << 20


class FileWindow:
    """A part of a file in memory: ``data`` are its bytes from ``base`` on; records that begin after ``stop`` are not needed."""

    def __init__(self, file: Any, stop: int, file_bytes: int, cold: ColdPages | None) -> None:
        """``cold``: which part of the file is dropped from the page cache as the window moves on."""
        self._cold = cold
        self.file = file
        self.stop = stop
        self.file_bytes = file_bytes
        self.base = 0
        self.read_bytes = 0  # also those read again
        self._buffer = np.empty(WINDOW_BYTES, np.uint8)
        self.data = self._buffer[:0]

    def move_to(self, offset: int) -> None:
        """Move the window so that it contains ``offset``, unless it already does."""
        if not self.base <= offset < self.base + len(self.data):
            self._fill(offset)

    def widen(self, offset: int) -> None:
        """Read from ``offset`` on; a second call for the same offset reads twice as much."""
        if offset == self.base and len(self.data) == len(self._buffer):
            self._buffer = np.empty(2 * len(self._buffer), np.uint8)
        self._fill(offset)

    def cover(self, start: int, end: int) -> None:
        """Make the window contain the bytes from ``start`` to ``end``."""
        if self.base <= start and end <= self.base + len(self.data):
            return
        if end - start > len(self._buffer):
            self._buffer = np.empty(end - start, np.uint8)
        self._fill(start)

    def _fill(self, offset: int) -> None:
        if self._cold is not None:
            self._cold.drop(self.base, min(self.base + len(self.data), offset))
        wanted = min(len(self._buffer), self.file_bytes - offset)
        read_into(memoryview(self._buffer.data)[:wanted], self.file, offset)
        self.read_bytes += wanted
        self.base, self.data = offset, self._buffer[:wanted]


def read_into(view: memoryview, file: Any, offset: int) -> None:
    """Fill a view with the file's bytes from ``offset`` on; raises SourceChanged if the file no longer has that many."""
    got = 0
    while got < len(view):
        count = os.preadv(file.fileno(), [view[got : got + PACE.step_bytes]], offset + got)
        PACE.take(count)
        if count == 0:
            raise SourceChanged(
                f"{file.name} became shorter while it was read: wanted bytes up to {offset + len(view)}, found {offset + got}",
                hint="run it again when no process writes there",
            )
        got += count


def close_together(places: Iterator[tuple[int, int]], most: int) -> Iterator[list[tuple[int, int]]]:
    """Yield places in lists of at most ``most`` that fit into one window, except for a single larger record."""
    near: list[tuple[int, int]] = []
    for offset, size in places:
        if near and (len(near) == most or offset + 4 + size > near[0][0] + WINDOW_BYTES):
            yield near
            near = []
        near.append((offset, size))
    if near:
        yield near


# -- wholefile ---------------------------------------------------------------------------------------------------------
# A whole file, read where it is looked at, as the reference readers of entry logs and journals want it.


PAGE_BYTES = 1 << 16

_HEAD = struct.Struct(
    ">i"  # size
    "q"  #  ledgerId
    "q"  #  entryId
)
_COUNTERS = struct.Struct(
    ">q"  # lastAddConfirmed
    "q"  #  length
)


class FileBytes:
    """The bytes of a file, ``store.codec.buffer.Bytes``: each page is read once, when first used.

    Uses memory of its own instead of a mapping, because truncating a mapped file kills the process. Pages that were
    read stay, so the memory is PAGE_BYTES per page read and at most the file's size. Raises SourceChanged if
    the file has become shorter than ``file_bytes``.
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
            first, last = start // PAGE_BYTES, (stop - 1) // PAGE_BYTES + 1
            while (page := self._is_read.find(0, first, last)) >= 0:
                first = self._is_read.find(1, page, last)
                first = last if first < 0 else first
                read_into(self._memory[: first * PAGE_BYTES][page * PAGE_BYTES :], self._file, page * PAGE_BYTES)
                self._is_read[page:first] = b"\1" * (first - page)
        return self._memory[key]


class WholeFile:
    """The bytes of a file, and the sums that prove entries in them."""

    def __init__(self, file: Any, file_bytes: int) -> None:
        self.data = FileBytes(file, file_bytes)
        self.proofs = Proofs(self.data)

    def find_journal_entry(self, start: int, stop: int | None, is_unchecked: Callable[[int], bool]) -> int | None:
        """Return the first offset from ``start`` on, before ``stop``, of a good entry.

        Its digest is right. If the ledger's digests cannot be checked, the entry counts if a record follows it, or its payload has the
        size that the lengths in its ledger's entries give, and if no entry with a right digest begins inside it.
        """
        limit = len(self.data) if stop is None else min(stop + logscan.HEAD_BYTES - 1, len(self.data))
        followed, until = None, limit
        for offset in logscan.iter_candidates(self.data, start, limit, self.proofs):
            if offset >= until:
                break
            end = offset + 4 + int.from_bytes(self.data[offset : offset + 4], "big")
            if end > len(self.data):
                continue
            if self.proofs.digest_type(offset + 4, end):
                return offset
            ledger_id = int.from_bytes(self.data[offset + 4 : offset + 12], "big")
            if followed is not None or not is_unchecked(ledger_id):
                continue
            if self.proofs.is_counted(offset + 4, end) or self._is_followed(end):
                followed, until = offset, end
        if followed is not None and logscan.find_proved(self.data, limit, until, self.proofs) is not None:
            return None
        return followed

    def _is_followed(self, end: int) -> bool:
        """Whether a record or padding of a journal begins at ``end``, or its last byte that is not zero lies before it."""
        try:
            item = next(journal.iter_records(self.data, "", end, self.proofs), None)
        except JournalCorrupt:
            return False
        if item is None:
            return end == self.proofs.written_end(len(self.data))  # any wrong length may lead into the zeros behind
        return not isinstance(
            item, (logscan.TornTail, journal.Leftover, journal.UnknownRecord)
        ) and not self.is_no_entry(item)

    def entry_at(self, offset: int) -> journal.JournalEntry:
        """Return the entry whose size field is at ``offset``."""
        size, ledger_id, entry_id = _HEAD.unpack(self.data[offset : offset + _HEAD.size])
        return journal.JournalEntry(offset, size, ledger_id, entry_id)

    def end_of(self, item: journal.JournalItem) -> int:
        """Return where a record or padding of a journal ends."""
        if isinstance(item, journal.Padding):
            return item.offset + item.length
        return item.offset + 4 + int.from_bytes(self.data[item.offset : item.offset + 4], "big")

    def is_no_entry(self, item: journal.JournalItem) -> bool:
        """Whether a record would be an entry except for its counters."""
        if not isinstance(item, journal.JournalEntry):
            return False
        start = item.offset + 20
        last_add_confirmed, length = _COUNTERS.unpack(self.data[start : start + _COUNTERS.size])
        return bool(last_add_confirmed < -1 or length < 0)
