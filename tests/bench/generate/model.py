"""What a plan means, worked out a second time in plain Python from docs/howto/generate.md, without the generator's code."""

from collections.abc import Iterator

from msgspec import Struct

from bench.generate.spec import ClusterSpec, Span, TopicSpec
from pulsar_admin.store.codec import compression

ALL = 2**64 - 1


class Row(Struct, frozen=True):
    """One message as a consumer sees it."""

    ledger_id: int
    entry_id: int
    batch_index: int
    batch_size: int
    publish_ms: int
    broker_ms: int | None
    index: int | None
    event_ms: int
    deliver_at_ms: int
    key: str | None
    producer: str
    sequence_id: int
    null_value: bool
    codec: int
    payload: bytes


def mix(value: int) -> int:
    value &= ALL
    value ^= value >> 30
    value = value * 0xBF58476D1CE4E5B9 & ALL
    value ^= value >> 27
    value = value * 0x94D049BB133111EB & ALL
    return value ^ value >> 31


def stream(seed: int, number: int) -> int:
    return mix(mix(seed) + (number + 1) * 0x9E3779B97F4A7C15)


def draw(source: int, number: int, lane: int) -> int:
    return mix(source + number * 0x9E3779B97F4A7C15 + lane * 0xD1342543DE82EF95)


def pick(bits: int, low: int, high: int) -> int:
    return low + ((bits >> 32) * (high - low + 1) >> 32)


def pick_span(bits: int, span: Span) -> int:
    if not span.by_doubling:
        return pick(bits, span.low, span.high)
    octave = pick(mix(bits), len(f"{span.low:b}".lstrip("0")), len(f"{span.high:b}".lstrip("0")))
    first = 2 ** (octave - 1) if octave else 0
    return pick(bits, max(span.low, first), min(span.high, 2**octave - 1))


def pattern(seed: int) -> bytes:
    return b"".join(draw(stream(seed, -1), number, 18).to_bytes(8, "big") for number in range(8192))


def ledgers_of(spec: ClusterSpec) -> dict[int, list[int]]:
    """Topic number → its ledger ids: ids are given out in the order of the first entries' times, topics in turn."""
    begun = [
        (topic.start_ms + first * period_us(topic) // 1000, number, first)
        for number, topic in enumerate(spec.topics)
        for first in range(0, topic.entries, spec.entries_per_ledger)
    ]
    found: dict[int, list[int]] = {number: [] for number in range(len(spec.topics))}
    for ledger_id, (_, number, _) in enumerate(sorted(begun), 1):
        found[number].append(ledger_id)
    for number, ids in found.items():
        if not ids:
            found[number] = [1 + sum(len(other) for other in found.values())]
    return found


def period_us(topic: TopicSpec) -> int:
    return max(round(1_000_000 / topic.rate), 1)


def rows_of(spec: ClusterSpec, number: int, *, time: bool, index: bool) -> Iterator[Row]:
    """Yield the messages of topic NUMBER; TIME and INDEX: which broker metadata its entries have."""
    topic, ids = spec.topics[number], ledgers_of(spec)[number]
    names = [f"{topic.clocks[n % len(topic.clocks)].name}-{n}" for n in range(topic.producers)]
    sequences = [0] * topic.producers
    bytes_of = pattern(spec.seed)
    entries, messages = stream(spec.seed, 2 * number), stream(spec.seed, 2 * number + 1)
    told = 0
    for entry in range(topic.entries):
        who = pick(draw(entries, entry, 0), 0, topic.producers - 1)
        broker_ms = topic.start_ms + entry * period_us(topic) // 1000
        clock = topic.clocks[who % len(topic.clocks)]
        publish_ms = broker_ms - pick(draw(entries, entry, 5), 0, 5) + clock.skew_ms
        if clock.jump_ms:
            publish_ms += pick(draw(entries, entry // 64, 6), -clock.jump_ms, clock.jump_ms)
        deliver_at_ms = 0
        parts = list(_messages(spec.seed, topic, (entries, messages), entry, told, bytes_of))
        if topic.delayed and pick(draw(entries, entry, 3), 0, 9999) < topic.delayed:
            deliver_at_ms = publish_ms + pick(draw(entries, entry, 4), topic.delay_ms.low, topic.delay_ms.high)
        first = told
        size = len(parts) if parts[0][0] else 0
        told += len(parts)
        for i, (_, codec, key, null, payload) in enumerate(parts):
            # Entries that share a compressed batch share what is inside it.
            has_event_time = topic.event_time and not (size and codec)
            yield Row(
                ids[entry // spec.entries_per_ledger],
                entry % spec.entries_per_ledger,
                i if size else -1,
                size,
                publish_ms,
                broker_ms if time else None,
                first + i if index else None,
                publish_ms - pick(draw(messages, first + i, 20), 0, 59_999) if has_event_time else 0,
                deliver_at_ms,
                key,
                names[who],
                sequences[who] + (i if codec == 0 else 0),
                null,
                codec,
                payload,
            )
        sequences[who] += len(parts)


Part = tuple[bool, int, str | None, bool, bytes]  # whether of a batch, codec, key, null value, payload


def _messages(
    seed: int, topic: TopicSpec, sources: tuple[int, int], entry: int, first: int, bytes_of: bytes
) -> Iterator[Part]:
    entries, messages = sources
    is_delayed = bool(topic.delayed) and pick(draw(entries, entry, 3), 0, 9999) < topic.delayed
    if topic.codecs and not is_delayed:
        codec = topic.codecs[pick(draw(entries, entry, 2), 0, len(topic.codecs) - 1)]
        if codec != compression.NONE:
            yield from _pooled(seed, topic, codec, pick(draw(entries, entry, 7), 0, 31), (messages, first))
            return
    is_batch = topic.batch is not None and not is_delayed
    count = pick(draw(entries, entry, 1), topic.batch.low, topic.batch.high) if is_batch and topic.batch else 1
    for message in range(first, first + count):
        null = bool(topic.nulls) and pick(draw(messages, message, 19), 0, 9999) < topic.nulls
        key = f"key-{pick(draw(messages, message, 17), 0, topic.keys - 1)}" if topic.keys else None
        size = 0 if null else pick_span(draw(messages, message, 16), topic.size)
        bits = draw(messages, message, 18)
        head = bits.to_bytes(8, "big") if size >= 8 else b""
        start = bits % 65536
        body = (bytes_of[start:] + bytes_of * (size // 65536 + 1))[: size - len(head)]
        yield is_batch, compression.NONE, key, null, head + body


def _pooled(seed: int, topic: TopicSpec, codec: int, variant: int, message: tuple[int, int]) -> Iterator[Part]:
    source = mix(stream(seed, -2 - codec) + variant)
    count = pick(draw(source, 0, 1), topic.batch.low, topic.batch.high) if topic.batch else 1
    for number in range(count):
        size = pick_span(draw(source, number, 16), topic.size)
        key = None
        if topic.keys:
            bits = draw(source, number, 17) if topic.batch else draw(message[0], message[1], 17)
            key = f"key-{pick(bits, 0, topic.keys - 1)}"
        yield topic.batch is not None, codec, key, False, _text(draw(source, number, 18), size)


def _text(bits: int, size: int) -> bytes:
    text = b""
    while len(text) < size:
        bits = mix(bits + 0x9E3779B97F4A7C15)
        text += b'{"device":"sensor-%04d","temperature":%d.%d,"ok":true},' % (
            bits % 10_000,
            bits >> 20 & 63,
            bits >> 40 & 7,
        )
    return text[:size]
