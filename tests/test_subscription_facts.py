"""The facts of every subscription of the recorded worlds, against what their brokers answered and what a client read."""

import random
import re
import struct
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import adler32

import pytest
from msgspec.structs import replace
from pyroaring import BitMap

from pulsar_admin.store.codec.cursor import CursorState, PlainCursor, Position
from pulsar_admin.store.codec.message import encode_message_entry
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.facts import (
    backlogs,
    known,
    numbers,
    partitions,
    quiet,
    scalable,
    starts,
    topics,
    transactions,
    unclosed,
)
from pulsar_admin.store.facts.backlogs import Contents, CutMessage, read_contents, read_each_contents
from pulsar_admin.store.facts.numbers import Blocker
from pulsar_admin.store.facts.topics import TopicFacts, read_headers_together
from pulsar_admin.store.model.cursors import Extent, RankBits, extent_of, union
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import iter_topics, read_topic
from pulsar_admin.store.names import encode_name, parse_topic
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata
from pulsar_admin.store.reports.subscriptions import Asked, NotDue, SubscriptionFacts, iter_subscription_facts
from pulsar_admin.store.search.before_due import dropped_before_due, expiring_before_due
from tests.at_bounds import RECORD_HEAD, Answers, N, Texts, asking
from tests.conftest import Cli
from tests.live.comparing import place
from tests.stores import NOW_MS, copied, imported, lose_nodes, put_node
from tests.synthetic import Made, MadeTopic, make_store
from tests.worlds import CLUSTER, WORLD_NAMES, asked_topics, oracle

Json = Any  # a JSON value
WORLDS = (*WORLD_NAMES, CLUSTER)
ALL = Asked(messages=True, oldest=True, delayed_ms=NOW_MS)


def refuse(error: StoreError) -> None:
    raise error


def facts_by_topic(world: str, state: str, topics: Json) -> Iterator[tuple[Json, dict[str, SubscriptionFacts]]]:
    with open_store(imported(world, state)) as store, open_reader(store) as reader:
        for topic, answers in topics.items():
            found = {
                one.subscription: one for one in iter_subscription_facts(reader, [parse_topic(topic)], ALL, refuse)
            }
            assert all(str(one.topic) == str(parse_topic(topic)) for one in found.values())
            yield answers, found


def acknowledged(cursor: Json) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The (lower, upper] ranges that a broker prints."""
    pairs = re.findall(r"\((-?\d+:-?\d+)\.\.(-?\d+:-?\d+)\]", cursor["individuallyDeletedMessages"])
    return [(place(lower), place(upper)) for lower, upper in pairs]


def left_of(entries: Iterable[tuple[int, int]], cursor: Json) -> list[tuple[int, int]]:
    """The ENTRIES that CURSOR, as the broker printed it, has not acknowledged."""
    start, done = place(cursor["markDeletePosition"]), acknowledged(cursor)
    return [at for at in sorted(entries) if at > start and not any(low < at <= high for low, high in done)]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("state", "key"), [("clean", "internal_stats"), ("mutated", "internal_stats_after")])
def test_positions_and_ranges_are_the_brokers(world: str, state: str, key: str) -> None:
    compared = holes = 0
    topics = asked_topics(world) if state == "clean" else oracle(world)["topics"]
    for answers, found in facts_by_topic(world, state, topics):
        cursors = {name: cursor for name, cursor in answers[key]["cursors"].items() if name != "pulsar.dedup"}
        assert {encode_name(name) for name in found} == set(cursors)
        for one in found.values():
            cursor = cursors[encode_name(one.subscription)]
            assert str(one.mark_delete) == cursor["markDeletePosition"]
            assert one.ack_ranges == cursor["totalNonContiguousDeletedMessagesRange"]
            inside = sum(upper[1] - lower[1] for lower, upper in acknowledged(cursor) if lower[0] == upper[0])
            assert one.acknowledged_entries == inside
            compared += 1
            holes += one.ack_holes
    assert compared >= 20
    assert holes


@pytest.mark.parametrize("world", WORLDS)
def test_consumers_wait_where_a_broker_counts_a_backlog(world: str) -> None:
    """For those whose messages clients read: of no system topic, and of no cursor of compaction or deduplication."""
    asked, compared = asked_topics(world), 0
    with open_store(imported(world, "clean")) as store, open_reader(store) as reader:
        for name in iter_topics(reader.txn):
            facts = TopicFacts(reader, read_topic(reader.txn, name), NOW_MS)
            awaited = {one.cursor.name for one in facts.subscriptions if one.is_awaited}
            stats = asked.get(str(name).removeprefix("persistent://"), {"stats": {"subscriptions": {}}})["stats"]
            backlogs = {
                one for one, row in stats["subscriptions"].items() if row["msgBacklog"] and one != "__compaction"
            }
            assert awaited == (set() if name.is_system else backlogs), name
            compared += len(awaited)
    assert compared > 10


@pytest.mark.parametrize("world", WORLDS)
def test_backlogs_and_oldest_are_what_a_client_read(world: str) -> None:
    """Of topics without transactions, whose markers no client sees."""
    backlogs = oldest = late = 0
    for answers, found in facts_by_topic(world, "clean", asked_topics(world)):
        entries: dict[tuple[int, int], list[int]] = {}
        for row in answers["messages"]:
            entries.setdefault((row[0], row[1]), []).append(row[3])
        for one in found.values():
            stats = answers["stats"]["subscriptions"][one.subscription]
            assert one.backlog_entries == stats["msgBacklog"]
            assert one.backlog_bytes == stats["backlogSize"]
            assert one.properties == stats["subscriptionProperties"]
            backlogs += bool(one.backlog_entries)
            if len(entries) != answers["internal_stats"]["numberOfEntries"]:
                continue
            cursor = answers["internal_stats"]["cursors"][encode_name(one.subscription)]
            done = acknowledged(cursor)
            left = left_of(entries, cursor)
            assert one.backlog_messages == sum(len(entries[at]) for at in left)
            assert str(one.oldest_position) == (f"{left[0][0]}:{left[0][1]}" if left else "None")
            if left:
                oldest += 1
                assert one.oldest_publish_ms == entries[left[0]][0]
            behind = [at for at in left if done and at < done[-1][1]]
            assert one.hole_entries == len(behind)
            late += len(behind)
    assert backlogs > 10
    assert oldest > 10
    assert late


@pytest.mark.parametrize("world", WORLD_NAMES)
def test_what_is_not_due(world: str) -> None:
    """Due times are those that the producers asked for."""
    due: dict[str, dict[tuple[int, int], int]] = {}
    for row in oracle(world)["sent"]:
        if row["due"]:
            due.setdefault(row["topic"], {})[row["id"][0], row["id"][1]] = row["due"]
    compared = 0
    with open_store(imported(world, "clean")) as store, open_reader(store) as reader:
        for topic, times in due.items():
            answers = oracle(world)["topics"][topic.removeprefix("persistent://")]
            middle = sorted(times.values())[len(times) // 2]
            for one in iter_subscription_facts(reader, [parse_topic(topic)], Asked(delayed_ms=middle), refuse):
                waiting = left_of(times, answers["internal_stats"]["cursors"][encode_name(one.subscription)])
                later = [times[at] for at in waiting if times[at] > middle]
                assert one.delayed == NotDue(len(later), min(later, default=None), max(later, default=None))
                compared += bool(later)
    assert compared


def test_a_cursor_whose_ledger_is_gone_says_so(tmp_path: Any, damages_stores: None) -> None:
    path = copied("small", "crashed", tmp_path)
    with open_store(path) as store, open_reader(store) as reader:
        before = {
            (str(one.topic), one.subscription): one
            for topic in oracle("small")["topics"]
            for one in iter_subscription_facts(reader, [parse_topic(topic)], Asked(), refuse)
        }
    (topic, name), whole = next((key, one) for key, one in before.items() if one.source == "cursor-ledger")
    text = f"{whole.cursor_ledger:010d}"
    assert lose_nodes(path, f"/ledgers/{text[:2]}/{text[2:6]}/L{text[6:]}") == 1
    with open_store(path) as store, open_reader(store) as reader:
        lost = {
            one.subscription: one for one in iter_subscription_facts(reader, [parse_topic(topic)], Asked(), refuse)
        }[name]
    assert lost.source == "metadata-fallback"
    assert lost.mark_delete <= whole.mark_delete


def test_what_cannot_be_read_is_told_and_the_rest_goes_on() -> None:
    problems: list[StoreError] = []
    names = [parse_topic("public/default/no-such"), parse_topic("public/default/plain")]
    with open_store(imported("small", "clean")) as store, open_reader(store) as reader:
        found = list(iter_subscription_facts(reader, names, Asked(), problems.append))
        assert [error.code for error in problems] == ["topic-not-found"]
        assert {str(one.topic) for one in found} == {"persistent://public/default/plain"}
        with pytest.raises(StoreError, match="no-such"):
            list(iter_subscription_facts(reader, names, Asked(), refuse))


def test_policies_that_cannot_be_read_hide_no_subscription(store: Path, cli: Cli, damages_stores: None) -> None:
    put_node(store, "/admin/policies/public/default", b"{")
    arguments = ("--store", store, "topics", "describe", "public/default/plain", "-o")
    whole = cli("--store", imported("small", "clean"), *arguments[2:], "json").json
    result = cli(*arguments, "json").ends(1)
    assert result.json["policies"] is None
    left = [(one["subscription"], one["backlogEntries"]) for one in result.json["subscriptions"]]
    assert left == [(one["subscription"], one["backlogEntries"]) for one in whole["subscriptions"]]
    assert "policies    cannot be read\n" in cli(*arguments, "plain").stdout


def test_an_extent_is_the_sum_of_its_entries() -> None:
    """Of intervals within blocks, across ledgers, few and as bitmaps."""
    source = random.Random(5)
    with open_store(imported("small", "clean")) as store, open_reader(store) as reader:
        for name in [*iter_topics(reader.txn)][::3]:
            topic = read_topic(reader.txn, name)
            each = [extent_of(reader.txn, topic, ((rank, rank + 1),)) for rank in range(topic.number_of_entries)]
            for _ in range(10 if each else 0):
                starts = [source.randrange(len(each)) for _ in range(source.randint(0, 8))]
                found = union((start, min(start + source.randint(0, 40), len(each))) for start in starts)
                expected = sum((each[rank] for start, end in found for rank in range(start, end)), Extent())
                bits = RankBits(BitMap(rank for start, end in found for rank in range(start, end)))
                assert bits == found
                assert extent_of(reader.txn, topic, found) == extent_of(reader.txn, topic, bits) == expected


@pytest.mark.parametrize("world", WORLDS)
def test_headers_that_are_read_together_say_what_each_backlog_says_alone(world: str) -> None:
    with open_store(imported(world, "clean")) as store, open_reader(store) as reader:
        topics = [TopicFacts(reader, read_topic(reader.txn, name), NOW_MS) for name in iter_topics(reader.txn)]
        backlogs = [one for topic in topics for one in topic.subscriptions if one.is_awaited]
        alone = [known(one.headers) for one in backlogs]
        for one in backlogs:
            del vars(one)["headers"]
        read_headers_together(backlogs, NOW_MS)
        together = [vars(one)["headers"] for one in backlogs]
    assert [replace(one, first_publish_ms=None) for one in together] == alone


def test_what_backlogs_contain_is_counted_to_the_entry_and_the_moment(tmp_path: Path) -> None:
    """Every part of a topic against a loop over what was written: due before, at and after now, batches, markers, chunks."""
    now_ms, written = 1000, list[list[Made]]()
    kinds = [(due, batch, False, -1) for due in (now_ms - 1, now_ms, now_ms + 1, 2000, 0) for batch in (0, 1, 2)]
    kinds[7:7] = [(0, 0, False, 0), (0, 2, True, -1), (0, 0, False, 1)]  # two chunks around a marker of a batch
    for rank, (due, batch, is_marker, chunk) in enumerate(kinds):
        metadata = MessageMetadata(producer_name="p", sequence_id=rank, publish_time=rank)
        if due:
            metadata.deliver_at_time = due
        if batch:
            metadata.num_messages_in_batch = batch
        if is_marker:
            metadata.marker_type = 10
        if chunk >= 0:
            metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg, metadata.total_chunk_msg_size = (
                "u",
                chunk,
                2,
                2,
            )
        written += [[]] if rank in (0, 8) else []
        written[-1].append(Made(0, raw=encode_message_entry(metadata, b"x")))
    with (
        open_store(make_store(tmp_path / "s", {"a/b/c": MadeTopic([*written, []])})) as store,
        open_reader(store) as reader,
    ):
        topic = read_topic(reader.txn, parse_topic("a/b/c"))
        parts = [((start, end),) for start, end in combinations(range(len(kinds) + 1), 2)]
        parts += [(one, other) for (one,), (other,) in product(parts[::5], parts[::3]) if one[1] < other[0]]
        expected = []
        for intervals in parts:
            ranks = [rank for start, end in intervals for rank in range(start, end)]
            dues, chunks = [kinds[rank][0] for rank in ranks], [rank for rank in ranks if kinds[rank][3] >= 0]
            waiting = [due for due in dues if due > now_ms]
            expected.append(Contents(
                len(ranks), sum(max(kinds[rank][1], 1) for rank in ranks) - (8 in ranks), 8 in ranks, 7 in ranks,
                sum(0 < due <= now_ms for due in dues),
                NotDue(len(waiting), min(waiting, default=None), max(waiting, default=None)), ranks[0],
                () if len(chunks) == 2 else tuple(chunks),
            ))  # fmt: skip
        asked = [(topic, intervals) for intervals in parts]
        assert read_each_contents(reader, asked, now_ms) == expected
        alone = [replace(one, first_publish_ms=None) for one in expected]
        assert [read_contents(reader, topic, intervals, now_ms) for intervals in parts] == alone
        bits = [RankBits(BitMap(rank for start, end in intervals for rank in range(start, end))) for intervals in parts]
        assert [read_contents(reader, topic, intervals, now_ms) for intervals in bits] == alone
        dues = [(due, rank) for rank, (due, *_) in enumerate(kinds) if due]
        start: Any = SimpleNamespace(state=CursorState(topic.first_position))
        for late_ms in (-1, *range(now_ms - len(kinds), now_ms + 3)):  # each entry was published at its rank
            for found, early in (
                (
                    dropped_before_due(reader, topic, ((0, len(kinds)),), late_ms),
                    [one for one in dues if one[0] > late_ms],
                ),
                (
                    expiring_before_due(reader, topic, start, late_ms),
                    [one for one in dues if one[0] - one[1] > late_ms],
                ),
            ):
                first = [(one.due_ms, topic.rank(one.position)) for one in found.first]
                assert (found.messages, first) == (len(early), sorted(early)[:5])


def test_messages_without_a_time_of_delivery_are_not_delayed() -> None:
    from pulsar_admin.store.db.environment import open_store
    from pulsar_admin.store.facts.backlogs import read_contents
    from pulsar_admin.store.model.reader import open_reader
    from pulsar_admin.store.model.topics import read_topic
    from pulsar_admin.store.names import parse_topic

    with open_store(imported("small", "clean")) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic("public/default/plain"))
        found = read_contents(reader, topic, [(0, topic.number_of_entries)], 0)
    assert (found.entries, found.due) == (topic.number_of_entries, 0)


ANSWERS: Answers = {
    backlogs._find_cut_at: [
        ((N(around=lambda edge: {"a": {1: 50}, "b": {0: 51, 1: 52}}, is_read=lambda *of: False, whole_from=lambda rank: 51,
            at=lambda rank: N(number=0, total=2, producer="p", uuid="b"), topic=N(at_rank=lambda rank: Position(1, rank))),
          [(40, 52)], [2**20]), CutMessage(Position(1, 51), 0, 2, "p", (1,), Position(1, 51), False, Position(1, 51), 0))],
    backlogs._Chunk.is_last: [((N(number=1, total=2),), True), ((N(number=0, total=2),), False)],
    backlogs._Chunks.is_read: [((N(_unread=set()), 0, 1), True), ((N(_unread=set()), -1, 1), False)],
    backlogs._Chunks.whole_from: [
        ((N(around=lambda rank: {"u": {0: 3, 1: 5}}), rank), answer) for rank, answer in ((3, 3), (5, 3))],
    numbers._iter_blockers: [
        (("t", [1, 2, 4], [0, 3, 6, 9], [3, place], (1, 1, "s")),
         [Blocker("t", "trim", "", 1, 1), Blocker("t", "cursor", "s", 1, 2, others), Blocker("t", "open-ledger", "", 1, 4)])
        for place, others in ((5, 1), (6, 0))],
    partitions.Partitions.counts_too_many: [
        ((N(there=(last,), record=None),), last > 10_000) for last in (10_000, 10_001)],
    partitions.Partitions.missing: [((N(record=N(partitions=2), there=(0, last)),), last - 1) for last in (1, 2)],
    partitions.Partitions.beyond: [((N(record=N(partitions=2), there=(0, 1, 2)),), (2,))],
    quiet._needs: [((PlainCursor((1, 1), [(1, 2, 4)]), 1, 4), False), ((PlainCursor((1, 1), [(1, 2, 4)]), 1, 5), True),
        ((PlainCursor((1, -1), [(1, -1, 2)]), 1, 4), True)],
    quiet._pin_nothing: [
        (([(1, 5), (2, 0)], [PlainCursor((1, entry), [(2, -1, 0)])]), answer)
        for entry, answer in ((4, True), (3, True))],
    scalable.ScalableFacts.is_pruned: [
        ((N(record=N(segments=[1, 2], next_segment_id=following)),), following > 2) for following in (2, 3)],
    starts._replay: [
        ((b"",), (0, "", 0)), ((bytes(15),), (0, "a log of 15 bytes, without a header", 0)), ((RECORD_HEAD,), (16, "", 0)),
        *(((RECORD_HEAD + struct.pack(">qi", 0, size) + bytes(9),), (16, why, longest))
          for size, why, longest in ((0, "", 0), (-1, "a record of -1 bytes (Unreasonable length)", 0), (20 << 20, "", 20 << 20),
            ((20 << 20) + 1, "a record of 20971521 bytes (Unreasonable length)", 0))),
        ((RECORD_HEAD + struct.pack(">qi", 1, 0) + b"B",), (16, "", 0)),
        ((RECORD_HEAD + struct.pack(">qi", 0, -2),), (16, "a record of -2 bytes (Unreasonable length)", 0)),
        ((RECORD_HEAD + struct.pack(">qi", adler32(b"x"), 1) + b"xB",), (30, "", 1)),
        ((RECORD_HEAD + struct.pack(">qi", adler32(b"x"), 1) + b"x",), (16, "", 1)),
        ((RECORD_HEAD + struct.pack(">qi", 1, 1) + b"xB",), (16, "a record with a wrong checksum (CRC check failed)", 1))],
    topics.ReadBudget.has_edges: [((N(unlimited=False, edges_left=left),), left > 0) for left in (0, 1)],
    topics.ReadBudget.take: [((N(unlimited=False, left=10**6), 100_000), True),
        ((N(unlimited=False, left=10**6), 100_001), False)],
    transactions.never_replays: [
        ((None, N(number_of_entries=0, ids=[5]), Position(*place)), answer)
        for place, answer in (((4, 0), True), ((4, -1), False))],
    transactions.PendingAckLog.replayed_until: [
        ((N(mark_delete=Position(1, 4), lost=[N(ledger_id=1, lost=[(2, last)])]),), answer)
        for last, answer in ((5, Position(1, 5)), (4, None))],
    unclosed.last_write_ms: [
        ((N(end_publish_ms=1, broker_count=count, broker_max_ms=9, publish_max_ms=5),), answer)
        for count, answer in ((0, 5), (1, 9))],
    starts._stop: [((Path("/nowhere"), 0, {}), (0, "No such file or directory"))],
    backlogs._Chunks._look: [  # no entry is read before the first or after the last
        ((N(_read={}, _unread=set(), topic=N(number_of_entries=2, at_rank=partial(Position, 7)), _reader=N(read=lambda *ids: int("x"))),
          rank), answer) for rank, answer in ((-1, (False, None)), (0, ValueError), (1, ValueError), (2, (False, None)))],
}  # fmt: skip
SAID: Texts = {
    starts._why_closed: [((Path("/nowhere"),), "")],
    starts._replay: [((b"x" * 16,), "no header of a log, but b'xxxx'")],
}  # fmt: skip
test_at_bounds = asking(ANSWERS, said=SAID)
