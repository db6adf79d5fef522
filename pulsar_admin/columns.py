"""Values as text: table columns and cells, cleaned of control characters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pulsar_admin.jsonify import dump_json, to_json
from pulsar_admin.visible import clean_text
from store.names import Position

GAP = 2
"""Blanks between two columns."""


@dataclass(frozen=True, slots=True)
class Column:
    """A table column: header, how to get the value (attribute, JSON key, or function of the record), and its kind.

    Kinds: ``text``, ``number`` (right-aligned), ``time`` (epoch ms shown as ISO 8601 UTC), ``duration`` (ms).
    ``drop``: a narrow terminal leaves out the column with the lowest number first; 0: never.
    """

    header: str
    getter: str | Callable[[Any], object]  # Any: the record's own type
    kind: str = "text"
    drop: int = 0

    def value(self, record: object) -> object:
        """Return the column's value of RECORD; None where the record has no such key."""
        if callable(self.getter):
            return self.getter(record)
        if isinstance(record, dict):
            return record.get(self.getter)
        if hasattr(record, self.getter):
            return getattr(record, self.getter)
        document = to_json(record)
        return document.get(self.getter) if isinstance(document, dict) else document

    def cell(self, record: object) -> str:
        return render_cell(self.value(record), self.kind)


def render_cell(value: object, kind: str = "text") -> str:
    """Return one value as the text of a cell; None is empty, a message id is ``L:E``."""
    if value is None:
        return ""
    if kind == "text" and type(value) is str:
        return clean_text(value)
    if kind in ("text", "number") and type(value) is int:
        return str(value)
    if kind in ("time", "duration") and isinstance(value, int):
        from store.timespec import format_duration_ms, format_time_ms  # 1 ms, and most output is JSON

        return format_time_ms(value) if kind == "time" else format_duration_ms(value)
    if isinstance(value, Position):
        return str(value)
    plain = to_json(value)
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if is_message_id(plain):
        batch = plain.get("batchIndex", -1)
        return f"{plain['ledgerId']}:{plain['entryId']}" + (f":{batch}" if batch >= 0 else "")
    if isinstance(plain, (dict, list)):
        return clean_text(dump_json(plain, pretty=False)) if plain else ""
    return clean_text(str(plain))


def is_message_id(value: object) -> bool:
    """Return whether a JSON value is a position: ledger and entry, maybe partition and batch index, nothing else."""
    if not isinstance(value, dict):
        return False
    return {"ledgerId", "entryId"} <= value.keys() <= {"ledgerId", "entryId", "partitionIndex", "batchIndex"}


def derived_columns(record: object) -> tuple[Column, ...]:
    """Return the columns of a record that no command described: its top-level JSON keys."""
    value = to_json(record)
    if not isinstance(value, dict):
        return (Column("VALUE", lambda item: item),)
    return tuple(
        Column(clean_text(key), key, "number" if isinstance(item, int) and not isinstance(item, bool) else "text")
        for key, item in value.items()
    )
