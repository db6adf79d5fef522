"""``iter_records`` against BookKeeper's own ``readlog`` (tests/golden/readlog-small.md), entry by entry, in order."""

from __future__ import annotations

import csv
import gzip

import pytest

from pulsar_admin.store.codec.entrylog import Record, iter_records
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


def test_golden_has_no_other_log(golden: list[dict[str, str]]) -> None:
    assert {(row["state"], row["log"]) for row in golden} == {(state, log) for state, log, _ in LOGS}


@pytest.mark.parametrize("state", ["clean", "crashed"])
def test_every_log_with_bytes_is_covered(state: str) -> None:
    current = world("small") / state / "bookkeeper/current"
    found = {path.name for path in current.glob("*.log") if path.stat().st_size}
    assert found == {log for known, log, _ in LOGS if known == state}
    assert all(isinstance(item, Record) for log in found for item in iter_records((current / log).read_bytes(), log))
