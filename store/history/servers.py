"""Finds the files of a cluster's ZooKeeper servers: those of a store's sources, and others that the user names."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pulsar_admin.store.errors import MetadataCorrupt, Refused, SourceNotFound
from pulsar_admin.store.history.versions import Version, iter_versions
from pulsar_admin.store.sources.nodes import find_metadata, find_roots
from pulsar_admin.store.sources.roots import Wanted, roots_of_row
from pulsar_admin.store.sources.zookeeper import ServerFiles, is_zookeeper

_HINT = "name the dataDir of its ZooKeeper servers, if it has any, or a copy: --zookeeper DIR[,LOGDIR]"


def find_servers(
    sources: Iterable[Mapping[str, Any]], places: Iterable[str] = (), chroot: str | None = None
) -> tuple[ServerFiles, ...]:  # Any: JSON
    """Return the files of the ZooKeeper servers among a store's sources (``store.json``) and at ``places``, each
    ``dataDir[,dataLogDir]``.

    All servers must be of one ensemble. The cluster in their tree is the one at ``chroot``, else the store's, else the
    only one. Raises SourceNotFound for a place without such files, Refused if there are no files at all or several
    clusters.
    """
    named = [*map(parse_place, places)]
    stored = [source_files for source in sources if (source_files := _stored(source)) is not None]
    if not stored and not named:
        raise Refused(_why_none(sources), hint=_HINT)
    if chroot is not None or not stored:
        roots = find_roots(named or stored, Wanted(chroot), is_strict=chroot is not None)
    else:
        roots = stored[0].roots
    return tuple(dict.fromkeys(replace(server, roots=roots) for server in (*stored, *named)))


def parse_place(place: str) -> ServerFiles:
    """Return the files at ``dataDir[,dataLogDir]``, in either order; raises SourceNotFound."""
    paths = [Path(place)] if Path(place).exists() else [Path(part) for part in place.split(",")]
    directories = [_version_2(path) for path in paths[:2]]
    if len(paths) > 2:
        raise SourceNotFound(f"{place} names {len(paths)} directories", hint="name dataDir[,dataLogDir]", path=place)
    directories.sort(key=lambda path: not any(path.glob("snapshot.*")))
    return ServerFiles(directories[0].resolve(), directories[-1].resolve())


def _version_2(path: Path) -> Path:
    for directory in (path / "zookeeper/version-2", path / "zookeeper", path / "version-2", path):
        if directory.is_dir() and is_zookeeper(directory):
            return directory
    raise SourceNotFound(
        f"{path} holds neither a ZooKeeper log nor a snapshot: expected log.* or snapshot.* in it or in version-2",
        hint="name ZooKeeper's dataDir[,dataLogDir]",
        path=str(path),
    )


def iter_logged(sources: Iterable[Mapping[str, Any]], wanted: Callable[[str], bool]) -> Iterator[Version]:  # Any: JSON
    """Yield the versions of wanted nodes in the ZooKeeper files of a store's sources; ends without an error if there
    are no such files, or where one cannot be read."""
    with suppress(Refused, SourceNotFound, MetadataCorrupt, OSError):
        for item in iter_versions(find_servers(sources), wanted):
            if isinstance(item, Version):
                yield item


def _stored(source: Mapping[str, Any]) -> ServerFiles | None:  # Any: JSON
    if source["kind"] == "zookeeper":
        path = Path(source["path"])
        server = ServerFiles(path, Path(source.get("logs", path)), roots_of_row(source))
        return server if is_zookeeper(server.snapshots) or is_zookeeper(server.logs) else None
    if source["kind"] == "standalone":
        metadata = find_metadata(Path(source["path"]))
        if metadata is not None and is_zookeeper(metadata):
            return ServerFiles(metadata, metadata, roots_of_row(source))
    return None


def iter_gone_texts(sources: Iterable[Mapping[str, Any]]) -> Iterator[str]:  # Any: JSON
    """Yield a sentence on each source whose metadata was in files that are gone, or cannot be read."""
    for source in sources:
        if (source["kind"] == "zookeeper" and _stored(source) is None) or (
            source["kind"] == "standalone" and find_metadata(Path(source["path"])) is None
        ):
            yield f"{source['path']} no longer has metadata, or cannot be read: the history was in its files"


def _why_none(sources: Iterable[Mapping[str, Any]]) -> str:  # Any: JSON
    for source in sources:
        if source["kind"] == "ensemble":
            return f"the metadata came from the live ensemble {source['path']}: its history is in its servers' files"
        for text in iter_gone_texts([source]):
            return text
        if source["kind"] in ("rocksdb", "standalone"):
            return f"the metadata of {source['path']} is in RocksDB, which keeps no history, neither who wrote nor when"
    return "no ZooKeeper files are known: history is in its snapshots and transaction logs"
