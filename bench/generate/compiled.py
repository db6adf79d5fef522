"""Draws and byte writing for the kernel, compiled by numba: the same draws as ``bench.generate.draws``."""

from __future__ import annotations

import numpy as np

from bench.generate import draws
from pulsar_admin.store.kernels.compiled import part

_STEP = np.uint64(draws.STEP)
_LANE_STEP = np.uint64(draws.LANE_STEP)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)


@part(inline="always")
def mix(value):
    """Return splitmix64's finalizer of ``value``."""
    value = (value ^ (value >> _S30)) * _M1
    value = (value ^ (value >> _S27)) * _M2
    return value ^ (value >> _S31)


@part(inline="always")
def draw(stream, number, lane):
    """Return 64 bits for ``number`` and ``lane`` of a stream."""
    return mix(stream + np.uint64(number) * _STEP + np.uint64(lane) * _LANE_STEP)


@part(inline="always")
def between(bits, low, high):
    """Return a number from ``low`` to ``high`` out of 64 ``bits``."""
    return low + np.int64(((bits >> _S32) * np.uint64(high - low + 1)) >> _S32)


@part()
def _bit_length(value):
    length = 0
    while value > 0:
        value >>= 1
        length += 1
    return length


@part()
def log_between(bits, low, high):
    """Return a number from ``low`` to ``high``, every doubling equally likely."""
    octave = between(mix(bits), _bit_length(low), _bit_length(high))
    return between(bits, max(low, (1 << octave) >> 1), min(high, (1 << octave) - 1))


@part()
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
