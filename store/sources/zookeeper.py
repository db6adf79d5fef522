"""The metadata tree of a ZooKeeper's ``version-2`` directory: the newest whole snapshot and the logs after it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from store.codec.zookeeper import (
    BadRecord,
    Delete,
    Put,
    Snapshot,
    Transaction,
    ZooKeeperNode,
    decode_snapshot,
    decompress_snapshot,
    iter_transactions,
)
from store.errors import LimitExceeded, MetadataCorrupt, SourceNotFound
from store.wording import counted, plural

_NAME = re.compile(r"(?:log|snapshot)\.([0-9a-fA-F]{1,16})(?:\.(.+))?")
_EPOCH_BITS = 32
_ZEROS = bytes(4 << 20)  # more than a transaction is long: jute.maxbuffer, by default 1 MiB


def is_zookeeper(directory: Path) -> bool:
    """Whether DIRECTORY is a ``version-2``: it holds a log or snapshot."""
    return bool(_numbered(directory, "log") or _numbered(directory, "snapshot"))


def _numbered(directory: Path, kind: str) -> list[tuple[int, str, Path]]:
    """Return (zxid, extension, path) of the files of KIND, the oldest first."""
    found = []
    for file in directory.glob(f"{kind}.*"):
        name = _NAME.fullmatch(file.name)
        if name is not None:
            found.append((int(name[1], 16), name[2] or "", file))
    return sorted(found)


def newest_epoch(sources: Iterable[Mapping[str, Any]]) -> int:  # Any: JSON
    """Return the newest epoch, the upper half of a zxid, that SOURCES of a store are known to have reached; 0: none is known."""
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
    """Return the newest transaction that DIRECTORY has: the last of its newest log, or that of its newest snapshot's name."""
    zxids = [zxid for zxid, _, _ in _numbered(directory, "snapshot")]
    for _, extension, file in reversed(_numbered(directory, "log")):
        found = [] if extension else [item.zxid for item in _read_log(file) if isinstance(item, Transaction)]
        if found:
            zxids.append(max(found))
            break
    return max(zxids, default=0)


def read_zookeeper_nodes(
    directory: Path, problems: list[str], log_directory: Path | None = None
) -> Iterator[ZooKeeperNode]:
    """Yield the persistent nodes of DIRECTORY in path order; what could not be read, or is not there, is told in PROBLEMS.

    LOG_DIRECTORY: where its logs are (ZooKeeper's ``dataLogDir``), else beside the snapshots.

    As a server restores itself (``FileTxnSnapLog``): the newest snapshot that is whole, then every transaction with a higher zxid.
    A server refuses a log with a damaged record and passes over transactions that are missing; here what is whole is taken, and
    what is lost is counted by the zxids. Raises SourceNotFound, MetadataCorrupt (nothing can be read, or a log is none).
    """
    base, snapshot = _newest_snapshot(directory, problems)
    log_directory = log_directory or directory
    logs = [(zxid, file) for zxid, extension, file in _numbered(log_directory, "log") if not extension]
    if snapshot is None and not logs:
        if problems:
            raise MetadataCorrupt(
                problems[0], hint="bring an older snapshot or the transaction logs", path=str(directory)
            )
        raise SourceNotFound(f"{directory} holds neither a ZooKeeper log nor a snapshot", path=str(directory))
    problems += _unread_logs(log_directory, base)
    # A log's name is its first zxid: the one before the first later log may hold newer transactions than the snapshot.
    first = max((index for index, (zxid, _) in enumerate(logs) if zxid <= base + 1), default=0)
    replay = _Replay(base, {} if snapshot is None else snapshot.nodes, problems)
    for _, file in logs[first:]:
        for item in _read_log(file):
            replay.take(file, item)
    replay.finish(log_directory, 0 if snapshot is None else snapshot.newest_zxid)
    if logs:
        problems += _cut_short([file for _, file in logs])
    nodes = replay.nodes
    yield from (nodes[path] for path in sorted(nodes) if not nodes[path].ephemeral)


def _newest_snapshot(directory: Path, problems: list[str]) -> tuple[int, Snapshot | None]:
    for zxid, extension, file in reversed(_numbered(directory, "snapshot")):
        try:
            raw = decompress_snapshot(file.read_bytes(), extension, str(file))
            return zxid, decode_snapshot(raw, str(file))
        except (MetadataCorrupt, LimitExceeded) as error:
            problems.append(f"{error.message}; an older snapshot is used")
    return 0, None


def _unread_logs(directory: Path, base: int) -> Iterator[str]:
    for zxid, extension, file in _numbered(directory, "log"):
        if extension and zxid > base:
            yield f"{file} is not read: unpack it beside the other logs, as {file.name.removesuffix('.' + extension)}"


def _cut_short(logs: list[Path]) -> Iterator[str]:
    """Tell of a newest log that ends with a record although ZooKeeper extends its logs with zeros here (``FilePadding``)."""
    *before, newest = logs
    if newest.stat().st_size == 0:
        yield f"{newest} is empty: transactions from its zxid on are lost, if there were any"
    elif not _is_extended(newest) and any(map(_is_extended, before)):
        yield f"{newest} ends with a record, without the zeros that ZooKeeper writes ahead: it may have been cut"


def _is_extended(log: Path) -> bool:
    """Whether zeros end LOG, more of them than a record can begin with."""
    with open(log, "rb") as file:
        return os.pread(file.fileno(), 16, max(log.stat().st_size - 16, 0)) == bytes(16)


def _read_log(file: Path) -> Iterator[Transaction | BadRecord]:
    """Yield what is in the log FILE. It is read, not mapped: a ZooKeeper that runs may cut it, which would kill this process."""
    data = bytearray()
    with open(file, "rb", buffering=0) as opened:
        while chunk := opened.read(len(_ZEROS)):
            data += chunk
            if chunk == _ZEROS:
                break  # what follows was never written
    if data:
        yield from iter_transactions(data, str(file))


class _Replay:
    """Applies transactions to NODES, the tree as of zxid BASE, and tells in PROBLEMS which of them are missing."""

    def __init__(self, base: int, nodes: dict[str, ZooKeeperNode], problems: list[str]) -> None:
        self.nodes = nodes
        self._base = base
        self._last = base
        self._logged = 0
        self._bad: tuple[Path, BadRecord] | None = None  # the first since the last transaction
        self._problems = problems

    def take(self, file: Path, item: Transaction | BadRecord) -> None:
        """Take what comes next in the log FILE."""
        if isinstance(item, BadRecord):
            self._bad = self._bad or (file, item)
            return
        self._logged = max(self._logged, item.zxid)
        if item.zxid > self._last:
            self._check_follows(file, item.zxid)
            self._last = item.zxid
        self._bad = None
        if item.zxid > self._base:
            _apply(self.nodes, item)

    def finish(self, directory: Path, newest: int) -> None:
        """Check that the logs reach what the snapshot shows to have been: the transaction NEWEST, and that of its name."""
        if self._bad is not None and not self._bad[1].unfinished:
            self._problems.append(f"{self._bad_text()}; what stood there and behind it is lost")
        if newest > self._last:
            self._problems.append(
                f"{directory}: the snapshot has seen transaction {newest:#x}, the logs end at {self._last:#x}: what lies between is lost"
            )
        elif self._logged < self._base and self._base & (1 << _EPOCH_BITS) - 1:
            self._problems.append(
                f"{directory}: no log has transaction {self._base:#x} of the snapshot's name: newer ones may be missing; "
                "where ZooKeeper has a dataLogDir, its version-2 belongs here too"
            )

    def _check_follows(self, file: Path, zxid: int) -> None:
        """Note what is missing between the last transaction and ZXID, which comes next. A new epoch begins at 1."""
        is_same_epoch = zxid >> _EPOCH_BITS == self._last >> _EPOCH_BITS
        before = self._last if is_same_epoch else zxid >> _EPOCH_BITS << _EPOCH_BITS
        lost = max(zxid - before - 1, 0)
        where = str(file) if self._bad is None else self._bad_text()
        if lost:
            text = f"{counted(lost, 'transaction')} before {zxid:#x} {plural(lost, 'is', 'are')} lost"
            self._problems.append(f"{where}: {text}; what they changed may be missing or old")
        elif self._bad is not None and not self._bad[1].unfinished and not is_same_epoch:
            self._problems.append(f"{where}; what stood there is lost")

    def _bad_text(self) -> str:
        assert self._bad is not None
        file, bad = self._bad
        return f"{file} @ {bad.offset:#x}: {bad.reason}"


def _apply(nodes: dict[str, ZooKeeperNode], transaction: Transaction) -> None:
    """Do to NODES what TRANSACTION did; a snapshot taken while it ran may have some of it already."""
    now = transaction.time_ms
    for change in transaction.changes:
        if isinstance(change, Delete):
            nodes.pop(change.path, None)
            continue
        assert isinstance(change, Put)
        before = nodes.get(change.path)
        if change.version is None:
            if before is None or before.ephemeral:  # the end of a session, which deletes its nodes, is not followed
                nodes[change.path] = ZooKeeperNode(change.path, change.data, 0, now, now, change.ephemeral)
        elif before is not None and change.version >= before.version:
            nodes[change.path] = replace(before, data=change.data, version=change.version, modified_ms=now)
