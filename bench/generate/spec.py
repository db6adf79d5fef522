"""What to generate: the frozen plan of a synthetic cluster, and the texts it is typed in."""

from __future__ import annotations

import re
from collections import Counter

from msgspec import Struct

from bench.generate import draws
from pulsar_admin.store.codec import compression
from pulsar_admin.store.codec.entrylog import LOG_LIMIT_BYTES
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.names import INT_MAX, TopicName
from pulsar_admin.store.timespec import MAX_TIME_MS, parse_duration_ms, parse_size_bytes, parse_time_point

DEFAULT_START_MS = 1_700_000_000_000
_ENTRY_LIMIT_BYTES = 5 << 20  # BookKeeper's frame; larger entries cannot have been written
_JUMP_MS = 3_600_000
COUNT_LIMIT = 10**12
PRODUCERS_MAX = 100_000
SUBSCRIPTIONS_MAX = 1024
HOLES_MAX = 1_000_000
CLOCK_NAME_MAX = 100

_SPAN = re.compile(r"(\w+)(?:(\.\.|~)(\w+))?")


class Span(Struct, frozen=True):
    """Numbers from ``low`` to ``high``, equally likely; with ``by_doubling`` every doubling is as likely as any other."""

    low: int
    high: int
    by_doubling: bool = False

    def pick(self, bits: int) -> int:
        """Return a number out of 64 ``bits``."""
        choose = draws.log_between if self.by_doubling else draws.between
        return choose(bits, self.low, self.high)


class Clock(Struct, frozen=True):
    """A producer's clock: always off by ``skew_ms``, and jumping by up to ``jump_ms`` both ways."""

    name: str
    skew_ms: int = 0
    jump_ms: int = 0


KILOBYTE = Span(1024, 1024)
MINUTE_TO_DAY = Span(60_000, 86_400_000)

CLOCKS = {
    clock.name: clock
    for clock in (
        Clock("steady"),
        Clock("fast", 7_200_000),
        Clock("slow", -259_200_000),
        Clock("future", 77_760_000_000),
        Clock("jumping", 0, _JUMP_MS),
    )
}


class TopicSpec(Struct, frozen=True):
    """One topic. Shares are in hundredths of a percent; ``batch`` None: entries are not batches."""

    name: TopicName
    entries: int = 10_000
    rate: float = 1000.0  # entries a second
    start_ms: int = DEFAULT_START_MS
    size: Span = KILOBYTE  # payload bytes of a message
    batch: Span | None = None
    codecs: tuple[int, ...] = ()
    producers: int = 1
    clocks: tuple[Clock, ...] = (CLOCKS["steady"],)
    keys: int = 0
    delayed: int = 0
    delay_ms: Span = MINUTE_TO_DAY
    nulls: int = 0
    event_time: bool = False
    subscriptions: int = 0
    acked: int = 5_000
    holes: int = 0

    @property
    def period_us(self) -> int:
        """Microseconds between two entries."""
        return max(round(1e6 / self.rate), 1)

    def broker_ms(self, entry: int) -> int:
        """Return when the broker appended entry number ``entry``."""
        return self.start_ms + entry * self.period_us // 1000

    def entries_before(self, time_ms: int) -> int:
        """Return how many entries the broker had appended before ``time_ms``."""
        before = -(-(time_ms - self.start_ms) * 1000 // self.period_us)
        return min(max(before, 0), self.entries)


class ClusterSpec(Struct, frozen=True):
    """A whole cluster. ``data_path`` is where a broker will find the bookie: its cookie names it."""

    seed: int
    topics: tuple[TopicSpec, ...]
    data_path: str
    interceptors: tuple[str, ...] = ()
    entries_per_ledger: int = 50_000
    log_size_limit_bytes: int = LOG_LIMIT_BYTES
    bookie_id: str = "127.0.0.1:3181"


def parse_span(text: str, what: str, limit: int = INT_MAX) -> Span:
    """Parse ``N``, ``LOW..HIGH`` or ``LOW~HIGH`` (by doubling), sizes with K, M …; raises InvalidValue naming ``what``."""
    match = _SPAN.fullmatch(text.strip())
    try:
        low = parse_size_bytes(match[1]) if match else -1
        high = parse_size_bytes(match[3]) if match and match[3] else low
    except InvalidValue:
        low = high = -1
    if not match or not 0 <= low <= high <= limit:
        raise InvalidValue(
            f"invalid {what} {text!r}", hint=f"write N, LOW..HIGH or LOW~HIGH with numbers up to {limit}", value=text
        )
    return Span(low, high, match[2] == "~")


def parse_count(text: str) -> int:
    """Parse how many: an integer from 0, with ``_`` between digits or K, M, G for thousands, millions, billions."""
    match = re.fullmatch(r"(\d{1,3}(?:_\d{3})+|\d{1,15})([kKmMgG]?)", text.strip(), re.ASCII)
    count = int(match[1]) * 1000 ** " kmg".index(match[2].lower() or " ") if match else -1
    if not 0 <= count <= COUNT_LIMIT:
        raise InvalidValue(
            f"invalid number {text!r}", hint="write an integer such as 1000000, 1_000_000 or 1M", value=text
        )
    return count


def parse_rate(text: str) -> float:
    """Parse entries a second."""
    match = re.fullmatch(r"\d{1,9}(?:\.\d{1,6})?", text.strip(), re.ASCII)
    rate = float(match[0]) if match else 0.0
    if not 0 < rate <= 1e6:
        raise InvalidValue(f"invalid rate {text!r}", hint="write entries a second, up to 1000000", value=text)
    return rate


def parse_start(text: str) -> int:
    """Parse when the first entry was appended; nothing relative: the same request gives the same cluster on any day."""
    if not re.match(r"@|\d{4}-|\d{13}$", text.strip()):
        raise InvalidValue(f"invalid start {text!r}", hint="write 2024-05-01T09:00:00Z or epoch ms", value=text)
    return parse_time_point(text, now_ms=0)


def parse_flag(text: str) -> bool:
    """Parse ``true`` or ``false``."""
    if text.lower() not in ("true", "false"):
        raise InvalidValue(f"invalid value {text!r}", hint="write true or false", value=text)
    return text.lower() == "true"


def parse_sizes(text: str) -> Span:
    """Parse the payload bytes of messages."""
    return parse_span(text, "message size", _ENTRY_LIMIT_BYTES)


def parse_batch(text: str) -> Span | None:
    """Parse the messages of a batch; 0 means no batches."""
    span = parse_span(text, "batch size", 100_000)
    if span.high == 0:
        return None
    if span.low == 0:
        raise InvalidValue(f"invalid batch size {text!r}: no batch is empty", hint="write 0, or 1 or more", value=text)
    return span


def parse_delays(text: str) -> Span:
    """Parse a delay or ``LOW..HIGH`` of durations."""
    low, found, high = text.partition("..")
    span = Span(parse_duration_ms(low), parse_duration_ms(high if found else low))
    if not span.low <= span.high < 2**32:
        raise InvalidValue(f"invalid delay {text!r}", hint="write 10m, or 10m..1d, up to 49d", value=text)
    return span


def parse_share(text: str) -> int:
    """Parse a percentage such as ``12.5`` or ``12.5%`` to hundredths of a percent."""
    match = re.fullmatch(r"(\d{1,3})(?:\.(\d{1,2}))?%?", text.strip(), re.ASCII)
    share = int(match[1]) * 100 + int((match[2] or "0").ljust(2, "0")) if match else -1
    if not 0 <= share <= draws.PERMYRIAD:
        raise InvalidValue(f"invalid share {text!r}", hint="write percent from 0 to 100, such as 2 or 12.5", value=text)
    return share


def parse_codecs(text: str) -> tuple[int, ...]:
    """Parse ``none,lz4``: the codecs entries are drawn from."""
    names = [word.strip().upper() for word in text.split(",")]
    unknown = [name for name in names if name not in compression.NAMES]
    if unknown:
        known = ", ".join(compression.NAMES).lower()
        raise InvalidValue(f"no codec {unknown[0].lower()!r}", hint=f"known are {known}", value=text)
    codecs = tuple(compression.NAMES.index(name) for name in names)
    return () if set(codecs) == {compression.NONE} else codecs


def parse_clocks(text: str) -> tuple[Clock, ...]:
    """Parse ``steady,slow,+2h,-3d,jumping``: clocks that producers take in turn."""
    return tuple(_parse_clock(word.strip()) for word in text.split(","))


def _parse_clock(word: str) -> Clock:
    if word in CLOCKS:
        return CLOCKS[word]
    if word[:1] not in ("+", "-"):
        raise InvalidValue(
            f"no clock {word!r}",
            hint=f"known are {', '.join(CLOCKS)}, or an offset such as +2h or -3d",
            value=word,
        )
    skew_ms = parse_duration_ms(word[1:])
    return Clock(f"clock{word}", skew_ms if word[0] == "+" else -skew_ms)


def check_cluster(spec: ClusterSpec) -> None:
    """Raise InvalidValue for a plan that no bookie could have written."""
    counts = Counter(topic.name for topic in spec.topics)
    twice = [str(name) for name, count in counts.items() if count > 1]
    if twice or not counts:
        what = f"topic twice: {twice[0]}" if twice else "no topics"
        raise InvalidValue(what, hint="name each topic once")
    _check_number("entries-per-ledger", spec.entries_per_ledger, 1, COUNT_LIMIT)
    _check_number("log-size-limit", spec.log_size_limit_bytes, 1, LOG_LIMIT_BYTES)
    for topic in spec.topics:
        _check_number("producers", topic.producers, 1, PRODUCERS_MAX)
        _check_number("subscriptions", topic.subscriptions, 0, SUBSCRIPTIONS_MAX)
        _check_number("holes", topic.holes, 0, HOLES_MAX)
        _check_number("length of a clock's name", max(len(clock.name) for clock in topic.clocks), 1, CLOCK_NAME_MAX)
        _check_size(topic, spec.log_size_limit_bytes)
        _check_times(topic)


def _check_number(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidValue(f"{what} {value}: expected {low} to {high}", hint=f"choose {low} to {high}", value=value)


def _check_size(topic: TopicSpec, log_size_limit_bytes: int) -> None:
    most = entry_bytes_max(topic)
    limit = min(_ENTRY_LIMIT_BYTES, log_size_limit_bytes - 4096)
    if most > limit:
        raise InvalidValue(
            f"{topic.name}: an entry may have {most} bytes, the limit is {limit} (of a bookie's frame or the log size)",
            hint="ask for smaller messages, smaller batches or larger logs",
        )


def _check_times(topic: TopicSpec) -> None:
    skews = [clock.skew_ms for clock in topic.clocks]
    first_ms = topic.start_ms + min(skews) - _JUMP_MS - draws.EVENT_LIMIT_MS - draws.LATENCY_LIMIT_MS
    last_ms = topic.broker_ms(topic.entries) + max(skews) + _JUMP_MS + topic.delay_ms.high
    if first_ms < 0 or last_ms > MAX_TIME_MS:
        raise InvalidValue(
            f"{topic.name}: its times would run from {first_ms} to {last_ms} ms, beyond 1970 to 9999",
            hint="choose another start, rate or clocks",
        )


def entry_bytes_max(topic: TopicSpec) -> int:
    """Return a bound of the bytes of one record of ``topic``."""
    messages = topic.batch.high if topic.batch else 1
    return 1024 + messages * (topic.size.high + 64) * 2  # incompressible data may grow
