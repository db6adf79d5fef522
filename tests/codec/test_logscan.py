"""The reference scan: sample logs, damage of every kind, real logs against BookKeeper's index."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.entry import Entry, decode_entry
from pulsar_admin.store.codec.entrylog import HEADER_BYTES
from pulsar_admin.store.codec.logscan import (
    RUN_RECORDS,
    Gap,
    GapReason,
    Record,
    TornTail,
    find_record,
    iter_candidates,
    iter_records,
)
from pulsar_admin.store.codec.proof import Proofs
from pulsar_admin.store.errors import EntryCorrupt, EntryLogCorrupt
from tests.codec.bookkeeper_vectors import DIRECT_LOG, FIXED, KNOWN, LOG_HEADER, RECORDS, SEALED_LOG
from tests.encoders import encode_entry

SIX = [Record(known.offset, known.size, known.ledger_id, known.entry_id) for known in KNOWN]


def _scan(log: bytes, start: int = HEADER_BYTES, end: int | None = None) -> list[Record | Gap | TornTail]:
    return list(iter_records(log, "1.log", start, end))


def _records(log: bytes) -> list[Record]:
    return [item for item in _scan(log) if isinstance(item, Record)]


def _framed(entry_id: int, payload: bytes, kind: DigestType = DigestType.CRC32C) -> bytes:
    body = encode_entry(Entry(0, entry_id, entry_id - 1, 10**6, kind, memoryview(payload)))
    return struct.pack(">i", len(body)) + body


def _check_cover(log: bytes, items: list[Record | Gap | TornTail]) -> None:
    """Items ascend without overlap, and what is between them is records of ledger -1."""
    pos = HEADER_BYTES
    for item in [*items, Gap(len(log), 0, GapReason.PADDING)]:
        assert item.offset >= pos
        if item.offset > pos:
            assert log[pos + 4 : pos + 12] == b"\xff" * 8
        pos = item.offset + _length(item)
    assert pos == len(log)


def _length(item: Record | Gap | TornTail) -> int:
    if isinstance(item, Record):
        return 4 + item.size
    return item.length if isinstance(item, Gap) else item.got


def test_sealed_log() -> None:
    assert _scan(SEALED_LOG) == SIX
    assert [bytes(six.body(SEALED_LOG)[:16]) for six in SIX] == [
        struct.pack(">qq", ledger_id, entry_id) for _, _, ledger_id, entry_id in SIX
    ]


def test_unsealed_log() -> None:
    assert _scan(SEALED_LOG[:8] + bytes(12) + SEALED_LOG[20:1280]) == SIX


def test_header_garbage_does_not_matter() -> None:
    assert _scan(SEALED_LOG[:8] + random.Random(1).randbytes(1016) + SEALED_LOG[1024:]) == SIX


def test_torn_tail() -> None:
    assert _scan(SEALED_LOG[:1200]) == [*SIX[:4], TornTail(1196, 40, 4)]
    assert _scan(SEALED_LOG, end=1200) == [*SIX[:4], TornTail(1196, 40, 4)]


@pytest.mark.parametrize("size", [0, 4, 1023, 1024])
def test_logs_without_records(size: int) -> None:
    assert _scan(SEALED_LOG[:size]) == []


def test_direct_log() -> None:
    items = _scan(DIRECT_LOG)
    assert items == [
        *((offset + 3072, size, ledger_id, entry_id) for offset, size, ledger_id, entry_id in SIX),
        Gap(4352, 8192 - 4352, GapReason.PADDING),
        Gap(8192 + 56, 4096 - 56, GapReason.PADDING),
        Gap(12288, 8192, GapReason.UNWRITTEN),
    ]
    _check_cover(DIRECT_LOG, items)


@pytest.mark.parametrize("zeros", [1, 2, 3, 4, 7, 4096, 70_001])
@pytest.mark.parametrize("payload_bytes", [0, 300, 70_000])
@pytest.mark.parametrize("kind", [DigestType.CRC32C, DigestType.CRC32, DigestType.DUMMY])
def test_records_behind_zeros_keep_their_place(zeros: int, payload_bytes: int, kind: DigestType) -> None:
    # BookKeeper's default scan goes byte by byte and misreads a size of 256 or more behind zeros.
    record = _framed(0, bytes(payload_bytes // 2) + b"\x07" * (payload_bytes - payload_bytes // 2), kind)
    log = LOG_HEADER + bytes(zeros) + record
    assert _scan(log) == [Gap(1024, zeros, GapReason.ZEROS), (1024 + zeros, len(record) - 4, 0, 0)]


def test_seven_zeros_and_a_size_of_336() -> None:
    record = _framed(0, b"p" * 300)
    assert record[:4] == bytes.fromhex("00000150")
    assert _records(LOG_HEADER + bytes(7) + record + RECORDS)[0] == (1031, 336, 0, 0)


def test_a_size_that_ends_in_the_padding_byte() -> None:
    record = _framed(0, b"p" * (0xF0 - 36))
    assert record[:4] == bytes.fromhex("000000f0")
    log = LOG_HEADER + bytes(9) + record + b"\xf0" * 33 + record
    offsets = [item[0] for item in _records(log)]
    assert offsets == [1033, 1033 + len(record) + 33]


# The last one grows from 38 to 38 + 131: the claimed record ends inside the fifth.
@pytest.mark.parametrize("size", [2**31 - 1, 2**28 + 1, 31, 1, -1, -(2**31), 0x01000000, 169])
def test_a_wrong_size_costs_one_record(size: int) -> None:
    log = SEALED_LOG[:1065] + struct.pack(">i", size) + SEALED_LOG[1069:]
    assert _scan(log) == [SIX[0], Gap(1065, 42, GapReason.UNREADABLE), *SIX[2:]]


def test_a_record_that_carries_an_entry_log_is_not_mistaken_for_records() -> None:
    outer = _framed(0, SEALED_LOG)
    log = LOG_HEADER + outer + b"\xff" * 50 + _framed(1, b"x")
    assert _scan(log) == [
        (1024, len(outer) - 4, 0, 0),
        Gap(1024 + len(outer), 50, GapReason.UNREADABLE),
        (1024 + len(outer) + 50, 37, 0, 1),
    ]


def test_every_cut_yields_the_whole_records_and_no_more() -> None:
    for size in range(1024, len(SEALED_LOG)):
        whole = [six for six in SIX if six[0] + 4 + six[1] <= size]
        items = _scan(SEALED_LOG[:size])
        assert items[: len(whole)] == whole
        assert len(items) <= len(whole) + 1
        assert not any(isinstance(item, Record) for item in items[len(whole) :])
        if size < 1280:
            _check_cover(SEALED_LOG[:size], items)


def test_every_flipped_bit_costs_at_most_its_own_record() -> None:
    for bit in range(8 * 1024, 8 * len(SEALED_LOG)):
        damaged = bytearray(SEALED_LOG)
        damaged[bit // 8] ^= 1 << bit % 8
        found = _records(bytes(damaged))
        untouched = [six for six in SIX if not six[0] <= bit // 8 < six[0] + 4 + six[1]]
        assert [six for six in found if six in untouched] == untouched, hex(bit // 8)
        for record in set(found) - set(untouched):
            with pytest.raises(EntryCorrupt):
                decode_entry(record.body(bytes(damaged)), None, where="x")


pieces = st.lists(
    st.one_of(
        st.tuples(st.just("record"), st.integers(0, 600), st.sampled_from([DigestType.CRC32C, DigestType.CRC32])),
        st.tuples(st.just("zeros"), st.integers(1, 5000), st.just(None)),
        st.tuples(st.just("padding"), st.integers(1, 5000), st.just(None)),
        st.tuples(st.just("garbage"), st.integers(1, 300), st.just(None)),
    ),
    max_size=12,
)


@FIXED
@given(pieces, st.integers(0, 2**32))
def test_records_between_damage_are_all_found(plan: list[tuple[str, int, DigestType | None]], seed: int) -> None:
    source, log, expected = random.Random(seed), LOG_HEADER, []
    for entry_id, (piece, size, kind) in enumerate(plan):
        if kind is not None:
            record = _framed(entry_id, source.randbytes(size), kind)
            expected.append((len(log), len(record) - 4, 0, entry_id))
            log += record
        elif piece == "garbage":
            log += bytes([source.choice([1, 0x7F, 0x80, 0xFF])]) + source.randbytes(size)
        else:
            log += (b"\0" if piece == "zeros" else b"\xf0") * size
    items = _scan(log)
    assert [item for item in items if isinstance(item, Record)] == expected
    _check_cover(log, items)


@FIXED
@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_explained(data: bytes) -> None:
    log = LOG_HEADER + data
    items = _scan(log)
    if b"\xff" * 8 not in data:
        _check_cover(log, items)


def _looks_like_a_head(head: bytes) -> bool:
    size, ledger_id, entry_id, confirmed, length = struct.unpack(">iqqqq", head)
    return (
        32 <= size < 0x11000000
        and ledger_id >= 0
        and 0 <= entry_id < 1 << 48
        and -(1 << 48) <= confirmed < 1 << 48
        and 0 <= length < 1 << 56
    )


@pytest.mark.parametrize("seed", range(8))
def test_heads_are_looked_for_by_their_numbers(seed: int) -> None:
    """Heads of numbers at the limits, among bytes that often stand in heads, in one chunk and over several."""
    draw = random.Random(seed)
    sizes = (0, 31, 32, 8191, 0x10FFFFFF, 0x11000000, -1)
    numbers = (0, 1, 2**48 - 1, 2**48, 2**56 - 1, 2**56, 2**63 - 1, -1, -(2**48), -(2**48) - 1, -(2**63))
    parts = []
    for _ in range(400):
        parts.append(struct.pack(">iqqqq", draw.choice(sizes), *draw.choices(numbers[: draw.choice((2, 11))], k=4)))
        parts.append(bytes(draw.choices((0, 0, 1, 16, 17, 31, 32, 127, 128, 255), k=draw.randrange(12))))
    data = b"".join(parts)
    expected = [at for at in range(3, len(data) - 35) if _looks_like_a_head(data[at : at + 36])]
    assert list(iter_candidates(memoryview(data), 3, len(data), Proofs(data))) == expected
    assert len(expected) > 20


@pytest.mark.parametrize("kind", DigestType)
def test_a_head_that_ends_with_zeros_is_found_at_the_end_of_what_is_searched(kind: DigestType) -> None:
    """The numbers of a head may end with zeros, as a digest of CRC-32 begins with four: no search ends before them."""
    bodies = [
        encode_entry(Entry(7, at, at - 1, 256 * at, kind, memoryview(bytes(256)))) for at in range(2 + RUN_RECORDS)
    ]
    log = LOG_HEADER + b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    at = len(LOG_HEADER) + 4 + len(bodies[0])
    for stop in range(at + 1, at + 9):
        assert find_record(memoryview(log), at - 100, stop) == at
    empty = encode_entry(Entry(7, 2, 1, 512, kind, memoryview(b"")))
    damaged = LOG_HEADER + b"\xff" * 50 + len(empty).to_bytes(4, "big") + empty
    *_, last = iter_records(damaged, "x")
    assert last == Record(len(LOG_HEADER) + 50, len(empty), 7, 2)


def test_a_head_that_claims_far_more_than_a_record_by_chance_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte before the head of an entry whose numbers have zeros in their last bytes looks like the head of 16 MiB."""
    before = _framed(0, b"\x01")
    body = encode_entry(Entry(256, 256, 0, 256, DigestType.CRC32C, memoryview(b"a")))
    large = _framed(1, bytes(17 << 20))
    log = LOG_HEADER + before + len(body).to_bytes(4, "big") + body + large + before
    at = len(LOG_HEADER) + len(before)
    lengths, asked = list[int](), Proofs.digest_type
    monkeypatch.setattr(
        Proofs, "digest_type", lambda self, start, end, in_turn: lengths.append(end - start) or asked(self, start, end)
    )
    assert [*iter_candidates(memoryview(log), at - 1, at + 36, Proofs(log))] == [at - 1, at]
    assert find_record(memoryview(log), at - 1, at + 36) == at
    assert lengths == [len(body)]
    large_at = at + 4 + len(body)
    for behind in (before, b"", b"\xff" * 99):  # what the entry of 17 MiB is followed by says nothing of it
        view = memoryview(log[: large_at + len(large)] + behind)
        assert find_record(view, large_at, large_at + 9) == large_at
        assert find_record(view, large_at, len(view)) == large_at


def test_long_garbage_is_searched_in_bounded_time() -> None:
    noise = random.Random(3).randbytes(1 << 20)
    log = LOG_HEADER + b"\xff" + noise + bytes(1 << 20) + RECORDS
    items = _scan(log)
    assert [item[0] for item in items if isinstance(item, Record)] == [six[0] + (2 << 20) + 1 for six in SIX]


def test_limits_beyond_the_log_are_refused() -> None:
    with pytest.raises(EntryLogCorrupt, match=r"1\.log: wanted 5000 bytes, got 1336"):
        iter_records(SEALED_LOG, "1.log", end=5000)
    with pytest.raises(EntryLogCorrupt):
        iter_records(SEALED_LOG, "1.log", start=-1)


def test_starting_at_a_record() -> None:
    assert _scan(SEALED_LOG, start=1107) == SIX[2:]
    assert _scan(SEALED_LOG, start=1107, end=1196) == SIX[2:4]
