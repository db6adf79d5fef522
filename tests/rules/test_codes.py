"""Codes of what is told stand in the tables of rules, and nowhere else."""

import ast
from pathlib import Path
from typing import Any

from pulsar_admin.store.rules.holders import HOLDERS
from pulsar_admin.store.rules.rule import Rule
from pulsar_admin.store.rules.subscriptions import SUBSCRIPTION_RULES
from pulsar_admin.store.rules.table import ALL_TOPIC_RULES, RULES

WHY = Path(__file__).resolve().parents[2] / "store" / "doctor" / "why.py"


def test_why_names_no_code() -> None:
    codes = {rule.code for rule in SUBSCRIPTION_RULES} | HOLDERS.keys()
    nodes = [*ast.walk(ast.parse(WHY.read_text()))]
    assert len(nodes) > 1_000
    assert codes & {node.value for node in nodes if isinstance(node, ast.Constant)} == set()


def test_a_code_has_one_cause() -> None:
    rules: list[Rule[Any]] = [*RULES, *ALL_TOPIC_RULES, *SUBSCRIPTION_RULES]
    first = {rule.code: rule.text() for rule in reversed(rules)}
    assert [rule.code for rule in rules if first[rule.code] != rule.text()] == []
