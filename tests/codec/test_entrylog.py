"""Entry-log headers, ledgers maps, locations and names."""

import csv
import gzip
import random
import struct

import pytest

from pulsar_admin.store.codec import entrylog as codec
from pulsar_admin.store.codec.logscan import iter_records
from pulsar_admin.store.errors import EntryLogCorrupt, Unsupported
from tests.codec.bookkeeper_vectors import DIRECT_LOG, KNOWN, LEDGERS_MAP, LOG_HEADER, SEALED_LOG
from tests.worlds import GOLDEN, world

SEALED = codec.EntryLogHeader(1, 1280, 2)


def test_header_vector() -> None:
    assert codec.decode_header(SEALED_LOG, "1.log") == SEALED
    assert codec.encode_header(SEALED) == LOG_HEADER
    assert SEALED.has_map
    assert not codec.EntryLogHeader(1, 0, 0).has_map
    assert not codec.EntryLogHeader(0, 1280, 2).has_map


def test_garbage_in_unused_header_bytes_is_ignored() -> None:
    header = LOG_HEADER[:20] + random.Random(1).randbytes(1004)
    assert codec.decode_header(header, "1.log") == SEALED


def test_header_without_magic_or_cut_is_refused() -> None:
    with pytest.raises(EntryLogCorrupt, match=r"1\.log: starts with 424b4c45, not 424b4c4f \(BKLO\)"):
        codec.decode_header(b"BKLE" + LOG_HEADER[4:], "1.log")
    for size in range(1024):
        with pytest.raises(EntryLogCorrupt, match="wanted 1024 bytes"):
            codec.decode_header(LOG_HEADER[:size], "1.log")


@pytest.mark.parametrize("version", [-1, 2, 2**31 - 1])
def test_unknown_versions_are_unsupported(version: int) -> None:
    with pytest.raises(Unsupported):
        codec.decode_header(LOG_HEADER[:4] + struct.pack(">i", version) + LOG_HEADER[8:], "1.log")


def test_ledgers_map_vector() -> None:
    assert codec.decode_ledgers_map(SEALED_LOG, SEALED, "1.log") == {1: 126, 7: 130}
    assert codec.encode_ledgers_map({1: 126, 7: 130}) == LEDGERS_MAP


def test_direct_log_map_ends_at_its_padding() -> None:
    header = codec.decode_header(DIRECT_LOG, "1.log")
    assert header == codec.EntryLogHeader(1, 0x2000, 2)
    assert codec.decode_ledgers_map(DIRECT_LOG, header, "1.log") == {1: 126, 7: 130}


@pytest.mark.parametrize(
    "header",
    [
        *(codec.EntryLogHeader(0, 1280, 2), codec.EntryLogHeader(1, 0, 2), codec.EntryLogHeader(1, 1280, 0)),
        *(codec.EntryLogHeader(1, 1280, 3), codec.EntryLogHeader(1, 1280, -1932430239)),
        *(codec.EntryLogHeader(1, 1023, 2), codec.EntryLogHeader(1, -1280, 2)),
        *(codec.EntryLogHeader(1, 1336, 2), codec.EntryLogHeader(1, 2**62, 2)),
        *(codec.EntryLogHeader(1, 1024, 2), codec.EntryLogHeader(1, 1279, 2)),
        codec.EntryLogHeader(1, 1334, 2),
    ],
    ids=str,
)
def test_impossible_headers_have_no_map(header: codec.EntryLogHeader) -> None:
    with pytest.raises(EntryLogCorrupt):
        codec.decode_ledgers_map(SEALED_LOG, header, "1.log")
    with pytest.raises(EntryLogCorrupt):
        codec.decode_ledgers_map(SEALED_LOG[:1280] + bytes(64), codec.EntryLogHeader(1, 1280, 0), "1.log")


@pytest.mark.parametrize(
    ("offset", "field"),
    [
        (1280, struct.pack(">i", 51)),
        (1280, struct.pack(">i", 2**31 - 1)),
        (1284, struct.pack(">q", 1)),
        (1292, struct.pack(">q", 0)),
        (1300, struct.pack(">i", 3)),
        (1300, struct.pack(">i", 2**31 - 1)),
        (1300, struct.pack(">i", -1)),
        (1304, struct.pack(">q", -1)),
        (1304, struct.pack(">q", 7)),
        (1312, struct.pack(">q", 0)),
    ],
)
def test_damaged_maps_are_refused(offset: int, field: bytes) -> None:
    damaged = SEALED_LOG[:offset] + field + SEALED_LOG[offset + len(field) :]
    assert damaged != SEALED_LOG
    with pytest.raises(EntryLogCorrupt):
        codec.decode_ledgers_map(damaged, SEALED, "1.log")


def test_every_cut_of_the_map_is_refused() -> None:
    for size in range(1280, len(SEALED_LOG)):
        with pytest.raises(EntryLogCorrupt):
            codec.decode_ledgers_map(SEALED_LOG[:size], SEALED, "1.log")


@pytest.mark.parametrize("ledgers", [1, 9_999, 10_000, 10_001, 25_000])
def test_maps_of_many_batches(ledgers: int) -> None:
    sizes = {ledger_id: ledger_id + 40 for ledger_id in range(ledgers)}
    packed = codec.encode_ledgers_map(sizes)
    batches = -(-ledgers // 10_000)
    assert len(packed) == batches * 24 + 16 * ledgers
    log = LOG_HEADER + packed
    assert codec.decode_ledgers_map(log, codec.EntryLogHeader(1, 1024, ledgers), "1.log") == sizes


def test_locations_of_the_sample_log() -> None:
    for known in KNOWN:
        assert codec.encode_location(1, known.offset + 4) == known.location
        assert codec.decode_location(known.location) == (1, known.offset + 4)


def test_log_names() -> None:
    for name, log_id in {"0.log": 0, "1f4.log": 500, "7fffffff.log": 2**31 - 1, "1F4.log": 500}.items():
        assert (codec.log_id_of(name), codec.log_file_name(log_id)) == (log_id, name.lower())
    for name in ("1f4.log.compacting", "1f4.log.78.compacted", "1f4.txn", ".log", "x.log", "1.log\n"):
        assert codec.log_id_of(name) is None


# -- BookKeeper's own readlog (tests/golden/readlog-small.md) -------------------------------------------------------

LOGS = [
    ("clean", "0.log", 1087),
    ("clean", "1.log", 1479),
    ("crashed", "0.log", 1087),
    ("crashed", "1.log", 1479),
    ("crashed", "3.log", 28),
    ("crashed", "5.log", 1),
]


@pytest.fixture(scope="module")
def golden() -> list[dict[str, str]]:
    with gzip.open(GOLDEN / "readlog-small.csv.gz", "rt", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize(("state", "log", "entries"), LOGS)
def test_scan_equals_readlog(golden: list[dict[str, str]], state: str, log: str, entries: int) -> None:
    theirs = [
        tuple(int(row[column]) for column in ("ByteOffset", "EntrySize", "ledger", "entry"))
        for row in golden
        if (row["state"], row["log"]) == (state, log)
    ]
    assert len(theirs) == entries
    assert list(iter_records((world("small") / state / "bookkeeper/current" / log).read_bytes(), log)) == theirs
