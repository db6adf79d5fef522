"""Everything of a generated cluster but its entries: metadata nodes, the bookie's ``ledgers`` rows, cookie and marks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from msgspec.structs import replace

from bench.generate import draws
from bench.generate.cursors import cursors_of
from bench.generate.spec import ClusterSpec
from bench.generate.topic import TopicWriter, WrittenLedger
from pulsar_admin.store.codec.bookie import (
    COOKIE_FILE,
    LAST_ID_FILE,
    LAST_MARK_FILE,
    Cookie,
    LogMark,
    encode_cookie,
    encode_last_id,
    encode_last_mark,
)
from pulsar_admin.store.codec.cursor import encode_cursor_info
from pulsar_admin.store.codec.dbledger import LedgerData, encode_ledgers_row
from pulsar_admin.store.codec.digest import master_key
from pulsar_admin.store.codec.interceptors import INDEX_PROPERTY
from pulsar_admin.store.codec.journal import LATEST_VERSION, PADDED_HEADER_BYTES, encode_header
from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata, closed_ledger, encode_ledger_metadata, ledger_path
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.codec.policies import (
    NEW_POLICIES,
    PartitionedTopic,
    encode_json_object,
    encode_partitioned_topic,
)
from pulsar_admin.store.codec.rocksvalue import COUNTER_KEYS, NodeStat, encode_counter, encode_value
from pulsar_admin.store.files import create_file
from pulsar_admin.store.names import NamespaceName, TopicName
from pulsar_admin.store.sources.rocksdb import create_database

CLUSTER = "standalone"
_OWNER = 1  # the first instance id of a RocksDB metadata store
_TENANT = encode_json_object({"adminRoles": [], "allowedClusters": [CLUSTER]})
_NAMESPACE = encode_json_object(
    {
        **NEW_POLICIES,
        "replication_clusters": [CLUSTER],
        "bundles": {
            "boundaries": ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"],
            "numBundles": 4,
        },
        "retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
        "clusterThatCanDeleteNamespace": CLUSTER,
    }
)


def write_metadata(root: Path, spec: ClusterSpec, topics: list[TopicWriter], next_ledger_id: int) -> int:
    """Write the metadata store of a finished cluster below ``root``; return its nodes."""
    instance, sequence = COUNTER_KEYS
    counters = [(instance, encode_counter(_OWNER)), (sequence, encode_counter(next_ledger_id))]
    nodes = 0

    def rows() -> Iterator[tuple[bytes, bytes]]:
        nonlocal nodes
        yield from counters
        for path, value, time_ms in iter_cluster_nodes(spec, topics):
            nodes += 1
            yield path.encode(), encode_value(NodeStat(0, _OWNER, time_ms, time_ms, False), value)

    create_database(root / "metadata", rows())
    return nodes


def write_bookie(current: Path, spec: ClusterSpec, topics: list[TopicWriter], last_log_id: int) -> None:
    """Write cookie, marks, an empty journal and the ``ledgers`` database into ``current``, a bookie's directory."""
    journal_id = start_ms_of(topics)
    files = {
        COOKIE_FILE: encode_cookie(cookie_of(spec)),
        LAST_ID_FILE: encode_last_id(last_log_id),
        LAST_MARK_FILE: encode_last_mark(LogMark(journal_id, PADDED_HEADER_BYTES)),
        f"{journal_id:x}.txn": encode_header(LATEST_VERSION),
    }
    for name, data in files.items():
        with create_file(current / name) as file:
            file.write(data)
    data_row = LedgerData(exists=True, fenced=False, master_key=master_key(b""))
    ledgers = sorted(ledger.ledger_id for topic in topics for ledger in topic.ledgers if ledger.entries)
    create_database(current / "ledgers", (encode_ledgers_row(ledger, data_row) for ledger in ledgers))


def cookie_of(spec: ClusterSpec) -> Cookie:
    """Return the bookie's cookie: it starts only at the path and under the address named here."""
    directory = f"{spec.data_path}/bookkeeper"
    return Cookie(5, spec.bookie_id, (directory,), (directory,), instance_id_of(spec.seed))


def instance_id_of(seed: int) -> str:
    """Return the id of the BookKeeper cluster of ``seed``, in the form of a random UUID."""
    source = draws.stream(seed, -1)
    digits = f"{draws.mix(source):016x}{draws.mix(source + 1):016x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def start_ms_of(topics: list[TopicWriter]) -> int:
    """Return when the cluster began."""
    return min(topic.spec.start_ms for topic in topics)


def iter_cluster_nodes(spec: ClusterSpec, topics: list[TopicWriter]) -> Iterator[tuple[str, bytes, int]]:
    """Yield (path, value, time created) of every node of a cluster whose entries are written."""
    start_ms = start_ms_of(topics)
    yield "/ledgers", b"", start_ms
    yield "/ledgers/INSTANCEID", instance_id_of(spec.seed).encode(), start_ms
    yield f"/ledgers/cookies/{spec.bookie_id}", encode_cookie(cookie_of(spec)), start_ms
    yield "/ledgers/idgen", b"", start_ms
    namespaces = sorted({topic.spec.name.namespace for topic in topics} | {NamespaceName("public", "default")})
    for tenant in sorted({namespace.tenant for namespace in namespaces}):
        yield f"/admin/policies/{tenant}", _TENANT, start_ms
    for namespace in namespaces:
        yield namespace.policies_path, _NAMESPACE, start_ms
    for topic in topics:
        yield from _topic_nodes(spec, topic)
    yield from _partitioned_nodes(topics)


def _partitioned_nodes(topics: list[TopicWriter]) -> Iterator[tuple[str, bytes, int]]:
    counts: dict[TopicName, int] = {}
    for topic in topics:
        if topic.spec.name.partition_index >= 0:
            base = topic.spec.name.base
            counts[base] = max(counts.get(base, 0), topic.spec.name.partition_index + 1)
    for base, partitions in counts.items():
        yield base.partitioned_path, encode_partitioned_topic(PartitionedTopic(partitions)), start_ms_of(topics)


def _topic_nodes(spec: ClusterSpec, topic: TopicWriter) -> Iterator[tuple[str, bytes, int]]:
    name = topic.spec.name
    yield name.path, encode_managed_ledger(_managed_ledger(topic)), topic.ledgers[-1].created_ms
    for ledger in topic.ledgers:
        yield (
            ledger_path(ledger.ledger_id),
            encode_ledger_metadata(_ledger_metadata(spec, name, ledger)),
            ledger.created_ms,
        )
    end_ms = topic.spec.broker_ms(topic.entries)
    for cursor, state in cursors_of(spec.seed, topic):
        yield name.cursor_path(cursor), encode_cursor_info(replace(state, last_active_ms=end_ms)), end_ms


def _managed_ledger(topic: TopicWriter) -> ManagedLedger:
    """As a clean stop leaves it: the last ledger is listed without entries, BookKeeper's metadata has them."""
    closed = [
        LedgerInfo(ledger.ledger_id, ledger.entries, ledger.size_bytes, after.created_ms)
        for ledger, after in pairwise(topic.ledgers)
    ]
    properties = topic.chain.properties()
    if INDEX_PROPERTY in properties:
        properties[INDEX_PROPERTY] = str(topic.ledgers[-2].index if closed else -1)
    return ManagedLedger((*closed, LedgerInfo(topic.ledgers[-1].ledger_id)), properties=properties)


def _ledger_metadata(spec: ClusterSpec, name: TopicName, ledger: WrittenLedger) -> LedgerMetadata:
    custom = {
        "component": b"managed-ledger",
        "pulsar/managed-ledger": name.managed_ledger_name.encode(),
        "application": b"pulsar",
    }
    return closed_ledger(spec.bookie_id, ledger.entries, ledger.size_bytes, custom)
