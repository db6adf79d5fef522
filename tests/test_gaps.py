"""What a scan did not find, and what damage costs: first, in the middle, last, and at the bound."""

from pathlib import Path

import pytest
from pyroaring import BitMap64

from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.files import METADATA_FILE_ID, NOT_NEEDED, Damage
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.search.doubts import Doubt, _scan_gaps, find_doubts, text_of_doubts
from tests.synthetic import Made, MadeTopic, make_store


@pytest.mark.parametrize(
    ("scanned", "gaps"),
    [
        ([1, 2, 5], [(0, 0), (3, 4), (6, 7)]),
        ([], [(0, 7)]),
        (range(8), []),
        ([0, 7, 8, 9], [(1, 6)]),
        ([8], [(0, 7)]),
    ],
    ids=str,
)
def test_entries_that_a_scan_did_not_find(scanned: list[int], gaps: list[tuple[int, int]]) -> None:
    assert list(_scan_gaps(BitMap64(scanned), 8)) == gaps


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


def test_doubtful_entries_in_words() -> None:
    one, more = Doubt(2, 58, 58, lost=1), Doubt(2, 58, 59, lost=2)
    unseen, offloaded = Doubt(8, 2, 2, unseen=1, bookies=("b1",)), Doubt(8, 2, 4, unseen=2, offloaded=True)
    both = Doubt(9, 0, 5, lost=1, unseen=2, unseen_from=0, bookies=("b1", "b2"))
    assert [doubt.text() for doubt in (one, more, unseen, offloaded, both)] == [
        "1 lost entry of ledger 2 (2:58)",
        "2 lost entries of ledger 2 (2:58 to 2:59)",
        "1 entry of ledger 8 not seen here (8:2; b1 is not imported)",
        "2 entries of ledger 8 not seen here (8:2 to 8:4; they are in tiered storage, which is not imported)",
        "1 lost entry of ledger 9 (9:0 to 9:5) or 2 entries of ledger 9 not seen here (9:0 to 9:5; b1 and b2 are not imported)"
        " or what ledger 9 may have from entry 0 on (b1 and b2 are not imported)",
    ]
    assert text_of_doubts([one] * 3) == ", ".join([one.text()] * 2) + f" and {one.text()}"
    assert text_of_doubts([one] * 4) == ", ".join([one.text()] * 3) + " and 1 more ledger"
    assert text_of_doubts([one] * 5) == ", ".join([one.text()] * 3) + " and 2 more ledgers"
