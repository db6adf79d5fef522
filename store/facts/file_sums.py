"""What each file has of which ledgers, by the location index and by its own ledgers map, and who of them lives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice

from msgspec import Struct

from pulsar_admin.store.db.blocks import Block
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.files import LogFile, iter_logs
from pulsar_admin.store.errors import IndexCorrupt, StoreError
from pulsar_admin.store.facts.unlisted import UnlistedLedgers
from pulsar_admin.store.facts.usual_blocks import UsualBlocks, UsualRows
from pulsar_admin.store.model.ledgers import sorted_ledger_ids
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan.ledgers_map import read_ledger_sizes

MANY_ROWS = 4096
"""Of fewer each is looked at: numpy takes 70 ms to import."""
_CHUNK_ROWS = 1024  # of up to 8 KiB


class FileSums(Struct):
    """What the location index has in one file; ``largest``: (bytes, ledger id) of its largest live ledger."""

    records: int = 0
    live_bytes: int = 0
    dead_bytes: int = 0
    live_ledgers: int = 0
    largest: tuple[int, int] = (-1, -1)

    def add(self, ledger_id: int, size_bytes: int, *, lives: bool) -> None:
        if not lives:
            self.dead_bytes += size_bytes
            return
        self.live_bytes += size_bytes
        self.live_ledgers += 1
        self.largest = max(self.largest, (size_bytes, ledger_id))


class SumsOfFiles:
    """Adds up what blocks, in the order of their ledgers, have in each file. Raises what cannot be read of their ledgers."""

    def __init__(self, txn: Txn) -> None:
        self.by_file: dict[int, FileSums] = {}
        self._txn = txn
        self._unlisted = UnlistedLedgers(txn)
        self._ledger_id = -1
        self._sizes: dict[int, int] = {}

    def add(self, block: Block) -> None:
        if block.ledger_id != self._ledger_id:
            self.end_ledger()
            self._ledger_id = block.ledger_id
        for file_id, records, size_bytes in block.iter_parts():
            if file_id not in self.by_file:
                self.by_file[file_id] = FileSums()
            self.by_file[file_id].records += records
            self._sizes[file_id] = self._sizes.get(file_id, 0) + size_bytes

    def add_usual(self, rows: UsualRows) -> None:
        """Add blocks that are the only ones of their ledgers."""
        import numpy as np

        listed = np.frombuffer(sorted_ledger_ids(self._txn), np.int64)
        places = np.searchsorted(listed, rows.ledger_ids)
        lives = (
            listed[np.minimum(places, len(listed) - 1)] == rows.ledger_ids
            if len(listed)
            else np.zeros(len(places), bool)
        )
        for place in np.flatnonzero(~lives).tolist():
            lives[place] = not self._unlisted.is_freed(int(rows.ledger_ids[place]))
        for file_id in np.unique(rows.file_ids).tolist():
            of_file = rows.file_ids == file_id
            live = of_file & lives
            sizes = rows.size_bytes[live]
            sums = self.by_file.setdefault(file_id, FileSums())
            sums.records += int(rows.entries[of_file].sum())
            sums.dead_bytes += int(rows.size_bytes[of_file & ~lives].sum())
            sums.live_bytes += int(sizes.sum())
            sums.live_ledgers += len(sizes)
            if len(sizes):
                largest = sizes.max()
                ledger_id = rows.ledger_ids[live][sizes == largest].max()
                sums.largest = max(sums.largest, (int(largest), int(ledger_id)))

    def end_ledger(self) -> None:
        if self._sizes:
            lives = not self._unlisted.is_freed(self._ledger_id)
            for file_id, size_bytes in self._sizes.items():
                self.by_file[file_id].add(self._ledger_id, size_bytes, lives=lives)
            self._sizes.clear()


class IndexPass:
    """A pass over the location index. FILE_BYTES: file id → the size of a catalogued file."""

    def __init__(self, txn: Txn, file_bytes: Mapping[int, int]) -> None:
        self._txn = txn
        self.usual = 0
        """The ledgers that were passed by: their only block is right, and their time row is."""
        self._blocks = UsualBlocks(txn, file_bytes) if txn.count("entries") >= MANY_ROWS else None
        self._sums: SumsOfFiles | None = None

    def iter_blocks(self) -> Iterator[tuple[bytes, Block | IndexCorrupt]]:
        """Yield the key and the block of each row that is not passed by, or why it cannot be read, in the order of ledgers.

        A snapshot keeps what the blocks have in each file, where all could be read.
        """
        txn, altered = self._txn, list[bytes]()
        with suppress(StoreError):  # who asks for the sums is told
            self._sums = SumsOfFiles(txn)
        with txn.noting_altered(altered):
            for key, row in self._iter_rows():
                try:
                    block = Block(key, row)
                except IndexCorrupt as error:
                    self._sums = None
                    yield key, error
                    continue
                self._sum(SumsOfFiles.add, block)
                yield key, block
        if txn.is_snapshot and not altered:
            self._sum(SumsOfFiles.end_ledger)
            if self._sums is not None:
                txn.memo[FileSums] = self._sums.by_file

    def _sum(self, add: Callable[..., None], *rows: Block | UsualRows) -> None:
        if self._sums is not None:
            try:
                add(self._sums, *rows)
            except StoreError:
                self._sums = None

    def _iter_rows(self) -> Iterator[tuple[bytes, bytes]]:
        rows = self._txn.items("entries")
        if self._blocks is None:
            yield from rows
            return
        before, some = b"", list(islice(rows, _CHUNK_ROWS))
        while some:
            rest = list(islice(rows, _CHUNK_ROWS))
            found = self._blocks.find(some, before, rest[0][0] if rest else b"")
            if found is not None:
                self.usual += len(found.places)
                self._sum(SumsOfFiles.add_usual, found)
            passed = set(() if found is None else found.places.tolist())
            yield from (row for place, row in enumerate(some) if place not in passed)
            before, some = some[-1][0], rest


def sum_files(txn: Txn, advance: Callable[[int], None] = lambda count: None) -> Mapping[int, FileSums]:
    """Return what the location index has in each file, by the file's id; raises IndexCorrupt. ADVANCE gets the ledgers counted."""
    kept: dict[int, FileSums] | None = txn.memo.get(FileSums)
    if kept is not None:
        return kept
    sums, last, altered = SumsOfFiles(txn), None, list[bytes]()
    with txn.noting_altered(altered):
        for key, row in txn.items("entries"):
            block = Block(key, row)
            sums.add(block)
            advance(block.ledger_id != last)
            last = block.ledger_id
    sums.end_ledger()
    if txn.is_snapshot and not altered:
        txn.memo[FileSums] = sums.by_file
    return sums.by_file


class Share(Struct):
    """What the location index has of one ledger in one file; ``bytes``: of its records, with their size fields."""

    entries: int = 0
    bytes: int = 0


def read_shares(txn: Txn) -> dict[int, dict[int, Share]]:
    """Return file id → ledger id → what the location index has of it there; raises IndexCorrupt."""
    shares: dict[int, dict[int, Share]] = {}
    for key, row in txn.items("entries"):
        block = Block(key, row)
        for file_id, records, size_bytes in block.iter_parts():
            share = shares.setdefault(file_id, {}).setdefault(block.ledger_id, Share())
            share.entries += records
            share.bytes += size_bytes
    return shares


def read_file_sizes(
    store: Store, txn: Txn, shares: Mapping[int, Mapping[int, Share]]
) -> Iterator[tuple[LogFile, Mapping[int, int]]]:
    """Yield every file with the record bytes of each ledger in it, all copies; SHARES: those of ``read_shares``."""
    for log in iter_logs(txn):
        known = shares.get(log.file_id, {})
        own = read_own_sizes(store, log, sum(share.entries for share in known.values()))
        yield log, own if own is not None else {ledger_id: share.bytes for ledger_id, share in known.items()}


def read_own_sizes(store: Store, log: LogFile, records: int) -> dict[int, int] | None:
    """Return the record bytes of each ledger in an entry log of which the location index has RECORDS, and not all.

    The index knows one place of an entry: a log of a bookie that holds more copies is told by its own ledgers map, or read where it has
    none. None of a log that the index has whole, or that is gone, and of journals.
    """
    path = log.locate(store.path)
    if log.kind != FileKind.ENTRY_LOG or records == log.records or not path.exists():
        return None
    return read_ledger_sizes(path)
