"""The file of the store's LMDB environment, ``meta/data.mdb``, read without LMDB: is it whole, and is it the newest state?

LMDB trusts its file. A page that is cut off (SIGBUS) or damaged (SIGABRT) kills the process, and where the newer of the two meta
pages goes back, the last change is gone without a word. ``meta/commit.json`` says what the last commit left: the transaction, the
number of the last change, the meta page, the size and the time of the file. A file that is so is opened at once; any other is
walked first, page by page: a store that was copied, one whose writer was killed, and one that is damaged.

Pages are those of LMDB 0.9 (``mdb.c``: MDB_page, MDB_node, MDB_meta, MDB_db; MDB_DATA_VERSION 1), little-endian, 64 bits.
"""

import json
import os
import struct
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from operator import lt
from pathlib import Path
from typing import NamedTuple

from pulsar_admin.store.errors import IndexCorrupt, StoreError
from pulsar_admin.store.files import open_lock_file, open_regular, raise_write_error, read_file

DATA_FILE = "data.mdb"
RECORD_FILE = "commit.json"
_RECORD_BYTES = 512  # always: a record is overwritten where it is
_PAGE_HEADER = struct.Struct("<QHHHH")  # number, pad, flags, lower, upper; the last two are a count in an overflow page
_META_HEAD = struct.Struct("<IIQQ")  # magic, version, address, map size
_DATABASE = struct.Struct("<IHHQQQQQ")  # pad, flags, depth, branch pages, leaf pages, overflow pages, entries, root
_META_TAIL = struct.Struct("<QQ")  # last page, transaction
_NODE = struct.Struct("<HHHH")  # size or child low, high, flags, key size
_NUMBER = struct.Struct("<Q")
_META_BYTES = _META_HEAD.size + 2 * _DATABASE.size + _META_TAIL.size
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_BRANCH, _LEAF, _OVERFLOW, _META = 1, 2, 4, 8  # flags of a page
_BIG_DATA, _SUB_DATABASE = 1, 2  # flags of a node
_NO_PAGE = 2**64 - 1
_KEY_MAX_BYTES = 511
_PAGE_SIZES = frozenset(1 << bits for bits in range(9, 17))


class Meta(NamedTuple):
    """One of the two meta pages: a state of the environment."""

    raw: bytes
    page_bytes: int
    free: tuple[int, ...]
    main: tuple[int, ...]
    last_page: int
    transaction: int


class Commit(NamedTuple):
    """The state after the last commit. ``change``: the number of the last change in the audit log, 0 before the first one."""

    transaction: int
    change: int
    size_bytes: int
    modified_ns: int
    meta: str


def is_as_committed(directory: Path) -> bool:
    """Whether an environment's file has the meta page, size and time that its last commit left."""
    record = read_commit(directory)
    if record is None:
        return False
    descriptor = open_regular(directory / DATA_FILE)
    try:
        status = os.fstat(descriptor)
        if (status.st_size, status.st_mtime_ns) != (record.size_bytes, record.modified_ns):
            return False
        return _newest(_read_metas(descriptor, status.st_size)).raw.hex() == record.meta
    except IndexCorrupt:
        return False
    finally:
        os.close(descriptor)


def read_commit(directory: Path) -> Commit | None:
    """Return the record of the last commit; None if there is no readable one.

    A half-written record counts as none: it must not contradict an intact state.
    """
    try:
        *fields, checksum = json.loads(read_file(directory / RECORD_FILE))
        record = Commit(*fields)
        return record if checksum == _checksum(record) else None
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _checksum(record: Commit) -> int:
    return zlib.crc32(json.dumps(record).encode())


class CommitRecord:
    """``commit.json`` of an environment, open for the one writer."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor = open_lock_file(directory / RECORD_FILE)
        try:
            # Its place is taken before anything is changed: no full disk keeps a commit from being recorded.
            if os.fstat(self._descriptor).st_size < _RECORD_BYTES:
                os.pwrite(self._descriptor, b" " * (_RECORD_BYTES - 1) + b"\n", 0)
        except OSError as error:
            os.close(self._descriptor)
            raise_write_error(error, directory / RECORD_FILE)

    def put(self, change: int) -> None:
        """Record, durably, the present state of the file, with its last change."""
        path = self._directory / DATA_FILE
        # The commit stands even if this fails: whoever opens the store next finds no record of the commit, and walks the pages.
        with suppress(OSError, StoreError):
            descriptor = open_lock_file(path)
            try:
                size = os.fstat(descriptor).st_size
                meta = _newest(_read_metas(descriptor, size))
                if size < (meta.last_page + 1) * meta.page_bytes:
                    # LMDB never writes pages at the end that the same transaction used and freed: a hole is as good.
                    os.ftruncate(descriptor, (meta.last_page + 1) * meta.page_bytes)
                status = os.fstat(descriptor)
            finally:
                os.close(descriptor)
            record = Commit(meta.transaction, change, status.st_size, status.st_mtime_ns, meta.raw.hex())
            line = json.dumps([*record, _checksum(record)]).encode()
            os.pwrite(self._descriptor, line.ljust(_RECORD_BYTES - 1) + b"\n", 0)
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


# -- the walk ---------------------------------------------------------------------------------------------------------


def check_file(directory: Path, transaction: int | None = None) -> int | None:
    """Walk every page of an environment that its newest state reaches; raises IndexCorrupt for pages that would make
    LMDB crash, lose rows, or read them wrongly. The values of rows are not looked at. Returns the transaction of that
    state.

    No process may write meanwhile, or a reader must hold the state of ``transaction`` (the second commit after it
    overwrites its meta page, which is not walked then).
    """
    descriptor = open_regular(directory / DATA_FILE)
    try:
        size = os.fstat(descriptor).st_size
        metas = _read_metas(descriptor, size)
        if transaction is None:
            _check_metas(metas, read_commit(directory))
            transaction = _newest(metas).transaction
        meta = next((meta for meta in metas if meta.transaction == transaction), None)
        if meta is not None:
            _Walk(descriptor, size, meta).run()
        return None if meta is None else meta.transaction
    except struct.error as error:
        raise IndexCorrupt(f"its pages are damaged: {error}") from error
    finally:
        os.close(descriptor)


def _read_metas(descriptor: int, size_bytes: int) -> tuple[Meta, Meta]:
    first = os.pread(descriptor, _PAGE_HEADER.size + _META_BYTES, 0)
    if len(first) < _PAGE_HEADER.size + _META_BYTES:
        raise IndexCorrupt(f"it ends in its first page: {size_bytes} bytes")
    meta = _decode_meta(first, 0)
    second = os.pread(descriptor, _PAGE_HEADER.size + _META_BYTES, meta.page_bytes)
    if len(second) < _PAGE_HEADER.size + _META_BYTES:
        raise IndexCorrupt(f"it ends in its second page: {size_bytes} bytes")
    return meta, _decode_meta(second, 1)


def _decode_meta(page: bytes, number: int) -> Meta:
    found, _, flags, _, _ = _PAGE_HEADER.unpack_from(page)
    raw = page[_PAGE_HEADER.size :]
    magic, version, _, _ = _META_HEAD.unpack_from(raw)
    if (found, flags & _META, magic, version) != (number, _META, _MAGIC, _VERSION):
        raise IndexCorrupt(f"page {number} is not a meta page")
    free = _DATABASE.unpack_from(raw, _META_HEAD.size)
    main = _DATABASE.unpack_from(raw, _META_HEAD.size + _DATABASE.size)
    if free[0] not in _PAGE_SIZES:
        raise IndexCorrupt(f"page {number}: a page size of {free[0]} bytes")
    return Meta(raw, free[0], free, main, *_META_TAIL.unpack_from(raw, _META_HEAD.size + 2 * _DATABASE.size))


def _newest(metas: tuple[Meta, Meta]) -> Meta:
    return metas[metas[1].transaction > metas[0].transaction]


def _check_metas(metas: tuple[Meta, Meta], record: Commit | None) -> None:
    """Raise IndexCorrupt unless the newer meta page is that of the last commit, as far as anybody can tell."""
    transaction = _newest(metas).transaction
    # Transactions alternate between the two pages; both begin with 0.
    if transaction and metas[transaction & 1].transaction != transaction:
        raise IndexCorrupt(f"the meta page of transaction {transaction} is in the place of the other one")
    if transaction and metas[~transaction & 1].transaction != transaction - 1:
        raise IndexCorrupt(
            f"one of its meta pages went back: they are of transactions {metas[0].transaction} and {metas[1].transaction}"
        )
    if record is not None and transaction < record.transaction:
        raise IndexCorrupt(
            f"it went back to transaction {transaction}: {record.transaction} was committed,"
            f" its last change number {record.change}"
        )
    if record is not None and transaction == record.transaction and _newest(metas).raw.hex() != record.meta:
        raise IndexCorrupt(f"the meta page of transaction {transaction} is not the one that was committed")


class _Walk:
    """Every page that a state reaches, once."""

    def __init__(self, descriptor: int, size_bytes: int, meta: Meta) -> None:
        self._descriptor = descriptor
        self._meta = meta
        self._page_bytes = meta.page_bytes
        self._pages = size_bytes // meta.page_bytes
        self._seen = bytearray(min(meta.last_page + 1, self._pages))

    def run(self) -> None:
        """Raise IndexCorrupt for the first damage."""
        newest = 0
        for key, value in self._rows("free pages", self._meta.free):
            # The pages of a row of free pages are marked.
            if len(key) != _NUMBER.size or len(value) < _NUMBER.size or len(value) % _NUMBER.size:
                raise IndexCorrupt(f"a row of free pages has a key of {len(key)} and a value of {len(value)} bytes")
            count, *numbers = struct.unpack(f"<{len(value) // _NUMBER.size}Q", value)
            if count > len(numbers):
                raise IndexCorrupt(f"a row of {len(numbers)} free pages claims {count}")
            for number in numbers[:count]:
                if not 2 <= number <= self._meta.last_page:
                    raise IndexCorrupt(f"page {number} is named as free, the last one is {self._meta.last_page}")
                if number < len(self._seen):
                    self._mark(number)
            newest = max(newest, int(_NUMBER.unpack(key)[0]))
        # A transaction that changes anything frees the pages it replaces, in a row under its own number.
        if newest > self._meta.transaction or (newest and newest < self._meta.transaction):
            raise IndexCorrupt(
                f"its newest free pages are of transaction {newest}, its state is of {self._meta.transaction}"
            )
        for key, value in self._rows("databases", self._meta.main):
            name = key.decode("utf-8", "replace")
            if len(value) != _DATABASE.size:
                raise IndexCorrupt(f"the database {name!r} is described in {len(value)} bytes")
            deque(self._rows(name, _DATABASE.unpack(value), yields_all=False), 0)

    def _mark(self, number: int) -> None:
        if not 2 <= number < len(self._seen):
            raise IndexCorrupt(f"page {number} is named, the file has {self._pages} pages")
        if self._seen[number]:
            raise IndexCorrupt(f"page {number} is used twice")
        self._seen[number] = 1

    def _rows(self, name: str, database: tuple[int, ...], *, yields_all: bool = True) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of a database in key order, those of pages without large values only with ``yields_all``."""
        # LMDB's own count of overflow pages is wrong once a shorter value took the place of a longer one.
        _, _, depth, branches, leaves, _, entries, root = database
        expected = [branches, leaves, entries]
        counts = [0, 0, 0]
        if root == _NO_PAGE:
            if any(expected) or depth:
                raise IndexCorrupt(f"{name}: no root, and {entries} rows")
            return
        is_free = database is self._meta.free
        last: object = None
        least: object = None
        todo = [(root, 1, b"")]
        while todo:
            number, level, named = todo.pop()
            if named:
                least = _NUMBER.unpack(named)[0] if is_free else named
                if last is not None and not last < least:  # type: ignore[operator]
                    raise _misled(name, number)
            self._mark(number)
            page = self._read(number)
            keys = () if yields_all or level < depth else self._find_keys(page, number)
            if keys and (last is None or last < keys[0]) and (least is None or least <= keys[0]):  # type: ignore[operator]
                last = keys[-1]
                counts[1] += 1
                counts[2] += len(keys)
                continue
            children, rows = self._read_page(name, page, number, is_leaf=level == depth)
            counts[not children] += 1
            if children:
                if level >= depth:
                    raise IndexCorrupt(f"{name}, page {number}: deeper than {depth} levels")
                todo += [(child, level + 1, key) for child, key in reversed(children)]
                continue
            for key, data, big_bytes in rows:
                order = _NUMBER.unpack(key)[0] if is_free else key
                if last is not None and not last < order:  # type: ignore[operator]
                    raise IndexCorrupt(f"{name}, page {number}: its keys are not in order")
                if least is not None and order < least:  # type: ignore[operator]
                    raise _misled(name, number)
                last = order
                counts[2] += 1
                yield key, self._overflow(name, data, big_bytes, read=is_free) if big_bytes else data
        if counts != expected:
            raise IndexCorrupt(
                f"{name}: expected {branches} branch pages, {leaves} leaf pages and {entries} rows,"
                f" found {counts[0]}, {counts[1]} and {counts[2]}"
            )

    def _read(self, number: int) -> bytes:
        page = os.pread(self._descriptor, self._page_bytes, number * self._page_bytes)
        if len(page) < self._page_bytes:
            raise IndexCorrupt(f"it ends in page {number}")
        return page

    def _overflow(self, name: str, data: bytes, size_bytes: int, *, read: bool) -> bytes:
        """Mark the pages that hold a large value; return the value if it is to be read."""
        first = _NUMBER.unpack(data)[0]
        header = os.pread(self._descriptor, _PAGE_HEADER.size, first * self._page_bytes) if first < self._pages else b""
        pages = -(-(_PAGE_HEADER.size + size_bytes) // self._page_bytes)
        if len(header) < _PAGE_HEADER.size:
            raise IndexCorrupt(f"{name}: a value lies in page {first}, the file has {self._pages} pages")
        number, _, flags, low, high = _PAGE_HEADER.unpack(header)
        there = low | high << 16  # a shorter value stays in the pages of a longer one
        if (number, flags) != (first, _OVERFLOW) or not pages <= there <= self._pages:
            raise IndexCorrupt(f"{name}, page {first}: not the {pages} pages of a value of {size_bytes} bytes")
        for page in range(first, first + there):
            self._mark(page)
        return os.pread(self._descriptor, size_bytes, first * self._page_bytes + _PAGE_HEADER.size) if read else b""

    def _find_keys(self, page: bytes, number: int) -> Sequence[bytes]:
        """Return the keys of a leaf in which ``_read_page`` finds neither damage nor a large value, in a third of its time; none of any
        other."""
        found, _, flags, lower, upper = _PAGE_HEADER.unpack_from(page)
        if found != number or flags != _LEAF or lower % 2 or not _PAGE_HEADER.size < lower <= upper <= len(page):
            return ()
        places = struct.unpack_from(f"<{(lower - _PAGE_HEADER.size) // 2}H", page, _PAGE_HEADER.size)
        if min(places) < upper or max(places) + _NODE.size > len(page):
            return ()
        keys, used, last_end, unpack = list[bytes](), 0, 0, _NODE.unpack_from
        for at in places:
            low, high, node_flags, key_bytes = unpack(page, at)
            start = at + 8
            end = start + key_bytes + (low | high << 16)
            if node_flags or not 0 < key_bytes <= _KEY_MAX_BYTES:
                return ()
            keys.append(page[start : start + key_bytes])
            used += (end - at + 1) & ~1
            if end > last_end:
                last_end = end
        is_right = used == len(page) - upper and last_end <= len(page) and all(map(lt, keys, keys[1:]))
        return keys if is_right else ()

    def _read_page(
        self, name: str, page: bytes, number: int, *, is_leaf: bool
    ) -> tuple[list[tuple[int, bytes]], list[tuple[bytes, bytes, int]]]:
        """Return the children of a branch page, or the rows of a leaf: key, value, 0 (or page of a value, its bytes).

        A child has a key that is not above any of its rows: ``b""`` for the first, whose key LMDB ignores.
        """
        where = f"{name}, page {number}"
        found, _, flags, lower, upper = _PAGE_HEADER.unpack_from(page)
        if found != number or flags != (_LEAF if is_leaf else _BRANCH):
            raise IndexCorrupt(f"{where}: it is page {found} with flags {flags:#x}")
        count = (lower - _PAGE_HEADER.size) // 2
        if not _PAGE_HEADER.size < lower <= upper <= self._page_bytes or lower % 2 or (count < 2 and not is_leaf):
            raise IndexCorrupt(f"{where}: rows from {lower} to {upper}")
        children: list[tuple[int, bytes]] = []
        rows: list[tuple[bytes, bytes, int]] = []
        used = 0
        for at in struct.unpack_from(f"<{count}H", page, _PAGE_HEADER.size):
            if at < upper or at + _NODE.size > self._page_bytes:
                raise IndexCorrupt(f"{where}: a row at {at}")
            low, high, node_flags, key_bytes = _NODE.unpack_from(page, at)
            start = at + _NODE.size
            end = start + key_bytes
            if not is_leaf:
                children.append((low | high << 16 | node_flags << 32, page[start:end] if children else b""))
            else:
                size = low | high << 16
                held = _NUMBER.size if node_flags & _BIG_DATA else size
                if node_flags & ~(_BIG_DATA | _SUB_DATABASE) or not 0 < key_bytes <= _KEY_MAX_BYTES:
                    raise IndexCorrupt(f"{where}: a row with flags {node_flags:#x} and a key of {key_bytes} bytes")
                rows.append((page[start:end], page[end : end + held], size if node_flags & _BIG_DATA else 0))
                end += held
            if end > self._page_bytes:
                raise IndexCorrupt(f"{where}: a row that ends at {end}")
            used += (end - at + 1) & ~1
        if used != self._page_bytes - upper:
            raise IndexCorrupt(f"{where}: its rows have {used} bytes, it says {self._page_bytes - upper}")
        return children, rows


def _misled(name: str, number: int) -> IndexCorrupt:
    """Return the error for a page whose keys do not fit those of its parent page; pages can be walked all the same."""
    return IndexCorrupt(f"{name}, page {number}: its keys are not in order with the page above", database=name)
