"""The rows of ``topics reset-cursor --from-file``: one JSON object a change.

``{"topic": …, "subscription": …}`` and one of ``messageId`` (``"L:E"``, ``"L:E:B"``, earliest, latest, or an object with ledgerId and
entryId), ``time`` (epoch ms, or any form that -t takes), ``shiftBy`` (entries), ``toSubscription``; ``exclude`` is true or false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from store.changes.resetting import ResetRow, ResetTarget
from store.codec.given import integer, json_value
from store.errors import InvalidValue, StoreError, reason_of
from store.names import LONG_MAX, Position, parse_position, parse_topic

_TARGETS = ("messageId", "time", "shiftBy", "toSubscription")
_KEYS = {"topic", "subscription", "exclude", *_TARGETS}


def iter_reset_rows(
    lines: Iterable[str], name: str, subscription: str | None, parse_time: Callable[[str], int]
) -> Iterator[ResetRow]:
    """Yield the changes in LINES of the file NAME; SUBSCRIPTION is that of rows that name none. Raises InvalidValue."""
    row = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{name} line {number}"
        try:
            row = _row(json_value(line), where, subscription, parse_time)
        except ValueError as error:
            raise InvalidValue(f"{where}: {reason_of(error)}", hint=_hint()) from error
        except StoreError as error:
            raise InvalidValue(f"{where}: {error.message}", hint=error.hint or _hint(), **error.context) from error
        yield row
    if row is None:
        raise InvalidValue(f"{name} holds no change", hint="one JSON object a line")


def _row(found: Any, where: str, subscription: str | None, parse_time: Callable[[str], int]) -> ResetRow:  # Any: JSON
    if not isinstance(found, dict):
        raise InvalidValue("not a JSON object")
    unknown = sorted(set(found) - _KEYS)
    if unknown:
        raise InvalidValue(f"unknown key {unknown[0]!r}")
    name = found.get("subscription", subscription)
    if not isinstance(found.get("topic"), str) or not isinstance(name, str):
        raise InvalidValue("topic and subscription are required strings")
    given = [key for key in _TARGETS if found.get(key) is not None]
    if len(given) != 1:
        raise InvalidValue(f"give exactly one of {', '.join(_TARGETS)}")
    exclude = found.get("exclude", False)
    if type(exclude) is not bool:
        raise InvalidValue("exclude is true or false")
    return ResetRow(where, parse_topic(found["topic"]), name, _target(found, exclude, parse_time))


def _target(found: dict[str, Any], exclude: bool, parse_time: Callable[[str], int]) -> ResetTarget:  # Any: JSON
    message_id, time = found.get("messageId"), found.get("time")
    shift_by, other = found.get("shiftBy"), found.get("toSubscription")
    if message_id is not None:
        return ResetTarget(message_id=_position(message_id), exclude=exclude)
    if time is not None:
        return ResetTarget(time_ms=_time(time, parse_time), exclude=exclude)
    if shift_by is not None:
        integer(shift_by, "shiftBy", -LONG_MAX)
    if other is not None and not isinstance(other, str):
        raise InvalidValue("toSubscription must be a string")
    return ResetTarget(shift_by=shift_by, to_subscription=other, exclude=exclude)


def _position(value: object) -> Position:
    if isinstance(value, str):
        return parse_position(value)
    if isinstance(value, dict):
        parts = [value.get("ledgerId"), value.get("entryId"), value.get("batchIndex", -1)]
        ids = [integer(part, "messageId", -1) for part in parts]
        return parse_position(":".join(str(part) for part in (ids if ids[2] >= 0 else ids[:2])))
    raise InvalidValue('messageId is "LEDGER:ENTRY" or an object with ledgerId and entryId')


def _time(value: object, parse_time: Callable[[str], int]) -> int:
    if type(value) is int:
        return parse_time(f"@{value}")
    if isinstance(value, str):
        return parse_time(value)
    raise InvalidValue("time is epoch milliseconds, or a string that -t takes")


def _hint() -> str:
    return 'a row is for example {"topic":"public/default/orders","subscription":"workers","messageId":"10:4"}'
