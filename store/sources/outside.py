"""What else is in a ZooKeeper beside the cluster of a store: an export of the whole tree has to bring it, or others lose it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pulsar_admin.store.db.files import Damage
from pulsar_admin.store.db.next_ledger_id import NextLedgerId
from pulsar_admin.store.db.tree import Node, decode_node
from pulsar_admin.store.sources.nodes import Source

_SEQUENTIAL = re.compile(r".*?(\d{10})", re.DOTALL)


def iter_outside(metadata: Source, problems: list[str]) -> Iterator[Node]:
    """Yield the persistent nodes of a ZooKeeper that do not belong to the cluster, with their whole paths.

    Unreadable parts are added to ``problems`` before the first node. Raises as reading the metadata.
    """
    for row in metadata.whole_nodes(problems):
        if not isinstance(row, Damage | NextLedgerId):
            node = row if isinstance(row, Node) else decode_node(*row)
            if metadata.roots.inner(node.path) is None:
                yield node


def next_number(name: str) -> int:
    """Return the next number of a sequential node with this name's prefix, 0 if the name has no number."""
    found = _SEQUENTIAL.fullmatch(name)
    return int(found[1]) + 1 if found else 0
