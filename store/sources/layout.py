"""Finding the parts of a Pulsar data directory: metadata store and bookies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from store.codec.entrylog import log_id_of
from store.errors import SourceNotFound


@dataclass(frozen=True, slots=True)
class BookieDirectory:
    """One ``current`` directory of a bookie: entry logs with their log ids, journals, both in write order."""

    path: Path
    logs: tuple[tuple[int, Path], ...]
    journals: tuple[tuple[int, Path], ...]


@dataclass(frozen=True, slots=True)
class StandaloneLayout:
    """The parts of a standalone data directory."""

    root: Path
    metadata: Path  # of one of the kinds in ``store.sources.nodes``
    bookies: tuple[BookieDirectory, ...]


def _journal_id(name: str) -> int | None:
    stem, _, suffix = name.rpartition(".")
    try:
        return int(stem, 16) if suffix == "txn" else None
    except ValueError:
        return None


def read_bookie_directory(current: Path) -> BookieDirectory:
    """List the logs and journals directly in CURRENT; never looks into the RocksDB directories below it."""
    files = [entry for entry in sorted(current.iterdir()) if entry.is_file()]
    logs = ((log_id_of(file.name), file) for file in files)
    journals = ((_journal_id(file.name), file) for file in files)
    return BookieDirectory(
        current,
        tuple(sorted((log_id, file) for log_id, file in logs if log_id is not None and file.stat().st_size > 0)),
        tuple(sorted((journal_id, file) for journal_id, file in journals if journal_id is not None)),
    )


def _nearest_hint(root: Path) -> str:
    """Return what to name instead of ROOT: a directory below it that is one, where there is one."""
    from store.sources.rocksdb import is_rocksdb

    inside = [below.name for below in sorted(root.iterdir()) if is_rocksdb(below / "metadata")]
    if inside:
        return f"name one of the directories in it that are: {', '.join(inside[:3])}"
    return "name the directory given to `pulsar standalone` (by default PULSAR/data/standalone or PULSAR/data)"


def read_standalone_layout(root: Path) -> StandaloneLayout:
    """Find metadata and bookies below ROOT; raises SourceNotFound naming what is missing."""
    # Imported here: `logs` lists a bookie's directory and reads no metadata.
    from store.sources.nodes import find_metadata

    if not root.is_dir():
        raise SourceNotFound(f"{root} is not a directory", hint="name Pulsar's data directory", path=str(root))
    metadata = find_metadata(root)
    currents = sorted(path for path in root.glob("bookkeeper*/current") if path.is_dir())
    if metadata is None and not currents:
        raise SourceNotFound(
            f"{root} is not a Pulsar standalone directory: expected metadata/CURRENT and bookkeeper/current, found neither",
            hint=_nearest_hint(root),
            path=str(root),
        )
    if metadata is None:
        expected = root / "metadata"
        raise SourceNotFound(
            f"{root} is half a Pulsar directory: expected the metadata store in {expected}, found nothing",
            hint="copy the whole data directory",
            path=str(expected),
        )
    if not currents:
        raise SourceNotFound(
            f"{root} is half a Pulsar directory: expected a bookie in {root / 'bookkeeper' / 'current'}, found nothing",
            hint="copy the whole data directory",
            path=str(root / "bookkeeper"),
        )
    bookies = tuple(read_bookie_directory(current) for current in currents)
    if not any(bookie.logs or bookie.journals for bookie in bookies):
        raise SourceNotFound(
            f"{currents[0]} holds no entry log and no journal",
            hint="copy the whole data directory",
            path=str(currents[0]),
        )
    return StandaloneLayout(root, metadata, bookies)
