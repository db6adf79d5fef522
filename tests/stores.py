"""Golden worlds imported once per machine and code version; tests read them and copy what they change."""

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.environment import Store, Txn, open_store
from pulsar_admin.store.db.ledger_ids import put_next_ledger_id
from pulsar_admin.store.db.own_ledgers import largest_ledger_id
from pulsar_admin.store.db.tree import Node, iter_nodes, put_nodes, read_node, row_of
from pulsar_admin.store.disks.clone import CloneRequest, apply_clone, plan_clone
from pulsar_admin.store.history.as_of import Moment, read_tree_at
from pulsar_admin.store.history.servers import parse_place
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.references import index_owners
from pulsar_admin.store.names import parse_topic
from pulsar_admin.store.sources.cluster import make_layout, open_metadata
from pulsar_admin.store.sources.given_bookies import parse_bookie
from pulsar_admin.store.sources.layout import read_standalone_layout
from pulsar_admin.store.sources.rocksdb import apply_changes, lock_database, open_for_reading
from pulsar_admin.store.transfer.imports import ImportOptions, ImportResult, Warn, import_layout
from tests.fake_zookeeper import Znode
from tests.worlds import world

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent
NOW_MS = 1_795_260_000_000
KEPT_SECONDS = 3600


@lru_cache(maxsize=1)
def _code_digest() -> str:
    digest = hashlib.sha256()
    for file in sorted((ROOT / "store").rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def import_standalone(
    root: Path, path: Path, options: ImportOptions, advance: Callable[[int], None], warn: Warn = lambda text: None
) -> ImportResult:
    """Import the standalone directory ROOT into a new store at PATH, or finish an import that was stopped there."""
    return import_layout(read_standalone_layout(root), path, options, advance, warn)


@lru_cache
def imported(name: str, state: str) -> Path:
    """Return the store of world NAME in STATE (clean, mutated, crashed); several processes may ask at once."""
    source = world(name) / state
    return _made(
        f"{source.parent.name}-{state}",
        lambda path: import_standalone(source, path, ImportOptions(now_ms=NOW_MS), lambda _: None),
    )


@lru_cache
def narrow() -> Path:
    """Return the store of a clone of two topics of the small world, ``public/default/plain`` and ``json``: a fifth of its rows."""

    def make(path: Path) -> None:
        source = path.with_suffix(".source")
        if source.exists():
            shutil.rmtree(source)
        topics = (parse_topic("public/default/plain"), parse_topic("public/default/json"))
        with open_store(imported("small", "clean")) as store:
            apply_clone(store, plan_clone(store, CloneRequest(source, topics=topics)), NOW_MS)
        import_standalone(source, path, ImportOptions(now_ms=NOW_MS), lambda _: None)

    return _made("narrow", make)


@lru_cache
def lived() -> Path:
    """Return the store of the cluster that has lived: its ZooKeeper, and the three bookies that stayed."""
    return imported_cluster("lived")


@lru_cache
def imported_cluster(name: str) -> Path:
    """Return the store of a world that is a ZooKeeper and bookies: its state ``clean``."""
    clean = world(name) / "clean"
    return _made(
        world(name).name,
        lambda path: import_layout(
            make_layout(
                open_metadata(str(clean / "zookeeper")),
                [parse_bookie(lived_bookie(folder)) for folder in sorted(clean.glob("bookie*"))],
            ),
            path,
            ImportOptions(now_ms=NOW_MS),
            lambda _: None,
        ),
    )


def lived_bookie(folder: Path) -> str:
    """Return the words for ``--bookie`` that give what is in a bookie's folder: disks whose names say nothing."""
    return ",".join(str(current.parent) for current in sorted(folder.rglob("current")))


def _made(name: str, make: Callable[[Path], object]) -> Path:
    """Return the store NAME of this machine and code, which MAKE writes at a path when there is none."""
    stores = ROOT / ".cache" / "stores"
    stores.mkdir(parents=True, exist_ok=True)
    target = stores / f"{name}-{_code_digest()}"
    with open(stores / f"{name}.lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            for old in stores.glob(f"{name}-*"):
                # Not at once: a test run that began before a change of the package still reads its own.
                if time.time() - old.stat().st_mtime > KEPT_SECONDS:
                    shutil.rmtree(old, ignore_errors=True)
            making = target.with_suffix(f".{os.getpid()}")
            make(making)
            making.rename(target)
    return target


def copied(name: str, state: str, tmp_path: Path) -> Path:
    """Return a copy of a store for a test that changes it."""
    return Path(shutil.copytree(imported(name, state), tmp_path / "pulsar-store"))


def narrow_copy(tmp_path: Path) -> Path:
    """Return a copy of the narrow store for a test that changes it."""
    return Path(shutil.copytree(narrow(), tmp_path / "pulsar-store"))


def read_rows(path: Path, work: Callable[[Txn], T]) -> T:
    """Return what WORK makes of a read transaction of the store at PATH."""
    with open_store(path) as store, store.read() as txn:
        return work(txn)


def read_store(path: Path, work: Callable[[EntryReader], T]) -> T:
    """Return what WORK makes of a reader of the store at PATH."""
    with open_store(path) as store, open_reader(store) as reader:
        return work(reader)


def values_of(path: Path) -> dict[str, bytes]:
    """Return the value of every metadata node of the store at PATH."""
    return read_rows(path, lambda txn: {node.path: node.value for node in iter_nodes(txn, "/")})


def in_store(path: Path, work: Callable[[Store], T]) -> T:
    """Return what WORK makes of the store at PATH, which it may change."""
    with open_store(path, writable=True) as store:
        return work(store)


def write_rows(path: Path, work: Callable[[Txn], object]) -> None:
    """Run WORK in a write transaction of the store at PATH."""
    in_store(path, lambda store: store.write(work))


def put_node(path: Path, where: str, value: bytes) -> None:
    """Write a metadata node into the store at PATH."""
    node = Node(where, NodeStat(0, 1, 1_700_000_000_000, 1_700_000_000_000, False), value)
    write_rows(path, lambda txn: put_nodes(txn, [node]))


def change_value(path: Path, where: str, make: Callable[[bytes], bytes]) -> None:
    """Put what MAKE makes of a node's value in its place, as if the source had it so: who owns which ledger is found again."""

    def work(txn: Txn) -> None:
        node = read_node(txn, where)
        put_nodes(txn, [node._replace(value=make(node.value))])
        index_owners(store, txn)

    with open_store(path, writable=True) as store:
        store.write(work)


def lose_nodes(path: Path, *prefixes: str) -> int:
    """Take the metadata nodes below PREFIXES out of a store, as if its source never had them; return how many."""

    def work(txn: Txn) -> int:
        keys = [key for prefix in prefixes for key in txn.keys("tree", prefix.encode())]
        for key in keys:
            txn.delete("tree", key)
        index_owners(store, txn)
        return len(keys)

    with open_store(path, writable=True) as store:
        return store.write(work)


def rocksdb_rows(directory: Path) -> dict[bytes, bytes]:
    """Return every row of the RocksDB of DIRECTORY."""
    with open_for_reading(directory) as pairs:
        return dict(pairs)


def apply_values(directory: Path, changes: Mapping[bytes, bytes | None]) -> None:
    """Write CHANGES (None deletes) into the RocksDB of DIRECTORY, under its lock."""
    rows = sorted(changes.items())
    with lock_database(directory):
        apply_changes(directory, lambda: rows)


def put_back(path: Path, zookeeper: Path, zxid: int) -> None:
    """Give the store at PATH the metadata that ZOOKEEPER's files had as of transaction ZXID, as an import of a backup of then would."""
    tree = read_tree_at([parse_place(str(zookeeper))], Moment(zxid=zxid), [])
    rows = [
        row_of(Node(node.path, NodeStat(node.version, 0, node.created_ms, node.modified_ms, False), node.data))
        for node in tree.persistent()
        if not node.path.startswith("/zookeeper")
    ]

    def work(txn: Txn) -> None:
        txn.clear("tree")
        txn.clear("base")
        txn.put_all("tree", rows)
        put_next_ledger_id(txn, tree.ledger_ids.next_id("/ledgers", whole=True))
        index_owners(store, txn)

    with open_store(path, writable=True) as store:
        store.write(work)


def nodes_of(store: Path) -> dict[str, Znode]:
    """The store's tree as an ensemble has it, with the parents."""
    with open_store(store) as opened, opened.read() as txn:
        nodes = list(iter_nodes(txn, "/"))
        next_id = largest_ledger_id(txn) + 1
    found = {"/": Znode(b"")}
    for node in nodes:
        parts = node.path.split("/")
        for end in range(2, len(parts)):
            found.setdefault("/".join(parts[:end]), Znode(b""))
        stat = node.stat
        found[node.path] = Znode(node.value, stat.version, 0, stat.created_ms, stat.modified_ms)
    found["/ledgers/idgen"] = Znode(b"", children_made=next_id)
    return found
