"""Checks the ``length`` field of entries: it must be that of the previous entry plus the entry's payload bytes."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar

import numpy as np
from msgspec import Struct, field

from pulsar_admin.store.codec.digest import DIGEST_SIZE
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.ledgers import find_metadata
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import LONG_MAX
from pulsar_admin.store.scan.entries import EntryScan
from pulsar_admin.store.scan.files import LedgerDigests
from pulsar_admin.store.scan.places import EntryBatch, Places
from pulsar_admin.store.scan.reducing import Reduction, Reductions, Row

DETAILS_MAX = 1_000  # damaged entries named a ledger; the count goes on


class LengthChain(Struct):
    """A run of entries of a ledger whose lengths fit: each has the length of the one before it plus its own payload.

    ``first``: id, length and payload bytes of the first good one; ``last``: id and length of the last.
    """

    entries: int = 0
    bytes: int = 0
    unverified: int = 0
    damaged_entries: int = 0
    damaged: list[tuple[int, str]] = field(default_factory=list)
    first: tuple[int, int, int] | None = None
    last: tuple[int, int] | None = None

    def note(self, entry_id: int, reason: str) -> None:
        """Record a damaged entry, with the reason."""
        self.damaged_entries += 1
        if len(self.damaged) < DETAILS_MAX:
            self.damaged.append((entry_id, reason))

    def add(self, entry_id: int, length: int, payload_bytes: int) -> None:
        """Add the next good entry; records it as damaged if its length does not follow from the previous one's."""
        if self.last is not None and self.last[0] == entry_id - 1:
            expected = self.last[1] + payload_bytes
            if length != expected:
                self.note(entry_id, f"it carries length {length}, expected {expected}")
        self.first = self.first or (entry_id, length, payload_bytes)
        self.last = entry_id, length

    def join(self, other: LengthChain) -> None:
        """Append the chain of the entries that follow."""
        if other.first is not None:
            self.add(*other.first)
            self.last = other.last
        self.entries += other.entries
        self.bytes += other.bytes
        self.unverified += other.unverified
        self.damaged_entries += other.damaged_entries
        self.damaged += other.damaged[: DETAILS_MAX - len(self.damaged)]


class CheckLengths(Struct, Reduction, frozen=True):
    """Reduction that makes a ``LengthChain`` per ledger from entries with correct digests."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("chain",)

    def partial(self, batch: EntryBatch) -> Row:
        """Return the chain of a batch of one ledger."""
        sizes = int(batch.rows["size"].sum(dtype=np.int64))
        chain = LengthChain(len(batch), sizes, int((batch.rows["digest_bytes"] == 0).sum()))
        ids, lengths, payloads = batch.entry_ids, batch.rows["length"], batch.payload_bytes
        follows = np.diff(ids) == 1
        expected = lengths[:-1] + payloads[1:]
        for at in (np.flatnonzero(follows & (lengths[1:] != expected)) + 1).tolist():
            chain.note(int(ids[at]), f"it carries length {lengths[at]}, expected {expected[at - 1]}")
        if len(batch):
            chain.first = int(ids[0]), int(lengths[0]), int(payloads[0])
            chain.last = int(ids[-1]), int(lengths[-1])
        return {"chain": pickle.dumps(chain)}

    def merge(self, rows: Sequence[Row]) -> Row:
        """Return one chain for the chains of consecutive entries."""
        whole = LengthChain()
        for row in rows:
            whole.join(_chain_of(row))
        return {"chain": pickle.dumps(whole)}


def _chain_of(row: Row) -> LengthChain:
    """Return the chain in a row."""
    chain: LengthChain = pickle.loads(row["chain"])
    return chain


class LedgerChains:
    """The length chains of several ledgers, which the reader's engine, if it has one, reads together."""

    def __init__(self, reader: EntryReader, ledgers: Sequence[int]) -> None:
        # Of any other ledger the digest is found by trying.
        kinds: dict[int, int] = {}
        for ledger_id in ledgers:
            with suppress(StoreError):
                metadata = find_metadata(reader.txn, ledger_id)
                if metadata is not None and metadata.digest_type is not None:
                    kinds[ledger_id] = DIGEST_SIZE[metadata.digest_type]
        digests = LedgerDigests.of(kinds)
        # To the largest id: a chain also shows entries after the end that the metadata records.
        scans = [EntryScan(reader, [(ledger_id, 0, LONG_MAX - 1)], digests=digests) for ledger_id in ledgers]
        self._reader = reader
        self._places = {ledger_id: place for place, ledger_id in enumerate(ledgers)}
        self._reductions = Reductions(reader, scans, CheckLengths(), self._read_each)

    def chain(self, ledger_id: int) -> LengthChain:
        """Return the chain of a ledger."""
        return _chain_of(self._reductions.row(self._places[ledger_id]))

    def _read_each(self, places: Places) -> Row:
        """Return the row of entries of which some are damaged: each is read alone, so that its error is known."""
        chain = LengthChain(len(places), places.bytes)
        columns = (places.ledger_ids, places.entry_ids, places.files, places.offsets, places.sizes)
        for ledger_id, entry_id, *place in zip(*(column.tolist() for column in columns), strict=True):
            try:
                entry = self._reader.read_at(ledger_id, entry_id, (place[0], place[1], place[2]))
            except StoreError as error:
                chain.note(entry_id, error.message)
                continue
            chain.unverified += DIGEST_SIZE[entry.digest_type] == 0
            chain.add(entry_id, entry.length, len(entry.payload))
        return {"chain": pickle.dumps(chain)}
