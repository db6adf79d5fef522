"""Work on parts of a store in other processes: the same answers in the same order, whatever becomes of the processes."""

import os
import resource
import select
import signal
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.facts import processes
from pulsar_admin.store.facts.processes import Spread, processes_that_pay
from pulsar_admin.store.model.reader import EntryReader, open_reader
from tests.deep import deep_but_for
from tests.stores import copied, imported

_PARTS = range(9)


def _rows(reader: EntryReader, part: int) -> tuple[int, int, int]:
    """Return PART, the ledgers that it is of, and which process found them."""
    keys = [key for key, _ in reader.txn.items("times") if key[-1] % len(_PARTS) == part]
    return part, len(keys), os.getpid()


def _rows_of_the_living(reader: EntryReader, part: int) -> tuple[int, int, int]:
    """Do the same, but in a process that was started for it die in the third part."""
    if part == 2 and os.getppid() != int(os.environ["SPREAD_TEST_PARENT"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return _rows(reader, part)


def _refused(reader: EntryReader, part: int) -> int:
    raise InvalidValue(f"part {part} in {os.getpid()}")


@pytest.fixture
def reader() -> Iterator[EntryReader]:
    with open_store(imported("small", "clean")) as store, open_reader(store) as opened:
        yield opened


@pytest.fixture
def server_that_ends() -> Iterator[None]:
    """The server that forks, which may end in this test, ends with it: none that is about to end is there for the next test."""
    yield
    process_id = forkserver._forkserver._forkserver_pid
    os.kill(process_id, signal.SIGKILL)
    os.waitid(os.P_PID, process_id, os.WEXITED | os.WNOWAIT)  # multiprocessing reaps it, and starts another


def _here(reader: EntryReader) -> list[tuple[int, int]]:
    return [_rows(reader, part)[:2] for part in _PARTS]


@deep_but_for((0, 2), "processes", [0, 1, 3])
def test_answers_come_in_order(processes: int, reader: EntryReader) -> None:
    with Spread(reader, _rows, _PARTS, processes) as results:
        found = list(results)
    assert [row[:2] for row in found] == _here(reader)
    others = {row[2] for row in found} - {os.getpid()}
    assert len(others) == processes or (processes == 3 and others)


def test_what_a_killed_process_had_is_done_here(
    reader: EntryReader, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPREAD_TEST_PARENT", str(os.getppid()))
    with Spread(reader, _rows_of_the_living, _PARTS, 2) as results:
        found = list(results)
    assert [row[:2] for row in found] == _here(reader)
    assert found[2][2] == os.getpid()
    assert capfd.readouterr() == ("", "")


def test_another_snapshot_is_not_asked(tmp_path: Path) -> None:
    path = copied("small", "clean", tmp_path)
    with open_store(path, writable=True) as store, open_reader(store) as reader:
        store.write(lambda txn: txn.put("state", b"nothing", b""))
        with Spread(reader, _rows, _PARTS, 2) as results:
            assert {row[2] for row in results} == {os.getpid()}


@pytest.mark.parametrize("moves", ["the program", "the store"])
def test_another_store_at_the_path_is_not_asked(moves: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All fresh imports have as many transactions; the two have other ledgers."""
    for place, state in (("here", "clean"), ("there", "mutated")):
        (tmp_path / place).mkdir()
        copied("small", state, tmp_path / place)
    monkeypatch.chdir(tmp_path / "here")
    with open_store(Path("pulsar-store")) as store, open_reader(store) as reader:
        if moves == "the program":
            monkeypatch.chdir(tmp_path / "there")
        else:
            (tmp_path / "here" / "pulsar-store").rename(tmp_path / "old")
            (tmp_path / "there" / "pulsar-store").rename(tmp_path / "here" / "pulsar-store")
        with Spread(reader, _rows, _PARTS, 2) as results:
            assert {row[2] for row in results} == {os.getpid()}


def test_an_error_is_raised_here(reader: EntryReader) -> None:
    with Spread(reader, _refused, _PARTS, 2) as results, pytest.raises(InvalidValue, match=f"part 0 in {os.getpid()}"):
        next(iter(results))


@pytest.mark.usefixtures("server_that_ends")
@deep_but_for((0, 6), "room", range(8))
def test_without_room_for_pipes_all_is_done_here(room: int, reader: EntryReader) -> None:
    """A limit of open files that is met while processes are started: some are, or none."""
    with Spread(reader, _rows, _PARTS, 1) as results:  # the server that forks is there
        assert len(list(results)) == len(_PARTS)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 9, before[1]))
    held: list[int] = []
    try:
        with suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(room):
            os.close(held.pop())
        with Spread(reader, _rows, _PARTS, 3) as results:
            found = list(results)
    finally:
        for one in held:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert [row[:2] for row in found] == _here(reader)


@pytest.mark.usefixtures("server_that_ends")
def test_where_no_process_can_be_forked_all_is_done_here(reader: EntryReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server that forks ends then, and its pipe with it."""

    def ended(pipe: int) -> int:
        raise EOFError("unexpected EOF")

    monkeypatch.setattr(forkserver, "read_signed", ended)
    with Spread(reader, _rows, _PARTS, 3) as results:
        assert {row[2] for row in results} == {os.getpid()}


def _large_or_told(reader: EntryReader, part: str) -> bytes:
    """Return more than a pipe has room for, or tell the pipe at PART that this part is done."""
    if not part:
        return bytes(1 << 22)
    with Path(part).open("wb", buffering=0) as pipe:
        pipe.write(b"done")
    return b""


def test_a_process_does_the_next_part_while_its_answer_waits(reader: EntryReader, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with Spread(reader, _large_or_told, ["", str(tmp_path / "pipe")], 1) as results:
            assert select.select([pipe], [], [], 60)[0]
            assert list(results) == [bytes(1 << 22), b""]
    finally:
        os.close(pipe)


def _rows_that_cannot_be_sent(reader: EntryReader, part: int) -> tuple[int, int, int]:
    """Do as ``_rows``, but in a process that was started for it no answer after the first can be sent."""
    if part == 2 and os.getppid() != int(os.environ["SPREAD_TEST_PARENT"]):
        Connection.send_bytes = _out_of_memory  # type: ignore[method-assign]
    return _rows(reader, part)


def _out_of_memory(*_: object) -> None:
    raise MemoryError


def test_what_a_process_cannot_send_is_done_here(
    reader: EntryReader, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPREAD_TEST_PARENT", str(os.getppid()))
    with Spread(reader, _rows_that_cannot_be_sent, _PARTS, 1) as results:
        assert [row[:2] for row in results] == _here(reader)
    assert capfd.readouterr() == ("", "")


def test_parts_may_come_while_processes_work(reader: EntryReader) -> None:
    with Spread(reader, _rows, _PARTS[:1], 2) as results:
        assert len(results._team) == 1
        results.extend(_PARTS[1:])
        found = list(results)
    assert [row[:2] for row in found] == _here(reader)
    assert len({row[2] for row in found} - {os.getpid()}) > 1


def test_processes_end_with_the_block(reader: EntryReader) -> None:
    started: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        _interrupted(reader, started)
    assert len(started) == 2
    for process_id in started:
        with pytest.raises(ProcessLookupError):
            os.kill(process_id, 0)


def _interrupted(reader: EntryReader, started: list[int]) -> None:
    with Spread(reader, _rows, _PARTS, 2) as results:
        started += [helper._process.pid for helper in results._team]
        next(iter(results))
        raise KeyboardInterrupt


def test_few_nodes_need_no_process(reader: EntryReader, monkeypatch: pytest.MonkeyPatch) -> None:
    assert processes_that_pay(reader.txn, 4) == 0
    monkeypatch.setattr(processes, "MANY_NODES", 10)
    assert [processes_that_pay(reader.txn, most) for most in (1, 2, 4)] == [0, 2, 4]
