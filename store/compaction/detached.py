"""A compacted ledger that its topic names no more: whether a broker would serve it again, and how far it stands for the topic.

Upstream (4.0.8): ``PersistentTopic`` takes the horizon of the view from the mark-delete position of ``__compaction`` and its ledger from
the cursor's property, whatever both say. So the cursor has to stand where the ledger ends: in front of that readers get messages that
were compacted out, and behind it they miss what the ledger has not.
"""

from __future__ import annotations

from pulsar_admin.store.codec.claims import COMPACTED_TO
from pulsar_admin.store.codec.compactedentry import decode_compacted_to
from pulsar_admin.store.codec.ledgermetadata import LedgerState
from pulsar_admin.store.compaction.floor import find_skipped, with_last_entry
from pulsar_admin.store.compaction.view import CompactedView, is_compacted_ledger, stranger_text
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import Refused, StoreError
from pulsar_admin.store.model.broken import find_missing
from pulsar_admin.store.model.ledgers import Ledger, read_ledger
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic
from pulsar_admin.store.names import Position


def read_detached(reader: EntryReader, topic: Topic, ledger_id: int) -> CompactedView:
    """Return the view that TOPIC would have in compacted ledger LEDGER_ID.

    Raises LedgerNotFound, MetadataCorrupt and EntryCorrupt, and Refused for a ledger of something else, or one that is not whole.
    """
    ledger = read_ledger(reader.txn, ledger_id)
    reason = _unfit(reader.txn, topic, ledger)
    if not reason and ledger.metadata is not None:
        view = CompactedView(topic.first_position, ledger_id, ledger.last_entry_id)
        last = with_last_entry(reader, view, Position(-1, -1))
        raw = ledger.metadata.custom.get(COMPACTED_TO)
        horizon = last if raw is None else max(last, decode_compacted_to(raw, f"ledger {ledger_id}, {COMPACTED_TO}"))
        missed = find_skipped(reader, topic, last, horizon)
        if missed is None:
            return CompactedView(horizon, ledger_id, ledger.last_entry_id)
        reason = f"it ends at {last}, and what made it was to go on to {horizon}: {missed} is not in it"
    raise Refused(
        f"readers would not get all of the compacted view in ledger {ledger_id} of {topic.name}: {reason}",
        hint=f"see what is in it: pulsar-admin ledgers entries {ledger_id}",
        topic=str(topic.name),
        ledgerId=ledger_id,
    )


def unfit_text(reader: EntryReader, topic: Topic, ledger_id: int) -> str:
    """Return why ``read_detached`` refuses LEDGER_ID, "" where it does not."""
    try:
        read_detached(reader, topic, ledger_id)
    except StoreError as error:
        return error.message
    return ""


def _unfit(txn: Txn, topic: Topic, ledger: Ledger) -> str:
    if ledger.metadata is None:
        return "BookKeeper has no metadata of it"
    if not is_compacted_ledger(ledger.metadata, topic.name):
        return f"it is {stranger_text(txn, topic.name, ledger.ledger_id) or 'not known to be a compacted ledger of it'}"
    if ledger.metadata.state is not LedgerState.CLOSED:
        return "it was never closed, so that what made it did not come to its end"
    if ledger.last_entry_id < 0:
        return "it has no entries"
    missing = find_missing(txn, ledger.ledger_id)
    if missing is not None:
        return f"clients do not get all of it ({missing.reason})"
    return ""
