"""Indexes, clocks, timelines, backlogs and policies through the Python interface, against the live broker's recorded answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby

import pytest

import pulsar_admin as pa
from tests.stores import NOW_MS, imported
from tests.worlds import oracle

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TOPICS = oracle("small")["topics"]
SKEWED = "acme/iot/skewed"
BATCHED = "public/default/batched"


@pytest.fixture(scope="module")
def store() -> Iterator[pa.Store]:
    with pa.open_store(imported("small", "clean"), now=NOW_MS) as opened:
        yield opened


def test_the_nth_entry(store: pa.Store) -> None:
    entries = [place for place, _ in groupby(row[:2] for row in TOPICS[BATCHED]["messages"])]
    topic = store.topic(BATCHED)
    found = [topic.nth_position(1), topic.nth_position(10), topic.nth_position(3, from_end=True)]
    assert [[one.ledger_id, one.entry_id] for one in found] == [entries[0], entries[9], entries[-3]]
    with pytest.raises(pa.NothingMatches):
        topic.nth_position(len(entries) + 1)


@pytest.mark.parametrize("name", [SKEWED, BATCHED])
def test_a_timeline_counts_what_a_reader_saw(store: pa.Store, name: str) -> None:
    minute = 60_000
    rows = TOPICS[name]["messages"]
    expected = Counter(row[3] // minute * minute for row in rows)
    table = store.topic(name).timeline("1m", clock="publish")
    found = zip(table.column("start").to_pylist(), table.column("messages").to_pylist(), strict=True)
    if name == SKEWED:  # a batch counts at the time of its entry, which is its first message's
        assert {(start - EPOCH) // timedelta(milliseconds=1): count for start, count in found} == expected
    assert sum(table.column("messages").to_pylist()) == len(rows)
    since = sorted(row[3] for row in rows)[len(rows) // 2]
    later = store.topic(name).timeline(timedelta(hours=1), since=since, clock="publish")
    assert sum(later.column("entries").to_pylist()) == len(
        {tuple(place) for *place, first in first_times(rows) if first >= since}
    )
    assert len(store.topic(name).timeline()) > 1


def first_times(rows: list[list[int]]) -> list[list[int]]:
    """[ledger, entry, publish time of its first message], one an entry."""
    return [[*place, next(group)[3]] for place, group in groupby(rows, key=lambda row: row[:2])]


def test_wrong_choices_are_refused(store: pa.Store) -> None:
    topic = store.topic(SKEWED)
    with pytest.raises(pa.InvalidValue):
        topic.timeline(clock="event")  # type: ignore[arg-type]
    with pytest.raises(pa.InvalidValue):
        topic.skew(tolerance="soon")
    with pytest.raises(pa.InvalidValue):
        topic.timeline("0s")


def test_partitions_and_policies(store: pa.Store) -> None:
    assert store.namespace("acme/orders").partitioned_topics() == ("persistent://acme/orders/parts",)
    assert store.topic("acme/orders/parts").partitioned_metadata().partitions == 3
    assert store.topic(BATCHED).partitioned_metadata().partitions == 0
    recorded = oracle("small")["namespaces"]["acme/delayed"]["policies"]["delayed_delivery_policies"]
    topic = store.topic("acme/delayed/reminders")
    delivery = topic.policies_in_force().delayed_delivery
    assert (delivery.source, delivery.delivery.tick_time_ms) == ("namespace", recorded["tickTime"])
    assert topic.policies().delayed_delivery is None
    assert topic.policies_in_force().message_ttl is None
