"""Whether files have exactly what a store's index says of them, which executors find out: they index the files of a scan again, ledger by
ledger, and return a digest of each ledger's rows.

A scan needs to bring no more if all is well; ``store.index.rebuild`` finds damage, and where it is.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from pulsar_admin.store.db.blocks import ledger_of_key
from pulsar_admin.store.db.copies import are_copies_taken_over, has_copies
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import LogFile, iter_damage
from pulsar_admin.store.engine.memory import cut_for
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.files import scratch_directory
from pulsar_admin.store.index.build import Advance, ledger_digests, part_of
from pulsar_admin.store.index.rebuild import DERIVED, open_scratch
from pulsar_admin.store.index.scan import EngineScan, ScanFile
from pulsar_admin.store.index.writer import Copies, Indexer
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan.arrow import packed_column, packed_row
from pulsar_admin.store.scan.files import FileScan
from pulsar_admin.store.scan.runs import Runs, decode_runs, pack_runs
from pulsar_admin.store.urls import is_url

if TYPE_CHECKING:
    from pulsar_admin.store.engine.operation import Engine

_PARTS = 64  # ledgers are divided among so many tasks at most
# File, beginning of the slice, number of the batch: in the order in which a scan here meets them.
_PLACE = struct.Struct(">IQI")
_FOUND = ("ledgers", "digests", "differing")


class DigestRows(ScanFile[None], frozen=True):
    """The runs of slices by part of the ledgers; merged, a digest of the index's rows of each ledger. ``logs``: those scanned."""

    COLUMNS = ("part", "place", *Runs.COLUMNS, *_FOUND)
    LEAVES_CACHE = True
    logs: Sequence[LogFile] = ()

    @property
    def needs(self) -> tuple[str, ...]:
        """Modules that it imports beside those that every operation does."""
        return ("pyroaring",) if Copies(Path("/"), self._by_id()).several else ()

    def _by_id(self) -> dict[int, LogFile]:
        return {log.file_id: log for log in self.logs}

    def _rows(self, scan: FileScan, piece: FileRange) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(scan.batches()):
            parts = batch["ledger_id"] % _PARTS
            for part in np.unique(parts).tolist():
                runs = pack_runs(batch[parts == part], keep_first=piece.kind == FileKind.JOURNAL)
                place = _PLACE.pack(piece.file_id, piece.start, number)
                columns = (column.tobytes() for column in runs.columns())
                yield packed_row(self.schema, b"%d" % part, place, *columns, *(b"" for _ in _FOUND), b"")

    def merge(self, table: pa.Table) -> pa.Table:
        """Return one row for the runs of each part; those that say how slices ended stay as they are."""
        of_parts: dict[bytes, list[dict[str, Any]]] = {}  # Any: bytes, and the state's text
        for row in table.to_pylist():
            of_parts.setdefault(row["part"], []).append(row)
        ends = of_parts.pop(b"", [])
        rows = [[row[name] or b"" for row in ends] for name in self.COLUMNS]
        states = [row["state"].encode() for row in ends]
        for part, found in of_parts.items():
            values = (part, b"", *(b"" for _ in Runs.COLUMNS), *self._digests(found))
            for column, value in zip(rows, values, strict=True):
                column.append(value)
            states.append(b"")
        arrays = [packed_column(column, pa.binary()) for column in rows]
        return pa.Table.from_arrays([*arrays, packed_column(states, pa.string())], schema=self.schema)

    def _digests(self, found: Sequence[Mapping[str, Any]]) -> tuple[bytes, bytes, bytes]:  # Any: bytes
        """Return the ledgers of runs, the digests of their rows, and (file, offset) of records that differ from another bookie's."""
        logs, differing = self._by_id(), list[int]()
        journals = [log.file_id for log in self.logs if log.kind == FileKind.JOURNAL]

        def write(txn: Txn) -> None:
            copies = Copies(Path("/"), logs)
            if copies.several:
                from pulsar_admin.store.index.held_entries import note_copies

                note_copies(txn, self.logs)
            indexer = Indexer(txn, journals, copies)
            try:
                for row in sorted(found, key=lambda row: bytes(row["place"])):
                    indexer.merge(decode_runs([row[name] for name in Runs.COLUMNS]), _PLACE.unpack(row["place"])[0])
            finally:
                copies.close()
            indexer.finish()
            differing[:] = [number for one in indexer.differing for number in (one.file_id, one.offset)]

        with scratch_directory() as folder, open_scratch(folder / "scratch") as scratch:
            scratch.write(write)
            with scratch.read() as txn:
                digests = digest_ledgers(txn)
        arrays = ([*digests], [int.from_bytes(digest, "big", signed=True) for digest in digests.values()], differing)
        ledgers, values, places = (np.array(numbers, np.int64).tobytes() for numbers in arrays)
        return ledgers, values, places


def digest_ledgers(txn: Txn) -> dict[int, bytes]:
    """Return a digest of each ledger's rows of the index."""
    digests: dict[int, Any] = {}  # Any: hashlib's object
    for database in (*DERIVED, "copies"):
        for key, value in txn.items(database):
            ledger_id = ledger_of_key(key[:8])
            if ledger_id not in digests:
                digests[ledger_id] = blake2b(digest_size=8)
            digests[ledger_id].update(f"{database} {len(key)} {len(value)} ".encode())  # where a row ends
            digests[ledger_id].update(key)
            digests[ledger_id].update(value)
    return {ledger_id: digest.digest() for ledger_id, digest in digests.items()}


def is_index_proven(txn: Txn, logs: Sequence[LogFile], engine: Engine, advance: Advance) -> bool:
    """Whether an engine that merges finds every row of the index again in the files, and no damage that is not known.

    False where it cannot tell: a slice failed, or began elsewhere than the one before it ended. Raises SourceChanged.
    """
    store = txn.store
    blank = [replace(log, path=str(log.locate(store.path).absolute()), next_offset=0) for log in logs]
    several = Copies(store.path, {log.file_id: log for log in logs}).several
    if several and (
        not has_copies(txn) or are_copies_taken_over(txn) or any(is_url(log.place(Path())) for log in blank)
    ):
        return False
    operation = DigestRows(ledger_digests(txn), True, blank)
    cut, pieces = cut_for(engine.memory_bytes), list[FileRange]()
    for log in blank:
        pieces += EngineScan(part_of(store, log), log.file_id, operation).plan(cut)
    digests: dict[int, int] = {}
    places: list[tuple[int, int]] = []
    ends: dict[tuple[int, int], Mapping[str, Any]] = {}  # Any: JSON
    for table in engine.reduce(operation, pieces, lambda piece: advance(piece.bytes), {"part": _PARTS}):
        for row in table.to_pylist():
            if row["place"]:
                return False  # runs that nobody merged
            if row["state"]:
                state = json.loads(row["state"])
                ends[state["file_id"], state["start"]] = state
                continue
            ledgers, values, differing = (np.frombuffer(row[name], np.int64).tolist() for name in _FOUND)
            digests |= dict(zip(ledgers, values, strict=True))
            places += zip(differing[::2], differing[1::2], strict=True)
    problems = _problems(operation, pieces, ends)
    if problems is None:
        return False
    with suppress(StoreError):  # who compares row by row tells
        known = {(damage.file_id, damage.offset) for damage in iter_damage(txn)}
        ours = {one: int.from_bytes(digest, "big", signed=True) for one, digest in digest_ledgers(txn).items()}
        return known.issuperset([*places, *problems]) and ours == digests
    return False


def _problems(
    operation: DigestRows,
    pieces: Iterable[FileRange],
    ends: Mapping[tuple[int, int], Mapping[str, Any]],  # Any: JSON
) -> list[tuple[int, int]] | None:
    """Return (file, offset) of the damage that slices met; None unless each begins where the one before it ended."""
    reached: dict[int, int] = {}
    places: list[tuple[int, int]] = []
    for piece in pieces:
        state = ends.get((piece.file_id, piece.start))
        if state is None:
            return None
        before = reached.get(piece.file_id, piece.start)
        if before >= piece.end and not state["records"]:
            continue  # inside the last record
        if piece.seek and state["first_offset"] != before:
            if state["records"]:
                return None
            # Nothing looked like a record to a search, such as the map of ledgers after a large entry: read here from where it begins.
            *_, end = operation.run(replace(piece, start=before, seek=False))
            state = json.loads(end.column("state")[0].as_py())
            if state["records"]:
                return None
        reached[piece.file_id] = state["next_offset"]
        places += [(piece.file_id, problem[0]) for problem in state["problems"]]
    return places
