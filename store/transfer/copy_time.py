"""The time that a store is a copy of: the latest that its sources tell of, by their own word.

A producer's clock says nothing of it, nor does what this toolkit wrote. The times of files do where they are older than what is in the
files: ``cp -r`` gives all of them the time of the copying.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from pulsar_admin.store.db.blocks import NO_MAX, decode_latest, ledger_of_key
from pulsar_admin.store.db.bookies import Bookie
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.files import FileMode, LogFile, iter_logs
from pulsar_admin.store.db.own_ledgers import find_own_ledgers
from pulsar_admin.store.db.tree import modified_ms
from pulsar_admin.store.model.copy_age import AsOf, find_as_of
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.sources.layout import Layout
from pulsar_admin.store.sources.live import is_live
from pulsar_admin.store.sources.nodes import MetadataDirectory
from pulsar_admin.store.sources.zookeeper import is_zookeeper, last_transaction


def read_as_of(store: Store, layout: Layout, read_ms: int, node_ms: int) -> AsOf | None:
    """Return the time that the store is a copy of, now that ``layout`` is read, at ``read_ms``; None where nothing tells.

    ``node_ms``: the newest modification of a metadata node that was read; 0 where none was. What was known before still holds.
    """
    with store.read() as txn:
        known = find_as_of(txn)
        said = [*_iter_said(txn, layout, read_ms, node_ms), *((known,) if known else ())]
    return max(said, key=lambda one: one.time_ms, default=None)


class NewestNode:
    """Sees the metadata nodes that are read: ``time_ms``, the newest modification of one by ``read_ms``; 0: none was seen."""

    def __init__(self, read_ms: int) -> None:
        self._limit_ms = _limit(read_ms)
        self.time_ms = 0

    def see(self, row: bytes | memoryview) -> None:
        """Look at the row of a node."""
        if self.time_ms < (found := modified_ms(row)) <= self._limit_ms:
            self.time_ms = found


def _limit(read_ms: int) -> int:
    """Return what no time of a copy is later than: the reading, which may have been told another now than the clock's."""
    return max(read_ms, time.time_ns() // 1_000_000)


def _iter_said(txn: Txn, layout: Layout, read_ms: int, node_ms: int) -> Iterator[AsOf]:
    metadata = layout.metadata
    if isinstance(metadata, MetadataDirectory) and metadata.as_of is not None:
        # The moment that was chosen: what bookies wrote after it is not of this copy's state.
        last = last_transaction(metadata.logs or metadata.path, metadata.as_of)
        yield AsOf(node_ms, "metadata") if last is None else AsOf(last.time_ms, "zookeeper")
        return
    if is_live(layout):
        yield AsOf(read_ms, "live")
        return
    said = [AsOf(node_ms, "metadata"), *_iter_times(txn)]
    if isinstance(metadata, MetadataDirectory) and is_zookeeper(metadata.path):
        last = last_transaction(metadata.logs or metadata.path)
        if last is not None:
            said.append(AsOf(last.time_ms, "zookeeper"))
    limit_ms = _limit(read_ms)
    dated = [one for one in said if 0 < one.time_ms <= limit_ms]
    yield from dated
    if dated:
        written_ms = newest_written_ms(txn, layout.bookies, max(one.time_ms for one in dated))
        if 0 < written_ms <= limit_ms:
            yield AsOf(written_ms, "files")


def _iter_times(txn: Txn) -> Iterator[AsOf]:
    """Yield the times of the newest journal and of each ledger's newest entry that a broker dated."""
    for log in iter_logs(txn):
        if log.kind == FileKind.JOURNAL:
            yield AsOf(log.log_id, "journal")
    own = find_own_ledgers(txn)
    for key, row in txn.items("times"):
        ledger_id = ledger_of_key(key)
        if own is None or not own.first_id <= ledger_id < own.next_id:
            found_ms = decode_latest(ledger_id, row, "broker")
            if found_ms != NO_MAX:
                yield AsOf(found_ms, "broker")


def newest_written_ms(txn: Txn, bookies: Iterable[Bookie], dated_ms: int) -> int:
    """Return when a journal, or an entry log that is written to, was written last, by the times of files where they can be believed.

    They are those of a copying where every file of a bookie is newer than ``dated_ms``, the newest time in the files.
    """
    believed = [bookie for bookie in bookies if any(_oldest_ms(path) < dated_ms for path in bookie.directories)]
    ids = {bookie.bookie_id for bookie in believed if bookie.bookie_id}
    directories = {str(path.resolve()) for bookie in believed for path in bookie.directories}
    logs = (log for log in iter_logs(txn) if log.mode is not FileMode.OWN and _is_growing(log))
    theirs = (log for log in logs if log.bookie in ids or str(Path(log.origin).parent) in directories)
    return max((log.mtime_ns // 1_000_000 for log in theirs), default=0)


def _is_growing(log: LogFile) -> bool:
    """Whether bookies write to a file until they stop. A sealed log says less than the journals, and may be one of an export of ours."""
    return log.kind == FileKind.JOURNAL or not log.sealed


def _oldest_ms(directory: Path) -> int:
    """Return when the oldest file below a directory was written: of those that are still there, and that links lead to."""
    files = (os.path.join(folder, name) for folder, _, names in os.walk(directory) for name in names)
    return min((written_ms for file in files if (written_ms := _written_ms(file)) is not None), default=0)


def _written_ms(file: str) -> int | None:
    """Return when a file was written; None for one that a bookie has deleted by now, and for a link that leads nowhere."""
    try:
        return os.stat(file).st_mtime_ns // 1_000_000
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return None
        raise
