"""``iter_records`` against BookKeeper's own ``readlog`` (tests/golden/readlog-small.md), entry by entry, in order."""

from __future__ import annotations

import csv
import gzip

import pytest

from pulsar_admin.store.codec.entrylog import iter_records
from tests.worlds import GOLDEN, world

LOGS = [
    ("clean", "0.log", 1087),
    ("clean", "1.log", 1479),
    ("crashed", "0.log", 1087),
    ("crashed", "1.log", 1479),
    ("crashed", "3.log", 28),
    ("crashed", "5.log", 1),
]


@pytest.fixture(scope="module")
def golden() -> list[dict[str, str]]:
    with gzip.open(GOLDEN / "readlog-small.csv.gz", "rt", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize(("state", "log", "entries"), LOGS)
def test_scan_equals_readlog(golden: list[dict[str, str]], state: str, log: str, entries: int) -> None:
    theirs = [
        tuple(int(row[column]) for column in ("ByteOffset", "EntrySize", "ledger", "entry"))
        for row in golden
        if (row["state"], row["log"]) == (state, log)
    ]
    assert len(theirs) == entries
    assert list(iter_records((world("small") / state / "bookkeeper/current" / log).read_bytes(), log)) == theirs
