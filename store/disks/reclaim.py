"""``store reclaim``: garbage collection and compaction of entry logs on the disks of a bookie that is stopped.

Order in each ledger directory: unfinished copies and logs without a listed ledger are deleted; then the logs with the fewest live bytes,
as many as there is room for, are copied into new ones, these are read back, the index is switched to them in one step, and the old ones
are deleted; this repeats in the freed space. Without any free space, a log is moved to a directory of another disk first, and a
symbolic link takes its place. At every step the index leads to every live entry. An interrupted run leaves at most copies, which the
next run recognizes by their records: a copy is deleted if the index leads to all its records elsewhere.

Journals are not touched: entries that only they have are replayed when the bookie starts. Rows of deleted ledgers stay in the index; the
bookie's next garbage collection deletes them (``EntryLocationIndex.removeOffsetFromDeletedLedgers``, BookKeeper 4.17).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from pulsar_admin.store import files
from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.bookie import COOKIE_FILE
from pulsar_admin.store.codec.entrylog import log_id_of
from pulsar_admin.store.db.bookies import Bookie
from pulsar_admin.store.disks import live_records
from pulsar_admin.store.disks.compacting import COMPACTING, LogCompactor, NewLog
from pulsar_admin.store.disks.forecast import (
    SLACK_BYTES,
    LogAction,
    LogForecast,
    Room,
    StorageForecast,
    allocated_bytes,
    by_live_bytes,
    fitting,
    lacking_bytes,
    read_forecast,
    read_state,
    shares_disk,
)
from pulsar_admin.store.disks.trust import check_is_of, check_trusted, find_doubts, find_members
from pulsar_admin.store.errors import IndexCorrupt, InvalidValue, NotFound, StalePlan, Unsupported
from pulsar_admin.store.recovery.metadata_index import Known, is_among
from pulsar_admin.store.sources.log_files import newest_log_id, raise_last_id
from pulsar_admin.store.sources.rocksdb import check_unlocked, is_rocksdb, lock_database
from pulsar_admin.store.sources.storage import Storage, cookie_of, storages_of
from pulsar_admin.store.wording import Answer, counted, one_line

_LENT = "pulsar-admin-lent-"
_LOG_ID = re.compile(r"([0-9a-f]{1,8})\.log(\..*)?")
_LAST_LOG_ID = (1 << 31) - 1

Advance = Callable[[int], None]
Tell = Callable[[str], None]
Nodes = Callable[[], Iterable[tuple[str, bytes]]]


class ReclaimPlan(Answer, frozen=True):
    """What would be done on the disks of ``bookie``."""

    bookie: Bookie
    known: Known
    storages: tuple[StorageForecast, ...]
    doubts: tuple[str, ...] = ()

    @property
    def logs(self) -> tuple[LogForecast, ...]:
        """All logs of the bookie."""
        return tuple(log for storage in self.storages for log in storage.logs)

    @property
    def frees_bytes(self) -> int:
        """How many bytes become free."""
        return sum(storage.frees_bytes for storage in self.storages)

    @property
    def reads_bytes(self) -> int:
        """The bytes of the logs that are read."""
        return sum(log.size_bytes for log in self.logs if log.action is LogAction.COMPACT)

    @property
    def loses(self) -> str:
        """A sentence about data that will be permanently deleted."""
        logs = [log for log in self.logs if log.action in (LogAction.DELETE, LogAction.COMPACT)]
        if not logs and not any(storage.leftovers for storage in self.storages):
            return ""
        ledgers = len({ledger for storage in self.storages for ledger in storage.garbage.tolist()})
        dead = sum(log.dead_bytes for log in logs)
        where = f"{counted(ledgers, 'ledger')} that {self.known.name} does not list"
        return f"up to {dead:,} bytes of {where}, in {counted(len(logs), 'entry log')}"

    def preview(self) -> object:
        """Return the forecast as JSON, in the form of ``report``."""
        return self.report()

    def report(self) -> dict[str, Any]:  # Any: JSON
        """Return the forecast as JSON."""
        return {
            "bookie": self.bookie.name,
            "metadata": self.known.name,
            "deletedLedgers": sum(len(storage.garbage) for storage in self.storages),
            "freesBytes": self.frees_bytes,
            "doubts": list(self.doubts),
            "directories": [
                {
                    "directory": str(storage.storage.logs),
                    "freeBytes": free_bytes(storage.storage.logs),
                    "freesBytes": storage.frees_bytes,
                    "indexBytes": storage.index_bytes,
                    "leftovers": [path.name for path in storage.leftovers],
                }
                for storage in self.storages
            ],
            "logs": list(self.logs),
            "dryRun": True,
        }


class ReclaimResult(Struct):
    """The result of a reclaim. ``moved_entries``: live entries copied, the digest of each verified before and after."""

    __repr__ = one_line

    bookie: str
    freed_bytes: int = field(default=0, name="freedBytes")
    forecast_bytes: int = field(default=0, name="forecastBytes")
    deleted_logs: int = 0
    compacted_logs: int = 0
    new_logs: int = 0
    moved_entries: int = 0
    moved_bytes: int = field(default=0, name="movedBytes")
    passed_over: list[dict[str, str]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """Logs that there was no room for, or that wait on another disk, and why."""


def free_bytes(directory: Path) -> int:
    """Return the free bytes on the disk of a directory."""
    statistics = os.statvfs(directory)
    return statistics.f_bavail * statistics.f_frsize


def check_scratch(scratch: Path | None, bookie: Bookie) -> None:
    """Raise NotFound or InvalidValue unless ``scratch`` is a directory on another disk than the bookie's logs."""
    if scratch is None:
        return
    if not scratch.is_dir():
        raise NotFound(f"{scratch} is not a directory", hint="create it first, on a disk with room", path=str(scratch))
    for directory in bookie.ledger_dirs:
        if os.stat(directory).st_dev == os.stat(scratch).st_dev:
            raise InvalidValue(
                f"{scratch} is on the disk of {directory}: a log that is moved there frees nothing",
                hint="name a directory of another disk",
            )


def plan_reclaim(
    bookie: Bookie,
    known: Known,
    nodes: Nodes,
    below_percent: float,
    *,
    force: bool,
    accepted: Collection[str],
    can_lend: bool,
) -> ReclaimPlan:
    """Plan the reclaiming of a bookie's disk; each call of ``nodes`` iterates over the metadata's (path, value). ``accepted``:
    unknown trees that reference none of the ledgers; ``can_lend``: logs without room can wait on another disk.

    Raises SourceBusy for a running bookie, Unsupported for one without DbLedgerStorage, Refused for another cluster's
    metadata, and, without ``force``, for metadata that may be older than the disks.
    """
    known.check_trees(accepted)
    known.check_layout()
    storages = storages_of(bookie)
    check_is_of(known, bookie)
    for storage in storages:
        if not is_rocksdb(storage.index / "locations"):
            if next(storage.index.glob("*/*/*.idx"), None) is not None:
                raise Unsupported(
                    f"{storage.index} has index files (.idx): the bookie runs with SortedLedgerStorage or InterleavedLedgerStorage",
                    hint=(
                        "only DbLedgerStorage is supported; bookkeeper shell convert-to-db-storage converts the others"
                    ),
                )
            raise NotFound(
                f"{storage.index} has no index: expected the database locations",
                hint="also name the index directories (indexDirectories in its bookkeeper.conf)",
            )
        for database in storage.databases:
            # Only a look: a plan writes nothing, so it takes no lock. apply_reclaim takes it and compares the disks again.
            check_unlocked(database)
    bookie_id = cookie_of(bookie).bookie_id

    def members(ledgers: Array) -> Array:
        return find_members(nodes(), ledgers, bookie_id)

    forecasts: list[StorageForecast] = []
    for storage in storages:
        on_disk = [one for one in forecasts if os.stat(one.storage.logs).st_dev == os.stat(storage.logs).st_dev]
        freed = sum(one.frees_bytes for one in on_disk)
        room = None if can_lend else Room(free_bytes(storage.logs) + freed, free_bytes(storage.index))
        forecasts.append(read_forecast(storage, known, members, below_percent, lambda _: None, room))
    doubts = find_doubts(known, bookie, np.unique(np.concatenate([one.garbage for one in forecasts])))
    check_trusted(doubts, force=force)
    return ReclaimPlan(bookie, known, tuple(forecasts), tuple(doubts))


def apply_reclaim(plan: ReclaimPlan, scratch: Path | None, advance: Advance, tell: Tell) -> ReclaimResult:
    """Execute a reclaim plan; ``scratch``: a directory on another disk for logs to move to while there is no room.

    Raises StalePlan if the disks changed since, SourceBusy, and the errors of writing: every live entry stays where
    the index points, and the next run continues.
    """
    result = ReclaimResult(plan.bookie.name, forecast_bytes=plan.frees_bytes)
    with ExitStack() as locks:
        storages = [forecast.storage for forecast in plan.storages]
        for storage in storages:
            files.check_may_write_for(storage.logs / COOKIE_FILE)
            for database in storage.databases:
                locks.enter_context(lock_database(database))
        # A bookie that ran since the plan may have moved entries or deleted logs that the plan still counts on.
        if [read_state(storage) for storage in storages] != [forecast.state for forecast in plan.storages]:
            raise StalePlan("the bookie's disks changed since this was planned", hint="run the command again")
        before = sum(map(_taken_bytes, storages))
        for forecast in plan.storages:
            _Reclaim(forecast, scratch, advance, tell, result).run()
        result.freed_bytes = before - sum(map(_taken_bytes, storages))
    return result


def _taken_bytes(storage: Storage) -> int:
    """Return how many bytes the logs of a storage take, and its index if it is on the same disk."""
    logs = [file for file in storage.logs.iterdir() if not file.is_dir()]
    databases = storage.databases if shares_disk(storage) else ()
    index = [file for database in databases for file in database.iterdir()]
    return sum(map(allocated_bytes, (*logs, *index)))


class _Reclaim:
    """The work in one ledger directory."""

    def __init__(
        self, forecast: StorageForecast, scratch: Path | None, advance: Advance, tell: Tell, result: ReclaimResult
    ) -> None:
        self._forecast = forecast
        self._storage = forecast.storage
        self._current = forecast.storage.logs
        self._scratch = scratch
        self._advance = advance
        self._tell = tell
        self._result = result

    def run(self) -> None:
        # What frees space without needing any comes first: on a full disk the rest may only fit then.
        for path in self._forecast.leftovers:
            files.remove_file(path)
        for log in self._forecast.chosen(LogAction.DELETE):
            self._delete(log.path)
        self._result.deleted_logs += len(self._forecast.chosen(LogAction.DELETE))
        for log in self._forecast.chosen(LogAction.PASS_OVER):
            self._pass_over(log.path, log.reason)
        waiting = by_live_bytes(self._forecast.chosen(LogAction.COMPACT))
        while waiting:
            # Asked anew each time, as every group changes the free space.
            group = fitting(self._storage, waiting, self._room())
            if not group and not self._lend(waiting):
                lacking = lacking_bytes(self._storage, waiting[:1], self._room())
                self._result.left += [str(left.path) for left in waiting]
                self._tell(
                    f"{self._current}: no room to compact {counted(len(waiting), 'more log')}: {lacking:,} bytes lack for the"
                    " next one; free them, or name a directory of another disk with --scratch DIR, and run the command again"
                )
                break
            waiting = waiting[len(group) :]
            if group:
                self._compact(group)
        self._bring_back()
        if (self._current / "metadata-cache").is_dir():
            files.remove_tree(self._current / "metadata-cache")  # of logs that are gone; the bookie makes it anew

    def _pass_over(self, path: Path, reason: str) -> None:
        self._result.passed_over.append({"log": str(path), "reason": reason})
        self._tell(f"{path} is skipped: {reason}")

    # -- room ---------------------------------------------------------------------------------------------------------

    def _room(self) -> Room:
        return Room(free_bytes(self._current), free_bytes(self._storage.index))

    def _lend(self, waiting: Sequence[LogForecast]) -> bool:
        """Move the largest waiting log to the other disk and leave a link in its place; return whether there was one."""
        here = [log for log in waiting if not log.path.is_symlink()]
        if self._scratch is None or not here:
            return False
        log = max(here, key=lambda log: log.size_bytes)
        # Named by device and inode: two ledger directories may have logs of the same number.
        place = f"{os.stat(log.path).st_dev:x}-{os.stat(log.path).st_ino:x}"
        lent = self._scratch.resolve() / f"{_LENT}{place}-{log.log}"
        files.remove_file(lent)  # of a run that was stopped before the link was made
        files.copy_file(log.path, lent, like=log.path.stat())
        # The link takes the log's name only now that the copy is durable: a bookie that starts at any moment reads either.
        link = log.path.with_name(f"{log.log}{COMPACTING}")
        files.remove_file(link)
        files.link_by_name(lent, link)
        files.rename(link, log.path)
        return True

    def _bring_back(self) -> None:
        """Move logs that stay from the other disk back, as far as there is room."""
        for path in sorted(self._current.iterdir()):
            lent = _lent_to(path)
            if lent is None:
                continue
            if free_bytes(self._current) < lent.stat().st_size + SLACK_BYTES:
                self._result.left.append(str(path))
                self._tell(f"{path} is a link to {lent}: there is no room to move it back; the bookie reads it there")
                continue
            # As in _lend: the name always leads to a complete log, whenever this is killed.
            copy = path.with_name(f"{path.name}{COMPACTING}")
            files.remove_file(copy)
            files.copy_file(lent, copy, like=lent.stat())
            files.rename(copy, path)
            files.remove_file(lent)

    # -- one group ----------------------------------------------------------------------------------------------------

    def _compact(self, group: Sequence[LogForecast]) -> None:
        """Copy the live records of a group of logs into new logs, point the index to these, and delete the old logs."""
        lives = self._read(group)
        # New logs are durable before the index names them, and old logs go last: killed at any step, every live entry is
        # where the index points.
        made = self._write([live for live in lives if len(live.sizes)])
        if made:
            try:
                for log in made:
                    files.rename(log.unfinished, log.path)
                live_records.apply_places(self._storage, live_records.join_places([log.places for log in made]))
            except BaseException:
                # The index may not name the new logs: then they go. Where that cannot be told they stay, and the next
                # run looks again.
                with suppress(Exception):
                    self._check_named([log.log_id for log in made], live_records.NOWHERE)
                    for log in made:
                        files.remove_file(log.unfinished)
                        files.remove_file(log.path)
                raise
        old_ids = [log_id_of(live.path.name) or 0 for live in lives]
        # Deleting the old logs cannot be undone, so what the index now says is read back first.
        self._check_named(
            [*old_ids, *(log.log_id for log in made)], live_records.join_places([log.places for log in made])
        )
        for live in lives:
            self._delete(live.path)
        self._result.compacted_logs += len(lives)
        self._result.new_logs += len(made)
        self._result.moved_entries += sum(len(live.sizes) for live in lives)
        self._result.moved_bytes += sum(live.bytes for live in lives)

    def _read(self, group: Sequence[LogForecast]) -> list[live_records.LiveRecords]:
        ids = np.array([log.log_id for log in group], np.int64)
        lives = []
        with live_records.open_index(self._storage) as index:
            here = live_records.join_places([rows.where(np.isin(rows.log_ids, ids)) for rows in index.iter_places()])
            for log in group:
                rows = here.where(here.log_ids == log.log_id)
                # In file order, so that the log is read once from its beginning to its end.
                rows = rows.where(np.argsort(rows.offsets, kind="stable"))
                live = live_records.read_live(log.path, self._forecast.alive, rows, index.find, self._advance)
                if live.damage:
                    self._pass_over(log.path, live.damage)
                else:
                    lives.append(live)
        return lives

    def _write(self, lives: Sequence[live_records.LiveRecords]) -> list[NewLog]:
        if not lives:
            return []
        first_id = next_log_id(self._current)
        like = lives[0].path.stat()
        with LogCompactor(self._current, first_id, like) as compactor:
            for live in lives:
                compactor.add(live)
            compactor.finish()
            raise_last_id(self._current, compactor.logs[-1].log_id)
        return compactor.logs

    def _check_named(self, log_ids: Sequence[int], expected: live_records.IndexRows) -> None:
        """Raise IndexCorrupt unless the index points exactly to the expected places of live ledgers in these logs."""
        with live_records.open_index(self._storage) as index:
            chosen = (rows.where(np.isin(rows.log_ids, log_ids)) for rows in index.iter_places())
            named = live_records.join_places(
                [rows.where(is_among(self._forecast.alive, rows.ledger_ids)) for rows in chosen]
            )
        if not live_records.same_places(named, expected):
            raise IndexCorrupt(
                f"{self._storage.index}: the index names {len(named.log_ids):,} entries in {', '.join(f'{one:x}.log' for one in log_ids)},"
                f" expected {len(expected.log_ids):,}: no log was deleted",
                hint="run the command again; please report it",
            )

    def _delete(self, path: Path) -> None:
        lent = _lent_to(path)
        files.remove_file(path)
        files.sync_directory(self._current)
        if lent is not None:
            files.remove_file(lent)


def _lent_to(path: Path) -> Path | None:
    """Return the file on another disk to which this log was moved, None if it was not moved."""
    if not path.is_symlink():
        return None
    target = Path(os.readlink(path))
    return target if target.name.startswith(_LENT) else None


def next_log_id(current: Path) -> int:
    """Return the id after those of all logs in a directory and all that its bookie ever used; raises Unsupported after the last id."""
    names = (_LOG_ID.fullmatch(file.name) for file in current.iterdir())
    next_id = max([*(int(name[1], 16) for name in names if name is not None), newest_log_id(current)]) + 1
    if next_id >= _LAST_LOG_ID:
        raise Unsupported(
            f"{current}: the ids of entry logs are used up, at {next_id - 1:#x}: the bookie begins again at 0"
        )
    return next_id
