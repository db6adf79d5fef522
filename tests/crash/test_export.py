"""An export in place that is killed at any step: nothing points at what is not there, and the same command finishes."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.codec.dbledger import decode_location_row
from pulsar_admin.store.sources.rocksdb import open_for_reading
from tests.crash.forking import forking_server
from tests.worlds import copy_tree, world

TOPIC = "acme/orders/compacted"
CURRENT = Path("bookkeeper", "current")
LEDGER = 65_712  # behind the source's sequence and the gap
ENTRIES = list(range(11))
NEVER = -1


def light_copy(source: Path, target: Path) -> Path:
    """Copy a data directory but for entry logs and journals, which an export only reads: they are links."""
    (target / CURRENT).mkdir(parents=True)
    copy_tree(source / "metadata", target / "metadata")
    for file in (source / CURRENT).iterdir():
        if file.is_dir():
            copy_tree(file, target / CURRENT / file.name)
        elif file.suffix in (".log", ".txn"):
            (target / CURRENT / file.name).symlink_to(file.resolve())
        else:
            (target / CURRENT / file.name).write_bytes(file.read_bytes())
    return target


def rows_of(database: Path) -> dict[bytes, bytes]:
    problems: list[str] = []
    with open_for_reading(database, problems) as pairs:
        rows = dict(pairs)
    assert problems == []
    return rows


class Target:
    """The three databases of a data directory, and which entries of a ledger the bookie could serve."""

    def __init__(self, root: Path, ledger_id: int) -> None:
        self.metadata = rows_of(root / "metadata")
        self.ledgers = rows_of(root / CURRENT / "ledgers")
        self.locations = rows_of(root / CURRENT / "locations")
        key = ledger_id.to_bytes(8, "big")
        digits = f"{ledger_id:010d}"
        self.has_node = f"/ledgers/{digits[:2]}/{digits[2:6]}/L{digits[6:]}".encode() in self.metadata
        self.has_row = key in self.ledgers
        found = [decode_location_row(*pair, "locations") for pair in self.locations.items() if pair[0].startswith(key)]
        self.entries = sorted(row.entry_id for row in found if self._is_served(root, row))

    def _is_served(self, root: Path, row: Any) -> bool:
        """Whether the record at a place begins with the ledger and entry ids that it should."""
        data = (root / CURRENT / f"{row.log_id:x}.log").read_bytes()
        return data[row.pos : row.pos + 16] == row.ledger_id.to_bytes(8, "big") + row.entry_id.to_bytes(8, "big")


KillAt = Callable[[int, list[str]], bool]


@pytest.fixture(scope="module")
def kill_at() -> Iterator[KillAt]:
    """A function that runs a command line, killed before the given step, and returns whether it died."""
    with forking_server("steps") as run_child:

        def run_killed(step: int, arguments: list[str]) -> bool:
            code = run_child(step, arguments)
            assert code in (0, -signal.SIGKILL)
            return code != 0

        yield run_killed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, kill_at: KillAt) -> Path:
    """A folder with ``data.kept`` and a ``store.kept`` of ``data`` that has a compacted ledger of its own."""
    folder = tmp_path_factory.mktemp("export")
    data = light_copy(world("small") / "clean", folder / "data")
    store = ["--store", str(folder / "store"), "-q"]
    kill_at(NEVER, [*store, "store", "import", "standalone", str(data)])
    kill_at(NEVER, [*store, "compaction", "run", TOPIC, "--format", "legacy", "--from-start"])
    for name in ("data", "store"):
        (folder / name).rename(folder / f"{name}.kept")
    return folder


def _begin(made: Path) -> list[str]:
    """Put data and store where they were; return the command."""
    for name in ("data", "store"):
        shutil.rmtree(made / name, ignore_errors=True)
        shutil.copytree(made / f"{name}.kept", made / name, symlinks=True)
    export = ["store", "export", "standalone", str(made / "data"), "--in-place", "--yes"]
    return ["--store", str(made / "store"), "-q", *export]


def _check(target: Target) -> None:
    """Nothing of the source is gone, and what is known of the new ledger leads to all of it."""
    if target.has_node:
        assert target.has_row
    if target.has_row:
        assert target.entries == ENTRIES
    assert len(target.locations) >= LOCATIONS


LOCATIONS = len(rows_of(world("small") / "clean" / CURRENT / "locations"))


def _kill_at_steps(made: Path, kill_at: KillAt, steps: Iterable[int]) -> int:
    """Kill an export at each of STEPS and run it again; return the first step that it does not have, 0 when all were there."""
    for step in steps:
        command = _begin(made)
        died = kill_at(step, command)
        _check(Target(made / "data", LEDGER))
        kill_at(NEVER, command)
        target = Target(made / "data", LEDGER)
        assert (target.has_node, target.has_row, target.entries) == (True, True, ENTRIES)
        names = {file.name for file in (made / "data").rglob("*")}
        assert not {name for name in names if not RECORDED.fullmatch(name)}, step
        logs = [file for file in (made / "data" / CURRENT).glob("*.log") if not file.is_symlink()]
        assert len(logs) == 1, "what the killed one wrote is used, not written again"
        kill_at(NEVER, [*command[:3], "store", "check"])
        if not died:
            return step
    return 0


RECORDED = re.compile(
    r"metadata|bookkeeper|current|ledgers|locations|CURRENT|IDENTITY|LOCK|VERSION|DIRTY|lastId|lastMark"
    r"|[0-9a-f]+\.(log|txn)|[0-9]{6}\.(log|sst)|(MANIFEST|OPTIONS)-[0-9]{6}"
)


def test_killed_at_some_steps(made: Path, kill_at: KillAt) -> None:
    _kill_at_steps(made, kill_at, (9, 25))


@pytest.mark.deep
def test_killed_at_every_step(made: Path, kill_at: KillAt) -> None:
    assert _kill_at_steps(made, kill_at, range(1, 1000)) > 40
