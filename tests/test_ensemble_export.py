"""``store export zookeeper``: one transaction that names every version, nothing for topics that brokers have, and connections that drop.

What a real ensemble does with it is in ``tests/live/test_zookeeper.py``.
"""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.names import parse_namespace, parse_topic
from pulsar_admin.store.transfer.ensemble_export import _holds
from tests.conftest import Cli
from tests.fake_zookeeper import FakeZooKeeper, Znode
from tests.stores import imported, lose_nodes, nodes_of, read_rows, values_of

PLAIN = "/managed-ledgers/public/default/persistent/plain"
SKIP = "topics skip public/default/plain -s half -n 2"
CHANGES = (
    SKIP,
    "topics create-subscription public/default/plain -s made -m earliest",
    "topics unsubscribe public/default/plain -s never",
    "tenants update acme --admin-roles ops,dev",
)
WRITTEN = {f"{PLAIN}/half": "update", f"{PLAIN}/made": "create", f"{PLAIN}/never": "delete"}


def change(cli: Cli, store: Path, *commands: str) -> None:
    for command in commands:
        assert cli("--store", store, *command.split()).exit_code == 0


def export(store: Path, server: FakeZooKeeper, *options: str) -> tuple[object, ...]:
    return ("--store", store, "store", "export", "zookeeper", server.address, "-o", "json", *(options or ("--yes",)))


def exports_in_the_log(store: Path, cli: Cli) -> list[dict[str, Any]]:
    rows = cli("--store", store, "store", "log", "-o", "json").json
    return [row for row in rows if row["command"] == "store export zookeeper"]


def state(server: FakeZooKeeper) -> dict[str, tuple[bytes, int]]:
    return {path: (node.value, node.version) for path, node in server.nodes.items()}


def test_changes_are_one_transaction_that_names_every_version(store: Path, cli: Cli) -> None:
    with FakeZooKeeper(nodes_of(store)) as server:
        before = state(server)
        change(cli, store, *CHANGES)
        preview = cli(*export(store, server, "--dry-run")).json
        assert (preview["dryRun"], preview["zxid"]) == (True, None)
        assert state(server) == before
        report = cli(*export(store, server)).json
        after = state(server)
        actions = {node["path"]: node["action"] for node in report["nodes"]}
        assert actions == {**WRITTEN, "/admin/policies/acme": "update"}
        (operations,) = server.multis
        wanted = values_of(store)
        assert {path: value for path, (value, _) in after.items() if path in wanted} == wanted
        assert after.keys() ^ before.keys() == {f"{PLAIN}/made", f"{PLAIN}/never"}
        changed = {path for path in before.keys() & after.keys() if before[path] != after[path]}
        assert changed == {f"{PLAIN}/half", "/admin/policies/acme"}
        assert all(after[path][1] == before[path][1] + 1 for path in changed)
        # The owner's place of the bundle is held while it is written: the first operations, and the last ones.
        (hold,) = {path for kind, path in operations if kind == 1 and path.endswith("ffffffff")}
        assert hold.startswith("/namespace/public/default/0x")
        assert operations[-1] == (2, "/namespace")
        assert operations[0] == (1, "/namespace")
        again = cli(*export(store, server))
        assert (again.json["nodes"], "nothing to write" in again.stderr) == ([], True)
        assert len(server.multis) == 1
    (line,) = exports_in_the_log(store, cli)
    assert (line["reports"][0]["zxid"], line["reports"][0]["target"]) == (report["zxid"], report["target"])


def test_a_terminal_is_told_what_and_what_next(store: Path, whole_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """By topic, with totals; the dry run as well. In a pipe it is the document."""
    change(whole_cli, store, *CHANGES)
    words = ("--store", store, "store", "export", "zookeeper")
    with FakeZooKeeper(nodes_of(imported("small", "clean"))) as server:
        in_pipe = whole_cli(*words, server.address, "--dry-run").stdout
        monkeypatch.setattr("pulsar_admin.results.Results.in_terminal", True)
        preview, done = (whole_cli(*words, server.address, how).stdout.splitlines() for how in ("--dry-run", "--yes"))
    assert json.loads(in_pipe)["dryRun"]
    what = f"to {server.address}: 4 metadata nodes (1 created, 2 updated, 1 deleted), one transaction of "
    topics = [
        "  /admin/policies/acme: 1 updated",
        "  persistent://public/default/plain: 1 created, 1 updated, 1 deleted",
    ]
    assert (preview[0][: len(what) + 12], preview[1:3]) == (f"would write {what}", topics)
    assert preview[4:] == ["Next:", "  1. run it again without --dry-run"]
    assert (done[0][: len(what) + 6], done[1:3]) == (f"wrote {what}", topics)
    assert done[5] == "  1. start the brokers, or let them load the namespaces again"
    assert done[7] == f"  3. bring the store up to date: pulsar-admin --store {store} store refresh"


@pytest.mark.parametrize(
    ("move", "path"),
    [
        (lambda server: server.put(f"{PLAIN}/half", b"other"), f"{PLAIN}/half"),
        (lambda server: server.put(f"{PLAIN}/made", b"theirs"), f"{PLAIN}/made"),
        (lambda server: server.delete(f"{PLAIN}/never"), f"{PLAIN}/never"),
        (lambda server: server.put("/admin/policies/acme", b"{}"), "/admin/policies/acme"),
        (lambda server: server.put(f"{PLAIN}/never/below", b""), f"{PLAIN}/never"),
    ],
)
@pytest.mark.parametrize("when", ["before it is planned", "behind the plan"])
def test_a_node_that_moved_stops_all_of_it(
    move: Callable[[FakeZooKeeper], None], path: str, when: str, store: Path, cli: Cli
) -> None:
    moved: list[dict[str, tuple[bytes, int]]] = []

    def before(server: FakeZooKeeper, _number: int, kind: int) -> None:
        if not moved and (kind == 14 or when.startswith("before")):
            move(server)
            moved.append(state(server))

    change(cli, store, *CHANGES)
    tree = values_of(store)
    with FakeZooKeeper(nodes_of(imported("small", "clean")), before) as server:
        cli(*export(store, server)).fails(4, "stale-plan", path)
        assert state(server) == moved[0]
    assert values_of(store) == tree
    assert exports_in_the_log(store, cli) == []


def test_a_node_made_anew_is_another_node(store: Path, cli: Cli) -> None:
    """Version and value are those that were imported, the time of creation is not."""
    nodes = nodes_of(store)
    nodes[f"{PLAIN}/half"].created_ms += 1
    change(cli, store, SKIP)
    with FakeZooKeeper(nodes) as server:
        assert f"{PLAIN}/half" in cli(*export(store, server)).error["message"]


PARENTS = {path: Znode(b"") for path in ("/namespace", "/namespace/public", "/namespace/public/default")}
OWNER = b'{"nativeUrl":"pulsar://broker-7:6650","httpUrl":"http://broker-7:8080","disabled":false}'


def test_topics_of_a_broker_are_refused(store: Path, cli: Cli) -> None:
    """The hash of the topic's name says its bundle: the others of its namespace may be owned."""
    change(cli, store, *CHANGES)
    nodes = nodes_of(imported("small", "clean"))
    # CRC-32 of "persistent://public/default/plain" is 0xdd337939.
    owned = {"/namespace/public/default/0x00000000_0x40000000": Znode(OWNER, owner=7)}
    theirs = {"/namespace/public/default/0xc0000000_0xffffffff": Znode(OWNER, owner=7)}
    with FakeZooKeeper({**nodes, **PARENTS, **owned, **theirs}) as server:
        before = state(server)
        cli(*export(store, server)).fails(3, "refused", "persistent://public/default/plain (pulsar://broker-7:6650)")
        assert state(server) == before
        server.delete("/namespace/public/default/0xc0000000_0xffffffff")
        assert cli(*export(store, server)).exit_code == 0
        assert server.nodes.keys() >= owned.keys()


def test_a_broker_that_takes_a_topic_meanwhile_stops_it(store: Path, cli: Cli) -> None:
    nodes = nodes_of(store)
    policies = json.loads(nodes["/admin/policies/public/default"].value)
    bounds = policies["bundles"]["boundaries"]
    bundle = next(f"{low}_{high}" for low, high in pairwise(bounds) if int(high, 16) > 0xDD337939)

    def before(server: FakeZooKeeper, _number: int, kind: int) -> None:
        if kind == 14:
            server.nodes[f"/namespace/public/default/{bundle}"] = Znode(OWNER, owner=7)

    change(cli, store, SKIP)
    with FakeZooKeeper({**nodes, **PARENTS}, before) as server:
        cli(*export(store, server)).fails(3, "refused", bundle)
        assert state(server)[f"{PLAIN}/half"] == (nodes[f"{PLAIN}/half"].value, nodes[f"{PLAIN}/half"].version)


def test_brokers_that_keep_owners_in_a_topic_have_to_stop(store: Path, cli: Cli) -> None:
    manager = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"
    brokers = {"/loadbalance": Znode(b""), "/loadbalance/brokers": Znode(b"")}
    broker = {"/loadbalance/brokers/b1:8080": Znode(json.dumps({"loadManagerClassName": manager}).encode(), owner=9)}
    with FakeZooKeeper({**nodes_of(store), **brokers, **broker}) as server:
        change(cli, store, SKIP)
        assert "b1:8080" in cli(*export(store, server)).error["message"]
        change(cli, store, "store undo 1", CHANGES[3])  # of no topic
        assert cli(*export(store, server)).exit_code == 0


@pytest.mark.parametrize("committed", [False, True])
def test_a_connection_lost_behind_the_transaction(committed: bool, store: Path, cli: Cli) -> None:
    """Nobody can tell whether it was taken; the next run looks, and writes it or knows it."""
    change(cli, store, *CHANGES)
    nodes = nodes_of(imported("small", "clean"))
    dropped: list[int] = []

    def drop(server: FakeZooKeeper, *numbers: int) -> bool:
        if numbers[-1] == 14 and not dropped:
            dropped.append(1)
            return True
        return False

    with FakeZooKeeper(nodes, **{"after" if committed else "before": drop}) as server:  # type: ignore[arg-type]
        before = state(server)
        cli(*export(store, server)).fails(4, "source-busy", "whether it was applied is unknown")
        assert (state(server) != before) == committed
        change(cli, store, SKIP)  # one of its nodes changes again
        report = cli(*export(store, server)).json
        wanted = values_of(store)
        assert {path: value for path, (value, _) in state(server).items() if path in wanted} == wanted
        assert [node["path"] for node in report["nodes"]] == (
            [f"{PLAIN}/half"] if committed else ["/admin/policies/acme", *sorted(WRITTEN)]
        )
        assert len(report["written"]) == (4 if committed else 0)
        assert cli(*export(store, server)).json["nodes"] == []


def test_what_is_too_long_for_a_request_is_refused_with_its_size(store: Path, cli: Cli) -> None:
    change(cli, store, *CHANGES)
    with FakeZooKeeper(nodes_of(imported("small", "clean"))) as server:
        size = cli(*export(store, server, "--dry-run")).json["bytes"]
        answer = cli(*export(store, server, "--yes", "--jute-maxbuffer", str(size - 1)))
        assert (answer.exit_code, answer.error["code"]) == (8, "limit-exceeded")
        assert f"{size:,} bytes" in answer.error["message"]
        assert not server.multis
        assert cli(*export(store, server, "--yes", "--jute-maxbuffer", str(size))).exit_code == 0


def test_ledgers_that_no_bookie_has_are_refused(store: Path, cli: Cli) -> None:
    with FakeZooKeeper(nodes_of(store)) as server:
        change(cli, store, "compaction run acme/orders/compacted --format legacy --from-start")
        answer = cli(*export(store, server)).fails(3, "refused")
        assert "store export bookie" in answer.error["hint"]
        assert not server.multis


def test_another_cluster_is_refused(store: Path, cli: Cli) -> None:
    nodes = nodes_of(store)
    change(cli, store, SKIP)
    with FakeZooKeeper({**nodes, "/ledgers/INSTANCEID": Znode(b"another")}) as server:
        cli(*export(store, server)).fails(3, "refused", "not the cluster that was imported")


def test_ids_go_on_above_a_ledger_that_was_made_again(store: Path, cli: Cli) -> None:
    """As in an ensemble that was put back: it would give the ids of entries on the disks again."""
    lose_nodes(store, "/ledgers/00/0000/L0018")
    nodes = nodes_of(store)
    nodes["/ledgers/idgen"].children_made = 0
    with FakeZooKeeper(nodes) as server:
        change(cli, store, "ledgers restore 18")
        report = cli(*export(store, server, "--dry-run")).json
        done = cli.done(*export(store, server))
        assert done.json["nextLedgerId"] == report["nextLedgerId"] == server.nodes["/ledgers/idgen"].children_made
        assert "/ledgers/00/0000/L0018" in server.nodes
    largest = read_rows(store, lambda txn: max(int.from_bytes(key, "big") for key, _ in txn.items("times")))
    assert [node["action"] for node in report["nodes"]] == ["create"]
    assert report["nextLedgerId"] > largest > 18


def test_an_owner_of_no_range_may_hold_every_topic() -> None:
    namespace, topic = parse_namespace("a/b"), parse_topic("a/b/t")
    held = {
        name: _holds(namespace, f"/namespace/a/b/{name}", topic)
        for name in (
            "0x00000000_0xffffffff",
            "0x00000000_0x80000000",
            "0x80000000_0xffffffff",
            "nonsense",
            "0x0_1_2",
            "",
        )
    }
    halves = [held.pop("0x00000000_0x80000000"), held.pop("0x80000000_0xffffffff")]
    assert (sorted(halves), {*held.values()}) == ([False, True], {True})


def test_nobody_is_asked_nothing_is_written(store: Path, cli: Cli) -> None:
    change(cli, store, SKIP)
    with FakeZooKeeper(nodes_of(imported("small", "clean"))) as server:
        answer = cli(*export(store, server, "-q"))
        assert "this cannot be undone: 1 metadata node of" in answer.error["message"]
        assert not server.multis


def test_undo_and_a_second_export_bring_the_values_back(store: Path, cli: Cli) -> None:
    with FakeZooKeeper(nodes_of(store)) as server:
        before = {path: value for path, (value, _) in state(server).items()}
        change(cli, store, *CHANGES)
        assert cli(*export(store, server)).exit_code == 0
        change(cli, store, *(f"store undo {number}" for number in (4, 3, 2, 1)))
        assert cli(*export(store, server)).exit_code == 0
        assert {path: value for path, (value, _) in state(server).items()} == before
