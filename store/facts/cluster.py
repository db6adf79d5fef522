"""Facts of the cluster as a whole."""

from __future__ import annotations

from functools import cached_property

from store.db.environment import Store
from store.facts import Unknown
from store.facts.managed_ledgers import OtherLedger, other_ledgers
from store.facts.trees import Tree, unknown_trees
from store.facts.unlisted import HeldLedgers, UnlistedLedgers, find_newer, find_unlisted
from store.facts.vanished import Vanished, find_vanished
from store.model.reader import EntryReader


class ClusterFacts:
    """What one snapshot says of the cluster. Each fact is read when it is first asked for."""

    def __init__(self, store: Store, reader: EntryReader) -> None:
        self.store = store
        self.reader = reader

    @cached_property
    def next_ledger_id(self) -> int | Unknown:
        """The ledger id that the metadata would give next: ids from there on it never gave."""
        return UnlistedLedgers(self.reader.txn).next_ledger_id

    @cached_property
    def newer_ledgers(self) -> HeldLedgers | None:
        """The ledgers that bookies hold, or topics name, and whose ids the metadata never gave."""
        return find_newer(self.reader.txn)

    @cached_property
    def vanished(self) -> Vanished:
        """Topics whose node is gone without a deletion, and compacted views that their topics name no more."""
        return find_vanished(self.reader)

    @cached_property
    def unlisted_ledgers(self) -> HeldLedgers | None:
        """The ledgers that bookies hold and nothing lists or names, where nobody knows why."""
        return find_unlisted(self.reader.txn)

    @cached_property
    def unknown_trees(self) -> tuple[Tree, ...]:
        """The trees that no Pulsar known here writes: of a newer version, or of another program in the same ZooKeeper."""
        return unknown_trees(self.reader.txn)

    @cached_property
    def other_ledgers(self) -> tuple[OtherLedger, ...]:
        """The managed ledgers that are no persistent topics, which a newer Pulsar reads."""
        return other_ledgers(self.reader.txn)
