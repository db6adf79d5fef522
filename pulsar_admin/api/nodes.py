"""Nodes of the metadata, decoded."""

from __future__ import annotations

from typing import Any

from pulsar_admin.api.session import Session
from pulsar_admin.jsonify import to_json
from pulsar_admin.store.codec.cursor import CursorInfo
from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata
from pulsar_admin.store.db.tree import Node, read_node
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.cursors import range_text, read_cursor
from pulsar_admin.store.model.ledger_owners import custom_text
from pulsar_admin.store.model.managed_nodes import managed_node
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.structures import decode_structure
from pulsar_admin.store.model.topics import read_topic


def decoded_node(session: Session, path: str) -> dict[str, Any]:  # Any: JSON
    """Return what ``Store.decoded`` returns."""
    with session.reader() as reader:
        node = read_node(reader.txn, path)
        structure, value = decode_structure(node.path, node.value)
        document = {
            "path": node.path,
            "version": node.stat.version,
            "created": node.stat.created_ms,
            "modified": node.stat.modified_ms,
            "bytes": len(node.value),
            "structure": structure,
            "value": _readable(value),
        }
        if structure == "ManagedCursorInfo":
            document["truth"] = _truth(session, reader, node)
        return document


def readable_node(path: str, value: bytes | None) -> dict[str, Any] | None:  # Any: JSON
    """Return what VALUE of the node at PATH is, decoded, with secrets hidden; in hexadecimal where it cannot be read; None for none."""
    from pulsar_admin.store.model.redaction import hide_secrets_in

    if value is None:
        return None
    try:
        structure, found = decode_structure(path, value)
    except StoreError as error:
        return {"structure": "unreadable", "error": error.message, "value": value.hex()}
    return {"structure": structure, "value": hide_secrets_in(_readable(found))}


def _readable(value: object) -> object:
    """Return VALUE as JSON with names for upstream's numbers, text for custom metadata, and short ranges."""
    document = to_json(value)
    if isinstance(value, LedgerMetadata):
        digest = None if value.digest_type is None else value.digest_type.name
        document |= {"state": value.state.name, "digestType": digest, "custom": custom_text(value)}
    elif isinstance(value, CursorInfo):
        document |= {
            "markDelete": None if value.mark_delete is None else str(value.mark_delete),
            "ranges": range_text(value.ranges),
        }
    return document


def _truth(session: Session, reader: EntryReader, node: Node) -> dict[str, Any] | None:  # Any: JSON
    """Return where the cursor really stands, or None (and a warning) when that cannot be read."""
    found = managed_node(node.path, node.value)
    assert found is not None
    assert found.cursor is not None
    if found.ledger is None:
        return None
    try:
        cursor = read_cursor(reader.txn, reader, read_topic(reader.txn, found.ledger), found.cursor)
    except StoreError as error:
        session.warn([f"the position of this cursor cannot be read: {error.message}"])
        return None
    return {
        "source": cursor.source,
        "markDeletePosition": str(cursor.mark_delete),
        **({} if cursor.ahead is None else {"storedMarkDeletePosition": str(cursor.ahead)}),
        "individuallyDeletedMessages": range_text(cursor.state.ranges),
        "batchDeletes": {str(position): list(words) for position, words in cursor.state.batch_deletes.items()},
        "properties": dict(cursor.state.properties),
        "skippedEntries": cursor.skipped_entries,
        "recoverableMarkDeletePosition": None if cursor.recoverable is None else str(cursor.recoverable.mark_delete),
    }
