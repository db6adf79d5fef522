"""Values of metadata nodes: usual ones; unknown parts of others; and plain topics.

Nearly all of the millions of nodes that a store may have are topics, cursors and ledgers that can be read and have nothing of a newer
version. Such a usual node is recognized at a fifth of the cost of its decoder, with which this agrees; a node in doubt is not usual. The
nodes of a plain topic have everything that rules and counts need.
"""

from __future__ import annotations

import re
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby, islice, pairwise
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct

from pulsar_admin.store.codec.cursor import PlainCursor, UsualCursor, find_plain_cursor, find_usual_cursor
from pulsar_admin.store.codec.ledgermetadata import UsualLedger, find_usual_ledger
from pulsar_admin.store.codec.managedledger import PlainLedger, UsualLedgers, find_plain_ledgers, find_usual_ledgers
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.owners import OwnerKind
from pulsar_admin.store.db.tree import decode_node, plain_value, tree_key
from pulsar_admin.store.errors import IndexCorrupt, StoreError
from pulsar_admin.store.facts.processes import MANY_NODES, Spread, others_that_pay
from pulsar_admin.store.model.coverage import find_lone_bookie, look_ahead
from pulsar_admin.store.model.cursors import COMPACTION_CURSOR
from pulsar_admin.store.model.ledgers import LoneLedgers, find_ledger_of_key, iter_ledger_ids
from pulsar_admin.store.model.nodes import unknown_in
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.references import NAMING_PREFIXES, References
from pulsar_admin.store.names import INT_MAX, LEDGERS, TopicName
from pulsar_admin.store.wording import counted, listed

_NODE = re.compile(
    rb"/(?:managed-ledgers/[\w.=:-]+/[\w.=:-]+/persistent/[A-Za-z0-9_.-]+(/[!-.0-~]+)?|ledgers/([0-9]{2})/([0-9]{4})/L([0-9]{4}))"
)
"""A topic whose name is encoded as it is, a cursor (group 1), or a ledger (groups 2 to 4)."""
_KEY_MAX_BYTES = 400
_KEPT_KEYS = 100_000
_ENCODING = frozenset("/%+")
"""Letters that say that a name is encoded, or that its key is of something below."""
_LEDGERS = f"{LEDGERS}/".encode()
_COMPACTION = b"/" + COMPACTION_CURSOR.encode()
_NAMING = tuple(prefix.encode() for prefix in NAMING_PREFIXES)


class Usual(NamedTuple):
    """A usual node. ``said``: its decoded value; ``ledger_id``: the ledger's if it is a ledger's node, otherwise -1.

    ``says_more``: the node's name or properties contain facts that ``said`` lacks.
    """

    said: UsualLedger | UsualLedgers | UsualCursor
    ledger_id: int = -1
    says_more: bool = False


def find_usual(key: bytes, row: bytes) -> Usual | None:
    """Return the node with ``key`` and ``row`` of the tree if its name is well-formed, it can be decoded, and has no unknown parts.

    A ledger's value is only parsed here: the sweep of ledgers decodes it.
    """
    match = _NODE.fullmatch(key) if len(key) <= _KEY_MAX_BYTES else None
    value = plain_value(row)
    if match is None or not value:
        return None
    if match.lastindex is None:
        ledgers = find_usual_ledgers(value)
        return None if ledgers is None else Usual(ledgers)
    if match.lastindex == 1:
        name, cursor = match[1], find_usual_cursor(value)
        if cursor is None:
            return None
        return Usual(cursor, -1, cursor.has_properties or b"%" in name or b"+" in name or name == _COMPACTION)
    ledger_id, ledger = int(b"".join(match.groups()[1:])), find_usual_ledger(value)
    return None if ledger is None or ledger_id >= INT_MAX else Usual(ledger, ledger_id)


class SeenNodes:
    """The results of a pass over the nodes of a snapshot, or a part of them, kept for later questions. ``topics``: the plain ones."""

    def __init__(self, txn: Txn) -> None:
        self._unusual, self._altered, self._ledger_ids = list[bytes](), list[bytes](), array("q")
        self._references: References | None = References()
        lone_bookie = ""
        with suppress(IndexCorrupt):  # the rules of the catalogue tell
            lone_bookie = find_lone_bookie(txn)
        self._lone = LoneLedgers(lone_bookie)
        self.topics = _PlainNodesByPath() if txn.is_snapshot and txn.count("tree") < MANY_NODES else None

    def iter_unusual(self, txn: Txn, first: bytes = b"", end: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, row) of the nodes from the key ``first`` to ``end`` (excluded, b"": to the last) that are not usual, in order."""
        with txn.noting_altered(self._altered):
            for key, row in txn.items("tree", start=first or None):
                if end and key >= end:
                    return
                usual = find_usual(key, row)
                if usual is not None and isinstance(usual.said, UsualLedger):
                    self._ledger_ids.append(usual.ledger_id)
                    if usual.said.lone is not None:
                        self._lone.add(usual.ledger_id, usual.said.lone)
                    continue
                if self._references is not None and not _note(self._references, key, row, usual):
                    self._references = None
                if self.topics is not None and key.startswith(TOPICS.first):
                    self.topics.add(key.decode(errors="replace"), usual)
                if usual is None:
                    try:
                        ledger_id = find_ledger_of_key(txn, key) if key.startswith(_LEDGERS) else None
                    except IndexCorrupt:
                        self._altered.append(key)  # who lists ledgers is told
                    else:
                        self._ledger_ids.extend(() if ledger_id is None else (ledger_id,))
                    if len(self._unusual) <= _KEPT_KEYS:
                        self._unusual.append(key)
                    yield key, row

    def add(self, later: SeenNodes) -> None:
        """Add what was seen of the nodes after these."""
        if len(self._unusual) <= _KEPT_KEYS:
            self._unusual += later._unusual
        self._altered += later._altered
        self._ledger_ids += later._ledger_ids
        self._lone.extend(later._lone)
        if self._references is None or later._references is None:
            self._references = None
        else:
            self._references.extend(later._references)

    @property
    def is_whole(self) -> bool:
        """Whether none of the rows of the pass is altered."""
        return not self._altered

    def keep(self, txn: Txn) -> None:
        """Keep the unusual nodes in a snapshot if they are few, and, if no row is altered, all other results of the pass."""
        if len(self._unusual) <= _KEPT_KEYS:
            txn.memo[iter_unusual] = self._unusual
        if not self.is_whole:
            return
        txn.memo[LoneLedgers] = self._lone
        txn.memo[iter_ledger_ids] = self._ledger_ids
        if self._references is not None:
            txn.memo[References] = self._references
        self.keep_topics(txn)

    def keep_topics(self, txn: Txn) -> None:
        """Keep the plain topics in a snapshot, if they were noted."""
        if self.topics is not None:
            txn.memo[_PlainNodesByPath] = self.topics


def iter_unusual(txn: Txn) -> Iterator[tuple[bytes, bytes]]:
    """Yield (key, row) of the nodes of the tree that are not usual, in order.

    A snapshot remembers these nodes if they are few. From the same pass it remembers the ledgers that nodes reference (for
    ``find_references``), the existing ledgers with their metadata (for ``store.model.coverage.read_shortfalls``), and plain topics, unless
    other processes look at those.
    """
    kept: list[bytes] | None = txn.memo.get(iter_unusual)
    if kept is not None:
        for key in kept:
            row = txn.get("tree", key)
            if row is not None:
                yield key, row
        return
    seen = SeenNodes(txn)
    yield from seen.iter_unusual(txn)
    if txn.is_snapshot:
        seen.keep(txn)


class NodesPart(Struct, frozen=True):
    """The nodes from the key ``first`` to ``end``, excluded; b"": from the first one, to the last one."""

    first: bytes
    end: bytes


TOPICS = NodesPart(b"/managed-ledgers/", b"/managed-ledgers0")
"""The nodes of topics and cursors."""


def look_at_nodes(reader: EntryReader, processes: int, topics: Callable[[], SeenNodes] | None = None) -> None:
    """Have the snapshot of ``reader`` keep what ``iter_unusual`` keeps; ``processes`` may be used for many nodes (0: one per core).

    ``topics``: returns the values of ``TOPICS`` that another process collects meanwhile.
    """
    txn = reader.txn
    others = 0 if topics else others_that_pay(txn, processes)
    if not topics and not others:
        deque(iter_unusual(txn), 0)
        return
    seen = SeenNodes(txn)
    if topics:
        seen.add(see_nodes(reader, NodesPart(b"", TOPICS.first)))
        seen.add(topics())
        seen.add(see_nodes(reader, NodesPart(TOPICS.end, b"")))
    else:
        with Spread(reader, see_nodes, parts_of_nodes(txn), others) as parts:
            for part in parts:
                seen.add(part)
    if seen.is_whole:  # beside an altered page above them, a search for the first node of a part may miss some: who asks passes over all
        seen.keep(txn)


def parts_of_nodes(txn: Txn, nodes: int = 50_000) -> list[NodesPart]:
    """Return all nodes in parts of ``nodes``, which take about half a second each."""
    return [NodesPart(first, end) for first, end in pairwise([b"", *sorted(txn.every("tree", nodes)), b""])]


def see_nodes(reader: EntryReader, part: NodesPart) -> SeenNodes:
    """Return the results of a pass over the nodes in ``part``; for ``TOPICS``, the snapshot of ``reader`` keeps the plain topics."""
    seen = SeenNodes(reader.txn)
    with reader.txn.passing_altered():  # the rules tell of them
        deque(seen.iter_unusual(reader.txn, part.first, part.end), 0)
    if part == TOPICS and seen.is_whole:
        seen.keep_topics(reader.txn)
    seen.topics = None
    return seen


def _note(references: References, key: bytes, row: bytes, usual: Usual | None) -> bool:
    """Add the ledgers that a node names to ``references``; return False if its row cannot be read."""
    if usual is None or usual.says_more:
        if not key.startswith(_NAMING):
            return True
        try:
            node = decode_node(key, row)
        except IndexCorrupt:
            return False
        references.see(node.path, node.value)
    elif isinstance(usual.said, UsualLedgers):
        references.add(usual.said.ledger_ids, OwnerKind.TOPIC, _topic_text(key))
    elif isinstance(usual.said, UsualCursor) and usual.said.ledger_id >= 0:
        topic, _, cursor = key.rpartition(b"/")
        references.add([usual.said.ledger_id], OwnerKind.CURSOR, _topic_text(topic), cursor.decode())
    return True


def _topic_text(path: bytes) -> str:
    """Return the name of the topic with a managed ledger at ``path``, which is not encoded."""
    return "persistent://" + path[len(TOPICS.first) :].decode().replace("/persistent/", "/", 1)


# -- plain topics -----------------------------------------------------------------------------------------------------


_PATH_MAX = 300
_AHEAD, _AHEAD_BYTES, _AHEAD_LEDGERS = 256, 1 << 20, 4096
"""How many topics are read together at most, bytes of their nodes, and ledgers that are looked at."""
_TOPIC_PARTS = 6
"""Of a topic's path: ``/managed-ledgers/TENANT/NAMESPACE/persistent/TOPIC``, cut at slashes."""


class PlainNodes(NamedTuple):
    """The nodes of a plain topic. ``ledgers``: (id, entries, bytes, time of closing or 0 if open) in order; ``cursors``: by name."""

    ledgers: Sequence[PlainLedger]
    cursors: list[tuple[str, PlainCursor]]


class _PlainNodesByPath(dict[str, PlainNodes]):
    """Plain topics by path, kept in a snapshot for several passes: 1 KB for 2 ledgers and 2 cursors. Topics come before their cursors."""

    def add(self, path: str, usual: Usual | None) -> None:
        """Add a node of ``TOPICS``, a topic's or a cursor's; ``usual`` is None for a node that is not usual."""
        parts, said = path.split("/", _TOPIC_PARTS), None if usual is None else usual.said
        if len(parts) < _TOPIC_PARTS + 1:
            self.add_topic(path, said.plain if isinstance(said, UsualLedgers) else None)
        else:
            cursor = said.plain if isinstance(said, UsualCursor) else None
            self.add_cursor("/".join(parts[:_TOPIC_PARTS]), parts[_TOPIC_PARTS], cursor)

    def add_topic(self, path: str, ledgers: Sequence[PlainLedger] | None) -> None:
        """Add the topic with the managed ledger at ``path``, yet without cursors; nothing if ``ledgers`` is None (not plain) or empty."""
        if ledgers and len(path) <= _PATH_MAX:
            self[path] = PlainNodes(ledgers, [])

    def add_cursor(self, topic_path: str, component: str, cursor: PlainCursor | None) -> None:
        """Add a cursor by the last part of its path; remove its topic if the cursor is None, compaction's, or has an encoded name."""
        topic = self.get(topic_path)
        if topic is None:
            return
        if (
            cursor is not None
            and component.isascii()
            and _ENCODING.isdisjoint(component)
            and component != COMPACTION_CURSOR
        ):
            topic.cursors.append((component, cursor))
        else:
            del self[topic_path]


def find_plain_nodes(txn: Txn, path: str) -> PlainNodes | None:
    """Return the nodes at the managed ledger ``path`` if the topic is plain; None if a node has other facts, or if it is compacted."""
    for read in (_PlainNodesByPath, read_ahead):
        kept: dict[str, PlainNodes] | None = txn.memo.get(read)
        if kept is not None and path in kept:
            return kept[path]
    last: tuple[str, PlainNodes | None] = txn.memo.get(find_plain_nodes, ("", None))
    if last[0] != path:  # who looks for something to say and who counts ask for one topic in turn
        last = path, _read_plain_nodes(txn, path)
        if txn.is_snapshot:
            txn.memo[find_plain_nodes] = last
    return last[1]


def _read_plain_nodes(txn: Txn, path: str) -> PlainNodes | None:
    found = _PlainNodesByPath()
    node = None if len(path) > _PATH_MAX else txn.view("tree", tree_key(path))
    found.add_topic(path, None if node is None else find_plain_ledgers(plain_value(node)))
    prefix = tree_key(f"{path}/")
    for key, row in txn.items("tree", prefix) if found else ():
        found.add_cursor(path, key[len(prefix) :].decode(errors="replace"), find_plain_cursor(plain_value(row)))
        if not found:
            break
    return found.get(path)


def read_ahead(txn: Txn, names: Iterator[TopicName]) -> Iterator[TopicName]:
    """Yield ``names``, which are in the order of ``iter_topics``, and read the nodes of the next topics together, which costs less."""
    while some := [*islice(names, _AHEAD)]:
        kept: _PlainNodesByPath | None = txn.memo.get(_PlainNodesByPath)
        ahead = dict[str, PlainNodes]()
        with suppress(StoreError):  # who asks for the topic meets it
            if kept is not None:
                ahead = {path: kept[path] for name in some if (path := name.path) in kept}
            for _, each in groupby(some if kept is None else (), key=attrgetter("namespace")):
                of_namespace = [*each]
                ahead |= _read_plain_nodes_between(txn, of_namespace[0].path, of_namespace[-1].path)
            ledger_ids = (one[0] for nodes in ahead.values() for one in nodes.ledgers)
            look_ahead(txn, islice(ledger_ids, _AHEAD_LEDGERS))
        txn.memo[read_ahead] = ahead
        yield from some


def _read_plain_nodes_between(txn: Txn, first: str, last: str) -> dict[str, PlainNodes]:
    """Return the nodes of plain topics by path, from the path ``first`` to before ``last`` in one namespace; some may be left out."""
    root, found, left_bytes = first.rpartition("/")[0] + "/", _PlainNodesByPath(), _AHEAD_BYTES
    size, end = len(root), tree_key(last)
    for key, row in txn.items("tree", tree_key(root), tree_key(first)):
        path = key.decode(errors="replace")
        left_bytes -= len(row)
        if key >= end or left_bytes < 0:
            for place in range(size, len(path)):  # cursors of these come later: "x-1" is before "x/cursor"
                found.pop(path[:place], None)
            break
        topic, slash, cursor = path[size:].partition("/")
        if not slash:
            found.add_topic(path, find_plain_ledgers(plain_value(row)))
        elif root + topic in found:
            found.add_cursor(root + topic, cursor, find_plain_cursor(plain_value(row)))
    return found


# -- unknown values ---------------------------------------------------------------------------------------------------


_ROOTS = (b"/admin/", b"/ledgers/", b"/managed-ledgers/", b"/pulsar/", b"/schemas/", b"/topics/")


class UnknownValues(Struct, frozen=True):
    """Nodes of one structure with values of a newer version: the unknown parts, the number of nodes, and the first one's path."""

    structure: str
    what: tuple[str, ...]
    nodes: int
    path: str

    def __str__(self) -> str:
        return f"{self.structure}: {listed(self.what, 3)} not known here, in {counted(self.nodes, 'node')}, kept as they are"


def unknown_values(txn: Txn) -> tuple[UnknownValues, ...]:
    """Return the values with unknown parts, by structure."""
    unknown: dict[str, tuple[set[str], int, str]] = {}
    for key, row in iter_unusual(txn):
        if not key.startswith(_ROOTS):
            continue
        try:
            node = decode_node(key, row)
        except IndexCorrupt:
            continue  # the sweep over nodes tells
        structure, what = unknown_in(node.path, node.value)
        if what:
            names, nodes, first = unknown.get(structure, (set(), 0, node.path))
            unknown[structure] = names | set(what), nodes + 1, first
    return tuple(
        UnknownValues(structure, tuple(sorted(names)), nodes, first)
        for structure, (names, nodes, first) in sorted(unknown.items())
    )
