"""``delayed build`` killed at every step: the index stays as it was, and the same command makes what an undisturbed one makes."""

import os
import shutil
import signal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.cli import run
from pulsar_admin.store.changes.log_writer import WrittenLedgers
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.delayed import build as building
from pulsar_admin.store.doctor.diagnosing import check_store
from pulsar_admin.store.index.own_logs import LogWriter
from pulsar_admin.store.rules.finding import Finding
from tests.commands.changing import rows_of
from tests.conftest import Cli
from tests.crash.killing import killing
from tests.delayed.test_build import skip
from tests.delayed.world import TOPIC, held, sent, waiting
from tests.stores import copied, read_rows

pytestmark = pytest.mark.usefixtures("damages_stores")  # each test checks its store itself
SUBSCRIPTIONS = ("audit", "workers")
NOW = "2026-11-21T09:30:00Z"


STEPS = [
    (LogWriter, "_append", 2, False, 0),
    (WrittenLedgers, "index", 1, False, 0),
    (building, "put_index", 1, False, 0),
    (WrittenLedgers, "index", 2, True, 1),
    (building, "apply_draft", 2, False, 2),
]
"""What ends the process: whose function, at which call, before it or behind it; how many indexes are made by then."""
MORE_STEPS = [
    (building, "read_drafts", 1, True, 0),
    (building, "finish_draft", 2, False, 0),
    (LogWriter, "_append", 1, True, 0),
    (LogWriter, "_seal", 1, False, 0),
    (building, "put_index", 1, True, 0),
    (building, "apply_draft", 1, False, 1),
    (building, "put_index", 2, False, 1),
]
Step = tuple[Any, str, int, bool, int]


def build_command(path: Path) -> list[str]:
    return ["--store", str(path), "delayed", "build", TOPIC, "--now", NOW, "-q"]


def killed_build(path: Path, step: Step) -> None:
    owner, name, calls, before, _ = step
    child = os.fork()
    if child == 0:
        setattr(owner, name, killing(getattr(owner, name), calls, before=before))
        run(build_command(path))
        os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


def indexes(path: Path) -> dict[bytes, bytes]:
    return rows_of(path, "delayed")["delayed"]


def findings(path: Path) -> list[Finding]:
    with open_store(path) as store:
        return list(check_store(store))


findings_of_whole = cache(findings)


def leaked(cli: Cli, path: Path) -> list[int]:
    rows = cli("--store", path, "ledgers", "orphans", "-o", "jsonl").json_lines
    return [row["ledgerId"] for row in rows if row["reason"] == "leaked-index"]


def strays(path: Path) -> set[Path]:
    """Files of entries that no row of the catalogue names."""
    named = read_rows(path, lambda txn: {Path(log.path).name for log in iter_logs(txn)})
    return {file for file in (path / "entries").iterdir() if file.name not in named}


@pytest.fixture(scope="module", params=[pytest.param(False, marks=pytest.mark.deep), True], ids=["new", "begun"])
def undisturbed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store before the command, and one after it."""
    folder = tmp_path_factory.mktemp("delayed")
    path = copied("small", "clean", folder)
    if request.param:  # indexes that are there, and are to lose messages
        assert run(build_command(path)) == 0
        with open_store(path, writable=True) as store:
            for subscription in SUBSCRIPTIONS:
                skip(store, subscription, 40)
    whole = Path(shutil.copytree(path, folder / "whole"))
    assert run(build_command(whole)) == 0
    return path, whole


@pytest.mark.parametrize(
    "step",
    [*STEPS, *(pytest.param(step, marks=pytest.mark.deep) for step in MORE_STEPS)],
    ids=lambda step: f"{step[1]}-{step[2]}-{'before' if step[3] else 'after'}",
)
def test_killed_anywhere(undisturbed: tuple[Path, Path], step: Step, cli: Cli, tmp_path: Path) -> None:
    prepared, whole = undisturbed
    path = Path(shutil.copytree(prepared, tmp_path / "killed"))
    before, wanted, known = indexes(path), indexes(whole), findings_of_whole(whole)
    assert all(before.get(key) != row for key, row in wanted.items())
    killed_build(path, step)
    after = indexes(path)
    assert sum(after.get(key) == row for key, row in wanted.items()) == step[4]
    assert all(row in (before.get(key), wanted[key]) for key, row in after.items())
    assert cli(*build_command(path)).exit_code == 0
    # Directories, ledger ids and all: what the killed run wrote took no id.
    assert indexes(path) == wanted
    assert leaked(cli, path) == leaked(cli, whole)
    found, stray = findings(path), strays(path)
    assert [one for one in found if one.code != "stray-file"] == known
    assert {one.where for one in found if one.code == "stray-file"} == {str(file) for file in stray}
    if step[1] == "index":  # nothing needs them
        assert stray
        for file in stray:
            file.unlink()
        assert findings(path) == known
    with open_store(path) as store:
        for subscription in SUBSCRIPTIONS:
            still = waiting(store, subscription)
            found = sorted(place for _, *place in held(store, subscription))
            assert found == sorted(list(place) for place in sent("small") if place in still)
