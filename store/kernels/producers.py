"""Kernels over the producers and times of entries; compiled by numba. Layouts: docs/formats/message.md."""

from __future__ import annotations

import numpy as np
from numba import njit

from store.kernels.records import _i32, _skip, _varint

_MAGIC, _BROKER, _CHECKSUM = 0x0E, 0x02, 0x01


@njit(cache=True, boundscheck=False)
def metadata_place(data, start, end):
    """Return (start, end) of the MessageMetadata in the entry payload data[start:end]; (−1, −1) when there is none."""
    at = start
    if end - at >= 6 and data[at] == _MAGIC and data[at + 1] == _BROKER:
        at += 6 + np.int64(np.uint32(_i32(data, at + 2)))
    if end - at >= 6 and data[at] == _MAGIC and data[at + 1] == _CHECKSUM:
        at += 6
    if end - at < 4:
        return np.int64(-1), np.int64(-1)
    size = np.int64(_i32(data, at))
    if size <= 0 or size > end - at - 4:
        return np.int64(-1), np.int64(-1)
    return at + 4, at + 4 + size


@njit(cache=True, boundscheck=False)
def producer_spans(data, starts, ends, spans):
    """Fill SPANS[i] = (start, length) of the producer name in the entry payload data[starts[i]:ends[i]]; length −1: none."""
    for i in range(starts.shape[0]):
        at, end = metadata_place(data, starts[i], ends[i])
        spans[i, 0], spans[i, 1] = _producer_of(data, at, end)


@njit(cache=True, boundscheck=False)
def _producer_of(data, at, end):
    while 0 <= at < end:
        tag, at = _varint(data, at, end)
        if at < 0:
            break
        if tag == 10:
            length, at = _varint(data, at, end)
            if at < 0 or not 0 <= length <= end - at:
                break
            return at, length
        at = _skip(data, at, end, tag & 7)
    return np.int64(0), np.int64(-1)


@njit(cache=True, boundscheck=False)
def number_spans(data, spans, numbers, firsts, table):
    """Give equal byte strings equal numbers, counted from 0; return how many there are.

    ``numbers``: i32 a span (−1 for a span of length −1); ``firsts``: i32, as long, the row of the first span of each number;
    ``table``: i32, −1 everywhere, a power of two in length and longer than SPANS, for hashing.
    """
    count = 0
    before = -1
    for i in range(spans.shape[0]):
        if spans[i, 1] < 0:
            numbers[i] = -1
        elif before >= 0 and _same(data, spans, i, before):
            numbers[i] = numbers[before]
        else:
            slot = _slot_of(data, spans, i, firsts, table)
            if table[slot] < 0:
                table[slot] = count
                firsts[count] = i
                count += 1
            numbers[i] = table[slot]
            before = i
    return count


@njit(cache=True, boundscheck=False)
def _slot_of(data, spans, i, firsts, table):
    """Return where in TABLE span I is, or belongs."""
    mask = np.uint64(table.shape[0] - 1)
    slot = _hash(data, spans[i, 0], spans[i, 1]) & mask
    while table[slot] >= 0 and not _same(data, spans, i, firsts[table[slot]]):
        slot = (slot + np.uint64(1)) & mask
    return slot


@njit(cache=True, boundscheck=False)
def _same(data, spans, i, j):
    length = spans[i, 1]
    if length != spans[j, 1]:
        return False
    left, right = spans[i, 0], spans[j, 0]
    same = True
    for k in range(length):
        same &= data[left + k] == data[right + k]
    return same


@njit(cache=True, boundscheck=False)
def _hash(data, start, length):
    """FNV-1a, 64 bits."""
    value = np.uint64(0xCBF29CE484222325)
    for k in range(length):
        value = (value ^ np.uint64(data[start + k])) * np.uint64(0x100000001B3)
    return value ^ (value >> np.uint64(32))


@njit(cache=True, boundscheck=False)
def longest_forward_run(times, kept, tails, before):
    """Mark in KEPT the longest subsequence of TIMES that never runs backwards; ``tails`` and ``before``: i32, as long as TIMES.

    Patience sorting: the entries left out are the fewest that must go for the clock to run forward.
    """
    length = 0
    for i in range(times.shape[0]):
        low, high = 0, length
        while low < high:
            middle = (low + high) >> 1
            if times[tails[middle]] <= times[i]:
                low = middle + 1
            else:
                high = middle
        before[i] = tails[low - 1] if low > 0 else -1
        tails[low] = i
        length = max(length, low + 1)
    at = tails[length - 1] if length > 0 else -1
    while at >= 0:
        kept[at] = True
        at = before[at]
