"""``topics set-delayed-delivery`` killed at every step: the old policy or the new one, and the same command finishes the job."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.cli import run
from pulsar_admin.store.changes import plan as base
from pulsar_admin.store.changes.log_writer import LogWriter
from pulsar_admin.store.check import check_store
from pulsar_admin.store.db.environment import open_store
from tests.conftest import Cli
from tests.crash.killing import killing
from tests.stores import copied

TOPIC = "acme/policies/late"
BEFORE, AFTER = 13_000, 3_000


STEPS = [
    (LogWriter, "_append", False),
    (base, "_apply", False),
    (base, "apply_plan", False),
]


@pytest.mark.parametrize(("owner", "name", "before"), STEPS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_killed_anywhere(owner: Any, name: str, before: bool, cli: Cli, tmp_path: Path) -> None:
    store = copied("policies", "clean", tmp_path)
    change = ["--store", str(store), "topics", "set-delayed-delivery", TOPIC, "-e", "-t", "3s", "-q"]

    def tick_ms() -> int:
        found: int = cli("--store", store, "topics", "get-delayed-delivery", TOPIC, "-o", "json").json["tickTime"]
        return found

    child = os.fork()
    if child == 0:
        import pulsar_admin.store.changes.log_writer as writer

        killed = killing(getattr(owner, name), before=before)
        setattr(writer if name == "apply_plan" else owner, name, killed)
        run(change)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert tick_ms() == (AFTER if name == "apply_plan" else BEFORE)
    with open_store(store) as opened:
        assert [finding.code for finding in check_store(opened) if finding.is_problem] == []
    assert cli(*change).exit_code == 0
    assert tick_ms() == AFTER
