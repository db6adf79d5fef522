"""Does it start? What keeps a stopped bookie or a ZooKeeper server from starting on its files, and what a start would do unasked.

Upstream (BookKeeper 4.17, ZooKeeper 3.9): ``LegacyCookieValidation.checkCookies``, ``KeyValueStorageRocksDB`` (a database that is not there
is created), ``Journal.replay``, ``FileInfo``; ``FileTxnSnapLog.restore``, ``FileSnap``, ``FileTxnLog``, ``BinaryInputArchive``.
"""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.bookie import COOKIE_FILE, LAST_MARK_FILE, Cookie
from pulsar_admin.store.codec.journal import decode_header
from pulsar_admin.store.codec.ledgerindex import HEADER_BYTES, decode_ledger_index_header, ledger_id_of_index
from pulsar_admin.store.codec.ledgermetadata import COOKIES, INSTANCE_ID
from pulsar_admin.store.db.bookies import Bookie, disks_text
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node, iter_nodes
from pulsar_admin.store.errors import MetadataCorrupt, StoreError, Unsupported
from pulsar_admin.store.files import open_file
from pulsar_admin.store.scan.files import FileBytes
from pulsar_admin.store.sources.bookies import find_cookie, identity_of, read_bookie_directory, read_cookie, read_marks
from pulsar_admin.store.sources.index_places import iter_index_files
from pulsar_admin.store.sources.journals import find_stop, is_first_journal_missing
from pulsar_admin.store.sources.rocksdb import is_rocksdb
from pulsar_admin.store.sources.rocksopen import check_pairs, open_links
from pulsar_admin.store.sources.storage import DATABASES, LEDGERS, has_database
from pulsar_admin.store.sources.zookeeper import ServerFiles, SnapshotFile, iter_log_files, iter_snapshot_files
from pulsar_admin.store.wording import Answer, counted, listed, plural

FULL = 0.95
"""BookKeeper's diskUsageThreshold: a bookie turns read-only."""


class StartFault(Answer, frozen=True):
    """Something that a start meets. ``code``: that of its rule; ``starts``: whether the start succeeds all the same, with the
    consequence that ``text`` tells; ``cure``: the command that mends it, "" where the rule was not asked.

    ``values``: what fills the places of the rule's command.
    """

    JSON_HIDDEN = ("values",)

    code: str
    starts: bool
    where: str
    text: str
    values: Mapping[str, object]
    cure: str = ""


# -- bookies ----------------------------------------------------------------------------------------------------------


class Registered(Struct, frozen=True):
    """What metadata has of bookies: the instance id, and the cookies by bookie id (None: one that cannot be decoded)."""

    instance_id: str
    cookies: Mapping[str, Cookie | None]


def read_registered(txn: Txn) -> Registered:
    """Return what the metadata of a store has of bookies."""
    node = find_node(txn, INSTANCE_ID)
    root = f"{COOKIES}/"
    cookies = {one.path.removeprefix(root): find_cookie(one.value, one.path) for one in iter_nodes(txn, root)}
    return Registered("" if node is None else node.value.decode("utf-8", "replace").strip(), cookies)


def iter_bookie_faults(bookie: Bookie, registered: Registered | None, *, thorough: bool) -> Iterator[StartFault]:
    """Yield what a start of a bookie meets on its disks, as far as they are at hand. ``registered``: None where there is no metadata.

    ``thorough``: databases are opened, and the journals that a start replays are read.
    """
    if not any(path.is_dir() for path in bookie.directories):
        return
    why = "" if registered is None else refusal(registered, bookie)
    if why:
        lacking = [path for path in bookie.directories if path.is_dir() and not (path / COOKIE_FILE).is_file()]
        code = "bookie-cookie-missing" if lacking else "bookie-cookie-refused"
        yield bookie_fault(bookie, code, lacking[0] if lacking else bookie.directories[0], why)
    yield from _index_faults(bookie, thorough)
    yield from _journal_faults(bookie, thorough)
    yield from _file_faults(bookie) if thorough else ()
    full = [path for path in bookie.ledger_dirs if path.is_dir() and _used(path) >= FULL]
    if len(full) == len(bookie.ledger_dirs) > 0:
        text = f"the disk of {listed(full)} is {_used(full[0]):.0%} full: the bookie starts read-only, and compaction stops"
        yield bookie_fault(bookie, "disk-full", full[0], text, starts=True)


def refusal(registered: Registered, bookie: Bookie) -> str:
    """Return why a bookie's cookies keep it from starting on this metadata, "" if nothing does."""
    cookies = {path: read_cookie(path) for path in bookie.directories}
    there = next((cookie for cookie in cookies.values() if cookie is not None), None)
    known = registered.cookies.get(bookie.bookie_id)
    without = [str(path) for path, cookie in cookies.items() if cookie is None]
    if there is None:
        return "its directories are not empty and have no cookie (VERSION)"
    if (there.instance_id or "") != registered.instance_id:
        ours, theirs = there.instance_id or "none", registered.instance_id or "none"
        return f"the instance id of its cookie is {ours}, of the metadata {theirs}"
    if bookie.bookie_id not in registered.cookies:
        return f"the metadata has no cookie of {bookie.bookie_id}"
    if known is not None and identity_of(known) != identity_of(there):
        return f"its cookie is not the one that the metadata has of {bookie.bookie_id}"
    if without:
        return f"no cookie (VERSION) in {', '.join(without)}"
    return ""


def bookie_fault(bookie: Bookie, code: str, where: Path, text: str, *, starts: bool = False) -> StartFault:
    """Return a fault of a bookie, with the values for its rule's command."""
    return StartFault(code, starts, str(where), text, {"bookie": bookie.name, "disks": disks_text(bookie)})


def _used(path: Path) -> float:
    usage = shutil.disk_usage(path)
    return usage.used / usage.total if usage.total else 0.0


def _index_faults(bookie: Bookie, thorough: bool) -> Iterator[StartFault]:
    indexes = bookie.index_dirs or bookie.ledger_dirs
    logs = {log: len(read_bookie_directory(log).logs) for log in bookie.ledger_dirs if log.is_dir()}
    if not any(map(has_database, indexes)):
        return  # it may have been copied without: that is unknown
    for index, log in zip(indexes, bookie.ledger_dirs, strict=False):
        for database in (index / name for name in DATABASES):
            why, starts = _why_closed(database), False
            if not why and thorough and is_rocksdb(database):
                why, starts = _why_unreadable(database)
            if why:
                text = f"{database} opens, but a part cannot be read" if starts else f"{database} does not open"
                yield bookie_fault(bookie, "bookie-index-unreadable", database, f"{text}: {why}", starts=starts)
            elif not is_rocksdb(database) and logs.get(log):
                what = EMPTY_LEDGERS if database.name == LEDGERS else _EMPTY_LOCATIONS
                text = f"{database} is no database: {what}"
                yield bookie_fault(bookie, "bookie-index-missing", database, text, starts=True)


EMPTY_LEDGERS = (
    "a start makes an empty one, and the first garbage collection deletes its entry logs, whatever the metadata says"
)
_EMPTY_LOCATIONS = (
    "a start makes an empty one, and answers that it has none of its entries, which a recovery takes for a proof"
)


def _why_closed(database: Path) -> str:
    """Return why RocksDB does not open a database, "" if nothing shows that: it creates one that is not there."""
    if not is_rocksdb(database):
        left = next(database.glob("*.log"), None)
        return "" if left is None else f"CURRENT is gone, and {left.name} is there: wal_dir contains existing log file"
    named = (database / "CURRENT").read_bytes()
    if not named.endswith(b"\n"):
        return "CURRENT file does not end with newline"
    manifest = database / os.fsdecode(named.strip())
    if not manifest.is_file():
        return f"{manifest.name}, which CURRENT names, is gone"
    return ""


def _why_unreadable(database: Path) -> tuple[str, bool]:
    """Return why RocksDB cannot read all of a database, "" if it can or if that is unknown, and whether it opens it anyway."""
    opens = False
    with suppress(StoreError, OSError):
        try:
            with open_links(database, []) as opened:
                opens = True
                check_pairs(opened)
        except MetadataCorrupt as error:
            return error.message, opens
    return "", True


def _journal_faults(bookie: Bookie, thorough: bool) -> Iterator[StartFault]:
    for directory, mark in read_marks(bookie, []).items():
        journals = dict(read_bookie_directory(directory).journals) if directory.is_dir() else {}
        if is_first_journal_missing(mark, journals):
            text = (
                f"{LAST_MARK_FILE} names journal {mark.journal_id:x}.txn, which is not in {directory}: Recovery log"
                f" {mark.journal_id} is missing"
            )
            yield bookie_fault(bookie, "bookie-journal-missing", directory, text)
            continue
        keys: dict[int, bytes] = {}
        for journal_id, path in journals.items() if thorough else ():
            if journal_id >= mark.journal_id:
                start = mark.offset if journal_id == mark.journal_id else 0
                offset, why = _stop(path, start, keys)
                if why:
                    yield bookie_fault(
                        bookie, "bookie-journal-damaged", path, f"{path} @ {offset:#x}: {why}, at which a start fails"
                    )


def _stop(path: Path, start: int, keys: dict[int, bytes]) -> tuple[int, str]:
    """Return where and why a start fails in a journal, "" if it does not."""
    try:
        with open_file(path) as file:
            data = FileBytes(file, os.fstat(file.fileno()).st_size)
            header = decode_header(data, str(path))
            return find_stop(data, start or header.header_bytes, header.version, keys)
    except (StoreError, OSError) as error:
        return 0, str(error)


def _file_faults(bookie: Bookie) -> Iterator[StartFault]:
    """Yield that ``.idx`` files have no header: a bookie starts with them (``FileInfo.readHeader``: each is opened when it is needed)."""
    damaged: dict[int, Path] = {}
    for path in iter_index_files(bookie.index_dirs or bookie.ledger_dirs):
        try:
            with open_file(path) as file:
                decode_ledger_index_header(file.read(HEADER_BYTES), str(path))
        except (MetadataCorrupt, Unsupported):
            damaged[ledger_id_of_index(path.name) or 0] = path
    if damaged:
        ids = sorted(damaged)
        text = (
            f"the header of {counted(len(ids), '.idx file')} is damaged (of {plural(len(ids), 'ledger')} {listed(ids)}): the bookie"
            " starts, and fails to read and to flush them (Missing ledger signature)"
        )
        fault = bookie_fault(bookie, "index-file-wrong", damaged[ids[0]], text, starts=True)
        yield replace(fault, values={**fault.values, "ledgerId": ids[0]})


# -- ZooKeeper --------------------------------------------------------------------------------------------------------


JUTE_BYTES, PULSAR_JUTE_BYTES = 0xFFFFF, 10 << 20
"""``jute.maxbuffer``: ZooKeeper's default, and what bin/pulsar sets; what is read may be twice as long (``extrasize``)."""
_SEAL = struct.pack(">i", 1) + b"/"
_HEAD = struct.Struct(
    ">q"  # checksum, Adler-32
    "i"  #  length
)
_LOG_HEADER_BYTES = 16
_LOG_MAGIC = b"ZKLG"
_END_OF_RECORD = 0x42


def iter_server_faults(server: ServerFiles, *, thorough: bool) -> Iterator[StartFault]:
    """Yield what a start of a ZooKeeper server meets in its files. ``thorough``: snapshots are read as a whole.

    As ``FileTxnSnapLog.restore``: the newest snapshot that can be read, then every log from the one before it on.
    """
    logs = [*iter_log_files(server)]
    base, damaged = None, list[SnapshotFile]()
    for snapshot in reversed([*iter_snapshot_files((server,))]):
        if _is_readable(snapshot, thorough):
            base = snapshot.zxid
            break
        damaged.append(snapshot)
    if base is None and not damaged and logs:
        first = "" if logs[0][0] <= 1 else f", and it would start without the transactions before {logs[0][0]:#x}"
        text = (
            f"logs and no snapshot (No snapshot found, but there are log entries): only with zookeeper.snapshot.trust.empty=true, which"
            f" bin/pulsar sets, does a server start{first}"
        )
        yield _server_fault("zookeeper-snapshot-missing", server.snapshots, text)
    if damaged:
        yield _damaged_snapshots(server, base, damaged, logs)
    yield from _log_faults(
        [one for one in logs if one[0] > (base or 0)], [one for one in logs if one[0] <= (base or 0)][-1:]
    )


def _server_fault(code: str, where: Path, text: str, *, starts: bool = False, **values: object) -> StartFault:
    return StartFault(code, starts, str(where), text, values)


def _damaged_snapshots(
    server: ServerFiles, base: int | None, damaged: list[SnapshotFile], logs: list[tuple[int, Path]]
) -> StartFault:
    names = listed(one.path.name for one in damaged)
    if base is None:
        text = f"{names} cannot be read, and there is no other snapshot: a server finds none to start from"
        return _server_fault("zookeeper-snapshot-damaged", damaged[0].path, text)
    # The log that goes on from a snapshot begins right after it at the latest.
    is_whole = any(zxid <= base + 1 for zxid, _ in logs)
    then = (
        "and its logs from there on"
        if is_whole
        else f"and forgets what came after it, for the logs of that are gone: the first begins at {logs[0][0]:#x}"
        if logs
        else "and forgets what came after it, for there are no logs"
    )
    text = f"{names} cannot be read: a server starts from snapshot.{base:x} {then}"
    return _server_fault("zookeeper-snapshot-damaged", damaged[0].path, text, starts=True)


def _is_readable(snapshot: SnapshotFile, thorough: bool) -> bool:
    """Whether a server restores itself from a snapshot: by its last bytes (``SnapStream.isValidSnapshot``), or ``thorough`` by all."""
    if thorough:
        try:
            snapshot.read()
        except StoreError:
            return False
        return True
    with snapshot.path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if snapshot.extension.lower() in ("gz", "snappy"):
            return size > 0
        file.seek(max(size - len(_SEAL), 0))
        return file.read() == _SEAL


def _log_faults(later: list[tuple[int, Path]], earlier: list[tuple[int, Path]]) -> Iterator[StartFault]:
    """Yield where the replay of logs fails: of damage the first place, of long records the longest."""
    longest: tuple[int, Path, int] | None = None
    for _, path in (*earlier, *later):
        with path.open("rb") as file:
            data = FileBytes(file, os.fstat(file.fileno()).st_size)
            offset, why, size = _replay(data)
        if size > 2 * JUTE_BYTES and (longest is None or size > longest[0]):
            longest = size, path, offset
        if why:
            yield _server_fault(
                "zookeeper-log-unreadable", path, f"{path} @ {offset:#x}: {why}, at which a server ends its start"
            )
            break
    if longest is not None:
        size, path, _ = longest
        pulsar = (
            "bin/pulsar sets 10485760, which is enough"
            if size <= 2 * PULSAR_JUTE_BYTES
            else "more than what bin/pulsar sets"
        )
        text = (
            f"{path} has a transaction of {size:,} bytes (Unreasonable length): a server starts only with -Djute.maxbuffer={-(-size // 2)}"
            f" or more; {pulsar}"
        )
        yield _server_fault("zookeeper-record-too-large", path, text, jute=-(-size // 2))


def _replay(data: FileBytes) -> tuple[int, str, int]:
    """Return where and why the replay of a log fails ("": it does not), and the length of the log's longest transaction."""
    if not len(data):  # passed over, as ZooKeeper does (ZOOKEEPER-2332)
        return 0, "", 0
    if len(data) < _LOG_HEADER_BYTES:
        return 0, f"a log of {len(data)} bytes, without a header", 0
    if bytes(data[:4]) != _LOG_MAGIC:
        return 0, f"no header of a log, but {bytes(data[:4])!r}", 0
    offset, longest = _LOG_HEADER_BYTES, 0
    # An unfinished record, or one of no bytes, is the end of a log.
    while offset + _HEAD.size <= len(data):
        checksum, size = _HEAD.unpack(data[offset : offset + _HEAD.size])
        start, end = offset + _HEAD.size, offset + _HEAD.size + size
        if size < -1:
            return offset, f"a record of {size} bytes (Unreasonable length)", longest
        if size <= 0 or end >= len(data) or data[end] != _END_OF_RECORD:
            break
        longest = max(longest, size)
        if zlib.adler32(data[start:end]) != checksum:
            return offset, "a record with a wrong checksum (CRC check failed)", longest
        offset = end + 1
    return offset, "", longest
