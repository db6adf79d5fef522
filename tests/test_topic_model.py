"""The read model of topics: the last topic of a snapshot is decoded once, and anew where a transaction changed it."""

from itertools import chain, combinations, product
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_admin.store.codec.cursor import CursorInfo, CursorState, Position
from pulsar_admin.store.codec.ledgermetadata import LedgerState
from pulsar_admin.store.codec.managedledger import ManagedLedger, decode_managed_ledger
from pulsar_admin.store.codec.policies import PartitionedTopic
from pulsar_admin.store.codec.transactions import COMMITTED, TxnId
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.tree import Node, iter_children_like, put_nodes, read_node
from pulsar_admin.store.errors import InvalidValue, NothingMatches, NotSeen, TopicNotFound
from pulsar_admin.store.facts.partitions import Partitions, find_disagreeing
from pulsar_admin.store.model import (
    broken,
    compacted_view,
    copy_age,
    coverage,
    cursors,
    ledger_owners,
    ledgers,
    messages,
    nodes,
    publish_times,
    resources,
    schemas,
    suggestions,
    topics,
    transactions,
)
from pulsar_admin.store.model.coverage import Stripe
from pulsar_admin.store.model.cursors import CursorSource, read_cursor, subtract, union
from pulsar_admin.store.model.publish_times import PublishTimes
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.resources import Bundle, TenantInfo
from pulsar_admin.store.model.topics import iter_partitioned, list_partitions, read_topic
from pulsar_admin.store.names import EARLIEST, TopicName, parse_topic
from pulsar_admin.store.search.by_time import find_first_at_or_after
from tests.at_bounds import MADE_TOPIC, NEWER, UNREADABLE, Answers, N, Texts, asking
from tests.conftest import Cli
from tests.stores import copied, imported, write_rows
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store

PLAIN = parse_topic("public/default/plain")


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the lists of ledgers that were decoded."""
    paths: list[str] = []

    def noted(value: bytes, path: str) -> ManagedLedger:
        paths.append(path)
        return decode_managed_ledger(value, path)

    monkeypatch.setattr(topics, "decode_managed_ledger", noted)
    return paths


@pytest.mark.parametrize(
    ("words", "topic"),
    [
        ("topics why public/default/plain -s holes", PLAIN),
        ("topics describe public/default/plain", PLAIN),
        ("delayed status acme/delayed/reminders -s workers", parse_topic("acme/delayed/reminders")),
    ],
)
def test_a_command_decodes_a_list_of_ledgers_once(words: str, topic: TopicName, decoded: list[str], cli: Cli) -> None:
    assert cli("--store", imported("small", "clean"), *words.split()).exit_code == 0
    assert decoded.count(topic.path) == 1


def test_a_transaction_sees_what_it_writes(tmp_path: Path, damages_stores: None) -> None:
    """A node with another value; the same list of ledgers, whose open one loses its entries."""

    def work(txn: Txn) -> None:
        before = read_topic(txn, PLAIN)
        assert read_topic(txn, PLAIN) is before
        txn.clear("entries")
        txn.clear("times")
        emptied = read_topic(txn, PLAIN)
        assert before.ledgers[-1].entries > emptied.ledgers[-1].entries == 0
        node, other = read_node(txn, PLAIN.path), read_node(txn, parse_topic("public/default/batched").path)
        put_nodes(txn, [Node(node.path, node.stat, other.value)])
        assert read_topic(txn, PLAIN).ids == [
            ledger.ledger_id for ledger in decode_managed_ledger(other.value, "").ledgers
        ]

    write_rows(copied("small", "crashed", tmp_path), work)


_INTERVALS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=6)


@given(_INTERVALS, _INTERVALS)
def test_ranks_of_intervals_are_those_of_sets(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    ranks, others = ({rank for start, end in some for rank in range(start, end)} for some in (left, right))
    assert [*union(left)] == _runs_of(ranks)
    assert [*subtract(union(left), union(right))] == _runs_of(ranks - others)


def _runs_of(ranks: set[int]) -> list[tuple[int, int]]:
    starts = [rank for rank in sorted(ranks) if rank - 1 not in ranks]
    return [(start, next(end for end in range(start, 14) if end not in ranks)) for start in starts]


def test_a_search_by_time_ends_where_the_list_of_ledgers_ends(tmp_path: Path) -> None:
    """Entries after the number that the topic lists are nobody's: for every time and number, by a loop over what was written."""
    times = [5, 3, 9, 7, 9, 2, 8, 10]
    made = MadeTopic([[Made(at, broker_ms=at + entry % 2) for entry, at in enumerate(times)], []])
    with open_store(make_store(tmp_path / "s", {"a/b/c": made})) as store, open_reader(store) as reader:
        for entries, time_ms, clock in product(range(9), range(1, 13), ("publish", "broker")):
            late = [at + (entry % 2 if clock == "broker" else 0) >= time_ms for entry, at in enumerate(times[:entries])]
            topic = SimpleNamespace(ids=[10], ledgers=[SimpleNamespace(ledger_id=10, entries=entries)])
            found = find_first_at_or_after(reader, topic, time_ms, clock)
            assert found.position == (Position(10, late.index(True)) if any(late) else None)


def test_partitions_at_each_number() -> None:
    """Every set of four partitions, beside metadata that counts more, as many, and fewer."""
    name = parse_topic("a/b/c")
    for count, there in product(range(5), chain.from_iterable(combinations(range(4), size) for size in range(5))):
        found = Partitions(name, PartitionedTopic(count), there, is_plain=False)
        missing = sorted(set(range(count)) - set(there))
        assert (found.missing, [*found.first_missing(9)]) == (len(missing), missing)
        assert found.beyond == tuple(sorted(set(there) - set(range(count))))
    for partition, number, too_many in (
        (10_000, 0, False),
        (10_001, 0, True),
        (None, 10_000, False),
        (None, 10_001, True),
    ):
        there = () if partition is None else (partition,)
        assert Partitions(name, PartitionedTopic(number), there, is_plain=False).counts_too_many is too_many


@pytest.mark.parametrize("beginning", ["a/b/", f"a/b/{'x' * 380}", f"a/{'y' * 380}/", f"a/{'y' * 360}/{'x' * 30}"])
def test_partitions_of_topics_that_begin_alike(beginning: str, tmp_path: Path) -> None:
    """Beyond 400 bytes of a path, a store has nodes in no order."""
    names = [f"{beginning}{letter}-partition-{number}" for letter in "abcdefg" for number in range(3)]
    path = make_store(tmp_path / "s", {name: MadeTopic([[Made(CREATED_MS)]]) for name in names})
    with open_store(path) as store, store.read() as txn:
        found = [str(one) for letter in "abcdefg" for one in list_partitions(txn, parse_topic(beginning + letter))]
        assert found == [f"persistent://{name}" for name in names]
        folder, local = (
            parse_topic(names[0]).namespace.managed_ledgers_path,
            [name.rpartition("/")[2] for name in names],
        )
        for end in range(0, len(local[4]) + 1, 4):
            expected = [name for name in local if name.startswith(local[4][:end])]
            assert sorted(iter_children_like(txn, folder, local[4][:end])) == expected


@pytest.mark.parametrize("name", ["small", "compacted"])
def test_partitions_of_a_whole_cluster_agree(name: str) -> None:
    with open_store(imported(name, "clean")) as store, store.read() as txn:
        assert [*iter_partitioned(txn)]
        assert find_disagreeing(txn) == ()


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_a_cursor_is_as_its_newest_entry_that_can_be_read(bad: int, tmp_path: Path) -> None:
    good: list[CursorState | bytes] = [CursorState(Position(10, entry_id)) for entry_id in range(3)]
    topic = MadeTopic([[Made(CREATED_MS)] * 9], cursors={"s": CursorInfo(77)})
    path = make_store(tmp_path / "s", {"a/b/c": topic}, {77: [*good[: 3 - bad], *[b"\x08\x01\x07"] * bad]})
    with open_store(path) as store, open_reader(store) as reader:
        found = read_topic(reader.txn, parse_topic("a/b/c"))
        cursor = read_cursor(reader.txn, reader, found, "s")
    assert (cursor.state.mark_delete, cursor.skipped_entries) == (Position(10, 2 - bad), bad)


CLOSED = N(
    state=LedgerState.CLOSED,
    segments=[N(first_entry_id=0, members=("a",)), N(first_entry_id=3, members=("b",))],
    write_quorum=1,
)
BATCH = N(key=None, clock="publish", first=Position(1, 5, 2), last=Position(1, 5, 3))
ANSWERS: Answers = {
    suggestions.near_names: [((None, TopicNotFound("none", topic="a/b/c/d/e/f")), ())],
    coverage._residues: [((("a", "b", "c"), 2, "a"), (0, 2))],
    cursors.union: [(([(1, 1)],), ()), (([(1, 2), (2, 3), (4, 5)],), ((1, 3), (4, 5)))],
    messages.check_times: [((5, 5), None), ((6, 5), InvalidValue)],
    topics.rank_of: [(([7, 9], [0, 5, 8], 8, 1), 5), (([7, 9], [0, 5, 8], 9, 1), 6)],
    ledgers.gaps_between: [(([(1, 1), (3, 3)], 4), [(0, 0), (2, 2), (4, 4)]), (([(0, 1), (5, 5)], 1), [])],
    broken.BrokenLedger.holds: [
        ((N(ledger_id=7, lost=((2, 4),)), Position(7, entry)), 2 <= entry <= 4) for entry in (1, 2, 4)],
    compacted_view.parts_of_view: [
        ((N(ledger_id=7, last_entry_id=last),), ((7, 0, 0),) if last == 0 else ()) for last in (-1, 0)],
    coverage.stripes_of: [((CLOSED, 3), [Stripe(0, 2, ("a",), 1), Stripe(3, 3, ("b",), 1)])],
    cursors.Cursor.is_incomplete: [
        ((N(source=CursorSource.METADATA, skipped_entries=count),), count > 0) for count in (0, 1)],
    cursors._recovered: [
        ((N(last_confirmed=Position(1, 5)), N(state=N(mark_delete=Position(1, 5)))), N(state=N(mark_delete=Position(1, 5))))],
    cursors.backlog_size_bytes: [
        ((N(total_size_bytes=82,
            ledgers=[N(ledger_id=7, entries=5, size_bytes=52), N(ledger_id=9, entries=3, size_bytes=30)]),
            Position(*place)), answer)
        for place, answer in (((7, 0), 72), ((7, 3), 42), ((7, 4), 30), ((8, 0), 30))],
    cursors.subtract: [((((3, 5),), right), answer)
        for right, answer in ((((3, 4),), ((4, 5),)), (((4, 5),), ((3, 4),)))],
    cursors.iter_ledger_parts: [((MADE_TOPIC, 4, 6), [(7, 4, 4), (9, 0, 0)])],
    ledgers._dense_end: [
        ((N(entries=3, first_entry=first, last_entry=first + 2), end), answer)
        for first, end, answer in ((0, -1, 2), (1, -1, None), (1, 0, 3))],
    messages.nth_position: [
        ({"topic": N(number_of_entries=5, at_rank=int, name="t"), "number": number, "from_end": from_end}, answer)
        for number, from_end, answer in ((5, False, 4), (5, True, 0), (0, False, 0), (6, False, NothingMatches))],
    messages.Window.checked: [
        ((N(start_ms=None, end_ms=None, first=Position(1, first), last=Position(1, 5)),), answer)
        for first, answer in ((5, N(start_ms=None, end_ms=None, first=Position(1, 5), last=Position(1, 5))), (6, InvalidValue))],
    messages.Window.holds: [
        *(((BATCH, N(position=Position(1, 5, index))), index in (2, 3)) for index in (0, 2, 3)),
        *(((N(key=None, clock="event", start_ms=5, end_ms=9, times=(5, 9)),
            N(position=Position(1, 5), event_ms=time_ms)), 5 <= time_ms < 9) for time_ms in (5, 9)),
        ((N(key=None, clock="publish", first=EARLIEST, last=Position(1, 5, 0)), N(position=Position(1, 5, 1))), False)],
    nodes._usual_structure: [
        (("/managed-ledgers/t/n/persistent/x",), "ManagedLedgerInfo"),
        (("/managed-ledgers/t/n/persistent/x/c",), "ManagedCursorInfo"), (("/managed-ledgers/t/n/persistent/x/c/d",), ""),
        (("/managed-ledgers/t/n/persistent",), ""), (("/ledgers/00/0000/L0001",), "LedgerMetadata")],
    publish_times.stated_times: [
        ((N(begin_publish_ms=begin, end_publish_ms=end),), answer)
        for begin, end, answer in ((0, 0, PublishTimes(0, 0, "field")), (1, 0, None), (-1, 0, None))],
    publish_times.is_stated_earlier: [
        ((None, None, N(info=N(begin_publish_ms=0, end_publish_ms=5)), time_ms, "publish"), time_ms > 5) for time_ms in (5, 6)],
    resources.Bundle.holds: [((N(lower=5, upper=upper), value), answer)
        for upper, value, answer in ((9, 5, True), (9, 9, False), (2**32 - 1, 2**32 - 1, True))],
    resources.parse_bundle: [
        (("n", "0xffffffff_0xffffffff"), Bundle("n", 2**32 - 1, 2**32 - 1)),
        *((("n", text), InvalidValue) for text in ("0x00000001_0x00000001", "0x00000002_0x00000001", "0x00000001"))],
    schemas._lead: [(([1, 2], (step,)), answer)
        for step, answer in ((-2, [1]), (2, []))] + [(({"a": {"b": 1}}, ("a", "b")), [1])],
    topics.Topic.at_rank: [((MADE_TOPIC, rank), Position(*place))
        for rank, place in ((-1, (7, 0)), (5, (9, 0)), (8, (9, 3)))],
    topics.Topic.ledger: [
        ((N(ids=[7], ledgers=["x"]), ledger_id), "x" if ledger_id == 7 else None) for ledger_id in (7, 8)],
    topics.Topic.is_entry: [
        ((N(ledger=lambda ledger_id: N(entries=5)), Position(7, entry)), 0 <= entry < 5) for entry in (-1, 0, 5)],
    topics.Topic.next_valid: [
        ((N(place=lambda position: 8, number_of_entries=8, ledgers=[], last_confirmed=Position(9, 2)), None), Position(9, 3))],
    topics.Topic.previous: [((MADE_TOPIC, Position(*place)), Position(*answer))
        for place, answer in (((9, 1), (9, 0)), ((9, 0), (7, 4)), ((7, 0), (7, -1)))],
    transactions.SegmentStates.of: [
        ((N(given={1: 5}, aborted=set(), states={}), TxnId(1, number)), COMMITTED if number < 5 else NotSeen)
        for number in (0, 5)],
    topics._split: [(("",), []), (("a\0b",), ["a", "b"])],
    coverage.is_final: [((UNREADABLE, 7), False)],
    coverage._may_lack_entries: [((UNREADABLE, 7), True)],
    broken._find_missing: [((NEWER, 7, ()), None)],
    ledger_owners._text: [((b"\xff",), "ff"), ((b"a",), "a"), ((b"\n",), "0a")],
}  # fmt: skip
REFUSED: Texts = {
    resources.record_of: [((TenantInfo, {"adminRoles": 5}, "x"), "x is not as Pulsar stores it")],
    copy_age.find_as_of: [((N(get=lambda *of: b"x y", store=N(path=Path("p"))),), "the row of the copy's time is damaged")],
    schemas.parse_path_test: [(("x",), "x"), (("x.a == 3",), "x.a == 3")],
    messages.MessageReader._join_chunk: [((N(_chunks={}, _joined={}, options=N(whole=True)), N(metadata=N(chunk_id=1,
        uuid="u")),
        Position(1, 2)), "entry 1:2: chunk 1 of u without the ones before it")],
}  # fmt: skip
SAID: Texts = {
    nodes._look: [(("/managed-ledgers/a/b/other/c", b"\xff"), "its form")],
}  # fmt: skip
test_at_bounds = asking(ANSWERS, refused=REFUSED, said=SAID)
