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
        where = _LEDGER.sub(f"{len(found):,} ledgers", first.where, count=1)
        yield replace(
            first,
            where=where,
            message=f"{first.message} (of {first.where}, and so for each of them)",
            hint="list them with: pulsar-admin ledgers missing",
            context={"ledgers": len(found)} | {key: value for key, value in first.context.items() if key == "ledgerId"},
        )


def _kind(finding: Finding) -> tuple[object, ...]:
    return finding.severity, finding.code, finding.scope, _LEDGER.sub("ledger", finding.where, count=1)
