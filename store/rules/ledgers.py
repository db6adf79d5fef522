"""Rules about ledgers that bookies hold and the metadata does not list."""

from __future__ import annotations

from collections.abc import Iterator

from store.facts import Unknown
from store.facts.cluster import ClusterFacts
from store.rules.cause import Cause, Severity
from store.rules.rule import Evidence, Rule
from store.wording import counted, plural


def _metadata_older(facts: ClusterFacts) -> Iterator[Evidence]:
    newer, next_id = facts.newer_ledgers, facts.next_ledger_id
    if newer is None or isinstance(next_id, Unknown):
        return
    named = f" ({newer.referenced:,} of them named by topics)" if newer.referenced else ""
    size = f"{counted(newer.entries, 'entry')} of {counted(newer.bytes, 'byte')}"
    yield Evidence(
        "metadata",
        f"it is older than the bookies: its next ledger id is {next_id}, and {counted(newer.ledgers, 'ledger')} up to {newer.largest}"
        f"{named} with {size} {plural(newer.ledgers, 'is', 'are')} not in it: nobody deleted them, and a bookie that starts on it does",
        {
            "nextLedgerId": next_id,
            "largestLedgerId": newer.largest,
            "ledgers": newer.ledgers,
            "referenced": newer.referenced,
            "entries": newer.entries,
            "bytes": newer.bytes,
        },
    )


def _unlisted(facts: ClusterFacts) -> Iterator[Evidence]:
    found = facts.unlisted_ledgers
    if found is None:
        return
    ids = ", ".join(map(str, found.first_ids))
    yield Evidence(
        f"{plural(found.ledgers, 'ledger')} {ids}{' …' if found.ledgers > len(found.first_ids) else ''}",
        f"{counted(found.ledgers, 'ledger')} of {counted(found.bytes, 'byte')}; the metadata does not list them, and nothing shows whether"
        " they were deleted",
        {"ledgers": found.ledgers, "entries": found.entries, "bytes": found.bytes, "ledgerIds": list(found.first_ids)},
    )


LEDGER_RULES = (
    Rule(
        Cause(
            "metadata-older",
            Severity.CRITICAL,
            "The metadata is older than the bookies",
            "Bookies hold ledgers with ids that this metadata never gave: it is an older copy or backup, or its newest changes are lost."
            " What topics it lists, where they end and where subscriptions stand is as of then.",
            "Bookies delete the entries of ledgers that the metadata does not list (`ScanAndCompareGarbageCollector`). The ids are given"
            " a second time: bookies that have fenced such a ledger refuse its new entries, others keep entries of both under one id.",
            "pulsar-admin store recover --level B",
            "Start no bookie on it. Bring newer metadata, if there is any, and run `store refresh`. Otherwise roll it forward over"
            " what the bookies hold.",
            "Copy the metadata after the bookies' disks, or all of it from a stopped cluster.",
            leads=True,
        ),
        _metadata_older,
        "the entries of the ledgers, once a bookie starts on this metadata",
    ),
    Rule(
        Cause(
            "ledgers-unlisted",
            Severity.NOTE,
            "Ledgers that the metadata does not list, for a reason that is not known",
            "They have entries and no metadata. The metadata is not whole, or does not say which ledger ids it gave: they may be lost,"
            " newer than the metadata, or deleted.",
            "Bookies free what the metadata of a running cluster does not list.",
            "pulsar-admin ledgers orphans",
            "Bring the whole metadata, then run `store refresh`. Until then start no bookie on what there is.",
        ),
        _unlisted,
        "the entries of the ledgers, once a bookie starts on this metadata",
    ),
)
