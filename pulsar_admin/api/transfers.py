"""Reading from clusters and writing to them: new stores, refresh, further parts, incident bundles, exports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from msgspec.structs import replace

from pulsar_admin import arguments
from pulsar_admin.api.session import Session, session_of
from pulsar_admin.arguments import Checked, Count, Rate, Time
from pulsar_admin.later import later, laters
from pulsar_admin.store.db.files import FileMode
from pulsar_admin.store.db.storeinfo import check_new_store
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.model.publish_times import Form
from pulsar_admin.store.names import Profile, parse_topic
from pulsar_admin.store.pace import PACE
from pulsar_admin.store.wording import Answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pulsar_admin.confirm import Plan as Previewed
    from pulsar_admin.store.db.environment import Store as StoreFile
    from pulsar_admin.store.disks import clone as cloning
    from pulsar_admin.store.disks import salvage as salvaging
    from pulsar_admin.store.doctor import diagnosing
    from pulsar_admin.store.engine.operation import Engine
    from pulsar_admin.store.history import as_of
    from pulsar_admin.store.sources import bookieconf, ensemble, given_bookies, objects, roots
    from pulsar_admin.store.sources import cluster as clusters
    from pulsar_admin.store.sources import layout as layouts
    from pulsar_admin.store.sources.given_bookies import GivenBookie
    from pulsar_admin.store.sources.nodes import Source
    from pulsar_admin.store.tables import export as tabling
    from pulsar_admin.store.tables import importing as loading
    from pulsar_admin.store.transfer import bookie_export, ensemble_export, fetching, offloads, snapshot_export
    from pulsar_admin.store.transfer import bundle as bundles
    from pulsar_admin.store.transfer import exports as exporting
    from pulsar_admin.store.transfer import imports as importing
    from pulsar_admin.store.transfer import refresh as refreshing
else:
    bookie_export, bundles, fetching = laters("pulsar_admin.store.transfer", "bookie_export bundle fetching")
    ensemble_export, exporting, importing = laters("pulsar_admin.store.transfer", "ensemble_export exports imports")
    offloads, refreshing, snapshot_export = laters("pulsar_admin.store.transfer", "offloads refresh snapshot_export")
    diagnosing, as_of = later("pulsar_admin.store.doctor.diagnosing"), later("pulsar_admin.store.history.as_of")
    cloning, salvaging = laters("pulsar_admin.store.disks", "clone salvage")
    tabling, loading = laters("pulsar_admin.store.tables", "export importing")
    clusters, layouts, given_bookies = laters("pulsar_admin.store.sources", "cluster layout given_bookies")
    bookieconf, ensemble, objects, roots = laters("pulsar_admin.store.sources", "bookieconf ensemble objects roots")


Exported = TypeVar("Exported", bound=Answer)
Planned = TypeVar("Planned", bound="Previewed")
Mode = Literal["referenced", "copied", "linked"]
"""Where the entry logs of an import lie: where they are, or copied or hard-linked into the store."""


@arguments.checked
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
    max_rate: Rate | None = None,
) -> importing.ImportResult:
    """Import a standalone Pulsar's data directory into a new store; the source is only read, even while Pulsar runs.

    ``verify`` checks every entry's digest. ``max_rate`` limits reading to that many bytes a second, in this process only. ``jobs`` and
    ``spark`` are those of ``open_store``; ``at``, ``index``, ``chroot`` and ``ledgers_root`` those of ``import_cluster``. Calling once
    more continues an interrupted import. The result counts nodes, files, bytes, records, entries and ``problems``; ``warnings`` are
    PartialData warnings too. Raises SourceNotFound, AlreadyExists, StoreBusy, MetadataCorrupt, DiskFull, NotWritable, InvalidValue, and
    for ``at`` Refused (no history), NothingMatches.
    """
    session = session_of(now=now, jobs=jobs, spark=spark)
    layout = layouts.read_standalone_layout(Path(source), arguments.wanted_of(chroot, ledgers_root))
    with PACE.limited(max_rate):
        return import_parts(session, layout, Path(path), mode=mode, verify=verify, index=index, at=at)


@arguments.checked
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
    max_rate: Rate | None = None,
) -> importing.ImportResult:
    """Import the available parts of a cluster into a new store; ``Store.add_parts`` adds others later.

    ``metadata`` is a directory of ZooKeeper or RocksDB, or ``HOST:PORT,…/CHROOT`` of a running ensemble; ``client`` the TOML file with the
    login. ``chroot`` is the cluster's root path in a ZooKeeper with several clusters; ``ledgers_root`` the whole path of BookKeeper's
    root unless it is ``ledgers`` below. ``bookies`` are ``ID=DIR,DIR`` or ``DIR,DIR`` each, with all directories, or results of
    ``read_bookie_conf``. ``at`` selects the metadata of a time (as text an absolute one, or "-3h"), or of a zxid such as "0x4a1", from
    ZooKeeper's files. With ``index`` False no entry is read, and the store only answers ``export_tables``. ``absent_bookies`` of the
    result are those that the metadata names. Other options and errors are those of ``import_standalone``. Also raises Refused and
    Unsupported for disks that cannot belong to one cluster.
    """
    session = session_of(now=now, jobs=jobs, spark=spark)
    layout = clusters.make_layout(*given_parts(metadata, bookies, client, chroot, ledgers_root))
    with PACE.limited(max_rate):
        return import_parts(session, layout, Path(path), mode=mode, verify=verify, index=index, at=at)


@arguments.checked
def import_tables(place: Path | str, path: Path | str, *, cluster: str | None = None) -> loading.TablesImported:
    """Create a store from tables that ``store export tables`` wrote to a directory or URL: of ``cluster``, or the only one.

    It needs the tables nodes, rows, bodies and entries of one export; messages are read from the logs' original place. ``incomplete`` of
    the result says why the tables are incomplete. Raises SourceNotFound, NotFound, InvalidValue, Unsupported (a table is
    missing, or of an earlier version), SourceChanged, Corrupt, AlreadyExists, DiskFull, NotWritable.
    """
    return load_tables(session_of(), str(place), Path(path), cluster)


def load_tables(session: Session, place: str, path: Path, cluster: str | None) -> loading.TablesImported:
    """Create the store for a session; options are those of ``import_tables``."""
    check_new_store(path)
    tables = loading.find_tables(place, cluster)
    with session.progress(tables.rows, "rows", "import") as advance:
        return loading.import_tables(tables, path, advance)


def import_parts(
    session: Session,
    layout: layouts.Layout,
    path: Path,
    *,
    mode: Mode = "referenced",
    verify: bool = True,
    index: bool = True,
    at: Time | as_of.Moment | None = None,
) -> importing.ImportResult:
    """Import a layout for a session; options are those of ``import_cluster``."""
    layout = layout_then(session, layout, at)
    size_bytes = importing.layout_bytes(layout) if index else 0
    with _bringing(session, size_bytes, "import") as (engine, advance, warn):
        options = importing.ImportOptions(FileMode(mode), verify, session.clock_ms, engine, session.wait_ms, index)
        result = importing.import_layout(layout, path, options, advance, warn)
    if layout.metadata is not None and not layout.metadata.roots.is_whole:
        session.tell(roots.roots_text(layout.metadata.roots))
    return result


def layout_then(session: Session, layout: layouts.Layout, at: Time | as_of.Moment | None) -> layouts.Layout:
    """Return a layout with its metadata at a time, None: unchanged; raises Refused if it has no history, NothingMatches."""
    if at is None:
        return layout
    problems: list[str] = []
    metadata = as_of.past_metadata(layout.metadata, arguments.moment_of(at), problems)
    session.partial(problems)
    session.tell(f"the metadata is as of transaction {metadata.as_of_zxid:#x}; entries are the current ones")
    return replace(layout, metadata=metadata)


def given_parts(
    metadata: Path | str | None,
    bookies: Iterable[str | GivenBookie],
    client: Path | str | None,
    chroot: str | None,
    ledgers_root: str | None,
) -> tuple[Source | None, list[GivenBookie]]:
    """Return the named metadata (None: none) and bookies of a cluster; raises InvalidValue if there are neither, SourceNotFound."""
    given = [*map(given_bookie, arguments.given_items("bookies", bookies))]
    if metadata is None and not given:
        raise InvalidValue("no part of a cluster is named", hint="name metadata, bookies or both")
    wanted, login = arguments.wanted_of(chroot, ledgers_root), None if client is None else Path(client)
    return None if metadata is None else clusters.open_metadata(str(metadata), login, wanted, given), given


def given_bookie(bookie: str | GivenBookie) -> GivenBookie:
    """Return the bookie that a text names; raises InvalidValue."""
    if isinstance(bookie, str):
        return given_bookies.parse_bookie(bookie)
    return arguments.given_object("bookie", bookie, given_bookies.GivenBookie)


@arguments.checked
def read_bookie_conf(file: Path | str, root: Path | str | None = None) -> GivenBookie:
    """Return the bookie of a bookkeeper.conf, or of a copy of its disks below ``root``; raises SourceNotFound, InvalidValue."""
    return bookieconf.read_bookie_conf(Path(file), None if root is None else Path(root))


@arguments.checked
def fetch_bookie(text: str, into: Path | str | None, *, beginnings: Path | str | None = None) -> str:
    """Return ``[ID=]PART,PART`` with URLs and archives replaced by local directories below ``into``.

    Without ``into``, entry logs stay at their URLs, where the store reads them; ``beginnings`` gets the small files. Raises InvalidValue
    if neither will do, SourceNotFound, MissingComponent, EntryLogCorrupt, NotWritable, DiskFull.
    """
    return fetching.fetch_bookie(text, *(None if place is None else Path(place) for place in (into, beginnings)))


@arguments.checked
def preview_import(source: Path | str, path: Path | str) -> importing.ImportPreview:
    """Return what ``import_standalone`` would read: metadata nodes, files, bytes. Raises what it raises before it writes."""
    layout = layouts.read_standalone_layout(Path(source), arguments.wanted_of(None, None))
    return importing.preview_import(layout, Path(path))


def preview_parts(
    session: Session, layout: layouts.Layout, path: Path, at: Time | as_of.Moment | None = None
) -> importing.ImportPreview:
    """Return what ``import_parts`` would read."""
    return importing.preview_import(layout_then(session, layout, at), path)


@arguments.checked
def create_store(path: Path | str) -> None:
    """Create an empty store; ``path`` must not exist, or be empty. Raises AlreadyExists, NotFound (no parent), NotWritable, DiskFull."""
    from pulsar_admin.store.db.environment import create_store as create

    check_new_store(Path(path))
    create(Path(path), now_ms=session_of().clock_ms)


@arguments.checked
def import_bundle(file: Path | str, path: Path | str, *, now: Time | None = None) -> bundles.BundleImported:
    """Create a store from an incident bundle; it answers questions that need only metadata and the index.

    Raises SourceNotFound, AlreadyExists, MetadataCorrupt, Unsupported, DiskFull, NotWritable.
    """
    return store_of_bundle(session_of(now=now), Path(file), Path(path))


def store_of_bundle(session: Session, file: Path, path: Path) -> bundles.BundleImported:
    """Create a store from a bundle for a session."""
    return bundles.import_bundle(file, path, session.clock_ms, diagnosing.check_store)


@contextmanager
def _bringing(
    session: Session, size_bytes: int, label: str
) -> Iterator[tuple[Engine | None, Callable[[int], None], Callable[[str], None]]]:
    """Open the engine that scans new files, and hand out the functions for progress and for warnings."""
    with (
        session.warnings() as warn,
        session.engine([], size_bytes) as engine,
        session.progress(size_bytes, "bytes", label, resumes=True) as advance,
    ):
        yield engine, advance, warn


class Transfers(Checked):
    """The part of ``Store`` that reads sources and writes targets."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def preview_refresh(self) -> refreshing.RefreshPreview:
        """Return what ``refresh`` would read; raises Refused (not an imported store), SourceNotFound.

        Bookies at URLs are not listed, because that would write; a warning says so.
        """
        with self._session.opened() as store, self._session.warnings() as warn:
            return refreshing.preview_refresh(store, warn)

    def refresh(self, *, forget: bool = False, verify: bool = True) -> refreshing.RefreshResult:
        """Update the store from its sources: read new entries, merge changed metadata; changes made in the store stay.

        Bookies at URLs are listed again. ``forget`` removes entries of deleted files from the index; ``verify`` checks digests.
        ``problems`` counts cases that a person must look at. Raises NotWritable, Refused, SourceNotFound, SourceChanged, DiskFull.
        """
        with self._session.writing() as store:
            size_bytes = refreshing.prepare_refresh(store)
            with _bringing(self._session, size_bytes, "refresh") as (engine, advance, warn):
                options = refreshing.RefreshOptions(verify, forget, self._session.clock_ms, engine)
                return refreshing.refresh_store(store, options, advance, warn)

    def preview_parts(
        self,
        *,
        metadata: Path | str | None = None,
        bookies: Iterable[str | GivenBookie] = (),
        client: Path | str | None = None,
        chroot: str | None = None,
        ledgers_root: str | None = None,
    ) -> importing.ImportPreview:
        """Return what ``add_parts`` would read: metadata nodes, files, bytes; raises what it raises before it writes."""
        with self._session.read() as txn:
            layout = clusters.make_layout(*given_parts(metadata, bookies, client, chroot, ledgers_root), txn)
        with self._session.opened() as store:
            return refreshing.preview_add(store, layout)

    def add_parts(
        self,
        *,
        metadata: Path | str | None = None,
        bookies: Iterable[str | GivenBookie] = (),
        mode: Mode = "referenced",
        verify: bool = True,
        client: Path | str | None = None,
        chroot: str | None = None,
        ledgers_root: str | None = None,
    ) -> refreshing.RefreshResult:
        """Add metadata, or the disks of bookies, that the store lacks; parameters as of ``import_cluster``.

        A stopped addition continues when it is called again, or with ``refresh``. Raises what ``import_cluster`` and ``refresh`` raise.
        """
        with self._session.read() as txn:
            layout = clusters.make_layout(*given_parts(metadata, bookies, client, chroot, ledgers_root), txn)
        with (
            self._session.writing() as store,
            _bringing(self._session, importing.layout_bytes(layout), "add") as (engine, advance, warn),
        ):
            options = importing.ImportOptions(FileMode(mode), verify, self._session.clock_ms, engine)
            return refreshing.add_sources(store, layout, options, advance, warn)

    def add_offload(self, place: str, *, dry_run: bool = False) -> offloads.OffloadResult:
        """Import ledgers from tiered storage: a directory of objects or MapFiles, or the URL of a bucket and prefix.

        ``dry_run`` only reports what it would import. ``absent`` of the result are offloaded ledgers that were not found. Raises
        SourceNotFound, NotFound, EntryLogCorrupt, MetadataCorrupt, Unsupported, NotWritable, DiskFull.
        """
        with self._session.opened() as store:
            plan = offloads.plan_offload(store, place, objects.open_objects(place))
            if dry_run:
                return offloads.preview_offload(store, plan)
        with self._session.writing() as store, self._session.progress(plan.bytes, "bytes", "add") as advance:
            return offloads.add_offload(store, plan, self._session.clock_ms, advance)

    def export(
        self, directory: Path | str, *, in_place: bool = False, annotate: Form | None = None, dry_run: bool = False
    ) -> exporting.ExportReport:
        """Write the store's changes into a new copy of the imported directory, or ``in_place`` into the directory itself.

        A broker starts on it. ``annotate`` adds publish times (PIP-345) of closed ledgers, as properties or fields. ``dry_run`` only plans
        it. Returns source, target, ``nodes`` and ``ledgers`` written. Raises InvalidValue, NotWritable, AlreadyExists, SourceNotFound,
        SourceBusy, StalePlan, Refused.
        """
        now_ms = self._session.clock_ms
        return self._exported(
            lambda store: exporting.plan_export(
                store, Path(directory), in_place=in_place, annotate=annotate, now_ms=now_ms
            ),
            exporting.run_export,
            dry_run,
        )

    def _exported(
        self,
        plan: Callable[[StoreFile], Planned],
        run: Callable[[StoreFile, Planned, int], Exported],
        dry_run: bool,
        *,
        changes: bool = True,
    ) -> Exported:
        """Plan, confirm and run an export, or with ``dry_run`` only plan it; ``changes``: whether it also writes the store."""
        with self._session.opened() as store:
            planned = plan(store)
        if dry_run:
            return cast("Exported", planned.preview())
        self._session.confirm(planned)
        with self._session.writing() if changes else self._session.opened() as store:
            return run(store, planned, self._session.clock_ms)

    def export_zookeeper(
        self,
        address: str,
        *,
        client: Path | str | None = None,
        jute_maxbuffer: Count = 1_048_575,
        dry_run: bool = False,
    ) -> ensemble_export.EnsembleExportReport:
        """Write the store's changes into the live ensemble at ``HOST:PORT,…/CHROOT`` as one transaction; ``dry_run`` only plans it.

        ``client`` is the TOML file with the login. Returns the nodes written and the zxid. Raises StalePlan if a node changed, Refused if a
        broker serves a topic, SourceBusy if the outcome is unknown: call it once more. Also raises InvalidValue, SourceNotFound (no answer
        within 30 s).
        """
        place, login = ensemble.parse_address(address), ensemble.read_client(None if client is None else Path(client))

        def plan(store: StoreFile) -> ensemble_export.EnsemblePlan:
            planned = ensemble_export.plan_ensemble_export(store, place, login, jute_maxbuffer)
            if not planned.nodes:
                self._session.tell(f"{place} has every change of the store: nothing to write")
            return planned

        return self._exported(
            plan,
            lambda store, planned, now_ms: ensemble_export.run_ensemble_export(store, planned, login, now_ms),
            dry_run,
        )

    def export_snapshot(self, directory: Path | str, *, force: bool = False) -> snapshot_export.SnapshotExportReport:
        """Write the store's metadata as a snapshot into a new directory, the dataDir that a ZooKeeper server starts on.

        ``force`` accepts nodes that could not be imported. Raises AlreadyExists, Refused, MetadataCorrupt.
        """
        now_ms = self._session.clock_ms
        return self._exported(
            lambda store: snapshot_export.plan_snapshot_export(store, Path(directory), now_ms, force=force),
            lambda store, plan, _: snapshot_export.apply_snapshot_export(store, plan),
            False,
            changes=False,
        )

    def clone(
        self,
        directory: Path | str,
        *,
        topics: Iterable[str] = (),
        cluster: str = "",
        boot_at: Path | str | None = None,
        bookie_id: str = "127.0.0.1:3181",
        dry_run: bool = False,
    ) -> cloning.CloneReport:
        """Write the store's cluster, or some topics, as one new standalone directory; ``dry_run`` only plans it.

        ``cluster`` is its name, if the metadata has several, or ``NAME=NEW``. It only starts at ``boot_at``, by default ``directory``;
        ``bookie_id`` is that of its bookie. Returns its contents, what is ``missing`` by ledger, and how to ``start`` it. Raises
        AlreadyExists, InvalidValue, TopicNotFound, Refused (``cluster`` names none of several), SourceChanged, StalePlan, DiskFull.
        """
        request = cloning.CloneRequest(
            Path(directory),
            None if boot_at is None else Path(boot_at),
            tuple(map(parse_topic, arguments.given_texts("topics", topics))),
            cluster,
            bookie_id,
        )
        warn = self._session.warn
        return self._exported(
            lambda store: cloning.plan_clone(store, request, warn), cloning.apply_clone, dry_run, changes=False
        )

    def salvage(
        self, bookie: str | GivenBookie, *, collected: bool = False, dry_run: bool = False
    ) -> salvaging.SalvageReport:
        """Rebuild the index of a stopped bookie from its logs and journals, cut a journal that prevents its start, and put aside the
        marks of a missing journal.

        ``bookie`` is that of ``import_cluster``, with all directories; ``collected`` includes ledgers that garbage collection took out of
        the index; ``dry_run`` only plans it. Metadata and copies of missing entries come from this store. Returns the findings by
        directory, whether a salvage is ``needed``, and where old files are ``kept``. Raises InvalidValue, Refused (of another cluster),
        SourceNotFound, SourceBusy, Unsupported, StalePlan, NotWritable, DiskFull.
        """
        return self._exported(
            lambda store: salvaging.plan_salvage(
                store, given_bookies.find_bookie(given_bookie(bookie)), collected=collected
            ),
            lambda store, plan, _: salvaging.apply_salvage(store, plan),
            dry_run,
            changes=False,
        )

    def write_bundle(self, file: Path | str, *, names: Path | str | None = None) -> bundles.BundleReport:
        """Write metadata, index and findings into a new file, to share with others: pseudonyms for names, no payloads or keys.

        ``names``, default ``file`` with ``.names.json`` appended, maps them back, and stays private; that of an earlier bundle gives the
        same pseudonyms. ``import_bundle`` creates a store from the bundle. Returns its contents, and ``findings`` by code. Raises
        AlreadyExists, InvalidValue, DiskFull, NotWritable, and StoreBusy while another bundle is written with these names.
        """
        with self._session.opened() as store:
            findings, beside = diagnosing.check_store(store), None if names is None else Path(names)
            return bundles.write_bundle(store, Path(file), beside, findings, self._session.clock_ms)

    def export_bookies(
        self, bookies: Iterable[str | GivenBookie], *, dry_run: bool = False
    ) -> bookie_export.BookieExportReport:
        """Write the ledgers created here to stopped bookies, as of ``import_cluster``, with as many copies as the topics' ledgers have, and
        the new id of a renamed bookie into the ``VERSION`` of its directories.

        ``dry_run`` only plans it. Returns the ledgers, their bookies, the entries and cookies written; ``export_zookeeper`` transfers the
        metadata. Raises InvalidValue, Refused, NotFound, SourceNotFound, SourceBusy, StalePlan.
        """
        given, now_ms = [*map(given_bookie, bookies)], self._session.clock_ms
        return self._exported(
            lambda store: bookie_export.plan_bookie_export(store, given, now_ms),
            bookie_export.apply_bookie_export,
            dry_run,
        )

    def export_tables(
        self,
        directory: Path | str,
        *,
        cluster: str | None = None,
        only: Iterable[str] = (),
        messages: bool = False,
        payload: bool = False,
        columns: Profile | None = None,
        iceberg: bool = False,
        catalog: str | None = None,
    ) -> tabling.TablesReport:
        """Write the store as Parquet tables into a directory or URL, by the jobs or Spark of ``open_store``.

        ``cluster`` is its name in the tables; ``only`` restricts the tables; ``messages`` adds that table, with ``payload``, or with
        ``columns`` under the names of ``pulsar-spark``, values as bytes. ``iceberg`` commits them to Iceberg tables of ``catalog``, a name
        or URI (default: catalog.db in the directory), replacing the cluster's rows. Unreadable metadata is left out with a PartialData
        warning. Raises InvalidValue, Refused, StalePlan, StoreBusy, SourceNotFound, SliceFailed, DiskFull, NotWritable; after an error the
        tables are unchanged.
        """
        if iceberg:
            from pulsar_admin.store.tables.iceberg import export_iceberg as export
        else:
            export = tabling.export_tables
        chosen = arguments.given_texts("only", only)
        request = tabling.ExportRequest(str(directory), cluster, chosen, catalog, payload, columns, messages, iceberg)
        with self._session.reporting() as problems, self._session.reader(unindexed=True) as reader:
            request = request.checked(reader.txn.store.info.state)
            size_bytes = tabling.scanned_bytes(reader, request)
            with (
                self._session.engine([], size_bytes) as engine,
                self._session.progress(size_bytes, "bytes", "export") as advance,
            ):
                return export(reader, request, self._session.clock_ms, problems.append, engine, advance)
