"""Defines, for every screen, what counts as a topic, as a subscription, and as bytes on disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import add
from pathlib import Path

from msgspec import Struct
from msgspec.structs import astuple

from pulsar_admin.store.db.bookies import iter_imported_bookies
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.model.cursors import COMPACTION_CURSOR, Cursor, is_consumed
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import FileKind, TopicName
from pulsar_admin.store.wording import Answer, counted

_LEFTOVERS = (".log.compacting", ".compacted")


class TopicCounts(Struct, frozen=True):
    """Topics and subscriptions, as ``topics list`` and ``topics subscriptions`` of a broker have them (``of`` adds one).

    ``topics``: partitions count one by one, and not the partitioned topic that has them; ``system_topics``: those that a broker keeps for
    itself and does not list (upstream ``SystemTopicNames``, 4.0.8); ``subscriptions``: cursors by which consumers read topics, without
    those of deduplication, replication (upstream ``PersistentTopicsBase.internalGetSubscriptions`` has neither), system topics and
    compaction, which are ``compactions``: a broker lists them, as ``__compaction``, and no consumer reads by them.
    """

    topics: int = 0
    system_topics: int = 0
    subscriptions: int = 0
    compactions: int = 0

    def of(self, name: TopicName, cursors: Iterable[str]) -> TopicCounts:
        """Return these counts plus one topic, with its durable ``cursors``."""
        if name.is_system:
            return TopicCounts(self.topics, self.system_topics + 1, self.subscriptions, self.compactions)
        names = list(cursors)
        return TopicCounts(
            self.topics + 1,
            self.system_topics,
            self.subscriptions + sum(map(is_consumed, names)),
            self.compactions + names.count(COMPACTION_CURSOR),
        )

    def __add__(self, other: TopicCounts) -> TopicCounts:
        """Return the sums of both."""
        return TopicCounts(*map(add, astuple(self), astuple(other)))


def topics_text(topics: int, system_topics: int) -> str:
    """Return how many topics there are, those that brokers keep for themselves apart."""
    return counted(topics, "topic") + (f" and {system_topics:,} of the system" if system_topics else "")


def subscriptions_text(subscriptions: int, compactions: int) -> str:
    """Return how many subscriptions there are, those of compaction apart."""
    return counted(subscriptions, "subscription") + (f" and {compactions:,} of compaction" if compactions else "")


def subscriptions_of(topic: Topic, cursors: Iterable[Cursor]) -> list[Cursor]:
    """Return those of ``cursors`` that are subscriptions of ``topic``, whose unacknowledged entries are its backlog.

    A system topic has none: its brokers read everything, and may never acknowledge, so nobody waits for a backlog.
    """
    return [] if topic.name.is_system else [cursor for cursor in cursors if is_consumed(cursor.name)]


class DiskBytes(Answer, frozen=True):
    """The bytes of the files of bookies, every copy counted: ``entry_logs``, ``journals``, and ``leftovers`` of compactions of entry logs
    that did not come to an end (upstream ``TransactionalEntryLogCompactor``, BookKeeper 4.17), which no index has; None where a directory
    of entry logs does not exist any more. Indexes are not imported and not counted."""

    entry_logs: int
    journals: int
    leftovers: int | None

    @property
    def total(self) -> int:
        """The sum of all known bytes."""
        return self.entry_logs + self.journals + (self.leftovers or 0)


def read_disk_bytes(txn: Txn) -> DiskBytes:
    """Return the bytes of a store's catalogued files and of the leftovers in their directories; a missing file has its imported size."""
    sizes = dict.fromkeys(FileKind, 0)
    for log in iter_logs(txn):
        sizes[FileKind(log.kind)] += log.size_bytes
    left = [*iter_leftovers(txn.store)]
    leftovers = None if None in left else sum(one[1] for one in left if one is not None)
    return DiskBytes(sizes[FileKind.ENTRY_LOG], sizes[FileKind.JOURNAL], leftovers)


def iter_leftovers(store: Store) -> Iterator[tuple[Path, int] | None]:
    """Yield path and bytes of each leftover of a compaction, and None for a directory of entry logs that is not there any more.

    Upstream ``TransactionalEntryLogCompactor`` (BookKeeper 4.17): ``3.log.compacting`` while it writes, ``3.log.1.compacted`` until the
    index leads there. A bookie that starts removes the first and finishes with the second, where transactional compaction is on.
    """
    for folder in sorted({folder for bookie in iter_imported_bookies(store.info) for folder in bookie.ledger_dirs}):
        try:
            leftovers = [path for path in sorted(folder.iterdir()) if path.name.endswith(_LEFTOVERS) and path.is_file()]
            sizes = [path.stat().st_size for path in leftovers]
        except OSError:
            yield None
        else:
            yield from zip(leftovers, sizes, strict=True)
