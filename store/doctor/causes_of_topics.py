"""Causes where nothing is damaged: clocks, TTL, quotas, acknowledgements, compaction, ledgers, disks, and what a crash cost."""

from __future__ import annotations

from store.rules.cause import Cause, Severity

_CLOCKS = "Run NTP on producers and brokers, and turn on broker entry metadata (`brokerEntryMetadataInterceptors`)."
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
        "clock-ahead",
        Severity.WARNING,
        "A producer's clock is ahead",
        "Publish times are more than 5 minutes after the broker stamped the entry, or after its ledger was closed."
        " The evidence names the producers if the topic is small enough to be read, or with `--deep`.",
        "Searches and resets by time bisect, and land in the wrong place. If entries have no broker time, messages"
        " from the future do not expire. Messages behind them in the same ledger do not expire either, until the "
        "ledger is closed and older than the TTL.",
        "pulsar-admin topics skew {topic}",
        "Find the producer and set its clock. `topics find-by-time` and `topics reset-cursor` here are exact on "
        "such clocks.",
        _CLOCKS,
    ),
    Cause(
        "clock-behind",
        Severity.WARNING,
        "A producer's clock is behind",
        "Publish times are more than 5 minutes before the broker stamped the entry, or before the previous ledger "
        "was closed.",
        "If entries have no broker time, a TTL expires such messages too early, and at once if the clock is behind"
        " by more than the TTL. Searches and resets by time land in the wrong place.",
        "pulsar-admin topics skew {topic}",
        "Find the producer and set its clock.",
        _CLOCKS,
    ),
    Cause(
        "ledger-closed-in-future",
        Severity.WARNING,
        "A ledger was closed at a time in the future",
        "The time at which a broker closed a ledger is after now: the broker's clock was wrong, or `--now` is.",
        "Retention by time, and the TTL's shortcut for closed ledgers, use that time. The ledger and everything "
        "behind it stay until then, and for the retention time after it.",
        "pulsar-admin topics stats-internal {topic}",
        "Set the brokers' clocks. To free the disk before that time, use `topics truncate`, if every subscription "
        "may lose the ledger.",
        _CLOCKS,
    ),
    Cause(
        "ttl-blocked",
        Severity.WARNING,
        "A message from the future keeps a TTL from expiring anything",
        "The first unacknowledged message of a subscription is dated after now, and a TTL is in force.",
        "Looks at the first unacknowledged entry first. It has not expired, so nothing behind it does, until its "
        "ledger has been closed for longer than the TTL or its own time has come.",
        "pulsar-admin topics expire {topic} -s {subscription} -t AGE",
        "Expire exactly with this toolkit, or skip the message: `topics skip -n 1`.",
        _CLOCKS,
    ),
    Cause(
        "delay-beyond-ttl",
        Severity.WARNING,
        "A TTL drops delayed messages before they are due",
        "The time from a message's publication to its delivery is longer than the TTL in force.",
        "Counts a message's age from when it was stored, never from when it is due. The message is acknowledged "
        "without being delivered.",
        "pulsar-admin topics remove-message-ttl {topic}",
        "Set a TTL longer than the topic's longest delay (`topics set-message-ttl`). `delayed status` shows what "
        "would be lost.",
        "Set TTL and delays together: the TTL must be longer than any delay.",
    ),
    Cause(
        "backlog-over-quota",
        Severity.WARNING,
        "A backlog is over its quota",
        "Bytes, or the age of the oldest ledger with a backlog, exceed the backlog quota in force. It counts from "
        "the slowest cursor.",
        "Checks every minute (`backlogQuotaCheckIntervalInSeconds`). With `producer_request_hold` and "
        "`producer_exception`, it disconnects producers and refuses new ones. With `consumer_backlog_eviction`, it"
        " acknowledges for the slowest subscription until 90 % of the size is left; those messages are never "
        "delivered.",
        "pulsar-admin topics analyze-backlog {topic} -s {subscription}",
        "Let the subscription catch up, remove it (`topics unsubscribe`), skip its backlog (`topics "
        "clear-backlog`), or raise the quota (`topics set-backlog-quota`).",
        "Alert on backlog before the quota is reached.",
    ),
    Cause(
        "ack-hole-pins-ledgers",
        Severity.NOTE,
        "One unacknowledged message keeps ledgers that everybody has consumed",
        "Every subscription has acknowledged whole ledgers behind the slowest subscription's position, but a hole "
        "in front of them prevents their deletion. A warning from 100 MiB on.",
        "Trims the list of ledgers from its beginning, up to the ledger of the slowest mark-delete position. It "
        "never removes one from the middle.",
        "pulsar-admin topics peek-messages {topic} -s {subscription} -n 1",
        "Look at the message. If nobody needs it, use `topics skip -n 1`, or let consumers acknowledge it (dead "
        "letter policy).",
        "Give consumers a dead letter policy, or the topic a TTL.",
    ),
    Cause(
        "ack-ranges-at-limit",
        Severity.WARNING,
        "A subscription has more acknowledgement ranges than a broker stores",
        "A broker stores 10,000 ranges (`managedLedgerMaxUnackedRangesToPersist`). Acknowledgements beyond them "
        "exist only in its memory.",
        "Stores the first 10,000 ranges. After the next load of the topic, it redelivers the messages acknowledged"
        " beyond them.",
        "pulsar-admin topics subscription-history {topic} -s {subscription}",
        "Let consumers acknowledge the messages in the gaps, or expire them.",
        "Raise `managedLedgerMaxUnackedRangesToPersist`, and watch for consumers that leave holes.",
    ),
    Cause(
        "compaction-inconsistent",
        Severity.WARNING,
        "The compacted view and its cursor contradict each other",
        "The `__compaction` cursor does not stand where its compacted ledger ends, or that ledger is wrong.",
        "Readers of the compacted view miss messages, or get some uncompacted. The next compaction continues from "
        "the cursor.",
        "pulsar-admin compaction run {topic} --from-start",
        "`compaction verify` shows what is wrong. Compact again from the start while the topic's ledgers still exist.",
        "Never reset `__compaction` by hand.",
    ),
    Cause(
        "compaction-stale",
        Severity.NOTE,
        "A compaction that is never repeated keeps ledgers",
        "The topic was compacted once, and no threshold compacts it again. The `__compaction` cursor keeps every "
        "ledger behind its horizon, although all subscriptions have left them. A warning from 100 MiB on.",
        "Treats `__compaction` like any durable cursor when it trims. Without a threshold, it compacts only on "
        "request.",
        "pulsar-admin compaction run {topic}",
        "Compact again, or set a threshold: `topics set-compaction-threshold`.",
        "Set a compaction threshold for topics that are compacted.",
    ),
    Cause(
        "ledgers-tiny",
        Severity.NOTE,
        "A topic has very many small ledgers",
        "A thousand closed ledgers or more, with fewer than 100 entries on average.",
        "Opens ledgers one after the other when it reads. Each costs a metadata node, and the whole list is "
        "written at every rollover.",
        "pulsar-admin topics stats-internal {topic}",
        "Let ledgers be deleted: consume, or shorten retention. Closed ledgers are never merged.",
        "Find out what keeps reloading the topic, or raise `managedLedgerMinLedgerRolloverTimeMinutes`.",
    ),
    Cause(
        "ledger-huge",
        Severity.NOTE,
        "A ledger is unusually large",
        "One ledger has more than 10 GiB; the default limit is 2 GiB (`managedLedgerMaxSizePerLedgerMbytes`).",
        "Deletes only whole ledgers: one unacknowledged message keeps all of it.",
        "pulsar-admin ledgers info {ledgerId}",
        "Nothing, as long as consumers keep up.",
        "Lower `managedLedgerMaxLedgerRolloverTimeMinutes` or the size of a ledger.",
    ),
    Cause(
        "ledger-list-large",
        Severity.WARNING,
        "A topic's list of ledgers is close to ZooKeeper's limit",
        "It is half of ZooKeeper's `jute.maxbuffer` (1 MiB) or more. Critical from 90 % on.",
        "Writes the whole list at every rollover. If it is too large, ZooKeeper refuses it and closes the "
        "connection, and the topic accepts no more messages.",
        "pulsar-admin topics trim-topic {topic}",
        "Let ledgers be deleted, or raise `jute.maxbuffer` on both servers and brokers.",
        "Set `managedLedgerInfoCompressionType`, and make ledgers larger.",
    ),
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
"""A row for each code of ``store.doctor.topics`` and ``store.doctor.whole``."""
