"""Values in text and files from outside (plans, settings, resets, dumps): checked against limits before they are used.

Python's own parsers accept what no such file should contain: infinities, numbers of thousands of digits, lone
surrogates, digits of every script, nesting as deep as the stack.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from pulsar_admin.store.errors import reason_of
from pulsar_admin.store.names import LONG_MAX

DEPTH_MAX = 40
"""How deep lists and objects may lie in each other; the deepest of ours, a plan's report, has 8."""

_SURROGATE = rb"\\u[dD][89a-fA-F]"


def json_value(data: bytes | str, *, once: bool = False) -> Any:  # Any: a JSON value
    """Return the JSON value in UTF-8 bytes; raises ValueError for invalid JSON, deep nesting and numbers that are not finite.

    ``once``: also for an object with a repeated name, of which people see one value and programs use the other.
    """
    if isinstance(data, str):
        data = data.encode()
    try:
        pairs = _named_once if once else None
        value = json.loads(data.decode(), parse_float=finite, parse_constant=finite, object_pairs_hook=pairs)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(reason_of(error)) from error
    except RecursionError as error:
        raise ValueError(f"lists or objects are more than {DEPTH_MAX} deep") from error
    # Few documents have so many brackets or any surrogate: walking through the rest would cost as much as reading them.
    if data.count(b"[") + data.count(b"{") > DEPTH_MAX or re.search(_SURROGATE, data):
        for level in levels(value, DEPTH_MAX):
            for item in level:
                if isinstance(item, str):
                    item.encode()  # UnicodeEncodeError is a ValueError
    return value


def json_object(data: bytes | str, *, once: bool = False) -> dict[str, Any]:  # Any: JSON values
    """Return the JSON object in some bytes; raises ValueError as ``json_value``, and for another value."""
    value = json_value(data, once=once)
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, found {kind_of(value)}")
    return value


def kind_of(value: object) -> str:
    """Return JSON's name for the kind of a value."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    names: dict[type, str] = {str: "a text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def integer(value: object, what: str, low: int = 0, high: int = LONG_MAX) -> int:
    """Return a whole number from ``low`` to ``high``; raises ValueError naming ``what``, also for True and 1.0."""
    if type(value) is not int:
        raise ValueError(f"{what}: expected a whole number, found {kind_of(value)}")
    if not low <= value <= high:
        raise ValueError(
            f"{what}: expected {low} to {high}, found {value if abs(value) < 10**20 else 'a longer number'}"
        )
    return value


def text(value: object, what: str) -> str:
    """Return a text; raises ValueError naming ``what``."""
    if not isinstance(value, str):
        raise ValueError(f"{what}: expected a text, found {kind_of(value)}")
    return value


def parse_integer(word: str) -> int | None:
    """Return the number in ASCII digits; None for anything else and for more than 64 bits."""
    number = int(word) if re.fullmatch("[0-9]{1,19}", word) else None
    return number if number is not None and number <= LONG_MAX else None


def finite(word: str) -> float:
    """Return a number; raises ValueError for NaN and infinities, which JSON lacks."""
    number = float(word)
    if not math.isfinite(number):
        raise ValueError(f"{word[:20]} is not a number of JSON")
    return number


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:  # Any: JSON values
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def levels(value: object, most: int) -> Iterator[list[object]]:
    """Yield a value, then the values in it, and so on, names included; raises ValueError for lists and objects nested
    deeper than ``most``."""
    level = [value]
    for _ in range(most):
        yield level
        inner: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inner += [*item.keys(), *item.values()]
            elif isinstance(item, list):
                inner += item
        level = inner
        if not level:
            return
    raise ValueError(f"lists or objects are more than {most} deep")
