"""The table of rules, and the one loop over it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from store.facts.cluster import ClusterFacts
from store.rules.bookies import BOOKIE_RULES
from store.rules.cluster import CLUSTER_RULES
from store.rules.ledgers import LEDGER_RULES
from store.rules.rows import ROW_RULES
from store.rules.rule import Evidence, Rule

RULES: tuple[Rule, ...] = (*ROW_RULES, *LEDGER_RULES, *CLUSTER_RULES, *BOOKIE_RULES)
LEADING = tuple(rule for rule in RULES if rule.cause.leads)
"""Rules of which other findings may come: cheap to judge, so that an import tells of them."""


def judge(facts: ClusterFacts, rules: Iterable[Rule] = RULES) -> Iterator[tuple[Rule, Evidence]]:
    """Yield each of RULES that holds with its evidence, in the order of the table."""
    for rule in rules:
        for evidence in rule.holds(facts):
            yield rule, evidence
