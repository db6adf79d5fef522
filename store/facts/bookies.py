"""Facts of the cluster's bookies: entries that their files have and clients cannot read, and entries lost with bookies that are gone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from pulsar_admin.store.db.bookies import Bookie, disks_of, iter_imported_bookies
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.db.owners import Owner, OwnerKind
from pulsar_admin.store.db.unserved import iter_unserved
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.facts import fact
from pulsar_admin.store.facts.topics import TopicFacts
from pulsar_admin.store.model.broken import GONE, Missing, Thinned, find_missing, iter_thinned, iter_unreadable
from pulsar_admin.store.model.coverage import (
    count_unseen,
    ensemble_bookies,
    find_gone_bookies,
    lacking_of,
    read_confirmed,
    read_shortfalls,
)
from pulsar_admin.store.model.ledgers import find_metadata, read_ledger
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import FileKind, parse_topic
from pulsar_admin.store.sources.index_places import MissingLog, has_database, read_missing_logs

if TYPE_CHECKING:
    from pyroaring import BitMap64

_NEEDED_FOR = {
    OwnerKind.CURSOR: "subscription {cursor} of {topic} is in it",
    OwnerKind.SCHEMA: "a schema of {topic} is in it",
    OwnerKind.COMPACTED: "the compacted view of {topic} is in it",
}
"""Why a ledger of such an owner is needed at once."""


class LostLog(Struct, frozen=True):
    """An entry log of ``bookie`` that does not exist or is empty, and the entries that the bookie's index places in it and that no journal
    replays when the bookie starts.

    ``ledgers``: those of the entries; ``elsewhere``: how many entries another bookie serves; ``outside``: how many others are in files
    that no bookie serves; ``unseen``: how many only bookies or journals that are not imported may have; ``nowhere``: how many nothing
    has; ``is_database``: whether the index is DbLedgerStorage's.
    """

    bookie: str
    path: Path
    ledgers: tuple[int, ...]
    entries: int
    elsewhere: int
    outside: int
    unseen: int
    nowhere: int
    is_database: bool
    is_empty: bool


class Unreadable(Struct, frozen=True):
    """A ledger that clients cannot read completely, although files have the entries, or because bookies are gone.

    ``missing``: entries that clients cannot read; ``gone``: bookies of its ensembles that are gone; ``needed``: who needs them
    now, in words, "" for nobody.
    """

    missing: Missing
    gone: tuple[str, ...]
    needed: str

    @property
    def ledger_id(self) -> int:
        return self.missing.ledger_id

    @property
    def is_open(self) -> bool:
        """Whether the ledger was never closed, and no client can close it."""
        return self.missing.reason == GONE

    @property
    def outside_entries(self) -> int:
        return 0 if self.missing.outside is None else self.missing.outside.entries


class BookieFacts:
    """The facts of the bookies in one snapshot. Each is read on first use."""

    def __init__(self, reader: EntryReader) -> None:
        self._info = reader.txn.store.info
        self._reader = reader
        self._topics: dict[str, tuple[Topic, str, int]] = {}

    @fact
    def here(self) -> dict[str, Bookie]:
        """The imported bookies by id; a bookie without an id is left out."""
        return {bookie.bookie_id: bookie for bookie in iter_imported_bookies(self._info) if bookie.bookie_id}

    def disks(self, bookie_id: str) -> str:
        """Return how a command line names the disks of a bookie."""
        return disks_of(self._info, bookie_id)

    @fact
    def unreadable(self) -> tuple[Unreadable, ...]:
        """The referenced ledgers that clients cannot read completely, although files have the entries or because bookies are gone."""
        txn, gone = self._reader.txn, find_gone_bookies(self._reader.txn)
        unreadable = []
        for missing in iter_unreadable(txn):
            metadata = find_metadata(txn, missing.ledger_id) if gone and missing.owners else None
            members = () if metadata is None else ensemble_bookies(metadata)
            if missing.owners:
                needed = self._needed(missing.ledger_id, missing.owners)
                absent = tuple(sorted(one for one in members if one in gone))
                unreadable.append(Unreadable(missing, absent, needed))
        return tuple(unreadable)

    def off_index(self, bookie_id: str, ledgers: Sequence[Unreadable]) -> int:
        """How many entries of ``ledgers`` are in entry logs of a bookie without clients getting them: its index does not lead there."""
        txn, count = self._reader.txn, 0
        logs = {log.file_id for log in iter_logs(txn) if log.bookie == bookie_id and log.kind == FileKind.ENTRY_LOG}
        for one in ledgers:
            outside = _bitmap(() if one.missing.outside is None else one.missing.outside.ranges)
            in_logs = (entries for file_id, entries in iter_unserved(txn, one.ledger_id) if file_id in logs)
            count += len(_of(()).union(*in_logs) & outside)
        return count

    def has_database(self, bookie_id: str) -> bool:
        """Whether the index of a bookie is DbLedgerStorage's, which a salvage rebuilds."""
        return bookie_id not in self.here or has_database(self.here[bookie_id])

    @fact
    def thinned(self) -> tuple[Thinned, ...]:
        """The ledgers that clients can read completely, but that have fewer copies because bookies are gone."""
        return tuple(iter_thinned(self._reader.txn))

    def _needed(self, ledger_id: int, owners: Sequence[Owner]) -> str:
        """Return who needs a ledger of ``owners`` now, in words; "" if nobody does."""
        for owner in owners:
            if owner.kind is OwnerKind.TOPIC:
                with suppress(StoreError):
                    if needed := self._needed_of_topic(ledger_id, owner.topic):
                        return needed
            elif owner.kind in _NEEDED_FOR:
                return _NEEDED_FOR[owner.kind].format(topic=owner.topic, cursor=owner.cursor)
        return ""

    def _needed_of_topic(self, ledger_id: int, name: str) -> str:
        if name not in self._topics:
            topic = read_topic(self._reader.txn, parse_topic(name))
            mark_deletes = TopicFacts(self._reader, topic, 0).mark_deletes
            places = ((topic.place(position), cursor) for cursor, position in mark_deletes.items())
            place, slowest = min(places, default=(topic.number_of_entries, ""))
            self._topics = {name: (topic, slowest, place)}  # owners of ledgers near each other are often the same
        topic, slowest, place = self._topics[name]
        if topic.ids and topic.ids[-1] == ledger_id:
            return f"it is the last ledger of {name}"
        rank = topic.ranks[topic.ids.index(ledger_id) + 1] if ledger_id in topic.ids else 0
        return f"subscription {slowest} of {name} is not past it" if place < rank else ""

    @fact
    def lost_logs(self) -> tuple[LostLog, ...]:
        """The missing or empty entry logs that bookies' indexes lead to; bookies whose disks are not at hand are left out."""
        lacking: dict[str, list[int]] = {}
        for ledger_id in sorted(read_shortfalls(self._reader.txn).ledgers):
            with suppress(StoreError):
                coverage = read_confirmed(self._reader.txn, read_ledger(self._reader.txn, ledger_id))
                for row in coverage.bookies if coverage is not None else ():
                    if row.imported and row.missing:
                        lacking.setdefault(row.bookie, []).append(ledger_id)
        lost_logs: list[LostLog] = []
        for bookie_id, ledgers in lacking.items():
            if bookie_id in self.here:
                with suppress(StoreError, OSError):  # its disks are not at hand: the loss is reported anyway
                    logs = read_missing_logs(self.here[bookie_id], frozenset(ledgers))
                    lost_logs += [lost for log in logs if (lost := self._lost(bookie_id, log)).entries]
        return tuple(lost_logs)

    def _lost(self, bookie_id: str, log: MissingLog) -> LostLog:
        import numpy as np

        ledgers, entries, elsewhere, outside, unseen = list[int](), 0, 0, 0, 0
        for ledger_id, rows in sorted(log.entries.items()):
            ledger = read_ledger(self._reader.txn, ledger_id)
            ids = lacking_of(self._reader.txn, ledger, bookie_id, np.array(rows.to_array(), np.int64))
            if len(ids):
                missing = find_missing(self._reader.txn, ledger_id)
                not_served = _bitmap(() if missing is None else missing.ranges).intersection(_of(ids.tolist()))
                in_files = _bitmap(() if missing is None or missing.outside is None else missing.outside.ranges)
                ledgers.append(ledger_id)
                entries += len(ids)
                elsewhere += len(ids) - len(not_served)
                outside += len(not_served & in_files)
                unseen += count_unseen(self._reader.txn, ledger, [(one, one) for one in not_served - in_files])[0]
        nowhere = entries - elsewhere - outside - unseen
        sums = entries, elsewhere, outside, unseen, nowhere
        return LostLog(bookie_id, log.path, tuple(ledgers), *sums, log.is_database, is_empty=log.path.exists())


def _of(entry_ids: Sequence[int]) -> BitMap64:
    from pyroaring import BitMap64

    return BitMap64(entry_ids)


def _bitmap(ranges: Sequence[tuple[int, int]]) -> BitMap64:
    entries = _of(())
    for first, last in ranges:
        entries.add_range(first, last + 1)
    return entries
