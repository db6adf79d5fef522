"""``store export tables --iceberg``: the files of an export as commits of Iceberg tables, one a table.

Small tables become what the store says now; entries that a table has, and their messages, are not added again. A kill leaves tables
with their commit and tables without; the next run commits all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from store.engine.operation import Engine
from store.errors import NotWritable, Refused, StalePlan, StoreError
from store.model.reader import EntryReader
from store.tables.cluster import cluster_identity, cluster_name
from store.tables.export import (
    Exporting,
    ExportRequest,
    MadeTables,
    TableCommitted,
    TablesReport,
    choose_tables,
    home_of,
    left_by,
    make_tables,
    why_incomplete,
    word_of,
)
from store.tables.folder import Folder
from store.tables.iceberg import Commit, DataFile, Warehouse, check_tables, commit, files_of, open_warehouse
from store.tables.manifest import NAME, Part

APPENDED = ("entries", "messages")
"""Tables that a run adds to; a message is of its entry: of one that has some all are there."""


def export_iceberg(
    reader: EntryReader,
    request: ExportRequest,
    now_ms: int,
    fail: Callable[[StoreError], None],
    engine: Engine | None = None,
    advance: Callable[[int], None] = lambda count: None,
) -> TablesReport:
    """Commit the tables that REQUEST names to its catalogue; what cannot be read of metadata is told to FAIL.

    Raises Refused (tables that are not ours, of another cluster of this name, or with columns that do not fit), StalePlan (another run
    was faster), StoreBusy, SourceNotFound, SliceFailed, DiskFull, NotWritable.
    """
    folder = Folder.of(request.directory)
    cluster, identity = cluster_name(reader.txn, request.cluster), cluster_identity(reader.txn)
    tables = choose_tables(request.only, state=reader.txn.store.info.state)
    if folder.read(NAME) is not None:
        raise Refused(f"{folder.place} has tables without a catalogue ({NAME})", hint="name another directory")
    warehouse = open_warehouse(folder.place, request.catalog)
    check_tables(warehouse, tables, cluster, identity)
    folder.make()
    with folder.locked(f".{word_of(cluster)}.lock"):
        removed = left_by(folder, cluster)
        for path in removed:
            folder.remove(path)
        known = {table: files_of(warehouse, table, cluster) for table in APPENDED if table in tables}
        parts = {table: [_part_of(warehouse, table, file) for file in files] for table, files in known.items()}
        run = Exporting(reader, folder, cluster, tables, now_ms, fail, engine, advance, parts, request.payload)
        folder.make(run.staging)
        try:
            made = make_tables(run)
            done = [_commit_table(warehouse, run, made, table, identity, known.get(table)) for table in tables]
        finally:
            with suppress(StoreError):
                folder.remove(run.staging)
    return TablesReport(folder.place, cluster, tuple(done), made.damaged, made.problems, tuple(removed))


def _part_of(warehouse: Warehouse, table: str, file: DataFile) -> Part:
    """Return FILE of TABLE as executors open it; raises Refused for one that does not lie with the tables."""
    relative = file.path.removeprefix(f"{warehouse.root}/")
    if relative == file.path:
        raise Refused(
            f"the Iceberg table {table} has the file {file.path}, which is not below {warehouse.root}",
            hint="what it holds cannot be compared with what is to be added: rewrite that file there, or take another catalogue",
        )
    return Part(relative, file.rows, file.size_bytes, file.ledgers)


def _commit_table(
    warehouse: Warehouse, run: Exporting, made: MadeTables, table: str, identity: str, known: Sequence[DataFile] | None
) -> TableCommitted:
    """Give the files of TABLE their names, and commit them, beside the KNOWN ones; where that is refused they are removed."""
    named = []
    for part in made.parts[table]:
        target = f"{home_of(f'{table}/data', run.cluster)}/{part.name}"
        run.folder.move(part.path, target)
        named.append(target)
    there = None if known is None else {file.path for file in known}
    paths, why = [f"{warehouse.root}/{path}" for path in named], why_incomplete(run.reader.txn)
    change = Commit(table, run.cluster, identity, paths, there, why)
    try:
        done = commit(warehouse, change)
    except (NotWritable, Refused, StalePlan):  # after others nobody knows whether the catalogue has the commit
        for path in named:
            run.folder.remove(path)
        raise
    snapshot = None if done.snapshot is None else str(done.snapshot)
    return TableCommitted(table, done.rows_after, done.rows_before, len(named), snapshot)
