"""Delayed indexes, verified compactions, forecasts and the cursors of namespaces through the Python interface."""

from __future__ import annotations

from datetime import timedelta
from zlib import crc32

import pytest

import pulsar_admin as pa
from tests.worlds import oracle

REMINDERS = "acme/delayed/reminders"
PLAIN = "public/default/plain"
LATER = "2100-01-01T00:00:00Z"
EVER = timedelta(days=365 * 60)


def places(table: object) -> set[tuple[int, int]]:
    rows = table.select(["ledger_id", "entry_id"]).to_pylist()  # type: ignore[attr-defined]
    return {(row["ledger_id"], row["entry_id"]) for row in rows}


def test_a_replay_gives_what_was_sent_with_a_delay(store: pa.Store) -> None:
    sent = [row for row in oracle("small")["sent"] if row["topic"].endswith(REMINDERS)]
    due = {tuple(row["id"][:2]): row["due"] for row in sent}
    slots = list(store.topic(REMINDERS).delayed("workers").replay(LATER))
    ticks = [slot.dispatch.tick_ms for slot in slots]
    assert ticks == sorted(ticks)
    tick_ms = 2_000
    for slot in slots:
        rows = slot.dispatch.rows
        for place in zip(rows.ledger_ids.tolist(), rows.entry_ids.tolist(), strict=True):
            assert abs(slot.dispatch.tick_ms - due[place]) <= tick_ms
    half = ticks[len(ticks) // 2]
    later = store.topic(REMINDERS).delayed("workers").replay(LATER, since=half)
    assert [slot.dispatch.tick_ms for slot in later] == ticks[len(ticks) // 2 :]


def test_an_index_is_built_and_verified(store: pa.Store) -> None:
    delayed = store.topic(REMINDERS).delayed("workers")
    before, waiting = places(delayed.due(LATER)), delayed.status().messages
    assert delayed.verify().indexed is None
    built = delayed.build()
    assert (built.messages, built.missing) == (waiting, 0)
    verified = delayed.verify()
    assert (verified.waiting, verified.indexed) == (waiting, waiting)
    assert [one for one in verified.findings if one.severity == "problem"] == []
    assert places(delayed.due(LATER)) == before
    assert (delayed.build().added, delayed.build(rebuild=True).added) == (0, waiting)
    assert store.changes() == ()
    with pytest.raises(pa.InvalidValue, match="subscription"):
        store.topic(REMINDERS).delayed().build()


def test_a_forecast_is_the_whole_backlog(store: pa.Store) -> None:
    cursor = store.topic(PLAIN).cursor("half")
    (forecast,) = cursor.forecast("24h", ttl="1h")
    rows = forecast.rows
    assert sum((row.extent for row in rows), start=type(rows[0].extent)()) == cursor.backlog()
    assert (rows[0].from_ms, rows[-1].to_ms) == (None, None)
    assert len(cursor.forecast("24h", ttl="1h", interval="12h")[0].rows) < len(rows)
    (kept,) = [row for row in cursor.forecast("1h", ttl=EVER)[0].rows if row.extent.entries]
    assert (kept.to_ms, kept.extent) == (None, cursor.backlog())
    (overdue, *_) = cursor.forecast("1h", ttl="1h")[0].rows
    assert store.apply(cursor.expire(before="1h")).skipped == overdue.extent
    with pytest.raises(pa.NothingMatches):
        cursor.forecast("1h")
    with pytest.raises(pa.InvalidValue):
        cursor.forecast("1h", ttl="0s")


def test_the_cursors_of_a_namespace(store: pa.Store) -> None:
    namespace = store.namespace("public/default")
    topics = [store.topic(name) for name in namespace.topics()]
    left = {topic.name: topic.subscriptions() for topic in topics}
    number = store.apply(namespace.unsubscribe("reset-me")).number
    assert {topic.name: topic.subscriptions() for topic in topics} == {
        name: tuple(one for one in names if one != "reset-me") for name, names in left.items()
    }
    assert number is not None
    store.undo(number)
    store.apply(namespace.clear_backlog())
    own = ("__compaction", "pulsar.dedup")
    cursors = [topic.cursor(name) for topic in topics for name in topic.subscriptions() if name not in own]
    assert cursors
    assert all(cursor.backlog().entries == 0 for cursor in cursors)
    for wrong, error in (("none", pa.SubscriptionNotFound), ("__compaction", pa.Refused)):
        with pytest.raises(error):
            namespace.clear_backlog(wrong)


def test_bundles_part_a_namespace(store: pa.Store) -> None:
    """Upstream hashes the full name with CRC-32."""
    namespace = store.namespace("public/default")
    lower, upper = (namespace.topics(bundle=text) for text in ("0x00000000_0x80000000", "0x80000000_0xffffffff"))
    assert {*lower, *upper} == {*namespace.topics()}
    assert {crc32(name.encode()) >> 31 for name in lower} == {0}
    assert {crc32(name.encode()) >> 31 for name in upper} == {1}
    parts = namespace.clear_backlog(bundle="0x00000000_0x80000000").preview().parts
    assert parts
    assert {part.topic for part in parts} <= {*lower}
    assert namespace.topics(domain="non-persistent") == ()
    for wrong in ("half", "0x80000000_0x00000000"):
        with pytest.raises(pa.InvalidValue):
            namespace.topics(bundle=wrong)
