"""``topics undelete``, ``topics restore``: topics come back from ZooKeeper's history and the disks of bookies."""

from __future__ import annotations

from typing import Any

import click

from pulsar_admin.columns import Column
from pulsar_admin.commands.mending import gaps_option, zookeeper_option
from pulsar_admin.context import App
from pulsar_admin.options import NAMESPACE, TIME_POINT, TOPIC, command, pass_app
from pulsar_admin.store.errors import (
    AlreadyExists,
    InvalidValue,
    NamespaceNotFound,
    Refused,
    SourceNotFound,
    StalePlan,
    TopicNotFound,
)
from pulsar_admin.store.names import NamespaceName, TopicName

_TO = click.option("--to", metavar="TOPIC", type=TOPIC, help="The name for one restored topic [TOPIC-restored].")
_COPY = click.option(
    "--copy", is_flag=True, help="Copy the entries into new ledgers if bookies no longer know the old ones."
)
_HOLD = click.option(
    "--hold",
    metavar="NAME",
    default="restored",
    show_default=True,
    help="The subscription that retains entries that no other one does; '' for none.",
)
_GONE = (
    Column("TOPIC", "topic"),
    Column("DELETED", "deleted_ms", "time"),
    Column("LEDGERS", "ledgers", "number"),
    Column("HERE", "here", "number"),
    Column("ENTRIES HERE", "entries", "number"),
)


@command(
    "undelete",
    changes=True,
    examples=[],
    elsewhere=[
        "pulsar-admin topics undelete",
        "pulsar-admin topics undelete public/default/orders --dry-run",
        "pulsar-admin topics undelete --namespace acme/orders --in-place --zookeeper /copy/zk2",
    ],
    output="The change: each topic with its ledgers, entries and what is lost of them range by range, and where each subscription stands. "
    "Without topics, one row per topic: when it was deleted (- for one that is there), the ledgers that it no longer lists, and how "
    "many of them, with how many entries, are here.",
    errors=[TopicNotFound, NamespaceNotFound, AlreadyExists, Refused, SourceNotFound, InvalidValue, StalePlan],
)
@click.argument("topics", type=TOPIC, nargs=-1)
@click.option(
    "--namespace",
    "namespaces",
    type=NAMESPACE,
    multiple=True,
    help="Every deleted topic of it, its policies and its tenant; repeatable.",
)
@_TO
@click.option("--in-place", is_flag=True, help="Restore under the original name; existing data is kept.")
@click.option("--trimmed", is_flag=True, help="For a deleted topic, also the ledgers that were trimmed before.")
@gaps_option
@click.option(
    "--by-evidence", is_flag=True, help="Without ZooKeeper's history: group ledgers by the contents of their entries."
)
@_COPY
@_HOLD
@zookeeper_option
@pass_app
def undelete(
    app: App,
    topics: tuple[TopicName, ...],
    namespaces: tuple[NamespaceName, ...],
    to: TopicName | None,
    directories: tuple[str, ...],
    by_evidence: bool,
    **options: Any,  # Any: of Store.undelete
) -> None:
    """Restore deleted topics, or trimmed parts of topics, if bookies still have the entries.

    The topic is taken from ZooKeeper's snapshots and transaction logs: its ledgers with their metadata, its
    subscriptions at their positions, partitions, schema, properties, policies. It is restored as TOPIC-restored,
    because data may have been deleted deliberately. Without such a history, --by-evidence uses producers' sequences and
    other contents of entries, without subscriptions; ledgers without a name become lost-and-found/ledgers/from-LEDGER.
    For an existing topic, trimmed ledgers are restored. A ledger ends before its first lost entry. Ledgers that are
    still referenced are refused, because one topic would delete them for the other.
    """
    if to is not None and (options["in_place"] or namespaces or len(topics) != 1):
        raise click.UsageError("--to names one topic that comes back, without --in-place.")
    where: dict[str, Any] = {"zookeeper": directories, "by_evidence": by_evidence}  # Any: of Store.undelete
    if topics or namespaces:
        back = options | where | {"namespaces": [*map(str, namespaces)], "to": to and str(to)}
        app.change(app.session.api.undelete(*map(str, topics), **back))
        return
    if options["in_place"] or app.settings.plan is not None:
        raise click.UsageError(
            "Name topics, or --namespace; without both and without --in-place and --plan they are listed."
        )
    app.emit_rows(app.session.api.deleted_topics(**where), _GONE)
    app.tell("show what would be restored: pulsar-admin topics undelete TOPIC --dry-run")


@command(
    "restore",
    changes=True,
    examples=[],
    elsewhere=[
        "pulsar-admin topics restore public/default/orders --at 2026-11-21T09:30:00Z --dry-run",
        "pulsar-admin topics restore public/default/orders --at now-2h --in-place",
    ],
    output="The change: the topic with its ledgers and entries of then, and where each subscription stood.",
    errors=[TopicNotFound, NamespaceNotFound, AlreadyExists, Refused, SourceNotFound, InvalidValue, StalePlan],
)
@click.argument("topic", type=TOPIC)
@click.option("--at", "at_ms", type=TIME_POINT, required=True, help="As it was at that time.")
@_TO
@click.option(
    "--in-place", is_flag=True, help="Restore in the topic itself: nothing is deleted, subscriptions move back."
)
@_COPY
@_HOLD
@zookeeper_option
@pass_app
def restore(
    app: App, topic: TopicName, at_ms: int, to: TopicName | None, directories: tuple[str, ...], **options: Any
) -> None:
    """Restore a topic as it was at a point in time: its ledgers, and its subscriptions at their positions.

    Taken from ZooKeeper's snapshots and transaction logs, and for subscriptions also from their cursor ledgers: if
    several states may have been in force, consumers get what any of them had left, so that nothing is lost. The
    result is TOPIC-restored, which ends with the last entry of that time; ledgers that a topic still references are
    copied. --in-place restores trimmed ledgers and sets the subscriptions; newer data is kept.
    """
    back = options | {"to": to and str(to), "zookeeper": directories}
    app.change(app.session.api.restore(str(topic), at=at_ms, **back))
