"""The one-pass kernel: entry-log records → columns (ids, places, digests, times, counts); and payloads → records.

Reading handles contiguous valid records only. At anything else it stops and returns the offset; the caller continues
with the reference readers, ``store.codec.logscan`` and ``journal``. Layouts: docs/formats/entry-log.md, entry.md, message.md.
"""

import struct
from typing import Any

import numpy as np

from pulsar_admin.store.kernels.columns import (
    BAD_DIGEST,
    BATCH,
    CHUNK,
    COMPRESSED,
    ENCRYPTED,
    HAS_BROKER_TIME,
    MARKER,
    NULL_VALUE,
    TRANSACTION,
    UNFRAMED,
    UNVERIFIED,
)
from pulsar_admin.store.kernels.compiled import LITTLE_ROWS, kernel, part
from pulsar_admin.store.kernels.crc import START, crc32, crc32c
from pulsar_admin.store.kernels.wire import (
    BROKER_METADATA_TAGS,
    METADATA_TAGS,
    copy,
    frame,
    i32,
    i64,
    prefetch,
    put_32,
    put_64,
    read_field,
)

# Why the kernel stopped.
FULL, END, STRANGE, MORE = range(4)
"""Rows full · reached the end · no valid record here · record continues after the window."""

_LONG_MAX = 2**63 - 1
_PADDING = -0x100
_SIZES = struct.Struct(">ii")
_DELAYED_TAG = 18 << 3  # delayed_ms of the PIP of 2018; today's ordering_key has another wire type


@part(forceinline=True)
def _digest_matches(data, body, end, digest_bytes):
    """Whether the digest (4 = CRC-32C, 8 = CRC-32) at body + 32 covers the 32 header bytes and the payload."""
    if body + 32 + digest_bytes > end:
        return False
    start = body + 32 + digest_bytes
    if digest_bytes == 4:
        state = crc32c(data, start, end, crc32c(data, body, body + 32, START))
        return np.uint32(i32(data, body + 32)) == np.uint32(state) ^ START
    expected = np.uint32(crc32(data, start, end, crc32(data, body, body + 32, START))) ^ START
    return i32(data, body + 32) == 0 and np.uint32(i32(data, body + 36)) == expected


@part(forceinline=True)
def _read_metadata(data, at, end, out):
    """Read one MessageMetadata into ``out``; False when it is no valid protobuf or lacks its required fields."""
    # Not read_message: a scan of small entries takes a tenth longer with it.
    required = np.int64(0)
    delay_ms = np.int64(0)
    while at < end:
        tag, value, _, at = read_field(data, at, end)
        if at < 0:
            return False
        if tag == METADATA_TAGS.producer_name:
            required |= 1
        elif tag == METADATA_TAGS.sequence_id:
            required |= 2
        elif tag == METADATA_TAGS.publish_time:
            out.publish_ms = value
            required |= 4
        elif tag == METADATA_TAGS.num_messages_in_batch:
            out.messages = np.int32(value)
            out.flags |= BATCH
        elif tag == METADATA_TAGS.deliver_at_time:
            out.deliver_at_ms = value
        elif tag == METADATA_TAGS.marker_type:
            out.flags |= MARKER
        elif tag == METADATA_TAGS.txnid_least_bits:
            out.flags |= TRANSACTION
        elif tag == METADATA_TAGS.compression:
            out.flags |= COMPRESSED if value != 0 else 0
        elif tag == METADATA_TAGS.chunk_id:
            out.flags |= CHUNK
        elif tag == METADATA_TAGS.null_value:
            out.flags |= NULL_VALUE if value != 0 else 0
        elif tag == METADATA_TAGS.encryption_keys:
            out.flags |= ENCRYPTED
        elif tag == _DELAYED_TAG:
            delay_ms = value
    if delay_ms > 0 and out.deliver_at_ms == 0 and 0 <= out.publish_ms <= _LONG_MAX - delay_ms:
        out.deliver_at_ms = out.publish_ms + delay_ms
    return required == 7


@part(forceinline=True)
def _read_payload(data, at, end, out):
    """Fill ``out``'s message columns from the entry payload data[at:end]; sets UNFRAMED when it is no message."""
    _clear_message(out)
    front, _, start, stop = frame(data, at, end)
    framed = start >= 0
    place = at + 6
    while framed and place < front:
        tag, value, _, place = read_field(data, place, front)
        framed = place >= 0
        if tag == BROKER_METADATA_TAGS.broker_timestamp:
            out.broker_ms = value
            out.flags |= HAS_BROKER_TIME
    if not framed or not _read_metadata(data, start, stop, out):
        out.flags = (out.flags & (BAD_DIGEST | UNVERIFIED)) | UNFRAMED
        _clear_message(out)


@part(forceinline=True)
def _clear_message(out):
    out.publish_ms = -1
    out.broker_ms = -1
    out.deliver_at_ms = 0
    out.messages = 1


@part(forceinline=True)
def _check_digest(data, body, end, kind, verify, out):
    """Set ``out``'s digest_bytes and digest flags. ``kind``: digest bytes of the ledger's metadata, or −1 when unknown."""
    if kind == 0 or kind == 20:
        out.digest_bytes = kind
        out.flags |= UNVERIFIED
        return
    if not verify:
        out.digest_bytes = kind if kind > 0 else (8 if i32(data, body + 32) == 0 else 4)
        out.flags |= UNVERIFIED
        return
    first = 8 if kind == 8 else 4
    if _digest_matches(data, body, end, first):
        out.digest_bytes = first
        return
    if kind < 0 and _digest_matches(data, body, end, 8):
        out.digest_bytes = 8
        return
    out.digest_bytes = first
    out.flags |= BAD_DIGEST


@part(forceinline=True)
def _kind_of(ledger_id, known, kinds):
    low, high = 0, known.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if known[middle] < ledger_id:
            low = middle + 1
        else:
            high = middle
    return kinds[low] if low < known.shape[0] and known[low] == ledger_id else np.int16(-1)


@part(forceinline=True)
def read_body(data, body, size, kind, verify, out):
    """Fill ``out`` from the entry body data[body:body+size]; False when its ids or counters cannot be an entry's."""
    ledger_id = i64(data, body)
    entry_id = i64(data, body + 8)
    lac = i64(data, body + 16)
    length = i64(data, body + 24)
    if ledger_id < 0 or entry_id < 0 or lac < -1 or length < 0:
        return False
    out.ledger_id = ledger_id
    out.entry_id = entry_id
    out.lac = lac
    out.length = length
    out.size = size
    out.flags = 0
    _check_digest(data, body, body + size, kind, verify, out)
    if out.flags & BAD_DIGEST == 0 and 32 + out.digest_bytes <= size:
        _read_payload(data, body + 32 + out.digest_bytes, body + size, out)
    else:
        _clear_message(out)
        out.flags |= UNFRAMED
    return True


def _ahead(window: Any, at: int, stop: int, behind: int) -> int:
    """Return how many records, and paddings, begin in window[at:stop], going by their sizes; twice as many if more lie ``behind``."""
    count, stop = 0, min(stop, len(window) - 8)
    while at < stop and count < LITTLE_ROWS:
        size, following = _SIZES.unpack_from(window, at)
        if size == _PADDING:
            size = following + 4
        if size <= 0:
            break
        at += 4 + size
        count += 1
    return 2 * count if behind and 2 * count > LITTLE_ROWS else count


@part(forceinline=True)
def _is_zero(data, start, end):
    for at in range(start, end):  # noqa: SIM110 (numba compiles no generator expressions here)
        if data[at] != 0:
            return False
    return True


@_is_zero.plain_form
def _is_plain_zero(data, start, end):
    return not np.asarray(data[start:end]).any()


@kernel(lambda window, start, stop, behind, *_: _ahead(window, start, stop, behind))
def scan_log(window, start, stop, behind, ledgers, verify, out):
    """Read entry-log records from window[start]; return (records, next offset in the window, why it stopped).

    ``window``: uint8, a part of the file; ``stop``: records that begin at or after it are left; ``behind``: bytes of the file
    after the window; ``ledgers``: (sorted ledger ids, their digest bytes 4, 8, 20 or 0); ``out``: RECORD rows, offsets relative
    to the window.
    """
    known, kinds = ledgers
    owner, digest_bytes = np.int64(-1), np.int16(-1)  # of the record before
    count = 0
    at = start
    here = window.shape[0]
    while at < stop:
        if count == out.shape[0]:
            return count, at, FULL
        if at + 24 > here:
            return count, at, MORE if behind > 0 else STRANGE
        size = np.int64(i32(window, at))
        if size < 20 or size > here + behind - at - 4:
            return count, at, STRANGE
        prefetch(window, at + 4 + size)  # the next record: without this a scan of 1 KB entries takes a tenth longer
        ledger_id = i64(window, at + 4)
        special = ledger_id == -1
        if special and i64(window, at + 12) != -2 and i64(window, at + 12) != 0:
            return count, at, STRANGE
        if not special and size < 32:
            return count, at, STRANGE
        # A wrong size must not swallow records: a map's count tells the same, and filler is zeros.
        if special and i64(window, at + 12) == -2 and size != 20 + 16 * np.int64(i32(window, at + 20)):
            return count, at, STRANGE
        if at + 4 + size > here:
            return count, at, MORE
        if special and i64(window, at + 12) == 0 and not _is_zero(window, at + 20, at + 4 + size):
            return count, at, STRANGE
        if not special:
            if ledger_id != owner:
                owner, digest_bytes = ledger_id, _kind_of(ledger_id, known, kinds)
            if not read_body(window, at + 4, size, digest_bytes, verify, out[count]):
                return count, at, STRANGE
            out[count].offset = at
            count += 1
        at += 4 + size
    return count, at, END


@kernel(lambda window, start, behind, *_: _ahead(window, start, len(window), behind))
def scan_journal(window, start, behind, ledgers, verify, out):
    """Read journal records (docs/formats/journal.md) from window[start]; as ``scan_log``.

    Padding and records that are no entries (master key, fence, explicit LAC) are passed over; a length of 0 is the END.
    """
    known, kinds = ledgers
    owner, digest_bytes = np.int64(-1), np.int16(-1)  # of the record before
    count = 0
    at = start
    here = window.shape[0]
    while True:
        if count == out.shape[0]:
            return count, at, FULL
        if at + 8 > here:
            if behind > 0:
                return count, at, MORE
            return count, at, END if _is_zero(window, at, here) else STRANGE
        size = np.int64(i32(window, at))
        if size == 0:
            return count, at, END
        padding = size == _PADDING
        if padding:
            size = np.int64(i32(window, at + 4)) + 4
        if size < (4 if padding else 16) or size > here + behind - at - 4:
            return count, at, STRANGE
        if at + 4 + size > here:
            return count, at, MORE
        if padding:
            # A wrong length must not swallow records: padding is zeros.
            if not _is_zero(window, at + 8, at + 4 + size):
                return count, at, STRANGE
        elif i64(window, at + 12) < 0:
            kind = i64(window, at + 12)
            # A wrong length must not swallow entries: the count in the record tells the same.
            if kind == -0x2000:
                if size != 16:
                    return count, at, STRANGE
            elif (kind != -0x1000 and kind != -0x8000) or size < 20 or size != 20 + np.int64(i32(window, at + 20)):
                return count, at, STRANGE
        else:
            ledger_id = i64(window, at + 4)
            if ledger_id != owner:
                owner, digest_bytes = ledger_id, _kind_of(ledger_id, known, kinds)
            if size < 32 or not read_body(window, at + 4, size, digest_bytes, verify, out[count]):
                return count, at, STRANGE
            out[count].offset = at
            count += 1
        at += 4 + size


@kernel("offsets")
def read_bodies(window, offsets, sizes, ledgers, verify, out):
    """Fill ``out`` from records at known places (offset of the size field); a row that is no entry gets ledger_id −1."""
    known, kinds = ledgers
    for i in range(offsets.shape[0]):
        at = offsets[i]
        out[i].ledger_id = -1
        if sizes[i] < 32:
            continue
        digest_bytes = _kind_of(i64(window, at + 4), known, kinds)
        if read_body(window, at + 4, sizes[i], digest_bytes, verify, out[i]):
            out[i].offset = at


@kernel("starts")
def read_payloads(data, starts, ends, out):
    """Fill the message columns and flags of ``out`` from the entry payloads data[starts[i]:ends[i]]."""
    for i in range(starts.shape[0]):
        out[i].flags = 0
        _read_payload(data, starts[i], ends[i], out[i])


@kernel("starts", nogil=True)
def write_records(data, starts, sizes, ledger_id, entry_ids, length, digest_bytes, out):
    """Fill ``out`` with the records of the payloads data[starts[i]:starts[i] + sizes[i]]; return (bytes, cumulative length).

    ``length``: payload bytes of the ledger before the first; ``digest_bytes``: 4 for CRC-32C, 8 for CRC-32.
    """
    at = np.int64(0)
    for i in range(starts.shape[0]):
        size = sizes[i]
        length += size
        body = at + 4
        put_32(out, at, 32 + digest_bytes + size)
        put_64(out, body, ledger_id)
        put_64(out, body + 8, entry_ids[i])
        put_64(out, body + 16, entry_ids[i] - 1)
        put_64(out, body + 24, length)
        payload = body + 32 + digest_bytes
        copy(out, payload, data, starts[i], size)
        if digest_bytes == 4:
            state = crc32c(out, payload, payload + size, crc32c(out, body, body + 32, START))
            put_32(out, body + 32, np.int64(np.uint32(state) ^ START))
        else:
            state = crc32(out, payload, payload + size, crc32(out, body, body + 32, START))
            put_64(out, body + 32, np.int64(np.uint32(state) ^ START))
        at = payload + size
    return at, length
