"""The command line that imports what lies below a directory that is not a standalone one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pulsar_admin.store.sources.bookies import read_cookie
from pulsar_admin.store.sources.nodes import find_metadata
from pulsar_admin.store.sources.rocksdb import is_rocksdb

_DEPTH = 3  # of a bookie's directory below the one that holds a copy of a cluster


def suggest_import(root: Path) -> str:
    """Return the command line that imports the parts of a cluster below ``root``, "" if there is no bookie."""
    found: dict[str, list[str]] = {}
    for path in _directories(root, _DEPTH):
        cookie = read_cookie(path)
        if cookie is not None:
            found.setdefault(cookie.bookie_id, []).append(str(path.parent if path.name == "current" else path))
    if not found:
        return ""
    near = (root, *_directories(root, 1))
    metadata = next((there for path in near if (there := find_metadata(path)) is not None), None)
    words = ["pulsar-admin --store NEW store import cluster"]
    if metadata is not None:
        words.append(f"--{'metadata' if is_rocksdb(metadata) else 'zookeeper'} {metadata}")
    words += [f"--bookie {bookie_id}={','.join(paths)}" for bookie_id, paths in sorted(found.items())]
    return " ".join(words)


def _directories(root: Path, depth: int) -> Iterable[Path]:
    """Yield the directories below ``root`` down to ``depth``, in order; unreadable ones are skipped."""
    try:
        inside = sorted(path for path in root.iterdir() if path.is_dir())
    except OSError:
        return
    for path in inside:
        yield path
        if depth > 1:
            yield from _directories(path, depth - 1)
