"""``doctor``: every check there is as ranked diagnoses, each with what a broker will do and the command that mends.

Reads only. Memory is bounded: of each code the worst diagnoses are kept, and the rest is summed up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from store.check import check_store
from store.db.environment import Store
from store.doctor.diagnosis import Diagnosis, Severity
from store.doctor.findings import diagnose_findings
from store.doctor.ranking import Ranking
from store.frozen import frozen

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

    NOW_MS is the time that ages and due messages are counted at. ADVANCE is told the bytes that a deep look has read, on ENGINE or in
    this process.
    """
    options = options or DoctorOptions()
    ranking = Ranking(options.each)
    for found in diagnose_findings(check_store(store, deep=options.deep, advance=advance, engine=engine)):
        if _is_meant(found, options):
            ranking.add(found)
    yield from ranking.ranked()


def _is_meant(found: Diagnosis, options: DoctorOptions) -> bool:
    return (not options.codes or found.code in options.codes) and (
        not options.severities or found.severity in options.severities
    )
