"""A standalone cluster on loopback: a worker that is killed in the middle of a job costs time, no row."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.scan.local import LocalEngine
from store.scan.operations import ReadEntries
from store.scan.slices import Cut, local_files, plan_slices
from tests.worlds import world

pytestmark = [pytest.mark.spark, pytest.mark.deep]
_PROGRAM = """
import sys, time
from store.scan.operations import ReadEntries
from store.scan.slices import Cut, local_files, plan_slices
from store.scan.spark import SparkEngine
from store.scan.spark_session import SparkOptions, open_session

class Slow(ReadEntries):
    def run(self, piece):
        time.sleep(0.3)  # so that there is a middle
        yield from super().run(piece)

conf = (("spark.cores.max", "2"), ("spark.executor.cores", "1"), ("spark.executor.memory", "512m"))
with open_session(SparkOptions(master=sys.argv[1], conf=conf)) as session:
    print("open", flush=True)
    engine = SparkEngine(session)
    pieces = plan_slices(local_files(sys.argv[2:]), Cut(200_000))
    found = dict(engine.run(Slow(columns=("ledger_id", "entry_id", "offset")), pieces, lambda piece: None))
    assert not engine.failed, engine.failed
    print(len(pieces), sum(len(found[piece]) for piece in pieces), flush=True)
"""


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


class Cluster:
    """One master, two workers, each a process group of its own."""

    def __init__(self, folder: Path) -> None:
        import pyspark

        self._home = Path(pyspark.__file__).parent
        self._folder = folder
        self.url = f"spark://127.0.0.1:{_free_port()}"
        self.processes = [self._start("master.Master", "--port", self.url.rpartition(":")[2], "--webui-port", "0")]
        self._wait()
        self.processes += [
            self._start("worker.Worker", "-c", "1", "-m", "1g", "--webui-port", "0", self.url) for _ in "ab"
        ]

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        folder = self._folder / f"{name}-{_free_port()}"
        folder.mkdir()
        command = [
            str(self._home / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{name}",
            "--host",
            "127.0.0.1",
            *arguments,
        ]
        settings = {"SPARK_HOME": str(self._home), "PYSPARK_PYTHON": sys.executable, "SPARK_WORKER_DIR": str(folder)}
        return subprocess.Popen(
            command,
            env=os.environ | settings,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _wait(self) -> None:
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", int(self.url.rpartition(":")[2])), timeout=1).close()
            except OSError:
                time.sleep(0.2)
            else:
                return
        raise AssertionError("the master does not start")

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a process and its executors with -9."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path)
    yield started
    for process in started.processes:
        started.kill(process)


def test_a_killed_worker_changes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    logs = sorted((world("small") / "clean" / "bookkeeper" / "current").glob("*.log"))
    copies = [str(shutil.copy(log, tmp_path / log.name)) for log in logs]
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, cluster.url, *copies],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "open\n"
    time.sleep(6)
    assert program.poll() is None, "the job was over before the worker was killed"
    cluster.kill(cluster.processes[-1])
    out, errors = program.communicate(timeout=300)
    pieces = plan_slices(local_files(copies), Cut(200_000))
    rows = sum(len(table) for _, table in LocalEngine(1).run(ReadEntries(), pieces, lambda _: None))
    assert out.split() == [str(len(pieces)), str(rows)], errors[-3000:]
