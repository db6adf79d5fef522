"""What an open store takes from a cluster, and gives back to it: refresh, further parts, exports; messages and entries as files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from pulsar_admin.api.given import (
    given_flag,
    given_flags,
    given_items,
    given_keywords,
    given_object,
    given_path,
    given_text,
    given_texts,
    wanted_of,
    whole_number,
)
from pulsar_admin.api.imports import Mode, given_bookie, layout_of
from pulsar_admin.api.session import Place, Session, Time, check_choice
from pulsar_admin.store.errors import InvalidValue, StoreError
from pulsar_admin.store.names import parse_topic, parse_topics

if TYPE_CHECKING:
    from pulsar_admin.store.db.environment import Store as StoreFile
    from pulsar_admin.store.dump.job import DumpReport, DumpSize
    from pulsar_admin.store.dump.options import DumpOptions
    from pulsar_admin.store.engine.operation import Engine
    from pulsar_admin.store.model.publish_times import Form
    from pulsar_admin.store.model.reader import EntryReader
    from pulsar_admin.store.model.topics import Topic
    from pulsar_admin.store.names import Profile
    from pulsar_admin.store.sources.given import GivenBookie
    from pulsar_admin.store.tables.export import TablesReport
    from pulsar_admin.store.transfer.bookie_export import BookieExportPlan
    from pulsar_admin.store.transfer.ensemble_export import EnsemblePlan
    from pulsar_admin.store.transfer.exports import ExportPlan
    from pulsar_admin.store.transfer.imports import ImportPreview
    from pulsar_admin.store.transfer.offloads import OffloadResult
    from pulsar_admin.store.transfer.refresh import RefreshPreview, RefreshResult

Level = Literal["messages", "entries"]
Format = Literal["parquet", "jsonl"]


class Transfers:
    """The part of ``Store`` that reads sources and writes targets."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def preview_refresh(self) -> RefreshPreview:
        """Return what ``refresh`` would read; raises Refused (it was not imported), SourceNotFound."""
        from pulsar_admin.store.transfer.refresh import preview_refresh

        with self._session.opened() as store:
            return preview_refresh(store)

    def refresh(self, *, forget: bool = False, verify: bool = True) -> RefreshResult:
        """Bring the store up to date with the directory it was imported from: reads what is new, takes metadata over.

        What was changed in the store stays. FORGET: entries of files that are gone leave the index; VERIFY: digests. ``problems``
        counts what a person has to look at. Raises NotWritable, Refused, SourceNotFound, SourceChanged, DiskFull.
        """
        from pulsar_admin.store.sources.cluster import read_stored_layout
        from pulsar_admin.store.transfer.cataloguing import survey_files
        from pulsar_admin.store.transfer.refresh import RefreshOptions, refresh_store

        given_flags(forget=forget, verify=verify)
        with self._session.writing() as store:
            store.add_digests()  # also where the source is gone
            size_bytes = survey_files(store, read_stored_layout(store.info)).bytes()
            with self._bringing(size_bytes, "refresh") as (engine, advance, warn):
                options = RefreshOptions(verify, forget, self._session.clock_ms, engine)
                return refresh_store(store, options, advance, warn)

    def preview_parts(
        self,
        *,
        metadata: Path | str | None = None,
        bookies: Iterable[str | GivenBookie] = (),
        client: Path | str | None = None,
        chroot: str | None = None,
        ledgers_root: str | None = None,
    ) -> ImportPreview:
        """Return what ``add_parts`` would read: metadata nodes, files, bytes; raises what it raises before it writes."""
        from pulsar_admin.store.transfer.refresh import preview_add

        layout = layout_of(metadata, bookies, client, wanted_of(chroot, ledgers_root))
        with self._session.opened() as store:
            return preview_add(store, layout)

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
    ) -> RefreshResult:
        """Bring metadata, or the disks of bookies, that the store lacks; parameters as of ``import_cluster``.

        One that was stopped goes on when it is called again, or with ``refresh``. Raises what ``import_cluster`` and ``refresh`` raise.
        """
        from pulsar_admin.store.db.files import FileMode
        from pulsar_admin.store.transfer.imports import ImportOptions, layout_bytes
        from pulsar_admin.store.transfer.refresh import add_sources

        given_flags(verify=verify)
        check_choice("mode", mode, Mode)
        layout = layout_of(metadata, bookies, client, wanted_of(chroot, ledgers_root))
        with (
            self._session.writing() as store,
            self._bringing(layout_bytes(layout), "add") as (engine, advance, warn),
        ):
            options = ImportOptions(FileMode(mode), verify, self._session.clock_ms, engine)
            return add_sources(store, layout, options, advance, warn)

    @contextmanager
    def _bringing(
        self, size_bytes: int, label: str
    ) -> Iterator[tuple[Engine | None, Callable[[int], None], Callable[[str], None]]]:
        """Open what scans new files run on, what is told of each part of them, and what takes warnings."""
        with (
            self._session.warnings() as warn,
            self._session.engine([], size_bytes) as engine,
            self._session.progress(size_bytes, "bytes", label, resumes=True) as advance,
        ):
            yield engine, advance, warn

    def add_offload(self, place: str, *, dry_run: bool = False) -> OffloadResult:
        """Bring ledgers of tiered storage into the store: PLACE is a directory of objects or MapFiles, or the URL of a bucket and prefix.

        DRY_RUN: only say what would come. ``absent`` of the result are offloaded ledgers that are not there. Raises SourceNotFound,
        NotFound, EntryLogCorrupt, MetadataCorrupt, Unsupported, NotWritable, DiskFull.
        """
        from pulsar_admin.store.sources.objects import open_objects
        from pulsar_admin.store.transfer.offloads import add_offload, plan_offload, preview_offload

        given_flags(dry_run=dry_run)
        given_text("place", place)
        with self._session.opened() as store:
            plan = plan_offload(store, place, open_objects(place))
            if dry_run:
                return preview_offload(store, plan)
        with self._session.writing() as store, self._session.progress(plan.bytes, "bytes", "add") as advance:
            return add_offload(store, plan, self._session.clock_ms, advance)

    def export(
        self,
        directory: Path | str,
        *,
        in_place: bool = False,
        annotate: Form | None = None,
        dry_run: bool = False,
    ) -> Mapping[str, Any]:  # Any: JSON
        """Write the store's changes into a copy of the imported directory, the new DIRECTORY, or IN_PLACE into DIRECTORY itself.

        A broker starts on it. ANNOTATE: also publish times (PIP-345) of closed ledgers, as properties or fields. DRY_RUN: only plan it.
        Returns source, target, ``nodes`` and ``ledgers`` written. Raises NotWritable, AlreadyExists, SourceBusy, StalePlan, Refused.
        """
        from pulsar_admin.store.model.publish_times import Form
        from pulsar_admin.store.transfer.exports import plan_export, run_export

        given_flags(in_place=in_place, dry_run=dry_run)
        if annotate is not None:
            check_choice("annotate", annotate, Form)
        now_ms = self._session.clock_ms
        with self._session.opened() as store:
            plan = plan_export(
                store, given_path("directory", directory), in_place=in_place, annotate=annotate, now_ms=now_ms
            )
        return self._export(plan, lambda store: run_export(store, plan, now_ms), dry_run)

    def _export(
        self,
        plan: ExportPlan | EnsemblePlan | BookieExportPlan,
        run: Callable[[StoreFile], Mapping[str, Any]],
        dry_run: bool,
    ) -> Mapping[str, Any]:  # Any: JSON
        if dry_run:
            return plan.report(dry_run=True)
        self._session.confirm(plan)
        with self._session.writing() as store:
            return run(store)

    def export_zookeeper(
        self, address: str, *, client: Path | str | None = None, jute_maxbuffer: int = 1_048_575, dry_run: bool = False
    ) -> Mapping[str, Any]:  # Any: JSON
        """Write the store's changes into the live ensemble at ADDRESS, ``HOST:PORT,…/CHROOT``, as one transaction; DRY_RUN: only plan it.

        CLIENT: the TOML file that says how to log in. Returns the nodes written and the zxid. Raises StalePlan where a node moved,
        Refused where a broker serves a topic, SourceBusy when nobody knows whether it was taken: call it again.
        """
        from pulsar_admin.store.sources.ensemble import parse_address, read_client
        from pulsar_admin.store.transfer.ensemble_export import plan_ensemble_export, run_ensemble_export

        given_flags(dry_run=dry_run)
        place, login = (
            parse_address(given_text("address", address)),
            read_client(None if client is None else given_path("client", client)),
        )
        whole_number("jute_maxbuffer", jute_maxbuffer, 0)
        with self._session.opened() as store:
            plan = plan_ensemble_export(store, place, login, jute_maxbuffer)
        if not plan.nodes:
            self._session.tell(f"{place} has every change of the store: nothing to write")
        return self._export(
            plan, lambda store: run_ensemble_export(store, plan, login, self._session.clock_ms), dry_run
        )

    def export_snapshot(self, directory: Path | str, *, force: bool = False) -> Mapping[str, Any]:  # Any: JSON
        """Write the store's metadata as a snapshot that a ZooKeeper server starts on into the new DIRECTORY, its dataDir.

        FORCE: also where nodes could not be imported. Raises AlreadyExists, Refused, MetadataCorrupt.
        """
        from pulsar_admin.store.transfer.snapshot_export import apply_snapshot_export, plan_snapshot_export

        with self._session.opened() as store:
            plan = plan_snapshot_export(
                store, given_path("directory", directory), self._session.clock_ms, force=given_flag("force", force)
            )
            self._session.confirm(plan)
            return apply_snapshot_export(store, plan)

    def clone(
        self,
        directory: Path | str,
        *,
        topics: Iterable[str] = (),
        cluster: str = "",
        boot_at: Path | str | None = None,
        bookie_id: str = "127.0.0.1:3181",
        dry_run: bool = False,
    ) -> Mapping[str, Any]:  # Any: JSON
        """Write the store's cluster, or TOPICS of it, as one standalone directory, the new DIRECTORY; DRY_RUN: only plan it.

        CLUSTER: its name, where the metadata has several, or ``NAME=NEW``. It starts at the path BOOT_AT alone, default: DIRECTORY.
        Returns what it has, what is ``missing`` by ledger, and how to ``start`` it. Raises AlreadyExists, InvalidValue, TopicNotFound,
        Refused where several clusters could be meant, SourceChanged, StalePlan, DiskFull.
        """
        from pulsar_admin.store.disks.clone import CloneRequest, apply_clone, plan_clone

        request = CloneRequest(
            given_path("directory", directory),
            None if boot_at is None else given_path("boot_at", boot_at),
            tuple(map(parse_topic, given_texts("topics", topics))),
            given_text("cluster", cluster),
            given_text("bookie_id", bookie_id),
        )
        given_flag("dry_run", dry_run)
        with self._session.opened() as store:
            plan = plan_clone(store, request)
            if dry_run:
                return plan.report(dry_run=True)
            self._session.confirm(plan)
            return apply_clone(store, plan, self._session.clock_ms)

    def salvage(self, bookie: str | GivenBookie, *, dry_run: bool = False) -> Mapping[str, Any]:  # Any: JSON
        """Make the index of BOOKIE, which does not run, again from its logs and journals, and cut a journal that stops its start.

        BOOKIE: as of ``import_cluster``, with all directories; DRY_RUN: only plan it. Its metadata and the copies of what it lacks come
        from this store. Returns what was found by directory, whether a salvage is ``needed``, and where old files are ``kept``.
        Raises InvalidValue, Refused (of another cluster), SourceNotFound, SourceBusy, Unsupported, StalePlan, NotWritable, DiskFull.
        """
        from pulsar_admin.store.disks.salvage import apply_salvage, plan_salvage
        from pulsar_admin.store.sources.given import find_bookie

        given_flag("dry_run", dry_run)
        with self._session.opened() as store:
            plan = plan_salvage(store, find_bookie(given_bookie(bookie)))
            if dry_run:
                return plan.report(dry_run=True)
            self._session.confirm(plan)
            return apply_salvage(store, plan)

    def write_bundle(self, file: Path | str, *, names: Path | str | None = None) -> Mapping[str, Any]:  # Any: JSON
        """Write metadata, index and findings into the new FILE, to share with others: pseudonyms for names, no payloads or keys.

        NAMES, default FILE.names.json, maps them back, and is kept; that of an earlier bundle gives the same ones again. ``import_bundle``
        makes a store of it. Returns what is in it, and ``findings`` by code. Raises AlreadyExists, InvalidValue, DiskFull, NotWritable,
        and StoreBusy while another bundle is made with these names.
        """
        from pulsar_admin.api.imports import bundle_of

        place = given_path("file", file)
        if not place.name:
            raise InvalidValue(f"file {str(file)!r} has no name", value=str(file))
        beside = place.with_name(f"{place.name}.names.json") if names is None else given_path("names", names)
        if beside == place:
            raise InvalidValue(f"{file} cannot be both the bundle and the file of its names", hint="name another file")
        return bundle_of(self._session, place, beside)

    def export_bookies(
        self, bookies: Iterable[str | GivenBookie], *, dry_run: bool = False
    ) -> Mapping[str, Any]:  # Any: JSON
        """Put the ledgers written here on BOOKIES that do not run, as of ``import_cluster``, as many copies as their topics' ledgers have.

        DRY_RUN: only plan it. Returns the ledgers, their bookies and what was written where; ``export_zookeeper`` carries the metadata.
        Raises InvalidValue, Refused, NotFound, SourceNotFound, SourceBusy, StalePlan.
        """
        from pulsar_admin.store.sources.given import check_apart, find_bookie
        from pulsar_admin.store.transfer.bookie_export import apply_bookie_export, plan_bookie_export

        given_flags(dry_run=dry_run)
        found = [find_bookie(given_bookie(one)) for one in given_items("bookies", bookies)]
        if not found:
            raise InvalidValue("no bookie is named", hint="name each as ID=DIR,DIR")
        check_apart(found)
        with self._session.opened() as store:
            plan = plan_bookie_export(store, found, self._session.clock_ms)
        return self._export(plan, lambda store: apply_bookie_export(store, plan, self._session.clock_ms), dry_run)

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
    ) -> TablesReport:
        """Write what the store knows as tables of Parquet into DIRECTORY or a URL, by JOBS or SPARK of ``open_store``.

        CLUSTER: what to call it there; ONLY: these tables; MESSAGES: that one, too, with PAYLOAD, or with
        COLUMNS under the names of ``pulsar-spark``, values as bytes.
        ICEBERG: commit them to Iceberg tables of CATALOG, a name or URI (default: catalog.db in DIRECTORY), for the cluster's rows.
        What cannot be read of metadata is left out with a PartialData warning. Raises InvalidValue, Refused, StalePlan, StoreBusy,
        SourceNotFound, SliceFailed, DiskFull, NotWritable; the tables are as before then.
        """
        from pulsar_admin.store.names import Profile
        from pulsar_admin.store.tables.export import ExportRequest, choose_tables, export_tables, scanned_bytes

        given_flags(messages=messages, payload=payload, iceberg=iceberg)
        chosen = given_texts("only", only)
        given_path("directory", directory)
        place = str(directory)
        if cluster is not None:
            given_object("cluster", cluster, str)
        if catalog is not None:
            given_text("catalog", catalog)
        if columns is not None:
            check_choice("columns", columns, Profile)
        problems: list[StoreError] = []
        with self._session.reader(unindexed=True) as reader:
            tables = choose_tables(chosen, messages=messages, state=reader.txn.store.info.state)
            if columns is not None and "messages" not in tables:
                raise InvalidValue("columns are of the table messages", hint="pass messages=True")
            if iceberg:
                from pulsar_admin.store.tables.iceberg import export_iceberg as export
            else:
                export = export_tables
            request = ExportRequest(place, cluster, tables, catalog, payload=payload, profile=columns)
            size_bytes = scanned_bytes(reader, tables, columns)
            with (
                self._session.engine([], size_bytes) as engine,
                self._session.progress(size_bytes, "bytes", "export") as advance,
            ):
                done = export(reader, request, self._session.clock_ms, problems.append, engine, advance)
        self._session.partial(problems)
        return done


class DumpWanted(TypedDict, total=False):
    """Keywords of ``dump``: topics that match PATTERN, messages, or (LEVEL) entries as exact bytes for ``load``.

    Times SINCE (included) and UNTIL (excluded) on CLOCK, positions START and END (both included). PAYLOAD, VALUE and REDACT concern
    messages; so does COLUMNS: under the names and types that another tool gives them, decoded values among them, as bytes with
    PAYLOAD. STRIPPED: entries without broker metadata, as a client receives them.
    """

    pattern: str | None
    level: Level
    since: Time | None
    until: Time | None
    start: Place | None
    end: Place | None
    clock: Literal["auto", "publish", "broker"]
    payload: bool
    value: bool
    redact: bool
    columns: Profile | None
    stripped: bool


class Dumps:
    """The part of ``Store`` that writes topics as files and lines; all of it raises InvalidValue, TopicNotFound.

    What cannot be read is left out with a PartialData warning, and so are broken ledgers.
    """

    _session: Session

    def dump(
        self, directory: Path | str, *topics: str, form: Format = "parquet", **wanted: Unpack[DumpWanted]
    ) -> DumpReport:
        """Write messages, or entries, of TOPICS (default: all) into files of the new DIRECTORY; ``DumpWanted`` has what to choose by.

        Files are parted by topic and by day on the clock. Raises AlreadyExists, DiskFull.
        """
        from pulsar_admin.store.dump.job import dump_directory

        check_choice("form", form, Format)
        place = given_path("directory", directory)
        options = _options(self._session, wanted)
        with self._dumping(topics, wanted, options) as (reader, listed):
            report, problems = dump_directory(reader, listed, place, form, options, lambda entries: None)
        self._session.partial(problems)
        return report

    def dump_lines(self, *topics: str, **wanted: Unpack[DumpWanted]) -> Iterator[str]:
        """Yield what ``dump`` writes as JSON lines, in pieces of text that hold many lines, or a part of a long one."""
        from pulsar_admin.store.dump.job import Dumped, dump_text

        dumped, options = Dumped(), _options(self._session, wanted)
        with self._dumping(topics, wanted, options) as (reader, listed):
            yield from dump_text(reader, listed, options, dumped)
        self._session.partial(dumped.problems)

    def dump_size(self, *topics: str, **wanted: Unpack[DumpWanted]) -> DumpSize:
        """Return how much ``dump`` reads: topics, entries, messages, bytes between the positions; its times are not looked at."""
        from pulsar_admin.store.dump.job import preview_dump

        options = _options(self._session, wanted)
        with self._session.reader() as reader:
            return preview_dump(reader, self._listed(reader, topics, wanted), options)

    @contextmanager
    def _dumping(
        self, topics: Sequence[str], wanted: DumpWanted, options: DumpOptions
    ) -> Iterator[tuple[EntryReader, list[Topic]]]:
        from pulsar_admin.store.dump.job import preview_dump

        with self._session.reader() as reader:
            listed = self._listed(reader, topics, wanted)
            with self._session.scanning(reader, preview_dump(reader, listed, options).bytes, "dump"):
                yield reader, listed

    def _listed(self, reader: EntryReader, topics: Sequence[str], wanted: DumpWanted) -> list[Topic]:
        return list(self._session.read_topics(reader, parse_topics(topics, wanted.get("pattern"))))


def _options(session: Session, wanted: DumpWanted) -> DumpOptions:
    from pulsar_admin.store.db.clocks import check_clock
    from pulsar_admin.store.dump.options import DumpOptions
    from pulsar_admin.store.names import Profile

    given_keywords(wanted, DumpWanted)
    if (pattern := wanted.get("pattern")) is not None:
        given_text("pattern", pattern)
    given_flags(**{name: wanted.get(name, False) for name in ("payload", "value", "redact", "stripped")})
    level, profile, redact = wanted.get("level", "messages"), wanted.get("columns"), wanted.get("redact", False)
    check_choice("level", level, Level)
    if profile is not None:
        check_choice("columns", profile, Profile)
        if level == "entries" or redact:
            raise InvalidValue("columns: names are known of messages, whole", hint="leave level entries and redact out")
    bounds = wanted.get("since"), wanted.get("until"), wanted.get("start"), wanted.get("end")
    return DumpOptions(
        level,
        session.window(*bounds, clock=check_clock(wanted.get("clock", "auto"))),
        wanted.get("payload", False),
        wanted.get("value", False),
        stripped=wanted.get("stripped", False),
        redact=redact,
        profile=profile,
    )
