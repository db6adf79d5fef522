"""``store check``: everything that can be wrong with a store, as findings. Read-only; repairs nothing.

Scope "store": our own rows contradict each other or the files (``store index --rebuild`` makes derived rows again). Scope "data":
what Pulsar left is damaged, incomplete or contradicts itself. ``store.rules`` judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pulsar_admin.store.db.environment import Store
from pulsar_admin.store.doctor.diagnosing import list_of
from pulsar_admin.store.facts.deep import DeepFacts
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.rules.finding import Finding, message_of, place_of
from pulsar_admin.store.rules.judging import judge_deep, judge_store, refuse_bundle, weight

if TYPE_CHECKING:
    from pulsar_admin.store.engine.operation import Engine

__all__ = ["Finding", "check_store"]

EACH_MOST = 100
"""So many of a kind are told one by one."""


def check_store(
    store: Store,
    *,
    deep: bool = False,
    advance: Callable[[int], None] = lambda count: None,
    engine: Engine | None = None,
) -> Iterator[Finding]:
    """Yield every finding about a store, the worst first, those of a deep check as they are found; many of one kind as one.

    ``deep`` reads every catalogued byte, on ``engine`` or in this process: all digests, index and metadata against the data.
    A bad row or record is a finding, never an error; ``advance`` is given the bytes a deep check has read, by any other the topics.
    """
    if deep:
        refuse_bundle(store)
    with open_reader(store) as reader:
        facts = DeepFacts(store, reader, advance, engine)
        found = judge_store(facts, now_ms=None, visit=lambda: None if deep else advance(1))
        yield from sum_up(sorted(found, key=weight))
        if deep:
            # In the same transaction: beside a writer, the catalogue of one and the index of another contradict each other.
            yield from judge_deep(facts)


def sum_up(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield ``findings`` in their order; those that differ in the ledger alone, of a topic or of none, as one where there are many.

    It has what the first of them says, and how many there are (``ledgers`` in its context).
    """
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        place = place_of(finding.where)
        groups.setdefault((finding.is_problem, finding.code, finding.scope, place), []).append(finding)
    for kind, found in groups.items():
        if len(found) <= EACH_MOST or kind[-1] == found[0].where:
            yield from found
            continue
        first, listing = found[0], list_of(found[0].code)
        yield replace(
            first,
            where=place_of(first.where, f"{len(found):,} ledgers"),
            message=message_of(first.message, first.where),
            at_stake_bytes=sum(one.at_stake_bytes for one in found),
            at_stake_messages=sum(one.at_stake_messages for one in found),
            mend=first.mend if all(one.mend == first.mend for one in found) else listing,
            hint=first.hint if all(one.hint == first.hint for one in found) else f"list them with: {listing}",
            evidence={"ledgers": len(found)}
            | {key: value for key, value in first.evidence.items() if key == "ledgerId"},
        )
