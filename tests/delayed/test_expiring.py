"""What goes before it is due: counts and earliest messages against brute force over the topic's messages, and on recorded data."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.codec.brokerentry import BrokerEntry
from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.codec.message import encode_message_entry
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.cursors import read_cursor
from pulsar_admin.store.model.messages import MessageReader
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata
from pulsar_admin.store.search.before_due import FIRST, dropped_before_due, expiring_before_due
from tests.conftest import Cli
from tests.plans.test_expiry import put_json
from tests.stores import copied
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store

LIVED = "acme/policies/lived"
FAR_MS = 2**62


def _delayed(publish_ms: int, deliver_at_ms: int, broker_ms: int | None) -> Made:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=publish_ms)
    if deliver_at_ms:
        metadata.deliver_at_time = deliver_at_ms
    broker = None if broker_ms is None else BrokerEntry(broker_ms, None)
    return Made(publish_ms, raw=encode_message_entry(metadata, b"x", broker=broker))


def _random_entries(rng: random.Random) -> Iterator[Made]:
    for _ in range(rng.randint(1, 60)):
        publish_ms = CREATED_MS + rng.randint(-5000, 5000)
        deliver_at_ms = rng.choice([0, -5, publish_ms + rng.randint(-2000, 9000), publish_ms, FAR_MS])
        yield _delayed(publish_ms, deliver_at_ms, rng.choice([None, publish_ms + rng.randint(-3000, 3000)]))
    yield _delayed(0, 1, None)  # the least that is due at all


@pytest.mark.parametrize("seed", range(6))
def test_brute_force(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    ledgers = [list(_random_entries(rng)) for _ in range(3)]
    start = Position(10, rng.randrange(-1, len(ledgers[0])))
    cursors = {"sub": CursorInfo(-1, start)}
    path = make_store(tmp_path / "s", {"a/b/t": MadeTopic(ledgers, cursors=cursors)})
    with open_store(path) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic("a/b/t"))
        cursor = read_cursor(reader.txn, reader, topic, "sub")
        messages = list(MessageReader(reader).iter_messages(topic.iter_positions(topic.first_position)))
        waiting = [message for message in messages if message.position > start]
        for ttl_ms in (0, 1500, 4000, 8000, 2**63 - 1):
            expected = [
                (message.deliver_at_ms, message.position.entry)
                for message in waiting
                if message.deliver_at_ms > 0
                and message.deliver_at_ms
                > (message.publish_ms if message.broker_ms is None else message.broker_ms) + ttl_ms
            ]
            found = expiring_before_due(reader, topic, cursor, ttl_ms)
            assert found.messages == len(expected)
            assert [(one.due_ms, one.position) for one in found.first] == sorted(expected)[:FIRST]
        low = rng.randrange(topic.number_of_entries)
        high = rng.randint(low, topic.number_of_entries)
        for now_ms in (CREATED_MS - 9000, CREATED_MS, CREATED_MS + 4000, FAR_MS):
            expected = [
                (message.deliver_at_ms, message.position.entry)
                for message in messages[low:high]
                if message.deliver_at_ms > now_ms
            ]
            dropped = dropped_before_due(reader, topic, ((low, high),), now_ms)
            assert dropped.messages == len(expected)
            assert [(one.due_ms, one.position) for one in dropped.first] == sorted(expected)[:FIRST]


# -- on recorded data: message i of 20 is due 100 i seconds after it was sent, the topic's own TTL is 600 s ----------


def _sent_ms(cli: Cli, path: Path) -> int:
    rows = cli.rows(path, f"topics read {LIVED}")
    assert len(rows) == 20
    published: int = rows[-1]["publishTime"]
    return published


def _expire(cli: Cli, path: Path, now_ms: int, *how: object) -> Any:
    ask = ("--store", path, "--now", f"@{now_ms}", "topics", "expire", LIVED, "-s", "workers", *how, "-o", "json")
    return cli(*ask).json


def test_nothing_is_said_where_nothing_is_delayed(cli: Cli, tmp_path: Path) -> None:
    path = copied("policies", "clean", tmp_path)
    now_ms = _sent_ms(cli, path) + 650_000
    assert cli.on(path, f"topics set-delayed-delivery {LIVED} --disable").exit_code == 0
    row = _expire(cli, path, now_ms, "--ttl", "--dry-run")
    assert (row["notDue"], row.get("warnings")) == (None, None)
    ask = ("--store", path, "--now", f"@{now_ms - 650_000}", "topics", "expire-all-subscriptions", LIVED)
    forecast = cli.done(*ask, "--forecast", "1h")
    assert "due" not in forecast.stderr
    assert "evicts" not in forecast.stderr


@pytest.mark.parametrize(
    "policies",
    [None, {"delayed_delivery_policies": {"tickTime": 1, "active": True}}, []],
    ids=["none", "delay", "damaged"],
)
def test_many_entries_are_looked_through_where_a_policy_delays(
    policies: object, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulsar_admin.store.delayed.expiry_plans.LOOKED_AT_MAX", 2)
    entries = [_delayed(CREATED_MS, CREATED_MS + 9000, None) for _ in range(3)]
    topic = MadeTopic([entries, [Made(CREATED_MS)]], cursors={"sub": CursorInfo(-1, Position(10, -1))})
    path = make_store(tmp_path / "s", {"a/b/t": topic})
    policy = policies is not None
    if policy:
        put_json(path, "/admin/policies/a/b", policies)
    ask = ("--store", path, "--now", f"@{CREATED_MS + 5000}", "topics", "expire", "a/b/t", "-s", "sub", "-t", "1s")
    row = cli(*ask, "--dry-run", "-o", "json").json
    assert (row["notDue"] or {}).get("messages") == (3 if policy else None)
    assert ("were not searched for delayed" in " ".join(row["warnings"])) is not policy
    forecast = cli(*ask[:3], f"@{CREATED_MS + 500}", *ask[4:], "--forecast", "1h").stderr
    assert ("were not searched for delayed" in forecast) is not policy
    assert ("due: 3, first" in forecast) is policy


def test_lost_entries_leave_it_unknown(cli: Cli, tmp_path: Path) -> None:
    lost = Made(CREATED_MS, lost=True)
    entries = [_delayed(CREATED_MS, CREATED_MS + 9000, None), lost, Made(CREATED_MS)]
    topic = MadeTopic([entries, [Made(CREATED_MS)]], cursors={"sub": CursorInfo(-1, Position(10, -1))})
    path = make_store(tmp_path / "s", {"a/b/t": topic})
    put_json(path, "/admin/policies/a/b", {"delayed_delivery_policies": {"tickTime": 1, "active": True}})
    ask = ("--store", path, "--now", f"@{CREATED_MS + 5000}", "topics", "expire", "a/b/t", "-s", "sub", "-t", "1s")
    row = cli(*ask, "--dry-run", "-o", "json").json
    assert row["notDue"]["messages"] == 1
    assert "sub: 1 entry cannot be read: whether delayed is unknown" in " ".join(row["warnings"])
    for file in (path / "entries").iterdir():
        file.unlink()
    forecast = cli(*ask, "--forecast", "1h")
    assert (forecast.exit_code, "go before they are due is unknown" in forecast.stderr) == (1, True)
    never = cli(*ask[:-1], "0s", "--forecast", "1h")
    assert (never.exit_code, "a forecast needs an age above 0" in never.stderr) == (2, True)
