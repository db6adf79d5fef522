"""Groups of ids to and from portable Roaring bytes, against the Java library's bytes and pyroaring."""

import itertools
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyroaring import BitMap64

from pulsar_admin.store.errors import Corrupt, StoreError, Unsupported
from pulsar_admin.store.nacks.bitmaps import decode_bitmap, decode_groups, encode_groups
from pulsar_admin.store.nacks.tracker import NegativeAcksTracker
from pulsar_admin.store.names import Position

GOLDEN = Path(__file__).parent / "golden" / "roaring64.tsv"


def golden() -> list[tuple[str, list[int], bytes]]:
    cases = []
    for line in GOLDEN.read_text().splitlines():
        name, ranges, raw = line.split("\t")
        ids: list[int] = []
        for part in ranges.split(","):
            bounds, step = part.split("/")
            start, end = bounds.split("-")
            ids += range(int(start), int(end) + 1, int(step))
        cases.append((name, ids, bytes.fromhex(raw)))
    return cases


def encode(groups: list[list[int]]) -> list[bytes]:
    starts = np.cumsum([0, *map(len, groups)])
    lengths, bitmaps = encode_groups(starts, np.array([i for ids in groups for i in ids], dtype=np.int64))
    ends = np.cumsum(lengths)
    return [bitmaps[end - size : end].tobytes() for end, size in zip(ends, lengths, strict=True)]


def decode(bitmaps: list[bytes]) -> list[list[int]]:
    lengths = np.array([len(raw) for raw in bitmaps], dtype=np.uint32)
    starts, ids = decode_groups(lengths, np.frombuffer(b"".join(bitmaps), dtype=np.uint8))
    return [ids[begin:end].tolist() for begin, end in itertools.pairwise(starts)]


@pytest.mark.parametrize(("ids", "raw"), [case[1:] for case in golden()], ids=[case[0] for case in golden()])
def test_reads_what_java_wrote(ids: list[int], raw: bytes) -> None:
    assert decode([raw]) == [ids]
    assert list(decode_bitmap(raw)) == ids


def test_reads_all_forms_side_by_side() -> None:
    assert decode([raw for _, _, raw in golden()]) == [ids for _, ids, _ in golden()]


@pytest.mark.parametrize("name", ["one run", "every tenth missing", "array", "bitset", "full container"])
def test_writes_the_bytes_java_writes(name: str) -> None:
    _, ids, raw = next(case for case in golden() if case[0] == name)
    assert encode([ids]) == [raw]


def test_one_id_takes_the_run_form_which_is_smaller() -> None:
    assert encode([[5]])[0].hex() == "0100000000000000000000003b300000010000000001000500" + "0000"


def random_groups(rng: random.Random) -> list[list[int]]:
    groups = []
    for _ in range(rng.randint(0, 20)):
        base = rng.choice([0, 65_530, 2**32 - 5, 2**62, 2**63 - 70_000, rng.randrange(2**40)])
        size = rng.choice([1, 2, 3, 4, 5, 10, 100, 5000 if rng.random() < 0.1 else 7])
        groups.append(sorted(base + i for i in rng.sample(range(size * rng.choice([1, 2, 10])), size)))
    return groups


def test_random_groups_read_back_here_and_in_pyroaring_and_are_no_larger_than_its_own() -> None:
    rng = random.Random(393)
    for _ in range(150):
        groups = random_groups(rng)
        encoded = encode(groups)
        assert decode(encoded) == groups
        for ids, raw in zip(groups, encoded, strict=True):
            theirs = BitMap64(ids)
            assert BitMap64.deserialize(raw) == theirs
            theirs.run_optimize()
            assert len(raw) <= len(theirs.serialize())


def test_no_groups() -> None:
    assert encode([]) == []
    assert decode([]) == []


def test_every_damaged_byte_is_refused_or_still_a_bitmap() -> None:
    refused = 0
    for _, _, raw in golden():
        for offset in range(min(len(raw), 60)):
            damaged = bytearray(raw)
            damaged[offset] ^= 0x81
            try:
                decoded = decode([bytes(damaged)])[0]
            except Corrupt:
                refused += 1
            else:
                assert decoded == list(BitMap64.deserialize(bytes(damaged)))
    assert refused > 100


@pytest.mark.parametrize("keep", [0, 1, 8, 12, 16, 19, 22, 26])
def test_a_cut_bitmap_is_refused(keep: int) -> None:
    with pytest.raises(Corrupt):
        decode([golden()[0][2][:keep]])


def test_bytes_behind_a_bitmap_are_refused() -> None:
    for _, _, raw in golden():
        with pytest.raises(Corrupt):
            decode([raw + b"\0"])


@pytest.mark.parametrize(
    "runs",
    [
        "0100" + "faff0900",  # 65530 to 65539: out of the container
        "0200" + "0a000400" + "0c000400",  # 10 to 14 and 12 to 16 overlap
        "0200" + "0a000400" + "00000400",  # 10 to 14 and then 0 to 4
        "0200" + "0a000400" + "0f000400",  # 10 to 14 and 15 to 19 are one
        "0100" + "0a000800",  # nine ids where the header says ten
    ],
)
def test_runs_that_cannot_be(runs: str) -> None:
    with pytest.raises(Corrupt, match="runs overlap, leave their container or do not add up"):
        decode([bytes.fromhex("0100000000000000000000003b300000010000" + "0900" + runs)])


@pytest.mark.parametrize("values", ["05000500", "05000400"])
def test_arrays_that_cannot_be(values: str) -> None:
    with pytest.raises(Corrupt, match="strictly increasing"):
        decode([bytes.fromhex("0100000000000000000000003a3000000100000000000100" + "10000000" + values)])


def test_ids_beyond_63_bits_are_refused() -> None:
    with pytest.raises(Corrupt, match="63 bits"):
        decode([bytes(BitMap64([2**63]).serialize())])


# -- the serialized tracker -----------------------------------------------------------------------------------------

RUN_OF_256 = "0100000000000000000000003b300000010100ff0001007011ff00"  # ids 70000-70255, as Java wrote it
RUN_OF_ONE = "0100000000000000000000003b30000001000000000100" + "05000000"


def crc32c(data: bytes) -> int:
    """CRC-32C bit by bit (RFC 3720, polynomial 0x1EDC6F41 reflected)."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def serialized(rows: list[tuple[int, int, str]], **fields: Any) -> bytes:
    """The documented form of ROWS (bucket, ledger, bitmap in hex); FIELDS replace single header fields."""
    bitmaps = [bytes.fromhex(raw) for _, _, raw in rows]
    body = b"".join(struct.pack("<q", bucket) for bucket, _, _ in rows)
    body += b"".join(struct.pack("<q", ledger) for _, ledger, _ in rows)
    body += b"".join(struct.pack("<I", len(raw)) for raw in bitmaps)
    body += b"".join(bitmaps)
    values = {"magic": b"PSNACKTR", "version": 1, "bits": 8, "partition": -2, "groups": len(rows)}
    values |= {"entries": 0, "bitmaps": sum(map(len, bitmaps)), "body": crc32c(body)} | fields
    header = struct.pack("<8sHBxiQQQI", *values.values())
    return header + struct.pack("<I", crc32c(header)) + body


ROWS = [(1024, 7, RUN_OF_256), (1024, 9, RUN_OF_ONE), (1280, 7, RUN_OF_ONE)]
GOOD = serialized(ROWS, entries=258)


def tracker() -> NegativeAcksTracker:
    made = NegativeAcksTracker(8)
    made.add_many([7] * 256, range(70_000, 70_256), 1024, now_ms=0)
    made.add(Position(9, 5), 1200, now_ms=3)
    made.add(Position(7, 5), 1200, now_ms=100)
    return made


def test_writes_the_documented_bytes() -> None:
    assert tracker().to_bytes() == GOOD
    assert len(GOOD) == 48 + 3 * 20 + 3 * 27


def test_reads_the_documented_bytes() -> None:
    loaded = NegativeAcksTracker.from_bytes(GOOD)
    found = [(group.bucket_ms, group.ledger_id, list(group.entry_ids)) for group in loaded.due(5000)]
    assert found == [(1024, 7, list(range(70_000, 70_256))), (1024, 9, [5]), (1280, 7, [5])]


def test_every_flipped_bit_is_noticed() -> None:
    for offset in range(len(GOOD)):
        for bit in range(8):
            damaged = bytearray(GOOD)
            damaged[offset] ^= 1 << bit
            with pytest.raises(StoreError):
                NegativeAcksTracker.from_bytes(bytes(damaged))


def test_every_cut_is_noticed() -> None:
    for length in range(len(GOOD)):
        with pytest.raises(Corrupt):
            NegativeAcksTracker.from_bytes(GOOD[:length])
    with pytest.raises(Corrupt):
        NegativeAcksTracker.from_bytes(GOOD + b"\0")


def test_a_newer_version_is_named() -> None:
    with pytest.raises(Unsupported, match="version 2"):
        NegativeAcksTracker.from_bytes(serialized(ROWS, entries=258, version=2))


@pytest.mark.parametrize(
    ("rows", "fields", "what"),
    [
        (ROWS, {"entries": 257}, "its header says 257"),
        (ROWS, {"entries": 258, "bits": 63}, "63 precision bits"),
        (ROWS, {"entries": 258, "bits": 9}, "not a bucket"),
        (ROWS[::-1], {"entries": 258}, "not in order"),
        ([ROWS[0], ROWS[0]], {"entries": 512}, "not in order"),
        ([(-256, 7, RUN_OF_ONE)], {"entries": 1}, "negative"),
        ([(256, -7, RUN_OF_ONE)], {"entries": 1}, "negative"),
        ([(256, 7, RUN_OF_ONE[:-2])], {"entries": 1}, "Roaring"),
        ([(256, 7, "")], {"entries": 0}, "Roaring"),
        ([(256, 7, RUN_OF_256.replace("0100ff000100", "0100fe000100"))], {"entries": 255}, "add up"),
        ([(256, 7, "0000000000000000")], {"entries": 0}, "empty"),
        (ROWS, {"entries": 258, "groups": 2}, "length"),
        (ROWS, {"entries": 258, "groups": 2**60}, "length"),
    ],
)
def test_wrong_content_under_right_checksums(rows: list[Any], fields: dict[str, Any], what: str) -> None:
    with pytest.raises(Corrupt, match=what):
        NegativeAcksTracker.from_bytes(serialized(rows, **fields))


def test_lengths_that_do_not_add_up() -> None:
    raw = bytearray(GOOD)
    raw[48 + 48 : 48 + 52] = struct.pack("<I", 26)
    body = bytes(raw[48:])
    header = bytes(raw[:40]) + struct.pack("<I", crc32c(body))
    with pytest.raises(Corrupt, match="add up"):
        NegativeAcksTracker.from_bytes(header + struct.pack("<I", crc32c(header)) + body)
