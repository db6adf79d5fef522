"""Entry logs of our own, put into a ledger directory as the bookie itself would have: under the next id, sealed, ``lastId`` raised.

Source: ``DefaultEntryLogger``, ``EntryLoggerAllocator``; BookKeeper 4.16.
"""

from __future__ import annotations

import filecmp
from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path

from msgspec import Struct, field

from pulsar_admin.store.codec import entrylog
from pulsar_admin.store.codec.bookie import COOKIE_FILE, LAST_ID_FILE, decode_last_id, encode_last_id
from pulsar_admin.store.errors import MetadataCorrupt
from pulsar_admin.store.files import create_file, remove_file, rename, replace_like


def put_log(bodies: Iterable[bytes | memoryview], current: Path) -> int:
    """Write one entry log with these entries and return its id; if a log with exactly these bytes exists, return that one's.

    Until it is complete the log has a name that bookies skip, and that their compaction removes.
    """
    log_id = newest_log_id(current) + 1
    unfinished = current / f"{entrylog.log_file_name(log_id)}.compacting"
    remove_file(unfinished)
    # A sealed log: the records unchanged, with their digests, then the ledgers map, which the header names.
    sizes: dict[int, int] = {}
    like = next(iter((*_logs(current), current / COOKIE_FILE))).stat()
    with create_file(unfinished, like=like) as file:
        file.write(entrylog.encode_header(entrylog.EntryLogHeader(entrylog.CURRENT_VERSION, 0, 0)))
        for body in bodies:
            file.write(len(body).to_bytes(entrylog.SIZE_BYTES, "big"))
            file.write(body)
            ledger_id = int.from_bytes(body[:8], "big")
            sizes[ledger_id] = sizes.get(ledger_id, 0) + entrylog.SIZE_BYTES + len(body)
        end = file.tell()
        file.write(entrylog.encode_ledgers_map(sizes))
        file.seek(0)
        file.write(entrylog.encode_header(entrylog.EntryLogHeader(entrylog.CURRENT_VERSION, end, len(sizes))))
    for log in _logs(current):
        if filecmp.cmp(log, unfinished, shallow=False):  # compares sizes first
            remove_file(unfinished)
            return entrylog.log_id_of(log.name) or 0
    rename(unfinished, current / entrylog.log_file_name(log_id))
    return log_id


class LoggedEntries(Struct):
    """The entries of a log that we write, in its order, and their places: offsets after the size field."""

    log_id: int = -1
    ledger_ids: array[int] = field(default_factory=lambda: array("q"))
    entry_ids: array[int] = field(default_factory=lambda: array("q"))
    positions: array[int] = field(default_factory=lambda: array("q"))

    def taken(
        self, bodies: Iterator[bytes | memoryview], left: list[bytes | memoryview]
    ) -> Iterator[bytes | memoryview]:
        """Yield the bodies that fit into one log; the first one that does not is put into ``left``."""
        position = entrylog.HEADER_BYTES
        for body in bodies:
            if self.positions and position + entrylog.SIZE_BYTES + len(body) > entrylog.LOG_LIMIT_BYTES:
                left.append(body)
                return
            self.ledger_ids.append(int.from_bytes(body[:8], "big"))
            self.entry_ids.append(int.from_bytes(body[8:16], "big"))
            self.positions.append(position + entrylog.SIZE_BYTES)
            position += entrylog.SIZE_BYTES + len(body)
            yield body


def put_logs(bodies: Iterator[bytes | memoryview], current: Path) -> Iterator[LoggedEntries]:
    """Write entries into logs as ``put_log`` does, and yield the content of each; ``lastId`` is raised to the last one."""
    left: list[bytes | memoryview] = []
    logged = None
    while first := left or [*islice(bodies, 1)]:
        left, logged = [], LoggedEntries()
        logged.log_id = put_log(logged.taken(chain(first, bodies), left), current)
        yield logged
    if logged is not None:
        raise_last_id(current)


def raise_last_id(current: Path, log_id: int = -1) -> None:
    """Make the bookie use log ids above those of all its logs, and above ``log_id``."""
    newest, path = max(log_id, newest_log_id(current)), current / LAST_ID_FILE
    if newest > _last_id(current):
        if not path.exists():
            with create_file(path, like=(current / COOKIE_FILE).stat()):
                pass
        replace_like(path, encode_last_id(newest), f"{LAST_ID_FILE}.new")


def newest_log_id(current: Path) -> int:
    """Return the largest log id that is in use or was given by the bookie; −1 for a new one."""
    ids = [log_id for log_id in (entrylog.log_id_of(log.name) for log in _logs(current)) if log_id is not None]
    return max([*ids, _last_id(current)])


def _logs(current: Path) -> list[Path]:
    return [file for file in sorted(current.iterdir()) if entrylog.log_id_of(file.name) is not None]


def _last_id(current: Path) -> int:
    """Return the id in ``lastId``; −1 without a readable one: a bookie then goes by the names of its logs, too."""
    path = current / LAST_ID_FILE
    with suppress(MetadataCorrupt, FileNotFoundError):
        return decode_last_id(path.read_bytes(), str(path))
    return -1
