"""JSON as Gson's pretty printer lays it out, which pulsar-admin uses for schemas: no nulls, an element a line, HTML escaped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

_HTML = {ord(char): f"\\u{ord(char):04x}" for char in "<>&='\u2028\u2029"}


class _Number(str):
    """A number as the text had it."""


def gson_text(value: object, parsed: tuple[str, ...] = ()) -> str:
    """Return a value as JSON; texts under the keys in ``parsed`` are JSON themselves, unless damaged, and are laid out as such."""
    return "".join(_parts(value, "", parsed))


def _parts(value: Any, margin: str, parsed: tuple[str, ...]) -> Iterator[str]:  # Any: JSON
    inner = margin + "  "
    if isinstance(value, Mapping):
        kept = [(key, one) for key, one in value.items() if one is not None]
        opening, closing = "{", "}"
    elif isinstance(value, list):
        kept = [("", one) for one in value]
        opening, closing = "[", "]"
    else:
        yield str(value) if isinstance(value, _Number) else _text(value)
        return
    yield opening
    for place, (key, one) in enumerate(kept):
        yield f"{',' if place else ''}\n{inner}"
        if opening == "{":
            yield f"{_text(key)}: "
        inside = one
        with suppress(ValueError, RecursionError):
            inside = json.loads(one, parse_float=_Number, parse_int=_Number) if key in parsed else one
        yield from _parts(inside, inner, () if key in parsed else parsed)
    yield f"\n{margin}{closing}" if kept else closing


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).translate(_HTML)
