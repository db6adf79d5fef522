"""Full and read-only disks: one clear message, the right exit code, the old state intact, and the work can be finished later.

Two ways to a full disk: a limit on the size of files, which works for everybody, and a small tmpfs in a mount namespace of its
own where the kernel lets us make one.
"""

import errno
import os
import resource
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli, CliResult
from tests.deep import deep_but_for
from tests.forked import start_line
from tests.soundness import bytes_of_store
from tests.stores import copied, imported, read_rows
from tests.worlds import copy_tree, world

ROOT = Path(__file__).resolve().parent.parent


def run_limited(limit_bytes: int, *arguments: object) -> CliResult:
    """Run a command line in a child that cannot make a file longer than LIMIT_BYTES.

    It keeps no compiled modules: Python would cut them at the limit, and every later process would fail to load them.
    """

    def limit() -> None:
        sys.dont_write_bytecode = True
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    (out, stdout), (err, stderr) = os.pipe(), os.pipe()
    child = start_line([*map(str, arguments)], (0, stdout, stderr), limit)
    os.close(stdout)
    os.close(stderr)
    with open(out) as printed, open(err) as said:
        texts = printed.read(), said.read()
    return CliResult(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), *texts)


@cache
def mount_command() -> tuple[str, ...] | None:
    """How to get a mount namespace of one's own here, or None."""
    for command in (("unshare", "--mount"), ("unshare", "--user", "--map-root-user", "--mount")):
        if shutil.which("unshare") is None:
            return None
        probe = subprocess.run([*command, "sh", "-c", "mount -t tmpfs tmpfs /tmp"], capture_output=True, check=False)
        if probe.returncode == 0:
            return command
    return None


def assert_full(done: CliResult) -> None:
    assert done.exit_code == 8, done.stderr
    assert done.stdout == ""
    message, hint = done.stderr.splitlines()
    assert message.startswith("error: no space left")
    assert hint.startswith("hint: free")


@deep_but_for(
    (1, 2, 3), ("limit_bytes", "options"), [(1, ()), (30_000, ()), (200_000, ()), (400_000, ("--copy",))], ids=str
)
def test_import_when_files_cannot_grow(limit_bytes: int, options: tuple[str, ...], tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "s"
    arguments = ["--store", path, "store", "import", "standalone", world("small") / "crashed", *options]
    assert_full(run_limited(limit_bytes, *arguments))
    assert not options or list((path / "entries").iterdir()) == []
    done = cli(*arguments, "-o", "json")
    assert (done.exit_code, done.json["entries"]) == (0, 3346)


@pytest.mark.parametrize(
    "change",
    [("topics", "reset-cursor", "public/default/plain", "-s", "half", "-m", "9:3"), ("store", "index", "--rebuild")],
)
def test_a_change_when_files_cannot_grow(change: tuple[str, ...], store: Path, cli: Cli) -> None:
    before = bytes_of_store(store)
    assert_full(run_limited(70_000, "--store", store, *change))
    assert [file.name for file in store.iterdir() if "unfinished" in file.name] == []
    assert read_rows(store, lambda txn: txn.count("changes")) == 0
    assert cli("--store", store, "store", "check", "--deep").exit_code == 0
    assert cli("--store", store, *change).exit_code == 0
    assert bytes_of_store(store) != before or change[1] == "index"


def in_namespace(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a shell script as root of a mount namespace; ``$ADMIN`` is the program."""
    command = mount_command()
    assert command is not None
    environment = {**os.environ, "ADMIN": f"{sys.executable} -B -m pulsar_admin"}
    words = [*command, "sh", "-c", script, "sh", *map(str, arguments)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)


_FILL = """
mount -t tmpfs -o size=$1 tmpfs "$2" || exit 99
$ADMIN --store "$2/s" store import standalone "$3" > /dev/null; echo "import $?"
mount -o remount,size=200m "$2"
$ADMIN --store "$2/s" -q store import standalone "$3" > /dev/null; echo "again $?"
head -c 300m /dev/zero > "$2/fill" 2> /dev/null
$ADMIN --store "$2/s" store info > /dev/null; echo "info $?"
$ADMIN --store "$2/s" store index --rebuild > /dev/null; echo "rebuild $?"
rm "$2/fill"
$ADMIN --store "$2/s" store check --deep > /dev/null; echo "check $?"
"""


def test_full_disk(tmp_path: Path) -> None:
    """Where no mount is to be had the limits above are all there is."""
    if mount_command() is None:
        assert_full(run_limited(4096, "--store", tmp_path / "s", "store", "init"))
        return
    done = in_namespace(_FILL, "64k", tmp_path, world("small") / "clean")
    assert done.stdout.split("\n") == ["import 8", "again 0", "info 0", "rebuild 8", "check 0", ""], done.stderr
    assert "Traceback" not in done.stderr


_READ_ONLY = """
mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" || exit 99
shift
$ADMIN "$@"
"""
_READS: tuple[tuple[str, ...], ...] = (
    ("store", "info"),
    ("store", "check", "--deep"),
    ("topics", "stats", "public/default/plain"),
    ("topics", "reset-cursor", "public/default/plain", "-s", "half", "-m", "9:3", "--dry-run"),
)
_WRITES: tuple[tuple[str, ...], ...] = (
    ("topics", "reset-cursor", "public/default/plain", "-s", "half", "-m", "9:3"),
    ("store", "refresh"),
    ("store", "index", "--rebuild"),
)


def _deny_writing(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make the operating system refuse to write below FOLDER, as root is not refused by permissions."""
    really_open, really_access = os.open, os.access

    def open_(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and Path(os.fsdecode(path)).is_relative_to(folder):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return really_open(path, flags, *more, **named)

    def access(path: Any, mode: int) -> bool:
        return really_access(path, mode) and not (mode & os.W_OK and Path(path).is_relative_to(folder))

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "access", access)


@deep_but_for((0, 1), "arguments", [_READS[1], *_WRITES[:2]], ids=" ".join)
def test_read_only_disk(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """A real one, where a mount is to be had; else as below."""
    path = tmp_path / "disk" / "s"
    copy_tree(imported("small", "clean"), path)
    before = bytes_of_store(path)
    if mount_command() is not None:
        done = in_namespace(_READ_ONLY, tmp_path / "disk", "--store", path, *arguments)
        assert_not_writable(done.returncode, done.stderr, arguments)
    assert bytes_of_store(path) == before


def assert_not_writable(exit_code: int, errors: str, arguments: tuple[str, ...]) -> None:
    if arguments in _READS:
        assert (exit_code, errors) == (0, "")
    else:
        assert exit_code == 3
        assert errors.startswith("error: cannot write ")
        assert "Read-only file system" in errors


@pytest.mark.parametrize("arguments", _READS + _WRITES, ids=" ".join)
def test_read_only_disk_without_a_mount(
    arguments: tuple[str, ...], tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    copy_tree(imported("small", "clean"), path)
    _deny_writing(monkeypatch, path)
    answer = cli("--store", path, *arguments)
    assert_not_writable(answer.exit_code, answer.stderr, arguments)


def test_new_store_on_a_read_only_disk(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def mkdir(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "mkdir", mkdir)
    for arguments in (("store", "init"), ("store", "import", "standalone", str(world("small") / "clean"))):
        cli("--store", tmp_path / "s", *arguments, "-o", "json").fails(3, "not-writable", "Read-only file system")


def test_compaction_on_a_full_disk(cli: Cli, tmp_path: Path) -> None:
    """The new ledger does not fit: nothing of it is left, and the same command does it later."""
    name = "acme/orders/compacted-single"
    store = copied("small", "clean", tmp_path)
    before = bytes_of_store(store)
    size = (store / "meta" / "data.mdb").stat().st_size
    done = run_limited(1000, "--store", store, "compaction", "run", name)
    assert size > 1000
    assert_full(done)
    assert bytes_of_store(store) == before
    assert cli("--store", store, "compaction", "run", name).exit_code == 0
    assert cli("--store", store, "compaction", "verify", name).exit_code == 0
