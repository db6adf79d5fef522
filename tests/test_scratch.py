"""Scratch directories that a killed process leaves: the next one removes them, those of living processes never."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from pathlib import Path

import pytest

from pulsar_admin import spool
from pulsar_admin.columns import Column
from pulsar_admin.spool import CellSpool
from pulsar_admin.store import files
from pulsar_admin.store.engine.starting import _without_interrupts
from pulsar_admin.store.errors import NotWritable
from pulsar_admin.store.files import Scratch, scratch_directory
from pulsar_admin.store.scan.integer_rows import SortedSpill
from tests.worlds import world

HOLD = "from pulsar_admin.store.files import Scratch; import sys; print(Scratch().path, flush=True); sys.stdin.read()"


@pytest.fixture
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of temporary files, of this process and of those that it starts; as a new process, this one looks for what is left.

    Its name is short, since the sockets of worker processes lie below it.
    """
    path = tmp_path_factory.mktemp("t")
    monkeypatch.setenv("TMPDIR", str(path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    files._remove_left_scratch.cache_clear()
    yield path
    files._remove_left_scratch.cache_clear()


def holder() -> tuple[subprocess.Popen[str], Path]:
    """Return a process with a scratch directory, and that."""
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return process, Path(process.stdout.readline().strip())


def test_what_a_killed_process_left_is_removed_and_nothing_else(temporary: Path, tmp_path: Path) -> None:
    dead, left = holder()
    (left / "files").mkdir()
    (tmp_path / "kept.sst").write_bytes(b"of Pulsar")
    (left / "files" / "1.sst").symlink_to(tmp_path / "kept.sst")
    (left / "more").symlink_to(tmp_path)
    dead.kill()
    dead.communicate()
    alive, held = holder()
    others = [
        temporary / "pulsar-admin-lent-1-2.log",
        temporary / "pulsar-admin-scratch-link",
        temporary / "pulsar-admin-scratch-file",
    ]
    others[0].mkdir()
    others[1].symlink_to(tmp_path)
    others[2].touch()
    with scratch_directory() as ours:
        assert not left.exists()
        assert held.is_dir()
        assert all(os.path.lexists(path) for path in others)
        assert (tmp_path / "kept.sst").read_bytes() == b"of Pulsar"
        assert ours.parent == temporary
    assert not ours.exists()
    alive.communicate("")
    assert held.is_dir()  # it ended without closing it, and the next one removes it
    files._remove_left_scratch.cache_clear()
    with scratch_directory():
        assert not held.exists()
    assert {*temporary.iterdir()} == {*others}


def test_one_that_was_seen_before_it_was_locked(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may remove it between being made and being locked: another one is made."""
    make, made = tempfile.mkdtemp, []

    def make_and_lose(**how: str) -> str:
        made.append(make(**how))
        if len(made) == 1:
            os.rmdir(made[0])
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", make_and_lose)
    scratch = Scratch()
    assert [str(scratch.path)] == made[1:]
    scratch.close()


def _spill() -> None:
    with SortedSpill(1, 2) as rows:
        rows.add(1)
        rows.add(2)


def _hold_rows() -> None:
    with CellSpool((Column("NAME", "name"),), bare=True) as cells:
        cells.add([{"name": "a" * (spool._HELD_BYTES + 1)}])
        cells.packed()


@pytest.mark.parametrize("write", [Scratch, _spill, _hold_rows, _without_interrupts().__enter__])
def test_without_any_directory_of_temporary_files(write: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose file system is read-only."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: ["/absent"])
    monkeypatch.setattr(forkserver, "ensure_running", tempfile.mkdtemp)
    with pytest.raises(NotWritable, match="directory") as raised:
        write()
    assert "set TMPDIR" in raised.value.hint


def test_an_import_that_is_killed(temporary: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-c", KILLED, "--store", str(tmp_path / "s"), "store", "import", "standalone"]
    words += [str(world("small") / "clean"), "-q", "--jobs", "2"]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    assert [path.name for path in temporary.iterdir() if path.name.startswith("pulsar-admin-scratch-")]
    again = [sys.executable, "-m", "pulsar_admin", *words[3:]]
    assert subprocess.run(again, check=False).returncode == 0
    assert not [*temporary.glob("pulsar-admin-*")]


KILLED = """
import os, signal, sys
from pulsar_admin.cli import run
from pulsar_admin.store.sources import rocksopen
open_it = rocksopen.open_database
def kill(*args):
    os.kill(os.getpid(), signal.SIGKILL)
rocksopen.open_database = kill
run(sys.argv[1:])
"""
