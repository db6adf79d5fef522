"""Whether a stopped bookie or ZooKeeper server starts on its files: faults that prevent it, and damage that a start would do.

Upstream (BookKeeper 4.17, ZooKeeper 3.9): ``LegacyCookieValidation.checkCookies``, ``KeyValueStorageRocksDB`` (a missing database
is created), ``Journal.replay``, ``FileInfo``; ``FileTxnSnapLog.restore``, ``FileSnap``, ``FileTxnLog``, ``BinaryInputArchive``.
"""

import os
import re
import shutil
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from typing import Any

from msgspec import Struct

from pulsar_admin.store.codec.bookie import COOKIE_FILE, Cookie
from pulsar_admin.store.codec.journal import decode_header
from pulsar_admin.store.codec.ledgerindex import HEADER_BYTES, decode_ledger_index_header
from pulsar_admin.store.codec.ledgermetadata import COOKIES, INSTANCE_ID, LAYOUT, find_listed_depths, layout_text
from pulsar_admin.store.codec.zookeeper_log import CHUNK_BYTES, BadRecord, skip_hole
from pulsar_admin.store.db.bookies import Bookie
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node, iter_nodes
from pulsar_admin.store.errors import MetadataCorrupt, StoreError, Unsupported
from pulsar_admin.store.files import open_file
from pulsar_admin.store.scan.files import FileBytes
from pulsar_admin.store.sources.bookies import (
    find_cookie,
    identity_of,
    read_bookie_directory,
    read_cookie,
    read_marks,
    with_own_journals,
)
from pulsar_admin.store.sources.index_places import has_database, iter_index_files
from pulsar_admin.store.sources.journals import ZEROS, find_stop, is_first_journal_missing
from pulsar_admin.store.sources.rocksdb import is_rocksdb
from pulsar_admin.store.sources.rocksopen import UNREAD_CHANGES, check_pairs, has_log_damage, open_links
from pulsar_admin.store.sources.storage import DATABASES, LEDGERS
from pulsar_admin.store.sources.zookeeper import (
    LogOrder,
    ServerFiles,
    SnapshotFile,
    iter_log_files,
    iter_merged,
    iter_snapshot_files,
    read_log,
)
from pulsar_admin.store.wording import counted

FULL = 0.95
"""BookKeeper's diskUsageThreshold: a bookie turns read-only."""


class Start(Enum):
    """Conditions that a start can meet; the rules in ``store.rules.starts`` describe how a bookie or a server reacts."""

    COOKIE_MISSING = auto()
    COOKIE_REFUSED = auto()
    INDEX_CLOSED = auto()
    INDEX_DAMAGED = auto()
    NO_LEDGERS = auto()
    NO_LOCATIONS = auto()
    NO_INDEX = auto()
    NOT_INDEXED = auto()
    NOT_IN_INDEX_FILES = auto()
    NO_JOURNAL = auto()
    JOURNAL_DAMAGED = auto()
    JOURNAL_SKIPPED = auto()
    JOURNAL_UNKNOWN = auto()
    INDEX_FILES_DAMAGED = auto()
    DISK_FULL = auto()
    NO_SNAPSHOT = auto()
    NO_WHOLE_SNAPSHOT = auto()
    SNAPSHOT_DAMAGED = auto()
    LOG_DAMAGED = auto()
    LOG_SKIPPED = auto()
    LOG_GAP = auto()
    LONG_RECORD = auto()
    EPOCHS = auto()
    LAYOUT = auto()
    OTHER_LAYOUT = auto()
    ROCKSDB = auto()
    ROCKSDB_LOG = auto()


class Refusal(Enum):
    """Why ``LegacyCookieValidation`` refuses a bookie."""

    NONE = auto()
    INSTANCE = auto()
    UNREGISTERED = auto()
    OTHER = auto()
    LACKING = auto()


class StartFact(Struct, frozen=True):
    """A condition that a start meets at ``where``, in the files of ``bookie`` (None: of a ZooKeeper server). ``values``: its figures."""

    kind: Start
    where: Path
    bookie: Bookie | None
    values: Mapping[str, Any]  # Any: by kind


# -- bookies ----------------------------------------------------------------------------------------------------------


class Registered(Struct, frozen=True):
    """The registration of bookies in the metadata: the instance id, and the cookies by bookie id (None: it cannot be decoded)."""

    instance_id: str
    cookies: Mapping[str, Cookie | None]


def read_registered(txn: Txn) -> Registered:
    """Return the registration of bookies in a store's metadata."""
    node = find_node(txn, INSTANCE_ID)
    root = f"{COOKIES}/"
    cookies = {one.path.removeprefix(root): find_cookie(one.value, one.path) for one in iter_nodes(txn, root)}
    return Registered("" if node is None else node.value.decode("utf-8", "replace").strip(), cookies)


def find_layout_fact(layout: bytes | None) -> StartFact | None:
    """Return the fault that any bookie's start meets in the metadata's ``LAYOUT``; None if that is Pulsar's, or missing.

    A bookie whose ``metadataServiceUri`` begins with ``metadata-store:`` does not read it.
    """
    depths = (3, 5) if layout is None else find_listed_depths(layout)
    if layout is None or depths == (3, 5):
        return None
    kind = Start.LAYOUT if depths is None else Start.OTHER_LAYOUT
    return StartFact(kind, Path(LAYOUT), None, {"layout": layout_text(layout)})


def iter_bookie_facts(
    bookie: Bookie, registered: Registered | None, *, thorough: bool, read: Collection[Path] = ()
) -> Iterator[StartFact]:
    """Yield the faults that a bookie's start meets on those of its disks that were imported. ``registered``: None without metadata.

    ``thorough``: databases are opened and read, except those in ``read``, which already were, and so are the journals that a start replays.
    """
    if not any(path.is_dir() for path in bookie.directories):
        return
    has_journals, bookie = bool(bookie.journal_dirs), with_own_journals(bookie)
    refused = None if registered is None else refusal(registered, bookie)
    if refused is not None:
        lacking = [path for path in bookie.directories if path.is_dir() and read_cookie(path) is None]
        is_ours = refused["refusal"] in (Refusal.NONE, Refusal.LACKING)
        kind = Start.COOKIE_MISSING if lacking and is_ours else Start.COOKIE_REFUSED
        yield StartFact(kind, (lacking or bookie.directories)[0], bookie, refused)
    yield from _index_facts(bookie, thorough, read)
    yield from _journal_facts(bookie, thorough, has_journals)
    yield from _file_facts(bookie) if thorough else ()
    full = [path for path in bookie.ledger_dirs if path.is_dir() and _used(path) >= FULL]
    if len(full) == len(bookie.ledger_dirs) > 0:
        yield StartFact(Start.DISK_FULL, full[0], bookie, {"disks": full, "used": _used(full[0])})


def refusal(registered: Registered, bookie: Bookie) -> Mapping[str, Any] | None:  # Any: by the kind of refusal
    """Return why a bookie's cookies keep it from starting on this metadata, None if nothing does."""
    cookies = {path: read_cookie(path) for path in bookie.directories}
    there = next((cookie for cookie in cookies.values() if cookie is not None), None)
    known = registered.cookies.get(bookie.bookie_id)
    without = [path for path, cookie in cookies.items() if cookie is None]
    if there is None:
        # A standalone's one bookie has no other place that tells its id.
        ids = [bookie.bookie_id] if bookie.bookie_id else [*registered.cookies]
        return {"refusal": Refusal.NONE, "registered": ids[0] if len(ids) == 1 and ids[0] in registered.cookies else ""}
    if (there.instance_id or "") != registered.instance_id:
        return {"refusal": Refusal.INSTANCE, "ours": there.instance_id, "theirs": registered.instance_id}
    if bookie.bookie_id not in registered.cookies:
        return {"refusal": Refusal.UNREGISTERED}
    if known is not None and identity_of(known) != identity_of(there):
        return {"refusal": Refusal.OTHER}
    return {"refusal": Refusal.LACKING, "directories": without} if without else None


def _used(path: Path) -> float:
    usage = shutil.disk_usage(path)
    return usage.used / usage.total if usage.total else 0.0


def has_index_files(bookie: Bookie) -> bool:
    """Whether a bookie has ``.idx`` files and no databases, so that ``store salvage`` refuses it."""
    return not has_database(bookie) and next(iter_index_files(bookie.indexes), None) is not None


def _index_facts(bookie: Bookie, thorough: bool, read: Collection[Path]) -> Iterator[StartFact]:
    indexes = bookie.indexes
    logs = {log: len(read_bookie_directory(log).logs) for log in bookie.ledger_dirs if log.is_dir()}
    if not has_database(bookie) and not _is_emptied(bookie.index_dirs):
        return  # it may have been copied without: that is unknown
    for index, log in zip(indexes, bookie.ledger_dirs, strict=False):
        for database in (index / name for name in DATABASES):
            why, starts = _why_closed(database), False
            is_read = database in read and not has_log_damage(database)
            if not why and thorough and not is_read and is_rocksdb(database):
                why, starts = _why_unreadable(database)
            if why:
                yield StartFact(Start.INDEX_DAMAGED if starts else Start.INDEX_CLOSED, database, bookie, {"why": why})
            elif not is_rocksdb(database) and logs.get(log):
                kind = Start.NO_LEDGERS if database.name == LEDGERS else Start.NO_LOCATIONS
                yield StartFact(kind, database, bookie, {})


def _is_emptied(indexes: Sequence[Path]) -> bool:
    """Whether the index has directories of its own, and all of them contain nothing but a cookie."""
    return bool(indexes) and all(path.is_dir() and {*os.listdir(path)} <= {COOKIE_FILE} for path in indexes)


def _why_closed(database: Path) -> str:
    """Return why RocksDB does not open a database, "" if no fault is found; RocksDB creates a missing database."""
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
    """Return (why RocksDB cannot read all of a database, whether RocksDB opens it); the reason is "" if none is known."""
    opens, problems = False, list[str]()
    with suppress(StoreError, OSError):
        try:
            with open_links(database, problems, to_damage=True) as opened:
                opens = True
                check_pairs(opened)
        except MetadataCorrupt as error:
            return error.message, opens
    return next((text for text in problems if UNREAD_CHANGES in text), ""), True


def _journal_facts(bookie: Bookie, thorough: bool, is_given: bool) -> Iterator[StartFact]:
    for directory, mark in read_marks(bookie, []).items():
        journals = dict(read_bookie_directory(directory).journals) if directory.is_dir() else {}
        if is_first_journal_missing(mark, journals):
            yield StartFact(Start.NO_JOURNAL, directory, bookie, {"journal": mark.journal_id, "given": is_given})
            continue
        keys: dict[int, bytes] = {}
        for journal_id, path in journals.items() if thorough else ():
            if journal_id >= mark.journal_id:
                start = mark.offset if journal_id == mark.journal_id else 0
                try:
                    offset, why = _stop(path, start, keys)
                except Unsupported as error:
                    yield StartFact(Start.JOURNAL_UNKNOWN, path, bookie, {"why": error.message, "hint": error.hint})
                    continue
                if why:
                    kind = Start.JOURNAL_SKIPPED if why == ZEROS else Start.JOURNAL_DAMAGED
                    yield StartFact(kind, path, bookie, {"offset": offset, "why": why})


def _stop(path: Path, start: int, keys: dict[int, bytes]) -> tuple[int, str]:
    """Return (offset, why) of the place in a journal where a start fails, "" if it does not; see ``find_stop``.

    Raises Unsupported for an unknown version.
    """
    try:
        with open_file(path) as file:
            data = FileBytes(file, os.fstat(file.fileno()).st_size)
            header = decode_header(data, "header")
            return find_stop(data, start or header.header_bytes, header.version, keys)
    except Unsupported:
        raise
    except OSError as error:
        return 0, error.strerror or str(error)
    except StoreError as error:
        return 0, error.message


def _file_facts(bookie: Bookie) -> Iterator[StartFact]:
    """Yield a fact if ``.idx`` files have no header; a bookie starts with them, as it opens each on demand (``FileInfo.readHeader``)."""
    damaged: dict[int, tuple[Path, str]] = {}
    for ledger_id, path in iter_index_files(bookie.indexes):
        try:
            with open_file(path) as file:
                decode_ledger_index_header(file.read(HEADER_BYTES), "header")
        except (MetadataCorrupt, Unsupported) as error:
            damaged[ledger_id] = path, error.message
    if damaged:
        ids = sorted(damaged)
        path, why = damaged[ids[0]]
        yield StartFact(Start.INDEX_FILES_DAMAGED, path, bookie, {"ledgers": ids, "why": why})


# -- ZooKeeper --------------------------------------------------------------------------------------------------------


JUTE_BYTES, PULSAR_JUTE_BYTES = 0xFFFFF, 10 << 20
"""``jute.maxbuffer``: ZooKeeper's default, and what bin/pulsar sets; ZooKeeper reads records of up to twice that length (``extrasize``)."""
_SEAL = struct.pack(">i", 1) + b"/"
_HEAD = struct.Struct(
    ">q"  # checksum, Adler-32
    "i"  #  length
)
_LOG_HEADER_BYTES = 16
_LOG_MAGIC = b"ZKLG"
_END_OF_RECORD = 0x42
_EPOCH, _EPOCH_BYTES = re.compile(r"[+-]?[0-9]{1,18}"), 100


def iter_server_facts(server: ServerFiles, *, thorough: bool) -> Iterator[StartFact]:
    """Yield the faults that a ZooKeeper server's start meets in its files. ``thorough``: snapshots are read as a whole.

    As ``FileTxnSnapLog.restore`` reads: the newest snapshot that can be read, then every log from the one before it on.
    """
    logs = [*iter_log_files(server)]
    base, damaged = None, list[SnapshotFile]()
    for snapshot in reversed([*iter_snapshot_files((server,))]):
        if _is_readable(snapshot, thorough):
            base = snapshot.zxid
            break
        damaged.append(snapshot)
    if base is None and not damaged and logs:
        yield StartFact(Start.NO_SNAPSHOT, server.snapshots, None, {"first": logs[0][0]})
    if damaged:
        kind = Start.NO_WHOLE_SNAPSHOT if base is None else Start.SNAPSHOT_DAMAGED
        names = [one.path.name for one in damaged]
        first = logs[0][0] if logs else None
        yield StartFact(kind, damaged[0].path, None, {"names": names, "base": base, "first": first})
    if why := _why_epochs_refused(
        server.snapshots, max([base or 0, *(zxid for zxid, path in logs if path.stat().st_size)])
    ):
        yield StartFact(Start.EPOCHS, server.snapshots, None, {"why": why})
    before = sum(zxid <= (base or 0) for zxid, _ in logs)
    yield from _log_facts([path for _, path in logs[max(before - 1, 0) :]], base or 0)
    if thorough and logs:
        # Where the start takes no or an older snapshot, the facts above say from which log on it goes.
        order = LogOrder(base if base is not None and not damaged else max(base or 0, logs[0][0] - 1))
        gaps = (order.take(file, item) for file, item in iter_merged((server,), base or 0))
        for gap in gaps:
            if gap is not None and gap.bad is None:
                lost = counted(gap.lost, "transaction")
                yield StartFact(Start.LOG_GAP, gap.file, None, {"lost": lost, "before": gap.before})


def _why_epochs_refused(snapshots: Path, zxid: int) -> str:
    """Return why a server of an ensemble refuses to start with its epoch files, "" if it does not. ``zxid``: a transaction that it has.

    Upstream ``QuorumPeer.loadDataBase``, which writes a missing file.
    """
    epochs: dict[str, int] = {}
    for name in ("currentEpoch", "acceptedEpoch"):
        with suppress(FileNotFoundError):
            with open_file(snapshots / name) as file:
                line = file.read(_EPOCH_BYTES).decode("utf-8", "replace").partition("\n")[0].removesuffix("\r")
            if not _EPOCH.fullmatch(line):
                return f"{name} has {line!r}, expected a number"
            epochs[name] = int(line)
    current = epochs.get("currentEpoch", zxid >> 32)
    if zxid >> 32 > current and not (snapshots / "currentEpoch.tmp").exists():
        return f"currentEpoch has {current}, and transaction {zxid:#x} is of epoch {zxid >> 32}"
    if "acceptedEpoch" in epochs and epochs["acceptedEpoch"] < current:
        return f"acceptedEpoch has {epochs['acceptedEpoch']}, less than {current}, the current epoch"
    return ""


def _is_readable(snapshot: SnapshotFile, thorough: bool) -> bool:
    """Whether a server can restore a snapshot: judged by its last bytes (``SnapStream.isValidSnapshot``), or if ``thorough`` by all."""
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


def _log_facts(logs: Sequence[Path], base: int) -> Iterator[StartFact]:
    """Yield where the replay of logs after transaction ``base`` fails or skips transactions: of damage that stops a
    start the first place, of long records the longest."""
    longest: tuple[int, Path] | None = None
    for path in logs:
        with path.open("rb") as file:
            data = FileBytes(file, os.fstat(file.fileno()).st_size)
            offset, why, size = _replay(data)
        if size > 2 * JUTE_BYTES and (longest is None or size > longest[0]):
            longest = size, path
        if why:
            yield StartFact(Start.LOG_DAMAGED, path, None, {"offset": offset, "why": why})
            break
        if forgotten := _unread_transactions(path, offset, base):
            values = {"offset": offset, "forgotten": counted(len(forgotten), "transaction"), "first": min(forgotten)}
            yield StartFact(Start.LOG_SKIPPED, path, None, values)
    if longest is not None:
        yield StartFact(Start.LONG_RECORD, longest[1], None, {"size": longest[0]})


def _unread_transactions(path: Path, offset: int, base: int) -> list[int]:
    """Return the zxids after ``base`` of a log's whole records after ``offset``, where a server's replay of it ends:
    it takes zeros or a cut record for the end, and goes on with the next log."""
    with path.open("rb", buffering=0) as file:
        file.seek(offset + _HEAD.size)
        while (chunk := file.read(CHUNK_BYTES)) == bytes(len(chunk)) and chunk:
            skip_hole(file)
    if not chunk:  # nothing but zeros
        return []
    damaged, found = False, list[int]()
    for item in read_log(path):
        if isinstance(item, BadRecord):
            damaged = True
        elif damaged and item.zxid > base:
            found.append(item.zxid)
    return found


def _replay(data: FileBytes) -> tuple[int, str, int]:
    """Return (offset at which the replay of a log ends, why it fails or "", length of the longest transaction)."""
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
        is_whole = size > 0 and end < len(data) and data[end] == _END_OF_RECORD
        if size < 0 or (size > 2 * PULSAR_JUTE_BYTES and not is_whole):
            return offset, f"a record of {size} bytes (Unreasonable length)", longest
        longest = max(longest, size)
        if not is_whole:
            break
        if zlib.adler32(data[start:end]) != checksum:
            return offset, "a record with a wrong checksum (CRC check failed)", longest
        offset = end + 1
    return offset, "", longest
