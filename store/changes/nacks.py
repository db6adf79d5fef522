"""Changes of stored negative acknowledgements: adding entries, and popping the due ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pulsar_admin.store.changes.plan import ChangeKind, ChangePart, NacksPart, Plan
from pulsar_admin.store.db.audit_log import Change, Step
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.nacks import (
    BUCKET,
    DEFAULT_PRECISION_BITS,
    KeptGroup,
    TrackerRow,
    bucket_key,
    check_precision_bits,
    decode_bucket_row,
    due_time,
    encode_bucket_row,
    encode_tracker_row,
    find_tracker,
    group_of,
    next_deadline_ms,
    pending_entries,
    tracker_id,
    tracker_key,
    trim_lower_bits,
)
from pulsar_admin.store.errors import EntryNotFound, InvalidValue, NothingMatches, Refused
from pulsar_admin.store.model.cursors import hole_intervals, iter_ledger_parts, read_cursor
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, expand_topic, read_topic
from pulsar_admin.store.names import LONG_MAX, Position, TopicName
from pulsar_admin.store.wording import counted

if TYPE_CHECKING:
    from pyroaring import BitMap64

    Groups = Mapping[tuple[int, int], BitMap64]
    """(due time in epoch ms, ledger id) → entry ids."""

_ADD = ChangeKind("nacks add", "track negative acks of {subscription} on {place}")
_POP = ChangeKind("nacks due --pop", "pop due negative acks of {subscription} on {place}")


class NackedEntries:
    """Collects the entries to track; ``entries`` is topic → (due time in epoch ms, ledger id) → entry ids."""

    def __init__(self, topics: Sequence[Topic], *, unknown: bool = False) -> None:
        """``unknown``: also accept positions that no topic has, which is possible with a single topic only."""
        self.entries: dict[str, dict[tuple[int, int], BitMap64]] = {str(topic.name): {} for topic in topics}
        self._topics = {ledger_id: topic for topic in topics for ledger_id in topic.ids}
        self._default = topics[0] if unknown and len(topics) == 1 else None
        self._names = ", ".join(str(topic.name) for topic in topics[:1]) + (" …" if len(topics) > 1 else "")

    def add(self, position: Position, due_ms: int) -> None:
        """Add the entry at a position, without its batch index; raises InvalidValue, EntryNotFound."""
        if not (0 <= position.ledger_id < LONG_MAX and 0 <= position.entry_id < LONG_MAX):
            raise InvalidValue(
                f"position {position} is not an entry",
                hint="write LEDGER:ENTRY, as topics read prints it",
                value=str(position),
            )
        topic = self._topics.get(position.ledger_id)
        if topic is None or not topic.is_entry(position.entry):
            topic = self._default
        if topic is None:
            raise EntryNotFound(
                f"{self._names} has no entry {position}",
                hint="--force tracks it anyway, on one topic: it may be newer than the store",
                ledgerId=position.ledger_id,
                entryId=position.entry_id,
            )
        self._bitmap(topic, due_ms, position.ledger_id).add(position.entry_id)

    def add_intervals(self, topic: Topic, intervals: Iterable[tuple[int, int]], due_ms: int) -> None:
        """Add the entries of a topic whose ranks are in ``intervals`` (start, end exclusive)."""
        for start, end in intervals:
            for ledger_id, first, last in iter_ledger_parts(topic, start, end):
                self._bitmap(topic, due_ms, ledger_id).add_range(first, last + 1)

    def _bitmap(self, topic: Topic, due_ms: int, ledger_id: int) -> BitMap64:
        # Imported here: it costs 8 ms, and only commands that track need it.
        from pyroaring import BitMap64

        groups = self.entries[str(topic.name)]
        place = due_ms, ledger_id
        if place not in groups:
            groups[place] = BitMap64()
        return groups[place]


def plan_positions(
    reader: EntryReader,
    name: TopicName,
    subscription: str,
    positions: Iterable[tuple[Position, int]],
    bits: int | None,
    force: bool,
    now_ms: int,
) -> Plan:
    """Plan tracking (position, delay in ms) pairs; ``force`` also accepts positions that the store does not have.

    ``bits``: see ``plan_add``. Raises TopicNotFound, SubscriptionNotFound, EntryNotFound, InvalidValue, and as ``plan_add``.
    """
    nacked = NackedEntries(_read_topics(reader, name, None if force else subscription), unknown=force)
    for position, delay_ms in positions:
        nacked.add(position, due_time(delay_ms, now_ms))
    return plan_add(reader.txn, subscription, nacked.entries, bits)


def plan_holes(
    reader: EntryReader, name: TopicName, subscription: str, delay_ms: int, bits: int | None, now_ms: int
) -> Plan:
    """Plan tracking the unacknowledged entries between acknowledged ones of a subscription; raises as
    ``plan_positions``."""
    topics = _read_topics(reader, name, subscription)
    nacked = NackedEntries(topics)
    for topic in topics:
        state = read_cursor(reader.txn, reader, topic, subscription).state
        nacked.add_intervals(topic, hole_intervals(topic, state), due_time(delay_ms, now_ms))
    return plan_add(reader.txn, subscription, nacked.entries, bits)


def _read_topics(reader: EntryReader, name: TopicName, subscription: str | None) -> list[Topic]:
    """Return the topic or its partitions; raises SubscriptionNotFound if one lacks ``subscription`` (None: not checked)."""
    topics = [read_topic(reader.txn, one) for one in expand_topic(reader.txn, name)]
    if subscription is not None:
        for topic in topics:
            read_cursor(reader.txn, reader, topic, subscription)
    return topics


def plan_add(txn: Txn, subscription: str, entries: Mapping[str, Groups], bits: int | None) -> Plan:
    """Plan tracking the ``entries`` (see ``NackedEntries``) of a subscription on its topics as one change.

    ``bits``: precision; None keeps that of the subscription, 8 for a new one. Raises InvalidValue (bits), and Refused
    for another precision while entries are pending. Without a new entry the plan has no steps.
    """
    steps: list[Step] = []
    parts: list[ChangePart] = []
    untouched: set[int] = set()
    groups = {topic: groups for topic, groups in entries.items() if groups}
    for topic, own in (groups or dict([*entries.items()][:1])).items():  # one report says that there is nothing
        added, part = _add(txn, topic, subscription, own, bits)
        if not added:
            untouched.add(len(parts))
        steps += added
        parts.append(part)
    return Plan(_ADD, txn.id, tuple(steps), tuple(parts), untouched=frozenset(untouched))


def _add(txn: Txn, topic: str, subscription: str, groups: Groups, bits: int | None) -> tuple[list[Step], ChangePart]:
    old = find_tracker(txn, topic, subscription)
    waiting = pending_entries(txn, old) if old is not None else 0
    first = next_deadline_ms(txn, old) if old is not None else None
    tracker = _tracker(old, topic, subscription, bits, waiting)
    steps, new, known = _bucket_steps(txn, tracker, groups)
    deadlines = [trim_lower_bits(due_ms, tracker.precision_bits) for due_ms, _ in groups]
    if steps:
        key = tracker_key(tracker.id)
        steps.insert(0, Step("nacks", key, txn.get("nacks", key), encode_tracker_row(tracker)))
    after_first = min([*deadlines, *([] if first is None else [first])], default=None)
    part = NacksPart(
        topic=topic,
        subscription=subscription,
        precision_bits=tracker.precision_bits,
        before={"pendingEntries": waiting, "nextDeadline": first},
        after={"pendingEntries": waiting + new, "nextDeadline": after_first},
        entries=new,
        already_tracked=known,
    )
    return steps, part


def _tracker(old: TrackerRow | None, topic: str, subscription: str, bits: int | None, waiting: int) -> TrackerRow:
    if bits is not None:
        check_precision_bits(bits)
    if old is None:
        return TrackerRow(topic, subscription, DEFAULT_PRECISION_BITS if bits is None else bits, 1)
    if bits not in (None, old.precision_bits) and waiting:
        raise Refused(
            f"the nacks of {subscription!r} on {topic} are kept with {old.precision_bits} precision bits, "
            f"and {counted(waiting, 'entry waits', 'entries wait')}",
            hint=f"give --bits {old.precision_bits}, or none, or wait until they are popped",
            precisionBits=old.precision_bits,
        )
    return replace(old, precision_bits=old.precision_bits if bits is None else bits, additions=old.additions + 1)


def _bucket_steps(txn: Txn, tracker: TrackerRow, groups: Groups) -> tuple[list[Step], int, int]:
    """Return the steps that add ``groups``, the number of entries that are new in their bucket, and of those already in it."""
    # Imported here: help and plans of other commands need no bitmaps.
    from pyroaring import BitMap64

    buckets: dict[tuple[int, int], BitMap64] = {}
    for (due_ms, ledger_id), entry_ids in groups.items():
        place = trim_lower_bits(due_ms, tracker.precision_bits), ledger_id
        buckets[place] = buckets[place] | entry_ids if place in buckets else BitMap64(entry_ids)
    steps, new, known = [], 0, 0
    for (bucket_ms, ledger_id), entry_ids in sorted(buckets.items(), key=lambda item: item[0]):
        key = bucket_key(tracker.id, bucket_ms, ledger_id)
        before = txn.get("nacks", key)
        there = BitMap64() if before is None else decode_bucket_row(key, before)
        merged = there | entry_ids
        new += len(merged) - len(there)
        known += len(entry_ids) - (len(merged) - len(there))
        if len(merged) > len(there):
            steps.append(Step("nacks", key, before, encode_bucket_row(key, merged)))
    return steps, new, known


def plan_pop(txn: Txn, groups: Iterable[KeptGroup], now_ms: int) -> Plan:
    """Plan removing ``groups``, which are due at ``now_ms``; ``popped_groups`` reads them back from the change."""
    listed = sorted(groups, key=lambda group: (group.topic, group.subscription))
    steps = tuple(Step("nacks", group.key, group.value, None) for group in listed)
    parts = []
    for (topic, subscription), rows in groupby(listed, key=lambda group: (group.topic, group.subscription)):
        own = list(rows)
        entries = sum(len(group.entry_ids) for group in own)
        following_ms = next_deadline_ms(txn, TrackerRow(topic, subscription, 0), now_ms)
        part = NacksPart(
            topic=topic,
            subscription=subscription,
            before={"dueEntries": entries, "nextDeadline": min(group.due_ms for group in own)},
            after={"dueEntries": 0, "nextDeadline": following_ms},
            entries=entries,
        )
        parts.append(part)
    return Plan(_POP, txn.id, steps, tuple(parts))


def popped_groups(change: Change) -> Iterator[KeptGroup]:
    """Yield the groups that ``change`` popped, in the order of ``iter_due``; raises NothingMatches if it popped none."""
    owners = {
        tracker_id(report["topic"], report["subscription"]): (report["topic"], report["subscription"])
        for report in change.reports
        if report.get("topic") and report.get("subscription")
    }
    groups = []
    for step in change.steps:
        owner = owners.get(step.key[1 : 1 + len(tracker_id("", ""))])
        popped = step.database == "nacks" and step.key[:1] == BUCKET and step.after is None
        if popped and step.before is not None and owner is not None:
            groups.append(group_of(*owner, step.key, step.before))
    if not groups or change.undoes is not None:
        raise NothingMatches(
            f"change {change.change} ({change.command}) popped no negative acks",
            hint="list changes with: pulsar-admin store log",
            change=change.change,
        )
    yield from sorted(groups, key=lambda group: group.order)
