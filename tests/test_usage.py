"""Disk usage against the reference scan of the same logs."""

import shutil
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.codec.logscan import Record, iter_records
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.facts.file_sums import indexed_sizes, read_disk_totals
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.reports.usage import GONE, read_usage
from tests.conftest import Cli
from tests.stores import imported
from tests.worlds import copy_tree, world


@pytest.mark.parametrize(("name", "state"), [("small", "clean"), ("nometa", "mutated")])
def test_bytes_of_every_log_and_of_deleted_ledgers(name: str, state: str) -> None:
    """Every record counts in its file, of an entry's copies the newest for its topic; the reference walks logs in id order."""
    current = world(name) / state / "bookkeeper" / "current"
    place: dict[tuple[int, int], tuple[str, int]] = {}
    records: list[tuple[int, str, int]] = []
    for log in sorted(current.glob("*.log"), key=lambda path: int(path.stem, 16)):
        for item in iter_records(log.read_bytes(), log.name) if log.stat().st_size else ():
            if isinstance(item, Record) and item.ledger_id >= 0:
                place[item.ledger_id, item.entry_id] = (log.name, 4 + item.size)
                records.append((item.ledger_id, log.name, 4 + item.size))
    with open_store(imported(name, state)) as store, store.read() as txn:
        usage, stuck = read_usage(txn), read_disk_totals(txn, 99).stuck
        sizes, logs = indexed_sizes(txn), [log for log in iter_logs(txn) if log.kind is FileKind.ENTRY_LOG]
        indexed = {Path(log.path).name: sizes(log.file_id) for log in logs}
        alive = {ledger_id: find_node(txn, ledger_path(ledger_id)) is not None for ledger_id, _ in place}
        owners = {ledger_id: (*(one.topic for one in find_owners(txn, ledger_id)), "")[0] for ledger_id, _ in place}
    live, dead = Counter[str](), Counter[str]()
    lives: dict[str, Counter[int]] = defaultdict(Counter)
    for ledger_id, log_name, size in records:
        (live if alive[ledger_id] else dead)[log_name] += size
        if alive[ledger_id]:
            lives[log_name][ledger_id] += size
    for file in usage.files:
        if file.kind == "entry-log":
            log_name = file.path.rpartition("/")[2]
            assert (file.live_bytes, file.dead_bytes) == (live[log_name], dead[log_name])
            assert file.freed == (not live[log_name])
            assert file.live_bytes + file.dead_bytes + file.other_bytes == file.size_bytes
            largest = dict.fromkeys(owners[ledger_id] for ledger_id, _ in lives[log_name].most_common())
            assert file.kept_for == tuple(largest)[:3]
    for log in stuck:
        ((ledger_id, _),) = lives[Path(log.path).name].most_common(1)
        assert log.kept_for in (owners[ledger_id], f"ledger {ledger_id}, which nothing references")
    assert len(stuck) == len({*live} & {*dead})
    newest = {name: Counter[int]() for name in indexed}
    for (ledger_id, _), (log_name, size) in place.items():
        newest[log_name][ledger_id] += size
    assert indexed == newest
    deleted = next(row for row in usage.owners if row.owner == GONE)
    assert deleted.disk_bytes == dead.total()
    assert deleted.bytes == sum(size for (ledger_id, _), (_, size) in place.items() if not alive[ledger_id])
    assert sum(row.bytes for row in usage.owners) == sum(size for _, size in place.values())
    assert sum(row.disk_bytes for row in usage.owners) == live.total() + dead.total()


def test_leftovers_of_compaction_are_counted(tmp_path: Path, cli: Cli) -> None:
    """As ``TransactionalEntryLogCompactor`` names them, beside a log; a directory of such a name and other files are none."""
    source = tmp_path / "standalone"
    copy_tree(world("small") / "clean", source)
    current = source / "bookkeeper" / "current"
    (current / "1f.log.compacting").write_bytes(b"x" * 700)
    (current / "1f.log.3.compacted").write_bytes(b"x" * 60)
    (current / "none.compacted").mkdir()
    (current / "lastMark.compacted.old").write_bytes(b"x")
    store = tmp_path / "s"
    assert cli("--store", store, "store", "import", "standalone", source).exit_code == 0
    before = sum(row["size"] for row in cli.rows(imported("small", "clean"), "store usage --by log"))
    files = cli("--store", store, "store", "usage", "--by", "log", "-o", "jsonl").json_lines
    left = {row["path"].rpartition("/")[2]: row["size"] for row in files if row["kind"] == "leftover"}
    assert left == {"1f.log.compacting": 700, "1f.log.3.compacted": 60}
    assert sum(row["size"] for row in files) == before + 760
    owners = cli("--store", store, "store", "usage", "-o", "jsonl").json_lines
    assert [row["diskBytes"] for row in owners if row["owner"] == "(leftovers of compaction)"] == [760]
    disks = cli("--store", store, "store", "usage", "--by", "disk", "-o", "jsonl").json_lines
    assert sum(row["bytes"] for row in disks) == before + 760


BOOKIES = ("bookkeeper0", "bookkeeper1")


@pytest.fixture
def twins(tmp_path: Path, cli: Cli) -> Path:
    """A store of two bookies with the same entries: the index knows each entry on one of them."""
    source = tmp_path / "cluster"
    shutil.copytree(world("small") / "clean" / "metadata", source / "metadata")
    for bookie in BOOKIES:
        current = source / bookie / "current"
        current.mkdir(parents=True)
        for log in (world("small") / "clean" / "bookkeeper" / "current").glob("*.log"):
            shutil.copy(log, current)
    assert cli("--store", tmp_path / "pulsar-store", "store", "import", "standalone", source).exit_code == 0
    return tmp_path / "pulsar-store"


def test_no_log_is_free_that_holds_a_copy_of_what_lives(twins: Path) -> None:
    copies = 0
    with open_store(twins) as store, store.read() as txn:
        indexed = {log.path: indexed_sizes(txn)(log.file_id) for log in iter_logs(txn)}
        for file in read_usage(txn).files:
            records = iter_records(Path(file.path).read_bytes(), file.path) if file.size_bytes else ()
            ledgers = Counter[int]()
            for item in records:
                if isinstance(item, Record) and item.ledger_id >= 0:
                    ledgers[item.ledger_id] += 4 + item.size
            assert indexed[file.path] == ledgers
            lives = any(find_node(txn, ledger_path(ledger_id)) is not None for ledger_id in ledgers)
            copies += lives
            assert bool(file.live_bytes) == lives
            assert not (lives and file.freed), file.path
    assert copies


def test_logs_of_one_directory_are_named_without_it(cli: Cli) -> None:
    answer = cli("--store", imported("small", "clean"), "store", "usage", "--by", "log", "-o", "csv")
    assert {line.split(",")[0] for line in answer.stdout.splitlines()[1:3]} == {"0.log", "1.log"}
