"""Cursors: the position and backlog of a subscription in one topic; in several topics as one, where a plan moves
all or none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pulsar_admin import arguments
from pulsar_admin.api.plan import Plan, Planner, plan_of
from pulsar_admin.api.session import Session
from pulsar_admin.arguments import Clock, Duration, Place, Time
from pulsar_admin.later import later
from pulsar_admin.store import errors
from pulsar_admin.store.db.clocks import check_clock
from pulsar_admin.store.db.tree import read_node
from pulsar_admin.store.model.cursors import Cursor as CursorModel
from pulsar_admin.store.model.cursors import (
    Extent,
    backlog_entries,
    backlog_size_bytes,
    extent_of,
    is_replicated,
    pending_intervals,
    read_cursor,
)
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic as TopicModel
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import EARLIEST, LATEST, Position, TopicName, TopicSelection
from pulsar_admin.store.wording import Answer, counted, plural

if TYPE_CHECKING:
    from pulsar_admin.api.pending import CursorTransactions, Nacks
    from pulsar_admin.store.changes import cursors as cursor_moves
    from pulsar_admin.store.changes import resets as resetting
    from pulsar_admin.store.changes import subscriptions as subscription_changes
    from pulsar_admin.store.changes.plan import ChangeKind
    from pulsar_admin.store.changes.plan import Plan as StorePlan
    from pulsar_admin.store.changes.resets import Reset, ResetRequest, ResetRule
    from pulsar_admin.store.codec.cursor import CursorState
    from pulsar_admin.store.delayed.expiry_plans import Forecast
    from pulsar_admin.store.doctor.why_subscription import Why
    from pulsar_admin.store.recovery.ack_history import AckState, CursorHistory, IfUnsure
    from pulsar_admin.store.reports.backlog import BacklogAnalysis
    from pulsar_admin.store.search.broker_setup import BrokerSetup, BrokerVersion
    from pulsar_admin.store.search.expiry import ExpiryRule
else:
    cursor_moves = later("pulsar_admin.store.changes.cursors")
    resetting = later("pulsar_admin.store.changes.resets")
    subscription_changes = later("pulsar_admin.store.changes.subscriptions")


Moved = Callable[[TopicModel, "CursorState"], "CursorState"]


class Cursors(Planner):
    """The cursors of one subscription in several topics, or of all subscriptions. Methods that change them return one plan for
    all, for ``Store.apply``.

    Every method raises TopicNotFound, SubscriptionNotFound; plans also Refused for a cursor of the broker's own, which ``force`` allows
    where a plan has it.
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

    def backlog(self) -> Extent:
        """Return the backlog, over all partitions: entries, messages (batches count theirs), payload bytes.

        Acknowledgements inside a batch are not subtracted, as the broker does.
        """
        total = Extent()
        with self._session.reader() as reader:
            for topic, cursor in self._cursors(reader):
                total += extent_of(reader.txn, topic, pending_intervals(topic, cursor.state))
        return total

    def histories(self, *, zookeeper: Sequence[str] = ()) -> Iterator[tuple[str, AckState]]:
        """Yield the topic's name and each past state of its acknowledgements, a topic's oldest first: see
        ``Cursor.history``. Deleted topics are included as far as ZooKeeper's files go back.

        ``zookeeper`` names the files of more servers, ``dataDir[,dataLogDir]``. Raises InvalidValue (for all
        subscriptions), SourceNotFound.
        """
        with self._session.reader() as reader:
            try:
                topics = list(self._session.read_topics(reader, self._selection))
            except errors.TopicNotFound:
                topics = self._deleted_topics(reader, zookeeper)
                if not topics:
                    raise
            past = self._past(reader, topics, zookeeper)
            for topic in topics:
                yield from ((str(topic.name), state) for state in past.states(reader, topic, self._name))

    def properties(self) -> Mapping[str, str]:
        """Return the properties of the subscription, of several topics together."""
        properties: dict[str, str] = {}
        with self._session.reader() as reader:
            for _, cursor in self._cursors(reader):
                properties |= subscription_changes.shown_properties(cursor.info.cursor_properties)
        return properties

    def replicated(self) -> Mapping[str, bool]:
        """Return by topic whether clusters share the position."""
        with self._session.reader() as reader:
            return {str(topic.name): is_replicated(cursor) for topic, cursor in self._cursors(reader)}

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
        if_unsure: IfUnsure = "refuse",
        zookeeper: Sequence[str] = (),
        exclude: bool = False,
        rule: ResetRule = "exact",
        clock: Clock = "auto",
        broker_version: BrokerVersion | None = None,
        max_clock_skew: Duration = "1m",
        force: bool = False,
    ) -> Plan:
        """Plan resetting the cursors to a position, a time, a distance, another subscription, or an earlier state.

        Give exactly one of: ``to``, the position of the first entry to deliver again; ``time``, the first entry at or
        after it, with ``until`` only the entries before the first one at or after that, while all others keep their
        state; ``shift_by``, that many entries further (negative: back); ``like``, the state of another
        subscription; ``as_of``, the state at a time or one of ``history`` (its ``name``). ``exclude`` starts after the
        position. All but ``as_of`` clear individual acknowledgements; ``as_of`` restores them: if several states may
        have been in force then, ``if_unsure`` refuses, redelivers what any of them had left, or skips what any had acknowledged
        (``oldest`` and ``newest`` are older words for these two). ``zookeeper`` names the files of more servers,
        ``dataDir[,dataLogDir]``.

        With ``rule`` ``broker`` the result is that of a live broker with the setting ``max_clock_skew`` (negative:
        it skips no ledger); ``exact`` takes the first entry at or after the time on ``clock``, and only
        existing positions. Raises InvalidValue (also for a ``clock`` of events, which are not indexed), LedgerNotFound,
        EntryNotFound, Refused (unsure), SourceNotFound (``zookeeper``), and NothingMatches: a topic has no entries,
        the state at ``as_of`` is unknown, no entry is at or after ``time``, so that everything would be skipped, or a time
        counted from now is after the end of an older copy (``force`` allows the latter two).
        """
        errors.check_one(to=to, time=time, shift_by=shift_by, like=like, as_of=as_of)
        if as_of is not None:
            if exclude or until is not None:
                hint = "leave out --exclude-reset-position and --until"
                raise errors.InvalidValue("an earlier state has positions of its own", hint=hint)
            return self._back_to(as_of, if_unsure, zookeeper, force=force)
        if if_unsure != "refuse" or zookeeper:
            hint = "leave out --if-unsure and --zookeeper, or give --as-of"
            raise errors.InvalidValue("only an earlier state may be unsure or come from other files", hint=hint)
        broker = broker_of(self._session, broker_version, max_clock_skew, self._session.clock_ms)
        request = resetting.ResetRequest(self._session.clock_ms, rule, clock, broker, force)
        target = resetting.reset_target(
            time_ms=None if time is None else self._session.time_ms(time, changes=True),
            position=None if to is None else arguments.position_of(to),
            shift_by=shift_by,
            like=like,
            exclude=exclude,
            until_ms=None if until is None else self._session.time_ms(until, changes=True),
        )
        with self._session.reader() as reader:
            cursors = self._cursors(reader, by_time=time is not None, is_replaced=force and to is not None)
            resets = resetting.resets_to(target, cursors)
            return resets_plan(self._session, reader, resets, request)

    def skip(self, count: int, *, force: bool = False) -> Plan:
        """Plan skipping the next ``count`` unacknowledged entries of each topic or partition; a batch counts as one.

        Raises InvalidValue.
        """
        if count < 0:
            raise errors.InvalidValue(f"skip {count}: a number of entries is 0 or more")
        return self._plan(
            cursor_moves.SKIP, lambda topic, state: cursor_moves.skipped(topic, state, count), force=force
        )

    def clear(self, *, force: bool = False) -> Plan:
        """Plan skipping the whole backlog."""
        return self._plan(cursor_moves.CLEAR_BACKLOG, cursor_moves.cleared, force=force)

    def expire(
        self,
        *,
        before: Time | None = None,
        to: Place | None = None,
        by_ttl: bool = False,
        exclude: bool = False,
        rule: ExpiryRule = "all-before",
        clock: Clock = "auto",
        broker_version: BrokerVersion | None = None,
        max_clock_skew: Duration = "1m",
        force: bool = False,
    ) -> Plan:
        """Plan dropping the backlog older than ``before``, up to a position (``to``; with ``exclude`` it stays), or
        by the TTL in force.

        With ``rule`` ``all-before`` nothing younger than the limit is dropped; ``broker`` does as a live broker, see
        ``reset``. The preview warns of delayed messages that are dropped before they are due. Raises InvalidValue (as
        ``reset``), LedgerNotFound, EntryNotFound, and NothingMatches: no TTL, a topic without entries, nothing older than
        ``before``, or a whole copy older than a ``before`` counted from now; ``force`` allows the latter two.
        """
        from pulsar_admin.store.delayed.expiry_plans import EXPIRE, EXPIRE_ALL, plan_expiries

        errors.check_one(before=before, to=to, by_ttl=by_ttl or None)
        if exclude and to is None:
            raise errors.InvalidValue("only a position can be excluded", hint="leave out --exclude-reset-position")
        limit: resetting.Limit = resetting.ByTtl()
        if to is not None:
            limit = resetting.UpTo(arguments.position_of(to), exclude)
        elif before is not None:
            limit = resetting.Before(self._session.time_ms(before, changes=True))
        broker = broker_of(self._session, broker_version, max_clock_skew, self._session.clock_ms)
        request = resetting.ExpiryRequest(self._session.clock_ms, limit, rule, check_clock(clock), broker, force)
        kind = EXPIRE_ALL if self._means_all else EXPIRE
        with self._session.scan() as reader:
            cursors = self._cursors(reader, by_time=to is None)
            if to is None:
                self._warn_of_clock(reader, clock, cursors)
            return plan_of(plan_expiries(reader, kind, cursors, request), reader.txn)

    def forecast(
        self,
        ahead: Duration,
        *,
        ttl: Duration | None = None,
        interval: Duration | None = None,
        rule: ExpiryRule = "all-before",
        clock: Clock = "auto",
        broker_version: BrokerVersion | None = None,
        max_clock_skew: Duration = "1m",
    ) -> tuple[Forecast, ...]:
        """Return which entries a TTL (default: the one in force) will drop from each cursor from now until
        ``ahead``.

        ``rows`` has one row per ``interval`` (default: a 24th of ``ahead``), times in ms: the first row is overdue
        already (``from_ms`` None), the last is left afterwards (``to_ms`` None). Cursors without a TTL are left out.
        Raises InvalidValue (also for more than 1,000 rows), NothingMatches (no TTL at all).
        """
        from pulsar_admin.store.delayed.expiry_plans import forecast_expiries

        ahead_ms, now_ms = arguments.duration_ms(ahead), self._session.now_ms
        interval_ms = None if interval is None else arguments.duration_ms(interval)
        limit = resetting.ByTtl() if ttl is None else resetting.Before(now_ms - arguments.duration_ms(ttl))
        request = resetting.ExpiryRequest(
            now_ms, limit, rule, check_clock(clock), broker_of(self._session, broker_version, max_clock_skew, now_ms)
        )
        with self._session.scan() as reader:
            cursors = self._cursors(reader)
            self._warn_of_clock(reader, clock, cursors)
            forecasts = tuple(forecast_expiries(reader, cursors, request, ahead_ms, interval_ms))
        self._session.warn(text for one in forecasts for text in one.warnings)
        return forecasts

    def create(
        self, *, start: Place = LATEST, replicated: bool = False, properties: Mapping[str, str] | None = None
    ) -> Plan:
        """Plan creating the subscription at ``start`` in all topics; raises AlreadyExists, LedgerNotFound, EntryNotFound, InvalidValue."""
        first = arguments.position_of(start)
        self._check_named()

        def make(reader: EntryReader, now_ms: int) -> StorePlan:
            topics = list(self._session.read_topics(reader, self._selection))
            if first not in (EARLIEST, LATEST) and len(topics) > 1:
                raise errors.InvalidValue(
                    f"position {first} is in one of {len(topics)} topics", hint="use earliest or latest"
                )
            for topic in topics:
                resetting.check_position(topic, first, "")
            made = subscription_changes.NewSubscription(self._name, first, replicated, properties or {})
            return subscription_changes.plan_create(reader, topics, made, now_ms)

        return self._planned(make)

    def delete(self, *, force: bool = False) -> Plan:
        """Plan removing the subscription, from all partitions."""
        return self._planned(
            lambda reader, now_ms: subscription_changes.plan_unsubscribe(
                reader, subscription_changes.UNSUBSCRIBE, self._cursors(reader, is_replaced=force), now_ms, force=force
            )
        )

    def set_properties(self, properties: Mapping[str, str]) -> Plan:
        """Plan setting the properties of the subscription in place of those it has; raises InvalidValue."""
        return self._planned(
            lambda reader, now_ms: subscription_changes.plan_subscription_properties(
                reader, self._cursors(reader), properties, now_ms
            )
        )

    def set_replicated(self, replicated: bool) -> Plan:
        """Plan letting clusters share the position, or not."""
        return self._planned(
            lambda reader, now_ms: subscription_changes.plan_replicated(
                reader, self._cursors(reader), replicated, now_ms
            )
        )

    def _back_to(self, as_of: Time, if_unsure: IfUnsure, zookeeper: Sequence[str], *, force: bool) -> Plan:
        from pulsar_admin.store.recovery.ack_history import IfUnsure, WantedState, is_state_name, plan_as_of

        errors.check_choice("if_unsure", if_unsure, IfUnsure)
        is_name = isinstance(as_of, str) and is_state_name(as_of)
        at = str(as_of) if is_name else self._session.time_ms(as_of, changes=True)
        with self._session.reader() as reader:
            if isinstance(at, int) and not force:
                resetting.check_now_is_meant(reader, at, self._session.clock_ms)
            cursors = self._cursors(reader)
            past = self._past(reader, [topic for topic, _ in cursors], zookeeper, times=isinstance(at, int))
            wanted = WantedState(at, if_unsure, past, force)
            plan = plan_as_of(reader, cursors, wanted, self._session.clock_ms)
            return plan_of(plan, reader.txn)

    def _past(
        self, reader: EntryReader, topics: Collection[TopicModel], zookeeper: Sequence[str] = (), *, times: bool = True
    ) -> CursorHistory:
        """Return the cursor's history in the store's ZooKeeper files; unreadable parts give a warning.

        With ``times``, also the times at which its states were written, from journals and entry logs.
        """
        from pulsar_admin.store.recovery.ack_history import find_cursor_history
        from pulsar_admin.store.recovery.journal_times import journals_of, logs_of, read_flush_times, read_write_times

        self._check_named()
        with self._session.opened() as store:
            paths = [one.name.cursor_path(self._name) for one in topics]
            past = find_cursor_history(store.info.sources, arguments.given_places("zookeeper", zookeeper), paths)
            ledgers = {one for topic in topics for one in past.ledgers(reader.txn, topic, self._name)} if times else ()
            if ledgers:
                journals, logs = journals_of(reader.txn), logs_of(reader.txn, ledgers)
                total = sum(journals.values()) + sum(log.size_bytes for log in logs)
                with self._session.progress(total, "bytes", "journals and entry logs") as advance:
                    past.writes = (
                        read_write_times(journals, ledgers, advance),
                        read_flush_times(logs, store.path, advance),
                    )
        self._session.warn(past.problems)
        return past

    def _deleted_topics(self, reader: EntryReader, zookeeper: Sequence[str]) -> list[TopicModel]:
        """Return the topics that are named, as they were when they were deleted; none if the ZooKeeper files do not say so."""
        from pulsar_admin.store.history.servers import find_servers
        from pulsar_admin.store.recovery.deleted_nodes import read_past
        from pulsar_admin.store.recovery.restore import keep_of, read_deleted_topics

        names = self._selection.topics
        with suppress(errors.Refused, errors.TopicNotFound):
            servers = find_servers(reader.txn.store.info.sources, arguments.given_places("zookeeper", zookeeper))
            past = read_past(servers, keep_of(name.namespace for name in names))
            return [topic for name in names for topic in read_deleted_topics(reader, past, name)]
        return []

    def _plan(self, kind: ChangeKind, moved: Moved, *, force: bool) -> Plan:
        def make(reader: EntryReader, now_ms: int) -> StorePlan:
            cursors = self._cursors(reader)
            moves = [cursor_moves.CursorMove(*one, moved(one[0], one[1].state), force=force) for one in cursors]
            return cursor_moves.plan_moves(reader, kind, moves, now_ms)

        return self._planned(make)

    def _cursors(
        self, reader: EntryReader, *, by_time: bool = False, is_replaced: bool = False
    ) -> list[tuple[TopicModel, CursorModel]]:
        """Return the selected cursors, with ``is_replaced`` also unreadable ones.

        Raises NothingMatches for a move by time in a single topic without entries.
        """
        name = None if self._means_all else self._name
        selected = list(self._session.iter_cursors(reader, self._selection, name, is_replaced=is_replaced))
        if by_time:
            _check_entries(self._selection, [*dict.fromkeys(topic for topic, _ in selected)])
        return selected

    def _check_named(self) -> None:
        if self._means_all:
            raise errors.InvalidValue("name the subscription: all are meant")

    def _warn_of_clock(
        self, reader: EntryReader, clock: Clock, cursors: Iterable[tuple[TopicModel, CursorModel]]
    ) -> None:
        from pulsar_admin.store.search.by_time import texts_of_clock

        for topic in dict.fromkeys(topic for topic, _ in cursors):
            self._session.warn(texts_of_clock(reader, topic, clock))


def _check_entries(selection: TopicSelection, topics: Sequence[TopicModel]) -> None:
    if len(topics) == 1 and selection.single is not None and not topics[0].number_of_entries:
        raise errors.NothingMatches(
            f"{topics[0].name} has no entries, so it has no times",
            hint="list topics and their entries with: pulsar-admin topics stats --all-topics",
            topic=str(topics[0].name),
        )


def broker_of(session: Session, version: BrokerVersion | None, max_clock_skew: Duration, now_ms: int) -> BrokerSetup:
    """Return the live broker that is meant, by the arguments of ``Cursors.reset``; raises InvalidValue."""
    from pulsar_admin.store.search.broker_setup import BrokerSetup

    return BrokerSetup(session.broker_version(version), arguments.duration_ms(max_clock_skew), now_ms)


_LINE_KEYS = {"to": "messageId", "shift_by": "shiftBy", "like": "toSubscription"}


def reset_line(session: Session, row: str | Mapping[str, object]) -> str:
    """Return ``row`` of ``Store.reset_cursors`` as a line of JSON; raises InvalidValue."""
    if not isinstance(row, Mapping):
        return arguments.given_text("line", row)
    line: dict[str, object] = {_LINE_KEYS.get(name, name): value for name, value in row.items()}
    if isinstance(place := line.get("messageId"), Position):
        line["messageId"] = str(arguments.position_of(place))
    if isinstance(moment := line.get("time"), (datetime, timedelta)):
        line["time"] = int(session.time_ms(moment, changes=True))
    try:
        return json.dumps(line)
    except TypeError as error:
        raise errors.InvalidValue(f"{row!r} says no reset: {error}") from error


def resets_plan(session: Session, reader: EntryReader, resets: Iterable[Reset], request: ResetRequest) -> Plan:
    """Return the plan of resets; warns if entries have no time on the deciding clock. Raises as ``plan_resets``."""
    from pulsar_admin.store.search.by_time import texts_of_clock

    def warned() -> Iterator[Reset]:
        for reset in resets:
            if request.goes_by_clock(reset.target):
                session.warn(texts_of_clock(reader, reset.topic, request.clock))
            yield reset

    return plan_of(resetting.plan_resets(reader, warned(), request), reader.txn)


class CursorPlace(Answer, frozen=True):
    """A cursor's position in one topic or partition.

    ``mark_delete``: everything up to it is acknowledged. ``individually_deleted``: (lower, upper] ranges acknowledged
    after it. ``batch_acks``: entry → bit-set words of its unacknowledged messages. ``source`` of the position:
    ``metadata``, ``cursor-ledger``, or ``metadata-fallback`` if the cursor ledger is lost. ``backlog_entries`` counts
    unacknowledged entries, ``backlog_size_bytes`` is the broker's estimate. ``stored_mark_delete``: the stored
    position if it is after the topic's end, where a broker starts instead (``mark_delete``).
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
    """The cursor of a subscription; for a partitioned topic, those of all partitions. Methods that change it return a plan for
    ``Store.apply``.

    Every method raises TopicNotFound, SubscriptionNotFound; plans also Refused for a cursor of the broker's own, which ``force`` allows
    where a plan has it.
    """

    def __init__(self, session: Session, topic: TopicName, name: str) -> None:
        super().__init__(session, TopicSelection((topic,)), name)
        self._topic = topic

    # -- reading ------------------------------------------------------------------------------------------------------

    def state(self) -> CursorPlace:
        """Return its position; also raises TopicNotFound for a partitioned topic: ask its partitions."""
        with self._session.reader() as reader:
            topic = read_topic(reader.txn, self._topic)
            cursor = read_cursor(reader.txn, reader, topic, self._name)
        if cursor.skipped_entries:
            what = counted(cursor.skipped_entries, "entry")
            self._session.partial([f"{self._name}: the newest {what} of the cursor ledger cannot be read"])
        state = cursor.state
        return CursorPlace(
            str(topic.name),
            self._name,
            state.mark_delete,
            tuple(state.ranges),
            state.batch_deletes,
            state.properties,
            cursor.source,
            backlog_entries(topic, state),
            backlog_size_bytes(topic, state.mark_delete),
            cursor.ahead,
        )

    def analyze(self, start: Place | None = None) -> BacklogAnalysis:
        """Return the backlog with upstream's names: entries, messages, first and last entry as text; counted from
        ``start``.

        Also raises TopicNotFound for a partitioned topic: ask its partitions.
        """
        from pulsar_admin.store.reports.backlog import analyze_backlog

        first = None if start is None else arguments.position_of(start)
        with self._session.reader() as reader:
            topic = read_topic(reader.txn, self._topic)
            state = read_cursor(reader.txn, reader, topic, self._name).state
            analysis = analyze_backlog(reader.txn, topic, state, first)
            self._session.warn_of_broken(reader.txn, [self._topic])
        if lost := analysis.uncounted_entries:
            entries = counted(lost, "entry", "entries")
            self._session.partial(
                [
                    f"{topic.name}: {entries} of the backlog of {self._name} {plural(lost, 'is', 'are')} in no imported file"
                ]
            )
        return analysis

    def history(self) -> tuple[AckState, ...]:
        """Return every known state of its acknowledgements, the oldest first: ``state``, ``not_before`` and ``not_after``.

        They come from its cursor ledgers and metadata, and from the ZooKeeper files that the store was imported from. Also raises
        TopicNotFound for a partitioned topic: ask its partitions.
        """
        with self._session.reader() as reader:
            topic = read_topic(reader.txn, self._topic)
            return tuple(self._past(reader, [topic]).states(reader, topic, self._name))

    def why(self) -> Why:
        """Return why it is at its position: ``held``, and ``reasons``, each with ``code``, ``sentence``, ``evidence``, ``command``.

        Reads the headers of its backlog. Also raises TopicNotFound for a partitioned topic: ask its partitions.
        """
        from pulsar_admin.store.doctor.why_subscription import why_subscription

        with self._session.scan() as reader:
            topic = read_topic(reader.txn, self._topic)
            why = why_subscription(
                reader, topic, read_cursor(reader.txn, reader, topic, self._name), self._session.now_ms
            )
            self._session.warn_of_broken(reader.txn, [self._topic])
        return why

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
        """Plan the mark-delete at ``position``, in the metadata; later acknowledged entries stay acknowledged.

        Raises as ``state``, and LedgerNotFound, EntryNotFound, InvalidValue.
        """
        from pulsar_admin.store.changes.log_writer import plan_mark_delete

        place = arguments.position_of(position)
        return self._planned(
            lambda reader, now_ms: plan_mark_delete(reader, self._topic, self._name, place, now_ms, force=force)
        )

    def nacks(self) -> Nacks:
        """Return the negative acks that the store keeps for the subscription."""
        from pulsar_admin.api.pending import Nacks

        return Nacks(self._session, self._topic, self._name)

    def transactions(self) -> CursorTransactions:
        """Return what the log of the subscription says of transactions that acknowledged on it."""
        from pulsar_admin.api.pending import CursorTransactions

        return CursorTransactions(self._session, self._topic, self._name)
