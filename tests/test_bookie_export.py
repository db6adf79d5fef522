"""Ledgers of this toolkit put on several bookies with several directories each: every byte that BookKeeper needs to serve them."""

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec.bookie import decode_cookie, encode_cookie
from pulsar_admin.store.codec.dbledger import decode_location_row
from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.entry import decode_entry
from pulsar_admin.store.codec.entrylog import decode_header, decode_ledgers_map, log_file_name
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.db.bookies import Bookie
from tests.conftest import Cli
from tests.locking import locked
from tests.stores import rocksdb_rows
from tests.worlds import copy_tree, digest_of, world

TOPIC = "public/default/across"


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """The world ``kinds`` with three bookies as the third is: DbLedgerStorage in two directories."""
    clean = tmp_path / "clean"
    copy_tree(world("kinds") / "clean", clean)
    for number, name in ((0, "interleaved"), (1, "sorted")):
        shutil.rmtree(clean / f"bookie{number}")
        copy_tree(clean / "bookie2", clean / f"bookie{number}")
        for file in (clean / f"bookie{number}").glob("*/current/VERSION"):
            file.write_bytes(encode_cookie(replace(decode_cookie(file.read_bytes(), ""), bookie_id=name)))
    return clean


@pytest.fixture
def store(cluster: Path, tmp_path: Path, cli: Cli) -> Path:
    """A store with six ledgers of its own."""
    source, store = tmp_path / "source", tmp_path / "store"
    source.mkdir()
    (source / "zookeeper").symlink_to(cluster / "zookeeper")
    for name in ("ledgers0", "ledgers1", "journal"):
        (source / f"bookkeeper-{name}").symlink_to(cluster / "bookie2" / name)
    assert cli("--store", store, "store", "import", "standalone", source).exit_code in (0, 1)
    dumped = tmp_path / "dumped"
    assert cli("--store", store, "topics", "dump", TOPIC, "--level", "entries", "--directory", dumped).exit_code == 0
    for name in ("copy-a", "copy-b"):
        assert cli("--store", store, "topics", "load", dumped, "--topic", f"public/default/{name}").exit_code == 0
    return store


def _bookies(cluster: Path) -> list[Bookie]:
    found = []
    for number, name in enumerate(("interleaved", "sorted", "direct")):
        ledgers = tuple(cluster / f"bookie{number}" / f"ledgers{index}" / "current" for index in (0, 1))
        found.append(Bookie(name, ledgers, ()))
    return found


def _targets(cluster: Path) -> list[str]:
    return [
        f"{bookie.bookie_id}={','.join(str(path.parent) for path in bookie.ledger_dirs)}"
        for bookie in _bookies(cluster)
    ]


def _entries(current: Path, ledger_id: int) -> list[bytes]:
    """The entries of a ledger by the index of a ledger directory, each read at its place as a bookie reads it."""
    found = {}
    for key, value in rocksdb_rows(current / "locations").items():
        row = decode_location_row(key, value, "locations")
        if row.ledger_id == ledger_id:
            data = (current / log_file_name(row.log_id)).read_bytes()
            size = int.from_bytes(data[row.pos - 4 : row.pos], "big")
            entry = decode_entry(data[row.pos : row.pos + size], DigestType.CRC32C, where=current.name)
            assert (entry.ledger_id, entry.entry_id) == (ledger_id, row.entry_id)
            found[row.entry_id] = bytes(entry.payload)
    assert sorted(found) == list(range(len(found)))
    return [found[entry_id] for entry_id in sorted(found)]


def test_each_bookie_gets_every_entry_in_the_directory_of_the_ledger(store: Path, cluster: Path, cli: Cli) -> None:
    current = cluster / "bookie2" / "ledgers0" / "current"
    originals = [_originals(cluster, ledger_id) for ledger_id in (0, 4, 9)] * 2
    newest = max(int(path.stem, 16) for path in current.glob("*.log"))
    before = {path: path.read_bytes() for path in cluster.glob("bookie*/*/current/*.log")}

    shown = cli("--store", store, "store", "export", "bookie", *_targets(cluster), "--dry-run", "-o", "json").json
    assert {path: path.read_bytes() for path in cluster.glob("bookie*/*/current/*.log")} == before
    report = cli("--store", store, "store", "export", "bookie", *_targets(cluster), "-o", "json").json
    assert report["ledgers"] == shown["ledgers"]
    for ledger, original in zip(report["ledgers"], originals, strict=True):
        ledger_id = ledger["ledgerId"]
        assert sorted(ledger["bookies"]) == ["direct", "interleaved", "sorted"]
        for bookie in _bookies(cluster):
            inside, outside = bookie.ledger_dirs[ledger_id % 2], bookie.ledger_dirs[1 - ledger_id % 2]
            assert _entries(inside, ledger_id) == original
            assert not _entries(outside, ledger_id)
            assert ledger_id.to_bytes(8, "big") in rocksdb_rows(inside / "ledgers")
        metadata = cli("--store", store, "store", "cat", ledger_path(ledger_id), "-o", "json").json["value"]
        assert metadata["segments"] == [{"firstEntryId": 0, "members": ledger["bookies"]}]
        assert (metadata["ensembleSize"], metadata["writeQuorum"], metadata["ackQuorum"]) == (3, 3, 2)
    for path, data in before.items():
        assert path.read_bytes() == data, "a log of the bookie was changed"
    log = current / log_file_name(newest + 1)
    header = decode_header(log.read_bytes(), log.name)
    assert sorted(decode_ledgers_map(log.read_bytes(), header, log.name)) == [
        ledger["ledgerId"] for ledger in report["ledgers"] if ledger["ledgerId"] % 2 == 0
    ]
    assert (current / "lastId").read_text() == f"{newest + 1:x}\n"


def _originals(cluster: Path, ledger_id: int) -> list[bytes]:
    found = [_entries(cluster / "bookie2" / name / "current", ledger_id) for name in ("ledgers0", "ledgers1")]
    return found[0] or found[1]


def test_a_second_export_finds_everything_there(store: Path, cluster: Path, cli: Cli) -> None:
    assert cli("--store", store, "store", "export", "bookie", *_targets(cluster)).exit_code == 0
    before = digest_of(cluster)
    again = cli("--store", store, "store", "export", "bookie", *_targets(cluster), "-o", "json").json
    assert (len(again["ledgers"]), again["written"], again["change"]) == (6, [], None)
    assert digest_of(cluster) == before


def test_metadata_goes_out_only_behind_the_entries(store: Path, cluster: Path, tmp_path: Path, cli: Cli) -> None:
    export = ("--store", store, "store", "export", "zookeeper-snapshot", tmp_path / "snapshot")
    cli(*export).ends(3, "store export bookie")
    number = cli("--store", store, "store", "export", "bookie", *_targets(cluster), "-o", "json").json["change"]
    assert cli(*export, "--dry-run").exit_code == 0
    assert cli("--store", store, "store", "undo", number, "--yes").exit_code == 0
    assert cli(*export, "--dry-run").exit_code == 3, "the metadata names bookies without the entries again"


def test_what_cannot_take_ledgers_is_refused_and_nothing_is_written(store: Path, cluster: Path, cli: Cli) -> None:
    targets, before = _targets(cluster), digest_of(cluster)

    def refused(*given: str) -> str:
        result = cli("--store", store, "store", "export", "bookie", *given)
        assert result.exit_code in (2, 3, 4, 5, 6, 7), result
        assert digest_of(cluster) == before
        return result.stderr

    assert "3 bookies" in refused(*targets[:2])
    assert "its cookie names 2" in refused(*targets[:2], targets[2].split(",")[0])
    assert "cookie" in refused(*targets[:2], targets[2].replace("direct=", "another="))
    assert "0 ledger directories given" in refused(*targets[:2], f"direct={cluster}/bookie2/journal")
    with locked(cluster / "bookie1" / "ledgers1" / "current" / "locations" / "LOCK"):
        assert "is in use" in refused(*targets)
    shutil.rmtree(cluster / "bookie0" / "ledgers0" / "current" / "ledgers")
    before = digest_of(cluster)
    assert "has no RocksDB 'ledgers': its bookie keeps no DbLedgerStorage" in refused(*targets)
