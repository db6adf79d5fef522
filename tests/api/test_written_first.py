"""Plans that write ledgers first, through the Python interface: policies of topics, loads, splits of indexes."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest

import pulsar_admin as pa
from tests.conftest import Cli
from tests.stores import NOW_MS
from tests.worlds import assert_unchanged, oracle, world

PLAIN = "public/default/plain"
REMINDERS = "acme/delayed/reminders"
ROWS = oracle("small")["topics"][PLAIN]["messages"]


def test_policies_of_a_topic_from_plan_to_undo(store: pa.Store) -> None:
    topic = store.topic(PLAIN)
    plans = {
        "message_ttl_seconds": topic.set_message_ttl("3d"),
        "retention": topic.set_retention(time="2d", size="10G"),
        "delayed_delivery": topic.set_delayed_delivery(active=True, tick="2s", max_delay="10d"),
        "backlog_quotas": topic.set_backlog_quota("producer_exception", size="1G"),
    }
    assert all(plan.preview().dry_run and not plan.changes_nothing for plan in plans.values())
    assert topic.policies().message_ttl_seconds is None
    number = store.apply(plans["message_ttl_seconds"]).number
    assert number == 1
    assert topic.policies().message_ttl_seconds == 3 * 86_400
    in_force = topic.policies_in_force().message_ttl
    assert (in_force.seconds, in_force.source) == (3 * 86_400, "topic")
    with pytest.raises(pa.StalePlan):
        store.apply(plans["retention"])
    assert topic.set_message_ttl("3d").changes_nothing
    assert store.apply(topic.set_message_ttl("3d")).number is None
    store.apply(topic.set_retention(time="2d", size="10G"))
    retention = topic.policies().retention
    assert (retention.time_minutes, retention.size_mb) == (2 * 24 * 60, 10 << 10)
    store.apply(topic.set_delayed_delivery(active=True, tick="2s"))
    store.apply(topic.remove_delayed_delivery())
    assert topic.policies().delayed_delivery is None
    store.apply(topic.set_backlog_quota("producer_exception", size="1G"))
    assert list(topic.policies().backlog_quotas) == ["destination_storage"]
    store.apply(topic.remove_backlog_quota())
    store.apply(topic.remove_retention())
    store.apply(topic.set_message_ttl(None))
    policies = topic.policies()
    assert (policies.message_ttl_seconds, policies.retention, policies.backlog_quotas) == (None, None, {})
    last = store.changes()[-1]
    assert last.command == "topics remove-message-ttl"
    store.undo(last.number)
    assert topic.policies().message_ttl_seconds == 3 * 86_400
    assert topic.policy("message-ttl") == 3 * 86_400
    store.apply(topic.set_policy("max-producers", 5))
    assert topic.policy("max-producers") == 5
    store.apply(topic.remove_policy("max-producers"))
    assert topic.policy("max-producers") is None
    for name, value in (("max-producers", -1), ("no-such-policy", 1)):
        with pytest.raises(pa.InvalidValue):
            store.apply(topic.set_policy(name, value))


def test_the_policies_of_several_topics_are_one_change(store: pa.Store) -> None:
    skewed = "acme/iot/skewed"
    policies = store.topic_policies(PLAIN, skewed)
    number = store.apply(policies.set_message_ttl("3d")).number
    assert number is not None
    assert [(one.topic, one.value, one.source) for one in policies.values("message-ttl")] == [
        (f"persistent://{PLAIN}", 3 * 86_400, "topic"),
        (f"persistent://{skewed}", 3 * 86_400, "topic"),
    ]
    assert store.topic(skewed).policy("message-ttl") == 3 * 86_400
    store.undo(number)
    assert [one.source for one in policies.values("message-ttl")] == [None, None]
    (in_force,) = store.topic_policies(PLAIN).values("message-ttl", applied=True)
    assert (in_force.value, in_force.source) == (0, "broker-default")
    assert store.topic_policies(PLAIN).answers("message-ttl", applied=True) == (0,)
    store.apply(store.topic(PLAIN).set_policy("max-producers", 5))
    store.apply(store.topic_policies(PLAIN).remove_policies())
    assert store.topic(PLAIN).policy("max-producers") is None
    with pytest.raises(pa.InvalidValue, match="for a partition"):
        store.topic_policies("acme/orders/parts-partition-0").set_message_ttl("3d")
    with pytest.raises(pa.InvalidValue):
        policies.values("no-such-policy")


def test_the_preview_is_the_commands(path: Path, cli: Cli) -> None:
    words = ("--store", path, "--now", f"@{NOW_MS}", "topics", "set-retention", PLAIN, "-t", "2d", "-s", "10G")
    shown = cli(*words, "--dry-run", "-o", "json").json
    with assert_unchanged(path / "meta" / "data.mdb"), pa.open_store(path, now=NOW_MS) as store:
        plan = store.topic(PLAIN).set_retention(time="2d", size="10G")
        assert plan.preview().documents()[0] == shown
        with pytest.raises(pa.NotWritable):
            store.apply(plan)


def test_a_stream_is_loaded(store: pa.Store, tmp_path: Path) -> None:
    store.dump(tmp_path / "dumped", PLAIN, level="entries", form="jsonl")
    lines = b"".join(path.read_bytes() for path in sorted((tmp_path / "dumped").rglob("*.jsonl")))
    store.apply(store.load(BytesIO(lines), topic="public/default/copy"))
    rows = store.topic("public/default/copy").messages(columns=["sha1"]).rows()
    assert [row["sha1"].hex() for row in rows] == [row[8] for row in ROWS]


def test_a_split_cuts_the_partitions(store: pa.Store) -> None:
    namespace, delayed = store.namespace("acme/delayed"), store.topic(REMINDERS).delayed("workers")
    store.apply(namespace.enable_delayed("1h", "2s"))
    wide = delayed.build()
    with pytest.raises(pa.Refused):
        namespace.enable_delayed("5m", "2s")
    plan = namespace.enable_delayed("5m", "2s", split=True)
    assert plan.preview().parts[0].split is not None
    number = store.apply(plan).number
    status = delayed.verify()
    assert (status.waiting, status.indexed) == (wide.messages, wide.messages)
    assert delayed.histogram().num_rows > wide.partitions
    assert set(delayed.histogram().column("width_ms").to_pylist()) == {300_000}
    assert number is not None
    store.undo(number)
    assert delayed.histogram().num_rows == wide.partitions


def test_a_compaction_keeps_the_latest_of_every_key(store: pa.Store) -> None:
    name = "acme/orders/compacted-single"
    rows = [row for row in oracle("small")["topics"][name]["messages"] if row[5]]
    latest = {row[5]: row for row in rows}
    expected = {key: row[8] for key, row in latest.items() if row[7]}
    compaction = store.topic(name).compaction()
    plan = compaction.run(from_start=True)
    assert plan.preview().parts[0].compaction is not None
    assert store.changes() == ()
    assert store.apply(plan).number == 1
    assert [change.command for change in store.changes()] == ["compaction run"]
    found = {row["key"]: row["sha1"].hex() for row in compaction.messages(columns=["key", "sha1"]).rows()}
    assert found == expected
    verified = compaction.verify()
    assert verified.total == 0
    with pytest.raises(pa.InvalidValue):
        compaction.run(form="old")  # type: ignore[arg-type]
    assert store.apply(compaction.upgrade()).parts[0].topic == f"persistent://{name}"


def test_a_plan_is_applied_to_the_store_that_it_is_of(store: pa.Store, tmp_path: Path) -> None:
    """Another import of the same files has the same topics and the same number of transactions."""
    other = tmp_path / "other"
    pa.import_standalone(world("small") / "clean", other)
    plans = [store.topic(PLAIN).set_message_ttl("3d"), store.load(tmp_path / "dump.jsonl")]
    with pa.open_store(other, writable=True) as opened:
        for plan in plans:
            with pytest.raises(pa.StalePlan, match="made on another store"):
                opened.apply(plan)
        assert opened.changes() == ()
    assert store.apply(plans[0]).number == 1
