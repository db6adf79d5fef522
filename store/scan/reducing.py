"""Sums over the entries of topics: one function makes a row of a batch, another merges the rows of neighbouring batches.

A reduction is these two functions. They run in this process, in others, or on Spark, whose executors also merge. A
command hands all batches of all topics to the engine at once, as runs of bytes, and receives one row per topic.

Batches are numbered through all scans. A part is the row of neighbouring batches in one window of a scan, or of several
whole windows. Sums that depend on the order of entries are computed per window, so that at most one window is in memory
together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from msgspec import Struct, field

from pulsar_admin.store.engine.memory import slice_bytes
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.kernels.compiled import METER
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import FileKind, TopicName
from pulsar_admin.store.scan.entries import EntryScan
from pulsar_admin.store.scan.files import LedgerDigests
from pulsar_admin.store.scan.places import UNREADABLE, EntryBatch, PackedPlaces, Places, doubtful, pack_places

if TYPE_CHECKING:
    import pyarrow as pa

    from pulsar_admin.store.engine.operation import Engine
    from pulsar_admin.store.model.reader import EntryReader

Row = dict[str, bytes]
Found = TypeVar("Found", covariant=True)
_TOGETHER = 64  # parts that are merged at once
_JOB_BYTES = (
    72 << 20
)  # of packed places that an engine is given at once: at most five times for 100,000,000 scattered entries
_PIECES_A_SLOT = 3
_LEAST_PIECE_BYTES = 1 << 20


class Reduction:
    """Sums over entries in topic order, as a picklable value. ``merge`` is associative; without rows it returns that of
    no entries.

    ``window_entries``: how many entries ``judge`` needs together, for sums that depend on their order; 0: no such sums.
    ``close`` reduces the row of a whole scan to what the answer needs. Applied to their own result, ``judge`` and
    ``close`` return it unchanged. ``NEEDS``: modules beside those that reading entries needs.
    """

    __slots__ = ()
    COLUMNS: ClassVar[tuple[str, ...]]
    NEEDS: ClassVar[tuple[str, ...]] = ()
    window_entries: ClassVar[int] = 0

    def partial(self, batch: EntryBatch) -> Row | None:
        """Return the row of a batch; None: the process that has the store must read the batch."""
        raise AssertionError

    def merge(self, rows: Sequence[Row]) -> Row:
        """Return one row for the rows of consecutive batches."""
        raise AssertionError

    def judge(self, row: Row) -> Row:
        """Return the row of a whole window with its order-dependent sums computed."""
        return row

    def close(self, row: Row) -> Row:
        """Return the row of a whole scan, reduced to what the answer needs."""
        return row

    def is_enough(self, row: Row) -> bool:
        """Whether entries after those of a row cannot change the answer."""
        return False

    def joined(self, rows: Sequence[Row]) -> Row:
        """Return one row for the rows of consecutive batches, a single row unchanged."""
        return rows[0] if len(rows) == 1 else self.merge(rows)


class Part(NamedTuple):
    """The row of the batches ``first`` to ``end`` (excluded), and the ranges of batches of their window and scan; an
    end of −1 is not known yet."""

    scan: int
    scan_end: int
    window: int
    window_end: int
    first: int
    end: int
    row: Row

    @property
    def is_judged(self) -> bool:
        """Whether the part consists of whole windows, so that ``judge`` applied."""
        return (self.first, self.end) == (self.window, self.window_end)

    @property
    def is_whole(self) -> bool:
        """Whether the part is the whole scan."""
        return (self.first, self.end) == (self.scan, self.scan_end)


_KEYS = Part._fields[:-1]


def _looked_at(reduction: Reduction, part: Part) -> Part:
    """Return a part with a new row: judged if it is a whole window, closed if it is the whole scan."""
    row = reduction.judge(part.row) if part.is_judged else part.row
    return part._replace(row=reduction.close(row) if part.is_whole else row)


def merge_parts(reduction: Reduction, parts: Iterable[Part]) -> list[Part]:
    """Return the parts of one scan, consecutive ones merged: first within a window, then judged windows."""
    ordered = sorted(parts, key=lambda part: part.first)
    ordered = _merged(reduction, ordered, lambda one, other: one.window == other.window)
    return _merged(reduction, ordered, lambda one, other: one.is_judged and other.is_judged)


def _merged(reduction: Reduction, parts: list[Part], belong: Callable[[Part, Part], bool]) -> list[Part]:
    groups: list[list[Part]] = []
    for part in parts:
        if groups and groups[-1][-1].end == part.first and belong(groups[-1][-1], part):
            groups[-1].append(part)
        else:
            groups.append([part])
    merged = []
    for first, *others in groups:
        if others:
            row = reduction.merge([first.row, *(part.row for part in others)])
            first = first._replace(end=others[-1].end, window_end=others[-1].window_end, row=row)
            first = _looked_at(reduction, first)
        merged.append(first)
    return merged


# -- on engines --------------------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """A batch of a slice: its number, its window and scan as in ``Part``, and the places of its entries."""

    scan: int
    scan_end: int
    window: int
    window_end: int
    number: int
    places: PackedPlaces

    def part(self, reduction: Reduction, row: Row) -> Part:
        """Return the part that consists of this batch alone."""
        return _looked_at(reduction, Part(*self[:5], self.number + 1, row))


class EntryBatches(FileRange, frozen=True, eq=False):
    """One slice: consecutive batches, and file id → path of the files that hold them."""

    batches: Sequence[Batch] = ()
    files: dict[int, str] = field(default_factory=dict)


class ReduceEntries(Struct, frozen=True):
    """Operation that makes the parts of a slice, except of batches not proven to be as imported, or without a row."""

    reduction: Reduction
    heads: bool
    digests: LedgerDigests | None  # how to verify; None: as the index says

    @property
    def needs(self) -> tuple[str, ...]:
        """Modules that it imports beside those that every operation does."""
        return self.reduction.NEEDS

    @property
    def schema(self) -> pa.Schema:
        """The columns of a part."""
        import pyarrow as pa

        keys = [(name, pa.int64()) for name in _KEYS]
        return pa.schema([*keys, *((name, pa.binary()) for name in self.reduction.COLUMNS)])

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield the parts of a slice."""
        from pulsar_admin.store.scan.operations import PlainFiles

        assert isinstance(piece, EntryBatches)
        METER.expect(sum(batch.places.entries for batch in piece.batches))
        with closing(PlainFiles(piece.files)) as files:
            for _, batches in groupby(piece.batches, lambda batch: batch.scan):
                parts: list[Part] = []
                for batch in batches:
                    entries = batch.places.read(files, self.heads, self.digests)
                    row = None if entries is None else self.reduction.partial(entries)
                    del entries
                    if row is not None:
                        parts.append(batch.part(self.reduction, row))
                    if len(parts) >= _TOGETHER:
                        parts = merge_parts(self.reduction, parts)
                yield self._rows_of(merge_parts(self.reduction, parts))

    def merge(self, table: pa.Table) -> pa.Table:
        """Return the parts in a table with those merged that follow each other."""
        import pyarrow as pa

        of_scans: dict[int, list[Part]] = {}
        for part in self.parts(table):
            of_scans.setdefault(part.scan, []).append(part)
        merged = [self._rows_of(merge_parts(self.reduction, of_scans.pop(scan))) for scan in [*of_scans]]
        return pa.Table.from_batches(merged, self.schema)

    def parts(self, table: pa.Table) -> Iterator[Part]:
        """Yield the parts in a table."""
        names = self.reduction.COLUMNS
        for batch in table.to_batches():
            keys = [batch.column(name).to_pylist() for name in _KEYS]
            columns = [batch.column(name).to_pylist() for name in names]
            yield from map(Part, *keys, [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)])

    def _rows_of(self, parts: Sequence[Part]) -> pa.RecordBatch:
        import pyarrow as pa

        from pulsar_admin.store.scan.arrow import column, packed_column

        keys = np.array([part[:-1] for part in parts], np.int64).reshape(-1, len(_KEYS))
        columns = [column(keys[:, at]) for at in range(keys.shape[1])]
        columns += [packed_column([part.row[name] for part in parts], pa.binary()) for name in self.reduction.COLUMNS]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


# -- all scans of a command ----------------------------------------------------------------------------------------------


class OfTopics(Protocol[Found]):
    """Results for several topics, by each topic's index."""

    def find(self, index: int, /) -> Found:
        """Return the result for the topic with this index; raises the error of reading that topic."""


class AskedTogether(Generic[Found]):
    """Results of ``ask`` for topics: the engine reads those in ``names`` together, any other on request."""

    def __init__(
        self,
        reader: EntryReader,
        names: Iterable[TopicName],
        ask: Callable[[EntryReader, Sequence[Topic]], OfTopics[Found]],
    ) -> None:
        self._reader, self._ask = reader, ask
        topics: dict[TopicName, Topic] = {}
        for name in names:
            with suppress(StoreError):  # told when it is asked for
                topics[name] = read_topic(reader.txn, name)
        self._places = {name: index for index, name in enumerate(topics)}
        self._every = ask(reader, list(topics.values()))

    def find(self, name: TopicName) -> Found:
        """Return the result for a topic; raises TopicNotFound, and the error of reading the topic."""
        if name in self._places:
            return self._every.find(self._places[name])
        return self._ask(self._reader, [read_topic(self._reader.txn, name)]).find(0)


class Reductions:
    """The sums of several scans; the reader's engine reads for all of them when the first one is requested.

    ``again`` returns the row of a batch that is not proven to be as imported; without it, the scan reads such a batch
    and records the entries that it leaves out.
    """

    def __init__(
        self,
        reader: EntryReader,
        scans: Sequence[EntryScan],
        reduction: Reduction,
        again: Callable[[Places], Row] | None = None,
    ) -> None:
        self._reader = reader
        self._again = again
        self._scans = scans
        self._reduction = reduction
        self._of_scans: list[range] = []  # the numbers of each one's batches, once they were handed out
        self._left: dict[int, Batch] = {}  # by number: those that no part has
        self._parts: dict[int, list[Part]] = {}  # by the number of a scan's first batch
        self._failed: dict[int, StoreError] = {}  # by index: why the places of a scan cannot be read

    def row(self, index: int) -> Row:
        """Return the row of the scan with this index; raises the error of finding its places."""
        scan = self._scans[index]
        if self._reader.engine is None:
            return self._read_here(scan)
        if not self._of_scans:
            self._read_all(self._reader.engine)
        if index in self._failed:
            raise self._failed[index]
        numbers = self._of_scans[index]
        if not numbers:
            return self._reduction.close(self._reduction.joined([]))
        parts = self._parts.get(numbers.start, [])
        if parts and parts[0].is_whole:
            return parts[0].row
        for number in numbers:
            batch = self._left.pop(number, None)
            if batch is not None:
                parts.append(batch.part(self._reduction, self._read_again(scan, batch.places)))
        # Of a scan that was handed out in several turns the end was not known.
        whole = merge_parts(self._reduction, [part._replace(scan_end=numbers.stop) for part in parts])
        self._parts[numbers.start] = whole
        return self._reduction.close(self._reduction.joined([part.row for part in whole]))

    def _read_here(self, scan: EntryScan) -> Row:
        judged: list[Row] = []
        for _, groups in groupby(_in_windows(scan, self._reduction.window_entries), lambda group: group[0]):
            rows: list[Row] = []
            for _, places in groups:
                rows += self._rows_here(scan, places)
                self._reader.advance(places.bytes)
                if rows and self._reduction.is_enough(rows[-1]):
                    break
                if len(rows) >= _TOGETHER:
                    rows = [self._reduction.joined(rows)]
            judged.append(self._reduction.judge(self._reduction.joined(rows)))
            if self._reduction.is_enough(judged[-1]):
                break
        return self._reduction.close(self._reduction.joined(judged))

    def _read_again(self, scan: EntryScan, packed: PackedPlaces) -> Row:
        """Return the row of a batch for which the engine returned none; its damage is recorded or raised."""
        groups: Iterable[Places]
        if packed.is_scattered:
            groups = [packed.places()]
        else:
            groups = EntryScan(self._reader, packed.parts(), scan.heads, scan.batch_bytes, scan.digests).groups()
        return self._reduction.joined([row for places in groups for row in self._rows_here(scan, places)])

    def _rows_here(self, scan: EntryScan, places: Places) -> list[Row]:
        if self._again is None:
            rows = map(self._reduction.partial, scan.read_here(places))
            return [row for row in rows if row is not None]
        with suppress(*UNREADABLE):
            batch = scan.read_places(places)
            if not doubtful(batch, places).any() and (row := self._reduction.partial(batch)) is not None:
                return [row]
        return [self._again(places)]

    def _read_all(self, engine: Engine) -> None:
        waiting: list[Batch] = []
        waiting_bytes = number = 0
        for index, scan in enumerate(self._scans):
            first, scan_at = number, len(waiting)
            for _, groups in groupby(self._places_of(index), lambda group: group[0]):
                window, window_at = number, len(waiting)
                for _, places in groups:
                    if waiting_bytes >= _JOB_BYTES and (window == number or not self._reduction.window_entries):
                        waiting[window_at:] = [batch._replace(window_end=number) for batch in waiting[window_at:]]
                        self._run(engine, waiting)
                        waiting, waiting_bytes = [], 0
                        window, window_at, scan_at = number, 0, 0
                    packed = pack_places(places, scan.heads)
                    waiting.append(Batch(first, -1, window, -1, number, packed))
                    waiting_bytes += len(packed.packed)
                    number += 1
                waiting[window_at:] = [batch._replace(window_end=number) for batch in waiting[window_at:]]
            waiting[scan_at:] = [batch._replace(scan_end=number) for batch in waiting[scan_at:]]
            self._of_scans.append(range(first, number))
        if waiting:
            self._run(engine, waiting)

    def _places_of(self, index: int) -> Iterator[tuple[int, Places]]:
        """Yield (number of the window, places) of a scan; an error that ends it is kept in ``_failed``."""
        try:
            yield from _in_windows(self._scans[index], self._reduction.window_entries)
        except StoreError as error:
            self._failed[index] = error

    def _run(self, engine: Engine, batches: Sequence[Batch]) -> None:
        self._left |= {batch.number: batch for batch in batches}
        pieces = [*self._pieces(engine, batches)]
        scan = self._scans[0]  # all read alike
        operation = ReduceEntries(self._reduction, scan.heads, scan.digests)
        windows, scans = (len({batch[key] for batch in batches}) for key in (2, 0))
        merged_by = {"window": windows} if windows == scans else {"window": windows, "scan": scans}
        for table in engine.reduce(operation, pieces, lambda piece: self._reader.advance(piece.bytes), merged_by):
            for part in operation.parts(table):
                for number in range(part.first, part.end):
                    del self._left[number]
                parts = self._parts.setdefault(part.scan, [])
                parts.append(part)
                if len(parts) >= _TOGETHER or sum(one.end - one.first for one in parts) == part.scan_end - part.scan:
                    self._parts[part.scan] = merge_parts(self._reduction, parts)
        # What it could not read is read again here, and explained, or listed by who reads it.
        ours = set(map(id, pieces))
        engine.failed[:] = [failed for failed in engine.failed if id(failed.piece) not in ours]

    def _pieces(self, engine: Engine, batches: Sequence[Batch]) -> Iterator[EntryBatches]:
        """Yield slices of batches, several per slot of the engine; batches in a file that is gone are left out."""
        total_bytes = sum(batch.places.bytes for batch in batches)
        target_bytes = max(_LEAST_PIECE_BYTES, total_bytes // (_PIECES_A_SLOT * engine.slots))
        target_bytes = min(target_bytes, slice_bytes(engine.memory_bytes))
        find_path = cache(self._reader.files.find_path)
        group: list[Batch] = []
        paths: dict[int, str] = {}
        size_bytes = 0
        for batch in batches:
            here = {file_id: path for file_id in batch.places.files if (path := find_path(file_id)) is not None}
            if len(here) < len(batch.places.files):
                self._reader.advance(batch.places.bytes)
                continue
            group.append(batch)
            paths |= here
            size_bytes += batch.places.bytes
            if size_bytes >= target_bytes:
                yield _slice_of(group, paths, size_bytes)
                group, paths, size_bytes = [], {}, 0
        if group:
            yield _slice_of(group, paths, size_bytes)


def _slice_of(batches: list[Batch], paths: dict[int, str], size_bytes: int) -> EntryBatches:
    file_id, path = next(iter(paths.items()))
    return EntryBatches(path, FileKind.ENTRY_LOG, file_id, 0, size_bytes, batches=batches, files=paths)


def _in_windows(scan: EntryScan, window_entries: int) -> Iterator[tuple[int, Places]]:
    """Yield (number of the window, places) of a scan's groups, cut where a window ends; 0 entries: all are in one window."""
    seen = 0
    for places in scan.groups():
        while window_entries and (room := window_entries - seen % window_entries) < len(places):
            yield seen // window_entries, places.take(np.s_[:room])
            places = places.take(np.s_[room:])
            seen += room
        yield seen // window_entries if window_entries else 0, places
        seen += len(places)
