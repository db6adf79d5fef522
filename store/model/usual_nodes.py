"""Nodes of which there is nothing to say: topics, cursors and ledgers that can be read and have nothing of a newer version.

Of the millions that a store may have nearly all are such. This tells them at a fifth of the cost of their decoders, which it agrees with;
what it is in doubt about is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from store.codec.cursor import is_usual_cursor
from store.codec.ledgermetadata import is_usual_ledger
from store.codec.managedledger import is_usual_managed_ledger
from store.db.environment import Txn
from store.db.tree import plain_value
from store.names import INT_MAX

_NODE = re.compile(
    rb"/(?:managed-ledgers/[\w.=:-]+/[\w.=:-]+/persistent/[A-Za-z0-9_.-]+(/[!-.0-~]+)?|ledgers/([0-9]{2})/([0-9]{4})/L([0-9]{4}))"
)
"""A topic whose name is encoded as it is, a cursor (group 1), or a ledger (groups 2 to 4)."""
_KEY_MAX_BYTES = 400
_KEPT_KEYS = 100_000


def is_usual(key: bytes, row: bytes) -> bool:
    """Whether the node with KEY and ROW of the tree has the name that leads to it, can be decoded, and says nothing unknown.

    Of a ledger only whether it can be parsed: the sweep of ledgers decodes them.
    """
    found = _NODE.fullmatch(key) if len(key) <= _KEY_MAX_BYTES else None
    value = plain_value(row)
    if found is None or not value:
        return False
    cursor, *digits = found.groups()
    if digits[0] is not None:
        return int(b"".join(digits)) < INT_MAX and is_usual_ledger(value)
    return is_usual_managed_ledger(value) if cursor is None else is_usual_cursor(value)


def iter_unusual(txn: Txn) -> Iterator[tuple[bytes, bytes]]:
    """Yield (key, row) of the nodes of the tree that are not usual, in order; a snapshot keeps which these are, if they are not many."""
    kept: list[bytes] | None = txn.memo.get(iter_unusual)
    if kept is not None:
        for key in kept:
            row = txn.get("tree", key)
            if row is not None:
                yield key, row
        return
    found: list[bytes] = []
    for key, row in txn.items("tree"):
        if not is_usual(key, row):
            if len(found) <= _KEPT_KEYS:
                found.append(key)
            yield key, row
    if txn.is_snapshot and len(found) <= _KEPT_KEYS:
        txn.memo[iter_unusual] = found
