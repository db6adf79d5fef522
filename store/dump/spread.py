"""Rows of dumps made by an engine: its processes read entries and split them into messages; this process, the only one
with the store, reads the unusual entries.

The rows come back in order, the same as from one process. Or the engine's processes write them into files, whose names
come back in order, between the rows that are made here.
"""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from uuid import uuid4

import numpy as np
import pyarrow as pa
from msgspec import Struct, field
from msgspec.json import decode, encode

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.dump.tables import ENTRY_SCHEMA, DumpColumns, EntryColumns, Finish, entry_batch
from pulsar_admin.store.dump.written import WriteTo, WrittenFile
from pulsar_admin.store.engine.memory import give_back
from pulsar_admin.store.engine.operation import Operation
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import Position, TopicName
from pulsar_admin.store.scan import operations
from pulsar_admin.store.scan.arrow import packed_rows
from pulsar_admin.store.scan.entries import TimeRange, WindowScan, within
from pulsar_admin.store.scan.messages import MessageColumns, message_runs, schema_of
from pulsar_admin.store.scan.places import EntryBatch, Places, PlacesReader, doubtful

if TYPE_CHECKING:
    from pulsar_admin.store.dump.files import DayFiles

Convert = Callable[[EntryBatch], Iterator[pa.RecordBatch]]
PlacedRows = Iterator[tuple[Places, dict[str, bytes] | None]]
Rows: TypeAlias = pa.RecordBatch | WrittenFile
"""Rows in order: here, or in a file."""

CONTENT_PIECE_BYTES = 8 << 20  # of entries whose contents come back: an executor holds them four times
_CONTENT_UNIT_BYTES = 32  # count as one entry of a round, which is 32 MiB then: here, it is there packed and unpacked
_ROUND_BYTES = operations.ROUND_ENTRIES * _CONTENT_UNIT_BYTES
_SLOW = -1  # of a run that the driver reads, in place of how many batches of rows there are
LARGE_BYTES = 32 << 20  # an entry of this size is better read here than sent


class MakeRows(Struct, operations.PlacesOperation, frozen=True):
    """Operation that makes the rows of one level from entries at given places, cut into runs: Arrow batches for the
    runs that the kernel can split, and entry ids for those that the process with the store has to read.

    ``columns``: of level ``messages``. ``entries``: columns of level ``entries``; None: level ``messages``. ``times``
    selects entries. The result of a batch is empty if an entry is not proven to be the imported one, or if it is so
    large that its contents should not be sent: the process with the store then reads the batch.
    """

    columns: DumpColumns
    entries: EntryColumns | None
    times: TimeRange | None

    COLUMNS = ("ids", "runs", "batches")

    @property
    def has_contents(self) -> bool:
        """Whether the rows hold the contents of the entries."""
        return self.entries is not None or self.columns.payload or self.columns.schemas is not None

    def weight(self, places: Places) -> int:
        """Return how much memory the rows of some places take, in multiples of a row without contents."""
        return max(len(places), places.bytes // _CONTENT_UNIT_BYTES if self.has_contents else 0)

    def values(self, places: Places, files: operations.PlainFiles) -> tuple[bytes, bytes, bytes]:
        made = self.made(places, files)
        if made is None:
            return b"", b"", b""
        slow: list[Array] = []
        # How many entries is there even when none was chosen, so that the row is not taken for an unproven one.
        head = [(made.entries, 0)]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, ENTRY_SCHEMA if self.entries is not None else self.columns.schema) as stream:
            for ids, batches in made.runs:
                if batches is None:
                    slow.append(ids)
                for one in batches or ():
                    stream.write_batch(one)
                head.append((len(ids), _SLOW if batches is None else len(batches)))
        has_rows = any(count > 0 for _, count in head[1:])  # else there is the schema alone, a kilobyte
        return _bytes_of(slow), np.array(head, np.int64).tobytes(), sink.getvalue().to_pybytes() if has_rows else b""

    def made(self, places: Places, files: operations.PlainFiles) -> MadeRuns | None:
        """Return the rows of the entries at these places; None if the process with the store has to read them."""
        if self.has_contents and places.bytes >= LARGE_BYTES:
            return None
        batch = PlacesReader(files, False, None).read_places(places)
        if doubtful(batch, places).any():
            return None
        batch = self.columns.screened(batch if self.times is None else within(batch, self.times))
        return MadeRuns(len(batch), self._runs(batch))

    def _runs(self, batch: EntryBatch) -> Iterator[Run]:
        ids = np.stack([batch.ledger_ids, batch.entry_ids], axis=1)
        if self.entries is not None:
            yield ids, [rows for rows in (entry_batch(batch, self.entries),) if len(rows)]
            return
        finish = self.columns.finisher()
        for run, rows in message_runs(self.columns.unwrap(batch), schema_of(self.columns.names), self.columns.match):
            yield ids[run], None if rows is None else [one for one in finish([rows]) if len(one)]


Run = tuple[Array, list[pa.RecordBatch] | None]
"""The ids of entries, and their rows; None: the process with the store has to read them."""


class MadeRuns(NamedTuple):
    """The number of selected entries, and their rows, run by run."""

    entries: int
    runs: Iterator[Run]


def _bytes_of(ids: Sequence[Array]) -> bytes:
    return b"".join(part.tobytes() for part in ids)


class RowsOfTopics(Struct, operations.PlacesOperation, frozen=True):
    """Applies the ``MakeRows`` of a batch's topic, which the batch's first ledger determines."""

    works: Sequence[MakeRows]
    of_ledgers: Mapping[int, int]

    COLUMNS = MakeRows.COLUMNS

    def values(self, places: Places, files: operations.PlainFiles) -> tuple[bytes, bytes, bytes]:
        return self.works[self.of_ledgers[int(places.ledger_ids[0])]].values(places, files)


class WriteRows(Struct, operations.PlacesOperation, frozen=True):
    """Operation that writes the rows of ``MakeRows`` into files, and returns the files that end with a run instead of
    its Arrow batches. A topic's files end before entries that the process with the store has to read.

    ``of_ledgers``: first ledger of a batch → (index in ``works``, topic).
    """

    works: Sequence[MakeRows]
    of_ledgers: Mapping[int, tuple[int, str]]
    to: WriteTo

    COLUMNS = ("ids", "runs", "files")

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield a row per batch of places; the files that it names are complete."""
        from pulsar_admin.store.dump.files import DayFiles  # pyarrow.parquet

        def path_of(topic: str, day: int, number: int) -> Path:  # another one where a slice is run again
            return Path(self.to.directory, f"{uuid4().hex}.{self.to.form}")

        with closing(DayFiles(self.to.form, self.to.clock, self.to.hidden, path_of)) as days:
            yield packed_rows(self.schema, [row.packed() for row in self._written(piece, days)])

    def _written(self, piece: FileRange, days: DayFiles) -> list[_Row]:
        rows: list[_Row] = []
        last: _Row | None = None  # whose last run is the last in open files
        undecoded = 0

        def end_files() -> None:
            nonlocal last, undecoded
            if last is not None:
                files = days.finish()
                for file in files:
                    file.host = platform.node()
                files[0].undecoded, undecoded = undecoded, 0
                last.files += files
                last.head[-1] = last.head[-1][0], len(files)
                last = None

        topic = ""
        for places, files in operations.iter_batches(piece):
            of, name = self.of_ledgers[int(places.ledger_ids[0])]
            if name != topic:
                end_files()
                topic = name
            made = self.works[of].made(places, files)
            rows.append(row := _Row())
            if made is None:
                end_files()
                continue
            row.head.append((made.entries, 0))
            for ids, batches in made.runs:
                if batches is None:
                    end_files()
                    row.slow.append(ids)
                row.head.append((len(ids), _SLOW if batches is None else 0))
                for batch in batches or ():
                    undecoded += undecoded_in(batch)
                    days.add(topic, operations.redact_batch(batch) if self.to.redact else batch)
                    last = row
        end_files()
        return rows


class _Row(Struct):
    """The row of a batch in the result of ``WriteRows``, empty if the process with the store has to read the batch."""

    slow: list[Array] = field(default_factory=list)
    head: list[tuple[int, int]] = field(default_factory=list)
    files: list[WrittenFile] = field(default_factory=list)

    def packed(self) -> tuple[bytes, bytes, bytes]:
        return _bytes_of(self.slow), np.array(self.head, np.int64).tobytes(), encode(self.files) if self.files else b""


def undecoded_in(batch: pa.RecordBatch) -> int:
    """Return the number of rows whose value cannot be decoded."""
    return len(batch) - batch.column("valueError").null_count if "valueError" in batch.schema.names else 0


class TopicWindow(NamedTuple):
    """The entries of a topic to read, and the operation that makes their rows."""

    found: WindowScan
    work: MakeRows


class WindowsAsOne:
    """Windows of topics that share no ledger, which the reader's engine reads in one run. ``placed`` yields each
    window's rows; call it in the order of the windows."""

    def __init__(
        self,
        reader: EntryReader,
        windows: Mapping[TopicName, TopicWindow],
        ledgers: Mapping[int, TopicName],
        to: WriteTo | None,
    ) -> None:
        """``to``: the engine's processes write the rows there, and the results name the files."""
        self.windows = windows
        self._order = {name: index for index, name in enumerate(windows)}
        self._owners: deque[int] = deque()  # of the places that were handed out
        self._failed: dict[int, StoreError] = {}
        self._head: tuple[int, Places, dict[str, bytes] | None] | None = None
        self._rows = self._run(reader, ledgers, to)

    def placed(self, name: TopicName) -> PlacedRows:
        """Yield (places, packed row) of a topic, dropping any of earlier ones; raises the error of finding places."""
        wanted = self._order[name]
        while (head := self._head or next(self._rows, None)) is not None and head[0] <= wanted:
            self._head = None
            if head[0] == wanted:
                yield head[1:]
        self._head = head
        if wanted in self._failed:
            raise self._failed[wanted]

    def close(self) -> None:
        """Stop the engine's run."""
        self._rows.close()

    def _run(
        self, reader: EntryReader, ledgers: Mapping[int, TopicName], to: WriteTo | None
    ) -> Generator[tuple[int, Places, dict[str, bytes] | None], None, None]:
        works: list[MakeRows] = []
        of_topics: dict[TopicName, int] = {}
        for name, (_, work) in self.windows.items():
            if work not in works[-1:]:
                works.append(work)
            of_topics[name] = len(works) - 1
        of_ledgers = {id_: name for id_, name in ledgers.items() if name in of_topics}
        operation: Operation | None = None
        if to is not None:
            named = {id_: (of_topics[name], str(name)) for id_, name in of_ledgers.items()}
            operation = WriteRows(works, named, to)
        elif len(works) > 1:
            operation = RowsOfTopics(works, {id_: of_topics[name] for id_, name in of_ledgers.items()})
        for places, row in _run_work(reader, works[0], self._groups(), operation, to):
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
    reader: EntryReader,
    work: MakeRows,
    groups: Iterable[Places],
    operation: Operation | None = None,
    to: WriteTo | None = None,
) -> PlacedRows:
    """Yield (places, the packed row that ``work``, or ``operation`` in its stead, makes of them) by the reader's
    engine.

    ``to``: the directory to which ``operation`` writes rows.
    """
    assert reader.engine is not None
    if to is not None:
        return operations.run_places(
            reader.engine, operation or work, reader.files, groups, piece_bytes=operations.PIECE_BYTES, beside=to.lock
        )
    piece_bytes = CONTENT_PIECE_BYTES if work.has_contents else operations.PIECE_BYTES
    return operations.run_places(reader.engine, operation or work, reader.files, groups, work.weight, piece_bytes)


def rows_on(
    window: TopicWindow, convert: Convert, slow: MessageColumns | None, placed: PlacedRows | None
) -> Iterator[tuple[int, list[Rows]]]:
    """Yield (number of entries, their rows) of the window in order, made by the engine of the scan's reader."""
    read, work = window
    scan = read.scan
    finish = work.columns.finisher()
    kept = 0  # bytes of contents since memory was given back
    for places, row in _run_work(scan.reader, work, scan.groups()) if placed is None else placed:
        if row is None or not row["runs"]:
            yield from _rows_here(read, places, convert)
        else:
            (entries, _), *runs = np.frombuffer(row["runs"], np.int64).reshape(-1, 2).tolist()
            yield entries, list(_in_order(runs, row, slow, finish))
        del row
        scan.reader.advance(places.bytes)
        kept += places.bytes if work.has_contents else 0
        if kept >= _ROUND_BYTES:
            give_back()
            kept = 0


def _rows_here(found: WindowScan, places: Places, convert: Convert) -> Iterator[tuple[int, list[Rows]]]:
    """Yield (number of entries, their rows) at these places, read in this process.

    A function of its own, so that a large entry is freed when it returns.
    """
    for batch in found.scan.read_here(places):
        entries = found.chosen(batch)
        yield len(entries), list(convert(entries))


def _in_order(
    runs: list[list[int]], row: dict[str, bytes], slow: MessageColumns | None, finish: Finish
) -> Iterator[Rows]:
    batches: Iterator[Rows]
    if "files" in row:
        batches = iter(decode(row["files"], type=list[WrittenFile]) if row["files"] else ())
    else:
        batches = iter(pa.ipc.open_stream(row["batches"]) if row["batches"] else ())
    ids = iter(np.frombuffer(row["ids"], np.int64).reshape(-1, 2).tolist())
    for entries, count in runs:
        if count != _SLOW:
            yield from islice(batches, count)
        else:
            positions = [Position(*position) for position in islice(ids, entries)]
            if slow is not None:
                yield from finish(slow.read_slowly(positions))
