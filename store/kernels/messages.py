"""Kernels that take entries apart into messages: spans of keys, properties and payloads; compiled by numba.

They know well-formed entries only. What is not, or is rare (chunks, transactions, encryption), is left as SLOW to the ordinary
reader (``store.model.messages``), which explains it. Layouts: docs/formats/message.md.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from store.kernels.crc import START, crc32c
from store.kernels.records import _i32, _i64, _skip, _varint

_MAGIC, _BROKER, _CHECKSUM = 0x0E, 0x02, 0x01

# Why an entry is left to the ordinary reader, and what is done with the others.
WHOLE, BATCHED, SLOW, NO_MESSAGE = 0, 1, 2, 3

HEAD = np.dtype(
    [
        ("body_start", np.int64),  # of the payload as stored, later of the payload decompressed
        ("body_end", np.int64),
        ("meta_start", np.int64),
        ("meta_end", np.int64),
        ("producer_start", np.int64),
        ("producer_size", np.int64),
        ("broker_index", np.int64),  # −1: none
        ("sequence_id", np.int64),
        ("uncompressed_size", np.int64),
        ("schema_version", np.int64),  # −1: none
        ("messages", np.int64),  # what field 11 says, 1 without it
        ("compression", np.int16),
        ("kind", np.int16),  # WHOLE …
    ]
)
"""The entry level of a message entry; places are offsets into the batch's bytes."""

MESSAGE = np.dtype(
    [
        ("entry", np.int64),  # row of its entry
        ("batch_index", np.int32),  # −1 where the entry is no batch
        ("null_value", np.int32),
        ("key_encoded", np.int32),  # 1: the key is base64
        ("event_ms", np.int64),
        ("sequence_id", np.int64),
        ("key_start", np.int64),
        ("key_size", np.int64),  # −1: no key
        ("ordering_start", np.int64),
        ("ordering_size", np.int64),  # −1: none
        ("body_start", np.int64),
        ("body_size", np.int64),
        ("properties", np.int64),  # how many
    ]
)
PROPERTY = np.dtype(
    [("key_start", np.int64), ("key_size", np.int64), ("value_start", np.int64), ("value_size", np.int64)]
)


@njit(cache=True, boundscheck=False)
def read_heads(data, starts, ends, heads):
    """Fill HEADS from the entry payloads data[starts[i]:ends[i]], checksums verified; what is not plain becomes SLOW."""
    for i in range(starts.shape[0]):
        _read_head(data, starts[i], ends[i], heads[i])


@njit(cache=True, boundscheck=False)
def _read_head(data, start, end, head):
    head.kind = SLOW
    head.broker_index = -1
    head.producer_size = -1
    at = start
    if end - at >= 6 and data[at] == _MAGIC and data[at + 1] == _BROKER:
        size = np.int64(_i32(data, at + 2))
        if size < 0 or size > end - at - 6:
            return
        head.broker_index = _broker_index(data, at + 6, at + 6 + size)
        at += 6 + size
    if end - at >= 6 and data[at] == _MAGIC and data[at + 1] == _CHECKSUM:
        if np.uint32(_i32(data, at + 2)) != np.uint32(crc32c(data, at + 6, end, START)) ^ START:
            return
        at += 6
    if end - at < 4:
        return
    size = np.int64(_i32(data, at))
    if size <= 0 or size > end - at - 4:
        return
    head.meta_start = at + 4
    head.meta_end = head.body_start = at + 4 + size
    head.body_end = end
    head.kind = _read_entry_metadata(data, head.meta_start, head.meta_end, head)


@njit(cache=True, boundscheck=False)
def _broker_index(data, at, end):
    index = np.int64(-1)
    while 0 <= at < end:
        tag, at = _varint(data, at, end)
        if at < 0:
            break
        if tag == 16:
            index, at = _varint(data, at, end)
        else:
            at = _skip(data, at, end, tag & 7)
    return index


@njit(cache=True, boundscheck=False)
def _read_entry_metadata(data, at, end, head):
    """Read the entry level of one MessageMetadata; return the entry's kind."""
    head.sequence_id = 0
    head.uncompressed_size = 0
    head.schema_version = -1
    head.messages = 1
    head.compression = 0
    kind = WHOLE
    marker = False
    while at < end:
        tag, at = _varint(data, at, end)
        if at < 0 or tag < 8:
            return SLOW
        if tag == 10:
            size, at = _varint(data, at, end)
            if at < 0 or not 0 <= size <= end - at:
                return SLOW
            head.producer_start = at
            head.producer_size = size
            at += size
        elif tag & 7 == 0:
            value, at = _varint(data, at, end)
            if at < 0:
                return SLOW
            if tag == 16:  # sequence_id
                head.sequence_id = value
            elif tag == 64:  # compression
                head.compression = value
            elif tag == 72:  # uncompressed_size
                head.uncompressed_size = value
            elif tag == 88:  # num_messages_in_batch
                head.messages = value
                kind = BATCHED
            elif tag == 160:  # marker_type
                marker = True
            elif tag == 176 or tag == 184 or tag == 216:  # transaction, chunk
                return SLOW
        else:
            if tag == 106:  # encryption_keys
                return SLOW
            start = at
            at = _skip(data, at, end, tag & 7)
            if at < 0 or (tag == 250 and not _are_varints(data, start, at)):  # compacted indexes packed
                return SLOW
            if tag == 130:  # schema_version
                if at - start != 9:  # its length and eight bytes
                    return SLOW
                head.schema_version = _i64(data, at - 8)
    if at != end or head.producer_size < 0:
        return SLOW
    return NO_MESSAGE if marker else kind


@njit(cache=True, boundscheck=False)
def _are_varints(data, at, end):
    """Whether the field at AT, its length first, holds varints to its END."""
    _, at = _varint(data, at, end)
    while 0 <= at < end:
        _, at = _varint(data, at, end)
    return at == end


@njit(cache=True, boundscheck=False)
def count_messages(data, heads, messages, properties):
    """Fill how many MESSAGES and PROPERTIES each entry has; a batch that is not exactly what it claims becomes SLOW."""
    for i in range(heads.shape[0]):
        head = heads[i]
        messages[i] = 0
        properties[i] = 0
        if head.kind == WHOLE:
            messages[i] = 1
            properties[i] = _count_properties(data, head.meta_start, head.meta_end, 34)
        elif head.kind == BATCHED:
            messages[i], properties[i] = _count_batch(data, head)
        if properties[i] < 0:
            head.kind = SLOW
            messages[i] = 0
            properties[i] = 0


@njit(cache=True, boundscheck=False)
def _count_batch(data, head):
    at, end = head.body_start, head.body_end
    slots = messages = properties = np.int64(0)
    while at < end:
        stop, _, following, out = _single_places(data, at, end)
        if stop < 0:
            return np.int64(0), np.int64(-1)
        if not out:
            found = _count_properties(data, at + 4, stop, 10)
            if found < 0:
                return np.int64(0), np.int64(-1)
            messages += 1
            properties += found
        slots += 1
        at = following
    if slots != head.messages:
        return np.int64(0), np.int64(-1)
    return messages, properties


@njit(cache=True, boundscheck=False)
def _single_places(data, at, end):
    """Return (end of its metadata, start of its payload, next message, compacted out?) of the message at AT; −1: none."""
    bad = np.int64(-1)
    if end - at < 4:
        return bad, bad, bad, False
    size = np.int64(_i32(data, at))
    stop = at + 4 + size
    if size <= 0 or stop > end:
        return bad, bad, bad, False
    payload_size = bad
    out = False
    place = at + 4
    while place < stop:
        tag, place = _varint(data, place, stop)
        if place < 0 or tag < 8:
            return bad, bad, bad, False
        if tag & 7 == 0:
            value, place = _varint(data, place, stop)
            if tag == 24:
                payload_size = value
            elif tag == 32:
                out = value != 0
        else:
            place = _skip(data, place, stop, tag & 7)
        if place < 0:
            return bad, bad, bad, False
    if payload_size < 0 or payload_size > end - stop or place != stop:
        return bad, bad, bad, False
    return stop, stop, stop + payload_size, out


@njit(cache=True, boundscheck=False)
def _count_properties(data, at, end, wanted):
    """Return how many key-value pairs (fields with tag WANTED) there are, −1 when one is malformed."""
    count = np.int64(0)
    while at < end:
        tag, at = _varint(data, at, end)
        if tag == wanted:
            size, at = _varint(data, at, end)
            key, _, value, _ = _pair(data, at, at + size)
            if key < 0 or value < 0:
                return np.int64(-1)
            count += 1
            at += size
        else:
            at = _skip(data, at, end, tag & 7)
    return count


@njit(cache=True, boundscheck=False)
def _pair(data, at, end):
    """Return (start, size, start, size) of the key and value of a KeyValue; a start is −1 when it is missing."""
    key = value = np.int64(-1)
    key_size = value_size = np.int64(0)
    while at < end:
        tag, at = _varint(data, at, end)
        if at < 0 or tag < 8:
            return np.int64(-1), key_size, value, value_size
        if tag == 10 or tag == 18:
            size, at = _varint(data, at, end)
            if at < 0 or not 0 <= size <= end - at:
                return np.int64(-1), key_size, value, value_size
            if tag == 10:
                key, key_size = at, size
            else:
                value, value_size = at, size
            at += size
        else:
            at = _skip(data, at, end, tag & 7)
            if at < 0:
                return np.int64(-1), key_size, value, value_size
    return key, key_size, value, value_size


@njit(cache=True, boundscheck=False)
def explode(data, heads, messages, properties):
    """Fill MESSAGES and PROPERTIES, as many as ``count_messages`` counted, in order."""
    row = np.int64(0)
    pair = np.int64(0)
    for i in range(heads.shape[0]):
        head = heads[i]
        if head.kind == WHOLE:
            message = messages[row]
            message.entry = i
            message.batch_index = -1
            message.sequence_id = head.sequence_id
            message.body_start = head.body_start
            message.body_size = head.body_end - head.body_start
            pair = _read_message(data, head.meta_start, head.meta_end, WHOLE, message, properties, pair)
            row += 1
        elif head.kind == BATCHED:
            at = head.body_start
            for index in range(head.messages):
                stop, body, following, out = _single_places(data, at, head.body_end)
                if not out:
                    message = messages[row]
                    message.entry = i
                    message.batch_index = index
                    message.sequence_id = head.sequence_id
                    message.body_start = body
                    message.body_size = following - body
                    pair = _read_message(data, at + 4, stop, BATCHED, message, properties, pair)
                    row += 1
                at = following


@njit(cache=True, boundscheck=False)
def _read_message(data, at, end, kind, message, properties, pair):
    """Read what a MessageMetadata (WHOLE) or SingleMessageMetadata (BATCHED) says of one message; return the next pair's row."""
    # Tags of: properties, partition_key, event_time, ordering_key, null_value, partition_key_b64_encoded, and sequence_id of a
    # batch's message.
    if kind == WHOLE:
        pairs_tag, key_tag, event_tag, ordering_tag, null_tag, encoded_tag, sequence_tag = 34, 50, 96, 146, 200, 136, -1
    else:
        pairs_tag, key_tag, event_tag, ordering_tag, null_tag, encoded_tag, sequence_tag = 10, 18, 40, 58, 72, 48, 64
    message.key_size = -1
    message.ordering_size = -1
    message.event_ms = 0
    message.null_value = 0
    message.key_encoded = 0
    first = pair
    while at < end:
        tag, at = _varint(data, at, end)
        if tag & 7 == 0:
            value, at = _varint(data, at, end)
            if tag == event_tag:
                message.event_ms = value
            elif tag == null_tag:
                message.null_value = value != 0
            elif tag == encoded_tag:
                message.key_encoded = value != 0
            elif tag == sequence_tag:
                message.sequence_id = value
        elif tag in (pairs_tag, key_tag, ordering_tag):
            size, at = _varint(data, at, end)
            if tag == pairs_tag:
                row = properties[pair]
                row.key_start, row.key_size, row.value_start, row.value_size = _pair(data, at, at + size)
                pair += 1
            elif tag == key_tag:
                message.key_start = at
                message.key_size = size
            else:
                message.ordering_start = at
                message.ordering_size = size
            at += size
        else:
            at = _skip(data, at, end, tag & 7)
    message.properties = pair - first
    return pair


@njit(cache=True, boundscheck=False)
def gather(data, starts, sizes, offsets, out):
    """Copy data[starts[i]:starts[i] + sizes[i]] one behind the other into OUT; OFFSETS (one more) say where each begins."""
    at = np.int64(0)
    for i in range(starts.shape[0]):
        offsets[i] = at
        start = starts[i]
        for k in range(max(sizes[i], 0)):
            out[at + k] = data[start + k]
        at += max(sizes[i], 0)
    offsets[starts.shape[0]] = at
