"""What a scan did not find, and what damage costs: first, in the middle, last, and at the bound."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from pulsar_admin.store.db.files import METADATA_FILE_ID, NOT_NEEDED, Damage
from pulsar_admin.store.search.doubts import _scan_gaps


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
