"""A cluster of three bookies folded into one standalone directory: every message, every backlog as the cluster's broker said."""

from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.codec.bookie import decode_cookie
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.disks.clone import CloneRequest, plan_clone
from pulsar_admin.store.sources.cluster import make_layout, open_metadata
from pulsar_admin.store.sources.given_bookies import parse_bookie
from pulsar_admin.store.transfer.imports import ImportOptions, import_layout
from tests.conftest import Cli
from tests.stores import NOW_MS, copied, put_node
from tests.worlds import asked_topics, digest_of, world

KEYS = ("ledgerId", "entryId", "batchIndex", "publishTime")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ZooKeeper and three bookies after a clean stop."""
    cluster, store = world("cluster") / "clean", tmp_path_factory.mktemp("clone") / "store"
    bookies = [parse_bookie(str(cluster / f"bookkeeper{number}")) for number in range(3)]
    import_layout(
        make_layout(open_metadata(str(cluster / "zookeeper")), bookies),
        store,
        ImportOptions(now_ms=NOW_MS),
        lambda _: None,
    )
    return store


def clone(cli: Cli, store: Path, target: Path, *words: object) -> Any:
    shown = cli.done("--store", store, "store", "clone", target, *words, "--dry-run", "-o", "json")
    assert not target.exists()
    done = cli.done("--store", store, "store", "clone", target, *words, "-o", "json")
    assert {**done.json, "dryRun": True} == shown.json
    return done.json


def rows(cli: Cli, store: Path, topic: str) -> list[list[Any]]:
    found = cli("--store", store, "topics", "read", topic, "-o", "jsonl").json_lines
    return [[row[key] for key in KEYS] for row in found]


def test_a_clone_has_every_message_and_backlog(store: Path, tmp_path: Path, cli: Cli) -> None:
    before = digest_of(world("cluster") / "clean")
    report = clone(cli, store, tmp_path / "data")
    assert digest_of(world("cluster") / "clean") == before
    assert report["missing"] == {}
    copy = tmp_path / "copy"
    assert cli("--store", copy, "store", "import", "standalone", tmp_path / "data").exit_code == 0
    checked = cli("--store", copy, "store", "check", "--deep", "-o", "jsonl").json_lines
    assert not [row for row in checked if row["severity"] not in ("note", "summary")]
    counted = 0
    for topic, answers in asked_topics("cluster").items():
        found = rows(cli, copy, topic)
        assert found == rows(cli, store, topic), topic
        said = {name: row["msgBacklog"] for name, row in answers["stats"]["subscriptions"].items()}
        stats = cli("--store", copy, "topics", "stats", topic, "-o", "json").json
        assert {name: row["msgBacklog"] for name, row in stats["subscriptions"].items()} == said, topic
        counted += len(said)
    assert counted >= 20
    current = tmp_path / "data" / "bookkeeper" / "current"
    cookie = decode_cookie((current / "VERSION").read_bytes(), "")
    original = decode_cookie((world("cluster") / "clean" / "bookkeeper0" / "current" / "VERSION").read_bytes(), "")
    assert cookie.ledger_dirs == (f"{tmp_path}/data/bookkeeper",)
    assert (cookie.bookie_id, cookie.instance_id) == ("127.0.0.1:3181", report["instanceId"])
    assert cookie.instance_id != original.instance_id
    ledger = cli("--store", copy, "topics", "stats-internal", "public/default/plain").json["ledgers"][0]["ledgerId"]
    metadata = cli("--store", copy, "store", "cat", ledger_path(ledger), "-o", "json").json["value"]
    assert metadata["segments"] == [{"firstEntryId": 0, "members": ["127.0.0.1:3181"]}]
    assert (metadata["ensembleSize"], metadata["writeQuorum"], metadata["ackQuorum"]) == (1, 1, 1)
    again = cli("--store", copy, "store", "salvage", tmp_path / "data" / "bookkeeper", "--dry-run", "-o", "json").json
    assert not again["needed"]


def test_what_cannot_be_cloned_is_refused(store: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "there").mkdir()
    for words, text in (
        ((tmp_path / "there",), "exists"),
        ((tmp_path / "data", "--cluster", "west"), "the metadata has no cluster 'west', but standalone"),
        ((tmp_path / "data", "--topic", "public/default/nobody"), "nobody"),
    ):
        done = cli("--store", store, "store", "clone", *words)
        assert done.exit_code not in (0, 70)
        assert text in done.stderr
        assert not (tmp_path / "data").exists()


def test_a_ledger_that_nobody_understands_is_named_and_keeps_no_other_from_a_clone(
    tmp_path: Path, damages_stores: None
) -> None:
    path, request = copied("small", "clean", tmp_path), CloneRequest(tmp_path / "clone")
    with open_store(path) as store:
        first, *others = plan_clone(store, request).ledgers
    put_node(path, ledger_path(first.ledger_id), b"damaged")
    told: list[str] = []
    with open_store(path) as store:
        assert [*plan_clone(store, request, told.extend).ledgers] == others
    lost = f"ledger {first.ledger_id}, whose metadata is damaged, is not cloned"
    assert told == [f"{lost}; see: pulsar-admin store check"]


def test_other_clusters_are_not_reached(store: Path, tmp_path: Path, cli: Cli) -> None:
    import shutil

    two = tmp_path / "two"
    shutil.copytree(store, two)
    made = cli.on(two, "clusters create east --url http://east:8080 --broker-url pulsar://east:6650")
    assert made.exit_code == 0, made.stderr
    assert "which of them" in cli("--store", two, "store", "clone", tmp_path / "data").stderr
    put_node(two, "/admin/policies/torn", b"{")  # as it is
    clone(cli, two, tmp_path / "data", "--cluster", "standalone")
    copy = tmp_path / "copy"
    assert cli("--store", copy, "store", "import", "standalone", tmp_path / "data").exit_code == 0
    assert cli.on(copy, "store cat /admin/policies/torn --hex").stdout == "7b\n"
    east = cli("--store", copy, "clusters", "get", "east", "-o", "json").json
    assert (east["serviceUrl"], east["brokerServiceUrl"]) == ("http://clone.invalid", "pulsar://clone.invalid")
