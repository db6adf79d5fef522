"""Ledgers that are not just on one topic's list: few of what may be millions, found in one pass over the rows of owners."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from pulsar_admin.store.db.blocks import LEDGER_KEY_BYTES, ledger_of_key
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.owners import TOPICS_ALONE, is_topics_alone
from pulsar_admin.store.errors import IndexCorrupt
from pulsar_admin.store.model.ledgers import iter_indexed_ids

_CHUNK = 1 << 16
_Found = tuple["array[int]", "array[int] | None"]


def loose_of(txn: Txn, ledger_ids: array[int]) -> Sequence[int]:
    """Return those of LEDGER_IDS, which ascend, of which ``store.db.owners.is_listed`` may say no, ascending; it says yes of all others."""
    listed = _owned(txn)[0]
    found: list[int] = []
    for start in range(0, len(ledger_ids), _CHUNK):
        some = ledger_ids[start : start + _CHUNK]
        low, high = bisect_left(listed, some[0]), bisect_right(listed, some[-1])
        found += sorted(set(some).difference(listed[low:high]))
    return found


def iter_loose_owners(txn: Txn) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of owners, by their keys, but those of which ``store.db.owners.is_topics_alone`` says yes."""
    others = _owned(txn)[1]
    if others is None:
        yield from ((key, row) for key, row in txn.items("owners") if not is_topics_alone(row))
        return
    for ledger_id in others:
        key = ledger_id.to_bytes(LEDGER_KEY_BYTES, "big")
        row = txn.get("owners", key)
        if row is not None:
            yield key, row


def _owned(txn: Txn) -> _Found:
    """Return the ledgers that are just on one topic's list, and all others that have owners; None for those where a row is damaged."""
    kept: _Found | None = txn.memo.get(_owned)
    if kept is not None:
        return kept
    listed, others, altered = array("q"), array("q"), list[bytes]()
    is_usual = re.compile(TOPICS_ALONE).fullmatch
    is_plain = True
    with txn.noting_altered(altered):
        for key, row in txn.items("owners"):
            if len(key) != LEDGER_KEY_BYTES or key >= b"\x80":
                is_plain = False  # no ledger has such an id
            elif is_usual(row):
                listed.append(int.from_bytes(key))
            else:
                others.append(int.from_bytes(key))
    found = listed, (others if is_plain and not altered else None)
    if txn.is_snapshot and not altered:
        txn.memo[_owned] = found
    return found


def indexed_ids(txn: Txn) -> array[int]:
    """Return the ids of ``iter_indexed_ids``; not to be changed, as a snapshot keeps them. Raises IndexCorrupt."""
    kept: array[int] | None = txn.memo.get(indexed_ids)
    if kept is not None:
        return kept
    altered: list[bytes] = []
    with txn.noting_altered(altered):
        found = array("q", iter_indexed_ids(txn))
    if txn.is_snapshot and not altered:
        txn.memo[indexed_ids] = found
    return found


def find_loose_indexed(txn: Txn) -> Iterator[int]:
    """Yield what ``loose_of`` returns of the ledgers that any file has entries of; of all where the index has a key that is none."""
    try:
        yield from loose_of(txn, indexed_ids(txn))
    except IndexCorrupt:
        for key in txn.keys("times", b""):
            try:
                yield ledger_of_key(key)
            except IndexCorrupt:
                continue
