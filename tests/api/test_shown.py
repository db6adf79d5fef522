"""What a notebook and a debugger show: which thing an object names, and on one line what an answer says."""

from __future__ import annotations

from pathlib import Path

import pytest

import pulsar_admin as pa
from tests.stores import NOW_MS


def test_two_that_name_the_same_thing_are_equal(store: pa.Store) -> None:
    short, full = store.topic("public/default/plain"), store.topic("persistent://public/default/plain")
    assert short == full
    assert {short: 1}[full] == 1
    assert short.cursor("half") == full.cursor("half") != full.cursor("holes")
    assert short != store.topic("public/default/batched")
    assert len({store.namespace("public/default"), store.namespace("public/default")}) == 1
    assert store.ledger(9) == store.ledger(9) != store.ledger(10)
    assert short != "persistent://public/default/plain"


def test_the_same_name_in_two_stores_is_not_the_same(store: pa.Store, demo_store: Path) -> None:
    with pa.open_store(demo_store, now=NOW_MS) as other:
        assert store.topic("public/default/plain") != other.topic("public/default/plain")


def test_a_position_is_read_from_its_text() -> None:
    assert pa.Position.parse("29:20") == pa.Position(29, 20)
    assert pa.Position.parse("29:20:3") == pa.Position(29, 20, 3)
    with pytest.raises(pa.InvalidValue, match="29-20"):
        pa.Position.parse("29-20")


def test_what_is_named_is_shown_as_it_was_named(store: pa.Store) -> None:
    plain = store.topic("plain")
    assert repr(plain) == "Topic('persistent://public/default/plain')"
    assert repr(plain.cursor("half")) == "Cursor('persistent://public/default/plain', 'half')"
    assert repr(plain.compaction()) == "Compaction('persistent://public/default/plain')"
    assert repr(store.cursors("half", "plain")) == "Cursors('persistent://public/default/plain', 'half')"
    assert repr(store.cursors(None, pattern="acme/*")) == "Cursors('acme/*', None)"
    assert repr(store.topic_policies()) == "TopicPolicies(all topics)"
    assert repr(store.ledger(9)) == "Ledger(9)"
    assert repr(store.namespace("public/default")) == "Namespace('public/default')"
    assert repr(store.transactions()) == "Transactions()"
