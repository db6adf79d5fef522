"""Rules about the cursor of deduplication, ``pulsar.dedup``, which snapshots of producers' sequence ids move and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_admin.store.facts.topics import TopicFacts
from pulsar_admin.store.model.cursors import DEDUP_CURSOR
from pulsar_admin.store.rules.finding import Severity
from pulsar_admin.store.rules.rule import Evidence, Rules
from pulsar_admin.store.wording import counted, plural

HELD_BYTES = 100 << 20
"""Less is what snapshots usually hold."""
DEDUPLICATION_RULES = Rules[TopicFacts]()


@DEDUPLICATION_RULES.row(
    "dedup-cursor-left",
    Severity.WARNING,
    "The deduplication cursor is still there although deduplication is off",
    "A policy of the topic or its namespace turns deduplication off, and the cursor `pulsar.dedup` is still there.",
    "Removes it when it loads the topic, from Pulsar 2.11 on (apache/pulsar#15363). Until then, and with earlier brokers, the"
    " cursor stays where it is and keeps all ledgers from there on.",
    "pulsar-admin topics unsubscribe {topic} -s pulsar.dedup --force",
    "Remove the cursor: its sequence ids of producers are useless while deduplication is off.",
    "Unload topics after turning deduplication off.",
    scope="use",
    needs="is_deduplicating",
)
def _left_behind(facts: TopicFacts) -> Iterator[Evidence]:
    if DEDUP_CURSOR in facts.mark_deletes and facts.is_deduplicated is False:
        ledgers, size = _held(facts)
        keeps = (
            f"keeps {counted(ledgers, 'ledger')} of {counted(size, 'byte')} that all subscriptions are past"
            if ledgers
            else "will keep ledgers that all subscriptions are past"
        )
        yield Evidence(
            facts.where,
            f"deduplication is off, and its cursor at {facts.mark_deletes[DEDUP_CURSOR]} is still there: it does not move and {keeps}",
            _values(facts, ledgers, size),
        )


@DEDUPLICATION_RULES.row(
    "dedup-holds-ledgers",
    Severity.NOTE,
    "Only the deduplication cursor keeps ledgers",
    "Every subscription is past them, and deduplication is on (apache/pulsar#7345, #22479).",
    "Moves the cursor with a snapshot: after `brokerDeduplicationEntriesInterval` (1,000) entries, and every"
    " `brokerDeduplicationSnapshotIntervalSeconds` (120) if producers were active. A topic that is quiet keeps its ledgers.",
    "pulsar-admin topics stats-internal {topic}",
    "Nothing to repair here: the next messages move it. If the topic no longer needs deduplication, disable it "
    "(`topics set-deduplication --disable`).",
    scope="use",
    needs="is_deduplicating",
)
def _holds(facts: TopicFacts) -> Iterator[Evidence]:
    if DEDUP_CURSOR not in facts.mark_deletes or facts.is_deduplicated is False:
        return
    ledgers, size = _held(facts)
    if size >= HELD_BYTES:
        yield Evidence(
            facts.where,
            f"its cursor at {facts.mark_deletes[DEDUP_CURSOR]} keeps {counted(ledgers, 'ledger')} of "
            f"{counted(size, 'byte')} that all subscriptions are past: {plural(ledgers, 'it', 'they')} can be deleted "
            "after the next snapshot, which a broker takes after new entries",
            _values(facts, ledgers, size),
        )


def _held(facts: TopicFacts) -> tuple[int, int]:
    """Return the ledgers that this cursor alone keeps, and their bytes; without any other cursor none are kept by it alone."""
    if len(facts.mark_deletes) < 2:
        return 0, 0
    ledgers = facts.topic.ledgers[facts.consumed[0] : facts.consumed_without(DEDUP_CURSOR)]
    return len(ledgers), sum(ledger.size_bytes for ledger in ledgers)


def _values(facts: TopicFacts, ledgers: int, size: int) -> dict[str, object]:
    return {
        "topic": facts.where,
        "position": str(facts.mark_deletes[DEDUP_CURSOR]),
        "ledgers": ledgers,
        "bytes": size,
    }
