"""``namespaces enable-delayed-message`` and ``disable-delayed-message``."""

from __future__ import annotations

import click

from pulsar_admin.context import App
from pulsar_admin.options import NAMESPACE, ParsedType, command, pass_app
from pulsar_admin.store.db.delayed_rules import parse_width_ms
from pulsar_admin.store.errors import InvalidValue, MetadataCorrupt, NamespaceNotFound, Refused, StalePlan
from pulsar_admin.store.names import NamespaceName

WIDTH = ParsedType("width", parse_width_ms, "WIDTH")
_CHANGE = "The change: both parts of the policy before and after, times in ms, warnings, and the undo command."


@command(
    "enable-delayed-message",
    changes=True,
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

    Also sets Pulsar's own policy (active, tickTime) and keeps its maximum delay. Warns of a TTL or backlog quota that
    would drop messages before they are due.
    """
    app.change(app.session.namespace(namespace).enable_delayed(granularity_ms, tick_ms, split=split))


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
    app.change(app.session.namespace(namespace).disable_delayed())
