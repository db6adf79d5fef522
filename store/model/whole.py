"""Whether all ledgers of a topic are whole: the question before ``store.model.broken``, which most topics answer for little.

Imports little and makes no class: every cold question about a topic asks.
"""

from __future__ import annotations

from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.codec.managedledger import find_plain_ledgers
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import plain_value, tree_key
from pulsar_admin.store.db.unserved import has_unserved
from pulsar_admin.store.model.ledgers import find_sums, find_whole
from pulsar_admin.store.model.topics import Topic, TopicLedger
from pulsar_admin.store.names import TopicName

COMPACTION = "__compaction"
_BOOKIES, _NONE_ABSENT = b"bookies", b'"absent": []'
"""The row of ``store.model.absent_bookies``, and what is in it where no bookie is absent: in an id quotes are escaped."""


def may_be_broken(txn: Txn, topic: Topic) -> bool:
    """Whether a ledger of TOPIC is not whole, or an open one may go on at a bookie that is not imported."""
    return not all(is_whole(txn, ledger) for ledger in topic.ledgers) or (
        bool(topic.ledgers) and topic.ledgers[-1].is_open and lacks_bookies(txn)
    )


def is_whole(txn: Txn, listed: TopicLedger) -> bool:
    """Whether a ledger has metadata, the index every entry of it, and no entry is outside what clients ask; few look-ups."""
    if listed.info.offloaded:
        return True
    known = find_whole(txn, listed.ledger_id)
    if known is not None and known.entries == listed.entries:
        return True
    if txn.view("tree", tree_key(ledger_path(listed.ledger_id))) is None:
        return False
    if has_unserved(txn, listed.ledger_id) or (lacks_bookies(txn) and _is_on_gone(txn, listed.ledger_id)):
        return False
    sums = find_sums(txn, listed.ledger_id)
    if sums is None:
        return not listed.entries
    return (sums.entries, sums.first_entry, sums.last_entry) == (listed.entries, 0, listed.entries - 1)


def find_plain_size(txn: Txn, name: TopicName) -> tuple[int, int] | None:
    """Return (entries, payload bytes) of a topic that has no compacted view and of which a look at all ledgers found every one whole.

    None of every other one, and where nobody looked: for a pass over many topics, at a third of what ``read_topic`` costs.
    """
    path = name.path
    row = txn.view("tree", tree_key(path))
    ledgers = None if row is None else find_plain_ledgers(plain_value(row))
    if not ledgers or txn.view("tree", tree_key(f"{path}/{COMPACTION}")) is not None:
        return None
    total = total_bytes = 0
    for index, (ledger_id, entries, size_bytes, closed_ms) in enumerate(ledgers):
        whole = find_whole(txn, ledger_id)
        if whole is None:
            return None
        if not closed_ms and index == len(ledgers) - 1:
            if lacks_bookies(txn):
                return None
            entries, size_bytes = whole.entries, whole.size_bytes
        elif whole.entries != entries:
            return None
        total += entries
        total_bytes += size_bytes
    return total, total_bytes


def lacks_bookies(txn: Txn) -> bool:
    """Whether a bookie that ledgers name is not imported."""
    if not txn.is_snapshot or lacks_bookies not in txn.memo:
        row = txn.get("state", _BOOKIES)
        txn.memo[lacks_bookies] = row is not None and _NONE_ABSENT not in row
    return bool(txn.memo[lacks_bookies])


def _is_on_gone(txn: Txn, ledger_id: int) -> bool:
    from pulsar_admin.store.model.absent_bookies import find_gone_bookies  # few stores lack a bookie
    from pulsar_admin.store.model.ledgers import find_metadata
    from pulsar_admin.store.model.placement import ensemble_bookies

    gone = find_gone_bookies(txn)
    metadata = find_metadata(txn, ledger_id) if gone else None
    return metadata is not None and not gone.isdisjoint(ensemble_bookies(metadata))
