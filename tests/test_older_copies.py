"""A record that is damaged where a bookie's index points, and good in an older log: clients do not get it from that bookie.

The records are copied to a log of their own, their copies are damaged, and the index leads there.
"""

import random
import shutil
import struct
from collections import Counter
from pathlib import Path

import pytest

from pulsar_admin.store.codec.logscan import Record, iter_records
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.unserved import FAILING, UNSERVED
from pulsar_admin.store.model.ledgers import iter_ledger_ids
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan.files import FileScan, LedgerDigests, Slice, has_good_digest
from pulsar_admin.store.sources.rocksdb import apply_changes, create_database, open_for_reading
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.test_lost_logs import _mend
from tests.worlds import scratch_copy

Places = dict[tuple[int, int], tuple[int, int]]
"""Ledger and entry → number of the log and offset of the record's ids."""
_HEADER_BYTES, _SIZE_BYTES = 1024, 4
_FLIPPED = {"size": 0, "payload": -1}
"""Harm → the byte of each record that is another one."""
_KEPT = {"gone": 0, "empty": 0, "header": _HEADER_BYTES, "cut": 20_000, "zeros": 20_000}
"""Harm → how many bytes of the log are left."""
_HOLE_END = 300_000
"""Before it, the log with a hole has zeros: a page that a file system lost."""


def _places(current: Path) -> Places:
    """Where the index of a ledger directory leads."""
    with open_for_reading(current / "locations") as pairs:
        rows = [(struct.unpack(">qq", key), struct.unpack(">q", value)[0]) for key, value in pairs]
    return {key: (place >> 32, place & 0xFFFFFFFF) for key, place in rows}


def _records(current: Path) -> dict[tuple[int, int], bytes]:
    """What a bookie reads: entry → the record to which its index leads, from its size on."""
    logs = {int(log.stem, 16): log.read_bytes() for log in current.glob("*.log")}
    found = {}
    for key, (number, offset) in _places(current).items():
        size = int.from_bytes(logs[number][offset - _SIZE_BYTES : offset], "big")
        found[key] = logs[number][offset - _SIZE_BYTES : offset + size]
    return found


def _plant(current: Path, every: int, harm: str = "payload") -> set[tuple[int, int]]:
    """Let EVERY so-many-th row of the index lead to a copy in a new log, and HARM that one; return the entries that lost theirs."""
    records, logs = _records(current), sorted(current.glob("*.log"), key=lambda log: int(log.stem, 16))
    number, header = int(logs[-1].stem, 16) + 1, logs[0].read_bytes()[:_HEADER_BYTES]
    data, changes, lost = bytearray(header[:8] + bytes(12) + header[20:]), {}, set()  # of a log that was not sealed
    for key in sorted(records)[::every]:
        record = bytearray(records[key])
        if harm in _FLIPPED:
            record[_FLIPPED[harm]] ^= 0x40
        changes[struct.pack(">qq", *key)] = struct.pack(">q", number << 32 | len(data) + _SIZE_BYTES)
        begin = len(data)
        data += record
        if begin < _HOLE_END if harm == "hole" else harm in _FLIPPED or len(data) > _KEPT[harm]:
            lost.add(key)
    if harm == "hole":
        data[_HEADER_BYTES:_HOLE_END] = bytes(_HOLE_END - _HEADER_BYTES)
    log, kept = current / f"{number:x}.log", _KEPT.get(harm, len(data))
    log.write_bytes(data[:kept] + bytes((len(data) - kept) * (harm == "zeros")))
    if harm == "gone":
        log.unlink()
    apply_changes(current / "locations", lambda: sorted(changes.items()))
    return lost


def _import(path: Path, source: Path, cli: Cli) -> None:
    cli("--store", path, "store", "import", "standalone", source, "-q")


def _told(path: Path, cli: Cli) -> Counter[int]:
    """Ledger → how many of its entries are in files and not served."""
    rows = cli("--store", path, "ledgers", "missing", "-o", "json").json
    ranges = {row["ledgerId"]: (row["outside"] or {"ranges": []})["ranges"] for row in rows}
    return Counter({ledger: sum(last - first + 1 for first, last in found) for ledger, found in ranges.items()})


def _listed(path: Path) -> set[int]:
    with open_store(path) as store, store.read() as txn:
        return {*iter_ledger_ids(txn)}


@deep_but_for((0, 1, 2, 3, 5, 6, 7), "harm", ["payload", "size", "gone", "empty", "header", "cut", "zeros", "hole"])
def test_the_only_bookie_serves_what_its_index_leads_to(harm: str, tmp_path: Path, cli: Cli) -> None:
    """Everything tells what clients get, also after a refresh and a rebuild; the printed command brings the older copies back."""
    source, path = scratch_copy("small", "clean", tmp_path), tmp_path / "s"
    current = source / "bookkeeper" / "current"
    right = _records(current)
    planted = _plant(current, 9, harm)
    _import(path, source, cli)
    listed = _listed(path)
    unserved = Counter(ledger for ledger, _ in planted if ledger in listed)
    assert len(unserved) >= 50
    assert _told(path, cli) == unserved
    ledger, count = unserved.most_common(1)[0]
    info = cli("--store", path, "ledgers", "info", ledger, "-o", "json").json
    assert (info["lost"], info["coverage"]["bookies"][0]["unserved"]) == ("not-served", count)
    verified = cli("--store", path, "ledgers", "verify", ledger, "-o", "json")
    assert (verified.exit_code, verified.json[0]["unserved"], verified.json[0]["damagedEntries"]) == (1, count, 0)
    code = "entry-log-missing" if harm in ("empty", "gone") else "entries-not-served"
    (row,) = (one for one in cli("--store", path, "doctor", "-o", "json").json if one["code"] == code)
    assert row["severity"] == "critical"
    assert ("which is empty" in row["message"], "which does not exist" in row["message"]) == (
        harm == "empty",
        harm == "gone",
    )
    for words in (("refresh",), ("index", "--rebuild")):
        cli("--store", path, "store", *words, "-q")
        assert _told(path, cli) == unserved
    _mend(path, row["mend"], cli)
    assert _told(path, cli) == Counter()
    assert _records(current) == right


@pytest.mark.parametrize("words", [("refresh",), ("index", "--rebuild")], ids=["refresh", "rebuild"])
def test_an_index_that_cannot_be_read_now_says_nothing_new(words: tuple[str, ...], tmp_path: Path, cli: Cli) -> None:
    """What was known of its entries stays, until it can be read again and leads to them."""
    source, path = scratch_copy("small", "clean", tmp_path), tmp_path / "s"
    current = source / "bookkeeper" / "current"
    before = _places(current)
    planted = _plant(current, 9)
    _import(path, source, cli)
    rows = _rows(path)
    assert {key[:7] for key in rows} == {b"failing", b"unserve"}
    manifest = current / "locations" / (current / "locations" / "CURRENT").read_text().strip()
    good = manifest.read_bytes()
    for data in (good[:40], good):
        manifest.write_bytes(data)
        cli("--store", path, "store", *words, "-q")
        assert _rows(path) == rows
    locations = [
        (struct.pack(">qq", *key), struct.pack(">q", before[key][0] << 32 | before[key][1])) for key in planted
    ]
    apply_changes(current / "locations", lambda: sorted(locations))
    cli("--store", path, "store", *words, "-q")
    assert not _rows(path)


def _rows(path: Path) -> dict[bytes, bytes]:
    """Return the rows of entries that a bookie does not serve, and of those that its index leads to no good record of."""
    with open_store(path) as store, store.read() as txn:
        return {key: bytes(value) for kind in (UNSERVED, FAILING) for key, value in txn.items("state", kind)}


def test_rows_of_negative_ids_are_no_entries(tmp_path: Path, cli: Cli) -> None:
    """An import goes on where an index has keys that no entry has."""
    source, path = scratch_copy("small", "clean", tmp_path), tmp_path / "s"
    current = source / "bookkeeper" / "current"
    (ledger, _), (number, at) = min(_places(current).items())
    ids = [(-3, 4), (ledger, -1), (99_999, -7)]
    rows = [(struct.pack(">qq", *one), struct.pack(">q", number << 32 | at)) for one in ids]
    apply_changes(current / "locations", lambda: sorted(rows))
    assert cli("--store", path, "store", "import", "standalone", source, "-q").exit_code == 0
    assert not _told(path, cli)


def test_an_index_with_rows_of_another_form_says_nothing(tmp_path: Path, cli: Cli) -> None:
    """Three of 40 bytes are as long as five rows: read as these, every row between them would be another entry's."""
    source, path = scratch_copy("small", "clean", tmp_path), tmp_path / "s"
    current = source / "bookkeeper" / "current"
    _plant(current, 9)
    _import(path, source, cli)
    assert _rows(path)
    keys = sorted(_places(current))
    rows = [(struct.pack(">qqq", *key, 1), struct.pack(">qq", 1, 2)) for key in (keys[3], keys[200], keys[-5])]
    apply_changes(current / "locations", lambda: sorted(rows))
    _import(tmp_path / "strange", source, cli)
    assert not _rows(tmp_path / "strange")


def test_of_several_bookies_another_serves_it(tmp_path: Path, cli: Cli) -> None:
    """With Qw 2 a copy of each is left where one bookie's index leads to damage, and none of some where two bookies' do."""
    source, path = scratch_copy("cluster", "clean", tmp_path), tmp_path / "s"
    first = _plant(source / "bookkeeper0" / "current", 3)
    _import(path, source, cli)
    short = cli("--store", path, "ledgers", "underreplicated", "-o", "json").json
    listed = _listed(path)
    assert sum(row["short"] for row in short) == sum(ledger in listed for ledger, _ in first) > 50
    assert _told(path, cli) == Counter()
    both = first & _plant(source / "bookkeeper1" / "current", 2)
    cli("--store", path, "store", "refresh", "-q")
    assert _told(path, cli) == Counter(ledger for ledger, _ in both if ledger in listed)
    assert both


@pytest.mark.parametrize("harm", ["gone", "header"])
def test_a_deep_check_finds_what_the_number_of_rows_hides(harm: str, tmp_path: Path, cli: Cli) -> None:
    """An index that has as many rows as the logs that are left have records, so that an import does not read it."""
    source, path = scratch_copy("small", "clean", tmp_path), tmp_path / "s"
    current = source / "bookkeeper" / "current"
    right, planted = _records(current), _plant(current, 9, harm)
    with open_for_reading(current / "locations") as pairs:
        rows = [*pairs]
    shutil.rmtree(current / "locations")
    create_database(current / "locations", rows)
    _import(path, source, cli)
    deep = cli("--store", path, "store", "check", "--deep", "-o", "json").json
    (row,) = (row for row in deep if row["code"] == "index-rows-wrong")
    assert row["context"]["entries"] == sum(ledger in _listed(path) for ledger, _ in planted) > 50
    cli("--store", path, "store", "index", "--rebuild", "-q")
    assert _told(path, cli) == Counter(ledger for ledger, _ in planted if ledger in _listed(path))
    _mend(path, row["hint"][row["hint"].index("pulsar-admin") :], cli)
    assert _records(current) == right
    assert "index-rows-wrong" not in {row["code"] for row in cli.json(path, "store check --deep")}


def test_a_recovery_of_a_bookie_alone_tells_what_it_does_not_serve(tmp_path: Path, cli: Cli) -> None:
    """As before a refresh, so after it, and once the index was made again."""
    source, path = scratch_copy("small", "clean", tmp_path), tmp_path / "s"
    planted = _plant(source / "bookkeeper" / "current", 9)
    cli("--store", path, "store", "import", "cluster", "--bookie", source / "bookkeeper", "-q")
    assert cli("--store", path, "store", "recover", "--level", "C", "--yes", "-q").exit_code == 0
    unserved = Counter(ledger for ledger, _ in planted if ledger in _listed(path))
    assert len(unserved) > 50
    assert _told(path, cli) == unserved
    for words in (("refresh",), ("index", "--rebuild")):
        cli("--store", path, "store", *words, "-q")
        assert _told(path, cli) == unserved


@pytest.mark.parametrize("strange", [[], [(bytes(12), bytes(8)), (b"\x01" * 4, b"?")]], ids=["", "strange-rows"])
def test_rows_into_damaged_bytes_stay_where_nothing_better_is(
    strange: list[tuple[bytes, bytes | None]], tmp_path: Path, cli: Cli
) -> None:
    """A bookie without such a row says that it never had the entry, and a recovery closes the ledger before it."""
    source, path = scratch_copy("small", "clean", tmp_path), tmp_path / "s"
    current = source / "bookkeeper" / "current"
    for journal in (*current.glob("*.txn"), current / "lastMark"):
        journal.unlink()
    places = _places(current)
    log = bytearray((current / "0.log").read_bytes())
    log[30_000:38_192] = b"\xaa" * 8_192
    (current / "0.log").write_bytes(log)
    hit = {key for key, (number, at) in places.items() if number == 0 and 30_000 <= at < 38_192}
    assert len(hit) >= 10
    _import(path, source, cli)
    codes = {row["code"] for row in cli("--store", path, "store", "check", "--deep", "-o", "json").json}
    assert "index-rows-wrong" not in codes
    gone: tuple[bytes, bytes | None] = (struct.pack(">qq", *max(places)), None)
    apply_changes(current / "locations", lambda: sorted([*strange, gone]))
    told = cli("--store", path, "store", "salvage", source / "bookkeeper", "--dry-run", "-o", "json").stdout
    assert ("2 rows of an unknown format" in told) == bool(strange)
    assert cli("--store", path, "store", "salvage", source / "bookkeeper", "--yes", "-q").exit_code == 0
    assert _places(current) == places
    again = cli("--store", path, "store", "salvage", source / "bookkeeper", "--dry-run", "-o", "json").json
    assert not again["needed"]


@deep_but_for(
    (0, 3, 5),
    ("is_lost", "byte", "flip"),
    [
        pytest.param(is_lost, byte, flip, id=f"{is_lost}-{name}")
        for is_lost in (False, True)
        for byte, flip, name in ((13, 0x40, "far"), (8, 0x80, "negative"), (0, 0x80, "ledger"))
    ],
)
def test_ids_of_damaged_records_make_no_rows(is_lost: bool, byte: int, flip: int, tmp_path: Path, cli: Cli) -> None:
    """A record whose own id is damaged stays where the index had it; without an index nobody believes that id, and no other is lost.

    A row of such an id would be its ledger's last: a recovery asks for that one, and does not take a damaged record for an answer.
    """
    source, path = scratch_copy("small", "clean", tmp_path), tmp_path / "s"
    current = source / "bookkeeper" / "current"
    before, logs = _places(current), {log: bytearray(log.read_bytes()) for log in current.glob("*.log")}
    damaged = sorted(before)[::9]
    for number, place in map(before.__getitem__, damaged):
        logs[current / f"{number:x}.log"][place + byte] ^= flip
    for log, data in logs.items():
        log.write_bytes(data)
    for one in (*current.glob("*.txn"), current / "lastMark"):  # they have the entries again
        one.unlink()
    if is_lost:
        shutil.rmtree(current / "locations")
    else:
        gone = sorted(before)[1]
        apply_changes(current / "locations", lambda: [(struct.pack(">qq", *gone), None)])
    _import(path, source, cli)
    cli("--store", path, "store", "salvage", source / "bookkeeper", "--yes")
    assert _places(current) == {key: place for key, place in before.items() if not is_lost or key not in damaged}


@deep_but_for((0,), "first_seed", [0, 10])
def test_a_record_of_a_wrong_size_costs_itself_alone(tmp_path: Path, first_seed: int) -> None:
    """One bit of 100 records is flipped, of their sizes or anywhere: by chance many a size then leads to where another record begins."""
    current = scratch_copy("small", "clean", tmp_path) / "bookkeeper" / "current"
    log = current / "1.log"
    places = {key: offset for key, (number, offset) in _places(current).items() if number == 1}
    written, keys, wrong_sizes = log.read_bytes(), sorted(places), 0
    for seed in range(first_seed, first_seed + 10):
        rng, data, hit = random.Random(seed), bytearray(written), set()
        for _ in range(100):
            key = rng.choice(keys)
            start = places[key] - _SIZE_BYTES
            size = int.from_bytes(written[start : places[key]], "big")
            data[start + rng.randrange(_SIZE_BYTES if seed % 2 else _SIZE_BYTES + size)] ^= 1 << rng.randrange(8)
            hit.add(key)
        log.write_bytes(data)
        scan = FileScan(Slice(str(log), FileKind.ENTRY_LOG, 0, len(data)), LedgerDigests.of({}))
        found: set[tuple[int, int]] = set()
        for rows in scan.batches():
            good = rows[has_good_digest(rows)]
            found |= set(zip(good["ledger_id"].tolist(), good["entry_id"].tolist(), strict=True))
        assert set(keys) - hit <= found
        listed = {(one.ledger_id, one.entry_id) for one in iter_records(bytes(data), "") if isinstance(one, Record)}
        assert set(keys) - hit <= listed
        wrong_sizes += sum("unreadable" in problem.reason for problem in scan.problems)
    assert wrong_sizes > 100
