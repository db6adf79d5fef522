"""The slices and ranges that the table ``entries`` is made of: from the catalogue and the table of ledgers alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow.parquet as pq
from msgspec.structs import replace

from store.db.environment import Txn
from store.db.files import iter_logs
from store.engine.slices import Cut, FileRange, plan_slices
from store.names import FileKind
from store.tables.entries import Origin
from store.tables.folder import Folder
from store.tables.manifest import Part
from store.tables.staging import Edges, LastRange

RANGE_ENTRIES = 1 << 19
"""Entries of a range: of three copies each, their records take about 300 MB while they are sorted."""


def plan_edges(folder: Folder, ledgers: Sequence[Part], range_entries: int = RANGE_ENTRIES) -> Edges:
    """Return where ranges begin, so that each has about RANGE_ENTRIES, those of a large ledger, too; LEDGERS: files of that table.

    Nobody knows how many entries the open ledgers have of a store without an index: a range may have more by these.
    """
    found: list[Edges] = []
    before = 0  # entries in front of a batch
    for part in ledgers:
        with folder.open_input(part.path) as source, pq.ParquetFile(source, page_checksum_verification=True) as file:
            for batch in file.iter_batches(columns=["ledger_id", "entries"]):
                ids, counts = (batch.column(name).fill_null(0).to_numpy() for name in ("ledger_id", "entries"))
                ends = before + np.cumsum(np.maximum(counts, 0))
                edges = np.arange(before // range_entries + 1, int(ends[-1]) // range_entries + 1) * range_entries
                at = np.searchsorted(ends, edges, "left")
                found.append(Edges(ids[at], edges - (ends[at] - counts[at])))
                before = int(ends[-1])
    columns = ([getattr(edges, name) for edges in found] for name in ("ledgers", "entries"))
    return Edges(*(np.concatenate([np.zeros(0, np.int64), *column]) for column in columns))


def plan_files(txn: Txn, cut: Cut) -> Iterator[tuple[Origin, list[FileRange]]]:
    """Yield every file that the store knows, and its slices: what was there when it was imported, no more."""
    for log in iter_logs(txn):
        path = str(log.locate(txn.store.path).absolute())
        origin = Origin(path, log.bookie, log.disk, log.file_id, log.kind == FileKind.JOURNAL, bool(log.stranger))
        whole = FileRange(path, log.kind, log.file_id, 0, log.size_bytes)
        pieces = plan_slices([(path, log.file_id, log.size_bytes)], cut) if log.kind == FileKind.ENTRY_LOG else [whole]
        pieces = [replace(piece, kind=whole.kind) for piece in pieces if piece.bytes]
        if pieces:
            last = pieces.pop()
            pieces.append(LastRange(last.path, last.kind, last.file_id, last.start, last.end, last.seek))
            yield origin, pieces
