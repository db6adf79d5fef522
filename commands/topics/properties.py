"""Properties of topics and subscriptions, replicated subscriptions, and permissions, with upstream's command names."""

from typing import Any

from pulsar_admin.context import App, Printed, Result, Shown
from pulsar_admin.jsonify import dump_json
from pulsar_admin.store import errors
from pulsar_admin.store.codec.java import java_text
from pulsar_admin.store.names import TopicName
from pulsar_admin.upstream import mirrored

_PAIR = {"property": "A property, KEY=VALUE; may be repeated."}
_SUBSCRIPTION = {"subscription": "Its name."}
_CHANGES: Any = {"changes": True, "errors": [errors.TopicNotFound, errors.StalePlan]}  # Any: keywords of click
_OF_SUBSCRIPTION: Any = {"errors": [errors.TopicNotFound, errors.SubscriptionNotFound], "helps": _SUBSCRIPTION}


@mirrored(
    "topics get-properties",
    "acme/orders/parts-partition-0",
    output="`key    value`, one per line, as pulsar-admin prints them; nothing without properties.",
    errors=[errors.TopicNotFound],
)
def get(app: App, topic: TopicName) -> Shown:
    """Show the properties of a topic."""
    return Printed(app.topic(topic).properties(), as_map=str)


@mirrored("topics update-properties", "public/default/plain -p owner=billing", helps=_PAIR, **_CHANGES)
def update(app: App, topic: TopicName, property: dict[str, str]) -> None:
    """Set properties of a topic and keep the others."""
    app.change(app.topic(topic).set_properties(property))


@mirrored(
    "topics remove-properties",
    "public/default/plain -k owner",
    helps={"key": "The property's key; without it nothing is removed."},
    **_CHANGES,
)
def remove(app: App, topic: TopicName, key: str | None) -> None:
    """Remove one property of a topic."""
    app.change(app.topic(topic).remove_properties(*([] if key is None else [key])))


@mirrored(
    "topics get-subscription-properties",
    elsewhere=["public/default/plain -s half"],
    output="One line of JSON; for a partitioned topic the properties of all its partitions.",
    **_OF_SUBSCRIPTION,
)
def get_of_subscription(app: App, topic: TopicName, subscription: str) -> Result:
    """Show the properties of a subscription."""
    properties = app.topic(topic).cursor(subscription).properties()
    return Result(properties, plain=dump_json(properties, pretty=False) + "\n")


@mirrored(
    "topics update-subscription-properties",
    "public/default/plain -s half -p owner=billing",
    changes=True,
    errors=[errors.TopicNotFound, errors.SubscriptionNotFound, errors.InvalidValue, errors.StalePlan],
    helps={**_SUBSCRIPTION, **_PAIR, "clear": "Remove all properties."},
)
def update_of_subscription(
    app: App, topic: TopicName, subscription: str, property: dict[str, str], clear: bool
) -> None:
    """Set the properties of a subscription, replacing those it has."""
    if not property and not clear:
        raise errors.InvalidValue("If you want to clear the properties you have to use --clear")
    if property and clear:
        raise errors.InvalidValue("If you set --clear then you should not pass any properties")
    app.change(app.topic(topic).cursor(subscription).set_properties(property))


@mirrored(
    "topics get-replicated-subscription-status",
    "public/default/plain -s half",
    output="`topic    true` or `false`, one line per partition.",
    **_OF_SUBSCRIPTION,
)
def get_replicated(app: App, topic: TopicName, subscription: str) -> Shown:
    """Show whether clusters share the position of a subscription."""
    statuses = app.topic(topic).cursor(subscription).replicated()
    return Printed({name: str(value).lower() for name, value in statuses.items()}, as_map=str)


@mirrored(
    "topics set-replicated-subscription-status",
    "public/default/plain -s half --enable",
    changes=True,
    errors=[errors.TopicNotFound, errors.SubscriptionNotFound, errors.InvalidValue, errors.StalePlan],
    helps={**_SUBSCRIPTION, "enable": "Clusters share its position.", "disable": "They do not."},
)
def set_replicated(app: App, topic: TopicName, subscription: str, enable: bool, disable: bool) -> None:
    """Set whether clusters share the position of a subscription."""
    if enable == disable:
        raise errors.InvalidValue("Need to specify either --enable or --disable")
    app.change(app.topic(topic).cursor(subscription).set_replicated(enable))


_HELPS = {
    "role": "The role.",
    "actions": "The new permissions, which replace the present ones: produce, consume, functions, sources, sinks, packages.",
}
_SETS: Any = {  # Any: keywords of click
    "changes": True,
    "helps": _HELPS,
    "errors": [errors.TopicNotFound, errors.NamespaceNotFound, errors.InvalidValue],
}


@mirrored(
    "topics permissions",
    elsewhere=["acme/orders/compacted"],
    errors=[errors.TopicNotFound, errors.NamespaceNotFound, errors.MetadataCorrupt],
)
def permissions(app: App, topic: TopicName) -> Shown:
    """Show the permissions of roles on a topic: its own, and those of its namespace."""
    return Printed(app.topic(topic).permissions(), as_map=java_text)


@mirrored("topics grant-permission", "acme/orders/compacted --role app --actions consume --dry-run", **_SETS)
def grant(app: App, topic: TopicName, role: str, actions: tuple[str, ...]) -> None:
    """Grant a role permissions on a topic, replacing those it had on the topic."""
    app.change(app.topic(topic).grant_permission(role, actions))


@mirrored("topics revoke-permission", "acme/orders/compacted --role app --dry-run", **_SETS)
def revoke(app: App, topic: TopicName, role: str) -> None:
    """Revoke a role's permissions on a topic; those on the namespace are kept."""
    app.change(app.topic(topic).revoke_permission(role))
