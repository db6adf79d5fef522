"""The slices and ranges that the table ``entries`` is made of: from the catalogue and the sums of ledgers alone."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from store.db.blocks import decode_times, ledger_of_key
from store.db.environment import Txn
from store.db.files import iter_logs
from store.engine.slices import Cut, FileRange, plan_slices
from store.tables.entries import Origin
from store.tables.staging import Edges, LastRange

RANGE_ENTRIES = 1 << 19
"""Entries of a range: of three copies each, their records take about 300 MB while they are sorted."""


def plan_edges(txn: Txn, range_entries: int = RANGE_ENTRIES) -> Edges:
    """Return where ranges begin, so that each has about RANGE_ENTRIES, those of a large ledger, too."""
    ledgers, entries = array("q"), array("q")
    held = 0
    for key, row in txn.items("times"):
        ledger_id = ledger_of_key(key)
        sums = decode_times(ledger_id, row).sums
        span = max(sums.last_entry - sums.first_entry + 1, 1)
        taken = 0
        while sums.entries - taken > range_entries - held:
            taken += range_entries - held
            held = 0
            ledgers.append(ledger_id)
            entries.append(sums.first_entry + taken * span // sums.entries)
        held += sums.entries - taken
    return Edges(np.array(ledgers, np.int64), np.array(entries, np.int64))


def plan_files(txn: Txn, cut: Cut) -> Iterator[tuple[Origin, list[FileRange]]]:
    """Yield every file that the store knows, and its slices: what was there when it was imported, no more."""
    for log in iter_logs(txn):
        path = str(log.locate(txn.store.path).absolute())
        origin = Origin(path, log.bookie, log.disk, log.file_id, log.kind == "journal", bool(log.stranger))
        whole = FileRange(path, log.kind, log.file_id, 0, log.size_bytes)  # type: ignore[arg-type]
        pieces = plan_slices([(path, log.file_id, log.size_bytes)], cut) if log.kind == "entry-log" else [whole]
        pieces = [replace(piece, kind=whole.kind) for piece in pieces if piece.bytes]
        if pieces:
            last = pieces.pop()
            pieces.append(LastRange(last.path, last.kind, last.file_id, last.start, last.end, last.seek))
            yield origin, pieces
