"""The delayed messages that a subscription waits for: what falls due when, and what it costs. Imports numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from pulsar_admin.api.given import given_flags, given_text
from pulsar_admin.api.planner import Named
from pulsar_admin.api.session import Session, Time
from pulsar_admin.store.db.delayed_entries import join_rows
from pulsar_admin.store.db.environment import Store as StoreFile
from pulsar_admin.store.delayed.backlog import cursor_of_nobody, read_due_times
from pulsar_admin.store.delayed.build import (
    BuildResult,
    Draft,
    WantedIndex,
    apply_draft,
    draft_index,
    finish_draft,
    iter_turns,
    read_drafts,
    result_of,
)
from pulsar_admin.store.delayed.runs import open_runs
from pulsar_admin.store.delayed.summary import DelayedSummary, Delivery, open_delivery, summarize
from pulsar_admin.store.errors import InvalidValue, SubscriptionNotFound
from pulsar_admin.store.model.cursors import Cursor, is_consumed, iter_cursor_names, read_cursor
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import LONG_MAX, TopicName, TopicSelection
from pulsar_admin.store.scan.integer_rows import RunFile
from pulsar_admin.store.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from pulsar_admin.store.delayed.verify import Verified
    from pulsar_admin.store.delayed.waiting import Replayed, Waiting
    from pulsar_admin.store.engine.operation import Engine


class DelayedBacklogs:
    """What SUBSCRIPTION waits for in several topics; None: every subscription but the broker's own.

    All methods raise TopicNotFound, SubscriptionNotFound, IndexCorrupt, DiskFull (large backlogs are sorted on disk).
    """

    def __init__(self, session: Session, selection: TopicSelection, subscription: str | None) -> None:
        self._session = session
        self._selection = selection
        self._subscription = subscription

    def cursors(self, reader: EntryReader, *, unsubscribed: bool = False) -> Iterator[tuple[Topic, Cursor]]:
        """Yield the cursors meant; with UNSUBSCRIBED, of a topic without any what a subscription created at its beginning would be."""
        given_flags(unsubscribed=unsubscribed)
        session, subscription, named = self._session, self._subscription, bool(self._selection.topics)
        found = False
        for topic in session.read_topics(reader, self._selection):
            names = sorted(iter_cursor_names(reader.txn, topic.name))
            if subscription is None:
                names = [name for name in names if is_consumed(name)]
            elif self._selection.single is None or subscription in names:
                names = [name for name in names if name == subscription]
            else:
                names = [subscription]  # which raises that it is not there
            if not names and subscription is None and unsubscribed:
                yield topic, cursor_of_nobody(topic)
            for cursor in session.read_cursors(reader, topic, names, named=named):
                found = True
                yield topic, cursor
        if not found and subscription is not None:
            raise SubscriptionNotFound(f"no topic that matches has a subscription {subscription!r}")

    @contextmanager
    def waiting(self) -> Iterator[tuple[EntryReader, Iterator[Waiting]]]:
        """Open what each of them waits for, those with nothing delayed left out, and what reads its entries."""
        with self._session.scan() as reader, open_runs() as file:
            yield reader, self._iter_waiting(reader, file)

    def _iter_waiting(self, reader: EntryReader, file: RunFile) -> Iterator[Waiting]:
        for topic, cursor in self.cursors(reader, unsubscribed=True):
            delivery = open_delivery(reader, topic, cursor, file, self._session.now_ms)
            self._session.warn([delivery.warning] if delivery.warning else ())
            if delivery.waiting.messages:
                yield delivery.waiting

    def build(self, *, rebuild: bool = False, dry_run: bool = False) -> Iterator[BuildResult]:
        """Build the index of each of them, or bring it up to date, in a transaction each; DRY_RUN: write nothing.

        The entries of many are read together; REBUILD makes indexes anew, whatever there is. No change of the audit log: they are
        derived. Raises NotWritable, Unsupported.
        """
        given_flags(rebuild=rebuild, dry_run=dry_run)
        with self._session.reader() as reader:
            chosen = [WantedIndex.of(*one) for one in self.cursors(reader)]
        job = _Build(self._session, rebuild, dry_run, len(chosen) == 1)
        what = len(chosen), "subscriptions", "delayed build"
        with (
            self._session.engine([], sum(wanted.bytes for wanted in chosen)) as engine,
            self._session.opened() if dry_run else self._session.writing() as store,
            self._session.progress(*what, resumes=True) as advance,
        ):
            for turn in iter_turns(chosen):
                for result in job.turn(store, engine, turn):
                    advance(1)
                    yield result


class _Build(Struct, frozen=True):
    """How to build indexes. ALONE: one subscription is meant, whose error ends the work."""

    session: Session
    rebuild: bool
    dry_run: bool
    alone: bool

    def turn(self, store: StoreFile, engine: Engine | None, turn: Sequence[WantedIndex]) -> Iterator[BuildResult]:
        """Read what the subscriptions of TURN lack, all together; then write each in a transaction of its own."""
        now_ms, each, commits = self.session.clock_ms, self.session.each, 0

        def write(draft: Draft) -> BuildResult:
            nonlocal commits
            index = draft.index if self.dry_run else apply_draft(store, draft, commits)
            commits += not self.dry_run
            return result_of(draft, index)

        with open_runs() as file:
            with open_reader(store, engine) as reader:

                def draft_of(wanted: WantedIndex) -> Draft:
                    return draft_index(reader, wanted, now_ms, file, rebuild=self.rebuild)

                drafts = list(each(turn, draft_of, alone=self.alone))
                read_drafts(drafts)
                drafts = list(each(drafts, finish_draft, alone=self.alone))
            for result in each(drafts, write, alone=self.alone):
                if lost := result.missing + result.unreadable:
                    what = counted(lost, "waiting entry is", "waiting entries are")
                    self.session.partial([f"{result.topic} {result.subscription}: {what} lost or damaged"])
                yield result


class Delayed(Named):
    """A delayed backlog: from the index of ``delayed build`` where that is current, else from the topic's entries.

    Whether a subscription is Shared or Key_Shared is not on disk; Exclusive and Failover ignore delays. All methods raise
    TopicNotFound (also for a partitioned topic), SubscriptionNotFound, IndexCorrupt, DiskFull (large backlogs are sorted on disk).
    """

    def __init__(self, session: Session, name: TopicName, subscription: str | None) -> None:
        self._session = session
        self._name = name
        self._subscription = None if subscription is None else given_text("subscription", subscription)

    def due(self, until: Time | None = None) -> pa.Table:
        """Return what a broker would dispatch up to UNTIL (default: now), in its order, one row per message.

        Columns: ``ledger_id``, ``entry_id``; ``deliver_at``, the tick in which it is dispatched; ``due_time``, which the message itself
        asks for, null where its entry is lost; both ``timestamp[us, UTC]``.
        """
        import pyarrow as pa

        from pulsar_admin.store.scan.operations import timestamps

        until_ms = self._session.now_ms if until is None else self._session.time_ms(until)
        with self._opened() as (reader, _, _, delivery):
            rows = join_rows(list(delivery.waiting.iter_rows(-LONG_MAX, until_ms + 1)))
            exact = read_due_times(reader, rows)
        places = zip(rows.ledger_ids.tolist(), rows.entry_ids.tolist(), strict=True)
        times = pa.array([exact.get(place) for place in places], pa.int64())
        return pa.table(
            {
                "ledger_id": pa.array(rows.ledger_ids, pa.int64()),
                "entry_id": pa.array(rows.entry_ids, pa.int64()),
                "deliver_at": timestamps(pa.array(rows.times_ms, pa.int64())),
                "due_time": timestamps(times),
            }
        )

    def histogram(self) -> pa.Table:
        """Return how many messages fall due when: ``start`` (timestamp) and ``width_ms`` of a partition of time, ``messages`` in it."""
        import pyarrow as pa

        from pulsar_admin.store.scan.operations import timestamps

        with self._opened() as (_, _, _, delivery):
            loads = delivery.waiting.loads
        return pa.table(
            {
                "start": timestamps(pa.array([load.start_ms for load in loads], pa.int64())),
                "width_ms": pa.array([load.width_ms for load in loads], pa.int64()),
                "messages": pa.array([load.messages for load in loads], pa.int64()),
            }
        )

    def status(self) -> DelayedSummary:
        """Return policy, how many messages are due when, the index and its lag, and what a TTL or quotas drop before it is due.

        ``trackers``: memory and rebuild time of a broker's own, estimated.
        """
        with self._opened() as (reader, topic, cursor, delivery):
            return summarize(reader, topic, cursor, delivery, self._session.now_ms)

    def replay(self, until: Time, *, since: Time | None = None) -> Iterator[Replayed]:
        """Yield what a time wheel dispatches up to UNTIL, a slot at a time: ``dispatch.tick_ms`` and, as arrays, ``dispatch.rows``.

        SINCE leaves out what is due before it. In memory are two partitions of time. The pace is the caller's.
        """
        from pulsar_admin.store.delayed.waiting import iter_replay

        until_ms = self._session.time_ms(until)
        since_ms = None if since is None else self._session.time_ms(since)
        with self._opened() as (_, _, _, delivery):
            yield from iter_replay([delivery.waiting], since_ms, until_ms)

    def verify(self) -> Verified:
        """Compare a broker's buckets and the index with the entries: counts, and ``findings``. Raises InvalidValue (no subscription)."""
        from pulsar_admin.store.delayed.verify import verify_cursor

        name = self._named()
        with self._session.scan() as reader:
            topic = read_topic(reader.txn, self._name)
            return verify_cursor(reader, topic, read_cursor(reader.txn, reader, topic, name))

    def build(self, *, rebuild: bool = False) -> BuildResult:
        """Build the index of the subscription, or bring it up to date; REBUILD makes it anew, whatever there is.

        No change of the audit log: it is derived. Raises NotWritable, InvalidValue (no subscription), Unsupported, DiskFull.
        """
        given_flags(rebuild=rebuild)
        with self._session.read() as txn:
            name = read_topic(txn, self._name).name
        (result,) = DelayedBacklogs(self._session, TopicSelection((name,)), self._named()).build(rebuild=rebuild)
        return result

    def _named(self) -> str:
        if self._subscription is None:
            raise InvalidValue("name a subscription: topic.delayed(subscription)")
        return self._subscription

    @contextmanager
    def _opened(self) -> Iterator[tuple[EntryReader, Topic, Cursor, Delivery]]:
        with self._session.scan() as reader, open_runs() as file:
            topic = read_topic(reader.txn, self._name)
            name = self._subscription
            cursor = cursor_of_nobody(topic) if name is None else read_cursor(reader.txn, reader, topic, name)
            delivery = open_delivery(reader, topic, cursor, file, self._session.now_ms)
            yield reader, topic, cursor, delivery
        if delivery.warning:
            self._session.warn([delivery.warning])
