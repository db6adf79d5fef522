"""JSON as Gson's pretty printer lays it out, which pulsar-admin uses for schemas: no nulls, an element a line, HTML escaped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

_HTML = {ord(char): f"\\u{ord(char):04x}" for char in "<>&='\u2028\u2029"}


class _Number(str):
    """A number as the text had it."""


def parsed(text: str) -> Any:  # Any: JSON
    """Return the JSON in a text, numbers as they are written; a damaged text as it is."""
    with suppress(ValueError, RecursionError):
        return json.loads(text, parse_float=_Number, parse_int=_Number)
    return text


def gson_text(value: object, *, pretty: bool = True) -> str:
    """Return a value as JSON; without ``pretty`` in one line, without blanks."""
    return "".join(_parts(value, "\n" if pretty else "", "  " if pretty else "", ": " if pretty else ":"))


def _parts(value: Any, margin: str, step: str, colon: str) -> Iterator[str]:  # Any: JSON
    inner = margin + step
    if isinstance(value, Mapping):
        kept = [(f"{_text(key)}{colon}", one) for key, one in value.items() if one is not None]
        opening, closing = "{", "}"
    elif isinstance(value, list):
        kept = [("", one) for one in value]
        opening, closing = "[", "]"
    else:
        yield str(value) if isinstance(value, _Number) else _text(value)
        return
    yield opening
    for place, (name, one) in enumerate(kept):
        yield f"{',' if place else ''}{inner}{name}"
        yield from _parts(one, inner, step, colon)
    yield f"{margin}{closing}" if kept else closing


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).translate(_HTML)
