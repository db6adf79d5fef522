"""``topics skew`` and ``topics timeline`` against the recorded messages and against brute force."""

import os
import random
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pulsar_admin.store.codec.message import decode_message_entry
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.errors import LimitExceeded
from pulsar_admin.store.facts.topics import Clocks, TopicFacts, is_on_time
from pulsar_admin.store.model.ledgers import WholeLedger
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import parse_topic
from pulsar_admin.store.reports import timeline
from pulsar_admin.store.reports.timeline import (
    BUCKET_SIZES_MS,
    TimelineOptions,
    choose_bucket_ms,
    read_timeline,
    usual_range,
)
from pulsar_admin.store.scan import entries as scan_entries
from pulsar_admin.store.search.skew import SkewOptions, _OffsetTable, misplaced, read_skew
from tests.conftest import Cli
from tests.moved_bookies import change_ledgers
from tests.stores import imported, read_store
from tests.synthetic import CREATED_MS, Made, MadeTopic, make_store
from tests.worlds import oracle

RECORDED = ("acme/iot/skewed", "acme/iot/skewed-batched", "public/default/steady-batched", "acme/orders/codecs")
START_MS = 1_700_000_000_000


def _recorded_entries(world: str, name: str) -> list[tuple[int, str, int]]:
    """(publish time, producer, messages) of every entry, from what a real client read."""
    found: dict[tuple[int, int], list[Any]] = {}
    for row in oracle(world)["topics"][name]["messages"]:
        found.setdefault((row[0], row[1]), [row[3], row[10], 0])[2] += 1
    return [tuple(values) for _, values in sorted(found.items())]  # type: ignore[misc]


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("world", ["small", "nometa"])
def test_producers_and_inversions_equal_the_recorded_ones(world: str, name: str) -> None:
    expected = _recorded_entries(world, name)
    inversions = Counter(after[1] for before, after in pairwise(expected) if after[0] < before[0])
    with open_store(imported(world, "clean")) as store, open_reader(store) as reader:
        found = read_skew(reader, read_topic(reader.txn, parse_topic(name)), SkewOptions())
    assert {row.producer: row.entries for row in found.producers} == Counter(row[1] for row in expected)
    assert sum(row.messages for row in found.producers) == sum(row[2] for row in expected)
    assert {row.producer: row.inversions for row in found.producers if row.inversions} == inversions
    latest, furthest = 0, 0
    for time_ms, _, _ in expected:
        latest = max(latest, time_ms)
        furthest = max(furthest, latest - time_ms)
    assert found.max_backwards_ms == furthest
    assert found.broker_times == (len(expected) if world == "small" else 0)


def test_offsets_equal_brute_force() -> None:
    with open_store(imported("small", "clean")) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic("acme/iot/skewed"))
        offsets: dict[str, list[int]] = defaultdict(list)
        for publish_ms, broker_ms, _, producer, _ in _brute_entries(reader, topic):
            assert broker_ms is not None
            offsets[producer].append(publish_ms - broker_ms)
        every = [value for values in offsets.values() for value in values]
        bounds = (500_000, max(every), -min(every))  # an offset that is as large is within the tolerance
        found = {
            (bound, row.producer): row
            for bound in bounds
            for row in read_skew(reader, topic, SkewOptions(tolerance_ms=bound)).producers
        }
    assert min(bounds) > 0
    for (bound, producer), row in found.items():
        values = offsets[producer]
        assert (row.offset_min_ms, row.offset_max_ms) == (min(values), max(values))
        assert row.offset_median_ms == statistics.median_low(values)
        assert row.future == sum(value > bound for value in values)
        assert row.late == sum(value < -bound for value in values)
    assert len(found) == len(bounds) * len(offsets)
    assert found[500_000, "far-future"].future == 3


def test_who_is_ahead_of_now_is_to_blame_also_without_broker_times() -> None:
    """Beside the worst one: that no entry was published after now is certain."""
    with open_store(imported("nometa", "clean")) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic("acme/iot/skewed"))
        times: dict[str, int] = {}
        for publish_ms, _, _, producer, _ in _brute_entries(reader, topic):
            times[producer] = max(times.get(producer, 0), publish_ms)
        now_ms = max(times["on-time"], times["slow-clock"])
        found = read_skew(reader, topic, SkewOptions(now_ms=now_ms))
        assert {row.producer for row in found.producers if row.blamed} == {"slow-clock", "fast-clock", "far-future"}
        assert [row.blamed for row in read_skew(reader, topic, SkewOptions()).producers] == [True, False, False, False]
        right = read_topic(reader.txn, parse_topic("public/default/steady-batched"))
        assert read_skew(reader, right, SkewOptions()).blame is None


def test_misplaced_takes_out_the_fewest() -> None:
    rng = random.Random(5)
    for _ in range(200):
        times = [START_MS + rng.randrange(20) for _ in range(rng.randrange(1, 14))]
        longest = [1] * len(times)
        for i, later in enumerate(times):
            longest[i] += max((longest[j] for j in range(i) if times[j] <= later), default=0)
        future, late = misplaced(np.array(times, np.int64), -1)
        # With every distance counting, exactly those that are not kept are named.
        assert int((future | late).sum()) <= len(times) - max(longest)
        kept = [time_ms for time_ms, out in zip(times, future | late, strict=True) if not out]
        assert len(kept) >= max(longest)


def _brute_entries(reader: EntryReader, topic: Topic) -> Iterator[tuple[int, int | None, int, str, int]]:
    """(publish, broker, messages, producer, payload bytes) of every entry, by the ordinary reader."""
    for position in topic.iter_positions(topic.first_position):
        payload = reader.read(position.ledger_id, position.entry_id).payload
        header = decode_message_entry(payload, "entry")
        metadata = header.metadata
        broker_ms = header.broker.timestamp_ms if header.broker else None
        yield (metadata.publish_time, broker_ms, metadata.num_messages_in_batch, metadata.producer_name, len(payload))


def _made_topic(seed: int) -> MadeTopic:
    rng = random.Random(seed)
    ledgers = []
    for _ in range(4):
        made = []
        for number in range(rng.choice([0, 3, 700, 2500])):
            publish_ms = START_MS + number * 20 + rng.choice([0, 0, 0, -50_000, 90_000_000])
            broker_ms = None if rng.random() < 0.5 else START_MS + number * 20
            payload = bytes(rng.choice([1, 1, 9000])) if seed % 2 else b"x"
            made.append(Made(publish_ms, broker_ms, batch=rng.choice([0, 0, 3]), payload=payload))
        ledgers.append(made)
    return MadeTopic(ledgers)


@pytest.mark.parametrize("seed", range(4))
def test_made_topics_equal_brute_force(tmp_path: Path, seed: int, monkeypatch: Any) -> None:
    """Mixed entries with and without broker times, large ones (read head by head), many batches of the scan."""
    monkeypatch.setattr(scan_entries, "BATCH_ENTRIES", 600)
    path = make_store(tmp_path / "s", {"t/n/x": _made_topic(seed)})
    with open_store(path) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic("t/n/x"))
        rows = list(_brute_entries(reader, topic))
        for clock, column in (("publish", 0), ("broker", 1)):
            times = [row[column] for row in rows if row[column] is not None]
            found = read_skew(reader, topic, SkewOptions(clock))  # type: ignore[arg-type]
            assert found.inversions == sum(after < before for before, after in pairwise(times))
            assert found.entries == len(rows)
            assert found.messages == sum(row[2] for row in rows)
        for clock, bucket_ms in (("publish", 1000), ("broker", 777), ("auto", 60_000), ("auto", 86_400_000)):
            expected: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
            untimed = 0
            for publish_ms, broker_ms, messages, _, size in rows:
                auto = publish_ms if broker_ms is None else broker_ms
                time_ms = {"publish": publish_ms, "broker": broker_ms, "auto": auto}[clock]
                untimed += time_ms is None
                if time_ms is not None:
                    for index, amount in enumerate((1, messages, size)):
                        expected[time_ms // bucket_ms * bucket_ms][index] += amount
            counted = read_timeline(reader, topic, TimelineOptions(bucket_ms, clock))  # type: ignore[arg-type]
            assert [[*bucket] for bucket in counted.buckets] == [[k, *v] for k, v in sorted(expected.items())]
            assert counted.entries == len(rows) - untimed
            assert (counted.entries_without_time, counted.missing_entries, counted.entries_outside) == (untimed, 0, 0)
            stamps = [publish if clock == "publish" or broker is None else broker for publish, broker, *_ in rows]
            stamps = [at for at, row in zip(stamps, rows, strict=True) if clock != "broker" or row[1] is not None]
            edges = sorted({START_MS + 1_001, START_MS + 13_333, *sorted(stamps)[:: len(stamps) // 9 + 1]})
            for start, end in zip(edges, edges[2:], strict=False):
                part = read_timeline(reader, topic, TimelineOptions(bucket_ms, clock, start, end))  # type: ignore[arg-type]
                assert part.entries == sum(start <= at < end for at in stamps)
                assert part.entries + part.entries_outside + part.entries_without_time == len(rows)


def test_lost_and_damaged_entries_are_counted(cli: Cli, tmp_path: Path) -> None:
    made = [Made(START_MS + number, lost=number % 10 == 3) for number in range(100)]
    path = make_store(tmp_path / "s", {"t/n/x": MadeTopic([made], open_last=False)})
    log = path / "entries" / "0.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    status = log.stat()
    log.write_bytes(data)
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))
    with open_store(path) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic("t/n/x"))
        found = read_skew(reader, topic, SkewOptions())
        assert (found.entries, found.missing, found.unreadable) == (89, 10, 1)
        counted = read_timeline(reader, topic, TimelineOptions(7))
        assert (counted.entries, counted.missing_entries, counted.unreadable_entries) == (89, 10, 1)
    cli("--store", path, "topics", "skew", "t/n/x").ends(1, "1 entry is damaged and skipped")


def test_offsets_that_others_have_rounded_are_rounded_here_too() -> None:
    """Offsets of one producer, in two tables: one that kept each, and one that was full and keeps every eighth."""
    for first, second in (((3, 0), (40, 3)), ((40, 3), (3, 0))):
        table = _OffsetTable()
        for offset, shift in (first, second):
            table.join(np.array([[0, offset >> shift, 5]]), shift, np.array([0]))
        assert (table.shift, table.rows().tolist()) == (3, [[0, 0, 5], [0, 5, 5]])


def test_buckets_are_chosen_for_the_usual_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [Made(START_MS + 60_000 * number) for number in range(60)]
    made[7] = Made(START_MS + 10**11)
    path = make_store(tmp_path / "s", {"t/n/x": MadeTopic([made])})
    with open_store(path) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic("t/n/x"))
        first, last = usual_range(reader, topic, "auto") or (0, 0)
        monkeypatch.setattr(timeline, "BUCKETS_MAX", 60)
        assert len(read_timeline(reader, topic, TimelineOptions(60_000)).buckets) == 60
        monkeypatch.setattr(timeline, "BUCKETS_MAX", 59)
        with pytest.raises(LimitExceeded, match="more than 59 buckets of 60000 ms"):
            read_timeline(reader, topic, TimelineOptions(60_000))
    assert (first, last) == (START_MS, START_MS + 59 * 60_000)
    assert choose_bucket_ms(first, last) == 60_000
    assert choose_bucket_ms(5, 5) == 1
    units, shorter = (1000, 60_000, 3_600_000, 86_400_000), [one for one in BUCKET_SIZES_MS if one <= 86_400_000]
    assert all(next(unit for unit in units if unit >= size) % size == 0 for size in shorter), "they begin with the unit"
    assert [*BUCKET_SIZES_MS] == sorted({*BUCKET_SIZES_MS})
    assert choose_bucket_ms(0, 2**60) == 3640 * 86_400_000


def test_commands(cli: Cli, demo_store: Path, tmp_path: Path) -> None:
    common = ("--store", demo_store, "topics")
    document = cli(*common, "skew", "acme/iot/skewed", "-o", "json").json
    assert document["blame"] == "slow-clock"
    assert [row["producer"] for row in document["producers"] if row["blamed"]] == [
        *("slow-clock", "fast-clock", "on-time", "far-future")
    ]
    few, left = re.fullmatch(
        r".*?: (\d+) entries.*\n(\d+) entries are outside the times asked for\n.*",
        cli(*common, "timeline", "public/default/plain", "--end-time", "@1795252997000").stdout,
        re.DOTALL,
    ).groups()  # type: ignore[union-attr]
    assert (int(few) > 0, int(few) + int(left)) == (True, 300)
    table = cli(*common, "skew", "acme/iot/skewed").stdout.splitlines()
    assert len(table) == 5
    assert table[1].split()[:3] == ["persistent://acme/iot/skewed", "slow-clock", "60"]
    rows = cli(*common, "timeline", "acme/orders/parts", "--bucket", "1h", "-o", "jsonl").json_lines
    recorded = [
        row
        for name, topic in oracle("small")["topics"].items()
        if "orders/parts-partition" in name
        for row in topic["messages"]
    ]
    assert sum(row["messages"] for row in rows) == len(recorded)
    png, svg = tmp_path / "a.png", tmp_path / "a.svg"
    result = cli(*common, "timeline", "public/default/plain", "--png", png, "--svg", svg)
    assert max(map(len, result.stdout.splitlines())) <= 120
    assert "entries per" in result.stdout
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "<svg" in svg.read_text()
    assert cli(*common, "timeline", "public/default/plain", "--png", png).exit_code == 3
    assert cli(*common, "timeline", "public/default/plain", "--png", tmp_path / "a.jpg").exit_code == 2
    assert cli(*common, "timeline", "public/default/plain", "--clock", "event").exit_code == 2


def test_clocks_are_wrong_by_more_than_the_tolerance() -> None:
    for beyond in (False, True):
        future, late = misplaced(np.array([10, 20, 30, 5, 40]), 25 - beyond)
        assert (future.tolist(), late.tolist()) == ([False] * 5, [False, False, False, beyond, False])
        future, late = misplaced(np.array([10, 99, 20, 30]), 79 - beyond)
        assert (future.tolist(), late.tolist()) == ([False, beyond, False, False], [False] * 4)


_HOUR_MS, _OFF_MS = 3_600_000, 300_000


_FIRST_MS, _SECOND_MS, _NOW_MS = CREATED_MS, CREATED_MS + _HOUR_MS, CREATED_MS + 2 * _HOUR_MS


@pytest.mark.parametrize(
    ("second", "third", "closed", "told"),
    [
        (_SECOND_MS + _OFF_MS, _NOW_MS + _OFF_MS, _SECOND_MS, {}),
        (_FIRST_MS - _OFF_MS, _SECOND_MS - _OFF_MS, _SECOND_MS, {}),
        (_SECOND_MS + _OFF_MS + 1, _NOW_MS, _SECOND_MS, {"future_ledgers": 1, "ahead_ms": _OFF_MS + 1}),
        (_FIRST_MS - _OFF_MS - 1, _NOW_MS, _SECOND_MS, {"past_ledgers": 1, "behind_ms": _OFF_MS + 1}),
        (_SECOND_MS, _SECOND_MS - _OFF_MS - 1, _SECOND_MS, {"past_ledgers": 1, "behind_ms": _OFF_MS + 1}),
        (
            *(_SECOND_MS + _OFF_MS + 2, _NOW_MS + _OFF_MS + 1, _SECOND_MS),
            {"future_ledgers": 2, "ahead_ms": _OFF_MS + 2, "future_now": True},
        ),
        (_NOW_MS, _NOW_MS, _NOW_MS + _OFF_MS, {}),
    ],
)
def test_clocks_are_wrong_beyond_five_minutes(
    second: int, third: int, closed: int, told: dict[str, object], tmp_path: Path
) -> None:
    """Of ledgers whose entries have no broker's time: the first two were closed, the third is open."""
    topic = MadeTopic([[Made(_FIRST_MS)], [Made(second)], [Made(third)]], closed_ms=(_FIRST_MS, closed))
    path, name = make_store(tmp_path / "s", {"a/b/c": topic}), parse_topic("a/b/c")
    clocks = read_store(path, lambda reader: TopicFacts(reader, read_topic(reader.txn, name), _NOW_MS).clocks)
    assert clocks == Clocks(**told)  # type: ignore[arg-type]  # of their names
    ledgers = ((_FIRST_MS, _FIRST_MS, 0), (second, closed, _FIRST_MS), (third, 0, closed))
    on_time = [is_on_time(WholeLedger(1, 1, True, at, at), end, begin, _NOW_MS) for at, end, begin in ledgers]
    assert all(on_time) == (not told)


@pytest.mark.parametrize(("first", "second"), [(_NOW_MS + 24 * _HOUR_MS, _SECOND_MS), (_SECOND_MS, _FIRST_MS)])
def test_a_wrong_clock_of_a_broker_is_no_producers(first: int, second: int, tmp_path: Path) -> None:
    """Ledgers that were closed in the future, or earlier than the one before: nothing is known of who wrote to them."""
    topic = MadeTopic([[Made(_FIRST_MS)], [Made(_SECOND_MS)], [Made(_NOW_MS)]], closed_ms=(first, second))
    path, name = make_store(tmp_path / "s", {"a/b/c": topic}), parse_topic("a/b/c")
    clocks = read_store(path, lambda reader: TopicFacts(reader, read_topic(reader.txn, name), _NOW_MS).clocks)
    assert (clocks.ahead_ms, clocks.behind_ms, clocks.late_ledgers) == (0, 0, int(first > _NOW_MS))


@pytest.mark.parametrize("is_imported", [True, False])
def test_entries_that_were_not_imported_may_have_no_broker_time(is_imported: bool, tmp_path: Path, cli: Cli) -> None:
    """Those that were have one, by which brokers search: a note only if that is known of all."""
    topic = MadeTopic([[Made(_SECOND_MS, _FIRST_MS)], [Made(_SECOND_MS, lost=True)]], closed_ms=(_SECOND_MS,))
    path = make_store(tmp_path / "s", {"a/b/c": topic})
    if not is_imported:
        change_ledgers(path, lambda _, metadata: metadata)
    (found,) = cli.json(path, f"--now @{_NOW_MS} doctor --code clock-ahead")
    assert found["severity"] == ("note" if is_imported else "warning")
