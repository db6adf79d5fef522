"""``store recover`` at every level: what it leaves out is said, what cannot be decoded is passed over, and a sound cluster gets nothing."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyroaring import BitMap64

from pulsar_admin.store.db.copies import add_copies
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.files import iter_logs, put_log
from pulsar_admin.store.db.ledger_ids import put_next_ledger_id
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.names import parse_topic
from pulsar_admin.store.recovery.chains import LedgerGroup
from pulsar_admin.store.recovery.from_ledgers import Sources
from pulsar_admin.store.recovery.rolling import plan_lost_and_found
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.stores import copied, imported, lose_nodes, put_back, put_node, write_rows
from tests.worlds import CLUSTER, STATES, oracle, world

PLAIN = "/managed-ledgers/public/default/persistent/plain"
pytestmark = pytest.mark.usefixtures("damages_stores")


def dry(cli: Cli, store: Path, *words: str) -> tuple[dict[str, Any], str]:
    """What the dry run says of the metadata as a whole, and all its warnings."""
    done = cli.done("--store", store, "store", "recover", "--cluster", "standalone", *words, "--dry-run", "-o", "json")
    reports = done.json if isinstance(done.json, list) else [done.json]
    return reports[0]["after"], done.stdout + done.stderr


def spoil(store: Path, *paths: str) -> None:
    for path in paths:
        put_node(store, path, b"\xff\xff no message")


def test_where_the_next_id_is_not_known_nothing_is_proposed_and_that_is_said(cli: Cli, tmp_path: Path) -> None:
    store = copied(CLUSTER, "crashed", tmp_path)
    put_back(store, world(CLUSTER) / "crashed" / "zookeeper", 0x4B4)
    assert dry(cli, store)[0]["level"] == "B"
    write_rows(store, lambda txn: put_next_ledger_id(txn, None))
    after, said = dry(cli, store)
    assert (after["level"], "does not say which ids it assigned" in said) == (None, True)
    assert dry(cli, store, "--level", "B")[0]["level"] == "B"


@pytest.mark.parametrize("level", [(), ("--level", "B")])
def test_nodes_that_cannot_be_decoded_are_passed_over_and_listed_at_level_b(
    level: tuple[str, ...], cli: Cli, tmp_path: Path
) -> None:
    store = copied(CLUSTER, "crashed", tmp_path)
    put_back(store, world(CLUSTER) / "crashed" / "zookeeper", 0x4B4)
    before, _ = dry(cli, store, *level)
    ledger = next(row["ledgerId"] for row in cli.rows(store, "ledgers list --topic plain") if row["state"] == "CLOSED")
    spoiled = {PLAIN, f"/ledgers/00/0000/L{ledger:04d}"}
    spoil(store, *spoiled)
    after, said = dry(cli, store, *level)
    assert set(after["passedOver"]) == spoiled
    assert all(path in said for path in spoiled)
    assert 0 < after["topics"] <= before["topics"] + 3  # what went on with it lies in lost-and-found


def test_ledgers_of_an_unknown_bookie_are_passed_over_one_by_one(cli: Cli, tmp_path: Path) -> None:
    """The first of a topic's younger ledgers, of a new topic's and of the others has an entry on disks without a cookie."""
    store = copied(CLUSTER, "crashed", tmp_path)
    put_back(store, world(CLUSTER) / "crashed" / "zookeeper", 0x35D)

    def given() -> tuple[set[int], list[str]]:
        first, *rows = cli("--store", store, "store", "recover", "--dry-run", "-o", "jsonl").json_lines
        alone = {int(row["resource"].split()[1]) for row in rows if row.get("resource", "").startswith("ledger ")}
        shown = [row["after"]["witnesses"] for row in rows if "witnesses" in row["after"] and "topic" in row]
        joined = [texts for one in shown if isinstance(one, dict) for texts in one.values()]
        assert all(joined)
        assert any("continues after" in text for texts in joined for text in texts)
        return alone.union(*(row["after"].get("ledgers", ()) for row in rows)), first["warnings"]

    before, _ = given()
    passed_over = {261, 262, 178}

    def write(txn: Txn) -> None:
        strange = replace(max(iter_logs(txn), key=lambda log: log.file_id), bookie="")
        put_log(txn, replace(strange, file_id=strange.file_id + 1))
        add_copies(txn, [(one, strange.file_id + 1, BitMap64([0])) for one in passed_over])

    write_rows(store, write)
    after, warnings = given()
    assert (passed_over <= before, after) == (True, before - passed_over)
    told = [text.split(":")[0].split()[-1] for text in warnings if text.startswith("it is unknown which bookie")]
    assert sorted(map(int, told)) == sorted(passed_over)


def test_lost_and_found_gets_what_is_younger_than_the_newest_known() -> None:
    with open_store(imported(CLUSTER, "crashed")) as store, open_reader(store) as reader:
        group = LedgerGroup("messages", (262, 266, 267))
        for newest, expected in ((261, [262, 266, 267]), (262, [266, 267]), (266, [267]), (267, [])):
            assert plan_lost_and_found(Sources(reader, 0), [group], newest, {}).kept == expected


def test_detected_level_a_says_which_topics_it_leaves_out(cli: Cli, store: Path) -> None:
    """A namespace is gone, and one topic of another: that alone may be a deletion that was stopped, so it is left out, and named."""
    lose_nodes(store, "/managed-ledgers/acme/orders/", "/admin/policies/acme/orders", PLAIN)
    after, said = dry(cli, store)
    assert (after["level"], after["leftOut"]) == ("A", ["persistent://public/default/plain"])
    assert "persistent://public/default/plain" in said
    whole, _ = dry(cli, store, "--level", "A")
    assert ("leftOut" in whole, whole["topics"]) == (False, after["topics"] + 1)


@pytest.mark.parametrize("name", ["small", CLUSTER])
def test_level_b_names_the_topics_of_a_lost_namespace(name: str, cli: Cli, tmp_path: Path) -> None:
    """ "All that they name is there" is not said of them."""
    store = copied(name, "clean", tmp_path)
    topics = cli("--store", store, "topics", "list", "acme/iot", "-o", "plain", "--include-system-topic").stdout.split()
    lose_nodes(store, "/managed-ledgers/acme/iot/", "/admin/policies/acme/iot")
    after, said = dry(cli, store, "--level", "B")
    assert len(topics) >= 2
    assert (after["level"], set(topics) <= set(after["leftOut"])) == (None, True)
    assert all(topic in said for topic in topics)
    assert "the policies of 1 namespace: acme/iot" in said
    assert "everything that they name exists" not in said
    whole, _ = dry(cli, store, "--level", "A")
    assert ("leftOut" in whole, whole["topics"]) == (False, len(after["leftOut"]))
    parts = cli.on(store, "store recover --level A --cluster standalone --dry-run -o jsonl").json_lines
    (made,) = [part["after"] for part in parts if part.get("namespace") == "acme/iot"]
    kept = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    expected = {"replication_clusters": ["standalone"], "numBundles": 4, "retention": kept, "witness": "defaults"}
    assert made == expected


def test_a_topic_that_cannot_be_decoded_is_listed_at_level_a(cli: Cli, store: Path) -> None:
    spoil(store, PLAIN)
    after, said = dry(cli, store, "--level", "A")
    assert (after["level"], after["passedOver"]) == (None, [PLAIN])
    assert (PLAIN in said, "everything that they name exists" in said) == (True, False)
    others = [path for path in (parse_topic(name).path for name in oracle("small")["topics"]) if path != PLAIN][:10]
    spoil(store, *others)
    (first, *_) = cli.on(store, "store recover --level A --dry-run -o jsonl").json_lines
    told = [path for path in (PLAIN, *others) if any(f"{path}:" in text for text in first["warnings"])]
    assert (len(told), first["warnings"][-1].split(":")[0]) == (10, "… and 1 more")


@deep_but_for((2,), "state", STATES)
@pytest.mark.parametrize("name", ["small", "nometa", CLUSTER])
def test_a_sound_cluster_gets_nothing_though_its_newest_ledgers_were_deleted(
    name: str, state: str, cli: Cli, tmp_path: Path
) -> None:
    """Not the largest ledger that is listed says which are younger: the id that comes next does."""
    store = copied(name, state, tmp_path)
    rows = cli("--store", store, "ledgers", "list", "-o", "jsonl").json_lines
    newest = max((row for row in rows if row["owners"] and row["entries"]), key=lambda row: row["ledgerId"])
    topic = newest["owners"][0]["topic"]
    assert cli("--store", store, "topics", "delete", topic, "--force", "-y").exit_code == 0
    after, _ = dry(cli, store)
    assert after["level"] is None
