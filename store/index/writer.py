"""Writing the location and time index: runs of scanned records → rows. Layout: ``store.db.blocks``.

Imports numpy; only import, refresh and bulk commands load it.

Copies of an entry in files of several bookies are compared without reading their payloads again: replicas are equal byte for byte, but
for the last-add-confirmed that a recovery writes anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING

import numpy as np

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.entry import RECORD_MAX_BYTES
from pulsar_admin.store.db.blocks import (
    BLOCK_BITS,
    BLOCK_ENTRIES,
    BLOCK_HEADER,
    FILES,
    MESSAGES,
    NO_MAX,
    NO_MIN,
    SLOTS,
    Block,
    BlockHeader,
    LedgerSums,
    block_key,
    block_of_key,
    decode_sums,
    encode_times,
    ledger_key,
)
from pulsar_admin.store.db.copies import add_copies, has_copies
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import DIFFERS, Damage, LogFile, iter_logs
from pulsar_admin.store.errors import SourceChanged
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan.runs import HAS_BROKER, IS_UNFRAMED, Records, Run, Runs, pack_runs
from pulsar_admin.store.urls import Opened, close_bytes, open_bytes, read_at

if TYPE_CHECKING:
    from pulsar_admin.store.index.held_entries import HeldEntries


_LENGTH_AT = 4 + 24  # of the length field in a record with its size; the digest follows
_MARK_BYTES = 16
_SPAN_BYTES = 4 << 20  # read at once for the marks of many records,
_SPARSE_BYTES = 16 << 10  # unless they lie further apart than this


class Copies:
    """Compares records of catalogued files. ``logs``: by file id; ``root``: the directory that their paths are relative to."""

    def __init__(self, root: Path, logs: Mapping[int, LogFile]) -> None:
        self._root = root
        self._logs = logs
        self._bookies = {file_id: log.disk for file_id, log in logs.items()}
        self._open: dict[int, Opened] = {}
        self._doubt = np.zeros(max(logs, default=0) + 1, np.int8)
        self._doubt[[file_id for file_id, log in logs.items() if log.stranger]] = 1
        self.several = len(set(self._bookies.values())) > 1

    def doubt(self, files: Array | int) -> Array:
        """Return 1 for each file (id) whose bookie is not proven to belong to the cluster, else 0."""
        doubt: Array = self._doubt[files]
        return doubt

    def path(self, file_id: int) -> str:
        """Return the path of a file for messages."""
        return str(self._logs[file_id].locate(self._root))

    def differ(
        self, files: Array, old: tuple[Array, Array], file_id: int, new: tuple[Array, Array], digest_bytes: int
    ) -> Array:
        """Return a mask of the entries whose old record (``offsets``, ``sizes`` in ``files``) differs from the new one in ``file_id``.

        Records on one bookie are taken to be equal.
        """
        (offsets, sizes), (new_offsets, new_sizes) = old, new
        differs = np.zeros(len(files), bool)
        for other in np.unique(files).tolist():
            if self._bookies[other] == self._bookies[file_id]:
                continue
            where = np.flatnonzero(files == other)
            marks = self._marks(other, offsets[where]), self._marks(file_id, new_offsets[where])
            doubtful = where[(sizes[where] != new_sizes[where]) | (marks[0] != marks[1]).any(axis=1)]
            for index in doubtful.tolist():
                payloads = (
                    self._content(other, int(offsets[index]), int(sizes[index]), digest_bytes),
                    self._content(file_id, int(new_offsets[index]), int(new_sizes[index]), digest_bytes),
                )
                differs[index] = payloads[0] != payloads[1]
        return differs

    def _marks(self, file_id: int, offsets: Array) -> Array:
        """Return 16 bytes, the length and digest fields, of the records at these offsets, as u8 (n, 16)."""
        marks = np.zeros((len(offsets), _MARK_BYTES), np.uint8)
        starts = offsets.astype(np.int64) + _LENGTH_AT
        first = 0
        while first < len(starts):
            # Records of a ledger lie close together in a log: one read for many.
            ascend = bool((starts[first + 1 :] > starts[first:-1]).all())
            last = int(np.searchsorted(starts, starts[first] + _SPAN_BYTES)) if ascend else first + 1
            if int(starts[last - 1] - starts[first]) > _SPARSE_BYTES * (last - first):
                last = first + 1
            base = int(starts[first])
            raw = self._read(file_id, base, int(starts[last - 1]) - base + _MARK_BYTES)
            if len(raw) == int(starts[last - 1]) - base + _MARK_BYTES:
                data = np.frombuffer(raw, np.uint8)
                marks[first:last] = data[(starts[first:last] - base)[:, None] + np.arange(_MARK_BYTES)]
            first = last
        return marks

    def _content(self, file_id: int, offset: int, size: int, digest_bytes: int) -> bytes:
        """Return the fields of a record that replicas share: ledger, entry, length, payload."""
        body = self._read(file_id, offset + 4, min(size, RECORD_MAX_BYTES))
        return body[:16] + body[24:32] + body[32 + digest_bytes :]

    def _read(self, file_id: int, offset: int, length: int) -> bytes:
        path = self._logs[file_id].locate(self._root)
        try:
            if file_id not in self._open:
                self._open[file_id] = open_bytes(path)
            return read_at(self._open[file_id], length, offset)
        except OSError as error:
            raise SourceChanged(f"{path} cannot be read any more: {error.strerror}", path=str(path)) from error

    def close(self) -> None:
        """Close the files that were read."""
        for opened in self._open.values():
            close_bytes(opened)
        self._open.clear()


_ONE = Struct("<q")


class Indexer:
    """Indexes records in a transaction: call ``add`` or ``merge`` for every batch of any catalogued file, then ``finish``.

    If an entry has several records, the same one wins whatever the order of scans: an entry log's before a journal's;
    of the newest log, of the oldest journal; the last in a log, the first in a journal. Records with a bad digest are
    ignored. Two records of an entry have the same payload, so the sums of the first one stay.

    With ``copies`` those of different bookies are compared. Where they differ, the record of a bookie that is proven
    to belong to the cluster wins whatever its file, and ``differing`` names the other.
    """

    def __init__(self, txn: Txn, journals: Collection[int] = (), copies: Copies | None = None) -> None:
        """``journals``: ids of files that are journals and not in the catalogue yet."""
        self.differing: list[Damage] = []
        self._copies = copies if copies is not None and copies.several else None
        self._txn = txn
        self._journals = frozenset(journals) | {log.file_id for log in iter_logs(txn) if log.kind == FileKind.JOURNAL}
        self._seen: dict[int, tuple[int, int]] = {}
        """Of each ledger that got records the largest LAC, and the only block that got any, −1 where several did."""
        self._held: HeldEntries | None = None
        if has_copies(txn):
            # Brings pyroaring: a store of one bookie does without.
            from pulsar_admin.store.index.held_entries import HeldEntries

            self._held = HeldEntries()

    def add(self, records: Records, file_id: int) -> None:
        """Index one batch of a file."""
        self.merge(pack_runs(records, keep_first=file_id in self._journals), file_id)

    def merge(self, runs: Runs, file_id: int) -> None:
        """Index the runs of one batch of a file."""
        for run, starts in zip(runs.rows, runs.starts(), strict=True):
            lac, block = self._seen.get(run.ledger_id, (-1, run.block))
            self._seen[run.ledger_id] = max(run.max_lac, lac), block if block == run.block else -1
            key = block_key(run.ledger_id, run.block)
            part = _Part(runs, run, starts, file_id)
            if self._held is not None:
                part.hold(self._held)
            before = self._txn.get("entries", key)
            value = part.pack() if before is None else self._merge(key, before, part)
            if value is not None:
                self._txn.put("entries", key, value)

    def finish(self) -> None:
        """Write the time rows of ledgers with new records and, for several bookies, the entries of each file."""
        self._txn.put_all("times", _iter_times(self._txn, self._seen))
        if self._held is not None:
            add_copies(self._txn, self._held)

    def _merge(self, key: bytes, value: bytes, part: _Part) -> bytes | None:
        """Return an existing block, given as its row, merged with new records; None if none of them changes it."""
        grown = _append(value, part)
        if grown is not None:
            return grown
        block = Block(key, value)
        # Entry logs have everything of a journal's part: nearly every record of a journal is like that.
        header, new_run = block.header, part.run
        is_whole = (
            not header.flags & (SLOTS | FILES)
            and header.first_slot <= new_run.first_slot
            and new_run.last_slot <= block.last_slot
        )
        if is_whole and part.file_id in self._journals and header.file_id not in self._journals:
            return None
        there = np.zeros(BLOCK_ENTRIES, bool)
        offsets = np.zeros(BLOCK_ENTRIES, "<u4")
        sizes, messages, files = offsets.copy(), offsets.copy(), offsets.copy()
        slots = np.asarray(block.slots(), "<u2")
        there[slots] = True
        files[slots], offsets[slots], sizes[slots] = block.files(), block.offsets(), block.sizes()
        messages[slots] = block.message_counts()
        new_slots = part.slots()
        fresh = ~there[new_slots]
        wins = fresh | _wins(part.file_id, files[new_slots], self._journals)
        if self._copies is not None and not fresh.all():
            self._compare(
                self._copies, block, part, (files[new_slots], offsets[new_slots], sizes[new_slots]), fresh, wins
            )
        if not wins.any():
            return None
        if fresh.any() or self._copies is not None:
            kinds = part.kinds()[fresh]
            broker_count, unframed = np.count_nonzero(kinds & HAS_BROKER), np.count_nonzero(kinds & IS_UNFRAMED)
            header = _joined(
                header, part.run, (0, 0, 0, int(broker_count), int(unframed))
            )  # the rest is counted at the end
        new_slots = new_slots[wins]
        there[new_slots] = True
        offsets[new_slots], sizes[new_slots] = part.offsets[wins], part.sizes[wins]
        messages[new_slots], files[new_slots] = part.counts()[wins], part.file_id
        slots = np.flatnonzero(there)
        return pack_columns(header, slots, offsets[slots], sizes[slots], messages[slots], files[slots])

    def _compare(
        self, copies: Copies, block: Block, part: _Part, old: tuple[Array, Array, Array], fresh: Array, wins: Array
    ) -> None:
        """Compare new records with the old ones of the same entries (file ids, offsets, sizes), except fresh ones;
        update ``wins`` and note the losers."""
        both = np.flatnonzero(~fresh)
        files, offsets, sizes = (column[both] for column in old)
        new = (part.offsets[both], part.sizes[both])
        doubt = copies.doubt(files) - copies.doubt(part.file_id)
        wins[both] = np.where(doubt == 0, wins[both], doubt > 0)
        differing = both[copies.differ(files, (offsets, sizes), part.file_id, new, block.header.digest_bytes)]
        first = (part.run.ledger_id, part.run.block << BLOCK_BITS)
        for index in differing.tolist():
            there, here = (int(old[0][index]), old[1], old[2]), (part.file_id, part.offsets, part.sizes)
            winner, loser = (here, there) if wins[index] else (there, here)
            self.differing.append(
                Damage(
                    loser[0],
                    int(loser[1][index]),
                    4 + int(loser[2][index]),
                    DIFFERS + copies.path(winner[0]),
                    first[0],
                    first[1] + int(part.slots()[index]),
                )
            )


class _Part:
    """One run of ``runs``: records of one location block in one file. ``starts``: where its optional columns begin."""

    __slots__ = ("_runs", "_starts", "file_id", "offsets", "run", "sizes")

    def __init__(self, runs: Runs, run: Run, starts: tuple[int, int, int], file_id: int) -> None:
        self.run = run
        self.file_id = file_id
        self.offsets = runs.offsets[run.start : run.end]
        self.sizes = runs.sizes[run.start : run.end]
        self._runs = runs
        self._starts = starts

    def counts(self) -> Array:
        """Return the messages of each record (u32)."""
        if not self.run.others:
            return np.ones(self.run.length, "<u4")
        start = self._starts[0]
        return self._runs.counts[start : start + self.run.length]

    def slots(self) -> Array:
        """Return the slot of each record (u16)."""
        if not self.run.has_holes:
            return np.arange(self.run.first_slot, self.run.last_slot + 1, dtype="<u2")
        start = self._starts[1]
        return self._runs.slots[start : start + self.run.length]

    def hold(self, held: HeldEntries) -> None:
        """Add the run's entries to ``held``."""
        run, first = self.run, self.run.block << BLOCK_BITS
        if run.has_holes:
            held.add(run.ledger_id, self.file_id, first + self.slots().astype("<i8"))
        else:
            held.add_range(run.ledger_id, self.file_id, first + run.first_slot, first + run.last_slot + 1)

    def kinds(self) -> Array:
        """Return the kind of each record: bits of ``store.scan.runs``."""
        run, start = self.run, self._starts[2]
        if 0 < run.unframed < run.length or 0 < run.broker_count < run.length:
            return self._runs.kinds[start : start + run.length]
        kind = (IS_UNFRAMED if run.unframed else 0) | (HAS_BROKER if run.broker_count else 0)
        return np.full(run.length, kind, "u1")

    def pack(self) -> bytes:
        """Return the location block of these records alone."""
        run = self.run
        flags = (SLOTS if run.has_holes else 0) | (MESSAGES if run.others else 0)
        counts = (run.digest_bytes, run.unframed, run.first_slot)
        head = BLOCK_HEADER.pack(run.length, flags, self.file_id, *run.sums, *counts)
        parts = [head, self.offsets.tobytes(), self.sizes.tobytes()]
        if flags & MESSAGES:
            parts.append(self.counts().tobytes())
        if flags & SLOTS:
            parts.append(self.slots().tobytes())
        return b"".join(parts)


def _append(value: bytes, part: _Part) -> bytes | None:
    """Return a block's value with the new records after its own; None unless appending is all that is needed.

    The end of every batch of a scan takes this path: the rest of a block that began in the batch before. Where many
    topics take turns, nearly every record does.
    """
    run = part.run
    if run.others or run.has_holes or len(value) < BLOCK_HEADER.size:
        return None
    header = BlockHeader._make(BLOCK_HEADER.unpack_from(value))
    is_plain = not header.flags and header.entries and len(value) == BLOCK_HEADER.size + 8 * header.entries
    follows = run.first_slot == header.first_slot + header.entries
    if not is_plain or header.file_id != part.file_id or not follows:
        return None
    grown = _joined(header, run, (run.length, run.messages, run.payload_bytes, run.broker_count, run.unframed))
    offsets = BLOCK_HEADER.size
    sizes = offsets + 4 * header.entries
    return b"".join((grown.pack(), value[offsets:sizes], part.offsets.tobytes(), value[sizes:], part.sizes.tobytes()))


def _joined(header: BlockHeader, run: Run, added: tuple[int, int, int, int, int]) -> BlockHeader:
    """Return a header with the time bounds of a run and added counts: entries, messages, payload bytes, entries with a
    broker time, entries without a message header."""
    entries, messages, payload_bytes, broker_count, unframed = added
    return BlockHeader(
        header.entries + entries,
        header.flags,
        header.file_id,
        header.messages + messages,
        header.payload_bytes + payload_bytes,
        min(header.publish_min_ms, run.publish_min_ms),
        max(header.publish_max_ms, run.publish_max_ms),
        min(header.broker_min_ms, run.broker_min_ms),
        max(header.broker_max_ms, run.broker_max_ms),
        min(header.auto_min_ms, run.auto_min_ms),
        max(header.auto_max_ms, run.auto_max_ms),
        header.broker_count + broker_count,
        header.digest_bytes,
        header.unframed + unframed,
        header.first_slot,
    )


def _wins(file_id: int, others: Array, journals: frozenset[int]) -> Array:
    """Whether a record of one file replaces a record in each of the other files; rule: ``Indexer``."""
    is_journal: Array = np.isin(others, np.array(sorted(journals), "<u4"))
    if file_id in journals:
        return is_journal & (others > file_id)
    return is_journal | (others <= file_id)


def _iter_times(txn: Txn, seen: dict[int, tuple[int, int]]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the time rows of the seen ledgers, computed from their location blocks."""
    for ledger_id, (lac, number) in seen.items():
        key = ledger_key(ledger_id)
        before = txn.view("times", key)
        is_alone = False
        if before is not None:
            sums = decode_sums(ledger_id, before)
            lac = max(lac, sums.max_lac)
            is_alone = sums.first_block == number == sums.last_entry >> BLOCK_BITS
        # Most ledgers have one block, and most records of many topics come one by one: no look for others then.
        only = txn.get("entries", block_key(ledger_id, number)) if is_alone else None
        rows = txn.items("entries", key) if only is None else ((block_key(ledger_id, number), only),)
        blocks = [(block_of_key(name)[1], Block(name, value)) for name, value in rows]
        if blocks:
            yield key, _times_row(blocks, lac)


def _times_row(blocks: list[tuple[int, Block]], lac: int) -> bytes:
    """Return the time row of a ledger's blocks, (number, block) in ascending order."""
    first_block, (last_block, last) = blocks[0][0], blocks[-1]
    headers = [block.header for _, block in blocks]
    # Most ledgers of a cluster have only one block.
    total = (
        headers[0]
        if len(headers) == 1
        else headers[0]._replace(
            entries=sum(h.entries for h in headers),
            messages=sum(h.messages for h in headers),
            payload_bytes=sum(h.payload_bytes for h in headers),
            publish_min_ms=min(h.publish_min_ms for h in headers),
            publish_max_ms=max(h.publish_max_ms for h in headers),
            broker_min_ms=min(h.broker_min_ms for h in headers),
            broker_max_ms=max(h.broker_max_ms for h in headers),
            broker_count=sum(h.broker_count for h in headers),
            unframed=sum(h.unframed for h in headers),
        )
    )
    sums = LedgerSums(
        first_block,
        total.entries,
        (first_block << BLOCK_BITS) + total.first_slot,
        (last_block << BLOCK_BITS) + last.last_slot,
        total.messages,
        total.payload_bytes,
        total.publish_min_ms,
        total.publish_max_ms,
        total.broker_min_ms,
        total.broker_max_ms,
        total.broker_count,
        total.unframed,
        lac,
    )
    places = [number - first_block for number, _ in blocks]
    columns = _running(places, [(h.publish_min_ms, h.publish_max_ms) for h in headers])
    if sums.broker_count:
        columns += _running(places, [(h.auto_min_ms, h.auto_max_ms) for h in headers])
    return encode_times(sums, columns)


def _running(places: list[int], bounds: list[tuple[int, int]]) -> list[bytes]:
    """Return the running maximum (through) and minimum (from here on) columns; empty blocks repeat their neighbour."""
    if len(bounds) == 1:
        ((low, high),) = bounds
        return [_ONE.pack(high), _ONE.pack(low)]
    smallest = [NO_MIN] * (places[-1] + 1)
    largest = [NO_MAX] * (places[-1] + 1)
    for place, (low, high) in zip(places, bounds, strict=True):
        smallest[place], largest[place] = low, high
    form = Struct(f"<{len(smallest)}q")
    minima = list(accumulate(reversed(smallest), min))
    return [form.pack(*accumulate(largest, max)), form.pack(*reversed(minima))]


def pack_columns(
    header: BlockHeader, slots: Array, offsets: Array, sizes: Array, messages: Array, files: Array
) -> bytes:
    """Return a block of entries in ascending slots; the header's times and digest bytes are given, its counts are computed."""
    count, first = len(slots), int(slots[0])
    flags = SLOTS if int(slots[-1]) - first != count - 1 else 0
    flags |= (0 if (messages == 1).all() else MESSAGES) | (0 if (files == files[0]).all() else FILES)
    counted = header._replace(
        entries=count,
        flags=flags,
        file_id=int(files[0]),
        messages=int(messages.sum(dtype=np.int64)),
        payload_bytes=int(np.maximum(sizes.astype(np.int64) - 32 - header.digest_bytes, 0).sum()),
        first_slot=first,
    )
    parts = [counted.pack(), offsets.astype("<u4").tobytes(), sizes.astype("<u4").tobytes()]
    if flags & MESSAGES:
        parts.append(messages.astype("<u4").tobytes())
    if flags & FILES:
        parts.append(files.astype("<u4").tobytes())
    if flags & SLOTS:
        parts.append(slots.astype("<u2").tobytes())
    return b"".join(parts)


def pack_block(run: Run, records: Array, files: Array) -> bytes:
    """Return the location block of a run of records in the order of entries, which lie in these files (by id)."""
    header = BlockHeader._make((run.length, 0, 0, *run.sums, run.digest_bytes, run.unframed, run.first_slot))
    slots = records["entry_id"] & (BLOCK_ENTRIES - 1)
    # A batch that claims a negative number of messages has none.
    messages = np.maximum(records["messages"], 0)
    return pack_columns(header, slots, records["offset"], records["size"], messages, files)
