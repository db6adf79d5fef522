"""Counts and lists in sentences: ``1 entry is``, ``1,203 entries are``, ``7, 8 and 9``, ``7, 8 and 5 more``; the zone of times in them."""

from __future__ import annotations

import re
from contextvars import ContextVar
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import tzinfo

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
    """Return ``one`` for a count of 1, else ``many``, which is ``one`` with an s, or what ``_PLURALS`` knows, where it is not given."""
    return one if count == 1 else many or _PLURALS.get(one, f"{one}s")


def listed(items: Iterable[object], most: int = 10) -> str:
    """Return ``items`` as a sentence lists them: the first ``most`` of them, and how many more there are."""
    words = [*map(str, items)]
    if len(words) > most:
        words = [*words[:most], f"{len(words) - most:,} more"]
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def counted(count: int, one: str, many: str = "") -> str:
    """Return ``count``, in groups of three digits, and the noun (with its verb, where ``one`` and ``many`` have one) that fits it."""
    return f"{count:,} {plural(count, one, many)}"


def clean_text(text: str) -> str:
    """Return ``text``, a name or one message, with every character that is not seen escaped, line breaks too."""
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
    """Return the JSON key of every field of ``cls`` that has one: not of those in its ``JSON_HIDDEN``."""
    hidden = getattr(cls, "JSON_HIDDEN", ())
    names = zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True)
    return {name: camel_case(name) if name == key else key for name, key in names if name not in hidden}


class Answer(Struct, frozen=True):
    """A record that callers get. Its ``repr`` is one line: of its first fields, or of those that its class names in ``SHOWN``; whoever
    wants all of a record takes ``msgspec.structs.asdict``.
    """

    def __repr__(self) -> str:
        return one_line(self)


def one_line(record: Any) -> str:  # Any: a Struct, or a named tuple of what there may be millions
    """Return ``Name(field=value, len(rows)=3 …)`` of the public fields of ``record``."""
    if isinstance(record, tuple):
        names, usual = record._fields, record._field_defaults  # type: ignore[attr-defined]  # of a named tuple
    else:
        names, defaults = record.__struct_fields__, record.__struct_defaults__
        usual = dict(zip(reversed(names), reversed(defaults)))  # the last fields have defaults  # noqa: B905
    public = [name for name in names if not name.startswith("_")]
    fields = {name: getattr(record, name) for name in getattr(record, "SHOWN", public)}
    return line_of(type(record).__name__, fields, usual, is_whole=len(fields) == len(public))


def line_of(
    kind: str, fields: Mapping[str, object], usual: Mapping[str, object] | None = None, *, is_whole: bool = True
) -> str:
    """Return ``Kind(field=value, len(rows)=3 …)``, at most ``_MOST_LETTERS`` long.

    A longer one leaves out fields that are zero, empty or ``usual``. ``…`` stands for left-out fields, also where
    ``fields`` are not all.
    """
    shown = [(_shown_field(name, value), _says(name, value, usual or {})) for name, value in fields.items()]
    if sum(len(text) + 2 for text, _ in shown) > _MOST_LETTERS:
        shown = [(text, says) for text, says in shown if says]
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
    """Return ``<text>``, cut to the length of a ``repr``: for answers that are not records."""
    return f"<{shortened(text, _MOST_LETTERS - 2)}>"


def shortened(text: str, most: int) -> str:
    """Return a text cut to ``most`` letters with ``…``: at the start of a path, else at the end."""
    if len(text) <= most:
        return text
    return f"…{text[1 - most :]}" if text.startswith("/") else f"{text[: most - 1]}…"


def _says(name: str, value: object, usual: Mapping[str, object]) -> bool:
    """Whether a field says more than nothing."""
    says = len(value) > 0 if hasattr(value, "__len__") else bool(value) or name.endswith("_id")
    return says and value is not usual.get(name)


def _shown_field(name: str, value: object) -> str:
    if isinstance(value, Enum):
        value = value.value if isinstance(value, str) else value.name
    if isinstance(value, str):
        return f"{name}={shortened(value, _MOST_OF_TEXT)!r}"
    if value is None or isinstance(value, (bool, int, float)):
        return f"{name}={value!r}"
    if isinstance(value, Struct):
        is_named = type(value).__str__ is not object.__str__
        return f"{name}={value}" if is_named else f"{name}={type(value).__name__}(…)"
    try:
        return f"len({name})={len(value)}"  # type: ignore[arg-type]  # most that is left has one
    except TypeError:
        return f"{name}={type(value).__name__}(…)"
