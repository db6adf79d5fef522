"""Compressed entry payloads are not made one by one: entries share a small pool of bodies, compressed once.

Each body is what a client would send (JSON-like text, as one message or as a batch), so every entry still decompresses to
real messages; only sequence ids inside batches are left out, as entries that share a body have different ones.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from bench.generate import draws
from bench.generate.spec import Span
from pulsar_admin.store.codec import compression
from pulsar_admin.store.proto import pulsar_api_pb2

VARIANTS = 32
_SIZE = struct.Struct(">I")
_Body = tuple[bytes, int, int, int]  # stored bytes, uncompressed size, messages (0: no batch), codec


def bodies_of(seed: int, codecs: tuple[int, ...], size: Span, batch: Span | None, keys: int) -> tuple[_Body, ...]:
    """Return VARIANTS bodies of each of ``codecs``, one after the other; those of codec NONE are blank: the kernel makes them."""
    return tuple(body for codec in codecs for body in _bodies(seed, codec, size, batch, keys))


@lru_cache(maxsize=256)
def _bodies(seed: int, codec: int, size: Span, batch: Span | None, keys: int) -> tuple[_Body, ...]:
    if codec == compression.NONE:
        return ((b"", 0, 0, compression.NONE),) * VARIANTS
    source = draws.stream(seed, -2 - codec)
    return tuple(_body(draws.mix(source + variant), codec, size, batch, keys) for variant in range(VARIANTS))


def _body(source: int, codec: int, size: Span, batch: Span | None, keys: int) -> _Body:
    count = batch.pick(draws.draw(source, 0, draws.BATCH)) if batch else 0
    parts: list[bytes] = []
    for number in range(max(count, 1)):
        payload = text_payload(
            draws.draw(source, number, draws.PAYLOAD), size.pick(draws.draw(source, number, draws.SIZE))
        )
        if batch:
            parts.append(
                _single(payload, draws.between(draws.draw(source, number, draws.KEY), 0, keys - 1) if keys else None)
            )
        parts.append(payload)
    plain = b"".join(parts)
    return compression.compress(codec, plain), len(plain), count, codec


def _single(payload: bytes, key: int | None) -> bytes:
    metadata = pulsar_api_pb2.SingleMessageMetadata(payload_size=len(payload))
    if key is not None:
        metadata.partition_key = f"key-{key}"
    header = metadata.SerializeToString()
    return _SIZE.pack(len(header)) + header


def text_payload(bits: int, size_bytes: int) -> bytes:
    """Return ``size_bytes`` of JSON-like text with about as much redundancy as telemetry has."""
    parts: list[bytes] = []
    length = 0
    while length < size_bytes:
        bits = draws.mix(bits + draws.STEP)
        part = b'{"device":"sensor-%04d","temperature":%d.%d,"ok":true},' % (
            bits % 10_000,
            bits >> 20 & 63,
            bits >> 40 & 7,
        )
        parts.append(part)
        length += len(part)
    return b"".join(parts)[:size_bytes]
