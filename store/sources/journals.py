"""What a start of a bookie reads of its journals: entries, and ledgers that it puts into its index before it collects garbage.

Upstream ``Journal.replay`` and ``BookieImpl.readJournal`` (BookKeeper 4.17): from the last mark on; a ledger that the index lacks comes
back with its master key's record, entries of others are passed over. Heads of records are read, no entries.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pulsar_admin.store.codec.journal import MASTER_KEY_ENTRY_ID, PADDED_HEADER_BYTES, PADDING_MARK, decode_header
from pulsar_admin.store.db.bookies import Bookie
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.files import open_file
from pulsar_admin.store.sources.bookies import read_bookie_directory, read_marks

if TYPE_CHECKING:
    from pyroaring import BitMap64

_INT = struct.Struct(">i")
_IDS = struct.Struct(">qq")


def iter_replayed_ledgers(bookie: Bookie, problems: list[str]) -> Iterator[int]:
    """Yield the ledgers whose master keys are in a bookie's journals after their marks; unreadable parts are added to ``problems``."""
    for directory, mark in read_marks(bookie, problems).items():
        for journal_id, path in read_bookie_directory(directory).journals:
            if journal_id >= mark.journal_id:
                offset = mark.offset if journal_id == mark.journal_id else 0
                try:
                    ids = _iter_records(path, offset)
                    yield from (ledger_id for ledger_id, entry_id in ids if entry_id == MASTER_KEY_ENTRY_ID)
                except (OSError, StoreError) as error:
                    problems.append(f"{path} cannot be read: {error}")


def read_replayed_entries(bookie: Bookie, ledgers: Collection[int], problems: list[str]) -> dict[int, BitMap64]:
    """Return the entries of some ledgers that a start of the bookie reads from its journals; unreadable parts are added to ``problems``."""
    from pyroaring import BitMap64

    found = {ledger_id: BitMap64() for ledger_id in ledgers}
    for directory, mark in read_marks(bookie, problems).items():
        for journal_id, path in read_bookie_directory(directory).journals:
            if journal_id >= mark.journal_id:
                try:
                    for ledger_id, entry_id in iter_entry_ids(
                        path, mark.offset if journal_id == mark.journal_id else 0
                    ):
                        if ledger_id in found:
                            found[ledger_id].add(entry_id)
                except (OSError, StoreError) as error:
                    problems.append(f"{path} cannot be read: {error}")
    return found


def iter_entry_ids(path: Path, offset: int) -> Iterator[tuple[int, int]]:
    """Yield (ledger, entry) of each entry that a start beginning at ``offset`` reads in a journal; raises OSError, StoreError."""
    return ((ledger_id, entry_id) for ledger_id, entry_id in _iter_records(path, offset) if entry_id >= 0)


def _iter_records(path: Path, offset: int) -> Iterator[tuple[int, int]]:
    with open_file(path) as file:
        header = decode_header(file.read(PADDED_HEADER_BYTES), str(path))
        file.seek(max(offset, header.header_bytes))
        yield from _iter_ids(file)


def _iter_ids(file: BinaryIO) -> Iterator[tuple[int, int]]:
    """Yield ledger and entry of each record up to the first bytes that are none: zeros ahead of use, or a record that is cut."""
    end = os.fstat(file.fileno()).st_size
    while len(raw := file.read(_INT.size)) == _INT.size:
        (size,) = _INT.unpack(raw)
        if size == PADDING_MARK and len(raw := file.read(_INT.size)) == _INT.size:
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
