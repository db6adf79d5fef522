"""The ledgers map of a sealed entry log: which ledgers lie in it, of its last bytes alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pulsar_admin.store.codec.entrylog import HEADER_BYTES, EntryLogHeader, decode_header, decode_ledgers_map
from pulsar_admin.store.errors import EntryLogCorrupt, StoreError
from pulsar_admin.store.files import open_file
from pulsar_admin.store.names import FileKind

_MAP_IDS = (-1).to_bytes(8, "big", signed=True) + (-2).to_bytes(
    8, "big", signed=True
)  # behind the size of a record of a map
_MAP_HEAD_BYTES = 4 + len(_MAP_IDS)


def read_ledgers_map(path: Path) -> dict[int, int] | None:
    """Return what the ledgers map of a log says, nothing for an empty file; None where there is none to believe."""
    head = read_head(path)
    if not head:
        return {}
    try:
        header: EntryLogHeader = decode_header(head, str(path))
        if not header.has_map:
            return None
        return decode_ledgers_map(read_map_bytes(path, header), header, str(path))
    except StoreError:
        return None


def read_head(path: Path) -> bytes:
    """Return the bytes of a file's header; raises EntryLogCorrupt where it cannot be read."""
    try:
        with open_file(path) as file:
            return file.read(HEADER_BYTES)
    except OSError as error:
        raise EntryLogCorrupt(f"{path} cannot be read: {error.strerror}", path=str(path)) from error


def read_map_bytes(path: Path, header: EntryLogHeader) -> memoryview:
    """Return the bytes of a log, zeros in front of the ledgers map that HEADER names: memory of ours, read, not mapped, so that a
    log that is cut meanwhile kills no process. What nobody touches of it costs nothing."""
    import mmap

    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        start = header.ledgers_map_offset
        data = memoryview(mmap.mmap(-1, size))
        if HEADER_BYTES <= start < size:
            # A garbage offset names no map: the log is not read for it.
            os.preadv(file.fileno(), [data[start : start + _MAP_HEAD_BYTES]], start)
            if data[start + 4 : start + _MAP_HEAD_BYTES] == _MAP_IDS:
                os.preadv(file.fileno(), [data[start:]], start)
        return data


def read_ledger_sizes(path: Path) -> dict[int, int]:
    """Return ledger id → bytes of its records (with their size fields) in the entry log PATH.

    Believes the ledgers map of a sealed log; a log without a good one is scanned, and damaged records are not in it.
    """
    sizes = read_ledgers_map(path)
    if sizes is None:
        import numpy as np

        from pulsar_admin.store.scan.files import FileScan, LedgerDigests, Slice

        sizes = {}
        nothing_known = LedgerDigests(np.zeros(0, np.int64), np.zeros(0, np.int16))
        whole = Slice(str(path), FileKind.ENTRY_LOG, 0, path.stat().st_size)
        for batch in FileScan(whole, nothing_known, False).batches():
            add_sizes(sizes, batch)
    return sizes


def add_sizes(sizes: dict[int, int], batch: Any) -> None:  # Any: numpy records, or sizes already
    """Add what BATCH has of each ledger to SIZES."""
    if not isinstance(batch, dict):
        from pulsar_admin.store.scan.grouping import ledger_sizes

        ledgers, found = ledger_sizes(batch)
        batch = dict(zip(ledgers.tolist(), found.tolist(), strict=True))
    for ledger_id, size in batch.items():
        sizes[ledger_id] = sizes.get(ledger_id, 0) + size
