"""What a scan did not find, and what damage costs: first, in the middle, last, and at the bound."""

from itertools import pairwise
from pathlib import Path

import pytest

from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.files import METADATA_FILE_ID, NOT_NEEDED, Damage
from pulsar_admin.store.model.ledgers import find_place, iter_gaps
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.search.doubts import Doubt, find_doubts
from tests.synthetic import Made, MadeTopic, make_store


@pytest.mark.parametrize(
    ("offset", "costs_nothing"), [(NOT_NEEDED - 1, False), (NOT_NEEDED, True), (NOT_NEEDED + 1, True)]
)
def test_damage_of_a_metadata_file_that_was_not_needed_costs_nothing(offset: int, costs_nothing: bool) -> None:
    assert Damage(METADATA_FILE_ID, offset, 1, "", -1, -1).costs_nothing is costs_nothing
    assert not Damage(METADATA_FILE_ID + 1, offset, 1, "", -1, -1).costs_nothing


def test_what_could_precede_an_answer(tmp_path: Path) -> None:
    """Entries lost in the middle of a ledger, and at both ends of the next; of the ledger with the answer those before it."""
    made, lost = Made(1), Made(1, lost=True)
    path = make_store(tmp_path / "s", {"a/b/c": MadeTopic([[made, lost, made], [lost, made, lost, lost], [made]])})
    first, begin, second = Doubt(10, 1, 1, lost=1), Doubt(11, 0, 0, lost=1), Doubt(11, 0, 3, lost=3)
    answers = {None: (first, second), (10, 1): (), (10, 2): (first,), (11, 0): (first,), (11, 1): (first, begin)}
    with open_store(path) as store, store.read() as txn:
        topic = read_topic(txn, parse_topic("a/b/c"))
        for at, doubts in {**answers, (12, 0): (first, second)}.items():
            assert find_doubts(txn, topic, at and Position(*at), 0, "auto", {}) == doubts


def test_gaps_of_ledgers_are_all_that_no_file_has(tmp_path: Path) -> None:
    """Up to every entry, of ledgers that lack entries at their beginning, in the middle and at their end."""
    lost = [(), (0,), (0, 1, 4), (2, 3, 7), (6, 7), (0, 2, 4, 6)]
    ledgers = [[Made(1, lost=entry_id in some) for entry_id in range(8)] for some in lost]
    with open_store(make_store(tmp_path / "s", {"a/b/c": MadeTopic([*ledgers, []])})) as store, store.read() as txn:
        for ledger_id, some in enumerate(lost, 10):
            assert [entry for entry in range(-1, 10) if find_place(txn, ledger_id, entry)] == sorted(
                {*range(8)} - {*some}
            )
            for last in range(-1, 10):
                missing = [entry for entry in range(last + 1) if entry in some or entry > 7]
                gaps = list(iter_gaps(txn, ledger_id, last))
                assert [entry for start, end in gaps for entry in range(start, end + 1)] == missing
                assert all(start <= end for start, end in gaps)
                assert all(before[1] + 1 < after[0] for before, after in pairwise(gaps))
