"""How long a negatively acknowledged message waits, by how often it was redelivered before.

Rules: upstream ``RedeliveryBackoff`` and ``MultiplierRedeliveryBackoff``, Pulsar 4.0.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from store.errors import InvalidValue
from store.names import LONG_MAX

MIN_NACK_DELAY_MS = 100
"""Upstream's floor for the configured delay (not for a backoff's), so that nacks of one batch go together."""


class RedeliveryBackoff(Protocol):
    """Anything that answers the delay before redelivery number ``redelivery_count + 1``, in milliseconds."""

    def next(self, redelivery_count: int) -> int:
        """Return the delay in milliseconds."""
        ...


@dataclass(frozen=True, slots=True)
class FixedBackoff:
    """The same delay every time; raises InvalidValue for one that is negative or beyond 64 bits."""

    delay_ms: int

    def __post_init__(self) -> None:
        check_delay(self.delay_ms)

    def next(self, redelivery_count: int) -> int:
        return self.delay_ms


@dataclass(frozen=True, slots=True)
class MultiplierBackoff:
    """``min_delay_ms · multiplier ^ count``, at most ``max_delay_ms``; the defaults are upstream's builder's."""

    min_delay_ms: int = 10_000
    max_delay_ms: int = 600_000
    multiplier: float = 2.0

    def __post_init__(self) -> None:
        check_delay(self.min_delay_ms)
        check_delay(self.max_delay_ms)
        if self.max_delay_ms < self.min_delay_ms:
            raise InvalidValue(
                f"maximum delay {self.max_delay_ms} ms is below the minimum {self.min_delay_ms} ms",
                hint="give a maximum of at least the minimum",
            )
        if not self.multiplier > 1:
            raise InvalidValue(f"backoff multiplier {self.multiplier}", hint="it must be greater than 1")

    def next(self, redelivery_count: int) -> int:
        if redelivery_count <= 0 or self.min_delay_ms == 0:
            return self.min_delay_ms
        try:
            grown = self.min_delay_ms * self.multiplier**redelivery_count
        except OverflowError:
            return self.max_delay_ms
        return self.max_delay_ms if grown >= self.max_delay_ms else int(grown)


@dataclass(frozen=True, slots=True)
class ListBackoff:
    """The delays in order; the last one for every later redelivery."""

    delays_ms: Sequence[int]

    def __post_init__(self) -> None:
        if not self.delays_ms:
            raise InvalidValue("a list of delays without a delay", hint="give at least one")
        for delay_ms in self.delays_ms:
            check_delay(delay_ms)

    def next(self, redelivery_count: int) -> int:
        return self.delays_ms[min(max(redelivery_count, 0), len(self.delays_ms) - 1)]


def check_delay(delay_ms: int) -> int:
    """Return DELAY_MS; raises InvalidValue when it is not an integer, negative or beyond 64 bits."""
    if not isinstance(delay_ms, int) or isinstance(delay_ms, bool) or not 0 <= delay_ms <= LONG_MAX:
        raise InvalidValue(
            f"delay of {delay_ms} ms",
            hint="a delay is a whole number of milliseconds from 0 to 2^63 - 1",
            value=delay_ms,
        )
    return delay_ms
