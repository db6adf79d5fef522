"""What clients make of a delay that is configured."""

from __future__ import annotations

from pulsar_admin.context import App
from store.nacks.buckets import MIN_NACK_DELAY_MS


def configured_delay_ms(app: App, delay_ms: int) -> int:
    """Return the delay that a client makes of the one configured; says so where it is another."""
    if not 0 < delay_ms < MIN_NACK_DELAY_MS:
        return delay_ms
    app.warn(f"--delay {delay_ms}ms: the Java, C++ and Python clients make it {MIN_NACK_DELAY_MS}ms, Go's does not")
    return MIN_NACK_DELAY_MS
