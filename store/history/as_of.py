"""The metadata tree as of a moment: a time, or a ZooKeeper transaction."""

import re
from collections.abc import Iterator, Sequence
from datetime import tzinfo

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.zookeeper_log import Transaction
from pulsar_admin.store.errors import InvalidValue, LimitExceeded, MetadataCorrupt, NothingMatches
from pulsar_admin.store.sources import zookeeper
from pulsar_admin.store.sources.cluster import with_history
from pulsar_admin.store.sources.nodes import MetadataDirectory, Source
from pulsar_admin.store.timespec import format_time_ms, parse_time_point

_ZXID = re.compile(r"0[xX]([0-9a-fA-F]{1,16})")


class Moment(Struct, frozen=True):
    """A moment in the metadata's history: either a time (epoch ms) or the ZooKeeper transaction ``zxid``."""

    time_ms: int | None = None
    zxid: int | None = None

    def __str__(self) -> str:
        return f"{self.zxid:#x}" if self.time_ms is None else format_time_ms(self.time_ms)


def parse_moment(text: str, *, now_ms: int, tz: tzinfo | None = None) -> Moment:
    """Return the moment in a text: a zxid as ZooKeeper prints it (``0x4a1``), or a time as ``parse_time_point`` reads
    it.

    Raises InvalidValue.
    """
    match = _ZXID.fullmatch(text.strip())
    if match is None:
        return Moment(time_ms=parse_time_point(text, now_ms=now_ms, tz=tz))
    zxid = int(match[1], 16)
    if zxid >= 1 << 63:
        raise InvalidValue(f"zxid {text} is beyond 63 bits", hint="write it as ZooKeeper's tools show it", value=text)
    return Moment(zxid=zxid)


def read_tree_at(servers: Sequence[zookeeper.ServerFiles], moment: Moment, problems: list[str]) -> zookeeper.Tree:
    """Return the metadata tree as of a moment, from the files of servers of one ensemble.

    ``problems`` gets sentences about missing and unreadable parts of the files. For a time, the tree includes every
    transaction before the first one that is later by the leader's clock. Raises NothingMatches if the history begins
    after the moment or ends before its zxid, and what ``store.sources.zookeeper.read_tree`` raises.
    """
    return zookeeper.read_tree(servers, problems, find_zxid(servers, moment, problems))


def past_metadata(metadata: Source | None, moment: Moment, problems: list[str]) -> MetadataDirectory:
    """Return the files of a cluster's metadata, limited to the transactions up to a moment (``as_of_zxid``).

    ``problems``: as in ``find_zxid``. Raises Refused for metadata that keeps no history, and NothingMatches.
    """
    metadata_files = with_history(metadata)
    return replace(metadata_files, as_of_zxid=find_zxid((metadata_files.server,), moment, problems))


def find_zxid(servers: Sequence[zookeeper.ServerFiles], moment: Moment, problems: list[str]) -> int:
    """Return the zxid of the last transaction up to a moment; raises NothingMatches if the history begins after the
    moment or ends before its zxid.

    ``problems`` gets a sentence if transactions are missing just before the first one that is later than a time,
    because some of them may be older.
    """
    if moment.time_ms is None:
        assert moment.zxid is not None
        begins = [
            *(snapshot.zxid for snapshot in zookeeper.iter_snapshot_files(servers)),
            *(first for first, _ in _first_times(servers)),
        ]
        if moment.zxid < min(begins, default=0) or moment.zxid < 1:
            raise _too_early(servers, Moment(zxid=moment.zxid))
        newest = max(zookeeper.newest_zxid(place) for server in servers for place in (server.snapshots, server.logs))
        if moment.zxid > newest:
            raise NothingMatches(
                f"the newest transaction here is {newest:#x}, before {moment.zxid:#x}",
                hint="name the copies of other servers with --zookeeper DIR[,LOGDIR], or a time: now is the newest state",
            )
        return moment.zxid
    first = max((zxid for zxid, time_ms in _first_times(servers) if time_ms <= moment.time_ms), default=None)
    last = None if first is None else _last_until(servers, first, moment.time_ms, problems)
    return _snapshot_before(servers, moment) if last is None else last


def _first_times(servers: Sequence[zookeeper.ServerFiles]) -> Iterator[tuple[int, int]]:
    """Yield (zxid, time in ms) of the first transaction of each log."""
    for server in servers:
        for _, file in zookeeper.iter_log_files(server):
            first = next((item for item in zookeeper.read_log(file) if isinstance(item, Transaction)), None)
            if first is not None:
                yield first.zxid, first.time_ms


def _last_until(servers: Sequence[zookeeper.ServerFiles], first: int, time_ms: int, problems: list[str]) -> int | None:
    zxid = None
    order = zookeeper.LogOrder(first - 1)
    for file, item in zookeeper.iter_merged(servers, first):
        gap = order.take(file, item)
        if not isinstance(item, Transaction) or item.zxid < first:
            continue
        if item.time_ms > time_ms:
            late = f"{gap.text}; some of these changes may be older than {format_time_ms(time_ms)}" if gap else ""
            problems += [late] * bool(late)
            break
        zxid = item.zxid
    return zxid


def _snapshot_before(servers: Sequence[zookeeper.ServerFiles], moment: Moment) -> int:
    """Return the newest zxid in the newest snapshot that is older than all logs and has no node modified after a
    moment.

    Raises NothingMatches without such a snapshot.
    """
    assert moment.time_ms is not None
    begin = min((zxid for zxid, _ in _first_times(servers)), default=1 << 63)
    for file in reversed([*zookeeper.iter_snapshot_files(servers)]):
        if 0 < file.zxid < begin:
            try:
                snapshot = file.read()
            except (MetadataCorrupt, LimitExceeded):
                continue
            if max((node.modified_ms for node in snapshot.nodes.values()), default=0) <= moment.time_ms:
                return snapshot.newest_zxid
    raise _too_early(servers, moment)


def _too_early(servers: Sequence[zookeeper.ServerFiles], moment: Moment) -> NothingMatches:
    first = min(_first_times(servers), default=None)
    begin = (
        "there is no log"
        if first is None
        else f"logs begin with transaction {first[0]:#x} at {format_time_ms(first[1])}"
    )
    return NothingMatches(
        f"the history does not go back to {moment}: {begin}",
        hint="name the copies of other servers, or older backups of their directories, with --zookeeper DIR[,LOGDIR]",
        moment=str(moment),
    )
