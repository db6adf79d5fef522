"""Ledgers verified by an engine: what it is handed is bounded by bytes, and what it says is what this process says."""

import pickle
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from msgspec import field

from pulsar_admin.store.codec.entry import ENTRY_HEADER_BYTES
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.engine.local import LocalEngine
from pulsar_admin.store.engine.operation import Finished, Reducing
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.kernels.columns import RECORD
from pulsar_admin.store.model.ledgers import iter_ledger_ids
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.reports.verify import verify_ledger
from pulsar_admin.store.scan.length_chains import CheckLengths, LedgerChains, LengthChain
from pulsar_admin.store.scan.places import EntryBatch
from pulsar_admin.store.scan.reducing import EntryBatches
from pulsar_admin.store.transfer.imports import ImportOptions
from tests.stores import import_standalone, imported
from tests.worlds import world

PIECE_BYTES = 3_000


class Recorder(LocalEngine):
    """Notes the bytes of every slice it is given, and of its largest batch."""

    slices: list[tuple[int, int]] = field(default_factory=list)

    def reduce(
        self, operation: Reducing, pieces: Sequence[FileRange], finished: Finished, merged_by: Mapping[str, int]
    ) -> Iterator[pa.Table]:
        for piece in pieces:
            assert isinstance(piece, EntryBatches)
            self.slices.append((piece.bytes, max(batch.places.bytes for batch in piece.batches)))
        return LocalEngine.reduce(self, operation, pieces, finished, merged_by)


def test_an_engine_is_given_slices_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulsar_admin.store.scan.reducing.slice_bytes", lambda _: PIECE_BYTES)
    engine = Recorder(1)
    entries = 0
    with open_store(imported("small", "clean")) as store, open_reader(store) as reader, engine:
        ledgers = list(iter_ledger_ids(reader.txn))
        chains = LedgerChains(reader.scanning_on(engine), ledgers)
        for ledger_id in ledgers:
            found = verify_ledger(reader, ledger_id, chains)
            plain = [reader.read(ledger_id, entry_id) for entry_id in range(found.entries)]
            assert found.problems == 0
            assert chains.chain(ledger_id).last == ((len(plain) - 1, plain[-1].length) if plain else None)
            entries += len(plain)
    assert entries > 1_500
    assert len(engine.slices) > 50
    assert all(size < PIECE_BYTES + largest for size, largest in engine.slices)


def test_an_engine_says_what_is_wrong_as_this_process_does(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(world("small") / "clean", source)
    import_standalone(source, tmp_path / "store", ImportOptions(), lambda _: None)
    log = max((source / "bookkeeper" / "current").glob("*.log"), key=lambda path: path.stat().st_size)
    content = bytearray(log.read_bytes())
    for at in range(len(content) // 2, len(content), len(content) // 20):
        content[at] ^= 1
    log.write_bytes(content)
    damaged = 0
    with open_store(tmp_path / "store") as store, open_reader(store) as reader, LocalEngine(1) as engine:
        ledgers = list(iter_ledger_ids(reader.txn))
        chains = LedgerChains(reader.scanning_on(engine), ledgers)
        for ledger_id in ledgers:
            expected = verify_ledger(reader, ledger_id)
            assert verify_ledger(reader, ledger_id, chains) == expected
            damaged += expected.damaged_entries
    assert damaged > 1


@pytest.mark.parametrize("seed", range(5))
def test_a_chain_is_the_same_however_it_is_cut(seed: int) -> None:
    draw = Random(seed)
    entries, length = [], 0
    for entry_id in range(60):
        payload_bytes = draw.randrange(100)
        length += payload_bytes + (draw.random() < 0.1)
        if draw.random() < 0.9:
            entries.append((entry_id, length, payload_bytes))
    whole = LengthChain()
    for entry in entries:
        whole.add(*entry)
    expected = [
        (later, f"it carries length {length}, expected {before + payload}")
        for (earlier, before, _), (later, length, payload) in pairwise(entries)
        if later == earlier + 1 and length != before + payload
    ]
    assert whole.damaged == expected
    assert expected
    rows = np.zeros(len(entries), RECORD)
    entry_ids, rows["length"], payloads = np.array(entries, np.int64).T
    rows["digest_bytes"], rows["size"] = 4, ENTRY_HEADER_BYTES + 4 + payloads
    batch = EntryBatch(np.full_like(entry_ids, 7), entry_ids, rows.view(np.uint8), entry_ids, entry_ids, rows)
    at_once = pickle.loads(CheckLengths().partial(batch)["chain"])
    assert (at_once.damaged, at_once.first, at_once.last) == (whole.damaged, whole.first, whole.last)
    parts = LengthChain()
    cuts = [0, *sorted(draw.sample(range(len(entries)), 12)), len(entries)]
    for start, end in pairwise(cuts):
        part = LengthChain()
        for entry in entries[start:end]:
            part.add(*entry)
        parts.join(part)
    assert parts == whole
