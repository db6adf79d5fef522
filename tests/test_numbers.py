"""The numbers of plain topics are those that their facts give, on recorded worlds and beside damaged rows."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.facts.numbers import PlainTopics, numbers_of
from pulsar_admin.store.facts.topics import TopicFacts
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import iter_topics, read_topic
from tests.rules.test_quiet import damage_drawn
from tests.stores import NOW_MS, copied, imported
from tests.worlds import STATES

_LONG_AGO_MS = 1_600_000_000_000


def _compare(store: Path) -> int:
    """Compare the numbers of plain topics with those of their facts, and return how many there are."""
    count = 0
    with open_store(store) as opened:
        for now_ms in (NOW_MS, _LONG_AGO_MS):
            with open_reader(opened) as reader, reader.txn.passing_altered():
                plain = PlainTopics(reader.txn, now_ms)
                for name in iter_topics(reader.txn):
                    found = plain.find(name)
                    if found is not None:
                        count += 1
                        facts = TopicFacts(reader, read_topic(reader.txn, name), None, now_ms)
                        assert found == numbers_of(facts), name
    return count


@pytest.mark.parametrize("state", STATES)
def test_numbers_of_recorded_worlds(state: str) -> None:
    assert _compare(imported("small", state)) > 20


@pytest.mark.parametrize("world", ["policies", "shapes", "compacted"])
def test_numbers_of_other_worlds(world: str) -> None:
    assert _compare(imported(world, "clean")) > 0


@pytest.mark.parametrize("seed", range(3))
def test_numbers_beside_damaged_rows(seed: int, tmp_path: Path) -> None:
    store = copied("small", "clean", tmp_path)
    damage_drawn(store, random.Random(seed))
    assert _compare(store) > 10
