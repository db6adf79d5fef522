"""Many findings of one kind as one: a topic that lost a hundred thousand ledgers lost them for one reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from store.check.finding import Finding

EACH_MOST = 100
"""So many of a kind are told one by one."""
_LEDGER = re.compile(r"\bledger \d+")


def sum_up(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield FINDINGS in their order; those that differ in the ledger alone, of a topic or of none, as one where there are many.

    It has what the first of them says, and how many there are (``ledgers`` in its context).
    """
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        groups.setdefault(_kind(finding), []).append(finding)
    for kind, found in groups.items():
        if len(found) <= EACH_MOST or kind[-1] == found[0].where:
            yield from found
            continue
        first = found[0]
        yield replace(
            first,
            where=place_of(first.where, f"{len(found):,} ledgers"),
            message=message_of(first.message, first.where),
            hint="list them with: pulsar-admin ledgers missing",
            context={"ledgers": len(found)} | {key: value for key, value in first.context.items() if key == "ledgerId"},
        )


def _kind(finding: Finding) -> tuple[object, ...]:
    return finding.severity, finding.code, finding.scope, place_of(finding.where)


def place_of(where: str, ledgers: str = "ledger") -> str:
    """Return WHERE with LEDGERS in place of its ledger: the same for all findings that differ in that alone."""
    return _LEDGER.sub(ledgers, where, count=1)


def message_of(first: str, where: str) -> str:
    """Return the message of many findings, the FIRST of which is of WHERE."""
    return f"{first} (of {where}, and so for each of them)"
