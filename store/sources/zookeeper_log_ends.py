"""The end of ZooKeeper's newest transaction log, and the signs that more was written there.

Zeros behind the last record are what a sound log has: ``FilePadding`` extends it by ``zookeeper.preAllocSize`` (64 MiB) ahead of use.
The files tell more in these cases only: a log without zeros, one that was extended further than its records reach, one that was written
long after its last transaction.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import gcd
from pathlib import Path

from pulsar_admin.store.codec.buffer import written_end
from pulsar_admin.store.codec.jute import HEADER

_CHUNK_BYTES = 4 << 20
_STEP_UNIT_BYTES = 1024  # of ``preAllocSize``
_BATCH_BYTES = 1 << 20  # written behind the last commit when a log is extended, which a loss of power takes back
_CLOCKS_MS = 5 * 60 * 1000
"""What the clocks of a leader, which times transactions, and of the machine that writes files may differ by."""


def iter_lost_ends(logs: Sequence[Path]) -> Iterator[str]:
    """Yield the signs that the newest log had more than its records; ``logs``: the oldest first."""
    if not logs:
        return
    *before, newest = logs
    if newest.stat().st_size == 0:
        yield f"{newest} is empty: transactions from its zxid on are lost, if there were any"
        return
    if not _is_extended(newest):
        if any(map(_is_extended, before)):
            yield f"{newest} ends with a record, without the zeros that ZooKeeper writes ahead: it may have been cut"
        return
    size = newest.stat().st_size
    step = gcd(*(file.stat().st_size - HEADER.size for file in logs if _is_extended(file)))
    reached = (
        size - step - _BATCH_BYTES
    )  # ``calculateFileSizeWithPadding``: from 4096 bytes in front of the size before
    if step % _STEP_UNIT_BYTES == 0 and reached > HEADER.size and (end := _written_end(newest, size)) < reached:
        yield (
            f"{newest} was extended to {size} bytes, which ZooKeeper does when {reached} or more are written, and "
            f"zeros begin at {end:#x}:"
            " the records there are gone"
        )


def iter_unsure_ends(
    log: Path | None, others: Sequence[Path], snapshots: Path, last: int, last_ms: int
) -> Iterator[str]:
    """Yield the signs that transactions may follow the last one (``last``, at ``last_ms``; 0: there is none): the
    newest log was written long after it, or the snapshots' directory says that a newer epoch began. ``others``: the
    files beside the log."""
    written_ms = 0 if log is None else log.stat().st_mtime_ns // 1_000_000
    kept_ms = min((file.stat().st_mtime_ns // 1_000_000 for file in others if file != log), default=written_ms)
    # Times of files count where another one shows that copying kept them.
    if last_ms and kept_ms <= last_ms + _CLOCKS_MS < written_ms:
        from pulsar_admin.store.timespec import format_time_ms  # 1 ms; hardly any log is so

        yield (
            f"{log} was written at {format_time_ms(written_ms)}, and its last transaction is of {format_time_ms(last_ms)}:"
            " it was copied without its time, or later ones, where zeros are now, are lost"
        )
    with suppress(OSError, ValueError):
        epoch = int((snapshots / "currentEpoch").read_text())
        if epoch > last >> 32:
            yield (
                f"{snapshots / 'currentEpoch'} says that epoch {epoch} began, and the last transaction here, {last:#x}, is of epoch"
                f" {last >> 32}: the new one had none yet, or they are lost"
            )


def _is_extended(log: Path) -> bool:
    """Whether a log ends in zeros, more of them than a record can begin with."""
    with open(log, "rb") as file:
        return os.pread(file.fileno(), 16, max(log.stat().st_size - 16, 0)) == bytes(16)


def _written_end(log: Path, size: int) -> int:
    """Return the position after the last byte of a log that is not zero."""
    with open(log, "rb", buffering=0) as file:
        for begin in range((size - 1) // _CHUNK_BYTES * _CHUNK_BYTES, -1, -_CHUNK_BYTES):
            chunk = os.pread(file.fileno(), _CHUNK_BYTES, begin)
            if end := written_end(memoryview(chunk), 0, len(chunk)):
                return begin + end
    return 0
