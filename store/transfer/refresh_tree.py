"""What the metadata of a source changes in a store's tree, compared node by node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from msgspec import Struct, field

from pulsar_admin.store.db.backups import keep_hint
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.export_intent import find_exported_zxid, intended_rows
from pulsar_admin.store.db.files import METADATA_FILE_ID, WHOLE_METADATA, Damage, clear_damage, iter_damage, put_damage
from pulsar_admin.store.db.next_ledger_id import put_next_ledger_id
from pulsar_admin.store.db.rows import altered_row
from pulsar_admin.store.db.tree import Node, Row, decode_node
from pulsar_admin.store.errors import IndexCorrupt, Refused
from pulsar_admin.store.sources.layout import Layout
from pulsar_admin.store.sources.nodes import MetadataDirectory, Source, iter_source_rows
from pulsar_admin.store.sources.zookeeper import is_zookeeper, newest_zxid

_Rows = Mapping[bytes, bytes | None]


class NewTree(Struct):
    """What the source's metadata changes. ``rows``: key → row, None: no more there; ``damage``: its nodes' damage, None: all of it is as
    it was; ``next_ledger_id``: which it gives next, None: not known; ``unknown``: what became wrong with it as a whole since it was read
    last. ``conflicts``, ``stopped_export``: paths, as of ``RefreshResult``."""

    rows: dict[bytes, bytes | None] = field(default_factory=dict)
    damage: tuple[Damage, ...] | None = None
    next_ledger_id: int | None = None
    unknown: tuple[str, ...] = ()
    added: int = 0
    updated: int = 0
    removed: int = 0
    undecodable_values: int = 0
    conflicts: list[str] = field(default_factory=list)
    stopped_export: list[str] = field(default_factory=list)

    def nodes(self, prefix: str) -> Iterator[Node]:
        """Yield the nodes that are new or changed and whose path begins with PREFIX."""
        nodes = (decode_node(key, row) for key, row in self.rows.items() if row is not None)
        return (node for node in nodes if node.path.startswith(prefix))


def read_tree(txn: Txn, layout: Layout) -> NewTree:
    """Compare the nodes of the source with the store's.

    Where anything became wrong with the source's metadata as a whole no node is taken: of a tree that lost changes nobody knows
    which nodes are new and which were deleted.
    """
    known = {damage.reason for damage in iter_damage(txn, METADATA_FILE_ID)}
    if layout.metadata is None:
        return NewTree()
    _check_not_older(txn, layout.metadata)
    next_ids: list[int] = []
    whole, items = _split_damage(iter_source_rows(layout.metadata, next_ids.append))
    unknown = tuple(one.reason for one in whole if one.reason not in known and not one.costs_nothing)
    if unknown:
        return NewTree(unknown=unknown, undecodable_values=len(unknown))
    ours = intended_rows(txn)
    tree = NewTree()
    damages: list[Damage] = []
    seen: set[bytes] = set()
    for item in chain(whole, items):
        if isinstance(item, Damage):
            damages.append(item)
        else:
            seen.add(_compare_node(txn, item, ours, tree))
    late = tuple(one.reason for one in damages if one.offset >= WHOLE_METADATA and not one.costs_nothing)
    if unknown := tuple(reason for reason in late if reason not in known):
        return NewTree(unknown=unknown, undecodable_values=len(unknown))
    tree.damage = tuple(damages)
    tree.undecodable_values = sum(not damage.costs_nothing for damage in damages)
    tree.next_ledger_id = next_ids[-1] if next_ids else None
    for key, _ in txn.items("tree"):
        if key not in seen:
            _compare_gone(txn, key, ours, tree)
    return tree


def read_altered(txn: Txn, layout: Layout) -> dict[bytes, bytes | None]:
    """Return what the altered rows of ``tree`` are in the source: key → row, None: an altered key, which no node has.

    Raises IndexCorrupt where one of them may be a node that the store changed, or one that the source does not tell: it is not
    known what such a node was.
    """
    altered: list[bytes] = []
    with txn.passing_altered(altered.append):
        here = {key for key, _ in txn.items("tree")}
    if not altered:
        return {}
    if layout.metadata is None:
        raise _not_there(txn, altered[0], "no metadata was imported")
    _check_not_older(txn, layout.metadata)
    changed = {key for key, _ in txn.items("base")}
    rows: dict[bytes, bytes | None] = dict.fromkeys(altered)
    is_whole = True
    for item in iter_source_rows(layout.metadata):
        if isinstance(item, Damage):
            is_whole &= item.costs_nothing
        elif item[0] not in here and item[0] not in changed:
            rows[item[0]] = item[1]
    for key in altered:
        # A key that no node of the source has may be that of a node which the store changed or made, altered.
        if key in changed or (rows[key] is None and not changed <= here):
            raise _not_there(txn, key, "it may be a node that was changed in this store")
        if rows[key] is None and not is_whole:
            raise _not_there(txn, key, f"{layout.metadata.name} is damaged")
    return rows


def _not_there(txn: Txn, key: bytes, why: str) -> IndexCorrupt:
    error = altered_row(txn.store.path, "tree", key)
    return IndexCorrupt(
        f"{error.message}, and the source does not tell what it was: {why}",
        hint=keep_hint(txn.store.path),
        **error.context,
    )


def _check_not_older(txn: Txn, metadata: Source) -> None:
    """Raise Refused for the files of a ZooKeeper that end before what the store exported into the live ensemble."""
    exported = find_exported_zxid(txn)
    if exported and isinstance(metadata, MetadataDirectory) and is_zookeeper(metadata.path):
        found = max(map(newest_zxid, metadata.directories))
        if found < exported:
            raise Refused(
                f"{metadata.name} ends with transaction {found:#x}; this store has exported {exported:#x} since: to take over what is there"
                " would take that back",
                hint="copy the ensemble's version-2 again",
            )


def put_tree_facts(txn: Txn, tree: NewTree) -> None:
    """Write what is wrong with the source's metadata, and the ledger id that it gives next, unless all of it is as it was."""
    if tree.damage is not None:
        put_next_ledger_id(txn, tree.next_ledger_id)
        clear_damage(txn, METADATA_FILE_ID)
        for damage in tree.damage:
            put_damage(txn, damage)


def _split_damage(items: Iterator[Row | Damage]) -> tuple[list[Damage], Iterator[Row | Damage]]:
    """Return the damage of files as a whole, which comes first, and the rest of ITEMS."""
    whole: list[Damage] = []
    for item in items:
        if not isinstance(item, Damage) or item.offset < WHOLE_METADATA:
            return whole, chain((item,), items)
        whole.append(item)
    return whole, iter(())


def _compare_node(txn: Txn, item: Row, ours: _Rows, tree: NewTree) -> bytes:
    """Add a node of the source to TREE unless the store has or changed it, or itself wrote it there (OURS); return its key."""
    key, row = item
    now, base = txn.get("tree", key), txn.get("base", key)
    imported = now if base is None else (base or None)
    if row == imported:
        return key
    if _is_written(key, row, ours.get(key)):
        tree.stopped_export.append(decode_node(key, row).path)
        return key
    if base is not None and not _same_value(key, now, base):
        tree.conflicts.append(decode_node(key, row).path)
        return key
    tree.rows[key] = row
    if now is None:
        tree.added += 1
    else:
        tree.updated += 1
    return key


def _is_written(key: bytes, row: bytes, ours: bytes | None) -> bool:
    """Whether ROW is what OURS was to become: value and version; a ZooKeeper gives a node times of its own."""
    if ours is None:
        return False
    there, wanted = decode_node(key, row), decode_node(key, ours)
    return (there.stat.version, there.value) == (wanted.stat.version, wanted.value)


def _compare_gone(txn: Txn, key: bytes, ours: _Rows, tree: NewTree) -> None:
    """Add a node that the source has no more to TREE, unless the store made or changed it, or itself deleted it there (OURS)."""
    now, base = txn.get("tree", key), txn.get("base", key)
    if base and key in ours and ours[key] is None:
        tree.stopped_export.append(key.decode("utf-8", "replace"))
        return
    if base is not None and not _same_value(key, now, base):
        if base:
            tree.conflicts.append(key.decode("utf-8", "replace"))
        return
    tree.rows[key] = None
    tree.removed += 1


def _same_value(key: bytes, now: bytes | None, base: bytes) -> bool:
    """Whether the store's node has the value of the source's (an empty BASE: it has none there)."""
    if not now or not base:
        return not now and not base
    return decode_node(key, now).value == decode_node(key, base).value
