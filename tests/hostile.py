"""A store in which every name that data can choose drives a terminal and forges lines."""

import json
from hashlib import sha256
from pathlib import Path

from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.codec.ledgermetadata import (
    LedgerMetadata,
    LedgerState,
    Segment,
    encode_ledger_metadata,
    ledger_path,
)
from pulsar_admin.store.codec.managedledger import ManagedLedger, encode_managed_ledger
from pulsar_admin.store.codec.message import encode_message_entry
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.codec.schema import (
    TYPE_NUMBERS,
    IndexEntry,
    SchemaEntry,
    SchemaLocator,
    encode_schema_entry,
    encode_schema_locator,
)
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.tree import Node, put_nodes
from pulsar_admin.store.model.references import index_owners
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store

FORGED = "FORGED"
"""What begins a line of output only where a name broke out of its own."""
EVIL = f"x\x1b[2J\x1b]0;title\x07\n{FORGED}\r\x9b31m\u202e\u2066\x7f\u200b\u2028{FORGED}"
EVIL_BYTES = f"\0{EVIL}"
"""The same with a character that no command line can hold."""
TOPIC = f"public/default/{EVIL}"
CURSOR = f"sub {EVIL}"
LEDGER_ID = 10
RECORDS = "public/default/records"
"""Records of many fields, some named like columns of a table, some with names and values that drive a terminal; a key of a megabyte."""
DAMAGED = "public/default/damaged"
"""Its schema is no JSON."""
FIELDS = ["KEY", "POSITION", "[red]", f"field {EVIL_BYTES}", *(f"field_{number}" for number in range(100))]


def _entry(sequence_id: int) -> bytes:
    metadata = MessageMetadata(producer_name=f"producer {EVIL_BYTES}", sequence_id=sequence_id, publish_time=CREATED_MS)
    metadata.partition_key = f"key {EVIL_BYTES}"
    metadata.properties.add(key=f"property {EVIL_BYTES}", value=f"value {EVIL_BYTES}")
    return encode_message_entry(metadata, f"payload {EVIL_BYTES}".encode())


def _record(number: int) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=CREATED_MS, schema_version=bytes(8))
    metadata.partition_key = "k" * 1_000_000 if not number else f"日本 {EVIL_BYTES}"
    value = dict.fromkeys(
        FIELDS, [f"[bold]{EVIL_BYTES}", None, {EVIL_BYTES: 7}, "e\u0301日本語 " * 200 + "\ud800"][number]
    )
    return encode_message_entry(metadata, json.dumps(value).encode())


def _schema_nodes(first_ledger: int, definitions: dict[str, bytes]) -> list[Node]:
    nodes = []
    for ledger_id, (topic, definition) in enumerate(definitions.items(), first_ledger):
        entry = IndexEntry(0, Position(ledger_id, 0), sha256(definition).digest())
        value = encode_schema_locator(SchemaLocator(entry, (entry,)))
        nodes.append(Node(parse_topic(topic).schema_path, NodeStat(0, 1, CREATED_MS, CREATED_MS, False), value))
    return nodes


def make_hostile_store(path: Path) -> Path:
    """Make the store at PATH: one topic of three ledgers, the second lost, and names of tenants and bookies beside it; topics with
    hostile schemas."""
    cursor = CursorInfo(
        cursors_ledger_id=-1, mark_delete=Position(LEDGER_ID, 0), properties={f"cursor {EVIL_BYTES}": 7}
    )
    made = [Made(CREATED_MS, raw=_entry(number)) for number in range(4)]
    lost = [Made(CREATED_MS, raw=_entry(0), lost=True)]
    fields = [{"name": name, "type": ["null", "string"]} for name in FIELDS]
    record = json.dumps({"type": "record", "name": EVIL_BYTES, "fields": fields}).encode()
    definitions = {RECORDS: record, DAMAGED: b"{"}
    kept = [
        Made(CREATED_MS, raw=encode_schema_entry(SchemaEntry("", "", number, definition, CREATED_MS, False)))
        for definition in definitions.values()
        for number in [TYPE_NUMBERS["JSON"]]
    ]
    topics = {
        TOPIC: MadeTopic([made, lost, made], cursors={CURSOR: cursor}),
        RECORDS: MadeTopic([[Made(CREATED_MS, raw=_record(number)) for number in range(4)]]),
        DAMAGED: MadeTopic([[Made(CREATED_MS, raw=_record(1))]]),
        "public/default/schemas": MadeTopic([[one] for one in kept], open_last=False),
    }
    make_store(path, topics)
    stat = NodeStat(0, 1, CREATED_MS, CREATED_MS, False)
    metadata = LedgerMetadata(
        version=3,
        write_quorum=1,
        ensemble_size=1,
        ack_quorum=1,
        length=0,
        last_entry_id=0,
        state=LedgerState.CLOSED,
        segments=(Segment(0, (f"bookie {EVIL_BYTES}",)),),
        digest_type=None,
        password=b"",
        ctime_ms=None,
        custom={f"custom {EVIL_BYTES}": EVIL_BYTES.encode(), "pulsar/managed-ledger": EVIL_BYTES.encode()},
        ctoken=0,
    )
    tenant = EVIL.replace("/", "")
    nodes = [
        *_schema_nodes(LEDGER_ID + 5, definitions),
        Node(ledger_path(99), stat, encode_ledger_metadata(metadata)),
        Node(f"/managed-ledgers/{tenant}/{tenant}/persistent/t", stat, encode_managed_ledger(ManagedLedger())),
        Node(f"/admin/policies/{tenant}/{tenant}", stat, b'{"broken'),
        Node(f"/schemas/public/default/{tenant}", stat, b"broken " + EVIL_BYTES.encode()),
        Node(f"{parse_topic(TOPIC).path}/{tenant}", stat, b"\xff broken cursor"),
    ]
    with open_store(path, writable=True) as store:

        def put(txn: Txn) -> None:
            for node in nodes:
                put_nodes(txn, [node])
            index_owners(store, txn)

        store.write(put)
    return path
