"""The overview and the metrics of a store, with those of doctor's findings that are quick to get."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from pulsar_admin.store.db.environment import Store
from pulsar_admin.store.doctor.diagnosing import DoctorOptions, Look, count_of, diagnose
from pulsar_admin.store.facts.parts import Counting, Tally
from pulsar_admin.store.facts.processes import others_that_pay
from pulsar_admin.store.model.copy_age import Now
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.reports.overview import Findings, FindingsOfCode
from pulsar_admin.store.rules.finding import Finding

_Answer = TypeVar("_Answer")
Read = Callable[[EntryReader, Now, Findings, Counting, int, Callable[[int], None]], _Answer]
"""``read_overview`` or ``read_metrics``."""
CHECKED_NODES = 200_000
"""The doctor looks at every node of the metadata several times: of more it takes as long as somebody who waits for a screen should not."""


def read_checked(
    store: Store,
    now: Now,
    tallies: Sequence[Tally],
    read: Read[_Answer],
    *,
    check: bool | None,
    advance: Callable[[int], None],
    processes: int,
) -> _Answer:
    """Return the answer of ``read`` about a store at ``now``; ``tallies`` count all topics for it.

    ``check``: whether to check the store; None: only if it has few nodes. ``advance`` gets the topics and ledgers read. ``processes``:
    how many to use, with this one; 0: one per core. Raises IndexCorrupt.
    """
    counting = Counting(tallies, now.time_ms)
    with open_reader(store) as reader:
        txn = reader.txn
        if not (txn.count("tree") <= CHECKED_NODES if check is None else check):
            return read(reader, now, None, counting, others_that_pay(txn, processes), advance)
        options, look = DoctorOptions(each=1), Look(reader)
        findings = count_findings(
            diagnose(store, now_ms=now.time_ms, options=options, look=look, processes=processes, counting=counting)
        )
        with txn.passing_altered():  # the doctor has told of them
            return read(reader, now, findings, counting, others_that_pay(txn, processes), advance)


def count_findings(found: Iterable[Finding]) -> tuple[FindingsOfCode, ...]:
    """Count the findings of each severity and code, with the first of each, in their order."""
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], Finding] = {}
    for one in found:
        key = (str(one.severity), one.code)
        counts[key] += count_of(one)
        first.setdefault(key, one)
    return tuple(FindingsOfCode(*key, counts[key], one.where, one.message, one.mend) for key, one in first.items())
