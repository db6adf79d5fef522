"""A deep check whose engine merges proves the index by digests, and where it cannot compares row by row: the answers are the same."""

import os
import pickle
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from msgspec import field

from pulsar_admin.store.db.blocks import BLOCK_HEADER, block_key, ledger_key
from pulsar_admin.store.db.environment import Txn, create_store, open_store
from pulsar_admin.store.doctor.diagnosing import Look, check_store
from pulsar_admin.store.engine.local import LocalEngine
from pulsar_admin.store.engine.operation import Finished, Reducing
from pulsar_admin.store.engine.slices import Cut, FileRange
from pulsar_admin.store.facts.deep import DeepFacts
from pulsar_admin.store.index import proof
from pulsar_admin.store.index.proof import digest_ledgers
from pulsar_admin.store.index.rebuild import DERIVED
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.sources import index_places
from pulsar_admin.store.sources.rocksdb import apply_changes, create_database, open_for_reading
from pulsar_admin.store.transfer.imports import ImportOptions
from tests.altering import flip
from tests.deep import deep_but_for
from tests.stores import NOW_MS, copied, import_standalone, imported, write_rows
from tests.worlds import CLUSTER, scratch_copy

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
    monkeypatch.setattr("pulsar_admin.store.index.proof.cut_for", lambda _: Cut(600_000))


def _is_proven(path: Path, engine: Merging) -> bool:
    with open_store(path) as store, open_reader(store) as reader:
        found = DeepFacts(reader, lambda _: None, engine).proof
        return found is not None and found.of_index


def _raising(error: Exception) -> Callable[..., str]:
    def raises(*_: object) -> str:
        raise error

    return raises


def _told(path: Path, engine: Merging | None) -> list[tuple[str, str, str]]:
    with open_store(path) as store, open_reader(store) as reader:
        found = check_store(store, deep=True, look=Look(reader, engine))
        return [(one.code, one.where, one.message) for one in found]


def _astray(path: Path) -> dict[str, list[int]]:
    """Return for each database that was read as a whole the ledgers that it is not proven to lead right."""
    with open_store(path) as store, open_reader(store) as reader:
        found = DeepFacts(reader, lambda _: None, Merging()).proof
        assert found is not None
        return {database.parent.parent.name: [*ledgers] for database, ledgers in found.astray.items()}


@deep_but_for((4,), ("name", "state"), WORLDS)
def test_what_was_imported_is_proven(name: str, state: str) -> None:
    engine = Merging()
    assert _is_proven(imported(name, state), engine)
    assert engine.merged_rows > 0


@pytest.mark.parametrize(
    ("name", "bookies"), [("small", ["bookkeeper"]), ("cluster", ["bookkeeper0", "bookkeeper1", "bookkeeper2"])]
)
def test_databases_of_places_are_proven(name: str, bookies: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """So no row of them is read where the store is, and no log a second time."""
    path = imported(name, "clean")
    assert _astray(path) == {bookie: [] for bookie in bookies}
    with open_store(path) as store, open_reader(store) as reader:
        facts = DeepFacts(reader, lambda _: None, Merging())
        assert facts.proof is not None
        monkeypatch.setattr(index_places, "open_links", None)
        assert [*facts.iter_misled()] == []


Rows = dict[bytes, bytes]


def _exchange(rows: Rows) -> dict[bytes, bytes | None]:
    first, second = (key for key in sorted(rows) if key[:8] == ledger_key(9) and key[8:] in (bytes(8), ledger_key(1)))
    return {first: rows[second], second: rows[first]}


DAMAGES: dict[str, tuple[Callable[[Rows], Mapping[bytes, bytes | None]], list[int], bool]] = {
    "places exchanged": (_exchange, [9], True),
    "a place beside": (
        lambda rows: {ledger_key(9) + bytes(8): (int.from_bytes(rows[ledger_key(9) + bytes(8)]) + 1).to_bytes(8)},
        [9],
        True,
    ),
    "a row missing": (lambda rows: {ledger_key(9) + bytes(8): None}, [9], False),
    "a surplus row": (
        lambda rows: {ledger_key(9) + ledger_key(1 << 40): rows[ledger_key(9) + bytes(8)]},
        [9],
        True,
    ),
    "a ledger missing": (lambda rows: {key: None for key in rows if key[:8] == ledger_key(9)}, [], False),
    "rows of a ledger that nothing has": (
        lambda rows: {ledger_key(1 << 40) + bytes(8): rows[ledger_key(9) + bytes(8)]},
        [1 << 40],
        False,
    ),
}


@deep_but_for((0, 2, 3, 4, 5), "damage", [*DAMAGES])
def test_a_database_that_leads_elsewhere(damage: str, tmp_path: Path) -> None:
    source, store = scratch_copy("small", "clean", tmp_path), tmp_path / "s"
    changes, astray, is_told = DAMAGES[damage]
    database = source / "bookkeeper/current/locations"
    with open_for_reading(database) as pairs:
        rows = dict(pairs)
    apply_changes(database, lambda: sorted(changes(rows).items()))
    import_standalone(source, store, ImportOptions(now_ms=NOW_MS), lambda _: None)
    assert _astray(store) == {"bookkeeper": astray}
    told = _told(store, None)
    assert ("index-rows-wrong" in {code for code, _, _ in told}) == is_told
    assert _told(store, Merging()) == told


def test_a_database_of_which_a_block_is_damaged(tmp_path: Path) -> None:
    source, store = scratch_copy(CLUSTER, "clean", tmp_path), tmp_path / "s"
    apply_changes(source / "bookkeeper0/current/locations", list)  # from its log into a table
    import_standalone(source, store, ImportOptions(now_ms=NOW_MS), lambda _: None)
    table = max(source.glob("bookkeeper0/current/locations/*.sst"), key=lambda path: path.stat().st_size)
    flip(table, 20)
    assert _astray(store) == {"bookkeeper1": [], "bookkeeper2": []}
    told = _told(store, None)
    assert "bookie-index-unreadable" in {code for code, _, _ in told}
    assert _told(store, Merging()) == told


@pytest.mark.parametrize(
    ("place", "answer", "said"),
    [
        ("database_state", lambda _: "another", "its files are not those that are here"),
        (
            "read_place_sums",
            _raising(ModuleNotFoundError("No module named 'rocksdict'")),
            "No module named 'rocksdict'",
        ),
    ],
)
def test_a_database_that_an_executor_does_not_read(
    place: str,
    answer: Callable[..., str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path, told = imported("small", "clean"), _told(imported("small", "clean"), None)
    answers = [getattr(proof, place)] if place == "database_state" else []  # the first is asked where the store is
    monkeypatch.setattr(proof, place, lambda *given: (answers.pop() if answers else answer)(*given))
    with caplog.at_level(
        "WARNING", "pulsar_admin.store.engine.workers"
    ):  # --quiet of a command before may have turned it off
        assert _told(path, Merging()) == told
    (line,) = caplog.messages
    assert line.endswith(f"locations: {said} where an executor looks: it is read on this machine")


def test_sums_of_ranges_are_those_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables overlap, and a row in several of them counts once."""
    random, rows = Random(3), dict[bytes, bytes]()
    create_database(tmp_path / "d", [])
    for number in range(3):  # of more tables RocksDB would make one, sooner or later
        more = {
            ledger_key(random.randrange(number, number + 3)) + ledger_key(random.randrange(500)): random.randbytes(8)
            for _ in range(400)
        }
        apply_changes(tmp_path / "d", lambda more=more: sorted(more.items()))
        rows |= more
    monkeypatch.setattr(index_places, "_RANGE_BYTES", 1)
    ranges = index_places.cut_database(tmp_path / "d")
    sums, with_rows = Counter[int](), 0
    for first, end in ranges:
        ledgers, values = index_places.read_place_sums(tmp_path / "d", first, end)
        with_rows += len(ledgers) > 0
        for ledger, value in zip(ledgers.tolist(), values.tolist(), strict=True):
            sums[ledger] += value
    assert with_rows == 3
    whole = np.array([struct.unpack(">qqq", key + value) for key, value in rows.items()])
    np.random.default_rng(1).shuffle(whole)
    expected = zip(*index_places.sum_places(*whole.T), strict=True)
    assert {one: value % 2**64 for one, value in sums.items()} == {
        int(one): int(value) % 2**64 for one, value in expected
    }


def test_sums_of_a_range_without_rows(tmp_path: Path) -> None:
    """A new bookie's database is whole, and so is a range of which all rows were deleted."""
    create_database(tmp_path / "d", [])
    rows = {ledger_key(ledger) + bytes(8): bytes(8) for ledger in (3, 5, 2**63 - 1)}

    def ledgers(first: int | None, end: int | None) -> list[int]:
        edges = (b"" if edge is None else ledger_key(edge) for edge in (first, end))
        return [*map(int, index_places.read_place_sums(tmp_path / "d", *edges)[0])]

    assert ledgers(None, None) == []
    apply_changes(tmp_path / "d", lambda: sorted(rows.items()))
    assert (ledgers(None, 3), ledgers(3, 4), ledgers(4, 5), ledgers(6, None)) == ([], [3], [], [2**63 - 1])
    apply_changes(tmp_path / "d", lambda: [(min(rows), None)])
    assert (ledgers(None, 5), ledgers(None, None)) == ([], [5, 2**63 - 1])
    apply_changes(tmp_path / "d", lambda: [(key, None) for key in sorted(rows)])
    assert ledgers(None, None) == []


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
@pytest.mark.usefixtures("damages_stores")
def test_a_row_that_is_another(name: str, database: str, key: bytes, place: int, tmp_path: Path) -> None:
    path = copied(name, "clean", tmp_path)

    def change(txn: Txn) -> None:
        value = bytearray(txn.get(database, key) or b"")
        value[place] ^= 1
        if place < 0:
            txn.delete(database, key)
        else:
            txn.put(database, key, bytes(value))

    write_rows(path, change)
    assert not _is_proven(path, Merging())
    told = _told(path, None)
    assert "index-differs" in {code for code, _, _ in told}
    assert _told(path, Merging()) == told


def test_copies_that_are_others(tmp_path: Path, damages_stores: None) -> None:
    path = Path(shutil.copytree(imported("cluster", "clean"), tmp_path / "s"))

    def drop(txn: Txn) -> None:
        txn.delete("copies", next(key for key, _ in txn.items("copies")))

    write_rows(path, drop)
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
