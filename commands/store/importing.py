"""``store init`` and ``store import standalone``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.context import App
from pulsar_admin.options import MOMENT, command, max_rate, pass_app
from pulsar_admin.store.db.environment import create_store
from pulsar_admin.store.db.storeinfo import FORMAT_VERSION, check_new_store
from pulsar_admin.store.errors import (
    AlreadyExists,
    DiskFull,
    MetadataCorrupt,
    NothingMatches,
    NotWritable,
    Refused,
    SourceNotFound,
    StoreBusy,
)

if TYPE_CHECKING:
    from pulsar_admin.api.imports import Mode
    from pulsar_admin.store.history.as_of import Moment
    from pulsar_admin.store.sources.layout import Layout
    from pulsar_admin.store.transfer.imports import ImportPreview, ImportResult


no_index = click.option(
    "--no-index", is_flag=True, help="Read no entries: only `store export tables` works on such a store."
)
at_option = click.option(
    "--at",
    type=MOMENT,
    help="The metadata as of a time, or behind a transaction such as 0x4a1, from ZooKeeper's snapshots and logs.",
)


@command(
    "init",
    examples=["pulsar-admin --store empty-store store init"],
    output="The new store's path and format.",
    errors=[AlreadyExists, NotWritable, DiskFull],
    uses=["dry_run"],
)
@pass_app
def init(app: App) -> None:
    """Create an empty store.

    The directory given with --store must not exist, or must be empty. `store import` creates its own store.
    """
    path = app.store_path
    check_new_store(path)
    if not app.settings.dry_run:
        create_store(path, now_ms=app.clock_ms)
    made = {"store": str(path), "formatVersion": FORMAT_VERSION, "dryRun": app.settings.dry_run}
    app.emit(made, plain=_render_init)


def _render_init(made: dict[str, Any]) -> str:  # Any: JSON
    rows = [("store", made["store"]), ("format", str(made["formatVersion"]))]
    return text_rows(rows + [("dry run", "nothing was written")] * made["dryRun"])


@command(
    "standalone",
    examples=["pulsar-admin --store new-store store import standalone standalone"],
    elsewhere=["pulsar-admin --store new-store store import standalone /backup/standalone --copy"],
    output="What was read: metadata nodes, files, bytes, entries, damaged places. Exit code 1 when anything is damaged.",
    errors=[SourceNotFound, AlreadyExists, StoreBusy, MetadataCorrupt, DiskFull, NotWritable, Refused, NothingMatches],
    uses=["dry_run", "now", "spark"],
)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--copy", "mode", flag_value="copied", help="Copy the entry logs into the store.")
@click.option("--link", "mode", flag_value="linked", help="Hard-link the entry logs into the store.")
@click.option("--no-checksums", is_flag=True, help="Do not verify the entries' digests.")
@no_index
@at_option
@click.option("--chroot", metavar="/PATH", help="The cluster's root in ZooKeeper, if there are several clusters.")
@max_rate
@pass_app
def standalone(
    app: App,
    directory: Path,
    mode: Mode | None,
    no_checksums: bool,
    no_index: bool,
    at: Moment | None,
    chroot: str | None,
) -> None:
    """Read a standalone Pulsar's data directory into a new store.

    DIRECTORY contains `metadata` (RocksDB) or `zookeeper`, and `bookkeeper*/current` (entry logs, journals) of one or
    more bookies. It is only read, even while Pulsar is running. Without --copy or --link the entry logs stay where they
    are: keep DIRECTORY. An import that was stopped, even by kill -9, continues when the same command runs again.
    """
    from pulsar_admin.api.given import wanted_of
    from pulsar_admin.store.sources.layout import read_standalone_layout

    layout = read_standalone_layout(directory, wanted_of(chroot, None))
    import_layout(app, layout, at, mode=mode, verify=not no_checksums, index=not no_index)


def import_layout(app: App, layout: Layout, at: Moment | None, *, mode: Mode | None, verify: bool, index: bool) -> None:
    """Import LAYOUT with the metadata as of AT, or with --dry-run show what that would read."""
    from pulsar_admin.api.imports import import_parts, preview_parts
    from pulsar_admin.store.transfer.imports import way_back

    path = app.settings.store
    if app.settings.dry_run:
        app.emit(preview_parts(app.session, layout, path, at), plain=render_preview)
        return
    try:
        result = import_parts(app.session, layout, path, mode=mode or "referenced", verify=verify, index=index, at=at)
    except KeyboardInterrupt:
        app.warn(f"stopped: the same command continues the import into {path}")
        raise
    bookies = len(result.strangers) + len(result.without_journal) + len(result.doubts)
    damage = result.problems + result.undecodable_values + result.differing_copies
    app.problems(damage + bookies + len(result.findings or ()))
    app.emit(result, plain=render_import)
    if not index:
        app.tell(
            "no entry was read: make tables with `store export tables`; the same import without --no-index indexes them"
        )
    if text := way_back(layout):
        app.tell(text)


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
