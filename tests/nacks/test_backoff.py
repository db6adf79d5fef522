"""Redelivery backoffs; expected delays are upstream's formula worked by hand."""

from __future__ import annotations

import pytest

from store.errors import InvalidValue
from store.nacks.backoff import FixedBackoff, ListBackoff, MultiplierBackoff


def test_fixed() -> None:
    assert [FixedBackoff(1500).next(count) for count in (0, 1, 1000)] == [1500, 1500, 1500]


def test_multiplier_with_upstream_defaults() -> None:
    delays = [MultiplierBackoff().next(count) for count in range(-1, 9)]
    assert delays == [10_000, 10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 600_000, 600_000, 600_000]


def test_multiplier_cuts_fractions_off() -> None:
    backoff = MultiplierBackoff(min_delay_ms=10, max_delay_ms=1000, multiplier=1.5)
    assert [backoff.next(count) for count in range(4)] == [10, 15, 22, 33]


def test_multiplier_survives_any_count() -> None:
    assert MultiplierBackoff(1, 2**63 - 1, 10.0).next(2**31 - 1) == 2**63 - 1
    assert MultiplierBackoff(0, 1000).next(7) == 0


def test_list_repeats_its_last() -> None:
    backoff = ListBackoff((100, 1000, 60_000))
    assert [backoff.next(count) for count in (-1, 0, 1, 2, 3, 99)] == [100, 100, 1000, 60_000, 60_000, 60_000]


@pytest.mark.parametrize(
    "make",
    [
        lambda: FixedBackoff(-1),
        lambda: FixedBackoff(2**63),
        lambda: FixedBackoff(True),
        lambda: MultiplierBackoff(10, 5),
        lambda: MultiplierBackoff(-1, 5),
        lambda: MultiplierBackoff(1, 2**63),
        lambda: MultiplierBackoff(1, 5, 1.0),
        lambda: MultiplierBackoff(1, 5, float("nan")),
        lambda: ListBackoff(()),
        lambda: ListBackoff((5, -5)),
    ],
)
def test_bad_backoffs_are_refused(make: object) -> None:
    with pytest.raises(InvalidValue):
        make()  # type: ignore[operator]
