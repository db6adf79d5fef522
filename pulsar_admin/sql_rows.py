"""Rows of SQL as JSON values, table columns and charts.

Types that JSON lacks become texts, the same in every format.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pulsar_admin.columns import Column, kind_of
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.visible import clean_text

if TYPE_CHECKING:
    from pulsar_admin.plot import Chart

Row = dict[str, Any]  # Any: JSON values
_INTEGERS = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?$")
_NUMBERS = re.compile(r"FLOAT$|DOUBLE$|DECIMAL\(")
_PADDED = 100
"""A message may have a megabyte: rows beside it are not padded to that."""
_EXACT_DIGITS = 15
"""A double holds every decimal number of up to this many digits."""


def unique_names(names: Sequence[str]) -> list[str]:
    """Return names with suffixes _1, _2 … for repeated ones, as an object has each key once."""
    found: dict[str, None] = {}
    for name in names:
        number, one = 0, name
        while one in found:
            number += 1
            one = f"{name}_{number}"
        found[one] = None
    return list(found)


def columns_of(names: Sequence[str], types: Sequence[str]) -> list[Column]:
    """Return the columns of a table: ids as plain digits, other numbers with thousands separators."""
    return [Column(name, name, _kind(name, kind), padded=_PADDED) for name, kind in zip(names, types, strict=True)]


def _kind(name: str, kind: str) -> str:
    if _INTEGERS.match(kind):
        return "id" if kind_of(name, 1) == "id" else "number"
    return "number" if _NUMBERS.match(kind) else "text"


def json_rows(names: Sequence[str], rows: Iterable[Sequence[Any]], zone: tzinfo | None) -> Iterator[Row]:
    """Yield rows as objects of JSON values, with times in ``zone`` (None: UTC)."""
    zone = zone or UTC
    for row in rows:
        yield {name: _plain(value, zone) for name, value in zip(names, row, strict=True)}


def _plain(value: Any, zone: tzinfo) -> Any:  # Any: DuckDB's values, JSON's
    """Return a value of DuckDB as a JSON value."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, datetime):
        return _instant(value, zone)
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, Decimal):
        exact = len(value.as_tuple().digits) <= _EXACT_DIGITS
        return float(value) if exact else str(value)
    if isinstance(value, Mapping):
        return {_key(key, zone): _plain(item, zone) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, zone) for item in value]
    return str(value) if not isinstance(value, timedelta) else _length(value)


def _key(key: Any, zone: tzinfo) -> str:  # Any: DuckDB's values
    plain = _plain(key, zone)
    return plain if isinstance(plain, str) else str(plain)


def _instant(value: datetime, zone: tzinfo) -> str:
    """Return a time as ISO 8601 with milliseconds, or microseconds if it has any; without a zone if it has none."""
    shown = value if value.tzinfo is None else value.astimezone(zone)
    return shown.isoformat(timespec="microseconds" if value.microsecond % 1000 else "milliseconds").replace(
        "+00:00", "Z"
    )


def _length(value: timedelta) -> str:
    from pulsar_admin.store.timespec import format_duration_ms

    return format_duration_ms(value // timedelta(milliseconds=1))


def chart_of(names: Sequence[str], rows: Iterable[Row]) -> Chart:
    """Return a chart of the later columns over the first; raises InvalidValue if they are not numbers."""
    from pulsar_admin.plot import Chart

    if len(names) < 2:
        raise InvalidValue("--plot needs two columns: labels, and numbers", hint="select hour, count(*) … group by 1")
    kept = list(rows)
    series = {name: [_number(name, row[name]) for row in kept] for name in names[1:]}
    labels = ["" if row[names[0]] is None else clean_text(str(row[names[0]])) for row in kept]
    for end in ("T00:00:00.000Z", ":00.000Z"):  # days, or minutes: there is little room
        if labels and all(label.endswith(end) for label in labels):
            labels = [label.removesuffix(end) for label in labels]
    return Chart(", ".join(names[1:]), labels, series, bars=len(series) == 1)


def _number(name: str, value: object) -> float:
    if value is None:
        return 0
    try:
        number = float(value)  # type: ignore[arg-type]  # raises if it is no number
    except (TypeError, ValueError):
        raise InvalidValue(
            f"--plot: {name} has {value!r}, which is not a number", hint="labels come first, then columns of numbers"
        ) from None
    if not math.isfinite(number):
        hint = f"leave such rows out: where isfinite({name})"
        raise InvalidValue(f"--plot: {name} has {value!r}, which cannot be drawn", hint=hint)
    return number
