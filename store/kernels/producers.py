"""Kernels over the producers and times of entries. Layouts: docs/formats/message.md."""

import numpy as np

from pulsar_admin.store.kernels.compiled import kernel, part
from pulsar_admin.store.kernels.wire import METADATA, frame, read_field, tag_of


@kernel("starts")
def producer_spans(data, starts, ends, spans):
    """Fill ``spans``[i] = (start, length) of the producer name in the entry payload data[starts[i]:ends[i]]; length −1: none."""
    for i in range(starts.shape[0]):
        spans[i, 0], spans[i, 1] = 0, -1
        _, _, at, end = frame(data, starts[i], ends[i])
        while 0 <= at < end:
            tag, size, start, at = read_field(data, at, end)
            if at >= 0 and tag == tag_of(METADATA.producer_name):
                spans[i, 0], spans[i, 1] = start, size
                break


@kernel("starts")
def sequence_ids(data, starts, ends, found):
    """Fill ``found``[i] with the sequence id in the entry payload data[starts[i]:ends[i]], left as it is without one."""
    for i in range(starts.shape[0]):
        _, _, at, end = frame(data, starts[i], ends[i])
        while 0 <= at < end:
            tag, value, _, at = read_field(data, at, end)
            if at >= 0 and tag == tag_of(METADATA.sequence_id):
                found[i] = value
                break


@kernel("spans")
def number_spans(data, spans, numbers, firsts, table):
    """Give equal byte strings equal numbers, counted from 0; return how many there are.

    ``numbers``: i32 a span (−1 for a span of length −1); ``firsts``: i32, as long, the row of the first span of each number;
    ``table``: i32, −1 everywhere, a power of two in length and longer than ``spans``, for hashing.
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


@number_spans.plain_form
def _number_plainly(data, spans, numbers, firsts, table):
    known = {}
    for i in range(spans.shape[0]):
        start, length = spans[i, 0], spans[i, 1]
        if length < 0:
            numbers[i] = -1
            continue
        text = bytes(data[start : start + length])
        if text not in known:
            firsts[len(known)] = i
        numbers[i] = known.setdefault(text, len(known))
    return len(known)


@part()
def _slot_of(data, spans, i, firsts, table):
    """Return where in ``table`` the span with index ``i`` is, or belongs."""
    mask = np.uint64(table.shape[0] - 1)
    slot = _hash(data, spans[i, 0], spans[i, 1]) & mask
    while table[slot] >= 0 and not _same(data, spans, i, firsts[table[slot]]):
        slot = (slot + np.uint64(1)) & mask
    return slot


@part()
def _same(data, spans, i, j):
    length = spans[i, 1]
    if length != spans[j, 1]:
        return False
    left, right = spans[i, 0], spans[j, 0]
    same = True
    for k in range(length):
        same &= data[left + k] == data[right + k]
    return same


@part()
def _hash(data, start, length):
    """FNV-1a, 64 bits."""
    value = np.uint64(0xCBF29CE484222325)
    for k in range(length):
        value = (value ^ np.uint64(data[start + k])) * np.uint64(0x100000001B3)
    return value ^ (value >> np.uint64(32))


@kernel("times")
def longest_forward_run(times, kept, tails, before):
    """Mark in ``kept`` the longest subsequence of ``times`` that never runs backwards; ``tails`` and ``before``: i32, as long as ``times``.

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
