"""Writes a bookie's ``locations`` database, as a RocksDB write-ahead log that RocksDB itself then takes in.

A row for every entry is needed, and a call for every row would cost more than all the rest of the work. The log's format
is fixed-width here: blocks of 32 KiB, two whole records each, 606 puts a record (rocksdb/db/log_format.h, write_batch.cc):

======  ====  ================================================================================
offset  size  field of a record
======  ====  ================================================================================
0       4     masked CRC-32C of everything after the length, little-endian
4       2     length of what follows the type, little-endian
6       1     type: 1, a whole record
7       8     sequence number of the first put, little-endian
15      4     number of puts, little-endian
19      27 n  puts: 1 | 16 | ledger id i64, entry id i64 | 8 | location i64
======  ====  ================================================================================
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.rockslog import BLOCK_BYTES, masked_crc
from pulsar_admin.store.files import create_file
from pulsar_admin.store.sources.rocksdb import create_database

_PUT = np.dtype(
    [("tag", "u1"), ("key", "u1"), ("ledger", ">i8"), ("entry", ">i8"), ("value", "u1"), ("location", ">i8")]
)
_PUTS = 606
_RECORD = np.dtype(
    [("crc", "<u4"), ("length", "<u2"), ("type", "u1"), ("sequence", "<u8"), ("count", "<u4"), ("puts", _PUT, (_PUTS,))]
)
_BLOCK = np.dtype([("records", _RECORD, (2,)), ("padding", "u1", (BLOCK_BYTES - 2 * _RECORD.itemsize,))])
_BLOCKS = 64
_HEAD_BYTES = 7
_FULL_RECORD = 1


class Locations:
    """Collects rows in fixed memory and writes them; the end of the ``with`` block creates the database in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = directory.with_name(directory.name + ".rows")
        self._blocks = np.zeros(_BLOCKS, _BLOCK)
        records = self._blocks["records"]
        records["type"], records["length"] = _FULL_RECORD, _RECORD.itemsize - _HEAD_BYTES
        records["count"] = _PUTS
        puts = records["puts"]
        puts["tag"], puts["key"], puts["value"] = 1, 16, 8
        self._rows = np.zeros(_BLOCKS * 2 * _PUTS, [("ledger", np.int64), ("entry", np.int64), ("location", np.int64)])
        self._used = 0
        self._sequence = 1
        self._stack = ExitStack()
        self._file = self._stack.enter_context(create_file(self._log, durable=False))

    def add(self, ledger_ids: Array | int, entry_ids: Array, locations: Array) -> None:
        """Add rows; ``locations``: log id << 32 | position. Of several rows for an entry, the one added last stays."""
        done = 0
        while done < len(locations):
            count = min(len(locations) - done, len(self._rows) - self._used)
            rows = self._rows[self._used : self._used + count]
            rows["ledger"] = ledger_ids if isinstance(ledger_ids, int) else ledger_ids[done : done + count]
            rows["entry"] = entry_ids[done : done + count]
            rows["location"] = locations[done : done + count]
            self._used += count
            done += count
            if self._used == len(self._rows):
                self._flush()

    def _flush(self) -> None:
        """Write the rows; a last record that is not full ends the log."""
        blocks, self._used, used = self._blocks, 0, self._used
        whole, rest = divmod(used, _PUTS)
        shape = (_BLOCKS, 2, _PUTS)
        for column in ("ledger", "entry", "location"):
            blocks["records"]["puts"][column] = self._rows[column].reshape(shape)
        starts = self._sequence + np.arange(2 * _BLOCKS) * _PUTS
        blocks["records"]["sequence"] = starts.reshape(_BLOCKS, 2)
        if rest:
            blocks["records"][whole // 2, whole % 2]["count"] = rest
        self._sequence += used
        # Lengths and checksums of the complete records, and of a last one with ``rest`` puts.
        raw = memoryview(self._blocks.view(np.uint8).data)
        end = 0
        for number in range(whole + bool(rest)):
            start = number // 2 * BLOCK_BYTES + number % 2 * _RECORD.itemsize
            end = start + _RECORD.itemsize
            if number == whole:
                end -= (_PUTS - rest) * _PUT.itemsize
                raw[start + 4 : start + 6] = (end - start - _HEAD_BYTES).to_bytes(2, "little")
            raw[start : start + 4] = masked_crc(bytes(raw[start + 6 : end])).to_bytes(4, "little")
        is_last = bool(rest) or whole < 2 * _BLOCKS
        self._file.write(raw[: end if is_last else len(raw)])

    def __enter__(self) -> Locations:
        return self

    def __exit__(self, *error: Any) -> None:  # Any: an exception's three parts
        """Make the database of all rows, or after an error leave nothing."""
        if error[0] is None and self._used:
            self._flush()
        self._stack.__exit__(*error)
        if error[0] is None:
            create_database(self._directory, (), log=self._log, is_large=True)
