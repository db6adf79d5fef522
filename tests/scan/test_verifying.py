"""Ledgers verified by an engine: what it is handed is bounded by bytes, not by blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec import field

from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.engine.local import LocalEngine
from pulsar_admin.store.engine.operation import Finished, Operation
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.model.ledgers import iter_blocks, iter_ledger_ids, read_ledger
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.scan.operations import EngineRows
from tests.stores import imported

PIECE_BYTES = 3_000


class Recorder(LocalEngine):
    """Notes the bytes of every batch of places it is given, and of its largest entry."""

    batches: list[tuple[int, int]] = field(default_factory=list)

    def run(self, operation: Operation, pieces: Sequence[FileRange], finished: Finished) -> Iterator[Any]:
        for piece in pieces:
            self.batches += [(batch.bytes, int(batch.sizes.max())) for batch in piece.batches]  # type: ignore[attr-defined]
        return LocalEngine.run(self, operation, pieces, finished)


def test_blocks_of_large_entries_go_by_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulsar_admin.store.scan.operations.BATCH_BYTES", PIECE_BYTES)
    engine = Recorder(1)
    with open_store(imported("small", "clean")) as store, open_reader(store) as reader, engine:
        ledgers = list(iter_ledger_ids(reader.txn))
        rows_of = EngineRows(engine, reader, ledgers)
        entries = 0
        for ledger_id in ledgers:
            for block in iter_blocks(reader.txn, ledger_id):
                ids = [block.entry_id(place) for place in range(len(block))]
                plain = [reader.read(ledger_id, entry_id) for entry_id in ids]
                found = rows_of(reader, read_ledger(reader.txn, ledger_id), block)
                assert found == [(entry.length, len(entry.payload)) for entry in plain]
                entries += len(ids)
    assert entries > 1_500
    assert len(engine.batches) > 100
    assert all(size <= 2 * PIECE_BYTES + largest for size, largest in engine.batches)
