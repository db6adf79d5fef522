"""Fixtures that every test may use, and which tests a plain ``pytest`` leaves out."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pulsar_admin.cli import run
from pulsar_admin.config import environment_variables
from tests.soundness import damages_stores, stores_stay_sound
from tests.worlds import copy_tree, world

__all__ = ["damages_stores", "stores_stay_sound"]


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out ``live`` and ``deep`` unless -m asks, ``spark`` where there is no Java, and ``faults`` without a C compiler."""
    absent = set() if config.option.markexpr else {"live", "deep"}
    if shutil.which("java") is None:
        absent.add("spark")
    if shutil.which("cc") is None:
        absent.add("faults")
    left_out = [item for item in items if absent.intersection(mark.name for mark in item.iter_markers())]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    if "PYTEST_XDIST_WORKER" in os.environ:
        _share_out(items)


def _share_out(items: list[pytest.Item]) -> None:
    """Keep a file's tests in one process, for its fixtures, and all of Spark's, for memory: one JVM at a time, and first.

    What takes longest must not begin last. ``--dist loadgroup`` goes by the groups, in the order of the tests.
    """
    for item in items:
        group = "spark" if item.get_closest_marker("spark") else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in environment_variables():
        monkeypatch.delenv(name, raising=False)


class CliResult(NamedTuple):
    """What one command line left behind."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:  # Any: a JSON value
        return json.loads(self.stdout)

    @property
    def json_lines(self) -> list[Any]:  # Any: JSON values
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def error(self) -> Any:  # Any: the error object of ``-o json``
        return json.loads(self.stderr.splitlines()[-1])["error"]


Cli = Callable[..., CliResult]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run the real root command in this process: ``cli("topics", "list", "public/default")``; a bug fails the test."""

    def run_cli(*arguments: object, bug: bool = False) -> CliResult:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        result = CliResult(code, *capsys.readouterr())
        assert bug or code != 70, result.stderr
        return result

    return run_cli


@pytest.fixture(scope="session")
def demo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the examples of help run: ``standalone/`` (the demo's Pulsar) and ``pulsar-store/`` of it.

    Shared by the whole run: take a ``demo_copy`` to change anything.
    """
    folder = tmp_path_factory.mktemp("demo")
    (folder / "standalone").symlink_to(world("small") / "clean")
    with pytest.MonkeyPatch.context() as patch:
        for name in environment_variables():
            patch.delenv(name, raising=False)
        patch.chdir(folder)
        assert run(["--store", "pulsar-store", "--quiet", "store", "import", "standalone", "standalone"]) == 0
    return folder


@pytest.fixture(scope="session")
def demo_store(demo_folder: Path) -> Path:
    """The demo store itself, only to be read."""
    return demo_folder / "pulsar-store"


@pytest.fixture
def demo_copy(demo_folder: Path, tmp_path: Path) -> Path:
    """A demo folder of the test's own, with a store that it may change."""
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "standalone").symlink_to(world("small") / "clean")
    copy_tree(demo_folder / "pulsar-store", folder / "pulsar-store")
    return folder
