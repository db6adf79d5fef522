"""Facts of topics that a pass has left behind are gone at once, without a garbage collector, which took a tenth of the pass."""

import gc
from collections.abc import Iterator
from weakref import ref

import pytest

from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.facts.topics import TopicFacts
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import iter_topics
from pulsar_admin.store.reports.subscriptions import Asked, iter_facts, prepare_facts
from tests.stores import imported


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
def test_of_a_table_of_subscriptions() -> None:
    asked = Asked.of(0, quick=True)
    with open_store(imported("small", "clean")) as store, open_reader(store) as reader:
        prepared = prepare_facts(reader, iter_topics(reader.txn), asked)
        seen = [ref(facts) for facts in prepared.values() if facts.subscriptions]
        while prepared:
            list(iter_facts(prepared.popitem()[1], asked, lambda error: None))
    assert seen
    assert not any(one() for one in seen)


@pytest.mark.usefixtures("without_collector")
def test_of_all_topics() -> None:
    seen = []
    with open_store(imported("small", "clean")) as store, open_reader(store) as reader:
        for facts in ClusterFacts(reader).iter_topics(0):
            assert isinstance(facts, TopicFacts)
            if facts.subscriptions:
                seen.append(ref(facts))
        del facts
    assert seen
    assert not any(one() for one in seen)
