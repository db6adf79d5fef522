"""Spark Connect: a server on loopback whose Python has the libraries that executors need, and not our packages."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from bench.generate import generate
from pulsar_admin.store.engine import spark_session
from pulsar_admin.store.errors import Refused
from tests.conftest import Cli
from tests.spark.servers import ConnectServer, libraries_alone
from tests.spark.test_commands import SKEWED, forget_index_of_skewed
from tests.worlds import world

BULK = [("ledgers", "verify", "-o", "jsonl"), ("topics", "dump", "--all-topics", "--payload", "-o", "jsonl")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    folder = tmp_path_factory.mktemp("connect")
    started = ConnectServer(folder, libraries_alone(folder))
    yield started
    started.close()


def _run(store: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own: a session of Connect and a classic one do not go together."""
    command = [sys.executable, "-m", "pulsar_admin", "--store", store, *words]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


def _rows(path: Path) -> list[tuple[str, bytes, bytes]]:
    from pulsar_admin.store.db.environment import open_store

    with open_store(path) as store, store.read() as txn:
        return [(name, key, bytes(row)) for name in ("entries", "times") for key, row in txn.items(name)]


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.parametrize("words", BULK, ids=" ".join)
def test_connect_answers_as_one_process(
    cli: Cli, server: ConnectServer, demo_store: Path, words: tuple[str, ...]
) -> None:
    """The server's Python does not have our packages: they come with the session."""
    there = _run(demo_store, *words, "--spark-remote", server.url)
    here = cli("--store", demo_store, *words)
    assert (there.returncode, there.stdout, there.stderr) == (here.exit_code, here.stdout, here.stderr)


@pytest.mark.spark
@pytest.mark.deep
def test_import_and_find_without_an_index(cli: Cli, server: ConnectServer, demo_store: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    imported = _run(store, "store", "import", "standalone", world("small") / "clean", "--spark-remote", server.url)
    assert imported.returncode == 0, imported.stderr
    assert _rows(store) == _rows(demo_store)
    forget_index_of_skewed(store)
    found = _run(store, *SKEWED, "--spark-remote", server.url)
    assert found.returncode == 1, found.stderr  # the index, which a broker's answers depend on, lacks ledgers
    expected = cli("--store", demo_store, *SKEWED).json
    answer = json.loads(found.stdout)
    assert (answer["position"], answer["entryTime"]) == (expected["position"], expected["entryTime"])
    here = cli("--store", store, *SKEWED, "--jobs", "2")
    assert (here.exit_code, here.json) == (found.returncode, answer)


_NOTEBOOK = """
import sys
from pulsar_admin.store.scan.operations import topics_option
from pulsar_admin.store.scan.datasource import register
from pulsar_admin.store.engine.spark_session import SparkOptions, open_session

with open_session(SparkOptions(remote=sys.argv[1])) as spark:
    register(spark)
    logs = spark.read.format("pulsar_entries").option("path", sys.argv[3]).option("topics", topics_option(sys.argv[2]))
    messages = logs.option("level", "messages").load().where("topic = 'persistent://acme/iot/skewed'")
    print(messages.dropDuplicates(["ledger_id", "entry_id", "batch_index"]).count())
"""


@pytest.mark.spark
@pytest.mark.deep
def test_pulsar_entries(cli: Cli, server: ConnectServer, demo_store: Path) -> None:
    path = world("small") / "clean" / "bookkeeper" / "current" / "*.log"
    command = [sys.executable, "-c", _NOTEBOOK, server.url, demo_store, path]
    found = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    lines = cli.on(demo_store, "topics read acme/iot/skewed -o jsonl").stdout.splitlines()
    assert found.stdout == f"{len(lines)}\n", found.stderr
    assert len(lines) > 100


def _progress(errors: IO[str]) -> None:
    """Return when the command has done a part of its work."""
    for line in errors:
        if json.loads(line).get("done", 0) > 0:
            return
    raise AssertionError("the command ended")


@pytest.mark.spark
@pytest.mark.deep
def test_ctrl_c_cancels_the_jobs_on_the_server(server: ConnectServer, tmp_path: Path) -> None:
    data, store = tmp_path / "standalone", tmp_path / "store"
    generate(data, "--entries", "100000")
    words = ("store", "import", "standalone", data, "--spark-remote", server.url, "--memory", "200M")
    command = [sys.executable, "-m", "pulsar_admin", "--store", store, "--progress", "json", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stderr is not None
            _progress(running.stderr)
            os.kill(running.pid, signal.SIGINT)
            said = [line for line in running.stderr if not line.startswith("{")]
            running.wait(timeout=60)
        finally:
            running.kill()
    assert running.returncode == 130
    assert re.match(r"warning: import: stopped after [\d,]+ of [\d,]+ bytes; the same command goes on ", said[0]), said
    assert said[-1] == "error: interrupted\n"
    assert "Traceback" not in "".join(said)
    for _ in range(100):
        if "SPARK_JOB_CANCELLED" in server.log():
            break
        time.sleep(0.1)
    else:
        raise AssertionError("the server's jobs were not cancelled")
    again = _run(store, *words[:-2])
    assert again.returncode == 0, again.stderr
    assert _run(tmp_path / "here", "store", "import", "standalone", data).returncode == 0
    assert _rows(store) == _rows(tmp_path / "here")


def test_what_is_no_connect_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something listens there: pyspark itself would try for more than ten minutes."""
    monkeypatch.setattr(spark_session, "_ANSWERS_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"sc://127.0.0.1:{other.getsockname()[1]}"
        with (
            pytest.raises(Refused, match=r"no Spark Connect server answers at sc://127.* did not speak gRPC within 1 "),
            spark_session.open_session(spark_session.SparkOptions(remote=url)),
        ):
            pass


def test_without_a_package_of_connect(demo_store: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['grpc_status'] = None\n")
    with socket.create_server(("127.0.0.1", 0)) as other:
        words = ("ledgers", "verify", "--spark-remote", f"sc://127.0.0.1:{other.getsockname()[1]}")
        found = subprocess.run(
            [sys.executable, "-m", "pulsar_admin", "--store", demo_store, *words],
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert found.returncode == 7, found.stderr
    assert [line.split(":")[0] for line in found.stderr.splitlines()] == ["error", "hint"], found.stderr
    assert found.stderr.startswith("error: Spark Connect lacks a package: [PACKAGE_NOT_INSTALLED] ")
    assert "pip install 'pulsar-admin-toolkit[connect]'" in found.stderr
