"""What brokers would delete, against what the recorded broker said of subscriptions, sizes and policies."""

from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.codec.cursor import CursorInfo, encode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import parse_topic
from tests.conftest import Cli
from tests.stores import copied, imported, lose_nodes, put_node, read_store
from tests.worlds import oracle, world

DAY_MS = 86_400_000


def brokers(cli: Cli, *words: object) -> dict[str, Any]:
    result = cli.done("-o", "json", *words)
    return result.json["brokers"]  # type: ignore[no-any-return]


def unused() -> dict[str, int]:
    """Topics that had no subscription, in namespaces that do not retain for ever, with the bytes that the broker counted."""
    said = oracle("small")
    kept = {
        name
        for name, answers in said["namespaces"].items()
        if answers["policies"].get("retention_policies", {}).get("retentionTimeInMinutes") == -1
    }
    return {
        f"persistent://{name}": answers["stats"]["storageSize"]
        for name, answers in said["topics"].items()
        if name.rpartition("/")[0] not in kept and not answers["stats"]["subscriptions"]
    }


def test_unused_topics_go(cli: Cli) -> None:
    found = brokers(cli, "--store", imported("small", "clean"), "store", "preflight", "--brokers")
    rows = {row["topic"]: row for row in found["rows"] if row["inactive"]}
    expected = unused()
    assert expected
    # One more topic is in the namespaces' lists that the broker was not asked of.
    assert rows.keys() - expected.keys() == {"persistent://public/default/odd%20name"}
    assert {topic: rows[topic]["bytes"] for topic in expected} == expected
    assert {row["afterSeconds"] for row in rows.values()} == {60}
    assert found["inactive"]["topics"] == len(rows)
    by_metadata = brokers(cli, "store", "preflight", "--metadata", world("small") / "clean" / "metadata")
    assert {row["topic"] for row in by_metadata["rows"] if row["inactive"]} == rows.keys()


@pytest.mark.parametrize(
    ("setting", "goes"),
    [
        ("brokerDeleteInactiveTopicsEnabled=false", False),
        ("defaultRetentionTimeInMinutes=-1", False),
        ("brokerDeleteInactiveTopicsMaxInactiveDurationSeconds=7", True),
    ],
)
def test_settings_of_brokers(cli: Cli, tmp_path: Path, setting: str, goes: bool) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"# of a broker\n{setting}\n")
    words = ("--store", imported("small", "clean"), "store", "preflight", "--broker-conf", conf)
    rows = [row for row in brokers(cli, *words)["rows"] if row["inactive"] and "/public/default/" in row["topic"]]
    assert bool(rows) == goes
    if "Seconds" in setting:
        assert {row["afterSeconds"] for row in rows} == {7}


def test_a_topic_that_cannot_be_read_hides_no_other(cli: Cli, tmp_path: Path, damages_stores: None) -> None:
    path, name = copied("small", "clean", tmp_path), parse_topic("acme/iot/skewed")
    before = brokers(cli, "--store", path, "--now", "2030-01-01T00:00:00Z", "store", "preflight", "--brokers")["rows"]
    put_node(path, name.path, b"\xff\xff")
    found = cli("-o", "json", "--store", path, "--now", "2030-01-01T00:00:00Z", "store", "preflight", "--brokers")
    assert f"{name}: " in found.stderr + found.stdout
    assert found.json["brokers"]["rows"] == [row for row in before if row["topic"] != str(name)]


def test_a_topic_that_is_to_be_compacted_stays(cli: Cli, tmp_path: Path) -> None:
    """A broker that loads it makes compaction's cursor at its beginning."""
    store, topic = copied("small", "clean", tmp_path), next(iter(unused()))
    assert cli("--store", store, "topics", "set-compaction-threshold", topic, "-t", "100M").exit_code == 0
    rows = brokers(cli, "--store", store, "store", "preflight", "--brokers")["rows"]
    assert {row["topic"] for row in rows if row["inactive"] or row["trimmed"]}.isdisjoint({topic})


def test_an_age_limit(cli: Cli) -> None:
    """The namespace's TTL is a day: years later the whole backlog expires, and every ledger is trimmed."""
    store = imported("small", "clean")
    assert oracle("small")["namespaces"]["acme/iot"]["policies"]["message_ttl_in_seconds"] == DAY_MS // 1000
    said = oracle("small")["topics"]["acme/iot/skewed-batched"]["stats"]["subscriptions"]
    late = brokers(cli, "--store", store, "--now", "2030-01-01T00:00:00Z", "store", "preflight", "--brokers")
    rows = {row["topic"]: row for row in late["rows"]}
    lost = {name: row["bytes"] if row["inactive"] else row["trimmed"] + row["expired"] for name, row in rows.items()}
    assert [*rows] == sorted(rows, key=lambda name: (-lost[name], name))
    row = rows["persistent://acme/iot/skewed-batched"]
    assert row["expires"] == sum(answers["msgBacklog"] for answers in said.values())
    assert row["expired"] + row["trimmed"] == row["bytes"]
    without = [row for topic, row in rows.items() if "/public/default/" in topic and not row["inactive"]]
    assert {row["expires"] for row in without} == {0}  # that namespace has no TTL
    metadata = ("store", "preflight", "--metadata", world("small") / "clean" / "metadata")
    assert (
        brokers(cli, "--now", "2030-01-01T00:00:00Z", *metadata)["entriesExpired"] > 0
    )  # by the times of ledgers alone
    assert cli("--store", store, "store", "preflight", "--brokers", "--max-loss", "1").exit_code == 3


def test_a_lost_entry_at_which_a_broker_looks_for_old_ones_keeps_all(cli: Cli, tmp_path: Path) -> None:
    store, topic = copied("small", "clean", tmp_path), parse_topic("acme/iot/skewed-batched")
    ids = read_store(store, lambda reader: read_topic(reader.txn, topic).ids)
    assert lose_nodes(store, *map(ledger_path, ids)) == len(ids)
    late = brokers(cli, "--store", store, "--now", "2030-01-01T00:00:00Z", "store", "preflight", "--brokers")
    assert str(topic) not in {row["topic"] for row in late["rows"]}


def test_an_age_limit_moves_the_subscriptions_beside_the_broker_s_own_cursor(cli: Cli, tmp_path: Path) -> None:
    store, topic = copied("small", "clean", tmp_path), "acme/orders/compacted-single"
    said = oracle("small")["topics"][topic]
    assert said["stats"]["subscriptions"]["__compaction"]["msgBacklog"] > 0
    assert cli.on(store, "namespaces set-message-ttl acme/orders --messageTTL 86400").exit_code == 0
    assert cli.on(store, f"topics create-subscription {topic} -s late --messageId earliest").exit_code == 0
    late = brokers(cli, "--store", store, "--now", "2030-01-01T00:00:00Z", "store", "preflight", "--brokers")
    (row,) = (row for row in late["rows"] if row["topic"] == f"persistent://{topic}")
    assert row["expires"] == said["internal_stats"]["numberOfEntries"]


def test_an_age_limit_moves_replicators_too(cli: Cli, tmp_path: Path) -> None:
    """``PersistentTopic.checkMessageExpiry`` expires for replicators as for subscriptions."""
    store, topic = copied("small", "clean", tmp_path), parse_topic("acme/iot/skewed-batched")
    first = read_store(store, lambda reader: read_topic(reader.txn, topic).first_position)
    before = brokers(cli, "--store", store, "--now", "2030-01-01T00:00:00Z", "store", "preflight", "--brokers")
    put_node(store, topic.cursor_path("pulsar.repl.west"), encode_cursor_info(CursorInfo(-1, first)))
    found = brokers(cli, "--store", store, "--now", "2030-01-01T00:00:00Z", "store", "preflight", "--brokers")
    entries = oracle("small")["topics"]["acme/iot/skewed-batched"]["internal_stats"]["numberOfEntries"]
    assert found["entriesExpired"] == before["entriesExpired"] + entries
    assert found["expired"] == before["expired"]
