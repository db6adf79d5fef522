"""Rules about under-replication marks."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.rules.finding import Severity
from pulsar_admin.store.rules.rule import Evidence, Rules
from pulsar_admin.store.wording import counted, listed, plural

_NAMED = 10
MARK_RULES = Rules[ClusterFacts]()


@MARK_RULES.row(
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
)
def _stale(facts: ClusterFacts) -> Iterator[Evidence]:
    stale = [mark for mark in facts.marks if mark.is_stale]
    if not stale:
        return
    ids = sorted(mark.ledger_id for mark in stale)
    gone = sorted(mark.ledger_id for mark in stale if mark.is_gone)
    complete = sorted(mark.ledger_id for mark in stale if mark.is_complete)
    why = (f"{word} ({listed(some, _NAMED)})" for word, some in (("gone", gone), ("complete", complete)) if some)
    yield Evidence(
        f"{plural(len(ids), 'ledger')} {listed(ids, _NAMED)}",
        f"{counted(len(ids), 'ledger is', 'ledgers are')} marked as under-replicated and {' and '.join(why)}:"
        " there is nothing to replicate",
        {
            "ledgers": len(ids),
            "ledgerIds": ids[:_NAMED],
            "gone": len(gone),
            "complete": len(complete),
            "bookies": sorted({bookie for mark in stale for bookie in mark.bookies})[:_NAMED],
        },
    )
