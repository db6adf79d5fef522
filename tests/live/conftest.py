"""Live worlds, made once a run; nothing here is collected unless ``-m live`` asks for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct

from pulsar_admin.config import environment_variables
from tests.worlds import digest_of

if TYPE_CHECKING:
    from tests.live.cluster import Cluster
    from tests.live.cluster_recipe import ClusterWorld
    from tests.live.recipe import World

PROBES = 500
_SEED = os.environ.get("PULSAR_LIVE_SEED")  # makes a failed run again; a fresh one each run otherwise


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the folder alone unless asked: the modules import a client that only ``make test-live`` installs."""
    asked = config.option.markexpr or ""
    return None if "live" in asked and "not live" not in asked else collection_path.name.startswith("test_") or None


class Live(Struct, frozen=True):
    """A world whose broker has ended, imported twice: into ``store`` by reference and into ``copy`` with its logs.

    ``copy`` stays as it is when the world goes on; ``store`` is the one to change and to export from.
    """

    world: World
    store: Path
    copy: Path
    killed: bool

    def asked(self) -> Asked:
        """Return its unchanged store and what was said."""
        return Asked(self.copy, self.world.said, self.killed)


class Clustered(Struct, frozen=True):
    """A cluster whose processes have ended, imported into ``store``, which stays as it is."""

    world: ClusterWorld
    store: Path

    def asked(self) -> Asked:
        """Return its store and what was said."""
        return Asked(self.store, self.world.said, killed=True)


class Asked(Struct, frozen=True):
    """A store of a world that has ended, and what its broker and clients said before."""

    store: Path
    said: dict[str, Any]
    killed: bool


def import_cluster(cluster: Cluster, store: Path, metadata: object, root: Path | None = None, code: int = 0) -> Any:
    """Import a cluster as its bookies are configured, with METADATA of a directory or an ensemble; ROOT: where its disks were copied."""
    words: list[object] = [word for bookie in cluster.bookies for word in ("--bookie-conf", bookie.configuration)]
    words += ["--root", root] if root else []
    return run_toolkit(store, "store", "import", "cluster", "--zookeeper", metadata, *words, code=code)


def run_toolkit(store: Path, *arguments: object, code: int = 0) -> Any:  # Any: the JSON result of the command
    """One command of the toolkit in a process of its own, as an operator runs it; its decoded JSON result."""
    command = [sys.executable, "-m", "pulsar_admin", "--store", str(store), "-o", "json", *map(str, arguments)]
    environment = {key: value for key, value in os.environ.items() if key not in environment_variables()}
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
    assert finished.returncode == code, f"{arguments}: {finished.returncode}\n{finished.stdout}\n{finished.stderr}"
    return json.loads(finished.stdout)


def _seed() -> int:
    seed = int(_SEED) if _SEED else time.time_ns() % 1_000_000
    print(f"\nPULSAR_LIVE_SEED={seed}")
    return seed


def _live(folder: Path, killed: bool) -> Iterator[Live]:
    from tests.live.recipe import make_world

    world = make_world(folder / "pulsar", _seed(), broker_metadata=not killed, kill=killed, probes=PROBES)
    before = digest_of(world.broker.data)
    for name, mode in (("store", ()), ("copy", ("--copy",))):
        run_toolkit(folder / name, "store", "import", "standalone", world.broker.data, *mode)
    assert digest_of(world.broker.data) == before, "import changed its source"
    yield Live(world, folder / "store", folder / "copy", killed)
    world.broker.kill()


@pytest.fixture(scope="session")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Pulsar's defaults, SIGKILL while written."""
    yield from _live(tmp_path_factory.mktemp("killed"), killed=True)


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Broker entry metadata on, SIGTERM."""
    yield from _live(tmp_path_factory.mktemp("stopped"), killed=False)


@pytest.fixture(scope="session")
def clustered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clustered]:
    """ZooKeeper, three bookies and a broker: the broker and one bookie end with SIGKILL while written, the others with SIGTERM."""
    from tests.live.cluster_recipe import make_cluster_world

    folder = tmp_path_factory.mktemp("clustered")
    world = make_cluster_world(folder / "cluster", _seed(), PROBES)
    before = digest_of(world.cluster.folder)
    import_cluster(world.cluster, folder / "store", world.cluster.zookeeper_data)
    assert digest_of(world.cluster.folder) == before, "import changed its source"
    yield Clustered(world, folder / "store")
    world.cluster.kill()


@pytest.fixture(params=["killed", "stopped"])
def live(request: pytest.FixtureRequest) -> Live:
    """A world of one standalone Pulsar."""
    world: Live = request.getfixturevalue(request.param)
    return world


@pytest.fixture(params=["killed", "stopped", "clustered"])
def asked(request: pytest.FixtureRequest) -> Asked:
    """A world of any kind, only to be read."""
    world: Live | Clustered = request.getfixturevalue(request.param)
    return world.asked()
