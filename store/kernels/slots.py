"""Kernels of compaction over messages: spans of messages in batches, and each key's latest, by 128-bit hashes."""
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False, check-untyped-defs=False

from typing import Any

import numpy as np

from pulsar_admin.store.kernels.compaction import (
    BATCH,
    CHUNK,
    HAS_PLAIN_SIZE,
    IN_SCRATCH,
    NULLS_AS_4_0,
    SAYS_NULL,
    SINGLE,
    STRANGE,
)
from pulsar_admin.store.kernels.compiled import kernel, part
from pulsar_admin.store.kernels.crc import load_8
from pulsar_admin.store.kernels.wire import MALFORMED, SINGLE_METADATA, START, has, new_fields, read_single

COMPACTED_OUT, NULL_VALUE, RULE_MATTERS = 1, 2, 4
"""Flags of messages. RULE_MATTERS: a null value by one rule and not by the other."""

SLOT = np.dtype(
    [
        ("start", np.int64),  # of the message in the uncompressed payload, its size field included
        ("end", np.int64),
        ("key_start", np.int64),
        ("key_length", np.int32),  # −1: no key
        ("value_bytes", np.int32),
        ("flags", np.uint8),
    ]
)

RETAINED, SUPERSEDED, NULLED, KEYLESS, OUT_BEFORE = range(5)
"""What becomes of a message: kept; a later one has its key; it is a null value; it has no key; it was taken out before."""

EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_MASK = 2**64 - 1
_FIRST_SEED = np.uint64(0x9E3779B97F4A7C15)
_SECOND_SEED = np.uint64(0xD1B54A32D192ED03)


@kernel("slots")
def read_slots(data, scratch, rows, slots, firsts):
    """Fill ``slots`` with the messages of ``rows``, and ``firsts``[i] with the number of the first of entry i; returns how many.

    A slot is an unbatched message, the last chunk of a message, or a message of a batch. A batch with another number of
    whole messages than it claims becomes STRANGE.
    """
    count = 0
    fields = new_fields()
    for i in range(rows.shape[0]):
        row = rows[i]
        firsts[i] = count
        if row.kind == SINGLE or (row.kind == CHUNK and row.chunk_id == row.chunks - 1):
            slot = slots[count]
            slot.start, slot.end = row.plain_start, row.plain_end
            slot.key_start, slot.key_length = row.key_start, row.key_length
            _read_alone(row, slot)
            count += 1
        elif row.kind == BATCH:
            found = _walk(scratch if row.flags & IN_SCRATCH else data, row, fields, slots[count:])
            if found == row.messages or (0 < found == row.indexes < row.messages):
                count += found
            else:
                row.kind = STRANGE
    firsts[rows.shape[0]] = count
    return count


@part(inline="always")
def _read_alone(row, slot):
    """Read the size of an unbatched message (upstream ``AbstractTwoPhaseCompactor.extractKeyAndSize``, 4.0.8 and
    4.2.4).

    Without a stated size, 4.0 uses that of the whole entry, so that the value is never null, and ignores
    ``null_value``.
    """
    older = row.plain_bytes if row.flags & HAS_PLAIN_SIZE else row.end - row.front_end
    newer = row.plain_bytes if row.flags & HAS_PLAIN_SIZE else row.end - row.meta_end
    if row.flags & SAYS_NULL:
        newer = 0
    slot.flags = RULE_MATTERS if (older <= 0) != (newer <= 0) else 0
    slot.value_bytes = min(older if row.flags & NULLS_AS_4_0 else newer, 0x7FFFFFFF)


@part()
def _walk(plain, row, fields, slots):
    """Fill ``slots`` with the messages of one batch; return their number, −1 if the bytes are not a batch."""
    count = 0
    at = row.plain_start
    while at < row.plain_end:
        if count == slots.shape[0]:
            return -1
        slot = slots[count]
        slot.start = at
        seen, body, at = read_single(plain, at, row.plain_end, fields)
        if seen == MALFORMED:
            return -1
        slot.end = at
        slot.value_bytes = at - body
        slot.key_start, slot.key_length, slot.flags = 0, -1, 0
        if has(seen, SINGLE_METADATA.partition_key):
            slot.key_start, slot.key_length = (
                fields[START + SINGLE_METADATA.partition_key],
                fields[SINGLE_METADATA.partition_key],
            )
        if has(seen, SINGLE_METADATA.compacted_out) and fields[SINGLE_METADATA.compacted_out] != 0:
            slot.flags |= COMPACTED_OUT
        if has(seen, SINGLE_METADATA.null_value) and fields[SINGLE_METADATA.null_value] != 0:
            slot.flags |= NULL_VALUE
        count += 1
    return count


# -- the latest message of every key ----------------------------------------------------------------------------------


@part(inline="always")
def _mixed(value):
    value ^= value >> np.uint64(33)
    value *= np.uint64(0xFF51AFD7ED558CCD)
    value ^= value >> np.uint64(33)
    value *= np.uint64(0xC4CEB9FE1A85EC53)
    return value ^ (value >> np.uint64(33))


@_mixed.plain_form
def _mixed_plainly(value):
    value &= _MASK
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & _MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ (value >> 33)


@part()
def hash_128(data, start, length):
    """Return a hash of data[start:start+length] as two 64-bit numbers, each mixed on its own with every eight bytes."""
    first = _FIRST_SEED ^ np.uint64(length)
    second = _SECOND_SEED + np.uint64(length)
    at, end = start, start + length
    while at + 8 <= end:
        word = load_8(data, at)
        first = _mixed((first ^ word) * np.uint64(0x87C37B91114253D5))
        second = _mixed((second + word) * np.uint64(0x4CF5AD432745937F))
        at += 8
    word = np.uint64(0)
    while at < end:
        word = (word << np.uint64(8)) | np.uint64(data[at])
        at += 1
    return _mixed((first ^ word) * np.uint64(0x87C37B91114253D5)), _mixed(
        (second + word) * np.uint64(0x4CF5AD432745937F)
    )


@hash_128.plain_form
def _hash_plainly(data, start, length):
    first, second = int(_FIRST_SEED) ^ length, int(_SECOND_SEED) + length
    at, end = start, start + length
    while at + 8 <= end:
        word = int.from_bytes(data[at : at + 8], "little")
        first = _mixed_plainly((first ^ word) * 0x87C37B91114253D5)
        second = _mixed_plainly((second + word) * 0x4CF5AD432745937F)
        at += 8
    word = int.from_bytes(data[at:end], "big")
    return (
        _mixed_plainly((first ^ word) * 0x87C37B91114253D5),
        _mixed_plainly((second + word) * 0x4CF5AD432745937F),
    )


@kernel(lambda _, rows, slots, *__: len(slots))
def add_keys(buffers, rows, slots, firsts, progress, table):
    """Enter the keyed messages of ``rows`` into ``table`` = (hashes, hashes, last), latest wins; return whether all
    were entered.

    ``buffers``: data and scratch, which spans are offsets into. ``last``: ordinal << 1 | is null value, EMPTY in a free
    place. ``progress``: i64 [entry to continue with, ordinal of its first message, keys in the table]. Stops when the
    table is half full.
    """
    first_hashes, second_hashes, last = table
    mask = np.uint64(last.shape[0] - 1)
    base = np.uint64(progress[1])
    for i in range(progress[0], rows.shape[0]):
        if (progress[2] + firsts[i + 1] - firsts[i]) * 2 > last.shape[0]:
            progress[0] = i
            return False
        plain = buffers[1] if rows[i].flags & IN_SCRATCH else buffers[0]
        for s in range(firsts[i], firsts[i + 1]):
            slot = slots[s]
            if slot.key_length < 0 or slot.flags & COMPACTED_OUT:
                continue
            one, two = hash_128(plain, slot.key_start, np.int64(slot.key_length))
            value = (base + np.uint64(s)) << np.uint64(1) | np.uint64(slot.value_bytes <= 0)
            place = one & mask
            while last[place] != EMPTY and (first_hashes[place] != one or second_hashes[place] != two):
                place = (place + np.uint64(1)) & mask
            if last[place] == EMPTY:
                first_hashes[place], second_hashes[place] = one, two
                progress[2] += 1
            last[place] = value
    progress[0] = rows.shape[0]
    return True


@kernel(lambda keys, *_: len(keys[2]))
def merge_keys(keys, progress, table):
    """Enter ``keys`` = (hashes, hashes, last) into ``table``, the larger ``last`` wins; return whether all were
    entered.

    ``progress``: i64 [key to continue with, keys in the table]. Stops when the table is half full.
    """
    first_hashes, second_hashes, last = table
    mask = np.uint64(last.shape[0] - 1)
    for i in range(progress[0], keys[2].shape[0]):
        if (progress[1] + 1) * 2 > last.shape[0]:
            progress[0] = i
            return False
        one, two, value = keys[0][i], keys[1][i], keys[2][i]
        place = one & mask
        while last[place] != EMPTY and (first_hashes[place] != one or second_hashes[place] != two):
            place = (place + np.uint64(1)) & mask
        if last[place] == EMPTY:
            first_hashes[place], second_hashes[place], last[place] = one, two, value
            progress[1] += 1
        elif value > last[place]:
            last[place] = value
    progress[0] = keys[2].shape[0]
    return True


@kernel(lambda source, _: len(source[2]))
def move_keys(source, target):
    """Enter every key of the table ``source`` into the larger, empty table ``target``."""
    mask = np.uint64(target[2].shape[0] - 1)
    for i in range(source[2].shape[0]):
        if source[2][i] == EMPTY:
            continue
        place = source[0][i] & mask
        while target[2][place] != EMPTY:
            place = (place + np.uint64(1)) & mask
        target[0][place], target[1][place], target[2][place] = source[0][i], source[1][i], source[2][i]


def _keys_in(last: Any, _: Any) -> int:
    """Return the number of keys in a table; numpy skips free places quickly."""
    return int(np.count_nonzero(last != EMPTY))


@kernel(_keys_in)
def mark_last(last, bits):
    """Set the bit of every ordinal in ``last`` whose value is not null; return (their number, that of null values)."""
    kept = nulls = 0
    for i in range(last.shape[0]):
        value = last[i]
        if value == EMPTY:
            continue
        if value & np.uint64(1):
            nulls += 1
            continue
        ordinal = value >> np.uint64(1)
        bits[ordinal >> np.uint64(3)] |= np.uint8(1) << np.uint8(ordinal & np.uint64(7))
        kept += 1
    return kept, nulls


@mark_last.plain_form
def _mark_plainly(last, bits):
    found = np.asarray(last)
    values = found[found != EMPTY].tolist()
    kept = [value >> 1 for value in values if not value & 1]
    for ordinal in kept:
        bits[ordinal >> 3] |= 1 << (ordinal & 7)
    return len(kept), len(values) - len(kept)


@kernel("slots")
def judge(slots, firsts, ordinals, bits, retain_keyless, fates):
    """Fill fates[s] with RETAINED, or with why compaction drops message s; ordinals[i]: of entry i's first."""
    for i in range(ordinals.shape[0]):
        for s in range(firsts[i], firsts[i + 1]):
            slot = slots[s]
            ordinal = ordinals[i] + s - firsts[i]
            if slot.flags & COMPACTED_OUT:
                fates[s] = OUT_BEFORE
            elif slot.key_length < 0:
                fates[s] = RETAINED if retain_keyless else KEYLESS
            elif bits[ordinal >> 3] >> (ordinal & 7) & 1:
                fates[s] = RETAINED
            else:
                fates[s] = NULLED if slot.value_bytes <= 0 else SUPERSEDED
