"""The entries to which a bookie's index points: for any other entry the bookie answers that it has none, whatever its logs hold.

Upstream: ``SingleDirectoryDbLedgerStorage.doGetEntry``, ``InterleavedLedgerStorage.getEntry`` (BookKeeper 4.17): an entry without a row is
``Bookie.NoEntryException``. Rows are written before the mark from which a start reads journals moves on.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Collection, Iterable
from contextlib import ExitStack
from hashlib import blake2b
from itertools import islice, pairwise
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsar_admin.store.codec.ledgerindex import HEADER_BYTES, decode_ledger_index_header, ledger_id_of_index
from pulsar_admin.store.db.bookies import Bookie
from pulsar_admin.store.files import read_file
from pulsar_admin.store.sources.rocksdb import is_rocksdb
from pulsar_admin.store.sources.rocksopen import open_links
from pulsar_admin.store.sources.storage import LOCATIONS, lost_locations

if TYPE_CHECKING:
    from pyroaring import BitMap64

_KEY_BYTES = 16
_SLOT_BYTES = 8
_CHUNK_KEYS = 1 << 12  # they stay in the processor's cache
_IN_MEMORY = ("active-mem-table", "imm-mem-tables")


def read_located(bookie: Bookie, ledgers: Iterable[int], records: int) -> dict[int, BitMap64] | None:
    """Return, for each ledger, the entries that the bookie's index points to.

    None if the answer would be useless: the index is not imported or incomplete, or it got as many rows as its entry
    logs have ``records`` and no row was ever deleted, so that no key need be read. A lost database has no rows: a
    bookie that starts creates an empty one in its place (``KeyValueStorageRocksDB``). Raises StoreError, OSError if it
    cannot be read.
    """
    indexes = bookie.index_dirs or bookie.ledger_dirs
    databases = [path for index in indexes if is_rocksdb(path := index / LOCATIONS)]
    lost = sum(map(lost_locations, indexes))
    if not databases and not lost:
        return _read_files(indexes, ledgers)
    if len(databases) + lost < len(indexes):
        return None
    with ExitStack() as stack:
        problems: list[str] = []
        opened = [stack.enter_context(open_links(database, problems)) for database in databases]
        if problems or (not lost and sum(map(_count_rows, opened)) == records):
            return None
        from pyroaring import BitMap64  # 15 ms

        found = {ledger_id: BitMap64() for ledger_id in ledgers}
        return found if all(_read_keys(one, found) for one in opened) else None


def _count_rows(opened: Any) -> float:  # Any: rocksdict has no stubs
    """Return how many rows were put into an open database, not a number where some were deleted again."""
    tables = opened.live_files()
    deletions = sum(table["num_deletions"] for table in tables)
    deletions += sum(opened.property_int_value(f"rocksdb.num-deletes-{one}") for one in _IN_MEMORY)
    in_memory = sum(opened.property_int_value(f"rocksdb.num-entries-{one}") for one in _IN_MEMORY)
    return nan if deletions else sum(table["num_entries"] for table in tables) + in_memory


def _read_files(indexes: Collection[Path], ledgers: Iterable[int]) -> dict[int, BitMap64] | None:
    """Return the entries in ``.idx`` files, None if there are none."""
    import numpy as np
    from pyroaring import BitMap64

    paths = list(_index_files(indexes))
    found = {ledger_id: BitMap64() for ledger_id in ledgers}
    for path in paths:
        entries = found.get(int(path.stem, 16))
        if entries is not None:
            data = read_file(path)
            decode_ledger_index_header(data, str(path))
            slots = data[HEADER_BYTES:]
            rows = np.frombuffer(slots[: len(slots) // _SLOT_BYTES * _SLOT_BYTES], ">i8")
            entries.update(array("Q", np.flatnonzero(rows).astype("<u8").tobytes()))
    return found if paths else None


def _index_files(indexes: Iterable[Path]) -> list[Path]:
    found = (path for index in indexes for path in index.glob("*/*/*.idx"))
    return [path for path in found if ledger_id_of_index(path.name) is not None]


def _read_keys(opened: Any, found: dict[int, BitMap64]) -> bool:  # Any: rocksdict has no stubs
    """Add the entries in the keys of an open database to ``found``; return whether every key could be read."""
    import numpy as np

    keys, last = iter(opened.keys()), b""
    while chunk := b"".join(islice(keys, _CHUNK_KEYS)):
        if len(chunk) % _KEY_BYTES:
            return False
        last = chunk[-_KEY_BYTES:]
        rows = np.frombuffer(chunk, ">i8").reshape(-1, 2)
        starts = np.flatnonzero(np.diff(rows[:, 0], prepend=-1)).tolist()
        for start, end in pairwise([*starts, len(rows)]):
            entries = found.get(int(rows[start, 0]))
            if entries is not None:
                ids = rows[start:end, 1]
                first, final = int(ids[0]), int(ids[-1])
                if final - first == len(ids) - 1:
                    entries.add_range(first, final + 1)
                else:
                    entries.update(array("Q", ids.astype("<u8").tobytes()))
    position = opened.iter()  # the keys end without a word at a block that is damaged
    position.seek_to_last()
    position.status()
    return bool(position.key() == last if position.valid() else not last)


def index_state(bookie: Bookie) -> str:
    """Return a value that changes whenever the bookie's index is written: names, sizes and times of its files."""
    indexes, digest = bookie.index_dirs or bookie.ledger_dirs, blake2b(digest_size=8)
    databases = (path for index in indexes if is_rocksdb(index / LOCATIONS) for path in (index / LOCATIONS).iterdir())
    for path in sorted([*databases, *_index_files(indexes)]):
        status = os.stat(path)
        digest.update(f"{path}\0{status.st_size} {status.st_mtime_ns}\0".encode())
    return digest.hexdigest()
