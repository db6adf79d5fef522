"""How far a compacted ledger stands for its topic, even one that the topic names no more: what it, its last entry and the cursor say.

A broker writes two positions (upstream ``AbstractTwoPhaseCompactor``, 2.11 to 4.2): the cursor's is that of the last entry it read, the
ledger's ``pulsar/compactedTo`` that of the last one it did not take for deleted. Null values, keyless messages and markers at the end lie
between the two. 2.11.0 takes a batch for deleted that has one null value in it: it may still be in the ledger. Positions are
compared by their places in the topic: 4.2 leaves the cursor at (next ledger, −1).

Upstream (4.0.8): ``PersistentTopic`` takes the horizon of the view from the mark-delete position of ``__compaction`` and its ledger from
the cursor's property, whatever both say. So the cursor has to stand where the ledger ends: before that readers get messages that
were compacted out, and after it they miss entries that the ledger lacks.
"""

from __future__ import annotations

from functools import partial

from pulsar_admin.store.codec.claims import COMPACTED_TO
from pulsar_admin.store.codec.compactedentry import decode_original_id
from pulsar_admin.store.codec.ledgermetadata import LedgerState
from pulsar_admin.store.compaction.heads import read_compacted_head
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import EntryCorrupt, EntryNotFound, Refused, StoreError
from pulsar_admin.store.model.broken import find_missing
from pulsar_admin.store.model.compacted_view import CompactedView, is_compacted_ledger, stranger_text
from pulsar_admin.store.model.ledgers import Ledger, find_metadata, read_ledger
from pulsar_admin.store.model.messages import Message, MessageReader, ReadOptions
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position


def compacted_floor(reader: EntryReader, topic: Topic, view: CompactedView) -> Position:
    """Return the last position that a view's compacted ledger covers; raises EntryCorrupt.

    The horizon, unless the cursor was moved since: positions that it skipped are still to be compacted, and those in
    the ledger are not read twice.
    """
    metadata = find_metadata(reader.txn, view.ledger_id)
    raw = None if metadata is None else metadata.custom.get(COMPACTED_TO)
    floor = view.horizon if raw is None else decode_original_id(raw, f"ledger {view.ledger_id}, {COMPACTED_TO}")
    try:
        floor = with_last_entry(reader, view, floor)
    except EntryNotFound as error:
        raise EntryCorrupt(error.message, hint=error.hint, **error.context) from error
    skipped = find_skipped(reader, topic, floor, view.horizon)
    end = topic.place(view.horizon) if skipped is None else topic.rank(skipped)
    return topic.at_rank(end - 1) if end > topic.place(floor) else floor


def readable_floor(reader: EntryReader, topic: Topic, view: CompactedView) -> Position:
    """Return ``compacted_floor``; the horizon where the last entry of the compacted ledger cannot be read."""
    try:
        return compacted_floor(reader, topic, view)
    except EntryCorrupt:
        return view.horizon


def with_last_entry(reader: EntryReader, view: CompactedView, floor: Position) -> Position:
    """Return the later of ``floor`` and the view's last entry; raises EntryNotFound, EntryCorrupt."""
    if view.last_entry_id < 0:
        return floor
    return max(floor, read_compacted_head(reader, view, view.last_entry_id).position)


def find_skipped(reader: EntryReader, topic: Topic, floor: Position, horizon: Position) -> Position | None:
    """Return the first entry after ``floor`` up to ``horizon`` that compaction would not have deleted, or an unreadable one.

    None: compacted reads miss nothing there.
    """
    first = topic.place(floor)
    markers = partial(map, topic.at_rank, range(first, topic.number_of_entries))
    messages = MessageReader(reader, ReadOptions(), markers)
    for place in map(topic.at_rank, range(first, topic.place(horizon))):
        if not all(map(_is_deleted, messages.iter_messages((place,)))) or messages.errors:
            return place
    return None


def _is_deleted(message: Message) -> bool:
    """Whether a message has no key or a null value."""
    return message.key is None or message.null_value or not len(message.payload)


def read_detached(reader: EntryReader, topic: Topic, ledger_id: int) -> CompactedView:
    """Return the view that a topic would have in this compacted ledger.

    Raises LedgerNotFound, MetadataCorrupt and EntryCorrupt, and Refused for another kind of ledger, or an incomplete
    one.
    """
    ledger = read_ledger(reader.txn, ledger_id)
    reason = _unfit(reader.txn, topic, ledger)
    if not reason and ledger.metadata is not None:
        view = CompactedView(topic.first_position, ledger_id, ledger.last_entry_id)
        last = with_last_entry(reader, view, Position(-1, -1))
        raw = ledger.metadata.custom.get(COMPACTED_TO)
        horizon = last if raw is None else max(last, decode_original_id(raw, f"ledger {ledger_id}, {COMPACTED_TO}"))
        missed = find_skipped(reader, topic, last, horizon)
        if missed is None:
            return CompactedView(horizon, ledger_id, ledger.last_entry_id)
        reason = f"it ends at {last}, but its compaction was to reach {horizon}: {missed} is missing from it"
    raise Refused(
        f"readers would not get all of the compacted view in ledger {ledger_id} of {topic.name}: {reason}",
        hint=f"list its entries: pulsar-admin ledgers entries {ledger_id}",
        topic=str(topic.name),
        ledgerId=ledger_id,
    )


def unfit_text(reader: EntryReader, topic: Topic, ledger_id: int) -> str:
    """Return why ``read_detached`` refuses a ledger, "" if it does not."""
    try:
        read_detached(reader, topic, ledger_id)
    except StoreError as error:
        return error.message
    return ""


def _unfit(txn: Txn, topic: Topic, ledger: Ledger) -> str:
    if ledger.metadata is None:
        return "BookKeeper has no metadata for it"
    if not is_compacted_ledger(ledger.metadata, topic.name):
        return f"it is {stranger_text(txn, topic.name, ledger.ledger_id) or 'not known as a compacted ledger of this topic'}"
    if ledger.metadata.state is not LedgerState.CLOSED:
        return "it was never closed, so its compaction did not finish"
    if ledger.last_entry_id < 0:
        return "it has no entries"
    missing = find_missing(txn, ledger.ledger_id)
    if missing is not None:
        return f"clients do not get all its entries ({missing.reason})"
    return ""
