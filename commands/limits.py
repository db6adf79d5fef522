"""``resourcegroups`` and ``resource-quotas``."""

from __future__ import annotations

from typing import Any

from pulsar_admin.context import App
from pulsar_admin.upstream import mirrored
from store.changes.limits import plan_delete_group, plan_group, plan_quota, plan_reset_quota
from store.db.environment import Txn
from store.errors import InvalidValue, MetadataCorrupt, NamespaceNotFound, Refused, ResourceNotFound, StoreNotFound
from store.model.bundles import Bundle, read_bundle
from store.model.limits import GROUP, QUOTA, list_groups, read_group, read_quota
from store.names import parse_namespace

_RATES = {
    "msg_publish_rate": "publishRateInMsgs",
    "byte_publish_rate": "publishRateInBytes",
    "msg_dispatch_rate": "dispatchRateInMsgs",
    "byte_dispatch_rate": "dispatchRateInBytes",
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
    "dynamic": "A broker may calculate it anew.",
}
_EXAMPLE = "pulsar-admin resourcegroups {} batch --msg-publish-rate 1000 --dry-run"
_GROUP: Any = {"changes": True, "writes_first": True, "helps": _HELPS}  # Any: keywords of click
_QUOTA: Any = {"helps": _HELPS, "errors": [NamespaceNotFound, InvalidValue, MetadataCorrupt]}


@mirrored(
    "resourcegroups list",
    examples=[],
    elsewhere=["pulsar-admin resourcegroups list"],
    output="Names, one a line.",
    errors=[StoreNotFound],
)
def list_all(app: App) -> None:
    """List the resource groups."""
    with app.session.read() as txn:
        app.answer(list_groups(txn))


@mirrored(
    "resourcegroups get",
    examples=[],
    elsewhere=["pulsar-admin resourcegroups get batch"],
    errors=[ResourceNotFound, MetadataCorrupt],
)
def get(app: App, name: str) -> None:
    """Show the rates of a resource group."""
    with app.session.read() as txn:
        app.answer(GROUP.show(read_group(txn, name)))


def _put(app: App, command: str, name: str, rates: dict[str, int | None]) -> None:
    app.change(app.session.plan_rows(plan_group, command, name, {_RATES[key]: value for key, value in rates.items()}))


@mirrored("resourcegroups create", examples=[_EXAMPLE.format("create")], errors=[MetadataCorrupt], **_GROUP)
def create(app: App, name: str, **rates: int | None) -> None:
    """Create a resource group, or change the given rates of an existing one."""
    _put(app, "resourcegroups create", name, rates)


@mirrored("resourcegroups update", examples=[_EXAMPLE.format("update")], errors=[MetadataCorrupt], **_GROUP)
def update(app: App, name: str, **rates: int | None) -> None:
    """Change rates of a resource group; it is created if it does not exist."""
    _put(app, "resourcegroups update", name, rates)


@mirrored(
    "resourcegroups delete",
    examples=[],
    elsewhere=["pulsar-admin resourcegroups delete batch"],
    errors=[ResourceNotFound, Refused],
    **_GROUP,
)
def delete(app: App, name: str) -> None:
    """Delete a resource group that no namespace is in."""
    app.change(app.session.plan_rows(plan_delete_group, name))


# -- quotas of bundles ------------------------------------------------------------------------------------------------


def _bundle(txn: Txn, namespace: str | None, bundle: str | None) -> Bundle | None:
    if namespace is None and bundle is None:
        return None
    if namespace is None or bundle is None:
        raise InvalidValue("namespace and bundle must be provided together.")
    return read_bundle(txn, parse_namespace(namespace), bundle)


@mirrored("resource-quotas get", examples=["pulsar-admin resource-quotas get"], **_QUOTA)
def get_quota(app: App, namespace: str | None, bundle: str | None) -> None:
    """Show the quota in force for a bundle, or the default one."""
    with app.session.read() as txn:
        app.answer(QUOTA.show(read_quota(txn, _bundle(txn, namespace, bundle))))


@mirrored(
    "resource-quotas set",
    changes=True,
    writes_first=True,
    examples=["pulsar-admin resource-quotas set -mi 10 -mo 20 -bi 1000 -bo 2000 -mem 100 --dry-run"],
    **_QUOTA,
)
def set_quota(app: App, namespace: str | None, bundle: str | None, dynamic: bool, **amounts: int) -> None:
    """Set the quota of a bundle, or the default one."""
    keys = ("msgRateIn", "msgRateOut", "bandwidthIn", "bandwidthOut", "memory")
    quota = {key: float(amount) for key, amount in zip(keys, amounts.values(), strict=True)}
    quota["dynamic"] = dynamic
    app.change(
        app.session.plan_rows(lambda txn, now_ms: plan_quota(txn, _bundle(txn, namespace, bundle), quota, now_ms))
    )


@mirrored(
    "resource-quotas reset-namespace-bundle-quota",
    changes=True,
    writes_first=True,
    examples=[],
    elsewhere=[
        "pulsar-admin resource-quotas reset-namespace-bundle-quota -n acme/iot -b 0x00000000_0xffffffff --dry-run"
    ],
    **_QUOTA,
)
def reset_quota(app: App, namespace: str, bundle: str) -> None:
    """Remove the quota of a bundle: the default quota applies again."""
    name = parse_namespace(namespace)
    app.change(app.session.plan_rows(lambda txn, now_ms: plan_reset_quota(txn, read_bundle(txn, name, bundle), now_ms)))
