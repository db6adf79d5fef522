"""Entries that are in a file but that its bookie does not serve after a start: only in a journal before the bookie's
mark, or in an entry log without a row in its index.

Rows (database ``state``):

===================================  ==================================================================================
key                                  value
===================================  ==================================================================================
``journal-marks``                    JSON: journal directory → [journal id, offset], where a start begins to read
``index-states``                     JSON: bookie → a digest of its index's files as they were when it was read
``misled-bookies``                   JSON: ids of bookies whose index has a location without the entry's record; absent if none
``unserved`` ledger i64 file id u32  ids of the entries, a 64-bit Roaring bitmap in the portable format; big-endian key
``failing`` ledger i64 file id u32   the same for entries that the index of the file's bookie places where no good record is
===================================  ==================================================================================

A bookie writes an entry to its journal, later to an entry log and its index, then moves the mark: bytes before the mark
are never read again (``Journal.checkpointComplete``, BookKeeper 4.17). So a journal record before the mark does not
make an entry available, nor does a record in an entry log without a row in the index.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pulsar_admin.store.db.blocks import ledger_key
from pulsar_admin.store.db.environment import Txn

if TYPE_CHECKING:
    from pyroaring import BitMap64  # 15 ms; few stores have a row

Marks = Mapping[str, tuple[int, int]]
"""Journal directory → journal id and offset from which on a start reads it."""

UNSERVED = b"unserved"
FAILING = b"failing"
_MARKS = b"journal-marks"
_INDEXES = b"index-states"
_MISLED = b"misled-bookies"
_KEY = struct.Struct(">qI")
_FILE_BYTES = 4


def read_journal_marks(txn: Txn) -> dict[str, tuple[int, int]] | None:
    """Return the marks as of the last import, addition or refresh; None of a store that an older version made. Raises IndexCorrupt."""
    return txn.read_state(
        _MARKS, "journal marks", lambda row: {path: (int(mark[0]), int(mark[1])) for path, mark in row.items()}
    )


def put_journal_marks(txn: Txn, marks: Marks) -> None:
    """Write the marks."""
    txn.put("state", _MARKS, json.dumps(marks).encode())


def read_index_states(txn: Txn) -> dict[str, str] | None:
    """Return bookie → digest of its index's files when they were read; None in a store that an older version made.

    Raises IndexCorrupt.
    """
    return txn.read_state(
        _INDEXES, "bookies' indexes", lambda row: {bookie: str(digest) for bookie, digest in row.items()}
    )


def put_index_states(txn: Txn, states: Mapping[str, str]) -> None:
    """Write bookie → digest of its index's files."""
    txn.put("state", _INDEXES, json.dumps(states).encode())


def read_misled_bookies(txn: Txn) -> frozenset[str]:
    """Return the bookies whose index has a location without the entry's record; raises IndexCorrupt."""
    # list.copy copies nothing but a list: an object, or a text, is no such row.
    return txn.read_state(_MISLED, "misled bookies", lambda row: frozenset(list.copy(row))) or frozenset()


def put_misled_bookies(txn: Txn, bookies: Iterable[str]) -> None:
    """Write the bookies whose index has a location without the entry's record."""
    ids = sorted(bookies)
    txn.put_or_delete("state", _MISLED, json.dumps(ids).encode() if ids else None)


def files_with_rows(txn: Txn, kind: bytes) -> set[int]:
    """Return the ids of files that have a row of a kind, UNSERVED or FAILING."""
    return {_file_of(key) for key, _ in txn.items("state", kind)}


def _file_of(key: bytes) -> int:
    return int.from_bytes(key[-_FILE_BYTES:], "big")


def put_rows(
    txn: Txn, kind: bytes, found: Iterable[tuple[int, int, BitMap64]], *, kept: Collection[int] = frozenset()
) -> None:
    """Replace a kind's rows, UNSERVED or FAILING, except for files in ``kept``, by (ledger id, file id, entries)."""
    for key in [key for key, _ in txn.items("state", kind)]:
        if _file_of(key) not in kept:
            txn.delete("state", key)
    for ledger_id, file_id, entries in found:
        entries.run_optimize()
        txn.put("state", kind + _KEY.pack(ledger_id, file_id), entries.serialize())
    txn.memo.pop(has_rows, None)


def has_any_rows(txn: Txn, kind: bytes) -> bool:
    """Whether there are rows of a kind, UNSERVED or FAILING."""
    memo: dict[bytes, bool] = txn.memo.setdefault(has_rows, {})
    if kind not in memo:
        memo[kind] = next(txn.items("state", kind), None) is not None
    return memo[kind]


def has_rows(txn: Txn, kind: bytes, ledger_id: int) -> bool:
    """Whether a ledger has rows of a kind, UNSERVED or FAILING; a store without any is queried once."""
    return has_any_rows(txn, kind) and next(txn.items("state", kind + ledger_key(ledger_id)), None) is not None


def has_unserved(txn: Txn, ledger_id: int) -> bool:
    """Whether a file has entries of a ledger that its bookie does not serve."""
    return has_rows(txn, UNSERVED, ledger_id)


def iter_unserved(txn: Txn, ledger_id: int) -> Iterator[tuple[int, BitMap64]]:
    """Return an iterator of (file id, its entries) of each file with entries of a ledger that its bookie does not serve.

    Raises IndexCorrupt when it is read.
    """
    return iter_rows(txn, UNSERVED, ledger_id)


def iter_rows(txn: Txn, kind: bytes, ledger_id: int) -> Iterator[tuple[int, BitMap64]]:
    """Yield (file id, entries) of the rows of a kind, UNSERVED or FAILING, that a ledger has; raises IndexCorrupt."""
    if not has_rows(txn, kind, ledger_id):
        return
    # Few stores have such rows: a cold command does without the module.
    from pulsar_admin.store.db.copies import decode_row

    for key, value in txn.items("state", kind + ledger_key(ledger_id)):
        yield decode_row("state", key, value, kind)[1:]
