"""A small world with one topic for each way in which a topic can break, and what breaks them once its broker has ended."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]

from store.codec.digest import DigestType, compute_digest
from store.codec.ledgermetadata import ledger_path
from store.sources.rocksdb import apply_changes
from tests.live.broker import BASE_SETTINGS, Broker, BrokerError, wait_until
from tests.live.producing import open_client

NAMESPACE, POLICED = "acme/mend", "acme/policed"
FIRST, MIDDLE, LAST, HOLES, CURSOR, COMPACTED, SCHEMA, NEWEST, GONE = (
    f"{NAMESPACE}/{name}"
    for name in ("first", "middle", "last", "holes", "cursor", "compacted", "schema", "newest", "gone")
)
RULED = (f"{POLICED}/one", f"{POLICED}/two")
EVENTS = f"{POLICED}/__change_events"
ENTRIES = 45
PER_LEDGER = 10
SETTINGS = {
    **BASE_SETTINGS,
    "managedLedgerMaxEntriesPerLedger": str(PER_LEDGER),
    "managedLedgerMaxUnackedRangesToPersistInMetadataStore": "3",
    "managedLedgerCursorPositionFlushSeconds": "1",
    "dbStorage_writeCacheMaxSizeMb": "16",
    "dbStorage_readAheadCacheMaxSizeMb": "16",
    "managedLedgerCacheSizeMB": "16",
    "transactionCoordinatorEnabled": "false",
    "functionsWorkerEnabled": "false",
}


@dataclass(slots=True)
class Broken:
    """What was there: messages of a topic as (ledger, entry, payload), ledgers of a topic, and the ledgers that are broken."""

    messages: dict[str, list[tuple[int, int, bytes]]] = field(default_factory=dict)
    ledgers: dict[str, list[int]] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)


def fill(broker: Broker) -> Broken:
    """Fill a running broker's topics and say what is in them."""
    broken = Broken()
    broker.put("tenants/acme", {"adminRoles": [], "allowedClusters": ["standalone"]})
    for namespace in (NAMESPACE, POLICED):
        broker.put(f"namespaces/{namespace}", {})
    client = open_client(broker.service_url)
    for topic in (FIRST, MIDDLE, LAST, HOLES, CURSOR, COMPACTED, SCHEMA, NEWEST, GONE, *RULED):
        broker.put(f"persistent/{topic}")
        for subscription in ("start", "inside", "behind"):
            broker.subscribe(topic, subscription)
        _send(client, topic, broken)
        _acknowledge(client, topic, "inside", 14)
        _acknowledge(client, topic, "behind", 33)
    _leave_holes(client, CURSOR)
    for number in range(3):
        definition = {"type": "record", "name": "R", "fields": [
            {"name": f"f{place}", "type": ["null", "int"], "default": None} for place in range(number + 1)
        ]}  # fmt: skip
        for topic in (SCHEMA, NEWEST):
            broker.post(f"schemas/{topic}/schema", {"type": "AVRO", "schema": json.dumps(definition), "properties": {}})
    for number in range(12):
        broker.post(f"persistent/{RULED[number >= 8]}/messageTTL?messageTTL={100 + number}")
    broker.put(f"persistent/{COMPACTED}/compaction")
    wait_until(lambda: broker.get(f"persistent/{COMPACTED}/compaction")["status"] == "SUCCESS", "compaction")
    client.close()
    _note(broker, broken)
    return broken


def _send(client: pulsar.Client, topic: str, broken: Broken) -> None:
    producer = client.create_producer(f"persistent://{topic}", producer_name="p", batching_enabled=False)
    rows = broken.messages.setdefault(topic, [])
    for number in range(ENTRIES):
        payload = b"%s %d" % (topic.encode(), number)
        position = producer.send(payload, partition_key=f"key-{number % 7}")
        rows.append((position.ledger_id(), position.entry_id(), payload))
    producer.close()


def _acknowledge(client: pulsar.Client, topic: str, subscription: str, count: int) -> None:
    consumer = client.subscribe(f"persistent://{topic}", subscription)
    message = None
    for _ in range(count):
        message = consumer.receive(10_000)
    consumer.acknowledge_cumulative(message)
    consumer.close()


def _leave_holes(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(
        f"persistent://{topic}", "holes", pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
    )
    for number in range(30):
        message = consumer.receive(10_000)
        if number % 2:
            consumer.acknowledge(message)
    consumer.close()


def _note(broker: Broker, broken: Broken) -> None:
    for topic in (*broken.messages, EVENTS):
        internal = broker.get(f"persistent/{topic}/internalStats")
        broken.ledgers[topic] = [ledger["ledgerId"] for ledger in internal["ledgers"]]
        if topic in (SCHEMA, NEWEST):
            broken.ledgers[f"schemas of {topic}"] = sorted(ledger["ledgerId"] for ledger in internal["schemaLedgers"])
        if topic == COMPACTED:
            broken.lost[topic] = internal["compactedLedger"]["ledgerId"]
        if topic == CURSOR:
            broken.lost[topic] = internal["cursors"]["holes"]["cursorLedger"]
    broken.lost |= {
        FIRST: broken.ledgers[FIRST][0],
        MIDDLE: broken.ledgers[MIDDLE][1],
        LAST: broken.ledgers[LAST][-1],
        HOLES: broken.ledgers[HOLES][1],
        GONE: broken.ledgers[GONE][1],
        SCHEMA: broken.ledgers[f"schemas of {SCHEMA}"][1],
        NEWEST: broken.ledgers[f"schemas of {NEWEST}"][-1],
        EVENTS: broken.ledgers[EVENTS][0],
    }


def plant(broker: Broker, broken: Broken) -> None:
    """Break what ``broken.lost`` names, in the files of a broker that has ended."""
    keys = sorted(ledger_path(ledger).encode() for topic, ledger in broken.lost.items() if topic != HOLES)
    apply_changes(broker.data / "metadata", lambda: [(key, None) for key in keys])
    _lose_entries(broker.data / "bookkeeper", [(broken.lost[HOLES], entry) for entry in (3, 4, 5)])
    _lose_entries(broker.data / "bookkeeper", [(broken.lost[GONE], entry) for entry in range(PER_LEDGER)])


def _lose_entries(bookkeeper: Path, entries: list[tuple[int, int]]) -> None:
    """Make records of entries those of a ledger that nobody knows, and take them out of the index."""
    keys = [struct.pack(">qq", *entry) for entry in entries]
    for file in sorted(bookkeeper.rglob("current/*")):
        if file.suffix in (".log", ".txn") and file.parent.name == "current":
            _rename_records(file, keys)
    for index in sorted(bookkeeper.rglob("current/locations")):
        apply_changes(index, lambda: [(key, None) for key in keys])


def _rename_records(file: Path, keys: list[bytes]) -> None:
    content = bytearray(file.read_bytes())
    for key in keys:
        for place in _places(content, key):
            (size,) = struct.unpack_from(">i", content, place - 4)
            struct.pack_into(">q", content, place, 7_000_000)
            header, payload = bytes(content[place : place + 32]), bytes(content[place + 36 : place + size])
            content[place + 32 : place + 36] = compute_digest(DigestType.CRC32C, header, payload)
    file.write_bytes(content)


def _places(content: bytearray, key: bytes) -> Iterator[int]:
    place = content.find(key)
    while place >= 0:
        yield place
        place = content.find(key, place + 1)


def load(broker: Broker, topic: str) -> Any:  # Any: JSON
    """What a broker says of a topic, or its error."""
    try:
        return broker.get(f"persistent/{topic}/stats")
    except BrokerError as error:
        return error
