"""A salvage carried out: first new entry logs and new databases, beside the old; then database by database one rename; last the journals.

Everything is looked at again each time: what a stopped salvage had written, such as its entry log, is found and counts as there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from pulsar_admin.store.codec.dbledger import encode_ledgers_row
from pulsar_admin.store.db.entry_files import EntryFiles
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.disks import switching
from pulsar_admin.store.disks.gaps import read_missing, read_place
from pulsar_admin.store.disks.held import Entries
from pulsar_admin.store.disks.journals import Stop
from pulsar_admin.store.disks.listed import read_listed
from pulsar_admin.store.disks.logs import iter_batches
from pulsar_admin.store.disks.salvage import SalvagePlan, StorageSalvage, files_of
from pulsar_admin.store.errors import MetadataCorrupt, StalePlan
from pulsar_admin.store.files import create_file, cut_file, open_file, remove_file
from pulsar_admin.store.scan.files import LedgerDigests
from pulsar_admin.store.sources.locations import Locations
from pulsar_admin.store.sources.log_files import put_logs, raise_last_id
from pulsar_admin.store.sources.rocksdb import create_database, lock_database, open_for_reading

_CHUNK_BYTES = 1 << 20


def apply_salvage(store: Store, plan: SalvagePlan) -> dict[str, Any]:  # Any: JSON
    """Write PLAN and return its report, with what is kept of the old state.

    Raises SourceBusy and StalePlan when the bookie was started or salvaged meanwhile, DiskFull with the bookie as it was.
    """
    if not plan.is_needed and not any(map(switching.is_unfinished, _databases(plan))):
        return plan.report(dry_run=False)
    with ExitStack() as locks:
        _lock(plan, locks)
        if files_of(plan.bookie) != plan.files:
            raise StalePlan(
                f"bookie {plan.bookie.name} changed since the salvage was planned", hint="run the command again"
            )
        parts = [part for part in plan.storages if part.databases]
        with store.read() as txn, EntryFiles(store, txn) as files:
            digests = LedgerDigests.of(read_listed(txn, plan.bookie.bookie_id).digests)
            for part in parts:
                _put_entries(_iter_bodies(txn, files, plan, part), part.storage.logs)
                _make_index(part, digests)
        for part in parts:
            plan.kept.extend(_switch(part, locks))
        plan.kept.extend(_cut(stop) for stop in plan.journals.stops)
    return plan.report(dry_run=False)


def _databases(plan: SalvagePlan) -> list[Path]:
    return [database for part in plan.storages for database in part.storage.databases]


def _lock(plan: SalvagePlan, locks: ExitStack) -> None:
    """Take the locks of all indexes and databases, and finish what a stopped salvage left of them."""
    for part in plan.storages:
        locks.enter_context(switching.hold(part.storage.index))
    for database in _databases(plan):
        if (database / "CURRENT").is_file():
            locks.enter_context(lock_database(database))
        kept = switching.clear_unfinished(database)
        if kept is not None:
            plan.kept.append(kept)


def _put_entries(bodies: Iterator[bytes], logs: Path) -> None:
    """Put BODIES into new logs, and ``lastId`` above all that are there, that of a salvage that was stopped, too."""
    deque(put_logs(bodies, logs), maxlen=0)
    with suppress(MetadataCorrupt):  # a bookie that cannot read it looks at its logs
        raise_last_id(logs)


def _iter_bodies(txn: Txn, files: EntryFiles, plan: SalvagePlan, part: StorageSalvage) -> Iterator[bytes]:
    for ledger_id in sorted(part.rescued.keys() | part.gaps.found.by_ledger.keys()):
        for place in part.rescued.get(ledger_id, {}).values():
            yield read_place(place)
        yield from read_missing(txn, files, plan.bookie.bookie_id, ledger_id, part.gaps.found.of(ledger_id))


def _make_index(part: StorageSalvage, digests: LedgerDigests) -> None:
    """Make the databases of the directory that need it beside the old ones, from all logs that are there now."""
    for database in part.databases:
        directory = switching.begin(database)
        if database.name == "locations":
            expected = _make_locations(part, digests, directory)
        else:
            own = [encode_ledgers_row(ledger_id, data) for ledger_id, data in part.rows.rows.items()]
            create_database(directory, [*own, *part.ledgers.others.items()])
            expected = len(own) + len(part.ledgers.others)
        _check_rows(directory, expected)
        switching.give_tree(directory, part.storage.index.stat())


def _make_locations(part: StorageSalvage, digests: LedgerDigests, directory: Path) -> int:
    with Locations(directory) as rows:
        expected = _put_locations(part, digests, rows)
    return expected


def _put_locations(part: StorageSalvage, digests: LedgerDigests, rows: Locations) -> int:
    """Put a row for every entry of the ledgers with rows, that of its newest good record; return how many entries they are.

    An entry of which every record is damaged keeps its row: without one the bookie would say that it never had the entry.
    """
    kept = np.array(sorted(part.rows.rows), np.int64)
    seen = Entries()
    for batch in iter_batches(part.storage, digests):
        ledgers, entries = batch.rows["ledger_id"], batch.rows["entry_id"]
        good = batch.is_good
        for at in np.flatnonzero(~good).tolist():
            good[at] = int(entries[at]) in part.survey.damaged.of(int(ledgers[at]))
        good &= np.isin(ledgers, kept)
        rows.add(ledgers[good], entries[good], batch.locations[good])
        seen.add_columns(ledgers[good], entries[good])
    return len(seen)


def _check_rows(directory: Path, expected: int) -> None:
    problems: list[str] = []
    with open_for_reading(directory, problems) as pairs:
        found = sum(1 for _ in pairs)
    if problems or found != expected:
        raise MetadataCorrupt(
            f"{directory}: RocksDB wrote {found:,} rows, expected {expected:,}",
            hint="the files are as they were; please report it",
            problems=problems,
        )


def _switch(part: StorageSalvage, locks: ExitStack) -> Iterable[Path]:
    """Put the new databases in their places, and yield where the old ones are."""
    for database in part.databases:
        locks.enter_context(lock_database(switching.unfinished(database)))
        kept = switching.switch(database)
        if kept is not None:
            yield kept


def _cut(stop: Stop) -> Path:
    """Cut a journal behind its last good record; return where the bytes from there on are."""
    beside = stop.path.with_name(f"{stop.path.name}-from-{stop.cut_at}-before-salvage")
    remove_file(beside)  # left by a salvage that was stopped
    with open_file(stop.path) as journal, create_file(beside, like=stop.path.stat()) as kept:
        journal.seek(stop.cut_at)
        left = stop.size_bytes
        while left and (chunk := journal.read(min(left, _CHUNK_BYTES))):
            kept.write(chunk)
            left -= len(chunk)
    cut_file(stop.path, stop.cut_at)
    return beside
