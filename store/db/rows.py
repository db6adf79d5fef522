"""The digest of a row, the CRC-32C of its key and value, and errors for rows with a wrong one.  Format:
docs/formats/store.md.

A flipped bit in a row would otherwise give an answer that looks as certain as any other. The digest follows the value, so that
a view of the value is a slice. Its bytes are little-endian: the CRC-32C of anything that ends with its own is always the same, and
one call proves a row.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import google_crc32c

from pulsar_admin.store.db.backups import keep_hint
from pulsar_admin.store.errors import IndexCorrupt

crc32c: Callable[[bytes], int] = google_crc32c.value
"""Takes bytes only: a key and a view of a value are bytes once they are added."""
DIGEST_BYTES = 4
WHOLE = 0x48674BC7
"""The CRC-32C of any bytes that end with their own CRC-32C, little-endian."""
NAME_ENDING = ".crc32c"
"""What LMDB's name of a database ends with whose rows have digests: stores of format 1 have ``tree`` for ``tree.crc32c``."""
DERIVED = ("entries", "times", "copies", "owners")
"""The databases that ``store index --rebuild`` derives anew."""

_NUMBERED = {
    "entries": ("ledger {}, block {}", struct.Struct(">qq")),
    "times": ("ledger {}", struct.Struct(">q")),
    "owners": ("ledger {}", struct.Struct(">q")),
    "copies": ("ledger {}, file {}", struct.Struct(">qI")),
    "logs": ("file {}", struct.Struct(">I")),
    "damage": ("file {}, offset {}", struct.Struct(">IQ")),
    "changes": ("change {}", struct.Struct(">Q")),
}


def sealed(key: bytes, value: bytes) -> bytes:
    """Return a value with the digest of its row."""
    return value + crc32c(key + value).to_bytes(DIGEST_BYTES, "little")


def side_by_side(
    left: Iterator[tuple[bytes, bytes]], right: Iterator[tuple[bytes, bytes]]
) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """Yield (key, value of ``left``, value of ``right``), both in the order of keys; None where one has no such key."""
    one, other = next(left, None), next(right, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one[0] < other[0]):
            assert one is not None
            yield *one, None
            one = next(left, None)
        elif one is None or other[0] < one[0]:
            yield other[0], None, other[1]
            other = next(right, None)
        else:
            yield *one, other[1]
            one, other = next(left, None), next(right, None)


def altered_row(path: Path, database: str, key: bytes, what: str = "its digest does not fit") -> IndexCorrupt:
    """Return the error for a row whose key or value is not what was written."""
    return IndexCorrupt(
        f"the row {name_of_row(database, key)} of database {database} in {path} was altered: {what}",
        hint=cure_of(path, database, [key]),
        path=str(path),
        database=database,
        key=key.hex(),
    )


def cure_of(path: Path, database: str, keys: Sequence[bytes] = ()) -> str:
    """Return the hint on how to repair a database whose rows at ``keys`` were altered."""
    if database == "state" and [*keys] == [b"bookies"]:
        return "write it again with: pulsar-admin store refresh"
    if database in DERIVED:
        return "rebuild the index with: pulsar-admin store index --rebuild"
    if database == "tree":
        return (
            "read it from the source again with: pulsar-admin store refresh; if the source is gone or the node was changed in the store, "
            + keep_hint(path)
        )
    return keep_hint(path)


def name_of_row(database: str, key: bytes) -> str:
    """Return a readable name of a row, from its key."""
    text, numbers = _NUMBERED.get(database, ("", None))
    if numbers is not None and len(key) == numbers.size:
        return f"({text.format(*numbers.unpack(key))})"
    return repr(key.decode("utf-8", "backslashreplace")) if numbers is None else key.hex()
