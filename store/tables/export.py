"""``store export tables``: writes a store's content into a folder of tables, all or nothing.

Everything is written below ``_staging-…`` first. Then the files get their final names, which no earlier file had,
``tables.json`` names them instead of the files of the last export, and these are removed. After a kill ``tables.json``
names the old export or the new one; files that it does not name are removed by the next export of the cluster.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from urllib.parse import quote

from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.db.environment import Txn, once
from pulsar_admin.store.db.files import catalogued_bytes, iter_incompleteness
from pulsar_admin.store.db.storeinfo import StoreState
from pulsar_admin.store.engine.operation import Engine
from pulsar_admin.store.errors import InvalidValue, Refused, StoreError
from pulsar_admin.store.index.build import ledger_digests
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import Profile
from pulsar_admin.store.tables.entries import MessageFiles, read_all_schemas
from pulsar_admin.store.tables.folder import (
    NAME,
    ClusterTables,
    Folder,
    Manifest,
    TableFile,
    check_columns,
    check_identity,
    encode_manifest,
    read_manifest,
)
from pulsar_admin.store.tables.making import Making, make_entries, make_known
from pulsar_admin.store.tables.parquet import write_parts
from pulsar_admin.store.tables.rows import SMALL_TABLES, cluster_identity, cluster_name, iter_table, not_counted
from pulsar_admin.store.tables.schemas import TABLES
from pulsar_admin.store.wording import Answer

_STAGING = "_staging-"
_REASONS = 3
WRITTEN = (*SMALL_TABLES, "entries")
"""The tables that an export writes where none are named."""
WITHOUT_INDEX = ("topics", "ledgers", "nodes", "entries")
"""Those that need no entry of the store's: what else there is stands in entries of cursors, schemas and topic policies."""
MESSAGES = "messages"
"""The one that it writes when it is asked for."""


class ExportRequest(Struct, frozen=True):
    """What to export where. ``cluster`` None: its name in the metadata; ``only`` empty: all tables but messages, which
    ``messages`` adds; ``payload``: with payloads; ``profile``: messages with another tool's columns, values as bytes;
    ``catalog``: for Iceberg."""

    directory: str
    cluster: str | None = None
    only: Sequence[str] = ()
    catalog: str | None = None
    payload: bool = False
    profile: Profile | None = None
    messages: bool = False
    iceberg: bool = False

    def checked(self, state: StoreState) -> ExportRequest:
        """Return the request with the tables to write, for a store in this state; raises as ``choose_tables``, and
        InvalidValue for options of tables that are not written."""
        tables = choose_tables(self.only, messages=self.messages, state=state)
        for what, is_given in (("columns are", self.profile is not None), ("payload is", self.payload)):
            if is_given and MESSAGES not in tables:
                raise InvalidValue(f"{what} of the table messages", hint="add --messages")
        if self.catalog is not None and not self.iceberg:
            raise InvalidValue("only Iceberg tables have a catalogue", hint="add --iceberg")
        if self.profile is not None and self.iceberg:
            text = "Iceberg tables have one schema for all clusters, so other columns are for Parquet files alone"
            raise InvalidValue(text, hint="leave out --columns or --iceberg")
        return replace(self, only=tables)


class TableWritten(Answer, frozen=True):
    """One exported table of the cluster, with its number of rows now and before."""

    table: str
    rows: int
    files: int
    bytes: int
    rows_before: int


class TableCommitted(Answer, frozen=True):
    """One Iceberg table of the cluster: rows now and before, files added, snapshot (None: nothing to commit)."""

    table: str
    rows: int
    rows_before: int
    files: int
    snapshot: str | None  # a number of 64 bits, which not every reader of JSON keeps


class TablesReport(Answer, frozen=True):
    """The tables written, or committed to a catalogue. ``damaged``: entries whose digest is wrong; ``problems``: bytes
    of files that are not records; ``removed``: remains of a killed export."""

    directory: str
    cluster: str
    tables: tuple[TableWritten | TableCommitted, ...]
    damaged: int
    problems: int
    removed: tuple[str, ...]


class MadeTables(Struct):
    """By table, the files that are written but do not have their final names yet."""

    parts: dict[str, tuple[TableFile, ...]] = field(default_factory=dict)
    damaged: int = 0
    problems: int = 0


class Exporting(Struct, frozen=True):
    """One export: the store's snapshot, the target folder, and the options."""

    reader: EntryReader
    folder: Folder
    cluster: str
    tables: Sequence[str]
    now_ms: int
    fail: Callable[[StoreError], None]
    engine: Engine | None = None
    advance: Callable[[int], None] = lambda count: None
    payload: bool = False
    profile: Profile | None = None
    token: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def staging(self) -> str:
        """The directory of files without a final name."""
        return f"{_STAGING}{word_of(self.cluster)}-{self.token}"


def choose_tables(only: Sequence[str], *, messages: bool, state: StoreState) -> tuple[str, ...]:
    """Return the tables to write for a store in this state: ``only`` these, or all; with ``messages`` that one as well.

    Raises InvalidValue, and Refused for a table that needs an index, of a store without one.
    """
    known = (*WRITTEN, MESSAGES)
    unknown = [name for name in only if name not in known]
    if unknown:
        raise InvalidValue(f"there is no table {unknown[0]!r}", hint=f"tables: {', '.join(known)}")
    can = WITHOUT_INDEX if state is StoreState.UNINDEXED else known
    usual = [name for name in WRITTEN if name in can]
    chosen = tuple(name for name in known if name in (only or usual) or (messages and name == MESSAGES))
    if missing := [name for name in chosen if name not in can]:
        raise Refused(
            f"the table {missing[0]} needs entries, and the store was imported without an index",
            hint=f"--only {','.join(can)}, or run the same import without --no-index",
        )
    return chosen


def scanned_bytes(reader: EntryReader, request: ExportRequest) -> int:
    """Return the most bytes that a request reads; with a profile, messages are read separately."""
    apart = request.profile is not None and MESSAGES in request.only
    scans = "entries" in request.only or (MESSAGES in request.only and not apart)
    return (scans + apart) * catalogued_bytes(reader.txn) if scans or apart else 0


def export_tables(
    reader: EntryReader,
    request: ExportRequest,
    now_ms: int,
    fail: Callable[[StoreError], None],
    engine: Engine | None = None,
    advance: Callable[[int], None] = lambda count: None,
) -> TablesReport:
    """Write the tables of a checked request; unreadable metadata goes to ``fail``.

    Raises Refused (another cluster of this name is there), InvalidValue, StoreBusy, SourceNotFound, SliceFailed,
    DiskFull, NotWritable; the earlier tables stay unchanged then.
    """
    folder = Folder.of(request.directory)
    cluster = cluster_name(reader.txn, request.cluster)
    run = Exporting(
        reader,
        folder,
        cluster,
        request.only,
        now_ms,
        fail,
        engine,
        advance,
        payload=request.payload,
        profile=request.profile,
    )
    identity = cluster_identity(reader.txn)
    _check_folder(run, read_manifest(folder), identity)
    folder.make()
    with folder.locked(f".{word_of(cluster)}.lock"):
        removed = remove_left(folder, cluster)
        folder.make(run.staging)
        try:
            made = make_tables(run)
            before, after = commit_tables(run, made.parts, identity)
        finally:
            with suppress(StoreError):
                folder.remove(run.staging)
    written = [_written(table, before, after) for table in request.only]
    return TablesReport(request.directory, cluster, tuple(written), made.damaged, made.problems, tuple(removed))


def _check_folder(run: Exporting, manifest: Manifest | None, identity: str) -> None:
    """Raise Refused if the tables in the folder and those of this run do not fit together."""
    check_identity(run.folder, manifest, run.cluster, identity)
    if MESSAGES in run.tables:
        check_columns(run.folder, manifest, run.cluster, run.profile)


def _written(table: str, before: ClusterTables | None, after: ClusterTables) -> TableWritten:
    parts = after.tables[table]
    size_bytes = sum(part.size_bytes for part in parts)
    return TableWritten(table, after.rows(table), len(parts), size_bytes, before.rows(table) if before else 0)


def make_tables(run: Exporting) -> MadeTables:
    """Write the files of all tables into the run's staging directory."""
    made = MadeTables()
    small = [table for table in SMALL_TABLES if table in run.tables]
    scans = {"entries", MESSAGES} & set(run.tables)
    if run.profile is not None:
        scans.discard(MESSAGES)
    if scans and "ledgers" not in small:
        small.append("ledgers")  # it names the topics
    for table in small:
        directory = f"{run.staging}/{table}"
        run.folder.make(directory)
        batches = iter_table(run.reader, table, run.cluster, run.fail)
        stem, incomplete = f"{directory}/part-{run.token}", why_incomplete(run.reader.txn)
        made.parts[table] = tuple(write_parts(run.folder, stem, TABLES[table], batches, incomplete=incomplete))
    if scans:
        how = replace(
            _making(run),
            digests=ledger_digests(run.reader.txn, but=DigestType.CRC32C),  # it travels with every slice
            messages=MessageFiles(run.payload, read_all_schemas(run.reader)) if MESSAGES in scans else None,
        )
        entries = make_entries(run.reader.txn, how, made.parts["ledgers"])
        made.parts |= {"entries": tuple(entries.parts), MESSAGES: tuple(entries.messages)}
        made.damaged, made.problems = entries.damaged, entries.problems
    if run.profile is not None and MESSAGES in run.tables:
        made.parts[MESSAGES] = make_known(run.reader, _making(run), run.fail)
    made.parts = {table: made.parts[table] for table in run.tables}
    return made


def _making(run: Exporting) -> Making:
    incomplete = why_incomplete(run.reader.txn)
    return Making(run.folder, run.staging, run.cluster, run.token, run.engine, run.advance, incomplete=incomplete)


def commit_tables(
    run: Exporting, made: Mapping[str, Sequence[TableFile]], identity: str
) -> tuple[ClusterTables | None, ClusterTables]:
    """Give the new files the place of those of the last export; return the cluster's tables before and after."""
    named: dict[str, tuple[TableFile, ...]] = {}
    try:
        for table, parts in made.items():
            targets = [f"{home_of(table, run.cluster)}/{part.name}" for part in parts]
            for part, target in zip(parts, targets, strict=True):
                run.folder.move(part.path, target)
            named[table] = tuple(replace(part, path=target) for part, target in zip(parts, targets, strict=True))
        with run.folder.locked(".tables.lock", wait=True):
            manifest = read_manifest(run.folder) or Manifest()
            _check_folder(run, manifest, identity)
            before = manifest.clusters.get(run.cluster)
            after = _joined(before, run, named, identity)
            run.folder.replace(NAME, encode_manifest(Manifest({**manifest.clusters, run.cluster: after})))
    finally:
        # What tables.json does not name: the old files, or the new ones; where this fails the next export does it.
        with suppress(StoreError):
            remove_left(run.folder, run.cluster)
    return before, after


def _joined(
    before: ClusterTables | None, run: Exporting, named: Mapping[str, tuple[TableFile, ...]], identity: str
) -> ClusterTables:
    times = dict.fromkeys(named, run.now_ms)
    store = str(run.reader.txn.store.path.absolute())
    if before is None:
        before = ClusterTables(identity, store)
    columns = run.profile if MESSAGES in named else before.columns
    incomplete = {table: reason for table, reason in before.incomplete.items() if table not in named}
    incomplete |= dict.fromkeys(named, why) if (why := why_incomplete(run.reader.txn)) else {}
    tables, times = {**before.tables, **named}, {**before.exported_ms, **times}
    return ClusterTables(identity, store, tables, times, columns, incomplete)


@once
def why_incomplete(txn: Txn) -> str:
    """Return why the metadata may be incomplete or out of date, and whose entries are not counted; "" if all is there."""
    reasons = [damage.reason for damage in islice(iter_incompleteness(txn), _REASONS)]
    return "; ".join(filter(None, [*reasons, not_counted(txn)]))


def remove_left(folder: Folder, cluster: str) -> list[str]:
    """Remove the remains of killed exports of a cluster in a folder, and return their names."""
    manifest = read_manifest(folder)
    there = manifest.clusters.get(cluster) if manifest else None
    known = {part.path for parts in (there.tables.values() if there else ()) for part in parts}
    left = left_by(folder, cluster)
    for table in TABLES:
        home = home_of(table, cluster)
        left += [path for name in folder.names(home) if (path := f"{home}/{name}") not in known]
    for path in left:
        folder.remove(path)
    return left


def left_by(folder: Folder, cluster: str) -> list[str]:
    """Return the directories of unnamed files of killed exports of a cluster."""
    return [name for name in folder.names() if name.rpartition("-")[0] == f"{_STAGING}{word_of(cluster)}"]


def home_of(table: str, cluster: str) -> str:
    """Return the directory of the files of a table and cluster, in Hive's naming of partitions."""
    return f"{table}/cluster={word_of(cluster)}"


def word_of(cluster: str) -> str:
    """Return a cluster's name in a form that file names may contain."""
    return quote(cluster, safe="")
