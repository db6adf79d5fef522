"""``--wait``: a writer waits for another one, and plans on what that one has left; and where a store cannot be at all."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.cli import run
from pulsar_admin.store.db.locks import take_writer_lock
from pulsar_admin.store.errors import DiskFailed
from tests.conftest import Cli
from tests.stores import copied
from tests.worlds import world

TOPIC = "public/default/plain"
SKIP = ("topics", "skip", TOPIC, "-s", "never", "-n", "3")


def backlog(cli: Cli, path: Path) -> int:
    found: dict[str, Any] = cli("--store", path, "topics", "stats", TOPIC, "-o", "json").json
    return int(found["subscriptions"]["never"]["msgBacklog"])


def has_open(process: int, path: Path) -> bool:
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        try:
            if descriptor.readlink() == path.resolve():
                return True
        except FileNotFoundError:
            continue
    return False


@pytest.mark.parametrize("call", ["ftruncate", "pwrite"])
def test_a_disk_that_fails_at_the_lock_is_named(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(DiskFailed, match=f"{tmp_path}/lock: the disk failed"):
            take_writer_lock(tmp_path)
    os.close(take_writer_lock(tmp_path))


@pytest.mark.parametrize(
    "command", [SKIP, ("store", "index", "--rebuild"), ("store", "refresh")], ids=lambda one: one[1]
)
def test_a_writer_waits_for_another(command: tuple[str, ...], cli: Cli, store: Path) -> None:
    before = backlog(cli, store)
    lock = take_writer_lock(store)
    child = os.fork()
    if child == 0:
        os.close(lock)
        os._exit(run(["--store", str(store), *command, "--wait", "60s", "-q"]))
    while not has_open(child, store / "lock"):
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "it did not wait"
    os.close(lock)
    # Between the two a third one: what waits plans behind it, or before.
    assert cli("--store", store, *SKIP, "--wait", "60s").exit_code == 0
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert backlog(cli, store) == before - (6 if command is SKIP else 3)


def test_the_wait_is_over(cli: Cli, store: Path, tmp_path: Path) -> None:
    source = world("small") / "clean"
    lock = take_writer_lock(store)
    for command in (
        SKIP,
        ("store", "refresh"),
        ("nacks", "add", TOPIC, "-s", "half", "--delay", "1s", "29:20"),
        ("store", "export", "standalone", tmp_path / "out"),
    ):
        for wait in ((), ("--wait", "30ms")):
            refused = cli("--store", store, *command, *wait, "-o", "json").fails(4, "store-busy")
            assert refused.error["hint"].endswith("--wait 30s")
    assert cli("--store", store, "topics", "list", "public/default", "--wait", "1ms").exit_code == 0
    assert cli("--store", store, *SKIP, "--dry-run", "--wait", "1ms").exit_code == 0
    os.close(lock)
    (tmp_path / "new").mkdir()
    lock = take_writer_lock(tmp_path / "new")
    refused = cli("--store", tmp_path / "new", "store", "import", "standalone", source, "--wait", "30ms", "-o", "json")
    assert (refused.exit_code, refused.error["code"]) == (4, "store-busy")
    os.close(lock)
    cli("--store", tmp_path / "none", *SKIP, "--wait", "30ms", "-o", "json").fails(5, "store-not-found")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "ceph", "fuse.glusterfs"])
def test_network_file_systems_are_refused(kind: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = copied("small", "clean", tmp_path)
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    line = f"36 35 {os.major(device)}:{os.minor(device)} / /with\\040space rw,noatime shared:1 - {kind} server:/export rw\n"
    mounts.write_text(f"21 1 0:0 / / rw - ext4 /dev/none rw\n{line}")
    monkeypatch.setattr("pulsar_admin.store.db.locks.MOUNTINFO", mounts)
    for store, command in ((path, SKIP), (path, ("store", "log")), (tmp_path / "a" / "b", ("store", "init"))):
        refused = cli("--store", store, *command, "-o", "json")
        assert (refused.exit_code, refused.error["code"], refused.error["context"]["fileSystem"]) == (
            7,
            "unsupported",
            kind,
        )
        assert kind in refused.error["message"]
    assert not (tmp_path / "a").exists()
    mounts.write_text(line.replace(kind, "ext4"))
    assert cli("--store", path, *SKIP).exit_code == 0
