"""ZooKeeper's files read node by node: the same nodes as at once, and the ids that the recorded broker went on with."""

import gzip
from pathlib import Path

import pytest

from pulsar_admin.store.codec.ledgermetadata import ledger_id_of_path
from pulsar_admin.store.errors import MetadataCorrupt
from pulsar_admin.store.sources.zookeeper import ServerFiles, ZooKeeperStream
from tests.deep import deep_but_for
from tests.worlds import GOLDEN, STATES, unpack, world
from tests.zookeeper_files import read_zookeeper_nodes


def streamed(directory: Path, problems: list[str]) -> tuple[list[tuple[str, bytes]], int]:
    stream = ZooKeeperStream(ServerFiles(directory, directory), problems)
    return sorted(stream.nodes()), stream.next_ledger_id


def check(directory: Path) -> int:
    problems: tuple[list[str], list[str]] = ([], [])
    found, next_id = streamed(directory, problems[0])
    assert found == [(node.path, node.data) for node in read_zookeeper_nodes(directory, problems[1])]
    assert {*problems[0]} <= {*problems[1]}
    ids = [ledger_id for path, _ in found if (ledger_id := ledger_id_of_path(path)) is not None]
    assert next_id > max(ids)
    return next_id


@pytest.mark.parametrize("state", STATES)
def test_as_at_once(state: str) -> None:
    check(world("cluster") / state / "zookeeper" / "version-2")


@deep_but_for((1,), "packed", [False, True])
def test_a_snapshot_alone(tmp_path: Path, packed: bool) -> None:
    """What is told of ids by the count of nodes ever made below ``idgen``, which the logs tell, too."""
    source = world("cluster") / "crashed" / "zookeeper" / "version-2"
    newest = max(source.glob("snapshot.*"), key=lambda path: int(path.suffix[1:], 16))
    before = [log for log in source.glob("log.*") if int(log.suffix[1:], 16) <= int(newest.suffix[1:], 16)]
    for file in (newest, *before):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    by_logs = check(tmp_path)
    for log in before:
        (tmp_path / log.name).unlink()
    if packed:
        (tmp_path / f"{newest.name}.gz").write_bytes(gzip.compress(newest.read_bytes()))
        (tmp_path / newest.name).unlink()
    assert check(tmp_path) == by_logs


def test_a_damaged_snapshot_is_no_answer(tmp_path: Path) -> None:
    source = world("cluster") / "crashed" / "zookeeper" / "version-2"
    newest = max(source.glob("snapshot.*"), key=lambda path: int(path.suffix[1:], 16))
    data, packed = bytearray(newest.read_bytes()), bytearray(gzip.compress(newest.read_bytes()))
    data[data.index(b"/ledgers/00/0000/L")] ^= 1
    packed[-6] ^= 1
    for written, suffix, said in ((data, "", "snapshot"), (packed, ".gz", "gzip")):
        file = tmp_path / f"{newest.name}{suffix}"
        for damaged in (written, written[: len(written) // 2]):
            file.write_bytes(damaged)
            with pytest.raises(MetadataCorrupt, match=said):
                streamed(tmp_path, [])
        file.unlink()


@pytest.mark.parametrize("archive", ["zookeeper-small", "zookeeper-version-2"])
def test_recorded_files(tmp_path: Path, archive: str) -> None:
    unpack(GOLDEN / f"{archive}.tar.xz", tmp_path)
    for directory in {file.parent for file in tmp_path.rglob("log.*")}:
        found, _ = streamed(directory, [])
        assert found == [(node.path, node.data) for node in read_zookeeper_nodes(directory, [])]
