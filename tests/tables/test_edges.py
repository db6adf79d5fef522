"""Where ranges of the table ``entries`` begin, beside counting one entry after the other."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

from pulsar_admin.store.tables.folder import Folder
from pulsar_admin.store.tables.making import plan_edges
from pulsar_admin.store.tables.parquet import write_part
from pulsar_admin.store.tables.schemas import TABLES


@pytest.mark.parametrize("range_entries", [1, 3, 10, 1000])
def test_every_range_begins_so_many_entries_behind_the_last(tmp_path: Path, range_entries: int) -> None:
    source = random.Random(range_entries)
    ledgers = [(ledger, source.choice([None, 0, 1, 2, 25])) for ledger in range(3, 300, 3)]
    folder, schema = Folder.of(str(tmp_path)), TABLES["ledgers"]
    parts = []
    for number, some in enumerate((ledgers[:40], ledgers[40:41], ledgers[41:])):
        rows = [{"ledger_id": ledger, "entries": entries} for ledger, entries in some]
        batches = pa.Table.from_pylist(rows, schema).to_batches(max_chunksize=7)
        parts.append(write_part(folder, f"part-{number}.parquet", schema, batches))
    entries = [(ledger, entry) for ledger, count in ledgers for entry in range(count or 0)]
    edges = plan_edges(folder, parts, range_entries)
    found = list(zip(edges.ledgers.tolist(), edges.entries.tolist(), strict=True))
    assert len(found) == len(entries) // range_entries
    for edge, expected in zip(found, [*entries, (1000, 0)][range_entries::range_entries], strict=True):
        assert edge <= expected
        # Where a range ends with a ledger the edge may be there, or where the next entry is.
        assert not [entry for entry in entries if edge <= entry < expected]
