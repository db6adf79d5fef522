"""What negative acks cost is what ``nacks plan`` prints as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pulsar_admin as pa
from tests.conftest import Cli

PLAIN = "public/default/plain"
COLUMNS = {
    "precisionBits": "precision_bits",
    "bucket": "bucket_ms",
    "worstEarly": "worst_early_ms",
    "pendingEntries": "pending_entries",
    "buckets": "buckets",
    "firingsPerMinute": "firings_per_minute",
    "bytesJavaClient": "java_bytes",
    "bytesPairMap": "pair_map_bytes",
    "bytesSerialized": "serialized_bytes",
    "bytesResident": "resident_bytes",
}


def check_sizes(sizes: pa.NackSizes, bits: int, shown: dict[str, Any]) -> None:
    for sizing, row in zip(sizes.precisions, shown["precisions"], strict=True):
        assert {key: getattr(sizing, field) for key, field in COLUMNS.items()} == {key: row[key] for key in COLUMNS}
    assert [row["precisionBits"] for row in shown["precisions"] if row["wanted"]] == [bits]
    assert sizes.load.entries_per_second == shown["load"]["entriesPerSecond"]


def test_sizes_of_a_load(cli: Cli) -> None:
    options = ("--rate", 500, "--delay", "5m", "--batch-size", 4, "--acknowledged-every", 3)
    sizes = pa.nack_sizes(500, "5m", batch_size=4, acknowledged_every=3)
    check_sizes(
        sizes, sizes.recommended_bits("1s"), cli("nacks", "plan", *options, "--precision", "1s", "-o", "json").json
    )
    shown = cli("nacks", "plan", *options, "--memory", "1K", "-o", "json").json
    check_sizes(sizes, sizes.recommended_bits(memory_bytes=1024), shown)
    assert sizes.recommended_bits("1s") == 9  # 2^9 - 1 ms are within a second, 2^10 - 1 are not
    assert sizes.recommended_bits("1h") == 16
    with pytest.raises(pa.InvalidValue, match="how many nacks"):
        pa.nack_sizes()


def test_sizes_of_a_topic(cli: Cli, demo_store: Path) -> None:
    options = ("--topic", PLAIN, "-s", "holes", "--delay", "10m", "-o", "json")
    shown = cli("--store", demo_store, "nacks", "plan", *options).json
    with pa.open_store(demo_store) as store:
        measured = store.topic(PLAIN).measured_nacks("holes")
        sizes = pa.nack_sizes(delay="10m", measured=measured)
        with pytest.raises(pa.SubscriptionNotFound):
            store.topic(PLAIN).measured_nacks("none")
    assert (measured.holes, measured.nacked_share) == (shown["load"]["holes"], shown["load"]["nackedShare"])
    assert 0 < measured.nacked_share < 1
    check_sizes(sizes, sizes.recommended_bits(), shown)
