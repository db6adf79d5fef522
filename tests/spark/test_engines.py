"""One contract for every engine: the same rows, the same index bytes, bad slices listed. Spark's data source on top."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from hashlib import sha1
from pathlib import Path
from threading import Barrier, Lock
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.db.environment import DATABASES, open_store
from pulsar_admin.store.engine import spark as engine_on_spark
from pulsar_admin.store.engine.local import LocalEngine
from pulsar_admin.store.engine.operation import Engine, Packed
from pulsar_admin.store.engine.slices import Cut, FileRange, plan_slices
from pulsar_admin.store.engine.spark_session import name_jobs
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan import operations
from pulsar_admin.store.scan.operations import ReadEntries, ReadMessages, ScanOptions
from pulsar_admin.store.scan.schemas import ENTRY_SCHEMA
from pulsar_admin.store.scan.sources import source_files
from pulsar_admin.store.sources.cluster import make_layout, open_metadata
from pulsar_admin.store.sources.given_bookies import GivenBookie
from pulsar_admin.store.transfer.imports import ImportOptions, import_layout
from pulsar_admin.store.transfer.refresh import add_sources
from tests.stores import import_standalone, in_store
from tests.test_indexing import MIB, IndexContract, here
from tests.worlds import oracle, world

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


STATES = [("small", "crashed"), ("nometa", "mutated")]
CUTS = [Cut(), Cut(100_000)]


def _logs(name: str, state: str) -> list[Path]:
    return sorted((world(name) / state / "bookkeeper" / "current").glob("*.log"))


def _rows(engine: Engine, files: list[Path], cut: Cut, operation: ReadEntries) -> list[dict[str, Any]]:
    pieces = plan_slices(source_files([str(file) for file in files]), cut)
    finished: list[Any] = []
    found = dict(engine.run(operation, pieces, finished.append))
    assert sorted(finished, key=pieces.index) == pieces
    assert not engine.failed
    return [row for piece in pieces for row in found[piece].to_pylist()]


def _index(path: Path) -> dict[str, list[tuple[bytes, bytes]]]:
    with open_store(path) as store, store.read() as txn:
        return {name: [(key, bytes(row)) for key, row in txn.items(name)] for name in DATABASES if name != "logs"}


def _index_of_cluster(path: Path, options: ImportOptions) -> dict[str, list[tuple[bytes, bytes]]]:
    """Import two bookies at once, the third one later."""
    folder = world("cluster") / "crashed"
    given = [GivenBookie("", "", (folder / f"bookkeeper{number}",)) for number in range(3)]
    import_layout(make_layout(open_metadata(str(folder / "zookeeper")), given[:2]), path, options, lambda _: None)
    in_store(path, lambda store: add_sources(store, make_layout(None, given[2:]), options, lambda _: None))
    return _index(path)


@pytest.fixture(scope="session")
def cluster_index(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[bytes, bytes]]]:
    return _index_of_cluster(tmp_path_factory.mktemp("cluster") / "here", ImportOptions())


@pytest.mark.parametrize(("cores", "answer_bytes", "together"), [(2, 10, 16), (400, 10, 200), (400, 4 << 20, 16)])
def test_jobs_at_once_are_as_many_as_keep_a_cluster_busy(
    cores: int, answer_bytes: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two slices for each core; but where their answers are large, no more than the driver has room for."""
    monkeypatch.setattr(engine_on_spark, "core_count", lambda session: cores)
    lock, running, most = Lock(), 0, 0
    full = Barrier(together)

    def run(self: Any, operation: Any, group: list[FileRange], frame: object) -> list[tuple[FileRange, Packed]]:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if group[0].file_id >= 16:  # the first jobs say how large answers are
            full.wait(60)
        with lock:
            running -= 1
        return [(piece, Packed(bytes(answer_bytes))) for piece in group]

    monkeypatch.setattr(engine_on_spark.SparkEngine, "_run_job", run)
    monkeypatch.setattr(engine_on_spark.SparkEngine, "_frame", lambda *_: None)
    monkeypatch.setattr(engine_on_spark, "prepare_workers", lambda *_, **__: None)  # there is no session
    monkeypatch.setattr(engine_on_spark, "unpack_slice", lambda operation, result: None)
    monkeypatch.setattr(engine_on_spark, "JOB_SLICES", 4)
    pieces = [FileRange("/x", FileKind.ENTRY_LOG, number // 4, 0, 1) for number in range(4 * (16 + 2 * together))]
    found = engine_on_spark.SparkEngine(None, _sums=[]).run(ReadEntries(), pieces, lambda piece: None)  # type: ignore[arg-type]
    assert len(list(found)) == len(pieces)
    assert together <= most <= together + 2  # two more may begin before those that waited for each other have ended


class EngineContract:
    """What every engine does alike; subclasses hand it over as the fixture ``engine``."""

    cuts = CUTS

    @pytest.mark.parametrize(("name", "state"), STATES)
    def test_rows_do_not_depend_on_the_cut(self, engine: Engine, name: str, state: str) -> None:
        files = _logs(name, state)
        whole = _rows(LocalEngine(1), files, Cut(1 << 40), ReadEntries())
        assert len(whole) > 1000
        for cut in self.cuts:
            assert _rows(engine, files, cut, ReadEntries()) == whole

    def test_filters_travel_with_the_slice(self, engine: Engine) -> None:
        recorded = oracle("small")["topics"]["acme/iot/skewed"]
        ledgers = tuple(ledger["ledgerId"] for ledger in recorded["internal_stats"]["ledgers"])
        rows = _rows(
            engine,
            _logs("small", "clean"),
            Cut(300_000),
            ReadEntries(ScanOptions(ledgers=ledgers), ("ledger_id", "entry_id")),
        )
        expected = sorted({(row[0], row[1]) for row in recorded["messages"]})
        assert sorted((row["ledger_id"], row["entry_id"]) for row in rows) == expected
        assert list(rows[0]) == ["ledger_id", "entry_id"]

    def test_an_import_writes_the_same_bytes(self, engine: Engine, tmp_path: Path) -> None:
        source = world("small") / "crashed"
        import_standalone(source, tmp_path / "here", ImportOptions(), lambda _: None)
        import_standalone(source, tmp_path / "engine", ImportOptions(engine=engine), lambda _: None)
        assert _index(tmp_path / "engine") == _index(tmp_path / "here")

    def test_an_import_of_a_cluster_writes_the_same_bytes(
        self, engine: Engine, cluster_index: dict[str, list[tuple[bytes, bytes]]], tmp_path: Path
    ) -> None:
        assert _index_of_cluster(tmp_path / "engine", ImportOptions(engine=engine)) == cluster_index

    def test_a_slice_that_cannot_be_read_is_listed(self, engine: Engine, tmp_path: Path) -> None:
        log = tmp_path / "1.log"
        shutil.copy(_logs("small", "clean")[1], log)
        pieces = plan_slices(source_files([str(log)]), Cut(3 << 20))
        gone = replace(pieces[0], path=str(tmp_path / "2.log"))
        finished: list[Any] = []
        found = dict(engine.run(ReadEntries(), [gone, *pieces], finished.append))
        assert set(found) == set(pieces)
        assert [failed.piece for failed in engine.failed] == [gone]
        assert "2.log" in engine.failed[0].reason
        assert len(finished) == len(pieces) + 1


class TestLocalEngineAlone(EngineContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return LocalEngine(1)


@pytest.fixture(scope="module")
def processes() -> Iterator[LocalEngine]:
    """Started once: each takes a second to import what it runs."""
    with LocalEngine(2) as engine:
        yield engine


class TestLocalEngineInProcesses(EngineContract):
    @pytest.fixture
    def engine(self, processes: LocalEngine) -> Engine:
        processes.failed.clear()
        return processes


@pytest.mark.spark
class TestSparkEngine(EngineContract):
    cuts = [Cut(2 << 20)]  # noqa: RUF012 — every slice is a task, and a task costs a tenth of a second

    @pytest.fixture
    def engine(self, spark: SparkSession) -> Engine:
        from pulsar_admin.store.engine.spark import SparkEngine

        return SparkEngine(spark)


class Frozen(Struct, frozen=True):
    """How many objects the process keeps out of every collection of garbage, when it comes to a slice."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("process", pa.int64()), ("objects", pa.int64())])

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([[os.getpid()], [gc.get_freeze_count()]], schema=self.schema)


@pytest.mark.spark
def test_spark_does_not_look_through_loaded_packages_after_every_task(spark: SparkSession) -> None:
    """Its workers collect garbage after each task, which would take longer than a small slice."""
    from pyspark import cloudpickle

    from pulsar_admin.store.engine.spark import SparkEngine

    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)  # executors cannot import tests
    pieces = [FileRange(f"{number}.log", "entry-log", -1, 0, 1) for number in range(8)]
    try:
        rows = [table.to_pylist()[0] for _, table in SparkEngine(spark).run(Frozen(), pieces, lambda _: None)]
        again = [table.to_pylist()[0] for _, table in SparkEngine(spark).run(Frozen(), pieces, lambda _: None)]
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    known = {row["process"] for row in rows}
    kept = [row["objects"] for row in again if row["process"] in known]
    assert kept
    assert min(kept) > 50_000


@pytest.mark.spark
def test_the_jvm_and_the_sockets_leave_the_cores_to_the_scan(spark: SparkSession) -> None:
    """It collects garbage only when it must, compiles quickly, and does not wait for acknowledgements of TCP."""
    jvm: Any = spark.sparkContext._jvm  # Any: py4j's view of Java's classes
    given = set(jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
    assert {"-XX:TieredStopAtLevel=1", "-XX:+UseParallelGC"} <= given

    def sockets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_arrays([[os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "")]], names=["unix"])

    assert [row.unix.lower() for row in spark.range(1).mapInArrow(sockets, "unix string").collect()] == ["true"]


@pytest.mark.spark
def test_a_topic_cannot_put_a_link_into_the_ui(spark: SparkSession) -> None:
    name_jobs(spark, Frozen(), [FileRange("0.log", FileKind.ENTRY_LOG, -1, 0, 1)], 'a\x1b<a href="//b">&')
    told = spark.sparkContext.getLocalProperty("spark.job.description")
    assert told == 'Frozen of a\\x1b&lt;a href="//b"&gt;&amp;: 1 slice, the first of 0.log'


MESSAGE_TOPICS = ("public/default/batched", "acme/orders/codecs", "acme/iot/skewed", "public/default/plain")


@pytest.mark.parametrize("cut", [Cut(), Cut(300_000)])
def test_messages_are_those_of_the_recording(cut: Cut) -> None:
    """Positions, keys, sizes and digests of every message, as a consumer of the broker got them."""
    topics = oracle("small")["topics"]
    expected: list[Any] = []
    ledgers: list[int] = []
    for name in MESSAGE_TOPICS:
        ledgers += [ledger["ledgerId"] for ledger in topics[name]["internal_stats"]["ledgers"]]
        expected += topics[name]["messages"]
    operation = ReadMessages(ScanOptions(ledgers=tuple(ledgers)), payload=True)
    pieces = plan_slices(source_files([str(file) for file in _logs("small", "clean")]), cut)
    found = [row for _, table in LocalEngine(1).run(operation, pieces, lambda _: None) for row in table.to_pylist()]
    rows = [
        [
            *(row["ledger_id"], row["entry_id"], row["batch_index"], _ms(row["publish_time"]), _ms(row["event_time"])),
            *(
                row["key"] or "",
                row["size"],
                sha1(row["payload"]).hexdigest(),
                dict(row["properties"]),
                row["producer"],
            ),
        ]
        for row in found
    ]
    recorded = [[*row[:6], *row[7:]] for row in expected]
    assert sorted(rows, key=lambda row: row[:3]) == sorted(recorded, key=lambda row: row[:3])


def _ms(time: datetime | None) -> int:
    return 0 if time is None else round(time.timestamp() * 1000)


@pytest.mark.spark
class TestDataSource:
    @pytest.fixture
    def read(self, spark: SparkSession) -> Callable[..., Any]:
        from pulsar_admin.store.scan.datasource import register

        register(spark)

        def load(**options: str) -> Any:  # Any: pyspark's DataFrame
            return spark.read.format("pulsar_entries").options(**options).load()

        return load

    def test_it_has_the_rows_of_the_local_engine(self, read: Callable[..., Any]) -> None:
        files = _logs("small", "clean")
        folder = str(files[0].parent / "*.log")
        expected = _rows(LocalEngine(1), files, Cut(), ReadEntries())
        names = [name for name in ENTRY_SCHEMA.names if name != "path"]
        table: pa.Table = read(path=folder, sliceBytes="2000000").select(*names).toArrow()
        assert table.num_rows == len(expected)
        key = ("ledger_id", "entry_id", "offset")
        found = sorted(table.to_pylist(), key=lambda row: tuple(row[name] for name in key))
        wanted = sorted(expected, key=lambda row: tuple(row[name] for name in key))
        assert found == [{name: row[name] for name in names} for row in wanted]

    def test_options_prune_and_filter(self, read: Callable[..., Any]) -> None:
        recorded = oracle("small")["topics"]["public/default/batched"]
        ledgers = ",".join(str(ledger["ledgerId"]) for ledger in recorded["internal_stats"]["ledgers"])
        folder = str(_logs("small", "clean")[0].parent)
        frame = read(path=folder, ledgers=ledgers, columns="messages,publish_time")
        assert frame.columns == ["messages", "publish_time"]
        assert sum(row.messages for row in frame.collect()) == len(recorded["messages"])

    def test_a_wrong_column_and_a_wrong_path_are_named(self, read: Callable[..., Any]) -> None:
        from pyspark.errors import PySparkException

        with pytest.raises(PySparkException, match="no column"):
            read(path="/nowhere/*.log", columns="nonsense").collect()
        with pytest.raises(PySparkException, match="no entry log at"):
            read(path="/nowhere/*.log").collect()


@pytest.mark.spark
def test_a_stray_module_in_the_working_directory_does_not_break_executors(spark: SparkSession) -> None:
    """Workers put their working directory on sys.path first; PYTHONSAFEPATH keeps the ``pulsar_admin.py`` there out."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pulsar_admin.store.scan import operations

        yield pa.RecordBatch.from_pydict(
            {"beside": [os.path.exists("pulsar_admin.py")], "imported": [operations.__file__]}
        )

    (row,) = spark.range(1, numPartitions=1).mapInArrow(work, "beside boolean, imported string").collect()
    assert row.asDict() == {"beside": True, "imported": operations.__file__}


# -- index rows whose blocks executors packed -----------------------------------------------------------------------

__all__ = ["here"]


@pytest.mark.spark
class TestSpark(IndexContract):
    slice_bytes = (MIB,)

    @pytest.fixture
    def engine(self, spark: SparkSession) -> Engine:
        from pulsar_admin.store.engine.spark import SparkEngine

        return SparkEngine(spark)

    @pytest.mark.parametrize("made", ["generated", "flipped"])
    def test_rows_are_those_of_this_process(
        self, made: str, here: Path, engine: Engine | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:  # what processes find of the other sources, executors send alike
        super().test_rows_are_those_of_this_process(made, here, engine, tmp_path, monkeypatch)
