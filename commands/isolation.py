"""``ns-isolation-policy``: policies that let only some brokers serve some namespaces."""

from typing import Any

from pulsar_admin.context import App, Printed, Shown
from pulsar_admin.jsonify import to_json
from pulsar_admin.store.errors import InvalidValue, MetadataCorrupt, ResourceNotFound
from pulsar_admin.store.model.resources import isolation_text
from pulsar_admin.upstream import mirrored

_HELPS = {
    "namespaces": "Regular expressions of namespaces, separated by commas.",
    "primary": "Regular expressions of brokers that serve them, separated by commas.",
    "secondary": "Regular expressions of brokers that serve them if too few of the primary ones run.",
    "auto_failover_policy_type": "min_available, the only type.",
    "auto_failover_policy_params": "min_limit=N,usage_threshold=PERCENT.",
    "unload_scope": "Which namespaces brokers unload for it.",
    "broker": "The broker, HOST:PORT.",
}
_READS: Any = {"errors": [ResourceNotFound, MetadataCorrupt]}  # Any: keywords of click
_SETS: Any = {"changes": True, "helps": _HELPS}


@mirrored("ns-isolation-policy list", elsewhere=["standalone"], **_READS)
def list_all(app: App, cluster: str) -> Shown:
    """List the isolation policies of a cluster."""
    return Printed(
        app.resources.cluster(cluster).isolation_policies(), as_map=lambda policy: isolation_text(to_json(policy))
    )


@mirrored("ns-isolation-policy get", elsewhere=["standalone payments"], **_READS)
def get(app: App, cluster: str, name: str) -> Shown:
    """Show an isolation policy."""
    return Printed(app.resources.cluster(cluster).isolation_policy(name))


@mirrored("ns-isolation-policy broker", elsewhere=["standalone --broker broker-1:8080"], helps=_HELPS, **_READS)
def broker(app: App, cluster: str, broker: str) -> Shown:
    """Show the isolation policies that apply to a broker."""
    return Printed(app.resources.cluster(cluster).broker_isolation(broker))


@mirrored(
    "ns-isolation-policy set",
    "standalone payments --namespaces acme/secure --primary broker-1.* --auto-failover-policy-type min_available"
    " --auto-failover-policy-params min_limit=1,usage_threshold=80 --dry-run",
    errors=[ResourceNotFound, InvalidValue],
    **_SETS,
)
def set_policy(
    app: App,
    cluster: str,
    name: str,
    auto_failover_policy_type: str,
    auto_failover_policy_params: dict[str, str],
    unload_scope: str | None,
    **brokers: tuple[str, ...],
) -> None:
    """Let only some brokers serve some namespaces."""
    plan = app.resources.cluster(cluster).set_isolation_policy(
        name,
        failover=auto_failover_policy_params,
        failover_type=auto_failover_policy_type,
        unload_scope=unload_scope,
        **brokers,
    )
    app.change(plan)


@mirrored("ns-isolation-policy delete", "standalone payments --dry-run", errors=[ResourceNotFound], **_SETS)
def delete(app: App, cluster: str, name: str) -> None:
    """Delete an isolation policy."""
    app.change(app.resources.cluster(cluster).delete_isolation_policy(name))
