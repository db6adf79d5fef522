"""The age of a store's content: when it was read from its sources, and the time whose state it shows.

Rows (database ``state``): ``refreshed``, the time of the last refresh or addition in epoch ms, as decimal digits; ``as-of``, the copy's own
time in the same way, a blank, and one of ``SAID_BY``.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pulsar_admin.store.db.backups import damaged_store
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.files import FileMode, iter_logs

_REFRESHED = b"refreshed"
_AS_OF = b"as-of"
SAID_BY: Mapping[str, str] = {
    "live": "read while it was in use",
    "zookeeper": "by ZooKeeper's log",
    "metadata": "by the newest metadata node",
    "journal": "by a bookie's journal",
    "broker": "by an entry's broker time",
    "files": "by the times of its files",
}
"""What tells the time of a copy → in words."""


class AsOf(Struct, frozen=True):
    """The copy's own time, epoch ms: the latest moment whose state it may show; ``source``: a key of ``SAID_BY``."""

    time_ms: int
    source: str

    @property
    def said_by(self) -> str:
        """The source of the time, in words."""
        return SAID_BY.get(self.source, f"by {self.source}")


GIVEN, CLOCK = "given", "clock"
"""What else may say which time it is: ``--now``, or the clock where a copy tells nothing."""


class Now(Struct, frozen=True):
    """The time at which ages are counted, epoch ms. ``source``: a key of ``SAID_BY``, ``GIVEN`` or ``CLOCK``; ``clock_ms``: the clock's
    time."""

    time_ms: int
    source: str
    clock_ms: int

    @classmethod
    def of(cls, as_of: AsOf | None, clock_ms: int, *, is_given: bool = False) -> Now:
        """Return the copy's own time; ``clock_ms`` if the copy has none, or if ``is_given``: then the caller chose that time."""
        if is_given or as_of is None:
            return cls(clock_ms, GIVEN if is_given else CLOCK, clock_ms)
        return cls(as_of.time_ms, as_of.source, clock_ms)

    def text(self) -> str:
        """Return the age as the first line of a screen: ``as of 2026-11-21T09:42Z, 5 days old, by ZooKeeper's log``."""
        from pulsar_admin.store.timespec import old_text, shown_minute  # cold questions say no such line

        time = shown_minute(self.time_ms)
        if self.source == GIVEN:
            return f"as of {time}, by --now"
        if self.source == CLOCK:
            return f"as of {time}, by the clock: the time of this copy is unknown"
        return f"as of {time}, {old_text(self.clock_ms - self.time_ms)}, {AsOf(self.time_ms, self.source).said_by}"


def find_as_of(txn: Txn) -> AsOf | None:
    """Return the copy's own time; None if nothing in it shows that, or if an older version imported it. Raises IndexCorrupt."""
    row = txn.get("state", _AS_OF)
    if row is None:
        return None
    digits, _, source = row.decode("ascii", "replace").partition(" ")
    if not digits.isascii() or not digits.isdigit():
        raise damaged_store(txn.store.path, f"the row of the copy's time is damaged: {row[:40]!r}")
    return AsOf(int(digits), source)


def put_as_of(txn: Txn, found: AsOf) -> None:
    """Write the row of the copy's own time."""
    txn.put("state", _AS_OF, f"{found.time_ms} {found.source}".encode())


class CopyAge(Struct, frozen=True):
    """Times in ms. ``read_ms``: of the import, or of the last refresh; ``end_ms``: the time up to which the copy can contain anything."""

    read_ms: int
    end_ms: int


def read_copied_ms(txn: Txn) -> int:
    """Return the time of the last import, addition or refresh; for a store without imports, the time of its creation."""
    refreshed = txn.get("state", _REFRESHED)
    imported = (int(source.get("imported", 0)) for source in txn.store.info.sources)
    return max(imported, default=txn.store.info.created_ms) if refreshed is None else int(refreshed)


def read_copy_age(txn: Txn) -> CopyAge:
    """Return the age of a store's content; without a copy time of its own, ``end_ms`` is the latest write to an imported file."""
    read_ms, as_of = read_copied_ms(txn), find_as_of(txn)
    if as_of is not None:
        return CopyAge(read_ms, as_of.time_ms)
    written = (log.mtime_ns // 1_000_000 for log in iter_logs(txn) if log.mode is not FileMode.OWN)
    return CopyAge(read_ms, min(read_ms, max(written, default=read_ms)))


def put_refreshed(txn: Txn, now_ms: int) -> None:
    """Write that the sources were read again at ``now_ms``."""
    txn.put("state", _REFRESHED, str(now_ms).encode())
