"""Names of topics that a statement compares with: columns have full ones, and a short one would match nothing, without a word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from store.errors import InvalidValue, NotFound
from store.names import parse_topic

_COLUMNS = ("topic", "partitioned_topic")
_COMPARISONS = ("COMPARE_EQUAL", "COMPARE_NOTEQUAL", "COMPARE_IN", "COMPARE_NOT_IN")
_RENAMING = ("alias", "aliases", "column_name_alias")


def check_topics(tree: Any) -> None:  # Any: JSON
    """Raise NotFound where the statement TREE compares a column of topics with a short name, which no row has.

    A statement that calls a column of its own ``topic`` compares that.
    """
    nodes = list(nodes_of(tree))
    if any(_lower(name) in _COLUMNS for node in nodes for key in _RENAMING for name in _listed(node.get(key))):
        return
    for node in nodes:
        sides = node.get("children") or [node.get("left") or {}, node.get("right") or {}]
        if node.get("type") in _COMPARISONS and any(map(_is_of_topics, sides)):
            for text in filter(None, map(_text_of, sides)):
                _check_name(text)


def _is_of_topics(side: dict[str, Any]) -> bool:  # Any: JSON
    return _lower((side.get("column_names") or [""])[-1]) in _COLUMNS


def _check_name(text: str) -> None:
    if "://" in text or text.count("/") != 2:
        return
    try:
        full = str(parse_topic(text))
    except InvalidValue:
        return
    raise NotFound(
        f"no row has the topic {text!r}: topics have their full names here", hint=f"write '{full}'", topic=full
    )


def _text_of(node: Any) -> str | None:  # Any: JSON
    """Return the text that NODE is, None for another one; DuckDB 1 and 2 write it differently."""
    if not isinstance(node, dict) or node.get("class") != "CONSTANT":
        return None
    found = (node.get("literal") or {}).get("text") or (node.get("value") or {}).get("value")
    return found if isinstance(found, str) else None


def _listed(value: Any) -> list[Any]:  # Any: JSON
    return value if isinstance(value, list) else [value]


def _lower(name: Any) -> str:  # Any: JSON
    return name.lower() if isinstance(name, str) else ""


def nodes_of(value: Any) -> Iterator[dict[str, Any]]:  # Any: JSON
    """Yield the objects of a JSON value."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            yield found
            waiting += found.values()
        elif isinstance(found, list):
            waiting += found
