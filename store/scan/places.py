"""Where entries lie, as columns, and the entries at such places: bytes read in large runs, headers decoded by the kernel.

Nothing in this module needs a store, so executors can use it.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator, Sequence
from itertools import starmap
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.digest import DIGEST_SIZE, DigestType
from pulsar_admin.store.codec.entry import ENTRY_HEADER_BYTES
from pulsar_admin.store.db.blocks import Block
from pulsar_admin.store.db.clocks import Clock
from pulsar_admin.store.engine.memory import give_back
from pulsar_admin.store.errors import EntryLogCorrupt, NotWritable, SourceChanged, StoreError
from pulsar_admin.store.kernels import records as kernel
from pulsar_admin.store.kernels.columns import BAD_DIGEST, CHUNK, HAS_BROKER_TIME, MARKER, RECORD, UNFRAMED
from pulsar_admin.store.kernels.producers import producer_spans
from pulsar_admin.store.kernels.records import END
from pulsar_admin.store.scan.files import LedgerDigests, note_read
from pulsar_admin.store.scan.integer_rows import runs_of

if TYPE_CHECKING:
    from pulsar_admin.store.engine.operation import FailedSlice

Part = tuple[int, int, int]
"""Entries of one ledger: (ledger id, first entry, last entry)."""
BATCH_BYTES = 8 << 20
BATCH_ENTRIES = 1 << 15
HEAD_BYTES = 512  # holds broker metadata and message metadata of nearly every entry
LARGE_BYTES = 32 << 20  # this much is not an ordinary batch
HEADS_BYTES = 4096  # entries of this size and more are read head by head where heads are enough
_HMAC_BYTES = DIGEST_SIZE[DigestType.HMAC]  # which no executor can verify
_GAP_BYTES = 1 << 12  # what lies between two records is read as well when it is no more than a page
_SMALL_ENTRIES, _SMALL_BYTES = 256, 1 << 20
"""Of a block that is read with others."""
_RUN = np.dtype(
    [
        ("ledger_id", np.int64),
        ("first_entry", np.int64),
        ("entries", np.int64),
        ("file", np.int64),
        ("start", np.int64),  # of the first record's size field
        ("end", np.int64),
        ("digest_bytes", np.int64),
    ]
)
_RUN_ENTRIES = 16  # runs with fewer entries take no less than places
_SIZE_BYTES = 4


class EntryBatch(Struct):
    """Entries in topic order. ``rows``: RECORD columns of each; ``data[offsets[i]:]`` begins with the size field.

    With ``heads`` only the first bytes of large entries are in ``data``: their metadata is complete, their payload is
    not.
    """

    ledger_ids: Array  # i64
    entry_ids: Array  # i64
    data: Array  # u8
    offsets: Array  # i64, into ``data``
    held: Array  # i64, bytes of the record's body that are in ``data``
    rows: Array  # RECORD

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def are_markers(self) -> Array:
        """Which entries are markers (bool each)."""
        are_markers: Array = self.rows["flags"] & MARKER != 0
        return are_markers

    @property
    def are_chunks(self) -> Array:
        """Which entries are chunks of a message (bool each)."""
        are_chunks: Array = self.rows["flags"] & CHUNK != 0
        return are_chunks

    @property
    def are_messages(self) -> Array:
        """Which entries are framed as messages (bool each)."""
        are_messages: Array = self.rows["flags"] & UNFRAMED == 0
        return are_messages

    @property
    def payload_bytes(self) -> Array:
        """Payload bytes of each entry, as LedgerInfo.size counts them."""
        sizes: Array = self.rows["size"].astype(np.int64) - ENTRY_HEADER_BYTES - self.rows["digest_bytes"]
        return np.maximum(sizes, 0)

    @property
    def starts(self) -> Array:
        """Where the payload of each entry begins in ``data``."""
        starts: Array = self.offsets + 4 + ENTRY_HEADER_BYTES + self.rows["digest_bytes"]
        return starts

    @property
    def ends(self) -> Array:
        """Where the bytes of each entry end in ``data``."""
        return self.offsets + 4 + self.held

    def take(self, chosen: Any) -> EntryBatch:  # Any: what numpy takes as an index
        """Return the entries that a mask or slice selects; ``data`` is shared, and of a slice the columns."""
        return EntryBatch(
            self.ledger_ids[chosen],
            self.entry_ids[chosen],
            self.data,
            self.offsets[chosen],
            self.held[chosen],
            self.rows[chosen],
        )

    def producer_spans(self) -> Array:
        """Return (start, length) of each entry's producer name in ``data``; length −1: none."""
        spans = np.empty((len(self), 2), np.int64)
        producer_spans(self.data, self.starts, self.ends, spans)
        return spans


def record_times(rows: Array, clock: Clock) -> tuple[Array, Array]:
    """Return the times of records (of RECORD) on a clock in ms, and a mask of those that have one."""
    stamped = rows["flags"] & HAS_BROKER_TIME != 0
    if clock == "broker":
        return rows["broker_ms"], stamped
    times = rows["publish_ms"] if clock == "publish" else np.where(stamped, rows["broker_ms"], rows["publish_ms"])
    return times, rows["flags"] & UNFRAMED == 0


def doubtful(batch: EntryBatch, places: Places) -> Array:
    """Return a mask of the entries that are not proven to be those that were imported."""
    rows = batch.rows
    size_field = batch.data[batch.offsets[:, None] + np.arange(4)].view(">i4")[:, 0]
    wrong: Array = (rows["ledger_id"] != batch.ledger_ids) | (rows["entry_id"] != batch.entry_ids)
    wrong |= (size_field != places.sizes) | (rows["flags"] & BAD_DIGEST != 0)
    # Which the kernel cannot verify.
    wrong |= (places.digests == _HMAC_BYTES) | (rows["digest_bytes"] == _HMAC_BYTES)
    return wrong


class Places(Struct):
    """Where entries lie, as columns."""

    ledger_ids: Array  # i64
    entry_ids: Array  # i64
    files: Array  # u32
    offsets: Array  # u32
    sizes: Array  # u32
    digests: Array  # i64, bytes of the digest

    def __len__(self) -> int:
        return len(self.sizes)

    def __reduce__(self) -> tuple[Any, ...]:  # Any: pickle's protocol
        # What travels to executors: a ledger's entries differ in offset and size alone.
        return _unpacked, tuple(pack_column(getattr(self, name)) for name in Places.__struct_fields__)

    @property
    def bytes(self) -> int:
        """Bytes of the entries."""
        return int(self.sizes.sum(dtype=np.int64))

    def take(self, chosen: Any) -> Places:  # Any: what numpy takes as an index
        """Return the places that a mask, slice or array of indexes selects."""
        return Places(*(getattr(self, name)[chosen] for name in Places.__struct_fields__))

    @staticmethod
    def joined(parts: list[Places]) -> Places:
        """Return the places of several parts in their order."""
        if len(parts) == 1:
            return parts[0]
        return Places(*(np.concatenate([getattr(part, name) for part in parts]) for name in Places.__struct_fields__))

    @staticmethod
    def of_records(records: Array, files: Array) -> Places:
        """Return the places of records (of RECORD) in files, copied."""
        return Places(
            records["ledger_id"].copy(),
            records["entry_id"].copy(),
            files.astype(np.uint32),
            records["offset"].astype(np.uint32),
            records["size"].astype(np.uint32),
            records["digest_bytes"].astype(np.int64),
        )

    @staticmethod
    def of(block: Block, low: int, high: int) -> Places:
        """Return the places of entries ``low`` to ``high`` (excluded) of a block, copied out of LMDB's map."""
        count = high - low
        files = block.files()
        slots = np.asarray(block.slots()[low:high], np.int64)
        return Places(
            np.full(count, block.ledger_id, np.int64),
            block.entry_id(low) - slots[0] + slots,
            np.full(count, files, np.uint32) if isinstance(files, int) else np.array(files[low:high], np.uint32),
            np.array(block.offsets()[low:high], np.uint32),
            np.array(block.sizes()[low:high], np.uint32),
            np.full(count, block.header.digest_bytes, np.int64),
        )

    @staticmethod
    def of_small(parts: Sequence[tuple[Block, int, int]]) -> Places:
        """Return the places of entries (block, first index, index after the last) of many blocks, each of which ``is_small_part``."""
        heads = [
            (high - low, block.ledger_id, block.entry_id(low), block.files(), block.header.digest_bytes)
            for block, low, high in parts
        ]
        offsets = b"".join([block.offsets()[low:high] for block, low, high in parts])
        sizes = b"".join([block.sizes()[low:high] for block, low, high in parts])
        counts, ledger_ids, firsts, files, digests = np.array(heads, np.int64).T
        starts = np.cumsum(counts) - counts
        return Places(
            np.repeat(ledger_ids, counts),
            np.repeat(firsts - starts, counts) + np.arange(counts.sum()),
            np.repeat(files.astype(np.uint32), counts),
            np.frombuffer(offsets, np.uint32),
            np.frombuffer(sizes, np.uint32),
            np.repeat(digests, counts),
        )


def is_small_part(block: Block, low: int, high: int) -> bool:
    """Whether ``Places.of_small`` can be used for entries ``low`` to ``high`` (excluded): few consecutive entries in one file."""
    is_plain = isinstance(block.files(), int) and isinstance(block.slots(), range)
    return is_plain and high - low <= _SMALL_ENTRIES and block.header.payload_bytes <= _SMALL_BYTES


def pack_column(column: Array) -> Any:  # Any: a column in the shortest of three forms
    """Return a column as (first, step, length, type) if its numbers are equal or consecutive, otherwise unchanged."""
    for step in (0, 1):
        if len(column) and (np.diff(column.astype(np.int64)) == step).all():
            return int(column[0]), step, len(column), column.dtype.str
    return column


def unpack_column(column: Any) -> Array:  # Any: what ``pack_column`` returns
    """Return the column that was packed."""
    if not isinstance(column, tuple):
        whole: Array = column
        return whole
    first, step, length, kind = column
    numbers: Array = (first + step * np.arange(length)).astype(kind)
    return numbers


def _unpacked(*columns: Any) -> Places:
    return Places(*map(unpack_column, columns))


def read_at_once(sizes: Array) -> Iterator[slice]:
    """Cut entries, given by their sizes in order, into slices of those that are read together."""
    groups = np.maximum(np.cumsum(sizes, dtype=np.int64) // BATCH_BYTES, np.arange(len(sizes)) // BATCH_ENTRIES)
    return starmap(slice, runs_of(groups))


def split_places(places: Places, batch_bytes: int) -> Iterator[Places]:
    """Cut one block's places so that each part's entries have at most twice ``batch_bytes``, except for one larger entry:
    a block may hold gigabytes."""
    total = np.cumsum(places.sizes, dtype=np.int64)
    if int(total[-1]) <= 2 * batch_bytes:
        yield places
        return
    groups = (total - places.sizes) // batch_bytes
    for part in starmap(slice, runs_of(groups, np.cumsum(places.sizes > batch_bytes))):
        yield places.take(part)


UNREADABLE = (SourceChanged, EntryLogCorrupt, NotWritable, MemoryError)
"""Why a file's bytes cannot be had at all."""


class PlacesReader(Struct, frozen=True):
    """Reads entries at places. ``files``: reads like ``EntryFiles``; ``heads``: the beginnings of large entries
    suffice; ``digests``: how to verify, None: as the places say; ``failed``: collects failures, None: they raise."""

    files: Any
    heads: bool
    digests: LedgerDigests | None
    failed: list[FailedSlice] | None = None

    def read_present(self, places: Places) -> Iterator[tuple[EntryBatch, Places]]:
        """Yield the existing entries at these places with their places, damaged ones included; failures are raised or listed."""
        try:
            batch = self.read_places(places)
        except UNREADABLE as error:
            if self.failed is None:
                raise
            left = self._without_failed(places, error, self.failed)
            if len(left):
                yield from self.read_present(left)
        else:
            yield batch, places

    def _without_failed(self, places: Places, error: StoreError | MemoryError, failed: list[FailedSlice]) -> Places:
        """Return the places outside of unreadable files, and list the others as failed with this error."""
        files = np.unique(places.files).tolist()
        for file_id in files:
            part = places.take(places.files == file_id)
            try:
                if len(files) > 1:
                    self.read_places(part)
                    continue
            except UNREADABLE as found:
                error = found
            note_failure(failed, part, error)
            places = places.take(places.files != file_id)
        return places

    def read_places(self, places: Places) -> EntryBatch:
        """Return the entries at these places as they are on disk, damaged ones included."""
        batch = self._read_places(places)
        cut = (batch.rows["flags"] & UNFRAMED != 0) & (batch.held < places.sizes)
        if cut.any():
            # Too little of these was read.
            indexes = np.flatnonzero(cut)
            whole = self._read_places(places.take(indexes), whole=True)
            batch.offsets[indexes] = whole.offsets + len(batch.data)
            batch.held[indexes] = whole.held
            batch.rows[indexes] = whole.rows
            batch.data = np.concatenate([batch.data, whole.data])
        note_read(batch.rows, batch.held)
        return batch

    def _read_places(self, places: Places, *, whole: bool = False) -> EntryBatch:
        held = places.sizes.astype(np.int64)
        verify = True
        if self.heads and not whole and int(held.mean()) >= HEADS_BYTES:
            held = np.minimum(held, ENTRY_HEADER_BYTES + places.digests + HEAD_BYTES)
            verify = False  # the digest covers bytes that are not read
        data, offsets = self._load(places, held)
        rows = np.zeros(len(held), RECORD)
        ledgers, first = np.unique(places.ledger_ids, return_index=True)
        known = self.digests or LedgerDigests(ledgers, places.digests[first].astype(np.int16))
        kernel.read_bodies(data, offsets, held, tuple(known), verify, rows)
        rows["size"] = places.sizes
        rows["offset"] = places.offsets
        return EntryBatch(places.ledger_ids, places.entry_ids, data, offsets, held, rows)

    def _load(self, places: Places, held: Array) -> tuple[Array, Array]:
        """Read each record's size field and first ``held`` bytes; return (bytes, offset of each record in them)."""
        # In the order of the files: entries of one topic lie between those of others, and neighbours are one read.
        order = np.lexsort((places.offsets, places.files))
        files, starts = places.files[order], places.offsets[order].astype(np.int64)
        ends = starts + 4 + held[order]
        gaps = starts[1:] - ends[:-1]
        cuts = np.flatnonzero((files[1:] != files[:-1]) | (gaps < 0) | (gaps > _GAP_BYTES)) + 1
        firsts = np.append(0, cuts)
        lasts = np.append(cuts, len(order)) - 1
        lengths = ends[lasts] - starts[firsts]
        bases = np.cumsum(lengths) - lengths
        if lengths.sum() >= LARGE_BYTES:
            give_back()
        data = np.empty(int(lengths.sum()), np.uint8)
        for run, base in enumerate(bases.tolist()):
            # In pieces: an entry may be large, and would be in memory twice.
            for at in range(0, int(lengths[run]), BATCH_BYTES):
                length = min(int(lengths[run]) - at, BATCH_BYTES)
                raw = self.files.read(int(files[firsts[run]]), int(starts[firsts[run]]) + at, length)
                data[base + at : base + at + length] = np.frombuffer(raw, np.uint8)
        runs = np.repeat(np.arange(len(firsts)), lasts - firsts + 1)
        offsets = np.empty(len(order), np.int64)
        offsets[order] = starts - starts[firsts][runs] + bases[runs]
        return data, offsets


def note_failure(failed: list[FailedSlice], places: Places, error: StoreError | MemoryError) -> None:
    """List the places in one file as failed, joined to an adjacent earlier failure."""
    from pulsar_admin.store.engine.operation import FailedSlice
    from pulsar_admin.store.engine.slices import FileRange, kind_of

    file_id = int(places.files[0])
    start = int(places.offsets.min())
    end = int((places.offsets.astype(np.int64) + 4 + places.sizes).max())
    if failed and failed[-1].piece.file_id == file_id and failed[-1].piece.start <= start:
        last = failed.pop()
        start, end, reason, out_of_memory = last.piece.start, max(end, last.piece.end), last.reason, last.out_of_memory
        path = last.piece.path
    elif isinstance(error, StoreError):
        reason, out_of_memory, path = error.message, False, str(error.context.get("path", f"file {file_id}"))
    else:
        reason, out_of_memory, path = str(error) or "out of memory", True, f"file {file_id}"
    failed.append(FailedSlice(FileRange(path, kind_of(path), file_id, start, end), reason, out_of_memory))


# -- packed, for executors --------------------------------------------------------------------------------------------


class PackedPlaces(Struct, frozen=True):
    """The places of a batch, packed: as runs, or one place per entry (``is_scattered``).

    Consecutive records of a ledger in a file form one run of bytes, in which size fields show where each record begins.
    Entries interleaved with those of other ledgers, or so large that only their heads are read, keep a place each,
    which takes about three bytes.
    """

    packed: bytes
    files: tuple[int, ...]
    bytes: int
    entries: int
    is_scattered: bool

    def read(self, files: Any, heads: bool, digests: LedgerDigests | None) -> EntryBatch | None:
        """Return the entries as ``PlacesReader`` does; None unless all are proven to be the imported ones."""
        if self.is_scattered:
            places = self.places()
            batch = PlacesReader(files, heads, digests).read_places(places)
            return None if doubtful(batch, places).any() else batch
        runs = self._runs()
        sizes = runs["end"] - runs["start"]
        ends = np.cumsum(sizes)
        data = np.empty(int(ends[-1]), np.uint8)
        rows = np.zeros(self.entries, RECORD)
        ledgers, first = np.unique(runs["ledger_id"], return_index=True)
        known = tuple(digests or LedgerDigests(ledgers, runs["digest_bytes"][first].astype(np.int16)))
        at = 0
        for run, end, size in zip(runs.tolist(), ends.tolist(), sizes.tolist(), strict=True):
            _, _, entries, file_id, start, _, _ = run
            files.read_into(data.data[end - size : end], file_id, start)
            count, stop, why = kernel.scan_log(data, end - size, end, 0, known, True, rows[at : at + entries])
            if (count, stop, why) != (entries, end, END):
                return None
            at += entries
        note_read(rows, rows["size"])
        ledger_ids, entry_ids = self._ids(runs)
        wrong = (rows["ledger_id"] != ledger_ids) | (rows["entry_id"] != entry_ids)
        wrong |= (rows["flags"] & BAD_DIGEST != 0) | (rows["digest_bytes"] == _HMAC_BYTES)
        if wrong.any():
            return None
        offsets = rows["offset"].copy()
        rows["offset"] += np.repeat(runs["start"] - (ends - sizes), runs["entries"])
        return EntryBatch(ledger_ids, entry_ids, data, offsets, rows["size"].astype(np.int64), rows)

    def places(self) -> Places:
        """Return the place of each entry; only if ``is_scattered``."""
        return Places(*map(_loosened, pickle.loads(zlib.decompress(self.packed))))

    def parts(self) -> list[Part]:
        """Return the runs as (ledger id, first entry, last entry), in order; only unless ``is_scattered``."""
        runs = self._runs()
        lasts = runs["first_entry"] + runs["entries"] - 1
        return list(zip(runs["ledger_id"].tolist(), runs["first_entry"].tolist(), lasts.tolist(), strict=True))

    def _runs(self) -> Array:
        return np.frombuffer(self.packed, _RUN)

    def _ids(self, runs: Array) -> tuple[Array, Array]:
        counts = runs["entries"]
        firsts = runs["first_entry"] - (np.cumsum(counts) - counts)
        return np.repeat(runs["ledger_id"], counts), np.repeat(firsts, counts) + np.arange(self.entries)


def pack_places(places: Places, heads: bool) -> PackedPlaces:
    """Return the places of a batch, packed; ``heads``: whether the beginnings of large entries suffice."""
    ends = places.offsets + np.int64(_SIZE_BYTES) + places.sizes
    follows = places.offsets[1:] == ends[:-1]
    for column, step in ((places.entry_ids, 1), (places.ledger_ids, 0), (places.files, 0), (places.digests, 0)):
        follows &= column[1:] == column[:-1] + column.dtype.type(step)
    firsts = np.append(0, np.flatnonzero(~follows) + 1)
    files = tuple(sorted(set(places.files[firsts].tolist())))
    is_large = heads and places.bytes >= HEADS_BYTES * len(places)
    if is_large or len(firsts) * _RUN_ENTRIES > max(len(places), 8 * _RUN_ENTRIES):
        columns = [_tightened(getattr(places, name)) for name in Places.__struct_fields__]
        return PackedPlaces(zlib.compress(pickle.dumps(columns), 1), files, places.bytes, len(places), True)
    lasts = np.append(firsts[1:], len(places)) - 1
    runs = np.empty(len(firsts), _RUN)
    runs["ledger_id"], runs["first_entry"] = places.ledger_ids[firsts], places.entry_ids[firsts]
    runs["entries"] = lasts - firsts + 1
    runs["file"], runs["digest_bytes"] = places.files[firsts], places.digests[firsts]
    runs["start"], runs["end"] = places.offsets[firsts], ends[lasts]
    return PackedPlaces(runs.tobytes(), files, places.bytes, len(places), False)


def _tightened(column: Array) -> Any:  # Any: what ``_loosened`` takes
    """Return a column as ``pack_column`` does, else its differences, grouped by byte: many zeros, which compress
    well."""
    packed = pack_column(column)
    if isinstance(packed, tuple):
        return packed
    steps = np.diff(column, prepend=column.dtype.type(0))
    return column.dtype.str, steps.view(np.uint8).reshape(-1, column.itemsize).T.tobytes()


def _loosened(packed: Any) -> Array:  # Any: what ``_tightened`` returns
    if len(packed) != 2:
        return unpack_column(packed)
    kind = np.dtype(packed[0])
    steps = np.frombuffer(packed[1], np.uint8).reshape(kind.itemsize, -1).T.copy().view(kind)[:, 0]
    column: Array = np.cumsum(steps, dtype=kind)
    return column
