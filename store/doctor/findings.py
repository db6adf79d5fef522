"""Diagnoses from what is judged."""

from __future__ import annotations

from collections.abc import Mapping

from store.doctor.diagnosis import Diagnosis
from store.rules.cause import MEND, Severity
from store.rules.rule import Judged
from store.rules.table import CAUSES

_MESSAGES = ("messages", "missing", "entries", "unseen")


def diagnosis_of_judged(judged: Judged) -> Diagnosis:
    """Return the diagnosis that is JUDGED."""
    evidence = judged.evidence
    return diagnosis_of(judged.code, evidence.where, evidence.sentence, evidence.values, evidence.severity)


def diagnosis_of(
    code: str, where: str, message: str, evidence: Mapping[str, object], severity: Severity | None = None
) -> Diagnosis:
    """Return the diagnosis of the cause CODE; EVIDENCE fills its command and says what is at stake. SEVERITY: if not the table's."""
    cause = CAUSES[code]
    size = evidence.get("bytes")
    messages = next((evidence[key] for key in _MESSAGES if key in evidence), 0)
    return Diagnosis(
        severity=severity or cause.severity,
        code=code,
        where=where,
        message=message,
        evidence={key: value for key, value in evidence.items() if key != MEND},
        at_stake_bytes=size if isinstance(size, int) else 0,
        at_stake_messages=messages if isinstance(messages, int) else 0,
        broker=cause.broker,
        mend=cause.command({**evidence, "where": where}),
        page=cause.page,
    )
