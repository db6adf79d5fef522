"""``namespaces``: creating and deleting them, their topics, cursors and stored data; ``commands.policies`` has the policies."""

from collections.abc import Iterator
from typing import Any

import click

from pulsar_admin.context import App, Lines, Printed, Result, Shown
from pulsar_admin.options import NAMESPACE, ParsedType, command, flag
from pulsar_admin.store import errors
from pulsar_admin.store.changes.policies import shown_policies
from pulsar_admin.store.codec.java import java_split, java_text
from pulsar_admin.store.db.delayed_rules import parse_width_ms
from pulsar_admin.store.names import NamespaceName
from pulsar_admin.upstream import mirrored, parse_pairs


@command(
    "namespaces list",
    examples=["acme", "public -o json", ""],
    output="Names, one per line.",
    errors=[errors.NamespaceNotFound],
)
@click.argument("tenant", required=False)
def list_namespaces(app: App, tenant: str | None) -> Shown:
    """List the namespaces of a tenant, or all namespaces."""
    return Printed(app.api.namespaces(tenant))


@command(
    "namespaces topics",
    aliases=["destinations"],
    examples=["acme/iot", "acme/orders -ist"],
    output="Names, one per line; a partitioned topic as its partitions.",
    errors=[errors.NamespaceNotFound],
)
@click.argument("namespace", type=NAMESPACE)
@click.option(
    "-m",
    "--mode",
    type=click.Choice(["persistent", "non_persistent", "all"], case_sensitive=False),
    default="all",
    help="Only this domain; nothing of a non-persistent topic is on disk.",
)
@flag("-ist", "--include-system-topic", help="Also system topics.")
def topics(app: App, namespace: NamespaceName, mode: str, include_system_topic: bool) -> Shown:
    """List the topics of a namespace."""
    names = app.namespace(namespace).topics(system=include_system_topic)
    return Lines(names if mode != "non_persistent" else (), "TOPIC")


@command(
    "namespaces policies",
    examples=["acme/delayed"],
    output=(
        "The policies with all their keys, and the bundles where they were split. Missing values come from the "
        "broker's configuration; of these, only the default of is_allow_auto_update_schema is shown, as by "
        "pulsar-admin."
    ),
    errors=[errors.NamespaceNotFound, errors.MetadataCorrupt],
)
@click.argument("namespace", type=NAMESPACE)
def policies(app: App, namespace: NamespaceName) -> Result:
    """Show the policies of a namespace as they are stored."""
    with app.session.read() as txn:
        return Result(shown_policies(txn, namespace))


_BUNDLE_OPTION = click.option("-b", "--bundle", metavar="0xLOW_0xHIGH", help="Only topics in this bundle.")


@command(
    "namespaces clear-backlog",
    changes=True,
    examples=["public/default --dry-run", "public/default -s expire-me"],
    output="One change: every subscription before and after, the skipped messages, and the undo command.",
    errors=[errors.NamespaceNotFound, errors.SubscriptionNotFound, errors.Refused, errors.StalePlan],
)
@click.argument("namespace", type=NAMESPACE)
@click.option("-s", "--sub", "subscription", help="Only this subscription.")
@_BUNDLE_OPTION
@flag("-force", "--force", help="Accepted for scripts: no question is asked, because the change can be undone.")
def clear_backlog(
    app: App, namespace: NamespaceName, subscription: str | None, bundle: str | None, force: bool
) -> None:
    """Skip the whole backlog of a namespace's subscriptions.

    System topics and the cursors of compaction and deduplication are not changed.
    """
    app.change(app.namespace(namespace).clear_backlog(subscription, bundle=bundle))


@command(
    "namespaces unsubscribe",
    changes=True,
    examples=["public/default -s expire-me"],
    output="One change: the subscription's position in every topic, its backlog, and the undo command.",
    errors=[errors.NamespaceNotFound, errors.SubscriptionNotFound, errors.Refused, errors.StalePlan],
)
@click.argument("namespace", type=NAMESPACE)
@click.option("-s", "--sub", "subscription", required=True, help="The subscription.")
@_BUNDLE_OPTION
def unsubscribe(app: App, namespace: NamespaceName, subscription: str, bundle: str | None) -> None:
    """Remove a subscription from every topic of a namespace that has it.

    Undo restores all of them.
    """
    app.change(app.namespace(namespace).unsubscribe(subscription, bundle=bundle))


WIDTH = ParsedType("width", parse_width_ms, "WIDTH")
_CHANGE = "The change: both parts of the policy before and after, times in ms, warnings, and the undo command."


@command(
    "namespaces enable-delayed-message",
    changes=True,
    examples=["acme/delayed -p 5m -t 2s --dry-run", "public/default"],
    output=_CHANGE,
    errors=[errors.NamespaceNotFound, errors.InvalidValue, errors.Refused, errors.MetadataCorrupt, errors.StalePlan],
)
@click.argument("namespace", type=NAMESPACE)
@click.option(
    "-p",
    "--time-partition-granularity",
    "granularity_ms",
    type=WIDTH,
    default="5m",
    show_default=True,
    help="Width of a partition of the index by due time: 30s, 5m, 1h, 3d, 2w. May grow, never shrink.",
)
@click.option(
    "-t",
    "--tick-duration",
    "tick_ms",
    type=WIDTH,
    help=(
        "Width of a tick of the time wheel: 500ms, 1s, 5m; at most the granularity [1s; longer if there would be too "
        "many ticks]."
    ),
)
@flag("--split", help="Allow a finer granularity: index partitions are divided again.")
def enable_delayed_message(
    app: App, namespace: NamespaceName, granularity_ms: int, tick_ms: int | None, split: bool
) -> None:
    """Enable delayed messages for all topics of a namespace.

    Also sets Pulsar's own policy (active, tickTime) and keeps its maximum delay. Warns of a TTL or backlog quota that
    would drop messages before they are due.
    """
    app.change(app.namespace(namespace).enable_delayed(granularity_ms, tick_ms, split=split))


@command(
    "namespaces disable-delayed-message",
    changes=True,
    examples=["acme/delayed --dry-run"],
    output=_CHANGE,
    errors=[errors.NamespaceNotFound, errors.MetadataCorrupt, errors.StalePlan],
)
@click.argument("namespace", type=NAMESPACE)
def disable_delayed_message(app: App, namespace: NamespaceName) -> None:
    """Disable delayed messages for all topics of a namespace: a broker delivers everything at once."""
    app.change(app.namespace(namespace).disable_delayed())


_HELPS = {
    "clusters": "Clusters, separated by commas; without them the one that the store is of.",
    "force": "Also the topics in it; a broker needs forceDeleteNamespaceAllowed for that.",
    "bundles": "How many bundles; 0: four.",
    "bundle": "The bundle, LOWER_UPPER, such as 0x00000000_0x40000000.",
    "bundle_type": "LARGEST: the bundle with most topics.",
    "unload": "Accepted: brokers load the new bundles when they start.",
    "split_algorithm_name": "range_equally_divide (the default), topic_count_equally_divide or specified_positions_divide.",
    "split_boundaries": "Where specified_positions_divide splits; may be repeated.",
    "topic_list": "Only this topic, or its partitions; may be repeated.",
    "properties": "KEY=VALUE; may be repeated.",
    "key": "Name of the property.",
    "value": "Value of the property.",
    "role": "The role.",
    "roles": "The new roles, separated by commas, which replace the present ones.",
    "actions": "The new permissions, which replace the present ones: produce, consume, functions, sources, sinks, packages.",
    "subscription": "The subscription.",
    "group": "The anti-affinity group.",
    "tenant": "The tenant of the namespaces.",
    "cluster": "The cluster that the store is of.",
    "primary_group": "Groups of bookies that keep its data, separated by commas.",
    "secondary_group": "Groups to use if the primary ones are too small, separated by commas.",
    "migrated": "It is migrated; without this it is not.",
}
_READS: Any = {"helps": _HELPS, "errors": [errors.NamespaceNotFound, errors.MetadataCorrupt]}  # Any: keywords of click
_CHANGES: Any = {"helps": _HELPS, "changes": True}
_SETS: Any = {**_CHANGES, "errors": [errors.NamespaceNotFound, errors.InvalidValue, errors.MetadataCorrupt]}
_PERMISSION: Any = {**_CHANGES, "errors": [errors.NamespaceNotFound, errors.InvalidValue, errors.ResourceNotFound]}


# -- made, and their bundles ------------------------------------------------------------------------------------------


@mirrored(
    "namespaces create",
    "acme/new --bundles 8 --dry-run",
    errors=[errors.NamespaceNotFound, errors.AlreadyExists, errors.Refused, errors.InvalidValue],
    **_CHANGES,
)
def create(app: App, namespace: NamespaceName, clusters: tuple[str, ...], bundles: int) -> None:
    """Create a namespace."""
    app.change(app.api.create_namespace(str(namespace), clusters=clusters, bundles=bundles))


@mirrored(
    "namespaces list-cluster",
    elsewhere=["acme/standalone"],
    output="Names, one per line.",
    errors=[errors.InvalidValue, errors.ResourceNotFound],
    hidden=True,
)
def list_cluster(app: App, params: str) -> Shown:
    """List the namespaces of TENANT/CLUSTER that have a cluster in their name."""
    tenant, slash, cluster = params.partition("/")
    if not slash or "/" in cluster:
        raise errors.InvalidValue("Parameter format is incorrect", hint="write TENANT/CLUSTER", value=params)
    return Printed(app.resources.cluster(cluster).namespaces(tenant))


@mirrored(
    "namespaces delete", "acme/iot --force --dry-run", errors=[errors.NamespaceNotFound, errors.Refused], **_CHANGES
)
def delete(app: App, namespace: NamespaceName, force: bool) -> None:
    """Delete a namespace without topics; with --force also its topics, subscriptions, ledgers and schemas.

    Undo restores all of it until it is exported.
    """
    app.change(app.api.delete_namespace(str(namespace), force=force))


@mirrored("namespaces bundles", "acme/iot", **_READS)
def show_bundles(app: App, namespace: NamespaceName) -> Shown:
    """Show the bounds of a namespace's bundles."""
    return Printed(app.namespace(namespace).bundles())


@mirrored(
    "namespaces split-bundle",
    "acme/iot --bundle-type LARGEST --dry-run",
    errors=[errors.NamespaceNotFound, errors.InvalidValue, errors.NeedsBroker],
    **_CHANGES,
)
def split_bundle(
    app: App,
    namespace: NamespaceName,
    bundle: str | None,
    bundle_type: str | None,
    unload: bool,
    split_algorithm_name: str | None,
    split_boundaries: tuple[str, ...],
) -> None:
    """Split a bundle of a namespace."""
    plan = app.namespace(namespace).split_bundle(
        bundle,
        bundle_type=bundle_type,
        algorithm=split_algorithm_name or "range_equally_divide",
        boundaries=_numbers(split_boundaries),
    )
    app.change(plan)


def _numbers(texts: tuple[str, ...]) -> Iterator[int]:
    try:
        yield from map(int, texts)
    except ValueError as error:
        raise errors.InvalidValue(
            f"--split-boundaries: {', '.join(texts)} is not a long", hint="write decimal numbers"
        ) from error


@mirrored("namespaces get-topic-positions", "acme/iot --bundle 0x00000000_0xffffffff", **_READS)
def get_topic_positions(app: App, namespace: NamespaceName, bundle: str | None, topic_list: tuple[str, ...]) -> Shown:
    """Show the hashes of the persistent topics in a bundle."""
    if bundle is None:
        raise errors.InvalidValue("Must pass one of the params: --bundle ")
    return Printed(app.namespace(namespace).topic_hashes(bundle, topic_list))


# -- properties -------------------------------------------------------------------------------------------------------


@mirrored("namespaces get-properties", "acme/iot", **_READS)
def get_properties(app: App, namespace: NamespaceName) -> Shown:
    """Show the properties of a namespace."""
    return Printed(app.namespace(namespace).properties())


@mirrored("namespaces get-property", elsewhere=["acme/iot -k owner"], **_READS)
def get_property(app: App, namespace: NamespaceName, key: str) -> Shown:
    """Show a property of a namespace, null if it does not exist."""
    return Printed(app.namespace(namespace).properties().get(key))


@mirrored("namespaces set-property", "acme/iot -k owner -v ops --dry-run", **_SETS)
def set_property(app: App, namespace: NamespaceName, key: str, value: str) -> None:
    """Set a property of a namespace."""
    if not key or not value:
        raise errors.InvalidValue("--key, --value: neither may be empty", hint="set-properties takes an empty value")
    app.change(app.namespace(namespace).set_property(key, value))


@mirrored("namespaces set-properties", "acme/iot -p owner=ops --dry-run", **_SETS)
def set_properties(app: App, namespace: NamespaceName, properties: tuple[str, ...]) -> None:
    """Set properties of a namespace and keep the others."""
    app.change(app.namespace(namespace).set_properties(parse_pairs(properties)))


@mirrored(
    "namespaces remove-property",
    elsewhere=["acme/iot -k owner"],
    **{**_SETS, "output": "The value that it had, or null."},
)
def remove_property(app: App, namespace: NamespaceName, key: str) -> Shown:
    """Remove a property of a namespace."""
    value = app.namespace(namespace).properties().get(key)
    app.change(app.namespace(namespace).remove_property(key))
    return Printed(value, of_change=True)


@mirrored("namespaces clear-properties", "acme/iot --dry-run", **_SETS)
def clear_properties(app: App, namespace: NamespaceName) -> None:
    """Remove all properties of a namespace."""
    app.change(app.namespace(namespace).clear_properties())


# -- permissions ------------------------------------------------------------------------------------------------------


@mirrored("namespaces permissions", elsewhere=["acme/iot"], **_READS)
def permissions(app: App, namespace: NamespaceName) -> Shown:
    """Show the permissions of roles on a namespace."""
    return Printed(app.namespace(namespace).permissions(), as_map=java_text)


@mirrored("namespaces grant-permission", "acme/iot --role app --actions produce,consume --dry-run", **_PERMISSION)
def grant_permission(app: App, namespace: NamespaceName, role: str, actions: tuple[str, ...]) -> None:
    """Grant a role permissions on a namespace, replacing those it had."""
    app.change(app.namespace(namespace).grant_permission(role, actions))


@mirrored("namespaces revoke-permission", "acme/iot --role app --dry-run", **_PERMISSION)
def revoke_permission(app: App, namespace: NamespaceName, role: str) -> None:
    """Revoke a role's permissions on a namespace."""
    app.change(app.namespace(namespace).revoke_permission(role))


@mirrored("namespaces subscription-permission", elsewhere=["acme/iot"], **_READS)
def subscription_permission(app: App, namespace: NamespaceName) -> Shown:
    """Show the roles of each subscription that is restricted to some roles."""
    return Printed(app.namespace(namespace).subscription_permissions(), as_map=java_text)


@mirrored("namespaces grant-subscription-permission", "acme/iot -s workers --roles app --dry-run", **_PERMISSION)
def grant_subscription_permission(
    app: App, namespace: NamespaceName, subscription: str, roles: tuple[str, ...]
) -> None:
    """Restrict a subscription name in a namespace to some roles."""
    app.change(app.namespace(namespace).grant_subscription_permission(subscription, roles))


@mirrored("namespaces revoke-subscription-permission", elsewhere=["acme/iot -s workers --role app"], **_PERMISSION)
def revoke_subscription_permission(app: App, namespace: NamespaceName, subscription: str, role: str) -> None:
    """Revoke a role's access to a subscription; without roles, all may use it."""
    app.change(app.namespace(namespace).revoke_subscription_permission(subscription, role))


# -- clusters ---------------------------------------------------------------------------------------------------------


@mirrored("namespaces get-allowed-clusters", elsewhere=["acme/iot"], **_READS)
def get_allowed_clusters(app: App, namespace: NamespaceName) -> Shown:
    """List the clusters that a namespace may replicate to; an empty list means those of its tenant."""
    return Printed(app.namespace(namespace).allowed_clusters())


@mirrored(
    "namespaces set-allowed-clusters",
    "acme/iot --clusters standalone --dry-run",
    **{**_SETS, "errors": [errors.NamespaceNotFound, errors.Refused]},
)
def set_allowed_clusters(app: App, namespace: NamespaceName, clusters: str) -> None:
    """Set the clusters that a namespace may replicate to."""
    app.change(app.namespace(namespace).set_allowed_clusters(java_split(clusters)))


# -- what one cluster alone knows -------------------------------------------------------------------------------------


@mirrored("namespaces get-anti-affinity-group", "acme/iot", **_READS)
def get_anti_affinity_group(app: App, namespace: NamespaceName) -> Shown:
    """Show a namespace's anti-affinity group; an empty line if not set."""
    return Printed(app.namespace(namespace).anti_affinity_group() or "")


@mirrored("namespaces set-anti-affinity-group", "acme/iot --group heavy --dry-run", **_SETS)
def set_anti_affinity_group(app: App, namespace: NamespaceName, group: str) -> None:
    """Put a namespace into a group whose members brokers keep apart."""
    app.change(app.namespace(namespace).set_anti_affinity_group(group))


@mirrored("namespaces delete-anti-affinity-group", "acme/iot --dry-run", **_SETS)
def delete_anti_affinity_group(app: App, namespace: NamespaceName) -> None:
    """Take a namespace out of its anti-affinity group."""
    app.change(app.namespace(namespace).delete_anti_affinity_group())


@mirrored(
    "namespaces get-anti-affinity-namespaces",
    elsewhere=["--tenant acme --cluster standalone --group heavy"],
    **{**_READS, "errors": [errors.ResourceNotFound, errors.InvalidValue]},
)
def get_anti_affinity_namespaces(app: App, tenant: str | None, cluster: str, group: str) -> Shown:
    """List the namespaces of a tenant in an anti-affinity group."""
    if tenant is None:
        raise errors.InvalidValue("Tenant should not be null")
    try:
        return Printed(app.resources.cluster(cluster).anti_affinity_namespaces(tenant, group))
    except errors.TenantNotFound:
        return Printed(
            ()
        )  # as a broker answers (4.0.8): it lists the nodes below the tenant and does not look for the tenant itself


@mirrored("namespaces get-bookie-affinity-group", elsewhere=["acme/iot"], **_READS)
def get_bookie_affinity_group(app: App, namespace: NamespaceName) -> Shown:
    """Show the bookie groups that store a namespace's data, null if all do."""
    return Printed(app.namespace(namespace).bookie_affinity_group())


@mirrored("namespaces set-bookie-affinity-group", "acme/iot --primary-group fast --dry-run", **_SETS)
def set_bookie_affinity_group(
    app: App, namespace: NamespaceName, primary_group: str, secondary_group: str | None
) -> None:
    """Restrict a namespace's data to some bookie groups."""
    app.change(app.namespace(namespace).set_bookie_affinity_group(primary_group, secondary_group))


@mirrored("namespaces delete-bookie-affinity-group", "acme/iot --dry-run", **_SETS)
def delete_bookie_affinity_group(app: App, namespace: NamespaceName) -> None:
    """Let all bookies store a namespace's data."""
    app.change(app.namespace(namespace).delete_bookie_affinity_group())


@mirrored("namespaces update-migration-state", "acme/iot --migrated --dry-run", **_SETS)
def update_migration_state(app: App, namespace: NamespaceName, migrated: bool) -> None:
    """Set whether a namespace is migrated to the target of its cluster."""
    app.change(app.namespace(namespace).set_migrated(migrated))
