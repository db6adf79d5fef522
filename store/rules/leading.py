"""The rules of which other findings may come: cheap to judge, so that an import tells of them, without the rest of the table."""

from __future__ import annotations

from pulsar_admin.store.rules.cluster import CLUSTER_RULES
from pulsar_admin.store.rules.ledgers import LEDGER_RULES

LEADING = tuple(rule for rule in (*LEDGER_RULES, *CLUSTER_RULES) if rule.leads)
