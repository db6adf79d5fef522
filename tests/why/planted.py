"""A topic in which a test plants why its subscription does not move: one cause, or several at once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.codec.brokerentry import BrokerEntry
from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.codec.message import encode_message_entry
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.doctor.why import Why, why_subscription
from pulsar_admin.store.model.cursors import read_cursor
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata
from tests.stores import put_node
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store

TOPIC = "public/default/stuck"
SUB = "s"
HOUR_MS = 3_600_000
NOW_MS = CREATED_MS + 10 * HOUR_MS
COMMIT, ABORT = 21, 22
LEDGERS, ENTRIES = (10, 11, 12), 10


class Message(Struct, frozen=True):
    """One entry: published HOURS ago, delayed until DUE_HOURS from now, of a transaction, a marker of one, or lost."""

    hours: float = 9.0
    due_hours: float | None = None
    transaction: tuple[int, int] | None = None
    marker: int | None = None
    key: str | None = None
    broker_hours: float | None = None
    lost: bool = False
    raw: bytes | None = None

    def made(self, number: int) -> Made:
        publish_ms = NOW_MS - int(self.hours * HOUR_MS)
        metadata = MessageMetadata(producer_name="maker", sequence_id=number, publish_time=publish_ms)
        if self.due_hours is not None:
            metadata.deliver_at_time = NOW_MS + int(self.due_hours * HOUR_MS)
        if self.transaction is not None:
            metadata.txnid_most_bits, metadata.txnid_least_bits = self.transaction
        if self.marker is not None:
            metadata.marker_type = self.marker
        if self.key is not None:
            metadata.partition_key = self.key
        broker = None
        if self.broker_hours is not None:
            broker = BrokerEntry(NOW_MS - int(self.broker_hours * HOUR_MS), None)
        raw = encode_message_entry(metadata, b"x", broker=broker) if self.raw is None else self.raw
        return Made(publish_ms, raw=raw, lost=self.lost)


class Planted(Struct, frozen=True):
    """What is planted: messages by (ledger, entry) that are not the usual one, the cursor, and policies of the namespace."""

    messages: Mapping[tuple[int, int], Message] = field(default_factory=dict)
    mark: tuple[int, int] = (10, -1)
    ranges: tuple[tuple[tuple[int, int], tuple[int, int]], ...] = ()
    batch_deletes: Mapping[Position, tuple[int, ...]] = field(default_factory=dict)
    policies: Mapping[str, Any] = field(default_factory=dict)
    cursor: str = SUB
    cursor_ledger: int = -1
    usual: Message = Message()

    def and_also(self, other: Planted) -> Planted:
        """Both, this one's cursor unless the other has one of its own."""
        return replace(
            self,
            messages={**self.messages, **other.messages},
            mark=max(self.mark, other.mark),
            ranges=self.ranges + other.ranges,
            policies={**self.policies, **other.policies},
            cursor_ledger=max(self.cursor_ledger, other.cursor_ledger),
        )


_SNAPSHOT = Message(key=f"persistent://{TOPIC}")
"""What a broker writes before the first transaction of a topic."""


def plant(path: Path, planted: Planted, beside: Mapping[str, Sequence[Made]] = MappingProxyType({})) -> Path:
    """Make a store at PATH with the topic: three ledgers of ten entries, the last one open; topics BESIDE it have a ledger each."""
    ledgers = [
        [
            planted.messages.get((ledger, entry), planted.usual).made(number * ENTRIES + entry)
            for entry in range(ENTRIES)
        ]
        for number, ledger in enumerate(LEDGERS)
    ]
    ranges = tuple((Position(*lower), Position(*upper)) for lower, upper in planted.ranges)
    info = CursorInfo(planted.cursor_ledger, Position(*planted.mark), ranges, planted.batch_deletes)
    topics = {TOPIC: MadeTopic(ledgers, cursors={planted.cursor: info})}
    if any(message.transaction for message in planted.messages.values()):
        topics["public/default/__transaction_buffer_snapshot"] = MadeTopic([[_SNAPSHOT.made(0)]])
    make_store(path, topics | {name: MadeTopic([entries]) for name, entries in beside.items()})
    if planted.policies:
        put_node(path, "/admin/policies/public/default", json.dumps(planted.policies).encode())
    return path


def ask(path: Path, cursor: str = SUB, now_ms: int = NOW_MS) -> Why:
    with opened(path) as reader:
        topic = read_topic(reader.txn, parse_topic(TOPIC))
        return why_subscription(reader, topic, read_cursor(reader.txn, reader, topic, cursor), now_ms)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    with open_store(path) as store, open_reader(store) as reader:
        yield reader
