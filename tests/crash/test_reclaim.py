"""``store reclaim`` killed before any step that changes a file: every live entry is where the index says, and the same command finishes."""

import signal
from pathlib import Path

import pytest

from tests.crash.forking import forking_server
from tests.reclaiming import CURRENT, disk_bytes, entries, half_dead_bookie, listed_ledgers
from tests.worlds import copy_tree

NEVER = -1
SAMPLE = 53
"""Of how many steps one is tried where not all are."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return half_dead_bookie(tmp_path_factory.mktemp("reclaim") / "data")


def command(data: Path) -> list[str]:
    return ["store", "reclaim", str(data / "bookkeeper"), "--metadata", str(data / "metadata"), "--yes", "-q"]


def try_steps(made: Path, tmp_path: Path, every: int) -> int:
    """Kill at each EVERY-th step, then run again; return how many steps there are."""
    alive = listed_ledgers(made / "metadata")
    before = entries(made / CURRENT, alive)
    whole = tmp_path / "whole"
    copy_tree(made, whole)
    with forking_server("steps") as run_child:
        assert run_child(NEVER, command(whole)) == 0
        logs = sorted(file.name for file in (whole / CURRENT).glob("*.log*") if file.stat().st_size)
        step = 1
        while True:
            data = tmp_path / f"at{step}"
            copy_tree(made, data)
            ended = run_child(step, command(data))
            assert ended in (0, -signal.SIGKILL)
            assert entries(data / CURRENT, alive) == before, step
            if ended == 0:
                return step
            assert run_child(NEVER, command(data)) == 0
            assert entries(data / CURRENT, alive) == before, step
            left = sorted(file.name for file in (data / CURRENT).glob("*.log*") if file.stat().st_size)
            assert len(left) == len(logs), (step, left)
            # Beside what the undisturbed run leaves there may be files of RocksDB's that it deletes when the bookie starts.
            assert disk_bytes(data / CURRENT) - disk_bytes(whole / CURRENT) < 200_000, step
            step += every


def test_killed_at_some_steps(made: Path, tmp_path: Path) -> None:
    assert try_steps(made, tmp_path, SAMPLE) > 100


@pytest.mark.deep
def test_killed_at_every_step(made: Path, tmp_path: Path) -> None:
    assert try_steps(made, tmp_path, 1) > 100
