"""The audit log as a chain: every row has the digest of the row before it, so that none can be changed, added or taken out alone.

Rows are those of ``store.changes.plan`` with one more member, ``previous``: the SHA-256 (hex) of the key and value before it.
``state`` has the number and digest of the last row. A store of before the chain gets it with its next change, whose ``previous``
is the digest of the digests of all rows there are. It proves what happened in what order against who edits rows, not against who
computes the whole chain anew: keep the head elsewhere for that.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from hashlib import sha256

from store.db.environment import Txn
from store.errors import IndexCorrupt, reason_of

CHAIN_HEAD = b"changes-head"
"""Key in ``state``: number u64 big-endian and digest of the last row."""


def next_link(txn: Txn) -> str:
    """Return what the next row says of the rows before it."""
    last = txn.last("changes")
    if last is not None and txn.get("state", CHAIN_HEAD) is not None:
        return _digest(*last).hex()
    return _sealed([_digest(key, row) for key, row in txn.items("changes")])


def put_link(txn: Txn, key: bytes, row: bytes) -> None:
    """Write the row, which is the last one now."""
    txn.put("changes", key, row)
    txn.put("state", CHAIN_HEAD, key + _digest(key, row))


def iter_breaks(txn: Txn) -> Iterator[tuple[int, str]]:
    """Yield (change number, what is wrong) where the audit log is not the chain that was written; raises IndexCorrupt."""
    digests: list[bytes] = []
    begun = False
    for key, row in txn.items("changes"):
        number = int.from_bytes(key, "big")
        if number != len(digests) + 1:
            yield len(digests) + 1, f"it is not there; the next one is change {number}"
            return
        found = _link_of(number, row)
        if found is not None or begun:
            expected = digests[-1].hex() if begun else _sealed(digests)
            begun = True
            if found != expected:
                yield number, "its link does not fit the records before it: one of them, or it, was changed"
        digests.append(_digest(key, row))
    head = txn.get("state", CHAIN_HEAD)
    if (begun or head is not None) and head != len(digests).to_bytes(8, "big") + (digests[-1] if digests else b""):
        yield len(digests), "it is not the last change that was written: later ones are gone, or it was changed"


def check_link(txn: Txn, key: bytes, row: bytes) -> None:
    """Raise IndexCorrupt unless what was written behind the row fits it; rows of before the chain are taken as they are."""
    number = int.from_bytes(key, "big")
    following = txn.get("changes", (number + 1).to_bytes(8, "big"))
    head = txn.get("state", CHAIN_HEAD)
    link = _link_of(number + 1, following) if following is not None else head and head[8:].hex()
    if _link_of(number, row) is not None and link != _digest(key, row).hex():
        raise IndexCorrupt(
            f"the audit record of change {number} is not the one that was written",
            hint="nothing is undone by it; see: pulsar-admin store check",
            change=number,
        )


def _link_of(number: int, row: bytes | memoryview) -> object:
    try:
        return json.loads(zlib.decompress(row)).get("previous")
    except (ValueError, AttributeError, zlib.error, RecursionError) as error:
        raise IndexCorrupt(
            f"the audit record of change {number} is damaged: {reason_of(error)}", hint="undo of that change is lost"
        ) from error


def _digest(key: bytes, row: bytes | memoryview) -> bytes:
    return sha256(key + row).digest()


def _sealed(digests: list[bytes]) -> str:
    return sha256(b"".join(digests)).hexdigest()
