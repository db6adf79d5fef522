"""``store salvage``: finds what is wrong with the disks of a stopped bookie, and repairs it.

Upstream's ``rebuild-db-ledger-locations-index`` (4.17) needs a complete ``ledgers``, and ``rebuild-db-ledgers-index`` fences every ledger
and writes no master key. Of several records of an entry the newest counts, by log and offset, as it does for BookKeeper.

New entry logs and databases are written first, beside the old ones; then each database is exchanged by one rename; the journals and
their marks come last. A later run surveys everything again, and so finds and uses what an interrupted salvage had written, such as its
entry log.

The rows of ``ledgers`` are rebuilt with evidence of each. A ledger is fenced only if a fence record in a journal, a row of an index or a
recovery recorded in the metadata says so. An OPEN ledger is not fenced: the metadata is IN_RECOVERY before the first bookie is asked to
fence (``LedgerHandle.recover``, 4.17). The master key comes from the old row, the journal, the password in the metadata, another bookie's
row, or is the one that all other ledgers have. ``LedgersIndexRebuildOp`` (4.17) writes rows of 16-byte keys into every directory, without a
master key and all of them fenced; a row that the bookie makes of one stays fenced. So the fence of a ledger with such a row proves nothing.
The earlier index stays as ``ledgers.PREV-<time>``.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field
from pyroaring import BitMap64

from pulsar_admin.store import errors
from pulsar_admin.store.codec import dbledger
from pulsar_admin.store.codec.bookie import COOKIE_FILE, PUT_ASIDE
from pulsar_admin.store.codec.dbledger import LedgerData, encode_ledgers_row
from pulsar_admin.store.codec.digest import DIGEST_SIZE, DigestType, master_key
from pulsar_admin.store.codec.entry import decode_entry
from pulsar_admin.store.codec.entrylog import MAP_OFFSET_BYTES, MAP_OFFSET_PLACE, encode_location
from pulsar_admin.store.codec.ledgermetadata import LedgerState
from pulsar_admin.store.db.bookies import Bookie, iter_imported_bookies, iter_renamed
from pulsar_admin.store.db.entry_files import EntryFiles
from pulsar_admin.store.db.environment import Store, Txn, once
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.disks import switching
from pulsar_admin.store.disks.journals import JournalPlace, JournalStop, JournalSurvey, read_place, survey_journals
from pulsar_admin.store.disks.logs import Entries, LogSurvey, iter_batches, log_path, survey_logs
from pulsar_admin.store.files import (
    create_file,
    cut_file,
    open_file,
    read_file,
    remove_file,
    replace_like,
    sync_file,
    write_at,
)
from pulsar_admin.store.model.coverage import believable_end, stripes_of
from pulsar_admin.store.model.ledgers import find_ledger, find_metadata, iter_blocks, read_ledger, sorted_ledger_ids
from pulsar_admin.store.scan.files import LedgerDigests
from pulsar_admin.store.sources import rocksdb
from pulsar_admin.store.sources.bookies import find_strangers, read_bookie_directory, with_own_journals
from pulsar_admin.store.sources.locations_writer import Locations
from pulsar_admin.store.sources.log_files import put_logs, raise_last_id
from pulsar_admin.store.sources.rocksopen import salvage_pairs
from pulsar_admin.store.sources.storage import DATABASES, Storage, cookie_of, storages_of
from pulsar_admin.store.wording import Answer, counted

# -- the index as it is ------------------------------------------------------------------------------------------------

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
    """The rows of ``locations`` by where they lead. ``right``: entries whose row leads to their record.

    ``wrong``: how many rows lead to something else; ``gone``: how many lead to a log that does not exist; ``damaged``:
    (ledger, entry, location) of right rows that lead into damaged bytes, as no log has a good record.
    """

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
    """Add a row of ``ledgers`` to ``old``, or a problem. Rows with an 8-byte key are read first and take precedence."""
    if key.startswith(dbledger.FLAGS_KEY[:1]):
        old.others[key] = value
        return
    try:
        ledger_id, data = dbledger.decode_ledgers_row(key, value, "ledgers")
    except errors.MetadataCorrupt as error:
        problems.append(error.message)
        return
    is_long = len(key) > len(dbledger.FLAGS_KEY)
    old.strays += is_long
    if is_long:
        old.unproven.add(ledger_id)
    old.rows.setdefault(ledger_id, data)


def read_old_locations(survey: LogSurvey, doubted: Entries) -> OldLocations:
    """Return where each row of a storage's ``locations`` leads.

    A row into damaged bytes counts as wrong if its entry has a good record, or if its id is one of those in damaged
    records that cannot be right (``doubted``).
    """
    storage = survey.storage
    directory, old = storage.index / "locations", OldLocations()
    if not directory.is_dir():
        old.problem = "it does not exist"
        return old
    problems: list[str] = []
    refused: list[str] = []
    try:
        with rocksdb.open_for_reading(directory, problems) as pairs, _Logs(storage) as logs:
            for key, value in pairs:
                try:
                    row = dbledger.decode_location_row(key, value, str(directory))
                except errors.MetadataCorrupt as error:
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
    except (errors.MetadataCorrupt, errors.SourceNotFound) as error:
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
    """The entries that a ledger directory lacks: those that other bookies have (``found``), and those in no file
    (``nowhere``)."""

    found: Entries = field(default_factory=Entries)
    nowhere: Entries = field(default_factory=Entries)


def find_gaps(txn: Txn, bookie_id: str, ledgers: list[int], have: list[Entries]) -> Gaps:
    """Return the entries that a bookie should have by the metadata, and that none of its own files has (``have``)."""
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
        except (errors.Corrupt, errors.SourceChanged):
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
        except errors.StoreError:
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
    """The sources of facts about a bookie's ledgers. ``others``: rows of other bookies' indexes."""

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
    # Pulsar's password is one setting of the broker: if all known keys are equal, it is every ledger's.
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
    """Return the ledgers that get a row. ``mine``: those of this directory with entries in a journal, or copies
    elsewhere.

    A ledger that neither an undamaged index nor the metadata names was deleted on this bookie; with ``collected`` it
    gets a row again. Without such an index every ledger is kept: the bookie itself deletes those that the metadata does
    not list.
    """
    in_logs = set(survey.held.by_ledger) | (set(survey.damaged.by_ledger) & (known.listed.ledgers | set(old.rows)))
    if collected or old.problem or not old.rows:  # an empty index: a bookie that starts without one creates it
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
        return OLD if before.fenced else ""  # the bookie's start fences it if a journal says so
    if ledger_id not in known.listed.newest:
        return ""
    if ledger_id in known.listed.in_recovery:
        return METADATA
    other = known.others.get(ledger_id)
    return OTHERS if other is not None and other.fenced and any(other.master_key) else ""


# -- the plan ----------------------------------------------------------------------------------------------------------


class LocationsFound(Answer, frozen=True):
    """How many rows of ``locations`` are right, wrong, lead to a log that is gone, or are missing; ``problem``: why it cannot be
    read, or empty.
    """

    problem: str
    right: int
    wrong: int
    log_gone: int
    missing: int


class LedgersFound(Answer, frozen=True):
    """Numbers of rows of ``ledgers`` before and after, and of changes. ``fenced_by``, ``master_keys_by``: source → how many."""

    problem: str
    before: int
    after: int
    changed: int
    strays: int
    fenced: int
    fenced_by: Mapping[str, int]
    master_keys_by: Mapping[str, int]


class EntriesAdded(Answer, frozen=True):
    """Entries that the directory lacks, by where they come from."""

    from_journals: int
    from_other_bookies: int
    nowhere: int


class DirectorySalvaged(Answer, frozen=True):
    """A ledger directory: what its logs hold, what its index says, and which of its databases are rebuilt (``written``)."""

    directory: str
    index: str
    entry_logs: int
    records: int
    entries: int
    damaged_entries: int
    unreadable_bytes: int = field(name="unreadableBytes")
    locations: LocationsFound
    ledgers: LedgersFound
    added: EntriesAdded
    written: tuple[str, ...]


class JournalsFound(Answer, frozen=True):
    """The journals of the bookie. ``missing``: sentences about missing ones; ``marks``: files that name a missing journal, which are put
    aside; ``unsure``: in that case, how many ledgers on this bookie were never closed, so that it may lack their last entries.
    """

    files: int
    replayed_entries: int
    missing: tuple[str, ...]
    stops: tuple[JournalStop, ...]
    marks: tuple[str, ...]
    unsure: int


class SalvageReport(Answer, frozen=True):
    """What a salvage found and did, or with ``dry_run`` would do. ``needed``: whether something is wrong; ``kept``: the old files.

    ``cookies``: missing ``VERSION`` files of directories that have files of the bookie. ``maps``: entry logs whose ledgers map
    contradicts their records; their header no longer points to it, so that the bookie reads the records.
    """

    bookie: str
    directories: tuple[DirectorySalvaged, ...]
    journals: JournalsFound
    cookies: tuple[str, ...]
    maps: tuple[str, ...]
    needed: bool
    kept: tuple[str, ...]
    dry_run: bool


class StorageSalvage(Struct):
    """A ledger directory of the bookie: the content of its logs, its present index, and its new index.

    ``rescued``: entries that only journals have, and that no start replays; they are written into a new log, with the gaps.
    ``doubted``: entries of damaged records whose ids cannot be right.
    """

    storage: Storage
    survey: LogSurvey
    doubted: Entries
    locations: OldLocations
    ledgers: OldLedgers
    rows: LedgerRows
    rescued: dict[int, dict[int, JournalPlace]]
    gaps: Gaps

    @property
    def rescued_entries(self) -> int:
        return sum(map(len, self.rescued.values()))

    @property
    def unlisted(self) -> int:
        """How many entries of ledgers with a row are in the logs without a row of the index that leads to them."""
        kept = ((ledger_id, entries) for ledger_id, entries in self.survey.held if ledger_id in self.rows.rows)
        return sum(len(entries - self.locations.right.of(ledger_id)) for ledger_id, entries in kept)

    @property
    def changed_rows(self) -> int:
        """How many rows of ``ledgers`` change."""
        old, new = self.ledgers.rows, self.rows.rows
        return sum(old.get(ledger_id) != new.get(ledger_id) for ledger_id in old.keys() | new.keys())

    @property
    def needs_entries(self) -> bool:
        """Whether entries are to be added."""
        return bool(self.rescued or self.gaps.found.by_ledger)

    @property
    def needs_locations(self) -> bool:
        """Whether ``locations`` has to be rebuilt."""
        old = self.locations
        return bool(old.problem or old.wrong or old.gone or self.unlisted or self.needs_entries)

    @property
    def needs_ledgers(self) -> bool:
        """Whether ``ledgers`` has to be rebuilt."""
        return bool(self.ledgers.problem or self.ledgers.strays or self.changed_rows)

    @property
    def databases(self) -> tuple[Path, ...]:
        """The databases to rebuild, in the order in which they are replaced: a row of ``ledgers`` alone would say that
        a ledger is empty on this bookie."""
        ledgers, locations = self.storage.databases
        both = ((locations, self.needs_locations), (ledgers, self.needs_ledgers))
        return tuple(database for database, is_needed in both if is_needed)

    def report(self) -> DirectorySalvaged:
        survey, old = self.survey, self.locations
        return DirectorySalvaged(
            directory=str(self.storage.logs),
            index=str(self.storage.index),
            entry_logs=survey.logs,
            records=survey.records,
            entries=len(survey.held),
            damaged_entries=len(survey.damaged),
            unreadable_bytes=survey.lost_bytes,
            locations=LocationsFound(old.problem, len(old.right), old.wrong, old.gone, self.unlisted),
            ledgers=LedgersFound(
                problem=self.ledgers.problem,
                before=len(self.ledgers.rows),
                after=len(self.rows.rows),
                changed=self.changed_rows,
                strays=self.ledgers.strays,
                fenced=sum(row.fenced for row in self.rows.rows.values()),
                fenced_by=dict(self.rows.fences),
                master_keys_by=dict(self.rows.keys),
            ),
            added=EntriesAdded(self.rescued_entries, len(self.gaps.found), len(self.gaps.nowhere)),
            written=tuple(database.name for database in self.databases),
        )


class SalvagePlan(Struct, frozen=True):
    """The planned salvage of one bookie: its surveys, and what would be written."""

    bookie: Bookie
    storages: tuple[StorageSalvage, ...]
    journals: JournalSurvey
    cookies: tuple[Path, ...]
    files: tuple[str, ...]
    unsure: int
    kept: list[Path] = field(default_factory=list)

    @property
    def maps(self) -> tuple[Path, ...]:
        return tuple(path for storage in self.storages for path in storage.survey.false_maps)

    @property
    def is_needed(self) -> bool:
        parts = (self.journals.stops, self.journals.marks, self.cookies, self.maps)
        return any(parts) or any(storage.databases for storage in self.storages)

    @property
    def loses(self) -> str:
        """The sentence to confirm: nothing is deleted, but no command of this store reverts it."""
        indexes = sum(bool(storage.databases) for storage in self.storages)
        parts = [f"{counted(indexes, 'index', 'indexes')} of bookie {self.bookie.name} rebuilt"] if indexes else []
        if self.journals.stops:
            parts.append(f"{counted(len(self.journals.stops), 'journal')} cut")
        if self.journals.marks:
            parts.append(f"{counted(len(self.journals.marks), 'mark')} of a missing journal put aside")
        if self.cookies:
            parts.append(f"{counted(len(self.cookies), 'VERSION', 'VERSION files')} written")
        told = [f"{' and '.join(parts)}; the old one is kept beside it"] if parts else []
        if self.maps:
            told.append(
                f"{counted(len(self.maps), 'entry log')} without the wrong ledgers map; the start of its header is "
                "kept beside it"
            )
        return "; ".join(told)

    def preview(self) -> object:
        return self.report(dry_run=True)

    def report(self, *, dry_run: bool) -> SalvageReport:
        return SalvageReport(
            bookie=self.bookie.name,
            directories=tuple(storage.report() for storage in self.storages),
            journals=JournalsFound(
                files=self.journals.files,
                replayed_entries=len(self.journals.replayed),
                missing=tuple(self.journals.missing),
                stops=tuple(self.journals.stops),
                marks=tuple(map(str, self.journals.marks)),
                unsure=self.unsure,
            ),
            cookies=tuple(map(str, self.cookies)),
            maps=tuple(map(str, self.maps)),
            needed=self.is_needed,
            kept=tuple(map(str, self.kept)),
            dry_run=dry_run,
        )


def plan_salvage(store: Store, bookie: Bookie, *, collected: bool = False) -> SalvagePlan:
    """Survey a bookie's disks, with the metadata and the other bookies of the store.

    ``collected``: also ledgers that neither a sound index nor the metadata names. Raises Refused for a bookie of another
    cluster, SourceBusy for a running one, InvalidValue unless all its directories are given, Unsupported for storage
    without these indexes.
    """
    storages, bookie = storages_of(bookie), with_own_journals(bookie)
    _check_journals(bookie)
    for storage in storages:
        has_index = any(path.is_dir() for path in storage.databases)
        if not has_index and next(storage.index.glob("*/*/*.idx"), None) is not None:
            raise errors.Unsupported(
                f"{storage.index} has .idx files: its bookie does not use DbLedgerStorage, and salvage rebuilds only"
                " DbLedgerStorage indexes",
                hint="bookkeeper shell regenerate-interleaved-storage-index-file makes such files again",
            )
        for database in storage.databases:
            if database.is_dir():
                rocksdb.check_unlocked(database)
    cookies = _lost_cookies(bookie, storages)
    files = files_of(bookie)
    with store.read() as txn:
        for old, cookie in iter_renamed(txn):
            if old == bookie.bookie_id:
                raise errors.Refused(
                    f"bookie {old} is {cookie.bookie_id} in the metadata since it was renamed, and its directories still say {old}",
                    hint="write their VERSION files first: pulsar-admin store export bookie DIR,DIR",
                    bookie=old,
                )
        for stranger in find_strangers(txn, [bookie]):
            raise errors.Refused(
                f"{stranger.reason}; what it should contain is unknown",
                hint="name a bookie of the cluster that was imported",
                bookie=bookie.name,
            )
        listed = read_listed(txn, bookie.bookie_id)
        digests = LedgerDigests.of(listed.digests)
        surveys = [survey_logs(one, digests, number, len(storages)) for number, one in enumerate(storages)]
        _check_order(surveys)
        held = Entries()
        for survey in surveys:
            held.by_ledger |= survey.held.by_ledger
        journals = survey_journals(bookie, held, listed.unproven)
        olds = [read_old_ledgers(storage, number, len(storages)) for number, storage in enumerate(storages)]
        # The indexes of the other bookies are read only where an own one is damaged, or lacks a master key.
        others = _rows_of_others(txn, bookie) if any(old.problem or old.lacks_keys for old in olds) else {}
        known = Witnesses(journals, listed, others)
        planned = tuple(
            _storage(txn, bookie, known, olds[number], surveys, number, collected=collected)
            for number in range(len(storages))
        )
        return SalvagePlan(bookie, planned, journals, cookies, files, len(listed.unclosed) if journals.marks else 0)


def _lost_cookies(bookie: Bookie, storages: Sequence[Storage]) -> tuple[Path, ...]:
    """Return the cookies to write: of directories that have none, and files of the bookie.

    Raises Refused for an empty ledger or index directory: it may be an empty mount point, as every directory of a bookie has a cookie.
    """
    without = [path for path in bookie.directories if not (path / COOKIE_FILE).is_file()]
    listed = {path: read_bookie_directory(path) for path in without}
    full = {path for path, one in listed.items() if one.logs or one.journals}
    full |= {path for path in without if any(rocksdb.is_rocksdb(path / name) for name in DATABASES)}
    for storage in storages:
        for path in (storage.logs, storage.index):
            if path in listed and path not in full:
                raise errors.Refused(
                    f"{path} has no cookie (VERSION), unlike the other directories: nothing is written there",
                    hint="mount its disk; on a new disk, first copy VERSION from another directory of the bookie",
                    path=str(path),
                )
    return tuple(path / COOKIE_FILE for path in without if path in full)


def _check_journals(bookie: Bookie) -> None:
    """Raise InvalidValue when not all journals are given: fences and entries may be there alone."""
    named = dict.fromkeys(cookie_of(bookie).journal_dirs)
    if len(bookie.journal_dirs) < len(named):
        raise errors.InvalidValue(
            f"bookie {bookie.name}: {counted(len(bookie.journal_dirs), 'journal directory', 'journal directories')} given, its cookie"
            f" names {len(named)}: {', '.join(named)}",
            hint=(
                "name them all: fences and entries may be only there; for a lost one give an empty directory, with "
                "--bookie-conf"
            ),
        )


def files_of(bookie: Bookie) -> tuple[str, ...]:
    """Return a state that changes when the bookie runs or is salvaged: logs and journals with sizes and modification times, databases."""
    files = []
    for database in (database for storage in storages_of(bookie) for database in storage.databases):
        current = database / "CURRENT"
        files.append(f"{database} {current.stat().st_ino if current.is_file() else 'absent'}")
    for directory in bookie.directories:
        listed = read_bookie_directory(directory)
        for _, path in (*listed.logs, *listed.journals):
            status = path.stat()
            files.append(f"{path} {status.st_size} {status.st_mtime_ns}")
    return tuple(files)


def _check_order(surveys: Sequence[LogSurvey]) -> None:
    for survey in surveys:
        if survey.strays:
            raise errors.InvalidValue(
                f"{survey.storage.logs} holds {counted(survey.strays, 'entry', 'entries')} of ledgers that belong to "
                f"another of {counted(len(surveys), 'ledger directory', 'ledger directories')} keeps",
                hint="name all ledger directories, in the order of ledgerDirectories in bookkeeper.conf",
            )


def _rows_of_others(txn: Txn, bookie: Bookie) -> dict[int, LedgerData]:
    """Return ledger → row in the other bookies' indexes of the store; a fenced row if any bookie has one."""
    rows_by_id: dict[int, LedgerData] = {}
    others = [one for one in iter_imported_bookies(txn.store.info) if one.bookie_id != bookie.bookie_id]
    for path in (path for other in others for path in other.indexes):
        for ledger_id, row in read_old_ledgers(Storage(path, path)).rows.items():
            if any(row.master_key) and (ledger_id not in rows_by_id or row.fenced):
                rows_by_id[ledger_id] = row
    return rows_by_id


def _storage(
    txn: Txn,
    bookie: Bookie,
    known: Witnesses,
    old: OldLedgers,
    surveys: Sequence[LogSurvey],
    number: int,
    *,
    collected: bool,
) -> StorageSalvage:
    survey, journals, listed = surveys[number], known.journals, known.listed
    mine = _Mine(number, len(surveys), listed, survey)
    rescued = {
        ledger_id: left
        for ledger_id, places in sorted(journals.only_here.items())
        if mine.is_alive(ledger_id)
        and (left := {at: place for at, place in sorted(places.items()) if at not in journals.replayed.of(ledger_id)})
    }
    only_here = Entries()
    for ledger_id, places in rescued.items():
        for entry_id in places:
            only_here.add(ledger_id, entry_id)
    ledgers = [ledger_id for ledger_id in listed.mine if mine.has(ledger_id)]
    gaps = find_gaps(txn, bookie.bookie_id, ledgers, [survey.held, journals.replayed, only_here])
    told = journals.fences | journals.replayed_fences | journals.keyless
    with_rows = {ledger_id for ledger_id in told if mine.has(ledger_id)} | set(rescued) | set(gaps.found.by_ledger)
    rows = make_rows(ledgers_with_rows(survey, with_rows, old, known, collected=collected), old, known)
    doubted = _doubted(txn, survey)
    return StorageSalvage(
        survey.storage, survey, doubted, read_old_locations(survey, doubted), old, rows, rescued, gaps
    )


def _doubted(txn: Txn, survey: LogSurvey) -> Entries:
    """Return the entries of damaged records whose ids are too far after the last good one of their ledger to be
    right."""
    doubted = Entries()
    for ledger_id, entries in survey.damaged:
        held = survey.held.of(ledger_id)
        last, members = held.max() if held else -1, 1
        with suppress(errors.StoreError):
            ledger = find_ledger(txn, ledger_id)
            if ledger is not None:
                last = max(last, ledger.last_entry_id)
                members = 1 if ledger.metadata is None else len(ledger.metadata.segments[-1].members)
        doubted.by_ledger[ledger_id] = far = BitMap64(entries)
        far.remove_range(0, believable_end(last, members, len(entries)) + 1)
    return doubted


class _Mine(Struct, frozen=True):
    """Selects the ledgers of one of several ledger directories, and tells which of them were not deleted long ago."""

    number: int
    storages: int
    listed: BookieLedgers
    survey: LogSurvey

    def has(self, ledger_id: int) -> bool:
        return ledger_id % self.storages == self.number

    def is_alive(self, ledger_id: int) -> bool:
        return self.has(ledger_id) and (ledger_id in self.listed.ledgers or self.survey.holds(ledger_id))


# -- carried out ------------------------------------------------------------------------------------------------------


_CHUNK_BYTES = 1 << 20


def apply_salvage(store: Store, plan: SalvagePlan) -> SalvageReport:
    """Write a salvage and return its report, with the kept files of the old state.

    Raises SourceBusy or StalePlan if the bookie was started or salvaged meanwhile, and DiskFull, with the bookie
    unchanged.
    """
    if not plan.is_needed and not any(map(switching.is_unfinished, _databases(plan))):
        return plan.report(dry_run=False)
    with ExitStack() as locks:
        # The locks of all indexes and databases are taken, and what an interrupted salvage left in them is finished.
        cookie = next(path for path in plan.bookie.directories if (path / COOKIE_FILE).is_file())
        lost = {path.parent for path in plan.cookies}
        indexes = (part.storage.index for part in plan.storages)
        for index in dict.fromkeys(cookie if index in lost else index for index in indexes):
            locks.enter_context(switching.hold(index))
        for database in _databases(plan):
            # A database that is gone has no lock of its own; the index directory is held for it.
            if (database / "CURRENT").is_file():
                locks.enter_context(rocksdb.lock_database(database))
            kept = switching.clear_unfinished(database)
            if kept is not None:
                plan.kept.append(kept)
        # Compared under the locks: a bookie that ran since the plan may have written or deleted what the plan counts on.
        if files_of(plan.bookie) != plan.files:
            raise errors.stale(f"bookie {plan.bookie.name}", "the salvage")
        parts = [part for part in plan.storages if part.databases]
        with store.read() as txn, EntryFiles(store, txn) as files:
            digests = LedgerDigests.of(read_listed(txn, plan.bookie.bookie_id).digests)
            for part in parts:
                # ``lastId`` is above every existing log, those of an interrupted salvage included.
                deque(put_logs(_iter_bodies(txn, files, plan, part), part.storage.logs), maxlen=0)
                with suppress(errors.MetadataCorrupt):  # a bookie that cannot read it looks at its logs
                    raise_last_id(part.storage.logs)
                _make_index(part, digests)
        # Until here the bookie is unchanged but for new logs, which its index does not name, and lastId.
        for database in (database for part in parts for database in part.databases):
            locks.enter_context(rocksdb.lock_database(switching.unfinished(database)))
            kept = switching.switch(database)
            if kept is not None:
                plan.kept.append(kept)
        # Last: what the cut takes off a journal is in entry logs by now.
        plan.kept.extend(_cut(stop) for stop in plan.journals.stops)
        plan.kept.extend(map(switching.put_aside, plan.journals.marks))
        for path in plan.maps:
            plan.kept.append(_keep_part(path, "start", 0, MAP_OFFSET_PLACE + MAP_OFFSET_BYTES))
            write_at(path, MAP_OFFSET_PLACE, bytes(MAP_OFFSET_BYTES))
            sync_file(path)
        for path in plan.cookies:  # the very last: without it the bookie does not start
            whole = cookie / COOKIE_FILE
            replace_like(path, read_file(whole), f"{COOKIE_FILE}.salvaging", like=whole)
    return plan.report(dry_run=False)


def _databases(plan: SalvagePlan) -> list[Path]:
    return [database for part in plan.storages for database in part.storage.databases]


def _iter_bodies(txn: Txn, files: EntryFiles, plan: SalvagePlan, part: StorageSalvage) -> Iterator[bytes]:
    for ledger_id in sorted(part.rescued.keys() | part.gaps.found.by_ledger.keys()):
        for place in part.rescued.get(ledger_id, {}).values():
            yield read_place(place)
        yield from read_missing(txn, files, plan.bookie.bookie_id, ledger_id, part.gaps.found.of(ledger_id))


def _make_index(part: StorageSalvage, digests: LedgerDigests) -> None:
    """Build the databases that the directory needs beside the old ones, from all of its present logs."""
    for database in part.databases:
        directory = switching.begin(database)
        if database.name == "locations":
            with Locations(directory) as rows:
                expected = _put_locations(part, digests, rows)
        else:
            own = [encode_ledgers_row(ledger_id, data) for ledger_id, data in part.rows.rows.items()]
            rocksdb.create_database(directory, [*own, *part.ledgers.others.items()])
            expected = len(own) + len(part.ledgers.others)
        # Read back before the switch: a bookie takes an entry without a row for one that it never had.
        problems: list[str] = []
        with rocksdb.open_for_reading(directory, problems) as pairs:
            count = sum(1 for _ in pairs)
        if problems or count != expected:
            raise errors.MetadataCorrupt(
                f"{directory}: RocksDB wrote {count:,} rows, expected {expected:,}",
                hint="the files are as they were; please report it",
                problems=problems,
            )
        switching.give_tree(directory, part.storage.index.stat())


def _put_locations(part: StorageSalvage, digests: LedgerDigests, rows: Locations) -> int:
    """Put a row for every entry of the ledgers with rows, to its newest good record; return the number of entries.

    An entry of which every record is damaged keeps its row, even if no record can be recognized there: without a row the
    bookie would answer that it never had the entry.
    """
    kept = np.array(sorted(part.rows.rows), np.int64)
    seen = Entries()
    old = np.array([row for row in part.locations.damaged if row[0] in part.rows.rows], np.int64).reshape(-1, 3).T
    rows.add(*old)  # first, as of several rows of an entry the last one counts
    seen.add_columns(*old[:2])
    told, places_before = set(zip(*old[:2].tolist(), strict=True)), set(old[2].tolist())
    for batch in iter_batches(part.storage, digests):
        ledgers, entries = batch.rows["ledger_id"], batch.rows["entry_id"]
        good, places = batch.is_good, batch.locations
        for at in np.flatnonzero(~good).tolist():
            entry = int(ledgers[at]), int(entries[at])
            good[at] = (
                int(places[at]) not in places_before
                and entry not in told
                and entry[1] in part.survey.damaged.of(entry[0])
                and entry[1] not in part.doubted.of(entry[0])
            )
        good &= np.isin(ledgers, kept)
        rows.add(ledgers[good], entries[good], places[good])
        seen.add_columns(ledgers[good], entries[good])
    return len(seen)


def _cut(stop: JournalStop) -> Path:
    """Cut a journal after its last good record; return the path of the bytes that were cut off."""
    path = Path(stop.path)
    beside = _keep_part(path, f"from-{stop.cut_at}", stop.cut_at, stop.cut_bytes)
    cut_file(path, stop.cut_at)
    return beside


def _keep_part(path: Path, named: str, start: int, size_bytes: int) -> Path:
    """Copy a part of a file beside it; return the path of the copy."""
    beside = path.with_name(f"{path.name}-{named}{PUT_ASIDE}")
    remove_file(beside)  # left by a salvage that was stopped
    with open_file(path) as file, create_file(beside, like=path.stat()) as kept:
        file.seek(start)
        while size_bytes and (chunk := file.read(min(size_bytes, _CHUNK_BYTES))):
            kept.write(chunk)
            size_bytes -= len(chunk)
    return beside
