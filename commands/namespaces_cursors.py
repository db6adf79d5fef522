"""``namespaces clear-backlog`` and ``namespaces unsubscribe``: the cursors of all topics of a namespace, as one change."""

from __future__ import annotations

import click

from pulsar_admin.context import App
from pulsar_admin.options import NAMESPACE, command, pass_app
from pulsar_admin.store.errors import NamespaceNotFound, Refused, StalePlan, SubscriptionNotFound
from pulsar_admin.store.names import NamespaceName

_BUNDLE_OPTION = click.option("-b", "--bundle", metavar="0xLOW_0xHIGH", help="Only topics in this bundle.")


@command(
    "clear-backlog",
    changes=True,
    mirrors=True,
    examples=[
        "pulsar-admin namespaces clear-backlog public/default --dry-run",
        "pulsar-admin namespaces clear-backlog public/default -s expire-me",
    ],
    output="One change: before and after of every subscription, what is skipped, and the undo command.",
    errors=[NamespaceNotFound, SubscriptionNotFound, Refused, StalePlan],
)
@click.argument("namespace", type=NAMESPACE)
@click.option("-s", "--sub", "subscription", help="Only this subscription.")
@_BUNDLE_OPTION
@click.option(
    "-force",
    "--force",
    is_flag=True,
    help="Accepted for scripts: no question is asked, because the change can be undone.",
)
@pass_app
def clear_backlog(
    app: App, namespace: NamespaceName, subscription: str | None, bundle: str | None, force: bool
) -> None:
    """Skip the whole backlog of a namespace's subscriptions.

    System topics and the cursors of compaction and deduplication are not changed.
    """
    app.change(app.session.namespace(namespace).clear_backlog(subscription, bundle=bundle))


@command(
    "unsubscribe",
    changes=True,
    mirrors=True,
    examples=["pulsar-admin namespaces unsubscribe public/default -s expire-me"],
    output="One change: where the subscription stood in every topic, its backlog, and the undo command.",
    errors=[NamespaceNotFound, SubscriptionNotFound, Refused, StalePlan],
)
@click.argument("namespace", type=NAMESPACE)
@click.option("-s", "--sub", "subscription", required=True, help="The subscription.")
@_BUNDLE_OPTION
@pass_app
def unsubscribe(app: App, namespace: NamespaceName, subscription: str, bundle: str | None) -> None:
    """Remove a subscription from every topic of a namespace that has it.

    Undo brings all of them back as they were.
    """
    app.change(app.session.namespace(namespace).unsubscribe(subscription, bundle=bundle))
