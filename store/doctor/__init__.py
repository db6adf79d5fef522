"""``doctor``: every check there is as ranked diagnoses, each with what a broker will do and the command that repairs it.

Reads only. Memory is bounded: of each code the worst diagnoses are kept, and the rest is summed up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from store.check import Finding, iter_findings, refuse_bundle
from store.check.deep import check_deep
from store.db.environment import Store
from store.doctor.diagnosis import Diagnosis
from store.doctor.findings import diagnosis_of, diagnosis_of_finding
from store.doctor.ranking import Ranking
from store.doctor.whole import CrashCost, dead_bytes, full_disks, journal_only, leaks
from store.errors import StoreError
from store.facts.topics import ReadBudget, TopicFacts
from store.frozen import frozen
from store.model.cursors import Cursor
from store.model.reader import EntryReader, open_reader
from store.model.topics import Topic
from store.rules.cause import Severity
from store.rules.table import TOPIC_RULES, judge

if TYPE_CHECKING:
    from store.engine.operation import Engine

__all__ = ["Diagnosis", "DoctorOptions", "Severity", "diagnose"]

EACH = 10
_LEAKS = {"ledgers-unreferenced", "ledgers-deleted"}
"""Findings that ``leaks`` tells instead: with their bytes, and by what the ledgers claim to be."""
_NAMELESS = {
    "owners-differ",
    "owners-damaged",
    "node-damaged",
    "value-undecodable",
    "metadata-incomplete",
    "topic-unreadable",
    "cursor-unreadable",
    "rows-altered",
    "node-rows-altered",
    "index-rows-altered",
    "check-stopped",
}
"""Where one of these is found nobody may call a ledger leaked: what references it may be what is damaged."""


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
        with reader.txn.passing_altered():  # the rules tell of them
            budget = ReadBudget(unlimited=options.deep)
            for found in _look(store, reader, now_ms, budget, looked):
                sink(found)
        if options.deep:
            for finding in check_deep(store, reader, advance, engine):
                sink(diagnosis_of_finding(finding))
    yield from ranking.ranked()


def _look(
    store: Store, reader: EntryReader, now_ms: int, budget: ReadBudget, looked: Callable[[], None]
) -> Iterator[Diagnosis]:
    """Yield what one pass finds; LOOKED is called after each topic."""
    crash = CrashCost()
    of_topics: list[Diagnosis] = []

    def visit(topic: Topic, cursors: Sequence[Cursor]) -> None:
        of_topics.extend(_diagnoses_of(TopicFacts(reader, topic, cursors, now_ms, budget)))
        crash.add(reader.txn, topic, cursors)
        looked()

    unreferenced: list[Finding] = []
    trusted = True
    for finding in iter_findings(store, reader, visit):
        yield from of_topics
        of_topics.clear()
        if finding.code in _LEAKS:
            unreferenced.append(finding)
            continue
        trusted &= finding.code not in _NAMELESS
        yield diagnosis_of_finding(finding)
    yield from of_topics
    yield from crash.diagnoses()
    if not trusted:
        yield from map(diagnosis_of_finding, unreferenced)
    for look in (*((leaks,) if trusted else ()), journal_only, dead_bytes, full_disks):
        with suppress(StoreError):  # the checks tell of rows that cannot be read
            yield from look(store, reader.txn)


def _diagnoses_of(facts: TopicFacts) -> Iterator[Diagnosis]:
    for rule in TOPIC_RULES:
        with suppress(StoreError):  # the checks tell of what cannot be read
            for _, evidence in judge(facts, (rule,)):
                yield diagnosis_of(
                    rule.cause.code, evidence.where, evidence.sentence, evidence.values, evidence.severity
                )


def _is_meant(found: Diagnosis, options: DoctorOptions) -> bool:
    return (not options.codes or found.code in options.codes) and (
        not options.severities or found.severity in options.severities
    )
