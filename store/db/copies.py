"""For each file, the entries of which it has a good record; this shows which bookies have an entry.

Row (database ``copies``): key ledger id i64, file id u32, big-endian; value: the ids of the entries whose record in that file has a
good digest, a 64-bit Roaring bitmap in the portable format. The rows are whole where ``state`` has the row ``copies``. A store of one
bookie has neither: there the location index says it.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from pulsar_admin.store.db.blocks import ledger_key
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.errors import IndexCorrupt, reason_of

if TYPE_CHECKING:
    from pyroaring import BitMap64  # 15 ms; only who asks for copies pays for it

_KEY = struct.Struct(">qI")
_WHOLE = b"copies"
"""Row (database ``state``): there when ``copies`` tells of every catalogued file; not empty when of some of them as ``entries`` did."""


def has_copies(txn: Txn) -> bool:
    """Whether the rows cover every file."""
    if not txn.is_snapshot:
        return txn.get("state", _WHOLE) is not None
    if has_copies not in txn.memo:  # asked of each ledger
        txn.memo[has_copies] = txn.get("state", _WHOLE) is not None
    return bool(txn.memo[has_copies])


def are_copies_taken_over(txn: Txn) -> bool:
    """Whether some files' rows come from the location index, and lack entries that it places in other files."""
    return bool(txn.get("state", _WHOLE))


def begin_copies(txn: Txn, *, taken_over: bool) -> None:
    """Mark the rows as covering every file from now on. ``taken_over``: what ``are_copies_taken_over`` is to return."""
    txn.put("state", _WHOLE, b"entries" if taken_over else b"")


def take_copies(txn: Txn, new: Txn) -> None:
    """Replace the rows by those of ``new``."""
    txn.clear("copies")
    txn.delete("state", _WHOLE)
    if has_copies(new):
        begin_copies(txn, taken_over=are_copies_taken_over(new))
        txn.put_all("copies", ((key, bytes(value)) for key, value in new.items("copies")))


def add_copies(txn: Txn, found: Iterable[tuple[int, int, BitMap64]]) -> None:
    """Add entries, (ledger id, file id, entry ids), to the rows."""
    for ledger_id, file_id, entries in sorted(found, key=lambda row: row[:2]):
        key = _KEY.pack(ledger_id, file_id)
        before = txn.view("copies", key)
        if before is not None:
            entries |= decode_row("copies", key, before)[2]
        entries.run_optimize()
        txn.put("copies", key, entries.serialize())


def iter_copies(txn: Txn, ledger_id: int) -> Iterator[tuple[int, BitMap64]]:
    """Yield (file id, its entries) of each file with records of a ledger; raises IndexCorrupt."""
    for key, value in txn.items("copies", ledger_key(ledger_id)):
        yield decode_row("copies", key, value)[1:]


def iter_copy_keys(txn: Txn) -> Iterator[tuple[int, int]]:
    """Yield (ledger id, file id) of every row whose key is not damaged."""
    for key in txn.keys("copies", b""):
        with suppress(struct.error):
            yield _KEY.unpack(key)


def iter_all_copies(txn: Txn) -> Iterator[tuple[int, int, BitMap64]]:
    """Yield (ledger id, file id, entries) of every row that is not damaged."""
    for key, value in txn.items("copies"):
        with suppress(IndexCorrupt):
            yield decode_row("copies", key, value)


def check_copies_row(key: bytes, value: bytes) -> int:
    """Return the file id of a row; raises IndexCorrupt when it is damaged."""
    return decode_row("copies", key, value)[1]


def delete_copies(txn: Txn, file_ids: Collection[int]) -> None:
    """Delete the rows of files."""
    ends = {file_id.to_bytes(4, "big") for file_id in file_ids}
    for key in [key for key, _ in txn.items("copies") if key[8:] in ends]:
        txn.delete("copies", key)


def decode_row(database: str, key: bytes, value: bytes | memoryview, kind: bytes = b"") -> tuple[int, int, BitMap64]:
    """Return (ledger id, file id, entries) of a row of ``copies``, or of a database whose keys have a ``kind`` before these ids.

    Raises IndexCorrupt.
    """
    from pyroaring import BitMap64

    try:
        return *_KEY.unpack(key[len(kind) :]), BitMap64.deserialize(bytes(value))
    except (ValueError, IndexError, struct.error) as error:
        raise IndexCorrupt(
            f"the row {key.hex()} of {database} is damaged: {reason_of(error)}",
            hint="pulsar-admin store index --rebuild",
        ) from error
