"""Changes bits of files, and of rows in a store's file as a failing disk or memory does: below LMDB, with the time of before."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import lmdb

from pulsar_admin.store.db.rows import NAME_ENDING

_OVERFLOW_HEADER_BYTES = 16
_BRANCH = 1


class RawRow(NamedTuple):
    """A row as LMDB has it: ``value`` ends with the digest."""

    database: str
    key: bytes
    value: bytes


def raw_rows(store: Path, ending: str = NAME_ENDING) -> Iterator[RawRow]:
    """Yield every row of STORE, whose databases' names end with ENDING, read by LMDB alone."""
    with lmdb.open(str(store / "meta"), readonly=True, lock=False, max_dbs=64) as env:
        with env.begin() as txn:
            names = [name.decode() for name, _ in txn.cursor()]
        for name in names:
            database = env.open_db(name.encode(), create=False)
            with env.begin(db=database) as txn:
                yield from (RawRow(name.removesuffix(ending), key, value) for key, value in txn.cursor())


def flip(file: Path, at: int, bits: int = 1, *, by_disk: bool = False) -> None:
    """Turn BITS of the byte at a place of a file; BY_DISK: its time stays."""
    status = file.stat()
    data = bytearray(file.read_bytes())
    data[at] ^= bits
    file.write_bytes(data)
    if by_disk:
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def alter(store: Path, row: RawRow, place: int, bit: int, *, in_key: bool = False) -> None:
    """Turn BIT of the byte at PLACE of ROW's value, or key, wherever the file of STORE has the row; its time stays."""
    file = store / "meta" / "data.mdb"
    status = file.stat()
    data = bytearray(file.read_bytes())
    starts = [*_keys_of(data, row)] if in_key else [*_values_of(data, row)]
    assert starts, row
    for start in starts:
        data[start + place] ^= 1 << bit
    file.write_bytes(data)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def _keys_of(data: bytearray, row: RawRow) -> Iterator[int]:
    """Yield where leaf pages have the key of ROW: behind the head of a node that says its sizes."""
    head = struct.pack("<H", len(row.key)) + row.key
    at = data.find(head)
    while at >= 0:
        low, high = struct.unpack_from("<HH", data, at - 6)
        if low | high << 16 == len(row.value):
            yield at + 2
        at = data.find(head, at + 1)


def _values_of(data: bytearray, row: RawRow) -> Iterator[int]:
    """Yield where the value of ROW lies: behind its key, or in pages of its own that the node names."""
    for start in [*_keys_of(data, row)]:
        at = start + len(row.key)
        if data[at : at + len(row.value)] == row.value:
            yield at
            continue
        (page,) = struct.unpack_from("<Q", data, at)
        own = page * 4096 + _OVERFLOW_HEADER_BYTES
        if data[own : own + len(row.value)] == row.value:
            yield own


def alter_branch_keys(store: Path, bit: int) -> Iterator[None]:
    """Turn BIT of each byte in turn of each key that LMDB's branch pages have; the file's time stays, and it is whole again at the end."""
    file = store / "meta" / "data.mdb"
    status, whole = file.stat(), file.read_bytes()
    for page in range(0, len(whole), 4096):
        (flags,) = struct.unpack_from("<H", whole, page + 10)
        (lower,) = struct.unpack_from("<H", whole, page + 12)
        if flags != _BRANCH or lower > 4096:
            continue
        for pointer in range(page + 18, page + lower, 2):  # the first node of a page has no key
            (node,) = struct.unpack_from("<H", whole, pointer)
            (size,) = struct.unpack_from("<H", whole, page + node + 6)
            for place in range(page + node + 8, page + node + 8 + size):
                data = bytearray(whole)
                data[place] ^= 1 << bit
                file.write_bytes(data)
                os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
                yield
    file.write_bytes(whole)
