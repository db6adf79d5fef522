"""What is wrong with a topic although nothing of it is damaged: clocks, TTL, quotas, holes, compaction, ledgers.

Metadata and index rows answer. Entries are read only of topics whose index shows wrong clocks or whose messages a TTL may drop before
they are due, and of so many topics at most that the whole store is not read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence

from store.codec.policies import EVICTION
from store.db.tree import find_node
from store.doctor.clocks import Clocks, read_clocks
from store.doctor.diagnosis import Diagnosis
from store.doctor.findings import diagnosis_of
from store.errors import MetadataCorrupt, StoreError
from store.model.cursors import COMPACTION_CURSOR, Cursor, backlog_size_bytes, is_own, is_subscription
from store.model.extent import Intervals, pending_intervals
from store.model.reader import EntryReader
from store.model.topics import Topic
from store.names import Position
from store.policies.in_force import MessageTtl, PoliciesInForce, read_in_force
from store.policies.table import POLICIES
from store.policies.trimming import consumed_ledgers, retention_of
from store.policies.values import value_in_force
from store.rules.cause import Severity
from store.timespec import format_duration_ms, shown_time
from store.wording import counted, plural

MEBIBYTE = 1 << 20
PINNED_BYTES = 100 * MEBIBYTE
"""Held for nothing: less is a note, more a warning."""
RANGES_MAX = 10_000
"""Upstream's managedLedgerMaxUnackedRangesToPersist."""
TINY_LEDGERS = 1_000
TINY_ENTRIES = 100
HUGE_BYTES = 5 * 2048 * MEBIBYTE
"""Five times upstream's managedLedgerMaxSizePerLedgerMbytes."""
NODE_BYTES = MEBIBYTE
"""ZooKeeper's jute.maxbuffer: a request that is larger is refused."""
READ_ENTRIES = 100_000
"""Entries of a topic that are read to find who is wrong."""
READ_ALL = 2_000_000
"""Entries that are read in all."""
_COMPACTION_THRESHOLD = next(policy for policy in POLICIES if policy.name == "compaction-threshold")
_TOLD_BY_CHECK = ("has no metadata", "is gone", "cannot be read", "of this topic that nothing references", "lacks")


class TopicDoctor:
    """Looks at one topic after the other and tells SINK; DEEP reads entries of all topics."""

    def __init__(
        self, reader: EntryReader, now_ms: int, sink: Callable[[Diagnosis], None], *, deep: bool = False
    ) -> None:
        self._reader = reader
        self._now_ms = now_ms
        self._sink = sink
        self._deep = deep
        self._left = READ_ALL

    def visit(self, topic: Topic, cursors: Sequence[Cursor]) -> None:
        """Look at TOPIC and its CURSORS; what cannot be read is told by the checks."""
        for look in (self._clocks, self._quotas, self._holes, self._compaction, self._ledgers, self._delays):
            try:
                for found in look(topic, cursors):
                    self._sink(found)
            except StoreError:
                continue

    def _may_read(self, entries: int) -> bool:
        """Whether so many entries may be read; they count."""
        if self._deep:
            return True
        if entries > READ_ENTRIES or entries > self._left:
            return False
        self._left -= entries
        return True

    # -- clocks and TTL -----------------------------------------------------------------------------------------------

    def _clocks(self, topic: Topic, cursors: Sequence[Cursor]) -> Iterator[Diagnosis]:
        found = read_clocks(self._reader.txn, topic, self._now_ms)
        where = str(topic.name)
        if found.late_ledgers:
            yield diagnosis_of(
                "ledger-closed-in-future",
                where,
                f"{counted(found.late_ledgers, 'ledger')} closed at up to {shown_time(found.latest_close_ms)}, "
                f"which is yet to come",
                {"topic": where, "ledgers": found.late_ledgers, "bytes": found.late_bytes},
            )
        if not found.future_ledgers and not found.past_ledgers:
            return
        evidence: dict[str, object] = {"topic": where, "ledgers": found.future_ledgers + found.past_ledgers}
        evidence |= self._producers(topic)
        for code, off_ms, key in (("clock-ahead", found.ahead_ms, "future"), ("clock-behind", found.behind_ms, "late")):
            if off_ms:
                count = evidence.get(key, 0)
                yield diagnosis_of(code, where, _clock_text(code, off_ms, evidence), {**evidence, "messages": count})
        if found.future_now:
            yield from self._blocked(topic, cursors)

    def _producers(self, topic: Topic) -> Mapping[str, object]:
        if not self._may_read(topic.number_of_entries):
            return {}
        from store.reports.skew import SkewOptions, read_skew  # numpy: few topics have wrong clocks

        skew = read_skew(self._reader, topic, SkewOptions(tolerance_ms=Clocks.TOLERANCE_MS, now_ms=self._now_ms))
        wrong = [row for row in skew.producers if row.future or row.late]
        return {
            "producers": [row.producer for row in wrong[:3]],
            "future": skew.future,
            "late": skew.late,
            "aheadProducers": [row.producer for row in wrong if row.future][:3],
            "behindProducers": [row.producer for row in wrong if row.late][:3],
        }

    def _blocked(self, topic: Topic, cursors: Sequence[Cursor]) -> Iterator[Diagnosis]:
        ttl = self._ttl(topic)
        if ttl is None:
            return
        from store.search.by_time import read_entry_time

        for cursor in cursors:
            pending = pending_intervals(topic, cursor.state)
            if is_own(cursor.name) or not is_subscription(cursor.name) or not pending:
                continue
            position = topic.at_rank(pending[0][0])
            time_ms = read_entry_time(self._reader, position, "auto")
            if time_ms is not None and time_ms > self._now_ms + Clocks.TOLERANCE_MS:
                backlog = sum(end - start for start, end in pending)
                yield diagnosis_of(
                    "ttl-blocked",
                    f"{topic.name} {cursor.name}",
                    f"its first unacknowledged message {position} is from {shown_time(time_ms)}: a TTL of"
                    f" {format_duration_ms(ttl.seconds * 1000)} expires nothing behind it while its ledger is open",
                    {
                        **_of(topic, cursor),
                        "position": str(position),
                        "time": time_ms,
                        "ttl": ttl.seconds,
                        "messages": backlog,
                    },
                )

    def _ttl(self, topic: Topic) -> MessageTtl | None:
        ttl = self._policies(topic).message_ttl
        return ttl if ttl is not None and ttl.seconds > 0 else None

    def _policies(self, topic: Topic) -> PoliciesInForce:
        try:
            return read_in_force(self._reader.txn, topic.name)
        except MetadataCorrupt:
            return PoliciesInForce(None, None, None, {})

    def _delays(self, topic: Topic, cursors: Sequence[Cursor]) -> Iterator[Diagnosis]:
        """TTL and delays in conflict."""
        meant = [(cursor, pending_intervals(topic, cursor.state)) for cursor in cursors if not is_own(cursor.name)]
        meant = [(cursor, pending) for cursor, pending in meant if pending and is_subscription(cursor.name)]
        ttl = self._ttl(topic) if meant and not topic.name.is_system else None
        if ttl is None:
            return
        from store.delayed.expiry import expiring_before_due
        from store.delayed.not_due import may_delay

        if not may_delay(self._reader.txn, topic.name):
            return
        for cursor, pending in meant:
            if not self._may_read(sum(end - start for start, end in pending)):
                continue
            early = expiring_before_due(self._reader, topic, cursor, ttl.seconds * 1000)
            if early.messages:
                first = early.first[0]
                yield diagnosis_of(
                    "delay-beyond-ttl",
                    f"{topic.name} {cursor.name}",
                    f"a TTL of {format_duration_ms(ttl.seconds * 1000)} ({ttl.source}) drops"
                    f" {counted(early.messages, 'delayed message')} before {plural(early.messages, 'it is', 'they are')} due,"
                    f" {first.position} first",
                    {**_of(topic, cursor), "ttl": ttl.seconds, "ttlSource": ttl.source, "messages": early.messages},
                )

    # -- quotas -------------------------------------------------------------------------------------------------------

    def _quotas(self, topic: Topic, cursors: Sequence[Cursor]) -> Iterator[Diagnosis]:
        slowest = min(cursors, key=lambda cursor: topic.place(cursor.mark_delete), default=None)
        if slowest is None or not topic.entries_after(slowest.mark_delete):
            return
        size = backlog_size_bytes(topic, slowest.mark_delete)
        for kind, found in self._policies(topic).backlog_quotas.items():
            quota = found.quota
            over = ""
            if kind == "destination_storage" and 0 <= quota.limit_size_bytes < size:
                over = f"{size:,} bytes of backlog, {quota.limit_size_bytes:,} allowed"
            elif kind == "message_age" and quota.limit_time_seconds > 0:
                age_ms = self._age_of(topic, slowest.mark_delete)
                if age_ms > quota.limit_time_seconds * 1000:
                    over = (
                        f"its oldest ledger with a backlog was closed {format_duration_ms(age_ms)} ago,"
                        f" {format_duration_ms(quota.limit_time_seconds * 1000)} allowed"
                    )
            if over:
                evicts = quota.policy == EVICTION
                yield diagnosis_of(
                    "backlog-over-quota",
                    f"{topic.name} {slowest.name}",
                    f"{over}: {'drops messages' if evicts else 'refuses producers'} ({quota.policy}, {found.source})",
                    {
                        **_of(topic, slowest),
                        "quota": kind,
                        "policy": quota.policy,
                        "source": found.source,
                        "backlogBytes": size,
                        "limitBytes": quota.limit_size_bytes,
                        "limitSeconds": quota.limit_time_seconds,
                        "bytes": size - quota.limit_size_bytes if kind == "destination_storage" else size,
                    },
                )

    def _age_of(self, topic: Topic, mark_delete: Position) -> int:
        """Return how long ago the ledger of the slowest cursor was closed; 0 for an open one (upstream's imprecise check)."""
        ledger = topic.ledger(topic.next_valid(mark_delete).ledger_id)
        closed_ms = 0 if ledger is None else ledger.info.timestamp_ms or 0
        return self._now_ms - closed_ms if closed_ms > 0 else 0

    # -- acknowledgements ---------------------------------------------------------------------------------------------

    def _holes(self, topic: Topic, cursors: Sequence[Cursor]) -> Iterator[Diagnosis]:
        for cursor in cursors:
            if len(cursor.state.ranges) >= RANGES_MAX:
                yield diagnosis_of(
                    "ack-ranges-at-limit",
                    f"{topic.name} {cursor.name}",
                    f"{len(cursor.state.ranges):,} ranges of acknowledgements are stored, as many as a broker keeps",
                    {**_of(topic, cursor), "ranges": len(cursor.state.ranges)},
                )
        if not any(cursor.state.ranges for cursor in cursors):
            return
        consumed, blocker = consumed_ledgers(topic, {cursor.name: cursor.mark_delete for cursor in cursors})
        if blocker is None or retention_of(self._reader.txn, topic).time_minutes < 0:
            return
        pendings = [pending_intervals(topic, cursor.state) for cursor in cursors]
        free = [
            ledger
            for index, ledger in enumerate(topic.ledgers[:-1])
            if index >= consumed
            and ledger.entries
            and not _needed(pendings, topic.ranks[index], topic.ranks[index + 1])
        ]
        if free:
            slowest = next(cursor for cursor in cursors if cursor.name == blocker[0])
            first = topic.at_rank(topic.place(slowest.mark_delete))
            size = sum(ledger.size_bytes for ledger in free)
            yield diagnosis_of(
                "ack-hole-pins-ledgers",
                f"{topic.name} {slowest.name}",
                f"message {first} is not acknowledged: {counted(len(free), 'ledger')} behind it of {counted(size, 'byte')}"
                " that every subscription has acknowledged cannot go",
                {**_of(topic, slowest), "position": str(first), "ledgers": len(free), "bytes": size},
                _by_size(size),
            )

    # -- compaction ---------------------------------------------------------------------------------------------------

    def _compaction(self, topic: Topic, cursors: Sequence[Cursor]) -> Iterator[Diagnosis]:
        own = next((cursor for cursor in cursors if cursor.name == COMPACTION_CURSOR), None)
        if own is None:
            return
        from store.compaction.status import read_status

        problems = [
            text
            for text in read_status(self._reader, topic, ()).problems
            if not any(told in text for told in _TOLD_BY_CHECK)
        ]
        for text in problems:
            yield diagnosis_of("compaction-inconsistent", str(topic.name), text, {"topic": str(topic.name)})
        positions = {cursor.name: cursor.mark_delete for cursor in cursors}
        held, _ = consumed_ledgers(topic, positions)
        free, _ = consumed_ledgers(topic, {name: at for name, at in positions.items() if name != COMPACTION_CURSOR})
        size = sum(ledger.size_bytes for ledger in topic.ledgers[held:free])
        threshold = value_in_force(self._reader.txn, topic.name, _COMPACTION_THRESHOLD, {})[0] or 0
        if len(positions) > 1 and size and not threshold:
            yield diagnosis_of(
                "compaction-stale",
                str(topic.name),
                f"nothing compacts the topic by itself, and __compaction at {own.mark_delete} keeps"
                f" {counted(free - held, 'ledger')} of {counted(size, 'byte')} that all subscriptions have left",
                {"topic": str(topic.name), "ledgers": free - held, "bytes": size, "horizon": str(own.mark_delete)},
                _by_size(size),
            )

    # -- ledgers ------------------------------------------------------------------------------------------------------

    def _ledgers(self, topic: Topic, cursors: Sequence[Cursor]) -> Iterator[Diagnosis]:
        where, closed = str(topic.name), topic.ledgers[:-1]
        entries = sum(ledger.entries for ledger in closed)
        if len(closed) >= TINY_LEDGERS and entries < TINY_ENTRIES * len(closed):
            yield diagnosis_of(
                "ledgers-tiny",
                where,
                f"{len(closed):,} closed ledgers with {entries / len(closed):.1f} entries on average",
                {"topic": where, "ledgers": len(closed), "averageEntries": round(entries / len(closed), 1)},
            )
        for ledger in topic.ledgers:
            if ledger.size_bytes > HUGE_BYTES and not ledger.info.offloaded:
                yield diagnosis_of(
                    "ledger-huge",
                    f"ledger {ledger.ledger_id} of {where}",
                    f"{counted(ledger.size_bytes, 'byte')} in one ledger",
                    {"topic": where, "ledgerId": ledger.ledger_id, "bytes": ledger.size_bytes},
                )
        node = find_node(self._reader.txn, topic.name.path) if len(topic.ledgers) >= TINY_LEDGERS else None
        if node is not None and len(node.value) > NODE_BYTES // 2:
            yield diagnosis_of(
                "ledger-list-large",
                where,
                f"the list of its {len(topic.ledgers):,} ledgers has {len(node.value):,} bytes; ZooKeeper takes "
                f"{NODE_BYTES:,}",
                {"topic": where, "ledgers": len(topic.ledgers), "nodeBytes": len(node.value)},
                Severity.CRITICAL if len(node.value) > NODE_BYTES * 9 // 10 else None,
            )


def _of(topic: Topic, cursor: Cursor) -> dict[str, object]:
    return {"topic": str(topic.name), "subscription": cursor.name}


def _by_size(size_bytes: int) -> Severity:
    return Severity.WARNING if size_bytes >= PINNED_BYTES else Severity.NOTE


def _needed(pendings: Sequence[Intervals], start: int, end: int) -> bool:
    """Whether a cursor with one of PENDINGS needs a rank of START to END (excluded)."""
    for pending in pendings:
        index = bisect_left(pending, end, key=lambda interval: interval[0]) - 1
        if index >= 0 and pending[index][1] > start:
            return True
    return False


def _clock_text(code: str, off_ms: int, evidence: Mapping[str, object]) -> str:
    key, word = ("aheadProducers", "ahead of") if code == "clock-ahead" else ("behindProducers", "behind")
    names = evidence.get(key)
    who = f" of {', '.join(names)}" if isinstance(names, list) and names else ""
    count = evidence.get("future" if code == "clock-ahead" else "late")
    what = counted(count, "entry") if isinstance(count, int) and count else "entries"
    return f"{what}{who} up to {_rough(off_ms)} {word} the broker's clock"


def _rough(duration_ms: int) -> str:
    """Return a duration without what is small beside it."""
    unit = next((unit for unit in (86_400_000, 3_600_000, 60_000) if duration_ms >= 10 * unit), 1000)
    return format_duration_ms(duration_ms // unit * unit)
