"""Imports and refreshes of a live ensemble that drops the reader, or moves: nothing half-imported, the earlier state stays."""

from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.fake_zookeeper import FakeZooKeeper
from tests.stores import copied, values_of
from tests.test_ensemble_export import CHANGES, change, export, nodes_of, state
from tests.worlds import world


@pytest.fixture
def server(tmp_path: Path) -> FakeZooKeeper:
    return FakeZooKeeper(nodes_of(copied("small", "clean", tmp_path)))


def imported(server: FakeZooKeeper, store: Path) -> tuple[object, ...]:
    bookie = world("small") / "clean" / "bookkeeper"
    return (
        *f"--store {store} store import cluster --zookeeper".split(),
        server.address,
        "--bookie",
        bookie,
        "-o",
        "json",
    )


def tree(store: Path) -> dict[str, bytes]:
    return {path: value for path, value in values_of(store).items() if path != "/"}


def served(server: FakeZooKeeper) -> dict[str, bytes]:
    return {path: value for path, (value, _) in state(server).items() if path != "/"}


@deep_but_for((0, 1, 4), "at", [1, 2, 3, 4, 6])
def test_an_import_that_is_dropped_goes_on_from_nothing(
    at: int, server: FakeZooKeeper, tmp_path: Path, cli: Cli
) -> None:
    store = tmp_path / "new"
    server.before = lambda server, number, _: number == at
    with server:
        cli(*imported(server, store)).fails(5, "source-not-found", server.address)
        assert cli("--store", store, "topics", "list", "public/default").exit_code != 0
        server.put("/admin/clusters/another", b"{}")
        assert cli(*imported(server, store)).exit_code == 0
        assert tree(store) == served(server)


def test_a_refresh_that_is_dropped_leaves_the_store_as_it_was(server: FakeZooKeeper, tmp_path: Path, cli: Cli) -> None:
    store = tmp_path / "new"
    dropping: list[bool] = []
    server.before = lambda server, number, kind: bool(dropping) and kind == 22 and len(server.requests) > dropping[0]
    with server:
        assert cli(*imported(server, store)).exit_code == 0
        before = tree(store)
        server.put("/admin/clusters/another", b"{}")
        dropping.append(len(server.requests) + 3)
        assert cli("--store", store, "store", "refresh").exit_code == 5
        assert tree(store) == before
        dropping.clear()
        assert cli("--store", store, "store", "refresh", "-o", "json").json["nodesAdded"] == 1
        assert tree(store) == served(server)


def test_a_refresh_behind_an_export_whose_answer_was_lost(server: FakeZooKeeper, tmp_path: Path, cli: Cli) -> None:
    """What the ensemble has is what this store wrote: the refresh says to run the export again, which knows it."""
    store = tmp_path / "new"
    dropped: list[int] = []

    def drop(_server: FakeZooKeeper, kind: int) -> bool:
        if kind == 14 and not dropped:
            dropped.append(1)
            return True
        return False

    server.after = drop
    with server:
        assert cli(*imported(server, store)).exit_code == 0
        change(cli, store, *CHANGES)
        assert cli(*export(store, server)).error["code"] == "source-busy"
        wanted = tree(store)
        answer = cli("--store", store, "store", "refresh", "-o", "json").ends(1)
        assert len(answer.json["stoppedExport"]) == 3  # the fourth is in neither
        assert answer.json["conflicts"] == []
        assert tree(store) == wanted
        assert len(cli(*export(store, server)).json["written"]) == 4
        answer = cli("--store", store, "store", "refresh", "-o", "json")
        assert (answer.exit_code, answer.json["stoppedExport"], answer.json["conflicts"]) == (0, [], [])
        assert tree(store) == wanted == served(server)
