"""A deep check whose engine merges proves the index by digests, and where it cannot compares row by row: the answers are the same."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from msgspec import field

from pulsar_admin.store.db.blocks import BLOCK_HEADER, block_key, ledger_key
from pulsar_admin.store.db.environment import Txn, create_store, open_store
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.doctor.diagnosing import check_store
from pulsar_admin.store.engine.local import LocalEngine
from pulsar_admin.store.engine.operation import Finished, Reducing
from pulsar_admin.store.engine.slices import Cut, FileRange
from pulsar_admin.store.index.proof import digest_ledgers, is_index_proven
from pulsar_admin.store.index.rebuild import DERIVED
from pulsar_admin.store.transfer.imports import ImportOptions
from tests.deep import deep_but_for
from tests.stores import NOW_MS, copied, import_standalone, imported
from tests.worlds import scratch_copy

WORLDS = [
    ("small", "clean"),
    ("small", "crashed"),
    ("cluster", "clean"),
    ("cluster", "mutated"),
    ("cluster", "crashed"),
]


class Merging(LocalEngine):
    """Runs slices as if elsewhere, and merges their rows in no order; loses the slices with these numbers."""

    lost: tuple[int, ...] = ()
    merged_rows: int = field(default=0)

    @property
    def merges(self) -> bool:
        return True

    def reduce(
        self, operation: Reducing, pieces: Sequence[FileRange], finished: Finished, merged_by: Mapping[str, int]
    ) -> Iterator[pa.Table]:
        operation, pieces = pickle.loads(pickle.dumps((operation, pieces)))
        kept = [piece for number, piece in enumerate(pieces) if number not in self.lost]
        table = pa.concat_tables([table for _, table in LocalEngine(1).run(operation, kept, finished)])
        table = table.take(pa.array(Random(1).sample(range(len(table)), len(table))))
        (name,) = merged_by
        values = table[name].to_pylist()
        for rest in range(3):
            mine = [hash(value) % 3 == rest for value in values]
            merged = operation.merge(table.filter(pa.array(mine)))
            self.merged_rows += sum(mine) - len(merged)
            yield merged


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulsar_admin.store.index.proof.cut_for", lambda _: Cut(30_000))


def _is_proven(path: Path, engine: Merging) -> bool:
    with open_store(path) as store, store.read() as txn:
        return is_index_proven(txn, [*iter_logs(txn)], engine, lambda _: None)


def _told(path: Path, engine: Merging | None) -> list[tuple[str, str, str]]:
    with open_store(path) as store:
        return [(one.code, one.where, one.message) for one in check_store(store, deep=True, engine=engine)]


@deep_but_for((1, 4), ("name", "state"), WORLDS)
def test_what_was_imported_is_proven(name: str, state: str) -> None:
    engine = Merging()
    assert _is_proven(imported(name, state), engine)
    assert engine.merged_rows > 0


def test_other_rows_have_another_digest(tmp_path: Path) -> None:
    """Rows of few lengths in each database, made of the same few bytes: most have the bytes of another set, one after the other."""
    create_store(tmp_path / "s", now_ms=0, sources=())
    random, rows_by_digest = Random(7), dict[bytes, set[tuple[str, bytes, bytes]]]()
    with open_store(tmp_path / "s", writable=True) as store:
        for _ in range(400):
            rows = {
                (database, ledger_key(0) + bytes(random.randrange(3)), bytes(random.randrange(3)))
                for database in random.sample((*DERIVED, "copies"), random.randint(1, 3))
                for _ in range(random.randint(1, 2))
            }
            rows = {row[:2]: row for row in rows}.values()  # one of a key

            def write(txn: Txn, rows: Collection[tuple[str, bytes, bytes]] = rows) -> None:
                for database in (*DERIVED, "copies"):
                    for key, _ in [*txn.items(database)]:
                        txn.delete(database, key)
                for row in rows:
                    txn.put(*row)

            store.write(write)
            with store.read() as txn:
                (digest,) = digest_ledgers(txn).values()
            assert rows_by_digest.setdefault(digest, {*rows}) == {*rows}
    assert len(rows_by_digest) > 100


def test_a_lost_slice_proves_nothing() -> None:
    path = imported("small", "clean")
    assert not _is_proven(path, Merging(lost=(1,)))
    assert _told(path, Merging(lost=(1,))) == _told(path, None)


@deep_but_for((0,), "name", ["small", "cluster"])
@pytest.mark.parametrize(
    ("database", "key", "place"),
    [("entries", block_key(9, 0), BLOCK_HEADER.size), ("times", ledger_key(9), 104), ("entries", block_key(9, 0), -1)],
)
def test_a_row_that_is_another(
    name: str, database: str, key: bytes, place: int, tmp_path: Path, damages_stores: None
) -> None:
    path = copied(name, "clean", tmp_path)

    def change(txn: Txn) -> None:
        value = bytearray(txn.get(database, key) or b"")
        value[place] ^= 1
        if place < 0:
            txn.delete(database, key)
        else:
            txn.put(database, key, bytes(value))

    with open_store(path, writable=True) as store:
        store.write(change)
    assert not _is_proven(path, Merging())
    told = _told(path, None)
    assert "index-differs" in {code for code, _, _ in told}
    assert _told(path, Merging()) == told


def test_copies_that_are_others(tmp_path: Path, damages_stores: None) -> None:
    path = Path(shutil.copytree(imported("cluster", "clean"), tmp_path / "s"))

    def drop(txn: Txn) -> None:
        txn.delete("copies", next(key for key, _ in txn.items("copies")))

    with open_store(path, writable=True) as store:
        store.write(drop)
    assert not _is_proven(path, Merging())
    assert _told(path, Merging()) == _told(path, None) != []


def test_a_record_that_rotted_since_import(tmp_path: Path) -> None:
    source = scratch_copy("small", "clean", tmp_path)
    import_standalone(source, tmp_path / "s", ImportOptions(now_ms=NOW_MS), lambda _: None)
    log = source / "bookkeeper/current/0.log"
    status, data = log.stat(), bytearray(log.read_bytes())
    data[143_110] ^= 4  # the payload of an entry of ledger 9
    log.write_bytes(data)
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert not _is_proven(tmp_path / "s", Merging())
    told = _told(tmp_path / "s", None)
    assert {"entry-damaged", "index-differs"} <= {code for code, _, _ in told}
    assert _told(tmp_path / "s", Merging()) == told
