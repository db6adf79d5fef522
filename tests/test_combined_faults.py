"""Faults in combination, planted by seed in copies of the disks of the cluster that has lived: what is told of them, and what comes back.

What is still whole on the damaged disks is counted by a reader of its own; nothing beyond what was planted may be lost.
"""

import random
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Container
from itertools import count, dropwhile
from pathlib import Path

import google_crc32c
import pytest
from msgspec.structs import replace
from pyroaring import BitMap64

from pulsar_admin.store.codec.ledgermetadata import encode_ledger_metadata, ledger_path
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.files import Damage, iter_logs, put_damage
from pulsar_admin.store.db.tree import Node, put_nodes, read_node
from pulsar_admin.store.db.unserved import FAILING, put_rows
from pulsar_admin.store.model.coverage import read_disks, read_open_end
from pulsar_admin.store.model.ledgers import find_metadata, read_ledger
from tests.conftest import Cli
from tests.live.on_disk import iter_records
from tests.moved_bookies import change_ledgers
from tests.stores import copied, lived_bookie
from tests.test_recorded_lived import WORLD, rows_of
from tests.worlds import copy_tree, oracle, world

Ids = tuple[int, int]


def damage_two(disks: Path, rng: random.Random) -> None:
    """Damage a tenth of the records in the entry logs of two bookies."""
    for bookie in rng.sample(bookies_of(disks), 2):
        for log in sorted(bookie.rglob("current/*.log")):
            content = bytearray(log.read_bytes())
            for record in iter_records(log):
                if record.entry[0] >= 0 and rng.random() < 0.1:
                    content[record.offset + 4 + rng.randrange(record.size)] ^= 0xFF
            log.write_bytes(content)


def lose_one(disks: Path, rng: random.Random) -> None:
    shutil.rmtree(rng.choice(bookies_of(disks)))


def put_old_disks(disks: Path, rng: random.Random) -> None:
    (old,) = (world(WORLD) / "old").glob("bookie*")
    shutil.rmtree(disks / old.name, ignore_errors=True)
    copy_tree(old, disks / old.name)


def put_old_metadata(disks: Path, rng: random.Random) -> None:
    shutil.rmtree(disks / "zookeeper")
    copy_tree(world(WORLD) / "old" / "zookeeper", disks / "zookeeper")


def cut_logs(disks: Path, rng: random.Random) -> None:
    """Cut the newest entry log of each directory of one bookie somewhere."""
    for current in rng.choice(bookies_of(disks)).rglob("current"):
        logs = [log for log in current.glob("*.log") if log.stat().st_size > 1024]
        if logs:
            log = max(logs, key=lambda log: int(log.stem, 16))
            with log.open("r+b") as file:
                file.truncate(rng.randrange(1024, log.stat().st_size))


def bookies_of(disks: Path) -> list[Path]:
    return sorted(disks.glob("bookie*"))


FAULTS: tuple[Callable[[Path, random.Random], None], ...] = (
    put_old_disks,
    lose_one,
    put_old_metadata,
    cut_logs,
    damage_two,
)
"""In the order in which they are planted: damage comes to what is there."""


def plant(disks: Path, rng: random.Random) -> list[Callable[[Path, random.Random], None]]:
    """Plant two or three faults; return them."""
    planted = rng.sample(FAULTS, rng.choice((2, 2, 3)))
    for fault in FAULTS:
        if fault in planted:
            fault(disks, rng)
    return planted


def whole_entries(disks: Path) -> dict[Ids, int]:
    """The last-add-confirmed of every entry of which some file has a record whose CRC-32C is right."""
    found = {}
    for path in [*disks.rglob("current/*.log"), *disks.rglob("current/*.txn")]:
        content = path.read_bytes()
        for record in iter_records(path):
            body = content[record.offset + 4 : record.offset + 4 + record.size]
            if len(body) >= 36 and record.entry[0] >= 0:
                confirmed, _, digest = struct.unpack_from(">qqI", body, 16)
                if google_crc32c.value(body[:32] + body[36:]) == digest:
                    found[record.entry] = confirmed
    return found


def dropped(whole: Container[Ids], moment: str) -> set[Ids]:
    """The entries that no recovery serves: of a ledger that nobody closed by MOMENT, what is behind an entry that is nowhere whole."""
    stats = oracle(WORLD)["marks"][moment]["internal"].values()
    last = {one["ledgers"][-1]["ledgerId"] for one in stats}
    found = set[Ids]()
    for rows in oracle(WORLD)["rows"].values():
        entries = sorted({(row[0], row[1]) for row in rows if row[0] in last or row[0] > max(last)})
        for ledger_id in {ledger_id for ledger_id, _ in entries}:
            own = [entry for entry in entries if entry[0] == ledger_id]
            found.update(dropwhile(lambda entry: entry in whole, own))
    return found


def test_entries_after_a_gap_are_told(cli: Cli, tmp_path: Path) -> None:
    """Of open ledgers an entry was on a bookie that is not imported and on one whose disks are an old copy, later ones are here."""
    disks = tmp_path / "disks"
    copy_tree(world(WORLD) / "clean", disks)
    put_old_disks(disks, random.Random(0))
    (old,) = (world(WORLD) / "old").glob("bookie*")
    stats = oracle(WORLD)["marks"]["deleted"]["internal"].values()
    last = {one["ledgers"][-1]["ledgerId"] for one in stats}
    told, beyond = {}, {}
    for absent in [bookie for bookie in bookies_of(disks) if bookie.name != old.name]:
        gone = tmp_path / absent.name
        absent.rename(gone)
        here = whole_entries(disks)
        for ledger_id in last:
            entries = {entry: confirmed for (ledger, entry), confirmed in here.items() if ledger == ledger_id}
            gap = next(entry for entry in count(max(entries.values(), default=-1) + 1) if entry not in entries)
            if gap < max(entries, default=0):
                beyond[absent.name, ledger_id] = sum(entry > gap for entry in entries)
        words = [word for bookie in bookies_of(disks) for word in ("--bookie", lived_bookie(bookie))]
        store = tmp_path / f"store-{absent.name}"
        cli("--store", store, "store", "import", "cluster", "--zookeeper", disks / "zookeeper", *words)
        for row in cli.rows(store, "doctor --each 100"):
            if row["code"] == "recovery-drops-entries":
                told[absent.name, row["evidence"]["ledgerId"]] = row["evidence"]["entries"]
        gone.rename(absent)
    assert len(beyond) > 2
    assert told == beyond
    ledger_id = next(ledger_id for name, ledger_id in told if store.name.endswith(name))
    old_id, other_id = damage_next(store, ledger_id, old.name)
    rows = [row for row in cli.rows(store, "doctor --each 100") if row["code"] == "recovery-drops-entries"]
    (said,) = (row["message"] for row in rows if row["where"] == f"ledger {ledger_id}")
    assert f"and {old_id} lacks entry " in said
    assert f" ({other_id} has a damaged record of it), but " in said
    words = [word for bookie in bookies_of(disks) for word in ("--bookie", lived_bookie(bookie))]
    cli("--store", tmp_path / "all", "store", "import", "cluster", "--zookeeper", disks / "zookeeper", *words)
    rows = [
        row["evidence"]
        for row in cli.rows(tmp_path / "all", "doctor --each 100")
        if row["code"] == "open-end-uncertain"
    ]
    found = {row["ledgerId"]: row["entries"] for row in rows if row["ledgerId"] in last}  # of topics
    assert found == uncertain(disks, last)


def test_a_recovery_that_needs_a_bookie_is_told(cli: Cli, tmp_path: Path) -> None:
    """Of these disks, salvaged, a real broker (4.0.8) loads all topics but that of ledger 258: "Error while recovering ledger".

    Its next entry is damaged on one bookie, and the other's disks are gone. Until then others have damaged last records, too.
    """
    disks, store = tmp_path / "disks", tmp_path / "store"
    copy_tree(world(WORLD) / "clean", disks)
    assert plant(disks, random.Random(14)) == [damage_two, lose_one]
    words = [word for bookie in bookies_of(disks) for word in ("--bookie", lived_bookie(bookie))]
    cli("--store", store, "store", "import", "cluster", "--zookeeper", disks / "zookeeper", *words)
    code = "recovery-needs-bookie"
    assert len(cli.rows(store, f"doctor --each 100 --code {code}")) > 1
    for bookie in bookies_of(disks):
        cli("--store", store, "store", "salvage", lived_bookie(bookie), "--yes")
    cli("--store", store, "store", "refresh")
    rows = cli.rows(store, f"doctor --each 100 --code {code}")
    assert [(row["where"], "127.0.0.1:13730, not imported, answers" in row["message"]) for row in rows] == [
        ("ledger 258", True)
    ]
    (info,) = cli.rows(store, "ledgers info 258")
    assert (info["openEnd"]["verdict"], info["openEnd"]["needs"]) == ("open", ["127.0.0.1:13730"])

    change_ledgers(store, lambda _, metadata: metadata, without_cookies=("127.0.0.1:13730",))  # it never answers
    (missing,) = (row for row in cli.rows(store, "ledgers missing") if row["ledgerId"] == 258)
    assert missing["reason"] == "gone-bookies"
    assert "ledgers restore 258 --to-bookies" in cli("--store", store, "ledgers", "missing").stderr
    told = cli("--store", store, "ledgers", "restore", "258", "--to-bookies")
    assert "8 entries of ledger 258 after one that no imported bookie serves" in told.stdout
    assert 258 not in {row["ledgerId"] for row in cli.rows(store, "ledgers missing")}
    (info,) = cli.rows(store, "ledgers info 258")
    assert (info["state"], info["lastEntryId"], info["openEnd"]) == ("CLOSED", 0, None)


def test_a_damaged_record_is_an_answer_whatever_ids_it_has(cli: Cli, tmp_path: Path) -> None:
    """Of these disks, salvaged, a real broker (4.0.8) does not load the topic of ledger 258: both records of its entry 1 are damaged.

    One is damaged in its ids. The bookie's index leads there all the same, and it does not answer that it has no such entry.
    """
    disks, store = tmp_path / "disks", tmp_path / "store"
    copy_tree(world(WORLD) / "clean", disks)
    assert damage_two in plant(disks, random.Random(5))
    words = [word for bookie in bookies_of(disks) for word in ("--bookie", lived_bookie(bookie))]
    cli("--store", store, "store", "import", "cluster", "--zookeeper", disks / "zookeeper", *words)
    cli("--store", store, "store", "recover", "--level", "B")
    for bookie in bookies_of(disks):
        cli("--store", store, "store", "salvage", lived_bookie(bookie), "--yes")
    cli("--store", store, "store", "refresh")
    (info,) = cli.rows(store, "ledgers info 258")
    assert (info["openEnd"]["verdict"], info["openEnd"]["lastEntryId"]) == ("damaged", 0)
    rows = cli.rows(store, "doctor --each 100 --code recovery-fails")
    assert 258 in {row["evidence"]["ledgerId"] for row in rows}


def test_the_one_bookie_of_a_ledger_answers_with_an_error(cli: Cli, tmp_path: Path) -> None:
    """As above where a single bookie has every ledger, most of which are told from two rows of the store."""
    path = copied("small", "crashed", tmp_path)
    assert 272 not in {row["evidence"]["ledgerId"] for row in cli.rows(path, "doctor --each 100 --code recovery-fails")}
    with open_store(path, writable=True) as opened:

        def work(txn: Txn) -> int:
            log = next(one for one in iter_logs(txn) if one.kind == "entry-log")
            put_rows(txn, FAILING, [(272, log.file_id, BitMap64([25]))])
            return read_ledger(txn, 272).last_entry_id

        assert opened.write(work) == 24
    (info,) = cli.rows(path, "ledgers info 272")
    assert info["openEnd"]["verdict"] == "damaged"
    assert 272 in {row["evidence"]["ledgerId"] for row in cli.rows(path, "doctor --each 100 --code recovery-fails")}
    unnamed = cli("--store", path, "ledgers", "restore", "--to-bookies", "-o", "json")
    assert unnamed.error["code"] == "ledger-not-found"
    closed = cli("--store", path, "ledgers", "restore", 272, "--to-bookies", "--yes")
    assert (closed.exit_code, "ledger 272 is closed at entry 24" in closed.stdout + closed.stderr) == (0, True)
    (info,) = cli.rows(path, "ledgers info 272")
    assert (info["state"], info["lastEntryId"], info["openEnd"]) == ("CLOSED", 24, None)
    assert 272 not in {row["evidence"]["ledgerId"] for row in cli.rows(path, "doctor --each 100 --code recovery-fails")}


def damage_next(store: Path, ledger_id: int, old: str) -> list[str]:
    """Damage the record after an open ledger's end on a bookie that is not OLD, and have it on all three; return the ids of both."""
    with open_store(store, writable=True) as opened:

        def work(txn: Txn) -> list[str]:
            end, metadata = read_open_end(txn, read_ledger(txn, ledger_id)), find_metadata(txn, ledger_id)
            assert end is not None
            assert metadata is not None
            logs = {f"/{old}/" in one.path: one for one in iter_logs(txn) if one.kind == "entry-log"}
            log, next_id = logs[False], end.last_entry_id + 1
            put_damage(txn, Damage(log.file_id, log.size_bytes - 1, 1, "wrong digest", ledger_id, next_id))
            node = read_node(txn, ledger_path(ledger_id))
            value = encode_ledger_metadata(replace(metadata, write_quorum=3, ack_quorum=3), node.value)
            put_nodes(txn, [Node(node.path, node.stat, value)])
            disks = read_disks(txn)
            return [disks.by_file[logs[is_old].file_id] for is_old in (True, False)]

        return opened.write(work)


def uncertain(disks: Path, ledgers: set[int]) -> dict[int, int]:
    """Open ledger → its last entries that not both bookies of a write set have, after the last acknowledged for certain."""
    copies, found = [whole_entries(bookie) for bookie in bookies_of(disks)], {}
    for ledger_id in ledgers:
        have = Counter(entry for copy in copies for ledger, entry in copy if ledger == ledger_id)
        confirmed = max([-1, *(last for copy in copies for (ledger, _), last in copy.items() if ledger == ledger_id)])
        end = next(entry for entry in count(confirmed + 1) if not have[entry])
        kept = next(entry for entry in count(confirmed + 1) if have[entry] < 2)
        if kept < end:
            found[ledger_id] = end - kept
    assert found
    return found


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(20))
def test_what_was_not_planted_is_not_lost(cli: Cli, tmp_path: Path, seed: int) -> None:
    disks, store = tmp_path / "disks", tmp_path / "store"
    copy_tree(world(WORLD) / "clean", disks)
    planted = plant(disks, random.Random(seed))
    whole = whole_entries(disks)
    behind = dropped(whole, "whole" if put_old_metadata in planted else "deleted")
    words = [word for bookie in bookies_of(disks) for word in ("--bookie", lived_bookie(bookie))]
    imported = cli("--store", store, "store", "import", "cluster", "--zookeeper", disks / "zookeeper", *words)
    assert imported.exit_code in (0, 1), imported.stderr
    if put_old_metadata in planted:
        cli.done("--store", store, "store", "recover", "--yes")
    told = {row["ledgerId"] for row in cli.rows(store, "ledgers underreplicated")}
    found = {tuple(row[:3]): row for _, row in rows_of(cli, store, "--uncommitted")}
    said = [row for rows in oracle(WORLD)["rows"].values() for row in rows]
    lost = {(row[0], row[1]) for row in said if found.get(tuple(row[:3])) != row}
    print(
        f"seed {seed}:",
        *(fault.__name__ for fault in planted),
        len(lost),
        "entries lost",
        len(lost & behind),
        "behind an end",
    )
    assert not lost & whole.keys() - behind
    assert {ledger_id for ledger_id, _ in lost - behind} <= told
