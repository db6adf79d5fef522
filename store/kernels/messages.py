"""Kernels that split entries into messages: spans of keys, properties and payloads.

They read well-formed entries only. Malformed and rare ones (chunks, transactions, encryption) are marked SLOW, for the
ordinary reader (``store.model.messages``), which also reports errors. Layouts: docs/formats/message.md.
"""

from typing import Any

import numpy as np

from pulsar_admin.store.kernels.compiled import LITTLE_ROWS, kernel, part
from pulsar_admin.store.kernels.crc import checksum_matches
from pulsar_admin.store.kernels.wire import (
    BROKER_METADATA,
    KEY_VALUE,
    MALFORMED,
    METADATA,
    PACKED,
    SINGLE_METADATA,
    START,
    frame,
    has,
    i64,
    new_fields,
    read_field,
    read_message,
    read_single,
    tag_of,
    varint,
)

# Which entries are left to the ordinary reader, and how the others are read.
WHOLE, BATCHED, SLOW, NO_MESSAGE = 0, 1, 2, 3
_OUT_OF_THE_ORDINARY = (
    1 << METADATA.encryption_keys
    | 1 << METADATA.txnid_least_bits
    | 1 << METADATA.txnid_most_bits
    | 1 << METADATA.num_chunks_from_msg
)

HEAD = np.dtype(
    [
        ("body_start", np.int64),  # of the payload as stored, later of the payload decompressed
        ("body_end", np.int64),
        ("front_end", np.int64),  # after the broker metadata
        ("meta_start", np.int64),
        ("meta_end", np.int64),
        ("producer_start", np.int64),
        ("producer_size", np.int64),
        ("broker_index", np.int64),  # −1: none
        ("sequence_id", np.int64),
        ("uncompressed_size", np.int64),
        ("schema_version", np.int64),  # −1: none
        ("messages", np.int64),  # what field 11 says, 1 without it
        ("properties", np.int64),  # of the entry's own metadata
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


@kernel("starts")
def read_heads(data, starts, ends, heads):
    """Fill ``heads`` from the entry payloads data[starts[i]:ends[i]], checksums verified; entries that are not plain become SLOW."""
    fields = new_fields()
    for i in range(starts.shape[0]):
        _read_head(data, starts[i], ends[i], fields, heads[i])


@part()
def _read_head(data, start, end, fields, head):
    head.kind = SLOW
    head.broker_index = -1
    head.producer_size = -1
    front, checked, head.meta_start, head.meta_end = frame(data, start, end)
    head.front_end = front
    if front > start:
        seen = read_message(data, start + 6, front, fields)
        if seen == MALFORMED:
            return
        if has(seen, BROKER_METADATA.index):
            head.broker_index = fields[BROKER_METADATA.index]
    if head.meta_start < 0:
        return
    if checked > front and not checksum_matches(data, checked, end):
        return
    head.body_start = head.meta_end
    head.body_end = end
    head.kind = _read_entry_metadata(data, head.meta_start, head.meta_end, fields, head)


@part()
def _read_entry_metadata(data, at, end, fields, head):
    """Read the entry level of one MessageMetadata; return the entry's kind."""
    seen = read_message(data, at, end, fields)
    if seen & METADATA.required != METADATA.required or seen & _OUT_OF_THE_ORDINARY != 0:
        return SLOW
    if has(seen, METADATA.compacted_batch_indexes + PACKED):
        start = fields[START + METADATA.compacted_batch_indexes + PACKED]
        if not _are_varints(data, start, start + fields[METADATA.compacted_batch_indexes + PACKED]):
            return SLOW
    head.producer_start = fields[START + METADATA.producer_name]
    head.producer_size = fields[METADATA.producer_name]
    head.sequence_id = fields[METADATA.sequence_id]
    head.uncompressed_size = _number(fields, seen, METADATA.uncompressed_size, 0)
    head.messages = _number(fields, seen, METADATA.num_messages_in_batch, 1)
    head.compression = _number(fields, seen, METADATA.compression, 0)
    head.schema_version = -1
    if has(seen, METADATA.schema_version):
        if fields[METADATA.schema_version] != 8:
            return SLOW
        head.schema_version = i64(data, fields[START + METADATA.schema_version])
    head.properties = 0
    if has(seen, METADATA.properties):
        head.properties = _count_properties(data, at, end, METADATA.properties, fields)
        if head.properties < 0:
            return SLOW
    if has(seen, METADATA.marker_type):
        return NO_MESSAGE
    return BATCHED if has(seen, METADATA.num_messages_in_batch) else WHOLE


@part(forceinline=True)
def _number(fields, seen, slot, default):
    return fields[slot] if has(seen, slot) else np.int64(default)


@part()
def _are_varints(data, at, end):
    while 0 <= at < end:
        _, at = varint(data, at, end)
    return at == end


def _messages_in(heads: Any) -> int:
    """Return the number of messages that ``heads`` claim; a head that claims too few still yields no more."""
    batches = heads["messages"][heads["kind"] == BATCHED]
    return len(heads) + int(batches.clip(0, LITTLE_ROWS).sum())


@kernel(lambda data, heads, *_: _messages_in(heads))
def count_messages(data, heads, messages, properties):
    """Fill how many ``messages`` and ``properties`` each entry has; a batch that is not exactly what it claims becomes SLOW."""
    fields = new_fields()
    for i in range(heads.shape[0]):
        head = heads[i]
        messages[i] = 0
        properties[i] = 0
        if head.kind == WHOLE:
            messages[i] = 1
            properties[i] = head.properties
        elif head.kind == BATCHED:
            messages[i], properties[i] = _count_batch(data, head, fields)
            if messages[i] < 0:
                head.kind = SLOW
                messages[i] = 0


@part()
def _count_batch(data, head, fields):
    """Return how many (messages, properties) a batch has; (−1, 0) when it is not exactly what it claims."""
    bad = np.int64(-1), np.int64(0)
    at = head.body_start
    slots = messages = properties = np.int64(0)
    while at < head.body_end:
        start = at + 4
        seen, body, at = read_single(data, at, head.body_end, fields)
        if seen == MALFORMED:
            return bad
        slots += 1
        if _number(fields, seen, SINGLE_METADATA.compacted_out, 0) != 0:
            continue
        messages += 1
        if has(seen, SINGLE_METADATA.properties):
            found = _count_properties(data, start, body, SINGLE_METADATA.properties, fields)
            if found < 0:
                return bad
            properties += found
    return (messages, properties) if slots == head.messages else bad


@part()
def _count_properties(data, at, end, slot, fields):
    """Return how many key-value pairs, fields of ``slot``, there are, −1 when one is malformed; overwrites ``fields``."""
    count = np.int64(0)
    while at < end:
        tag, _, start, at = read_field(data, at, end)
        if tag == tag_of(slot):
            if read_message(data, start, at, fields) & KEY_VALUE.required != KEY_VALUE.required:
                return np.int64(-1)
            count += 1
    return count


@kernel("messages")
def explode(data, heads, messages, properties):
    """Fill ``messages`` and ``properties``, as many as ``count_messages`` counted, in order."""
    fields = new_fields()
    row = np.int64(0)
    pair = np.int64(0)
    for i in range(heads.shape[0]):
        head = heads[i]
        if head.kind == WHOLE:
            message = messages[row]
            seen = read_message(data, head.meta_start, head.meta_end, fields)
            _place(message, i, -1, head.body_start, head.body_end)
            _fill_message(message, fields, seen, METADATA)
            message.properties = 0
            if head.properties > 0:
                _read_properties(data, head.meta_start, head.meta_end, METADATA.properties, fields, properties[pair:])
                message.properties = head.properties
            pair += message.properties
            row += 1
        elif head.kind == BATCHED:
            at = head.body_start
            for index in range(head.messages):
                start = at + 4
                seen, body, at = read_single(data, at, head.body_end, fields)
                if _number(fields, seen, SINGLE_METADATA.compacted_out, 0) != 0:
                    continue
                message = messages[row]
                _place(message, i, index, body, at)
                _fill_message(message, fields, seen, SINGLE_METADATA)
                if not has(seen, SINGLE_METADATA.sequence_id):
                    message.sequence_id = head.sequence_id
                message.properties = 0
                if has(seen, SINGLE_METADATA.properties):
                    left = properties[pair:]
                    message.properties = _read_properties(data, start, body, SINGLE_METADATA.properties, fields, left)
                pair += message.properties
                row += 1


@part(forceinline=True)
def _place(message, entry, index, body_start, body_end):
    message.entry = entry
    message.batch_index = index
    message.body_start = body_start
    message.body_size = body_end - body_start


@part(forceinline=True)
def _fill_message(message, fields, seen, slots):
    """Fill the columns that MessageMetadata and SingleMessageMetadata have in common; ``slots``: of their fields."""
    message.sequence_id = _number(fields, seen, slots.sequence_id, 0)
    message.event_ms = _number(fields, seen, slots.event_time, 0)
    message.null_value = _number(fields, seen, slots.null_value, 0) != 0
    message.key_encoded = _number(fields, seen, slots.partition_key_b64_encoded, 0) != 0
    message.key_size = message.ordering_size = -1
    if has(seen, slots.partition_key):
        message.key_start, message.key_size = fields[START + slots.partition_key], fields[slots.partition_key]
    if has(seen, slots.ordering_key):
        message.ordering_start = fields[START + slots.ordering_key]
        message.ordering_size = fields[slots.ordering_key]


@part()
def _read_properties(data, at, end, slot, fields, pairs):
    """Fill ``pairs`` with the key-value pairs, fields of ``slot``, which ``_count_properties`` counted; return how many."""
    count = np.int64(0)
    while at < end:
        tag, _, start, at = read_field(data, at, end)
        if tag == tag_of(slot):
            read_message(data, start, at, fields)
            pair = pairs[count]
            pair.key_start, pair.key_size = fields[START + KEY_VALUE.key], fields[KEY_VALUE.key]
            pair.value_start, pair.value_size = fields[START + KEY_VALUE.value], fields[KEY_VALUE.value]
            count += 1
    return count


@kernel("starts")
def gather(data, starts, sizes, offsets, out):
    """Copy data[starts[i]:starts[i] + sizes[i]] one after the other into ``out``; ``offsets`` (one more) say where each begins."""
    at = np.int64(0)
    for i in range(starts.shape[0]):
        offsets[i] = at
        start = starts[i]
        for k in range(max(sizes[i], 0)):
            out[at + k] = data[start + k]
        at += max(sizes[i], 0)
    offsets[starts.shape[0]] = at


@gather.plain_form
def _gather_plainly(data, starts, sizes, offsets, out):
    at = 0
    for i, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        offsets[i] = at
        size = max(size, 0)
        out[at : at + size] = data[start : start + size]
        at += size
    offsets[len(starts)] = at
