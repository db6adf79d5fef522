"""Python: deleted and trimmed topics come back by plans as on the command line."""

from __future__ import annotations

from pathlib import Path

import pulsar_admin as pa
from tests.stores import copied
from tests.worlds import CLUSTER


def test_topics_come_back(tmp_path: Path) -> None:
    with pa.open_store(copied(CLUSTER, "crashed", tmp_path), writable=True) as store:
        doomed = next(row for row in store.deleted_topics() if row.topic.local_name == "doomed")
        assert (doomed.ledgers, doomed.here, doomed.entries) == (8, 8, 300)
        nameless = "lost-and-found/ledgers/from-121"  # no history says whose these are
        (found,) = (row for row in store.deleted_topics(by_evidence=True) if str(row.topic).endswith(nameless))
        (part,) = store.undelete(nameless, by_evidence=True, hold="", to="public/default/doomed").preview().parts
        assert (found.here, found.entries, len(part.after["ledgers"])) == (8, 300, 8)
        change = store.apply(store.undelete_ledgers(121))
        assert (store.ledger(121).info().state, change.number) == ("CLOSED", 1)
        store.undo(1)
        store.apply(store.undelete("public/default/doomed"))
        assert sum(len(batch) for batch in store.topic("public/default/doomed-restored").messages()) == 300
        store.apply(store.undelete("public/default/doomed", to="copied", copy=True))
        assert sum(len(batch) for batch in store.topic("copied").messages()) == 300
        store.apply(store.restore("acme/secure/trimmed", at="2026-11-21T09:31:38.800Z"))
        assert store.topic("acme/secure/trimmed-restored").stats().msg_in_counter >= 0
        store.undo(5)
        store.apply(store.restore("acme/secure/trimmed", at="2026-11-21T09:31:38.800Z", in_place=True))
        assert sum(len(batch) for batch in store.topic("acme/secure/trimmed").messages()) == 162
