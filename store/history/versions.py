"""Every version of every metadata node that ZooKeeper's snapshots and transaction logs still have.

Logs have each write, with its time and session. Of the writes before the oldest log, or in a gap between logs, only the
values that were still current in a later snapshot are known.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec import Struct

from pulsar_admin.store.codec.zookeeper_log import BadRecord, Put, Transaction
from pulsar_admin.store.errors import LimitExceeded, MetadataCorrupt
from pulsar_admin.store.sources import zookeeper

Kind = Literal["create", "set", "delete", "snapshot"]
_CHUNK_BYTES = 1 << 20


class Version(NamedTuple):
    """The result of transaction ``zxid`` for the node at ``path``; ``time_ms``: by the leader's clock.

    ``session``: id of the client's session. ``value``, ``version`` (0 after a creation): the node's after the
    transaction, None after a deletion. ``kind`` "snapshot": no log has the transaction; the value comes from a
    snapshot, and the session is unknown (None).
    """

    path: str
    zxid: int
    time_ms: int
    session: int | None
    kind: Kind
    value: bytes | None
    version: int | None
    ephemeral: bool = False  # known of creations and snapshots


class Flaw(Struct, frozen=True):
    """A part of a file that cannot be read; if no other file has its transactions, a Gap counts the missing ones."""

    file: Path
    text: str


History = Version | zookeeper.Gap | Flaw
Advance = Callable[[int], None]


def iter_versions(
    servers: Sequence[zookeeper.ServerFiles],
    wanted: Callable[[str], bool] = lambda path: True,
    advance: Advance = lambda size_bytes: None,
) -> Iterator[History]:
    """Yield the versions of all wanted nodes in the files of servers of one ensemble, in zxid order.

    Where all files lack transactions, a Gap comes first, then the values from them that snapshots have; a Flaw stands
    for each part that cannot be read. ``advance`` gets the numbers of log bytes read. Memory holds one chunk of each
    server's log, and a snapshot as a whole while it is read.
    """
    for server in servers:
        for text in zookeeper.iter_unread_logs(server.logs, -1):
            yield Flaw(server.logs, text)
    order: zookeeper.LogOrder | None = None
    for file, item in zookeeper.iter_merged(servers, advance=advance):
        if isinstance(item, BadRecord):
            if not item.unfinished:
                yield Flaw(file, f"{file} @ {item.offset:#x}: {item.reason}")
            if order is not None:
                order.take(file, item)
            continue
        if order is None:
            yield from _iter_snapshots(servers, -1, item.zxid, wanted)
            order = zookeeper.LogOrder(item.zxid - 1)
        gap = order.take(file, item)
        if gap is not None:
            yield gap
            yield from _iter_snapshots(servers, gap.after, gap.before, wanted)
        yield from _versions_of(item, wanted)
    if order is None:
        yield from _iter_snapshots(servers, -1, 1 << 63, wanted)


def log_bytes(servers: Sequence[zookeeper.ServerFiles]) -> int:
    """Return the total size in bytes of the logs that ``iter_versions`` reads."""
    return sum(file.stat().st_size for server in servers for _, file in zookeeper.iter_log_files(server))


def is_named(servers: Sequence[zookeeper.ServerFiles], path: str) -> bool:
    """Return whether a path's bytes occur anywhere in the logs, without decoding; if not, no transaction changed its node."""
    wanted = path.encode()
    for _, log in (item for server in servers for item in zookeeper.iter_log_files(server)):
        with log.open("rb") as stream:
            read = b""
            while chunk := stream.read(_CHUNK_BYTES):
                read = read[-len(wanted) :] + chunk
                if wanted in read:
                    return True
    return False


def _versions_of(item: Transaction, wanted: Callable[[str], bool]) -> Iterator[Version]:
    for change in item.changes:
        if not wanted(change.path):
            continue
        if isinstance(change, Put):
            kind: Kind = "create" if change.version is None else "set"
            number = change.version or 0
            yield Version(
                change.path, item.zxid, item.time_ms, item.session, kind, change.data, number, change.ephemeral
            )
        else:
            yield Version(change.path, item.zxid, item.time_ms, item.session, "delete", None, None)


def _iter_snapshots(
    servers: Sequence[zookeeper.ServerFiles], after: int, before: int, wanted: Callable[[str], bool]
) -> Iterator[Version | Flaw]:
    """Yield the values in snapshots from transactions after zxid ``after`` and before ``before``; a Flaw if one is
    damaged."""
    files = [file for file in zookeeper.iter_snapshot_files(servers) if file.zxid > after]
    for file, following in pairwise([*files, None]):
        assert file is not None
        try:
            nodes = file.read().nodes.values()
        except (MetadataCorrupt, LimitExceeded) as error:
            yield Flaw(file.path, error.message)
            continue
        zxid = file.zxid
        # It may show some transactions after the zxid in its name: the next snapshot shows them, if there is one before ``before``.
        limit = min(before, zxid + 1 if following is not None and following.zxid < before else before)
        shown = (node for node in nodes if after < node.modified_zxid < limit and wanted(node.path))
        for node in sorted(shown, key=attrgetter("modified_zxid")):
            times = node.modified_zxid, node.modified_ms
            yield Version(node.path, *times, None, "snapshot", node.data, node.version, node.ephemeral)
        after = max(after, limit - 1)
        if zxid >= before - 1:
            return
