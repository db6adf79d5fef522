"""When negative acks are due; and the rows of ``nacks add --from-file``. Imports nothing heavy.

A row of such a file is one position, as text, ``LEDGER:ENTRY`` (or ``LEDGER:ENTRY:BATCH``), or a JSON object with ``ledgerId`` and
``entryId``, such as ``topics read -o jsonl`` and ``nacks due`` print. ``chunks`` lists the other chunks of a chunked message, ``delay``
(a duration, or milliseconds) is the row's own. A row's ``topic``, where it has one, must be the command's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pulsar_admin.store.codec.strict_values import json_object
from pulsar_admin.store.errors import InvalidValue, StoreError, reason_of
from pulsar_admin.store.names import LONG_MAX, Position, TopicName, parse_position, parse_topic
from pulsar_admin.store.timespec import parse_duration_ms

MIN_NACK_DELAY_MS = 100
"""Upstream's floor for the configured delay (not for a backoff's), so that nacks of one batch go together."""


def check_delay(delay_ms: int) -> int:
    """Return the delay; raises InvalidValue when it is not an integer, negative or beyond 64 bits."""
    if not isinstance(delay_ms, int) or isinstance(delay_ms, bool) or not 0 <= delay_ms <= LONG_MAX:
        raise InvalidValue(
            f"delay of {delay_ms} ms",
            hint="a delay is a whole number of milliseconds from 0 to 2^63 - 1",
            value=delay_ms,
        )
    return delay_ms


def due_time(delay_ms: int, now_ms: int) -> int:
    """Return when a nack is due; raises InvalidValue for a negative number or a time beyond 64 bits."""
    check_delay(delay_ms)
    if not 0 <= now_ms <= LONG_MAX - delay_ms:
        raise InvalidValue(
            f"{now_ms} ms and a delay of {delay_ms} ms: beyond 64 bits",
            hint="times are epoch milliseconds, 0 to 2^63 - 1",
            value=now_ms,
        )
    return now_ms + delay_ms


_HINT = 'a row is 10:4 or for example {"ledgerId":10,"entryId":4,"delay":"10m"}'


class PositionRow(NamedTuple):
    """The entries of one row, and its own delay."""

    positions: tuple[Position, ...]
    delay_ms: int | None


def iter_position_rows(lines: Iterable[str], name: str, topic: TopicName) -> Iterator[PositionRow]:
    """Yield the rows in the lines of the named file, empty lines left out; raises InvalidValue naming the line."""
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
        raise InvalidValue(f"it belongs to topic {named}, not to {topic}")
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
