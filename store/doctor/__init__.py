"""``doctor``: every check there is as ranked diagnoses, each with what a broker will do and the command that repairs it.

Reads only. Memory is bounded: of each code the worst diagnoses are kept, and the rest is summed up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from store.db.environment import Store
from store.doctor.diagnosis import Diagnosis
from store.doctor.findings import diagnosis_of_judged
from store.doctor.ranking import Ranking
from store.doctor.whole import CrashCost, dead_bytes, full_disks, journal_only, leaks
from store.errors import StoreError
from store.facts.cluster import ClusterFacts
from store.facts.deep import DeepFacts
from store.facts.topics import ReadBudget, TopicFacts
from store.frozen import frozen
from store.model.reader import open_reader
from store.rules.cause import Severity
from store.rules.judging import NAMELESS, judge_deep, judge_store, refuse_bundle
from store.rules.rule import Judged

if TYPE_CHECKING:
    from store.engine.operation import Engine

__all__ = ["Diagnosis", "DoctorOptions", "Severity", "diagnose"]

EACH = 10
_LEAKS = {"ledgers-unreferenced", "ledgers-deleted"}
"""Findings that ``leaks`` tells instead: with their bytes, and by what the ledgers claim to be."""


@frozen
class DoctorOptions:
    """What to look for. ``deep``: read every byte, too; ``each``: how many diagnoses of a code are kept; ``codes``: these only."""

    deep: bool = False
    each: int = EACH
    codes: Collection[str] = ()
    severities: Collection[str] = ()


def diagnose(
    store: Store,
    *,
    now_ms: int,
    options: DoctorOptions | None = None,
    advance: Callable[[int], None] = lambda count: None,
    engine: Engine | None = None,
) -> Iterator[Diagnosis]:
    """Yield what is wrong with STORE and what Pulsar left in it, the worst first: by severity, then by messages and bytes at stake.

    NOW_MS is the time that ages and due messages are counted at. ADVANCE gets the bytes that a deep look has read, on ENGINE or in
    this process, of any other the topics.
    """
    options = options or DoctorOptions()
    ranking = Ranking(options.each)

    def sink(found: Diagnosis) -> None:
        if _is_meant(found, options):
            ranking.add(found)

    if options.deep:
        refuse_bundle(store)
    with open_reader(store) as reader:
        looked = (lambda: None) if options.deep else (lambda: advance(1))
        facts = DeepFacts(store, reader, advance, engine)
        with reader.txn.passing_altered():  # the rules tell of them
            for found in _look(facts, now_ms, ReadBudget(unlimited=options.deep), looked):
                sink(found)
        for judged in judge_deep(facts) if options.deep else ():
            sink(diagnosis_of_judged(judged))
    yield from ranking.ranked()


def _look(facts: ClusterFacts, now_ms: int, budget: ReadBudget, looked: Callable[[], None]) -> Iterator[Diagnosis]:
    """Yield what one pass finds; LOOKED is called after each topic."""
    crash = CrashCost()
    store, txn = facts.store, facts.reader.txn

    def visit(topic: TopicFacts) -> None:
        crash.add(txn, topic.topic, topic.cursors)
        looked()

    unreferenced: list[Judged] = []
    trusted = True
    for judged in judge_store(facts, now_ms=now_ms, budget=budget, visit=visit):
        code = judged.code
        if code in _LEAKS:
            unreferenced.append(judged)
            continue
        trusted &= code not in NAMELESS
        yield diagnosis_of_judged(judged)
    yield from crash.diagnoses()
    if not trusted:
        yield from map(diagnosis_of_judged, unreferenced)
    for look in (*((leaks,) if trusted else ()), journal_only, dead_bytes, full_disks):
        with suppress(StoreError):  # the checks tell of rows that cannot be read
            yield from look(store, txn)


def _is_meant(found: Diagnosis, options: DoctorOptions) -> bool:
    return (not options.codes or found.code in options.codes) and (
        not options.severities or found.severity in options.severities
    )
