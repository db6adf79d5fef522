"""The metadata tree as of a moment: a time, or a transaction of ZooKeeper's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import tzinfo

from store.codec.zookeeper_log import Transaction
from store.errors import InvalidValue, LimitExceeded, MetadataCorrupt, NothingMatches
from store.frozen import frozen
from store.sources.zookeeper import (
    ServerFiles,
    Tree,
    iter_log_files,
    iter_merged,
    iter_snapshot_files,
    read_log,
    read_snapshot,
    read_tree,
)

_ZXID = re.compile(r"0[xX]([0-9a-fA-F]{1,16})")


@frozen
class Moment:
    """A time in ms, or the transaction ``zxid``: exactly one of them."""

    time_ms: int | None = None
    zxid: int | None = None

    def __str__(self) -> str:
        from store.timespec import format_time_ms

        return f"{self.zxid:#x}" if self.time_ms is None else format_time_ms(self.time_ms)


def parse_moment(text: str, *, now_ms: int, tz: tzinfo | None = None) -> Moment:
    """Parse a zxid as ZooKeeper shows it, ``0x4a1``, or a time as everywhere; raises InvalidValue."""
    from store.timespec import parse_time_point

    match = _ZXID.fullmatch(text.strip())
    if match is None:
        return Moment(time_ms=parse_time_point(text, now_ms=now_ms, tz=tz))
    zxid = int(match[1], 16)
    if zxid >= 1 << 63:
        raise InvalidValue(f"zxid {text} is beyond 63 bits", hint="write it as ZooKeeper's tools show it", value=text)
    return Moment(zxid=zxid)


def read_tree_at(servers: Sequence[ServerFiles], moment: Moment, problems: list[str]) -> Tree:
    """Return the nodes as of MOMENT by SERVERS, copies of one ensemble; what is missing of them is told in PROBLEMS.

    As of a time: behind the last transaction in front of the first one that is later, by the leaders' clocks. Raises NothingMatches
    where nothing reaches so far back, and as ``store.sources.zookeeper.read_tree``.
    """
    until = find_zxid(servers, moment)
    tree = read_tree(servers, problems, until)
    if tree.zxid < 1 <= until:
        raise _too_early(servers, moment)
    if moment.zxid is not None and tree.zxid < until and not problems:
        problems.append(
            f"the newest transaction here is {tree.zxid:#x}: what came up to {until:#x} is not in these files"
        )
    return tree


def find_zxid(servers: Sequence[ServerFiles], moment: Moment) -> int:
    """Return the last transaction of MOMENT; raises NothingMatches where the files begin later."""
    if moment.time_ms is None:
        assert moment.zxid is not None
        return moment.zxid
    first = max((zxid for zxid, time_ms in _first_times(servers) if time_ms <= moment.time_ms), default=None)
    found = None if first is None else _last_until(servers, first, moment.time_ms)
    return _snapshot_before(servers, moment) if found is None else found


def _first_times(servers: Sequence[ServerFiles]) -> Iterator[tuple[int, int]]:
    """Yield (zxid, time in ms) of the first transaction of each log."""
    for server in servers:
        for _, file in iter_log_files(server):
            first = next((item for item in read_log(file) if isinstance(item, Transaction)), None)
            if first is not None:
                yield first.zxid, first.time_ms


def _last_until(servers: Sequence[ServerFiles], first: int, time_ms: int) -> int | None:
    found = None
    for _, item in iter_merged(servers, first):
        if isinstance(item, Transaction) and item.zxid >= first:
            if item.time_ms > time_ms:
                break
            found = item.zxid
    return found


def _snapshot_before(servers: Sequence[ServerFiles], moment: Moment) -> int:
    """Return the transaction of the newest snapshot in front of all logs that shows nothing behind MOMENT; raises NothingMatches."""
    assert moment.time_ms is not None
    begin = min((zxid for zxid, _ in _first_times(servers)), default=1 << 63)
    for zxid, extension, file in reversed([*iter_snapshot_files(servers)]):
        if 0 < zxid < begin:
            try:
                snapshot = read_snapshot(file, extension)
            except (MetadataCorrupt, LimitExceeded):
                continue
            if max((node.modified_ms for node in snapshot.nodes.values()), default=0) <= moment.time_ms:
                return snapshot.newest_zxid
    raise _too_early(servers, moment)


def _too_early(servers: Sequence[ServerFiles], moment: Moment) -> NothingMatches:
    from store.timespec import format_time_ms

    first = min(_first_times(servers), default=None)
    begin = (
        "there is no log"
        if first is None
        else f"logs begin with transaction {first[0]:#x} at {format_time_ms(first[1])}"
    )
    return NothingMatches(
        f"nothing here reaches back to {moment}: {begin}",
        hint="name the copies of other servers, or older backups of their directories, with --zookeeper DIR[,LOGDIR]",
        moment=str(moment),
    )
