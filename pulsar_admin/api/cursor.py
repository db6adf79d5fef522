"""The cursor of a subscription: where it stands, what is left, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from pulsar_admin.api.cursors import Cursors
from pulsar_admin.api.given import given_flag
from pulsar_admin.api.session import Place, Session, position_of
from pulsar_admin.store.db.tree import read_node
from pulsar_admin.store.model.cursors import backlog_entries, backlog_size_bytes, read_cursor
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, TopicName, TopicSelection
from pulsar_admin.store.wording import counted, plural

if TYPE_CHECKING:
    from pulsar_admin.api.nacks import Nacks
    from pulsar_admin.api.plan import Plan
    from pulsar_admin.api.transactions import CursorTransactions
    from pulsar_admin.store.recovery.acks import AckState
    from pulsar_admin.store.reports.backlog import BacklogAnalysis
    from pulsar_admin.store.why.subscription import Why


class CursorPlace(Struct, frozen=True):
    """Where the cursor of one topic or partition stands.

    ``mark_delete``: everything through it is acknowledged. ``individually_deleted``: (lower, upper] ranges behind it that are too.
    ``batch_acks``: entry → words of the bit set of its messages that are not yet acknowledged. ``source``: which bytes say so:
    ``metadata``, ``cursor-ledger``, or ``metadata-fallback`` where the cursor ledger is gone. ``backlog_entries`` counts what is
    left, ``backlog_size_bytes`` is the broker's estimate of it. ``stored_mark_delete``: what is stored, where that is ahead of the topic,
    so that a broker starts at ``mark_delete``, its end.
    """

    topic: str
    subscription: str
    mark_delete: Position
    individually_deleted: tuple[tuple[Position, Position], ...]
    batch_acks: Mapping[Position, tuple[int, ...]]
    properties: Mapping[str, int]
    source: str
    backlog_entries: int
    backlog_size_bytes: int
    stored_mark_delete: Position | None = None


class Cursor(Cursors):
    """The cursor of a subscription, of a partitioned topic those of all partitions. Changes are plans: ``Store.apply`` makes them."""

    def __init__(self, session: Session, topic: TopicName, name: str) -> None:
        super().__init__(session, TopicSelection((topic,)), name)
        self._topic = topic

    def __repr__(self) -> str:
        return f"Cursor({str(self._topic)!r}, {self._name!r})"

    # -- reading ------------------------------------------------------------------------------------------------------

    def state(self) -> CursorPlace:
        """Return where it stands; raises TopicNotFound (also for a partitioned topic: ask its partitions), SubscriptionNotFound."""
        with self._session.reader() as reader:
            topic = read_topic(reader.txn, self._topic)
            found = read_cursor(reader.txn, reader, topic, self._name)
        if found.skipped_entries:
            what = counted(found.skipped_entries, "entry")
            self._session.partial([f"{self._name}: the newest {what} of the cursor ledger cannot be read"])
        state = found.state
        return CursorPlace(
            str(topic.name),
            self._name,
            state.mark_delete,
            tuple(state.ranges),
            state.batch_deletes,
            state.properties,
            found.source,
            backlog_entries(topic, state),
            backlog_size_bytes(topic, state.mark_delete),
            found.ahead,
        )

    def analyze(self, start: Place | None = None) -> BacklogAnalysis:
        """Return what is left with upstream's names: entries, messages, first and last of them as text; START: counted from there on.

        Raises TopicNotFound (also for a partitioned topic: ask its partitions), SubscriptionNotFound.
        """
        from pulsar_admin.store.reports.backlog import analyze_backlog, lost_entries, scanned_intervals

        first = None if start is None else position_of(start)
        with self._session.reader() as reader:
            topic = read_topic(reader.txn, self._topic)
            state = read_cursor(reader.txn, reader, topic, self._name).state
            lost = lost_entries(reader.txn, topic, scanned_intervals(topic, state, first))
            found = analyze_backlog(reader.txn, topic, state, first)
            self._session.warn_of_broken(reader.txn, [self._topic])
        if lost:
            entries = counted(lost, "entry", "entries")
            self._session.partial(
                [
                    f"{topic.name}: {entries} of the backlog of {self._name} {plural(lost, 'is', 'are')} in no imported file"
                ]
            )
        return found

    def history(self) -> tuple[AckState, ...]:
        """Return every state of its acknowledgements that is left, the oldest first: ``state``, and ``not_before`` and ``not_after``.

        They are those of its cursor ledgers and metadata, and of the ZooKeeper files that the store was imported from. Raises
        TopicNotFound (also for a partitioned topic: ask its partitions), SubscriptionNotFound.
        """
        with self._session.reader() as reader:
            topic = read_topic(reader.txn, self._topic)
            return tuple(self._past([topic]).states(reader, topic, self._name))

    def why(self) -> Why:
        """Return why it stands where it does: ``held``, and ``reasons``, each with ``code``, ``sentence``, ``evidence``, ``command``.

        Reads the headers of its backlog. Raises TopicNotFound (also for a partitioned topic: ask its partitions), SubscriptionNotFound.
        """
        from pulsar_admin.store.why.subscription import why_subscription

        with self._session.scan() as reader:
            topic = read_topic(reader.txn, self._topic)
            found = why_subscription(
                reader, topic, read_cursor(reader.txn, reader, topic, self._name), self._session.now_ms
            )
            self._session.warn_of_broken(reader.txn, [self._topic])
        return found

    def cursor_info_text(self) -> str:
        """Return the stored ManagedCursorInfo in protobuf's text format; one that names a cursor ledger has the position there.

        Raises as ``state``.
        """
        from pulsar_admin.store.codec.cursor import cursor_info_text

        path = self._topic.cursor_path(self._name)
        with self._session.reader() as reader:
            read_cursor(reader.txn, reader, read_topic(reader.txn, self._topic), self._name)
            return cursor_info_text(read_node(reader.txn, path).value, path)

    def set_mark_delete(self, position: Place, *, force: bool = False) -> Plan:
        """Plan the mark-delete at POSITION, in the metadata; entries behind it that are acknowledged stay so.

        Raises as ``state``, and LedgerNotFound, EntryNotFound, InvalidValue, and unless FORCE Refused for a cursor of the broker's own.
        """
        from pulsar_admin.store.changes.log_writer import plan_mark_delete

        forced, place = given_flag("force", force), position_of(position)
        return self._session.plan(
            lambda reader, now_ms: plan_mark_delete(reader, self._topic, self._name, place, now_ms, force=forced)
        )

    def nacks(self) -> Nacks:
        """Return the negative acks that the store keeps for the subscription."""
        from pulsar_admin.api.nacks import Nacks

        return Nacks(self._session, self._topic, self._name)

    def transactions(self) -> CursorTransactions:
        """Return what the log of the subscription says of transactions that acknowledged on it."""
        from pulsar_admin.api.transactions import CursorTransactions

        return CursorTransactions(self._session, self._topic, self._name)
