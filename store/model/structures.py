"""What a metadata node's value is, by its path, decoded: for showing it and for checking that it can be read."""

from __future__ import annotations

from collections.abc import Callable

from pulsar_admin.store.codec.bookie import decode_cookie
from pulsar_admin.store.codec.cursor import decode_cursor_info
from pulsar_admin.store.codec.ledgermetadata import decode_ledger_metadata, ledger_id_of_path
from pulsar_admin.store.codec.managedledger import decode_managed_ledger
from pulsar_admin.store.codec.policies import decode_json_object
from pulsar_admin.store.codec.schema import decode_schema_locator
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.managed_nodes import managed_node
from pulsar_admin.store.names import TopicName, decode_name, topic_of_path

Decode = Callable[[bytes, str], object]

_MANAGED_LEDGER: tuple[str, Decode] = ("ManagedLedgerInfo", decode_managed_ledger)
_CURSOR: tuple[str, Decode] = ("ManagedCursorInfo", decode_cursor_info)

_BY_PREFIX: tuple[tuple[str, int, str, Decode], ...] = (
    ("/ledgers/cookies/", 1, "Cookie", lambda value, where: decode_cookie(value, where)),
    ("/schemas/", 3, "SchemaLocator", decode_schema_locator),
    ("/admin/partitioned-topics/", 4, "PartitionedTopicMetadata", decode_json_object),
    ("/admin/policies/", 1, "Policies", decode_json_object),
    ("/admin/local-policies/", 2, "LocalPolicies", decode_json_object),
    ("/admin/clusters/", 1, "ClusterData", decode_json_object),
)
"""Prefix, how many names come behind it at least, and what lies there: nodes above hold nothing in ZooKeeper."""


def structure_of(path: str, value: bytes = b"") -> tuple[str, Decode] | None:
    """Return (upstream's name, decoder) of the value at the metadata PATH, or None where nothing is known.

    VALUE: what lies there, which tells managed ledgers from cursors in domains of a newer Pulsar.
    """
    try:
        managed = managed_node(path, value)
    except StoreError:
        return None
    if managed is not None:
        return _MANAGED_LEDGER if managed.cursor is None else _CURSOR
    if ledger_id_of_path(path) is not None:
        return "LedgerMetadata", decode_ledger_metadata
    for prefix, depth, name, decode in _BY_PREFIX:
        if path.startswith(prefix) and path.count("/", len(prefix)) >= depth - 1:
            is_tenant = name == "Policies" and path.count("/") == 3
            return ("TenantInfo" if is_tenant else name), decode
    return None


def cursor_of_path(path: str) -> tuple[TopicName, str] | None:
    """Return (topic, cursor in clear) of the ManagedCursorInfo at PATH, or None for any other path."""
    parent, _, component = path.rpartition("/")
    topic = topic_of_path(parent)
    return None if topic is None else (topic, decode_name(component))


def decode_structure(path: str, value: bytes) -> tuple[str, object]:
    """Return (name, decoded value) of the node at PATH.

    Other values are ("empty", None), ("JSON", object), ("text", str) or ("binary", bytes). Raises what the decoder raises.
    """
    known = structure_of(path, value)
    if known is not None:
        name, decode = known
        return name, decode(value, path)
    return _guess(value)


def _guess(value: bytes) -> tuple[str, object]:
    import json

    if not value:
        return "empty", None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "binary", value
    try:
        return "JSON", json.loads(text)
    except (ValueError, RecursionError):
        return ("text", text) if text.isprintable() or "\n" in text else ("binary", value)
