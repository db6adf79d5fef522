"""Selecting stored negative acks, and parsing the rows of ``nacks add --from-file``. Imports nothing heavy.

A row of such a file is one position, as text, ``LEDGER:ENTRY`` (or ``LEDGER:ENTRY:BATCH``), or a JSON object with
``ledgerId`` and ``entryId``, as ``topics read -o jsonl`` and ``nacks due`` print them. ``chunks`` lists the other
chunks of a chunked message, ``delay`` (a duration, or milliseconds) replaces the command's. A row's ``topic``, if
present, must be the command's.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from pulsar_admin.store.codec.strict_values import json_object
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.nacks import KeptStats, TrackerRow, check_delay, iter_trackers, read_stats
from pulsar_admin.store.errors import InvalidValue, StoreError, SubscriptionNotFound, reason_of
from pulsar_admin.store.model.cursors import iter_cursor_names
from pulsar_admin.store.model.topics import expand_topic, iter_topics
from pulsar_admin.store.names import Position, TopicName, parse_position, parse_topic
from pulsar_admin.store.timespec import parse_duration_ms

MIN_NACK_DELAY_MS = 100
"""Upstream's floor for the configured delay (not for a backoff's), so that nacks of one batch go together."""


def kept_trackers(txn: Txn, topics: Sequence[TopicName], subscription: str | None) -> list[TrackerRow]:
    """Return the trackers of ``subscription`` (None: of all) on ``topics`` (empty: on all).

    Raises TopicNotFound for a topic that has neither a tracker nor metadata, SubscriptionNotFound if no topic has the
    subscription.
    """
    trackers = [row for row in iter_trackers(txn) if subscription in (None, row.subscription)]
    known = {row.topic for row in trackers}
    parts = ([topic] if str(topic) in known else expand_topic(txn, topic) for topic in topics)
    own = {str(name): name for names in parts for name in names}
    if chosen := [row for row in trackers if not topics or row.topic in own]:
        return chosen
    if subscription is not None and not any(
        subscription in iter_cursor_names(txn, name) for name in (own.values() if topics else iter_topics(txn))
    ):
        raise SubscriptionNotFound(
            f"no topic that is asked about has a subscription {subscription!r}", subscription=subscription
        )
    return []


def kept_stats(txn: Txn, topics: Sequence[TopicName], subscription: str | None, now_ms: int) -> tuple[KeptStats, ...]:
    """Return the statistics of the ``kept_trackers``, sorted by topic and subscription."""
    every = (read_stats(txn, row, now_ms) for row in kept_trackers(txn, topics, subscription))
    return tuple(sorted(every, key=lambda stats: (stats.topic, stats.subscription)))


_HINT = 'a row is 10:4 or for example {"ledgerId":10,"entryId":4,"delay":"10m"}'


class PositionRow(NamedTuple):
    """The entries of one row, and its delay (None: the command's)."""

    positions: tuple[Position, ...]
    delay_ms: int | None


def iter_position_rows(lines: Iterable[str], name: str, topic: TopicName) -> Iterator[PositionRow]:
    """Yield the rows in ``lines``, without empty ones; raises InvalidValue, which names the file ``name`` and the line."""
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
