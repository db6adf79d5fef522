"""What a broker needs for a delayed backlog: queues as the real one sizes them, bitmaps and buckets counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pulsar_admin.store.db.delayed_entries import sorted_rows
from pulsar_admin.store.delayed.trackers import bitmap_bytes, queue_bytes
from tests.conftest import Cli
from tests.delayed.world import TOPIC
from tests.stores import imported


@pytest.mark.parametrize(
    ("messages", "size_bytes"),
    [
        # TripleLongPriorityQueue.bytesCapacity() of pulsar-common 4.0.8 after so many add().
        (1, 384),
        (16, 384),
        (17, 768),
        (142, 4608),
        (1000, 34_992),
        (100_000, 3_026_312),
        (1_000_000, 33_554_432),
        (5_000_000, 134_217_728),
    ],
)
def test_queues_are_as_large_as_real_ones(messages: int, size_bytes: int) -> None:
    assert queue_bytes(messages) == size_bytes


def test_bitmaps_by_trimmed_time() -> None:
    """A tick of 1000 ms trims 9 bits: 0 and 511 are one time, 512 another; two ledgers are two bitmaps."""
    columns = np.array([(0, 5, 1), (511, 5, 2), (511, 6, 1), (512, 5, 3)])
    rows = sorted_rows(columns[:, 0], columns[:, 1], columns[:, 2])
    assert bitmap_bytes([rows], 1000) == 2 * 56 + 3 * 176 + 4 * 2


def test_backlog_of_a_world(cli: Cli) -> None:
    """100 of 142 delayed messages are in the broker's one bucket: it skips them, and loads the bucket's metadata and a segment."""
    store = imported("small", "clean")
    found = cli("--store", store, "delayed", "status", TOPIC, "-s", "workers", "-o", "json").json[0]
    in_memory, bitmaps, buckets = found["trackers"]
    assert found["messages"] == 142
    assert in_memory["memory"] == 4608
    assert [in_memory["rebuildEntries"], bitmaps["rebuildEntries"]] == [145, 145]
    assert buckets["rebuildEntries"] == 145 - 100 + 2
    assert in_memory["rebuildMs"] == 145 * 1000 // 50_000
