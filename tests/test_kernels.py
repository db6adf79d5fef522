"""Kernels in Python beside the same kernels compiled, on entries a real broker wrote and on the same entries damaged.

What compares the two is ``tests.both_ways``: a kernel that is called here runs both ways.
"""

import random
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from pulsar_admin.store.kernels import compaction, compiled, messages, slots, wire
from pulsar_admin.store.kernels.columns import BATCH, RECORD
from pulsar_admin.store.kernels.compiled import LITTLE_ROWS, Meter, signed
from pulsar_admin.store.kernels.evidence import SENT, read_sent
from pulsar_admin.store.kernels.producers import longest_forward_run, number_spans, producer_spans, sequence_ids
from pulsar_admin.store.kernels.records import (
    _is_zero,
    read_bodies,
    read_payloads,
    scan_journal,
    scan_log,
    write_records,
)
from pulsar_admin.store.kernels.sha1 import sha1_spans
from pulsar_admin.store.proto import pulsar_api_pb2 as pb
from tests.both_ways import run_both_ways
from tests.conftest import Cli
from tests.stores import imported
from tests.worlds import world

Array = np.ndarray[Any, Any]
Entries = tuple[Array, Array, Array]

_KNOWN = (np.zeros(0, np.int64), np.zeros(0, np.int16))
_EDGES = (b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff" * 9 + b"\x01", b"\x80" * 10, b"\x0e\x01", b"\x0e\x02")


def _records(file: str) -> tuple[Array, Array]:
    data = np.fromfile(world("small") / "clean" / "bookkeeper" / "current" / file, np.uint8)
    rows = np.zeros(1500, RECORD)
    count, _, _ = scan_log.compiled(data, 1024, len(data), 0, _KNOWN, True, rows)
    return data, rows[:count].copy()


def _entries(seed: int | None) -> Entries:
    """Return a broker's entries of all kinds, up to 2 KB each; with a SEED each of them damaged in one to three places."""
    data, rows = _records("0.log")
    drawn = random.Random(seed)
    parts = []
    for row in rows[rows["size"] < 2048]:
        start = int(row["offset"]) + 36 + int(row["digest_bytes"])
        entry = bytearray(data[start : int(row["offset"]) + 4 + int(row["size"])].tobytes())
        if seed is not None and entry[:2] == b"\x0e\x02":  # what a checksum refuses is not looked at
            del entry[: 6 + int.from_bytes(entry[2:6], "big")]
        if seed is not None and entry[:2] == b"\x0e\x01":
            del entry[:6]
        for _ in range(0 if seed is None else drawn.randint(1, 3)):
            at = drawn.randrange(min(len(entry), 120) + 1)
            piece = drawn.choice((*_EDGES, bytes([drawn.randrange(256)])))
            entry[at : at + drawn.choice((0, 1, len(piece)))] = piece
        parts.append(bytes(entry))
    sizes = np.array([len(part) for part in parts])
    ends = np.cumsum(sizes)
    return np.frombuffer(b"".join(parts), np.uint8), ends - sizes, ends


@pytest.fixture(params=[None, 1, 2, 3], ids=["whole", "damaged", "damaged again", "and again"], scope="module")
def entries(request: pytest.FixtureRequest) -> Entries:
    return _entries(request.param)


def test_metadata(entries: Entries) -> None:
    data, starts, ends = entries
    rows, sent = np.zeros(len(starts), RECORD), np.zeros(len(starts), SENT)
    read_payloads(data, starts, ends, rows)
    read_sent(data, starts, ends, sent)
    producers, found = np.zeros((len(starts), 2), np.int64), np.zeros(len(starts), np.int64)
    producer_spans(data, starts, ends, producers)
    sequence_ids(data, starts, ends, found)
    wire.find_metadata_ends(data, starts, ends, found)
    numbers, firsts = np.zeros((2, len(starts)), np.int32)
    table = np.full(4096, -1, np.int32)
    assert number_spans(data, producers, numbers, firsts, table) == numbers.max() + 1
    assert (rows["flags"] & BATCH != 0).any()
    assert (sent["framed"] != 0).any()


def test_messages(entries: Entries) -> None:
    data, starts, ends = entries
    heads = np.zeros(len(starts), messages.HEAD)
    messages.read_heads(data, starts, ends, heads)
    heads["kind"][heads["compression"] != 0] = messages.SLOW
    counts, pairs = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int64)
    messages.count_messages(data, heads, counts, pairs)
    assert counts.sum() > 300
    found = np.zeros(int(counts.sum()), messages.MESSAGE)
    properties = np.zeros(int(pairs.sum()), messages.PROPERTY)
    messages.explode(data, heads, found, properties)
    out, offsets = np.zeros(int(found["body_size"].sum()), np.uint8), np.zeros(len(found) + 1, np.int32)
    messages.gather(data, found["body_start"], found["body_size"], offsets, out)
    sha1_spans(data, found["body_start"], found["body_size"])


def test_compaction(entries: Entries) -> None:
    data, starts, ends = entries
    rows = np.zeros(len(starts), compaction.ENTRY)
    compaction.read_entries(data, starts, ends, False, True, rows)
    compaction.read_entries(data, starts, ends, True, True, rows.copy())
    compaction.read_entries(data, starts, ends, False, False, rows)
    rows["kind"][(rows["kind"] == compaction.BATCH) & (rows["codec"] != 0)] = compaction.STRANGE
    most = np.where(rows["kind"] == compaction.BATCH, rows["messages"].clip(0, 50), 1)
    found, firsts = np.zeros(int(most.sum()), slots.SLOT), np.zeros(len(rows) + 1, np.int64)
    count = slots.read_slots(data, data[:0], rows, found, firsts)
    table = (np.zeros(4096, np.uint64), np.zeros(4096, np.uint64), np.full(4096, slots.EMPTY))
    progress = np.zeros(3, np.int64)
    assert slots.add_keys((data, data[:0]), rows, found[:count], firsts, progress, table)
    assert progress[2] >= 10
    larger = (np.zeros(8192, np.uint64), np.zeros(8192, np.uint64), np.full(8192, slots.EMPTY))
    run_both_ways(slots.move_keys, table, larger)
    keys = tuple(column[table[2] != slots.EMPTY] for column in table)
    assert slots.merge_keys(keys, np.zeros(2, np.int64), table)
    bits, fates = np.zeros(count // 8 + 1, np.uint8), np.zeros(count, np.uint8)
    slots.mark_last(table[2], bits)
    slots.judge(found[:count], firsts, firsts[:-1], bits, False, fates)
    whole = np.flatnonzero(rows["kind"] == compaction.SINGLE)
    out, begins = np.zeros(len(data) + 64 * len(whole), np.uint8), np.zeros(len(whole) + 1, np.int64)
    compaction.frame_whole(data, rows, whole, -1, out, begins)


def test_half_a_magic_is_none() -> None:
    """Both bytes make a magic, and there are four behind them: a size has one of them, and an entry may end behind both."""
    message = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1).SerializeToString()
    framed = len(message).to_bytes(4, "big") + message
    long = [pb.MessageMetadata(producer_name="p" * size, sequence_id=1, publish_time=1) for size in (0x10000, 0x20000)]
    bodies = [one.SerializeToString() for one in long]
    assert [len(body) >> 16 for body in bodies] == [1, 2]
    cases = [
        (b"\x0e\x02" + len(b"broker").to_bytes(4, "big") + b"broker" + framed, 12 + len(framed)),
        (b"\x0e\x01" + bytes(4) + framed, 6 + len(framed)),
        *((len(body).to_bytes(4, "big") + body, 4 + len(body)) for body in bodies),
        *((head + bytes(4) + framed, -1) for head in (b"\x0e\x00", b"\x0e\x03", b"\x0d\x01", b"\x0d\x02")),
        *((head + bytes(size), -1) for head in (b"\x0e\x01", b"\x0e\x02") for size in (0, 3, 4, 7)),
    ]
    sizes = np.array([len(entry) for entry, _ in cases])
    ends, found = np.cumsum(sizes), np.zeros(len(cases), np.int64)
    wire.find_metadata_ends(np.frombuffer(b"".join(entry for entry, _ in cases), np.uint8), ends - sizes, ends, found)
    assert np.where(found < 0, found, found - (ends - sizes)).tolist() == [end for _, end in cases]


@pytest.mark.parametrize("digest_bytes", [4, 8])
def test_written_records_are_read(digest_bytes: int) -> None:
    data, starts, ends = _entries(None)
    sizes, ids = ends - starts, np.arange(len(starts))
    out = np.zeros(int((sizes + 36 + digest_bytes).sum()), np.uint8)
    write_records(data, starts, sizes, 7, ids, 0, digest_bytes, out)
    rows = np.zeros(len(starts), RECORD)
    assert scan_log(out, 0, len(out), 0, _KNOWN, True, rows)[:2] == (len(starts), len(out))
    assert (rows["digest_bytes"] == digest_bytes).all()
    assert not rows["flags"][0] & 1
    kinds = (np.array([7]), np.array([20], np.int16))
    read_bodies(out, rows["offset"].copy(), rows["size"].astype(np.int64), kinds, True, rows)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files(seed: int) -> None:
    """Wherever a scan of damaged bytes stops, it stops there both ways."""
    data, rows = _records("0.log")
    drawn = random.Random(seed)
    begin = int(rows[0]["offset"])
    part = data[begin : int(rows[80]["offset"]) + 9].copy()
    for _ in range(12):
        at = drawn.randrange(len(part))
        part[at] ^= 1 << drawn.randrange(8)
    stops = set()
    for scan, rest in ((scan_log, (len(part),)), (scan_journal, ())):
        for start in [0, *(int(row["offset"]) - begin for row in rows[:80])]:
            found = np.zeros(3, RECORD)
            stops.add(scan(part, start, *rest, drawn.choice((0, 1 << 20)), _KNOWN, seed % 2 == 0, found)[2])
    assert len(stops) >= 2


def test_numbers_wrap_alike() -> None:
    """Numbers at the ends of 64 bits overflow sums and fields of 32 bits, in the same way."""
    parts = []
    for number in (2**63 - 1, 2**63 - 5, 2**64 - 1, 2**32, 0):
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=number, publish_time=2**64 - 1 - number // 3)
        metadata.num_messages_in_batch = 2**31 - 1 - number % 7
        metadata.deliver_at_time = -(number // 2)
        text = metadata.SerializeToString()
        parts.append(len(text).to_bytes(4, "big") + text)
    sizes = np.array([len(part) for part in parts])
    data, ends = np.frombuffer(b"".join(parts), np.uint8), np.cumsum(sizes)
    sent, rows = np.zeros(len(parts), SENT), np.zeros(len(parts), RECORD)
    read_sent(data, ends - sizes, ends, sent)
    read_payloads(data, ends - sizes, ends, rows)
    assert sent["last_sequence_id"].min() < 0
    assert rows["publish_ms"].min() < 0
    assert [signed(value, 8) for value in (127, 128, 255, 256, -129)] == [127, -128, -1, 0, 127]


def test_keys_are_one_where_both_hashes_are() -> None:
    """Few hashes, so that most keys share one: against a dict, in a table that grows whenever it is half full."""
    drawn = random.Random(5)
    given = [tuple(map(drawn.randrange, (9, 9, 400))) for _ in range(300)]
    latest: dict[tuple[int, int], int] = {}
    for *key, value in given:
        latest[key[0], key[1]] = max(value, latest.get((key[0], key[1]), 0))
    tables = [tuple(np.full(2**bits, 2**64 - 1, np.uint64) for _ in range(3)) for bits in range(2, 9)]
    keys, progress = tuple(np.array(column, np.uint64) for column in zip(*given, strict=True)), np.zeros(2, np.int64)
    while not slots.merge_keys(keys, progress, tables[0]):
        assert (progress[1] + 1) * 2 > len(tables[0][2])
        slots.move_keys(*tables[:2])
        del tables[0]
    rows = [*zip(*(column.tolist() for column in tables[0]), strict=True)]
    assert sorted(row for row in rows if row[2] != 2**64 - 1) == sorted((*key, value) for key, value in latest.items())
    bits = np.zeros(25, np.uint8)
    kept = {value >> 1 for value in latest.values() if not value & 1}
    nulls = sum(value & 1 for value in latest.values())
    assert (len(latest), slots.mark_last(tables[0][2], bits)) == (progress[1], (len(latest) - nulls, nulls))
    assert {at for at in range(200) if bits[at >> 3] >> (at & 7) & 1} == kept


def test_zeros_are_looked_for_up_to_the_end_and_no_further() -> None:
    for at, (start, end) in product(range(5), combinations(range(6), 2)):
        data = np.zeros(6, np.uint8)
        data[at] = 1
        assert [bool(form(data, start, end)) for form in (_is_zero.plain, _is_zero.compiled)] == [
            not start <= at < end
        ] * 2


def test_clocks() -> None:
    times = np.array([5, 3, 4, 4, 9, -1, 6, 7, 7, 2])
    kept, tails, before = np.zeros(10, bool), np.zeros(10, np.int32), np.zeros(10, np.int32)
    longest_forward_run(times, kept, tails, before)
    assert times[kept].tolist() == [3, 4, 4, 6, 7, 7]


def test_columns_of_a_table_can_be_arguments() -> None:
    """Columns of packed rows lie unaligned and apart; a kernel that wrote to one without a copy would lose it."""
    packed = np.zeros(3, np.dtype([("flag", np.uint8), ("start", np.int64), ("size", np.int64)]))
    packed["size"] = 2, -1, 3
    out, offsets = np.zeros(5, np.uint8), np.zeros(4, np.int64)
    messages.gather(np.arange(9, dtype=np.uint8), packed["start"], packed["size"], offsets, out)
    assert out.tolist() == [0, 1, 0, 1, 2]
    with pytest.raises(TypeError, match="read-only"):
        messages.gather.run_plain(np.arange(9, dtype=np.uint8), packed["start"], packed["size"], packed["start"], out)


def test_nothing_to_do() -> None:
    """Arrays without a row are arguments like others."""
    data, none, few = np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int32)
    rows, found = np.zeros(0, compaction.ENTRY), np.zeros(0, slots.SLOT)
    table = (np.zeros(2, np.uint64), np.zeros(2, np.uint64), np.full(2, slots.EMPTY))
    assert scan_log(data, 0, 0, 0, _KNOWN, True, np.zeros(0, RECORD))[0] == 0
    assert scan_journal(data, 0, 0, _KNOWN, True, np.zeros(1, RECORD))[0] == 0
    read_bodies(data, none, none, _KNOWN, True, np.zeros(0, RECORD))
    read_payloads(data, none, none, np.zeros(0, RECORD))
    read_sent(data, none, none, np.zeros(0, SENT))
    producer_spans(data, none, none, np.zeros((0, 2), np.int64))
    sequence_ids(data, none, none, none)
    wire.find_metadata_ends(data, none, none, none)
    assert number_spans(data, np.zeros((0, 2), np.int64), few, few, np.full(1, -1, np.int32)) == 0
    longest_forward_run(none, np.zeros(0, bool), few, few)
    messages.read_heads(data, none, none, np.zeros(0, messages.HEAD))
    messages.count_messages(data, np.zeros(0, messages.HEAD), none, none)
    messages.explode(data, *(np.zeros(0, kind) for kind in (messages.HEAD, messages.MESSAGE, messages.PROPERTY)))
    messages.gather(data, none, none, np.zeros(1, np.int64), data)
    assert sha1_spans(data, none, none).shape == (0, 20)
    compaction.read_entries(data, none, none, True, True, rows)
    compaction.frame_whole(data, rows, none, -1, data, np.zeros(1, np.int64))
    assert slots.read_slots(data, data, rows, found, np.zeros(1, np.int64)) == 0
    assert slots.add_keys((data, data), rows, found, np.zeros(1, np.int64), np.zeros(3, np.int64), table)
    assert slots.merge_keys((none.view(np.uint64),) * 3, np.zeros(2, np.int64), table)
    assert slots.mark_last(table[2], np.zeros(1, np.uint8)) == (0, 0)
    slots.judge(found, np.zeros(1, np.int64), none, data, False, data)
    assert write_records(data, none, none, 7, none, 0, 4, data) == (0, 0)


def test_meter() -> None:
    """Little is left to Python until it adds up to much, or comes at once; from then on everything is compiled."""
    meter = Meter(100)
    assert [meter.takes(rows) for rows in (60, 0, 39, 1, 0)] == [True, True, True, False, False]
    meter = Meter(100)
    assert [meter.takes(rows) for rows in (101, 1)] == [False, False]
    meter = Meter(100)
    meter.expect(LITTLE_ROWS)
    assert meter.takes(1)
    meter.expect(LITTLE_ROWS + 1)
    assert not meter.takes(1)


@pytest.mark.parametrize(("little", "left"), [(24, 0), (25, 1000)])
def test_a_scan_of_a_large_ledger_is_compiled_at_once(
    little: int, left: int, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic's ledgers have 25 entries each; nothing else counts rows here, where all kernels run both ways."""
    store = imported("small", "clean")
    monkeypatch.setattr(compiled, "LITTLE_ROWS", little)
    monkeypatch.setattr(compiled.METER, "left", 1000)
    answer = cli("--store", store, "topics", "skew", "public/default/plain", "--jobs", 1)
    assert (answer.exit_code, answer.stderr) == (0, "")
    assert compiled.METER.left == left


@pytest.mark.parametrize("number", [number_spans, number_spans.plain])
def test_spans_after_one_that_is_none(number: Any) -> None:
    data, numbers, firsts = np.frombuffer(b"abab", np.uint8), np.full(3, 7, np.int32), np.zeros(3, np.int32)
    spans = np.array([[0, 2], [0, -1], [2, 2]])
    assert number(data, spans, numbers, firsts, np.full(8, -1, np.int32)) == 1
    assert numbers.tolist() == [0, -1, 0]
