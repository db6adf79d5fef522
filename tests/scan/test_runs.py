"""Scanned records cut into location blocks and summed by columns, beside the same sums counted one by one."""

from itertools import groupby
from typing import Any

import numpy as np
import pytest

from pulsar_admin.store.kernels.columns import BAD_DIGEST, HAS_BROKER_TIME, RECORD, UNFRAMED
from pulsar_admin.store.scan.runs import RUN, _cut


def _drawn(seed: int) -> Any:  # Any: a structured array
    """Return records of four ledgers, in order: long runs and single ones, with and without times, batches that lie."""
    drawn = np.random.default_rng(seed)
    ids = sorted({(int(drawn.integers(4)), int(drawn.integers(5000))) for _ in range(300)})
    rows = np.zeros(len(ids), RECORD)
    rows["ledger_id"], rows["entry_id"] = np.array(ids).T
    rows["size"] = drawn.integers(20, 200, len(ids))  # below 32: no payload at all
    rows["messages"] = drawn.choice([1, 1, 1, 7, -3], len(ids))
    rows["lac"] = drawn.integers(-1, 50, len(ids))
    rows["digest_bytes"] = drawn.choice([4, 8, 20], len(ids))
    rows["flags"] = drawn.choice([0, HAS_BROKER_TIME, UNFRAMED, UNFRAMED | HAS_BROKER_TIME], len(ids))
    rows["publish_ms"], rows["broker_ms"] = drawn.integers(-9, 99, (2, len(ids)))
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_sums_of_blocks(seed: int) -> None:
    rows = _drawn(seed)
    runs = _cut(rows)
    assert runs is not None
    parts = [list(part) for _, part in groupby(rows, lambda row: (row["ledger_id"], row["entry_id"] // 1024))]
    assert len(parts) == len(runs) > 10
    at = 0
    for run, part in zip(runs, parts, strict=True):
        first, last = part[0], part[-1]
        assert (run["start"], run["end"]) == (at, at := at + len(part))
        assert (run["ledger_id"], run["block"]) == (first["ledger_id"], first["entry_id"] // 1024)
        assert (run["first_slot"], run["last_slot"]) == (first["entry_id"] % 1024, last["entry_id"] % 1024)
        assert run["digest_bytes"] == first["digest_bytes"]
        assert run["messages"] == sum(max(int(row["messages"]), 0) for row in part)
        assert run["others"] == sum(row["messages"] not in (1,) for row in part)
        assert run["payload_bytes"] == sum(max(int(row["size"]) - 32 - int(row["digest_bytes"]), 0) for row in part)
        assert run["max_lac"] == max(row["lac"] for row in part)
        broker = [int(row["broker_ms"]) for row in part if row["flags"] & HAS_BROKER_TIME]
        framed = [row for row in part if not row["flags"] & UNFRAMED]
        publish = [int(row["publish_ms"]) for row in framed]
        auto = [int(row["broker_ms" if row["flags"] & HAS_BROKER_TIME else "publish_ms"]) for row in framed]
        assert (run["broker_count"], run["unframed"]) == (len(broker), len(part) - len(framed))
        for name, times in (("broker", broker), ("publish", publish), ("auto", auto)):
            expected = (min(times, default=2**63 - 1), max(times, default=-(2**63)))
            assert (run[f"{name}_min_ms"], run[f"{name}_max_ms"]) == expected


def test_what_is_not_in_order_or_damaged_is_not_cut() -> None:
    rows = _drawn(7)
    assert _cut(rows[:0]).shape == (0,)  # type: ignore[union-attr]
    assert _cut(rows[[0, 2, 1]]) is None
    assert _cut(rows[[0, 0]]) is None
    assert _cut(rows[[-1, 0]]) is None
    rows[5]["flags"] |= BAD_DIGEST
    assert _cut(rows) is None
    assert _cut(rows[:5]).dtype == RUN  # type: ignore[union-attr]


def test_an_entry_that_is_there_twice_is_no_ascending_run() -> None:
    from pulsar_admin.store.scan.runs import _cut

    rows = np.zeros(3, RECORD)
    rows["ledger_id"], rows["entry_id"] = 5, (0, 1, 1)
    assert _cut(rows) is None
    rows["entry_id"] = (0, 1, 2)
    assert _cut(rows) is not None
