"""Live worlds, made once a run; nothing here is collected unless ``-m live`` asks for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_admin.config import environment_variables
from tests.worlds import digest_of

if TYPE_CHECKING:
    from tests.live.recipe import World

PROBES = 500
_SEED = os.environ.get("PULSAR_LIVE_SEED")  # makes a failed run again; a fresh one each run otherwise


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the folder alone unless asked: the modules import a client that only ``make test-live`` installs."""
    asked = config.option.markexpr or ""
    return None if "live" in asked and "not live" not in asked else collection_path.name.startswith("test_") or None


@dataclass(frozen=True, slots=True)
class Live:
    """A world whose broker has ended, imported twice: into ``store`` by reference and into ``copy`` with its logs.

    ``copy`` stays as it is when the world goes on; ``store`` is the one to change and to export from.
    """

    world: World
    store: Path
    copy: Path
    killed: bool


def run_toolkit(store: Path, *arguments: object) -> Any:  # Any: the JSON result of the command
    """One command of the toolkit in a process of its own, as an operator runs it; its decoded JSON result."""
    command = [sys.executable, "-m", "pulsar_admin", "--store", str(store), "-o", "json", *map(str, arguments)]
    environment = {key: value for key, value in os.environ.items() if key not in environment_variables()}
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
    assert finished.returncode == 0, f"{arguments}: {finished.returncode}\n{finished.stdout}\n{finished.stderr}"
    return json.loads(finished.stdout)


@pytest.fixture(scope="session", params=["killed", "stopped"])
def live(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """``killed``: Pulsar's defaults, SIGKILL while written; ``stopped``: broker entry metadata on, SIGTERM."""
    from tests.live.recipe import make_world

    killed = request.param == "killed"
    folder = tmp_path_factory.mktemp(request.param)
    seed = int(_SEED) if _SEED else time.time_ns() % 1_000_000
    print(f"\nPULSAR_LIVE_SEED={seed}")
    world = make_world(folder / "pulsar", seed, broker_metadata=not killed, kill=killed, probes=PROBES)
    before = digest_of(world.broker.data)
    for name, mode in (("store", ()), ("copy", ("--copy",))):
        run_toolkit(folder / name, "store", "import", "standalone", world.broker.data, *mode)
    assert digest_of(world.broker.data) == before, "import changed its source"
    yield Live(world, folder / "store", folder / "copy", killed)
    world.broker.kill()
