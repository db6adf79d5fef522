"""Rows sorted on disk come as Python's own stable sort has them, however many runs they make."""

from __future__ import annotations

import errno
import os
import random
from itertools import islice
from typing import Any

import pytest

from pulsar_admin.store.errors import DiskFull
from pulsar_admin.store.tables import rows
from pulsar_admin.store.tables.rows import SortedSpill


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


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None: ...

    def full(**options: Any) -> Full:
        return Full()

    monkeypatch.setattr(rows.tempfile, "TemporaryFile", full)
    with SortedSpill(1, 2) as sorted_rows:
        sorted_rows.add(1)
        with pytest.raises(DiskFull, match="no space left writing"):
            sorted_rows.add(2)
