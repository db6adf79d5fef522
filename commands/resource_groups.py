"""``resourcegroups`` and ``resource-quotas``."""

from typing import Any

from pulsar_admin.context import App, Printed, Shown
from pulsar_admin.store import errors
from pulsar_admin.upstream import mirrored

_RATES = {
    "msg_publish_rate": "publish_messages",
    "byte_publish_rate": "publish_bytes",
    "msg_dispatch_rate": "dispatch_messages",
    "byte_dispatch_rate": "dispatch_bytes",
}
_HELPS = {
    "msg_publish_rate": "Messages a second that may be published; -1: any.",
    "byte_publish_rate": "Bytes a second that may be published; -1: any.",
    "msg_dispatch_rate": "Messages a second that may be dispatched; -1: any.",
    "byte_dispatch_rate": "Bytes a second that may be dispatched; -1: any.",
    "namespace": "The namespace of --bundle.",
    "bundle": "The bundle, LOWER_UPPER, such as 0x00000000_0x40000000; without it, the default quota.",
    "msg_rate_in": "Expected messages a second that come in.",
    "msg_rate_out": "Expected messages a second that go out.",
    "bandwidth_in": "Expected bytes a second that come in.",
    "bandwidth_out": "Expected bytes a second that go out.",
    "memory": "Expected memory in MB.",
    "dynamic": "A broker may recalculate it.",
}
_EXAMPLE = "batch --msg-publish-rate 1000 --dry-run"
_GROUP: Any = {"changes": True, "helps": _HELPS}  # Any: keywords of click
_QUOTA: Any = {"helps": _HELPS, "errors": [errors.NamespaceNotFound, errors.InvalidValue, errors.MetadataCorrupt]}


@mirrored("resourcegroups list", elsewhere=[""], output="Names, one per line.", errors=[errors.StoreNotFound])
def list_all(app: App) -> Shown:
    """List the resource groups."""
    return Printed(app.resources.resource_groups())


@mirrored("resourcegroups get", elsewhere=["batch"], errors=[errors.ResourceNotFound, errors.MetadataCorrupt])
def get(app: App, name: str) -> Shown:
    """Show the rates of a resource group."""
    return Printed(app.resources.resource_group(name))


def _rates(given: dict[str, int | None]) -> dict[str, int | None]:
    return {_RATES[key]: value for key, value in given.items()}


@mirrored("resourcegroups create", _EXAMPLE, errors=[errors.MetadataCorrupt], **_GROUP)
def create(app: App, name: str, **rates: int | None) -> None:
    """Create a resource group, or change the given rates of an existing one."""
    app.change(app.resources.create_resource_group(name, **_rates(rates)))


@mirrored("resourcegroups update", _EXAMPLE, errors=[errors.MetadataCorrupt], **_GROUP)
def update(app: App, name: str, **rates: int | None) -> None:
    """Change rates of a resource group; it is created if it does not exist."""
    app.change(app.resources.update_resource_group(name, **_rates(rates)))


@mirrored("resourcegroups delete", elsewhere=["batch"], errors=[errors.ResourceNotFound, errors.Refused], **_GROUP)
def delete(app: App, name: str) -> None:
    """Delete a resource group that no namespace is in."""
    app.change(app.resources.delete_resource_group(name))


# -- quotas of bundles ------------------------------------------------------------------------------------------------


@mirrored("resource-quotas get", "", **_QUOTA)
def get_quota(app: App, namespace: str | None, bundle: str | None) -> Shown:
    """Show the quota in force for a bundle, or the default one."""
    return Printed(app.resources.bundle_quota(namespace, bundle))


@mirrored("resource-quotas set", "-mi 10 -mo 20 -bi 1000 -bo 2000 -mem 100 --dry-run", changes=True, **_QUOTA)
def set_quota(app: App, namespace: str | None, bundle: str | None, dynamic: bool, **amounts: int) -> None:
    """Set the quota of a bundle, or the default one."""
    messages, bandwidth = ((amounts[f"{name}_in"], amounts[f"{name}_out"]) for name in ("msg_rate", "bandwidth"))
    plan = app.resources.set_bundle_quota(
        namespace, bundle, messages=messages, bandwidth=bandwidth, memory_mb=amounts["memory"], dynamic=dynamic
    )
    app.change(plan)


@mirrored(
    "resource-quotas reset-namespace-bundle-quota",
    elsewhere=["-n acme/iot -b 0x00000000_0xffffffff --dry-run"],
    changes=True,
    **_QUOTA,
)
def reset_namespace_bundle_quota(app: App, namespace: str, bundle: str) -> None:
    """Remove the quota of a bundle: the default quota applies again."""
    app.change(app.resources.reset_bundle_quota(namespace, bundle))
