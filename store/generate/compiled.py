"""Draws and byte writing for the kernel, compiled by numba: the same draws as ``store.generate.draws``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from store.generate import draws

_STEP = np.uint64(draws.STEP)
_LANE_STEP = np.uint64(draws.LANE_STEP)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)


@njit(cache=True, inline="always", boundscheck=False)
def mix(value):
    """Return splitmix64's finalizer of VALUE."""
    value = (value ^ (value >> _S30)) * _M1
    value = (value ^ (value >> _S27)) * _M2
    return value ^ (value >> _S31)


@njit(cache=True, inline="always", boundscheck=False)
def draw(stream, number, lane):
    """Return 64 bits for NUMBER and LANE of a stream."""
    return mix(stream + np.uint64(number) * _STEP + np.uint64(lane) * _LANE_STEP)


@njit(cache=True, inline="always", boundscheck=False)
def between(bits, low, high):
    """Return a number from LOW to HIGH out of 64 BITS."""
    return low + np.int64(((bits >> _S32) * np.uint64(high - low + 1)) >> _S32)


@njit(cache=True, boundscheck=False)
def _bit_length(value):
    length = 0
    while value > 0:
        value >>= 1
        length += 1
    return length


@njit(cache=True, boundscheck=False)
def log_between(bits, low, high):
    """Return a number from LOW to HIGH, every doubling equally likely."""
    octave = between(mix(bits), _bit_length(low), _bit_length(high))
    return between(bits, max(low, (1 << octave) >> 1), min(high, (1 << octave) - 1))


@njit(cache=True, inline="always", boundscheck=False)
def put_32(out, at, value):
    """Write four big-endian bytes."""
    out[at] = (value >> 24) & 0xFF
    out[at + 1] = (value >> 16) & 0xFF
    out[at + 2] = (value >> 8) & 0xFF
    out[at + 3] = value & 0xFF


@njit(cache=True, inline="always", boundscheck=False)
def put_64(out, at, value):
    """Write eight big-endian bytes."""
    put_32(out, at, value >> 32)
    put_32(out, at + 4, value)


@njit(cache=True, inline="always", boundscheck=False)
def put_varint(out, at, value):
    """Write a protobuf varint; return the offset behind it."""
    rest = np.uint64(value)
    while rest >= np.uint64(0x80):
        out[at] = np.uint8(rest & np.uint64(0x7F)) | np.uint8(0x80)
        at += 1
        rest >>= np.uint64(7)
    out[at] = np.uint8(rest)
    return at + 1


@intrinsic
def _move(typingctx: Any, out: Any, at: Any, source: Any, start: Any, count: Any) -> Any:  # Any: numba's typing objects
    """memcpy: a loop over bytes is compiled to a loop over bytes, as the arrays might overlap."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        origin = context.make_array(signature.args[2])(context, builder, arguments[2]).data
        cgutils.raw_memcpy(
            builder, builder.gep(to, [arguments[1]]), builder.gep(origin, [arguments[3]]), arguments[4], 1
        )
        return context.get_dummy_value()

    return types.void(out, types.int64, source, types.int64, types.int64), codegen


@njit(cache=True, inline="always", boundscheck=False)
def copy(out, at, source, start, count):
    """Copy COUNT bytes; return the offset behind them."""
    _move(out, at, source, start, count)
    return at + count


@njit(cache=True, boundscheck=False)
def put_key(out, at, number):
    """Write ``key-<number>`` in front of which its length stands as a byte."""
    digits = 1
    rest = number
    while rest >= 10:
        rest //= 10
        digits += 1
    out[at] = 4 + digits
    out[at + 1], out[at + 2], out[at + 3], out[at + 4] = 0x6B, 0x65, 0x79, 0x2D
    end = at + 5 + digits
    place = end
    while place > at + 5:
        place -= 1
        out[place] = 0x30 + number % 10
        number //= 10
    return end
