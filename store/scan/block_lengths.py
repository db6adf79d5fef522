"""The length fields of the entries of a block whose digests fit, read in large runs: what reading a whole ledger compares."""

from __future__ import annotations

from typing import Any

import numpy as np

from pulsar_admin.store.codec.digest import DIGEST_SIZE
from pulsar_admin.store.db.blocks import Block
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.kernels import records as kernel
from pulsar_admin.store.model.ledgers import Ledger
from pulsar_admin.store.model.reader import EntryReader

_READ_BYTES = 4 << 20


def read_lengths(reader: EntryReader, ledger: Ledger, block: Block) -> list[tuple[int, int] | None]:
    """Return (length field, payload bytes) of each entry of ``block`` that the kernel finds good, None for the others."""
    digest_type = ledger.metadata.digest_type if ledger.metadata else None
    known = np.array([ledger.ledger_id], np.int64)
    kinds = np.array([-1 if digest_type is None else DIGEST_SIZE[digest_type]], np.int16)
    found: list[tuple[int, int] | None] = []
    for first, last in _spans(block):
        offsets = np.array([block.place(index)[1] for index in range(first, last)], np.int64)
        sizes = np.array([block.place(index)[2] for index in range(first, last)], np.int64)
        rows = np.zeros(last - first, kernel.RECORD)
        base, data = _read_span(reader, block.place(first)[0], offsets, sizes)
        if data is not None:
            kernel.read_bodies(data, offsets - base, sizes, (known, kinds), True, rows)
        ids = np.array([block.entry_id(index) for index in range(first, last)], np.int64)
        good = (rows["flags"] & (kernel.BAD_DIGEST | kernel.UNVERIFIED) == 0) & (rows["entry_id"] == ids)
        good &= (rows["ledger_id"] == ledger.ledger_id) & (data is not None)
        payload = np.maximum(sizes - 32 - rows["digest_bytes"], 0)
        lengths = zip(good.tolist(), rows["length"].tolist(), payload.tolist(), strict=True)
        found += [(length, size) if is_good else None for is_good, length, size in lengths]
    return found


def _spans(block: Block) -> list[tuple[int, int]]:
    """Cut the entries of ``block`` into runs [first, last) that lie close together in one file."""
    spans, first = [], 0
    places = [block.place(index) for index in range(len(block))]
    used = 0
    for index, (file_id, offset, size) in enumerate(places):
        start_file, start, _ = places[first]
        inside = file_id == start_file and start <= offset < start + _READ_BYTES
        used = used + size if inside else size
        # Not many more bytes than are needed: other ledgers may lie between.
        if index > first and not (inside and (offset + size - start <= 4 * used + 65536)):
            spans.append((first, index))
            first, used = index, size
    spans.append((first, len(places)))
    return spans


def _read_span(reader: EntryReader, file_id: int, offsets: Any, sizes: Any) -> tuple[int, Any]:  # Any: numpy arrays
    """Return (offset of the first byte, bytes as uint8) that hold the records, or None for bytes that cannot be read."""
    base = int(offsets[0])
    end = int((offsets + sizes).max()) + 4
    try:
        return base, np.frombuffer(reader.files.read(file_id, base, end - base), np.uint8)
    except StoreError:
        return base, None
