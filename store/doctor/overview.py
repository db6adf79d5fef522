"""The overview and the metrics of a store, with those of doctor's findings that are quick to get."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from pulsar_admin.store.db.environment import Store
from pulsar_admin.store.doctor.diagnosing import DoctorOptions, Look, count_of, diagnose
from pulsar_admin.store.facts.parts import Counting
from pulsar_admin.store.facts.processes import others_that_pay
from pulsar_admin.store.model.copy_age import Now, read_copied_ms
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.reports import overview
from pulsar_admin.store.rules.finding import Finding

CHECKED_NODES = 200_000
"""The doctor looks at every node of the metadata several times: of more it takes as long as somebody who waits for a screen should not."""


def read_checked_overview(
    store: Store, now: Now, top: int, *, check: bool | None, advance: Callable[[int], None], processes: int
) -> overview.Overview:
    """Return the overview of a store at ``now`` with ``top`` rows a list. ``check``: whether to check it; None: where it has few nodes.

    ``advance`` gets the topics and ledgers looked at. ``processes`` may be used, this one among them; 0: one a core. Raises
    IndexCorrupt.
    """
    counting = Counting((overview.Totals(top),), now.time_ms)
    with _checked(store, now, top, check, processes, counting) as (reader, wanted, counts, others):
        return overview.read_overview(store, reader, wanted, counts, advance, counting, others)


def read_checked_metrics(
    store: Store,
    now: Now,
    chosen: overview.Chosen,
    *,
    check: bool | None,
    advance: Callable[[int], None],
    processes: int,
) -> tuple[overview.Metric, ...]:
    """Return the metrics of a store at ``now``; the other parameters and the errors are those of ``read_checked_overview``."""
    counting = Counting((overview.Totals(0), overview.Rows(chosen)), now.time_ms)
    with _checked(store, now, 0, check, processes, counting) as (reader, wanted, counts, others):
        return overview.read_metrics(store, reader, wanted, chosen, counts, advance, counting, others)


@contextmanager
def _checked(
    store: Store, now: Now, top: int, check: bool | None, processes: int, counting: Counting
) -> Iterator[tuple[EntryReader, overview.Wanted, tuple[overview.FindingsOfCode, ...] | None, int]]:
    """Give a reader, the request, the doctor's findings (None: the store is not checked), and how many other processes may be used."""
    with open_reader(store) as reader:
        txn = reader.txn
        wanted = overview.Wanted(now.time_ms, read_copied_ms(store, txn), top, now.source, now.clock_ms)
        if not (txn.count("tree") <= CHECKED_NODES if check is None else check):
            yield reader, wanted, None, others_that_pay(txn, processes)
            return
        options = DoctorOptions(each=1)
        counts = count_findings(
            diagnose(
                store, now_ms=now.time_ms, options=options, look=Look(reader), processes=processes, counting=counting
            )
        )
        with txn.passing_altered():  # the doctor has told of them
            yield reader, wanted, counts, others_that_pay(txn, processes)


def count_findings(found: Iterable[Finding]) -> tuple[overview.FindingsOfCode, ...]:
    """Count the findings of each severity and code, with the first of each, in their order."""
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], Finding] = {}
    for one in found:
        key = (str(one.severity), one.code)
        counts[key] += count_of(one)
        first.setdefault(key, one)
    return tuple(
        overview.FindingsOfCode(*key, counts[key], one.where, one.message, one.mend) for key, one in first.items()
    )
