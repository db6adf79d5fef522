"""What TTL and backlog quotas do to a subscription, and why they may do nothing.

Upstream (4.0.8): ``PersistentTopic.checkMessageExpiry``, ``isSizeBacklogExceeded``, ``estimatedTimeBasedBacklogQuotaCheck``.
"""

from __future__ import annotations

from collections.abc import Iterator

from store.errors import MetadataCorrupt
from store.facts.delays import find_ttl_conflict
from store.model.cursors import Cursor, is_own
from store.model.extent import Extent, extent_of, pending_intervals
from store.model.reader import EntryReader
from store.model.topics import Topic
from store.names import Position, shell_word
from store.policies.in_force import MessageTtl, find_message_ttl, find_quotas
from store.policies.quotas import SIZE, QuotaState, iter_quota_states
from store.policies.trimming import read_mark_deletes
from store.reports.subscriptions import NotDue
from store.search.expiry import BROKER, expire_by_time
from store.search.pending import PendingSearch, read_future_dated
from store.timespec import format_age_ms, shown_time
from store.why.front import Front, entries
from store.why.reason import Reason, when
from store.wording import counted, plural

_DOES = {
    "producer_request_hold": "producers wait",
    "producer_exception": "producers get an error",
    "consumer_backlog_eviction": "a broker drops the oldest messages of the slowest subscription",
}
_PRODUCERS = 3


def iter_ttl_reasons(
    reader: EntryReader, topic: Topic, cursor: Cursor, front: Front | None, not_due: NotDue, now_ms: int
) -> Iterator[Reason]:
    """Yield what the TTL in force does to CURSOR, which has a backlog, and when; or why it does nothing."""
    try:
        ttl = find_message_ttl(reader.txn, topic.name)
    except MetadataCorrupt as error:
        yield Reason("ttl-unknown", f"Which TTL is in force is not known: {error.message}.", {"error": error.code})
        return
    if is_own(cursor.name) or topic.name.is_system:
        if ttl is not None and ttl.seconds > 0:
            whose = f"{cursor.name} is the broker's own cursor" if is_own(cursor.name) else "this is a system topic"
            yield Reason(
                "ttl-never", f"{_named(ttl)} expires nothing here: {whose}.", {"ttl": ttl.seconds, "source": ttl.source}
            )
        return
    if ttl is None or ttl.seconds <= 0:
        set_to = "" if ttl is None else f" (it is 0, by the {ttl.source})"
        yield Reason(
            "ttl-none",
            f"No TTL is in force{set_to}: nothing of the backlog expires, unless a broker's ttlDurationDefaultInSeconds says so.",
            {"ttl": 0, "source": None if ttl is None else ttl.source},
            f"pulsar-admin topics expire-messages {shell_word(topic.name)} -s {shell_word(cursor.name)} -t 3d",
        )
        return
    yield from _ttl_reasons(reader, topic, cursor, ttl, front, now_ms)
    if not_due.entries:
        yield from _dropped_delayed(reader, topic, cursor)


def _named(ttl: MessageTtl) -> str:
    return f"The TTL of {format_age_ms(ttl.seconds * 1000)} ({ttl.source})"


def _ttl_reasons(
    reader: EntryReader, topic: Topic, cursor: Cursor, ttl: MessageTtl, front: Front | None, now_ms: int
) -> Iterator[Reason]:
    ttl_ms = ttl.seconds * 1000
    search = PendingSearch(reader, topic, cursor.state, "auto")
    through = expire_by_time(search, cursor, now_ms - ttl_ms, BROKER)
    overdue = _through(reader, topic, cursor, through)
    evidence = {"ttl": ttl.seconds, "source": ttl.source, "overdueEntries": overdue.entries}
    future = read_future_dated(search, now_ms)
    if future.entries and future.first is not None:
        producers = ", ".join(sorted(future.producers)[:_PRODUCERS])
        yield Reason(
            "ttl-future",
            f"{_named(ttl)} reaches {entries(future.entries)} late: {plural(future.entries, 'it was', 'they were')} published in the "
            f"future, the first at {future.first}, the latest at {when(future.latest_ms, now_ms)}, by {producers}. That one expires "
            f"on {shown_time(future.latest_ms + ttl_ms)}.",
            {**evidence, "entries": future.entries, "first": str(future.first), "latest": future.latest_ms},
            f"pulsar-admin topics skew {shell_word(topic.name)}",
        )
    if overdue.entries:
        yield Reason(
            "ttl-overdue",
            f"{_named(ttl)} is over for {entries(overdue.entries)} ({counted(overdue.messages, 'message')}), through {through}. A "
            "broker drops them when it has the topic loaded, within messageExpiryCheckIntervalInMinutes (5).",
            {**evidence, "messages": overdue.messages, "through": str(through)},
            f"pulsar-admin topics expire-messages {shell_word(topic.name)} -s {shell_word(cursor.name)} --ttl",
        )
    elif front is not None and front.born_ms <= now_ms:
        yield Reason(
            "ttl-later",
            f"{_named(ttl)} reaches {front.position}, the oldest entry that is left, at {when(front.born_ms + ttl_ms, now_ms)}.",
            {**evidence, "expires": front.born_ms + ttl_ms},
            f"pulsar-admin topics expire-messages {shell_word(topic.name)} -s {shell_word(cursor.name)} "
            f"--forecast {format_age_ms(2 * ttl_ms)}",
        )


def _through(reader: EntryReader, topic: Topic, cursor: Cursor, through: Position | None) -> Extent:
    if through is None:
        return Extent()
    end = topic.place(through)
    gone = ((low, min(high, end)) for low, high in pending_intervals(topic, cursor.state) if low < end)
    return extent_of(reader.txn, topic, gone)


def _dropped_delayed(reader: EntryReader, topic: Topic, cursor: Cursor) -> Iterator[Reason]:
    found = find_ttl_conflict(reader, topic, cursor)
    if found is not None and found.messages:
        yield Reason(
            "ttl-drops-delayed",
            f"The TTL of {format_age_ms(found.ttl_seconds * 1000)} ({found.source}) drops "
            f"{counted(found.messages, 'delayed entry', 'delayed entries')} before they are due, {found.first[0]} among them.",
            {"ttl": found.ttl_seconds, "entries": found.messages, "first": [str(one) for one in found.first]},
            f"pulsar-admin delayed status {shell_word(topic.name)} -s {shell_word(cursor.name)}",
        )


# -- quotas -----------------------------------------------------------------------------------------------------------


def iter_quota_reasons(reader: EntryReader, topic: Topic, now_ms: int) -> Iterator[Reason]:
    """Yield whether TOPIC has reached the backlog quotas in force."""
    try:
        quotas = find_quotas(reader.txn, topic.name)
    except MetadataCorrupt:  # the TTL's reason says so
        return
    for state in iter_quota_states(topic, read_mark_deletes(reader, topic), quotas, now_ms):
        if state.kind == SIZE:
            yield _quota(
                topic,
                state,
                f"{state.used:,} of {counted(state.limit, 'byte')} behind {state.slowest}, the slowest cursor",
                {"backlogSize": state.used, "limitSize": state.limit},
            )
        else:
            closed = "is still open" if state.closed_ms is None else f"was closed {format_age_ms(state.used)} ago"
            yield _quota(
                topic,
                state,
                f"the ledger with the first message behind {state.slowest}, by which a broker judges, {closed}; the limit is "
                f"{format_age_ms(state.limit)}",
                {"closed": state.closed_ms, "limitTime": state.quota.limit_time_seconds},
            )


def _quota(topic: Topic, state: QuotaState, text: str, evidence: dict[str, object]) -> Reason:
    policy = state.quota.policy
    does = _DOES.get(policy, policy)
    verdict = f"is reached, so {does}" if state.is_reached else f"is not reached; at the limit {does}"
    return Reason(
        "quota-reached" if state.is_reached else "quota-left",
        f"The backlog quota {state.kind} ({state.source}, {policy}) {verdict}: {text}.",
        {"type": state.kind, "policy": policy, "source": state.source, "slowest": state.slowest, **evidence},
        f"pulsar-admin topics get-backlog-quotas {shell_word(topic.name)} -ap",
    )
