"""The table of all rules, which ``store.rules.judging`` applies."""

from collections.abc import Collection
from itertools import chain
from typing import Any

from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.facts.topics import TopicFacts
from pulsar_admin.store.rules.backlogs import BACKLOGS_LEFT_OUT, CHUNK_RULES, MARKER_RULES
from pulsar_admin.store.rules.bookies import BOOKIE_RULES
from pulsar_admin.store.rules.changes import CHANGE_SWEEPS
from pulsar_admin.store.rules.cluster import CLUSTER_RULES
from pulsar_admin.store.rules.copies import LEDGER_SWEEPS, MARK_RULES
from pulsar_admin.store.rules.deep import DEEP_SWEEPS
from pulsar_admin.store.rules.files import FILE_SWEEPS
from pulsar_admin.store.rules.finding import Severity
from pulsar_admin.store.rules.index import INDEX_SWEEPS
from pulsar_admin.store.rules.ledgers import LEDGER_RULES
from pulsar_admin.store.rules.nodes import NODE_SWEEPS
from pulsar_admin.store.rules.partitions import PARTITION_RULES
from pulsar_admin.store.rules.rows import CHECK_STOPPED, ROW_RULES
from pulsar_admin.store.rules.rule import Rule, Sweep, of_subscriptions, of_topic
from pulsar_admin.store.rules.scalable import SCALABLE_RULES
from pulsar_admin.store.rules.starts import START_RULES
from pulsar_admin.store.rules.storage import CLOSING_RULES, DISK_RULES, LEAK_SWEEP
from pulsar_admin.store.rules.subscriptions import CURSOR_AHEAD
from pulsar_admin.store.rules.topic_data import TOPIC_SWEEP
from pulsar_admin.store.rules.topics import DEDUPLICATION_RULES, TOPIC_RULES
from pulsar_admin.store.rules.transactions import TRANSACTION_RULES

RULES: tuple[Rule[ClusterFacts], ...] = (
    *ROW_RULES,
    *LEDGER_RULES,
    *CLUSTER_RULES,
    *BOOKIE_RULES,
    *START_RULES,
    *PARTITION_RULES,
    *SCALABLE_RULES,
    *MARK_RULES,
)
_OF_SUBSCRIPTIONS = map(of_subscriptions, (*TRANSACTION_RULES, *CHUNK_RULES, *MARKER_RULES, CURSOR_AHEAD))
ALL_TOPIC_RULES: tuple[Rule[TopicFacts], ...] = tuple(
    map(of_topic, (*TOPIC_RULES, *DEDUPLICATION_RULES, *_OF_SUBSCRIPTIONS))
)
SWEEPS: tuple[Sweep[ClusterFacts], ...] = (
    *FILE_SWEEPS,
    *INDEX_SWEEPS,
    *CHANGE_SWEEPS,
    *NODE_SWEEPS,
    *LEDGER_SWEEPS,
)

_SWEPT = chain(TOPIC_SWEEP, *SWEEPS, *DEEP_SWEEPS)
_WHOLE = (*CLOSING_RULES, *LEAK_SWEEP, *DISK_RULES, BACKLOGS_LEFT_OUT)
_TOLD: tuple[Rule[Any], ...] = (*RULES, *ALL_TOPIC_RULES, *_SWEPT, CHECK_STOPPED, *_WHOLE)  # Any: of whatever facts
RULES_BY_CODE: dict[str, Rule[Any]] = {rule.code: rule for rule in _TOLD}
"""Every rule of the doctor, by code."""


def rule_of(code: str) -> Rule[Any]:  # Any: of whatever facts
    """Return the rule ``code``; for a code of another version, a rule without texts."""
    return RULES_BY_CODE.get(code) or Rule(code, Severity.NOTE, "")


def explanation(code: str) -> Rule[Any]:
    """Return the rule with a code; raises InvalidValue that suggests similar codes."""
    from difflib import get_close_matches  # 3 ms, and few codes are mistyped

    rule = RULES_BY_CODE.get(code)
    if rule is None:
        near = get_close_matches(code, RULES_BY_CODE, 2) or [one for one in RULES_BY_CODE if code in one][:3]
        hint = f"did you mean {' or '.join(near)}?" if near else "see docs/doctor.md"
        raise InvalidValue(f"the doctor knows no code {code!r}", hint=hint, code=code)
    return rule


def check_codes(codes: Collection[str]) -> None:
    """Raise InvalidValue for a code that no rule has."""
    for code in codes:
        explanation(code)
