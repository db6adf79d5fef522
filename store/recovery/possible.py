"""Of several states that a subscription may have had, the one that gives its consumers the most again, and the one that gives the least.

Neither need be one of them: after a reset back, a later state has acknowledged less than an earlier one. What gives the most has as
acknowledged only what all of them have; what gives the least has what any of them has.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pulsar_admin.store.codec.cursor import CursorState
from pulsar_admin.store.model.extent import Intervals, iter_ledger_parts, pending_intervals, subtract
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position

Words = tuple[int, ...]
"""Messages of a batch that are not acknowledged, as words of a bit set."""


class Pending(Struct, frozen=True):
    """What a state gives consumers: entries, as intervals of ranks, and of batches among them that are acknowledged in part, the rest."""

    entries: Intervals
    batches: Mapping[Position, Words]

    @property
    def count(self) -> int:
        """How many entries it gives."""
        return sum(end - start for start, end in self.entries)

    def has(self, rank: int) -> bool:
        """Whether the entry at RANK is among them."""
        return any(start <= rank < end for start, end in self.entries)


def pending_of(topic: Topic, state: CursorState) -> Pending:
    """Return what STATE gives of TOPIC."""
    entries = pending_intervals(topic, state)
    found = Pending(entries, {})
    batches = {
        at: words for at, words in state.batch_deletes.items() if topic.is_entry(at) and found.has(topic.rank(at))
    }
    return Pending(entries, batches)


def either(topic: Topic, one: Pending, other: Pending) -> Pending:
    """Return what ONE or OTHER gives."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted((*one.entries, *other.entries)):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    batches: dict[Position, Words] = {}
    for at in (*one.batches, *other.batches):
        mine, theirs = one.batches.get(at), other.batches.get(at)
        rank = topic.rank(at)
        if mine is not None and theirs is not None:
            batches[at] = _joined(mine, theirs)
        elif mine is not None and not other.has(rank):
            batches[at] = mine
        elif theirs is not None and not one.has(rank):
            batches[at] = theirs
    return Pending(tuple(merged), batches)


def both(topic: Topic, one: Pending, other: Pending) -> Pending:
    """Return what ONE and OTHER give."""
    entries = subtract(one.entries, subtract(one.entries, other.entries))
    common = Pending(entries, {})
    batches: dict[Position, Words] = {}
    for at in (*one.batches, *other.batches):
        if not common.has(topic.rank(at)):
            continue
        mine, theirs = one.batches.get(at), other.batches.get(at)
        if mine is not None and theirs is not None:
            batches[at] = tuple(left & right for left, right in zip(mine, theirs, strict=False))
        else:
            batches[at] = mine or theirs or ()
    done = tuple(sorted((topic.rank(at), topic.rank(at) + 1) for at, words in batches.items() if not any(words)))
    return Pending(subtract(entries, done), {at: words for at, words in batches.items() if any(words)})


def _joined(mine: Words, theirs: Words) -> Words:
    longest = max(len(mine), len(theirs))
    padded = (words + (0,) * (longest - len(words)) for words in (mine, theirs))
    return tuple(left | right for left, right in zip(*padded, strict=True))


def state_of(topic: Topic, pending: Pending, like: CursorState) -> CursorState:
    """Return the state that gives exactly PENDING of TOPIC, with the properties of LIKE, and its mark-delete where that has this place."""
    count = topic.number_of_entries
    first = pending.entries[0][0] if pending.entries else count
    mark_delete = like.mark_delete
    if topic.place(mark_delete) != first:
        mark_delete = topic.at_rank(first - 1) if first else topic.first_position
    acknowledged = subtract(((first, count),), pending.entries)
    ranges = tuple(
        (Position(ledger_id, low - 1), Position(ledger_id, high))
        for start, end in acknowledged
        for ledger_id, low, high in iter_ledger_parts(topic, start, end)
    )
    return CursorState(mark_delete, ranges, dict(pending.batches), like.properties)
