"""Stores made of entries a test chose: genuine entry-log bytes and metadata, imported by the product's own scanner."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from pulsar_admin.store.codec.batch import encode_batch
from pulsar_admin.store.codec.brokerentry import BrokerEntry
from pulsar_admin.store.codec.cursor import CursorInfo, CursorState, encode_cursor_info
from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.entry import Entry
from pulsar_admin.store.codec.entrylog import EntryLogHeader, encode_header
from pulsar_admin.store.codec.ledgermetadata import (
    LedgerMetadata,
    LedgerState,
    Segment,
    encode_ledger_metadata,
    ledger_path,
)
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.codec.message import encode_message_entry
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.environment import Txn, create_store, open_store
from pulsar_admin.store.db.files import LogFile, fingerprint
from pulsar_admin.store.db.ledger_ids import put_next_ledger_id
from pulsar_admin.store.db.own_ledgers import largest_ledger_id
from pulsar_admin.store.db.tree import Node, put_nodes
from pulsar_admin.store.index.build import Scanning, index_files, ledger_digests
from pulsar_admin.store.model.references import index_owners
from pulsar_admin.store.names import Position, TopicName, parse_topic
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata
from tests.encoders import encode_compacted_to, encode_entry, encode_position_info

CREATED_MS = 1_700_000_000_000


class Made(Struct, frozen=True):
    """One entry to write: publish time, broker time (None: no broker metadata), messages (0: not a batch)."""

    publish_ms: int
    broker_ms: int | None = None
    batch: int = 0
    payload: bytes = b"x"
    lost: bool = False  # listed, but in no entry log
    raw: bytes | None = None  # the entry's exact payload, instead of one made of the fields above


class MadeCompacted(Struct, frozen=True):
    """A compacted ledger: the exact payloads of its entries, and what the ``__compaction`` cursor says of it."""

    ledger_id: int
    payloads: Sequence[bytes]
    horizon: Position
    claims: str | None = None  # the topic that its metadata names; None: the right one
    compacted_to: Position | None = None  # None: the horizon
    lost: tuple[int, ...] = ()  # entries in no entry log
    behind_end: int = 0  # so many of the last entries lie behind the last entry id that its metadata records
    listed: bool = True  # False: it has no metadata, its entries are in no log


class MadeTopic(Struct, frozen=True):
    """Ledgers of entries, oldest first; the last one is open when ``open_last``. Cursors by name."""

    ledgers: Sequence[Sequence[Made]]
    open_last: bool = True
    cursors: Mapping[str, CursorInfo] = field(default_factory=dict)
    closed_ms: Sequence[int] = ()
    compacted: MadeCompacted | None = None


def message_bytes(made: Made, sequence_id: int = 0) -> bytes:
    if made.raw is not None:
        return made.raw
    metadata = MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=made.publish_ms)
    payload = made.payload
    if made.batch:
        metadata.num_messages_in_batch = made.batch
        payload = encode_batch(
            [(SingleMessageMetadata(payload_size=len(made.payload)), made.payload) for _ in range(made.batch)]
        )
    broker = None if made.broker_ms is None else BrokerEntry(made.broker_ms, None)
    return encode_message_entry(metadata, payload, broker=broker)


def make_store(
    path: Path,
    topics: Mapping[str, MadeTopic],
    states: Mapping[int, CursorState | bytes | list[CursorState | bytes]] | None = None,
    first: int = 10,
) -> Path:
    """Make a store at PATH; ledger ids count up from FIRST in the order of TOPICS. Entries are interleaved in one log.

    STATES: cursor ledgers by id, each of one entry, or a list of them; as bytes those of any other ledger.
    """
    create_store(path, now_ms=CREATED_MS)
    rows: list[tuple[int, int, bytes]] = []
    nodes: list[Node] = []
    ledger_id = first
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
            nodes.append(ledger_node(ledger_id, len(entries), length))
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
        if topic.compacted is not None:
            _add_compacted(parsed, topic.compacted, rows, nodes)
    for cursor_ledger, state in (states or {}).items():
        payloads = state if isinstance(state, list) else [state]
        length = 0
        for entry_id, one in enumerate(payloads):
            payload = one if isinstance(one, bytes) else encode_position_info(one)
            length += len(payload)
            entry = Entry(cursor_ledger, entry_id, entry_id - 1, length, DigestType.CRC32C, memoryview(payload))
            rows.append((entry_id, cursor_ledger, encode_entry(entry)))
        nodes.append(ledger_node(cursor_ledger, len(payloads), length))
    rows.sort(key=lambda row: row[0])
    log = path / "entries" / "0.log"
    log.write_bytes(
        encode_header(EntryLogHeader(1, 0, 0)) + b"".join(len(body).to_bytes(4, "big") + body for _, _, body in rows)
    )
    _import(path, log, nodes)
    with open_store(path, writable=True) as store:
        store.write(lambda txn: put_next_ledger_id(txn, largest_ledger_id(txn) + 1))
    return path


def _stat() -> NodeStat:
    return NodeStat(0, 1, CREATED_MS, CREATED_MS, False)


def _add_compacted(
    topic: TopicName, made: MadeCompacted, rows: list[tuple[int, int, bytes]], nodes: list[Node]
) -> None:
    info = CursorInfo(
        cursors_ledger_id=-1, mark_delete=made.horizon, properties={"CompactedTopicLedger": made.ledger_id}
    )
    nodes.append(Node(topic.cursor_path("__compaction"), _stat(), encode_cursor_info(info)))
    if not made.listed:
        return
    length = 0
    for entry_id, payload in enumerate(made.payloads):
        length += len(payload)
        if entry_id not in made.lost:
            entry = Entry(made.ledger_id, entry_id, entry_id - 1, length, DigestType.CRC32, memoryview(payload))
            rows.append((entry_id, made.ledger_id, encode_entry(entry)))
    custom = {
        "application": b"pulsar",
        "component": b"compacted-ledger",
        "pulsar/compactedTopic": (made.claims or str(topic)).encode(),
        "pulsar/compactedTo": encode_compacted_to(made.compacted_to or made.horizon),
    }
    entries = len(made.payloads) - made.behind_end
    nodes.append(ledger_node(made.ledger_id, entries, sum(map(len, made.payloads[:entries])), DigestType.CRC32, custom))


def ledger_node(
    ledger_id: int,
    entries: int,
    length: int,
    digest_type: DigestType = DigestType.CRC32C,
    custom: Mapping[str, bytes] | None = None,
) -> Node:
    metadata = LedgerMetadata(
        version=3,
        write_quorum=1,
        ensemble_size=1,
        ack_quorum=1,
        length=length,
        last_entry_id=entries - 1,
        state=LedgerState.CLOSED,
        segments=(Segment(0, ("127.0.0.1:3181",)),),
        digest_type=digest_type,
        password=b"",
        ctime_ms=None,
        custom=custom or {},
        ctoken=0,
    )
    return Node(ledger_path(ledger_id), _stat(), encode_ledger_metadata(metadata))


def _import(path: Path, log: Path, nodes: Sequence[Node]) -> None:
    with open_store(path, writable=True) as store:

        def put(txn: Txn) -> None:
            for node in nodes:
                put_nodes(txn, [node])

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
        index_files(store, [row], Scanning(digests))
        store.write(lambda txn: index_owners(store, txn))
