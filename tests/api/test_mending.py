"""Python: a lost ledger is restored or forgotten, and orphans are deleted, by plans as on the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pulsar_admin as pa
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.tree import tree_key
from tests.stores import copied


def test_lost_ledgers_are_mended(tmp_path: Path, damages_stores: None) -> None:
    path = copied("small", "clean", tmp_path)
    with open_store(path, writable=True) as opened:
        opened.write(lambda txn: txn.delete("tree", tree_key(ledger_path(18))))
    with pa.open_store(path, writable=True) as store:
        assert [row.ledger_id for row in store.missing()] == [18]
        assert [row.ledger_id for row in store.missing(9, 18)] == [18]
        assert store.missing(9) == ()
        with pytest.raises(pa.LedgerNotFound):
            store.missing(18, 99_999)
        assert store.ledger(18).info().lost == "no-metadata"
        topic = store.topic("public/default/plain")
        answers = (topic.stats, topic.internal_stats, topic.last_message_id, topic.cursor("never").analyze)
        for answer in answers:
            with pytest.warns(pa.PartialData) as caught:
                answer()
            assert re.search("plain: ledger 18: .* broker", str(caught[0].message))
        change = store.apply(store.ledger(18).restore())
        assert store.missing() == ()
        assert change.number is not None
        store.undo(change.number)
        with pytest.raises(pa.Refused, match="is complete"):
            store.forget_ledgers(18, 9)
        with pytest.raises(pa.LedgerNotFound, match="after the end of ledger 9"):
            store.extend_ledgers(9)
        store.apply(store.ledger(18).forget())
        assert store.missing() == ()
        assert 17 in [row.ledger_id for row in store.orphans()]
        store.apply(store.ledger(17).delete())
        assert store.ledger(17).info().state == "DELETED"
