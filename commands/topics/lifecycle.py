"""Topics created, ended and brought back: ``topics create``, ``terminate``, ``truncate``, ``delete``, ``undelete`` and their kind."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.columns import Column
from pulsar_admin.commands.ledger_repairs import gaps_option, zookeeper_option
from pulsar_admin.commands.topics.moving import read_lines
from pulsar_admin.context import App, Printed, Result, Shown
from pulsar_admin.options import NAMESPACE, TIME_POINT, TOPIC, command, flag
from pulsar_admin.store.errors import (
    AlreadyExists,
    InvalidValue,
    NamespaceNotFound,
    Refused,
    SourceNotFound,
    StalePlan,
    TopicNotFound,
)
from pulsar_admin.store.names import NamespaceName, TopicName, parse_topic
from pulsar_admin.upstream import mirrored, parse_pairs

if TYPE_CHECKING:
    from pulsar_admin.api.plan import Plan


_METADATA = {"metadata": "A property, KEY=VALUE; may be repeated."}
_CREATES: Any = {"changes": True, "errors": [AlreadyExists, NamespaceNotFound, InvalidValue, StalePlan]}
_ENDS: Any = {"changes": True, "errors": [TopicNotFound, Refused, StalePlan]}  # Any: keywords of click


@mirrored("topics create", "public/default/made -m owner=billing", helps=_METADATA, **_CREATES)
def create(app: App, topic: TopicName, metadata: tuple[str, ...]) -> None:
    """Create a topic without partitions.

    It has no ledger until a broker loads it.
    """
    app.change(app.api.create_topic(str(topic), properties=parse_pairs(metadata)))


@mirrored(
    "topics create-partitioned-topic",
    "public/default/made -p 4",
    helps={**_METADATA, "partitions": "How many partitions."},
    **_CREATES,
)
def create_partitioned(app: App, topic: TopicName, partitions: int, metadata: tuple[str, ...]) -> None:
    """Create a partitioned topic and its partitions."""
    app.change(app.api.create_topic(str(topic), partitions=partitions, properties=parse_pairs(metadata)))


@mirrored("topics create-missed-partitions", "acme/orders/parts", changes=True, errors=[TopicNotFound, StalePlan])
def create_missed(app: App, topic: TopicName) -> None:
    """Create the missing partitions of a partitioned topic."""
    app.change(app.topic(topic).create_missed_partitions())


@mirrored(
    "topics update-partitioned-topic",
    "acme/orders/parts -p 8",
    changes=True,
    errors=[InvalidValue, Refused, StalePlan],
    helps={
        "partitions": "The new number of partitions; never fewer than now.",
        "update_local_only": "Accepted and ignored: a store has one cluster.",
        "force": "Accepted and ignored: existing partitions are always kept.",
    },
)
def update_partitioned(app: App, topic: TopicName, partitions: int, update_local_only: bool, force: bool) -> None:
    """Add partitions to a partitioned topic.

    The new ones get the subscriptions of the first partition, at their end. Keys map to other partitions from then on.
    """
    app.change(app.topic(topic).set_partitions(partitions))


@mirrored(
    "topics create-shadow-topic",
    "public/default/shadow -s public/default/plain",
    changes=True,
    errors=[AlreadyExists, NamespaceNotFound, TopicNotFound, StalePlan],
    helps={"source": "The topic whose entries it shows.", "properties": "A property, KEY=VALUE; may be repeated."},
)
def create_shadow(app: App, topic: TopicName, source: str, properties: dict[str, str]) -> None:
    """Create a shadow topic: it shows the entries of another topic and has its own subscriptions."""
    app.change(app.api.create_shadow_topic(str(topic), source, properties=properties))


@mirrored(
    "topics get-shadow-source",
    elsewhere=["public/default/shadow"],
    output="The topic's name, or `null`.",
    errors=[TopicNotFound],
)
def get_shadow_source(app: App, topic: TopicName) -> Shown:
    """Show the source topic of a shadow topic."""
    return Printed(app.topic(topic).shadow_source())


_ENDED = "Nothing, like pulsar-admin; the change, what a broker then deletes, and the undo command are on stderr."
_DELETES = {
    "force": "Also delete a transaction log, and a topic with unreadable metadata: ledgers that only such parts name stay.",
    "delete_schema": "Accepted and ignored: the schema always goes, as with a broker.",
}


@mirrored(
    "topics terminate",
    "public/default/plain",
    output="The position of the last entry, in a sentence.",
    **_ENDS,
)
def terminate(app: App, topic: TopicName) -> Shown:
    """Terminate a topic: no more messages can be added."""
    plan = app.topic(topic).terminate()
    ((_, end),) = _ends(plan)
    app.change(plan)
    return Printed(f"Topic successfully terminated at {end}:-1", of_change=True)


@mirrored(
    "topics partitioned-terminate",
    "acme/orders/parts",
    output="A sentence per partition, with the position of its last entry.",
    **_ENDS,
)
def partitioned_terminate(app: App, topic: TopicName) -> Shown:
    """Terminate all partitions of a topic: no more messages can be added."""
    plan = app.topic(topic).terminate(partitioned=True)
    ends = _ends(plan)
    app.change(plan)
    return Printed([f"Topic {name} successfully terminated at {end}:-1" for name, end in ends], of_change=True)


def _ends(plan: Plan) -> list[tuple[str | None, str]]:
    return [(part.topic, (part.after or {})["terminatedPosition"]) for part in plan.preview().parts]


@mirrored("topics trim-topic", "public/default/plain", changes=True, output=_ENDED, errors=[TopicNotFound, StalePlan])
def trim(app: App, topic: TopicName) -> None:
    """Delete the ledgers of a topic that every subscription has consumed and retention does not keep, except the last
    one.
    """
    app.change(app.topic(topic).trim())


@mirrored("topics truncate", "public/default/plain", output=_ENDED, **_ENDS)
def truncate(app: App, topic: TopicName) -> None:
    """Move every subscription of a topic to its end and delete its ledgers except the last one, regardless of
    retention.
    """
    app.change(app.topic(topic).truncate())


@mirrored(
    "topics delete",
    "public/default/plain",
    "-r 'public/default/.*'",
    changes=True,
    texts=["topic"],
    output=_ENDED,
    errors=[TopicNotFound, Refused, InvalidValue, StalePlan],
    helps={
        **_DELETES,
        "r": "TOPIC is an expression that full names in its namespace match.",
        "from_file": "TOPIC is a file of names, one per line.",
    },
)
def delete(app: App, topic: str, force: bool, delete_schema: bool, r: bool, from_file: bool) -> None:
    """Delete a topic with its subscriptions, ledgers, schema and policies.

    Undo restores all of it until it is exported. Several topics are one change.
    """
    if r and from_file:
        raise InvalidValue("Could not apply regex when read topics from file.")
    names = read_lines(Path(topic)) if from_file else _matching(app, topic) if r else [topic]
    app.change(app.api.delete_topics(*names, force=force))


@mirrored("topics delete-partitioned-topic", "acme/orders/parts", output=_ENDED, helps=_DELETES, **_ENDS)
def delete_partitioned(app: App, topic: TopicName, force: bool, delete_schema: bool) -> None:
    """Delete a partitioned topic and its partitions with their subscriptions, ledgers, schema and policies.

    Undo restores all of it until it is exported.
    """
    app.change(app.api.delete_topics(str(topic), partitioned=True, force=force))


def _matching(app: App, expression: str) -> list[str]:
    """Return the topics whose whole name matches the regular expression, among those of the namespace that it begins with."""
    base = parse_topic(expression)
    try:
        pattern = re.compile(str(base))
    except re.error as error:
        raise InvalidValue(f"{expression!r} is not a regular expression: {error}") from error
    return [name for name in app.api.topics(str(base.namespace)) if pattern.fullmatch(name)]


_TO = click.option("--to", metavar="TOPIC", type=TOPIC, help="The name for one restored topic [TOPIC-restored].")
_COPY = flag("--copy", help="Copy the entries into new ledgers if bookies no longer know the old ones.")
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
    Column("CREATED AGAIN", "recreated_ms", "time", drop=1),
    Column("LEDGERS", "ledgers", "number", drop=2),
    Column("HERE", "here", "number", drop=3),
    Column("ENTRIES HERE", "entries", "number"),
)


@command(
    "topics undelete",
    changes=True,
    elsewhere=["", "public/default/orders --dry-run", "--namespace acme/orders --in-place --zookeeper /copy/zk2"],
    output="The change: each topic with its ledgers, its entries and the lost ranges, and the position of each "
    "subscription. Without topics, one row per topic: when it was deleted (- if it exists), the ledgers that it no "
    "longer lists, and how many of these, with how many entries, are still on disk.",
    errors=[TopicNotFound, NamespaceNotFound, AlreadyExists, Refused, SourceNotFound, InvalidValue, StalePlan],
)
@click.argument("topics", type=TOPIC, nargs=-1)
@click.option(
    "--namespace",
    "namespaces",
    type=NAMESPACE,
    multiple=True,
    help="Every deleted topic of this namespace, its policies and its tenant; repeatable.",
)
@_TO
@flag("--in-place", help="Restore under the original name; existing data is kept.")
@flag("--trimmed", help="For a deleted topic, also the ledgers that were trimmed before.")
@gaps_option
@flag("--by-evidence", help="Without ZooKeeper's history: group ledgers by the contents of their entries.")
@_COPY
@_HOLD
@zookeeper_option
def undelete(
    app: App,
    topics: tuple[TopicName, ...],
    namespaces: tuple[NamespaceName, ...],
    to: TopicName | None,
    directories: tuple[str, ...],
    by_evidence: bool,
    **options: Any,  # Any: of Store.undelete
) -> Result | None:
    """Restore deleted topics, or trimmed parts of topics, if bookies still have the entries.

    The topic is taken from ZooKeeper's snapshots and transaction logs: its ledgers with their metadata, its
    subscriptions at their positions, partitions, schema, properties, policies. It is restored as TOPIC-restored,
    because data may have been deleted deliberately. Without such a history, --by-evidence uses producers' sequences and
    other contents of entries, without subscriptions; ledgers without a name become lost-and-found/ledgers/from-LEDGER.
    For an existing topic, trimmed ledgers are restored; one that was created again under its name counts as deleted.
    A ledger ends before its first lost entry. Ledgers that are still referenced are refused, because one topic would
    delete them for the other.
    """
    where: dict[str, Any] = {"zookeeper": directories, "by_evidence": by_evidence}  # Any: of Store.undelete
    if topics or namespaces:
        back = options | where | {"namespaces": [*map(str, namespaces)], "to": to and str(to)}
        app.change(app.api.undelete(*map(str, topics), **back))
        return None
    if options["in_place"] or to is not None or app.settings.plan is not None:
        raise click.UsageError(
            "Name topics, or --namespace; without both and without --in-place, --to and --plan they are listed."
        )
    note = "show what would be restored: pulsar-admin topics undelete TOPIC --dry-run"
    gone = app.api.deleted_topics(**where)
    columns = (
        _GONE if any(one.recreated_ms is not None for one in gone) else tuple(one for one in _GONE if one.drop != 1)
    )
    return Result(rows=gone, columns=columns, notes=[note])


@command(
    "topics restore",
    changes=True,
    elsewhere=[
        "public/default/orders --at 2026-11-21T09:30:00Z --dry-run",
        "public/default/orders --at now-2h --in-place",
    ],
    output="The change: the topic with its ledgers and entries of that time, and the position of each subscription.",
    errors=[TopicNotFound, NamespaceNotFound, AlreadyExists, Refused, SourceNotFound, InvalidValue, StalePlan],
)
@click.argument("topic", type=TOPIC)
@click.option("--at", "at_ms", type=TIME_POINT, required=True, help="As it was at that time.")
@_TO
@flag("--in-place", help="Restore in the topic itself: nothing is deleted, subscriptions move back.")
@_COPY
@_HOLD
@zookeeper_option
def restore(
    app: App, topic: TopicName, at_ms: int, to: TopicName | None, directories: tuple[str, ...], **options: Any
) -> None:
    """Restore a topic as it was at a point in time: its ledgers, and its subscriptions at their positions.

    Taken from ZooKeeper's snapshots and transaction logs, and for subscriptions also from their cursor ledgers: if
    several states may have been in force, consumers get what any of them had left, so that nothing is lost. The
    result, TOPIC-restored, ends with the last entry of that time; ledgers that a topic still references are
    copied. --in-place restores trimmed ledgers and sets the subscriptions; newer data is kept.
    """
    back = options | {"to": to and str(to), "zookeeper": directories}
    app.change(app.api.restore(str(topic), at=at_ms, **back))
