"""A store in which every name that data can choose drives a terminal and forges lines."""

from __future__ import annotations

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


def _entry(sequence_id: int) -> bytes:
    metadata = MessageMetadata(producer_name=f"producer {EVIL_BYTES}", sequence_id=sequence_id, publish_time=CREATED_MS)
    metadata.partition_key = f"key {EVIL_BYTES}"
    metadata.properties.add(key=f"property {EVIL_BYTES}", value=f"value {EVIL_BYTES}")
    return encode_message_entry(metadata, f"payload {EVIL_BYTES}".encode())


def make_hostile_store(path: Path) -> Path:
    """Make the store at PATH: one topic of three ledgers, the second lost, and names of tenants and bookies beside it."""
    cursor = CursorInfo(
        cursors_ledger_id=-1, mark_delete=Position(LEDGER_ID, 0), properties={f"cursor {EVIL_BYTES}": 7}
    )
    made = [Made(CREATED_MS, raw=_entry(number)) for number in range(4)]
    lost = [Made(CREATED_MS, raw=_entry(0), lost=True)]
    make_store(path, {TOPIC: MadeTopic([made, lost, made], cursors={CURSOR: cursor})})
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
