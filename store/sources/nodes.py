"""The nodes of a metadata store, whichever kind it is, as the store's tree takes them. Another kind is another row of ``_KINDS``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from store.codec.rocksvalue import NodeStat, decode_value, persistent_parts
from store.db.files import METADATA_FILE_ID, WHOLE_METADATA, Damage
from store.db.tree import PATH_MAX_BYTES, Node, Row, row_of, row_of_packed
from store.errors import MetadataCorrupt, SourceNotFound, StoreError
from store.files import raise_read_error
from store.frozen import NamedTuple, frozen
from store.sources.rocksdb import is_rocksdb, locked_by, open_for_reading
from store.sources.zookeeper import ServerFiles, is_zookeeper, read_tree

_TRIES = 5


class Source(Protocol):
    """A metadata store, wherever it is."""

    @property
    def name(self) -> str:
        """What messages and ``store.json`` call it: a path, or the address of servers."""

    def row(self) -> dict[str, Any]:  # Any: JSON
        """Return what ``store.json`` has of it: ``kind``, ``path`` and what else it is found again by."""

    def nodes(self, problems: list[str]) -> Iterator[Node | Row | Damage]:
        """Yield its nodes, or their rows where these cost less, and a Damage (of METADATA_FILE_ID) for what is not a node.

        What leaves the tree incomplete goes into PROBLEMS before the first node is yielded. Ephemeral nodes are left out.
        """

    def holder(self) -> int | None:
        """Return the process that has it open and may write while it is read, None where that does not matter."""


@frozen
class MetadataDirectory:
    """A metadata store in a directory: RocksDB, or ZooKeeper's snapshots and logs; ``logs``: where the logs are apart; ``as_of``: the
    last transaction (zxid) that counts, None: all do."""

    path: Path
    logs: Path | None = None
    as_of: int | None = None

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def directories(self) -> tuple[Path, ...]:
        """The directories that are read."""
        return (self.path,) if self.logs is None else (self.path, self.logs)

    def row(self) -> dict[str, Any]:  # Any: JSON
        """Return what ``store.json`` has of it."""
        kind = "rocksdb" if is_rocksdb(self.path) else "zookeeper"
        logs = {} if self.logs is None else {"logs": str(self.logs.resolve())}
        as_of = {} if self.as_of is None else {"asOf": self.as_of}
        return {"kind": kind, "path": str(self.path.resolve())} | logs | as_of

    def nodes(self, problems: list[str]) -> Iterator[Row | Damage]:
        """Yield its nodes as ``Source`` says; raises SourceNotFound."""
        if self.logs is not None or self.as_of is not None:
            yield from _zookeeper_rows(self.path, problems, self.logs, self.as_of)
            return
        kind = next((kind for kind in _KINDS if kind.holds(self.path)), None)
        if kind is None:
            raise SourceNotFound(f"{self.path} is not a metadata store any more", path=str(self.path))
        yield from kind.read(self.path, problems)

    def holder(self) -> int | None:
        """Return the process that holds the lock of a RocksDB."""
        return locked_by(self.path)


class _Kind(NamedTuple):
    """A kind of metadata store: where it may be below a data directory, whether a directory is one, and its nodes as rows.

    ``read`` takes the directory and a list that it tells what leaves the tree incomplete before it yields the first node.
    """

    places: tuple[str, ...]
    holds: Callable[[Path], bool]
    read: Callable[[Path, list[str]], Iterator[Row | Damage]]


def find_metadata(root: Path) -> Path | None:
    """Return the directory of the metadata store below ROOT, or None. RocksDB is looked for first."""
    places = ((kind, root / place) for kind in _KINDS for place in kind.places)
    return next((path for kind, path in places if path.is_dir() and kind.holds(path)), None)


def iter_source_rows(metadata: Source | None) -> Iterator[Row | Damage]:
    """Yield a row for each node of METADATA, and a Damage (of METADATA_FILE_ID) for what is not a node.

    Damage that leaves the tree incomplete comes before the nodes. Ephemeral nodes (live brokers, bookies) and RocksDB's two counters are
    left out.
    """
    if metadata is None:
        return
    problems: list[str] = []
    nodes = metadata.nodes(problems)
    first = next(nodes, None)
    for number, text in enumerate(problems):
        yield Damage(METADATA_FILE_ID, WHOLE_METADATA + number, 0, text, -1, -1)
    if first is not None:
        yield row_of(first) if isinstance(first, Node) else first
    for node in nodes:
        yield row_of(node) if isinstance(node, Node) else node


def _zookeeper_rows(
    metadata: Path, problems: list[str], logs: Path | None = None, as_of: int | None = None
) -> Iterator[Row]:
    """Yield the znodes; ZooKeeper keeps no owner of a node, and intermediate nodes exist, empty."""
    files = ServerFiles(metadata, logs or metadata)
    for left in reversed(range(_TRIES)):
        found: list[str] = []
        try:
            tree = read_tree((files,), found, as_of)
            break
        except FileNotFoundError as error:  # a running server purges old snapshots and logs
            if not left:
                raise_read_error(error, metadata)
    problems += found
    for node in tree.persistent():
        yield row_of(Node(node.path, NodeStat(node.version, 0, node.created_ms, node.modified_ms, False), node.data))


def _rocksdb_rows(metadata: Path, problems: list[str]) -> Iterator[Row | Damage]:
    with open_for_reading(metadata, problems) as items:
        for number, (key, raw) in enumerate(items):
            if not key.startswith(b"/"):
                continue
            parts = persistent_parts(raw)
            row = None if parts is None else row_of_packed(key, *parts)
            if row is not None:
                yield row
                continue
            try:
                path = _path_of(key, str(metadata))
                stat, value = decode_value(raw, f"{metadata} {path}")
            except StoreError as error:
                yield Damage(METADATA_FILE_ID, number, len(raw), error.message, -1, -1)
                continue
            if not stat.ephemeral:
                yield row_of(Node(path, stat, value))


def _path_of(key: bytes, where: str) -> str:
    if len(key) > PATH_MAX_BYTES:
        raise MetadataCorrupt(f"{where}: a path of {len(key)} bytes, at most {PATH_MAX_BYTES} are possible")
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise MetadataCorrupt(f"{where}: the path {key!r} is not UTF-8") from error


_KINDS = (
    _Kind(("metadata",), is_rocksdb, _rocksdb_rows),
    _Kind(("zookeeper/version-2", "zookeeper", "version-2", "."), is_zookeeper, _zookeeper_rows),
)
