"""What ``bookkeeper shell`` (BookKeeper 4.17.2) prints of metadata, indexes, logs and journals, as lines of text.

Its lines come from a logger; these have no time, thread and class. The classes are those of
``org.apache.bookkeeper.tools.cli.commands``; the order of ledgers, which hash maps leave to chance there, is by number here.
"""

import os
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, overload

from msgspec import Struct

from pulsar_admin.store import errors
from pulsar_admin.store.codec import journal
from pulsar_admin.store.codec.buffer import Bytes
from pulsar_admin.store.codec.entrylog import log_id_of
from pulsar_admin.store.codec.ledgermetadata import (
    COOKIES,
    INSTANCE_ID,
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    ledger_path,
)
from pulsar_admin.store.codec.logscan import TornTail
from pulsar_admin.store.db.bookies import iter_imported_bookies
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.files import LogFile, find_log, iter_logs
from pulsar_admin.store.db.tree import find_node, iter_children, iter_nodes
from pulsar_admin.store.facts.under_replication import MARKS, REPLICA
from pulsar_admin.store.files import open_file, url_of
from pulsar_admin.store.model.coverage import stripes_of
from pulsar_admin.store.model.ledgers import find_metadata, iter_blocks, iter_ledger_ids
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.reports.internal_stats import metadata_text
from pulsar_admin.store.reports.log_files import LogRecord, iter_log_records
from pulsar_admin.store.scan.ledgers_map import read_ledger_sizes
from pulsar_admin.store.sources.bookies import read_marks
from pulsar_admin.store.wording import counted

AVAILABLE = "/ledgers/available"
READ_ONLY = "readonly"
REPLICATION_OFF = "/ledgers/underreplication/disable"
_IDS = struct.Struct(">qq")
_HEAD_BYTES = 40  # ids, and what readlog shows after them: the last add confirmed, or a key of 20 bytes with its size
_DATA_FROM = 32  # behind ids, last add confirmed and length
_CTIME = re.compile(r"^\s*ctime:\s*(\d+)", re.MULTILINE)


# -- metadata ---------------------------------------------------------------------------------------------------------


def metadata_lines(txn: Txn, ledger_id: int) -> Iterator[str]:
    """Yield what ``ledgermetadata`` prints; raises LedgerNotFound."""
    metadata = decode_ledger_metadata(metadata_bytes(txn, ledger_id), ledger_path(ledger_id))
    yield f"ledgerID: {ledger_id}"
    yield metadata_text(metadata, with_password=True)


def metadata_bytes(txn: Txn, ledger_id: int) -> bytes:
    """Return the stored metadata of a ledger; raises LedgerNotFound."""
    node = find_node(txn, ledger_path(ledger_id))
    if node is None:
        raise errors.LedgerNotFound(
            f"the metadata has no ledger {ledger_id}",
            hint="list ledgers with: pulsar-admin bookkeeper listledgers",
            ledgerId=ledger_id,
        )
    return node.value


def ledger_lines(txn: Txn, bookie: str | None, meta: bool) -> Iterator[str]:
    """Yield what ``listledgers`` prints: all ledgers, or those of which ``bookie`` should have entries."""
    for ledger_id in iter_ledger_ids(txn):
        metadata = find_metadata(txn, ledger_id) if meta or bookie is not None else None
        if bookie is None or (metadata is not None and _holds(metadata, bookie)):
            yield f"ledgerID: {ledger_id}"
            if meta and metadata is not None:
                yield metadata_text(metadata, with_password=True)


def _holds(metadata: LedgerMetadata, bookie: str) -> bool:
    """Whether ``bookie`` should have any entry of the ledger (upstream ``BookKeeperAdmin.areEntriesOfLedgerStoredInTheBookie``).

    A ledger without entries is on no bookie, and one with a striped ensemble only on those that a written entry went to.
    """
    *_, newest = metadata.segments
    if metadata.state is LedgerState.CLOSED:
        return any(stripe.count(bookie) for stripe in stripes_of(metadata, metadata.last_entry_id))
    written = stripes_of(metadata, newest.first_entry_id - 1)
    return bookie in newest.members or any(stripe.count(bookie) for stripe in written)


def under_replicated_lines(
    txn: Txn, with_replica: str | None, without_replica: str | None, replicas: bool, only_count: bool
) -> Iterator[str]:
    """Yield what ``listunderreplicated`` prints: ledgers that miss ``with_replica`` and not ``without_replica``."""
    count = 0
    for node in iter_nodes(txn, MARKS):
        name = node.path.rpartition("/urL")[2]
        missing = REPLICA.findall(text := node.value.decode(errors="replace"))
        meant = (not with_replica or with_replica in missing) and (
            not without_replica or without_replica not in missing
        )
        if not name.isdigit() or not meant:
            continue
        count += 1
        if only_count:
            continue
        yield str(int(name))
        yield from (f"\tCtime : {time}" for time in _CTIME.findall(text))
        yield from (f"\tMissingReplica : {replica}" for replica in missing if replicas)
    yield f"Under replicated ledger count: {count}"


def bookie_lines(txn: Txn, readwrite: bool, readonly: bool, every: bool) -> Iterator[str]:
    """Yield what ``listbookies`` prints: running bookies, of which a stopped cluster has none, or all bookies with a cookie."""
    running = [name for name in iter_children(txn, AVAILABLE) if name != READ_ONLY]
    only_read = list(iter_children(txn, f"{AVAILABLE}/{READ_ONLY}"))
    shown = 0
    for title, wanted, names in (
        ("ReadWrite Bookies :", readwrite, running),
        ("Readonly Bookies :", readonly, only_read),
        ("All Bookies :", every, list(iter_children(txn, COOKIES))),
    ):
        if wanted and names:
            shown += 1
            yield title
            for name in names:
                is_resolved = name in running or name in only_read
                host, _, port = name.rpartition(":") if is_resolved else ("UNKNOWN", "", "0")
                address = host if re.fullmatch(r"[\d.]+|\[.*\]", host) else "UNKNOWN"
                yield f"BookieID:{name}, IP:{address}, Port:{port}, Hostname:{host}"
    if not shown:
        yield "No bookie exists!"


def cookie_lines(txn: Txn, bookie: str) -> Iterator[str]:
    """Yield what ``cookie_get`` prints; raises NotFound."""
    node = find_node(txn, f"{COOKIES}/{bookie}")
    if node is None:
        raise errors.NotFound(
            f"Cookie not found for bookie {bookie!r}", hint="list bookies with: pulsar-admin bookkeeper listbookies -a"
        )
    yield f"Cookie for bookie '{bookie}' is:"
    yield "---"
    yield node.value.decode(errors="replace")
    yield "---"


class ClusterInfo(Struct, frozen=True):
    """What ``clusterinfo`` prints. An auditor is elected only among running bookies."""

    auditor_elected: bool
    auditor_id: str
    cluster_under_replicated: bool
    ledger_replication_enabled: bool
    total_bookies_count: int
    writable_bookies_count: int
    readonly_bookies_count: int
    unavailable_bookies_count: int


def read_cluster_info(txn: Txn) -> ClusterInfo:
    """Return what ``clusterinfo`` prints, from the metadata."""
    every = sum(1 for _ in iter_children(txn, COOKIES))
    readonly = sum(1 for _ in iter_children(txn, f"{AVAILABLE}/{READ_ONLY}"))
    writable = sum(name != READ_ONLY for name in iter_children(txn, AVAILABLE))
    marked = next(iter_nodes(txn, MARKS), None) is not None
    enabled = find_node(txn, REPLICATION_OFF) is None
    return ClusterInfo(False, "", marked, enabled, every, writable, readonly, every - writable - readonly)


# -- files ------------------------------------------------------------------------------------------------------------


def index_lines(txn: Txn, ledger_id: int) -> Iterator[str]:
    """Yield what ``ledger`` prints of a ledger in DbLedgerStorage: where its entries lie, after the size of their records.

    Entries that are in a journal alone are in no bookie's index either.
    """
    logs: dict[int, LogFile | None] = {}
    for block in iter_blocks(txn, ledger_id):
        for index in range(len(block)):
            file_id, offset, _ = block.place(index)
            log = logs[file_id] if file_id in logs else logs.setdefault(file_id, find_log(txn, file_id))
            if log is not None and log.kind == FileKind.ENTRY_LOG:
                yield f"entry {block.entry_id(index)}\t:\t(log: {log.log_id}, pos: {offset + 4})"


def read_lines(reader: EntryReader, ledger_id: int, first: int, last: int, with_data: bool) -> Iterator[str]:
    """Yield what ``readledger`` prints of the entries ``first`` to ``last`` (−1: the last); the size is the ledger's up to there."""
    for block in iter_blocks(reader.txn, ledger_id):
        for entry_id in map(block.entry_id, range(len(block))):
            if entry_id < first or 0 <= last < entry_id:
                continue
            entry = reader.read(ledger_id, entry_id)
            yield f"--------- Lid={ledger_id}, Eid={entry_id}, EntrySize={entry.length} ---------"
            if with_data:
                yield bytes(entry.payload).decode(errors="replace")


class Selection(Struct, frozen=True):
    """Which records of a log ``readlog`` prints: −1 is any."""

    ledger_id: int = -1
    entry_id: int = -1
    start: int = -1
    end: int = -1

    def takes(self, record: LogRecord) -> bool:
        """Whether ``record`` is selected; offsets are compared first, then ids, as in upstream's command."""
        if self.start >= 0:
            begins_in_time = self.end < 0 or record.offset <= self.end
            return begins_in_time and self.start <= record.offset + 4 + record.size_bytes - 1
        return self.ledger_id in (-1, record.ledger_id) and (
            self.ledger_id < 0 or self.entry_id in (-1, record.entry_id)
        )

    def title(self, log_id: int) -> str:
        """Return the first line."""
        name = f"{log_id} ({log_id:x}.log)"
        if self.start >= 0:
            return f"Scan entry log {name} for PositionRange: {self.start} - {self.end}"
        if self.ledger_id >= 0:
            entry = "" if self.entry_id < 0 else f" for EntryId {self.entry_id}"
            return f"Scan entry log {name} for LedgerId {self.ledger_id} {entry}"
        return f"Scan entry log {name}"

    def nothing(self, log_id: int) -> str:
        """Return the line that is printed if no record is selected."""
        name = f"{log_id} ({log_id:x}.log)"
        if self.start >= 0:
            return (
                f"Entry log {name} doesn't has any entry in the range {self.start} - {self.end}. Probably the position range,"
                " you have provided is lesser than the LOGFILE_HEADER_SIZE (1024) or greater than the current log filesize."
            )
        entry = "" if self.entry_id < 0 else f" EntryId {self.entry_id}"
        return f"LedgerId {self.ledger_id} {entry} is not available in the entry log {name}"


class _FileReads:
    """The bytes of a file as ``store.codec.buffer.Bytes``: each slice is read on access and not cached."""

    def __init__(self, file: BinaryIO, size_bytes: int) -> None:
        self._file = file
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return self._size_bytes

    @overload
    def __getitem__(self, key: int) -> int: ...

    @overload
    def __getitem__(self, key: slice) -> memoryview: ...

    def __getitem__(self, key: int | slice) -> int | memoryview:
        start, stop, _ = (slice(key, key + 1) if isinstance(key, int) else key).indices(self._size_bytes)
        raw = os.pread(self._file.fileno(), max(stop - start, 0), start)
        if len(raw) < stop - start:
            raise errors.SourceChanged(
                f"{self._file.name} is cut", hint="restore the file, or run: pulsar-admin store refresh"
            )
        return raw[0] if isinstance(key, int) else memoryview(raw)


def log_lines(store: Store, log: LogFile, selection: Selection, with_data: bool) -> Iterator[str]:
    """Yield what ``readlog`` prints of ``log``; raises Refused for one at a URL."""
    path = log.locate(store.path)
    if url := url_of(path):
        raise errors.Refused(f"the bytes of {path} are at {url}", hint="import the bookie with --fetch-to DIR")
    yield selection.title(log.log_id)
    is_any = False
    with open_file(path) as file:
        data = _FileReads(file, log.size_bytes)
        for record in iter_log_records(path, verify=False):
            if record.ledger_id >= 0 and selection.takes(record):
                is_any = True
                yield from _record_lines(data, record.offset, record.size_bytes, with_data)
    if not is_any and (selection.start >= 0 or selection.ledger_id >= 0):
        yield selection.nothing(log.log_id)


def journal_lines(store: Store, log: LogFile, with_data: bool) -> Iterator[str]:
    """Yield what ``readjournal`` prints of the journal ``log``: every record, also those of keys and fences."""
    path = log.locate(store.path)
    yield f"Scan journal {log.log_id} ({log.log_id:x}.txn)"
    with open_file(path) as file:
        data = _FileReads(file, log.size_bytes)
        told = False
        for record in journal.iter_records(data, str(path)):
            if isinstance(record, (journal.Padding, journal.Leftover, TornTail)):
                continue
            if not told:
                yield f"Journal Version : {journal.decode_header(data, path.name).version}"
                told = True
            size = int.from_bytes(data[record.offset : record.offset + 4], "big")
            yield from _record_lines(data, record.offset, size, with_data)


def _record_lines(data: Bytes, offset: int, size: int, with_data: bool) -> Iterator[str]:
    """Yield the record at ``offset`` as ``FormatUtil.formatEntry`` writes it; what it calls data begins with the digest."""
    body = data[offset + 4 : offset + 4 + (size if with_data else min(size, _HEAD_BYTES))]
    ledger_id, entry_id = _IDS.unpack_from(body)
    yield f"--------- Lid={ledger_id}, Eid={entry_id}, ByteOffset={offset}, EntrySize={size} ---------"
    if entry_id == journal.FENCE_ENTRY_ID:
        yield from ("Type:           META", "Fenced")
    elif entry_id == journal.MASTER_KEY_ENTRY_ID:
        yield from ("Type:           META", f"MasterKey:      {body[20:40].hex()}")
    else:
        yield from ("Type:           DATA", f"LastConfirmed:  {int.from_bytes(body[16:24], 'big', signed=True)}")
        if with_data:
            yield from ("Data:", "", bytes(body[_DATA_FROM:]).decode(errors="replace"))
    yield ""


def log_metadata_lines(store: Store, log: LogFile) -> Iterator[str]:
    """Yield what ``readlogmetadata`` prints: the bytes of each ledger in ``log``. None are dead to a fresh reader: usage is 1.0."""
    sizes = read_ledger_sizes(log.locate(store.path))
    total = sum(sizes.values())
    yield f"Print entryLogMetadata of entrylog {log.log_id} ({log.log_id:x}.log)"
    yield f"entryLogId: {log.log_id}, remaining size: {total}, total size: {total}, usage: {1.0 if total else 0.0}"
    for ledger_id in sorted(sizes):
        yield f"--------- Lid={ledger_id}, TotalSizeOfEntriesOfLedger={sizes[ledger_id]}  ---------"


def active_lines(txn: Txn, log: LogFile) -> Iterator[str]:
    """Yield what ``activeledgers`` prints: the ledgers in ``log`` that the metadata has."""
    ledger_ids = sorted(read_ledger_sizes(log.locate(txn.store.path)))
    if not ledger_ids:
        yield f"Ledgers on log file {log.log_id} is empty"
    active = [ledger_id for ledger_id in ledger_ids if find_node(txn, ledger_path(ledger_id)) is not None]
    title = f"Active ledgers on entry log {log.log_id} as follow:"
    yield title if active else f"No active ledgers on log file {log.log_id}"
    yield from (f"{ledger_id} " for ledger_id in active)


def find_file(txn: Txn, word: str, kind: FileKind, base: int) -> LogFile:
    """Return the catalogued file of ``kind`` that ``word`` names: its number in ``base``, its name, or the end of its path.

    Raises InvalidValue, SourceNotFound, and Refused if several bookies have one of that number.
    """
    number: int | None = None
    if re.fullmatch(r"[0-9a-fA-F]{1,16}", word):
        with suppress(ValueError):  # digits of another base
            number = int(word, base)
    if number is None:
        name = word.rpartition("/")[2]
        number = log_id_of(name) if kind == FileKind.ENTRY_LOG else journal.journal_id_of(name)
    what = kind.replace("-", " ")
    if number is None:
        suffix = ".log" if kind == FileKind.ENTRY_LOG else ".txn"
        raise errors.InvalidValue(f"invalid {what} {word!r}", hint=f"give its number, or its name: 1f{suffix}")
    logs = [log for log in iter_logs(txn) if log.kind == kind and log.log_id == number]
    if "/" in word:
        logs = [log for log in logs if f"/{log.origin or log.path}".endswith(f"/{word.lstrip('/')}")]
    if not logs:
        raise errors.SourceNotFound(
            f"the store has no {what} {word}",
            hint="see its files with: pulsar-admin bookkeeper listfilesondisc -log -txn",
        )
    if len(logs) > 1:
        paths = ", ".join(log.origin or log.path for log in logs)
        raise errors.Refused(
            f"{counted(len(logs), 'file is', 'files are')} meant: {paths}", hint="name one by its path"
        )
    return logs[0]


def bookie_directories(store: Store) -> tuple[Path, ...]:
    """Return the ``current`` directories of the bookies that the store was imported from; raises SourceNotFound."""
    directories = tuple(path for bookie in iter_imported_bookies(store.info) for path in bookie.directories)
    gone = [path for path in directories if not path.is_dir()]
    if gone or not directories:
        text = f"{gone[0]} is gone" if gone else "the store was not imported from a bookie's directory"
        raise errors.SourceNotFound(text, hint="about the store itself: pulsar-admin store info")
    return directories


def last_mark_lines(store: Store) -> Iterator[str]:
    """Yield what ``lastmark`` prints: for each journal directory up to which position entry logs are complete, 0 without a mark.

    Raises SourceNotFound for directories that are gone, and MetadataCorrupt for a mark that cannot be read.
    """
    bookie_directories(store)
    for bookie in iter_imported_bookies(store.info):
        problems: list[str] = []
        for mark in read_marks(bookie, problems).values():
            yield f"LastLogMark : Journal Id - {mark.journal_id}({mark.journal_id:x}.txn), Pos - {mark.offset}"
        if problems:
            raise errors.MetadataCorrupt(
                problems[0], hint="a start takes it for none, and replays the journals from their beginning"
            )


def file_lines(directories: Sequence[Path], journals: bool, logs: bool, indexes: bool) -> Iterator[str]:
    """Yield what ``listfilesondisc`` prints; files by path, where upstream sorts by the time they were made."""
    for wanted, title, suffix, end in (
        (journals, "Journal", "txn", True),
        (logs, "EntryLog/Ledger", "log", True),
        (indexes, "Index", "idx", False),
    ):
        if wanted:
            yield f"--------- Printing the list of {title} Files ---------"
            yield from (str(path.resolve()) for one in directories for path in sorted(one.rglob(f"*.{suffix}")))
            if end:
                yield ""


def instance_lines(txn: Txn) -> Iterator[str]:
    """Yield what ``whatisinstanceid`` prints; raises NotFound."""
    node = find_node(txn, INSTANCE_ID)
    if node is None:
        raise errors.NotFound(f"the metadata has no node {INSTANCE_ID}", hint="see: pulsar-admin store ls /ledgers")
    where = ", ".join(str(source["path"]) for source in txn.store.info.sources if source["kind"] != "bookie")
    yield f"Metadata Service Uri: {where} InstanceId: {node.value.decode(errors='replace')}"
