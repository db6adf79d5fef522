"""Which files a path means: a file, a directory of logs, or a glob."""

from __future__ import annotations

from glob import glob
from pathlib import Path

from store.codec.entrylog import log_id_of
from store.errors import SourceNotFound


def expand_paths(pattern: str) -> list[str]:
    """Return the files that PATTERN (comma-separated paths, directories or globs) means; raises SourceNotFound."""
    found: list[str] = []
    for part in (text.strip() for text in pattern.split(",")):
        path = Path(part)
        if path.is_dir():
            found += sorted(str(file) for file in path.iterdir() if log_id_of(file.name) is not None)
        else:
            found += sorted(glob(part))
    if not found:
        raise SourceNotFound(
            f"no entry log at {pattern}", hint="name files, a directory that holds N.log files, or a glob"
        )
    return found
