"""Rules about the cluster as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from store.facts.cluster import ClusterFacts
from store.rules.cause import Cause, Severity
from store.rules.rule import Evidence, Rule


def _unknown_trees(facts: ClusterFacts) -> Iterator[Evidence]:
    for tree in facts.unknown_trees:
        yield Evidence(
            tree.path,
            str(tree),
            {"path": tree.path, "nodes": tree.nodes, "writer": tree.writer},
        )


CLUSTER_RULES = (
    Rule(
        Cause(
            "unknown-tree",
            Severity.NOTE,
            "The metadata has a tree that this version does not know",
            "A newer Pulsar, or another program in the same ZooKeeper, wrote it. Its nodes may reference ledgers.",
            "A Pulsar that does not know it ignores it.",
            "pulsar-admin store ls {path}",
            "Look at what it is. Commands that judge that nothing references a ledger refuse until "
            "`--accept-unknown-tree` names it.",
        ),
        _unknown_trees,
    ),
)
