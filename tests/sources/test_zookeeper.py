"""ZooKeeper's own files: the tree restored from any snapshot and the logs after it is the same."""

import gzip
import json
import os
import random
import struct
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import cramjam
import pytest

from pulsar_admin.store.codec.cursor import decode_cursor_info
from pulsar_admin.store.codec.entrylog import EntryLogHeader, encode_header
from pulsar_admin.store.codec.jute import HEADER, INT
from pulsar_admin.store.codec.ledgermetadata import decode_ledger_metadata, ledger_id_of_path
from pulsar_admin.store.codec.managedledger import decode_managed_ledger
from pulsar_admin.store.codec.zookeeper import ZooKeeperNode, decode_snapshot, salvage_snapshot
from pulsar_admin.store.codec.zookeeper_log import BadRecord, Transaction, read_transactions
from pulsar_admin.store.errors import MetadataCorrupt, SourceNotFound, StoreError
from pulsar_admin.store.model.nodes import decode_structure, structure_of
from pulsar_admin.store.names import topic_of_path
from pulsar_admin.store.sources.nodes import find_metadata
from pulsar_admin.store.sources.zookeeper import is_zookeeper, iter_unread_logs, read_snapshot
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.history.files import linked, unpack_zookeeper
from tests.stores import read_rows
from tests.worlds import unpack
from tests.zookeeper_files import iter_transactions, read_zookeeper_nodes

GOLDEN = Path(__file__).parent.parent / "golden" / "zookeeper-version-2.tar.xz"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_zookeeper(tmp_path_factory.mktemp("zookeeper"))


def _nodes(directory: Path) -> dict[str, ZooKeeperNode]:
    problems: list[str] = []
    found = {node.path: node for node in read_zookeeper_nodes(directory, problems)}
    assert problems == []
    return found


def test_every_snapshot_leads_to_the_same_tree(unpacked: Path, tmp_path: Path) -> None:
    """Three ways that ZooKeeper promises are one: the newest snapshot, an older one, and the logs alone."""
    newest = _nodes(unpacked)
    older = _nodes(linked(unpacked, tmp_path / "older", "snapshot.481"))
    from_logs = _nodes(linked(unpacked, tmp_path / "logs", "snapshot.481", "snapshot.35d", "snapshot.0"))
    assert len(newest) > 300
    assert older == newest
    assert {path for path in from_logs if not path.startswith("/zookeeper")} == {
        path for path in newest if not path.startswith("/zookeeper")
    }
    for path, node in from_logs.items():
        assert (node.data, node.version) == (newest[path].data, newest[path].version)


def test_the_snapshot_equals_the_logs_before_it(unpacked: Path) -> None:
    """snapshot.481 holds all transactions to zxid 0x481 and, as it was taken at a start, none after."""
    snapshot = read_snapshot(unpacked / "snapshot.481", "").nodes
    logged = [item for name in ("log.1", "log.35e") for item in iter_transactions((unpacked / name).read_bytes(), name)]
    assert all(isinstance(item, Transaction) for item in logged)
    last = {change.path: change for item in logged if isinstance(item, Transaction) for change in item.changes}
    kept = {path: node for path, node in snapshot.items() if path in last and not node.ephemeral}
    assert len(kept) > 250
    for path, node in kept.items():
        assert getattr(last[path], "data", None) == node.data


def test_the_values_are_pulsars(unpacked: Path) -> None:
    kinds = {"topics": 0, "cursors": 0, "ledgers": 0}
    for path, node in _nodes(unpacked).items():
        if ledger_id_of_path(path) is not None:
            decode_ledger_metadata(node.data, path)
            kinds["ledgers"] += 1
        elif topic_of_path(path) is not None:
            decode_managed_ledger(node.data, path)
            kinds["topics"] += 1
        elif topic_of_path(path.rpartition("/")[0]) is not None:
            decode_cursor_info(node.data, path)
            kinds["cursors"] += 1
    assert kinds["topics"] > 30
    assert kinds["cursors"] > 30
    assert kinds["ledgers"] > 100


def test_a_log_cut_anywhere_keeps_what_was_whole(unpacked: Path, tmp_path: Path) -> None:
    raw = (unpacked / "log.482").read_bytes()
    whole = [item for item in iter_transactions(raw, "log") if isinstance(item, Transaction)]
    end = len(raw.rstrip(b"\0"))
    assert len(whole) > 20
    for cut in (end - 1, end - 7, end // 2, 40, 17):
        items = list(iter_transactions(raw[:cut], "log"))
        kept = [item for item in items if isinstance(item, Transaction)]
        assert kept == whole[: len(kept)]
        assert len(kept) < len(whole)
    folder = linked(unpacked, tmp_path / "cut", "log.482")
    sector = end // 512 * 512
    (folder / "log.482").write_bytes(raw[:sector] + bytes(len(raw) - sector))
    assert _nodes(folder)  # the newest log may end so after a loss of power: no problem


def test_a_flipped_bit_is_never_believed(unpacked: Path) -> None:
    """It costs the record that it is in, and those behind it are read."""
    raw = bytearray((unpacked / "log.482").read_bytes().rstrip(b"\0") + bytes(100))
    whole = list(iter_transactions(bytes(raw), "log"))
    for offset in range(16, len(raw) - 100, max(1, len(raw) // 200)):
        raw[offset] ^= 0x10
        found = list(iter_transactions(bytes(raw), "log"))
        (bad,) = (item for item in found if isinstance(item, BadRecord))
        assert not bad.unfinished
        index = found.index(bad)
        assert bad.offset <= offset
        assert [*found[:index], whole[index], *found[index + 1 :]] == whole
        raw[offset] ^= 0x10


def test_a_record_that_is_no_transaction_although_its_checksum_fits(unpacked: Path) -> None:
    """It costs itself alone, read with short cuts and without."""
    raw, name = bytearray((unpacked / "log.482").read_bytes()), b"/managed-ledgers/"
    whole = list(iter_transactions(raw, "log"))
    place = raw.index(name)
    start = raw.rindex(b"B", 0, place) + 1  # the byte after each record
    checksum, length = struct.unpack_from(">qi", raw, start)
    assert zlib.adler32(raw[start + 12 : start + 12 + length]) == checksum
    raw[place + 1] = 0xFF
    struct.pack_into(">q", raw, start, zlib.adler32(raw[start + 12 : start + 12 + length]))
    found = list(iter_transactions(raw, "log"))
    (index,) = (at for at, item in enumerate(found) if isinstance(item, BadRecord))
    assert found[index] == BadRecord(start, "a path that is not UTF-8", False)
    assert [*found[:index], whole[index], *found[index + 1 :]] == whole
    assert list(read_transactions(BytesIO(raw), "log")) == found


def test_a_damaged_snapshot_falls_back_to_the_one_before(unpacked: Path, tmp_path: Path) -> None:
    folder = linked(unpacked, tmp_path / "damaged", "snapshot.481")
    raw = (unpacked / "snapshot.481").read_bytes()
    (folder / "snapshot.481").write_bytes(raw[: len(raw) // 2])
    problems: list[str] = []
    notes: list[str] = []
    found = {node.path: node for node in read_zookeeper_nodes(folder, problems, notes)}
    assert (found, problems) == (_nodes(unpacked), [])
    (note,) = notes
    assert "snapshot.481" in note
    assert "not needed: older files reach its transaction 0x481" in note


@pytest.mark.parametrize("raw", [b"", b"ZKSN", b"ZKLG" + bytes(12), b"ZKSN" + bytes(12), b"\xff" * 64])
def test_what_is_no_snapshot_is_refused(raw: bytes) -> None:
    with pytest.raises(StoreError) as caught:
        decode_snapshot(BytesIO(raw), "snapshot.1")
    assert isinstance(caught.value, MetadataCorrupt)
    assert "snapshot.1" in caught.value.message


def test_an_empty_directory_is_no_zookeeper(tmp_path: Path) -> None:
    assert not is_zookeeper(tmp_path)
    assert find_metadata(tmp_path) is None
    with pytest.raises(SourceNotFound):
        list(read_zookeeper_nodes(tmp_path, []))


# -- damage, and what is not there ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def short(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same files with 64 KiB of zeros behind the logs' records."""
    folder = tmp_path_factory.mktemp("short")
    for file in unpacked.iterdir():
        raw = file.read_bytes()
        if file.name.startswith("log"):
            raw = raw.rstrip(b"\0") + bytes(1 << 16)
        (folder / file.name).write_bytes(raw)
    return folder


def _read(directory: Path) -> tuple[dict[str, ZooKeeperNode], list[str]]:
    problems: list[str] = []
    return {node.path: node for node in read_zookeeper_nodes(directory, problems)}, problems


def _is_told_or_equal(directory: Path, sound: dict[str, ZooKeeperNode]) -> bool:
    """Whether DIRECTORY leads to the tree SOUND, or to a problem, or is refused."""
    try:
        nodes, problems = _read(directory)
    except MetadataCorrupt:
        return True
    return bool(problems) or nodes == sound


def _borders(log: bytes) -> list[int]:
    """The offsets behind each record, from the lengths alone."""
    found, offset = [], 16
    while length := int.from_bytes(log[offset + 8 : offset + 12], "big"):
        offset += 13 + length
        found.append(offset)
    return found


def test_damage_in_the_middle_of_the_newest_log_costs_its_record_alone(short: Path, tmp_path: Path) -> None:
    """ZooKeeper refuses such a log; taken for its end it would cost every transaction behind it."""
    folder = linked(short, tmp_path / "flipped", "log.482")
    raw = bytearray((short / "log.482").read_bytes())
    third, fourth = _borders(raw)[2:4]
    raw[third + 40] ^= 1
    (folder / "log.482").write_bytes(raw)
    nodes, problems = _read(folder)
    (text,) = problems
    assert f"log.482 @ {third:#x}: checksum mismatch; 1 transaction before 0x486 are lost" not in text
    assert f"log.482 @ {third:#x}: checksum mismatch: 1 transaction before 0x486 is lost" in text
    assert fourth > third
    assert len(_nodes(short)) - len(nodes) <= 1


def test_the_last_record_unfinished_is_no_damage_and_flipped_it_is(short: Path, tmp_path: Path) -> None:
    log = (short / "log.482").read_bytes()
    raw = log[:16] + log[_borders(log)[-3] :]
    start, end = _borders(raw)
    whole = list(iter_transactions(raw, "log"))
    for stop in range(start + 5, end):  # four zeros begin a record
        written = len(raw[:stop].rstrip(b"\0"))
        *kept, last = iter_transactions(raw[:stop] + bytes(len(raw) - stop), "log")
        assert kept == whole[:-1]
        assert isinstance(last, BadRecord)
        assert last.offset == start
        part = f"{written - start} of {end - start} bytes" if written > start + 12 else "the beginning"
        is_at_sector = 512 - 24 <= written <= 512
        behind = "then zeros" if is_at_sector else "then zeros where no write stops"
        assert (last.reason, last.unfinished) == (f"{part} of a record, {behind}", is_at_sector)
        *kept, last = iter_transactions(raw[:stop], "log")
        assert last == BadRecord(start, "the file ends inside a record", False)
    for offset in range(start, end):
        for bit in (1, 0x80):
            damaged = bytearray(raw)
            damaged[offset] ^= bit
            *kept, last = iter_transactions(damaged, "log")
            assert kept == whole[:-1]
            assert isinstance(last, BadRecord)
            assert (last.offset, last.unfinished) == (start, False)
    folder = linked(short, tmp_path / "last", "log.482")
    end = _borders(log)[-1]
    for stop, number in ((end - 1, 1), (end - 9, 1), (end // 512 * 512, 0), (end, 1)):
        (folder / "log.482").write_bytes(log[:stop] + bytes(1000 * (stop < end)))
        assert len(_read(folder)[1]) == number


@pytest.mark.parametrize("raw", [b"JKLG" + bytes(100), b"ZK", b"ZKLG\0\0\0\3" + bytes(8)])
def test_a_newest_log_that_is_none_is_told_by_name(raw: bytes, short: Path, tmp_path: Path) -> None:
    folder = linked(short, tmp_path / "none", "log.482")
    (folder / "log.482").write_bytes(raw)
    nodes, problems = _read(folder)
    text = next(one for one in problems if "@ 0x0" in one)
    assert nodes
    assert ("log.482 @ 0x0: not the header of a log" in text, "after it are lost" in text) == (True, True)


@deep_but_for((0, 1), "header", [bytes(16), b"JKLG\0\0\0\2" + bytes(8), b"ZKLG\0\0\0\3" + bytes(8), b"\xff" * 16])
@pytest.mark.parametrize("name", ["log.1", "log.35e", "log.482"])
def test_behind_a_damaged_header_every_record_is_read(name: str, header: bytes, short: Path, tmp_path: Path) -> None:
    """With the snapshots, which have what older logs changed, and with the logs alone."""
    whole = _read(short)[0]
    folder = linked(short, tmp_path / "headless", name)
    (folder / name).write_bytes(header + (short / name).read_bytes()[16:])
    nodes, problems = _read(folder)
    assert nodes == whole
    assert [f"{name} @ 0x0: not the header of a log" in text for text in problems] == [True] * (name == "log.482")
    for snapshot in folder.glob("snapshot.*"):
        if snapshot.name != "snapshot.0":
            snapshot.unlink()
    nodes, (text,) = _read(folder)
    assert nodes == whole
    assert f"{name} @ 0x0: not the header of a log" in text


@pytest.mark.parametrize("name", ["log.35e", "log.1"])
@pytest.mark.parametrize("stop", [100, 2000])
def test_a_log_cut_before_a_later_one_is_a_gap(name: str, stop: int, short: Path, tmp_path: Path) -> None:
    folder = linked(short, tmp_path / "cut", name, "snapshot.481", "snapshot.35d")
    raw = (short / name).read_bytes()
    at = next(border for border in _borders(raw) if border > stop)
    (folder / name).write_bytes(raw[:at])
    (text,) = _read(folder)[1]
    assert "are lost" in text


def test_the_damage_of_a_record_that_the_snapshot_holds_costs_nothing(short: Path, tmp_path: Path) -> None:
    folder = linked(short, tmp_path / "before", "log.35e")
    raw = bytearray((short / "log.35e").read_bytes())
    raw[_borders(raw)[3] + 30] ^= 4
    (folder / "log.35e").write_bytes(raw)
    assert _read(folder) == (_nodes(short), [])


@pytest.mark.parametrize(
    ("without", "text"),
    [
        (("log.35e", "snapshot.481"), "log.482: 292 transactions before 0x482 are lost"),
        (("log.1", "log.35e", "log.482"), "no log has transaction 0x481"),
        (("log.1", "snapshot.0", "snapshot.35d", "snapshot.481"), "log.35e: 861 transactions before 0x35e are lost"),
    ],
)
def test_gaps_between_snapshot_and_logs(without: tuple[str, ...], text: str, short: Path, tmp_path: Path) -> None:
    problems = _read(linked(short, tmp_path / "gap", *without))[1]
    assert any(text in problem for problem in problems), problems


def test_a_fuzzy_snapshot_needs_the_transactions_that_it_saw(short: Path, tmp_path: Path) -> None:
    """The bytes of snapshot.481 under the name of one that began earlier: it has seen 0x481, so the logs must have that."""
    folder = linked(short, tmp_path / "fuzzy", "snapshot.481", "log.35e", "log.482")
    (folder / "snapshot.400").write_bytes((short / "snapshot.481").read_bytes())
    log = (short / "log.35e").read_bytes()
    at = _borders(log)[0x400 - 0x35E]
    (folder / "log.35e").write_bytes(log[:at] + bytes(1000))
    assert "has seen transaction 0x4" in _read(folder)[1][0]
    os.unlink(folder / "log.35e")
    os.link(short / "log.35e", folder / "log.35e")
    assert _read(folder)[1] == []


# -- a small directory, every byte of it ------------------------------------------------------------------------------

SMALL = GOLDEN.with_name("zookeeper-small.tar.xz")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    unpack(SMALL, folder)
    return folder


def test_the_small_directory_is_what_its_server_said(small: Path) -> None:
    said = json.loads((small / "nodes.json").read_text())
    nodes, problems = _read(small / "version-2")
    assert {path: [node.data.decode(), node.version] for path, node in nodes.items()} == said
    assert not problems


SMALL_FILES = ("log.1", "log.c", "log.13", "snapshot.0", "snapshot.b", "snapshot.12")


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.deep)])
@pytest.mark.parametrize("name", SMALL_FILES)
def test_a_file_cut_at_any_byte_is_told_or_changes_nothing(name: str, step: int, small: Path, tmp_path: Path) -> None:
    sound = _nodes(small / "version-2")
    folder = linked(small / "version-2", tmp_path / "cut", name)
    raw = (small / "version-2" / name).read_bytes()
    told, is_newest = 0, name in ("log.13", "snapshot.12")
    for cut in range(0, len(raw.rstrip(b"\0")) + 20, step if is_newest else 3 * step):
        (folder / name).write_bytes(raw[:cut])
        told += not _is_equal_untold(folder, sound)
    # The newest snapshot holds what the older files do: without it, or with it cut, they are needed.
    assert (told > 0) == is_newest


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.deep)])
@pytest.mark.parametrize("name", ["log.13", "snapshot.12"])
def test_any_byte_that_is_another_is_told_or_changes_nothing(name: str, step: int, small: Path, tmp_path: Path) -> None:
    sound = _nodes(small / "version-2")
    folder = linked(small / "version-2", tmp_path / "flipped", name)
    raw = bytearray((small / "version-2" / name).read_bytes())
    for offset in range(0, len(bytes(raw).rstrip(b"\0")), step):
        for bits in (0xFF, 1 << offset % 8):
            raw[offset] ^= bits
            (folder / name).write_bytes(raw)
            raw[offset] ^= bits
            _is_equal_untold(folder, sound)


def _is_equal_untold(directory: Path, sound: dict[str, ZooKeeperNode]) -> bool:
    """Whether DIRECTORY leads to the tree SOUND without a word; where something is told, no node may have a value it never had."""
    problems: list[str] = []
    notes: list[str] = []
    try:
        nodes = {node.path: node for node in read_zookeeper_nodes(directory, problems, notes)}
    except MetadataCorrupt as error:
        problems = [error.message]
    if not problems:
        assert nodes == sound
        return not notes
    assert all(str(directory) in problem for problem in problems)
    return False


# -- compressed snapshots ---------------------------------------------------------------------------------------------


def _snappy_stream(raw: bytes) -> bytes:
    """What snappy-java's SnappyOutputStream writes: header, then blocks of 32 KiB."""
    blocks = [bytes(cramjam.snappy.compress_raw(raw[at : at + 32768])) for at in range(0, len(raw), 32768)]
    header = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    return header + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "snappy": _snappy_stream}


@pytest.mark.parametrize("extension", COMPRESSORS)
def test_compressed_snapshots(extension: str, short: Path, tmp_path: Path) -> None:
    folder = linked(short, tmp_path / "compressed", "snapshot.481", "snapshot.35d", "snapshot.0", "log.1", "log.35e")
    log = (short / "log.35e").read_bytes()
    (folder / "log.35e").write_bytes(log[:16] + log[_borders(log)[-2] :])  # the last transaction that the snapshot has
    stored = COMPRESSORS[extension]((short / "snapshot.481").read_bytes())
    file = folder / f"snapshot.481.{extension}"
    file.write_bytes(stored)
    assert _nodes(folder) == _nodes(short)
    sound, random_ = _nodes(short), random.Random(extension)
    for number in range(40):
        damaged = bytearray(stored)
        damaged[random_.randrange(len(stored))] ^= 1 << random_.randrange(8)
        file.write_bytes(damaged if number % 2 else stored[: random_.randrange(len(stored))])
        assert _is_told_or_equal(folder, sound)


def test_files_that_are_not_read_are_named(short: Path, tmp_path: Path) -> None:
    folder = linked(short, tmp_path / "packed", "log.482", "snapshot.481")
    (folder / "log.482.gz").write_bytes(gzip.compress((short / "log.482").read_bytes()))
    (folder / "snapshot.481.zst").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(100))
    problems: list[str] = []
    notes: list[str] = []
    assert list(read_zookeeper_nodes(folder, problems, notes))
    assert any("log.482.gz is not read" in text for text in problems)
    assert any("snapshot.481.zst" in text for text in notes)


# -- through the commands ---------------------------------------------------------------------------------------------


def _data_directory(version_2: Path, path: Path) -> Path:
    (path / "zookeeper").mkdir(parents=True)
    (path / "zookeeper" / "version-2").symlink_to(version_2)
    (path / "bookkeeper" / "current").mkdir(parents=True)
    (path / "bookkeeper" / "current" / "0.log").write_bytes(encode_header(EntryLogHeader(1, 0, 0)))
    return path


def _tree(path: Path) -> list[tuple[bytes, bytes]]:
    return read_rows(path, lambda txn: [(key, bytes(row)) for key, row in txn.items("tree")])


def _metadata_findings(path: Path, cli: Cli) -> list[str]:
    rows = cli("--store", path, "store", "check", "-o", "json").json
    return [row["message"] for row in rows if row["code"] == "metadata-incomplete"]


def test_import_and_check_tell_of_it_and_refresh_loses_nothing(short: Path, tmp_path: Path, cli: Cli) -> None:
    folder = linked(short, tmp_path / "version-2", "log.482")
    log = folder / "log.482"
    raw = (short / "log.482").read_bytes()
    damaged = bytearray(raw)
    damaged[_borders(raw)[2] + 40] ^= 1
    source, path = _data_directory(folder, tmp_path / "source"), tmp_path / "s"
    log.write_bytes(damaged)
    answer = cli("--store", path, "store", "import", "standalone", source, "-o", "json")
    assert (answer.exit_code, answer.json["undecodableValues"]) == (1, 1)
    assert "log.482 @" in answer.stderr
    (message,) = _metadata_findings(path, cli)
    assert "log.482 @" in message
    log.write_bytes(raw)
    assert cli("--store", path, "store", "refresh", "-o", "json").exit_code == 0
    assert _metadata_findings(path, cli) == []
    whole = _tree(path)
    log.write_bytes(damaged[: _borders(raw)[5] + 20] + bytes(1000))
    for _ in range(2):
        answer = cli("--store", path, "store", "refresh", "-o", "json")
        assert (answer.exit_code, answer.json["nodesRemoved"]) == (1, 0)
        assert "the store keeps the metadata that it has" in answer.stderr
    assert _tree(path) == whole


def test_nodes_that_only_hold_others_have_no_structure(unpacked: Path, tmp_path: Path) -> None:
    """ZooKeeper has a node without a value for each folder: `store check` called each one damaged."""
    nodes = _nodes(linked(unpacked, tmp_path / "version-2"))
    folders = [path for path, node in nodes.items() if not node.data and structure_of(path) is not None]
    assert [path for path in folders if any(other.startswith(f"{path}/") for other in nodes)] == []
    known = [path for path, node in nodes.items() if structure_of(path) is not None and node.data]
    for path in known:
        decode_structure(path, nodes[path].data)
    assert len(known) > 100


@pytest.mark.parametrize(
    "node",
    [INT.pack(2) + b"/a" + INT.pack(3) + b"val", INT.pack(3) + b"/a/" + bytes(200)],
    ids=["ends", "a path of none"],
)
def test_what_begins_as_a_node_and_is_none_is_lost(node: bytes) -> None:
    salvaged = salvage_snapshot(bytes(HEADER.size) + node)
    assert (salvaged.nodes, salvaged.newest_zxid, salvaged.lost_bytes) == ({}, 0, len(node))


def test_a_compressed_log_counts_after_the_base_and_up_to_the_end(tmp_path: Path) -> None:
    for zxid in (5, 6, 7):
        (tmp_path / f"log.{zxid}.gz").touch()
    assert [text.split()[0] for text in iter_unread_logs(tmp_path, 5, 6)] == [str(tmp_path / "log.6.gz")]
