"""``store refresh`` and ``store index``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pulsar_admin.commands.store.importing import text_rows
from pulsar_admin.context import App
from pulsar_admin.options import command, max_rate, pass_app
from pulsar_admin.store.errors import DiskFull, Refused, SourceChanged, SourceNotFound, StoreBusy, StoreNotFound
from pulsar_admin.store.wording import counted
from pulsar_admin.visible import clean_text

if TYPE_CHECKING:
    from pulsar_admin.store.index.rebuild import RebuildResult


@command(
    "refresh",
    examples=["pulsar-admin store refresh"],
    elsewhere=["pulsar-admin store refresh --forget"],
    output="Files that are new, grown, gone or changed, entries before and after, and metadata nodes taken over.",
    errors=[Refused, SourceNotFound, SourceChanged, StoreBusy, DiskFull],
    uses=["dry_run", "spark"],
)
@click.option("--forget", is_flag=True, help="Take entries of files that are gone out of the index.")
@click.option("--no-checksums", is_flag=True, help="Do not verify the entries' digests.")
@max_rate
@pass_app
def refresh(app: App, forget: bool, no_checksums: bool) -> None:
    """Bring the store up to date with the directory it was imported from.

    Reads only what is new: logs are append-only. Metadata changed in the store is kept. Missing files are reported, and
    their entries stay in the index unless --forget is given. Exit code 1 if anything needs attention. A refresh that
    was stopped continues when the same command runs again.
    """
    api = app.session.api
    if app.settings.dry_run:
        app.emit(api.preview_refresh(), plain=render_refresh)
        return
    result = api.refresh(forget=forget, verify=not no_checksums)
    app.problems(result.problems)
    app.emit(result, plain=render_refresh)


_WHAT = (
    ("new", "newFiles"),
    ("grown", "grownFiles"),
    ("forgotten", "forgottenFiles"),
    ("CHANGED", "changedFiles"),
    ("CONFLICT", "conflicts"),
    ("STOPPED", "stoppedExport"),
)


def render_refresh(result: object) -> str:
    """Return what a refresh found as lines of text."""
    from pulsar_admin.jsonify import to_json

    value = to_json(result)
    lines = [f"{word:<10}{path}" for word, key in _WHAT for path in value.get(key, ())]
    lines += [
        f"{'LOST':<10}{path}: {counted(count, 'entry is', 'entries are')} in no other file"
        for path, count in value["lost"].items()
    ]
    lines += [
        f"{'gone':<10}{path}: {counted(count, 'entry is', 'entries are')} in other files, too"
        for path, count in value["elsewhere"].items()
    ]
    if value.get("dryRun"):
        lines.append(f"dry run, nothing was written: {value['bytes']:,} bytes to read")
    else:
        lines.append(f"entries: {value['entriesBefore']:,} -> {value['entries']:,}, {value['bytes']:,} bytes read")
        lines.append(
            f"metadata: {value['nodesAdded']:,} added, {value['nodesUpdated']:,} updated, {value['nodesRemoved']:,} removed"
        )
        lines.append(f"damaged places: {value['damagedPlaces'] + value['undecodableValues']:,}")
    return "\n".join(clean_text(line) for line in lines)


@command(
    "index",
    examples=["pulsar-admin store index", "pulsar-admin store index --rebuild"],
    output="Files, bytes, records, damaged places; how many index rows there are and how many differ from the files.",
    errors=[StoreNotFound, SourceChanged, StoreBusy, DiskFull],
    uses=["dry_run", "spark"],
)
@click.option("--rebuild", is_flag=True, help="Put the index made from the files in place of the old one.")
@click.option("--no-checksums", is_flag=True, help="Do not verify the entries' digests.")
@max_rate
@pass_app
def index(app: App, rebuild: bool, no_checksums: bool) -> None:
    """Rebuild the location and time index from the files and compare it with the existing one.

    Without --rebuild the store is not changed; exit code 1 if the two differ. A rebuild that was stopped, even by kill
    -9, continues when the same command runs again; until then the store uses the old index.
    """
    writes = rebuild and not app.settings.dry_run
    api = app.session.api
    result = (api.rebuild_index if writes else api.compare_index)(verify=not no_checksums)
    app.problems(0 if rebuild else result.changed_rows)
    app.emit(result, plain=_render_index)


def _render_index(result: RebuildResult) -> str:
    index = "as the files have it" if not result.changed_rows else "made again" if not result.dry_run else "differs"
    rows = [
        ("store", result.store),
        ("files", f"{result.files:,} ({result.bytes:,} bytes)"),
        ("records", f"{result.records:,}"),
        ("checksums", "verified" if result.checksums else "NOT verified"),
        ("damaged places", f"{result.problems:,}"),
        ("index", f"{index}: {result.changed_rows:,} of {counted(result.rows, 'row')} differ"),
    ]
    return text_rows(rows + [("dry run", "nothing was written")] * result.dry_run)
