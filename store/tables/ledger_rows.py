"""Every ledger of a store by its id, with what its topic's list says of it."""

from __future__ import annotations

import os
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import merge
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from pulsar_admin.store.db.blocks import ledger_of_key
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.errors import LedgerNotFound, StoreError
from pulsar_admin.store.files import raise_write_error
from pulsar_admin.store.model.ledgers import Ledger, iter_ledger_ids, read_ledger
from pulsar_admin.store.model.topics import iter_topics, read_topic
from pulsar_admin.store.names import TopicName

RUN_ROWS = 1 << 20
_READ_ROWS = 256
"""So many rows of each run are held while runs are merged: a thousand runs are some tens of megabytes."""


class SortedSpill:
    """Rows of WIDTH signed 64-bit numbers, sorted by the first; those with the same first come in the order they were added.

    RUN_ROWS of them are in memory; each such run is sorted and lies in a temporary file, and reading merges the runs.
    """

    def __init__(self, width: int, run_rows: int = RUN_ROWS) -> None:
        self._width, self._most = width, run_rows * width
        self._held = array("q")
        self._file = tempfile.TemporaryFile(prefix="pulsar-admin-sort-")  # noqa: SIM115 — closed in __exit__
        self._runs: list[tuple[int, int]] = []  # first row, end

    def add(self, *row: int) -> None:
        """Take a row. Raises DiskFull."""
        self._held.extend(row)
        if len(self._held) >= self._most:
            self._spill()

    def _spill(self) -> None:
        rows = np.frombuffer(self._held, np.int64).reshape(-1, self._width)
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        start = self._runs[-1][1] if self._runs else 0
        try:
            self._file.write(rows.tobytes())
            self._file.flush()
        except OSError as error:
            raise_write_error(error, Path(tempfile.gettempdir()))
        self._runs.append((start, start + len(rows)))
        self._held = array("q")

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        """Yield every row; none may be added after."""
        if self._held:
            self._spill()
        return merge(*(self._read(start, end) for start, end in self._runs), key=itemgetter(0))

    def _read(self, start: int, end: int) -> Iterator[tuple[int, ...]]:
        row_bytes = 8 * self._width
        for first in range(start, end, _READ_ROWS):
            count = min(_READ_ROWS, end - first)
            raw = os.pread(self._file.fileno(), count * row_bytes, first * row_bytes)
            yield from map(tuple, np.frombuffer(raw, np.int64).reshape(count, self._width).tolist())

    def __enter__(self) -> SortedSpill:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


_WIDTH = 6
_NONE: tuple[None, Iterator[tuple[int, ...]]] = (None, iter(()))


class Listed(NamedTuple):
    """What a topic's list says of a ledger; of the open last one, what BookKeeper says."""

    place: int
    entries: int
    size_bytes: int
    closed_ms: int
    offloaded: bool
    properties: Mapping[str, str]


class LedgerFacts(NamedTuple):
    """A ledger. ``ledger`` None: neither metadata nor entries know it, or they cannot be read; ``listed`` None: no topic lists it."""

    ledger_id: int
    topic: str | None
    ledger: Ledger | None
    listed: Listed | None


def iter_ledgers(
    txn: Txn, fail: Callable[[StoreError], None], topics: Sequence[TopicName] | None, run_rows: int = RUN_ROWS
) -> Iterator[LedgerFacts]:
    """Yield every ledger that metadata, index or a topic knows, or those of TOPICS, ascending; what cannot be read is told to FAIL.

    Topics and nodes are read once each; RUN_ROWS rows of either are in memory, and the others in temporary files. Raises DiskFull.
    """
    with SortedSpill(_WIDTH, run_rows) as spilled, SortedSpill(1, run_rows) as nodes:
        properties = _spill_lists(txn, fail, iter_topics(txn) if topics is None else topics, spilled)
        rows = groupby(spilled, itemgetter(0))
        at, of_it = next(rows, _NONE)
        for ledger_id in _all_ids(txn, nodes) if topics is None else _ids_of(txn, topics):
            while at is not None and at < ledger_id:  # a list that no index has
                at, of_it = next(rows, _NONE)
            listed = None
            if at == ledger_id:
                *_, (_, place, entries, size_bytes, closed_ms, offloaded) = of_it  # of several topics' the last one
                facts = (place, entries, size_bytes, closed_ms, bool(offloaded))
                listed = Listed(*facts, properties.get(ledger_id, {}))
            yield _facts_of(txn, ledger_id, listed, fail)


def _spill_lists(
    txn: Txn, fail: Callable[[StoreError], None], topics: Iterable[TopicName], spilled: SortedSpill
) -> dict[int, Mapping[str, str]]:
    """Put what the lists of TOPICS say into SPILLED; return the properties of the few ledgers that have some."""
    properties: dict[int, Mapping[str, str]] = {}
    for name in topics:
        try:
            ledgers = read_topic(txn, name).ledgers
        except StoreError as error:
            fail(error)
            continue
        for place, ledger in enumerate(ledgers):
            info = ledger.info
            closed_ms, offloaded = info.timestamp_ms or 0, info.offloaded
            spilled.add(info.ledger_id, place, ledger.entries, ledger.size_bytes, closed_ms, offloaded)
            if info.properties:
                properties[info.ledger_id] = info.properties
    return properties


def _facts_of(txn: Txn, ledger_id: int, listed: Listed | None, fail: Callable[[StoreError], None]) -> LedgerFacts:
    topic = ledger = None
    try:
        if listed is not None:
            owners = (owner.topic for owner in find_owners(txn, ledger_id) if owner.kind == "managed-ledger")
            topic = next(owners, None)
        ledger = read_ledger(txn, ledger_id)
    except LedgerNotFound:
        pass  # listed and gone, or in tiered storage alone: the list's row is what there is
    except StoreError as error:
        fail(error)
    return LedgerFacts(ledger_id, topic, ledger, listed)


def _ids_of(txn: Txn, topics: Sequence[TopicName]) -> list[int]:
    found: set[int] = set()
    for name in topics:
        with suppress(StoreError):
            found.update(read_topic(txn, name).ids)
    return sorted(found)


def _all_ids(txn: Txn, nodes: SortedSpill) -> Iterator[int]:
    for ledger_id in iter_ledger_ids(txn):
        nodes.add(ledger_id)
    keyed: Any = ((ledger_of_key(key) for key, _ in txn.items(database)) for database in ("times", "owners"))
    return (ledger_id for ledger_id, _ in groupby(merge((ledger_id for (ledger_id,) in nodes), *keyed)))
