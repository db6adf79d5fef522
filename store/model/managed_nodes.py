"""What a node below ``/managed-ledgers`` is, decided here alone: for topics of this version, and for what a newer one keeps there.

Persistent topics and their cursors are known by their paths. Pulsar 5.0 keeps the segments of scalable topics beside them
(``T/NS/segment/TOPIC/RANGE-ID``), and a later one may have other domains of any depth: there a value that decodes says what it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pulsar_admin.store.codec.cursor import decode_cursor_head
from pulsar_admin.store.codec.managedledger import decode_ledger_ids
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node, iter_children, iter_values
from pulsar_admin.store.errors import MetadataCorrupt, StoreError
from pulsar_admin.store.names import (
    MANAGED_LEDGERS,
    PERSISTENT,
    NamespaceName,
    TopicName,
    decode_name,
    managed_ledger_of_path,
    topic_of_path,
)

_SCALABLE = "/topics"


class ManagedNode(NamedTuple):
    """A managed ledger (``cursor`` None), or one of its cursors by its name in clear.

    ``ledger``: its name where its path has the parts of one; ``text``: the name as it is shown, else the path.
    """

    ledger: TopicName | None
    cursor: str | None
    text: str

    @property
    def is_topic(self) -> bool:
        """Whether it is of a persistent topic, which this version reads."""
        return self.ledger is not None and self.ledger.domain == PERSISTENT


def managed_node(path: str, value: bytes) -> ManagedNode | None:
    """Return what the node at PATH with VALUE is, None where it is neither a managed ledger nor a cursor.

    Of domains other than ``persistent`` a value without its cursor ledger's id, which every ManagedCursorInfo has, is a ManagedLedgerInfo;
    nodes without a value are there for those below them. Raises what the decoders raise for a value of another domain that is neither.
    """
    if not path.startswith(f"{MANAGED_LEDGERS}/"):
        return None
    parent, _, component = path.rpartition("/")
    topic = topic_of_path(path)
    if topic is not None:
        return ManagedNode(topic, None, str(topic))
    topic = topic_of_path(parent)
    if topic is not None:
        return ManagedNode(topic, decode_name(component), str(topic))
    if not value:
        return None
    if is_cursor(value, path):
        return _other(parent, decode_name(component))
    decode_ledger_ids(value, path)
    return _other(path, None)


def _other(path: str, cursor: str | None) -> ManagedNode:
    name = managed_ledger_of_path(path)
    return ManagedNode(name, cursor, str(name) if name is not None else path)


def is_cursor(value: bytes, path: str) -> bool:
    """Whether VALUE is a ManagedCursorInfo."""
    try:
        decode_cursor_head(value, path)
    except MetadataCorrupt:
        return False
    return True


def iter_other_nodes(txn: Txn, namespace: NamespaceName | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield (path, value) of the nodes of domains other than ``persistent``, of NAMESPACE or of all; one seek where there are none."""
    spaces = _namespace_roots(txn) if namespace is None else (f"{MANAGED_LEDGERS}/{namespace}",)
    for space in spaces:
        for domain in iter_children(txn, space):
            if domain != PERSISTENT:
                node = find_node(txn, f"{space}/{domain}")
                if node is not None:
                    yield node.path, node.value
                yield from iter_values(txn, f"{space}/{domain}/")


def _namespace_roots(txn: Txn) -> Iterator[str]:
    for tenant in iter_children(txn, MANAGED_LEDGERS):
        for name in iter_children(txn, f"{MANAGED_LEDGERS}/{tenant}"):
            yield f"{MANAGED_LEDGERS}/{tenant}/{name}"


def iter_other_ledgers(txn: Txn, namespace: NamespaceName | None = None) -> Iterator[TopicName]:
    """Yield the names of the managed ledgers that are no persistent topics, by path; what is neither one nor a cursor is left out."""
    for path, value in iter_other_nodes(txn, namespace):
        try:
            node = managed_node(path, value)
        except StoreError:
            continue
        if node is not None and node.cursor is None and node.ledger is not None and not node.is_topic:
            yield node.ledger


def other_path(txn: Txn, base: TopicName) -> str:
    """Return the node of a topic of a newer Pulsar that has the name of BASE and so its schema, too, "" where there is none.

    Upstream 5.0.1: a scalable topic has a node in ``/topics`` and its segments below their domain, also after a migration from BASE.
    """
    space, component = f"{MANAGED_LEDGERS}/{base.namespace}", base.path.rpartition("/")[2]
    domains = (f"{space}/{domain}" for domain in iter_children(txn, space) if domain != PERSISTENT)
    for path in (f"{root}/{component}" for root in (f"{_SCALABLE}/{base.namespace}", *domains)):
        if find_node(txn, path) is not None or next(iter_children(txn, path), None) is not None:
            return path
    return ""


def iter_other_cursors(txn: Txn, ledger: TopicName) -> Iterator[str]:
    """Yield the cursors of the managed LEDGER of another domain, in clear; what else lies below it may be anything."""
    for component in iter_children(txn, ledger.path):
        node = find_node(txn, f"{ledger.path}/{component}")
        if node is not None and node.value and is_cursor(node.value, node.path):
            yield decode_name(component)
