"""A directory of dumped files: ``topic=…/day=…/part-N``, written in the background, complete when it has its manifest.

Partition directories follow Hive's naming, so that Spark, DuckDB and pyarrow read ``topic`` and ``day`` as columns. A
directory named ``….unfinished`` is being written by the process that holds its lock, or was abandoned; a finished dump
has a manifest with every file and its number of rows. Payloads are private: files have mode 0600, directories 0700.

A separate process writes large columns of a Parquet file: Arrow's writer holds a value three times (its own, the page's
values, the page), which for 100 MB is too much for the process that also reads and decodes entries.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from hashlib import sha256
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct, field

from pulsar_admin.store.db.clocks import Clock
from pulsar_admin.store.dump.tables import day_name, json_text, known_text, split_by_day
from pulsar_admin.store.dump.written import Format, WriteTo, WrittenFile
from pulsar_admin.store.engine.memory import give_back
from pulsar_admin.store.errors import AlreadyExists, NotFound, SourceBusy, SourceNotFound, StoreError
from pulsar_admin.store.files import (
    check_new,
    create_directory,
    create_file,
    open_lock_file,
    remove_file,
    remove_tree,
    rename,
    replace_file,
    writing,
)

DUMP_FORMAT = 1
GROUP_ROWS = 1 << 17
_DICTIONARIES = [
    "batchIndex",
    "key",
    "producer",
    "properties.key_value.key",
    "deliverAtTime",
    "publishTime",
    "brokerTime",
]
_DICTIONARIES += ["encrypted", "nullValue", "chunks", "transaction", "messages", "ledgerTimestamp", "ledgerId"]


def open_parquet(path: Path, schema: pa.Schema, *, compressed: bool = True) -> Any:  # Any: pyarrow has no types
    """Open a file for Arrow to write to directly: a Python file object would copy every page."""
    return pq.ParquetWriter(
        str(path),
        schema,
        compression="zstd" if compressed else "none",
        compression_level=1 if compressed else None,
        use_dictionary=[name for name in _DICTIONARIES if name.partition(".")[0] in schema.names],
        # A payload's statistics are copies of the least and the greatest.
        write_statistics=[name for name in schema.names if name != "payload"],
        write_page_checksum=True,
        store_schema=False,
    )


def write_apart(path: Path, table: pa.Table) -> None:
    """Write a table to an uncompressed file in a new process; raises that process's OSError or MemoryError."""
    from pulsar_admin.store.engine.starting import start_process  # no other format needs it

    connection, process = start_process(_write, str(path))
    try:
        with (
            suppress(BrokenPipeError),  # it ended: what it says tells why
            _file_of(connection, "wb") as pipe,
            pa.ipc.new_stream(pipe, table.schema) as stream,
        ):
            stream.write_table(table)
        error = connection.recv()
    except (EOFError, ConnectionResetError) as ended:
        raise MemoryError(f"the process that writes {path} was killed") from ended
    finally:
        connection.close()
        process.join()
    if error is not None:
        raise error


def _write(connection: Connection, path: str) -> None:
    """Write the table received on a connection to a file, and send back the error or None."""
    with _file_of(connection, "rb") as pipe, pa.ipc.open_stream(pipe) as stream:
        table = stream.read_all()
    try:
        with open_parquet(Path(path), table.schema, compressed=False) as writer:
            writer.write_table(table, row_group_size=GROUP_ROWS)
    except (OSError, MemoryError) as error:
        connection.send(error)
    else:
        connection.send(None)


def _file_of(connection: Connection, mode: str) -> IO[bytes]:
    return open(connection.fileno(), mode, closefd=False)


MANIFEST = "_manifest.json"
LOCK = ".lock"
STAGING = ".written"
PRIVATE_FILE, PRIVATE_DIRECTORY = 0o600, 0o700
OPEN_FILES_MAX = 64
GROUP_BYTES = 32 << 20
PENDING_BYTES = 128 << 20
LARGE_BYTES = 64 << 20  # rows of so many bytes, one value that is, have a file for themselves
_NAME_BYTES_MAX = 200


def topic_directory(topic: str) -> str:
    """Return the directory name of a topic's partition; a name too long for a file system is its digest."""
    name = quote(topic, safe="")
    return f"topic={name if len(name) <= _NAME_BYTES_MAX else sha256(topic.encode()).hexdigest()}"


class _Part(Struct):
    """The rows of one day of one topic that wait to be written, and the file they go to. ``number``: how many files it has."""

    topic: str
    day: int
    number: int = 0
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_bytes: int = 0
    file: _Open | None = None


class _Open:
    """A file being written, durable when closed."""

    def __init__(
        self, written: WrittenFile, schema: pa.Schema, topic: str, form: Format, *, large: bool, is_known: bool
    ) -> None:
        """``large``: do not compress, because compression would hold a large value in memory once more.

        ``is_known``: the columns have another tool's names.
        """
        path = Path(written.path)
        self._is_known = is_known
        self._stack = ExitStack()
        self._topic = topic
        self._form = form
        self._large = large
        self._written = written
        self._schema = schema.with_metadata({"topic": topic, "dump": str(DUMP_FORMAT)})
        self._file = self._stack.enter_context(create_file(path, mode=PRIVATE_FILE))
        self._parquet: Any = None  # Any: pyarrow has no types
        if form == "parquet" and not large:
            with writing(path):
                self._parquet = open_parquet(path, self._schema)

    def write(self, table: pa.Table) -> None:
        path = Path(self._written.path)
        self._written.rows += len(table)
        with writing(path):
            if self._parquet is not None:
                self._parquet.write_table(table, row_group_size=GROUP_ROWS)
                return
            if self._form == "parquet":
                write_apart(path, table.cast(self._schema))
                return
            for batch in table.to_batches():
                pieces = known_text(batch) if self._is_known else json_text(self._topic, batch)
                self._file.writelines(piece.encode() for piece in pieces)

    def close(self) -> None:
        with self._stack:
            if self._parquet is not None:
                self._parquet.close()
        self._written.bytes = os.stat(self._written.path).st_size

    def abandon(self) -> None:
        """Remove the file."""
        with suppress(StoreError, OSError):  # closing it writes what waits, for which a full disk has no room
            self._stack.__exit__(RuntimeError, RuntimeError(), None)


class DayFiles:
    """Writes rows, which come in topic order, into files of one topic and one day each."""

    def __init__(
        self,
        form: Format,
        clock: Clock,
        hidden: Sequence[str],
        path_of: Callable[[str, int, int], Path],
        pool: ThreadPoolExecutor | None = None,
    ) -> None:
        """``hidden``: columns that only determine a row's day and are not written; the others have another tool's
        names.

        ``path_of``: topic, day and number → path of that file. ``pool``: the one thread that writes; None: the caller's
        thread writes. A process with bounded memory must pass None: a thread may fail to start there, and waiting for
        it never ends.
        """
        self._form: Format = form
        self._clock: Clock = clock
        self._hidden = list(hidden)
        self._path_of = path_of
        self._parts: dict[tuple[str, int], _Part] = {}
        self._pool = pool
        self._running: list[Future[None]] = []
        self._files: list[WrittenFile] = []

    def add(self, topic: str, batch: pa.RecordBatch) -> None:
        """Add a batch, which may be written later."""
        for day, of_day in split_by_day(batch, self._clock):
            rows = of_day.drop_columns(self._hidden) if self._hidden else of_day
            part = self._part(topic, day)
            if rows.nbytes >= LARGE_BYTES:
                self._flush(part)
            part.waiting.append(rows)
            part.waiting_rows += len(rows)
            part.waiting_bytes += rows.nbytes
            if part.waiting_rows >= GROUP_ROWS or part.waiting_bytes >= GROUP_BYTES:
                self._flush(part)
        while sum(part.waiting_bytes for part in self._parts.values()) > PENDING_BYTES:
            self._flush(max(self._parts.values(), key=lambda part: part.waiting_bytes))

    def take(self, topic: str, written: WrittenFile) -> None:
        """Add a file that another process wrote, after the rows so far; raises SourceNotFound if it is missing."""
        part = self._part(topic, written.day)
        self._flush(part)
        self._in_background(lambda: self._take(part, written))

    def finish(self) -> list[WrittenFile]:
        """Write the remaining rows; return the files begun since the last call, in that order."""
        for part in self._parts.values():
            self._flush(part)
            self._in_background(lambda part=part: self._close(part))  # type: ignore[misc]  # binds this one
        self._wait()
        self._parts.clear()
        files, self._files = self._files, []
        return files

    def close(self) -> None:
        """Stop writing, and remove incomplete files."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        for part in self._parts.values():
            if part.file is not None:
                part.file.abandon()

    def _part(self, topic: str, day: int) -> _Part:
        part = self._parts.pop((topic, day), None) or _Part(topic, day)
        self._parts[topic, day] = part  # the last used one is the last in order
        return part

    def _flush(self, part: _Part) -> None:
        if not part.waiting:
            return
        table = pa.Table.from_batches(part.waiting)
        part.waiting, part.waiting_rows, part.waiting_bytes = [], 0, 0
        large = table.nbytes >= LARGE_BYTES
        if large:
            self._in_background(lambda: self._close(part))
            self._in_background(give_back)
            self._wait()
        self._in_background(lambda: self._write(part, table, large=large))
        if large:
            self._in_background(lambda: self._close(part))
            self._in_background(give_back)
            self._wait()
        opened = [other for other in self._parts.values() if other.file is not None and other is not part]
        for other in opened[: max(0, len(opened) - OPEN_FILES_MAX + 1)]:
            self._in_background(lambda other=other: self._close(other))  # type: ignore[misc]  # binds this one

    def _in_background(self, work: Callable[[], None]) -> None:
        """Run ``work`` in the pool's thread, or without a pool at once; wait first while two jobs are unfinished."""
        if self._pool is None:
            work()
            return
        while len(self._running) >= 2:
            self._running.pop(0).result()
        self._running.append(self._pool.submit(work))

    def _wait(self) -> None:
        """Wait for all jobs in the background."""
        while self._running:
            self._running.pop(0).result()

    def _write(self, part: _Part, table: pa.Table, *, large: bool) -> None:
        if part.file is None:
            written = WrittenFile(str(self._next_path(part)), part.day)
            is_known = bool(self._hidden)
            part.file = _Open(written, table.schema, part.topic, self._form, large=large, is_known=is_known)
            self._files.append(written)
        part.file.write(table)

    def _take(self, part: _Part, written: WrittenFile) -> None:
        self._close(part)
        try:
            size = os.stat(written.path).st_size
        except OSError:
            size = None
        if size != written.bytes:
            raise SourceNotFound(
                f"{written.host} wrote {written.path}, which this machine does not see",
                hint="name a directory that driver and executors share; nothing was written",
                path=written.path,
            )
        path = self._next_path(part)
        rename(Path(written.path), path)
        written.path = str(path)
        self._files.append(written)

    def _next_path(self, part: _Part) -> Path:
        part.number += 1
        return self._path_of(part.topic, part.day, part.number - 1)

    def _close(self, part: _Part) -> None:
        if part.file is not None:
            opened, part.file = part.file, None
            opened.close()


class DumpDirectory(DayFiles):
    """Takes batches of rows in topic order; use in ``with``: the directory gets its name when the block ends."""

    def __init__(self, path: Path, form: Format, clock: Clock, level: str, hidden: Sequence[str] = ()) -> None:
        """``hidden``: as in ``DayFiles``."""
        super().__init__(form, clock, hidden, self._place, ThreadPoolExecutor(1))
        check_new(path)
        self._path = path
        self._lock: int | None = None
        self._unfinished = path.with_name(path.name + ".unfinished")
        self._staging = self._unfinished / STAGING
        self._level = level

    @property
    def files(self) -> int:
        """How many files are finished."""
        return len(self._files)

    @property
    def bytes(self) -> int:
        """The size of the finished files."""
        return sum(file.bytes for file in self._files)

    def open_to_others(self, *, redact: bool) -> WriteTo:
        """Return the directory and format in which other processes write the files for ``take``."""
        create_directory(self._staging, mode=PRIVATE_DIRECTORY)
        place, lock = (str(path.absolute()) for path in (self._staging, self._unfinished / LOCK))
        return WriteTo(place, lock, self._form, self._clock, self._hidden, redact)

    def _place(self, topic: str, day: int, number: int) -> Path:
        directory = self._unfinished / topic_directory(topic) / f"day={day_name(day)}"
        create_directory(directory.parent, exist_ok=True, mode=PRIVATE_DIRECTORY)
        create_directory(directory, exist_ok=True, mode=PRIVATE_DIRECTORY)
        return directory / f"part-{number:05d}.{self._form}"

    def __enter__(self) -> DumpDirectory:
        self._lock = _take_lock(self._path, self._unfinished)
        for left in self._unfinished.iterdir():  # of a dump that was killed
            is_directory = left.is_dir() and not left.is_symlink()
            if left.name != LOCK and not (is_directory and left.name == STAGING):
                remove_tree(left) if is_directory else remove_file(left)
        self._remove_staging()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            try:
                self._finish()
            except BaseException:
                self._give_up()
                raise
        else:
            self._give_up()

    def _finish(self) -> None:
        self._files = self.finish()
        self.close()
        self._remove_staging()
        files = [{"path": os.path.relpath(file.path, self._unfinished), "rows": file.rows} for file in self._files]
        manifest = {"dump": DUMP_FORMAT, "level": self._level, "format": self._form, "files": files}
        replace_file(self._unfinished / MANIFEST, json.dumps(manifest, indent=1).encode() + b"\n", mode=PRIVATE_FILE)
        check_new(self._path)
        rename(self._unfinished, self._path)
        remove_file(self._path / LOCK)  # not before: until it has its name, nobody else may write there
        self._release()

    def _remove_staging(self) -> None:
        """Remove files that other processes wrote and that are not used, such as those of a task that ran twice."""
        if self._staging.exists():
            # Under another name first: who still writes there makes no file in a directory that is being removed.
            gone = self._staging.with_name(STAGING + ".gone")
            rename(self._staging, gone)
            remove_tree(gone)

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _give_up(self) -> None:
        self.close()
        if self._lock is not None:
            self._remove_staging()
            remove_tree(self._unfinished)
            self._release()


def _take_lock(path: Path, unfinished: Path) -> int:
    """Create or reuse the directory ``unfinished``, later renamed to ``path``, and lock it; return the lock's
    descriptor.

    Raises SourceBusy while another process writes there, AlreadyExists when it finished first or ``unfinished`` is a link.
    """
    while True:
        check_new(path)
        create_directory(unfinished, exist_ok=True, mode=PRIVATE_DIRECTORY)
        if unfinished.is_symlink():  # all that it leads to would be removed
            raise AlreadyExists(f"{unfinished} is a link", hint="remove it, or name another directory", path=str(path))
        with suppress(FileNotFoundError, NotFound):  # who held the lock is done, and its directory went: look again
            return _lock(path, unfinished / LOCK)


def _lock(path: Path, file: Path) -> int:
    descriptor = open_lock_file(file)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(file)):
            return descriptor
    except BlockingIOError as error:
        os.close(descriptor)
        raise SourceBusy(
            f"another process is dumping to {path}", hint="wait for it, or name another directory", path=str(path)
        ) from error
    except FileNotFoundError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    raise FileNotFoundError(file)
