"""Machine code of kernels is kept in one folder of ours, and is of the code that runs."""

import errno
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from pulsar_admin.store.engine.spark_session import pack_code
from pulsar_admin.store.kernels.machine_code import _Turn
from tests.worlds import copy_tree

_LEFT_OUT = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "PYTHONSAFEPATH")  # the last is what a test that started Spark leaves
_SUM = """
from pulsar_admin.store.kernels.machine import crc32
import numpy as np
assert crc32(np.frombuffer(b"123456789", np.uint8), 0, 9, 0xFFFFFFFF) ^ 0xFFFFFFFF == 0xCBF43926
((signature, hits),) = crc32.stats.cache_hits.items() or [(None, 0)]
print(hits)
"""
_OF_A_USER = """
from numba import njit

@njit(cache=True)
def twice(value):
    return 2 * value

assert twice(4) == 8
"""


def _python(folder: Path, code: str, **environment: str) -> str:
    """Run CODE, in the new or older module ``program`` of FOLDER, which is first on the path, and return what it prints."""
    program = folder / "program.py"
    program.write_text(code)
    kept = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    done = subprocess.run(
        [sys.executable, program], env={**kept, **environment}, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def _on_a_terminal(folder: Path) -> tuple[str, bytes]:
    """Run the program of FOLDER with errors on a terminal, and return what it prints on both."""
    environment = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    environment["XDG_CACHE_HOME"] = str(folder / "caches")
    leader, follower = os.openpty()
    command = [sys.executable, "program.py"]
    done = subprocess.run(
        command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=follower, text=True, check=True
    )
    os.close(follower)
    written = b""
    with suppress(OSError):  # EIO: all was read
        while part := os.read(leader, 4096):
            written += part
    os.close(leader)
    return done.stdout, written


@pytest.fixture(scope="module")
def first_use(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, bytes]:
    """A folder in which a process compiled what was compiled nowhere, for tests that copy its ``caches``, and what that printed."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "program.py").write_text(_SUM + _OF_A_USER)
    return folder, *_on_a_terminal(folder)


def _written(folder: Path) -> set[str]:
    """Return the folders below FOLDER that numba wrote files into."""
    return {str(file.parent.relative_to(folder)) for file in folder.rglob("*.nbi")}


def test_one_folder_of_ours_has_what_was_compiled_and_a_user_s_own_code_stays_where_numba_puts_it(
    first_use: tuple[Path, str, bytes],
) -> None:
    """A first use on a terminal says why it takes long, once."""
    folder, *first = first_use
    for hits, (stdout, written) in enumerate((first, _on_a_terminal(folder))):
        assert written.count(b"first use: compiling for this machine, once") == 1 - hits
        assert stdout == f"{hits}\n"
    ours, theirs = sorted(_written(folder), key=lambda name: not name.startswith("caches"))
    assert theirs == "__pycache__"
    assert Path(ours).parent == Path("caches/pulsar-admin-toolkit")


def test_an_archive_of_the_same_code_finds_what_was_compiled(
    first_use: tuple[Path, str, bytes], tmp_path: Path
) -> None:
    """Each job of Spark has a folder of its own."""
    copy_tree(first_use[0] / "caches", tmp_path / "caches")
    archive = pack_code(tmp_path)
    assert _python(tmp_path, _SUM, XDG_CACHE_HOME=str(tmp_path / "caches"), PYTHONPATH=str(archive)) == "1"
    assert len(_written(tmp_path)) == 1


def test_numbas_own_setting_says_where_the_folder_is(tmp_path: Path) -> None:
    _python(tmp_path, _SUM + _OF_A_USER, NUMBA_CACHE_DIR=str(tmp_path / "numba"), XDG_CACHE_HOME=str(tmp_path / "no"))
    written = _written(tmp_path)
    assert {Path(name).parts[0] for name in written} == {"numba"}
    assert len([name for name in written if "pulsar-admin-toolkit" in name]) == 1


def test_where_nothing_can_be_written_each_process_compiles_for_itself(tmp_path: Path) -> None:
    archive = pack_code(tmp_path)
    assert _python(tmp_path, _SUM, XDG_CACHE_HOME="/dev/null", PYTHONPATH=str(archive)) == "0"
    assert _python(tmp_path, _SUM, NUMBA_CACHE_DIR="/dev/null") == "0"
    assert not _written(tmp_path)


def test_a_file_system_without_locks_is_used_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    turn = _Turn()
    turn.depth = 1
    assert not turn.take(str(tmp_path))
    turn.leave()


def test_what_a_crash_left_of_a_file_is_compiled_again(first_use: tuple[Path, str, bytes], tmp_path: Path) -> None:
    copy_tree(first_use[0] / "caches", tmp_path / "caches")
    for kind, kept in (("nbc", 0.0), ("nbi", 0.5)):
        for file in tmp_path.rglob(f"*.{kind}"):
            os.truncate(file, int(file.stat().st_size * kept))
        assert _python(tmp_path, _SUM, XDG_CACHE_HOME=str(tmp_path / "caches")) == "0", kind
    assert _python(tmp_path, _SUM, XDG_CACHE_HOME=str(tmp_path / "caches")) == "1"


def test_code_that_calls_what_was_changed_in_another_file_is_compiled_again(tmp_path: Path) -> None:
    package = tmp_path / "made"
    package.mkdir()
    (package / "__init__.py").touch()
    decorated = "from pulsar_admin.store.kernels.compiled import part\n{}\n@part()\ndef {}(value):\n    return {}\n"
    (package / "outer.py").write_text(decorated.format("from made.inner import step", "outer", "step(value) + 1"))
    for factor, wanted in (
        (2, "21"),
        (10, "101"),
    ):  # of other lengths: in one second Python tells files apart by that alone
        (package / "inner.py").write_text(decorated.format("", "step", f"value * {factor}"))
        ask = "from made.outer import outer\nprint(outer(10))"
        assert _python(tmp_path, ask, XDG_CACHE_HOME=str(tmp_path / "caches")) == wanted
