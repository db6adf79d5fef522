"""The metadata of a clone: the nodes of a store as the metadata store of a standalone has them (upstream ``RocksdbMetadataStore``, 4.0.8).

Left out is what belongs to machines: registrations, cookies and racks of bookies, layout and sequence of ledger ids, ownership, load
reports, ZooKeeper's own nodes; and nodes without a value, which RocksDB does not need as parents.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.bookie import Cookie, encode_cookie
from pulsar_admin.store.codec.ledgermetadata import (
    COOKIES,
    INSTANCE_ID,
    LEDGERS_ROOT,
    LedgerMetadata,
    Segment,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_id_of_path,
)
from pulsar_admin.store.codec.policies import decode_json_object, encode_json_object
from pulsar_admin.store.codec.rocksvalue import COUNTER_KEYS, NodeStat, encode_counter, encode_value
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import Node, iter_nodes
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.names import TopicName

CLUSTERS = "/admin/clusters/"
_OWNER = 1  # the first instance id of a RocksDB metadata store
_LEFT_OUT = ("/zookeeper", "/loadbalance", "/namespace", "/bookies", "/counters", "/stream", "/managed-ledger-lock")
_JSON = (CLUSTERS, "/admin/policies/", "/admin/local-policies/")
_CLUSTER_KEYS = frozenset(
    {"allowedClusters", "replication_clusters", "allowed_clusters", "clusterThatCanDeleteNamespace", "peerClusterNames"}
)
_NOWHERE = "clone.invalid"


class Address(Struct, frozen=True):
    """What of a clone is not its original's.

    ``renamed_from``: the cluster's name there, "" when it stays; ``others``: clusters that it must not reach.
    """

    path: str
    bookie_id: str
    instance_id: str
    cluster: str
    renamed_from: str = ""
    others: frozenset[str] = frozenset()

    @property
    def cookie(self) -> Cookie:
        """The cookie of its bookie."""
        directory = f"{self.path}/bookkeeper"
        return Cookie(5, self.bookie_id, (directory,), (directory,), self.instance_id)


class CloneNodes(Struct, frozen=True):
    """The nodes of a clone at ``address`` that has ``ledgers``; ``topics`` None: all of them."""

    address: Address
    ledgers: Collection[int]
    topics: frozenset[TopicName] | None

    def rows(self, txn: Txn, sequence: int, now_ms: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of the metadata store; SEQUENCE: the next id that it gives."""
        instance, ids = COUNTER_KEYS
        yield instance, encode_counter(_OWNER)
        yield ids, encode_counter(sequence)
        made = {
            LEDGERS_ROOT: b"",
            INSTANCE_ID: self.address.instance_id.encode(),
            f"{COOKIES}/{self.address.bookie_id}": encode_cookie(self.address.cookie),
            f"{LEDGERS_ROOT}/idgen": b"",
        }
        for path, value in made.items():
            yield path.encode(), encode_value(NodeStat(0, _OWNER, now_ms, now_ms, False), value)
        for path, value, stat in self.iter_nodes(txn):
            yield path.encode(), encode_value(stat._replace(owner=_OWNER), value)

    def iter_nodes(self, txn: Txn) -> Iterator[tuple[str, bytes, NodeStat]]:
        """Yield path, value and times of the nodes that come from the store."""
        for node in iter_nodes(txn, "/"):
            if self._keeps(node):
                yield self._path(node.path), self._value(node), node.stat

    def _keeps(self, node: Node) -> bool:
        path = node.path
        if not node.value or node.stat.ephemeral or path.startswith(_LEFT_OUT):
            return False
        if path.startswith(f"{LEDGERS_ROOT}/"):
            return ledger_id_of_path(path) in self.ledgers
        return self.topics is None or any(keeps(path) for keeps in self._kept_paths(self.topics))

    def _kept_paths(self, topics: frozenset[TopicName]) -> tuple[Callable[[str], bool], ...]:
        lists = ("/managed-ledgers/", "/schemas/", "/admin/partitioned-topics/")
        own = {own for topic in topics for own in (topic.path, topic.schema_path, topic.partitioned_path)}
        return (
            lambda path: not path.startswith(lists),
            lambda path: path in own or path.rpartition("/")[0] in own,
        )

    def _path(self, path: str) -> str:
        old = f"{CLUSTERS}{self.address.renamed_from}"
        if self.address.renamed_from and (path == old or path.startswith(f"{old}/")):
            return f"{CLUSTERS}{self.address.cluster}{path.removeprefix(old)}"
        return path

    def _value(self, node: Node) -> bytes:
        if ledger_id_of_path(node.path) is not None:
            return self._ledger(node)
        if not node.path.startswith(_JSON):
            return node.value
        try:
            found = decode_json_object(node.value, node.path)
        except StoreError:
            return node.value  # `store check` names it
        if node.path.removeprefix(CLUSTERS) in self.address.others:
            found = {key: _nowhere(key, value) for key, value in found.items()}
        if self.address.renamed_from:
            found = _renamed(found, self.address.renamed_from, self.address.cluster)
        return encode_json_object(found)

    def _ledger(self, node: Node) -> bytes:
        metadata = decode_ledger_metadata(node.value, node.path)
        return encode_ledger_metadata(on_one_bookie(metadata, self.address.bookie_id), node.value)


def on_one_bookie(metadata: LedgerMetadata, bookie_id: str) -> LedgerMetadata:
    """Return METADATA with BOOKIE_ID as the whole ensemble."""
    return replace(metadata, write_quorum=1, ensemble_size=1, ack_quorum=1, segments=(Segment(0, (bookie_id,)),))


def _nowhere(key: str, value: Any) -> Any:  # Any: JSON
    """Return the address VALUE of another cluster so that nobody is there."""
    if not value or not key.lower().replace("tls", "").endswith("url"):
        return value
    scheme, _, _ = str(value).partition("://")
    return f"{scheme}://{_NOWHERE}"


def _renamed(found: dict[str, Any], old: str, new: str) -> dict[str, Any]:  # Any: JSON
    """Return the object FOUND with the cluster OLD called NEW wherever a field names clusters."""

    def change(value: Any) -> Any:  # Any: JSON
        if isinstance(value, list):
            return [new if item == old else item for item in value]
        return new if value == old else value

    return {key: change(value) if key in _CLUSTER_KEYS else value for key, value in found.items()}
