"""Kill a scan's process at a place, and note which slices it read: for children of ``tests.crash.forking``."""

import json
import os
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pulsar_admin.store.engine import local
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.index import build, rebuild
from pulsar_admin.store.scan import files
from pulsar_admin.store.transfer import imports, refresh


class Setting(NamedTuple):
    """Die at ``where``, when it was passed ``left`` times, and write the slices that ``engine`` reads to the file ``record``."""

    where: str
    left: int
    record: str
    engine: str


def prepare(setting: Sequence[Any]) -> None:  # Any: the fields of Setting, as they came through JSON
    """Prepare this process as a Setting says."""
    where, left, record, engine = Setting(*setting)
    build.SLICE_BYTES = files.WINDOW_BYTES = 1 << 20
    build.GROUP_BYTES = 1  # a transaction a slice
    _note_slices(Path(record), engine)
    if where == "inside a transaction":
        _die_at(build._Group, "_write_row", left)
    elif where == "after a transaction":
        _die_at(build._Group, "commit", left)
    elif where == "inside the last":
        _die_at(rebuild, "_take_over", left)
    elif where == "owners":
        _die_at(imports, "make_owners", left, before=True)
        _die_at(refresh, "index_owners", left, before=True)
    elif where == "before the last":
        _die_at(refresh, "_forget", left, before=True)


def _die_at(owner: Any, name: str, left: int, before: bool = False) -> None:
    original = getattr(owner, name)

    def replaced(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        if before and left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **options)
        left -= 1
        if not before and left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, replaced)


def _note_slices(record: Path, engine: str) -> None:
    def noted(slices: Iterable[FileRange]) -> None:
        with record.open("a") as file:
            file.writelines(json.dumps([piece.path, piece.start, piece.end]) + "\n" for piece in slices)

    if engine == "in this process":
        batches = files.FileScan.batches
        files.FileScan.batches = lambda self: (noted([self.slice]), batches(self))[1]
        return
    owner: Any = local.LocalEngine
    if engine == "spark":
        from pulsar_admin.store.engine.spark import SparkEngine

        owner = SparkEngine
    run = owner.run
    owner.run = lambda self, operation, pieces, finished: (noted(pieces), run(self, operation, pieces, finished))[1]
