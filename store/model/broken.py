"""Broken ledgers: lost metadata or entries, entries that no client gets, and how a broker treats a topic that
lists one.

Upstream (Pulsar 4.0.8): ``ManagedLedgerImpl.initialize`` drops a last ledger that BookKeeper does not know,
``OpReadEntry`` stops at an earlier one, or skips it with ``autoSkipNonRecoverableData``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.ledgermetadata import LedgerState
from pulsar_admin.store.db.bookies import disks_of
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.unserved import has_unserved
from pulsar_admin.store.errors import MetadataCorrupt, StoreError, Unsupported
from pulsar_admin.store.model import coverage
from pulsar_admin.store.model.ledgers import (
    Ledger,
    find_ledger,
    find_metadata,
    find_sums,
    has_node,
    missing_ranges,
    read_ledger,
)
from pulsar_admin.store.model.topics import Topic, TopicLedger, is_whole, lacks_bookies, read_topic
from pulsar_admin.store.names import EVENTS, Position, parse_topic, shell_word
from pulsar_admin.store.wording import Answer, counted, plural

if TYPE_CHECKING:
    from pulsar_admin.store.db.owners import Owner

Range = tuple[int, int]

NO_LEDGER = "no-ledger"
NO_METADATA = "no-metadata"
GONE = "gone-bookies"
ENTRIES = "entries"
NOT_SERVED = "not-served"
ELSEWHERE = "elsewhere"
NOT_SEEN = "not-imported"

_SOME = (ENTRIES, NOT_SERVED, ELSEWHERE)
"""Reasons of ledgers that have metadata, some of whose entries no client gets."""
_WHERE = {
    ENTRIES: "only where no client can read them",
    NOT_SERVED: "only in records that no bookie serves",
    ELSEWHERE: "only on bookies that its metadata does not name",
}
_RANGES = 3  # that are named
_SPLIT = 100_000  # ranges of one ledger that are told apart: metadata may claim any number of entries
_NO_LEDGER = "No such ledger exists on Metadata Server"
_DAMAGED = "Error while using ZooKeeper"  # whatever the metadata store is


class Missing(Answer, frozen=True):
    """What no client gets of a ledger, and the worst of the reasons.

    "no-ledger": neither metadata nor entries are there; "no-metadata"; "gone-bookies": it was never closed, and the ``bookies`` that a
    recovery has to hear do not answer any more; "entries": they are nowhere; "not-served": bookies have them and do not serve them;
    "elsewhere": bookies have them that its ensemble does not name; "not-imported": only bookies may have them that were not imported.
    ``ranges``: entry ids, both ends included; ``unseen_entries``: how many of them ``bookies`` should have, which are not imported;
    ``outside``: those that files have nevertheless; ``cure``: the command that brings them back. ``absent``: bookies, not imported,
    that may have more of one with "gone-bookies" or "no-metadata", or all of one with "no-ledger".
    """

    ledger_id: int
    reason: str
    missing_entries: int
    ranges: tuple[Range, ...]
    owners: tuple[Owner, ...]
    unseen_entries: int = 0
    bookies: tuple[str, ...] = ()
    outside: coverage.UnservedEntries | None = None
    cure: str = ""
    absent: tuple[str, ...] = ()

    @property
    def may_be_forgotten(self) -> bool:
        """Whether all nodes that name the ledger are of a known version, so that it can be removed from them."""
        return not any(owner.is_of_newer for owner in self.owners)

    @property
    def may_be_restored(self) -> bool:
        """Whether the ledger's metadata can be rebuilt from entries; a package's cannot: nothing but its ledgers' ids is known of it."""
        return all(owner.kind != "package" for owner in self.owners)

    @property
    def is_astray(self) -> bool:
        """Whether bookies that the metadata does not name have entries that clients would get if it named these bookies."""
        return self.outside is not None and (self.reason == GONE or not self.outside.asked)


def _count(ranges: Iterable[Range]) -> int:
    return sum(last - first + 1 for first, last in ranges)


def find_missing(txn: Txn, ledger_id: int) -> Missing | None:
    """Return the missing parts of a ledger, None if it is complete; unreadable metadata counts as missing.

    Metadata of an unknown version proves nothing: nothing is called lost.
    """
    from pulsar_admin.store.db.owners import find_owners  # few questions meet a broken ledger

    owners = find_owners(txn, ledger_id)
    if owners and not has_node(txn, ledger_id):
        owners = tuple(owner for owner in owners if not _is_left_behind(txn, owner, ledger_id))
    return _find_missing(txn, ledger_id, owners)


def _is_left_behind(txn: Txn, owner: Owner, ledger_id: int) -> bool:
    """Whether only the stored list of a shadow topic names the ledger; a broker replaces that list by its source's."""
    if owner.kind != "managed-ledger":
        return False
    try:
        topic = read_topic(txn, parse_topic(owner.topic))
    except StoreError:
        return False
    return topic.is_shadow and topic.ledger(ledger_id) is None


def _find_missing(txn: Txn, ledger_id: int, owners: tuple[Owner, ...], *, is_listed: bool = False) -> Missing | None:
    try:
        ledger = find_ledger(txn, ledger_id)
    except Unsupported:
        return None
    except MetadataCorrupt:
        reason = NO_LEDGER if find_sums(txn, ledger_id) is None else NO_METADATA
        return _without_metadata(txn, ledger_id, reason, owners)
    if ledger is None or ledger.metadata is None:
        reason = NO_LEDGER if ledger is None else NO_METADATA
        return _without_metadata(txn, ledger_id, reason, owners) if owners or is_listed else None
    ranges, silent = missing_ranges(txn, ledger), _silent(txn, ledger)
    outside = coverage.find_outside(txn, ledger, closed=not silent)
    if not ranges and outside is None and not silent:
        return None
    missing, (unseen, bookies) = _count(ranges), coverage.count_unseen(txn, ledger, ranges)
    loss = Missing(ledger_id, NOT_SEEN if unseen == missing else ENTRIES, missing, ranges, owners, unseen, bookies)
    if outside is not None:
        loss = replace(
            loss,
            reason=loss.reason if missing > unseen else NOT_SERVED if outside.asked else ELSEWHERE,
            missing_entries=missing + outside.entries,
            ranges=_joined([*ranges, *outside.ranges]),
            outside=outside,
        )
    if silent:
        absent = coverage.absent_in(txn, ledger.metadata.segments[-1].members)
        loss = replace(loss, reason=GONE, bookies=silent, absent=absent)
    return replace(loss, cure=_cure(txn, loss)) if outside is not None or loss.absent else loss


def _without_metadata(txn: Txn, ledger_id: int, reason: str, owners: tuple[Owner, ...]) -> Missing:
    loss = Missing(ledger_id, reason, 0, (), owners, absent=tuple(coverage.unseen_places(txn).values()))
    return replace(loss, cure=_cure(txn, loss)) if loss.absent else loss


def _cure(txn: Txn, missing: Missing) -> str:
    if missing.absent:
        return coverage.bring_command(missing.absent[0])
    if missing.is_astray:
        return f"pulsar-admin ledgers restore {missing.ledger_id} --to-bookies"
    asked = missing.outside.asked[0] if missing.outside is not None else ""
    return f"pulsar-admin store salvage {shell_word(disks_of(txn.store.info, asked))}"


def iter_unreadable(txn: Txn) -> Iterator[Missing]:
    """Yield, by id, the ledgers that clients cannot read completely although files have the entries, or because bookies are gone."""
    shortfalls, gone = coverage.read_shortfalls(txn), coverage.find_gone_bookies(txn)
    for ledger_id in sorted(shortfalls.ledgers | shortfalls.others):
        with suppress(StoreError):  # `store check` names what cannot be read
            is_short = ledger_id in shortfalls.ledgers or has_unserved(txn, ledger_id)
            is_gone = bool(gone) and not gone.isdisjoint(_members(txn, ledger_id))
            missing = find_missing(txn, ledger_id) if is_short or is_gone else None
            if missing is not None and (missing.outside is not None or is_gone):
                yield missing


class Thinned(Struct, frozen=True):
    """A ledger that clients can read completely, although some of its bookies are ``gone``. ``spare``: bookies with unlisted copies."""

    ledger_id: int
    gone: tuple[str, ...]
    spare: tuple[str, ...]


def iter_thinned(txn: Txn) -> Iterator[Thinned]:
    """Yield, by id, the ledgers that are completely readable, but have fewer copies because bookies are gone."""
    gone = coverage.find_gone_bookies(txn)
    for ledger_id in sorted(coverage.read_shortfalls(txn).ledgers) if gone else ():
        with suppress(StoreError):  # `store check` names what cannot be read
            thinned = find_thinned(txn, ledger_id)
            if thinned is not None:
                yield thinned


def find_thinned(txn: Txn, ledger_id: int) -> Thinned | None:
    """Return the ledger if it is completely readable, but has fewer copies because bookies are gone; else None."""
    members, gone = _members(txn, ledger_id), coverage.find_gone_bookies(txn)
    if gone.isdisjoint(members) or find_missing(txn, ledger_id) is not None:
        return None
    disks = coverage.read_disks(txn)
    held = coverage.read_held(txn, ledger_id, disks) or {}
    spare = sorted(bookie for bookie in held if bookie in disks.imported and bookie not in members)
    return Thinned(ledger_id, tuple(bookie for bookie in members if bookie in gone), tuple(spare))


def _members(txn: Txn, ledger_id: int) -> tuple[str, ...]:
    metadata = find_metadata(txn, ledger_id)
    return () if metadata is None else coverage.ensemble_bookies(metadata)


def _silent(txn: Txn, ledger: Ledger) -> tuple[str, ...]:
    """Return the bookies that are gone and without which the open ``ledger`` cannot be closed; () if it can."""
    if not coverage.find_gone_bookies(txn) or ledger.metadata is None or ledger.metadata.state is LedgerState.CLOSED:
        return ()
    end = coverage.read_open_end(txn, ledger)
    return () if end is None or end.verdict != "gone" else end.bookies


def _joined(ranges: list[Range]) -> tuple[Range, ...]:
    """Return ``ranges``, which do not overlap, in order, with adjacent ones joined."""
    joined: list[Range] = []
    for first, last in sorted(ranges):
        if joined and joined[-1][1] == first - 1:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return tuple(joined)


class BrokenLedger(Struct, frozen=True):
    """A ledger in a topic's list of which something is lost or not imported.

    ``entries``: as the list counts them; ``lost``: ranges of them that no broker can read, ``outside_entries`` of them files have, and
    ``cure`` is the command that brings these back;
    ``is_last``: nothing is listed after it; ``unseen``: ranges that only ``bookies`` have, which are not imported; ``unseen_entries``: how
    many these are, all of them; ``unseen_from``: from there on an open ledger may have more on them; ``of_events``: the topic is the
    ``__change_events`` of a namespace; ``is_damaged``: its metadata exists and cannot be decoded, which no broker skips.
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
    outside_entries: int = 0
    cure: str = ""
    is_damaged: bool = False

    def holds(self, position: Position) -> bool:
        """Whether ``position`` is a lost entry, or is (ledger, -1) while the ledger's entry 0 is lost."""
        return position.ledger_id == self.ledger_id and any(
            first <= max(position.entry_id, 0) <= last for first, last in self.lost
        )

    @property
    def stops_loading(self) -> bool:
        """Whether a broker that loads the topic fails on the ledger, which it opens to close it."""
        return self.is_last and (self.reason == GONE or self.is_damaged)

    @property
    def lost_entries(self) -> int:
        return _count(self.lost)

    @property
    def fate(self) -> str:
        """The predicate for an entry in ``lost``: that it is lost, or reaches no client."""
        return "reaches no client" if self.cure else "is lost"

    def not_seen(self) -> str:
        """Return a sentence about the parts of the ledger that are not imported; "" if there are none."""
        parts = []
        if self.unseen:
            shown = ", ".join(
                f"{first}" if first == last else f"{first}–{last}" for first, last in self.unseen[:_RANGES]
            )
            rest = self.unseen_entries - _count(self.unseen[:_RANGES])
            more = f" and {rest:,} more" if rest else ""
            parts.append(
                f"{plural(self.unseen_entries, 'entry', 'entries')} {shown}{more} of ledger {self.ledger_id} not seen"
            )
        if self.unseen_from is not None:
            parts.append(f"what ledger {self.ledger_id} may have from entry {self.unseen_from} on not seen")
        return "; ".join(parts)

    def what(self) -> str:
        """Return a sentence about the loss."""
        if self.reason in _SOME:
            nowhere, outside = self.lost_entries - self.outside_entries, self.outside_entries
            texts = (
                [f"{nowhere:,} of its {counted(self.entries, 'entry')} {plural(nowhere, 'is', 'are')} lost"]
                if nowhere
                else []
            )
            if outside:
                of = "" if nowhere else f" of its {counted(self.entries, 'entry')}"
                texts.append(f"{outside:,}{of} {plural(outside, 'is', 'are')} {_WHERE[self.reason]}")
            return ", ".join(texts)
        if self.reason == GONE:
            bookies, are = ", ".join(self.bookies), plural(len(self.bookies), "is", "are")
            return f"it was never closed, and {bookies}, without which nobody can close it, {are} not in the cluster"
        if self.is_damaged or self.reason == NO_METADATA:
            state = "cannot be read" if self.is_damaged else "is lost"
            return f"its metadata {state}, with {counted(self.entries, 'entry')}"
        if self.cure:
            return f"its metadata is lost, and what is not imported may have its {counted(self.entries, 'entry')}"
        return f"it is lost, with {counted(self.entries, 'entry')}"

    def broker(self) -> str:
        """Return a sentence about what a broker does at the loss."""
        if self.stops_loading:
            return (
                f"a broker cannot load the topic ({'BKLedgerRecoveryException' if self.reason == GONE else _DAMAGED})"
            )
        if self.reason not in _SOME and self.is_last:
            return "a broker that loads the topic drops the ledger from the list (Ledger not found)"
        if not self.lost:
            return "a broker that loads the topic drops the empty ledger from the list"
        if self.of_events:
            unless = "" if self.is_damaged else ", unless autoSkipNonRecoverableData=true makes them skip it"
            return f"brokers load no topic of the namespace (Failed to load topic within timeout){unless}"
        if self.is_damaged:
            return f"consumers stop at {self.ledger_id}:0 (broker log: {_DAMAGED}), also with autoSkipNonRecoverableData=true"
        where, why = f"{self.ledger_id}:{self.lost[0][0]}", "No such entry" if self.reason in _SOME else _NO_LEDGER
        why = "Error while recovering ledger" if self.reason == GONE else why
        skipped = "the lost entries, and readable ones beside them" if self.reason in _SOME else "the ledger"
        return f"consumers stop at {where} (broker log: {why}); with autoSkipNonRecoverableData=true the broker skips {skipped}"


def find_broken(txn: Txn, topic: Topic) -> tuple[BrokenLedger, ...]:
    """Return the ledgers of ``topic`` of which something is lost or not imported; two look-ups for each whole ledger."""
    suspects = (ledger for ledger in topic.ledgers if not is_whole(txn, ledger) or _may_go_on(txn, ledger))
    return tuple(broken for ledger in suspects if (broken := find_broken_ledger(txn, topic, ledger)) is not None)


def _may_go_on(txn: Txn, listed: TopicLedger) -> bool:
    return listed.is_open and lacks_bookies(txn)


def find_broken_ledger(txn: Txn, topic: Topic, listed: TopicLedger) -> BrokenLedger | None:
    """Return the lost or not imported parts of one ledger that ``topic`` lists, None if there are none."""
    # Its list owns it: who else does is not asked, once for each of what may be a hundred thousand.
    missing = _find_missing(txn, listed.ledger_id, (), is_listed=True)
    is_last, of_events = listed.ledger_id == topic.ids[-1], topic.name.local_name == EVENTS
    if missing is not None and missing.reason in (NO_LEDGER, NO_METADATA, GONE):
        lost = ((0, listed.entries - 1),) if listed.entries else ()
        there = 0 if missing.outside is None else missing.outside.entries
        return BrokenLedger(
            listed.ledger_id,
            missing.reason,
            listed.entries,
            lost,
            is_last,
            bookies=missing.bookies or missing.absent,
            of_events=of_events,
            outside_entries=there,
            cure=missing.cure,
            is_damaged=missing.reason != GONE and has_node(txn, listed.ledger_id),
        )
    broken = BrokenLedger(listed.ledger_id, NOT_SEEN, listed.entries, (), is_last, of_events=of_events)
    unseen_from, bookies = end_unseen(txn, listed)
    broken = replace(broken, unseen_from=unseen_from, bookies=bookies)
    if missing is None:
        return None if unseen_from is None else broken
    broken = replace(
        broken,
        reason=missing.reason,
        unseen_entries=missing.unseen_entries,
        bookies=tuple(dict.fromkeys((*missing.bookies, *bookies))),
    )
    if missing.reason == NOT_SEEN:
        return replace(broken, unseen=missing.ranges)
    outside = () if missing.outside is None else missing.outside.ranges
    broken = replace(broken, outside_entries=_count(outside), cure=missing.cure)
    if not missing.unseen_entries:
        return replace(broken, lost=missing.ranges)
    ledger = read_ledger(txn, listed.ledger_id)
    gaps = list(islice(coverage.iter_entry_gaps(txn, ledger, missing_ranges(txn, ledger)), _SPLIT))
    return replace(
        broken,
        lost=_joined([*((gap.first, gap.last) for gap in gaps if not gap.bookies), *outside]),
        unseen=tuple((gap.first, gap.last) for gap in gaps if gap.bookies),
    )


def end_unseen(txn: Txn, listed: TopicLedger) -> tuple[int | None, tuple[str, ...]]:
    """Return (entry id from which on an open ledger may have more, bookies that are not imported and may have it); (None, ()) for none."""
    if not _may_go_on(txn, listed):
        return None, ()
    end = coverage.read_open_end(txn, read_ledger(txn, listed.ledger_id))
    return (None, ()) if end is None or end.verdict != "open" else (end.last_entry_id + 1, end.bookies)
