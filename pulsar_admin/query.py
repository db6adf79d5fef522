"""Queries on a list's rows: ``--where``, ``--sort``, ``--top`` and ``--columns``, on values, never on their text.

A column is named by a table's header, by a JSON key, or by keys joined by dots, in upper or lower case, with or without
blanks and dashes. ``--where`` and ``--columns`` stream; ``--top N`` holds N rows in memory; ``--sort`` without it holds all.
"""

from __future__ import annotations

import heapq
import itertools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pulsar_admin.columns import Column, derived_column, is_message_id, kind_of, render_cell
from pulsar_admin.jsonify import to_json
from pulsar_admin.store.errors import InvalidValue, StoreError
from pulsar_admin.store.names import Position
from pulsar_admin.store.wording import json_keys

if TYPE_CHECKING:
    from datetime import tzinfo

AHEAD_ROWS = 1000
"""How many rows are looked through for a JSON key that the first one lacks."""
_CONDITION = re.compile(r"\s*([^=!<>~]+?)\s*(!=|!~|<=|>=|==|=|<|>|~)\s*(.*?)\s*", re.S)
_POSITION = re.compile(r"(-?\d{1,19}):(-?\d{1,19})(?::(-?\d{1,19}))?", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?|[+-]?\d{1,40}(?:\.\d{1,40})?", re.ASCII)
_SIZE = re.compile(r"(\d{1,19}(?:\.\d{1,9})?)\s*([kmgt]?)(?:i?b)?", re.ASCII | re.I)
_SCHEME = "persistent://"
_HOLDS = {
    "time": "write a time: 2024-05-01T09:00:00Z, @1714546800000, -2h",
    "duration": "write a duration: 500ms, 30s, 2h, 1h30m",
    "seconds": "write a duration: 30s, 2h, 1h30m",
    "size": "write a size: 4096, 100K, 10MiB, 1.5G",
    "bytes": "write a size: 4096, 100K, 10MiB, 1.5G",
}
_EXAMPLE = "write --where BYTES>10MiB, STATE=OPEN, TOPIC~orders, OWNER!=- (in quotes: < and > are the shell's)"


class Condition(Struct, frozen=True):
    """One ``--where``: column as typed, operator, and the text to compare with."""

    column: str
    operator: str
    operand: str


class SortKey(Struct, frozen=True):
    """One column of ``--sort``, as typed."""

    column: str
    descending: bool


class Query(Struct, frozen=True):
    """The query on a list's rows; ``now_ms`` and ``tz`` are for times in ``--where``."""

    where: tuple[Condition, ...]
    sort: tuple[SortKey, ...]
    top: int | None
    columns: tuple[str, ...]
    now_ms: int
    tz: tzinfo | None

    @property
    def asks_keys(self) -> bool:
        """Whether the query asks only for columns, which a single object also has."""
        return not (self.where or self.sort or self.top)

    @property
    def options(self) -> str:
        """The options given, for messages."""
        given = {"--where": self.where, "--sort": self.sort, "--top": self.top, "--columns": self.columns}
        return ", ".join(name for name, value in given.items() if value)


Raw = Mapping[str, Any]  # Any: raw option values from click


def parse_query(given: Raw, *, now_ms: int, tz: tzinfo | None) -> Query | None:
    """Return the query in the command line's options, None if there is none; raises InvalidValue."""
    where = tuple(_parse_condition(text) for text in given.get("where") or ())
    sort = tuple(_parse_sort(word) for word in _words("--sort", given.get("sort") or (), "BYTES:desc"))
    columns = tuple(_words("--columns", given.get("columns") or (), "TOPIC,BYTES"))
    top = given.get("top")
    if not (where or sort or columns or top):
        return None
    return Query(where, sort, top, columns, now_ms, tz)


def _words(option: str, texts: Iterable[str], example: str) -> Iterator[str]:
    for word in (word.strip() for text in texts for word in text.split(",")):
        if not word:
            raise InvalidValue(f"{option}: a name of a column is empty", hint=f"write {option} {example}")
        yield word


def _parse_condition(text: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    if not match:
        raise InvalidValue(f"--where: {text!r} is not COLUMN, operator and value", hint=_EXAMPLE, value=text)
    column, operator, operand = match.groups()
    if operator in ("~", "!~"):
        try:
            re.compile(operand)
        except (re.error, RecursionError, OverflowError) as error:
            raise InvalidValue(f"--where: {operand!r} is not a regular expression: {error}", hint=_EXAMPLE) from error
    return Condition(column, "=" if operator == "==" else operator, operand)


def _parse_sort(word: str) -> SortKey:
    name, _, direction = word.rpartition(":")
    if not name:
        return SortKey(word, False)
    if direction.lower() not in ("asc", "desc"):
        raise InvalidValue(f"--sort: {word!r} ends in no direction", hint="write BYTES, BYTES:asc or BYTES:desc")
    return SortKey(name, direction.lower() == "desc")


# -- from rows to rows ------------------------------------------------------------------------------------------------


class Chosen(Struct, frozen=True):
    """The rows to show, and the columns to show of them."""

    rows: Iterator[object]
    columns: tuple[Column, ...]


def choose_rows(query: Query, rows: Iterable[object], columns: Sequence[Column], form: str | None) -> Chosen:
    """Return the queried rows in their order, and the columns to show.

    In JSON formats rows become objects of the chosen columns. Raises InvalidValue for a column that no row has.
    """
    known = _Known(columns, rows)
    tests = [_test_of(known.find("--where", one.column), one, query) for one in query.where]
    keys = [(known.find("--sort", one.column), one.descending) for one in query.sort]
    as_json = form in ("json", "jsonl")
    shown = [known.find_shown(name, as_json=as_json) for name in query.columns]
    found: Iterator[object] = (row for row in known.rows() if all(test(row) for test in tests))
    if keys:
        found = _ordered(found, keys, query.top)
    elif query.top:
        found = itertools.islice(found, query.top)
    if not shown:
        return Chosen(found, tuple(columns))
    if as_json:
        found = (
            row if isinstance(row, str) else {one.header: to_json(one.value(row)) for one in shown} for row in found
        )
    return Chosen(found, tuple(shown))


def choose_keys(query: Query, document: object) -> dict[str, object]:
    """Return the members of one object that ``--columns`` names; raises InvalidValue for a key that it lacks."""
    known = _Known((), [document])
    columns = [known.find_shown(name, as_json=True) for name in query.columns]
    return {column.header: to_json(column.value(document)) for column in columns}


def _letters(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).casefold()


class _Known:
    """The columns that rows have: those of the table, and the JSON keys of the first rows."""

    def __init__(self, columns: Sequence[Column], rows: Iterable[object]) -> None:
        self._columns = columns
        self._stream = iter(rows)
        self._ahead: list[object] = []

    def rows(self) -> Iterator[object]:
        return itertools.chain(self._ahead, self._stream)

    def find_shown(self, name: str, *, as_json: bool) -> Column:
        """Return the column that ``--columns`` names: with values for JSON, or with cells for a table."""
        column = self.find("--columns", name, key_first=as_json)
        if as_json or column in self._columns or not self._ahead:
            return column
        first = next((value for value in map(column.value, self._ahead) if value is not None), None)
        return column if column.kind != "text" else derived_column(column.header, first, column.value)

    def find(self, option: str, name: str, *, key_first: bool = False) -> Column:
        """Return the column that an option names, with its JSON key as header if ``key_first``; raises InvalidValue."""
        column = next((one for one in self._columns if _letters(one.header) == _letters(name)), None)
        if column is not None and not key_first:
            return column
        key = self._key(name, ahead=1 if column is not None else AHEAD_ROWS)
        if key is not None:
            return Column(key, _getter(key), _kind_of_key(self._columns, key))
        if column is not None:
            return Column(self._key_of(column), column.value, column.kind)
        if not self._ahead:  # an empty list: nobody knows its keys
            return Column(name, lambda row: None)
        raise self._unknown(option, name)

    def _key(self, name: str, *, ahead: int) -> str | None:
        """Return the JSON key in the first ``ahead`` rows that a name means; keys of nested objects are joined by dots."""
        for number in range(ahead):
            if number == len(self._ahead):
                row = next(self._stream, None)
                if row is None:
                    return None
                self._ahead.append(row)
            path = _path(self._ahead[number], name)
            if path is not None:
                return path
        return None

    def _key_of(self, column: Column) -> str:
        """Return the JSON key of a column's value; for a computed column its header in camel case."""
        first = self._ahead[0] if self._ahead else None
        if isinstance(column.getter, str):
            return (
                json_keys(type(first)).get(column.getter, column.getter) if isinstance(first, Struct) else column.getter
            )
        words: list[str] = re.findall(r"\w+", column.header.lower()) or [column.header]
        return words[0] + "".join(map(str.capitalize, words[1:]))

    def _unknown(self, option: str, name: str) -> InvalidValue:
        from difflib import get_close_matches

        headers = [column.header for column in self._columns]
        keys = list(dict.fromkeys(key for row in self._ahead for key in _keys(row)))
        by_letters = {_letters(one): one for one in (*keys, *headers)}
        near = [by_letters[one] for one in get_close_matches(_letters(name), by_letters, n=2)]
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        table = f"this table has {', '.join(headers)}" if headers else ""
        json = f"its JSON has {', '.join(keys)}" if keys and keys != headers else ""
        hint = meant + "; ".join(filter(None, (table, json)))
        return InvalidValue(f"{option}: there is no column {name!r}", hint=hint, value=name)


def _keys(row: object) -> Iterable[str]:
    if isinstance(row, Mapping):
        return map(str, row)
    if isinstance(row, Struct):
        return json_keys(type(row)).values()
    plain = to_json(row)
    return plain if isinstance(plain, dict) else ()


def _path(row: object, name: str) -> str | None:
    """Return the key in a row (or keys joined by dots) that a name means, None without one."""
    keys = {_letters(key): key for key in reversed(list(_keys(row)))}
    if name in keys.values():
        return name
    if (key := keys.get(_letters(name))) is not None:
        return key
    head, dot, rest = name.partition(".")
    head_key = keys.get(_letters(head))
    inner = _path(_getter(head_key)(row), rest) if dot and head_key is not None else None
    return None if inner is None else f"{head_key}.{inner}"


def _getter(key: str) -> Callable[[object], Any]:  # Any: JSON values
    def value(row: object) -> Any:  # Any: as above
        found = row if isinstance(row, dict) else to_json(row)
        if isinstance(found, dict) and key in found:
            return found[key]
        for part in key.split("."):
            found = to_json(found.get(part)) if isinstance(found, dict) else None
        return found

    return value


def _kind_of_key(columns: Sequence[Column], key: str) -> str:
    """Return the kind of the table column that shows a key unchanged, otherwise ``text``: values then decide how to
    compare."""
    return next((column.kind for column in columns if column.getter == key), "text")


# -- values -----------------------------------------------------------------------------------------------------------


def _comparable(value: object, kind: str) -> tuple[int, Any] | None:  # Any: a number, a position, a text
    """Return a sortable form of a value, numbers before positions before texts; None for no value."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, (bool, int, float)):
        return (0, value) if value == value else None  # nan is no value
    if isinstance(value, Position):
        return 1, (value.ledger_id, value.entry_id, value.batch_index)
    if is_message_id(value):
        return 1, (value["ledgerId"], value["entryId"], value.get("batchIndex", -1))  # type: ignore[index,attr-defined]
    text = value if isinstance(value, str) else render_cell(value)
    if match := _POSITION.fullmatch(text):
        return 1, tuple(-1 if part is None else int(part) for part in match.groups())
    if kind != "text" and _NUMBER.fullmatch(text):
        return 0, float(text.replace(",", ""))
    return (2, text) if text else None


class _Descending:
    """Wraps a value to reverse its order."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:  # Any: what ``_comparable`` returned
        self.value = value

    def __lt__(self, other: _Descending) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and other.value == self.value

    __hash__ = None  # type: ignore[assignment]


def _ordered(rows: Iterable[object], keys: Sequence[tuple[Column, bool]], top: int | None) -> Iterator[object]:
    """Yield rows stably sorted by ``keys``, those without a value last; with ``top`` only the first ones, holding no
    others."""

    def order(row: object) -> list[tuple[bool, Any]]:  # Any: comparable with its like
        found: list[tuple[bool, Any]] = []  # Any: as above
        for column, descending in keys:
            value = _comparable(column.value(row), column.kind)
            found.append((value is None, 0 if value is None else _Descending(value) if descending else value))
        return found

    yield from sorted(rows, key=order) if top is None else heapq.nsmallest(top, rows, key=order)


def _test_of(column: Column, condition: Condition, query: Query) -> Callable[[object], bool]:
    """Return a test of a row against a condition: in a list one value must match, or for ``!=`` and ``!~`` none may."""
    compare = _Comparison(column, condition, query)
    negated = condition.operator in ("!=", "!~")

    def test(row: object) -> bool:
        value = column.value(row)
        values = value if isinstance(value, (list, tuple, set, frozenset)) and value else [value]
        if isinstance(value, Position):
            values = [value]
        return any(map(compare.holds, values)) is not negated

    return test


class _Comparison:
    """Compares values with the text of a condition, which is interpreted by the value's kind."""

    def __init__(self, column: Column, condition: Condition, query: Query) -> None:
        self._column = column
        self._text = condition.operand
        self._sign = condition.operator.removeprefix("!")
        self._query = query
        self._pattern = re.compile(condition.operand) if self._sign == "~" else None
        self._numbers: dict[str, float] = {}

    def holds(self, value: object) -> bool:
        """Return whether the value matches the operator; the caller negates ``=`` for ``!=``."""
        if self._pattern is not None:
            return self._pattern.search(render_cell(value, self._column.kind, bare=True)) is not None
        comparable = _comparable(value, self._column.kind)
        if comparable is None or (self._text == "" and self._sign == "="):
            return self._text == "" and self._sign == "=" and comparable is None
        rank, mine = comparable
        other: object
        if isinstance(mine, bool):
            mine, other = render_cell(mine), self._text.lower()
        elif rank == 0:
            other = self._number(mine)
        elif rank == 1 and (match := _POSITION.fullmatch(self._text)):
            other = tuple(-1 if part is None else int(part) for part in match.groups())
        else:
            mine, other = render_cell(value).removeprefix(_SCHEME), self._text.removeprefix(_SCHEME)
        return bool(_SIGNS[self._sign](mine, other))

    def _number(self, value: float) -> float:
        kind = self._column.kind if self._column.kind != "text" else kind_of(self._column.header, value)
        if kind not in self._numbers:
            try:
                self._numbers[kind] = _parse_number(self._text, kind, self._query)
            except StoreError as error:
                where = f"--where {self._column.header}"
                raise InvalidValue(f"{where}: {error.message}", hint=error.hint, value=self._text) from error
        return self._numbers[kind]


_SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {  # Any: comparable with its like
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


def _parse_number(text: str, kind: str, query: Query) -> float:
    """Return the text of a condition as a number, bytes, a duration or a time in ms, by the column's kind."""
    if kind in ("duration", "seconds", "age", "offset"):
        from pulsar_admin.store.timespec import parse_duration_ms

        duration_ms = parse_duration_ms(text, allow_negative=True)
        return duration_ms / 1000 if kind == "seconds" else duration_ms
    if kind == "time" and not text.isdigit():
        from pulsar_admin.store.timespec import parse_time

        return parse_time(text, now_ms=query.now_ms, tz=query.tz)
    if _NUMBER.fullmatch(text):
        plain = text.replace(",", "")
        return float(plain) if "." in plain else int(plain)
    if kind in ("size", "bytes", "number") and (match := _SIZE.fullmatch(text)):
        return float(match[1]) * (1 << 10 * " kmgt".index(match[2].lower() or " "))
    raise InvalidValue(f"{text!r} is not a number", hint=_HOLDS.get(kind, "write a number: 10, 1000, 10M"), value=text)
