"""The values that an export in place is about to write: a row of ``state`` until the store has recorded them as
written.

An export that is stopped in between leaves a target that does not show whether a broker or this toolkit wrote it.
"""

import json
from base64 import b64decode, b64encode

from pulsar_admin.store.codec.rocksvalue import decode_value
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import Node, encode_node, tree_key
from pulsar_admin.store.errors import IndexCorrupt, reason_of

Intent = dict[str, bytes | None]
"""Values of nodes as in RocksDB by path; None: deleted."""
_KEY = b"export-intent"
_ZXID_KEY = b"exported-zxid"


def put_intent(txn: Txn, values: Intent, sequence: int | None) -> None:
    """Record which values, and which sequence of ledger ids unless None, an export is about to write."""
    texts = {path: None if raw is None else b64encode(raw).decode() for path, raw in values.items()}
    txn.put("state", _KEY, json.dumps({"nodes": texts, "sequence": sequence}).encode())


def delete_intent(txn: Txn) -> None:
    """Delete the recorded intent, once the store has recorded the export as done."""
    txn.delete("state", _KEY)


def find_intent(txn: Txn) -> tuple[Intent, int | None]:
    """Return the values that an interrupted export was to write, and the sequence; raises IndexCorrupt."""
    row = txn.get("state", _KEY)
    if row is None:
        return {}, None
    try:
        fields = json.loads(row)
        values = {path: None if text is None else b64decode(text) for path, text in fields["nodes"].items()}
        return values, fields["sequence"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise IndexCorrupt(f"the row of what an export meant to write is damaged: {reason_of(error)}") from error


def intended_node(path: str, raw: bytes | None) -> Node | None:
    """Return the node in an intent's bytes, None: deleted."""
    return None if raw is None else Node(path, *decode_value(raw, path))


def intended_rows(txn: Txn) -> dict[bytes, bytes | None]:
    """Return the rows of ``tree`` that an import after an interrupted export would create; None: no row."""
    nodes = {path: intended_node(path, raw) for path, raw in find_intent(txn)[0].items()}
    return {tree_key(path): None if node is None else encode_node(node) for path, node in nodes.items()}


def put_exported_zxid(txn: Txn, zxid: int) -> None:
    """Store the transaction of an export into a live ensemble: metadata read before it lacks the changes."""
    txn.put("state", _ZXID_KEY, str(zxid).encode())


def find_exported_zxid(txn: Txn) -> int:
    """Return the transaction of the newest export into a live ensemble, 0 when there was none."""
    return int(txn.get("state", _ZXID_KEY) or 0)
