"""Tests of a value by a path into it, as ``$.order.id=42``; the paths are a part of RFC 9535.

A path is ``$`` and steps ``.name``, ``['name']``, ``[3]`` (``[-1]``: the last), ``.*`` and ``[*]``. Behind it a comparison with a JSON
value or a bare text, or none: the path leads to something then.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from pulsar_admin.store.errors import InvalidValue

_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]=!<>~'"\s*]+)|\[(?P<index>-?\d+)\]|\[(?P<quoted>'[^']*'|"[^"]*")\]|(?P<any>\.\*|\[\*\])"""
)
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {  # Any: two texts or two numbers
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPARISON = re.compile(r"\s*(?P<sign>!=|<=|>=|=|<|>)\s*(?P<wanted>.*)\Z", re.DOTALL)
Step = str | int | None
"""A member's name, an index, or None for all of them."""


class PathTest(Struct, frozen=True):
    """A path and what is there. ``sign`` None: anything; ``wanted`` as it was typed."""

    steps: tuple[Step, ...]
    sign: str | None = None
    wanted: str = ""

    def holds(self, value: object) -> bool:
        """Whether something that the path leads to in VALUE, parsed JSON, passes."""
        return any(self._passes(found) for found in _lead(value, self.steps))

    def _passes(self, found: object) -> bool:
        if self.sign is None:
            return True
        wanted = _parsed(self.wanted)
        if self.sign not in _ORDERS:
            same = _same(found, wanted) or found == self.wanted
            return same == (self.sign == "=")
        order = _ORDERS[self.sign]
        if isinstance(found, str):
            return order(found, wanted if isinstance(wanted, str) else self.wanted)
        return _is_number(found) and _is_number(wanted) and order(found, wanted)


def parse_path_test(text: str) -> PathTest:
    """Return the test that TEXT writes; raises InvalidValue."""
    if not text.startswith("$"):
        raise _wrong(text, 0)
    at, steps = 1, list[Step]()
    while step := _STEP.match(text, at):
        at = step.end()
        if step["name"] is not None:
            steps.append(step["name"])
        elif step["index"] is not None:
            steps.append(int(step["index"]))
        else:
            steps.append(step["quoted"][1:-1] if step["quoted"] else None)
    rest = text[at:]
    if not rest.strip():
        return PathTest(tuple(steps))
    found = _COMPARISON.match(rest)
    if found is None:
        raise _wrong(text, at)
    return PathTest(tuple(steps), found["sign"], found["wanted"])


def _wrong(text: str, at: int) -> InvalidValue:
    return InvalidValue(
        f"{text!r} is not a path into a value: {text[at:]!r} is not understood",
        hint="write $.order.id=42, $.items[0].sku, $['a name']!=x; also < <= > >=",
        value=text,
    )


def _lead(value: object, steps: tuple[Step, ...]) -> Iterator[object]:
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if step is None:
        members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for member in members:
            yield from _lead(member, rest)
    elif isinstance(step, str):
        if isinstance(value, dict) and step in value:
            yield from _lead(value[step], rest)
    elif isinstance(value, list) and -len(value) <= step < len(value):
        yield from _lead(value[step], rest)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _same(found: object, wanted: object) -> bool:
    return found == wanted and isinstance(found, bool) == isinstance(wanted, bool)
