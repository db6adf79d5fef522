"""``.idx`` files: the vector, what real bookies wrote, and damage."""

import struct
from pathlib import Path

import pytest

from pulsar_admin.store.codec.dbledger import LocationRow
from pulsar_admin.store.codec.ledgerindex import (
    LedgerIndexHeader,
    decode_ledger_index_header,
    iter_index_rows,
    ledger_id_of_index,
)
from pulsar_admin.store.errors import MetadataCorrupt, StoreError, Unsupported
from pulsar_admin.store.index.idx_files import iter_index_files, verify_indexes
from tests.codec.bookkeeper_vectors import EMPTY_PASSWORD_KEY, KNOWN
from tests.worlds import oracle, world

HEAD = b"BKLE" + struct.pack(">ii", 0, 20) + EMPTY_PASSWORD_KEY + struct.pack(">i", 1)
SLOTS = b"".join(struct.pack(">q", known.location) for known in KNOWN if known.ledger_id == 1)
VECTOR = (HEAD.ljust(1024, b"\0") + SLOTS).ljust(9216, b"\0")


def test_vector() -> None:
    assert decode_ledger_index_header(VECTOR, "1.idx") == LedgerIndexHeader(0, EMPTY_PASSWORD_KEY, True, None)
    assert list(iter_index_rows(VECTOR, 1)) == [
        LocationRow(1, 0, 1, 1028),
        LocationRow(1, 1, 1, 1069),
        LocationRow(1, 2, 1, 1111),
    ]


def test_a_slot_that_is_cut_and_one_that_is_empty_are_no_entries() -> None:
    assert [row.entry_id for row in iter_index_rows(VECTOR[: 1024 + 23], 1)] == [0, 1]
    hole = VECTOR[:1024] + bytes(8) + VECTOR[1032:]
    assert [row.entry_id for row in iter_index_rows(hole, 1)] == [1, 2]


def test_a_file_that_cannot_be_read_is_told_beside_the_others(tmp_path: Path) -> None:
    folder = tmp_path / "0" / "0"
    (folder / "2.idx").mkdir(parents=True)
    (folder / "1.idx").write_bytes(b"BKLF")
    (folder / "3.idx").write_bytes(VECTOR)
    told = {one.ledger_id: (one.entries, one.problems, one.absent_logs) for one in verify_indexes([tmp_path], {})}
    assert {number: (entries, len(problems)) for number, (entries, problems, _) in told.items()} == {
        1: (0, 1),
        2: (0, 1),
        3: (3, 0),
    }
    assert told[3][2] == (1,)


def test_names() -> None:
    names = ("1234.idx", "0.idx", "a.idx.rloc", "1.log")
    assert [ledger_id_of_index(name) for name in names] == [0x1234, 0, None, None]


@pytest.mark.parametrize(("bookie", "index", "version"), [(0, "index", 1), (1, "ledgers", 0)])
def test_what_bookies_wrote_says_what_bookkeeper_says(bookie: int, index: str, version: int) -> None:
    said = oracle("kinds")
    expected = said["index"][said["bookies"][bookie]]
    found = {}
    explicit = set()
    for ledger_id, path in iter_index_files([world("kinds") / "clean" / f"bookie{bookie}" / index / "current"]):
        data = path.read_bytes()
        header = decode_ledger_index_header(data, str(path))
        assert (header.version, header.master_key) == (version, EMPTY_PASSWORD_KEY)
        if header.explicit_lac:
            lac_of, lac = struct.unpack(">qq", header.explicit_lac[:16])
            assert lac_of == ledger_id
            explicit.add(lac)
        if str(ledger_id) in expected:
            found[str(ledger_id)] = [[row.entry_id, row.log_id, row.pos] for row in iter_index_rows(data, ledger_id)]
    assert found == expected
    assert bool(explicit) == bool(version)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", MetadataCorrupt),
        (VECTOR[:1023], MetadataCorrupt),
        (b"BKLO" + VECTOR[4:], MetadataCorrupt),
        (VECTOR[:4] + b"\0\0\0\2" + VECTOR[8:], Unsupported),
        (VECTOR[:8] + b"\x7f" + VECTOR[9:], MetadataCorrupt),
        (VECTOR[:8] + b"\xff" + VECTOR[9:], MetadataCorrupt),
        (VECTOR[:4] + b"\0\0\0\1" + VECTOR[8:36] + b"\0\0\0\x0f" + VECTOR[40:], MetadataCorrupt),
        (VECTOR[:4] + b"\0\0\0\1" + VECTOR[8:36] + b"\0\0\4\0" + VECTOR[40:], MetadataCorrupt),
    ],
)
def test_headers_that_cannot_be_are_refused(data: bytes, error: type[StoreError]) -> None:
    with pytest.raises(error, match=r"1\.idx"):
        decode_ledger_index_header(data, "1.idx")
