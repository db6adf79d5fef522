"""Whether a server writes a store's sources while they are read: a process holds files of metadata or bookies open."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pulsar_admin.store.sources.layout import Layout
from pulsar_admin.store.sources.nodes import MetadataDirectory
from pulsar_admin.store.sources.rocksdb import locked_by
from pulsar_admin.store.sources.storage import DATABASES

_PROCESSES = Path("/proc")


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
