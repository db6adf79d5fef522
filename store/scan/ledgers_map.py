"""The ledgers in an entry log, from the last bytes of a sealed one; and the logs without entries that a scan wants.

A scan skips a log by its map only if the map's ledgers fill the log to the byte, so that nothing else is in it, and if the store, if one
is given, knows them all: a flipped bit in a ledger id hides that ledger, and rarely gives the id of another one. It skips a log by times
only if the store has indexed the log as it is now, without damage. Journals, unsealed logs and logs at URLs are never skipped.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pulsar_admin.store.codec import entrylog
from pulsar_admin.store.db.blocks import decode_times, ledger_key
from pulsar_admin.store.db.environment import Txn, open_store
from pulsar_admin.store.db.files import iter_logs
from pulsar_admin.store.engine.slices import FileRange, kind_of, plan_slices
from pulsar_admin.store.errors import EntryLogCorrupt, StoreError
from pulsar_admin.store.files import open_file
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.urls import file_info, is_url, place_of, read_bytes

if TYPE_CHECKING:
    from pulsar_admin.store.aliases import Array
    from pulsar_admin.store.scan.operations import ScanOptions

_MAP_IDS = bytes.fromhex("ff" * 8 + "ff" * 7 + "fe")
"""The ledger id −1 and the entry id −2, which follow the size of a record of a map."""
_MAP_HEAD_BYTES = 4 + len(_MAP_IDS)


def read_ledgers_map(path: Path) -> dict[int, int] | None:
    """Return the ledgers map of a log, empty for an empty file; None if the log has no credible map."""
    head = read_head(path)
    if not head:
        return {}
    try:
        header: entrylog.EntryLogHeader = entrylog.decode_header(head, str(path))
        if not header.has_map:
            return None
        return entrylog.decode_ledgers_map(read_map_bytes(path, header), header, str(path))
    except StoreError:
        return None


def read_trusted_map(path: Path) -> dict[int, int] | None:
    """Return ledger id → bytes from the map that a bookie's garbage collection trusts; None if it reads the records."""
    try:
        header: entrylog.EntryLogHeader = entrylog.decode_header(read_head(path), str(path))
        return entrylog.decode_trusted_map(read_map_bytes(path, header), header) if header.has_map else None
    except StoreError:
        return None


class FalseMap(NamedTuple):
    """A ledgers map that garbage collection believes although the log's records contradict it. ``lacking``: ledgers
    with records that the map omits; ``differing``: ledgers for which it states a wrong number of bytes."""

    lacking: tuple[int, ...]
    differing: tuple[int, ...]
    mapped_bytes: int
    record_bytes: int


def compare_map(mapped: Mapping[int, int], records: Mapping[int, int], *, is_sound: bool) -> FalseMap | None:
    """Return how a log's map and records, each as ledger id → bytes, differ; None if they agree.

    ``is_sound``: nothing but records precedes the map. Otherwise the bytes that only the map counts may be damaged
    records.
    """
    lacking = records.keys() - mapped.keys()
    differing = {
        ledger_id
        for ledger_id, size_bytes in mapped.items()
        if records.get(ledger_id, 0) > size_bytes or (is_sound and records.get(ledger_id, 0) != size_bytes)
    }
    if not lacking and not differing:
        return None
    return FalseMap(tuple(sorted(lacking)), tuple(sorted(differing)), sum(mapped.values()), sum(records.values()))


def read_head(path: Path | str) -> bytes:
    """Return the bytes of the header of a file, or of an object at a URL; raises EntryLogCorrupt if it cannot be read."""
    if isinstance(path, str):
        return read_bytes(path, 0, entrylog.HEADER_BYTES)
    try:
        with open_file(path, head_only=True) as file:
            return file.read(entrylog.HEADER_BYTES)
    except OSError as error:
        raise EntryLogCorrupt(f"{path} cannot be read: {error.strerror}", path=str(path)) from error


def read_map_bytes(path: Path | str, header: entrylog.EntryLogHeader) -> memoryview:
    """Return the bytes of a log, with zeros before its ledgers map: our own memory instead of a mapping, so that a log
    that is cut meanwhile kills no process. Untouched pages cost no memory."""
    import mmap

    start = header.ledgers_map_offset
    if isinstance(path, Path) and is_url(place_of(path)):
        path = place_of(path)
    if isinstance(path, str):
        size, _ = file_info(path)
        data = memoryview(mmap.mmap(-1, size))
        if entrylog.HEADER_BYTES <= start < size:
            raw = read_bytes(path, start, _MAP_HEAD_BYTES)
            if raw[4:] == _MAP_IDS:
                raw = read_bytes(path, start, size - start)
            data[start : start + len(raw)] = raw
        return data
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = memoryview(mmap.mmap(-1, size))
        if entrylog.HEADER_BYTES <= start < size:
            # A garbage offset names no map: the log is not read for it.
            os.preadv(file.fileno(), [data[start : start + _MAP_HEAD_BYTES]], start)
            if data[start + 4 : start + _MAP_HEAD_BYTES] == _MAP_IDS:
                os.preadv(file.fileno(), [data[start:]], start)
        return data


def read_ledger_sizes(path: Path) -> dict[int, int]:
    """Return ledger id → bytes of its records (size fields included) in an entry log.

    A sealed log's ledgers map gives the answer; a log without a good map is scanned, without counting damaged records.
    """
    sizes = read_ledgers_map(path)
    return scan_ledger_sizes(path)[0] if sizes is None else sizes


def scan_ledger_sizes(path: Path) -> tuple[dict[int, int], bool]:
    """Return ledger id → bytes of its records in an entry log, from the records alone, and whether the log has no other
    bytes between them."""
    from pulsar_admin.store.scan.files import FileScan, LedgerDigests, Slice
    from pulsar_admin.store.scan.sources import open_source

    sizes, is_sound = dict[int, int](), True
    place, size_bytes = place_of(path), path.stat().st_size
    whole = FileRange(place, FileKind.ENTRY_LOG, -1, 0, size_bytes)
    for piece in plan_slices([(place, -1, size_bytes)]) if is_url(place) else [whole]:
        with open_source(piece) as source:
            scan = FileScan(
                Slice(source.path, piece.kind, piece.start, piece.end, piece.seek), LedgerDigests.of({}), False
            )
            for batch in scan.batches():
                add_sizes(sizes, batch)
            is_sound &= not scan.problems and not scan.torn
    return sizes, is_sound


def ledger_sizes(batch: Array) -> tuple[Array, Array]:
    """Return (ledger ids, ascending; bytes of the records of each, size fields included) of a batch."""
    import numpy as np

    ledgers, inverse = np.unique(batch["ledger_id"], return_inverse=True)
    return ledgers, np.bincount(inverse, batch["size"].astype(np.int64) + 4).astype(np.int64)


def add_sizes(sizes: dict[int, int], batch: Any) -> None:  # Any: numpy records, or sizes already
    """Add the bytes per ledger of a batch to ``sizes``."""
    if not isinstance(batch, dict):
        ledgers, bytes_each = ledger_sizes(batch)
        batch = dict(zip(ledgers.tolist(), bytes_each.tolist(), strict=True))
    for ledger_id, size in batch.items():
        sizes[ledger_id] = sizes.get(ledger_id, 0) + size


Files = Sequence[tuple[str, int, int]]  # path, −1, bytes
Range = tuple[int, int]  # ms, both included


def wanted_files(files: Files, options: ScanOptions, store: str = "") -> list[tuple[str, int, int]]:
    """Return the files without those entry logs in which no entry passes the options; ``store``: a store that may know their times.

    Raises StoreError if the store cannot be read.
    """
    wanted = set(options.ledgers or options.topics) if options.ledgers or options.only_topics else None
    ranges = _ranges(options) if store else {}
    if not store or (wanted is None and not ranges):
        return [file for file in files if wanted is None or _may_hold(file[0], wanted, None)]
    with open_store(Path(store)) as opened, opened.read() as txn:
        times = _IndexedTimes(txn, Path(store), ranges)
        return [file for file in files if _may_hold(file[0], wanted, times)]


def _ranges(options: ScanOptions) -> dict[str, Range]:
    """Return the requested time ranges by clock: auto, publish_ms, broker_ms."""
    ranges = dict(options.between)
    if options.start_ms is not None or options.end_ms is not None:
        low = -(1 << 63) if options.start_ms is None else options.start_ms
        ranges["auto"] = (low, (1 << 63) - 1 if options.end_ms is None else options.end_ms - 1)
    return ranges


def _may_hold(path: str, wanted: set[int] | None, times: _IndexedTimes | None) -> bool:
    ledgers = _ledgers_of(path)
    if ledgers is None:
        return True
    asked = ledgers if wanted is None else ledgers & wanted
    if asked and (times is None or times.may_hold(path, asked)):
        return True
    return times is not None and not times.know(ledgers)


def _ledgers_of(path: str) -> set[int] | None:
    """Return the ledgers in a sealed entry log; None if that is not proven."""
    if is_url(path) or kind_of(path) != FileKind.ENTRY_LOG:
        return None
    try:
        # A bookie writes the map last and counts every record in it. If the sizes fall short of the records, the map lacks a
        # ledger, and to skip the log would lose that ledger's entries.
        sizes = read_ledgers_map(Path(path))
        if (
            not sizes
            or sum(sizes.values())
            != entrylog.decode_header(read_head(Path(path)), path).ledgers_map_offset - entrylog.HEADER_BYTES
        ):
            return None
    except StoreError:
        return None
    return set(sizes)


class _IndexedTimes:
    """The times of ledgers, for files that the store has indexed as they are."""

    def __init__(self, txn: Txn, root: Path, ranges: dict[str, Range]) -> None:
        self._txn = txn
        self._ranges = ranges
        self._logs = {os.path.realpath(log.locate(root)): log for log in iter_logs(txn)}
        self._inside: dict[int, bool] = {}

    def know(self, ledgers: set[int]) -> bool:
        """Whether the store has entries of all ``ledgers``: a flipped bit makes an id unknown."""
        return all(self._txn.get("times", ledger_key(ledger_id)) is not None for ledger_id in ledgers)

    def may_hold(self, path: str, ledgers: set[int]) -> bool:
        """Whether a log may hold an entry of these ledgers in the time ranges; True unless the log is as indexed."""
        log = self._logs.get(os.path.realpath(path))
        if log is None:
            return True
        now = os.stat(path)
        if (log.size_bytes, log.mtime_ns) != (now.st_size, now.st_mtime_ns):
            return True
        return bool(log.problems or log.unfinished) or any(self._is_inside(ledger) for ledger in ledgers)

    def _is_inside(self, ledger_id: int) -> bool:
        if ledger_id in self._inside:
            return self._inside[ledger_id]
        row = self._txn.get("times", ledger_key(ledger_id))
        is_inside = row is None
        if row is not None:
            times = decode_times(ledger_id, row)
            bounds = {
                "auto": (times.auto_min[0], times.auto_max[-1]),
                "publish_ms": (times.publish_min[0], times.publish_max[-1]),
                "broker_ms": (times.sums.broker_min_ms, times.sums.broker_max_ms),
            }
            is_inside = all(
                bounds[name][1] >= low and bounds[name][0] <= high for name, (low, high) in self._ranges.items()
            )
        self._inside[ledger_id] = is_inside
        return is_inside
