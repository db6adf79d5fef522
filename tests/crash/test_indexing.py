"""``store import``, ``store index --rebuild`` and ``store refresh`` killed with SIGKILL: the same command goes on where it was."""

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import Struct

from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.files import LogFile, delete_log, iter_logs
from pulsar_admin.store.transfer.imports import ImportOptions
from tests.altering import flip
from tests.conftest import Cli
from tests.crash.forking import RunChild, forking_server
from tests.faults.states import lose_rows
from tests.reference_index import assert_index_is_right
from tests.stores import import_standalone, write_rows
from tests.test_refresh import become, contents_of, rows_of
from tests.worlds import copy_tree, scratch_copy, world

SCRATCH = "rebuild.unfinished"
# Read here and written by other processes in turn; each test ends with the tool's own deep check instead.
pytestmark = pytest.mark.usefixtures("damages_stores")


class Run(Struct):
    """What a run of the tool did: its exit code, and the slices that were scanned: (path, first byte, end)."""

    code: int
    slices: list[tuple[str, int, int]]

    @property
    def bytes(self) -> int:
        return sum(end - start for _, start, end in self.slices)


Start = Callable[..., Run]


@pytest.fixture(scope="module")
def run_child() -> Iterator[RunChild]:
    with forking_server("slices") as server:
        yield server


@pytest.fixture
def run(run_child: RunChild, tmp_path: Path) -> Start:
    """Run a command line in a child, killed at a place when that was passed some times."""

    def run_killed(arguments: list[str], where: str = "", left: int = 0) -> Run:
        record = tmp_path / "slices.jsonl"
        record.write_text("")
        engine = "spark" if "--spark" in arguments else "processes" if "--jobs" in arguments else "in this process"
        code = run_child((where, left, str(record), engine), arguments)
        assert code in (0, -signal.SIGKILL)
        return Run(code, [tuple(json.loads(line)) for line in record.read_text().splitlines()])

    return run_killed


def catalogue(path: Path) -> dict[str, LogFile]:
    """Return file name → row of what the store at PATH has of its files so far."""
    if not (path / "store.json").exists():
        return {}
    with open_store(path, unfinished=True) as store, store.read() as txn:
        return {Path(log.path).name: log for log in iter_logs(txn)}


def missing_bytes(source: Path, rows: dict[str, LogFile]) -> int:
    """Return how many bytes of the bookie's files below SOURCE the catalogue ROWS do not cover."""
    missing = 0
    for file in (source / "bookkeeper/current").iterdir():
        if file.suffix in (".log", ".txn"):
            status, row = file.stat(), rows.get(file.name)
            missing += status.st_size
            if row is not None:
                is_whole = not row.unfinished and (row.size_bytes, row.mtime_ns) == (status.st_size, status.st_mtime_ns)
                missing -= row.size_bytes if is_whole else row.next_offset
    return missing


CRASHED = world("small") / "crashed"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store that an import of ``CRASHED`` makes which nothing stops: its index is right."""
    path = tmp_path_factory.mktemp("whole") / "s"
    import_standalone(CRASHED, path, ImportOptions(now_ms=1), lambda _: None)
    assert_index_is_right(path)
    return path


@pytest.fixture(scope="module")
def outdated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A source that became ``CRASHED``, which nobody may change, and a store of what it was before."""
    folder = tmp_path_factory.mktemp("outdated")
    source = scratch_copy("small", "clean", folder)
    import_standalone(source, folder / "s", ImportOptions(now_ms=1), lambda _: None)
    become(source, CRASHED)
    return source, folder / "s"


@pytest.fixture(scope="module")
def damaged(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of ``CRASHED`` whose index lacks rows that its files have."""
    path = tmp_path_factory.mktemp("damaged") / "s"
    copy_tree(whole, path)
    lose_rows(str(path))
    return path


PROCESSES = ["--jobs", "2"]
SPARK = ["--spark", "--spark-master", "local[2]"]
FIRST = ("inside a transaction", 1)
"""Where nothing is committed yet."""
STOPS = [
    (*FIRST, []),
    ("after a transaction", 3, []),
    ("inside a transaction", 4, PROCESSES),
    pytest.param("inside a transaction", 4, [], marks=pytest.mark.deep),
    pytest.param("after a transaction", 1, PROCESSES, marks=pytest.mark.deep),
    pytest.param("after a transaction", 3, SPARK, marks=[pytest.mark.spark, pytest.mark.deep]),
]
"""What is stopped where: the place, how often it is passed, and what scans; each phase once, the rest in ``deep``."""


@pytest.mark.parametrize(("where", "left", "engine"), [*STOPS, ("owners", 0, [])])
def test_import(where: str, left: int, engine: list[str], run: Start, tmp_path: Path, cli: Cli, whole: Path) -> None:
    path = tmp_path / "s"
    arguments = ["--store", str(path), "store", "import", "standalone", str(CRASHED), "-q"]
    assert run([*arguments, *engine], where, left).code == -9
    missing = missing_bytes(CRASHED, catalogue(path))
    assert (missing == missing_bytes(CRASHED, {})) == ((where, left) == FIRST)
    # Another JVM would know no more of what is missing: what Spark began this process ends.
    again = run(arguments if engine == SPARK else [*arguments, *engine])
    assert (again.code, again.bytes) == (0, missing)
    assert contents_of(path) == contents_of(whole)
    assert cli("--store", path, "store", "check", "--deep").exit_code == 0


def test_files_that_change_while_an_import_is_stopped(run: Start, tmp_path: Path, cli: Cli) -> None:
    """What nothing was read of may vanish, and is told where lastMark is not past it; a file that was begun may grow, but not become
    another one."""
    source, path = scratch_copy("small", "crashed", tmp_path), tmp_path / "s"
    arguments = ["--store", str(path), "store", "import", "standalone", str(source), "-q"]
    assert run(arguments, "after a transaction", 3).code == -9
    rows = catalogue(path)
    journals = [name for name, row in rows.items() if row.kind == "journal" and row.unfinished and not row.next_offset]
    (begun,) = (name for name, row in rows.items() if row.unfinished and row.next_offset)
    (source / "bookkeeper/current" / journals[-1]).unlink()
    log = source / "bookkeeper/current" / begun
    good = log.read_bytes()
    log.write_bytes(bytes(2048) + good[2048:])
    cli(*arguments, "-o", "json").fails(6, "source-changed", begun)
    log.write_bytes(good)
    answer = cli(*arguments, "-o", "json").ends(1)
    assert [journals[-1] in doubt for doubt in answer.json["doubts"]] == [True]
    import_standalone(source, tmp_path / "whole", ImportOptions(now_ms=1), lambda _: None)
    assert contents_of(path) == contents_of(tmp_path / "whole")


@pytest.mark.parametrize(
    ("where", "left", "engine"),
    [
        ("inside a transaction", 4, []),
        ("before the last", 0, []),
        ("owners", 0, []),
        pytest.param("inside a transaction", 4, PROCESSES, marks=pytest.mark.deep),
    ],
)
def test_refresh(
    where: str,
    left: int,
    engine: list[str],
    run: Start,
    tmp_path: Path,
    cli: Cli,
    outdated: tuple[Path, Path],
    whole: Path,
) -> None:
    source, old = outdated
    path = tmp_path / "s"
    copy_tree(old, path)
    before = missing_bytes(source, catalogue(path))
    arguments = ["--store", str(path), "store", "refresh", "-q", *engine]
    assert run(arguments, where, left).code == -9
    missing = missing_bytes(source, catalogue(path))
    assert (missing == before) == ((where, left) == FIRST)
    # Metadata names no entry before it is indexed: nobody is told of losses that there are none of.
    found = cli("--store", path, "store", "check", "--deep", "-o", "jsonl").json_lines
    assert {row["code"] for row in found if row["severity"] == "problem"} <= {"file-damaged", "refresh-unfinished"}
    again = run(arguments)
    assert (again.code, again.bytes) == (0, missing)
    assert contents_of(path) == contents_of(whole)
    assert [change["command"] for change in cli.json(path, "store log")] == ["store refresh"]
    assert cli("--store", path, "store", "check", "--deep").exit_code == 0


@pytest.mark.parametrize(("where", "left", "engine"), [*STOPS[:2], ("inside the last", 0, [])])
def test_rebuild(
    where: str, left: int, engine: list[str], run: Start, tmp_path: Path, cli: Cli, damaged: Path, whole: Path
) -> None:
    path = tmp_path / "s"
    copy_tree(damaged, path)
    old = rows_of(path)
    arguments = ["--store", str(path), "store", "index", "--rebuild", "-q", *engine]
    assert run(arguments, where, left).code == -9
    assert rows_of(path) == old
    missing = missing_bytes(CRASHED, catalogue(path / SCRATCH))
    assert (missing == missing_bytes(CRASHED, {})) == ((where, left) == FIRST)
    assert (missing == 0) == (where == "inside the last")
    again = run(arguments)
    assert (again.code, again.bytes) == (0, missing)
    assert not (path / SCRATCH).exists()
    assert rows_of(path) == rows_of(whole)
    assert cli("--store", path, "store", "check", "--deep").exit_code == 0


@pytest.mark.parametrize("change", ["options", "a file", "the catalogue", "half removed"])
def test_a_stopped_rebuild_is_not_taken_up_when_something_changed(change: str, run: Start, tmp_path: Path) -> None:
    source, path = scratch_copy("small", "crashed", tmp_path), tmp_path / "s"
    import_standalone(source, path, ImportOptions(now_ms=1), lambda _: None)
    lose_rows(str(path))
    arguments = ["--store", str(path), "store", "index", "--rebuild", "-q"]
    assert run(arguments, "after a transaction", 5).code == -9
    whole = missing_bytes(source, {})
    assert missing_bytes(source, catalogue(path / SCRATCH)) < whole
    if change == "options":
        arguments.append("--no-checksums")
    elif change == "a file":
        log = source / "bookkeeper/current/1.log"
        flip(log, -100)
    elif change == "the catalogue":
        gone = next(log for log in catalogue(path).values() if log.kind == "journal")
        write_rows(path, lambda txn: delete_log(txn, gone.file_id))
        whole -= gone.size_bytes
    else:
        shutil.rmtree(path / SCRATCH / "meta")
        (path / SCRATCH / "store.json").unlink()
    again = run(arguments)
    assert (again.code, again.bytes) == (0, whole)
