"""New stores: empty, imported from a Pulsar data directory, or made of an incident bundle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from pulsar_admin.api.given import given_flags, given_items, given_object, given_path, given_rate, given_text, wanted_of
from pulsar_admin.api.session import Caller, Session, Time, check_choice, moment_of
from pulsar_admin.jsonify import to_json
from pulsar_admin.store.db.storeinfo import check_new_store
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.pace import PACE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pulsar_admin.store.db.environment import Store
    from pulsar_admin.store.history.as_of import Moment
    from pulsar_admin.store.sources.given import GivenBookie
    from pulsar_admin.store.sources.layout import Layout
    from pulsar_admin.store.sources.nodes import Source
    from pulsar_admin.store.sources.roots import Wanted
    from pulsar_admin.store.tables.importing import TablesImported
    from pulsar_admin.store.transfer.imports import ImportPreview, ImportResult


Mode = Literal["referenced", "copied", "linked"]
"""Where the entry logs of an import lie: where they are, or copied or hard-linked into the store."""


def import_standalone(
    source: Path | str,
    path: Path | str,
    *,
    mode: Mode = "referenced",
    verify: bool = True,
    now: Time | None = None,
    jobs: int = 1,
    spark: SparkSession | None = None,
    at: Time | None = None,
    index: bool = True,
    chroot: str | None = None,
    ledgers_root: str | None = None,
    max_rate: int | None = None,
) -> ImportResult:
    """Read a standalone Pulsar's data directory SOURCE into a new store at PATH; SOURCE is only read, also while Pulsar runs.

    VERIFY: the digest of every entry. MAX_RATE: how many bytes a second are read at most, by this process alone. JOBS and SPARK as of
    ``open_store``; AT, INDEX, CHROOT and LEDGERS_ROOT as of ``import_cluster``. An import that was stopped goes on when it is called
    again. The result counts nodes, files, bytes, records, entries and ``problems``; ``warnings`` are PartialData warnings, too. Raises
    SourceNotFound, AlreadyExists, StoreBusy, MetadataCorrupt, DiskFull, NotWritable.
    """
    from pulsar_admin.store.sources.layout import read_standalone_layout

    given_flags(verify=verify, index=index)
    caller = Caller(now, jobs=jobs, spark=spark)
    layout = read_standalone_layout(given_path("source", source), wanted_of(chroot, ledgers_root))
    place = given_path("path", path)
    with PACE.limited(given_rate(max_rate)):
        return import_parts(caller, layout, place, mode=mode, verify=verify, index=index, at=at)


def import_cluster(
    path: Path | str,
    *,
    metadata: Path | str | None = None,
    bookies: Iterable[str | GivenBookie] = (),
    mode: Mode = "referenced",
    verify: bool = True,
    now: Time | None = None,
    jobs: int = 1,
    spark: SparkSession | None = None,
    at: Time | None = None,
    index: bool = True,
    client: Path | str | None = None,
    chroot: str | None = None,
    ledgers_root: str | None = None,
    max_rate: int | None = None,
) -> ImportResult:
    """Read the parts of a cluster that are at hand into a new store at PATH; ``Store.add_parts`` brings others later.

    METADATA: a directory of ZooKeeper or RocksDB, or ``HOST:PORT,…/CHROOT`` of a running ensemble; CLIENT: the TOML file that says how
    to log in there. CHROOT: the path in ZooKeeper that the cluster takes for its root, where there are several clusters; LEDGERS_ROOT:
    the whole path of BookKeeper's root where it is not ``ledgers`` below. BOOKIES: ``ID=DIR,DIR`` or ``DIR,DIR`` each, with all its
    directories, or what ``read_bookie_conf`` returns. AT: the metadata as of a time, or a zxid such as "0x4a1", of ZooKeeper's files.
    INDEX False: no entry is read, and the store answers ``export_tables`` alone. ``absent_bookies`` of the result are those that the
    metadata names. The rest is as of ``import_standalone``. Raises InvalidValue, Refused, Unsupported for what cannot be one cluster's
    disks, too.
    """
    given_flags(verify=verify, index=index)
    place, caller = given_path("path", path), Caller(now, jobs=jobs, spark=spark)
    layout = layout_of(metadata, bookies, client, wanted_of(chroot, ledgers_root))
    with PACE.limited(given_rate(max_rate)):
        return import_parts(caller, layout, place, mode=mode, verify=verify, index=index, at=at)


def import_tables(place: Path | str, path: Path | str, *, cluster: str | None = None) -> TablesImported:
    """Make a store at PATH of tables that ``store export tables`` wrote to PLACE, a directory or URL: of CLUSTER, or the only one there.

    Needed are the tables nodes, rows, bodies and entries of one export; messages are read where the logs lie. ``incomplete`` of the
    result: why the metadata of the tables was not whole. Raises SourceNotFound, NotFound, InvalidValue, Unsupported (a table is missing,
    or of an earlier version), SourceChanged, Corrupt, AlreadyExists, DiskFull, NotWritable.
    """
    given_path("place", place)
    if cluster is not None:
        given_text("cluster", cluster)
    return load_tables(Caller(None), str(place), given_path("path", path), cluster)


def load_tables(caller: Caller, place: str, path: Path, cluster: str | None) -> TablesImported:
    """Make the store for CALLER; the rest is as of ``import_tables``."""
    from pulsar_admin.store.tables.importing import find_tables
    from pulsar_admin.store.tables.importing import import_tables as load

    check_new_store(path)
    found = find_tables(place, cluster)
    with caller.progress(found.rows, "rows", "import") as advance:
        return load(found, path, advance)


def import_parts(
    caller: Caller,
    layout: Layout,
    path: Path,
    *,
    mode: Mode = "referenced",
    verify: bool = True,
    index: bool = True,
    at: Time | Moment | None = None,
) -> ImportResult:
    """Import LAYOUT for CALLER; the rest is as of ``import_cluster``."""
    from pulsar_admin.store.db.files import FileMode
    from pulsar_admin.store.sources.roots import roots_text
    from pulsar_admin.store.transfer.imports import ImportOptions, import_layout, layout_bytes

    check_choice("mode", mode, Mode)
    layout = layout_then(caller, layout, at)
    size_bytes = layout_bytes(layout) if index else 0
    with (
        caller.warnings() as warn,
        caller.engine([], size_bytes) as engine,
        caller.progress(size_bytes, "bytes", "import", resumes=True) as advance,
    ):
        options = ImportOptions(FileMode(mode), verify, caller.clock_ms, engine, caller.wait_ms, index)
        result = import_layout(layout, path, options, advance, warn)
    if layout.metadata is not None and not layout.metadata.roots.is_whole:
        caller.tell(roots_text(layout.metadata.roots))
    return result


def layout_then(caller: Caller, layout: Layout, at: Time | Moment | None) -> Layout:
    """Return LAYOUT with its metadata as of AT, None: as it is; raises Refused for what keeps no history, NothingMatches."""
    if at is None:
        return layout
    from pulsar_admin.store.history.as_of import past_metadata

    problems: list[str] = []
    found = past_metadata(layout.metadata, moment_of(at), problems)
    caller.partial(problems)
    caller.tell(f"the metadata is as of transaction {found.as_of:#x}; entries are the current ones")
    return replace(layout, metadata=found)


def layout_of(
    metadata: Path | str | None,
    bookies: Iterable[str | GivenBookie],
    client: Path | str | None = None,
    wanted: Wanted | None = None,
) -> Layout:
    """Return the parts of a cluster that are named; raises InvalidValue where none is."""
    from pulsar_admin.store.sources.cluster import make_layout

    return make_layout(*given_parts(metadata, bookies, client, wanted))


def given_parts(
    metadata: Path | str | None,
    bookies: Iterable[str | GivenBookie],
    client: Path | str | None,
    wanted: Wanted | None = None,
) -> tuple[Source | None, list[GivenBookie]]:
    """Return what is named of a cluster; raises InvalidValue where nothing is. The bookies' configurations add to what is WANTED."""
    given = [*map(given_bookie, given_items("bookies", bookies))]
    if metadata is None and not given:
        raise InvalidValue("no part of a cluster is named", hint="name metadata, bookies or both")
    return source_of(metadata, client, wanted, given), given


def source_of(
    metadata: Path | str | None,
    client: Path | str | None = None,
    wanted: Wanted | None = None,
    bookies: Iterable[GivenBookie] = (),
) -> Source | None:
    """Return the METADATA that are named, None for none; raises SourceNotFound. BOOKIES may say which cluster of a ZooKeeper it is."""
    from pulsar_admin.store.sources.cluster import open_metadata
    from pulsar_admin.store.sources.roots import Wanted

    if metadata is None:
        return None
    wanted = wanted or Wanted()
    hints = dict.fromkeys(bookie.metadata_root for bookie in bookies if bookie.metadata_root)
    return open_metadata(
        str(given_path("metadata", metadata)),
        None if client is None else given_path("client", client),
        Wanted(wanted.chroot, wanted.ledgers, (*hints,)),
    )


def given_bookie(bookie: str | GivenBookie) -> GivenBookie:
    """Return the bookie that a text names; raises InvalidValue."""
    from pulsar_admin.store.sources.given import GivenBookie, parse_bookie

    return parse_bookie(bookie) if isinstance(bookie, str) else given_object("bookie", bookie, GivenBookie)


def read_bookie_conf(file: Path | str, root: Path | str | None = None) -> GivenBookie:
    """Return the bookie that FILE, its bookkeeper.conf, configures; ROOT: where its disks were copied to, with their paths below it.

    Raises SourceNotFound, InvalidValue.
    """
    from pulsar_admin.store.sources.bookieconf import read_bookie_conf

    return read_bookie_conf(given_path("file", file), None if root is None else given_path("root", root))


def fetch_bookie(text: str, into: Path | str | None) -> str:
    """Return TEXT, ``[ID=]PART,PART``, with local directories below INTO for the parts that are URLs or archives.

    Raises InvalidValue when there are such and no INTO, SourceNotFound, MissingComponent, EntryLogCorrupt, NotWritable, DiskFull.
    """
    from pulsar_admin.store.transfer.fetching import fetch_bookie

    return fetch_bookie(given_text("text", text), None if into is None else given_path("into", into))


def preview_import(source: Path | str, path: Path | str) -> ImportPreview:
    """Return what ``import_standalone`` would read: metadata nodes, files, bytes. Raises what it raises before it writes."""
    from pulsar_admin.store.sources.layout import read_standalone_layout

    layout = read_standalone_layout(given_path("source", source), wanted_of(None, None))
    return preview_parts(Caller(), layout, given_path("path", path))


def preview_parts(caller: Caller, layout: Layout, path: Path, at: Time | Moment | None = None) -> ImportPreview:
    """Return what ``import_parts`` would read."""
    from pulsar_admin.store.transfer.imports import preview_import

    return preview_import(layout_then(caller, layout, at), path)


def create_store(path: Path | str) -> None:
    """Make an empty store at PATH, which must not exist, or be empty; raises AlreadyExists, NotWritable, DiskFull."""
    from pulsar_admin.store.db.environment import create_store as create

    place = given_path("path", path)
    check_new_store(place)
    create(place, now_ms=Caller().clock_ms)


Json = dict[str, Any]  # Any: JSON values


def bundle_of(session: Session, file: Path, names: Path) -> Json:
    """Write the bundle of the store to FILE, with pseudonyms that NAMES maps back."""
    from pulsar_admin.store.transfer.bundle import write_bundle

    with session.opened() as store:
        findings = _findings(store)
        told = {**_versions(), "created": session.clock_ms, "findings": findings}
        result = write_bundle(store, file, names, told)
    return {"bundle": str(file), "names": str(names), **to_json(result), "findings": findings}


def import_bundle(file: Path | str, path: Path | str, *, now: Time | None = None) -> Mapping[str, Any]:  # Any: JSON
    """Make a store at PATH of the incident bundle FILE; it answers what needs only metadata and the index.

    Returns what the bundle held, and ``sameFindings``: whether a check finds what it found where the bundle was made, of all that
    needs no bookies' files.
    Raises SourceNotFound, AlreadyExists, MetadataCorrupt, Unsupported, DiskFull, NotWritable.
    """
    return store_of_bundle(Caller(now), given_path("file", file), given_path("path", path))


def store_of_bundle(caller: Caller, file: Path, path: Path) -> Json:
    """Make a store at PATH of the bundle FILE for CALLER."""
    from pulsar_admin.store.db.environment import open_store
    from pulsar_admin.store.transfer.bundle import import_bundle as import_file

    result, header = import_file(file, path, caller.clock_ms)
    with open_store(path) as store:  # what it checks may be damaged
        same = _of_bundles(_findings(store)) == _of_bundles(header.get("findings") or [])
    told = {key: header.get(key) for key in ("toolkit", "created", "findings")}
    return {"store": str(path), **to_json(result), **told, "sameFindings": same}


def _versions() -> Json:
    import platform
    from importlib.metadata import version

    return {
        "toolkit": version("pulsar-admin-toolkit"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _of_bundles(findings: list[Json]) -> list[Json]:
    """Return those of FINDINGS that need no bookies' files."""
    from pulsar_admin.store.rules.table import RULES

    of_disks = {rule.code for rule in RULES if rule.of_disks}
    return [found for found in findings if found["code"] not in of_disks]


def _findings(store: Store) -> list[Json]:
    """Return how many findings of each code there are, problems first."""
    from pulsar_admin.store.check import check_store

    # A bundle has the content of rows and not their bytes: whether those of its store have digests is not found again.
    found = Counter(
        (not finding.is_problem, finding.code)
        for finding in check_store(store)
        if finding.code != "rows-without-digests"
    )
    return [
        {"severity": "note" if is_note else "problem", "code": code, "count": count}
        for (is_note, code), count in sorted(found.items())
    ]
