"""ZooKeeper's own files: the tree restored from any snapshot and the logs after it is the same."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from store.codec.cursor import decode_cursor_info
from store.codec.ledgermetadata import decode_ledger_metadata, ledger_id_of_path
from store.codec.managedledger import decode_managed_ledger
from store.codec.zookeeper import Transaction, ZooKeeperNode, decode_snapshot, iter_transactions
from store.errors import MetadataCorrupt, SourceNotFound, StoreError
from store.names import topic_of_path
from store.sources.zookeeper import find_zookeeper, read_zookeeper_nodes

GOLDEN = Path(__file__).parent.parent / "golden" / "zookeeper-version-2.tar.xz"
WRITTEN_BYTES = 1 << 21  # every record lies before it; what follows are the zeros of preallocation


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zookeeper")
    with tarfile.open(GOLDEN) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                (folder / Path(member.name).name).write_bytes(file.read(WRITTEN_BYTES))
    return folder


def _linked(unpacked: Path, folder: Path, *without: str) -> Path:
    folder.mkdir()
    for file in unpacked.iterdir():
        if file.name not in without:
            os.link(file, folder / file.name)
    return folder


def _nodes(directory: Path) -> dict[str, ZooKeeperNode]:
    problems: list[str] = []
    found = {node.path: node for node in read_zookeeper_nodes(directory, problems)}
    assert problems == []
    return found


def test_every_snapshot_leads_to_the_same_tree(unpacked: Path, tmp_path: Path) -> None:
    """Three ways that ZooKeeper promises are one: the newest snapshot, an older one, and the logs alone."""
    newest = _nodes(unpacked)
    older = _nodes(_linked(unpacked, tmp_path / "older", "snapshot.481"))
    from_logs = _nodes(_linked(unpacked, tmp_path / "logs", "snapshot.481", "snapshot.35d", "snapshot.0"))
    assert len(newest) > 300
    assert older == newest
    assert {path for path in from_logs if not path.startswith("/zookeeper")} == {
        path for path in newest if not path.startswith("/zookeeper")
    }
    for path, node in from_logs.items():
        assert (node.data, node.version) == (newest[path].data, newest[path].version)


def test_the_snapshot_equals_the_logs_before_it(unpacked: Path) -> None:
    """snapshot.481 holds all transactions to zxid 0x481 and, as it was taken at a start, none after."""
    snapshot = {node.path: node for node in decode_snapshot((unpacked / "snapshot.481").read_bytes(), "snapshot")}
    logged = [item for name in ("log.1", "log.35e") for item in iter_transactions((unpacked / name).read_bytes(), name)]
    assert all(isinstance(item, Transaction) for item in logged)
    last = {change.path: change for item in logged if isinstance(item, Transaction) for change in item.changes}
    kept = {path: node for path, node in snapshot.items() if path in last and not node.ephemeral}
    assert len(kept) > 250
    for path, node in kept.items():
        assert getattr(last[path], "data", None) == node.data


def test_the_values_are_pulsars(unpacked: Path) -> None:
    kinds = {"topics": 0, "cursors": 0, "ledgers": 0}
    for path, node in _nodes(unpacked).items():
        if ledger_id_of_path(path) is not None:
            decode_ledger_metadata(node.data, path)
            kinds["ledgers"] += 1
        elif topic_of_path(path) is not None:
            decode_managed_ledger(node.data, path)
            kinds["topics"] += 1
        elif topic_of_path(path.rpartition("/")[0]) is not None:
            decode_cursor_info(node.data, path)
            kinds["cursors"] += 1
    assert kinds["topics"] > 30
    assert kinds["cursors"] > 30
    assert kinds["ledgers"] > 100


def test_a_log_cut_anywhere_keeps_what_was_whole(unpacked: Path, tmp_path: Path) -> None:
    raw = (unpacked / "log.482").read_bytes()
    whole = [item for item in iter_transactions(raw, "log") if isinstance(item, Transaction)]
    end = len(raw.rstrip(b"\0"))
    assert len(whole) > 20
    for cut in (end - 1, end - 7, end // 2, 40, 17):
        items = list(iter_transactions(raw[:cut], "log"))
        kept = [item for item in items if isinstance(item, Transaction)]
        assert kept == whole[: len(kept)]
        assert len(kept) < len(whole)
    folder = _linked(unpacked, tmp_path / "cut", "log.482")
    (folder / "log.482").write_bytes(raw[: end - 3])
    assert _nodes(folder)  # the newest log may end so after a kill: no problem


def test_a_flipped_bit_is_never_believed(unpacked: Path) -> None:
    raw = bytearray((unpacked / "log.482").read_bytes())
    whole = list(iter_transactions(bytes(raw), "log"))
    end = len(bytes(raw).rstrip(b"\0"))
    for offset in range(16, end, max(1, end // 200)):
        raw[offset] ^= 0x10
        found = [item for item in iter_transactions(bytes(raw), "log") if isinstance(item, Transaction)]
        assert found == whole[: len(found)]
        assert len(found) < len(whole)
        raw[offset] ^= 0x10


def test_a_damaged_snapshot_falls_back_to_the_one_before(unpacked: Path, tmp_path: Path) -> None:
    folder = _linked(unpacked, tmp_path / "damaged", "snapshot.481")
    raw = (unpacked / "snapshot.481").read_bytes()
    (folder / "snapshot.481").write_bytes(raw[: len(raw) // 2])
    problems: list[str] = []
    found = {node.path: node for node in read_zookeeper_nodes(folder, problems)}
    assert found == _nodes(unpacked)
    assert "snapshot.481" in problems[0]


@pytest.mark.parametrize("raw", [b"", b"ZKSN", b"ZKLG" + bytes(12), b"ZKSN" + bytes(12), b"\xff" * 64])
def test_what_is_no_snapshot_is_refused(raw: bytes) -> None:
    with pytest.raises(StoreError) as caught:
        list(decode_snapshot(raw, "snapshot.1"))
    assert isinstance(caught.value, MetadataCorrupt)
    assert "snapshot.1" in caught.value.message


def test_an_empty_directory_is_no_zookeeper(tmp_path: Path) -> None:
    assert find_zookeeper(tmp_path) is None
    with pytest.raises(SourceNotFound):
        list(read_zookeeper_nodes(tmp_path, []))
