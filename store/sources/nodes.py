"""The nodes of a metadata store, whichever kind it is, as the store's tree takes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from store.codec.rocksvalue import NodeStat, decode_value
from store.db.files import METADATA_FILE_ID, WHOLE_METADATA, Damage
from store.db.tree import PATH_MAX_BYTES, Node
from store.errors import MetadataCorrupt, StoreError
from store.sources.layout import is_rocksdb
from store.sources.rocksdb import open_for_reading
from store.sources.zookeeper import read_zookeeper_nodes


def iter_source_nodes(metadata: Path) -> Iterator[Node | Damage]:
    """Yield the nodes of a metadata store, RocksDB or ZooKeeper, and a Damage (of METADATA_FILE_ID) for what is no node.

    Damage that leaves the tree incomplete comes before the nodes. Ephemeral nodes (live brokers, bookies) and RocksDB's two counters are
    left out.
    """
    problems: list[str] = []
    nodes = (_rocksdb_nodes if is_rocksdb(metadata) else _zookeeper_nodes)(metadata, problems)
    first = next(nodes, None)
    for number, text in enumerate(problems):
        yield Damage(METADATA_FILE_ID, WHOLE_METADATA + number, 0, text, -1, -1)
    if first is not None:
        yield first
    yield from nodes


def _zookeeper_nodes(metadata: Path, problems: list[str]) -> Iterator[Node]:
    """Yield the znodes; ZooKeeper keeps no owner of a node, and intermediate nodes exist, empty."""
    for node in read_zookeeper_nodes(metadata, problems):
        yield Node(node.path, NodeStat(node.version, 0, node.created_ms, node.modified_ms, False), node.data)


def _rocksdb_nodes(metadata: Path, problems: list[str]) -> Iterator[Node | Damage]:
    with open_for_reading(metadata, problems) as items:
        for number, (key, raw) in enumerate(items):
            if not key.startswith(b"/"):
                continue
            try:
                path = _path_of(key, str(metadata))
                stat, value = decode_value(raw, f"{metadata} {path}")
            except StoreError as error:
                yield Damage(METADATA_FILE_ID, number, len(raw), error.message, -1, -1)
                continue
            if not stat.ephemeral:
                yield Node(path, stat, value)


def _path_of(key: bytes, where: str) -> str:
    if len(key) > PATH_MAX_BYTES:
        raise MetadataCorrupt(f"{where}: a path of {len(key)} bytes, at most {PATH_MAX_BYTES} are possible")
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise MetadataCorrupt(f"{where}: the path {key!r} is no UTF-8") from error
