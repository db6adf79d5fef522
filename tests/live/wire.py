"""A producer that chooses its publish times: single frames of Pulsar's binary protocol, written by hand.

The real clients stamp their own clock, so a topic whose clocks disagree needs either a faked clock per process or the
frames themselves. The encoder here is independent of the toolkit's on purpose. Upstream: ``PulsarApi.proto`` and
``Commands.serializeCommandSendWithSize`` of Pulsar 4.0.
"""

import socket
import struct

import google_crc32c
from msgspec import Struct

_MAGIC_CRC32C = 0x0E01
_CONNECT, _CONNECTED, _PRODUCER, _SEND, _SEND_RECEIPT, _PRODUCER_SUCCESS, _PING, _PONG = 2, 3, 5, 6, 7, 17, 18, 19
_PROTOCOL_VERSION = 19


class Stamped(Struct, frozen=True):
    """One entry to send: its publish time in ms and its payloads; more than one payload makes a batch.

    ``sequence_id``: of its first message, None for the next one; ``replicated_from``: the cluster that a replicator brings it from.
    """

    publish_time_ms: int
    payloads: tuple[bytes, ...]
    batched: bool
    sequence_id: int | None = None
    replicated_from: str = ""


class StampingProducer:
    """One producer on one topic, one entry under way at a time; ``close`` it."""

    def __init__(self, port: int, topic: str, name: str) -> None:
        self._name = name
        self._sequence = 0
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._stream = self._socket.makefile("rb")
        self._ask(_CONNECT, 2, _text(1, "stamping-producer") + _number(4, _PROTOCOL_VERSION), _CONNECTED)
        producer = _text(1, f"persistent://{topic}") + _number(2, 1) + _number(3, 1) + _text(4, name)
        self._ask(_PRODUCER, 5, producer, _PRODUCER_SUCCESS)

    def close(self) -> None:
        """End the connection, and the producer with it."""
        self._stream.close()
        self._socket.close()

    def send(self, message: Stamped) -> tuple[int, int]:
        """Publish one entry; the ledger and entry where the broker put it."""
        self._sequence = self._sequence + 1 if message.sequence_id is None else message.sequence_id
        metadata = _text(1, self._name) + _number(2, self._sequence) + _number(3, message.publish_time_ms)
        if message.replicated_from:
            metadata += _text(5, message.replicated_from)
        payload = message.payloads[0]
        if message.batched:
            metadata += _number(11, len(message.payloads))
            payload = b"".join(_single(part) for part in message.payloads)
        body = struct.pack(">I", len(metadata)) + metadata + payload
        sealed = struct.pack(">HI", _MAGIC_CRC32C, google_crc32c.value(body)) + body
        send = _number(1, 1) + _number(2, self._sequence) + _number(3, len(message.payloads))
        receipt = _fields(self._ask(_SEND, 6, send, _SEND_RECEIPT, sealed), 7)
        position = _fields(receipt, 3)
        return _integer(position, 1), _integer(position, 2)

    def _ask(self, kind: int, field: int, command: bytes, expected: int, body: bytes = b"") -> bytes:
        self._write(kind, field, command, body)
        while True:
            answer = self._read()
            answered = _integer(answer, 1)
            if answered == _PING:
                self._write(_PONG, 19, b"")
            else:
                assert answered == expected, f"the broker answered command {kind} with {answered}: {answer!r}"
                return answer

    def _write(self, kind: int, field: int, command: bytes, body: bytes = b"") -> None:
        base = _number(1, kind) + _bytes(field, command)
        self._socket.sendall(struct.pack(">II", 4 + len(base) + len(body), len(base)) + base + body)

    def _read(self) -> bytes:
        total, size = struct.unpack(">II", self._stream.read(8))
        base, _ = self._stream.read(size), self._stream.read(total - 4 - size)
        return base


def _single(payload: bytes) -> bytes:
    """One message of a batch: size, SingleMessageMetadata with only ``payload_size``, payload."""
    metadata = _number(3, len(payload))
    return struct.pack(">I", len(metadata)) + metadata + payload


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _parse(message: bytes) -> dict[int, int | bytes]:
    """Field number to varint or bytes; the last one wins. The broker's answers used here hold no other wire types."""
    found: dict[int, int | bytes] = {}
    offset = 0

    def take() -> int:
        nonlocal offset
        value = shift = 0
        while True:
            byte = message[offset]
            offset += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while offset < len(message):
        tag = take()
        value = take()
        if tag & 7 == 2:
            found[tag >> 3] = message[offset : offset + value]
            offset += value
        else:
            assert tag & 7 == 0, f"wire type {tag & 7}"
            found[tag >> 3] = value
    return found


def _fields(message: bytes, field: int) -> bytes:
    value = _parse(message)[field]
    assert isinstance(value, bytes)
    return value


def _integer(message: bytes, field: int) -> int:
    value = _parse(message)[field]
    assert isinstance(value, int)
    return value
