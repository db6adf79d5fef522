"""Names near one that is not there: what an error's hint suggests, and what finding it costs."""

from pathlib import Path

import pytest

from pulsar_admin.store.history.versions import is_named
from pulsar_admin.store.sources.zookeeper import ServerFiles
from tests.conftest import Cli
from tests.stores import imported


def test_a_ledger_that_is_there_without_metadata_is_no_slip_for_one_that_has_some(cli: Cli) -> None:
    """``ledgers delete`` would offer live ledgers for deletion."""
    store = imported("small", "clean")
    (gone, *_) = [row["ledgerId"] for row in cli.rows(store, "ledgers orphans") if row["reason"] == "gone"]
    refused = cli("--store", store, "-o", "json", "ledgers", "delete", str(gone), "--dry-run")
    assert (refused.exit_code, refused.error["context"].get("near")) == (5, None)
    assert cli("--store", store, *refused.error["hint"].rpartition("pulsar-admin ")[2].split()).exit_code == 0


def test_a_ledger_with_two_digits_exchanged_is_near(cli: Cli, demo_store: Path) -> None:
    assert cli.on(demo_store, "ledgers info 186 -o json").error["context"]["near"] == ["168", "166", "156"]


def test_a_topic_that_a_broker_deleted_is_said_to_be(cli: Cli) -> None:
    store = imported("cluster", "crashed")
    result = cli("--store", store, "topics", "why", "public/default/doomed")
    assert result.exit_code == 5
    assert "it was deleted at 2026-11-21T09:31:40.896Z by broker 127.0.0.1:8082: " in result.stderr
    for command in ("store history", "topics undelete"):
        assert f"{command} persistent://public/default/doomed" in result.stderr
    assert "deleted" not in cli("--store", store, "topics", "why", "public/default/nope").stderr


@pytest.mark.parametrize("length", [1, 2, 7, 64])
def test_a_path_is_found_wherever_it_lies_in_a_log(
    length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulsar_admin.store.history.versions._CHUNK_BYTES", length)
    (tmp_path / "log.1").write_bytes(b"xx/a/b" + bytes(50) + b"/topics/t" + bytes(3))
    servers = [ServerFiles(tmp_path, tmp_path)]
    assert [is_named(servers, path) for path in ("/topics/t", "/a/b", "/topics/u", "/b/a")] == [
        True,
        True,
        False,
        False,
    ]


def test_a_topic_that_a_change_of_the_store_deleted_names_the_change_until_it_is_undone(
    cli: Cli, demo_copy: Path
) -> None:
    store = ["--store", str(demo_copy / "pulsar-store")]
    assert cli(*store, "topics", "delete", "public/default/batched", "--force", "--yes").exit_code == 0
    cli(*store, "topics", "stats", "public/default/batched").ends(5, "change 1 of this store deleted it at 20")
    listed = cli(*store, "undo").ends(2)
    assert "topics delete" in listed.stdout
    assert listed.stderr.rstrip().endswith("store undo 1 --dry-run")
    # A change since that was undone hides the one before it no more than another one does.
    assert cli(*store, "topics", "skip", "public/default/plain", "-s", "half", "-n", "1").exit_code == 0
    assert cli(*store, "store", "undo", "2").exit_code == 0
    cli(*store, "topics", "stats", "public/default/batched").ends(5, "change 1 of this store deleted it at 20")
    assert cli(*store, "undo", "1").exit_code == 0
    assert cli(*store, "topics", "stats", "public/default/batched").exit_code == 0
