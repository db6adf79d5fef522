"""The nodes of a plain topic: of most topics of a large store they say all there is, to who looks for what is wrong and to who counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pulsar_admin.store.codec.cursor import PlainCursor, find_plain_cursor
from pulsar_admin.store.codec.managedledger import find_plain_ledgers
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import plain_value, tree_key
from pulsar_admin.store.model.cursors import COMPACTION_CURSOR

KEPT_MAX = 100_000
"""Topics whose nodes are kept: 1 KB each of 2 ledgers and 2 cursors."""
_PATH_MAX = 300
_NOT_PLAIN = frozenset(b"/%+")
"""Bytes that say that a name is encoded, or that its key is of something below."""


class PlainNodes(NamedTuple):
    """What the nodes of a topic say. ``ledgers``: (id, entries, bytes, closed at, 0: open) in order; ``cursors``: by name."""

    ledgers: Sequence[tuple[int, int, int, int]]
    cursors: Sequence[tuple[str, PlainCursor]]


class _Kept(dict[str, PlainNodes]):
    """By path, in a snapshot of which both are asked."""


def keep_plain_nodes(txn: Txn) -> None:
    """Have ``find_plain_nodes`` keep what it finds in the snapshot of TXN, for who asks of all topics again."""
    txn.memo[_Kept] = _Kept()


def find_plain_nodes(txn: Txn, path: str) -> PlainNodes | None:
    """Return what the nodes at the managed ledger PATH say; None where one has more to say, and of a topic that is compacted."""
    kept: _Kept | None = txn.memo.get(_Kept)
    if kept is not None and path in kept:
        return kept[path]
    node = None if len(path) > _PATH_MAX else txn.view("tree", tree_key(path))
    ledgers = None if node is None else find_plain_ledgers(plain_value(node))
    if not ledgers:
        return None
    cursors = []
    prefix = tree_key(f"{path}/")
    for key, row in txn.items("tree", prefix):
        component = key[len(prefix) :]
        plain = find_plain_cursor(plain_value(row))
        if plain is None or not component.isascii() or not _NOT_PLAIN.isdisjoint(component):
            return None
        cursors.append((component.decode(), plain))
        if cursors[-1][0] == COMPACTION_CURSOR:
            return None
    found = PlainNodes(ledgers, cursors)
    if kept is not None and len(kept) < KEPT_MAX:
        kept[path] = found
    return found
