"""Redelivery times in buckets: what a precision in bits means. Imports nothing heavy."""

from __future__ import annotations

from pulsar_admin.store.db.nacks import MAX_PRECISION_BITS
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.names import LONG_MAX

DEFAULT_PRECISION_BITS = 8
"""Upstream's ``negativeAckPrecisionBitCnt``: buckets of 256 ms, at most 255 ms early."""

MIN_NACK_DELAY_MS = 100
"""Upstream's floor for the configured delay (not for a backoff's), so that nacks of one batch go together."""


def trim_lower_bits(time_ms: int, precision_bits: int) -> int:
    """Return the bucket of TIME_MS (upstream ``trimLowerBit``)."""
    return time_ms & (-1 << precision_bits)


def check_precision_bits(bits: int) -> int:
    """Return BITS; raises InvalidValue when they are not 0 (exact) to 62."""
    if not isinstance(bits, int) or isinstance(bits, bool) or not 0 <= bits <= MAX_PRECISION_BITS:
        raise InvalidValue(
            f"{bits} precision bits",
            hint=f"negativeAckPrecisionBitCnt is a whole number from 0 (exact) to {MAX_PRECISION_BITS}",
            value=bits,
        )
    return bits


def check_delay(delay_ms: int) -> int:
    """Return DELAY_MS; raises InvalidValue when it is not an integer, negative or beyond 64 bits."""
    if not isinstance(delay_ms, int) or isinstance(delay_ms, bool) or not 0 <= delay_ms <= LONG_MAX:
        raise InvalidValue(
            f"delay of {delay_ms} ms",
            hint="a delay is a whole number of milliseconds from 0 to 2^63 - 1",
            value=delay_ms,
        )
    return delay_ms


def due_time(delay_ms: int, now_ms: int) -> int:
    """Return when a nack at NOW_MS is due; raises InvalidValue for a negative number or a time beyond 64 bits."""
    check_delay(delay_ms)
    if not 0 <= now_ms <= LONG_MAX - delay_ms:
        raise InvalidValue(
            f"{now_ms} ms and a delay of {delay_ms} ms: beyond 64 bits",
            hint="times are epoch milliseconds, 0 to 2^63 - 1",
            value=now_ms,
        )
    return now_ms + delay_ms
