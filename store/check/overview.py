"""The overview of a store with what a quick check finds, where that is quick."""

from __future__ import annotations

from collections.abc import Callable

from store.changes.age import read_copied_ms
from store.check import check_store
from store.db.environment import Store
from store.model.ledgers import open_reader
from store.reports.overview import TOP, Overview, Wanted, count_findings, read_overview

CHECKED_NODES = 200_000
"""A check looks at every node of the metadata several times: of more it takes as long as somebody who waits for a screen should not."""


def read_checked_overview(
    store: Store,
    now_ms: int,
    top: int = TOP,
    *,
    check: bool | None = None,
    advance: Callable[[int], None] = lambda count: None,
) -> Overview:
    """Return the overview of STORE at NOW_MS with TOP rows a list. CHECK: whether to check it; None: where it has few nodes.

    ADVANCE is told the topics and ledgers looked at. Raises IndexCorrupt.
    """
    with open_reader(store) as reader:
        checked = reader.txn.count("tree") <= CHECKED_NODES if check is None else check
        findings = count_findings(check_store(store)) if checked else None
        wanted = Wanted(now_ms, read_copied_ms(store, reader.txn), top)
        return read_overview(store, reader, wanted, findings, advance)
