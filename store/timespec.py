"""Times, durations and sizes as an operator types them, and the text forms shown back. Pure: the clock is an argument.

Grammar: pulsar-admin's relative times (upstream ``RelativeTimeUtil``: integer and one unit of ``s m h d w y``, no unit
means seconds) and sizes (upstream ``ByteUnitUtil``), extended by ``500ms``, ``1h30m``, ``PT5M`` and absolute times.
Every function that parses raises ``InvalidValue`` and nothing else.
"""

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache

from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.names import LONG_MAX
from pulsar_admin.store.wording import counted, shown_zone

MAX_TIME_MS = 253402300799999
"""9999-12-31T23:59:59.999Z, the last instant that RFC 3339 can write."""

_YEAR_1_MS = -62135596800000

_UNIT_MS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
    "y": 365 * 86_400_000,
}
_WORDS = r"(?a)(\d)\s*(milliseconds?|seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?|years?|ms|[smhdwy])(?![a-z])[\s,]*"
"""A unit in a word, or apart from its number; ``m`` and ``ms`` are as they begin."""
_DURATION_HINT = (
    "write an integer and a unit: 500ms, 30s, 100m, 3h, 2d, 5w, 1h30m, '2 days', PT5M (no unit means seconds)"
)
_TIME_HINT = (
    "write 2024-05-01T09:00:00Z, 2024-05-01T09:00:00+02:00, @1714546800 (seconds), @1714546800000 (ms), "
    "-2h, now-2h, '2h ago' or 'today 09:00' with --tz"
)
_SIZE_SHIFT = {"k": 10, "m": 20, "g": 30, "t": 40}

# Spellings, compiled when they are met.
_PART = r"(?a)(\d{1,40})(ms|[a-z])"  # bounded: else digits without a unit take quadratic time
_ISO_DURATION = r"p(?:(\d+)w)?(?:(\d+)d)?(?:t(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?)?"
_DAY_TIME = r"(today|yesterday|tomorrow)(?:\s+(\d\d?):(\d\d)(?::(\d\d))?)?"
_RELATIVE = r"(?:now)?\s*([+-])\s*(\S.*)|(\S.*)\s+ago"
_AGE = r"[0-9]+\s*[a-z]+(?:[\s,]*[0-9]+\s*[a-z]+)*|p[0-9t][0-9a-z]*"
"""Numbers with units, which can only be a duration."""
_EPOCH = r"(?a)@(-?\d{1,19})"
_DATE_TIME = (
    r"(?a)(\d{4})-(\d\d)-(\d\d)"
    r"(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)? ?([Zz]|[+-]\d\d(?::?\d\d)?)?)?"
)
_OFFSET = r"(?a)([+-])(\d\d):?(\d\d)?"


# -- durations and sizes ----------------------------------------------------------------------------------------------


def parse_duration_ms(text: str, *, allow_negative: bool = False) -> int:
    """Parse a duration to milliseconds; no unit means seconds, as everywhere in pulsar-admin.

    A negative number is refused unless ``allow_negative``: ``-1`` means "without limit" to some commands.
    """
    word = text.strip().lower()
    if not word:
        raise InvalidValue("time cannot be empty", hint=_DURATION_HINT, value=text)
    negative = word.startswith("-")
    if negative and not allow_negative:
        raise InvalidValue(f"duration {text!r} is negative", hint=_DURATION_HINT, value=text)
    body = _in_letters(word[1:] if negative else word)
    duration_ms = _iso_duration_ms(body, text) if body.startswith("p") else _plain_duration_ms(body, text)
    if duration_ms > LONG_MAX:
        raise InvalidValue(f"duration {text!r} is beyond 64 bits of milliseconds", hint=_DURATION_HINT, value=text)
    return -duration_ms if negative else duration_ms


def _in_letters(words: str) -> str:
    """Return ``1h30m`` for ``1 hour 30 minutes``; text in other forms stays as it is."""
    if " " not in words and not re.search("[a-z]{3}", words):
        return words
    return re.sub(
        _WORDS, lambda match: match[1] + ("ms" if match[2].startswith(("ms", "mil")) else match[2][0]), words.strip()
    )


def _plain_duration_ms(body: str, text: str) -> int:
    if body.isascii() and body.isdigit():
        return _integer(body, text) * 1000
    parts = re.findall(_PART, body)
    if "".join(number + unit for number, unit in parts) != body or not body.isascii():
        if parts and body[-1].isascii() and body[-1].isalpha() and body[-1] not in _UNIT_MS:
            raise _bad_unit(body[-1], text)
        raise InvalidValue(f"invalid duration {text!r}: not an integer and a unit", hint=_DURATION_HINT, value=text)
    total_ms = 0
    seen: set[str] = set()
    for number, unit in parts:
        if unit not in _UNIT_MS:
            raise _bad_unit(unit, text)
        if unit in seen:
            raise InvalidValue(f"invalid duration {text!r}: unit '{unit}' twice", hint=_DURATION_HINT, value=text)
        seen.add(unit)
        total_ms += _integer(number, text) * _UNIT_MS[unit]
    return total_ms


def _bad_unit(unit: str, text: str) -> InvalidValue:
    return InvalidValue(f"Invalid time unit '{unit}' in {text!r}", hint=_DURATION_HINT, value=text)


def _iso_duration_ms(body: str, text: str) -> int:
    match = re.fullmatch(_ISO_DURATION, body, re.ASCII)
    if not match or not any(match.groups()) or body.endswith("t"):
        raise InvalidValue(f"invalid ISO 8601 duration {text!r}", hint=_DURATION_HINT, value=text)
    units = ("w", "d", "h", "m", "s")
    pairs = zip(match.groups(), units, strict=True)
    return sum(_integer(number, text) * _UNIT_MS[unit] for number, unit in pairs if number)


def _integer(digits: str, text: str) -> int:
    # int() of thousands of digits is slow and raises past 4300 of them.
    if len(digits) > 19:
        raise InvalidValue(f"number too large in {text!r}", hint="ids and times are signed 64-bit integers", value=text)
    return int(digits)


def parse_size_bytes(text: str, *, allow_negative: bool = False) -> int:
    """Parse ``4096``, ``100K``, ``10M``, ``16G`` or ``2T`` (powers of 1024) to bytes."""
    word = text.strip()
    match = re.fullmatch(r"(-?)([0-9]+)([kKmMgGtT]?)", word)
    if not match:
        raise InvalidValue(
            f"Invalid size {text!r}. Valid formats are: (4096, 100K, 10M, 16G, 2T)",
            hint="no fraction, no B",
            value=text,
        )
    sign, digits, unit = match.groups()
    if sign and not allow_negative:
        raise InvalidValue(f"size {text!r} is negative", hint="write for example 4096, 100K, 10M", value=text)
    size_bytes = _integer(digits, text) << _SIZE_SHIFT.get(unit.lower(), 0)
    if size_bytes > LONG_MAX:
        raise InvalidValue(f"size {text!r} is beyond 64 bits", hint="write for example 4096, 100K, 10M", value=text)
    return -size_bytes if sign else size_bytes


# -- points in time ---------------------------------------------------------------------------------------------------


class FromNow(int):
    """An epoch time in ms that was given relative to now (``3h``, ``now``): later, the same text means another time."""


_NAMED_OFFSET = r"(?ai)(?:UTC|GMT|Z)?([+-])(\d{1,2}):?(\d\d)?"


def parse_tz(text: str) -> tzinfo:
    """Parse a zone: an IANA name (``Europe/Berlin``), ``UTC``, ``Z`` or an offset (``+02:00``)."""
    if text.upper() in {"Z", "UTC"}:
        return UTC
    match = re.fullmatch(_OFFSET, text)
    if match:
        return _offset(text, text)
    # Imported here: only commands given a zone by name pay for it.
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError, RecursionError) as error:
        named = re.fullmatch(_NAMED_OFFSET, text)
        meant = f"{named[1]}{int(named[2]):02}:{named[3] or '00'}" if named else ""
        hint = f"did you mean {meant}?" if named else "write an IANA name such as Europe/Berlin, UTC, or +02:00"
        raise InvalidValue(f"unknown time zone {text!r}", hint=hint, value=text) from error


def parse_time(text: str, *, now_ms: int, tz: tzinfo | None = None) -> int:
    """Parse a point in time to epoch milliseconds; ``tz`` is what a time without a zone means (None: refuse it)."""
    word = text.strip()
    if not word:
        raise InvalidValue("time cannot be empty", hint=_TIME_HINT, value=text)
    if word.lower() == "now":
        return FromNow(now_ms)
    match = re.fullmatch(_DATE_TIME, word)
    if match:
        return _date_time(match, text, tz)
    match = re.fullmatch(_EPOCH, word)
    if match:
        # Twelve digits or more are milliseconds: as seconds they would lie beyond the year 5000.
        number = int(match[1])
        return _in_range(number if len(match[1].lstrip("-")) >= 12 else number * 1000, text)
    match = re.fullmatch(_RELATIVE, word.lower())
    if match:
        return _relative(match, text, now_ms)
    match = re.fullmatch(_DAY_TIME, word.lower(), re.ASCII)
    if match:
        return _day_time(match, text, now_ms, tz)
    if re.fullmatch("-*[0-9]+", word):
        raise InvalidValue(
            f"{text!r} is a bare number, not a time",
            hint=f"write @{word} for epoch {'milliseconds' if len(word) >= 12 else 'seconds'}, or -{word}s for 'ago'",
            value=text,
        )
    if re.match(r"\+?\d{5,}-\d\d-\d\d", word):
        raise InvalidValue(f"time {text!r} is beyond the year 9999", hint=_TIME_HINT, value=text)
    raise InvalidValue(f"invalid time {text!r}", hint=_TIME_HINT, value=text)


def parse_time_point(text: str, *, now_ms: int, tz: tzinfo | None = None) -> int:
    """Like ``parse_time``, and a bare 13-digit number is epoch milliseconds; a duration with units is an age."""
    word = text.strip()
    if len(word) == 13 and word.isascii() and word.isdigit():
        return _in_range(int(word), text)
    if "-" not in word and re.fullmatch(_AGE, word.lower(), re.ASCII):
        return parse_time_or_ago(text, now_ms=now_ms, tz=tz)
    return parse_time(text, now_ms=now_ms, tz=tz)


def parse_time_or_ago(text: str, *, now_ms: int, tz: tzinfo | None = None) -> int:
    """Parse pulsar-admin's ``-t``: a duration counted back from now (``3h``, ``90`` seconds) or any absolute form."""
    word = text.strip().lower()
    if re.fullmatch(r"-\d+", word):
        raise InvalidValue(f"time {text!r} is negative", hint="write 90 or 90s for 90 seconds ago", value=text)
    if not (re.fullmatch(rf"[0-9]+|[0-9][0-9a-z]*|{_AGE}", word, re.ASCII) or not word):
        return parse_time(text, now_ms=now_ms, tz=tz)
    time_ms = now_ms - parse_duration_ms(text)
    if re.fullmatch(r"[1-9]\d{9,12}", word):  # 32 years or more: meant as a point in time
        raise InvalidValue(
            f"{text!r} seconds ago is before any message: a bare number means seconds here",
            hint=f"write @{word} for a point in time in epoch {'seconds' if len(word) == 10 else 'milliseconds'}",
            value=text,
        )
    return FromNow(_in_range(time_ms, text))


def _relative(match: re.Match[str], text: str, now_ms: int) -> int:
    sign, amount, ago = match.groups()
    duration_ms = parse_duration_ms(ago or amount)
    return FromNow(_in_range(now_ms + duration_ms if sign == "+" else now_ms - duration_ms, text))


def _date_time(match: re.Match[str], text: str, tz: tzinfo | None) -> int:
    year, month, day, hour, minute, second, fraction, offset = match.groups()
    try:
        local = datetime(*(int(part or 0) for part in (year, month, day, hour, minute, second)))  # type: ignore[arg-type]
    except ValueError as error:
        raise InvalidValue(f"invalid time {text!r}: {error}", hint=_TIME_HINT, value=text) from error
    zone = _offset(offset, text) if offset else tz
    milliseconds = int((fraction or "0").ljust(3, "0")[:3])
    return _in_range(_epoch_ms(local, zone, text) + milliseconds, text)


def _day_time(match: re.Match[str], text: str, now_ms: int, tz: tzinfo | None) -> int:
    day, hour, minute, second = match.groups()
    days = {"yesterday": -1, "today": 0, "tomorrow": 1}[day]
    today: date = datetime.fromtimestamp(now_ms // 1000, tz or UTC).date()
    try:
        local = datetime.combine(today, datetime.min.time()) + timedelta(days=days)
        local = local.replace(hour=int(hour or 0), minute=int(minute or 0), second=int(second or 0))
    except (ValueError, OverflowError) as error:
        raise InvalidValue(f"invalid time {text!r}: {error}", hint=_TIME_HINT, value=text) from error
    return _in_range(_epoch_ms(local, tz, text), text)


def _offset(text: str, whole: str) -> tzinfo:
    if text in "Zz":
        return UTC
    match = re.fullmatch(_OFFSET, text)
    hours, minutes = (int(match[2]), int(match[3] or 0)) if match else (99, 0)
    if match is None or hours > 18 or minutes > 59:
        raise InvalidValue(f"invalid offset {text!r} in {whole!r}", hint="write Z, +02:00 or -05:30", value=whole)
    delta = timedelta(hours=hours, minutes=minutes)
    return timezone(-delta if match[1] == "-" else delta)


def _epoch_ms(local: datetime, zone: tzinfo | None, text: str) -> int:
    """Return the instant of the wall clock time ``local`` in ``zone``; refuses times that a clock change skips or repeats."""
    if zone is None:
        spelled = local.isoformat(timespec="minutes" if not local.second else "seconds")
        raise InvalidValue(
            f"{text!r} has no time zone",
            hint=f"write {spelled}Z (or another offset such as +02:00), or add --tz Europe/Berlin (your zone)",
            value=text,
        )
    first, second = local.replace(tzinfo=zone), local.replace(tzinfo=zone, fold=1)
    if first.utcoffset() != second.utcoffset():
        gap = (first.utcoffset() or timedelta()) < (second.utcoffset() or timedelta())
        offsets = " or ".join(sorted(f"{local.isoformat()}{moment.isoformat()[19:]}" for moment in (first, second)))
        raise InvalidValue(
            f"{text!r} {'does not exist' if gap else 'exists twice'} in {zone}: the clock changes there",
            hint=f"write the offset: {offsets}",
            value=text,
        )
    # Integer arithmetic: a float of seconds loses milliseconds far from the epoch.
    return (first - _EPOCH_START) // timedelta(milliseconds=1)


_EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)


def _in_range(time_ms: int, text: str) -> int:
    if time_ms < 0:
        raise InvalidValue(
            f"time {text!r} is before 1970-01-01T00:00:00Z", hint="message times count from 1970", value=text
        )
    if time_ms > MAX_TIME_MS:
        raise InvalidValue(f"time {text!r} is beyond the year 9999", hint=_TIME_HINT, value=text)
    return time_ms


# -- text shown back --------------------------------------------------------------------------------------------------


def format_time_ms(time_ms: int, zone: tzinfo | None = None) -> str:
    """Return a time in ISO 8601 with milliseconds, in UTC or with ``zone``'s offset; ``<n>ms`` beyond the calendar."""
    if not -62135596800000 <= time_ms <= MAX_TIME_MS:
        return f"{time_ms}ms"
    second, offset = _format_second(time_ms // 1000, zone)
    return f"{second}.{time_ms % 1000:03d}{offset}"


def shown_time(time_ms: int) -> str:
    """Return a time for a sentence, in the zone that the user chose, else in UTC."""
    return format_time_ms(time_ms, shown_zone.get())


def shown_with_age(time_ms: int, now_ms: int) -> str:
    """Return a time and its distance from now: ``2026-11-21T09:23:24.483Z (2h36m ago)``."""
    age_ms = now_ms - time_ms
    return (
        f"{shown_time(time_ms)} ({f'{format_age_ms(age_ms)} ago' if age_ms >= 0 else f'in {format_age_ms(-age_ms)}'})"
    )


def shown_minute(time_ms: int) -> str:
    """Return a time to the minute, in the zone that the user chose, else in UTC: ``2026-11-21T09:42Z``."""
    text = shown_time(time_ms)
    return text[:16] + text[23:] if text[10:11] == "T" else text


def old_text(age_ms: int) -> str:
    """Return an age in words, by its largest unit: ``5 days old``."""
    for unit, size_ms in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000)):
        if age_ms >= size_ms:
            return f"{counted(age_ms // size_ms, unit)} old"
    return "less than a minute old"


@lru_cache(4096)  # the times of a table are near each other, and the calendar is the dearest part of a row
def _format_second(time_s: int, zone: tzinfo | None) -> tuple[str, str]:
    moment = _EPOCH_START + timedelta(seconds=time_s)
    try:
        text = moment.astimezone(zone or UTC).isoformat()
    except OverflowError:  # the zone's clock is in the year 0 or 10000
        text = moment.isoformat()
    return text[:19], text[19:].replace("+00:00", "Z")


def format_age_ms(age_ms: int) -> str:
    """Return an age to two units, ``5d3h`` or ``2m10s``, as seconds do not matter beside days; ``0s`` below a second."""
    units = list(_UNITS_MS.values())
    size = next((unit for unit in units if abs(age_ms) >= unit), 1000)
    step = units[min(units.index(size) + 1, len(units) - 1)]
    rounded = abs(age_ms) // step * step
    return format_duration_ms(-rounded if age_ms < 0 else rounded)


_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000}


def format_duration_ms(duration_ms: int) -> str:
    """Return a duration in the form that ``parse_duration_ms`` reads: ``1d2h``, ``1h30m``, ``2s500ms``."""
    if duration_ms == 0:
        return "0s"
    rest, text = abs(duration_ms), "-" if duration_ms < 0 else ""
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(rest, _UNIT_MS[unit])
        text += f"{count}{unit}" if count else ""
    return text


def moment(time_ms: int | None) -> datetime | None:
    """Return a time in ms as a datetime in UTC; None for None, and for a time beyond the calendar."""
    if time_ms is None or not _YEAR_1_MS <= time_ms <= MAX_TIME_MS:
        return None
    return _EPOCH_START + timedelta(milliseconds=time_ms)
