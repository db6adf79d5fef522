"""Clusters made up at random, whose truth is known: whatever producers do, no two topics are joined, and much is found."""

import random
from collections import Counter, defaultdict
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from msgspec import Struct, field

from pulsar_admin.store.names import parse_topic
from pulsar_admin.store.recovery.chains import (
    Chains,
    LedgerGroup,
    _name_by_transactions,
    _name_pending_acks,
    _NamesSaid,
    find_chains,
)
from pulsar_admin.store.recovery.evidence import (
    CURSOR,
    MESSAGES,
    PENDING_ACKS,
    TRANSACTIONS,
    LedgerEvidence,
    Producer,
    ProducerRun,
)
from tests.deep import deep_but_for

_LEDGER = 12


class _Topic(Struct):
    """A topic that is written: its ledgers, as (producer, sequence id, time) an entry."""

    name: str
    indexed: bool
    consumed: bool
    ledgers: dict[int, list[tuple[Producer, int, int]]] = field(default_factory=dict)
    open: int = -1


def _world(seed: int) -> tuple[list[LedgerEvidence], dict[int, str]]:
    """Topics with producers of every kind: given names, names that topics share, counters that topics share, replicated ones, restarts."""
    rng = random.Random(seed)
    topics = [_Topic(f"t{number}", rng.random() < 0.4, rng.random() < 0.4) for number in range(rng.randint(2, 6))]
    writers: list[tuple[_Topic, Producer, str]] = []
    for number, topic in enumerate(topics):
        for turn in range(rng.randint(1, 3)):
            name, cluster = rng.choice(
                [(f"prod-0-{number * 10 + turn}", ""), ("shared", ""), ("other", ""), ("all", ""), ("west-0-1", "west")]
            )
            writers.append((topic, Producer(name, cluster), name))
    counters: Counter[tuple[str, str]] = Counter()
    ids, now_ms = 0, 1_000_000
    for _ in range(rng.randint(200, 900)):
        topic, producer, name = rng.choice(writers)
        key = ("", name) if name == "all" else (topic.name, name)  # one counter of the application for all topics
        if name in ("shared", "other") and rng.random() < 0.01:
            counters[key] = 0
        if topic.open < 0 or len(topic.ledgers[topic.open]) >= _LEDGER:
            topic.open, ids = ids, ids + 1
            topic.ledgers[topic.open] = []
        now_ms += rng.randint(0, 3)
        topic.ledgers[topic.open].append((producer, counters[key], now_ms))
        counters[key] += 1
    found: list[LedgerEvidence] = []
    for topic in topics:
        before = 0
        for ledger_id, rows in topic.ledgers.items():
            if rng.random() < 0.9:  # some are lost
                found.append(_evidence(ledger_id, rows, before if topic.indexed else None))
            before += len(rows)
        if topic.consumed and topic.ledgers:
            points = {one: (0, len(rows) - 1) for one, rows in topic.ledgers.items()}
            found.append(LedgerEvidence(ids, "cursor", 1, 0, 0, 0, points=points))
            ids += 1
    return found, {ledger: topic.name for topic in topics for ledger in topic.ledgers}


def _evidence(ledger_id: int, rows: list[tuple[Producer, int, int]], before: int | None) -> LedgerEvidence:
    sent: dict[Producer, list[tuple[int, int, int]]] = defaultdict(list)
    for entry, (producer, number, time_ms) in enumerate(rows):
        sent[producer].append((number, time_ms, entry))
    runs = {}
    for producer, mine in sent.items():
        numbers = [number for number, _, _ in mine]
        jumps = sum(b != a + 1 for a, b in pairwise(numbers))
        ends = (mine[0][1], mine[-1][1], mine[0][2], mine[-1][2])
        runs[producer] = ProducerRun(
            numbers[0], numbers[-1], min(numbers), max(numbers), len(mine), len(mine), jumps, *ends
        )
    index = None if before is None else (before - 1, before, before + len(rows) - 1)
    return LedgerEvidence(ledger_id, "messages", len(rows), 0, len(rows) - 1, 0, len(rows), runs, index)


@deep_but_for((0, 4), "first", range(0, 400, 50))
def test_no_two_topics_are_joined(first: int) -> None:
    joined = 0
    for seed in range(first, first + 50):
        evidence, topics = _world(seed)
        chains = find_chains(evidence)
        for group in chains.groups:
            assert len({topics[one] for one in group.ledger_ids}) == 1, (seed, group, chains.joins)
        ledgers = [one for group in chains.groups for one in group.ledger_ids]
        assert sorted(ledgers) == sorted(one.ledger_id for one in evidence if one.kind == "messages")
        joined += len(ledgers) - len(chains.groups)
    assert joined > 300


def test_many_topics_with_producers_of_one_name_stay_apart_and_cost_by_their_number() -> None:
    """Pairs of ledgers that may follow each other would be four million."""
    shared, topics = Producer("app"), 2_000
    evidence = [_evidence(one, [(shared, one // topics, one)], None) for one in range(2 * topics)]
    chains = find_chains(evidence)
    assert (len(chains.groups), len(chains.joins)) == (2 * topics, 0)
    assert {join.refused for join in chains.refused} == {"more than one ledger continues these numbers"}
    assert len(chains.refused) <= 2 * topics
    # One of them has a second producer, too, and a third: these join it.
    own = [Producer("one-of"), Producer("another-of")]
    for ledger in (7, topics + 90):
        rows = [(who, ledger // topics, ledger) for who in (shared, *own)]
        evidence[ledger] = _evidence(ledger, rows, None)
    (join,) = find_chains(evidence).joins
    assert (join.ledger_id, join.next_id) == (7, topics + 90)
    assert [one.split()[1] for one in join.witnesses] == ["app", "one-of", "another-of"]


def test_a_topic_of_very_many_ledgers() -> None:
    """Each ledger is held against its neighbour alone: against all before it they would be 800 million comparisons."""
    given, ledgers = Producer("prod-0-1"), 40_000
    evidence = [_evidence(one, [(given, one, one)], one) for one in range(ledgers)]
    (group,) = find_chains(evidence).groups
    assert group.ledger_ids == tuple(range(ledgers))


def test_transactions_name_groups_behind_others_that_they_do_not_name() -> None:
    """Before them are groups of other kinds, of no transaction, and of one whose topic has no name that can be."""
    topic, other = "persistent://a/b/c", "persistent://a/b/d"
    told = {(0, 1): (other,), (0, 2): (other,), (0, 3): (f"{topic}\0s",), (0, 4): ("persistent://\0s",)}
    kinds = [CURSOR, MESSAGES, MESSAGES, PENDING_ACKS, PENDING_ACKS, PENDING_ACKS, TRANSACTIONS]
    mine = {2: [(0, 1), (0, 2)], 5: [(0, 4)], 6: [(0, 3)], 7: told}
    by_ledger: dict[int, Any] = {
        at: SimpleNamespace(kind=kind, points={3: (0, 1)} if at >= 5 else {}, txns=mine.get(at, {}))
        for at, kind in enumerate(kinds, 1)
    }
    groups = tuple(LedgerGroup(kind, (at,)) for at, kind in enumerate(kinds, 1))
    names = _NamesSaid({group.ledger_ids[0]: group for group in groups}, {})
    _name_by_transactions(names, by_ledger, Chains(groups, (), ()))
    _name_pending_acks(names, by_ledger, Chains(groups, (), ()))
    expected = {2: parse_topic(other), 3: parse_topic(topic), 6: parse_topic(topic).pending_ack("s")}
    assert {group.ledger_ids[0]: name.topic for group, name in names.taken().items()} == expected
