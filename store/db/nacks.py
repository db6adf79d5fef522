"""Rows of the store's database ``nacks``: kept negative acks of subscriptions.  Format: docs/formats/nacks.md.

One row per tracker (a subscription of a topic), and one row per (tracker, time bucket, ledger) with the entry ids as a bitmap
in the portable Roaring format. Keys are big-endian, so the rows of a tracker lie in the order they become due: due rows are a
range that ends at the first bucket that is not, and nothing after it is read. Imports no numpy: a cron job asks every minute.
"""

from __future__ import annotations

import hashlib
import heapq
import struct
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import google_crc32c
from msgspec import Struct, field

from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import IndexCorrupt, InvalidValue, Unsupported
from pulsar_admin.store.names import LONG_MAX, Position
from pulsar_admin.store.timespec import moment
from pulsar_admin.store.wording import Answer

if TYPE_CHECKING:
    from pyroaring import BitMap64

ROW_VERSION = 1
MAX_PRECISION_BITS = 62
"""More bits than this would leave no bit of a 63-bit time."""
DEFAULT_PRECISION_BITS = 8
"""Upstream's ``negativeAckPrecisionBitCnt``: buckets of 256 ms, at most 255 ms early."""

TRACKER = b"\x00"
BUCKET = b"\x01"
ID_SIZE_BYTES = 8
_PLACE = struct.Struct(">QQ")  # bucket, ledger
_HEAD = struct.Struct(
    "<B"  # version            1
    "B"  # precision bits      of a tracker row; 0 in a bucket row
    "H"  # topic length        of a tracker row, bytes; 0 in a bucket row
    "I"  # CRC-32C             of the key and of everything but this field
    "Q"  # count               of a bucket row: cardinality of the bitmap; of a tracker row: additions so far
)
_CHECKSUM_AT = 4


def trim_lower_bits(time_ms: int, precision_bits: int) -> int:
    """Return the bucket of a time (upstream ``trimLowerBit``)."""
    return time_ms & (-1 << precision_bits)


def check_delay(delay_ms: int) -> int:
    """Return the delay; raises InvalidValue when it is not an integer, negative or beyond 64 bits."""
    if not isinstance(delay_ms, int) or isinstance(delay_ms, bool) or not 0 <= delay_ms <= LONG_MAX:
        raise InvalidValue(
            f"delay of {delay_ms} ms",
            hint="a delay is a whole number of milliseconds from 0 to 2^63 - 1",
            value=delay_ms,
        )
    return delay_ms


def due_time(delay_ms: int, now_ms: int) -> int:
    """Return when a nack is due; raises InvalidValue for a negative number or a time beyond 64 bits."""
    check_delay(delay_ms)
    if not 0 <= now_ms <= LONG_MAX - delay_ms:
        raise InvalidValue(
            f"{now_ms} ms and a delay of {delay_ms} ms: beyond 64 bits",
            hint="times are epoch milliseconds, 0 to 2^63 - 1",
            value=now_ms,
        )
    return now_ms + delay_ms


def check_precision_bits(bits: int) -> int:
    """Return the bits; raises InvalidValue when they are not 0 (exact) to 62."""
    if not isinstance(bits, int) or isinstance(bits, bool) or not 0 <= bits <= MAX_PRECISION_BITS:
        raise InvalidValue(
            f"{bits} precision bits",
            hint=f"negativeAckPrecisionBitCnt is a whole number from 0 (exact) to {MAX_PRECISION_BITS}",
            value=bits,
        )
    return bits


class TrackerRow(Struct, frozen=True):
    """A subscription for which nacks are kept, and to how many bits their times are trimmed."""

    topic: str
    subscription: str
    precision_bits: int
    additions: int = 0  # changes that added nacks: an earlier one is not undone before a later one

    @property
    def id(self) -> bytes:
        return tracker_id(self.topic, self.subscription)


def tracker_id(topic: str, subscription: str) -> bytes:
    """Return the id of a tracker: names may be longer than a key of LMDB."""
    return hashlib.blake2b(f"{topic}\0{subscription}".encode(), digest_size=ID_SIZE_BYTES).digest()


def tracker_key(identity: bytes) -> bytes:
    """Return the key of the tracker row."""
    return TRACKER + identity


def bucket_prefix(identity: bytes) -> bytes:
    """Return the common prefix of the keys of a tracker's bitmaps."""
    return BUCKET + identity


def bucket_key(identity: bytes, bucket_ms: int, ledger_id: int) -> bytes:
    """Return the key of the bitmap of one bucket and ledger."""
    return bucket_prefix(identity) + _PLACE.pack(bucket_ms, ledger_id)


def bucket_of_key(key: bytes) -> tuple[bytes, int, int]:
    """Return (tracker id, bucket in epoch ms, ledger id); raises IndexCorrupt."""
    if len(key) != 1 + ID_SIZE_BYTES + _PLACE.size or key[:1] != BUCKET:
        raise _damaged(key, f"a key of {len(key)} bytes")
    bucket_ms, ledger_id = _PLACE.unpack_from(key, 1 + ID_SIZE_BYTES)
    if max(bucket_ms, ledger_id) > LONG_MAX:
        raise _damaged(key, "a bucket or ledger beyond 63 bits")
    return key[1 : 1 + ID_SIZE_BYTES], bucket_ms, ledger_id


def encode_tracker_row(row: TrackerRow) -> bytes:
    """Return the value of a tracker row."""
    topic = row.topic.encode()
    return _sealed(
        tracker_key(row.id), (row.precision_bits, len(topic), row.additions), topic + row.subscription.encode()
    )


def decode_tracker_row(key: bytes, value: bytes | memoryview) -> TrackerRow:
    """Return the tracker; raises IndexCorrupt for damage and Unsupported for a newer row."""
    (bits, topic_size, additions), body = _opened(key, value)
    try:
        row = TrackerRow(body[:topic_size].decode(), body[topic_size:].decode(), bits, additions)
    except UnicodeDecodeError as error:
        raise _damaged(key, str(error)) from error
    if bits > MAX_PRECISION_BITS or topic_size > len(body) or key != tracker_key(row.id):
        raise _damaged(key, "its fields do not fit its key")
    return row


def encode_bucket_row(key: bytes, entry_ids: BitMap64) -> bytes:
    """Return the value of a bucket row; equal ids give equal bytes. ``entry_ids`` are compacted in place."""
    entry_ids.run_optimize()
    return _sealed(key, (0, 0, len(entry_ids)), entry_ids.serialize())


def bucket_row_entries(key: bytes, value: bytes | memoryview) -> int:
    """Return how many entries a bucket row holds, from its head alone: nothing is verified but version and length."""
    if len(value) < _HEAD.size:
        raise _damaged(key, f"{len(value)} bytes")
    version, _, _, _, entries = _HEAD.unpack_from(value)
    _check_version(key, version)
    return int(entries)


def decode_bucket_row(key: bytes, value: bytes | memoryview) -> BitMap64:
    """Return the entry ids, never none; raises IndexCorrupt for damage and Unsupported for a newer row."""
    from pyroaring import BitMap64

    (bits, topic_size, entries), body = _opened(key, value)
    try:
        entry_ids = BitMap64.deserialize(body)
    except (ValueError, IndexError) as error:
        raise _damaged(key, str(error) or "no bitmap") from error
    if bits or topic_size or not entries or len(entry_ids) != entries or entry_ids.max() > LONG_MAX:
        raise _damaged(key, f"{len(entry_ids)} entries, {entries} expected")
    if len(entry_ids.serialize()) != len(body):
        raise _damaged(key, "bytes after the bitmap")
    return entry_ids


def _sealed(key: bytes, fields: tuple[int, int, int], body: bytes) -> bytes:
    bits, topic_size, entries = fields
    plain = _HEAD.pack(ROW_VERSION, bits, topic_size, 0, entries) + body
    return _HEAD.pack(ROW_VERSION, bits, topic_size, google_crc32c.value(key + plain), entries) + body


def _opened(key: bytes, value: bytes | memoryview) -> tuple[tuple[int, int, int], bytes]:
    raw = bytes(value)
    if len(raw) < _HEAD.size:
        raise _damaged(key, f"{len(raw)} bytes")
    version, bits, topic_size, checksum, entries = _HEAD.unpack_from(raw)
    _check_version(key, version)
    plain = raw[:_CHECKSUM_AT] + bytes(4) + raw[_CHECKSUM_AT + 4 :]
    if google_crc32c.value(key + plain) != checksum:
        raise _damaged(key, "the checksum is wrong")
    return (bits, topic_size, entries), raw[_HEAD.size :]


def _check_version(key: bytes, version: int) -> None:
    if version > ROW_VERSION:
        raise Unsupported(
            f"row of negative acks {key.hex()} has version {version}, this toolkit knows {ROW_VERSION}",
            hint="use the toolkit that wrote it",
            version=version,
        )
    if version != ROW_VERSION:
        raise _damaged(key, f"version {version}")


def _damaged(key: bytes, what: str) -> IndexCorrupt:
    return IndexCorrupt(
        f"the row of negative acks {key.hex()} is damaged: {what}",
        hint="undo the change that wrote it (pulsar-admin store log --steps), or restore the store from a snapshot",
        key=key.hex(),
    )


# -- trackers: their owners, due rows, how much waits ----------------------------------------------------------------------


class KeptGroup(Answer, frozen=True):
    """The entries of one ledger that are due together, as they are stored under ``key``."""

    topic: str
    subscription: str
    due_ms: int
    ledger_id: int
    entry_ids: BitMap64
    key: bytes
    value: bytes

    @property
    def order(self) -> tuple[int, str, str, int]:
        """The sort key of groups: due time, topic, subscription, ledger."""
        return self.due_ms, self.topic, self.subscription, self.ledger_id

    def positions(self) -> Iterator[Position]:
        """Yield the entries."""
        for entry_id in self.entry_ids:
            yield Position(self.ledger_id, entry_id)


class DueNack(Answer, frozen=True):
    """One entry to redeliver. ``due_ms``: when it was due, to the precision of its bucket, never too late."""

    topic: str
    subscription: str
    position: Position
    due_ms: int

    @property
    def due_time(self) -> datetime | None:
        """When it was due, in UTC."""
        return moment(self.due_ms)


class KeptStats(Answer, frozen=True):
    """Counts of one subscription's kept nacks; ``buckets``: distinct times, ``bitmaps``: pairs of time and ledger."""

    topic: str
    subscription: str
    precision_bits: int
    entries: int
    due_entries: int
    ledgers: int
    buckets: int
    bitmaps: int
    size_bytes: int = field(name="bytes")
    next_deadline_ms: int | None
    last_deadline_ms: int | None


def iter_trackers(txn: Txn) -> Iterator[TrackerRow]:
    """Yield every subscription that nacks are or were kept for; raises IndexCorrupt, Unsupported."""
    for key, value in txn.items("nacks", TRACKER):
        yield decode_tracker_row(key, value)


def find_tracker(txn: Txn, topic: str, subscription: str) -> TrackerRow | None:
    """Return the tracker of a subscription, or None; raises IndexCorrupt, Unsupported."""
    key = tracker_key(tracker_id(topic, subscription))
    value = txn.view("nacks", key)
    return None if value is None else decode_tracker_row(key, value)


def iter_due(txn: Txn, trackers: Iterable[TrackerRow], now_ms: int) -> Iterator[KeptGroup]:
    """Yield the rows due now, in order of (bucket, topic, subscription, ledger); others are not read."""
    return heapq.merge(*(_iter_due(txn, tracker, now_ms) for tracker in trackers), key=lambda group: group.order)


def _iter_due(txn: Txn, tracker: TrackerRow, now_ms: int) -> Iterator[KeptGroup]:
    for key, value in txn.items("nacks", bucket_prefix(tracker.id)):
        if bucket_of_key(key)[1] > now_ms:
            return
        yield group_of(tracker.topic, tracker.subscription, key, bytes(value))


def group_of(topic: str, subscription: str, key: bytes, value: bytes) -> KeptGroup:
    """Return the group in one row; raises IndexCorrupt, Unsupported."""
    _, bucket_ms, ledger_id = bucket_of_key(key)
    return KeptGroup(topic, subscription, bucket_ms, ledger_id, decode_bucket_row(key, value), key, value)


def next_deadline_ms(txn: Txn, tracker: TrackerRow, after_ms: int = -1) -> int | None:
    """Return a tracker's earliest bucket after ``after_ms``, or None."""
    prefix = bucket_prefix(tracker.id)
    start = prefix + max(after_ms + 1, 0).to_bytes(8, "big")
    for key, _ in txn.items("nacks", prefix, start):
        return bucket_of_key(key)[1]
    return None


def pending_entries(txn: Txn, tracker: TrackerRow) -> int:
    """Return the number of pending entries, an entry once per bucket; reads the head of every row of the tracker."""
    return sum(bucket_row_entries(key, value) for key, value in txn.items("nacks", bucket_prefix(tracker.id)))


def read_stats(txn: Txn, tracker: TrackerRow, now_ms: int) -> KeptStats:
    """Return the counts of the nacks kept for a tracker's subscription, from the heads of its rows."""
    ledgers: set[int] = set()
    entries = due = buckets = bitmaps = size = 0
    first: int | None = None
    last: int | None = None
    for key, value in txn.items("nacks", bucket_prefix(tracker.id)):
        _, bucket_ms, ledger_id = bucket_of_key(key)
        count = bucket_row_entries(key, value)
        first = bucket_ms if first is None else first
        buckets += bucket_ms != last
        last = bucket_ms
        ledgers.add(ledger_id)
        bitmaps += 1
        entries += count
        due += count if bucket_ms <= now_ms else 0
        size += len(key) + len(value)
    return KeptStats(
        topic=tracker.topic,
        subscription=tracker.subscription,
        precision_bits=tracker.precision_bits,
        entries=entries,
        due_entries=due,
        ledgers=len(ledgers),
        buckets=buckets,
        bitmaps=bitmaps,
        size_bytes=size,
        next_deadline_ms=first,
        last_deadline_ms=last,
    )


def iter_wrong_rows(txn: Txn) -> Iterator[IndexCorrupt]:
    """Yield the problems of the rows of kept nacks: damage, bad trimmed times, rows without a tracker.

    Raises Unsupported for a newer row.
    """
    trackers: dict[bytes, TrackerRow] = {}
    for key, value in txn.items("nacks"):
        try:
            if key[:1] == TRACKER:
                trackers[key[1:]] = decode_tracker_row(key, value)
                continue
            identity, _, _ = bucket_of_key(key)
            decode_bucket_row(key, value)
        except IndexCorrupt as error:
            yield error
            continue
        if identity not in trackers:
            yield IndexCorrupt(
                f"the row of negative acks {key.hex()} belongs to no subscription",
                hint="its tracker row is lost; the changes that wrote it: pulsar-admin store log",
                key=key.hex(),
            )
