"""The catalogue of files: the entry logs and journals of a store, how far each was scanned, and damage found in them.

Row (database ``logs``): key file id u32 big-endian; value JSON, the fields of ``LogFile`` in camelCase.
Row (database ``damage``): key file id u32, offset u64; value JSON of one problem.
"""

import json
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from pulsar_admin.store.db.audit_log import Step
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.ledger_ids import UNFINISHED_REFRESH
from pulsar_admin.store.errors import IndexCorrupt, reason_of
from pulsar_admin.store.files import open_regular
from pulsar_admin.store.names import FileKind
from pulsar_admin.store.urls import Opened, place_of, read_bytes
from pulsar_admin.store.wording import counted

_FILE_KEY = struct.Struct(">I")
_DAMAGE_KEY = struct.Struct(">IQ")
_FINGERPRINT_BYTES = 4096
# Bytes 8 to 19 of an entry log's header are patched when it is sealed.
_HEADER_BYTES = 1024
NOTHING_READ = "e3b0c44298fc1c149afbf4c8996fb924"  # ``fingerprint`` of a file of which nothing was read
METADATA_FILE_ID = 0  # in ``damage``: the metadata store; files begin at 1
WHOLE_METADATA = 1 << 62  # "offset" there, from which on damage is of no particular node: the tree may lack any
NOT_NEEDED = 1 << 63  # "offset" there, from which on damage cost nothing: other files have what stood there
LOG_END = 3 << 62  # "offset" there, from which on it is no damage: where ZooKeeper's newest log ends is not sure
DAMAGE_MAX = 10_000  # rows kept a file; the count goes on


class FileMode(StrEnum):
    """How a file's entries are stored. OWN: this toolkit wrote the file into the store."""

    REFERENCED = "referenced"
    LINKED = "linked"
    COPIED = "copied"
    OWN = "own"


class LogFile(Struct, frozen=True):
    """One file that holds entries."""

    file_id: int
    path: str  # absolute, or relative to the store for copied, linked and own files
    kind: FileKind
    log_id: int  # the number its name spells
    origin: str  # the path it was imported from; "" for logs this toolkit wrote
    mode: FileMode
    size_bytes: int
    mtime_ns: int
    fingerprint: str  # of the first bytes behind the header, up to ``next_offset``
    next_offset: int  # behind the last good record: where a scan of the grown file goes on
    records: int
    problems: int
    torn: bool
    sealed: bool
    tail_records: int = 0  # of ``records`` and ``problems``, those at or behind ``next_offset``
    tail_problems: int = 0
    unfinished: bool = False  # a scan was stopped: it goes on at ``next_offset``
    stranger: str = ""  # why its bookie is not proven to be of the metadata's cluster
    bookie: str = ""  # the id of the bookie whose disk it is from; "": not known

    @property
    def disk(self) -> str:
        """The same value for all files of a bookie: its id or, if unknown, the directory of the import."""
        return self.bookie or str(Path(self.origin or self.path).parent)

    def locate(self, store_path: Path) -> Path:
        """Return where the file lies now."""
        return store_path / self.path

    def place(self, store_path: Path) -> str:
        """Return where its bytes are, an absolute path or a URL."""
        return place_of(self.locate(store_path).absolute())


def fingerprint(opened: Opened, size_bytes: int) -> str:
    """Return a digest of up to 3 KiB after the header, within the first ``size_bytes`` of a file; later bytes may grow."""
    count = max(0, min(size_bytes, _FINGERPRINT_BYTES) - _HEADER_BYTES)
    from hashlib import sha256  # 2 ms; only a changed or new file is digested

    raw = (
        os.pread(opened, count, _HEADER_BYTES) if isinstance(opened, int) else read_bytes(opened, _HEADER_BYTES, count)
    )
    return sha256(raw).hexdigest()[:32]


def file_fingerprint(path: Path, size_bytes: int) -> str:
    """Return ``fingerprint`` of the file at a path."""
    descriptor = open_regular(path)
    try:
        return fingerprint(descriptor, size_bytes)
    finally:
        os.close(descriptor)


def put_log(txn: Txn, log: LogFile) -> None:
    """Write the catalogue row of a file."""
    txn.put("logs", *_row_of(log))


def log_step(txn: Txn, log: LogFile) -> Step:
    """Return the step that gives a file another catalogue row."""
    key, row = _row_of(log)
    return Step("logs", key, txn.get("logs", key), row)


def _row_of(log: LogFile) -> tuple[bytes, bytes]:
    from msgspec.structs import asdict

    fields = asdict(log)
    file_id = fields.pop("file_id")
    return _FILE_KEY.pack(file_id), json.dumps(fields).encode()


def delete_log(txn: Txn, file_id: int) -> None:
    """Forget a file and its damage; its entries leave the index only by ``store.transfer.refresh``."""
    txn.delete("logs", _FILE_KEY.pack(file_id))
    clear_damage(txn, file_id)


def find_log(txn: Txn, file_id: int) -> LogFile | None:
    """Return the catalogued file, or None; raises IndexCorrupt."""
    key = _FILE_KEY.pack(file_id)
    row = txn.get("logs", key)
    return None if row is None else _decode_log(key, row)


def iter_logs(txn: Txn) -> Iterator[LogFile]:
    """Yield the catalogued files in the order of their ids, which is the order they were scanned in."""
    for key, row in txn.items("logs"):
        yield _decode_log(key, bytes(row))


def _decode_log(key: bytes, row: bytes) -> LogFile:
    try:
        fields = json.loads(row)
        kind, mode = FileKind(fields.pop("kind")), FileMode(fields.pop("mode"))
        return LogFile(_FILE_KEY.unpack(key)[0], kind=kind, mode=mode, **fields)
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError, struct.error) as error:
        raise IndexCorrupt(
            f"the catalogue row {key.hex()} is damaged: {reason_of(error)}",
            hint="restore a backup of the database (backups/); keep this store: its changes exist nowhere else",
        ) from error


def catalogued_bytes(txn: Txn) -> int:
    """Return the bytes of all catalogued files, for a progress display."""
    return sum(log.size_bytes for log in iter_logs(txn))


def next_file_id(txn: Txn) -> int:
    """Return the id for the next file to be catalogued."""
    last = txn.last("logs")
    return 1 if last is None else _FILE_KEY.unpack(last[0])[0] + 1


class Damage(Struct, frozen=True):
    """Bytes of a file that are not a good record."""

    file_id: int
    offset: int
    length_bytes: int
    reason: str
    ledger_id: int
    entry_id: int

    @property
    def costs_nothing(self) -> bool:
        """Whether nothing is lost: an unneeded metadata file is damaged, or the end of ZooKeeper's log is uncertain."""
        return self.file_id == METADATA_FILE_ID and self.offset >= NOT_NEEDED


def put_damage(txn: Txn, damage: Damage) -> None:
    """Note damaged bytes; damage at the same offset is replaced."""
    value = [damage.length_bytes, damage.reason, damage.ledger_id, damage.entry_id]
    txn.put("damage", _DAMAGE_KEY.pack(damage.file_id, damage.offset), json.dumps(value).encode())


def iter_damage(txn: Txn, file_id: int | None = None, start: int = 0) -> Iterator[Damage]:
    """Yield the known damage, of one file (from an offset on) or of all; raises IndexCorrupt."""
    prefix = b"" if file_id is None else _FILE_KEY.pack(file_id)
    first = None if file_id is None else _DAMAGE_KEY.pack(file_id, start)
    for key, row in txn.items("damage", prefix, first):
        try:
            found_id, offset = _DAMAGE_KEY.unpack(key)
            yield Damage(found_id, offset, *json.loads(bytes(row)))
        except (ValueError, TypeError, RecursionError, struct.error) as error:
            raise IndexCorrupt(
                f"the damage row {key.hex()} is damaged: {reason_of(error)}", hint="pulsar-admin store index --rebuild"
            ) from error


def damage_text(txn: Txn, log: LogFile) -> str:
    """Return words for the number of damaged places in a file, with the reason if its header is one of them."""
    with suppress(IndexCorrupt):  # a check tells of the row
        first = next(iter_damage(txn, log.file_id), None)
        if first is not None and first.offset == 0:
            return f"{counted(log.problems, 'damaged place')} ({first.reason})"
    return counted(log.problems, "damaged place")


def iter_metadata_damage(txn: Txn) -> Iterator[Damage]:
    """Yield the damage of the metadata store: of values and, from offset ``WHOLE_METADATA`` on, of any node."""
    return (damage for damage in iter_damage(txn, METADATA_FILE_ID) if not damage.costs_nothing)


def iter_incompleteness(txn: Txn) -> Iterator[Damage]:
    """Yield the damage that may have cost the metadata nodes, or newer states of them."""
    return (damage for damage in iter_damage(txn, METADATA_FILE_ID, WHOLE_METADATA) if not damage.costs_nothing)


def may_be_unread(txn: Txn) -> bool:
    """Return whether metadata that is missing may exist: a part could not be read, or a refresh or addition has not ended."""
    return any(iter_incompleteness(txn)) or txn.get("state", UNFINISHED_REFRESH) is not None


def iter_not_needed(txn: Txn) -> Iterator[Damage]:
    """Yield the damage of metadata files that were not needed."""
    return (damage for damage in iter_damage(txn, METADATA_FILE_ID, NOT_NEEDED) if damage.offset < LOG_END)


def iter_log_ends(txn: Txn) -> Iterator[Damage]:
    """Yield the uncertain end of ZooKeeper's newest log, after which it may have had more transactions."""
    return iter_damage(txn, METADATA_FILE_ID, LOG_END)


DIFFERS = "differs from the copy in "
"""Begins the reason of damage that is not a bad record, but another one than the copy of the same entry which the index names."""


def iter_differing(txn: Txn) -> Iterator[Damage]:
    """Yield the records that lost against a copy of the same entry with other bytes; at most DAMAGE_MAX per file are kept."""
    return (damage for damage in iter_damage(txn) if damage.reason.startswith(DIFFERS))


def clear_damage(txn: Txn, file_id: int, start: int = 0) -> None:
    """Delete the known damage of a file from an offset on."""
    keys = [_DAMAGE_KEY.pack(file_id, damage.offset) for damage in iter_damage(txn, file_id, start)]
    for key in keys:
        txn.delete("damage", key)
