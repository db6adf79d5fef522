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
    """Yield the persistent nodes of METADATA, of ZooKeeper, that are not the cluster's, with their whole paths.

    What could not be read goes into PROBLEMS before the first. Raises as the reading of METADATA.
    """
    for row in metadata.whole_nodes(problems):
        if not isinstance(row, Damage | NextLedgerId):
            node = row if isinstance(row, Node) else decode_node(*row)
            if metadata.roots.inner(node.path) is None:
                yield node


def next_number(name: str) -> int:
    """Return the number that a sequential node made behind NAME may have, 0 where NAME is not of one."""
    found = _SEQUENTIAL.fullmatch(name)
    return int(found[1]) + 1 if found else 0
