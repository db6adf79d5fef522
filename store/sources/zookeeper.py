"""The metadata tree of a ZooKeeper's ``version-2`` directory: the newest whole snapshot and the logs after it."""

from __future__ import annotations

import io
import os
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from heapq import merge
from math import gcd
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

from msgspec import Struct

from pulsar_admin.store.codec.buffer import written_end
from pulsar_admin.store.codec.jute import HEADER
from pulsar_admin.store.codec.ledger_ids import LedgerIds
from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT
from pulsar_admin.store.codec.zookeeper import (
    Salvaged,
    Snapshot,
    SnapshotReader,
    ZooKeeperNode,
    decode_snapshot,
    iter_snappy,
    salvage_snapshot,
)
from pulsar_admin.store.codec.zookeeper_log import BadRecord, Delete, Put, Transaction, read_transactions
from pulsar_admin.store.errors import LimitExceeded, MetadataCorrupt, SourceNotFound
from pulsar_admin.store.files import raise_read_error, why_no_file
from pulsar_admin.store.sources.roots import WHOLE, Roots
from pulsar_admin.store.wording import counted, plural

_NAME = re.compile(r"(?:log|snapshot)\.([0-9a-fA-F]{1,16})(?:\.(.+))?")
_EPOCH_BITS = 32
_CHUNK_BYTES = 4 << 20
_STEP_UNIT_BYTES = 1024  # of ``preAllocSize``
_BATCH_BYTES = 1 << 20  # written after the last commit when a log is extended, which a loss of power takes back
_CLOCKS_MS = 5 * 60 * 1000
"""What the clocks of a leader, which times transactions, and of the machine that writes files may differ by."""
_TRIES = 5
Found = TypeVar("Found")


def is_zookeeper(directory: Path) -> bool:
    """Whether a directory is a ``version-2``: it holds a log or a snapshot."""
    return bool(_numbered(directory, "log") or _numbered(directory, "snapshot"))


def _numbered(directory: Path, kind: str) -> list[tuple[int, str, Path]]:
    """Return (zxid, extension, path) of the files of one kind, the oldest first."""
    return [found for found in _named(directory, kind) if found[2].is_file()]


def _named(directory: Path, kind: str) -> list[tuple[int, str, Path]]:
    """Return what ``_numbered`` returns, and also objects with such a name that are not files."""
    files = []
    for file in directory.glob(f"{kind}.*"):
        name = _NAME.fullmatch(file.name)
        if name is not None:
            files.append((int(name[1], 16), name[2] or "", file))
    return sorted(files)


def newest_epoch(sources: Iterable[Mapping[str, Any]]) -> int:  # Any: JSON
    """Return the newest epoch (upper half of a zxid) that a store's sources are known to have reached; 0: unknown."""
    zxids = [0]
    for source in sources:
        zxids.append(int(source.get("zxid", 0)))
        places = (
            Path(source.get("path", ""), place) for place in ("zookeeper/version-2", "zookeeper", "version-2", ".")
        )
        for directory in (*places, *map(Path, filter(None, (source.get("logs"),)))):
            zxids += (zxid for kind in ("log", "snapshot") for zxid, _, _ in _numbered(directory, kind))
    return max(zxids) >> _EPOCH_BITS


def newest_zxid(directory: Path) -> int:
    """Return the newest transaction in a directory: the last of its newest log, or that in its newest snapshot's name."""
    zxids = [zxid for zxid, _, _ in _numbered(directory, "snapshot")]
    last = last_transaction(directory)
    return max(zxids if last is None else [*zxids, last.zxid], default=0)


def last_transaction(directory: Path, until: int | None = None) -> Transaction | None:
    """Return the last transaction of the logs in ``directory``, up to the zxid ``until`` where one is given; None: they have none."""
    for first, extension, file in reversed(_numbered(directory, "log")):
        if extension or (until is not None and first > until):
            continue
        newest = [
            item for item in read_log(file) if isinstance(item, Transaction) and (until is None or item.zxid <= until)
        ]
        if newest:
            return max(newest, key=attrgetter("zxid"))
    return None


class Notes:
    """Remarks on the files of a metadata store that, as far as the files show, lost no data.

    ``not_needed``: damage that other files make up for. ``log_ends``: how ZooKeeper's newest log may have had more.
    """

    def __init__(self) -> None:
        self.not_needed: list[str] = []
        self.log_ends: list[str] = []


class ServerFiles(Struct, frozen=True):
    """The ``version-2`` of one server: the directories of its ``snapshots`` and its ``logs`` (ZooKeeper's dataLogDir, often the same).

    ``roots``: where in the tree the cluster is. Nodes read from these files have the cluster's own paths; nodes
    outside of these roots are skipped.
    """

    snapshots: Path
    logs: Path
    roots: Roots = WHOLE


class SnapshotFile(NamedTuple):
    """A snapshot by the ``zxid`` in its name, which ends in ``extension``; ``roots``: as in ``ServerFiles``."""

    zxid: int
    extension: str
    path: Path
    roots: Roots

    def read(self) -> Snapshot:
        """Return the snapshot; raises MetadataCorrupt, LimitExceeded."""
        snapshot = read_snapshot(self.path, self.extension)
        ledger_ids = snapshot.ledger_ids.moved(self.roots.ledgers, LEDGERS_ROOT)
        return Snapshot(_inner_nodes(snapshot.nodes, self.roots), snapshot.newest_zxid, ledger_ids)

    def salvage(self) -> Salvaged:
        """Return the readable part of a damaged snapshot."""
        # Decompression may fail: the bytes up to there are read.
        parts: list[bytes] = []
        with suppress(MetadataCorrupt, LimitExceeded):
            if self.extension.lower() == "snappy":
                parts += map(bytes, iter_snappy(self.path.read_bytes(), str(self.path)))
            else:
                with open_snapshot(self.path, self.extension) as file:
                    parts += iter(partial(file.read, _CHUNK_BYTES), b"")
        salvaged = salvage_snapshot(b"".join(parts))
        return Salvaged(_inner_nodes(salvaged.nodes, self.roots), salvaged.newest_zxid, salvaged.lost_bytes)


def _inner_nodes(nodes: dict[str, ZooKeeperNode], roots: Roots) -> dict[str, ZooKeeperNode]:
    if roots.is_whole:
        return nodes
    inner = ((roots.inner(path), node) for path, node in nodes.items())
    return {path: node._replace(path=path) for path, node in inner if path is not None}


class Tree(Struct, frozen=True):
    """The nodes by path as of transaction ``zxid``, including ephemeral ones, and the ledger ids assigned by then."""

    nodes: dict[str, ZooKeeperNode]
    zxid: int
    ledger_ids: LedgerIds

    def persistent(self) -> Iterator[ZooKeeperNode]:
        """Yield the nodes that are not ephemeral, in path order."""
        return (self.nodes[path] for path in sorted(self.nodes) if not self.nodes[path].ephemeral)


def read_again(read: Callable[[], Found], where: Path) -> Found:
    """Return the result of ``read``, which is called again if a file is gone: a running server purges old snapshots and logs."""
    for _ in range(_TRIES - 1):
        with suppress(FileNotFoundError):
            return read()
    try:
        return read()
    except FileNotFoundError as error:
        raise_read_error(error, where)


def read_tree(
    servers: Sequence[ServerFiles], problems: list[str], until: int | None = None, notes: Notes | None = None
) -> Tree:
    """Return the tree in the files of servers of one ensemble; unreadable and missing parts are added to ``problems``.

    As a server restores itself (``FileTxnSnapLog``): the newest complete snapshot, then every transaction with a
    higher zxid; up to the transaction ``until``, if given, from a snapshot that has none after it. A server refuses a
    log with a damaged header or record and ignores missing transactions; here the readable ones are used, and losses
    are counted by their zxids. From a damaged snapshot that nothing complete replaces, the readable nodes are used;
    one that an older one and the logs replace goes into ``notes``, and so does a newest log whose real end is
    uncertain. Raises SourceNotFound, MetadataCorrupt (nothing can be read).
    """
    logged = [zxid for server in servers for zxid, _ in iter_log_files(server)]
    snapshots = _find_snapshots(servers, problems, until, min(logged, default=0))
    where = servers[0].logs
    if snapshots.whole is None and not logged:
        if not snapshots.damaged:
            raise SourceNotFound(f"{where} holds neither a ZooKeeper log nor a snapshot", path=str(where))
        if not any(one.salvaged.nodes for one in snapshots.damaged):
            text = snapshots.damaged[0].error.message
            raise MetadataCorrupt(text, hint="provide an older snapshot or the transaction logs", path=str(where))
    base = snapshots.base
    seen = notes or Notes()
    for server in servers:
        problems += iter_unread_logs(server.logs, base, until)
        for zxid, _, file in (*_named(server.snapshots, "snapshot"), *_named(server.logs, "log")):
            if os.path.lexists(file) and (reason := why_no_file(file)):
                told = problems if zxid > base or notes is None else seen.not_needed
                told.append(f"{file} is not read: {reason}")
    whole = snapshots.whole or Snapshot({}, 0, LedgerIds())
    replay = Replay(base, whole.nodes, problems, whole.ledger_ids)
    overlay = _Overlay(snapshots, replay, seen.not_needed)
    reached = base
    for file, item in iter_merged(servers, base + 1):
        if isinstance(item, Transaction):
            overlay.go_to(item.zxid)
        if until is not None and isinstance(item, Transaction) and item.zxid > until:
            if reached < until:
                replay.tell_gap(file, item)
            break
        replay.take(file, item)
        reached = replay.order.last
    else:
        overlay.go_to(1 << 63)
        overlay.finish()
        replay.finish(servers, whole.newest_zxid, seen)
    return Tree(replay.nodes, max(reached, replay.order.last), whole.ledger_ids)


class _Damaged(NamedTuple):
    """A damaged snapshot, its damage, and its readable part."""

    file: SnapshotFile
    error: MetadataCorrupt | LimitExceeded
    salvaged: Salvaged


class _Snapshots(NamedTuple):
    """The newest ``whole`` snapshot, as of transaction ``base`` (None: none is whole), newer ``damaged`` ones, the oldest first."""

    base: int
    whole: Snapshot | None
    damaged: tuple[_Damaged, ...]


class _Overlay:
    """Adds the nodes of damaged snapshots when the replay reaches their transaction without having everything before it.

    Snapshots that are not needed are added to ``notes``.
    """

    def __init__(self, snapshots: _Snapshots, replay: Replay, notes: list[str]) -> None:
        self._waiting = deque(snapshots.damaged)
        self._is_based = snapshots.whole is not None
        self._replay = replay
        self._notes = notes
        self._replaced: list[_Damaged] = []

    def go_to(self, zxid: int) -> None:
        """Use the snapshots that are older than the next transaction."""
        while self._waiting and self._waiting[0].file.zxid < zxid:
            damaged = self._waiting.popleft()
            last = self._replay.order.last
            # The first transaction of a new leader is in no log.
            first_needed = damaged.file.zxid if damaged.file.zxid & ((1 << _EPOCH_BITS) - 1) else 0
            if damaged.file.zxid == 0 and zxid == 1:
                self._replay.nodes |= damaged.salvaged.nodes  # ZooKeeper's own: nothing was written yet
                self._replaced.append(damaged)
            elif not self._replay.is_partial and last >= first_needed and (self._is_based or last):
                self._replaced.append(damaged)
            else:
                self._replay.overlay(damaged.file.zxid, damaged.salvaged, damaged.error.message)

    def finish(self) -> None:
        """Report the snapshots that were not needed, unless one has nodes that no other file has."""
        replay = self._replay
        for damaged in self._replaced:
            newer = [
                node.modified_zxid
                for path, node in damaged.salvaged.nodes.items()
                if node.modified_zxid > replay.order.last
                and (path not in replay.nodes or replay.nodes[path].data != node.data)
            ]
            name, message = damaged.file.zxid, damaged.error.message
            if newer:
                replay.tell_lost(f"{message}; it has seen transaction {max(newer):#x}, which no log has")
            else:
                self._notes.append(f"{message}; it is not needed: older files reach its transaction {name:#x}")


def iter_snapshot_files(servers: Iterable[ServerFiles]) -> Iterator[SnapshotFile]:
    """Yield the snapshots of the servers, the oldest first."""
    files = (
        SnapshotFile(*named, server.roots) for server in servers for named in _numbered(server.snapshots, "snapshot")
    )
    yield from sorted(files, key=lambda one: one[:3])


def iter_log_files(server: ServerFiles) -> Iterator[tuple[int, Path]]:
    """Yield (first zxid, path) of a server's readable logs, the oldest first."""
    return ((zxid, file) for zxid, extension, file in _numbered(server.logs, "log") if not extension)


@contextmanager
def open_snapshot(path: Path, extension: str) -> Iterator[BinaryIO]:
    """Open a snapshot; its extension says how it is compressed. Raises MetadataCorrupt, also while it is read.

    As ``SnapStream``: "gz", "snappy", and any other is not compressed.
    """
    with path.open("rb") as file:
        if extension.lower() == "snappy":
            yield io.BytesIO(b"".join(iter_snappy(file.read(), str(path))))
        elif extension.lower() == "gz":
            import gzip  # 3 ms, and few snapshots are compressed

            try:
                yield cast(BinaryIO, gzip.GzipFile(fileobj=file))
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise MetadataCorrupt(f"{path}: not the whole of a gzip file: {error}", where=str(path)) from error
        else:
            yield file


def read_snapshot(path: Path, extension: str) -> Snapshot:
    """Return the snapshot in a file; raises MetadataCorrupt, LimitExceeded."""
    with open_snapshot(path, extension) as file:
        return decode_snapshot(file, str(path))


def _find_snapshots(servers: Iterable[ServerFiles], problems: list[str], until: int | None, oldest: int) -> _Snapshots:
    """Return the newest complete snapshot, with ``until`` the newest without later transactions, and damaged ones after
    it.

    If all have later transactions: none if the logs begin with the first transaction (``oldest``, the first in the
    logs), else the oldest snapshot, with a problem.
    """
    late: tuple[int, Snapshot] | None = None
    damaged: list[_Damaged] = []
    for file in reversed([*iter_snapshot_files(servers)]):
        if until is not None and file.zxid > until:
            continue
        try:
            snapshot = file.read()
        except (MetadataCorrupt, LimitExceeded) as error:
            damaged.insert(0, _Damaged(file, error, file.salvage()))
            continue
        if until is None or snapshot.newest_zxid <= until:
            return _Snapshots(file.zxid, snapshot, tuple(damaged))
        late = file.zxid, snapshot
    if late is None or until is None or oldest <= 1:
        return _Snapshots(0, None, tuple(damaged))
    seen = f"the snapshot of {late[0]:#x} has seen transaction {late[1].newest_zxid:#x}, and there is no older snapshot"
    problems.append(f"{seen}: what was written after {until:#x} may show")
    return _Snapshots(*late, tuple(damaged))


def iter_unread_logs(directory: Path, base: int, until: int | None = None) -> Iterator[str]:
    """Yield a sentence on how to include each compressed log that begins after zxid ``base``, at most at ``until``."""
    for zxid, extension, file in _numbered(directory, "log"):
        if extension and zxid > base and (until is None or zxid <= until):
            yield f"{file} is not read: unpack it next to the other logs, as {file.name.removesuffix('.' + extension)}"


def read_log(file: Path, advance: Callable[[int], None] = lambda size_bytes: None) -> Iterator[Transaction | BadRecord]:
    """Yield the content of a log. The file is read, not mapped: a running ZooKeeper may truncate it, which would kill
    a process that maps it."""
    with open(file, "rb", buffering=0) as opened:
        before = 0
        for item in read_transactions(opened, str(file)):
            if (now := opened.tell()) > before:
                advance(now - before)
                before = now
            yield item
        advance(max(os.fstat(opened.fileno()).st_size - before, 0))


Logged = tuple[Path, Transaction | BadRecord]
"""A log, and an item in it."""


def iter_merged(
    servers: Sequence[ServerFiles], first: int = 0, advance: Callable[[int], None] = lambda size_bytes: None
) -> Iterator[Logged]:
    """Yield the content of the servers' logs from a transaction on, or from a little before, in the order of zxids, each once.

    ``advance`` gets the bytes of the logs that were read.
    """
    each = [_iter_server(server, first, advance) for server in servers]
    last = -1
    for _, file, item in each[0] if len(each) == 1 else merge(*each, key=itemgetter(0)):
        if isinstance(item, Transaction):
            if item.zxid <= last:
                continue
            last = item.zxid
        yield file, item


def _iter_server(
    server: ServerFiles, first: int, advance: Callable[[int], None]
) -> Iterator[tuple[int, Path, Transaction | BadRecord]]:
    """Yield (zxid, log, item) of one server; damage has the zxid of the transaction before it."""
    logs = [*iter_log_files(server)]
    # A log's name is its first zxid: the one before the first later log may hold newer transactions than the snapshot.
    begin = max((index for index, (zxid, _) in enumerate(logs) if zxid <= first), default=0)
    last = -1
    is_inside = not server.roots.is_whole
    for _, file in logs[begin:]:
        for item in read_log(file, advance):
            if isinstance(item, Transaction):
                last = max(last, item.zxid)
                if is_inside:
                    changes = ((server.roots.inner(change.path), change) for change in item.changes)
                    item = item._replace(
                        changes=tuple(change._replace(path=path) for path, change in changes if path is not None)
                    )
            yield last, file, item


class Gap(Struct, frozen=True):
    """``lost`` transactions are missing before the one ``before`` in ``file``; ``after``: the last one before the gap.

    ``bad``: the first damage in their place. Before a new epoch's first transaction ``lost`` may be 0: losses of the
    epoch before cannot be counted.
    """

    file: Path
    after: int
    before: int
    lost: int
    bad: BadRecord | None

    @property
    def text(self) -> str:
        where = str(self.file) if self.bad is None else _bad_text(self.file, self.bad)
        if not self.lost:
            return f"{where}; its content is lost"
        return f"{where}: {counted(self.lost, 'transaction')} before {self.before:#x} {plural(self.lost, 'is', 'are')} lost"


def _bad_text(file: Path, bad: BadRecord) -> str:
    return f"{file} @ {bad.offset:#x}: {bad.reason}"


class LogOrder:
    """Follows the transactions of logs after a zxid and finds the gaps between them."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.bad: tuple[Path, BadRecord] | None = None
        """The first damage since the last transaction."""

    def take(self, file: Path, item: Transaction | BadRecord) -> Gap | None:
        """Record the next item of a log; return the gap before it, if any. A new epoch begins with transaction 1."""
        if isinstance(item, BadRecord):
            self.bad = self.bad or (file, item)
            return None
        after, bad = self.last, self.bad
        self.bad = None
        if item.zxid <= after:
            return None
        self.last = item.zxid
        is_same_epoch = item.zxid >> _EPOCH_BITS == after >> _EPOCH_BITS
        before = after if is_same_epoch else item.zxid >> _EPOCH_BITS << _EPOCH_BITS
        lost = max(item.zxid - before - 1, 0)
        if not lost and (bad is None or bad[1].unfinished or is_same_epoch):
            return None
        return Gap(file, after, item.zxid, lost, None) if bad is None else Gap(bad[0], after, item.zxid, lost, bad[1])


class Replay:
    """Applies transactions to the nodes of the tree as of zxid ``base``, and reports the missing ones in ``problems``.

    ``ledger_ids`` follows the ids that they allocate.
    """

    def __init__(self, base: int, nodes: dict[str, ZooKeeperNode], problems: list[str], ledger_ids: LedgerIds) -> None:
        self.nodes = nodes
        self._ledger_ids = ledger_ids
        self.order = LogOrder(base)
        self.is_partial = False
        """Whether nodes are missing or have older states, by the problems reported."""
        self._base = base
        self._logged = 0
        self._time_ms = 0
        self._problems = problems
        self._headless: dict[Path, BadRecord] = {}
        """The logs without a header that no gap has reported."""
        self._giving: set[Path] = set()
        """Logs without a header that have transactions after the base."""

    def take(self, file: Path, item: Transaction | BadRecord) -> None:
        """Apply the next item of a log."""
        self.tell_gap(file, item)
        if isinstance(item, BadRecord) and not item.offset and not item.unfinished:
            self._headless[file] = item
        elif isinstance(item, Transaction):
            if file in self._headless and item.zxid > self._base:
                self._giving.add(file)
            self._logged = max(self._logged, item.zxid)
            self._time_ms = item.time_ms
            for change in item.changes:
                self._ledger_ids.see(change.path)
            if item.zxid > self._base:
                _apply(self.nodes, item, is_partial=self.is_partial)

    def tell_gap(self, file: Path, item: Transaction | BadRecord) -> None:
        """Report the gap before an item, if there is one."""
        gap = self.order.take(file, item)
        if gap is not None:
            if gap.bad is not None and not gap.bad.offset:
                self._headless.pop(gap.file, None)
            self.tell_lost(gap.text + ("; their changes may be missing or outdated" if gap.lost else ""))

    def tell_lost(self, text: str) -> None:
        """Report a loss with this text; from then on nodes may be missing or outdated."""
        self.is_partial = True
        self._problems.append(text)

    def overlay(self, zxid: int, salvaged: Salvaged, message: str) -> None:
        """Put the readable part of the damaged snapshot of transaction ``zxid`` over the older nodes."""
        last = self.order.last
        nodes = counted(len(salvaged.nodes), "node")
        older = (
            f"the others are as of transaction {last:#x}"
            if last
            else "there is no older one, so the others are missing"
        )
        self.nodes |= salvaged.nodes
        self.tell_lost(f"{message}; {nodes} can be read, {older}")
        self.order = LogOrder(max(last, zxid))

    def finish(self, servers: Sequence[ServerFiles], newest: int, notes: Notes) -> None:
        """Check that the logs reach what snapshots prove: the transaction ``newest``, and the one in the base snapshot's name.

        Transactions that may follow the last one are added to ``notes``, those that certainly did to ``problems``.
        """
        bad, last, first = self.order.bad, self.order.last, 0
        directory = servers[0].logs
        for file, header in self._headless.items():
            if file in self._giving:
                self._problems.append(
                    f"{_bad_text(file, header)}; its records can be read, but a server refuses the whole file"
                )
            elif bad is None or bad[0] != file:
                notes.not_needed.append(f"{_bad_text(file, header)}; other files have what its records changed")
        if bad is not None and not bad[1].unfinished:
            self._problems.append(f"{_bad_text(*bad)}; this part and everything after it are lost")
        elif bad is not None:
            notes.log_ends.append(f"{_bad_text(*bad)}: the last transaction was being written, or damage begins there")
        for server in servers:
            logs = [*iter_log_files(server)]
            files = (*_numbered(server.snapshots, "snapshot"), *_numbered(server.logs, "log"))
            self._problems += iter_lost_ends([file for _, file in logs])
            first, log = logs[-1] if logs else (0, None)
            if bad is None and first > last:
                made = f"{log} was created for transaction {first:#x}, and is empty"
                if first == last + 1 or not first & (1 << _EPOCH_BITS) - 2:
                    notes.log_ends.append(f"{made}: it was not written to its end, or damage begins there")
                else:
                    self._problems.append(f"{made}: what lies between it and {last:#x} is lost")
            notes.log_ends += iter_unsure_ends(log, [file for *_, file in files], server.snapshots, last, self._time_ms)
        if newest > last:
            self._problems.append(
                f"{directory}: the snapshot has seen transaction {newest:#x}, the logs end at {last:#x}: the "
                "transactions in between are lost"
            )
        elif self._logged < self._base and first != self._base + 1 and self._base & (1 << _EPOCH_BITS) - 1:
            self._problems.append(
                f"{directory}: no log has transaction {self._base:#x} of the snapshot's name: newer ones may be "
                "missing; if ZooKeeper has a dataLogDir, add its version-2 as well"
            )


def _apply(nodes: dict[str, ZooKeeperNode], transaction: Transaction, *, is_partial: bool) -> None:
    """Apply a transaction to nodes, of which some may be missing (``is_partial``); a snapshot taken meanwhile may
    already contain part of the transaction."""
    now, zxid = transaction.time_ms, transaction.zxid
    for change in transaction.changes:
        if isinstance(change, Delete):
            nodes.pop(change.path, None)
            continue
        assert isinstance(change, Put)
        before = nodes.get(change.path)
        if change.version is None:
            if before is None or before.ephemeral:  # the end of a session, which deletes its nodes, is not followed
                nodes[change.path] = ZooKeeperNode(change.path, change.data, 0, now, now, change.ephemeral, zxid)
        elif before is not None and change.version >= before.version:
            path, _, _, created, _, ephemeral, _ = before
            nodes[path] = ZooKeeperNode(path, change.data, change.version, created, now, ephemeral, zxid)
        elif before is None and is_partial:  # when it was created is not known
            nodes[change.path] = ZooKeeperNode(change.path, change.data, change.version, now, now, False, zxid)


# -- the end of the newest log ----------------------------------------------------------------------------------------
#
# Zeros after the last record are what a sound log has: ``FilePadding`` extends it by ``zookeeper.preAllocSize`` (64 MiB) ahead of
# use. The files tell more in these cases only: a log without zeros, one that was extended further than its records reach, one that
# was written long after its last transaction.


def iter_lost_ends(logs: Sequence[Path]) -> Iterator[str]:
    """Yield the signs that the newest log had more than its records; ``logs``: the oldest first."""
    if not logs:
        return
    *before, newest = logs
    if newest.stat().st_size == 0:
        yield f"{newest} is empty: transactions from its zxid on are lost, if there were any"
        return
    if not _is_extended(newest):
        if any(map(_is_extended, before)):
            yield f"{newest} ends with a record, without the zeros that ZooKeeper writes ahead: it may have been cut"
        return
    size = newest.stat().st_size
    step = gcd(*(file.stat().st_size - HEADER.size for file in logs if _is_extended(file)))
    reached = size - step - _BATCH_BYTES  # ``calculateFileSizeWithPadding``: from 4096 bytes below the size before
    if step % _STEP_UNIT_BYTES == 0 and reached > HEADER.size and (end := _written_end(newest, size)) < reached:
        yield (
            f"{newest} was extended to {size} bytes, which ZooKeeper does when {reached} or more are written, and "
            f"zeros begin at {end:#x}: the records there are gone"
        )


def iter_unsure_ends(
    log: Path | None, others: Sequence[Path], snapshots: Path, last: int, last_ms: int
) -> Iterator[str]:
    """Yield the signs that transactions may follow the last one (``last``, at ``last_ms``; 0: no transaction): the
    newest log was written long after it, or the snapshots' directory says that a newer epoch began. ``others``: the
    files beside the log."""
    written_ms = 0 if log is None else log.stat().st_mtime_ns // 1_000_000
    kept_ms = min((file.stat().st_mtime_ns // 1_000_000 for file in others if file != log), default=written_ms)
    # Times of files count where another one shows that copying kept them.
    if last_ms and kept_ms <= last_ms + _CLOCKS_MS < written_ms:
        from pulsar_admin.store.timespec import format_time_ms  # 1 ms; hardly any log is so

        yield (
            f"{log} was written at {format_time_ms(written_ms)}, but its last transaction is from "
            f"{format_time_ms(last_ms)}: either it was copied without its modification time, or later transactions, "
            "where zeros are now, are lost"
        )
    with suppress(OSError, ValueError):
        epoch = int((snapshots / "currentEpoch").read_text())
        if epoch > last >> 32:
            yield (
                f"{snapshots / 'currentEpoch'} says that epoch {epoch} began, and the last transaction here, "
                f"{last:#x}, is of epoch {last >> 32}: either it had none yet, or they are lost"
            )


def _is_extended(log: Path) -> bool:
    """Whether a log ends in zeros, more of them than a record can begin with."""
    with open(log, "rb") as file:
        return os.pread(file.fileno(), 16, max(log.stat().st_size - 16, 0)) == bytes(16)


def _written_end(log: Path, size: int) -> int:
    """Return the position after the last byte of a log that is not zero."""
    with open(log, "rb", buffering=0) as file:
        for begin in range((size - 1) // _CHUNK_BYTES * _CHUNK_BYTES, -1, -_CHUNK_BYTES):
            chunk = os.pread(file.fileno(), _CHUNK_BYTES, begin)
            if end := written_end(memoryview(chunk), 0, len(chunk)):
                return begin + end
    return 0


# -- one node after the other -----------------------------------------------------------------------------------------


class ZooKeeperStream:
    """Reads the nodes of a ZooKeeper's ``version-2`` once, in memory that does not depend on their number.

    Nodes that the logs change are kept and replayed; every other node is as in the snapshot. ``next_ledger_id`` is
    known after the last node.
    """

    def __init__(self, server: ServerFiles, problems: list[str]) -> None:
        self._ledger_ids = LedgerIds()
        self._server = server
        self._problems = problems
        self._newest = 0

    @property
    def next_ledger_id(self) -> int | None:
        """The next ledger id of this ZooKeeper, None if it is unknown."""
        return self._ledger_ids.next_id(LEDGERS_ROOT, whole=not self._problems)

    def nodes(self) -> Iterator[tuple[str, bytes]]:
        """Yield path and value of each persistent node; raises SourceNotFound, MetadataCorrupt. Missing parts are added to the problems."""
        files = [*iter_snapshot_files([self._server])]
        if not files and not any(iter_log_files(self._server)):
            raise SourceNotFound(f"{self._server.logs} holds neither a ZooKeeper log nor a snapshot")
        newest_file = files[-1] if files else None
        base = 0 if newest_file is None else newest_file.zxid
        touched = {
            change.path
            for _, item in iter_merged([self._server], base + 1)
            if isinstance(item, Transaction) and item.zxid > base
            for change in item.changes
        }
        kept: dict[str, ZooKeeperNode] = {}
        for node in self._snapshot_nodes(newest_file) if newest_file else ():
            if node.path in touched:
                kept[node.path] = node
            elif not node.ephemeral:
                yield node.path, node.data
        replay = Replay(base, kept, self._problems, self._ledger_ids)
        self._problems += iter_unread_logs(self._server.logs, base)
        for file, item in iter_merged([self._server], base + 1):
            replay.take(file, item)
        replay.finish([self._server], self._newest, Notes())
        yield from ((node.path, node.data) for node in replay.nodes.values() if not node.ephemeral)

    def _snapshot_nodes(self, newest: SnapshotFile) -> Iterator[ZooKeeperNode]:
        with open_snapshot(newest.path, newest.extension) as file:
            snapshot = SnapshotReader(file, str(newest.path))
            for node, children_made in snapshot.nodes():
                path = node.path if newest.roots.is_whole else newest.roots.inner(node.path)
                if path is not None:
                    self._ledger_ids.see(path, children_made)
                    yield node if path == node.path else node._replace(path=path)
        self._newest = snapshot.newest_zxid
