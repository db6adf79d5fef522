"""Facts of the cluster as a whole."""

from __future__ import annotations

from functools import cached_property

from store.db.environment import Store
from store.db.tree import iter_children, iter_paths, tree_key
from store.frozen import frozen
from store.model.reader import EntryReader

KNOWN_TREES = frozenset(
    [
        "admin",
        "bookies",
        "counters",
        "ledgers",
        "loadbalance",
        "managed-ledgers",
        "namespace",
        "schemas",
        "stream",
        "zookeeper",
    ]
)
"""Children of the root that brokers, bookies and ZooKeeper of Pulsar 2.11, 4.0 and 4.2 write."""


@frozen
class Tree:
    """A child of the metadata's root: its path and how many nodes it has, itself included where it is one."""

    path: str
    nodes: int


class ClusterFacts:
    """What one snapshot says of the cluster. Each fact is read when it is first asked for."""

    def __init__(self, store: Store, reader: EntryReader) -> None:
        self.store = store
        self.reader = reader

    @cached_property
    def unknown_trees(self) -> tuple[Tree, ...]:
        """The trees that no Pulsar known here writes: of a newer version, or of another program in the same ZooKeeper."""
        txn = self.reader.txn
        found = [f"/{name}" for name in iter_children(txn, "/") if name not in KNOWN_TREES]
        return tuple(
            Tree(path, sum(1 for _ in iter_paths(txn, f"{path}/")) + (txn.view("tree", tree_key(path)) is not None))
            for path in found
        )
