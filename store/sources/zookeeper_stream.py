"""The nodes of a ZooKeeper's ``version-2`` one after the other, in memory that the number of nodes does not change, and the next ledger id.

What the logs touch is kept and replayed (``store.sources.zookeeper.Replay``); every other node of the snapshot is as it was.
"""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_admin.store.codec.ledger_ids import LedgerIds
from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT
from pulsar_admin.store.codec.zookeeper import SnapshotReader, ZooKeeperNode
from pulsar_admin.store.codec.zookeeper_log import Transaction
from pulsar_admin.store.errors import SourceNotFound
from pulsar_admin.store.sources import zookeeper


class ZooKeeperStream:
    """Reads ``server`` once; ``next_ledger_id`` is known after the last node."""

    def __init__(self, server: zookeeper.ServerFiles, problems: list[str]) -> None:
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
        files = [*zookeeper.iter_snapshot_files([self._server])]
        if not files and not any(zookeeper.iter_log_files(self._server)):
            raise SourceNotFound(f"{self._server.logs} holds neither a ZooKeeper log nor a snapshot")
        newest_file = files[-1] if files else None
        base = 0 if newest_file is None else newest_file.zxid
        touched = {
            change.path
            for _, item in zookeeper.iter_merged([self._server], base + 1)
            if isinstance(item, Transaction) and item.zxid > base
            for change in item.changes
        }
        kept: dict[str, ZooKeeperNode] = {}
        for node in self._snapshot_nodes(newest_file) if newest_file else ():
            if node.path in touched:
                kept[node.path] = node
            elif not node.ephemeral:
                yield node.path, node.data
        replay = zookeeper.Replay(base, kept, self._problems, self._ledger_ids)
        self._problems += zookeeper.iter_unread_logs(self._server.logs, base)
        for file, item in zookeeper.iter_merged([self._server], base + 1):
            replay.take(file, item)
        replay.finish([self._server], self._newest, zookeeper.Notes())
        yield from ((node.path, node.data) for node in replay.nodes.values() if not node.ephemeral)

    def _snapshot_nodes(self, newest: zookeeper.SnapshotFile) -> Iterator[ZooKeeperNode]:
        with zookeeper.open_snapshot(newest.path, newest.extension) as file:
            snapshot = SnapshotReader(file, str(newest.path))
            for node, children_made in snapshot.nodes():
                path = node.path if newest.roots.is_whole else newest.roots.inner(node.path)
                if path is not None:
                    self._ledger_ids.see(path, children_made)
                    yield node if path == node.path else node._replace(path=path)
        self._newest = snapshot.newest_zxid
