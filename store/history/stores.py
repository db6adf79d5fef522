"""What is another in the metadata of two stores, whose cursors are compared where they really stand, or of two moments of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pulsar_admin.store.db.tree import find_node, iter_values
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.history.as_of import Moment, read_tree_at
from pulsar_admin.store.history.differences import (
    Changed,
    Side,
    find_changed,
    iter_differences,
    known_position,
    side_of,
    values_of,
)
from pulsar_admin.store.model.cursors import read_cursor
from pulsar_admin.store.model.nodes import cursor_of_path
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position
from pulsar_admin.store.sources.zookeeper import ServerFiles, read_tree


def compare_stores(one: EntryReader, other: EntryReader, *, passing: bool = False) -> Iterator[Changed]:
    """Yield what differs in the second store from the first, see ``find_changed``."""
    differences = iter_differences(iter_values(one.txn, "/"), iter_values(other.txn, "/"))
    return find_changed(differences, (_side_of(one), _side_of(other)), passing=passing)


def compare_moments(
    servers: Sequence[ServerFiles], since: Moment, until: Moment | None, problems: list[str], *, passing: bool = False
) -> Iterator[Changed]:
    """Yield what differs at ``until`` (None: now) from ``since`` by the servers; ``problems`` gets what their files lack."""
    first = read_tree_at(servers, since, problems)
    second = read_tree(servers, problems) if until is None else read_tree_at(servers, until, problems)
    differences = iter_differences(values_of(first), values_of(second))
    return find_changed(differences, (side_of(first), side_of(second)), passing=passing)


def _side_of(reader: EntryReader) -> Side:
    def position(path: str, value: bytes) -> Position | None:
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
