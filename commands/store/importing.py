"""``store init``, ``import``, ``add``, ``refresh``, ``index`` and ``export bookie``: stores and their sources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.columns import size_text
from pulsar_admin.commands.store.export import next_lines
from pulsar_admin.context import App, Result
from pulsar_admin.options import MOMENT, command, flag, max_rate, together
from pulsar_admin.store.db.environment import create_store
from pulsar_admin.store.db.storeinfo import FORMAT_VERSION, check_new_store
from pulsar_admin.store.errors import (
    AlreadyExists,
    DiskFull,
    EntryLogCorrupt,
    InvalidValue,
    MetadataCorrupt,
    MissingComponent,
    NotFound,
    NothingMatches,
    NotWritable,
    Refused,
    SourceBusy,
    SourceChanged,
    SourceNotFound,
    StalePlan,
    StoreBusy,
    StoreNotFound,
    Unsupported,
)
from pulsar_admin.store.wording import counted, listed
from pulsar_admin.visible import clean_text

if TYPE_CHECKING:
    from pulsar_admin.api.transfers import Mode
    from pulsar_admin.store.history.as_of import Moment
    from pulsar_admin.store.index.rebuild import RebuildResult
    from pulsar_admin.store.sources.given_bookies import GivenBookie
    from pulsar_admin.store.sources.layout import Layout
    from pulsar_admin.store.transfer.bookie_export import BookieExportReport
    from pulsar_admin.store.transfer.imports import ImportPreview, ImportResult
    from pulsar_admin.store.transfer.offloads import OffloadResult

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
    """Import ``layout`` with the metadata as of ``at``; with --dry-run only show what would be read."""
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
    """Return (name, value) pairs as lines of text in two columns."""
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
        preview = api.preview_refresh()
        app.problems(len(preview.doubts))
        return Result(preview, plain=render_refresh)
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
        f"{word:<10}{path}: {counted(count, 'entry is', 'entries are')} {where}"
        for word, key, where in (("LOST", "lost", "in no other file"), ("gone", "elsewhere", "also in other files"))
        for path, count in value[key].items()
    ]
    if value.get("dryRun"):
        lines.append(f"dry run, nothing was written: {value['bytes']:,} bytes to read")
    else:
        lines.append(f"entries: {value['entriesBefore']:,} -> {value['entries']:,}, {value['bytes']:,} bytes read")
        lines.append(
            f"metadata: {value['nodesAdded']:,} added, {value['nodesUpdated']:,} updated, {value['nodesRemoved']:,} removed"
        )
        undecodable = f"; undecodable values: {value['undecodableValues']:,}" * bool(value["undecodableValues"])
        lines.append(f"new damaged places: {value['damagedPlaces']:,}{undecodable}")
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


_ERRORS = [
    InvalidValue,
    SourceNotFound,
    Refused,
    Unsupported,
    AlreadyExists,
    StoreBusy,
    MetadataCorrupt,
    DiskFull,
    NotWritable,
    EntryLogCorrupt,
    MissingComponent,
]
_PATH = click.Path(path_type=Path)


conf_options = together(
    click.option(
        "--bookie-conf",
        "confs",
        type=_PATH,
        multiple=True,
        metavar="FILE",
        help="A bookie's bookkeeper.conf, which names its directories; repeatable.",
    ),
    click.option(
        "--root",
        "roots",
        type=_PATH,
        multiple=True,
        metavar="DIR",
        help="Where the disks of a --bookie-conf were copied to: one for all, or one for each in the same order.",
    ),
)
"""The options for bookies by their configuration."""

_files_options = together(
    conf_options,
    click.option(
        "--fetch-to",
        "fetch_to",
        type=_PATH,
        metavar="DIR",
        help="Copy the files of a --bookie in an object store (s3://…) or a tar archive here; without it, entry logs at a URL are read"
        " there.",
    ),
    click.option("--copy", "mode", flag_value="copied", help="Copy the entry logs into the store."),
    click.option("--link", "mode", flag_value="linked", help="Hard-link the entry logs into the store."),
    flag("--no-checksums", help="Do not verify the entries' digests."),
)

_root_options = together(
    click.option("--chroot", metavar="/PATH", help="The cluster's root in ZooKeeper, if there are several clusters."),
    click.option(
        "--ledgers-root",
        metavar="/PATH",
        help="BookKeeper's root in ZooKeeper, if it is not `ledgers` below the chroot.",
    ),
    click.option(
        "--zookeeper-client",
        "client",
        type=_PATH,
        metavar="FILE",
        help="TOML file that says how to log in to HOST:PORT.",
    ),
)
"""The options that say which cluster of a ZooKeeper is meant, and how to log in to it."""

metadata_options = together(
    click.option(
        "--zookeeper", metavar="PLACE", help="ZooKeeper's dataDir[,dataLogDir], or HOST:PORT[,HOST:PORT][/CHROOT]."
    ),
    _root_options,
    click.option("--metadata", type=_PATH, metavar="DIR", help="A metadata store in RocksDB, instead of --zookeeper."),
)
"""The options that name a cluster's metadata."""


@command(
    "store import cluster",
    elsewhere=[
        "pulsar-admin --store new-store store import cluster --zookeeper /copy/zookeeper --bookie bk1=/copy/bk1/ledgers0,/copy/bk1/journal0"
        " --bookie bk2=/copy/bk2/ledgers0,/copy/bk2/journal0",
        "pulsar-admin --store then store import cluster --zookeeper /copy/zookeeper --at 2024-05-01T09:00:00Z --bookie /copy/bk1",
        "pulsar-admin --store new-store store import cluster --zookeeper zk1:2181/pulsar --bookie-conf bk1.conf --root /copy/bk1",
    ],
    output="What was read: metadata nodes, files, bytes, entries, damaged places. Exit code 1 when anything is damaged.",
    errors=[*_ERRORS, NothingMatches],
    uses=["dry_run", "now", "spark"],
)
@metadata_options
@click.option("--bookie", "bookies", multiple=True, metavar="[ID=]DIR,DIR", help="A bookie's directories; repeatable.")
@at_option
@no_index
@_files_options
@max_rate
def cluster(
    app: App,
    zookeeper: str | None,
    client: Path | None,
    metadata: Path | None,
    bookies: tuple[str, ...],
    mode: Mode | None,
    no_checksums: bool,
    **more: Any,  # Any: of ``_files_options``, ``metadata_options``, ``at_option`` and ``no_index``
) -> Result:
    """Read the parts of a cluster, its metadata and the disks of its bookies, into a new store.

    A bookie's directories are those of bookkeeper.conf (ledgerDirectories, journalDirectories), or their `current`,
    under any name; their files show the kind, and the cookie shows the bookie. Missing parts can be added later: `store
    add bookie`, `store add zookeeper`. Sources are only read, even while the cluster runs. Without --copy or --link the
    entry logs stay where they are: keep them. An import that was stopped, even by kill -9, continues when the same
    command runs again.

    A cluster below a path of ZooKeeper (`metadataPrefix` in Helm, zk:2181/pulsar) is found. If there are several,
    --chroot names one; a --bookie-conf also names its cluster.
    """
    from pulsar_admin.api.transfers import given_parts
    from pulsar_admin.store.sources.cluster import make_layout

    at: Moment | None = more.pop("at")
    index = not more.pop("no_index")
    roots = more.pop("chroot"), more.pop("ledgers_root")
    given = bookies_of(_fetched(app, bookies, more.pop("fetch_to"), is_new=True), **more)
    place = zookeeper if metadata is None else metadata
    if (zookeeper and metadata) or not (place or given):
        raise click.UsageError("name --zookeeper or --metadata, and the bookies with --bookie or --bookie-conf")
    return import_layout(
        app,
        make_layout(*given_parts(place, given, client, *roots)),
        at,
        mode=mode,
        verify=not no_checksums,
        index=index,
    )


@command(
    "store add bookie",
    elsewhere=[
        "bk3=/copy/bk3/ledgers0,/copy/bk3/ledgers1,/copy/bk3/journal0",
        "--bookie-conf bk3.conf --root /copy/bk3",
    ],
    output="Files, entries before and after, new damaged places. Exit code 1 when anything needs a look.",
    errors=_ERRORS,
    uses=["dry_run", "spark"],
)
@click.argument("bookies", nargs=-1, metavar="[[ID=]DIR,DIR]...")
@_files_options
@max_rate
def add_bookie(
    app: App,
    bookies: tuple[str, ...],
    mode: Mode | None,
    no_checksums: bool,
    **confs: Any,  # Any: of ``_files_options``
) -> Result:
    """Add the disks of another bookie of the cluster to the store.

    Directories are given as for `store import cluster`. Entries that the store already has are compared with the new
    copies. An addition that was stopped, even by kill -9, continues with the same command or with `store refresh`.
    """
    given = bookies_of(_fetched(app, bookies, confs.pop("fetch_to"), is_new=False), **confs)
    if not given:
        raise click.UsageError("name the bookie's directories: [ID=]DIR,DIR, or --bookie-conf FILE")
    return _add(app, bookies=given, mode=mode or "referenced", verify=not no_checksums)


@command(
    "store add zookeeper",
    elsewhere=["/copy/zookeeper", "zk1:2181/pulsar"],
    output="Metadata nodes, entries, new damaged places. Exit code 1 when anything needs a look.",
    errors=_ERRORS,
    uses=["dry_run"],
)
@click.argument("place")
@_root_options
def add_zookeeper(app: App, place: str, client: Path | None, chroot: str | None, ledgers_root: str | None) -> Result:
    """Add the cluster's metadata to a store that has only bookies.

    PLACE is ZooKeeper's dataDir[,dataLogDir], or HOST:PORT[,HOST:PORT][/CHROOT] of a running ensemble, which is only
    read.
    """
    return _add(app, metadata=place, client=client, chroot=chroot, ledgers_root=ledgers_root)


@command(
    "store export bookie",
    changes=True,
    no_plan="an export is not kept as a plan",
    elsewhere=[
        "bk1=/bk1/ledgers0,/bk1/ledgers1 bk2=/bk2/ledgers0,/bk2/ledgers1 --dry-run",
        "--bookie-conf bk1.conf --bookie-conf bk2.conf",
    ],
    output="The ledgers and their bookies, what was written into which directory, cookies of renamed bookies, and the number of the "
    "change of the metadata.",
    errors=[InvalidValue, Refused, NotFound, SourceNotFound, SourceBusy, StalePlan],
)
@click.argument("bookies", nargs=-1, metavar="[[ID=]DIR[,DIR]]...")
@conf_options
def export_bookie(app: App, bookies: tuple[str, ...], confs: tuple[Path, ...], roots: tuple[Path, ...]) -> Result:
    """Write the ledgers created here (compaction, load, policies) to bookies of the cluster, which must be stopped.

    Each ledger is written whole to as many bookies as the ledgers of its topic have copies, with its index rows, into
    the ledger directory that DbLedgerStorage uses for it; name all ledger directories of a bookie, and its index
    directories if it has any. The store's metadata then names these bookies: export it (`store export zookeeper`)
    before the bookies start, or they delete the ledgers as garbage. Of a bookie that `bookies rename` gave another id, the
    `VERSION` of each directory gets it.
    """
    given = bookies_of(bookies, confs, roots)
    if not given:
        raise click.UsageError("name the bookies' directories: ID=DIR[,DIR…], or --bookie-conf FILE")
    app.screen_of = _exported
    return _exported(app.api.export_bookies(given))


def _exported(done: BookieExportReport) -> Result:
    sums = (sum(ledger.entries for ledger in done.ledgers), sum(ledger.bytes for ledger in done.ledgers))
    what = f"{counted(len(done.ledgers), 'ledger')} ({counted(sums[0], 'entry', 'entries')}, {size_text(sums[1])} each copy)"
    lines = [
        f"{'would write' if done.dry_run else 'wrote'} {what}, {counted(len(done.cookies), 'VERSION', 'VERSION files')}"
    ]
    lines += [f"  {clean_text(row.directory)}: {counted(len(row.ledgers), 'ledger')}" for row in done.written]
    lines += [f"  {clean_text(row.path)}: {clean_text(row.was)} -> {clean_text(row.bookie)}" for row in done.cookies]
    steps = ("pulsar-admin store export zookeeper HOST:PORT", "start the bookies")
    lines += next_lines(steps, dry_run=done.dry_run)
    return Result(done, terminal=lambda _: ["\n".join(lines) + "\n"])


def bookies_of(bookies: tuple[str, ...], confs: tuple[Path, ...], roots: tuple[Path, ...]) -> list[str | GivenBookie]:
    """Return the bookies that a command line names; raises InvalidValue, SourceNotFound."""
    from pulsar_admin import read_bookie_conf

    if len(roots) not in (0, 1, len(confs)) or (roots and not confs):
        raise click.UsageError(f"{len(roots)} --root for {len(confs)} --bookie-conf: give one for all, or one for each")
    places: Iterator[Path | None] = iter(roots if len(roots) > 1 else (roots or (None,)) * len(confs))
    return [*bookies, *(read_bookie_conf(file, next(places)) for file in confs)]


def _fetched(app: App, bookies: tuple[str, ...], fetch_to: Path | None, *, is_new: bool) -> tuple[str, ...]:
    from pulsar_admin import fetch_bookie
    from pulsar_admin.store.db.storeinfo import REMOTE, StoreState, check_new_store, read_store_info

    is_dry, path = app.settings.dry_run, app.settings.store
    has_urls = any("://" in text for text in bookies)
    if is_dry and (fetch_to is not None or has_urls):
        raise click.UsageError("a dry run downloads nothing: name local directories")
    if has_urls and fetch_to is None:  # before anything is written into the store's directory
        state = None if is_new and not (path / "store.json").exists() else read_store_info(path).state
        if is_new and state in (None, StoreState.READY):
            check_new_store(path)
    remote = None if is_dry else path / REMOTE
    return tuple(fetch_bookie(text, fetch_to, beginnings=remote) for text in bookies)


def _add(
    app: App, *, mode: Mode = "referenced", verify: bool = True, **parts: Any
) -> Result:  # Any: of Store.add_parts
    api = app.api
    if app.settings.dry_run:
        return Result(api.preview_parts(**parts), plain=render_preview)
    result = api.add_parts(**parts, mode=mode, verify=verify)
    app.problems(result.problems)
    return Result(result, plain=render_refresh)


@command(
    "store add offload",
    elsewhere=["/copy/bucket", "s3://bucket/prefix?region=us-east-1"],
    output="Ledgers, entries and bytes, and the ledgers that were not found. Exit code 1 if there are any.",
    errors=[SourceNotFound, NotFound, EntryLogCorrupt, MetadataCorrupt, Unsupported, StoreBusy, DiskFull, NotWritable],
    uses=["dry_run", "now"],
)
@click.argument("place", metavar="DIR|URL")
def add_offload(app: App, place: str) -> Result:
    """Add ledgers that were offloaded to tiered storage to the store.

    Reads the ledgers that topics name and the store lacks: objects of the jcloud offloader (a directory of them, or the
    URL of a bucket and prefix), and MapFiles of the file system offloader. Their entries are copied into the
    store, all or none.
    """
    result = app.api.add_offload(place, dry_run=app.settings.dry_run)
    app.problems(len(result.absent))
    return Result(result, plain=render)


def render(result: OffloadResult) -> str:
    """Return the result as lines of text."""
    absent = listed(result.absent, 20)
    rows = [
        ("store", result.store),
        ("place", result.place),
        ("ledgers", f"{result.ledgers:,}"),
        ("entries", f"{result.entries:,} ({result.bytes:,} bytes)"),
        ("here already", counted(result.here, "ledger")),
        ("not there", f"{counted(len(result.absent), 'ledger')}{': ' if absent else ''}{absent}"),
    ]
    return text_rows(rows + [("dry run", "nothing was written")] * result.dry_run)
