"""``store export zookeeper-snapshot``: the store's metadata as a ZooKeeper's ``version-2`` directory, on which a server starts.

The tree as it is now, every node with its version and times, whatever it was imported from; parents that RocksDB does not keep are made.
Ephemeral nodes, sessions and ACLs are in no store. Sequential nodes go on above what may have been given out: ``/ledgers/idgen``
(``LedgerIdGenerator``) above every ledger, ``/counters`` (``DistributedIdGenerator``, Pulsar 4.0.8) at the seconds of now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from store.codec.ledgermetadata import LEDGERS_ROOT
from store.codec.zookeeper import SnapshotNode, iter_snapshot
from store.db.environment import Store, Txn
from store.db.files import METADATA_FILE_ID, iter_damage
from store.db.own_ledgers import RESERVED_GAP, find_own_ledgers, largest_ledger_id
from store.db.tree import Node, decode_node, find_node
from store.errors import AlreadyExists, MetadataCorrupt, Unsupported
from store.files import create_directory, create_file, new_directory
from store.frozen import frozen
from store.sources.zookeeper import newest_epoch
from store.transfer.exports import ChangedNode, Previewed, check_entries_are_there, iter_changed_nodes
from store.wording import counted

_IDGEN = f"{LEDGERS_ROOT}/idgen"
_COUNTERS = "/counters"
_ROOTS = ("", "/zookeeper", "/zookeeper/config", "/zookeeper/quota")  # what ``DataTree`` makes itself
_CONFIG = "/zookeeper/config"  # of the ensemble that was: a server writes its own
_INT_MAX = 2**31 - 1
_EPOCH_BITS = 32


@frozen
class SnapshotPlan(Previewed):
    """What an export into TARGET would write: the tree as of the store's transaction ``txn_id``."""

    target: Path
    txn_id: int
    zxid: int
    nodes: int
    next_ledger_id: int
    now_ms: int
    changes: tuple[ChangedNode, ...]
    problems: tuple[str, ...]
    loses: str = ""

    @property
    def file(self) -> Path:
        return Path("version-2", f"snapshot.{self.zxid:x}")

    def report(self, *, dry_run: bool) -> dict[str, Any]:  # Any: JSON
        return {
            "target": str(self.target),
            "file": str(self.file),
            "zxid": f"{self.zxid:#x}",
            "nodes": self.nodes,
            "nextLedgerId": self.next_ledger_id,
            "changes": [{"path": node.path, "action": node.action} for node in self.changes],
            "problems": list(self.problems),
            "dryRun": dry_run,
        }


def plan_snapshot_export(store: Store, target: Path, now_ms: int, *, force: bool = False) -> SnapshotPlan:
    """Plan a snapshot in the new directory TARGET; raises AlreadyExists, Refused, Unsupported, MetadataCorrupt.

    The last one unless FORCE where nodes could not be imported: bookies delete the ledgers that the metadata does not list.
    """
    if target.exists() or target.is_symlink():
        raise AlreadyExists(f"{target} exists", hint="name a new directory: a server's dataDir", path=str(target))
    with store.read() as txn:
        problems = tuple(damage.reason for damage in iter_damage(txn, METADATA_FILE_ID))
        if problems and not force:
            raise MetadataCorrupt(
                f"the metadata was imported with {counted(len(problems), 'problem')}: {problems[0]}",
                hint="a bookie that runs on metadata in which ledgers are missing deletes their entries; repair the source and"
                " refresh, or write what there is with --force",
            )
        changes = tuple(iter_changed_nodes(txn))
        check_entries_are_there(txn, changes)
        return SnapshotPlan(
            target,
            txn.id,
            newest_epoch(store.info.sources) + 1 << _EPOCH_BITS,
            sum(1 for _ in _iter_nodes(txn)),
            _next_ledger_id(txn),
            now_ms,
            changes,
            problems,
        )


def _next_ledger_id(txn: Txn) -> int:
    own = find_own_ledgers(txn)
    found = max(largest_ledger_id(txn) + 1 + RESERVED_GAP, 0 if own is None else own.next_id)
    if found > _INT_MAX:
        raise Unsupported(
            f"ledger {found - 1 - RESERVED_GAP} is beyond the ids of {_IDGEN}, which are below 2^31: how far those of"
            f" {_IDGEN}-long were given is not known"
        )
    return found


def apply_snapshot_export(store: Store, plan: SnapshotPlan) -> dict[str, Any]:  # Any: JSON
    """Write PLAN into its new directory, whole or not at all; return the report. The store is only read."""
    with store.read() as txn, new_directory(plan.target) as unfinished:
        file = unfinished / plan.file
        create_directory(unfinished)
        create_directory(file.parent)
        children = _count_children(txn)
        children[_IDGEN] = plan.next_ledger_id
        with create_file(file) as out:
            for part in iter_snapshot(_snapshot_nodes(txn, children, plan.now_ms), plan.zxid):
                out.write(part)
    return plan.report(dry_run=False)


def _snapshot_nodes(txn: Txn, children: Counter[str], now_ms: int) -> Iterator[SnapshotNode]:
    for path, node in _iter_nodes(txn):
        made = now_ms // 1000 if path.startswith(_COUNTERS + "/") else children[path]
        if node is None or path == _CONFIG:
            yield SnapshotNode(path, b"", 0, made, now_ms, now_ms, path == _CONFIG)
        else:
            yield SnapshotNode(path, node.value, node.stat.version, made, node.stat.created_ms, node.stat.modified_ms)


def _count_children(txn: Txn) -> Counter[str]:
    found: Counter[str] = Counter()
    for path, _ in _iter_nodes(txn):
        if path:
            found[path.rpartition("/")[0]] += 1
    return found


def _iter_nodes(txn: Txn) -> Iterator[tuple[str, Node | None]]:
    """Yield every path behind its parent, and its node; None: there is none, and ZooKeeper needs one."""
    tree = _Tree(txn)
    for path in (*_ROOTS, LEDGERS_ROOT, _IDGEN):
        yield from tree.with_parents(path)
    for node in tree.nodes():
        yield from tree.with_parents(node.path, node)


class _Tree:
    """The nodes of a store in an order in which parents are first, and which parents were made."""

    def __init__(self, txn: Txn) -> None:
        self._txn = txn
        self._made: set[str] = set()  # that are not in the tree, or were given before their turn
        self._parent = ""  # of the node before: many have the same

    def nodes(self) -> Iterator[Node]:
        """Yield the nodes of the tree in path order; keys of long paths have none, and come last."""
        long = []
        for key, row in self._txn.items("tree"):
            node = decode_node(key, row)
            if len(key) < len(node.path.encode()) or b"\xff" in key:
                long.append(node)
            else:
                yield node
        yield from sorted(long, key=lambda node: node.path.encode())

    def with_parents(self, path: str, node: Node | None = None) -> Iterator[tuple[str, Node | None]]:
        """Yield NODE at PATH unless it was given, before it those of its parents that the tree has not."""
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
