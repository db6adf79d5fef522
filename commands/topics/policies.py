"""Policies of topics: ``set-``, ``get-`` and ``remove-`` of delayed delivery, message TTL, retention and backlog quota."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from commands.policies import (
    DeliveryOptions,
    QuotaOptions,
    RetentionOptions,
    delivery_options,
    quota_options,
    quota_type_option,
    retention_options,
)
from pulsar_admin.columns import Column
from pulsar_admin.context import App
from pulsar_admin.options import DURATION, TopicSelection, command, pass_app, topics_argument
from store.changes.namespaces import (
    check_ttl,
    delivery_json,
    quotas_json,
    retention_or_null_json,
    ttl_json,
    without_quota,
)
from store.changes.policies import PolicyJob
from store.codec.policies import JsonObject, Policies
from store.db.environment import Txn
from store.errors import InvalidValue, MetadataCorrupt, Refused, StalePlan, TopicNotFound
from store.model.topics import select_topics
from store.names import TopicName

if TYPE_CHECKING:
    from store.policies.in_force import PoliciesInForce

_CHANGE = "The change: the policy before and after, the event's position in __change_events, and the undo command."
_VALUE = "One object a topic with upstream's keys, null where it is not set; with --applied also where it is set."
_SETS: Any = {
    "changes": True,
    "writes_first": True,
    "output": _CHANGE,
    "errors": [TopicNotFound, InvalidValue, MetadataCorrupt, Refused, StalePlan],
    "uses": ["interceptors", "broker_conf"],
}
_GETS: Any = {"output": _VALUE, "errors": [TopicNotFound, MetadataCorrupt]}

Value = tuple[JsonObject, object]  # the policy as JSON, and its source
Shown = Callable[["PoliciesInForce"], Value]


def _applied_option(function: Any) -> Any:  # Any: click's
    text = "What is in force: of the topic, else of the namespace, else what a broker has by default."
    return click.option("-ap", "--applied", is_flag=True, help=text)(function)


def _change(app: App, selection: TopicSelection, job: PolicyJob) -> None:
    """Do JOB on the topics meant."""
    from store.changes.topic_policies import plan_changes

    with app.store.read() as txn:
        plan = plan_changes(txn, _names(txn, selection), job, app.now_ms, app.settings.interceptors)
    app.change(plan)


def _names(txn: Txn, selection: TopicSelection) -> list[TopicName]:
    names = select_topics(txn, selection.topics, all_topics=selection.all_topics, pattern=selection.pattern)
    return list(dict.fromkeys(name.base for name in names))


def _get(app: App, selection: TopicSelection, shown: Shown, columns: tuple[Column, ...], *, applied: bool) -> None:
    """Emit what SHOWN makes of the policies of the topics meant: their own, or with APPLIED those in force."""
    from store.policies.in_force import read_in_force, with_defaults

    rows: list[dict[str, Any]] = []  # Any: JSON
    with app.store.read() as txn:
        for name in _names(txn, selection):
            found = read_in_force(txn, name, own=not applied)
            value, source = shown(with_defaults(found) if applied else found)
            rows.append({"topic": str(name), **value, "source": source})
    if selection.single is not None:
        app.emit(rows[0])
    else:
        app.emit_rows(rows, (Column("TOPIC", "topic"), *columns, Column("SOURCE", "source")))


# -- delayed delivery -------------------------------------------------------------------------------------------------


@command(
    "set-delayed-delivery",
    examples=[
        "pulsar-admin topics set-delayed-delivery acme/delayed/reminders --enable -t 1s --maxDelay 10d --dry-run"
    ],
    **_SETS,
)
@topics_argument
@delivery_options
@pass_app
def set_delivery(app: App, selection: TopicSelection, options: DeliveryOptions) -> None:
    """Set the delayed delivery policy of topics, as pulsar-admin does."""
    delivery = options.parsed()
    _change(app, selection, _delivery_job("set", lambda policies: replace(policies, delayed_delivery=delivery)))


@command(
    "remove-delayed-delivery",
    examples=["pulsar-admin topics remove-delayed-delivery acme/delayed/reminders --dry-run"],
    **_SETS,
)
@topics_argument
@pass_app
def remove_delivery(app: App, selection: TopicSelection) -> None:
    """Remove the delayed delivery policy of topics: the namespace's counts again."""
    _change(app, selection, _delivery_job("remove", lambda policies: replace(policies, delayed_delivery=None)))


def _delivery_job(verb: str, change: Callable[[Policies], Policies]) -> PolicyJob:
    return PolicyJob(
        f"topics {verb}-delayed-delivery", change, lambda policies: delivery_json(policies.delayed_delivery)
    )


@command(
    "get-delayed-delivery",
    examples=["pulsar-admin topics get-delayed-delivery acme/delayed/reminders --applied"],
    **_GETS,
)
@topics_argument
@_applied_option
@pass_app
def get_delivery(app: App, selection: TopicSelection, applied: bool) -> None:
    """Show the delayed delivery policy of topics."""
    columns = (
        Column("ACTIVE", "active"),
        Column("TICK", "tickTime", "duration"),
        Column("MAX DELAY", "maxDeliveryDelayInMillis", "duration"),
    )
    _get(app, selection, _delivery, columns, applied=applied)


def _delivery(found: PoliciesInForce) -> Value:
    one = found.delayed_delivery
    return (delivery_json(None), None) if one is None else (delivery_json(one.delivery), one.source)


# -- message TTL ------------------------------------------------------------------------------------------------------


@command(
    "set-message-ttl", examples=["pulsar-admin topics set-message-ttl public/default/plain -t 3d --dry-run"], **_SETS
)
@topics_argument
@click.option("-t", "--ttl", "ttl_ms", type=DURATION, required=True, help="100m, 3h, 2d, 5w, or seconds; 1 at least.")
@pass_app
def set_ttl(app: App, selection: TopicSelection, ttl_ms: int) -> None:
    """Set how long the messages of topics live."""
    seconds = check_ttl(ttl_ms, 1)
    _change(app, selection, _ttl_job("set", seconds))


@command(
    "remove-message-ttl", examples=["pulsar-admin topics remove-message-ttl public/default/plain --dry-run"], **_SETS
)
@topics_argument
@pass_app
def remove_ttl(app: App, selection: TopicSelection) -> None:
    """Remove the message TTL of topics: the namespace's counts again."""
    _change(app, selection, _ttl_job("remove", None))


def _ttl_job(verb: str, seconds: int | None) -> PolicyJob:
    return PolicyJob(
        f"topics {verb}-message-ttl",
        lambda policies: replace(policies, message_ttl_seconds=seconds),
        lambda policies: ttl_json(policies.message_ttl_seconds),
    )


@command("get-message-ttl", examples=["pulsar-admin topics get-message-ttl public/default/plain --applied"], **_GETS)
@topics_argument
@_applied_option
@pass_app
def get_ttl(app: App, selection: TopicSelection, applied: bool) -> None:
    """Show the message TTL of topics in seconds."""
    _get(app, selection, _ttl, (Column("TTL", "messageTTL", "seconds"),), applied=applied)


def _ttl(found: PoliciesInForce) -> Value:
    one = found.message_ttl
    return (ttl_json(None), None) if one is None else (ttl_json(one.seconds), one.source)


# -- retention --------------------------------------------------------------------------------------------------------


@command(
    "set-retention", examples=["pulsar-admin topics set-retention public/default/plain -t 2d -s 10G --dry-run"], **_SETS
)
@topics_argument
@retention_options
@pass_app
def set_retention(app: App, selection: TopicSelection, options: RetentionOptions) -> None:
    """Set how long and how much of topics is kept when every subscription has consumed it; whole minutes and MB."""
    retention = options.parsed()
    _change(app, selection, _retention_job("set", lambda policies: replace(policies, retention=retention)))


@command("remove-retention", examples=["pulsar-admin topics remove-retention public/default/plain --dry-run"], **_SETS)
@topics_argument
@pass_app
def remove_retention(app: App, selection: TopicSelection) -> None:
    """Remove the retention of topics: the namespace's counts again."""
    _change(app, selection, _retention_job("remove", lambda policies: replace(policies, retention=None)))


def _retention_job(verb: str, change: Callable[[Policies], Policies]) -> PolicyJob:
    return PolicyJob(f"topics {verb}-retention", change, lambda policies: retention_or_null_json(policies.retention))


@command("get-retention", examples=["pulsar-admin topics get-retention public/default/plain --applied"], **_GETS)
@topics_argument
@_applied_option
@pass_app
def get_retention(app: App, selection: TopicSelection, applied: bool) -> None:
    """Show the retention of topics in minutes and MB; -1 is infinite."""
    columns = (Column("MINUTES", "retentionTimeInMinutes", "number"), Column("MB", "retentionSizeInMB", "number"))
    _get(app, selection, _retention, columns, applied=applied)


def _retention(found: PoliciesInForce) -> Value:
    one = found.retention
    return (retention_or_null_json(None), None) if one is None else (retention_or_null_json(one.retention), one.source)


# -- backlog quotas ---------------------------------------------------------------------------------------------------


@command(
    "set-backlog-quota",
    examples=["pulsar-admin topics set-backlog-quota public/default/plain -l 10G -p producer_exception --dry-run"],
    **_SETS,
)
@topics_argument
@quota_options
@pass_app
def set_quota(app: App, selection: TopicSelection, options: QuotaOptions) -> None:
    """Set a backlog quota of topics."""
    _change(app, selection, PolicyJob("topics set-backlog-quota", options.change, quotas_json))


@command(
    "remove-backlog-quota",
    examples=["pulsar-admin topics remove-backlog-quota public/default/plain --dry-run"],
    **_SETS,
)
@topics_argument
@quota_type_option
@pass_app
def remove_quota(app: App, selection: TopicSelection, kind: str) -> None:
    """Remove a backlog quota of topics: the namespace's counts again."""
    job = PolicyJob("topics remove-backlog-quota", lambda policies: without_quota(policies, kind), quotas_json)
    _change(app, selection, job)


@command(
    "get-backlog-quotas", examples=["pulsar-admin topics get-backlog-quotas public/default/plain --applied"], **_GETS
)
@topics_argument
@_applied_option
@pass_app
def get_quotas(app: App, selection: TopicSelection, applied: bool) -> None:
    """Show the backlog quotas of topics by type."""
    columns = (Column("SIZE", "destination_storage"), Column("AGE", "message_age"))
    _get(app, selection, _quotas, columns, applied=applied)


def _quotas(found: PoliciesInForce) -> Value:
    policies = Policies(backlog_quotas={kind: one.quota for kind, one in found.backlog_quotas.items()})
    return quotas_json(policies), {kind: one.source for kind, one in found.backlog_quotas.items()}
