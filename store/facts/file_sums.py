"""The bytes of each ledger in each file, by the location index and the file's ledgers map; which ledgers are live; and totals.

One pass over all blocks of the index serves all callers, in bounded memory. Nearly all of the millions of blocks in a store are usual:
the only one of their ledger, in one file, with one message per entry, consistent with themselves and the ledger's time row. numpy
recognizes many of them at once, at a tenth of the cost of ``Block``, in agreement with ``store.rules.index``; doubtful blocks are
not usual.

A bookie deletes an entry log when no ledger in it has metadata any more (upstream ``GarbageCollectorThread``, BookKeeper 4.17).
``store.reports.usage`` has every file and every topic; the totals are sums, however many ledgers there are.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from shutil import disk_usage
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct, field

from pulsar_admin.store.codec.entry import ENTRY_HEADER_BYTES
from pulsar_admin.store.codec.entrylog import HEADER_BYTES, SIZE_BYTES
from pulsar_admin.store.db import blocks
from pulsar_admin.store.db.copies import has_copies, iter_all_copies
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import FileMode, LogFile, iter_logs
from pulsar_admin.store.errors import IndexCorrupt, StoreError
from pulsar_admin.store.facts.unlisted import UnlistedLedgers
from pulsar_admin.store.model.ledgers import iter_blocks, sorted_ledger_ids
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan.ledgers_map import read_ledger_sizes
from pulsar_admin.store.wording import Answer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]


# -- usual blocks -----------------------------------------------------------------------------------------------------


Row = tuple[bytes, bytes]
_KEY_BYTES = 16
_LEDGER_BYTES = 8
_HEAD = blocks.BLOCK_HEADER.size
_BLOCKS_MAX = 1 << 40
_HEADER: list[tuple[str, str]] = [
    *(("entries", "<u2"), ("flags", "<u2"), ("file_id", "<u4"), ("messages", "<i8"), ("payload_bytes", "<i8")),
    *(("publish_min", "<i8"), ("publish_max", "<i8"), ("broker_min", "<i8"), ("broker_max", "<i8")),
    *(("auto_min", "<i8"), ("auto_max", "<i8"), ("broker_count", "<u2"), ("digest_bytes", "<u2")),
    *(("unframed", "<u2"), ("first_slot", "<u2")),
]
"""``store.db.blocks.BlockHeader``."""
_TIME_WORDS = (blocks.TIMES_BYTES + 4 * 8) // 8
_PLAIN, _STAMPED = (struct.pack("<HHI", blocks.TIMES_VERSION, flags, 1) for flags in (0, blocks.HAS_AUTO))
"""How the time row of one block begins, without and with the automatic clock."""


class _UsualRows(NamedTuple):
    """Usual blocks: their places among the rows, ledgers, files, entries, and bytes with the size fields."""

    places: Numbers
    ledger_ids: Numbers
    file_ids: Numbers
    entries: Numbers
    size_bytes: Numbers


class _UsualBlocks:
    """Finds the usual blocks of a snapshot, whose rows must come in the order of their keys. ``file_bytes``: file id → its size."""

    def __init__(self, txn: Txn, file_bytes: Mapping[int, int]) -> None:
        self._file_bytes = file_bytes
        self._times = _OneBlockTimes(txn)

    def find(self, rows: Sequence[Row], before: bytes, after: bytes) -> _UsualRows | None:
        """Return the usual rows and their sums; None if no row can be usual. ``before``, ``after``: the keys of the rows around them."""
        import numpy as np

        if any(len(key) != _KEY_BYTES for key, _ in rows):
            return None
        keys = np.frombuffer(b"".join([key for key, _ in rows]), ">i8").astype(np.int64).reshape(-1, 2)
        ledger_ids, numbers = keys[:, 0], keys[:, 1]
        heads = np.frombuffer(
            b"".join([row[:_HEAD] if len(row) >= _HEAD else bytes(_HEAD) for _, row in rows]), _HEADER
        )
        sizes = np.fromiter([len(row) for _, row in rows], np.int64, len(rows))
        entries, first_slots = heads["entries"].astype(np.int64), heads["first_slot"].astype(np.int64)
        other = np.ones(len(rows) + 1, bool)  # whether a row and the one before it are of two ledgers
        other[1:-1] = ledger_ids[1:] != ledger_ids[:-1]
        other[0] = rows[0][0][:_LEDGER_BYTES] != before[:_LEDGER_BYTES]
        other[-1] = rows[-1][0][:_LEDGER_BYTES] != after[:_LEDGER_BYTES]
        is_usual = other[1:] & other[:-1] & (ledger_ids >= 0) & (numbers >= 0) & (numbers < _BLOCKS_MAX)
        is_usual &= (heads["flags"] == 0) & (entries > 0) & (first_slots + entries <= blocks.BLOCK_ENTRIES)
        is_usual &= (sizes == _HEAD + 8 * entries) & (heads["messages"] == entries)
        at = np.flatnonzero(is_usual)
        times = self._times.up_to(rows[-1][0])
        if not len(at) or times is None:
            return None
        columns = b"".join([rows[index][1][_HEAD:] for index in at.tolist()])
        right, size_bytes = self._are_right(heads[at], entries[at], columns)
        right &= _are_of_times(heads[at], ledger_ids[at], numbers[at], times)
        at, size_bytes = at[right], size_bytes[right]
        return _UsualRows(at, ledger_ids[at], heads["file_id"][at].astype(np.int64), entries[at], size_bytes)

    def _are_right(
        self, heads: npt.NDArray[Any], entries: Numbers, columns: bytes
    ) -> tuple[npt.NDArray[np.bool_], Numbers]:
        """Return which blocks are consistent in themselves, and their bytes with the size fields.

        ``columns``: the offsets and the size fields of the blocks, one after the other.
        """
        import numpy as np

        numbers = np.frombuffer(columns, "<u4").astype(np.int64)
        edges = np.zeros((len(heads), 2), np.int64)  # where the offsets and the size fields of each begin
        edges[1:, 0] = np.cumsum(2 * entries)[:-1]
        edges[:, 1] = edges[:, 0] + entries
        bounds = edges.reshape(-1)
        total, least = np.add.reduceat(numbers, bounds)[1::2], np.minimum.reduceat(numbers, bounds)[1::2]
        farthest = np.maximum.reduceat(numbers, bounds).reshape(-1, 2).sum(axis=1)
        head_bytes = 32 + heads["digest_bytes"].astype(np.int64)
        file_ids, places = np.unique(heads["file_id"], return_inverse=True)
        ends = np.array([self._file_bytes.get(file_id, -1) for file_id in file_ids.tolist()], np.int64)[places]
        right: npt.NDArray[np.bool_] = (least >= head_bytes) & (farthest + 4 <= ends)
        return right & (total - head_bytes * entries == heads["payload_bytes"]), total + 4 * entries


class _OneBlockTimes:
    """The time rows of one block, by ledger, as words: the row without the automatic clock has that of publishing in its place."""

    def __init__(self, txn: Txn) -> None:
        self._rows = txn.items("times")
        self._next: Row | None = next(self._rows, None)

    def up_to(self, key: bytes) -> tuple[Numbers, Numbers] | None:
        """Return the ids and time rows of the ledgers up to the one that ``key`` begins with, from where the last call stopped."""
        import numpy as np

        last, plain = key[:_LEDGER_BYTES], blocks.TIMES_BYTES + 16
        ids, words = list[bytes](), list[bytes]()
        while self._next is not None and self._next[0] <= last:
            ledger, row = self._next
            if len(ledger) == _LEDGER_BYTES and len(row) == plain and row.startswith(_PLAIN):
                ids.append(ledger)
                words.append(row + row[blocks.TIMES_BYTES :])
            elif len(ledger) == _LEDGER_BYTES and len(row) == plain + 16 and row.startswith(_STAMPED):
                ids.append(ledger)
                words.append(row)
            self._next = next(self._rows, None)
        if not ids:
            return None
        ledger_ids = np.frombuffer(b"".join(ids), ">i8").astype(np.int64)
        return ledger_ids, np.frombuffer(b"".join(words), "<i8").reshape(-1, _TIME_WORDS)


def _are_of_times(
    heads: npt.NDArray[Any], ledger_ids: Numbers, numbers: Numbers, times: tuple[Numbers, Numbers]
) -> npt.NDArray[np.bool_]:
    """Return a mask of the blocks that agree with their ledger's time row."""
    import numpy as np

    known, rows = times
    places = np.minimum(np.searchsorted(known, ledger_ids), len(known) - 1)
    words = rows[places]
    entries, first = heads["entries"], (numbers << blocks.BLOCK_BITS) + heads["first_slot"]
    stamped = heads["broker_count"] > 0
    expected = [
        *(numbers, entries, first, first + entries - 1, entries, heads["payload_bytes"]),
        *(heads["publish_min"], heads["publish_max"], heads["broker_min"], heads["broker_max"]),
        *(heads["broker_count"], heads["unframed"]),
        words[:, 13],  # the LAC, which no block has
        *(heads["publish_max"], heads["publish_min"]),
        np.where(stamped, heads["auto_max"], heads["publish_max"]),
        np.where(stamped, heads["auto_min"], heads["publish_min"]),
    ]
    same: npt.NDArray[np.bool_] = known[places] == ledger_ids
    for place, column in enumerate(expected, 1):
        same &= words[:, place] == column
    return same


# -- the sums of each file --------------------------------------------------------------------------------------------


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


class _SumsOfFiles:
    """Adds up what blocks, in the order of their ledgers, have in each file. Raises what cannot be read of their ledgers."""

    def __init__(self, txn: Txn) -> None:
        self.by_file: dict[int, FileSums] = {}
        self._txn = txn
        self._unlisted = UnlistedLedgers(txn)
        self._ledger_id = -1
        self._sizes: dict[int, int] = {}

    def add(self, block: blocks.Block) -> None:
        if block.ledger_id != self._ledger_id:
            self.end_ledger()
            self._ledger_id = block.ledger_id
        for file_id, records, size_bytes in block.iter_parts():
            if file_id not in self.by_file:
                self.by_file[file_id] = FileSums()
            self.by_file[file_id].records += records
            self._sizes[file_id] = self._sizes.get(file_id, 0) + size_bytes

    def add_usual(self, rows: _UsualRows) -> None:
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
    """A pass over the location index. ``file_bytes``: file id → the size of a catalogued file."""

    def __init__(self, txn: Txn, file_bytes: Mapping[int, int]) -> None:
        self._txn = txn
        self.usual = 0
        """The ledgers that were passed by: their only block is right, and their time row is."""
        self._blocks = _UsualBlocks(txn, file_bytes) if txn.count("entries") >= MANY_ROWS else None
        self._sums: _SumsOfFiles | None = None

    def iter_blocks(self) -> Iterator[tuple[bytes, blocks.Block | IndexCorrupt]]:
        """Yield the key and the block of each row that is not skipped, or the reason why it cannot be read, in the order of ledgers.

        If all rows could be read, a snapshot keeps the blocks' bytes per file.
        """
        txn, altered = self._txn, list[bytes]()
        with suppress(StoreError):  # who asks for the sums is told
            self._sums = _SumsOfFiles(txn)
        with txn.noting_altered(altered):
            for key, row in self._iter_rows():
                try:
                    block = blocks.Block(key, row)
                except IndexCorrupt as error:
                    self._sums = None
                    yield key, error
                    continue
                self._sum(_SumsOfFiles.add, block)
                yield key, block
        if txn.is_snapshot and not altered:
            self._sum(_SumsOfFiles.end_ledger)
            if self._sums is not None:
                txn.memo[FileSums] = self._sums.by_file

    def _sum(self, add: Callable[..., None], *rows: blocks.Block | _UsualRows) -> None:
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
            usual = self._blocks.find(some, before, rest[0][0] if rest else b"")
            if usual is not None:
                self.usual += len(usual.places)
                self._sum(_SumsOfFiles.add_usual, usual)
            passed = set(() if usual is None else usual.places.tolist())
            yield from (row for place, row in enumerate(some) if place not in passed)
            before, some = some[-1][0], rest


def _sum_files(txn: Txn, advance: Callable[[int], None]) -> Mapping[int, FileSums]:
    """Return what the location index has in each file, by the file's id; raises IndexCorrupt. ``advance`` gets the ledgers counted."""
    kept: dict[int, FileSums] | None = txn.memo.get(FileSums)
    if kept is not None:
        return kept
    sums, last, altered = _SumsOfFiles(txn), None, list[bytes]()
    with txn.noting_altered(altered):
        for key, row in txn.items("entries"):
            block = blocks.Block(key, row)
            sums.add(block)
            advance(block.ledger_id != last)
            last = block.ledger_id
    sums.end_ledger()
    if txn.is_snapshot and not altered:
        txn.memo[FileSums] = sums.by_file
    return sums.by_file


class LedgerShare(Struct):
    """What the location index has of one ledger in one file; ``bytes``: of its records, with their size fields."""

    entries: int = 0
    bytes: int = 0


def read_shares(txn: Txn) -> dict[int, dict[int, LedgerShare]]:
    """Return file id → ledger id → entries and bytes of the ledger in that file, by the location index; raises IndexCorrupt."""
    shares: dict[int, dict[int, LedgerShare]] = {}
    for key, row in txn.items("entries"):
        block = blocks.Block(key, row)
        for file_id, records, size_bytes in block.iter_parts():
            share = shares.setdefault(file_id, {}).setdefault(block.ledger_id, LedgerShare())
            share.entries += records
            share.bytes += size_bytes
    return shares


def indexed_sizes(txn: Txn) -> Callable[[int], dict[int, int]]:
    """Return the function file id → ledger id → record bytes of the ledger in that file, all copies, by the sound rows of the index."""
    import numpy as np

    found = array("q")  # file, ledger, bytes
    if has_copies(txn):
        last, ids, sizes = -1, np.zeros(0, np.int64), np.zeros(0, np.int64)
        for ledger_id, file_id, entries in iter_all_copies(txn):
            if ledger_id != last:
                last, (ids, sizes) = ledger_id, _entry_sizes(txn, ledger_id)
            mine = sizes
            if len(entries) != len(ids):
                mine = sizes[np.isin(ids, np.array(entries.to_array(), np.int64), assume_unique=True)]
            found.extend((file_id, ledger_id, int(mine.sum())))
    else:
        whole = (row for row in txn.items("entries") if len(row[0]) == _KEY_BYTES and len(row[1]) >= _HEAD)
        while some := list(islice(whole, _CHUNK_ROWS)):
            heads = np.frombuffer(b"".join([row[:_HEAD] for _, row in some]), _HEADER)
            ledger_ids = np.frombuffer(b"".join([key[:_LEDGER_BYTES] for key, _ in some]), ">i8")
            head_bytes = (SIZE_BYTES + ENTRY_HEADER_BYTES + heads["digest_bytes"].astype(np.int64)) * heads["entries"]
            columns = np.array([heads["file_id"], ledger_ids, heads["payload_bytes"] + head_bytes], np.int64)
            are_split = heads["flags"] & blocks.FILES > 0
            found.frombytes(columns.T[~are_split].tobytes())
            for at in np.flatnonzero(are_split).tolist():
                with suppress(IndexCorrupt):
                    for file_id, _, size_bytes in blocks.Block(*some[at]).iter_parts():
                        found.extend((file_id, int(ledger_ids[at]), size_bytes))
    rows = np.frombuffer(found, np.int64).reshape(-1, 3)
    rows = rows[np.argsort(rows[:, 0], kind="stable")]

    def of_file(file_id: int) -> dict[int, int]:
        start, end = np.searchsorted(rows[:, 0], (file_id, file_id + 1))
        sizes: dict[int, int] = {}
        for ledger_id, size_bytes in rows[start:end, 1:].tolist():
            sizes[ledger_id] = sizes.get(ledger_id, 0) + size_bytes
        return sizes

    return of_file


def _entry_sizes(txn: Txn, ledger_id: int) -> tuple[Numbers, Numbers]:
    """Return the ids of a ledger's entries, ascending, and the bytes of their records with the size fields."""
    import numpy as np

    ids, sizes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    with suppress(IndexCorrupt):
        for block in iter_blocks(txn, ledger_id):
            ids.append(np.array(block.slots(), np.int64) + (block.entry_id(0) - block.slots()[0]))
            sizes.append(np.array(block.sizes(), np.int64) + SIZE_BYTES)
    return np.concatenate(ids), np.concatenate(sizes)


def read_file_sizes(
    txn: Txn, shares: Mapping[int, Mapping[int, LedgerShare]]
) -> Iterator[tuple[LogFile, Mapping[int, int]]]:
    """Yield every file with the record bytes of each ledger in it, all copies; ``shares``: those of ``read_shares``."""
    for log in iter_logs(txn):
        known = shares.get(log.file_id, {})
        own = _read_own_sizes(txn, log, sum(share.entries for share in known.values()))
        yield log, own if own is not None else {ledger_id: share.bytes for ledger_id, share in known.items()}


def _read_own_sizes(txn: Txn, log: LogFile, records: int) -> dict[int, int] | None:
    """Return the record bytes of each ledger in an entry log of which the location index has only some ``records``.

    The index knows one place per entry: if a log has further copies, its own ledgers map gives the bytes; a log without a map is read.
    None for a journal, a missing log, or one that the index covers completely.
    """
    path = log.locate(txn.store.path)
    if log.kind != FileKind.ENTRY_LOG or records == log.records or not path.exists():
        return None
    return read_ledger_sizes(path)


# -- what the disks hold in all ---------------------------------------------------------------------------------------


class StuckLog(Answer, frozen=True):
    """An entry log that holds dead bytes and cannot be deleted as a whole; ``kept_for``: the owner of its largest live ledger."""

    path: str
    size_bytes: int
    dead_bytes: int = field(name="deadBytes")
    live_bytes: int = field(name="liveBytes")
    live_ledgers: int
    kept_for: str


class DiskTotals(Answer, frozen=True):
    """The entry logs of the copy: live record bytes, and those of ledgers that bookies free, counting every bookie's copy.

    ``freed_bytes``: logs without live data, which garbage collection deletes; ``stuck``: the logs with the most dead bytes beside live
    ones, which only compaction frees (``stuck_logs`` and ``stuck_bytes`` count all of them); ``missing_files``: catalogued files that
    are missing, so that only the index knows them.
    """

    files: int = 0
    size_bytes: int = 0
    live_bytes: int = field(default=0, name="liveBytes")
    dead_bytes: int = field(default=0, name="deadBytes")
    freed_logs: int = 0
    freed_bytes: int = field(default=0, name="freedBytes")
    stuck_logs: int = 0
    stuck_bytes: int = field(default=0, name="stuckBytes")
    missing_files: int = 0
    stuck: tuple[StuckLog, ...] = ()

    @property
    def other_bytes(self) -> int:
        """The bytes of the logs that are no records: headers, ledgers maps, damage, unwritten space."""
        return self.size_bytes - self.live_bytes - self.dead_bytes


def read_disk_totals(txn: Txn, top: int, advance: Callable[[int], None] = lambda count: None) -> DiskTotals:
    """Return the sums of the location index over all entry logs, and the ``top`` logs that keep the most dead bytes; raises IndexCorrupt.

    Logs with further copies are counted as in ``_read_own_sizes``. ``advance`` gets the number of ledgers counted.
    """
    files = [*iter_logs(txn)]
    sums, unlisted = _sum_files(txn, advance), UnlistedLedgers(txn)
    logs = [
        (log, _whole(txn, log, sums.get(log.file_id, FileSums()), unlisted))
        for log in files
        if log.kind == FileKind.ENTRY_LOG
    ]
    freed = [log for log, one in logs if not one.live_bytes and one.dead_bytes and log.size_bytes > HEADER_BYTES]
    stuck = sorted(
        ((log, one) for log, one in logs if one.live_bytes and one.dead_bytes), key=lambda pair: -pair[1].dead_bytes
    )
    largest = []
    for log, one in stuck[:top]:
        ledger_id = one.largest[1]
        owners = unlisted.owners(ledger_id)
        kept_for = owners[0].topic if owners else f"ledger {ledger_id}, which nothing references"
        largest.append(StuckLog(log.path, log.size_bytes, one.dead_bytes, one.live_bytes, one.live_ledgers, kept_for))
    return DiskTotals(
        files=len(logs),
        size_bytes=sum(log.size_bytes for log, _ in logs),
        live_bytes=sum(one.live_bytes for _, one in logs),
        dead_bytes=sum(one.dead_bytes for _, one in logs),
        freed_logs=len(freed),
        freed_bytes=sum(log.size_bytes for log in freed),
        stuck_logs=len(stuck),
        stuck_bytes=sum(one.dead_bytes for _, one in stuck),
        missing_files=sum(not log.locate(txn.store.path).exists() for log in files),
        stuck=tuple(largest),
    )


def _whole(txn: Txn, log: LogFile, sums: FileSums, unlisted: UnlistedLedgers) -> FileSums:
    """Return the sums of a log with all copies in it, of which the index knows ``sums``."""
    own = _read_own_sizes(txn, log, sums.records)
    if own is None:
        return sums
    whole = FileSums()
    for ledger_id, size_bytes in own.items():
        whole.add(ledger_id, size_bytes, lives=not unlisted.is_freed(ledger_id))
    return whole


# -- the disks that files were imported from --------------------------------------------------------------------------


class DiskUsage(NamedTuple):
    """The bytes of a disk."""

    total: int
    used: int
    free: int


def read_disk_usage(txn: Txn) -> tuple[tuple[Path, DiskUsage], ...]:
    """Return each disk by the first folder on it with catalogued files; folders that do not exist any more are skipped."""
    usage: dict[int, tuple[Path, DiskUsage]] = {}
    for folder in sorted(
        {log.locate(txn.store.path).parent for log in iter_logs(txn) if log.mode is FileMode.REFERENCED}
    ):
        with suppress(OSError):
            usage.setdefault(folder.stat().st_dev, (folder, DiskUsage(*disk_usage(folder))))
    return tuple(usage.values())


def journal_only(txn: Txn) -> tuple[tuple[LogFile, int, int], ...]:
    """Return the journals that have entries which no entry log has, with how many, and their bytes; raises IndexCorrupt."""
    journals = {log.file_id: log for log in iter_logs(txn) if log.kind == FileKind.JOURNAL}
    kept: Mapping[int, FileSums] | None = txn.memo.get(FileSums)
    if kept is not None:
        sums = ((log, kept.get(file_id, FileSums())) for file_id, log in journals.items())
        return tuple((log, one.records, one.live_bytes + one.dead_bytes) for log, one in sums if one.records)
    counts = {file_id: [0, 0] for file_id in journals}
    for key, row in txn.items("entries") if journals else ():
        try:
            parts = list(blocks.Block(key, row).iter_parts())
        except IndexCorrupt:
            continue  # the rules of the index tell
        for file_id, records, size_bytes in parts:
            if file_id in counts:
                counts[file_id][0] += records
                counts[file_id][1] += size_bytes
    return tuple(
        (journals[file_id], entries, size_bytes) for file_id, (entries, size_bytes) in counts.items() if entries
    )
