"""A standalone cluster on loopback: a worker that is killed in the middle of a job costs time, no row."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from bench.generate import generate
from tests.conftest import Cli
from tests.spark.servers import Cluster, bare_python
from tests.spark.test_connect import _rows
from tests.warming import load_kernels

pytestmark = [pytest.mark.spark, pytest.mark.deep]
CONF = ("--spark-conf", "spark.executor.memory=512m", "--spark-conf", "spark.executor.cores=1")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    started = Cluster(folder, {})
    yield started
    started.close()


def _command(store: Path, *words: object) -> list[str]:
    command = [sys.executable, "-m", "pulsar_admin", "--store", store, "--progress", "json", *words]
    return [str(word) for word in command]


def _in_the_middle(errors: IO[str]) -> None:
    """Return when the command says that it has done a part, and not more than two thirds, of its work."""
    for line in errors:
        shown = json.loads(line)
        if shown.get("done", 0) > 0:
            assert shown["done"] < shown["total"] * 2 / 3, "most of the job was done before anything could be killed"
            return
    raise AssertionError("the command ended")


def _killed_in_the_middle(cluster: Cluster, *words: object) -> str:
    """Run the command, kill a worker of CLUSTER, with its executor, in the middle; return what the command said then."""
    options = ("--spark-master", cluster.url, *CONF, "--memory", "200M")  # small slices: so that there is a middle
    with subprocess.Popen(
        _command(*words, *options), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        try:
            _in_the_middle(running.stderr)
            cluster.kill(cluster.workers[0])
            said = running.stderr.read()
            running.wait(timeout=300)
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 0, said
    return said


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three entry logs of 64 MB, which is fifty slices or more; what scans run is compiled, as 200 MB are too few for that."""
    load_kernels()
    folder = tmp_path_factory.mktemp("made") / "standalone"
    words = ("--topics", "3", "--entries", "60000", "--log-size-limit", "64M")
    generate(folder, *words)
    return folder


def test_a_worker_that_is_killed_during_import(cli: Cli, cluster: Cluster, made: Path, tmp_path: Path) -> None:
    said = _killed_in_the_middle(cluster, tmp_path / "spark", "store", "import", "standalone", made)
    assert json.loads(said.splitlines()[-1])["failedSlices"] == 0
    assert cli("--store", tmp_path / "here", "store", "import", "standalone", made).exit_code == 0
    assert _rows(tmp_path / "spark") == _rows(tmp_path / "here")
    assert cli("--store", tmp_path / "spark", "store", "check", "--deep").exit_code == 0


def test_workers_without_our_packages(cli: Cli, cluster: Cluster, demo_store: Path, tmp_path: Path) -> None:
    """A Python on the workers that has nothing installed: one error that names all that is missing."""
    python = bare_python(tmp_path / "bare")
    words = (
        "ledgers",
        "verify",
        "--spark-master",
        cluster.url,
        *CONF,
        "--spark-conf",
        f"spark.pyspark.python={python}",
    )
    found = subprocess.run(_command(demo_store, *words), capture_output=True, text=True, check=False)
    said = [line for line in found.stderr.splitlines() if not line.startswith("{")]
    assert found.returncode == 7, found.stderr
    assert [line.split(":")[0] for line in said] == ["error", "hint"], found.stderr
    named = "no numpy, pyarrow, numba, cramjam, google-crc32c, lmdb, protobuf in "
    assert said[0].startswith(f"error: a Spark worker lacks a package: {named}{python}, Python 3.")
    assert re.search(r"pip install numpy==\S+ pyarrow==\S+ numba==", said[1])
