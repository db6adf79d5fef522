"""``store clone``: the cluster of a store, or some of its topics, as the data directory of one standalone Pulsar.

One bookie has every entry, and is the ensemble of every ledger (E = Qw = Qa = 1). Its cookie names where it lies: it starts nowhere else
(upstream ``LegacyCookieValidation``, BookKeeper 4.17). Instance id, bookie and, where it is asked for, the cluster's name are new ones,
so that nothing of the clone is taken for the original's; other clusters, to which it would replicate, get addresses that lead nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from msgspec import Struct

from pulsar_admin.store.codec.ledgermetadata import INSTANCE_ID, LedgerState
from pulsar_admin.store.db.blocks import Block
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.own_ledgers import RESERVED_GAP, largest_ledger_id
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.db.tree import find_node, iter_nodes
from pulsar_admin.store.disks.clone_nodes import CLUSTERS, Address, CloneNodes
from pulsar_admin.store.errors import AlreadyExists, InvalidValue, MetadataCorrupt, Refused
from pulsar_admin.store.model.ledgers import Ledger, iter_blocks, read_ledger, sorted_ledger_ids
from pulsar_admin.store.model.topics import iter_topics, select_topics
from pulsar_admin.store.names import EVENTS, TopicName, TopicSelection

SYSTEM = "pulsar/system"


class ClonedLedger(Struct, frozen=True):
    """A ledger of the clone: entries that are here, and how many it should have."""

    ledger_id: int
    entries: int
    size_bytes: int
    missing: int


class ClonePlan(Struct, frozen=True):
    """What a clone at ``target`` would be; it starts at ``address`` alone. ``chosen``: topics, None for all."""

    target: Path
    address: Address
    topics: int
    chosen: frozenset[TopicName] | None
    ledgers: tuple[ClonedLedger, ...]
    nodes: int
    next_ledger_id: int
    txn_id: int
    loses: str = ""

    def preview(self) -> object:
        return self.report(dry_run=True)

    def report(self, *, dry_run: bool) -> dict[str, Any]:  # Any: JSON
        home = self.address.path
        return {
            "directory": str(self.target),
            "bootAt": home,
            "cluster": self.address.cluster,
            "renamedFrom": self.address.renamed_from,
            "bookie": self.address.bookie_id,
            "instanceId": self.address.instance_id,
            "topics": self.topics,
            "nodes": self.nodes,
            "ledgers": len(self.ledgers),
            "entries": sum(ledger.entries for ledger in self.ledgers),
            "bytes": sum(ledger.size_bytes for ledger in self.ledgers),
            "missing": {str(ledger.ledger_id): ledger.missing for ledger in self.ledgers if ledger.missing},
            "start": f"bin/pulsar standalone --metadata-dir {home}/metadata --bookkeeper-dir {home}/bookkeeper",
            "dryRun": dry_run,
        }


class CloneRequest(Struct, frozen=True):
    """What is asked for. ``cluster``: NAME, or NAME=NEW; ``boot_at`` None: where it is written; no ``topics``: all."""

    target: Path
    boot_at: Path | None = None
    topics: tuple[TopicName, ...] = ()
    cluster: str = ""
    bookie_id: str = "127.0.0.1:3181"


def plan_clone(store: Store, request: CloneRequest) -> ClonePlan:
    """Plan a clone; raises AlreadyExists, InvalidValue, TopicNotFound, Refused where several clusters could be meant."""
    if request.target.exists() or request.target.is_symlink():
        raise AlreadyExists(
            f"{request.target} exists", hint="name a directory that does not exist", path=str(request.target)
        )
    with store.read() as txn:
        topics = _topics(txn, request.topics)
        address = _address(txn, request)
        ledgers = tuple(_iter_ledgers(txn, topics))
        nodes = CloneNodes(address, {ledger.ledger_id for ledger in ledgers}, topics)
        count = sum(1 for _ in nodes.iter_nodes(txn))
        named = sum(1 for _ in iter_topics(txn)) if topics is None else len(topics)
        sequence = largest_ledger_id(txn) + 1 + RESERVED_GAP
        return ClonePlan(request.target, address, named, topics, ledgers, count, sequence, txn.id)


def _topics(txn: Txn, names: Sequence[TopicName]) -> frozenset[TopicName] | None:
    """Return the topics NAMES with what their namespaces need, None for all."""
    if not names:
        return None
    chosen = select_topics(txn, TopicSelection(tuple(names)))
    namespaces = {topic.namespace for topic in chosen}
    system = (
        topic
        for topic in iter_topics(txn)
        if str(topic.namespace) == SYSTEM or (topic.namespace in namespaces and topic.base.local_name == EVENTS)
    )
    return frozenset(chosen) | frozenset(system)


def _address(txn: Txn, request: CloneRequest) -> Address:
    path = str((request.boot_at or request.target).absolute())
    names = sorted({node.path.split("/")[3] for node in iter_nodes(txn, CLUSTERS) if node.value} - {"global"})
    old, _, new = request.cluster.partition("=")
    if not old and len(names) > 1:
        raise Refused(
            f"the metadata has {len(names)} clusters: {', '.join(names)}: which of them these bookies are of is not in it",
            hint="name it: --cluster NAME, or --cluster NAME=NEW to call the clone otherwise",
            clusters=names,
        )
    if old and old not in names:
        raise InvalidValue(
            f"--cluster: the metadata has no cluster {old!r}, but {', '.join(names) or 'none'}",
            hint="write NAME, or NAME=NEW",
        )
    own = old or (names[0] if names else "standalone")
    node = find_node(txn, INSTANCE_ID)
    source = node.value.decode("utf-8", "replace") if node else own
    instance_id = str(uuid5(NAMESPACE_URL, f"{source} {path}"))
    renamed_from = own if new and new != own else ""
    return Address(path, request.bookie_id, instance_id, new or own, renamed_from, frozenset(names) - {own})


def _iter_ledgers(txn: Txn, topics: frozenset[TopicName] | None) -> Iterator[ClonedLedger]:
    texts = None if topics is None else {str(name) for topic in topics for name in (topic, topic.base)}
    for ledger_id in sorted_ledger_ids(txn):
        if texts is None or any(owner.topic in texts for owner in find_owners(txn, ledger_id)):
            try:
                yield _clone_of(txn, read_ledger(txn, ledger_id))
            except MetadataCorrupt:
                continue  # `store check` names it: nobody knows what it is


def _clone_of(txn: Txn, ledger: Ledger) -> ClonedLedger:
    entries = size_bytes = expected = 0
    for block, index in iter_cloned(txn, ledger):
        entries += 1
        size_bytes += 4 + block.place(index)[2]
        expected += block.entry_id(index) <= ledger.last_entry_id
    return ClonedLedger(ledger.ledger_id, entries, size_bytes, ledger.entries - expected)


def iter_cloned(txn: Txn, ledger: Ledger) -> Iterator[tuple[Block, int]]:
    """Yield the entries of LEDGER that a clone gets, each as a block and the place in it: to its end, of one that is not closed all."""
    is_closed = ledger.metadata is not None and ledger.metadata.state is LedgerState.CLOSED
    for block in iter_blocks(txn, ledger.ledger_id):
        end = block.index_of(ledger.last_entry_id + 1) if is_closed else len(block)
        for index in range(end):
            yield block, index
