"""Values of metadata nodes that say more than this version knows: one pass over the nodes whose structure is known."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import decode_node
from pulsar_admin.store.model.unknown_values import unknown_in
from pulsar_admin.store.model.usual_nodes import iter_unusual
from pulsar_admin.store.wording import counted, listed

_ROOTS = (b"/admin/", b"/ledgers/", b"/managed-ledgers/", b"/schemas/")


class UnknownValues(Struct, frozen=True):
    """Nodes of one structure with values of a newer version: what is not known in them, how many they are, and the first one's path."""

    structure: str
    what: tuple[str, ...]
    nodes: int
    path: str

    def __str__(self) -> str:
        return f"{self.structure}: {listed(self.what, 3)} not known here, in {counted(self.nodes, 'node')}, kept as they are"


def unknown_values(txn: Txn) -> tuple[UnknownValues, ...]:
    """Return the values that say more than is known here, by structure."""
    found: dict[str, tuple[set[str], int, str]] = {}
    for path, value in _nodes(txn):
        structure, what = unknown_in(path, value)
        if what:
            names, nodes, first = found.get(structure, (set(), 0, path))
            found[structure] = names | set(what), nodes + 1, first
    return tuple(
        UnknownValues(structure, tuple(sorted(names)), nodes, first)
        for structure, (names, nodes, first) in sorted(found.items())
    )


def _nodes(txn: Txn) -> Iterator[tuple[str, bytes]]:
    for key, row in iter_unusual(txn):
        if key.startswith(_ROOTS):
            node = decode_node(key, row)
            yield node.path, node.value
