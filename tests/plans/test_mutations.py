"""Every cursor change that a live broker made to the recorded worlds, made here on the store of the state before it.

The worlds' README says what was recorded: request, the cursor's internal stats before and about a second after.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec import Struct

from pulsar_admin.store.changes.cursors import cleared, skipped
from pulsar_admin.store.changes.resets import Before, ExpiryRequest, UpTo, expiry_move, reset_state, reset_to_time
from pulsar_admin.store.codec.cursor import CursorState
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.cursors import Cursor, pending_intervals, range_text, read_cursor
from pulsar_admin.store.model.entry_times import read_entry_time
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import Position, parse_position, parse_topic
from pulsar_admin.store.search.broker import BrokerSearch
from pulsar_admin.store.search.broker_setup import DEFAULT_BROKER, BrokerSetup
from pulsar_admin.store.search.expiry import ALL_BEFORE, BROKER
from tests.stores import imported
from tests.worlds import CLUSTER, WORLD_NAMES, oracle

WORLDS = (*WORLD_NAMES, CLUSTER)
# ``at`` was taken a second of sleep after the reply; the broker read its clock again at every probe, from a little before the reply
# to some tens of milliseconds behind it.
CLOCK_WINDOW_MS = {
    world: range(-1030, -739 if world == CLUSTER else -939) for world in WORLDS
}  # reading took longer there
KINDS = {"reset-cursor-time", "reset-cursor-position", "expire-time", "expire-position", "skip", "skip-all"}
JITTER_MS = 9  # the steady producers sent one as often: so far the answers of a window lie apart


class Case(Struct, frozen=True):
    """One recorded change."""

    world: str
    mutation: dict[str, Any]

    @property
    def after(self) -> tuple[str, str]:
        """The broker's mark-delete and ranges."""
        after = self.mutation["after"]
        return after["markDeletePosition"], after["individuallyDeletedMessages"]


def _cases(*kinds: str) -> list[Any]:  # Any: pytest's parameter sets
    return [
        pytest.param(Case(world, mutation), id=f"{world}-{mutation['kind']}-{mutation['topic']}")
        for world in WORLDS
        for mutation in oracle(world)["mutations"]
        if mutation["kind"] in kinds
    ]


@contextmanager
def opened(case: Case) -> Iterator[tuple[EntryReader, Topic, Cursor]]:
    """Open the clean store; the cursor in it is where the broker's stood before the change."""
    with open_store(imported(case.world, "clean")) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic(case.mutation["topic"]))
        cursor = read_cursor(reader.txn, reader, topic, case.mutation["subscription"])
        before = case.mutation["before"]
        assert str(cursor.mark_delete) == before["markDeletePosition"]
        assert range_text(cursor.state.ranges) == before["individuallyDeletedMessages"]
        yield reader, topic, cursor


def moved(
    reader: EntryReader,
    topic: Topic,
    cursor: Cursor,
    mutation: Mapping[str, Any],
    shifts_ms: Sequence[int] = (0,),
    broker: BrokerSetup = DEFAULT_BROKER,
) -> list[CursorState]:
    """Return where the toolkit moves a cursor as a broker does; by age: for each shift of the clock one."""
    kind, number, body = mutation["kind"], mutation["path"].rpartition("/")[2], mutation["body"] or {}
    position = Position(body.get("ledgerId", -1), body.get("entryId", -1))
    if kind == "reset-cursor-time":
        return [reset_to_time(topic, cursor, BrokerSearch(reader, topic, broker).reset_read_position(int(number)))]
    if kind == "reset-cursor-position":
        return [reset_state(reader, topic, cursor, position, exclude=False)]
    if kind == "expire-position":
        request = ExpiryRequest(mutation["at_ms"], UpTo(position), BROKER, broker=broker)
        return [expiry_move(reader, topic, cursor, request).state]
    if kind == "expire-time":
        requests = [_aged(mutation, mutation["at_ms"] + shift_ms, BROKER, broker) for shift_ms in shifts_ms]
        return [expiry_move(reader, topic, cursor, request).state for request in requests]
    return [skipped(topic, cursor.state, int(number)) if kind == "skip" else cleared(topic, cursor.state)]


def shown(state: CursorState) -> tuple[str, str]:
    return str(state.mark_delete), range_text(state.ranges)


def test_every_kind_is_tested() -> None:
    kinds = {mutation["kind"] for world in WORLDS for mutation in oracle(world)["mutations"]}
    assert kinds == KINDS
    assert [len(oracle(world)["mutations"]) for world in WORLDS] == [14, 14, 14]


@pytest.mark.parametrize("case", _cases(*KINDS))
def test_it_stands_where_the_broker_moved_it(case: Case) -> None:
    window = CLOCK_WINDOW_MS[case.world]
    with opened(case) as (reader, topic, cursor):
        answers = moved(reader, topic, cursor, case.mutation, window[::5])
        left = [sum(end - start for start, end in pending_intervals(topic, state)) for state in answers]
        assert max(left) - min(left) <= len(window) // JITTER_MS
        assert case.after in map(shown, answers)


@pytest.mark.parametrize("case", _cases("expire-time"))
def test_expire_by_age_drops_nothing_young(case: Case) -> None:
    """Against the messages' own recorded times, not the search's."""
    now_ms = case.mutation["at_ms"]
    with opened(case) as (reader, topic, cursor):
        request = _aged(case.mutation, now_ms, ALL_BEFORE)
        assert isinstance(request.limit, Before)
        limit_ms = request.limit.time_ms
        state = expiry_move(reader, topic, cursor, request).state
        times = [(position, read_entry_time(reader, position, "auto")) for position in _pending(topic, cursor.state)]
        young = [position for position, time_ms in times if time_ms is not None and time_ms >= limit_ms]
        dropped = set(_pending(topic, cursor.state)) - set(_pending(topic, state))
        assert not dropped & set(young)
        assert dropped == {position for position, _ in times if not young or position < young[0]}
        published = {
            (row[0], row[1]): row[3] for row in oracle(case.world)["topics"][case.mutation["topic"]]["messages"]
        }
        if case.world == "nometa":
            assert all(published[position.ledger_id, position.entry_id] < limit_ms for position in dropped)


def _aged(mutation: Mapping[str, Any], now_ms: int, rule: Any, broker: BrokerSetup = DEFAULT_BROKER) -> ExpiryRequest:
    age_s = int(mutation["path"].rpartition("/")[2])
    return ExpiryRequest(now_ms, Before(now_ms - age_s * 1000), rule, broker=broker)


def _pending(topic: Topic, state: CursorState) -> list[Position]:
    return [topic.at_rank(rank) for start, end in pending_intervals(topic, state) for rank in range(start, end)]


def test_the_recorded_end_is_what_the_stopped_broker_stored() -> None:
    """The state the broker left on disk agrees with what it said of every changed cursor."""
    for world in WORLDS:
        last = {(mutation["topic"], mutation["subscription"]): mutation for mutation in oracle(world)["mutations"]}
        with open_store(imported(world, "mutated")) as store, open_reader(store) as reader:
            for (name, subscription), mutation in last.items():
                topic = read_topic(reader.txn, parse_topic(name))
                cursor = read_cursor(reader.txn, reader, topic, subscription)
                assert cursor.mark_delete == parse_position(mutation["after"]["markDeletePosition"])
