"""Which ledger belongs to whom: ledger id → references from the metadata (database ``owners``, derived)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from store.codec.cursor import decode_cursor_head
from store.codec.index import ledger_key, ledger_of_key
from store.codec.ledgermetadata import LedgerMetadata
from store.codec.managedledger import decode_managed_ledger
from store.codec.schema import decode_schema_locator
from store.cursors import COMPACTION_CURSOR, INTERNAL_PROPERTY_PREFIX, read_cursor
from store.entrylogs import EntryFiles
from store.errors import IndexCorrupt, LedgerNotFound, StoreError
from store.ledgers import EntryReader, find_metadata, find_times
from store.meta import Store, Txn
from store.names import LONG_MAX, MANAGED_LEDGERS, TopicName, decode_name, topic_of_path
from store.topics import read_topic
from store.tree import Node, iter_nodes

COMPACTED_LEDGER = "CompactedTopicLedger"
BUCKET_PREFIX = INTERNAL_PROPERTY_PREFIX + "delayed.bucket_"


@dataclass(frozen=True, slots=True)
class Owner:
    """One reference to a ledger. ``kind``: managed-ledger, cursor, compacted, schema or delayed-bucket;
    delayed-index where an index of delayed messages, which is ours alone, holds the ledger."""

    kind: str
    topic: str
    cursor: str = ""


def find_owners(txn: Txn, ledger_id: int) -> tuple[Owner, ...]:
    """Return who references LEDGER_ID; empty when nobody does. Raises IndexCorrupt."""
    row = txn.get("owners", ledger_key(ledger_id))
    return () if row is None else _decode_owners(ledger_id, row)


def iter_owners(txn: Txn) -> Iterator[tuple[int, tuple[Owner, ...]]]:
    """Yield (ledger id, who references it) for every referenced ledger, in id order; raises IndexCorrupt."""
    for key, row in txn.items("owners"):
        ledger_id = ledger_of_key(key)
        yield ledger_id, _decode_owners(ledger_id, bytes(row))


def _decode_owners(ledger_id: int, row: bytes) -> tuple[Owner, ...]:
    try:
        return tuple(Owner(**fields) for fields in json.loads(row))
    except (ValueError, TypeError) as error:
        raise IndexCorrupt(
            f"the owners row of ledger {ledger_id} is damaged: {error}",
            hint="pulsar-admin store index --rebuild",
            ledgerId=ledger_id,
        ) from error


@dataclass(frozen=True, slots=True)
class LedgerOwners:
    """Who references a ledger, and what its creator wrote into its custom metadata (text where it is text, else hex)."""

    ledger_id: int
    owners: tuple[Owner, ...]
    claims: Mapping[str, str]
    has_metadata: bool
    indexed_entries: int


def read_owners(txn: Txn, ledger_id: int) -> LedgerOwners:
    """Return who references LEDGER_ID and what it claims; raises LedgerNotFound when nothing here knows it.

    Three LMDB look-ups, whatever the store's size.
    """
    owners = find_owners(txn, ledger_id)
    metadata = find_metadata(txn, ledger_id)
    times = find_times(txn, ledger_id)
    if not owners and metadata is None and times is None:
        raise LedgerNotFound(
            f"ledger {ledger_id} is neither referenced, nor in the metadata, nor in any entry log",
            hint="list ledgers with: pulsar-admin ledgers list",
            ledgerId=ledger_id,
        )
    claims = {} if metadata is None else custom_text(metadata)
    return LedgerOwners(ledger_id, owners, claims, metadata is not None, times.sums.entries if times else 0)


def custom_text(metadata: LedgerMetadata) -> dict[str, str]:
    """Return a ledger's custom metadata with its values as text, those that are no text in hexadecimal."""
    return {key: _text(metadata.custom[key]) for key in sorted(metadata.custom)}


def _text(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value.hex()
    return text if text.isprintable() else value.hex()


def put_owners(txn: Txn, ledger_id: int, owners: tuple[Owner, ...]) -> None:
    """Set who references LEDGER_ID; nobody removes the row."""
    if owners:
        txn.put("owners", ledger_key(ledger_id), _encode_owners(owners))
    else:
        txn.delete("owners", ledger_key(ledger_id))


def _encode_owners(owners: Iterable[Owner]) -> bytes:
    rows = [{"kind": owner.kind, "topic": owner.topic, "cursor": owner.cursor} for owner in owners]
    return json.dumps(rows).encode()


def index_owners(store: Store, txn: Txn) -> None:
    """Write all rows of ``owners`` anew from the tree. A node that cannot be decoded references nothing."""
    found = find_references(store, txn)
    txn.clear("owners")
    txn.put_all("owners", ((ledger_key(ledger_id), _encode_owners(found[ledger_id])) for ledger_id in sorted(found)))


def find_references(store: Store, txn: Txn) -> dict[int, list[Owner]]:
    """Return ledger id → every reference to it in the tree."""
    found: dict[int, list[Owner]] = {}
    with EntryFiles(store, txn) as files:
        reader = EntryReader(files, txn)
        for node in chain(iter_nodes(txn, MANAGED_LEDGERS + "/"), iter_nodes(txn, "/schemas/")):
            for ledger_id, owner in references(txn, reader, node):
                found.setdefault(ledger_id, []).append(owner)
    return found


def references(txn: Txn, reader: EntryReader, node: Node) -> Iterator[tuple[int, Owner]]:
    """Yield (ledger id, owner) for every ledger that NODE names; nothing for a value that cannot be decoded."""
    try:
        yield from _references(txn, reader, node)
    except StoreError:
        return


def _references(txn: Txn, reader: EntryReader, node: Node) -> Iterator[tuple[int, Owner]]:
    if node.path.startswith("/schemas/"):
        topic = "persistent://" + node.path.removeprefix("/schemas/")
        for entry in decode_schema_locator(node.value, node.path).index:
            yield entry.position.ledger_id, Owner("schema", topic)
        return
    name = topic_of_path(node.path)
    if name is not None:
        owner = Owner("managed-ledger", str(name))
        for ledger in decode_managed_ledger(node.value, node.path).ledgers:
            yield ledger.ledger_id, owner
        return
    parent, _, component = node.path.rpartition("/")
    name = topic_of_path(parent)
    if name is not None:
        yield from _cursor_references(txn, reader, name, decode_name(component), node)


def _cursor_references(
    txn: Txn, reader: EntryReader, name: TopicName, cursor: str, node: Node
) -> Iterator[tuple[int, Owner]]:
    info = decode_cursor_head(node.value, node.path)
    if info.cursors_ledger_id >= 0:
        yield info.cursors_ledger_id, Owner("cursor", str(name), cursor)
    for key, value in info.cursor_properties.items():
        if key.startswith(BUCKET_PREFIX) and value.isascii() and value.isdigit() and int(value) <= LONG_MAX:
            yield int(value), Owner("delayed-bucket", str(name), cursor)
    if cursor == COMPACTION_CURSOR:
        properties = info.properties
        if info.cursors_ledger_id >= 0:
            properties = read_cursor(txn, reader, read_topic(txn, name), cursor).state.properties
        if COMPACTED_LEDGER in properties:
            yield properties[COMPACTED_LEDGER], Owner("compacted", str(name))
