"""Ledgers maps of entry logs that are readable and wrong: garbage collection believes them."""

import shlex
import struct
import subprocess
from pathlib import Path

import pytest

from pulsar_admin.store.codec.entrylog import HEADER_BYTES, decode_header, decode_ledgers_map, decode_trusted_map
from pulsar_admin.store.errors import StoreError
from tests.altering import flip
from tests.conftest import Cli
from tests.stores import lived_bookie
from tests.test_lost_logs import _findings, _import, _mend
from tests.worlds import scratch_copy, world

_HEAD = 24  # of a batch of a map
_ROW = 16
_LOGS = ("bookie0/ledgers0/current/1.log", "bookie3/ledgers1/current/1.log")


def _map_of(log: Path) -> tuple[int, dict[int, int]]:
    """Return where the map of a log begins, and its ledgers in their order."""
    data = log.read_bytes()
    (offset,) = struct.unpack_from(">q", data, 8)
    (count,) = struct.unpack_from(">i", data, offset + 20)
    return offset, dict(struct.unpack_from(">qq", data, offset + _HEAD + _ROW * row) for row in range(count))


def _import_lived(source: Path, path: Path, cli: Cli) -> Path:
    bookies = [word for one in sorted(source.glob("bookie*")) for word in ("--bookie", lived_bookie(one))]
    words = ("--store", path, "store", "import", "cluster", "--metadata", source / "zookeeper", *bookies, "-q")
    assert cli(*words).exit_code in (0, 1)  # 1: a batch of a map that is no map any more is damage
    return path


def _told(path: Path, cli: Cli) -> list[dict[str, object]]:
    return [
        one["context"] | {"message": one["message"]}
        for one in _findings(path, cli, "--deep")
        if one["code"] == "ledgers-map-false"
    ]


def test_a_flipped_ledger_and_a_flipped_size_are_told_and_salvage_cures_them(tmp_path: Path, cli: Cli) -> None:
    source = scratch_copy("lived", "clean", tmp_path)
    lost, sized = (source / log for log in _LOGS)
    (at, ledgers), (other_at, others) = _map_of(lost), _map_of(sized)
    flip(lost, at + _HEAD, 1 << 5)  # the first ledger becomes one beyond all ids, which none of the records has
    flip(sized, other_at + _HEAD + 15)  # the last bit of the bytes of the first
    path = _import_lived(source, tmp_path / "s", cli)
    assert "ledgers-map-false" not in {one["code"] for one in _findings(path, cli)}
    first, second = sorted(_told(path, cli), key=lambda one: str(one["bookie"]))
    gone, wrong = next(iter(ledgers)), next(iter(others))
    assert [first[key] for key in ("severity", "lacking", "kept", "ledgerIds")] == [
        "critical",
        1,
        1,
        [gone, gone | 1 << 61],
    ]
    assert "its ledgers map lacks 1 ledger with records in the log and has wrong sizes of 1 ledger" in first["message"]
    assert "its ledgers map has wrong sizes of 1 ledger, first" in second["message"]
    assert first["mapBytes"] == first["recordBytes"] == sum(ledgers.values())
    assert [second[key] for key in ("severity", "lacking", "differing", "ledgerIds")] == ["warning", 0, 1, [wrong]]
    assert second["recordBytes"] == sum(others.values())
    assert second["mapBytes"] == sum(others.values()) + (-1 if others[wrong] & 1 else 1)
    before = [log.read_bytes() for log in (lost, sized)]
    for row in [one for one in _findings(path, cli, "--deep") if one["code"] == "ledgers-map-false"]:
        _mend(path, row["hint"][row["hint"].index("pulsar-admin") :], cli)
    assert _told(path, cli) == []
    for log, data in zip((lost, sized), before, strict=True):
        assert decode_trusted_map(log.read_bytes(), decode_header(log.read_bytes(), "")) is None
        kept = log.with_name("1.log-start-before-salvage").read_bytes()
        assert kept + log.read_bytes()[len(kept) :] == data


@pytest.mark.parametrize("mode", [(), ("--copy",)])
def test_where_salvage_refuses_the_command_takes_the_map_out(mode: tuple[str, ...], tmp_path: Path, cli: Cli) -> None:
    """A bookie with ``.idx`` files; of a log that was copied the bookie's own is named, not the store's."""
    source = scratch_copy("kinds", "clean", tmp_path)
    log = source / "bookie0" / "ledgers0" / "current" / "0.log"
    flip(log, _map_of(log)[0] + _HEAD, 1 << 5)
    words = ("--zookeeper", source / "zookeeper", "--bookie", lived_bookie(source / "bookie0"))
    path = tmp_path / "s"
    assert cli("--store", path, "store", "import", "cluster", *words, *mode, "-q").exit_code == 0
    (row,) = [one for one in _findings(path, cli, "--deep") if one["code"] == "ledgers-map-false"]
    subprocess.run(shlex.split(row["hint"][row["hint"].index("dd if") :]), check=True, capture_output=True)
    assert decode_trusted_map(log.read_bytes(), decode_header(log.read_bytes(), "")) is None
    assert cli("--store", path, "store", "refresh", "-q").exit_code == 0
    assert _told(path, cli) == []


def test_an_offset_beyond_the_end_makes_a_log_empty(tmp_path: Path, cli: Cli) -> None:
    """Of a log that was never finished: with one flipped bit older bookies delete all of it."""
    source = scratch_copy("small", "crashed", tmp_path)
    log = max(
        (one for one in (source / "bookkeeper" / "current").glob("*.log") if _is_unfinished(one)),
        key=lambda one: one.stat().st_size,
    )
    flip(log, 11)  # 2^32
    path = _import(source, tmp_path / "s", cli)
    (row,) = _told(path, cli)
    assert (row["severity"], row["mapBytes"], row["differing"]) == ("warning", 0, 0)
    assert row["lacking"]
    assert row["recordBytes"]


def _is_unfinished(log: Path) -> bool:
    return log.stat().st_size > HEADER_BYTES and struct.unpack_from(">qi", log.read_bytes(), 8) == (0, 0)


def test_what_garbage_collection_does_not_believe_is_not_told(tmp_path: Path, cli: Cli) -> None:
    source = scratch_copy("lived", "clean", tmp_path)
    flip(source / _LOGS[0], _map_of(source / _LOGS[0])[0] + 12 + 3, 2)
    assert _told(_import_lived(source, tmp_path / "s", cli), cli) == []


@pytest.mark.parametrize("place", [4, 12, 20])
def test_garbage_collection_reads_the_records_where_a_batch_begins_otherwise(place: int) -> None:
    """By another ledger than −1, entry than −2 or count."""
    log = world("lived") / "clean" / _LOGS[0]
    data = bytearray(log.read_bytes())
    header = decode_header(data, "")
    assert decode_trusted_map(data, header) == _map_of(log)[1]
    data[_map_of(log)[0] + place + 3] ^= 2
    assert decode_trusted_map(data, header) is None


@pytest.mark.parametrize(
    ("record", "found"),
    [
        ((36, 1, 7, 9), {7: 9}),
        ((36, 1, 7, 0), {7: 0}),
        ((1 << 30, 1, 7, 9), {7: 9}),
        ((36, 1, -5, 9), None),
        ((36, 1, 7, -9), None),
        ((35, 1, 7, 9), None),
        ((36, 2, 7, 9), None),
        ((20, 0, 7, 9), None),
    ],
)
def test_garbage_collection_believes_what_may_not_skip_a_log(
    record: tuple[int, ...], found: dict[int, int] | None
) -> None:
    """As ``DefaultEntryLogger`` of BookKeeper 4.17.2 does: it was asked for each."""
    size, count, ledger, size_bytes = record
    data = bytearray(HEADER_BYTES) + struct.pack(">iqqiqq", size, -1, -2, count, ledger, size_bytes)
    data[:20] = struct.pack(">4siqi", b"BKLO", 1, HEADER_BYTES, 1)
    header = decode_header(data, "")
    assert decode_trusted_map(data, header) == found
    if record != (36, 1, 7, 9):
        with pytest.raises(StoreError):
            decode_ledgers_map(data, header, "")
