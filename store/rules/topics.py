"""Rules about topics where nothing is damaged: clocks, TTL, quotas, acknowledgements, compaction, ledgers."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial

from pulsar_admin.store.errors import EntryCorrupt, EntryLogCorrupt, MetadataCorrupt
from pulsar_admin.store.facts import Unknown, known
from pulsar_admin.store.facts.topics import Clocks, SubscriptionFacts, TopicFacts
from pulsar_admin.store.model.cursors import COMPACTION_CURSOR, DEDUP_CURSOR, Intervals
from pulsar_admin.store.names import PERSISTENT, shell_word
from pulsar_admin.store.rules.finding import Severity
from pulsar_admin.store.rules.rule import Evidence, Rules, each_subscription, here
from pulsar_admin.store.rules.subscriptions import quota_effect, stores_most_ranges
from pulsar_admin.store.timespec import format_duration_ms, shown_time
from pulsar_admin.store.wording import counted, plural

HELD_BYTES = 100 << 20
"""Less is what snapshots usually hold."""
REPLAYED_ENTRIES = 1_000_000
"""A broker replays them in reads of 100, one after the other: at 6 ms for a read, as long as a topic may take to load."""
DEDUPLICATION_RULES = Rules[TopicFacts]("use")


@DEDUPLICATION_RULES.row(
    "dedup-cursor-left",
    Severity.WARNING,
    "The deduplication cursor is still there although deduplication is off",
    "A policy of the topic or its namespace turns deduplication off, or it is a system topic, which has none; and the cursor "
    "`pulsar.dedup` is still there.",
    "Removes it when it loads the topic, from Pulsar 2.11 on (apache/pulsar#15363). Until then, and with earlier brokers, the"
    " cursor stays where it is and keeps all ledgers from there on.",
    "pulsar-admin topics unsubscribe {topic} -s pulsar.dedup --force",
    "Remove the cursor: its sequence ids of producers are useless while deduplication is off.",
    "Unload topics after turning deduplication off.",
    needs="is_deduplicating",
)
def _left_behind(facts: TopicFacts) -> Iterator[Evidence]:
    if DEDUP_CURSOR in facts.mark_deletes and facts.is_deduplicated is False:
        ledgers, size = facts.held_by(DEDUP_CURSOR)
        keeps = (
            f"keeps {counted(ledgers, 'ledger')} of {counted(size, 'byte')} that no subscription needs"
            if ledgers
            else "will keep ledgers that no subscription needs"
        )
        yield here(
            f"deduplication is off, and its cursor at {facts.mark_deletes[DEDUP_CURSOR]} still exists: it does not "
            f"move and {keeps}",
            _values(facts, ledgers, size),
        )


@DEDUPLICATION_RULES.row(
    "dedup-holds-ledgers",
    Severity.NOTE,
    "Only the deduplication cursor keeps ledgers, or it is far behind",
    "No subscription needs the ledgers, and no policy turns deduplication off (apache/pulsar#7345). A warning from a million "
    "entries after the cursor on (apache/pulsar#22479), whoever else needs them.",
    "Moves the cursor with a snapshot: after `brokerDeduplicationEntriesInterval` (1,000) entries, and every "
    "`brokerDeduplicationSnapshotIntervalSeconds` (120) if producers were active. A quiet topic keeps its ledgers. When it "
    "loads the topic, it first reads every entry after the cursor, and gives up after `topicLoadTimeoutSeconds` (60).",
    "pulsar-admin topics stats-internal {topic}",
    "Nothing to repair here: the next messages move it. If the topic no longer needs deduplication, disable it "
    "(`topics set-deduplication --disable`).",
    needs="is_deduplicating",
)
def _holds(facts: TopicFacts) -> Iterator[Evidence]:
    if DEDUP_CURSOR not in facts.mark_deletes.keys() - facts.unseen_cursors or facts.is_deduplicated is False:
        return
    ledgers, size = facts.held_by(DEDUP_CURSOR)
    replayed = facts.topic.entries_after(facts.mark_deletes[DEDUP_CURSOR])
    if replayed >= REPLAYED_ENTRIES:
        yield here(
            f"a broker reads the {counted(replayed, 'entry')} after its cursor at {facts.mark_deletes[DEDUP_CURSOR]} before it "
            "has loaded the topic, which may take longer than `topicLoadTimeoutSeconds` (60)",
            _values(facts, ledgers, size),
            "Raise `topicLoadTimeoutSeconds` until the topic has loaded: with 1,000 entries or more, a broker then takes a "
            "snapshot. If the topic no longer needs deduplication, disable it (`topics set-deduplication --disable`).",
            Severity.WARNING,
        )
    elif size >= HELD_BYTES:
        yield here(
            f"its cursor at {facts.mark_deletes[DEDUP_CURSOR]} keeps {counted(ledgers, 'ledger')} of "
            f"{counted(size, 'byte')} that no subscription needs: {plural(ledgers, 'it', 'they')} can be deleted "
            "after the next snapshot, which a broker takes after new entries",
            _values(facts, ledgers, size),
        )


def _values(facts: TopicFacts, ledgers: int, size: int) -> dict[str, object]:
    return {
        "position": str(facts.mark_deletes[DEDUP_CURSOR]),
        "ledgers": ledgers,
        "bytes": size,
    }


MEBIBYTE = 1 << 20
PINNED_BYTES = 100 * MEBIBYTE
"""Held for nothing: less is a note, more a warning."""
TINY_LEDGERS = 1_000
TINY_ENTRIES = 100
HUGE_BYTES = 5 * 2048 * MEBIBYTE
"""Five times upstream's managedLedgerMaxSizePerLedgerMbytes."""
NODE_BYTES = MEBIBYTE
"""ZooKeeper's jute.maxbuffer: a request that is larger is refused."""
_TOLD_ELSEWHERE = (
    *("has no metadata", "is gone", "cannot be read", "of this topic that nothing references", "lacks", "not imported"),
    "after the end of the topic",
)
_CLOCKS = "Run NTP on producers and brokers, and turn on broker entry metadata (`brokerEntryMetadataInterceptors`)."
TOPIC_RULES = Rules[TopicFacts]("use")
"""What can be wrong with a topic that is not damaged; ``doctor`` tells it, ``store check`` does not."""


# -- clocks and TTL ---------------------------------------------------------------------------------------------------


def _clock(facts: TopicFacts, *, is_ahead: bool) -> Iterator[Evidence]:
    clocks = facts.clocks
    off_ms = clocks.ahead_ms if is_ahead else clocks.behind_ms
    if not off_ms:
        return
    is_stamped = clocks.is_stamped and not any(one.not_seen() for one in facts.broken)
    evidence: dict[str, object] = {"ledgers": clocks.future_ledgers + clocks.past_ledgers}
    evidence |= facts.wrong_producers
    names = evidence.get("aheadProducers" if is_ahead else "behindProducers")
    count = evidence.get("future" if is_ahead else "late", 0)
    who = f" of {', '.join(names)}" if isinstance(names, list) and names else ""
    what = counted(count, "entry") if isinstance(count, int) and count else "entries"
    unit_ms = next((unit for unit in (86_400_000, 3_600_000, 60_000) if off_ms >= 10 * unit), 1000)
    rough = format_duration_ms(off_ms // unit_ms * unit_ms)  # without smaller units
    told = (
        f"up to {rough} {'ahead of' if is_ahead else 'behind'} the broker's clock"
        if clocks.is_stamped
        else f"{'ahead' if is_ahead else 'behind'}, the furthest by at least {rough}: the times of their ledgers show no more"
    )
    unseen = "" if is_stamped or not clocks.is_stamped else "; entries that were not imported may have no time of it"
    yield here(
        f"{what}{who} {told}{unseen}",
        {**evidence, "messages": count},
        severity=Severity.NOTE if is_stamped else None,
    )


TOPIC_RULES.row(
    "clock-ahead",
    Severity.WARNING,
    "A producer's clock is ahead",
    "Publish times are more than 5 minutes after the broker stamped the entry, or after its ledger was closed."
    " The evidence names the producers if the topic is small enough to be read, or with `--deep`. A note if every "
    "entry has a broker time, by which brokers then search and expire.",
    "Searches and resets by time bisect, and land in the wrong place. If entries have no broker time, a TTL"
    " may not reach them and others (`ttl-blocked`), or may drop messages from the future with those before and after them.",
    "pulsar-admin topics skew {topic} --tolerance 5m",
    "Find the producer and set its clock. `topics find-by-time` and `topics reset-cursor` here are exact on "
    "such clocks.",
    _CLOCKS,
    needs="has_wrong_clocks",
)(partial(_clock, is_ahead=True))


TOPIC_RULES.row(
    "clock-behind",
    Severity.WARNING,
    "A producer's clock is behind",
    "Publish times are more than 5 minutes before the broker stamped the entry, or before the previous ledger "
    "was closed. A note if every entry has a broker time, by which brokers then search and expire.",
    "If entries have no broker time, a TTL expires such messages too early, and at once if the clock is behind"
    " by more than the TTL. Searches and resets by time land in the wrong place.",
    "pulsar-admin topics skew {topic} --tolerance 5m",
    "Find the producer and set its clock.",
    _CLOCKS,
    needs="has_wrong_clocks",
)(partial(_clock, is_ahead=False))


@TOPIC_RULES.row(
    "ledger-closed-in-future",
    Severity.WARNING,
    "A ledger was closed at a time in the future",
    "The time at which a broker closed a ledger is after now: the broker's clock was wrong, or `--now` is.",
    "Retention by time, and searches by time, which a TTL uses as well, go by that time. The ledger and everything "
    "after it stay until then, and for the retention time after it.",
    "pulsar-admin topics stats-internal {topic}",
    "Set the brokers' clocks. To free the disk before that time, use `topics truncate`, if every subscription "
    "may lose the ledger.",
    _CLOCKS,
    needs="has_wrong_clocks",
)
def _closed_in_future(facts: TopicFacts) -> Iterator[Evidence]:
    clocks = facts.clocks
    if clocks.late_ledgers:
        yield here(
            f"{counted(clocks.late_ledgers, 'ledger')} closed at up to {shown_time(clocks.latest_close_ms)}, in the "
            "future",
            {"ledgers": clocks.late_ledgers, "bytes": clocks.late_bytes},
        )


@TOPIC_RULES.row(
    "ttl-blocked",
    Severity.WARNING,
    "A message from the future keeps a TTL from expiring anything",
    "A TTL applies, and the message at which brokers begin to look for expired ones is dated after now: the topic's first, or the last "
    "of the newest ledger that was closed a minute longer ago than the TTL.",
    "Searches once for all subscriptions of the topic, from that message on, whether it was acknowledged or not. As it has not "
    "expired, nothing does, until a later ledger was closed that long ago or the message's own time has come.",
    "pulsar-admin topics get-message-by-id {topic} -l {ledgerId} -e {entryId}",
    "Look at the message. Until the TTL works again, `topics expire-messages -t AGE` drops the older messages of a subscription, up to "
    "its first one from the future, and `topics skip -n 1` drops that one.",
    _CLOCKS,
    needs="has_wrong_clocks",
)
@each_subscription
def _ttl_blocked(facts: SubscriptionFacts) -> Iterator[Evidence]:
    is_judged = facts.of.clocks.future_now and facts.is_consumed and not facts.cursor_bookies
    ttl = known(facts.ttl) if is_judged else None
    check = known(facts.of.ttl_check) if ttl is not None else None
    start = None if check is None else check.start
    start_ms = None if start is None else start.time_ms
    if (
        ttl is not None
        and start is not None
        and start_ms is not None
        and start_ms > facts.of.now_ms + Clocks.TOLERANCE_MS
    ):
        yield here(
            f"a broker looks for expired messages from {start.position} on, which is from {shown_time(start_ms)}: a TTL of"
            f" {format_duration_ms(ttl.seconds * 1000)} expires nothing",
            {
                "position": str(start.position),
                "ledgerId": start.position.ledger_id,
                "entryId": start.position.entry_id,
                "time": start_ms,
                "ttl": ttl.seconds,
                "messages": facts.pending_entries,
            },
        )


@TOPIC_RULES.row(
    "delay-beyond-ttl",
    Severity.WARNING,
    "A TTL drops delayed messages before they are due",
    "The time from a message's publication to its delivery is longer than the TTL in force.",
    "Counts a message's age from when it was stored, never from when it is due. The message is acknowledged "
    "without being delivered.",
    "pulsar-admin topics set-message-ttl {base} -t 0",
    "Give the topic no TTL, regardless of its namespace, or one that is longer than its longest delay. `delayed "
    "status` shows what would be lost.",
    "Set TTL and delays together: the TTL must be longer than any delay.",
    needs="has_ttl",
)
@each_subscription
def _delay_beyond_ttl(facts: SubscriptionFacts) -> Iterator[Evidence]:
    drops, name = known(facts.ttl_conflict), facts.of.topic.name
    if drops is not None:
        yield here(
            f"a TTL of {format_duration_ms(drops.ttl_seconds * 1000)} ({drops.source}) drops"
            f" {counted(drops.messages, 'delayed message')} before {plural(drops.messages, 'it is', 'they are')} due,"
            f" {drops.first[0]} first",
            {"ttl": drops.ttl_seconds, "ttlSource": drops.source, "messages": drops.messages},
            # Pulsar takes no policies for a segment.
            mend=None
            if name.domain == PERSISTENT
            else f"pulsar-admin namespaces get-message-ttl {shell_word(name.namespace)}",
        )


# -- quotas -----------------------------------------------------------------------------------------------------------


@TOPIC_RULES.row(
    "backlog-over-quota",
    Severity.WARNING,
    "A backlog is over its quota",
    "Bytes, or the age of the oldest ledger with a backlog, exceed the backlog quota in force. It counts from "
    "the slowest cursor. With `preciseTimeBasedBacklogQuotaCheck` brokers go by the age of the oldest message instead.",
    "Checks every minute (`backlogQuotaCheckIntervalInSeconds`). With `producer_request_hold` and "
    "`producer_exception`, it disconnects producers and refuses new ones. With `consumer_backlog_eviction`, it "
    "acknowledges for the slowest subscription until the backlog is at 90 % of the limit; those messages are never "
    "delivered. If `pulsar.dedup` is the slowest cursor, no message is lost: a snapshot moves it and producers stay "
    "connected, or eviction moves it without its sequence ids.",
    "pulsar-admin topics analyze-backlog {topic} -s {subscription}",
    "Let the subscription catch up, remove it (`topics unsubscribe`), skip its backlog (`topics "
    "clear-backlog`), or raise the quota (`topics set-backlog-quota`).",
    "Alert on backlog before the quota is reached.",
    needs="has_quotas",
)
def _over_quota(facts: TopicFacts) -> Iterator[Evidence]:
    for state in known(facts.quotas) or ():
        if not state.is_reached:
            continue
        size, quota = facts.backlog_size_bytes(state.slowest) if state.slowest else 0, state.quota
        mend = None
        if state.slowest == COMPACTION_CURSOR:
            mend = f"pulsar-admin compaction run {shell_word(facts.where)}"
        elif not state.slowest:
            mend = f"pulsar-admin topics get-backlog-quotas {shell_word(facts.topic.name.base)} -ap"
        if state.closed_ms is None:
            over = f"{counted(state.used, 'byte')} of backlog, {state.limit:,} allowed"
        else:
            age, limit = format_duration_ms(state.used), format_duration_ms(state.limit)
            over = f"its oldest ledger with a backlog was closed {age} ago, {limit} allowed"
        yield Evidence(
            f"{facts.topic.name} {state.slowest}".rstrip(),
            f"{over}: {quota_effect(state, facts)} ({quota.policy}, {state.source})",
            {
                "subscription": state.slowest or None,
                "quota": state.kind,
                "policy": quota.policy,
                "source": state.source,
                "backlogBytes": size,
                "limitBytes": quota.limit_size_bytes,
                "limitSeconds": quota.limit_time_seconds,
                "bytes": size - quota.limit_size_bytes if state.closed_ms is None else size,
            },
            _QUOTA_HINTS.get(state.slowest, ""),
            Severity.NOTE if state.slowest == DEDUP_CURSOR else None,
            mend,
        )


_QUOTA_HINTS = {
    DEDUP_CURSOR: "No subscription holds this backlog. If deduplication is on, the next snapshot moves the cursor, and a quota must be "
    "larger than what is written between two snapshots.",
    COMPACTION_CURSOR: "No subscription holds this backlog: compaction moves the cursor. Compact the topic, or raise the quota "
    "(`topics set-backlog-quota`).",
    "": "No subscription holds a backlog, but a limit of 0 bytes is reached without one: raise the quota (`topics set-backlog-quota`).",
}
"""What to do where no subscription's cursor is the slowest."""


@TOPIC_RULES.row(
    "ack-hole-pins-ledgers",
    Severity.NOTE,
    "One unacknowledged message keeps ledgers that everybody has consumed",
    "Every subscription has acknowledged whole ledgers after the slowest subscription's position, but an "
    "unacknowledged entry before them prevents their deletion. A warning from 100 MiB on.",
    "Trims the list of ledgers from its beginning, up to the ledger of the slowest mark-delete position. It "
    "never removes one from the middle.",
    "pulsar-admin topics peek-messages {topic} -s {subscription} -n 1",
    "Look at the message. If nobody needs it, use `topics skip -n 1`, or let consumers acknowledge it (dead "
    "letter policy).",
    "Give consumers a dead letter policy, or the topic a TTL.",
    needs="has_ranges",
)
def _hole_pins_ledgers(facts: TopicFacts) -> Iterator[Evidence]:
    if not facts.has_ranges or facts.unreadable_cursors or facts.unseen_cursors:
        return
    topic = facts.topic
    consumed, blocker = facts.consumed
    if blocker is None or blocker[0] not in facts.mark_deletes or facts.retention.time_minutes < 0:
        return
    pendings = [subscription.pending for subscription in facts.subscriptions]
    free = [
        ledger
        for index, ledger in enumerate(topic.ledgers[:-1])
        if index >= consumed and ledger.entries and not _needed(pendings, topic.ranks[index], topic.ranks[index + 1])
    ]
    if free:
        slowest, at = blocker
        first = topic.at_rank(topic.place(at))
        size = sum(ledger.size_bytes for ledger in free)
        yield Evidence(
            f"{topic.name} {slowest}",
            f"message {first} is not acknowledged: {counted(len(free), 'ledger')} after it of {counted(size, 'byte')} "
            "that every subscription has acknowledged cannot be deleted",
            {
                "subscription": slowest,
                "position": str(first),
                "ledgers": len(free),
                "bytes": size,
            },
            severity=_by_size(size),
        )


def _needed(pendings: Sequence[Intervals], start: int, end: int) -> bool:
    """Whether a cursor still needs a rank from ``start`` to ``end`` (excluded)."""
    for pending in pendings:
        index = bisect_left(pending, end, key=lambda interval: interval[0]) - 1
        if index >= 0 and pending[index][1] > start:
            return True
    return False


# -- policies ---------------------------------------------------------------------------------------------------------

_DAMAGED = (MetadataCorrupt, EntryCorrupt, EntryLogCorrupt)
"""Damage that other findings report only if every byte is read; without that they report losses alone."""


@TOPIC_RULES.row(
    "topic-policies-unreadable",
    Severity.CRITICAL,
    "Topic policies of a namespace cannot be read",
    "An entry of the namespace's `__change_events` is damaged, or is not a policy event.",
    "Reads all of these events before it loads a topic of the namespace, and fails: no topic of the namespace loads.",
    "pulsar-admin topics read {topic}",
    "`doctor --deep` names a damaged file: restore it, or its copy on another bookie. Without one, `topics delete -f` removes"
    " `__change_events`; set all topic policies of the namespace again.",
    "Let no client produce to `__change_events`.",
    needs="has_policy_events",
)
def _policies_unreadable(facts: TopicFacts) -> Iterator[Evidence]:
    if facts.reader.txn.store.info.is_bundled:
        return
    events = facts.policy_events
    error = events.error if isinstance(events, Unknown) else None
    if error is not None and isinstance(error.__cause__ or error, _DAMAGED):
        namespace = str(facts.topic.name.namespace)
        yield here(
            f"no broker loads a topic of its namespace: {error.message}",
            {"namespace": namespace},
        )


# -- acknowledgements -------------------------------------------------------------------------------------------------


@TOPIC_RULES.row(
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
    needs="has_ranges",
)
@each_subscription
def _ranges_at_limit(facts: SubscriptionFacts) -> Iterator[Evidence]:
    if stores_most_ranges(facts):
        count = len(facts.cursor.state.ranges)
        yield here(
            f"{count:,} ranges of acknowledgements are stored, the maximum that a broker keeps", {"ranges": count}
        )


# -- compaction -------------------------------------------------------------------------------------------------------


@TOPIC_RULES.row(
    "compaction-inconsistent",
    Severity.WARNING,
    "The compacted view and its cursor contradict each other",
    "The `__compaction` cursor is not at the end of its compacted ledger, or that ledger is wrong.",
    "Readers of the compacted view miss messages, or get some uncompacted. The next compaction continues from "
    "the cursor.",
    "pulsar-admin compaction run {topic} --from-start",
    "`compaction verify` shows what is wrong. Compact again from the start while the topic's ledgers still exist.",
    "Never reset `__compaction` by hand.",
    needs="is_compacted",
)
def _compaction_inconsistent(facts: TopicFacts) -> Iterator[Evidence]:
    for text in facts.compaction_problems:
        if not any(told in text for told in _TOLD_ELSEWHERE):
            # Of a topic without entries there is nothing to compact.
            look = (
                None if facts.topic.number_of_entries else f"pulsar-admin compaction status {shell_word(facts.where)}"
            )
            yield here(text, mend=look)


@TOPIC_RULES.row(
    "compaction-stale",
    Severity.NOTE,
    "A compaction that is never repeated keeps ledgers",
    "The topic was compacted once, and no threshold compacts it again. The `__compaction` cursor keeps every "
    "ledger after its horizon, although all subscriptions are past them. A warning from 100 MiB on.",
    "Treats `__compaction` like any durable cursor when it trims. Without a threshold, it compacts only on request.",
    "pulsar-admin compaction run {topic}",
    "Compact again, or set a threshold: `topics set-compaction-threshold`.",
    "Set a compaction threshold for topics that are compacted.",
    needs="is_compacted",
)
def _compaction_stale(facts: TopicFacts) -> Iterator[Evidence]:
    own = facts.compaction_cursor
    if own is None or len(facts.mark_deletes) < 2 or COMPACTION_CURSOR in facts.unseen_cursors:
        return
    ledgers, size = facts.held_by(COMPACTION_CURSOR)
    if size and not facts.compaction_threshold:
        yield here(
            f"no threshold triggers compaction, and __compaction at {own.mark_delete} keeps "
            f"{counted(ledgers, 'ledger')} of {counted(size, 'byte')} that all subscriptions are past",
            {"ledgers": ledgers, "bytes": size, "horizon": str(own.mark_delete)},
            severity=_by_size(size),
        )


# -- ledgers ----------------------------------------------------------------------------------------------------------


@TOPIC_RULES.row(
    "ledgers-tiny",
    Severity.NOTE,
    "A topic has very many small ledgers",
    "A thousand closed ledgers or more, with fewer than 100 entries on average.",
    "Opens ledgers one after the other when it reads. Each costs a metadata node, and the whole list is "
    "written at every rollover.",
    "pulsar-admin topics stats-internal {topic}",
    "Let ledgers be deleted: consume, or shorten retention. Closed ledgers are never merged.",
    "Find out what keeps reloading the topic, or raise `managedLedgerMinLedgerRolloverTimeMinutes`.",
)
def _ledgers_tiny(facts: TopicFacts) -> Iterator[Evidence]:
    closed = facts.topic.ledgers[:-1]
    if len(closed) < TINY_LEDGERS:
        return
    entries = sum(ledger.entries for ledger in closed)
    if entries < TINY_ENTRIES * len(closed):
        yield here(
            f"{len(closed):,} closed ledgers with {entries / len(closed):.1f} entries on average",
            {"ledgers": len(closed), "averageEntries": round(entries / len(closed), 1)},
        )


@TOPIC_RULES.row(
    "ledger-huge",
    Severity.NOTE,
    "A ledger is unusually large",
    "One ledger has more than 10 GiB; the default limit is 2 GiB (`managedLedgerMaxSizePerLedgerMbytes`).",
    "Deletes only whole ledgers: one unacknowledged message keeps its whole ledger.",
    "pulsar-admin ledgers info {ledgerId}",
    "Nothing, as long as consumers keep up.",
    "Lower `managedLedgerMaxLedgerRolloverTimeMinutes` or the size of a ledger.",
)
def _ledger_huge(facts: TopicFacts) -> Iterator[Evidence]:
    for ledger in facts.topic.ledgers:
        if ledger.size_bytes > HUGE_BYTES and not ledger.info.offloaded:
            yield Evidence(
                f"ledger {ledger.ledger_id} of {facts.where}",
                f"{counted(ledger.size_bytes, 'byte')} in one ledger",
                {"ledgerId": ledger.ledger_id, "bytes": ledger.size_bytes},
            )


@TOPIC_RULES.row(
    "ledger-list-large",
    Severity.WARNING,
    "A topic's list of ledgers is close to ZooKeeper's limit",
    "It is half of ZooKeeper's `jute.maxbuffer` (1 MiB) or more. Critical from 90 % on.",
    "Writes the whole list at every rollover. If it is too large, ZooKeeper refuses it and closes the "
    "connection, and the topic accepts no more messages.",
    "pulsar-admin topics trim-topic {topic}",
    "Let ledgers be deleted, or raise `jute.maxbuffer` on both servers and brokers.",
    "Set `managedLedgerInfoCompressionType`, and make ledgers larger.",
)
def _ledger_list_large(facts: TopicFacts) -> Iterator[Evidence]:
    count = len(facts.topic.ledgers)
    size = facts.node_bytes if count >= TINY_LEDGERS else 0
    if size * 2 >= NODE_BYTES:
        yield here(
            f"the list of its {count:,} ledgers has {size:,} bytes; ZooKeeper takes {NODE_BYTES:,}",
            {"ledgers": count, "nodeBytes": size},
            severity=Severity.CRITICAL if size * 10 >= NODE_BYTES * 9 else None,
        )


def _by_size(size_bytes: int) -> Severity:
    return Severity.WARNING if size_bytes >= PINNED_BYTES else Severity.NOTE
