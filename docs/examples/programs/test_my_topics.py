"""Tests of an application against a copy of its cluster: STORE=pulsar-store python -m pytest test_my_topics.py"""

import os
from collections.abc import Iterator

import pytest

import pulsar_admin as pa


@pytest.fixture(scope="session")
def store() -> Iterator[pa.Store]:
    with pa.open_store(os.environ["STORE"]) as opened:
        yield opened


def test_nobody_lags(store: pa.Store) -> None:
    stats: pa.TopicStats = store.topic("public/default/plain").stats()
    assert {name for name, one in stats.subscriptions.items() if one.msg_backlog > 1000} == set()


def test_the_topic_is_there(store: pa.Store) -> None:
    with pytest.raises(pa.TopicNotFound):
        store.topic("public/default/planes")
