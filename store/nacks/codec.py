"""The serialized tracker of negative acknowledgements.  Format: docs/formats/nacks.md.

Upstream's NegativeAcksTracker (PIP-393, Pulsar 4.0.8) lives in the client's memory and has no form at rest; this one
is ours. Little-endian. A header, then four columns: one row per (bucket, ledger), sorted by both.
"""

from __future__ import annotations

import struct

import google_crc32c
import numpy as np
from msgspec import Struct

from pulsar_admin.store.db.nacks import MAX_PRECISION_BITS
from pulsar_admin.store.errors import Corrupt, Unsupported
from pulsar_admin.store.nacks.bitmaps import Bytes, Int64s, Uint32s

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
    "I"  # CRC-32C of everything behind the header
)
_CHECKSUM = struct.Struct("<I")  # CRC-32C of the header so far; at offset 44 in every version
HEADER_SIZE_BYTES = _HEADER.size + _CHECKSUM.size
_ROW_SIZE_BYTES = 8 + 8 + 4
_CHECKSUM_STEP = 1 << 18


class NackColumns(Struct, frozen=True):
    """A whole tracker as columns: row i says which entries of ``ledgers[i]`` are due in bucket ``buckets[i]``.

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
    """Return the columns as views of the bytes, all checksums and invariants but the bitmaps' own verified.

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
    """Raise Corrupt unless the rows obey ``NackColumns``."""
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
