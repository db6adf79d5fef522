"""Reading the disks of bookies into a store, also while the bookies run.

A bookie deletes a journal when ``lastMark`` is past it (``Journal.checkpointComplete``), and an entry log when its live entries were
copied (``GarbageCollectorThread``): what they held is in entry logs that are newer, or longer, than they were when the disks were
listed. So a file that vanished is dropped, and the disks are listed again, until none vanished while the new ones were read.
BookKeeper 4.16, 4.17.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.db.bookies import Bookie
from pulsar_admin.store.db.entry_files import FileState, path_state
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.files import NOTHING_READ, FileMode, LogFile, clear_damage, iter_logs, put_log
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.index.build import Scanning, index_files
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.sources.bookies import BookieFile, iter_links, iter_no_files, read_bookie_directory, read_marks
from pulsar_admin.store.sources.layout import Layout
from pulsar_admin.store.sources.rocksdb import locked_by
from pulsar_admin.store.sources.storage import DATABASES
from pulsar_admin.store.transfer.cataloguing import (
    Survey,
    catalogue_new,
    delete_logs,
    file_modes,
    is_sealed,
    place,
    put_logs,
    survey_files,
)
from pulsar_admin.store.wording import counted, listed, plural

ROUNDS = 10
"""Each round reads what was written during the one before, so rounds get shorter; if a bookie deletes faster, the last
one ends it."""


class Vanished(NamedTuple):
    """A file that was deleted after it was listed; ``unread``: before it was read to its end."""

    kind: FileKind
    number: int
    path: Path
    unread: bool


class Reading(Struct):
    """The result of reading files: their present ``rows`` by id, and ``before``, the earlier rows.

    ``doubts``: sentences about possible losses because files vanished, or are not files; ``links``: the files that are
    links.
    """

    rows: dict[int, LogFile] = field(default_factory=dict)
    before: dict[int, LogFile] = field(default_factory=dict)
    vanished: list[Vanished] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    def texts(self) -> Iterator[str]:
        """Yield sentences about the files, without doubts."""
        yield from self.links
        for kind, (word, because) in _BECAUSE.items():
            names = [file.path.name for file in self.vanished if file.kind is kind]
            if names:
                yield (
                    f"{counted(len(names), word)} {plural(len(names), 'was', 'were')} deleted meanwhile ({listed(sorted(names), 3)}):"
                    f" {because}"
                )


_BECAUSE = {
    FileKind.JOURNAL: (
        "journal",
        "a running bookie does so when their entries are in entry logs, and these were read after that",
    ),
    FileKind.ENTRY_LOG: (
        "entry log",
        "the garbage collection of a running bookie does so, and the entry logs that it wrote were read after that",
    ),
}


def read_disks(
    store: Store,
    layout: Layout,
    how: Scanning,
    *,
    begin: Callable[[], object] = lambda: None,
    from_start: bool = False,
    index: bool = True,
) -> Reading:
    """Read the entries that the disks of a layout have and the store lacks; without ``index`` files are only catalogued.

    ``begin`` is called before something new is catalogued. ``from_start``: the store is being created from the layout,
    so any missing file vanished meanwhile; otherwise files that were missing before are left to the caller. Raises as
    ``index_files``.
    """
    reading, watch = Reading(), Watch(layout)
    # The next survey reports vanished files; their entries are kept until then.
    how = replace(how, vanished=lambda log: None, is_live=watch.is_live)
    survey = survey_files(store, layout)
    reading.strangers = [stranger.text for stranger in survey.strangers]
    reading.links = [*iter_links(layout.bookies)]
    reading.doubts = [*iter_no_files(layout.bookies), *survey.unreadable_texts()]
    with store.read() as txn:
        known = frozenset[int]() if from_start else frozenset(log.file_id for log in iter_logs(txn))
    gone_before = frozenset[int]() if from_start else frozenset(log.file_id for log, _ in survey.gone)
    vanished: dict[Path, Vanished] = {}
    seen_twice: set[int] = set()
    for left in reversed(range(ROUNDS)):
        if survey.new or survey.grown:
            begin()
        missed = _read_new(store, survey, how, reading, index=index)
        half_seen = [log for log in _half_seen(reading, watch) if left and log.file_id not in seen_twice]
        seen_twice |= {log.file_id for log in half_seen}
        _begin_again(store, half_seen)
        survey = survey_files(store, layout)
        now = [Vanished(file.kind, file.number, file.path.resolve(), unread=True) for file in missed]
        now += (
            Vanished(log.kind, log.log_id, Path(log.origin), log.unfinished)
            for log, _ in survey.gone
            if log.file_id not in gone_before and not Path(log.origin).exists()
        )
        fresh = {file.path: file for file in now if file.path not in vanished}
        vanished |= fresh
        if not fresh and not half_seen:
            break
    else:
        reading.doubts.append(
            f"files are deleted faster than they are read ({listed(sorted(file.name for file in vanished), 3)}): the "
            "newest data may be missing here"
        )
    reading.vanished = [*vanished.values()]
    reading.doubts += _unproven(layout, reading.vanished)
    gone = [(log, held) for log, held in survey.gone if Path(log.origin) in vanished]
    reading.doubts += (
        f"{log.origin} was deleted after it was read, and the index names {counted(held, 'entry')} there; to read "
        "them from other files: pulsar-admin store refresh"
        for log, held in gone
        if held
    )
    useless = [log for log, held in gone if not held and log.file_id not in known]
    if useless:
        store.write(lambda txn: delete_logs(txn, useless))
    for log in useless:
        reading.rows.pop(log.file_id, None)
    return reading


def _read_new(store: Store, survey: Survey, how: Scanning, reading: Reading, *, index: bool) -> list[BookieFile]:
    """Read the files that the survey found new or grown, and put their rows into ``reading``; return those that
    vanished."""
    missed: list[BookieFile] = []
    if survey.named:
        store.write(lambda txn: put_logs(txn, survey.named))
    for log in survey.grown:
        if log.file_id not in reading.rows:
            reading.before[log.file_id] = log
    renewed = (row for log in survey.grown if (row := grown(store, log)) is not None)
    new = catalogue_new(store, survey.new, file_modes(store.info, survey.new), survey.strangers, missed.append)
    rows = chain(renewed, new)
    reading.rows |= index_files(store, rows, how) if index else {log.file_id: log for log in rows}
    return missed


def grown(store: Store, log: LogFile) -> LogFile | None:
    """Return a file's row with its present size and time, after renewing its copy in the store; None if it vanished."""
    origin = Path(log.origin)
    if path_state(log, origin) not in (FileState.GROWN, FileState.CHANGED):  # its scan was stopped, nothing else
        return log
    try:
        status = origin.stat()
        if log.mode in (FileMode.COPIED, FileMode.LINKED):
            status = (store.path / place(store, origin, log.file_id, log.mode)).stat()
        sealed = log.kind == FileKind.ENTRY_LOG and is_sealed(log.locate(store.path))
    except (OSError, StoreError):
        if origin.exists():
            raise
        return None
    return replace(log, size_bytes=status.st_size, mtime_ns=status.st_mtime_ns, sealed=sealed)


def _half_seen(reading: Reading, watch: Watch) -> Iterator[LogFile]:
    """Yield files with new damage that were written to while they were read: a write may have been seen in part."""
    for log in reading.rows.values():
        before = reading.before.get(log.file_id)
        if log.problems > (before.problems - before.tail_problems if before else 0) and watch.is_live(log):
            yield log


def _begin_again(store: Store, logs: Sequence[LogFile]) -> None:
    """Mark files to be read from their beginning."""

    def write(txn: Txn) -> None:
        for log in logs:
            clear_damage(txn, log.file_id)
            row = replace(log, next_offset=0, fingerprint=NOTHING_READ, records=0, problems=0, torn=False)
            put_log(txn, replace(row, tail_records=0, tail_problems=0, unfinished=True))

    if logs:
        store.write(write)


def _unproven(layout: Layout, vanished: Iterable[Vanished]) -> Iterator[str]:
    """Yield sentences on journals that were deleted unread although ``lastMark`` is not past them."""
    unread = [file for file in vanished if file.kind is FileKind.JOURNAL and file.unread]
    for bookie in layout.bookies:
        for directory, mark in read_marks(bookie, []).items() if unread else ():
            here = [file for file in unread if file.path.parent.resolve() == directory.resolve()]
            for file in here:
                if file.number >= mark.journal_id:
                    yield (
                        f"{file.path} was deleted before it was read, and lastMark (journal {mark.journal_id:x}) does not say that its"
                        " entries are in entry logs: what only it had is missing"
                    )


State = tuple[int, int]
"""Size and time of change (ns) of a file."""


class Watch:
    """Detects running bookies: a process has locked their databases, or their files changed since this was created."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._states = {bookie: _file_states(bookie) for bookie in layout.bookies}
        directories = {path for bookie in layout.bookies for path in (*bookie.ledger_dirs, *bookie.journal_dirs)}
        contents = [read_bookie_directory(path) for path in directories]
        newest = [files[-1][1] for one in contents for files in (one.logs, one.journals) if files]
        self._newest = {path.resolve() for path in newest}
        self._running: set[Bookie] = set()

    def is_live(self, log: LogFile) -> bool:
        """Whether its bookie was writing a file while it was read: the bookie runs, and the file was the newest of its
        kind, or has changed."""
        path = Path(log.origin)
        bookie = next(
            (one for one in self._states if path.parent in [place.resolve() for place in one.directories]), None
        )
        if bookie is None or not self._runs(bookie):
            return False
        return path in self._newest or _state_of(path) != (log.size_bytes, log.mtime_ns)

    def _runs(self, bookie: Bookie) -> bool:
        if bookie not in self._running and (self._is_locked(bookie) or _file_states(bookie) != self._states[bookie]):
            self._running.add(bookie)
        return bookie in self._running

    def _is_locked(self, bookie: Bookie) -> bool:
        metadata = self._layout.metadata
        if self._layout.root is not None and metadata is not None and metadata.holder() is not None:
            return True
        databases = (path / name for path in bookie.indexes for name in DATABASES)
        return any(locked_by(path) is not None for path in databases)


def _file_states(bookie: Bookie) -> dict[Path, State | None]:
    contents = [read_bookie_directory(path) for path in {*bookie.ledger_dirs, *bookie.journal_dirs}]
    files = chain.from_iterable((*one.logs, *one.journals) for one in contents)
    return {path.resolve(): _state_of(path) for _, path in files}


def _state_of(path: Path) -> State | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns
