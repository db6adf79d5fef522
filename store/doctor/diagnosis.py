"""What the doctor says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from store.frozen import frozen
from store.rules.cause import Severity

__all__ = ["Diagnosis", "Severity"]


@frozen
class Diagnosis:
    """One finding: what, where, what is at stake, what a broker will do, and the command that repairs it.

    ``at_stake_bytes`` and ``at_stake_messages``: what is lost, or would be, or is kept for nothing; 0 where nobody can count it.
    ``evidence``: names and numbers by key, JSON values. ``page``: the section of the documentation.
    """

    severity: Severity
    code: str
    where: str
    message: str
    evidence: Mapping[str, object]
    at_stake_bytes: int = field(metadata={"json": "atStakeBytes"})
    at_stake_messages: int
    broker: str
    mend: str
    page: str
