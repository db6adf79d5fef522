"""The files of a dump that executors write: the rows of one process in its order, whatever is read on the driver or run twice."""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pulsar_admin
from pulsar_admin.store.dump import spread
from pulsar_admin.store.dump.files import DumpDirectory
from pulsar_admin.store.dump.source import EntryDump
from pulsar_admin.store.dump.spread import WriteRows
from pulsar_admin.store.dump.written import WrittenFile
from pulsar_admin.store.engine.local import LocalEngine
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.engine.workers import _file_of_each_folder
from pulsar_admin.store.errors import SourceNotFound
from pulsar_admin.store.scan.places import split_places
from tests.stores import imported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Dumped = tuple[dict[str, Any], dict[str, Any], list[str]]  # Any: what a report, and files, have
ON_SPARK = pytest.mark.spark
KINDS = [
    pytest.param("spark", {"payload": True, "value": True}, marks=ON_SPARK, id="spark-messages"),
    pytest.param("spark", {"form": "jsonl", "redact": True, "clock": "publish"}, marks=ON_SPARK, id="spark-jsonl"),
    pytest.param("spark", {"columns": "pulsar-spark"}, marks=ON_SPARK, id="spark-columns"),
    pytest.param("processes", {"level": "entries", "form": "jsonl", "stripped": True}, id="processes-entries"),
]


@pytest.fixture(autouse=True)
def slices_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic is in several batches, and several slices."""
    monkeypatch.setattr("pulsar_admin.store.scan.entries.BATCH_ENTRIES", 20)
    monkeypatch.setattr("pulsar_admin.store.scan.entries.is_small_part", lambda *_: False)
    monkeypatch.setattr("pulsar_admin.store.scan.entries.split_places", lambda places, _: split_places(places, 4_000))
    monkeypatch.setattr("pulsar_admin.store.scan.operations.PIECE_BYTES", 20_000)


def _dump(store: Path, directory: Path, *, jobs: int = 1, spark: SparkSession | None = None, **wanted: Any) -> Dumped:
    """Return the report without what depends on how files are cut, the rows of each directory in order, and the warnings."""
    with warnings.catch_warnings(record=True) as said, pulsar_admin.open_store(store, jobs=jobs, spark=spark) as opened:
        warnings.simplefilter("always")
        report = pulsar_admin.to_json(opened.dump(directory, **wanted))
    assert not directory.with_name(f"{directory.name}.unfinished").exists()
    listed = json.loads((directory / "_manifest.json").read_bytes())["files"]
    there = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    assert {file["path"] for file in listed} | {"_manifest.json"} == there
    assert all(path.stat().st_mode & 0o077 == 0 for path in directory.rglob("*"))
    assert report.pop("files") == len(listed)
    assert report.pop("bytes") == sum((directory / file["path"]).stat().st_size for file in listed)
    del report["directory"]
    rows: dict[str, Any] = {}
    for file in sorted(listed, key=lambda file: file["path"]):
        path = directory / file["path"]
        if path.suffix == ".jsonl":
            found = path.read_text()
            assert found.count("\n") == file["rows"]
        else:
            found = pq.read_table(path, partitioning=None)
            assert len(found) == file["rows"]
        folder = str(path.parent.relative_to(directory))
        before = rows.get(folder)
        if before is not None:
            found = before + found if isinstance(found, str) else pa.concat_tables([before, found])
        rows[folder] = found
    return report, rows, sorted({str(one.message) for one in said})


def _equal(one: Dumped, other: Dumped) -> bool:
    same = one[0] == other[0] and one[2] == other[2] and [*one[1]] == [*other[1]]
    return same and all(rows == other[1][folder] for folder, rows in one[1].items())


@pytest.mark.parametrize(("engine", "wanted"), KINDS)
def test_files_hold_the_rows_of_one_process_in_its_order(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str, wanted: dict[str, Any]
) -> None:
    """Of chunked, transactional, encrypted, batched topics, and one whose clocks jump between days."""
    store = imported("small", "clean")
    here = _dump(store, tmp_path / "here", **wanted)
    how: dict[str, Any] = {"jobs": 2} if engine == "processes" else {"spark": request.getfixturevalue("spark")}
    there = _dump(store, tmp_path / "there", **how, **wanted)
    assert _equal(there, here)
    files = [len([*(tmp_path / name).rglob("part-*")]) for name in ("here", "there")]
    assert files[1] > files[0]
    if "level" in wanted:
        counts = [
            [(topic, sum(map(len, rows))) for topic, rows in EntryDump(tmp_path / name).topics()]
            for name in ("here", "there")
        ]
        assert counts[0] == counts[1]


class KilledOnce:
    """Writes rows; the first process that has written some is killed."""

    def __init__(self, marker: str, rows: WriteRows) -> None:
        self.marker, self.rows = marker, rows

    @property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        made = [*self.rows.run(piece)]
        if os.listdir(self.rows.to.directory):
            try:
                os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        yield from made


@pytest.mark.spark
def test_a_task_is_killed_and_run_again(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import cloudpickle

    store, work = imported("small", "clean"), spread._run_work
    here = _dump(store, tmp_path / "here", level="entries")

    def killing(reader: Any, made: Any, groups: Any, rows: Any, to: Any) -> Any:  # Any: as _run_work
        return work(reader, made, groups, KilledOnce(str(tmp_path / "killed"), rows), to)

    monkeypatch.setattr(spread, "_run_work", killing)
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)  # executors cannot import tests
    try:
        there = _dump(store, tmp_path / "there", spark=spark, level="entries")
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    assert (tmp_path / "killed").exists()
    assert _equal(there, here)


def test_workers_are_asked_for_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for the files that they read, before the first job."""
    asked: dict[str, tuple[str, int]] = {}
    run = LocalEngine.run

    def watched(engine: LocalEngine, operation: Any, pieces: Any, finished: Any) -> Any:  # Any: as LocalEngine.run
        asked.update(_file_of_each_folder(pieces))
        return run(engine, operation, pieces, finished)

    monkeypatch.setattr(LocalEngine, "run", watched)
    _dump(imported("small", "clean"), tmp_path / "d", jobs=2, level="entries", pattern="public/default/plain")
    assert asked[str(tmp_path / "d.unfinished")] == (str(tmp_path / "d.unfinished" / ".lock"), 0)


def test_what_another_machine_wrote_elsewhere(tmp_path: Path) -> None:
    written = WrittenFile(str(tmp_path / "none" / "0.parquet"), 0, rows=1, bytes=1, host="host-3")
    with (
        pytest.raises(SourceNotFound, match=r"^host-3 wrote .*0\.parquet, which this machine does not see"),
        DumpDirectory(tmp_path / "d", "parquet", "auto", "entries") as directory,
    ):
        directory.take("public/default/t", written)
    assert [*tmp_path.iterdir()] == []
