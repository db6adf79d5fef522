"""Deleted topics: those that the history records, and those of which only entries are left.

Two witnesses join two ledgers, otherwise they stay apart (``store.recovery.chains``).
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from pulsar_admin.store.codec.claims import APPLICATION, topic_claims
from pulsar_admin.store.codec.ledgermetadata import encode_ledger_metadata, ledger_path
from pulsar_admin.store.codec.managedledger import LedgerInfo
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import MetadataCorrupt, TopicNotFound
from pulsar_admin.store.model.ledgers import find_times, iter_indexed_ids
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import iter_topics, read_topic
from pulsar_admin.store.names import TopicName, topic_of_path
from pulsar_admin.store.recovery.chains import Chains, GroupName, find_chains, find_names, name_of
from pulsar_admin.store.recovery.closing import close_ledger
from pulsar_admin.store.recovery.deleted_nodes import Fate, Keep, Listing, Past, find_deletion, read_own_past
from pulsar_admin.store.recovery.evidence import read_evidence
from pulsar_admin.store.recovery.ledgers import iter_deleted_ids
from pulsar_admin.store.wording import Answer


class GoneTopic(Answer, frozen=True):
    """A topic and the ledgers that it no longer lists. ``deleted_ms``: None if it was not deleted, or the time is unknown.

    ``recreated_ms``: when the topic that now has its name was created, None without such a topic. ``here``: how many of those ledgers have
    entries here and are unreferenced; ``entries``: how many entries these have.
    """

    topic: TopicName
    deleted_ms: int | None
    ledgers: int
    here: int
    entries: int
    recreated_ms: int | None = None


def is_topic_node(path: str, value: bytes) -> bool:
    """Filter for ``store.recovery.deleted_nodes.read_past``: keep only history records of managed-ledger (topic) nodes."""
    return topic_of_path(path) is not None


def read_deletions(reader: EntryReader, places: Iterable[str], keep: Keep, *, by_evidence: bool) -> Past:
    """Return the history as ``read_own_past`` does, or ``by_evidence`` deleted ledgers from their entries alone.

    Raises Refused, SourceNotFound.
    """
    return read_past_by_evidence(reader) if by_evidence else read_own_past(reader, places, keep)


def iter_gone(txn: Txn, past: Past) -> Iterator[GoneTopic]:
    """Yield every deleted topic of the history by name, and existing topics with unlisted ledgers that can be recovered."""
    for name in sorted(past.listed):
        deletion = find_deletion(past, name)
        unlisted = [ledger_id for ledger_id, listing in past.listed[name].items() if listing.gone_ms is not None]
        # What something else references is not this topic's to restore, though its entries are on disk.
        here = [times for one in unlisted if not find_owners(txn, one) and (times := find_times(txn, one)) is not None]
        if here or deletion is not None:
            entries = sum(times.sums.entries for times in here)
            deleted_ms = None if deletion is None else deletion.gone_ms or None
            node = None if deleted_ms is None else find_node(txn, name.path)
            recreated_ms = None if node is None else node.stat.created_ms
            yield GoneTopic(name, deleted_ms, len(unlisted), len(here), entries, recreated_ms)


# -- deleted ones, by their entries -----------------------------------------------------------------------------------


def read_past_by_evidence(reader: EntryReader) -> Past:
    """Return deleted ledgers grouped into topics by their entries, of which every head is read; subscriptions stay
    unknown.

    Raises Refused.
    """
    txn = reader.txn
    known: dict[int, str] = {}
    for name in iter_topics(txn):
        with suppress(
            TopicNotFound, MetadataCorrupt
        ):  # its node is gone, or cannot be decoded: no list says what it has
            known |= dict.fromkeys(read_topic(txn, name).ids, str(name))
    evidence = {one.ledger_id: one for one in read_evidence(reader, [*iter_indexed_ids(txn)])}
    chains = find_chains(evidence.values(), known)
    names = find_names(reader, evidence.values(), chains)
    deleted = set(iter_deleted_ids(txn))
    past = Past()
    for group in chains.groups:
        mine = [one for one in group.ledger_ids if one in deleted]
        if mine:
            topic = name_of(group, names)
            node = find_node(txn, topic.path)
            past.fates[topic.path] = Fate(b"", 0, 0) if node is None else Fate(node.value, 0)
            custom = {**APPLICATION, **topic_claims(topic)}
            for ledger_id in mine:
                published = evidence[ledger_id].publish_ms
                info = LedgerInfo(ledger_id, timestamp_ms=0 if published is None else published[1])
                past.listed.setdefault(topic, {})[ledger_id] = Listing(info, 0)
                value = encode_ledger_metadata(close_ledger(reader, ledger_id, custom).metadata)
                past.fates[ledger_path(ledger_id)] = Fate(value, 0, 0)
            past.witnesses[topic] = _witnesses(chains, names.get(group), mine)
    return past


def _witnesses(chains: Chains, naming: GroupName | None, ledgers: list[int]) -> list[str]:
    """Return the evidence that these ledgers belong together and to the topic."""
    named = [] if naming is None else [f"its name: {'; '.join(naming.witnesses)}"]
    return named + [
        f"ledgers {join.ledger_id} and {join.next_id} belong together: {'; '.join(join.witnesses)}"
        for join in chains.joins
        if join.ledger_id in ledgers or join.next_id in ledgers
    ]
