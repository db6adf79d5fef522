"""The ledgers on a bookie's disks by its index files and the ledgers maps of its entry logs, and those that its index no longer has; no
entry is read.

Sources: ``LedgerMetadataIndex`` (every row of ``ledgers`` is a ledger), ``IndexPersistenceMgr`` (every ``.idx`` file is one),
``DefaultEntryLogger.getEntryLogMetadata`` (the map, or a walk over the records of a log without a map); BookKeeper 4.17.
``ScanAndCompareGarbageCollector`` removes a deleted ledger from a bookie's index at once; its bytes are deleted with their entry log, often
much later. Until the journals are replayed, an index also lacks the latest writes.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.dbledger import decode_ledgers_row, ledger_key
from pulsar_admin.store.codec.digest import master_key
from pulsar_admin.store.codec.ledgerindex import HEADER_BYTES
from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata
from pulsar_admin.store.db.bookies import Bookie, iter_imported_bookies
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.storeinfo import StoreInfo
from pulsar_admin.store.errors import MetadataCorrupt, Refused, StoreError, unread_text
from pulsar_admin.store.files import read_file
from pulsar_admin.store.model import coverage
from pulsar_admin.store.model.coverage import ensemble_bookies, stripes_of
from pulsar_admin.store.names import LONG_MAX
from pulsar_admin.store.scan.ledgers_map import read_ledger_sizes, read_ledgers_map
from pulsar_admin.store.sources.bookies import read_bookie_directory
from pulsar_admin.store.sources.index_places import iter_index_files, read_ledger_ids
from pulsar_admin.store.sources.journals import iter_replayed_ledgers, without_journal
from pulsar_admin.store.sources.rocksdb import is_rocksdb, open_for_reading, open_ranges
from pulsar_admin.store.urls import fetched_from


class IndexKind(StrEnum):
    """The storage that keeps a bookie's index."""

    DB = "DbLedgerStorage"
    FILES = "SortedLedgerStorage or InterleavedLedgerStorage"
    NONE = "none"


class Disk(Struct, frozen=True):
    """Entry logs with an index: a ledger directory of DbLedgerStorage, or all directories of another bookie.

    ``storage``: ``IndexKind.NONE`` without an index; a bookie then creates an empty one. ``ledgers``: those in the
    index.
    """

    storage: IndexKind
    directories: tuple[Path, ...]
    indexes: tuple[Path, ...]
    ledgers: Array
    problems: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the disk in messages."""
        return ", ".join(map(str, self.directories))

    def logs(self) -> Iterator[Path]:
        """Yield the entry logs in the order of their numbers."""
        logs = chain.from_iterable(read_bookie_directory(path).logs for path in self.directories)
        yield from (file for _, file in sorted(logs))


class LogLedgers(NamedTuple):
    """The ledgers in an entry log, ascending, and the bytes of each; ``walked``: it has no ledgers map, its records were counted."""

    path: Path
    size_bytes: int
    ledgers: Array
    bytes: Array
    walked: bool


def read_disks(bookie: Bookie) -> list[Disk]:
    """Return the ledgers that a bookie has in its index after a start: those of the index, and those that its journals add.

    Raises MetadataCorrupt for a database that cannot be read, Refused for a fetched directory without one.
    """
    disks, problems = _read_indexes(bookie), list[str]()
    for disk in disks:
        if disk.storage is IndexKind.NONE and (place := fetched_from(disk.directories[0])):
            raise Refused(
                f"the index of bookie {bookie.name} was not fetched from {place}: it is unknown which ledgers it "
                "would delete",
                hint=(
                    "run it on the machine with the bookies' disks: pulsar-admin store preflight --zookeeper DIR "
                    "--bookie-conf FILE"
                ),
            )
    replayed = np.unique(np.fromiter(iter_replayed_ledgers(bookie, problems), np.int64))
    # DbLedgerStorage keeps a ledger in the directory of the number ledger id modulo directories.
    shares = [replayed[replayed % len(disks) == number] for number in range(len(disks))]
    # Beside a lost index, the ledgers of journals alone would pass for all that it has: callers count its logs instead.
    return [
        disk
        if disk.storage is IndexKind.NONE
        else replace(disk, ledgers=np.union1d(disk.ledgers, share), problems=(*disk.problems, *problems))
        for disk, share in zip(disks, shares, strict=True)
    ]


def _read_indexes(bookie: Bookie) -> list[Disk]:
    pairs = [*zip(bookie.ledger_dirs, bookie.indexes, strict=False)]
    rest = bookie.ledger_dirs[len(pairs) :]
    if any(is_rocksdb(index / "ledgers") for _, index in pairs):
        return [_read_database((directory,), index) for directory, index in pairs] + [
            Disk(IndexKind.NONE, (directory,), (), np.zeros(0, np.int64)) for directory in rest
        ]
    ledgers = np.fromiter((ledger_id for ledger_id, _ in iter_index_files(bookie.indexes)), np.int64)
    if not len(ledgers):
        return [Disk(IndexKind.NONE, bookie.ledger_dirs, (), ledgers)]
    return [Disk(IndexKind.FILES, bookie.ledger_dirs, bookie.indexes, np.unique(ledgers))]


def _read_database(directories: tuple[Path, ...], index: Path) -> Disk:
    database = index / "ledgers"
    if not is_rocksdb(database):
        return Disk(IndexKind.NONE, directories, (), np.zeros(0, np.int64))
    problems: list[str] = []
    ledgers = np.unique(read_ledger_ids(database, problems, to_damage=True))
    return Disk(IndexKind.DB, directories, (index,), ledgers, tuple(problems))


def iter_log_ledgers(disk: Disk, problems: list[str]) -> Iterator[LogLedgers]:
    """Yield the bytes per ledger of each entry log of a disk; logs that cannot be read are added to ``problems``."""
    for path in disk.logs():
        try:
            sizes = read_ledgers_map(path)
            walked = sizes is None
            sizes = read_ledger_sizes(path) if sizes is None else sizes
            size_bytes = path.stat().st_size
        except (OSError, StoreError) as error:
            problems.append(unread_text(path, error))
            continue
        ledgers = np.fromiter(sizes, np.int64, len(sizes))
        counts = np.fromiter(sizes.values(), np.int64, len(sizes))
        order = np.argsort(ledgers)
        yield LogLedgers(path, size_bytes, ledgers[order], counts[order], walked)


def count_entries(disk: Disk, chosen: Array, problems: list[str]) -> int | None:
    """Return how many entries the index of a disk has of the chosen ledgers; None if it does not exist or, as a problem, cannot be read."""
    if disk.storage is IndexKind.FILES:
        wanted = {*disk.ledgers[chosen].tolist()}
        return sum(_count_slots(path) for ledger_id, path in iter_index_files(disk.indexes) if ledger_id in wanted)
    if not disk.indexes or not is_rocksdb(disk.indexes[0] / "locations"):
        return None
    # Each run of neighbouring chosen ledgers is one range of keys.
    edges = np.flatnonzero(np.diff(chosen.astype(np.int8), prepend=0, append=0))
    count = 0
    try:
        with open_ranges(disk.indexes[0] / "locations", problems) as rows_between:
            for start, after in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
                first, last = int(disk.ledgers[start]), int(disk.ledgers[after - 1])
                end = ledger_key(last + 1) if last < LONG_MAX else b"\xff"
                count += sum(1 for _ in rows_between(ledger_key(first), end))
    except MetadataCorrupt as error:
        problems.append(error.message)
        return None
    return count


def _count_slots(path: Path) -> int:
    """Return how many entries an ``.idx`` file has an offset for."""
    slots = read_file(path)[HEADER_BYTES:]
    return int(np.count_nonzero(np.frombuffer(slots[: len(slots) // 8 * 8], ">i8")))


# -- what the indexes of bookies no longer have -----------------------------------------------------------------------


Indexed = Mapping[str, Array | None]
"""Bookie id → the ledgers that its index has after a start, ascending; None where it is missing or cannot be read as a whole, or a
journal may add ledgers that was not imported."""


def read_indexed(info: StoreInfo) -> dict[str, Array | None]:
    """Return the ledgers in the indexes of the imported bookies."""
    indexed = dict[str, Array | None]()
    for bookie in iter_imported_bookies(info):
        indexed[bookie.bookie_id] = None
        with suppress(StoreError, OSError):
            disks = [] if without_journal([bookie]) else read_disks(bookie)
            if disks and not any(disk.storage is IndexKind.NONE or disk.problems for disk in disks):
                indexed[bookie.bookie_id] = np.unique(np.concatenate([disk.ledgers for disk in disks]))
    return indexed


def find_bookies_without_rows(indexed: Indexed, ledger_id: int, metadata: LedgerMetadata) -> list[str]:
    """Return the bookies that got entries of a closed ledger, but whose index does not have it.

    If the ensemble is larger than the write quorum and the entries are few, a bookie may have got none. Bookies with an unknown index
    are left out.
    """
    stripes = [*stripes_of(metadata, metadata.last_entry_id)]
    bookies = []
    for bookie in ensemble_bookies(metadata):
        ids = indexed.get(bookie)
        if (
            ids is not None
            and any(stripe.count(bookie) for stripe in stripes)
            and ledger_id not in ids[_at(ids, ledger_id)]
        ):
            bookies.append(bookie)
    return bookies


NOT_INDEXED = "bookies' indexes lost all or a part of the ledger"
"""Why a ledger is left apart although entry logs have entries of it: nothing would serve them."""


def find_collected(txn: Txn, ledger_ids: Iterable[int]) -> list[int]:
    """Return the ledgers with entries that no bookie serves after a start: only bookies whose index lacks the ledger have them.

    A ledger is left out if the index of such a bookie is unknown.
    """
    indexed, disks, collected = read_indexed(txn.store.info), coverage.read_disks(txn), list[int]()
    wanted = np.unique(np.fromiter(ledger_ids, np.int64))
    known = [ids for ids in indexed.values() if ids is not None]
    if known and len(known) == len(indexed):  # what every index has is collected nowhere
        wanted = np.setdiff1d(wanted, functools.reduce(np.intersect1d, known))
    for ledger_id in wanted.tolist():
        held = coverage.read_held(txn, ledger_id, disks) or {}
        indexes = {bookie: indexed.get(bookie) for bookie in held}
        knowing = [bookie for bookie, ids in indexes.items() if ids is None or ledger_id in ids[_at(ids, ledger_id)]]
        if len(knowing) < len(held) and all(ids is not None for ids in indexes.values()):
            served = {entry for bookie in knowing for entry in held[bookie].tolist()}
            if any(entry not in served for bookie in held for entry in held[bookie].tolist()):
                collected.append(ledger_id)
    return collected


def _at(ids: Array, ledger_id: int) -> slice:
    """Return the slice of ``ids`` (ascending) that is ``ledger_id``, if it is among them."""
    place = int(ids.searchsorted(ledger_id))
    return slice(place, place + 1)


# -- master keys: which ledgers have a password -----------------------------------------------------------------------


class MasterKeys(Struct, frozen=True):
    """``agree``: rows of bookies' indexes with the key of no password; ``locked``: ledgers with another one.

    Pulsar uses no password by default (``managedLedgerPassword``); other clients may (``MacDigestManager.genDigest("ledger", password)``).
    Indexes in ``.idx`` files are not read.
    """

    agree: int
    locked: tuple[int, ...]


def read_master_keys(txn: Txn) -> MasterKeys:
    """Return the master keys in the indexes of the imported bookies; unreadable indexes are skipped."""
    none, agree, locked = master_key(b""), 0, set[int]()
    places = (one for bookie in iter_imported_bookies(txn.store.info) for one in bookie.indexes)
    for database in (place / "ledgers" for place in places if is_rocksdb(place / "ledgers")):
        with suppress(StoreError), open_for_reading(database, []) as rows:
            for key, value in rows:
                try:
                    ledger_id, row = decode_ledgers_row(key, value, "ledgers")
                except MetadataCorrupt:
                    continue
                # Flags have a negative id, a rebuilt index empty keys.
                if ledger_id >= 0 and any(row.master_key):
                    agree += row.master_key == none
                    if row.master_key != none:
                        locked.add(ledger_id)
    return MasterKeys(agree, tuple(sorted(locked)))
