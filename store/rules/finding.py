"""A finding, as ``store check``, ``doctor``, the page, the overview and metrics show it."""

import re
from collections.abc import Mapping
from enum import StrEnum

from msgspec import field
from msgspec.structs import replace

from pulsar_admin.store.wording import Answer, clean_text

_LEDGER = re.compile(r"\bledger \d+")


class Severity(StrEnum):
    """Critical: data is lost or cannot be served. Warning: that will happen, or a fault shows no effect yet. Note: worth knowing."""

    CRITICAL = "critical"
    WARNING = "warning"
    NOTE = "note"


class Finding(Answer, frozen=True):
    """A case in which a rule applies: severity, place, what is at stake, what a broker will do, and the command that repairs it.

    ``evidence``: names and numbers by key, JSON values. ``at_stake_bytes`` and ``at_stake_messages``: data that is or would be lost, or
    is retained needlessly; 0 if it cannot be counted. ``page``: the section of the documentation. ``scope`` and ``repair``: those of the
    ``Rule``; ``hint``: what to do, in words, the command at its end.
    """

    SHOWN = ("severity", "code", "where", "message", "mend")
    JSON_HIDDEN = ("scope", "hint", "repair")

    severity: Severity
    code: str
    where: str
    message: str
    evidence: Mapping[str, object]
    at_stake_bytes: int = field(name="atStakeBytes")
    at_stake_messages: int
    broker: str
    mend: str
    page: str
    scope: str
    hint: str
    repair: str

    def __str__(self) -> str:
        """Return the paragraph that ``doctor`` prints: how bad it is, which rule, where, the sentence, and the next command."""
        following = [f"  next: {clean_text(self.mend)}"] if self.mend else []
        return "\n".join([*self.paragraph(), *following])

    def paragraph(self) -> list[str]:
        """Return the lines of its paragraph without the command: the place, then the sentence, wrapped.

        A command in the sentence has a line of its own: it is typed as it stands.
        """
        from textwrap import wrap

        text, colon, words = clean_text(self.message).partition(": pulsar-admin ")
        lines = wrap(text + colon[:1], 76, break_long_words=False, break_on_hyphens=False)
        lines += [f"pulsar-admin {words}"] if colon else []
        place = self.where.removeprefix("persistent://")
        return [clean_text(f"{self.severity} {self.code}: {place}"), *(f"  {line}" for line in lines)]

    @property
    def is_problem(self) -> bool:
        """Whether ``store check`` ends with exit code 1 for it: it is more than worth knowing."""
        return self.severity is not Severity.NOTE


def place_of(where: str, ledgers: str = "ledger") -> str:
    """Return ``where`` with ``ledgers`` instead of its ledger number, which is equal for findings that differ only in the ledger."""
    return _LEDGER.sub(ledgers, where, count=1)


def sum_of(first: Finding, count: int, size_bytes: int, messages: int) -> Finding:
    """Return ``first`` as the one finding about ``count`` ledgers. ``size_bytes``, ``messages``: at stake in all of them."""
    return replace(
        first,
        where=place_of(first.where, f"{count:,} ledgers"),
        message=f"{first.message} (for {first.where}; the same for each of the others)",
        at_stake_bytes=size_bytes,
        at_stake_messages=messages,
    )
