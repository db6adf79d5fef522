"""The two phases of compaction (upstream ``PublishingOrderCompactor``, 4.0.8, and PIP-429).

Phase one finds the latest message of every key; a null value (size 0) deletes its key. Phase two reads the same messages again
and yields the entries that stay. Entries that cannot be opened, encrypted batches and those that are no message, are kept whole
and take no part in phase one. Chunks of one message stay or go together: a broker keeps the last of them only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from store.compactor import kernel, slot_kernel
from store.compactor.batches import MessageBatch, MessageSource
from store.compactor.keys import LIMIT_KEYS, Latest, LatestKeys
from store.compactor.rewrite import NEW, Rewriter

Array = np.ndarray[Any, Any]  # a column; its dtype is stated where it is made
Advance = Callable[[int], None]  # told how many more entries are done

_WHOLE = (kernel.ENCRYPTED_BATCH, kernel.STRANGE)


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """What to keep and how. ``form``: "new" or "legacy"; ``everything``: keep all that was not taken out before."""

    form: str = NEW
    retain_keyless: bool = False
    everything: bool = False
    limit_keys: int = LIMIT_KEYS


@dataclass(slots=True)
class MessageCounts:
    """What became of the messages read. Kept: retained, encrypted, undecodable; the rest is dropped, by reason."""

    retained: int = 0
    encrypted: int = 0
    undecodable: int = 0
    superseded: int = 0
    null_values: int = 0
    keyless: int = 0
    uncommitted: int = 0
    markers: int = 0


@dataclass(slots=True)
class CompactionResult:
    """The numbers of phase two. ``is_changed``: something else than the compacted ledger that was read came out.

    Bytes are payload bytes of ledger entries, ``message_bytes…`` the stored payloads of messages alone.
    """

    entries_read: int = 0
    entries_kept: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    message_bytes_read: int = 0
    message_bytes_kept: int = 0
    messages: MessageCounts = field(default_factory=MessageCounts)
    new_format_batches: int = 0
    is_changed: bool = False


class Compaction:
    """One compaction of one topic: ``find_latest``, then ``payloads``, which may run more than once."""

    def __init__(self, source: MessageSource, rules: CompactionRules, partition: int) -> None:
        self.source = source
        self.rules = rules
        self.latest: Latest | None = None
        self.result = CompactionResult()
        self._rewriter = Rewriter(rules.form, partition)
        self._chunked: dict[bytes, int] = {}  # uuid → ordinal of the message, known at its last chunk
        self._bits = np.zeros(1, np.uint8)

    def find_latest(self, advance: Advance = lambda entries: None) -> Latest:
        """Phase one."""
        with LatestKeys(self.rules.limit_keys) as keys:
            ordinal = 0
            for batch in self.source.batches():
                keys.add(batch)
                self._note_chunks(batch, ordinal)
                ordinal += len(batch.slots)
                advance(len(batch.rows))
            self.latest = keys.finish()
        self._bits = self.latest.bits
        return self.latest

    def _note_chunks(self, batch: MessageBatch, ordinal: int) -> None:
        rows = batch.rows
        ends = (rows["kind"] == kernel.CHUNK) & (rows["chunk_id"] == rows["chunks"] - 1)
        for index in np.flatnonzero(ends).tolist():
            self._chunked[uuid_of(batch, index)] = ordinal + int(batch.firsts[index])

    def payloads(self, advance: Advance = lambda entries: None) -> Iterator[bytes]:
        """Phase two: yield the payload of every entry of the new ledger; ``result`` is complete at the end."""
        self.result = CompactionResult()
        ordinal = 0
        for batch in self.source.batches():
            fates = self._fates(batch, ordinal)
            self._count(batch, fates)
            yield from self._kept(batch, fates)
            ordinal += len(batch.slots)
            advance(len(batch.rows))

    def measure(self, advance: Advance = lambda entries: None) -> CompactionResult:
        """Run phase two for its numbers alone."""
        for _ in self.payloads(advance):
            pass
        return self.result

    def _fates(self, batch: MessageBatch, ordinal: int) -> Array:
        """Return what becomes of each message, one of the kernel's fates."""
        fates = np.empty(len(batch.slots), np.uint8)
        if self.rules.everything:
            out = batch.slots["flags"] & slot_kernel.COMPACTED_OUT != 0
            fates[:] = np.where(out, slot_kernel.OUT_BEFORE, slot_kernel.RETAINED)
        else:
            slot_kernel.judge(batch.slots, ordinal, self._bits, self.rules.retain_keyless, fates)
        return fates

    def _count(self, batch: MessageBatch, fates: Array) -> None:
        result, rows = self.result, batch.rows
        by_fate = np.bincount(fates, minlength=5).tolist()
        counts = result.messages
        counts.retained += by_fate[slot_kernel.RETAINED]
        counts.superseded += by_fate[slot_kernel.SUPERSEDED]
        counts.null_values += by_fate[slot_kernel.NULLED]
        counts.keyless += by_fate[slot_kernel.KEYLESS]
        sizes = np.maximum(rows["messages"], 1)
        counts.encrypted += int(sizes[rows["kind"] == kernel.ENCRYPTED_BATCH].sum())
        counts.uncommitted += int(sizes[rows["kind"] == kernel.UNCOMMITTED].sum())
        counts.undecodable += int((rows["kind"] == kernel.STRANGE).sum())
        counts.markers += int((rows["kind"] == kernel.MARKER).sum())
        result.entries_read += len(rows)
        overhead = np.where(rows["id_end"] > 0, 8 + rows["id_end"] - rows["id_start"], 0)
        result.bytes_read += int((rows["end"] - rows["start"] + overhead).sum())
        result.message_bytes_read += int((rows["end"] - np.minimum(rows["meta_end"], rows["end"])).sum())

    def _kept(self, batch: MessageBatch, fates: Array) -> Iterator[bytes]:
        kept = fates == slot_kernel.RETAINED
        rows, firsts = batch.rows, batch.firsts
        totals = np.concatenate([[0], np.cumsum(kept)])
        per_entry = totals[firsts[1:]] - totals[firsts[:-1]]
        stays = (per_entry > 0) | np.isin(rows["kind"], _WHOLE) | (rows["kind"] == kernel.CHUNK)
        dropped = len(rows) - int(stays.sum())
        self.result.is_changed |= dropped > 0 or not batch.compacted
        kinds = rows["kind"].tolist()
        for index in np.flatnonzero(stays).tolist():
            if kinds[index] == kernel.CHUNK and not self._keeps_chunk(batch, index):
                self.result.is_changed = True
                continue
            mine = kept[firsts[index] : firsts[index + 1]]
            if kinds[index] != kernel.BATCH or self._rewriter.is_as_wanted(batch, index, mine):
                payload = self._rewriter.whole(batch, index)
                stored = int(rows["end"][index] - rows["meta_end"][index])
            else:
                payload = self._rewriter.rebatched(batch, index, mine)
                stored = self._rewriter.stored_bytes
                self.result.is_changed = True
            self.result.entries_kept += 1
            self.result.new_format_batches += kinds[index] == kernel.BATCH and self.rules.form == NEW
            self.result.bytes_kept += len(payload)
            self.result.message_bytes_kept += stored
            yield payload

    def _keeps_chunk(self, batch: MessageBatch, index: int) -> bool:
        """Whether the message of chunk INDEX stays; one whose last chunk is not here may still become whole: it does."""
        if self.rules.everything:
            return True
        ordinal = self._chunked.get(uuid_of(batch, index))
        if ordinal is None:
            return True
        if batch.rows[index]["key_length"] < 0:
            return self.rules.retain_keyless
        return bool(self._bits[ordinal >> 3] >> (ordinal & 7) & 1)


def uuid_of(batch: MessageBatch, index: int) -> bytes:
    """Return the uuid that the chunks of one message share."""
    row = batch.rows[index]
    return bytes(batch.data.data[row["uuid_start"] : row["uuid_start"] + row["uuid_length"]])
