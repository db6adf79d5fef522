"""What pulsar-admin prints as Java does: the order in which ``HashMap`` and ``HashSet`` go over texts, parts of a text, values as text.

Java 17. A text's hash is spread over a table of a power of two, at least 16, filled to three quarters; who shares a place
comes in the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_TABLE = 16
_INT = 0xFFFFFFFF


def hash_order(names: Iterable[str]) -> list[str]:
    """Return NAMES, each once, in the order of a HashSet to which they were added one by one."""
    distinct = list(dict.fromkeys(names))
    table = _TABLE
    while len(distinct) > table * 3 // 4:
        table *= 2
    return sorted(distinct, key=lambda name: _spread(name) & (table - 1))


def _spread(name: str) -> int:
    units, found = name.encode("utf-16-be", "surrogatepass"), 0
    for place in range(0, len(units), 2):
        found = (31 * found + int.from_bytes(units[place : place + 2])) & _INT
    return found ^ (found >> 16)


def java_split(text: str, separator: str = ",") -> list[str]:
    """Return the parts of TEXT as ``String.split`` does: none that is empty at the end; of an empty text, one."""
    parts = text.split(separator)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def java_text(value: Any) -> str:  # Any: a JSON value
    """Return a JSON value as the toString of Java's List, Map, Boolean … writes it."""
    if isinstance(value, list):
        return f"[{', '.join(map(java_text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}={java_text(one)}' for key, one in value.items())}}}"
    if value is None or isinstance(value, bool):
        return str(value).lower() if value is not None else "null"
    return str(value)
