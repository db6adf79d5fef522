"""Making, changing and deleting topics: every line of a recorded session with a real broker, then what it says and leaves behind here."""

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pulsar_admin.store.changes.plan import ChangeKind, Plan, apply_plan, put_value_step
from pulsar_admin.store.changes.topics import plan_topic
from pulsar_admin.store.codec.cursor import decode_cursor_info
from pulsar_admin.store.codec.managedledger import LedgerInfo, decode_managed_ledger, encode_managed_ledger
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import find_node, iter_nodes
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.references import index_owners
from pulsar_admin.store.names import parse_topic
from tests.commands.changing import check_undo, rows_of
from tests.conftest import Cli
from tests.live.topic_changes import NAMESPACE, RECORDING
from tests.stores import copied, imported, in_store, put_node, read_rows
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store
from tests.worlds import asked_topics

PLAIN = "public/default/plain"
SYSTEM = ("__change_events", "__transaction_buffer_snapshot")
INDEX = "index"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    made = copied("small", "clean", tmp_path)
    put_node(made, f"/admin/policies/{NAMESPACE}", b"{}")
    return made


def known(path: str, value: bytes) -> Any:
    """What of a node does not depend on a running broker: its interceptors, ledgers and positions do."""
    if path.startswith("/admin/"):
        return value
    if path.count("/") == 5:
        return [pair for pair in decode_managed_ledger(value, path).properties.items() if pair[0] != INDEX]
    return decode_cursor_info(value, path).cursor_properties


def nodes_of(store: Path) -> dict[str, Any]:
    nodes = read_rows(store, lambda txn: [node for node in iter_nodes(txn, "/") if f"/{NAMESPACE}/" in node.path])
    return {node.path: known(node.path, node.value) for node in nodes}


def test_recorded_session(cli: Cli, store: Path) -> None:
    expected: dict[str, Any] = {}
    for number, step in enumerate(json.loads(RECORDING.read_text())):
        words = step["words"]
        ran = cli("--store", store, *words)
        failed = step["exit"] != 0 or step["stdout"].startswith("Failed to delete")  # there it exits with 0
        assert (ran.exit_code != 0) == failed, (words, ran.stderr)
        if not failed and words[1] != "create-subscription":  # which has a form of its own
            said = [line for line in step["stdout"].splitlines() if line != f"{INDEX}    -1"]
            order = sorted if words[1].startswith("list") else list
            assert order(ran.stdout.splitlines()) == order(said), words
        for path in step["deleted"]:
            expected.pop(path, None)
        for path, value in step["put"].items():
            if not any(name in path for name in SYSTEM):
                expected[path] = known(path, b64decode(value))
        assert nodes_of(store) == expected, (number, words)


# -- topics with entries ----------------------------------------------------------------------------------------------


def managed_of(store: Path, topic: str) -> Any:
    path = parse_topic(topic).path
    with open_store(store) as opened, opened.read() as txn:
        node = find_node(txn, path)
        return None if node is None else decode_managed_ledger(node.value, path)


def test_terminate(cli: Cli, store: Path) -> None:
    """As the recorded broker did: the position, the index of the last entry, the ledger list as it was."""
    before, rows = managed_of(store, PLAIN), rows_of(store)
    assert cli.json(store, f"topics describe {PLAIN}")["ledgers"][-1]["state"] == "open"
    said = cli.on(store, f"topics terminate {PLAIN}")
    after = managed_of(store, PLAIN)
    assert said.stdout == f"Topic successfully terminated at {after.terminated}:-1\n"
    assert after.ledgers == before.ledgers
    assert after.properties == {**before.properties, INDEX: "299"}
    assert cli.json(store, f"topics describe {PLAIN}")["ledgers"][-1]["state"] == "closed"
    again = cli.on(store, f"topics terminate {PLAIN}")
    assert (again.stdout, again.stderr.splitlines()[0][:9]) == (said.stdout, "no change")
    check_undo(cli, store, 1, rows)


def test_the_report_is_the_output_where_a_format_is_asked_for(cli: Cli, store: Path) -> None:
    done = cli.json(store, f"topics terminate {PLAIN}")
    assert done["after"] == {"terminatedPosition": str(managed_of(store, PLAIN).terminated)}
    assert cli.json(store, "topics compact acme/orders/compacted-single")["dryRun"] is False


def test_delete_says_which_subscriptions_lose_a_backlog(cli: Cli, store: Path) -> None:
    """As many messages as the broker said; a subscription that has acknowledged all loses none."""
    consumed = ("topics", "clear-backlog", PLAIN, "-s", "half")
    assert cli("--store", store, *consumed).exit_code == 0
    said = asked_topics("small")[PLAIN]["stats"]["subscriptions"]
    expected = {name: row["msgBacklog"] for name, row in said.items() if row["msgBacklog"] and name != "half"}
    assert len(expected) > 2
    delete = ("--store", store, "topics", "delete", PLAIN)
    preview = cli(*delete, "--dry-run").stdout
    for name, messages in expected.items():
        assert f"  backlogMessages.{name}: {messages}\n" in preview
    assert "backlogMessages.half" not in preview
    assert cli(*delete, "-o", "json").json["before"]["backlogMessages"] == expected


def test_delete_from_file(cli: Cli, store: Path, tmp_path: Path) -> None:
    (tmp_path / "names").write_text(f"{PLAIN}\npublic/default/missing\npublic/default/batched\n")
    cli("--store", store, "topics", "delete", "--from-file", tmp_path / "names").ends(1, "public/default/missing")
    assert managed_of(store, PLAIN) is None
    assert managed_of(store, "public/default/batched") is None
    both = cli("--store", store, "topics", "delete", "-r", "--from-file", tmp_path / "names")
    assert "Could not apply regex when read topics from file." in both.stderr
    cli("--store", store, "topics", "delete", "-r", "public/default/[b").ends(
        2, "'public/default/[b' is not a regular expression"
    )


@pytest.mark.usefixtures("damages_stores")
def test_the_ledgers_of_a_schema_that_cannot_be_read_are_unknown(cli: Cli, store: Path) -> None:
    put_node(store, parse_topic("public/default/avro").schema_path, b"\xff")
    done = cli.on(store, "topics delete public/default/avro --force --dry-run -o json")
    assert done.json["before"]["schemaLedgers"] is None
    assert "the schema of persistent://public/default/avro cannot be read" in done.stdout + done.stderr


def test_a_shadow_topic_does_not_take_the_ledgers_of_its_source_along(cli: Cli, store: Path) -> None:
    """A broker writes the ledgers of its source into a shadow topic (4.0.8)."""
    source, shadow = parse_topic(PLAIN), parse_topic("public/default/shadow")
    with open_store(store, writable=True) as opened:
        with opened.read() as txn:
            node = find_node(txn, source.path)
            plan = Plan(
                ChangeKind("store init", "store init"), txn.id, (put_value_step(txn, shadow.path, node.value, 0),), ()
            )
        apply_plan(opened, plan, 0)
    ledgers = [ledger.ledger_id for ledger in managed_of(store, PLAIN).ledgers]
    report = cli.json(store, f"topics delete {shadow}")
    assert report["before"]["ledgers"] == ledgers
    assert not report["unreferencedLedgers"]
    assert not report.get("entries")
    assert managed_of(store, PLAIN).ledgers


def test_a_shadow_topic_has_the_ledgers_of_its_source(cli: Cli, store: Path) -> None:
    """A broker takes the source's list when it loads one, and the stored list lags behind (``ShadowManagedLedgerImpl``): that of a real
    4.2.4 named a ledger without entries that the source had dropped. Ledger 146 is gone."""
    shadow = parse_topic("public/default/shadow")
    cli.on(store, f"topics create-shadow-topic {shadow} -s {PLAIN}")
    keys = ("numberOfEntries", "totalSize", "lastConfirmedEntry", "ledgers")
    expected = [cli.json(store, f"topics stats-internal {PLAIN}")[key] for key in keys]
    assert [cli.json(store, f"topics stats-internal {shadow}")[key] for key in keys] == expected
    shown, plain = (cli.rows(store, f"topics read {name} --columns ledgerId,entryId,sha1") for name in (shadow, PLAIN))
    assert shown == plain
    lagging = replace(managed_of(store, str(shadow)), ledgers=(LedgerInfo(146, 0, 0, 1),))
    put_node(store, shadow.path, encode_managed_ledger(lagging, b""))
    in_store(store, lambda opened: opened.write(lambda txn: index_owners(opened, txn)))
    listed = cli.on(store, f"topics stats-internal {shadow}")
    assert (listed.exit_code, listed.json["ledgers"]) == (0, expected[-1])
    assert cli.rows(store, "doctor --code ledger-missing") == cli.rows(store, "ledgers missing") == []
    truncated = cli.json(store, f"topics truncate {shadow} --dry-run")
    assert truncated.get("before") == truncated.get("after")
    nowhere = replace(lagging, properties={**lagging.properties, "PULSAR.SHADOW_SOURCE": "x://a"})
    put_node(store, shadow.path, encode_managed_ledger(nowhere, b""))
    (own,) = cli.json(store, f"topics stats-internal {shadow}")["ledgers"]
    assert own["ledgerId"] == 146


@pytest.mark.usefixtures("damages_stores")
def test_a_cursor_that_cannot_be_read_hides_no_backlog_of_another(cli: Cli, tmp_path: Path) -> None:
    path, words = copied("small", "clean", tmp_path), ("topics", "delete", PLAIN, "--force", "--dry-run", "-o", "json")
    whole = cli("--store", path, *words).json["before"]
    first = whole["subscriptions"][0]
    put_node(path, parse_topic(PLAIN).cursor_path(first), b"\xff")
    told = cli("--store", path, *words).json["before"]
    assert (told["subscriptions"], told["ledgers"]) == (whole["subscriptions"], whole["ledgers"])
    assert told["backlogMessages"] == {**whole["backlogMessages"], first: None}
    assert f"  backlogMessages.{first}: unknown\n" in cli("--store", path, *words[:-2]).stdout


def test_a_partition_0_is_not_the_partitioned_topic(cli: Cli) -> None:
    ask = ("topics", "update-partitioned-topic", "acme/orders/parts-partition-0", "-p", "9", "--dry-run")
    cli("--store", imported("small", "clean"), *ask).ends(3, "is not the partitioned topic")


def test_partition_0_of_a_partitioned_topic_can_be_created(tmp_path: Path) -> None:
    path = make_store(tmp_path / "s", {"a/b/c": MadeTopic([[Made(CREATED_MS)], []])})
    put_node(path, parse_topic("a/b/t").partitioned_path, b'{"partitions":1}')
    with open_store(path) as store, open_reader(store) as reader:
        assert len(plan_topic(reader, parse_topic("a/b/t-partition-0"), None, {}, CREATED_MS).steps) == 1
        with pytest.raises(InvalidValue, match="smaller than number of partition"):
            plan_topic(reader, parse_topic("a/b/t-partition-1"), None, {}, CREATED_MS)
