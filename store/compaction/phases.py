"""The two phases of compaction (upstream ``PublishingOrderCompactor``, 4.0.8 and 4.2.4).

Phase one finds the latest message of every key; a null value deletes its key. Phase two reads what stays again and yields
the new entries. Entries that cannot be opened, encrypted batches and those that are not messages are kept whole and take no part in
phase one. Chunks of one message stay or go together: a broker keeps the last of them only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct, field

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.compaction.batches import MessageBatch, MessageSource
from pulsar_admin.store.compaction.facts import WHOLE, Survey, survey, uuid_of
from pulsar_admin.store.compaction.forms import INDEXED, REDUCED
from pulsar_admin.store.compaction.inventory import Inventory
from pulsar_admin.store.compaction.keys import LIMIT_KEYS, Latest, LatestKeys
from pulsar_admin.store.compaction.rewrite import EntryColumns, Rewriter
from pulsar_admin.store.compaction.surveying import iter_facts
from pulsar_admin.store.kernels import compaction as kernel
from pulsar_admin.store.kernels import slots as slot_kernel
from pulsar_admin.store.scan.places import Part

Advance = Callable[[int], None]  # told how many more entries are done


class CompactionRules(Struct, frozen=True):
    """What to keep and how. ``form``: one of ``forms.FORMATS``; ``everything``: keep all that was not taken out before."""

    form: str = INDEXED
    retain_keyless: bool = False
    everything: bool = False
    limit_keys: int = LIMIT_KEYS


class MessageCounts(Struct):
    """What became of the messages read. Kept: retained, encrypted, undecodable; the rest is dropped, by reason."""

    retained: int = 0
    encrypted: int = 0
    undecodable: int = 0
    superseded: int = 0
    null_values: int = 0
    keyless: int = 0
    uncommitted: int = 0
    markers: int = 0


class CompactionResult(Struct):
    """The numbers of a compaction. ``is_changed``: something else than the compacted ledger that was read came out.

    Bytes are payload bytes of ledger entries, ``message_bytes…`` the stored payloads of messages alone.
    """

    entries_read: int = 0
    entries_kept: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    message_bytes_read: int = 0
    message_bytes_kept: int = 0
    messages: MessageCounts = field(default_factory=MessageCounts)
    reduced_batches: int = 0
    is_changed: bool = False


class Compaction:
    """One compaction of one topic: ``find_latest``, then ``payloads``; with the rule ``everything`` the second alone."""

    def __init__(self, source: MessageSource, rules: CompactionRules, partition: int) -> None:
        self.source = source
        self.rules = rules
        self.latest: Latest | None = None
        self.result = CompactionResult()
        self._rewriter = Rewriter(rules.form, partition)
        self._inventory = Inventory()
        # uuid → ordinals of the messages, known at their last chunks: producers without deduplication give one again
        self._chunked: dict[bytes, list[int]] = {}
        self._bits = np.zeros(1, np.uint8)

    # -- phase one ----------------------------------------------------------------------------------------------------

    def find_latest(self, advance: Advance = lambda entries: None) -> Latest:
        """Phase one."""
        with LatestKeys(self.rules.limit_keys) as keys:
            for facts, compacted in iter_facts(self.source, keys, self.rules.retain_keyless):
                for uuid, number in facts.chunk_ends:
                    self._chunked.setdefault(uuid, []).append(self._inventory.messages + number)
                self._inventory.add(facts, compacted=compacted)
                self._count(facts.survey, compacted)
                advance(facts.entries)
            self.latest = keys.finish()
        self._bits = self.latest.bits
        counts = self.result.messages
        counts.retained = self.latest.keys
        counts.superseded -= self.latest.keys
        if self.rules.retain_keyless:
            counts.retained, counts.keyless = counts.retained + counts.keyless, 0
        return self.latest

    def _count(self, found: Survey, compacted: bool) -> None:
        """Count what is read; ``superseded`` counts every value with a key until it is known how many are the latest."""
        result, counts = self.result, self.result.messages
        counts.superseded += found.keyed
        counts.null_values += found.null_values
        counts.keyless += found.keyless
        counts.encrypted += found.encrypted
        counts.uncommitted += found.uncommitted
        counts.undecodable += found.undecodable
        counts.markers += found.markers
        result.entries_read += found.entries
        result.bytes_read += found.bytes
        result.message_bytes_read += found.message_bytes
        result.is_changed |= found.entries > 0 and not compacted

    # -- phase two ----------------------------------------------------------------------------------------------------

    def payloads(self, advance: Advance = lambda entries: None) -> Iterator[bytes | EntryColumns]:
        """Phase two: yield the payloads of the new ledger's entries; ``result`` is complete at the end."""
        result = self.result
        result.entries_kept = result.bytes_kept = result.message_bytes_kept = result.reduced_batches = 0
        for batch, ordinals in self._everything() if self.rules.everything else self._wanted():
            yield from self._kept(batch, self._fates(batch, ordinals), ordinals)
            advance(len(batch.rows))
        result.is_changed |= result.entries_kept < result.entries_read

    def measure(self, advance: Advance = lambda entries: None) -> CompactionResult:
        """Run phase two for its numbers alone."""
        deque(self.payloads(advance), maxlen=0)
        return self.result

    def _everything(self) -> Iterator[tuple[MessageBatch, Array]]:
        self.result = CompactionResult()
        for batch in self.source.batches():
            self._count(survey(batch), batch.compacted)
            yield batch, batch.firsts[:-1]
        counts = self.result.messages
        counts.retained = counts.superseded + counts.null_values + counts.keyless
        counts.superseded = counts.null_values = counts.keyless = 0

    def _wanted(self) -> Iterator[tuple[MessageBatch, Array]]:
        """Yield the entries that phase one did not rule out, and the ordinal of the first message of each."""
        for compacted in (True, False):
            ordinals: deque[Array] = deque()
            parts = self._noting(self._inventory.wanted(self._bits, compacted=compacted), ordinals)
            for batch in self.source.read_again(parts, compacted=compacted):
                yield batch, _take(ordinals, len(batch.rows))

    def _noting(self, wanted: Iterator[tuple[Part, Array]], ordinals: deque[Array]) -> Iterator[Part]:
        for part, found in wanted:
            ordinals.append(found)
            yield part

    def _fates(self, batch: MessageBatch, ordinals: Array) -> Array:
        """Return what becomes of each message, one of the kernel's fates."""
        fates = np.empty(len(batch.slots), np.uint8)
        if self.rules.everything:
            out = batch.slots["flags"] & slot_kernel.COMPACTED_OUT != 0
            fates[:] = np.where(out, slot_kernel.OUT_BEFORE, slot_kernel.RETAINED)
        else:
            slot_kernel.judge(batch.slots, batch.firsts, ordinals, self._bits, self.rules.retain_keyless, fates)
        return fates

    def _kept(self, batch: MessageBatch, fates: Array, ordinals: Array) -> Iterator[bytes | EntryColumns]:
        """Yield what stays of BATCH in order: runs of entries as they are, and batches written anew."""
        kept = fates == slot_kernel.RETAINED
        rows, firsts = batch.rows, batch.firsts
        totals = np.concatenate([[0], np.cumsum(kept)])
        stays = (totals[firsts[1:]] > totals[firsts[:-1]]) | np.isin(rows["kind"], WHOLE)
        kinds = rows["kind"].tolist()
        whole: list[int] = []
        for index in np.flatnonzero(stays).tolist():
            if kinds[index] == kernel.CHUNK and not self._keeps_chunk(batch, index, int(ordinals[index])):
                continue
            if kinds[index] == kernel.BATCH:
                mine = kept[firsts[index] : firsts[index + 1]]
                self.result.reduced_batches += self.rules.form == REDUCED
                if not self._rewriter.is_as_wanted(batch, index, mine):
                    yield from self._whole(batch, whole)
                    whole = []
                    yield self._rebatched(batch, index, mine)
                    continue
            whole.append(index)
        yield from self._whole(batch, whole)

    def _whole(self, batch: MessageBatch, chosen: list[int]) -> Iterator[EntryColumns]:
        if not chosen:
            return
        indexes = np.array(chosen, np.int64)
        columns, rows = self._rewriter.whole(batch, indexes), batch.rows[indexes]
        self.result.entries_kept += len(chosen)
        self.result.bytes_kept += int(columns.sizes.sum())
        self.result.message_bytes_kept += int((rows["end"] - rows["meta_end"]).sum())
        yield columns

    def _rebatched(self, batch: MessageBatch, index: int, kept: Array) -> bytes:
        payload = self._rewriter.rebatched(batch, index, kept)
        self.result.entries_kept += 1
        self.result.bytes_kept += len(payload)
        self.result.message_bytes_kept += self._rewriter.stored_bytes
        self.result.is_changed = True
        return payload

    def _keeps_chunk(self, batch: MessageBatch, index: int, ordinal: int) -> bool:
        """Whether the message of chunk INDEX stays; ORDINAL: of the message that is there or comes next.

        One whose last chunk is not here may still become whole: it does.
        """
        if self.rules.everything:
            return True
        ends = self._chunked.get(uuid_of(batch, index), [])
        place = bisect_left(ends, ordinal)
        if place == len(ends):
            return True
        if batch.rows[index]["key_length"] < 0:
            return self.rules.retain_keyless
        return bool(self._bits[ends[place] >> 3] >> (ends[place] & 7) & 1)


def _take(ordinals: deque[Array], count: int) -> Array:
    """Take the ordinals of the next COUNT entries off ORDINALS."""
    taken: list[Array] = []
    while count:
        first = ordinals.popleft()
        taken.append(first[:count])
        if len(first) > count:
            ordinals.appendleft(first[count:])
        count -= len(taken[-1])
    return np.concatenate(taken) if taken else np.empty(0, np.int64)
