"""Every message of one key, and what compaction does with it, by the kernels that compact, with the reason as text."""

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct, field

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.message import decode_message_entry, decode_metadata
from pulsar_admin.store.compaction.batches import MessageBatch, log_and_view
from pulsar_admin.store.compaction.status import readable_floor
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.kernels import compaction as kernel
from pulsar_admin.store.kernels import slots as slot_kernel
from pulsar_admin.store.model.compacted_view import CompactedView
from pulsar_admin.store.model.cursors import iter_ledger_parts
from pulsar_admin.store.model.messages import explode
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position
from pulsar_admin.store.wording import Answer, one_line

KEPT, SUPERSEDED, TOMBSTONE, UNCOMMITTED, BEHIND = "kept", "superseded", "tombstone", "uncommitted", "behind"
"""Fates of messages in the last compaction; ``BEHIND``: after the horizon, so not compacted yet."""


class Occurrence(Answer, frozen=True):
    """A message of the key.

    ``in_view``: whether the compacted ledger has it; ``size``: of the value; ``next``: its fate in a compaction that
    runs now.
    """

    position: Position
    publish_time: int
    size: int
    tombstone: bool
    fate: str
    next: str
    why: str
    is_wrong: bool
    in_view: bool = field(name="compacted")


class KeyHistory(Struct):
    """The messages of a key in order. ``horizon`` None: never compacted.

    ``sealed``: encrypted batches, which may contain the key; ``undecodable``: entries that cannot be decoded; both are
    kept whole. ``damaged``: unreadable entries.
    """

    __repr__ = one_line

    key: str
    horizon: Position | None
    compacted_ledger: int | None
    occurrences: list[Occurrence] = field(default_factory=list)
    sealed: int = 0
    undecodable: int = 0
    damaged: list[StoreError] = field(default_factory=list)
    lost: int = 0


class _Found(Struct):
    """A message with the key, and its ``slot_kernel.SLOT`` row (None for an uncommitted one)."""

    position: Position
    publish_ms: int
    slot: Array | None  # None: of a transaction that was not committed
    size: int
    null: bool
    in_view: bool = False


def explain_key(
    reader: EntryReader,
    topic: Topic,
    view: CompactedView | None,
    key: str,
    *,
    rule: str,
    advance: Callable[[int], None] = lambda entries: None,
) -> KeyHistory:
    """Return the fate of each message with a key in compaction so far, and in one that would run now."""
    floor = None if view is None else readable_floor(reader, topic, view)
    history = KeyHistory(key, floor, None if view is None else view.ledger_id)
    parts = tuple(iter_ledger_parts(topic, 0, topic.number_of_entries))
    log, kept = log_and_view(reader, topic, parts, view, rule)
    in_view = {messages.position: messages for batch in kept.batches() for messages in _messages(batch, key.encode())}
    first = topic.first_position
    messages = [one for one in in_view.values() if one.position.entry < first]  # the topic itself is trimmed there
    for batch in log.batches():
        history.sealed += int((batch.rows["kind"] == kernel.ENCRYPTED_BATCH).sum())
        history.undecodable += int((batch.rows["kind"] == kernel.STRANGE).sum())
        here = [*_messages(batch, key.encode()), *_uncommitted(batch, key)]
        messages += sorted(here, key=lambda one: one.position)
        advance(len(batch.rows))
    for one in messages:
        one.in_view = one.position in in_view
    history.damaged = [*kept.damaged, *log.damaged]
    history.lost = kept.lost + log.lost
    history.occurrences = list(_judged(messages, floor))
    return history


def _messages(batch: MessageBatch, key: bytes) -> Iterator[_Found]:
    """Yield the messages of a batch that have the key and were not compacted out."""
    owners = np.repeat(np.arange(len(batch.rows)), np.diff(batch.firsts))
    slots = batch.slots
    wanted = (slots["key_length"] == len(key)) & (slots["flags"] & slot_kernel.COMPACTED_OUT == 0)
    for number in np.flatnonzero(wanted).tolist():
        slot, index = slots[number], int(owners[number])
        start = int(slot["key_start"])
        if batch.plain(index).data[start : start + len(key)] != key:
            continue
        row, place = batch.rows[index], batch.position(index)
        # The value of a message alone is the entry's payload, by the rule of 4.0.
        size = int(row["plain_bytes"] if row["flags"] & kernel.HAS_PLAIN_SIZE else row["end"] - row["meta_end"])
        if row["kind"] == kernel.BATCH:
            first = int(batch.firsts[index])
            batch_index = number - first
            if (
                int(batch.firsts[index + 1]) - first != row["messages"]
            ):  # a batch that lost some lists those that remain
                raw = bytes(batch.data.data[row["meta_start"] : row["meta_end"]])
                batch_index = int(decode_metadata(raw, f"entry {place}").compacted_batch_indexes[batch_index])
            place = Position(place.ledger_id, place.entry_id, batch_index)
            size = int(slot["value_bytes"])
        is_null = bool(slot["value_bytes"] <= 0)
        yield _Found(place, int(row["publish_ms"]), slots[number : number + 1].copy(), size, is_null)


def _uncommitted(batch: MessageBatch, key: str) -> Iterator[_Found]:
    for index in np.flatnonzero(batch.rows["kind"] == kernel.UNCOMMITTED).tolist():
        place = batch.position(index)
        for message in explode(decode_message_entry(batch.stored(index), f"entry {place}"), place):
            if message.key == key:
                size = len(message.payload)
                yield _Found(message.position, message.publish_ms, None, size, message.null_value or not size)


def _judged(found: list[_Found], floor: Position | None) -> Iterator[Occurrence]:
    """Yield the messages with their fates in the last compaction, and in one that runs now."""
    committed = [one for one in found if one.slot is not None]
    before = [one for one in committed if floor is not None and one.position.entry <= floor]
    so_far = dict(zip((one.position for one in before), _fates(before), strict=True))
    now = dict(zip((one.position for one in committed), _fates(committed), strict=True))
    latest_before, latest = (some[-1] if some else None for some in (before, committed))
    for one in found:
        if one.slot is None:
            why = "of a transaction that was aborted or is open: no reader gets it, nor does compaction"
            yield _occurrence(one, UNCOMMITTED, UNCOMMITTED, why)
        elif one.position not in so_far:
            yield _occurrence(one, BEHIND, now[one.position], _why_behind(one, now[one.position], latest, floor))
        else:
            fate = so_far[one.position]
            yield _occurrence(one, fate, now[one.position], _why(one, fate, (latest_before, latest), floor))


def _fates(found: list[_Found]) -> list[str]:
    """Return the fates of the messages, in order, as the compaction kernels decide them."""
    if not found:
        return []
    slots = np.concatenate([one.slot for one in found if one.slot is not None])
    firsts, ordinals = np.array([0, len(slots)], np.int64), np.zeros(1, np.int64)
    fates = np.empty(len(slots), np.uint8)
    bits = np.zeros(len(slots) // 8 + 1, np.uint8)
    slot_kernel.mark_last(np.array([(len(slots) - 1) << 1 | (slots[-1]["value_bytes"] <= 0)], np.uint64), bits)
    slot_kernel.judge(slots, firsts, ordinals, bits, False, fates)
    names = {
        slot_kernel.RETAINED: KEPT,
        slot_kernel.SUPERSEDED: SUPERSEDED,
        slot_kernel.NULLED: TOMBSTONE,
    }
    return [names[fate] for fate in fates.tolist()]


def _occurrence(one: _Found, fate: str, later: str, why: str) -> Occurrence:
    is_wrong = fate != BEHIND and one.in_view != (fate == KEPT) and not _is_disputed(one)
    return Occurrence(one.position, one.publish_ms, max(one.size, 0), one.null, fate, later, why, is_wrong, one.in_view)


def _is_disputed(one: _Found) -> bool:
    """Whether ``one`` is null by only one of the rules: no record shows which rule the ledger was compacted by."""
    return one.slot is not None and bool(one.slot[0]["flags"] & slot_kernel.RULE_MATTERS)


def _why_behind(one: _Found, fate: str, latest: _Found | None, floor: Position | None) -> str:
    behind = "never compacted" if floor is None else f"after the horizon {floor}"
    if fate == KEPT:
        return f"{behind}; the next compaction keeps it, the latest value"
    if fate == TOMBSTONE:
        return f"{behind}; the next compaction drops it, a null value" + (
            " that deletes the key" if one is latest else ""
        )
    return f"{behind}; the next compaction drops it: {_later(latest)}"


def _why(one: _Found, fate: str, latests: tuple[_Found | None, _Found | None], floor: Position | None) -> str:
    """Return the reason for the fate of a message before the horizon, as text.

    ``latests``: the last message of the key up to the horizon, and in the whole topic.
    """
    latest_before, latest = latests
    if one.in_view != (fate == KEPT):
        if _is_disputed(one):
            return "empty and without a stated size: null by the rule of 4.2, a value by that of 4.0"
        there = "the compacted ledger has it, and should not" if one.in_view else "the compacted ledger lacks it"
        return f"{there}: see compaction verify"
    if fate == KEPT:
        why = f"the latest value up to the horizon {floor}"
        return why if one is latest else f"{why}; the next compaction drops it: {_later(latest)}"
    if fate == TOMBSTONE:
        return "a null value" + (": it deletes the key" if one is latest_before else f"; {_later(latest_before)}")
    return _later(latest_before)


def _later(latest: _Found | None) -> str:
    assert latest is not None
    return f"a later null value, {latest.position}, deletes the key" if latest.null else f"{latest.position} is later"
