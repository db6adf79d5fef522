"""Stores made of entries a test chose: genuine entry-log bytes and metadata, imported by the product's own scanner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from store.catalog import LogFile, fingerprint
from store.codec.batch import encode_batch
from store.codec.brokerentry import BrokerEntry
from store.codec.cursor import CursorInfo, encode_cursor_info
from store.codec.digest import DigestType
from store.codec.entry import Entry, encode_entry
from store.codec.entrylog import EntryLogHeader, encode_header
from store.codec.ledgermetadata import LedgerMetadata, LedgerState, Segment, encode_ledger_metadata, ledger_path
from store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from store.codec.message import encode_message_entry
from store.codec.rocksvalue import NodeStat
from store.importer import ledger_digests, scan_into
from store.meta import Txn, create_store, open_store
from store.names import parse_topic
from store.owners import index_owners
from store.proto.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata
from store.tree import Node, put_node

CREATED_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Made:
    """One entry to write: publish time, broker time (None: no broker metadata), messages (0: not a batch)."""

    publish_ms: int
    broker_ms: int | None = None
    batch: int = 0
    payload: bytes = b"x"
    lost: bool = False  # listed, but in no entry log


@dataclass(frozen=True)
class MadeTopic:
    """Ledgers of entries, oldest first; the last one is open when ``open_last``. Cursors by name."""

    ledgers: Sequence[Sequence[Made]]
    open_last: bool = True
    cursors: Mapping[str, CursorInfo] = field(default_factory=dict)
    closed_ms: Sequence[int] = ()


def message_bytes(made: Made, sequence_id: int = 0) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=made.publish_ms)
    payload = made.payload
    if made.batch:
        metadata.num_messages_in_batch = made.batch
        payload = encode_batch(
            [(SingleMessageMetadata(payload_size=len(made.payload)), made.payload) for _ in range(made.batch)]
        )
    broker = None if made.broker_ms is None else BrokerEntry(made.broker_ms, None)
    return encode_message_entry(metadata, payload, broker=broker)


def make_store(path: Path, topics: Mapping[str, MadeTopic]) -> Path:
    """Make a store at PATH; ledger ids count up from 10 in the order of TOPICS. Entries are interleaved in one log."""
    create_store(path, now_ms=CREATED_MS)
    rows: list[tuple[int, int, bytes]] = []
    nodes: list[Node] = []
    ledger_id = 10
    for name, topic in topics.items():
        infos = []
        for index, entries in enumerate(topic.ledgers):
            last = index == len(topic.ledgers) - 1
            length = 0
            for entry_id, made in enumerate(entries):
                payload = message_bytes(made, entry_id)
                length += len(payload)
                if not made.lost:
                    entry = Entry(ledger_id, entry_id, entry_id - 1, length, DigestType.CRC32C, memoryview(payload))
                    rows.append((entry_id, ledger_id, encode_entry(entry)))
            is_open = last and topic.open_last
            nodes.append(_ledger_node(ledger_id, len(entries), length))
            closed = topic.closed_ms[index] if index < len(topic.closed_ms) else CREATED_MS
            infos.append(
                LedgerInfo(ledger_id)
                if is_open
                else LedgerInfo(ledger_id, entries=len(entries), size_bytes=length, timestamp_ms=closed)
            )
            ledger_id += 1
        parsed = parse_topic(name)
        nodes.append(Node(parsed.path, _stat(), encode_managed_ledger(ManagedLedger(tuple(infos)))))
        nodes += [
            Node(parsed.cursor_path(cursor), _stat(), encode_cursor_info(info))
            for cursor, info in topic.cursors.items()
        ]
    rows.sort(key=lambda row: row[0])
    log = path / "entries" / "0.log"
    log.write_bytes(
        encode_header(EntryLogHeader(1, 0, 0)) + b"".join(len(body).to_bytes(4, "big") + body for _, _, body in rows)
    )
    _import(path, log, nodes)
    return path


def _stat() -> NodeStat:
    return NodeStat(0, 1, CREATED_MS, CREATED_MS, False)


def _ledger_node(ledger_id: int, entries: int, length: int) -> Node:
    metadata = LedgerMetadata(
        version=3,
        write_quorum=1,
        ensemble_size=1,
        ack_quorum=1,
        length=length,
        last_entry_id=entries - 1,
        state=LedgerState.CLOSED,
        segments=(Segment(0, ("127.0.0.1:3181",)),),
        digest_type=DigestType.CRC32C,
        password=b"",
        ctime_ms=None,
        custom={},
        ctoken=0,
    )
    return Node(ledger_path(ledger_id), _stat(), encode_ledger_metadata(metadata))


def _import(path: Path, log: Path, nodes: Sequence[Node]) -> None:
    with open_store(path, writable=True) as store:

        def put(txn: Txn) -> None:
            for node in nodes:
                put_node(txn, node)

        store.write(put)
        status = log.stat()
        with open(log, "rb") as file:
            mark = fingerprint(file.fileno(), status.st_size)
        row = LogFile(
            1,
            "entries/0.log",
            "entry-log",
            0,
            "",
            "own",
            status.st_size,
            status.st_mtime_ns,
            mark,
            0,
            0,
            0,
            False,
            False,
        )
        with store.read() as txn:
            digests = ledger_digests(txn)
        scan_into(store, row, digests, True, lambda _: None)
        store.write(lambda txn: index_owners(store, txn))
