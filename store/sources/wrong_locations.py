"""Entries for which a bookie's index points to bytes that are not their record: reading them fails with an error.

Upstream: ``DefaultEntryLogger.readEntry`` (BookKeeper 4.17) compares the ledger and the entry id in front of what it reads with those that
it was asked for, and throws. Whoever asks for this reads every row, and the head of every record: more than an import can spend.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Collection, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.ledgerindex import decode_ledger_index_header, iter_index_rows, ledger_id_of_index
from pulsar_admin.store.db.bookies import Bookie
from pulsar_admin.store.files import open_regular, read_file
from pulsar_admin.store.sources.bookies import read_bookie_directory
from pulsar_admin.store.sources.missing_logs import has_database
from pulsar_admin.store.sources.rocksdb import is_rocksdb
from pulsar_admin.store.sources.rocksopen import open_links
from pulsar_admin.store.sources.storage import LOCATIONS, storages_of

if TYPE_CHECKING:
    from pyroaring import BitMap64

_ROW_BYTES = 24
_CHUNK_ROWS = 1 << 17
_SIZE_BYTES = 4
_HEAD_BYTES = _SIZE_BYTES + 16
_WINDOW_BYTES = 4 << 20
Logs = Mapping[int, Path]


def read_misled(bookie: Bookie, ledgers: Collection[int]) -> dict[int, BitMap64]:
    """Return, per ledger, the entries for which the bookie's index points to something else in an existing log.

    Raises StoreError, OSError if the disks are not available, or the index cannot be read.
    """
    import numpy as np
    from pyroaring import BitMap64

    found: dict[int, BitMap64] = {}
    for logs, rows in _iter_rows(bookie):
        ids = rows[:, 2] >> 32
        parts = [_wrong_in(logs[one], rows[ids == one]) for one in np.unique(ids).tolist() if one in logs]
        wrong = np.concatenate([np.zeros((0, 3), np.int64), *parts])
        for ledger_id in {*wrong[:, 0].tolist()} & {*ledgers}:
            entries = wrong[wrong[:, 0] == ledger_id, 1]
            found.setdefault(ledger_id, BitMap64()).update(array("Q", entries.astype("<u8").tobytes()))
    return found


def _iter_rows(bookie: Bookie) -> Iterator[tuple[Logs, Array]]:
    """Yield (entry logs by id, rows of ledger, entry and location) of the index, part by part."""
    import numpy as np

    if has_database(bookie):
        for storage in storages_of(bookie):
            if is_rocksdb(storage.index / LOCATIONS):
                logs = dict(read_bookie_directory(storage.logs).logs)
                with open_links(storage.index / LOCATIONS, []) as opened:
                    items = iter(opened.items())
                    while chunk := b"".join(chain.from_iterable(islice(items, _CHUNK_ROWS))):
                        if len(chunk) % _ROW_BYTES:
                            return  # rows of another form: the checks of what is known of them tell
                        yield logs, np.frombuffer(chunk, ">i8").reshape(-1, 3).astype(np.int64)
        return
    logs = {log_id: path for directory in bookie.ledger_dirs for log_id, path in read_bookie_directory(directory).logs}
    for path in (path for index in bookie.index_dirs or bookie.ledger_dirs for path in index.glob("*/*/*.idx")):
        ledger_id = ledger_id_of_index(path.name)
        if ledger_id is not None:
            data = read_file(path)
            decode_ledger_index_header(data, str(path))
            rows = [(ledger_id, row.entry_id, row.log_id << 32 | row.pos) for row in iter_index_rows(data, ledger_id)]
            yield logs, np.array(rows, np.int64).reshape(-1, 3)


def _wrong_in(path: Path, rows: Array) -> Array:
    import numpy as np

    rows = rows[np.argsort(rows[:, 2], kind="stable")]
    starts = (rows[:, 2] & 0xFFFFFFFF) - _SIZE_BYTES
    good = np.zeros(len(rows), bool)
    with open(open_regular(path), "rb") as file:
        at = int(np.searchsorted(starts, 0))
        while at < len(rows):
            begin = int(starts[at])
            data = np.frombuffer(os.pread(file.fileno(), _WINDOW_BYTES, begin), np.uint8)
            end = int(np.searchsorted(starts, begin + len(data) - _HEAD_BYTES, "right"))
            if end <= at:
                break  # past the end of the log
            heads = data[(starts[at:end] - begin)[:, None] + np.arange(_SIZE_BYTES, _HEAD_BYTES)]
            good[at:end] = (np.ascontiguousarray(heads).view(">i8") == rows[at:end, :2]).all(axis=1)
            at = end
    return rows[~good]
