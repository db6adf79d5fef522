"""Reads entries of one snapshot, each verified."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.entry import Entry, decode_entry
from pulsar_admin.store.db.bodies import find_body, has_bodies
from pulsar_admin.store.db.entry_files import EntryFiles
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.errors import EntryCorrupt, EntryNotFound, NotSeen
from pulsar_admin.store.model.ledgers import Ledger, find_damage, find_metadata, find_place, is_damaged, read_ledger

if TYPE_CHECKING:
    from pulsar_admin.store.codec.encryption import PrivateKeys
    from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata
    from pulsar_admin.store.engine.operation import Engine, FailedSlice


_KEPT_DIGESTS = 1024
NOTED = "noted"
"""Where in a transaction's memo a dictionary is that is told which entries are read, and where they lie."""


def ignore(count: int) -> None:
    """Do nothing: an ``advance`` for callers that show no progress."""


class Scanning(NamedTuple):
    """How a reader scans: on an engine (None: in this process). ``advance`` gets the bytes read; ``failed`` the unreadable parts."""

    engine: Engine | None = None
    advance: Callable[[int], None] = ignore
    failed: list[FailedSlice] | None = None


class EntryReader:
    """Reads verified entries of one snapshot; keeps each ledger's digest type and the open files.

    ``engine``: runs scans of many entries' headers; None: this process does. ``advance`` gets the bytes that scans read.
    ``failed``: a list to which a scan adds unreadable parts of files, and goes on after them; None: it stops there.
    ``keys``: decrypt encrypted payloads.
    """

    def __init__(
        self,
        files: EntryFiles,
        txn: Txn,
        engine: Engine | None = None,
        advance: Callable[[int], None] = ignore,
        failed: list[FailedSlice] | None = None,
    ) -> None:
        self.files = files
        self.txn = txn
        self.engine = engine
        self.advance = advance
        self.failed = failed
        self.keys: PrivateKeys | None = None
        self._digests: dict[int, tuple[DigestType | None, bytes]] = {}
        self._has_bodies: bool | None = None

    def scanning_on(
        self, engine: Engine | None, advance: Callable[[int], None] = ignore, failed: list[FailedSlice] | None = None
    ) -> EntryReader:
        """Return a reader of the same snapshot and files that scans on an engine."""
        reader = EntryReader(self.files, self.txn, engine, advance, failed)
        reader.keys = self.keys
        return reader

    def seeing(self, txn: Txn) -> EntryReader:
        """Return a reader of the same files that uses ``txn``, another view of the snapshot."""
        reader = EntryReader(self.files, txn, self.engine, self.advance, self.failed)
        reader.keys = self.keys
        return reader

    def read(self, ledger_id: int, entry_id: int) -> Entry:
        """Return the entry, its digest verified; raises one of ``ENTRY_UNREADABLE``."""
        place = find_place(self.txn, ledger_id, entry_id)
        if place is None:
            self._raise_missing(ledger_id, entry_id)
        return self.read_at(ledger_id, entry_id, place)

    def read_at(self, ledger_id: int, entry_id: int, place: tuple[int, int, int]) -> Entry:
        """Return the entry at ``place``, which the index names for it."""
        digest_type, password = self._digest(ledger_id)
        where = f"{self.files.name(place[0])} @ {place[1]:#x}"
        try:
            kept = self._kept(ledger_id, entry_id, place)
            record = self.files.read_record(place) if kept is None else memoryview(kept)[4:]
            entry = decode_entry(record, digest_type, where=where, password=password)
        except EntryCorrupt as error:
            raise EntryCorrupt(error.message, hint=self._elsewhere(ledger_id), **error.context) from error
        if (entry.ledger_id, entry.entry_id) != (ledger_id, entry_id):
            raise EntryCorrupt(
                f"{where}: expected entry {ledger_id}:{entry_id}, found {entry.ledger_id}:{entry.entry_id}",
                hint="the file changed since import; run: pulsar-admin store check --deep",
            )
        return entry

    def read_head(self, ledger_id: int, entry_id: int, place: tuple[int, int, int], length: int) -> bytes:
        """Return the first ``length`` bytes of the record at ``place``, from its size field on."""
        kept = self._kept(ledger_id, entry_id, place)
        return self.files.read(place[0], place[1], length) if kept is None else kept[:length]

    def _kept(self, ledger_id: int, entry_id: int, place: tuple[int, int, int]) -> bytes | None:
        """Return the stored copy of a record, from its size field on, None if there is no copy."""
        noted = self.txn.memo.get(NOTED)
        if noted is not None:
            noted[ledger_id, entry_id] = place
        if self._has_bodies is None:
            self._has_bodies = has_bodies(self.txn)
        return find_body(self.txn, ledger_id, entry_id) if self._has_bodies else None

    def payloads(self, ledger_id: int, entries: int) -> Iterator[bytes | memoryview]:
        """Yield the payloads of the first ``entries`` of a ledger; raises as ``read``."""
        return (self.read(ledger_id, entry_id).payload for entry_id in range(entries))

    def _digest(self, ledger_id: int) -> tuple[DigestType | None, bytes]:
        digest = self._digests.get(ledger_id)
        if digest is None:
            metadata = self._find_metadata(ledger_id)
            digest = (metadata.digest_type, metadata.password or b"") if metadata else (None, b"")
            if len(self._digests) >= _KEPT_DIGESTS:
                self._digests.clear()
            self._digests[ledger_id] = digest
        return digest

    def _find_metadata(self, ledger_id: int) -> LedgerMetadata | None:
        """Return the metadata by which entries are verified; None if it is missing or damaged: entries are then read without it."""
        return None if is_damaged(self.txn, ledger_id) else find_metadata(self.txn, ledger_id)

    def _elsewhere(self, ledger_id: int) -> str:
        """Return a hint where else entries of a ledger may be: on another bookie if they were written to several, else in a backup."""
        metadata = self._find_metadata(ledger_id)
        replicated = metadata is None or metadata.write_quorum > 1
        return "another replica may hold it: import that bookie too" if replicated else "restore the file from a backup"

    def _raise_missing(self, ledger_id: int, entry_id: int) -> NoReturn:
        ledger = read_ledger(self.txn, ledger_id)
        damage = find_damage(self.txn, ledger_id, entry_id)
        if damage is not None:
            raise EntryCorrupt(
                f"entry {ledger_id}:{entry_id} is damaged: {damage.reason}, {self.files.name(damage.file_id)} @ {damage.offset:#x}",
                hint=self._elsewhere(ledger_id),
                ledgerId=ledger_id,
                entryId=entry_id,
            )
        lost = ledger.metadata is not None and 0 <= entry_id <= ledger.last_entry_id
        unseen = self._not_imported(ledger, entry_id) if lost else None
        raise EntryNotFound(
            unseen.message
            if unseen is not None
            else f"entry {ledger_id}:{entry_id} is lost: no imported file holds it"
            if lost
            else f"ledger {ledger_id} has no entry {entry_id}: its last entry is {ledger.last_entry_id}",
            hint=unseen.hint
            if unseen is not None
            else f"list the existing entries with: pulsar-admin ledgers entries {ledger_id}",
            ledgerId=ledger_id,
            entryId=entry_id,
        ) from unseen

    def _not_imported(self, ledger: Ledger, entry_id: int) -> NotSeen | None:
        """Return which bookies should have an entry and are not imported; None if all are imported."""
        from pulsar_admin.store.model.coverage import (  # what reads whole entries does without
            bring_hint,
            iter_entry_gaps,
        )

        gap = next(iter_entry_gaps(self.txn, ledger, ((entry_id, entry_id),)), None)
        if gap is None or not gap.bookies:
            return None
        names, are = ", ".join(gap.bookies), "is" if len(gap.bookies) == 1 else "are"
        return NotSeen(
            f"entry {ledger.ledger_id}:{entry_id} is not seen: {names}, which may have it, {are} not imported",
            hint=bring_hint(gap.bookies),
            bookies=gap.bookies,
        )


@contextmanager
def open_reader(store: Store, engine: Engine | None = None) -> Iterator[EntryReader]:
    """Open one snapshot of ``store`` for reading entries, scans on ``engine``; its transaction is ``reader.txn``."""
    with store.read() as txn, EntryFiles(store, txn) as files:
        yield EntryReader(files, txn, engine)
