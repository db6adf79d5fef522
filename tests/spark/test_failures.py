"""Slices that fail, processes that die, memory that runs out: the rest is given, what failed is listed with the cause."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from store.errors import LimitExceeded
from store.scan.engine_scan import Engine
from store.scan.local import LocalEngine
from store.scan.memory import bounded, check_memory, slice_bytes
from store.scan.slices import SLICE_BYTES, FileRange

PIECES = [FileRange(f"{number}.log", "entry-log", -1, 0, 100) for number in range(12)]
FATAL = 5


@dataclass(frozen=True)
class Counting:
    """Notes each try of a slice in FOLDER, and does HARM at one of them."""

    folder: str
    harm: str

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
        yield pa.RecordBatch.from_arrays([[number]], schema=self.schema)


def _run(engine: Engine, operation: Counting) -> dict[FileRange, pa.Table]:
    finished: list[FileRange] = []
    found = dict(engine.run(operation, PIECES, finished.append))
    assert sorted(finished, key=PIECES.index) == PIECES
    return found


def _tries(folder: Path, number: int) -> int:
    return (folder / str(number)).stat().st_size


@pytest.fixture(params=["processes", pytest.param("spark", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    if request.param == "processes":
        with LocalEngine(2) as local:
            yield local
        return
    from pyspark import cloudpickle

    from store.scan.spark import SparkEngine

    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)  # executors cannot import tests
    yield SparkEngine(request.getfixturevalue("spark"))
    cloudpickle.unregister_pickle_by_value(module)


@pytest.mark.parametrize(
    ("harm", "reason"), [("killed", r"killed by SIGKILL|worker died again and again"), ("full", "out of memory")]
)
def test_a_slice_that_takes_its_process_with_it(engine: Engine, tmp_path: Path, harm: str, reason: str) -> None:
    """It alone is listed, after a second try; what ran beside it is tried again and gives its result."""
    found = _run(engine, Counting(str(tmp_path), harm))
    assert sorted(PIECES.index(piece) for piece in found) == [number for number in range(12) if number != FATAL]
    assert [failed.piece for failed in engine.failed] == [PIECES[FATAL]]
    assert re.search(reason, engine.failed[0].reason)
    assert engine.failed[0].out_of_memory == (harm == "full")
    assert _tries(tmp_path, FATAL) == 2


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


def test_slices_follow_from_the_memory() -> None:
    assert slice_bytes(None) == slice_bytes(8 << 30) == SLICE_BYTES
    assert 1 << 20 <= slice_bytes(256 << 20) < slice_bytes(512 << 20) < SLICE_BYTES
    with pytest.raises(LimitExceeded, match="--memory 100M is too small: a process that scans needs 198M"):
        check_memory(100 << 20)
