"""What a missing metadata node of a ledger means: deleted, lost, or newer than the metadata.

Upstream ``LedgerIdGenerator`` (BookKeeper 4.17) counts up: this metadata never assigned ids from its next one on, so it did not delete a
ledger with such an id; the metadata is older than the bookies. A ledger with a smaller id counts as deleted only if there is proof: a
change of this store, tiered storage, ZooKeeper's logs. RocksDB keeps no history: there a ledger was deleted by a broker, or its node was
lost.
"""

from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from enum import StrEnum
from functools import cached_property
from itertools import chain

from msgspec import Struct

from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT, ledger_id_of_path, ledger_path
from pulsar_admin.store.codec.managedledger import decode_managed_ledger
from pulsar_admin.store.db.blocks import ledger_key, ledger_of_key
from pulsar_admin.store.db.delayed import find_index_ledgers
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import iter_metadata_damage
from pulsar_admin.store.db.ledger_ids import find_deleted, find_given_meanwhile, find_next_ledger_id
from pulsar_admin.store.db.own_ledgers import find_own_ledgers
from pulsar_admin.store.db.owners import Owner, OwnerKind, find_owners, has_owners
from pulsar_admin.store.db.tree import find_node, tree_key
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.facts import Unknown
from pulsar_admin.store.model.ledger_owners import all_owners, find_loose_indexed
from pulsar_admin.store.model.ledgers import find_times, has_node, iter_indexed_ids, merge_ids
from pulsar_admin.store.names import parse_owner

_SHOWN = 5


class Unlisted(StrEnum):
    """Why a ledger has no node. GONE: the metadata is whole and gave its id, and nothing shows whether the ledger was deleted, or lost.
    UNLISTED: unknown, because the metadata is incomplete or does not say which ids it gave."""

    DELETED = "deleted"
    GONE = "gone"
    NEWER = "newer"
    UNLISTED = "unlisted"


class UnlistedLedgers:
    """Finds out why ledgers have no node, from one snapshot."""

    def __init__(self, txn: Txn) -> None:
        self._txn = txn
        self.indexes = find_index_ledgers(txn)
        """Ledgers of delayed message indexes, which are in no metadata."""
        own = find_own_ledgers(txn)
        self._own = range(0) if own is None else range(own.first_id, own.next_id)
        self._next_id = find_next_ledger_id(txn)
        self._meanwhile = find_given_meanwhile(txn)
        newest = self._meanwhile.stop or self._next_id
        self.beyond = None if newest is None else next(iter_beyond_counter(txn, newest), None)
        """A ledger that is listed, though its id was not given: the counter began again, and ids from there on may have been given."""
        self._offloaded: dict[str, Set[int]] = {}
        self._bundled = find_deleted(txn)
        self.is_whole = self._next_id is not None and next(iter_metadata_damage(txn), None) is None
        """Whether the metadata was read whole, and says which ids it gave: then what it does not list was deleted, or is newer."""

    @property
    def next_ledger_id(self) -> int | Unknown:
        """The next ledger id that the metadata would assign."""
        if self.beyond is not None:
            return Unknown(
                f"the metadata lists ledger {self.beyond}, but the next id that it assigns is {self._next_id}"
            )
        if self._next_id is not None:
            return self._next_id
        if not self._txn.count("tree"):
            return Unknown("the store has no metadata")
        return Unknown(
            "the store does not say which ledger id the metadata assigns next; to read it: pulsar-admin store refresh"
        )

    def why(self, ledger_id: int) -> Unlisted:
        """Return why a ledger has no node. A referenced one was not deleted: brokers first remove a ledger from its list."""
        if ledger_id in self._meanwhile and ledger_id not in self._own:
            return Unlisted.UNLISTED  # its node is newer than the tree that was read
        if self._next_id is not None and ledger_id >= self._next_id and ledger_id not in self._own:
            return Unlisted.NEWER if self.beyond is None else Unlisted.UNLISTED
        owners = find_owners(self._txn, ledger_id)
        if owners:
            # The topic that lists it says that it was deleted on bookies, as tiered storage has it.
            topics = (owner.topic for owner in owners if owner.kind is OwnerKind.TOPIC)
            is_offloaded = any(ledger_id in self._offloaded_of(topic) for topic in topics)
            return Unlisted.DELETED if is_offloaded else Unlisted.UNLISTED
        if ledger_id in self._own:
            return Unlisted.DELETED  # undoing the change that wrote it did that
        if not self.is_whole:
            return Unlisted.UNLISTED
        shown = ledger_id in self._bundled or self._txn.get("base", tree_key(ledger_path(ledger_id)))
        return Unlisted.DELETED if shown else Unlisted.GONE

    def why_by_logs(self, ledger_id: int) -> Unlisted:
        """Return as ``why``, but DELETED for a GONE ledger whose deletion is in ZooKeeper's logs, which are read once, completely."""
        why = self.why(ledger_id)
        return Unlisted.DELETED if why is Unlisted.GONE and ledger_path(ledger_id) in self._removed else why

    @cached_property
    def _removed(self) -> Set[str]:
        """Paths of ledgers that have no node and whose node's deletion is in ZooKeeper's logs."""
        # Imported here: RocksDB keeps no history, and few questions need it.
        from pulsar_admin.store.history.servers import iter_logged

        def is_without_node(path: str) -> bool:
            ledger_id = ledger_id_of_path(path)
            return ledger_id is not None and not has_node(self._txn, ledger_id)

        logged = iter_logged(self._txn.store.info.sources, is_without_node)
        return {version.path for version in logged if version.kind == "delete"}

    def _offloaded_of(self, topic: str) -> Set[int]:
        if topic not in self._offloaded:
            node = None if topic.startswith("/") else find_node(self._txn, parse_owner(topic).path)
            ledgers = () if node is None else decode_managed_ledger(node.value, node.path).ledgers
            self._offloaded[topic] = {one.ledger_id for one in ledgers if one.offloaded and one.bookkeeper_deleted}
        return self._offloaded[topic]

    def owners(self, ledger_id: int) -> tuple[Owner, ...]:
        """Return who references a ledger, whether or not it has a node; a ledger of a delayed message index has only that owner."""
        return (self.indexes[ledger_id],) if ledger_id in self.indexes else all_owners(self._txn, ledger_id)

    def is_absent(self, ledger_id: int) -> bool:
        """Whether a ledger should have a node and has none."""
        return ledger_id not in self.indexes and not has_node(self._txn, ledger_id)

    def iter_unowned(self) -> Iterator[tuple[int, Unlisted]]:
        """Yield (ledger id, why it has no node) for ledgers with entries and neither a node nor an owner."""
        for ledger_id in find_loose_indexed(self._txn):
            with suppress(StoreError):  # a damaged row is told elsewhere
                is_there = find_times(self._txn, ledger_id) is not None
                # One that has an owner is offloaded, or lost.
                if is_there and not has_owners(self._txn, ledger_id) and self.is_absent(ledger_id):
                    yield ledger_id, self.why_by_logs(ledger_id)

    def is_freed(self, ledger_id: int) -> bool:
        """Whether a ledger has no node and a bookie frees its entries: it was deleted, or is gone from metadata that is whole."""
        return self.is_absent(ledger_id) and self.why(ledger_id) in (Unlisted.DELETED, Unlisted.GONE)


def iter_beyond_counter(txn: Txn, next_id: int) -> Iterator[int]:
    """Yield the ids from ``next_id`` on that the imported metadata lists although its counter has not reached them.

    Then its nodes were recreated one by one, without the counter that ZooKeeper keeps of each node's children (``Stat.cversion``).
    """
    start = ledger_path(next_id)
    directory = start.removeprefix(f"{LEDGERS_ROOT}/").partition("/")[0]
    # Ids of 64 bits have directories of three digits, which lie between those of two.
    before = range(10 * int(directory) if len(directory) == 2 else 0)
    long_ids = (txn.items("tree", f"{LEDGERS_ROOT}/{number:03d}/".encode()) for number in before)
    for key, _ in chain(*long_ids, txn.items("tree", f"{LEDGERS_ROOT}/".encode(), start=tree_key(start))):
        ledger_id = ledger_id_of_path(key.decode("utf-8", "replace"))
        if ledger_id is None and not key[len(LEDGERS_ROOT) + 1 :][:1].isdigit():
            return  # after the directories of ids
        if ledger_id is not None and ledger_id >= next_id and txn.get("base", key) is None:  # not of a change
            yield ledger_id


class HeldLedgers(Struct, frozen=True):
    """Ledgers without a node: how many, the smallest of their ids, the largest, and their imported entries and bytes.

    ``referenced``: those that a topic, cursor or schema still names.
    """

    ledgers: int
    first_ids: tuple[int, ...]
    largest: int
    referenced: int
    entries: int
    bytes: int


class BeyondCounter(Struct, frozen=True):
    """Ledgers that the metadata lists, but whose ids its counter has not reached: its next id, how many, the largest.

    ``held``: ledgers with such ids that are not listed, but have entries on bookies.
    """

    next_id: int
    ledgers: int
    largest: int
    held: int


def find_beyond_counter(txn: Txn) -> BeyondCounter | None:
    """Return the ledgers that the metadata lists beyond its counter of ids; None for none, or if the counter is unknown."""
    next_id = find_given_meanwhile(txn).stop or find_next_ledger_id(txn)
    ids = [] if next_id is None else list(iter_beyond_counter(txn, next_id))
    if next_id is None or not ids:
        return None
    return BeyondCounter(next_id, len(ids), max(ids), sum(one >= next_id for one in find_unlisted(txn)))


def find_newer(txn: Txn) -> HeldLedgers | None:
    """Return the ledgers without a node, held or named, whose ids the metadata never assigned; raises IndexCorrupt."""
    unlisted = UnlistedLedgers(txn)
    first = unlisted.next_ledger_id
    if isinstance(first, Unknown):
        return None
    databases = (txn.items(database, start=ledger_key(first)) for database in ("times", "owners"))
    ids = merge_ids(*((ledger_of_key(key) for key, _ in rows) for rows in databases))
    return held_ledgers(txn, [one for one in ids if unlisted.is_absent(one) and unlisted.why(one) is Unlisted.NEWER])


def find_unlisted(txn: Txn) -> list[int]:
    """Return the ledgers with entries in the store but no node and no references, for an unknown reason; raises IndexCorrupt."""
    unlisted = UnlistedLedgers(txn)
    if unlisted.is_whole and unlisted.beyond is None:
        return []
    ids = (one for one in iter_indexed_ids(txn) if unlisted.is_absent(one) and not has_owners(txn, one))
    return [one for one in ids if unlisted.why(one) is Unlisted.UNLISTED]


def held_ledgers(txn: Txn, ids: Sequence[int]) -> HeldLedgers | None:
    """Return the sums of some ledgers without a node, in ascending order; None for none."""
    if not ids:
        return None
    sums = [times.sums for times in (find_times(txn, one) for one in ids) if times is not None]
    return HeldLedgers(
        len(ids),
        tuple(ids[:_SHOWN]),
        ids[-1],
        sum(has_owners(txn, one) for one in ids),
        sum(one.entries for one in sums),
        sum(one.payload_bytes for one in sums),
    )
