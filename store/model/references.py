"""The ledgers that the metadata references: derives the rows of ``owners`` from the managed ledgers, cursors and schemas of the tree."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

from pulsar_admin.store.codec.cursor import INTERNAL_PROPERTY_PREFIX, decode_cursor_head, decode_cursor_ledger_id
from pulsar_admin.store.codec.managedledger import decode_ledger_ids
from pulsar_admin.store.codec.packages import decode_log_segment, stream_of_path
from pulsar_admin.store.codec.schema import decode_schema_locator
from pulsar_admin.store.codec.strict_values import parse_integer
from pulsar_admin.store.db.blocks import ledger_key, ledger_of_key
from pulsar_admin.store.db.entry_files import EntryFiles
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.owners import Owner, OwnerKind, decode_owners, encode_text, join_owners, owner_part
from pulsar_admin.store.db.rows import side_by_side
from pulsar_admin.store.db.tree import Node, iter_values
from pulsar_admin.store.errors import IndexCorrupt, StoreError
from pulsar_admin.store.model.cursors import COMPACTION_CURSOR, read_cursor
from pulsar_admin.store.model.nodes import managed_node
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import COMPACTED_LEDGER, read_topic
from pulsar_admin.store.names import MANAGED_LEDGERS, PERSISTENT

BUCKET_PREFIX = INTERNAL_PROPERTY_PREFIX + "delayed.bucket_"
NAMING_PREFIXES = (MANAGED_LEDGERS + "/", "/schemas/", "/pulsar/functions/", "/pulsar/packages/")
"""How the paths of the nodes begin that name ledgers."""
_SCHEMA_PARTS = 5  # /schemas/TENANT/NAMESPACE/TOPIC
_ROWS = 1 << 16  # that are made ordinary numbers at a time
_MANY = 1 << 13
"""References that numpy sorts: it takes 70 ms to import."""
_64_BITS = 2**64 - 1


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
        self._compactions: list[tuple[str, bytes]] = []

    def see(self, path: str, value: bytes) -> None:
        """Add the ledgers that the ``value`` of the node at ``path`` names; a value that cannot be decoded names none."""
        try:
            for kind, name, cursor, ledger_ids in read_namings(path, value):
                self.add(ledger_ids, kind, name, cursor)
        except StoreError:
            return
        if path.endswith(COMPACTION_CURSOR):
            self._compactions.append((path, value))

    def see_compacted(self, store: Store, txn: Txn) -> None:
        """Add the compacted ledgers that only cursor ledgers name, after ``see`` got all nodes and when entries can be read."""
        with EntryFiles(store, txn) as files:
            reader = EntryReader(files, txn)
            for path, value in self._compactions:
                with suppress(StoreError):
                    compacted = _compacted_ledger(txn, reader, path, value)
                    if compacted is not None:
                        self.add([compacted[0]], compacted[1].kind, compacted[1].topic)

    def add(self, ledger_ids: list[int], kind: str, topic: str, cursor: str = "") -> None:
        """Add ``ledger_ids``, which ``cursor`` or ``topic`` names."""
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

    def extend(self, later: References) -> None:
        """Add the references of ``later``, whose nodes come after these."""
        topics, end = len(self._ends), len(self._names)
        kinds = [self._kind_numbers.setdefault(one, len(self._kind_numbers)) for one in later._kind_numbers]
        cursors = [self._cursor_numbers.setdefault(one, len(self._cursor_numbers)) for one in later._cursor_numbers]
        self._ledgers += later._ledgers
        self._kinds.extend(map(kinds.__getitem__, later._kinds))
        self._topics.extend(map(topics.__add__, later._topics))
        self._cursors.extend(map(cursors.__getitem__, later._cursors))
        self._names += later._names
        self._ends.extend(map(end.__add__, later._ends))
        self._last = later._last
        self._compactions += later._compactions

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of ``owners`` in the order of their keys; the references to one ledger are in the order of their addition."""
        kinds = [encode_text(kind) for kind in self._kind_numbers]
        cursors = [encode_text(cursor) for cursor in self._cursor_numbers]
        last, parts = 0, list[bytes]()
        for at in self._in_order():
            ledger_id, topic = self._ledgers[at], self._topics[at]
            if parts and ledger_id != last:
                yield ledger_key(last), join_owners(parts)
                parts = []
            last = ledger_id
            name = bytes(self._names[self._ends[topic - 1] if topic else 0 : self._ends[topic]])
            parts.append(owner_part(kinds[self._kinds[at]], name, cursors[self._cursors[at]]))
        if parts:
            yield ledger_key(last), join_owners(parts)

    def _in_order(self) -> Iterator[int]:
        """Yield the indexes of the references in the order of their ledgers' keys; those of one ledger in the order of their addition."""
        count = len(self._ledgers)
        if count < _MANY:
            yield from sorted(range(count), key=lambda at: self._ledgers[at] & _64_BITS)
            return
        import numpy as np  # 70 ms

        order = np.argsort(np.asarray(self._ledgers).view(np.uint64), kind="stable")
        for at in range(0, count, _ROWS):
            yield from order[at : at + _ROWS].tolist()


def index_owners(store: Store, txn: Txn) -> None:
    """Write all rows of ``owners`` anew from the tree. A node that cannot be decoded references nothing."""
    whole = find_references(store, txn)
    txn.clear("owners")
    txn.put_all("owners", whole.rows())


def make_owners(store: Store, found: References) -> None:
    """Write all rows of ``owners`` in a ``store`` that is not ready, in transactions of a bounded size. ``found``: all its nodes were
    added to it."""
    with store.read() as txn:
        found.see_compacted(store, txn)
    store.replace_all("owners", found.rows())


def iter_wrong_owners(txn: Txn, expected: References) -> Iterator[tuple[int, set[Owner], set[Owner]]]:
    """Yield (ledger id, expected, found) where the row of ``owners`` is not what was ``expected``; raises IndexCorrupt."""
    for key, *rows in side_by_side(expected.rows(), ((key, bytes(row)) for key, row in txn.items("owners"))):
        if rows[0] != rows[1]:
            wanted, stored = ({*decode_owners(ledger_of_key(key), row)} if row else set() for row in rows)
            # The ledger of a compacted topic is known from a cursor ledger, whose file may be gone by now.
            if {o for o in stored - wanted if o.kind is not OwnerKind.COMPACTED} or wanted - stored:
                yield ledger_of_key(key), wanted, stored


def count_wrong_owners(store: Store, txn: Txn) -> int:
    """Return how many ledgers have owners that are not what the tree says, or a row that was altered; raises IndexCorrupt where
    the tree cannot be read."""
    expected = find_references(store, txn)
    altered: list[bytes] = []
    try:
        with txn.passing_altered(altered.append):
            wrong = sum(1 for _ in iter_wrong_owners(txn, expected))
    except IndexCorrupt:
        return txn.count("owners")  # a row that cannot be decoded ends the comparison
    return max(wrong, len(altered))


def find_references(store: Store, txn: Txn) -> References:
    """Return every reference to a ledger in the tree."""
    passed: References | None = txn.memo.pop(References, None)  # of a pass over all nodes
    if passed is None:
        passed = References()
        for path, value in chain.from_iterable(iter_values(txn, prefix) for prefix in NAMING_PREFIXES):
            passed.see(path, value)
    passed.see_compacted(store, txn)
    return passed


class Naming(NamedTuple):
    """Ledgers that a node names, for the use ``kind``. ``name``: of the topic or other managed ledger; ``cursor``: "" for none."""

    kind: OwnerKind
    name: str
    cursor: str
    ledger_ids: list[int]


def read_namings(path: str, value: bytes) -> list[Naming]:
    """Return the ledgers in the ``value`` of the node at ``path``: all but the compacted ledger of a topic whose ``__compaction`` keeps
    its position in a cursor ledger. Raises what the decoders raise.

    The first branch, for topics and cursors without properties and with plain names, gives the same result as the rest at a third of
    the cost: there may be millions of them.
    """
    parts = path.split("/")
    if (
        parts[1] == "managed-ledgers"
        and 6 <= len(parts) <= 7
        and parts[4] == PERSISTENT
        and "%" not in path
        and "+" not in path
    ):
        topic = f"persistent://{parts[2]}/{parts[3]}/{parts[5]}"
        if len(parts) == 6:
            return [Naming(OwnerKind.TOPIC, topic, "", decode_ledger_ids(value, path))]
        cursor_ledger_id = decode_cursor_ledger_id(value, path)
        if cursor_ledger_id is not None:
            return [Naming(OwnerKind.CURSOR, topic, parts[6], [cursor_ledger_id])] if cursor_ledger_id >= 0 else []
    if parts[1] == "schemas":
        if not value and len(parts) < _SCHEMA_PARTS:
            return []  # ZooKeeper has a node without a value for each directory
        ids = [entry.position.ledger_id for entry in decode_schema_locator(value, path).index]
        return [Naming(OwnerKind.SCHEMA, "persistent://" + path.removeprefix("/schemas/"), "", ids)]
    if parts[1] == "pulsar":
        stream = stream_of_path(path)
        if stream is None or not value:
            return []
        return [Naming(OwnerKind.PACKAGE, stream, "", [decode_log_segment(value, path).ledger_id])]
    node = managed_node(path, value)
    if node is None:
        return []
    if node.cursor is None:
        return [Naming(OwnerKind.TOPIC, node.text, "", decode_ledger_ids(value, path))]
    namings, info = list[Naming](), decode_cursor_head(value, path)
    if info.is_in_ledger:
        namings.append(Naming(OwnerKind.CURSOR, node.text, node.cursor, [info.cursors_ledger_id]))
    for key, text in info.cursor_properties.items():
        if key.startswith(BUCKET_PREFIX) and (ledger_id := parse_integer(text)) is not None:
            namings.append(Naming(OwnerKind.BUCKET, node.text, node.cursor, [ledger_id]))
    if node.cursor == COMPACTION_CURSOR and not info.is_in_ledger and COMPACTED_LEDGER in info.properties:
        namings.append(Naming(OwnerKind.COMPACTED, node.text, "", [info.properties[COMPACTED_LEDGER]]))
    return namings


def references(txn: Txn, reader: EntryReader, node: Node) -> Iterator[tuple[int, Owner]]:
    """Yield (ledger id, owner) for every ledger that ``node`` names; nothing for a value that cannot be decoded."""
    try:
        for naming in read_namings(node.path, node.value):
            for ledger_id in naming.ledger_ids:
                yield ledger_id, Owner(naming.kind, naming.name, naming.cursor)
        compacted = _compacted_ledger(txn, reader, node.path, node.value)
        if compacted is not None:
            yield compacted
    except StoreError:
        return


def _compacted_ledger(txn: Txn, reader: EntryReader, path: str, value: bytes) -> tuple[int, Owner] | None:
    """Return the compacted ledger that only the cursor ledger of a ``__compaction`` names, None if it names none."""
    if not path.endswith(COMPACTION_CURSOR):
        return None
    node = managed_node(path, value)
    if node is None or node.ledger is None or node.cursor is None or not decode_cursor_head(value, path).is_in_ledger:
        return None
    properties = read_cursor(txn, reader, read_topic(txn, node.ledger), node.cursor).state.properties
    if COMPACTED_LEDGER not in properties:
        return None
    return properties[COMPACTED_LEDGER], Owner(OwnerKind.COMPACTED, node.text)
