"""Writing files: old or new, never half; never over something that exists; system errors are ours."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_admin.store import files as atomic
from pulsar_admin.store.errors import (
    AlreadyExists,
    DiskFailed,
    DiskFull,
    NotFound,
    NotWritable,
    Refused,
    StoreBusy,
    StoreError,
)


def test_replace_file(tmp_path: Path) -> None:
    path = tmp_path / "store.json"
    atomic.replace_file(path, b"old")
    atomic.replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert [found.name for found in tmp_path.iterdir()] == ["store.json"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize(
    ("number", "error"),
    [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EROFS, NotWritable), (errno.EACCES, NotWritable)],
)
def test_failed_replace_keeps_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int, error: type[StoreError]
) -> None:
    path = tmp_path / "store.json"
    atomic.replace_file(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(error) as caught:
            atomic.replace_file(path, b"new")
    assert caught.value.context["path"] == str(path)
    assert path.read_bytes() == b"old"
    assert [found.name for found in tmp_path.iterdir()] == ["store.json"]


def test_a_new_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "skip.plan"
    (tmp_path / ".skip.plan.pulsar-admin").write_bytes(b"what a killed process left, longer than what is written now")
    seen: list[list[str]] = []

    def seen_by_others(_: int) -> None:
        seen.append(sorted(found.name for found in tmp_path.iterdir()))
        if len(seen) == 1:
            with pytest.raises(StoreBusy):
                atomic.write_new_file(path, b"another")

    monkeypatch.setattr(os, "fsync", seen_by_others)
    atomic.write_new_file(path, b"a plan")
    assert seen == [[".skip.plan.pulsar-admin"], ["skip.plan"]]
    assert path.read_bytes() == b"a plan"
    with pytest.raises(AlreadyExists):
        atomic.write_new_file(path, b"another")
    assert [found.name for found in tmp_path.iterdir()] == ["skip.plan"]
    assert path.read_bytes() == b"a plan"


def test_new_bytes_are_durable_before_the_name_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)

        def recorded(*arguments: object, name: str = name, real: object = real) -> None:
            calls.append(name)
            assert callable(real)
            real(*arguments)

        monkeypatch.setattr(os, name, recorded)
    atomic.replace_file(tmp_path / "x", b"data")
    assert calls == ["fsync", "replace", "fsync"]


@pytest.mark.parametrize("durable", [True, False])
def test_a_new_file_is_durable_and_so_is_its_name(
    durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    with atomic.create_file(tmp_path / "new", durable=durable) as file:
        file.write(b"x")
    assert synced == [f"{tmp_path}/new", str(tmp_path)] * durable


def test_create_file_never_overwrites(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with atomic.create_file(path) as file:
        file.write(b"one")
    with pytest.raises(AlreadyExists), atomic.create_file(path) as file:
        file.write(b"two")
    assert path.read_bytes() == b"one"


def test_create_file_follows_no_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AlreadyExists), atomic.create_file(tmp_path / "link"):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_failed_block_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with pytest.raises(TypeError), atomic.create_file(path) as file:
        file.write("text is not bytes")  # type: ignore[arg-type]
    assert not path.exists()
    with pytest.raises(DiskFull), atomic.create_file(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not path.exists()


def test_a_device_or_a_fifo_is_not_replaced(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("/dev/null")
    for path in (pipe, link):
        with pytest.raises(NotWritable, match="not a regular file"):
            atomic.replace_file(path, b"data")
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, pipe]


def test_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="cannot write"), atomic.create_file(tmp_path / "no" / "out"):
        pass
    with pytest.raises(NotFound):
        atomic.replace_file(tmp_path / "no" / "out", b"")
    with pytest.raises(NotFound):
        atomic.create_directory(tmp_path / "no" / "such")


def test_create_directory(tmp_path: Path) -> None:
    atomic.create_directory(tmp_path / "a")
    atomic.create_directory(tmp_path / "a", exist_ok=True)
    with pytest.raises(AlreadyExists):
        atomic.create_directory(tmp_path / "a")
    (tmp_path / "file").write_text("")
    with pytest.raises(AlreadyExists):
        atomic.create_directory(tmp_path / "file", exist_ok=True)


def test_rename(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_text("x")
    atomic.rename(tmp_path / "a" / "x", tmp_path / "y")
    assert (tmp_path / "y").read_text() == "x"
    with pytest.raises(NotFound):
        atomic.rename(tmp_path / "a" / "x", tmp_path / "z")


def test_a_tree_is_copied_but_for_what_is_neither_file_nor_directory(tmp_path: Path) -> None:
    """Links, FIFOs and links to nothing between files and directories end nothing."""
    source, target = tmp_path / "source", tmp_path / "target"
    for folder in (source, source / "c", source / "c" / "c"):
        folder.mkdir()
        for name in ("b", "d", "g"):
            (folder / name).write_bytes(f"{folder.name}/{name}".encode())
        (folder / "a").symlink_to(folder / "b")
        (folder / "e").symlink_to("nowhere")
        (folder / "f").symlink_to(tmp_path, target_is_directory=True)
        os.mkfifo(folder / "ba")
        (folder / "z").mkdir()
    (source / "b").chmod(0o440)
    (source / "c").chmod(0o750)
    os.utime(source / "g", ns=(1_000_000_000, 2_000_000_000))
    atomic.copy_tree(source, target)
    found = {str(path.relative_to(target)) for path in target.rglob("*")}
    assert found == {f"{folder}{name}" for folder in ("", "c/", "c/c/") for name in ("b", "c", "d", "g", "z")} - {
        "c/c/c"
    }
    for path in target.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (source / path.relative_to(target)).read_bytes()
    assert [stat.S_IMODE((target / name).stat().st_mode) for name in ("b", "c")] == [0o640, 0o750]
    assert (target / "g").stat().st_mtime_ns == 2_000_000_000


def test_links_anywhere_in_a_tree_are_named(tmp_path: Path) -> None:
    for path in ("a", "b/c", "b/d/e"):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "file").touch()
    atomic.check_copyable(tmp_path)
    for place in ("a/z", "b/d/e/a", "z"):
        (tmp_path / place).symlink_to("nowhere")
        with pytest.raises(Refused, match=f"{place} is a symbolic link, to nowhere"):
            atomic.check_copyable(tmp_path)
        (tmp_path / place).unlink()
    atomic.check_copyable(tmp_path)


def test_lock_file_is_kept(tmp_path: Path) -> None:
    first = atomic.open_lock_file(tmp_path / "lock")
    os.write(first, b"me")
    second = atomic.open_lock_file(tmp_path / "lock")
    assert os.read(second, 10) == b"me"
    os.close(first)
    os.close(second)


def test_an_unknown_system_error_stays_itself(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="out of domain") as caught:
        atomic.raise_write_error(OSError(errno.EDOM, "out of domain"), tmp_path)
    assert not isinstance(caught.value, StoreError)


def test_a_disk_that_fails_is_said(tmp_path: Path) -> None:
    with pytest.raises(DiskFailed, match="the disk failed: Input/output error") as caught:
        atomic.raise_write_error(OSError(errno.EIO, "Input/output error"), tmp_path)
    assert "dmesg" in caught.value.hint


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize("make", [_fifo, Path.mkdir, _socket, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_regular_file_is_neither_waited_for_nor_read(make: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "x"
    make(path)
    with pytest.raises(OSError, match="x") as caught:
        atomic.read_file(path)
    assert isinstance(caught.value, atomic.NotRegular)
    before = path.lstat()
    with pytest.raises(StoreError):
        atomic.open_lock_file(path)
    assert path.lstat().st_ino == before.st_ino


def test_modes(tmp_path: Path) -> None:
    """What is made is private, a copy is what its source is, and a file that is replaced stays what it was."""

    def mode(path: Path) -> int:
        return path.stat().st_mode & 0o777

    umask = os.umask(0)
    try:
        with atomic.create_file(tmp_path / "new"):
            pass
        atomic.create_directory(tmp_path / "directory")
        assert (mode(tmp_path / "new"), mode(tmp_path / "directory")) == (0o600, 0o700)
        for source, copy in ((0o600, 0o600), (0o640, 0o640), (0o644, 0o644), (0o440, 0o640)):
            (tmp_path / "source").write_bytes(b"x")
            (tmp_path / "source").chmod(source)
            atomic.copy_file(tmp_path / "source", tmp_path / f"copy{source:o}")
            assert mode(tmp_path / f"copy{source:o}") == copy
            (tmp_path / "source").unlink()
        os.umask(0o027)
        (tmp_path / "source").write_bytes(b"x")
        (tmp_path / "source").chmod(0o644)
        atomic.copy_file(tmp_path / "source", tmp_path / "stricter")
        assert mode(tmp_path / "stricter") == 0o640
        (tmp_path / "directory").chmod(0o750)
        atomic.replace_file(tmp_path / "directory" / "f", b"")
        assert mode(tmp_path / "directory" / "f") == 0o640
        (tmp_path / "directory" / "f").chmod(0o600)
        atomic.replace_file(tmp_path / "directory" / "f", b"")
        assert mode(tmp_path / "directory" / "f") == 0o600
    finally:
        os.umask(umask)


def test_a_directory_that_another_process_is_done_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Removed between making it and opening it."""
    create = atomic.create_directory

    def created_and_gone(path: Path, **options: bool) -> None:
        create(path, **options)
        path.rmdir()

    monkeypatch.setattr(atomic, "create_directory", created_and_gone)
    with pytest.raises(StoreBusy), atomic.new_directory(tmp_path / "made"):
        pytest.fail("nobody has it")
