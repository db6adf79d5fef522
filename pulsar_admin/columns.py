"""Values as text: table columns and cells, cleaned of control characters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from operator import attrgetter
from types import NoneType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pulsar_admin.jsonify import dump_json, to_json
from pulsar_admin.store.names import Position, TopicName
from pulsar_admin.store.wording import shown_zone
from pulsar_admin.typable import OWN_TEXT, own_text
from pulsar_admin.visible import TONES, clean_text

if TYPE_CHECKING:
    from datetime import tzinfo

GAP = 2
"""Blanks between two columns."""


def alarm(value: object) -> str:
    """Return the tone of a value that should be 0 or empty."""
    return "critical" if value else ""


def caution(value: object) -> str:
    """Return the tone of a value that has a cost while it is not 0: backlog, dead bytes, lag."""
    return "warning" if value else ""


def severity_tone(value: object) -> str:
    """Return the tone of a finding's severity."""
    word = str(value).rpartition(".")[2].lower()
    return {"problem": "critical"}.get(word, word if word in TONES else "")


class AtLeast(int):
    """A lower bound, as some entries could not be counted: a cell shows ``≥ 12``, JSON has their number beside it."""


def messages_of(record: Any, key: str = "messages") -> int | None:  # Any: the record's own type
    """Return the messages of a record, as ``AtLeast`` if its ``uncounted_entries`` is not 0."""
    if isinstance(record, dict):
        number, uncounted = record.get(key), record.get("uncountedEntries")
    else:
        number, uncounted = getattr(record, key), record.uncounted_entries
    return AtLeast(number) if uncounted and number is not None else number


_NAMES_SHOWN = 3
_ABSENT = object()
"""What no record has."""
_FIRST_TIME_MS = 10**11
"""A smaller number under a time's key is not epoch milliseconds: 0 for never, an age, a length."""
_TIME_KEY = (
    "(?i)(time(stamps?)?|created|modified|imported|built|due|deadline|active|at|publish|start|from|to|backlogs?)$"
)
_SECONDS_KEY = "(TTL|Seconds)$"
_DURATION_KEY = "(Millis|tickTime|width|tolerance|delay|Backwards)$"
_ID_KEY = "(?i)(ids?|version|change|undoes|undoneby|index|offset|partition|ledger|transaction|entry)$"


class Column(Struct, frozen=True):
    """A table column: header, how to get the value (attribute, JSON key, or function of the record), and its kind.

    Kinds: ``text``; ``prose``, words that may be folded; ``names``, a list of which people see
    the first and how many more; ``number``, with thousands separated; ``id``, digits as they are
    (ledgers, entries, offsets); ``size`` (bytes, with a unit); ``bytes``, a size in a terminal and else a number;
    ``duration`` (ms) and ``seconds``, as ``1h30m``; ``age`` (ms), to two units, one that lies ahead ``in 2h``; ``offset`` (ms), with
    its sign; ``time`` (epoch ms), ISO 8601 in the zone of ``times_shown_in``. ``drop``: a narrow terminal leaves out the column
    with the lowest number first; 0: never. ``tone``: the key of ``TONES`` that a value has. ``sums``: values add up to what
    ``--total`` shows. ``padded``: in a pipe, the other rows are not padded to a cell that is wider than this; None: to any.
    ``is_rendered``: the values are cells already. ``sparse``: a terminal leaves the column out where no row has a value.
    """

    header: str
    getter: str | Callable[[Any], object]  # Any: the record's own type
    kind: str = "text"
    drop: int = 0
    tone: Callable[[Any], str] | None = None  # Any: the column's own values
    sums: bool = False
    padded: int | None = None
    is_rendered: bool = False
    sparse: bool = False

    def value(self, record: object) -> object:
        """Return the column's value in a record; None if the record has no such key."""
        getter = self.getter
        if not isinstance(getter, str):
            return getter(record)
        if isinstance(record, dict):
            return record.get(getter)
        value = getattr(record, getter, _ABSENT)
        if value is not _ABSENT:
            return own_text(record, getter) if getter in OWN_TEXT else value
        document = to_json(record)
        return document.get(self.getter) if isinstance(document, dict) else document

    def values(self, records: Sequence[object]) -> list[object]:
        """Return the column's value in each record (objects, not dicts), at half the cost of single calls."""
        getter = self.getter
        if isinstance(getter, str) and getter.isidentifier() and getter not in OWN_TEXT:
            with suppress(AttributeError):
                return [*map(attrgetter(getter), records)]
        return [self.value(record) for record in records]

    @property
    def is_right(self) -> bool:
        return self.kind not in ("text", "prose", "names", "time")

    @property
    def in_terminal(self) -> Column:
        """The column as people read it: bytes have units."""
        if self.kind != "bytes":
            return self
        return Column(self.header, self.getter, "size", self.drop, self.tone, self.sums, self.padded)

    def tone_of(self, record: object) -> str:
        """Return the tone (color) of the column's value in a record; empty: none."""
        return "" if self.tone is None else self.tone(self.value(record))

    def cell(self, record: object, *, bare: bool = False) -> str:
        if self.is_rendered and not isinstance(self.getter, str):
            return self.getter(record)  # type: ignore[return-value]
        return render_cell(self.value(record), self.kind, bare=bare)


def telling(columns: Sequence[Column], records: Sequence[object]) -> tuple[Column, ...]:
    """Return the columns that have a value other than 0 or empty in some record; all columns without records."""
    return tuple(
        column
        for column in columns
        if not records or any(column.value(record) not in (None, 0, "") for record in records)
    )


def render_cell(value: object, kind: str = "text", *, bare: bool = False) -> str:
    """Return a value as a cell's text; None is empty, a message id is ``L:E``.

    With ``bare``, for programs that read CSV or text, numbers have no separators or units, as in JSON.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return clean_text(str.__str__(value))  # of an enumeration its value
    if kind == "names" and isinstance(value, list):
        shown = value if bare else value[:_NAMES_SHOWN]
        return clean_text(", ".join(shown)) + f" and {len(value) - len(shown):,} more" * (len(shown) < len(value))
    if type(value) is int and kind == "number":
        return str(value) if bare else f"{value:,}"
    if type(value) in (int, float):
        return _number_text(value, kind, bare)  # type: ignore[arg-type]
    if isinstance(value, AtLeast):
        return f"≥{int(value)}" if bare else f"≥ {int(value):,}"
    if isinstance(value, Position):
        return str(value)
    if isinstance(value, TopicName):
        return clean_text(str(value))
    plain = to_json(value)
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if is_message_id(plain):
        batch = plain.get("batchIndex", -1)
        return f"{plain['ledgerId']}:{plain['entryId']}" + (f":{batch}" if batch >= 0 else "")
    if isinstance(plain, (dict, list)):
        return clean_text(dump_json(plain, pretty=False)) if plain else ""
    return clean_text(str(plain))


def render_cells(values: Sequence[object], kind: str, *, bare: bool) -> list[str]:
    """Return the cells of a column; equal names, texts and whole numbers are rendered once."""
    if all(one in (int, NoneType, TopicName) or issubclass(one, str) for one in {*map(type, values)}):
        texts = {value: render_cell(value, kind, bare=bare) for value in {*values}}
        return [*map(texts.__getitem__, values)]
    return [render_cell(value, kind, bare=bare) for value in values]


def _number_text(value: float, kind: str, bare: bool) -> str:
    if kind == "time":
        return time_text(int(value))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if bare or kind in ("text", "prose", "id"):
        return str(value)
    if kind == "size":
        return size_text(value)
    if kind == "seconds" and value < 0:
        return "-"  # upstream's -1: no value
    if kind == "offset":
        return _offset_text(int(value))
    if kind == "age":
        from pulsar_admin.store.timespec import format_age_ms

        return format_age_ms(int(value)) if value >= 0 else f"in {format_age_ms(-int(value))}"
    if kind in ("duration", "seconds"):
        duration_ms = value * 1000 if kind == "seconds" else value
        if isinstance(duration_ms, float):
            return f"{duration_ms:,.1f}ms"
        from pulsar_admin.store.timespec import format_duration_ms  # 1 ms, and most output is JSON

        return format_duration_ms(duration_ms)
    return f"{value:,}"


def _offset_text(offset_ms: int) -> str:
    """Return an offset with its sign, to about four digits."""
    from pulsar_admin.store.timespec import format_duration_ms

    size = abs(offset_ms)
    unit = next((unit for limit, unit in _ROUNDED if size >= limit), 1)
    return ("-" if offset_ms < 0 else "+" if offset_ms else "") + format_duration_ms(size // unit * unit)


_ROUNDED = ((86_400_000, 3_600_000), (3_600_000, 60_000), (10_000, 1000))


def time_text(time_ms: int) -> str:
    """Return epoch milliseconds as ISO 8601 with milliseconds, in the zone of ``times_shown_in``, else UTC."""
    from pulsar_admin.store.timespec import shown_time  # 1 ms, and most output is JSON

    return shown_time(time_ms)


def zone_name() -> str:
    """Return the name of the zone that times are shown in."""
    return str(shown_zone.get() or "UTC")


@contextmanager
def times_shown_in(zone: tzinfo | None) -> Iterator[None]:
    """Show times in ``zone`` (None: UTC) while the block runs."""
    token = shown_zone.set(zone)
    try:
        yield
    finally:
        shown_zone.reset(token)


def size_text(size_bytes: float) -> str:
    """Return a size to three digits in units of 1024, as ``--memory`` and ``--size`` take them: ``2.15 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 999.5:  # three digits: larger numbers would be 1e+03
            return f"{size_bytes:.3g} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:,.3g} TiB" if size_bytes < 1000 else f"{size_bytes:,.0f} TiB"


_AGE_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))


def age_text(age_ms: int) -> str:
    """Return an age by its two largest units, rounded down: ``3d20h``, ``12m5s``, ``0s``."""
    for (unit, unit_ms), (part, part_ms) in pairwise(_AGE_UNITS):
        if abs(age_ms) >= unit_ms:
            count, rest = divmod(abs(age_ms), unit_ms)
            return f"{'-' * (age_ms < 0)}{count:,}{unit}{rest // part_ms}{part}"
    return f"{'-' * (age_ms <= -1000)}{abs(age_ms) // 1000}s"


def kind_of(key: str, value: object) -> str:
    """Return the kind of a number by its JSON key alone."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "text"
    if value >= _FIRST_TIME_MS and re.search(_TIME_KEY, key):
        return "time"
    patterns = (("seconds", _SECONDS_KEY), ("duration", _DURATION_KEY), ("id", _ID_KEY))
    return next((kind for kind, pattern in patterns if re.search(pattern, key)), "number")


def words_of(value: object) -> str:
    """Return a JSON value as words: ``retentionTimeInMinutes 10, retentionSizeInMB 5``, ``eu, us``."""
    if isinstance(value, dict):
        return ", ".join(f"{clean_text(str(key))} {words_of(item)}".rstrip() for key, item in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(words_of, value)) or "none"
    return render_cell(value)


def is_message_id(value: object) -> bool:
    """Return whether a JSON value is a position: ledger and entry, maybe partition and batch index, nothing else."""
    if not isinstance(value, dict):
        return False
    return {"ledgerId", "entryId"} <= value.keys() <= {"ledgerId", "entryId", "partitionIndex", "batchIndex"}


def derived_columns(record: object) -> tuple[Column, ...]:
    """Return columns for a record whose command defines none: one per top-level JSON key."""
    value = to_json(record)
    if not isinstance(value, dict):
        return (Column("VALUE", lambda item: item),)
    if hasattr(type(record), "JSON_OF_TOPIC"):  # positions in it are its partition's in JSON alone
        return tuple(derived_column(key, item, _in_json(key)) for key, item in value.items())
    return tuple(derived_column(key, item, Column(key, key).value) for key, item in value.items())


def _in_json(key: str) -> Callable[[Any], object]:  # Any: the record's own type
    return lambda record: to_json(record).get(key)


def derived_column(key: str, first: object, getter: Callable[[Any], object]) -> Column:  # Any: the record's own type
    """Return a column whose value ``getter`` derives from the JSON value under ``key``, if the record has the key ``first``."""
    if not first and not isinstance(first, (str, bool)) and re.search(_TIME_KEY, key):
        first = _FIRST_TIME_MS  # not set in this record, and maybe in the next
    kind = kind_of(key, first)
    if kind != "time":
        return Column(clean_text(key), getter, kind)

    def value(record: object) -> object:
        cell = getter(record)
        return cell if kind_of(key, cell) == "time" else render_cell(cell)

    return Column(clean_text(key), value, kind)
