"""``store history``: what ZooKeeper's snapshots and transaction logs have of earlier metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.columns import Column
from pulsar_admin.context import App
from pulsar_admin.options import MOMENT, command, pass_app
from store.errors import InvalidValue, MetadataCorrupt, Refused, SourceNotFound, StoreNotFound

if TYPE_CHECKING:
    from store.history.as_of import Moment
    from store.history.events import Event, Question, Span
    from store.history.versions import Flaw
    from store.sources.zookeeper import Gap, ServerFiles

_COLUMNS = (
    Column("TIME", "time", "time"),
    Column("ZXID", "zxid", drop=2),
    Column("WHO", lambda row: row.get("who") or row.get("session") or "", drop=1),
    Column("OF", lambda row: row.get("of") or row.get("path") or ""),
    Column("WHAT", "what"),
)

zookeeper_option = click.option(
    "--zookeeper",
    "places",
    multiple=True,
    metavar="DIR[,LOGDIR]",
    help="Files of another server, or a copy of them: dataDir[,dataLogDir]; repeatable.",
)


@command(
    "history",
    examples=[],
    elsewhere=[
        "pulsar-admin store history public/default/orders --since -2h",
        "pulsar-admin store history --zookeeper /copy/zk1 --zookeeper /copy/zk2 -o jsonl",
        "pulsar-admin store history /admin/policies/public/default -o json",
    ],
    output="A row a change, oldest first: when, zxid, who, of what, what; JSON: also session, path, version, old and new value. What"
    " is missing in the logs is a row, too, and makes the exit code 1.",
    errors=[SourceNotFound, Refused, MetadataCorrupt, InvalidValue],
)
@click.argument("what", metavar="[PATH|TOPIC|TENANT/NAMESPACE|LEDGER]", required=False)
@click.option("--since", type=MOMENT, help="Leave out what is older than a time, or than a transaction such as 0x4a1.")
@click.option("--until", type=MOMENT, help="Leave out what is newer.")
@click.option("--all", "passing", is_flag=True, help="Also load reports, bundle ownership and numbers handed out.")
@zookeeper_option
@pass_app
def history(
    app: App, what: str | None, since: Moment | None, until: Moment | None, passing: bool, places: tuple[str, ...]
) -> None:
    """Show who changed what in the cluster's metadata, and when, from ZooKeeper's transaction logs and snapshots.

    Of a topic: its list of ledgers, subscriptions, partitions, schemas and ledgers; of a path: all below it. The files are those that the
    store was imported from and those of --zookeeper, of which one server has what another lost; with --zookeeper no store is needed.
    Who is the broker or bookie that registered in the session of the change, else the session's id. Times are those of the leader.
    """
    from store.history.events import Span, parse_question

    question = parse_question(what, passing=passing)
    app.emit_rows(_rows(app, servers_of(app, places), question, Span(since, until)), _COLUMNS)


def servers_of(app: App, places: tuple[str, ...]) -> tuple[ServerFiles, ...]:
    """Return ZooKeeper's files of the store and at PLACES; without a store those at PLACES alone."""
    from store.history.servers import find_servers

    try:
        return find_servers(app.store.info.sources, places)
    except StoreNotFound:
        if not places:
            raise
        return find_servers((), places)


def _rows(app: App, servers: tuple[ServerFiles, ...], question: Question, span: Span) -> Iterator[dict[str, Any]]:
    from store.history.events import Event, iter_events
    from store.history.versions import log_bytes

    make: Callable[[Event], dict[str, Any]] = _json_row if app.settings.output in ("json", "jsonl") else _row
    with app.progress(log_bytes(servers), "bytes", "history") as progress:
        for item in iter_events(servers, question, span, progress.advance):
            if isinstance(item, Event):
                yield make(item)
            else:
                app.problems(1)
                yield _missing_row(item)


def _row(event: Event) -> dict[str, Any]:  # Any: JSON
    from store.history.words import subject_of

    version = event.version
    return {
        "zxid": f"{version.zxid:#x}",
        "time": version.time_ms,
        "session": None if version.session is None else f"{version.session:#x}",
        "who": event.who or None,
        "kind": version.kind,
        "path": version.path,
        "of": subject_of(version.path) or None,
        "version": version.version,
        "what": event.what,
    }


def _json_row(event: Event) -> dict[str, Any]:  # Any: JSON
    from commands.store.inspect import readable_node

    version = event.version
    before = readable_node(version.path, event.before)
    return _row(event) | {"old": before, "new": readable_node(version.path, version.value)}


def _missing_row(item: Gap | Flaw) -> dict[str, Any]:  # Any: JSON
    from store.sources.zookeeper import Gap

    if not isinstance(item, Gap):
        return {"kind": "damage", "path": str(item.file), "what": item.text}
    ends = {"after": f"{item.after:#x}", "before": f"{item.before:#x}", "lost": item.lost}
    return {"zxid": f"{item.before:#x}", "kind": "gap", "what": item.text} | ends
