"""``namespaces enable-delayed-message``, ``disable-delayed-message``, ``set-``, ``get-`` and ``remove-delayed-delivery``."""

from __future__ import annotations

from dataclasses import dataclass

import click

from pulsar_admin.context import App
from pulsar_admin.options import DURATION, NAMESPACE, ParsedType, command, gather, pass_app
from store.changes.delayed import (
    DelayedPolicy,
    find_rules,
    plan_disable,
    plan_enable,
    plan_remove_delivery,
    plan_set_delivery,
)
from store.changes.policies import find_policies
from store.codec.policies import DelayedDelivery
from store.db.delayed import iter_wide
from store.db.delayed_rules import DEFAULT_RULES, SLOTS_MAX, IndexRules, default_tick_ms, parse_width_ms
from store.errors import InvalidValue, MetadataCorrupt, NamespaceNotFound, Refused, StalePlan
from store.model.topics import check_namespace
from store.names import NamespaceName
from store.timespec import format_duration_ms

WIDTH = ParsedType("width", parse_width_ms, "WIDTH")
_CHANGE = "The change: both parts of the policy before and after, times in ms, warnings, and the undo command."


@command(
    "enable-delayed-message",
    changes=True,
    writes_first=True,
    examples=[
        "pulsar-admin namespaces enable-delayed-message acme/delayed -p 5m -t 2s --dry-run",
        "pulsar-admin namespaces enable-delayed-message public/default",
    ],
    output=_CHANGE,
    errors=[NamespaceNotFound, InvalidValue, Refused, MetadataCorrupt, StalePlan],
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
    help="Width of a tick of the time wheel: 500ms, 1s, 5m; at most the granularity [1s; longer where ticks would be too many].",
)
@click.option(
    "--split",
    is_flag=True,
    help="Let the granularity shrink: the partitions of indexes are cut anew.",
)
@pass_app
def enable(app: App, namespace: NamespaceName, granularity_ms: int, tick_ms: int | None, split: bool) -> None:
    """Enable delayed messages for all topics of a namespace.

    Pulsar's own policy is set with it (active, tickTime); the maximum delay stays. Warns of a TTL or backlog quota that would
    drop messages before they are due.
    """
    if tick_ms is None:
        tick_ms = default_tick_ms(granularity_ms)
        if tick_ms > DEFAULT_RULES.tick_ms:
            app.warn(f"the tick is {format_duration_ms(tick_ms)}: a partition has at most {SLOTS_MAX:,} of them")
    rules = IndexRules(granularity_ms, tick_ms)
    with app.store.read() as txn:
        plan = plan_enable(txn, namespace, rules, app.now_ms, split=split)
        wide = split and any(True for _ in iter_wide(txn, namespace, rules))
    if wide:
        from store.delayed.split import plan_split

        app.change(plan_split(app.store, namespace, rules, plan.txn_id, app.now_ms))
    else:
        app.change(plan)


@command(
    "disable-delayed-message",
    changes=True,
    examples=["pulsar-admin namespaces disable-delayed-message acme/delayed --dry-run"],
    output=_CHANGE,
    errors=[NamespaceNotFound, MetadataCorrupt, StalePlan],
)
@click.argument("namespace", type=NAMESPACE)
@pass_app
def disable(app: App, namespace: NamespaceName) -> None:
    """Disable delayed messages for all topics of a namespace: a broker delivers everything at once."""
    with app.store.read() as txn:
        plan = plan_disable(txn, namespace, app.now_ms)
    app.change(plan)


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """Options of ``set-delayed-delivery``."""

    enable: bool
    disable: bool
    time_ms: int
    max_delay_ms: int


@command(
    "set-delayed-delivery",
    changes=True,
    examples=["pulsar-admin namespaces set-delayed-delivery acme/delayed --enable -t 1s --maxDelay 10d --dry-run"],
    output=_CHANGE,
    errors=[NamespaceNotFound, InvalidValue, MetadataCorrupt, StalePlan],
)
@click.argument("namespace", type=NAMESPACE)
@click.option("-e", "--enable", is_flag=True, help="Delay messages.")
@click.option("-d", "--disable", is_flag=True, help="Deliver everything at once.")
@click.option("-t", "--time", "time_ms", type=DURATION, default="1s", show_default=True, help="The tick.")
@click.option(
    "-md", "--maxDelay", "max_delay_ms", type=DURATION, default="0", show_default=True, help="Longest delay; 0: any."
)
@gather(DeliveryOptions)
@pass_app
def set_delivery(app: App, namespace: NamespaceName, options: DeliveryOptions) -> None:
    """Set the delayed delivery policy of a namespace, as pulsar-admin does."""
    if options.enable == options.disable:
        raise InvalidValue("Need to specify either --enable or --disable")
    delivery = DelayedDelivery(options.enable, options.time_ms, options.max_delay_ms)
    with app.store.read() as txn:
        plan = plan_set_delivery(txn, namespace, delivery, app.now_ms)
    app.change(plan)


@command(
    "get-delayed-delivery",
    examples=["pulsar-admin namespaces get-delayed-delivery acme/delayed"],
    output="Pulsar's policy with upstream's keys, and the widths of the index; null where nothing is set.",
    errors=[NamespaceNotFound, MetadataCorrupt],
)
@click.argument("namespace", type=NAMESPACE)
@pass_app
def get_delivery(app: App, namespace: NamespaceName) -> None:
    """Show the delayed delivery policy of a namespace."""
    with app.store.read() as txn:
        check_namespace(txn, namespace)
        policies = find_policies(txn, namespace)
        delivery = None if policies is None else policies.delayed_delivery
        app.emit(DelayedPolicy(delivery, find_rules(txn, namespace)).as_json())


@command(
    "remove-delayed-delivery",
    changes=True,
    examples=["pulsar-admin namespaces remove-delayed-delivery acme/delayed --dry-run"],
    output=_CHANGE,
    errors=[NamespaceNotFound, MetadataCorrupt, StalePlan],
)
@click.argument("namespace", type=NAMESPACE)
@pass_app
def remove_delivery(app: App, namespace: NamespaceName) -> None:
    """Remove the delayed delivery policy of a namespace: the broker's configuration counts again."""
    with app.store.read() as txn:
        plan = plan_remove_delivery(txn, namespace, app.now_ms)
    app.change(plan)
