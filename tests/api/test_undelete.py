"""Python: deleted and trimmed topics come back by plans as on the command line."""

from __future__ import annotations

from pathlib import Path

import pulsar_admin as pa
from tests.stores import copied
from tests.worlds import CLUSTER


def test_topics_come_back(tmp_path: Path) -> None:
    with pa.open_store(copied(CLUSTER, "crashed", tmp_path), writable=True) as store:
        store.apply(store.undelete("public/default/doomed"))
        assert sum(len(batch) for batch in store.topic("public/default/doomed-restored").messages()) == 300
        store.apply(store.undelete("public/default/doomed", to="copied", copy=True))
        assert sum(len(batch) for batch in store.topic("copied").messages()) == 300
        store.apply(store.restore("acme/secure/trimmed", at="2026-11-21T09:31:38.800Z"))
        assert store.topic("acme/secure/trimmed-restored").stats().msg_in_counter >= 0
        store.undo(3)
        store.apply(store.restore("acme/secure/trimmed", at="2026-11-21T09:31:38.800Z", in_place=True))
        assert sum(len(batch) for batch in store.topic("acme/secure/trimmed").messages()) == 162
