"""Rows sorted on disk come as Python's own stable sort has them, however many runs they make."""

import errno
import os
import random
from itertools import islice

import numpy as np
import pytest

from pulsar_admin.store.compaction.keys import LatestKeys
from pulsar_admin.store.errors import DiskFull
from pulsar_admin.store.scan.integer_rows import SortedSpill


@pytest.mark.parametrize("rows", [0, 1, 6, 7, 8, 5000])
@pytest.mark.parametrize("run_rows", [1, 7, 1000, 1 << 20])
def test_rows_come_sorted_and_equal_ones_as_they_were_added(rows: int, run_rows: int) -> None:
    source = random.Random(rows)
    added = [(source.choice([-(2**63), source.randrange(rows), 2**63 - 1]), number) for number in range(rows)]
    with SortedSpill(2, run_rows) as sorted_rows:
        for row in added:
            sorted_rows.add(*row)
        assert list(sorted_rows) == sorted(added, key=lambda row: row[0])


def test_a_reader_that_stops_leaves_no_file() -> None:
    before = os.listdir("/proc/self/fd")
    with SortedSpill(1, 10) as sorted_rows:
        for number in range(100):
            sorted_rows.add(-number)
        assert list(islice(sorted_rows, 3)) == [(-99,), (-98,), (-97,)]
    assert os.listdir("/proc/self/fd") == before


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    def pwrite(descriptor: int, data: object, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pulsar_admin.store.scan.integer_rows.os.pwrite", pwrite)


@pytest.mark.usefixtures("full")
def test_a_full_disk_is_named() -> None:
    with SortedSpill(1, 2) as sorted_rows:
        sorted_rows.add(1)
        with pytest.raises(DiskFull, match="no space left writing"):
            sorted_rows.add(2)


@pytest.mark.usefixtures("full")
def test_a_full_disk_while_keys_are_collected_is_named() -> None:
    hashes = np.arange(1, 10, dtype=np.uint64)
    with LatestKeys(1) as keys, pytest.raises(DiskFull, match="no space left writing"):
        keys.merge((hashes, hashes, hashes))


@pytest.mark.parametrize("limit_keys", [1, 3, 1000])
def test_the_latest_of_keys_wherever_their_hashes_lie(limit_keys: int) -> None:
    """Hashes at both ends of their range, and equal first ones: what is written out comes back once, in the part it belongs to."""
    firsts = [0, 0, 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 1, 2**62, 3 * 2**62]
    with LatestKeys(limit_keys) as keys:
        for turn in range(2):
            for number, first in enumerate(firsts):
                last = np.array([(turn * len(firsts) + number) << 1], np.uint64)
                keys.merge((np.array([first], np.uint64), np.array([number], np.uint64), last))
        keys.ordinal = 2 * len(firsts)
        latest = keys.finish()
    found = np.unpackbits(latest.bits, bitorder="little")[: 2 * len(firsts)]
    assert found.tolist() == [0] * len(firsts) + [1] * len(firsts)
    assert latest.keys == len(firsts)
    assert (latest.spilled_runs > 0) == (limit_keys < len(firsts))
