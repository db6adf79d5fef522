"""The compiled scan of entry logs and journals against the reference readers, on recorded files and on damaged copies.

What is asked of damage: every record whose bytes were not touched is found, nothing that fails its digest is believed, and the
damage is counted.
"""

import random
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal

import google_crc32c
import numpy as np
import pytest
from msgspec import Struct

from pulsar_admin.store.codec import journal, logscan, proof
from pulsar_admin.store.codec.digest import DIGEST_SIZE, DigestType
from pulsar_admin.store.codec.entry import Entry, find_digest_type
from pulsar_admin.store.codec.entrylog import EntryLogHeader, encode_header, encode_ledgers_map
from pulsar_admin.store.codec.logscan import Record, iter_records
from pulsar_admin.store.errors import EntryLogCorrupt, SourceChanged
from pulsar_admin.store.kernels.columns import BAD_DIGEST, UNFRAMED, UNVERIFIED
from pulsar_admin.store.scan import files
from pulsar_admin.store.scan.files import FileScan, FileWindow, LedgerDigests, Slice
from tests.deep import deep_but_for
from tests.encoders import encode_entry
from tests.worlds import STATES, WORLD_NAMES, world

Kind = Literal["entry-log", "journal"]
NOTHING_KNOWN = LedgerDigests(np.zeros(0, np.int64), np.zeros(0, np.int16))
RECORDED = [
    (name, state, path.name)
    for name in WORLD_NAMES
    for state in STATES
    for path in sorted((world(name) / state / "bookkeeper/current").iterdir())
    if path.is_file() and path.suffix in (".log", ".txn") and path.stat().st_size
]


@pytest.fixture(params=["kernel", "carefully"])
def read_how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Read as usual, and from the first record on as where reading was in vain too often."""
    if request.param == "carefully":
        monkeypatch.setattr(FileScan, "_reads_in_vain", lambda self, window: True)
    return str(request.param)


class Found(Struct, frozen=True):
    """What a scan found: good records (offset, size, ledger, entry) in order, and the rest of its answer."""

    good: list[tuple[int, int, int, int]]
    bad: list[int]  # offsets of records with a wrong digest
    scan: FileScan


def scan_file(path: Path, kind: Kind, start: int = 0) -> Found:
    scan = FileScan(Slice(str(path), kind, start, path.stat().st_size), NOTHING_KNOWN)
    good, bad = [], []
    for batch in scan.batches():
        for row in batch:
            place = tuple(int(row[name]) for name in ("offset", "size", "ledger_id", "entry_id"))
            (bad if row["flags"] & BAD_DIGEST else good).append(place)
    return Found(good, [place[0] for place in bad], scan)


def reference(data: bytes, kind: Kind) -> list[tuple[int, int, int, int]]:
    """Return the records whose digest is right, as the reference reader finds them in an undamaged file."""
    if kind == "journal":
        entries = [item for item in journal.iter_records(data, "journal") if isinstance(item, journal.JournalEntry)]
        return [(e.offset, e.size, e.ledger_id, e.entry_id) for e in entries if find_digest_type(e.body(data))]
    records = [item for item in iter_records(data, "log") if isinstance(item, Record)]
    return [tuple(record) for record in records if find_digest_type(record.body(data))]


@cache
def reference_of(path: Path, kind: Kind) -> list[tuple[int, int, int, int]]:
    return reference(path.read_bytes(), kind)


@deep_but_for((0, 7, 14, 21, 28), ("name", "state", "file"), RECORDED)
def test_recorded_files(name: str, state: str, file: str) -> None:
    path = world(name) / state / "bookkeeper/current" / file
    kind: Kind = "journal" if file.endswith(".txn") else "entry-log"
    found = scan_file(path, kind)
    assert found.good == reference_of(path, kind)
    assert (found.bad, found.scan.problems, found.scan.torn) == ([], [], False)
    assert found.scan.records == len(found.good) > 0


@pytest.mark.usefixtures("read_how")
@deep_but_for((0,), "window_bytes", [1 << 12, 1 << 16])
def test_any_window(monkeypatch: pytest.MonkeyPatch, window_bytes: int) -> None:
    """Records that do not fit into the window widen it, and batches end anywhere."""
    monkeypatch.setattr(files, "WINDOW_BYTES", window_bytes)
    monkeypatch.setattr(files, "BATCH_RECORDS", 7)
    path = world("small") / "clean/bookkeeper/current/1.log"
    assert scan_file(path, "entry-log").good == reference_of(path, "entry-log")
    (journal_path,) = (world("small") / "clean/bookkeeper/current").glob("*.txn")
    assert scan_file(journal_path, "journal").good == reference_of(journal_path, "journal")


# -- damage -----------------------------------------------------------------------------------------------------------


@cache
def sample(kind: Kind) -> bytes:
    """The beginning of a recorded file, some 80 records, cut behind one; a journal keeps a preallocated tail of zeros."""
    current = world("small") / "clean/bookkeeper/current"
    if kind == "journal":
        (path,) = current.glob("*.txn")
        data = path.read_bytes()
        items = [item for item in journal.iter_records(data, "journal") if isinstance(item, journal.JournalEntry)]
        last = items[140]
        return data[: last.offset + 4 + last.size] + bytes(4096)
    data = (current / "0.log").read_bytes()
    records = [item for item in iter_records(data, "log") if isinstance(item, Record)]
    return data[: records[90].end]


@cache
def sample_records(kind: Kind) -> list[tuple[int, int, int, int]]:
    return reference(sample(kind), kind)


def fields_of(record: tuple[int, int, int, int]) -> Iterator[tuple[int, int]]:
    """Yield (offset, bytes) of size, ledger, entry, LAC, length, digest and payload of a record."""
    offset, size = record[:2]
    for at, length in ((0, 4), (4, 8), (12, 8), (20, 8), (28, 8), (36, 4), (40, size - 36)):
        yield offset + at, length


def check_damaged(path: Path, kind: Kind, data: bytes, touched: tuple[int, int]) -> Found:
    """Scan DATA, in which the bytes TOUCHED[0] to TOUCHED[1] are not what they were."""
    path.write_bytes(data)
    found = scan_file(path, kind)
    untouched = [r for r in sample_records(kind) if r[0] + 4 + r[1] <= touched[0] or r[0] >= touched[1]]
    lost = sorted(set(untouched) - set(found.good))
    assert not lost, f"lost {lost[:3]} by damage {touched}"
    if kind == "entry-log":
        assert found.good == reference(data, kind)
    for offset, size, ledger_id, entry_id in found.good:
        body = data[offset + 4 : offset + 4 + size]
        assert find_digest_type(body) is not None
        assert (ledger_id, entry_id) == (int.from_bytes(body[:8], "big"), int.from_bytes(body[8:16], "big"))
    return found


@pytest.mark.parametrize("kind", ["entry-log", "journal"])
def test_one_bit_flipped_in_every_field(kind: Kind, tmp_path: Path) -> None:
    data, random_ = sample(kind), random.Random(1)
    for record in [sample_records(kind)[index] for index in (0, 1, 40, -2, -1)]:
        for start, length in fields_of(record):
            for _ in range(3 if length else 0):
                at, bit = start + random_.randrange(length), random_.randrange(8)
                damaged = bytearray(data)
                damaged[at] ^= 1 << bit
                found = check_damaged(tmp_path / "f", kind, bytes(damaged), (record[0], record[0] + 4 + record[1]))
                assert record not in found.good
                assert found.scan.problems, f"bit {bit} at {at} was not noticed"


@pytest.mark.parametrize("kind", ["entry-log", "journal"])
def test_a_bit_flipped_anywhere(kind: Kind, tmp_path: Path) -> None:
    data, random_ = sample(kind), random.Random(2)
    holders = {at: record for record in sample_records(kind) for at in range(record[0], record[0] + 4 + record[1])}
    for _ in range(100):
        at, bit = random_.randrange(len(data)), random_.randrange(8)
        damaged = bytearray(data)
        damaged[at] ^= 1 << bit
        record = holders.get(at)
        touched = (at, at + 1) if record is None else (record[0], record[0] + 4 + record[1])
        check_damaged(tmp_path / "f", kind, bytes(damaged), touched)


@pytest.mark.usefixtures("read_how")
@pytest.mark.parametrize("size", [2**31 - 1, -1, 0, 31, 35, 36, (256 << 20) + 1])
@pytest.mark.parametrize("kind", ["entry-log", "journal"])
def test_any_size_field(kind: Kind, size: int, tmp_path: Path) -> None:
    data = sample(kind)
    for record in [sample_records(kind)[index] for index in (0, 33, -1)]:
        if size == record[1]:
            continue
        damaged = data[: record[0]] + size.to_bytes(4, "big", signed=True) + data[record[0] + 4 :]
        found = check_damaged(tmp_path / "f", kind, damaged, (record[0], record[0] + 4 + record[1]))
        assert found.scan.problems


@pytest.mark.usefixtures("read_how")
@pytest.mark.parametrize("kind", ["entry-log", "journal"])
@deep_but_for((0, 3), "filler", [0x00, 0xFF, 0xF0, None])
def test_a_lost_page(kind: Kind, filler: int | None, tmp_path: Path) -> None:
    """4 KiB of zeros, ones, padding or rubbish anywhere."""
    data, random_ = sample(kind), random.Random(3)
    for start in range(4096, len(data) - 8192, max(4096, (len(data) // 12) // 4096 * 4096)):
        page = random_.randbytes(4096) if filler is None else bytes([filler]) * 4096
        damaged = data[:start] + page + data[start + 4096 :]
        hit = [r for r in sample_records(kind) if r[0] < start + 4096 and r[0] + 4 + r[1] > start]
        found = check_damaged(
            tmp_path / "f", kind, damaged, (hit[0][0], hit[-1][0] + 4 + hit[-1][1]) if hit else (start, start + 4096)
        )
        assert found.scan.problems or not hit


@pytest.mark.usefixtures("read_how")
@pytest.mark.parametrize("kind", ["entry-log", "journal"])
def test_cut_at_every_field_boundary(kind: Kind, tmp_path: Path) -> None:
    data = sample(kind)
    header = 1024 if kind == "entry-log" else 512
    cuts = {0, 1, 4, 8, 20, header - 1, header, header + 1}
    for record in [sample_records(kind)[index] for index in (0, 1, 50, -1)]:
        for start, length in fields_of(record):
            cuts |= {start - 1, start, start + 1, start + length // 2, start + length - 1, start + length}
    for cut in sorted(cuts):
        path = tmp_path / "f"
        path.write_bytes(data[:cut])
        found = scan_file(path, kind)
        whole = [record for record in sample_records(kind) if record[0] + 4 + record[1] <= cut]
        assert found.good == whole, f"cut at {cut}"
        inside = next((r for r in sample_records(kind) if r[0] < cut < r[0] + 4 + r[1]), None)
        if inside is not None and any(data[inside[0] : cut]):  # zeros alone are not a sign of a record
            assert found.scan.torn, f"cut at {cut}"
        if whole and cut == whole[-1][0] + 4 + whole[-1][1]:
            assert (found.scan.torn, found.scan.problems) == (False, [])
        assert found.scan.resume_offset <= cut


@pytest.mark.usefixtures("read_how")
@pytest.mark.parametrize("kind", ["entry-log", "journal"])
def test_a_scan_goes_on_where_the_file_was_cut(kind: Kind, tmp_path: Path) -> None:
    """A file read while it grew: what the first scan could not read whole, the second does, and nothing is counted twice."""
    data, path = sample(kind), tmp_path / "f"
    records = sample_records(kind)
    for cut in (*range(0, 3000, 97), *(record[0] + into for record in records[::7] for into in (3, 41))):
        path.write_bytes(data[:cut])
        first = scan_file(path, kind)
        path.write_bytes(data)
        second = scan_file(path, kind, first.scan.resume_offset)
        kept = [record for record in first.good if record[0] < first.scan.resume_offset]
        assert sorted({*kept, *second.good}) == records
        counted = first.scan.records - first.scan.tail_records + second.scan.records
        assert counted == len(records), f"cut at {cut}"
        assert len(first.scan.problems) - first.scan.tail_problems + len(second.scan.problems) == 0


@pytest.mark.usefixtures("read_how")
def test_scan_resumes_before_a_bad_tail(tmp_path: Path) -> None:
    """Records at the end whose bytes were not all on disk yet have bad digests; later they are good."""
    data = sample("entry-log")
    records = sample_records("entry-log")
    early = bytearray(data)
    for record in records[-3:]:
        early[record[0] + 45] ^= 0xFF
    path = tmp_path / "f"
    path.write_bytes(early)
    first = scan_file(path, "entry-log")
    assert first.scan.resume_offset == records[-3][0]
    assert (first.scan.tail_records, first.scan.tail_problems) == (3, 3)
    path.write_bytes(data)
    assert scan_file(path, "entry-log", first.scan.resume_offset).good == records[-3:]


# -- what a file may hold ---------------------------------------------------------------------------------------------


def entry_record(
    ledger_id: int,
    entry_id: int,
    kind: DigestType = DigestType.CRC32C,
    payload: bytes = b"hello",
    length: int = 9,
    password: bytes = b"",
) -> bytes:
    body = encode_entry(Entry(ledger_id, entry_id, entry_id - 1, length, kind, memoryview(payload)), password)
    return len(body).to_bytes(4, "big") + body


def write_log(path: Path, *parts: bytes) -> Path:
    path.write_bytes(encode_header(EntryLogHeader(1, 0, 0)) + b"".join(parts))
    return path


@pytest.mark.usefixtures("read_how")
@pytest.mark.parametrize("kind", [DigestType.CRC32C, DigestType.CRC32, DigestType.HMAC])
def test_digest_types_are_found_by_trying(kind: DigestType, tmp_path: Path) -> None:
    path = write_log(
        tmp_path / "0.log", *(entry_record(3, entry_id, kind) for entry_id in range(5)), b"\x01\x02garbage"
    )
    found = scan_file(path, "entry-log")
    assert [place[3] for place in found.good] == [0, 1, 2, 3, 4]
    assert len(found.scan.problems) == 1


def test_dummy_digest_needs_metadata(tmp_path: Path) -> None:
    path = write_log(tmp_path / "0.log", entry_record(3, 0, DigestType.DUMMY))
    assert scan_file(path, "entry-log").good == []
    scan = FileScan(
        Slice(str(path), "entry-log", 0, path.stat().st_size), LedgerDigests(np.array([3]), np.array([0], np.int16))
    )
    (batch,) = [batch.copy() for batch in scan.batches()]
    assert batch["flags"].tolist() == [UNVERIFIED | UNFRAMED]


@pytest.mark.usefixtures("read_how")
@pytest.mark.parametrize("digest", [DigestType.DUMMY, DigestType.HMAC])
@pytest.mark.parametrize("kind", ["entry-log", "journal"])
def test_a_wrong_size_hides_no_entry_whose_digest_cannot_be_checked(
    kind: Kind, digest: DigestType, tmp_path: Path
) -> None:
    """Sizes as they come, and all equal, as then many a wrong one leads to where another record begins."""
    path = tmp_path / ("0.log" if kind == "entry-log" else "0.txn")
    for step in (7, 0):
        payloads = [b"x" * (124 - DIGEST_SIZE[digest] - 32 + step * entry_id) for entry_id in range(20)]
        records = [
            entry_record(3, entry_id, digest, payload, sum(map(len, payloads[: entry_id + 1])), b"secret")
            for entry_id, payload in enumerate(payloads)
        ]
        if kind == "entry-log":
            data = write_log(path, *records).read_bytes()
        else:
            data = journal.encode_header(6) + b"".join(records) + bytes(600)
        at = data.index(records[4])
        for bit in range(32):
            size = int.from_bytes(data[at : at + 4], "big") ^ 1 << bit
            path.write_bytes(data[:at] + size.to_bytes(4, "big") + data[at + 4 :])
            ledgers = LedgerDigests.of({3: DIGEST_SIZE[digest]})
            scan = FileScan(Slice(str(path), kind, 0, len(data)), ledgers)
            found = [int(row["entry_id"]) for batch in scan.batches() for row in batch]
            assert [entry_id for entry_id in found if entry_id != 4] == [*range(4), *range(5, 20)], (step, bit)
            (problem,) = scan.problems  # behind an entry that is told too short, or all of it
            assert (problem.offset > at) is (4 in found)
            assert problem.offset + problem.length_bytes == at + len(records[4])


@pytest.mark.usefixtures("read_how")
@pytest.mark.parametrize("digest", [DigestType.DUMMY, DigestType.HMAC])
@pytest.mark.parametrize("kind", ["entry-log", "journal"])
def test_between_two_wrong_sizes_an_entry_is_found_by_what_its_ledger_counts(
    kind: Kind, digest: DigestType, tmp_path: Path
) -> None:
    """Also the first of its ledger, and the last one, whose end is zeros before those of a journal."""
    path = tmp_path / ("0.log" if kind == "entry-log" else "0.txn")
    payloads = [b"x" * (100 + 7 * entry_id) + b"\0" for entry_id in range(10)]
    records = [
        entry_record(ledger_id, entry_id, digest, payload, sum(map(len, payloads[: entry_id + 1])), b"secret")
        for entry_id, payload in enumerate(payloads)
        for ledger_id in (3, 4)
    ]
    if kind == "entry-log":
        data = write_log(path, *records).read_bytes()
    else:
        data = journal.encode_header(6) + b"".join(records) + bytes(600)
    ledgers = LedgerDigests.of({3: DIGEST_SIZE[digest], 4: DIGEST_SIZE[digest]})
    for first in (0, 1, 7):
        for bit in range(32):
            hit, damaged = (first, first + 2, 18), bytearray(data)
            for at in (data.index(records[number]) for number in hit):
                damaged[at : at + 4] = (int.from_bytes(data[at : at + 4], "big") ^ 1 << bit).to_bytes(4, "big")
            path.write_bytes(damaged)
            scan = FileScan(Slice(str(path), kind, 0, len(data)), ledgers)
            found = {(int(row["ledger_id"]), int(row["entry_id"])) for batch in scan.batches() for row in batch}
            assert {(3 + number % 2, number // 2) for number in range(20) if number not in hit} <= found, (first, bit)


@pytest.mark.parametrize("digest", [DigestType.DUMMY, DigestType.HMAC])
@pytest.mark.parametrize("kind", ["entry-log", "journal"])
def test_a_wrong_size_hides_no_entry_where_a_batch_ends(
    kind: Kind, digest: DigestType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the size is wrong by less than a digest has, and where a window of the file ends."""
    path = tmp_path / ("0.log" if kind == "entry-log" else "0.txn")
    payloads = [b"x" * 100] * 20
    records = [entry_record(3, n, digest, payload, 100 * (n + 1), b"secret") for n, payload in enumerate(payloads)]
    data = write_log(path, *records).read_bytes()
    if kind == "journal":
        data = journal.encode_header(6) + b"".join(records) + bytes(600)
    at = data.index(records[4])
    for records_of_batch, window_bytes in ((5, 1 << 16), (100, at + len(records[4]) + 50)):
        monkeypatch.setattr(files, "BATCH_RECORDS", records_of_batch)
        monkeypatch.setattr(files, "WINDOW_BYTES", window_bytes)
        for more in (1, 2, 16, 100):
            size = len(records[4]) - 4 + more
            path.write_bytes(data[:at] + size.to_bytes(4, "big") + data[at + 4 :])
            scan = FileScan(Slice(str(path), kind, 0, len(data)), LedgerDigests.of({3: DIGEST_SIZE[digest]}))
            found = [int(row["entry_id"]) for batch in scan.batches() for row in batch]
            assert found == [*range(4), *range(5, 20)], (records_of_batch, more)


@pytest.mark.usefixtures("read_how")
def test_a_wrong_size_that_reaches_into_the_zeros_of_a_journal_hides_no_entry(tmp_path: Path) -> None:
    payloads = [b"x" * 100 + b"\0"] * 4
    records = [entry_record(3, n, DigestType.DUMMY, payload, 101 * (n + 1)) for n, payload in enumerate(payloads)]
    padding = struct.pack(">ii", journal.PADDING_MARK, 40) + bytes(40)
    data = journal.encode_header(6) + b"".join([*records[:3], padding, records[3]]) + bytes(600)
    at = data.index(records[2])
    size = len(data) - 600 - at - 4 + 200
    path = tmp_path / "0.txn"
    path.write_bytes(data[:at] + size.to_bytes(4, "big") + data[at + 4 :])
    scan = FileScan(Slice(str(path), "journal", 0, len(data)), LedgerDigests.of({3: 0}))
    assert [int(row["entry_id"]) for batch in scan.batches() for row in batch] == [0, 1, 3]
    assert [problem.offset for problem in scan.problems] == [at]


@pytest.mark.usefixtures("read_how")
@pytest.mark.parametrize("kind", ["entry-log", "journal"])
def test_no_head_in_a_payload_is_an_entry_where_the_ledger_counts_the_payload(kind: Kind, tmp_path: Path) -> None:
    """Behind an entry whose payload holds a head that another one follows lies damage."""
    inside = entry_record(3, 40, DigestType.DUMMY, b"y" * 20, 20)
    payloads = [b"x" * 50, b"x" * 30 + inside, b"x" * 50, b"x" * 50]
    lengths = [sum(map(len, payloads[: number + 1])) for number in range(4)]
    records = [entry_record(3, n, DigestType.DUMMY, payloads[n], lengths[n]) for n in range(4)]
    path = tmp_path / ("0.log" if kind == "entry-log" else "0.txn")
    fence = struct.pack(">iqq", 16, 3, journal.FENCE_ENTRY_ID)
    if kind == "entry-log":
        data = write_log(path, *records[:2], b"\xf0" * 30, *records[2:]).read_bytes()
    else:
        data = journal.encode_header(6) + b"".join([*records[:2], fence, *records[2:]]) + bytes(600)
    at = data.index(records[2])
    path.write_bytes(data[:at] + bytes([0x7F]) + data[at + 1 :])
    scan = FileScan(Slice(str(path), kind, 0, len(data)), LedgerDigests.of({3: 0}))
    assert [int(row["entry_id"]) for batch in scan.batches() for row in batch] == [0, 1, 3]


@pytest.mark.usefixtures("read_how")
@pytest.mark.parametrize("kind", ["entry-log", "journal"])
def test_payloads_that_look_like_heads_hide_no_entry_that_hmac_proves(kind: Kind, tmp_path: Path) -> None:
    """Of a ledger whose digest nothing tells: heads that claim much are not digested until nothing can be proved any more."""
    random_, path = random.Random(2), tmp_path / ("0.log" if kind == "entry-log" else "0.txn")
    head = struct.Struct(">iqqqq4s")
    records, length = [], 0
    for entry_id in range(60):
        sizes = random_.choices((60_000, *range(40, 3000)), k=70)
        payload = b"".join(head.pack(size, 5, size, size, random_.randrange(9999), b"1234") for size in sizes)
        length += len(payload)
        records.append(entry_record(7, entry_id, DigestType.HMAC, payload, length))
    data = bytearray(write_log(path).read_bytes() if kind == "entry-log" else journal.encode_header(6))
    places = [len(data) + sum(map(len, records[:number])) for number in range(len(records))]
    data += b"".join(records) + bytes(600)
    for number in (5, 20, 21, 40):
        data[places[number] + 2] ^= 1 << random_.randrange(8)
    path.write_bytes(data)
    scan = FileScan(Slice(str(path), kind, 0, len(data)), NOTHING_KNOWN)
    found = [int(row["offset"]) for batch in scan.batches() for row in batch if not row["flags"] & BAD_DIGEST]
    assert {*places} - {places[number] for number in (5, 20, 21, 40)} <= {*found}


@pytest.mark.usefixtures("read_how")
def test_an_entry_id_no_ledger_reaches_is_damage(tmp_path: Path) -> None:
    """Without checksums a flipped bit may make an id whose index row would fill the memory."""
    path = write_log(tmp_path / "0.log", entry_record(3, 0), entry_record(3, 2**40), entry_record(3, 1))
    scan = FileScan(Slice(str(path), "entry-log", 0, path.stat().st_size), NOTHING_KNOWN, verify=False)
    found = [int(row["entry_id"]) for batch in scan.batches() for row in batch]
    assert found == [0, 1]
    assert [problem.entry_id for problem in scan.problems] == [2**40]


def test_ledgers_map_and_padding_are_no_records(tmp_path: Path) -> None:
    filler = (100).to_bytes(4, "big") + b"\xff" * 8 + bytes(8) + bytes(84)
    parts = (
        filler,
        entry_record(1, 0),
        b"\xf0" * 300,
        entry_record(2, 0),
        encode_ledgers_map({1: 50, 2: 50}),
        bytes(700),
    )
    found = scan_file(write_log(tmp_path / "0.log", *parts), "entry-log")
    assert [place[2] for place in found.good] == [1, 2]
    assert found.scan.problems == []


@pytest.mark.usefixtures("read_how")
@pytest.mark.parametrize("shift", [16, 17, 45, 90, -16, 2**20])
def test_a_ledgers_map_of_a_wrong_size_hides_no_record(shift: int, tmp_path: Path) -> None:
    """One that leads to another record's beginning, too."""
    ledgers_map = encode_ledgers_map({1: 50, 2: 50})
    wrong = (len(ledgers_map) - 4 + shift).to_bytes(4, "big") + ledgers_map[4:]
    after = [entry_record(3, entry_id) for entry_id in range(4)]
    assert len(after[0]) == 45
    found = scan_file(write_log(tmp_path / "0.log", entry_record(1, 0), wrong, *after), "entry-log")
    assert [place[2:] for place in found.good] == [(1, 0), *((3, entry_id) for entry_id in range(4))]
    assert [(one.offset, one.reason) for one in found.scan.problems] == [
        (logscan.HEADER_BYTES + 45, "unreadable bytes")
    ]


@pytest.mark.usefixtures("read_how")
def test_filler_of_a_wrong_size_hides_no_record(tmp_path: Path) -> None:
    entries = [entry_record(3, entry_id) for entry_id in range(4)]
    filler = (96 + len(entries[0])).to_bytes(4, "big") + b"\xff" * 8 + bytes(88)
    found = scan_file(write_log(tmp_path / "0.log", filler, *entries), "entry-log")
    assert [place[3] for place in found.good] == [0, 1, 2, 3]
    assert len(found.scan.problems) == 1


@cache
def journal_spans() -> list[tuple[int, tuple[int, int] | None]]:
    """Return (offset, ids of an entry) of each record and padding of the sample of a journal."""
    items = [item for item in journal.iter_records(sample("journal"), "") if not isinstance(item, journal.Leftover)]
    return [
        (item.offset, (item.ledger_id, item.entry_id) if isinstance(item, journal.JournalEntry) else None)
        for item in items
    ]


@pytest.mark.usefixtures("read_how")
@pytest.mark.parametrize("highest_byte", [0, 3], ids=["any", "short"])
def test_wrong_lengths_in_a_journal_hide_no_entries(highest_byte: int, tmp_path: Path) -> None:
    """Lengths of entries, master keys, fences and paddings: by chance many a one then leads to where another record begins."""
    spans, path = journal_spans(), tmp_path / "0.txn"
    kinds = {sample("journal")[offset] == 0xFF for offset, _ in spans}
    assert kinds == {False, True}
    for seed in range(30):
        rng, data, hit = random.Random(seed), bytearray(sample("journal")), set()
        for _ in range(40):
            offset, ids = rng.choice(spans)
            is_padding = sample("journal")[offset] == 0xFF
            place = rng.randrange(highest_byte, 4) + (4 if is_padding and rng.randrange(2) else 0)
            data[offset + place] ^= 1 << rng.randrange(8)
            hit.add(ids)
        path.write_bytes(data)
        found = scan_file(path, "journal")
        places = [place[0] for place in found.good]
        assert places == sorted(set(places))
        assert {ids for _, ids in spans if ids} - hit <= {place[2:] for place in found.good}
        assert found.scan.problems


@pytest.mark.usefixtures("read_how")
@pytest.mark.parametrize("head", [b"BKLO\x00\x00\x00\x07", b"XXXX\x00\x00\x00\x01", bytes(8)])
def test_a_damaged_header_is_counted_and_the_records_are_read(head: bytes, tmp_path: Path) -> None:
    path = write_log(tmp_path / "0.log", entry_record(1, 0))
    path.write_bytes(head + path.read_bytes()[8:])
    found = scan_file(path, "entry-log")
    assert [place[2] for place in found.good] == [1]
    assert len(found.scan.problems) == 1


@pytest.mark.usefixtures("read_how")
@pytest.mark.parametrize("version", [0, 7, 99, 2**31 - 1])
def test_a_damaged_journal_header_is_counted_and_the_records_are_read(version: int, tmp_path: Path) -> None:
    path = tmp_path / "0.txn"
    path.write_bytes(b"BKLG" + version.to_bytes(4, "big") + bytes(504) + entry_record(1, 0) + bytes(1024))
    found = scan_file(path, "journal")
    assert [place[2] for place in found.good] == [1]
    assert found.scan.problems


def _meta(ledger_id: int, entry_id: int, value: bytes) -> bytes:
    body = ledger_id.to_bytes(8, "big") + entry_id.to_bytes(8, "big", signed=True) + value
    return len(body).to_bytes(4, "big") + body


def _pad(length: int) -> bytes:
    return (-0x100).to_bytes(4, "big", signed=True) + length.to_bytes(4, "big") + bytes(length)


JOURNAL_ITEMS: dict[str, Callable[[], bytes]] = {
    "entry": lambda: entry_record(1, 0),
    "master key": lambda: _meta(1, -0x1000, (20).to_bytes(4, "big") + bytes(20)),
    "fence": lambda: _meta(1, -0x2000, b""),
    "explicit LAC": lambda: _meta(1, -0x8000, (4).to_bytes(4, "big") + bytes(4)),
    "padding": lambda: _pad(77),
    "empty padding": lambda: _pad(0),
}


@pytest.mark.usefixtures("read_how")
@pytest.mark.parametrize("version", [5, 6])
def test_journal_items_that_are_no_entries(version: int, tmp_path: Path) -> None:
    random_, path = random.Random(4), tmp_path / "0.txn"
    for _ in range(20):
        names = random_.choices(list(JOURNAL_ITEMS), k=12)
        data = journal.encode_header(version) + b"".join(JOURNAL_ITEMS[name]() for name in names) + bytes(600)
        path.write_bytes(data)
        found = scan_file(path, "journal")
        assert found.good == reference(data, "journal")
        assert len(found.good) == names.count("entry")
        assert found.scan.problems == []


@pytest.mark.usefixtures("read_how")
def test_padding_whose_length_is_wrong_swallows_nothing(tmp_path: Path) -> None:
    path = tmp_path / "0.txn"
    wrong = (-0x100).to_bytes(4, "big", signed=True) + (160).to_bytes(4, "big") + bytes(77)
    more = b"".join(entry_record(2, i) for i in range(5))
    path.write_bytes(journal.encode_header(6) + entry_record(1, 0) + wrong + more + bytes(600))
    found = scan_file(path, "journal")
    assert [place[2:] for place in found.good] == [(1, 0), *((2, i) for i in range(5))]
    assert len(found.scan.problems) == 1


@pytest.mark.usefixtures("read_how")
def test_an_entry_turned_into_a_meta_record_is_counted(tmp_path: Path) -> None:
    """The sign bit of an entry id makes a record that BookKeeper passes over in silence."""
    damaged = bytearray(entry_record(1, 3))
    damaged[12] |= 0x80
    path = tmp_path / "0.txn"
    path.write_bytes(journal.encode_header(6) + entry_record(1, 2) + bytes(damaged) + entry_record(1, 4) + bytes(600))
    found = scan_file(path, "journal")
    assert [place[3] for place in found.good] == [2, 4]
    assert len(found.scan.problems) == 1


def test_a_vanished_and_a_shrinking_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, error, said in (("no", SourceChanged, "is gone"), (".", EntryLogCorrupt, "cannot be read")):
        with pytest.raises(error, match=said):
            list(FileScan(Slice(str(tmp_path / name), "entry-log", 0, 9), NOTHING_KNOWN).batches())
    path = write_log(tmp_path / "0.log", *(entry_record(1, i, payload=bytes(3000)) for i in range(20)))
    monkeypatch.setattr(files, "WINDOW_BYTES", 8192)
    monkeypatch.setattr(files, "BATCH_RECORDS", 2)
    batches: Any = FileScan(Slice(str(path), "entry-log", 0, path.stat().st_size), NOTHING_KNOWN).batches()
    next(batches)
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(SourceChanged, match="became shorter while it was read"):
        list(batches)


# -- how much is read -------------------------------------------------------------------------------------------------


def heads(length: int, good: bool) -> tuple[bytes, int]:
    """Heads of records, each of which claims nearly all that is left of LENGTH bytes, and how many good ones lie between."""
    parts, at = [], 0
    while length - at > 200:
        claimed = length - at - 64
        head = struct.pack(">iqqqq", claimed, 5, len(parts), len(parts) - 1, 9) + b"\x01\x02\x03\x04"
        parts.append(head + (entry_record(5, len(parts)) if good else b""))
        at += len(parts[-1])
    return b"".join(parts).ljust(length, b"\x01"), len(parts) if good else 0


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes were digested or read into memory, each time."""
    found: list[int] = []
    extend, crc32, fill, run = google_crc32c.extend, zlib.crc32, FileWindow._fill, FileScan._run_kernel

    def counting_fill(window: FileWindow, offset: int) -> None:
        fill(window, offset)
        found.append(len(window.data))

    def counting_run(scan: FileScan, window: FileWindow, rows: Any) -> tuple[int, int, int]:
        start = scan.next_offset - window.base
        result = run(scan, window, rows)
        found.append(result[1] - start)
        return result

    monkeypatch.setattr(google_crc32c, "extend", lambda crc, data: (found.append(len(data)), extend(crc, data))[1])
    monkeypatch.setattr(zlib, "crc32", lambda data, crc=0: (found.append(len(data)), crc32(data, crc))[1])
    monkeypatch.setattr(FileWindow, "_fill", counting_fill)
    monkeypatch.setattr(FileScan, "_run_kernel", counting_run)
    return found


@pytest.mark.parametrize("kind", ["entry-log", "journal"])
@deep_but_for((0,), "good", [False, True])
def test_many_plausible_heads_are_read_in_linear_time(
    kind: Kind, good: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_bytes: list[int]
) -> None:
    """Each of n heads that claim the rest of the file would be n times its bytes; here 150 KB would be more than 200 MB."""
    monkeypatch.setattr(files, "WINDOW_BYTES", 1 << 14)
    monkeypatch.setattr(files, "STOP_BYTES", 1)
    start = encode_header(EntryLogHeader(1, 0, 0)) if kind == "entry-log" else journal.encode_header(6)
    damaged, good_records = heads(150_000, good)
    data = start + damaged
    path = tmp_path / "f"
    path.write_bytes(data)
    found = scan_file(path, kind)
    # 40 bytes of a head cost two ends of a stretch that are digested byte by byte.
    assert sum(read_bytes) < len(data) // 40 * 4 * proof.STEP_BYTES * 3
    assert found.scan.vain_bytes <= files.VAIN_TIMES * len(data) + 4 * (1 << 14) + len(data)
    if kind == "journal":
        assert len(found.good) == good_records


@pytest.mark.parametrize("kind", list(DigestType))
def test_proofs_are_the_digests_of_stretches_that_overlap(kind: DigestType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "HMAC_TIMES", 1000)
    random_ = random.Random(5)
    sizes = [0, 1, 31, 4000, 4096, 5000, 70_000, 200_001]
    entries = [
        encode_entry(Entry(5, i, i - 1, 1 << 20, kind, memoryview(random_.randbytes(size))))
        for i, size in enumerate(sizes)
    ]
    data = memoryview(b"".join(entries))
    spans = [(sum(map(len, entries[:i])), sum(map(len, entries[: i + 1]))) for i in range(len(entries))]
    some = [(start, random_.randrange(start, len(data))) for start, _ in spans for _ in range(4)]
    proofs = proof.Proofs(data)
    for start, end in random_.sample(spans + some, len(spans + some)):
        assert proofs.digest_type(start, end) == find_digest_type(data[start:end])


def test_hmac_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    data = memoryview(entry_record(5, 0, DigestType.HMAC, bytes(3000), 3000)[4:])
    proofs = proof.Proofs(data)
    for in_turn in (False, True):
        found = [proofs.digest_type(0, len(data), in_turn=in_turn) for _ in range(proof.HMAC_TIMES + 1)]
        assert found == [DigestType.HMAC] * proof.HMAC_TIMES + [None]


@pytest.mark.parametrize("kind", ["entry-log", "journal"])
def test_a_file_cut_while_the_next_good_record_is_looked_for(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has a file mapped dies of SIGBUS when another process cuts it."""
    damaged = bytearray(sample(kind)[:12_000].ljust(4 * files.PAGE_BYTES, b"\x01"))
    path = tmp_path / "f"
    path.write_bytes(damaged)
    name = "_step_over_in_log" if kind == "entry-log" else "_step_over_in_journal"
    step_over: Any = getattr(FileScan, name)

    def cut_and_step_over(scan: FileScan, whole: files.WholeFile) -> None:
        with path.open("r+b") as file:
            file.truncate(files.PAGE_BYTES)
        step_over(scan, whole)

    monkeypatch.setattr(FileScan, name, cut_and_step_over)
    with pytest.raises(SourceChanged, match="became shorter while it was read"):
        scan_file(path, kind)


@pytest.mark.parametrize("page_bytes", [1, 7, 4096])
def test_the_bytes_of_a_file_are_read_where_they_are_asked_for(
    page_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PAGE_BYTES", page_bytes)
    read_bytes: list[int] = []
    read_into = files.read_into
    monkeypatch.setattr(
        files, "read_into", lambda view, *place: (read_bytes.append(len(view)), read_into(view, *place))
    )
    random_ = random.Random(7)
    content = random_.randbytes(10_000)
    path = tmp_path / "f"
    path.write_bytes(content)
    with path.open("rb", buffering=0) as file:
        data = files.FileBytes(file, len(content))
        assert len(data) == len(content)
        for _ in range(50):
            start = random_.randrange(len(content))
            end = random_.choice([start, start + 1, start + 50, start + 5000, None])
            assert bytes(data[start:end]) == content[start:end]
            assert data[start] == content[start]
        assert sum(read_bytes) <= len(content), "no page is read twice"
        assert bytes(data[:]) == content
    assert sum(read_bytes) == len(content)


def test_heads_across_the_chunks_of_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    records = sample_records("entry-log")[:30]
    data = memoryview(sample("entry-log"))[: records[-1][0] + 4 + records[-1][1]]
    expected = list(logscan.iter_candidates(data, 5, len(data), proof.Proofs(data)))
    assert {record[0] for record in records} <= set(expected)
    for first, chunk_bytes in ((1, 1), (7, 1000)):
        monkeypatch.setattr(logscan, "_FIRST_CHUNK_BYTES", first)
        monkeypatch.setattr(logscan, "_CHUNK_BYTES", chunk_bytes)
        assert list(logscan.iter_candidates(data, 5, len(data), proof.Proofs(data))) == expected
