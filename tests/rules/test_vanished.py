"""A topic whose node is gone without a deletion is lost, not leaked: it is named, its ledgers are kept, and it comes back."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec.claims import topic_claims
from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import LedgerState, encode_ledger_metadata, ledger_path
from pulsar_admin.store.codec.managedledger import decode_managed_ledger, encode_managed_ledger
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.files import METADATA_FILE_ID, Damage, put_damage
from pulsar_admin.store.db.tree import find_node, iter_paths, put_nodes, read_node, tree_key
from pulsar_admin.store.facts import vanished
from pulsar_admin.store.history import servers
from pulsar_admin.store.history.versions import Flaw, Version
from pulsar_admin.store.model.cursors import COMPACTION_CURSOR
from pulsar_admin.store.model.ledgers import find_metadata
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.rules import subscriptions
from pulsar_admin.store.sources.roots import Roots
from tests.conftest import Cli
from tests.cures import curing
from tests.cures.curing import put_values, told
from tests.deep import deep_but_for
from tests.stores import apply_values, change_value, copied, imported, lose_nodes, read_rows, write_rows
from tests.worlds import CLUSTER, copy_tree, world

Json = Any  # a JSON value
NAMES = ("public/default/plain", "acme/iot/skewed-batched")


def path_of(name: str) -> str:
    tenant, namespace, topic = name.split("/")
    return f"/managed-ledgers/{tenant}/{namespace}/persistent/{topic}"


def without_nodes(tmp_path: Path, *names: str) -> Path:
    """A standalone's directory whose RocksDB lost the nodes of topics and of their cursors."""
    source = tmp_path / "source"
    copy_tree(world("small") / "clean", source)
    with open_store(imported("small", "clean")) as store, store.read() as txn:
        keys = [key for name in names for key in txn.keys("tree", path_of(name).encode())]
    apply_values(source / "metadata", dict.fromkeys(keys))
    return source


def value_of(store: Path, path: str) -> bytes:
    return read_rows(store, lambda txn: read_node(txn, path).value)


def diagnoses(cli: Cli, store: Path) -> list[Json]:
    return cli("--store", store, "doctor", "-o", "jsonl").json_lines


def codes_in(cli: Cli, store: Path) -> set[str]:
    return {row["code"] for row in diagnoses(cli, store)}


def reasons_of(cli: Cli, store: Path) -> dict[int, str]:
    """Why each ledger that nothing references is there."""
    rows = cli("--store", store, "ledgers", "orphans", "-o", "jsonl").json_lines
    return {row["ledgerId"]: row["reason"] for row in rows}


def told_of(cli: Cli, store: Path, code: str) -> list[Json]:
    return [row for row in diagnoses(cli, store) if row["code"] == code]


def claim_for(store: Path, ledger_id: int, custom: Mapping[str, bytes]) -> None:
    """Let the metadata of a ledger say whose it is."""

    def work(txn: Txn) -> None:
        node, metadata = find_node(txn, ledger_path(ledger_id)), find_metadata(txn, ledger_id)
        claimed = replace(metadata, custom={"application": b"pulsar", **custom})
        put_nodes(txn, [node._replace(value=encode_ledger_metadata(claimed))])

    write_rows(store, work)


def entries_of(cli: Cli, store: Path, name: str) -> Mapping[int, int]:
    """The entries of each ledger that a topic lists."""
    rows = cli("--store", store, "ledgers", "list", "--topic", name, "-o", "jsonl").json_lines
    owner = {"kind": "managed-ledger", "topic": f"persistent://{name}", "cursor": ""}
    return {row["ledgerId"]: row["entries"] for row in rows if row["entries"] and owner in row["owners"]}


def check_told(cli: Cli, store: Path, names: tuple[str, ...]) -> None:
    """Each is a critical with its name, and none of its ledgers is called leaked."""
    truth = {name: entries_of(cli, imported("small", "clean"), name) for name in names}
    found = diagnoses(cli, store)
    told = {row["where"]: row["evidence"] for row in found if row["code"] == "topic-vanished"}
    assert told.keys() == {f"persistent://{name}" for name in names}
    for name in names:
        assert told[f"persistent://{name}"]["entries"] == sum(truth[name].values())
    lost = {ledger for ledgers in truth.values() for ledger in ledgers}
    leaked = {one for row in found if row["code"].startswith("leaked") for one in row["evidence"]["ledgerIds"]}
    assert not leaked & lost
    refused = cli("--store", store, "-o", "json", "ledgers", "delete", *map(str, sorted(lost)), "-y")
    assert (refused.exit_code, set(refused.error["context"]["ledgerIds"]) <= lost) == (3, True)
    rows = cli("--store", store, "store", "check", "-o", "jsonl").json_lines
    assert [(row["severity"], row["code"]) for row in rows].count(("problem", "topic-vanished")) == len(names)


def check_not_deleted(cli: Cli, store: Path, names: tuple[str, ...]) -> None:
    """What brings deleted topics back says that this is none, and what does instead."""
    for name in names:
        refused = cli("--store", store, "-o", "json", "topics", "undelete", name, "--in-place", "-y").ends(3)
        assert f"{name} was not deleted the way brokers delete" in refused.error["message"]
        words = refused.error["hint"].partition("pulsar-admin ")[2].split()
        assert cli("--store", store, *words, "--dry-run").exit_code == 0


def check_cured(cli: Cli, store: Path, names: tuple[str, ...]) -> None:
    mend = {row["mend"] for row in told_of(cli, store, "topic-vanished")}
    assert len(mend) == 1
    words = mend.pop().split()
    assert words[0] == "pulsar-admin"
    assert cli("--store", store, *words[1:], "-y").exit_code == 0
    assert "topic-vanished" not in codes_in(cli, store)
    for name in names:
        assert entries_of(cli, store, name) == entries_of(cli, imported("small", "clean"), name)


@deep_but_for((1,), "names", [NAMES[:1], NAMES])
def test_of_rocksdb(names: tuple[str, ...], cli: Cli, tmp_path: Path) -> None:
    store = tmp_path / "s"
    assert cli("--store", store, "store", "import", "standalone", without_nodes(tmp_path, *names)).exit_code == 0
    check_told(cli, store, names)
    check_not_deleted(cli, store, names)
    check_cured(cli, store, names)


@pytest.mark.usefixtures("damages_stores")
def test_of_zookeeper_with_three_bookies(cli: Cli, tmp_path: Path) -> None:
    """Its logs have the topic, and no deletion of it."""
    store = copied(CLUSTER, "clean", tmp_path)
    truth = entries_of(cli, store, NAMES[0])
    lose_nodes(store, path_of(NAMES[0]))
    told = told_of(cli, store, "topic-vanished")
    assert [(row["severity"], row["where"]) for row in told] == [("critical", f"persistent://{NAMES[0]}")]
    assert told[0]["evidence"]["entries"] == sum(truth.values())
    check_not_deleted(cli, store, NAMES[:1])
    assert cli("--store", store, *told[0]["mend"].split()[1:], "-y").exit_code == 0
    assert entries_of(cli, store, NAMES[0]) == truth


@pytest.mark.usefixtures("damages_stores")
def test_what_is_created_over_lost_data_is_warned_of(cli: Cli, tmp_path: Path) -> None:
    """With the command that brings the data back: nothing else would tell of it once an empty topic has the name."""
    store, parts, dump = copied("small", "clean", tmp_path), "acme/orders/parts", tmp_path / "dump.jsonl"
    dump.write_text(cli("--store", store, "topics", "dump", NAMES[0], "--level", "entries").stdout)
    lose_nodes(store, path_of(NAMES[0]), path_of(f"{parts}-partition-1"), "/admin/policies/acme/iot")
    plain, part = (
        f"persistent://{NAMES[0]} was lost",
        f"persistent://{parts}-partition-1 was lost, not deleted; what remains",
    )
    for words, says in (
        (f"topics create {NAMES[0]}", plain),
        (f"topics create-partitioned-topic {NAMES[0]} -p 2", plain),
        (f"topics create-shadow-topic {NAMES[0]} -s acme/orders/codecs", plain),
        (f"topics create-missed-partitions {parts}", f"{part} of it: 1 ledger with 13 entries"),
        (f"topics update-partitioned-topic {parts} -p 5", part),
        (f"topics load {dump}", plain),
        (f"topics copy {NAMES[0]} --from {imported('small', 'clean')}", plain),
        ("namespaces create acme/iot", "the policies of acme/iot were lost, but not its 2 topics"),
        ("topics create public/default/new", ""),
    ):
        warnings = str(cli("--store", store, *words.split(), "--dry-run", "-o", "json").json)
        assert (says in warnings, "store recover --level A" in warnings) == (True, bool(says)), words


@pytest.mark.usefixtures("damages_stores")
def test_where_metadata_is_damaged_what_is_created_over_ledgers_is_warned_of(cli: Cli, tmp_path: Path) -> None:
    store, cut = copied("small", "clean", tmp_path), Damage(METADATA_FILE_ID, 5, 10, "/admin: cut", -1, -1)
    lose_nodes(store, path_of(NAMES[0]), path_of(NAMES[1]), "/admin/policies/acme/iot")
    write_rows(store, lambda txn: put_damage(txn, cut))
    for words, path in (
        (f"topics create {NAMES[0]}", path_of(NAMES[0])),
        (f"topics create-partitioned-topic {NAMES[0]} -p 2", path_of(NAMES[0])),
        (f"scalable-topics create {NAMES[0]}", path_of(NAMES[0])),
        ("namespaces create acme/iot", path_of(NAMES[1])),
        ("topics create public/default/new", None),
    ):
        warnings = cli.json(store, f"{words} --dry-run").get("warnings", ())
        assert [f"of {path} remain" in one and "nothing shows whether" in one for one in warnings] == [True] * bool(
            path
        )


@pytest.mark.usefixtures("damages_stores")
def test_a_topic_without_its_node_beside_damaged_metadata_shows_what_is_left(whole_cli: Cli, tmp_path: Path) -> None:
    store, path = copied("small", "clean", tmp_path), parse_topic(NAMES[0]).path
    write_rows(store, lambda txn: put_damage(txn, Damage(METADATA_FILE_ID, 5, 10, "/admin: cut", -1, -1)))
    write_rows(store, lambda txn: txn.delete("tree", tree_key(path)))
    (found,) = told_of(whole_cli, store, "topic-unreadable")
    shown = whole_cli(*shlex.split(found["mend"])[1:])
    assert (shown.exit_code, "half" in shown.stdout) == (0, True), found["mend"]


@pytest.mark.usefixtures("damages_stores")
def test_a_scalable_topic_created_over_its_lost_segments_is_warned_of(cli: Cli, tmp_path: Path) -> None:
    store, segments = copied("scalable", "clean", tmp_path), "/managed-ledgers/acme/n/segment/scal/"
    nodes = read_rows(store, lambda txn: [path for path in iter_paths(txn, segments) if path.count("/") == 6])
    lose_nodes(store, segments, "/topics/acme/n/scal")
    warnings = cli.json(store, "scalable-topics create acme/n/scal --dry-run")["warnings"]
    assert not any("without a record" in one for one in warnings)
    said = [one.split()[3] for one in warnings if one.endswith("see them with: pulsar-admin ledgers orphans")]
    assert said == sorted(nodes)


@pytest.mark.usefixtures("damages_stores")
def test_a_damaged_row_elsewhere_refuses_nothing_that_is_created(cli: Cli, store: Path) -> None:
    long = path_of("acme/secure/" + 500 * "x")
    write_rows(store, lambda txn: txn.put("tree", tree_key(long), b"damaged"))
    for line in ("topics create public/default/new", "namespaces create acme/new"):
        (warning,) = cli.json(store, f"{line} --dry-run")["warnings"]
        assert warning.startswith("whether data of a lost topic of that name remain is unknown: the row of"), line
    write_rows(store, lambda txn: txn.delete("tree", tree_key(long)))  # its digest fits: no screen goes on past it


@pytest.mark.usefixtures("damages_stores")
def test_a_scalable_topic_created_beside_segments_without_a_record_is_warned_of(cli: Cli, tmp_path: Path) -> None:
    store = copied("scalable", "clean", tmp_path)
    lose_nodes(store, "/topics/acme/n/scal")
    (warning,) = cli.json(store, "scalable-topics create acme/n/scal --segments 2 --dry-run")["warnings"]
    assert warning.startswith("segments 0000-7fff-3, 0000-ffff-2 and 8000-ffff-4 exist without a record of the topic")


@pytest.mark.usefixtures("damages_stores")
def test_a_topic_that_was_deleted_as_brokers_do_is_none(cli: Cli, store: Path) -> None:
    """Ledgers first, the node last; and a ledger without entries that was made meanwhile is a leak, no lost topic."""
    assert cli("--store", store, "topics", "delete", NAMES[0], "--force", "-y").exit_code == 0
    assert "topic-vanished" not in codes_in(cli, store)


@pytest.mark.usefixtures("damages_stores")
@deep_but_for((0,), "name", ["small", CLUSTER])
def test_a_schema_whose_node_is_gone_is_lost_not_leaked(name: str, cli: Cli, tmp_path: Path) -> None:
    store = copied(name, "clean", tmp_path)
    topic = "persistent://public/default/avro"
    get = ("--store", store, "schemas", "get", topic)
    truth = cli(*get).stdout
    rows = cli("--store", store, "ledgers", "list", "-o", "jsonl").json_lines
    owner = {"kind": "schema", "topic": topic, "cursor": ""}
    (lost,) = (row["ledgerId"] for row in rows if owner in row["owners"])
    assert not told_of(cli, store, "schema-vanished")
    lose_nodes(store, "/schemas/public/default/avro")
    found = diagnoses(cli, store)
    told = [row for row in found if row["code"] == "schema-vanished"]
    assert [(row["where"], row["evidence"]["ledgerIds"]) for row in told] == [(topic, [lost])]
    leaked = {one for row in found if row["code"].startswith("leaked") for one in row["evidence"]["ledgerIds"]}
    assert lost not in leaked
    refused = cli("--store", store, "-o", "json", "ledgers", "delete", str(lost), "-y")
    assert (refused.exit_code, refused.error["context"]["ledgerIds"]) == (3, [lost])
    assert cli("--store", store, *told[0]["mend"].split()[1:], "-y").exit_code == 0
    assert cli(*get).stdout == truth
    assert not told_of(cli, store, "schema-vanished")


def view_rows(cli: Cli, store: Path, topic: str) -> list[Json]:
    return cli("--store", store, "compaction", "read", topic, "-o", "jsonl").json_lines


@pytest.mark.usefixtures("damages_stores")
@deep_but_for((0,), "name", ["small", CLUSTER])
def test_a_view_that_a_truncate_dropped_is_attached_again(name: str, cli: Cli, tmp_path: Path) -> None:
    """The keys that are only in it are told, and the printed command brings back what readers got of it, and no more."""
    store, topic = copied(name, "clean", tmp_path), "persistent://acme/orders/compacted-single"
    run = ("--store", store)
    before, status = view_rows(cli, store, topic), cli(*run, "compaction", "status", topic, "-o", "json").json
    ledger, horizon = status["ledger"]["ledgerId"], status["horizon"]
    assert cli(*run, "topics", "truncate", topic, "-y").exit_code == 0
    left = {row["key"] for row in cli(*run, "topics", "read", topic, "-o", "jsonl").json_lines}
    place = (horizon["ledgerId"], horizon["entryId"])
    kept = [row for row in before if (row["ledgerId"], row["entryId"]) <= place]
    only = {row["key"] for row in kept if row["size"]} - left
    assert only
    found = diagnoses(cli, store)
    told = [row for row in found if row["code"] == "compacted-view-detached"]
    assert [(row["where"], row["evidence"]["ledgerId"]) for row in told] == [(topic, ledger)]
    assert "no compacted view; its cursor is at" in cli(*run, "topics", "describe", topic).stdout
    assert told[0]["evidence"]["keys"] == len(only)
    assert set(told[0]["evidence"]["firstKeys"]) <= only
    leaked = {one for row in found if row["code"].startswith("leaked") for one in row["evidence"]["ledgerIds"]}
    assert ledger not in leaked
    previewed = cli.done(*run, *told[0]["mend"].split()[1:], "--dry-run")
    assert f"compactedLedger: none -> {ledger}" in previewed.stdout
    assert [row["code"] for row in diagnoses(cli, store)] == [row["code"] for row in found]
    attached = cli(*run, *told[0]["mend"].split()[1:], "-o", "json").json
    assert not [row for row in diagnoses(cli, store) if row["code"].startswith("compacted-view")]
    assert [row for row in view_rows(cli, store, topic) if (row["ledgerId"], row["entryId"]) <= place] == kept
    assert cli(*run, "compaction", "verify", topic).exit_code == 0
    assert cli(*run, "store", "check").stdout.count("compacted-view") == 0
    assert cli(*run, "store", "undo", str(attached["change"])).exit_code == 0
    assert told_of(cli, store, "compacted-view-detached") == told


@pytest.mark.usefixtures("damages_stores")
def test_what_a_broker_leaves_of_the_cursor(cli: Cli, store: Path) -> None:
    """A real 4.0 broker's truncate: no properties, at another position; and a cursor that is gone altogether."""
    topic = "persistent://acme/orders/compacted-single"
    cursor = path_of(topic.removeprefix("persistent://")) + "/__compaction"
    before = view_rows(cli, store, topic)
    change_value(store, cursor, lambda _: bytes.fromhex("08ffffffffffffffffff01102d180930cef9a3bfa134"))
    for gone in ("/nothing", cursor):  # references are found again
        lose_nodes(store, gone)
        (told,) = told_of(cli, store, "compacted-view-detached")
        assert told["where"] == topic
        change = cli("--store", store, *told["mend"].split()[1:], "-o", "json").json["change"]
        assert view_rows(cli, store, topic) == before
        assert cli("--store", store, "store", "undo", str(change)).exit_code == 0


@pytest.mark.usefixtures("damages_stores")
def test_logs_that_show_a_deletion_tell_a_leak_from_a_lost_topic(cli: Cli, tmp_path: Path) -> None:
    """A broker deleted ``doomed``: a ledger that names it and that it did not list was leaked; one that a change brought back neither."""
    store, doomed = copied(CLUSTER, "crashed", tmp_path), parse_topic("public/default/doomed")
    other = next(one for one, reason in reasons_of(cli, store).items() if reason == "unreferenced")
    claim_for(store, other, topic_claims(doomed))
    found = {row["code"]: row for row in diagnoses(cli, store)}
    assert "topic-vanished" not in found
    assert found["leaked-topic-ledgers"]["evidence"]["ledgerIds"] == [other]
    back, *_ = cli("--store", store, "topics", "undelete", str(doomed), "--dry-run", "-o", "json").json
    listed = back["after"]["ledgers"]
    assert cli("--store", store, "ledgers", "restore", "--deleted", str(listed[0]), "-y").exit_code == 0
    assert "topic-vanished" not in codes_in(cli, store)


@pytest.mark.usefixtures("damages_stores")
def test_a_ledger_of_a_schema_that_is_not_here_is_of_others(cli: Cli, store: Path) -> None:
    other = next(one for one, reason in reasons_of(cli, store).items() if reason == "unreferenced")
    claim_for(store, other, {"component": b"schema", "pulsar/schemaId": b"elsewhere/ns/t"})
    found = {row["code"]: row for row in diagnoses(cli, store)}
    assert found["ledgers-of-others"]["evidence"]["ledgerIds"] == [other]
    assert "/schemas/elsewhere/ns/t" in found["ledgers-of-others"]["message"]


def ledgers_of(cli: Cli, store: Path, name: str) -> list[int]:
    rows = cli("--store", store, "ledgers", "list", "--topic", name, "-o", "jsonl").json_lines
    owner = {"kind": "managed-ledger", "topic": f"persistent://{name}", "cursor": ""}
    return [row["ledgerId"] for row in rows if owner in row["owners"]]


@pytest.mark.parametrize("with_cursors", [False, True], ids=["cursors are there", "cursors are gone"])
@deep_but_for((0,), "name", NAMES)
def test_of_a_topic_that_is_gone_with_its_ledgers_nothing_says_deleted(
    name: str, with_cursors: bool, cli: Cli, tmp_path: Path
) -> None:
    """RocksDB keeps no history: after a loss of all its nodes it looks as after a deletion, but for what names the topic."""
    lost = ledgers_of(cli, imported("small", "clean"), name)
    with open_store(imported("small", "clean")) as opened, opened.read() as txn:
        below = [
            key for key in txn.keys("tree", path_of(name).encode()) if key == path_of(name).encode() or with_cursors
        ]
        cursors = list(txn.keys("tree", f"{path_of(name)}/".encode()))
    source, store = tmp_path / "source", tmp_path / "s"
    copy_tree(world("small") / "clean", source)
    apply_values(source / "metadata", dict.fromkeys([*below, *(ledger_path(one).encode() for one in lost)]))
    assert cli("--store", store, "store", "import", "standalone", source).exit_code == 0
    held = {one for one in lost if one in entries_of(cli, imported("small", "clean"), name)}
    reasons = reasons_of(cli, store)
    assert {reasons[one] for one in held} == {"gone"}
    rows = cli("--store", store, "ledgers", "list", "-o", "jsonl").json_lines
    assert {row["state"] for row in rows if row["ledgerId"] in held} == {"GONE"}
    found = {row["code"]: row for row in diagnoses(cli, store)}
    assert "ledgers-deleted" not in found
    assert "topic-unreadable" not in found
    refused = cli("--store", store, "ledgers", "delete", *map(str, sorted(held)), "--force", "-y")
    assert refused.exit_code != 0
    if with_cursors or not cursors:
        assert "topic-vanished" not in found
        return
    told = found["topic-vanished"]
    assert (told["severity"], told["where"]) == ("critical", f"persistent://{name}")
    assert told["evidence"]["subscriptions"] == sorted(key.decode().rpartition("/")[2] for key in cursors)[:5]
    assert cli("--store", store, *told["mend"].split()[1:]).exit_code == 0
    for level in ((), ("--level", "A"), ("--level", "B")):
        made = cli.done("--store", store, "store", "recover", *level, "--dry-run", "-o", "json")
        assert made.json["after"]["leftOut"] == [f"persistent://{name}"]
        assert "passedOver" not in made.json["after"]


@pytest.mark.usefixtures("damages_stores")
@deep_but_for((1,), "world_name", ["small", CLUSTER])
def test_what_asks_of_all_topics_goes_on_beside_one_of_which_subscriptions_alone_are_left(
    world_name: str, cli: Cli, tmp_path: Path
) -> None:
    store, name = copied(world_name, "clean", tmp_path), NAMES[0]
    ask = ("--store", store, "-o", "jsonl")
    tables = [("topics", "subscriptions", "--all-topics", *more) for more in ((), ("--table",), ("--table", "--quick"))]
    tables.append(("topics", "describe", "--all-topics"))
    whole = [
        [row for row in cli(*ask, *words).json_lines if row["topic"] != f"persistent://{name}"] for words in tables
    ]
    annotated = cli("--store", store, "-o", "json", "store", "annotate", "--all-topics", "--dry-run").json
    ledgers = ledgers_of(cli, store, name)
    with open_store(store, writable=True) as opened:
        opened.write(lambda txn: [txn.delete("tree", path.encode()) for path in map(ledger_path, ledgers)])
        opened.write(lambda txn: txn.delete("tree", path_of(name).encode()))
    lose_nodes(store, "/nothing")  # references are found again
    assert f"persistent://{name}" in cli("--store", store, "topics", "list", "public/default").stdout.splitlines()
    for words, rows in zip(tables, whole, strict=True):
        answer = cli(*ask, *words)
        assert (answer.exit_code, answer.json_lines) == (1, rows), words
        assert f"no topic persistent://{name}: its node is gone" in answer.stderr
    alone = cli("--store", store, "-o", "json", "topics", "describe", name)
    assert (alone.exit_code, alone.error["context"].get("near")) == (5, None)
    assert cli("--store", store, *alone.error["hint"].rpartition("pulsar-admin ")[2].split()).exit_code == 1
    left = cli("--store", store, "-o", "json", "store", "annotate", "--all-topics", "--dry-run").json
    assert left == [part for part in annotated if part["topic"] != f"persistent://{name}"]
    gone = cli("--store", store, "-o", "json", "topics", "undelete", name, "--by-evidence", "--dry-run")
    assert (gone.exit_code, "no topic" in gone.error["message"]) == (3, False)
    assert gone.error["hint"].endswith("ledgers orphans")


@pytest.mark.usefixtures("damages_stores")
def test_what_shows_a_deletion_is_said(cli: Cli, store: Path, tmp_path: Path) -> None:
    """A change of this store; and ZooKeeper's logs, of the ledgers of ``doomed`` that a broker deleted, and of no others."""
    listed = ledgers_of(cli, store, NAMES[0])
    assert cli("--store", store, "topics", "delete", NAMES[0], "--force", "-y").exit_code == 0
    assert {reason for one, reason in reasons_of(cli, store).items() if one in listed} == {"deleted"}
    assert "ledgers-deleted" in codes_in(cli, store)
    other = copied(CLUSTER, "crashed", tmp_path / "other")
    doomed, *_ = cli("--store", other, "topics", "undelete", "public/default/doomed", "--dry-run", "-o", "json").json
    kept = ledgers_of(cli, other, NAMES[1])[0]
    lose_nodes(other, ledger_path(kept), path_of(NAMES[1]))  # from our rows alone: no log shows it
    reasons = reasons_of(cli, other)
    assert {reasons[one] for one in doomed["after"]["ledgers"]} == {"deleted"}
    assert reasons[kept] == "gone"


@pytest.mark.usefixtures("damages_stores")
def test_policies_that_are_kept_elsewhere_are_not_gone(cli: Cli, store: Path) -> None:
    """Of some namespaces they are gone; of all they may be in a configuration store; what is left of the system needs none."""
    lose_nodes(store, "/admin/policies/acme/orders", "/admin/policies/public/default")
    topics = {row["where"]: row["evidence"]["topics"] for row in told_of(cli, store, "namespace-vanished")}
    assert topics == {"acme/orders": 9, "public/default": 10}
    why = cli("--store", store, "topics", "why", "public/default/plain", "-s", "half", "-o", "json").json
    assert why["reasons"][0]["code"] == "policies-unreadable"
    lose_nodes(store, *(f"/managed-ledgers/acme/orders/persistent/{first}" for first in "cp"))
    assert [row["where"] for row in told_of(cli, store, "namespace-vanished")] == ["public/default"]
    lose_nodes(store, "/admin/policies/")
    assert told_of(cli, store, "namespace-vanished") == []


@pytest.mark.usefixtures("damages_stores")
def test_a_ledger_that_readers_still_need_and_a_list_lacks_is_not_to_be_deleted(cli: Cli, tmp_path: Path) -> None:
    """Brokers remove ledgers from the beginning of a list alone, and none that a subscription needs: messages are lost with them."""
    store, path = copied("small", "clean", tmp_path), parse_topic("public/default/plain").path
    managed = read_rows(store, lambda txn: decode_managed_ledger(read_node(txn, path).value, path))
    dropped, first = managed.ledgers[3].ledger_id, managed.ledgers[0].ledger_id
    put_values(
        store, {path: encode_managed_ledger(replace(managed, ledgers=(*managed.ledgers[1:3], *managed.ledgers[4:])))}
    )

    def told() -> Json:
        rows = told_of(cli, store, "leaked-topic-ledgers")
        return {row["severity"]: row["evidence"]["ledgerIds"] for row in rows}

    assert told() == {"warning": [first, dropped]}  # subscriptions still need what the first has
    assert cli("--store", store, "ledgers", "delete", first, "--dry-run").exit_code == 3
    lose_nodes(store, *(f"{path}/{name}" for name in ("expire-me", "holes", "never", "reset-me")))
    assert told() == {"warning": [dropped], "note": [first]}
    assert cli("--store", store, "ledgers", "delete", dropped, "--dry-run").exit_code == 3
    assert cli("--store", store, "ledgers", "delete", dropped, "--dry-run", "--force").exit_code == 0
    assert cli("--store", store, "ledgers", "delete", first, "--dry-run").exit_code == 0
    put_values(store, {path: encode_managed_ledger(replace(managed, ledgers=()))})
    assert told()["warning"][:2] == [first, managed.ledgers[1].ledger_id]


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("places", [(0,), (3,), (2, 3), (11,), (9, 11), range(1, 8)])
def test_ledgers_are_put_back_into_the_list_of_their_topic(
    places: Sequence[int], whole_cli: Cli, tmp_path: Path
) -> None:
    """As they were, whatever their place; the ledger before the last one that is left has its size in the list."""
    store, path = copied("small", "clean", tmp_path), parse_topic("public/default/plain").path
    before, value = told(diagnoses(whole_cli, store)), value_of(store, path)
    cursors = whole_cli("--store", store, "topics", "stats-internal", "public/default/plain").json["cursors"]
    stored = {name: cursor["markDeletePosition"] for name, cursor in cursors.items()}
    managed = decode_managed_ledger(value, path)
    gone = [managed.ledgers[place].ledger_id for place in places]
    left = tuple(info for info in managed.ledgers if info.ledger_id not in gone)
    put_values(store, {path: encode_managed_ledger(replace(managed, ledgers=left))})
    (row,) = told_of(whole_cli, store, "leaked-topic-ledgers")
    assert row["severity"] == "warning"
    assert row["mend"].endswith(f" ledgers restore {' '.join(map(str, gone))}")
    past = [name for name, at in stored.items() if tuple(map(int, at.split(":"))) >= (gone[0], 0)]
    preview = whole_cli("--store", store, "ledgers", "restore", *gone, "--dry-run", "-o", "json").json
    warnings = preview.get("warnings", ())
    named = [str([text for text in warnings if ("one by one" in text) is is_single]) for is_single in (False, True)]
    assert [name for name in sorted(stored) if name in named[0]] == sorted(past)
    ranges = {name: cursor["individuallyDeletedMessages"] for name, cursor in cursors.items()}
    acknowledged = [name for name, text in ranges.items() if any(f"..{one}:" in text for one in gone)]
    assert [name for name in stored if name in named[1]] == acknowledged
    curing.check_cured(whole_cli, store, row, before, [path])
    again = decode_managed_ledger(value_of(store, path), path)
    for was, now in zip(managed.ledgers, again.ledgers, strict=True):
        assert replace(now, timestamp_ms=was.timestamp_ms) == was
        assert abs((now.timestamp_ms or 0) - (was.timestamp_ms or 0)) < 1000


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("lost", [(), (Damage(METADATA_FILE_ID, 5, 10, "/admin: cut", -1, -1),)])
def test_a_cursor_ahead_of_a_list_that_lost_ledgers_is_not_moved(
    lost: Sequence[Damage], whole_cli: Cli, store: Path
) -> None:
    """A reset to the end would skip what comes back with the list."""
    write_rows(store, lambda txn: [put_damage(txn, one) for one in lost])
    ask = ("--store", store, "topics", "subscriptions", NAMES[0], "--table", "-o", "json")
    before = whole_cli(*ask).json
    put_values(store, {parse_topic(NAMES[0]).path: b""})
    ahead = told_of(whole_cli, store, "cursor-ahead")
    assert len(ahead) == len(before)
    (mend,) = {row["mend"] for row in ahead}
    curing.run_printed(whole_cli, mend)
    assert told_of(whole_cli, store, "cursor-ahead") == []
    assert whole_cli(*ask).json == before


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("name", ["workers", COMPACTION_CURSOR])
def test_a_cursor_in_the_empty_ledger_after_those_that_come_back(name: str, whole_cli: Cli, tmp_path: Path) -> None:
    """A broker leaves a cursor there, and an empty ledger is not listed again: the finding names the second command too."""
    store, topic = copied("small", "mutated", tmp_path), parse_topic("acme/delayed/reminders")
    at_end = encode_cursor_info(CursorInfo(-1, Position(217, -1)))
    put_values(store, {topic.path: b"", topic.cursor_path("audit"): b"", topic.cursor_path(name): at_end})
    (row,) = (one for one in told_of(whole_cli, store, "cursor-ahead") if one["where"].endswith(name))
    following = row["message"].partition("Once they are back: ")[2]
    assert f"\n  {following}\n" in whole_cli("--store", store, "doctor").stdout
    curing.run_printed(whole_cli, row["mend"])
    curing.run_printed(whole_cli, following)
    assert not [one for one in told_of(whole_cli, store, "cursor-ahead") if one["where"].endswith(name)]


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize("why", ["another Pulsar", "owners"])
def test_a_cursor_is_not_moved_where_its_ledgers_may_be_off_the_list(
    why: str, whole_cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be another Pulsar's, or the store's rows of owners are wrong."""
    path = parse_topic(NAMES[0]).path
    if why == "owners":
        write_rows(store, lambda txn: put_nodes(txn, [read_node(txn, path)._replace(value=b"")]))
    else:
        put_values(store, {path: b""})
        monkeypatch.setattr(vanished, "stored_roots", lambda _: Roots(shared=("/b",)))
        whole_cli("--store", store, "ledgers", "restore", 9).ends(3, "it may be another Pulsar's")
    ahead = told_of(whole_cli, store, "cursor-ahead")
    assert ahead
    mend = "store index --rebuild" if why == "owners" else "ledgers orphans"
    assert {" ".join(row["mend"].split()[3:]) for row in ahead} == {mend}


@pytest.mark.usefixtures("damages_stores")
def test_of_a_list_that_lost_many_ledgers_some_are_looked_at(
    whole_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each cursor that is ahead as many as the printed command names."""
    store, asked = copied("small", "clean", tmp_path), list[int]()
    put_values(store, {parse_topic(NAMES[0]).path: b""})
    monkeypatch.setattr(subscriptions, "LISTED_AT_ONCE", 2)
    monkeypatch.setattr(vanished, "is_listable", lambda _, ledger_id: asked.append(ledger_id) or True)
    ahead = told_of(whole_cli, store, "cursor-ahead")
    assert {row["mend"].partition("restore ")[2] for row in ahead} == {"9 18"}
    assert asked == [9, 18] * len(ahead)


@pytest.mark.usefixtures("damages_stores")
@pytest.mark.parametrize(
    "why", ["it is not closed", "entries of it are missing", "terminated at", "does not say where"]
)
def test_a_ledger_whose_place_is_unknown_is_not_put_back(why: str, cli: Cli, tmp_path: Path) -> None:
    store, path = copied("small", "clean", tmp_path), parse_topic("public/default/plain").path
    managed = decode_managed_ledger(value_of(store, path), path)
    dropped, left = managed.ledgers[3].ledger_id, (*managed.ledgers[:3], *managed.ledgers[4:])
    metadata = read_rows(store, lambda txn: find_metadata(txn, dropped))
    assert metadata is not None
    values = {}
    if why == "it is not closed":
        metadata = replace(metadata, state=LedgerState.OPEN, last_entry_id=-1, length=0)
    elif why == "entries of it are missing":
        metadata = replace(metadata, last_entry_id=metadata.last_entry_id + 1)
    elif why == "terminated at":
        managed = replace(managed, terminated=Position(managed.ledgers[2].ledger_id, 24))
    else:
        left = (*managed.ledgers[:2], replace(managed.ledgers[2], entries=0, size_bytes=0, timestamp_ms=0))
    values = {
        path: encode_managed_ledger(replace(managed, ledgers=left)),
        ledger_path(dropped): encode_ledger_metadata(metadata),
    }
    put_values(store, values)
    refused = cli("--store", store, "ledgers", "restore", dropped).ends(3, why)
    assert ("close it with: bookkeeper shell" in refused.stderr) is (why == "it is not closed")
    assert "ledgers restore" not in str([row["mend"] for row in told_of(cli, store, "leaked-topic-ledgers")])


def test_the_last_value_of_what_was_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    said = [
        Flaw(Path("log.1"), "damaged"),
        *(Version("p", 1, 2, None, "set", value, 0) for value in (b"a", b"b", None)),
    ]
    monkeypatch.setattr(servers, "find_servers", lambda sources: ())
    monkeypatch.setattr(servers, "iter_versions", lambda *of: said)
    reader = SimpleNamespace(txn=SimpleNamespace(store=SimpleNamespace(info=SimpleNamespace(sources=()))))
    assert vanished._last_values(reader, ["p"]) == {"p": b"b"}
