"""``topics load`` killed at every step: the store is as it was or as it should be, and the same command finishes the job."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.cli import run
from pulsar_admin.store.changes import plan as base
from pulsar_admin.store.changes.log_writer import LogWriter, WrittenLedgers
from pulsar_admin.store.check import check_store
from pulsar_admin.store.db.environment import open_store
from tests.conftest import Cli
from tests.crash.killing import killing
from tests.stores import copied

TOPIC = "public/default/batched"


STEPS = [
    (LogWriter, "_append_columns", False),
    (WrittenLedgers, "index", True),
    (WrittenLedgers, "index", False),
    (base, "apply_plan", False),
]


@pytest.mark.parametrize(("owner", "name", "before"), STEPS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_killed_anywhere(owner: Any, name: str, before: bool, cli: Cli, tmp_path: Path) -> None:
    store = copied("small", "clean", tmp_path)
    dump = ("topics", "dump", TOPIC, "--level", "entries")
    lines = cli("--store", store, *dump).stdout
    (tmp_path / "a.jsonl").write_text(lines)
    load = ["--store", str(store), "topics", "load", str(tmp_path / "a.jsonl"), "-q"]
    child = os.fork()
    if child == 0:
        import pulsar_admin.store.changes.log_writer as writer

        killed = killing(getattr(owner, name), before=before)
        setattr(writer if name == "apply_plan" else owner, name, killed)
        run(load)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    after = cli("--store", store, *dump).stdout
    loaded = name == "apply_plan"
    assert len(after.splitlines()) == len(lines.splitlines()) * (1 + loaded)
    with open_store(store) as opened:
        assert [finding.code for finding in check_store(opened) if finding.is_problem] == []
    assert cli(*load).exit_code == 0
    assert len(cli("--store", store, *dump).stdout.splitlines()) == len(lines.splitlines()) * (2 + loaded)
