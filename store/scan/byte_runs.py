"""Where the entries of a batch lie, in few bytes: what executors are sent instead of places.

Records of a ledger that follow each other in a file are one run of bytes: they say themselves where each begins. Entries that lie
between those of others, or are so large that only their heads are read, keep a place each, which takes about three bytes.
"""

from __future__ import annotations

import pickle
import zlib
from typing import Any

import numpy as np
from msgspec import Struct

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.digest import DIGEST_SIZE, DigestType
from pulsar_admin.store.kernels import records as kernel
from pulsar_admin.store.kernels.records import BAD_DIGEST, END
from pulsar_admin.store.scan.files import LedgerDigests, note_read
from pulsar_admin.store.scan.places import (
    HEADS_BYTES,
    EntryBatch,
    Part,
    Places,
    PlacesReader,
    doubtful,
    pack_column,
    unpack_column,
)

_RUN = np.dtype(
    [
        ("ledger_id", np.int64),
        ("first_entry", np.int64),
        ("entries", np.int64),
        ("file", np.int64),
        ("start", np.int64),  # of the first record's size field
        ("end", np.int64),
        ("digest_bytes", np.int64),
    ]
)
_RUN_ENTRIES = 16  # runs with fewer entries take no less than places
_SIZE_BYTES = 4
_HMAC_BYTES = DIGEST_SIZE[DigestType.HMAC]  # which no executor can verify


class PackedPlaces(Struct, frozen=True):
    """The places of a batch, packed: as runs, or one for each entry (``is_scattered``)."""

    packed: bytes
    files: tuple[int, ...]
    bytes: int
    entries: int
    is_scattered: bool

    def read(self, files: Any, heads: bool, digests: LedgerDigests | None) -> EntryBatch | None:
        """Return the entries as ``PlacesReader`` does; None unless all are proven to be those that were imported."""
        if self.is_scattered:
            places = self.places()
            batch = PlacesReader(files, heads, digests).read_places(places)
            return None if doubtful(batch, places).any() else batch
        runs = self._runs()
        sizes = runs["end"] - runs["start"]
        ends = np.cumsum(sizes)
        data = np.empty(int(ends[-1]), np.uint8)
        rows = np.zeros(self.entries, kernel.RECORD)
        ledgers, first = np.unique(runs["ledger_id"], return_index=True)
        known = tuple(digests or LedgerDigests(ledgers, runs["digest_bytes"][first].astype(np.int16)))
        at = 0
        for run, end, size in zip(runs.tolist(), ends.tolist(), sizes.tolist(), strict=True):
            _, _, entries, file_id, start, _, _ = run
            files.read_into(data.data[end - size : end], file_id, start)
            found, stop, why = kernel.scan_log(data, end - size, end, 0, known, True, rows[at : at + entries])
            if (found, stop, why) != (entries, end, END):
                return None
            at += entries
        note_read(rows, rows["size"])
        ledger_ids, entry_ids = self._ids(runs)
        wrong = (rows["ledger_id"] != ledger_ids) | (rows["entry_id"] != entry_ids)
        wrong |= (rows["flags"] & BAD_DIGEST != 0) | (rows["digest_bytes"] == _HMAC_BYTES)
        if wrong.any():
            return None
        offsets = rows["offset"].copy()
        rows["offset"] += np.repeat(runs["start"] - (ends - sizes), runs["entries"])
        return EntryBatch(ledger_ids, entry_ids, data, offsets, rows["size"].astype(np.int64), rows)

    def places(self) -> Places:
        """Return the place of each of scattered entries."""
        return Places(*map(_loosened, pickle.loads(zlib.decompress(self.packed))))

    def parts(self) -> list[Part]:
        """Return the entries of runs as parts of ledgers, in order."""
        runs = self._runs()
        lasts = runs["first_entry"] + runs["entries"] - 1
        return list(zip(runs["ledger_id"].tolist(), runs["first_entry"].tolist(), lasts.tolist(), strict=True))

    def _runs(self) -> Array:
        return np.frombuffer(self.packed, _RUN)

    def _ids(self, runs: Array) -> tuple[Array, Array]:
        counts = runs["entries"]
        firsts = runs["first_entry"] - (np.cumsum(counts) - counts)
        return np.repeat(runs["ledger_id"], counts), np.repeat(firsts, counts) + np.arange(self.entries)


def pack_places(places: Places, heads: bool) -> PackedPlaces:
    """Return the places of a batch in few bytes; ``heads``: whether the beginnings of large entries will do."""
    ends = places.offsets + np.int64(_SIZE_BYTES) + places.sizes
    follows = places.offsets[1:] == ends[:-1]
    for column, step in ((places.entry_ids, 1), (places.ledger_ids, 0), (places.files, 0), (places.digests, 0)):
        follows &= column[1:] == column[:-1] + column.dtype.type(step)
    firsts = np.append(0, np.flatnonzero(~follows) + 1)
    files = tuple(sorted(set(places.files[firsts].tolist())))
    is_large = heads and places.bytes >= HEADS_BYTES * len(places)
    if is_large or len(firsts) * _RUN_ENTRIES > max(len(places), 8 * _RUN_ENTRIES):
        columns = [_tightened(getattr(places, name)) for name in Places.__struct_fields__]
        return PackedPlaces(zlib.compress(pickle.dumps(columns), 1), files, places.bytes, len(places), True)
    lasts = np.append(firsts[1:], len(places)) - 1
    runs = np.empty(len(firsts), _RUN)
    runs["ledger_id"], runs["first_entry"] = places.ledger_ids[firsts], places.entry_ids[firsts]
    runs["entries"] = lasts - firsts + 1
    runs["file"], runs["digest_bytes"] = places.files[firsts], places.digests[firsts]
    runs["start"], runs["end"] = places.offsets[firsts], ends[lasts]
    return PackedPlaces(runs.tobytes(), files, places.bytes, len(places), False)


def _tightened(column: Array) -> Any:  # Any: what ``_loosened`` takes
    """Return a column as ``pack_column`` does, or its differences, byte by byte of each: most of these are zeros, which are packed well."""
    packed = pack_column(column)
    if isinstance(packed, tuple):
        return packed
    steps = np.diff(column, prepend=column.dtype.type(0))
    return column.dtype.str, steps.view(np.uint8).reshape(-1, column.itemsize).T.tobytes()


def _loosened(packed: Any) -> Array:  # Any: what ``_tightened`` returns
    if len(packed) != 2:
        return unpack_column(packed)
    kind = np.dtype(packed[0])
    steps = np.frombuffer(packed[1], np.uint8).reshape(kind.itemsize, -1).T.copy().view(kind)[:, 0]
    column: Array = np.cumsum(steps, dtype=kind)
    return column
