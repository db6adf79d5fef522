"""The input of a compaction, in bounded memory: the messages of the present compacted ledger, then the topic's later ones.

A broker's compactor also reads with read-compacted, so messages that an earlier compaction kept are input again, even
if their ledgers were trimmed since.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from itertools import starmap

import numpy as np
from msgspec import Struct, field

from pulsar_admin.store import errors
from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.compactedentry import decode_compacted_entry
from pulsar_admin.store.codec.compression import LIMIT_BYTES, NONE, decompress
from pulsar_admin.store.codec.message import decode_message_entry
from pulsar_admin.store.compaction.forms import RULE_4_0, RULE_4_2
from pulsar_admin.store.compaction.heads import Transactions, has_transactions, read_transactions
from pulsar_admin.store.compaction.last_id import check_indexes
from pulsar_admin.store.kernels import compaction as kernel
from pulsar_admin.store.kernels import slots as slot_kernel
from pulsar_admin.store.model.compacted_view import CompactedView, parts_of_view
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position
from pulsar_admin.store.scan.entries import EntryScan
from pulsar_admin.store.scan.integer_rows import runs_of
from pulsar_admin.store.scan.places import EntryBatch, Part
from pulsar_admin.store.wording import counted

SCRATCH_BYTES = 16 << 20  # decompressed payloads held at once, one more entry at most
_LEAST_SLOT_BYTES = 6
_PLACE = ("ledger_id", "entry_id")


class MessageBatch(Struct):
    """Some entries in order and the messages in them. Spans are offsets into ``data`` or, IN_SCRATCH, into ``scratch``.

    ``rows``: kernel.ENTRY; ``slots``: slot_kernel.SLOT; ``firsts``: number of the first slot of each entry, one more
    for the end. ``stored_ledgers``, ``stored_entries``: where the entries were read, which in a compacted ledger is
    not their position.
    """

    compacted: bool
    stored_ledgers: Array  # i64
    stored_entries: Array  # i64
    data: Array  # u8
    scratch: Array  # u8
    rows: Array
    slots: Array
    firsts: Array  # i64

    def stored(self, index: int) -> memoryview:
        """Return the entry as a topic holds it, broker metadata included."""
        row = self.rows[index]
        return self.data.data[row["start"] : row["end"]]

    def received(self, index: int) -> memoryview:
        """Return the entry as a client gets it, without broker metadata."""
        row = self.rows[index]
        return self.data.data[row["front_end"] : row["end"]]

    def plain(self, index: int) -> Array:
        """Return the array to which the spans of an entry's messages are offsets."""
        return self.scratch if self.rows[index]["flags"] & kernel.IN_SCRATCH else self.data

    def head(self, count: int) -> MessageBatch:
        """Return the first entries and their messages."""
        firsts = self.firsts[: count + 1]
        places = (self.stored_ledgers[:count], self.stored_entries[:count])
        return MessageBatch(
            self.compacted, *places, self.data, self.scratch, self.rows[:count], self.slots[: firsts[-1]], firsts
        )

    def position(self, index: int) -> Position:
        """Return the original position of an entry."""
        row = self.rows[index]
        return Position(int(row["ledger_id"]), int(row["entry_id"]))


class MessageSource(Struct):
    """The input of a compaction: the entries of the view's ledger (None: no view), then parts of the topic.

    ``transactions`` returns the outcomes of the topic's transactions and is called if an entry belongs to one;
    ``transactional``: some do. With ``skip_damaged`` unreadable entries are skipped and added to ``damaged``; without
    it EntryCorrupt is raised at the end of the part. ``encrypted_by_key``: an encrypted batch is one message with the
    entry's key, as brokers treat it. ``rule``: the rule for null values. ``as_is``: damaged compacted entries are
    returned anyway.
    """

    reader: EntryReader
    view: CompactedView | None
    parts: tuple[Part, ...]
    transactions: Callable[[], Transactions]
    skip_damaged: bool = False
    encrypted_by_key: bool = False
    rule: str = RULE_4_2
    transactional: bool = False
    as_is: bool = False
    damaged: list[errors.StoreError] = field(default_factory=list)
    lost: int = 0
    _before: tuple[int, int] = (-1, -1)  # original (ledger, entry) of the last compacted entry

    def batches(self) -> Iterator[MessageBatch]:
        """Yield the messages in order; every call yields the same."""
        for scan, compacted in self.scans():
            for entries in scan.batches():
                yield from self.exploded(entries, compacted)

    def scans(self) -> Iterator[tuple[EntryScan, bool]]:
        """Yield (scan, whether of the compacted ledger) in order; read each scan to its end before requesting the next."""
        self.damaged, self.lost = [], 0
        self._before = (-1, -1)
        if self.view is not None:
            yield from self._scan(parts_of_view(self.view), compacted=True)
        yield from self._scan(self.parts, compacted=False)

    def read_again(self, parts: Iterable[Part], *, compacted: bool) -> Iterator[MessageBatch]:
        """Yield the messages of ``parts``, which ``batches`` yielded before; ``parts`` is consumed lazily.

        Raises SourceChanged if an entry can no longer be read.
        """
        scan = EntryScan(self.reader, parts)
        self._before, noted = (-1, -1), len(self.damaged)
        for entries in scan.batches():
            if scan.unreadable:
                raise errors.SourceChanged(
                    f"{scan.unreadable[0].message}: it was sound a moment ago",
                    hint="something changed the entry logs meanwhile: run it again",
                )
            yield from self.exploded(entries, compacted)
            del self.damaged[noted:]

    def exploded(self, entries: EntryBatch, compacted: bool) -> Iterator[MessageBatch]:
        """Yield the messages of entries; for a damaged entry of a compacted ledger EntryCorrupt is raised or noted."""
        rows = decode_rows(entries, compacted=compacted, encrypted_by_key=self.encrypted_by_key, rule=self.rule)
        if compacted:
            entries, rows = self._without_broken(entries, rows)
        elif transactional(rows).any():
            drop_uncommitted(rows, self.transactions().committed)
        for batch in explode(entries, rows, compacted=compacted):
            if compacted and not self.as_is:
                # The writer of the list could read the batch, so the batch is damaged, not merely unknown.
                for index in np.flatnonzero(contradicts(batch)).tolist():
                    row = batch.rows[index]
                    where = f"compacted ledger entry {batch.stored_ledgers[index]}:{batch.stored_entries[index]}"
                    self._note(
                        errors.EntryCorrupt(
                            f"{where}: a batch of {row['messages']} messages that lists {row['indexes']} does not hold them",
                            hint="compact what can be read with --skip-damaged, or from the topic's own entries with --from-start",
                            where=where,
                        )
                    )
            yield batch

    def _scan(self, parts: tuple[Part, ...], *, compacted: bool) -> Iterator[tuple[EntryScan, bool]]:
        scan = EntryScan(self.reader, parts)
        yield scan, compacted
        self.lost += scan.missing
        self.damaged += scan.unreadable
        if self.skip_damaged:
            return
        if scan.unreadable:
            raise scan.unreadable[0]
        for ledger_id, first, last in parts if scan.missing else ():
            for entry_id in range(first, last + 1):
                try:
                    self.reader.read(ledger_id, entry_id)
                except (errors.EntryNotFound, errors.EntryCorrupt, errors.EntryLogCorrupt) as error:
                    raise errors.EntryCorrupt(
                        f"{error.message} ({counted(scan.missing, 'entry')} cannot be read in all)",
                        hint="compact what can be read with --skip-damaged: older messages of keys may come back",
                        **error.context,
                    ) from error

    def _without_broken(self, entries: EntryBatch, rows: Array) -> tuple[EntryBatch, Array]:
        """Leave out, and note, a compacted ledger's entries without a readable id or index list, and those out of order."""
        broken = rows["kind"] == kernel.BROKEN
        if not self.as_is:
            broken |= rows["flags"] & kernel.BAD_INDEXES != 0
        begins, ends = entries.starts, entries.ends
        for index in np.flatnonzero(broken).tolist():
            where = f"compacted ledger entry {entries.ledger_ids[index]}:{entries.entry_ids[index]}"
            self._note(_why_broken(entries.data.data[begins[index] : ends[index]], where))
        if broken.any():
            entries, rows = entries.take(~broken), rows[~broken]
        if self.as_is:
            return entries, rows
        # Each must follow the one before it: the order decides which value is the latest.
        ledgers, ids = (np.append(first, rows[name]) for first, name in zip(self._before, _PLACE, strict=True))
        behind = (ledgers[1:] > ledgers[:-1]) | ((ledgers[1:] == ledgers[:-1]) & (ids[1:] > ids[:-1]))
        for index in np.flatnonzero(~behind).tolist():
            where = f"compacted ledger entry {entries.ledger_ids[index]}:{entries.entry_ids[index]}"
            place, before = (Position(int(ledgers[at]), int(ids[at])) for at in (index + 1, index))
            self._note(
                errors.EntryCorrupt(
                    f"{where}: {place} comes after {before}, out of order",
                    hint="compact the topic from its own entries with --from-start, or without this one with --skip-damaged",
                    where=where,
                )
            )
        if len(rows):
            self._before = (int(ledgers[-1]), int(ids[-1]))
        return (entries, rows) if behind.all() else (entries.take(behind), rows[behind])

    def _note(self, error: errors.EntryCorrupt) -> None:
        if not self.skip_damaged:
            raise error
        self.damaged.append(error)


def log_and_view(
    reader: EntryReader, topic: Topic, parts: tuple[Part, ...], view: CompactedView | None, rule: str
) -> tuple[MessageSource, MessageSource]:
    """Return sources of a topic's parts and of its view as stored, for a comparison; damaged entries are skipped and
    counted."""
    transactions = cache(lambda: read_transactions(reader, topic, None))
    known = has_transactions(reader, topic.name)
    log = MessageSource(reader, None, parts, transactions, skip_damaged=True, transactional=known, rule=rule)
    return log, MessageSource(reader, view, (), transactions, skip_damaged=True, as_is=True, rule=rule)


def contradicts(batch: MessageBatch) -> Array:
    """Return a mask of a compacted ledger's entries whose index list does not match their messages."""
    contradicting: Array = (batch.rows["kind"] == kernel.STRANGE) & (batch.rows["indexes"] > 0)
    return contradicting


def _why_broken(raw: memoryview, where: str) -> errors.EntryCorrupt:
    try:
        entry = decode_compacted_entry(raw, where)
        metadata = decode_message_entry(entry.headers_and_payload, where).metadata
        check_indexes(metadata.compacted_batch_indexes, metadata.num_messages_in_batch, where)
    except errors.EntryCorrupt as error:
        return error
    return errors.EntryCorrupt(f"{where}: no compacted entry", where=where)


def decode_rows(entries: EntryBatch, *, compacted: bool, encrypted_by_key: bool, rule: str) -> Array:
    """Return a ``kernel.ENTRY`` row per entry; in a compacted ledger anything but a compacted entry is BROKEN."""
    rows = np.empty(len(entries), kernel.ENTRY)
    rows["ledger_id"], rows["entry_id"] = entries.ledger_ids, entries.entry_ids
    kernel.read_entries(entries.data, entries.starts, entries.ends, compacted, True, rows)
    if rule == RULE_4_0:
        rows["flags"] |= kernel.NULLS_AS_4_0
    if encrypted_by_key:
        rows["kind"][rows["kind"] == kernel.ENCRYPTED_BATCH] = kernel.SINGLE
    return rows


def transactional(rows: Array) -> Array:
    """Return a mask of the messages that belong to a transaction."""
    in_transactions: Array = (rows["flags"] & kernel.HAS_TRANSACTION != 0) & (rows["kind"] != kernel.MARKER)
    return in_transactions


def drop_uncommitted(rows: Array, committed: Collection[tuple[int, int]]) -> None:
    """Mark the entries in ``rows`` whose transactions are not in ``committed``: readers never get them."""
    for index in np.flatnonzero(transactional(rows)).tolist():
        row = rows[index]
        txn_id = (int(row["transaction_most"]) % 2**64, int(row["transaction_least"]) % 2**64)
        if txn_id not in committed:
            row["kind"] = kernel.UNCOMMITTED


def explode(entries: EntryBatch, rows: Array, *, compacted: bool) -> Iterator[MessageBatch]:
    """Yield the messages of decoded entries, in parts whose decompressed payloads stay within SCRATCH_BYTES."""
    packed = (rows["kind"] == kernel.BATCH) & (rows["codec"] != NONE)
    sizes = np.where(packed, np.clip(rows["plain_bytes"], 0, LIMIT_BYTES), 0)
    total = np.cumsum(sizes)
    groups = (total - sizes) // SCRATCH_BYTES
    for part in starmap(slice, runs_of(groups)):
        yield _explode(entries.take(part), rows[part], compacted)


def _explode(entries: EntryBatch, rows: Array, compacted: bool) -> MessageBatch:
    data = entries.data
    scratch = _decompress(data, rows)
    is_batch = rows["kind"] == kernel.BATCH
    most = (rows["plain_end"] - rows["plain_start"]) // _LEAST_SLOT_BYTES + 1
    most = np.where(is_batch, np.minimum(most, np.maximum(rows["messages"], 0) + np.int64(1)), 1)
    slots = np.empty(int(most.sum()), slot_kernel.SLOT)
    firsts = np.empty(len(rows) + 1, np.int64)
    count = slot_kernel.read_slots(data, scratch, rows, slots, firsts)
    return MessageBatch(compacted, entries.ledger_ids, entries.entry_ids, data, scratch, rows, slots[:count], firsts)


def _decompress(data: Array, rows: Array) -> Array:
    """Decompress batches into one array, to which their spans then refer; a batch that cannot be decompressed is STRANGE."""
    view = data.data
    parts: list[bytes | memoryview] = []
    at = 0
    for index in np.flatnonzero((rows["kind"] == kernel.BATCH) & (rows["codec"] != NONE)).tolist():
        row = rows[index]
        stored = view[row["meta_end"] : row["end"]]
        try:
            plain = decompress(int(row["codec"]), stored, int(row["plain_bytes"]), where="batch")
        except (errors.EntryCorrupt, errors.LimitExceeded, errors.Unsupported):
            row["kind"] = kernel.STRANGE
            continue
        parts.append(plain)
        row["plain_start"], row["plain_end"] = at, at + len(plain)
        row["flags"] |= kernel.IN_SCRATCH
        at += len(plain)
    return np.frombuffer(b"".join(parts), np.uint8)
