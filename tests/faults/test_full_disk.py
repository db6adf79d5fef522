"""A real disk that fills up: a small tmpfs, mounted by root, filled to a few sizes of room before each command.

Each command ends with 0 or with 8 (no room), never with another code; the store opens and is sound, in the old state or the new one;
with room again the same command finishes.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.sources.rocksdb import open_for_reading
from tests.faults.states import empty_bookie_index
from tests.reclaiming import CURRENT, entries, half_dead_bookie, listed_ledgers
from tests.stores import copied
from tests.worlds import copy_tree, world

pytestmark = [
    pytest.mark.deep,
    pytest.mark.usefixtures("damages_stores"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system"),
]
DISK_BYTES = 192 << 20
ROOMS = [0, 4096, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 3 << 20, 8 << 20]
NO_ROOM = 8

CHANGES: dict[str, tuple[object, ...]] = {
    "skip": ("topics", "skip", "public/default/plain", "-s", "half", "-n", 3),
    "set-retention": ("namespaces", "set-retention", "public/default", "-t", "5h", "-s", "-1"),
    "set-message-ttl": ("topics", "set-message-ttl", "public/default/plain", "-t", "90s"),
    "delayed build": ("delayed", "build", "acme/delayed/reminders", "-s", "workers"),
    "index": ("store", "index", "--rebuild"),
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """An empty tmpfs of ``DISK_BYTES``."""
    mount = tmp_path / "disk"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", mount], check=True)
    try:
        yield mount
    finally:
        subprocess.run(["umount", "-l", mount], check=True)


def leave_room(disk: Path, room_bytes: int) -> None:
    """Fill DISK but for ROOM_BYTES."""
    found = os.statvfs(disk)
    filler = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT)
    os.posix_fallocate(filler, 0, found.f_bavail * found.f_frsize - room_bytes)
    os.close(filler)


def run_in(room_bytes: int, disk: Path, store: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a command line while DISK has ROOM_BYTES left; it ends with 0 or for want of room."""
    leave_room(disk, room_bytes)
    done = run(store, *words)
    (disk / "filler").unlink()
    assert done.returncode in (0, NO_ROOM), (room_bytes, done.returncode, done.stderr)
    return done


def run(store: Path, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pulsar_admin", "--store", str(store), "-o", "json", "-y", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)


def log_of(store: Path) -> list[Any]:  # Any: JSON
    found: list[Any] = json.loads(run(store, "store", "log").stdout)
    return found


def check(store: Path) -> None:
    done = run(store, "store", "check", "--deep")
    assert not [row for row in json.loads(done.stdout) if row["severity"] == "problem"], done.stdout


@pytest.mark.parametrize("name", CHANGES)
def test_changes(name: str, disk: Path, tmp_path: Path) -> None:
    outcomes = set()
    for number, room in enumerate(ROOMS):
        folder = disk / str(number)
        folder.mkdir()
        store = copied("small", "clean", folder)
        before = log_of(store)
        done = run_in(room, disk, store, *CHANGES[name])
        outcomes.add(done.returncode)
        after = log_of(store)
        assert after[: len(before)] == before
        if done.returncode == NO_ROOM:
            assert after == before
            again = run(store, *CHANGES[name])
            assert again.returncode == 0, (room, again.stderr)
        check(store)
        subprocess.run(["rm", "-rf", folder], check=True)
    assert outcomes == {0, NO_ROOM}


def test_import(disk: Path) -> None:
    outcomes = set()
    for number, room in enumerate(ROOMS):
        store = disk / f"s{number}"
        words = ("store", "import", "standalone", world("small") / "clean")
        done = run_in(room, disk, store, *words)
        outcomes.add(done.returncode)
        if done.returncode == NO_ROOM:
            assert run(store, *words).returncode == 0
        check(store)
        subprocess.run(["rm", "-rf", store], check=True)
    assert outcomes == {0, NO_ROOM}


def test_export(disk: Path, tmp_path: Path) -> None:
    """The target is whole or not there; what was there before stays."""
    data = tmp_path / "data"
    subprocess.run(["cp", "-r", world("small") / "clean", data], check=True)
    store = tmp_path / "s"
    assert run(store, "store", "import", "standalone", data).returncode == 0
    assert run(store, *CHANGES["skip"]).returncode == 0
    outcomes = set()
    for room in [*ROOMS, 64 << 20]:
        target = disk / "out"
        done = run_in(room, disk, store, "store", "export", "standalone", target)
        outcomes.add(done.returncode)
        assert target.exists() == (done.returncode == 0)
        again = run(store, "store", "export", "standalone", target) if done.returncode else done
        assert again.returncode == 0, (room, again.stderr)
        subprocess.run(["rm", "-rf", target], check=True)
        left = [entry.name for entry in disk.iterdir() if not entry.name.endswith(".pulsar-admin")]
        assert left == []
    assert outcomes == {0, NO_ROOM}


def test_reclaim(disk: Path, tmp_path: Path) -> None:
    """From 0 free bytes on: what is dead as a whole goes first, and every live entry is where the index says whenever it ends."""
    made = half_dead_bookie(tmp_path / "made")
    alive = listed_ledgers(made / "metadata")
    before = entries(made / CURRENT, alive)
    for number, room in enumerate(ROOMS):
        data = disk / str(number)
        copy_tree(made, data)
        words = ("store", "reclaim", data / "bookkeeper", "--metadata", data / "metadata", "--below", "99")
        leave_room(disk, room)
        done = run(tmp_path / "none", *words)
        assert done.returncode == 0, (room, done.returncode, done.stderr)
        assert entries(data / CURRENT, alive) == before
        (disk / "filler").unlink()
        subprocess.run(["rm", "-rf", data], check=True)


def test_reclaim_where_nothing_is_dead_as_a_whole(disk: Path, tmp_path: Path) -> None:
    """Without room nothing is done, and what lacks is told; with another disk it is done all the same."""
    made = half_dead_bookie(tmp_path / "made")
    metadata = ("--metadata", made / "metadata")
    assert run(tmp_path / "none", "store", "reclaim", made / "bookkeeper", *metadata, "--below", "0").returncode == 0
    alive = listed_ledgers(made / "metadata")
    before = entries(made / CURRENT, alive)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for number, room in enumerate(ROOMS[:4]):
        data = disk / str(number)
        copy_tree(made, data)
        words = ("store", "reclaim", data / "bookkeeper", *metadata, "--below", "99")
        leave_room(disk, room)
        done = run(tmp_path / "none", *words)
        assert done.returncode == 1, (room, done.returncode, done.stderr)
        assert "--scratch DIR" in done.stderr
        assert entries(data / CURRENT, alive) == before
        done = run(tmp_path / "none", *words, "--scratch", scratch)
        assert done.returncode == 0, (room, done.returncode, done.stderr)
        assert json.loads(done.stdout)["compactedLogs"] > 0
        assert entries(data / CURRENT, alive) == before
        assert not list(scratch.iterdir())
        (disk / "filler").unlink()
        subprocess.run(["rm", "-rf", data], check=True)


def test_salvage(disk: Path, tmp_path: Path) -> None:
    """Each database is the old one or the new; with room again the salvage ends where an undisturbed one does."""
    store, bookie = tmp_path / "s", disk / "data" / "bookkeeper"
    assert run(store, "store", "import", "standalone", world("small") / "clean").returncode == 0
    before = index_of(world("small") / "clean" / "bookkeeper")
    outcomes = set()
    for room in ROOMS:
        copy_tree(world("small") / "clean", disk / "data")
        empty_bookie_index(str(disk / "data"))
        done = run_in(room, disk, store, "store", "salvage", bookie)
        outcomes.add(done.returncode)
        assert all(rows in ({}, before[name]) for name, rows in index_of(bookie).items())
        assert run(store, "store", "salvage", bookie).returncode == 0
        assert index_of(bookie) == before
        left = {entry.name for entry in (bookie / "current").iterdir() if "salvag" in entry.name}
        assert left == {"locations-before-salvage", "ledgers-before-salvage"}
        subprocess.run(["rm", "-rf", disk / "data"], check=True)
    assert outcomes == {0, NO_ROOM}


def index_of(bookie: Path) -> dict[str, dict[bytes, bytes]]:
    """The rows of the bookie's two databases."""
    found = {}
    for name in ("locations", "ledgers"):
        with open_for_reading(bookie / "current" / name) as pairs:
            found[name] = dict(pairs)
    return found


def test_clone(disk: Path, tmp_path: Path) -> None:
    """The clone is whole or not there."""
    store, outcomes = tmp_path / "s", set()
    assert run(store, "store", "import", "standalone", world("small") / "clean").returncode == 0
    for room in [*ROOMS, 64 << 20]:
        done = run_in(room, disk, store, "store", "clone", disk / "out")
        outcomes.add(done.returncode)
        assert (disk / "out").exists() == (done.returncode == 0)
        again = run(store, "store", "clone", disk / "out") if done.returncode else done
        assert again.returncode == 0, (room, again.stderr)
        assert run(tmp_path / f"copy{room}", "store", "import", "standalone", disk / "out").returncode == 0
        check(tmp_path / f"copy{room}")
        subprocess.run(["rm", "-rf", disk / "out"], check=True)
    assert outcomes == {0, NO_ROOM}
