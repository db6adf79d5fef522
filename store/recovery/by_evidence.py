"""A past without any history of the metadata: which deleted ledgers belong together, and to which topic, by what their entries say.

Two witnesses join two ledgers, or they stay apart (``store.recovery.chains``); what nothing names is a topic of ``lost-and-found/ledgers``.
"""

from __future__ import annotations

from contextlib import suppress

from pulsar_admin.store.codec.claims import APPLICATION, topic_claims
from pulsar_admin.store.codec.ledgermetadata import encode_ledger_metadata, ledger_path
from pulsar_admin.store.codec.managedledger import LedgerInfo
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import MetadataCorrupt, TopicNotFound
from pulsar_admin.store.model.ledgers import iter_indexed_ids
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import iter_topics, read_topic
from pulsar_admin.store.names import TopicName
from pulsar_admin.store.recovery.chains import Chains, Naming, find_chains, find_names, name_of
from pulsar_admin.store.recovery.closing import close_ledger
from pulsar_admin.store.recovery.evidence import LedgerEvidence, read_evidence
from pulsar_admin.store.recovery.ledgers import iter_deleted_ids
from pulsar_admin.store.recovery.past import Fate, Listing, Past


def read_past_by_evidence(reader: EntryReader) -> Past:
    """Return what entries say of deleted ledgers; every entry's head is read. Subscriptions are not known. Raises Refused."""
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
            _add(past, reader, name_of(group, names), mine, evidence)
            past.witnesses[name_of(group, names)] = _witnesses(chains, names.get(group), mine)
    return past


def _add(
    past: Past, reader: EntryReader, name: TopicName, ledgers: list[int], evidence: dict[int, LedgerEvidence]
) -> None:
    node = find_node(reader.txn, name.path)
    past.fates[name.path] = Fate(b"", 0, 0) if node is None else Fate(node.value, 0)
    custom = {**APPLICATION, **topic_claims(name)}
    for ledger_id in ledgers:
        published = evidence[ledger_id].publish_ms
        info = LedgerInfo(ledger_id, timestamp_ms=0 if published is None else published[1])
        past.listed.setdefault(name, {})[ledger_id] = Listing(info, 0)
        value = encode_ledger_metadata(close_ledger(reader, ledger_id, custom).metadata)
        past.fates[ledger_path(ledger_id)] = Fate(value, 0, 0)


def _witnesses(chains: Chains, naming: Naming | None, ledgers: list[int]) -> list[str]:
    """Return what says that LEDGERS belong together, and to the topic."""
    named = [] if naming is None else [f"its name: {'; '.join(naming.witnesses)}"]
    return named + [
        f"ledgers {join.ledger_id} and {join.next_id} belong together: {'; '.join(join.witnesses)}"
        for join in chains.joins
        if join.ledger_id in ledgers or join.next_id in ledgers
    ]
