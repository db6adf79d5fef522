"""Following files that grow: which bytes come behind an offset. The reader of Spark's streams is ``store.scan.streaming``.

- A log is complete when its ledgers map is there (``DefaultEntryLogger`` writes it when it rotates), or when it was last written an
  hour before the newest log of its folder: a killed bookie never appends to it, and with a log per ledger an idle one is sealed after
  five minutes (``entrylogMapAccessExpiryTimeInSeconds``). A journal is complete when there is a later one.
- Of any other file only what ends with a good record is read: a torn tail waits, and so do zeros in front of other bytes, since the
  direct logger's blocks may be written in any order. Damage that a good record follows is passed over.
- Entries of files that grow are looked up in what came lately (``store.scan.offsets``); complete logs of a backlog are not read here,
  unless something came lately, or a log close behind is not complete, or empty: only around a crash do entries come again.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from glob import glob
from hashlib import sha256

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.bookie import (
    COOKIE_FILE,
    LAST_MARK_BYTES,
    LAST_MARK_FILE,
    decode_cookie,
    decode_last_mark,
)
from pulsar_admin.store.codec.entrylog import HEADER_BYTES, decode_header, decode_ledgers_map
from pulsar_admin.store.engine.slices import SLICE_BYTES, FileRange
from pulsar_admin.store.errors import EntryLogCorrupt, InvalidValue, SourceChanged, SourceNotFound, Unsupported
from pulsar_admin.store.kernels.records import BAD_DIGEST
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan.files import FileScan, LedgerDigests, Slice
from pulsar_admin.store.scan.offsets import (
    FAR,
    IDS,
    KEPT_BYTES,
    KEPT_LOGS,
    NO_MARK,
    Begun,
    Folder,
    Listed,
    Looked,
    Mark,
    Offset,
    Part,
    Place,
    Recent,
    Tasks,
    as_ids,
    id_of,
    order_of,
    pieces_of,
    pieces_without,
)
from pulsar_admin.store.scan.operations import check_is_log
from pulsar_admin.store.scan.sources import (
    alternatives,
    file_info,
    is_url,
    open_source,
    read_bytes,
    shown_path,
    source_files,
)

STEP_BYTES = 64 << 20  # looked at here at once
_NO_DIGESTS = LedgerDigests.of({})


class Limit(Struct, frozen=True):
    """How much a batch takes; 0: no bound."""

    files: int = 0
    size_bytes: int = 0


class Followed(Struct, frozen=True):
    """What a stream follows, and how: it ``fails`` where bytes are lost; ``verify`` digests; ``needs_logs``: what is no log ends it."""

    paths: Sequence[str]
    fails: bool = True
    verify: bool = True
    slice_bytes: int = SLICE_BYTES
    recursive: bool = False
    needs_logs: bool = False


class Follower:
    """Finds what comes behind an offset. What it keeps saves time only: offset and files say all."""

    def __init__(self, followed: Followed) -> None:
        self._followed = followed
        self._looked: dict[tuple[str, int], Looked] = {}  # by path and start
        self._waiting: dict[str, tuple[int, int]] = {}  # objects of this size had nothing to read from there on
        self._complete: set[str] = set()
        self._empty_behind: dict[str, bool] = {}
        self._owners: dict[str, str] = {}
        self._heads: list[Listed] = []  # a log of each folder

    def files(self) -> list[Listed]:
        """Return the logs and journals that are there and not empty; raises SourceNotFound where there is not even a folder."""
        return list_files(self._followed.paths, recursive=self._followed.recursive)

    def latest(self, start: Offset, limit: Limit, listed: Sequence[Listed] | None = None) -> Offset:
        """Return the offset behind the next batch; START itself when there is nothing. LISTED: as if only these were there."""
        self._looked.clear()
        before = Place.decode(start)
        marks, files = self._marks_and_files(before) if listed is None else (self._marks(listed, before), listed)
        self._check_there(before, files)
        taking = _Taking(self, before, marks, files, limit)
        taking.take()
        if not any(part.end > part.start for part in taking.parts):
            return start
        after = Place.decode(start)
        for kind, folders in after.folders.items():
            for name, folder in folders.items():
                folder.fold({one.name for one in files if (one.kind, one.folder) == (kind, name)})
        for part in taking.parts:
            folder = after.of(part.file, self.owner(part.file, files))
            folder.begun[part.file.name] = Begun(
                part.start,
                part.end,
                first_digest(part.file.path, part.end),
                part.complete,
                part.looked_at,
                part.remembered,
            )
        if taking.all_read:
            after.marks |= marks
            for folder in after.folders[FileKind.JOURNAL].values():
                folder.pass_before(marks.get(folder.owner, NO_MARK)[0])
        after.recent = self._plan(before, after, taking.parts)[1]
        return after.encode()

    def plan(self, start: Offset, end: Offset) -> Tasks:
        """Return what the batch from START to END reads, a task each: the same pieces whenever it is asked for.

        Raises SourceChanged for files that are gone, shorter or others than those that END knows.
        """
        before, after = Place.decode(start), Place.decode(end)
        begun_files = dict(after.newly_read(before))
        there = self._those_at(begun_files)
        parts = []
        for path, begun in begun_files.items():
            file = there.get(path)
            if not self.is_lost(file, path, begun) and file is not None:
                parts.append(Part(file, begun.start, begun.end, begun.complete, begun.looked_at, begun.remembered))
        parts.sort(key=lambda part: order_of(part.file))
        return self._plan(before, after, parts)[0]

    def is_lost(self, file: Listed | None, path: str, begun: Begun) -> bool:
        """Whether FILE is not the one that was BEGUN; raises SourceChanged for it unless the stream goes on then."""
        if file is None:
            said = f"{path} is gone; the stream has read {begun.end} bytes of it"
        elif file.size_bytes < begun.end:
            said = f"{path} became shorter: expected {begun.end} bytes or more, found {file.size_bytes}"
        elif first_digest(file.path, begun.end) != begun.digest:
            said = f"{path} is another file than the one that the stream has read {begun.end} bytes of"
        else:
            return False
        if self._followed.fails:
            raise SourceChanged(
                said, hint="bring the file back, or go on without it: option failOnDataLoss=false", path=path
            )
        return True

    def _check_there(self, place: Place, files: Sequence[Listed]) -> None:
        """Refuse a folder whose newest log, of those begun, is gone: garbage collection never takes it."""
        there = {(one.folder, one.name) for one in files}
        for name, folder in place.folders[FileKind.ENTRY_LOG].items():
            newest = max(folder.begun, key=id_of, default=None)
            if newest is not None and (name, newest) not in there and not folder.begun[newest].complete:
                self.is_lost(None, f"{name}/{newest}", folder.begun[newest])

    # -- what is there -------------------------------------------------------------------------------------------------

    def owner(self, file: Listed, others: Sequence[Listed] = ()) -> str:
        """Return whose disk FILE is on: the bookie's id; where no cookie says it, the folder, for journals the only one of logs."""
        if file.folder not in self._owners:
            self._owners[file.folder] = bookie_of(file) or file.folder
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

    def _marks_and_files(self, before: Place) -> tuple[dict[str, Mark], list[Listed]]:
        """Return lastMarks and files; marks are read first, as they say what the logs hold, of the folders of the time before."""
        while True:
            folders = {one.folder for one in self._heads}
            marks, files = self._marks(self._heads, before), self.files()
            self._heads = [*{one.folder: one for one in reversed(files) if one.kind == FileKind.ENTRY_LOG}.values()]
            if folders.issuperset(one.folder for one in self._heads):
                return marks, files

    def _those_at(self, paths: Collection[str]) -> dict[str, Listed]:
        """Return the files that are there of PATHS, those in their folders: what else is there is not looked at."""
        if any(map(is_url, paths)):
            return {one.path_in_folder: one for one in self.files()}
        return {path: listed_at(path, os.stat(path).st_size) for path in paths if os.path.exists(path)}

    def _marks(self, files: Sequence[Listed], before: Place) -> dict[str, Mark]:
        """Return the lastMark of each bookie whose logs FILES are, that of BEFORE where it cannot be read now.

        BookKeeper cuts the file and writes it again (``Journal.LastLogMark.rollLog``); one that is not there is its beginning.
        """
        folders = {one.folder: one for one in reversed(files) if one.kind == FileKind.ENTRY_LOG}
        marks = dict(before.marks)
        for file in folders.values():
            raw = read_beside(file, LAST_MARK_FILE) or b""
            if len(raw) == LAST_MARK_BYTES:
                mark, owner = decode_last_mark(raw, f"{file.folder}/{LAST_MARK_FILE}"), self.owner(file)
                marks[owner] = max((mark.journal_id, mark.offset), marks.get(owner, NO_MARK))
        return marks

    @property
    def has_logs(self) -> bool:
        """Whether the paths name logs, too."""
        return any(not path.partition("?")[0].endswith(".txn") for path in self._followed.paths)

    def is_complete(self, file: Listed, newest: Listed) -> bool:
        """Whether nothing is appended to FILE any more, of whose folder and kind NEWEST is the newest."""
        if file.path not in self._complete:
            if file.kind == FileKind.JOURNAL:
                found = file.id < newest.id
            else:
                found = has_map(file) or (file.id < newest.id and is_stale(file, newest))
            if (
                not found or file_info(file.path)[0] != file.size_bytes
            ):  # asked last: it may have been written meanwhile
                return False
            self._complete.add(file.path)
        return True

    def is_empty_behind(self, file: Listed) -> bool:
        """Whether the log of the next number is there and empty: it was made ahead, and its bookie ended before it came to it."""
        if file.path not in self._empty_behind:
            self._empty_behind[file.path] = read_beside(file, f"{file.id + 1:x}.log") == b""
        return self._empty_behind[file.path]

    def look(self, file: Listed, start: int, *, complete: bool) -> Looked:
        """Return the good records of FILE from START on, up to the end of the last one that may be read now."""
        if self._waiting.get(file.path) == (start, file.size_bytes) and not complete:
            return Looked(np.zeros(0, IDS), np.zeros(0, np.int64), np.zeros(0, np.int64), start)
        found = self._look(file, start, complete)
        if self._followed.needs_logs and not found.end:
            check_is_log(shown_path(file.path), file.kind, read_bytes(file.path, 0, HEADER_BYTES))
        if found.end == start and is_url(file.path):
            self._waiting[file.path] = (start, file.size_bytes)
        self._looked[file.path, start] = found
        return found

    def _looked_part(self, part: Part) -> Looked:
        known = self._looked.get((part.file.path, part.start))
        if known is None or known.end < part.end:
            known = self._look(replace(part.file, size_bytes=part.end), part.start, True)
        return known.until(part.end)

    def _look(self, file: Listed, start: int, complete: bool) -> Looked:
        found, at, step = [], start, STEP_BYTES
        while at < file.size_bytes and (complete or not _is_zero(file.path, at)):
            limit = min(at + step, file.size_bytes)
            part, behind, stopped = self._look_at(FileRange(file.path, file.kind, -1, at, limit, limit=limit), complete)
            found.append(part)
            is_last = stopped or (behind == at and limit == file.size_bytes)
            step = STEP_BYTES if behind > at else 2 * step  # a record may be larger, and so may damage be
            at = behind
            if is_last:
                break
        ids, offsets, ends = (
            np.concatenate([part[index] for part in found]) if found else np.zeros(0, kind)
            for index, kind in enumerate((IDS, np.int64, np.int64))
        )
        return Looked(ids, offsets, ends, file.size_bytes if complete else at)

    def _look_at(self, piece: FileRange, complete: bool) -> tuple[tuple[Array, Array, Array], int, bool]:
        """Return the good records of PIECE, where to go on, and whether zeros stop there."""
        found = [(np.zeros(0, IDS), np.zeros(0, np.int64), np.zeros(0, np.int64))]
        behind, stopped = piece.start, False
        with open_source(piece) as source:
            limit = -1 if is_url(piece.path) else piece.limit
            scan = FileScan(Slice(source.path, piece.kind, piece.start, piece.end, False, limit), _NO_DIGESTS)
            scan.verify = self._followed.verify
            for batch in scan.batches():
                good = batch[batch["flags"] & BAD_DIGEST == 0]
                offsets, ends = good["offset"].copy(), good["offset"] + 4 + good["size"]
                if not complete:
                    count = _in_front_of_zeros(source.path, np.append(max(behind, scan.first_offset), ends), offsets)
                    stopped = count < len(ends)
                    offsets, ends, good = offsets[:count], ends[:count], good[:count]
                found.append((as_ids(good["ledger_id"], good["entry_id"]), offsets, ends))
                if len(ends):
                    behind = int(ends[-1])
                if stopped:
                    break
        ids, offsets, ends = (np.concatenate(columns) for columns in zip(*found, strict=True))
        return (ids, offsets, ends), behind, stopped

    def boundary(self, file: Listed, near: int) -> int:
        """Return where the first record at or behind NEAR begins in the log FILE; its end when none does."""
        piece = FileRange(file.path, file.kind, -1, near, file.size_bytes, seek=True, limit=file.size_bytes)
        with open_source(piece) as source:
            limit = -1 if is_url(file.path) else file.size_bytes
            scan = FileScan(Slice(source.path, file.kind, near, file.size_bytes, True, limit), _NO_DIGESTS, False)
            next(scan.batches(), None)
            return scan.first_offset

    # -- batches -------------------------------------------------------------------------------------------------------

    def _plan(self, before: Place, after: Place, parts: Sequence[Part]) -> tuple[Tasks, dict[str, Recent]]:
        """Return the tasks of PARTS, without entries that came before, and what came lately behind them."""
        recent = {name: kept.copy() for name, kept in before.recent.items()}
        tasks: list[tuple[FileRange, ...]] = []
        for part in parts:
            owner = after.of(part.file).owner
            kept = recent.setdefault(owner, Recent())
            is_log = part.file.kind == FileKind.ENTRY_LOG
            if is_log:
                kept.pass_by(part.file.folder, part.file.id, part.end - part.start, is_begun=part.start == 0)
            if not part.looked_at:
                tasks += [(piece,) for piece in pieces_of(part.file, part.start, part.end, self._followed.slice_bytes)]
                continue
            looked = self._looked_part(part)
            again = kept.known(looked.ids)
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
        self, follower: Follower, before: Place, marks: dict[str, Mark], files: Sequence[Listed], limit: Limit
    ) -> None:
        self.parts: list[Part] = []
        self.all_read = False  # of the logs
        self._follower = follower
        self._before = before
        self._marks = marks
        self._files = sorted(files, key=order_of)
        self._files_left = limit.files or FAR
        self._bytes_left = limit.size_bytes or FAR
        self._following: dict[str, Listed | None] = {}  # by path: the next of the folder
        self._remembering = {owner for owner, kept in before.recent.items() if kept.given}
        self._with_journals = {follower.owner(file, files) for file in files if file.kind == FileKind.JOURNAL}

    def take(self) -> None:
        """Choose logs, and when all of these fit, journals."""
        for kind in FileKind:
            later: dict[str, Listed] = {}
            for file in reversed(self._files):
                if file.kind == kind:
                    self._following[file.path] = later.get(file.folder)
                    later[file.folder] = file
            newest = {file.folder: file for file in self._files if file.kind == kind}
            for file in self._files:
                if file.kind == kind and not self._take_file(file, newest[file.folder]):
                    return
            self.all_read = True

    def _may_come_again(self, file: Listed, newest: Listed) -> bool:
        """Whether what the complete log FILE holds may be written once more: a bookie that was killed soon behind it did not finish
        a log, or left the next one empty."""
        behind_bytes = 0
        for _ in range(KEPT_LOGS):
            later = self._following[file.path]
            if later is None or not self._follower.is_complete(later, newest):
                return True
            behind_bytes += later.size_bytes
            if behind_bytes > KEPT_BYTES:
                return False
            if later.id > file.id + 1 and self._follower.is_empty_behind(file):
                return True
            file = later
        return False

    def _take_file(self, file: Listed, newest: Listed) -> bool:
        """Take what is new of FILE; False: the batch is full."""
        owner = self._follower.owner(file, self._files)
        folder = self._before.folders[file.kind].get(file.folder, Folder(owner))
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
        remembered = not complete or is_journal or (owner in self._with_journals and owner in self._before.marks)
        remembered = remembered or self._may_come_again(file, newest)
        looked_at = remembered or owner in self._remembering or (begun is not None and begun.looked_at)
        end = self._end_of(file, start, looked_at=looked_at, complete=complete)
        cut = self._cut(file, start, end, looked_at=looked_at)
        if cut > start or complete:
            self.parts.append(Part(file, start, cut, complete and cut == end, looked_at, remembered))
            self._files_left -= cut > start
            self._bytes_left = 0 if cut < end else max(self._bytes_left - (cut - start), 0)
            if remembered:
                self._remembering.add(owner)
        return cut == end

    def _journal_start(self, file: Listed, owner: str, start: int) -> int:
        """Return where to go on in a journal that was read up to START, −1 for not at all: before lastMark all is in the logs."""
        mark = self._marks.get(owner, NO_MARK)
        if not self._follower.has_logs:
            raise InvalidValue(
                f"nothing says what of {file.path} is in entry logs, too",
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

    def _end_of(self, file: Listed, start: int, *, looked_at: bool, complete: bool) -> int:
        if not looked_at:
            return file.size_bytes
        return self._follower.look(file, start, complete=complete).end

    def _cut(self, file: Listed, start: int, end: int, *, looked_at: bool) -> int:
        """Return where to stop between START and END, at a record's end, so that the batch does not become too large."""
        wanted = start + self._bytes_left
        if wanted >= end:
            return end
        if not looked_at:
            return min(self._follower.boundary(file, max(wanted, HEADER_BYTES)), end)
        ends = self._follower.look(file, start, complete=end == file.size_bytes).ends
        return int(ends[max(int(np.searchsorted(ends, wanted, "right")), 1) - 1]) if len(ends) else end


def _is_zero(path: str, offset: int) -> bool:
    """Whether the size field at OFFSET is zero: nothing was written there yet, or pages were lost."""
    return not any(read_bytes(path, offset, 4))


def _in_front_of_zeros(path: str, ends: Array, offsets: Array) -> int:
    """Return how many of the records at OFFSETS lie before zeros; ENDS: of what is in front of each."""
    apart = np.flatnonzero(offsets != ends[: len(offsets)]).tolist()
    return next((index for index in apart if _is_zero(path, int(ends[index]))), len(offsets))


# -- growing files -----------------------------------------------------------------------------------------------------
# Files that grow, as they are found: which there are, whose they are, what they begin with, whether anything is appended to them.


STALE_S = 3600
_FIRST_BYTES = 2048
_MAP_ROW_BYTES, _MAP_HEAD_BYTES, _MAP_LEDGERS = 16, 24, 10_000
_MAP_MAX_LEDGERS = 1 << 24


def list_files(paths: Sequence[str], *, recursive: bool = False) -> list[Listed]:
    """Return the logs and journals at PATHS that are not empty; raises SourceNotFound where there is not even a folder."""
    found: dict[str, int] = {}
    for one in paths:
        try:
            found.update({path: size for path, _, size in source_files([one], recursive=recursive)})
        except SourceNotFound:
            if not (is_url(one) or any(glob(part) or glob(os.path.dirname(part)) for part in alternatives(one))):
                raise
            # Nothing yet.
    return [listed_at(path, size) for path, size in found.items()]


def listed_at(path: str, size_bytes: int) -> Listed:
    """Return the file at PATH; raises InvalidValue for one that is no log by its name."""
    folder, _, name = shown_path(path).partition("?")[0].rpartition("/")
    try:
        return Listed(path, folder, name, id_of(name), size_bytes)
    except ValueError:
        raise InvalidValue(
            f"{path} is called neither as an entry log nor as a journal",
            hint="a stream follows files N.log and N.txn, N a hexadecimal number: name .../current/*.log",
            path=path,
        ) from None


def first_digest(path: str, end: int) -> str:
    """Return a digest of up to 2 KiB behind the header of a file that was read up to END: what follows may grow."""
    count = max(min(end, HEADER_BYTES + _FIRST_BYTES) - HEADER_BYTES, 0)
    return sha256(read_bytes(path, HEADER_BYTES, count)).hexdigest()[:16]


def read_beside(file: Listed, name: str) -> bytes | None:
    """Return a small file in the folder of FILE, None where there is none."""
    base, mark, query = file.path.partition("?")
    try:
        return read_bytes(f"{base.rpartition('/')[0]}/{name}{mark}{query}", 0, 1 << 16)
    except (FileNotFoundError, SourceNotFound):
        return None


def bookie_of(file: Listed) -> str | None:
    """Return the id of the bookie whose disk FILE is on, as the folder's cookie says it; raises MetadataCorrupt."""
    raw = read_beside(file, COOKIE_FILE)
    return None if raw is None else decode_cookie(raw, f"{file.folder}/{COOKIE_FILE}").bookie_id


def has_map(file: Listed) -> bool:
    """Whether the log FILE was sealed: its header names a ledgers map, and that is one."""
    try:
        header = decode_header(read_bytes(file.path, 0, HEADER_BYTES), file.path)
        offset, count = header.ledgers_map_offset, header.ledgers_count
        if not (header.has_map and HEADER_BYTES <= offset < file.size_bytes and 0 < count <= _MAP_MAX_LEDGERS):
            return False
        size_bytes = _MAP_ROW_BYTES * count + _MAP_HEAD_BYTES * (count // _MAP_LEDGERS + 1)
        # Of a log only the header and the map matter; the map is put right behind the header.
        view = bytes(HEADER_BYTES) + read_bytes(file.path, offset, size_bytes)
        decode_ledgers_map(view, replace(header, ledgers_map_offset=HEADER_BYTES), file.path)
    except (EntryLogCorrupt, Unsupported):
        return False
    return True


def is_stale(file: Listed, newest: Listed) -> bool:
    """Whether FILE was last written an hour before the NEWEST log of its folder."""
    return file_info(newest.path)[1] - file_info(file.path)[1] >= STALE_S
