"""Where the parts of a cluster are: its metadata store and the disks of its bookies; finding them below a standalone directory.

Also: the command line that imports what lies below a directory that is not a standalone one; and whether a server writes the parts while
they are read.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

from msgspec import Struct

from pulsar_admin.store.db.bookies import Bookie
from pulsar_admin.store.errors import SourceNotFound
from pulsar_admin.store.names import shell_word
from pulsar_admin.store.sources.bookies import group_directories, read_bookie_directory, read_cookie
from pulsar_admin.store.sources.nodes import MetadataDirectory, Source, find_metadata
from pulsar_admin.store.sources.rocksdb import is_rocksdb, locked_by
from pulsar_admin.store.sources.roots import Wanted
from pulsar_admin.store.sources.storage import DATABASES

_DEPTH = 5  # of a bookie's directory below the one that holds a copy of a cluster: bookie2/slow/ledgers-a/current, say
_MOST_DIRECTORIES = 20_000
_PROCESSES = Path("/proc")


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
    """Return a hint about ``root``, which is no data directory: what it is instead, or a data directory below it."""
    if (root / "store.json").exists():
        return f"it is a store already: pulsar-admin --store {shell_word(str(root))} overview"
    if (root / "tables.json").exists():
        return f"for tables that were exported: pulsar-admin --store NEW store import tables {shell_word(str(root))}"
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
    standalone = find_standalone(root)
    metadata = MetadataDirectory(standalone.metadata)
    bookies = group_directories(standalone.currents)
    return Layout(str(root), metadata if wanted is None else metadata.rooted(wanted), bookies, root)


def find_standalone(root: Path) -> StandaloneDirectory:
    """Return the directories below ``root``; raises SourceNotFound naming the missing one."""
    if not root.is_dir():
        bundle = f"for an incident bundle: pulsar-admin --store NEW store import bundle {shell_word(str(root))}"
        hint = bundle if root.is_file() else "name Pulsar's data directory"
        raise SourceNotFound(f"{root} is not a directory", hint=hint, path=str(root))
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
            f"{root} is half a Pulsar directory: expected the metadata store in {expected}, found {_kind_of(expected)}",
            hint=(_cluster_hint(root) if len(currents) > 1 else "") or "copy the whole data directory",
            path=str(expected),
        )
    if not currents:
        bookie = root / "bookkeeper" / "current"
        raise SourceNotFound(
            f"{root} is half a Pulsar directory: expected a bookie in {bookie}, found {_kind_of(bookie)}",
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


def _kind_of(path: Path) -> str:
    return "another directory" if path.is_dir() else "a file" if path.exists() else "nothing"


def suggest_import(root: Path) -> str:
    """Return the command line that imports the parts of a cluster in ``root`` or below, "" if there are none."""
    directories: dict[str, list[str]] = {}
    for path in (root, *islice(_directories(root, _DEPTH), _MOST_DIRECTORIES)):
        cookie = read_cookie(path)
        if cookie is not None:
            directories.setdefault(cookie.bookie_id, []).append(str(path.parent if path.name == "current" else path))
    near = (root, *_directories(root, 1))
    metadata = next((there for path in near if (there := find_metadata(path)) is not None), None)
    if not directories and (metadata is None or is_rocksdb(metadata)):
        return ""
    words = ["pulsar-admin --store NEW store import cluster"]
    if metadata is not None:
        words.append(f"--{'metadata' if is_rocksdb(metadata) else 'zookeeper'} {shell_word(metadata)}")
    bookies = (f"{bookie_id}={','.join(paths)}" for bookie_id, paths in sorted(directories.items()))
    words += [f"--bookie {shell_word(bookie)}" for bookie in bookies]
    words += [] if directories else ["--bookie BOOKIE=DIR"]
    return " ".join(words)


def _directories(root: Path, depth: int) -> Iterable[Path]:
    """Yield the directories below ``root`` down to ``depth``, in order; unreadable ones are skipped."""
    try:
        inside = sorted(path for path in root.iterdir() if path.is_dir())
    except OSError:
        return
    for path in inside:
        yield path
        if depth > 1 and path.name != "current":  # a bookie's own, of which each RocksDB is one more
            yield from _directories(path, depth - 1)


# -- servers that run -------------------------------------------------------------------------------------------------


def is_live(layout: Layout) -> bool:
    """Whether the parts of ``layout`` are in use: a running ensemble, a RocksDB whose lock is held, or files that a process has open
    for writing. Of another user's processes, and of those outside a container, only the locks can be seen."""
    if layout.metadata is not None and not isinstance(layout.metadata, MetadataDirectory):
        return True
    databases = [path / name for bookie in layout.bookies for path in bookie.directories for name in DATABASES]
    if layout.metadata is not None:
        databases += layout.metadata.directories
    return any(locked_by(path) is not None for path in databases) or is_written(layout.directories)


def is_written(directories: Iterable[Path]) -> bool:
    """Whether another process has a file below ``directories`` open for writing."""
    inside = tuple(os.path.join(path.resolve(), "") for path in directories)
    own = str(os.getpid())
    with suppress(OSError):  # a system without /proc
        for process in os.listdir(_PROCESSES):
            if process.isdigit() and process != own and _writes(f"{_PROCESSES}/{process}", inside):
                return True
    return False


def _writes(process: str, inside: tuple[str, ...]) -> bool:
    """Whether a process (its directory in /proc) has a file inside these directories open for writing. Paths are
    compared as strings: a machine has thousands of descriptors."""
    with suppress(OSError):  # it ended, or is another user's
        for descriptor in os.listdir(f"{process}/fd"):
            with suppress(OSError):
                if os.readlink(f"{process}/fd/{descriptor}").startswith(inside):
                    lines = Path(f"{process}/fdinfo/{descriptor}").read_text().splitlines()
                    flags = next((line.split()[1] for line in lines if line.startswith("flags:")), "0")
                    if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
                        return True
    return False
