"""What a broker will not see is not answered as if it did, and one damaged node hides none of the others."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.codec.policyevent import AvroSchema, PolicyEvent, builtin_schema, encode_policy_event
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import tree_key
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.search.broker import BrokerSearch
from tests.compaction.entries import PUBLISH_MS, Batch, Slot, compacted, entry
from tests.conftest import Cli
from tests.stores import copied, put_node, write_rows
from tests.synthetic import Made, MadeCompacted, MadeTopic, make_store

PLAIN = "public/default/plain"


def _delete(path: Path, node: str) -> None:
    write_rows(path, lambda txn: txn.delete("tree", tree_key(node)))


def test_a_cursor_ledger_without_metadata(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """crash-holes of the crashed world: 104 of 525 entries are acknowledged in ledger 260 alone, which a broker cannot open then."""
    path = copied("small", "crashed", tmp_path)
    before = cli("--store", path, "topics", "stats", PLAIN, "-o", "json")
    assert before.json["subscriptions"]["crash-holes"]["msgBacklog"] == 421
    _delete(path, ledger_path(260))
    after = cli("--store", path, "topics", "stats", PLAIN, "-o", "json").ends(1)
    assert after.json["subscriptions"]["crash-holes"]["msgBacklog"] == 525
    assert "BookKeeper's metadata of its cursor ledger 260 is gone" in after.stderr
    rows = cli("--store", path, "store", "check", "-o", "json").json
    (row,) = (row for row in rows if row["code"] == "cursor-ledger-without-metadata")
    assert (row["context"]["ledgerId"], row["context"]["recoverable"]) == (260, "9:-1")
    reset = cli("--store", path, "topics", "reset-cursor", PLAIN, "-s", "crash-holes", "-m", "latest", "--dry-run")
    assert "cursor ledger 260 is gone: a broker would start" in reset.stdout + reset.stderr


def test_a_compacted_ledger_without_metadata(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    raw = entry(Batch([Slot("k", b"v")], alone=True))
    made = MadeCompacted(77, [compacted(10, number, raw) for number in range(3)], Position(10, 4))
    topics = {"public/default/t": MadeTopic([[Made(PUBLISH_MS, raw=raw)] * 10], compacted=made)}
    path = make_store(tmp_path / "s", topics)
    codes = [row["code"] for row in cli("--store", path, "store", "check", "-o", "json").json]
    assert "compacted-ledger-without-metadata" not in codes
    _delete(path, ledger_path(77))
    rows = cli("--store", path, "store", "check", "-o", "json").json
    (row,) = (row for row in rows if row["code"] == "compacted-ledger-without-metadata")
    assert "3 entries can be read" in row["message"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"listed": False}, "the compacted ledger 77 of persistent://public/default/t is gone"),
        ({}, "BookKeeper has no metadata of the compacted ledger 77"),
        ({"lost": (0, 1, 2)}, "its search reads 77:"),
    ],
)
def test_a_broker_that_cannot_read_a_compacted_ledger_answers_500(
    fields: dict[str, Any], said: str, tmp_path: Path, damages_stores: None
) -> None:
    raw = entry(Batch([Slot("k", b"v")], alone=True))
    made = MadeCompacted(77, [compacted(10, number, raw) for number in range(3)], Position(10, 4), **fields)
    topics = {"public/default/t": MadeTopic([[Made(PUBLISH_MS, raw=raw)] * 10], compacted=made)}
    path = make_store(tmp_path / "s", topics)
    if not fields:
        _delete(path, ledger_path(77))
    with open_store(path) as store, open_reader(store) as reader:
        search = BrokerSearch(reader, read_topic(reader.txn, parse_topic("public/default/t")))
        with pytest.raises(StoreError, match=f"^a broker answers 500 here: .*{said}"):
            search.message_id_by_time(PUBLISH_MS)


def test_a_compacted_ledger_of_which_nothing_is_left(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """As Pulsar 4.2.4 leaves one without entries: it compacts messages without keys, and then deletes the ledger that its cursor names."""
    raw = entry(Batch([Slot("k", b"v")], alone=True))
    made = MadeCompacted(77, [], Position(10, 4))
    path = make_store(
        tmp_path / "s", {"public/default/t": MadeTopic([[Made(PUBLISH_MS, raw=raw)] * 10], compacted=made)}
    )
    _delete(path, ledger_path(77))
    (row,) = cli("--store", path, "doctor", "--code", "compacted-ledger-without-metadata", "-o", "json").json
    assert cli("--store", path, *shlex.split(row["mend"])[1:], "--yes").exit_code == 0
    assert cli("--store", path, "doctor", "--code", "compacted-ledger-without-metadata", "-o", "json").json == []


@pytest.mark.parametrize("words", ["read", "last-id", "find-by-time --time @0"])
@pytest.mark.usefixtures("damages_stores")
def test_reading_a_compacted_ledger_without_metadata(words: str, tmp_path: Path, cli: Cli) -> None:
    raw = entry(Batch([Slot("k", b"v")], alone=True))
    made = MadeCompacted(77, [compacted(10, number, raw) for number in range(3)], Position(10, 9))
    topics = {"public/default/t": MadeTopic([[Made(PUBLISH_MS, raw=raw)] * 10], compacted=made)}
    path = make_store(tmp_path / "s", topics)
    command, *options = words.split()
    asked = ("--store", path, "compaction", command, "public/default/t", *options, "-o", "json")
    before = cli(*asked)
    assert (before.exit_code, before.stderr) == (0, "")
    _delete(path, ledger_path(77))
    after = cli(*asked)
    assert (after.exit_code, after.json) == (1, before.json)
    assert after.stderr.count("BookKeeper's metadata of the compacted ledger 77 is gone: a broker cannot open it") == 1


def test_topic_policies_in_a_compacted_ledger_without_metadata(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """A broker cannot open it, so it knows no policy: neither those in it nor their absence may pass for an answer."""
    event = PolicyEvent(parse_topic("a/b/t"), "UPDATE", {"messageTTLInSeconds": 5})
    payload = encode_policy_event(event, AvroSchema(builtin_schema()))
    raw = entry(Batch([Slot("persistent://a/b/t", payload)], alone=True))
    made = MadeCompacted(77, [compacted(10, 0, raw)], Position(10, 0))
    events = MadeTopic([[Made(PUBLISH_MS, raw=raw)]], compacted=made)
    path = make_store(tmp_path / "s", {"a/b/t": MadeTopic([[]]), "a/b/__change_events": events})
    asked = ("--store", path, "topics", "get-message-ttl", "a/b/t", "-o", "json")
    assert cli(*asked).json == 5
    assert cli("--store", path, "topics", "stats", "a/b/t").exit_code == 0
    _delete(path, ledger_path(77))
    cli(*asked).fails(6, "metadata-corrupt", "metadata of the compacted ledger 77 is gone")
    cli("--store", path, "topics", "stats", "a/b/t").ends(1, "topic policies of a/b are unknown")


@pytest.fixture
def with_rubbish(tmp_path: Path) -> Path:
    path = copied("small", "clean", tmp_path)
    put_node(path, "/managed-ledgers/public/default/persistent/plain", b"\xff\xff rubbish")
    return path


@pytest.mark.parametrize(
    "words",
    [
        "delayed histogram --all-topics",
        "topics dump --all-topics",
        "topics expire-all-subscriptions --all-topics -t 1s --force --dry-run",
    ],
)
def test_a_damaged_topic_stops_no_other(words: str, with_rubbish: Path, cli: Cli, damages_stores: None) -> None:
    answer = cli("--store", with_rubbish, *words.split()).ends(1, "persistent/plain")
    assert "persistent://acme/delayed/reminders" in answer.stdout
    assert cli("--store", with_rubbish, "topics", "dump", PLAIN).exit_code == 6


@pytest.mark.parametrize(
    ("words", "goes_on_with"),
    [
        ("topics expire-all-subscriptions --all-topics -t 1s --force --dry-run", "persistent://acme/delayed/reminders"),
        ("topics expire --all-topics -s expire-me -t 1s --force --dry-run", "persistent://acme/iot/skewed"),
        ("topics unsubscribe --all-topics -s expire-me --dry-run", "persistent://acme/iot/skewed"),
        ("delayed histogram --all-topics", "persistent://acme/delayed/reminders"),
        ("namespaces clear-backlog public/default --dry-run", "persistent://public/default/steady"),
    ],
)
@pytest.mark.usefixtures("damages_stores")
def test_a_damaged_cursor_stops_no_other(words: str, goes_on_with: str, store: Path, cli: Cli) -> None:
    put_node(store, "/managed-ledgers/public/default/persistent/plain/expire-me", b"\xff\xff rubbish")
    answer = cli("--store", store, *words.split()).ends(1, "persistent/plain/expire-me")
    assert goes_on_with in answer.stdout
    assert cli("--store", store, "topics", "expire", PLAIN, "-s", "expire-me", "-t", "1s", "--dry-run").exit_code == 6


@pytest.mark.parametrize("component", ["a b", "%41", "a%2fb", "~x", "%zz"])
@pytest.mark.usefixtures("damages_stores")
def test_only_names_that_commands_find_are_listed(component: str, store: Path, cli: Cli) -> None:
    listed = cli("--store", store, "topics", "list", "public/default").stdout
    node = f"/managed-ledgers/public/default/persistent/{component}"
    put_node(store, node, b"")
    assert cli("--store", store, "topics", "list", "public/default").stdout == listed
    rows = cli("--store", store, "store", "check", "-o", "json").json
    assert [row["where"] for row in rows if row["code"] == "name-not-encoded"] == [node]


def test_the_zeroth_message_of_an_empty_topic(tmp_path: Path, cli: Cli) -> None:
    path = make_store(tmp_path / "s", {"public/default/empty": MadeTopic([[]])})
    for origin in ("earliest", "latest"):
        answer = cli("--store", path, "topics", "examine-messages", "public/default/empty", "-i", origin, "-m", "0")
        assert answer.exit_code == 5
        assert "total message is zero" in answer.stderr
