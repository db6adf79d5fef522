"""Making a compacted ledger: its input and the two phases (upstream ``PublishingOrderCompactor``, 4.0.8 and 4.2.4).

Phase one finds the latest message of every key; a null value deletes its key. Phase two reads the entries with such
messages again and yields the new entries. Encrypted batches and entries that cannot be decoded are kept whole and
ignored in phase one. All chunks of a message are kept or dropped together, whereas a broker keeps only the last one.

Phase one remembers the places of the entries and the number of messages in each: four bytes per entry, but none for a
run of entries with one message each.

Forms: ``store.compaction.forms``. All forms keep the stated number of messages in the batch, the codec and the broker
metadata, and have a new checksum.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from msgspec import Struct, field

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.batch import encode_batch, placeholder
from pulsar_admin.store.codec.claims import compacted_claims
from pulsar_admin.store.codec.compactedentry import encode_compacted_entry, encode_original_id
from pulsar_admin.store.codec.compression import LIMIT_BYTES, compress
from pulsar_admin.store.codec.message import decode_metadata, encode_message_entry
from pulsar_admin.store.compaction import heads
from pulsar_admin.store.compaction.batches import MessageBatch, MessageSource
from pulsar_admin.store.compaction.forms import INDEXED, LEGACY, REDUCED, RULE_4_2
from pulsar_admin.store.compaction.keys import (
    LIMIT_KEYS,
    WHOLE,
    EntryFacts,
    Latest,
    LatestKeys,
    Survey,
    survey,
    uuid_of,
)
from pulsar_admin.store.compaction.status import compacted_floor
from pulsar_admin.store.errors import ENTRY_UNREADABLE, EntryCorrupt, EntryNotFound, LimitExceeded, MetadataCorrupt
from pulsar_admin.store.kernels import compaction as kernel
from pulsar_admin.store.kernels import slots as slot_kernel
from pulsar_admin.store.model.compacted_view import CompactedView, find_compaction_cursor, open_view
from pulsar_admin.store.model.cursors import Cursor, iter_ledger_parts
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import COMPACTED_LEDGER, Topic
from pulsar_admin.store.names import Position
from pulsar_admin.store.scan.payloads import PayloadColumns
from pulsar_admin.store.scan.places import Part


class SourceOptions(Struct, frozen=True):
    """What to read. ``from_start``: the whole topic, as if never compacted; ``view_only``: nothing after the horizon;
    ``transactional``: assume that the topic has transactions even if no broker snapshot shows it. For the others see
    ``MessageSource``."""

    from_start: bool = False
    skip_damaged: bool = False
    encrypted_by_key: bool = False
    view_only: bool = False
    transactional: bool = False
    rule: str = RULE_4_2


class Prepared(Struct, frozen=True):
    """A topic ready for compaction. ``horizon``: the end of the new view; ``entries``: the number of entries of the source.

    ``old_ledger_id``: the compacted ledger that the cursor references now, None if none.
    """

    topic: Topic
    cursor: Cursor | None
    view: CompactedView | None
    old_ledger_id: int | None
    source: MessageSource
    horizon: Position
    entries: int


def prepare(reader: EntryReader, topic: Topic, options: SourceOptions) -> Prepared | None:
    """Return the input of a topic's compaction; None if there is nothing to compact.

    Raises MetadataCorrupt and EntryCorrupt for a compacted ledger that cannot be read.
    """
    cursor = find_compaction_cursor(reader, topic)
    view = None if options.from_start else open_view(reader, topic)
    if view is None and options.view_only:
        return None
    floor = None if view is None else compacted_floor(reader, topic, view)
    transactional = options.transactional or heads.has_transactions(reader, topic.name)
    transactions = cache(lambda: heads.read_transactions(reader, topic, floor))
    end = None if options.view_only else _end(reader, topic, floor, transactions() if transactional else None)
    if end is None and view is None:
        return None
    parts = () if end is None else tuple(iter_ledger_parts(topic, heads.rank_after(topic, floor), topic.rank(end) + 1))
    source = MessageSource(
        reader, view, parts, transactions, options.skip_damaged, options.encrypted_by_key, options.rule, transactional
    )
    horizons = [place for place in (end, None if view is None else view.horizon) if place is not None]
    entries = sum(last - first + 1 for _, first, last in parts) + (0 if view is None else view.last_entry_id + 1)
    old = None if cursor is None else cursor.state.properties.get(COMPACTED_LEDGER)
    return Prepared(topic, cursor, view, old, source, max(horizons), entries)


def loses_trimmed(reader: EntryReader, prepared: Prepared) -> bool:
    """Whether the compaction ignores the old compacted ledger although it has messages of ledgers that were trimmed."""
    if prepared.view is not None or prepared.old_ledger_id is None:
        return False
    try:
        view = open_view(reader, prepared.topic)
        if view is None or view.last_entry_id < 0:
            return False
        first = heads.read_compacted_head(reader, view, 0).position
    except (EntryCorrupt, EntryNotFound, MetadataCorrupt):
        return False
    return first.ledger_id < prepared.topic.ids[0]


def passes_open_transaction(source: MessageSource, uncommitted: int) -> bool:
    """Whether an open transaction that no snapshot recorded is among those of the ``uncommitted`` messages that were dropped.

    The messages of that transaction would be missing from the view once it is committed: prepare again with
    ``transactional``.
    """
    return uncommitted > 0 and not source.transactional and source.transactions().first_open is not None


def _end(
    reader: EntryReader, topic: Topic, floor: Position | None, transactions: heads.Transactions | None
) -> Position | None:
    """Return the last entry after ``floor`` that readers get, or the topic's last entry if entries cannot be read."""
    try:
        end = heads.find_topic_end(reader, topic, floor, transactions).head
    except ENTRY_UNREADABLE:
        return topic.last_confirmed
    return None if end is None else end.position


def view_claims(topic: Topic, horizon: Position) -> dict[str, bytes]:
    """Return the custom metadata of a topic's compacted ledger up to a horizon."""
    place = topic.place(horizon)
    return compacted_claims(topic.name, topic.at_rank(place - 1) if place else horizon)


def iter_facts(source: MessageSource, keys: LatestKeys, retain_keyless: bool) -> Iterator[tuple[EntryFacts, bool]]:
    """Add the source's keys to ``keys``; yield (facts of some entries, whether of the compacted ledger) in order.

    The engine of the source's reader does the work, if there is one.
    """
    if source.reader.engine is not None:
        from pulsar_admin.store.compaction.spread import facts_on  # brings pyarrow

        yield from facts_on(source.reader.engine, source, keys, retain_keyless)
        return
    for batch in keys.adding(source.batches()):
        yield EntryFacts.of([batch], retain_keyless), batch.compacted


_GAP_ENTRIES = 32  # fewer entries between two that are wanted are read as well: a part of its own costs more


class Inventory:
    """Remembers the places and numbers of messages of all entries of a compaction's source, in order."""

    def __init__(self) -> None:
        self._pieces: list[tuple[bool, int, EntryFacts]] = []  # of a compacted ledger?, ordinal of the first message
        self.messages = 0

    def add(self, facts: EntryFacts, *, compacted: bool) -> None:
        """Add entries, which follow all entries added before."""
        self._pieces.append((compacted, self.messages, facts))
        self.messages += facts.messages

    def wanted(self, bits: Array, *, compacted: bool) -> Iterator[tuple[Part, Array]]:
        """Yield (part, ordinals of its entries' first messages) of parts that contain all entries with a message in
        ``bits``."""
        for is_compacted, first, facts in self._pieces:
            if is_compacted == compacted and facts.entries:
                yield from _parts_of(facts, first, bits)


def _parts_of(facts: EntryFacts, first_ordinal: int, bits: Array) -> Iterator[tuple[Part, Array]]:
    counts = np.ones(facts.entries, np.int64) if facts.counts is None else facts.counts.astype(np.int64)
    ends = np.cumsum(counts)
    ordinals = first_ordinal + ends - counts
    # The bits of these messages, a byte each.
    begin, messages = first_ordinal >> 3, int(ends[-1])
    packed = bits[begin : (first_ordinal + messages + 7) >> 3]
    is_set = np.unpackbits(packed, bitorder="little")[first_ordinal - (begin << 3) :][:messages]
    set_before = np.concatenate([[0], np.cumsum(is_set)])
    wanted = set_before[ends] > set_before[ends - counts]
    if facts.always is not None:
        wanted |= facts.always
    at = 0
    for ledger_id, first, count in facts.runs:
        chosen = np.flatnonzero(wanted[at : at + count])
        if len(chosen):
            cuts = np.flatnonzero(np.diff(chosen) > _GAP_ENTRIES) + 1
            lows, highs = chosen[np.append(0, cuts)].tolist(), chosen[np.append(cuts - 1, len(chosen) - 1)].tolist()
            for low, high in zip(lows, highs, strict=True):
                yield (ledger_id, first + low, first + high), ordinals[at + low : at + high + 1]
        at += count


_PLACEHOLDER = encode_batch([placeholder()])


_MOST_FRAMING_BYTES = 4 + 3 * 11 + 4


class Rewriter:
    """Builds entries in one format; ``partition``: of the topic, −1 for none."""

    def __init__(self, form: str, partition: int) -> None:
        self._form = form
        self._partition = partition
        self.stored_bytes = 0  # payload of the entry rebatched last, as it is stored

    def whole(self, batch: MessageBatch, chosen: Array) -> PayloadColumns:
        """Return compacted entries that contain the chosen entries unchanged."""
        rows = batch.rows[chosen]
        sizes = rows["end"] - rows["start"] + rows["id_end"] - rows["id_start"] + _MOST_FRAMING_BYTES
        data = np.empty(int(sizes.sum()), np.uint8)
        starts = np.empty(len(chosen) + 1, np.int64)
        kernel.frame_whole(batch.data, batch.rows, chosen, self._partition, data, starts)
        return PayloadColumns(data, starts[:-1], np.diff(starts))

    def is_as_wanted(self, batch: MessageBatch, index: int, kept: Array) -> bool:
        """Whether a batch is already a compacted one in the wanted format with just the ``kept`` messages (bool per message).

        A topic's own batch is always rewritten, as a broker does: it may lack its uncompressed size.
        """
        if not batch.compacted:
            return False
        row = batch.rows[index]
        slots = batch.slots[batch.firsts[index] : batch.firsts[index + 1]]
        if self._form == REDUCED:
            return bool(kept.all()) and int(row["indexes"]) == len(slots)
        out = slots["flags"] & slot_kernel.COMPACTED_OUT != 0
        if len(slots) != int(row["messages"]) or not (kept | out).all():
            return False
        if self._form == LEGACY:
            return int(row["indexes"]) == 0
        return int(row["indexes"]) == int(kept.sum()) and int(row["last_index"]) == int(np.flatnonzero(kept)[-1])

    def rebatched(self, batch: MessageBatch, index: int, kept: Array) -> bytes:
        """Return the compacted entry of a batch with the kept messages; raises LimitExceeded if the batch claims too many."""
        row = batch.rows[index]
        view = batch.data.data
        place = Position(int(row["ledger_id"]), int(row["entry_id"]))
        metadata = decode_metadata(view[row["meta_start"] : row["meta_end"]], f"entry {place}")
        slots = batch.slots[batch.firsts[index] : batch.firsts[index + 1]]
        numbers = np.arange(len(slots))
        if len(slots) < metadata.num_messages_in_batch:
            numbers = np.array(metadata.compacted_batch_indexes)
        plain = batch.plain(index).data
        spans = zip(slots["start"][kept].tolist(), slots["end"][kept].tolist(), strict=True)
        parts: list[bytes | memoryview] = [plain[start:end] for start, end in spans]
        indexes = numbers[kept].tolist()
        del metadata.compacted_batch_indexes[:]
        if self._form != LEGACY:
            metadata.compacted_batch_indexes.extend(indexes)
        if self._form != REDUCED:
            count = metadata.num_messages_in_batch
            if count * len(_PLACEHOLDER) > LIMIT_BYTES:
                raise LimitExceeded(
                    f"a batch of {count} messages and a placeholder for each does not fit an entry",
                    hint="use --format reduced, which keeps none",
                    messages=count,
                )
            held, parts = parts, [_PLACEHOLDER] * count
            for number, part in zip(indexes, held, strict=True):
                parts[number] = part
        payload = b"".join(parts)
        metadata.uncompressed_size = len(payload)
        stored = compress(metadata.compression, payload)
        self.stored_bytes = len(stored)
        entry = encode_message_entry(metadata, stored)
        front = view[row["start"] : row["front_end"]]
        if batch.compacted:  # it keeps the id that it has
            message_id: bytes | memoryview = batch.data.data[row["id_start"] : row["id_end"]]
        else:
            message_id = encode_original_id(place, self._partition)
        return encode_compacted_entry(message_id, front, entry)


Advance = Callable[[int], None]  # told how many more entries are done


class CompactionRules(Struct, frozen=True):
    """What to keep and how.

    ``form``: one of ``forms.FORMATS``; ``everything``: keep every message that the source still has.
    """

    form: str = INDEXED
    retain_keyless: bool = False
    everything: bool = False
    limit_keys: int = LIMIT_KEYS


class MessageCounts(Struct):
    """The number of messages by outcome.

    Kept: retained, encrypted, undecodable; the others are reasons for dropping.
    """

    retained: int = 0
    encrypted: int = 0
    undecodable: int = 0
    superseded: int = 0
    null_values: int = 0
    keyless: int = 0
    uncommitted: int = 0
    markers: int = 0


class CompactionResult(Struct):
    """The numbers of a compaction. ``is_changed``: the new compacted ledger differs from the one that was read.

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
    """One compaction of one topic: call ``find_latest``, then ``payloads``; with the rule ``everything`` only ``payloads``."""

    def __init__(self, source: MessageSource, rules: CompactionRules, partition: int) -> None:
        self.source = source
        self.rules = rules
        self.latest: Latest | None = None
        self.result = CompactionResult()
        self._rewriter = Rewriter(rules.form, partition)
        self._inventory = Inventory()
        # uuid → ordinals of the last chunks with it: producers without deduplication may use a uuid again
        self._chunked: dict[bytes, list[int]] = {}
        self._bits = np.zeros(1, np.uint8)

    # -- phase one ----------------------------------------------------------------------------------------------------

    def find_latest(self, advance: Advance = lambda entries: None) -> Latest:
        """Run phase one: find the latest message of every key."""
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
        """Count the messages read; until all are read, every message with key and value counts as ``superseded``."""
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

    def payloads(self, advance: Advance = lambda entries: None) -> Iterator[bytes | PayloadColumns]:
        """Run phase two: yield the payloads of the new ledger's entries; ``result`` is complete at the end."""
        result = self.result
        result.entries_kept = result.bytes_kept = result.message_bytes_kept = result.reduced_batches = 0
        for batch, ordinals in self._everything() if self.rules.everything else self._wanted():
            # The kernel's fate of each message.
            fates = np.empty(len(batch.slots), np.uint8)
            if self.rules.everything:
                out = batch.slots["flags"] & slot_kernel.COMPACTED_OUT != 0
                fates[:] = np.where(out, slot_kernel.OUT_BEFORE, slot_kernel.RETAINED)
            else:
                slot_kernel.judge(batch.slots, batch.firsts, ordinals, self._bits, self.rules.retain_keyless, fates)
            yield from self._kept(batch, fates, ordinals)
            advance(len(batch.rows))
        result.is_changed |= result.entries_kept < result.entries_read

    def measure(self, advance: Advance) -> None:
        """Run phase two without using the entries, to complete ``result``."""
        deque(self.payloads(advance), maxlen=0)

    def _everything(self) -> Iterator[tuple[MessageBatch, Array]]:
        self.result = CompactionResult()
        for batch in self.source.batches():
            self._count(survey(batch), batch.compacted)
            yield batch, batch.firsts[:-1]
        counts = self.result.messages
        counts.retained = counts.superseded + counts.null_values + counts.keyless
        counts.superseded = counts.null_values = counts.keyless = 0

    def _wanted(self) -> Iterator[tuple[MessageBatch, Array]]:
        """Yield batches of entries that may be kept, with the ordinals of the entries' first messages."""
        for compacted in (True, False):
            ordinals: deque[Array] = deque()
            parts = self._noting(self._inventory.wanted(self._bits, compacted=compacted), ordinals)
            for batch in self.source.read_again(parts, compacted=compacted):
                yield batch, _take(ordinals, len(batch.rows))

    def _noting(self, wanted: Iterator[tuple[Part, Array]], ordinals: deque[Array]) -> Iterator[Part]:
        for part, ordinal in wanted:
            ordinals.append(ordinal)
            yield part

    def _kept(self, batch: MessageBatch, fates: Array, ordinals: Array) -> Iterator[bytes | PayloadColumns]:
        """Yield the kept entries of ``batch`` in order: runs of unchanged entries, and rewritten batches."""
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
                    payload = self._rewriter.rebatched(batch, index, mine)
                    self.result.entries_kept += 1
                    self.result.bytes_kept += len(payload)
                    self.result.message_bytes_kept += self._rewriter.stored_bytes
                    self.result.is_changed = True
                    yield payload
                    continue
            whole.append(index)
        yield from self._whole(batch, whole)

    def _whole(self, batch: MessageBatch, chosen: list[int]) -> Iterator[PayloadColumns]:
        if not chosen:
            return
        indexes = np.array(chosen, np.int64)
        columns, rows = self._rewriter.whole(batch, indexes), batch.rows[indexes]
        self.result.entries_kept += len(chosen)
        self.result.bytes_kept += int(columns.sizes.sum())
        self.result.message_bytes_kept += int((rows["end"] - rows["meta_end"]).sum())
        yield columns

    def _keeps_chunk(self, batch: MessageBatch, index: int, ordinal: int) -> bool:
        """Whether to keep the message that a chunk belongs to; ``ordinal``: of the message that ends at the chunk or
        follows it.

        A message without its last chunk may still be completed by its producer and is kept.
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
    """Remove and return the ordinals of the next ``count`` entries."""
    taken: list[Array] = []
    while count:
        first = ordinals.popleft()
        taken.append(first[:count])
        if len(first) > count:
            ordinals.appendleft(first[count:])
        count -= len(taken[-1])
    return np.concatenate(taken) if taken else np.empty(0, np.int64)
