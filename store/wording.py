"""Counts and lists in sentences: ``1 entry is``, ``1,203 entries are``, ``7, 8 and 9``, ``7, 8 and 5 more``; the zone
of times in them; and the one-line and notebook forms of answers."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime, tzinfo
from enum import Enum
from functools import cache
from itertools import islice
from typing import Any, TypeVar

from msgspec import Struct

shown_zone: ContextVar[tzinfo | None] = ContextVar("shown_zone", default=None)
"""The zone of times in tables and sentences, as ``--tz`` asked for it; None: UTC."""
_MOST_LETTERS, _MOST_OF_TEXT = 120, 48
"""How long the ``repr`` of an answer becomes, and a text in it."""
HIDDEN = (
    "\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff0-\ufffb"
    "\U000e0000-\U000e0fff"
)
"""Controls; what reorders or hides text (categories Cf, Zl, Zp of Unicode); halves of surrogate pairs: for a pattern's brackets."""
_PLURALS = {"batch": "batches", "copy": "copies", "entry": "entries"}


def plural(count: int, one: str, many: str = "") -> str:
    """Return ``one`` for a count of 1, else ``many``, by default the plural in ``_PLURALS``, or ``one`` with an s."""
    return one if count == 1 else many or _PLURALS.get(one, f"{one}s")


def listed(items: Iterable[object], most: int = 10) -> str:
    """Return ``items`` as a sentence lists them: at most the first ``most``, and the number of the others."""
    words = [*map(str, items)]
    if len(words) > most:
        words = [*words[:most], f"{len(words) - most:,} more"]
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def counted(count: int, one: str, many: str = "") -> str:
    """Return ``count``, in groups of three digits, followed by ``one`` or ``many``: a noun, perhaps with its verb."""
    return f"{count:,} {plural(count, one, many)}"


def counted_messages(messages: int, uncounted_entries: int | None) -> str:
    """Return a number of messages with the noun: "at least" if some entries have an unknown number of messages."""
    return f"{'at least ' if uncounted_entries else ''}{counted(messages, 'message')}"


def clean_text(text: str) -> str:
    """Return a name or message with every invisible character escaped, line breaks included."""
    if text.isprintable():
        return text
    return re.sub(f"[{HIDDEN}]", lambda match: ascii(match[0])[1:-1], text)


def camel_case(name: str) -> str:
    """Return the JSON key of the Python field ``name``."""
    for suffix in ("_ms", "_bytes"):
        name = name.removesuffix(suffix) or name
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


@cache
def json_keys(cls: type[Struct]) -> dict[str, str]:
    """Return the JSON key of each field of ``cls``, except those in its ``JSON_HIDDEN``."""
    hidden = getattr(cls, "JSON_HIDDEN", ())
    names = zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True)
    return {name: camel_case(name) if name == key else key for name, key in names if name not in hidden}


class Answer(Struct, frozen=True):
    """A record that the Python API returns. Its ``repr`` is one line, with the fields that its class names in
    ``SHOWN``, else the first ones; ``msgspec.structs.asdict`` returns all."""

    def __repr__(self) -> str:
        return one_line(self)

    def _repr_html_(self) -> str:
        """Return a table of the record's fields, for a notebook."""
        return _record_html(self)


class Sparse(Answer, frozen=True):
    """A record whose JSON omits each field that is None if None is its default."""


@cache
def optional_fields(cls: type[Struct]) -> frozenset[str]:
    """Return the fields of ``cls`` that JSON omits if they are None: those in ``JSON_OPTIONAL``, and in a ``Sparse``
    those with the default None."""
    by_default = _defaults_of(cls).items() if issubclass(cls, Sparse) else ()
    return frozenset((*getattr(cls, "JSON_OPTIONAL", ()), *(name for name, value in by_default if value is None)))


def _defaults_of(cls: type[Struct]) -> dict[str, object]:
    return dict(zip(reversed(cls.__struct_fields__), reversed(cls.__struct_defaults__)))  # the last ones have some  # noqa: B905


Row = TypeVar("Row", covariant=True)


class Rows(tuple[Row, ...]):
    """A tuple of answers of one class, as API methods return them; its ``repr`` is one line, a notebook shows it as a
    table."""

    __slots__ = ()

    def __repr__(self) -> str:
        return bracketed(f"{counted(len(self), 'row')}, the first: {self[0]!r}") if self else "()"

    def _repr_html_(self) -> str:
        return _rows_html(self, len(self))


def one_line(record: Any) -> str:  # Any: a Struct, or a named tuple of what there may be millions
    """Return ``Name(field=value, len(rows)=3 …)`` of the public fields of ``record``."""
    if isinstance(record, tuple):
        usual = record._field_defaults  # type: ignore[attr-defined]  # of a named tuple
        optional = frozenset[str]()
    else:
        kind: type[Struct] = type(record)
        usual, optional = _defaults_of(kind), optional_fields(kind)
    public = {key: value for key, value in public_fields(record).items() if value is not None or key not in optional}
    fields = {name: getattr(record, name) for name in getattr(record, "SHOWN", public)}
    return line_of(type(record).__name__, fields, usual, is_whole=len(fields) == len(public))


def public_fields(record: Any) -> dict[str, Any]:  # Any: as above
    """Return the fields of ``record`` that callers see, with their values."""
    names = record.__struct_fields__ if isinstance(record, Struct) else record._fields
    hidden = getattr(record, "JSON_HIDDEN", ())
    return {name: getattr(record, name) for name in names if not name.startswith("_") and name not in hidden}


def line_of(
    kind: str, fields: Mapping[str, object], usual: Mapping[str, object] | None = None, *, is_whole: bool = True
) -> str:
    """Return ``Kind(field=value, len(rows)=3 …)``, at most ``_MOST_LETTERS`` characters.

    A longer line omits fields that are zero, empty or ``usual``. ``…`` marks omitted fields, also those missing in
    ``fields`` (``is_whole`` false).
    """
    shown = [(_shown_field(name, value), _says(name, value, usual or {})) for name, value in fields.items()]
    if sum(len(text) + 2 for text, _ in shown) > _MOST_LETTERS:
        shown = [(text, says) for text, says in shown if says] or shown
    texts, letters = [], len(kind) + len("() …")
    for text, _ in shown:
        letters += len(text) + 2
        if letters > _MOST_LETTERS:
            break
        texts.append(text)
    return (
        f"{kind}({' '.join(filter(None, (', '.join(texts), '' if is_whole and len(texts) == len(fields) else '…')))})"
    )


def bracketed(text: str) -> str:
    """Return ``<text>``, cut to the length of a ``repr``, for answers that are not records."""
    return f"<{shortened(text, _MOST_LETTERS - 2)}>"


def shortened(text: str, most: int) -> str:
    """Return a text cut to ``most`` letters with ``…``: at the start of a path, else at the end."""
    if len(text) <= most:
        return text
    return f"…{text[1 - most :]}" if text.startswith("/") else f"{text[: most - 1]}…"


def _says(name: str, value: object, usual: Mapping[str, object]) -> bool:
    """Whether a field's value is neither empty (an id may be 0) nor the ``usual`` one."""
    return (says(value) or name.endswith("_id")) and value is not usual.get(name)


def says(value: Any) -> bool:  # Any: of a field
    """Whether a value is neither zero, empty nor None."""
    return len(value) > 0 if hasattr(value, "__len__") else bool(value)


def _shown_field(name: str, value: object) -> str:
    if isinstance(value, (str, Enum)):
        value = _text_of(value)
        return f"{name}={shortened(value, _MOST_OF_TEXT)!r}"
    if value is None or isinstance(value, (bool, int, float)):
        return f"{name}={value!r}"
    if isinstance(value, Struct):
        is_shown = type(value).__str__ is not object.__str__ or len(str(value)) <= _MOST_OF_TEXT
        return f"{name}={value}" if is_shown else f"{name}={type(value).__name__}(…)"
    try:
        return f"len({name})={len(value)}"  # type: ignore[arg-type]  # most that is left has one
    except TypeError:
        return f"{name}={type(value).__name__}(…)"


# -- in a notebook: everything is escaped, names come from data ------------------------------------------------------------

_MOST_ROWS = 20
_FIRST_TIME_MS = 10**11
"""Values of fields in ms from here on are times, smaller ones lengths of time."""
_HEAD, _WORDS, _NUMBER = (f' style="text-align: {side}"' for side in ("left", "left", "right"))


def schema_html(title: str, types: Iterable[tuple[str, str]]) -> str:
    """Return an HTML table of the names and types of columns, without rows."""
    cells = [[_cell("column", name), _cell("type", kind)] for name, kind in types]
    return f"<p>{_escaped(title)}</p>{_table(['column', 'type'], cells)}"


def text_html(text: str) -> str:
    """Return a text of several lines as preformatted HTML."""
    from html import escape

    return f"<pre>{escape(text)}</pre>"


def _record_html(record: object) -> str:
    """Return an HTML table of the fields of ``record`` that are not empty; rows in a field become an inner table."""
    fields = {name: value for name, value in public_fields(record).items() if says(value)}
    lines = (
        f"<tr><th{_HEAD}>{_escaped(name)}</th><td{_WORDS}>{_inner_html(name, value)}</td></tr>"
        for name, value in fields.items()
    )
    return f"<table><caption{_HEAD}>{type(record).__name__}</caption><tbody>{''.join(lines)}</tbody></table>"


def _rows_html(rows: Iterable[object], count: int, keys: Iterable[object] = ()) -> str:
    """Return an HTML table of the first of ``count`` records of one class, each after its key if ``keys`` are given.

    Its columns are the fields in the class's ``SHOWN``, else all that are not empty in every row.
    """
    first = [*islice(rows, _MOST_ROWS)]
    fields = [*map(public_fields, first)]
    shown: Sequence[str] = getattr(first[0], "SHOWN", ())
    names = [*shown] or [name for name in fields[0] if any(says(row[name]) for row in fields)]
    cells = [[_cell(name, getattr(row, name)) for name in names] for row in first]
    keyed = [_cell("", key) for key in islice(keys, _MOST_ROWS)]
    lines = [[key, *row] for key, row in zip(keyed, cells, strict=True)] if keyed else cells
    more = f"<p>… and {count - len(first):,} more</p>" if count > len(first) else ""
    return _table([*([""] if keyed else []), *names], lines) + more


def _table(names: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th{_HEAD}>{_escaped(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(name: str, value: object) -> str:
    is_number = isinstance(value, (int, float)) and not isinstance(value, (bool, Enum))
    return f"<td{_NUMBER if is_number else _WORDS}>{_inner_html(name, value)}</td>"


def _inner_html(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        if value and all(isinstance(one, Struct) for one in value.values()):
            return _rows_html(value.values(), len(value), value)
        return "<br/>".join(
            f"{_escaped(str(key))}: {_inner_html(name, one)}" for key, one in islice(value.items(), _MOST_ROWS)
        )
    if isinstance(value, tuple) and value and isinstance(value[0], Answer):
        return _rows_html(value, len(value))
    if isinstance(value, Answer) and type(value).__str__ is object.__str__:
        return _record_html(value)
    if isinstance(value, (tuple, list)):
        return _escaped(listed(value, _MOST_ROWS))
    if not isinstance(value, (int, float)) or isinstance(value, (bool, Enum)):
        return _escaped(_text_of(value))
    if name.endswith("_ms") and value >= _FIRST_TIME_MS:
        with suppress(OverflowError, ValueError):  # a time of no calendar: the number says it
            return datetime.fromtimestamp(value / 1000, UTC).isoformat(" ", "milliseconds")
    return str(value) if name.endswith("_id") else f"{value:,}"


def _text_of(value: object) -> str:
    """Return a value as text; for an enum member its string value, else its name."""
    if isinstance(value, Enum):
        return value.value if isinstance(value, str) else value.name
    return str(value)


def _escaped(text: str) -> str:
    from html import escape  # 4 ms, and no command needs it

    return escape(clean_text(text))
