"""The overview and the metrics of a store with what the doctor finds, where that is quick."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext

from pulsar_admin.store.db.environment import Store
from pulsar_admin.store.doctor import DoctorOptions, Finding, count_of, diagnose
from pulsar_admin.store.facts.spread import others_that_pay
from pulsar_admin.store.model.copy_age import Now, read_copied_ms
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.reports.metrics import Chosen, Metric, read_metrics
from pulsar_admin.store.reports.overview import TOP, FindingsOfCode, Overview, Wanted, read_overview

CHECKED_NODES = 200_000
"""The doctor looks at every node of the metadata several times: of more it takes as long as somebody who waits for a screen should not."""


def read_checked_overview(
    store: Store,
    now: Now,
    top: int = TOP,
    *,
    check: bool | None = None,
    advance: Callable[[int], None] = lambda count: None,
    processes: int = 1,
) -> Overview:
    """Return the overview of STORE at NOW with TOP rows a list. CHECK: whether to check it; None: where it has few nodes.

    ADVANCE gets the topics and ledgers looked at. PROCESSES may be used, this one among them; 0: one a core. Raises
    IndexCorrupt.
    """
    with open_reader(store) as reader:
        wanted = _wanted(store, reader, now, top)
        found = _findings(store, reader, now, check, processes)
        with nullcontext() if found is None else reader.txn.passing_altered():  # the doctor has told of them
            return read_overview(
                store, reader, wanted, found, advance, processes=others_that_pay(reader.txn, processes)
            )


def read_checked_metrics(
    store: Store,
    now: Now,
    chosen: Chosen,
    *,
    check: bool | None = None,
    advance: Callable[[int], None] = lambda count: None,
    processes: int = 1,
) -> tuple[Metric, ...]:
    """Return the metrics of STORE at NOW; CHECK, ADVANCE, PROCESSES and what is raised: as ``read_checked_overview``."""
    with open_reader(store) as reader:
        wanted = _wanted(store, reader, now, 0)
        found = _findings(store, reader, now, check, processes)
        with nullcontext() if found is None else reader.txn.passing_altered():  # the doctor has told of them
            return read_metrics(store, reader, wanted, chosen, found, advance, others_that_pay(reader.txn, processes))


def _wanted(store: Store, reader: EntryReader, now: Now, top: int) -> Wanted:
    return Wanted(now.time_ms, read_copied_ms(store, reader.txn), top, now.source, now.clock_ms)


def _findings(
    store: Store, reader: EntryReader, now: Now, check: bool | None, processes: int
) -> tuple[FindingsOfCode, ...] | None:
    checked = reader.txn.count("tree") <= CHECKED_NODES if check is None else check
    options = DoctorOptions(each=1)
    return (
        count_findings(diagnose(store, now_ms=now.time_ms, options=options, reader=reader, processes=processes))
        if checked
        else None
    )


def count_findings(found: Iterable[Finding]) -> tuple[FindingsOfCode, ...]:
    """Return how many findings of each severity and code were FOUND, with the first of each, in their order."""
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], Finding] = {}
    for one in found:
        key = (str(one.severity), one.code)
        counts[key] += count_of(one)
        first.setdefault(key, one)
    return tuple(FindingsOfCode(*key, counts[key], one.where, one.message, one.mend) for key, one in first.items())
