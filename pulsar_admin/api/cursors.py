"""Cursors: position and backlog of a subscription in one topic, or in several, which a plan moves all or none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pulsar_admin import arguments
from pulsar_admin.api.plan import Plan, Planner, plan_of
from pulsar_admin.api.session import Given, Session
from pulsar_admin.arguments import Clock, Duration, Place, Time
from pulsar_admin.later import later, laters
from pulsar_admin.store import errors
from pulsar_admin.store.db.clocks import check_clock
from pulsar_admin.store.model import cursors as model
from pulsar_admin.store.model.broken_beside import unseen_position
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import LATEST, TopicName, TopicSelection
from pulsar_admin.store.wording import counted, plural

if TYPE_CHECKING:
    from pulsar_admin.api import pending as api_pending
    from pulsar_admin.store.changes import cursors as cursor_moves
    from pulsar_admin.store.changes import log_writer, resets
    from pulsar_admin.store.changes import subscriptions as subscription_changes
    from pulsar_admin.store.changes.plan import Plan as StorePlan
    from pulsar_admin.store.delayed import expiry_plans
    from pulsar_admin.store.doctor import why as reasons
    from pulsar_admin.store.recovery import ack_history, restore
    from pulsar_admin.store.reports import backlog as backlogs
    from pulsar_admin.store.reports import internal_stats as internals
    from pulsar_admin.store.search import broker_setup, by_time
    from pulsar_admin.store.search.expiry import ExpiryRule
else:
    api_pending = later("pulsar_admin.api.pending")
    cursor_moves, log_writer, resets, subscription_changes = laters(
        "pulsar_admin.store.changes", "cursors log_writer resets subscriptions"
    )
    expiry_plans = later("pulsar_admin.store.delayed.expiry_plans")
    reasons = later("pulsar_admin.store.doctor.why")
    ack_history, restore = laters("pulsar_admin.store.recovery", "ack_history restore")
    backlogs, internals = laters("pulsar_admin.store.reports", "backlog internal_stats")
    broker_setup, by_time = laters("pulsar_admin.store.search", "broker_setup by_time")


class Cursors(Planner):
    """The cursors of one subscription in several topics, or of all subscriptions. Methods that change them return one plan for all.

    Every method raises TopicNotFound, SubscriptionNotFound; plans also Refused for a broker's own cursor, unless ``force`` allows it.
    """

    def __init__(self, session: Session, selection: TopicSelection, name: str | None) -> None:
        self._session = session
        self._selection = selection
        self._name = "" if name is None else arguments.given_text("subscription", name)
        self._means_all = name is None

    @property
    def name(self) -> str:
        """The name of the subscription, empty for all."""
        return self._name

    def backlog(self) -> model.Extent:
        """Return the backlog, over all partitions: entries, messages (batches count theirs), payload bytes.

        Acknowledgements inside a batch are not subtracted, as the broker does.
        """
        with self._session.reader() as reader:
            pending = ((topic, model.pending_intervals(topic, cursor.state)) for topic, cursor in self._cursors(reader))
            return sum((model.extent_of(reader.txn, *one) for one in pending), model.Extent())

    def histories(self, *, zookeeper: Sequence[str] = ()) -> Iterator[tuple[str, ack_history.AckState]]:
        """Yield the topic's name and each past state of its acknowledgements, a topic's oldest first: see
        ``Cursor.history``. Deleted topics are included as far as ZooKeeper's files go back.

        ``zookeeper`` names the files of more servers, ``dataDir[,dataLogDir]``. Raises InvalidValue (for all
        subscriptions), SourceNotFound.
        """
        with self._session.reader() as reader:
            try:
                topics = list(self._session.read_topics(reader, self._selection))
            except errors.TopicNotFound:
                places = arguments.given_places("zookeeper", zookeeper)
                topics = restore.read_deleted_topics(reader, self._selection.topics, places)
                if not topics:
                    raise
            past = self._past(reader, topics, zookeeper)
            for topic in topics:
                yield from ((str(topic.name), state) for state in past.states(reader, topic, self._name))

    def properties(self) -> Mapping[str, str]:
        """Return the properties of the subscription, merged over several topics."""
        properties: dict[str, str] = {}
        with self._session.reader() as reader:
            for _, cursor in self._cursors(reader):
                properties |= cursor.info.shown_properties
        return properties

    def replicated(self) -> Mapping[str, bool]:
        """Return topic → whether the position is replicated between clusters."""
        with self._session.reader() as reader:
            return {str(topic.name): model.is_replicated(cursor) for topic, cursor in self._cursors(reader)}

    # -- plans ---------------------------------------------------------------------------------------------------------

    def reset(
        self,
        *,
        to: Place | None = None,
        time: Time | None = None,
        until: Time | None = None,
        shift_by: int | None = None,
        like: str | None = None,
        as_of: Time | None = None,
        if_unsure: ack_history.IfUnsure = "refuse",
        zookeeper: Sequence[str] = (),
        exclude: bool = False,
        rule: resets.ResetRule = "exact",
        clock: Clock = "auto",
        broker_version: broker_setup.BrokerVersion | None = None,
        max_clock_skew: Duration = "1m",
        force: bool = False,
    ) -> Plan:
        """Plan resetting the cursors to a position, a time, a distance, another subscription, or an earlier state.

        Give exactly one of: ``to``, the position of the first entry to deliver again; ``time``, the first entry at or after it, with
        ``until`` only the entries before the first one at or after that, while all others keep their state; ``shift_by``, that many
        entries further (negative: back); ``like``, the state of another subscription; ``as_of``, the state at a time or one of ``history``
        (its ``name``). ``exclude`` starts after the position. All but ``as_of`` clear individual acknowledgements; ``as_of`` restores
        them: if several states may have been in force then, ``if_unsure`` refuses, redelivers what any of them had left, or skips what any
        had acknowledged (``oldest`` and ``newest`` are older words for these two). ``zookeeper`` names the files of more servers,
        ``dataDir[,dataLogDir]``.

        With ``rule`` ``broker`` the result is that of a live broker with the setting ``max_clock_skew`` (negative: it skips no ledger);
        ``exact`` takes the first entry at or after the time on ``clock``, and only existing positions. Raises InvalidValue (also for a
        ``clock`` of events, which are not indexed), LedgerNotFound, EntryNotFound, Refused (unsure), SourceNotFound (``zookeeper``), and
        NothingMatches: a topic has no entries, the state at ``as_of`` is unknown, no entry is at or after ``time``, so that everything
        would be skipped, or a time counted from now is after the end of an older copy (``force`` allows the latter two).
        """
        errors.check_one(to=to, time=time, shift_by=shift_by, like=like, as_of=as_of)
        if as_of is None and (if_unsure != "refuse" or zookeeper):
            hint = "leave out --if-unsure and --zookeeper, or give --as-of"
            raise errors.InvalidValue("only an earlier state may be unsure or come from other files", hint=hint)
        if as_of is not None and (exclude or until is not None):
            hint = "leave out --exclude-reset-position and --until"
            raise errors.InvalidValue("an earlier state has positions of its own", hint=hint)
        if as_of is not None:
            return self._back_to(as_of, if_unsure, zookeeper, force=force)
        broker = broker_of(self._session, broker_version, max_clock_skew, self._session.clock_ms)
        request = resets.ResetRequest(self._session.clock_ms, rule, clock, broker, force)
        time_ms, until_ms = (None if one is None else self._session.time_ms(one, changes=True) for one in (time, until))
        position = None if to is None else arguments.position_of(to)
        target = resets.reset_target(
            time_ms=time_ms, position=position, shift_by=shift_by, like=like, exclude=exclude, until_ms=until_ms
        )
        with self._session.reader() as reader:
            cursors = self._cursors(reader, by_time=time is not None, is_replaced=force and to is not None)
            return resets_plan(self._session, reader, resets.resets_to(target, cursors), request)

    def skip(self, count: int, *, force: bool = False) -> Plan:
        """Plan skipping the next ``count`` unacknowledged entries of each topic or partition (a batch is one); raises InvalidValue."""
        return self._plan(cursor_moves.plan_skip, count, force)

    def clear(self, *, force: bool = False) -> Plan:
        """Plan skipping the whole backlog."""
        return self._plan(partial(cursor_moves.plan_clear, force=force), cursor_moves.CLEAR_BACKLOG)

    def expire(
        self,
        *,
        before: Time | None = None,
        to: Place | None = None,
        by_ttl: bool = False,
        exclude: bool = False,
        rule: ExpiryRule = "all-before",
        clock: Clock = "auto",
        broker_version: broker_setup.BrokerVersion | None = None,
        max_clock_skew: Duration = "1m",
        force: bool = False,
    ) -> Plan:
        """Plan dropping the backlog older than ``before``, up to a position (``to``; with ``exclude`` it stays), or by the TTL in force.

        With ``rule`` ``all-before`` nothing younger than the limit is dropped; ``broker`` does as a live broker, see
        ``reset``. The preview warns of delayed messages that are dropped before they are due. Raises InvalidValue (as
        ``reset``), LedgerNotFound, EntryNotFound, and NothingMatches: no TTL, a topic without entries, nothing older than
        ``before``, or a whole copy older than a ``before`` counted from now; ``force`` allows the latter two.
        """
        errors.check_one(before=before, to=to, by_ttl=by_ttl or None)
        if exclude and to is None:
            raise errors.InvalidValue("only a position can be excluded", hint="leave out --exclude-reset-position")
        limit: resets.Limit = resets.ByTtl()
        if to is not None:
            limit = resets.UpTo(arguments.position_of(to), exclude)
        elif before is not None:
            limit = resets.Before(self._session.time_ms(before, changes=True))
        broker = broker_of(self._session, broker_version, max_clock_skew, self._session.clock_ms)
        request = resets.ExpiryRequest(self._session.clock_ms, limit, rule, check_clock(clock), broker, force)
        kind = expiry_plans.EXPIRE_ALL if self._means_all else expiry_plans.EXPIRE
        with self._session.scan() as reader:
            cursors = self._cursors(reader, by_time=to is None)
            if to is None:
                _warn_of_clock(self._session, reader, clock, (topic for topic, _ in cursors))
            return plan_of(expiry_plans.plan_expiries(reader, kind, cursors, request), reader.txn)

    def forecast(
        self,
        ahead: Duration,
        *,
        ttl: Duration | None = None,
        interval: Duration | None = None,
        rule: ExpiryRule = "all-before",
        clock: Clock = "auto",
        broker_version: broker_setup.BrokerVersion | None = None,
        max_clock_skew: Duration = "1m",
    ) -> tuple[expiry_plans.Forecast, ...]:
        """Return which entries a TTL (default: the one in force) will drop from each cursor from now until ``ahead``.

        ``rows`` has one row per ``interval`` (default: a 24th of ``ahead``), times in ms: the first row is overdue
        already (``from_ms`` None), the last is left afterwards (``to_ms`` None). Cursors without a TTL are left out.
        Raises InvalidValue (also for more than 1,000 rows), NothingMatches (no TTL at all).
        """
        ahead_ms, now_ms = arguments.duration_ms(ahead), self._session.now_ms
        interval_ms = None if interval is None else arguments.duration_ms(interval)
        limit = resets.ByTtl() if ttl is None else resets.Before(now_ms - arguments.duration_ms(ttl))
        request = resets.ExpiryRequest(
            now_ms, limit, rule, check_clock(clock), broker_of(self._session, broker_version, max_clock_skew, now_ms)
        )
        with self._session.scan() as reader:
            cursors = self._cursors(reader)
            _warn_of_clock(self._session, reader, clock, (topic for topic, _ in cursors))
            forecasts = tuple(expiry_plans.forecast_expiries(reader, cursors, request, ahead_ms, interval_ms))
        self._session.warn(text for one in forecasts for text in one.warnings)
        return forecasts

    def create(
        self, *, start: Place = LATEST, replicated: bool = False, properties: Mapping[str, str] | None = None
    ) -> Plan:
        """Plan creating the subscription at ``start`` in all topics; raises AlreadyExists, LedgerNotFound, EntryNotFound, InvalidValue."""
        self._check_named()
        place = arguments.position_of(start)
        new = subscription_changes.NewSubscription(self._name, place, replicated, properties or {})
        with self._session.reader() as reader:
            topics = list(self._session.read_topics(reader, self._selection))
            return plan_of(subscription_changes.plan_create(reader, topics, new, self._session.clock_ms), reader.txn)

    def delete(self, *, force: bool = False) -> Plan:
        """Plan removing the subscription, from all partitions."""
        make = partial(subscription_changes.plan_unsubscribe, force=force)
        return self._plan(make, subscription_changes.UNSUBSCRIBE, is_replaced=force)

    def set_properties(self, properties: Mapping[str, str]) -> Plan:
        """Plan setting the properties of the subscription in place of those it has; raises InvalidValue."""
        return self._plan(subscription_changes.plan_subscription_properties, properties)

    def set_replicated(self, replicated: bool) -> Plan:
        """Plan letting clusters share the position, or not."""
        return self._plan(subscription_changes.plan_replicated, replicated)

    def _back_to(self, as_of: Time, if_unsure: ack_history.IfUnsure, zookeeper: Sequence[str], *, force: bool) -> Plan:
        is_name = isinstance(as_of, str) and ack_history.is_state_name(as_of)
        at = str(as_of) if is_name else self._session.time_ms(as_of, changes=True)
        now_ms = self._session.clock_ms
        with self._session.reader() as reader:
            if isinstance(at, int) and not force:
                resets.check_now_is_meant(reader, at, now_ms)
            cursors = self._cursors(reader)
            past = self._past(reader, [topic for topic, _ in cursors], zookeeper, times=isinstance(at, int))
            wanted = ack_history.WantedState(at, if_unsure, past, force)
            return plan_of(ack_history.plan_as_of(reader, cursors, wanted, now_ms), reader.txn)

    def _past(
        self, reader: EntryReader, topics: Collection[Topic], zookeeper: Sequence[str] = (), *, times: bool = True
    ) -> ack_history.CursorHistory:
        """Return the cursor's history, with ``times`` also when its states were written; unreadable parts give a warning."""
        self._check_named()
        places, progress = arguments.given_places("zookeeper", zookeeper), self._session.progress if times else None
        past = ack_history.read_history(reader, self._name, topics, places, progress)
        self._session.warn(past.problems)
        return past

    def _plan(
        self,
        make: Callable[[EntryReader, *Given, list[tuple[Topic, model.Cursor]], int], StorePlan],
        *given: *Given,
        is_replaced: bool = False,
    ) -> Plan:
        """Return the plan that ``make`` returns for the selected cursors."""
        with self._session.reader() as reader:
            cursors = self._cursors(reader, is_replaced=is_replaced)
            return plan_of(make(reader, *given, cursors, self._session.clock_ms), reader.txn)

    def _cursors(
        self, reader: EntryReader, *, by_time: bool = False, is_replaced: bool = False
    ) -> list[tuple[Topic, model.Cursor]]:
        """Return the selected cursors, with ``is_replaced`` also unreadable ones.

        Raises NothingMatches for a move by time in a single topic without entries.
        """
        name = None if self._means_all else self._name
        selected = list(self._session.iter_cursors(reader, self._selection, name, is_replaced=is_replaced))
        topics = {topic for topic, _ in selected}
        if by_time and self._selection.single is not None and len(topics) == 1:
            resets.check_has_times(*topics)
        return selected

    def _check_named(self) -> None:
        if self._means_all:
            raise errors.InvalidValue("name the subscription: all are meant")


def broker_of(
    session: Session, version: broker_setup.BrokerVersion | None, max_clock_skew: Duration, now_ms: int
) -> broker_setup.BrokerSetup:
    """Return the broker that the arguments of ``Cursors.reset`` describe; raises InvalidValue."""
    skew_ms = arguments.duration_ms(max_clock_skew, allow_negative=True)
    return broker_setup.BrokerSetup(session.ask(broker_setup.version_of, version), skew_ms, now_ms)


def _warn_of_clock(session: Session, reader: EntryReader, clock: str, topics: Iterable[Topic]) -> None:
    """Warn of entries that have no time on the clock."""
    for topic in dict.fromkeys(topics):
        session.warn(by_time.texts_of_clock(reader, topic, clock))


def resets_plan(
    session: Session, reader: EntryReader, chosen: Iterable[resets.Reset], request: resets.ResetRequest
) -> Plan:
    """Return the plan of resets; warns if entries have no time on the deciding clock. Raises as ``plan_resets``."""
    listed = list(chosen)
    timed = (one.topic for one in listed if request.goes_by_clock(one.target))
    _warn_of_clock(session, reader, request.clock, timed)
    return plan_of(resets.plan_resets(reader, listed, request), reader.txn)


class Cursor(Cursors):
    """The cursor of a subscription; for a partitioned topic, those of all partitions. Methods that change it return a plan.

    Every method raises TopicNotFound, SubscriptionNotFound; plans also Refused for a broker's own cursor, unless ``force`` allows it.
    """

    def __init__(self, session: Session, topic: TopicName, name: str) -> None:
        super().__init__(session, TopicSelection((topic,)), name)
        self._topic = topic

    # -- reading ------------------------------------------------------------------------------------------------------

    def state(self) -> model.CursorPlace:
        """Return the cursor's position; also raises TopicNotFound for a partitioned topic, whose partitions have positions."""
        topic, cursor = self._session.ask_entries(model.read_topic_cursor, self._topic, self._name)
        if cursor.skipped_entries:
            what = counted(cursor.skipped_entries, "entry")
            self._session.partial([f"{self._name}: the newest {what} of the cursor ledger cannot be read"])
        return model.place_of(topic, cursor)

    def analyze(self, start: Place | None = None) -> backlogs.BacklogAnalysis:
        """Return the backlog from ``start`` under upstream's names: entries, messages, first and last entry; raises as ``state``."""
        first = None if start is None else arguments.position_of(start)
        with self._session.reader() as reader:
            topic, cursor = model.read_topic_cursor(reader, self._topic, self._name)
            analysis = backlogs.analyze_backlog(reader.txn, topic, cursor.state, first)
            self._session.warn_of_broken(reader.txn, [self._topic])
            if unseen := unseen_position(reader.txn, cursor):
                self._session.partial([f"{topic.name}: {unseen}"])
        if lost := analysis.uncounted_entries:
            entries = f"{counted(lost, 'entry', 'entries')} of the backlog of {self._name}"
            self._session.partial([f"{topic.name}: {entries} {plural(lost, 'is', 'are')} in no imported file"])
        return analysis

    def history(self) -> tuple[ack_history.AckState, ...]:
        """Return every known state of its acknowledgements, the oldest first: ``state``, ``not_before`` and ``not_after``.

        They come from its cursor ledgers and metadata, and from the ZooKeeper files that the store was imported from. Raises as ``state``.
        """
        with self._session.reader() as reader:
            topic = read_topic(reader.txn, self._topic)
            return tuple(self._past(reader, [topic]).states(reader, topic, self._name))

    def why(self) -> reasons.Why:
        """Return why it is at its position: ``held``, and ``reasons``, each with ``code``, ``sentence``, ``evidence``, ``command``.

        Reads the headers of its backlog. Raises as ``state``.
        """
        with self._session.scan() as reader:
            topic_cursor = model.read_topic_cursor(reader, self._topic, self._name)
            why = reasons.why_subscription(reader, *topic_cursor, self._session.now_ms)
            self._session.warn_of_broken(reader.txn, [self._topic])
            return why

    def cursor_info_text(self) -> str:
        """Return the stored ManagedCursorInfo as protobuf text, with the position of the cursor ledger it names; raises as ``state``."""
        return self._session.ask_entries(internals.stored_cursor_text, self._topic, self._name)

    def set_mark_delete(self, position: Place, *, force: bool = False) -> Plan:
        """Plan the mark-delete at ``position``, in the metadata; later acknowledged entries stay acknowledged.

        Raises as ``state``, and LedgerNotFound, EntryNotFound, InvalidValue.
        """
        place = arguments.position_of(position)
        return self._planned(log_writer.plan_mark_delete, self._topic, self._name, place, force)

    def nacks(self) -> api_pending.Nacks:
        """Return the negative acks that the store keeps for the subscription."""
        return api_pending.Nacks(self._session, self._topic, self._name)

    def transactions(self) -> api_pending.CursorTransactions:
        """Return the transactions that acknowledged on the subscription, from its pending-ack log."""
        return api_pending.CursorTransactions(self._session, self._topic, self._name)
