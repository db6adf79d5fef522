"""Every ledger of a store by its id, with what its topic's list says of it."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import merge
from itertools import groupby, islice
from typing import Any, NamedTuple

import numpy as np

from store.db.blocks import ledger_of_key
from store.db.environment import Txn
from store.db.owners import find_owners
from store.errors import LedgerNotFound, StoreError
from store.model.ledgers import Ledger, read_ledger, sorted_ledger_ids
from store.model.topics import TopicLedger, iter_topics, read_topic
from store.names import TopicName

_WINDOW_LEDGERS = 1 << 21
"""So many ledgers' facts are held at once, 38 bytes each; the topics are read once for each window."""
Facts = np.ndarray[Any, np.dtype[np.void]]
_FACTS = np.dtype(
    [("place", "i4"), ("entries", "i8"), ("size", "i8"), ("closed_ms", "i8"), ("offloaded", "?"), ("listed", "?")]
)


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
    txn: Txn, fail: Callable[[StoreError], None], topics: Sequence[TopicName] | None
) -> Iterator[LedgerFacts]:
    """Yield every ledger that metadata, index or a topic knows, or those of TOPICS, ascending; what cannot be read is told to FAIL."""
    ids = _all_ids(txn) if topics is None else iter(_ids_of(txn, topics))
    fail_once = fail
    while window := array("q", islice(ids, _WINDOW_LEDGERS)):
        facts = np.zeros(len(window), _FACTS)
        properties: dict[int, Mapping[str, str]] = {}
        for name in iter_topics(txn) if topics is None else topics:
            try:
                _note_listed(read_topic(txn, name).ledgers, window, facts, properties)
            except StoreError as error:
                fail_once(error)
        fail_once = _ignore
        for ledger_id, row in zip(window, facts, strict=True):
            listed = _listed(row, properties.get(ledger_id, {})) if row["listed"] else None
            yield _facts_of(txn, ledger_id, listed, fail)


def _ignore(error: StoreError) -> None:
    """The first window told it."""


def _note_listed(
    ledgers: Iterable[TopicLedger], window: array[int], facts: Facts, properties: dict[int, Mapping[str, str]]
) -> None:
    """Put what a topic's list of LEDGERS says of those of WINDOW into FACTS and PROPERTIES."""
    for place, ledger in enumerate(ledgers):
        info = ledger.info
        at = bisect_left(window, info.ledger_id)
        if at < len(window) and window[at] == info.ledger_id:
            facts[at] = (place, ledger.entries, ledger.size_bytes, info.timestamp_ms or 0, info.offloaded, True)
            if info.properties:
                properties[info.ledger_id] = info.properties


def _listed(row: Any, properties: Mapping[str, str]) -> Listed:  # Any: a numpy row
    place, entries, size_bytes, closed_ms, offloaded, _ = row.tolist()
    return Listed(place, entries, size_bytes, closed_ms, offloaded, properties)


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


def _all_ids(txn: Txn) -> Iterator[int]:
    keyed: Any = ((ledger_of_key(key) for key, _ in txn.items(database)) for database in ("times", "owners"))
    return (ledger_id for ledger_id, _ in groupby(merge(sorted_ledger_ids(txn), *keyed)))
