"""Entries before the answer of a search by time that are lost or not imported, and so might have been an earlier answer.

A lost entry may have had any time, as clocks run backwards: only times that the metadata states rule a ledger out (PIP-345).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.coverage import count_unseen, unseen_places
from pulsar_admin.store.model.ledgers import find_ledger, gaps_between, iter_gaps
from pulsar_admin.store.model.topics import Topic, TopicLedger, is_whole
from pulsar_admin.store.names import Position
from pulsar_admin.store.wording import Answer, counted, listed, plural

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from pulsar_admin.store.db.environment import Txn
    from pulsar_admin.store.model.cursors import Intervals

_SHOWN = 3


class Doubt(Answer, frozen=True):
    """Entries of a listed ledger that no imported file has: the first is ``first``, the last ``last``; others may exist between them.

    ``lost``: how many of them no bookie has; ``unseen``: how many may be on ``bookies`` or, with ``offloaded``, in
    tiered storage, which were not imported. ``unseen_from``: an open ledger may have more entries on ``bookies`` from
    there on.
    """

    ledger_id: int
    first: int = 0
    last: int = -1
    lost: int = 0
    unseen: int = 0
    unseen_from: int | None = None
    bookies: tuple[str, ...] = ()
    offloaded: bool = False

    def text(self) -> str:
        """Return the entries in words: "279 lost entries of ledger 2 (2:58 to 2:336)"."""
        parts = []
        place = f"{self.ledger_id}:{self.first}"
        place += f" to {self.ledger_id}:{self.last}" if self.last > self.first else ""
        if self.lost:
            parts.append(f"{counted(self.lost, 'lost entry', 'lost entries')} of ledger {self.ledger_id} ({place})")
        if self.unseen:
            parts.append(
                f"{counted(self.unseen, 'entry')} of ledger {self.ledger_id} not seen here ({place}; {self._where()})"
            )
        if self.unseen_from is not None:
            parts.append(f"what ledger {self.ledger_id} may have from entry {self.unseen_from} on ({self._where()})")
        return " or ".join(parts)

    def _where(self) -> str:
        if self.offloaded:
            return "they are in tiered storage, which is not imported"
        return f"{listed(self.bookies, 5)} {plural(len(self.bookies), 'is', 'are')} not imported"


def text_of_doubts(doubts: Sequence[Doubt]) -> str:
    """Return the doubtful entries in words, those of the first few ledgers one by one."""
    texts = [doubt.text() for doubt in doubts[:_SHOWN]]
    more = len(doubts) - len(texts)
    return listed([*texts, counted(more, "more ledger")] if more else texts)


def find_doubts(
    txn: Txn, topic: Topic, answer: Position | None, time_ms: int, clock: str, scanned: Mapping[int, BitMap64]
) -> tuple[Doubt, ...]:
    """Return the entries, by ledger, that no file has before the answer (None: anywhere) and that could be at or after
    ``time_ms`` on a clock.

    ``scanned``: entries of unindexed ledgers that a scan of the files found.
    """
    doubts = []
    for ledger in topic.ledgers:
        entries = ledger.entries
        if answer is not None and ledger.ledger_id >= answer.ledger_id:
            entries = min(entries, answer.entry_id) if ledger.ledger_id == answer.ledger_id else 0
        doubt = find_doubt(txn, ledger, entries, scanned.get(ledger.ledger_id), to_end=answer is None)
        if doubt is not None:
            from pulsar_admin.store.model.publish_times import is_stated_earlier  # few topics leave doubts

            if not is_stated_earlier(txn, topic, ledger, time_ms, clock):
                doubts.append(doubt)
    return tuple(doubts)


def find_unseen(txn: Txn, topic: Topic, intervals: Intervals, limit_ms: int, clock: str) -> tuple[Doubt, ...]:
    """Return, by ledger, the entries at these ranks that were not imported and are not known to be older than ``limit_ms``.

    Entries that are lost for good are not included. A ledger that a broker closed before ``limit_ms`` has no later
    entries.
    """
    from pulsar_admin.store.model.cursors import iter_ledger_parts  # what a cold question by time needs not
    from pulsar_admin.store.model.publish_times import is_stated_earlier

    unseen: dict[int, Doubt] = {}
    whole: dict[int, Doubt | None] = {}  # of very many intervals, each would go through all of a ledger again
    for start, end in intervals:
        for ledger_id, first, last in iter_ledger_parts(topic, start, end):
            ledger = topic.ledger(ledger_id)
            if ledger is None or ledger_id in unseen:
                continue
            if ledger_id not in whole:
                is_older = 0 < (ledger.info.timestamp_ms or 0) < limit_ms
                doubt = None if is_older else find_doubt(txn, ledger, ledger.entries)
                is_older = doubt is None or not doubt.unseen or is_stated_earlier(txn, topic, ledger, limit_ms, clock)
                whole[ledger_id] = None if is_older else doubt
            around = whole[ledger_id]
            if around is None or last < around.first or around.last < first:
                continue
            doubt = find_doubt(txn, ledger, last + 1, first=first)
            if doubt is not None and doubt.unseen:
                unseen[ledger_id] = replace(doubt, lost=0)
    return tuple(unseen.values())


def find_doubt(
    txn: Txn,
    ledger: TopicLedger,
    entries: int,
    scanned: BitMap64 | None = None,
    *,
    first: int = 0,
    to_end: bool = False,
) -> Doubt | None:
    """Return those of the entries ``first`` to ``entries`` (excluded) of a ledger that no file has, None for none.

    ``scanned``: entries that a scan of the files found; ``to_end``: add what an open ledger may have after them."""
    if not ledger.is_open and not ledger.info.offloaded and is_whole(txn, ledger):
        return None
    seen = None if scanned is None else zip(scanned, scanned, strict=True)
    gaps = iter_gaps(txn, ledger.ledger_id, entries - 1) if seen is None else gaps_between(seen, entries - 1)
    ranges = [(max(low, first), high) for low, high in gaps if high >= first]
    unseen_from: int | None = None
    bookies: tuple[str, ...] = ()
    if to_end:
        from pulsar_admin.store.model.broken import end_unseen  # most questions have an answer

        unseen_from, bookies = end_unseen(txn, ledger)
    if not ranges:
        return None if unseen_from is None else Doubt(ledger.ledger_id, unseen_from=unseen_from, bookies=bookies)
    missing = sum(last - first + 1 for first, last in ranges)
    unseen, absent = _count_unseen(txn, ledger, ranges, missing)
    return Doubt(
        ledger.ledger_id,
        ranges[0][0],
        ranges[-1][1],
        missing - unseen,
        unseen,
        unseen_from,
        tuple(dict.fromkeys((*absent, *bookies))),
        ledger.info.offloaded,
    )


def _count_unseen(
    txn: Txn, ledger: TopicLedger, ranges: list[tuple[int, int]], missing: int
) -> tuple[int, tuple[str, ...]]:
    """Return how many of the missing entries may be in tiered storage or on bookies that were not imported, and these bookies."""
    if ledger.info.offloaded:
        return missing, ()
    ledger_of_store = None
    with suppress(StoreError):  # metadata that cannot be read names no bookie
        ledger_of_store = find_ledger(txn, ledger.ledger_id)
    if ledger_of_store is None or ledger_of_store.metadata is None:
        absent = tuple(unseen_places(txn).values())
        return (missing if absent else 0), absent
    return count_unseen(txn, ledger_of_store, ranges)
