"""The overview and the metrics of a store with what a quick check finds, where that is quick."""

from __future__ import annotations

from collections.abc import Callable

from store.changes.age import read_copied_ms
from store.check import check_store
from store.db.environment import Store
from store.model.ledgers import EntryReader, open_reader
from store.reports.metrics import Chosen, Metric, read_metrics
from store.reports.overview import TOP, FindingCount, Overview, Wanted, count_findings, read_overview

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
        wanted = Wanted(now_ms, read_copied_ms(store, reader.txn), top)
        return read_overview(store, reader, wanted, _findings(store, reader, check), advance)


def read_checked_metrics(
    store: Store,
    now_ms: int,
    chosen: Chosen,
    *,
    check: bool | None = None,
    advance: Callable[[int], None] = lambda count: None,
) -> tuple[Metric, ...]:
    """Return the metrics of STORE at NOW_MS; CHECK, ADVANCE and what is raised: as ``read_checked_overview``."""
    with open_reader(store) as reader:
        wanted = Wanted(now_ms, read_copied_ms(store, reader.txn), 0)
        return read_metrics(store, reader, wanted, chosen, _findings(store, reader, check), advance)


def _findings(store: Store, reader: EntryReader, check: bool | None) -> tuple[FindingCount, ...] | None:
    checked = reader.txn.count("tree") <= CHECKED_NODES if check is None else check
    return count_findings(check_store(store)) if checked else None
