"""Facts of the cluster as a whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING

from msgspec import Struct

from pulsar_admin.store.codec.ledgermetadata import LAYOUT
from pulsar_admin.store.db.bookies import UNFINISHED, iter_imported_bookies
from pulsar_admin.store.db.environment import Store
from pulsar_admin.store.db.files import LogFile, iter_log_ends, iter_not_needed
from pulsar_admin.store.db.ledger_ids import UNFINISHED_REFRESH
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import IndexCorrupt, Refused, SourceNotFound, StoreError, Unsupported
from pulsar_admin.store.facts import Unknown
from pulsar_admin.store.facts.trees import UnknownTree, lacks_ledgers, lacks_managed_ledgers, unknown_trees
from pulsar_admin.store.facts.unlisted import (
    BeyondCounter,
    HeldLedgers,
    Unlisted,
    UnlistedLedgers,
    find_beyond_counter,
    find_newer,
    find_unlisted,
    held_ledgers,
)
from pulsar_admin.store.model.coverage import find_unknown_bookies, read_disks, read_held
from pulsar_admin.store.model.ledgers import iter_ledger_ids
from pulsar_admin.store.model.nodes import iter_other_ledgers
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import iter_topics, read_topic
from pulsar_admin.store.sources.roots import stored_roots

if TYPE_CHECKING:
    from pathlib import Path

    from pulsar_admin.store.facts.bookies import BookieFacts
    from pulsar_admin.store.facts.file_sums import DiskUsage, StuckLog
    from pulsar_admin.store.facts.managed_ledgers import OtherLedger
    from pulsar_admin.store.facts.orphans import Orphan
    from pulsar_admin.store.facts.partitions import Partitions
    from pulsar_admin.store.facts.rows import AlteredRows
    from pulsar_admin.store.facts.scalable import ScalableFacts
    from pulsar_admin.store.facts.starts import StartFact
    from pulsar_admin.store.facts.topics import ReadBudget, TopicFacts
    from pulsar_admin.store.facts.transactions import UnassignedCoordinators
    from pulsar_admin.store.facts.unclosed import Unclosed
    from pulsar_admin.store.facts.under_replication import Mark
    from pulsar_admin.store.facts.values import UnknownValues
    from pulsar_admin.store.facts.vanished import BareNamespace, DetachedView, Vanished
    from pulsar_admin.store.names import TopicName

_STUCK_MAX = 1_000
_TOGETHER = 16
"""Topics whose short backlogs are read in one scan."""


class UnreadableTopic(Struct, frozen=True):
    """A topic whose list of ledgers cannot be read."""

    name: str
    path: str
    error: StoreError


class ClusterFacts:
    """What one snapshot says of the cluster. Each fact is read when it is first asked for."""

    def __init__(self, store: Store, reader: EntryReader) -> None:
        self.store = store
        self.reader = reader

    def iter_topics(
        self, now_ms: int, budget: ReadBudget | None = None, passes: Callable[[TopicName], bool] = lambda name: False
    ) -> Iterator[TopicFacts | UnreadableTopic]:
        """Yield the facts of each topic at ``now_ms``, then those of what a newer Pulsar keeps beside topics; values of a newer version and
        topics that vanished are left out, their own facts tell of them, and so are topics that ``passes`` says to pass by.
        """
        from pulsar_admin.store.facts.topics import TopicFacts, read_headers_together

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
        from pulsar_admin.store.facts.topics import TopicFacts

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
            yield TopicFacts(self.reader, topic, None, now_ms, budget)

    @cached_property
    def unclosed(self) -> Unclosed:
        """Unclosed ledgers of the topics added so far: a pass over all topics adds each of them."""
        from pulsar_admin.store.facts.unclosed import Unclosed

        return Unclosed()

    @cached_property
    def leaked(self) -> tuple[Orphan, ...]:
        """Unreferenced ledgers, except those that may be the only copy of something, and those whose references are unknown."""
        from pulsar_admin.store.facts.orphans import iter_orphans
        from pulsar_admin.store.facts.vanished import kept_ledgers

        kept, untold = kept_ledgers(self.reader.txn), (Unlisted.NEWER, Unlisted.UNLISTED)
        rows = iter_orphans(self.reader.txn)
        return tuple(one for one in rows if one.ledger_id not in kept and one.reason not in untold)

    @cached_property
    def journal_only(self) -> tuple[tuple[LogFile, int, int], ...]:
        """The journals that have entries which no entry log has, with how many these are, and their bytes."""
        from pulsar_admin.store.facts.file_sums import journal_only

        return journal_only(self.reader.txn)

    @cached_property
    def stuck_logs(self) -> tuple[StuckLog, ...]:
        """The entry logs with dead bytes beside live ones, those with most of them first; a thousand at most."""
        from pulsar_admin.store.facts.file_sums import read_disk_totals

        return read_disk_totals(self.store, self.reader.txn, _STUCK_MAX).stuck

    @cached_property
    def start_facts(self) -> tuple[StartFact, ...]:
        """What keeps the imported bookies and ZooKeeper servers from starting, or makes them start with less than they had, as far as a
        look at their files tells."""
        return tuple(self._iter_start_facts(thorough=False))

    def _iter_start_facts(self, *, thorough: bool, read: Collection[Path] = ()) -> Iterator[StartFact]:
        from pulsar_admin.store.facts.starts import (
            find_layout_fact,
            iter_bookie_facts,
            iter_server_facts,
            read_registered,
        )
        from pulsar_admin.store.history.servers import find_servers

        info = self.store.info
        registered = read_registered(self.reader.txn) if self.has_metadata else None
        layout = find_node(self.reader.txn, LAYOUT)
        fact = find_layout_fact(None if layout is None else layout.value)
        if fact is not None:
            yield fact
        for bookie in iter_imported_bookies(info):
            yield from iter_bookie_facts(bookie, registered, thorough=thorough, read=read)
        with suppress(Refused, SourceNotFound, OSError):
            for server in find_servers(info.sources):
                yield from iter_server_facts(server, thorough=thorough)

    @cached_property
    def disks(self) -> tuple[tuple[Path, DiskUsage], ...]:
        """The disks, each by one of its folders, of files that were imported where they lie."""
        from pulsar_admin.store.facts.file_sums import read_disk_usage

        return read_disk_usage(self.store.path, self.reader.txn)

    @cached_property
    def next_ledger_id(self) -> int | Unknown:
        """The ledger id that the metadata would assign next; it never assigned ids from there on."""
        return UnlistedLedgers(self.reader.txn).next_ledger_id

    @property
    def has_rocksdb(self) -> bool:
        """Whether the metadata comes from a standalone's RocksDB, not from ZooKeeper."""
        return any(source.get("kind") == "standalone" for source in self.store.info.sources)

    @cached_property
    def beyond_counter(self) -> BeyondCounter | None:
        """The ledgers that the metadata lists, but whose ids its counter has not reached."""
        return find_beyond_counter(self.reader.txn)

    @cached_property
    def newer_ledgers(self) -> HeldLedgers | None:
        """The ledgers that bookies hold, or topics name, and whose ids the metadata never assigned."""
        return find_newer(self.reader.txn)

    @cached_property
    def vanished(self) -> Vanished:
        """Topics whose node is gone without a deletion, and compacted views that their topics name no more."""
        from pulsar_admin.store.facts.vanished import find_vanished

        return find_vanished(self.reader)

    @cached_property
    def bare_namespaces(self) -> tuple[BareNamespace, ...]:
        """Namespaces with topics whose policies are gone."""
        from pulsar_admin.store.facts.vanished import find_bare_namespaces

        return find_bare_namespaces(self.reader.txn)

    def keys_of_view_alone(self, view: DetachedView) -> tuple[str, ...] | Unknown:
        """The keys that only a compacted view has which its topic names no more."""
        from pulsar_admin.store.facts.vanished import keys_of_view_alone

        return keys_of_view_alone(self.reader, view)

    @cached_property
    def unlisted_ledgers(self) -> HeldLedgers | None:
        """Ledgers that bookies hold and nothing lists or references, for an unknown reason."""
        return held_ledgers(self.reader.txn, self._unlisted)

    @cached_property
    def _unlisted(self) -> list[int]:
        return find_unlisted(self.reader.txn)

    @cached_property
    def not_indexed(self) -> dict[str, list[int]]:
        """Of the unlisted ledgers those that only entry logs have, and no bookie's index, by the bookies with such a log."""
        from pulsar_admin.store.facts.indexes import find_collected

        txn, ledgers = self.reader.txn, dict[str, list[int]]()
        collected = find_collected(txn, self._unlisted) if self._unlisted else []
        if collected:
            disks = read_disks(txn)
            for ledger_id in collected:
                for bookie in read_held(txn, ledger_id, disks) or ():
                    ledgers.setdefault(bookie, []).append(ledger_id)
        return dict(sorted(ledgers.items()))

    @cached_property
    def not_needed(self) -> tuple[str, ...]:
        """Damage of the metadata's files that lost nothing, because other files have the same data."""
        return tuple(damage.reason for damage in iter_not_needed(self.reader.txn))

    @cached_property
    def log_ends(self) -> tuple[str, ...]:
        """How ZooKeeper's newest log may have had more than was read, where nothing shows whether it had."""
        return tuple(damage.reason for damage in iter_log_ends(self.reader.txn))

    @cached_property
    def unknown_bookies(self) -> tuple[str, ...] | Unknown:
        """The imported bookies that the metadata names nowhere, neither in a cookie nor in an ensemble."""
        names = find_unknown_bookies(self.reader.txn)
        return Unknown("there is no metadata, or no cookie says which bookies these are") if names is None else names

    @cached_property
    def has_bookkeeper(self) -> bool | Unknown:
        """Whether the metadata has BookKeeper's part: its layout (``LedgerLayout``), or any ledger."""
        if not self.has_metadata:
            return Unknown("there is no metadata")
        return not lacks_ledgers(self.reader.txn)

    @cached_property
    def bare_ledgers(self) -> int:
        """How many ledgers the metadata lists where it has nothing that brokers keep of them; 0 where it has."""
        txn = self.reader.txn
        return sum(1 for _ in iter_ledger_ids(txn)) if lacks_managed_ledgers(txn) else 0

    @cached_property
    def sharing_pulsars(self) -> tuple[str, ...]:
        """The chroots of other Pulsars in the same ZooKeeper that may use this BookKeeper."""
        return stored_roots(self.store.info).shared

    @cached_property
    def has_metadata(self) -> bool:
        """Whether a metadata store was imported. One whose addition was stopped is not: its nodes come last, and all together."""
        return any(
            source["kind"] != "bookie" and not (self.is_refresh_unfinished and UNFINISHED in source)
            for source in self.store.info.sources
        )

    @cached_property
    def is_refresh_unfinished(self) -> bool:
        """Whether a ``store refresh`` or ``store add`` was stopped or is running: the rest is not in the store yet."""
        return self.reader.txn.get("state", UNFINISHED_REFRESH) is not None

    @cached_property
    def unfinished_sources(self) -> tuple[str, ...]:
        """The paths that a stopped ``store add`` was reading."""
        return tuple(source["path"] for source in self.store.info.sources if UNFINISHED in source)

    @cached_property
    def marks(self) -> tuple[Mark, ...]:
        """The ledgers that are marked as under-replicated."""
        from pulsar_admin.store.facts.under_replication import iter_marks

        return tuple(iter_marks(self.reader.txn))

    @cached_property
    def disagreeing_partitions(self) -> tuple[Partitions, ...]:
        """The names whose metadata as partitioned topics and whose partitions do not agree."""
        from pulsar_admin.store.facts.partitions import find_disagreeing

        return find_disagreeing(self.reader.txn)

    @cached_property
    def unassigned_coordinators(self) -> UnassignedCoordinators | None:
        """The transaction coordinators that have a log and that no client asks for."""
        from pulsar_admin.store.facts.transactions import find_unassigned

        return find_unassigned(self.reader)

    @cached_property
    def unknown_trees(self) -> tuple[UnknownTree, ...]:
        """The trees that no Pulsar known here writes: of a newer version, or of another program in the same ZooKeeper."""
        return unknown_trees(self.reader.txn)

    @cached_property
    def other_ledgers(self) -> tuple[OtherLedger, ...]:
        """The managed ledgers that are neither persistent topics nor segments, which a newer Pulsar reads."""
        from pulsar_admin.store.facts.managed_ledgers import other_ledgers

        return other_ledgers(self.reader.txn)

    @cached_property
    def scalable_topics(self) -> tuple[ScalableFacts, ...]:
        """The scalable topics, by name, with their segments."""
        from pulsar_admin.store.facts.scalable import read_scalable_topics

        return read_scalable_topics(self.reader.txn)

    @cached_property
    def altered_rows(self) -> tuple[AlteredRows, ...]:
        """The store's own rows whose key or value is not what was written, by database."""
        from pulsar_admin.store.facts.rows import altered_rows

        return altered_rows(self.reader.txn)

    @cached_property
    def bookies(self) -> BookieFacts:
        """Facts of the bookies."""
        from pulsar_admin.store.facts.bookies import BookieFacts

        return BookieFacts(self.store, self.reader)

    @cached_property
    def unknown_values(self) -> tuple[UnknownValues, ...]:
        """The metadata values that say more than this version knows."""
        from pulsar_admin.store.facts.values import unknown_values

        return unknown_values(self.reader.txn)
