"""Counts and lists in sentences: ``1 entry is``, ``1,203 entries are``, ``7, 8 and 9``, ``7, 8 and 5 more``; the zone of times in them."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import tzinfo

shown_zone: ContextVar[tzinfo | None] = ContextVar("shown_zone", default=None)
"""The zone of times in tables and sentences, as ``--tz`` asked for it; None: UTC."""
_PLURALS = {"batch": "batches", "copy": "copies", "entry": "entries"}


def plural(count: int, one: str, many: str = "") -> str:
    """Return ONE for a count of 1, else MANY, which is ONE with an s, or what ``_PLURALS`` knows, where it is not given."""
    return one if count == 1 else many or _PLURALS.get(one, f"{one}s")


def listed(items: Iterable[object], most: int = 10) -> str:
    """Return ITEMS as a sentence lists them: the first MOST of them, and how many more there are."""
    words = [*map(str, items)]
    if len(words) > most:
        words = [*words[:most], f"{len(words) - most:,} more"]
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def counted(count: int, one: str, many: str = "") -> str:
    """Return COUNT, in groups of three digits, and the noun (with its verb, where ONE and MANY have one) that fits it."""
    return f"{count:,} {plural(count, one, many)}"
