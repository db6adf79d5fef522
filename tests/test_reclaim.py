"""``store reclaim``: what lives stays, byte for byte, where the index says; what is dead goes; metadata is doubted first."""

import shutil
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import rocksdict

from pulsar_admin import Refused, reclaim
from pulsar_admin.store.codec import entrylog
from pulsar_admin.store.disks import reclaim as disk_reclaim
from pulsar_admin.store.disks.live_records import NOWHERE, LocationsIndex
from pulsar_admin.store.disks.reclaim import LogAction, _LogReader
from pulsar_admin.store.errors import MetadataCorrupt
from tests.altering import flip
from tests.conftest import Cli
from tests.locking import locked
from tests.reclaiming import (
    CURRENT,
    delete_ledgers,
    disk_bytes,
    entries,
    half_dead_bookie,
    listed_ledgers,
    places,
    records,
)
from tests.stores import lose_nodes
from tests.worlds import CLUSTER, copy_tree, digest_of, oracle, world


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return half_dead_bookie(tmp_path_factory.mktemp("reclaim") / "data")


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    copy_tree(made, tmp_path / "data")
    return tmp_path / "data"


def actions(data: Path, cli: Cli) -> dict[str, str]:
    """What the forecast says of each log: keep, compact or delete."""
    return {row["log"]: row["action"] for row in cli(*words(data, "--dry-run", "-o", "json")).json["logs"]}


def compacted_log(data: Path, cli: Cli) -> str:
    return next(name for name, action in actions(data, cli).items() if action == "compact")


def words(data: Path, *more: object) -> tuple[object, ...]:
    return "store", "reclaim", data / "bookkeeper", "--metadata", data / "metadata", *more


def test_what_lives_stays_and_what_is_dead_goes(data: Path, cli: Cli) -> None:
    current = data / CURRENT
    alive = listed_ledgers(data / "metadata")
    before = entries(current, alive)
    old = {file.name for file in current.glob("*.log") if file.stat().st_size}
    sums: dict[str, list[int]] = {name: [0, 0] for name in old}
    for name in old:
        for ledger_id, _, size in records(current / name):
            if ledger_id >= 0:
                sums[name][ledger_id not in alive] += size
    forecast = cli(*words(data, "--dry-run", "-o", "json")).json
    told = {row["log"]: row for row in forecast["logs"]}
    newest = max(old, key=lambda name: int(name.partition(".")[0], 16))  # is not sealed: read, where others have a map
    assert {name: [row["liveBytes"], row["deadBytes"]] for name, row in told.items() if name != newest} == {
        name: found for name, found in sums.items() if name != newest
    }
    assert {name: row["action"] for name, row in told.items()} == {
        name: "delete" if not live else "compact" if live < dead else "keep" for name, (live, dead) in sums.items()
    }
    assert {"delete", "compact", "keep"} <= {row["action"] for row in told.values()}
    taken = disk_bytes(current)
    done = cli.done(*words(data, "--yes", "-o", "json"))
    assert entries(current, alive) == before
    freed = taken - disk_bytes(current)
    assert done.json["freedBytes"] == freed
    assert freed == forecast["freesBytes"]
    kept = {name for name, row in told.items() if row["action"] == "keep"}
    new = {file.name for file in current.glob("*.log") if file.stat().st_size} - kept
    assert not new & old
    assert len(new) == done.json["newLogs"] == 1
    moved = [(ledger, entry) for ledger, entry, _ in records(current / new.pop()) if ledger >= 0]
    assert len(set(moved)) == len(moved) == done.json["movedEntries"]
    assert set(moved) <= before.keys()
    again = cli.done(*words(data, "--yes", "-o", "json"))
    assert (again.json["freedBytes"], again.json["movedEntries"]) == (0, 0)


def test_the_total_of_the_table_is_the_sum_of_its_column(data: Path, cli: Cli) -> None:
    told = cli(*words(data, "--dry-run")).stdout
    frees = cli(*words(data, "--dry-run", "-o", "json")).json["freesBytes"]
    rows = [line.split() for line in told.splitlines() if f"{CURRENT}/" in line]
    assert sum(int(row[-1].replace(",", "")) for row in rows) == frees
    assert f"({frees:,} bytes)" in told


def test_new_logs_are_as_a_bookie_writes_them(data: Path, cli: Cli) -> None:
    """Header, records without a gap, ledgers map with the bytes of each ledger, the id behind all others (docs/formats/entry-log.md)."""
    current = data / CURRENT
    ids = [int(file.stem, 16) for file in current.glob("*.log")]
    assert cli(*words(data, "--yes", "--below", "99")).exit_code == 0
    newest = max(int(file.stem, 16) for file in current.glob("*.log"))
    assert newest == max(*ids, int((current / "lastId").read_text(), 16) - 1) + 1 == max(ids) + 1
    assert int((current / "lastId").read_text(), 16) == newest
    raw = (current / f"{newest:x}.log").read_bytes()
    assert raw[:8] == b"BKLO" + (1).to_bytes(4, "big")
    end, count = int.from_bytes(raw[8:16], "big"), int.from_bytes(raw[16:20], "big")
    assert raw[20:1024] == bytes(1004)
    sizes: dict[int, int] = defaultdict(int)
    for ledger_id, _, size in records(current / f"{newest:x}.log"):
        sizes[ledger_id] += size
    assert sizes.pop(-1) == len(raw) - end == 4 + 20 + 16 * count
    rows = [raw[end + 24 + 16 * row : end + 40 + 16 * row] for row in range(count)]
    assert {int.from_bytes(row[:8], "big"): int.from_bytes(row[8:], "big") for row in rows} == sizes
    assert (current / f"{newest:x}.log").stat().st_mode == (current / "VERSION").stat().st_mode


def test_a_real_cluster_that_was_killed(cli: Cli, tmp_path: Path) -> None:
    """What the broker deleted before the kill goes from all three bookies; journals, which hold what was not flushed, are not touched."""
    copy_tree(world(CLUSTER) / "crashed", tmp_path / "data")
    moved = 0
    for number in range(3):
        bookie = tmp_path / "data" / f"bookkeeper{number}"
        current = bookie / "current"
        journals = {file: digest_of(file) for file in current.glob("*.txn")}
        metadata = ("--zookeeper", tmp_path / "data" / "zookeeper")
        forecast = cli("store", "reclaim", bookie, *metadata, "--below", "100", "--dry-run", "-o", "json").json
        done = cli.done("store", "reclaim", bookie, *metadata, "--below", "100", "--yes", "-o", "json")
        assert forecast["deletedLedgers"] > 0
        moved += done.json["movedEntries"]
        assert {file: digest_of(file) for file in current.glob("*.txn")} == journals
        held = places(current)
        gone = {entry[0] for entry, (log_id, _) in held.items() if not (current / f"{log_id:x}.log").exists()}
        alive = {entry[0] for entry in held} - gone
        before = entries(world(CLUSTER) / "crashed" / f"bookkeeper{number}" / "current", alive)
        assert entries(current, alive) == before
        acknowledged = oracle(CLUSTER)["crash"]["acknowledged_to_producer"].values()
        assert not {row["id"][0] for rows in acknowledged for row in rows} & gone
    assert moved > 0


def test_a_copy_that_a_stopped_run_left_is_known_by_its_records(data: Path, cli: Cli) -> None:
    current = data / CURRENT
    alive = listed_ledgers(data / "metadata")
    before = entries(current, alive)
    log = current / "5.log"
    shutil.copyfile(log, current / "77.log")  # whole, and no index names it
    (current / "78.log.compacting").write_bytes(log.read_bytes()[:9999])
    (storage,) = cli(*words(data, "--dry-run", "-o", "json")).json["directories"]
    assert storage["leftovers"] == ["78.log.compacting"]
    cli.done(*words(data, "--yes", "-o", "json"))
    assert not (current / "77.log").exists()
    assert not (current / "78.log.compacting").exists()
    assert entries(current, alive) == before


def test_a_map_without_the_ledgers_that_live_in_a_log_loses_none_of_their_entries(data: Path, cli: Cli) -> None:
    current = data / CURRENT
    alive = listed_ledgers(data / "metadata")
    before = entries(current, alive)
    name = next(log_id for entry, (log_id, _) in sorted(places(current).items()) if entry[0] in alive)
    log = current / f"{name:x}.log"
    raw = bytearray(log.read_bytes())
    end = int.from_bytes(raw[8:16], "big")
    deleted = (ledger_id for ledger_id in range(max(alive)) if ledger_id not in alive)
    for row, ledger_id in zip(range(int.from_bytes(raw[16:20], "big")), deleted, strict=False):
        raw[end + 24 + 16 * row : end + 32 + 16 * row] = ledger_id.to_bytes(8, "big")
    log.write_bytes(raw)
    assert cli(*words(data, "--yes", "--below", "99")).exit_code == 0
    assert entries(current, alive) == before


def test_the_only_good_copy_is_not_deleted(data: Path, cli: Cli) -> None:
    """Where the index names a record that is damaged, the log with the other copy stays, and both are named."""
    current = data / CURRENT
    alive = listed_ledgers(data / "metadata")
    name, entry = next((log_id, entry) for entry, (log_id, _) in sorted(places(current).items()) if entry[0] in alive)
    log = current / f"{name:x}.log"
    shutil.copyfile(log, current / "77.log")
    flip(log, places(current)[entry][1] + 40, 0x40)
    copy = digest_of(current / "77.log")
    done = cli(*words(data, "--yes", "--below", "100", "-o", "json")).ends(1)
    assert {Path(row["log"]).name for row in done.json["passedOver"]} == {log.name, "77.log"}
    assert digest_of(current / "77.log") == copy
    assert log.exists()


@pytest.mark.parametrize("damage", ["bit", "size", "cut"])
def test_a_damaged_log_is_named_and_left(damage: str, data: Path, cli: Cli) -> None:
    current = data / CURRENT
    told = actions(data, cli)
    name = next(name for name, action in told.items() if action == "compact")
    log = current / name
    alive = listed_ledgers(data / "metadata")
    lost = max(
        (entry for entry, (log_id, _) in places(current).items() if f"{log_id:x}.log" == name and entry[0] in alive),
        key=lambda entry: places(current)[entry],
    )
    offset = places(current)[lost][1]
    if damage == "cut":
        log.write_bytes(log.read_bytes()[: offset + 300])
    else:
        flip(log, offset + (100 if damage == "bit" else 1), 0x40)
    broken = digest_of(log)
    before = {entry: value for entry, value in good_entries(current, alive).items() if entry != lost}
    done = cli(*words(data, "--yes", "-o", "json")).ends(1)
    (left,) = done.json["passedOver"]
    assert (Path(left["log"]).name, f"{offset:#x}" in left["reason"]) == (name, True)
    assert name in done.stderr
    assert digest_of(log) == broken
    after = good_entries(current, alive)
    assert {entry: value for entry, value in after.items() if entry != lost} == before
    changed = sum(action in ("delete", "compact") for action in told.values())
    assert done.json["compactedLogs"] + done.json["deletedLogs"] == changed - 1


def test_damaged_logs_alone_are_not_rewritten(data: Path, cli: Cli) -> None:
    current, told = data / CURRENT, actions(data, cli)
    damaged = {int(name.partition(".")[0], 16): name for name, action in told.items() if action == "compact"}
    for log_id, offset in places(current).values():
        if log_id in damaged:
            flip(current / damaged[log_id], offset + 100, 0x40)
    done = cli(*words(data, "--yes", "-o", "json"))
    assert (done.exit_code, done.json["newLogs"], done.json["movedEntries"]) == (1, 0, 0)
    assert {Path(row["log"]).name for row in done.json["passedOver"]} == {*damaged.values()}


def test_logs_are_filled_up_to_their_limit(data: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    current, alive, limit = data / CURRENT, listed_ledgers(data / "metadata"), 1024 + 5_000
    before, old = entries(current, alive), {*current.glob("*.log")}
    monkeypatch.setattr(entrylog, "LOG_LIMIT_BYTES", limit)
    done = cli(*words(data, "--yes", "-o", "json")).json
    sizes = [
        [size for ledger_id, _, size in records(log) if ledger_id >= 0]
        for log in sorted({*current.glob("*.log")} - old, key=lambda log: int(log.stem, 16))
    ]
    assert (len(sizes), sum(map(len, sizes))) == (done["newLogs"], done["movedEntries"])
    assert all(1024 + sum(log) <= limit < 1024 + sum(log) + following[0] for log, following in pairwise(sizes))
    assert entries(current, alive) == before


def good_entries(current: Path, alive: set[int]) -> dict[tuple[int, int], str]:
    """As ``entries``, where a record may be cut or say another size."""
    found = {}
    for entry, place in places(current).items():
        if entry[0] in alive:
            file = current / f"{place[0]:x}.log"
            found[entry] = file.read_bytes()[place[1] : place[1] + 200].hex()
    return found


def test_the_rest_of_a_crash_is_no_damage(data: Path, cli: Cli) -> None:
    """The newest log of a bookie that was killed ends within a record, which is in the journal."""
    current = data / CURRENT
    newest = max((file for file in current.glob("*.log") if file.stat().st_size), key=lambda file: int(file.stem, 16))
    with newest.open("ab") as file:
        file.write((500).to_bytes(4, "big") + (3).to_bytes(8, "big") + bytes(100))
    done = cli(*words(data, "--yes", "--below", "100", "-o", "json"))
    assert (done.exit_code, done.json["passedOver"]) == (0, [])


def test_a_record_that_no_index_names_is_kept(data: Path, cli: Cli) -> None:
    """Upstream's compaction takes and indexes it, too: the bookie was killed between the log and the index."""
    current = data / CURRENT
    alive = listed_ledgers(data / "metadata")
    before = entries(current, alive)
    name = compacted_log(data, cli)
    (entry, *_) = [e for e, (log_id, _) in places(current).items() if f"{log_id:x}.log" == name and e[0] in alive]
    drop_rows(current / "locations", (entry[0].to_bytes(8, "big") + entry[1].to_bytes(8, "big")).__eq__)
    assert cli(*words(data, "--yes")).exit_code == 0
    assert entries(current, alive) == before


def drop_rows(database: Path, is_dropped: Callable[[bytes], bool]) -> None:
    """Take the rows out whose keys are to be dropped, with nothing of ours."""
    opened = rocksdict.Rdict(str(database), rocksdict.Options(raw_mode=True))
    for key in [key for key in opened.keys() if is_dropped(key)]:  # noqa: SIM118
        opened.delete(key)
    opened.flush()
    opened.close()
    (database / "rocksdict-config.json").unlink()


def lose_index(current: Path, ledgers: set[int]) -> None:
    """Take the rows of LEDGERS out of both databases."""
    for name in ("locations", "ledgers"):
        drop_rows(current / name, lambda key: int.from_bytes(key[:8], "big") in ledgers)


def test_a_ledger_that_the_index_lost_is_kept(data: Path, cli: Cli) -> None:
    """Upstream deletes what its index does not have; here the ledger's ensembles name the bookie, and its records are indexed again."""
    current = data / CURRENT
    alive = listed_ledgers(data / "metadata")
    before = entries(current, alive)
    name = compacted_log(data, cli)
    lost = {ledger_id for ledger_id, _, _ in records(current / name)} & alive
    lose_index(current, lost)
    assert cli(*words(data, "--yes", "--below", "100")).exit_code == 0
    after = entries(current, alive)
    assert after == {entry: after[entry] for entry in before if entry in after}
    moved = {entry for log in current.glob("*.log") for entry in ids_in(log) if entry[0] in lost}
    assert moved == {entry for entry in before if entry[0] in lost}


def test_a_bookie_whose_index_is_empty_keeps_everything_listed(data: Path, cli: Cli) -> None:
    current = data / CURRENT
    alive = listed_ledgers(data / "metadata")
    before = {entry for entry in places(current) if entry[0] in alive}
    lose_index(current, {ledger_id for ledger_id, _ in places(current)})
    assert cli(*words(data, "--yes")).exit_code == 0
    assert {entry for log in current.glob("*.log") for entry in ids_in(log) if entry[0] in alive} == before


def ids_in(log: Path) -> set[tuple[int, int]]:
    return {(ledger_id, entry_id) for ledger_id, entry_id, _ in records(log)} if log.stat().st_size else set()


def test_no_room_is_told_and_a_log_can_wait_elsewhere(
    data: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The room is what the disk says; here it says that nothing is free but what was freed."""
    from pulsar_admin.store.disks import reclaim

    current = data / CURRENT
    alive = listed_ledgers(data / "metadata")
    before = entries(current, alive)
    for file in current.glob("*.log"):  # nothing is dead as a whole
        if {ledger_id for ledger_id, _, _ in records(file)} & alive == set():
            file.unlink()
    taken = disk_bytes(data)
    monkeypatch.setattr(reclaim, "free_bytes", lambda _: taken - disk_bytes(data))
    told = cli(*words(data, "--dry-run", "-o", "json")).json
    done = cli(*words(data, "--yes", "-o", "json")).ends(1)
    assert done.json["left"]
    no_room = [row for row in told["logs"] if row["reason"].startswith("no room: ")]
    assert [str(current / row["log"]) for row in no_room] == sorted(done.json["left"])
    assert {row["freesBytes"] for row in no_room} == {0}
    assert told["freesBytes"] == done.json["freedBytes"]
    assert "--scratch DIR" in done.stderr
    assert entries(current, alive) == before
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(reclaim, "check_scratch", lambda *_: None)
    monkeypatch.setattr(reclaim, "SLACK_BYTES", 4096)
    done = cli(*words(data, "--yes", "--scratch", scratch, "-o", "json"))
    assert (done.exit_code, done.json["left"]) == (0, [])
    assert done.json["compactedLogs"] > 0
    assert entries(current, alive) == before
    assert not list(scratch.iterdir())
    assert not [file for file in current.iterdir() if file.is_symlink()]


def test_a_log_that_waits_elsewhere_comes_back(data: Path, cli: Cli, tmp_path: Path) -> None:
    """A run that was stopped left a link; what is not compacted is put back into its place."""
    current = data / CURRENT
    names = {action: name for name, action in actions(data, cli).items()}
    kept = current / names["keep"]
    content = kept.read_bytes()
    for name in (names["keep"], names["compact"]):
        lent = tmp_path / f"pulsar-admin-lent-1-{name}"
        shutil.move(current / name, lent)
        (current / name).symlink_to(lent)
    alive = listed_ledgers(data / "metadata")
    before = entries(current, alive)
    assert cli(*words(data, "--yes")).exit_code == 0
    assert not kept.is_symlink()
    assert kept.read_bytes() == content
    assert not list(tmp_path.glob("pulsar-admin-lent-*"))
    assert entries(current, alive) == before


# -- whose metadata it is ---------------------------------------------------------------------------------------------


def refuses(cli: Cli, data: Path, *more: object) -> str:
    before = digest_of(data / "bookkeeper")
    done = cli(*words(data, "--yes", "-o", "json", *more))
    assert done.exit_code in (3, 4, 5, 6, 7)
    assert digest_of(data / "bookkeeper") == before
    return str(done.error["message"])


def test_empty_metadata_is_refused(data: Path, cli: Cli) -> None:
    delete_ledgers(data / "metadata", listed_ledgers(data / "metadata"))
    assert "lists no ledger at all" in refuses(cli, data)
    with pytest.raises(Refused, match="lists no ledger at all"):
        reclaim(str(data / "bookkeeper"), metadata=data / "metadata", dry_run=True)
    cli.done(*words(data, "--yes", "--force", "-o", "json"))
    assert not [file for file in (data / CURRENT).glob("*.log") if file.stat().st_size]


def test_older_metadata_is_refused(data: Path, cli: Cli, tmp_path: Path) -> None:
    """A store does not know which id comes next: ledgers above all it lists may be younger."""
    newest = max(listed_ledgers(data / "metadata"))
    delete_ledgers(data / "metadata", [newest])
    store = tmp_path / "store"
    assert cli("--store", store, "store", "import", "standalone", data).exit_code == 1  # and topics it has none
    done = cli("--store", store, "store", "reclaim", data / "bookkeeper", "--yes", "-o", "json").ends(3)
    assert f"1 ledger of the bookie ({newest} to {newest}) is newer than" in done.error["message"]
    assert "store refresh" in done.error["hint"]


def test_metadata_that_lacks_what_topics_name_is_refused(cli: Cli, tmp_path: Path) -> None:
    copy_tree(world(CLUSTER) / "clean", tmp_path / "data")
    store = tmp_path / "store"
    parts = ("--zookeeper", tmp_path / "data" / "zookeeper", "--bookie", tmp_path / "data" / "bookkeeper0")
    assert cli("--store", store, "store", "import", "cluster", *parts).exit_code in (0, 1)
    words = ("--store", store, "store", "reclaim", tmp_path / "data" / "bookkeeper0", "--dry-run", "-o", "json")
    before = cli(*words).json
    assert cli("--store", store, "topics", "delete", "public/default/plain").exit_code == 0
    # A deletion that was not exported deletes nothing.
    assert cli(*words).json["logs"] == before["logs"]
    lose_nodes(store, "/ledgers/00/0000/L001")
    done = cli(*words).ends(3)
    assert "that topics name" in done.error["message"]


def test_other_clusters_and_running_servers_are_refused(data: Path, cli: Cli) -> None:
    with locked(data / CURRENT / "locations" / "LOCK"):
        assert "is in use by process" in refuses(cli, data)
    cookie = data / CURRENT / "VERSION"
    cookie.write_bytes(cookie.read_bytes().replace(b'instanceId: "', b'instanceId: "0'))
    assert "belongs to another cluster" in refuses(cli, data, "--force")


def test_other_storages_are_refused(data: Path, cli: Cli) -> None:
    shutil.rmtree(data / CURRENT / "locations")
    shutil.rmtree(data / CURRENT / "ledgers")
    (data / CURRENT / "0" / "1").mkdir(parents=True)
    (data / CURRENT / "0" / "1" / "1.idx").write_bytes(b"BKLE")
    assert "SortedLedgerStorage or InterleavedLedgerStorage" in refuses(cli, data)


def test_it_asks_first(data: Path, cli: Cli) -> None:
    before = digest_of(data / "bookkeeper")
    cli(*words(data)).ends(3, "this cannot be undone: up to")
    shown = cli.done(*words(data, "--dry-run"))
    assert "would be freed" in shown.stdout
    assert digest_of(data / "bookkeeper") == before


def test_a_ledger_whose_ensembles_name_others_is_not_taken_back() -> None:
    import numpy as np

    from pulsar_admin.store.codec.ledgermetadata import closed_ledger, encode_ledger_metadata, ledger_path
    from pulsar_admin.store.disks.trust import find_members

    nodes = [
        (ledger_path(ledger_id), encode_ledger_metadata(closed_ledger(bookie, 3, 30, {})))
        for ledger_id, bookie in ((7, "bk1:3181"), (8, "bk2:3181"), (9, "bk1:3181"))
    ]
    nodes.append((ledger_path(10), b"damaged"))
    assert find_members(nodes, np.array([7, 8, 10, 11]), "bk1:3181").tolist() == [7, 10]


def test_the_forecast_answers_where_nothing_can_be_tried(data: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where RocksDB's rows cannot be written into a scratch directory, the growth of the index is an estimate."""
    from pulsar_admin.store.disks import live_records
    from pulsar_admin.store.errors import DiskFailed

    measured = cli(*words(data, "--dry-run", "-o", "json")).json

    def fails(*_: object) -> list[int]:
        raise DiskFailed("EIO", hint="")

    monkeypatch.setattr(live_records, "measure_places", fails)
    told = cli.done(*words(data, "--dry-run", "-o", "json"))
    assert told.json["logs"] == measured["logs"]


@pytest.mark.parametrize("pair", [(b"k" * 15, b"v" * 9), (b"k" * 16, b"v" * 7)])
def test_rows_that_are_no_locations(pair: tuple[bytes, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    good = (bytes(16), bytes(8))
    monkeypatch.setattr("pulsar_admin.store.disks.live_records.iter_pairs", lambda rows: iter(rows))
    assert [len(part.ledger_ids) for part in LocationsIndex([good, good], "here").iter_places()] == [2]
    with pytest.raises(MetadataCorrupt):
        list(LocationsIndex([good, pair], "here").iter_places())


def test_a_log_that_fits_comes_back_though_one_before_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    current, said, result = tmp_path / "current", list[str](), SimpleNamespace(left=[])
    current.mkdir()
    for name, size in (("0.log", 10), ("1.log", 1)):
        (lent := tmp_path / f"{disk_reclaim._LENT}{name}").write_bytes(b"x" * size)
        (current / name).symlink_to(lent)
    monkeypatch.setattr(disk_reclaim, "free_bytes", lambda path: disk_reclaim.SLACK_BYTES + 5)
    disk_reclaim._Reclaim._bring_back(SimpleNamespace(_current=current, _result=result, _tell=said.append))
    assert [(path.name, path.is_symlink()) for path in sorted(current.iterdir())] == [("0.log", True), ("1.log", False)]
    assert (result.left, len(said)) == ([str(current / "0.log")], 1)


@pytest.mark.parametrize(
    ("live", "dead", "entries", "below", "action", "frees"),
    [
        (0, 90, 0, 50, LogAction.DELETE, 40_960),
        (0, 90, 1, 50, LogAction.COMPACT, 40_960),
        (1, 90, 0, 50, LogAction.COMPACT, 40_959),
        (25, 75, 1, 25, LogAction.KEEP, 0),
        (25, 75, 1, 25.001, LogAction.COMPACT, 40_935),
        (25, 0, 1, 100, LogAction.KEEP, 0),
        (32_767, 8_193, 1, 100, LogAction.COMPACT, 8_193),
        (32_768, 8_192, 1, 100, LogAction.KEEP, 0),  # the rest is what a new log takes beside its records
    ],
)
def test_when_rewriting_a_log_is_worth_it(
    live: int, dead: int, entries: int, below: float, action: LogAction, frees: int, tmp_path: Path
) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(bytes(40_960))
    reader = _LogReader(log, np.zeros(0, np.int64), NOWHERE, lambda *_: None, lambda _: None, below)  # type: ignore[arg-type, return-value]
    found = reader._chosen(entries, (live, dead), (1, 1))
    assert (found.action, found.frees_bytes) == (action, frees)
