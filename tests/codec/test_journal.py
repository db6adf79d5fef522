"""Journals: vectors, versions, and the three kinds of end."""

import struct
from functools import partial

import pytest

from pulsar_admin.store.codec import journal as codec
from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.entry import Entry, decode_entry
from pulsar_admin.store.errors import JournalCorrupt, Unsupported
from tests.codec.bookkeeper_vectors import EMPTY_PASSWORD_KEY, JOURNAL_V5, refusal
from tests.encoders import encode_entry

VECTOR = [
    codec.MasterKey(512, 1, EMPTY_PASSWORD_KEY),
    codec.JournalEntry(556, 37, 1, 0),
    codec.Fence(597, 1),
    codec.Padding(617, 407),
]
RECORDS = JOURNAL_V5[512:617]


def _read(journal: bytes, start: int | None = None) -> list[codec.JournalItem]:
    return list(codec.iter_records(journal, "1.txn", start))


def _record(*fields: int, tail: bytes = b"") -> bytes:
    body = struct.pack(">qq", *fields) + tail
    return struct.pack(">i", len(body)) + body


def _journal(version: int, records: bytes) -> bytes:
    head = b"" if version == 1 else b"BKLG" + struct.pack(">i", version)
    return (head if version < 5 else head.ljust(512, b"\0")) + records


@pytest.mark.parametrize("tail_bytes", [0, 1, 4, 512, 1 << 20])
def test_version_5_vector_with_and_without_its_preallocated_tail(tail_bytes: int) -> None:
    assert codec.decode_header(JOURNAL_V5, "1.txn") == codec.JournalHeader(5, 512)
    assert _read(JOURNAL_V5 + bytes(tail_bytes)) == VECTOR
    entry = VECTOR[1]
    assert isinstance(entry, codec.JournalEntry)
    assert bytes(decode_entry(entry.body(JOURNAL_V5), DigestType.CRC32C, where="1.txn").payload) == b"a"


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6])
def test_the_same_records_in_every_version(version: int) -> None:
    journal = _journal(version, RECORDS)
    header = {1: 0, 2: 8, 3: 8, 4: 8, 5: 512, 6: 512}[version]
    assert codec.decode_header(journal, "1.txn") == codec.JournalHeader(version, header)
    assert codec.encode_header(version) == journal[:header]
    assert _read(journal) == [
        codec.MasterKey(header, 1, EMPTY_PASSWORD_KEY),
        codec.JournalEntry(header + 44, 37, 1, 0),
        codec.Fence(header + 85, 1),
    ]
    if version == 4:
        assert len(journal) == 113


def test_starting_at_a_mark() -> None:
    assert _read(JOURNAL_V5, 556) == VECTOR[1:]
    assert _read(JOURNAL_V5, 0) == VECTOR
    assert _read(JOURNAL_V5 + bytes(512), 1024 + 4) == []
    assert _read(JOURNAL_V5, 5000) == []


def test_explicit_lac_record() -> None:
    buffer = bytes.fromhex("0000000000000001 0000000000000002 57753c55")
    journal = _journal(6, _record(1, -0x8000, tail=struct.pack(">i", len(buffer)) + buffer))
    (record,) = _read(journal)
    assert record == codec.ExplicitLac(512, 1, buffer)


def test_other_negative_entry_ids_are_passed_on() -> None:
    assert _read(_journal(6, _record(1, -0x4000) + RECORDS))[0] == codec.UnknownRecord(512, 16, 1, -0x4000)


@pytest.mark.parametrize("version", [2, 6])
def test_a_header_alone_or_nothing_is_a_clean_end(version: int) -> None:
    assert _read(codec.encode_header(version)) == _read(b"") == _read(bytes(1 << 20)) == []


def test_a_file_cut_in_its_header_has_no_records() -> None:
    for size in range(512):
        assert _read(JOURNAL_V5[:size]) == []


@pytest.mark.parametrize("version", [-1, 0, 1, 7, 2**31 - 1])
def test_unknown_versions_are_unsupported(version: int) -> None:
    with pytest.raises(Unsupported):
        codec.decode_header(b"BKLG" + struct.pack(">i", version) + bytes(504), "1.txn")


def test_every_cut_is_a_clean_end_or_a_torn_tail() -> None:
    ends = {512: 0, 556: 1, 597: 2, 617: 3, 1024: 4}
    for size in range(512, 1025):
        items = _read(JOURNAL_V5[:size])
        whole = max(count for end, count in ends.items() if end <= size)
        assert items[:whole] == VECTOR[:whole]
        last = max(end for end in ends if end <= size)
        is_clean = not any(JOURNAL_V5[last:size])
        assert len(items) - whole == (not is_clean), size
        if not is_clean:
            torn = items[-1]
            assert isinstance(torn, codec.TornTail)
            assert (torn.offset, torn.got) == (last, size - last)


@pytest.mark.parametrize("written", range(1, 41))
def test_an_entry_that_reaches_into_the_zero_tail_is_torn(written: int) -> None:
    journal = JOURNAL_V5[:556] + RECORDS[44 : 44 + written] + bytes(4096)
    items = _read(journal)
    if written < 4:
        # Not even its length is there: nothing tells it from the tail.
        assert items == VECTOR[:1]
        return
    assert items[:1] == VECTOR[:1]
    (torn,) = items[1:]
    assert isinstance(torn, codec.TornTail)
    assert (torn.offset, torn.wanted) == (556, 41)
    assert torn.got <= max(4, written)


def test_an_entry_that_ends_in_zeros_by_itself_is_not_torn() -> None:
    for kind in (DigestType.CRC32C, DigestType.CRC32, DigestType.HMAC):
        body = encode_entry(Entry(1, 0, -1, 9, kind, memoryview(bytes(9))))
        journal = _journal(6, struct.pack(">i", len(body)) + body + bytes(4096))
        assert _read(journal) == [codec.JournalEntry(512, len(body), 1, 0)]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (struct.pack(">i", -1), "length of a record"),
        (struct.pack(">i", -0xFF), "length of a record"),
        (struct.pack(">i", 15), "length of a record"),
        (struct.pack(">ii", -0x100, -1), "length of padding"),
        (struct.pack(">ii", -0x100, 40) + bytes(30) + b"\1" + bytes(9), "padding @ 0x28f"),
        (struct.pack(">ii", -0x100, 2**31 - 1) + bytes(30) + b"\1" + bytes(9), "padding @ 0x28f"),
        (_record(-1, 0, tail=bytes(16)), "ledger id"),
        (_record(1, 0), "length of an entry"),
        (_record(1, -0x1000), "count in a meta record"),
        (_record(1, -0x1000, tail=struct.pack(">i", 2**31 - 1)), "count in a meta record"),
        (_record(1, -0x8000, tail=struct.pack(">i", -1)), "count in a meta record"),
        (_record(1, -0x1000, tail=struct.pack(">i", 20) + bytes(60)), "count in a meta record"),
        (_record(1, -0x2000, tail=bytes(40)), "length of a fence record"),
    ],
)
def test_corruption_is_raised_behind_the_good_records(record: bytes, message: str) -> None:
    found: list[codec.JournalItem] = []
    with pytest.raises(JournalCorrupt, match=message) as caught:
        found.extend(codec.iter_records(_journal(6, RECORDS + record + RECORDS), "1.txn"))
    assert caught.value.context["offset"] == 617
    assert found == VECTOR[:3]


def test_padding_before_version_5_is_corruption() -> None:
    with pytest.raises(JournalCorrupt, match="length of a record"):
        _read(_journal(4, RECORDS + struct.pack(">ii", -0x100, 0)))


def test_an_absurd_length_is_a_torn_tail_and_allocates_nothing() -> None:
    journal = _journal(6, struct.pack(">i", 2**31 - 1) + RECORDS)
    assert _read(journal) == [codec.TornTail(512, 2**31 + 3, 109)]


def test_bytes_behind_the_end_are_reported() -> None:
    journal = JOURNAL_V5 + bytes(512) + RECORDS + bytes(100)
    assert _read(journal) == [*VECTOR, codec.Leftover(1539, 101)]
    assert _read(journal, 1536) == [
        codec.MasterKey(1536, 1, EMPTY_PASSWORD_KEY),
        codec.JournalEntry(1580, 37, 1, 0),
        codec.Fence(1621, 1),
    ]


def _decode_all(journal: bytes, found: list[codec.JournalItem]) -> None:
    for item in codec.iter_records(journal, "x"):
        found.append(item)
        if isinstance(item, codec.JournalEntry):
            decode_entry(item.body(journal), None, where="x")


def test_a_flipped_bit_in_an_entry_is_detected() -> None:
    for bit in range(8 * 556, 8 * 597):
        damaged = bytearray(JOURNAL_V5)
        damaged[bit // 8] ^= 1 << bit % 8
        found: list[codec.JournalItem] = []
        error = refusal(partial(_decode_all, bytes(damaged), found))
        assert (
            error or isinstance(found[-1], codec.TornTail | codec.Leftover) or codec.UnknownRecord in map(type, found)
        )
        assert found[:1] == VECTOR[:1]


def test_journal_names() -> None:
    for name, journal_id in {"18795c6b58c.txn": 0x18795C6B58C, "0.txn": 0, "18795C6B58C.txn": 0x18795C6B58C}.items():
        assert codec.journal_id_of(name) == journal_id
    for name in ("1.log", ".txn", "txn", "1_2.txn", "+1.txn", "x.txn"):
        assert codec.journal_id_of(name) is None
