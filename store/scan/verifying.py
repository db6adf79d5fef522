"""Digests of whole ledgers verified by an engine: what ``verify_ledger`` asks for block by block, read ahead in slices."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from store.aliases import Array
from store.codec.digest import DIGEST_SIZE
from store.db.blocks import Block
from store.engine.operation import Engine
from store.errors import StoreError
from store.kernels.records import BAD_DIGEST, UNVERIFIED
from store.model.ledgers import Ledger, find_metadata, iter_blocks
from store.model.reader import EntryReader
from store.scan.files import LedgerDigests
from store.scan.places import BATCH_BYTES, Places, split_places
from store.scan.spread import iter_rows

Rows = list[tuple[int, int] | None]
"""(length field, payload bytes) of each entry that is good."""


class EngineRows:
    """The rows of the blocks of LEDGERS, in order; call it with each block in turn."""

    def __init__(self, engine: Engine, reader: EntryReader, ledgers: Sequence[int]) -> None:
        self._engine = engine
        self._reader = reader
        self._rows = self._read_ahead(ledgers)

    def __call__(self, reader: EntryReader, ledger: Ledger, block: Block) -> Rows:
        """Return the rows of BLOCK; None for what is to be read again, and explained, by the reader."""
        for key, rows in self._rows:
            if key == (ledger.ledger_id, block.entry_id(0)):
                return rows
        return [None] * len(block)

    def _read_ahead(self, ledgers: Sequence[int]) -> Iterator[tuple[tuple[int, int], Rows]]:
        due: deque[tuple[tuple[int, int], int]] = deque()  # blocks handed out: key, entries
        digests = _known_digests(self._reader, ledgers)
        rows: Rows = []
        for places, found in iter_rows(self._engine, digests, self._reader.files, self._pieces(ledgers, due)):
            rows += [None] * len(places) if found is None else _judged(places, found)
            key, entries = due[0]
            if len(rows) == entries:
                due.popleft()
                yield key, rows
                rows = []

    def _pieces(self, ledgers: Sequence[int], due: deque[tuple[tuple[int, int], int]]) -> Iterator[Places]:
        """Yield the places of every block, by pieces where its entries are large; tell DUE of each block before."""
        for ledger_id in ledgers:
            for block in iter_blocks(self._reader.txn, ledger_id):
                due.append(((ledger_id, block.entry_id(0)), len(block)))
                yield from split_places(Places.of(block, 0, len(block)), BATCH_BYTES)


def _judged(places: Places, rows: Array) -> Rows:
    good = rows["flags"] & (BAD_DIGEST | UNVERIFIED) == 0
    good &= (rows["entry_id"] == places.entry_ids) & (rows["ledger_id"] == places.ledger_ids)
    payload = np.maximum(places.sizes.astype(np.int64) - 32 - rows["digest_bytes"], 0)
    found = zip(good.tolist(), rows["length"].tolist(), payload.tolist(), strict=True)
    return [(length, size) if is_good else None for is_good, length, size in found]


def _known_digests(reader: EntryReader, ledgers: Sequence[int]) -> LedgerDigests:
    """Return the digest sizes that metadata names; the digest of any other ledger is found by trying."""
    kinds: dict[int, int] = {}
    for ledger_id in ledgers:
        try:
            metadata = find_metadata(reader.txn, ledger_id)
        except StoreError:
            continue
        if metadata is not None and metadata.digest_type is not None:
            kinds[ledger_id] = DIGEST_SIZE[metadata.digest_type]
    return LedgerDigests.of(kinds)
