"""Facts of a store whose every catalogued byte is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from pulsar_admin.store.codec.entrylog import SIZE_BYTES
from pulsar_admin.store.db.bookies import Bookie, iter_imported_bookies
from pulsar_admin.store.db.entry_files import FileState, file_state, path_state
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.files import LogFile, iter_damage, iter_logs
from pulsar_admin.store.db.unserved import read_misled_bookies
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.facts import fact
from pulsar_admin.store.facts.cluster import ClusterFacts
from pulsar_admin.store.facts.file_sums import indexed_sizes
from pulsar_admin.store.model.coverage import served_elsewhere, served_of
from pulsar_admin.store.model.ledgers import iter_blocks, read_ledger, sorted_ledger_ids
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.sources.index_places import Logs, has_database, read_misled, scanned_logs
from pulsar_admin.store.sources.storage import LOCATIONS, storages_of

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from pulsar_admin.store.aliases import Array
    from pulsar_admin.store.engine.operation import Engine
    from pulsar_admin.store.facts.starts import StartFact
    from pulsar_admin.store.index.proof import Proof
    from pulsar_admin.store.scan.ledgers_map import FalseMap


class Misled(Struct, frozen=True):
    """Entries for which the index of ``bookie`` leads to the bytes of others. ``elsewhere``: how many of them other bookies serve."""

    bookie: str
    ledgers: tuple[int, ...]
    entries: int
    elsewhere: int


class DeepFacts(ClusterFacts):
    """``ClusterFacts`` for a deep check. ``engine`` reads the files (None: this process does); ``advance`` gets the bytes read."""

    def __init__(self, reader: EntryReader, advance: Callable[[int], None], engine: Engine | None) -> None:
        super().__init__(reader)
        self.advance = advance
        self.engine = engine
        self._read = set[Path]()  # databases of which every block was read

    def meet(self) -> None:
        """Check that the engine's workers can read the files, before long work that would otherwise be lost."""
        from pulsar_admin.store.engine.slices import Cut, plan_slices

        if self.engine is not None:
            with self.reader.txn.passing_altered():
                logs = [(one.place(self.store.path), one.file_id, one.size_bytes) for one in iter_logs(self.reader.txn)]
            self.engine.meet(plan_slices(logs, Cut(slices=1)))

    def iter_misled(self) -> Iterator[Misled]:
        """Yield the bookies whose index leads to wrong records, except those whose disks are missing and those already known to be misled.

        A row that leads to a missing log counts if the entry is assumed to be served, because an older log has it.
        """
        import numpy as np

        txn, astray = self.reader.txn, {} if self.proof is None else self.proof.astray
        listed, known = sorted_ledger_ids(txn), read_misled_bookies(txn)
        scanned = scanned_logs(iter_logs(txn), iter_damage(txn))
        for bookie in iter_imported_bookies(self.store.info, whole=True):
            ledgers, entries, elsewhere = list[int](), 0, 0
            with suppress(StoreError, OSError):
                if bookie.bookie_id not in known and has_database(bookie):
                    gone: dict[int, BitMap64] = {}
                    led = read_misled(bookie, listed, scanned, gone, self._are_indexed, self._read, astray)
                    misled = {one: _ids(rows) for one, rows in led.items()}
                    for ledger_id, rows in gone.items():
                        ids = served_of(txn, ledger_id, bookie.bookie_id, _ids(rows))
                        if len(ids):
                            misled[ledger_id] = np.union1d(misled.get(ledger_id, ids), ids)
                    for ledger_id, ids in sorted(misled.items()):
                        ledgers.append(ledger_id)
                        entries += len(ids)
                        elsewhere += len(served_elsewhere(txn, read_ledger(txn, ledger_id), bookie.bookie_id, ids))
            if entries:
                yield Misled(bookie.bookie_id, tuple(ledgers), entries, elsewhere)

    def _are_indexed(self, logs: Logs, rows: Array) -> Array:
        """Return a mask of the rows of a bookie's index that agree with this store's index.

        A deep check proves that index anyway, so the logs of these rows need not be read once for each ledger in them."""
        import numpy as np

        from pulsar_admin.store.scan.integer_rows import runs_of

        log_ids = {self._unchanged_logs.get(path): log_id for log_id, path in logs.items()}
        are_places = np.zeros(len(rows), bool)
        for start, end in runs_of(rows[:, 0]):
            with suppress(StoreError):  # where the store's own rows are damaged, logs tell
                are_places[start:end] = _are_places(self.reader.txn, log_ids, rows[start:end])
        return are_places

    def iter_false_maps(self) -> Iterator[tuple[LogFile, FalseMap]]:
        """Yield the entry logs whose ledgers map names other ledgers or bytes than their records have.

        Only logs whose map contradicts the index are read; their records decide.
        """
        from pulsar_admin.store.scan.ledgers_map import compare_map, read_trusted_map, scan_ledger_sizes

        txn = self.reader.txn
        logs = [log for log in iter_logs(txn) if log.kind == FileKind.ENTRY_LOG and log.file_id not in self.gone]
        indexed = indexed_sizes(txn)
        for log in logs:
            with suppress(StoreError, OSError):  # what cannot be read is told by who reads all of it
                path = log.locate(self.store.path)
                mapped = read_trusted_map(path)
                if mapped is not None and compare_map(mapped, indexed(log.file_id), is_sound=not log.problems):
                    records, is_sound = scan_ledger_sizes(path)
                    differs = compare_map(mapped, records, is_sound=is_sound)
                    if differs is not None:
                        yield log, differs

    def may_salvage(self, bookie: Bookie) -> bool:
        """Whether ``store salvage`` takes a bookie: it refuses one that has ``.idx`` files instead of databases."""
        return has_database(bookie)

    @fact
    def gone(self) -> frozenset[int]:
        """Ids of the catalogued files that are gone, or no longer have the imported content."""
        states = {log.file_id: file_state(log, self.store.path, asks=True) for log in iter_logs(self.reader.txn)}
        return frozenset(file_id for file_id, state in states.items() if not state.holds_the_imported)

    @fact
    def live(self) -> frozenset[int]:
        """Ids of the catalogued files that were written to since they were imported."""
        there = (log for log in iter_logs(self.reader.txn) if log.file_id not in self.gone)
        return frozenset(log.file_id for log in there if not _is_comparable(self.store, log))

    @fact
    def proof(self) -> Proof | None:
        """What the engine proves in its workers, without sending rows to this process; None if it cannot, or if files changed."""
        logs = [*iter_logs(self.reader.txn)]
        if (
            self.engine is None
            or not self.engine.merges
            or self.gone
            or self.live
            or any(log.unfinished for log in logs)
        ):
            return None
        from pulsar_admin.store.index.proof import Database, prove  # brings numpy and pyarrow

        databases = list[Database]()
        for bookie in iter_imported_bookies(self.store.info, whole=True):
            with suppress(StoreError, OSError):  # its disks are not at hand, or some of them
                storages = storages_of(bookie) if has_database(bookie) else []
                databases += (Database(one.index / LOCATIONS, one.logs) for one in storages)
        return prove(self.reader.txn, logs, databases, self.engine, self.advance)

    @fact
    def _unchanged_logs(self) -> Mapping[Path, int]:
        """Path → file id of the logs whose path and content are as they were imported."""
        store = self.store
        logs = ((log, log.locate(store.path)) for log in iter_logs(self.reader.txn))
        return {path: log.file_id for log, path in logs if path_state(log, path) is FileState.SAME}

    @fact
    def deep_start_facts(self) -> tuple[StartFact, ...]:
        """The ``start_facts`` that can only be found by reading databases, journals and snapshots."""
        return tuple(
            one for one in self._iter_start_facts(thorough=True, read=self._read) if one not in self.start_facts
        )


def _is_comparable(store: Store, log: LogFile) -> bool:
    """Whether the file is the imported one and ends where it did. An entry log may have a newer modification time, a journal may not:
    its bytes are allocated before they are written."""
    state = file_state(log, store.path)
    return state is FileState.SAME or (
        state is FileState.GROWN
        and log.kind == FileKind.ENTRY_LOG
        and log.locate(store.path).stat().st_size == log.size_bytes
    )


def _are_places(txn: Txn, log_ids: Mapping[int | None, int], rows: Array) -> Array:
    """Return which rows of one ledger this store's index has with the same place; ``log_ids``: file id → log."""
    import numpy as np

    (ledger_id, first, _), (_, last, _) = rows[0].tolist(), rows[-1].tolist()
    parts = [np.array([[-1], [0]])]  # no row's
    for block in iter_blocks(txn, ledger_id, first) if min(ledger_id, first) >= 0 else ():
        ids = np.array(block.slots(), np.int64) + (block.entry_id(0) - block.slots()[0])
        if ids[0] > last:
            break
        files = np.unique(block.files(), return_inverse=True)
        starts = np.array([log_ids.get(one, -1) << 32 for one in files[0].tolist()])[files[1]]
        parts.append(np.array([ids, starts + np.array(block.offsets(), np.int64) + SIZE_BYTES]))
    entries, places = np.concatenate(parts, axis=1)
    at = np.searchsorted(entries, rows[:, 1], "right") - 1
    are: Array = (entries[at] == rows[:, 1]) & (places[at] == rows[:, 2])
    return are


def _ids(entries: BitMap64) -> Array:
    import numpy as np

    return np.array(entries.to_array(), np.int64)
