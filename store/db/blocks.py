"""Rows of the location and time index: the place of each entry, and times of blocks.  Format: docs/formats/store.md.

**Location block** (database ``entries``): up to 1,024 entries of one ledger. Key: ledger id i64, block number i64
(big-endian; block = entry id >> 10). Value, little-endian:

| off | size | field |
|---|---|---|
| 0 | 2 | entries in this block, n |
| 2 | 2 | flags: 1 = slots column, 2 = files column, 4 = messages column |
| 4 | 4 | file id (all entries, unless flag 2) |
| 8 | 8 + 8 | messages, payload bytes (sums) |
| 24 | 8 × 6 | publish, broker and automatic time, min and max each, ms (min > max: no entry has one); the automatic clock is the
broker time of an entry that has one, else its publish time |
| 72 | 2 × 4 | entries with broker time, digest bytes, entries without a message header, slot of the first entry |
| 80 | 4·n | offsets of the records' size fields (u32) |
| … | 4·n | size fields (u32) |
| … | 4·n | flag 4: messages (u32) |
| … | 4·n | flag 2: file ids (u32) |
| … | 2·n | flag 1: slots, entry id & 1023 (u16); without it entries are consecutive from the first slot |

**Time row** (database ``times``): one per ledger. Key: ledger id i64 big-endian. Value: ``_TIMES`` below, then columns of i64, one value a
block, from the first block on: publish time running maximum (through this block), running minimum (from this block on), and, when an
entry has a broker time, the same two of the automatic clock (broker time where the entry has one, else publish time): 32 bytes per
1,024 entries. A block without entries repeats its neighbour.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from msgspec import Struct

from pulsar_admin.store.errors import IndexCorrupt
from pulsar_admin.store.names import LONG_MAX, LONG_MIN
from pulsar_admin.store.wording import one_line

BLOCK_BITS = 10
BLOCK_ENTRIES = 1 << BLOCK_BITS
NO_MIN, NO_MAX = LONG_MAX, LONG_MIN

SLOTS, FILES, MESSAGES = 1, 2, 4
BLOCK_HEADER = struct.Struct("<HHIQQqqqqqqHHHH")
_KEY = struct.Struct(">qq")
_LEDGER_KEY = struct.Struct(">q")
LEDGER_KEY_BYTES = _LEDGER_KEY.size


def block_key(ledger_id: int, block: int) -> bytes:
    """Return the key of a location block."""
    return _KEY.pack(ledger_id, block)


def block_of_key(key: bytes) -> tuple[int, int]:
    """Return (ledger id, block number); raises IndexCorrupt."""
    if len(key) != _KEY.size:
        raise _bad_key(key)
    ledger_id, block = _KEY.unpack(key)
    return ledger_id, block


def ledger_key(ledger_id: int) -> bytes:
    """Return the key of a ledger's time row; also the prefix of its location blocks."""
    return _LEDGER_KEY.pack(ledger_id)


def ledger_of_key(key: bytes) -> int:
    """Return the ledger id a key begins with; raises IndexCorrupt."""
    if len(key) < _LEDGER_KEY.size:
        raise _bad_key(key)
    return int(_LEDGER_KEY.unpack_from(key)[0])


class BlockHeader(NamedTuple):
    """The sums and bounds of one location block, in the order of its bytes. A tuple, as imports make one per ledger."""

    entries: int
    flags: int
    file_id: int
    messages: int
    payload_bytes: int
    publish_min_ms: int
    publish_max_ms: int
    broker_min_ms: int
    broker_max_ms: int
    auto_min_ms: int
    auto_max_ms: int
    broker_count: int
    digest_bytes: int
    unframed: int
    first_slot: int

    def pack(self) -> bytes:
        return BLOCK_HEADER.pack(*self)


class Block:
    """A decoded location block; columns are views into the given bytes."""

    __slots__ = (
        *("_before", "_files", "_first", "_messages", "_offsets", "_sizes", "_slots"),
        *("header", "last_slot", "ledger_id"),
    )

    def __init__(self, key: bytes, value: bytes | memoryview) -> None:
        self.ledger_id, block = block_of_key(key)
        if len(value) < BLOCK_HEADER.size:
            raise _damaged(self.ledger_id, block, f"{len(value)} bytes")
        header = self.header = BlockHeader._make(BLOCK_HEADER.unpack_from(value))
        n, flags = header.entries, header.flags
        if flags & ~(SLOTS | FILES | MESSAGES):
            raise _damaged(self.ledger_id, block, f"flags {flags:#x}")
        wide = 2 + bool(flags & FILES) + bool(flags & MESSAGES) if flags else 2
        end = BLOCK_HEADER.size + 4 * n * wide
        expected = end + 2 * n if flags & SLOTS else end
        if not 0 < n <= BLOCK_ENTRIES or len(value) != expected:
            raise _damaged(self.ledger_id, block, f"{len(value)} bytes for {n} entries, expected {expected}")
        view = memoryview(value)
        columns = view[BLOCK_HEADER.size : end].cast("I")
        self._offsets, self._sizes = columns[:n], columns[n : 2 * n]
        self._messages = columns[2 * n : 3 * n] if flags & MESSAGES else None
        self._files = columns[(wide - 1) * n :] if flags & FILES else None
        self._slots = view[end:].cast("H") if flags & SLOTS else None
        self._before: list[int] | None = None
        self._first = block << BLOCK_BITS
        last = self.last_slot = header.first_slot + n - 1 if self._slots is None else self._slots[-1]
        if not header.first_slot + n - 1 <= last < BLOCK_ENTRIES:
            raise _damaged(self.ledger_id, block, f"slots {header.first_slot} to {last} for {n} entries")

    def __len__(self) -> int:
        return self.header.entries

    def entry_id(self, index: int) -> int:
        """Return the id of the entry at an index in this block."""
        slot = self.header.first_slot + index if self._slots is None else self._slots[index]
        return self._first + slot

    def index_of(self, entry_id: int) -> int:
        """Return the index of an entry or, if the block lacks it, of the next entry (may be len)."""
        slot = max(entry_id - self._first, 0)
        if self._slots is None:
            return min(max(slot - self.header.first_slot, 0), self.header.entries)
        return bisect_left(self._slots, slot)

    def indexes_from(self, before: int, ranks: Iterable[int]) -> list[int]:
        """Return ``index_of`` each entry at ``ranks`` in a topic in which ``before`` entries precede the ledger."""
        if self._slots is not None:
            return [self.index_of(rank - before) for rank in ranks]
        first, end = before + self._first + self.header.first_slot, self.header.entries
        return [min(max(rank - first, 0), end) for rank in ranks]

    def indexes_of(self, slots: Sequence[int]) -> Sequence[int]:
        """Return the indexes of those entries at ``slots`` that the block has."""
        if len(self) == BLOCK_ENTRIES:
            return slots
        places = {slot: index for index, slot in enumerate(self.slots())}
        return [places[slot] for slot in slots if slot in places]

    def place(self, index: int) -> tuple[int, int, int]:
        """Return (file id, offset of the size field, size field) of the entry at an index."""
        file_id = self.header.file_id if self._files is None else self._files[index]
        return file_id, self._offsets[index], self._sizes[index]

    def iter_parts(self) -> Iterator[tuple[int, int, int]]:
        """Yield (file id, records, their bytes with the size fields) of each file that has a part of this block."""
        if self._files is None:
            yield self.header.file_id, len(self), sum(self._sizes) + 4 * len(self)
            return
        for file_id in dict.fromkeys(self._files):
            sizes = [size for size, file in zip(self._sizes, self._files, strict=True) if file == file_id]
            yield file_id, len(sizes), sum(sizes) + 4 * len(sizes)

    def messages(self, index: int) -> int:
        return 1 if self._messages is None else self._messages[index]

    def slots(self) -> memoryview | range:
        """Return the entries' slots: entry id & 1023."""
        return range(self.header.first_slot, self.header.first_slot + len(self)) if self._slots is None else self._slots

    def offsets(self) -> memoryview:
        """Return the offset column (u32)."""
        return self._offsets

    def sizes(self) -> memoryview:
        """Return the size column (u32)."""
        return self._sizes

    def message_counts(self) -> memoryview | int:
        """Return the messages column (u32), or 1 when every entry has one message."""
        return 1 if self._messages is None else self._messages

    def files(self) -> memoryview | int:
        """Return the file column (u32), or the one file of all entries."""
        return self.header.file_id if self._files is None else self._files

    def payload_bytes(self, index: int) -> int:
        """Return the entry's payload size, as LedgerInfo.size counts it (headers and digest not included)."""
        return max(self._sizes[index] - self.head_bytes, 0)

    def payload_between(self, lows: Sequence[int], highs: Sequence[int], entries: int) -> int:
        """Return the payload bytes of the ``entries`` from each of the indexes ``lows`` to the one of ``highs`` (excluded)."""
        before = self._before
        if before is None:  # many ask for parts of a block
            before = self._before = [*accumulate(self._whole_sizes(), initial=0)]
        get = before.__getitem__
        return sum(map(get, highs)) - sum(map(get, lows)) - self.head_bytes * entries

    def payload_at(self, indexes: Sequence[int]) -> int:
        """Return the payload bytes of the entries at ``indexes``."""
        sizes = self._sizes.tobytes()
        if sizes == sizes[:4] * len(self):  # all of one size
            return self.payload_bytes(0) * len(indexes)
        return sum(map(self._whole_sizes().__getitem__, indexes)) - self.head_bytes * len(indexes)

    def _whole_sizes(self) -> list[int]:
        """Return the size column, with sizes below ``head_bytes`` raised to it."""
        sizes: list[int] = self._sizes.tolist()
        if sum(sizes) - len(self) * self.head_bytes == self.header.payload_bytes:
            return sizes
        return [max(size, self.head_bytes) for size in sizes]

    @property
    def head_bytes(self) -> int:
        """Bytes of a record's size that are headers and digest, not payload."""
        return 32 + self.header.digest_bytes


def _bad_key(key: bytes) -> IndexCorrupt:
    return IndexCorrupt(
        f"the index has a key of {len(key)} bytes: {key.hex()}",
        hint="rebuild the index with: pulsar-admin store index --rebuild",
    )


def _damaged(ledger_id: int, block: int, found: str) -> IndexCorrupt:
    return IndexCorrupt(
        f"location block {block} of ledger {ledger_id} is damaged: {found}",
        hint="rebuild the index with: pulsar-admin store index --rebuild",
        ledgerId=ledger_id,
        block=block,
    )


# version, flags, blocks; then the integers of LedgerTimes in their order, without ``blocks``
_TIMES = struct.Struct("<HHI13q")
_PUBLISH_BOUNDS = struct.Struct("<HHI48xqq")  # the two of them alone
_ENTRIES = struct.Struct("<HHI8xq")
TIMES_VERSION = 1
TIMES_BYTES = _TIMES.size
"""Of a time row, without its columns."""
_ROW_HEAD = struct.Struct("<HHI")
_ONE = struct.Struct("<q")
_BROKER_MAX_PLACE = _ROW_HEAD.size + 8 * 9  # broker_max_ms is the tenth of LedgerSums
HAS_AUTO = 1


class LedgerSums(NamedTuple):
    """The sums of one ledger, among them PIP-345's begin and end times. Times in ms, min > max if none is known.

    In the order of a time row's bytes; a tuple, because imports and searches create one per ledger.
    """

    first_block: int
    entries: int
    first_entry: int
    last_entry: int
    messages: int
    payload_bytes: int
    publish_min_ms: int
    publish_max_ms: int
    broker_min_ms: int
    broker_max_ms: int
    broker_count: int  # entries that carry a broker time
    unframed: int  # entries without a message header
    max_lac: int  # largest last-add-confirmed that a writer put into an entry

    def __repr__(self) -> str:
        return one_line(self)

    @property
    def is_stamped(self) -> bool:
        """Whether there are entries that are messages, and all of these have a broker time."""
        return bool(self.broker_count) and self.broker_count + self.unframed == self.entries

    @property
    def begin_publish_ms(self) -> int | None:
        """PIP-345's beginPublishTimestamp: the smallest publish time, None if no entry is a message."""
        return self.publish_min_ms if self.publish_min_ms <= self.publish_max_ms else None

    @property
    def end_publish_ms(self) -> int | None:
        """PIP-345's endPublishTimestamp: the largest publish time, None if no entry is a message."""
        return self.publish_max_ms if self.publish_min_ms <= self.publish_max_ms else None


class LedgerTimes(Struct, frozen=True):
    """A ledger's sums and the running time bounds of its blocks (views: valid as long as the row's memory)."""

    sums: LedgerSums
    blocks: int
    publish_max: memoryview  # i64 a block: running maximum through the block
    publish_min: memoryview  # i64 a block: running minimum from the block on
    auto_max: memoryview  # the same of the automatic clock; equal to publish when no entry has a broker time
    auto_min: memoryview


def encode_times(sums: LedgerSums, columns: list[bytes]) -> bytes:
    """Return a time row; ``columns``: packed little-endian i64 arrays, two (publish) or four (and automatic clock)."""
    flags = HAS_AUTO if len(columns) == 4 else 0
    return _TIMES.pack(TIMES_VERSION, flags, len(columns[0]) // 8, *sums) + b"".join(columns)


def decode_publish_bounds(ledger_id: int, row: bytes | memoryview) -> tuple[int, int] | None:
    """Return the smallest and largest publish time in a time row, None when it has none; raises IndexCorrupt.

    For listings of thousands of ledgers: ``decode_times`` costs ten times as much.
    """
    if len(row) < _TIMES.size:
        raise _damaged(ledger_id, -1, f"time row of {len(row)} bytes")
    version, _, _, smallest, largest = _PUBLISH_BOUNDS.unpack_from(row)
    if version != TIMES_VERSION:
        raise _damaged(ledger_id, -1, f"time row version {version}")
    return (smallest, largest) if smallest <= largest else None


def decode_sums(ledger_id: int, row: bytes | memoryview) -> LedgerSums:
    """Return the sums of a time row, for a pass over all rows: half the time of ``decode_times``, with the same errors."""
    if len(row) >= _TIMES.size:
        version, flags, blocks, *values = _TIMES.unpack_from(row)
        if version == TIMES_VERSION and len(row) == _TIMES.size + 8 * blocks * (4 if flags & HAS_AUTO else 2):
            return LedgerSums._make(values)
    return decode_times(ledger_id, row).sums


def decode_entry_count(ledger_id: int, row: bytes | memoryview) -> int:
    """Return the indexed entries of a ledger from its time row, for sums of all; raises IndexCorrupt."""
    if len(row) < _TIMES.size:
        raise _damaged(ledger_id, -1, f"time row of {len(row)} bytes")
    version, _, _, entries = _ENTRIES.unpack_from(row)
    if version != TIMES_VERSION:
        raise _damaged(ledger_id, -1, f"time row version {version}")
    return int(entries)


def decode_latest(ledger_id: int, row: bytes | memoryview, clock: str) -> int:
    """Return the largest time in a time row on a clock (auto, publish, broker), NO_MAX if it has none; raises IndexCorrupt.

    Enough for a search to pass over a ledger: ``decode_times`` costs ten times as much.
    """
    if len(row) < _TIMES.size:
        raise _damaged(ledger_id, -1, f"time row of {len(row)} bytes")
    version, flags, blocks = _ROW_HEAD.unpack_from(row)
    if version != TIMES_VERSION or blocks < 1 or len(row) < _TIMES.size + 8 * blocks * (4 if flags & HAS_AUTO else 2):
        raise _damaged(ledger_id, -1, f"time row version {version}, {len(row)} bytes for {blocks} blocks")
    if clock == "broker":
        place = _BROKER_MAX_PLACE
    elif clock == "auto" and flags & HAS_AUTO:
        place = _TIMES.size + 8 * (3 * blocks - 1)  # the last of the third column, a running maximum
    else:
        place = _TIMES.size + 8 * (blocks - 1)
    return int(_ONE.unpack_from(row, place)[0])


def decode_times(ledger_id: int, row: bytes | memoryview) -> LedgerTimes:
    """Return the decoded time row of a ledger; raises IndexCorrupt."""
    view = memoryview(row)
    if len(view) < _TIMES.size:
        raise _damaged(ledger_id, -1, f"time row of {len(view)} bytes")
    version, flags, blocks, *values = _TIMES.unpack_from(view)
    columns = 4 if flags & HAS_AUTO else 2
    if version != TIMES_VERSION or len(view) != _TIMES.size + 8 * blocks * columns:
        raise _damaged(ledger_id, -1, f"time row version {version}, {len(view)} bytes for {blocks} blocks")
    rest = view[_TIMES.size :].cast("q")
    parts = [rest[i * blocks : (i + 1) * blocks] for i in range(columns)]
    auto_max, auto_min = parts[2:] if columns == 4 else parts[:2]
    return LedgerTimes(LedgerSums._make(values), blocks, parts[0], parts[1], auto_max, auto_min)
