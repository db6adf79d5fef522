"""Ledgers of recorded worlds put together by their entries alone; the truth is the world's own metadata, which is not looked at."""

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec.delayedbucket import DelayedIndex
from pulsar_admin.store.db.blocks import ledger_of_key
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.owners import iter_owners
from pulsar_admin.store.engine.local import LocalEngine
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.recovery.chains import CLOCK_SKEW_MS, Chains, find_chains, find_names
from pulsar_admin.store.recovery.evidence import (
    BUCKET,
    LedgerEvidence,
    Producer,
    ProducerRun,
    read_contents,
    read_evidence,
)
from tests.conftest import Cli
from tests.encoders import encode_snapshot_segment
from tests.stores import imported
from tests.worlds import oracle, world


def evidence_of(store: Path) -> list[LedgerEvidence]:
    with open_store(store) as opened, open_reader(opened) as reader:
        return list(read_evidence(reader, [ledger_of_key(key) for key in reader.txn.keys("times", b"")]))


def topics_of(store: Path, evidence: list[LedgerEvidence]) -> dict[int, str]:
    here = {one.ledger_id for one in evidence}
    with open_store(store) as opened, opened.read() as txn:
        return {
            ledger_id: owner.topic
            for ledger_id, owners in iter_owners(txn)
            for owner in owners
            if owner.kind == "managed-ledger" and ledger_id in here
        }


def score(chains: Chains, topics: dict[int, str]) -> tuple[int, int, int]:
    """Return (links needed, found, groups of more than one topic)."""
    of = {ledger: number for number, group in enumerate(chains.groups) for ledger in group.ledger_ids}
    by_topic = defaultdict(list)
    for ledger, topic in topics.items():
        by_topic[topic].append(ledger)
    needed = [pair for ledgers in by_topic.values() for pair in pairwise(sorted(ledgers))]
    wrong = sum(len({topics[one] for one in group.ledger_ids if one in topics}) > 1 for group in chains.groups)
    return len(needed), sum(of[a] == of[b] for a, b in needed), wrong


@pytest.mark.parametrize(
    ("name", "state", "expected"),
    [
        ("small", "clean", (58, 56, 0)),
        ("small", "crashed", (86, 83, 0)),
        ("nometa", "clean", (42, 37, 0)),
        ("nometa", "crashed", (86, 81, 0)),
    ],
)
def test_links_of_recorded_worlds(name: str, state: str, expected: tuple[int, int, int]) -> None:
    store = imported(name, state)
    evidence = evidence_of(store)
    topics = topics_of(store, evidence)
    chains = find_chains(evidence)
    assert score(chains, topics) == expected
    assert all(len(join.witnesses) >= 2 for join in chains.joins)
    # Every data ledger is in exactly one group.
    ledgers = [ledger for group in chains.groups for ledger in group.ledger_ids]
    assert len(ledgers) == len(set(ledgers))
    assert set(topics) <= set(ledgers)
    # Nothing else is needed when the metadata names them.
    assert score(find_chains(evidence, topics), topics) == (expected[0], expected[0], 0)


def test_engines_say_the_same() -> None:
    store = imported("small", "clean")
    with open_store(store) as opened, open_reader(opened) as reader:
        reader = reader.scanning_on(LocalEngine(1))
        found = list(read_evidence(reader, [ledger_of_key(key) for key in reader.txn.keys("times", b"")]))
    assert found == evidence_of(store)


def test_topics_that_are_hard_to_tell_apart(cli: Cli, tmp_path: Path) -> None:
    """Where somebody consumes, cursor ledgers join all that belongs together; where nobody does, much stays apart; nothing is wrong."""
    store = tmp_path / "chains"
    bookies = [
        ",".join(sorted(str(path) for path in bookie.rglob("current")))
        for bookie in (world("chains") / "clean").iterdir()
    ]
    given = [word for bookie in bookies for word in ("--bookie", bookie)]
    assert cli("--store", store, "store", "import", "cluster", *given).exit_code == 0
    evidence = evidence_of(store)
    here = {one.ledger_id for one in evidence}
    topics = {ledger: name for name, ids in oracle("chains")["topics"].items() for ledger in ids if ledger in here}
    chains = find_chains(evidence)
    assert score(chains, topics) == (89, 54, 0)
    consumed = {ledger: name for ledger, name in topics.items() if name.startswith("public/consumed/")}
    assert score(chains, consumed) == (34, 34, 0)
    # 130 of the 155 joins that more than one ledger could continue are wrong: none of them is proposed.
    assert len(chains.refused) > 150
    assert chains.probable() == {}
    apart = {name.rpartition("/")[2].partition("-")[0] for name in _apart(chains, topics)}
    told = [
        "alone",
        "batches",
        "blocks",
        "from",
        "like",
        "once",
        "pair",
        "recreated",
        "recreated#1",
        "restarted",
        "step",
        "turns",
    ]
    assert apart == {*told}


def _apart(chains: Chains, topics: dict[int, str]) -> set[str]:
    groups = [{topics[one] for one in group.ledger_ids if one in topics} for group in chains.groups]
    return {name for name in topics.values() if sum(name in group for group in groups) > 1}


def _run(first: int, last: int, time_ms: int = 1000, jumps: int = 0) -> ProducerRun:
    count = last - first + 1
    return ProducerRun(first, last, first, last, count, count, jumps, time_ms + first, time_ms + last, 0, count - 1)


def _messages(
    ledger_id: int, runs: dict[str, ProducerRun], index: tuple[int, int] | None = None, replicated_from: str = ""
) -> LedgerEvidence:
    producers = {Producer(name, replicated_from): run for name, run in runs.items()}
    entries = sum(run.entries for run in runs.values())
    behind = None if index is None else (index[0] - 1, index[0], index[1])
    return LedgerEvidence(ledger_id, "messages", entries, 0, entries - 1, 0, entries, producers, behind)


def _groups(*evidence: LedgerEvidence, **options: object) -> list[tuple[int, ...]]:
    return [group.ledger_ids for group in find_chains(evidence, **options).groups]  # type: ignore[arg-type]


class TestOneWitness:
    """What one witness says stays apart."""

    def test_a_name_of_the_application(self) -> None:
        a, b = _messages(1, {"app": _run(0, 9)}), _messages(2, {"app": _run(10, 19)})
        assert _groups(a, b) == [(1,), (2,)]
        assert find_chains([a, b, _messages(3, {"other": _run(0, 9)})]).probable() == {1: [2], 2: [1]}

    def test_an_index_that_goes_on(self) -> None:
        a, b = _messages(1, {"x-0-1": _run(0, 9)}, (0, 9)), _messages(2, {"x-0-2": _run(0, 9)}, (10, 19))
        assert _groups(a, b) == [(1,), (2,)]

    def test_an_index_that_says_it_alone_and_with_each_of_many_producers(self) -> None:
        """What is said is the same in every process, whatever the order of its sets."""
        names = [f"app-{number}" for number in range(20)]
        a = replace(_messages(1, dict.fromkeys(names, _run(0, 1)), (20, 59)), broker_ms=(1000, 1001))
        b = replace(_messages(2, dict.fromkeys(names, _run(8, 9)), (60, 99)), broker_ms=(1008, 1009))
        (apart,) = find_chains([a, b]).refused
        assert apart.witnesses == ("the broker's index continues after 59",)

    def test_an_index_that_is_the_number_of_the_producer(self) -> None:
        """The second may be of another topic that is trimmed, with one producer of this name as well."""
        a, b = _messages(1, {"app": _run(0, 9)}, (0, 9)), _messages(2, {"app": _run(10, 19)}, (10, 19))
        assert _groups(a, b) == [(1,), (2,)]

    def test_another_producer_of_the_name(self) -> None:
        a, b = _messages(1, {"app": _run(0, 9)}), _messages(2, {"app": _run(10, 19)}, replicated_from="west")
        assert _groups(a, b) == [(1,), (2,)]


class TestTwoWitnesses:
    def test_a_producer_and_the_index(self) -> None:
        a, b = _messages(1, {"app": _run(0, 9)}, (50, 59)), _messages(2, {"app": _run(10, 19)}, (60, 69))
        assert _groups(a, b) == [(1, 2)]

    def test_an_index_where_numbers_come_up_elsewhere(self) -> None:
        a, b = _messages(1, {"app": _run(0, 9)}, (50, 59)), _messages(3, {"app": _run(10, 19)}, (60, 69))
        assert _groups(a, _messages(2, {"app": _run(3, 12)}, (70, 79)), b) == [(1, 3), (2,)]

    def test_two_producers(self) -> None:
        a = _messages(1, {"app": _run(0, 9), "other": _run(0, 3)})
        assert _groups(a, _messages(2, {"app": _run(10, 19), "other": _run(4, 4)})) == [(1, 2)]

    def test_a_name_that_a_broker_gave(self) -> None:
        assert _groups(_messages(1, {"x-0-1": _run(0, 9)}), _messages(2, {"x-0-1": _run(10, 19)})) == [(1, 2)]


class TestContradictions:
    def test_partitions_that_share_a_name(self) -> None:
        ledgers = [
            _messages(one, {"x-0-1": _run(*run)}) for one, run in enumerate([(0, 9), (0, 9), (10, 19), (10, 19)], 1)
        ]
        assert _groups(*ledgers) == [(1,), (2,), (3,), (4,)]

    def test_partitions_that_were_written_at_one_time(self) -> None:
        """Ledgers between are lost, so no number is in two; of one topic one ledger is written at a time."""
        a, b, c = ((0, 9), 1000), ((10, 19), 1000), ((30, 39), 985)
        ledgers = [_messages(one, {"x-0-1": _run(*run, ms)}) for one, (run, ms) in enumerate([a, b, c], 1)]
        assert _groups(*ledgers) == [(1,), (2,), (3,)]

    def test_partitions_that_get_equally_many(self) -> None:
        """The second ledger of the first one is lost."""
        a, b = (_messages(one, {"app": _run(0, 9)}, (50, 59)) for one in (1, 2))
        assert _groups(a, b, _messages(4, {"app": _run(10, 19)}, (60, 69))) == [(1,), (2,), (4,)]

    def test_an_index_that_goes_back(self) -> None:
        a = _messages(1, {"x-0-1": _run(0, 9)}, (50, 59))
        for first, expected in ((0, [(1,), (2,)]), (59, [(1,), (2,)]), (60, [(1, 2)])):
            assert _groups(a, _messages(2, {"x-0-1": _run(10, 19)}, (first, first + 9))) == expected

    def test_a_brokers_time_that_goes_back_by_more_than_clocks_differ(self) -> None:
        a = replace(_messages(1, {"x-0-1": _run(0, 9)}), broker_ms=(100_000, 100_009))
        for skew_ms, expected in ((CLOCK_SKEW_MS, [(1, 2)]), (CLOCK_SKEW_MS + 1, [(1,), (2,)])):
            b = replace(_messages(2, {"x-0-1": _run(10, 19)}), broker_ms=(100_009 - skew_ms, 200_000))
            assert _groups(a, b) == expected

    def test_a_clock_that_goes_back(self) -> None:
        a = _messages(1, {"x-0-1": _run(0, 9, time_ms=9000)})
        assert _groups(a, _messages(2, {"x-0-1": _run(10, 19)})) == [(1,), (2,)]

    def test_numbers_that_the_application_chose(self) -> None:
        a, b = _messages(1, {"x-0-1": _run(0, 9, jumps=3)}), _messages(2, {"x-0-1": _run(10, 19)})
        assert _groups(a, b) == [(1,), (2,)]

    def test_topics_that_the_metadata_names(self) -> None:
        a, b = _messages(1, {"x-0-1": _run(0, 9)}), _messages(2, {"x-0-1": _run(10, 19)})
        assert _groups(a, b, known={1: "persistent://a/b/c", 2: "persistent://a/b/d"}) == [(1,), (2,)]


@pytest.mark.parametrize("name", ["small", "nometa"])
def test_names_are_those_of_the_world(name: str) -> None:
    store = imported(name, "clean")
    with open_store(store) as opened, open_reader(opened) as reader:
        evidence = list(read_evidence(reader, [ledger_of_key(key) for key in reader.txn.keys("times", b"")]))
        chains = find_chains(evidence)
        names = find_names(reader, evidence, chains)
        # As if another storage numbered schemas by something else than eight bytes: the broker's own topic is known by its keys.
        foreign = find_names(reader, [replace(one, schema_version=-1) for one in evidence], chains)
    topics = topics_of(store, evidence)
    found = {
        str(naming.topic): {topics[one] for one in group.ledger_ids if one in topics} for group, naming in names.items()
    }
    assert found == {name: {name} for name in found}
    assert {name.rpartition("/")[2] for name in found} == {
        *("__transaction_log_0", "txn-out", "txn-in", "txn-in-perf__transaction_pending_ack"),
        *("__transaction_buffer_snapshot", "avro", "json"),
    }
    assert all(len(naming.witnesses) >= 2 for naming in names.values())
    assert {str(one.topic) for one in foreign.values()} == {
        name for name in found if not name.endswith(("/avro", "/json"))
    }


def test_what_has_more_than_a_bucket_s_fields_is_no_bucket() -> None:
    payload = encode_snapshot_segment([DelayedIndex(1_795_000_000_000, 7, 3)])
    assert BUCKET in {one.kind for one in read_contents(payload)}
    unknown = b"\x78\x01"  # field 15
    assert BUCKET not in {one.kind for one in read_contents(payload + unknown)}
