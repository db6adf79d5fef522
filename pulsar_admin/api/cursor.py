"""The cursor of a subscription: where it stands, what is left, and plans that move it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsar_admin.api.plan import Plan, plan_of
from pulsar_admin.api.session import (
    Clock,
    Duration,
    Place,
    Session,
    Time,
    check_choice,
    duration_ms,
    position_of,
    whole_number,
)
from store.db.clocks import check_clock
from store.errors import InvalidValue
from store.model.cursors import Cursor as CursorModel
from store.model.cursors import backlog_entries, backlog_size_bytes, read_cursor
from store.model.extent import Extent, extent_of, pending_intervals
from store.model.reader import EntryReader
from store.model.topics import Topic as TopicModel
from store.model.topics import expand_topic, read_topic
from store.names import Position, TopicName
from store.wording import counted, plural

if TYPE_CHECKING:
    from pulsar_admin.api.nacks import Nacks
    from store.changes.cursors import CursorMove
    from store.changes.resetting import ResetRule
    from store.recovery.acks import AckState
    from store.recovery.as_of import IfUnsure
    from store.recovery.cursor_versions import CursorHistory
    from store.reports.backlog import BacklogAnalysis
    from store.search.broker_setup import BrokerVersion
    from store.search.expiry import ExpiryRule, ForecastRow
    from store.why.subscription import Why

Move = Callable[[EntryReader, TopicModel, CursorModel], "CursorMove"]


@dataclass(frozen=True, slots=True)
class CursorPlace:
    """Where the cursor of one topic or partition stands.

    ``mark_delete``: everything through it is acknowledged. ``individually_deleted``: (lower, upper] ranges behind it that are too.
    ``batch_acks``: entry → words of the bit set of its messages that are not yet acknowledged. ``source``: which bytes say so:
    ``metadata``, ``cursor-ledger``, or ``metadata-fallback`` where the cursor ledger is gone. ``backlog_entries`` counts what is
    left, ``backlog_size_bytes`` is the broker's estimate of it.
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


class Cursor:
    """The cursor of a subscription, of a partitioned topic those of all partitions. Changes are plans: ``Store.apply`` makes them.

    Every plan raises SubscriptionNotFound, and Refused for a cursor of the broker's own, unless FORCE.
    """

    def __init__(self, session: Session, topic: TopicName, name: str) -> None:
        self._session = session
        self._topic = topic
        self._name = name

    @property
    def name(self) -> str:
        """The name of the subscription."""
        return self._name

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
        )

    def backlog(self) -> Extent:
        """Return the backlog, over all partitions: entries, messages (batches count theirs), payload bytes.

        Acknowledgements inside a batch are not subtracted, as the broker does.
        """
        total = Extent()
        with self._session.reader() as reader:
            for topic, cursor in self._cursors(reader):
                total += extent_of(reader.txn, topic, pending_intervals(topic, cursor.state))
        return total

    def analyze(self, start: Place | None = None) -> BacklogAnalysis:
        """Return what is left with upstream's names: entries, messages, first and last of them as text; START: counted from there on.

        Raises TopicNotFound (also for a partitioned topic: ask its partitions), SubscriptionNotFound.
        """
        from store.reports.backlog import analyze_backlog, lost_entries, scanned_intervals

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

    def forecast(
        self,
        ahead: Duration,
        *,
        ttl: Duration | None = None,
        interval: Duration | None = None,
        rule: ExpiryRule = "all-before",
        clock: Clock = "auto",
        broker_version: BrokerVersion = "4.0",
    ) -> tuple[ForecastRow, ...]:
        """Return what TTL (default: the one in force) drops from now on, AHEAD so far, one row an INTERVAL (default: a 24th of it).

        Times in ms: the first row is overdue already (``from_ms`` None), the last is left after it (``to_ms`` None). Raises InvalidValue,
        NothingMatches (no TTL), TopicNotFound (also for a partitioned topic), SubscriptionNotFound.
        """
        from store.changes.expiry import ExpiryRequest
        from store.delayed.expiries import forecast_expiries
        from store.search.broker_setup import MAX_CLOCK_SKEW_MS, BrokerSetup, BrokerVersion
        from store.search.expiry import ExpiryRule

        check_choice("rule", rule, ExpiryRule)
        check_choice("broker version", broker_version, BrokerVersion)
        ahead_ms, now_ms = duration_ms(ahead), self._session.now_ms
        interval_ms = None if interval is None else duration_ms(interval)
        limit_ms = None if ttl is None else now_ms - duration_ms(ttl)
        broker = BrokerSetup(broker_version, MAX_CLOCK_SKEW_MS, now_ms)
        request = ExpiryRequest(now_ms, limit_ms, rule=rule, clock=check_clock(clock), broker=broker)
        with self._session.scan() as reader:
            topic = read_topic(reader.txn, self._topic)
            cursor = read_cursor(reader.txn, reader, topic, self._name)
            (found,) = forecast_expiries(reader, [(topic, cursor)], request, ahead_ms, interval_ms)
        self._session.partial(found.warnings)
        return found.rows

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
        from store.why.subscription import why_subscription

        with self._session.scan() as reader:
            topic = read_topic(reader.txn, self._topic)
            found = why_subscription(
                reader, topic, read_cursor(reader.txn, reader, topic, self._name), self._session.now_ms
            )
            self._session.warn_of_broken(reader.txn, [self._topic])
        return found

    def nacks(self) -> Nacks:
        """Return the negative acks that the store keeps for the subscription."""
        from pulsar_admin.api.nacks import Nacks

        return Nacks(self._session, self._topic, self._name)

    # -- plans --------------------------------------------------------------------------------------------------------

    def reset(
        self,
        *,
        to: Place | None = None,
        time: Time | None = None,
        shift_by: int | None = None,
        like: str | None = None,
        as_of: Time | None = None,
        if_unsure: IfUnsure = "refuse",
        exclude: bool = False,
        rule: ResetRule = "exact",
        clock: Clock = "auto",
        broker_version: BrokerVersion = "4.0",
        force: bool = False,
    ) -> Plan:
        """Plan moving it so that the first entry given again is at a position (TO), at or after a TIME, SHIFT_BY entries further
        (below 0: back), or where the subscription LIKE is; or to where it stood AS_OF a time or a state of ``history`` (its ``name``).

        That brings acknowledgements back; of several states that a time may mean, IF_UNSURE refuses or takes the oldest or newest. Else
        individual acknowledgements are cleared. EXCLUDE: start behind the position. RULE ``broker``: what a live broker does; ``exact``
        takes the first entry at or after the time on CLOCK, and only positions that exist. Raises InvalidValue unless exactly one
        of the five is given, LedgerNotFound, EntryNotFound, NothingMatches (nothing is at or after TIME, so that it would skip everything:
        FORCE does; or nothing is known of AS_OF), Refused (unsure).
        """
        from store.changes.resetting import ResetRequest, ResetRule, ResetTarget, plan_resets, resets_to
        from store.search.broker_setup import MAX_CLOCK_SKEW_MS, BrokerSetup, BrokerVersion

        if sum(given is not None for given in (to, time, shift_by, like, as_of)) != 1:
            raise InvalidValue("give exactly one of to, time, shift_by, like and as_of")
        if as_of is not None:
            if exclude:
                raise InvalidValue("as_of says where to: leave out exclude")
            return self._back_to(as_of, if_unsure, force=force)
        check_choice("rule", rule, ResetRule)
        check_choice("broker version", broker_version, BrokerVersion)
        target = ResetTarget(
            None if time is None else self._session.time_ms(time),
            None if to is None else position_of(to),
            shift_by,
            like,
            exclude,
        )
        now_ms = self._session.now_ms
        broker = BrokerSetup(broker_version, MAX_CLOCK_SKEW_MS, now_ms)
        request = ResetRequest(now_ms, rule, check_clock(clock), broker, force)
        with self._session.reader() as reader:
            resets = resets_to(target, self._cursors(reader))
            return plan_of(plan_resets(reader, "topics reset-cursor", resets, request))

    def skip(self, count: int, *, force: bool = False) -> Plan:
        """Plan skipping the next COUNT entries of each partition; acknowledged ones do not count, a batch is one."""
        from store.changes.cursors import CursorMove, check_movable, skipped

        if whole_number("skip", count) < 0:
            raise InvalidValue(f"skip {count}: a number of entries is 0 or more")

        def move(reader: EntryReader, topic: TopicModel, cursor: CursorModel) -> CursorMove:
            check_movable(cursor, force=force)
            return CursorMove(topic, cursor, skipped(topic, cursor.state, count))

        return self._plan("topics skip", move)

    def clear(self, *, force: bool = False) -> Plan:
        """Plan skipping the whole backlog."""
        from store.changes.cursors import CursorMove, check_movable, cleared

        def move(reader: EntryReader, topic: TopicModel, cursor: CursorModel) -> CursorMove:
            check_movable(cursor, force=force)
            return CursorMove(topic, cursor, cleared(topic, cursor.state))

        return self._plan("topics clear-backlog", move)

    def expire(
        self,
        *,
        before: Time | None = None,
        to: Place | None = None,
        by_ttl: bool = False,
        exclude: bool = False,
        rule: ExpiryRule = "all-before",
        clock: Clock = "auto",
        broker_version: BrokerVersion = "4.0",
        force: bool = False,
    ) -> Plan:
        """Plan dropping what is older than BEFORE, everything up to a position (TO; EXCLUDE: it stays), or what the TTL in force drops.

        RULE ``all-before`` drops nothing that is younger than the limit; ``broker`` does as a live broker. The preview warns of delayed
        messages that go before they are due. Raises InvalidValue, LedgerNotFound, EntryNotFound, and NothingMatches: there is no TTL, or
        nothing is older than BEFORE, or BEFORE is counted from now and the whole copy is older; the latter two not with FORCE.
        """
        from store.changes.expiry import ExpiryRequest
        from store.delayed.expiries import plan_expiries
        from store.search.broker_setup import MAX_CLOCK_SKEW_MS, BrokerSetup, BrokerVersion
        from store.search.expiry import ExpiryRule

        if (before is not None) + (to is not None) + by_ttl != 1:
            raise InvalidValue("give exactly one of before, to and by_ttl")
        check_choice("rule", rule, ExpiryRule)
        check_choice("broker version", broker_version, BrokerVersion)
        now_ms = self._session.now_ms
        request = ExpiryRequest(
            now_ms,
            None if before is None else self._session.time_ms(before),
            None if to is None else position_of(to),
            exclude,
            rule,
            check_clock(clock),
            broker=BrokerSetup(broker_version, MAX_CLOCK_SKEW_MS, now_ms),
            force=force,
        )

        with self._session.reader() as reader:
            cursors = list(self._cursors(reader))
            return plan_of(plan_expiries(reader, "topics expire", cursors, request))

    def delete(self, *, force: bool = False) -> Plan:
        """Plan removing the subscription, from all partitions."""
        from store.changes.subscriptions import plan_unsubscribe

        with self._session.reader() as reader:
            cursors = list(self._cursors(reader))
            return plan_of(plan_unsubscribe(reader, "topics unsubscribe", cursors, self._session.now_ms, force=force))

    def _back_to(self, as_of: Time, if_unsure: IfUnsure, *, force: bool) -> Plan:
        from store.recovery.as_of import AsOf, IfUnsure, is_state_name, plan_as_of

        check_choice("if_unsure", if_unsure, IfUnsure)
        name = as_of if isinstance(as_of, str) and is_state_name(as_of) else ""
        time_ms = None if name else self._session.time_ms(as_of)
        with self._session.reader() as reader:
            cursors = list(self._cursors(reader))
            wanted = AsOf(time_ms, name, if_unsure, self._past(topic for topic, _ in cursors), force)
            return plan_of(plan_as_of(reader, "topics reset-cursor", cursors, wanted, self._session.now_ms))

    def _past(self, topics: Iterable[TopicModel]) -> CursorHistory:
        """Return what the ZooKeeper files of the store have of the cursor; what cannot be read there is warned of."""
        from store.recovery.cursor_versions import find_cursor_history

        with self._session.opened() as store:
            found = find_cursor_history(store.info.sources, (), (one.name.cursor_path(self._name) for one in topics))
        self._session.partial(found.problems)
        return found

    def _cursors(self, reader: EntryReader) -> Iterator[tuple[TopicModel, CursorModel]]:
        for name in expand_topic(reader.txn, self._topic):
            topic = read_topic(reader.txn, name)
            yield topic, read_cursor(reader.txn, reader, topic, self._name)

    def _plan(self, command: str, move: Move) -> Plan:
        """Return one plan for all partitions."""
        from store.changes.cursors import plan_moves

        with self._session.reader() as reader:
            moves = [move(reader, topic, cursor) for topic, cursor in self._cursors(reader)]
            return plan_of(plan_moves(reader, command, moves, self._session.now_ms))
