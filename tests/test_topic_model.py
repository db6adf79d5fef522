"""The read model of topics: the last topic of a snapshot is decoded once, and anew where a transaction changed it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_admin.store.codec.managedledger import ManagedLedger, decode_managed_ledger
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import Node, put_nodes, read_node
from pulsar_admin.store.model import topics
from pulsar_admin.store.model.cursors import subtract, union
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import TopicName, parse_topic
from tests.conftest import Cli
from tests.stores import copied, imported, write_rows

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
