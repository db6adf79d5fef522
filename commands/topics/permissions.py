"""``topics permissions``, ``grant-permission`` and ``revoke-permission``: they stand in the policies of the namespace."""

from __future__ import annotations

from typing import Any

from pulsar_admin.context import App
from pulsar_admin.upstream import mirrored
from store.changes.namespace_json import Grant, check_actions, plan_topic_permission, read_permissions
from store.codec.java import java_text
from store.db.environment import Txn
from store.db.tree import find_node
from store.errors import InvalidValue, MetadataCorrupt, NamespaceNotFound, TopicNotFound
from store.model.bundles import read_policies
from store.names import TopicName

_HELPS = {
    "role": "The role.",
    "actions": "What it may do in place of what it might: produce, consume, functions, sources, sinks, packages.",
}
_SETS: Any = {  # Any: keywords of click
    "changes": True,
    "writes_first": True,
    "helps": _HELPS,
    "errors": [TopicNotFound, NamespaceNotFound, InvalidValue],
}


def _check(txn: Txn, topic: TopicName) -> None:
    if find_node(txn, topic.path) is None and find_node(txn, topic.partitioned_path) is None:
        raise TopicNotFound(f"Topic {topic} not found", topic=str(topic))


@mirrored(
    "topics permissions",
    examples=[],
    elsewhere=["pulsar-admin topics permissions acme/orders/compacted"],
    errors=[TopicNotFound, NamespaceNotFound, MetadataCorrupt],
)
def permissions(app: App, topic: TopicName) -> None:
    """Show the permissions of roles on a topic: its own, and those of its namespace."""
    with app.session.read() as txn:
        _check(txn, topic)
        app.answer_map(read_permissions(read_policies(txn, topic.namespace), topic), java_text)


def _grant(app: App, command: str, topic: TopicName, grant: Grant) -> None:
    with app.session.read() as txn:
        _check(txn, topic)
        plan = plan_topic_permission(txn, command, topic, grant, app.now_ms)
    app.change(plan)


@mirrored(
    "topics grant-permission",
    examples=["pulsar-admin topics grant-permission acme/orders/compacted --role app --actions consume --dry-run"],
    **_SETS,
)
def grant(app: App, topic: TopicName, role: str, actions: tuple[str, ...]) -> None:
    """Grant a role permissions on a topic, replacing those it had on the topic."""
    _grant(app, "topics grant-permission", topic, Grant(role, check_actions(actions)))


@mirrored(
    "topics revoke-permission",
    examples=["pulsar-admin topics revoke-permission acme/orders/compacted --role app --dry-run"],
    **_SETS,
)
def revoke(app: App, topic: TopicName, role: str) -> None:
    """Revoke a role's permissions on a topic; those on the namespace are kept."""
    _grant(app, "topics revoke-permission", topic, Grant(role))
