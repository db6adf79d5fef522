"""The parts of a production cluster: metadata here, bookies there; as an operator names them, and as ``store.json`` keeps them."""

from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pulsar_admin.store.db.bookies import Bookie, decode_bookie, iter_imported_bookies, merge_bookies, read_renamed
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.storeinfo import REMOTE, StoreInfo
from pulsar_admin.store.db.tree import Node
from pulsar_admin.store.errors import Refused, SourceNotFound
from pulsar_admin.store.sources.bookies import Stranger
from pulsar_admin.store.sources.given_bookies import GivenBookie, check_apart, find_bookie, instance_of, join_bookies
from pulsar_admin.store.sources.layout import Layout, read_standalone_layout
from pulsar_admin.store.sources.nodes import RESTORE_IT, MetadataDirectory, Source, find_metadata
from pulsar_admin.store.sources.rocksdb import is_rocksdb
from pulsar_admin.store.sources.roots import ANY, Wanted, roots_of_row


def make_layout(metadata: Source | None, given: Iterable[GivenBookie], txn: Txn | None = None) -> Layout:
    """Return the layout of the given metadata and bookies, of those renamed in the store of ``txn`` under their ids at import.

    Raises as ``find_bookie`` and ``check_apart``.
    """
    renamed = None if txn is None else read_renamed(txn)
    bookies = tuple(find_bookie(one, renamed) for one in given)
    check_apart(bookies)
    return Layout(_name(metadata, bookies), metadata, bookies)


def _name(metadata: Source | None, bookies: Iterable[Bookie]) -> str:
    parts = [] if metadata is None else [metadata.name]
    return ", ".join([*parts, *(f"bookie {bookie.name}" for bookie in bookies)])


def open_metadata(
    place: str, client: Path | None = None, wanted: Wanted = ANY, bookies: Iterable[GivenBookie] = ()
) -> Source:
    """Return the metadata store at a place; raises SourceNotFound, and Refused if ZooKeeper has several clusters.

    ``place``: a directory, ZooKeeper's dataDir and dataLogDir separated by a comma, or the address of an ensemble
    (``client``: how to log in). ``wanted``: which cluster of a ZooKeeper, if the configurations of ``bookies`` do not name it.
    """
    wanted = replace(wanted, hints=(*dict.fromkeys(one.metadata_root for one in bookies if one.metadata_root),))
    path = Path(place)
    parts = [path] if path.exists() else [Path(part) for part in place.split(",")]
    if len(parts) <= 2 and all(part.is_dir() for part in parts):
        directories = [_metadata_in(part) for part in parts]
        # The one with snapshots is dataDir, whichever was named first.
        directories.sort(key=lambda directory: not any(directory.glob("snapshot.*")))
        return MetadataDirectory(directories[0], directories[1] if len(directories) > 1 else None).rooted(wanted)
    from pulsar_admin.store.sources.ensemble import LiveEnsemble, is_address, parse_address, read_client

    if path.exists() or not is_address(place):
        raise SourceNotFound(
            f"{place} is neither a directory nor HOST:PORT of a ZooKeeper",
            hint="name ZooKeeper's dataDir, or HOST:PORT[,HOST:PORT][/CHROOT]",
            path=place,
        )
    return LiveEnsemble(parse_address(place), read_client(client), client, wanted)


def read_stored_layout(info: StoreInfo, added: Iterable[Mapping[str, Any]] = ()) -> Layout:  # Any: JSON
    """Return a store's sources as they are now, with the added ones; raises Refused for a store without sources, SourceNotFound."""
    metadata: Source | None = None
    bookies: list[Bookie] = []
    roots: list[Path] = []
    for source in chain(info.sources, added):
        if source["kind"] == "standalone":
            directory = Path(source["path"])
            if not directory.is_dir():
                raise SourceNotFound(f"{directory} is gone", hint=RESTORE_IT, path=str(directory))
            layout = read_standalone_layout(directory)
            metadata, roots = layout.metadata, [directory]
            if isinstance(metadata, MetadataDirectory):
                metadata = replace(metadata, roots=roots_of_row(source))
            if "asOf" in source:
                metadata = replace(with_history(metadata), as_of_zxid=source["asOf"])
            bookies += layout.bookies
        elif "bookies" in source:
            bookies += map(decode_bookie, source["bookies"])
        else:
            metadata = _stored_metadata(source)
    if metadata is None and not bookies:
        raise Refused(
            "the store was not imported from a directory",
            hint="import one: pulsar-admin store import standalone DIR; or add a bookie: pulsar-admin store add bookie ID=DIR",
        )
    for bookie in bookies:
        for path in bookie.directories:
            if not path.is_dir():
                raise SourceNotFound(
                    f"{path} of bookie {bookie.name} is gone",
                    hint="the store was moved: run pulsar-admin store refresh"
                    if path.parent.parent.name == REMOTE
                    else f"{RESTORE_IT}. If the disk is lost for good, "
                    "create an empty directory there, then run: pulsar-admin store refresh --forget",
                    path=str(path),
                )
    root = roots[0] if roots else None
    name = str(root) if root is not None and len(info.sources) == 1 else _name(metadata, merge_bookies(bookies))
    return Layout(name, metadata, merge_bookies(bookies) if root is None else tuple(bookies), root)


def without_known(info: StoreInfo, layout: Layout) -> Layout:
    """Return a layout without directories that the store already has for the same bookie; a bookie without new ones stays complete."""
    known = {
        (bookie.bookie_id, path.resolve())
        for bookie in iter_imported_bookies(info, whole=True)
        for path in bookie.directories
    }

    def new(bookie: Bookie, paths: Iterable[Path]) -> tuple[Path, ...]:
        return tuple(path for path in paths if (bookie.bookie_id, path.resolve()) not in known)

    rest = (
        Bookie(one.bookie_id, new(one, one.ledger_dirs), new(one, one.journal_dirs), new(one, one.index_dirs))
        for one in layout.bookies
    )
    bookies = tuple(new_one if new_one.directories else one for one, new_one in zip(layout.bookies, rest, strict=True))
    return Layout(layout.name, layout.metadata, bookies, layout.root)


def _stored_metadata(source: Mapping[str, Any]) -> Source:  # Any: JSON
    if source["kind"] == "ensemble":
        from pulsar_admin.store.sources.ensemble import LiveEnsemble, parse_address, read_client

        client = Path(source["client"]) if "client" in source else None
        roots = roots_of_row(source)
        wanted = Wanted(roots.chroot or None, roots.ledgers if roots.is_apart else None)
        return LiveEnsemble(parse_address(source["path"]), read_client(client), client, wanted)
    logs = Path(source["logs"]) if "logs" in source else None
    return MetadataDirectory(Path(source["path"]), logs, source.get("asOf"), roots_of_row(source))


def with_history(metadata: Source | None) -> MetadataDirectory:
    """Return metadata that is in ZooKeeper's files; raises Refused for a kind that keeps no history."""
    if isinstance(metadata, MetadataDirectory) and not is_rocksdb(metadata.path):
        return metadata
    name = "no metadata" if metadata is None else metadata.name
    raise Refused(
        f"{name}: earlier metadata is in the snapshots and transaction logs of ZooKeeper alone",
        hint="name the dataDir of one of its servers; RocksDB keeps no history, and a running ensemble answers only "
        "with its current state",
    )


def _metadata_in(path: Path) -> Path:
    metadata = path if is_rocksdb(path) else find_metadata(path)
    if metadata is None:
        raise SourceNotFound(
            f"{path} is not a metadata store: expected ZooKeeper's version-2 with snapshot.* or log.*, or RocksDB's CURRENT",
            hint="name ZooKeeper's dataDir, or HOST:PORT of a running one",
            path=str(path),
        )
    return metadata


def _places(bookie: Bookie) -> set[Path]:
    return {path.resolve() for path in bookie.directories}


def check_addable(info: StoreInfo, layout: Layout) -> None:
    """Raise Refused if parts of a layout cannot be added to a store: they are already in it, or belong to another cluster."""
    there = read_stored_layout(info) if info.sources else Layout("", None, ())
    if layout.metadata is not None and there.metadata is not None:
        raise Refused(
            f"the store has the metadata of {there.metadata.name}",
            hint="update it: pulsar-admin store refresh; import other metadata into its own store",
        )
    others = {bookie.name: bookie for bookie in there.bookies}
    bookies = dict(others)
    for bookie in layout.bookies:
        other = others.get(bookie.name)
        if other is not None and (there.root is not None or _places(bookie) <= _places(other)):
            raise Refused(
                f"the store has bookie {other.name} from {', '.join(map(str, other.directories))}",
                hint="update it: pulsar-admin store refresh",
                bookie=bookie.bookie_id,
            )
        bookies[bookie.name] = bookie if other is None else join_bookies(other, bookie)
    check_apart([*bookies.values()])


def check_instance(layout: Layout, nodes: Iterable[Node]) -> None:
    """Raise Refused if the metadata's instance id belongs to another cluster than the bookies."""
    for node in nodes:
        instance_id = node.value.decode("utf-8", "replace").strip()
        for bookie in layout.bookies:
            if instance_of(bookie) not in ("", instance_id):
                raise Refused(
                    f"bookie {bookie.name} ({bookie.directories[0]}) belongs to another cluster: its instance id is {instance_of(bookie)},"
                    f" the metadata's {instance_id}",
                    hint="import it into a store of its own",
                    bookie=bookie.bookie_id,
                )


def check_known(strangers: Iterable[Stranger], added: Iterable[Mapping[str, Any]]) -> None:  # Any: JSON
    """Raise Refused if an added bookie is foreign: it would stay a source forever, and nothing of it would be read."""
    ids = {decode_bookie(row).bookie_id for source in added for row in source.get("bookies", ())}
    for stranger in strangers:
        if stranger.is_foreign and stranger.bookie.bookie_id in ids:
            raise Refused(
                stranger.reason,
                hint="add the disks of this cluster's bookies: pulsar-admin store ls /ledgers/cookies",
                bookie=stranger.bookie.bookie_id,
            )
