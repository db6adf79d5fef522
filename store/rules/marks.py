"""Rules about under-replication marks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.facts.marks import Mark
from pulsar_admin.store.rules.finding import Severity
from pulsar_admin.store.rules.rule import Evidence, Rule
from pulsar_admin.store.wording import counted, listed, plural

_NAMED = 10


def _stale(facts: ClusterFacts) -> Iterator[Evidence]:
    stale = [mark for mark in facts.marks if mark.is_stale]
    if not stale:
        return
    ids = sorted(mark.ledger_id for mark in stale)
    gone = _told([mark for mark in stale if mark.is_gone], "gone", "gone")
    complete = _told([mark for mark in stale if mark.is_complete], "complete", "complete")
    yield Evidence(
        f"{plural(len(ids), 'ledger')} {listed(ids, _NAMED)}",
        f"{counted(len(ids), 'ledger is', 'ledgers are')} marked as under-replicated and {' and '.join(filter(None, (gone, complete)))}:"
        " there is nothing to replicate",
        {
            "ledgers": len(ids),
            "ledgerIds": ids[:_NAMED],
            "gone": sum(mark.is_gone for mark in stale),
            "complete": sum(mark.is_complete for mark in stale),
            "bookies": sorted({bookie for mark in stale for bookie in mark.bookies})[:_NAMED],
        },
    )


def _told(marks: Sequence[Mark], one: str, many: str) -> str:
    return (
        f"{plural(len(marks), one, many)} ({listed(sorted(mark.ledger_id for mark in marks), _NAMED)})" if marks else ""
    )


MARK_RULES: tuple[Rule[ClusterFacts], ...] = (
    Rule(
        "marks-stale",
        Severity.NOTE,
        "Ledgers are marked as under-replicated without a reason",
        "The node below `/ledgers/underreplication` exists, but the ledger was deleted, or each of its entries is on "
        "as many bookies as its write quorum (bookkeeper#3316, pulsar#1886).",
        "The mark stays while no autorecovery runs, or it is disabled, and tools that count marks report lost copies. "
        "A running one finds nothing to replicate and removes the mark (BookKeeper 4.17; earlier ones were seen to "
        "take it up again and again).",
        "pulsar-admin ledgers unmark",
        "Remove the marks, all in one change; the auditor marks a ledger again if it needs it.",
        holds=_stale,
    ),
)
