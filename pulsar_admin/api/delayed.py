"""The delayed messages that a subscription waits for: what falls due when, and what it costs. Imports numpy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pulsar_admin.api.session import Session, Time
from store.db.delayed_entries import join_rows
from store.delayed.backlog import cursor_of_nobody, read_due_times
from store.delayed.runs import open_runs
from store.delayed.summary import DelayedSummary, Delivery, open_delivery, summarize
from store.errors import InvalidValue
from store.model.cursors import Cursor, read_cursor
from store.model.reader import EntryReader, open_reader
from store.model.topics import Topic, read_topic
from store.names import LONG_MAX, TopicName
from store.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from store.delayed.build import BuildResult
    from store.delayed.replay import Replayed
    from store.delayed.verify import Verified


class Delayed:
    """A delayed backlog: from the index of ``delayed build`` where that is current, else from the topic's entries.

    Whether a subscription is Shared or Key_Shared is not on disk; Exclusive and Failover ignore delays. All methods raise
    TopicNotFound (also for a partitioned topic), SubscriptionNotFound, IndexCorrupt, DiskFull (large backlogs are sorted on disk).
    """

    def __init__(self, session: Session, name: TopicName, subscription: str | None) -> None:
        self._session = session
        self._name = name
        self._subscription = subscription

    def due(self, until: Time | None = None) -> pa.Table:
        """Return what a broker would dispatch up to UNTIL (default: now), in its order, one row per message.

        Columns: ``ledger_id``, ``entry_id``; ``deliver_at``, the tick in which it is dispatched; ``due_time``, which the message itself
        asks for, null where its entry is lost; both ``timestamp[us, UTC]``.
        """
        import pyarrow as pa

        from store.scan.message_rows import timestamps

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

        from store.scan.message_rows import timestamps

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
        from store.delayed.replay import iter_replay

        until_ms = self._session.time_ms(until)
        since_ms = None if since is None else self._session.time_ms(since)
        with self._opened() as (_, _, _, delivery):
            yield from iter_replay([delivery.waiting], since_ms, until_ms)

    def verify(self) -> Verified:
        """Compare a broker's buckets and the index with the entries: counts, and ``findings``. Raises InvalidValue (no subscription)."""
        from store.delayed.verify import verify_cursor

        name = self._named()
        with self._session.scan() as reader:
            topic = read_topic(reader.txn, self._name)
            return verify_cursor(reader, topic, read_cursor(reader.txn, reader, topic, name))

    def build(self, *, rebuild: bool = False) -> BuildResult:
        """Build the index of the subscription, or bring it up to date; REBUILD makes it anew, whatever there is.

        No change of the audit log: it is derived. Raises NotWritable, InvalidValue (no subscription), Unsupported, DiskFull.
        """
        from store.delayed.build import Wanted, apply_draft, draft_index, finish_draft, read_drafts, result_of

        name = self._named()
        with self._session.engine([]) as engine, self._session.writing() as store, open_runs() as file:
            with open_reader(store, engine) as reader:
                topic = read_topic(reader.txn, self._name)
                wanted = Wanted.of(topic, read_cursor(reader.txn, reader, topic, name))
                draft = draft_index(reader, wanted, self._session.now_ms, file, rebuild=rebuild)
                read_drafts([draft])
                finish_draft(draft)
            result = result_of(draft, apply_draft(store, draft))
        lost = result.missing + result.unreadable
        if lost:
            self._session.partial(
                [
                    f"{self._name} {name}: {counted(lost, 'entry that waits is', 'entries that wait are')} lost or damaged"
                ]
            )
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
