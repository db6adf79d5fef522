"""Back to an earlier state of a subscription: which one is meant, and the change that brings it back, holes included."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from msgspec import Struct, field

from pulsar_admin.store.changes.cursors import CursorMove, plan_moves
from pulsar_admin.store.changes.plan import MoveBasis, Plan
from pulsar_admin.store.codec.cursor import CursorState
from pulsar_admin.store.errors import EntryNotFound, InvalidValue, NothingMatches, Refused
from pulsar_admin.store.model.cursors import Cursor, is_own
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position, shell_word
from pulsar_admin.store.recovery.acks import METADATA, AckState, Bound
from pulsar_admin.store.recovery.cursor_versions import CursorHistory
from pulsar_admin.store.recovery.possible import Pending, both, either, pending_of, state_of
from pulsar_admin.store.timespec import format_time_ms
from pulsar_admin.store.wording import counted, listed

IfUnsure = Literal["refuse", "redeliver", "skip", "oldest", "newest"]
"""What to do where several states may have been in force: refuse; take what redelivers the most, so that nothing is lost; or the least."""

_OLD_WORDS: Mapping[str, IfUnsure] = {"oldest": "redeliver", "newest": "skip"}
_SHOWN = 3
_NAME = re.compile(r"[0-9]+:[0-9]+|0x[0-9a-f]+|" + METADATA)


class AsOf(Struct, frozen=True):
    """The state meant: the one in force at ``time_ms``, or the one called ``name`` (an entry of a cursor ledger, or a zxid).

    ``past``: what is known beyond the imported metadata. ``force``: also cursors of the broker's own.
    """

    time_ms: int | None = None
    name: str = ""
    if_unsure: IfUnsure = "refuse"
    past: CursorHistory = field(default_factory=CursorHistory)
    force: bool = False


class StateThen(Struct, frozen=True):
    """A state as ``name`` has it, or one made of several that ``name`` lists; None: ``problem`` says why there is none."""

    state: CursorState | None
    name: str
    problem: str = ""
    warnings: tuple[str, ...] = ()


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
    states = as_of.past.states(reader, topic, cursor.name)
    if as_of.time_ms is None:
        found = _named(states, cursor, as_of.name)
    else:
        found = state_in_force(states, topic, cursor, as_of)
    if found.state is None:
        why = found.problem or f"{cursor.name} was deleted then"
        raise EntryNotFound(f"{topic.name}: {found.name} is not a state: {why}", hint=_list_hint(cursor))
    return CursorMove(
        topic,
        cursor,
        found.state,
        MoveBasis(f"as-of {found.name}", time_ms=as_of.time_ms),
        warnings=(*found.warnings, *_trimmed(topic, found.state.mark_delete)),
        force=as_of.force,
    )


def _named(states: Iterator[AckState], cursor: Cursor, name: str) -> StateThen:
    for state in states:
        if state.name == name:
            return StateThen(state.state, name, state.problem)
    raise EntryNotFound(f"{cursor.topic}: {cursor.name} has no state {name}", hint=_list_hint(cursor))


def state_in_force(states: Iterator[AckState], topic: Topic, cursor: Cursor, as_of: AsOf) -> StateThen:
    """Return the state of CURSOR in TOPIC that was in force at the time; raises NothingMatches, Refused."""
    assert as_of.time_ms is not None
    possible: _Possible | None = None
    for state in states:
        if state.not_before is not None and state.not_before.time_ms > as_of.time_ms:
            break
        if possible is None or (state.not_after is not None and state.not_after.time_ms <= as_of.time_ms):
            possible = _Possible(topic, cursor.name)
        possible.add(state)
    else:
        state = None
    if possible is None or possible.last is None:
        why = "nothing is left of its states"
        if state is not None and state.not_before is not None:
            why = f"the earliest state that is left, {state.name}, is not before {_text(state.not_before)}"
        raise NothingMatches(f"{cursor.topic}: {cursor.name}: {why}", hint=_list_hint(cursor))
    if possible.was_there_by(as_of.time_ms) and possible.are_alike:
        return StateThen(possible.last.state, possible.last.name, possible.last.problem)
    return _chosen(cursor, possible, as_of)


class _Extreme(Struct, frozen=True):
    """A state, what it is called, and what it gives consumers; ``name`` empty: it was made of several."""

    state: CursorState
    name: str
    pending: Pending


class _Possible:
    """The states that may have been in force, and what consumers would get by all of them together."""

    def __init__(self, topic: Topic, cursor: str) -> None:
        self._topic = topic
        self._can_be_joined = not is_own(cursor)
        self.states = 0
        self.first: AckState | None = None
        self.last: AckState | None = None
        self.unknown: list[AckState] = []
        """Those that cannot be read, or in which the subscription was deleted."""
        self.most: _Extreme | None = None
        self.least: _Extreme | None = None

    def add(self, state: AckState) -> None:
        """Add STATE, which came after those that were added."""
        self.states += 1
        self.first, self.last = self.first or state, state
        if state.state is None:
            self.unknown.append(state)
            return
        found = _Extreme(state.state, state.name, pending_of(self._topic, state.state))
        self.most = found if self.most is None else self._most_of(self.most, found)
        self.least = found if self.least is None else self._least_of(self.least, found)

    def _most_of(self, one: _Extreme, other: _Extreme) -> _Extreme:
        lower, higher = sorted((one, other), key=lambda found: found.state.mark_delete)
        return self._joined(either(self._topic, one.pending, other.pending), lower, higher)

    def _least_of(self, one: _Extreme, other: _Extreme) -> _Extreme:
        lower, higher = sorted((one, other), key=lambda found: found.state.mark_delete)
        return self._joined(both(self._topic, one.pending, other.pending), higher, lower)

    def _joined(self, pending: Pending, nearer: _Extreme, other: _Extreme) -> _Extreme:
        """Return the state that gives PENDING: NEARER, OTHER, or one made of both, unless a broker keeps more in it that fits no other."""
        for found in (nearer, other):
            if found.pending == pending:
                return found
        if not self._can_be_joined:
            return nearer
        return _Extreme(state_of(self._topic, pending, nearer.state), "", pending)

    def was_there_by(self, time_ms: int) -> bool:
        """Whether the first of them was written by then."""
        return self.first is not None and self.first.not_after is not None and self.first.not_after.time_ms <= time_ms

    @property
    def are_alike(self) -> bool:
        """Whether they give consumers the same."""
        if self.most is None or self.least is None:
            return self.states == 1
        return not self.unknown and self.most.pending == self.least.pending

    def text(self) -> str:
        """Name them."""
        assert self.first is not None
        assert self.last is not None
        if self.states == 1:
            return self.first.name
        return f"{counted(self.states, 'state')}, {self.first.name} to {self.last.name}"


def _chosen(cursor: Cursor, possible: _Possible, as_of: AsOf) -> StateThen:
    assert as_of.time_ms is not None
    most, least, last = possible.most, possible.least, possible.last
    assert last is not None
    text = f"{cursor.name} may have stood at {possible.text()}, at {format_time_ms(as_of.time_ms)}"
    if not possible.was_there_by(as_of.time_ms):
        text += ", or earlier: when the first of them was written is not known"
    elif last.not_after is not None:
        text += f": {last.name} was written by {_text(last.not_after)}"
    if possible.unknown:
        names = listed((state.name for state in possible.unknown), _SHOWN)
        text += f"; of {names} it is not known what was acknowledged"
    if most is None or least is None:
        return StateThen(None, possible.text(), possible.unknown[0].problem)
    between = counted(most.pending.count - least.pending.count, "entry")
    if as_of.if_unsure == "refuse":
        ways = f"to take it all the same: --as-of {last.name}"
        if most.pending != least.pending:
            ways = (
                f"--if-unsure redeliver: consumers get all that any of these states had left, up to {between} again; --if-unsure skip:"
                f" they lose up to {between} that were not acknowledged; or name one: --as-of {last.name}"
            )
        raise Refused(
            f"{cursor.topic}: {text}",
            hint=ways,
            topic=str(cursor.topic),
            subscription=cursor.name,
            states=possible.states,
        )
    chosen, effect = (
        (most, f"consumers get up to {between} again")
        if as_of.if_unsure in ("redeliver", "oldest")
        else (least, f"consumers lose up to {between} that were not acknowledged")
    )
    warnings = [text if most.pending == least.pending else f"{text}; {effect}"]
    if as_of.if_unsure in _OLD_WORDS:
        warnings.insert(0, f"--if-unsure {as_of.if_unsure} is an older word for {_OLD_WORDS[as_of.if_unsure]}")
    return StateThen(chosen.state, chosen.name or f"all of {possible.text()}", "", tuple(warnings))


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
