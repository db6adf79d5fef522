"""The read model of topics: the last topic of a snapshot is decoded once, and anew where a transaction changed it."""

from itertools import chain, combinations, product
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_admin.store.codec.cursor import CursorInfo, CursorState, Position
from pulsar_admin.store.codec.managedledger import ManagedLedger, decode_managed_ledger
from pulsar_admin.store.codec.policies import PartitionedTopic
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.tree import Node, put_nodes, read_node
from pulsar_admin.store.facts.partitions import Partitions, find_disagreeing
from pulsar_admin.store.model import topics
from pulsar_admin.store.model.cursors import read_cursor, subtract, union
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import iter_partitioned, read_topic
from pulsar_admin.store.names import TopicName, parse_topic
from pulsar_admin.store.search.by_time import find_first_at_or_after
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
