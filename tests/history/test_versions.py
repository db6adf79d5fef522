"""Versions of nodes against what ZooKeeper's own classes read in the same logs."""

from collections.abc import Iterator
from pathlib import Path

from pulsar_admin.store.codec.zookeeper_log import Transaction
from pulsar_admin.store.history.versions import Flaw, Version, iter_versions
from pulsar_admin.store.sources.zookeeper import Gap, iter_merged, read_snapshot
from tests.history.files import Said, linked, said_by_zookeeper, servers

KINDS = {"1": "create", "19": "create", "2": "delete", "5": "set", "-11": "delete"}


def _expected(said: list[Said]) -> Iterator[Version]:
    failed = {item.zxid for item in said if item.kind == "14/-1"}
    for item in said:
        kind = KINDS.get(item.kind.rpartition("/")[2])
        if kind is None or item.zxid in failed:
            continue
        number = int(item.version) if kind == "set" else 0
        for path in item.path.split(" ") if item.path else ():
            ends = kind == "delete"
            found = item.zxid, item.time_ms, item.session
            data = (None, None) if ends else (item.data, number)
            yield Version(path, *found, kind, *data, item.version == "ephemeral")  # type: ignore[arg-type]


def test_every_transaction_is_what_zookeeper_reads(unpacked: Path) -> None:
    said = said_by_zookeeper()
    heads = {(item.zxid, item.time_ms, item.session, item.cxid) for item in said}
    found = [item for _, item in iter_merged(servers(unpacked)) if isinstance(item, Transaction)]
    assert [(item.zxid, item.time_ms, item.session, item.cxid) for item in found] == sorted(heads)
    assert len(found) == 1303
    logged = [item for item in iter_versions(servers(unpacked)) if not _is_of_snapshot(item)]
    assert logged == list(_expected(said))


def _is_of_snapshot(item: object) -> bool:
    return isinstance(item, Version) and item.kind == "snapshot"


def test_several_servers_together_are_whole(unpacked: Path, tmp_path: Path) -> None:
    whole = list(iter_versions(servers(unpacked)))
    first = linked(unpacked, tmp_path / "first", "log.35e", "snapshot.481", "snapshot.35d")
    second = linked(unpacked, tmp_path / "second", "log.1", "snapshot.0")
    assert list(iter_versions(servers(first, second))) == whole
    assert list(iter_versions(servers(second, first))) == whole
    assert list(iter_versions(servers(unpacked, unpacked))) == whole
    alone = list(iter_versions(servers(first)))
    (gap,) = (item for item in alone if isinstance(item, Gap))
    assert (gap.after, gap.before, gap.lost) == (0x35D, 0x482, 292)
    assert "292 transactions before 0x482 are lost" in gap.text


def test_a_snapshot_behind_a_gap_shows_what_was_written_in_it(unpacked: Path, tmp_path: Path) -> None:
    folder = linked(unpacked, tmp_path / "gap", "log.35e")
    found = list(iter_versions(servers(folder)))
    at = next(index for index, item in enumerate(found) if isinstance(item, Gap))
    shown = [item for item in found[at + 1 :] if isinstance(item, Version) and item.kind == "snapshot"]
    gap = [item for item in _expected(said_by_zookeeper()) if 0x35D < item.zxid < 0x482]
    left = {path: item for path, item in {item.path: item for item in gap}.items() if item.kind != "delete"}
    assert {item.path: (item.zxid, item.time_ms, item.value, item.version) for item in shown} == {
        path: (item.zxid, item.time_ms, item.value, item.version) for path, item in left.items()
    }
    assert len(shown) > 50
    zxids = [item.zxid for item in found if isinstance(item, Version)]
    assert zxids == sorted(zxids)


def test_before_the_oldest_log_there_are_snapshots(unpacked: Path, tmp_path: Path) -> None:
    folder = linked(unpacked, tmp_path / "old", "log.1", "log.35e", "snapshot.0")
    found = list(iter_versions(servers(folder)))
    shown = [item for item in found if isinstance(item, Version) and item.kind == "snapshot"]
    nodes = read_snapshot(unpacked / "snapshot.481", "").nodes
    older = read_snapshot(unpacked / "snapshot.35d", "").nodes
    assert {(item.path, item.zxid) for item in shown} == {
        (node.path, node.modified_zxid) for node in [*older.values(), *nodes.values()]
    }
    assert [item for item in found if not _is_of_snapshot(item)] == [
        item for item in _expected(said_by_zookeeper()) if item.zxid > 0x481
    ]
    (folder / "snapshot.35d").unlink()
    (folder / "snapshot.35d").write_bytes(b"ZKSN")
    found = list(iter_versions(servers(folder)))
    assert [item.file.name for item in found if isinstance(item, Flaw)] == ["snapshot.35d"]
    assert {item.path for item in found if isinstance(item, Version) and item.kind == "snapshot"} == {*nodes}
    only = linked(unpacked, tmp_path / "snapshots", "log.1", "log.35e", "log.482")
    assert {item.kind for item in iter_versions(servers(only)) if isinstance(item, Version)} == {"snapshot"}


def test_damage_is_told_where_it_is_and_what_it_costs(unpacked: Path, tmp_path: Path) -> None:
    folder = linked(unpacked, tmp_path / "flipped", "log.35e")
    raw = bytearray((unpacked / "log.35e").read_bytes())
    raw[5000] ^= 1
    (folder / "log.35e").write_bytes(raw)
    found = list(iter_versions(servers(folder)))
    (flaw,) = (item for item in found if isinstance(item, Flaw))
    (gap,) = (item for item in found if isinstance(item, Gap))
    assert flaw.text == f"{folder / 'log.35e'} @ 0x12b3: checksum mismatch"
    assert gap.text == f"{flaw.text}: 1 transaction before 0x377 is lost"
    both = list(iter_versions(servers(folder, unpacked)))
    assert [item for item in both if not isinstance(item, Flaw)] == list(iter_versions(servers(unpacked)))
    assert flaw in both
    (folder / "log.482").unlink()
    (folder / "log.482").write_bytes(b"JKLG" + bytes(100))
    *_, last = iter_versions(servers(folder))
    assert isinstance(last, Flaw)
    assert (last.file.name, "not the header of a log" in last.text) == ("log.482", True)
