"""What a compaction of a topic begins with: its compacted view so far, what lies behind it, and where it will end."""

from __future__ import annotations

from functools import cache

from msgspec import Struct

from pulsar_admin.store.codec.claims import compacted_claims
from pulsar_admin.store.compaction.batches import MessageSource
from pulsar_admin.store.compaction.floor import compacted_floor
from pulsar_admin.store.compaction.forms import RULE_4_2
from pulsar_admin.store.compaction.heads import read_compacted_head
from pulsar_admin.store.compaction.tail import (
    Transactions,
    find_topic_end,
    has_transactions,
    rank_behind,
    read_transactions,
)
from pulsar_admin.store.compaction.view import CompactedView, find_compaction_cursor, open_view
from pulsar_admin.store.errors import EntryCorrupt, EntryNotFound, MetadataCorrupt
from pulsar_admin.store.model.cursors import Cursor, iter_ledger_parts
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.references import COMPACTED_LEDGER
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position


class SourceOptions(Struct, frozen=True):
    """How to read. ``from_start``: as if the topic had never been compacted; ``encrypted_by_key``: see ``MessageSource``;
    ``view_only``: nothing behind the horizon. ``transactional``: the topic has transactions, whatever the broker's snapshots say.
    """

    from_start: bool = False
    skip_damaged: bool = False
    encrypted_by_key: bool = False
    view_only: bool = False
    transactional: bool = False
    rule: str = RULE_4_2


class Prepared(Struct, frozen=True):
    """A topic before compaction. ``horizon``: where the new view will end; ``entries``: how many there are to read, once.

    ``old_ledger_id``: the compacted ledger that the cursor names now, None for none.
    """

    topic: Topic
    cursor: Cursor | None
    view: CompactedView | None
    old_ledger_id: int | None
    source: MessageSource
    horizon: Position
    entries: int


def prepare(reader: EntryReader, topic: Topic, options: SourceOptions) -> Prepared | None:
    """Return what a compaction of TOPIC reads; None when there is nothing that could be compacted.

    Raises MetadataCorrupt and EntryCorrupt for a compacted ledger that cannot be read.
    """
    cursor = find_compaction_cursor(reader, topic)
    view = None if options.from_start else open_view(reader, topic)
    if view is None and options.view_only:
        return None
    floor = None if view is None else compacted_floor(reader, topic, view)
    transactional = options.transactional or has_transactions(reader, topic.name)
    transactions = cache(lambda: read_transactions(reader, topic, floor))
    end = None if options.view_only else _end(reader, topic, floor, transactions() if transactional else None)
    if end is None and view is None:
        return None
    parts = () if end is None else tuple(iter_ledger_parts(topic, rank_behind(topic, floor), topic.rank(end) + 1))
    source = MessageSource(
        reader, view, parts, transactions, options.skip_damaged, options.encrypted_by_key, options.rule, transactional
    )
    horizons = [place for place in (end, None if view is None else view.horizon) if place is not None]
    entries = sum(last - first + 1 for _, first, last in parts) + (0 if view is None else view.last_entry_id + 1)
    old = None if cursor is None else cursor.state.properties.get(COMPACTED_LEDGER)
    return Prepared(topic, cursor, view, old, source, max(horizons), entries)


def loses_trimmed(reader: EntryReader, prepared: Prepared) -> bool:
    """Whether the compacted ledger that PREPARED does without holds messages from before the topic's first entry now."""
    if prepared.view is not None or prepared.old_ledger_id is None:
        return False
    try:
        view = open_view(reader, prepared.topic)
        if view is None or view.last_entry_id < 0:
            return False
        first = read_compacted_head(reader, view, 0).position
    except (EntryCorrupt, EntryNotFound, MetadataCorrupt):
        return False
    return first.ledger_id < prepared.topic.ids[0]


def passes_open_transaction(source: MessageSource, uncommitted: int) -> bool:
    """Whether SOURCE, of which UNCOMMITTED messages were dropped, goes beyond an open transaction of which no snapshot told.

    Compacted so, its messages would be lost to the view once it is committed: prepare again, ``transactional``.
    """
    return uncommitted > 0 and not source.transactional and source.transactions().first_open is not None


def _end(
    reader: EntryReader, topic: Topic, floor: Position | None, transactions: Transactions | None
) -> Position | None:
    """Return the last entry behind FLOOR that readers get, the topic's last one where it is not a message that could tell."""
    try:
        end = find_topic_end(reader, topic, floor, transactions).head
    except (EntryCorrupt, EntryNotFound):
        return topic.last_confirmed
    return None if end is None else end.position


def view_claims(topic: Topic, horizon: Position) -> dict[str, bytes]:
    """Return what the compacted ledger of TOPIC up to HORIZON says of itself."""
    place = topic.place(horizon)
    return compacted_claims(topic.name, topic.at_rank(place - 1) if place else horizon)
