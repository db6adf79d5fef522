"""Entry logs being written: one after the other, each sealed with a ledgers map when the next one begins.

The newest log stays unsealed, as a bookie that was stopped leaves it.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pulsar_admin.store.codec.entrylog import (
    CURRENT_VERSION,
    HEADER_BYTES,
    EntryLogHeader,
    encode_header,
    encode_ledgers_map,
    log_file_name,
)
from pulsar_admin.store.files import create_file
from pulsar_admin.store.sources.locations_writer import Locations

BUFFER_BYTES = 8 << 20
POSITIONS = 1 << 16


class EntryLogs:
    """A buffer that the kernel writes into, and the log files it goes to.

    ``buffer[at:]`` is free; offset 0 of the buffer is ``base`` of the log. ``limit_bytes`` is upstream's ``logSizeLimit``: a
    record that would pass it begins the next log.
    """

    def __init__(self, directory: Path, limit_bytes: int, record_bytes_max: int, locations: Locations) -> None:
        self.buffer = np.empty(BUFFER_BYTES + record_bytes_max, np.uint8)
        self.positions = np.empty(POSITIONS, np.int64)
        self.at = 0
        self.bytes = 0
        self.files = 0
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._locations = locations
        self._log_id = -1
        self._base = 0
        self._sizes: dict[int, int] = {}
        self._stack = ExitStack()
        self._file: BinaryIO
        self._open_next()

    @property
    def last_id(self) -> int:
        """The id of the newest log."""
        return self._log_id

    @property
    def end_of_log(self) -> int:
        """The buffer offset that the log's limit is at."""
        return self._limit_bytes - self._base

    def took(self, ledger_id: int, first_entry: int, count: int, end: int) -> None:
        """Note ``count`` records of ``ledger_id`` that the kernel put into ``buffer[at:end]``, their positions in ``positions``."""
        self._sizes[ledger_id] = self._sizes.get(ledger_id, 0) + end - self.at
        location = (self._log_id << 32) + self._base
        self._locations.add(ledger_id, first_entry + np.arange(count), self.positions[:count] + location)
        self.at = end
        if self.at >= BUFFER_BYTES:
            self._flush()

    def roll(self) -> None:
        """Seal the log and begin the next."""
        self._flush()
        offset = self._base
        packed = encode_ledgers_map(self._sizes)
        self._file.write(packed)
        self._file.seek(0)
        self._file.write(encode_header(EntryLogHeader(CURRENT_VERSION, offset, len(self._sizes))))
        self.bytes += len(packed)
        self._stack.close()
        self._open_next()

    def __enter__(self) -> EntryLogs:
        return self

    def __exit__(self, *error: Any) -> None:  # Any: an exception's three parts
        """Write what is in the buffer and close the newest log, unsealed."""
        if error[0] is None:
            self._flush()
        self._stack.__exit__(*error)

    def _open_next(self) -> None:
        self._log_id += 1
        self._sizes = {}
        self._file = self._stack.enter_context(
            create_file(self._directory / log_file_name(self._log_id), durable=False)
        )
        self._file.write(encode_header(EntryLogHeader(CURRENT_VERSION, 0, 0)))
        self.files += 1
        self.bytes += HEADER_BYTES
        self._base = HEADER_BYTES

    def _flush(self) -> None:
        self._file.write(memoryview(self.buffer.data)[: self.at])
        self._base += self.at
        self.bytes += self.at
        self.at = 0
