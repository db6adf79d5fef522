"""``store history`` against the same logs as ZooKeeper's own classes read them, and values as protobuf's own code does."""

from pathlib import Path

from pulsar_admin.store.proto import managed_ledger_pb2
from tests.conftest import Cli
from tests.history.files import Said, linked, said_by_zookeeper

PLAIN = "/managed-ledgers/public/default/persistent/plain"


def _done() -> list[Said]:
    said = said_by_zookeeper()
    failed = {item.zxid for item in said if item.kind == "14/-1"}
    return [item for item in said if item.path and item.zxid not in failed]


def _rows(cli: Cli, folder: Path, tmp_path: Path, *words: str, exit_code: int = 0) -> list[dict[str, object]]:
    found = cli("--store", tmp_path / "none", "store", "history", *words, "--zookeeper", folder, "-o", "json")
    assert found.exit_code == exit_code, found.stderr
    return found.json  # type: ignore[no-any-return]


def test_every_change_of_a_path(cli: Cli, unpacked: Path, tmp_path: Path) -> None:
    rows = _rows(cli, unpacked, tmp_path, PLAIN)
    expected = [item for item in _done() if item.path == PLAIN or item.path.startswith(PLAIN + "/")]
    assert [(row["path"], row["zxid"], row["session"]) for row in rows] == [
        (item.path, f"{item.zxid:#x}", f"{item.session:#x}") for item in expected
    ]
    assert all(row["who"] == "broker 127.0.0.1:8082" for row in rows)
    lists = [(row, item) for row, item in zip(rows, expected, strict=True) if item.path == PLAIN]
    before: list[int] = []
    for row, item in lists:
        message = managed_ledger_pb2.ManagedLedgerInfo.FromString(item.data)
        ids = [info.ledgerId for info in message.ledgerInfo]
        assert [one["ledgerId"] for one in row["new"]["value"]["ledgers"]] == sorted(ids)  # type: ignore[index]
        for came in set(ids) - set(before):
            assert f"ledger {came}" in str(row["what"])
        for gone in set(before) - set(ids):
            assert str(gone) in str(row["what"])
        before = ids
    assert "rolled over to ledger 19" in str(lists[2][0]["what"])


def test_a_topic_has_its_ledgers(cli: Cli, unpacked: Path, tmp_path: Path) -> None:
    """Created and deleted ones by what their own metadata claims, from protobuf's own decoder."""
    rows = _rows(cli, unpacked, tmp_path, "public/default/doomed")
    mine: set[str] = set()
    expected = []
    for item in _done():
        if item.path.startswith("/ledgers/0") and b"public/default/persistent/doomed" in item.data:
            mine.add(item.path)
        if item.path in mine:
            expected.append(f"{item.zxid:#x}")
    assert [row["zxid"] for row in rows if str(row["path"]).startswith("/ledgers")] == expected
    assert len(mine) > 5
    kinds = [row["kind"] for row in rows if row["path"] == "/managed-ledgers/public/default/persistent/doomed"]
    assert (kinds[0], kinds[-1]) == ("create", "delete")


def test_gaps_are_rows(cli: Cli, unpacked: Path, tmp_path: Path) -> None:
    folder = linked(unpacked, tmp_path / "gap", "log.35e", "snapshot.481")
    rows = _rows(cli, folder, tmp_path, "/managed-ledgers", exit_code=1)
    (gap,) = (row for row in rows if row["kind"] == "gap")
    assert (gap["after"], gap["before"], gap["lost"]) == ("0x35d", "0x482", 292)
    table = cli("--store", tmp_path / "none", "store", "history", "--zookeeper", folder).ends(1)
    assert "292 transactions before 0x482 are lost" in table.stdout
    both = _rows(cli, folder, tmp_path, "/managed-ledgers", "--zookeeper", str(unpacked))
    assert both == _rows(cli, unpacked, tmp_path, "/managed-ledgers")


def test_a_name_without_any_change_is_told(cli: Cli, unpacked: Path, tmp_path: Path) -> None:
    result = cli("--store", tmp_path / "none", "store", "history", "public/default/no-such", "--zookeeper", unpacked)
    assert result.exit_code == 0
    assert "no change of public/default/no-such" in result.stderr


def test_what_has_no_history(cli: Cli, demo_store: Path, tmp_path: Path) -> None:
    cli("--store", demo_store, "store", "history").ends(3, "RocksDB, which keeps no history")
    assert cli("--store", tmp_path / "none", "store", "history").exit_code == 5
    assert cli("--store", demo_store, "store", "history", "--zookeeper", tmp_path).exit_code == 5


def test_files_that_are_gone_are_no_empty_history(cli: Cli, unpacked: Path, tmp_path: Path) -> None:
    store, folder = tmp_path / "s", linked(unpacked, tmp_path / "zk")
    cli("--store", store, "store", "import", "cluster", "--zookeeper", folder).ends(0)
    folder.rename(tmp_path / "away")
    for words in (["store", "history"], ["store", "diff", "--from", "0x482"], ["topics", "undelete"]):
        cli("--store", store, *words).ends(3, f"{folder} no longer has metadata")
        assert cli("--store", store, *words, "--zookeeper", unpacked).stdout
    states = ["topics", "subscription-history", "public/default/plain", "-s", "half"]
    assert f"{folder} no longer has metadata" in cli("--store", store, *states).stderr
