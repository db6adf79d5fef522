"""Surveys the entry logs of a ledger directory record by record, verifying digests; entries are a bitmap per ledger."""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from pyroaring import BitMap64

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.entrylog import decode_header, log_file_name
from pulsar_admin.store.errors import EntryLogCorrupt
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan.files import FileScan, LedgerDigests, Problem, Records, Slice, has_good_digest
from pulsar_admin.store.scan.ledgers_map import add_sizes, compare_map, read_head, read_trusted_map
from pulsar_admin.store.sources.bookies import read_bookie_directory
from pulsar_admin.store.sources.storage import Storage

_NONE = BitMap64()


class Entries:
    """Entry ids by ledger, as bitmaps."""

    def __init__(self) -> None:
        self.by_ledger: dict[int, BitMap64] = {}

    def __len__(self) -> int:
        return sum(map(len, self.by_ledger.values()))

    def __iter__(self) -> Iterator[tuple[int, BitMap64]]:
        return iter(sorted(self.by_ledger.items()))

    def of(self, ledger_id: int) -> BitMap64:
        """Return the entries of a ledger, which the caller must not change."""
        return self.by_ledger.get(ledger_id, _NONE)

    def add(self, ledger_id: int, entry_id: int) -> None:
        """Add an entry."""
        self.by_ledger.setdefault(ledger_id, BitMap64()).add(entry_id)

    def add_columns(self, ledger_ids: Array, entry_ids: Array) -> None:
        """Add the entries of two columns (i64 each)."""
        if not len(ledger_ids):
            return
        order = np.argsort(ledger_ids, kind="stable")  # keeps entries ascending, which a bitmap takes faster
        ledgers, entries = ledger_ids[order], entry_ids[order].astype("<u8")
        starts = np.flatnonzero(np.diff(ledgers, prepend=-1))
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(ledgers)], strict=True):
            mine = self.by_ledger.setdefault(int(ledgers[start]), BitMap64())
            mine.update(array("Q", entries[start:end].tobytes()))


# -- entry logs -------------------------------------------------------------------------------------------------------


class LogBatch(NamedTuple):
    """Records of one log, in their order; ``rows`` is overwritten by the next batch."""

    log_id: int
    rows: Records

    @property
    def is_good(self) -> Array:
        """The mask of the records with a correct digest (bool each)."""
        return has_good_digest(self.rows)

    @property
    def locations(self) -> Array:
        """The locations of the records as the index stores them (i64 each)."""
        places: Array = (self.log_id << 32) + self.rows["offset"] + 4
        return places


class LogSurvey(Struct, frozen=True):
    """The entries in the logs of a storage: those with a good record (``held``), and those whose every record is damaged."""

    storage: Storage
    logs: int
    records: int
    held: Entries
    damaged: Entries
    bad: Mapping[int, Sequence[Problem]]
    """By log number: the bytes that are not a good record, in the order of their offsets."""
    strays: int
    """Records of ledgers that belong to another ledger directory."""
    false_maps: Sequence[Path]
    """The logs whose ledgers map garbage collection would believe although their records differ."""

    @property
    def lost_bytes(self) -> int:
        """How many bytes belong to no record, not even a damaged one."""
        return sum(one.length_bytes for problems in self.bad.values() for one in problems if one.ledger_id < 0)

    def is_bad(self, log_id: int, offset: int) -> bool:
        """Whether an offset in a log lies in bytes that are not a good record."""
        problems = self.bad.get(log_id, ())
        before = bisect_right(problems, offset, key=lambda one: one.offset) - 1
        return before >= 0 and offset < problems[before].offset + problems[before].length_bytes

    def holds(self, ledger_id: int) -> bool:
        """Whether there is a good record of a ledger."""
        return ledger_id in self.held.by_ledger


def iter_batches(
    storage: Storage, digests: LedgerDigests, bad: dict[int, list[Problem]] | None = None
) -> Iterator[LogBatch]:
    """Yield the records of a storage's logs, oldest log first; ``bad`` gets the damage, by log number."""
    for log_id, path in read_bookie_directory(storage.logs).logs:
        scan = FileScan(Slice(str(path), FileKind.ENTRY_LOG, 0, path.stat().st_size), digests)
        for rows in scan.batches():
            yield LogBatch(log_id, rows)
        if bad is not None and scan.problems:
            bad[log_id] = sorted(scan.problems, key=lambda one: one.offset)


def survey_logs(storage: Storage, digests: LedgerDigests, number: int, storages: int) -> LogSurvey:
    """Read every byte of the logs of a storage, the ``number``-th of ``storages``.

    Raises Unsupported for a log of an unknown version, because the places of its entries are unknown too.
    """
    for _, path in read_bookie_directory(storage.logs).logs:
        with suppress(EntryLogCorrupt):  # the records are looked for anyway
            decode_header(read_head(path), str(path))
    held, bad = Entries(), Entries()
    problems: dict[int, list[Problem]] = {}
    records = strays = 0
    sizes: dict[int, dict[int, int]] = {}
    for batch in iter_batches(storage, digests, problems):
        add_sizes(sizes.setdefault(batch.log_id, {}), batch.rows)
        good = batch.is_good
        records += len(batch.rows)
        strays += int((batch.rows["ledger_id"][good] % storages != number).sum())
        held.add_columns(batch.rows["ledger_id"][good], batch.rows["entry_id"][good])
        bad.add_columns(batch.rows["ledger_id"][~good], batch.rows["entry_id"][~good])
    damaged = Entries()
    damaged.by_ledger = {ledger_id: rest for ledger_id, entries in bad if (rest := entries - held.of(ledger_id))}
    logs = read_bookie_directory(storage.logs).logs
    false_maps = [
        path
        for log_id, path in logs
        if (mapped := read_trusted_map(path)) is not None
        and compare_map(mapped, sizes.get(log_id, {}), is_sound=log_id not in problems)
    ]
    return LogSurvey(storage, len(logs), records, held, damaged, problems, strays, false_maps)


def log_path(storage: Storage, log_id: int) -> Path:
    """Return the path of an entry log of a storage."""
    return storage.logs / log_file_name(log_id)
