"""Changes of stored negative acknowledgements: adding entries, and popping the due ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec import Struct
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
from pulsar_admin.store.errors import NothingMatches, Refused
from pulsar_admin.store.wording import counted

if TYPE_CHECKING:
    from pyroaring import BitMap64

_ADD = ChangeKind("nacks add", "track negative acks of {subscription} on {place}")
_POP = ChangeKind("nacks due --pop", "pop due negative acks of {subscription} on {place}")


class Nacks(Struct, frozen=True):
    """Entries to track for one subscription: (due time in epoch ms, ledger id) → entry ids.

    ``precision_bits``: None takes the subscription's own, 8 for a new one.
    """

    topic: str
    subscription: str
    entries: Mapping[tuple[int, int], BitMap64]
    precision_bits: int | None = None


def plan_add(txn: Txn, nacks: Iterable[Nacks]) -> Plan:
    """Plan tracking negative acknowledgements as one change.

    Raises InvalidValue (bits), and Refused for another precision while some are pending. Without a new entry the plan
    has no steps.
    """
    steps: list[Step] = []
    parts: list[ChangePart] = []
    untouched: set[int] = set()
    for one in nacks:
        added, part = _add(txn, one)
        if not added:
            untouched.add(len(parts))
        steps += added
        parts.append(part)
    return Plan(_ADD, txn.id, tuple(steps), tuple(parts), untouched=frozenset(untouched))


def _add(txn: Txn, nacks: Nacks) -> tuple[list[Step], ChangePart]:
    old = find_tracker(txn, nacks.topic, nacks.subscription)
    waiting = pending_entries(txn, old) if old is not None else 0
    first = next_deadline_ms(txn, old) if old is not None else None
    tracker = _tracker(old, nacks, waiting)
    steps, new, known = _bucket_steps(txn, tracker, nacks)
    deadlines = [trim_lower_bits(due_ms, tracker.precision_bits) for due_ms, _ in nacks.entries]
    if steps:
        key = tracker_key(tracker.id)
        steps.insert(0, Step("nacks", key, txn.get("nacks", key), encode_tracker_row(tracker)))
    after_first = min([*deadlines, *([] if first is None else [first])], default=None)
    part = NacksPart(
        topic=nacks.topic,
        subscription=nacks.subscription,
        precision_bits=tracker.precision_bits,
        before={"pendingEntries": waiting, "nextDeadline": first},
        after={"pendingEntries": waiting + new, "nextDeadline": after_first},
        entries=new,
        already_tracked=known,
    )
    return steps, part


def _tracker(old: TrackerRow | None, nacks: Nacks, waiting: int) -> TrackerRow:
    if nacks.precision_bits is not None:
        check_precision_bits(nacks.precision_bits)
    if old is None:
        bits = DEFAULT_PRECISION_BITS if nacks.precision_bits is None else nacks.precision_bits
        return TrackerRow(nacks.topic, nacks.subscription, bits, 1)
    bits = old.precision_bits if nacks.precision_bits is None else nacks.precision_bits
    if bits != old.precision_bits and waiting:
        raise Refused(
            f"the nacks of {nacks.subscription!r} on {nacks.topic} are kept with {old.precision_bits} precision bits, "
            f"and {counted(waiting, 'entry waits', 'entries wait')}",
            hint=f"give --bits {old.precision_bits}, or none, or wait until they are popped",
            precisionBits=old.precision_bits,
        )
    return replace(old, precision_bits=bits, additions=old.additions + 1)


def _bucket_steps(txn: Txn, tracker: TrackerRow, nacks: Nacks) -> tuple[list[Step], int, int]:
    """Return the steps, how many entries are new in their bucket, and how many were in it already."""
    # Imported here: help and plans of other commands need no bitmaps.
    from pyroaring import BitMap64

    buckets: dict[tuple[int, int], BitMap64] = {}
    for (due_ms, ledger_id), entry_ids in nacks.entries.items():
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
    """Plan removing ``groups``, which are due at ``now_ms``; the change keeps them for ``popped_groups``."""
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
