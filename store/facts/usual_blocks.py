"""Blocks of the location index of which there is nothing to say: the only one of its ledger, in one file, with one message an entry,
right in itself and by the ledger's time row.

Of the millions that a store may have nearly all are such. numpy tells them, many at once, at a tenth of the cost of ``Block``, and
agrees with what ``store.rules.index`` says of one; what this is in doubt about is none.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pulsar_admin.store.db.blocks import BLOCK_BITS, BLOCK_ENTRIES, BLOCK_HEADER, HAS_AUTO, TIMES_BYTES, TIMES_VERSION
from pulsar_admin.store.db.environment import Txn

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]
Row = tuple[bytes, bytes]
_KEY_BYTES = 16
_LEDGER_BYTES = 8
_HEAD = BLOCK_HEADER.size
_BLOCKS_MAX = 1 << 40
_HEADER: list[tuple[str, str]] = [
    *(("entries", "<u2"), ("flags", "<u2"), ("file_id", "<u4"), ("messages", "<i8"), ("payload_bytes", "<i8")),
    *(("publish_min", "<i8"), ("publish_max", "<i8"), ("broker_min", "<i8"), ("broker_max", "<i8")),
    *(("auto_min", "<i8"), ("auto_max", "<i8"), ("broker_count", "<u2"), ("digest_bytes", "<u2")),
    *(("unframed", "<u2"), ("first_slot", "<u2")),
]
"""``store.db.blocks.BlockHeader``."""
_TIME_WORDS = (TIMES_BYTES + 4 * 8) // 8
_PLAIN, _STAMPED = (struct.pack("<HHI", TIMES_VERSION, flags, 1) for flags in (0, HAS_AUTO))
"""How the time row of one block begins, without and with the automatic clock."""


class UsualRows(NamedTuple):
    """Usual blocks: their places among the rows, ledgers, files, entries, and bytes with the size fields."""

    places: Numbers
    ledger_ids: Numbers
    file_ids: Numbers
    entries: Numbers
    size_bytes: Numbers


class UsualBlocks:
    """Tells the usual blocks of a snapshot, whose rows are given in the order of their keys. FILE_BYTES: file id → its size."""

    def __init__(self, txn: Txn, file_bytes: Mapping[int, int]) -> None:
        self._file_bytes = file_bytes
        self._times = _TimeRows(txn)

    def find(self, rows: Sequence[Row], before: bytes, after: bytes) -> UsualRows | None:
        """Return which of ROWS are usual, and what they have; None where none may be. BEFORE, AFTER: the keys of the rows around them."""
        import numpy as np

        if any(len(key) != _KEY_BYTES for key, _ in rows):
            return None
        keys = np.frombuffer(b"".join([key for key, _ in rows]), ">i8").astype(np.int64).reshape(-1, 2)
        ledger_ids, numbers = keys[:, 0], keys[:, 1]
        heads = np.frombuffer(
            b"".join([row[:_HEAD] if len(row) >= _HEAD else bytes(_HEAD) for _, row in rows]), _HEADER
        )
        sizes = np.fromiter([len(row) for _, row in rows], np.int64, len(rows))
        entries, first_slots = heads["entries"].astype(np.int64), heads["first_slot"].astype(np.int64)
        other = np.ones(len(rows) + 1, bool)  # whether a row and the one before it are of two ledgers
        other[1:-1] = ledger_ids[1:] != ledger_ids[:-1]
        other[0] = rows[0][0][:_LEDGER_BYTES] != before[:_LEDGER_BYTES]
        other[-1] = rows[-1][0][:_LEDGER_BYTES] != after[:_LEDGER_BYTES]
        is_usual = other[1:] & other[:-1] & (ledger_ids >= 0) & (numbers >= 0) & (numbers < _BLOCKS_MAX)
        is_usual &= (heads["flags"] == 0) & (entries > 0) & (first_slots + entries <= BLOCK_ENTRIES)
        is_usual &= (sizes == _HEAD + 8 * entries) & (heads["messages"] == entries)
        at = np.flatnonzero(is_usual)
        times = self._times.up_to(rows[-1][0])
        if not len(at) or times is None:
            return None
        columns = b"".join([rows[index][1][_HEAD:] for index in at.tolist()])
        right, size_bytes = self._are_right(heads[at], entries[at], columns)
        right &= _are_of_times(heads[at], ledger_ids[at], numbers[at], times)
        at, size_bytes = at[right], size_bytes[right]
        return UsualRows(at, ledger_ids[at], heads["file_id"][at].astype(np.int64), entries[at], size_bytes)

    def _are_right(
        self, heads: npt.NDArray[Any], entries: Numbers, columns: bytes
    ) -> tuple[npt.NDArray[np.bool_], Numbers]:
        """Return which of the blocks with HEADS and ENTRIES are right in themselves, and their bytes with the size fields.

        COLUMNS: the offsets and the size fields of one after the other.
        """
        import numpy as np

        numbers = np.frombuffer(columns, "<u4").astype(np.int64)
        edges = np.zeros((len(heads), 2), np.int64)  # where the offsets and the size fields of each begin
        edges[1:, 0] = np.cumsum(2 * entries)[:-1]
        edges[:, 1] = edges[:, 0] + entries
        bounds = edges.reshape(-1)
        total, least = np.add.reduceat(numbers, bounds)[1::2], np.minimum.reduceat(numbers, bounds)[1::2]
        farthest = np.maximum.reduceat(numbers, bounds).reshape(-1, 2).sum(axis=1)
        head_bytes = 32 + heads["digest_bytes"].astype(np.int64)
        file_ids, places = np.unique(heads["file_id"], return_inverse=True)
        ends = np.array([self._file_bytes.get(file_id, -1) for file_id in file_ids.tolist()], np.int64)[places]
        right: npt.NDArray[np.bool_] = (least >= head_bytes) & (farthest + 4 <= ends)
        return right & (total - head_bytes * entries == heads["payload_bytes"]), total + 4 * entries


class _TimeRows:
    """The time rows of one block, by ledger, as words: the row without the automatic clock has that of publishing in its place."""

    def __init__(self, txn: Txn) -> None:
        self._rows = txn.items("times")
        self._next: Row | None = next(self._rows, None)

    def up_to(self, key: bytes) -> tuple[Numbers, Numbers] | None:
        """Return ledger ids and rows up to that of the ledger that KEY begins with, from the one after the last that was asked for."""
        import numpy as np

        last, plain = key[:_LEDGER_BYTES], TIMES_BYTES + 16
        ids, words = list[bytes](), list[bytes]()
        while self._next is not None and self._next[0] <= last:
            ledger, row = self._next
            if len(ledger) == _LEDGER_BYTES and len(row) == plain and row.startswith(_PLAIN):
                ids.append(ledger)
                words.append(row + row[TIMES_BYTES:])
            elif len(ledger) == _LEDGER_BYTES and len(row) == plain + 16 and row.startswith(_STAMPED):
                ids.append(ledger)
                words.append(row)
            self._next = next(self._rows, None)
        if not ids:
            return None
        ledger_ids = np.frombuffer(b"".join(ids), ">i8").astype(np.int64)
        return ledger_ids, np.frombuffer(b"".join(words), "<i8").reshape(-1, _TIME_WORDS)


def _are_of_times(
    heads: npt.NDArray[Any], ledger_ids: Numbers, numbers: Numbers, times: tuple[Numbers, Numbers]
) -> npt.NDArray[np.bool_]:
    """Return of which of the blocks with HEADS, LEDGER_IDS and NUMBERS the time row of the ledger says just what they say."""
    import numpy as np

    known, rows = times
    places = np.minimum(np.searchsorted(known, ledger_ids), len(known) - 1)
    words = rows[places]
    entries, first = heads["entries"], (numbers << BLOCK_BITS) + heads["first_slot"]
    stamped = heads["broker_count"] > 0
    expected = [
        *(numbers, entries, first, first + entries - 1, entries, heads["payload_bytes"]),
        *(heads["publish_min"], heads["publish_max"], heads["broker_min"], heads["broker_max"]),
        *(heads["broker_count"], heads["unframed"]),
        words[:, 13],  # the LAC, which no block has
        *(heads["publish_max"], heads["publish_min"]),
        np.where(stamped, heads["auto_max"], heads["publish_max"]),
        np.where(stamped, heads["auto_min"], heads["publish_min"]),
    ]
    same: npt.NDArray[np.bool_] = known[places] == ledger_ids
    for place, column in enumerate(expected, 1):
        same &= words[:, place] == column
    return same
