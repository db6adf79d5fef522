"""``topics list``, ``list-partitioned-topics``, ``get-partitioned-topic-metadata``, ``subscriptions``."""

from __future__ import annotations

from itertools import chain
from typing import Any

import click
from msgspec import Struct

from pulsar_admin.columns import Column
from pulsar_admin.commands.topics.answers import TOPIC_COLUMN, choose, emit_answers
from pulsar_admin.commands.topics.describing import emit_subscriptions, quick_option
from pulsar_admin.context import App
from pulsar_admin.options import NAMESPACE, TopicSelection, command, gather, pass_app, topics_argument
from pulsar_admin.store.errors import InvalidValue, MetadataCorrupt, NamespaceNotFound, TopicNotFound
from pulsar_admin.store.model.topics import iter_all_namespaces, select_partitioned
from pulsar_admin.store.names import NamespaceName, in_hash_order


class ListOptions(Struct, frozen=True):
    """Which topics to list."""

    topic_domain: str | None
    bundle: str | None
    include_system_topic: bool


@command(
    "list",
    examples=[
        "pulsar-admin topics list public/default",
        "pulsar-admin topics list acme/orders -ist -o json",
        "pulsar-admin topics list",
    ],
    output="Names, one a line, of a namespace in the order of pulsar-admin; a partitioned topic as its partitions.",
    errors=[NamespaceNotFound, InvalidValue],
)
@click.argument("namespace", type=NAMESPACE, required=False)
@click.option(
    "-td",
    "--topic-domain",
    type=click.Choice(["persistent", "non_persistent", "non-persistent"], case_sensitive=False),
    help="Only this domain; nothing of a non-persistent topic is on disk.",
)
@click.option("-b", "--bundle", metavar="0xLOW_0xHIGH", help="Only topics that hash into this bundle.")
@click.option("-ist", "--include-system-topic", is_flag=True, help="Also system topics.")
@gather(ListOptions)
@pass_app
def list_topics(app: App, namespace: NamespaceName | None, options: ListOptions) -> None:
    """List the topics of a namespace, or all topics.

    All topics are listed namespace by namespace; --bundle needs a namespace.
    """
    system, bundle = options.include_system_topic, options.bundle
    given = options.topic_domain or "persistent"
    domain: Any = given.replace("_", "-")  # Any: click checked that it is one of the two
    if bundle is not None and namespace is None:
        raise click.UsageError("--bundle: name the namespace that the bundle is of")
    with app.session.read() as txn:
        namespaces = iter_all_namespaces(txn) if namespace is None else (namespace,)
        found = (app.session.namespace(one).topics(system=system, bundle=bundle, domain=domain) for one in namespaces)
        app.emit_lines((name for names in found for name in in_hash_order(names)), "TOPIC")


@command(
    "list-partitioned-topics",
    examples=["pulsar-admin topics list-partitioned-topics acme/orders"],
    output="Names, one a line, without partition numbers.",
    errors=[NamespaceNotFound],
)
@click.argument("namespace", type=NAMESPACE)
@click.option("-ist", "--include-system-topic", is_flag=True, help="Also system topics.")
@pass_app
def list_partitioned(app: App, namespace: NamespaceName, include_system_topic: bool) -> None:
    """List the partitioned topics of a namespace."""
    with app.session.read():
        names = app.session.namespace(namespace).partitioned_topics(system=include_system_topic)
        app.emit_lines(in_hash_order(names), "TOPIC")


_METADATA_COLUMNS = (Column("PARTITIONS", "partitions", "number"), Column("DELETED", "deleted"))


@command(
    "get-partitioned-topic-metadata",
    examples=[
        "pulsar-admin topics get-partitioned-topic-metadata acme/orders/parts",
        "pulsar-admin topics get-partitioned-topic-metadata --all-topics",
    ],
    output="`partitions`, `deleted`, and `properties` where there are any; 0 partitions for a topic without.",
    errors=[TopicNotFound, MetadataCorrupt],
)
@topics_argument
@pass_app
def partitioned_metadata(app: App, selection: TopicSelection) -> None:
    """Show how many partitions a topic has."""
    with app.session.read() as txn:
        names = selection.topics or select_partitioned(txn, selection.pattern)
        found = list(app.each(names, lambda name: (name, app.session.topic(name).partitioned_metadata())))
    emit_answers(app, found, _METADATA_COLUMNS, several=selection.single is None)


_SUBSCRIPTION_COLUMNS = (TOPIC_COLUMN, Column("SUBSCRIPTIONS", lambda row: ", ".join(row["subscriptions"])))


@command(
    "subscriptions",
    examples=[
        "pulsar-admin topics subscriptions public/default/plain",
        "pulsar-admin topics subscriptions --pattern 'public/default/*'",
        "pulsar-admin topics subscriptions public/default/plain --table",
    ],
    output="Names, one a line; of a partitioned topic those of all its partitions. Several topics: one row each. With --table a row a "
    "subscription, as `topics describe` has them.",
    errors=[TopicNotFound],
    uses=["now", "spark"],
)
@topics_argument
@click.option("--table", is_flag=True, help="Position, backlog, its age, ack holes, delays and TTL of each.")
@quick_option
@pass_app
def subscriptions(app: App, selection: TopicSelection, table: bool, quick: bool) -> None:
    """List the subscriptions of a topic.

    Like pulsar-admin, leaves out the cursors of deduplication and replication and includes that of compaction.
    """
    if table:
        emit_subscriptions(app, selection, quick=quick)
        return
    with app.session.reader() as reader:
        chosen = choose(app, reader.txn, selection)
        found = dict(chosen.each(app, lambda name: app.session.topic(name).subscriptions()))
    if selection.single is not None:
        app.emit_lines(in_hash_order(dict.fromkeys(chain.from_iterable(found.values()))), "SUBSCRIPTION")
    else:
        rows = [{"topic": str(name), "subscriptions": cursors} for name, cursors in found.items()]
        app.emit_rows(rows, _SUBSCRIPTION_COLUMNS)
