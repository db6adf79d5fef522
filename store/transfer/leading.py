"""What an import or a refresh tells of at once: findings of which others may come."""

from __future__ import annotations

from pulsar_admin.store.db.environment import Store
from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.rules.leading import LEADING


def leading_findings(store: Store) -> dict[str, str]:
    """Return code → what is said of each leading finding about STORE."""
    with open_reader(store) as reader:
        facts = ClusterFacts(store, reader)
        found = (finding for rule in LEADING for finding in rule.judge(facts))
        return {one.code: f"{one.where}: {one.message}. {one.hint}" for one in found}
