"""``store export standalone``: what it copies, to whom what it writes belongs, who else may be there, and stopping behind each part."""

import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_admin.store.codec.rocksvalue import decode_value
from pulsar_admin.store.sources import rocksdb
from pulsar_admin.store.transfer import exports as exporter
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.stores import apply_values, rocksdb_rows, values_of
from tests.test_disk import assert_full, run_limited
from tests.worlds import assert_unchanged, scratch_copy

SKIP = ("topics", "skip", "public/default/plain", "-s", "half", "-n", "2")
COMPACT = "compaction run acme/orders/compacted --format legacy --from-start"
OWNER, GROUP = 12_345, 12_346


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return scratch_copy("small", "clean", tmp_path)


@pytest.fixture
def store(source: Path, tmp_path: Path, cli: Cli) -> Path:
    """A store of ``source`` with one change."""
    path = tmp_path / "s"
    assert cli("--store", path, "store", "import", "standalone", source).exit_code == 0
    assert cli("--store", path, *SKIP).exit_code == 0
    return path


def export(store: Path, target: Path, *options: str) -> tuple[object, ...]:
    return ("--store", store, "store", "export", "standalone", target, "--yes", "-o", "json", *options)


# -- links ------------------------------------------------------------------------------------------------------------


@deep_but_for((1, 3), "points_at", ["..", "/etc", "/etc/hostname", "nowhere"])
def test_links_are_not_followed(points_at: str, source: Path, store: Path, tmp_path: Path, cli: Cli) -> None:
    (source / "bookkeeper" / "link").symlink_to(points_at)
    with assert_unchanged(source):
        for options in ((), ("--dry-run",)):
            cli(*export(store, tmp_path / "out", *options)).fails(3, "refused", "bookkeeper/link is a symbolic link")
    assert not [file for file in tmp_path.iterdir() if "out" in file.name]
    assert not (store / "backups").exists()
    assert cli(*export(store, source, "--in-place")).exit_code == 0
    assert len([*(store / "backups").iterdir()]) == 1


def test_no_copy_into_itself(source: Path, store: Path, cli: Cli) -> None:
    cli(*export(store, source / "out")).fails(3, "refused", "would be copied into itself")
    assert not (source / "out").exists()


# -- owners and modes -------------------------------------------------------------------------------------------------


def _modes(root: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for path in [root, *root.rglob("*")]:
        status = path.stat()
        found[str(path.relative_to(root))] = (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
    return found


def _own(root: Path) -> None:
    """Give all to a user of its own where we may, and let nobody else read it."""
    for path in [root, *root.rglob("*")]:
        path.chmod(0o750 if path.is_dir() else 0o640)
        if not os.geteuid():
            os.chown(path, OWNER, GROUP)


def test_a_copy_has_owners_and_modes(source: Path, store: Path, tmp_path: Path, cli: Cli) -> None:
    _own(source)
    assert cli(*export(store, tmp_path / "out")).exit_code == 0
    before, after = _modes(source), _modes(tmp_path / "out")
    assert {name: after[name] for name in before} == before
    assert {after[name] for name in after.keys() - before.keys()} == {before["metadata/CURRENT"]}


def test_in_place_owners_and_modes_stay(source: Path, store: Path, cli: Cli) -> None:
    topic = "acme/orders/compacted"
    assert cli("--store", store, "compaction", "run", topic, "--format", "legacy", "--from-start").exit_code == 0
    _own(source)
    before = _modes(source)
    assert len(cli(*export(store, source, "--in-place")).json["ledgers"]) == 1
    after = _modes(source)
    assert {name: after[name] for name in after.keys() & before.keys()} == before
    assert len(after.keys() - before.keys()) >= 1 + 3 * 2  # the entry log; table and MANIFEST of each database
    assert {after[name] for name in after.keys() - before.keys()} == {before["metadata/CURRENT"]}


def test_nobody_else_reads_a_copy_that_is_not_whole(
    source: Path, store: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.chmod(0o755)
    seen = []

    def looking(root: Path, target: Path) -> None:
        copy(root, target)
        seen.append(stat.S_IMODE(target.parent.stat().st_mode))

    copy = exporter.copy_tree
    monkeypatch.setattr(exporter, "copy_tree", looking)
    assert cli(*export(store, tmp_path / "out")).exit_code == 0
    assert seen == [0o700]
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o755


def test_files_of_another_user_are_left_to_him(
    source: Path, store: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another user writes in place the broker could not open."""
    monkeypatch.setattr(os, "geteuid", lambda: (source / "metadata" / "CURRENT").stat().st_uid + 1)
    with assert_unchanged(source):
        answer = cli(*export(store, source, "--in-place"))
    assert (answer.exit_code, answer.error["code"]) == (3, "refused")
    assert "root" in answer.error["hint"]


# -- who else is there ------------------------------------------------------------------------------------------------


def test_no_broker_starts_while_an_export_writes(
    source: Path, store: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []

    def looking(*arguments: object) -> None:
        held.append(_lock_in_a_child(source / "metadata" / "LOCK"))
        write(*arguments)

    write: Callable[..., None] = rocksdb.apply_changes
    monkeypatch.setattr(rocksdb, "apply_changes", looking)
    assert cli(*export(store, source, "--in-place")).exit_code == 0
    assert held == [False]
    assert _lock_in_a_child(source / "metadata" / "LOCK")
    opened = len(os.listdir("/proc/self/fd"))
    assert rocksdb.locked_by(source / "metadata") is None
    assert len(os.listdir("/proc/self/fd")) == opened


def _lock_in_a_child(path: Path) -> bool:
    """Whether another process may take the lock as RocksDB does."""
    child = os.fork()
    if not child:
        try:
            with path.open("r+b") as file:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_target_that_moved_since_the_plan(
    source: Path, store: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as the question stands, anything may happen."""
    node = b"/managed-ledgers/public/default/persistent/plain/half"
    from pulsar_admin.store.transfer import exports

    def moved(*arguments: object) -> object:
        apply_values(source / "metadata", {node: None})
        return apply(*arguments)

    apply: Callable[..., object] = exports.run_export
    monkeypatch.setattr(exports, "run_export", moved)
    cli(*export(store, source, "--in-place")).fails(4, "stale-plan")
    assert node not in rocksdb_rows(source / "metadata")


def test_two_exports_into_one_directory(source: Path, store: Path, tmp_path: Path, cli: Cli) -> None:
    """The second does not remove what the first writes; what a killed one left is removed."""
    busy = tmp_path / ".out.pulsar-admin"
    (busy / "files" / "metadata").mkdir(parents=True)
    descriptor = os.open(busy, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    cli(*export(store, tmp_path / "out")).fails(4, "store-busy")
    assert (busy / "files" / "metadata").exists()
    os.close(descriptor)
    assert cli(*export(store, tmp_path / "out")).exit_code == 0
    assert not busy.exists()


# -- stopped, and full ------------------------------------------------------------------------------------------------


class Stopped(Exception):
    """The export ends here."""


@pytest.fixture
def stopped_export(source: Path, store: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Exports in place, and stops when the target has the new values and the store does not know."""

    def stop(*_: object) -> None:
        raise Stopped

    def run() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(exporter, "_record", stop)
            assert cli(*export(store, source, "--in-place"), bug=True).exit_code == 70

    return run


def test_what_a_stopped_export_wrote_is_finished(
    source: Path, store: Path, cli: Cli, stopped_export: Callable[[], None]
) -> None:
    """The same command goes on, and writes the same."""
    stopped_export()
    written = rocksdb_rows(source / "metadata")
    again = cli(*export(store, source, "--in-place"))
    assert (again.exit_code, len(again.json["nodes"])) == (0, 1)
    assert rocksdb_rows(source / "metadata") == written
    assert cli(*export(store, source, "--in-place")).json["nodes"] == []


def test_a_node_that_another_changed_behind_a_stopped_export_is_told(
    source: Path, store: Path, cli: Cli, stopped_export: Callable[[], None]
) -> None:
    """Though a node before it has what the export wrote."""
    before = rocksdb_rows(source / "metadata")
    assert cli("--store", store, *COMPACT.split()).exit_code == 0
    stopped_export()
    after = rocksdb_rows(source / "metadata")
    written = sorted(key for key, value in before.items() if after.get(key, value) != value and key.startswith(b"/"))
    assert len(written) > 1
    apply_values(source / "metadata", {written[-1]: None})
    answer = cli(*export(store, source, "--in-place"))
    assert (answer.exit_code, answer.error["code"]) == (4, "stale-plan")
    assert f"{written[-1].decode()} is no longer what was imported" in answer.error["message"]


@deep_but_for((0, 2), "words", ["topics skip public/default/plain -s half -n 1", "store undo 2", COMPACT])
def test_changes_behind_stopped_exports(
    words: str, source: Path, store: Path, cli: Cli, stopped_export: Callable[[], None]
) -> None:
    """Stopped twice, and a change made behind each."""
    imported = rocksdb_rows(source / "metadata")
    assert cli("--store", store, *COMPACT.split()).exit_code == 0
    for change in (words, "topics unsubscribe public/default/plain -s never"):
        stopped_export()
        assert cli("--store", store, *change.split()).exit_code == 0
    assert cli(*export(store, source, "--in-place")).exit_code == 0
    assert cli(*export(store, source, "--in-place")).json["nodes"] == []
    wanted = {path.encode(): value for path, value in values_of(store).items()}
    found = {
        key: value for key, value in rocksdb_rows(source / "metadata").items() if key in imported.keys() | wanted.keys()
    }
    assert {key: decode_value(found[key], "x")[1] for key in wanted} == wanted
    assert {decode_value(found[key], "x")[0].version for key in wanted.keys() - imported.keys()} == {0}
    assert not [key for key in found if key in imported and key.startswith(b"/managed-ledgers/") and key not in wanted]
    assert cli("--store", store, "store", "check").exit_code == 0


@pytest.mark.parametrize("words", ["", "store undo 1", f"{COMPACT} | store undo 2"])
def test_a_refresh_behind_a_stopped_export_takes_nothing_back(
    words: str, source: Path, store: Path, cli: Cli, stopped_export: Callable[[], None]
) -> None:
    """What the source has is this store's own, no change of a broker: neither a conflict, nor the end of an undo behind it."""
    *before, after = words.split(" | ")
    for change in before:
        assert cli("--store", store, *change.split()).exit_code == 0
    stopped_export()
    if after:
        assert cli("--store", store, *after.split()).exit_code == 0
    wanted = values_of(store)
    for _ in range(2):
        answer = cli("--store", store, "store", "refresh", "-o", "json").ends(1, "export in place was stopped")
        assert (answer.json["conflicts"], answer.json["nodesUpdated"], answer.json["nodesRemoved"]) == ([], 0, 0)
        assert answer.json["stoppedExport"]
    assert values_of(store) == wanted
    assert cli(*export(store, source, "--in-place")).exit_code == 0
    assert cli(*export(store, source, "--in-place")).json["nodes"] == []
    answer = cli("--store", store, "store", "refresh", "-o", "json")
    assert (answer.exit_code, answer.json["stoppedExport"]) == (0, [])
    assert values_of(store) == wanted


@deep_but_for((0, 2), "limit_bytes", [1, 20_000, 100_000, 5_000_000])
def test_a_full_disk(limit_bytes: int, source: Path, store: Path, tmp_path: Path, cli: Cli) -> None:
    assert_full(run_limited(limit_bytes, "--store", store, "store", "export", "standalone", tmp_path / "out"))
    assert not [file for file in tmp_path.iterdir() if "out" in file.name]
    if limit_bytes < 100_000:
        before = rocksdb_rows(source / "metadata")
        command = ("--store", store, "store", "export", "standalone", source, "--in-place", "--yes")
        assert_full(run_limited(limit_bytes, *command))
        assert rocksdb_rows(source / "metadata") == before
    assert cli(*export(store, source, "--in-place")).exit_code == 0
