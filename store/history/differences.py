"""Differences between two metadata trees, grouped by topic, namespace and tenant, for all other nodes by path.

Between two stores, cursors are compared by their actual positions, which may be in cursor ledgers; between two moments,
only by the positions in the metadata.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from pulsar_admin.store import names
from pulsar_admin.store.codec.cursor import decode_cursor_head
from pulsar_admin.store.codec.ledgermetadata import ledger_id_of_path
from pulsar_admin.store.codec.managedledger import LedgerInfo, decode_managed_ledger
from pulsar_admin.store.db.tree import find_node, iter_values, tree_key
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.history.as_of import Moment, read_tree_at
from pulsar_admin.store.history.events import is_passing, iter_claims
from pulsar_admin.store.history.words import describe, entries_between, subject_of
from pulsar_admin.store.model.cursors import read_cursor
from pulsar_admin.store.model.nodes import cursor_of_path
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.sources.zookeeper import ServerFiles, Tree, read_tree
from pulsar_admin.store.wording import Answer, counted, one_line

PositionOf = Callable[[str, bytes], names.Position | None]
"""Path and value of a cursor's node → its mark-delete position; None: unknown."""


class Side(NamedTuple):
    """One of two compared trees: ``value`` returns a node's value by path, ``position`` a cursor's mark-delete position
    by path and value of its node."""

    value: Callable[[str], bytes | None]
    position: PositionOf


class Difference(NamedTuple):
    """The values of the node at ``path`` in two trees; None: it does not exist there."""

    path: str
    before: bytes | None
    after: bytes | None

    def __repr__(self) -> str:
        return one_line(self)

    @property
    def change(self) -> str:
        """``created``, ``deleted`` or ``changed``."""
        return "created" if self.before is None else "deleted" if self.after is None else "changed"


class Changed(Answer, frozen=True):
    """A topic, namespace, tenant or path (``kind``, ``name``) that differs between two trees.

    ``change``: created, deleted or changed; ``what``: the differences in words; ``subscriptions``: name → its
    differences in words; ``nodes``: the nodes that differ.
    """

    kind: str
    name: str
    change: str
    what: tuple[str, ...]
    subscriptions: dict[str, str]
    nodes: tuple[Difference, ...]


Values = Iterable[tuple[str, bytes]]
"""Paths and values of a tree's nodes, in the order of the store's keys."""


def values_of(tree: Tree) -> Iterator[tuple[str, bytes]]:
    """Yield (path, value) of a tree's persistent nodes, in the order of the store's keys."""
    paths = (path for path, node in tree.nodes.items() if not node.ephemeral)
    return ((path, tree.nodes[path].data) for path in sorted(paths, key=tree_key))


def side_of(tree: Tree) -> Side:
    """Return a tree as a side of a comparison; only positions that are in the metadata itself are known."""

    def value(path: str) -> bytes | None:
        node = tree.nodes.get(path)
        return None if node is None else node.data

    return Side(value, known_position)


def known_position(path: str, value: bytes) -> names.Position | None:
    """Return the mark-delete position in the value of a cursor's node; None if it is elsewhere or the value is
    undecodable."""
    try:
        head = decode_cursor_head(value, path)
    except StoreError:
        return None
    return None if head.is_in_ledger else head.mark_delete


def iter_differences(before: Values, after: Values) -> Iterator[Difference]:
    """Yield, in path order, nodes whose values differ, and cursors with equal values, as their positions may differ."""
    left, right = iter(before), iter(after)
    one, other = next(left, None), next(right, None)
    while one is not None or other is not None:
        first = one is not None and (other is None or tree_key(one[0]) <= tree_key(other[0]))
        second = other is not None and (one is None or tree_key(other[0]) <= tree_key(one[0]))
        difference = Difference(
            one[0] if first and one else other[0] if other else "",
            one[1] if first and one else None,
            other[1] if second and other else None,
        )
        if difference.before != difference.after or cursor_of_path(difference.path) is not None:
            yield difference
        one, other = next(left, None) if first else one, next(right, None) if second else other


def find_changed(differences: Iterable[Difference], sides: tuple[Side, Side], *, passing: bool) -> Iterator[Changed]:
    """Yield the differences between two trees, grouped by the tenant, namespace, topic or path they belong to; memory
    holds all nodes that differ.

    ``passing``: also nodes with short-lived values: load reports, bundle ownership, id counters.
    """
    groups: dict[tuple[int, str, str], list[Difference]] = {}
    for difference in differences:
        if not passing and (is_passing(difference.path) or _is_between(difference)):
            continue
        if difference.before == difference.after and _move(difference, sides) is None:
            continue
        groups.setdefault(_belongs_to(difference), []).append(difference)
    for (_, kind, name), nodes in sorted(groups.items(), key=lambda item: item[0]):
        yield _changed(kind, name, nodes, sides)


def _is_between(difference: Difference) -> bool:
    """Whether a node is empty in both trees and not a topic: ZooKeeper needs it as a parent of others."""
    return not difference.before and not difference.after and names.topic_of_path(difference.path) is None


def _move(difference: Difference, sides: tuple[Side, Side]) -> tuple[names.Position, names.Position] | None:
    """Return the mark-delete positions of a cursor that moved between the trees; None if one is unknown."""
    if difference.before is None or difference.after is None:
        return None
    was = sides[0].position(difference.path, difference.before)
    now = sides[1].position(difference.path, difference.after)
    return None if was is None or now is None or was == now else (was, now)


def _belongs_to(difference: Difference) -> tuple[int, str, str]:
    path = difference.path
    topic, cursor = names.topic_of_path(path), cursor_of_path(path)
    if topic is None and cursor is not None:
        topic = cursor[0]
    if topic is None and ledger_id_of_path(path) is not None:
        claims = (
            names.topic_of_path(f"{names.MANAGED_LEDGERS}/{name}")
            for name in iter_claims(path, difference.after or difference.before)
        )
        topic = next((claim for claim in claims if claim is not None), None)
    if topic is not None:
        return 2, "topic", str(topic)
    kind, _, name = subject_of(path).partition(" ")
    if kind in ("tenant", "namespace"):
        return ("tenant", "namespace").index(kind), kind, name
    if subject_of(path).startswith(("schema of ", "partitioned topic ")):
        parts = path.split("/")
        tenant, namespace = parts[2:4] if parts[1] == "schemas" else parts[3:5]
        return 2, "topic", str(names.TopicName(names.NamespaceName(tenant, namespace), names.decode_name(parts[-1])))
    if subject_of(path).startswith("bundles of "):
        return 1, "namespace", subject_of(path).removeprefix("bundles of ")
    return 3, "path", path


def _changed(kind: str, name: str, nodes: list[Difference], sides: tuple[Side, Side]) -> Changed:
    path = names.parse_topic(name).path if kind == "topic" else ""
    main = [one for one in nodes if ledger_id_of_path(one.path) is None and cursor_of_path(one.path) is None]
    own = next((node for node in nodes if node.path == path), None)
    # The ledgers in either of the topic's two lists: of one in both, the later entry, unless it has no count yet.
    known: dict[int, LedgerInfo] = {}
    for side in sides if path else ():
        try:
            listed = decode_managed_ledger(side.value(path) or b"", path).ledgers
        except StoreError:
            continue
        known |= {one.ledger_id: one for one in listed if one.entries or one.ledger_id not in known}
    ledgers = [known[ledger_id] for ledger_id in sorted(known)]
    cursors = {node: cursor_of_path(node.path) for node in nodes}
    subscriptions = {
        cursor[1]: _cursor_words(node, ledgers, sides) for node, cursor in cursors.items() if cursor is not None
    }
    decisive = own if own is not None else main[0] if len(main) == 1 and kind != "topic" else None
    change = decisive.change if decisive is not None else "changed"
    words = [_words(node, kind) for node in main]
    parts = [node for node in nodes if ledger_id_of_path(node.path) is not None]
    return Changed(kind, name, change, (*filter(None, words), *_part_words(parts)), subscriptions, tuple(nodes))


def _words(difference: Difference, kind: str) -> str:
    """Return how a node that is neither a ledger nor a cursor differs; "" for an empty parent node of a known kind."""
    if _is_between(difference):
        return "" if kind != "path" else difference.change
    subject = subject_of(difference.path)
    noun = "schema: " if subject.startswith("schema") else "partitions: " if subject.startswith("partitioned") else ""
    noun = "bundles: " if subject.startswith("bundles") else noun
    return noun + describe(difference.path, difference.before, difference.after)


def _part_words(parts: list[Difference]) -> Iterator[str]:
    """Yield how many BookKeeper ledgers of a topic and its cursors were created, changed and deleted, with ids."""
    for change in ("created", "changed", "deleted"):
        ids = sorted(ledger_id_of_path(one.path) or 0 for one in parts if one.change == change)
        if ids:
            shown = ", ".join(map(str, ids)) if len(ids) <= 6 else f"{ids[0]} to {ids[-1]}"
            yield f"{counted(len(ids), 'ledger')} {change} in BookKeeper: {shown}"


def _cursor_words(difference: Difference, ledgers: list[LedgerInfo], sides: tuple[Side, Side]) -> str:
    move = _move(difference, sides)
    if move is None:
        return describe(difference.path, difference.before, difference.after)
    was, now = move
    known = was.ledger_id == now.ledger_id or {was.ledger_id, now.ledger_id} <= {one.ledger_id for one in ledgers}
    passed = entries_between(ledgers, was, now)
    moved = f"mark-delete {was} → {now}"
    direction = " on" if passed > 0 else " back" if passed else ""
    return f"{moved}, {counted(abs(passed), 'entry')}{direction}" if known else moved


# -- two stores, two moments -------------------------------------------------------------------------------------------


def compare_stores(one: EntryReader, other: EntryReader, *, passing: bool) -> Iterator[Changed]:
    """Yield the differences of the store ``other`` from the store ``one``; see ``find_changed``."""
    differences = iter_differences(iter_values(one.txn, "/"), iter_values(other.txn, "/"))
    return find_changed(differences, (_side_of(one), _side_of(other)), passing=passing)


def compare_moments(
    servers: Sequence[ServerFiles], since: Moment, until: Moment | None, problems: list[str], *, passing: bool
) -> Iterator[Changed]:
    """Yield the differences between two moments (``until`` None: the newest state), from the files of servers of one
    ensemble.

    ``problems`` gets sentences about missing and unreadable parts of the files.
    """
    first = read_tree_at(servers, since, problems)
    second = read_tree(servers, problems) if until is None else read_tree_at(servers, until, problems)
    differences = iter_differences(values_of(first), values_of(second))
    return find_changed(differences, (side_of(first), side_of(second)), passing=passing)


def _side_of(reader: EntryReader) -> Side:
    def position(path: str, value: bytes) -> names.Position | None:
        named = cursor_of_path(path)
        try:
            assert named is not None
            return read_cursor(reader.txn, reader, read_topic(reader.txn, named[0]), named[1]).mark_delete
        except StoreError:
            return known_position(path, value)

    def value_at(path: str) -> bytes | None:
        node = find_node(reader.txn, path)
        return None if node is None else node.value

    return Side(value_at, position)
