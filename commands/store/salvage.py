"""``store salvage``: the index of a stopped bookie made again, its journals cut, its gaps filled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from pulsar_admin.commands.store.clusters import bookies_of, conf_options
from pulsar_admin.context import App
from pulsar_admin.options import command, pass_app
from pulsar_admin.store.errors import (
    InvalidValue,
    NotWritable,
    Refused,
    SourceBusy,
    SourceNotFound,
    StalePlan,
    Unsupported,
)
from pulsar_admin.store.wording import counted
from pulsar_admin.visible import clean_text


@command(
    "salvage",
    changes=True,
    no_plan="a salvage is not kept as a plan",
    examples=[],
    elsewhere=[
        "pulsar-admin store salvage bk1:3181=/data/ledgers0,/data/ledgers1,/data/journal --dry-run",
        "pulsar-admin store salvage --bookie-conf bookkeeper.conf --yes",
    ],
    output="By ledger directory what its logs hold and what its index says; journals that are cut; what is kept. Exit code 0 also when"
    " nothing is wrong.",
    errors=[InvalidValue, Refused, SourceNotFound, SourceBusy, StalePlan, Unsupported, NotWritable],
)
@click.argument("bookie", nargs=-1, metavar="[[ID=]DIR[,DIR]]")
@conf_options
@pass_app
def salvage(app: App, bookie: tuple[str, ...], confs: tuple[Path, ...], roots: tuple[Path, ...]) -> None:
    """Rebuild the index of a stopped bookie, and truncate a journal that prevents it from starting.

    Name all directories of the bookie (DbLedgerStorage), including journals and indexes; metadata and other bookies'
    copies come from the store. `locations` and `ledgers` are rebuilt from the entry logs and journals, with the fences
    and master keys that another source confirms; entries that the bookie should have but lacks are copied from the
    others. The old files are kept as `…-before-salvage`. If it was stopped, run the same command again.
    """
    given = bookies_of(bookie, confs, roots)
    if len(given) != 1:
        raise click.UsageError("name one bookie by its directories, [ID=]DIR,DIR, or by --bookie-conf FILE")
    app.emit(app.session.api.salvage(given[0], dry_run=app.settings.dry_run), plain=_render)


def _render(result: Any) -> str:  # Any: JSON
    """Return what a salvage found, and did or would do, as lines of text."""
    lines = [f"bookie {result['bookie']}"]
    for row in result["directories"]:
        lines += _directory_lines(row)
    journals = result["journals"]
    lines.append(
        f"{counted(journals['files'], 'journal')}: a start replays {counted(journals['replayedEntries'], 'entry', 'entries')}"
    )
    lines += [f"  {text}" for text in journals["missing"]]
    lines += [
        f"  {stop['path']} @ {stop['offset']:#x}: {stop['reason']} stops a start: cut at {stop['cutAt']},"
        f" {stop['cutBytes']:,} bytes are kept beside it"
        for stop in journals["stops"]
    ]
    lines += [f"kept: {path}" for path in result["kept"]]
    if not result["needed"] and result["kept"]:
        lines.append("the salvage that was stopped is done; next: start the bookie")
    elif not result["needed"]:
        lines.append("nothing is wrong, nothing was written")
    else:
        lines.append("dry run, nothing was written" if result["dryRun"] else "next: start the bookie")
    return "\n".join(clean_text(line) for line in lines)


def _directory_lines(row: dict[str, Any]) -> Iterator[str]:  # Any: JSON
    locations, ledgers, added = row["locations"], row["ledgers"], row["added"]
    logs, entries = counted(row["entryLogs"], "entry log"), counted(row["entries"], "entry", "entries")
    bad = f", {row['damagedEntries']:,} more damaged" if row["damagedEntries"] else ""
    yield f"{row['directory']}: {logs}, {entries}{bad}"
    counts = ((locations["right"], "right"), (locations["missing"], "missing"), (locations["wrong"], "wrong"))
    found = [locations["problem"], *(f"{count:,} {what}" for count, what in counts if count)]
    found.append(f"{locations['logGone']:,} of logs that are gone" if locations["logGone"] else "")
    yield _database_line("locations", found, row)
    strays = f"{ledgers['strays']:,} of upstream's rebuild or of other directories" if ledgers["strays"] else ""
    changed = f"{ledgers['changed']:,} to change" if ledgers["changed"] else ""
    yield _database_line("ledgers", [ledgers["problem"], f"{ledgers['before']:,} rows", changed, strays], row)
    fences = f" ({_shares(ledgers['fencedBy'])})" if ledgers["fenced"] else ""
    yield f"    {ledgers['after']:,} ledgers, {ledgers['fenced']:,} fenced{fences}; master keys: {_shares(ledgers['masterKeysBy'])}"
    if any(added.values()):
        yield (
            f"  entries to add: {added['fromJournals']:,} from journals, {added['fromOtherBookies']:,} from other bookies;"
            f" {added['nowhere']:,} more are nowhere"
        )


def _database_line(name: str, found: list[str], row: dict[str, Any]) -> str:  # Any: JSON
    end = "made again" if name in row["written"] else "as it should be"
    return f"  {name + ':':<11}{', '.join(filter(None, found))}: {end}"


def _shares(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} by {who}" for who, count in counts.items()) or "none"
