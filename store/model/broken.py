"""Which ledgers are broken: metadata or entries that are lost, and what a broker does on a topic that lists such a ledger.

Upstream (Pulsar 4.0.8): ``ManagedLedgerImpl.initialize`` drops a last ledger that BookKeeper does not know, ``OpReadEntry`` stops at
one before it, or passes over it with ``autoSkipNonRecoverableData``.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from store.db.environment import Txn
from store.errors import MetadataCorrupt
from store.frozen import frozen
from store.model.absent_bookies import find_absent_bookies
from store.model.coverage import count_unseen, iter_entry_gaps
from store.model.ledgers import find_ledger, missing_ranges, read_ledger
from store.model.topics import Topic, TopicLedger
from store.model.whole import is_whole
from store.names import EVENTS, Position
from store.wording import counted, plural

if TYPE_CHECKING:
    from store.db.owners import Owner

Range = tuple[int, int]

NO_LEDGER = "no-ledger"
NO_METADATA = "no-metadata"
ENTRIES = "entries"
NOT_SEEN = "not-imported"

_RANGES = 3  # that are named
_SPLIT = 100_000  # ranges of one ledger that are told apart: metadata may claim any number of entries
_NO_LEDGER = "No such ledger exists on Metadata Server"


@frozen
class Missing:
    """What is not there of a ledger: "no-ledger" (neither metadata nor entries), "no-metadata", "entries", or "not-imported": entries
    that only bookies have which were not imported.

    ``ranges``: entry ids, both ends included; ``unseen_entries``: how many of them ``bookies`` should have, which are not imported.
    """

    ledger_id: int
    reason: str
    missing_entries: int
    ranges: tuple[Range, ...]
    owners: tuple[Owner, ...]
    unseen_entries: int = 0
    bookies: tuple[str, ...] = ()


def find_missing(txn: Txn, ledger_id: int) -> Missing | None:
    """Return what is not there of a ledger, or None when all is. A ledger whose metadata cannot be read lacks it."""
    from store.db.owners import find_owners  # few questions meet a broken ledger

    return _find_missing(txn, ledger_id, find_owners(txn, ledger_id))


def _find_missing(txn: Txn, ledger_id: int, owners: tuple[Owner, ...], *, is_listed: bool = False) -> Missing | None:
    try:
        ledger = find_ledger(txn, ledger_id)
    except MetadataCorrupt:
        return Missing(ledger_id, NO_METADATA, 0, (), owners)
    if ledger is None:
        return Missing(ledger_id, NO_LEDGER, 0, (), owners) if owners or is_listed else None
    if ledger.metadata is None:
        return Missing(ledger_id, NO_METADATA, 0, (), owners) if owners or is_listed else None
    ranges = missing_ranges(txn, ledger)
    if not ranges:
        return None
    missing = sum(last - first + 1 for first, last in ranges)
    unseen, bookies = count_unseen(txn, ledger, ranges)
    return Missing(ledger_id, NOT_SEEN if unseen == missing else ENTRIES, missing, ranges, owners, unseen, bookies)


@frozen
class BrokenLedger:
    """A ledger in a topic's list of which something is lost, or not seen. ``entries``: as the list counts them; ``lost``: ranges of
    them that no broker can read; ``is_last``: nothing is listed behind it; ``unseen``: ranges that only ``bookies`` have, which are not
    imported; ``unseen_entries``: how many these are, all of them; ``unseen_from``: from there on an open ledger may have more on them;
    ``of_events``: the topic is the ``__change_events`` of a namespace.
    """

    ledger_id: int
    reason: str
    entries: int
    lost: tuple[Range, ...]
    is_last: bool
    unseen: tuple[Range, ...] = ()
    unseen_entries: int = 0
    unseen_from: int | None = None
    bookies: tuple[str, ...] = ()
    of_events: bool = False

    def holds(self, position: Position) -> bool:
        """Whether POSITION is an entry that is lost, or in front of a lost first one."""
        return position.ledger_id == self.ledger_id and any(
            first <= max(position.entry_id, 0) <= last for first, last in self.lost
        )

    @property
    def lost_entries(self) -> int:
        return sum(last - first + 1 for first, last in self.lost)

    def not_seen(self) -> str:
        """Say what is not seen; "" when all is."""
        parts = []
        if self.unseen:
            shown = ", ".join(
                f"{first}" if first == last else f"{first}–{last}" for first, last in self.unseen[:_RANGES]
            )
            rest = self.unseen_entries - sum(last - first + 1 for first, last in self.unseen[:_RANGES])
            more = f" and {rest:,} more" if rest else ""
            parts.append(
                f"{plural(self.unseen_entries, 'entry', 'entries')} {shown}{more} of ledger {self.ledger_id} not seen"
            )
        if self.unseen_from is not None:
            parts.append(f"what ledger {self.ledger_id} may have from entry {self.unseen_from} on not seen")
        return "; ".join(parts)

    def what(self) -> str:
        """Say what is lost."""
        if self.reason == ENTRIES:
            return f"{self.lost_entries:,} of its {counted(self.entries, 'entry')} {plural(self.lost_entries, 'is', 'are')} lost"
        if self.reason == NO_METADATA:
            return f"its metadata is lost, with {counted(self.entries, 'entry')}"
        return f"it is lost, with {counted(self.entries, 'entry')}"

    def broker(self) -> str:
        """Say what a broker does there."""
        if self.reason != ENTRIES and self.is_last:
            return "a broker that loads the topic drops it from the list (Ledger not found)"
        if not self.lost:
            return "a broker that loads the topic drops it, as it is empty"
        if self.of_events:
            return (
                "a broker loads no topic of the namespace (Failed to load topic within timeout), unless autoSkipNonRecoverableData "
                "passes over it"
            )
        where, why = f"{self.ledger_id}:{self.lost[0][0]}", "No such entry" if self.reason == ENTRIES else _NO_LEDGER
        beside = ", with readable entries beside them" if self.reason == ENTRIES else ""
        return (
            f"a subscription that gets to {where} gets nothing more from a broker ({why}); with "
            f"autoSkipNonRecoverableData it passes over {'them' if beside else 'it'}{beside}"
        )


def find_broken(txn: Txn, topic: Topic) -> tuple[BrokenLedger, ...]:
    """Return the ledgers of TOPIC of which something is lost or not seen; two look-ups for each that is whole."""
    suspects = (ledger for ledger in topic.ledgers if not is_whole(txn, ledger) or _may_go_on(txn, ledger))
    return tuple(found for ledger in suspects if (found := find_broken_ledger(txn, topic, ledger)) is not None)


def _may_go_on(txn: Txn, listed: TopicLedger) -> bool:
    return listed.is_open and find_absent_bookies(txn) is not None


def find_broken_ledger(txn: Txn, topic: Topic, listed: TopicLedger) -> BrokenLedger | None:
    """Return what is lost or not seen of one ledger that TOPIC lists, None where nothing is."""
    # Its list owns it: who else does is not asked, once for each of what may be a hundred thousand.
    missing = _find_missing(txn, listed.ledger_id, (), is_listed=True)
    is_last, of_events = listed.ledger_id == topic.ids[-1], topic.name.local_name == EVENTS
    if missing is not None and missing.reason not in (ENTRIES, NOT_SEEN):
        lost = ((0, listed.entries - 1),) if listed.entries else ()
        return BrokenLedger(listed.ledger_id, missing.reason, listed.entries, lost, is_last, of_events=of_events)
    found = BrokenLedger(listed.ledger_id, NOT_SEEN, listed.entries, (), is_last, of_events=of_events)
    unseen_from, bookies = end_unseen(txn, listed)
    found = replace(found, unseen_from=unseen_from, bookies=bookies)
    if missing is None:
        return None if unseen_from is None else found
    found = replace(
        found,
        reason=missing.reason,
        unseen_entries=missing.unseen_entries,
        bookies=tuple(dict.fromkeys((*missing.bookies, *bookies))),
    )
    if missing.reason == NOT_SEEN:
        return replace(found, unseen=missing.ranges)
    if not missing.unseen_entries:
        return replace(found, lost=missing.ranges)
    ledger = read_ledger(txn, listed.ledger_id)
    gaps = list(islice(iter_entry_gaps(txn, ledger, missing.ranges), _SPLIT))
    return replace(
        found,
        lost=tuple((gap.first, gap.last) for gap in gaps if not gap.bookies),
        unseen=tuple((gap.first, gap.last) for gap in gaps if gap.bookies),
    )


def end_unseen(txn: Txn, listed: TopicLedger) -> tuple[int | None, tuple[str, ...]]:
    """Return from which entry on an open ledger may have more on bookies that are not imported, and on which; None: it ends here."""
    if not _may_go_on(txn, listed):
        return None, ()
    from store.model.open_end import read_open_end  # few stores lack a bookie

    end = read_open_end(txn, read_ledger(txn, listed.ledger_id))
    return (None, ()) if end is None or end.verdict != "open" else (end.last_entry_id + 1, end.bookies)
