"""What appends entries, ``topics load`` or a policy of a topic, killed: the store is as it was or as it should be, and the same command
finishes the job."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.cli import run
from pulsar_admin.store.changes import plan as base
from pulsar_admin.store.changes.log_writer import WrittenLedgers
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.doctor.checking import check_store
from pulsar_admin.store.index.own_logs import LogWriter
from tests.conftest import Cli
from tests.crash.killing import killing
from tests.stores import copied

TOPIC = "public/default/batched"


POLICED, BEFORE_MS, AFTER_MS = "acme/policies/late", 13_000, 3_000


def killed(arguments: list[str], owner: Any, name: str, before: bool) -> None:
    """Run the command line in a child that ends itself before or after the step NAME of OWNER."""
    child = os.fork()
    if child == 0:
        import pulsar_admin.store.changes.log_writer as writer

        step = killing(getattr(owner, name), before=before)
        setattr(writer if name == "apply_plan" else owner, name, step)
        run(arguments)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


def problems_of(store: Path) -> list[str]:
    with open_store(store) as opened:
        return [finding.code for finding in check_store(opened) if finding.is_problem]


@pytest.mark.parametrize(
    ("owner", "name", "before"),
    [
        (LogWriter, "_append_columns", False),
        (WrittenLedgers, "index", True),
        (WrittenLedgers, "index", False),
        (base, "apply_plan", False),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_killed_anywhere(owner: Any, name: str, before: bool, cli: Cli, tmp_path: Path) -> None:
    store = copied("small", "clean", tmp_path)
    dump = ("topics", "dump", TOPIC, "--level", "entries")
    lines = cli("--store", store, *dump).stdout
    (tmp_path / "a.jsonl").write_text(lines)
    load = ["--store", str(store), "topics", "load", str(tmp_path / "a.jsonl"), "-q"]
    killed(load, owner, name, before)
    after = cli("--store", store, *dump).stdout
    loaded = name == "apply_plan"
    assert len(after.splitlines()) == len(lines.splitlines()) * (1 + loaded)
    assert problems_of(store) == []
    assert cli(*load).exit_code == 0
    assert len(cli("--store", store, *dump).stdout.splitlines()) == len(lines.splitlines()) * (2 + loaded)


@pytest.mark.parametrize(
    ("owner", "name"),
    [(LogWriter, "_append"), (base, "_apply"), (base, "apply_plan")],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_policy_is_the_old_one_or_the_new_one(owner: Any, name: str, cli: Cli, tmp_path: Path) -> None:
    store = copied("policies", "clean", tmp_path)
    change = ["--store", str(store), "topics", "set-delayed-delivery", POLICED, "-e", "-t", "3s", "-q"]
    asked = ("--store", store, "topics", "get-delayed-delivery", POLICED, "-o", "json")
    killed(change, owner, name, False)
    assert cli(*asked).json["tickTime"] == (AFTER_MS if name == "apply_plan" else BEFORE_MS)
    assert problems_of(store) == []
    assert cli(*change).exit_code == 0
    assert cli(*asked).json["tickTime"] == AFTER_MS
