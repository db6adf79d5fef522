"""The rows of ``nacks add --from-file``: one position a line, as text or as a JSON object.

``LEDGER:ENTRY`` (or ``LEDGER:ENTRY:BATCH``), or an object with ``ledgerId`` and ``entryId``, such as ``topics read -o jsonl`` and
``nacks due`` print. ``chunks`` lists the other chunks of a chunked message, ``delay`` (a duration, or milliseconds) is the row's own.
A row's ``topic``, where it has one, must be the command's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pulsar_admin.store.codec.given import json_object
from pulsar_admin.store.errors import InvalidValue, StoreError, reason_of
from pulsar_admin.store.nacks.buckets import check_delay
from pulsar_admin.store.names import Position, TopicName, parse_position, parse_topic
from pulsar_admin.store.timespec import parse_duration_ms

_HINT = 'a row is 10:4 or for example {"ledgerId":10,"entryId":4,"delay":"10m"}'


class PositionRow(NamedTuple):
    """The entries of one row, and its own delay."""

    positions: tuple[Position, ...]
    delay_ms: int | None


def iter_position_rows(lines: Iterable[str], name: str, topic: TopicName) -> Iterator[PositionRow]:
    """Yield the rows in LINES of the file NAME, empty lines left out; raises InvalidValue naming the line."""
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        try:
            yield _row(json_object(text), topic) if text.startswith("{") else PositionRow((parse_position(text),), None)
        except (ValueError, RecursionError) as error:
            raise InvalidValue(f"{name} line {number}: {reason_of(error)}", hint=_HINT) from error
        except StoreError as error:
            raise InvalidValue(f"{name} line {number}: {error.message}", hint=error.hint or _HINT) from error


def _row(found: dict[str, Any], topic: TopicName) -> PositionRow:  # Any: JSON
    named = found.get("topic")
    if named is not None and (not isinstance(named, str) or topic not in (parse_topic(named), parse_topic(named).base)):
        raise InvalidValue(f"it is of topic {named}, not of {topic}")
    chunks = found.get("chunks", [])
    if not isinstance(chunks, list):
        raise InvalidValue("chunks must be a list of positions")
    first = _position([found.get("ledgerId"), found.get("entryId")])
    return PositionRow((first, *map(_chunk, chunks)), _delay(found.get("delay")))


def _chunk(value: object) -> Position:
    if isinstance(value, str):
        return parse_position(value)
    if isinstance(value, dict):
        return _position([value.get("ledgerId"), value.get("entryId")])
    raise InvalidValue("a chunk is a position")


def _position(ids: list[object]) -> Position:
    whole = [part for part in ids if type(part) is int]
    if len(whole) != len(ids):
        raise InvalidValue("ledgerId and entryId are required whole numbers")
    return parse_position(":".join(map(str, whole)))


def _delay(value: object) -> int | None:
    if value is None:
        return None
    if type(value) is int:
        return check_delay(value)
    if isinstance(value, str):
        return parse_duration_ms(value)
    raise InvalidValue("delay is a duration such as 10m, or milliseconds")
