"""Searches by time as a broker runs them: its probes, its pruning by ledger close time, its two clocks. Pulsar 2.11 to 5.0.

Sources, alike in all but for ``store.search.broker_setup.RULES``: ``OpFindNewest``, ``PersistentMessageFinder``,
``ManagedLedgerImpl.asyncFindPosition``, ``PersistentMessageExpiryMonitor``, ``CompactedTopicImpl`` (pulsar.md §3.2–3.4, §3.7).
Probing assumes that time never runs backwards; where it does, the answer depends on these very probes. A probe that cannot be read
fails the search (``OpFindNewest.readEntryFailed``; ``autoSkipNonRecoverableData`` is off unless it was switched on): the question gets
404, the reset 500 and the expiry nothing. An entry that is read and is no message does not match.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct, field

from pulsar_admin.store.errors import ENTRY_UNREADABLE, EntryNotFound, LedgerNotFound, NotSeen, StoreError
from pulsar_admin.store.model.entry_times import read_entry_time
from pulsar_admin.store.model.ledgers import find_ledger, find_metadata
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, TopicLedger, is_whole
from pulsar_admin.store.names import EARLIEST, Position
from pulsar_admin.store.search.broker_setup import DEFAULT_BROKER, BrokerSetup, Probe
from pulsar_admin.store.wording import listed

if TYPE_CHECKING:
    from pulsar_admin.store.model.compacted_view import CompactedMessageEntry, CompactedView
    from pulsar_admin.store.model.cursors import Cursor

SEARCH_FAILS = ENTRY_UNREADABLE
"""What a search raises where the broker's fails: a ledger that BookKeeper does not know, an entry that is lost or damaged."""


class BrokerSearch(Struct):
    """The broker's searches in one topic; ``probes`` lists the entries that the last search read, ``pruned`` the range it searched.

    A search raises one of SEARCH_FAILS if the broker's fails because it reads a lost entry, and NotSeen if it reads an
    entry that may be on a bookie or in tiered storage that was not imported: its time is unknown.
    """

    reader: EntryReader
    topic: Topic
    broker: BrokerSetup = DEFAULT_BROKER
    probes: list[Probe] = field(default_factory=list)
    pruned: tuple[Position | None, Position | None] = (None, None)
    used_compacted_ledger: int | None = None
    compacted_entries_read: int = 0
    forgotten: int | None = None  # the last ledger, when BookKeeper does not know it
    _times: dict[Position, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Drop the last ledger if BookKeeper does not know it, as a broker does that loads the topic (``ManagedLedgerImpl.initialize``)."""
        ledgers = self.topic.ledgers
        if ledgers and not self._is_known(ledgers[-1].ledger_id):
            topic, self.forgotten = self.topic, ledgers[-1].ledger_id
            self.topic = Topic(topic.name, topic.stat, topic.managed, ledgers[:-1])

    @property
    def entries_read(self) -> int:
        """How many entries the last search read, including those of the compacted ledger."""
        return len(self.probes) + self.compacted_entries_read

    def time_at(self, position: Position) -> int | None:
        """Return the time of an entry that a search has read."""
        return self._times.get(position)

    def message_id_by_time(self, time_ms: int) -> Position:
        """Return the answer of GET messageid/{timestamp}; a position after the last entry if no entry is late enough.

        From 4.2 on it is earliest (−1:−1) for time 0: without compacted entries its ``PulsarTopicCompactionService`` gives
        ``MessagePosition.EARLIEST``, published at 0, as the last compacted message.
        """
        # Imported here: commands that offer ``--rule broker`` seldom need it.
        from pulsar_admin.store.model.compacted_view import find_compacted_view

        self.probes, self.used_compacted_ledger, self.compacted_entries_read = [], None, 0
        try:
            view = find_compacted_view(self.reader, self.topic) if self.broker.rules.asks_compacted else None
            if view is not None and not self._is_known(view.ledger_id):
                raise LedgerNotFound(
                    f"BookKeeper has no metadata of the compacted ledger {view.ledger_id}",
                    hint="compact the topic again",
                    ledgerId=view.ledger_id,
                    topic=str(self.topic.name),
                )
            compacted = self._find_in_compacted(view, time_ms) if view is not None and view.last_entry_id >= 0 else None
        except SEARCH_FAILS as error:
            raise _failed("a broker answers 500 here", error) from error
        if view is not None and compacted is not None:
            self.used_compacted_ledger = view.ledger_id
            return compacted
        if (view is None or view.last_entry_id < 0) and self.broker.rules.zero_is_earliest and time_ms == 0:
            return EARLIEST
        count = self.topic.number_of_entries
        try:
            newest = self._find_newest((0, count - 1), self._earlier_than(time_ms), None)
        except SEARCH_FAILS as error:
            # ``asyncFindPosition`` answers null, ``PersistentTopics`` makes that 404.
            raise _failed("a broker answers 404 (Message ID not found) here", error) from error
        if newest is None:
            first = self.topic.first_position
            return Position(first.ledger_id, first.entry_id + 1)
        return self.topic.next_valid(newest)

    def reset_read_position(self, time_ms: int) -> Position:
        """Return the read position that a reset by time leaves: after the newest earlier entry it finds, or the topic's first.

        Acknowledgements play no part: ``PersistentMessageFinder`` searches from the ledger.
        """
        self.probes = []
        newest = self._find_message(time_ms)
        if newest is None:
            return Position(self.topic.first_position.ledger_id, 0)
        return Position(newest.ledger_id, newest.entry_id + 1)

    def expire_position(self, cursor: Cursor, now_ms: int, ttl_seconds: int) -> Position | None:
        """Return the mark-delete after an expiry by age, None if it does not move.

        Before 4.2 a broker searches the cursor's backlog; since then it searches as for resets, with close times. If the search fails
        (``PersistentMessageExpiryMonitor.findEntryFailed``), only the whole ledgers that were dropped before it are expired.
        """
        self.probes = []
        limit_ms = ttl_seconds * 1000
        if ttl_seconds <= 0:
            return None
        mark_delete = self.expire_whole_ledgers(cursor.mark_delete, now_ms - limit_ms)
        try:
            if self.broker.rules.expires_as_it_resets:
                newest = self._find_message(now_ms - limit_ms)
            else:
                start_rank = self.topic.place(mark_delete)
                size = self.topic.number_of_entries - start_rank
                newest = None
                if size > 0:
                    newest = self._find_newest((start_rank, size), self._earlier_than(now_ms - limit_ms), cursor)
        except SEARCH_FAILS:
            newest = None
        mark_delete = max(mark_delete, newest) if newest is not None else mark_delete
        return mark_delete if mark_delete > cursor.mark_delete else None

    def ttl_position(self, limit_ms: int) -> Position | None:
        """Return the last entry that a check of a TTL expires for all subscriptions, those older than ``limit_ms``; None for none.

        Tried on 4.0.8: the check begins at the topic's first entry, or at the last one of a ledger that was closed long enough ago,
        whoever acknowledged it. If that entry is younger, or cannot be read, nothing expires.
        """
        self.probes = []
        try:
            return self._find_message(limit_ms)
        except SEARCH_FAILS:
            return None

    def _find_message(self, time_ms: int) -> Position | None:
        """Return the newest entry that a broker takes to be earlier than ``time_ms`` (``PersistentMessageFinder.findMessages``)."""
        start, end = self.pruned = self._prune(time_ms)
        topic = self.topic
        first_rank = topic.rank(start) if start is not None else 0
        end_rank = topic.rank(end) if end is not None and end < topic.last_confirmed else topic.number_of_entries - 1
        size = end_rank - first_rank + 1
        return self._find_newest((first_rank, size), self._earlier_than(time_ms), None) if size > 0 else None

    def expire_whole_ledgers(self, mark_delete: Position, limit_ms: int) -> Position:
        """Return the mark-delete after the fast path: ledgers closed before ``limit_ms`` are dropped without reading their entries."""
        last = None
        if not self.broker.rules.expires_whole_ledgers:
            return mark_delete
        for ledger in self.topic.ledgers:
            if ledger.ledger_id < mark_delete.ledger_id:
                continue
            closed_ms = self._closed_ms(ledger)
            if not closed_ms or closed_ms >= limit_ms:
                break
            last = Position(ledger.ledger_id, ledger.entries - 1)
        return mark_delete if last is None else max(mark_delete, min(last, self.topic.last_confirmed))

    def _closed_ms(self, ledger: TopicLedger) -> int | None:
        """Return when the ledger was closed as the broker sees it: loading a topic closes its last ledger, even a closed one."""
        is_last = ledger.ledger_id == self.topic.ids[-1]
        return self.broker.loaded_ms if is_last and self.broker.loaded_ms is not None else ledger.info.timestamp_ms

    def _prune(self, time_ms: int) -> tuple[Position | None, Position | None]:
        """Narrow the search by the times at which ledgers were closed (PR 22792, 24219)."""
        start = end = None
        skew_ms = self.broker.max_clock_skew_ms
        if skew_ms < 0 or not self.broker.rules.prunes:
            return None, None
        for ledger in self.topic.ledgers:
            if self.broker.loaded_ms is not None and not ledger.entries:
                continue
            closed_ms = self._closed_ms(ledger)
            if closed_ms is None:
                return None, None
            if closed_ms == 0:
                return start, None
            edge = Position(ledger.ledger_id, ledger.entries - 1)
            if closed_ms <= time_ms - skew_ms:
                start = edge
            elif closed_ms > time_ms + skew_ms:
                end = edge
                break
        return start, end

    def _earlier_than(self, time_ms: int) -> Callable[[int | None], bool]:
        return lambda at: at is not None and at < time_ms

    def _find_newest(
        self, search: tuple[int, int], condition: Callable[[int | None], bool], cursor: Cursor | None
    ) -> Position | None:
        """Return the result of upstream's OpFindNewest for ``search``, (first rank, number of ranks).

        With ``cursor``, it stops at a probe from which on that cursor has no undeleted entry."""
        start, high = search
        low = 0
        if not self._has_more(start, cursor) or not self._probe(start, condition):
            return None
        best = self._at(start)
        if not self._has_more(self._clamp(start + high), cursor):
            return best
        if self._probe(start + high, condition):
            return self._at(start + high)
        while high > low:
            middle = low + max((high - low) // 2, 1)
            if not self._has_more(self._clamp(start + middle), cursor):
                return best
            if self._probe(start + middle, condition):
                best, low = self._at(start + middle), middle
            else:
                high = middle - 1
        return best

    def _clamp(self, rank: int) -> int:
        return min(rank, self.topic.number_of_entries - 1)

    def _at(self, rank: int) -> Position:
        return self.topic.at_rank(self._clamp(rank))

    def _has_more(self, rank: int, cursor: Cursor | None) -> bool:
        end = self.topic.number_of_entries
        if rank >= end:
            return False
        if cursor is None:
            return True
        # Imported here: questions by time have no cursor, and are asked cold.
        from pulsar_admin.store.model.cursors import normal_ranges, subtract

        return bool(subtract(((rank, end),), normal_ranges(self.topic, cursor.state)))

    def _probe(self, rank: int, condition: Callable[[int | None], bool]) -> bool:
        position = self._at(rank)
        if position not in self._times:
            self._times[position] = self._read_time(position)
        time_ms = self._times[position]
        matches = condition(time_ms)
        self.probes.append(Probe(position, time_ms, matches))
        return matches

    def _read_time(self, position: Position) -> int | None:
        """Return the time of an entry, None if it is not a message; raises SEARCH_FAILS, NotSeen."""
        ledger = self.topic.ledger(position.ledger_id)
        offloaded = ledger is not None and ledger.info.offloaded
        if not offloaded and not self._is_known(position.ledger_id):
            raise LedgerNotFound(
                f"its search reads {position}, and BookKeeper has no metadata of ledger {position.ledger_id}",
                ledgerId=position.ledger_id,
                topic=str(self.topic.name),
            )
        if ledger is not None and self._is_outside(ledger, position.entry_id):
            raise EntryNotFound(
                f"its search reads {position}, which no bookie that clients ask serves",
                hint=f"see the losses with: pulsar-admin ledgers missing {position.ledger_id}",
                ledgerId=position.ledger_id,
                entryId=position.entry_id,
            )
        try:
            self.reader.read(position.ledger_id, position.entry_id)
            return read_entry_time(self.reader, position, "auto")
        except SEARCH_FAILS as error:
            raise self._unread(position, error, offloaded=offloaded) from error

    def _is_outside(self, ledger: TopicLedger, entry_id: int) -> bool:
        """Whether an entry is in imported files, but unreadable for clients."""
        if is_whole(self.reader.txn, ledger):
            return False
        from pulsar_admin.store.model.broken import find_missing  # few ledgers lack anything

        missing = find_missing(self.reader.txn, ledger.ledger_id)
        outside = () if missing is None or missing.outside is None else missing.outside.ranges
        return any(first <= entry_id <= last for first, last in outside)

    def _unread(self, position: Position, error: StoreError, *, offloaded: bool = False) -> StoreError:
        """Return the error for a position that a search cannot read; NotSeen if the entry may exist but was not imported."""
        from pulsar_admin.store.model.coverage import iter_entry_gaps  # few probes meet an entry that is not here

        unseen = "it is in tiered storage" if offloaded else ""
        ledger = None if offloaded else find_ledger(self.reader.txn, position.ledger_id)
        if ledger is not None:
            gap = next(iter_entry_gaps(self.reader.txn, ledger, ((position.entry_id, position.entry_id),)), None)
            unseen = f"it may be on {listed(gap.bookies)}" if gap is not None and gap.bookies else ""
        if not unseen:
            hint = f"see the losses with: pulsar-admin ledgers missing {position.ledger_id}"
            return _failed(f"its search reads {position}", error, hint)
        return NotSeen(
            f"a broker's answer is unknown: its search reads {position}, which this copy lacks: {unseen}, not imported",
            hint=f"import the bookie that has it; see the imported entries with: pulsar-admin ledgers info {position.ledger_id}",
            topic=str(self.topic.name),
            ledgerId=position.ledger_id,
            entryId=position.entry_id,
        )

    def _is_known(self, ledger_id: int) -> bool:
        return find_metadata(self.reader.txn, ledger_id) is not None

    # -- compacted ledger ---------------------------------------------------------------------------------------------

    def _find_in_compacted(self, view: CompactedView, time_ms: int) -> Position | None:
        """Return the compacted ledger's answer, by publish time; None if the broker goes on to search the managed ledger."""
        last = self._read_compacted(view, view.last_entry_id)
        last_ms = last.header.metadata.publish_time
        if time_ms == last_ms:
            return last.position
        if time_ms > last_ms:
            return None
        # Upstream's bisection: publish times of a compacted ledger need not ascend.
        low, high, first = 0, view.last_entry_id, None
        while low <= high:
            middle = (low + high) // 2
            entry = self._read_compacted(view, middle)
            if entry.header.metadata.publish_time >= time_ms:
                first, high = entry.position, middle - 1
            else:
                low = middle + 1
        return first

    def _read_compacted(self, view: CompactedView, entry_id: int) -> CompactedMessageEntry:
        from pulsar_admin.store.model.compacted_view import read_compacted_entry

        self.compacted_entries_read += 1
        try:
            return read_compacted_entry(self.reader, view, entry_id)
        except SEARCH_FAILS as error:
            raise self._unread(Position(view.ledger_id, entry_id), error) from error


def _failed(what: str, error: StoreError, hint: str = "") -> StoreError:
    """Return ``error`` with ``what``, the broker's reaction, in its message."""
    return type(error)(f"{what}: {error.message}", hint=hint or error.hint, **error.context)
