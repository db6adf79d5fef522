"""``store export tables`` writes a store's data as Parquet for other engines; ``store import tables`` reads it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.context import App, Result
from pulsar_admin.options import ColumnsOf, command, flag
from pulsar_admin.store import errors
from pulsar_admin.store.names import PROFILES
from pulsar_admin.store.wording import counted

if TYPE_CHECKING:
    from pulsar_admin.store.tables.importing import TablesImported


@command(
    "store export tables",
    examples=[
        "tables",
        "tables --only topics,ledgers,cursors",
        "tables --only topics,messages --payload",
        "spark --messages --columns pulsar-spark",
        "fleet --iceberg --messages",
    ],
    elsewhere=[
        "s3://fleet/tables --cluster eu-1 --spark --spark-master spark://head:7077",
        "s3://fleet/tables --cluster eu-1 --iceberg --catalog http://catalog:8181",
    ],
    output="Each table: its rows, files and bytes, and the rows that it had before; entries with a wrong digest and bytes that are no "
    "records, in numbers.",
    errors=[
        errors.InvalidValue,
        errors.MissingComponent,
        errors.Refused,
        errors.StalePlan,
        errors.StoreBusy,
        errors.SourceNotFound,
        errors.SliceFailed,
        errors.DiskFull,
        errors.NotWritable,
        errors.Corrupt,
    ],
    uses=["spark"],
    no_preview=True,
)
@click.argument("directory", metavar="DIRECTORY|URL")
@click.option("--cluster", metavar="NAME", help="The cluster's name in the tables [that of its metadata].")
@click.option("--only", metavar="TABLE[,TABLE…]", default="", help="Write these tables; the others stay as they are.")
@flag("--messages", help="Also messages, with values decoded by their schemas.")
@flag("--payload", help="Also payloads of messages.")
@click.option(
    "--columns",
    type=ColumnsOf(PROFILES),
    help="Of messages, as a consumer sees them, under the names and types that the Spark connector gives them; values are bytes.",
)
@flag("--iceberg", help="Write Apache Iceberg tables, partitioned by cluster.")
@click.option(
    "--catalog",
    metavar="NAME|URI",
    help="The Iceberg catalogue: http://…, sqlite:///…, or one of pyiceberg's configuration [catalog.db in DIRECTORY].",
)
def export(app: App, directory: str, messages: bool, only: str, iceberg: bool, **given: Any) -> Result:  # Any: options
    """Write what the store knows as Parquet tables: topics, ledgers, cursors, entries and more.

    Files are in TABLE/cluster=NAME/ and listed in tables.json. Exporting a cluster again replaces its tables; those of
    other clusters are kept beside them, so that one query covers all. Either everything becomes visible, or nothing.
    Entries are read from the files again, with every digest: here, in processes (--jobs), or by Spark executors
    (--spark), which write the tables themselves and must see the same paths. --messages also writes one row per
    message. Columns: docs/formats/tables.md.

    --iceberg commits the same files to Iceberg tables, one commit per table, in which they replace the cluster's rows.
    See docs/howto/fleet.md.
    """
    names = [name.strip() for name in only.split(",") if name.strip()]
    return Result(app.api.export_tables(directory, only=names, messages=messages, iceberg=iceberg, **given))


@command(
    "store import tables",
    elsewhere=["pulsar-admin --store eu-1 store import tables s3://fleet/tables --cluster eu-1"],
    output="What was loaded: nodes, ledgers, entries, and the files that hold the entries.",
    errors=[
        errors.SourceNotFound,
        errors.NotFound,
        errors.InvalidValue,
        errors.Unsupported,
        errors.SourceChanged,
        errors.Corrupt,
        errors.AlreadyExists,
        errors.DiskFull,
        errors.NotWritable,
    ],
    no_preview=True,
)
@click.argument("place", metavar="DIRECTORY|URL")
@click.option("--cluster", metavar="NAME", help="The cluster whose tables to load, if there are several.")
def import_tables(app: App, place: str, cluster: str | None) -> Result:
    """Create a store from the tables that `store export tables` wrote.

    It needs the tables nodes, rows, bodies and entries of one export: they contain what the exported store knew,
    including its changes and their undo. Messages are read from the entry logs, where these were at the export.
    """
    from pulsar_admin.api.transfers import load_tables

    done = load_tables(app.session, place, app.store_path, cluster)
    app.tell_incomplete_tables(done.incomplete)
    elsewhere = (
        f"{counted(done.elsewhere, 'file of entries is', 'files of entries are')} not reachable from here: the index answers, and what"
        " reads messages fails until they are at the paths of the export"
    )
    return Result(done, plain=_render_import, notes=[elsewhere] * bool(done.elsewhere))


def _render_import(done: TablesImported) -> str:
    from pulsar_admin.commands.store.importing import text_rows

    rows = [
        ("store", done.store),
        ("source", f"{done.source}, cluster {done.cluster}"),
        ("metadata nodes", f"{done.nodes:,}"),
        ("ledgers", f"{done.ledgers:,}"),
        ("entries", f"{done.entries:,}"),
        ("files", f"{done.files:,}"),
    ]
    return text_rows(rows)
