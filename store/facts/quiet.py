"""Quiet topics, whose facts need not be read: most topics of a large store are quiet, and recognizing one costs a tenth of its facts.

Quiet is not a fact of its own: no rule of ``store.rules.topic_data`` or ``store.rules.topics`` holds for a quiet topic or one of its
subscriptions, which a test verifies. A topic in doubt is not quiet, so its facts are read.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

from msgspec import Struct

from pulsar_admin.store.codec.cursor import PlainCursor
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.facts.parts import Tally, TopicsPart, tally_topics
from pulsar_admin.store.facts.topics import is_on_time
from pulsar_admin.store.facts.unclosed import last_write_ms
from pulsar_admin.store.facts.values import find_plain_nodes, read_ahead
from pulsar_admin.store.model.coverage import look_at_ledgers_one_by_one
from pulsar_admin.store.model.cursors import is_consumed, is_subscription
from pulsar_admin.store.model.ledgers import find_sums, find_whole
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import find_pending_ack_logs, lacks_bookies
from pulsar_admin.store.names import PERSISTENT, NamespaceName, TopicName, encode_name, pending_ack_names
from pulsar_admin.store.policies.in_force import find_common

LEDGERS_MAX, RANGES_MAX = 100, 1000
LEDGER_BYTES_MAX = 1 << 32
"""Of more, or larger, a rule may have something to say."""


class Quiet(NamedTuple):
    """A topic whose facts need not be read, unless a subscription ``has_backlog`` and its entries may still be read.

    ``is_open``: whether its last ledger is; ``last_write_ms``: the time of the last known write to an open one, 0 if none is known.
    """

    is_open: bool
    last_write_ms: int
    has_backlog: bool


class QuietTopics:
    """Finds the topics of one snapshot that are quiet at ``now_ms`` (None: quiet whatever the time and the policies are)."""

    def __init__(self, txn: Txn, now_ms: int | None) -> None:
        self._txn, self._now_ms = txn, now_ms
        self._namespace: NamespaceName | None = None
        self._root = ""
        self._logs: frozenset[str] | None = None
        self._expires = False

    def find(self, name: TopicName) -> Quiet | None:
        """Return the facts of a topic if it is quiet, otherwise None.

        Also None for a topic of a namespace whose topics this transaction has not listed (``find_pending_ack_logs``).
        """
        local = name.local_name
        if "__" in local or name.domain != PERSISTENT or not local.isascii() or encode_name(local) != local:
            return None
        try:
            if name.namespace is not self._namespace:
                self._enter(name.namespace)
            path = self._root + local
            return None if self._logs is None else self._look(path, local)
        except StoreError:
            return None  # its facts tell

    def _enter(self, namespace: NamespaceName) -> None:
        self._namespace, self._logs = namespace, None
        self._root = f"{namespace.managed_ledgers_path}/"
        if namespace.tenant == "pulsar" or lacks_bookies(self._txn):
            return
        if self._now_ms is not None:
            common = find_common(self._txn, namespace)
            if common is None or common.backlog_quotas:
                return
            self._expires = common.message_ttl is not None and common.message_ttl.seconds > 0
        self._logs = find_pending_ack_logs(self._txn, namespace)

    def _look(self, path: str, local: str) -> Quiet | None:
        nodes = find_plain_nodes(self._txn, path)
        if (
            nodes is None
            or len(nodes.ledgers) > LEDGERS_MAX
            or not all(self._is_quiet(local, name) for name, _ in nodes.cursors)
        ):
            return None
        ledgers, cursors = nodes.ledgers, [cursor for _, cursor in nodes.cursors]
        end, opened_ms, is_open = (ledgers[0][0], -1), 0, False
        spans: list[tuple[int, int]] = []
        for index, (ledger_id, entries, size_bytes, closed_ms) in enumerate(ledgers):
            whole = find_whole(self._txn, ledger_id)
            if whole is None or max(whole.size_bytes, size_bytes) > LEDGER_BYTES_MAX:
                return None
            is_written = not closed_ms and index == len(ledgers) - 1
            if not is_written and (entries != whole.entries or (whole.is_closed and size_bytes != whole.size_bytes)):
                return None
            if whole.entries:
                end = ledger_id, whole.entries - 1
            elif end[1] < 0:
                end = ledger_id, -1
            spans.append((ledger_id, whole.entries))
            is_open = not whole.is_closed
            if self._now_ms is not None and not is_on_time(whole, closed_ms, opened_ms, self._now_ms):
                return None
            opened_ms = closed_ms or opened_ms
        if any(cursor.position > end for cursor in cursors) or not _pin_nothing(spans, cursors):
            return None
        behind = [name for name, cursor in nodes.cursors if cursor.position < end]
        if behind and self._expires:
            return None
        is_written = is_open and self._now_ms is not None
        return Quiet(
            is_open,
            last_write_ms(find_sums(self._txn, spans[-1][0])) if is_written else 0,
            any(map(is_consumed, behind)),
        )

    def _is_quiet(self, local: str, cursor: str) -> bool:
        """Whether ``cursor`` is a subscription's and has no log of pending acknowledgements, so that only its position matters."""
        assert self._logs is not None
        if not is_subscription(cursor):
            return False
        return not self._logs or self._logs.isdisjoint(pending_ack_names(local, cursor))


class LookedAt(Struct, frozen=True):
    """The result for one part. ``quiet``: per topic, in order; ``tallies``: the sums, None if not all topics could be counted."""

    quiet: list[Quiet | None]
    tallies: tuple[Tally, ...] | None


def find_quiet(reader: EntryReader, part: TopicsPart) -> LookedAt:
    """Return what ``QuietTopics`` finds for the topics in ``part``, and count them; run in other processes by ``store.facts.processes``."""
    txn = reader.txn
    with txn.passing_altered():  # the rules tell of them
        with suppress(StoreError):  # also for unreadable topics
            look_at_ledgers_one_by_one(txn)
        quiet, topics = QuietTopics(txn, part.now_ms), list[Quiet | None]()
        names = read_ahead(txn, part.iter_topics(txn))

        def look() -> Iterator[TopicName]:
            for name in names:
                topics.append(quiet.find(name))
                yield name

        looked, tallies = look(), part.fresh_tallies()
        counted: tuple[Tally, ...] | None = tallies
        if tallies:
            try:
                tally_topics(reader, looked, tallies, part.now_ms or 0)
            except StoreError:
                counted = None  # who counts meets it
        deque(looked, 0)
        return LookedAt(topics, counted)


class FoundQuiet:
    """The results of ``find_quiet`` for all parts, read topic by topic in the order of ``iter_topics``."""

    def __init__(self, parts: Iterator[list[Quiet | None]]) -> None:
        self._found = chain.from_iterable(parts)

    def find(self, name: TopicName) -> Quiet | None:
        """Return the result for the next topic, which must be ``name``; None for a topic that is not persistent."""
        return next(self._found) if name.domain == PERSISTENT else None

    def pass_rest(self) -> None:
        """Skip the results of all topics that are left."""
        deque(self._found, 0)


def _pin_nothing(ledgers: list[tuple[int, int]], cursors: list[PlainCursor]) -> bool:
    """Whether each of ``ledgers`` (id, entries) that a cursor has not passed, except the last one, is certainly needed by a cursor."""
    if not any(cursor.ranges for cursor in cursors):
        return True
    if any(len(cursor.ranges) > RANGES_MAX for cursor in cursors):
        return False
    for ledger_id, entries in ledgers[:-1]:
        left = [cursor for cursor in cursors if cursor.position < (ledger_id, entries - 1)]
        if entries and left and not any(_needs(cursor, ledger_id, entries) for cursor in left):
            return False
    return True


def _needs(cursor: PlainCursor, ledger_id: int, entries: int) -> bool:
    """Whether ``cursor``, which stands before the ledger's last entry, has certainly not acknowledged all of its ``entries``."""
    first = cursor.position[1] + 1 if cursor.position[0] == ledger_id else 0
    acknowledged = sum(upper - lower for ledger, lower, upper in cursor.ranges if ledger == ledger_id)
    return acknowledged < entries - max(first, 0)
