"""What a broker keeps for itself: cursors that no command moves or removes unless it is forced, wherever it is asked for.

Every change of a cursor's position passes ``check_move``, every removal ``check_removal``. Those of logs of transactions may move over
no entry, from a ledger that is gone to the beginning of the next one: a broker that starts replays the same, and it cures a log whose
cursor stands where nothing is any more (apache/pulsar#26368).
"""

from __future__ import annotations

from dataclasses import replace

from store.codec.cursor import CursorState
from store.errors import Refused
from store.model.cursors import COMPACTION_CURSOR, DEDUP_CURSOR, LOG_CURSOR, PENDING_ACK_CURSOR, Cursor
from store.model.extent import pending_intervals
from store.model.topics import Topic
from store.names import PENDING_ACK_SUFFIX, TRANSACTION_LOG_PREFIX, TopicName

_MOVED = {
    COMPACTION_CURSOR: "marks how far the topic is compacted; moved, readers see other messages",
    DEDUP_CURSOR: "marks up to where the broker knows its producers' sequence ids; moved, it drops or doubles messages",
    PENDING_ACK_CURSOR: "marks up to where transactions' acknowledgements are settled; moved, a broker loses or repeats some, or never "
    "opens the subscription",
    LOG_CURSOR: "marks up to where a coordinator's transactions are over; moved, it forgets open ones or runs old ones again",
}
_REMOVED = {
    COMPACTION_CURSOR: "without it the compacted view is gone",
    DEDUP_CURSOR: "without it deduplication forgets",
    PENDING_ACK_CURSOR: "without it what transactions acknowledged is gone",
    LOG_CURSOR: "without it open transactions are gone",
}


def is_transaction_log(topic: TopicName) -> bool:
    """Whether a broker keeps transactions in TOPIC, and opens it as no topic (``BrokerService.createPersistentTopic0``)."""
    local = topic.base.local_name
    return local.endswith(PENDING_ACK_SUFFIX) or (topic.is_system and local.startswith(TRANSACTION_LOG_PREFIX))


def check_ending(topic: TopicName, verb: str, hint: str) -> None:
    """Raise Refused where a broker does not VERB TOPIC either: a log of transactions."""
    if is_transaction_log(topic):
        raise Refused(
            f"{topic} is a log of a broker's transactions, which no broker would {verb}: what is in it alone would be lost",
            hint=hint,
            topic=str(topic),
        )


def is_guarded(topic: TopicName, cursor: str) -> bool:
    """Whether CURSOR of TOPIC is one that a broker keeps for itself."""
    local = topic.base.local_name
    if cursor == PENDING_ACK_CURSOR:
        return local.endswith(PENDING_ACK_SUFFIX)
    if cursor == LOG_CURSOR:
        return topic.is_system and local.startswith(TRANSACTION_LOG_PREFIX)
    return cursor in _MOVED


def guard_text(cursor: Cursor) -> str:
    """Return what moving CURSOR, which is guarded, does."""
    return f"{cursor.name} of {cursor.topic} {_MOVED[cursor.name]}"


def is_move(before: CursorState, after: CursorState) -> bool:
    """Whether a change from BEFORE to AFTER is meant to move a cursor: not where properties alone are others."""
    return before == after or replace(before, properties=after.properties) != after


def passes_entries(topic: Topic, before: CursorState, after: CursorState) -> bool:
    """Whether what a cursor of TOPIC has left is not the same before and after."""
    return (
        pending_intervals(topic, before) != pending_intervals(topic, after)
        or before.batch_deletes != after.batch_deletes
    )


def check_move(topic: Topic, cursor: Cursor, after: CursorState, *, force: bool) -> None:
    """Raise Refused for a move of CURSOR to AFTER where a broker keeps it for itself, unless FORCE."""
    if force or not is_guarded(topic.name, cursor.name) or not is_move(cursor.state, after):
        return
    if cursor.name in (PENDING_ACK_CURSOR, LOG_CURSOR) and not passes_entries(topic, cursor.state, after):
        return
    hint = "add --force to move it all the same, for a plan file to the command that writes it"
    raise Refused(
        guard_text(cursor),
        hint=hint + ("; its properties (CompactedTopicLedger) stay" if cursor.name == COMPACTION_CURSOR else ""),
        topic=str(cursor.topic),
        subscription=cursor.name,
    )


def check_removal(cursor: Cursor, *, force: bool) -> None:
    """Raise Refused for a CURSOR that a broker keeps for itself, unless FORCE."""
    if is_guarded(cursor.topic, cursor.name) and not force:
        raise Refused(
            f"{cursor.name} of {cursor.topic} is the broker's own: {_REMOVED[cursor.name]}",
            hint="add --force to remove it all the same, for a plan file to the command that writes it",
            topic=str(cursor.topic),
            subscription=cursor.name,
        )
