"""Rows of dumps made by an engine: executors read entries and take them apart, what is out of the ordinary is read here.

An executor never sees the store. The rows come back in order, the same as from one process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.dump.tables import ENTRY_SCHEMA, DumpColumns, EntryColumns, Finish, entry_batch
from pulsar_admin.store.engine.memory import give_back
from pulsar_admin.store.engine.operation import Operation
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import Position, TopicName
from pulsar_admin.store.scan.entries import TimeRange, WindowScan, within
from pulsar_admin.store.scan.messages import MessageColumns, message_runs, schema_of
from pulsar_admin.store.scan.operations import PIECE_BYTES, ROUND_ENTRIES, PlacesOperation, PlainFiles, run_places
from pulsar_admin.store.scan.places import EntryBatch, Places, PlacesReader, doubtful

Convert = Callable[[EntryBatch], Iterator[pa.RecordBatch]]
PlacedRows = Iterator[tuple[Places, dict[str, bytes] | None]]

CONTENT_PIECE_BYTES = 8 << 20  # of entries whose contents come back: an executor holds them four times
_CONTENT_UNIT_BYTES = 32  # count as one entry of a round, which is 32 MiB then: here, it is there packed and unpacked
_ROUND_BYTES = ROUND_ENTRIES * _CONTENT_UNIT_BYTES
_SLOW = -1  # of a run that the driver reads, in place of how many batches of rows there are
LARGE_BYTES = 32 << 20  # an entry of so many bytes is better read here than sent


class MakeRows(Struct, PlacesOperation, frozen=True):
    """Rows of one level from the entries at given places: how many they are, their runs, the Arrow batch of each run that this process need
    not read, and the ids of the entries of those that it must.

    ``columns``: of level ``messages``. ``entries``: of level ``entries``; None: level ``messages``.
    ``times`` choose entries. A batch with an entry that is not proven comes back empty: it is read again where it can be
    explained; so does a large entry whose contents would have to be sent.
    """

    columns: DumpColumns = field(default_factory=DumpColumns)
    entries: EntryColumns | None = None
    times: TimeRange | None = None

    COLUMNS = ("ids", "runs", "batches")

    @property
    def has_contents(self) -> bool:
        """Whether the rows hold what is in the entries."""
        return self.entries is not None or self.columns.payload or self.columns.schemas is not None

    def weight(self, places: Places) -> int:
        """Return how much the rows of some places take, in entries without contents."""
        return max(len(places), places.bytes // _CONTENT_UNIT_BYTES if self.has_contents else 0)

    def values(self, places: Places, files: PlainFiles) -> tuple[bytes, bytes, bytes]:
        if self.has_contents and places.bytes >= LARGE_BYTES:
            return b"", b"", b""
        batch = PlacesReader(files, False, None).read_places(places)
        return (b"", b"", b"") if doubtful(batch, places).any() else self._row(batch)

    def _row(self, batch: EntryBatch) -> tuple[bytes, bytes, bytes]:
        batch = self.columns.screened(batch if self.times is None else within(batch, self.times))
        ids = np.stack([batch.ledger_ids, batch.entry_ids], axis=1)
        slow: list[Array] = []
        runs: list[tuple[int, int]] = []
        sink = pa.BufferOutputStream()
        if self.entries is not None:
            schema = ENTRY_SCHEMA
            found: Iterator[tuple[slice, pa.RecordBatch | None]]
            found = iter([(slice(0, len(batch)), entry_batch(batch, self.entries))])
        else:
            schema = self.columns.schema
            found = message_runs(self.columns.unwrap(batch), schema_of(self.columns.names), self.columns.match)
        finish = self.columns.finisher()
        with pa.ipc.new_stream(sink, schema) as stream:
            for run, rows in found:
                if rows is None:
                    slow.append(ids[run])
                made = [] if rows is None else [*finish([rows])] if self.entries is None else [rows]
                made = [one for one in made if len(one)]
                runs.append((run.stop - run.start, _SLOW if rows is None else len(made)))
                for one in made:
                    stream.write_batch(one)
        # How many entries is there even when none was chosen, so that the row is not taken for an unproven one.
        head = np.array([[len(ids), 0], *runs], np.int64)
        batches = sink.getvalue().to_pybytes() if (head[1:, 1] > 0).any() else b""  # the schema alone is a kilobyte
        return np.concatenate([ids[:0], *slow]).tobytes(), head.tobytes(), batches


class TopicWindow(NamedTuple):
    """Entries of a topic, and what is made of them."""

    found: WindowScan
    work: MakeRows


class RowsOfTopics(Struct, PlacesOperation, frozen=True):
    """``MakeRows`` of several topics, by the ledger that a batch begins with."""

    works: Sequence[MakeRows]
    of_ledgers: Mapping[int, int]

    COLUMNS = MakeRows.COLUMNS

    def values(self, places: Places, files: PlainFiles) -> tuple[bytes, bytes, bytes]:
        return self.works[self.of_ledgers[int(places.ledger_ids[0])]].values(places, files)


class WindowsAsOne:
    """Windows of topics without a common ledger that the reader's engine reads as one. ``placed`` gives each one's rows, in the order of
    the windows."""

    def __init__(
        self, reader: EntryReader, windows: Mapping[TopicName, TopicWindow], ledgers: Mapping[int, TopicName]
    ) -> None:
        self.windows = windows
        self._order = {name: index for index, name in enumerate(windows)}
        self._owners: deque[int] = deque()  # of the places that were handed out
        self._failed: dict[int, StoreError] = {}
        self._head: tuple[int, Places, dict[str, bytes] | None] | None = None
        self._rows = self._run(reader, ledgers)

    def placed(self, name: TopicName) -> PlacedRows:
        """Yield (places, their row) of a topic; raises what finding its places raised. What is left of topics before it is dropped."""
        wanted = self._order[name]
        while (head := self._head or next(self._rows, None)) is not None and head[0] <= wanted:
            self._head = None
            if head[0] == wanted:
                yield head[1:]
        self._head = head
        if wanted in self._failed:
            raise self._failed[wanted]

    def close(self) -> None:
        """End what still runs."""
        self._rows.close()

    def _run(
        self, reader: EntryReader, ledgers: Mapping[int, TopicName]
    ) -> Generator[tuple[int, Places, dict[str, bytes] | None], None, None]:
        works: list[MakeRows] = []
        of_topics: dict[TopicName, int] = {}
        for name, (_, work) in self.windows.items():
            if work not in works[-1:]:
                works.append(work)
            of_topics[name] = len(works) - 1
        operation: Operation = works[0]
        if len(works) > 1:
            operation = RowsOfTopics(
                works, {id_: of_topics[name] for id_, name in ledgers.items() if name in of_topics}
            )
        for places, row in _run_work(reader, works[0], self._groups(), operation):
            yield self._owners.popleft(), places, row

    def _groups(self) -> Iterator[Places]:
        for index, window in enumerate(self.windows.values()):
            try:
                for places in window.found.scan.groups():
                    self._owners.append(index)
                    yield places
            except StoreError as error:  # told with the rows of this topic
                self._failed[index] = error


def _run_work(
    reader: EntryReader, work: MakeRows, groups: Iterable[Places], operation: Operation | None = None
) -> PlacedRows:
    """Yield (places, the row that ``work`` makes of them) by the reader's engine; ``operation`` in its place makes the same kind of row."""
    assert reader.engine is not None
    piece_bytes = CONTENT_PIECE_BYTES if work.has_contents else PIECE_BYTES
    return run_places(reader.engine, operation or work, reader.files, groups, work.weight, piece_bytes)


def rows_on(
    window: TopicWindow, convert: Convert, slow: MessageColumns | None, placed: PlacedRows | None
) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
    """Yield (entries, their rows) of the window as one process would make them, by the engine of the scan's reader."""
    found, work = window
    scan = found.scan
    finish = work.columns.finisher()
    kept = 0  # bytes of contents since memory was given back
    for places, row in _run_work(scan.reader, work, scan.groups()) if placed is None else placed:
        if row is None or not row["runs"]:
            yield from _rows_here(found, places, convert)
        else:
            (entries, _), *runs = np.frombuffer(row["runs"], np.int64).reshape(-1, 2).tolist()
            yield entries, list(_in_order(runs, row, slow, finish))
        del row
        scan.reader.advance(places.bytes)
        kept += places.bytes if work.has_contents else 0
        if kept >= _ROUND_BYTES:
            give_back()
            kept = 0


def _rows_here(found: WindowScan, places: Places, convert: Convert) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
    """Yield (entries, their rows) at these places, read here. A function, so that a large entry is not kept beyond its end."""
    for batch in found.scan.read_here(places):
        entries = found.chosen(batch)
        yield len(entries), list(convert(entries))


def _in_order(
    runs: list[list[int]], row: dict[str, bytes], slow: MessageColumns | None, finish: Finish
) -> Iterator[pa.RecordBatch]:
    batches = iter(pa.ipc.open_stream(row["batches"]) if row["batches"] else ())
    ids = iter(np.frombuffer(row["ids"], np.int64).reshape(-1, 2).tolist())
    for entries, count in runs:
        if count != _SLOW:
            yield from islice(batches, count)
        else:
            positions = [Position(*position) for position in islice(ids, entries)]
            if slow is not None:
                yield from finish(slow.read_slowly(positions))
