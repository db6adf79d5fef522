"""The location and time index against a brute-force dictionary: random records, files, batches and scan orders."""

import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import Struct

from pulsar_admin.store.db import blocks
from pulsar_admin.store.db.blocks import NO_MAX, NO_MIN, Block, block_key, decode_times, encode_times, ledger_of_key
from pulsar_admin.store.db.environment import Store, Txn, create_store, open_store
from pulsar_admin.store.db.files import LogFile, iter_logs, put_log
from pulsar_admin.store.errors import IndexCorrupt
from pulsar_admin.store.index.unserved import _of_blocks
from pulsar_admin.store.index.writer import Indexer
from pulsar_admin.store.kernels.columns import BAD_DIGEST, HAS_BROKER_TIME, RECORD, UNFRAMED
from pulsar_admin.store.model.ledgers import find_place, find_times, iter_blocks, iter_entry_ids
from tests.deep import deep_but_for
from tests.stores import narrow_copy, read_rows, write_rows

SEEDS = range(12)


class Copy(Struct, frozen=True):
    """One record: an entry's bytes at a place of a file."""

    file_id: int
    position: int  # order in its file
    row: dict[str, int]
    bad: bool


class World(Struct, frozen=True):
    """Files (id → is a journal) and every record in them."""

    files: dict[int, bool]
    copies: list[Copy]


def _entries(random_: random.Random) -> Iterator[dict[str, int]]:
    for ledger_id in random_.sample([0, 1, 7, 2**31, 2**40], random_.randint(1, 4)):
        has_broker, digest_bytes = random_.random() < 0.5, random_.choice((0, 4, 8, 20))
        counts = random_.choice(((1,), (1, 1, 1, 0, 2, 1000, 2**31 - 1, -5)))
        for first in random_.sample((0, 3, 1000, 1020, 2047, 2048, 5000), random_.randint(1, 4)):
            for entry_id in range(first, first + random_.choice((1, 2, 40, 1024))):
                if random_.random() < 0.1:
                    continue  # a hole
                framed = random_.random() < 0.95
                broker = framed and has_broker and random_.random() < 0.9
                yield {
                    "ledger_id": ledger_id,
                    "entry_id": entry_id,
                    "size": 32 + digest_bytes + random_.choice((0, 1, 500, 70_000)),
                    "digest_bytes": digest_bytes,
                    "messages": random_.choice(counts) if framed else 1,
                    "publish_ms": random_.randint(-(2**62), 2**62) if framed else -1,
                    "broker_ms": random_.randint(0, 2**50) if broker else -1,
                    "lac": random_.randint(-1, 6000),
                    "flags": (0 if framed else UNFRAMED) | (HAS_BROKER_TIME if broker else 0),
                }


def _world(seed: int) -> World:
    random_ = random.Random(seed)
    files = {file_id: random_.random() < 0.4 for file_id in random_.sample(range(1, 40), random_.randint(1, 5))}
    entries = {(row["ledger_id"], row["entry_id"]): row for row in _entries(random_)}
    ends = dict.fromkeys(files, 1024)
    positions = dict.fromkeys(files, 0)
    copies = []
    shuffled = list(entries.values())
    if random_.random() < 0.7:
        random_.shuffle(shuffled)
    for row in shuffled:
        for _ in range(random_.choice((1, 1, 1, 2, 3))):
            file_id = random_.choice(list(files))
            lac = row["lac"] + random_.randint(0, 3)  # re-replication writes another one
            copies.append(
                Copy(file_id, positions[file_id], row | {"offset": ends[file_id], "lac": lac}, random_.random() < 0.05)
            )
            ends[file_id] += 4 + row["size"]
            positions[file_id] += 1
    return World(files, copies)


def _batches(copies: list[Copy], random_: random.Random) -> Iterator[Any]:
    """Yield the records of one file, in file order, as arrays of random length."""
    ordered = sorted(copies, key=lambda copy: copy.position)
    while ordered:
        count = random_.choice((1, 3, 700, 5000))
        part, ordered = ordered[:count], ordered[count:]
        array = np.zeros(len(part), RECORD)
        for index, copy in enumerate(part):
            for name, value in copy.row.items():
                array[index][name] = value
            if copy.bad:
                array[index]["flags"] |= BAD_DIGEST
        yield array


def _index(store: Store, world: World, seed: int) -> None:
    """Index the files in an order and in batches that SEED chooses."""
    random_ = random.Random(seed)
    for file_id in random_.sample(list(world.files), len(world.files)):
        own = [copy for copy in world.copies if copy.file_id == file_id]

        def work(txn: Txn, file_id: int = file_id, own: list[Copy] = own) -> None:
            indexer = Indexer(txn, [file_id] if world.files[file_id] else [])
            for batch in _batches(own, random_):
                indexer.add(batch, file_id)
            indexer.finish()
            kind = "journal" if world.files[file_id] else "entry-log"
            put_log(txn, LogFile(file_id, "f", kind, 0, "f", "referenced", 2**32, 0, "", 0, 0, 0, False, False))

        store.write(work)


def _winners(world: World) -> dict[tuple[int, int], Copy]:
    """Return entry → the record that counts: a log's before a journal's, the newest log's, the oldest journal's."""

    def rank(copy: Copy) -> tuple[int, int, int]:
        is_journal = world.files[copy.file_id]
        return (0, -copy.file_id, -copy.position) if is_journal else (1, copy.file_id, copy.position)

    found: dict[tuple[int, int], Copy] = {}
    for copy in world.copies:
        key = copy.row["ledger_id"], copy.row["entry_id"]
        if not copy.bad and (key not in found or rank(copy) > rank(found[key])):
            found[key] = copy
    return found


@pytest.fixture
def store(tmp_path: Path, damages_stores: None) -> Iterator[Store]:
    """A store whose catalogue names files that are not there."""
    create_store(tmp_path / "store", now_ms=1)
    with open_store(tmp_path / "store", writable=True) as opened:
        yield opened


@deep_but_for((0, 1, 2, 8), "seed", SEEDS)
def test_places_and_time_rows(store: Store, seed: int) -> None:
    world = _world(seed)
    _index(store, world, seed)
    winners = _winners(world)
    with store.read() as txn:
        found = {
            (block.ledger_id, block.entry_id(index)): (*block.place(index), block.messages(index))
            for ledger_id in {ledger_id for ledger_id, _ in winners}
            for block in iter_blocks(txn, ledger_id)
            for index in range(len(block))
        }
        places = {key: find_place(txn, *key) for key in winners}
        lost = [
            find_place(txn, ledger_id, entry_id + 1)
            for ledger_id, entry_id in winners
            if (ledger_id, entry_id + 1) not in winners
        ]
    assert found == {
        key: (copy.file_id, copy.row["offset"], copy.row["size"], max(copy.row["messages"], 0))
        for key, copy in winners.items()
    }
    assert places == {key: place[:3] for key, place in found.items()}
    assert set(lost) <= {None}
    _assert_time_rows(store, world, winners)


def _assert_time_rows(store: Store, world: World, winners: dict[tuple[int, int], Copy]) -> None:
    ledgers = {ledger_id for ledger_id, _ in winners}
    with store.read() as txn:
        assert txn.count("times") == len(ledgers)
        for ledger_id in ledgers:
            rows = {entry_id: copy.row for (owner, entry_id), copy in winners.items() if owner == ledger_id}
            lac = max(copy.row["lac"] for copy in world.copies if copy.row["ledger_id"] == ledger_id and not copy.bad)
            times = find_times(txn, ledger_id)
            sums = times.sums
            assert (sums.entries, sums.first_entry, sums.last_entry, sums.max_lac) == (
                len(rows),
                min(rows),
                max(rows),
                lac,
            )
            assert sums.messages == sum(max(row["messages"], 0) for row in rows.values())
            assert sums.payload_bytes == sum(row["size"] - 32 - row["digest_bytes"] for row in rows.values())
            assert sums.unframed == sum(bool(row["flags"] & UNFRAMED) for row in rows.values())
            _assert_times(times, rows)
            assert list(iter_entry_ids(txn, ledger_id)) == sorted(rows)


def _assert_times(times: Any, rows: dict[int, dict[str, int]]) -> None:
    publish = {e: row["publish_ms"] for e, row in rows.items() if not row["flags"] & UNFRAMED}
    broker = {e: row["broker_ms"] for e, row in rows.items() if row["flags"] & HAS_BROKER_TIME}
    automatic = publish | broker
    sums = times.sums
    assert (sums.publish_min_ms, sums.publish_max_ms) == _bounds(publish.values())
    assert (sums.broker_min_ms, sums.broker_max_ms, sums.broker_count) == (*_bounds(broker.values()), len(broker))
    first, last = min(rows) >> 10, max(rows) >> 10
    assert (sums.first_block, times.blocks) == (first, last - first + 1)
    for clock, maxima, minima in (
        (publish, times.publish_max, times.publish_min),
        (automatic, times.auto_max, times.auto_min),
    ):
        for block in range(first, last + 1):
            assert maxima[block - first] == _bounds(ms for e, ms in clock.items() if e >> 10 <= block)[1]
            assert minima[block - first] == _bounds(ms for e, ms in clock.items() if e >> 10 >= block)[0]


def _bounds(values: Any) -> tuple[int, int]:
    listed = list(values)
    return min(listed, default=NO_MIN), max(listed, default=NO_MAX)


@deep_but_for((0, 1, 2, 3), "seed", SEEDS)
def test_same_rows_whatever_the_order(tmp_path: Path, store: Store, seed: int) -> None:
    world = _world(seed)
    _index(store, world, seed)
    create_store(tmp_path / "other", now_ms=1)
    with open_store(tmp_path / "other", writable=True) as other:
        _index(other, world, seed + 1000)
        with store.read() as txn, other.read() as second:
            for database in ("entries", "times"):
                rows = [(key, bytes(value)) for key, value in txn.items(database)]
                assert rows == [(key, bytes(value)) for key, value in second.items(database)]


def test_seeds_reach_every_form(tmp_path: Path, store: Store) -> None:
    flags = set()
    for seed in SEEDS:
        path = tmp_path / str(seed)
        create_store(path, now_ms=1)
        with open_store(path, writable=True) as opened:
            _index(opened, _world(seed), seed)
            with opened.read() as txn:
                flags |= {Block(key, value).header.flags for key, value in txn.items("entries")}
    assert flags == set(range(8))


def test_a_row_for_entries_far_apart_stays_small(store: Store) -> None:
    """A block between two that has no entry repeats its neighbour."""
    batch = np.zeros(2, RECORD)
    batch["ledger_id"], batch["entry_id"], batch["size"], batch["messages"] = 5, (0, 3 << 10), 40, 1
    batch["publish_ms"] = (70, 30)

    def work(txn: Txn) -> None:
        indexer = Indexer(txn)
        indexer.add(batch, 1)
        indexer.finish()

    store.write(work)
    with store.read() as txn:
        times = find_times(txn, 5)
        assert (list(times.publish_max), list(times.publish_min)) == ([70, 70, 70, 70], [30, 30, 30, 30])


@pytest.mark.parametrize("cut", [0, 1, 79, 80, 81, 87, 95])
def test_damaged_block_is_named(cut: int) -> None:
    good = _good_block()
    Block(block_key(7, 2), good)
    with pytest.raises(IndexCorrupt, match="location block 2 of ledger 7"):
        Block(block_key(7, 2), good[:cut])


@pytest.mark.parametrize(("at", "byte"), [(0, 0), (1, 0xFF), (2, 8), (2, 4), (2, 2), (79, 0xFF), (79, 4)])
def test_damaged_block_header_is_named(at: int, byte: int) -> None:
    damaged = bytearray(_good_block())
    damaged[at] = byte
    with pytest.raises(IndexCorrupt, match="location block 2 of ledger 7"):
        Block(block_key(7, 2), bytes(damaged))


def _good_block() -> bytes:
    """Two entries, slots 3 and 4; spelled by hand from docs/formats/store.md."""
    header = (2).to_bytes(2, "little") + bytes(2) + (1).to_bytes(4, "little") + bytes(64)
    header += bytes(2) + (4).to_bytes(2, "little") + bytes(2) + (3).to_bytes(2, "little")
    return header + b"".join(number.to_bytes(4, "little") for number in (1024, 1100, 72, 36))


def test_block_is_read_by_hand() -> None:
    block = Block(block_key(7, 2), _good_block())
    assert [block.entry_id(index) for index in range(2)] == [2051, 2052]
    assert [block.place(index) for index in range(2)] == [(1, 1024, 72), (1, 1100, 36)]
    assert [block.payload_bytes(index) for index in range(2)] == [36, 0]
    assert [block.index_of(entry_id) for entry_id in (0, 2051, 2052, 2053, 9999)] == [0, 0, 1, 2, 2]


SUMS = blocks.LedgerSums(0, 5, 1, 9, 7, 70, 100, 300, 150, 350, 4, 1, 8)
READERS: dict[str, Callable[[bytes], object]] = {
    "all": lambda row: decode_times(3, row),
    "sums": lambda row: blocks.decode_sums(3, row),
    "bounds": lambda row: blocks.decode_publish_bounds(3, row),
    "count": lambda row: blocks.decode_entry_count(3, row),
    **{clock: lambda row, clock=clock: blocks.decode_latest(3, row, clock) for clock in ("publish", "auto", "broker")},
}


def time_row(count: int, columns: int, version: int = 1) -> bytes:
    """A time row of COUNT blocks, packed here from docs/formats/store.md: number 10 × column + block in each place."""
    times = [10 * column + block for column in range(columns) for block in range(count)]
    return struct.pack(f"<HHI13q{len(times)}q", version, columns == 4, count, *SUMS, *times)


@pytest.mark.parametrize("columns", [2, 4])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_time_rows_are_read_by_hand(count: int, columns: int) -> None:
    row = time_row(count, columns)
    found = decode_times(3, row)
    parts = (found.publish_max, found.publish_min, found.auto_max, found.auto_min)
    starts = (0, 10, 20, 30) if columns == 4 else (0, 10, 0, 10)
    assert [list(part) for part in parts] == [[start + block for block in range(count)] for start in starts]
    assert (
        encode_times(SUMS, [b"".join(struct.pack("<q", 10 * c + b) for b in range(count)) for c in range(columns)])
        == row
    )
    latest = {"publish": count - 1, "auto": starts[2] + count - 1, "broker": 350}
    expected = {"all": found, "sums": SUMS, "bounds": (100, 300), "count": 5, **latest}
    assert {name: read(row) for name, read in READERS.items()} == expected
    some = {"bounds", "count"}  # look at the head alone
    assert (READERS["bounds"](row[:112]), READERS["count"](row[:112])) == ((100, 300), 5)
    for damaged, reads in (
        (row[:111], {*READERS}),
        (time_row(count, columns, version=2), {*READERS}),
        (time_row(count, columns, version=0), {*READERS}),
        (row[:-1], {*READERS} - some),
        (row + bytes(8), {"all", "sums"}),
        (time_row(0, columns), {"publish", "auto", "broker"}),
    ):
        for name in reads:
            with pytest.raises(IndexCorrupt, match="ledger 3"):
                READERS[name](damaged)


def test_payloads_of_some_entries_of_a_block() -> None:
    source = random.Random(0)
    some = 20, 90, 200  # 20: less than what goes before a payload
    for entries, first_slot, possible in (
        (1024, 0, some),
        (300, 0, some),
        (5, 9, some),
        (1024, 0, (20,)),
        (9, 1, (90,)),
    ):
        sizes = [source.choice(possible) for _ in range(entries)]
        payload = sum(max(size - 36, 0) for size in sizes)
        value = blocks.BLOCK_HEADER.pack(entries, 0, 1, entries, payload, 0, 0, 0, 0, 0, 0, 0, 4, 0, first_slot)
        found = Block(block_key(7, 4), value + b"".join(one.to_bytes(4, "little") for one in [0] * entries + sizes))
        chosen = sorted(source.sample(range(entries), entries // 2))
        slots = [*range(first_slot), *(first_slot + index for index in chosen)]  # the first ones are not there
        assert [*found.indexes_of(slots)] == chosen
        each = [found.payload_bytes(index) for index in range(entries)]
        assert found.payload_at(chosen) == sum(each[index] for index in chosen)
        assert found.payload_between(chosen, [index + 1 for index in chosen], len(chosen)) == found.payload_at(chosen)


def test_bytes_of_a_block_by_file() -> None:
    """The size field of each record counts, too."""
    assert list(Block(block_key(7, 2), _good_block()).iter_parts()) == [(1, 2, 72 + 36 + 2 * 4)]


def test_damaged_blocks_hide_none_after_them_where_entries_are_in_journals_alone(
    tmp_path: Path, damages_stores: None
) -> None:
    path = narrow_copy(tmp_path)

    def found(txn: Txn) -> dict[int, int]:
        files = {log.file_id for log in iter_logs(txn)}
        counts: Counter[int] = Counter()
        for ledger_id, _, entries in _of_blocks(txn, dict.fromkeys(files), {}, files):
            counts[ledger_id] += len(entries)
        return counts

    before = read_rows(path, found)
    (first, _), (second, row), *_ = read_rows(path, lambda txn: [*txn.items("entries")])
    write_rows(path, lambda txn: [txn.put("entries", first, b"x"), txn.put("entries", second, row[:-1])])
    kept = {
        ledger_id: n
        for ledger_id, n in before.items()
        if ledger_id not in (ledger_of_key(first), ledger_of_key(second))
    }
    assert read_rows(path, found) == kept
    assert len(kept) > 2
