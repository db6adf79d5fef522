"""Files that hold nothing that is asked for are not planned; the rows are those of all files."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench.generate import generate
from pulsar_admin.cli import run
from pulsar_admin.store.engine.slices import plan_slices
from pulsar_admin.store.scan.ledgers_map import wanted_files
from pulsar_admin.store.scan.operations import ReadEntries, ScanOptions
from pulsar_admin.store.scan.sources import source_files

START_MS = 1_700_000_000_000  # of bench.generate: an entry a millisecond from then on
LOGS = "bookkeeper/current/*.log"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics of three ledgers each, one after the other in seven logs; the last one is not sealed."""
    folder = tmp_path_factory.mktemp("pruning")
    words = (
        "--topics",
        "2",
        "--entries",
        "1500",
        "--entries-per-ledger",
        "500",
        "--log-size-limit",
        "512K",
        "--interceptors",
        "timestamp",
    )
    pulsar, store = str(folder / "pulsar"), str(folder / "store")
    generate(pulsar, *words)
    assert run(["--store", store, "store", "import", "standalone", pulsar]) == 0
    return folder


def _rows(files: Any, options: ScanOptions) -> list[tuple[Any, ...]]:
    read = ReadEntries(options, ("path", "ledger_id", "entry_id", "publish_time", "broker_time"))
    return [
        tuple(row.values()) for piece in plan_slices(files) for batch in read.run(piece) for row in batch.to_pylist()
    ]


@pytest.mark.parametrize(
    ("options", "planned"),
    [
        (ScanOptions(), "0123456"),
        (ScanOptions(ledgers=(1,)), "016"),
        (ScanOptions(only_topics=True), "6"),
        (ScanOptions(only_topics=True, topics={2: "a", 3: "a"}), "1236"),
        (ScanOptions(start_ms=START_MS + 1_050), "456"),
        (ScanOptions(end_ms=START_MS + 400), "0126"),
        (ScanOptions(end_ms=START_MS - 1_000), "6"),
        (ScanOptions(end_ms=START_MS), "6"),
        (ScanOptions(end_ms=START_MS + 1), "0126"),
        (ScanOptions(start_ms=START_MS + 999), "23456"),
        (ScanOptions(start_ms=START_MS + 1_000), "456"),
        (ScanOptions(start_ms=START_MS + 600, end_ms=START_MS + 601), "2346"),
        (ScanOptions(between={"publish_ms": (START_MS + 1_100, START_MS + 1_101)}), "456"),
        (ScanOptions(between={"broker_ms": (0, START_MS - 1_000)}), "6"),
    ],
)
def test_files_without_a_row_are_left_out(made: Path, options: ScanOptions, planned: str) -> None:
    """Ledgers 1 and 2 are in logs 0 to 2, from 0 to 0.5 s; 3 and 4 in 2 to 4, to 1 s; 5 and 6 in 4 to 6, of which 6 is not sealed."""
    every = source_files(str(made / "pulsar" / LOGS))
    found = wanted_files(every, options, str(made / "store"))
    assert [Path(path).stem for path, _, _ in found] == list(planned)
    assert _rows(found, options) == _rows(every, options)


def test_times_are_those_of_the_files_that_were_imported(made: Path, tmp_path: Path) -> None:
    """Not of a copy elsewhere, and not of a log that grew; ledgers are those of its own map."""
    nothing = ScanOptions(end_ms=START_MS - 1_000)
    copies = shutil.copytree(made / "pulsar" / "bookkeeper" / "current", tmp_path / "current")
    every = source_files(str(copies / "*.log"))
    assert wanted_files(every, nothing, str(made / "store")) == every
    assert len(wanted_files(every, ScanOptions(ledgers=(1,)))) < 5
    grown = source_files(str(made / "pulsar" / LOGS))
    path = Path(grown[0][0])
    before = path.stat()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert grown[0] in wanted_files(grown, nothing, str(made / "store"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert grown[0] not in wanted_files(grown, nothing, str(made / "store"))


def test_a_map_that_does_not_fill_its_log_is_not_believed(made: Path, tmp_path: Path) -> None:
    """Bytes of a ledger that the map does not name may lie there."""
    log = tmp_path / "0.log"
    held = bytearray((made / "pulsar" / "bookkeeper" / "current" / "0.log").read_bytes())
    offset = int.from_bytes(held[8:16], "big")
    row = offset + 24  # ledger id, bytes
    size = int.from_bytes(held[row + 8 : row + 16], "big")
    for written, kept in ((size, 0), (size - 1, 1)):
        held[row + 8 : row + 16] = written.to_bytes(8, "big")
        log.write_bytes(held)
        assert len(wanted_files(source_files(str(log)), ScanOptions(ledgers=(999,)))) == kept


def test_a_map_with_a_ledger_that_the_store_does_not_know_is_not_believed(made: Path, tmp_path: Path) -> None:
    """One flipped bit of the id of ledger 1 or 2: the map still fills its log, and names another ledger."""
    log = tmp_path / "0.log"
    held = bytearray((made / "pulsar" / "bookkeeper" / "current" / "0.log").read_bytes())
    row = int.from_bytes(held[8:16], "big") + 24  # ledger id, bytes
    named, asked = int.from_bytes(held[row : row + 8], "big"), ScanOptions(ledgers=(999,))
    for flipped, planned in ((0, 0), (1 << 20, 1)):
        held[row : row + 8] = (named ^ flipped).to_bytes(8, "big")
        log.write_bytes(held)
        files = source_files(str(log))
        assert len(wanted_files(files, asked, str(made / "store"))) == planned
        assert wanted_files(files, ScanOptions(ledgers=(named,)), str(made / "store")) == files
