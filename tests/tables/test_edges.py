"""Where ranges of the table ``entries`` begin, beside counting one entry after the other."""

import random
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from pulsar_admin.store.errors import DiskFull, InvalidValue, LimitExceeded, Refused, Unsupported
from pulsar_admin.store.tables import folder, making, rows, sql
from pulsar_admin.store.tables.folder import Folder, TableFile
from pulsar_admin.store.tables.making import plan_edges
from pulsar_admin.store.tables.parquet import write_part
from pulsar_admin.store.tables.schemas import TABLES
from tests.at_bounds import MADE_TOPIC, Answers, N, Texts, asking


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


ANSWERS: Answers = {
    folder.Folder.size: [((N(is_remote=False, at=str), "none"), None)],
    rows._micros: [((1,), 1000), ((253_402_300_799_999,), 253_402_300_799_999_000), ((253_402_300_800_000,), None)],
    sql._is_unicode: [(("\ud800",), False), (("\udfff",), False), (("\ud7ff\ue000",), True)],
    rows._ledger_ranges: [((MADE_TOPIC, 4, 6), [(7, 4, 4), (9, 0, 0)])],
    folder._part_of: [
        (({"path": "p", "rows": 1, "bytes": 2, "sha256": "s", "ledgers": [first, 5]}, "w"), answer)
        for first, answer in ((5, TableFile("p", 1, 2, "s", (5, 5))), (6, ValueError))],
    rows.cluster_name: [((None, name), InvalidValue)
        for name in ("\ud800", "\udfff")] + [((None, "\ud7ff\ue000"), "\ud7ff\ue000")],
    sql._raise: [((duckdb.OutOfMemoryException("x"),), LimitExceeded), ((duckdb.IOException("x"),), DiskFull),
        ((duckdb.PermissionException("x"),), Refused), ((duckdb.InternalException("x"),), Unsupported)],
    sql._check_name: [(("a//b",), None)],
}  # fmt: skip
REFUSED: Texts = {
    sql._check_name: [(("a/b/c",), "no row has the topic 'a/b/c'")],
    folder._part_of: [
        (({"path": path}, "t"), "t.path: expected a file of this directory") for path in ("a/../b", "s3://a/b")],
    folder._typed: [((1, "t", str), "t: expected ")],
    making.run_pieces: [((N(engine=N(run=lambda *of: (), failed=[N(out_of_memory=is_full, reason=reason,
        piece=N(path="p"), error=lambda: N(message="it failed"))])), None, (), None), said) for is_full, reason, said in (
        (True, "it does not see p", "it failed"), (False, "it does not see p", "it does not see p"), (False, "", "it failed"))],
    rows.cluster_name: [((None, ""), "'' is no name of a cluster"), ((None, "\ud800"), "is no name of a cluster")],
    sql.Database.split: [((None, "\udcff"), "the statement is not UTF-8")],
    sql._raise: [
        ((duckdb.PermissionException("no"),), "a statement here reads no files"),
        ((duckdb.InternalException("x"),), "failed: x")],
}  # fmt: skip
test_at_bounds = asking(ANSWERS, refused=REFUSED)
