"""The worlds are what their README says, are shared read-only, and the change guard sees every kind of change."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import worlds


@pytest.mark.parametrize("name", [*worlds.WORLD_NAMES, worlds.CLUSTER])
def test_a_world_has_every_state(name: str) -> None:
    folder = worlds.world(name)
    for state in worlds.STATES:
        metadata, bookies = ("zookeeper/version-2", 3) if name == worlds.CLUSTER else ("metadata/CURRENT", 1)
        assert (folder / state / metadata).exists()
        assert len(list((folder / state).glob("bookkeeper*/current/VERSION"))) == bookies
    assert sorted(path.name for path in (folder / "keys").iterdir()) == ["priv.pem", "pub.pem"]
    assert all(path.stat().st_mode & 0o222 == 0 for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("name", "seed", "topics", "messages", "probes", "mutations"),
    [("small", 7, 26, 3354, 929, 14), ("nometa", 31337, 26, 6458, 1043, 14), ("cluster", 88, 26, 4127, 904, 14)],
)
def test_the_oracle_is_the_recorded_one(
    name: str, seed: int, topics: int, messages: int, probes: int, mutations: int
) -> None:
    answers = worlds.oracle(name)
    assert answers["version"] == "apache-pulsar-4.0.8"
    assert answers["seed"] == seed
    assert len(answers["topics"]) == topics
    assert sum(len(topic["messages"] or []) for topic in answers["topics"].values()) == messages
    assert sum(len(topic.get("by_time", {})) for topic in answers["topics"].values()) == probes
    assert len(answers["mutations"]) == mutations


def test_a_changed_oracle_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = worlds.oracle("small")["topics"]
    assert "small" not in worlds.changed_oracles()
    monkeypatch.delitem(topics, next(iter(topics)))
    assert "small" in worlds.changed_oracles()


def test_a_scratch_copy_is_equal_and_writable(tmp_path: Path) -> None:
    source = worlds.world("small") / "crashed"
    copy = worlds.scratch_copy("small", "crashed", tmp_path)
    names = sorted(path.relative_to(source) for path in source.rglob("*"))
    assert sorted(path.relative_to(copy) for path in copy.rglob("*")) == names
    for name in names:
        assert (copy / name).stat().st_mtime_ns == (source / name).stat().st_mtime_ns
        if (source / name).is_file():
            assert (copy / name).read_bytes() == (source / name).read_bytes()
            assert (copy / name).stat().st_nlink == 1
            assert (copy / name).stat().st_mode & 0o200
    journals = list(copy.rglob("*.txn"))
    assert journals
    assert all(path.stat().st_blocks * 512 < path.stat().st_size for path in journals)


def test_reading_is_no_change(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    with worlds.assert_unchanged(tmp_path):
        (tmp_path / "file").read_bytes()


def _flip_a_byte(folder: Path) -> None:
    path = folder / "file"
    status = path.stat()
    path.write_bytes(b"abd")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _touch(folder: Path) -> None:
    os.utime(folder / "file", ns=(0, 0))


def _add_a_file(folder: Path) -> None:
    (folder / "folder" / "new").touch()


def _add_and_remove_a_file(folder: Path) -> None:
    os.utime(folder / "folder", ns=(0, 0))
    (folder / "folder" / "new").touch()
    (folder / "folder" / "new").unlink()


def _remove_a_file(folder: Path) -> None:
    (folder / "file").unlink()


def _rename_a_file(folder: Path) -> None:
    (folder / "file").rename(folder / "other")


def _extend_by_a_hole(folder: Path) -> None:
    path = folder / "file"
    status = path.stat()
    os.truncate(path, 4)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    "change",
    [_flip_a_byte, _touch, _add_a_file, _add_and_remove_a_file, _remove_a_file, _rename_a_file, _extend_by_a_hole],
)
def test_every_change_is_seen(change: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"abc")
    with pytest.raises(AssertionError, match="was changed"), worlds.assert_unchanged(tmp_path):
        change(tmp_path)


def test_two_processes_may_unpack_at_once(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys; from tests import worlds; worlds.CACHE = pathlib.Path(sys.argv[1]); "
        "print(worlds.digest_of(worlds.world('small')))"
    )
    root = Path(__file__).resolve().parent.parent
    command = [sys.executable, "-c", program, str(tmp_path)]
    runs = [subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    digests = {run.communicate()[0].strip() for run in runs}
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert digests == {worlds.digest_of(worlds.world("small"))}
    assert sorted(path.suffix for path in tmp_path.iterdir()) == ["", ".lock"]
