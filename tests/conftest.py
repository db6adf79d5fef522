"""Fixtures that every test may use, and which tests a plain ``pytest`` leaves out."""

import gc
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from pulsar_admin.cli import run
from pulsar_admin.config import environment_variables
from pulsar_admin.store.names import shell_word
from pulsar_admin.typable import PROGRAM
from tests.both_ways import run_kernels_both_ways
from tests.soundness import damages_stores, stores_stay_sound
from tests.stores import copied
from tests.worlds import changed_oracles, copy_tree, world

__all__ = ["damages_stores", "stores_stay_sound"]

run_kernels_both_ways()
# No test is timed: on a loaded machine examples take long to make and to run. Few examples find what is wrong in kind; `make fuzz` looks
# for the rare ones, on the same decoders.
settings.register_profile("untimed", deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

_WORLDS = "live worlds"
_OF_WORLDS = {f"tests/live/test_{name}.py" for name in ("cluster", "reading", "round_trip", "time_rules")}
"""What takes the worlds of ``tests/live/conftest.py``, which are made once a process."""
_LONG = (
    *("tests/faults/test_faults.py", "tests/test_dump.py", "tests/test_lost_logs.py", "tests/test_docs.py"),
    *("tests/transcript/", "tests/test_clusters.py", "tests/tables/", "tests/crash/", "tests/test_coverage.py"),
    *("tests/test_machine_code.py", "tests/test_disk.py", "tests/sources/", "tests/recovery/", "tests/scan/"),
)
"""Files, and those of folders, that take long and begin early, so that no process is at one when the others have ended."""
_GARBAGE_THRESHOLD = 50_000
_MEMORY = Path("/dev/shm")
_MEMORY_BYTES = 8 << 30


def pytest_configure(config: pytest.Config) -> None:
    """Keep what tests write in memory where there is room: of a disk each commit waits milliseconds for ``fsync``.

    Not what real brokers write: much, and on what they are made for.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        gc.disable()  # until all is collected: nothing of it goes
    live = config.option.markexpr.replace("not live", "")
    if "live" not in live and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
        if "TMPDIR" not in os.environ:  # where the tool builds an index to compare with, and links what RocksDB opens
            folder = os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="tmp-", dir=_MEMORY)
            os.chmod(folder, 0o755)  # as /tmp: all may pass
            Finalize(None, shutil.rmtree, (folder, True), exitpriority=-200)  # behind what multiprocessing leaves there


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out ``live`` and ``deep`` unless -m asks, ``spark`` where there is no Java, and ``faults`` without a C compiler."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
    absent = set() if config.option.markexpr else {"live", "deep"}
    if shutil.which("java") is None:
        absent.add("spark")
    if shutil.which("cc") is None:
        absent.add("faults")
    left_out = [item for item in items if absent.intersection(mark.name for mark in item.iter_markers())]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    if "PYTEST_XDIST_WORKER" in os.environ:  # what takes longest must not begin last
        items.sort(key=lambda item: (_share_of(item.nodeid) != _WORLDS, not item.nodeid.startswith(_LONG)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep Python from looking for garbage among what stays until the end: thousands of tests and all modules."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(_GARBAGE_THRESHOLD, 20, 100)


def pytest_unconfigure() -> None:
    """Let what was kept from the search for garbage go in its order: extensions tell of what they think was leaked."""
    gc.unfreeze()


def _share_of(nodeid: str) -> str:
    """Return what a test goes to a process with: its file, for the fixtures."""
    file = nodeid.partition("::")[0]
    return _WORLDS if file in _OF_WORLDS else file


class _Shares(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return _share_of(nodeid)


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:  # Any: xdist's Producer
    """Share tests out to processes; for ``--dist loadfile``."""
    return _Shares(config, log) if config.option.dist == "loadfile" else None


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are cores: one often waits, for Spark, for a child or for a time to pass."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.fixture(scope="session", autouse=True)
def _answers_stay_as_they_were() -> Iterator[None]:
    yield
    assert changed_oracles() == []


@pytest.fixture(scope="session", autouse=True)
def _no_environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in environment_variables():
            patch.delenv(name, raising=False)
        yield


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

    def ends(self, exit_code: int, *said: str) -> "CliResult":
        """Assert that it ended with EXIT_CODE, and SAID each of these texts on stderr."""
        assert self.exit_code == exit_code, self.stderr
        for text in said:
            assert text in self.stderr
        return self

    def fails(self, exit_code: int, code: str, *said: str) -> "CliResult":
        """Assert that it ended with EXIT_CODE and an error of CODE, whose message has each text of SAID; of ``-o json``."""
        assert (self.exit_code, self.error["code"]) == (exit_code, code), self.stderr
        for text in said:
            assert text in self.error["message"]
        return self


class Cli:
    """Runs the real root command in this process: ``cli("topics", "list", "public/default")``; a bug fails the test."""

    def __init__(self, run_cli: Callable[..., CliResult]) -> None:
        self._run = run_cli

    def __call__(self, *arguments: object, bug: bool = False) -> CliResult:
        return self._run(*arguments, bug=bug)

    def done(self, *arguments: object) -> CliResult:
        """Run a command that has to end with exit code 0."""
        return self(*arguments).ends(0)

    def on(self, store: object, line: str) -> CliResult:
        """Run a command line, its words parted by blanks, on the store of a directory."""
        return self("--store", store, *line.split())

    def json(self, store: object, line: str) -> Any:  # Any: a JSON value
        return self.on(store, f"{line} -o json").json

    def rows(self, store: object, line: str) -> list[Any]:  # Any: JSON values
        return self.on(store, f"{line} -o jsonl").json_lines


@pytest.fixture
def whole_cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line as it is."""

    def run_cli(*arguments: object, bug: bool = False) -> CliResult:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        result = CliResult(code, *capsys.readouterr())
        assert bug or code != 70, result.stderr
        return result

    return Cli(run_cli)


@pytest.fixture
def cli(whole_cli: Cli) -> Cli:
    """As ``whole_cli``, and what commands in the output carry of these arguments (``--store`` and its kind) is left out of them:
    ``tests/test_typable.py`` is about that, and all other tests about the rest."""

    def run_cli(*arguments: object, bug: bool = False) -> CliResult:
        words = [str(argument) for argument in arguments]
        code, stdout, stderr = whole_cli(*words, bug=bug)
        return CliResult(code, without_carried(words, stdout), without_carried(words, stderr))

    return Cli(run_cli)


def without_carried(words: Sequence[str], text: str) -> str:
    """Return what a command line of WORDS printed, without its ``--store``, ``--tables``, ``--now`` and ``--tz`` in the commands in it."""
    given = {option: value for option, value in pairwise(words) if option in ("--store", "--tables", "--now", "--tz")}
    for option in ("--store", "--tables", "--now", "--tz"):
        if option in given:
            is_path = option in ("--store", "--tables") and "://" not in given[option]
            shown = shell_word(os.path.abspath(given[option]) if is_path else given[option])
            text = text.replace(f"{PROGRAM} {option} {shown} ", f"{PROGRAM} ")
    return text


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of the test's own, of the world ``small``, which it may change."""
    return copied("small", "clean", tmp_path)


@pytest.fixture(scope="session")
def demo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the examples of help run: ``standalone/`` (the demo's Pulsar) and ``pulsar-store/`` of it.

    Shared by the whole run: take a ``demo_copy`` to change anything.
    """
    folder = tmp_path_factory.mktemp("demo")
    (folder / "standalone").symlink_to(world("small") / "clean")
    with pytest.MonkeyPatch.context() as patch:
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
