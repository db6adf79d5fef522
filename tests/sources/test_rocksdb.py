"""RocksDB with damaged logs: read as far as it is good, never written before the proof, never touched by reading."""

import os
import random
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import pytest
from rocksdict import AccessType, Options

from pulsar_admin.store.codec.rockslog import Flaw, encode_log, iter_log_records
from pulsar_admin.store.errors import DiskFailed, DiskFull, MetadataCorrupt, Refused, StoreError
from pulsar_admin.store.files import copy_file
from pulsar_admin.store.sources import rocksdb, rocksopen
from pulsar_admin.store.sources.rocksdb import open_for_reading
from pulsar_admin.store.sources.rocksopen import open_database
from tests.altering import flip
from tests.conftest import Cli
from tests.stores import apply_values, rocksdb_rows
from tests.worlds import assert_unchanged, scratch_copy, world

LOG = "000004.log"
PERSISTENT = "/managed-ledgers/public/default/persistent"
TYPE_OFFSET = 6


def fragments(data: bytes) -> list[int]:
    """Offsets of the fragments of a log without damage, as their lengths chain them."""
    found, at = [], 0
    while at + 7 <= len(data):
        if 0x8000 - at % 0x8000 < 7:
            at += 0x8000 - at % 0x8000
            continue
        found.append(at)
        at += 7 + int.from_bytes(data[at + 4 : at + 6], "little")
    return found


# -- the log format ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["metadata/000004.log", "metadata/000011.log", "metadata/MANIFEST-000019"])
def test_logs_that_pulsar_wrote_come_out_byte_for_byte(name: str) -> None:
    data = (world("small") / "crashed" / name).read_bytes()
    records = [record for record in iter_log_records(BytesIO(data)) if isinstance(record, bytes)]
    assert len(records) == sum(data[at + TYPE_OFFSET] in (1, 2) for at in fragments(data)) > 5
    assert b"".join(encode_log(records)) == data


@pytest.mark.parametrize("size", [0, 1, 32754, 32755, 32761, 32762, 70_000])
def test_records_at_the_ends_of_blocks(size: int) -> None:
    records = [bytes(size), b"x", bytes(size), b"y"]
    assert list(iter_log_records(BytesIO(b"".join(encode_log(records))))) == records


def test_any_damage_is_seen_and_costs_what_it_hit() -> None:
    random_ = random.Random(12)
    records = [random_.randbytes(random_.choice((40, 400, 50_000))) for _ in range(60)]
    data = b"".join(encode_log(records))
    for number in range(200):
        damaged = bytearray(data)
        at = random_.choice(fragments(data)) + TYPE_OFFSET if number % 2 else random_.randrange(len(data))
        damaged[at] ^= 1 << random_.randrange(8)
        found = list(iter_log_records(BytesIO(damaged)))
        whole = [item for item in found if isinstance(item, bytes)]
        assert len(whole) < len(found) or whole == records, "padding alone may change unseen"
        assert [record for record in records if record in whole] == whole, "nothing is made up, nothing out of order"
        cut = list(iter_log_records(BytesIO(data[:at])))
        assert [item for item in cut if isinstance(item, bytes)] == records[: len(cut) - (Flaw.TORN in cut)]
        assert Flaw.DAMAGED not in cut


def test_what_is_left_of_a_block_is_not_looked_at() -> None:
    """As in RocksDB: six bytes have no room for a fragment; at the end of a log they are one that was cut."""
    records = [bytes(32_755), b"x"]
    data = b"".join(encode_log(records))
    assert list(iter_log_records(BytesIO(data[:32_762] + b"\1" * 6 + data[32_768:]))) == records
    assert list(iter_log_records(BytesIO(data + b"\1" * 6))) == [*records, Flaw.TORN]


def test_a_wrong_length_costs_the_rest_of_its_block() -> None:
    """As in RocksDB; a length beyond the end of the log might be a cut, so what follows in the last block is looked for."""
    records = [bytes([number]) * 1_000 for number in range(100)]
    data = b"".join(encode_log(records))
    starts, owners = fragments(data), list[int]()
    for at in starts:
        owners.append((owners[-1] if owners else -1) + (data[at + TYPE_OFFSET] in (1, 2)))
    for at in starts[:-1]:
        for place, bit in ((4, 1), (5, 0x80)):
            damaged = bytearray(data)
            damaged[at + place] ^= bit
            is_cut = bit == 0x80 and at >> 15 == len(data) >> 15
            hit = [one == at if is_cut else one >= at and one >> 15 == at >> 15 for one in starts]
            lost = {owner for owner, is_hit in zip(owners, hit, strict=True) if is_hit}
            found = [record for record in iter_log_records(BytesIO(damaged)) if isinstance(record, bytes)]
            assert found == [record for number, record in enumerate(records) if number not in lost], (at, bit)


def test_zeros_are_the_end_only_where_nothing_follows() -> None:
    data = b"".join(encode_log([bytes([number]) * 20_000 for number in range(1, 9)]))
    assert Flaw.DAMAGED in list(iter_log_records(BytesIO(data[:40_000] + bytes(1000) + data[41_000:])))
    assert Flaw.DAMAGED in list(iter_log_records(BytesIO(data[:32_768] + bytes(32_768) + data[65_536:])))
    whole = list(iter_log_records(BytesIO(data + bytes(100_000))))
    assert len(whole) == 8
    assert all(isinstance(record, bytes) for record in whole)


# -- reading ----------------------------------------------------------------------------------------------------------

_READ = """
import sys
from pathlib import Path
from pulsar_admin.store.sources.rocksdb import open_for_reading
problems = []
with open_for_reading(Path(sys.argv[1]), problems) as pairs:
    print(sum(1 for _ in pairs), len(problems))
"""


def read_in_a_child(directory: Path) -> str:
    """Return what reading gives; an endless loop inside RocksDB hears no signal but the last."""
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(directory)], capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout.strip() or done.stderr


def test_the_damage_on_which_rocksdb_never_ends(tmp_path: Path) -> None:
    """A record's last fragment made into one of a recycled log: RocksDB loops, whatever its recovery mode is."""
    source = scratch_copy("nometa", "crashed", tmp_path) / "metadata"
    log = source / "000018.log"
    data = log.read_bytes()
    last = next(at for at in fragments(data) if data[at + TYPE_OFFSET] == 4)
    rows = len(rocksdb_rows(source))
    flip(log, last + TYPE_OFFSET, 2)
    with assert_unchanged(source):
        count, problems = read_in_a_child(source).split()
    assert rows - 3 <= int(count) <= rows
    assert problems == "1"


def test_the_same_damage_of_its_list_of_files(tmp_path: Path) -> None:
    source = scratch_copy("nometa", "crashed", tmp_path) / "metadata"
    manifest = source / "MANIFEST-000019"
    second = fragments(manifest.read_bytes())[1]
    flip(manifest, second + TYPE_OFFSET, 4)
    assert "MANIFEST-000019 is damaged" in read_in_a_child(source)


def test_a_damaged_log_that_rocksdb_would_not_read_is_no_problem(tmp_path: Path) -> None:
    source = scratch_copy("small", "crashed", tmp_path) / "metadata"
    rows = rocksdb_rows(source)
    flip(source / LOG, 20_000)  # its rows are in tables since long
    problems: list[str] = []
    with open_for_reading(source, problems) as pairs:
        assert dict(pairs) == rows
    assert problems == []
    apply_values(source, {b"/x": b"1"})
    assert rocksdb_rows(source) == rows | {b"/x": b"1"}


def test_a_block_of_zeros_is_told(tmp_path: Path) -> None:
    source = scratch_copy("small", "clean", tmp_path) / "metadata"
    data = (source / LOG).read_bytes()
    (source / LOG).write_bytes(data[:65_536] + bytes(32_768) + data[98_304:])
    problems: list[str] = []
    with open_for_reading(source, problems) as pairs:
        assert 0 < len(dict(pairs)) < len(rocksdb_rows(world("small") / "clean" / "metadata"))
    (text,) = problems
    assert "damaged place" in text
    assert "write-ahead log" in text


# -- a process that has it open ---------------------------------------------------------------------------------------


def test_files_that_go_between_being_linked_and_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RocksDB merges tables into one and deletes them; what was linked leads nowhere then."""
    source = scratch_copy("small", "crashed", tmp_path) / "metadata"
    rows, before = rocksdb_rows(source), [*source.glob("*.sst")]
    link, linked = rocksopen.link_files, []

    def link_and_compact(directory: Path, links: Path, problems: list[str], **options: bool) -> None:
        link(directory, links, problems, **options)
        linked.append(len([*links.iterdir()]))
        if len(linked) == 1:
            with open_database(source, Options(raw_mode=True), AccessType.read_write(), source) as database:
                database.put(b"/new", b"value")
                database.flush()
                database.compact_range(None, None)

    monkeypatch.setattr(rocksopen, "link_files", link_and_compact)
    problems: list[str] = []
    with open_for_reading(source, problems) as pairs:
        assert dict(pairs) == rows | {b"/new": b"value"}
    assert (problems, len(linked)) == ([], 2)
    assert not all(file.exists() for file in before)


@pytest.mark.parametrize("place", [3, 20_000, 100_000, 180_000])
def test_up_to_its_damage_a_log_is_read_as_rocksdb_reads_it(place: int, tmp_path: Path) -> None:
    """RocksDB opens the same files with its defaults, as bookies and Pulsar do."""
    source = scratch_copy("small", "clean", tmp_path) / "metadata"
    flip(source / LOG, place)
    problems: list[str] = []
    with open_for_reading(source, problems, to_damage=True) as pairs:
        read = dict(pairs)
    with open_for_reading(source) as pairs:
        assert read != dict(pairs)
    with open_database(source, Options(raw_mode=True), AccessType.read_only(), source) as database:
        assert read == dict(database.items())
    assert [rocksopen.UNREAD_CHANGES in text for text in problems] == [True]


def test_damage_of_files_that_nobody_writes_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = scratch_copy("small", "clean", tmp_path) / "metadata"
    flip(source / LOG, 20_000)
    linked = []
    link = rocksopen.link_files
    monkeypatch.setattr(rocksopen, "link_files", lambda *args, **options: (linked.append(1), link(*args, **options)))
    problems: list[str] = []
    with open_for_reading(source, problems):
        assert (len(problems), len(linked)) == (1, 1)


# -- writing ----------------------------------------------------------------------------------------------------------


def test_writing_changes_what_was_meant_and_leaves_nothing(tmp_path: Path) -> None:
    source = scratch_copy("small", "crashed", tmp_path) / "metadata"
    before, files = rocksdb_rows(source), {file.name for file in source.iterdir()}
    gone = next(iter(before))
    apply_values(source, {b"/new": b"value", gone: None})
    assert rocksdb_rows(source) == {key: value for key, value in before.items() if key != gone} | {b"/new": b"value"}
    made = {file.name.rstrip("0123456789") for file in source.iterdir() if file.name not in files}
    assert made == {"MANIFEST-", *(name for name in made if name.endswith(".sst"))}
    assert not (source / "rocksdict-config.json").exists()


def test_a_damaged_database_is_not_written(tmp_path: Path) -> None:
    source = scratch_copy("small", "clean", tmp_path) / "metadata"
    flip(source / LOG, 20_000)
    with assert_unchanged(source), pytest.raises(Refused, match="damaged place"):
        apply_values(source, {b"/x": b"1"})


def test_what_rocksdb_did_not_write_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = scratch_copy("small", "clean", tmp_path) / "metadata"
    write = rocksdb._put_all
    monkeypatch.setattr(rocksdb, "_put_all", lambda database, rows: write(database, list(rows)[1:]))
    with assert_unchanged(source), pytest.raises(MetadataCorrupt, match=r"wrote 249 rows .* expected 250"):
        apply_values(source, {b"/x": b"1", b"/y": b"2"})


def test_what_the_disk_did_not_keep_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replaced files are there until what replaced them was read: they are the database again."""
    source = scratch_copy("small", "clean", tmp_path) / "metadata"
    before, files = rocksdb_rows(source), {file.name: file.read_bytes() for file in source.iterdir()}

    def copy_and_damage(file: Path, target: Path, *, like: os.stat_result) -> None:
        copy_file(file, target, like=like)
        if target.suffix == ".sst":
            flip(target, 100)

    monkeypatch.setattr("pulsar_admin.store.files.copy_file", copy_and_damage)
    with pytest.raises(MetadataCorrupt, match="checksum mismatch"):
        apply_values(source, {b"/x": b"1"})
    assert {file.name: file.read_bytes() for file in source.iterdir()} == files
    assert rocksdb_rows(source) == before


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("IO error: No space left on device: While appending to file: /s/1.sst: No space left on device", DiskFull),
        ("IO error: Input/output error: While pread offset 0 len 9: /s/1.sst: Input/output error", DiskFailed),
        ("Corruption: block checksum mismatch in /s/1.sst", MetadataCorrupt),
    ],
)
def test_what_rocksdb_says_of_the_disk(
    text: str, error: type[StoreError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = scratch_copy("small", "clean", tmp_path) / "metadata"

    def fail(*_: object) -> None:
        raise Exception(text)

    monkeypatch.setattr(rocksdb, "_put_all", fail)
    with assert_unchanged(source), pytest.raises(error, match=r"/s/1\.sst"):
        apply_values(source, {b"/x": b"1"})


# -- export -----------------------------------------------------------------------------------------------------------


def test_an_export_keeps_what_lies_behind_damage(tmp_path: Path, cli: Cli) -> None:
    """In place it is refused; the copy has every node that the import read, though a broker would stop at the damage."""
    source = scratch_copy("small", "clean", tmp_path)
    flip(source / "metadata" / LOG, 20_000)
    store, copy, again = tmp_path / "s", tmp_path / "copy", tmp_path / "again"
    imported = cli("--store", store, "store", "import", "standalone", source, "-o", "json")
    assert (imported.exit_code, imported.json["undecodableValues"]) == (1, 1)
    assert cli("--store", store, "topics", "skip", "public/default/plain", "-s", "half", "-n", "2").exit_code == 1
    with assert_unchanged(source):
        refused = cli("--store", store, "store", "export", "standalone", source, "--in-place", "--yes", "-o", "json")
        assert (refused.exit_code, refused.error["code"]) == (3, "refused")
        assert "damaged place" in refused.error["message"]
        assert "copy" in refused.error["hint"]
        done = cli("--store", store, "store", "export", "standalone", copy, "-o", "json")
    assert (done.exit_code, len(done.json["problems"]), len(done.json["nodes"])) == (1, 1, 1)
    found = cli("--store", again, "store", "import", "standalone", copy, "-o", "json")
    assert (found.exit_code, found.json["nodes"], found.json["undecodableValues"]) == (0, imported.json["nodes"], 0)
    trees = [cli("--store", path, "store", "ls", PERSISTENT, "-o", "json").json for path in (store, again)]
    assert trees[0] == trees[1] != []


def test_an_export_without_changes_keeps_it_too(tmp_path: Path, cli: Cli) -> None:
    source = scratch_copy("small", "clean", tmp_path)
    flip(source / "metadata" / LOG, 20_000)
    store, copy = tmp_path / "s", tmp_path / "copy"
    cli("--store", store, "store", "import", "standalone", source)
    assert cli("--store", store, "store", "export", "standalone", copy).exit_code == 1
    problems: list[str] = []
    with open_for_reading(copy / "metadata", problems) as pairs:
        assert dict(pairs) == rocksdb_rows(source / "metadata")
    assert problems == []


def test_damage_since_the_import_stops_the_export(tmp_path: Path, cli: Cli) -> None:
    """The store knows more than the source can give: nothing is made that lacks it."""
    source = scratch_copy("small", "clean", tmp_path)
    store = tmp_path / "s"
    cli("--store", store, "store", "import", "standalone", source)
    data = (source / "metadata" / LOG).read_bytes()
    (source / "metadata" / LOG).write_bytes(data[:60_000])
    answer = cli("--store", store, "store", "export", "standalone", tmp_path / "copy", "-o", "json")
    assert (answer.exit_code, answer.error["code"]) == (6, "metadata-corrupt")
    assert "keep this store" in answer.error["hint"]
    assert not (tmp_path / "copy").exists()


def test_the_first_error_of_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RocksDB's close tells less than the write that failed before it."""

    class Full:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def close(self) -> None:
            raise Exception("IO error: Writer has previous error.")

    monkeypatch.setattr("rocksdict.Rdict", Full)
    with pytest.raises(DiskFull), rocksopen.open_database(tmp_path, None, None, tmp_path):
        raise Exception(f"IO error: No space left on device: While appending to file: {tmp_path}/000004.log")


def test_a_full_disk_where_rocksdict_keeps_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so in an OSError that has the number in its text alone."""

    def full(*_: object, **__: object) -> None:
        raise OSError("No space left on device (os error 28)")

    monkeypatch.setattr("rocksdict.Rdict", full)
    with pytest.raises(DiskFull), rocksopen.open_database(tmp_path, None, None, tmp_path):
        pass
