"""The offset of a stream: how far each file was read, as plain JSON, and as objects.

Of each folder it has the ids of the files that were read to their end, as ranges (``0-4,6``), and of each other file that was begun
the bytes of the last batch, a digest of its first bytes, and how it was read. Files that a batch read to their end stay in its
offset, so that the batch can be planned once more; the next one folds them.
"""

from __future__ import annotations

import base64
import zlib
from bisect import bisect_right
from collections.abc import Container, Iterator
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.entrylog import log_id_of
from pulsar_admin.store.codec.journal import journal_id_of
from pulsar_admin.store.engine.slices import FileRange
from pulsar_admin.store.errors import Unsupported
from pulsar_admin.store.names import FileKind

Offset = dict[str, Any]
"""What Spark keeps in its checkpoint."""

VERSION = 1
FAR = 1 << 62


class Listed(Struct, frozen=True):
    """A file that is there."""

    path: str
    folder: str
    name: str
    id: int
    size_bytes: int

    @property
    def path_in_folder(self) -> str:
        """Its path without the query of a URL."""
        return f"{self.folder}/{self.name}"

    @property
    def kind(self) -> FileKind:
        return FileKind.JOURNAL if self.name.endswith(".txn") else FileKind.ENTRY_LOG


class Begun(Struct, frozen=True):
    """The last batch that read of a file read bytes START to END; ``digest`` of its first bytes, up to END. How: see ``Part``."""

    start: int
    end: int
    digest: str
    complete: bool
    looked_at: bool
    remembered: bool

    def encode(self) -> list[Any]:  # Any: JSON
        return [self.start, self.end, self.digest, self.complete + 2 * self.looked_at + 4 * self.remembered]

    @staticmethod
    def decode(value: list[Any]) -> Begun:  # Any: JSON
        start, end, digest, flags = value
        return Begun(start, end, digest, bool(flags & 1), bool(flags & 2), bool(flags & 4))


class Folder(Struct):
    """What was read of the logs, or journals, of one folder."""

    owner: str  # whose disk it is on
    done: list[tuple[int, int]] = field(default_factory=list)  # ranges of ids, both ends included
    begun: dict[str, Begun] = field(default_factory=dict)  # by name

    def is_done(self, file: Listed) -> bool:
        """Whether FILE was read to its end."""
        at = bisect_right(self.done, (file.id, FAR))
        begun = self.begun.get(file.name)
        return (at > 0 and file.id <= self.done[at - 1][1]) or (begun is not None and begun.complete)

    def fold(self, there: Container[str]) -> None:
        """Let the complete files be ids alone, and leave out what is not THERE any more."""
        ids = sorted([*self.done, *((id_of(name),) * 2 for name, one in self.begun.items() if one.complete)])
        self.begun = {name: one for name, one in self.begun.items() if not one.complete and name in there}
        self.done = []
        for first, last in ids:
            if self.done and first <= self.done[-1][1] + 1:
                self.done[-1] = (self.done[-1][0], max(last, self.done[-1][1]))
            else:
                self.done.append((first, last))

    def pass_before(self, file_id: int) -> None:
        """Let what is older than FILE_ID be read: of journals before lastMark all is in logs."""
        self.begun = {name: one for name, one in self.begun.items() if id_of(name) >= file_id}
        self.done = [(0, file_id - 1), *self.done] if file_id > 0 else self.done
        self.fold(self.begun)

    def encode(self) -> Offset:
        done = ",".join(f"{first:x}" if first == last else f"{first:x}-{last:x}" for first, last in self.done)
        begun = {name: one.encode() for name, one in self.begun.items()}
        return {"owner": self.owner, "done": done, "begun": begun}

    @staticmethod
    def decode(value: Offset) -> Folder:
        ranges = [text.partition("-") for text in value["done"].split(",") if text]
        done = [(int(first, 16), int(last or first, 16)) for first, _, last in ranges]
        return Folder(value["owner"], done, {name: Begun.decode(one) for name, one in value["begun"].items()})


class Place(Struct):
    """An offset as objects; ``marks``: where the bookies' lastMark were when all of their logs were read."""

    folders: dict[FileKind, dict[str, Folder]] = field(
        default_factory=lambda: {FileKind.ENTRY_LOG: {}, FileKind.JOURNAL: {}}
    )
    marks: dict[str, Mark] = field(default_factory=dict)
    recent: dict[str, Recent] = field(default_factory=dict)

    def of(self, file: Listed, owner: str = "") -> Folder:
        """Return the folder of FILE, a new one, of OWNER's, where nothing of it was read."""
        return self.folders[file.kind].setdefault(file.folder, Folder(owner))

    def journal_end(self, owner: str) -> Mark:
        """Return the place in OWNER's journals up to which they were read."""
        folders = [folder for folder in self.folders[FileKind.JOURNAL].values() if folder.owner == owner]
        return max(
            [(id_of(name), one.end) for folder in folders for name, one in folder.begun.items()]
            + [(folder.done[-1][1], FAR) for folder in folders if folder.done],
            default=NO_MARK,
        )

    def newly_read(self, before: Place) -> Iterator[tuple[str, Begun]]:
        """Yield path and bytes of what was read since BEFORE."""
        old = dict(before.each_begun())
        for path, begun in self.each_begun():
            if begun.end > begun.start and (path not in old or old[path].end != begun.end):
                yield path, begun

    def each_begun(self) -> Iterator[tuple[str, Begun]]:
        """Yield the path of each file that was begun, and how far it was read."""
        for folders in self.folders.values():
            for name, folder in folders.items():
                yield from ((f"{name}/{file_name}", begun) for file_name, begun in folder.begun.items())

    def encode(self) -> Offset:
        logs, journals = ({name: folder.encode() for name, folder in self.folders[kind].items()} for kind in FileKind)
        marks = {name: list(mark) for name, mark in self.marks.items()}
        recent = {name: kept.encode() for name, kept in self.recent.items() if kept.given}
        return {"version": VERSION, "logs": logs, "journals": journals, "marks": marks, "recent": recent}

    @staticmethod
    def decode(offset: Offset) -> Place:
        if offset.get("version") != VERSION:
            raise Unsupported(
                f"the checkpoint has an offset of version {offset.get('version')}, known is {VERSION}",
                hint="begin with a new checkpointLocation",
            )
        logs, journals = (
            {name: Folder.decode(value) for name, value in offset[kind].items()} for kind in ("logs", "journals")
        )
        marks = {name: (mark[0], mark[1]) for name, mark in offset["marks"].items()}
        recent = {name: Recent.decode(kept) for name, kept in offset["recent"].items()}
        return Place({FileKind.ENTRY_LOG: logs, FileKind.JOURNAL: journals}, marks, recent)


FIRST: Offset = Place().encode()


def id_of(name: str) -> int:
    """Return the id of the log or journal called NAME; raises ValueError."""
    found = journal_id_of(name) if name.endswith(".txn") else log_id_of(name)
    if found is None:
        raise ValueError(name)
    return found


def order_of(file: Listed) -> tuple[str, int, str]:
    """Return what files are sorted by: logs before journals, the oldest first."""
    return file.kind, file.id, file.folder


# -- recent ------------------------------------------------------------------------------------------------------------
# Which entries a stream has given lately: what a journal holds comes to a log later, and what a log holds comes again after a crash.
#
# A bookie writes an entry to its journal and to memory, and at the next flush to an entry log; then it moves ``lastMark`` behind what it
# flushed (``Journal``, ``SyncThread``, ``SingleDirectoryDbLedgerStorage``, BookKeeper 4.16). When it was killed, it writes what lies
# behind ``lastMark`` to a log once more. So an entry comes again only until the mark has passed its place in the journal.


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


class Given(Struct):
    """Entries that came while lastMark was ``mark``, before ``behind`` in the journals: from a log of ``folder``, or from them ("", −1)."""

    folder: str
    log_id: int
    mark: Mark
    behind: Mark
    ids: Array  # IDS, sorted
    later: int = 0  # logs of the folder that were begun since
    later_bytes: int = 0  # and what was read of them


class Recent(Struct):
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


# -- parts -------------------------------------------------------------------------------------------------------------
# The parts of files that a batch of a stream reads, cut into tasks.


Tasks = tuple[tuple[FileRange, ...], ...]


class Part(Struct, frozen=True):
    """Bytes of a file that a batch reads.

    ``complete``: nothing comes behind. ``looked_at``: what came lately is left out. ``remembered``: it may come again.
    """

    file: Listed
    start: int
    end: int
    complete: bool
    looked_at: bool
    remembered: bool


class Looked(Struct, frozen=True):
    """Good records of a part of a file, in its order, and where the part ends."""

    ids: Array
    offsets: Array
    ends: Array
    end: int

    def until(self, end: int) -> Looked:
        """Return those that end before END or there."""
        count = int(np.searchsorted(self.ends, end, "right"))
        return Looked(self.ids[:count], self.offsets[:count], self.ends[:count], end)


def pieces_of(file: Listed, start: int, end: int, slice_bytes: int) -> Iterator[FileRange]:
    """Cut bytes START to END of FILE, where records begin and end, into slices; journals are not cut."""
    count = 1 if file.kind == FileKind.JOURNAL else max(1, round((end - start) / slice_bytes))
    for index in range(count):
        first, last = (start + (end - start) * edge // count for edge in (index, index + 1))
        if last > first:
            yield FileRange(file.path, file.kind, -1, first, last, seek=index > 0, limit=end)


def pieces_without(part: Part, looked: Looked, again: Array, slice_bytes: int) -> Tasks:
    """Return the tasks of PART, but for the records AGAIN; small pieces share a task."""
    tasks: list[tuple[FileRange, ...]] = []
    held: list[FileRange] = []
    for start, end in _between(part, looked.offsets[again], looked.ends[again]):
        pieces = tuple(pieces_of(part.file, start, end, slice_bytes))
        if len(pieces) > 1:
            tasks += [(piece,) for piece in pieces]
            continue
        if held and sum(piece.bytes for piece in held) + end - start > slice_bytes:
            tasks.append(tuple(held))
            held = []
        held += pieces
    return (*tasks, *([tuple(held)] if held else []))


def _between(part: Part, starts: Array, ends: Array) -> Iterator[tuple[int, int]]:
    """Yield the bytes of PART between those from STARTS to ENDS."""
    breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    at = part.start
    for first, last in zip([0, *breaks.tolist()], [*(breaks - 1).tolist(), len(starts) - 1], strict=True):
        if last >= first and starts[first] > at:
            yield at, int(starts[first])
        at = int(ends[last]) if last >= first else at
    if at < part.end:
        yield at, part.end
