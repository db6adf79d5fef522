"""``store import cluster``, ``store add bookie``, ``add zookeeper``, ``add offload`` and ``store export bookie``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulsar_admin.columns import size_text
from pulsar_admin.commands.store import importing
from pulsar_admin.context import App, Result
from pulsar_admin.options import command, flag, max_rate, together
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
    SourceNotFound,
    StalePlan,
    StoreBusy,
    Unsupported,
)
from pulsar_admin.store.wording import counted, listed
from pulsar_admin.typable import typable
from pulsar_admin.visible import clean_text

if TYPE_CHECKING:
    from pulsar_admin.api.transfers import Mode
    from pulsar_admin.store.history.as_of import Moment
    from pulsar_admin.store.sources.given_bookies import GivenBookie
    from pulsar_admin.store.transfer.bookie_export import BookieExportReport
    from pulsar_admin.store.transfer.offloads import OffloadResult


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
@importing.at_option
@importing.no_index
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
    return importing.import_layout(
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
    output="Files, entries before and after, damaged places. Exit code 1 when anything needs a look.",
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
    output="Metadata nodes, entries, damaged places. Exit code 1 when anything needs a look.",
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
    steps = (
        ["run it again without --dry-run"]
        if done.dry_run
        else ["pulsar-admin store export zookeeper HOST:PORT", "start the bookies"]
    )
    lines += ["", "Next:", *(f"  {number}. {typable(step)}" for number, step in enumerate(steps, 1))]
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
        return Result(api.preview_parts(**parts), plain=importing.render_preview)
    result = api.add_parts(**parts, mode=mode, verify=verify)
    app.problems(result.problems)
    return Result(result, plain=importing.render_refresh)


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
    return importing.text_rows(rows + [("dry run", "nothing was written")] * result.dry_run)
