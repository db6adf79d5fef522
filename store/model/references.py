"""What the metadata references: the rows of ``owners`` from the managed ledgers, cursors and schemas of the tree."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from store.codec.cursor import decode_cursor_head
from store.codec.given import parse_integer
from store.codec.managedledger import decode_managed_ledger
from store.codec.schema import decode_schema_locator
from store.db.blocks import ledger_key
from store.db.entry_files import EntryFiles
from store.db.environment import Store, Txn
from store.db.owners import Owner, encode_owners
from store.db.tree import Node, iter_nodes
from store.errors import StoreError
from store.model.cursors import COMPACTION_CURSOR, INTERNAL_PROPERTY_PREFIX, read_cursor
from store.model.ledgers import EntryReader
from store.model.topics import read_topic
from store.names import MANAGED_LEDGERS, TopicName, decode_name, topic_of_path

COMPACTED_LEDGER = "CompactedTopicLedger"
BUCKET_PREFIX = INTERNAL_PROPERTY_PREFIX + "delayed.bucket_"


def index_owners(store: Store, txn: Txn) -> None:
    """Write all rows of ``owners`` anew from the tree. A node that cannot be decoded references nothing."""
    found = find_references(store, txn)
    txn.clear("owners")
    txn.put_all("owners", ((ledger_key(ledger_id), encode_owners(found[ledger_id])) for ledger_id in sorted(found)))


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
        if key.startswith(BUCKET_PREFIX) and (ledger_id := parse_integer(value)) is not None:
            yield ledger_id, Owner("delayed-bucket", str(name), cursor)
    if cursor == COMPACTION_CURSOR:
        properties = info.properties
        if info.cursors_ledger_id >= 0:
            properties = read_cursor(txn, reader, read_topic(txn, name), cursor).state.properties
        if COMPACTED_LEDGER in properties:
            yield properties[COMPACTED_LEDGER], Owner("compacted", str(name))
