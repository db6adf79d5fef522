"""Expiry by age on made-up clocks against brute force; positions, policies, forecasts and what a broker may then delete."""

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pulsar_admin.store.changes.cursors import plan_moves
from pulsar_admin.store.changes.plan import BrokerMove
from pulsar_admin.store.changes.resets import (
    Before,
    ByTtl,
    ExpiryRequest,
    ResetRequest,
    ToPosition,
    UpTo,
    bit_words,
    expiry_move,
    reset_target,
    ttl_warnings,
)
from pulsar_admin.store.codec.cursor import CursorInfo, CursorState
from pulsar_admin.store.codec.policies import Retention
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.delayed.expiry_plans import EXPIRE
from pulsar_admin.store.errors import InvalidValue, MetadataCorrupt, Refused
from pulsar_admin.store.model.cursors import DEDUP_CURSOR, Cursor, CursorSource, read_cursor
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import EARLIEST, LATEST, Position, parse_topic
from pulsar_admin.store.policies.in_force import MessageTtl, find_message_ttl
from pulsar_admin.store.policies.retention import count_let_go, freed_ledgers
from pulsar_admin.store.search.broker import BrokerSearch
from pulsar_admin.store.search.broker_setup import BrokerSetup
from pulsar_admin.store.search.by_time import find_first_at_or_after
from pulsar_admin.store.search.expiry import (
    ALL_BEFORE,
    BROKER,
    ExpiryRule,
    ForecastQuestion,
    PendingSearch,
    expire_by_time,
    iter_forecast,
)
from tests.stores import put_node, read_rows
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store

NOW_MS = CREATED_MS + 1_000_000
SUB = "sub"


def at(ledger_id: int, entry_id: int) -> Position:
    return Position(ledger_id, entry_id)


def info(mark: Position, *ranges: tuple[Position, Position]) -> CursorInfo:
    return CursorInfo(-1, mark, ranges)


@contextmanager
def opened(path: Path, name: str, cursor: str = SUB) -> Iterator[tuple[EntryReader, Topic, Cursor]]:
    with open_store(path) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic(name))
        yield reader, topic, read_cursor(reader.txn, reader, topic, cursor)


def put_json(path: Path, where: str, value: Any) -> None:
    put_node(path, where, value if isinstance(value, bytes) else json.dumps(value).encode())


# -- the rule that drops nothing young --------------------------------------------------------------------------------


def _random_topic(rng: random.Random) -> tuple[MadeTopic, list[list[Made]]]:
    """Clocks that jump both ways, some entries with a broker time, some lost, empty ledgers."""
    ledgers = [
        [
            Made(
                CREATED_MS + rng.randrange(12),
                CREATED_MS + rng.randrange(12) if rng.random() < 0.3 else None,
                lost=rng.random() < 0.05,
            )
            for _ in range(rng.choice([0, 1, 3, 8]))
        ]
        for _ in range(rng.randrange(1, 5))
    ]
    return MadeTopic(ledgers), ledgers


@pytest.fixture(scope="module")
def disorder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[list[Made]]]]:
    """Forty topics of random clocks in one store."""
    rng = random.Random(345)
    made = {f"public/default/t{number}": _random_topic(rng) for number in range(40)}
    path = make_store(tmp_path_factory.mktemp("disorder") / "store", {name: topic for name, (topic, _) in made.items()})
    return path, {name: ledgers for name, (_, ledgers) in made.items()}


def _random_state(rng: random.Random, topic: Topic, entries: list[Position]) -> CursorState:
    mark = rng.choice([topic.first_position, *entries])
    ranges = []
    for _ in range(rng.randrange(3)):
        lower, upper = sorted(rng.choices([topic.first_position, *entries], k=2))
        if lower != upper:
            ranges.append((lower, upper))
    return CursorState(mark, tuple(sorted(ranges)))


def test_all_before_equals_brute_force(disorder: tuple[Path, dict[str, list[list[Made]]]]) -> None:
    path, ledgers_of = disorder
    rng = random.Random(1)
    checked = 0
    for name, ledgers in ledgers_of.items():
        with open_store(path) as store, open_reader(store) as reader:
            topic = read_topic(reader.txn, parse_topic(name))
            times = {
                Position(topic.ids[index], entry_id): None if made.lost else made.broker_ms or made.publish_ms
                for index, entries in enumerate(ledgers)
                for entry_id, made in enumerate(entries)
            }
            for limit_ms in range(CREATED_MS, CREATED_MS + 13, 2):
                state = _random_state(rng, topic, list(times))
                _check_limit(reader, topic, state, (times, limit_ms))
                checked += 1
    assert checked == 280


def _check_limit(
    reader: EntryReader, topic: Topic, state: CursorState, case: tuple[dict[Position, int | None], int]
) -> None:
    times, limit_ms = case
    pending = [
        entry
        for entry in times
        if entry > state.mark_delete and not any(lower < entry <= upper for lower, upper in state.ranges)
    ]
    young = [entry for entry in pending if (times[entry] or 0) >= limit_ms]
    dropped = [entry for entry in pending if not young or entry < young[0]]
    cursor = Cursor(topic.name, SUB, topic.stat, CursorInfo(-1), state, CursorSource.METADATA)
    through = expire_by_time(PendingSearch(reader, topic, state, "auto"), cursor, limit_ms, ALL_BEFORE)
    assert [entry for entry in pending if through is not None and entry <= through] == dropped
    late = [dated.position for dated in PendingSearch(reader, topic, state, "auto").iter_late(limit_ms)]
    assert late == young


def test_the_broker_drops_what_is_young(tmp_path: Path) -> None:
    """10, 100, 20, 30 and a limit of 50: probes see the first and the last entry, both older, so everything goes."""
    times = [Made(CREATED_MS + offset) for offset in (10, 100, 20, 30)]
    path = make_store(tmp_path / "s", {"a/b/t": MadeTopic([times], cursors={SUB: info(at(10, -1))})})
    with opened(path, "a/b/t") as (reader, topic, cursor):
        safe = expiry_move(reader, topic, cursor, ExpiryRequest(NOW_MS, Before(CREATED_MS + 50)))
        assert safe.state.mark_delete == at(10, 0)
        assert safe.basis.broker == BrokerMove(at(10, 3), False, 3)
        as_broker = expiry_move(reader, topic, cursor, ExpiryRequest(NOW_MS, Before(CREATED_MS + 50), rule=BROKER))
        assert as_broker.state.mark_delete == at(10, 3)
        assert as_broker.warnings == (
            "the broker's search drops 10:1 of 2023-11-14T22:13:20.100Z, which is younger than the limit "
            "2023-11-14T22:13:20.050Z: clocks run backwards here",
        )


def test_2_11_drops_no_ledger_by_the_time_at_which_it_was_closed(tmp_path: Path) -> None:
    """A ledger closed long ago, of which the entries are dated later (upstream ``expireMessages`` of 2.11.0 only searches)."""
    made = MadeTopic([[Made(NOW_MS)] * count for count in (3, 2, 1)], cursors={SUB: info(at(10, -1))})
    path = make_store(tmp_path / "s", {"a/b/t": made})
    with opened(path, "a/b/t") as (reader, topic, cursor):
        first = topic.ledgers[0]
        assert 0 < first.info.timestamp_ms < NOW_MS - 60_000
        for mark in (at(10, -1), at(11, 0)):
            moved = replace(cursor, state=CursorState(mark))
            asked = (BrokerSearch(reader, topic, BrokerSetup(one)) for one in ("2.11", "4.0"))
            assert [one.expire_position(moved, NOW_MS, 60) for one in asked] == [None, at(11, 1)]


def test_damaged_entries_hold_nothing_back(tmp_path: Path, damages_stores: None) -> None:
    """However many come first."""
    entries = [Made(CREATED_MS + offset, payload=b"abcd"[offset : offset + 1] * 9_000) for offset in range(4)]
    path = make_store(tmp_path / "s", {"a/b/t": MadeTopic([entries], cursors={SUB: info(at(10, -1))})})
    (log,) = path.rglob("*.log")
    log.write_bytes(log.read_bytes().replace(b"b" * 9_000, b"x" * 9_000).replace(b"c" * 9_000, b"x" * 9_000))
    with opened(path, "a/b/t") as (reader, topic, cursor):
        search = PendingSearch(reader, topic, cursor.state, "auto")
        found = [search.find_first(CREATED_MS + offset) for offset in (1, 3, 4)]
        assert [one and one.position for one in found] == [at(10, 3), at(10, 3), None]
        assert (search.unreadable, find_first_at_or_after(reader, topic, CREATED_MS + 1, "auto").position) == (
            2,
            at(10, 3),
        )
        move = expiry_move(reader, topic, cursor, ExpiryRequest(NOW_MS, Before(CREATED_MS + 1)))
        assert move.state.mark_delete == at(10, 2)


def test_a_lost_ledger_is_named(tmp_path: Path) -> None:
    ledgers = [[Made(CREATED_MS)], [Made(CREATED_MS + 1, lost=True)], [Made(CREATED_MS + 2)]]
    path = make_store(tmp_path / "s", {"a/b/t": MadeTopic(ledgers, cursors={SUB: info(at(10, -1))})})
    with opened(path, "a/b/t") as (reader, topic, cursor):
        move = expiry_move(reader, topic, cursor, ExpiryRequest(NOW_MS, Before(CREATED_MS + 2)))
        assert move.state.mark_delete == at(11, 0)
        assert move.warnings == ("the store has no entry of ledgers 11: their times are unknown and hold nothing back",)


# -- positions --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ledger 10: two entries and a batch of 3. Ledger 11, open: a batch of 2 and an entry. One cursor at the start."""
    ledgers = [
        [Made(CREATED_MS), Made(CREATED_MS), Made(CREATED_MS, batch=3)],
        [Made(CREATED_MS, batch=2), Made(CREATED_MS)],
    ]
    topic = MadeTopic(ledgers, cursors={SUB: info(at(10, -1)), "further": info(at(10, 2))})
    return make_store(tmp_path_factory.mktemp("places") / "s", {"a/b/t": topic})


# position, exclude → mark-delete, bits of the batch still to be given (by position)
SAFE = [
    (at(10, 0), False, at(10, 0), {}),
    (at(10, 1), True, at(10, 0), {}),
    (at(10, 0), True, at(10, -1), {}),
    (at(10, 2), False, at(10, 2), {}),
    (at(10, 2), True, at(10, 1), {}),
    (Position(10, 2, 0), False, at(10, 1), {at(10, 2): [1, 2]}),
    (Position(10, 2, 1), True, at(10, 1), {at(10, 2): [1, 2]}),
    (Position(10, 2, 0), True, at(10, 1), {}),
    (Position(10, 2, 2), False, at(10, 2), {}),
    (at(11, 1), False, at(11, 1), {}),
    (Position(11, 0, 0), False, at(10, 2), {at(11, 0): [1]}),
    (EARLIEST, False, at(10, -1), {}),
    (LATEST, False, at(11, 1), {}),
    (at(10, 3), False, at(10, 2), {}),
    (at(11, -1), False, at(10, 2), {}),
]
# what calculatePositionAckSet (4.0.8) makes of the same: exclusion takes the entry's successor too
THEIRS = [
    (at(10, 0), False, at(10, 0), {}),
    (at(10, 0), True, at(10, 1), {}),
    (at(10, 2), False, at(10, 2), {}),
    (at(10, 2), True, at(10, 2), {}),
    (Position(10, 2, 1), False, at(10, 1), {at(10, 2): [1, 2]}),
    (Position(10, 2, 1), True, at(10, 1), {at(10, 2): [2]}),
    (Position(10, 2, 0), False, at(10, 2), {}),
    (Position(11, 0, 1), False, at(10, 2), {at(11, 0): [1]}),
    (Position(11, 0, 1), True, at(11, 1), {}),
    (at(9, 5), False, at(10, -1), {}),
]


@pytest.mark.parametrize(
    ("rule", "position", "exclude", "mark", "bits"),
    [*((ALL_BEFORE, *case) for case in SAFE), *((BROKER, *case) for case in THEIRS)],
    ids=str,
)
def test_positions(
    places: Path, rule: ExpiryRule, position: Position, exclude: bool, mark: Position, bits: dict[Position, list[int]]
) -> None:
    with opened(places, "a/b/t") as (reader, topic, cursor):
        request = ExpiryRequest(NOW_MS, UpTo(position, exclude), rule)
        state = expiry_move(reader, topic, cursor, request).state
        assert state.mark_delete == mark
        assert dict(state.batch_deletes) == {entry: bit_words(unread) for entry, unread in bits.items()}


def test_a_position_after_the_last_entry_is_refused_as_the_broker_does(places: Path) -> None:
    with opened(places, "a/b/t") as (reader, topic, cursor):
        after = Position(topic.last_confirmed.ledger_id, topic.last_confirmed.entry_id + 1)
        with pytest.raises(Refused, match=r"^Expire message by position not issued on topic"):
            expiry_move(reader, topic, cursor, ExpiryRequest(NOW_MS, UpTo(after), BROKER))


# -- policies ---------------------------------------------------------------------------------------------------------


def test_a_request_that_cannot_be_meant_is_never_made() -> None:
    made: list[tuple[Callable[[], object], str]] = [
        (lambda: ExpiryRequest(NOW_MS, ByTtl(), rule="oldest"), "rule 'oldest' is not one of 'all-before', 'broker'"),  # type: ignore[arg-type]
        (lambda: ExpiryRequest(NOW_MS, ByTtl(), clock="event"), "clock 'event' is not indexed"),  # type: ignore[arg-type]
        (lambda: ExpiryRequest(NOW_MS, Before(1), BROKER, "publish"), "--rule broker goes by the broker's own clock"),
        (lambda: ResetRequest(NOW_MS, "nearest"), "rule 'nearest' is not one of 'exact', 'broker'"),  # type: ignore[arg-type]
        (lambda: ResetRequest(NOW_MS, clock="event"), "clock 'event' is not indexed"),
        (lambda: BrokerSetup("3.0"), "broker version '3.0' is not one of '2.11', '4.0', '4.2', '5.0'"),  # type: ignore[arg-type]
        (
            lambda: reset_target(time_ms=None, position=None, shift_by=5, like=None, exclude=True),
            "--exclude-reset-position goes with a time or a position",
        ),
        (lambda: ForecastQuestion(NOW_MS, 1, 2001, 2, ALL_BEFORE, "auto"), "more than 1000 intervals"),
        (lambda: ForecastQuestion(NOW_MS, 1, 0, 1, ALL_BEFORE, "auto"), "must be above 0"),
        (lambda: ForecastQuestion(NOW_MS, 1, 1, 0, ALL_BEFORE, "auto"), "must be above 0"),
    ]
    for make, message in made:
        with pytest.raises(InvalidValue, match=message):
            make()
    target = reset_target(time_ms=None, position=LATEST, shift_by=None, like=None, exclude=True)
    assert target == ToPosition(LATEST, exclude=True)
    assert ForecastQuestion(NOW_MS, 1, 2000, 2, ALL_BEFORE, "auto").broker == BrokerSetup()


def test_ttl_in_force(tmp_path: Path) -> None:
    path = make_store(tmp_path / "s", {"a/b/t": MadeTopic([[Made(CREATED_MS)]])})
    topic = parse_topic("a/b/t")

    def found() -> MessageTtl | None:
        return read_rows(path, lambda txn: find_message_ttl(txn, topic))

    assert found() is None
    put_json(path, "/admin/policies/a/b", {"bundles": None})
    assert found() is None
    put_json(path, "/admin/policies/a/b", {"message_ttl_in_seconds": 60})
    assert found() == MessageTtl(60, "namespace")
    put_json(path, "/admin/topic-policies/global/a/b/persistent/t", {"messageTTLInSeconds": 30, "isGlobal": True})
    assert found() == MessageTtl(30, "global-topic")
    put_json(path, "/admin/topic-policies/local/a/b/persistent/t", {"messageTTLInSeconds": 0})
    assert found() == MessageTtl(0, "topic")
    put_json(path, "/admin/topic-policies/local/a/b/persistent/t", {"messageTTLInSeconds": "soon"})
    with pytest.raises(MetadataCorrupt, match="messageTTLInSeconds is a text, expected a number"):
        found()


def test_a_reset_is_warned_of_the_ttl(tmp_path: Path) -> None:
    """Four entries a minute apart, TTL 150 s: of the four replayed the two older than that go at once."""
    entries = [Made(NOW_MS - minutes * 60_000) for minutes in (4, 3, 2, 1)]
    topic = MadeTopic([entries], cursors={SUB: info(at(10, 3))})
    path = make_store(tmp_path / "s", {"a/b/t": topic})
    put_json(path, "/admin/policies/a/b", {"message_ttl_in_seconds": 150})
    with opened(path, "a/b/t") as (reader, found, cursor):
        warnings = ttl_warnings(reader, found, cursor, CursorState(at(10, -1)), NOW_MS)
        assert warnings == (
            "the TTL of 150 s (namespace policy) skips 2 of the 4 replayed entries as soon as a broker runs, up to 10:1: "
            "raise it first",
        )
        assert ttl_warnings(reader, found, cursor, CursorState(at(10, 1)), NOW_MS) == ()
        own = replace(cursor, name=DEDUP_CURSOR)
        assert ttl_warnings(reader, found, own, CursorState(at(10, -1)), NOW_MS) == ()
    put_json(path, "/admin/policies/a/b", b"{")
    with opened(path, "a/b/t") as (reader, found, cursor):
        (warning,) = ttl_warnings(reader, found, cursor, CursorState(at(10, -1)), NOW_MS)
        assert "whether a TTL skips the replayed messages is unknown" in warning


# -- forecast ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [ALL_BEFORE, BROKER])
def test_forecast(tmp_path: Path, rule: ExpiryRule) -> None:
    """Ages 70, 50, 40 and 10 s, TTL 60 s, three intervals of 15 s: overdue 1, then 1 (at 10 s), 1 (at 20 s), 0, left 1."""
    entries = [Made(NOW_MS - age * 1000, batch=2) for age in (70, 50, 40, 10)]
    path = make_store(tmp_path / "s", {"a/b/t": MadeTopic([entries], cursors={SUB: info(at(10, -1))})})
    question = ForecastQuestion(NOW_MS, 60_000, 45_000, 15_000, rule, "auto")
    with opened(path, "a/b/t") as (reader, topic, cursor):
        rows = list(iter_forecast(reader, topic, cursor, question))
    assert [(row.from_ms, row.to_ms, row.extent.entries, row.extent.messages) for row in rows] == [
        (None, NOW_MS, 1, 2),
        (NOW_MS, NOW_MS + 15_000, 1, 2),
        (NOW_MS + 15_000, NOW_MS + 30_000, 1, 2),
        (NOW_MS + 30_000, NOW_MS + 45_000, 0, 0),
        (NOW_MS + 45_000, None, 1, 2),
    ]
    assert [row.mark_delete for row in rows] == [at(10, 0), at(10, 1), at(10, 2), at(10, 2), at(10, 3)]


def test_forecast_counts_the_backlog_once(disorder: tuple[Path, dict[str, list[list[Made]]]]) -> None:
    path, ledgers_of = disorder
    rng = random.Random(2)
    question = ForecastQuestion(CREATED_MS, 4, 10, 3, ALL_BEFORE, "auto")
    for name, ledgers in ledgers_of.items():
        with open_store(path) as store, open_reader(store) as reader:
            topic = read_topic(reader.txn, parse_topic(name))
            entries = [Position(topic.ids[index], n) for index, row in enumerate(ledgers) for n in range(len(row))]
            state = _random_state(rng, topic, entries)
            cursor = Cursor(topic.name, SUB, topic.stat, CursorInfo(-1), state, CursorSource.METADATA)
            rows = list(iter_forecast(reader, topic, cursor, question))
        pending = [
            entry
            for entry in entries
            if entry > state.mark_delete and not any(lower < entry <= upper for lower, upper in state.ranges)
        ]
        assert sum(row.extent.entries for row in rows) == len(pending)
        assert [row.to_ms for row in rows] == [CREATED_MS + shift for shift in (0, 3, 6, 9, 10)] + [None]


# -- what becomes deletable -------------------------------------------------------------------------------------------


def _freed(path: Path, before: dict[str, Position], after: dict[str, Position], now_ms: int) -> tuple[Any, ...]:
    with open_store(path) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic("a/b/t"))
        found = freed_ledgers(reader, topic, before, after, now_ms)
        return (
            [row.ledger_id for row in found.ledgers],
            [row.ledger_id for row in found.kept_by_retention],
            found.blocker,
        )


def test_deletable(tmp_path: Path) -> None:
    """Ledgers 10 to 13 of two entries, closed a minute apart; the last one stays whatever happens."""
    ledgers = [[Made(CREATED_MS)] * 2 for _ in range(4)]
    closed = [CREATED_MS + minute * 60_000 for minute in range(4)]
    path = make_store(tmp_path / "s", {"a/b/t": MadeTopic(ledgers, closed_ms=closed)})
    start, now = at(10, -1), CREATED_MS + 10 * 60_000
    # the slowest cursor decides; a ledger given to its last entry is free
    assert _freed(path, {"a": start, "b": start}, {"a": at(12, 0), "b": start}, now) == ([], [], ("b", start))
    assert _freed(path, {"a": at(12, 0), "b": start}, {"a": at(12, 0), "b": at(10, 1)}, now)[0] == [10]
    assert _freed(path, {"a": start}, {"a": at(13, 1)}, now) == ([10, 11, 12], [], None)
    assert _freed(path, {"a": start}, {"a": at(13, 0)}, now) == ([10, 11, 12], [], ("a", at(13, 0)))
    assert _freed(path, {"a": at(10, 1)}, {"a": at(12, 0)}, now)[0] == [11]
    assert _freed(path, {"a": start}, {}, now) == ([10, 11, 12], [], None)
    # closed 10, 9 and 8 minutes ago; retention of 8 minutes lets go what is older than that
    put_json(
        path, "/admin/policies/a/b", {"retention_policies": {"retentionTimeInMinutes": 8, "retentionSizeInMB": -1}}
    )
    assert _freed(path, {"a": start}, {"a": at(13, 1)}, now) == ([10, 11], [12], None)
    put_json(
        path, "/admin/policies/a/b", {"retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}}
    )
    assert _freed(path, {"a": start}, {"a": at(13, 1)}, now) == ([], [10, 11, 12], None)
    # of three ledgers of 1 MB, the first leaves exactly the 2 MB that are kept
    assert count_let_go([(1 << 20, None)] * 3, 3, Retention(time_minutes=-1, size_mb=2), now) == 1
    put_json(path, "/admin/policies/a/b", b"not json")
    assert _freed(path, {"a": start}, {"a": at(13, 1)}, now)[0] == []


def test_the_report_names_the_blocker(tmp_path: Path) -> None:
    ledgers = [[Made(CREATED_MS)], [Made(CREATED_MS)], [Made(CREATED_MS)]]
    cursors = {SUB: info(at(10, -1)), "slow": info(at(10, 0))}
    path = make_store(tmp_path / "s", {"a/b/t": MadeTopic(ledgers, cursors=cursors)})
    with opened(path, "a/b/t") as (reader, topic, cursor):
        move = expiry_move(reader, topic, cursor, ExpiryRequest(NOW_MS, UpTo(LATEST)))
        (part,) = plan_moves(reader, EXPIRE, [move], NOW_MS).parts
        assert part.as_json()["deletable"] == {
            "ledgers": [10],
            "entries": 1,
            "bytes": 23,  # magic 2, checksum 4, size 4, metadata 12, payload 1
            "keptByRetention": [],
            "blockedBy": {"subscription": "slow", "markDeletePosition": "10:0"},
        }
