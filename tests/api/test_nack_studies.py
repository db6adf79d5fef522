"""What negative acks cost, and what timers make of them, is what ``nacks plan`` and ``nacks simulate`` print as JSON."""

from __future__ import annotations

import json
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
    options = ("--rate", 500, "--delay", "1h", "--batch-size", 4, "--acknowledged-every", 3)
    sizes = pa.nack_sizes(500, "1h", batch_size=4, acknowledged_every=3)
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


def check_timers(found: pa.NackSimulation, shown: list[dict[str, Any]]) -> None:
    assert [(one.timer, one.redeliveries, one.firings, one.early.max_ms, one.late.mean_ms) for one in found.timers] == [
        (row["timer"], row["redeliveries"], row["firings"], row["early"]["max"], row["late"]["mean"]) for row in shown
    ]


def test_timers(cli: Cli, tmp_path: Path) -> None:
    options = ("--rate", 50, "--duration", "4s", "--delay", "1s", "--max-delay", "3s", "--bits", 10, "--seed", 7)
    shown = cli("nacks", "simulate", *options, "--base-delay", "2s", "-o", "json").json
    found = pa.simulate_nacks(50, "1s", max_delay="3s", precision_bits=10, base_delay="2s", duration="4s", seed=7)
    check_timers(found, shown["timers"])
    assert found.load is not None
    assert found.load.seed == shown["load"]["seed"] == 7
    lines = [json.dumps({"time": time, "ledgerId": 1, "entryId": time, "delay": "1s"}) for time in (0, 10, 700)]
    (tmp_path / "events").write_text("\n".join(lines))
    shown = cli("nacks", "simulate", "--events", tmp_path / "events", "--bits", 0, "-o", "json").json
    replayed = pa.replay_nacks(lines, precision_bits=0)
    check_timers(replayed, shown["timers"])
    assert {(one.timer, one.early.max_ms) for one in replayed.timers if one.timer == "deadline"} == {("deadline", 0)}
    with pytest.raises(pa.InvalidValue, match="mine line 2"):
        pa.replay_nacks([lines[0], "{"], source="mine")
    with pytest.raises(pa.StoreError, match="messages are more than"):
        pa.simulate_nacks(10**6, duration="1h")


def test_a_grid(cli: Cli) -> None:
    options = (
        "--rate",
        40,
        "--rate",
        90,
        "--delay",
        "1s",
        "--delay",
        "2s",
        "--bits",
        0,
        "--bits",
        8,
        "--duration",
        "2s",
    )
    shown = cli("nacks", "simulate", *options, "-o", "json").json
    rows = pa.nack_grid([40, 90], ["1s", "2s"], [0, 8], duration="2s").run()
    assert [
        (one.messages_per_second, one.delay_ms, one.precision_bits, one.timer, one.max_late_ms) for one in rows
    ] == [(row["messagesPerSecond"], row["delay"], row["precisionBits"], row["timer"], row["maxLate"]) for row in shown]
    assert len(rows) == 2 * 2 * 2 * 5
    assert pa.nack_grid([], ["1s"], [8]).run() == ()
