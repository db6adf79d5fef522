"""Facts of the cluster as a whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from pulsar_admin.store.codec.ledgermetadata import INSTANCE_ID, LAYOUT
from pulsar_admin.store.db.bookies import UNFINISHED, iter_imported_bookies
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import iter_incompleteness, iter_log_ends, iter_not_needed
from pulsar_admin.store.db.ledger_ids import UNFINISHED_REFRESH
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import IndexCorrupt, Refused, SourceNotFound, StoreError, Unsupported
from pulsar_admin.store.facts import (
    Fact,
    Unknown,
    fact,
    file_sums,
    managed_ledgers,
    partitions,
    rows,
    scalable,
    transactions,
    trees,
    unlisted,
    values,
)
from pulsar_admin.store.facts.bookies import BookieFacts
from pulsar_admin.store.facts.orphans import Orphan, iter_orphans
from pulsar_admin.store.facts.topics import ReadBudget, TopicFacts, read_headers_together
from pulsar_admin.store.facts.unclosed import Unclosed
from pulsar_admin.store.facts.under_replication import iter_marks
from pulsar_admin.store.facts.unlisted import HeldLedgers, Unlisted, UnlistedLedgers, held_ledgers
from pulsar_admin.store.facts.vanished import find_bare_namespaces, find_vanished, kept_ledgers
from pulsar_admin.store.history.servers import find_servers
from pulsar_admin.store.model.coverage import find_unknown_bookies, read_disks, read_held
from pulsar_admin.store.model.ledgers import iter_ledger_ids
from pulsar_admin.store.model.nodes import iter_other_ledgers
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import iter_topics, read_topic
from pulsar_admin.store.names import TopicName
from pulsar_admin.store.sources.bookies import read_bookie_cookie
from pulsar_admin.store.sources.roots import stored_roots

if TYPE_CHECKING:
    from pulsar_admin.store.facts.starts import StartFact

_Value = TypeVar("_Value")
_STUCK_MAX = 1_000
_TOGETHER = 16
"""Topics whose short backlogs are read in one scan."""


class UnreadableTopic(Struct, frozen=True):
    """A topic whose list of ledgers cannot be read."""

    name: str
    path: str
    error: StoreError


def _of_txn(read: Callable[[Txn], _Value]) -> Fact[_Value]:
    return Fact(lambda facts: read(facts.reader.txn))


def _of_reader(read: Callable[[EntryReader], _Value]) -> Fact[_Value]:
    return Fact(lambda facts: read(facts.reader))


class ClusterFacts:
    """The facts of the cluster in one snapshot. Each is read on first use."""

    def __init__(self, reader: EntryReader) -> None:
        self.store = reader.txn.store
        self.reader = reader

    altered_rows = _of_txn(rows.altered_rows)
    bare_namespaces = _of_txn(find_bare_namespaces)
    beyond_counter = _of_txn(unlisted.find_beyond_counter)
    bookies = _of_reader(BookieFacts)
    disagreeing_partitions = _of_txn(partitions.find_disagreeing)
    disks = _of_txn(file_sums.read_disk_usage)
    has_rocksdb = _of_txn(lambda txn: any(source.get("kind") == "standalone" for source in txn.store.info.sources))
    """Whether the metadata comes from a standalone's RocksDB, not from ZooKeeper."""
    is_incomplete = _of_txn(lambda txn: any(iter_incompleteness(txn)))
    """Whether a part of the metadata could not be read."""
    is_refresh_unfinished = _of_txn(lambda txn: txn.get("state", UNFINISHED_REFRESH) is not None)
    """Whether a ``store refresh`` or ``store add`` was stopped or is running: the rest is not in the store yet."""
    journal_only = _of_txn(file_sums.journal_only)
    log_ends = _of_txn(lambda txn: tuple(damage.reason for damage in iter_log_ends(txn)))
    """How ZooKeeper's newest log may have had more than was read, where nothing shows whether it had."""
    marks = _of_txn(lambda txn: tuple(iter_marks(txn)))
    newer_ledgers = _of_txn(unlisted.find_newer)
    next_ledger_id = _of_txn(lambda txn: UnlistedLedgers(txn).next_ledger_id)
    not_needed = _of_txn(lambda txn: tuple(damage.reason for damage in iter_not_needed(txn)))
    """Damage of the metadata's files that lost nothing, because other files have the same data."""
    other_ledgers = _of_txn(managed_ledgers.other_ledgers)
    scalable_topics = _of_txn(scalable.read_scalable_topics)
    sharing_pulsars = _of_txn(lambda txn: stored_roots(txn.store.info).shared)
    """The chroots of other Pulsars in the same ZooKeeper that may use this BookKeeper."""
    stuck_logs = _of_txn(lambda txn: file_sums.read_disk_totals(txn, _STUCK_MAX).stuck)
    """The entry logs with dead bytes beside live ones, those with most of them first; a thousand at most."""
    unassigned_coordinators = _of_reader(transactions.find_unassigned)
    unclosed = Fact(lambda facts: Unclosed())
    """Unclosed ledgers of the topics added so far: a pass over all topics adds each of them."""
    unfinished_sources = _of_txn(lambda txn: tuple(one["path"] for one in txn.store.info.sources if UNFINISHED in one))
    """The paths that a stopped ``store add`` was reading."""
    unknown_trees = _of_txn(trees.unknown_trees)
    unknown_values = _of_txn(values.unknown_values)
    vanished = _of_reader(find_vanished)
    _unlisted = _of_txn(unlisted.find_unlisted)

    def iter_topics(
        self, now_ms: int, budget: ReadBudget | None = None, passes: Callable[[TopicName], bool] = lambda name: False
    ) -> Iterator[TopicFacts | UnreadableTopic]:
        """Yield the facts of each topic at ``now_ms``, then those of managed ledgers that a newer Pulsar keeps beside topics.

        Topics for which ``passes`` is true are left out, and so are vanished topics and values of a newer version, which have facts of
        their own.
        """
        topics, stopped = self._read_topics(now_ms, budget, passes), list[IndexCorrupt]()
        some = deque[TopicFacts | UnreadableTopic]()
        while not stopped:
            try:
                some.extend(islice(topics, _TOGETHER))
            except IndexCorrupt as error:
                stopped.append(error)
            if not some:
                break
            if budget is not None and budget.has_edges:
                each = (sub for one in some if isinstance(one, TopicFacts) for sub in one.subscriptions)
                read_headers_together((sub for sub in each if sub.is_awaited), now_ms)
            while some:
                one = some.popleft()
                yield one
                if isinstance(one, TopicFacts):
                    one.let_go()
        if stopped:
            raise stopped[0]

    def _read_topics(
        self, now_ms: int, budget: ReadBudget | None, passes: Callable[[TopicName], bool]
    ) -> Iterator[TopicFacts | UnreadableTopic]:
        txn = self.reader.txn
        for name in chain(iter_topics(txn), iter_other_ledgers(txn)):
            if passes(name):
                continue
            try:
                topic = read_topic(txn, name)
            except Unsupported:
                continue
            except StoreError as error:
                if not any(one.name == name for one in self.vanished.topics):
                    yield UnreadableTopic(str(name), name.path, error)
                continue
            yield TopicFacts(self.reader, topic, now_ms, budget)

    @fact
    def leaked(self) -> tuple[Orphan, ...]:
        """Unreferenced ledgers, except those that may be the only copy of something, and those whose references are unknown."""
        kept, untold = kept_ledgers(self.reader.txn), (Unlisted.NEWER, Unlisted.UNLISTED)
        rows = iter_orphans(self.reader.txn)
        return tuple(one for one in rows if one.ledger_id not in kept and one.reason not in untold)

    @fact
    def start_facts(self) -> tuple[StartFact, ...]:
        """Faults that keep the imported bookies and ZooKeeper servers from starting, or let them start with less data, as far as this
        shows without reading databases, journals and snapshots."""
        return tuple(self._iter_start_facts(thorough=False))

    def _iter_start_facts(self, *, thorough: bool, read: Collection[Path] = ()) -> Iterator[StartFact]:
        from pulsar_admin.store.facts import starts  # brings numpy

        info, registered, layout = self.store.info, None, None
        altered: list[bytes] = []
        with suppress(IndexCorrupt):  # the sweep over nodes tells
            with self.reader.txn.noting_altered(altered):
                registered = starts.read_registered(self.reader.txn) if self.has_metadata else None
            layout = find_node(self.reader.txn, LAYOUT)
        registered = None if altered else registered
        of_layout = starts.find_layout_fact(None if layout is None else layout.value)
        if of_layout is not None:
            yield of_layout
        for bookie in iter_imported_bookies(info):
            yield from starts.iter_bookie_facts(bookie, registered, thorough=thorough, read=read)
        with suppress(Refused, SourceNotFound, OSError):
            for server in find_servers(info.sources):
                yield from starts.iter_server_facts(server, thorough=thorough)

    @fact
    def unlisted_ledgers(self) -> HeldLedgers | None:
        """Ledgers that bookies hold and nothing lists or references, for an unknown reason."""
        return held_ledgers(self.reader.txn, self._unlisted)

    @fact
    def not_indexed(self) -> dict[str, list[int]]:
        """Bookie id → the unlisted ledgers that are in its entry logs, but in no bookie's index."""
        from pulsar_admin.store.facts.indexes import find_collected

        txn, ledgers = self.reader.txn, dict[str, list[int]]()
        collected = find_collected(txn, self._unlisted) if self._unlisted else []
        if collected:
            disks = read_disks(txn)
            for ledger_id in collected:
                for bookie in read_held(txn, ledger_id, disks) or ():
                    ledgers.setdefault(bookie, []).append(ledger_id)
        return dict(sorted(ledgers.items()))

    @fact
    def unknown_bookies(self) -> tuple[str, ...] | Unknown:
        """The imported bookies that the metadata names nowhere, neither in a cookie nor in an ensemble."""
        names = None if self.is_incomplete else find_unknown_bookies(self.reader.txn)
        why = "there is no metadata, it is incomplete, or no cookie says which bookies these are"
        return Unknown(why) if names is None else names

    @fact
    def own_cookies(self) -> set[str]:
        """The imported bookies whose cookies have the metadata's instance id: they are of this cluster."""
        node, own = find_node(self.reader.txn, INSTANCE_ID), set[str]()
        instance_id = "" if node is None else node.value.decode("utf-8", "replace").strip()
        for bookie in iter_imported_bookies(self.store.info):
            with suppress(OSError):
                cookie = read_bookie_cookie(bookie)
                if cookie is not None and instance_id and cookie.instance_id == instance_id:
                    own.add(bookie.bookie_id)
        return own

    @fact
    def has_bookkeeper(self) -> bool | Unknown:
        """Whether the metadata has BookKeeper's part: its layout (``LedgerLayout``), or any ledger."""
        if not self.has_metadata:
            return Unknown("there is no metadata")
        return not trees.lacks_ledgers(self.reader.txn)

    @fact
    def bare_ledgers(self) -> int:
        """How many ledgers the metadata lists if it has no managed ledger at all; 0 if it has any."""
        txn = self.reader.txn
        return sum(1 for _ in iter_ledger_ids(txn)) if trees.lacks_managed_ledgers(txn) else 0

    @fact
    def has_metadata(self) -> bool:
        """Whether a metadata store was imported. If an import was interrupted, it was not: nodes are written last, all in one step."""
        return any(
            source["kind"] != "bookie" and not (self.is_refresh_unfinished and UNFINISHED in source)
            for source in self.store.info.sources
        )
