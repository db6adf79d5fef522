"""Rules of one subscription: why it does not move, and other facts about it, in the order in which a broker meets them.

``topics why`` shows all of them. If the doctor has a finding for the same fault, both call one function here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from pulsar_admin.store.codec.claims import claimed_topic
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import MetadataCorrupt, StoreError
from pulsar_admin.store.facts import Unknown, known
from pulsar_admin.store.facts.topics import BacklogLoss, SubscriptionFacts, TopicFacts
from pulsar_admin.store.facts.transactions import find_unassigned
from pulsar_admin.store.model.broken import NO_METADATA
from pulsar_admin.store.model.coverage import bring_command
from pulsar_admin.store.model.cursors import (
    COMPACTION_CURSOR,
    DEDUP_CURSOR,
    REPLICATOR_PREFIX,
    CursorSource,
    is_consumed,
    is_own,
)
from pulsar_admin.store.model.ledgers import find_ledger
from pulsar_admin.store.model.resources import cluster_path
from pulsar_admin.store.names import PERSISTENT, Position, shell_word
from pulsar_admin.store.rules.backlogs import CHUNK_RULES, MARKER_RULES
from pulsar_admin.store.rules.finding import Severity
from pulsar_admin.store.rules.rule import Evidence, Rule, here
from pulsar_admin.store.rules.transactions import TRANSACTION_RULES
from pulsar_admin.store.rules.words import LISTED_AT_ONCE, REBUILD, forced_reset
from pulsar_admin.store.timespec import format_age_ms, format_time_ms, shown_time, shown_with_age
from pulsar_admin.store.wording import counted, counted_messages, listed, plural

if TYPE_CHECKING:
    from pulsar_admin.store.facts.next_message import NextMessage
    from pulsar_admin.store.policies.in_force import MessageTtl
    from pulsar_admin.store.policies.quotas import QuotaState

RANGES_MAX = 10_000
"""``managedLedgerMaxUnackedRangesToPersist`` of a broker that sets nothing."""
_HOLES = 5
_SHOWN = 3
_DOES = {
    "producer_request_hold": "producers wait",
    "producer_exception": "producers get an error",
}


def _entries(count: int) -> str:
    return counted(count, "entry")


def _span(first: Position, last: Position) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _words(facts: SubscriptionFacts) -> str:
    """Return the topic and the subscription as words of a command line."""
    return f"{shell_word(facts.of.topic.name)} -s {shell_word(facts.cursor.name)}"


def _marked(facts: SubscriptionFacts) -> dict[str, object]:
    """Return as evidence the position at which a broker starts the cursor, and the stored one if that is ahead of the topic."""
    cursor = facts.cursor
    stored = {} if cursor.ahead is None else {"storedMarkDelete": str(cursor.ahead)}
    return {"markDelete": str(cursor.mark_delete), **stored}


# -- the entry to be given next ---------------------------------------------------------------------------------------


def _says(first: NextMessage, now_ms: int) -> str:
    """Return a description of the entry: when and by whom it was published, and its key."""
    if first.marker is not None:
        return f"a marker, {first.marker}, of {shown_with_age(first.publish_ms, now_ms)}"
    key = "" if first.key is None else f" with key {first.key!r}"
    left = "" if first.left_in_batch is None else f", {first.left_in_batch} of its {first.batch_size} messages left"
    encrypted = ", encrypted" if first.encrypted else ""
    return f"published {shown_with_age(first.publish_ms, now_ms)} by {first.producer}{key}{encrypted}{left}"


def _told(facts: SubscriptionFacts) -> dict[str, object]:
    """Return as evidence the fields of the oldest entry, with the keys of ``topics read``."""
    first = known(facts.next_message)
    if first is None:
        return {} if facts.oldest is None else {"oldest": {"position": str(facts.oldest)}}
    fields = {
        "position": str(first.position),
        "publishTime": first.publish_ms,
        "brokerTime": first.broker_ms,
        "producer": first.producer,
        "key": first.key,
        "sequenceId": first.sequence_id,
        "deliverAtTime": first.deliver_at_ms or None,
        "transaction": None if first.transaction is None else "{}:{}".format(*first.transaction),
        "markerType": first.marker,
        "batchSize": first.batch_size or None,
        "leftInBatch": first.left_in_batch,
        "encrypted": first.encrypted or None,
    }
    return {"oldest": {key: value for key, value in fields.items() if value is not None}}


def _said(facts: SubscriptionFacts) -> str:
    first = known(facts.next_message)
    return "" if first is None else f", {_says(first, facts.of.now_ms)}"


# -- where it stands --------------------------------------------------------------------------------------------------


def _cursor_lost(facts: SubscriptionFacts) -> Iterator[Evidence]:
    cursor = facts.cursor
    ledger_id = cursor.info.cursors_ledger_id
    if facts.cursor_bookies:
        return  # files that are not imported may have it
    if cursor.source is CursorSource.FALLBACK:
        recoverable = None if cursor.recoverable is None else str(cursor.recoverable.mark_delete)
        said = f" The entries of that ledger still say {recoverable}, which no broker sees." if recoverable else ""
        yield here(
            f"The position of {cursor.name} is lost: its cursor ledger {ledger_id} cannot be read. A broker starts it "
            f"at {cursor.mark_delete}, the position in its metadata: messages acknowledged since are delivered again.{said}",
            {"cursorLedger": ledger_id, **_marked(facts), "recoverable": recoverable},
        )
    elif cursor.skipped_entries:
        yield here(
            f"{cursor.name} is at {cursor.mark_delete}, an older state: the newest "
            f"{counted(cursor.skipped_entries, 'state')} in its cursor ledger {ledger_id} cannot be read. Messages "
            "acknowledged since are delivered again.",
            {"cursorLedger": ledger_id, "unreadableStates": cursor.skipped_entries, **_marked(facts)},
        )


def _names(topic: TopicFacts, ledger_id: int) -> bool:
    """Whether a ledger that ``topic`` does not list has entries and names ``topic`` in its metadata."""
    try:
        ledger = find_ledger(topic.reader.txn, ledger_id)
    except StoreError:
        return False
    custom = {} if ledger is None or ledger.metadata is None or not ledger.entries else ledger.metadata.custom
    return not topic.topic.is_shadow and ledger_id not in topic.topic.ids and claimed_topic(custom) == topic.topic.name


def _cursor_ahead(facts: SubscriptionFacts) -> Iterator[Evidence]:
    cursor, topic = facts.cursor, facts.of.topic
    if facts.ahead is not None:
        ledger_id = topic.ids[-1] if topic.ids else None
        ends = "which lists no ledger" if ledger_id is None else f"whose last ledger is {ledger_id}"
        only = ", and delivers only what is written after that" if facts.is_consumed and facts.holds_messages else ""
        # A broker that loads a topic deletes its empty ledgers, and moves cursors from the beginning of one to the next ledger.
        is_before = facts.ahead.entry_id < 0 and ledger_id is not None and facts.ahead.ledger_id < ledger_id
        beyond = (
            f"the beginning of a ledger that its topic no longer lists, after its last entry {topic.last_confirmed}"
            if is_before
            else f"beyond the end of its topic, {ends}"
        )
        harmless = " Nothing is lost if that ledger was empty." if is_before else ""
        mend, off_list = forced_reset(cursor, "latest"), facts.of.off_list
        if off_list:  # a reset would skip their messages for good
            from pulsar_admin.store.facts.vanished import is_listable  # few are ahead

            names = plural(len(off_list), "names it as its", "name it as their")
            harmless = f" Its list lacks {plural(len(off_list), 'ledger')} {listed(off_list, 5)} that {names} topic."
            listable = (one for one in off_list if is_listable(facts.of.reader.txn, one))
            back = [*islice(listable, LISTED_AT_ONCE)]
            if len(back) == len(off_list) and facts.ahead.ledger_id > max(back):  # such as an empty ledger after them
                harmless += (
                    f" Once they are back: {mend or f'pulsar-admin topics reset-cursor {_words(facts)} -m latest'}"
                )
            mend = (
                f"pulsar-admin ledgers restore {' '.join(map(str, back))}" if back else "pulsar-admin ledgers orphans"
            )
        elif _names(facts.of, facts.ahead.ledger_id):  # while another owner is stored for it
            harmless = f" Its list lacks ledger {facts.ahead.ledger_id} that names it as its topic."
            mend = REBUILD
        yield here(
            f"{cursor.name} is stored at {facts.ahead}, {beyond}: a broker starts it at {cursor.mark_delete}, the end{only}.{harmless}",
            {**_marked(facts), "lastLedger": ledger_id},
            severity=Severity.NOTE if is_before else None,
            mend=mend,
        )


def _compaction(facts: SubscriptionFacts) -> Iterator[Evidence]:
    cursor, left = facts.cursor, facts.pending_entries
    if cursor.name == COMPACTION_CURSOR and left:
        yield here(
            f"{cursor.name} is the horizon of compaction, {cursor.mark_delete}: it moves only when compaction runs, and holds back the "
            f"{_entries(left)} after it until then.",
            {"horizon": str(cursor.mark_delete), "entries": left},
        )


def _deduplication(facts: SubscriptionFacts) -> Iterator[Evidence]:
    """Upstream 4.0.8: ``MessageDeduplication.takeSnapshot`` moves the cursor."""
    cursor, left = facts.cursor, facts.pending_entries
    if cursor.name == DEDUP_CURSOR and left:
        is_on = known(facts.of.is_deduplicated)
        moves = "a broker's next snapshot moves it" + ("" if is_on else " if deduplication is on")
        if is_on is False:
            moves = "no broker moves it, as deduplication is off"
        drop = f"pulsar-admin topics unsubscribe {_words(facts)} --force"
        yield here(
            f"{cursor.name} is deduplication's cursor, {cursor.mark_delete}: {moves}; it holds back the {_entries(left)} after it.",
            {"entries": left, "enabled": is_on},
            mend=drop if is_on is False else None,
        )


def _batch_acks(facts: SubscriptionFacts) -> Iterator[Evidence]:
    name, batches = facts.cursor.name, facts.forgotten_batches
    if batches:
        yield here(
            f"{name} has acknowledged {counted(batches, 'batch')} in part. No broker before 5.0 reads that back from the metadata: it "
            f"delivers {plural(batches, 'this batch', 'these batches')} whole when it loads the topic.",
            {"batches": batches},
        )


def _replicator(facts: SubscriptionFacts) -> Iterator[Evidence]:
    name, left = facts.cursor.name, facts.pending_entries
    if name.startswith(REPLICATOR_PREFIX) and left:
        cluster = name.removeprefix(REPLICATOR_PREFIX)
        is_known = find_node(facts.of.reader.txn, cluster_path(cluster)) is not None
        yield here(
            f"{name} is the cursor of replication to {cluster}: it moves when that cluster takes messages; {_entries(left)} "
            f"{plural(left, 'waits', 'wait')}.",
            {"cluster": cluster, "entries": left},
            mend=None if is_known else "pulsar-admin clusters list",
        )


# -- what cannot be read ----------------------------------------------------------------------------------------------


def _lost(facts: SubscriptionFacts, *, is_next: bool) -> Iterator[Evidence]:
    loss = facts.loss
    if loss is None or (loss.entries_before == 0) != is_next:
        return
    broken, span = loss.broken, _span(loss.first, loss.last)
    where = f"ledger {broken.ledger_id}: {broken.what()}"
    lead = (
        f"Stuck at {span}, which {broken.fate} ({where})"
        if is_next
        else f"{_entries(loss.entries_before)} can be read; then comes {span}, which {broken.fate} ({where})"
    )
    evidence = {
        "ledger": broken.ledger_id,
        "reason": broken.reason,
        "first": str(loss.first),
        "last": str(loss.last),
        "lostEntries": loss.entries,
        "entriesBefore": loss.entries_before,
    }
    yield here(f"{lead}: {broken.broker()}.", evidence, _past(facts, loss))


def _past(facts: SubscriptionFacts, loss: BacklogLoss) -> str:
    """Return the command that repairs a loss, or that gets a subscription past it and what is lost just after it; past entries
    that can be read, only a look."""
    topic, end = facts.of.topic, loss.end
    for broken in (loss.broken, *facts.of.broken):
        base = topic.rank(Position(broken.ledger_id, 0))
        ends = [base + last + 1 for first, last in broken.lost if base + first <= end <= base + last]
        if not ends and broken is not loss.broken:
            continue
        if broken.cure:
            return broken.cure
        if broken.reason == NO_METADATA:
            return f"pulsar-admin ledgers restore {broken.ledger_id}"
        end = max([end, *ends])
    if loss.entries_before:
        return f"pulsar-admin ledgers missing {loss.broken.ledger_id}"
    if end >= topic.number_of_entries:
        return f"pulsar-admin topics clear-backlog {_words(facts)}"
    return f"pulsar-admin topics reset-cursor {_words(facts)} -m {topic.at_rank(end)}"


def _not_imported(facts: SubscriptionFacts) -> Iterator[Evidence]:
    cursor, absent = facts.cursor, facts.cursor_bookies
    if absent:
        ledger_id = cursor.info.cursors_ledger_id
        yield here(
            f"The position of {cursor.name} is unknown: the newest entries of its cursor ledger {ledger_id} may be on "
            f"{', '.join(absent)}, which {plural(len(absent), 'is', 'are')} not imported. The answer is for "
            f"{cursor.mark_delete}, the newest state that is here.",
            {"bookies": list(absent), "cursorLedger": ledger_id, **_marked(facts)},
            bring_command(absent[0]),
        )
    unseen = facts.unseen
    if not unseen:
        return
    bookies = sorted({name for broken in unseen for name in broken.bookies})
    count = sum(broken.unseen_entries for broken in unseen)
    first = Position(unseen[0].ledger_id, unseen[0].unseen[0][0] if unseen[0].unseen else unseen[0].unseen_from or 0)
    what = (
        f"{counted(count, 'entry of its ledgers is', 'entries of its ledgers are')} not seen"
        if count
        else "more may be written there"
    )
    yield here(
        f"{', '.join(bookies) or 'A bookie'} {plural(len(bookies), 'is', 'are')} not imported: {what}, from {first} on, in "
        f"{counted(len(unseen), 'ledger')}.",
        {"bookies": bookies, "entries": count, "ledgers": [broken.ledger_id for broken in unseen], "first": str(first)},
        bring_command(bookies[0]) if bookies else "",
    )


def _unreadable(facts: SubscriptionFacts) -> Iterator[Evidence]:
    error, oldest = facts.next_message, facts.oldest
    if not isinstance(error, Unknown) or oldest is None or facts.is_oldest_lost or facts.is_oldest_offloaded:
        return
    if not facts.is_oldest_no_message:
        yield here(
            f"{oldest}, the oldest entry that is not acknowledged, cannot be read: {error.why}.",
            {"position": str(oldest), "error": error.code},
            f"pulsar-admin ledgers verify {oldest.ledger_id}",
        )


def _no_message(facts: SubscriptionFacts) -> Iterator[Evidence]:
    found = facts.next_message
    if isinstance(found, Unknown) and facts.is_oldest_no_message:
        yield here(
            f"{facts.oldest}, the oldest entry that is not acknowledged, is no message that a client can read: {found.why}. A broker or "
            "client acknowledges it, and consumers get the next one.",
            {"position": str(facts.oldest), "error": found.code},
        )


def _offloaded(facts: SubscriptionFacts) -> Iterator[Evidence]:
    if facts.is_oldest_offloaded:
        yield here(
            f"{facts.oldest}, the oldest entry that is not acknowledged, is in tiered storage, where a broker reads it; its ledger was "
            "not imported from there.",
            {"position": str(facts.oldest)},
            "pulsar-admin store add offload DIR",
        )


# -- entries not delivered or not acknowledged ------------------------------------------------------------------------


def _delayed(facts: SubscriptionFacts, *, is_next: bool) -> Iterator[Evidence]:
    not_due, first, now_ms = facts.not_due, known(facts.next_message), facts.of.now_ms
    if isinstance(not_due, Unknown) or not_due.next_due_ms is None or not_due.last_due_ms is None:
        return
    if is_next != (first is not None and first.deliver_at_ms > now_ms):
        return
    waits = plural(not_due.entries, "waits for its time", "wait for their time")
    later = f"{not_due.entries:,} of {_entries(facts.pending_entries)} {waits}"
    times = f"the next is due {shown_with_age(not_due.next_due_ms, now_ms)}, the last {shown_time(not_due.last_due_ms)}"
    evidence = {"entries": not_due.entries, "nextDue": not_due.next_due_ms, "lastDue": not_due.last_due_ms}
    if first is not None and is_next:
        yield here(
            f"{first.position}, the oldest entry that is not acknowledged, is delayed until "
            f"{shown_with_age(first.deliver_at_ms, now_ms)}: {_says(first, now_ms)}. {later}; {times}.",
            {**evidence, **_told(facts)},
        )
    else:
        yield here(f"{later}: {times}.", evidence)


def _ack_holes(facts: SubscriptionFacts) -> Iterator[Evidence]:
    holes, topic, oldest = facts.holes, facts.of.topic, facts.oldest
    if not holes or oldest is None:
        return
    contents = known(facts.contents)
    if contents is not None and contents.markers == contents.entries:  # the next consumer has them acknowledged
        return
    behind, left = facts.acknowledged_entries, facts.hole_entries
    later = counted(behind, "later entry", "later entries")
    spans = [_span(topic.at_rank(start), topic.at_rank(end - 1)) for start, end in holes]
    yield here(
        f"Stuck at {oldest}{_said(facts)}: it is unacknowledged, but {later} {plural(behind, 'is', 'are')} acknowledged. "
        f"{counted(len(holes), 'hole')} with {_entries(left)} in all: {listed(spans, _HOLES)}.",
        {
            "holes": len(holes),
            "holeEntries": left,
            "acknowledgedBehind": behind,
            "ranges": len(facts.cursor.state.ranges),
            "firstHoles": spans[:_HOLES],
            **_told(facts),
        },
        f"pulsar-admin topics get-message-by-id {shell_word(topic.name)} -l {oldest.ledger_id} -e {oldest.entry_id}",
    )


def stores_most_ranges(facts: SubscriptionFacts) -> bool:
    """Whether the cursor stores as many acknowledged ranges as a broker persists (``managedLedgerMaxUnackedRangesToPersist``)."""
    return len(facts.cursor.state.ranges) >= RANGES_MAX


def _ranges_limit(facts: SubscriptionFacts) -> Iterator[Evidence]:
    if stores_most_ranges(facts):
        count = len(facts.cursor.state.ranges)
        yield here(
            f"{facts.cursor.name} stores {count:,} ranges of acknowledgements. A broker keeps {RANGES_MAX:,} unless "
            "managedLedgerMaxUnackedRangesToPersist says more: what was acknowledged after them is redelivered when it restarts.",
            {"ranges": count, "limit": RANGES_MAX},
        )


# -- transactions -----------------------------------------------------------------------------------------------------


def _log_unreadable(facts: SubscriptionFacts) -> Iterator[Evidence]:
    """Upstream 4.0.8: ``MLPendingAckStoreProvider`` cannot open the log, and ``PersistentSubscription.addConsumer`` waits for it."""
    log = facts.pending_ack_log
    if isinstance(log, Unknown) and not log.unseen:
        yield here(f"No broker opens its pending-ack log, and nobody the subscription: {log.why}.", {"error": log.code})


def _transactions_unknown(facts: SubscriptionFacts) -> Iterator[Evidence]:
    unknown = "It is unknown which transactions are open here", facts.buffer
    acks = f"Which transactions hold acknowledgements of {facts.cursor.name} is not known", facts.pending_acks
    for what, fact in (unknown, acks):
        if isinstance(fact, Unknown) and fact is not facts.pending_ack_log:
            yield here(f"{what}: {fact.why}.", {"error": fact.code})


def _open_transaction(facts: SubscriptionFacts, *, is_next: bool) -> Iterator[Evidence]:
    buffer, oldest = facts.buffer, facts.oldest
    if isinstance(buffer, Unknown) or not buffer.first or oldest is None:
        return
    txn, first = min(buffer.first.items(), key=lambda item: item[1])
    if (first <= oldest) != is_next:
        return
    others = f" ({counted(len(buffer.first), 'transaction')} {plural(len(buffer.first), 'is', 'are')} open here)"
    known, unassigned = facts.of.coordinated.get(txn), find_unassigned(facts.of.reader)
    lost = unassigned is not None and unassigned.matters and txn.most in unassigned.numbers
    since = (
        ", and which no coordinator knows"
        if known is None
        else f" since {shown_with_age(known.start_ms, facts.of.now_ms)} with a timeout of {format_age_ms(known.timeout_ms)}"
    )
    yield here(
        f"Nothing is delivered{'' if is_next else ' from there on'}: {first} belongs to transaction {txn}, "
        f"which is open{since}, and a broker reads only what comes before it{others if len(buffer.first) > 1 else ''}."
        + (f" No broker loads coordinator {txn.most}, so nothing ends the transaction." if lost else ""),
        {"transaction": str(txn), "first": str(first), "open": len(buffer.first), "oldest": str(oldest)},
        "pulsar-admin doctor --code transaction-coordinators-unassigned"
        if lost
        else ""
        if known is None
        else f"pulsar-admin transactions transaction-metadata -m {txn.most} -l {txn.least}",
    )


def _aborted(facts: SubscriptionFacts) -> Iterator[Evidence]:
    buffer = known(facts.buffer)
    aborted = 0 if buffer is None else len(buffer.aborted)
    if aborted and facts.pending:
        yield here(
            f"{counted(aborted, 'transaction')} of this topic {plural(aborted, 'was', 'were')} aborted: their messages are in the topic, "
            "and a broker skips them.",
            {"transactions": aborted},
        )


def _pending_acks(facts: SubscriptionFacts) -> Iterator[Evidence]:
    acks = tuple(known(facts.pending_acks) or ())
    if acks:
        yield here(
            f"{counted(len(acks), 'open transaction')} ({listed(acks, _SHOWN)}) {plural(len(acks), 'holds', 'hold')} "
            f"acknowledgements of {facts.cursor.name}: they take effect when it is committed; if it is aborted, the "
            "messages are delivered again.",
            {"transactions": [str(txn) for txn in acks]},
        )


# -- TTL --------------------------------------------------------------------------------------------------------------


def _named(ttl: MessageTtl) -> str:
    return f"The TTL of {format_age_ms(ttl.seconds * 1000)} ({ttl.source})"


def _ttl_values(facts: SubscriptionFacts, ttl: MessageTtl) -> dict[str, object]:
    overdue = known(facts.overdue)
    entries = 0 if overdue is None else overdue.extent.entries
    return {"ttl": ttl.seconds, "source": ttl.source, "overdueEntries": entries}


def _expiry(facts: SubscriptionFacts) -> dict[str, object]:
    """Return as evidence the time from which a printed expiry counts back; {} for a replicator, whose messages no command expires."""
    return {"now": format_time_ms(facts.of.now_ms)} if is_consumed(facts.cursor.name) else {}


def _not_loaded(facts: SubscriptionFacts) -> Iterator[Evidence]:
    """Upstream 4.0.8: ``BrokerService.getManagedLedgerConfig`` fails, and so does the loading of the topic."""
    policies, namespace = facts.of.policies, facts.of.topic.name.namespace
    if isinstance(policies, Unknown) and not policies.unseen:
        yield here(
            f"No broker loads the topic: its policies cannot be read ({policies.why}).",
            {"error": policies.code},
        )
    elif facts.of.is_namespace_bare:
        yield here(
            f"No broker serves the topic: the policies of {namespace} are gone (Policies not found).",
            {"namespace": str(namespace)},
        )


def _not_opened(facts: SubscriptionFacts) -> Iterator[Evidence]:
    for broken in facts.of.broken:
        if broken.stops_loading:
            yield here(
                f"No broker loads the topic: it cannot open the last ledger, {broken.ledger_id} ({broken.what()}).",
                {"ledger": broken.ledger_id, "reason": broken.reason},
                mend=f"pulsar-admin ledgers missing {broken.ledger_id}",
            )


def _cursor_not_opened(facts: SubscriptionFacts) -> Iterator[Evidence]:
    for name, error in facts.of.cursor_readings:
        if isinstance(error, MetadataCorrupt):
            yield here(
                f"No broker loads the topic: it cannot open the cursor {name} ({error.message}).",
                {"cursor": name, "error": error.code},
            )


def _ttl_unknown(facts: SubscriptionFacts) -> Iterator[Evidence]:
    ttl = facts.of.message_ttl
    if not facts.pending:
        return
    if isinstance(ttl, Unknown):
        if ttl.unseen:  # else that is why no broker loads the topic
            yield here(
                f"The TTL and the quotas in force are unknown: {ttl.why}.",
                {"error": ttl.code},
                bring_command(ttl.unseen[0]),
            )
        return
    for fact in (facts.overdue, facts.future_dated, facts.ttl_conflict):
        if isinstance(fact, Unknown):
            yield here(f"The effect of the TTL is unknown: {fact.why}.", {"error": fact.code})
            return


def _ttl_never(facts: SubscriptionFacts) -> Iterator[Evidence]:
    ttl = known(facts.of.message_ttl)
    if facts.pending and not facts.may_expire and ttl is not None:
        own = is_own(facts.cursor.name)
        whose = f"{facts.cursor.name} is the broker's own cursor" if own else "this is a system topic"
        yield here(
            f"{_named(ttl)} expires nothing here: {whose}.",
            {"ttl": ttl.seconds, "source": ttl.source},
        )


def _ttl_none(facts: SubscriptionFacts) -> Iterator[Evidence]:
    policies = facts.of.policies
    if facts.pending and facts.may_expire and facts.ttl is None and not isinstance(policies, Unknown):
        source = None if policies.message_ttl is None else policies.message_ttl.source
        expiry = {} if _is_young(facts) else _expiry(facts)
        set_to = "" if source is None else f" (it is 0, by the {source})"
        yield here(
            f"No TTL applies{set_to}, so nothing expires (unless broker.conf sets `ttlDurationDefaultInSeconds`).",
            {"ttl": 0, "source": source, **expiry},
            mend=None if expiry else "",
        )


def _is_young(facts: SubscriptionFacts) -> bool:
    """Whether no message has the age that the command of ``ttl-none`` names."""
    first = known(facts.next_message)
    return first is not None and facts.of.now_ms - first.born_ms < 3 * 24 * 3_600_000


def _ttl_future(facts: SubscriptionFacts) -> Iterator[Evidence]:
    future, ttl, now_ms = known(facts.future_dated), known(facts.ttl), facts.of.now_ms
    if future is None or not future.entries or ttl is None:
        return
    producers = ", ".join(sorted(future.producers)[:_SHOWN])
    yield here(
        f"{_named(ttl)} reaches {_entries(future.entries)} late: {plural(future.entries, 'it was', 'they were')} published in the "
        f"future, the first at {future.first}, the latest at {shown_with_age(future.latest_ms, now_ms)}, by {producers}. That one expires "
        f"on {shown_time(future.latest_ms + ttl.seconds * 1000)}.",
        {
            **_ttl_values(facts, ttl),
            "entries": future.entries,
            "first": str(future.first),
            "latest": future.latest_ms,
        },
    )


def _ttl_overdue(facts: SubscriptionFacts) -> Iterator[Evidence]:
    overdue, ttl = known(facts.overdue), known(facts.ttl)
    if overdue is None or ttl is None or not overdue.extent.entries:
        return
    extent = overdue.extent
    messages, expiry = counted_messages(extent.messages, extent.uncounted_entries), _expiry(facts)
    yield here(
        f"{_named(ttl)} has passed for {_entries(extent.entries)} ({messages}), through {overdue.through}. A "
        "broker drops them when it has the topic loaded, within messageExpiryCheckIntervalInMinutes (5).",
        {**_ttl_values(facts, ttl), "messages": extent.messages, "through": str(overdue.through), **expiry},
        mend=None if expiry else "",
    )


def _ttl_later(facts: SubscriptionFacts) -> Iterator[Evidence]:
    ttl, first, now_ms = known(facts.ttl), known(facts.next_message), facts.of.now_ms
    if ttl is None or first is None or first.born_ms > now_ms or isinstance(facts.overdue, Unknown):
        return
    if facts.overdue is not None and facts.overdue.extent.entries:
        return
    expires_ms, check = first.born_ms + ttl.seconds * 1000, known(facts.of.ttl_check)
    start = None if check is None or check.failed else check.start
    oldest = f"{first.position}, the oldest unacknowledged entry"
    search = "fails on an entry that it cannot read"
    if start is not None and start.time_ms is not None:
        search = f"begins at {start.position}, of {shown_time(start.time_ms)}"
    yield here(
        f"{_named(ttl)} reaches {oldest}, at {shown_with_age(expires_ms, now_ms)}."
        if expires_ms >= now_ms
        else f"{_named(ttl)} has passed for {oldest}, and a broker does not find it: its search {search}.",
        {**_ttl_values(facts, ttl), "expires": expires_ms},
        f"pulsar-admin topics expire-messages {_words(facts)} --forecast {format_age_ms(2 * ttl.seconds * 1000)}"
        if is_consumed(facts.cursor.name)
        else "",
    )


def _ttl_drops_delayed(facts: SubscriptionFacts) -> Iterator[Evidence]:
    conflict = known(facts.ttl_conflict)
    if conflict is not None:
        yield here(
            f"The TTL of {format_age_ms(conflict.ttl_seconds * 1000)} ({conflict.source}) drops "
            f"{counted(conflict.messages, 'delayed entry', 'delayed entries')} before they are due, {conflict.first[0]} among them.",
            {"ttl": conflict.ttl_seconds, "entries": conflict.messages, "first": [str(one) for one in conflict.first]},
        )


# -- quotas -----------------------------------------------------------------------------------------------------------


def quota_effect(state: QuotaState, topic: TopicFacts) -> str:
    """Return what a broker does where a quota of ``topic`` is reached (upstream 4.0.8: ``BacklogQuotaManager``).

    Eviction moves whatever cursor is the slowest, and stores it without its properties: the sequence ids of producers with
    deduplication's, the compacted ledger with compaction's.
    """
    slowest, policy = state.slowest, state.quota.policy
    if slowest == DEDUP_CURSOR and topic.is_deduplicated is False:
        return f"a broker deletes {slowest} when it loads the topic, as deduplication is off"
    if not state.evicts:
        if slowest == DEDUP_CURSOR:
            return f"a broker moves {slowest} with a snapshot, and refuses new producers until then"
        return _DOES.get(policy, policy)
    if slowest == DEDUP_CURSOR:
        return f"a broker moves {slowest} and forgets the sequence ids stored with it (duplicates may be stored; no message is lost)"
    if slowest == COMPACTION_CURSOR:
        return f"a broker moves {slowest} without compacting, and drops the compacted view when it next loads the topic"
    if slowest.startswith(REPLICATOR_PREFIX):
        return f"a broker drops messages that cluster {slowest.removeprefix(REPLICATOR_PREFIX)} has not received"
    return "a broker drops the oldest messages of the slowest subscription"


def _quota(facts: SubscriptionFacts, *, is_reached: bool) -> Iterator[Evidence]:
    name = facts.of.topic.name
    for state in known(facts.of.quotas) or ():
        if state.is_reached != is_reached:
            continue
        policy = state.quota.policy
        does = quota_effect(state, facts.of)
        verdict = f"is reached, so {does}" if is_reached else f"is not reached; at the limit {does}"
        figures: Mapping[str, object]
        if state.is_size:
            text = f"{state.used:,} of {counted(state.limit, 'byte')} after {state.slowest}, the slowest cursor"
            figures = {"backlogSize": state.used, "limitSize": state.limit}
        else:
            closed = "is still open" if state.closed_ms is None else f"was closed {format_age_ms(state.used)} ago"
            text = (
                f"the ledger with the first message after {state.slowest}, by which a broker judges by default, {closed}; the limit is "
                f"{format_age_ms(state.limit)}"
            )
            figures = {"closed": state.closed_ms, "limitTime": state.quota.limit_time_seconds}
        yield here(
            f"The backlog quota {state.kind} ({state.source}, {policy}) {verdict}: {text}.",
            {"type": state.kind, "policy": policy, "source": state.source, "slowest": state.slowest, **figures},
            # A segment's own policies are not known here.
            mend=None
            if name.domain == PERSISTENT
            else f"pulsar-admin namespaces get-backlog-quotas {shell_word(name.namespace)}",
        )


# -- nothing ----------------------------------------------------------------------------------------------------------


def is_held(facts: SubscriptionFacts) -> bool:
    """Whether something in the store keeps the subscription at its position."""
    return any(True for rule in STOPPING_RULES for _ in rule.holds(facts))


def _backlog(facts: SubscriptionFacts) -> Iterator[Evidence]:
    if not facts.pending or is_held(facts):
        return
    extent = facts.backlog
    is_unseen = any(True for rule in (_not_imported, _offloaded) for _ in rule(facts))
    is_unknown = is_unseen or any(True for _ in _transactions_unknown(facts))
    contents, given = known(facts.contents), facts.messages
    markers = 0 if contents is None else contents.markers
    of_them = f" and {counted(markers, 'marker')}" if markers else ""
    messages = "" if is_unknown else f" ({counted(given, 'message')}{of_them})"
    waits = f"{_entries(extent.entries)}{messages} {plural(extent.entries, 'waits', 'wait')}"
    but = "; part of the backlog was not imported" if is_unseen else ""
    yield here(
        f"No obstacle found: {waits} for a consumer{but}; the first is {facts.oldest}{_said(facts)}.",
        {
            "entries": extent.entries,
            **({} if is_unknown else {"messages": given}),
            **({"markers": markers} if markers else {}),
            "bytes": extent.bytes,
            **_told(facts),
        },
    )


def _consumed(facts: SubscriptionFacts) -> Iterator[Evidence]:
    if facts.pending or is_held(facts):
        return
    topic = facts.of.topic
    text = (
        f"everything up to {topic.last_confirmed} is acknowledged" if topic.number_of_entries else "the topic is empty"
    )
    but = "; part of the topic was not imported" if facts.unseen else ""
    yield here(f"{facts.cursor.name} has no backlog{' here' if but else ''}: {text}{but}.", _marked(facts))


_CRITICAL, _WARNING, _NOTE = Severity.CRITICAL, Severity.WARNING, Severity.NOTE
_STATUS = "pulsar-admin delayed status {topic} -s {subscription}"
_BUFFER = "pulsar-admin transactions transaction-buffer-stats -t {topic}"
_QUOTAS = "pulsar-admin topics get-backlog-quotas {base} -ap"

CURSOR_AHEAD: Rule[SubscriptionFacts] = Rule(
    "cursor-ahead",
    _WARNING,
    "A subscription is stored ahead of its topic",
    "The stored position is after the topic's last entry: ledgers that the subscription had reached are not in the topic's list, or"
    " entries of the last one are in no file. They were lost, or the topic was created again while its subscriptions were kept. A note for "
    "the beginning of a ledger between those that are listed: brokers delete empty ledgers (apache/pulsar#2666).",
    "Starts the subscription at the topic's end when it loads the topic (`ManagedCursorImpl.recoveredCursor`). The "
    "subscription gets only messages written after that.",
    "pulsar-admin topics reset-cursor {topic} -s {subscription} -m latest",
    "Find out first what the topic lost: `store recover` names ledgers and topics that can be restored, and a finding "
    "names `ledgers restore` where the topic's list lacks ledgers: a reset would skip their messages. Then store "
    "the end as the position; otherwise a broker that reuses ledger ids treats new messages as acknowledged. If the "
    "subscription has to read what the topic still has, use `-m earliest`.",
    "Restore ZooKeeper and bookies from the same moment.",
    holds=_cursor_ahead,
    scope="use",
    needs="is_overtaken",
)


def _row(
    code: str, severity: Severity, title: str, holds: Callable[[SubscriptionFacts], Iterator[Evidence]], mend: str = ""
) -> Rule[SubscriptionFacts]:
    """Return a rule that only ``topics why`` shows."""
    return Rule(code, severity, title, mend=mend, holds=holds)


STOPPING_RULES: tuple[Rule[SubscriptionFacts], ...] = (
    _row(
        "policies-unreadable", _CRITICAL, "policies of the topic or its namespace cannot be read: no broker loads it",
        _not_loaded, "pulsar-admin doctor --severity critical",
    ),
    _row("last-ledger-not-opened", _CRITICAL, "no broker can open the topic's last ledger, so none loads the topic", _not_opened),
    _row(
        "cursor-not-opened", _CRITICAL, "no broker can open one of the topic's cursors, so none loads the topic", _cursor_not_opened,
        "pulsar-admin doctor --code cursor-unreadable",
    ),
    *TRANSACTION_RULES,
    _row(
        "pending-ack-unreadable", _CRITICAL, "its pending-ack log cannot be opened, so nobody opens the subscription",
        _log_unreadable, "pulsar-admin doctor --severity critical",
    ),
    *CHUNK_RULES,
    _row(
        "cursor-lost", _WARNING, "the cursor's newest state cannot be read, so a broker starts from an older one", _cursor_lost,
        "pulsar-admin topics subscription-history {topic} -s {subscription}",
    ),
    _row(
        "lost-entries", _CRITICAL, "the next entry is lost: a broker delivers nothing more", partial(_lost, is_next=True),
    ),
    _row(
        "open-transaction", _WARNING, "the next entry belongs to an open transaction, or comes after one",
        partial(_open_transaction, is_next=True), _BUFFER,
    ),
    _row(
        "delayed", _NOTE, "the oldest unacknowledged entry is delayed", partial(_delayed, is_next=True), _STATUS,
    ),
    _row("ack-holes", _NOTE, "later entries are acknowledged, but not the oldest one", _ack_holes),
    _row("unreadable", _CRITICAL, "the oldest unacknowledged entry cannot be read", _unreadable),
    _row(
        "compaction", _NOTE, "it is compaction's cursor, which moves when compaction runs", _compaction,
        "pulsar-admin compaction status {topic}",
    ),
    _row(
        "deduplication", _NOTE, "it is deduplication's cursor, which moves when a broker takes a snapshot", _deduplication,
        "pulsar-admin topics stats-internal {topic}",
    ),
    _row(
        "replicator", _NOTE, "it is a replicator's cursor, which moves when the other cluster takes messages", _replicator,
        "pulsar-admin clusters get {cluster}",
    ),
    _row(
        "pending-acks", _NOTE, "acknowledgements wait for the end of their transaction", _pending_acks,
        "pulsar-admin transactions pending-ack-stats -t {topic} -s {subscription}",
    ),
    _row(
        "open-transaction-ahead", _WARNING, "a later entry belongs to an open transaction: a broker delivers the entries before it",
        partial(_open_transaction, is_next=False), _BUFFER,
    ),
    _row("lost-ahead", _CRITICAL, "a later entry is lost: a broker delivers the entries before it", partial(_lost, is_next=False)),
)  # fmt: skip
"""Why a subscription does not move, what a broker meets first before the rest."""

SUBSCRIPTION_RULES: tuple[Rule[SubscriptionFacts], ...] = (
    *STOPPING_RULES,
    _row(
        "backlog", _NOTE, "no obstacle found: the backlog waits for a consumer", _backlog,
        "pulsar-admin topics peek-messages {topic} -s {subscription} -n 1",
    ),
    _row("consumed", _NOTE, "everything is acknowledged", _consumed),
    *MARKER_RULES,
    CURSOR_AHEAD,
    _row("not-imported", _NOTE, "bookies that are not imported may have the entries that are missing here", _not_imported),
    _row("in-tiered-storage", _NOTE, "the oldest unacknowledged entry is in tiered storage, which was not imported", _offloaded),
    _row("transactions-unknown", _WARNING, "entries that say which transactions are open here cannot be read", _transactions_unknown),
    _row("ack-ranges-limit", _WARNING, (
        "it stores the maximum of ranges: later acknowledgements are lost"
    ), _ranges_limit),
    _row(
        "aborted-transactions", _NOTE, "messages of aborted transactions count in the backlog, but are never "
        "delivered", _aborted, _BUFFER,
    ),
    _row("no-message", _WARNING, "the oldest entry is no message: no client gets it, and it holds nothing back", _no_message),
    _row("batch-acks", _NOTE, "acknowledgements inside a batch are lost when a broker before 5.0 loads the topic", _batch_acks),
    _row("delayed-later", _NOTE, "other entries of the backlog are delayed", partial(_delayed, is_next=False), _STATUS),
    _row(
        "ttl-future", _WARNING, "publish times are in the future: no TTL applies before then", _ttl_future,
        "pulsar-admin topics skew {topic}",
    ),
    _row(
        "ttl-overdue", _NOTE, "the TTL has passed; a broker drops entries only of topics that it has loaded", _ttl_overdue,
        "pulsar-admin topics expire-messages {topic} -s {subscription} --ttl --now {now}",
    ),
    _row("ttl-later", _NOTE, "the TTL reaches the oldest entry later", _ttl_later),
    _row(
        "ttl-none", _NOTE, "no TTL applies", _ttl_none,
        "pulsar-admin topics expire-messages {topic} -s {subscription} -t 3d --now {now}",
    ),
    _row("ttl-never", _NOTE, "brokers never expire messages of this cursor, or of this topic", _ttl_never),
    _row("ttl-drops-delayed", _WARNING, "the TTL drops delayed messages before they are due", _ttl_drops_delayed, _STATUS),
    _row("ttl-unknown", _WARNING, "the times of entries, or the policies, cannot be read", _ttl_unknown),
    _row("quota-reached", _WARNING, "the backlog quota is reached", partial(_quota, is_reached=True), _QUOTAS),
    _row("quota-left", _NOTE, "the backlog quota is not reached", partial(_quota, is_reached=False), _QUOTAS),
)  # fmt: skip
"""All that ``topics why`` tells of a subscription, in its order."""
