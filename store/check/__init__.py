"""``store check``: everything that can be wrong with a store, as findings. Read-only; repairs nothing.

Scope "store": our own rows contradict each other or the files (``store index --rebuild`` makes derived rows again). Scope "data":
what Pulsar left is damaged, incomplete or contradicts itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from store.check.data import TopicVisitor, check_data
from store.check.deep import check_deep
from store.check.finding import Finding, Severity, to_the_end, weight
from store.check.nacks import check_nacks
from store.check.rows import check_rows
from store.check.summing import sum_up
from store.db.environment import Store
from store.errors import Refused
from store.facts.cluster import ClusterFacts
from store.model.reader import EntryReader, open_reader
from store.rules.cause import Severity as RuleSeverity
from store.rules.rule import Rule
from store.rules.table import RULES, judge

if TYPE_CHECKING:
    from store.engine.operation import Engine

__all__ = ["Finding", "check_store", "iter_findings", "refuse_bundle"]


def check_store(
    store: Store,
    *,
    deep: bool = False,
    advance: Callable[[int], None] = lambda count: None,
    engine: Engine | None = None,
) -> Iterator[Finding]:
    """Yield every finding about STORE, the worst first, those of a deep check as they are found; many of one kind as one.

    DEEP reads every catalogued byte, on ENGINE or in this process: all digests, index and metadata against the data.
    A bad row or record is a finding, never an error; ADVANCE gets the bytes a deep check has read, of any other the topics.
    """
    if deep:
        refuse_bundle(store)
    with open_reader(store) as reader:
        found = iter_findings(store, reader, lambda topic, cursors: None if deep else advance(1))
        yield from sum_up(sorted(found, key=weight))
        if deep:
            # In the same transaction: beside a writer, the catalogue of one and the index of another contradict each other.
            yield from check_deep(store, reader, advance, engine)


def refuse_bundle(store: Store) -> None:
    """Raise Refused for a STORE that a deep check cannot read."""
    if any(source.get("bundle") for source in store.info.sources):
        raise Refused(
            "this store is of an incident bundle, which has no bytes of entries", hint="check it without --deep"
        )


def _findings_of(rule: Rule[ClusterFacts], facts: ClusterFacts) -> Iterator[Finding]:
    cause = rule.cause
    for _, evidence in judge(facts, (rule,)):
        severity = evidence.severity or cause.severity
        yield Finding(
            Severity.NOTE if severity is RuleSeverity.NOTE else Severity.PROBLEM,
            cause.code,
            rule.scope,
            evidence.where,
            evidence.sentence,
            rule.hint(evidence),
            context=dict(evidence.values) | ({} if evidence.severity is None else {"severity": severity}),
        )


def iter_findings(
    store: Store, reader: EntryReader, visit: TopicVisitor = lambda topic, cursors: None
) -> Iterator[Finding]:
    """Yield what all but the deep check find, as it is found; VISIT is called with each topic and its cursors."""
    with reader.txn.passing_altered():  # the rules tell of them
        facts = ClusterFacts(store, reader)
        for rule in RULES:
            yield from to_the_end(_findings_of(rule, facts), f"rule {rule.cause.code}")
        yield from check_rows(store, reader.txn)
        yield from check_nacks(reader.txn)
        yield from check_data(store, reader, visit)
