"""Rebuilding the rows of ``ledgers``: which ledgers, with which master key, fenced or not, each with evidence.

A ledger is fenced only if a fence record in a journal, a row of an index or a recovery recorded in the metadata says so. An OPEN ledger
is not fenced: the metadata is IN_RECOVERY before the first bookie is asked to fence (``LedgerHandle.recover``, 4.17). The master key comes
from the old row, the journal, the password in the metadata, another bookie's row, or is the one that all other ledgers have.

The bookie's previous index is read as far as possible, and compared with the logs. Upstream ``LedgersIndexRebuildOp``
(4.17) writes rows of 16-byte keys into every directory, without a master key and all of them fenced; a row that the bookie makes of one
stays fenced. So the fence of a ledger with such a row proves nothing. The earlier index stays as ``ledgers.PREV-<time>``.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field
from pyroaring import BitMap64

from pulsar_admin.store.codec import dbledger
from pulsar_admin.store.codec.dbledger import LedgerData
from pulsar_admin.store.codec.digest import DIGEST_SIZE, DigestType, master_key
from pulsar_admin.store.codec.entry import decode_entry
from pulsar_admin.store.codec.entrylog import encode_location
from pulsar_admin.store.codec.ledgermetadata import LedgerState
from pulsar_admin.store.db.entry_files import EntryFiles
from pulsar_admin.store.db.environment import Txn, once
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.disks.journals import JournalSurvey
from pulsar_admin.store.disks.logs import Entries, LogSurvey, log_path
from pulsar_admin.store.errors import Corrupt, MetadataCorrupt, SourceChanged, SourceNotFound, StoreError
from pulsar_admin.store.files import open_file
from pulsar_admin.store.model.coverage import stripes_of
from pulsar_admin.store.model.ledgers import find_metadata, iter_blocks, read_ledger, sorted_ledger_ids
from pulsar_admin.store.sources.rocksdb import open_for_reading
from pulsar_admin.store.sources.rocksopen import salvage_pairs
from pulsar_admin.store.sources.storage import Storage
from pulsar_admin.store.wording import counted

_HEAD_BYTES = 20  # size, ledger id, entry id


class OldLedgers(Struct):
    """The rows of ``ledgers``; ``problem``: why some are missing, "" if all are there.

    ``unproven``: ledgers whose row, fenced and without a master key, is from upstream's rebuild; ``earlier``: their rows before it.
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
        """Whether a row has no master key; a key of zeros does not count."""
        return not all(any(row.master_key) for row in self.rows.values())

    def proven(self, ledger_id: int) -> dbledger.LedgerData | None:
        """Return the row of a ledger whose fence can be trusted."""
        return self.earlier.get(ledger_id) if ledger_id in self.unproven else self.rows.get(ledger_id)


class OldLocations(Struct):
    """What ``locations`` says: ``right`` rows lead to a record of their entry, ``wrong`` ones and ``gone`` ones, whose log does not exist,
    do not. ``damaged``: (ledger, entry, location) of those right ones that lead into damaged bytes, as no log has a good record."""

    right: Entries = field(default_factory=Entries)
    damaged: list[tuple[int, int, int]] = field(default_factory=list)
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
    """Add a row to the old ones, or a problem. Rows with an 8-byte key are read first and take precedence."""
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


def read_old_locations(survey: LogSurvey, doubted: Entries) -> OldLocations:
    """Follow every row of a storage's ``locations`` database to its record; one that leads into damaged bytes is wrong where there is
    a good record, and where it was made by a damaged record's own id, which is among ``doubted``."""
    storage = survey.storage
    directory, old = storage.index / "locations", OldLocations()
    if not directory.is_dir():
        old.problem = "it does not exist"
        return old
    problems: list[str] = []
    refused: list[str] = []
    try:
        with open_for_reading(directory, problems) as pairs, _Logs(storage) as logs:
            for key, value in pairs:
                try:
                    row = dbledger.decode_location_row(key, value, str(directory))
                except MetadataCorrupt as error:
                    refused.append(error.message)
                    continue
                leads = logs.leads(row)
                if leads is not None and survey.is_bad(row.log_id, row.pos - 4):
                    no_row = survey.held.of(row.ledger_id), doubted.of(row.ledger_id)
                    leads = not any(row.entry_id in entries for entries in no_row)
                    if leads:
                        old.damaged.append((row.ledger_id, row.entry_id, encode_location(row.log_id, row.pos)))
                if leads:
                    old.right.add(row.ledger_id, row.entry_id)
                elif leads is None:
                    old.gone += 1
                else:
                    old.wrong += 1
    except (MetadataCorrupt, SourceNotFound) as error:
        problems.append(error.message)
    if refused:
        problems.append(f"{counted(len(refused), 'row')} of an unknown format, the first: {refused[0]}")
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
        ledger = read_ledger(txn, ledger_id)
        assert ledger.metadata is not None  # it names the bookie
        missing = BitMap64()
        for stripe in stripes_of(ledger.metadata, ledger.last_entry_id):
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


@once
def _files_of(txn: Txn, bookie_id: str) -> frozenset[int]:
    return frozenset(log.file_id for log in iter_logs(txn) if log.bookie == bookie_id)


_UNPROVEN = (DIGEST_SIZE[DigestType.DUMMY], DIGEST_SIZE[DigestType.HMAC])


class BookieLedgers(Struct):
    """Ledgers of the metadata. ``mine``: those with the bookie in an ensemble; ``newest``: those with it in the last ensemble, and of
    these ``unclosed`` those without a recorded end."""

    ledgers: set[int] = field(default_factory=set)
    mine: list[int] = field(default_factory=list)
    newest: set[int] = field(default_factory=set)
    in_recovery: set[int] = field(default_factory=set)
    keys: dict[int, bytes] = field(default_factory=dict)
    digests: dict[int, int] = field(default_factory=dict)
    unclosed: set[int] = field(default_factory=set)

    @property
    def unproven(self) -> set[int]:
        """Ledgers whose digests cannot be verified."""
        return {ledger_id for ledger_id, size in self.digests.items() if size in _UNPROVEN}


def read_listed(txn: Txn, bookie_id: str) -> BookieLedgers:
    """Return the listed ledgers with the bookie's part in each; damaged metadata lists its ledger and nothing else."""
    listed = BookieLedgers()
    keys: dict[bytes, bytes] = {}
    for ledger_id in sorted_ledger_ids(txn):
        listed.ledgers.add(ledger_id)
        try:
            metadata = find_metadata(txn, ledger_id)
        except StoreError:
            continue
        assert metadata is not None  # it is listed
        # Brokers mostly use one password for all ledgers, and its key is a digest: each is computed once.
        if metadata.password is not None:
            listed.keys[ledger_id] = keys.setdefault(metadata.password, master_key(metadata.password))
        if metadata.digest_type is not None:
            listed.digests[ledger_id] = DIGEST_SIZE[metadata.digest_type]
        if metadata.state is LedgerState.IN_RECOVERY:
            listed.in_recovery.add(ledger_id)
        if any(bookie_id in segment.members for segment in metadata.segments):
            listed.mine.append(ledger_id)
        if bookie_id in metadata.segments[-1].members:
            listed.newest.add(ledger_id)
            if metadata.state is not LedgerState.CLOSED:
                listed.unclosed.add(ledger_id)
    return listed


# -- rows -------------------------------------------------------------------------------------------------------------


OLD, JOURNAL, METADATA, OTHERS, COMMON, NOBODY = (
    "old index",
    "journal",
    "metadata",
    "other bookies",
    "all other ledgers",
    "nobody",
)


class Witnesses(Struct, frozen=True):
    """Facts about the ledgers of a bookie. ``others``: rows of other bookies' indexes."""

    journals: JournalSurvey
    listed: BookieLedgers
    others: Mapping[int, LedgerData]


class LedgerRows(Struct):
    """The new rows of ``ledgers``, and how many keys and fences each witness gave."""

    rows: dict[int, LedgerData] = field(default_factory=dict)
    keys: Counter[str] = field(default_factory=Counter)
    fences: Counter[str] = field(default_factory=Counter)


def make_rows(ledgers: set[int], old: OldLedgers, known: Witnesses) -> LedgerRows:
    """Return the rows of these ledgers for the new ``ledgers`` database."""
    rows = LedgerRows()
    # Pulsar's password is one setting of the broker: the key of all ledgers whose key is known is everybody's.
    row_keys = (_key_of(ledger_id, old, known) for ledger_id in ledgers)
    keys = {one[0] for one in row_keys if one is not None}
    common = keys.pop() if len(keys) == 1 else b""
    for ledger_id in sorted(ledgers):
        before = old.rows.get(ledger_id)
        key, by = _key_of(ledger_id, old, known) or (common, COMMON if common else NOBODY)
        fence = _fence_of(ledger_id, old.proven(ledger_id), known)
        limbo = before.limbo if before else None
        # The explicit LAC of a journal is taken over at the bookie's start where the ledger has a row. The present row's own holds, also
        # none, unless upstream's rebuild wrote that row, which knows no LAC.
        earlier = old.earlier.get(ledger_id)
        lac = known.journals.lacs.get(ledger_id) or (earlier.explicit_lac if earlier else None)
        if before is not None and (before.explicit_lac or ledger_id not in old.unproven):
            lac = before.explicit_lac
        rows.rows[ledger_id] = LedgerData(True, bool(fence), key, lac, limbo)
        rows.keys[by] += 1
        if fence:
            rows.fences[fence] += 1
    return rows


def ledgers_with_rows(
    survey: LogSurvey, mine: set[int], old: OldLedgers, known: Witnesses, *, collected: bool
) -> set[int]:
    """Return the ledgers that get a row. ``mine``: those of this directory that a journal or a copy elsewhere has.

    A ledger that neither an undamaged index nor the metadata names was deleted on this bookie; with ``collected`` it gets a row again.
    Without such an index every ledger is kept: the bookie itself deletes those that the metadata does not list.
    """
    in_logs = set(survey.held.by_ledger) | (set(survey.damaged.by_ledger) & (known.listed.ledgers | set(old.rows)))
    if collected or old.problem or not old.rows:  # a bookie that starts without an index makes an empty one
        return set(old.rows) | in_logs | mine
    return set(old.rows) | ((in_logs | mine) & known.listed.ledgers)


def _key_of(ledger_id: int, old: OldLedgers, known: Witnesses) -> tuple[bytes, str] | None:
    before, earlier, other = old.rows.get(ledger_id), old.earlier.get(ledger_id), known.others.get(ledger_id)
    for key, by in (
        (before.master_key if before else b"", OLD),
        (earlier.master_key if earlier else b"", OLD),
        (known.journals.keys.get(ledger_id, b""), JOURNAL),
        (known.listed.keys.get(ledger_id, b""), METADATA),
        (other.master_key if other else b"", OTHERS),
    ):
        if key.strip(b"\0"):
            return key, by
    return None


def _fence_of(ledger_id: int, before: LedgerData | None, known: Witnesses) -> str:
    """Return the witness that the ledger is fenced, "" if there is none."""
    journals = known.journals
    if ledger_id in journals.fences or (before is None and ledger_id in journals.replayed_fences):
        return JOURNAL
    if before is not None and any(before.master_key):
        return OLD if before.fenced else ""  # the start sets it where a journal says so
    if ledger_id not in known.listed.newest:
        return ""
    if ledger_id in known.listed.in_recovery:
        return METADATA
    other = known.others.get(ledger_id)
    return OTHERS if other is not None and other.fenced and any(other.master_key) else ""
