"""Of a topic that is passed by as quiet no rule holds: judged with all of its facts it gives no finding."""

import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pulsar_admin.store.codec.cursor import PlainCursor
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.tree import Node, put_nodes
from pulsar_admin.store.facts import parts, processes, quiet
from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.facts.quiet import FoundQuiet, Quiet, QuietTopics, _pin_nothing
from pulsar_admin.store.facts.topics import ReadBudget
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import count_topics
from pulsar_admin.store.names import TopicName
from pulsar_admin.store.rules import topics
from pulsar_admin.store.rules.judging import judge_store
from tests.deep import deep_but_for
from tests.stores import NOW_MS, copied, imported, write_rows
from tests.worlds import STATES

_STAT = NodeStat(0, 0, 0, 0, False)
_LONG_AGO_MS = 1_600_000_000_000
_DATABASES = {"tree": (b"/managed-ledgers", b"/ledgers/0", b"/admin"), "times": (b"",), "entries": (b"",)}


def _judged(store: Path, now_ms: int | None, edges: int, processes: int = 1) -> list[str]:
    with open_store(store) as opened, open_reader(opened) as reader:
        facts = ClusterFacts(reader)
        budget = ReadBudget(edges_left=edges)
        found = [repr(one) for one in judge_store(facts, now_ms=now_ms, budget=budget, processes=processes)]
        return [*found, repr(facts.unclosed)]


def _compare(store: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Compare what is judged with and without quiet topics, and return how many there are."""
    count = 0

    def find(self: QuietTopics, name: TopicName) -> Quiet | None:
        nonlocal count
        found = real(self, name)
        count += found is not None
        return found

    real = QuietTopics.find
    for now_ms, edges in ((NOW_MS, 0), (_LONG_AGO_MS, 0), (NOW_MS, 3), (None, 0)):
        with monkeypatch.context() as patch:
            patch.setattr(QuietTopics, "find", find)
            passed = _judged(store, now_ms, edges)
            patch.setattr(QuietTopics, "find", lambda self, name: None)
            assert passed == _judged(store, now_ms, edges)
    return count


@deep_but_for((2,), "state", STATES)
def test_quiet_topics_of_recorded_worlds(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _compare(imported("small", state), monkeypatch) > 10


@deep_but_for((0, 1), "seed", range(6))
def test_quiet_topics_beside_damaged_ones(seed: int, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damage_drawn(store, random.Random(seed))
    assert _compare(store, monkeypatch)


def damage_drawn(store: Path, draw: random.Random) -> None:
    write_rows(store, lambda txn: [_damage(txn, draw, *row) for row in _drawn(txn, draw)])


def _drawn(txn: Txn, draw: random.Random) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield some rows of TXN, each with the key of another."""
    for database, prefixes in _DATABASES.items():
        keys = [key for key, _ in txn.items(database) if key.startswith(prefixes)]
        for key in draw.sample(keys, len(keys) // 20):
            yield database, key, draw.choice(keys)


def _damage(txn: Txn, draw: random.Random, database: str, key: bytes, other: bytes) -> None:
    value, another = txn.get(database, key) or b"", txn.get(database, other) or b""
    place = draw.randrange(len(value) or 1)
    changes = (
        b"",
        value[:place],
        another,
        value[:place] + bytes(byte ^ 1 for byte in value[place : place + 1]) + value[place + 1 :],
    )
    changed = draw.choice(changes)
    if changed:
        txn.put(database, key, changed)
    else:
        txn.delete(database, key)


def test_a_part_fills_no_pipe_however_many_namespaces_it_has(tmp_path: Path) -> None:
    """A process that waited for room in it would wait for one that waits to hand its answer over."""
    nodes = [Node(f"/managed-ledgers/public/n{one}/persistent/t", _STAT, b"") for one in range(3_000)]
    with open_store(copied("small", "clean", tmp_path), writable=True) as opened:
        opened.write(lambda txn: put_nodes(txn, nodes))
        with opened.read() as txn:
            assert count_topics(txn) > len(nodes)
            assert sum(len(pickle.dumps(part)) for part in parts.parts_of(txn, NOW_MS)) < 2_000


def test_limits_are_below_those_of_the_rules() -> None:
    assert quiet.LEDGERS_MAX < topics.TINY_LEDGERS
    assert quiet.LEDGER_BYTES_MAX < topics.HUGE_BYTES


@pytest.mark.usefixtures("damages_stores")
@deep_but_for((0,), "seed", range(3))
def test_other_processes_find_the_same(seed: int, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed:
        draw = random.Random(seed)
        write_rows(store, lambda txn: [_damage(txn, draw, *row) for row in _drawn(txn, draw)])
    alone = [_judged(store, now_ms, edges) for now_ms, edges in ((NOW_MS, 0), (NOW_MS, 3), (None, 0))]
    monkeypatch.setattr(processes, "MANY_NODES", 10)
    monkeypatch.setattr(parts, "PART_TOPICS", 7)
    used: list[str] = []
    monkeypatch.setattr(quiet.FoundQuiet, "find", _noting(used, quiet.FoundQuiet.find))
    many = [_judged(store, now_ms, edges, processes=2) for now_ms, edges in ((NOW_MS, 0), (NOW_MS, 3), (None, 0))]
    assert many == alone
    assert used


def _noting(used: list[str], find: Callable[[FoundQuiet, TopicName], Quiet | None]) -> object:
    def noting(self: FoundQuiet, name: TopicName) -> Quiet | None:
        used.append(str(name))
        return find(self, name)

    return noting


def test_ledgers_are_pinned_by_what_is_not_acknowledged() -> None:
    """Each ledger but the last that some cursor has not passed has an entry that some cursor needs: by every entry."""
    ledgers = [(1, 2), (2, 2), (3, 0), (4, 1)]
    parts = [[], [(-1, 0)], [(0, 1)], [(-1, 1)], [(-1, 0), (0, 1)]]
    cursors = [
        PlainCursor(at, [*((1, *one) for one in first), *((2, *one) for one in second)])
        for at in ((0, 9), (1, -1), (1, 0), (1, 1), (2, -1), (2, 0), (2, 1)) for first in parts for second in parts
        if not (first and at > (1, first[0][0])) and not (second and at > (2, second[0][0]))
    ]  # fmt: skip
    for some in (
        ([one] for one in cursors),
        ([one, cursors[-1]] for one in cursors),
        ([one, cursors[40]] for one in cursors),
    ):
        for group in some:
            expected = not any(one.ranges for one in group) or all(
                any(
                    (ledger, entry) > one.position and not any(at == ledger and low < entry <= high for at, low, high in one.ranges)
                    for one in group for entry in range(entries)
                )
                for ledger, entries in ledgers[:-1] if entries and any(one.position < (ledger, entries - 1) for one in group)
            )  # fmt: skip
            assert _pin_nothing(ledgers, group) == expected, group
