"""Times, durations and sizes. Expected numbers were computed with GNU date and by hand."""

import random
import string
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest

from pulsar_admin.store import timespec
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.timespec import (
    MAX_TIME_MS,
    format_duration_ms,
    format_time_ms,
    parse_duration_ms,
    parse_size_bytes,
    parse_time,
    parse_time_or_ago,
    parse_time_point,
    parse_tz,
)
from tests.at_bounds import DAY, LONG, Answers, Texts, asking

NOW = 1_700_000_000_123  # 2023-11-14T22:13:20.123Z
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("100m", 6_000_000),
        ("3h", 10_800_000),
        ("2d", 172_800_000),
        ("5w", 3_024_000_000),
        ("1y", 31_536_000_000),
        ("90", 90_000),
        ("0", 0),
        ("5S", 5_000),
        ("7D", 604_800_000),
        ("500ms", 500),
        ("1h30m", 5_400_000),
        ("1d2h3m4s5ms", 93_784_005),
        ("PT5M", 300_000),
        ("P1DT2H", 93_600_000),
        ("p2w", 1_209_600_000),
        (" 3h ", 10_800_000),
        ("1h 30m", 5_400_000),
        ("2 days", 172_800_000),
        ("1 Hour, 30 minutes", 5_400_000),
        ("5min", 300_000),
        ("250 milliseconds", 250),
    ],
)
def test_duration(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "time cannot be empty"),
        ("5x", "Invalid time unit 'x'"),
        ("5M5", "not an integer and a unit"),
        ("1.5h", "not an integer and a unit"),
        ("2 fortnights", "not an integer and a unit"),
        ("1 hour 2 hours", "unit 'h' twice"),
        ("h", "not an integer and a unit"),
        ("1h2h", "unit 'h' twice"),
        ("-1", "is negative"),
        ("-3h", "is negative"),
        ("PT", "ISO 8601"),
        ("P", "ISO 8601"),
        ("PT1.5S", "ISO 8601"),
        ("P1M", "ISO 8601"),
        ("99999999999999999999", "too large"),
        ("9223372036854775807", "beyond 64 bits"),
        ("5µ", "not an integer and a unit"),
        ("٣h", "not an integer and a unit"),
    ],
)
def test_bad_duration(text: str, message: str) -> None:
    with pytest.raises(InvalidValue, match=message) as caught:
        parse_duration_ms(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("100K", 102_400), ("10M", 10_485_760), ("16g", 17_179_869_184), ("2T", 2_199_023_255_552)],
)
def test_size(text: str, size: int) -> None:
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "K", "1.5K", "1KB", "1KiB", "1 K", "-1", "9999999T", "x", "٣K"])
def test_bad_size(text: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        parse_size_bytes(text)
    assert repr(text) in caught.value.message


def test_minus_one_where_it_means_without_limit() -> None:
    assert parse_duration_ms("-1", allow_negative=True) == -1000
    assert parse_size_bytes("-1", allow_negative=True) == -1


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14t22:13:20z", 1_700_000_000_000),
        ("2023-11-14 22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20.123Z", 1_700_000_000_123),
        ("2023-11-14T22:13:20.123999999Z", 1_700_000_000_123),
        ("2023-11-14T22:13:20,5Z", 1_700_000_000_500),
        ("2023-11-14T22:13Z", 1_699_999_980_000),
        ("2023-11-15T06:13:20+08:00", 1_700_000_000_000),
        ("2023-11-14T17:13:20-0500", 1_700_000_000_000),
        ("2021-06-28T16:53:08.123+08:00", 1_624_870_388_123),
        ("1970-01-01T00:00:00Z", 0),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ("@0", 0),
        ("@1700000000", 1_700_000_000_000),
        ("@99999999999", 99_999_999_999_000),
        ("@100000000000", 100_000_000_000),
        ("@1700000000000", 1_700_000_000_000),
        ("now", NOW),
        ("-2h", NOW - 2 * HOUR),
        ("+2h", NOW + 2 * HOUR),
        ("now-2h", NOW - 2 * HOUR),
        ("now - 2h", NOW - 2 * HOUR),
        ("now+1h30m", NOW + HOUR + HOUR // 2),
        ("2h ago", NOW - 2 * HOUR),
        ("2 days ago", NOW - 48 * HOUR),
        ("-1 hour 30 minutes", NOW - 5_400_000),
        ("PT5M ago", NOW - 300_000),
        ("-500ms", NOW - 500),
    ],
)
def test_time(text: str, milliseconds: int) -> None:
    assert parse_time(text, now_ms=NOW) == milliseconds
    assert parse_time_point(text, now_ms=NOW) == milliseconds
    assert parse_time_or_ago(text, now_ms=NOW) == milliseconds


@pytest.mark.parametrize(
    ("text", "zone", "utc"),
    [
        ("today 09:00", "Europe/Berlin", "2023-11-14T08:00:00Z"),
        ("today 09:00", "Asia/Tokyo", "2023-11-15T00:00:00Z"),  # there it is the 15th already
        ("today", "UTC", "2023-11-14T00:00:00Z"),
        ("yesterday 23:59:59", "+02:00", "2023-11-14T21:59:59Z"),
        ("tomorrow 9:05", "America/New_York", "2023-11-15T14:05:00Z"),
        ("2023-07-01T12:00", "Europe/Berlin", "2023-07-01T10:00:00Z"),
        ("2023-07-01", "Europe/Berlin", "2023-06-30T22:00:00Z"),
        ("2023-07-01T12:00:00Z", "Europe/Berlin", "2023-07-01T12:00:00Z"),
    ],
)
def test_time_in_a_zone(text: str, zone: str, utc: str) -> None:
    expected = int(datetime.fromisoformat(utc).timestamp() * 1000)
    assert parse_time(text, now_ms=NOW, tz=parse_tz(zone)) == expected


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("2023-11-14T09:00", "has no time zone", "2023-11-14T09:00Z"),
        ("2023-11-14T09:00", "has no time zone", "--tz"),
        ("2023-11-14", "has no time zone", "2023-11-14T00:00Z"),
        ("today 09:00", "has no time zone", "2023-11-14T09:00Z"),
        ("today 09:00", "has no time zone", "--tz"),
        ("today 25:00", "hour must be in 0..23", ""),
        ("2023-02-30T00:00Z", "day", ""),
        ("2023-11-14T22:13:60Z", "second must be in 0..59", ""),
        ("2023-11-14T22:13+99:00", "invalid offset", ""),
        ("1969-12-31T23:59:59Z", "before 1970", ""),
        ("1970-01-01T00:00+01:00", "before 1970", ""),
        ("@-1", "before 1970", ""),
        ("100y ago", "before 1970", ""),
        ("@253402300800000", "beyond the year 9999", ""),
        ("+9000y", "beyond the year 9999", ""),
        ("10000-01-01T00:00:00Z", "beyond the year 9999", ""),
        ("99999-12-31", "beyond the year 9999", ""),
        ("@99999999999999999999", "invalid time", ""),
        ("@", "invalid time", ""),
        ("1700000000", "bare number", "@1700000000 for epoch seconds"),
        ("17000000000000", "bare number", "@17000000000000 for epoch milliseconds"),
        ("", "cannot be empty", ""),
        ("noon", "invalid time", "2024-05-01T09:00:00Z"),
        ("now-5x", "Invalid time unit 'x'", ""),
        ("x ago", "not an integer", ""),
        ("2023-11-14T22:13:20\nZ", "invalid time", ""),
    ],
)
def test_bad_time(text: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidValue, match=message) as caught:
        parse_time(text, now_ms=NOW)
    assert hint in caught.value.hint


def test_clock_changes() -> None:
    berlin = parse_tz("Europe/Berlin")
    with pytest.raises(InvalidValue, match="does not exist"):
        parse_time("2023-03-26T02:30", now_ms=NOW, tz=berlin)
    with pytest.raises(InvalidValue, match="exists twice") as caught:
        parse_time("2023-10-29T02:30", now_ms=NOW, tz=berlin)
    assert "2023-10-29T02:30:00+01:00 or 2023-10-29T02:30:00+02:00" in caught.value.hint


def test_point_takes_bare_milliseconds() -> None:
    assert parse_time_point("1700000000000", now_ms=NOW) == 1_700_000_000_000
    assert parse_time_point("2d", now_ms=NOW) == parse_time_point("2 days", now_ms=NOW) == NOW - 48 * HOUR
    with pytest.raises(InvalidValue, match="bare number"):
        parse_time_point("1700000000", now_ms=NOW)


def test_ago_refuses_a_bare_epoch_and_negative_seconds() -> None:
    for text, unit in (("1700000000000", "milliseconds"), ("1700000000", "seconds")):
        with pytest.raises(InvalidValue, match="means seconds") as caught:
            parse_time_or_ago(text, now_ms=NOW)
        assert caught.value.hint.endswith(f"@{text} for a point in time in epoch {unit}")
    with pytest.raises(InvalidValue, match="negative"):
        parse_time_or_ago("-5", now_ms=NOW)
    with pytest.raises(InvalidValue, match="cannot be empty"):
        parse_time_or_ago("", now_ms=NOW)
    with pytest.raises(InvalidValue, match="Invalid time unit 'x'"):
        parse_time_or_ago("5x", now_ms=NOW)


@pytest.mark.parametrize("text", ["Mars/Base", "../etc/passwd", "/etc/passwd", "", "+25:00", "Europe"])
def test_bad_zone(text: str) -> None:
    with pytest.raises(InvalidValue):
        parse_tz(text)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (NOW, "2023-11-14T22:13:20.123Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
        (MAX_TIME_MS, "9999-12-31T23:59:59.999Z"),
        (MAX_TIME_MS + 1, "253402300800000ms"),
        (-(2**63), "-9223372036854775808ms"),
        (2**64 - 1, "18446744073709551615ms"),
    ],
)
def test_format_time(milliseconds: int, text: str) -> None:
    assert format_time_ms(milliseconds) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0s"), (500, "500ms"), (5_400_000, "1h30m"), (-90_000, "-1m30s"), (90_061_001, "1d1h1m1s1ms")],
)
def test_format_duration(milliseconds: int, text: str) -> None:
    assert format_duration_ms(milliseconds) == text


def test_formatted_values_are_read_back() -> None:
    chance = random.Random(7)
    for _ in range(300):
        milliseconds = chance.randrange(MAX_TIME_MS)
        assert parse_time(format_time_ms(milliseconds), now_ms=NOW) == milliseconds
        assert parse_duration_ms(format_duration_ms(milliseconds)) == milliseconds
        moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
        assert format_time_ms(milliseconds).startswith(moment.strftime("%Y-").rjust(5, "0"))


def test_any_text_is_a_value_or_an_invalid_value() -> None:
    chance = random.Random(11)
    alphabet = string.digits * 3 + "-+:@TZ. pPhmsdwy\u0663\u00e9agonow"
    for _ in range(4000):
        text = "".join(chance.choice(alphabet) for _ in range(chance.randrange(12)))
        for parse in (parse_time, parse_time_point, parse_time_or_ago):
            with suppress(InvalidValue):
                assert 0 <= parse(text, now_ms=NOW, tz=UTC) <= MAX_TIME_MS
        for parse_plain in (parse_duration_ms, parse_size_bytes):
            with suppress(InvalidValue):
                assert parse_plain(text) >= 0


ANSWERS: Answers = {
    timespec.parse_duration_ms: [((f"{LONG}ms",), LONG), ((f"{LONG + 1}ms",), InvalidValue)],
    timespec._offset: [(("-18:59", ""), timezone(-timedelta(hours=18, minutes=59))), (("+18:60", ""), InvalidValue)],
    timespec._in_range: [((0, ""), 0), ((253_402_300_799_999, ""), 253_402_300_799_999), ((-1, ""), InvalidValue)],
    timespec.shown_minute: [((0,), "1970-01-01T00:00Z")],
    timespec.old_text: [((DAY,), "1 day old"), ((60_000,), "1 minute old")],
    timespec.format_age_ms: [((-60_000,), "-1m"), ((DAY + 3_600_000,), "1d1h"), ((0,), "0s")],
    timespec.moment: [((253_402_300_800_000,), None), ((-62_135_596_800_000,), datetime(1, 1, 1, tzinfo=UTC)),
        ((253_402_300_799_999,), datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC))],
    timespec.parse_time: [({"text": "@123456789012", "now_ms": 0}, 123_456_789_012),
        ({"text": "@12345678901", "now_ms": 0}, 12_345_678_901_000)],
    timespec.parse_size_bytes: [((str(LONG),), LONG), (("8388608T",), InvalidValue)],
    timespec.format_time_ms: [
        ((253_402_300_799_999,), "9999-12-31T23:59:59.999Z"), ((253_402_300_800_000,), "253402300800000ms"),
        ((-62_135_596_800_000,), "0001-01-01T00:00:00.000Z"), ((-62_135_596_800_001,), "-62135596800001ms")],
    timespec._integer: [(("9" * 19, ""), 10**19 - 1), (("1" * 20, ""), InvalidValue)],
}  # fmt: skip
REFUSED: Texts = {
    timespec.parse_time: [({"text": text, "now_ms": 0}, said) for text, said in (("10000-01-01", "beyond the year 9999"),
        ("2026-13-01T00:00:00Z", "month must be in"), ("today 25:00", "hour must be in"))],
    timespec._in_range: [((10**15, "x"), "beyond the year 9999")],
}  # fmt: skip
SAID: Texts = {
    timespec.old_text: [((59_999,), "less than a minute old"), ((7_200_000,), "2 hours old")],
}  # fmt: skip
test_at_bounds = asking(ANSWERS, refused=REFUSED, said=SAID)
