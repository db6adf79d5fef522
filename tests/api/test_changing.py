"""Plans, changes and undo through the Python interface: the same bytes and reports as the commands, and the recorded mutations."""

import json
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

import pytest

import pulsar_admin as pa
from pulsar_admin.jsonify import to_json
from tests.conftest import Cli
from tests.stores import NOW_MS
from tests.worlds import assert_unchanged, oracle, world

PLAIN = "public/default/plain"


def mutation(kind: str) -> dict[str, object]:
    found: dict[str, object] = next(row for row in oracle("small")["mutations"] if row["kind"] == kind)
    return found


def mark_after(recorded: dict[str, object]) -> str:
    after = recorded["after"]
    assert isinstance(after, dict)
    return str(after["markDeletePosition"])


def test_a_reset_from_plan_to_undo(path: Path, cli: Cli) -> None:
    """To where the live broker went; nothing is written before apply, and undo brings back what was there."""
    recorded = mutation("reset-cursor-position")
    with pa.open_store(path, writable=True, now=NOW_MS) as store:
        cursor = store.topic(str(recorded["topic"])).cursor(str(recorded["subscription"]))
        before = cursor.state()
        plan = cursor.reset(to="18:8")
        preview = plan.preview()
        assert (preview.dry_run, preview.number, cursor.state()) == (True, None, before)
        assert store.changes() == ()
        change = store.apply(plan)
        assert (change.dry_run, change.number) == (False, 1)
        assert str(cursor.state().mark_delete) == mark_after(recorded)
        (part,) = change.parts
        assert part.after["markDeletePosition"] == mark_after(recorded)
        assert change.skipped.entries == before.backlog_entries - cursor.state().backlog_entries
        with pytest.raises(pa.InvalidValue, match="nothing to undo"):
            store.undo(preview)
        undone = store.undo(change)
        assert cursor.state() == before
        log = store.changes()
        assert [(row.command, row.undoes, row.undone_by) for row in log] == [
            ("topics reset-cursor", None, 2),
            ("store undo 1", 1, None),
        ]
        assert undone.number == 2
        (named,) = store.change_log(1)
        assert (named, tuple(store.change_log())) == (log[0], log)
        with pytest.raises(pa.ChangeNotFound):
            next(store.change_log(3))
    shown = cli.json(path, "store log --steps")
    for change, row in zip(log, shown, strict=True):
        assert (change.number, change.time_ms, list(change.reports)) == (row["change"], row["time"], row["reports"])
        assert to_json(change.steps) == row["steps"]


def test_every_subscription_expires_as_each_alone(path: Path) -> None:
    """The broker's own cursors stay; nothing else does."""
    limit = "2026-11-21T09:23:14Z"
    with pa.open_store(path, now=NOW_MS) as store:
        every = store.cursors(None, PLAIN).expire(before=limit)
        topic = store.topic(PLAIN)
        alone = {name: topic.cursor(name).expire(before=limit, force=True).preview() for name in topic.subscriptions()}
        assert {part.subscription: part.skipped for part in every.preview().parts} == {
            name: report.skipped for name, report in alone.items()
        }
        rows = {one.subscription: one.rows for one in store.cursors(None, PLAIN).forecast("1h", ttl="1h")}
        assert rows == {name: topic.cursor(name).forecast("1h", ttl="1h")[0].rows for name in topic.subscriptions()}
        assert sum(row.extent.entries for row in rows["half"]) == topic.cursor("half").backlog().entries
        states = topic.cursor("half").history()
        assert list(store.cursors("half", PLAIN).histories()) == [(f"persistent://{PLAIN}", one) for one in states]
        for named in (
            lambda: store.cursors(None, PLAIN).create(),
            lambda: list(store.cursors(None, PLAIN).histories()),
            lambda: store.cursors(None, PLAIN).reset(as_of="1h"),
        ):
            with pytest.raises(pa.InvalidValue, match="name the subscription"):
                named()
        with pytest.raises(pa.SubscriptionNotFound, match="parts-partition-2 have no subscription"):
            store.cursors(None, "acme/orders/parts").expire(before=limit)


def test_rows_of_resets_have_the_names_of_reset(path: Path) -> None:
    """Of any kind that ``reset`` takes; a saved plan of them is made again."""
    moment = datetime(2026, 11, 20, tzinfo=UTC)
    rows: list[dict[str, object]] = [
        {"topic": PLAIN, "subscription": "half", "to": pa.Position(9, 3)},
        {"topic": PLAIN, "subscription": "never", "to": "9:5"},
        {"topic": PLAIN, "subscription": "holes", "like": "half"},
        {"topic": PLAIN, "subscription": "expire-me", "shift_by": 3},
        {"topic": "acme/iot/skewed", "time": moment, "exclude": True},
    ]
    with pa.open_store(path, writable=True, now=NOW_MS) as store:
        plain = store.topic(PLAIN)
        singles = [
            plain.cursor("half").reset(to="9:3"),
            plain.cursor("never").reset(to="9:5"),
            plain.cursor("holes").reset(like="half"),
            plain.cursor("expire-me").reset(shift_by=3),
            store.topic("acme/iot/skewed").cursor("reset-me").reset(time=moment, exclude=True),
        ]
        plan = store.reset_cursors(rows, "reset-me")
        expected = [part.after for single in singles for part in single.preview().parts]
        assert [part.after for part in plan.preview().parts] == expected
        plan.save(path.parent / "plan")
        assert store.apply(store.load_plan(path.parent / "plan")).number == 1
        for wrong, says in (
            ({"topic": PLAIN, "too": "9:3"}, "unknown key 'too'"),
            ({"topic": PLAIN, "to": {1, 2}}, "messageId is"),
        ):
            with pytest.raises(pa.InvalidValue, match=says):
                store.reset_cursors([wrong], "half")


def test_a_store_that_was_opened_for_reading_is_not_written(path: Path) -> None:
    with assert_unchanged(path / "meta" / "data.mdb"), pa.open_store(path) as store:
        plan = store.topic(PLAIN).cursor("half").clear()
        with pytest.raises(pa.NotWritable):
            store.apply(plan)


def test_a_store_is_opened_once(path: Path) -> None:
    """In one process; that a second process may read and not write is tested with the commands."""
    with pa.open_store(path, writable=True):
        with pytest.raises(pa.StoreBusy):
            pa.open_store(path, writable=True)
        with pytest.raises(pa.StoreBusy, match="in this process already"):
            pa.open_store(path)
    with pa.open_store(path) as store:
        assert store.topics()


def test_a_plan_of_a_stream_is_not_kept(path: Path, tmp_path: Path) -> None:
    with pa.open_store(path) as store:
        store.dump(tmp_path / "dumped", PLAIN, level="entries", form="jsonl")
        lines = b"".join(one.read_bytes() for one in sorted((tmp_path / "dumped").rglob("*.jsonl")))
        with pytest.raises(pa.Refused, match="is not kept"):
            store.load(BytesIO(lines), topic="public/default/copy").save(tmp_path / "a.plan")


def test_closing_ends_no_iteration(path: Path) -> None:
    """One that goes on reads its snapshot to the end, and closes behind it; whatever begins later is refused."""
    store = pa.open_store(path, writable=True)
    topic, ledger = store.topic(PLAIN), store.ledger(9)
    entries, messages = ledger.entries(), iter(topic.messages(columns=["key"]))
    assert next(entries).state == "ok"
    store.close()
    store.close()
    with pytest.raises(pa.StoreBusy):
        pa.open_store(path, writable=True)
    assert len(list(entries)) == 24
    for refused in (store.topics, topic.stats, lambda: topic.find("3h"), lambda: next(messages), lambda: store.undo(1)):
        with pytest.raises(pa.Refused, match="was closed"):
            refused()
    with pa.open_store(path, writable=True) as again:
        assert again.topics()


# -- plans that write ledgers first ---------------------------------------------------------------------------------


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
    unchanged = store.apply(topic.set_message_ttl("3d"))
    assert (unchanged.number, unchanged.store) == (None, "")
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
    store.undo(last)
    assert topic.policies().message_ttl_seconds == 3 * 86_400
    assert topic.policy("message-ttl") == 3 * 86_400
    store.apply(topic.set_policy("retention", {"retentionTimeInMinutes": 2**31 - 1, "retentionSizeInMB": 2**40}))
    assert topic.policy("retention")["retentionSizeInMB"] == 2**40, "a long upstream"
    for policies in (topic, store.namespace("public/default")):
        store.apply(policies.set_policy("delayed-delivery", {"tickTime": 500, "active": True}))  # as 2.11 writes it
        assert policies.policy("delayed-delivery") == {"tickTime": 500, "active": True, "maxDeliveryDelayInMillis": 0}
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
    store.apply(store.topic(PLAIN).set_policy("deduplication", True))
    (in_force,) = store.topic_policies(PLAIN).values("deduplication", applied=True)
    assert (in_force.value, in_force.source) == (True, "topic")
    store.apply(store.topic(PLAIN).set_policy("max-producers", 5))
    store.apply(store.topic_policies(PLAIN).remove_policies())
    assert store.topic(PLAIN).policy("max-producers") is None
    with pytest.raises(pa.InvalidValue, match="for a partition"):
        store.topic_policies("acme/orders/parts-partition-0").set_message_ttl("3d")
    with pytest.raises(pa.InvalidValue):
        policies.values("no-such-policy")


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


# -- schemas --------------------------------------------------------------------------------------------------------


NEW = {
    "type": "AVRO",
    "schema": '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}',
    "properties": {"owner": "billing"},
}


def test_a_schema_is_uploaded_and_deleted(store: pa.Store) -> None:
    topic = store.topic(PLAIN)
    store.apply(topic.upload_schema(NEW))
    found = topic.schema()
    assert (found.version, found.type, found.definition) == (0, "AVRO", NEW["schema"].encode())  # type: ignore[attr-defined]
    assert (found.timestamp_ms, dict(found.properties)) == (NOW_MS, NEW["properties"])
    assert topic.upload_schema(NEW).changes_nothing
    topic.check_schema(NEW)
    for refused in (topic.check_schema, topic.upload_schema):
        with pytest.raises(pa.Refused, match="Incompatible schema"):
            refused({"type": "STRING"})
    for force in (False, True):
        deleted = store.apply(topic.delete_schema(force=force)).number
        assert (topic.schemas(), topic.schema_locator() is None) == ((), force)
        assert deleted is not None
        store.undo(deleted)
        assert topic.schemas() == (found,)
    newer = json.loads(NEW["schema"])  # type: ignore[arg-type]  # a text
    newer["fields"].append({"name": "note", "type": "string", "default": ""})
    store.apply(topic.upload_schema({**NEW, "schema": json.dumps(newer)}))
    assert [one.version for one in (topic.schema(), topic.schema(0), *topic.schemas())] == [1, 0, 0, 1]


@pytest.mark.parametrize(
    "text",
    [
        '{"type": ["AVRO"]}',
        '{"type": "BYTES", "schema": "\\ud800"}',
        '{"type": "STRING", "properties": {"a": "\\ud800"}}',
        '{"type": "STRING", "properties": {"\\ud800": "a"}}',
        '{"type": "AVRO", "schema": "\\ud800"}',
    ],
)
def test_a_file_without_text_is_no_schema(path: Path, cli: Cli, tmp_path: Path, text: str) -> None:
    file = tmp_path / "schema.json"
    file.write_text(text)
    for command in ("upload", "compatibility"):
        cli.on(path, f"schemas {command} {PLAIN} -f {file} -o json").fails(2, "invalid-value")
    with pa.open_store(path) as store, pytest.raises(pa.InvalidValue):
        store.topic(PLAIN).upload_schema(file)
