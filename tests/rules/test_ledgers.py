"""What a ledger without a node means: metadata older than the bookies is told first, and "deleted" is said only of ids that it gave."""

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.codec.logscan import Record, iter_records
from pulsar_admin.store.codec.rocksvalue import encode_counter
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.ledger_ids import put_next_ledger_id
from pulsar_admin.store.db.own_ledgers import SEQUENCE_KEY
from pulsar_admin.store.db.tree import Node, find_node, put_nodes
from pulsar_admin.store.facts.unlisted import iter_beyond_counter
from pulsar_admin.store.names import Position, parse_topic
from tests.agreeing import check_agreement
from tests.conftest import Cli
from tests.cures.curing import put_values
from tests.deep import deep_but_for
from tests.fake_zookeeper import FakeZooKeeper
from tests.stores import apply_values, copied, read_rows, write_rows
from tests.test_ensemble_export import nodes_of
from tests.worlds import CLUSTER, STATES, copy_tree, world

Json = Any  # a JSON value


def ids_on(*bookies: Path) -> set[int]:
    """The ledgers of which entry logs have entries, by the reference reader."""
    found = set()
    for log in (log for bookie in bookies for log in bookie.rglob("*.log") if log.parent.name == "current"):
        items = iter_records(log.read_bytes(), log.name) if log.stat().st_size else ()
        found |= {item.ledger_id for item in items if isinstance(item, Record) and item.ledger_id >= 0}
    return found


def copied_tree(name: str, tmp_path: Path) -> Path:
    copy_tree(world(name) / "clean", tmp_path / "source")
    return tmp_path / "source"


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """A standalone whose metadata's write-ahead log ends at a record boundary, as a copy taken earlier; no ledger from 58 on was given."""
    source = copied_tree("small", tmp_path)
    with (source / "metadata" / "000004.log").open("r+b") as log:
        log.truncate(63_712)
    return source


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """The cluster's ZooKeeper as it was when 174 was the newest ledger, and its three bookies of later."""
    copy_tree(world(CLUSTER) / "clean" / "zookeeper", tmp_path / "source" / "zookeeper")
    for number in range(3):
        name = f"bookkeeper{number}"
        copy_tree(world(CLUSTER) / "crashed" / name, tmp_path / "source" / name)
    return tmp_path / "source"


def told_of(cli: Cli, store: Path) -> list[Json]:
    return cli("--store", store, "doctor", "-o", "jsonl").json_lines


def orphans_of(cli: Cli, store: Path) -> list[Json]:
    return cli("--store", store, "ledgers", "orphans", "-o", "jsonl").json_lines


@pytest.mark.parametrize(("kind", "next_id"), [("cut", 58), ("mixed", 175)])
def test_metadata_older_than_the_bookies(
    kind: str, next_id: int, request: pytest.FixtureRequest, cli: Cli, tmp_path: Path
) -> None:
    source: Path = request.getfixturevalue(kind)
    store = tmp_path / "s"
    done = cli("--store", store, "store", "import", "standalone", source, "-o", "json")
    assert (done.exit_code, done.json["findings"]) == (1, ["metadata-older"])
    assert f"its next ledger id is {next_id}" in done.stderr
    newer = {one for one in ids_on(*source.glob("bookkeeper*")) if one >= next_id}
    assert len(newer) > 10
    first = cli("--store", store, "store", "check", "-o", "jsonl").json_lines[0]
    assert (first["severity"], first["code"]) == ("problem", "metadata-older")
    assert first["context"]["nextLedgerId"] == next_id
    assert newer <= set(range(next_id, first["context"]["largestLedgerId"] + 1))
    told = told_of(cli, store)
    assert (told[0]["severity"], told[0]["code"]) == ("critical", "metadata-older")
    deleted = next((row for row in told if row["code"] in ("ledgers-deleted", "ledgers-gone")), None)
    assert deleted is None or max(deleted["evidence"]["ledgerIds"]) < next_id
    orphans = orphans_of(cli, store)
    assert newer <= {row["ledgerId"] for row in orphans if row["reason"] == "newer"}
    assert all((row["reason"] == "newer") == (row["ledgerId"] >= next_id) for row in orphans)
    rows = cli("--store", store, "ledgers", "list", "-o", "jsonl").json_lines
    states = {row["ledgerId"]: row["state"] for row in rows}
    assert {states[one] for one in newer} == {"NEWER"}
    used = {row["owner"] for row in cli("--store", store, "store", "usage", "-o", "jsonl").json_lines}
    assert ("(newer than the metadata)" in used, "(ledgers without metadata)" in used) == (True, deleted is not None)
    one = str(min(newer))
    assert cli("--store", store, "ledgers", "info", one, "-o", "json").json["state"] == "NEWER"
    owned = cli("--store", store, "store", "owner", *map(str, sorted(states)), "-o", "json").json
    assert {row["ledgerId"]: row["state"] for row in owned} == states
    refused = cli("--store", store, "-o", "json", "ledgers", "restore", one)
    assert (refused.exit_code, "store recover --level B" in refused.error["hint"]) == (3, True)
    assert preflight_of(cli, store)["ids"]["nextId"] == next_id
    check_agreement(store)


def preflight_of(cli: Cli, store: Path) -> Json:
    return cli("--store", store, "store", "preflight", "-o", "json").json


def test_what_older_metadata_does_not_reference_newer_may(mixed: Path, cli: Cli, tmp_path: Path) -> None:
    """So it is not deleted, until the metadata is rolled forward."""
    store = tmp_path / "s"
    assert cli("--store", store, "store", "import", "standalone", mixed).exit_code == 1
    orphans = orphans_of(cli, store)
    one = next(str(row["ledgerId"]) for row in orphans if row["reason"] == "unreferenced")
    delete = ("--store", store, "-o", "json", "ledgers", "delete", one, "-y")
    refused = cli(*delete)
    assert (refused.exit_code, "store recover --level B" in refused.error["hint"]) == (3, True)
    assert cli(*delete, "--force", "--dry-run").exit_code == 0
    assert cli("--store", store, "store", "recover", "--level", "B", "-y").exit_code == 0
    assert cli(*delete).exit_code == 0


def test_a_ledger_of_the_future_without_entries_has_nothing_to_roll_forward_over(cli: Cli, store: Path) -> None:
    """A cursor names it: the command shows who does, and the cure that it prints ends both findings."""
    path = parse_topic("public/default/plain").cursor_path("half")
    put_values(store, {path: encode_cursor_info(CursorInfo(99_999, Position(9, 0)))})
    told = {row["code"]: row for row in told_of(cli, store)}
    older = told["metadata-older"]
    assert (older["evidence"]["entries"], older["mend"]) == (0, "pulsar-admin ledgers missing")
    shown = cli("--store", store, "ledgers", "missing", "-o", "jsonl")
    assert (shown.exit_code, [row["ledgerId"] for row in shown.json_lines]) == (1, [99_999])
    cure = shlex.split(told["cursor-ledger-lost"]["mend"])
    assert cli("--store", store, *cure[1:], "-y").exit_code == 0
    left = {row["code"] for row in told_of(cli, store)}
    assert not left & {"metadata-older", "cursor-ledger-lost"}


@pytest.mark.parametrize("kind", ["cut", "mixed"])
def test_the_printed_command_cures_it(kind: str, request: pytest.FixtureRequest, cli: Cli, tmp_path: Path) -> None:
    store = tmp_path / "s"
    assert cli("--store", store, "store", "import", "standalone", request.getfixturevalue(kind)).exit_code == 1
    told = told_of(cli, store)[0]
    words = told["mend"].split()
    assert words[0] == "pulsar-admin"
    assert cli("--store", store, *words[1:], "-y", "--cluster", "standalone").exit_code == 0
    codes = {row["code"] for row in told_of(cli, store)}
    assert "metadata-older" not in codes
    assert not [row for row in orphans_of(cli, store) if row["reason"] == "newer"]


def test_a_refresh_with_newer_metadata_cures_it_and_one_of_newer_bookies_tells(
    cut: Path, cli: Cli, tmp_path: Path
) -> None:
    store, whole = tmp_path / "s", world("small") / "clean" / "metadata" / "000004.log"
    assert cli("--store", store, "store", "import", "standalone", cut).exit_code == 1
    refresh = ("--store", store, "store", "refresh", "-o", "json")
    again = cli(*refresh)
    assert (again.exit_code, again.json["findings"]) == (1, ["metadata-older"])
    shutil.copy(whole, cut / "metadata")
    done = cli(*refresh)
    assert (done.exit_code, "findings" in done.json) == (0, False)
    assert "metadata-older" not in {row["code"] for row in told_of(cli, store)}


def test_a_counter_noted_by_an_earlier_refresh_is_forgotten_with_newer_metadata(
    mixed: Path, cli: Cli, tmp_path: Path
) -> None:
    """Found with a ZooKeeper that writes: each refresh notes the ids given meanwhile, the next tree is beyond them."""
    store = tmp_path / "s"
    assert cli("--store", store, "store", "import", "standalone", mixed).exit_code == 1
    assert cli("--store", store, "store", "refresh").exit_code == 1
    shutil.rmtree(mixed / "zookeeper")
    copy_tree(world(CLUSTER) / "crashed" / "zookeeper", mixed / "zookeeper")
    assert cli("--store", store, "store", "refresh").exit_code == 0
    codes = {row["code"] for row in told_of(cli, store)}
    assert cli("--store", tmp_path / "new", "store", "import", "standalone", mixed).exit_code == 0
    assert codes == {row["code"] for row in told_of(cli, tmp_path / "new")}


@deep_but_for((2,), "state", STATES)
@pytest.mark.parametrize("name", ["small", "nometa", CLUSTER])
def test_no_false_alarm(name: str, state: str, cli: Cli, tmp_path: Path) -> None:
    """A recorded world's generator is ahead of every ledger on its disks; all that has no node was deleted."""
    store = copied(name, state, tmp_path)
    codes = {row["code"] for row in cli("--store", store, "store", "check", "-o", "jsonl").json_lines}
    assert not codes & {"metadata-older", "ledgers-unlisted"}
    assert preflight_of(cli, store)["ids"]["nextId"] > max(ids_on(*(world(name) / state).glob("bookkeeper*")))


def changed_counter(tmp_path: Path, value: bytes | None) -> Path:
    source = copied_tree("small", tmp_path)
    apply_values(source / "metadata", {SEQUENCE_KEY: value})
    return source


@deep_but_for((1,), "value", [None, b"short"])
def test_where_the_generator_is_not_known_nothing_is_called_deleted(
    value: bytes | None, cli: Cli, tmp_path: Path
) -> None:
    store = tmp_path / "s"
    cli("--store", store, "store", "import", "standalone", changed_counter(tmp_path, value))
    rows = orphans_of(cli, store)
    assert {row["reason"] for row in rows} == {"unreferenced", "unlisted"}
    found = {row["code"]: row for row in told_of(cli, store)}
    assert not {"ledgers-deleted", "ledgers-gone"} & found.keys()
    assert found["ledgers-unlisted"]["evidence"]["ledgers"] == len([1 for row in rows if row["reason"] == "unlisted"])
    overview = cli("--store", store, "overview", "-o", "json").json
    assert overview["disk"]["deadBytes"] == 0
    assert [*preflight_of(cli, store)["bookies"][0]["reasons"]] == ["untold"]
    check_agreement(store)


def test_a_counter_that_began_again_says_of_no_ledger_what_became_of_it(cli: Cli, tmp_path: Path) -> None:
    """A ZooKeeper that was copied node by node counts from 0: 4.0.8 skips the listed ids, and gives those of deleted ledgers again."""
    source = changed_counter(tmp_path, encode_counter(120))
    listed = {int(line["ledgerId"]) for line in _listed(cli, source, tmp_path / "before")}
    store, beyond = tmp_path / "s", sorted(one for one in listed if one >= 120)
    done = cli("--store", store, "store", "import", "standalone", source, "-o", "json")
    assert (done.exit_code, done.json["findings"]) == (1, ["ledger-ids-repeated"])
    (told,) = (row for row in told_of(cli, store) if row["code"] == "ledger-ids-repeated")
    gone = ids_on(source / "bookkeeper") - listed
    counts = {"nextLedgerId": 120, "largestLedgerId": beyond[-1], "ledgers": len(beyond)}
    evidence = {**counts, "held": len([one for one in gone if one >= 120])}
    assert {key: told["evidence"][key] for key in evidence} == evidence
    reasons = {row["ledgerId"]: row["reason"] for row in orphans_of(cli, store)}
    assert {one: reasons[one] for one in gone} == {one: "gone" if one < 120 else "unlisted" for one in gone}
    assert {*preflight_of(cli, store)["bookies"][0]["reasons"]} == {"untold", "unlisted"}
    check_agreement(store)
    assert told["mend"] == "pulsar-admin store preflight"


@pytest.mark.parametrize("next_id", [7, 150_000_000, 2**31 - 1, 2**31 + 1, 2**62])
def test_ids_of_64_bits_lie_beyond_a_smaller_counter(next_id: int, tmp_path: Path, damages_stores: None) -> None:
    """Their directories (/ledgers/000/…) sort between those of smaller ids (/ledgers/00/…, /ledgers/01/…)."""
    ids = {2**31 - 2, 2**31, 2**33, 10**18}
    store = copied("small", "clean", tmp_path)
    with open_store(store, writable=True) as opened:
        with opened.read() as txn:
            node = find_node(txn, ledger_path(9))
            assert node is not None
            some = [Node(ledger_path(one), node.stat, node.value) for one in ids]
        opened.write(lambda txn: put_nodes(txn, some))
    found = read_rows(store, lambda txn: {*iter_beyond_counter(txn, next_id)})
    assert {one for one in found if one > 1000} == {one for one in ids if one >= next_id}


def test_a_snapshot_of_the_store_has_a_counter_above_all_ids(cli: Cli, tmp_path: Path) -> None:
    store = copied(CLUSTER, "clean", tmp_path)
    write_rows(store, lambda txn: put_next_ledger_id(txn, 120))
    (told,) = (row for row in told_of(cli, store) if row["code"] == "ledger-ids-repeated")
    assert told["severity"] == "critical"
    words = shlex.split(told["mend"].replace("DIR", shlex.quote(str(tmp_path / "snapshot"))))
    assert cli("--store", store, *words[1:]).exit_code == 0
    cli("--store", tmp_path / "cured", "store", "import", "cluster", "--zookeeper", tmp_path / "snapshot")
    assert "ledger-ids-repeated" not in {row["code"] for row in told_of(cli, tmp_path / "cured")}


def _listed(cli: Cli, source: Path, store: Path) -> Iterator[Json]:
    cli("--store", store, "store", "import", "standalone", source)
    return (row for row in cli.rows(store, "ledgers list") if row["state"] in ("OPEN", "CLOSED"))


def test_an_import_of_an_earlier_moment_tells_it_too(cli: Cli, tmp_path: Path) -> None:
    """Files of a ZooKeeper that have all transactions, as of one in front of many ledgers, and its bookies."""
    disks = [word for number in range(3) for word in ("--bookie", world(CLUSTER) / "crashed" / f"bookkeeper{number}")]
    words = (
        "store",
        "import",
        "cluster",
        "--zookeeper",
        world(CLUSTER) / "crashed" / "zookeeper",
        *disks,
        "-o",
        "json",
    )
    assert "findings" not in cli("--store", tmp_path / "all", *words).json
    done = cli("--store", tmp_path / "s", *words, "--at", "0x2a1")
    assert (done.exit_code, done.json["findings"]) == (1, ["metadata-older"])
    assert "it is older than the bookies" in done.stderr


@pytest.mark.parametrize("given", [True, False])
def test_ledgers_made_while_an_ensemble_is_read_do_not_make_it_older(given: bool, cli: Cli, tmp_path: Path) -> None:
    """Its counter is read again behind the bookies: what it gave meanwhile was made meanwhile, and only that."""
    nodes = nodes_of(copied("small", "clean", tmp_path))
    last, first = nodes["/ledgers/idgen"].children_made, 150
    for path in [path for path in nodes if path.startswith("/ledgers/00/0000/L0") and int(path[-4:]) >= first]:
        del nodes[path]
    nodes["/ledgers/idgen"].children_made = first

    def close(server: FakeZooKeeper, kind: int) -> None:
        if kind == -11 and given:
            nodes["/ledgers/idgen"].children_made = last

    store, disks = tmp_path / "new", world("small") / "clean" / "bookkeeper"
    with FakeZooKeeper(nodes, after=close) as server:
        words = ("store", "import", "cluster", "--zookeeper", server.address, "--bookie", disks, "-o", "json")
        done = cli("--store", store, *words)
        findings = None if given else ["metadata-older"]
        assert (done.exit_code, done.json.get("findings")) == (0 if given else 1, findings)
        check_agreement(store)
        nodes["/ledgers/idgen"].children_made = first
        again = cli("--store", store, "store", "refresh", "-o", "json")
        assert again.json.get("findings") == findings
