"""What the first garbage collection destroys when bookies, given or those of a store, start on some metadata.

Upstream ``ScanAndCompareGarbageCollector.gc`` and ``GarbageCollectorThread`` (BookKeeper 4.17.2, in Pulsar 4.0.8): a ledger of the index
without a metadata node is deleted; then every entry log without a ledger of the index, as a whole. Compaction rewrites logs of which less
than ``minorCompactionThreshold`` is live every hour, less than ``majorCompactionThreshold`` every day. No check limits how much is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.bookies import Bookie, iter_imported_bookies
from pulsar_admin.store.db.environment import Store, Txn, create_store, open_store
from pulsar_admin.store.db.files import Damage, iter_metadata_damage, iter_not_needed
from pulsar_admin.store.db.ledger_ids import NextLedgerId, find_given_meanwhile, find_next_ledger_id
from pulsar_admin.store.db.tree import Node, decode_node, iter_values, put_nodes
from pulsar_admin.store.errors import InvalidValue, LimitExceeded, MetadataCorrupt, Refused, SourceNotFound, StoreError
from pulsar_admin.store.facts.indexes import Disk, IndexKind, LogLedgers, count_entries, iter_log_ledgers, read_disks
from pulsar_admin.store.facts.starts import (
    Registered,
    Start,
    StartFact,
    find_layout_fact,
    iter_bookie_facts,
    iter_server_facts,
)
from pulsar_admin.store.history.servers import find_servers
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.recovery.broker_forecast import (
    BrokerDefaults,
    BrokerForecast,
    read_broker_conf,
    read_broker_forecast,
)
from pulsar_admin.store.recovery.metadata_index import Known, is_among, no_metadata, read_known
from pulsar_admin.store.rules.judging import StartFault, fault_of
from pulsar_admin.store.sources.bookies import read_cookie
from pulsar_admin.store.sources.cluster import read_stored_layout
from pulsar_admin.store.sources.given_bookies import GivenBookie, check_apart, find_bookie, missing_directories
from pulsar_admin.store.sources.index_places import read_missing_logs
from pulsar_admin.store.sources.journals import read_replayed_entries
from pulsar_admin.store.sources.nodes import MetadataDirectory, Source
from pulsar_admin.store.sources.rocksdb import is_rocksdb
from pulsar_admin.store.sources.rocksopen import UNREAD_CHANGES, database_directory
from pulsar_admin.store.sources.zookeeper import Notes, ServerFiles, ZooKeeperStream, read_again
from pulsar_admin.store.wording import Answer, counted

EMPTY, OTHER, NEWER, UNLISTED, UNTOLD, NO_INDEX, NOT_INDEXED = (
    "empty",
    "otherInstance",
    "newer",
    "unlisted",
    "untold",
    "noIndex",
    "notIndexed",
)
REASONS = {
    EMPTY: "the metadata lists no ledger at all",
    OTHER: "the metadata belongs to another instance",
    NEWER: "the metadata is older: it never assigned their ids",
    UNLISTED: "not in the metadata (deleted on purpose, or lost)",
    UNTOLD: "the metadata does not list them, and does not say which ids it assigned: deleted, lost, or newer",
    NO_INDEX: "the bookie's index does not exist: it creates an empty one",
    NOT_INDEXED: (
        "the bookie's index does not know them, but the metadata expects them there: their entries are deleted with "
        "their logs"
    ),
}
"""Why ledgers are deleted."""
_TOPICS_MAX = 1_000
_MINOR, _MAJOR = 0.2, 0.5
"""``minorCompactionThreshold`` and ``majorCompactionThreshold``, as Pulsar's ``bookkeeper.conf`` sets them."""


class LedgerShare(Answer, frozen=True):
    """Ledgers, and the bytes of their records in entry logs."""

    ledgers: int
    bytes: int


class LedgerLoss(Answer, frozen=True):
    """Ledgers that are deleted, their entries (None if no index has them), and their records' bytes in entry logs."""

    ledgers: int
    entries: int | None
    bytes: int


class LogShare(Answer, frozen=True):
    """A number of entry logs, and the bytes counted in them."""

    logs: int = 0
    bytes: int = 0


class BookieForecast(Answer, frozen=True):
    """The first garbage collection of a bookie.

    ``refuses``: why the bookie does not start now, "" if it does; the other fields are for a bookie that
    starts. ``holds``: the ledgers of its index. ``loses``: the ledgers that it deletes, ``reasons`` the same per
    reason. ``at_once``: logs that are deleted whole, with ``bytes`` of files; ``minor``, ``major`` and ``kept``: logs
    that wait for minor compaction, for major compaction, or for neither, with the dead ``bytes`` in them. ``starts``:
    whether it starts now; ``faults``: the faults that the start meets.
    """

    bookie: str
    storage: str
    refuses: str
    holds: LedgerShare
    loses: LedgerLoss
    reasons: dict[str, LedgerShare]
    percent: float
    at_once: LogShare = field(name="logsAtOnce")
    minor: LogShare = field(name="logsMinor")
    major: LogShare = field(name="logsMajor")
    kept: LogShare = field(name="logsKept")
    problems: tuple[str, ...]
    starts: bool
    faults: tuple[StartFault, ...]


class TopicLoss(Answer, frozen=True):
    """A topic or cursor that names deleted ledgers: how many, and their bytes over all bookies' copies."""

    topic: str
    ledgers: int
    bytes: int


class LedgerIds(Answer, frozen=True):
    """Ledger ids: the next that the metadata gives (None: not known), the largest in use; ``twice``: how many in use it gives again."""

    next_id: int | None
    largest_in_metadata: int
    largest_on_disk: int
    twice: int


class Preflight(Answer, frozen=True):
    """The forecast over all bookies. ``percent``: of the bookie that loses most; ``topics`` up to a limit, of ``topic_count``.

    ``zookeeper``: the faults that a starting server meets in its files, None if the metadata is not in ZooKeeper's files; ``rocksdb``:
    the faults that keep a standalone from opening its metadata.
    """

    metadata: str
    metadata_ledgers: int
    bookies: tuple[BookieForecast, ...]
    loses: LedgerLoss
    percent: float
    topics: tuple[TopicLoss, ...]
    topic_count: int
    ids: LedgerIds
    problems: tuple[str, ...]
    brokers: BrokerForecast | None = None
    zookeeper: tuple[StartFault, ...] | None = None
    rocksdb: tuple[StartFault, ...] = ()


def parse_percent(text: str) -> float:
    """Return a percentage from text such as "5" or "0.5%"; raises InvalidValue."""
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise InvalidValue(f"{text!r} is not a percentage from 0 to 100", hint="write 5, or 0.5%", value=text)
    return percent


def read_preflight(known: Known, bookies: Sequence[Bookie], servers: Sequence[ServerFiles] | None) -> Preflight:
    """Return whether the bookies, and the ZooKeeper servers of these files, start, and what bookies delete then."""
    sums = _LostLedgers(known)
    forecasts = tuple(_Forecast(known, bookie).run(sums) for bookie in bookies)
    topics = sorted(sums.topics(), key=lambda row: (-row.bytes, row.topic))
    entries = [one.loses.entries for one in forecasts]
    known_entries = [one for one in entries if one is not None]
    lost_entries = sum(known_entries) if len(known_entries) == len(entries) else None
    loses = LedgerLoss(sums.count, lost_entries, sum(one.loses.bytes for one in forecasts))
    twice = 0
    if known.next_id is not None:
        in_metadata = np.union1d(known.ledgers, known.names.ledgers)
        above = in_metadata[np.searchsorted(in_metadata, known.next_id) :]
        twice = len(np.union1d(sums.in_use, above))
    return Preflight(
        known.name,
        len(known.ledgers),
        forecasts,
        loses,
        max((one.percent for one in forecasts), default=0.0),
        tuple(topics[:_TOPICS_MAX]),
        len(topics),
        LedgerIds(known.next_id, known.largest, sums.largest, twice),
        known.problems,
        zookeeper=None
        if servers is None
        else read_again(
            lambda: tuple(fault_of(one) for server in servers for one in iter_server_facts(server, thorough=True)),
            Path(known.name),
        ),
        rocksdb=tuple(
            fault_of(StartFact(kind, Path("metadata store"), None, {"why": why}))
            for kind, texts in ((Start.ROCKSDB, known.rocksdb), (Start.ROCKSDB_LOG, known.problems))
            for why in texts
            if kind is Start.ROCKSDB or UNREAD_CHANGES in why
        ),
    )


def read_forecast(
    parts: ClusterParts,
    opened: Callable[[], AbstractContextManager[EntryReader]],
    now_ms: int,
    warn: Callable[[Iterable[str]], None],
    *,
    brokers: bool,
    conf: Path | None,
) -> Preflight:
    """Return what bookies would delete; with ``brokers`` or a ``conf``, or without bookies, also what brokers would.

    ``opened`` reads the store that the metadata come from. Raises as ``read_preflight`` and ``read_broker_conf``.
    """
    forecast = read_preflight(parts.known, parts.bookies, parts.servers)
    warn((*parts.known.problems, *(text for one in forecast.bookies for text in one.problems)))
    if parts.blank:
        warn([f"{counted(parts.blank, 'bookie')} without any data: a first start"])
    if (parts.bookies or parts.blank) and not brokers and conf is None:
        return forecast
    defaults = BrokerDefaults() if conf is None else read_broker_conf(conf)
    with ExitStack() as stack:
        if parts.source is None:
            reader = stack.enter_context(opened())
        else:
            store = stack.enter_context(open_metadata_alone(parts.source, now_ms))
            reader = stack.enter_context(open_reader(store))
        return replace(forecast, brokers=read_broker_forecast(reader, now_ms, defaults))


class LostLedger(Struct, frozen=True):
    """A ledger that a bookie loses, why (see ``REASONS``), and the topic or cursor that names it, "" if the metadata has none."""

    bookie: str
    ledger_id: int
    reason: str
    topic: str


def iter_lost(known: Known, bookies: Iterable[Bookie]) -> Iterator[LostLedger]:
    """Yield the ledgers that bookies delete, disk by disk: those of their indexes, then those that the indexes should have."""
    for bookie, disk in ((one, disk) for one in bookies for disk in _disks_of(one, [])):
        lost = disk.ledgers[~known.has(disk.ledgers)]
        why = NO_INDEX if disk.storage is IndexKind.NONE else NOT_INDEXED
        off_index = [
            log.ledgers
            if disk.storage is IndexKind.NONE
            else log.ledgers[_strays(known, bookie, log, is_among(disk.ledgers, log.ledgers))]
            for log in iter_log_ledgers(disk, [])
        ]
        strays = np.unique(np.concatenate([np.zeros(0, np.int64), *off_index]))
        parts = [*((reason, lost[chosen]) for reason, chosen in _why(known, bookie, lost)), (why, strays)]
        for reason, ids in parts:
            topics = {ledger_id: text for text, places in known.names.of(ids) for ledger_id in ids[places].tolist()}
            for ledger_id in ids.tolist():
                yield LostLedger(bookie.name, ledger_id, reason, topics.get(ledger_id, ""))


def _disks_of(bookie: Bookie, problems: list[str]) -> Sequence[Disk]:
    """Return a bookie's disks; if its index cannot be read, as a salvage would rebuild it, with all ledgers of their
    logs."""
    try:
        return read_disks(bookie)
    except MetadataCorrupt as error:
        problems.append(f"{error.message}; counted as after a salvage, by the entry logs")
    disks = []
    for directory in bookie.ledger_dirs:
        bare = Disk(IndexKind.DB, (directory,), (), np.zeros(0, np.int64))
        logs = [log.ledgers for log in iter_log_ledgers(bare, problems)]
        disks.append(replace(bare, ledgers=np.unique(np.concatenate([bare.ledgers, *logs]))))
    return disks


def _strays(known: Known, bookie: Bookie, log: LogLedgers, indexed: Array) -> Array:
    """Return a mask of the ledgers of a log that are missing from the index.

    A ledger that is in a log but not in the index is garbage, unless the metadata places it on this bookie: then the index lost it, and
    the bookie deletes its entries with the log.
    """
    strays = ~indexed
    strays[strays] = known.may_be_on(bookie.bookie_id, log.ledgers[strays])
    return strays


def check_loss(forecast: Preflight, limit: float | None) -> None:
    """Raise Refused if a bookie loses more than ``limit`` percent of its bytes."""
    brokers = forecast.brokers
    if limit is not None and brokers is not None and brokers.percent > limit:
        raise Refused(
            f"brokers would delete {brokers.percent:.1f} % of the bytes of topics, more than {limit:g} %",
            hint="set policies in a store first, or let clients connect before: docs/howto/preflight.md",
            percent=brokers.percent,
        )
    over = [] if limit is None else [one for one in forecast.bookies if one.percent > limit]
    if over:
        worst = max(over, key=lambda one: one.percent)
        raise Refused(
            f"{worst.bookie} would lose {worst.percent:.1f} % of its bytes, more than {limit:g} %",
            hint="do not start it before the right metadata, or a newer copy, is in place",
            bookie=worst.bookie,
            percent=worst.percent,
        )


class _Tally:
    """Bytes by ledger; ``ledgers`` is ascending."""

    def __init__(self) -> None:
        self.ledgers = np.zeros(0, np.int64)
        self.bytes = np.zeros(0, np.int64)

    def add(self, ledgers: Array, sizes: Array) -> None:
        """Add the sizes of some ledgers."""
        if len(ledgers):
            both, old = np.concatenate((self.ledgers, ledgers)), np.concatenate((self.bytes, sizes))
            self.ledgers, places = np.unique(both, return_inverse=True)
            self.bytes = np.zeros(len(self.ledgers), np.int64)
            np.add.at(self.bytes, places, old)


class _LostLedgers:
    """The ledgers that all bookies together lose, and the bytes of each over all copies."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._lost = _Tally()
        self.largest = -1
        self.in_use = np.zeros(0, np.int64)  # ids on disks that the metadata would give again

    @property
    def count(self) -> int:
        return len(self._lost.ledgers)

    def add(self, ledgers: Array, sizes: Array) -> None:
        """Add the lost ledgers of a disk with the sizes of their records."""
        self._lost.add(ledgers, sizes)

    def see(self, ledgers: Array) -> None:
        """Record which ledgers a disk has."""
        if len(ledgers):
            self.largest = max(self.largest, int(ledgers[-1]))
            next_id = self._known.next_id
            if next_id is not None:
                self.in_use = np.union1d(self.in_use, ledgers[np.searchsorted(ledgers, next_id) :])

    def topics(self) -> Iterator[TopicLoss]:
        """Yield the topics and cursors that name lost ledgers, with their losses."""
        for text, places in self._known.names.of(self._lost.ledgers):
            yield TopicLoss(text, len(places), int(self._lost.bytes[places].sum()))


class _Forecast:
    """Sums up one bookie, disk by disk and log by log."""

    def __init__(self, known: Known, bookie: Bookie) -> None:
        self._known = known
        self._bookie = bookie
        self._problems: list[str] = []
        self._unread: list[str] = []  # entry logs
        self._met: list[StartFact] = []
        self._held = self._lost = 0
        self._held_bytes = self._lost_bytes = 0
        self._entries: int | None = 0
        self._reasons: dict[str, list[int]] = {}
        self._logs = {name: [0, 0] for name in ("at_once", "minor", "major", "kept")}

    def run(self, sums: _LostLedgers) -> BookieForecast:
        known = self._known
        registered = Registered(known.instance_id, known.cookies)
        layout = find_layout_fact(known.layout)
        met = iter_bookie_facts(self._bookie, registered, thorough=True)
        faults = [fault_of(one) for one in (*([] if layout is None else [layout]), *met)]
        refuses = next((fault.text for fault in faults if not fault.starts), "")
        disks = _disks_of(self._bookie, self._problems)
        self._problems += missing_directories(self._bookie)
        for disk in disks:
            self._problems += disk.problems
            sums.see(disk.ledgers)
            sums.add(*self._disk(disk))
        self._problems += self._unread
        self._problems += _missing_logs(self._known, self._bookie, disks)
        told = {fault.code for fault in faults}
        faults += [fault for fault in map(fault_of, self._met) if fault.code not in told]
        lost = LedgerLoss(self._lost, self._entries, self._lost_bytes)
        # Without the bytes of all logs, ledgers are compared: those of an unread log may be all that is kept.
        is_whole = self._held_bytes and not self._unread
        part, whole = (self._lost_bytes, self._held_bytes) if is_whole else (self._lost, self._held)
        return BookieForecast(
            self._bookie.name,
            ", ".join(dict.fromkeys(disk.storage for disk in disks)) or IndexKind.NONE,
            refuses,
            LedgerShare(self._held, self._held_bytes),
            lost,
            {reason: LedgerShare(count, size) for reason, (count, size) in self._reasons.items()},
            100 * part / whole if whole else 0.0,
            LogShare(*self._logs["at_once"]),
            LogShare(*self._logs["minor"]),
            LogShare(*self._logs["major"]),
            LogShare(*self._logs["kept"]),
            tuple(self._problems),
            not refuses,
            tuple(faults),
        )

    def _disk(self, disk: Disk) -> tuple[Array, Array]:
        """Add a disk; return the ledgers that it deletes, and their bytes."""
        if disk.storage is IndexKind.NONE:
            return self._disk_without_index(disk)
        lost = ~self._known.has(disk.ledgers)
        sizes = np.zeros(len(disk.ledgers), np.int64)
        strays = _Tally()
        for log in iter_log_ledgers(disk, self._unread):
            indexed = is_among(disk.ledgers, log.ledgers)
            at = np.searchsorted(disk.ledgers, log.ledgers[indexed])
            sizes[at] += log.bytes[indexed]
            self._add_log(log, int(log.bytes[indexed][~lost[at]].sum()))
            stray = _strays(self._known, self._bookie, log, indexed)
            strays.add(log.ledgers[stray], log.bytes[stray])
        gone, gone_bytes = disk.ledgers[lost], sizes[lost]
        self._add(len(disk.ledgers), int(sizes.sum()), gone, gone_bytes)
        for reason, chosen in _why(self._known, self._bookie, gone):
            self._add_reason(reason, int(chosen.sum()), int(gone_bytes[chosen].sum()))
        if len(gone):
            entries = count_entries(disk, lost, self._problems)
            self._entries = None if entries is None or self._entries is None else self._entries + entries
        # Also deleted are the ledgers that the index should know.
        if not len(strays.ledgers):
            return gone, gone_bytes
        self._entries = None
        self._add(len(strays.ledgers), int(strays.bytes.sum()), strays.ledgers, strays.bytes)
        self._add_reason(NOT_INDEXED, len(strays.ledgers), int(strays.bytes.sum()))
        kind = Start.NOT_INDEXED if disk.storage is IndexKind.DB else Start.NOT_IN_INDEX_FILES
        values = {"disk": disk.name, "ledgers": len(strays.ledgers)}
        self._met.append(StartFact(kind, disk.directories[0], self._bookie, values))
        return np.concatenate((gone, strays.ledgers)), np.concatenate((gone_bytes, strays.bytes))

    def _disk_without_index(self, disk: Disk) -> tuple[Array, Array]:
        tally = _Tally()
        for log in iter_log_ledgers(disk, self._unread):
            tally.add(log.ledgers, log.bytes)
            self._add_log(log, 0)
        ledgers, sizes = tally.ledgers, tally.bytes
        if len(ledgers):
            self._problems.append(
                f"{disk.name}: entry logs with {counted(len(ledgers), 'ledger')} and no index beside them; if the bookie has an index"
                " directory, name that as well"
            )
            where = disk.directories[0]
            self._met.append(StartFact(Start.NO_INDEX, where, self._bookie, {"disk": disk.name}))
            self._entries = None
            self._add(len(ledgers), int(sizes.sum()), ledgers, sizes)
            self._add_reason(NO_INDEX, len(ledgers), int(sizes.sum()))
        return ledgers, sizes

    def _add(self, held: int, held_bytes: int, lost: Array, lost_bytes: Array) -> None:
        self._held += held
        self._held_bytes += held_bytes
        self._lost += len(lost)
        self._lost_bytes += int(lost_bytes.sum())

    def _add_reason(self, reason: str, count: int, size: int) -> None:
        if count:
            row = self._reasons.setdefault(reason, [0, 0])
            row[0] += count
            row[1] += size

    def _add_log(self, log: LogLedgers, live: int) -> None:
        """Add the fate of an entry log of which ``live`` bytes stay (``EntryLogMetadata.getUsage``)."""
        total = int(log.bytes.sum())
        usage = live / total if total else 0.0
        if not live:
            self._count("at_once", log.size_bytes)
        elif usage < 1:
            self._count("minor" if usage < _MINOR else "major" if usage < _MAJOR else "kept", total - live)

    def _count(self, name: str, size: int) -> None:
        self._logs[name][0] += 1
        self._logs[name][1] += size


def _missing_logs(known: Known, bookie: Bookie, disks: Sequence[Disk]) -> Iterator[str]:
    """Yield a sentence for each entry log that does not exist although a bookie's index points to it for surviving ledgers."""
    ledgers = {ledger_id for disk in disks for ledger_id in disk.ledgers[known.has(disk.ledgers)].tolist()}
    try:
        logs = read_missing_logs(bookie, ledgers)
    except (OSError, StoreError) as error:
        yield f"{bookie.name}: it is unknown which entry logs are missing: {error}"
        return
    problems: list[str] = []
    # What the journals have after the mark, a start writes into new logs: that is not missing.
    replayed = read_replayed_entries(bookie, {ledger_id for log in logs for ledger_id in log.entries}, problems)
    for log in logs:
        lost = {ledger_id: entries - replayed[ledger_id] for ledger_id, entries in log.entries.items()}
        count = sum(map(len, lost.values()))
        if count:
            yield (
                f"{log.path} does not exist, but the index leads {counted(count, 'entry')} of"
                f" {counted(sum(map(bool, lost.values())), 'ledger')} to it: {bookie.name} starts and does not serve them"
            )
    yield from problems


def _why(known: Known, bookie: Bookie, lost: Array) -> Iterator[tuple[str, Array]]:
    """Yield (reason, mask of the lost ledgers) for each reason."""
    everything = np.ones(len(lost), np.bool_)
    if not len(known.ledgers):
        yield EMPTY, everything
    elif _is_other_instance(known, bookie):
        yield OTHER, everything
    elif known.next_id is None:
        yield UNTOLD, everything
    else:
        # A counter that has not reached the ledgers that are listed began again: what it gives next it may have given before.
        began_again = known.ledgers[-1] >= known.next_id
        yield UNTOLD if began_again else NEWER, lost >= known.next_id
        yield UNLISTED, lost < known.next_id


def _is_other_instance(known: Known, bookie: Bookie) -> bool:
    cookies = (read_cookie(path) for path in bookie.directories)
    ids = {cookie.instance_id for cookie in cookies if cookie is not None and cookie.instance_id}
    return bool(ids) and bool(known.instance_id) and known.instance_id not in ids


# -- the parts of a cluster that a forecast is made on ----------------------------------------------------------------


_LOST_AND_FOUND = "lost+found"
_BATCH = 50_000
_DAMAGED = (MetadataCorrupt, LimitExceeded, FileNotFoundError)
"""What the newest snapshot raises while it is streamed, or a file that a running server purges; then older ones and the logs are
also read, which takes more memory."""
_NO_STAT = NodeStat(0, 0, 0, 0, False)


class ClusterParts(Struct, frozen=True):
    """The facts of the metadata, and the bookies that would start on it; ``source``: the metadata's place, None for a store's or none.

    ``blank``: how many bookies have empty disks; ``servers``: ZooKeeper's files, None if the metadata is not there.
    """

    known: Known
    bookies: tuple[Bookie, ...]
    source: Source | None = None
    blank: int = 0
    servers: tuple[ServerFiles, ...] | None = None


def read_parts(metadata: Source | None, given: Iterable[GivenBookie]) -> ClusterParts:
    """Return the given metadata (None: empty) and bookies; raises as ``find_bookie`` and ``check_apart``.

    A bookie whose directories are empty has nothing to lose: it starts for the first time. Raises SourceNotFound if
    the metadata already knows that bookie.
    """
    bookies, blank = [], []
    for one in given:
        if _is_blank(one):
            blank.append(one)
        else:
            bookies.append(find_bookie(one))
    check_apart(bookies)
    ids = [bookie.bookie_id for bookie in bookies]
    known = no_metadata() if metadata is None else read_source(metadata, ids)
    for one in blank:
        bookie_id = one.bookie_id or one.fallback_id
        if bookie_id in known.cookies:
            raise SourceNotFound(
                f"{one.where}: the metadata knows bookie {bookie_id}, but its directories are empty or missing",
                hint="are its disks mounted? A bookie that lost them is replaced: bookkeeper shell decommissionbookie",
                bookie=bookie_id,
            )
    is_files = isinstance(metadata, MetadataDirectory) and not is_rocksdb(metadata.path)
    servers = (metadata.server,) if is_files and isinstance(metadata, MetadataDirectory) else None
    return ClusterParts(known, tuple(bookies), metadata, len(blank), servers)


def _is_blank(given: GivenBookie) -> bool:
    """Whether nothing was ever written to the given directories; those that a configuration names need not exist."""
    paths = (*given.ledger_dirs, *given.journal_dirs, *given.index_dirs)
    if not paths and not all(path.is_dir() for path in given.directories):
        return False
    return not any(_written(path) or _written(path / "current") for path in (*paths, *given.directories))


def _written(path: Path) -> bool:
    names = {entry.name for entry in path.iterdir()} if path.is_dir() else set[str]()
    return bool(names - {_LOST_AND_FOUND, "current"})


def read_source(metadata: Source, bookies: Sequence[str] = ()) -> Known:
    """Return what the metadata says about ledgers and bookies; raises the StoreErrors of its kind of source."""
    problems: list[str] = []
    stream = _zookeeper_of(metadata, problems)
    if stream is not None:
        with suppress(*_DAMAGED):
            known = read_known(metadata.name, stream.nodes(), bookies=bookies)
            return replace(known, next_id=stream.next_ledger_id, problems=tuple(problems))
        problems.clear()
    next_ids: list[int] = []
    notes = Notes()
    known = read_known(metadata.name, _iter_values(metadata, problems, next_ids.append, notes), bookies=bookies)
    is_rocks = isinstance(metadata, MetadataDirectory) and is_rocksdb(metadata.path)
    return replace(
        known,
        next_id=next_ids[-1] if next_ids else None,
        problems=tuple(problems),
        rocksdb=tuple(notes.not_needed) if is_rocks else (),
    )


@contextmanager
def open_metadata_alone(metadata: Source, now_ms: int) -> Iterator[Store]:
    """Open a temporary store that has only this metadata, without the nodes of ledgers."""
    with database_directory() as scratch:
        path = scratch / "streamed"
        try:
            stream = _zookeeper_of(metadata, [])
            _make_store(path, _iter_values(metadata, []) if stream is None else stream.nodes(), now_ms)
        except _DAMAGED:
            path = scratch / "read"
            _make_store(path, _iter_values(metadata, []), now_ms)
        with open_store(path, writable=True) as store:
            yield store


def _make_store(path: Path, values: Iterable[tuple[str, bytes]], now_ms: int) -> None:
    nodes = (Node(place, _NO_STAT, value) for place, value in values if not place.startswith(f"{LEDGERS_ROOT}/"))
    create_store(path, now_ms=now_ms)
    with open_store(path, writable=True) as store:
        while batch := [*islice(nodes, _BATCH)]:
            store.write(lambda txn, batch=batch: put_nodes(txn, batch))  # type: ignore[misc]  # binds this one


def _zookeeper_of(metadata: Source, problems: list[str]) -> ZooKeeperStream | None:
    """Return the metadata as ZooKeeper's files, None if it is of another kind."""
    if not isinstance(metadata, MetadataDirectory) or is_rocksdb(metadata.path):
        return None
    return ZooKeeperStream(metadata.server, problems)


def _iter_values(
    metadata: Source,
    problems: list[str],
    tell_next_id: Callable[[int], None] = lambda next_id: None,
    notes: Notes | None = None,
) -> Iterator[tuple[str, bytes]]:
    for item in metadata.nodes(problems, notes):
        if isinstance(item, NextLedgerId):
            tell_next_id(item.value)
        elif isinstance(item, Damage):
            problems.append(item.reason)
        elif isinstance(item, Node):
            yield item.path, item.value
        else:
            path, _, value = decode_node(*item)
            yield path, value


def read_store_parts(txn: Txn, empty: bool = False) -> ClusterParts:
    """Return a store's current metadata, changes included, and the bookies that it was imported from; raises SourceNotFound.

    ``empty``: an empty metadata store instead.
    """
    store = txn.store
    layout = read_stored_layout(store.info)
    if not layout.bookies:
        raise Refused("the store has no bookies", hint="add them: pulsar-admin store add bookie DIR,DIR")
    if empty:
        return ClusterParts(no_metadata(), layout.bookies)
    problems = [damage.reason for damage in iter_metadata_damage(txn)]
    # A bookie that lost its cookies since is the one that was imported from its directories.
    here = {path: bookie.bookie_id for bookie in iter_imported_bookies(store.info) for path in bookie.directories}
    bookies = tuple(
        one if one.bookie_id else replace(one, bookie_id=here.get(one.directories[0].resolve(), ""))
        for one in layout.bookies
    )
    ids = [bookie.bookie_id for bookie in bookies]
    meanwhile = find_given_meanwhile(txn)  # their nodes are newer than the tree that was read
    next_id = meanwhile.stop if meanwhile else find_next_ledger_id(txn)
    known = read_known(f"the store {store.path}", iter_values(txn, "/"), next_id, problems, ids)
    if any(source["kind"] == "standalone" for source in store.info.sources):
        known = replace(known, rocksdb=tuple(damage.reason for damage in iter_not_needed(txn)))
    servers = None
    with suppress(Refused, SourceNotFound):
        servers = find_servers(store.info.sources)
    return ClusterParts(known, bookies, servers=servers)
