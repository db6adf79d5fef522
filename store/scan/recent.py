"""Which entries a stream has given lately: what a journal holds comes to a log later, and what a log holds comes again after a crash.

A bookie writes an entry to its journal and to memory, and at the next flush to an entry log; then it moves ``lastMark`` behind what
it flushed (``Journal``, ``SyncThread``, ``SingleDirectoryDbLedgerStorage``, BookKeeper 4.16). When it was killed, it writes what lies
behind ``lastMark`` to a log once more. So an entry comes again only until the mark has passed its place in the journal.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from store.aliases import Array

Mark = tuple[int, int]
"""A place in a bookie's journals: (journal id, offset)."""

IDS = np.dtype("S16")
"""Ledger and entry id, big-endian: sorted and found as bytes, whatever ids a ledger has."""
_PAIR = np.dtype([("ledger_id", ">i8"), ("entry_id", ">i8")])
KEPT_BYTES = 4 << 30
"""Of logs: a replay writes again what one flush wrote, half of ``dbStorage_writeCacheMaxSizeMb``, a quarter of the direct memory."""
KEPT_LOGS = 64
"""That flush may fill several logs where these are small."""
NO_MARK: Mark = (-1, -1)


@dataclass(slots=True)
class Given:
    """Entries that came while lastMark was ``mark``, before ``behind`` in the journals: from a log of ``folder``, or from them ("", −1)."""

    folder: str
    log_id: int
    mark: Mark
    behind: Mark
    ids: Array  # IDS, sorted
    later: int = 0  # logs of the folder that were begun since
    later_bytes: int = 0  # and what was read of them


@dataclass(slots=True)
class Recent:
    """What one bookie's files gave lately."""

    given: list[Given] = field(default_factory=list)

    def copy(self) -> Recent:
        return Recent([replace(one) for one in self.given])

    def known(self, ids: Array) -> Array:
        """Return which of IDS were given."""
        found = np.zeros(len(ids), np.bool_)
        for one in self.given:
            at = np.minimum(np.searchsorted(one.ids, ids), len(one.ids) - 1)
            found |= one.ids[at] == ids
        return found

    def add(self, folder: str, log_id: int, mark: Mark, behind: Mark, ids: Array) -> None:
        """Remember IDS; see ``Given``."""
        if not len(ids):
            return
        for one in self.given:
            if (one.folder, one.log_id, one.mark) == (folder, log_id, mark):
                one.behind, one.ids = max(behind, one.behind), np.sort(np.concatenate([one.ids, ids]))
                return
        self.given.append(Given(folder, log_id, mark, behind, np.sort(ids)))

    def pass_by(self, folder: str, log_id: int, size_bytes: int, *, is_begun: bool) -> None:
        """Note that SIZE_BYTES of a log of FOLDER were read, and drop what came too far in front of it to come again."""
        for one in self.given:
            if one.folder == folder and one.log_id < log_id:
                one.later += is_begun
                one.later_bytes += size_bytes
        self.given = [one for one in self.given if one.later <= KEPT_LOGS and one.later_bytes <= KEPT_BYTES]

    def forget(self, mark: Mark) -> None:
        """Drop what cannot come again, now that lastMark was MARK and all that the logs held then was read.

        What came from a log may be on its way into the journal: that ends before lastMark has moved twice.
        """
        before = max((one.mark for one in self.given if one.mark < mark), default=mark)
        self.given = [one for one in self.given if mark <= one.behind or (one.folder and one.mark >= before)]

    def encode(self) -> list[Any]:  # Any: JSON
        """Return it as JSON."""
        return [
            [one.folder, one.log_id, one.mark, one.behind, pack_ids(one.ids), one.later, one.later_bytes]
            for one in self.given
        ]

    @staticmethod
    def decode(value: list[Any]) -> Recent:  # Any: JSON
        """Return what ``encode`` made JSON of."""
        return Recent(
            [
                Given(folder, log_id, (mark[0], mark[1]), (behind[0], behind[1]), unpack_ids(packed), *later)
                for folder, log_id, mark, behind, packed, *later in value
            ]
        )


def as_ids(ledger_ids: Array, entry_ids: Array) -> Array:
    """Return the two columns as one of IDS."""
    pairs = np.empty(len(ledger_ids), _PAIR)
    pairs["ledger_id"], pairs["entry_id"] = ledger_ids, entry_ids
    return pairs.view(IDS)


def pack_ids(ids: Array) -> str:
    """Return sorted IDS as text: differences, compressed; entries in a row take nearly nothing."""
    pairs = ids.view(_PAIR)
    columns = [np.diff(pairs[name].astype(np.int64), prepend=0) for name in ("ledger_id", "entry_id")]
    return base64.b85encode(zlib.compress(np.concatenate(columns).tobytes(), 1)).decode()


def unpack_ids(text: str) -> Array:
    """Return the ids of ``pack_ids``."""
    both = np.frombuffer(zlib.decompress(base64.b85decode(text)), np.int64)
    ledger_ids, entry_ids = (np.cumsum(half) for half in np.split(both, 2))
    return as_ids(ledger_ids, entry_ids)
