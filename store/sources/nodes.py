"""Reads the nodes of any kind of metadata store as rows of the store's tree. A new kind is a new row of ``_KINDS``.

Where in a ZooKeeper's tree the cluster is, is found by searching bytes if it has the whole tree, as most clusters have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT
from pulsar_admin.store.codec.rocksvalue import COUNTER_KEYS, NodeStat, decode_counter, decode_value, persistent_parts
from pulsar_admin.store.db.files import LOG_END, METADATA_FILE_ID, NOT_NEEDED, WHOLE_METADATA, Damage
from pulsar_admin.store.db.ledger_ids import NextLedgerId
from pulsar_admin.store.db.tree import PATH_MAX_BYTES, Node, Row, row_of, row_of_packed
from pulsar_admin.store.errors import MetadataCorrupt, Refused, SourceNotFound, StoreError
from pulsar_admin.store.sources import zookeeper
from pulsar_admin.store.sources.rocksdb import is_rocksdb, locked_by, open_for_reading
from pulsar_admin.store.sources.rocksopen import logged_changes, salvage_in_child
from pulsar_admin.store.sources.roots import WHOLE, Marks, Roots, Wanted, choose_roots
from pulsar_admin.store.wording import counted

RESTORE_IT = "restore the directory; until then the store stays unchanged"
_CHUNK_BYTES = 4 << 20
_MARK = re.compile(rb"/(?:LAYOUT|admin/clusters|managed-ledgers)[\0\xff]")
"""A path that ends with a mark of ``store.sources.roots``, and the first byte of its value's length: below 16 MiB, or −1."""
_AT_ROOT = re.compile(rb"\0\0\0[\s\S](?:/ledgers/LAYOUT|/admin/clusters|/managed-ledgers)[\0\xff]\Z")
"""The same after the length of the path: all bytes are the path."""
_OVERLAP = 64  # bytes, more than ``_AT_ROOT`` matches


def find_roots(servers: Sequence[zookeeper.ServerFiles], wanted: Wanted, *, is_strict: bool = True) -> Roots:
    """Return the roots of the wanted cluster, or of the only one, in the files of servers of one ensemble.

    Raises SourceNotFound if there is no cluster (unless ``is_strict``, WHOLE is returned instead), Refused if there are
    several, and as ``store.sources.zookeeper.read_tree``.
    """
    if not (wanted.chroot or wanted.ledgers) and _are_at_root(servers):
        return WHOLE
    marks = Marks()
    problems: list[str] = []
    where = str(servers[0].snapshots)
    try:
        for path, node in zookeeper.read_tree(
            [replace(server, roots=WHOLE) for server in servers], problems
        ).nodes.items():
            marks.see(path, node.data)
        return choose_roots(marks, where, wanted)
    except (SourceNotFound, MetadataCorrupt) as error:
        if not is_strict:
            return WHOLE
        if problems and isinstance(error, SourceNotFound):
            raise MetadataCorrupt(
                f"{error.message}; {problems[0]}", hint="provide an intact copy of the files", path=where
            ) from error
        raise


def _are_at_root(servers: Sequence[zookeeper.ServerFiles]) -> bool:
    """Whether the newest files mark a cluster only at the root: a search of bytes, twenty times as fast as decoding."""
    is_any = False
    with suppress(MetadataCorrupt), ExitStack() as stack:
        for file in _newest_files(servers, stack):
            for is_at_root in _iter_marks(file):
                if not is_at_root:
                    return False
                is_any = True
        return is_any
    return False


def _newest_files(servers: Sequence[zookeeper.ServerFiles], stack: ExitStack) -> Iterator[BinaryIO]:
    """Yield the newest snapshot and the logs that may follow it, opened on ``stack``."""
    snapshots = [*zookeeper.iter_snapshot_files(servers)]
    for snapshot in snapshots[-1:]:
        yield stack.enter_context(zookeeper.open_snapshot(snapshot.path, snapshot.extension))
    newest = snapshots[-1].zxid if snapshots else 0
    for server in servers:
        logs = [*zookeeper.iter_log_files(server)]
        begin = max((index for index, (zxid, _) in enumerate(logs) if zxid <= newest), default=0)
        for _, log in logs[begin:]:
            yield stack.enter_context(log.open("rb"))


def _iter_marks(file: BinaryIO) -> Iterator[bool]:
    """Yield, for each node name in a file that marks a cluster, whether the node is at the root."""
    before = b""
    for chunk in iter(partial(file.read, _CHUNK_BYTES), b""):
        data = before + chunk
        for mark in _MARK.finditer(data) if b"/" in data else ():  # preallocated zeros, most of a log, have none
            if mark.end() > len(before):
                yield _AT_ROOT.search(data, max(0, mark.end() - _OVERLAP), mark.end()) is not None
        before = data[-_OVERLAP:]


class Source(Protocol):
    """A metadata store, wherever it is."""

    @property
    def name(self) -> str:
        """What messages and ``store.json`` call it: a path, or the address of servers."""

    def row(self) -> dict[str, Any]:  # Any: JSON
        """Return the source's row in ``store.json``: ``kind``, ``path``, and what else is needed to open it again."""

    @property
    def roots(self) -> Roots:
        """Where in ZooKeeper's tree the cluster is; for a live ensemble known once its nodes were read."""

    def nodes(
        self, problems: list[str], notes: zookeeper.Notes | None = None
    ) -> Iterator[Node | Row | Damage | NextLedgerId]:
        """Yield the source's nodes (or their rows, where these cost less), a Damage (of METADATA_FILE_ID) for each
        unreadable node, and, if known, the next ledger id.

        Problems that leave the tree incomplete are added to ``problems`` before the first node, harmless ones to
        ``notes``. Ephemeral nodes are skipped.
        """

    def whole_nodes(self, problems: list[str]) -> Iterator[Node | Row | Damage | NextLedgerId]:
        """Yield all nodes as ``nodes`` does, but with whole paths, including those outside of the cluster."""

    def next_ledger_id(self) -> int | None:
        """Return the present next ledger id, None if it is unknown."""

    def holder(self) -> int | None:
        """Return the id of a process that has the source open and may write meanwhile; None if there is no such
        risk."""


class MetadataDirectory(Struct, frozen=True):
    """A metadata store in a directory: RocksDB, or ZooKeeper's snapshots and logs; ``logs``: where the logs are apart; ``as_of_zxid``:
    the last transaction that counts, None: all do; ``roots``: where in ZooKeeper's tree the cluster is."""

    path: Path
    logs: Path | None = None
    as_of_zxid: int | None = None
    roots: Roots = WHOLE

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def directories(self) -> tuple[Path, ...]:
        """The directories that are read."""
        return (self.path,) if self.logs is None else (self.path, self.logs)

    @property
    def server(self) -> zookeeper.ServerFiles:
        """ZooKeeper's files in it."""
        return zookeeper.ServerFiles(self.path, self.logs or self.path, self.roots)

    def rooted(self, wanted: Wanted) -> MetadataDirectory:
        """Return the same files with the wanted cluster of ZooKeeper's; raises as ``store.sources.nodes.find_roots``."""
        if not is_rocksdb(self.path):
            return replace(self, roots=zookeeper.read_again(lambda: find_roots((self.server,), wanted), self.path))
        if wanted.chroot or wanted.ledgers:
            raise Refused(
                f"{self.name} is a RocksDB, whose tree is one cluster's", hint="omit --chroot and --ledgers-root"
            )
        return self

    def row(self) -> dict[str, Any]:  # Any: JSON
        """Return its row in ``store.json``."""
        kind = "rocksdb" if is_rocksdb(self.path) else "zookeeper"
        logs = {} if self.logs is None else {"logs": str(self.logs.resolve())}
        as_of = {} if self.as_of_zxid is None else {"asOf": self.as_of_zxid}
        return {"kind": kind, "path": str(self.path.resolve())} | logs | as_of | self.roots.row()

    def nodes(self, problems: list[str], notes: zookeeper.Notes | None = None) -> Iterator[Row | Damage | NextLedgerId]:
        """Yield its nodes as ``Source`` says; raises SourceNotFound."""
        if is_rocksdb(self.path) and self.logs is None and self.as_of_zxid is None:
            yield from _rocksdb_rows(self.path, problems, zookeeper.Notes() if notes is None else notes)
        elif self.logs is not None or self.as_of_zxid is not None or zookeeper.is_zookeeper(self.path):
            # ZooKeeper keeps no owner of a node, and intermediate nodes exist, empty.
            tree, damage, told = zookeeper.read_again(lambda: _read_tree(self), self.path)
            problems += damage
            if notes is not None:
                notes.not_needed += told.not_needed
                notes.log_ends += told.log_ends
            for node in tree.persistent():
                yield row_of(
                    Node(node.path, NodeStat(node.version, 0, node.created_ms, node.modified_ms, False), node.data)
                )
            next_id = tree.ledger_ids.next_id(LEDGERS_ROOT, whole=not damage)
            if next_id is not None:
                yield NextLedgerId(next_id)
        else:
            raise SourceNotFound(f"{self.path} is not a metadata store any more", hint=RESTORE_IT, path=str(self.path))

    def whole_nodes(self, problems: list[str]) -> Iterator[Row | Damage | NextLedgerId]:
        return replace(self, roots=WHOLE).nodes(problems)

    def next_ledger_id(self) -> int | None:
        """Return the next ledger id, for which all metadata is read again."""
        next_ids: list[int] = []
        for _ in iter_source_rows(self, next_ids.append):
            pass
        return next_ids[-1] if next_ids else None

    def holder(self) -> int | None:
        """Return the process that holds the lock of a RocksDB."""
        return locked_by(self.path)


_OF_A_CLUSTER = (b"/admin", b"/ledgers", b"/managed-ledgers")
"""The paths of a Pulsar's or a BookKeeper's nodes."""


class _Kind(NamedTuple):
    """A kind of metadata store: its possible places below a data directory, and a test whether a directory is one."""

    places: tuple[str, ...]
    holds: Callable[[Path], bool]


def find_metadata(root: Path) -> Path | None:
    """Return the directory of the metadata store below ``root``, or None. RocksDB is looked for first."""
    places = ((kind, root / place) for kind in _KINDS for place in kind.places)
    return next((path for kind, path in places if path.is_dir() and kind.holds(path)), None)


def iter_source_rows(
    metadata: Source | None, tell_next_id: Callable[[int], None] = lambda next_id: None
) -> Iterator[Row | Damage]:
    """Yield a row for each node, and a Damage (of METADATA_FILE_ID) for each unreadable one.

    Damage that leaves the tree incomplete, and notes, come before the nodes; a damaged table that shows only after
    others were read comes last. Ephemeral nodes (live brokers, bookies) and RocksDB's two counters are skipped.
    ``tell_next_id`` gets the next ledger id, if the metadata has it. Raises SourceNotFound, MetadataCorrupt if there
    is nothing of a cluster.
    """
    if metadata is None:
        return
    problems: list[str] = []
    notes = zookeeper.Notes()
    nodes = metadata.nodes(problems, notes)
    first = [*islice(nodes, 1)]
    for begin, texts in ((WHOLE_METADATA, problems), (NOT_NEEDED, notes.not_needed), (LOG_END, notes.log_ends)):
        for number, text in enumerate(texts):
            yield Damage(METADATA_FILE_ID, begin + number, 0, text, -1, -1)
    told, noted = len(problems), len(notes.not_needed)
    rows = _rows_of(chain(first, nodes), tell_next_id)
    is_cluster = False
    for row in rows:
        yield row
        if not isinstance(row, Damage) and row[0].startswith(_OF_A_CLUSTER):
            is_cluster = True
            yield from rows
    if not is_cluster:
        raise no_cluster(metadata.name, problems)
    for number, text in enumerate(problems[told:], told):
        yield Damage(METADATA_FILE_ID, WHOLE_METADATA + number, 0, text, -1, -1)
    for number, text in enumerate(notes.not_needed[noted:], noted):
        yield Damage(METADATA_FILE_ID, NOT_NEEDED + number, 0, text, -1, -1)


def _rows_of(
    items: Iterator[Node | Row | Damage | NextLedgerId], tell_next_id: Callable[[int], None]
) -> Iterator[Row | Damage]:
    for item in items:
        if isinstance(item, NextLedgerId):
            tell_next_id(item.value)
        else:
            yield row_of(item) if isinstance(item, Node) else item


def no_cluster(name: str, problems: Sequence[str]) -> SourceNotFound | MetadataCorrupt:
    """Return the error for metadata without a node of a cluster; ``problems``: its unreadable parts."""
    if problems:
        return MetadataCorrupt(
            f"nothing of a cluster can be read: {problems[0]}", hint="provide an intact copy", path=name
        )
    return SourceNotFound(
        f"{name} has no metadata of Pulsar or BookKeeper: expected nodes such as /admin/clusters and /ledgers/LAYOUT, found none",
        hint="name the metadata store of the cluster; without it the bookies alone can be imported, and metadata be rebuilt from them:"
        " pulsar-admin store recover",
        path=name,
    )


def _read_tree(metadata: MetadataDirectory) -> tuple[zookeeper.Tree, list[str], zookeeper.Notes]:
    problems: list[str] = []
    notes = zookeeper.Notes()
    return zookeeper.read_tree((metadata.server,), problems, metadata.as_of_zxid, notes), problems, notes


def _rocksdb_rows(metadata: Path, problems: list[str], notes: zookeeper.Notes) -> Iterator[Row | Damage | NextLedgerId]:
    """Yield the rows of a RocksDB, of a damaged one those that can be salvaged; some damage may come after rows."""
    reached = [b""]
    try:
        with open_for_reading(metadata, problems) as items:
            yield from _rows_of_pairs(items, metadata, reached)
        return
    except MetadataCorrupt as broken:
        error = broken
    try:
        salvaged = salvage_in_child(metadata)
    except MetadataCorrupt:
        raise error from None
    pairs = [pair for pair in salvaged.pairs if pair[0] > reached[-1]]
    nodes = sum(key.startswith(b"/") for key, _ in salvaged.pairs)
    tables = f", without {', '.join(salvaged.lost_tables)}" if salvaged.lost_tables else ""
    changes = logged_changes(metadata)
    if changes:
        notes.not_needed.append(
            f"{error.message}; rebuilt from its write-ahead logs, which have all {changes:,} changes: {counted(nodes, 'node')}"
        )
    else:
        problems.append(
            f"{error.message}; {counted(nodes, 'node')} can be read{tables}: others may be missing, and some may be older or deleted"
        )
    for row in _rows_of_pairs(iter(pairs), metadata, []):
        if changes or not isinstance(row, NextLedgerId):  # which may be older
            yield row


def _rows_of_pairs(
    items: Iterator[tuple[bytes, bytes]], metadata: Path, reached: list[bytes]
) -> Iterator[Row | Damage | NextLedgerId]:
    """Yield the rows of key-value pairs; ``reached`` gets the last key when they end, also by an error."""
    key = b""
    try:
        for number, (key, raw) in enumerate(items):
            if not key.startswith(b"/"):
                if key == COUNTER_KEYS[1]:
                    yield _counter_item(number, raw, str(metadata))
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
    finally:
        reached.append(key)


def _counter_item(number: int, raw: bytes, where: str) -> NextLedgerId | Damage:
    """Return the next ledger id from the counter of sequential nodes: other nodes share the counter, so no ledger has that number yet."""
    try:
        return NextLedgerId(decode_counter(raw, f"{where} {COUNTER_KEYS[1].decode()}"))
    except MetadataCorrupt as error:
        return Damage(METADATA_FILE_ID, number, len(raw), error.message, -1, -1)


def _path_of(key: bytes, where: str) -> str:
    if len(key) > PATH_MAX_BYTES:
        raise MetadataCorrupt(f"{where}: a path of {len(key)} bytes, at most {PATH_MAX_BYTES} are possible")
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise MetadataCorrupt(f"{where}: the path {key!r} is not UTF-8") from error


_KINDS = (
    _Kind(("metadata",), is_rocksdb),
    _Kind(("zookeeper/version-2", "zookeeper", "version-2", "."), zookeeper.is_zookeeper),
)
