"""The tree as of any transaction and time, against a replay in the test of what ZooKeeper's own classes read."""

import struct
from pathlib import Path
from zlib import adler32

import pytest

from pulsar_admin.store.errors import InvalidValue, NothingMatches, SourceNotFound
from pulsar_admin.store.history.as_of import Moment, find_zxid, parse_moment, read_tree_at
from pulsar_admin.store.history.servers import find_servers, parse_place
from tests.history.files import Said, linked, said_by_zookeeper, servers

Plain = dict[str, tuple[bytes, int, int, int]]  # path → data, modified ms, modified zxid, version


def _trees(said: list[Said]) -> dict[int, Plain]:
    """The tree behind each transaction, replayed without ours; a multi with an error did nothing."""
    failed = {item.zxid for item in said if item.kind == "14/-1"}
    trees: dict[int, Plain] = {}
    tree: Plain = {}
    for item in said:
        kind = item.kind.rpartition("/")[2]
        if item.zxid not in failed:
            tree = dict(tree)
            if kind in ("1", "19"):
                tree[item.path] = item.data, item.time_ms, item.zxid, 0
            elif kind == "5":
                tree[item.path] = item.data, item.time_ms, item.zxid, int(item.version)
            elif kind in ("2", "-11"):
                for path in item.path.split():
                    tree.pop(path, None)
        trees[item.zxid] = tree
    return trees


def _plain(folder: Path, moment: Moment) -> Plain:
    problems: list[str] = []
    tree = read_tree_at(servers(folder), moment, problems)
    assert problems == []
    return {
        path: (node.data, node.modified_ms, node.modified_zxid, node.version)
        for path, node in tree.nodes.items()
        if not path.startswith("/zookeeper")
    }


def test_as_of_transactions_and_times(unpacked: Path, tmp_path: Path) -> None:
    said = said_by_zookeeper()
    trees = _trees(said)
    times = {item.zxid: item.time_ms for item in said}
    without_snapshots = linked(unpacked, tmp_path / "logs", "snapshot.0", "snapshot.35d", "snapshot.481")
    for zxid in (1, 2, 0x100, 0x35C, 0x35D, 0x35E, 0x400, 0x480, 0x481, 0x482, 0x483, max(times)):
        assert _plain(unpacked, Moment(zxid=zxid)) == trees[zxid]
        assert _plain(without_snapshots, Moment(zxid=zxid)) == trees[zxid]
        last = max(other for other, time_ms in times.items() if time_ms <= times[zxid])
        assert _plain(unpacked, Moment(time_ms=times[zxid])) == trees[last]
    assert _plain(unpacked, Moment(time_ms=times[max(times)] + 10**9)) == trees[max(times)]
    # The leader's clock stepped forward and back: what follows the first later transaction is not of the moment.
    raw = bytearray((unpacked / "log.482").read_bytes())
    at = raw.index(struct.pack(">qq", 0x491, times[0x491])) - 12
    raw[at + 20 : at + 28] = struct.pack(">q", times[0x491] + 10**9)
    raw[at - 12 : at - 4] = struct.pack(">q", adler32(raw[at : at + int.from_bytes(raw[at - 4 : at])]))
    (linked(unpacked, tmp_path / "clock", "log.482") / "log.482").write_bytes(raw)
    assert find_zxid(servers(tmp_path / "clock"), Moment(time_ms=times[0x4A0]), []) == 0x490


def test_a_snapshot_that_saw_later_transactions_is_not_the_base(unpacked: Path, tmp_path: Path) -> None:
    """snapshot.481 as it would be if it had begun at 0x400 and taken until 0x481."""
    folder = linked(unpacked, tmp_path / "fuzzy", "snapshot.481")
    (folder / "snapshot.400").write_bytes((unpacked / "snapshot.481").read_bytes())
    assert _plain(folder, Moment(zxid=0x420)) == _trees(said_by_zookeeper())[0x420]
    (folder / "snapshot.35d").unlink()
    (folder / "snapshot.0").unlink()
    (folder / "log.1").unlink()
    problems: list[str] = []
    read_tree_at(servers(folder), Moment(zxid=0x420), problems)
    assert "what was written after 0x420 may show" in problems[0]


def test_before_all_files(unpacked: Path, tmp_path: Path) -> None:
    folder = linked(unpacked, tmp_path / "late", "log.1", "snapshot.0", "log.35e", "snapshot.35d")
    for moment in (Moment(zxid=0x100), Moment(time_ms=1)):
        with pytest.raises(NothingMatches, match="logs begin with transaction 0x482"):
            read_tree_at(servers(folder), moment, [])
    trees = _trees(said_by_zookeeper())
    assert _plain(folder, Moment(zxid=0x481)) == trees[0x481]
    times = {item.zxid: item.time_ms for item in said_by_zookeeper()}
    assert _plain(folder, Moment(time_ms=times[0x482] - 1)) == trees[0x481]


def test_behind_all_files(unpacked: Path, tmp_path: Path) -> None:
    snapshots = linked(unpacked, tmp_path / "snapshots", "log.1", "log.35e", "log.482")
    assert find_zxid(servers(snapshots), Moment(time_ms=1 << 50), []) == 0x481
    with pytest.raises(NothingMatches, match="the newest transaction here is 0x517, before 0x9999"):
        read_tree_at(servers(unpacked), Moment(zxid=0x9999), [])


def test_a_time_in_a_gap_is_told(unpacked: Path, tmp_path: Path) -> None:
    folder = linked(unpacked, tmp_path / "gap", "log.35e")
    times = {item.zxid: item.time_ms for item in said_by_zookeeper()}
    problems: list[str] = []
    tree = read_tree_at(servers(folder), Moment(time_ms=times[0x400]), problems)
    assert tree.zxid == 0x35D
    assert "292 transactions before 0x482 are lost; some of these changes may be older than 2026-11-21" in problems[0]
    # Behind a damaged record, too, it is the last transaction that is not later.
    raw = bytearray((unpacked / "log.35e").read_bytes())
    raw[5000] ^= 1
    (folder / "log.35e").write_bytes(raw)
    assert find_zxid(servers(folder), Moment(time_ms=times[0x400]), []) == 0x400


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("0x4a1", Moment(zxid=0x4A1)),
        ("0X100000001", Moment(zxid=1 << 32 | 1)),
        ("2026-11-21T09:33:00Z", Moment(time_ms=1795253580000)),
        ("-1h", Moment(time_ms=1795250000000 - 3_600_000)),
    ],
)
def test_moments(text: str, moment: Moment) -> None:
    assert parse_moment(text, now_ms=1795250000000) == moment


@pytest.mark.parametrize("text", ["", "0x", "0x8000000000000000", "0xgg", "4a1"])
def test_no_moments(text: str) -> None:
    with pytest.raises(InvalidValue):
        parse_moment(text, now_ms=0)


def test_where_servers_are(unpacked: Path, tmp_path: Path) -> None:
    snapshots = linked(unpacked, tmp_path / "data" / "version-2", "log.1", "log.35e", "log.482")
    logs = linked(unpacked, tmp_path / "logs" / "version-2", "snapshot.0", "snapshot.35d", "snapshot.481")
    (apart,) = servers(snapshots)
    apart = type(apart)(snapshots, logs)
    assert parse_place(f"{tmp_path / 'data'},{tmp_path / 'logs'}") == apart
    assert parse_place(f"{tmp_path / 'logs'},{tmp_path / 'data'}") == apart
    with pytest.raises(SourceNotFound, match="names 3 directories"):
        parse_place(f"{tmp_path / 'data'},{tmp_path / 'logs'},{tmp_path}")
    row = {"kind": "zookeeper", "path": str(snapshots), "logs": str(logs)}
    assert find_servers([row], [f"{snapshots},{logs}"]) == (apart,)


def test_a_damaged_snapshot_hides_no_earlier_moment(unpacked: Path, tmp_path: Path) -> None:
    """In front of all logs the newest snapshot that can be read, and that shows nothing behind the moment, is the answer."""
    folder = linked(unpacked, tmp_path / "damaged", "log.1", "log.35e", "snapshot.481")
    times, trees = {item.zxid: item.time_ms for item in said_by_zookeeper()}, _trees(said_by_zookeeper())
    whole = (unpacked / "snapshot.481").read_bytes()
    for data in (whole[: len(whole) // 2], b"", b"\xff" * 200):
        (folder / "snapshot.481").write_bytes(data)
        assert find_zxid(servers(folder), Moment(time_ms=times[0x482] - 1), []) == 0x35D
    (folder / "snapshot.481").write_bytes(whole)
    assert find_zxid(servers(folder), Moment(time_ms=times[0x482] - 1), []) == 0x481
    newest_ms = max(node[1] for node in trees[0x35D].values())
    assert find_zxid(servers(folder), Moment(time_ms=newest_ms), []) == 0x35D
    with pytest.raises(NothingMatches):
        find_zxid(servers(folder), Moment(time_ms=newest_ms - 1), [])
    assert _plain(folder, Moment(zxid=0x35D)) == trees[0x35D]
    (folder / "snapshot.481").write_bytes(b"")
    (folder / "snapshot.35d").write_bytes(b"")
    with pytest.raises(NothingMatches):
        find_zxid(servers(folder), Moment(time_ms=times[0x482] - 1), [])
