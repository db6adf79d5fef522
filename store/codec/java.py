"""Java 17's behaviour that shows in output of brokers and pulsar-admin: ``HashMap`` order, ``split``, ``parseInt``,
``toString``."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pulsar_admin.store.names import in_hash_order

Value = TypeVar("Value")


def in_hash_map_order(found: Mapping[str, Value]) -> dict[str, Value]:
    """Return a mapping in the iteration order of a Java ``HashMap`` filled in its order, as topic properties are."""
    return {key: found[key] for key in in_hash_order(found)}


def hash_order(names: Iterable[str]) -> list[str]:
    """Return names, each once, in the order of a Java HashSet to which they were added one by one."""
    return in_hash_order(dict.fromkeys(names))


def java_split(text: str, separator: str = ",") -> list[str]:
    """Return the parts of a text as ``String.split`` does: no empty ones at the end; the text if nothing separates."""
    parts = text.split(separator)
    while separator in text and parts and not parts[-1]:
        parts.pop()
    return parts


def java_integer(text: str, most: int) -> int | None:
    """Return the number that ``Integer.parseInt`` or ``Long.parseLong`` reads, at most ``most``; None if it refuses."""
    number = int(text) if re.fullmatch("[+-]?[0-9]{1,19}", text) else None
    return number if number is not None and -most - 1 <= number <= most else None


def java_text(value: Any) -> str:  # Any: a JSON value
    """Return a JSON value as the toString of Java's List, Map, Boolean … writes it."""
    if isinstance(value, list):
        return f"[{', '.join(map(java_text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}={java_text(one)}' for key, one in value.items())}}}"
    if value is None or isinstance(value, bool):
        return str(value).lower() if value is not None else "null"
    return str(value)


def java_record(name: str, fields: Mapping[str, Any]) -> str:  # Any: JSON values
    """Return what the toString of a Java object of class ``name`` writes."""
    return f"{name}({java_text(dict(fields))[1:-1]})"
