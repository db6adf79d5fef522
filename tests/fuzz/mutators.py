"""Mutations that know how bytes are laid out: protobuf fields, length prefixes, varints, JSON; and checksums made right again.

Without the last, nothing that is changed reaches what lies behind a checksum.
"""

import json
import random
import struct
import zlib
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

import google_crc32c

from pulsar_admin.store.errors import MetadataCorrupt

Mutate = Callable[[bytes, random.Random, Sequence[bytes]], bytes]
Seal = Callable[[bytes], bytes]

_NUMBERS = [0, 1, 2, 3, 7, 8, 16, 31, 32, 35, 36, 127, 128, 255, 256, 1023, 1024, 4095, 4096, 65535, 65536, 1 << 20]
NUMBERS = sorted(
    {
        *_NUMBERS,
        *(-x for x in _NUMBERS),
        *((1 << b) + d for b in (15, 16, 24, 28, 31, 32, 47, 48, 63) for d in (-1, 0)),
        -(1 << 63),
    }
)
TEXTS = [
    "",
    "a",
    "\0",
    "²",
    "٣",
    "\ud800",
    "é",
    "public/default/t",
    "persistent://a/b/c",
    "1:2",
    "-1",
    "1e999",
    "9" * 40,
    "x" * 300,
    "\u202e\n",
]
VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1.5,
    10**30,
    2**63,
    -(2**63) - 1,
    float("inf"),
    float("nan"),
    [],
    {},
    [[]],
    {"": {}},
]


def any_bytes(data: bytes, source: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Flip, cut, double, overwrite or mix parts of DATA."""
    out = bytearray(data)
    for _ in range(1 << source.randrange(4)):
        at = source.randrange(len(out) + 1)
        end = min(len(out), at + (1 << source.randrange(8)))
        kind = source.randrange(10)
        if kind <= 1 and at < len(out):
            out[at] ^= 1 << source.randrange(8)
        elif kind == 2 and at < len(out):
            out[at] = source.randrange(256)
        elif kind == 3:
            del out[at:end]
        elif kind == 4:
            out[at:at] = out[at:end] * source.choice([1, 1, 2, 3, 3, 2000])
        elif kind == 5:
            del out[at:]
        elif kind == 6:
            other = source.choice(corpus) if corpus else data
            begin = source.randrange(len(other) + 1)
            out[at:end] = other[begin : begin + (1 << source.randrange(9))]
        elif kind == 7:
            out[at:end] = bytes([source.choice([0, 0xFF, 0xF0, source.randrange(256)])]) * (end - at)
        else:
            _put_number(out, at, source)
    return bytes(out)


def _put_number(out: bytearray, at: int, source: random.Random) -> None:
    number = source.choice([*NUMBERS, len(out), len(out) - at, len(out) - at - 4, len(out) - at - 8])
    if source.randrange(4) == 0:
        raw = varint(number)
    else:
        size = source.choice([1, 2, 4, 4, 8])
        raw = (number % (1 << 8 * size)).to_bytes(size, source.choice(["big", "big", "little"]))
    out[at : at + (len(raw) if source.randrange(4) else 0)] = raw


def varint(number: int) -> bytes:
    """Return the low 64 bits of NUMBER as protobuf writes them."""
    number %= 1 << 64
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80 or shift > 63:
            return value, at
        shift += 7


Field = tuple[int, int, Any]  # Any: number, wire type, and an int, bytes or the fields inside


def _fields(data: bytes, depth: int = 0) -> list[Field] | None:
    """Return the protobuf fields of DATA, None when it is none."""
    found: list[Field] = []
    at = 0
    try:
        while at < len(data):
            tag, at = _read_varint(data, at)
            number, wire = tag >> 3, tag & 7
            size = {1: 8, 5: 4}.get(wire)
            if wire == 0:
                value, at = _read_varint(data, at)
                found.append((number, wire, value))
                continue
            if wire == 2:
                size, at = _read_varint(data, at)
            if size is None or not number or size > len(data) - at:
                return None
            part = data[at : at + size]
            inner = _fields(part, depth + 1) if wire == 2 and part and depth < 6 else None
            found.append((number, wire, inner if inner else part))
            at += size
    except IndexError:
        return None
    return found


def _bytes_of(fields: list[Field]) -> bytes:
    parts = []
    for number, wire, value in fields:
        raw = varint(value) if wire == 0 else _bytes_of(value) if isinstance(value, list) else value
        parts += [varint(number << 3 | wire), varint(len(raw)) if wire == 2 else b"", raw]
    return b"".join(parts)


def protobuf(data: bytes, source: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Drop, double, move or change fields of a message, at any depth; the lengths around them stay right."""
    fields = _fields(data)
    if not fields or source.randrange(4) == 0:
        return any_bytes(data, source, corpus)
    for _ in range(source.randrange(1, 4)):
        _change_field(fields, source, corpus)
    return _bytes_of(fields)


def _change_field(fields: list[Field], source: random.Random, corpus: Sequence[bytes]) -> None:
    while True:
        at = source.randrange(len(fields))
        number, wire, value = fields[at]
        if not isinstance(value, list) or source.randrange(3) == 0:
            break
        fields = value
    kind = source.randrange(7)
    if kind == 0 and len(fields) > 1:
        del fields[at]
    elif kind == 1:
        fields[at:at] = [fields[at]] * source.choice([1, 1, 2, 50])
    elif kind == 2:
        fields[at] = (source.choice([*range(1, 40), number]), wire, value)
    elif kind == 3:
        fields.append(fields.pop(at))
    elif wire == 0:
        fields[at] = (number, 0, source.choice(NUMBERS) if kind < 6 else value + source.choice([-1, 1]))
    elif wire == 2:
        raw = _bytes_of(value) if isinstance(value, list) else value
        fields[at] = (number, 2, any_bytes(raw, source, corpus))
    else:
        fields[at] = (number, wire, source.randbytes(len(value)))


def json_text(data: bytes, source: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Change a value anywhere in JSON, or its bytes."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return any_bytes(data, source, corpus)
    if source.randrange(4) == 0:
        return any_bytes(data, source, corpus)
    root = holder = [found]
    key: Any = 0
    while isinstance(holder[key], (dict, list)) and holder[key] and source.randrange(6):
        holder = holder[key]
        key = source.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    kind = source.randrange(8)
    if kind == 0 and isinstance(holder, dict):
        del holder[key]
    elif kind == 1:
        holder[key] = [holder[key]] * source.choice([0, 1, 2, 20])
    elif kind == 2:
        holder[key] = {source.choice(TEXTS): holder[key]}
    elif kind == 3:
        holder[key] = source.choice(TEXTS)
    elif kind == 4:
        holder[key] = source.choice(NUMBERS)
    elif kind == 5 and isinstance(holder, dict):
        holder[source.choice(list(holder))] = holder[key]
    else:
        holder[key] = source.choice(VALUES)
    return json.dumps(root[0]).encode()


def json_lines(data: bytes, source: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Change one line of JSON lines, or their order."""
    lines = data.split(b"\n")
    at = source.randrange(len(lines))
    kind = source.randrange(8)
    if kind == 0:
        lines.insert(at, lines[source.randrange(len(lines))])
    elif kind == 1:
        del lines[at]
    else:
        lines[at] = json_text(lines[at], source, corpus)
    return b"\n".join(lines)


# -- checksums --------------------------------------------------------------------------------------------------------


def unsealed(data: bytes) -> bytes:
    return data


def seal_entry(body: bytes) -> bytes:
    """Return an entry's BODY with the digest it has the place for: CRC-32 where its upper half is zero, else CRC-32C."""
    if len(body) >= 40 and body[32:36] == bytes(4):
        return body[:36] + zlib.crc32(body[40:], zlib.crc32(body[:32])).to_bytes(4, "big") + body[40:]
    if len(body) < 36:
        return body
    crc = google_crc32c.extend(google_crc32c.value(body[:32]), body[36:])
    return body[:32] + int(crc).to_bytes(4, "big") + body[36:]


def _seal_records(data: bytes, at: int, paddings: bool) -> bytes:
    out = bytearray(data)
    while at + 36 <= len(out):
        size = int.from_bytes(out[at : at + 4], "big", signed=True)
        if paddings and size == -0x100:
            at += 8 + max(int.from_bytes(out[at + 4 : at + 8], "big", signed=True), 0)
            continue
        if not 32 <= size <= len(out) - at - 4:
            at += 1 if out[at] else 4
            continue
        out[at + 4 : at + 4 + size] = seal_entry(bytes(out[at + 4 : at + 4 + size]))
        at += 4 + size
    return bytes(out)


def seal_log(data: bytes) -> bytes:
    """Return an entry log with the digests of its records made right."""
    return _seal_records(data, 1024, False)


def seal_journal(data: bytes) -> bytes:
    """Return a journal with the digests of its entries made right."""
    return _seal_records(data, 512, True)


def seal_message(data: bytes) -> bytes:
    """Return a message's entry with its CRC-32C made right; broker entry metadata may stand before it."""
    start = 0
    if data[:2] == b"\x0e\x02" and len(data) >= 6:
        start = 6 + int.from_bytes(data[2:6], "big")
    if data[start : start + 2] != b"\x0e\x01":
        return data
    rest = data[start + 6 :]
    return data[: start + 2] + google_crc32c.value(rest).to_bytes(4, "big") + rest


def seal_zookeeper_log(data: bytes) -> bytes:
    """Return a transaction log with the Adler-32 of its records made right."""
    out = bytearray(data)
    at = 16
    while at + 12 < len(out):
        size = int.from_bytes(out[at + 8 : at + 12], "big", signed=True)
        if not 0 < size < len(out) - at - 12:
            break
        out[at : at + 8] = zlib.adler32(out[at + 12 : at + 12 + size]).to_bytes(8, "big")
        out[at + 12 + size] = 0x42
        at += 13 + size
    return bytes(out)


def seal_zookeeper_snapshot(data: bytes) -> bytes:
    """Return a snapshot with its seals made right: the decoder says where they are and what they ought to be."""
    from pulsar_admin.store.codec.zookeeper import decode_snapshot

    for _ in range(3):
        try:
            decode_snapshot(BytesIO(data), "")
        except MetadataCorrupt as error:
            at, expected = error.context.get("offset"), error.context.get("expected")
            if not isinstance(at, int) or not isinstance(expected, str) or "seal" not in error.message:
                return data
            data = data[:at] + bytes.fromhex(expected) + data[at + len(expected) // 2 :]
        else:
            return data
    return data


def seal_delayed_index(data: bytes) -> bytes:
    return data[:-4] + struct.pack("<I", google_crc32c.value(data[:-4])) if len(data) > 4 else data


def seal_nacks(data: bytes) -> bytes:
    """Return a serialized tracker with both checksums made right."""
    from pulsar_admin.store.nacks.segments import HEADER_SIZE_BYTES

    if len(data) < HEADER_SIZE_BYTES:
        return data
    header = data[: HEADER_SIZE_BYTES - 8] + struct.pack("<I", google_crc32c.value(data[HEADER_SIZE_BYTES:]))
    return header + struct.pack("<I", google_crc32c.value(header)) + data[HEADER_SIZE_BYTES:]


def seal_nack_row(data: bytes) -> bytes:
    """Return (key length, key, row) with the row's checksum made right."""
    key, row = split(data)
    if len(row) < 16:
        return data
    plain = row[:4] + bytes(4) + row[8:]
    return join(key, row[:4] + struct.pack("<I", google_crc32c.value(key + plain)) + row[8:])


# -- several inputs in one --------------------------------------------------------------------------------------------


def split(data: bytes) -> tuple[bytes, bytes]:
    """Return the two parts of ``u16 n | n bytes | rest``."""
    size = int.from_bytes(data[:2], "big")
    return data[2 : 2 + size], data[2 + size :]


def join(first: bytes, second: bytes) -> bytes:
    return len(first).to_bytes(2, "big") + first + second


def parts(data: bytes) -> list[bytes]:
    """Return the parts of ``(u16 n | n bytes)*``."""
    found = []
    while data:
        part, data = split(data)
        found.append(part)
    return found


def two(first: Mutate, second: Mutate) -> Mutate:
    """Return what mutates one of the two parts of ``join``."""

    def mutate(data: bytes, source: random.Random, corpus: Sequence[bytes]) -> bytes:
        left, right = split(data)
        if source.randrange(2):
            return join(first(left, source, [split(other)[0] for other in corpus[:8]])[:65535], right)
        return join(left, second(right, source, [split(other)[1] for other in corpus[:8]]))

    return mutate


def headed(size: int, rest: Mutate) -> Mutate:
    """Return what mutates the bytes behind SIZE bytes of parameters, and these seldom."""

    def mutate(data: bytes, source: random.Random, corpus: Sequence[bytes]) -> bytes:
        if source.randrange(4) == 0:
            return source.randbytes(size) + data[size:]
        return data[:size] + rest(data[size:], source, [other[size:] for other in corpus[:8]])

    return mutate
