"""The table of rules, and the one loop over it."""

from __future__ import annotations

from collections.abc import Iterator

from store.facts.cluster import ClusterFacts
from store.rules.cluster import CLUSTER_RULES
from store.rules.rule import Evidence, Rule

RULES: tuple[Rule, ...] = (*CLUSTER_RULES,)


def judge(facts: ClusterFacts) -> Iterator[tuple[Rule, Evidence]]:
    """Yield each rule that holds with its evidence, in the order of the table."""
    for rule in RULES:
        for evidence in rule.holds(facts):
            yield rule, evidence
