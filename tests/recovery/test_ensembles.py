"""The write quorum and ensembles that explain which bookies hold the entries of a ledger whose metadata is lost."""

from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.errors import EntryCorrupt
from pulsar_admin.store.recovery import closing
from pulsar_admin.store.recovery.closing import explain_holders
from tests.deep import deep_but_for
from tests.stores import narrow, read_rows

BOOKIES = ("b0", "b1", "b2", "b3", "b4")


def written(entries: int, ensemble: int, quorum: int) -> list[set[str]]:
    """Return who holds each entry as BookKeeper's RoundRobinDistributionSchedule (4.17) writes them."""
    return [{BOOKIES[(entry + turn) % ensemble] for turn in range(quorum)} for entry in range(entries)]


@deep_but_for((0, 3), ("ensemble", "quorum"), [(2, 2), (3, 2), (3, 3), (5, 3)])
@pytest.mark.parametrize("entries", [600, 50_000])
def test_copies_that_are_lost_here_and_there(ensemble: int, quorum: int, entries: int) -> None:
    """Long ledgers too: of one in which every fiftieth copy is lost no other quorum is looked for to the end."""
    draw = Random(5)
    held = [{bookie for bookie in one if draw.random() > 0.02} for one in written(entries, ensemble, quorum)]
    (fit,) = explain_holders([*map(frozenset, held)])
    assert (fit.write_quorum, len(fit.segments)) == (quorum, 1)
    assert fit.deviating == sum(len(one) != quorum for one in held)
    members = fit.segments[0].members
    for entry, one in enumerate(held):
        assert one <= {members[(entry + turn) % len(members)] for turn in range(quorum)}


def test_every_copy_is_here() -> None:
    (fit,) = explain_holders([*map(frozenset, written(7, 3, 2))])
    assert (fit.write_quorum, fit.deviating) == (2, 0)
    assert [(one.first_entry_id, one.members) for one in fit.segments] == [(0, BOOKIES[:3])]


@pytest.mark.parametrize(("entries", "quorum"), [(5, 0), (6, 2)])
def test_a_ledger_shows_the_quorum_from_three_rounds_on(
    entries: int, quorum: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "iter_indexed_ids", lambda txn: [7])
    monkeypatch.setattr(closing, "read_held", lambda *of: dict.fromkeys(BOOKIES[:2], np.arange(entries)))
    assert read_rows(narrow(), lambda txn: closing._usual_quorum(txn)) == quorum


def test_a_bookie_that_is_replaced_in_the_middle() -> None:
    held = [
        one if entry < 100 or "b2" not in one else one - {"b2"} | {"b3"} for entry, one in enumerate(written(300, 3, 2))
    ]
    fit, _ = explain_holders([*map(frozenset, held[:50]), frozenset({"b2"}), *map(frozenset, held[51:])])
    assert [(one.first_entry_id, one.members) for one in fit.segments] == [(0, BOOKIES[:3]), (100, ("b0", "b1", "b3"))]


@pytest.mark.parametrize(("good", "found"), [({1, 2, 3}, (30, 3)), ({1, 2}, (33, 1)), ({2}, (33, 2)), ((), (33, 3))])
def test_an_end_is_of_the_entries_that_can_be_read(
    good: set[int], found: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(ledger_id: int, entry_id: int) -> SimpleNamespace:
        if entry_id not in good:
            raise EntryCorrupt("")
        return SimpleNamespace(length=10 * entry_id, digest_type=DigestType(entry_id))

    monkeypatch.setattr(closing, "iter_entry_ids", lambda *of: (1, 2, 3))
    assert closing._end_of(SimpleNamespace(txn=None, read=read), 7, 3, 33) == (found[0], DigestType(found[1]))


def test_a_bookie_that_is_gone() -> None:
    """Two thirds of the entries have one copy left: they are not of a ledger with one."""
    held = [frozenset(one - {"b0"}) for one in written(300, 3, 2)]
    (fit,) = explain_holders(held)
    assert (fit.write_quorum, len(fit.segments), fit.deviating) == (2, 1, 200)


@pytest.mark.parametrize(("ensemble", "quorum"), [(3, 2), (5, 2)])
def test_a_fragment_that_was_copied_whole(ensemble: int, quorum: int) -> None:
    """``bookkeeper shell recover`` gives the bookie that replaces another all entries of a fragment: most may have one copy more."""
    held = written(300, ensemble, quorum)
    replaced = [frozenset(one - {"b0"} | {"new"}) for one in held]
    fits = {fit.write_quorum: fit for fit in explain_holders(replaced)}
    expected = tuple("new" if bookie == "b0" else bookie for bookie in BOOKIES[:ensemble])
    assert fits[quorum].segments[0].members == expected
    assert fits[quorum].deviating == sum("b0" not in one for one in held)
