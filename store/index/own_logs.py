"""Entry logs that this toolkit writes into ``entries/``, in BookKeeper's own format: ids for their ledgers, writing,
indexing.

Log format: docs/formats/entry-log.md.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from msgspec.structs import replace

from pulsar_admin.store.codec import entrylog
from pulsar_admin.store.codec.digest import DIGEST_SIZE, DigestType, compute_digest
from pulsar_admin.store.codec.entry import ENTRY_MAX_BYTES
from pulsar_admin.store.codec.rocksvalue import decode_counter
from pulsar_admin.store.db import own_ledgers
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.files import FileMode, LogFile, fingerprint, next_file_id, put_log
from pulsar_admin.store.errors import IndexCorrupt, LimitExceeded
from pulsar_admin.store.files import create_file, mode_below, open_regular, remove_file
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan.payloads import Payload, PayloadColumns

_BUFFER_BYTES = 1 << 20
_RECORD_HEAD = struct.Struct(
    ">i"  # size of what follows
    "q"  # ledgerId
    "q"  # entryId
    "q"  # lastAddConfirmed
    "q"  # length: payload bytes up to and including this entry
)


def _check_size(size_bytes: int, entry_id: int) -> None:
    if size_bytes > ENTRY_MAX_BYTES:
        raise LimitExceeded(
            f"entry {entry_id} has {size_bytes} bytes with its header, a bookie takes {ENTRY_MAX_BYTES}",
            hint="no cluster with default settings wrote it",
        )


class LogWriter:
    """Writes entry logs ``own-<hex>.log`` into a directory, and starts a new one before the size limit is passed.

    Use in ``with``: all written files are deleted unless ``finish`` was reached.
    """

    def __init__(self, directory: Path, first_log_id: int, *, limit_bytes: int = entrylog.LOG_LIMIT_BYTES) -> None:
        self._directory = directory
        self._log_id = first_log_id
        self._limit_bytes = limit_bytes
        self._done: list[Path] = []
        self._stack: ExitStack | None = None
        self._file: BinaryIO
        self._path: Path
        self._parts: list[bytes | memoryview] = []
        self._parts_bytes = 0
        self._position = 0
        self._sizes: dict[int, int] = {}
        self._finished = False

    def write_ledger(self, ledger_id: int, digest_type: DigestType, payloads: Iterable[Payload]) -> tuple[int, int]:
        """Append a ledger's entries; return (last entry id + 1, payload bytes)."""
        length = following = 0
        for payload in payloads:
            if isinstance(payload, PayloadColumns):
                following, length = self._append_columns(ledger_id, digest_type, payload, (following, length))
                continue
            length += len(payload)
            size = _RECORD_HEAD.size - 4 + DIGEST_SIZE[digest_type] + len(payload)  # it does not count itself
            _check_size(size, following)
            # The LAC is the entry before: so a writer has it that waits for each acknowledgement.
            head = _RECORD_HEAD.pack(size, ledger_id, following, following - 1, length)
            self._append(ledger_id, (head, compute_digest(digest_type, head[4:], payload), payload))
            following += 1
        return following, length

    def _append_columns(
        self, ledger_id: int, digest_type: DigestType, columns: PayloadColumns, state: tuple[int, int]
    ) -> tuple[int, int]:
        """Append many entries after ``state`` = (next entry id, length in bytes so far); return the new state."""
        import numpy as np

        from pulsar_admin.store.kernels.records import write_records
        from pulsar_admin.store.scan.integer_rows import runs_of

        following, length = state
        digest_bytes = DIGEST_SIZE[digest_type]
        entry_ids = (
            np.arange(following, following + len(columns.sizes)) if columns.entry_ids is None else columns.entry_ids
        )
        sizes = columns.sizes + _RECORD_HEAD.size + digest_bytes
        if not len(sizes):
            return state
        _check_size(int(sizes.max()) - 4, int(entry_ids[sizes.argmax()]))
        groups = (np.cumsum(sizes) - sizes) // _BUFFER_BYTES
        for low, high in runs_of(groups):
            out = np.empty(int(sizes[low:high].sum()), np.uint8)
            part = (columns.starts[low:high], columns.sizes[low:high], ledger_id, entry_ids[low:high])
            _, length = write_records(columns.data, *part, length, digest_bytes, out)
            self._append(ledger_id, (memoryview(out.data),))
        return int(entry_ids[-1]) + 1, length

    def _append(self, ledger_id: int, parts: tuple[bytes | memoryview, ...]) -> None:
        size = sum(map(len, parts))
        if self._stack is None or self._position + size > self._limit_bytes:
            self._roll()
        self._parts += parts
        self._parts_bytes += size
        self._position += size
        self._sizes[ledger_id] = self._sizes.get(ledger_id, 0) + size
        if self._parts_bytes >= _BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._file.write(b"".join(self._parts))
        self._parts.clear()
        self._parts_bytes = 0

    def _roll(self) -> None:
        self._seal()
        path = self._directory / f"own-{self._log_id:x}.log"
        while path.exists():  # left by a process that was killed: `store check` names it, we never overwrite
            self._log_id += 1
            path = self._directory / f"own-{self._log_id:x}.log"
        self._log_id += 1
        self._stack, self._path = ExitStack(), path
        self._file = self._stack.enter_context(create_file(path, mode=mode_below(self._directory)))
        header = entrylog.encode_header(entrylog.EntryLogHeader(entrylog.CURRENT_VERSION, 0, 0))
        self._parts, self._parts_bytes, self._position, self._sizes = [header], len(header), len(header), {}

    def _seal(self) -> None:
        """Write the ledgers map and the header that names it, and make the log durable."""
        if self._stack is None:
            return
        header = entrylog.encode_header(
            entrylog.EntryLogHeader(entrylog.CURRENT_VERSION, self._position, len(self._sizes))
        )
        self._parts.append(entrylog.encode_ledgers_map(self._sizes))
        self._flush()
        self._file.seek(0)
        self._file.write(header)
        self._stack.close()
        self._stack = None
        self._done.append(self._path)

    def finish(self) -> tuple[Path, ...]:
        """Seal the last log; return the files written, all durable."""
        self._seal()
        self._finished = True
        return tuple(self._done)

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(self, *error: object) -> None:
        if self._finished:
            return
        if self._stack is not None:
            self._stack.__exit__(*error)  # type: ignore[arg-type]  # create_file removes its file
        for path in self._done:
            remove_file(path)


def index_own_file(store: Store, txn: Txn, path: Path, digest_types: Mapping[int, DigestType]) -> LogFile:
    """Catalogue and index one written entry log within ``txn``; raises IndexCorrupt if the file is not as it was
    written.

    ``digest_types``: ledger id → digest type, of its ledgers.
    """
    from pulsar_admin.store.index.writer import Indexer
    from pulsar_admin.store.scan.files import FileScan, LedgerDigests, Slice

    log = _describe(path, store.path, next_file_id(txn))
    digests = LedgerDigests.of({ledger_id: DIGEST_SIZE[kind] for ledger_id, kind in digest_types.items()})
    scan = FileScan(Slice(str(path), FileKind.ENTRY_LOG, 0, log.size_bytes), digests, True)
    indexer = Indexer(txn)
    for batch in scan.batches():
        indexer.add(batch, log.file_id)
    indexer.finish()
    if scan.problems:
        raise IndexCorrupt(f"{path} does not read back: {scan.problems[0].reason} @ {scan.problems[0].offset:#x}")
    row = replace(log, next_offset=scan.next_offset, records=scan.records)
    put_log(txn, row)
    return row


def _describe(path: Path, store_path: Path, file_id: int) -> LogFile:
    descriptor = open_regular(path)
    try:
        status = os.fstat(descriptor)
        mark = fingerprint(descriptor, status.st_size)
    finally:
        os.close(descriptor)
    return LogFile(
        file_id=file_id,
        path=str(path.relative_to(store_path)),
        kind=FileKind.ENTRY_LOG,
        log_id=int(path.stem.removeprefix("own-"), 16),
        origin="",
        mode=FileMode.OWN,
        size_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
        fingerprint=mark,
        next_offset=0,
        records=0,
        problems=0,
        torn=False,
        sealed=True,
    )


# -- own ledgers -------------------------------------------------------------------------------------------------------
# Ids for the ledgers that a change writes: after every id that the store and its source know.


def next_own_ledgers(store: Store, txn: Txn) -> own_ledgers.OwnLedgers:
    """Return the ids given so far; if there are none, where they begin, by the source's sequence."""
    own = own_ledgers.find_own_ledgers(txn)
    above = own_ledgers.largest_ledger_id(txn) + 1
    if own is not None:
        return own_ledgers.OwnLedgers(own.first_id, max(own.next_id, above))
    first = max(above, source_sequence(store)) + (own_ledgers.RESERVED_GAP if store.info.sources else 0)
    return own_ledgers.OwnLedgers(first, first)


def source_sequence(store: Store) -> int:
    """Return the next id that the sequence of a source in RocksDB gives; 0 when the source is gone or has none."""
    from pulsar_admin.store.sources.rocksdb import read_values  # rocksdict costs 30 ms

    sequences = [0]
    for source in store.info.sources:
        path = Path(source.get("path", ""))
        metadata = path if source.get("kind") == "rocksdb" else path / "metadata"
        if source.get("kind") in ("standalone", "rocksdb") and (metadata / "CURRENT").is_file():
            raw = read_values(metadata, [own_ledgers.SEQUENCE_KEY]).get(own_ledgers.SEQUENCE_KEY)
            sequences.append(0 if raw is None else decode_counter(raw, str(metadata)))
    return max(sequences)
