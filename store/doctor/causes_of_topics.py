"""Causes where nothing is damaged: clocks, TTL, quotas, acknowledgements, compaction, ledgers, disks, and what a crash cost."""

from __future__ import annotations

from store.doctor.diagnosis import Cause, Severity

_CLOCKS = "Run NTP on producers and brokers, and switch broker entry metadata on (`brokerEntryMetadataInterceptors`)."
_NEVER_DELETED = (
    "Nothing: a broker forgets what it does not list, and bookies delete only ledgers without metadata. The bytes "
    "stay for ever."
)
_LEAK_MENDED = (
    "Look at the list, save it with `-o jsonl > orphans.jsonl`, keep the lines that shall go, and delete them with "
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
        _LEAK_MENDED,
        "Crashes and failed deletions leave some; look for them now and then.",
    )


CAUSES_OF_TOPICS = (
    Cause(
        "clock-ahead",
        Severity.WARNING,
        "A producer's clock is ahead",
        "Publish times are more than 5 minutes after the broker stamped the entry, or after its ledger was closed. "
        "The evidence names the "
        "producers where the topic is small enough to be read, or with `--deep`.",
        "Searches and resets by time go by bisection and land in the wrong place. Where entries carry no broker "
        "time, messages of "
        "the future do not expire, nor does what is behind them in the same ledger until that is closed and older "
        "than the TTL.",
        "pulsar-admin topics skew {topic}",
        "Find the producer and set its clock. `topics find-by-time` and `topics reset-cursor` here are exact on "
        "such clocks.",
        _CLOCKS,
    ),
    Cause(
        "clock-behind",
        Severity.WARNING,
        "A producer's clock is behind",
        "Publish times are more than 5 minutes before the broker stamped the entry, or before the ledger in front "
        "of it was closed.",
        "Where entries carry no broker time, a TTL expires such messages too early, at once if the clock is behind "
        "by more than the TTL; "
        "searches and resets by time land in the wrong place.",
        "pulsar-admin topics skew {topic}",
        "Find the producer and set its clock.",
        _CLOCKS,
    ),
    Cause(
        "ledger-closed-in-future",
        Severity.WARNING,
        "A ledger was closed at a time that is yet to come",
        "The time at which a broker closed a ledger is after now: the broker's clock was wrong, or `--now` is.",
        "Retention by time and the TTL's short cut for closed ledgers go by that time: the ledger, and all behind "
        "it, stay until it has "
        "come and the retention after it.",
        "pulsar-admin topics stats-internal {topic}",
        "Set the brokers' clocks. To free the disk before that time: `topics truncate`, when every subscription may "
        "lose the ledger.",
        _CLOCKS,
    ),
    Cause(
        "ttl-blocked",
        Severity.WARNING,
        "A message from the future keeps a TTL from expiring anything",
        "The first unacknowledged message of a subscription is dated after now, and a TTL is in force.",
        "Looks at the first unacknowledged entry first: it has not expired, so nothing behind it does, until its "
        "ledger is closed and that "
        "is longer ago than the TTL, or its own time has come.",
        "pulsar-admin topics expire {topic} -s {subscription} -t AGE --dry-run",
        "Expire exactly, here; or skip the message: `topics skip -n 1`.",
        _CLOCKS,
    ),
    Cause(
        "delay-beyond-ttl",
        Severity.WARNING,
        "A TTL drops delayed messages before they are due",
        "The time from a message's publication to its delivery is longer than the TTL in force.",
        "Counts a message's age from when it was stored, never from when it is due: it is acknowledged unseen, and "
        "never delivered.",
        "pulsar-admin topics remove-message-ttl {topic}",
        "Give the topic a TTL that is longer than its longest delay (`topics set-message-ttl`); `delayed status` "
        "shows what would be lost.",
        "Set TTL and delays together: the TTL must be longer than any delay.",
    ),
    Cause(
        "backlog-over-quota",
        Severity.WARNING,
        "A backlog is over its quota",
        "Bytes, or the age of the oldest ledger with a backlog, exceed the backlog quota in force. It counts from "
        "the slowest cursor.",
        "Checks every minute (`backlogQuotaCheckIntervalInSeconds`). `producer_request_hold` and "
        "`producer_exception`: disconnects producers "
        "and refuses new ones. `consumer_backlog_eviction`: acknowledges for the slowest subscription until 90 % of "
        "the size is left; those "
        "messages are never delivered.",
        "pulsar-admin topics analyze-backlog {topic} -s {subscription}",
        "Let the subscription catch up, remove it (`topics unsubscribe`), skip (`topics clear-backlog`), or raise "
        "the quota "
        "(`topics set-backlog-quota`).",
        "Alert on backlog before the quota is reached.",
    ),
    Cause(
        "ack-hole-pins-ledgers",
        Severity.NOTE,
        "One unacknowledged message keeps ledgers that everybody has consumed",
        "Whole ledgers behind the slowest subscription's position are acknowledged by every subscription, and "
        "cannot be deleted because of a "
        "hole in front of them. A warning from 100 MiB on.",
        "Trims the list of ledgers from its beginning, up to the ledger of the slowest mark-delete position; it "
        "never takes one out of the "
        "middle.",
        "pulsar-admin topics peek-messages {topic} -s {subscription} -n 1",
        "Look at the message. If nobody needs it: `topics skip -n 1`, or let consumers acknowledge it (dead letter "
        "policy).",
        "Give consumers a dead letter policy, or the topic a TTL.",
    ),
    Cause(
        "ack-ranges-at-limit",
        Severity.WARNING,
        "A subscription has more ranges of acknowledgements than a broker stores",
        "10,000 ranges are stored (`managedLedgerMaxUnackedRangesToPersist`). What was acknowledged beyond them is "
        "in the broker's memory "
        "only.",
        "Stores the first 10,000 ranges; after the next load of the topic the messages acknowledged beyond them "
        "come again.",
        "pulsar-admin topics subscription-history {topic} -s {subscription}",
        "Let consumers acknowledge the holes, or expire what is in front of them.",
        "Raise `managedLedgerMaxUnackedRangesToPersist`, and watch for consumers that leave holes.",
    ),
    Cause(
        "compaction-inconsistent",
        Severity.WARNING,
        "The compacted view and its cursor contradict each other",
        "The `__compaction` cursor does not stand where its compacted ledger ends, or that ledger is not what it "
        "should be.",
        "Readers of the compacted view miss messages, or get some uncompacted; the next compaction goes on from the "
        "cursor.",
        "pulsar-admin compaction run {topic} --from-start --dry-run",
        "`compaction verify` shows what is wrong; compact again from the start while the topic's ledgers are there.",
        "See pulsar 4.0's compaction and resets: never reset `__compaction` by hand.",
    ),
    Cause(
        "compaction-stale",
        Severity.NOTE,
        "A compaction that nobody repeats keeps ledgers",
        "The topic was compacted once; no threshold compacts it again, and the `__compaction` cursor keeps every "
        "ledger behind its horizon "
        "although all subscriptions have left them. A warning from 100 MiB on.",
        "Counts `__compaction` as any durable cursor when it trims; without a threshold it compacts only when asked.",
        "pulsar-admin compaction run {topic}",
        "Compact again, or set a threshold: `topics set-compaction-threshold`.",
        "Set a compaction threshold for topics that are compacted.",
    ),
    Cause(
        "ledgers-tiny",
        Severity.NOTE,
        "A topic has very many small ledgers",
        "A thousand closed ledgers or more, with fewer than 100 entries on average.",
        "Opens ledgers one after the other when it reads; each costs a node of metadata, and the list is written "
        "whole at every rollover.",
        "pulsar-admin topics stats-internal {topic}",
        "Let ledgers go: consume, or shorten retention. Ledgers that are closed are never joined.",
        "Find what reloads the topic again and again; raise `managedLedgerMinLedgerRolloverTimeMinutes`.",
    ),
    Cause(
        "ledger-huge",
        Severity.NOTE,
        "A ledger is much larger than brokers make them",
        "More than 10 GiB in one ledger, where 2 GiB are usual (`managedLedgerMaxSizePerLedgerMbytes`).",
        "Deletes ledgers as a whole: one unacknowledged message keeps all of it.",
        "pulsar-admin ledgers info {ledgerId}",
        "Nothing, as long as consumers keep up.",
        "Lower `managedLedgerMaxLedgerRolloverTimeMinutes` or the size of a ledger.",
    ),
    Cause(
        "ledger-list-large",
        Severity.WARNING,
        "The list of a topic's ledgers is near what ZooKeeper takes",
        "Half of ZooKeeper's `jute.maxbuffer` (1 MiB) or more. Critical from 90 % on.",
        "Writes the list whole at every rollover; ZooKeeper refuses a larger one and closes the connection, and the "
        "topic takes no more "
        "messages.",
        "pulsar-admin topics trim-topic {topic}",
        "Let ledgers go, or raise `jute.maxbuffer` on servers and brokers alike.",
        "Set `managedLedgerInfoCompressionType`, and make ledgers larger.",
    ),
    Cause(
        "not-closed",
        Severity.NOTE,
        "The last ledgers of topics are open",
        "Nobody closed them: the cluster was killed, or copied while it ran. The evidence has the time of the last "
        "write that is here.",
        "Recovers each ledger when it loads the topic: entries that producers were told are stored stay; one that "
        "was on its way may come or go.",
        "pulsar-admin store refresh",
        "Nothing to mend. `ledgers info` says where a recovery will close a ledger (`openEnd`). Of a copy made "
        "while it ran: refresh.",
        "Stop brokers before bookies.",
    ),
    Cause(
        "acknowledgements-not-stored",
        Severity.NOTE,
        "Acknowledgements since the last stored state will come again",
        "Ledgers of cursors are open: brokers store positions once a second while they move, and at the latest after "
        "`managedLedgerCursorPositionFlushSeconds` (60). What was acknowledged after that is in no file.",
        "Starts each subscription at its last stored state: consumers get again what they acknowledged since.",
        "pulsar-admin topics subscriptions --all-topics --table --where CURSOR=cursor-ledger",
        "Nothing brings them back. If consumers know how far they were: `topics reset-cursor`.",
        "Make consumers idempotent.",
    ),
    Cause(
        "entries-only-in-journal",
        Severity.NOTE,
        "Entries are in a bookie's journal only",
        "The bookie had not flushed them into an entry log when it stopped or was copied. Copies are counted once: an entry "
        "that several journals have stands at one of them.",
        "The bookie replays its journal when it starts, and writes them into entry logs. Without the journal they "
        "are lost.",
        "pulsar-admin logs verify {where}",
        "Keep the journal with the ledger directories. Nothing else to do.",
        "Back up journal and ledger directories together.",
    ),
    _leak(
        "leaked-compacted-ledgers", "Compacted ledgers that no topic uses", "A compaction or a deletion did not end."
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
        "The schema was deleted, or a write of it did not end.",
    ),
    _leak(
        "leaked-topic-ledgers",
        "Ledgers of topics that no topic lists",
        "A broker died between making and listing the ledger, a deletion did not end, or the topic's list was lost: "
        "`store recover` tells.",
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
        "The index was made anew or undone since.",
        "Nothing: no broker knows them.",
        "pulsar-admin ledgers orphans",
        "They cost room in the store only.",
    ),
    Cause(
        "dead-bytes-kept",
        Severity.NOTE,
        "Dead bytes that compaction of entry logs does not free",
        "Bytes of deleted ledgers in entry logs of which half or more still lives. A warning from 10 GiB on.",
        "Bookies delete an entry log when nothing in it lives, and rewrite it when less than half does (Pulsar's "
        "`majorCompactionThreshold` "
        "0.5); never the one that is written.",
        "pulsar-admin store usage --by log",
        "Let the ledgers go that keep the log, or compact harder while the bookie is stopped: `store reclaim`.",
        "Put topics of unlike lifetime on bookies of their own, or set `entryLogPerLedgerEnabled`.",
    ),
    Cause(
        "disk-full",
        Severity.WARNING,
        "The disk of a bookie is full",
        "95 % or more of the disk that the imported directory lies on is used.",
        "A bookie turns read-only at 95 % (`diskUsageThreshold`), and suspends compaction unless "
        "`isForceGCAllowWhenNoSpace`: it cannot free "
        "space by itself any more. With too few writable bookies brokers cannot make ledgers, and producers fail.",
        "pulsar-admin store usage",
        "Look at who fills it; with the bookie stopped `store reclaim` frees what is dead.",
        "Alert at 80 %, set retention and quotas.",
    ),
)
"""A row for each code of ``store.doctor.topics`` and ``store.doctor.whole``."""
