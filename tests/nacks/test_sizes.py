"""The size calculator against PIP-393's own worked numbers."""

from typing import Any

import numpy as np
import pytest

from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.nacks import sizes as calculator
from tests.deep import deep_but_for

MIB = 2**20


def test_maps_as_the_document_measured_them() -> None:
    assert calculator.pair_map_bytes(1_000_000) == 64 * MIB
    assert calculator.pair_map_bytes(10_000_000) == 512 * MIB
    assert calculator.hash_map_bytes(10_000_000) == 1132 * MIB


@pytest.mark.parametrize(
    ("per_bucket", "bytes_per_entry"), [(1, 4.0), (4095, 4.0), (8192, 1.0), (50_000, 0.16384), (655_360, 0.16384)]
)
def test_formula_as_the_document_has_it(per_bucket: float, bytes_per_entry: float) -> None:
    assert calculator.seed_bytes(10_000_000, per_bucket) == pytest.approx(10_000_000 * bytes_per_entry)


def test_ten_thousand_a_second_for_one_and_five_hours() -> None:
    one, five = (calculator.size_tracker(calculator.NackLoad(10_000, hours * 3_600_000), 8) for hours in (1, 5))
    assert (one.pending_entries, five.pending_entries) == (36_000_000, 180_000_000)
    assert (one.worst_early_ms, one.mean_early_ms, one.bucket_ms) == (255, 127.5, 256)
    assert one.firings_per_minute == 60_000 / 256
    assert one.buckets == 14_064
    assert one.seed_bytes == 4 * 36_000_000
    assert one.resident_bytes_per_entry <= 0.03
    for name in ("serialized_bytes", "resident_bytes", "java_bytes"):
        assert getattr(five, name) == pytest.approx(5 * getattr(one, name), rel=1e-4)
    ledgers = calculator.size_tracker(calculator.NackLoad(100_000, 3_600_000, entries_per_ledger=5000), 8)
    assert ledgers.seed_bytes == 360_000_000 // 5000 * 8192  # 25,600 entries a bucket, of which a ledger has 5,000


def test_target_of_one_entry_a_millisecond() -> None:
    sizing = calculator.size_tracker(calculator.NackLoad(1000, 1_000_000), 8)
    assert sizing.pending_entries == 1_000_000
    assert sizing.serialized_bytes <= 200_000
    assert sizing.resident_bytes <= 1_000_000


def test_table_has_a_row_per_bit_and_falls() -> None:
    table = calculator.size_table(calculator.NackLoad(1000, 600_000))
    assert [row.precision_bits for row in table] == list(range(17))
    assert [row.worst_early_ms for row in table] == [2**bits - 1 for bits in range(17)]
    sizes = [row.serialized_bytes for row in table]
    assert sizes == sorted(sizes, reverse=True)


def test_sample_leaves_acknowledged_entries_out() -> None:
    ledgers, entries, times = calculator.sample_load(calculator.NackLoad(1000, 3_600_000, acknowledged_every=10), 10)
    assert not (entries % 10 == 0).any()
    assert len(ledgers) == len(entries) == len(times) == pytest.approx(180_000, rel=0.01)
    assert set(ledgers.tolist()) == {0, 1, 2, 3}
    one_bucket, *_ = calculator.sample_load(calculator.NackLoad(2_000_000, 3_600_000), 8)
    assert len(one_bucket) == 512_000


@pytest.mark.parametrize(
    "arguments",
    [(0, 1), (-1, 1), (1, 0), (1, -1), (1, 2**60), (float("nan"), 1), (1, 1, 0), (1, 1, 1, 0), (1, 1, 1, 1, 1)],
)
def test_senseless_loads_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidValue):
        calculator.NackLoad(*arguments)


def test_bits_out_of_range_are_refused() -> None:
    with pytest.raises(InvalidValue):
        calculator.size_tracker(calculator.NackLoad(1, 1), 63)


# Heap bytes an entry after garbage collection, Pulsar 4.0.8's own classes on OpenJDK 17 (bench/peers/NackStructures.java):
# entries, every n-th left out, entries a millisecond → bits → bytes an entry.
MEASURED_IN_JAVA = {
    (1_000_000, 0, 1): {0: 808, 1: 404.2, 2: 202.1, 4: 52.01, 6: 14.50, 8: 5.661, 10: 2.935, 12: 2.223, 14: 0.683, 16: 0.296},
    (1_000_000, 10, 1): {0: 809, 1: 449.2, 2: 224.6, 4: 57.79, 6: 16.12, 8: 6.289, 10: 3.256, 12: 2.447, 14: 0.756, 16: 0.328},
    (2_000_000, 0, 10): {1: 43.2, 2: 23.25, 4: 7.72, 6: 3.546, 8: 2.455, 10: 0.990, 12: 0.375, 14: 0.221, 16: 0.183},
}  # fmt: skip


@deep_but_for((1,), "load", MEASURED_IN_JAVA)
def test_the_java_clients_heap_as_measured(load: tuple[int, int, int]) -> None:
    entries, acknowledged_every, per_ms = load
    index = np.arange(entries)
    if acknowledged_every:
        index = index[index % acknowledged_every != 0]
    due = 1_700_003_600_000 + index // per_ms
    for bits, measured in MEASURED_IN_JAVA[load].items():
        found = calculator.java_client_bytes(10 + index // 50_000, index % 50_000, due, bits) / len(index)
        assert found == pytest.approx(measured, rel=0.02), bits


def test_the_java_clients_maps_of_many_ledgers_and_doubled_nacks() -> None:
    """Worked by hand: 544 and 240 + 24 for one; an entry of a bucket counts once; 25 ledgers need 64 slots of 12 bytes."""
    one = np.zeros(1, np.int64)
    assert calculator.java_client_bytes(one, one, one, 8) == 544 + 240 + 24
    assert calculator.java_client_bytes(one.repeat(2), one.repeat(2), np.array([1, 2]), 8) == 544 + 240 + 24
    capacity = 4  # of RoaringBitmap's ArrayContainer, which grows when it is full
    while capacity < 4096:
        following = capacity * 2 if capacity < 64 else capacity * 3 // 2 if capacity < 1067 else capacity * 5 // 4
        following = 4096 if following > 4096 - 4096 // 16 else following
        for ids, room in ((capacity, capacity), (capacity + 1, following), (following, following)):
            found = calculator.java_client_bytes(one.repeat(ids), np.arange(ids), one.repeat(ids), 8)
            assert found == 544 + 240 + -(-(16 + 2 * room) // 8) * 8
        capacity = following
    bits = calculator.java_client_bytes(one.repeat(4097), np.arange(4097), one.repeat(4097), 8)
    assert bits == 544 + 240 + 16 + 8192
    ledgers = np.arange(25)
    assert calculator.java_client_bytes(ledgers, ledgers * 0, ledgers * 0, 8) == 544 + 32 * 12 + 25 * (240 + 24)
