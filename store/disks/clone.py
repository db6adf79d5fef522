"""``store clone``: the cluster of a store, or some of its topics, as the data directory of one standalone Pulsar.

One bookie has every entry, and is the ensemble of every ledger (E = Qw = Qa = 1). Its cookie names its path: it starts nowhere else
(upstream ``LegacyCookieValidation``, BookKeeper 4.17). Instance id, bookie id and, if requested, the cluster's name are new,
so that nothing mistakes the clone for the original; clusters to which it would replicate get addresses that lead nowhere.

Its metadata are the nodes of the store in the form of a standalone's metadata store (``RocksdbMetadataStore``, Pulsar 4.0.8), without nodes
that belong to machines: registrations, cookies and racks of bookies, layout and sequence of ledger ids, ownership, load reports,
ZooKeeper's own nodes; and without empty nodes, which RocksDB does not need as parents.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec import ledgermetadata
from pulsar_admin.store.codec.bookie import (
    COOKIE_FILE,
    LAST_MARK_FILE,
    Cookie,
    LogMark,
    encode_cookie,
    encode_last_mark,
)
from pulsar_admin.store.codec.dbledger import LedgerData, encode_ledgers_row
from pulsar_admin.store.codec.digest import master_key
from pulsar_admin.store.codec.entrylog import encode_location
from pulsar_admin.store.codec.journal import LATEST_VERSION, PADDED_HEADER_BYTES, encode_header
from pulsar_admin.store.codec.policies import decode_json_object, encode_json_object
from pulsar_admin.store.codec.rocksvalue import COUNTER_KEYS, NodeStat, encode_counter, encode_value
from pulsar_admin.store.db.blocks import Block
from pulsar_admin.store.db.entry_files import EntryFiles
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.own_ledgers import RESERVED_GAP, largest_ledger_id
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.db.tree import Node, find_node, iter_nodes
from pulsar_admin.store.errors import InvalidValue, MetadataCorrupt, Refused, StoreError, stale
from pulsar_admin.store.files import check_new, create_directory, create_file, new_directory
from pulsar_admin.store.model.coverage import unseen_hint, unseen_text
from pulsar_admin.store.model.ledgers import Ledger, find_metadata, iter_blocks, read_ledger, sorted_ledger_ids
from pulsar_admin.store.model.topics import iter_topics, select_topics
from pulsar_admin.store.names import EVENTS, TopicName, TopicSelection, shell_word
from pulsar_admin.store.sources.locations_writer import Locations
from pulsar_admin.store.sources.log_files import put_logs
from pulsar_admin.store.sources.rocksdb import create_database
from pulsar_admin.store.wording import Answer, listed, plural

SYSTEM = "pulsar/system"


class ClonedLedger(Struct, frozen=True):
    """A ledger of the clone: the imported entries that it gets, and how many it should have."""

    ledger_id: int
    entries: int
    size_bytes: int
    missing: int


class CloneReport(Answer, frozen=True):
    """The clone that was written, or with ``dry_run`` would be. ``boot_at``: the path at which ``start`` starts it.

    ``renamed_from``: the cluster's old name, empty if it stays. ``missing``: ledger → number of its entries in no file.
    """

    directory: str
    boot_at: str
    cluster: str
    renamed_from: str
    bookie: str
    instance_id: str
    topics: int
    nodes: int
    ledgers: int
    entries: int
    bytes: int
    missing: Mapping[int, int]
    start: str
    dry_run: bool


class ClonePlan(Struct, frozen=True):
    """The plan of a clone at ``target``; it can only start at ``address``. ``chosen``: topics, None for all."""

    target: Path
    address: CloneAddress
    topics: int
    chosen: frozenset[TopicName] | None
    ledgers: tuple[ClonedLedger, ...]
    nodes: int
    next_ledger_id: int
    txn_id: int
    loses: str = ""

    def preview(self) -> object:
        return self.report(dry_run=True)

    def report(self, *, dry_run: bool) -> CloneReport:
        home = self.address.path
        return CloneReport(
            directory=str(self.target),
            boot_at=home,
            cluster=self.address.cluster,
            renamed_from=self.address.renamed_from,
            bookie=self.address.bookie_id,
            instance_id=self.address.instance_id,
            topics=self.topics,
            nodes=self.nodes,
            ledgers=len(self.ledgers),
            entries=sum(ledger.entries for ledger in self.ledgers),
            bytes=sum(ledger.size_bytes for ledger in self.ledgers),
            missing={ledger.ledger_id: ledger.missing for ledger in self.ledgers if ledger.missing},
            start=f"bin/pulsar standalone --metadata-dir {shell_word(f'{home}/metadata')} --bookkeeper-dir "
            f"{shell_word(f'{home}/bookkeeper')}",
            dry_run=dry_run,
        )


class CloneRequest(Struct, frozen=True):
    """The request. ``cluster``: NAME, or NAME=NEW to rename it; ``boot_at``: the directory where the clone will run,
    None for the one it is written to; no ``topics``: all."""

    target: Path
    boot_at: Path | None = None
    topics: tuple[TopicName, ...] = ()
    cluster: str = ""
    bookie_id: str = "127.0.0.1:3181"


def plan_clone(store: Store, request: CloneRequest, warn: Callable[[list[str]], object] = list) -> ClonePlan:
    """Plan a clone, and ``warn`` of what it lacks: bookies and journals that were not imported, ledgers with damaged metadata.

    Raises AlreadyExists, InvalidValue, TopicNotFound, Refused if several clusters could be meant.
    """
    check_new(request.target, "name a directory that does not exist")
    with store.read() as txn:
        if unseen := unseen_text(txn, "cloned"):
            warn([f"{unseen}; {unseen_hint(txn)}"])
        topics: frozenset[TopicName] | None = None
        if request.topics:
            chosen = select_topics(txn, TopicSelection(tuple(request.topics)))
            # Also the nodes that their namespaces need.
            namespaces = {topic.namespace for topic in chosen}
            system = (
                topic
                for topic in iter_topics(txn)
                if str(topic.namespace) == SYSTEM or (topic.namespace in namespaces and topic.base.local_name == EVENTS)
            )
            topics = frozenset(chosen) | frozenset(system)
        address = _address(txn, request)
        damaged: list[int] = []
        ledgers = tuple(_iter_ledgers(txn, topics, damaged))
        if damaged:
            several, are = plural(len(damaged), "ledger", "ledgers"), plural(len(damaged), "is", "are")
            ids = listed([*map(str, damaged)], 5)
            warn([f"{several} {ids}, whose metadata is damaged, {are} not cloned; see: pulsar-admin store check"])
        nodes = CloneNodes(address, {ledger.ledger_id for ledger in ledgers}, topics)
        count = sum(1 for _ in nodes.iter_nodes(txn))
        named = sum(1 for _ in iter_topics(txn)) if topics is None else len(topics)
        sequence = largest_ledger_id(txn) + 1 + RESERVED_GAP
        return ClonePlan(request.target, address, named, topics, ledgers, count, sequence, txn.id)


def _address(txn: Txn, request: CloneRequest) -> CloneAddress:
    path = str((request.boot_at or request.target).absolute())
    names = sorted({node.path.split("/")[3] for node in iter_nodes(txn, CLUSTERS) if node.value} - {"global"})
    old, _, new = request.cluster.partition("=")
    # Bookies' files do not name the cluster, so among several nothing here can choose.
    if not old and len(names) > 1:
        raise Refused(
            f"the metadata has {len(names)} clusters, {', '.join(names)}, and does not say to which of them these "
            "bookies belong",
            hint="name the cluster: --cluster NAME, or --cluster NAME=NEW to give the clone another name",
            clusters=names,
        )
    if old and old not in names:
        raise InvalidValue(
            f"--cluster: the metadata has no cluster {old!r}, but {', '.join(names) or 'none'}",
            hint="write NAME, or NAME=NEW",
        )
    own = old or (names[0] if names else "standalone")
    node = find_node(txn, ledgermetadata.INSTANCE_ID)
    source = node.value.decode("utf-8", "replace") if node else own
    # Not the source's id, so that no bookie of the source takes the clone's metadata for its own; and the same id each
    # time, so that two clones of one source to one path are equal.
    instance_id = str(uuid5(NAMESPACE_URL, f"{source} {path}"))
    renamed_from = own if new and new != own else ""
    return CloneAddress(path, request.bookie_id, instance_id, new or own, renamed_from, frozenset(names) - {own})


def _iter_ledgers(txn: Txn, topics: frozenset[TopicName] | None, damaged: list[int]) -> Iterator[ClonedLedger]:
    """Yield the ledgers of the topics (None: all); the ids of those whose metadata cannot be read are added to ``damaged``."""
    texts = None if topics is None else {str(name) for topic in topics for name in (topic, topic.base)}
    for ledger_id in sorted_ledger_ids(txn):
        if texts is None or any(owner.topic in texts for owner in find_owners(txn, ledger_id)):
            try:
                ledger = read_ledger(txn, ledger_id)
                entries = size_bytes = expected = 0
                for block, index in iter_cloned(txn, ledger):
                    entries += 1
                    size_bytes += 4 + block.place(index)[2]
                    expected += block.entry_id(index) <= ledger.last_entry_id
                yield ClonedLedger(ledger.ledger_id, entries, size_bytes, ledger.entries - expected)
            except MetadataCorrupt:
                damaged.append(ledger_id)


def iter_cloned(txn: Txn, ledger: Ledger) -> Iterator[tuple[Block, int]]:
    """Yield the entries of a ledger that the clone gets, as (block, place in it): up to its end, of an open one all."""
    is_closed = ledger.metadata is not None and ledger.metadata.state is ledgermetadata.LedgerState.CLOSED
    for block in iter_blocks(txn, ledger.ledger_id):
        end = block.index_of(ledger.last_entry_id + 1) if is_closed else len(block)
        for index in range(end):
            yield block, index


# -- its metadata -----------------------------------------------------------------------------------------------------


CLUSTERS = "/admin/clusters/"
_OWNER = 1  # the first instance id of a RocksDB metadata store
_LEFT_OUT = ("/zookeeper", "/loadbalance", "/namespace", "/bookies", "/counters", "/stream", "/managed-ledger-lock")
_JSON = (CLUSTERS, "/admin/policies/", "/admin/local-policies/")
_CLUSTER_KEYS = frozenset(
    {"allowedClusters", "replication_clusters", "allowed_clusters", "clusterThatCanDeleteNamespace", "peerClusterNames"}
)
_NOWHERE = "clone.invalid"


class CloneAddress(Struct, frozen=True):
    """The properties in which a clone differs from its original.

    ``renamed_from``: the cluster's name there, "" if it stays; ``others``: clusters that it must not reach.
    """

    path: str
    bookie_id: str
    instance_id: str
    cluster: str
    renamed_from: str
    others: frozenset[str]

    @property
    def cookie(self) -> Cookie:
        """The cookie of its bookie."""
        directory = f"{self.path}/bookkeeper"
        return Cookie(5, self.bookie_id, (directory,), (directory,), self.instance_id)


class CloneNodes(Struct, frozen=True):
    """The metadata nodes of a clone at ``address`` with these ``ledgers``; ``topics`` None: of all topics."""

    address: CloneAddress
    ledgers: Collection[int]
    topics: frozenset[TopicName] | None

    def rows(self, txn: Txn, sequence: int, now_ms: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of the clone's metadata store; ``sequence``: the next id that it gives."""
        instance, ids = COUNTER_KEYS
        yield instance, encode_counter(_OWNER)
        yield ids, encode_counter(sequence)
        made = {
            ledgermetadata.LEDGERS_ROOT: b"",
            ledgermetadata.INSTANCE_ID: self.address.instance_id.encode(),
            f"{ledgermetadata.COOKIES}/{self.address.bookie_id}": encode_cookie(self.address.cookie),
            f"{ledgermetadata.LEDGERS_ROOT}/idgen": b"",
        }
        for path, value in made.items():
            yield path.encode(), encode_value(NodeStat(0, _OWNER, now_ms, now_ms, False), value)
        for path, value, stat in self.iter_nodes(txn):
            yield path.encode(), encode_value(stat._replace(owner=_OWNER), value)

    def iter_nodes(self, txn: Txn) -> Iterator[tuple[str, bytes, NodeStat]]:
        """Yield (path, value, times) of the nodes that the clone takes from the store."""
        topics = self.topics or ()
        own = {own for topic in topics for own in (topic.path, topic.schema_path, topic.partitioned_path)}
        for node in iter_nodes(txn, "/"):
            if self._keeps(node, own):
                yield self._path(node.path), self._value(node), node.stat

    def _keeps(self, node: Node, own: set[str]) -> bool:
        """Whether the clone gets a node; ``own``: the nodes of the chosen topics, if only some topics are cloned."""
        path = node.path
        if not node.value or node.stat.ephemeral or path.startswith(_LEFT_OUT):
            return False
        if path.startswith(f"{ledgermetadata.LEDGERS_ROOT}/"):
            return ledgermetadata.ledger_id_of_path(path) in self.ledgers
        lists = ("/managed-ledgers/", "/schemas/", "/admin/partitioned-topics/")
        if self.topics is None or not path.startswith(lists):
            return True
        return path in own or path.rpartition("/")[0] in own

    def _path(self, path: str) -> str:
        old = f"{CLUSTERS}{self.address.renamed_from}"
        if self.address.renamed_from and (path == old or path.startswith(f"{old}/")):
            return f"{CLUSTERS}{self.address.cluster}{path.removeprefix(old)}"
        return path

    def _value(self, node: Node) -> bytes:
        if ledgermetadata.ledger_id_of_path(node.path) is not None:
            metadata = on_one_bookie(
                ledgermetadata.decode_ledger_metadata(node.value, node.path), self.address.bookie_id
            )
            return ledgermetadata.encode_ledger_metadata(metadata, node.value)
        if not node.path.startswith(_JSON):
            return node.value
        try:
            policies = decode_json_object(node.value, node.path)
        except StoreError:
            return node.value  # `store check` names it
        if node.path.removeprefix(CLUSTERS) in self.address.others:
            policies = {key: _nowhere(key, value) for key, value in policies.items()}
        if self.address.renamed_from:
            policies = _renamed(policies, self.address.renamed_from, self.address.cluster)
        return encode_json_object(policies)


def on_one_bookie(metadata: ledgermetadata.LedgerMetadata, bookie_id: str) -> ledgermetadata.LedgerMetadata:
    """Return a ledger's metadata with one bookie as the whole ensemble."""
    return replace(
        metadata, write_quorum=1, ensemble_size=1, ack_quorum=1, segments=(ledgermetadata.Segment(0, (bookie_id,)),)
    )


def _nowhere(key: str, value: Any) -> Any:  # Any: JSON
    """Return the address in a property of another cluster, changed so that no server answers there."""
    if not value or not key.lower().replace("tls", "").endswith("url"):
        return value
    scheme, _, _ = str(value).partition("://")
    return f"{scheme}://{_NOWHERE}"


def _renamed(record: dict[str, Any], old: str, new: str) -> dict[str, Any]:  # Any: JSON
    """Return a JSON object with the cluster ``old`` renamed to ``new`` in every field that names clusters."""

    def change(value: Any) -> Any:  # Any: JSON
        if isinstance(value, list):
            return [new if item == old else item for item in value]
        return new if value == old else value

    return {key: change(value) if key in _CLUSTER_KEYS else value for key, value in record.items()}


# -- the directory ----------------------------------------------------------------------------------------------------


def apply_clone(store: Store, plan: ClonePlan, now_ms: int) -> CloneReport:
    """Write a planned clone, completely or not at all, and return its report. Raises StalePlan, DiskFull, SourceChanged."""
    with store.read() as txn, EntryFiles(store, txn) as files, new_directory(plan.target) as root:
        if txn.id != plan.txn_id:
            raise stale(f"{store.path}", "the clone")
        create_directory(root)
        create_directory(root / "bookkeeper")
        current = root / "bookkeeper" / "current"
        create_directory(current)
        # The small files of a bookie that was stopped with an empty journal.
        small_files = {
            COOKIE_FILE: encode_cookie(plan.address.cookie),
            LAST_MARK_FILE: encode_last_mark(LogMark(now_ms, PADDED_HEADER_BYTES)),
            f"{now_ms:x}.txn": encode_header(LATEST_VERSION),
        }
        for name, data in small_files.items():
            with create_file(current / name) as file:
                file.write(data)
        bodies = (
            files.read_record(block.place(index))
            for cloned in plan.ledgers
            for block, index in iter_cloned(txn, read_ledger(txn, cloned.ledger_id))
        )
        with Locations(current / "locations") as rows:
            for log in put_logs(bodies, current):
                locations = np.array(log.positions) + encode_location(log.log_id, 0)
                rows.add(np.array(log.ledger_ids), np.array(log.entry_ids), locations)
        create_database(current / "ledgers", _ledgers_rows(txn, plan))
        nodes = CloneNodes(plan.address, {ledger.ledger_id for ledger in plan.ledgers}, plan.chosen)
        create_database(root / "metadata", nodes.rows(txn, plan.next_ledger_id, now_ms))
    return plan.report(dry_run=False)


def _ledgers_rows(txn: Txn, plan: ClonePlan) -> Iterator[tuple[bytes, bytes]]:
    for cloned in plan.ledgers:
        metadata = find_metadata(txn, cloned.ledger_id)
        key = master_key((metadata.password if metadata else None) or b"")
        if cloned.entries:
            yield encode_ledgers_row(cloned.ledger_id, LedgerData(True, False, key))
