"""Jute, ZooKeeper's serialization, as far as its files use it, and the header of these files.

Integers are big-endian; a string or buffer is i32 length (−1: null) and bytes; a vector i32 count and items. Source: ``zookeeper.jute``,
``BinaryInputArchive``, ``FileHeader`` (ZooKeeper 3.5 to 3.9).
"""

import struct

from pulsar_admin.store.codec.buffer import Reader
from pulsar_admin.store.errors import MetadataCorrupt

VERSION = 2
HEADER = struct.Struct(
    ">4s"  # magic
    "i"  #   version
    "q"  #   database id
)
INT, LONG = struct.Struct(">i"), struct.Struct(">q")


def check_header(raw: bytes | memoryview, magic: bytes, where: str) -> None:
    """Raise MetadataCorrupt unless a file begins with this magic and our version."""
    found, version, _ = HEADER.unpack(raw)
    if found != magic or version != VERSION:
        raise MetadataCorrupt(
            f"{where}: expected {magic.decode()} version {VERSION}, found {found!r} version {version}",
            where=where,
            expected=magic.decode(),
            found=found.hex(),
        )


def read_count(reader: Reader) -> int:
    """Return how many items a vector has; raises MetadataCorrupt if the bytes cannot hold so many."""
    count = reader.i32()
    if count > reader.remaining:  # every item has a byte at least
        raise MetadataCorrupt(
            f"{reader.where}: a vector of {count} items in {reader.remaining} bytes", where=reader.where
        )
    return max(count, 0)


def read_buffer(reader: Reader) -> bytes:
    """Return the bytes of a buffer, none for null."""
    length = reader.i32()
    return bytes(reader.take(length)) if length > 0 else b""


def read_text(reader: Reader) -> str:
    """Return a string; raises MetadataCorrupt if it is not UTF-8."""
    try:
        return read_buffer(reader).decode()
    except UnicodeDecodeError as error:
        raise MetadataCorrupt(f"{reader.where}: a path that is not UTF-8", where=reader.where) from error


def skip_acls(reader: Reader) -> None:
    """Pass over a vector of ACLs."""
    for _ in range(read_count(reader)):
        reader.take(4)
        read_buffer(reader)
        read_buffer(reader)
