"""The parts of a cluster that a forecast is made on: given ones, or those of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.ledgermetadata import LEDGERS_ROOT
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.bookies import Bookie
from pulsar_admin.store.db.environment import Store, Txn, create_store, open_store
from pulsar_admin.store.db.files import Damage, iter_metadata_damage
from pulsar_admin.store.db.next_ledger_id import NextLedgerId, find_given_meanwhile, find_next_ledger_id
from pulsar_admin.store.db.tree import Node, decode_node, iter_values, put_nodes
from pulsar_admin.store.errors import LimitExceeded, MetadataCorrupt, Refused, SourceNotFound
from pulsar_admin.store.recovery.metadata_index import Known, no_metadata, read_known
from pulsar_admin.store.sources.cluster import read_stored_layout
from pulsar_admin.store.sources.given import GivenBookie, check_apart, find_bookie
from pulsar_admin.store.sources.nodes import MetadataDirectory, Source
from pulsar_admin.store.sources.rocksdb import is_rocksdb
from pulsar_admin.store.sources.rocksopen import database_directory
from pulsar_admin.store.sources.zookeeper_stream import ZooKeeperStream

_LOST_AND_FOUND = "lost+found"
_BATCH = 50_000
_DAMAGED = (MetadataCorrupt, LimitExceeded)
"""What the newest snapshot raises while it is streamed; then older ones and the logs are read, too, which takes more memory."""
_NO_STAT = NodeStat(0, 0, 0, 0, False)


class Parts(Struct, frozen=True):
    """What the metadata says and the bookies that would start on it; ``source``: where the metadata is, None for a store's or none.

    ``blank``: how many bookies have nothing yet."""

    known: Known
    bookies: tuple[Bookie, ...]
    source: Source | None = None
    blank: int = 0


def read_parts(metadata: Source | None, given: Iterable[GivenBookie]) -> Parts:
    """Return METADATA (None: an empty one) and the bookies GIVEN; raises what ``find_bookie`` and ``check_apart`` raise.

    A bookie whose directories are empty has nothing to lose: it starts for the first time. Raises SourceNotFound when the metadata knows
    it already.
    """
    bookies, blank = [], []
    for one in given:
        if _is_blank(one):
            blank.append(one)
        else:
            bookies.append(find_bookie(one))
    check_apart(bookies)
    ids = [bookie.bookie_id for bookie in bookies]
    known = no_metadata() if metadata is None else read_source(metadata, ids)
    for one in blank:
        bookie_id = one.bookie_id or one.fallback_id
        if bookie_id in known.cookies:
            raise SourceNotFound(
                f"{one.where}: the metadata knows bookie {bookie_id}, and its directories are empty or not there",
                hint="are its disks mounted? A bookie that lost them is replaced: bookkeeper shell decommissionbookie",
                bookie=bookie_id,
            )
    return Parts(known, tuple(bookies), metadata, len(blank))


def _is_blank(given: GivenBookie) -> bool:
    """Whether nothing was ever written to the directories of GIVEN; those that a configuration names need not be there."""
    paths = (*given.ledger_dirs, *given.journal_dirs, *given.index_dirs)
    if not paths and not all(path.is_dir() for path in given.directories):
        return False
    return not any(_written(path) or _written(path / "current") for path in (*paths, *given.directories))


def _written(path: Path) -> bool:
    names = {entry.name for entry in path.iterdir()} if path.is_dir() else set[str]()
    return bool(names - {_LOST_AND_FOUND, "current"})


def read_source(metadata: Source, bookies: Sequence[str] = ()) -> Known:
    """Return what METADATA says of ledgers and of BOOKIES; raises StoreErrors of its kind, and Unsupported for an unknown layout."""
    problems: list[str] = []
    stream = _zookeeper_of(metadata, problems)
    if stream is not None:
        with suppress(*_DAMAGED):
            known = read_known(metadata.name, stream.nodes(), bookies=bookies)
            return replace(known, next_id=stream.next_ledger_id, problems=tuple(problems))
        problems.clear()
    next_ids: list[int] = []
    known = read_known(metadata.name, _iter_values(metadata, problems, next_ids.append), bookies=bookies)
    return replace(known, next_id=next_ids[-1] if next_ids else None, problems=tuple(problems))


@contextmanager
def open_metadata_alone(metadata: Source, now_ms: int) -> Iterator[Store]:
    """Hand out a store, which is gone afterwards, that has METADATA without the ledgers' own."""
    with database_directory() as scratch:
        path = scratch / "streamed"
        try:
            stream = _zookeeper_of(metadata, [])
            _make_store(path, _iter_values(metadata, []) if stream is None else stream.nodes(), now_ms)
        except _DAMAGED:
            path = scratch / "read"
            _make_store(path, _iter_values(metadata, []), now_ms)
        with open_store(path, writable=True) as store:
            yield store


def _make_store(path: Path, values: Iterable[tuple[str, bytes]], now_ms: int) -> None:
    nodes = (Node(place, _NO_STAT, value) for place, value in values if not place.startswith(f"{LEDGERS_ROOT}/"))
    create_store(path, now_ms=now_ms)
    with open_store(path, writable=True) as store:
        while batch := [*islice(nodes, _BATCH)]:
            store.write(lambda txn, batch=batch: put_nodes(txn, batch))  # type: ignore[misc]  # binds this one


def _zookeeper_of(metadata: Source, problems: list[str]) -> ZooKeeperStream | None:
    """Return METADATA as ZooKeeper's files, None when it is something else."""
    if not isinstance(metadata, MetadataDirectory) or is_rocksdb(metadata.path):
        return None
    return ZooKeeperStream(metadata.server, problems)


def _iter_values(
    metadata: Source, problems: list[str], tell_next_id: Callable[[int], None] = lambda next_id: None
) -> Iterator[tuple[str, bytes]]:
    for item in metadata.nodes(problems):
        if isinstance(item, NextLedgerId):
            tell_next_id(item.value)
        elif isinstance(item, Damage):
            problems.append(item.reason)
        elif isinstance(item, Node):
            yield item.path, item.value
        else:
            path, _, value = decode_node(*item)
            yield path, value


def read_store_parts(store: Store, txn: Txn, *, empty: bool = False) -> Parts:
    """Return the metadata of STORE as it is now, changes included, and the bookies that it was imported from; raises SourceNotFound.

    EMPTY: an empty metadata store in the place of it.
    """
    layout = read_stored_layout(store.info)
    if not layout.bookies:
        raise Refused("the store has no bookies", hint="add them: pulsar-admin store add bookie DIR,DIR")
    if empty:
        return Parts(no_metadata(), layout.bookies)
    problems = [damage.reason for damage in iter_metadata_damage(txn)]
    ids = [bookie.bookie_id for bookie in layout.bookies]
    meanwhile = find_given_meanwhile(txn)  # their nodes are newer than the tree that was read
    next_id = meanwhile.stop if meanwhile else find_next_ledger_id(txn)
    known = read_known(f"the store {store.path}", iter_values(txn, "/"), next_id, problems, ids)
    return Parts(known, layout.bookies)
