"""Read model of a topic's compacted view: horizon, compacted ledger, its entries (pulsar.md §4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from store.codec.compactedentry import decode_compacted_entry
from store.codec.message import EntryHeader, decode_message_entry
from store.cursors import COMPACTION_CURSOR, read_cursor
from store.errors import EntryCorrupt, EntryNotFound, LedgerNotFound, SubscriptionNotFound
from store.ledgers import EntryReader, read_ledger
from store.names import Position
from store.owners import COMPACTED_LEDGER
from store.topics import Topic


@dataclass(frozen=True, slots=True)
class CompactedView:
    """What the ``__compaction`` cursor says. ``last_entry_id``: of the compacted ledger, −1 when it is empty."""

    horizon: Position
    ledger_id: int
    last_entry_id: int


@dataclass(frozen=True, slots=True)
class CompactedMessageEntry:
    """One entry of a compacted ledger: where it was, and itself."""

    entry_id: int
    position: Position
    header: EntryHeader


def find_compacted_view(reader: EntryReader, topic: Topic) -> CompactedView | None:
    """Return the compacted view of TOPIC, None when it was never compacted; raises LedgerNotFound when its ledger is gone."""
    try:
        cursor = read_cursor(reader.txn, reader, topic, COMPACTION_CURSOR)
    except SubscriptionNotFound:
        return None
    ledger_id = cursor.state.properties.get(COMPACTED_LEDGER)
    if ledger_id is None:
        return None
    try:
        ledger = read_ledger(reader.txn, ledger_id)
    except LedgerNotFound as error:
        raise LedgerNotFound(
            f"the compacted ledger {ledger_id} of {topic.name} is gone",
            hint="compact the topic again; until then readers of the compacted view fail",
            ledgerId=ledger_id,
            topic=str(topic.name),
        ) from error
    return CompactedView(cursor.state.mark_delete, ledger_id, ledger.last_entry_id)


def read_compacted_entry(reader: EntryReader, view: CompactedView, entry_id: int) -> CompactedMessageEntry:
    """Return one entry of the compacted ledger; raises EntryNotFound, EntryCorrupt."""
    where = f"compacted ledger entry {view.ledger_id}:{entry_id}"
    entry = decode_compacted_entry(reader.read(view.ledger_id, entry_id).payload, where)
    return CompactedMessageEntry(entry_id, entry.position, decode_message_entry(entry.headers_and_payload, where))


def iter_compacted_entries(
    reader: EntryReader, view: CompactedView, errors: list[EntryCorrupt | EntryNotFound] | None = None
) -> Iterator[CompactedMessageEntry]:
    """Yield the entries of the compacted ledger in order; with ERRORS an unreadable one is noted there and passed over."""
    for entry_id in range(view.last_entry_id + 1):
        try:
            yield read_compacted_entry(reader, view, entry_id)
        except (EntryCorrupt, EntryNotFound) as error:
            if errors is None:
                raise
            errors.append(error)
