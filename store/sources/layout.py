"""Where the parts of a cluster are: its metadata store and the disks of its bookies; finding them below a standalone directory."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from pulsar_admin.store.db.bookies import Bookie
from pulsar_admin.store.errors import SourceNotFound
from pulsar_admin.store.sources.bookies import group_directories, read_bookie_directory
from pulsar_admin.store.sources.nodes import MetadataDirectory, Source, find_metadata
from pulsar_admin.store.sources.rocksdb import is_rocksdb
from pulsar_admin.store.sources.roots import Wanted
from pulsar_admin.store.sources.suggest import suggest_import


class Layout(Struct, frozen=True):
    """The parts of a source. ``name``: its name in messages; ``metadata`` None: bookies only; ``root``: the directory
    that holds everything."""

    name: str
    metadata: Source | None
    bookies: tuple[Bookie, ...]
    root: Path | None = None

    @property
    def directories(self) -> tuple[Path, ...]:
        """The directories that are read."""
        root = () if self.root is None else (self.root,)
        metadata = self.metadata.directories if isinstance(self.metadata, MetadataDirectory) else ()
        return (*root, *metadata, *(path for bookie in self.bookies for path in bookie.directories))


class StandaloneDirectory(Struct, frozen=True):
    """The data directory ``root`` of a standalone Pulsar: its metadata store and the ``current`` directories of its bookies."""

    root: Path
    metadata: Path
    currents: tuple[Path, ...]


def _nearest_hint(root: Path) -> str:
    """Return a hint naming a data directory below ``root``, "" if there is none."""
    inside = [below.name for below in sorted(root.iterdir()) if is_rocksdb(below / "metadata")]
    if inside:
        return f"name one of the directories in it that are: {', '.join(inside[:3])}"
    return "name the directory given to `pulsar standalone` (by default PULSAR/data/standalone or PULSAR/data)"


def _cluster_hint(root: Path) -> str:
    """Return the command line that imports the parts of a cluster below ``root``, "" if there are none."""
    words = suggest_import(root)
    return f"for the disks of a cluster's bookies: {words}" if words else ""


def read_standalone_layout(root: Path, wanted: Wanted | None = None) -> Layout:
    """Return metadata and bookies below ``root``; raises SourceNotFound naming the missing part.

    ``wanted``: the cluster whose metadata is meant, see ``MetadataDirectory.rooted``.
    """
    found = find_standalone(root)
    metadata = MetadataDirectory(found.metadata)
    bookies = group_directories(found.currents)
    return Layout(str(root), metadata if wanted is None else metadata.rooted(wanted), bookies, root)


def find_standalone(root: Path) -> StandaloneDirectory:
    """Return the directories below ``root``; raises SourceNotFound naming the missing one."""
    if not root.is_dir():
        raise SourceNotFound(f"{root} is not a directory", hint="name Pulsar's data directory", path=str(root))
    metadata = find_metadata(root)
    currents = tuple(sorted(path for path in root.glob("bookkeeper*/current") if path.is_dir()))
    if metadata is None and not currents:
        raise SourceNotFound(
            f"{root} is not a Pulsar standalone directory: expected metadata/CURRENT and bookkeeper/current, found neither",
            hint=_cluster_hint(root) or _nearest_hint(root),
            path=str(root),
        )
    if metadata is None:
        expected = root / "metadata"
        raise SourceNotFound(
            f"{root} is half a Pulsar directory: expected the metadata store in {expected}, found nothing",
            hint=(_cluster_hint(root) if len(currents) > 1 else "") or "copy the whole data directory",
            path=str(expected),
        )
    if not currents:
        raise SourceNotFound(
            f"{root} is half a Pulsar directory: expected a bookie in {root / 'bookkeeper' / 'current'}, found nothing",
            hint=_cluster_hint(root) or "copy the whole data directory",
            path=str(root / "bookkeeper"),
        )
    listed = [read_bookie_directory(current) for current in currents]
    if not any(directory.logs or directory.journals for directory in listed):
        raise SourceNotFound(
            f"{currents[0]} holds no entry log and no journal",
            hint="copy the whole data directory",
            path=str(currents[0]),
        )
    return StandaloneDirectory(root, metadata, currents)
