"""``doctor``: every check there is as ranked diagnoses, each with what a broker will do and the command that repairs it.

Reads only. Memory is bounded: of each code the worst diagnoses are kept, and the rest is summed up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from store.db.environment import Store
from store.doctor.diagnosis import Diagnosis
from store.doctor.findings import diagnosis_of_judged
from store.doctor.ranking import Ranking
from store.facts.deep import DeepFacts
from store.facts.topics import ReadBudget
from store.frozen import frozen
from store.model.reader import open_reader
from store.rules.cause import Severity
from store.rules.judging import judge_deep, judge_store, refuse_bundle

if TYPE_CHECKING:
    from store.engine.operation import Engine

__all__ = ["Diagnosis", "DoctorOptions", "Severity", "diagnose"]

EACH = 10


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
        facts, budget = DeepFacts(store, reader, advance, engine), ReadBudget(unlimited=options.deep)
        looked = judge_store(
            facts, now_ms=now_ms, budget=budget, visit=lambda topic: None if options.deep else advance(1)
        )
        for judged in chain(looked, judge_deep(facts) if options.deep else ()):
            sink(diagnosis_of_judged(judged))
    yield from ranking.ranked()


def _is_meant(found: Diagnosis, options: DoctorOptions) -> bool:
    return (not options.codes or found.code in options.codes) and (
        not options.severities or found.severity in options.severities
    )
