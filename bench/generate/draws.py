"""Deterministic draws: every random choice of a generated cluster is a hash of where it is needed.

``mix`` is the finalizer of splitmix64. A stream is a 64-bit seed; a draw is ``mix(stream + number × STEP + lane × LANE_STEP)``
modulo 2⁶⁴, so that nothing depends on the order in which entries are written. The kernel computes the same draws.
"""

from __future__ import annotations

from typing import Final

STEP: Final = 0x9E3779B97F4A7C15
LANE_STEP: Final = 0xD1342543DE82EF95
MASK: Final = 2**64 - 1

# Lanes of an entry.
PRODUCER, BATCH, CODEC, DELAYED, DELAY, LATENCY, JUMP, VARIANT = range(8)
# Lanes of a message; ``number`` is the message's number in its topic.
SIZE, KEY, PAYLOAD, NULL, EVENT = range(16, 21)
# Lanes of a subscription; ``number`` counts its ranges.
GAP, RUN = 32, 33

LATENCY_LIMIT_MS: Final = 6
JUMP_ENTRIES: Final = 64
"""A jumping clock holds still for this many entries of the topic."""
EVENT_LIMIT_MS: Final = 60_000
PERMYRIAD: Final = 10_000
"""Shares are drawn in hundredths of a percent."""


def mix(value: int) -> int:
    """Return splitmix64's finalizer of ``value`` modulo 2⁶⁴."""
    value &= MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK
    return value ^ value >> 31


def stream(seed: int, number: int) -> int:
    """Return the ``number``-th stream below ``seed``."""
    return mix(mix(seed) + (number + 1) * STEP)


def draw(stream_seed: int, number: int, lane: int) -> int:
    """Return 64 bits for ``number`` and ``lane`` of a stream."""
    return mix(stream_seed + number * STEP + lane * LANE_STEP)


def between(bits: int, low: int, high: int) -> int:
    """Return a number from ``low`` to ``high``, both included, out of 64 ``bits``; the range has at most 2³² numbers."""
    return low + ((bits >> 32) * (high - low + 1) >> 32)


def log_between(bits: int, low: int, high: int) -> int:
    """Return a number from ``low`` to ``high``: first a doubling (each as likely as any other), then a number within it."""
    first, last = low.bit_length(), high.bit_length()
    octave = between(mix(bits), first, last)
    return between(bits, max(low, 1 << octave >> 1), min(high, (1 << octave) - 1))
