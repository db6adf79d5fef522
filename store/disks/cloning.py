"""A clone written: entry logs and index of its bookie, then its metadata, all in a directory that gets its name at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pulsar_admin.store.codec.bookie import COOKIE_FILE, LAST_MARK_FILE, LogMark, encode_cookie, encode_last_mark
from pulsar_admin.store.codec.dbledger import LedgerData, encode_ledgers_row
from pulsar_admin.store.codec.digest import master_key
from pulsar_admin.store.codec.entrylog import encode_location
from pulsar_admin.store.codec.journal import LATEST_VERSION, PADDED_HEADER_BYTES, encode_header
from pulsar_admin.store.db.entry_files import EntryFiles
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.disks.clone import ClonePlan, iter_cloned
from pulsar_admin.store.disks.clone_nodes import CloneNodes
from pulsar_admin.store.errors import StalePlan
from pulsar_admin.store.files import create_directory, create_file, new_directory
from pulsar_admin.store.model.ledgers import find_metadata, read_ledger
from pulsar_admin.store.sources.locations import Locations
from pulsar_admin.store.sources.log_files import put_logs
from pulsar_admin.store.sources.rocksdb import create_database


def apply_clone(store: Store, plan: ClonePlan, now_ms: int) -> dict[str, Any]:  # Any: JSON
    """Write PLAN, whole or not at all, and return its report. Raises StalePlan, DiskFull, SourceChanged."""
    with store.read() as txn, EntryFiles(store, txn) as files, new_directory(plan.target) as root:
        if txn.id != plan.txn_id:
            raise StalePlan(f"{store.path} changed since the clone was planned", hint="run the command again")
        create_directory(root)
        create_directory(root / "bookkeeper")
        current = root / "bookkeeper" / "current"
        create_directory(current)
        _write_bookie(plan, current, now_ms)
        _write_entries(txn, files, plan, current)
        create_database(current / "ledgers", _ledgers_rows(txn, plan))
        nodes = CloneNodes(plan.address, {ledger.ledger_id for ledger in plan.ledgers}, plan.chosen)
        create_database(root / "metadata", nodes.rows(txn, plan.next_ledger_id, now_ms))
    return plan.report(dry_run=False)


def _write_bookie(plan: ClonePlan, current: Path, now_ms: int) -> None:
    """Write the small files of a bookie that was stopped with an empty journal."""
    files = {
        COOKIE_FILE: encode_cookie(plan.address.cookie),
        LAST_MARK_FILE: encode_last_mark(LogMark(now_ms, PADDED_HEADER_BYTES)),
        f"{now_ms:x}.txn": encode_header(LATEST_VERSION),
    }
    for name, data in files.items():
        with create_file(current / name) as file:
            file.write(data)


def _write_entries(txn: Txn, files: EntryFiles, plan: ClonePlan, current: Path) -> None:
    with Locations(current / "locations") as rows:
        for log in put_logs(_iter_bodies(txn, files, plan), current):
            locations = np.array(log.positions) + encode_location(log.log_id, 0)
            rows.add(np.array(log.ledger_ids), np.array(log.entry_ids), locations)


def _iter_bodies(txn: Txn, files: EntryFiles, plan: ClonePlan) -> Iterator[bytes | memoryview]:
    for cloned in plan.ledgers:
        for block, index in iter_cloned(txn, read_ledger(txn, cloned.ledger_id)):
            yield files.read_record(block.place(index))


def _ledgers_rows(txn: Txn, plan: ClonePlan) -> Iterator[tuple[bytes, bytes]]:
    for cloned in plan.ledgers:
        metadata = find_metadata(txn, cloned.ledger_id)
        key = master_key((metadata.password if metadata else None) or b"")
        if cloned.entries:
            yield encode_ledgers_row(cloned.ledger_id, LedgerData(True, False, key))
