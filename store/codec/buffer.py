"""A bounds-checked cursor over bytes: a read returns all requested bytes or raises an error that says how many are
missing.

Integers are big-endian two's complement, as everywhere in BookKeeper and Pulsar, except ``varint`` (protobuf's
little-endian base-128).
"""

import re
import struct
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Protocol, overload

from pulsar_admin.store.errors import StoreError

_U32 = struct.Struct(">I")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_VARINT_MAX_BYTES = 10

_CHUNK_BYTES = 1 << 16

VARINT = rb"(?:\xff{9}\x01|[\x80-\xff]{0,8}[\x00-\x7f])"
"""The pattern of a varint of −1, or of a number that is not negative, which ``number_of`` reads."""
compiled: Callable[[bytes], re.Pattern[bytes]] = cache(re.compile)
"""Compiles a pattern where it is first used: a cold question needs none."""


class Bytes(Protocol):
    """The interface of a memoryview of bytes; the bytes may be read from a file on first access."""

    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, key: int, /) -> int: ...

    @overload
    def __getitem__(self, key: slice, /) -> memoryview: ...


class Reader:
    """Reads a view from its start; raises ``error``, naming ``where`` and the offset, if bytes are missing."""

    __slots__ = ("_error", "_view", "pos", "where")

    def __init__(self, view: bytes | memoryview, where: str, error: type[StoreError]) -> None:
        self._view = memoryview(view)
        self.where = where
        self._error = error
        self.pos = 0

    @property
    def remaining(self) -> int:
        """Bytes not read yet."""
        return len(self._view) - self.pos

    def take(self, n: int) -> memoryview:
        """Return the next ``n`` bytes without copying them; raises if ``n`` is negative or fewer bytes are left."""
        return self._view[self._advance(n) : self.pos]

    def u8(self) -> int:
        """Return one unsigned byte."""
        return self._view[self._advance(1)]

    def u32(self) -> int:
        """Return an unsigned 32-bit integer."""
        return self._integer(_U32)

    def i32(self) -> int:
        """Return a signed 32-bit integer."""
        return self._integer(_I32)

    def i64(self) -> int:
        """Return a signed 64-bit integer."""
        return self._integer(_I64)

    def varint(self) -> int:
        """Return a protobuf varint of at most 64 bits."""
        start = self.pos
        value = 0
        for index in range(_VARINT_MAX_BYTES):
            byte = self.u8()
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                break
        else:
            value = 1 << 64
        if value >> 64:
            raise self._error(
                f"{self.where} @ {start:#x}: varint is longer than 64 bits", where=self.where, offset=start
            )
        return value

    def _integer(self, form: struct.Struct) -> int:
        value: int = form.unpack_from(self._view, self._advance(form.size))[0]
        return value

    def _advance(self, n: int) -> int:
        start = self.pos
        got = len(self._view) - start
        if not 0 <= n <= got:
            raise self._error(
                f"{self.where} @ {start:#x}: wanted {n} bytes, got {got}",
                where=self.where,
                offset=start,
                wanted=n,
                got=got,
            )
        self.pos = start + n
        return start


def run_end(data: Bytes, pos: int, limit: int, byte: int) -> int:
    """Return the position of the first byte from ``pos`` on that differs from ``byte``, at most ``limit``."""
    same = bytes([byte]) * _CHUNK_BYTES
    while pos < limit:
        # Copied chunks compare at memory speed, views byte by byte.
        chunk = bytes(data[pos : min(pos + _CHUNK_BYTES, limit)])
        if chunk != same[: len(chunk)]:
            return pos + len(chunk) - len(chunk.lstrip(same[:1]))
        pos += len(chunk)
    return limit


def written_end(data: Bytes, pos: int, limit: int) -> int:
    """Return the position after the last byte between ``pos`` and ``limit`` that is not zero, ``pos`` if all are zero."""
    zeros = bytes(_CHUNK_BYTES)
    while pos < limit:
        chunk = bytes(data[max(pos, limit - _CHUNK_BYTES) : limit])
        if chunk != zeros[: len(chunk)]:
            return limit - len(chunk) + len(chunk.rstrip(b"\0"))
        limit -= len(chunk)
    return pos


def signed(number: int) -> int:
    """Return an unsigned 64-bit number as Java's signed one."""
    return number - 2**64 if number >= 2**63 else number


def encode_varint(value: int) -> bytes:
    """Return a non-negative number as a varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@lru_cache(maxsize=1 << 14)  # most numbers are small, or those of the node before
def number_of(varint: bytes) -> int:
    """Return the number in a varint that ``VARINT`` matched."""
    number = 0
    for byte in reversed(varint):
        number = number << 7 | byte & 0x7F
    return number if number < 2**63 else -1
