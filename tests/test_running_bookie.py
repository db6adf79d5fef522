"""Imports and refreshes beside a bookie that writes, rolls and deletes journals, and compacts its logs: they end, and lose nothing."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import pytest
from msgspec import Struct

from pulsar_admin.store.codec.logscan import Record, iter_records
from pulsar_admin.store.db.blocks import Block
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.files import Damage, FileMode
from pulsar_admin.store.db.ledger_ids import find_next_ledger_id
from pulsar_admin.store.db.tree import Row
from pulsar_admin.store.doctor.diagnosing import check_store
from pulsar_admin.store.facts.unlisted import Unlisted, UnlistedLedgers
from pulsar_admin.store.model.ledgers import iter_indexed_ids
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.sources.cluster import make_layout
from pulsar_admin.store.sources.given_bookies import parse_bookie
from pulsar_admin.store.sources.layout import Layout
from pulsar_admin.store.sources.nodes import MetadataDirectory, Source, iter_source_rows
from pulsar_admin.store.transfer import imports
from pulsar_admin.store.transfer.imports import ImportOptions, ImportResult, import_layout
from pulsar_admin.store.transfer.refresh import RefreshOptions, refresh_store
from tests.conftest import Cli
from tests.growing import Bookie, ids, record
from tests.locking import locked
from tests.stores import imported, in_store
from tests.worlds import scratch_copy

JOURNAL_BYTES = 4 << 20
ENTRY_BYTES = 16 << 10


class Running(Struct):
    """A bookie that runs in another process, and its folder."""

    folder: Path
    process: subprocess.Popen[bytes]

    def acked(self) -> int:
        """Return how many entries it has acknowledged."""
        return int((self.folder / "acked").read_text())

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let it do nothing for the life of the block."""
        self.process.send_signal(signal.SIGSTOP)
        yield
        self.process.send_signal(signal.SIGCONT)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """A bookie that has written three journals."""
    folder = tmp_path / "bookie"
    sizes = map(str, (1000, 3 << 20, JOURNAL_BYTES, ENTRY_BYTES))
    words = [sys.executable, "-m", "tests.growing", str(folder), *sizes]
    with subprocess.Popen(words) as writer:
        try:
            bookie = Running(folder, writer)
            while not (folder / "acked").exists() or bookie.acked() * ENTRY_BYTES < 3 * JOURNAL_BYTES:
                assert writer.poll() is None
            yield bookie
        finally:
            writer.kill()


def unreadable(store: Path, count: int) -> list[tuple[int, int]]:
    """Return those of the first COUNT entries that the store does not give as they were written."""
    wrong = []
    with open_reader(open_store(store)) as reader:
        for entry in ids(0, count):
            body = reader.read(*entry)
            if bytes(body.payload) != record(entry, ENTRY_BYTES)[-ENTRY_BYTES:]:
                wrong.append(entry)
    return wrong


def test_imports_beside_it(running: Running, tmp_path: Path, cli: Cli) -> None:
    vanished = 0
    for number, how in zip(range(6), cycle([["--copy"], ["--link"], [], ["--jobs", "2"]]), strict=False):
        store, before = tmp_path / f"store-{number}", running.acked()
        answer = cli.done(
            "--store", store, "store", "import", "cluster", "--bookie", f"b1={running.folder}", *how, "-o", "json"
        )
        assert (answer.json["problems"], answer.json["doubts"]) == (0, [])
        vanished += len(answer.json["vanishedFiles"])
        with running.stopped():
            if how not in (["--copy"], ["--link"]):  # the files that it names may be gone by now
                assert cli("--store", store, "store", "refresh").exit_code == 0
            assert unreadable(store, before) == []
            assert not [
                row
                for row in cli("--store", store, "store", "check", "-o", "json").json
                if row["severity"] == "problem" and row["code"] != "bookie-index-missing"  # this writer keeps no index
            ]
    assert vanished


class Acting:
    """A bookie in this process, which does something when an import has read for the first time."""

    def __init__(self, folder: Path, act: Callable[[Bookie], object]) -> None:
        self.bookie = Bookie(folder, log_bytes=64 << 10, journal_bytes=64 << 10)
        self._act: Callable[[Bookie], object] | None = act

    def advance(self, size_bytes: int) -> None:
        if size_bytes and self._act is not None:
            act, self._act = self._act, None
            act(self.bookie)

    def layout(self) -> Layout:
        return make_layout(None, [parse_bookie(f"b1={self.bookie.folder}")])

    def imported(self, store: Path, mode: FileMode = FileMode.REFERENCED) -> ImportResult:
        return import_layout(self.layout(), store, ImportOptions(mode), self.advance)


def held(store: Path, *, reads: bool = True) -> set[tuple[int, int]]:
    """Return the entries that the store knows; with READS each is read."""
    found: set[tuple[int, int]] = set()
    with open_reader(open_store(store)) as reader:
        for key, value in reader.txn.items("entries"):
            block = Block(key, value)
            found |= {(block.ledger_id, block.entry_id(index)) for index in range(len(block))}
        assert not reads or all(reader.read(*entry) for entry in found)
    return found


MODES = pytest.mark.parametrize("mode", [FileMode.REFERENCED, FileMode.COPIED, FileMode.LINKED])


def flush_and_roll(bookie: Bookie) -> None:
    """Let everything that is in journals get into logs, and the journals go."""
    bookie.write(ids(1000, 300))
    bookie.flush()


@MODES
def test_journals_that_go_while_it_reads(mode: FileMode, tmp_path: Path) -> None:
    acting = Acting(tmp_path / "bookie", flush_and_roll)
    acting.bookie.write(ids(0, 100))
    acting.bookie.flush(marks=False)
    for number in range(100, 1000, 100):  # these are in journals alone
        acting.bookie.write(ids(number, 100))
    assert len([*acting.bookie.current.glob("*.txn")]) == 5
    result = acting.imported(tmp_path / "store", mode)
    assert (result.doubts, result.problems) == ([], 0)
    assert bool(result.vanished_files) == (mode is not FileMode.LINKED)
    assert held(tmp_path / "store") >= {*ids(0, 1000)}


def test_a_journal_that_goes_while_it_is_read_itself(tmp_path: Path) -> None:
    """It is open, so it is read to its end; then its entries are found in logs."""
    acting = Acting(tmp_path / "bookie", lambda bookie: None)
    for number in range(0, 300, 100):
        acting.bookie.write(ids(number, 100))
    result = Acting.imported(acting, tmp_path / "whole")
    assert result.vanished_files == []
    acting._act = flush_and_roll  # no log has anything: the first file that is read is a journal
    result = acting.imported(tmp_path / "store")
    assert (result.doubts, result.problems) == ([], 0)
    assert held(tmp_path / "store") >= {*ids(0, 300)}


@MODES
def test_an_entry_log_that_is_compacted_meanwhile(mode: FileMode, tmp_path: Path) -> None:
    def compact(bookie: Bookie) -> None:
        for _ in range(3):
            bookie.compact()

    acting = Acting(tmp_path / "bookie", compact)
    acting.bookie.write(ids(0, 1000))
    acting.bookie.flush()
    assert len([*acting.bookie.current.glob("*.log")]) > 3
    result = acting.imported(tmp_path / "store", mode)
    assert (result.doubts, result.problems) == ([], 0)
    assert held(tmp_path / "store") == {*ids(0, 1000)}
    names = [Path(path).suffix for path in result.vanished_files]
    assert set(names) == (set() if mode is FileMode.LINKED else {".log"})


@MODES
def test_a_record_that_is_written_to_its_end_meanwhile(mode: FileMode, tmp_path: Path) -> None:
    """The log ended within it when it was catalogued; what is indexed lies within the size that the catalogue has then."""
    torn: list[bytes] = []

    def complete(bookie: Bookie) -> None:
        with (bookie.current / f"{bookie.log_id:x}.log").open("ab") as log:
            log.write(torn.pop())

    acting = Acting(tmp_path / "bookie", complete)
    acting.bookie.write(ids(0, 1000))
    acting.bookie.flush()
    newest = acting.bookie.current / f"{acting.bookie.log_id:x}.log"
    raw = newest.read_bytes()
    torn.append(raw[-100:])
    newest.write_bytes(raw[:-100])
    result = acting.imported(tmp_path / "store", mode)
    assert (result.doubts, torn) == ([], [])
    with open_store(tmp_path / "store") as store:
        assert [finding for finding in check_store(store) if finding.is_problem and finding.scope == "store"] == []


def test_a_journal_that_lastmark_is_not_past_is_told(tmp_path: Path) -> None:
    """Nobody but an operator deletes it; what only it had is not known."""

    def delete(bookie: Bookie) -> None:
        (bookie.current / f"{bookie.journal:x}.txn").unlink()

    acting = Acting(tmp_path / "bookie", delete)
    acting.bookie.write(ids(0, 100))
    acting.bookie.flush()
    acting.bookie.write(ids(100, 500))
    result = acting.imported(tmp_path / "store")
    assert len(result.doubts) == 1
    assert f"{acting.bookie.journal:x}.txn was deleted before it was read" in result.doubts[0]
    assert result.doubts[0] in result.warnings


def test_what_goes_after_it_was_read_and_is_in_no_newer_log_is_told(tmp_path: Path, cli: Cli) -> None:
    there: set[tuple[int, int]] = set()

    def delete(bookie: Bookie) -> None:
        log = bookie.current / "0.log"
        there.update(item[2:] for item in iter_records(log.read_bytes(), "") if isinstance(item, Record))
        log.unlink()

    acting = Acting(tmp_path / "bookie", delete)
    for number in range(0, 400, 100):
        acting.bookie.write(ids(number, 100))
        acting.bookie.flush()
    result = acting.imported(tmp_path / "store")
    (doubt,) = result.doubts
    assert f"0.log was deleted after it was read, and the index names {len(there)} entries there" in doubt
    assert doubt.endswith(": pulsar-admin store refresh")
    answer = cli("--store", tmp_path / "store", "store", "refresh", "-o", "json")
    assert cli("--store", tmp_path / "store", "store", "refresh", "--forget").exit_code == 0
    lost = there - held(tmp_path / "store")
    assert answer.exit_code == 1
    assert [*answer.json["lost"].values()] == [len(lost)] != [0]


def test_an_import_that_was_stopped_goes_on_without_what_went_since(tmp_path: Path) -> None:
    def stop(bookie: Bookie) -> None:
        flush_and_roll(bookie)
        raise KeyboardInterrupt

    acting = Acting(tmp_path / "bookie", stop)
    acting.bookie.write(ids(0, 100))
    acting.bookie.flush(marks=False)
    for number in range(100, 1000, 100):
        acting.bookie.write(ids(number, 100))
    with pytest.raises(KeyboardInterrupt):
        acting.imported(tmp_path / "store")
    result = acting.imported(tmp_path / "store")
    assert (result.doubts, result.problems) == ([], 0)
    assert result.vanished_files
    assert held(tmp_path / "store") >= {*ids(0, 1000)}


def test_a_refresh_of_which_files_go_meanwhile(tmp_path: Path) -> None:
    acting = Acting(tmp_path / "bookie", lambda bookie: None)
    acting.bookie.write(ids(0, 100))
    acting.imported(tmp_path / "store")
    for number in range(100, 1000, 100):
        acting.bookie.write(ids(number, 100))
    acting._act = flush_and_roll
    result = in_store(tmp_path / "store", lambda store: refresh_store(store, RefreshOptions(), acting.advance))
    assert (result.doubts, result.problems, result.lost, result.elsewhere) == ([], 0, {}, {})
    assert held(tmp_path / "store") >= {*ids(0, 1000)}


def torn(bookie: Bookie) -> None:
    """Leave the beginnings of two writes."""
    os.write(bookie.log, record((1, 1 << 20))[:100])
    with (bookie.current / f"{bookie.journal:x}.txn").open("r+b") as file:
        os.pwrite(file.fileno(), record((1, 1 << 20))[:100], bookie.place)


@MODES
def test_a_write_under_way_is_no_damage(mode: FileMode, tmp_path: Path, cli: Cli) -> None:
    acting = Acting(tmp_path / "bookie", lambda bookie: bookie.write(ids(500, 1)))
    acting.bookie.write(ids(0, 100))
    acting.bookie.flush()
    acting.bookie.write(ids(100, 20))
    torn(acting.bookie)
    result = acting.imported(tmp_path / "store", mode)
    assert (result.problems, result.doubts) == (0, [])
    assert held(tmp_path / "store") >= {*ids(0, 120)}
    found = cli("--store", tmp_path / "store", "store", "check", "-o", "json").json
    assert [row for row in found if row["severity"] == "problem"] == []


def test_the_same_end_of_a_disk_that_nobody_writes_is_told(tmp_path: Path) -> None:
    acting = Acting(tmp_path / "bookie", lambda bookie: None)
    acting.bookie.write(ids(0, 100))
    acting.bookie.flush()
    torn(acting.bookie)
    assert acting.imported(tmp_path / "store").problems == 2


def test_a_lock_shows_that_a_bookie_runs(tmp_path: Path) -> None:
    """A bookie that has nothing to write, and the end of whose log is in its memory yet."""
    acting = Acting(tmp_path / "bookie", lambda bookie: None)
    acting.bookie.write(ids(0, 100))
    acting.bookie.flush()
    torn(acting.bookie)
    (acting.bookie.current / "locations").mkdir()
    with locked(acting.bookie.current / "locations" / "LOCK"):
        result = acting.imported(tmp_path / "store")
    assert (result.problems, result.doubts) == (0, [])


def test_a_write_that_was_seen_in_part_is_read_again(tmp_path: Path) -> None:
    """A reader that comes to the end of a journal meets its writer: of one write it sees what came last, and not what came first."""
    acting = Acting(tmp_path / "bookie", lambda bookie: None)
    acting.bookie.write(ids(0, 100))
    journal = acting.bookie.current / f"{acting.bookie.journal:x}.txn"
    acting.bookie.write(ids(100, 20))
    whole = journal.read_bytes()
    first = len(whole.rstrip(b"\0")) // 1024 // 2 * 1024
    journal.write_bytes(whole[:first] + bytes(1024) + whole[first + 1024 :])

    def write_the_rest(bookie: Bookie) -> None:
        journal.write_bytes(whole)

    acting._act = write_the_rest
    result = acting.imported(tmp_path / "store")
    assert (result.problems, result.doubts) == (0, [])
    assert held(tmp_path / "store") == {*ids(0, 120)}


def test_ledgers_that_a_broker_makes_while_the_disks_are_read(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their nodes are newer than the tree that was read: neither deleted, nor of newer metadata than this."""
    source = scratch_copy("small", "clean", tmp_path)
    with open_store(imported("small", "clean")) as store, store.read() as txn:
        next_id = find_next_ledger_id(txn)
        last = max(iter_indexed_ids(txn))
    assert next_id is not None
    assert next_id > last
    monkeypatch.setattr(MetadataDirectory, "holder", lambda _: 1)
    told = iter([last - 5, next_id])  # the tree's pass, and the one after the files

    def rows(metadata: Source | None, tell: Callable[[int], None] = lambda next_id: None) -> Iterator[Row | Damage]:
        yield from iter_source_rows(metadata)
        tell(next(told))

    monkeypatch.setattr(imports, "iter_source_rows", rows)
    answer = cli("--store", tmp_path / "s", "store", "import", "standalone", source, "-o", "json")
    assert (answer.exit_code, answer.json.get("findings")) == (0, None), answer.stderr
    with open_store(tmp_path / "s") as store, store.read() as txn:
        unlisted = UnlistedLedgers(txn)
        assert unlisted.why(next_id - 1) is Unlisted.UNLISTED
        assert unlisted.why(next_id) is Unlisted.NEWER
