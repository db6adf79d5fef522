"""One entry log, journal or bookie directory by itself, without a store: what its records are and whether they are good."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.codec import entrylog, journal
from pulsar_admin.store.codec.digest import DIGEST_SIZE
from pulsar_admin.store.errors import Corrupt, SourceNotFound, StoreError, Unsupported
from pulsar_admin.store.files import why_no_file
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.scan.ledgers_map import add_sizes, read_head, read_map_bytes
from pulsar_admin.store.urls import file_info, shown_path
from pulsar_admin.store.wording import Answer, counted, one_line

if TYPE_CHECKING:
    from pulsar_admin.store.engine.operation import Engine

BAD, UNVERIFIED, OK = "bad", "unverified", "ok"
DETAILS_MAX = 1_000  # problems named a file; the count goes on
_DIGEST_NAMES = {size: kind.name for kind, size in DIGEST_SIZE.items()}


class LogSummary(Answer, frozen=True):
    """One file by its name and header, without reading its records. ``header``: "ok" or the reason why it is bad."""

    path: str
    kind: FileKind
    number: int
    size_bytes: int
    header: str
    version: int | None
    sealed: bool
    ledgers: int | None


class LogRecord(Answer, frozen=True):
    """A record of a log, or bytes that are not one (``state`` says what; ids −1 when they name no entry).

    ``offset`` is that of the size field, ``size_bytes`` counts what follows it. ``state``: "ok", "bad" (digest), "unverified".
    """

    ledger_id: int
    entry_id: int
    offset: int
    size_bytes: int
    last_add_confirmed: int | None
    length: int | None
    digest_type: str | None
    state: str
    publish_time_ms: int | None
    messages: int | None


class LogVerdict(Struct):
    """What reading a whole file found. ``map``: "ok", "absent" (also of a journal), or how it contradicts the records."""

    __repr__ = one_line

    path: str
    kind: str
    size_bytes: int = 0
    records: int = 0
    ledgers: int = 0
    entry_bytes: int = 0
    problems: int = 0
    torn: bool = False
    map: str = "absent"
    details: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Note a problem."""
        self.problems += 1
        if len(self.details) < DETAILS_MAX:
            self.details.append(text)


def log_place(path: Path | str) -> Path | str:
    """Return a URL as it is, anything else as a path."""
    return path if isinstance(path, str) and "://" in path else Path(path)


def log_paths(path: Path | str) -> tuple[Path | str, ...]:
    """Return the file ``path``, or the logs and journals of the bookie directory ``path`` (or of its ``current``).

    What has such a name there and is no file comes last. A text is a URL, of an object, a prefix with logs, or a glob. Raises
    SourceNotFound for anything else.
    """
    if isinstance(path, str):
        from pulsar_admin.store.scan.sources import source_files

        return tuple(url for url, _, _ in source_files([path]))
    if path.is_file():
        return (path,)
    if os.path.lexists(path) and not path.is_dir():
        raise SourceNotFound(f"{path}: {why_no_file(path)}", hint="name an entry log", path=str(path))
    if not path.is_dir():
        raise SourceNotFound(
            f"{path} does not exist", hint="name an entry log, or a bookie's directory", path=str(path)
        )
    from pulsar_admin.store.codec.bookie import COOKIE_FILE  # these bring protobuf, which one file's records do without
    from pulsar_admin.store.sources.bookies import read_bookie_directory

    current = path / "current" if (path / "current").is_dir() else path
    directory = read_bookie_directory(current)
    files = (*(file for _, file in (*directory.logs, *directory.journals)), *directory.others)
    if not files:
        what = "a bookie's directory without logs" if (current / COOKIE_FILE).is_file() else "no bookie's directory"
        raise SourceNotFound(
            f"{current} is {what}: expected files such as 0.log or 17f3a.txn, found none",
            hint="name an entry log, or the directory `current` of a bookie",
            path=str(current),
        )
    return files


def verify_indexes(path: Path) -> Iterator[LogVerdict]:
    """Compare the ``.idx`` files of the bookie directory ``path`` (or of its ``current``) with the entry logs in it.

    A bookie of several ledger directories has some of the logs in another one; ``map`` says so.
    """
    from pulsar_admin.store.index import idx_files
    from pulsar_admin.store.sources.bookies import read_bookie_directory

    current = path / "current" if (path / "current").is_dir() else path
    logs = dict(read_bookie_directory(current).logs) if path.is_dir() else {}
    for index in idx_files.verify_indexes([current], logs):
        verdict = LogVerdict(str(index.path), "index", index.path.stat().st_size, index.entries, ledgers=1, map="ok")
        if index.absent_logs:
            verdict.map = f"unknown: not in {current}: {', '.join(map(entrylog.log_file_name, index.absent_logs))}"
        for problem in index.problems:
            verdict.add(problem)
        yield verdict


def size_of(path: Path | str) -> int:
    """Return the bytes of a file, or of an object at a URL; 0 if it is no file."""
    return 0 if _why_no_file(path) else file_info(str(path))[0]


def _why_no_file(path: Path | str) -> str:
    return why_no_file(path) if isinstance(path, Path) else ""


def _name_of(path: Path | str) -> str:
    return path.name if isinstance(path, Path) else path.partition("?")[0].rpartition("/")[2]


def kind_of(path: Path | str) -> FileKind:
    """Return "journal" for a file that begins with a journal's magic, or is named like one; else "entry-log"."""
    head = b"" if _why_no_file(path) else read_head(path)[:4]
    if head == journal.MAGIC or (_name_of(path).endswith(".txn") and head != b"BKLO"):
        return FileKind.JOURNAL
    return FileKind.ENTRY_LOG


def read_log_summary(path: Path | str) -> LogSummary:
    """Return the summary of a log or journal from its name and header; a bad header, or a path that is no file, is in ``header``."""
    reason = _why_no_file(path)
    name = _name_of(path)
    kind = kind_of(path)
    number = journal.journal_id_of(name) if kind is FileKind.JOURNAL else entrylog.log_id_of(name)
    size = size_of(path)
    summary = LogSummary(
        shown_path(str(path)), kind, -1 if number is None else number, size, reason or OK, None, False, None
    )
    if reason:
        return summary
    head = read_head(path)
    try:
        if kind == FileKind.JOURNAL:
            return replace(summary, version=journal.decode_header(head, name).version)
        if not size:
            return replace(summary, header="empty: preallocated")
        header = entrylog.decode_header(head, name)
    except (Corrupt, Unsupported) as error:
        return replace(summary, header=error.message)
    sealed = header.has_map and entrylog.HEADER_BYTES <= header.ledgers_map_offset < size
    return replace(summary, version=header.version, sealed=sealed, ledgers=header.ledgers_count if sealed else None)


def iter_log_records(path: Path | str, *, verify: bool = True, engine: Engine | None = None) -> Iterator[LogRecord]:
    """Yield every record of a log or journal in file order, and what lies between them when it is damage; scanned by ``engine``.

    Without metadata a digest's type is found by trying: an entry of a DUMMY ledger, or of an HMAC one with a password, is "bad".
    """
    if reason := _why_no_file(path):
        yield LogRecord(-1, -1, 0, 0, None, None, None, reason, None, None)
        return
    scan = _scan(path, verify, engine)
    gaps: list[LogRecord] = []
    told = 0
    for batch in scan.batches():
        rows = [_record(row) for row in batch.tolist()]
        bad = {row.offset for row in rows if row.state == BAD}
        gaps += map(_gap, scan.problems[told:])
        told = len(scan.problems)
        last = rows[-1].offset if rows else -1
        rows += [gap for gap in gaps if gap.offset <= last and gap.offset not in bad]
        gaps = [gap for gap in gaps if gap.offset > last]  # an engine tells them with the slice they are in
        yield from sorted(rows, key=lambda row: row.offset)
    yield from sorted([*gaps, *map(_gap, scan.problems[told:])], key=lambda row: row.offset)


def _scan(
    path: Path | str, verify: bool, engine: Engine | None = None, *, sizes: bool = False
) -> Any:  # Any: FileScan, which numpy comes with, or EngineLog
    """Return a scan of ``path``: in this process, or slice by slice by ``engine`` or for a URL. ``sizes``: only the bytes per ledger."""
    from pulsar_admin.store.scan.files import FileScan, LedgerDigests, Slice

    nothing_known = LedgerDigests.of({})
    whole = Slice(str(path), kind_of(path), 0, size_of(path))
    if engine is None and isinstance(path, Path):
        return FileScan(whole, nothing_known, verify)
    from pulsar_admin.store.index.scan import EngineLog, ScanRecords, ScanSizes

    return EngineLog(whole, -1, (ScanSizes if sizes else ScanRecords)(nothing_known, verify), engine=engine)


def _record(row: tuple[int, ...]) -> LogRecord:
    from pulsar_admin.store.scan.files import digest_state, is_message

    ledger_id, entry_id, offset, publish_ms, _, _, length, lac, size, messages, digest_bytes, flags = row
    state, is_framed = digest_state(flags), is_message(flags)
    return LogRecord(
        ledger_id,
        entry_id,
        offset,
        size,
        lac,
        length,
        None if state == BAD else _DIGEST_NAMES.get(digest_bytes),
        state,
        publish_ms if is_framed else None,
        messages if is_framed else None,
    )


def _gap(problem: Any) -> LogRecord:  # Any: store.scan.files.Problem
    size = max(problem.length_bytes - 4, 0) if problem.ledger_id >= 0 else problem.length_bytes
    return LogRecord(
        problem.ledger_id, problem.entry_id, problem.offset, size, None, None, None, problem.reason, None, None
    )


def iter_verdicts(
    path: Path | str, files: Iterable[Path | str], advance: Callable[[int], None], engine: Engine | None
) -> Iterator[LogVerdict]:
    """Yield the verdict on each of ``files``, the logs at ``path``, and on the indexes in the same directory."""
    yield from (verify_log(file, advance, engine) for file in files)
    if isinstance(path, Path):
        yield from verify_indexes(path)


def verify_log(path: Path | str, advance: Callable[[int], None], engine: Engine | None) -> LogVerdict:
    """Read a whole log or journal, by ``engine``: framing, every digest, and the ledgers map against the records."""
    kind = kind_of(path)
    verdict = LogVerdict(shown_path(str(path)), kind, size_of(path))
    if reason := _why_no_file(path):
        verdict.add(f"{path}: {reason}")
        return verdict
    scan = _scan(path, True, engine, sizes=True)
    sizes: dict[int, int] = {}
    told = 0
    for batch in scan.batches():
        add_sizes(sizes, batch)
        advance(scan.next_offset - told)
        told = scan.next_offset
    advance(max(verdict.size_bytes - told, 0))
    verdict.records, verdict.torn = scan.records, scan.torn
    verdict.ledgers, verdict.entry_bytes = len(sizes), sum(sizes.values())
    for problem in sorted(scan.problems, key=lambda problem: problem.offset):
        whose = f", entry {problem.ledger_id}:{problem.entry_id}" if problem.ledger_id >= 0 else ""
        verdict.add(
            f"{verdict.path} @ {problem.offset:#x}: {problem.reason}{whose} ({counted(problem.length_bytes, 'byte')})"
        )
    if kind == FileKind.ENTRY_LOG and verdict.size_bytes:
        _verify_map(path, verdict, sizes)
    return verdict


def _verify_map(path: Path | str, verdict: LogVerdict, sizes: dict[int, int]) -> None:
    """Compare the ledgers map with the records; a log that was never sealed has none."""
    try:
        header: entrylog.EntryLogHeader = entrylog.decode_header(read_head(path), verdict.path)
    except StoreError:
        verdict.map = "unknown: the header cannot be read"
        return
    if not header.has_map:
        return
    try:
        mapped = entrylog.decode_ledgers_map(read_map_bytes(path, header), header, verdict.path)
    except Corrupt as error:
        verdict.map = error.message
        verdict.add(error.message)
        return
    verdict.map = "ok"
    wrong = sorted(
        ledger_id for ledger_id in sizes.keys() | mapped.keys() if sizes.get(ledger_id) != mapped.get(ledger_id)
    )
    if wrong:
        first = wrong[0]
        verdict.map = (
            f"{counted(len(wrong), 'ledger differs', 'ledgers differ')}, first {first}: the map says {mapped.get(first, 0)} bytes,"
            f" its records have {sizes.get(first, 0)}"
        )
        verdict.add(f"{verdict.path}: ledgers map: {verdict.map}")
