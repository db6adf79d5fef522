"""A log cut anywhere: slices together have each good entry once, as who wrote it knows, whether or not somebody compares their seams."""

import struct
from itertools import pairwise
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from pulsar_admin.store.codec.digest import DIGEST_SIZE, DigestType
from pulsar_admin.store.codec.entry import Entry
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.index.scan import EngineScan, ScanRecords
from pulsar_admin.store.kernels.columns import BAD_DIGEST
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan.files import LedgerDigests, Slice
from pulsar_admin.store.scan.operations import ReadEntries
from tests.codec.bookkeeper_vectors import LOG_HEADER
from tests.deep import deep_but_for
from tests.encoders import encode_entry

Place = tuple[int, int, int]  # offset, ledger, entry
KINDS = [DigestType.CRC32C, DigestType.CRC32]


def _record(ledger_id: int, entry_id: int, payload: bytes, kind: DigestType) -> bytes:
    body = encode_entry(Entry(ledger_id, entry_id, entry_id - 1, 10**9, kind, memoryview(payload)))
    return struct.pack(">i", len(body)) + body


def _payload(random: Random, nested: int) -> bytes:
    """Return random bytes, zeros, heads that claim more than there is, or with ``nested`` some whole entries."""
    if nested and random.random() < 0.4:
        inner = [
            _record(random.randrange(50), random.randrange(99), _payload(random, nested - 1), random.choice(KINDS))
            for _ in range(random.randrange(1, 8))
        ]
        return random.choice([b"", LOG_HEADER, random.randbytes(9)]) + b"".join(inner) + random.choice([b"", b"tail"])
    size = random.choice([0, 5, 60, 200, 1000, 5000, 40_000 if random.random() < 0.1 else 0])
    head = struct.pack(">iqqqq", random.choice([64, 1000, 1 << 20]), random.randrange(9), random.randrange(9), 0, 77)
    return random.choice([random.randbytes(size), bytes(size), (head * (size // 36 + 1))[:size]])


def _log(random: Random, *, nested: int, damages: int) -> tuple[bytes, list[Place]]:
    """Return a log and its entries; those of which a bit was flipped are no longer among them."""
    log, places, kind = bytearray(LOG_HEADER), list[Place](), random.choice(KINDS)
    for entry_id in range(random.choice([1, 3, 20, 60])):
        places.append((len(log), random.randrange(5), entry_id))
        log += _record(*places[-1][1:], _payload(random, nested), kind)
    spoiled = {random.randrange(len(LOG_HEADER), len(log)) for _ in range(damages)}
    for at in spoiled:
        log[at] ^= 1 << random.randrange(8)
    ends = [*(place[0] for place in places[1:]), len(log)]
    return bytes(log), [
        place for place, end in zip(places, ends, strict=True) if not any(place[0] <= at < end for at in spoiled)
    ]


def _pieces(random: Random, path: Path, places: list[Place]) -> list[FileRange]:
    """Cut a file into 2 to 40 slices: anywhere, or close to where entries begin."""
    size = path.stat().st_size
    cuts = {random.randrange(1, size) for _ in range(random.randrange(1, 40))}
    if places and random.random() < 0.3:
        cuts = {min(random.choice(places)[0] + random.randrange(-3, 40), size - 1) for _ in cuts}
    edges = [0, *sorted(cuts), size]
    return [FileRange(str(path), FileKind.ENTRY_LOG, 0, start, end, start > 0) for start, end in pairwise(edges)]


@pytest.mark.parametrize(("nested", "damages"), [(0, 0), (2, 0), (0, 3)])
@deep_but_for((1, 2, 3), "seed", [*range(200)])
def test_slices_have_each_good_entry_once(seed: int, nested: int, damages: int, tmp_path: Path) -> None:
    random = Random(seed)
    data, places = _log(random, nested=nested, damages=damages)
    path = tmp_path / "0.log"
    path.write_bytes(data)
    pieces = _pieces(random, path, places)

    read = ReadEntries(columns=("offset", "ledger_id", "entry_id", "digest_ok"))
    tables = [pa.Table.from_batches(read.run(piece), schema=read.schema) for piece in pieces]
    alone = [
        (row["offset"], row["ledger_id"], row["entry_id"])
        for row in pa.concat_tables(tables).to_pylist()
        if row["digest_ok"]
    ]
    assert alone == places

    operation = ScanRecords(LedgerDigests.of({}), True)
    scan = EngineScan(Slice(str(path), FileKind.ENTRY_LOG, 0, len(data)), 0, operation, pieces)
    joined: list[Place] = []
    for piece in random.sample(pieces, len(pieces)):
        for _, parts in scan.take(piece, pa.Table.from_batches(operation.run(piece), schema=operation.schema)):
            good = [part[part["flags"] & BAD_DIGEST == 0] for part in parts]
            joined += [
                (int(row["offset"]), int(row["ledger_id"]), int(row["entry_id"])) for part in good for row in part
            ]
    assert joined == places


@pytest.mark.parametrize("digest", [DigestType.DUMMY, DigestType.HMAC])
def test_an_entry_between_two_damaged_ones_is_found_by_what_its_ledger_counts_before_the_slice(
    digest: DigestType, tmp_path: Path
) -> None:
    """Ledgers take turns, so that the entry before it lies in the slice before."""
    path, ledgers, known = (
        tmp_path / "0.log",
        range(3, 7),
        LedgerDigests.of(dict.fromkeys(range(3, 7), DIGEST_SIZE[digest])),
    )
    payloads = [b"x" * (100 + 7 * entry_id) for entry_id in range(12)]
    log, places = bytearray(LOG_HEADER), list[Place]()
    for entry_id, payload in enumerate(payloads):
        for ledger_id in ledgers:
            places.append((len(log), ledger_id, entry_id))
            length = sum(map(len, payloads[: entry_id + 1]))
            body = encode_entry(Entry(ledger_id, entry_id, -1, length, digest, memoryview(payload)), b"secret")
            log += struct.pack(">i", len(body)) + body
    for first in range(4, 12):
        hit, data = (places[first], places[first + 2]), bytearray(log)
        for at, _, _ in hit:
            data[at + 2] ^= 0x10
        path.write_bytes(data)
        cut = places[first - 1][0]
        edges = pairwise([0, cut, len(data)])
        pieces = [FileRange(str(path), FileKind.ENTRY_LOG, 0, start, end, start > 0) for start, end in edges]
        operation = ScanRecords(known, True)
        scan = EngineScan(Slice(str(path), FileKind.ENTRY_LOG, 0, len(data)), 0, operation, pieces)
        joined = [
            (int(row["offset"]), int(row["ledger_id"]), int(row["entry_id"]))
            for piece in reversed(pieces)
            for _, parts in scan.take(piece, pa.Table.from_batches(operation.run(piece), schema=operation.schema))
            for part in parts
            for row in part
        ]
        assert joined == [place for place in places if place not in hit], first
