"""``ledgers forget``, ``restore``, ``delete``, ``unmark``: remove references to lost ledgers, rebuild metadata, delete orphans."""

from pathlib import Path

import click

from pulsar_admin.commands.topics.moving import read_lines, shown_path
from pulsar_admin.context import App
from pulsar_admin.numbers import whole
from pulsar_admin.options import command, flag
from pulsar_admin.store.changes.ledger_references import parse_ledger_ids
from pulsar_admin.store.errors import InvalidValue, LedgerNotFound, NotFound, Refused, SourceNotFound, StalePlan

_LEDGER_ID = whole()
zookeeper_option = click.option(
    "--zookeeper",
    "directories",
    metavar="DIR[,LOGDIR]",
    multiple=True,
    help="Also the snapshots and logs of another server; repeatable.",
)
gaps_option = flag(
    "--with-gaps", help="Keep a ledger's end even if entries before it are lost; brokers must skip them."
)

accept_option = click.option(
    "--accept-unknown-tree",
    metavar="PATH",
    multiple=True,
    help="A metadata tree of another version or program that references none of these ledgers; repeatable.",
)


@command(
    "ledgers forget",
    changes=True,
    examples=["9 --force --dry-run"],
    output="The change: the ledgers of each topic before and after, the messages dropped with them, and the cursors that were in them.",
    errors=[LedgerNotFound, Refused, StalePlan],
)
@click.argument("ledgers", type=_LEDGER_ID, nargs=-1, required=True)
@flag("--force", help="Also forget ledgers that have lost nothing.")
@accept_option
def forget(app: App, ledgers: tuple[int, ...], force: bool, accept_unknown_tree: tuple[str, ...]) -> None:
    """Remove lost ledgers from everything that references them, so that a broker continues after them.

    Topics no longer list them, and cursors inside them move to the next ledger. A compacted view, a cursor ledger or a
    bucket of delayed messages must be rebuilt; a schema keeps its remaining versions.
    """
    app.change(app.api.forget_ledgers(*ledgers, force=force, accept_unknown_tree=accept_unknown_tree))


@command(
    "ledgers restore",
    changes=True,
    elsewhere=["9", "--deleted --dry-run -o json"],
    output="The change: the new metadata of each ledger, with its end, quorums, ensembles and custom metadata; the ledgers of its topic.",
    errors=[LedgerNotFound, Refused, StalePlan, SourceNotFound],
)
@click.argument("ledgers", type=_LEDGER_ID, nargs=-1)
@flag("--deleted", help="Ledgers that a broker deleted: those named, or all that have entries here.")
@flag("--extend", help="Closed ledgers, those named or all, that end before acknowledged entries.")
@flag(
    "--to-bookies",
    "to_bookies",
    help="Ledgers, those named or all, whose entries are on other bookies than their metadata names.",
)
@zookeeper_option
@gaps_option
def restore(
    app: App,
    ledgers: tuple[int, ...],
    deleted: bool,
    extend: bool,
    to_bookies: bool,
    directories: tuple[str, ...],
    with_gaps: bool,
) -> None:
    """Rebuild the lost metadata of ledgers from their entries, the bookies that hold them, and what references them.

    All entries must be available; the ensemble must place each entry on the bookies that have it, by round robin; and
    the end must match the topic's list. If two sources disagree, the ledger is refused. A closed ledger that has its metadata, and whose
    topic should list it and does not, is put back into the list. With --deleted, a ledger gets
    the last metadata in ZooKeeper's snapshots and logs, closed before the first lost entry. No topic lists it, but
    bookies keep its entries again; `topics undelete` puts it back into a topic. A closed ledger may end before entries
    whose producer got an acknowledgement (bookkeeper#4812). --extend moves the end past those that a later entry or
    their copies prove, unless the next ledger repeats them. Clients ask the bookies that a ledger's metadata names, and
    no others. --to-bookies writes the imported bookies that have the entries into it; a ledger that cannot be closed because its
    bookies are gone is closed at its last imported entry, and, if it is named, one whose recovery fails at a damaged entry before that.
    """
    if deleted + extend + to_bookies > 1 or not (deleted or extend or to_bookies or ledgers):
        raise click.UsageError("Name LEDGERS, or one of --deleted, --extend and --to-bookies, for all that need it.")
    api = app.api
    if deleted:
        app.change(api.undelete_ledgers(*ledgers, zookeeper=directories, with_gaps=with_gaps))
    elif to_bookies:
        app.change(api.repoint_ledgers(*ledgers))
    else:
        app.change((api.extend_ledgers if extend else api.restore_ledgers)(*ledgers))


@command(
    "ledgers delete",
    changes=True,
    examples=["17 20"],
    elsewhere=["pulsar-admin ledgers orphans -o jsonl | pulsar-admin ledgers delete --from-file -"],
    output="The change: each ledger with its owner according to its metadata, and its size.",
    errors=[LedgerNotFound, Refused, StalePlan, InvalidValue],
)
@click.argument("ledgers", type=_LEDGER_ID, nargs=-1)
@click.option(
    "--from-file",
    "file",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Also the ids in a file, one per line.",
)
@flag(
    "--force",
    help="Also if something unreadable, something that is not Pulsar's, or newer metadata could reference them, or they may be the only"
    " copy of something.",
)
@accept_option
def delete(
    app: App, ledgers: tuple[int, ...], file: Path | None, force: bool, accept_unknown_tree: tuple[str, ...]
) -> None:
    """Delete the metadata of ledgers that nothing references, so that bookies free their entries.

    A ledger that a topic, cursor, schema, compaction or delayed index references is refused; all are refused while part
    of the metadata cannot be read, or is of another version or program and not accepted by name. In a file of JSON
    lines, `ledgerId` is read.
    """
    given = () if file is None else parse_ledger_ids(read_lines(file), shown_path(file))
    api = app.api
    app.change(api.delete_ledgers(*ledgers, *given, force=force, accept_unknown_tree=accept_unknown_tree))


@command(
    "ledgers unmark",
    changes=True,
    examples=[""],
    output="The change: each mark with the bookies that it says lack entries, and whether the ledger is gone.",
    errors=[NotFound, Refused, StalePlan],
)
@click.argument("ledgers", type=_LEDGER_ID, nargs=-1)
@flag("--force", help="Also the marks of ledgers that lack copies, or may lack some.")
def unmark(app: App, ledgers: tuple[int, ...], force: bool) -> None:
    """Remove the under-replication marks of ledgers that are gone or complete.

    Of LEDGERS, or of all. Autorecovery takes up the mark of a ledger that does not exist again and again. A mark whose ledger lacks copies,
    or is on bookies that are not imported, stays unless it is named with --force.
    """
    app.change(app.api.unmark_ledgers(*ledgers, force=force))
