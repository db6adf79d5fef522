"""A bookie's journals: the entries that its next start reads, the record at which that start fails, and all other entries.

Upstream ``Journal.scanJournal`` and ``BookieImpl.readJournal`` (4.17) read record by record from the mark on. At a length of zero or a
truncated record they silently end the file; a negative length, a record too short for its kind, or a second master key of a ledger aborts
the start.
"""

import os
import struct
from collections import deque
from collections.abc import Container, Generator, Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, field

from pulsar_admin.store.codec import journal
from pulsar_admin.store.codec.bookie import LAST_MARK_FILE
from pulsar_admin.store.codec.proof import Proofs
from pulsar_admin.store.db.bookies import Bookie
from pulsar_admin.store.disks.logs import Entries
from pulsar_admin.store.errors import JournalCorrupt
from pulsar_admin.store.files import open_file
from pulsar_admin.store.scan.files import WholeFile
from pulsar_admin.store.sources.bookies import mark_names, read_bookie_directory, read_marks
from pulsar_admin.store.sources.journals import META_SINCE, Frame, find_stop, is_first_journal_missing
from pulsar_admin.store.wording import Answer

_LEN = struct.Struct(">i")
_IDS = struct.Struct(">qq")
_LOOK_BACK = 10_000  # records before a fault, among which the last proven one is looked for: bounds the memory


class JournalStop(Answer, frozen=True):
    """A journal record at which a start fails; the journal is cut from ``cut_at`` on, and the rest is kept beside it."""

    path: str
    offset: int
    reason: str
    cut_at: int
    cut_bytes: int = field(name="cutBytes")


class JournalPlace(NamedTuple):
    """An entry in a journal; ``offset``: where its body begins."""

    path: Path
    offset: int
    size: int


def read_place(place: JournalPlace) -> bytes:
    """Return the body of an entry in a journal."""
    with open_file(place.path) as file:
        file.seek(place.offset)
        return file.read(place.size)


class JournalSurvey(Struct):
    """The contents of a bookie's journals. ``only_here``: good entries that no start replays and no entry log has."""

    keys: dict[int, bytes] = field(default_factory=dict)
    fences: set[int] = field(default_factory=set)
    replayed_fences: set[int] = field(default_factory=set)
    """Fences that a start sets if the index has a row of the ledger."""
    lacs: dict[int, bytes] = field(default_factory=dict)
    replayed: Entries = field(default_factory=Entries)
    keyless: set[int] = field(default_factory=set)
    """Ledgers whose records a start replays only if the index has a row of the ledger: no earlier record has its master
    key."""
    only_here: dict[int, dict[int, JournalPlace]] = field(default_factory=dict)
    stops: list[JournalStop] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    marks: list[Path] = field(default_factory=list)
    """Files that name a missing journal."""
    files: int = 0


def survey_journals(bookie: Bookie, held: Entries, unproven: Container[int]) -> JournalSurvey:
    """Read all journals of a bookie. ``held``: entries in its entry logs; ``unproven``: ledgers without checkable
    digests."""
    reader = _JournalReader(held, unproven)
    for current, mark in read_marks(bookie, []).items():
        journals = read_bookie_directory(current).journals
        if is_first_journal_missing(mark, [journal_id for journal_id, _ in journals]):
            path = current / f"{mark.journal_id:x}.txn"
            reader.survey.missing.append(
                f"{path}, where {LAST_MARK_FILE} points, is missing: the bookie does not start. Without {LAST_MARK_FILE} it"
                " does, and replays the journals that are left"
            )
            marks = (ledgers / mark_names(bookie)[current] for ledgers in bookie.ledger_dirs)
            reader.survey.marks += filter(Path.is_file, marks)
        for journal_id, path in journals:
            start = mark.offset if journal_id == mark.journal_id else 0
            reader.read(path, start if journal_id >= mark.journal_id else None)
    return reader.survey


class _JournalReader:
    """Reads journals one after the other, as the start of a bookie does."""

    def __init__(self, held: Entries, unproven: Container[int]) -> None:
        self.survey = JournalSurvey()
        self._held = held
        self._unproven = unproven
        self._keys: dict[int, bytes] = {}  # as the start knows them

    def read(self, path: Path, start: int | None) -> None:
        """Read a journal. ``start``: where a bookie begins to replay (0: at the first record), None if it does not read this journal."""
        with open_file(path) as file:
            whole = WholeFile(file, os.fstat(file.fileno()).st_size)
            first = end = len(whole.data)
            if start is not None:
                header = journal.decode_header(whole.data, str(path))
                first = start if start > 0 else header.header_bytes
                end = self._replay(path, whole, first, header.version)
            for item in _iter_sound(whole, str(path), self._unproven):
                self._note(path, whole, item, first <= item.offset < end)
        self.survey.files += 1

    def _replay(self, path: Path, whole: WholeFile, start: int, version: int) -> int:
        """Record where a replay from ``start`` fails; return the offset at which the replay ends."""
        data, frames = whole.data, deque[Frame](maxlen=_LOOK_BACK)
        position, reason = find_stop(data, start, version, self._keys, frames.append)
        # Nothing stops this start: the zeros or the cut record at the end stay as they are.
        if not reason:
            return position
        cut_at = self._end_of_good(whole, frames, start)
        written = max(whole.proofs.written_end(len(data)), cut_at)
        self.survey.stops.append(JournalStop(str(path), position, reason, cut_at, written - cut_at))
        return cut_at

    def _end_of_good(self, whole: WholeFile, frames: deque[Frame], start: int) -> int:
        """Return the end of the last good record: after a damaged one, nothing proves the lengths that follow."""
        while frames:
            frame = frames.pop()
            ledger_id, entry_id = _IDS.unpack(whole.data[frame.offset + _LEN.size :][: _IDS.size])
            if entry_id in META_SINCE or ledger_id in self._unproven or _is_proven(whole.proofs, frame):
                return frame.end
        return start

    def _note(self, path: Path, whole: WholeFile, item: journal.JournalItem, replayed: bool) -> None:
        survey = self.survey
        if isinstance(item, journal.MasterKey):
            survey.keys.setdefault(item.ledger_id, item.key)
        elif isinstance(item, journal.Fence):
            (survey.replayed_fences if replayed else survey.fences).add(item.ledger_id)
        elif isinstance(item, journal.ExplicitLac):
            survey.lacs[item.ledger_id] = item.buffer
        # A replay of these needs the ledger's master key, which only an earlier record or the index can have.
        if isinstance(item, (journal.JournalEntry, journal.Fence)) and replayed and item.ledger_id not in self._keys:
            survey.keyless.add(item.ledger_id)
        if isinstance(item, journal.JournalEntry) and replayed:
            survey.replayed.add(item.ledger_id, item.entry_id)
        elif (
            isinstance(item, journal.JournalEntry)
            and item.entry_id not in self._held.of(item.ledger_id)
            and _is_proven(whole.proofs, Frame(item.offset, item.size))
        ):
            place = JournalPlace(path, item.offset + _LEN.size, item.size)
            survey.only_here.setdefault(item.ledger_id, {})[item.entry_id] = place


def _is_proven(proofs: Proofs, frame: Frame) -> bool:
    return proofs.digest_type(frame.offset + _LEN.size, frame.end) is not None


def _iter_sound(whole: WholeFile, where: str, unproven: Container[int]) -> Iterator[journal.JournalItem]:
    """Yield the good records of a journal; after damage, continue at the next good entry."""
    position: int | None = None
    while True:
        doubtful = yield from _iter_run(whole, where, position)
        position = None if doubtful is None else whole.find_journal_entry(doubtful, None, unproven.__contains__)
        if position is None:
            return


def _iter_run(whole: WholeFile, where: str, position: int | None) -> Generator[journal.JournalItem, None, int | None]:
    """Yield records from ``position`` on; return the offset of the first bytes that are not a record, None at a clean end."""
    try:
        for item in journal.iter_records(whole.data, where, position, whole.proofs):
            if isinstance(item, (journal.TornTail, journal.Leftover)):
                return max(item.offset - 3, position or 0)  # the first bytes of a length may be zeros
            position = whole.end_of(item)
            yield item
    except JournalCorrupt:
        return max(journal.PADDED_HEADER_BYTES, position or 0)
    return None
