"""``topics permissions``, ``grant-permission`` and ``revoke-permission``: they stand in the policies of the namespace."""

from __future__ import annotations

from typing import Any

from pulsar_admin.context import App
from pulsar_admin.store.codec.java import java_text
from pulsar_admin.store.errors import InvalidValue, MetadataCorrupt, NamespaceNotFound, TopicNotFound
from pulsar_admin.store.names import TopicName
from pulsar_admin.upstream import mirrored

_HELPS = {
    "role": "The role.",
    "actions": "What it may do in place of what it might: produce, consume, functions, sources, sinks, packages.",
}
_SETS: Any = {  # Any: keywords of click
    "changes": True,
    "helps": _HELPS,
    "errors": [TopicNotFound, NamespaceNotFound, InvalidValue],
}


@mirrored(
    "topics permissions",
    examples=[],
    elsewhere=["pulsar-admin topics permissions acme/orders/compacted"],
    errors=[TopicNotFound, NamespaceNotFound, MetadataCorrupt],
)
def permissions(app: App, topic: TopicName) -> None:
    """Show the permissions of roles on a topic: its own, and those of its namespace."""
    app.answer_map(app.session.topic(topic).permissions(), java_text)


@mirrored(
    "topics grant-permission",
    examples=["pulsar-admin topics grant-permission acme/orders/compacted --role app --actions consume --dry-run"],
    **_SETS,
)
def grant(app: App, topic: TopicName, role: str, actions: tuple[str, ...]) -> None:
    """Grant a role permissions on a topic, replacing those it had on the topic."""
    app.change(app.session.topic(topic).grant_permission(role, actions))


@mirrored(
    "topics revoke-permission",
    examples=["pulsar-admin topics revoke-permission acme/orders/compacted --role app --dry-run"],
    **_SETS,
)
def revoke(app: App, topic: TopicName, role: str) -> None:
    """Revoke a role's permissions on a topic; those on the namespace are kept."""
    app.change(app.session.topic(topic).revoke_permission(role))
