"""The numbers that a pass over all topics counts: most topics of a large store are plain, and their numbers cost a third of their facts.

The numbers of a plain topic are no facts of their own: a test compares them with those that its facts give.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pulsar_admin.store.codec.policies import Retention
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.facts import Unknown
from pulsar_admin.store.facts.topics import TopicFacts
from pulsar_admin.store.facts.values import find_plain_nodes
from pulsar_admin.store.model.counts import subscriptions_of
from pulsar_admin.store.model.cursors import backlog_entries, is_consumed
from pulsar_admin.store.model.topics import rank_of, read_open_size
from pulsar_admin.store.names import PERSISTENT, NamespaceName, TopicName
from pulsar_admin.store.policies.in_force import find_common
from pulsar_admin.store.policies.retention import begins_compaction, consumed_by, count_let_go
from pulsar_admin.store.wording import Answer


class Blocker(Answer, frozen=True):
    """What keeps a topic's ledgers from being deleted.

    ``reason``: "cursor" (``subscription`` is the slowest that needs them, and ``others`` also need the first of them), "open-ledger" (the
    last ledger always stays), "retention" (all cursors have left them), "retention-unknown" (they have, and the policies cannot be
    read) or "trim" (nothing: a broker deletes them when it next trims).
    """

    topic: str
    reason: str
    subscription: str
    ledgers: int
    bytes: int
    others: int = 0


class TopicNumbers(NamedTuple):
    """A topic in numbers. ``cursors``: the names of its durable cursors, of which ``unreadable`` cannot be read; ``backlogs``: the entries
    that each of its subscriptions has not acknowledged; ``compacted``: how many entries are compacted; ``blockers``:
    what retains its bytes on bookies, every byte once (upstream ``ManagedLedgerImpl.internalTrimLedgers``, 4.0.8)."""

    name: TopicName
    where: str
    ledgers: int
    entries: int
    size_bytes: int
    cursors: Sequence[str]
    unreadable: int
    backlogs: Sequence[tuple[str, int]]
    compacted: int | None
    blockers: Sequence[Blocker]


class _Left(NamedTuple):
    """How many of a topic's first ledgers retention releases, how many all cursors have consumed, and the slowest cursor."""

    released: int
    consumed: int
    slowest: str | None


def numbers_of(facts: TopicFacts) -> TopicNumbers:
    """Return the numbers of a topic, counted from its facts."""
    topic, entries = facts.topic, facts.topic.number_of_entries
    compaction, blockers = facts.compaction_cursor, list[Blocker]()
    if entries:
        consumed, slowest = facts.consumed
        sizes = [0 if ledger.info.bookkeeper_deleted else ledger.size_bytes for ledger in topic.ledgers]
        places = [topic.place(position) for position in facts.keeping.values()]
        is_unknown = bool(consumed) and isinstance(facts.policies, Unknown)
        left = _Left(facts.released, consumed, None if slowest is None else slowest[0])
        blockers += _iter_blockers(facts.where, sizes, topic.ranks, places, left, is_unknown=is_unknown)
    return TopicNumbers(
        topic.name,
        facts.where,
        len(topic.ledgers),
        entries,
        topic.total_size_bytes,
        [name for name, _ in facts.cursor_readings],
        len(facts.unreadable_cursors),
        [(one.name, backlog_entries(topic, one.state)) for one in subscriptions_of(topic, facts.cursors)],
        None if compaction is None else topic.place(compaction.mark_delete),
        tuple(blockers),
    )


def _iter_blockers(
    where: str,
    sizes: Sequence[int],
    ranks: Sequence[int],
    places: Sequence[int],
    left: _Left,
    *,
    is_unknown: bool = False,
) -> Iterator[Blocker]:
    """Yield what keeps the ledgers of a topic, in order. ``sizes``: their bytes; ``ranks``: those of their first entries; ``places``: of
    the cursors."""
    released, consumed, slowest = left
    last = max(len(sizes) - 1, 0)
    if released and (size_bytes := sum(sizes[:released])):
        yield Blocker(where, "trim", "", released, size_bytes)
    if consumed > released and (size_bytes := sum(sizes[released:consumed])):
        reason = "retention-unknown" if is_unknown else "retention"
        yield Blocker(where, reason, "", consumed - released, size_bytes)
    if last > consumed and (size_bytes := sum(sizes[consumed:last])):
        need = 0 if slowest is None else sum(place < ranks[consumed + 1] for place in places) - 1
        yield Blocker(where, "cursor", slowest or "", last - consumed, size_bytes, need)
    if sizes and sizes[last]:
        yield Blocker(where, "open-ledger", "", 1, sizes[last])


class PlainTopics:
    """Counts plain topics of one snapshot at ``now_ms``: topics whose numbers follow from their nodes alone."""

    def __init__(self, txn: Txn, now_ms: int) -> None:
        self._txn, self._now_ms = txn, now_ms
        self._retention: tuple[NamespaceName, Retention | None] | None = None

    def find(self, name: TopicName) -> TopicNumbers | None:
        """Return the numbers of the topic ``name``; None if it is not plain, so that its facts must be read."""
        local = name.local_name
        if "__" in local or name.domain != PERSISTENT or name.namespace.tenant == "pulsar" or not local.isascii():
            return None
        path = name.path
        if "%" in path:
            return None
        try:
            return self._look(name, path)
        except StoreError:
            return None

    def _look(self, name: TopicName, path: str) -> TopicNumbers | None:
        nodes = find_plain_nodes(self._txn, path)
        if nodes is None:
            return None
        ledgers, cursors = [*nodes.ledgers], nodes.cursors
        ledger_id, entries, size_bytes, closed_ms = ledgers[-1]
        if not closed_ms:
            entries, size_bytes = read_open_size(self._txn, ledger_id)
            ledgers[-1] = ledger_id, entries, size_bytes, closed_ms
        ids, ranks, sizes = [], [0], []
        for ledger_id, entries, size_bytes, _ in ledgers:
            ids.append(ledger_id)
            ranks.append(ranks[-1] + entries)
            sizes.append(size_bytes)
        total, backlogs, places = ranks[-1], [], {}
        for cursor, plain in cursors:
            places[cursor] = done = rank_of(ids, ranks, plain.position[0], plain.position[1] + 1)
            if is_consumed(cursor):
                left = total - done
                for one, low, high in sorted(plain.ranges):
                    stop = rank_of(ids, ranks, one, high + 1)
                    if stop > done:
                        left -= stop - max(rank_of(ids, ranks, one, low + 1), done)
                        done = stop
                backlogs.append((cursor, left))
        where = str(name)
        blockers: Sequence[Blocker] = ()
        if total:
            consumed, slowest = consumed_by(ranks, places)
            released = 0
            if consumed:
                retention = None if name.is_system else self._find_retention(name)
                if retention is None:
                    return None
                closed = [(size_bytes, closed_ms) for _, _, size_bytes, closed_ms in ledgers]
                released = count_let_go(closed, consumed, retention, self._now_ms)
            needs = _Left(released, consumed, slowest)
            blockers = tuple(_iter_blockers(where, sizes, ranks, [*places.values()], needs))
        return TopicNumbers(name, where, len(ids), total, sum(sizes), [*places], 0, backlogs, None, blockers)

    def _find_retention(self, name: TopicName) -> Retention | None:
        """Return the retention in force for all topics of the namespace of ``name``, None where some set their own, all are to be
        compacted, or policies cannot be read."""
        if self._retention is None or self._retention[0] != name.namespace:
            common = find_common(self._txn, name.namespace)
            if common is not None and begins_compaction(self._txn, name, ()):
                common = None
            self._retention = name.namespace, None if common is None else common.applied_retention.retention
        return self._retention[1]
