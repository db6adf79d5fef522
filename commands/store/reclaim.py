"""``store reclaim``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from pulsar_admin.columns import Column, caution, size_text
from pulsar_admin.commands.mending import accept_option
from pulsar_admin.commands.store.clusters import bookies_of, conf_options, root_options, zookeeper_client
from pulsar_admin.context import App
from pulsar_admin.numbers import PERCENT
from pulsar_admin.options import command, pass_app
from pulsar_admin.store.errors import (
    DiskFull,
    IndexCorrupt,
    InvalidValue,
    MetadataCorrupt,
    NotFound,
    NotWritable,
    Refused,
    SourceBusy,
    SourceNotFound,
    StalePlan,
    Unsupported,
)
from pulsar_admin.store.wording import counted

if TYPE_CHECKING:
    from pulsar_admin.api.disks import ReclaimOptions
    from pulsar_admin.store.disks.reclaim import ReclaimPlan, ReclaimResult

_PATH = click.Path(path_type=Path)
_LOGS = (
    Column("LOG", lambda row: str(row.path)),
    Column("ON DISK", lambda row: row.size_bytes, "bytes", sums=True),
    Column("LIVE", lambda row: row.live_bytes, "bytes", sums=True),
    Column("DEAD", lambda row: row.dead_bytes, "bytes", tone=caution, sums=True),
    Column("ENTRIES", lambda row: row.entries, "number", drop=1),
    Column("IS TO", lambda row: row.action),
    Column("FREES", lambda row: row.frees_bytes, "bytes", sums=True),
    Column("WHY", lambda row: row.reason, "prose"),
)


@command(
    "reclaim",
    changes=True,
    no_plan="what it deletes is not kept as a plan",
    examples=[],
    elsewhere=[
        "pulsar-admin store reclaim --bookie-conf bookkeeper.conf --zookeeper zk1:2181 --dry-run",
        "pulsar-admin store reclaim /disks/bk1/ledgers0,/disks/bk1/journal0 --scratch /mnt/other --yes",
    ],
    output="With --dry-run each entry log: what of it lives, what is done with it, what that frees. Else what was freed, how many entries "
    "moved, which logs were passed over or left; exit code 1 when there are any.",
    errors=[
        InvalidValue,
        Refused,
        SourceNotFound,
        SourceBusy,
        NotFound,
        Unsupported,
        StalePlan,
        MetadataCorrupt,
        IndexCorrupt,
        NotWritable,
        DiskFull,
    ],
)
@click.argument("bookies", nargs=-1, metavar="[[ID=]DIR[,DIR]]")
@conf_options
@click.option(
    "--zookeeper", metavar="PLACE", help="ZooKeeper's dataDir[,dataLogDir], or HOST:PORT[,HOST:PORT][/CHROOT]."
)
@root_options
@zookeeper_client
@click.option("--metadata", type=_PATH, metavar="DIR", help="A metadata store in RocksDB, instead of --zookeeper.")
@click.option(
    "--below",
    "below_percent",
    type=PERCENT,
    default=50,
    show_default=True,
    metavar="PERCENT",
    help="Compact logs with a smaller live share.",
)
@click.option(
    "--scratch", type=_PATH, metavar="DIR", help="A directory on another disk, for logs while there is no free space."
)
@click.option("--force", is_flag=True, help="Trust metadata that may be older than the bookie's disks.")
@accept_option
@pass_app
def reclaim(
    app: App,
    bookies: tuple[str, ...],
    confs: tuple[Path, ...],
    roots: tuple[Path, ...],
    zookeeper: str | None,
    metadata: Path | None,
    **options: Unpack[ReclaimOptions],
) -> None:
    """Free the disks of a stopped, full bookie: garbage collection and compaction of its entry logs.

    Ledgers that the metadata does not list are deleted, as the bookie itself would do; the metadata is the store's
    unless --zookeeper or --metadata gives another. Entry logs without live entries go first, then those with the fewest
    are rewritten in the free space. A run that was stopped, even by kill -9, leaves a bookie that starts; the same
    command continues. Damaged logs are reported and not changed.
    """
    from pulsar_admin.api.disks import reclaim_plan, reclaimed

    given = bookies_of(bookies, confs, roots)
    if len(given) != 1 or (zookeeper and metadata):
        raise click.UsageError("name one bookie, DIR[,DIR…] or --bookie-conf FILE, and one metadata store at most")
    plan = reclaim_plan(app.session, given[0], metadata or zookeeper, options)
    if app.settings.dry_run:
        app.emit(plan.report(), plain=lambda _: render_forecast(plan))
        return
    result = reclaimed(app.session, plan, options)
    app.problems(len(result.passed_over) + len(result.left))
    app.emit(result, plain=render_result)


def render_forecast(plan: ReclaimPlan) -> str:
    """Return what would be done as a table of logs, and the sums."""
    from pulsar_admin.output import render_table

    lines = [render_table(plan.logs, _LOGS).rstrip("\n"), ""] if plan.logs else []
    for found in plan.storages:
        frees = f"{size_text(found.frees_bytes)} of {counted(len(found.logs), 'entry log')} would be freed"
        lines.append(f"{found.storage.logs}: {frees} ({found.frees_bytes:,} bytes)")
    lines += [f"doubtful: {doubt}" for doubt in plan.doubts]
    return "\n".join([*lines, "nothing was written"])


def render_result(result: ReclaimResult) -> str:
    """Return what was done as lines of text."""
    from pulsar_admin.commands.store.importing import text_rows

    rows = [
        ("bookie", result.bookie),
        (
            "freed",
            f"{size_text(result.freed_bytes)} ({result.freed_bytes:,} bytes; forecast {result.forecast_bytes:,})",
        ),
        ("logs deleted", f"{result.deleted_logs:,}"),
        ("logs compacted", f"{result.compacted_logs:,} into {result.new_logs:,}"),
        (
            "entries moved",
            f"{result.moved_entries:,} ({result.moved_bytes:,} bytes), digests verified before and after",
        ),
    ]
    rows += [("passed over", f"{row['log']}: {row['reason']}") for row in result.passed_over]
    rows += [("left", path) for path in result.left]
    return text_rows(rows)
