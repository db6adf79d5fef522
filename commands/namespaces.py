"""``namespaces list``, ``topics``, ``policies``."""

from __future__ import annotations

import click

from pulsar_admin.context import App
from pulsar_admin.options import NAMESPACE, command, pass_app
from pulsar_admin.store.changes.policies import shown_policies
from pulsar_admin.store.errors import MetadataCorrupt, NamespaceNotFound
from pulsar_admin.store.names import NamespaceName


@command(
    "list",
    examples=[
        "pulsar-admin namespaces list acme",
        "pulsar-admin namespaces list public -o json",
        "pulsar-admin namespaces list",
    ],
    output="Names, one a line.",
    errors=[NamespaceNotFound],
    mirrors=True,
)
@click.argument("tenant", required=False)
@pass_app
def list_namespaces(app: App, tenant: str | None) -> None:
    """List the namespaces of a tenant, or all namespaces."""
    app.answer(app.session.api.namespaces(tenant))


@command(
    "topics",
    examples=["pulsar-admin namespaces topics acme/iot", "pulsar-admin namespaces topics acme/orders -ist"],
    output="Names, one a line; a partitioned topic as its partitions.",
    errors=[NamespaceNotFound],
)
@click.argument("namespace", type=NAMESPACE)
@click.option(
    "-m",
    "--mode",
    type=click.Choice(["persistent", "non_persistent", "all"], case_sensitive=False),
    default="all",
    help="Only this domain; nothing of a non-persistent topic is on disk.",
)
@click.option("-ist", "--include-system-topic", is_flag=True, help="Also system topics.")
@pass_app
def topics(app: App, namespace: NamespaceName, mode: str, include_system_topic: bool) -> None:
    """List the topics of a namespace."""
    names = app.session.namespace(namespace).topics(system=include_system_topic)
    app.emit_lines(names if mode != "non_persistent" else (), "TOPIC")


@command(
    "policies",
    examples=["pulsar-admin namespaces policies acme/delayed"],
    output="The policies with every key they have, and the bundles where they were split. What a policy does not say, the "
    "broker's configuration does: shown of that is the default of is_allow_auto_update_schema, as pulsar-admin does.",
    errors=[NamespaceNotFound, MetadataCorrupt],
)
@click.argument("namespace", type=NAMESPACE)
@pass_app
def policies(app: App, namespace: NamespaceName) -> None:
    """Show the policies of a namespace as they are stored."""
    with app.session.read() as txn:
        app.emit(shown_policies(txn, namespace))
