"""The metadata tree of a ZooKeeper's ``version-2`` directory: the newest whole snapshot and the logs after it."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from store.codec.zookeeper import Delete, Put, TornLog, Transaction, ZooKeeperNode, decode_snapshot, iter_transactions
from store.errors import MetadataCorrupt, SourceNotFound


def find_zookeeper(root: Path) -> Path | None:
    """Return the ``version-2`` directory below ROOT that holds a log or snapshot, or None."""
    for candidate in (root / "zookeeper" / "version-2", root / "zookeeper", root / "version-2", root):
        if candidate.is_dir() and (_numbered(candidate, "log") or _numbered(candidate, "snapshot")):
            return candidate
    return None


def _numbered(directory: Path, kind: str) -> list[tuple[int, Path]]:
    found = []
    for file in directory.glob(f"{kind}.*"):
        suffix = file.name.partition(".")[2]
        if suffix and set(suffix) <= set("0123456789abcdef"):
            found.append((int(suffix, 16), file))
    return sorted(found)


def read_zookeeper_nodes(directory: Path, problems: list[str]) -> Iterator[ZooKeeperNode]:
    """Yield the persistent nodes of DIRECTORY in path order; what could not be read is told in PROBLEMS.

    As a server restores itself (``FileTxnSnapLog``): the newest snapshot that reads to its end, then every transaction with
    a higher zxid. A log that ends inside a record is normal after a kill; records of a later log go on behind it.
    """
    base, nodes = _newest_snapshot(directory, problems)
    if not nodes and not _numbered(directory, "log"):
        raise SourceNotFound(f"{directory} holds neither a ZooKeeper log nor a snapshot", path=str(directory))
    logs = _numbered(directory, "log")
    # A log's name is its first zxid: the one before the first later log may hold newer transactions than the snapshot.
    first = max((index for index, (zxid, _) in enumerate(logs) if zxid <= base + 1), default=0)
    for _, file in logs[first:]:
        for item in _read_log(file):
            if isinstance(item, Transaction) and item.zxid > base:
                _apply(nodes, item)
            elif isinstance(item, TornLog) and file != logs[-1][1]:
                problems.append(f"{file} @ {item.offset:#x}: {item.reason}; the rest of this log is lost")
    yield from (nodes[path] for path in sorted(nodes) if not nodes[path].ephemeral)


def _newest_snapshot(directory: Path, problems: list[str]) -> tuple[int, dict[str, ZooKeeperNode]]:
    for zxid, file in reversed(_numbered(directory, "snapshot")):
        try:
            return zxid, {node.path: node for node in decode_snapshot(file.read_bytes(), str(file))}
        except MetadataCorrupt as error:
            problems.append(f"{error.message}; an older snapshot is used")
    return 0, {}


def _read_log(file: Path) -> Iterator[Transaction | TornLog]:
    with open(file, "rb") as opened:
        if file.stat().st_size == 0:
            return
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as view, memoryview(view) as data:
            yield from iter_transactions(data, str(file))


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
            if before is None:
                nodes[change.path] = ZooKeeperNode(change.path, change.data, 0, now, now, change.ephemeral)
        elif before is not None and change.version >= before.version:
            nodes[change.path] = replace(before, data=change.data, version=change.version, modified_ms=now)
