"""One thing that a check found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from store.frozen import frozen
from store.rules.cause import MEND
from store.rules.cause import Severity as RuleSeverity
from store.rules.rule import Judged


class Severity(StrEnum):
    """What is wrong, what is worth knowing, and the row that sums up a check."""

    PROBLEM = "problem"
    NOTE = "note"
    SUMMARY = "summary"


@frozen
class Finding:
    """What is wrong or worth knowing, with a stable ``code``.

    ``scope``: "store" for our own rows, "data" for what Pulsar left. ``repair``: the derived databases that ``store index --rebuild``
    makes again ("index"), or empty. ``context``: names and numbers by key; with ``severity`` where a rule says how bad it is here.
    """

    severity: Severity
    code: str
    scope: str
    where: str
    message: str
    hint: str = ""
    repair: str = ""
    context: Mapping[str, object] = field(default_factory=dict)


def finding_of(judged: Judged) -> Finding:
    """Return what is JUDGED as a finding."""
    rule, evidence = judged.rule, judged.evidence
    return Finding(
        Severity.NOTE if judged.severity is RuleSeverity.NOTE else Severity.PROBLEM,
        rule.cause.code,
        rule.scope,
        evidence.where,
        evidence.sentence,
        rule.hint(evidence),
        rule.repair,
        {key: value for key, value in evidence.values.items() if key != MEND}
        | ({} if evidence.severity is None else {"severity": evidence.severity}),
    )


def summary(where: str, message: str) -> Finding:
    """Return the row that sums up a check of the store at WHERE."""
    return Finding(Severity.SUMMARY, "checked", "store", where, message)
