"""Expiring a cursor, by an age, a position, or the TTL in force, with what goes before it is due."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from store.changes.cursors import CursorMove
from store.changes.expiry import ExpiryRequest, expiry_move, unchanged_move
from store.delayed.not_due import with_not_due
from store.errors import NothingMatches, Refused
from store.model.cursors import COMPACTION_CURSOR, Cursor, is_subscription
from store.model.ledgers import EntryReader
from store.model.topics import Topic
from store.policies.in_force import MessageTtl, find_message_ttl


def check_expirable(name: str) -> None:
    """Raise Refused for a cursor of the broker's own."""
    if not is_subscription(name) or name == COMPACTION_CURSOR:
        raise Refused(f"expiry never touches {name}: it is the broker's own cursor", subscription=name)


def move_by_age(reader: EntryReader, topic: Topic, cursor: Cursor, request: ExpiryRequest) -> CursorMove:
    """Return the move that expires what REQUEST says; raises what ``expiry_move`` raises."""
    return with_not_due(reader, expiry_move(reader, topic, cursor, request), request.now_ms, None)


def move_by_ttl(
    reader: EntryReader, topic: Topic, cursor: Cursor, request: ExpiryRequest, ttl: MessageTtl | None
) -> CursorMove:
    """Return the move that expires what TTL, the one in force, says at the time of REQUEST; without one CURSOR stays."""
    if ttl is None or ttl.seconds <= 0:
        return unchanged_move(topic, cursor, "no TTL is in force")
    limit_ms = max(request.now_ms - ttl.seconds * 1000, 0)
    move = expiry_move(reader, topic, cursor, replace(request, limit_ms=limit_ms, ttl=ttl))
    return with_not_due(reader, move, request.now_ms, ttl.seconds * 1000)


def read_ttls(reader: EntryReader, topics: Iterable[Topic]) -> dict[Topic, MessageTtl | None]:
    """Return the TTL in force for each topic; raises NothingMatches when there is none at all."""
    ttls = {topic: find_message_ttl(reader.txn, topic.name) for topic in topics}
    if not any(ttl is not None and ttl.seconds > 0 for ttl in ttls.values()):
        raise NothingMatches(
            f"no TTL is in force for {next(iter(ttls)).name}"
            if len(ttls) == 1
            else "no TTL is in force for any of the topics",
            hint="give the age with -t, for example -t 3d; a broker's own default (ttlDurationDefaultInSeconds) is in no store",
        )
    return ttls
