"""A standalone cluster whose workers see neither the checkout nor the program's Python: what is sent, asked, refused, and survived.

Its workers live in mount namespaces, which takes root on Linux: ``make test-spark``.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from bench.generate import generate
from pulsar_admin.store.db.environment import open_store
from tests.conftest import Cli
from tests.spark.servers import Cluster, bare_python, libraries_alone

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).parents[2]
CONF = ("--spark-conf", "spark.executor.memory=512m", "--spark-conf", "spark.executor.cores=1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Cluster]:
    """A master and two workers, whose ``python3`` has the libraries; ``hidden`` is a directory that they find empty."""
    home, hidden = folder / "home", folder / "hidden"
    home.mkdir()
    hidden.mkdir()
    environment = libraries_alone(folder)
    python = Path(environment.pop("PYSPARK_PYTHON"))
    environment |= {"HOME": str(home), "PATH": f"{python.parent}:{os.environ['PATH']}"}
    code = [ROOT / name for name in ("pulsar_admin", "store", "commands", "tests")]
    started = Cluster(folder, environment, hidden=(*code, hidden))
    yield started
    started.close()


@pytest.fixture(scope="module")
def made(folder: Path) -> Path:
    """Three entry logs of 64 MB, which is fifty slices or more with little memory."""
    generate(folder / "made", "--topics", "3", "--entries", "60000", "--log-size-limit", "64M")
    return folder / "made"


def _command(store: Path, *words: object) -> list[str]:
    return [str(word) for word in (sys.executable, "-m", "pulsar_admin", "--store", store, *words)]


def _on(cluster: Cluster, store: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a command on the cluster, in a process of its own that says nothing of a Python."""
    kept = {name: text for name, text in os.environ.items() if name != "PYSPARK_PYTHON"}
    words = (*words, "--spark-master", cluster.url, *CONF)
    return subprocess.run(_command(store, *words), env=kept, capture_output=True, text=True, check=False)


def _one_error(found: subprocess.CompletedProcess[str]) -> tuple[str, str]:
    """Return the error and the hint of a command that ended with exit code 7, and said nothing else."""
    said = found.stderr.splitlines()
    assert found.returncode == 7, found.stderr
    assert found.stdout == ""
    assert [line.split(":")[0] for line in said] == ["error", "hint"], found.stderr
    return said[0], said[1]


def test_a_python_without_packages(cluster: Cluster, demo_store: Path, tmp_path: Path) -> None:
    """A hidden directory has the same Python without what the environment adds."""
    python = bare_python(tmp_path / "bare")
    settings = ("--spark-conf", f"spark.pyspark.python={python}", "--spark-conf", "spark.executorEnv.PYTHONPATH=/none")
    error, hint = _one_error(_on(cluster, demo_store, "sql", "select max(payload) from messages", *settings))
    named = "no numpy, pyarrow, numba, cramjam, google-crc32c, msgspec, lmdb, protobuf, duckdb in "
    assert error.startswith(f"error: a Spark worker lacks a package: {named}{python}, Python 3.")
    assert f"(on {os.uname().nodename})" in error
    assert "pip install numpy==" in hint


def test_files_that_workers_do_not_see(cli: Cli, cluster: Cluster, folder: Path, demo_store: Path) -> None:
    source, store = folder / "hidden" / "standalone", folder / "hidden-store"
    generate(source, "--topics", "2", "--entries", "2000")
    assert cli.on(store, f"store import standalone {source}").exit_code == 0
    here = cli.on(store, "ledgers verify -o jsonl")
    error, hint = _one_error(_on(cluster, store, "ledgers", "verify"))
    assert error.endswith(f".log: No such file or directory (on {os.uname().nodename})")
    assert hint.startswith(
        "hint: every machine that reads or writes has to see it: name a path that they share, or a URL; "
    )
    target = folder / "hidden" / "dumped"
    error, hint = _one_error(_on(cluster, demo_store, "topics", "dump", "--all-topics", "--directory", target))
    assert error.endswith(f"{target}.unfinished/.lock: No such file or directory (on {os.uname().nodename})")
    assert hint.startswith("hint: every machine that reads or writes has to see it: name a path that they share")
    assert [*target.parent.iterdir()] == [source]
    there = _on(cluster, store, "ledgers", "verify", "-o", "jsonl", "--spark-local-fallback")
    assert (there.returncode, there.stdout) == (0, here.stdout), there.stderr
    assert "read on this machine instead" in there.stderr


def _in_the_middle(errors: IO[str]) -> None:
    """Return when the command says that it has done a part, and not more than two thirds, of its work."""
    for line in errors:
        shown = json.loads(line)
        if shown.get("done", 0) > 0:
            assert shown["done"] < shown["total"] * 2 / 3, "most of the job was done before anything could be killed"
            return
    raise AssertionError("the command ended")


def _rows(path: Path) -> list[tuple[str, bytes, bytes]]:
    with open_store(path) as store, store.read() as txn:
        return [(name, key, bytes(row)) for name in ("entries", "times") for key, row in txn.items(name)]


def _kept(folder: Path) -> dict[str, int]:
    """Return the files below a folder, with their inodes."""
    return {str(path.relative_to(folder)): path.stat().st_ino for path in folder.rglob("*") if path.is_file()}


def test_a_worker_is_killed_and_the_other_compiles_nothing_again(
    cli: Cli, cluster: Cluster, folder: Path, made: Path, tmp_path: Path
) -> None:
    """The last test: the cluster has one worker from then on."""
    store = tmp_path / "spark"
    options = ("--spark-master", cluster.url, *CONF, "--memory", "200M", "--progress", "json")  # small slices
    command = _command(store, "store", "import", "standalone", made, *options)
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        try:
            assert running.stderr is not None
            _in_the_middle(running.stderr)
            cluster.kill(cluster.workers[0])
            said = [json.loads(line) for line in running.stderr if line.startswith("{")]
            running.wait(timeout=300)
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 0, said
    assert [line["failedSlices"] for line in said if line.get("finished")] == [0]
    assert cli.on(tmp_path / "here", f"store import standalone {made}").exit_code == 0
    assert _rows(store) == _rows(tmp_path / "here")
    compiled = _kept(folder / "home")
    assert any(name.endswith(".nbc") for name in compiled)
    here = cli.on(store, "store check --deep -o json")
    there = _on(cluster, store, "store", "check", "--deep", "-o", "json", "--quiet")
    assert (there.returncode, there.stdout, there.stderr) == (here.exit_code, here.stdout, here.stderr)
    assert _kept(folder / "home") == compiled
