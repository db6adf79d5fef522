"""What a start of a bookie reads of its journals: entries, and ledgers that it puts into its index before garbage
collection.

Upstream ``Journal.replay`` and ``BookieImpl.readJournal`` (BookKeeper 4.17): from the last mark on. A ledger that the
index lacks is added by the record of its master key, else its entries are skipped. Only heads of records are read.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from pulsar_admin.store.codec import journal
from pulsar_admin.store.codec.bookie import LAST_MARK_FILE, PUT_ASIDE, LogMark
from pulsar_admin.store.codec.buffer import Bytes, written_end
from pulsar_admin.store.codec.entry import RECORD_MAX_BYTES
from pulsar_admin.store.db.bookies import Bookie, merge_bookies
from pulsar_admin.store.errors import StoreError, unread_text
from pulsar_admin.store.files import open_file
from pulsar_admin.store.sources.bookies import (
    read_bookie_cookie,
    read_bookie_directory,
    read_marks,
    with_own_journals,
)

if TYPE_CHECKING:
    from pyroaring import BitMap64

ZEROS = "zeros, and other bytes after them"
_INT = struct.Struct(">i")
_IDS = struct.Struct(">qq")
_ADD_BYTES = 24  # ids and lastAddConfirmed, which the storage reads
_LAC_BYTES = 16
# Records that are not entries have ids below 0; in a journal of an earlier version such an id is damage.
META_SINCE = {journal.MASTER_KEY_ENTRY_ID: 3, journal.FENCE_ENTRY_ID: 4, journal.EXPLICIT_LAC_ENTRY_ID: 6}


def iter_replayed_ledgers(bookie: Bookie, problems: list[str]) -> Iterator[int]:
    """Yield the ledgers whose master keys are in a bookie's journals after their marks; unreadable parts are added to ``problems``."""
    records = _iter_replayed(bookie, problems)
    return (ledger_id for ledger_id, entry_id in records if entry_id == journal.MASTER_KEY_ENTRY_ID)


def read_replayed_entries(bookie: Bookie, ledgers: Collection[int], problems: list[str]) -> dict[int, BitMap64]:
    """Return the entries of some ledgers that a start of the bookie reads from its journals; unreadable parts are added to ``problems``."""
    from pyroaring import BitMap64

    replayed = {ledger_id: BitMap64() for ledger_id in ledgers}
    for ledger_id, entry_id in _iter_replayed(bookie, problems):
        if entry_id >= 0 and ledger_id in replayed:
            replayed[ledger_id].add(entry_id)
    return replayed


def _iter_replayed(bookie: Bookie, problems: list[str]) -> Iterator[tuple[int, int]]:
    """Yield (ledger, entry) of each record after the marks of a bookie's journals; unreadable parts are added to ``problems``."""
    for directory, mark in read_marks(bookie, problems).items():
        for journal_id, path in read_bookie_directory(directory).journals:
            if journal_id >= mark.journal_id:
                try:
                    yield from _iter_records(path, mark.offset if journal_id == mark.journal_id else 0)
                except (OSError, StoreError) as error:
                    problems.append(unread_text(path, error))


def find_replay_end(path: Path, offset: int) -> int:
    """Return an offset in the last record of a journal that a start beginning at ``offset`` reads, ``offset`` if it reads none;
    raises OSError, StoreError."""
    with open_file(path) as file:
        header = journal.decode_header(file.read(journal.PADDED_HEADER_BYTES), str(path))
        file.seek(max(offset, header.header_bytes))
        end = file.tell()
        for _ in _iter_ids(file):
            end = file.tell()
    return end


def iter_entry_ids(path: Path, offset: int) -> Iterator[tuple[int, int]]:
    """Yield (ledger, entry) of each entry that a start beginning at ``offset`` reads in a journal; raises OSError, StoreError."""
    return ((ledger_id, entry_id) for ledger_id, entry_id in _iter_records(path, offset) if entry_id >= 0)


def _iter_records(path: Path, offset: int) -> Iterator[tuple[int, int]]:
    with open_file(path) as file:
        header = journal.decode_header(file.read(journal.PADDED_HEADER_BYTES), str(path))
        file.seek(max(offset, header.header_bytes))
        yield from _iter_ids(file)


def _iter_ids(file: BinaryIO) -> Iterator[tuple[int, int]]:
    """Yield ledger and entry of each record up to the first bytes that are not a record: zeros allocated ahead, or a record that is cut."""
    end = os.fstat(file.fileno()).st_size
    while len(raw := file.read(_INT.size)) == _INT.size:
        (size,) = _INT.unpack(raw)
        if size == journal.PADDING_MARK and len(raw := file.read(_INT.size)) == _INT.size:
            size, head = _INT.unpack(raw)[0], b""
        else:
            head = file.read(_IDS.size) if size >= _IDS.size else b""
            if len(head) < _IDS.size:
                return
        if size < 0 or file.tell() + size - len(head) > end:
            return
        if head:
            yield _IDS.unpack(head)
        file.seek(size - len(head), os.SEEK_CUR)


# -- where a start fails ----------------------------------------------------------------------------------------------


class Frame(NamedTuple):
    """A record: the offset of its length, and that length."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        """The offset after it."""
        return self.offset + _INT.size + self.size


def find_stop(
    data: Bytes, start: int, version: int, keys: dict[int, bytes], note: Callable[[Frame], None] = lambda frame: None
) -> tuple[int, str]:
    """Return where the replay of a journal from ``start`` on ends, and why it fails there, "" if it does not. It does not
    fail at ``ZEROS``, but ignores what is after them.

    ``keys``: the master keys of ledgers that earlier records gave, to which those of this journal are added. ``note`` gets each record.
    """
    position, reason = start, ""
    while len(data) - position >= _INT.size and not reason:
        size = _INT.unpack(data[position : position + _INT.size])[0]
        if size == journal.PADDING_MARK and version >= journal.FIRST_PADDED_VERSION:
            # For a start, a record cut off at the end of the file ends the journal without a fault.
            if len(data) - position < 2 * _INT.size:
                break
            size = _INT.unpack(data[position + _INT.size : position + 2 * _INT.size])[0]
            reason = f"padding of {size} bytes" if size < 0 else ""
            if position + 2 * _INT.size + size > len(data):
                break
            position += 0 if reason else 2 * _INT.size + size
            continue
        reason = f"a record of {size} bytes" if size < 0 or size > RECORD_MAX_BYTES else ""
        if size == 0 or (not reason and position + _INT.size + size > len(data)):
            is_end = size or written_end(data, position, len(data)) == position
            reason = "" if is_end else ZEROS
            break
        frame = Frame(position, size)
        reason = reason or _fault(data[position + _INT.size : frame.end], version, keys)
        if not reason:
            note(frame)
            position = frame.end
    return position, reason


def _fault(body: bytes | memoryview, version: int, keys: dict[int, bytes]) -> str:
    """Return why a replay fails at this record, "" if it does not."""
    if len(body) < _IDS.size:
        return f"a record of {len(body)} bytes"
    ledger_id, entry_id = _IDS.unpack_from(body)
    if entry_id >= 0:
        return f"an entry of {len(body)} bytes" if len(body) < _ADD_BYTES else ""
    if entry_id not in META_SINCE:
        return ""
    if version < META_SINCE[entry_id]:
        return f"record {entry_id:#x} in a journal of version {version}"
    if entry_id == journal.FENCE_ENTRY_ID:
        return ""
    count = _INT.unpack_from(body, _IDS.size)[0] if len(body) >= _IDS.size + _INT.size else -1
    if not 0 <= count <= len(body) - _IDS.size - _INT.size:
        return f"{count} bytes in record {entry_id:#x}"
    value = bytes(body[_IDS.size + _INT.size :][:count])
    if entry_id == journal.EXPLICIT_LAC_ENTRY_ID:
        return f"an explicit LAC of {count} bytes" if count < _LAC_BYTES else ""
    if keys.setdefault(ledger_id, value) != value:
        return f"another master key of ledger {ledger_id}"
    return ""


def is_first_journal_missing(mark: LogMark, journals: Collection[int]) -> bool:
    """Whether a start fails because the journal at which it begins does not exist (``Journal.replay``: "Recovery log … is missing")."""
    return (
        mark.journal_id > 0 and min((one for one in journals if one >= mark.journal_id), default=-1) != mark.journal_id
    )


def without_journal(bookies: Iterable[Bookie]) -> dict[str, bool]:
    """Return the ids of the bookies that have no journal, lack the one with which a start begins, or of which fewer journal directories
    were given than the cookie names → whether one was not given: entries that are in no entry log may be there. Not one whose mark a
    salvage put aside, nor one with empty directories, as an operator gives for lost disks: their journals are lost."""
    return {
        bookie.bookie_id: not bookie.journal_dirs or _lacks_directory(bookie)
        for bookie in merge_bookies(bookies)
        if _lacks_journal(with_own_journals(bookie))
    }


def _lacks_directory(bookie: Bookie) -> bool:
    cookie = read_bookie_cookie(bookie)
    return cookie is not None and len(bookie.journal_dirs) < len({*cookie.journal_dirs})


def _lacks_journal(bookie: Bookie) -> bool:
    marks = read_marks(bookie, [])  # first: a bookie that runs moves them on, and keeps some journals before them
    journals = {path: dict(read_bookie_directory(path).journals) for path in bookie.journal_dirs if path.is_dir()}
    if any(is_first_journal_missing(mark, journals.get(path, ())) for path, mark in marks.items()):
        return True
    if read_bookie_cookie(bookie) is None and not any(
        read_bookie_directory(path).logs for path in bookie.ledger_dirs if path.is_dir()
    ):
        return False
    if _lacks_directory(bookie):
        return True
    put_aside = (next(path.glob(f"{LAST_MARK_FILE}*{PUT_ASIDE}"), None) for path in bookie.ledger_dirs)
    return not any(journals.values()) and not any(put_aside)
