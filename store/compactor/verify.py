"""A compacted ledger against the log it was made from: what is missing in it, what should not be there, what differs.

Both are read in order, side by side, in bounded memory. Where the first ledgers of the topic were trimmed, what the compacted
ledger holds of them cannot be compared; it still must not hold a key that occurs later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from store.codec.message import decode_message_entry
from store.compaction.floor import compacted_floor
from store.compaction.forms import INDEXED, LEGACY, REDUCED, RULE_4_0
from store.compaction.last_id import check_indexes
from store.compaction.tail import has_transactions, read_transactions
from store.compaction.view import CompactedView
from store.compactor import kernel, slot_kernel
from store.compactor.batches import MessageBatch, MessageSource
from store.compactor.facts import iter_facts, uuid_of
from store.compactor.keys import LIMIT_KEYS, LatestKeys
from store.compactor.verification import (
    DAMAGED,
    DELETED,
    DIFFERS,
    FOREIGN,
    INDEXES,
    MISSING,
    ORDER,
    STALE,
    Verification,
)
from store.counted import counted
from store.errors import EntryCorrupt, StoreError
from store.extent import iter_ledger_parts
from store.ledgers import EntryReader
from store.messages import explode
from store.names import Position
from store.proto.pulsar_api_pb2 import MessageMetadata
from store.topics import Topic

Array = np.ndarray[Any, Any]  # a column; its dtype is stated where it is made


def verify_view(
    reader: EntryReader,
    topic: Topic,
    view: CompactedView,
    *,
    limit_keys: int = LIMIT_KEYS,
    advance: Callable[[int], None] = lambda entries: None,
) -> Verification:
    """Compare the compacted ledger of VIEW with the entries of TOPIC that it stands for."""
    found = Verification(view.ledger_id, view.horizon)
    floor = _floor(reader, topic, view)
    parts = tuple(iter_ledger_parts(topic, 0, topic.place(floor)))
    transactions = cache(lambda: read_transactions(reader, topic, None))
    known = has_transactions(reader, topic.name)
    # By the rule of 4.0 the messages that the rules disagree on are values: either may have written them, or left them out.
    log = MessageSource(reader, None, parts, transactions, skip_damaged=True, transactional=known, rule=RULE_4_0)
    kept = MessageSource(reader, view, (), transactions, skip_damaged=True, as_is=True, rule=RULE_4_0)
    first = Position(parts[0][0], parts[0][1]) if parts else Position(floor.ledger_id, floor.entry_id + 1)
    with LatestKeys(limit_keys) as keys:
        for batch in keys.adding(_batches_before(kept, first)):
            advance(len(batch.rows))
        for facts, _ in iter_facts(log, keys, retain_keyless=False):
            advance(facts.entries)
        latest = keys.finish()
    comparison = _Comparison(found, latest.bits, floor)
    comparison.run((kept, log), first, advance)
    for error in kept.damaged:
        found.add(DAMAGED, None, error.message)
    if kept.lost:
        found.add(
            DAMAGED,
            None,
            f"of the compacted ledger {view.ledger_id} {counted(kept.lost, 'entry is', 'entries are')} lost",
        )
    found.lost = len(log.damaged) + log.lost
    return found


def _floor(reader: EntryReader, topic: Topic, view: CompactedView) -> Position:
    """Return the last position that the compacted ledger stands for; the horizon where its last entry cannot be read."""
    try:
        return compacted_floor(reader, topic, view)
    except EntryCorrupt:
        return view.horizon


def _batches_before(kept: MessageSource, first: Position) -> Iterator[MessageBatch]:
    """Yield the compacted entries from before position FIRST, which the topic itself no longer has."""
    for batch in kept.batches():
        count = int(_is_before(batch, first).sum())
        if count:
            yield batch.head(count)
        if count < len(batch.rows):
            return


def _is_before(batch: MessageBatch, first: Position) -> Array:
    ledgers, entries = batch.rows["ledger_id"], batch.rows["entry_id"]
    before: Array = (ledgers < first.ledger_id) | ((ledgers == first.ledger_id) & (entries < first.entry_id))
    return before


Placed = tuple[MessageBatch, int, Position]


class _Comparison:
    """The second pass: compacted entries beside those of the topic, which BITS says to keep or not."""

    def __init__(self, found: Verification, bits: Array, floor: Position) -> None:
        self._found = found
        self._bits = bits
        self._floor = floor
        self._ordinal = 0
        self._next: Placed | None = None
        self._kept: Iterator[Placed]
        self._absent_chunks: dict[bytes, Position] = {}  # uuid → a chunk that is not in the compacted ledger

    def run(
        self, sources: tuple[MessageSource, MessageSource], first: Position, advance: Callable[[int], None]
    ) -> None:
        """Compare everything in (compacted ledger, topic); FIRST: the topic's first entry."""
        kept, log = sources
        for batch in _batches_before(kept, first):
            self._found.trimmed_before = first
            self._judge_trimmed(batch)
        self._kept = self._iter_kept(kept)
        self._next = next(self._kept, None)
        while self._next is not None and self._next[2] < first:
            self._next = next(self._kept, None)
        for batch in log.batches():
            self._compare(batch)
            advance(len(batch.rows))
        while self._next is not None:
            self._found.add(
                FOREIGN,
                self._next[2],
                f"entry {self._next[2]}: compacted, but no entry of the topic up to {self._floor}",
            )
            self._next = next(self._kept, None)

    def _iter_kept(self, kept: MessageSource) -> Iterator[Placed]:
        """Yield the compacted entries, each checked for what can be seen without the topic."""
        before = Position(-1, -1)
        for batch in kept.batches():
            self._found.entries += len(batch.rows)
            self._found.messages += int((batch.slots["flags"] & slot_kernel.COMPACTED_OUT == 0).sum())
            self._found.nulls_kept += int((batch.slots["flags"] & slot_kernel.RULE_MATTERS != 0).sum())
            self._count_forms(batch)
            for index in range(len(batch.rows)):
                place = batch.position(index)
                if place <= before:
                    self._found.add(ORDER, place, f"entry {place} comes behind {before}")
                    continue
                before = place
                self._check_entry(batch, index, place)
                yield batch, index, place

    def _count_forms(self, batch: MessageBatch) -> None:
        rows, forms = batch.rows, self._found.forms
        is_listed, is_whole = rows["indexes"] > 0, np.diff(batch.firsts) == rows["messages"]
        for form, chosen in ((LEGACY, ~is_listed), (INDEXED, is_listed & is_whole), (REDUCED, is_listed & ~is_whole)):
            count = int((chosen & (rows["kind"] == kernel.BATCH)).sum())
            if count:
                forms[form] = forms.get(form, 0) + count

    def _check_entry(self, batch: MessageBatch, index: int, place: Position) -> None:
        row = batch.rows[index]
        if row["kind"] == kernel.MARKER:
            self._found.add(FOREIGN, place, f"entry {place}: a marker, which no reader gets")
        elif row["indexes"]:
            self._check_indexes(batch, index, place)

    def _check_indexes(self, batch: MessageBatch, index: int, place: Position) -> None:
        """Field 31: ascending, in range, and what the payload says too where it has placeholders."""
        row = batch.rows[index]
        listed = _indexes(batch, index)
        try:
            check_indexes(listed, int(row["messages"]), f"entry {place}")
        except EntryCorrupt as error:
            self._found.add(INDEXES, place, error.message)
            return
        slots = _slots(batch, index)
        left = np.flatnonzero(slots["flags"] & slot_kernel.COMPACTED_OUT == 0)
        if row["kind"] == kernel.BATCH and len(slots) == row["messages"] and left.tolist() != listed:
            self._found.add(
                INDEXES,
                place,
                f"entry {place}: compacted_batch_indexes {listed[:16]}, the payload keeps {left[:16].tolist()}",
            )

    # -- side by side -------------------------------------------------------------------------------------------------

    def _fates(self, batch: MessageBatch) -> Array:
        fates = np.empty(len(batch.slots), np.uint8)
        slot_kernel.judge(batch.slots, batch.firsts, self._ordinal + batch.firsts[:-1], self._bits, False, fates)
        self._ordinal += len(batch.slots)
        return fates

    def _judge_trimmed(self, batch: MessageBatch) -> None:
        """Compacted messages whose own entries are trimmed: no later message may have their keys."""
        fates = self._fates(batch)
        entries = np.repeat(np.arange(len(batch.rows)), np.diff(batch.firsts))
        for number in np.flatnonzero((fates == slot_kernel.SUPERSEDED) | (fates == slot_kernel.NULLED)).tolist():
            index = int(entries[number])
            self._unwanted((batch, index), number - int(batch.firsts[index]), int(fates[number]))

    def _compare(self, batch: MessageBatch) -> None:
        """Compare one batch of the topic with the compacted entries of the same positions."""
        rows, firsts = batch.rows, batch.firsts
        fates = self._fates(batch)
        self._found.topic_entries += len(rows)
        self._found.topic_messages += len(batch.slots)
        totals = np.concatenate([[0], np.cumsum(fates == slot_kernel.RETAINED)])
        wanted = (totals[firsts[1:]] > totals[firsts[:-1]]) | (rows["kind"] == kernel.STRANGE)
        places = {
            place: index
            for index, place in enumerate(zip(rows["ledger_id"].tolist(), rows["entry_id"].tolist(), strict=True))
        }
        visited: set[int] = set()
        last = batch.position(len(rows) - 1) if len(rows) else Position(-1, -1)
        while self._next is not None and self._next[2] <= last:
            place = self._next[2]
            found = places.get((place.ledger_id, place.entry_id))
            if found is None:
                self._found.add(FOREIGN, place, f"entry {place}: compacted, but no entry of the topic")
            else:
                wanted[found] = False
                visited.add(found)
                self._compare_entry((batch, found), fates[firsts[found] : firsts[found + 1]], self._next)
            self._next = next(self._kept, None)
        self._found.unchecked += int((rows["kind"] == kernel.ENCRYPTED_BATCH).sum())
        for index in np.flatnonzero(wanted).tolist():
            self._missing((batch, index), fates[firsts[index] : firsts[index + 1]])
        for index in np.flatnonzero(rows["kind"] == kernel.CHUNK).tolist():
            self._check_chunk((batch, index), index in visited, fates[firsts[index] : firsts[index + 1]])

    def _check_chunk(self, original: tuple[MessageBatch, int], visited: bool, fates: Array) -> None:
        """Note a message that stays without all of its chunks, as 4.0.8 leaves it: nobody can join it."""
        batch, index = original
        uuid = uuid_of(batch, index)
        if (
            batch.rows[index]["chunk_id"] == 0
        ):  # another message of the same uuid, as producers without deduplication make
            self._absent_chunks.pop(uuid, None)
        if not visited:
            self._absent_chunks.setdefault(uuid, batch.position(index))
        elif len(fates) and fates[0] == slot_kernel.RETAINED and uuid in self._absent_chunks:
            place, absent = batch.position(index), self._absent_chunks[uuid]
            self._found.add(
                MISSING, place, f"entry {place}: the last chunk of a message, its chunk {absent} is not there"
            )

    def _compare_entry(self, original: tuple[MessageBatch, int], fates: Array, kept: Placed) -> None:
        batch, index = original
        kind, place = int(batch.rows[index]["kind"]), kept[2]
        if kind == kernel.UNCOMMITTED:
            self._found.add(FOREIGN, place, f"entry {place}: of a transaction that was not committed")
        elif kind in (kernel.STRANGE, kernel.ENCRYPTED_BATCH, kernel.SINGLE, kernel.CHUNK, kernel.MARKER):
            if not _is_same(kept, original):
                self._found.add(DIFFERS, place, f"entry {place}: not the bytes of the topic's entry")
            if len(fates) and fates[0] != slot_kernel.RETAINED:
                self._unwanted(original, 0, int(fates[0]))
        elif kept[0].rows[kept[1]]["kind"] != kernel.BATCH:
            self._found.add(DAMAGED, place, f"entry {place}: {_why_strange(kept)}")
        else:
            self._compare_batch(original, fates, kept)

    def _compare_batch(self, original: tuple[MessageBatch, int], fates: Array, kept: Placed) -> None:
        batch, index = original
        place = kept[2]
        mine = _messages(kept[0], kept[1])
        theirs = _messages(batch, index)
        if int(kept[0].rows[kept[1]]["messages"]) != int(batch.rows[index]["messages"]):
            self._found.add(DIFFERS, place, f"entry {place}: a batch of another number of messages than the topic's")
            return
        for number, data in mine.items():
            if number not in theirs:  # an index out of range, which was noted
                continue
            if data != theirs[number]:
                message = Position(place.ledger_id, place.entry_id, number)
                self._found.add(DIFFERS, message, f"message {message}: not the bytes of the topic's message")
            if fates[number] != slot_kernel.RETAINED:
                self._unwanted(original, number, int(fates[number]))
        self._missing(original, np.where(np.isin(np.arange(len(fates)), list(mine)), slot_kernel.OUT_BEFORE, fates))

    def _missing(self, original: tuple[MessageBatch, int], fates: Array) -> None:
        """Note the messages of a topic's entry that should have been kept and are not there."""
        batch, index = original
        place = batch.position(index)
        if batch.rows[index]["kind"] == kernel.STRANGE:
            self._found.add(
                MISSING, place, f"entry {place}: cannot be decoded and is not there; such entries are kept whole"
            )
        undecided = _slots(batch, index)["flags"] & slot_kernel.RULE_MATTERS != 0
        retained = fates == slot_kernel.RETAINED
        self._found.nulls_dropped += int((retained & undecided).sum())
        for number in np.flatnonzero(retained & ~undecided).tolist():
            message = _message_place(batch, index, number)
            self._found.add(
                MISSING, message, f"message {message}: the latest of key {_key(batch, index, number)!r} is not there"
            )

    def _unwanted(self, original: tuple[MessageBatch, int], number: int, fate: int) -> None:
        """Note message NUMBER of an entry, which is there and should not be."""
        batch, index = original
        if fate == slot_kernel.KEYLESS:
            self._found.keyless += 1
            return
        message, key = _message_place(batch, index, number), _key(batch, index, number)
        if fate == slot_kernel.NULLED:
            self._found.add(DELETED, message, f"message {message}: a null value of key {key!r} is there")
        elif fate == slot_kernel.SUPERSEDED:
            self._found.add(STALE, message, f"message {message}: key {key!r} was changed or deleted later")


def _is_same(kept: Placed, original: tuple[MessageBatch, int]) -> bool:
    """Whether an entry was kept whole: with its broker metadata, or as a client gets it.

    A broker's compactor is a client, which gets them with ``exposingBrokerEntryMetadataToClientEnabled`` only.
    """
    mine, theirs = bytes(kept[0].stored(kept[1])), original[0]
    return mine in (bytes(theirs.stored(original[1])), bytes(theirs.received(original[1])))


def _slots(batch: MessageBatch, index: int) -> Array:
    slots: Array = batch.slots[batch.firsts[index] : batch.firsts[index + 1]]
    return slots


def _indexes(batch: MessageBatch, index: int) -> list[int]:
    """Return metadata field 31 of an entry."""
    row = batch.rows[index]
    raw = bytes(batch.data.data[row["meta_start"] : row["meta_end"]])
    return list(MessageMetadata.FromString(raw).compacted_batch_indexes)


def _messages(batch: MessageBatch, index: int) -> dict[int, bytes]:
    """Return batch index → bytes (metadata and value) of the messages that a batch holds."""
    slots = _slots(batch, index)
    numbers: Any = range(len(slots))
    if len(slots) < int(batch.rows[index]["messages"]):
        numbers = _indexes(batch, index)
    plain = batch.plain(index).data
    return {
        number: bytes(plain[slot["start"] : slot["end"]])
        for number, slot in zip(numbers, slots, strict=True)
        if not slot["flags"] & slot_kernel.COMPACTED_OUT
    }


def _message_place(batch: MessageBatch, index: int, number: int) -> Position:
    place = batch.position(index)
    return Position(place.ledger_id, place.entry_id, number) if batch.rows[index]["kind"] == kernel.BATCH else place


def _key(batch: MessageBatch, index: int, number: int) -> str:
    slot = _slots(batch, index)[number]
    start = int(slot["key_start"])
    return bytes(batch.plain(index).data[start : start + max(int(slot["key_length"]), 0)]).decode("utf-8", "replace")


def _why_strange(kept: Placed) -> str:
    """Return what is wrong with a compacted entry that the kernel cannot read, in the ordinary reader's words."""
    batch, index, place = kept
    try:
        for _ in explode(decode_message_entry(batch.stored(index), f"compacted entry of {place}"), place):
            pass
    except StoreError as error:
        return error.message
    return "another kind of entry than the topic's"
