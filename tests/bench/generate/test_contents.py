"""What is generated and imported is what the plan says, message by message, recomputed by ``model``."""

from collections.abc import Iterator
from pathlib import Path

from bench.generate.spec import CLOCKS, Clock, ClusterSpec, Span, TopicSpec
from pulsar_admin.store.codec import compression
from pulsar_admin.store.codec.interceptors import parse_interceptors
from pulsar_admin.store.db.entry_files import EntryFiles
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.messages import MessageReader
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, TopicName, parse_topic
from tests.bench.generate import model
from tests.bench.generate.conftest import Make
from tests.deep import deep_but_for

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


@deep_but_for((0,), "name", CLUSTERS)
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
