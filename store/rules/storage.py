"""Rules about the storage as a whole, where nothing is damaged: what a crash cost, leaked ledgers, dead bytes, full disks."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.facts.orphans import LEAKED_INDEX as MADE_ANEW
from pulsar_admin.store.facts.orphans import Orphan
from pulsar_admin.store.facts.starts import FULL
from pulsar_admin.store.facts.unclosed import NAMED
from pulsar_admin.store.facts.unlisted import Unlisted
from pulsar_admin.store.facts.vanished import is_listable
from pulsar_admin.store.rules.copies import LEDGERS_DELETED, LEDGERS_GONE
from pulsar_admin.store.rules.finding import Finding, Severity
from pulsar_admin.store.rules.rule import Evidence, Rule, Rules, Sweep
from pulsar_admin.store.rules.words import LISTED_AT_ONCE
from pulsar_admin.store.timespec import shown_time
from pulsar_admin.store.wording import counted, plural

GIBIBYTE = 1 << 30
LEAKED_BYTES = GIBIBYTE
"""From here on leaked ledgers and dead bytes are a warning."""
COMPACTED_BELOW = 0.5
"""Pulsar's majorCompactionThreshold of entry logs."""
_NEVER_DELETED = (
    "Nothing: no broker knows a ledger that no topic lists, and bookies delete only ledgers without metadata. The "
    "bytes stay forever."
)
_LEAK_REPAIRED = (
    "Look at the list and save it with `-o jsonl > orphans.jsonl`. Keep only the lines to delete, then run "
    "`ledgers delete --from-file orphans.jsonl`."
)


LEAK_SWEEP = Sweep[ClusterFacts]("leaked ledgers", "use")
"""Reports the ledgers that ``store.rules.copies`` counts, with their bytes, by the kind that they claim."""


def _leak(code: str, title: str, means: str) -> Rule[Any]:
    return LEAK_SWEEP.row(
        code,
        Severity.NOTE,
        title,
        f"{means} A warning from 1 GiB on.",
        _NEVER_DELETED,
        "pulsar-admin ledgers orphans",
        _LEAK_REPAIRED,
        "Crashes and failed deletions leave some; look for them now and then.",
    )


LEAKED_COMPACTED_LEDGERS = _leak(
    "leaked-compacted-ledgers",
    "Compacted ledgers that no topic uses",
    "A compaction or a deletion was interrupted.",
)
LEAKED_BUCKETS = _leak(
    "leaked-buckets",
    "Buckets of delayed messages that no subscription uses",
    "A broker forgot to delete snapshots of its delayed index.",
)
LEAKED_CURSOR_LEDGERS = _leak(
    "leaked-cursor-ledgers",
    "Cursor ledgers that no subscription uses",
    "A cursor's ledger was replaced, or its subscription deleted.",
)
LEAKED_SCHEMA_LEDGERS = _leak(
    "leaked-schema-ledgers",
    "Ledgers of schemas that no topic uses",
    "The schema was deleted, or writing it was interrupted.",
)
LEAKED_TOPIC_LEDGERS = _leak(
    "leaked-topic-ledgers",
    "Ledgers of topics that no topic lists",
    "A broker died between creating and listing the ledger, a deletion was interrupted, or the topic's list "
    "was lost: see `store recover`. A warning where the topic lists no ledger, or earlier ones, or has a subscription at an earlier "
    "position: brokers remove ledgers only from the beginning of a list, only those that no subscription needs, and never all. So the "
    "list is an older one, or was changed by hand. `ledgers delete` then refuses, and `ledgers restore` puts them back into the list.",
)
_LISTED_AGAIN = replace(
    LEAKED_TOPIC_LEDGERS,
    mend="pulsar-admin ledgers restore {ledgerIds}",
    how="Put them back into the lists of their topics",
)
LEAKED_LEDGERS = _leak(
    "leaked-ledgers",
    "Ledgers that nothing references",
    "Their own metadata does not name an owner.",
)
LEAKED_INDEX = LEAK_SWEEP.row(
    "leaked-index",
    Severity.NOTE,
    "Unused ledgers that only this store has: parts of a delayed message index, or a compacted view",
    "The index was rebuilt since, or the change that wrote the ledger was undone.",
    "Nothing: no broker knows them.",
    "pulsar-admin ledgers orphans",
    "They only take space in the store.",
)
_GONE: dict[str, Rule[Any]] = {Unlisted.DELETED: LEDGERS_DELETED, Unlisted.GONE: LEDGERS_GONE}
_FATES = {
    LEDGERS_DELETED.code: "; they were deleted, and their entries wait for garbage collection",
    LEDGERS_GONE.code: " whose metadata is gone: a broker deleted them, or it was lost",
}
_OFF_LIST = " with messages that no reader gets, because topics that should list them do not"
_LEAKS = {
    "compacted-ledger": LEAKED_COMPACTED_LEDGERS,
    "delayed-index-bucket": LEAKED_BUCKETS,
    "schema": LEAKED_SCHEMA_LEDGERS,
}
"""What a ledger claims to be → the rule."""
CLOSING_RULES = Rules[ClusterFacts]("use")
DISK_RULES = Rules[ClusterFacts]("use")


@CLOSING_RULES.row(
    "not-closed",
    Severity.NOTE,
    "The last ledgers of topics are open",
    "They were not closed: the cluster was killed, or copied while it ran. The evidence has the time of the "
    "last write in this copy.",
    "Recovers each ledger when it loads the topic. Entries that were confirmed to producers stay; one that was"
    " in flight may or may not be kept.",
    "pulsar-admin ledgers list --where STATE~OPEN",
    "Nothing to do. `ledgers info` says where a recovery will close a ledger (`openEnd`). If the copy was made"
    " while the cluster ran, refresh.",
    "Stop brokers before bookies.",
)
def _not_closed(facts: ClusterFacts) -> Iterator[Evidence]:
    unclosed = facts.unclosed
    if unclosed.topics:
        last = f"; the last write was at {shown_time(unclosed.last_write_ms)}" if unclosed.last_write_ms else ""
        yield Evidence(
            "ledgers",
            f"the last ledger of {counted(unclosed.topics, 'topic')} is open: the cluster was killed, or copied while it ran{last}",
            {"topics": unclosed.topics, "lastWrite": unclosed.last_write_ms or None, "examples": unclosed.examples},
        )


@CLOSING_RULES.row(
    "acknowledgements-not-stored",
    Severity.NOTE,
    "Messages acknowledged since the last stored state will be redelivered",
    "Cursor ledgers are open. Brokers store positions once a second while they move, and at the latest after "
    "`managedLedgerCursorPositionFlushSeconds` (60). Later acknowledgements are in no file.",
    "Starts each subscription at its last stored state, and redelivers what consumers acknowledged since.",
    "pulsar-admin topics subscriptions --all-topics --table --where CURSOR!=metadata",
    "They cannot be restored. If consumers know how far they were, use `topics reset-cursor`.",
    "Make consumers idempotent.",
)
def _not_stored(facts: ClusterFacts) -> Iterator[Evidence]:
    count, named = facts.unclosed.subscriptions, facts.unclosed.named
    if count:
        yield Evidence(
            "subscriptions",
            f"{counted(count, 'subscription was', 'subscriptions were')} not closed: messages acknowledged in "
            f"the last minute may be redelivered to {', '.join(named)}{' …' if count > NAMED else ''}",
            {"subscriptions": count, "examples": named},
        )


@DISK_RULES.row(
    "entries-only-in-journal",
    Severity.NOTE,
    "Entries exist only in a bookie's journal",
    "The bookie had not flushed them to an entry log when it stopped or was copied. Each entry is counted "
    "once, at one of the journals that have it.",
    "The bookie replays its journal when it starts, and writes them to entry logs. Without the journal they are lost.",
    "pulsar-admin logs verify {where}",
    "Keep the journal with the ledger directories. Nothing else to do.",
    "Back up journal and ledger directories together.",
)
def _journal_only(facts: ClusterFacts) -> Iterator[Evidence]:
    for log, entries, size_bytes in facts.journal_only:
        yield Evidence(
            str(log.locate(facts.store.path)),
            f"{counted(entries, 'entry is', 'entries are')} in this journal and in no entry log yet",
            {"bookie": log.bookie or None, "entries": entries, "bytes": size_bytes},
        )


@LEAK_SWEEP.by
def _leaked(facts: ClusterFacts) -> Iterator[Finding]:
    """Yield one finding per kind of unreferenced ledgers, by what their metadata claims."""
    kinds = defaultdict[tuple[Rule[Any], bool], list[Orphan]](list)
    for orphan in facts.leaked:
        component = orphan.claims.get("component", "")
        is_off_list = orphan.ledger_id in facts.vanished.off_list
        if is_off_list and is_listable(facts.reader.txn, orphan.ledger_id):
            rule = _LISTED_AGAIN
        elif orphan.reason in _GONE:
            rule = _GONE[orphan.reason]
        elif orphan.reason == MADE_ANEW:
            rule = LEAKED_INDEX
        elif component == "managed-ledger":
            rule = LEAKED_CURSOR_LEDGERS if "pulsar/cursor" in orphan.claims else LEAKED_TOPIC_LEDGERS
        else:
            rule = _LEAKS.get(component, LEAKED_LEDGERS)
        kinds[rule, is_off_list].append(orphan)
    for (rule, is_off_list), orphans in kinds.items():
        size_bytes = sum(one.size_bytes for one in orphans)
        ids = [one.ledger_id for one in orphans[: LISTED_AT_ONCE if rule is _LISTED_AGAIN else NAMED]]
        is_free = rule.code in _FATES or rule is LEAKED_INDEX
        fate = _FATES.get(rule.code, _OFF_LIST if is_off_list else " that nothing references")
        evidence = Evidence(
            f"{plural(len(orphans), 'ledger')} {', '.join(map(str, ids[:NAMED]))}{' …' if len(orphans) > NAMED else ''}",
            f"{counted(len(orphans), 'ledger')} of {counted(size_bytes, 'byte')}{fate}",
            {
                "ledgers": len(orphans),
                "entries": sum(one.entries for one in orphans),
                "bytes": size_bytes,
                "ledgerIds": ids,
                "ledgerId": ids[0],
            },
            severity=Severity.WARNING if is_off_list or (size_bytes >= LEAKED_BYTES and not is_free) else Severity.NOTE,
        )
        yield rule.found(evidence)


@DISK_RULES.row(
    "dead-bytes-kept",
    Severity.NOTE,
    "Dead bytes that compaction of entry logs does not free",
    "Deleted ledgers have bytes in entry logs that are still at least half live. A warning from 10 GiB on.",
    "Bookies delete an entry log if nothing in it is live, and rewrite it if less than half is (Pulsar's "
    "`majorCompactionThreshold` 0.5). They never touch the log that is being written.",
    "pulsar-admin store usage --by log",
    "Delete the ledgers that keep the log, or compact more aggressively while the bookie is stopped: `store reclaim`.",
    "Put topics with different lifetimes on separate bookies, or set `entryLogPerLedgerEnabled`.",
)
def _dead_bytes(facts: ClusterFacts) -> Iterator[Evidence]:
    """Yield the dead bytes in entry logs that are too full of living ones for compaction."""
    kept = [log for log in facts.stuck_logs if log.live_bytes >= COMPACTED_BELOW * log.size_bytes]
    size = sum(log.dead_bytes for log in kept)
    if size:
        worst = kept[0]
        yield Evidence(
            "entry logs",
            f"{counted(size, 'byte')} of deleted data in {counted(len(kept), 'entry log')} that "
            f"{plural(len(kept), 'is', 'are')} at least half live, so compaction skips "
            f"{plural(len(kept), 'it', 'them')}; {Path(worst.path).name} also holds data of {worst.kept_for}",
            {"bytes": size, "logs": len(kept), "worst": worst.path, "keptFor": worst.kept_for},
            severity=Severity.WARNING if size >= 10 * GIBIBYTE else Severity.NOTE,
        )


@DISK_RULES.row(
    "disk-full",
    Severity.WARNING,
    "The disk of a bookie is full",
    "The disk of the imported directory is 95 % full or more.",
    "A bookie becomes read-only at 95 % (`diskUsageThreshold`) and suspends compaction unless "
    "`isForceGCAllowWhenNoSpace`, so it cannot free space by itself. With too few writable bookies, brokers "
    "cannot create ledgers, and producers fail.",
    "pulsar-admin store usage",
    "Find out who fills it. With the bookie stopped, `store reclaim` frees dead bytes.",
    "Alert at 80 %, set retention and quotas.",
)
def _full_disks(facts: ClusterFacts) -> Iterator[Evidence]:
    """Yield the disks that are too full for a bookie, among those with files that were imported in place."""
    for folder, usage in facts.disks:
        if usage.total and usage.used / usage.total >= FULL:
            yield Evidence(
                str(folder),
                f"{usage.used / usage.total:.0%} of the disk is used, {counted(usage.free, 'byte')} free",
                {"used": usage.used, "free": usage.free, "total": usage.total},
            )
