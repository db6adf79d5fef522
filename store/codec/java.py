"""What pulsar-admin prints as Java does: texts in the order of a ``HashSet``, parts of a text, values as text (Java 17)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pulsar_admin.store.codec.javamap import in_hash_map_order


def hash_order(names: Iterable[str]) -> list[str]:
    """Return names, each once, in the order of a Java HashSet to which they were added one by one."""
    return list(in_hash_map_order(dict.fromkeys(names)))


def java_split(text: str, separator: str = ",") -> list[str]:
    """Return the parts of a text as ``String.split`` does: no empty ones at the end; for an empty text, one."""
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
