"""The index that a bookie has before it is made again: read as far as it can be read, and compared with the logs.

Upstream ``LedgersIndexRebuildOp`` (4.17) writes rows of 16-byte keys into every directory, without a master key and all of them fenced; a
row that the bookie makes of one stays fenced. So the fence of a ledger with such a row proves nothing. The index that was there before
stays as ``ledgers.PREV-<time>``.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress

from msgspec import Struct, field

from pulsar_admin.store.codec import dbledger
from pulsar_admin.store.disks.logs import Entries, log_path
from pulsar_admin.store.errors import MetadataCorrupt, SourceNotFound
from pulsar_admin.store.files import open_file
from pulsar_admin.store.sources.rocksdb import open_for_reading
from pulsar_admin.store.sources.rocksopen import salvage_pairs
from pulsar_admin.store.sources.storage import Storage

_HEAD_BYTES = 20  # size, ledger id, entry id


class OldLedgers(Struct):
    """The rows of ``ledgers``; ``problem``: why they are not all, "" when they are.

    ``unproven``: ledgers whose fence and absence of a master key upstream's rebuild wrote; ``earlier``: their rows before it.
    """

    rows: dict[int, dbledger.LedgerData] = field(default_factory=dict)
    others: dict[bytes, bytes] = field(default_factory=dict)
    """Rows of no ledger, kept as they are."""
    unproven: set[int] = field(default_factory=set)
    earlier: dict[int, dbledger.LedgerData] = field(default_factory=dict)
    strays: int = 0
    """Rows of 16-byte keys, and rows of ledgers that another directory keeps."""
    problem: str = ""

    @property
    def lacks_keys(self) -> bool:
        """Whether a row has no master key: one of zeros is none."""
        return not all(any(row.master_key) for row in self.rows.values())

    def proven(self, ledger_id: int) -> dbledger.LedgerData | None:
        """Return the row of a ledger whose fence is to be believed."""
        return self.earlier.get(ledger_id) if ledger_id in self.unproven else self.rows.get(ledger_id)


class OldLocations(Struct):
    """What ``locations`` says: ``right`` rows lead to a record of their entry, ``wrong`` ones and ``gone`` ones, whose log is not there,
    do not."""

    right: Entries = field(default_factory=Entries)
    wrong: int = 0
    gone: int = 0
    problem: str = ""


def read_old_ledgers(storage: Storage, number: int = 0, storages: int = 1) -> OldLedgers:
    """Return the readable rows of a storage's ``ledgers`` database; it is the ``number``-th of ``storages``."""
    old = OldLedgers()
    directory = storage.index / "ledgers"
    if not directory.is_dir():
        old.problem = "it does not exist"
    else:
        problems: list[str] = []
        for key, value in salvage_pairs(directory, problems):
            _take(old, key, value, problems)
        old.problem = "; ".join(problems)
    foreign = [ledger_id for ledger_id in old.rows if ledger_id % storages != number]
    for ledger_id in foreign:
        del old.rows[ledger_id]
    old.strays += len(foreign)
    for earlier in sorted(storage.index.glob("ledgers.PREV-*")):
        before = OldLedgers()
        for key, value in salvage_pairs(earlier, []):
            _take(before, key, value, [])
        old.earlier |= {ledger_id: row for ledger_id, row in before.rows.items() if ledger_id not in before.unproven}
    return old


def _take(old: OldLedgers, key: bytes, value: bytes, problems: list[str]) -> None:
    """Put a row where it belongs; that of an 8-byte key comes first, and holds."""
    if key.startswith(dbledger.FLAGS_KEY[:1]):
        old.others[key] = value
        return
    try:
        ledger_id, data = dbledger.decode_ledgers_row(key, value, "ledgers")
    except MetadataCorrupt as error:
        problems.append(error.message)
        return
    is_long = len(key) > len(dbledger.FLAGS_KEY)
    old.strays += is_long
    if is_long:
        old.unproven.add(ledger_id)
    old.rows.setdefault(ledger_id, data)


def read_old_locations(storage: Storage) -> OldLocations:
    """Follow every row of a storage's ``locations`` database to its record."""
    directory, old = storage.index / "locations", OldLocations()
    if not directory.is_dir():
        old.problem = "it does not exist"
        return old
    problems: list[str] = []
    try:
        with open_for_reading(directory, problems) as pairs, _Logs(storage) as logs:
            for key, value in pairs:
                row = dbledger.decode_location_row(key, value, str(directory))
                leads = logs.leads(row)
                if leads:
                    old.right.add(row.ledger_id, row.entry_id)
                elif leads is None:
                    old.gone += 1
                else:
                    old.wrong += 1
    except (MetadataCorrupt, SourceNotFound) as error:
        problems.append(error.message)
    old.problem = "; ".join(problems)
    return old


class _Logs:
    """The logs of a storage, opened when a row names them."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._stack = ExitStack()
        self._open: dict[int, int | None] = {}

    def leads(self, row: dbledger.LocationRow) -> bool | None:
        """Whether the row points to a record of its entry; None if that log does not exist."""
        if row.log_id not in self._open:
            self._open[row.log_id] = None
            with suppress(OSError):
                log = self._stack.enter_context(open_file(log_path(self._storage, row.log_id)))
                self._open[row.log_id] = log.fileno()
        descriptor = self._open[row.log_id]
        if descriptor is None:
            return None
        head = os.pread(descriptor, _HEAD_BYTES, row.pos - 4) if row.pos >= 4 else b""
        return head[4:] == row.ledger_id.to_bytes(8, "big") + row.entry_id.to_bytes(8, "big")

    def __enter__(self) -> _Logs:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
