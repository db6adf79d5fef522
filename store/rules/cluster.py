"""Rules about the cluster as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from store.facts.cluster import ClusterFacts
from store.facts.managed_ledgers import others_text
from store.rules.cause import Cause, Severity
from store.rules.rule import Evidence, Rule


def _unknown_trees(facts: ClusterFacts) -> Iterator[Evidence]:
    for tree in facts.unknown_trees:
        yield Evidence(
            tree.path,
            str(tree),
            {"path": tree.path, "nodes": tree.nodes, "writer": tree.writer},
        )


def _other_ledgers(facts: ClusterFacts) -> Iterator[Evidence]:
    for domain, some in groupby(facts.other_ledgers, key=lambda one: one.domain):
        found = [*some]
        yield Evidence(
            domain,
            others_text(found),
            {
                "path": domain,
                "managedLedgers": len(found),
                "ledgers": sum(one.ledgers for one in found),
                "entries": sum(one.entries for one in found),
                "bytes": sum(one.bytes for one in found),
            },
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
    Rule(
        Cause(
            "other-managed-ledgers",
            Severity.NOTE,
            "Managed ledgers that are no topics of this version",
            "A newer Pulsar keeps them beside topics, such as the segments of scalable topics. They own their ledgers.",
            "A Pulsar that does not know them serves nothing of them.",
            "pulsar-admin store ls {path}",
            "Nothing to repair. `store info` names them with their sizes; commands on topics do not read or change them.",
        ),
        _other_ledgers,
    ),
)
