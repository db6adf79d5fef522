"""Index rows made of packed blocks: the same bytes whatever scans the files and wherever they are cut, and few bytes on the way."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bench.generate import generate
from pulsar_admin.store.codec.logscan import Record, iter_records
from pulsar_admin.store.db.environment import Store, create_store, open_store
from pulsar_admin.store.db.files import LogFile, iter_logs
from pulsar_admin.store.engine.local import LocalEngine
from pulsar_admin.store.engine.operation import Engine
from pulsar_admin.store.index import build as indexing
from pulsar_admin.store.index.build import Scanning, index_files, ledger_digests
from pulsar_admin.store.scan import files
from pulsar_admin.store.transfer.imports import ImportOptions
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.reference_index import assert_index_is_right
from tests.stores import import_standalone, in_store, read_rows
from tests.worlds import scratch_copy, world

ROWS = ("entries", "times", "damage", "logs")
MIB = 1 << 20


def rows_of(path: Path) -> dict[str, list[tuple[bytes, bytes]]]:
    return read_rows(path, lambda txn: {name: [(key, bytes(value)) for key, value in txn.items(name)] for name in ROWS})


def _logs_of(source: Path) -> list[Path]:
    return sorted(file for file in (source / "bookkeeper/current").glob("*.log") if file.stat().st_size)


def _recorded(name: str, state: str) -> Callable[[Path, Cli], Path]:
    return lambda tmp_path, cli: world(name) / state


def _generated(tmp_path: Path, cli: Cli) -> Path:
    """Six topics whose entries lie among each other: batches, broker times, small and large messages, several logs."""
    made = tmp_path / "made"
    options = "--topics 5 --entries 1500 --message-size 20..900 --batch 1..9 --interceptors timestamp,index"
    options += " --entries-per-ledger 1100 --log-size-limit 5M --subscriptions 2 --holes 5"
    generate(made, *options.split())
    return made


def _flipped(tmp_path: Path, cli: Cli) -> Path:
    """A bit in every 50 kilobytes, a page of zeros in every large log, one header destroyed."""
    source = scratch_copy("small", "crashed", tmp_path)
    random_ = random.Random(5)
    for number, log in enumerate(_logs_of(source)[:2]):
        data = bytearray(log.read_bytes())
        for start in range(1024, len(data) - 60_000, 50_000):
            data[start + random_.randrange(50_000)] ^= 1 << random_.randrange(8)
        page = random_.randrange(len(data) // 8192) * 4096 + 4096
        data[page : page + 4096] = bytes(len(data[page : page + 4096]))
        if number == 0:
            data[:64] = bytes(64)
        log.write_bytes(data)
    return source


def _lost_megabytes(tmp_path: Path, cli: Cli) -> Path:
    """Whole slices without a good record, in the middle and at the end."""
    source = scratch_copy("small", "crashed", tmp_path)
    for number, log in enumerate(_logs_of(source)[:2]):
        data = bytearray(log.read_bytes())
        noise = random.Random(number).randbytes(3 * MIB)
        start = len(data) - len(noise) if number else 2 * MIB
        data[start : start + len(noise)] = noise
        log.write_bytes(data)
    return source


def _wrong_sizes(tmp_path: Path, cli: Cli) -> Path:
    """Size fields that reach over megabytes of good records, also over the end of a slice."""
    source = _generated(tmp_path, cli)
    for log in _logs_of(source):
        data = bytearray(log.read_bytes())
        records = [item for item in iter_records(bytes(data), "log") if isinstance(item, Record)]
        for record in records[50::400]:
            if record.end + 1_200_000 < len(data):
                data[record.offset : record.offset + 4] = (record.size + 1_200_000).to_bytes(4, "big")
        log.write_bytes(data)
    return source


def _cut(tmp_path: Path, cli: Cli) -> Path:
    """Logs that end inside a record: in its size, its header, its payload."""
    source = scratch_copy("small", "clean", tmp_path)
    for log, end in zip(_logs_of(source), (5_000_003, 3 * MIB + 17), strict=False):
        with log.open("r+b") as stream:
            stream.truncate(end)
    return source


SOURCES: dict[str, Callable[[Path, Cli], Path]] = {
    "small": _recorded("small", "crashed"),
    "nometa": _recorded("nometa", "mutated"),
    "generated": _generated,
    "flipped": _flipped,
    "lost": _lost_megabytes,
    "sizes": _wrong_sizes,
    "cut": _cut,
}
DAMAGED = ("flipped", "lost", "sizes", "cut")


_here: dict[str, Path] = {}


@pytest.fixture
def here(made: str, tmp_path_factory: pytest.TempPathFactory, cli: Cli) -> Path:
    """The store of the source MADE, imported in this process; shared by all engines, only to be read."""
    if made not in _here:
        folder = tmp_path_factory.mktemp("made")
        import_standalone(SOURCES[made](folder, cli), folder / "here", ImportOptions(now_ms=1), lambda _: None)
        if made not in DAMAGED:
            assert_index_is_right(folder / "here")
        _here[made] = folder / "here"
    return _here[made]


def _again(path: Path, new: Path, engine: Engine | None, order: int = 1) -> Path:
    """Index the catalogued files of the store at PATH into the new store at NEW, in their ORDER or the other one."""
    create_store(new, now_ms=1)
    with open_store(path) as store, store.read() as txn:
        digests = ledger_digests(txn)
        logs = [_blank(log) for log in iter_logs(txn)]
    in_store(new, lambda store: index_files(store, logs[::order], Scanning(digests, engine=engine)))
    return new


def _blank(log: LogFile) -> LogFile:
    return replace(log, next_offset=0, records=0, problems=0, tail_records=0, tail_problems=0, torn=False)


class IndexContract:
    """What every engine does alike; subclasses hand it over as the fixture ``engine``."""

    slice_bytes: Sequence[int] = (300_000,)

    @pytest.mark.parametrize("made", SOURCES)
    def test_rows_are_those_of_this_process(
        self, made: str, here: Path, engine: Engine | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        expected = rows_of(here)
        assert expected["damage" if made in DAMAGED else "entries"]
        for number, slice_bytes in enumerate(self.slice_bytes):
            monkeypatch.setattr(indexing, "SLICE_BYTES", slice_bytes)
            assert rows_of(_again(here, tmp_path / str(number), engine)) == expected


class TestOneProcess(IndexContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return LocalEngine(1)

    @deep_but_for((0, 3, 5, 6), "made", SOURCES)
    def test_rows_are_those_of_this_process(
        self, made: str, here: Path, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        super().test_rows_are_those_of_this_process(made, here, engine, tmp_path, monkeypatch)


class TestHere(IndexContract):
    """In this process, in small windows and batches, committed after every one."""

    slice_bytes = (0, 1)

    @pytest.fixture
    def engine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(files, "WINDOW_BYTES", 1 << 17)
        monkeypatch.setattr(files, "BATCH_RECORDS", 300)
        monkeypatch.setattr(indexing, "GROUP_BYTES", 1)


@pytest.mark.parametrize("made", ["generated", "flipped"])
def test_neither_order_nor_groups_matter(
    made: str, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = rows_of(here)
    monkeypatch.setattr(indexing, "SLICE_BYTES", MIB)
    for group_bytes in (1, 5 * MIB):
        monkeypatch.setattr(indexing, "GROUP_BYTES", group_bytes)
        assert rows_of(_again(here, tmp_path / str(group_bytes), LocalEngine(1), order=-1)) == expected


# -- what is sent -----------------------------------------------------------------------------------------------------


# -- stopped in the middle --------------------------------------------------------------------------------------------


def test_what_waits_is_committed_by_its_size(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the files: what waits for its transaction is bounded by two limits."""
    source = _generated(tmp_path, cli)
    import_standalone(source, tmp_path / "here", ImportOptions(now_ms=1), lambda _: None)
    sizes: list[int] = []
    write = Store.write

    def counted(store: Store, work: Any) -> Any:
        before = sum(runs.nbytes for _, runs in work.__self__._runs) if hasattr(work, "__self__") else 0
        sizes.append(before)
        return write(store, work)

    monkeypatch.setattr(indexing, "SLICE_BYTES", MIB)
    monkeypatch.setattr(indexing, "GROUP_PACKED_BYTES", 20_000)
    monkeypatch.setattr(Store, "write", counted)
    _again(tmp_path / "here", tmp_path / "new", LocalEngine(1))
    one_slice = max(sizes) - 20_000
    assert len(sizes) >= 5
    assert 0 < one_slice < 20_000


def test_a_slice_without_a_result_keeps_the_others(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from pulsar_admin.store.errors import EntryLogCorrupt
    from pulsar_admin.store.index.scan import ScanRuns

    import_standalone(_generated(tmp_path, cli), tmp_path / "here", ImportOptions(now_ms=1), lambda _: None)
    run = ScanRuns.run

    def failing(self: ScanRuns, piece: Any) -> Any:
        if piece.start == broken.start and piece.path == broken.path:
            raise EntryLogCorrupt("an input/output error")
        return run(self, piece)

    class Recording(LocalEngine):
        def run(self, operation: Any, pieces: Any, finished: Any) -> Any:
            asked.append(list(pieces))
            return super().run(operation, pieces, finished)

    asked: list[list[Any]] = []
    monkeypatch.setattr(indexing, "SLICE_BYTES", MIB)
    _again(tmp_path / "here", tmp_path / "whole", Recording(1))
    broken = asked[0][2]
    monkeypatch.setattr(ScanRuns, "run", failing)
    with pytest.raises(EntryLogCorrupt, match=f"bytes {broken.start} to {broken.end} could not be scanned"):
        _again(tmp_path / "here", tmp_path / "new", Recording(1))
    monkeypatch.setattr(ScanRuns, "run", run)
    with open_store(tmp_path / "new", writable=True) as store:
        with store.read() as txn:
            logs = [log for log in iter_logs(txn) if log.unfinished]
            assert [log.path for log in logs] == [broken.path]
        digests = read_rows(tmp_path / "here", ledger_digests)
        index_files(store, logs, Scanning(digests, engine=Recording(1)))
    assert broken.start <= asked[2][0].start < broken.end
    assert [piece.start for piece in asked[2][1:]] == [
        piece.start for piece in asked[0] if piece.path == broken.path and piece.start > broken.start
    ]
    assert rows_of(tmp_path / "new") == rows_of(tmp_path / "here")


def test_a_file_that_is_gone_is_named(tmp_path: Path, cli: Cli) -> None:
    from pulsar_admin.store.errors import SourceChanged

    source = scratch_copy("small", "clean", tmp_path)
    import_standalone(source, tmp_path / "here", ImportOptions(now_ms=1), lambda _: None)
    shutil.rmtree(source)
    for engine in (None, LocalEngine(1)):
        with pytest.raises(SourceChanged, match=r"0\.log"):
            _again(tmp_path / "here", tmp_path / f"new{engine is None}", engine)


def test_runs_that_wait_are_bounded_by_their_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledgers of one entry: a transaction holds a bounded number, and the index is the same."""
    source = tmp_path / "made"
    generate(source, "--topics", 40, "--entries", 6, "--entries-per-ledger", 1)
    import_standalone(source, tmp_path / "here", ImportOptions(now_ms=1), lambda _: None)
    written: list[int] = []
    commit = indexing._Group.commit
    monkeypatch.setattr(files, "WINDOW_BYTES", 20_000)
    monkeypatch.setattr(indexing, "GROUP_RUNS", 10)
    monkeypatch.setattr(indexing._Group, "commit", lambda self: (written.append(self._count), commit(self))[1])
    import_standalone(source, tmp_path / "new", ImportOptions(now_ms=1), lambda _: None)
    assert sum(written) == 240
    assert max(written) < 60
    with (
        open_store(tmp_path / "here") as one,
        open_store(tmp_path / "new") as other,
        one.read() as a,
        other.read() as b,
    ):
        for database in ("entries", "times"):
            assert list(map(_copied, a.items(database))) == list(map(_copied, b.items(database)))


def _copied(row: tuple[bytes, memoryview]) -> tuple[bytes, bytes]:
    return row[0], bytes(row[1])
