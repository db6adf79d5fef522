"""``store salvage``: what is wrong with the disks of a stopped bookie, and what they are to be.

Upstream's ``rebuild-db-ledger-locations-index`` (4.17) needs a whole ``ledgers``, and ``rebuild-db-ledgers-index`` fences every ledger and
writes no master key. Of several records of an entry the newest counts, by log and offset, as it does for BookKeeper.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from pulsar_admin.store.codec.bookie import COOKIE_FILE
from pulsar_admin.store.codec.dbledger import LedgerData
from pulsar_admin.store.db.bookies import Bookie, iter_imported_bookies
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.disks.gaps import Gaps, find_gaps
from pulsar_admin.store.disks.held import Entries
from pulsar_admin.store.disks.journals import JournalPlace, JournalSurvey, Stop, survey_journals
from pulsar_admin.store.disks.listed import Listed, read_listed
from pulsar_admin.store.disks.logs import LogSurvey, survey_logs
from pulsar_admin.store.disks.old_index import OldLedgers, OldLocations, read_old_ledgers, read_old_locations
from pulsar_admin.store.disks.rows import LedgerRows, Witnesses, ledgers_with_rows, make_rows
from pulsar_admin.store.errors import InvalidValue, Refused, Unsupported
from pulsar_admin.store.scan.files import LedgerDigests
from pulsar_admin.store.sources.bookies import find_strangers, read_bookie_directory
from pulsar_admin.store.sources.rocksdb import check_unlocked
from pulsar_admin.store.sources.storage import Storage, cookie_of, storages_of
from pulsar_admin.store.wording import counted


class StorageSalvage(Struct):
    """A ledger directory of the bookie: what its logs hold, what its index says, and what it is to say.

    ``rescued``: entries that journals alone have, and no start replays; they go into a log of their own, with the gaps.
    """

    storage: Storage
    survey: LogSurvey
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
        """Entries in the logs, of ledgers that get a row, that the index does not lead to."""
        kept = ((ledger_id, entries) for ledger_id, entries in self.survey.held if ledger_id in self.rows.rows)
        return sum(len(entries - self.locations.right.of(ledger_id)) for ledger_id, entries in kept)

    @property
    def changed_rows(self) -> int:
        """Rows of ``ledgers`` that are to be others than they are."""
        old, new = self.ledgers.rows, self.rows.rows
        return sum(old.get(ledger_id) != new.get(ledger_id) for ledger_id in old.keys() | new.keys())

    @property
    def needs_entries(self) -> bool:
        """Whether entries are to be added."""
        return bool(self.rescued or self.gaps.found.by_ledger)

    @property
    def needs_locations(self) -> bool:
        """Whether ``locations`` is not as it should be."""
        old = self.locations
        return bool(old.problem or old.wrong or old.gone or self.unlisted or self.needs_entries)

    @property
    def needs_ledgers(self) -> bool:
        """Whether ``ledgers`` is not as it should be."""
        return bool(self.ledgers.problem or self.ledgers.strays or self.changed_rows)

    @property
    def databases(self) -> tuple[Path, ...]:
        """Those to be made again, in the order in which they take their places: a row of ``ledgers`` alone would say that a ledger is
        empty here."""
        ledgers, locations = self.storage.databases
        both = ((locations, self.needs_locations), (ledgers, self.needs_ledgers))
        return tuple(database for database, is_needed in both if is_needed)

    def report(self) -> dict[str, Any]:  # Any: JSON
        survey, old = self.survey, self.locations
        return {
            "directory": str(self.storage.logs),
            "index": str(self.storage.index),
            "entryLogs": survey.logs,
            "records": survey.records,
            "entries": len(survey.held),
            "damagedEntries": len(survey.damaged),
            "unreadableBytes": survey.lost_bytes,
            "locations": {
                "problem": old.problem,
                "right": len(old.right),
                "wrong": old.wrong,
                "logGone": old.gone,
                "missing": self.unlisted,
            },
            "ledgers": {
                "problem": self.ledgers.problem,
                "before": len(self.ledgers.rows),
                "after": len(self.rows.rows),
                "changed": self.changed_rows,
                "strays": self.ledgers.strays,
                "fenced": sum(row.fenced for row in self.rows.rows.values()),
                "fencedBy": dict(self.rows.fences),
                "masterKeysBy": dict(self.rows.keys),
            },
            "added": {
                "fromJournals": self.rescued_entries,
                "fromOtherBookies": len(self.gaps.found),
                "nowhere": len(self.gaps.nowhere),
            },
            "written": [database.name for database in self.databases],
        }


class SalvagePlan(Struct, frozen=True):
    """What a salvage of BOOKIE would do."""

    bookie: Bookie
    storages: tuple[StorageSalvage, ...]
    journals: JournalSurvey
    files: tuple[str, ...]
    kept: list[Path] = field(default_factory=list)

    @property
    def is_needed(self) -> bool:
        return bool(self.journals.stops) or any(storage.databases for storage in self.storages)

    @property
    def loses(self) -> str:
        """What is confirmed: nothing is deleted, but no command of this store takes it back."""
        indexes = sum(bool(storage.databases) for storage in self.storages)
        parts = [f"{counted(indexes, 'index', 'indexes')} of bookie {self.bookie.name} made again"] if indexes else []
        if self.journals.stops:
            parts.append(f"{counted(len(self.journals.stops), 'journal')} cut")
        return f"{' and '.join(parts)}; what was there stays beside" if parts else ""

    def preview(self) -> object:
        return self.report(dry_run=True)

    def report(self, *, dry_run: bool) -> dict[str, Any]:  # Any: JSON
        return {
            "bookie": self.bookie.name,
            "directories": [storage.report() for storage in self.storages],
            "journals": {
                "files": self.journals.files,
                "replayedEntries": len(self.journals.replayed),
                "missing": list(self.journals.missing),
                "stops": [_stop_report(stop) for stop in self.journals.stops],
            },
            "needed": self.is_needed,
            "kept": list(map(str, self.kept)),
            "dryRun": dry_run,
        }


def _stop_report(stop: Stop) -> dict[str, Any]:  # Any: JSON
    return {
        "path": str(stop.path),
        "offset": stop.offset,
        "reason": stop.reason,
        "cutAt": stop.cut_at,
        "cutBytes": stop.size_bytes,
    }


def plan_salvage(store: Store, bookie: Bookie) -> SalvagePlan:
    """Look at the disks of BOOKIE, with the metadata and the other bookies of STORE.

    Raises Refused for a bookie of another cluster, SourceBusy for one that runs, InvalidValue for directories that are not all,
    Unsupported for storage without these indexes.
    """
    storages = storages_of(bookie)
    _check_journals(bookie)
    for storage in storages:
        _check_kind(storage)
        _check_mounted(storage)
        for database in storage.databases:
            if database.is_dir():
                check_unlocked(database)
    files = files_of(bookie)
    with store.read() as txn:
        _check_is_of(txn, bookie)
        listed = read_listed(txn, bookie.bookie_id)
        digests = LedgerDigests.of(listed.digests)
        surveys = [survey_logs(one, digests, number, len(storages)) for number, one in enumerate(storages)]
        _check_order(surveys)
        journals = survey_journals(bookie, _all_held(surveys), listed.unproven)
        olds = [read_old_ledgers(storage, number, len(storages)) for number, storage in enumerate(storages)]
        others = _rows_of_others(txn, bookie) if any(old.problem or _has_keyless(old) for old in olds) else {}
        known = Witnesses(journals, listed, others)
        found = tuple(_storage(txn, bookie, known, olds[number], surveys, number) for number in range(len(storages)))
        return SalvagePlan(bookie, found, journals, files)


def _check_kind(storage: Storage) -> None:
    if not any(path.is_dir() for path in storage.databases) and next(storage.index.glob("*/*/*.idx"), None) is not None:
        raise Unsupported(
            f"{storage.index} has .idx files: its bookie keeps no DbLedgerStorage, whose index this makes again",
            hint="bookkeeper shell regenerate-interleaved-storage-index-file makes such files again",
        )


def _check_mounted(storage: Storage) -> None:
    """Raise Refused for a directory without a cookie: every directory of a bookie has one, an empty mount point has none."""
    for path in (storage.logs, storage.index):
        if not (path / COOKIE_FILE).is_file():
            raise Refused(
                f"{path} has no cookie (VERSION), which the other directories have: nothing is written there",
                hint="mount its disk; on a new disk put a copy of VERSION from another directory of the bookie there first",
                path=str(path),
            )


def _check_journals(bookie: Bookie) -> None:
    """Raise InvalidValue when not all journals are given: fences and entries may be there alone."""
    named = dict.fromkeys(cookie_of(bookie).journal_dirs)
    if len(bookie.journal_dirs) < len(named):
        raise InvalidValue(
            f"bookie {bookie.name}: {counted(len(bookie.journal_dirs), 'journal directory', 'journal directories')} given, its cookie"
            f" names {len(named)}: {', '.join(named)}",
            hint="name them all: fences and entries may be there alone; for one that is lost an empty directory, with --bookie-conf",
        )


def files_of(bookie: Bookie) -> tuple[str, ...]:
    """Return what tells whether the bookie ran, or was salvaged: its logs and journals with sizes and times of change, its databases."""
    found = []
    for database in (database for storage in storages_of(bookie) for database in storage.databases):
        current = database / "CURRENT"
        found.append(f"{database} {current.stat().st_ino if current.is_file() else 'absent'}")
    for directory in bookie.directories:
        listed = read_bookie_directory(directory)
        for _, path in (*listed.logs, *listed.journals):
            status = path.stat()
            found.append(f"{path} {status.st_size} {status.st_mtime_ns}")
    return tuple(found)


def _check_is_of(txn: Txn, bookie: Bookie) -> None:
    for stranger in find_strangers(txn, [bookie]):
        raise Refused(
            f"{stranger.reason}; what it is to hold is not known",
            hint="name a bookie of the cluster that was imported",
            bookie=bookie.name,
        )


def _check_order(surveys: Sequence[LogSurvey]) -> None:
    for survey in surveys:
        if survey.strays:
            raise InvalidValue(
                f"{survey.storage.logs} holds {counted(survey.strays, 'entry', 'entries')} of ledgers that another of"
                f" {counted(len(surveys), 'ledger directory', 'ledger directories')} keeps",
                hint="name all ledger directories, in the order of ledgerDirectories in bookkeeper.conf",
            )


def _all_held(surveys: Sequence[LogSurvey]) -> Entries:
    held = Entries()
    for survey in surveys:
        held.by_ledger |= survey.held.by_ledger
    return held


def _has_keyless(old: OldLedgers) -> bool:
    return any(not any(row.master_key) for row in old.rows.values())


def _rows_of_others(txn: Txn, bookie: Bookie) -> dict[int, LedgerData]:
    """Return the rows that the other bookies of the store have of their ledgers; one that is fenced where any is."""
    found: dict[int, LedgerData] = {}
    others = [one for one in iter_imported_bookies(txn.store.info) if one.bookie_id != bookie.bookie_id]
    for path in (path for other in others for path in other.index_dirs or other.ledger_dirs):
        for ledger_id, row in read_old_ledgers(Storage(path, path)).rows.items():
            if any(row.master_key) and (ledger_id not in found or row.fenced):
                found[ledger_id] = row
    return found


def _storage(
    txn: Txn, bookie: Bookie, known: Witnesses, old: OldLedgers, surveys: Sequence[LogSurvey], number: int
) -> StorageSalvage:
    survey, journals, listed = surveys[number], known.journals, known.listed
    mine = _Mine(number, len(surveys), listed, survey)
    rescued = {
        ledger_id: left
        for ledger_id, places in sorted(journals.only_here.items())
        if mine.is_alive(ledger_id) and (left := _not_in(places, journals.replayed, ledger_id))
    }
    only_here = Entries()
    for ledger_id, places in rescued.items():
        for entry_id in places:
            only_here.add(ledger_id, entry_id)
    ledgers = [ledger_id for ledger_id in listed.mine if mine.has(ledger_id)]
    gaps = find_gaps(txn, bookie.bookie_id, ledgers, [survey.held, journals.replayed, only_here])
    told = journals.fences | journals.replayed_fences | journals.keyless
    with_rows = {ledger_id for ledger_id in told if mine.has(ledger_id)} | set(rescued) | set(gaps.found.by_ledger)
    rows = make_rows(ledgers_with_rows(survey, with_rows, old, known), old, known)
    return StorageSalvage(survey.storage, survey, read_old_locations(survey.storage), old, rows, rescued, gaps)


class _Mine(Struct, frozen=True):
    """Which ledgers are those of one of several ledger directories, and which of them were not deleted long ago."""

    number: int
    storages: int
    listed: Listed
    survey: LogSurvey

    def has(self, ledger_id: int) -> bool:
        return ledger_id % self.storages == self.number

    def is_alive(self, ledger_id: int) -> bool:
        return self.has(ledger_id) and (ledger_id in self.listed.ledgers or self.survey.holds(ledger_id))


def _not_in(places: dict[int, JournalPlace], replayed: Entries, ledger_id: int) -> dict[int, JournalPlace]:
    known = replayed.of(ledger_id)
    return {entry_id: place for entry_id, place in sorted(places.items()) if entry_id not in known}
