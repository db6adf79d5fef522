"""How the files of a source are now, compared with the catalogue of the store that was imported from it."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.db.blocks import Block, ledger_key
from pulsar_admin.store.db.entry_files import FileState, path_state
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.files import LogFile, iter_logs
from pulsar_admin.store.sources.bookies import BookieFile, Stranger, files_of, find_strangers, size_of
from pulsar_admin.store.sources.layout import Layout


class Survey(Struct, frozen=True):
    """How the files of a source are now, compared with the catalogue.

    ``grown``: also those whose scan was stopped; ``gone``: with the entries only they hold; ``named``: rows that an older version
    wrote, with the bookie that it did not write.
    """

    new: tuple[BookieFile, ...]
    grown: tuple[LogFile, ...]
    changed: tuple[LogFile, ...]
    gone: tuple[tuple[LogFile, int], ...]
    strangers: tuple[Stranger, ...]
    named: tuple[LogFile, ...] = ()

    def bytes(self) -> int:
        """Return how many bytes there are to read, for a progress display."""
        return sum(size_of(file.path) for file in self.new) + sum(
            max((size_of(Path(log.origin)) or log.size_bytes) - log.next_offset, 0) for log in self.grown
        )


def survey_files(store: Store, layout: Layout) -> Survey:
    """Compare the files below LAYOUT with the catalogue of STORE; reads no entries."""
    with store.read() as txn:
        known = {log.origin: log for log in iter_logs(txn) if log.origin}
        strangers = find_strangers(txn, layout.bookies)
        found = {str(file.path.resolve()): file for file in files_of(layout.bookies, strangers)}
        named = {
            origin: replace(log, bookie=found[origin].bookie_id)
            for origin, log in known.items()
            if origin in found and not log.bookie and found[origin].bookie_id
        }
        known |= named
        states = {origin: path_state(log, Path(origin)) for origin, log in known.items()}
        lost = [log for origin, log in known.items() if states[origin].is_lost]
        # A copy inside the store outlives its origin.
        lost = [log for log in lost if path_state(log, log.locate(store.path)).is_lost]
        held = _held_entries(txn, {log.file_id for log in lost})
    return Survey(
        tuple(file for origin, file in found.items() if origin not in known),
        tuple(
            log
            for origin, log in known.items()
            if states[origin] is FileState.GROWN or _goes_on(log, states[origin], lost)
        ),
        tuple(log for origin, log in known.items() if states[origin] is FileState.CHANGED),
        tuple((log, held[log.file_id]) for log in lost),
        tuple(strangers),
        tuple(named.values()),
    )


def _goes_on(log: LogFile, state: FileState, lost: list[LogFile]) -> bool:
    """Whether the scan of LOG was stopped and there is a file to go on with."""
    return log.unfinished and state is not FileState.CHANGED and log not in lost


def find_gone(txn: Txn, ledgers: Collection[int]) -> dict[Path, int]:
    """Return where files were that are gone → how many entries the index has there, of LEDGERS or (where none is named) of all."""
    store = txn.store.path
    paths = {
        log.file_id: log.locate(store)
        for log in iter_logs(txn)
        if path_state(log, log.locate(store)) is FileState.MISSING
    }
    held = _held_entries(txn, set(paths), ledgers)
    return {paths[file_id]: count for file_id, count in held.items() if count}


def _held_entries(txn: Txn, file_ids: set[int], ledgers: Collection[int] = ()) -> dict[int, int]:
    """Return how many entries of the index, of LEDGERS or of all, lie in each of FILE_IDS."""
    held = dict.fromkeys(file_ids, 0)
    if not held:
        return held
    parts = [txn.items("entries", ledger_key(ledger_id)) for ledger_id in ledgers] or [txn.items("entries")]
    for key, value in chain.from_iterable(parts):
        block = Block(key, value)
        files = block.files()
        if isinstance(files, int):
            if files in held:
                held[files] += len(block)
        else:
            for file_id in file_ids.intersection(files):
                held[file_id] += files.tolist().count(file_id)
    return held
