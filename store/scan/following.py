"""Following files that grow: which bytes come after an offset, and the offset itself. The reader of Spark's streams is in
``store.scan.datasource``.

- A log is complete when its ledgers map is there (``DefaultEntryLogger`` writes it when it rotates), or when it was last written an
  hour before the newest log of its folder: a killed bookie never appends to it, and with a log per ledger an idle one is sealed after
  five minutes (``entrylogMapAccessExpiryTimeInSeconds``). A journal is complete when there is a later one.
- Any other file is read up to its last good record: a torn tail waits, and so do zeros before other bytes, since the direct
  logger's blocks may be written in any order. Damage before a good record is skipped.
- Entries of growing files are looked up among recent ones (``Recent``); complete logs of a backlog are not,
  unless entries arrived recently, or one of the next logs is incomplete or empty: entries are repeated only around a crash.

The offset is plain JSON: for each folder the ids of the files that were read to their end, as ranges (``0-4,6``); for each other
file the bytes of the last batch, a digest of its first bytes, and how it was read. Files that a batch read to their
end stay in its offset, so that the batch can be planned once more; the next one folds them.
"""

from __future__ import annotations

import base64
import os
import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from glob import glob
from hashlib import sha256
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store import urls
from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec import bookie
from pulsar_admin.store.codec.entrylog import HEADER_BYTES, decode_header, decode_ledgers_map, log_id_of
from pulsar_admin.store.codec.journal import journal_id_of
from pulsar_admin.store.engine.slices import SLICE_BYTES, FileRange
from pulsar_admin.store.errors import EntryLogCorrupt, InvalidValue, SourceChanged, SourceNotFound, Unsupported
from pulsar_admin.store.kernels.columns import BAD_DIGEST
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan import sources
from pulsar_admin.store.scan.files import LOOK_BACK_BYTES, FileScan, LedgerDigests, Slice
from pulsar_admin.store.scan.operations import check_is_log

Offset = dict[str, Any]
"""What Spark keeps in its checkpoint."""

VERSION = 1
FAR = 1 << 62


class FoundFile(Struct, frozen=True):
    """A file that a listing found."""

    path: str
    folder: str
    name: str
    id: int
    size_bytes: int

    @property
    def path_in_folder(self) -> str:
        """The path without the query of a URL."""
        return f"{self.folder}/{self.name}"

    @property
    def kind(self) -> FileKind:
        return FileKind.JOURNAL if self.name.endswith(".txn") else FileKind.ENTRY_LOG


class _Begun(Struct, frozen=True):
    """The last batch that read from this file, and the bytes ``start`` to ``end`` that it read; ``digest`` of the
    file's first bytes. See ``FilePart``."""

    start: int
    end: int
    digest: str
    complete: bool
    looked_at: bool
    remembered: bool

    def encode(self) -> list[Any]:  # Any: JSON
        return [self.start, self.end, self.digest, self.complete + 2 * self.looked_at + 4 * self.remembered]

    @staticmethod
    def decode(value: list[Any]) -> _Begun:  # Any: JSON
        start, end, digest, flags = value
        return _Begun(start, end, digest, bool(flags & 1), bool(flags & 2), bool(flags & 4))


class _Folder(Struct):
    """The parts of the logs, or journals, of one folder that were read."""

    owner: str  # whose disk it is on
    done: list[tuple[int, int]] = field(default_factory=list)  # ranges of ids, both ends included
    begun: dict[str, _Begun] = field(default_factory=dict)  # by name

    def is_done(self, file: FoundFile) -> bool:
        """Whether a file was read to its end."""
        at = bisect_right(self.done, (file.id, FAR))
        begun = self.begun.get(file.name)
        return (at > 0 and file.id <= self.done[at - 1][1]) or (begun is not None and begun.complete)

    def fold(self, there: Container[str]) -> None:
        """Keep only the ids of complete files, and drop files that no longer exist."""
        ids = sorted([*self.done, *((_id_of(name),) * 2 for name, one in self.begun.items() if one.complete)])
        self.begun = {name: one for name, one in self.begun.items() if not one.complete and name in there}
        self.done = []
        for first, last in ids:
            if self.done and first <= self.done[-1][1] + 1:
                self.done[-1] = (self.done[-1][0], max(last, self.done[-1][1]))
            else:
                self.done.append((first, last))

    def pass_before(self, file_id: int) -> None:
        """Count files older than ``file_id`` as read: the entries of journals before lastMark are all in logs."""
        self.begun = {name: one for name, one in self.begun.items() if _id_of(name) >= file_id}
        self.done = [(0, file_id - 1), *self.done] if file_id > 0 else self.done
        self.fold(self.begun)

    def encode(self) -> Offset:
        done = ",".join(f"{first:x}" if first == last else f"{first:x}-{last:x}" for first, last in self.done)
        begun = {name: one.encode() for name, one in self.begun.items()}
        return {"owner": self.owner, "done": done, "begun": begun}

    @staticmethod
    def decode(value: Offset) -> _Folder:
        ranges = [text.partition("-") for text in value["done"].split(",") if text]
        done = [(int(first, 16), int(last or first, 16)) for first, _, last in ranges]
        return _Folder(value["owner"], done, {name: _Begun.decode(one) for name, one in value["begun"].items()})


class Progress(Struct):
    """An offset as objects; ``marks``: where the bookies' lastMark were when all of their logs were read."""

    folders: dict[FileKind, dict[str, _Folder]] = field(
        default_factory=lambda: {FileKind.ENTRY_LOG: {}, FileKind.JOURNAL: {}}
    )
    marks: dict[str, Mark] = field(default_factory=dict)
    recent: dict[str, Recent] = field(default_factory=dict)

    def of(self, file: FoundFile, owner: str = "") -> _Folder:
        """Return the folder of a file; a new one, with this owner, if nothing was read there."""
        return self.folders[file.kind].setdefault(file.folder, _Folder(owner))

    def journal_end(self, owner: str) -> Mark:
        """Return the place up to which an owner's journals were read."""
        folders = [folder for folder in self.folders[FileKind.JOURNAL].values() if folder.owner == owner]
        return max(
            [(_id_of(name), one.end) for folder in folders for name, one in folder.begun.items()]
            + [(folder.done[-1][1], FAR) for folder in folders if folder.done],
            default=NO_MARK,
        )

    def newly_read(self, before: Progress) -> Iterator[tuple[str, _Begun]]:
        """Yield the path and the byte range that were read since ``before``."""
        old = dict(before.each_begun())
        for path, begun in self.each_begun():
            if begun.end > begun.start and (path not in old or old[path].end != begun.end):
                yield path, begun

    def each_begun(self) -> Iterator[tuple[str, _Begun]]:
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
    def decode(offset: Offset) -> Progress:
        if offset.get("version") != VERSION:
            raise Unsupported(
                f"the checkpoint has an offset of version {offset.get('version')}, known is {VERSION}",
                hint="begin with a new checkpointLocation",
            )
        logs, journals = (
            {name: _Folder.decode(value) for name, value in offset[kind].items()} for kind in ("logs", "journals")
        )
        marks = {name: (mark[0], mark[1]) for name, mark in offset["marks"].items()}
        recent = {name: Recent.decode(kept) for name, kept in offset["recent"].items()}
        return Progress({FileKind.ENTRY_LOG: logs, FileKind.JOURNAL: journals}, marks, recent)


FIRST: Offset = Progress().encode()


def _id_of(name: str) -> int:
    """Return the id in the name of a log or journal; raises ValueError."""
    file_id = journal_id_of(name) if name.endswith(".txn") else log_id_of(name)
    if file_id is None:
        raise ValueError(name)
    return file_id


def _order_of(file: FoundFile) -> tuple[str, int, str]:
    """Return what files are sorted by: logs before journals, the oldest first."""
    return file.kind, file.id, file.folder


# -- recent ------------------------------------------------------------------------------------------------------------
# Which entries a stream has delivered lately: entries of a journal reach a log later, and those of a log are written again after a crash.
#
# A bookie writes an entry to its journal and to memory, and at the next flush to an entry log; then it moves ``lastMark`` behind what it
# flushed (``Journal``, ``SyncThread``, ``SingleDirectoryDbLedgerStorage``, BookKeeper 4.16). When it was killed, it writes what lies
# behind ``lastMark`` to a log once more. So an entry can be repeated only until the mark has passed its place in the journal.


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


class _Given(Struct):
    """Entries delivered while lastMark was ``mark``, before the mark ``behind`` in the journals: from a log of ``folder``, or
    from journals ("", −1)."""

    folder: str
    log_id: int
    mark: Mark
    behind: Mark
    ids: Array  # IDS, sorted
    later: int = 0  # logs of the folder that were begun since
    later_bytes: int = 0  # and what was read of them


class Recent(Struct):
    """The entries of one bookie's files that recent batches delivered."""

    given: list[_Given] = field(default_factory=list)

    def copy(self) -> Recent:
        return Recent([replace(one) for one in self.given])

    def known(self, ids: Array) -> Array:
        """Return a mask of the ids that were delivered before."""
        is_known = np.zeros(len(ids), np.bool_)
        for one in self.given:
            at = np.minimum(np.searchsorted(one.ids, ids), len(one.ids) - 1)
            is_known |= one.ids[at] == ids
        return is_known

    def add(self, folder: str, log_id: int, mark: Mark, behind: Mark, ids: Array) -> None:
        """Remember delivered ids; see ``_Given``."""
        if not len(ids):
            return
        for one in self.given:
            if (one.folder, one.log_id, one.mark) == (folder, log_id, mark):
                one.behind, one.ids = max(behind, one.behind), np.sort(np.concatenate([one.ids, ids]))
                return
        self.given.append(_Given(folder, log_id, mark, behind, np.sort(ids)))

    def pass_by(self, folder: str, log_id: int, size_bytes: int, *, is_begun: bool) -> None:
        """Note that a log was read up to ``size_bytes``, and drop ids so far before that point that they cannot be written again."""
        for one in self.given:
            if one.folder == folder and one.log_id < log_id:
                one.later += is_begun
                one.later_bytes += size_bytes
        self.given = [one for one in self.given if one.later <= KEPT_LOGS and one.later_bytes <= KEPT_BYTES]

    def forget(self, mark: Mark) -> None:
        """Drop the ids that cannot be repeated now that lastMark is ``mark`` and every log record of that time was read.

        An entry that was read from a log may still be written to the journal, but no longer once lastMark has moved twice.
        """
        before = max((one.mark for one in self.given if one.mark < mark), default=mark)
        self.given = [one for one in self.given if mark <= one.behind or (one.folder and one.mark >= before)]

    def encode(self) -> list[Any]:  # Any: JSON
        """Return the ids as JSON."""
        return [
            [one.folder, one.log_id, one.mark, one.behind, _pack_ids(one.ids), one.later, one.later_bytes]
            for one in self.given
        ]

    @staticmethod
    def decode(value: list[Any]) -> Recent:  # Any: JSON
        """Return the ids from the JSON of ``encode``."""
        return Recent(
            [
                _Given(folder, log_id, (mark[0], mark[1]), (behind[0], behind[1]), unpack_ids(packed), *later)
                for folder, log_id, mark, behind, packed, *later in value
            ]
        )


def _as_ids(ledger_ids: Array, entry_ids: Array) -> Array:
    """Return the ledger ids and entry ids as one array of pairs."""
    pairs = np.empty(len(ledger_ids), _PAIR)
    pairs["ledger_id"], pairs["entry_id"] = ledger_ids, entry_ids
    return pairs.view(IDS)


def _pack_ids(ids: Array) -> str:
    """Return sorted ids as compressed text of their differences, in which consecutive entries take almost no space."""
    pairs = ids.view(_PAIR)
    columns = [np.diff(pairs[name].astype(np.int64), prepend=0) for name in ("ledger_id", "entry_id")]
    return base64.b85encode(zlib.compress(np.concatenate(columns).tobytes(), 1)).decode()


def unpack_ids(text: str) -> Array:
    """Return the ids in a text of ``_pack_ids``."""
    both = np.frombuffer(zlib.decompress(base64.b85decode(text)), np.int64)
    ledger_ids, entry_ids = (np.cumsum(half) for half in np.split(both, 2))
    return _as_ids(ledger_ids, entry_ids)


# -- parts -------------------------------------------------------------------------------------------------------------
# The parts of files that a batch of a stream reads, cut into tasks.


Tasks = tuple[tuple[FileRange, ...], ...]


class FilePart(Struct, frozen=True):
    """Bytes of a file that a batch reads.

    ``complete``: nothing follows. ``looked_at``: entries delivered lately are skipped. ``remembered``: they may be
    written again.
    """

    file: FoundFile
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
        """Return the records that end at or before ``end``."""
        count = int(np.searchsorted(self.ends, end, "right"))
        return Looked(self.ids[:count], self.offsets[:count], self.ends[:count], end)


def _pieces_of(file: FoundFile, start: int, end: int, slice_bytes: int) -> Iterator[FileRange]:
    """Cut bytes ``start`` to ``end`` of a file, which are record boundaries, into slices; journals stay whole."""
    count = 1 if file.kind == FileKind.JOURNAL else max(1, round((end - start) / slice_bytes))
    for index in range(count):
        first, last = (start + (end - start) * edge // count for edge in (index, index + 1))
        if last > first:
            yield FileRange(file.path, file.kind, -1, first, last, seek=index > 0, limit=end)


def pieces_without(part: FilePart, looked: Looked, again: Array, slice_bytes: int) -> Tasks:
    """Return the tasks of a part without the records that were delivered before; small pieces share a task."""
    tasks: list[tuple[FileRange, ...]] = []
    held: list[FileRange] = []
    for start, end in _between(part, looked.offsets[again], looked.ends[again]):
        pieces = tuple(_pieces_of(part.file, start, end, slice_bytes))
        if len(pieces) > 1:
            tasks += [(piece,) for piece in pieces]
            continue
        if held and sum(piece.bytes for piece in held) + end - start > slice_bytes:
            tasks.append(tuple(held))
            held = []
        held += pieces
    return (*tasks, *([tuple(held)] if held else []))


def _between(part: FilePart, starts: Array, ends: Array) -> Iterator[tuple[int, int]]:
    """Yield the byte ranges of a part that lie between the given ones."""
    breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    at = part.start
    for first, last in zip([0, *breaks.tolist()], [*(breaks - 1).tolist(), len(starts) - 1], strict=True):
        if last >= first and starts[first] > at:
            yield at, int(starts[first])
        at = int(ends[last]) if last >= first else at
    if at < part.end:
        yield at, part.end


STEP_BYTES = 64 << 20  # looked at here at once
_NO_DIGESTS = LedgerDigests.of({})


class Limit(Struct, frozen=True):
    """How much a batch takes; 0: no bound."""

    files: int = 0
    size_bytes: int = 0


class Followed(Struct, frozen=True):
    """The files that a stream follows, and the rules. ``fails``: lost bytes end the stream; ``verify``: check digests;
    ``needs_logs``: a file that is not a log ends it."""

    paths: Sequence[str]
    fails: bool = True
    verify: bool = True
    slice_bytes: int = SLICE_BYTES
    recursive: bool = False
    needs_logs: bool = False


class Follower:
    """Finds the bytes after an offset. Its own state only saves time: offset and files determine every answer."""

    def __init__(self, followed: Followed) -> None:
        self._followed = followed
        self._looked: dict[tuple[str, int], Looked] = {}  # by path and start
        self._waiting: dict[str, tuple[int, int]] = {}  # objects of this size had nothing to read from there on
        self._complete: set[str] = set()
        self._next_is_empty: dict[str, bool] = {}  # by path
        self._owners: dict[str, str] = {}
        self._mark_names: dict[str, list[str]] = {}
        self._heads: list[FoundFile] = []  # a log of each folder

    def files(self) -> list[FoundFile]:
        """Return the existing logs and journals that are not empty; raises SourceNotFound if not even a folder exists."""
        return list_files(self._followed.paths, recursive=self._followed.recursive)

    def latest(self, start: Offset, limit: Limit, listed: Sequence[FoundFile] | None = None) -> Offset:
        """Return the offset after the next batch; ``start`` itself if there is nothing to read. ``listed``: pretend
        that only these files exist."""
        self._looked.clear()
        before = Progress.decode(start)
        marks, files = self._marks_and_files(before) if listed is None else (self._marks(listed, before), listed)
        self._check_there(before, files)
        taking = _Taking(self, before, marks, files, limit)
        taking.take()
        if not any(part.end > part.start for part in taking.parts):
            return start
        after = Progress.decode(start)
        for kind, folders in after.folders.items():
            for name, folder in folders.items():
                folder.fold({one.name for one in files if (one.kind, one.folder) == (kind, name)})
        for part in taking.parts:
            folder = after.of(part.file, self.owner(part.file, files))
            folder.begun[part.file.name] = _Begun(
                part.start,
                part.end,
                _first_digest(part.file.path, part.end),
                part.complete,
                part.looked_at,
                part.remembered,
            )
        # lastMark counts only once every log that it speaks of was read: until then journals have entries that no log gave.
        if taking.all_read:
            after.marks |= marks
            for folder in after.folders[FileKind.JOURNAL].values():
                folder.pass_before(marks.get(folder.owner, NO_MARK)[0])
        after.recent = self._plan(before, after, taking.parts)[1]
        return after.encode()

    def plan(self, start: Offset, end: Offset) -> Tasks:
        """Return the tasks that read the batch from ``start`` to ``end``: the same pieces on every call.

        Raises SourceChanged for files that are gone, shorter, or not those that ``end`` names.
        """
        before, after = Progress.decode(start), Progress.decode(end)
        begun_files = dict(after.newly_read(before))
        # Other files of these folders are not looked at; of an object store a listing costs no more than a
        # look.
        if any(map(urls.is_url, begun_files)):
            there = {one.path_in_folder: one for one in self.files()}
        else:
            there = {path: _listed_at(path, os.stat(path).st_size) for path in begun_files if os.path.exists(path)}
        parts = []
        for path, begun in begun_files.items():
            file = there.get(path)
            if not self.is_lost(file, path, begun) and file is not None:
                parts.append(FilePart(file, begun.start, begun.end, begun.complete, begun.looked_at, begun.remembered))
        parts.sort(key=lambda part: _order_of(part.file))
        return self._plan(before, after, parts)[0]

    def is_lost(self, file: FoundFile | None, path: str, begun: _Begun) -> bool:
        """Whether a file is no longer the one that was begun; raises SourceChanged then, unless the stream tolerates losses."""
        if file is None:
            said = f"{path} is gone; the stream has read its first {begun.end} bytes"
        elif file.size_bytes < begun.end:
            said = f"{path} became shorter: expected {begun.end} bytes or more, found {file.size_bytes}"
        elif _first_digest(file.path, begun.end) != begun.digest:
            said = f"{path} is not the file of which the stream has read {begun.end} bytes"
        else:
            return False
        if self._followed.fails:
            raise SourceChanged(
                said, hint="restore the file, or continue without it: option failOnDataLoss=false", path=path
            )
        return True

    def _check_there(self, place: Progress, files: Sequence[FoundFile]) -> None:
        """Refuse a folder in which the newest log that was begun is gone: garbage collection never deletes that one."""
        there = {(one.folder, one.name) for one in files}
        for name, folder in place.folders[FileKind.ENTRY_LOG].items():
            newest = max(folder.begun, key=_id_of, default=None)
            if newest is not None and (name, newest) not in there and not folder.begun[newest].complete:
                self.is_lost(None, f"{name}/{newest}", folder.begun[newest])

    # -- existing files ------------------------------------------------------------------------------------------------

    def owner(self, file: FoundFile, others: Sequence[FoundFile] = ()) -> str:
        """Return the owner of a file: the bookie id in the cookie; without a cookie, the folder or, for a journal, the
        only folder of logs."""
        if file.folder not in self._owners:
            cookie = _cookie_of(file)
            self._owners[file.folder] = file.folder if cookie is None else cookie.bookie_id
            journals = 1 if cookie is None else len(cookie.journal_dirs)
            names = [f"{bookie.LAST_MARK_FILE}.{one}" for one in range(journals)]
            self._mark_names[file.folder] = names if journals > 1 else [bookie.LAST_MARK_FILE]
        owner = self._owners[file.folder]
        if file.kind == FileKind.JOURNAL and owner == file.folder:
            folders = {self.owner(one) for one in others if one.kind == FileKind.ENTRY_LOG} or {file.folder}
            if len(folders) > 1:
                raise InvalidValue(
                    f"nothing says whose journal {file.path} is",
                    hint="copy the file VERSION along, of journals and logs",
                    path=file.path,
                )
            (owner,) = folders
        return owner

    def _marks_and_files(self, before: Progress) -> tuple[dict[str, Mark], list[FoundFile]]:
        """Return each owner's lastMark, and the files. Marks of known folders are read before the files are listed: the
        logs then hold at least the entries before the mark."""
        while True:
            # A folder that appeared meanwhile has no mark yet: once more, with its mark first.
            folders = {one.folder for one in self._heads}
            marks, files = self._marks(self._heads, before), self.files()
            self._heads = [*{one.folder: one for one in reversed(files) if one.kind == FileKind.ENTRY_LOG}.values()]
            if folders.issuperset(one.folder for one in self._heads):
                return marks, files

    def _marks(self, files: Sequence[FoundFile], before: Progress) -> dict[str, Mark]:
        """Return the lastMark of each bookie of these logs, the least of several journals'; ``before``'s if unreadable
        now.

        BookKeeper truncates the file and rewrites it (``Journal.LastLogMark.rollLog``); a bookie without the file
        is at the beginning. Journals are numbered by time, so that what lies before the least mark is in logs whatever its journal.
        """
        folders = {one.folder: one for one in reversed(files) if one.kind == FileKind.ENTRY_LOG}
        marks, found = dict(before.marks), defaultdict[str, dict[str, Mark]](dict)
        for file in folders.values():
            of_owner = found[self.owner(file)]
            for name in self._mark_names[file.folder]:
                raw = _read_beside(file, name) or b""
                if len(raw) == bookie.LAST_MARK_BYTES:
                    mark = bookie.decode_last_mark(raw, f"{file.folder}/{name}")
                    of_owner[name] = max((mark.journal_id, mark.offset), of_owner.get(name, NO_MARK))
        for file in folders.values():
            owner = self.owner(file)
            least = min(found[owner].get(name, NO_MARK) for name in self._mark_names[file.folder])
            if least != NO_MARK:
                marks[owner] = max(least, marks.get(owner, NO_MARK))
        return marks

    @property
    def has_logs(self) -> bool:
        """Whether the paths include logs."""
        return any(not path.partition("?")[0].endswith(".txn") for path in self._followed.paths)

    def is_complete(self, file: FoundFile, newest: FoundFile) -> bool:
        """Whether a file will not grow any more; ``newest``: the newest of its kind in its folder."""
        if file.path not in self._complete:
            if file.kind == FileKind.JOURNAL:
                is_closed = file.id < newest.id
            else:
                is_closed = _has_map(file) or (file.id < newest.id and is_stale(file, newest))
            if (
                not is_closed or urls.file_info(file.path)[0] != file.size_bytes
            ):  # asked last: it may have been written meanwhile
                return False
            self._complete.add(file.path)
        return True

    def next_is_empty(self, file: FoundFile) -> bool:
        """Whether the log of the next number exists and is empty: its bookie created it ahead, and ended before it wrote to it."""
        if file.path not in self._next_is_empty:
            self._next_is_empty[file.path] = _read_beside(file, f"{file.id + 1:x}.log") == b""
        return self._next_is_empty[file.path]

    def look(self, file: FoundFile, start: int, *, complete: bool) -> Looked:
        """Return the good records of a file from ``start`` on, up to the end of the last one that may be read now."""
        if self._waiting.get(file.path) == (start, file.size_bytes) and not complete:
            return Looked(np.zeros(0, IDS), np.zeros(0, np.int64), np.zeros(0, np.int64), start)
        looked = self._look(file, start, complete)
        # No record was read from this file: a stream would wait forever for one that is no log.
        if self._followed.needs_logs and not looked.end:
            check_is_log(urls.shown_path(file.path), file.kind, urls.read_bytes(file.path, 0, HEADER_BYTES))
        # Not of a file on disk: its blocks may be filled in any order at the same size, an object has all of its bytes.
        if looked.end == start and urls.is_url(file.path):
            self._waiting[file.path] = (start, file.size_bytes)
        self._looked[file.path, start] = looked
        return looked

    def _look(self, file: FoundFile, start: int, complete: bool) -> Looked:
        parts, at, step = [], start, STEP_BYTES
        while at < file.size_bytes and (complete or not _is_zero(file.path, at)):
            limit = min(at + step, file.size_bytes)
            part, behind, stopped = self._look_at(FileRange(file.path, file.kind, -1, at, limit, limit=limit), complete)
            parts.append(part)
            is_last = stopped or (behind == at and limit == file.size_bytes)
            step = STEP_BYTES if behind > at else 2 * step  # a record may be larger, and so may damage be
            at = behind
            if is_last:
                break
        ids, offsets, ends = (
            np.concatenate([part[index] for part in parts]) if parts else np.zeros(0, kind)
            for index, kind in enumerate((IDS, np.int64, np.int64))
        )
        return Looked(ids, offsets, ends, file.size_bytes if complete else at)

    def _look_at(self, piece: FileRange, complete: bool) -> tuple[tuple[Array, Array, Array], int, bool]:
        """Return the good records of a piece, where to continue, and whether zeros stop the reading there."""
        parts = [(np.zeros(0, IDS), np.zeros(0, np.int64), np.zeros(0, np.int64))]
        behind, stopped = piece.start, False
        with sources.open_source(piece) as source:
            limit = -1 if urls.is_url(piece.path) else piece.limit
            scan = FileScan(Slice(source.path, piece.kind, piece.start, piece.end, False, limit), _NO_DIGESTS)
            scan.verify = self._followed.verify
            for batch in scan.batches():
                good = batch[batch["flags"] & BAD_DIGEST == 0]
                offsets, ends = good["offset"].copy(), good["offset"] + 4 + good["size"]
                # Blocks of a log that grows may reach the file in any order: what follows zeros waits until these are filled.
                if not complete:
                    before = np.append(max(behind, scan.first_offset), ends)
                    apart = np.flatnonzero(offsets != before[: len(offsets)]).tolist()
                    count = next((index for index in apart if _is_zero(source.path, int(before[index]))), len(offsets))
                    stopped = count < len(ends)
                    offsets, ends, good = offsets[:count], ends[:count], good[:count]
                parts.append((_as_ids(good["ledger_id"], good["entry_id"]), offsets, ends))
                if len(ends):
                    behind = int(ends[-1])
                if stopped:
                    break
        ids, offsets, ends = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return (ids, offsets, ends), behind, stopped

    def boundary(self, file: FoundFile, near: int) -> int:
        """Return where the first record at or after ``near`` begins in a log; the end of the log if none does."""
        piece = FileRange(file.path, file.kind, -1, near, file.size_bytes, seek=True, limit=file.size_bytes)
        with sources.open_source(piece, LOOK_BACK_BYTES) as source:
            limit = -1 if urls.is_url(file.path) else file.size_bytes
            part = Slice(source.path, file.kind, near, file.size_bytes, True, limit)
            scan = FileScan(part, _NO_DIGESTS, False, is_alone=True)
            next(scan.batches(), None)
            return scan.first_offset

    # -- batches -------------------------------------------------------------------------------------------------------

    def _plan(self, before: Progress, after: Progress, parts: Sequence[FilePart]) -> tuple[Tasks, dict[str, Recent]]:
        """Return the tasks of the parts, without entries that were delivered before, and the ids to remember."""
        recent = {name: kept.copy() for name, kept in before.recent.items()}
        tasks: list[tuple[FileRange, ...]] = []
        for part in parts:
            owner = after.of(part.file).owner
            kept = recent.setdefault(owner, Recent())
            is_log = part.file.kind == FileKind.ENTRY_LOG
            if is_log:
                kept.pass_by(part.file.folder, part.file.id, part.end - part.start, is_begun=part.start == 0)
            if not part.looked_at:
                tasks += [(piece,) for piece in _pieces_of(part.file, part.start, part.end, self._followed.slice_bytes)]
                continue
            known = self._looked.get((part.file.path, part.start))
            if known is None or known.end < part.end:
                known = self._look(replace(part.file, size_bytes=part.end), part.start, True)
            looked = known.until(part.end)
            again = kept.known(looked.ids)
            # A bookie that restarts replays its journal, so one file may have an entry twice: the first record counts.
            is_first = np.zeros(len(again), np.bool_)
            is_first[np.unique(looked.ids, return_index=True)[1]] = True
            again |= ~is_first
            tasks += pieces_without(part, looked, again, self._followed.slice_bytes)
            if part.remembered:
                folder, log_id = (part.file.folder, part.file.id) if is_log else ("", -1)
                kept.add(folder, log_id, before.marks.get(owner, NO_MARK), after.journal_end(owner), looked.ids[~again])
        for owner, kept in recent.items():
            if after.marks.get(owner, NO_MARK) > before.marks.get(owner, NO_MARK):
                kept.forget(after.marks[owner])
        return tuple(tasks), recent


class _Taking:
    """Chooses what the next batch reads."""

    def __init__(
        self, follower: Follower, before: Progress, marks: dict[str, Mark], files: Sequence[FoundFile], limit: Limit
    ) -> None:
        self.parts: list[FilePart] = []
        self.all_read = False  # of the logs
        self._follower = follower
        self._before = before
        self._marks = marks
        self._files = sorted(files, key=_order_of)
        self._files_left = limit.files or FAR
        self._bytes_left = limit.size_bytes or FAR
        self._following: dict[str, FoundFile | None] = {}  # by path: the next of the folder
        self._remembering = {owner for owner, kept in before.recent.items() if kept.given}
        self._with_journals = {follower.owner(file, files) for file in files if file.kind == FileKind.JOURNAL}

    def take(self) -> None:
        """Choose logs, and when all of these fit, journals."""
        for kind in FileKind:
            later: dict[str, FoundFile] = {}
            for file in reversed(self._files):
                if file.kind == kind:
                    self._following[file.path] = later.get(file.folder)
                    later[file.folder] = file
            newest = {file.folder: file for file in self._files if file.kind == kind}
            for file in self._files:
                if file.kind == kind and not self._take_file(file, newest[file.folder]):
                    return
            self.all_read = True

    def _may_come_again(self, file: FoundFile, newest: FoundFile) -> bool:
        """Whether the bookie may write the content of this complete log once more: a bookie that was killed soon after
        it did not finish a log, or left the next one empty."""
        later_bytes = 0
        for _ in range(KEPT_LOGS):
            later = self._following[file.path]
            if later is None or not self._follower.is_complete(later, newest):
                return True
            later_bytes += later.size_bytes
            if later_bytes > KEPT_BYTES:
                return False
            if later.id > file.id + 1 and self._follower.next_is_empty(file):
                return True
            file = later
        return False

    def _take_file(self, file: FoundFile, newest: FoundFile) -> bool:
        """Take the new records of a file into the batch; return False if the batch is full."""
        owner = self._follower.owner(file, self._files)
        folder = self._before.folders[file.kind].get(file.folder, _Folder(owner))
        if folder.is_done(file):
            return True
        if not self._files_left or not self._bytes_left:
            return False
        begun = folder.begun.get(file.name)
        if begun is not None and self._follower.is_lost(file, file.path, begun):
            return True
        start = 0 if begun is None else begun.end
        if file.kind == FileKind.JOURNAL:
            start = self._journal_start(file, owner, start)
            if start < 0:
                return True
        complete = self._follower.is_complete(file, newest)
        is_journal = file.kind == FileKind.JOURNAL
        # What a journal or an unfinished log holds may be written once more, elsewhere: its ids tell the copy.
        remembered = not complete or is_journal or (owner in self._with_journals and owner in self._before.marks)
        remembered = remembered or self._may_come_again(file, newest)
        looked_at = remembered or owner in self._remembering or (begun is not None and begun.looked_at)
        end = self._follower.look(file, start, complete=complete).end if looked_at else file.size_bytes
        cut = self._cut(file, start, end, looked_at=looked_at)
        if cut > start or complete:
            self.parts.append(FilePart(file, start, cut, complete and cut == end, looked_at, remembered))
            self._files_left -= cut > start
            self._bytes_left = 0 if cut < end else max(self._bytes_left - (cut - start), 0)
            if remembered:
                self._remembering.add(owner)
        return cut == end

    def _journal_start(self, file: FoundFile, owner: str, start: int) -> int:
        """Return where to continue in a journal that was read up to ``start``, −1 to skip it: entries before lastMark
        are all in the logs."""
        mark = self._marks.get(owner, NO_MARK)
        if not self._follower.has_logs:
            raise InvalidValue(
                f"no bookie file says which entries of {file.path} are also in entry logs",
                hint="name the bookie's logs as well, in a folder with its lastMark",
                path=file.path,
            )
        if file.id < mark[0]:
            return -1
        if file.id > mark[0] or start >= mark[1]:
            return start
        looked = self._follower.look(file, start, complete=False)
        behind = looked.offsets[looked.offsets >= mark[1]]
        return int(behind[0]) if len(behind) else looked.end

    def _cut(self, file: FoundFile, start: int, end: int, *, looked_at: bool) -> int:
        """Return the end of a record between ``start`` and ``end`` at which the batch does not become too large."""
        wanted = start + self._bytes_left
        if wanted >= end:
            return end
        if not looked_at:
            return min(self._follower.boundary(file, max(wanted, HEADER_BYTES)), end)
        ends = self._follower.look(file, start, complete=end == file.size_bytes).ends
        return int(ends[max(int(np.searchsorted(ends, wanted, "right")), 1) - 1]) if len(ends) else end


def _is_zero(path: str, offset: int) -> bool:
    """Whether the size field at ``offset`` is zero: nothing was written there yet, or pages were lost."""
    return not any(urls.read_bytes(path, offset, 4))


# -- growing files -----------------------------------------------------------------------------------------------------
# Files that grow, as they are found: which there are, whose they are, what they begin with, whether anything is appended to them.


STALE_S = 3600
_FIRST_BYTES = 2048
_MAP_ROW_BYTES, _MAP_HEAD_BYTES, _MAP_LEDGERS = 16, 24, 10_000
_MAP_MAX_LEDGERS = 1 << 24


def list_files(paths: Sequence[str], *, recursive: bool) -> list[FoundFile]:
    """Return the logs and journals at these paths that are not empty; raises SourceNotFound if not even a folder exists."""
    sizes: dict[str, int] = {}
    for one in paths:
        try:
            sizes.update({path: size for path, _, size in sources.source_files([one], recursive=recursive)})
        except SourceNotFound:
            if not (
                urls.is_url(one) or any(glob(part) or glob(os.path.dirname(part)) for part in sources.alternatives(one))
            ):
                raise
            # Nothing yet.
    return [_listed_at(path, size) for path, size in sizes.items()]


def _listed_at(path: str, size_bytes: int) -> FoundFile:
    """Return the file at a path; raises InvalidValue for a name that no log has."""
    folder, _, name = urls.shown_path(path).partition("?")[0].rpartition("/")  # of a URL, ?region=… follows the name
    try:
        return FoundFile(path, folder, name, _id_of(name), size_bytes)
    except ValueError:
        raise InvalidValue(
            f"{path} is called neither as an entry log nor as a journal",
            hint="a stream follows files N.log and N.txn, N a hexadecimal number: name .../current/*.log",
            path=path,
        ) from None


def _first_digest(path: str, end: int) -> str:
    """Return a digest of up to 2 KiB after the header of a file that was read up to ``end``: bytes after that may change."""
    count = max(min(end, HEADER_BYTES + _FIRST_BYTES) - HEADER_BYTES, 0)
    return sha256(urls.read_bytes(path, HEADER_BYTES, count)).hexdigest()[:16]


def _read_beside(file: FoundFile, name: str) -> bytes | None:
    """Return the content of a small file in the same folder, None if it does not exist."""
    base, mark, query = file.path.partition("?")
    try:
        return urls.read_bytes(f"{base.rpartition('/')[0]}/{name}{mark}{query}", 0, 1 << 16)
    except (FileNotFoundError, SourceNotFound):
        return None


def _cookie_of(file: FoundFile) -> bookie.Cookie | None:
    """Return the cookie of the bookie whose disk the file is on, from its folder; raises MetadataCorrupt."""
    raw = _read_beside(file, bookie.COOKIE_FILE)
    return None if raw is None else bookie.decode_cookie(raw, f"{file.folder}/{bookie.COOKIE_FILE}")


def _has_map(file: FoundFile) -> bool:
    """Whether a log was sealed: its header points to a valid ledgers map."""
    try:
        header = decode_header(urls.read_bytes(file.path, 0, HEADER_BYTES), file.path)
        offset, count = header.ledgers_map_offset, header.ledgers_count
        if not (header.has_map and HEADER_BYTES <= offset < file.size_bytes and 0 < count <= _MAP_MAX_LEDGERS):
            return False
        size_bytes = _MAP_ROW_BYTES * count + _MAP_HEAD_BYTES * (count // _MAP_LEDGERS + 1)
        # Of a log only the header and the map matter; the map is put right behind the header.
        view = bytes(HEADER_BYTES) + urls.read_bytes(file.path, offset, size_bytes)
        decode_ledgers_map(view, replace(header, ledgers_map_offset=HEADER_BYTES), file.path)
    except (EntryLogCorrupt, Unsupported):
        return False
    return True


def is_stale(file: FoundFile, newest: FoundFile) -> bool:
    """Whether a file was last written an hour before the newest log of its folder."""
    return urls.file_info(newest.path)[1] - urls.file_info(file.path)[1] >= STALE_S
