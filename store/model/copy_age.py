"""How old what a store holds is: when it was read from its sources, and when these were written last.

Row (database ``state``): ``refreshed``, the time of the last refresh or addition in epoch ms, as decimal digits.
"""

from __future__ import annotations

from store.db.environment import Store, Txn
from store.db.files import FileMode, iter_logs
from store.frozen import frozen

_REFRESHED = b"refreshed"


@frozen
class CopyAge:
    """Times in ms. ``read_ms``: of the import, or of the last refresh; ``written_ms``: when a file of the sources was last
    written, by the file system's word; None where the store has no files of others."""

    read_ms: int
    written_ms: int | None

    @property
    def end_ms(self) -> int:
        """The time up to which the copy can know of anything."""
        return self.read_ms if self.written_ms is None else min(self.read_ms, self.written_ms)


def read_copy_age(store: Store, txn: Txn) -> CopyAge:
    """Return how old what STORE holds is."""
    refreshed = txn.get("state", _REFRESHED)
    imported = (int(source.get("imported", 0)) for source in store.info.sources)
    read_ms = max(imported, default=store.info.created_ms) if refreshed is None else int(refreshed)
    written = (log.mtime_ns // 1_000_000 for log in iter_logs(txn) if log.mode is not FileMode.OWN)
    return CopyAge(read_ms, max(written, default=None))


def put_refreshed(txn: Txn, now_ms: int) -> None:
    """Write that the sources were read again at NOW_MS."""
    txn.put("state", _REFRESHED, str(now_ms).encode())
