"""The writing kernel: entry-log records of one topic, built in place in a buffer, compiled by numba.

Layouts: docs/formats/entry-log.md, entry.md, message.md. What each entry holds: ``bench.generate.draws``.
"""

from __future__ import annotations

import numpy as np

from bench.generate import draws
from bench.generate.compiled import between, draw, log_between, put_key
from pulsar_admin.store.kernels.compiled import part
from pulsar_admin.store.kernels.crc import START, crc32c
from pulsar_admin.store.kernels.wire import (
    BROKER_MAGIC,
    BROKER_METADATA,
    CHECKSUM_MAGIC,
    METADATA,
    SINGLE_METADATA,
    copy,
    put_32,
    put_64,
    put_number,
    put_tag,
    put_varint,
)

BROKER_TIME, BROKER_INDEX, BROKER_GIVEN, EVENT_TIME = 1, 2, 4, 8
"""Which broker entry metadata, GIVEN: bytes made by other interceptors; whether messages have an event time."""

PLAN = np.dtype(
    [
        ("stream", np.uint64),
        ("messages", np.uint64),  # the stream of messages
        ("start_ms", np.int64),
        ("period_us", np.int64),  # between two entries
        ("size_low", np.int64),
        ("size_high", np.int64),
        ("size_log", np.int64),  # 1: every doubling equally likely
        ("batch_low", np.int64),  # 0: no batches
        ("batch_high", np.int64),
        ("keys", np.int64),
        ("delayed", np.int64),  # of 10,000 entries
        ("delay_low_ms", np.int64),
        ("delay_high_ms", np.int64),
        ("nulls", np.int64),  # of 10,000 messages
        ("codecs", np.int64),  # codecs to draw from; 0 of them: none
        ("variants", np.int64),  # pooled bodies a codec
        ("flags", np.int64),
    ]
)
STATE = np.dtype(
    [
        ("ledger_id", np.int64),
        ("entry_id", np.int64),  # of the next entry in its ledger
        ("entry", np.int64),  # its number in the topic
        ("message", np.int64),  # number of its first message in the topic
        ("length", np.int64),  # payload bytes of the ledger so far
        ("index", np.int64),  # of the last message before it
    ]
)
PRODUCER = np.dtype(
    [
        ("name_at", np.int64),
        ("name_bytes", np.int64),
        ("skew_ms", np.int64),
        ("jump_ms", np.int64),  # a jumping clock is off by at most this, both ways
        ("sequence", np.int64),  # of its next message
    ]
)
BODY = np.dtype(  # a pooled body: stored form of an entry's payload
    [("at", np.int64), ("bytes", np.int64), ("uncompressed", np.int64), ("messages", np.int64), ("codec", np.int64)]
)

PATTERN_BYTES = 1 << 16

_PRODUCER, _BATCH, _CODEC, _DELAYED = draws.PRODUCER, draws.BATCH, draws.CODEC, draws.DELAYED
_DELAY, _LATENCY, _JUMP, _VARIANT = draws.DELAY, draws.LATENCY, draws.JUMP, draws.VARIANT
_SIZE, _KEY, _PAYLOAD, _NULL, _EVENT = draws.SIZE, draws.KEY, draws.PAYLOAD, draws.NULL, draws.EVENT
_LATENCY_LIMIT_MS, _JUMP_ENTRIES = draws.LATENCY_LIMIT_MS, draws.JUMP_ENTRIES
_EVENT_LIMIT_MS, _PERMYRIAD = draws.EVENT_LIMIT_MS, draws.PERMYRIAD
_PATTERN_MASK = np.uint64(PATTERN_BYTES - 1)


@part(inline="always")
def put_magic(out, at, magic):
    """Write ``magic``; return the offset after it."""
    out[at], out[at + 1] = magic >> 8, magic & 0xFF
    return at + 2


@part()
def _size_of(plan, message):
    bits = draw(plan.messages, message, _SIZE)
    if plan.size_log != 0:
        return log_between(bits, plan.size_low, plan.size_high)
    return between(bits, plan.size_low, plan.size_high)


@part(inline="always")
def _is_null(plan, message):
    return plan.nulls > 0 and between(draw(plan.messages, message, _NULL), 0, _PERMYRIAD - 1) < plan.nulls


@part(inline="always")
def _key_of(plan, message):
    return between(draw(plan.messages, message, _KEY), 0, plan.keys - 1)


@part()
def _put_payload(out, at, plan, message, size, pattern):
    """Write ``size`` bytes: the draw itself (where it has room), then the pattern from a drawn place on."""
    bits = draw(plan.messages, message, _PAYLOAD)
    end = at + size
    if size >= 8:
        put_64(out, at, np.int64(bits))
        at += 8
    place = np.int64(bits & _PATTERN_MASK)
    while at < end:
        count = min(end - at, PATTERN_BYTES - place)
        at = copy(out, at, pattern, place, count)
        place = 0
    return end


@part()
def shape_of(plan, bodies, entry):
    """Return (body number in the pool or −1, messages, whether delayed) of an entry; a batch has 1 or more, 0 is none."""
    if plan.delayed > 0 and between(draw(plan.stream, entry, _DELAYED), 0, _PERMYRIAD - 1) < plan.delayed:
        return -1, 0, True  # clients never batch delayed messages
    codec = 0
    if plan.codecs > 0:
        codec = between(draw(plan.stream, entry, _CODEC), 0, plan.codecs - 1)
        variant = between(draw(plan.stream, entry, _VARIANT), 0, plan.variants - 1)
        body = codec * plan.variants + variant
        if bodies[body].codec != 0:
            return body, bodies[body].messages, False
    if plan.batch_high == 0:
        return -1, 0, False
    return -1, between(draw(plan.stream, entry, _BATCH), plan.batch_low, plan.batch_high), False


@part(inline="always")
def broker_ms_of(plan, entry):
    """Return when the broker appended the entry."""
    return plan.start_ms + entry * plan.period_us // 1000


@part()
def _put_broker_metadata(out, at, flags, broker_ms, index):
    """Write magic, size and BrokerEntryMetadata; return the offset behind it."""
    size_at = put_magic(out, at, BROKER_MAGIC)
    end = size_at + 4
    if flags & BROKER_TIME:
        end = put_number(out, end, BROKER_METADATA.broker_timestamp, broker_ms)
    if flags & BROKER_INDEX:
        end = put_number(out, end, BROKER_METADATA.index, index)
    put_32(out, size_at, end - size_at - 4)
    return end


@part()
def _publish_ms(plan, producer, entry):
    skew = producer.skew_ms
    if producer.jump_ms > 0:
        bits = draw(plan.stream, entry // _JUMP_ENTRIES, _JUMP)
        skew += between(bits, -producer.jump_ms, producer.jump_ms)
    latency = between(draw(plan.stream, entry, _LATENCY), 0, _LATENCY_LIMIT_MS - 1)
    return broker_ms_of(plan, entry) - latency + skew


@part(inline="always")
def _event_ms(plan, publish_ms, message):
    return publish_ms - between(draw(plan.messages, message, _EVENT), 0, _EVENT_LIMIT_MS - 1)


@part()
def _put_metadata(out, at, plan, state, producer, names, shape, body):
    """Write the MessageMetadata of the entry at ``state``; return the offset after it."""
    _, batch, delayed = shape
    entry = state.entry
    publish_ms = _publish_ms(plan, producer, entry)
    at = put_varint(out, put_tag(out, at, METADATA.producer_name), producer.name_bytes)
    at = copy(out, at, names, producer.name_at, producer.name_bytes)
    at = put_number(out, at, METADATA.sequence_id, producer.sequence)
    at = put_number(out, at, METADATA.publish_time, publish_ms)
    if batch == 0 and plan.keys > 0:
        at = put_key(out, put_tag(out, at, METADATA.partition_key), _key_of(plan, state.message))
    if body.codec != 0:
        at = put_number(out, at, METADATA.compression, body.codec)
    if body.codec != 0 or batch == 0:
        at = put_number(out, at, METADATA.uncompressed_size, body.uncompressed)
    if batch > 0:
        at = put_number(out, at, METADATA.num_messages_in_batch, batch)
    if batch == 0 and plan.flags & EVENT_TIME:
        at = put_number(out, at, METADATA.event_time, _event_ms(plan, publish_ms, state.message))
    if delayed:
        delay_ms = between(draw(plan.stream, entry, _DELAY), plan.delay_low_ms, plan.delay_high_ms)
        at = put_number(out, at, METADATA.deliver_at_time, publish_ms + delay_ms)
    if batch > 0:
        at = put_number(out, at, METADATA.highest_sequence_id, producer.sequence + batch - 1)
    if batch == 0 and body.codec == 0 and _is_null(plan, state.message):
        at = put_number(out, at, METADATA.null_value, 1)
    return at


@part()
def _put_batched(out, at, plan, message, sequence, publish_ms, pattern):
    """Write one message of a batch: u32 size | SingleMessageMetadata | payload."""
    null = _is_null(plan, message)
    size = 0 if null else _size_of(plan, message)
    start = at + 4
    at = start
    if plan.keys > 0:
        at = put_key(out, put_tag(out, at, SINGLE_METADATA.partition_key), _key_of(plan, message))
    at = put_number(out, at, SINGLE_METADATA.payload_size, size)
    if plan.flags & EVENT_TIME:
        at = put_number(out, at, SINGLE_METADATA.event_time, _event_ms(plan, publish_ms, message))
    at = put_number(out, at, SINGLE_METADATA.sequence_id, sequence)
    if null:
        at = put_number(out, at, SINGLE_METADATA.null_value, 1)
    put_32(out, start - 4, at - start)
    return _put_payload(out, at, plan, message, size, pattern)


@part()
def _put_body(out, at, plan, state, producer, shape, body, tables):
    """Write the entry's own payload: from the pool, as a batch, or one message; return the offset behind it."""
    _, _, _, pool, pattern = tables
    number, batch, _ = shape
    if number >= 0:
        return copy(out, at, pool, body.at, body.bytes)
    if batch == 0:
        return _put_payload(out, at, plan, state.message, body.uncompressed, pattern)
    publish_ms = _publish_ms(plan, producer, state.entry)
    for i in range(batch):
        at = _put_batched(out, at, plan, state.message + i, producer.sequence + i, publish_ms, pattern)
    return at


@part()
def _put_entry(out, at, plan, state, producer, shape, body, given, tables):
    """Write the entry's payload, broker metadata first; return the offset behind it."""
    _, names, _, _, _ = tables
    prefixes, first, last = given
    if plan.flags & BROKER_GIVEN:
        at = copy(out, at, prefixes, first, last - first)
    elif plan.flags & (BROKER_TIME | BROKER_INDEX):
        index = state.index + max(shape[1], 1)
        at = _put_broker_metadata(out, at, plan.flags, broker_ms_of(plan, state.entry), index)
    start = put_magic(out, at, CHECKSUM_MAGIC) + 4
    end = _put_metadata(out, start + 4, plan, state, producer, names, shape, body)
    put_32(out, start, end - start - 4)
    end = _put_body(out, end, plan, state, producer, shape, body, tables)
    put_32(out, at + 2, np.int64(crc32c(out, start, end, START) ^ START))
    return end


@part()
def write_entries(out, at, limits, plans, states, tables, prefixes, positions):
    """Write entries of one ledger from out[at]; return (entries written, offset behind them).

    Ends before entry number ``limits[0]`` of the topic, when ``positions`` is full, when ``limits[1]`` bytes are reached or
    before a record that would pass offset ``limits[2]``, the end of the log. ``positions`` get each record's offset + 4.
    ``tables``: PRODUCER rows, their names, BODY rows, the pool, the pattern; ``prefixes``: broker metadata made elsewhere
    (bytes, offsets from the first entry on).
    """
    plan, state = plans[0], states[0]
    producers, _, bodies, _, _ = tables
    stop, full, end_of_log = limits
    blank = bodies[bodies.shape[0] - 1]
    first = state.entry
    while state.entry < stop and at < full and state.entry - first < positions.shape[0]:
        entry = state.entry
        shape = shape_of(plan, bodies, entry)
        body = bodies[shape[0]] if shape[0] >= 0 else blank
        if shape[0] < 0:
            body.uncompressed = 0 if _is_null(plan, state.message) else _size_of(plan, state.message)
        chosen = between(draw(plan.stream, entry, _PRODUCER), 0, producers.shape[0] - 1)
        producer = producers[chosen]
        given = (prefixes[0], np.int64(0), np.int64(0))
        if plan.flags & BROKER_GIVEN:
            given = (prefixes[0], prefixes[1][entry - first], prefixes[1][entry - first + 1])
        payload = at + 40
        end = _put_entry(out, payload, plan, state, producer, shape, body, given, tables)
        if end > end_of_log:
            break
        put_32(out, at, end - at - 4)
        put_64(out, at + 4, state.ledger_id)
        put_64(out, at + 12, state.entry_id)
        put_64(out, at + 20, (state.entry_id & ~7) - 1)  # a writer keeps several entries under way
        put_64(out, at + 28, state.length + end - payload)
        digest = crc32c(out, payload, end, crc32c(out, at + 4, at + 36, START))
        put_32(out, at + 36, np.int64(digest ^ START))
        positions[entry - first] = at + 4
        messages = max(shape[1], 1)
        state.entry_id += 1
        state.entry += 1
        state.message += messages
        state.length += end - payload
        state.index += messages
        producers[chosen].sequence += messages
        at = end
    return state.entry - first, at


@part()
def count_messages(plans, bodies, first, out):
    """Fill ``out`` with the number of messages of the entries from ``first`` on."""
    for i in range(out.shape[0]):
        out[i] = max(shape_of(plans[0], bodies, first + i)[1], 1)
