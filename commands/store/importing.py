"""``store init``, ``store import standalone``, ``store refresh`` and ``store index``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.context import App, Result
from pulsar_admin.options import MOMENT, command, flag, max_rate
from pulsar_admin.store.db.environment import create_store
from pulsar_admin.store.db.storeinfo import FORMAT_VERSION, check_new_store
from pulsar_admin.store.errors import (
    AlreadyExists,
    DiskFull,
    MetadataCorrupt,
    NothingMatches,
    NotWritable,
    Refused,
    SourceChanged,
    SourceNotFound,
    StoreBusy,
    StoreNotFound,
)
from pulsar_admin.store.wording import counted
from pulsar_admin.visible import clean_text

if TYPE_CHECKING:
    from pulsar_admin.api.transfers import Mode
    from pulsar_admin.store.history.as_of import Moment
    from pulsar_admin.store.index.rebuild import RebuildResult
    from pulsar_admin.store.sources.layout import Layout
    from pulsar_admin.store.transfer.imports import ImportPreview, ImportResult


no_index = flag("--no-index", help="Read no entries: only `store export tables` works on such a store.")
at_option = click.option(
    "--at",
    type=MOMENT,
    help="The metadata as of a time, or after a transaction such as 0x4a1, from ZooKeeper's snapshots and logs.",
)


@command(
    "store init",
    examples=["pulsar-admin --store empty-store store init"],
    output="The new store's path and format.",
    errors=[AlreadyExists, NotWritable, DiskFull],
    uses=["dry_run"],
)
def init(app: App) -> Result:
    """Create an empty store.

    The directory given with --store must not exist, or must be empty. `store import` creates its own store.
    """
    path = app.store_path
    check_new_store(path)
    if not app.settings.dry_run:
        create_store(path, now_ms=app.clock_ms)
    made = {"store": str(path), "formatVersion": FORMAT_VERSION, "dryRun": app.settings.dry_run}
    return Result(made, plain=_render_init)


def _render_init(made: dict[str, Any]) -> str:  # Any: JSON
    rows = [("store", made["store"]), ("format", str(made["formatVersion"]))]
    return text_rows(rows + [("dry run", "nothing was written")] * made["dryRun"])


@command(
    "store import standalone",
    examples=["pulsar-admin --store new-store store import standalone standalone"],
    elsewhere=["pulsar-admin --store new-store store import standalone /backup/standalone --copy"],
    output="What was read: metadata nodes, files, bytes, entries, damaged places. Exit code 1 when anything is damaged.",
    errors=[SourceNotFound, AlreadyExists, StoreBusy, MetadataCorrupt, DiskFull, NotWritable, Refused, NothingMatches],
    uses=["dry_run", "now", "spark"],
)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--copy", "mode", flag_value="copied", help="Copy the entry logs into the store.")
@click.option("--link", "mode", flag_value="linked", help="Hard-link the entry logs into the store.")
@flag("--no-checksums", help="Do not verify the entries' digests.")
@no_index
@at_option
@click.option("--chroot", metavar="/PATH", help="The cluster's root in ZooKeeper, if there are several clusters.")
@max_rate
def standalone(
    app: App,
    directory: Path,
    mode: Mode | None,
    no_checksums: bool,
    no_index: bool,
    at: Moment | None,
    chroot: str | None,
) -> Result:
    """Read a standalone Pulsar's data directory into a new store.

    DIRECTORY contains `metadata` (RocksDB) or `zookeeper`, and `bookkeeper*/current` (entry logs, journals) of one or
    more bookies. It is only read, even while Pulsar is running. Without --copy or --link the entry logs stay where they
    are: keep DIRECTORY. An import that was stopped, even by kill -9, continues when the same command runs again.
    """
    from pulsar_admin.arguments import wanted_of
    from pulsar_admin.store.sources.layout import read_standalone_layout

    layout = read_standalone_layout(directory, wanted_of(chroot, None))
    return import_layout(app, layout, at, mode=mode, verify=not no_checksums, index=not no_index)


def import_layout(
    app: App, layout: Layout, at: Moment | None, *, mode: Mode | None, verify: bool, index: bool
) -> Result:
    """Import ``layout`` with the metadata as of ``at``, or with --dry-run show what that would read."""
    from pulsar_admin.api.transfers import import_parts, preview_parts
    from pulsar_admin.store.transfer.imports import way_back

    path = app.settings.store
    if app.settings.dry_run:
        return Result(preview_parts(app.session, layout, path, at), plain=render_preview)
    try:
        result = import_parts(app.session, layout, path, mode=mode or "referenced", verify=verify, index=index, at=at)
    except KeyboardInterrupt:
        app.warn(f"stopped: the same command continues the import into {path}")
        raise
    bookies = len(result.strangers) + len(result.without_journal) + len(result.doubts)
    damage = result.problems + result.undecodable_values + result.differing_copies
    app.problems(damage + bookies + len(result.findings or ()))
    no_index = (
        "no entry was read: make tables with `store export tables`; the same import without --no-index indexes them"
    )
    next_steps = "look at it: pulsar-admin overview; what is wrong: pulsar-admin doctor"
    notes = [*([] if index else [no_index]), *filter(None, [way_back(layout), next_steps if app.in_terminal else ""])]
    return Result(result, plain=render_import, notes=notes)


def render_preview(preview: ImportPreview) -> str:
    """Return what an import would read as lines of text."""
    return text_rows([*_rows_of_source(preview), ("dry run", "nothing was written")])


def render_import(result: ImportResult) -> str:
    """Return the result of an import as lines of text."""
    rows = [
        *_rows_of_source(result),
        ("records", f"{result.records:,}"),
        ("entries", f"{result.entries:,}"),
        ("checksums", "verified" if result.checksums else "NOT verified"),
        ("damaged places", f"{result.problems:,}"),
        ("differing copies", f"{result.differing_copies:,}"),
        ("seconds", f"{result.seconds:.1f}"),
    ]
    return text_rows(rows)


def _rows_of_source(found: ImportPreview | ImportResult) -> list[tuple[str, str]]:
    return [
        ("store", found.store),
        ("source", found.source),
        ("metadata nodes", f"{found.nodes:,}"),
        ("undecodable values", f"{found.undecodable_values:,}"),
        ("files", f"{found.files:,} ({found.bytes:,} bytes)"),
    ]


def text_rows(rows: list[tuple[str, str]]) -> str:
    """Return names and values as lines of text, in two columns."""
    return "\n".join(f"{name:<20}{value}" for name, value in rows)


@command(
    "store refresh",
    examples=[""],
    elsewhere=["--forget"],
    output="Files that are new, grown, gone or changed, entries before and after, and metadata nodes taken over.",
    errors=[Refused, SourceNotFound, SourceChanged, StoreBusy, DiskFull],
    uses=["dry_run", "spark"],
)
@flag("--forget", help="Take entries of files that are gone out of the index.")
@flag("--no-checksums", help="Do not verify the entries' digests.")
@max_rate
def refresh(app: App, forget: bool, no_checksums: bool) -> Result:
    """Bring the store up to date with the directory it was imported from.

    Reads only what is new: logs are append-only. Metadata changed in the store is kept. Missing files are reported, and
    their entries stay in the index unless --forget is given. Exit code 1 if anything needs attention. A refresh that
    was stopped continues when the same command runs again.
    """
    api = app.api
    if app.settings.dry_run:
        return Result(api.preview_refresh(), plain=render_refresh)
    result = api.refresh(forget=forget, verify=not no_checksums)
    app.problems(result.problems)
    return Result(result, plain=render_refresh)


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
        f"{'gone':<10}{path}: {counted(count, 'entry is', 'entries are')} also in other files"
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
    "store index",
    examples=["", "--rebuild"],
    output="Files, bytes, records, damaged places; how many index rows there are and how many differ from the files.",
    errors=[StoreNotFound, SourceChanged, StoreBusy, DiskFull],
    uses=["dry_run", "spark"],
)
@flag("--rebuild", help="Put the index made from the files in place of the old one.")
@flag("--no-checksums", help="Do not verify the entries' digests.")
@max_rate
def index(app: App, rebuild: bool, no_checksums: bool) -> Result:
    """Rebuild the location and time index from the files and compare it with the existing one.

    Without --rebuild the store is not changed; exit code 1 if the two differ. A rebuild that was stopped, even by kill
    -9, continues when the same command runs again; until then the store uses the old index.
    """
    writes = rebuild and not app.settings.dry_run
    api = app.api
    result = (api.rebuild_index if writes else api.compare_index)(verify=not no_checksums)
    app.problems(0 if rebuild else result.changed_rows)
    return Result(result, plain=_render_index)


def _render_index(result: RebuildResult) -> str:
    index = "matches the files" if not result.changed_rows else "rebuilt" if not result.dry_run else "differs"
    rows = [
        ("store", result.store),
        ("files", f"{result.files:,} ({result.bytes:,} bytes)"),
        ("records", f"{result.records:,}"),
        ("checksums", "verified" if result.checksums else "NOT verified"),
        ("damaged places", f"{result.problems:,}"),
        ("index", f"{index}: {result.changed_rows:,} of {counted(result.rows, 'row')} differ"),
    ]
    return text_rows(rows + [("dry run", "nothing was written")] * result.dry_run)
