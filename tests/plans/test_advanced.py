"""Mark-delete, skip and shift against a model that is a set of entries: small ledgers, empty ones, holes that cross them."""

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace
from pyroaring import BitMap

from pulsar_admin.store.changes.cursors import advanced, cleared, skipped
from pulsar_admin.store.changes.resets import again_state, bit_words, shifted_state
from pulsar_admin.store.codec.cursor import CursorInfo, CursorState, RangeColumns
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.model.cursors import (
    Cursor,
    CursorSource,
    backlog_entries,
    count_ranks,
    normal_ranges,
    range_text,
    subtract,
    union,
)
from pulsar_admin.store.model.topics import Topic, TopicLedger
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.reports.stats import ranges_size_bytes

NAME = parse_topic("public/default/made")
STAT = NodeStat(0, 1, 0, 0, False)


def made_topic(sizes: list[int]) -> Topic:
    """A topic with ledgers 10, 13, 16 … of these sizes; the last one is open."""
    infos = [LedgerInfo(10 + 3 * index, entries=size, timestamp_ms=1) for index, size in enumerate(sizes)]
    ledgers = tuple(
        TopicLedger(info, size, size, index == len(sizes) - 1)
        for index, (info, size) in enumerate(zip(infos, sizes, strict=True))
    )
    return Topic(NAME, STAT, ManagedLedger(tuple(infos)), ledgers)


def entries_of(topic: Topic) -> list[Position]:
    return [Position(row.ledger_id, entry) for row in topic.ledgers for entry in range(row.entries)]


def deleted_in(topic: Topic, state: CursorState) -> set[Position]:
    """The entries a cursor will not be given again, from the words of the format alone: (lower, upper], and all up to the mark."""
    return {
        entry
        for entry in entries_of(topic)
        if entry <= state.mark_delete or any(lower < entry <= upper for lower, upper in state.ranges)
    }


class Case(Struct, frozen=True):
    topic: Topic
    state: CursorState
    target: Position


@st.composite
def cases(draw: st.DrawFn) -> Case:
    topic = made_topic(draw(st.lists(st.integers(0, 5), min_size=1, max_size=5)))
    places = st.builds(Position, st.sampled_from(topic.ids), st.integers(-1, 5))
    mark = min(draw(places), topic.last_confirmed)
    pairs = draw(st.lists(st.tuples(places, places), max_size=4))
    ranges = tuple(sorted((min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]))
    batches = (
        {entry: bit_words([1]) for entry in draw(st.sets(st.sampled_from(entries_of(topic)), max_size=3))}
        if (topic.number_of_entries)
        else {}
    )
    target = draw(st.builds(Position, st.integers(9, 10 + 3 * len(topic.ids)), st.integers(-1, 7)))
    return Case(topic, CursorState(mark, ranges, batches, {"CompactedTopicLedger": 7}), target)


EDGES = st.lists(st.integers(-1, 300), max_size=8, unique=True).map(lambda edges: sorted(edges)[: len(edges) // 2 * 2])


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=4), st.lists(EDGES.filter(bool), max_size=6), st.integers(9, 20)
)
def test_very_many_ranges_are_what_few_are(sizes: list[int], edges: list[list[int]], mark: int) -> None:
    topic = made_topic(sizes)
    entries = [
        BitMap(entry for low, high in zip(some[::2], some[1::2], strict=True) for entry in range(low + 1, high + 1))
        for some in edges
    ]
    columns = RangeColumns(zip(range(9, 30, 2), entries, strict=False))
    assert list(columns.iter_edges()) == list(zip(range(9, 30, 2), edges, strict=False))
    state = CursorState(Position(mark, 4), columns)
    assert columns == tuple(columns)
    assert len(columns) == len(tuple(columns)) == sum(map(len, edges)) // 2
    few = replace(state, ranges=tuple(columns))
    assert normal_ranges(topic, state) == normal_ranges(topic, few)
    assert backlog_entries(topic, state) == backlog_entries(topic, few)
    assert range_text(columns) == "[" + ",".join(f"({low}..{high}]" for low, high in columns) + "]"
    assert ranges_size_bytes(columns) == ranges_size_bytes(tuple(columns))


RANKS = st.sets(st.integers(0, 12))


@given(RANKS, RANKS)
def test_what_is_left_of_ranks(left: set[int], right: set[int]) -> None:
    of = [union((rank, rank + 1) for rank in ranks) for ranks in (left, right)]
    assert subtract(*of) == union((rank, rank + 1) for rank in left - right)
    assert count_ranks(of[0]) == len(left)


@given(cases())
def test_advanced(case: Case) -> None:
    topic, state = case.topic, case.state
    after = advanced(topic, state, case.target)
    if min(case.target, topic.last_confirmed) <= state.mark_delete:
        assert after == state
        return
    reached = {entry for entry in entries_of(topic) if entry <= case.target}
    assert deleted_in(topic, after) == deleted_in(topic, state) | reached
    _check_tight(topic, after, case.target)
    kept = {entry for entry in state.batch_deletes if entry > after.mark_delete}
    assert set(after.batch_deletes) == kept
    assert after.properties == state.properties


def _check_tight(topic: Topic, after: CursorState, target: Position) -> None:
    """The mark is as far as it can be, at the target or at an entry, and no range lies behind it."""
    deleted = deleted_in(topic, after)
    behind = [entry for entry in entries_of(topic) if entry > after.mark_delete]
    assert not behind or behind[0] not in deleted
    assert after.mark_delete in (target, topic.last_confirmed) or topic.is_entry(after.mark_delete)
    assert all(after.mark_delete <= lower < upper for lower, upper in after.ranges)


@given(cases(), st.integers(0, 12))
def test_skipped(case: Case, count: int) -> None:
    topic, state = case.topic, case.state
    pending = sorted(set(entries_of(topic)) - deleted_in(topic, state))
    after = skipped(topic, state, count)
    if not count or not pending:
        assert after == state
        return
    assert set(pending) - deleted_in(topic, after) == set(pending[count:])
    assert backlog_entries(topic, after) == len(pending[count:])
    _check_tight(topic, after, after.mark_delete)


@given(cases())
def test_cleared(case: Case) -> None:
    after = cleared(case.topic, case.state)
    assert not set(entries_of(case.topic)) - deleted_in(case.topic, after)
    assert after.mark_delete == case.topic.last_confirmed
    assert (after.ranges, dict(after.batch_deletes)) == ((), {}) or after == case.state


@given(cases(), st.integers(-12, 12))
def test_shifted(case: Case, distance: int) -> None:
    topic = case.topic
    cursor = Cursor(NAME, "sub", STAT, CursorInfo(-1), case.state, CursorSource.METADATA)
    entries = entries_of(topic)
    start = sum(entry <= case.state.mark_delete for entry in entries)
    after = shifted_state(topic, cursor, distance)
    first = min(max(start + distance, 0), len(entries))
    assert sorted(set(entries) - deleted_in(topic, after)) == entries[first:]
    assert (after.ranges, dict(after.properties)) == ((), {})


# What is acknowledged beyond the mark comes to lie before all that waits.
@example(
    Case(made_topic([1, 1, 1]), CursorState(Position(10, -1), ((Position(10, -1), Position(13, 0)),)), Position(9, 0)),
    1,
    2,
)
@given(cases(), st.integers(0, 26), st.integers(0, 26))
def test_only_what_lies_between_is_delivered_again(case: Case, start: int, end: int) -> None:
    topic = case.topic
    cursor = Cursor(NAME, "sub", STAT, CursorInfo(-1), case.state, CursorSource.METADATA)
    entries = entries_of(topic)
    first, behind = (dict(enumerate(entries)).get(rank) for rank in (start, max(start, end)))
    between = set(entries[start : max(start, end)])
    after = again_state(topic, cursor, first, behind)
    assert deleted_in(topic, after) == deleted_in(topic, case.state) - between
    assert after.properties == case.state.properties
    left = {entry for entry in entries if entry > after.mark_delete} - between
    kept = {entry: words for entry, words in case.state.batch_deletes.items() if entry in left}
    assert {entry: words for entry, words in after.batch_deletes.items() if entry in left} == kept
    assert not between.intersection(after.batch_deletes) or after == case.state
    assert all(lower.ledger_id == upper.ledger_id for lower, upper in after.ranges) or after == case.state


def test_words_of_a_bit_set() -> None:
    """pulsar.md vector 10 has bit 1; bit 63 is the sign of a Java long, bit 64 the first of the next."""
    assert bit_words([1]) == (2,)
    assert bit_words([63]) == (-(2**63),)
    assert bit_words([0, 64]) == (1, 1)
    assert bit_words([]) == ()
