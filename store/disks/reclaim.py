"""``store reclaim``: garbage collection and compaction of entry logs on the disks of a bookie that is stopped.

Order in each ledger directory: unfinished copies and logs without a listed ledger are deleted; then the logs with the fewest live bytes,
as many as there is room for, are copied into new ones, these are read back, the index is switched to them in one step, and the old ones
are deleted; this repeats in the freed space. Without any free space, a log is moved to a directory of another disk first, and a
symbolic link takes its place. At every step the index leads to every live entry. An interrupted run leaves at most copies, which the
next run recognizes by their records: a copy is deleted if the index leads to all its records elsewhere.

What is to be done is forecast log by log, as ``GarbageCollectorThread`` (4.17) sees them: a ledger is live if the metadata lists it and the
bookie's index has it. A log without live ledgers is deleted; one of which they fill less than a share (``majorCompactionThreshold``) is
rewritten without the rest. The index and the logs' ledgers maps give the answer; a log without a map is read.

Journals are not touched: entries that only they have are replayed when the bookie starts. Rows of deleted ledgers stay in the index; the
bookie's next garbage collection deletes them (``EntryLocationIndex.removeOffsetFromDeletedLedgers``, BookKeeper 4.17).
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store import errors, files
from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.bookie import COOKIE_FILE
from pulsar_admin.store.codec.entrylog import log_id_of
from pulsar_admin.store.db.bookies import Bookie
from pulsar_admin.store.db.environment import Store
from pulsar_admin.store.disks import live_records
from pulsar_admin.store.disks.live_records import COMPACTING, LogCompactor, NewLog, bytes_of_logs
from pulsar_admin.store.disks.trust import (
    check_is_of,
    check_trusted,
    find_doubts,
    find_members,
    nodes_of,
    read_stored,
    stored_nodes,
)
from pulsar_admin.store.recovery.metadata_index import Known, is_among
from pulsar_admin.store.recovery.preflight import read_source
from pulsar_admin.store.scan.ledgers_map import read_ledger_sizes, read_ledgers_map
from pulsar_admin.store.sources.bookies import read_bookie_directory
from pulsar_admin.store.sources.index_places import read_ledger_ids
from pulsar_admin.store.sources.log_files import newest_log_id, raise_last_id
from pulsar_admin.store.sources.nodes import Source
from pulsar_admin.store.sources.rocksdb import check_unlocked, is_rocksdb, lock_database
from pulsar_admin.store.sources.storage import Storage, cookie_of, storages_of
from pulsar_admin.store.wording import Answer, counted, one_line

# -- the forecast ------------------------------------------------------------------------------------------------------


class LogAction(StrEnum):
    """The action for an entry log."""

    DELETE = "delete"
    COMPACT = "compact"
    KEEP = "keep"
    PASS_OVER = "pass over"


_COMPACTED = re.compile(r"([0-9a-f]+)\.log\.([0-9a-f]+)\.compacted")  # TransactionalEntryLogCompactor
# A group of logs is copied and named by the index in one step: its rows are in memory, and a run that is stopped
# copies it again.
_GROUP_BYTES = 8 << 30
_GROUP_ENTRIES = 1 << 23
SLACK_BYTES = 1 << 16  # left free beyond the counted bytes
_INDEX_MARGIN = 3  # times ``index_growth``, which is an estimate: a full disk in the middle would be worse
_MEASURED_ROWS = 1 << 20
_BLOCK_BYTES = 4096  # of nearly every file system
_ROW_BYTES = 12  # of a row of ``locations`` in a table: 9 to 14 were seen
_LOGGED_ROW_BYTES = 43  # in a write-ahead log


class LogForecast(Answer, frozen=True):
    """An entry log, its content, and the action for it. ``size_bytes``: its size on the disk; ``entries``: those that
    the index points to in this log.

    ``frees_bytes``: the bytes it frees, minus those that are rewritten. ``reason``: why it is skipped, or cannot be deleted.
    """

    directory: str
    log: str
    size_bytes: int
    entries: int
    live_bytes: int = field(name="liveBytes")
    dead_bytes: int = field(name="deadBytes")
    live_ledgers: int
    dead_ledgers: int
    action: LogAction
    frees_bytes: int = field(name="freesBytes")
    reason: str = ""

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.directory, self.log)

    @property
    def log_id(self) -> int:
        """The log's number, which its file name gives in hexadecimal."""
        return log_id_of(self.log) or 0


Members = Callable[[Array], Array]
"""Ledger ids → those whose ensembles name the bookie."""


class FileStamp(NamedTuple):
    """Name, size and modification time of a file: while they are equal, nobody wrote to it."""

    name: str
    size_bytes: int
    modified_ns: int


def read_state(storage: Storage) -> tuple[FileStamp, ...]:
    """Return the stamps of a storage's logs and index files, without LOCK files, which this process takes itself."""
    places = (storage.logs, *storage.databases)
    files = (file for place in places for file in place.iterdir() if not file.is_dir() and file.name != "LOCK")
    return tuple(sorted(FileStamp(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files))


class StorageForecast(Struct, frozen=True):
    """The planned actions in a ledger directory. ``leftovers``: unfinished copies of a compaction.

    ``groups``: the logs that are compacted together, one group after the other; other logs find no room. ``alive``: the
    ledgers that are kept; ``garbage``: ids, ascending, of ledgers on its disk that are not listed.
    """

    storage: Storage
    logs: tuple[LogForecast, ...]
    leftovers: tuple[Path, ...]
    groups: tuple[tuple[LogForecast, ...], ...]
    garbage: Array
    alive: Array
    index_bytes: int
    """How many bytes its index grows until RocksDB compacts it."""
    state: tuple[FileStamp, ...]
    """Its files as they were before the first one was read."""

    def chosen(self, action: LogAction) -> tuple[LogForecast, ...]:
        """Return the logs with this action."""
        return tuple(log for log in self.logs if log.action is action)

    @property
    def frees_bytes(self) -> int:
        """How many bytes become free on the disk of the logs."""
        return sum(log.frees_bytes for log in self.logs) + sum(size for _, size in self.others())

    def others(self) -> Iterator[tuple[str, int]]:
        """Yield (reason, bytes) of other changes of the free bytes on the logs' disk; negative if bytes are taken."""
        left = sum(map(allocated_bytes, self.leftovers))
        live = sum(log.live_bytes for group in self.groups for log in group)
        yield "unfinished copies", left
        yield "new logs: headers, ledgers maps", live - sum(map(written_bytes, self.groups))
        yield "index", -self.index_bytes * shares_disk(self.storage)


class Room(NamedTuple):
    """The free bytes on the disk of a storage's logs and on that of its index, which may be the same disk."""

    for_logs: int
    for_index: int


def fitting(storage: Storage, waiting: Sequence[LogForecast], room: Room) -> list[LogForecast]:
    """Return the logs to compact together: as many of the first ``waiting`` ones as a group may have and room
    allows."""
    group: list[LogForecast] = []
    for log in waiting:
        more = [*group, log]
        entries = sum(one.entries for one in more)
        is_small = entries <= _GROUP_ENTRIES and sum(one.live_bytes for one in more) <= _GROUP_BYTES
        if lacking_bytes(storage, more, room) > 0 or (group and not is_small):
            break
        group = more
    return group


def lacking_bytes(storage: Storage, group: Sequence[LogForecast], room: Room) -> int:
    """Return how many free bytes are missing for compacting a group of logs; 0 or less if there is room."""
    written = written_bytes(group) + SLACK_BYTES
    index = _INDEX_MARGIN * index_growth(storage, sum(log.entries for log in group)) + SLACK_BYTES
    # Index and logs on one disk take from the same free bytes.
    if shares_disk(storage):
        return written + index - room.for_logs
    return max(written - room.for_logs, index - room.for_index)


def by_live_bytes(logs: Iterable[LogForecast]) -> list[LogForecast]:
    """Return logs by ascending live bytes: each copy needs little room and frees a whole log for the next."""
    return sorted(logs, key=lambda log: (log.live_bytes, log.log_id))


def shares_disk(storage: Storage) -> bool:
    """Whether the logs and the index of a storage are on one file system."""
    return os.stat(storage.logs).st_dev == os.stat(storage.index).st_dev


def written_bytes(logs: Sequence[LogForecast]) -> int:
    """Return about how many bytes the new logs take that the live records of these logs are copied into."""
    size = bytes_of_logs([log.live_bytes for log in logs], sum(log.live_ledgers for log in logs))
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES


def allocated_bytes(path: Path) -> int:
    """Return the bytes that a file occupies on its disk, in whole blocks; 0 for a symbolic link, whose target is on another disk."""
    # Sparse and compressed files have fewer blocks than their size. What XFS allocates beyond the end it takes back by itself.
    status = os.lstat(path)
    return 0 if path.is_symlink() else min(status.st_blocks * 512, -(-status.st_size // _BLOCK_BYTES) * _BLOCK_BYTES)


def index_growth(storage: Storage, entries: int) -> int:
    """Return about how many bytes the index grows when these entries move: rows, write-ahead logs, a MANIFEST."""
    if not entries:
        return 0
    files = [*(storage.index / "locations").iterdir()]
    logs = sum(file.stat().st_size for file in files if file.suffix == ".log")
    manifest = max((file.stat().st_size for file in files if file.name.startswith("MANIFEST-")), default=0)
    return manifest + _BLOCK_BYTES + _ROW_BYTES * (entries + logs // _LOGGED_ROW_BYTES)


def read_forecast(
    storage: Storage,
    known: Known,
    members: Members,
    below_percent: float,
    advance: Callable[[int], None],
    room: Room | None,
) -> StorageForecast:
    """Return the planned action for each log of a storage; logs of which less than ``below_percent`` is live are compacted.

    ``room``: free bytes now, None if logs can wait on another disk.

    ``members`` decides about listed ledgers that are in logs but not in the index. ``advance`` gets the bytes of logs
    read. Raises MetadataCorrupt, and Refused for an index that is damaged.
    """
    state = read_state(storage)
    logs = read_bookie_directory(storage.logs).logs
    maps: dict[int, dict[int, int] | None] = dict.fromkeys(log_id for log_id, _ in logs)
    for log_id, path in logs:
        with suppress(OSError, errors.StoreError):  # reading the log tells why
            maps[log_id] = read_ledgers_map(path)
    unmapped = np.array([log_id for log_id, sizes in maps.items() if sizes is None], np.int64)
    # Compactions that the bookie itself did not finish name the log they read and the log they write.
    names = (_COMPACTED.fullmatch(file.name) for file in storage.logs.iterdir())
    unfinished = {int(part, 16) for name in names if name is not None for part in name.groups()}
    with live_records.open_index(storage) as index:
        counts: dict[int, int] = {}
        parts: list[live_records.IndexRows] = []
        indexed = [np.zeros(0, np.int64)]
        for rows in index.iter_places():
            listed = known.has(rows.ledger_ids)
            indexed.append(np.unique(rows.ledger_ids))
            ids, numbers = np.unique(rows.log_ids[listed], return_counts=True)
            for log_id, count in zip(ids.tolist(), numbers.tolist(), strict=True):
                counts[log_id] = counts.get(log_id, 0) + count
            parts.append(rows.where(listed & np.isin(rows.log_ids, unmapped)))
        in_unmapped = live_records.join_places(parts)
        in_logs = np.unique(
            np.concatenate([np.zeros(0, np.int64), *(_ledgers_in(path, maps[one]) for one, path in logs)])
        )
        held = np.union1d(read_ledger_ids(storage.index / "ledgers", []), np.concatenate(indexed))
        # Index and log part when a bookie is killed, or its disk is full; after re-replication it deletes what others have (upstream
        # ``removeOverReplicatedledgers``): then its ensembles do not name it any more.
        doubtful = np.setdiff1d(in_logs[known.has(in_logs)], held)
        alive = np.union1d(held[known.has(held)], members(doubtful) if len(doubtful) else doubtful)
        found_logs = []
        for log_id, path in logs:
            here = in_unmapped.where(in_unmapped.log_ids == log_id)
            reader = _LogReader(path, alive, here, index.find, advance, below_percent)
            reason = "" if log_id not in unfinished else "the bookie's own compaction is unfinished"
            found_logs.append(reader.forecast(maps[log_id], counts.get(log_id, 0), reason))
    leftovers = tuple(sorted(storage.logs.glob(f"*.log{COMPACTING}")))
    freed = sum(map(allocated_bytes, leftovers)) + sum(
        log.frees_bytes for log in found_logs if log.action == LogAction.DELETE
    )
    waiting = by_live_bytes(log for log in found_logs if log.action == LogAction.COMPACT)
    groups, lacking = _groups(storage, waiting, room and room._replace(for_logs=room.for_logs + freed))
    fit = {log.log_id for group in groups for log in group}
    no_room = f"no room: {lacking:,} bytes lack for the next log; free them, or name --scratch DIR"
    told = tuple(
        replace(log, frees_bytes=0, reason=no_room)
        if log.action == LogAction.COMPACT and log.log_id not in fit
        else log
        for log in found_logs
    )
    on_disk = np.union1d(held, in_logs)
    garbage = on_disk[~known.has(on_disk)]
    growth = _measured_growth(storage, alive, groups)
    return StorageForecast(storage, told, leftovers, groups, garbage, alive, growth, state)


def _groups(
    storage: Storage, waiting: list[LogForecast], room: Room | None
) -> tuple[tuple[tuple[LogForecast, ...], ...], int]:
    """Return the groups of logs to compact one after the other, and how many bytes the next log lacks, 0 if none is
    left."""
    groups: list[tuple[LogForecast, ...]] = []
    while waiting:
        group = fitting(storage, waiting, room or Room(1 << 62, 1 << 62))
        if not group:
            return tuple(groups), lacking_bytes(storage, waiting[:1], room) if room else 0
        groups.append(tuple(group))
        waiting = waiting[len(group) :]
        if room is not None:
            # The logs of a group are deleted before the next group is copied, so their bytes are free for it.
            grown = index_growth(storage, sum(log.entries for log in group))
            gained = sum(log.size_bytes for log in group) - written_bytes(group) - grown * shares_disk(storage)
            room = Room(room.for_logs + gained, room.for_index - grown)
    return tuple(groups), 0


def _measured_growth(storage: Storage, alive: Array, groups: Sequence[Sequence[LogForecast]]) -> int:
    """Return how many bytes the index grows when the groups' entries move, measured by writing their rows to a scratch
    RocksDB.

    If the scratch directory cannot be written, the result is the estimate of ``index_growth``.
    """
    moved = sum(log.entries for group in groups for log in group)
    if not moved:
        return 0
    log_ids = np.array([log.log_id for group in groups for log in group], np.int64)
    parts: list[live_records.IndexRows] = []
    with live_records.open_index(storage) as index:
        for rows in index.iter_places():
            parts.append(rows.where(np.isin(rows.log_ids, log_ids) & is_among(alive, rows.ledger_ids)))
            if sum(len(part.log_ids) for part in parts) >= _MEASURED_ROWS:
                break
    rows = live_records.join_places(parts)
    if not len(rows.log_ids):
        return index_growth(storage, moved)
    # Where exactly a record comes to lie is not known yet; in a table, offsets of now take as much room.
    rows = rows._replace(log_ids=np.full_like(rows.log_ids, log_ids.max() + 1))
    try:
        *tables, manifest = live_records.measure_places(storage, rows)
    except (errors.DiskFailed, errors.DiskFull, errors.NotWritable):
        return index_growth(storage, moved)
    if more := moved - len(rows.log_ids):  # only the first rows were measured: the others take as much each
        tables.append(max(tables) * more // len(rows.log_ids))
    sizes = [*tables, *[manifest] * len(groups)]  # the index is switched once per group, with a new manifest
    return sum(-(-size // _BLOCK_BYTES) * _BLOCK_BYTES for size in sizes)


def _ledgers_in(path: Path, sizes: Mapping[int, int] | None) -> Array:
    """Return the ledgers in a log: from its ledgers map (``sizes``), or from its records if it has no map."""
    try:
        mapped = read_ledger_sizes(path) if sizes is None else sizes
    except (OSError, errors.StoreError):
        mapped = {}  # reading the log for what lives tells why
    return np.fromiter(mapped, np.int64, len(mapped))


class _LogReader(Struct, frozen=True):
    """Makes the forecast of the log at ``path``."""

    path: Path
    alive: Array
    here: live_records.IndexRows
    find: live_records.Find
    advance: Callable[[int], None]
    below_percent: float

    def forecast(self, sizes: Mapping[int, int] | None, entries: int, reason: str) -> LogForecast:
        """Return the forecast of one log. ``sizes``: its ledgers map, None if it has none; ``entries``: those that the
        index points to here; ``reason``: why to keep it untouched."""
        if reason:
            return self._row(LogAction.PASS_OVER, entries, reason=reason)
        listed: dict[int, int] = {}
        if sizes is not None:
            ids = np.fromiter(sizes, np.int64, len(sizes))
            listed = {ledger_id: sizes[ledger_id] for ledger_id in ids[is_among(self.alive, ids)].tolist()}
        if sizes is None or (listed and not entries):
            # Only its records tell its content, or that other logs have all of them.
            records = live_records.read_live(self.path, self.alive, self.here, self.find, self.advance)
            if records.damage:
                return self._row(LogAction.PASS_OVER, entries, reason=records.damage)
            ledgers = len(np.unique(records.ledger_ids))
            rest = max(self.path.stat().st_size - records.bytes, 0)
            reason = "its entries are also in other logs" if records.copies and not len(records.sizes) else ""
            return self._chosen(len(records.sizes), (records.bytes, rest), (ledgers, records.dead_ledgers), reason)
        live, dead = sum(listed.values()), sum(sizes.values()) - sum(listed.values())
        return self._chosen(entries, (live, dead), (len(listed), len(sizes) - len(listed)))

    def _chosen(
        self, entries: int, size_bytes: tuple[int, int], ledgers: tuple[int, int], reason: str = ""
    ) -> LogForecast:
        live, dead = size_bytes
        size = allocated_bytes(self.path)
        if not live and not entries:
            action, frees = LogAction.DELETE, size
        # Two blocks: a new log has a header, a ledgers map and a last block that is not full. One that shrinks by less frees nothing.
        elif live * 100 < self.below_percent * (live + dead) and size > live + 2 * _BLOCK_BYTES:
            action, frees = LogAction.COMPACT, size - live
        else:
            action, frees = LogAction.KEEP, 0
        return self._row(action, entries, size_bytes, ledgers, frees, reason)

    def _row(
        self,
        action: LogAction,
        entries: int,
        size_bytes: tuple[int, int] = (0, 0),
        ledgers: tuple[int, int] = (0, 0),
        frees: int = 0,
        reason: str = "",
    ) -> LogForecast:
        return LogForecast(
            str(self.path.parent),
            self.path.name,
            allocated_bytes(self.path),
            entries,
            size_bytes[0],
            size_bytes[1],
            ledgers[0],
            ledgers[1],
            action,
            frees,
            reason,
        )


_LENT = "pulsar-admin-lent-"
_LOG_ID = re.compile(r"([0-9a-f]{1,8})\.log(\..*)?")
_LAST_LOG_ID = (1 << 31) - 1

Advance = Callable[[int], None]
Tell = Callable[[str], None]


# -- carried out -------------------------------------------------------------------------------------------------------


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
    """Logs for which there was no room, or that wait on another disk, with the reason."""


def free_bytes(directory: Path) -> int:
    """Return the free bytes on the disk of a directory."""
    statistics = os.statvfs(directory)
    return statistics.f_bavail * statistics.f_frsize


class ReclaimRequest(Struct, frozen=True):
    """How to reclaim: logs with a live share below ``below_percent`` are compacted; ``scratch``: a directory on another disk, for logs
    while there is no room; ``force`` accepts metadata that may be older than the disks; ``accepted``: unknown trees that reference none
    of the ledgers. Raises InvalidValue."""

    below_percent: float
    scratch: Path | None
    force: bool
    accepted: Collection[str]

    def __post_init__(self) -> None:
        if not 0 <= self.below_percent <= 100:
            text = f"below_percent {self.below_percent:g} is not from 0 to 100"
            raise errors.InvalidValue(text, value=self.below_percent)


def check_scratch(scratch: Path | None, bookie: Bookie) -> None:
    """Raise NotFound or InvalidValue unless ``scratch`` is a directory on another disk than the bookie's logs."""
    if scratch is None:
        return
    if not scratch.is_dir():
        raise errors.NotFound(
            f"{scratch} is not a directory", hint="create it first, on a disk with room", path=str(scratch)
        )
    for directory in bookie.ledger_dirs:
        if os.stat(directory).st_dev == os.stat(scratch).st_dev:
            raise errors.InvalidValue(
                f"{scratch} is on the disk of {directory}: a log that is moved there frees nothing",
                hint="name a directory of another disk",
            )


def plan_reclaim(bookie: Bookie, metadata: Store | Source, request: ReclaimRequest) -> ReclaimPlan:
    """Plan the reclaiming of a bookie's disk.

    Raises SourceBusy for a running bookie, Unsupported for one without DbLedgerStorage, Refused for another cluster's
    metadata, and, without ``force``, for metadata that may be older than the disks; NotFound, InvalidValue (``scratch``).
    """
    if isinstance(metadata, Store):
        known, nodes = read_stored(metadata), partial(stored_nodes, metadata)
    else:
        known, nodes = read_source(metadata), partial(nodes_of, metadata)
    known.check_trees(request.accepted)
    known.check_layout()
    storages = storages_of(bookie)
    check_is_of(known, bookie)
    for storage in storages:
        if not is_rocksdb(storage.index / "locations"):
            if next(storage.index.glob("*/*/*.idx"), None) is not None:
                raise errors.Unsupported(
                    f"{storage.index} has index files (.idx): the bookie runs with SortedLedgerStorage or InterleavedLedgerStorage",
                    hint=(
                        "only DbLedgerStorage is supported; bookkeeper shell convert-to-db-storage converts the others"
                    ),
                )
            raise errors.NotFound(
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
        room = (
            None if request.scratch is not None else Room(free_bytes(storage.logs) + freed, free_bytes(storage.index))
        )
        forecasts.append(read_forecast(storage, known, members, request.below_percent, lambda _: None, room))
    doubts = find_doubts(known, bookie, np.unique(np.concatenate([one.garbage for one in forecasts])))
    check_trusted(doubts, force=request.force)
    check_scratch(request.scratch, bookie)
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
            raise errors.stale("the bookie's disks", "this")
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
        """Move logs that are kept back from the other disk, as far as there is room."""
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
            raise errors.IndexCorrupt(
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
        raise errors.Unsupported(
            f"{current}: the ids of entry logs are used up, at {next_id - 1:#x}: the bookie begins again at 0"
        )
    return next_id
