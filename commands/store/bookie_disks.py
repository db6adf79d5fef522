"""``store salvage`` and ``store reclaim``: repairing the index and journals of a stopped bookie, and freeing its disks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack

import click
from msgspec.structs import astuple

from pulsar_admin.columns import Column, caution, size_text
from pulsar_admin.commands.ledger_repairs import accept_option
from pulsar_admin.commands.store.importing import bookies_of, conf_options, metadata_options, text_rows
from pulsar_admin.context import App, Result, Table
from pulsar_admin.numbers import PERCENT
from pulsar_admin.options import command, flag
from pulsar_admin.store import errors
from pulsar_admin.store.wording import counted
from pulsar_admin.visible import clean_text

if TYPE_CHECKING:
    from pulsar_admin.api.files import ReclaimOptions
    from pulsar_admin.store.disks.reclaim import ReclaimPlan, ReclaimResult
    from pulsar_admin.store.disks.salvage import DirectorySalvaged, SalvageReport


@command(
    "store salvage",
    changes=True,
    no_plan="a salvage is not kept as a plan",
    elsewhere=["bk1:3181=/data/ledgers0,/data/ledgers1,/data/journal --dry-run", "--bookie-conf bookkeeper.conf --yes"],
    output="Per ledger directory: the entries in its logs and in its index, journals that are cut, and the files kept. "
    "Exit code 0 even if nothing is wrong.",
    errors=[
        errors.InvalidValue,
        errors.Refused,
        errors.SourceNotFound,
        errors.SourceBusy,
        errors.StalePlan,
        errors.Unsupported,
        errors.NotWritable,
    ],
)
@click.argument("bookie", nargs=-1, metavar="[[ID=]DIR[,DIR]]")
@conf_options
@flag("--collected", help="Also ledgers that garbage collection took out of the index.")
def salvage(
    app: App, bookie: tuple[str, ...], confs: tuple[Path, ...], roots: tuple[Path, ...], collected: bool
) -> Result:
    """Rebuild the index of a stopped bookie, and truncate a journal that prevents it from starting.

    Name all directories of the bookie (DbLedgerStorage), including journals and indexes; metadata and other bookies'
    copies come from the store. `locations` and `ledgers` are rebuilt from the entry logs and journals, with the fences
    and master keys that another source confirms; entries that the bookie should have but lacks are copied from the
    others. A journal is cut before a place that ends a replay; if the first journal is missing, `lastMark` is renamed. A
    directory that only lost its `VERSION` gets it again. A ledgers map that does not match its log is taken out of the log's header,
    so that the bookie reads the records. The old files are kept as `…-before-salvage`. If it was stopped,
    run the same command again.
    """
    given = bookies_of(bookie, confs, roots)
    if len(given) != 1:
        raise click.UsageError("name one bookie by its directories, [ID=]DIR,DIR, or by --bookie-conf FILE")
    next_step = "start the bookie"
    if collected:
        next_step = (
            "restore the ledgers, as with `store recover` or `topics undelete`, and only then start the bookie: "
            "it deletes ledgers without metadata again"
        )
    done = app.api.salvage(given[0], collected=collected, dry_run=app.settings.dry_run)
    return Result(done, plain=lambda report: _render(report, next_step))


def _render(result: SalvageReport, next_step: str) -> str:
    """Return the result of a salvage, or what it would do, as lines of text."""
    lines = [f"bookie {result.bookie}"]
    for row in result.directories:
        lines += _directory_lines(row)
    journals = result.journals
    lines.append(
        f"{counted(journals.files, 'journal')}: a start replays {counted(journals.replayed_entries, 'entry', 'entries')}"
    )
    lines += [f"  {text}" for text in journals.missing]
    if journals.unsure:
        lines.append(
            f"  {counted(journals.unsure, 'ledger')} on this bookie that nobody closed may lack their last entries here"
        )
    lines += [
        f"  {stop.path} @ {stop.offset:#x}: {stop.reason}, where a replay ends: cut at {stop.cut_at},"
        f" {stop.cut_bytes:,} bytes are kept beside it"
        for stop in journals.stops
    ]
    lines += [f"{path}: gone, written as in the other directories" for path in result.cookies]
    lines += [f"{path}: its ledgers map does not match its records and is no longer used" for path in result.maps]
    lines += [f"kept: {path}" for path in result.kept]
    if not result.needed and result.kept:
        lines.append(f"the salvage that was stopped is done; next: {next_step}")
    elif not result.needed:
        lines.append("nothing is wrong, nothing was written")
    else:
        lines.append("dry run, nothing was written" if result.dry_run else f"next: {next_step}")
    return "\n".join(clean_text(line) for line in lines)


def _directory_lines(row: DirectorySalvaged) -> Iterator[str]:
    locations, ledgers, added = row.locations, row.ledgers, row.added
    logs, entries = counted(row.entry_logs, "entry log"), counted(row.entries, "entry", "entries")
    bad = f", {row.damaged_entries:,} more damaged" if row.damaged_entries else ""
    yield f"{row.directory}: {logs}, {entries}{bad}"
    counts = ((locations.right, "right"), (locations.missing, "missing"), (locations.wrong, "wrong"))
    parts = [locations.problem, *(f"{count:,} {what}" for count, what in counts if count)]
    parts.append(f"{locations.log_gone:,} of logs that are gone" if locations.log_gone else "")
    yield _database_line("locations", parts, row)
    strays = f"{ledgers.strays:,} of upstream's rebuild or of other directories" if ledgers.strays else ""
    changed = f"{ledgers.changed:,} to change" if ledgers.changed else ""
    yield _database_line("ledgers", [ledgers.problem, f"{ledgers.before:,} rows", changed, strays], row)
    fences = f" ({_shares(ledgers.fenced_by)})" if ledgers.fenced else ""
    yield f"    {ledgers.after:,} ledgers, {ledgers.fenced:,} fenced{fences}; master keys: {_shares(ledgers.master_keys_by)}"
    if any(astuple(added)):
        yield (
            f"  entries to add: {added.from_journals:,} from journals, {added.from_other_bookies:,} from other bookies;"
            f" {added.nowhere:,} more are in no imported file"
        )


def _database_line(name: str, found: list[str], row: DirectorySalvaged) -> str:
    end = "rebuilt" if name in row.written else "as it should be"
    return f"  {name + ':':<11}{', '.join(filter(None, found))}: {end}"


def _shares(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} by {who}" for who, count in counts.items()) or "none"


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
    "store reclaim",
    changes=True,
    no_plan="it deletes files, and a plan cannot keep those",
    elsewhere=[
        "--bookie-conf bookkeeper.conf --zookeeper zk1:2181 --dry-run",
        "/disks/bk1/ledgers0,/disks/bk1/journal0 --scratch /mnt/other --yes",
    ],
    output="With --dry-run each entry log: its live bytes, the action, and the bytes that it frees. Otherwise the "
    "freed bytes, the number of entries moved, and the logs that were skipped or left; exit code 1 when there are any.",
    errors=[
        errors.InvalidValue,
        errors.Refused,
        errors.SourceNotFound,
        errors.SourceBusy,
        errors.NotFound,
        errors.Unsupported,
        errors.StalePlan,
        errors.MetadataCorrupt,
        errors.IndexCorrupt,
        errors.NotWritable,
        errors.DiskFull,
    ],
)
@click.argument("bookies", nargs=-1, metavar="[[ID=]DIR[,DIR]]")
@conf_options
@metadata_options
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
@flag("--force", help="Trust metadata that may be older than the bookie's disks.")
@accept_option
def reclaim(
    app: App,
    bookies: tuple[str, ...],
    confs: tuple[Path, ...],
    roots: tuple[Path, ...],
    zookeeper: str | None,
    metadata: Path | None,
    **options: Unpack[ReclaimOptions],
) -> Result:
    """Free the disks of a stopped, full bookie: garbage collection and compaction of its entry logs.

    Ledgers that the metadata does not list are deleted, as the bookie itself would do; the metadata is the store's
    unless --zookeeper or --metadata gives another. Entry logs without live entries go first, then those with the fewest
    are rewritten in the free space. A run that was stopped, even by kill -9, leaves a bookie that starts; the same
    command continues. Damaged logs are reported and not changed.
    """
    from pulsar_admin.api.files import reclaim_plan, reclaimed

    given = bookies_of(bookies, confs, roots)
    if len(given) != 1 or (zookeeper and metadata):
        raise click.UsageError("name one bookie, DIR[,DIR…] or --bookie-conf FILE, and one metadata store at most")
    plan = reclaim_plan(app.session, given[0], metadata or zookeeper, options)
    if app.settings.dry_run:
        return Result(plan.report(), screen=lambda _: _forecast_screen(plan))
    result = reclaimed(app.session, plan, options)
    app.problems(len(result.passed_over) + len(result.left))
    return Result(result, plain=render_result)


class _OtherFiles(NamedTuple):
    """A row of the forecast's table for files other than present entry logs."""

    path: Path
    frees_bytes: int
    size_bytes: int = 0
    live_bytes: int = 0
    dead_bytes: int = 0
    entries: int = 0
    action: str = ""
    reason: str = ""


def _forecast_screen(plan: ReclaimPlan) -> Iterator[str | Table]:
    """Yield the forecast as a table of logs, and the sums."""
    # The sum of the column is the space that becomes free, less that of the new logs and the index.
    others = [
        _OtherFiles(storage.storage.logs / f"({what})", size)
        for storage in plan.storages
        for what, size in storage.others()
        if size
    ]
    if plan.logs:
        yield Table([*plan.logs, *others], _LOGS)
        yield "\n"
    for forecast in plan.storages:
        frees = f"{size_text(forecast.frees_bytes)} of {counted(len(forecast.logs), 'entry log')} would be freed"
        yield f"{forecast.storage.logs}: {frees} ({forecast.frees_bytes:,} bytes)\n"
    yield from (f"doubtful: {doubt}\n" for doubt in plan.doubts)
    yield "nothing was written\n"


def render_result(result: ReclaimResult) -> str:
    """Return the result of a reclaim as lines of text."""
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
    rows += [("skipped", f"{row['log']}: {row['reason']}") for row in result.passed_over]
    rows += [("left", path) for path in result.left]
    return text_rows(rows)
