"""What the metadata references: the rows of ``owners`` from the managed ledgers, cursors and schemas of the tree."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

from store.codec.cursor import decode_cursor_head, decode_cursor_ledger_id
from store.codec.given import parse_integer
from store.codec.managedledger import decode_ledger_ids
from store.codec.schema import decode_schema_locator
from store.db.blocks import ledger_key
from store.db.entry_files import EntryFiles
from store.db.environment import Store, Txn
from store.db.owners import Owner, OwnerKind, encode_text, join_owners, owner_part
from store.db.tree import Node, iter_values
from store.errors import StoreError
from store.model.cursors import COMPACTION_CURSOR, INTERNAL_PROPERTY_PREFIX, read_cursor
from store.model.reader import EntryReader
from store.model.topics import read_topic
from store.names import MANAGED_LEDGERS, TopicName, decode_name, topic_of_path

COMPACTED_LEDGER = "CompactedTopicLedger"
BUCKET_PREFIX = INTERNAL_PROPERTY_PREFIX + "delayed.bucket_"
_ROWS = 1 << 16  # that are made ordinary numbers at a time


class References:
    """Which ledgers the metadata names and who does, packed: there may be millions.

    Of each reference its ledger and the numbers of its kind, topic and cursor; of each topic its name as JSON.
    """

    def __init__(self) -> None:
        self._ledgers, self._kinds, self._topics, self._cursors = array("q"), array("b"), array("I"), array("I")
        self._names = bytearray()
        self._ends = array("Q")
        self._cursor_numbers: dict[str, int] = {"": 0}
        self._kind_numbers: dict[str, int] = {}
        self._last = ""

    def add(self, ledger_ids: list[int], kind: str, topic: str, cursor: str = "") -> None:
        """Note that CURSOR or TOPIC names each of LEDGER_IDS."""
        if not ledger_ids:
            return
        if topic != self._last or not self._ends:
            self._last = topic
            self._names += encode_text(topic)
            self._ends.append(len(self._names))
        count = len(ledger_ids)
        self._ledgers.extend(ledger_ids)
        self._kinds.extend((self._kind_numbers.setdefault(kind, len(self._kind_numbers)),) * count)
        self._topics.extend((len(self._ends) - 1,) * count)
        self._cursors.extend((self._cursor_numbers.setdefault(cursor, len(self._cursor_numbers)),) * count)

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of ``owners`` in the order of their keys; references to one ledger as they were added."""
        import numpy as np  # 70 ms; only passes over all of the metadata need it

        order = np.argsort(np.asarray(self._ledgers).view(np.uint64), kind="stable")
        kinds = [encode_text(kind) for kind in self._kind_numbers]
        cursors = [encode_text(cursor) for cursor in self._cursor_numbers]
        last, parts = 0, list[bytes]()
        for at in range(0, len(order), _ROWS):
            some = order[at : at + _ROWS]
            columns = (self._ledgers, self._kinds, self._topics, self._cursors)
            for ledger_id, kind, topic, cursor in zip(*(np.asarray(c)[some].tolist() for c in columns), strict=True):
                if parts and ledger_id != last:
                    yield ledger_key(last), join_owners(parts)
                    parts = []
                last = ledger_id
                name = bytes(self._names[self._ends[topic - 1] if topic else 0 : self._ends[topic]])
                parts.append(owner_part(kinds[kind], name, cursors[cursor]))
        if parts:
            yield ledger_key(last), join_owners(parts)


def index_owners(store: Store, txn: Txn) -> None:
    """Write all rows of ``owners`` anew from the tree. A node that cannot be decoded references nothing."""
    found = find_references(store, txn)
    txn.clear("owners")
    txn.put_all("owners", found.rows())


def make_owners(store: Store) -> None:
    """Do what ``index_owners`` does to a STORE that is not ready, in transactions of a bounded size."""
    with store.read() as txn:
        found = find_references(store, txn)
    store.replace_all("owners", found.rows())


def find_references(store: Store, txn: Txn) -> References:
    """Return every reference to a ledger in the tree."""
    found = References()
    with EntryFiles(store, txn) as files:
        reader = EntryReader(files, txn)
        for path, value in chain(iter_values(txn, MANAGED_LEDGERS + "/"), iter_values(txn, "/schemas/")):
            with suppress(StoreError):
                _add_references(found, txn, reader, path, value)
    return found


def _add_references(found: References, txn: Txn, reader: EntryReader, path: str, value: bytes) -> None:
    if not _add_usual(found, path, value):
        for ledger_id, owner in _references(txn, reader, path, value):
            found.add([ledger_id], owner.kind, owner.topic, owner.cursor)


def _add_usual(found: References, path: str, value: bytes) -> bool:
    """Add what the node at PATH names when it is a topic, or a cursor without properties, with names as they nearly always are; as
    ``_references`` would, at a third of its cost. Return whether it is one."""
    parts = path.split("/")
    if (
        parts[1] != "managed-ledgers"
        or not 6 <= len(parts) <= 7
        or parts[4] != "persistent"
        or "%" in path
        or "+" in path
    ):
        return False
    topic = f"persistent://{parts[2]}/{parts[3]}/{parts[5]}"
    if len(parts) == 6:
        found.add(decode_ledger_ids(value, path), OwnerKind.TOPIC, topic)
        return True
    if parts[6] == COMPACTION_CURSOR:
        return False
    cursor_ledger_id = decode_cursor_ledger_id(value, path)
    if cursor_ledger_id is not None and cursor_ledger_id >= 0:
        found.add([cursor_ledger_id], "cursor", topic, parts[6])
    return cursor_ledger_id is not None


def references(txn: Txn, reader: EntryReader, node: Node) -> Iterator[tuple[int, Owner]]:
    """Yield (ledger id, owner) for every ledger that NODE names; nothing for a value that cannot be decoded."""
    try:
        yield from _references(txn, reader, node.path, node.value)
    except StoreError:
        return


def _references(txn: Txn, reader: EntryReader, path: str, value: bytes) -> Iterator[tuple[int, Owner]]:
    if path.startswith("/schemas/"):
        topic = "persistent://" + path.removeprefix("/schemas/")
        for entry in decode_schema_locator(value, path).index:
            yield entry.position.ledger_id, Owner(OwnerKind.SCHEMA, topic)
        return
    name = topic_of_path(path)
    if name is not None:
        owner = Owner(OwnerKind.TOPIC, str(name))
        for ledger_id in decode_ledger_ids(value, path):
            yield ledger_id, owner
        return
    parent, _, component = path.rpartition("/")
    name = topic_of_path(parent)
    if name is not None:
        yield from _cursor_references(txn, reader, name, decode_name(component), path, value)


def _cursor_references(
    txn: Txn, reader: EntryReader, name: TopicName, cursor: str, path: str, value: bytes
) -> Iterator[tuple[int, Owner]]:
    info = decode_cursor_head(value, path)
    if info.cursors_ledger_id >= 0:
        yield info.cursors_ledger_id, Owner(OwnerKind.CURSOR, str(name), cursor)
    for key, text in info.cursor_properties.items():
        if key.startswith(BUCKET_PREFIX) and (ledger_id := parse_integer(text)) is not None:
            yield ledger_id, Owner(OwnerKind.BUCKET, str(name), cursor)
    if cursor == COMPACTION_CURSOR:
        properties = info.properties
        if info.cursors_ledger_id >= 0:
            properties = read_cursor(txn, reader, read_topic(txn, name), cursor).state.properties
        if COMPACTED_LEDGER in properties:
            yield properties[COMPACTED_LEDGER], Owner(OwnerKind.COMPACTED, str(name))
