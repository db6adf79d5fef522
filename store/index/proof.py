"""Checks a store's index against the files on executors, which return digests instead of records.

Executors index the files anew, ledger by ledger, and return a digest of each ledger's rows. They also read the bookies'
databases of entry locations, and compare, per ledger, the sum of the locations in the rows with the sum of those of the
scanned records. If everything agrees, nothing else is needed. Otherwise ``store.index.rebuild`` finds what differs, and
``store.sources.index_places`` which database rows point to a wrong location.
"""

import json
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from logging import getLogger
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import field
from msgspec.structs import replace

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.entrylog import SIZE_BYTES
from pulsar_admin.store.db.blocks import ledger_of_key
from pulsar_admin.store.db.copies import are_copies_taken_over, has_copies
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import LogFile, iter_damage
from pulsar_admin.store.engine.memory import cut_for
from pulsar_admin.store.engine.operation import EXPECTED, Engine
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.errors import MetadataCorrupt, StoreError
from pulsar_admin.store.files import scratch_directory
from pulsar_admin.store.index.build import Advance, ledger_digests, part_of
from pulsar_admin.store.index.rebuild import DERIVED, open_scratch
from pulsar_admin.store.index.scan import EngineScan, ScanFile
from pulsar_admin.store.index.writer import Copies, Indexer
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan.arrow import packed_column, packed_row
from pulsar_admin.store.scan.files import FileScan
from pulsar_admin.store.scan.runs import Runs, decode_runs, pack_runs
from pulsar_admin.store.sources.index_places import cut_database, database_state, read_place_sums, sum_places
from pulsar_admin.store.urls import is_url

_PARTS = 64  # ledgers are divided among at most this many tasks
# File, beginning of the slice, number of the batch: in the order in which a scan here meets them.
_PLACE = struct.Struct(">IQI")
_FOUND = ("ledgers", "digests", "differing", "astray")
_LOG = getLogger("pulsar_admin.store.engine.workers")  # what it says is shown


class Database(NamedTuple):
    """A bookie's database of entry locations, and the directory of the entry logs that the locations refer to."""

    path: Path
    logs: Path


class DatabaseRange(FileRange, frozen=True, eq=False):
    """Rows of the database ``number``, from key ``first`` to ``last`` (excluded). ``state`` identifies the database's
    files: an executor that lacks them, or sees others, reports that, so ``files`` is empty."""

    number: int = -1
    first: bytes = b""
    last: bytes = b""
    state: str = ""
    files: dict[int, str] = field(default_factory=dict)


class Proof(NamedTuple):
    """``of_index``: whether the index is proven. ``astray``: for each database that was read completely, the ledgers
    whose rows are not proven to point to their entries' records."""

    of_index: bool = False
    astray: Mapping[Path, Collection[int]] = {}


class DigestRows(ScanFile[None], frozen=True):
    """Operation that returns the runs of a slice, divided by ledger; ``merge`` turns them into a digest of each
    ledger's index rows.

    ``logs``: the scanned files. ``databases``: file id → number of the database that points into the file. Rows with
    such a ``database`` have sums of locations, of records or of database rows, by ledger in ``ledgers`` and
    ``digests``; ``merge`` returns the (number, ledger) whose sums differ as ``astray``.
    """

    COLUMNS = ("part", "place", *Runs.COLUMNS, "database", *_FOUND)
    LEAVES_CACHE = True
    logs: Sequence[LogFile] = ()
    databases: Mapping[int, int] = {}

    @property
    def needs(self) -> tuple[str, ...]:
        """Modules that it imports beside those that every operation does."""
        return ("pyroaring",) if Copies(Path("/"), self._by_id()).several else ()

    def _by_id(self) -> dict[int, LogFile]:
        return {log.file_id: log for log in self.logs}

    def run(self, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a slice, or of a range of a database."""
        if isinstance(piece, DatabaseRange):
            yield from self._rows_of_database(piece)
        else:
            yield from ScanFile.run(self, piece)

    def _rows(self, scan: FileScan, piece: FileRange) -> Iterator[pa.RecordBatch]:
        number = self.databases.get(piece.file_id)
        log_id = -1 if number is None else self._by_id()[piece.file_id].log_id
        for count, batch in enumerate(scan.batches()):
            parts = batch["ledger_id"] % _PARTS
            for part in np.unique(parts).tolist():
                mine = batch[parts == part]
                runs = pack_runs(mine, keep_first=piece.kind == FileKind.JOURNAL)
                place = _PLACE.pack(piece.file_id, piece.start, count)
                columns, sums = (column.tobytes() for column in runs.columns()), _NO_SUMS
                if number is not None:
                    sums = _packed(
                        number, *sum_places(mine["ledger_id"], mine["entry_id"], _places(log_id, mine["offset"]))
                    )
                yield packed_row(self.schema, b"%d" % part, place, *columns, *sums, b"", b"", b"")

    def _rows_of_database(self, piece: DatabaseRange) -> Iterator[pa.RecordBatch]:
        path, state = Path(piece.path), {"database": piece.number, "is_read": False, "why": ""}
        try:
            if database_state(path) != piece.state:
                raise FileNotFoundError("its files are not those that are here")
            ledgers, sums = read_place_sums(path, piece.first, piece.last)
            parts = ledgers % _PARTS
            for part in np.unique(parts).tolist():
                packed = _packed(piece.number, ledgers[parts == part], sums[parts == part])
                yield packed_row(self.schema, b"%d" % part, b"", *(b"" for _ in Runs.COLUMNS), *packed, b"", b"", b"")
            state["is_read"] = True
        except MetadataCorrupt:
            pass  # who reads it row by row tells
        except (ImportError, *EXPECTED) as error:
            state["why"] = str(error)
        yield packed_row(self.schema, *(b"" for _ in self.COLUMNS), json.dumps(state).encode())

    def merge(self, table: pa.Table) -> pa.Table:
        """Return one row for each part of the ledgers; rows that say how slices ended stay as they are."""
        of_parts: dict[bytes, list[dict[str, Any]]] = {}  # Any: bytes, and the state's text
        for row in table.to_pylist():
            of_parts.setdefault(row["part"], []).append(row)
        ends = of_parts.pop(b"", [])
        rows = [[row[name] or b"" for row in ends] for name in self.COLUMNS]
        states = [row["state"].encode() for row in ends]
        for part, rows_of_part in of_parts.items():
            own = self._digests([row for row in rows_of_part if row["place"]])
            values = (part, b"", *(b"" for _ in Runs.COLUMNS), b"", *own, _astray(rows_of_part))
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


_NO_SUMS = (b"", b"", b"")


def _packed(number: int, ledgers: Array, sums: Array) -> tuple[bytes, bytes, bytes]:
    return b"%d" % number, ledgers.astype(np.int64).tobytes(), sums.tobytes()


def _places(log_id: int, offsets: Array) -> Array:
    places: Array = (log_id << 32) + offsets.astype(np.int64) + SIZE_BYTES
    return places


def _astray(found: Iterable[Mapping[str, Any]]) -> bytes:  # Any: bytes
    """Return the (number of a database, ledger) whose sums of the database's and the records' locations differ."""
    sums: tuple[dict[tuple[int, int], int], ...] = ({}, {})
    for row in found:
        if row["database"]:
            number, mine = int(row["database"]), sums[bool(row["place"])]
            for ledger_id, value in zip(
                *(np.frombuffer(row[one], np.int64).tolist() for one in _FOUND[:2]), strict=True
            ):
                mine[number, ledger_id] = mine.get((number, ledger_id), 0) + value
    theirs, ours = sums
    differing = [key for key, value in theirs.items() if (value - ours.get(key, 0)) % (1 << 64)]
    return np.array(sorted(differing), np.int64).tobytes()


def digest_ledgers(txn: Txn) -> dict[int, bytes]:
    """Return ledger id → digest of its rows in the index."""
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


def prove(txn: Txn, logs: Sequence[LogFile], databases: Sequence[Database], engine: Engine, advance: Advance) -> Proof:
    """Check the index, and the databases of entry locations, against the files; ``engine`` must merge rows.

    The index is proven if the files give exactly its rows, and no damage that it does not know. It is not if a slice
    failed, or began elsewhere than the one before it ended. Raises SourceChanged.
    """
    store = txn.store
    blank = [replace(log, path=str(log.locate(store.path).absolute()), next_offset=0) for log in logs]
    several = Copies(store.path, {log.file_id: log for log in logs}).several
    if several and (
        not has_copies(txn) or are_copies_taken_over(txn) or any(is_url(log.place(Path())) for log in blank)
    ):
        return Proof()
    numbers = {database.logs: number for number, database in enumerate(databases)}
    leading = {
        log.file_id: numbers[Path(log.path).parent]
        for log in blank
        if log.kind == FileKind.ENTRY_LOG and Path(log.path).parent in numbers
    }
    operation = DigestRows(ledger_digests(txn), True, logs=blank, databases=leading)
    ranges = [one for number, database in enumerate(databases) for one in _ranges_of(number, database.path)]
    cut, pieces = cut_for(engine.memory_bytes), list[FileRange]()
    for log in blank:
        pieces += EngineScan(part_of(store, log), log.file_id, operation).plan(cut)
    digests: dict[int, int] = {}
    places: list[tuple[int, int]] = []
    ends: dict[tuple[int, int], Mapping[str, Any]] = {}  # Any: JSON
    unread, unseen = Counter(one.number for one in ranges), dict[Path, str]()
    astray: dict[Path, list[int]] = {database.path: [] for database in databases}
    for table in engine.reduce(operation, [*ranges, *pieces], lambda piece: advance(piece.bytes), {"part": _PARTS}):
        for row in table.to_pylist():
            if row["place"] or row["database"]:
                return Proof()  # what nobody merged
            if row["state"]:
                state = json.loads(row["state"])
                if "file_id" in state:
                    ends[state["file_id"], state["start"]] = state
                    continue
                unread[state["database"]] -= state["is_read"]
                if state["why"]:
                    unseen[databases[state["database"]].path] = state["why"]
                continue
            ledgers, values, differing, pairs = (np.frombuffer(row[name], np.int64).tolist() for name in _FOUND)
            digests |= dict(zip(ledgers, values, strict=True))
            places += zip(differing[::2], differing[1::2], strict=True)
            for number, ledger_id in zip(pairs[::2], pairs[1::2], strict=True):
                astray[databases[number].path].append(ledger_id)
    for path, why in unseen.items():
        _LOG.warning(f"{path}: {why} where an executor looks: it is read on this machine")
    read = {databases[number].path: astray[databases[number].path] for number, left in unread.items() if not left}
    problems = _problems(operation, pieces, ends)
    is_proven = False
    if problems is not None:
        with suppress(StoreError):  # who compares row by row tells
            known = {(damage.file_id, damage.offset) for damage in iter_damage(txn)}
            ours = {one: int.from_bytes(digest, "big", signed=True) for one, digest in digest_ledgers(txn).items()}
            is_proven = known.issuperset([*places, *problems]) and ours == digests
    return Proof(is_proven, read)


def _ranges_of(number: int, database: Path) -> Iterator[DatabaseRange]:
    """Yield ranges that together cover a database; none if it cannot be opened."""
    with suppress(StoreError, OSError):
        state = database_state(database)
        for first, last in cut_database(database):
            yield DatabaseRange(
                str(database), FileKind.ENTRY_LOG, -1, 0, 0, number=number, first=first, last=last, state=state
            )


def _problems(
    operation: DigestRows,
    pieces: Iterable[FileRange],
    ends: Mapping[tuple[int, int], Mapping[str, Any]],  # Any: JSON
) -> list[tuple[int, int]] | None:
    """Return (file id, offset) of the damage in the slices; None unless each begins where the one before ended."""
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
