"""``store export zookeeper-snapshot``: the store's metadata as a ZooKeeper's ``version-2`` directory, on which a server
starts.

It has the store's present tree, every node with its version and times, whatever the tree was imported from; parents
that RocksDB does not keep are added. A cluster below a path of a ZooKeeper goes back there, together with that
ZooKeeper's other nodes as they are in the source now. A store has no ephemeral nodes, sessions and ACLs. Sequential
nodes continue above every number that may have been assigned: ``/ledgers/idgen`` (``LedgerIdGenerator``) above every
ledger, ``/counters`` (``DistributedIdGenerator``, Pulsar 4.0.8) at the present time in seconds.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT
from pulsar_admin.store.codec.zookeeper import SnapshotNode, iter_snapshot
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.files import Damage, iter_metadata_damage
from pulsar_admin.store.db.ledger_ids import NextLedgerId
from pulsar_admin.store.db.own_ledgers import RESERVED_GAP, find_own_ledgers, largest_ledger_id
from pulsar_admin.store.db.tree import Node, decode_node, find_node, iter_upwards
from pulsar_admin.store.errors import MetadataCorrupt, Refused, SourceNotFound, Unsupported
from pulsar_admin.store.files import check_new, create_directory, create_file, new_directory
from pulsar_admin.store.sources.cluster import read_stored_layout
from pulsar_admin.store.sources.roots import Roots, stored_roots
from pulsar_admin.store.sources.zookeeper import newest_epoch
from pulsar_admin.store.transfer import exports
from pulsar_admin.store.wording import Answer, counted

_IDGEN = f"{LEDGERS_ROOT}/idgen"
_COUNTERS = "/counters"
_ROOTS = ("", "/zookeeper", "/zookeeper/config", "/zookeeper/quota")  # what ``DataTree`` makes itself
_CONFIG = "/zookeeper/config"  # of the ensemble that was: a server writes its own
_INT_MAX = 2**31 - 1
_EPOCH_BITS = 32
_SEQUENTIAL = re.compile(r".*?(\d{10})", re.DOTALL)


class SnapshotExportReport(Answer, frozen=True):
    """The snapshot that was written, or with ``dry_run`` would be: its ``file`` below ``target``, its number of
    ``nodes``.

    ``chroot``, ``ledgers_root``, ``shared_with``: the cluster's place in an ensemble, and who else uses its ledgers;
    None if it has the whole tree. ``nodes_outside``: how many nodes are not the cluster's. ``changes``: nodes that the
    store changed.
    """

    JSON_OPTIONAL = ("chroot", "ledgers_root", "shared_with")

    target: str
    file: str
    zxid: str
    nodes: int
    next_ledger_id: int
    chroot: str | None
    ledgers_root: str | None
    shared_with: tuple[str, ...] | None
    nodes_outside: int
    changes: tuple[exports.NodeExported, ...]
    problems: tuple[str, ...]
    dry_run: bool


class SnapshotPlan(Struct, exports.Previewed, frozen=True):
    """The plan of a snapshot: the tree as of the store's transaction ``txn_id``, written into a new directory."""

    target: Path
    txn_id: int
    zxid: int
    nodes: int
    next_ledger_id: int
    now_ms: int
    changes: tuple[exports.ChangedNode, ...]
    problems: tuple[str, ...]
    roots: Roots
    outside: tuple[Node, ...]
    loses: str = ""

    @property
    def file(self) -> Path:
        return Path("version-2", f"snapshot.{self.zxid:x}")

    def report(self, *, dry_run: bool) -> SnapshotExportReport:
        roots = self.roots.row()
        return SnapshotExportReport(
            target=str(self.target),
            file=str(self.file),
            zxid=f"{self.zxid:#x}",
            nodes=self.nodes,
            next_ledger_id=self.next_ledger_id,
            chroot=roots.get("chroot"),
            ledgers_root=roots.get("ledgersRoot"),
            shared_with=roots.get("sharedWith"),
            nodes_outside=len(self.outside),
            changes=exports.nodes_exported(self.changes),
            problems=tuple(self.problems),
            dry_run=dry_run,
        )


def plan_snapshot_export(store: Store, target: Path, now_ms: int, *, force: bool) -> SnapshotPlan:
    """Plan a snapshot in a new directory; raises AlreadyExists, Refused, Unsupported, MetadataCorrupt, SourceNotFound.

    The last two unless ``force``: if nodes could not be imported, as bookies delete the ledgers that the metadata does
    not list, and if other trees in the same ZooKeeper cannot be read.
    """
    check_new(target, "name a new directory: a server's dataDir")
    roots = stored_roots(store.info)
    outside, missing = ((), []) if roots.is_whole else _read_outside(store, force=force)
    with store.read() as txn:
        problems = tuple(damage.reason for damage in iter_metadata_damage(txn))
        problems += tuple(missing)
        if problems and not force:
            raise MetadataCorrupt(
                f"the metadata was imported with {counted(len(problems), 'problem')}: {problems[0]}",
                hint=(
                    "a bookie that runs on metadata in which ledgers are missing deletes their entries; repair the "
                    "source and refresh, or write what is left with --force"
                ),
            )
        changes = tuple(exports.iter_changed_nodes(txn))
        exports.check_entries_are_there(txn, changes)
        own = find_own_ledgers(txn)
        next_id = max(largest_ledger_id(txn) + 1 + RESERVED_GAP, 0 if own is None else own.next_id)
        if next_id > _INT_MAX:
            raise Unsupported(
                f"ledger {next_id - 1 - RESERVED_GAP} is beyond the ids of {_IDGEN}, which are below 2^31: it is "
                f"unknown which ids of {_IDGEN}-long were assigned"
            )
        return SnapshotPlan(
            target,
            txn.id,
            newest_epoch(store.info.sources) + 1 << _EPOCH_BITS,
            sum(1 for _ in _iter_nodes(txn, roots, outside)),
            next_id,
            now_ms,
            changes,
            problems,
            roots,
            outside,
        )


def _read_outside(store: Store, *, force: bool) -> tuple[tuple[Node, ...], list[str]]:
    """Return the source's nodes outside of the cluster, and the problems of reading them."""
    problems: list[str] = []
    try:
        metadata = read_stored_layout(store.info).metadata
        assert metadata is not None
        # A snapshot replaces the whole tree, so it must include the nodes of others, or they lose them.
        rows = (row for row in metadata.whole_nodes(problems) if not isinstance(row, Damage | NextLedgerId))
        nodes = (row if isinstance(row, Node) else decode_node(*row) for row in rows)
        return tuple(node for node in nodes if metadata.roots.inner(node.path) is None), problems
    except (SourceNotFound, Refused, MetadataCorrupt) as error:
        if force:
            return (), [error.message]
        raise type(error)(
            f"the rest of the cluster's ZooKeeper cannot be read: {error.message}",
            hint="other systems in it would lose their nodes; restore the source, or write only this cluster with --force",
            **error.context,
        ) from error


def apply_snapshot_export(store: Store, plan: SnapshotPlan) -> SnapshotExportReport:
    """Write a snapshot into its new directory, completely or not at all; return the report. The store is only read."""
    with store.read() as txn, new_directory(plan.target) as unfinished:
        file = unfinished / plan.file
        create_directory(unfinished)
        create_directory(file.parent)
        children: Counter[str] = Counter()
        for path, _ in _iter_nodes(txn, plan.roots, plan.outside):
            if path:
                children[path.rpartition("/")[0]] += 1
        for node in plan.outside:  # sequential nodes of others continue after the existing ones
            parent, _, name = node.path.rpartition("/")
            if match := _SEQUENTIAL.fullmatch(name):
                children[parent] = max(children[parent], int(match[1]) + 1)
        children[plan.roots.outer(_IDGEN)] = plan.next_ledger_id
        with create_file(file) as out:
            for part in iter_snapshot(_snapshot_nodes(txn, children, plan), plan.zxid):
                out.write(part)
    return plan.report(dry_run=False)


def _snapshot_nodes(txn: Txn, children: Counter[str], plan: SnapshotPlan) -> Iterator[SnapshotNode]:
    now_ms, counters = plan.now_ms, plan.roots.outer(_COUNTERS) + "/"
    for path, node in _iter_nodes(txn, plan.roots, plan.outside):
        made = now_ms // 1000 if path.startswith(counters) else children[path]
        if node is None or path == _CONFIG:
            yield SnapshotNode(path, b"", 0, made, now_ms, now_ms, path == _CONFIG)
        else:
            yield SnapshotNode(path, node.value, node.stat.version, made, node.stat.created_ms, node.stat.modified_ms)


def _iter_nodes(txn: Txn, roots: Roots, outside: Sequence[Node]) -> Iterator[tuple[str, Node | None]]:
    """Yield every path in ZooKeeper, after its parent, with its node; None for a parent that the store lacks."""
    above = {*iter_upwards(roots.chroot), *iter_upwards(roots.ledgers if roots.is_apart else "")} - {roots.ledgers}
    around: dict[str, Node | None] = dict.fromkeys((*_ROOTS, *above) if roots.chroot else ("", *above))
    around |= {node.path: node for node in outside}
    yield from sorted(around.items())
    tree = _Tree(txn, ("", *(path[len(roots.chroot) :] for path in above if path.startswith(f"{roots.chroot}/"))))
    for path in (*(() if roots.chroot else _ROOTS[1:]), LEDGERS_ROOT, _IDGEN):
        yield from ((roots.outer(inner), node) for inner, node in tree.with_parents(path))
    for one in tree.nodes():
        yield from ((roots.outer(inner), node) for inner, node in tree.with_parents(one.path, one))


class _Tree:
    """Yields a store's nodes with every parent before its children, adding parents that the store lacks."""

    def __init__(self, txn: Txn, given: Iterable[str]) -> None:
        """``given``: paths that were already yielded."""
        self._txn = txn
        self._made = {*given}  # paths added for lack in the tree, or yielded before their turn
        self._parent = ""  # of the previous node: many siblings follow each other

    def nodes(self) -> Iterator[Node]:
        """Yield the nodes in path order, then those with long paths, whose keys do not contain the whole path."""
        long = []
        for key, row in self._txn.items("tree"):
            node = decode_node(key, row)
            if len(key) < len(node.path.encode()) or b"\xff" in key:
                long.append(node)
            else:
                yield node
        yield from sorted(long, key=lambda node: node.path.encode())

    def with_parents(self, path: str, node: Node | None = None) -> Iterator[tuple[str, Node | None]]:
        """Yield a node unless it was given, preceded by those of its parents that the tree lacks."""
        if path in self._made:
            return
        parent = path.rpartition("/")[0]
        if parent != self._parent:
            yield from self._absent(parent)
            self._parent = parent
        if node is None:
            self._made.add(path)
            node = find_node(self._txn, path) if path else None
        yield path, node

    def _absent(self, path: str) -> Iterator[tuple[str, Node | None]]:
        if path not in self._made and find_node(self._txn, path) is None:
            yield from self._absent(path.rpartition("/")[0])
            self._made.add(path)
            yield path, None
