"""Causes where nothing is damaged: leaked ledgers, disks, and what a crash cost."""

from __future__ import annotations

from store.rules.cause import Cause, Severity

_NEVER_DELETED = (
    "Nothing: no broker knows a ledger that no topic lists, and bookies delete only ledgers without metadata. The "
    "bytes stay forever."
)
_LEAK_REPAIRED = (
    "Look at the list and save it with `-o jsonl > orphans.jsonl`. Keep only the lines to delete, then run "
    "`ledgers delete --from-file orphans.jsonl`."
)


def _leak(code: str, title: str, means: str) -> Cause:
    return Cause(
        code,
        Severity.NOTE,
        title,
        f"{means} A warning from 1 GiB on.",
        _NEVER_DELETED,
        "pulsar-admin ledgers orphans",
        _LEAK_REPAIRED,
        "Crashes and failed deletions leave some; look for them now and then.",
    )


CAUSES_OF_TOPICS = (
    Cause(
        "not-closed",
        Severity.NOTE,
        "The last ledgers of topics are open",
        "They were not closed: the cluster was killed, or copied while it ran. The evidence has the time of the "
        "last write in this copy.",
        "Recovers each ledger when it loads the topic. Entries that were confirmed to producers stay; one that was"
        " in flight may or may not be kept.",
        "pulsar-admin store refresh",
        "Nothing to do. `ledgers info` says where a recovery will close a ledger (`openEnd`). If the copy was made"
        " while the cluster ran, refresh.",
        "Stop brokers before bookies.",
    ),
    Cause(
        "acknowledgements-not-stored",
        Severity.NOTE,
        "Messages acknowledged since the last stored state will come again",
        "Cursor ledgers are open. Brokers store positions once a second while they move, and at the latest after "
        "`managedLedgerCursorPositionFlushSeconds` (60). Later acknowledgements are in no file.",
        "Starts each subscription at its last stored state, and redelivers what consumers acknowledged since.",
        "pulsar-admin topics subscriptions --all-topics --table --where CURSOR=cursor-ledger",
        "They cannot be restored. If consumers know how far they were, use `topics reset-cursor`.",
        "Make consumers idempotent.",
    ),
    Cause(
        "entries-only-in-journal",
        Severity.NOTE,
        "Entries exist only in a bookie's journal",
        "The bookie had not flushed them to an entry log when it stopped or was copied. Each entry is counted "
        "once, at one of the journals that have it.",
        "The bookie replays its journal when it starts, and writes them to entry logs. Without the journal they "
        "are lost.",
        "pulsar-admin logs verify {where}",
        "Keep the journal with the ledger directories. Nothing else to do.",
        "Back up journal and ledger directories together.",
    ),
    _leak(
        "leaked-compacted-ledgers",
        "Compacted ledgers that no topic uses",
        "A compaction or a deletion was interrupted.",
    ),
    _leak(
        "leaked-buckets",
        "Buckets of delayed messages that no subscription uses",
        "A broker forgot to delete snapshots of its delayed index.",
    ),
    _leak(
        "leaked-cursor-ledgers",
        "Cursor ledgers that no subscription uses",
        "A cursor's ledger was replaced, or its subscription deleted.",
    ),
    _leak(
        "leaked-schema-ledgers",
        "Ledgers of schemas that no topic uses",
        "The schema was deleted, or writing it was interrupted.",
    ),
    _leak(
        "leaked-topic-ledgers",
        "Ledgers of topics that no topic lists",
        "A broker died between creating and listing the ledger, a deletion was interrupted, or the topic's list "
        "was lost: see `store recover`.",
    ),
    _leak(
        "leaked-ledgers",
        "Ledgers that nothing references",
        "Their own metadata does not say what they are.",
    ),
    Cause(
        "leaked-index",
        Severity.NOTE,
        "Parts of a delayed message index of this store that nothing uses",
        "The index was rebuilt or undone since.",
        "Nothing: no broker knows them.",
        "pulsar-admin ledgers orphans",
        "They only take space in the store.",
    ),
    Cause(
        "dead-bytes-kept",
        Severity.NOTE,
        "Dead bytes that compaction of entry logs does not free",
        "Deleted ledgers have bytes in entry logs of which half or more is still live. A warning from 10 GiB on.",
        "Bookies delete an entry log if nothing in it is live, and rewrite it if less than half is (Pulsar's "
        "`majorCompactionThreshold` 0.5). They never touch the log that is being written.",
        "pulsar-admin store usage --by log",
        "Let the ledgers that keep the log be deleted, or compact more aggressively while the bookie is stopped: "
        "`store reclaim`.",
        "Put topics with different lifetimes on separate bookies, or set `entryLogPerLedgerEnabled`.",
    ),
    Cause(
        "disk-full",
        Severity.WARNING,
        "The disk of a bookie is full",
        "The disk of the imported directory is 95 % full or more.",
        "A bookie becomes read-only at 95 % (`diskUsageThreshold`) and suspends compaction unless "
        "`isForceGCAllowWhenNoSpace`, so it cannot free space by itself. With too few writable bookies, brokers "
        "cannot create ledgers, and producers fail.",
        "pulsar-admin store usage",
        "Find out who fills it. With the bookie stopped, `store reclaim` frees what is dead.",
        "Alert at 80 %, set retention and quotas.",
    ),
)
"""A row for each code of ``store.doctor.whole``."""
