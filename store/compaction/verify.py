"""Comparing a compacted ledger with its topic: messages that are missing, should not be there, or differ.

Both are read in order, side by side, in bounded memory. Messages of trimmed ledgers cannot be compared, but must not
have a key that occurs later in the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.message import decode_message_entry, decode_metadata
from pulsar_admin.store.compaction import forms
from pulsar_admin.store.compaction.batches import MessageBatch, MessageSource, log_and_view
from pulsar_admin.store.compaction.compactor import iter_facts
from pulsar_admin.store.compaction.keys import LatestKeys, uuid_of
from pulsar_admin.store.compaction.last_id import check_indexes
from pulsar_admin.store.compaction.status import readable_floor
from pulsar_admin.store.errors import EntryCorrupt, NotSeen, StoreError
from pulsar_admin.store.kernels import compaction as kernel
from pulsar_admin.store.kernels import slots as slot_kernel
from pulsar_admin.store.model.compacted_view import CompactedView
from pulsar_admin.store.model.coverage import bring_hint, count_unseen
from pulsar_admin.store.model.cursors import iter_ledger_parts
from pulsar_admin.store.model.ledgers import missing_ranges, read_ledger
from pulsar_admin.store.model.messages import explode
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position
from pulsar_admin.store.wording import counted, listed


def verify_view(
    reader: EntryReader,
    topic: Topic,
    view: CompactedView,
    *,
    limit_keys: int,
    advance: Callable[[int], None] = lambda entries: None,
) -> forms.Verification:
    """Compare a view's compacted ledger with the entries of the topic that it covers; raises NotSeen if part of it was not imported."""
    ledger = read_ledger(reader.txn, view.ledger_id)
    unseen, bookies = count_unseen(reader.txn, ledger, missing_ranges(reader.txn, ledger))
    if unseen:
        raise NotSeen(
            f"whether the compacted ledger {view.ledger_id} is right is unknown: {counted(unseen, 'entry')} of it may be on "
            f"{listed(bookies)}, not imported",
            hint=bring_hint(bookies),
            ledgerId=view.ledger_id,
        )
    verification = forms.Verification(view.ledger_id, view.horizon)
    floor = readable_floor(reader, topic, view)
    parts = tuple(iter_ledger_parts(topic, 0, topic.place(floor)))
    # By the rule of 4.0 the messages that the rules disagree on are values: either may have written them, or left them out.
    log, kept = log_and_view(reader, topic, parts, view, forms.RULE_4_0)
    first = Position(parts[0][0], parts[0][1]) if parts else Position(floor.ledger_id, floor.entry_id + 1)
    with LatestKeys(limit_keys) as keys:
        for batch in keys.adding(_batches_before(kept, first)):
            advance(0 if parts else len(batch.rows))  # the total is of the topic's entries
        for facts, _ in iter_facts(log, keys, retain_keyless=False):
            advance(facts.entries)
        latest = keys.finish()
    comparison = _Comparison(verification, latest.bits, floor)
    comparison.run(kept, log, first, advance)
    for error in kept.damaged:
        verification.add(forms.DAMAGED, None, error.message)
    if kept.lost:
        verification.add(
            forms.DAMAGED,
            None,
            f"of the compacted ledger {view.ledger_id} {counted(kept.lost, 'entry is', 'entries are')} lost",
        )
    verification.lost = len(log.damaged) + log.lost
    return verification


def _batches_before(kept: MessageSource, first: Position) -> Iterator[MessageBatch]:
    """Yield the compacted entries from before ``first``, which the topic itself no longer has."""
    for batch in kept.batches():
        ledgers, entries = batch.rows["ledger_id"], batch.rows["entry_id"]
        before: Array = (ledgers < first.ledger_id) | ((ledgers == first.ledger_id) & (entries < first.entry_id))
        count = int(before.sum())
        if count:
            yield batch.head(count)
        if count < len(batch.rows):
            return


class _Entry(Struct, frozen=True):
    """One entry of a batch of entries, and its place in the topic."""

    batch: MessageBatch
    index: int
    position: Position

    @classmethod
    def of(cls, batch: MessageBatch, index: int) -> _Entry:
        return cls(batch, index, batch.position(index))

    @property
    def row(self) -> Any:  # Any: a numpy row
        return self.batch.rows[self.index]

    @property
    def slots(self) -> Array:
        slots: Array = self.batch.slots[self.batch.firsts[self.index] : self.batch.firsts[self.index + 1]]
        return slots

    def indexes(self) -> list[int]:
        """Return ``compacted_batch_indexes``, field 31 of the metadata."""
        raw = bytes(self.batch.data.data[self.row["meta_start"] : self.row["meta_end"]])
        return list(decode_metadata(raw, f"entry {self.position}").compacted_batch_indexes)

    def messages(self) -> dict[int, bytes]:
        """Return batch index → bytes (metadata and value) of the messages that a batch holds."""
        slots = self.slots
        numbers: Any = range(len(slots))
        if len(slots) < int(self.row["messages"]):
            numbers = self.indexes()
        plain = self.batch.plain(self.index).data
        return {
            number: bytes(plain[slot["start"] : slot["end"]])
            for number, slot in zip(numbers, slots, strict=True)
            if not slot["flags"] & slot_kernel.COMPACTED_OUT
        }

    def place_of(self, number: int) -> Position:
        """Return the position of the entry's message ``number``."""
        place = self.position
        return Position(place.ledger_id, place.entry_id, number) if self.row["kind"] == kernel.BATCH else place

    def key_of(self, number: int) -> str:
        slot = self.slots[number]
        start = int(slot["key_start"])
        end = start + max(int(slot["key_length"]), 0)
        return bytes(self.batch.plain(self.index).data[start:end]).decode("utf-8", "replace")


class _Comparison:
    """The second pass, which compares compacted entries with the topic's; ``bits``: the messages that should be kept."""

    def __init__(self, found: forms.Verification, bits: Array, floor: Position) -> None:
        self._found = found
        self._bits = bits
        self._floor = floor
        self._ordinal = 0
        self._next: _Entry | None = None
        self._kept: Iterator[_Entry]
        self._absent_chunks: dict[bytes, Position] = {}  # uuid → a chunk that is not in the compacted ledger

    def run(self, kept: MessageSource, log: MessageSource, first: Position, advance: Callable[[int], None]) -> None:
        """Compare the compacted ledger (``kept``) with the topic (``log``); ``first``: the topic's first entry."""
        for batch in _batches_before(kept, first):
            self._found.trimmed_before = first
            # Compacted messages whose own entries are trimmed: no later message may have their keys.
            fates = self._fates(batch)
            entries = np.repeat(np.arange(len(batch.rows)), np.diff(batch.firsts))
            for number in np.flatnonzero((fates == slot_kernel.SUPERSEDED) | (fates == slot_kernel.NULLED)).tolist():
                index = int(entries[number])
                self._unwanted(_Entry.of(batch, index), number - int(batch.firsts[index]), int(fates[number]))
        self._kept = self._iter_kept(kept)
        self._next = next(self._kept, None)
        while self._next is not None and self._next.position < first:
            self._next = next(self._kept, None)
        for batch in log.batches():
            self._compare(batch)
            advance(len(batch.rows))
        while self._next is not None:
            place = self._next.position
            self._found.add(
                forms.FOREIGN, place, f"entry {place}: compacted, but no entry of the topic up to {self._floor}"
            )
            self._next = next(self._kept, None)

    def _iter_kept(self, kept: MessageSource) -> Iterator[_Entry]:
        """Yield the compacted entries, after the checks that do not need the topic."""
        before = Position(-1, -1)
        for batch in kept.batches():
            self._found.entries += len(batch.rows)
            self._found.messages += int((batch.slots["flags"] & slot_kernel.COMPACTED_OUT == 0).sum())
            self._found.nulls_kept += int((batch.slots["flags"] & slot_kernel.RULE_MATTERS != 0).sum())
            rows, counted_forms = batch.rows, self._found.forms
            is_listed, is_whole = rows["indexes"] > 0, np.diff(batch.firsts) == rows["messages"]
            for form, chosen in (
                (forms.LEGACY, ~is_listed),
                (forms.INDEXED, is_listed & is_whole),
                (forms.REDUCED, is_listed & ~is_whole),
            ):
                count = int((chosen & (rows["kind"] == kernel.BATCH)).sum())
                if count:
                    counted_forms[form] = counted_forms.get(form, 0) + count
            for index in range(len(batch.rows)):
                place = batch.position(index)
                if place <= before:
                    self._found.add(forms.ORDER, place, f"entry {place} comes after {before}, out of order")
                    continue
                before = place
                entry = _Entry(batch, index, place)
                if entry.row["kind"] == kernel.MARKER:
                    self._found.add(
                        forms.FOREIGN, entry.position, f"entry {entry.position}: a marker, which no reader gets"
                    )
                elif entry.row["indexes"]:
                    self._check_indexes(entry)
                yield entry

    def _check_indexes(self, entry: _Entry) -> None:
        """Add a finding unless field 31 is ascending, in range, and equal to the payload's placeholders if it has any."""
        row, place = entry.row, entry.position
        listed = entry.indexes()
        try:
            check_indexes(listed, int(row["messages"]), f"entry {place}")
        except EntryCorrupt as error:
            self._found.add(forms.INDEXES, place, error.message)
            return
        slots = entry.slots
        left = np.flatnonzero(slots["flags"] & slot_kernel.COMPACTED_OUT == 0)
        if row["kind"] == kernel.BATCH and len(slots) == row["messages"] and left.tolist() != listed:
            self._found.add(
                forms.INDEXES,
                place,
                f"entry {place}: compacted_batch_indexes {listed[:16]}, the payload keeps {left[:16].tolist()}",
            )

    # -- side by side -------------------------------------------------------------------------------------------------

    def _fates(self, batch: MessageBatch) -> Array:
        fates = np.empty(len(batch.slots), np.uint8)
        slot_kernel.judge(batch.slots, batch.firsts, self._ordinal + batch.firsts[:-1], self._bits, False, fates)
        self._ordinal += len(batch.slots)
        return fates

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
        while self._next is not None and self._next.position <= last:
            place = self._next.position
            number = places.get((place.ledger_id, place.entry_id))
            if number is None:
                self._found.add(forms.FOREIGN, place, f"entry {place}: compacted, but no entry of the topic")
            else:
                wanted[number] = False
                visited.add(number)
                self._compare_entry(_Entry.of(batch, number), fates[firsts[number] : firsts[number + 1]], self._next)
            self._next = next(self._kept, None)
        self._found.unchecked += int((rows["kind"] == kernel.ENCRYPTED_BATCH).sum())
        for index in np.flatnonzero(wanted).tolist():
            self._missing(_Entry.of(batch, index), fates[firsts[index] : firsts[index + 1]])
        for index in np.flatnonzero(rows["kind"] == kernel.CHUNK).tolist():
            self._check_chunk(_Entry.of(batch, index), index in visited, fates[firsts[index] : firsts[index + 1]])

    def _check_chunk(self, original: _Entry, visited: bool, fates: Array) -> None:
        """Add a finding for a kept message without all of its chunks, as 4.0.8 leaves it: readers cannot join it."""
        uuid, place = uuid_of(original.batch, original.index), original.position
        if original.row["chunk_id"] == 0:  # another message: producers without deduplication may use a uuid again
            self._absent_chunks.pop(uuid, None)
        if not visited:
            self._absent_chunks.setdefault(uuid, place)
        elif len(fates) and fates[0] == slot_kernel.RETAINED and uuid in self._absent_chunks:
            absent = self._absent_chunks[uuid]
            self._found.add(
                forms.MISSING, place, f"entry {place}: the last chunk of a message, its chunk {absent} is missing"
            )

    def _compare_entry(self, original: _Entry, fates: Array, kept: _Entry) -> None:
        kind, place = int(original.row["kind"]), kept.position
        if kind == kernel.UNCOMMITTED:
            self._found.add(forms.FOREIGN, place, f"entry {place}: of a transaction that was not committed")
        elif kind in (kernel.STRANGE, kernel.ENCRYPTED_BATCH, kernel.SINGLE, kernel.CHUNK, kernel.MARKER):
            # A broker's compactor is a client, which gets broker metadata only with
            # ``exposingBrokerEntryMetadataToClientEnabled``.
            mine = bytes(kept.batch.stored(kept.index))
            theirs, index = original.batch, original.index
            if mine not in (bytes(theirs.stored(index)), bytes(theirs.received(index))):
                self._found.add(forms.DIFFERS, place, f"entry {place}: not the bytes of the topic's entry")
            if len(fates) and fates[0] != slot_kernel.RETAINED:
                self._unwanted(original, 0, int(fates[0]))
        elif kept.row["kind"] != kernel.BATCH:
            self._found.add(forms.DAMAGED, place, f"entry {place}: {_why_strange(kept)}")
        else:
            self._compare_batch(original, fates, kept)

    def _compare_batch(self, original: _Entry, fates: Array, kept: _Entry) -> None:
        place = kept.position
        mine, theirs = kept.messages(), original.messages()
        if int(kept.row["messages"]) != int(original.row["messages"]):
            self._found.add(
                forms.DIFFERS, place, f"entry {place}: a batch of another number of messages than the topic's"
            )
            return
        for number, data in mine.items():
            if number not in theirs:  # an index out of range, which was noted
                continue
            if data != theirs[number]:
                message = Position(place.ledger_id, place.entry_id, number)
                self._found.add(forms.DIFFERS, message, f"message {message}: not the bytes of the topic's message")
            if fates[number] != slot_kernel.RETAINED:
                self._unwanted(original, number, int(fates[number]))
        self._missing(original, np.where(np.isin(np.arange(len(fates)), list(mine)), slot_kernel.OUT_BEFORE, fates))

    def _missing(self, original: _Entry, fates: Array) -> None:
        """Add findings for the messages of a topic's entry that should have been kept and are missing."""
        place = original.position
        if original.row["kind"] == kernel.STRANGE:
            self._found.add(
                forms.MISSING,
                place,
                f"entry {place}: cannot be decoded and is missing; compaction keeps such entries whole",
            )
        undecided = original.slots["flags"] & slot_kernel.RULE_MATTERS != 0
        retained = fates == slot_kernel.RETAINED
        self._found.nulls_dropped += int((retained & undecided).sum())
        for number in np.flatnonzero(retained & ~undecided).tolist():
            message, key = original.place_of(number), original.key_of(number)
            self._found.add(forms.MISSING, message, f"message {message}: the latest of key {key!r} is missing")

    def _unwanted(self, original: _Entry, number: int, fate: int) -> None:
        """Add a finding for a message that is present but should not be."""
        if fate == slot_kernel.KEYLESS:
            self._found.keyless += 1
            return
        message, key = original.place_of(number), original.key_of(number)
        if fate == slot_kernel.NULLED:
            self._found.add(forms.DELETED, message, f"message {message}: a null value of key {key!r} is there")
        elif fate == slot_kernel.SUPERSEDED:
            self._found.add(forms.STALE, message, f"message {message}: key {key!r} was changed or deleted later")


def _why_strange(kept: _Entry) -> str:
    """Return the ordinary reader's error for a compacted entry that the kernel cannot read."""
    place = kept.position
    try:
        for _ in explode(decode_message_entry(kept.batch.stored(kept.index), f"compacted entry of {place}"), place):
            pass
    except StoreError as error:
        return error.message
    return "another kind of entry than the topic's"
