"""Rules at their bounds: facts that just break a rule, and facts that just do not."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pulsar_admin.store.codec.cursor import Position
from pulsar_admin.store.facts import Unknown
from pulsar_admin.store.model.broken import NO_METADATA
from pulsar_admin.store.model.cursors import DEDUP_CURSOR
from pulsar_admin.store.rules import (
    backlogs,
    bookies,
    index,
    partitions,
    rule,
    scalable,
    starts,
    storage,
    subscriptions,
    topics,
    transactions,
)
from pulsar_admin.store.rules.finding import Severity
from tests.at_bounds import A_TOPIC, DAY, UNREADABLE, Answers, N, Texts, asking, called

GIB, MIB, NOTE, WARNING = 1 << 30, 1 << 20, Severity.NOTE, Severity.WARNING
DEDUP = N(mark_deletes={DEDUP_CURSOR: Position(1, 1)}, is_deduplicated=None, unseen_cursors=frozenset())
MANY = [N(entries=100)] * 999
FIRST = N(born_ms=5, position=Position(1, 2), deliver_at_ms=5)
OF_TTL = N(ttl=N(seconds=60, source="namespace"), next_message=FIRST, overdue=None, cursor=N(name="s"))
CHILD = N(segment_id=2, topic="two", parents=(1,), children=(), start=5, end=9, is_active=True)
PARENT = N(segment_id=1, topic="one", parents=(), children=(2,), start=0, end=9, is_active=False)
HOLDING = N(
    mark_deletes=("s",),
    has_ranges=True,
    unreadable_cursors=False,
    unseen_cursors=False,
    consumed=(1, ("s", Position(7, 1))),
    retention=N(time_minutes=0),
    topic=N(
        name="t",
        ranks=[0, 5, 10, 15, 20],
        at_rank=lambda rank: f"at {rank}",
        place=lambda at: at.entry_id,
        ledgers=[N(entries=5, size_bytes=1)] * 4,
    ),
)
OF_EIGHT = N(name="t", number_of_entries=8, at_rank=lambda rank: f"7:{rank}", rank=lambda position: position.ledger_id)
LISTED = N(of=N(topic=OF_EIGHT, broken=()), cursor=N(name="s"))
LOSS = N(
    entries_before=0, entries=1, first=Position(1, 1), last=Position(1, 1),
    broken=N(ledger_id=1, what=str, fate="is lost", reason="x", cure="", broker=str, lost=()),
)  # fmt: skip


def _segment(segment_id: int, start: int, end: int, **more: Any) -> SimpleNamespace:
    ids = {"parents": (), "children": (), "is_active": True, "topic": segment_id}
    return N(segment_id=segment_id, start=start, end=end, **(ids | more))


ANSWERS: Answers = {
    partitions._numbered: [(([1], 1), "partition 1")],
    bookies._needs: [
        (([N(ledger_id=number, needed="x") for number in range(count)],), answer)
        for count, answer in ((1, "; ledger 0: x"), (2, "; ledger 0: x, and 1 more that are needed"))],
    rule.first_of: [((range(11),), [*range(10)])],
    starts._no_snapshot: [
        ((N(values={"first": first}),), "logs but no snapshot (No snapshot found, but there are log entries): a server starts only "
         f"with zookeeper.snapshot.trust.empty=true, which bin/pulsar sets{more}")
        for first, more in ((1, ""), (2, ", and it would start without the transactions before 0x2"))],
    starts._older_snapshot: [
        ((N(values={"base": 5, "first": first, "names": ["a"]}),), f"a cannot be read: a server starts from snapshot.5 {more}")
        for first, more in (
            (6, "and its logs from there on"),
            (7, "and forgets what came after it, because those logs are missing: the first one begins at 0x7"))],
    subscriptions.stores_most_ranges: [
        ((N(cursor=N(state=N(ranges=range(count)))),), count >= 10_000) for count in (9_999, 10_000)],
    subscriptions._is_young: [
        ((N(next_message=N(born_ms=born_ms), of=N(now_ms=3 * DAY)),), born_ms > 0) for born_ms in (0, 1)],
    topics._needed: [
        (([((3, 5),)], start, end), answer)
        for start, end, answer in ((5, 9, False), (4, 9, True), (0, 3, False), (0, 4, True))],
    topics._by_size: [((100 * 2**20,), Severity.WARNING), ((100 * 2**20 - 1,), Severity.NOTE)],
}  # fmt: skip
JUDGED: dict[Callable[..., object], list[tuple[Any, list[Severity | str | None]]]] = {
    topics._holds: [
        ((N(**vars(DEDUP), held_by=lambda name, size=size: (1, size),
            topic=N(entries_after=lambda at, after=after: after)),), told)
        for after, size, told in ((10**6, 0, [WARNING]), (10**6 - 1, 0, []), (0, 100 * MIB, [None]),
            (0, 100 * MIB - 1, []))]
        + [((N(**vars(DEDUP) | more),), []) for more in ({"is_deduplicated": False}, {"unseen_cursors": {DEDUP_CURSOR}})],
    topics._ledgers_tiny: [
        ((N(topic=N(ledgers=[N(entries=first), *more, N(entries=0)])),), told)
        for first, more, told in ((100, MANY, []), (99, MANY, [None]), (0, MANY[:-1], []))],
    topics._ledger_huge: [
        ((N(where="t", topic=N(ledgers=[N(ledger_id=1, size_bytes=10 * GIB + more, info=N(offloaded=offloaded))])),),
            told) for more, offloaded, told in ((0, False, []), (1, False, ["bytes in one ledger"]))],
    topics._ledger_list_large: [
        ((N(topic=N(ledgers=range(count)), node_bytes=size),), told)
        for count, size, told in ((999, MIB, []), (1000, MIB // 2, [None]), (1000, MIB // 2 - 1, []), (1000, 943_718, [None]),
                                  (1000, 943_719, [Severity.CRITICAL]))],
    topics._compaction_stale: [
        ((N(compaction_cursor=N(mark_delete="1:1"), mark_deletes=range(count), compaction_threshold=None, unseen_cursors=(),
            held_by=lambda name, size=size: (1, size)),), told)
        for count, size, told in ((1, 1, []), (2, 0, []), (2, 100 * MIB - 1, [NOTE]), (2, 100 * MIB, [WARNING]))],
    topics._hole_pins_ledgers: [  # the last ledger stays in any case, and those before the slowest position are consumed
        ((N(**vars(HOLDING) | {"subscriptions": [N(pending=pending)]} | more),), told) for pending, more, told in (
            (((1, 2),), {}, ["message at 1 is not acknowledged: 2 ledgers after it of 2 bytes"]),
            (((1, 6), (10, 11)), {}, []), (((1, 5), (14, 15)), {}, ["1 ledger after it"]), (((1, 2), (15, 20)), {}, ["2 ledgers"]),
            (((1, 2),), {"retention": N(time_minutes=-1)}, []), (((1, 2),), {"has_ranges": False}, []),
            (((1, 2),), {"unreadable_cursors": True}, []), (((1, 2),), {"unseen_cursors": True}, []),
            (((1, 2),), {"consumed": (1, None)}, []))],
    topics._clock: [
        ({"facts": N(wrong_producers={"future": count},
            broken=(), clocks=N(ahead_ms=off_ms, behind_ms=0, future_ledgers=1, past_ledgers=0, is_stamped=True)),
            "is_ahead": True}, told) for off_ms, count, told in ((599_999, 2, ["2 entries up to 9m59s ahead"]),
            (0, 1, []), (36_000_000, 0, ["entries up to 10h ahead"]), (864_000_000, 0, ["entries up to 10d ahead"]))],
    storage._dead_bytes: [
        ((N(stuck_logs=[N(live_bytes=live, size_bytes=100, dead_bytes=dead, path="a/0.log", kept_for="t")]),), told)
        for live, dead, told in ((49, 1, []), (50, 10 * GIB - 1, [NOTE]), (50, 10 * GIB, [WARNING]))],
    storage._full_disks: [
        ((N(disks=[("d", N(total=total, used=used, free=0))]),), told)
        for total, used, told in ((100, 95, ["95%"]), (1000, 949, []))],
    storage._leaked: [
        ((N(vanished=N(off_list=off), reader=UNREADABLE, leaked=[
            N(ledger_id=number, claims={}, reason="", entries=1, size_bytes=GIB // count - less) for number in range(count)]),), told)
        for count, less, off, told in ((1, 0, (), [WARNING]), (1, 1, (), [NOTE]), (5, 0, (), ["ledgers 0, 1, 2, 3, 4"]))],
    backlogs._markers: [
        ((N(contents=N(markers=markers, entries=entries), of=N(where="t"), cursor=N(name="s"), cursor_bookies=unseen),), told)
        for markers, entries, unseen, told in ((1, 2, (), ["1 entry is left"]), (1, 3, (), []), (0, 0, (), []), (2, 2, "b", []))],
    scalable._wrong_relations: [
        ((N(record=N(next_segment_id=following, segments=[N(**vars(PARENT) | parent), N(**vars(CHILD) | segment)])),),
            told)
            for following, parent, segment, told in (
            (2, {}, {}, ["segment 2 has the id that the next segment gets (2)"]), (3, {"end": 5}, {}, []),
            (3, {"end": 4}, {}, ["segment 2 has none of the hashes of its parent 1"]), (3, {"start": 9}, {}, []),
            (3, {"is_active": True}, {}, ["segment 1 is active and has children"]),
            (3, {"topic": "two"}, {}, ["segments 1 and 2 are the same ledger, two"]),
            (5, {"segment_id": 3}, {},
            ["child 2, which has no such", "segment 2 has the parent 1, which is not in the record"]),
            (5, {}, {"segment_id": 3},
            ["segment 1 has the child 2, which is not in the record", "parent 1, which has no such child"]),
            (3, {}, {"parents": (1, 2), "children": (2,), "is_active": False}, ["they form a circle"]))],
    starts._long_record: [
        ((N(where="log.1", values={"size": 2 * (10 << 20) + more}),), [told])
        for more, told in ((0, "10485760, which is enough"), (1, "more than what bin/pulsar sets"))],
    subscriptions._lost: [
        ({"facts": N(**vars(LISTED), loss=N(**vars(LOSS), end=end)), "is_next": True}, [told])
        for end, told in ((8, "clear-backlog t"), (7, "reset-cursor t -s s -m 7:7"))] + [
        ({"facts": N(**vars(LISTED), loss=N(**vars(LOSS) | {"broken": N(**vars(LOSS.broken) | broken)}, end=8)), "is_next": True}, [told])
        for broken, told in (({"cure": "cure it"}, "cure it"), ({"reason": NO_METADATA}, "ledgers restore 1"))] + [
        ({"facts": N(of=N(topic=OF_EIGHT, broken=(N(**vars(LOSS.broken) | {"ledger_id": 5, "lost": ((0, last),)} | after),)),
            cursor=N(name="s"), loss=N(**vars(LOSS), end=5)), "is_next": True}, [told])  # what follows is lost as well
        for last, after, told in ((1, {}, "-m 7:7"), (2, {}, "clear-backlog t"), (2, {"cure": "cure it"}, "cure it"))] + [
        ({"facts": N(loss=loss, cursor=None), "is_next": False}, []) for loss in (None, N(entries_before=0))],
    subscriptions._delayed: [
        ({"facts": N(not_due=N(next_due_ms=9, last_due_ms=9, entries=1), next_message=FIRST, of=N(now_ms=now_ms),
            pending_entries=1, producer=None), "is_next": False}, told)
        for now_ms, told in ((5, ["1 of 1 entry"]),
            (4, []))] + [({"facts": N(not_due=not_due, next_message=None, of=N(now_ms=5)), "is_next": False}, [])
        for not_due in (N(next_due_ms=None, last_due_ms=9), N(next_due_ms=9, last_due_ms=None))],
    subscriptions._ttl_later: [
        ((N(**vars(OF_TTL), of=N(now_ms=now_ms, ttl_check=None, topic=N(name="t"))),), told)
        for now_ms, told in ((5, ["1:2"]), (4, []))] + [((
            N(**vars(OF_TTL) | more, of=N(now_ms=5, ttl_check=None, topic=N(name="t"))),), told)
        for more, told in (({"ttl": None}, []), ({"overdue": Unknown("x")}, []), ({}, ["at 1970-01-01T00:01:00.005Z"]),
            ({"overdue": N(extent=N(entries=1))}, []))],
    transactions._replay_endless: [
        ((N(pending_ack_log=N(endless_until=Position(ledger, -1), mark_delete="m", name=A_TOPIC), of=N(where="t"), cursor=N(name="s")),),
         [told])
        for ledger, told in ((-1, "lists no ledger"), (0, "is empty and ends at 0:-1"))],
}  # fmt: skip
"""By rule: facts, and the severity of what it finds (None: its own), or words of it."""
SAID: Texts = {
    index._check_block: [((0, N(ledger_id=7, header=N(first_slot=0, messages=2, payload_bytes=0, digest_bytes=0),
        slots=lambda: [0, 0], message_counts=lambda: [1, 1], sizes=lambda: np.array([32, 32]), files=lambda: 3,
        offsets=lambda: np.array([0, 0])), {}), said) for said in ("its entries are not in ascending order",
        "it points to file 3, which is not catalogued")],
    starts._older_snapshot: [((N(values={"base": 16, "first": None, "names": ["snapshot.20"]}),),
        "snapshot.20 cannot be read: a server starts from snapshot.10 and forgets everything after it")],
    subscriptions._says: [((N(marker="TXN_COMMIT", publish_ms=0), 0), "a marker, TXN_COMMIT, of 1970-01-01")],
    subscriptions._ttl_unknown: [((N(of=N(message_ttl=None), pending=((0, 1),), overdue=Unknown("it is damaged"),
        future_dated=None, ttl_conflict=None),), "The effect of the TTL is unknown: it is damaged.")],
    subscriptions._ranges_limit: [((N(cursor=N(name="s", state=N(ranges=range(10_000)))),), "s stores 10,000 ranges")],
    subscriptions.quota_effect: [((N(slowest=slowest, quota=N(policy="x"), evicts=True), N(is_deduplicated=True)), said)
        for slowest, said in (("__compaction", "drops the compacted view"), ("pulsar.repl.eu", "that cluster eu has not received"),
        ("pulsar.dedup", "forgets the sequence ids"), ("s", "drops the oldest messages"))],
    scalable._relations: [((N(scalable_topics=[N(name="t", record=N(next_segment_id=1, segments=[_segment(1, 0, 4,
        parents=[5],
        children=[6])]))]),), "; 3 more relations like that")],
    topics._over_quota: [((N(quotas=(N(is_reached=True, slowest="s", quota=N(policy="x", limit_size_bytes=1,
        limit_time_seconds=1),
        closed_ms=1, used=5000, limit=1000, evicts=True, source="topic", kind="k"),), backlog_size_bytes=lambda _: 1, where="t",
        topic=N(name="t"),
        is_deduplicated=None),), "its oldest ledger with a backlog was closed 5s ago, 1s allowed: a broker drops the oldest messages")],
}  # fmt: skip
test_at_bounds = asking(ANSWERS, said=SAID)


@pytest.mark.parametrize("rule", JUDGED)
def test_a_rule_at_its_bounds(rule: Callable[..., object]) -> None:
    for given, expected in JUDGED[rule]:
        found: Any = called(rule, given)
        told = [found] if isinstance(found, str) else found
        assert len(told) == len(expected), (given, told)
        for one, wanted in zip(told, expected, strict=True):
            is_severity = wanted is None or isinstance(wanted, Severity)
            assert one.severity is wanted if is_severity else wanted in str(one), given
