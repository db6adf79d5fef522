"""Back to an earlier state of a subscription: which one is meant, and the change that brings it back, holes included."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from typing import Literal

from store.changes.cursors import CursorMove, check_movable, plan_moves
from store.changes.plan import Plan
from store.changes.report import MoveBasis
from store.errors import EntryNotFound, InvalidValue, NothingMatches, Refused
from store.frozen import frozen
from store.model.cursors import Cursor
from store.model.reader import EntryReader
from store.model.topics import Topic
from store.names import Position, shell_word
from store.recovery.acks import METADATA, AckState, Bound
from store.recovery.cursor_versions import CursorHistory
from store.timespec import format_time_ms
from store.wording import counted

IfUnsure = Literal["refuse", "oldest", "newest"]
_NAME = re.compile(r"[0-9]+:[0-9]+|0x[0-9a-f]+|" + METADATA)


@frozen
class AsOf:
    """The state meant: the one in force at ``time_ms``, or the one called ``name`` (an entry of a cursor ledger, or a zxid).

    ``past``: what is known beyond the imported metadata. ``force``: also cursors of the broker's own.
    """

    time_ms: int | None = None
    name: str = ""
    if_unsure: IfUnsure = "refuse"
    past: CursorHistory = field(default_factory=CursorHistory)
    force: bool = False


def is_state_name(text: str) -> bool:
    """Whether TEXT names a state, not a time."""
    return _NAME.fullmatch(text) is not None


def plan_as_of(
    reader: EntryReader, command: str, cursors: Iterable[tuple[Topic, Cursor]], as_of: AsOf, now_ms: int
) -> Plan:
    """Return one plan that brings CURSORS back to where they stood, all of them or none.

    Raises EntryNotFound (no such state), NothingMatches (nothing is known of that time), and Refused where several states may have
    been in force, and for a cursor of the broker's own.
    """
    listed = list(cursors)
    if as_of.name and len(listed) > 1:
        raise InvalidValue(
            f"--as-of {as_of.name} is a state of one subscription, {len(listed)} are meant",
            hint="name its topic, or a time",
        )
    moves = [_move(reader, topic, cursor, as_of) for topic, cursor in listed]
    return plan_moves(reader, command, moves, now_ms)


def _move(reader: EntryReader, topic: Topic, cursor: Cursor, as_of: AsOf) -> CursorMove:
    check_movable(cursor, force=as_of.force)
    states = as_of.past.states(reader, topic, cursor.name)
    found, warnings = (
        (_named(states, cursor, as_of.name), ()) if as_of.time_ms is None else state_in_force(states, cursor, as_of)
    )
    if found.state is None:
        why = found.problem or f"{cursor.name} was deleted then"
        raise EntryNotFound(f"{topic.name}: {found.name} is not a state: {why}", hint=_list_hint(cursor))
    return CursorMove(
        topic,
        cursor,
        found.state,
        MoveBasis(f"as-of {found.name}", time_ms=as_of.time_ms),
        warnings=(*warnings, *_trimmed(topic, found.state.mark_delete)),
    )


def _named(states: Iterator[AckState], cursor: Cursor, name: str) -> AckState:
    for state in states:
        if state.name == name:
            return state
    raise EntryNotFound(f"{cursor.topic}: {cursor.name} has no state {name}", hint=_list_hint(cursor))


def state_in_force(states: Iterator[AckState], cursor: Cursor, as_of: AsOf) -> tuple[AckState, tuple[str, ...]]:
    """Return the state that was in force at the time, and what to be warned of; raises NothingMatches, Refused."""
    assert as_of.time_ms is not None
    possible: _Possible | None = None
    for state in states:
        if state.not_before is not None and state.not_before.time_ms > as_of.time_ms:
            break
        sure = state.not_after is not None and state.not_after.time_ms <= as_of.time_ms
        if possible is None or sure:
            possible = _Possible(state, state, 1, sure)
        else:
            possible = replace(possible, newest=state, count=possible.count + 1)
    else:
        state = None
    if possible is None:
        why = "nothing is left of its states"
        if state is not None and state.not_before is not None:
            why = f"the earliest state that is left, {state.name}, is not before {_text(state.not_before)}"
        raise NothingMatches(f"{cursor.topic}: {cursor.name}: {why}", hint=_list_hint(cursor))
    if possible.sure and possible.oldest.state == possible.newest.state:
        return possible.newest, ()
    return _chosen(cursor, possible, as_of)


@frozen
class _Possible:
    """The states that may have been in force, COUNT of them; ``sure``: that the oldest was written by then."""

    oldest: AckState
    newest: AckState
    count: int
    sure: bool


def _chosen(cursor: Cursor, possible: _Possible, as_of: AsOf) -> tuple[AckState, tuple[str, ...]]:
    assert as_of.time_ms is not None
    oldest, newest = possible.oldest, possible.newest
    which = f"{counted(possible.count, 'state')}, {oldest.name} to {newest.name}" if possible.count > 1 else oldest.name
    text = f"{cursor.name} may have stood at {which}, at {format_time_ms(as_of.time_ms)}"
    if not possible.sure:
        text += ", or earlier: when the first of them was written is not known"
    elif newest.not_after is not None:
        text += f": {newest.name} was written by {_text(newest.not_after)}"
    if as_of.if_unsure == "refuse":
        raise Refused(
            f"{cursor.topic}: {text}",
            hint=f"name one: --as-of {oldest.name} gives more again, --as-of {newest.name} less; or --if-unsure oldest|newest",
            topic=str(cursor.topic),
            subscription=cursor.name,
            states=possible.count,
        )
    return (oldest if as_of.if_unsure == "oldest" else newest), (text,)


def _text(bound: Bound) -> str:
    return f"{format_time_ms(bound.time_ms)} ({bound.by})"


def _trimmed(topic: Topic, mark_delete: Position) -> tuple[str, ...]:
    """Say that entries which that state would give are gone with their ledgers."""
    if not topic.ids or mark_delete.ledger_id >= topic.ids[0]:
        return ()
    return (f"what that state had left before ledger {topic.ids[0]} is trimmed: it is not given again",)


def _list_hint(cursor: Cursor) -> str:
    return (
        f"list what is known with: pulsar-admin topics subscription-history {shell_word(cursor.topic)}"
        f" -s {shell_word(cursor.name)}"
    )
