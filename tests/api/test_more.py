"""Ledgers, namespaces, delayed messages, compaction and nacks through the Python interface, against the oracles and the commands."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import pulsar_admin as pa
from pulsar_admin.jsonify import to_json
from tests.conftest import Cli
from tests.stores import NOW_MS, imported
from tests.worlds import oracle

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
REMINDERS = "acme/delayed/reminders"
PLAIN = "public/default/plain"
NOW = ("--now", f"@{NOW_MS}")


@pytest.fixture(scope="module")
def store() -> Iterator[pa.Store]:
    with pa.open_store(imported("small", "clean"), now=NOW_MS) as opened:
        yield opened


# -- ledgers ----------------------------------------------------------------------------------------------------------


def test_ledgers_hold_the_messages_that_were_received(store: pa.Store) -> None:
    rows = oracle("small")["topics"][PLAIN]["messages"]
    first = rows[0][0]
    assert first in store.ledgers()
    ledger = store.ledger(first)
    info = ledger.info()
    assert (info.state, info.entries, info.missing) == ("CLOSED", sum(row[0] == first for row in rows), ())
    assert [owner.topic for owner in info.owners] == [f"persistent://{PLAIN}"]
    entries = list(ledger.entries(3, 6))
    assert [(row.entry_id, row.state, row.publish_time_ms) for row in entries] == [
        (row[1], "ok", row[3]) for row in rows if row[0] == first and 3 <= row[1] <= 6
    ]
    assert len(ledger.read(3)) == entries[0].size_bytes - 32 - 4  # type: ignore[operator]
    assert ledger.verify().problems == 0
    assert [verdict.ledger_id for verdict in store.verify_ledgers(first, 8)] == [first, 8]
    assert [verdict.ledger_id for verdict in store.verify_ledgers()] == list(store.ledgers())
    with pytest.raises(pa.LedgerNotFound):
        list(store.verify_ledgers(first, 99_999))


def test_a_ledger_that_is_not_there(store: pa.Store) -> None:
    with pytest.raises(pa.LedgerNotFound):
        store.ledger(10**6).info()
    with pytest.raises(pa.EntryNotFound):
        store.ledger(9).read(10**6)


# -- namespaces -------------------------------------------------------------------------------------------------------


def test_policies_are_those_of_the_command(store: pa.Store, cli: Cli, demo_store: Path) -> None:
    shown = cli("--store", demo_store, "namespaces", "policies", "acme/delayed", "-o", "json").json
    namespace = store.namespace("acme/delayed")
    # The command adds, as upstream's does, the broker's default of what this namespace does not say.
    assert namespace.policies() | {"is_allow_auto_update_schema": True} == shown
    assert "is_allow_auto_update_schema" not in namespace.policies()
    assert f"persistent://{REMINDERS}" in namespace.topics()
    with pytest.raises(pa.NamespaceNotFound):
        store.namespace("acme/none")


def test_policies_change_as_by_the_commands(path: Path, cli: Cli) -> None:
    expected = {}
    for command in (
        ("enable-delayed-message", "acme/delayed", "-p", "10m", "-t", "2s"),
        ("disable-delayed-message", "acme/delayed"),
        ("set-delayed-delivery", "acme/delayed", "--enable", "-t", "3s", "-md", "10d"),
        ("set-message-ttl", "acme/delayed", "-ttl", "3d"),
        ("set-retention", "acme/delayed", "-t", "2d", "-s", "10G"),
        ("remove-retention", "acme/delayed"),
        ("set-backlog-quota", "acme/delayed", "-l", "10G", "-p", "producer_exception"),
        ("remove-backlog-quota", "acme/delayed"),
    ):
        shown = cli("--store", path, *NOW, "namespaces", *command, "--dry-run", "-o", "json")
        expected[command[0]] = shown.json
    with pa.open_store(path, writable=True, now=NOW_MS) as store:
        namespace = store.namespace("acme/delayed")
        plans = {
            "enable-delayed-message": namespace.enable_delayed("10m", "2s"),
            "disable-delayed-message": namespace.disable_delayed(),
            "set-delayed-delivery": namespace.set_delayed_delivery(
                active=True, tick="3s", max_delay=timedelta(days=10)
            ),
            "set-message-ttl": namespace.set_message_ttl("3d"),
            "set-retention": namespace.set_retention(time=timedelta(days=2), size="10G"),
            "remove-retention": namespace.remove_retention(),
            "set-backlog-quota": namespace.set_backlog_quota("producer_exception", size=10 << 30),
            "remove-backlog-quota": namespace.remove_backlog_quota(),
        }
        for name, plan in plans.items():
            assert plan.preview().documents()[0] == expected[name]
        change = store.apply(plans["set-message-ttl"])
        assert change.number == 1
        assert namespace.policies()["message_ttl_in_seconds"] == 3 * 86_400
        store.apply(namespace.set_message_ttl(None))
        assert store.apply(namespace.enable_delayed("10m")).number == 3
        policy = namespace.delayed_policy()
        assert policy.rules.granularity_ms == 600_000
        with pytest.raises(pa.Refused):
            namespace.enable_delayed("5m")
        store.apply(namespace.remove_delayed_delivery())
        assert namespace.delayed_policy().rules is None
        for wrong in (timedelta(days=-1), timedelta(days=30_000)):
            with pytest.raises(pa.InvalidValue):
                namespace.set_message_ttl(wrong)


# -- delayed messages -------------------------------------------------------------------------------------------------


def test_what_is_due_is_what_was_asked_for(store: pa.Store) -> None:
    """Against the due times that the producer recorded when it sent, of messages that the subscription has still to be given."""
    sent = {tuple(row["id"][:2]): row["due"] for row in oracle("small")["sent"] if row["topic"].endswith(REMINDERS)}
    waiting = store.topic(REMINDERS).messages(subscription="workers", columns=["ledger_id", "entry_id"]).rows()
    ids = {(row["ledger_id"], row["entry_id"]) for row in waiting}
    delayed = store.topic(REMINDERS).delayed("workers")
    rows = delayed.due("2100-01-01T00:00:00Z").to_pylist()
    expected = {place: EPOCH + timedelta(milliseconds=due) for place, due in sent.items() if due and place in ids}
    found = {(row["ledger_id"], row["entry_id"]): row["due_time"] for row in rows}
    assert found.keys() == expected.keys()
    assert expected
    # The client adds a delay to its own clock, a moment after the producer's script read it.
    assert all(timedelta() <= found[place] - due <= timedelta(milliseconds=50) for place, due in expected.items())
    assert all(abs(row["due_time"] - row["deliver_at"]) < timedelta(seconds=2) for row in rows)
    assert sum(delayed.histogram().column("messages").to_pylist()) == len(rows) == delayed.status().messages


def test_due_and_status_are_those_of_the_commands(store: pa.Store, cli: Cli, demo_store: Path) -> None:
    options = ("-s", "workers", "--until", "2026-11-21T12:00:00Z", "-o", "jsonl")
    shown = cli("--store", demo_store, *NOW, "delayed", "due", REMINDERS, *options).json_lines
    found = store.topic(REMINDERS).delayed("workers").due("2026-11-21T12:00:00Z")
    times = [(time - EPOCH) // timedelta(milliseconds=1) for time in found.column("deliver_at").to_pylist()]
    assert times == [row["deliverAt"] for row in shown]
    (row,) = cli("--store", demo_store, *NOW, "delayed", "status", REMINDERS, "-s", "workers", "-o", "json").json
    status = to_json(store.topic(REMINDERS).delayed("workers").status())
    assert {**status, "trackers": []} == {**row, "trackers": []}
    assert [one["name"] for one in status["trackers"]] == [one["name"] for one in row["trackers"]]


# -- compaction -------------------------------------------------------------------------------------------------------


def test_the_compacted_view(store: pa.Store, cli: Cli, demo_store: Path) -> None:
    name = "acme/orders/compacted"
    compaction = store.topic(name).compaction()
    assert to_json(compaction.status()) == cli("--store", demo_store, "compaction", "status", name, "-o", "json").json
    last = cli("--store", demo_store, "compaction", "last-id", name, "-o", "json").json
    found = compaction.last_id()
    assert (found.position.ledger_id, found.position.entry_id, found.publish_ms, found.rule) == (
        last["ledgerId"],
        last["entryId"],
        last["publishTime"],
        last["rule"],
    )
    shown = cli("--store", demo_store, "compaction", "read", name, "--payload", "-o", "jsonl").json_lines
    rows = list(compaction.messages(columns=["key", "ledger_id", "entry_id", "batch_index", "sha1"]).rows())
    keys = ("key", "ledgerId", "entryId", "batchIndex", "sha1")
    assert [[*list(row.values())[:4], row["sha1"].hex()] for row in rows] == [
        [row[key] for key in keys] for row in shown
    ]
    key = rows[0]["key"]
    assert [row["key"] for row in compaction.messages(keys={key}, columns=["key"]).rows()] == [key]
    assert len(compaction.messages(limit=2).to_arrow()) == 2
    at = compaction.find(found.publish_ms)
    assert at.position is None or at.publish_ms >= found.publish_ms  # type: ignore[operator]
    assert store.topic(PLAIN).compaction().find(0) is None
    assert list(compaction.messages(keys=(), columns=["key"]).rows()) == []
    with pytest.raises(pa.InvalidValue):
        compaction.messages(columns=["values"])


# -- negative acks ----------------------------------------------------------------------------------------------------


def test_nacks_are_kept_due_and_popped(path: Path, cli: Cli) -> None:
    options = ("-s", "half", "--delay", "10m", "29:20", "29:21:3", "--dry-run", "-o", "json")
    expected = cli("--store", path, *NOW, "nacks", "add", PLAIN, *options).json
    with pa.open_store(path, writable=True, now=NOW_MS) as store:
        nacks = store.topic(PLAIN).cursor("half").nacks()
        plan = nacks.add(["29:20", pa.Position(29, 21, 3)], "10m")
        assert plan.preview().documents()[0] == expected
        store.apply(plan)
        (stats,) = nacks.stats()
        assert (stats.entries, stats.due_entries, nacks.due()) == (2, 0, ())
        with pytest.raises(pa.EntryNotFound):
            nacks.add(["1:1"], "10m")
        unknown = nacks.add(["1:1", ("1:2", "1h")], "10m", force=True).preview().documents()[0]
        assert (unknown["entries"], unknown["alreadyTracked"]) == (2, 0)
        with pytest.raises(pa.SubscriptionNotFound):
            store.topic(PLAIN).cursor("none").nacks().add(["29:20"], 5)
        holes = store.apply(store.topic(PLAIN).cursor("holes").nacks().add_holes(timedelta(hours=1)))
        assert holes.parts[0].entries is not None
        assert holes.parts[0].entries > 0
    with pa.open_store(path, writable=True, now=NOW_MS + 600_000) as store:
        nacks = store.topic(PLAIN).cursor("half").nacks()
        due = nacks.due()
        assert [str(one.position) for one in due] == ["29:20", "29:21"]
        assert all(0 <= NOW_MS + 600_000 - one.due_ms < 256 for one in due)
        number = store.apply(nacks.pop()).number
        assert nacks.due() == ()
        assert number is not None
        store.undo(number)
        assert nacks.due() == due


def test_nacks_of_a_store_are_those_of_the_command_line(path: Path, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "rows").write_text('29:20\n{"ledgerId": 29, "entryId": 21, "delay": "20m"}\n')
    options = ("-s", "half", "--delay", "10m", "--from-file", tmp_path / "rows", "--dry-run", "-o", "json")
    expected = cli("--store", path, *NOW, "nacks", "add", PLAIN, *options).json
    with pa.open_store(path, writable=True, now=NOW_MS) as store:
        lines = store.topic(PLAIN).cursor("half").nacks().add_lines((tmp_path / "rows").read_text().split("\n"), "10m")
        assert lines.preview().documents()[0] == expected
        store.apply(lines)
        store.apply(store.topic(PLAIN).cursor("holes").nacks().add_holes("5m"))
        with pytest.raises(pa.InvalidValue, match="my rows line 2"):
            store.topic(PLAIN).cursor("half").nacks().add_lines(["1:2", "{"], "1m", source="my rows", force=True)
    later = ("--store", path, "--now", f"@{NOW_MS + 600_000}", "nacks")
    stats, rows = cli(*later, "stats", "-o", "json").json, cli(*later, "due", "-o", "jsonl").json_lines
    with pa.open_store(path, writable=True, now=NOW_MS + 600_000) as store:
        assert [(one.topic, one.subscription, one.entries, one.due_entries) for one in store.nacks(None).stats()] == [
            (row["topic"], row["subscription"], row["entries"], row["dueEntries"]) for row in stats
        ]
        assert {row["subscription"] for row in stats} == {"half", "holes"}
        assert due_rows(store.nacks(None)) == rows
        assert due_rows(store.nacks("holes", PLAIN)) == [row for row in rows if row["subscription"] == "holes"]
        assert {group.subscription: len(group.entry_ids) for group in store.nacks("half").due_groups()} == {"half": 1}
        with pytest.raises(pa.SubscriptionNotFound, match="'none'"):
            store.nacks("none").due()
        with pytest.raises(pa.TopicNotFound):
            store.nacks("half", "none").due()
        number = store.apply(store.nacks(None).pop()).number
        assert number is not None
        assert due_rows(store.nacks(None)) == []
        assert due_rows(store.nacks(None), number) == rows
        with pytest.raises(pa.NothingMatches):
            store.nacks(None).due(popped=1)


def due_rows(nacks: pa.KeptNacks, popped: int | None = None) -> list[dict[str, object]]:
    return [
        {
            "topic": one.topic,
            "subscription": one.subscription,
            "ledgerId": one.position.ledger_id,
            "entryId": one.position.entry_id,
            "dueTime": one.due_ms,
        }
        for one in nacks.due(popped=popped)
    ]
