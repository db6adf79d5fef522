"""The cost of a tracker of negative acks: memory, earliness and timer firings for a load and a precision.

Formulae are those of PIP-393 ("Space complexity analysis"), as written there; the measured columns come from encoding
a sample of the load with the real tracker. docs/howto/negative-acks.md lists where PIP-393's numbers contradict its own
arithmetic or the Roaring format.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from pulsar_admin.store.db.nacks import check_precision_bits
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.nacks.bitmaps import ARRAY_LIMIT, Int64s
from pulsar_admin.store.nacks.segments import HEADER_SIZE_BYTES, check_column, join_blocks
from pulsar_admin.store.nacks.tracker import NegativeAcksTracker
from pulsar_admin.store.names import LONG_MAX
from pulsar_admin.store.wording import Answer

if TYPE_CHECKING:
    from pulsar_admin.store.nacks.holes import TopicNacks

ENTRIES_PER_LEDGER = 50_000
"""Broker setting ``managedLedgerMaxEntriesPerLedger``, its default."""

_MIB = 1 << 20
_HASH_MAP_BYTES_PER_ENTRY = 1132 * _MIB / 10_000_000  # as PIP-393 measured ten million entries
_PAIR_MAP_SLOT_BYTES = 32  # four longs
_PAIR_MAP_FILL = 0.66
_PAIR_MAP_IDLE = 0.15
_PAIR_MAP_EXPECTED = 256
_BITSET_BYTES = 8192
_JAVA_BUCKET_BYTES = 544  # a node of the tree and an open hash map of 32 slots
_JAVA_BITMAP_BYTES = 240  # a Roaring64Bitmap of one container, without the container's ids
_OPEN_MAP_SLOTS, _OPEN_MAP_FILL, _OPEN_MAP_SLOT_BYTES = 32, 0.75, 12
_ARRAY_IDS = np.array(  # capacities that ArrayContainer.increaseCapacity goes through
    [4, 8, 16, 32, 64, 96, 144, 216, 324, 486, 729, 1093, 1366, 1707, 2133, 2666, 3332, 4096]
)
_SAMPLE_ENTRIES = 200_000
_MOST_RATE = 10**9
_SAMPLE_LIMIT = 2_000_000


class NackLoad(Answer, frozen=True):
    """A steady stream of nacks: every message of every entry, except each ``acknowledged_every``-th entry (0: no exception).

    Raises InvalidValue, naming the value, if one is out of range.
    """

    messages_per_second: float
    delay_ms: int
    batch_size: int = 1
    entries_per_ledger: int = ENTRIES_PER_LEDGER
    acknowledged_every: int = 0

    def __post_init__(self) -> None:
        rate = self.messages_per_second
        if not 0 < rate <= _MOST_RATE:  # nan is not, either
            raise InvalidValue(
                f"rate {rate:g}: it must be above 0 and at most {_MOST_RATE:,} messages a second", value=f"{rate:g}"
            )
        counts = (
            ("delay", self.delay_ms, LONG_MAX // 2**20, "ms"),
            ("batch size", self.batch_size, LONG_MAX, "messages per entry"),
            ("entries per ledger", self.entries_per_ledger, LONG_MAX, "entries"),
        )
        for name, count, most, unit in counts:
            if not 1 <= count <= most:
                raise InvalidValue(f"{name} {count:,}: it must be 1 to {most:,} {unit}", value=count)
        if self.acknowledged_every < 0 or self.acknowledged_every == 1:
            raise InvalidValue(
                f"acknowledged every {self.acknowledged_every}: it must be 0 (every entry counts), or 2 or more",
                value=self.acknowledged_every,
            )

    @property
    def entries_per_second(self) -> float:
        """Nacked entries per second."""
        kept = 1 - 1 / self.acknowledged_every if self.acknowledged_every else 1
        return self.messages_per_second / self.batch_size * kept

    @property
    def pending_entries(self) -> int:
        """The number of tracked entries from the end of the first delay on."""
        return math.ceil(self.entries_per_second * self.delay_ms / 1000)


class MeasuredSize(Struct, frozen=True):
    """The size of a sample in the tracker; ``resident_bytes``: its columns and bitmaps in memory."""

    entries: int
    buckets: int
    rows: int
    serialized_bytes: int
    resident_bytes: int
    java_bytes: int


class TrackerSizing(Answer, frozen=True):
    """The cost at one precision: bytes of all pending entries in each structure, earliness, and timer firings."""

    precision_bits: int
    bucket_ms: int
    worst_early_ms: int
    mean_early_ms: float
    pending_entries: int
    buckets: int
    firings_per_minute: float
    java_bytes: int = field(name="bytesJavaClient")
    hash_map_bytes: int = field(name="bytesHashMap")
    pair_map_bytes: int = field(name="bytesPairMap")
    seed_bytes: int = field(name="bytesFormula")
    serialized_bytes: int = field(name="bytesSerialized")
    resident_bytes: int = field(name="bytesResident")

    @property
    def resident_bytes_per_entry(self) -> float:
        """The tracker's memory per pending entry."""
        return self.resident_bytes / self.pending_entries


def hash_map_bytes(entries: int) -> int:
    """Return the bytes of a HashMap<MessageId, Long>, from PIP-393's measurement of ten million entries."""
    return round(entries * _HASH_MAP_BYTES_PER_ENTRY)


def pair_map_bytes(entries: int) -> int:
    """Return the bytes of a ConcurrentLongLongPairHashMap: 32 per slot, a power of two of slots, at most 66 % used."""
    slots = max(entries, _PAIR_MAP_EXPECTED) / _PAIR_MAP_FILL
    return _PAIR_MAP_SLOT_BYTES << math.ceil(math.log2(slots))


def emptiest_pair_map_bytes(entries: int) -> int:
    """Return the most bytes that map has for ``entries``: it halves its slots when fewer than 15 % are used."""
    return max(pair_map_bytes(entries), _PAIR_MAP_SLOT_BYTES << math.floor(math.log2(entries / _PAIR_MAP_IDLE)))


def java_client_bytes(ledger_ids: Int64s, entry_ids: Int64s, due_times_ms: Int64s, precision_bits: int) -> int:
    """Return the heap that the Java client 4.0.8 needs for these nacks (columns of i64), each entry of a bucket once.

    Its ``NegativeAcksTracker`` is a Long2ObjectAVLTreeMap of Long2ObjectOpenHashMaps of Roaring64Bitmaps (fastutil 8.5.16,
    RoaringBitmap 1.2.0), here on a 64-bit JVM with compressed pointers. An array of ids grows from 4 by half or doubling, and
    is a bit set of 8 KiB above 4,096 ids. Within 2 % of the heap measured with those classes (tests/nacks/test_sizes.py).
    """
    buckets = np.asarray(due_times_ms, np.int64) >> precision_bits
    order = np.lexsort((entry_ids, ledger_ids, buckets))
    bucket, ledger, entry = buckets[order], np.asarray(ledger_ids)[order], np.asarray(entry_ids)[order]
    is_bucket = np.diff(bucket, prepend=-1) != 0
    is_bitmap = is_bucket | (np.diff(ledger, prepend=-1) != 0)
    is_container = is_bitmap | (np.diff(entry >> 16, prepend=-1) != 0)
    ids = np.add.reduceat(
        is_container | (np.diff(entry, prepend=-1) != 0), np.flatnonzero(is_container), dtype=np.int64
    )
    arrays = 16 + 2 * _ARRAY_IDS[np.minimum(np.searchsorted(_ARRAY_IDS, ids), len(_ARRAY_IDS) - 1)]
    containers = np.where(ids > ARRAY_LIMIT, 16 + _BITSET_BYTES, -(-arrays // 8) * 8)
    ledgers = np.add.reduceat(is_bitmap, np.flatnonzero(is_bucket), dtype=np.int64)
    slots = 1 << np.ceil(np.log2(np.maximum(ledgers / _OPEN_MAP_FILL, _OPEN_MAP_SLOTS))).astype(np.int64)
    maps = _JAVA_BUCKET_BYTES + _OPEN_MAP_SLOT_BYTES * (slots - _OPEN_MAP_SLOTS)
    return int(maps.sum() + _JAVA_BITMAP_BYTES * int(is_bitmap.sum()) + containers.sum())


def seed_bytes(entries: int, entries_per_bucket: float, entries_per_ledger: int = ENTRIES_PER_LEDGER) -> int:
    """Return the bytes by PIP-393's conclusion: 4 per entry, a bitset of 8 KiB per bucket, or one per full ledger."""
    if entries_per_bucket < ARRAY_LIMIT:
        return 4 * entries
    return round(_BITSET_BYTES / min(entries_per_bucket, entries_per_ledger) * entries)


def measure_size(ledger_ids: Int64s, entry_ids: Int64s, due_times_ms: Int64s, precision_bits: int) -> MeasuredSize:
    """Return the size of the given nacks in a tracker; raises InvalidValue as ``NegativeAcksTracker.add_many``."""
    tracker = NegativeAcksTracker(precision_bits)
    tracker.add_many(ledger_ids, entry_ids, 0, now_ms=due_times_ms)
    rows = join_blocks(tracker.pending().blocks)
    return MeasuredSize(
        entries=len(tracker),
        buckets=len(np.unique(rows.buckets)),
        rows=len(rows.buckets),
        serialized_bytes=len(tracker.to_bytes()),
        resident_bytes=tracker.size_bytes,
        java_bytes=java_client_bytes(ledger_ids, entry_ids, due_times_ms, precision_bits),
    )


def sample_load(load: NackLoad, precision_bits: int) -> tuple[Int64s, Int64s, Int64s]:
    """Return ledger ids, entry ids and due times of a load's first whole buckets: about 200,000 entries, at most two
    million."""
    entries_per_ms = load.messages_per_second / load.batch_size / 1000
    per_bucket = entries_per_ms * (1 << precision_bits)
    buckets = max(1, round(_SAMPLE_ENTRIES / per_bucket))
    stored = max(1, min(round(buckets * per_bucket), _SAMPLE_LIMIT, round(entries_per_ms * load.delay_ms)))
    entry = np.arange(stored, dtype=np.int64)
    if load.acknowledged_every:
        entry = entry[entry % load.acknowledged_every != 0]
    times = (entry / entries_per_ms).astype(np.int64)
    return entry // load.entries_per_ledger, entry % load.entries_per_ledger, times


def size_tracker(load: NackLoad, precision_bits: int) -> TrackerSizing:
    """Return the cost of a load at one precision; raises InvalidValue for bits out of range."""
    bucket_ms = 1 << check_precision_bits(precision_bits)
    sample = sample_load(load, precision_bits)
    return scale_size(load, precision_bits, bucket_ms, measure_size(*sample, precision_bits))


def scale_size(load: NackLoad, precision_bits: int, bucket_ms: int, sample: MeasuredSize) -> TrackerSizing:
    """Return the cost of a load whose bytes per entry are those of ``sample``."""
    entries, per_second = load.pending_entries, load.entries_per_second
    factor = entries / sample.entries if sample.entries else 0.0
    return TrackerSizing(
        precision_bits=precision_bits,
        bucket_ms=bucket_ms,
        worst_early_ms=bucket_ms - 1,
        mean_early_ms=(bucket_ms - 1) / 2,
        pending_entries=entries,
        buckets=min(entries, math.ceil(load.delay_ms / bucket_ms) + 1),
        firings_per_minute=min(per_second * 60, 60_000 / bucket_ms),
        hash_map_bytes=hash_map_bytes(entries),
        pair_map_bytes=pair_map_bytes(entries),
        seed_bytes=seed_bytes(entries, per_second / 1000 * bucket_ms, load.entries_per_ledger),
        serialized_bytes=HEADER_SIZE_BYTES + math.ceil((sample.serialized_bytes - HEADER_SIZE_BYTES) * factor),
        resident_bytes=math.ceil(sample.resident_bytes * factor),
        java_bytes=math.ceil(sample.java_bytes * factor),
    )


def size_table(load: NackLoad, measured: TopicNacks | None = None) -> tuple[TrackerSizing, ...]:
    """Return the cost of a load at each precision, 0 to 16 bits.

    Bytes are those of consecutive entries, or scaled from the entries of a topic, ``measured``.
    """
    if measured is None:
        return tuple(size_tracker(load, bits) for bits in range(17))
    ledgers, entries, due = measured.ledger_ids, measured.entry_ids, check_column("time", measured.times_ms)
    return tuple(scale_size(load, bits, 1 << bits, measure_size(ledgers, entries, due, bits)) for bits in range(17))
