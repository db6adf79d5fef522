"""The database's own file: damaged, cut, gone back, read by processes that were killed or may not say that they read."""

import errno
import os
import random
import shutil
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import lmdb
import pytest

from pulsar_admin.cli import run
from pulsar_admin.store.db.backups import iter_backups, keep_hint
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.file import check_file, is_as_committed
from pulsar_admin.store.db.locks import take_writer_lock
from pulsar_admin.store.doctor.diagnosing import check_store
from pulsar_admin.store.errors import DiskFailed, DiskFull, IndexCorrupt, StoreBusy
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.soundness import bytes_of_store
from tests.stores import imported, in_store, narrow_copy

TOPIC = "public/default/plain"
PAGE_BYTES = 4096
TXN_AT = 16 + 128  # of the transaction in a meta page: behind the page's header and 128 bytes of MDB_meta (mdb.c)


def changed(tmp_path: Path, cli: Cli, changes: int = 2) -> Path:
    path = narrow_copy(tmp_path)
    for number in range(changes):
        change(path, cli, number + 1)
    return path


def change(path: Path, cli: Cli, entry: int) -> None:
    assert cli("--store", path, "topics", "reset-cursor", TOPIC, "-s", "half", "-m", f"9:{entry}").exit_code == 0


def transactions(data: bytes) -> list[int]:
    return [struct.unpack_from("<Q", data, page * PAGE_BYTES + TXN_AT)[0] for page in (0, 1)]


# -- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bit", [0, 7])
def test_a_meta_page_that_goes_back_is_noticed(bit: int, tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """One flipped bit of the newest transaction, and the last change would be gone from the tree and from the audit log."""
    path = changed(tmp_path, cli)
    file = path / "meta" / "data.mdb"
    data = bytearray(file.read_bytes())
    before = transactions(data)
    newest = before.index(max(before))
    data[newest * PAGE_BYTES + TXN_AT] ^= 1 << bit
    file.write_bytes(data)
    for arguments in (("store", "log"), ("store", "check", "--deep"), ("store", "undo", "2")):
        cli("--store", path, *arguments).ends(6, "hint: keep ")
    assert file.read_bytes() == data


def test_a_lost_write_of_the_meta_page_is_noticed(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """The disk kept the meta page of two commits ago: all that is there is a whole, older state."""
    path = changed(tmp_path, cli, 1)
    file = path / "meta" / "data.mdb"
    states = [file.read_bytes()]
    change(path, cli, 7)
    data = bytearray(file.read_bytes())
    newest = transactions(data).index(max(transactions(data)))
    at = slice(newest * PAGE_BYTES, (newest + 1) * PAGE_BYTES)
    status = file.stat()
    data[at] = states[0][at]
    assert max(transactions(data)) == max(transactions(states[0]))
    file.write_bytes(data)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    cli("--store", path, "store", "log", "-o", "json").fails(6, "index-corrupt", "went back")


def _cut(data: bytearray, at: int) -> bytearray:
    return data[:at]


def _zero(data: bytearray, at: int) -> bytearray:
    start = at // PAGE_BYTES * PAGE_BYTES
    data[start : start + PAGE_BYTES] = bytes(PAGE_BYTES)
    return data


def _flip(data: bytearray, at: int) -> bytearray:
    data[at] ^= 1 << (at * 7 % 8)
    return data


_COMMANDS: tuple[tuple[str, ...], ...] = (
    ("store", "check"),
    ("store", "log"),
    ("topics", "stats", TOPIC),
    ("topics", "reset-cursor", TOPIC, "-s", "half", "-m", "9:3"),
)


def _in_child(arguments: tuple[str, ...]) -> int:
    """Return the exit code of a command line in a process of its own, negative for the signal that killed it."""
    child = os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os._exit(run(arguments))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("damage", [_cut, _zero, _flip])
@pytest.mark.parametrize("trials", [3, pytest.param(100, marks=pytest.mark.deep)])
def test_damage_kills_no_process(
    damage: Callable[[bytearray, int], bytearray], trials: int, tmp_path: Path, cli: Cli, damages_stores: None
) -> None:
    path = changed(tmp_path, cli)
    good = (path / "meta" / "data.mdb").read_bytes()
    commit = (path / "meta" / "commit.json").read_bytes()
    random_ = random.Random(damage.__name__)
    codes: set[tuple[str, int]] = set()
    for _ in range(trials):
        at = random_.randrange(len(good))
        for arguments in _COMMANDS:
            (path / "meta" / "data.mdb").write_bytes(damage(bytearray(good), at))
            (path / "meta" / "commit.json").write_bytes(commit)
            codes.add((arguments[1], _in_child(("--store", str(path), *arguments))))
    assert {code for _, code in codes} <= {0, 1, 6}, codes
    if damage is _cut:  # a page of the newest state is missing: there is no place to cut where none is
        assert {code for _, code in codes} == {6}
    else:
        assert {("check", 6), ("check", 1)} & codes  # a page that is damaged, or a row whose digest does not fit


@deep_but_for((0,), "damage", [_zero, _flip])
def test_check_names_what_rotted_in_place(
    damage: Callable[[bytearray, int], bytearray], tmp_path: Path, cli: Cli, damages_stores: None
) -> None:
    """A disk that loses a page changes neither size nor time of the file: other commands may die of it, the check does not."""
    path = changed(tmp_path, cli)
    file = path / "meta" / "data.mdb"
    good, status = file.read_bytes(), file.stat()
    random_ = random.Random(damage.__name__)
    codes = set()
    for _ in range(8):
        file.write_bytes(damage(bytearray(good), random_.randrange(len(good))))
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        codes.add(_in_child(("--store", str(path), "store", "check")))
    assert {1, 6} & codes  # a row whose digest does not fit, or a page
    assert codes <= {0, 1, 6}


def test_what_its_last_commit_left_is_not_walked(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cold command pays for a walk only where something else wrote the file: once, as the walk is remembered."""
    path = changed(tmp_path, cli)
    walks: list[Path] = []
    monkeypatch.setattr("pulsar_admin.store.db.storeinfo.walk_pages", walks.append)
    assert cli("--store", path, "store", "log").exit_code == 0
    change(path, cli, 5)
    with open_store(path, writable=True) as store:
        store.write(lambda txn: txn.put("tree", b"x", b"y"))
        assert is_as_committed(path / "meta")  # before it is closed
        store.write(lambda txn: txn.delete("tree", b"x"))
    assert walks == []
    os.utime(path / "meta" / "data.mdb")
    assert cli("--store", path, "store", "log").exit_code == 0
    assert len(walks) == 1
    assert cli("--store", path, "store", "log").exit_code == 0
    assert len(walks) == 1


def test_a_store_without_a_record_opens(tmp_path: Path, cli: Cli) -> None:
    path = changed(tmp_path, cli)
    for record in (None, b"", b"{}", b"[1]", b"[" * 5000, b"\xff" * 512):
        if record is None:
            (path / "meta" / "commit.json").unlink()
        else:
            (path / "meta" / "commit.json").write_bytes(record)
        assert cli("--store", path, "store", "log").exit_code == 0
        assert cli("--store", path, "store", "check").exit_code == 0


@pytest.mark.parametrize("written", [1, 64, 500])
def test_a_record_written_in_part_is_none(written: int, tmp_path: Path, cli: Cli) -> None:
    path = changed(tmp_path, cli)
    record = path / "meta" / "commit.json"
    old = record.read_bytes()
    change(path, cli, 5)
    new = record.read_bytes()
    # Numbers of the new one, the meta page partly of the old one.
    record.write_bytes(new[:written] + old[written:])
    for _ in range(2):
        assert cli("--store", path, "store", "check").exit_code == 0
        change(path, cli, 7)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.deep), pytest.param(3, marks=pytest.mark.deep)])
def test_what_lmdb_writes_is_sound(seed: int, tmp_path: Path) -> None:
    """The walk finds nothing in any state of an environment that LMDB itself wrote, readers of old states beside it."""
    random_ = random.Random(seed)
    with lmdb.open(str(tmp_path / "e"), map_size=1 << 28, max_dbs=4) as env:
        databases = [env.open_db(name) for name in (b"a", b"b")]
        readers: list[lmdb.Transaction] = []
        for _ in range(25 if seed == 1 else 150):
            with env.begin(write=True) as txn:
                for _ in range(random_.choice([1, 2, 10, 200])):
                    long_key = random_.randbytes(random_.randrange(1, 500))
                    key = random_.choice([b"k%d" % random_.randrange(300), long_key])
                    value = random_.randbytes(random_.choice([0, 5, 100, 1500, 2100, 5000, 60000]))
                    database = random_.choice(databases)
                    if random_.random() < 0.35:
                        txn.delete(key, db=database)
                    else:
                        txn.put(key, value, db=database)
                if random_.random() < 0.05:
                    txn.drop(random_.choice(databases), delete=False)
            check_file(tmp_path / "e")
            if random_.random() < 0.2:
                readers.append(env.begin())
            if readers and random_.random() < 0.2:
                readers.pop(0).abort()
        for reader in readers:
            reader.abort()


def _free_numbers(data: bytes) -> tuple[int, int, list[int]]:
    """Where the first row of free pages of the newest state lies in the file, how many it names; pages that a state uses."""
    meta = max((0, 1), key=lambda page: transactions(data)[page]) * PAGE_BYTES
    free, main = (struct.unpack_from("<IHHQQQQQ", data, meta + 16 + 24 + 48 * number) for number in (0, 1))
    assert free[2] == 1, "its root is a leaf"
    leaf = free[7] * PAGE_BYTES
    node = leaf + struct.unpack_from("<H", data, leaf + 16)[0]
    at = node + 8 + struct.unpack_from("<H", data, node + 6)[0]
    return at, struct.unpack_from("<Q", data, at)[0], [free[7], main[7]]


def test_a_page_that_is_used_and_free_or_used_twice_is_noticed(tmp_path: Path) -> None:
    """LMDB would write over a page in use."""
    with lmdb.open(str(tmp_path), map_size=1 << 24, max_dbs=2) as env:
        database = env.open_db(b"a")
        for number in range(4):
            with env.begin(write=True) as txn:
                txn.put(b"key", b"%d" % number, db=database)
    whole = (tmp_path / "data.mdb").read_bytes()
    check_file(tmp_path)
    at, count, used = _free_numbers(whole)
    numbers = list(struct.unpack_from(f"<{count}Q", whole, at + 8))
    last = len(whole) // PAGE_BYTES - 1
    for number, text in (
        *((page, f"page {page} is used twice") for page in used),
        (0, "page 0 is named as free"),
        (1, "page 1 is named as free"),
        (last + 10, f"page {last + 10} is named as free"),
    ):
        assert number not in numbers
        data = bytearray(whole)
        struct.pack_into("<Q", data, at + 8, number)
        (tmp_path / "data.mdb").write_bytes(data)
        with pytest.raises(IndexCorrupt, match=text):
            check_file(tmp_path)


def test_each_field_of_a_leafs_header_is_checked(tmp_path: Path) -> None:
    """Number, flags, and where its rows begin and end (``MDB_page`` of mdb.c), each wrong alone."""
    with lmdb.open(str(tmp_path), max_dbs=1) as env, env.begin(write=True) as txn:
        database = env.open_db(b"rows", txn=txn)
        for number in range(100):
            txn.put(b"%03d" % number, bytes(100), db=database)
    whole = (tmp_path / "data.mdb").read_bytes()
    check_file(tmp_path)
    leaves = [
        at
        for at in range(2 * PAGE_BYTES, len(whole), PAGE_BYTES)
        if struct.unpack_from("<QHH", whole, at) == (at // PAGE_BYTES, 0, 2)  # P_LEAF
    ]
    assert len(leaves) > 3
    for at, (field, change) in product(leaves, ((0, 1), (10, 1), (12, 1), (12, 2), (12, -2), (14, 2), (14, -2))):
        data = bytearray(whole)
        (value,) = struct.unpack_from("<H", data, at + field)
        struct.pack_into("<H", data, at + field, value + change)
        (tmp_path / "data.mdb").write_bytes(data)
        with pytest.raises(IndexCorrupt, match=f"page {at // PAGE_BYTES}"):
            check_file(tmp_path)


# -- other processes --------------------------------------------------------------------------------------------------


def _killed_reader(path: Path, transactions: int) -> None:
    """Leave behind the snapshots of a process that was killed while it read."""
    child = os.fork()
    if child == 0:
        env = lmdb.open(str(path / "meta"), readonly=True, max_dbs=16, max_readers=512, lock=True)
        kept = [env.begin() for _ in range(transactions)]
        os.kill(os.getpid(), signal.SIGKILL if kept else signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_killed_readers_use_up_no_places(tmp_path: Path, cli: Cli) -> None:
    path = changed(tmp_path, cli)
    for arguments in (("store", "log"), ("topics", "reset-cursor", TOPIC, "-s", "half", "-m", "9:6")):
        _killed_reader(path, 512)
        cli.done("--store", path, *arguments)


def test_a_killed_reader_keeps_no_pages(tmp_path: Path) -> None:
    path = narrow_copy(tmp_path)
    _killed_reader(path, 1)
    before = (path / "meta" / "data.mdb").stat().st_size
    for number in range(60):
        with open_store(path, writable=True) as store:
            store.write(lambda txn, number=number: txn.put("nacks", b"x", bytes([number]) * 50_000))
            store.write(lambda txn: txn.delete("nacks", b"x"))
    assert (path / "meta" / "data.mdb").stat().st_size < before + 10 * 50_000


@contextmanager
def _may_not_write(monkeypatch: pytest.MonkeyPatch, file: Path) -> Iterator[None]:
    """A user who may read all and write nothing; root is not refused by permissions."""
    really = os.access
    with monkeypatch.context() as patch:
        patch.setattr(
            os, "access", lambda path, mode: really(path, mode) and not (mode & os.W_OK and Path(path) == file)
        )
        yield


def test_a_reader_that_cannot_register_and_a_writer_wait_for_each_other(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = changed(tmp_path, cli)
    with _may_not_write(monkeypatch, path / "meta" / "lock.mdb"):
        assert cli("--store", path, "store", "log").exit_code == 0
        lock = take_writer_lock(path)
        answer = cli("--store", path, "store", "log", "-o", "json")
        os.close(lock)
        assert (answer.exit_code, answer.error["code"]) == (4, "store-busy")
        assert f"process {os.getpid()}" in answer.error["message"]
        assert "meta/lock.mdb" in answer.error["hint"]
        with open_store(path), pytest.raises(StoreBusy, match="read by processes"):
            take_writer_lock(path)
        (path / "lock").unlink()
        assert cli("--store", path, "store", "log").exit_code == 3
    change(path, cli, 6)


# -- the disk ---------------------------------------------------------------------------------------------------------


def test_an_error_of_the_disk_is_not_called_a_full_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = narrow_copy(tmp_path)

    def fail(*_: object) -> None:
        raise lmdb.Error(f"mdb_txn_commit: {os.strerror(errno.EIO)}")

    with open_store(path, writable=True) as store:
        with pytest.raises(DiskFailed):
            store.write(fail)
        monkeypatch.setattr("pulsar_admin.store.files.has_room", lambda path: False)
        with pytest.raises(DiskFull):
            store.write(fail)


# -- back-ups ---------------------------------------------------------------------------------------------------------


def test_back_ups(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    """A few are kept, one a state; what a damaged store's hint says brings the changes back."""
    path = changed(tmp_path, cli)
    for number in range(4):
        with open_store(path, writable=True) as store:
            assert store.back_up() == store.back_up()
        change(path, cli, number + 4)
        assert len(iter_backups(path)) <= 2
    in_store(path, lambda store: store.back_up())
    shown = cli("--store", path, "store", "log", "-o", "json").json
    before = bytes_of_store(path)
    file = path / "meta" / "data.mdb"
    file.write_bytes(file.read_bytes()[: 3 * PAGE_BYTES])
    answer = cli("--store", path, "store", "log").ends(6, "up to change 6")
    command = answer.stderr.partition("in place with: ")[2].strip()
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 0
    assert cli("--store", path, "store", "log", "-o", "json").json == shown
    assert bytes_of_store(path) == before
    assert cli("--store", path, "store", "check", "--deep").exit_code == 0


def test_a_back_up_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    """The hint names the newest that says which change it is of; another transaction's number is no order of text."""
    commit = narrow_copy(tmp_path / "source") / "meta" / "commit.json"
    path = tmp_path / "store"
    for name in ("9", "10", "11", "12.unfinished"):
        (path / "backups" / name).mkdir(parents=True)
        shutil.copy(commit, path / "backups" / name / "commit.json")
    assert [backup.name for backup in iter_backups(path)] == ["9", "10", "11"]
    for bad, data in (("11", b""), ("10", commit.read_bytes()[:40]), ("9", None)):
        assert f"cp -a {path}/backups/{bad} {path}/meta" in keep_hint(path)
        if data is None:
            (path / "backups" / bad / "commit.json").unlink()
        else:
            (path / "backups" / bad / "commit.json").write_bytes(data)
    assert "its changes exist nowhere else" in keep_hint(path)


def test_a_rebuild_backs_up(tmp_path: Path, cli: Cli) -> None:
    path = changed(tmp_path, cli)
    good = (path / "meta" / "data.mdb").read_bytes()
    assert cli("--store", path, "store", "index", "--rebuild").exit_code == 0
    (backup,) = iter_backups(path)
    assert (backup / "data.mdb").read_bytes() == good


def test_the_pages_that_a_command_walked_are_not_walked_again(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    store = imported("small", "clean")
    monkeypatch.setattr("pulsar_admin.store.rules.files.check_file", lambda *_: pytest.fail("they were walked again"))
    for command in (["doctor"], ["store", "check"]):
        cli.done("--store", store, *command)
    with open_store(store) as opened, pytest.raises(pytest.fail.Exception):
        list(check_store(opened))  # nobody walked those of the Python interface
    monkeypatch.undo()  # the check behind every test walks them
