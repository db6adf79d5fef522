"""Decoding many entries of a compacted ledger at once, and finding the first one published at or after a time."""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.compaction.reading import FoundInView, read_published
from pulsar_admin.store.kernels import compaction as kernel
from pulsar_admin.store.kernels.columns import RECORD, UNFRAMED
from pulsar_admin.store.kernels.records import read_payloads
from pulsar_admin.store.model.compacted_view import CompactedView, parts_of_view
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.scan.entries import EntryScan
from pulsar_admin.store.scan.operations import PlacesOperation, PlainFiles, run_places
from pulsar_admin.store.scan.places import EntryBatch, Places, PlacesReader, doubtful

_BEFORE_BYTES = 4 + 32  # size field and header of an entry, which precede its content


def unwrapped(entries: EntryBatch) -> EntryBatch:
    """Return the topic's entries inside a compacted ledger's entries; one that is not a compacted entry becomes empty."""
    inner = np.zeros(len(entries), kernel.ENTRY)
    kernel.read_entries(entries.data, entries.starts, entries.ends, True, False, inner)
    starts = np.where(inner["kind"] == kernel.BROKEN, inner["end"], inner["start"])
    rows = np.zeros(len(entries), RECORD)
    read_payloads(entries.data, starts, inner["end"], rows)
    offsets = starts - _BEFORE_BYTES
    return EntryBatch(inner["ledger_id"], inner["entry_id"], entries.data, offsets, inner["end"] - offsets - 4, rows)


class FindPublished(Struct, PlacesOperation, frozen=True):
    """Finds entries published at or after ``time_ms``, and entries that must be read again to decide: indexes as i32."""

    time_ms: int

    def values(self, places: Places, files: PlainFiles) -> tuple[bytes]:
        return (self.rows(PlacesReader(files, False, None), places).tobytes(),)

    def rows(self, entries: PlacesReader | EntryScan, places: Places) -> Array:
        """Return the indexes in ``places`` of such entries."""
        batch = entries.read_places(places)
        inner = unwrapped(batch).rows
        published = (inner["publish_ms"] >= self.time_ms) | (inner["publish_ms"] < 0)
        chosen = published | (inner["flags"] & UNFRAMED != 0) | doubtful(batch, places)
        return np.flatnonzero(chosen).astype(np.int32)


def find_published(reader: EntryReader, view: CompactedView, time_ms: int) -> FoundInView:
    """Return the same as ``reading.find_in_view``, by columns and on the reader's engine; raises EntryCorrupt."""
    following = 0
    for places, rows in _iter_rows(reader, view, FindPublished(time_ms)):
        ids = places.entry_ids
        lost = np.setdiff1d(np.arange(following, int(ids[-1])), ids)
        for entry_id in np.union1d(ids[rows], lost).tolist():
            position, published_ms = read_published(reader, view, entry_id)
            if published_ms >= time_ms:
                return FoundInView(position, published_ms, entry_id + 1)
        following = int(ids[-1]) + 1
    if following <= view.last_entry_id:
        read_published(reader, view, following)  # raises: no file has it
    return FoundInView(None, None, view.last_entry_id + 1)


def _iter_rows(reader: EntryReader, view: CompactedView, work: FindPublished) -> Iterator[tuple[Places, Array]]:
    scan = EntryScan(reader, parts_of_view(view))
    if reader.engine is None:
        groups: Iterator[tuple[Places, dict[str, bytes] | None]] = ((places, None) for places in scan.groups())
    else:
        groups = run_places(reader.engine, work, reader.files, scan.groups())
    for places, row in groups:
        yield places, work.rows(scan, places) if row is None else np.frombuffer(row["rows"], np.int32)
        reader.advance(places.bytes)
