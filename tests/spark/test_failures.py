"""Slices that fail, processes that die, memory that runs out: the rest is given, what failed is listed with the cause."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pulsar_admin.store.engine.local import LocalEngine
from pulsar_admin.store.engine.memory import bounded, check_memory, slice_bytes
from pulsar_admin.store.engine.operation import Engine
from pulsar_admin.store.engine.slices import SLICE_BYTES, Cut, FileRange, plan_slices
from pulsar_admin.store.errors import LimitExceeded, MissingComponent
from pulsar_admin.store.scan.operations import ReadEntries
from pulsar_admin.store.scan.sources import source_files
from tests.conftest import Cli
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store
from tests.worlds import world

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIECES = [FileRange(f"{number}.log", "entry-log", -1, 0, 100) for number in range(12)]
FATAL = 5


class Counting:
    """Notes each try of a slice in FOLDER, and does HARM at one of them."""

    def __init__(self, folder: str, harm: str) -> None:
        self.folder, self.harm = folder, harm

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("number", pa.int64())])

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        number = int(piece.path.removesuffix(".log"))
        with open(f"{self.folder}/{number}", "ab") as file:
            file.write(b"x")
        if number == FATAL and self.harm == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if number == FATAL and self.harm == "full":
            with bounded(64 << 20):  # no longer: Spark's process serves the next test too
                bytearray(1 << 30)
        if number == FATAL and self.harm == "no client":
            raise MissingComponent("hdfs://name/5.log needs Hadoop's native client")
        if number == FATAL and self.harm == "compiled":  # as numba ends that has too little to compile with
            raise SystemError("error return without exception set")
        yield pa.RecordBatch.from_arrays([[number]], schema=self.schema)


class Summing(Counting):
    """Counts as that, and what it yields is summed by the rest when a number is divided by three."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("rest", pa.int64()), ("total", pa.int64())])

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        for batch in Counting(self.folder, self.harm).run(piece):
            (number,) = batch.column(0).to_pylist()
            yield pa.RecordBatch.from_arrays([[number % 3], [number]], schema=self.schema)

    def merge(self, table: pa.Table) -> pa.Table:
        summed = table.group_by("rest").aggregate([("total", "sum")])
        return pa.table([summed["rest"], summed["total_sum"]], schema=self.schema)


class Deleting:
    """OPERATION, while somebody deletes the file when it comes to the slice WHEN."""

    def __init__(self, operation: ReadEntries, when: FileRange) -> None:
        self.operation, self.when = operation, when

    @property
    def schema(self) -> pa.Schema:
        return self.operation.schema

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        if piece == self.when:
            Path(piece.path).unlink(missing_ok=True)
        yield from self.operation.run(piece)


def _size(path: Path) -> int:
    return path.stat().st_size


def _run(engine: Engine, operation: Counting) -> dict[FileRange, pa.Table]:
    finished: list[FileRange] = []
    found = dict(engine.run(operation, PIECES, finished.append))
    assert sorted(finished, key=PIECES.index) == PIECES
    return found


@pytest.fixture(scope="module")
def processes() -> Iterator[LocalEngine]:
    """Started once, and again when one was killed."""
    with LocalEngine(2) as local:
        yield local


@pytest.fixture(params=["processes", pytest.param("spark", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    if request.param == "processes":
        local: LocalEngine = request.getfixturevalue("processes")
        local.failed.clear()
        yield local
        return
    from pyspark import cloudpickle

    from pulsar_admin.store.engine.spark import SparkEngine

    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)  # executors cannot import tests
    yield SparkEngine(request.getfixturevalue("spark"))
    cloudpickle.unregister_pickle_by_value(module)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        ("killed", r"killed by SIGKILL|worker died again and again"),
        ("full", "out of memory"),
        ("compiled", "out of memory"),
    ],
)
def test_a_slice_that_takes_its_process_with_it(engine: Engine, tmp_path: Path, harm: str, reason: str) -> None:
    """It alone is listed, after a second try; what ran beside it is tried again and gives its result."""
    found = _run(engine, Counting(str(tmp_path), harm))
    assert sorted(PIECES.index(piece) for piece in found) == [number for number in range(12) if number != FATAL]
    assert [failed.piece for failed in engine.failed] == [PIECES[FATAL]]
    assert re.search(reason, engine.failed[0].reason)
    assert engine.failed[0].out_of_memory == (harm != "killed")
    assert (tmp_path / str(FATAL)).stat().st_size == 2


@pytest.mark.spark
def test_an_executor_without_what_a_url_needs_ends_the_command(spark: SparkSession, tmp_path: Path) -> None:
    """This process does not read for it: all would come through one machine, without a word."""
    from pyspark import cloudpickle

    from pulsar_admin.store.engine.spark import SparkEngine

    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    said = rf"on a Spark worker: hdfs://name/5.log needs Hadoop's native client \(on {os.uname().nodename}\)"
    with pytest.raises(MissingComponent, match=said) as raised:
        _run(SparkEngine(spark), Counting(str(tmp_path), "no client"))
    assert "spark.executorEnv.NAME=value" in raised.value.hint
    cloudpickle.unregister_pickle_by_value(module)


def test_a_log_that_is_deleted_while_it_is_read(engine: Engine, tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    shutil.copy(max((world("small") / "clean" / "bookkeeper" / "current").glob("*.log"), key=_size), log)
    pieces = plan_slices(source_files([str(log)]), Cut(500_000))
    operation = ReadEntries(columns=("ledger_id", "entry_id"))
    found = {}
    for piece, table in engine.run(Deleting(operation, pieces[2]), pieces, lambda piece: None):
        found[piece] = table
    assert found
    assert pieces[2] in {failed.piece for failed in engine.failed}
    assert {failed.piece for failed in engine.failed} | set(found) == set(pieces)
    assert not {failed.piece for failed in engine.failed} & set(found)
    assert all(failed.reason.startswith(f"{log} ") or str(log) in failed.reason for failed in engine.failed)
    first = next(failed for failed in engine.failed if failed.piece == pieces[2]).error()
    assert (first.context["path"], first.context["start"], first.context["end"]) == (
        str(log),
        pieces[2].start,
        pieces[2].end,
    )


@pytest.mark.parametrize(
    ("words", "more"),
    [
        (("topics", "skew", "--all-topics"), ("--jobs", "2")),
        (("topics", "dump", "--all-topics"), ()),
        (("topics", "read", "--all-topics"), ()),
        (("ledgers", "verify"), ()),
    ],
    ids=str,
)
def test_the_rest_is_given_when_a_log_is_gone(
    cli: Cli, tmp_path: Path, words: tuple[str, ...], more: tuple[str, ...]
) -> None:
    source = tmp_path / "source"
    shutil.copytree(world("small") / "clean", source)
    store = tmp_path / "store"
    cli.on(store, f"--quiet store import standalone {source}")
    whole = cli("--store", store, *words, "-o", "jsonl").stdout.splitlines()
    gone = max((source / "bookkeeper" / "current").glob("*.log"), key=_size)
    gone.unlink()
    result = cli("--store", store, *words, *more, "-o", "jsonl").ends(1)
    rest = result.stdout.splitlines()
    assert rest
    assert rest != whole
    assert "Traceback" not in result.stderr
    if words[0] == "ledgers":  # says of every entry what is wrong
        assert any(f"{gone.name} is gone" in line for line in rest)
        return
    assert set(rest) & set(whole), "nothing of the other logs"
    said = [json.loads(line) for line in result.stderr.splitlines()]
    named = [line["error"]["context"] for line in said if line.get("error", {}).get("code") == "slice-failed"]
    warned = [line for line in said if f"{gone.name} is gone" in line.get("warning", {}).get("message", "")]
    assert (
        warned if words == ("topics", "read", "--all-topics") else {context["path"] for context in named} == {str(gone)}
    )
    assert all(0 < context["start"] < context["end"] for context in named)


@pytest.mark.parametrize(
    ("words", "enough"), [(("topics", "dump", "public/default/huge"), {}), (("ledgers", "verify"), {"2G": 0})]
)
def test_a_record_larger_than_the_memory(huge_store: Path, words: tuple[str, ...], enough: dict[str, int]) -> None:
    """In processes of their own, as the limit is a process's."""
    for memory, exit_code in {"200M": 8, **enough}.items():
        command = [sys.executable, "-m", "pulsar_admin", "--store", str(huge_store), *words, "--memory", memory]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (result.returncode, "--memory" in result.stderr) == (exit_code, exit_code == 8), result
        assert "Traceback" not in result.stderr


@pytest.fixture(scope="module")
def huge_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one entry of 160 MB: a process of 200M that scans has 2 left, and 144 MiB in reserve."""
    topic = MadeTopic([[Made(CREATED_MS), Made(CREATED_MS, payload=bytes(160_000_000))]])
    return make_store(tmp_path_factory.mktemp("huge") / "store", {"public/default/huge": topic})


def test_processes_stay_for_the_next_run_and_end_with_the_engine(tmp_path: Path) -> None:
    before = set(multiprocessing.active_children())
    with LocalEngine(2) as engine:
        _run(engine, Counting(str(tmp_path), ""))
        first = set(multiprocessing.active_children()) - before
        _run(engine, Counting(str(tmp_path), ""))
        assert set(multiprocessing.active_children()) - before == first
        assert len(first) == 2
        stopped = engine.run(Counting(str(tmp_path), ""), PIECES, lambda piece: None)
        next(stopped)
        stopped.close()  # what it still had to do is not waited for
        assert len(_run(engine, Counting(str(tmp_path), ""))) == len(PIECES)
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize("harm", ["", "killed"])
def test_what_is_merged_lacks_the_failed_slice_alone(engine: Engine, tmp_path: Path, harm: str) -> None:
    finished: list[FileRange] = []
    work = Summing(str(tmp_path), harm)
    rows = pa.concat_tables(engine.reduce(work, PIECES, finished.append, {"rest": 3}))
    lost = FATAL if harm else 0
    expected = {0: 0 + 3 + 6 + 9, 1: 1 + 4 + 7 + 10, 2: 2 + 5 + 8 + 11 - lost}
    assert {row["rest"]: row["total"] for row in work.merge(rows).to_pylist()} == expected
    assert [failed.piece for failed in engine.failed] == ([PIECES[FATAL]] if harm else [])
    assert sorted(finished, key=PIECES.index) == PIECES


def test_slices_follow_from_the_memory() -> None:
    assert slice_bytes(None) == slice_bytes(8 << 30) == SLICE_BYTES
    assert 1 << 20 <= slice_bytes(256 << 20) < slice_bytes(512 << 20) < SLICE_BYTES
    with pytest.raises(LimitExceeded, match="--memory 100M is too small: a process that scans needs 198M"):
        check_memory(100 << 20)
