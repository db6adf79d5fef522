"""What is generated and imported is what the plan says, message by message, recomputed by ``model``."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from bench.generate.spec import CLOCKS, Clock, ClusterSpec, Span, TopicSpec
from pulsar_admin.store.codec import compression
from pulsar_admin.store.codec.interceptors import parse_interceptors
from pulsar_admin.store.db.entry_files import EntryFiles
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.cursors import read_cursor
from pulsar_admin.store.model.messages import MessageReader
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, TopicName, parse_topic
from tests.bench.generate import model
from tests.bench.generate.conftest import Make

ALL_CODECS = tuple(range(5))


def _topic(name: str, **options: object) -> TopicSpec:
    return TopicSpec(parse_topic(name), **options)  # type: ignore[arg-type]


CLUSTERS = {
    "plain": ClusterSpec(1, (_topic("plain", entries=300),), "/data", entries_per_ledger=100),
    "everything": ClusterSpec(
        7,
        (
            _topic(
                "acme/orders/all",
                entries=900,
                rate=333.3,
                size=Span(0, 900),
                batch=Span(1, 9),
                codecs=ALL_CODECS,
                producers=5,
                clocks=(CLOCKS["steady"], CLOCKS["slow"], CLOCKS["jumping"], Clock("clock+2h", 7_200_000)),
                keys=40,
                delayed=500,
                nulls=300,
                event_time=True,
                subscriptions=3,
                holes=9,
            ),
            _topic("acme/orders/late", entries=120, start_ms=1_700_000_001_000, size=Span(8, 4000, True), keys=3),
            _topic("acme/orders/empty", entries=0, subscriptions=1),
            _topic("acme/orders/parts-partition-0", entries=70, batch=Span(3, 3)),
            _topic("acme/orders/parts-partition-1", entries=71, codecs=(compression.LZ4,)),
        ),
        "/data",
        parse_interceptors("timestamp,index"),
        entries_per_ledger=64,
        log_size_limit_bytes=200_000,
    ),
    "one entry a ledger": ClusterSpec(
        3, (_topic("a", entries=17, subscriptions=2, holes=30), _topic("b", entries=5)), "/data", entries_per_ledger=1
    ),
}


def _random_cluster(seed: int) -> ClusterSpec:
    rng = random.Random(seed)
    topics = []
    for number in range(rng.randint(1, 4)):
        low = rng.choice((0, 1, 7, 8, 100))
        topics.append(
            _topic(
                f"made/by/t{number}",
                entries=rng.choice((0, 1, 63, 64, 65, 300)),
                rate=rng.choice((0.5, 999.9, 250_000.0)),
                start_ms=1_700_000_000_000 + rng.randint(0, 10_000),
                size=Span(low, low + rng.choice((0, 1, 3000)), rng.random() < 0.5),
                batch=rng.choice((None, None, Span(1, 1), Span(2, 12))),
                codecs=tuple(rng.sample(ALL_CODECS, rng.randint(0, 3))),
                producers=rng.randint(1, 4),
                clocks=tuple(rng.sample(sorted(CLOCKS.values(), key=lambda clock: clock.name), 2)),
                keys=rng.choice((0, 1, 11, 1_000_000)),
                delayed=rng.choice((0, 0, 2500, 10_000)),
                nulls=rng.choice((0, 1000, 10_000)),
                event_time=rng.random() < 0.5,
                subscriptions=rng.randint(0, 3),
                acked=rng.choice((0, 3333, 10_000)),
                holes=rng.randint(0, 12),
            )
        )
    names = rng.choice(("", "timestamp", "index", "timestamp,index"))
    return ClusterSpec(
        rng.getrandbits(63),
        tuple(topics),
        "/data",
        parse_interceptors(names),
        entries_per_ledger=rng.choice((1, 50, 64, 10_000)),
        log_size_limit_bytes=rng.choice((1 << 30, 150_000)),
    )


CLUSTERS |= {f"random {seed}": _random_cluster(seed) for seed in range(8)}


def _rows(store: Path, topic: TopicName) -> Iterator[model.Row]:
    with open_store(store) as opened, opened.read() as txn, EntryFiles(opened, txn) as files:
        found = read_topic(txn, topic)
        for message in MessageReader(EntryReader(files, txn)).iter_messages(found.iter_positions(Position(-1, -1))):
            yield model.Row(
                message.position.ledger_id,
                message.position.entry_id,
                message.position.batch_index,
                message.batch_size,
                message.publish_ms,
                message.broker_ms,
                message.broker_index,
                message.event_ms,
                message.deliver_at_ms,
                message.key,
                message.producer,
                message.sequence_id,
                message.null_value,
                message.compression,
                bytes(message.payload),
            )


@pytest.mark.parametrize("name", CLUSTERS)
def test_every_message_is_the_plans(name: str, make: Make) -> None:
    spec = CLUSTERS[name]
    _, store, result, imported = make(spec)
    assert (imported.problems, imported.undecodable_values, imported.warnings) == (0, 0, [])
    assert imported.entries == result.entries == sum(topic.entries for topic in spec.topics)
    time = "AppendBrokerTimestampMetadataInterceptor" in spec.interceptors
    index = "AppendIndexMetadataInterceptor" in spec.interceptors
    messages = 0
    for number, topic in enumerate(spec.topics):
        expected = list(model.rows_of(spec, number, time=time, index=index))
        assert list(_rows(store, topic.name)) == expected, topic.name
        messages += len(expected)
    assert result.messages == messages


@pytest.mark.parametrize("name", CLUSTERS)
def test_every_ledger_and_cursor_is_the_plans(name: str, make: Make) -> None:
    spec = CLUSTERS[name]
    _, store, result, _ = make(spec)
    ledgers = model.ledgers_of(spec)
    assert result.ledgers == sum(len(ids) for ids in ledgers.values())
    assert result.cursors == sum(topic.subscriptions for topic in spec.topics)
    with open_store(store) as opened, opened.read() as txn, EntryFiles(opened, txn) as files:
        reader = EntryReader(files, txn)
        for number, topic in enumerate(spec.topics):
            found = read_topic(txn, topic.name)
            places = [
                Position(ids[0], entry)
                for ids in ([ledger.ledger_id, ledger.entries] for ledger in found.ledgers)
                for entry in range(ids[1])
            ]
            assert [ledger.ledger_id for ledger in found.ledgers] == ledgers[number]
            assert len(places) == topic.entries == found.number_of_entries
            for subscription in range(topic.subscriptions):
                cursor = read_cursor(txn, reader, found, f"sub-{subscription}")
                acked, alone = model.acknowledged(spec, number, subscription)
                assert cursor.mark_delete == (places[acked - 1] if acked else Position(ledgers[number][0], -1))
                deleted = [
                    Position(lower.ledger_id, entry)
                    for lower, upper in cursor.state.ranges
                    for entry in range(lower.entry_id + 1, upper.entry_id + 1)
                ]
                assert deleted == [places[entry] for entry in sorted(alone)]
                assert all(lower.ledger_id == upper.ledger_id for lower, upper in cursor.state.ranges)


def test_sequence_ids_go_up_by_producer(make: Make) -> None:
    spec = CLUSTERS["everything"]
    store = make(spec).store
    rows = sorted(_rows(store, spec.topics[0].name), key=lambda row: row.producer)
    producers = {name: list(found) for name, found in groupby(rows, key=lambda row: row.producer)}
    assert set(producers) == {"steady-0", "slow-1", "jumping-2", "clock+2h-3", "steady-4"}
    for found in producers.values():
        heads = [row.sequence_id for row in found if row.batch_index <= 0]
        assert heads == sorted(set(heads))
