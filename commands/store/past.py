"""``store history`` and ``store diff``: earlier metadata, from ZooKeeper's snapshots and transaction logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.columns import Column
from pulsar_admin.context import App, Result
from pulsar_admin.options import MOMENT, command, flag, together
from pulsar_admin.store.errors import (
    InvalidValue,
    MetadataCorrupt,
    NothingMatches,
    Refused,
    SourceNotFound,
    StoreNotFound,
)

if TYPE_CHECKING:
    from pulsar_admin.store.history.as_of import Moment
    from pulsar_admin.store.history.differences import Changed
    from pulsar_admin.store.history.events import Event
    from pulsar_admin.store.history.versions import Flaw
    from pulsar_admin.store.sources.zookeeper import Gap, ServerFiles

_COLUMNS = (
    Column("TIME", "time", "time"),
    Column("ZXID", "zxid", drop=2),
    Column("WHO", lambda row: row.get("who") or row.get("session") or "", drop=1),
    Column("OF", lambda row: row.get("of") or row.get("path") or ""),
    Column("WHAT", "what"),
)

zookeeper_options = together(
    click.option(
        "--zookeeper",
        "places",
        multiple=True,
        metavar="DIR[,LOGDIR]",
        help="Files of another server, or a copy: dataDir[,dataLogDir]; repeatable.",
    ),
    click.option("--chroot", metavar="/PATH", help="The cluster's root in ZooKeeper, if there are several clusters."),
)
"""The options that name files of ZooKeeper."""

Json = dict[str, Any]  # Any: JSON values


@command(
    "store history",
    elsewhere=[
        "public/default/orders --since -2h",
        "--zookeeper /copy/zk1 --zookeeper /copy/zk2 -o jsonl",
        "/admin/policies/public/default -o json",
    ],
    output="One row per change, oldest first: time, zxid, who, object, change; JSON: also session, path, version, old "
    "and new value. A gap in the logs is a row as well, and makes the exit code 1.",
    errors=[SourceNotFound, Refused, MetadataCorrupt, InvalidValue],
)
@click.argument("what", metavar="[PATH|TOPIC|TENANT/NAMESPACE|LEDGER]", required=False)
@click.option("--since", type=MOMENT, help="Omit changes older than a time, or than a transaction such as 0x4a1.")
@click.option("--until", type=MOMENT, help="Leave out newer changes.")
@flag("--all", "passing", help="Also load reports, bundle ownership and numbers handed out.")
@zookeeper_options
def history(
    app: App, what: str | None, since: Moment | None, until: Moment | None, passing: bool, **files: Any
) -> Result:  # Any: of ``zookeeper_options``
    """Show who changed what in the cluster's metadata, and when, from ZooKeeper's transaction logs and snapshots.

    For a topic: its list of ledgers, subscriptions, partitions, schemas and ledgers; for a path: everything below it.
    The files are those that the store was imported from and those of --zookeeper, as one server may have what
    another lost; with --zookeeper no store is needed. WHO is the broker or bookie that registered in the session of the
    change, otherwise the session id. Times are those of the ZooKeeper leader.
    """
    from pulsar_admin.api.files import iter_history
    from pulsar_admin.store.history.events import Event, Span, parse_question

    question = parse_question(what, passing=passing)
    servers, span = servers_of(app, **files), Span(since, until)

    def rows(make: Callable[[Event], Json] = _row) -> Iterator[Json]:
        is_empty = True
        for item in iter_history(app.session, servers, question, span):
            is_empty = False
            if isinstance(item, Event):
                yield make(item)
            else:
                app.problems(1)
                yield _missing_row(item)
        if is_empty:
            app.warn(f"these files contain no change of {what or 'anything'} in that time: check the name")

    return Result(rows=rows, columns=_COLUMNS, json_rows=lambda: rows(_json_row))


def servers_of(app: App, places: tuple[str, ...], chroot: str | None) -> tuple[ServerFiles, ...]:
    """Return ZooKeeper's files of the store, if there is one, and at ``places``, for the cluster at ``chroot``."""
    from pulsar_admin.store.history.servers import find_servers
    from pulsar_admin.store.sources.roots import parse_root

    root = None if chroot is None else parse_root(chroot, "--chroot")
    try:
        return find_servers(app.store.info.sources, places, root)
    except StoreNotFound:
        if not places:
            raise
        return find_servers((), places, root)


def _row(event: Event) -> dict[str, Any]:  # Any: JSON
    from pulsar_admin.store.history.words import subject_of

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
    from pulsar_admin.jsonify import node_json

    version = event.version
    before = node_json(version.path, event.before)
    return _row(event) | {"old": before, "new": node_json(version.path, version.value)}


def _missing_row(item: Gap | Flaw) -> dict[str, Any]:  # Any: JSON
    from pulsar_admin.store.sources.zookeeper import Gap

    if not isinstance(item, Gap):
        return {"kind": "damage", "path": str(item.file), "what": item.text}
    ends = {"after": f"{item.after:#x}", "before": f"{item.before:#x}", "lost": item.lost}
    return {"zxid": f"{item.before:#x}", "kind": "gap", "what": item.text} | ends


_DIFF_COLUMNS = (
    Column("CHANGE", "change"),
    Column("OF", "name"),
    Column(
        "WHAT",
        lambda row: "; ".join([*row["what"], *(f"{name}: {text}" for name, text in row["subscriptions"].items())]),
    ),
)


@command(
    "store diff",
    elsewhere=[
        "before after",
        "--from 2024-05-01T09:00:00Z --to 2024-05-01T10:00:00Z",
        "--from 0x4a1 --zookeeper /copy/zk1 -o json",
    ],
    output="One row per tenant, namespace or topic that was changed, created or deleted: the change in words, and how "
    "its subscriptions moved; other nodes by their path. JSON: also the old and the new value of each node.",
    errors=[StoreNotFound, SourceNotFound, Refused, NothingMatches, MetadataCorrupt, InvalidValue],
)
@click.argument("stores", metavar="[STORE OTHER]", nargs=-1, type=click.Path(path_type=Path))
@click.option("--from", "since", type=MOMENT, help="A time, or a transaction such as 0x4a1, of ZooKeeper's files.")
@click.option("--to", "until", type=MOMENT, help="The later moment [the end of the files].")
@flag("--all", "passing", help="Also load reports, bundle ownership and numbers handed out.")
@zookeeper_options
def diff(
    app: App, stores: tuple[Path, ...], since: Moment | None, until: Moment | None, passing: bool, **files: Any
) -> Result:  # Any: of ``zookeeper_options``
    """Show the differences between the metadata of two stores, or of two moments, by topic.

    For two stores, subscriptions are compared at their real positions, including cursor ledgers; for two moments, only
    as recorded in the metadata.
    """
    from pulsar_admin.api.files import diff_of
    from pulsar_admin.api.store import open_store

    alike = len(stores) == 2 and stores[0].resolve() == stores[1].resolve()
    if (len(stores) != 2 or alike or since or until or any(files.values())) and (stores or since is None):
        raise click.UsageError("name two stores, or --from TIME [--to TIME] for the ZooKeeper files of one")
    if since is not None:
        changes = diff_of(app.session, servers_of(app, **files), since, until, passing=passing)
    else:
        with open_store(stores[0]) as first, open_store(stores[1]) as second:
            changes = first.diff(second, passing=passing)
    return Result(
        rows=map(_changed_row, changes), columns=_DIFF_COLUMNS, json_rows=lambda: map(_json_of_changed, changes)
    )


def _changed_row(found: Changed) -> Json:
    return {name: getattr(found, name) for name in ("kind", "name", "change", "what", "subscriptions")}


def _json_of_changed(found: Changed) -> Json:
    from pulsar_admin.jsonify import node_json

    nodes = ((node, node_json(node.path, node.before), node_json(node.path, node.after)) for node in found.nodes)
    return _changed_row(found) | {
        "nodes": [{"path": node.path, "change": node.change, "old": old, "new": new} for node, old, new in nodes]
    }
