"""A copy counts if its bookie would serve it: entry logs, or rows of the index, taken away from recorded bookies.

The old journals of these still have every entry.
"""

import shlex
import shutil
import struct
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.bookie import LogMark, decode_last_mark
from pulsar_admin.store.db.blocks import BLOCK_HEADER, block_key
from pulsar_admin.store.db.bookies import iter_imported_bookies
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.files import LogFile, iter_logs
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.model.ledgers import iter_ledger_ids, read_ledger
from pulsar_admin.store.sources import index_places
from pulsar_admin.store.sources.index_places import Scanned, read_misled
from pulsar_admin.store.sources.rocksdb import apply_changes, open_for_reading
from tests.altering import flip
from tests.conftest import Cli
from tests.reference_index import bodies
from tests.stores import copied, imported, read_rows, write_rows
from tests.test_kinds import DIRECTORIES, KINDS
from tests.test_placement import upstream_write_set
from tests.worlds import copy_tree, digest_of_file, scratch_copy, world

deep = partial(pytest.param, marks=pytest.mark.deep)
Served = dict[tuple[str, int], set[int]]  # (bookie, ledger) → entries


def _import(source: Path, path: Path, cli: Cli) -> Path:
    assert cli("--store", path, "store", "import", "standalone", source, "-q").exit_code == 0
    return path


def _findings(path: Path, cli: Cli, *more: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = cli("--store", path, "store", "check", *more, "-o", "json").json
    return [row for row in rows if row["severity"] == "problem"]


def _criticals(path: Path, cli: Cli) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = cli("--store", path, "doctor", "--severity", "critical", "-o", "json").json
    return rows


def _states(logs: Iterable[LogFile]) -> tuple[Served, Served]:
    """Return what bookies serve, and what their files have, record by record: of a journal what lies at or behind the mark beside it, of an
    entry log what a row of the index beside it leads to."""
    rows: dict[Path, set[tuple[int, int]]] = {}
    served: Served = defaultdict(set)
    held: Served = defaultdict(set)
    for log in logs:
        path = Path(log.origin)
        mark = decode_last_mark((path.parent / "lastMark").read_bytes(), "")
        if path.parent not in rows:
            rows[path.parent] = {struct.unpack(">qq", row) for row in _rows(path.parent)}
        for offset, ledger, entry in _records_of(log):
            key = (log.bookie, ledger)
            held[key].add(entry)
            if log.kind == "entry-log":
                served[key].update({entry} if (key[1], entry) in rows[path.parent] else ())
            elif LogMark(log.log_id, offset) >= mark:
                served[key].add(entry)
    return served, held


_known_records: dict[tuple[str, bytes], list[tuple[int, int, int]]] = {}


def _records_of(log: LogFile) -> list[tuple[int, int, int]]:
    """Return offset, ledger and entry of each record of a file; copies of one are read once."""
    path = Path(log.origin)
    key = (str(log.kind), digest_of_file(path))
    if key not in _known_records:
        _known_records[key] = [
            (offset, int.from_bytes(body[:8], "big"), int.from_bytes(body[8:16], "big"))
            for offset, body in bodies(log, path.read_bytes())
        ]
    return _known_records[key]


def _rows(current: Path) -> list[bytes]:
    """Return the keys of the index of entries of a ledger directory."""
    if not (current / "locations" / "CURRENT").exists():
        return []  # a start makes an empty one
    with open_for_reading(current / "locations") as pairs:
        return [key for key, _ in pairs]


def _drop_rows(current: Path, every: int, ledger: int = -1) -> None:
    """Take rows out of the index of a ledger directory: EVERY so-many-th one, and all of a ledger."""
    keys = _rows(current)
    gone = {*keys[::every], *(key for key in keys if key.startswith(ledger.to_bytes(8, "big", signed=True)))}
    apply_changes(current / "locations", lambda: ((key, None) for key in sorted(gone)))


def _expected(path: Path) -> dict[int, tuple[int, int, int]]:
    """Return of each ledger with metadata how many of its entries clients get, do not get though a file has them, and nobody has."""
    found = {}
    with open_store(path) as store, store.read() as txn:
        served, held = _states(iter_logs(txn))
        for ledger_id in iter_ledger_ids(txn):
            ledger = read_ledger(txn, ledger_id)
            assert ledger.metadata is not None
            counts = [0, 0, 0]
            for entry in range(ledger.last_entry_id + 1):
                asked = upstream_write_set(ledger.metadata, entry)
                if any(entry in served[bookie, ledger_id] for bookie in asked):
                    counts[0] += 1
                else:
                    counts[1 if any(entry in some for (_, one), some in held.items() if one == ledger_id) else 2] += 1
            found[ledger_id] = (counts[0], counts[1], counts[2])
    return found


def _told(path: Path, cli: Cli) -> dict[int, tuple[int, int]]:
    """Return of each ledger that ``ledgers missing`` names how many entries are outside what clients ask, and nowhere."""
    found = {}
    for row in cli("--store", path, "ledgers", "missing", "-o", "json").json:
        outside = sum(last - first + 1 for first, last in (row["outside"] or {"ranges": []})["ranges"])
        found[row["ledgerId"]] = (outside, row["missingEntries"] - outside)
    return found


def _assert_told(path: Path, cli: Cli) -> dict[int, tuple[int, int, int]]:
    expected = _expected(path)
    assert _told(path, cli) == {one: counts[1:] for one, counts in expected.items() if counts[1] or counts[2]}
    return expected


def _assert_all_is_served(path: Path, cli: Cli) -> None:
    assert _findings(path, cli) == []
    assert {counts[1:] for counts in _expected(path).values()} == {(0, 0)}


def _kinds(tmp_path: Path, *numbers: int) -> Path:
    """Copy the world of bookies of every storage; a start of those of NUMBERS reads nothing of their journals."""
    clean = tmp_path / "clean"
    copy_tree(world("kinds") / "clean", clean)
    for number in numbers:
        newest = max(int(log.stem, 16) for log in clean.glob(f"bookie{number}/journal/current/*.txn"))
        for mark in clean.glob(f"bookie{number}/*/current/lastMark"):
            mark.write_bytes(newest.to_bytes(8, "big") + (1 << 40).to_bytes(8, "big"))
    return clean


def _import_kinds(clean: Path, path: Path, cli: Cli) -> Path:
    given = []
    for number, names in enumerate(DIRECTORIES):
        disks = ",".join(str(clean / f"bookie{number}" / name) for name in names)
        given += ["--bookie", f"{KINDS[number]}={disks}"]
    cli("--store", path, "store", "import", "cluster", "--zookeeper", clean / "zookeeper", *given, "-q")
    return path


def _mend(path: Path, command: str, cli: Cli) -> None:
    """Run a command that the doctor printed, then the refresh that it names."""
    words = shlex.split(command)
    assert words[0] == "pulsar-admin"
    assert cli("--store", path, *words[1:], "--yes").exit_code == 0
    assert cli("--store", path, "store", "refresh", "-q").exit_code == 0


@pytest.mark.parametrize("state", [*map(deep, ("clean", "mutated")), "crashed"])
@pytest.mark.parametrize("name", ["small", deep("nometa"), "cluster"])
def test_healthy_bookies_serve_all(name: str, state: str, cli: Cli) -> None:
    """Also what a start replays: the journals of those that were killed."""
    path = imported(name, state)
    assert {counts[1:] for counts in _expected(path).values()} == {(0, 0)}
    assert _told(path, cli) == {}
    assert [row for row in _criticals(path, cli) if row["code"].startswith(("entr", "ensemble", "bookie"))] == []


@pytest.mark.parametrize(("name", "state", "log"), [("small", "crashed", 1), deep("nometa", "crashed", 0)])
def test_an_entry_log_of_the_only_bookie(name: str, state: str, log: int, tmp_path: Path, cli: Cli) -> None:
    """The old journal has every entry: nobody serves them, every answer says so, and the printed command brings them back."""
    source = scratch_copy(name, state, tmp_path)
    gone = source / "bookkeeper" / "current" / f"{log}.log"
    gone.unlink()
    path = _import(source, tmp_path / "s", cli)
    expected = _assert_told(path, cli)
    outside = sum(counts[1] for counts in expected.values())
    assert outside > 500
    (row,) = _findings(path, cli)
    assert (row["code"], row["where"]) == ("entry-log-missing", str(gone))
    context = row["context"]
    counts = [context[key] for key in ("entries", "elsewhere", "outside", "nowhere")]
    assert counts == [outside, 0, outside, 0]
    affected = sorted(ledger_id for ledger_id, one in expected.items() if one[1])
    assert (context["ledgers"], context["ledgerIds"]) == (len(affected), affected[:10])
    ledger_id = context["ledgerIds"][0]
    info = cli("--store", path, "ledgers", "info", ledger_id, "-o", "json")
    (copies,) = info.json["coverage"]["bookies"]
    assert (info.exit_code, info.json["lost"]) == (1, "not-served")
    assert (copies["held"], copies["unserved"]) == expected[ledger_id][:2]
    short = cli("--store", path, "ledgers", "underreplicated", "-o", "json").json
    assert sum(one["short"] for one in short) == outside
    refused = cli("--store", path, "ledgers", "forget", ledger_id, "-o", "json")
    assert (refused.exit_code != 0, "which clients do not ask for them" in refused.error["message"]) == (True, True)
    critical, *victims = _criticals(path, cli)
    assert {row["code"] for row in victims} <= {"pending-ack-entries-not-served"}
    _mend(path, critical["mend"], cli)
    assert _criticals(path, cli) == []
    assert _told(path, cli) == {}
    _assert_all_is_served(path, cli)


def test_a_topic_says_what_no_client_gets(tmp_path: Path, cli: Cli) -> None:
    source = scratch_copy("small", "clean", tmp_path)
    (source / "bookkeeper" / "current" / "0.log").unlink()
    path = _import(source, tmp_path / "s", cli)
    why = cli("--store", path, "topics", "why", "public/default/plain", "-s", "half", "-o", "json")
    assert "lost-entries" in {reason["code"] for reason in why.json["reasons"]}
    assert "only in records that no bookie serves" in why.stdout
    cli("--store", path, "topics", "stats", "public/default/plain").ends(1, "only in records that no bookie serves")


@pytest.mark.parametrize(("lost", "is_critical"), [((0,), False), ((0, 1), True)])
def test_entry_logs_of_several_bookies(lost: tuple[int, ...], is_critical: bool, tmp_path: Path, cli: Cli) -> None:
    """E 3, Qw 2: with one bookie's log gone every entry has another copy; with two some have none. Salvages bring them back."""
    source = scratch_copy("cluster", "crashed", tmp_path)
    logs = {}
    for number in lost:
        current = source / f"bookkeeper{number}" / "current"
        logs[number] = max(current.glob("*.log"), key=lambda path: path.stat().st_size)
    for log in logs.values():
        log.unlink()
    path = _import(source, tmp_path / "s", cli)
    expected = _assert_told(path, cli)
    outside = sum(counts[1] for counts in expected.values())
    assert (outside > 0) is is_critical
    found = [row for row in _findings(path, cli) if row["code"] != "copies-missing"]
    assert {row["where"] for row in found} == {str(log) for log in logs.values()}
    assert {row["context"]["severity"] for row in found} == {"critical" if is_critical else "warning"}
    assert all(row["context"]["entries"] >= 300 for row in found)
    ids = read_rows(path, lambda txn: [one for one in iter_ledger_ids(txn) if expected[one][1]])
    assert {row["ledgerId"] for row in cli("--store", path, "ledgers", "missing", "-o", "json").json} == set(ids)
    for row in found:
        _mend(path, row["hint"][row["hint"].index("pulsar-admin") :], cli)
    _assert_all_is_served(path, cli)
    assert cli("--store", path, "ledgers", "underreplicated", "-o", "json").json == []


@pytest.mark.parametrize(("name", "state"), [("small", "crashed"), deep("nometa", "mutated")])
def test_rows_of_the_index_of_the_only_bookie(name: str, state: str, tmp_path: Path, cli: Cli) -> None:
    """The entry logs are whole, and the bookie answers that it has no such entry: that is told, and a salvage makes the index again."""
    source = scratch_copy(name, state, tmp_path)
    current = source / "bookkeeper" / "current"
    with open_store(imported(name, state)) as store, store.read() as txn:
        owned = {one for one in iter_ledger_ids(txn) if find_owners(txn, one)}
        whole = next(one for one in sorted(owned) if read_ledger(txn, one).last_entry_id > 20)
    _drop_rows(current, 9, whole)
    path = _import(source, tmp_path / "s", cli)
    expected = _assert_told(path, cli)
    assert expected[whole][0] == 0
    outside = sum(expected[one][1] for one in owned)  # nobody asks for the others
    (row,) = _findings(path, cli)
    assert row["code"] == "entries-not-served"
    assert (row["context"]["entries"], row["context"]["offIndex"]) == (outside, outside)
    assert "in its entry logs, but not in its index" in row["message"]
    critical, *_ = _criticals(path, cli)
    _mend(path, critical["mend"], cli)
    assert _criticals(path, cli) == []
    _assert_all_is_served(path, cli)


def _mislead(current: Path, every: int) -> set[tuple[int, int]]:
    """Let EVERY so-many-th row of the index lead to the record of another, or to nothing; return their entries."""
    with open_for_reading(current / "locations") as pairs:
        rows = sorted(pairs)
    changes = {}
    for number, (key, value) in enumerate(rows):
        if number % every == 1:
            other = rows[(number + 7) % len(rows)][1]
            wrong = (value[:4] + b"\x7f\xff\xff\xff", other, (int.from_bytes(value, "big") + 5).to_bytes(8, "big"))
            changes[key] = wrong[number // every % 3]
    apply_changes(current / "locations", lambda: sorted(changes.items()))
    return {(ledger, entry) for ledger, entry in (struct.unpack(">qq", key) for key in changes)}


@pytest.mark.parametrize(("name", "state"), [("small", "crashed"), deep("nometa", "mutated")])
def test_rows_that_lead_to_other_records(name: str, state: str, tmp_path: Path, cli: Cli) -> None:
    """A deep check finds them; once the index was made again every answer counts them; a salvage makes the bookie's own again."""
    source = scratch_copy(name, state, tmp_path)
    wrong = _mislead(source / "bookkeeper" / "current", 11)
    path = _import(source, tmp_path / "s", cli)
    with open_store(path) as store, store.read() as txn:
        listed = {*iter_ledger_ids(txn)}
        replayed = {
            (key[1], entry)
            for log in iter_logs(txn)
            if log.kind == "journal"
            for key, entries in _states([log])[0].items()
            for entry in entries
        }
    (row,) = (one for one in _findings(path, cli, "--deep") if one["code"] == "index-rows-wrong")
    misled = {one for one in wrong if one[0] in listed}
    context = [row["context"][key] for key in ("severity", "entries", "elsewhere")]
    assert context == ["critical", len(misled), 0]
    assert cli("--store", path, "store", "index", "--rebuild", "-q").exit_code == 0
    told = _told(path, cli)
    assert sum(counts[0] for counts in told.values()) == len(misled - replayed) > 50
    assert sum(counts[1] for counts in told.values()) == 0
    assert {one for one, _ in misled - replayed} == told.keys()
    assert "index-rows-wrong" not in {one["code"] for one in _findings(path, cli, "--deep")}
    (served,) = (one for one in _findings(path, cli) if one["code"] == "entries-not-served")
    assert cli("--store", path, "store", "refresh", "-q").exit_code == 0
    assert _told(path, cli) == told
    _mend(path, served["hint"][served["hint"].index("pulsar-admin") :], cli)
    assert _told(path, cli) == {}
    assert not {"index-rows-wrong", "entries-not-served"} & {one["code"] for one in _findings(path, cli, "--deep")}


def test_rows_of_one_of_several_bookies_that_lead_to_other_records(tmp_path: Path, cli: Cli) -> None:
    source = scratch_copy("cluster", "clean", tmp_path)
    wrong = _mislead(source / "bookkeeper1" / "current", 5)
    path = _import(source, tmp_path / "s", cli)
    (row,) = (one for one in _findings(path, cli, "--deep") if one["code"] == "index-rows-wrong")
    entries = read_rows(path, lambda txn: sum(one[0] in {*iter_ledger_ids(txn)} for one in wrong))
    context = row["context"]
    assert (context["severity"], context["entries"], context["elsewhere"]) == ("warning", entries, entries)
    _mend(path, row["hint"][row["hint"].index("pulsar-admin") :], cli)
    assert [one for one in _findings(path, cli, "--deep") if one["code"] == "index-rows-wrong"] == []


@pytest.mark.parametrize(("name", "state"), [("small", "crashed"), ("cluster", "crashed"), ("cluster", "mutated")])
def test_rows_of_healthy_bookies_lead_to_their_records(name: str, state: str, cli: Cli) -> None:
    with open_store(imported(name, state)) as store, store.read() as txn:
        for bookie in iter_imported_bookies(store.info, whole=True):
            assert read_misled(bookie, [*iter_ledger_ids(txn)], {}) == {}


@pytest.mark.parametrize(("name", "state", "is_spoilt"), [("small", "clean", False), ("small", "clean", True)])
def test_rows_that_the_stores_own_index_confirms_need_no_log(
    name: str,
    state: str,
    is_spoilt: bool,
    tmp_path: Path,
    damages_stores: None,
    monkeypatch: pytest.MonkeyPatch,
    cli: Cli,
) -> None:
    path, read = copied(name, state, tmp_path), set[tuple[int, int]]()
    spoilt = next(ledger for ledger, entries in _entries_of_ledgers(path).items() if entries > 1)

    def spoil(txn: Txn) -> None:
        value = bytearray(txn.get("entries", block_key(spoilt, 0)) or b"")
        value[BLOCK_HEADER.size] ^= 1  # the place of its first entry
        txn.put("entries", block_key(spoilt, 0), bytes(value))

    if is_spoilt:
        write_rows(path, spoil)
    wrong_in = index_places._wrong_in

    def watched(path: Path, rows: Array, scanned: Scanned) -> Array:
        read.update(map(tuple, rows[:, :2].tolist()))
        return wrong_in(path, rows, scanned)

    monkeypatch.setattr(index_places, "_wrong_in", watched)
    codes = {one["code"] for one in _findings(path, cli, "--deep")}
    assert read == ({(spoilt, 0)} if is_spoilt else set())
    assert ("index-differs" in codes, "index-rows-wrong" in codes) == (is_spoilt, False)


def _entries_of_ledgers(path: Path) -> dict[int, int]:
    return read_rows(path, lambda txn: {one: read_ledger(txn, one).entries for one in iter_ledger_ids(txn)})


def _lose_locations(current: Path, *, directory: bool) -> None:
    """Take the database of places away, the DIRECTORY too."""
    shutil.rmtree(current / "locations")
    if not directory:
        (current / "locations").mkdir()


@pytest.mark.parametrize("directory", [True, False])
def test_the_index_of_the_only_bookie(directory: bool, tmp_path: Path, cli: Cli) -> None:
    """A start makes an empty one: of the entry logs nothing is served, and a salvage makes it again."""
    source = scratch_copy("small", "clean", tmp_path)
    _lose_locations(source / "bookkeeper" / "current", directory=directory)
    path = _import(source, tmp_path / "s", cli)
    expected = _assert_told(path, cli)
    assert sum(counts[1] for counts in expected.values()) > 1_000
    assert {row["code"] for row in _findings(path, cli)} == {"bookie-index-missing", "entries-not-served"}
    critical, *_ = _criticals(path, cli)
    _mend(path, critical["mend"], cli)
    assert _criticals(path, cli) == []
    _assert_all_is_served(path, cli)


def test_a_refresh_sees_that_an_index_went(tmp_path: Path, cli: Cli) -> None:
    """And of three bookies with Qw 2 the loss of one index leaves a copy of every entry, that of two does not."""
    source = scratch_copy("cluster", "crashed", tmp_path)
    path = _import(source, tmp_path / "s", cli)
    for number in range(2):
        _lose_locations(source / f"bookkeeper{number}" / "current", directory=bool(number))
        assert cli("--store", path, "store", "refresh", "-q").exit_code == 0
        expected = _assert_told(path, cli)
        assert (sum(counts[1] for counts in expected.values()) > 0) is bool(number)
        assert sum(row["short"] for row in cli("--store", path, "ledgers", "underreplicated", "-o", "json").json) > 100


def test_one_of_the_indexes_of_a_bookie_with_several_directories(tmp_path: Path, cli: Cli) -> None:
    """Each ledger is in one of them alone (``L mod N``): what its index led to is not served."""
    number = KINDS.index("direct")
    clean = _kinds(tmp_path, number)
    lost = next(clean.glob(f"bookie{number}/*/current/locations"))
    rows = {struct.unpack(">qq", key)[0] for key in _rows(lost.parent)}
    _lose_locations(lost.parent, directory=True)
    path = _import_kinds(clean, tmp_path / "s", cli)
    short = cli("--store", path, "ledgers", "underreplicated", "-o", "json").json
    with open_store(path) as store, store.read() as txn:
        listed = {one for one in iter_ledger_ids(txn) if read_ledger(txn, one).last_entry_id >= 0}
    assert {row["ledgerId"] for row in short} == rows & listed


def test_a_refresh_sees_that_rows_of_the_index_went(tmp_path: Path, cli: Cli) -> None:
    source = scratch_copy("small", "clean", tmp_path)
    path = _import(source, tmp_path / "s", cli)
    assert _findings(path, cli) == []
    _drop_rows(source / "bookkeeper" / "current", 50)
    assert cli("--store", path, "store", "refresh", "-q").exit_code == 0
    assert sum(counts[1] for counts in _assert_told(path, cli).values()) > 20


def test_rows_of_the_indexes_of_several_bookies(tmp_path: Path, cli: Cli) -> None:
    """With one index short every entry has another copy, with two some have none."""
    source = scratch_copy("cluster", "crashed", tmp_path)
    path = _import(source, tmp_path / "s", cli)
    for number in range(2):
        _drop_rows(source / f"bookkeeper{number}" / "current", 2 + number)
        assert cli("--store", path, "store", "refresh", "-q").exit_code == 0
        expected = _assert_told(path, cli)
        assert (sum(counts[1] for counts in expected.values()) > 0) is bool(number)
        short = cli("--store", path, "ledgers", "underreplicated", "-o", "json").json
        assert sum(row["short"] for row in short) > 100
    found = [row for row in _findings(path, cli) if row["code"] == "entries-not-served"]
    assert len(found) == 2
    for row in found:
        _mend(path, row["hint"][row["hint"].index("pulsar-admin") :], cli)
    assert _findings(path, cli) == []
    assert cli("--store", path, "ledgers", "underreplicated", "-o", "json").json == []


def _cut_ledgers(current: Path) -> set[int]:
    """Cut the database of ledgers in half; return the ledgers that it has left."""
    (log,) = (current / "ledgers").glob("*.log")
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    with open_for_reading(current / "ledgers") as pairs:
        return {int.from_bytes(key[:8], "big") for key, _ in pairs}


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_bookie_has_no_ledger_without_its_row(is_cut: bool, tmp_path: Path, cli: Cli) -> None:
    """A real bookie served 1,225 entries of 80 ledgers of either, although its index has places of all 2,566."""
    source = scratch_copy("small", "clean", tmp_path)
    path = _import(source, tmp_path / "s", cli)
    current = source / "bookkeeper" / "current"
    (log,) = (current / "ledgers").glob("*.log")
    data = log.read_bytes()
    known = _cut_ledgers(current)
    if not is_cut:  # RocksDB reads nothing after a damaged record
        log.write_bytes(data)
        flip(log, len(data) // 2, 1)
    assert cli("--store", path, "store", "refresh", "-q").exit_code in (0, 1)
    assert len(known) == 80
    whole = _expected(path)
    assert _told(path, cli) == {one: (counts[0], 0) for one, counts in whole.items() if one not in known and counts[0]}
    critical, *_ = _criticals(path, cli)
    assert critical["code"] == "entries-not-served"
    _mend(path, critical["mend"], cli)
    assert _findings(path, cli) == []
    assert _told(path, cli) == {}


def test_one_wrong_bit_in_the_log_of_the_index(tmp_path: Path, cli: Cli) -> None:
    """A real bookie served the two entries that it replayed: its index was written in few large batches.

    One of them, 162:31, is of a ledger without metadata.
    """
    source = scratch_copy("small", "clean", tmp_path)
    (log,) = (source / "bookkeeper" / "current" / "locations").glob("*.log")
    flip(log, log.stat().st_size // 2, 1)
    path = _import(source, tmp_path / "s", cli)
    stored = sum(counts[0] for counts in _expected(imported("small", "clean")).values())
    assert sum(outside for outside, _ in _told(path, cli).values()) == stored - 1
    (bookie,) = cli("--store", path, "store", "preflight", "-o", "json").json["bookies"]
    assert [fault["code"] for fault in bookie["faults"]] == ["bookie-index-unreadable"]
    assert "bookie-index-unreadable" in {row["code"] for row in cli.rows(path, "doctor --deep")}
    critical, *_ = _criticals(path, cli)
    _mend(path, critical["mend"], cli)
    _assert_all_is_served(path, cli)


def test_what_follows_zeros_in_a_journal_is_not_replayed(tmp_path: Path, cli: Cli) -> None:
    """A real bookie served 356 entries fewer of such a directory: 354, and two that the zeros destroyed."""
    source = scratch_copy("small", "crashed", tmp_path)
    newest = max((source / "bookkeeper" / "current").glob("*.txn"))
    data = bytearray(newest.read_bytes())
    data[146_204:146_804] = bytes(600)
    newest.write_bytes(data)
    path = tmp_path / "s"
    assert cli("--store", path, "store", "import", "standalone", source).exit_code == 1
    (found,) = (row for row in _criticals(path, cli) if row["code"] == "entries-not-served")
    assert (found["evidence"]["entries"], found["evidence"]["offIndex"]) == (354, 0)
    assert "only in parts of its journals that it does not replay" in found["message"]
    (bookie,) = cli("--store", path, "store", "preflight", "-o", "json").json["bookies"]
    (fault,) = bookie["faults"]
    assert (fault["code"], fault["starts"]) == ("bookie-journal-damaged", True)
    assert fault["cure"] == found["mend"]
    done = cli("--store", path, *shlex.split(found["mend"])[1:], "--yes")
    assert "354 from journals" in done.stdout
    assert cli("--store", path, "store", "refresh", "--forget").exit_code in (0, 1)
    assert [row["code"] for row in _criticals(path, cli)] == ["entries-missing"]
    assert cli("--store", path, "store", "preflight", "-o", "json").json["bookies"][0]["faults"] == []


def test_of_several_bookies_what_follows_zeros_is_as_if_the_journal_ended_there(tmp_path: Path, cli: Cli) -> None:
    source, short = scratch_copy("cluster", "crashed", tmp_path), list[dict[int, int]]()
    newest = max((source / "bookkeeper0" / "current").glob("*.txn"))
    data = newest.read_bytes()
    for number, changed in enumerate((data[:20_000], data[:20_000] + bytes(600) + data[20_600:])):
        newest.write_bytes(changed)
        path = tmp_path / f"s{number}"
        cli("--store", path, "store", "import", "standalone", source)
        short.append({row["ledgerId"]: row["short"] for row in cli.rows(path, "ledgers underreplicated")})
    assert short[0] == short[1]
    assert sum(short[0].values()) > 100


def test_of_several_bookies_one_has_lost_rows_of_ledgers(tmp_path: Path, cli: Cli) -> None:
    source = scratch_copy("cluster", "clean", tmp_path)
    known = _cut_ledgers(source / "bookkeeper1" / "current")
    path = _import(source, tmp_path / "s", cli)
    short = {row["ledgerId"] for row in cli("--store", path, "ledgers", "underreplicated", "-o", "json").json}
    assert short
    assert short.isdisjoint(known)


def _only_in(log: Path, logs: Iterable[Path], cli: Cli) -> set[tuple[int, int]]:
    """Return the entries that LOG has and none of the other LOGS."""
    found = {
        one: {(row["ledgerId"], row["entryId"]) for row in cli("logs", "dump", one, "-o", "jsonl").json_lines}
        for one in logs
    }
    return found[log].difference(*(entries for one, entries in found.items() if one != log))


@pytest.mark.parametrize("kind", [KINDS[0], deep(KINDS[1]), KINDS[2]])
def test_an_entry_log_of_a_bookie_of_every_storage(kind: str, tmp_path: Path, cli: Cli) -> None:
    """Every one of them gets every entry (Qw 3), so that others have what it lost: a warning that names the log."""
    number = KINDS.index(kind)
    clean = _kinds(tmp_path, number)
    logs = [log for log in clean.glob(f"bookie{number}/*/current/*.log") if log.stat().st_size]
    gone = max(logs, key=lambda log: len(_only_in(log, logs, cli)))
    expected = len(_only_in(gone, logs, cli))
    gone.unlink()
    path = _import_kinds(clean, tmp_path / "s", cli)
    found = [row for row in _findings(path, cli) if "log-missing" in row["code"]]
    assert [row["code"] for row in found] == ["entry-log-missing" if kind == "direct" else "idx-log-missing"]
    (context,) = (row["context"] for row in found)
    assert (context["severity"], context["bookie"]) == ("warning", kind)
    counts = [context[key] for key in ("entries", "elsewhere", "outside", "nowhere")]
    assert counts == [expected, expected, 0, 0]
    assert Path(found[0]["where"]).name == gone.name
    short = cli("--store", path, "ledgers", "underreplicated", "-o", "json").json
    assert sum(row["short"] for row in short) == expected > 10


def _past_the_end(place: bytes) -> bytes:
    return place[:4] + b"\x7f\xff\xff\xff" if any(place) else place


@pytest.mark.parametrize("past", [False, True])
def test_rows_of_the_indexes_of_every_storage(past: bool, tmp_path: Path, cli: Cli) -> None:
    """A ledger that no index leads to: its ``.idx`` files and its rows are gone, or lead PAST the ends of the logs."""
    clean = _kinds(tmp_path, 0, 1, 2)
    sizes: dict[int, list[Path]] = {}
    for path in clean.glob("bookie[01]/*/current/*/*/*.idx"):
        sizes.setdefault(int(path.stem, 16), []).append(path)
    ledger = max(one for one, paths in sizes.items() if len(paths) == 2 and paths[0].stat().st_size > 1024 + 8 * 10)
    for path in sizes[ledger]:
        if past:
            data = path.read_bytes()
            slots = (_past_the_end(data[at : at + 8]) for at in range(1024, len(data), 8))
            path.write_bytes(data[:1024] + b"".join(slots))
        else:
            path.unlink()
    for locations in clean.glob("bookie2/*/current/locations"):
        if past:
            with open_for_reading(locations) as pairs:
                rows = [
                    (key, _past_the_end(place)) for key, place in pairs if key.startswith(ledger.to_bytes(8, "big"))
                ]
            apply_changes(locations, partial(iter, rows))
        else:
            _drop_rows(locations.parent, 1 << 40, ledger)
    path = _import_kinds(clean, tmp_path / "s", cli)
    found = {row["where"]: row for row in _findings(path, cli) if "not-served" in row["code"]}
    codes = {where.removeprefix("bookie "): row["code"] for where, row in found.items()}
    of_idx = dict.fromkeys(("interleaved", "sorted"), "idx-entries-not-served")
    assert codes == {**of_idx, "direct": "entries-not-served"}
    (missing,) = cli("--store", path, "ledgers", "missing", "-o", "json").json
    assert (missing["ledgerId"], missing["reason"]) == (ledger, "not-served")
    for row in found.values():
        assert row["context"]["ledgerIds"] == [ledger]
        assert row["context"]["entries"] == row["context"]["offIndex"] == missing["missingEntries"] > 5


def test_a_mark_that_moved_on(tmp_path: Path, cli: Cli) -> None:
    """The bookie was killed: what its journal alone has a start replays, until the mark lies behind it."""
    source = scratch_copy("small", "crashed", tmp_path)
    path = _import(source, tmp_path / "s", cli)
    assert _findings(path, cli) == []
    current = source / "bookkeeper" / "current"
    newest = max(current.glob("*.txn"), key=lambda log: int(log.stem, 16))
    (current / "lastMark").write_bytes(int(newest.stem, 16).to_bytes(8, "big") + (1 << 40).to_bytes(8, "big"))
    assert cli("--store", path, "store", "refresh", "-q").exit_code == 0
    expected = _assert_told(path, cli)
    assert sum(counts[1] for counts in expected.values()) == 754
    (row,) = _findings(path, cli)
    assert row["code"] == "entries-not-served"
    assert row["context"]["entries"] == 754
    _mend(path, _criticals(path, cli)[0]["mend"], cli)
    assert _findings(path, cli) == []


def test_a_rebuilt_index_and_a_bundle_say_the_same(tmp_path: Path, cli: Cli) -> None:
    source = scratch_copy("small", "clean", tmp_path)
    (source / "bookkeeper" / "current" / "0.log").unlink()
    path = _import(source, tmp_path / "s", cli)
    told = _told(path, cli)
    assert cli("--store", path, "store", "index", "--rebuild", "-q").exit_code == 0
    assert _told(path, cli) == told
    bundle, there = tmp_path / "b", tmp_path / "there"
    assert cli("--store", path, "store", "bundle", bundle, "--names", tmp_path / "n", "-q").exit_code in (0, 1)
    cli("--store", there, "store", "import", "bundle", bundle, "-q")
    assert _told(there, cli) == told
