"""Entries that metadata says a bookie has and that it lacks, found in the copies of other bookies."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field
from pyroaring import BitMap64

from pulsar_admin.store.codec.entry import decode_entry
from pulsar_admin.store.db.entry_files import EntryFiles
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.disks.logs import Entries
from pulsar_admin.store.errors import Corrupt, SourceChanged
from pulsar_admin.store.model.coverage import stripes_of
from pulsar_admin.store.model.ledgers import find_metadata, iter_blocks, read_ledger


class FilePlace(NamedTuple):
    """An entry in a file of the store."""

    file_id: int
    offset: int
    size: int


class Gaps(Struct):
    """The missing entries of a ledger directory: those that other bookies have (``found``), and those that no file of
    the store has (``nowhere``)."""

    found: Entries = field(default_factory=Entries)
    nowhere: Entries = field(default_factory=Entries)


def find_gaps(txn: Txn, bookie_id: str, ledgers: list[int], have: list[Entries]) -> Gaps:
    """Return the entries that a bookie should have and none of its own files (``have``) has, by ledger."""
    gaps = Gaps()
    for ledger_id in ledgers:
        metadata = find_metadata(txn, ledger_id)
        if metadata is None:
            continue
        missing = BitMap64()
        for stripe in stripes_of(metadata, read_ledger(txn, ledger_id).last_entry_id):
            if bookie_id in stripe.members:
                ids = np.arange(stripe.first, stripe.last + 1, dtype=np.int64)
                missing.update(array("Q", ids[stripe.holds(bookie_id, ids)].astype("<u8").tobytes()))
        for entries in have:
            missing -= entries.of(ledger_id)
        if missing:
            elsewhere = BitMap64(entry_id for entry_id, _ in _iter_elsewhere(txn, bookie_id, ledger_id, missing))
            if elsewhere:
                gaps.found.by_ledger[ledger_id] = elsewhere
            if missing - elsewhere:
                gaps.nowhere.by_ledger[ledger_id] = missing - elsewhere
    return gaps


def read_missing(txn: Txn, files: EntryFiles, bookie_id: str, ledger_id: int, entries: BitMap64) -> Iterator[bytes]:
    """Yield the bodies of entries from other bookies' files, in order; a copy that was damaged since is skipped."""
    metadata = find_metadata(txn, ledger_id)
    kind, password = (None, None) if metadata is None else (metadata.digest_type, metadata.password)
    for entry_id, place in _iter_elsewhere(txn, bookie_id, ledger_id, entries):
        try:
            body = files.read_record(place)
            entry = decode_entry(body, kind, where=files.name(place.file_id), password=password or b"")
        except (Corrupt, SourceChanged):
            continue
        if (entry.ledger_id, entry.entry_id) == (ledger_id, entry_id):
            yield bytes(body)


def _iter_elsewhere(txn: Txn, bookie_id: str, ledger_id: int, wanted: BitMap64) -> Iterator[tuple[int, FilePlace]]:
    """Yield the wanted entries that a file of another bookie has, with their places."""
    own = _files_of(txn, bookie_id)
    for block in iter_blocks(txn, ledger_id):
        for index in range(len(block)):
            place = FilePlace(*block.place(index))
            if place.file_id not in own and block.entry_id(index) in wanted:
                yield block.entry_id(index), place


def _files_of(txn: Txn, bookie_id: str) -> frozenset[int]:
    key = (_files_of, bookie_id)
    if key not in txn.memo:
        txn.memo[key] = frozenset(log.file_id for log in iter_logs(txn) if log.bookie == bookie_id)
    files: frozenset[int] = txn.memo[key]
    return files
