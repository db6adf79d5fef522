"""Every command that reads on Spark, on executors that are processes of their own: the answers and the files of one process."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pulsar_admin as pa
from bench.generate import generate
from bench.spark_jobs import COMMANDS, answer_of
from pulsar_admin.store.engine.spark import SparkEngine
from pulsar_admin.store.engine.spark_session import SparkOptions, open_session
from pulsar_admin.store.transfer.imports import ImportOptions
from tests.conftest import Cli
from tests.stores import import_standalone

pytestmark = pytest.mark.cluster
TOPIC, COMPACTED = "public/default/generated-0", "public/default/generated-1"
KINDS = (
    "--topics 3 --entries 20000 --rate 100 --keys 1000 --message-size 64..512 --producers 3 --clocks steady,fast,future "
    "--interceptors timestamp,index --subscriptions 1 --delayed 1% --event-time"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Pulsar's data, a store of it with a compacted topic, and one of its logs alone."""
    folder = tmp_path_factory.mktemp("equal")
    generate(folder / "data", *KINDS.split())
    import_standalone(folder / "data", folder / "store", ImportOptions(), lambda _: None)
    with pa.open_store(folder / "store", writable=True) as store:
        store.apply(store.topic(COMPACTED).compaction().run())
    pa.import_cluster(folder / "lost", bookies=[str(folder / "data" / "bookkeeper" / "current")])
    return folder


@pytest.fixture(scope="module")
def engine() -> Iterator[SparkEngine]:
    """Two executors of one core."""
    with open_session(SparkOptions(master="local-cluster[2,1,1024]")) as session:
        yield SparkEngine(session)


@pytest.mark.parametrize("command", COMMANDS, ids=["-".join(command.split()[:2]) for command in COMMANDS])
def test_a_command_answers_as_one_process(
    whole_cli: Cli, made: Path, engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    opened: list[object] = []

    @contextmanager
    def open_engine(settings: object) -> Iterator[SparkEngine]:
        opened.append(settings)
        yield engine

    monkeypatch.setattr("pulsar_admin.engine.open_engine", open_engine)
    out, stdout = tmp_path / "out", tmp_path / "stdout"
    names = {
        "topic": COMPACTED if "compaction verify" in command else TOPIC,
        "out": str(out),
        "logs": str(made / "data" / "bookkeeper" / "current"),
    }
    words = [word.format_map(names) if word.startswith("{") else word for word in shlex.split(command)]
    store = made / "store"
    if "recover" in command:
        store, words = made / "lost", [*words, "--cluster", "eu"]
    answers = []
    for how in (("--jobs", "1"), ("--spark",)):
        shutil.rmtree(out, ignore_errors=True)
        found = whole_cli("--store", store, *words, *how)
        stdout.write_text(found.stdout)
        answers.append((found.exit_code, answer_of(stdout, out)))
    assert opened
    assert answers[0][0] in (0, 1, 5)
    assert answers[1] == answers[0]
