"""Files of tables whose every byte is proven before it is believed: CRC-32C of each block, and of the footer that lists them.

Parquet's own checksums leave out footers and the heads of pages, DuckDB looks at none, and a footer with a flipped bit can end the
process inside pyarrow. So the key ``KEY`` of the footer has the checksums of all blocks before it, and the footer's own, with the eight
bytes behind it, is in the file's name: ``…-f1a2b3c4d.parquet``. Files of an earlier version have neither, and are read as they are.
"""

from __future__ import annotations

import re
from array import array
from base64 import b64decode, b64encode
from threading import get_ident
from typing import Any, NoReturn

import google_crc32c
import pyarrow as pa
import pyarrow.parquet as pq

from store.errors import Corrupt
from store.tables.folder import Folder

BLOCK_BYTES = 1 << 16
KEY = f"pulsar-admin.crc32c.{BLOCK_BYTES}"
"""Of the footer's metadata: base64 of a u32, little-endian, a block."""
_END_BYTES = 8  # the footer's length, and PAR1
_FIRST_READ_BYTES = 1 << 16
_NAME = re.compile(r"-f([0-9a-f]{8})\.parquet$")


def named(path: str, footer: int) -> str:
    """Return PATH of a Parquet file with the checksum of its FOOTER in it."""
    return f"{path.removesuffix('.parquet')}-f{footer:08x}.parquet"


class ProvenSink:
    """What pyarrow writes a Parquet file to: passes bytes on to OUT, and counts their checksums."""

    def __init__(self, out: Any) -> None:  # Any: a stream of pyarrow
        self._out = out
        self._written = 0
        self._checksum = 0  # of the block that is not full
        self._blocks = array("I")
        self._footer: int | None = None
        self.closed = False

    def write(self, data: Any) -> int:  # Any: bytes, or a buffer
        """Write DATA."""
        self._out.write(data)
        view = memoryview(data)
        self._written += len(view)
        if self._footer is not None:
            self._footer = google_crc32c.extend(self._footer, bytes(view))
            return len(view)
        at = self._written - len(view)
        for start in _cuts(at, self._written):
            end = min(start - start % BLOCK_BYTES + BLOCK_BYTES, self._written)
            self._checksum = google_crc32c.extend(self._checksum, bytes(view[start - at : end - at]))
            if not end % BLOCK_BYTES:
                self._close_block()
        return len(view)

    def _close_block(self) -> None:
        self._blocks.append(self._checksum)
        self._checksum = 0

    def blocks(self) -> dict[str, str]:
        """Return the metadata that has the checksums of what was written; what comes now is the footer."""
        if self._written % BLOCK_BYTES:
            self._close_block()
        self._footer = 0
        return {KEY: b64encode(self._blocks.tobytes()).decode()}

    @property
    def footer(self) -> int:
        """The checksum of what came since ``blocks``."""
        assert self._footer is not None
        return self._footer

    def tell(self) -> int:
        """Return how much was written."""
        return self._written

    def flush(self) -> None:
        """Do nothing: OUT is closed by who opened it."""

    def close(self) -> None:
        """Forget OUT."""
        self.closed = True


class ProvenFile:
    """The file at RELATIVE of FOLDER, as Python's files are read; ``metadata`` is its footer. Raises SourceNotFound, Corrupt.

    Each thread has a place of its own: DuckDB's seek in one file and read.
    """

    def __init__(self, folder: Folder, relative: str) -> None:
        self._file = folder.open_input(relative)
        self._relative = relative
        self._places: dict[int, int] = {}
        self.size: int = self._file.size()
        self.closed = False
        self._footer = self._read_footer()
        self.metadata: pq.FileMetaData = pq.read_metadata(pa.BufferReader(self._footer))
        is_proven = _NAME.search(relative) is not None
        listed = (self.metadata.metadata or {}).get(KEY.encode()) if is_proven else None
        self._blocks = None if listed is None else memoryview(b64decode(listed)).cast("I")
        blocks = -(-(self.size - len(self._footer)) // BLOCK_BYTES)
        if self._blocks is not None and len(self._blocks) != blocks:
            self._fail(f"expected checksums of {blocks:,} blocks, found {len(self._blocks):,}")

    def _read_footer(self) -> bytes:
        """Return the footer and what is behind it, as its name proves them."""
        tail = self._file.read_at(min(self.size, _FIRST_READ_BYTES), max(self.size - _FIRST_READ_BYTES, 0))
        size = int.from_bytes(tail[-_END_BYTES:-4], "little") + _END_BYTES
        if tail[-4:] != b"PAR1" or size > self.size:
            self._fail("it does not end as a Parquet file")
        if size > len(tail):
            tail = self._file.read_at(size, self.size - size)
        footer = bytes(tail[-size:])
        match = _NAME.search(self._relative)
        found = google_crc32c.value(footer)
        if match is not None and found != int(match[1], 16):
            self._fail(f"checksum of the footer: expected {match[1]}, found {found:08x}")
        return footer

    def _fail(self, said: str) -> NoReturn:
        raise Corrupt(
            f"{self._relative} cannot be read: {said}",
            hint="export the tables again, or bring it back",
            path=self._relative,
        )

    def read(self, size: int = -1) -> bytes:
        """Return SIZE bytes at this thread's place, or what there is; raises Corrupt."""
        place = self.tell()
        end = self.size if size < 0 else min(place + size, self.size)
        start = self.size - len(self._footer)
        data = self._proven(place, min(end, start)) if place < start else b""
        if end > start:
            data += self._footer[max(place - start, 0) : end - start]
        self._places[get_ident()] = max(place, end)
        return data

    def _proven(self, start: int, end: int) -> bytes:
        """Return the bytes from START to END, which lie before the footer."""
        low = start - start % BLOCK_BYTES
        high = min(-(-end // BLOCK_BYTES) * BLOCK_BYTES, self.size - len(self._footer))
        data: bytes = self._file.read_at(high - low, low)
        if len(data) != high - low:
            self._fail(f"expected {high - low:,} bytes at {low}, found {len(data):,}")
        if self._blocks is not None:
            for at in range(low, high, BLOCK_BYTES):
                found = google_crc32c.value(data[at - low : at - low + BLOCK_BYTES])
                if found != (expected := self._blocks[at // BLOCK_BYTES]):
                    self._fail(f"checksum of the block at {at}: expected {expected:08x}, found {found:08x}")
        return data[start - low : end - low]

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move this thread's place; return it."""
        base = {0: 0, 1: self.tell(), 2: self.size}[whence]
        self._places[get_ident()] = base + offset
        return base + offset

    def tell(self) -> int:
        """Return this thread's place."""
        return self._places.get(get_ident(), 0)

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def seekable(self) -> bool:
        """Return that it can be read anywhere."""
        return True

    def close(self) -> None:
        """Close the file."""
        self.closed = True
        self._file.close()


def _cuts(start: int, end: int) -> list[int]:
    """Return START and the edges of blocks between it and END."""
    first = start - start % BLOCK_BYTES + BLOCK_BYTES
    return [start, *range(first, end, BLOCK_BYTES)] if end > start else []
