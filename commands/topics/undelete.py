"""``topics undelete``, ``topics restore``: topics come back from ZooKeeper's history and the disks of bookies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from commands.mending import gaps_option, zookeeper_option
from pulsar_admin.columns import Column
from pulsar_admin.context import App
from pulsar_admin.options import NAMESPACE, TIME_POINT, TOPIC, command, pass_app
from store.errors import (
    AlreadyExists,
    InvalidValue,
    NamespaceNotFound,
    Refused,
    SourceNotFound,
    StalePlan,
    TopicNotFound,
)
from store.model.reader import EntryReader
from store.names import NamespaceName, TopicName

if TYPE_CHECKING:
    from store.recovery.past import Keep, Past
    from store.recovery.undelete import Undelete

_TO = click.option("--to", metavar="TOPIC", type=TOPIC, help="Under this name, of one topic [TOPIC-restored].")
_COPY = click.option(
    "--copy", is_flag=True, help="Copy the entries into new ledgers, where bookies have forgotten the old ones."
)
_HOLD = click.option(
    "--hold",
    metavar="NAME",
    default="restored",
    show_default=True,
    help="The subscription that keeps what no other one does; '' for none.",
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
    writes_first=True,
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
@click.option("--in-place", is_flag=True, help="Under its own name; what is there keeps what it has.")
@click.option("--trimmed", is_flag=True, help="Of a deleted topic also the ledgers that were trimmed before.")
@gaps_option
@click.option(
    "--by-evidence", is_flag=True, help="Without ZooKeeper's history: ledgers that belong together by what entries say."
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
    **options: Any,  # Any: the fields of Undelete
) -> None:
    """Bring back deleted topics, or what was trimmed of topics, as far as bookies still hold the entries.

    What the topic was comes from ZooKeeper's snapshots and transaction logs: its ledgers with their metadata, its subscriptions
    where they stood, partitions, schema, properties, policies. It comes back as TOPIC-restored, because deleted data may be data
    that had to go. Where no history is left, --by-evidence goes by producers' sequences and what else entries say, without
    subscriptions; what nothing names is called lost-and-found/ledgers/from-LEDGER. Of a topic that is there, ledgers that were
    trimmed come back. A ledger ends in front of the first entry that is lost. One that anything references is refused, because two
    topics would delete it for each other.
    """
    from store.recovery.restore import plan_undelete
    from store.recovery.undelete import Undelete, find_deleted, keep_of

    asked = Undelete(**options)
    if to is not None and (asked.in_place or namespaces or len(topics) != 1):
        raise click.UsageError("--to names one topic that comes back, without --in-place.")
    if not topics and not namespaces:
        _list(app, directories, by_evidence, asked)
        return
    with app.session.reader() as reader:
        past = _read_past(
            reader, directories, keep_of((*(topic.namespace for topic in topics), *namespaces)), by_evidence
        )
        plan = plan_undelete(reader, find_deleted(past, topics, namespaces), past, asked, app.now_ms, to)
    app.change(plan)


def _list(app: App, directories: tuple[str, ...], by_evidence: bool, asked: Undelete) -> None:
    from store.recovery.gone import iter_gone, keeps_topics

    if asked.in_place or app.settings.plan is not None:
        raise click.UsageError(
            "Name topics, or --namespace; without both and without --in-place and --plan they are listed."
        )
    with app.session.reader() as reader:
        past = _read_past(reader, directories, keeps_topics, by_evidence)
        app.emit_rows(iter_gone(reader.txn, past), _GONE)
    for gap in past.gaps:
        app.warn(f"the history is not whole: {gap}")
    app.tell("what would come back: pulsar-admin topics undelete TOPIC --dry-run")


def _read_past(reader: EntryReader, directories: tuple[str, ...], keep: Keep, by_evidence: bool) -> Past:
    from store.history.servers import find_servers
    from store.recovery.past import read_past

    if by_evidence:
        from store.recovery.by_evidence import read_past_by_evidence

        return read_past_by_evidence(reader)
    return read_past(find_servers(reader.txn.store.info.sources, directories), keep)


@command(
    "restore",
    changes=True,
    writes_first=True,
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
    "--in-place", is_flag=True, help="In the topic itself: nothing that is there goes, subscriptions go back."
)
@_COPY
@_HOLD
@zookeeper_option
@pass_app
def restore(
    app: App, topic: TopicName, at_ms: int, to: TopicName | None, directories: tuple[str, ...], **options: Any
) -> None:
    """Bring a topic back as it was at a time: its ledgers, and its subscriptions where they stood.

    What it was comes from ZooKeeper's snapshots and transaction logs, and where a subscription stood also from its cursor ledgers: of
    several states that may have been in force the oldest, so that messages come twice rather than never. Beside the topic, as
    TOPIC-restored, it ends with the last entry of then, and what a topic still references is copied. --in-place brings trimmed ledgers
    back, and sets the subscriptions; what came since stays.
    """
    from store.history.servers import find_servers
    from store.recovery.past import read_past
    from store.recovery.restore import RestoreAt, plan_restore_at
    from store.recovery.undelete import Undelete, keep_of

    servers = find_servers(app.store.info.sources, directories)
    past = read_past(servers, keep_of([topic.namespace]), at_ms)
    wanted = RestoreAt(topic, at_ms, Undelete(**options), to)
    with app.session.reader() as reader:
        plan = plan_restore_at(reader, wanted, past, servers, app.now_ms)
    app.change(plan)
