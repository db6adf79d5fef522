"""One ledger of BookKeeper: what is known about it, and its entries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pulsar_admin.api.given import given_ledgers, whole_number
from pulsar_admin.api.plan import Plan
from pulsar_admin.api.planner import Planner
from pulsar_admin.api.recovering import Recoveries
from pulsar_admin.api.session import Session
from pulsar_admin.store.names import LONG_MAX

if TYPE_CHECKING:
    from pulsar_admin.store.model.ledger_owners import LedgerOwners
    from pulsar_admin.store.reports.ledger_facts import LedgerFacts
    from pulsar_admin.store.reports.verify import EntryRow, LedgerVerdict


class Ledger(Planner):
    """A ledger, whether the metadata lists it or only entry logs hold entries of it. All methods raise LedgerNotFound."""

    def __init__(self, session: Session, ledger_id: int) -> None:
        self._session = session
        (self._ledger_id,) = given_ledgers([ledger_id])

    @property
    def ledger_id(self) -> int:
        """The id."""
        return self._ledger_id

    def info(self) -> LedgerFacts:
        """Return state, end, sizes in bytes, metadata, what the index holds, files, who references it, and what is missing.

        Raises MetadataCorrupt.
        """
        from pulsar_admin.store.reports.ledger_facts import read_ledger_facts

        return self._session.ask(read_ledger_facts, self._ledger_id)

    def owners(self) -> LedgerOwners:
        """Return what references it (topics, cursors, schemas, compactions, delayed indexes), its ``claims`` and its ``state``."""
        from pulsar_admin.store.reports.ledgers import read_stated_owners

        return self._session.ask(read_stated_owners, self._ledger_id)

    def entries(self, first: int = 0, last: int | None = None) -> Iterator[EntryRow]:
        """Yield the entries FIRST to LAST, each read and its digest verified: where it lies, its times and sizes.

        ``state`` is ``ok``, ``missing`` (no file holds it), or what is wrong with it.
        """
        from pulsar_admin.store.reports.verify import iter_entry_rows

        start, end = (
            whole_number("first", first, 0, LONG_MAX),
            None if last is None else whole_number("last", last, -1, LONG_MAX),
        )
        with self._session.reader() as reader:
            yield from iter_entry_rows(reader, self._ledger_id, start, end)

    def read(self, entry_id: int) -> bytes:
        """Return the payload of one entry, as a bookie would send it; raises EntryNotFound, EntryCorrupt."""
        number = whole_number("entry", entry_id, 0, LONG_MAX)
        with self._session.reader() as reader:
            return bytes(reader.read(self._ledger_id, number).payload)

    def verify(self) -> LedgerVerdict:
        """Read every entry and return what is wrong: ``problems`` counts, ``damaged`` names, ``missing`` has ranges of ids."""
        (verdict,) = verdicts_of(self._session, (self._ledger_id,))
        return verdict

    def forget(self, *, force: bool = False) -> Plan:
        """Plan that nothing references it any more: topics, cursors, compacted views and schemas go on without it.

        Raises Refused where nothing references it or, without FORCE, nothing of it is lost.
        """
        return Recoveries(self._session).forget_ledgers(self._ledger_id, force=force)

    def restore(self) -> Plan:
        """Plan its lost metadata made again from its entries, the bookies that hold them, and what references it; raises Refused."""
        return Recoveries(self._session).restore_ledgers(self._ledger_id)

    def delete(self, *, force: bool = False) -> Plan:
        """Plan deleting its metadata, where nothing references it: bookies free its entries. Raises Refused where something does, or,
        without FORCE, might.
        """
        return Recoveries(self._session).delete_ledgers(self._ledger_id, force=force)


def verdicts_of(session: Session, ledgers: Sequence[int]) -> Iterator[LedgerVerdict]:
    """Yield what is wrong with each of LEDGERS, or (where none is named) with all; raises LedgerNotFound, MetadataCorrupt."""
    from pulsar_admin.store.facts.orphans import iter_all_ledger_ids
    from pulsar_admin.store.reports.ledgers import indexed_bytes
    from pulsar_admin.store.reports.verify import verify_ledger

    with session.reader() as reader:
        chosen = ledgers or tuple(iter_all_ledger_ids(reader.txn))
        with session.scanning(reader, indexed_bytes(reader.txn, chosen), "verify"):
            rows_of = None
            if reader.engine is not None:
                from pulsar_admin.store.scan.operations import EngineRows

                rows_of = EngineRows(reader.engine, reader, chosen)
            yield from session.each(chosen, lambda ledger_id: verify_ledger(reader, ledger_id, rows_of))
