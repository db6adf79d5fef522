"""A small world with a topic for each way in which one can break, and what breaks them once its broker has ended.

What the broker of 4.0.8 did on such topics, unmended, is the ground of what ``store.model.broken`` says. "Waits": a consumer or reader
that gets there gets nothing more. Code 500 is "No such ledger exists on Metadata Server" where it is not another one:

| lost | without autoSkipNonRecoverableData | with it |
|---|---|---|
| metadata of a ledger in the list | loads, waits; 500 for analyze-backlog and searches by time; resets into it are done | passes over it |
| metadata of the last ledger | "Ledger not found": it is dropped from the list | the same |
| entries of a ledger | loads, waits; 500 "No such entry" | passes over them and over readable ones beside them |
| compacted ledger | 500 for internal stats; readers of the compacted view wait or fail, compaction, too | the same |
| newest schema version | 500 for the schema, producers with a schema fail | the same |
| ledger of ``__change_events`` | no topic of the namespace loads: 500 "Failed to load topic within timeout" | loads |
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pulsar  # type: ignore[import-untyped,import-not-found,unused-ignore]
from msgspec import Struct, field

from pulsar_admin.store.codec.digest import DigestType, compute_digest
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.sources.rocksdb import apply_changes
from tests.live.broker import BASE_SETTINGS, Broker
from tests.live.compacting import compact
from tests.live.on_disk import wait_until_written
from tests.live.producing import RECEIVE_MS, open_client

NAMESPACE, POLICED, KEPT_POLICED = "acme/mend", "acme/policed", "acme/kept"
FIRST, MIDDLE, LAST, HOLES, GONE, CURSOR, COMPACTED, SCHEMA, KEPT, KEPT_COMPACTED, KEPT_SCHEMA, DELETED = (
    f"{NAMESPACE}/{name}"
    for name in (
        *("first", "middle", "last", "holes", "gone", "cursor", "compacted", "schema"),
        *("kept", "kept-compacted", "kept-schema", "deleted"),
    )
)
TOPICS = (FIRST, MIDDLE, LAST, HOLES, GONE, CURSOR, COMPACTED, SCHEMA, KEPT, KEPT_COMPACTED, KEPT_SCHEMA, DELETED)
EVENTS, KEPT_EVENTS = f"{POLICED}/__change_events", f"{KEPT_POLICED}/__change_events"
ENTRIES, PER_LEDGER, KEYS, CHANGES = 45, 10, 7, 12
LOST_ENTRIES = (3, 4, 5)
SETTINGS = {
    **BASE_SETTINGS,
    "managedLedgerMaxEntriesPerLedger": str(PER_LEDGER),
    "managedLedgerMaxUnackedRangesToPersistInMetadataStore": "3",
    "dbStorage_writeCacheMaxSizeMb": "16",
    "dbStorage_readAheadCacheMaxSizeMb": "16",
    "managedLedgerCacheSizeMB": "16",
}
_NOBODYS = 7_000_000
"""A ledger that no metadata knows."""


class Broken(Struct):
    """What was there: positions of a topic's messages, its ledgers, how many entries the first has, those of its schema; and by what
    is broken the ledger it lost."""

    positions: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    ledgers: dict[str, list[int]] = field(default_factory=dict)
    first_entries: dict[str, int] = field(default_factory=dict)
    schemas: dict[str, list[int]] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)


def fill(broker: Broker) -> Broken:
    """Fill a running broker's topics and say what is in them."""
    broken = Broken()
    broker.put("tenants/acme", {"adminRoles": [], "allowedClusters": ["standalone"]})
    for namespace in (NAMESPACE, POLICED, KEPT_POLICED):
        broker.put(f"namespaces/{namespace}", {})
    client = open_client(broker.service_url)
    for topic in TOPICS:
        broker.put(f"persistent/{topic}")
        for subscription in ("start", "inside"):
            broker.subscribe(topic, subscription)
        broken.positions[topic] = _send(client, topic)
        _acknowledge(client, topic)
    _leave_holes(client)
    for number in range(3):
        fields = [{"name": f"f{place}", "type": ["null", "int"], "default": None} for place in range(number + 1)]
        definition = json.dumps({"type": "record", "name": "R", "fields": fields})
        for topic in (SCHEMA, KEPT_SCHEMA):
            broker.post(f"schemas/{topic}/schema", {"type": "AVRO", "schema": definition, "properties": {}})
    for namespace in (POLICED, KEPT_POLICED):
        for topic in ("one", "two"):
            broker.put(f"persistent/{namespace}/{topic}")
        for number in range(CHANGES):
            topic = f"{namespace}/{'two' if number >= PER_LEDGER else 'one'}"
            broker.post(f"persistent/{topic}/messageTTL?messageTTL={1000 + number}")
    for topic in (COMPACTED, KEPT_COMPACTED):
        assert compact(broker, topic) == "SUCCESS"
    client.close()
    wait_until_written(broker, TOPICS)
    _note(broker, broken)
    broker.put(f"persistent/{CURSOR}/unload")  # a bookie that stops with its broker takes no cursor's last position
    return broken


def _send(client: pulsar.Client, topic: str) -> list[tuple[int, int]]:
    producer = client.create_producer(f"persistent://{topic}", producer_name="p", batching_enabled=False)
    found = [producer.send(b"%d" % number, partition_key=f"key-{number % KEYS}") for number in range(ENTRIES)]
    producer.close()
    return [(position.ledger_id(), position.entry_id()) for position in found]


def _acknowledge(client: pulsar.Client, topic: str) -> None:
    """Let ``inside`` stand in the second ledger."""
    consumer = client.subscribe(f"persistent://{topic}", "inside")
    messages = [consumer.receive(RECEIVE_MS) for _ in range(PER_LEDGER + 4)]
    consumer.acknowledge_cumulative(messages[-1])
    consumer.close()


def _leave_holes(client: pulsar.Client) -> None:
    """Acknowledge every second of 30 messages: so many ranges are in a cursor ledger alone."""
    first = pulsar.InitialPosition.Earliest
    consumer = client.subscribe(f"persistent://{CURSOR}", "holes", pulsar.ConsumerType.Shared, initial_position=first)
    messages = [consumer.receive(RECEIVE_MS) for _ in range(30)]
    for message in messages[1::2]:
        consumer.acknowledge(message)
    consumer.close()


def _note(broker: Broker, broken: Broken) -> None:
    for topic in (*TOPICS, EVENTS, KEPT_EVENTS):
        internal = broker.get(f"persistent/{topic}/internalStats")
        broken.ledgers[topic] = [ledger["ledgerId"] for ledger in internal["ledgers"]]
        broken.first_entries[topic] = internal["ledgers"][0]["entries"]
        broken.schemas[topic] = sorted(ledger["ledgerId"] for ledger in internal["schemaLedgers"])
        if topic in (COMPACTED, KEPT_COMPACTED):
            broken.lost[topic] = internal["compactedLedger"]["ledgerId"]
    second = (MIDDLE, HOLES, GONE, KEPT)
    broken.lost |= {topic: broken.ledgers[topic][1] for topic in second}
    broken.lost |= {topic: broken.ledgers[topic][0] for topic in (FIRST, EVENTS, KEPT_EVENTS)}
    broken.lost |= {topic: broken.schemas[topic][-1] for topic in (SCHEMA, KEPT_SCHEMA)}
    broken.lost[LAST] = broken.ledgers[LAST][-1]


def plant(broker: Broker, broken: Broken, cursor_ledger: int) -> None:
    """Break what ``broken.lost`` names, and CURSOR_LEDGER of ``holes``, in the files of a broker that has ended."""
    broken.lost[CURSOR] = cursor_ledger
    keys = sorted(ledger_path(ledger).encode() for topic, ledger in broken.lost.items() if topic != HOLES)
    unreadable = f"/managed-ledgers/{NAMESPACE}/persistent/{DELETED.rpartition('/')[2]}".encode()
    changes = sorted([*((key, None) for key in keys), (unreadable, _header(broker, unreadable) + b"\xff\xff")])
    apply_changes(broker.data / "metadata", lambda: changes)
    lost = [(broken.lost[HOLES], entry) for entry in LOST_ENTRIES]
    _lose_entries(broker.data / "bookkeeper", [*lost, *((broken.lost[GONE], entry) for entry in range(PER_LEDGER))])


def _header(broker: Broker, key: bytes) -> bytes:
    from pulsar_admin.store.sources.rocksdb import read_values

    value = read_values(broker.data / "metadata", [key])[key]
    (size,) = struct.unpack_from(">i", value)
    return value[:size]


def _lose_entries(bookkeeper: Path, entries: list[tuple[int, int]]) -> None:
    """Make records of entries those of a ledger that nobody knows, and take them out of the index."""
    keys = sorted(struct.pack(">qq", *entry) for entry in entries)
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
            struct.pack_into(">q", content, place, _NOBODYS)
            header, payload = bytes(content[place : place + 32]), bytes(content[place + 36 : place + size])
            content[place + 32 : place + 36] = compute_digest(DigestType.CRC32C, header, payload)
    file.write_bytes(content)


def _places(content: bytearray, key: bytes) -> Iterator[int]:
    place = content.find(key)
    while place >= 0:
        yield place
        place = content.find(key, place + 1)
