"""Policies of namespaces: ``set-``, ``get-`` and ``remove-`` of message TTL, retention and backlog quota."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from commands.policies import QuotaOptions, RetentionOptions, quota_options, quota_type_option, retention_options
from pulsar_admin.context import App
from pulsar_admin.options import DURATION, NAMESPACE, command, pass_app
from store.changes.namespaces import check_ttl, plan_job, quotas_json, retention_or_null_json, ttl_json, without_quota
from store.changes.policies import PolicyJob, find_policies
from store.codec.policies import JsonObject, Policies
from store.errors import InvalidValue, MetadataCorrupt, NamespaceNotFound, StalePlan
from store.model.topics import check_namespace
from store.names import NamespaceName

_CHANGE = "The change: the policy before and after, and the undo command."
_VALUE = "The policy with upstream's keys, null where it is not set."
_SETS: Any = {  # Any: keywords of click
    "changes": True,
    "output": _CHANGE,
    "errors": [NamespaceNotFound, InvalidValue, MetadataCorrupt, StalePlan],
}
_GETS: Any = {"output": _VALUE, "errors": [NamespaceNotFound, MetadataCorrupt]}  # Any: keywords of click


def _change(app: App, namespace: NamespaceName, job: PolicyJob) -> None:
    with app.store.read() as txn:
        plan = plan_job(txn, namespace, job, app.now_ms)
    app.change(plan)


def _get(app: App, namespace: NamespaceName, shown: Callable[[Policies], JsonObject]) -> None:
    with app.store.read() as txn:
        check_namespace(txn, namespace)
        app.emit(shown(find_policies(txn, namespace) or Policies()))


# -- message TTL ------------------------------------------------------------------------------------------------------


def _ttl(policies: Policies) -> JsonObject:
    return ttl_json(policies.message_ttl_seconds)


@command("set-message-ttl", examples=["pulsar-admin namespaces set-message-ttl acme/orders -ttl 3d --dry-run"], **_SETS)
@click.argument("namespace", type=NAMESPACE)
@click.option("-ttl", "--messageTTL", "ttl_ms", type=DURATION, required=True, help="100m, 3h, 2d, 5w, or seconds.")
@pass_app
def set_ttl(app: App, namespace: NamespaceName, ttl_ms: int) -> None:
    """Set how long the messages of a namespace live; 0: for ever."""
    seconds = check_ttl(ttl_ms, 0)
    job = PolicyJob("namespaces set-message-ttl", lambda found: replace(found, message_ttl_seconds=seconds), _ttl)
    _change(app, namespace, job)


@command("get-message-ttl", examples=["pulsar-admin namespaces get-message-ttl acme/orders"], **_GETS)
@click.argument("namespace", type=NAMESPACE)
@pass_app
def get_ttl(app: App, namespace: NamespaceName) -> None:
    """Show the message TTL of a namespace in seconds."""
    _get(app, namespace, _ttl)


@command("remove-message-ttl", examples=["pulsar-admin namespaces remove-message-ttl acme/orders --dry-run"], **_SETS)
@click.argument("namespace", type=NAMESPACE)
@pass_app
def remove_ttl(app: App, namespace: NamespaceName) -> None:
    """Remove the message TTL of a namespace: the broker's configuration counts again."""
    job = PolicyJob("namespaces remove-message-ttl", lambda found: replace(found, message_ttl_seconds=None), _ttl)
    _change(app, namespace, job)


# -- retention --------------------------------------------------------------------------------------------------------


def _retention(policies: Policies) -> JsonObject:
    return retention_or_null_json(policies.retention)


@command(
    "set-retention", examples=["pulsar-admin namespaces set-retention acme/orders -t 2d -s 10G --dry-run"], **_SETS
)
@click.argument("namespace", type=NAMESPACE)
@retention_options
@pass_app
def set_retention(app: App, namespace: NamespaceName, options: RetentionOptions) -> None:
    """Set how long and how much of a namespace's topics is kept when every subscription has consumed it.

    Kept in whole minutes and MB, rounded down.
    """
    retention = options.parsed()
    job = PolicyJob("namespaces set-retention", lambda found: replace(found, retention=retention), _retention)
    _change(app, namespace, job)


@command("get-retention", examples=["pulsar-admin namespaces get-retention acme/orders"], **_GETS)
@click.argument("namespace", type=NAMESPACE)
@pass_app
def get_retention(app: App, namespace: NamespaceName) -> None:
    """Show the retention of a namespace in minutes and MB; -1 is infinite."""
    _get(app, namespace, _retention)


@command("remove-retention", examples=["pulsar-admin namespaces remove-retention acme/orders --dry-run"], **_SETS)
@click.argument("namespace", type=NAMESPACE)
@pass_app
def remove_retention(app: App, namespace: NamespaceName) -> None:
    """Remove the retention of a namespace: the broker's configuration counts again."""
    job = PolicyJob("namespaces remove-retention", lambda found: replace(found, retention=None), _retention)
    _change(app, namespace, job)


# -- backlog quotas ---------------------------------------------------------------------------------------------------


@command(
    "set-backlog-quota",
    examples=["pulsar-admin namespaces set-backlog-quota acme/orders -l 10G -p producer_exception --dry-run"],
    **_SETS,
)
@click.argument("namespace", type=NAMESPACE)
@quota_options
@pass_app
def set_quota(app: App, namespace: NamespaceName, options: QuotaOptions) -> None:
    """Set a backlog quota of a namespace."""
    _change(app, namespace, PolicyJob("namespaces set-backlog-quota", options.change, quotas_json))


@command("get-backlog-quotas", examples=["pulsar-admin namespaces get-backlog-quotas acme/orders"], **_GETS)
@click.argument("namespace", type=NAMESPACE)
@pass_app
def get_quotas(app: App, namespace: NamespaceName) -> None:
    """Show the backlog quotas of a namespace by type."""
    _get(app, namespace, quotas_json)


@command(
    "remove-backlog-quota", examples=["pulsar-admin namespaces remove-backlog-quota acme/orders --dry-run"], **_SETS
)
@click.argument("namespace", type=NAMESPACE)
@quota_type_option
@pass_app
def remove_quota(app: App, namespace: NamespaceName, kind: str) -> None:
    """Remove a backlog quota of a namespace: the broker's configuration counts again."""
    job = PolicyJob("namespaces remove-backlog-quota", lambda found: without_quota(found, kind), quotas_json)
    _change(app, namespace, job)
