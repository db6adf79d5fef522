"""Facts of the cluster as a whole."""

from __future__ import annotations

from functools import cached_property

from store.db.environment import Store
from store.facts.managed_ledgers import OtherLedger, other_ledgers
from store.facts.trees import Tree, unknown_trees
from store.model.reader import EntryReader


class ClusterFacts:
    """What one snapshot says of the cluster. Each fact is read when it is first asked for."""

    def __init__(self, store: Store, reader: EntryReader) -> None:
        self.store = store
        self.reader = reader

    @cached_property
    def unknown_trees(self) -> tuple[Tree, ...]:
        """The trees that no Pulsar known here writes: of a newer version, or of another program in the same ZooKeeper."""
        return unknown_trees(self.reader.txn)

    @cached_property
    def other_ledgers(self) -> tuple[OtherLedger, ...]:
        """The managed ledgers that are no persistent topics, which a newer Pulsar reads."""
        return other_ledgers(self.reader.txn)
