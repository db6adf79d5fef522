"""Sealed negative acks: columns that are checked, grouped and stored as blocks of (bucket, ledger) rows in sorted segments.

A live bitmap object costs about 600 bytes whatever it holds, which at 256 entries a bucket is more than the entries. So
all but the newest rows are kept as Roaring bytes in columns (20 bytes a row and the bitmap, 27 bytes for one run).
Segments are merged eight at a time, so there are few of them and a row is moved a logarithmic number of times.

Also the serialized form of a tracker (docs/formats/nacks.md). Upstream's NegativeAcksTracker (PIP-393, Pulsar 4.0.8)
exists in the client's memory only, so the form is this toolkit's. Little-endian. A header, then four columns: one row
per (bucket, ledger), sorted by both.
"""

import itertools
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import google_crc32c
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from pulsar_admin.store.db.nacks import MAX_PRECISION_BITS
from pulsar_admin.store.errors import Corrupt, InvalidValue, Unsupported
from pulsar_admin.store.nacks.bitmaps import Bytes, Int64s, Uint32s, decode_groups, encode_groups, ranges
from pulsar_admin.store.names import LONG_MAX

FORMAT_VERSION = 1
_MAGIC = b"PSNACKTR"
_HEADER = struct.Struct(
    "<8s"  # magic              b"PSNACKTR"
    "H"  # version              1
    "B"  # precision bits       0 … 62
    "x"  # reserved             0
    "i"  # partition index      -2 = unknown, -1 = not partitioned
    "Q"  # groups               rows of the columns
    "Q"  # entries              sum of the bitmaps' cardinalities
    "Q"  # bitmaps size         bytes
    "I"  # CRC-32C of everything after the header
)
_CHECKSUM = struct.Struct("<I")  # CRC-32C of the header so far; at offset 44 in every version
HEADER_SIZE_BYTES = _HEADER.size + _CHECKSUM.size
_ROW_SIZE_BYTES = 8 + 8 + 4
_CHECKSUM_STEP = 1 << 18


class NackColumns(Struct, frozen=True):
    """A whole tracker as columns: row i has the entries of ``ledgers[i]`` that are due in bucket ``buckets[i]``.

    ``buckets`` are epoch milliseconds without their lower ``precision_bits`` bits; rows strictly increase by
    (bucket, ledger). ``lengths[i]`` is the size in bytes of row i's bitmap in ``bitmaps``.
    """

    precision_bits: int
    partition_index: int
    entry_count: int
    buckets: Int64s
    ledgers: Int64s
    lengths: Uint32s
    bitmaps: Bytes


def encode_tracker(columns: NackColumns) -> bytes:
    """Return the serialized form of a tracker's columns."""
    body = (
        columns.buckets.astype("<i8").tobytes(),
        columns.ledgers.astype("<i8").tobytes(),
        columns.lengths.astype("<u4").tobytes(),
        columns.bitmaps.tobytes(),
    )
    checksum = 0
    for part in body:
        checksum = google_crc32c.extend(checksum, part)
    header = _HEADER.pack(
        _MAGIC,
        FORMAT_VERSION,
        columns.precision_bits,
        columns.partition_index,
        len(columns.buckets),
        columns.entry_count,
        len(columns.bitmaps),
        checksum,
    )
    return b"".join((header, _CHECKSUM.pack(google_crc32c.value(header)), *body))


def decode_tracker(data: bytes | memoryview) -> NackColumns:
    """Return the columns as views of ``data``; checks everything but the bitmaps' contents.

    Raises Corrupt for damaged bytes and Unsupported for a version this toolkit does not know.
    """
    view = memoryview(data)
    if len(view) < HEADER_SIZE_BYTES or view[:8] != _MAGIC:
        raise _corrupt("it does not start with PSNACKTR", 0)
    header = bytes(view[: _HEADER.size])
    (checksum,) = _CHECKSUM.unpack_from(view, _HEADER.size)
    if google_crc32c.value(header) != checksum:
        raise _corrupt("the header's checksum is wrong", _HEADER.size, expected=checksum)
    _, version, bits, partition_index, groups, entries, bitmaps_size, body_checksum = _HEADER.unpack(header)
    if version != FORMAT_VERSION:
        raise Unsupported(
            f"serialized tracker of version {version}",
            hint=f"this toolkit reads version {FORMAT_VERSION}; use the newer one that wrote it",
            version=version,
        )
    body = view[HEADER_SIZE_BYTES:]
    if len(body) != groups * _ROW_SIZE_BYTES + bitmaps_size:
        raise _corrupt("its length is not what the header says", HEADER_SIZE_BYTES, found=len(body))
    found = 0
    for start in range(0, len(body), _CHECKSUM_STEP):  # the library takes bytes only: copy a little at a time
        found = google_crc32c.extend(found, bytes(body[start : start + _CHECKSUM_STEP]))
    if found != body_checksum:
        raise _corrupt("the checksum is wrong", HEADER_SIZE_BYTES, expected=body_checksum)
    columns = NackColumns(
        precision_bits=bits,
        partition_index=partition_index,
        entry_count=entries,
        buckets=np.frombuffer(body, dtype="<i8", count=groups),
        ledgers=np.frombuffer(body, dtype="<i8", count=groups, offset=8 * groups),
        lengths=np.frombuffer(body, dtype="<u4", count=groups, offset=16 * groups),
        bitmaps=np.frombuffer(body, dtype=np.uint8, offset=20 * groups),
    )
    _verify(columns)
    return columns


def _verify(columns: NackColumns) -> None:
    """Raise Corrupt unless the rows are as ``NackColumns`` describes them."""
    if columns.precision_bits > MAX_PRECISION_BITS:
        raise _corrupt(f"{columns.precision_bits} precision bits", 10, expected=f"0 to {MAX_PRECISION_BITS}")
    buckets, ledgers = columns.buckets, columns.ledgers
    if int(columns.lengths.sum(dtype=np.int64)) != len(columns.bitmaps):
        raise _corrupt("the bitmaps' lengths do not add up", HEADER_SIZE_BYTES)
    if not len(buckets):
        return
    if min(int(buckets.min()), int(ledgers.min())) < 0 or (buckets & ((1 << columns.precision_bits) - 1)).any():
        raise _corrupt("a negative number or a time that is not a bucket", HEADER_SIZE_BYTES)
    later = buckets[1:] > buckets[:-1]
    if not (later | ((buckets[1:] == buckets[:-1]) & (ledgers[1:] > ledgers[:-1]))).all():
        raise _corrupt("rows are not in order", HEADER_SIZE_BYTES)


def _corrupt(what: str, offset: int, **context: object) -> Corrupt:
    return Corrupt(
        f"damaged serialized tracker of negative acks: {what} (@ {offset:#x})",
        hint="nothing was loaded; use another copy",
        at=offset,
        **context,
    )


def check_column(name: str, values: npt.ArrayLike) -> Int64s:
    """Return a column, or a single number, as int64; raises InvalidValue unless all numbers are integers from 0 to 2^63
    - 1."""
    try:
        column = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise _invalid(name, str(error)) from error
    if column.size == 0:
        return column.astype(np.int64)
    if column.dtype.kind not in "iu":
        raise _invalid(name, f"{column.dtype} is not a column of 64-bit integers")
    if int(column.min()) < 0:
        raise _invalid(name, f"{int(column.min())} is negative")
    if int(column.max()) > LONG_MAX:
        raise _invalid(name, f"{int(column.max())} is beyond 2^63 - 1")
    return column.astype(np.int64, copy=False)


def add_times(delays: Int64s, now: Int64s) -> Int64s:
    """Return ``delays`` + ``now``; raises InvalidValue for different lengths and for a sum beyond 2^63 - 1."""
    if delays.ndim and now.ndim and delays.shape != now.shape:
        raise InvalidValue("columns of different lengths", hint="give one delay and one time per entry")
    if delays.size and now.size and int(delays.max()) + int(now.max()) > LONG_MAX and (delays > LONG_MAX - now).any():
        raise _invalid("delay", "time + delay is beyond 2^63 - 1")
    return delays + now


def group_rows(
    buckets: Int64s, ledgers: Int64s, entries: Int64s, precision_bits: int
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Group rows by bucket and ledger, without duplicates; return (buckets, ledgers, starts, entry ids), sorted.

    Group i has ``entry_ids[starts[i]:starts[i + 1]]``. The given columns have the same length and are not empty.
    """
    packed = _pack(buckets, ledgers, entries, precision_bits)
    if packed is not None:
        return packed
    order = np.lexsort((entries, ledgers, buckets))
    buckets, ledgers, entries = buckets[order], ledgers[order], entries[order]
    changed = (buckets[1:] != buckets[:-1]) | (ledgers[1:] != ledgers[:-1])
    fresh = _rows_after(changed | (entries[1:] != entries[:-1]))
    buckets, ledgers, entries = buckets[fresh], ledgers[fresh], entries[fresh]
    firsts = _rows_after((buckets[1:] != buckets[:-1]) | (ledgers[1:] != ledgers[:-1]))
    return buckets[firsts], ledgers[firsts], np.append(firsts, len(entries)), entries


def _pack(
    buckets: Int64s, ledgers: Int64s, entries: Int64s, precision_bits: int
) -> tuple[Int64s, Int64s, Int64s, Int64s] | None:
    """Return ``group_rows`` by sorting one 63-bit number per row, several times faster; None if a row needs more bits."""
    bucket_base, ledger_base, entry_base = int(buckets.min()), int(ledgers.min()), int(entries.min())
    ledger_bits = (int(ledgers.max()) - ledger_base).bit_length()
    entry_bits = (int(entries.max()) - entry_base).bit_length()
    bucket_bits = ((int(buckets.max()) - bucket_base) >> precision_bits).bit_length()
    if bucket_bits + ledger_bits + entry_bits > 63:
        return None
    keys = buckets - bucket_base
    keys >>= precision_bits
    keys <<= ledger_bits
    keys |= ledgers - ledger_base
    keys <<= entry_bits
    keys |= entries - entry_base
    increasing = keys[1:] > keys[:-1]
    if not increasing.all():
        keys.sort()
        keys = keys[_rows_after(keys[1:] != keys[:-1])]
    groups = keys >> entry_bits
    firsts = _rows_after(groups[1:] != groups[:-1])
    groups = groups[firsts]
    keys &= (1 << entry_bits) - 1
    keys += entry_base
    return (
        ((groups >> ledger_bits) << precision_bits) + bucket_base,
        (groups & ((1 << ledger_bits) - 1)) + ledger_base,
        np.append(firsts, len(keys)),
        keys,
    )


def _rows_after(changed: npt.NDArray[np.bool_]) -> Int64s:
    """Return the indexes of row 0 and of every changed row; ``changed[i]`` is whether row i + 1 differs from row i."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.flatnonzero(changed) + 1))


def _invalid(name: str, what: str) -> InvalidValue:
    return InvalidValue(f"invalid {name}: {what}", hint="whole numbers from 0 to 2^63 - 1", column=name)


BLOCK_ROWS = 4096
"""Rows of a block: a popped block is freed whole, so this bounds what lingers, and what one step may copy."""

NO_BUCKET = 1 << 63
"""Greater than every bucket: the head of nothing."""


class Block(Struct, frozen=True):
    """Rows strictly increasing by (bucket, ledger); ``lengths[i]`` bytes of ``bitmaps`` belong to row i."""

    buckets: Int64s
    ledgers: Int64s
    lengths: Uint32s
    bitmaps: Bytes

    @property
    def size_bytes(self) -> int:
        return self.buckets.nbytes + self.ledgers.nbytes + self.lengths.nbytes + self.bitmaps.nbytes


class Segment:
    """A sorted sequence of blocks that is only ever consumed from its front."""

    __slots__ = ("_blocks", "_byte", "_row", "head", "rows")

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._blocks = deque(block for block in blocks if len(block.buckets))
        self._row = 0
        self._byte = 0
        self.rows = sum(len(block.buckets) for block in self._blocks)
        self.head = NO_BUCKET
        self._find_head()

    @property
    def size_bytes(self) -> int:
        """The bytes of the remaining columns and bitmaps."""
        return sum(block.size_bytes for block in self._blocks)

    def blocks(self) -> Iterator[Block]:
        """Yield the remaining blocks, without copying."""
        for index, block in enumerate(self._blocks):
            yield block if index or not self._row else self._part(block, len(block.buckets))[0]

    def pop_until(self, last_bucket: int) -> list[Block]:
        """Remove and return the rows whose bucket is ``last_bucket`` or earlier, without reading later ones."""
        popped = []
        while self.head <= last_bucket:
            block = self._blocks[0]
            stop = int(np.searchsorted(block.buckets, last_bucket, side="right"))
            part, end = self._part(block, stop)
            popped.append(part)
            self.rows -= stop - self._row
            if stop == len(block.buckets):
                self._blocks.popleft()
                stop, end = 0, 0
            self._row, self._byte = stop, end
            self._find_head()
        return popped

    def _part(self, block: Block, stop: int) -> tuple[Block, int]:
        rows = slice(self._row, stop)
        lengths = block.lengths[rows]
        end = self._byte + int(lengths.sum(dtype=np.int64))
        return Block(block.buckets[rows], block.ledgers[rows], lengths, block.bitmaps[self._byte : end]), end

    def _find_head(self) -> None:
        self.head = int(self._blocks[0].buckets[self._row]) if self._blocks else NO_BUCKET


def cut_blocks(rows: Block) -> Iterator[Block]:
    """Yield rows in blocks of ``BLOCK_ROWS``, as views."""
    byte = 0
    for start in range(0, len(rows.buckets), BLOCK_ROWS):
        cut = slice(start, start + BLOCK_ROWS)
        end = byte + int(rows.lengths[cut].sum(dtype=np.int64))
        yield Block(rows.buckets[cut], rows.ledgers[cut], rows.lengths[cut], rows.bitmaps[byte:end])
        byte = end


def encode_blocks(buckets: Int64s, ledgers: Int64s, starts: Int64s, entry_ids: Int64s) -> list[Block]:
    """Return the blocks of sorted rows: row i holds ``entry_ids[starts[i]:starts[i + 1]]``, strictly increasing."""
    blocks = []
    for first in range(0, len(buckets), BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, len(buckets))
        begin, end = int(starts[first]), int(starts[last])
        lengths, bitmaps = encode_groups(starts[first : last + 1] - begin, entry_ids[begin:end])
        blocks.append(Block(buckets[first:last].copy(), ledgers[first:last].copy(), lengths, bitmaps))
    return blocks


def join_blocks(blocks: Sequence[Block]) -> Block:
    """Return one block with copies of the rows of all blocks, in the given order."""
    if not blocks:
        none = np.empty(0, dtype=np.int64)
        return Block(none, none, none.astype(np.uint32), none.astype(np.uint8))
    return Block(
        np.concatenate([block.buckets for block in blocks]),
        np.concatenate([block.ledgers for block in blocks]),
        np.concatenate([block.lengths for block in blocks]),
        np.concatenate([block.bitmaps for block in blocks]),
    )


def merge_blocks(blocks: Sequence[Block]) -> list[Block]:
    """Return the union of blocks, which may overlap in any way, as sorted blocks."""
    if _in_order(blocks):
        return list(blocks)
    rows = join_blocks(blocks)
    order = np.lexsort((rows.ledgers, rows.buckets))
    buckets, ledgers, lengths = rows.buckets[order], rows.ledgers[order], rows.lengths[order]
    offsets = (np.cumsum(rows.lengths, dtype=np.int64) - rows.lengths)[order]
    repeated = np.zeros(len(order) + 1, dtype=np.bool_)
    repeated[1:-1] = (buckets[1:] == buckets[:-1]) & (ledgers[1:] == ledgers[:-1])
    bitmaps = rows.bitmaps
    if repeated.any():
        shared = np.flatnonzero(repeated[:-1] | repeated[1:])
        keys: Int64s = np.cumsum(~repeated[:-1], dtype=np.int64)[shared]
        raw = _gather(bitmaps, offsets[shared], lengths[shared])
        # One bitmap for each key: the union of those that carry it.
        starts, entry_ids = decode_groups(lengths[shared], raw)
        owners = np.repeat(keys, np.diff(starts))
        _, _, starts, entry_ids = group_rows(owners, np.zeros_like(owners), entry_ids, 0)
        new_lengths, united = encode_groups(starts, entry_ids)
        kept = np.flatnonzero(~repeated[:-1])
        buckets, ledgers, lengths, offsets = buckets[kept], ledgers[kept], lengths[kept], offsets[kept]
        targets = np.unique(keys) - 1
        lengths[targets] = new_lengths
        offsets[targets] = len(bitmaps) + np.cumsum(new_lengths, dtype=np.int64) - new_lengths
        bitmaps = np.concatenate((bitmaps, united))
    merged = []
    for start in range(0, len(buckets), BLOCK_ROWS):
        cut = slice(start, start + BLOCK_ROWS)
        part = _gather(bitmaps, offsets[cut], lengths[cut])
        merged.append(Block(buckets[cut].copy(), ledgers[cut].copy(), lengths[cut].copy(), part))
    return merged


def _in_order(blocks: Sequence[Block]) -> bool:
    """Whether each block begins after the end of the one before, and none is so small that it should be merged."""
    small = sum(len(block.buckets) < BLOCK_ROWS // 4 for block in blocks)
    if small > 1:
        return False
    return all(
        (int(left.buckets[-1]), int(left.ledgers[-1])) < (int(right.buckets[0]), int(right.ledgers[0]))
        for left, right in itertools.pairwise(blocks)
    )


def _gather(bitmaps: Bytes, offsets: Int64s, lengths: Uint32s) -> Bytes:
    return bitmaps[ranges(offsets, lengths.astype(np.int64))]
