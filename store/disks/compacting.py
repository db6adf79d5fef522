"""Live records put together in new entry logs, byte for byte, in BookKeeper's format: header, records, ledgers map.

Source: ``DefaultEntryLogger``, ``TransactionalEntryLogCompactor`` (BookKeeper 4.17). Until a log is complete and was read back, it has the
name that upstream's compaction gives it, ``<id>.log.compacting``, which bookies ignore.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from msgspec import Struct

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec import entrylog
from pulsar_admin.store.disks.live_records import IndexRows, LiveRecords, join_places
from pulsar_admin.store.errors import EntryLogCorrupt
from pulsar_admin.store.files import create_file, open_file, remove_file
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan.files import FileScan, LedgerDigests, Slice

COMPACTING = ".compacting"
_WINDOW_BYTES = 4 << 20


class NewLog(Struct, frozen=True):
    """A log that was written under its unfinished name; ``places``: of its records, in their order; ``digest``: of all their bytes."""

    log_id: int
    unfinished: Path
    places: IndexRows
    end: int
    digest: bytes

    @property
    def path(self) -> Path:
        """Its name once it is one of the bookie's."""
        return self.unfinished.with_name(entrylog.log_file_name(self.log_id))


class LogCompactor:
    """Appends records to new logs of a directory, numbered from ``first_id`` on, and reads each log back.

    Use in ``with``: the new logs are deleted if the block raises.
    """

    def __init__(self, directory: Path, first_id: int, like: os.stat_result) -> None:
        self._directory = directory
        self._next_id = first_id
        self._like = like
        self._stack: ExitStack | None = None
        self._file: BinaryIO
        self._position = 0
        self._digest = blake2b(digest_size=16)
        self._parts: list[IndexRows] = []
        self._sizes: dict[int, int] = {}
        self.logs: list[NewLog] = []

    def add(self, live: LiveRecords) -> None:
        """Append live records."""
        ends = np.cumsum(live.sizes)
        done = 0
        with open_file(live.path) as source:
            while done < len(ends):
                if self._stack is None:
                    unfinished = self._directory / f"{entrylog.log_file_name(self._next_id)}{COMPACTING}"
                    self._stack = ExitStack()
                    self._file = self._stack.enter_context(create_file(unfinished, like=self._like))
                    self._file.write(entrylog.encode_header(entrylog.EntryLogHeader(entrylog.CURRENT_VERSION, 0, 0)))
                    self._position, self._sizes, self._parts = entrylog.HEADER_BYTES, {}, []
                    self._digest = blake2b(digest_size=16)
                    self._unfinished = unfinished
                written = int(ends[done - 1]) if done else 0
                fits = int(np.searchsorted(ends, written + entrylog.LOG_LIMIT_BYTES - self._position, "right"))
                if fits == done:  # an empty log holds every record
                    self._seal()
                    continue
                self._append(source, live, slice(done, fits))
                done = fits

    def _append(self, source: BinaryIO, live: LiveRecords, rows: slice) -> None:
        offsets, sizes, ledger_ids = live.offsets[rows], live.sizes[rows], live.ledger_ids[rows]
        new = self._position + np.cumsum(sizes) - sizes
        for chunk in _iter_chunks(source, offsets, sizes):
            self._file.write(chunk)
            self._digest.update(chunk)
        self._position += int(sizes.sum())
        self._parts.append(IndexRows(ledger_ids, live.entry_ids[rows], np.full(len(new), self._next_id, np.int64), new))
        distinct, inverse = np.unique(ledger_ids, return_inverse=True)
        sums = np.bincount(inverse, sizes).astype(np.int64)
        for ledger_id, size in zip(distinct.tolist(), sums.tolist(), strict=True):
            self._sizes[ledger_id] = self._sizes.get(ledger_id, 0) + size

    def _seal(self) -> None:
        """Write the ledgers map and the header that names it, make the log durable and read it back."""
        assert self._stack is not None
        end = self._position
        # The header names the map only now that it is written: without one, as after a kill, a log is scanned.
        self._file.write(entrylog.encode_ledgers_map(self._sizes))
        self._file.seek(0)
        self._file.write(
            entrylog.encode_header(entrylog.EntryLogHeader(entrylog.CURRENT_VERSION, end, len(self._sizes)))
        )
        self._stack.close()
        self._stack = None
        log = NewLog(self._next_id, self._unfinished, join_places(self._parts), end, self._digest.digest())
        self.logs.append(log)
        self._next_id += 1
        check_written(log)

    def finish(self) -> None:
        """Seal the last log."""
        if self._stack is not None:
            self._seal()

    def __enter__(self) -> LogCompactor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is None:
            return
        if self._stack is not None:
            self._stack.__exit__(kind, error, trace)  # create_file removes its file
        for log in self.logs:
            remove_file(log.unfinished)


def _iter_chunks(source: BinaryIO, offsets: Array, sizes: Array) -> Iterator[bytes]:
    """Yield the bytes of the records at these ascending offsets, with few reads; raises EntryLogCorrupt if the file ends before them."""
    breaks = np.flatnonzero(offsets[1:] != offsets[:-1] + sizes[:-1]) + 1
    starts = offsets[np.append(0, breaks)].tolist()
    lasts = np.append(breaks, len(offsets)) - 1
    ends = (offsets[lasts] + sizes[lasts]).tolist()
    run = 0
    while run < len(starts):
        last = run
        # Gaps between neighbouring runs are read along: one read of a window costs less than a read for each run.
        while last + 1 < len(starts) and ends[last + 1] - starts[run] <= _WINDOW_BYTES:
            last += 1
        if last > run:
            window = memoryview(_read(source, starts[run], ends[last]))
            base = starts[run]
            yield b"".join(
                window[start - base : end - base]
                for start, end in zip(starts[run : last + 1], ends[run : last + 1], strict=True)
            )
        else:
            for start in range(starts[run], ends[run], _WINDOW_BYTES):
                yield _read(source, start, min(start + _WINDOW_BYTES, ends[run]))
        run = last + 1


def _read(source: BinaryIO, start: int, end: int) -> bytes:
    data = os.pread(source.fileno(), end - start, start)
    if len(data) != end - start:
        raise EntryLogCorrupt(f"{source.name} @ {start:#x}: wanted {end - start} bytes, got {len(data)}")
    return data


def check_written(log: NewLog) -> None:
    """Read a log back and compare: the same entries in the same places, every digest right, the same bytes. Raises EntryLogCorrupt."""
    path = log.unfinished
    # Each digest type is found by trying, so the check needs no metadata, which may be wrong.
    nothing_known = LedgerDigests.of({})
    scan = FileScan(Slice(str(path), FileKind.ENTRY_LOG, 0, path.stat().st_size), nothing_known, verify=True)
    at = 0
    same = True
    for batch in scan.batches():
        end = at + len(batch)
        same &= end <= len(log.places.offsets) and all(
            bool((batch[name] == column[at:end]).all())
            for name, column in (
                ("ledger_id", log.places.ledger_ids),
                ("entry_id", log.places.entry_ids),
                ("offset", log.places.offsets),
            )
        )
        at = end
    if scan.problems or not same or at != len(log.places.offsets) or _digest_of(path, log.end) != log.digest:
        reason = scan.problems[0].reason if scan.problems else "other bytes than were written"
        raise EntryLogCorrupt(
            f"{path} does not read back: {reason}",
            hint="see the kernel's messages (dmesg); the old logs are as they were",
        )


def _digest_of(path: Path, end: int) -> bytes:
    digest = blake2b(digest_size=16)
    with open_file(path) as file:
        for start in range(entrylog.HEADER_BYTES, end, _WINDOW_BYTES):
            digest.update(_read(file, start, min(start + _WINDOW_BYTES, end)))
    return digest.digest()


def bytes_of_logs(records: Iterable[int], ledgers: int) -> int:
    """Return about how many bytes new logs with these records (bytes per part) and this number of ledgers take."""
    total = sum(records)
    logs = -(-total // (entrylog.LOG_LIMIT_BYTES - entrylog.HEADER_BYTES)) if total else 0
    return total + logs * entrylog.HEADER_BYTES + 16 * ledgers + 24 * logs
