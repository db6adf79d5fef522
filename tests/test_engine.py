"""What runs bulk work, and what is said about it: nothing here starts Spark."""

import logging
import os
from collections.abc import Iterator
from contextlib import nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_admin.config import Settings, build_settings
from pulsar_admin.engine import PROCESSES_PAY_BYTES, SparkOnDemand, choose_engine, spark_advice, spark_note
from pulsar_admin.store.engine.local import AHEAD, LocalEngine, start_worker
from pulsar_admin.store.engine.operation import FailedSlice
from pulsar_admin.store.engine.slices import Cut, FileRange, plan_slices
from pulsar_admin.store.engine.spark_session import memory_settings
from pulsar_admin.store.errors import LimitExceeded, MissingComponent, SliceFailed
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan.operations import ReadEntries
from pulsar_admin.store.scan.sources import source_files
from tests.conftest import Cli
from tests.worlds import world


class Said:
    """What is said beside a result."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.topics: tuple[str, ...] = ()
        self.tell, self.warn = self.notes.append, self.warnings.append


def _settings(**given: object) -> Settings:
    return build_settings(given)


@pytest.mark.parametrize(
    ("size_bytes", "cores", "says"),
    [
        (0, 1, ""),
        (100 << 30, 1, ""),
        (400 << 30, 2, "400 GiB to read, about 6 minutes on 2 cores here"),
        (400 << 30, 8, ""),
        (8 << 40, 8, "8,192 GiB to read, about 29 minutes on 8 cores here"),
    ],
)
def test_spark_is_advised_where_it_saves_minutes(size_bytes: int, cores: int, says: str) -> None:
    """600 MiB a second and core: 400 GiB on two are 5.7 minutes."""
    advice = spark_advice(size_bytes, cores)
    assert advice.startswith(says)
    assert bool(advice) == bool(says)


def test_spark_says_when_it_did_not_pay() -> None:
    """At 600 MiB a second, after one to start."""
    said = "Spark took 40 s to start and to read 3,775 MB; without --spark it is about 7 s"
    assert spark_note(3600 << 20, 40) == said
    assert spark_note(3600 << 20, 6.9) == spark_note(0, 40) == ""


def test_spark_did_not_read_what_an_interrupted_command_had_read(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = nullcontext(SimpleNamespace(failed=[], read=None, run=lambda *_: iter(())))
    monkeypatch.setattr("pulsar_admin.engine.open_engine", lambda settings: engine)
    said, left = Said(), FileRange("/logs/1.log", FileKind.ENTRY_LOG, 0, 2_000_000_000, 2_115_000_000)
    with choose_engine(_settings(spark=True), 2_115_000_000, [], said) as choice:
        assert isinstance(choice.engine, SparkOnDemand)
        assert [*choice.engine.run(ReadEntries(columns=("ledger_id",)), [left], lambda _: None)] == []
        choice.engine.started_s -= 30
    assert said.notes == ["Spark took 30 s to start and to read 115 MB; without --spark it is about 1 s"]


@pytest.mark.parametrize(
    ("given", "size_bytes", "kind"),
    [
        ({}, 1000, type(None)),
        ({}, PROCESSES_PAY_BYTES, LocalEngine),
        ({}, 8 << 40, LocalEngine),
        ({"jobs": "1"}, 8 << 40, type(None)),
        ({"jobs": "3"}, 1000, LocalEngine),
        ({"spark": True}, 1000, SparkOnDemand),
    ],
)
def test_the_engine_follows_from_the_size_and_the_options(
    given: dict[str, object], size_bytes: int, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulsar_admin.engine.open_engine", lambda settings: pytest.fail("Spark was started"))
    with choose_engine(_settings(**given), size_bytes, [], Said()) as choice:
        assert type(choice.engine) is kind
        assert ("--spark-master" in choice.advice) == (size_bytes == 8 << 40 and kind is LocalEngine)


def test_what_waiting_for_executors_logs_is_a_warning_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = nullcontext(SimpleNamespace(failed=[], slots=1, read=None))
    monkeypatch.setattr("pulsar_admin.engine.open_engine", lambda settings: engine)
    log, said = logging.getLogger("pulsar_admin.store.engine.workers"), Said()
    monkeypatch.setattr(log, "disabled", False)
    log.setLevel(logging.WARNING)
    with choose_engine(_settings(spark=True), 1000, [], said) as choice:
        assert choice.engine is not None
        assert choice.engine.slots == 1
        log.warning("no executor")
    assert said.warnings == ["no executor"]
    log.warning("nobody's")
    assert said.warnings == ["no executor"]


def test_files_that_a_store_has_of_urls_are_read_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker of a cluster sees the store, which has the journals of a bookie whose logs stay at a URL."""
    given: list[object] = []

    def run(_: object, pieces: list[FileRange], finished: object) -> Iterator[object]:
        given.extend(piece.path for piece in pieces)
        yield from ()

    engine = nullcontext(SimpleNamespace(failed=[], read=None, run=run))
    monkeypatch.setattr("pulsar_admin.engine.open_engine", lambda settings: engine)
    monkeypatch.chdir(tmp_path)
    log = world("small") / "clean" / "bookkeeper" / "current" / "0.log"
    copy = tmp_path / "store" / "remote" / "bucket" / "0" / "0.log"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(log.read_bytes())
    pieces = plan_slices(source_files([str(log), str(copy)]))
    with choose_engine(_settings(spark=True, store="store"), 1000, [], Said()) as choice:
        assert choice.engine is not None
        found = choice.engine.run(ReadEntries(columns=("ledger_id", "entry_id")), pieces, lambda _: None)
        assert [(piece.path, table.num_rows > 0) for piece, table in found] == [(str(copy), True)]
    assert given == [str(log)]


@pytest.mark.parametrize("command", ["store check", "doctor"])
def test_executors_are_asked_before_this_process_works(
    command: str, cli: Cli, demo_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What keeps them from reading is said at once, not after the databases of each bookie were read."""

    def meet(pieces: list[FileRange]) -> None:
        raise MissingComponent(f"slices to read: {len(pieces) > 0}", hint="do something")

    engine = nullcontext(SimpleNamespace(failed=[], read=None, meet=meet))
    monkeypatch.setattr("pulsar_admin.engine.open_engine", lambda settings: engine)
    for name in ("judge_store", "judge_deep"):
        monkeypatch.setattr(
            f"pulsar_admin.store.doctor.diagnosing.{name}", lambda *_, **__: pytest.fail("this process worked")
        )
    cli.on(demo_store, f"{command} --deep --spark").ends(7, "error: slices to read: True\n")


def test_runs_that_take_turns_have_no_more_processes_than_one() -> None:
    """As where the messages of several segments are merged: each is read on when one of its messages is the next."""
    pieces = plan_slices(
        source_files([str(world("small") / "clean" / "bookkeeper" / "current" / "0.log")]), Cut(200_000)
    )
    assert len(pieces) > 2 * 2 * AHEAD
    with LocalEngine(2) as engine:
        runs = [engine.run(ReadEntries(columns=("ledger_id", "entry_id")), pieces, lambda _: None) for _ in range(3)]
        found = [list[object]() for _ in runs]
        for answers in zip(*runs, strict=True):
            assert len(engine._busy) <= 2
            for rows, (piece, table) in zip(found, answers, strict=True):
                rows.append((piece.start, table.num_rows))
        assert len(engine._idle) == 2
    assert sorted(found[0]) == sorted(found[1]) == sorted(found[2])
    assert len(found[0]) == len(pieces)


class Unsendable(ReadEntries, frozen=True):
    """Reads, in a process that has no memory to send an answer."""

    def run(self, piece: FileRange) -> Any:
        if os.getpid() != int(os.environ["ENGINE_TEST_PARENT"]):
            Connection.send_bytes = _out_of_memory  # type: ignore[method-assign]
        return super().run(piece)


def _out_of_memory(*_: object) -> None:
    raise MemoryError


def test_a_slice_whose_answer_cannot_be_sent_is_told(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENGINE_TEST_PARENT", str(os.getpid()))
    log = world("small") / "clean" / "bookkeeper" / "current" / "0.log"
    pieces = plan_slices(source_files([str(log)]), Cut(log.stat().st_size // 2))
    with LocalEngine(2) as engine:
        assert [*engine.run(Unsendable(columns=("ledger_id",)), pieces, lambda _: None)] == []
        assert {one.piece for one in engine.failed} == {*pieces}
        assert all(one.reason.startswith("its process ") for one in engine.failed)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("pays_bytes", "in_processes"), [(1, True), (PROCESSES_PAY_BYTES, False)])
def test_an_import_runs_in_processes_where_they_pay(
    pays_bytes: int, in_processes: bool, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    run = LocalEngine.run

    def watched(engine: LocalEngine, *arguments: Any) -> object:
        asked.append(engine)
        return run(engine, *arguments)

    monkeypatch.setattr("pulsar_admin.engine.PROCESSES_PAY_BYTES", pays_bytes)
    monkeypatch.setattr(LocalEngine, "run", watched)
    cli.done("--store", tmp_path / "store", "store", "import", "standalone", world("small") / "clean")
    assert bool(asked) is in_processes


def test_memory_goes_to_sparks_own_settings() -> None:
    assert memory_settings(None) == {}
    assert memory_settings(256 << 20) == {
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.memoryOverhead": "256m",
    }
    assert memory_settings(2 << 30)["spark.executor.memory"] == "2048m"


def test_memory_reaches_the_processes() -> None:
    with choose_engine(_settings(jobs="2", memory="300M"), 1000, [], Said()) as choice:
        assert isinstance(choice.engine, LocalEngine)
        assert choice.engine.memory_bytes == 300 << 20


def test_how_a_process_ended_is_told() -> None:
    for end, told in (
        (lambda worker: worker.process.kill(), "was killed by SIGKILL (out of memory?)"),
        (lambda worker: worker.connection.close(), "ended with exit code 0"),
    ):
        worker = start_worker(None)
        end(worker)
        worker.process.join()
        assert worker.end() == f"its process {told}"


@pytest.mark.parametrize("kind", [SliceFailed, LimitExceeded])
def test_a_failed_slice_says_from_where_to_where(kind: type) -> None:
    piece: Any = SimpleNamespace(path="0.log", start=10, end=20)
    error = FailedSlice(piece, "gone", kind is LimitExceeded).error()
    assert (type(error), error.context) == (kind, {"path": "0.log", "start": 10, "end": 20, "reason": "gone"})
