"""``store export tables --iceberg``: the files of an export as Apache Iceberg tables, partitioned by cluster.

Each table is one transaction of pyiceberg: the cluster's rows are deleted, the files that were written are added. A kill leaves tables
with their commit and tables without; the next run commits all of them. Data files are Parquet without field ids, as engines write them
that never ask the catalogue: pyiceberg maps their columns by name. Read from Apache Iceberg's table format 2 and pyiceberg 0.12.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from pulsar_admin.store import errors
from pulsar_admin.store.engine.operation import Engine
from pulsar_admin.store.extras import require
from pulsar_admin.store.files import create_directory
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.tables import export
from pulsar_admin.store.tables.folder import NAME, NO_SPACE, Folder
from pulsar_admin.store.tables.parquet import INCOMPLETE
from pulsar_admin.store.tables.rows import cluster_identity, cluster_name
from pulsar_admin.store.tables.schemas import TABLES

NAMESPACE = "pulsar"
CATALOG_FILE = "catalog.db"
MARK = "pulsar-admin.table"
"""The property of tables of ours: its value is the table's name."""
_OF_CLUSTER = "pulsar-admin.cluster."
"""With a cluster's name: the property that says which cluster that is."""

_CLUSTER = "cluster"
_NO_SPACE = ("disk is full", *NO_SPACE)  # SQLite's words first
_READ_ONLY = ("readonly database", "read-only transaction")  # SQLite's, PostgreSQL's
_LOCKED = ("database is locked",)  # SQLite's, after five seconds
_RACED = ("already exists", "UNIQUE constraint failed", "duplicate key")  # the catalogue's own tables, a namespace
_UNREADABLE = (OSError, ValueError, EOFError, KeyError, IndexError)  # what pyiceberg raises of a manifest
_PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.metrics.column.cluster": "full",  # a bound that is cut off would have files read to delete their rows
}


class Warehouse(Struct, frozen=True):
    """An Iceberg catalogue, and the directory or URL below which exported tables are."""

    root: str
    catalog: Any  # pyiceberg.catalog.Catalog

    def location(self, table: str) -> str:
        """Return the location of a table, metadata and data."""
        return f"{self.root}/{table}"


class Commit(Struct, frozen=True):
    """A change to one table: the files ``paths`` replace all of the table's rows of a cluster.

    ``identity``: distinguishes clusters of the same name. ``incomplete``: why the store behind the rows was
    incomplete, "" if it was complete.
    """

    table: str
    cluster: str
    identity: str
    paths: Sequence[str]
    incomplete: str = ""


class Committed(Struct, frozen=True):
    """The result of a commit to a table: its rows of one cluster before and after; no snapshot if nothing was committed."""

    snapshot: int | None
    rows_before: int
    rows_after: int


def export_iceberg(
    reader: EntryReader,
    request: export.ExportRequest,
    now_ms: int,
    fail: Callable[[errors.StoreError], None],
    engine: Engine | None = None,
    advance: Callable[[int], None] = lambda count: None,
) -> export.TablesReport:
    """Commit the tables of a checked request to their catalogue; unreadable metadata goes to ``fail``.

    Raises Refused (tables that are not ours, of another cluster of this name, or with columns that do not fit),
    StalePlan (another run was faster), StoreBusy, SourceNotFound, SliceFailed, DiskFull, NotWritable.
    """
    folder = Folder.of(request.directory)
    cluster, identity = cluster_name(reader.txn, request.cluster), cluster_identity(reader.txn)
    if folder.read(NAME) is not None:
        raise errors.Refused(f"{folder.place} has tables without a catalogue ({NAME})", hint="name another directory")
    warehouse = open_warehouse(folder.place, request.catalog)
    with closing(warehouse.catalog):
        for table in request.only:
            find_rows(warehouse, table, cluster, identity)
        folder.make()
        with folder.locked(f".{export.word_of(cluster)}.lock"):
            removed = export.left_by(folder, cluster)
            for path in removed:
                folder.remove(path)
            run = export.Exporting(
                reader, folder, cluster, request.only, now_ms, fail, engine, advance, request.payload
            )
            folder.make(run.staging)
            try:
                made = export.make_tables(run)
                done = [_commit_table(warehouse, run, made, table, identity) for table in request.only]
            finally:
                with suppress(errors.StoreError):
                    folder.remove(run.staging)
    return export.TablesReport(folder.place, cluster, tuple(done), made.damaged, made.problems, tuple(removed))


def _commit_table(
    warehouse: Warehouse, run: export.Exporting, made: export.MadeTables, table: str, identity: str
) -> export.TableCommitted:
    """Give the files of a table their names, and commit them; if the commit is refused they are removed."""
    named = []
    for part in made.parts[table]:
        target = f"{export.home_of(f'{table}/data', run.cluster)}/{part.name}"
        run.folder.move(part.path, target)
        named.append(target)
    paths, why = [f"{warehouse.root}/{path}" for path in named], export.why_incomplete(run.reader.txn)
    try:
        done = commit(warehouse, Commit(table, run.cluster, identity, paths, why))
    except (
        errors.NotWritable,
        errors.Refused,
        errors.StalePlan,
    ):  # after others nobody knows whether the catalogue has the commit
        for path in named:
            run.folder.remove(path)
        raise
    snapshot = None if done.snapshot is None else str(done.snapshot)
    return export.TableCommitted(table, done.rows_after, done.rows_before, len(named), snapshot)


def open_warehouse(directory: str, catalog: str | None = None) -> Warehouse:
    """Return the warehouse at a path or URL; raises MissingComponent, Refused, SourceNotFound, StoreBusy, StalePlan
    (another run created it meanwhile).

    ``catalog`` is a name in pyiceberg's configuration, or a URI (``http…`` is a REST catalogue, ``sqlite:///…`` a
    file); without it, the catalogue is an SQLite file in the directory.
    """
    require("pyiceberg", "--iceberg", instead="omit --iceberg: the tables become Parquet files")
    from pyiceberg.catalog import load_catalog

    place, _, query = directory.partition("?")
    local = "://" not in place
    if odd := set("#%?") & set(directory if local else place):
        raise errors.InvalidValue(
            f"{directory}: Iceberg's paths are URIs and cannot have {' '.join(sorted(odd))} in them"
        )
    root = f"file://{Path(place).absolute()}" if local else place.rstrip("/")
    if catalog is None:
        if not local:
            raise errors.Refused(
                f"{place} has no room for a catalogue of SQLite, which needs a directory of this machine",
                hint="name one: --catalog sqlite:////var/lib/tables/catalog.db, http://host:8181, or one that pyiceberg knows",
            )
        create_directory(Path(place), exist_ok=True)
        catalog = f"sqlite:///{Path(place).absolute() / CATALOG_FILE}"
    storage = _storage(place, query)
    with _translated(f"the Iceberg catalogue {catalog} cannot be opened"):
        if "://" in catalog:
            return Warehouse(root, load_catalog(NAMESPACE, uri=catalog, warehouse=root, **storage))
        return Warehouse(root, load_catalog(catalog, **storage))


def _storage(place: str, query: str) -> dict[str, str]:
    """Return pyiceberg's properties for the query of a pyarrow URL."""
    from urllib.parse import parse_qsl

    given = dict(parse_qsl(query))
    if not place.startswith("s3://"):
        return {}
    properties = {}
    if "endpoint_override" in given:
        address = given["endpoint_override"]
        properties["s3.endpoint"] = address if "://" in address else f"{given.get('scheme', 'https')}://{address}"
    if "region" in given:
        properties["s3.region"] = given["region"]
    return properties


def _failures() -> tuple[type[Exception], ...]:
    """Return the exceptions that pyiceberg and the database drivers raise for faulty catalogues and files."""
    from pyiceberg.exceptions import RESTError, ValidationError
    from sqlalchemy.exc import SQLAlchemyError

    return OSError, ValueError, KeyError, ImportError, RESTError, ValidationError, SQLAlchemyError


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except _failures() as error:
        said = errors.brief(error)
        if any(words in said for words in _NO_SPACE):
            hint = "free some space and run the same command again; each table has either its old rows or its new ones"
            raise errors.DiskFull(f"{what}: {said}", hint=hint) from error
        if any(words in said for words in _READ_ONLY):
            raise errors.NotWritable(
                f"{what}: the catalogue is read-only: {said}",
                hint="let this user write it, or choose another: --catalog",
            ) from error
        if any(words in said for words in _LOCKED):
            raise errors.StoreBusy(
                f"{what}: {said}", hint="another process writes to it: run the same command again"
            ) from error
        if any(words in said for words in _RACED):
            raise errors.StalePlan(
                f"{what}: another run made it meanwhile", hint="run the same command again"
            ) from error
        hint = "--catalog takes a URI, or a name that ~/.pyiceberg.yaml or PYICEBERG_CATALOG__NAME__URI explains"
        raise errors.SourceNotFound(f"{what}: {said}", hint=hint) from error


def find_table(warehouse: Warehouse, name: str) -> Any:  # Any: pyiceberg's Table, or None
    """Return a table, None if it does not exist yet."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    with _translated(f"the Iceberg table {NAMESPACE}.{name} cannot be opened"):
        try:
            return warehouse.catalog.load_table(f"{NAMESPACE}.{name}")
        except (NoSuchTableError, NoSuchNamespaceError):
            return None


def find_rows(
    warehouse: Warehouse, name: str, cluster: str, identity: str
) -> tuple[Any, int]:  # Any: pyiceberg's Table
    """Return a table, None if it does not exist yet, and its number of rows of a cluster.

    Raises Corrupt, and Refused if the table cannot have rows of the cluster with this ``identity``.
    """
    table = find_table(warehouse, name)
    if table is None:
        return None, 0
    if table.properties.get(MARK) != name:
        hint = "give another catalogue, or rename that table"
        raise errors.Refused(f"the Iceberg table {NAMESPACE}.{name} was not made by store export tables", hint=hint)
    known = table.properties.get(_OF_CLUSTER + cluster, identity)
    if known != identity:
        raise errors.Refused(
            f"the Iceberg table {NAMESPACE}.{name} has rows of another cluster {cluster!r}: that is {known}, this one is {identity}",
            hint="choose another --cluster name, or another catalogue",
            cluster=cluster,
            expected=known,
            found=identity,
        )
    return table, _rows(table, cluster)


def commit(warehouse: Warehouse, change: Commit) -> Committed:
    """Commit a change as one transaction of its table, which is created if it does not exist.

    Raises StalePlan if another run committed meanwhile, Refused for columns that do not fit and as ``find_rows``.
    """
    from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

    what = f"the Iceberg table {NAMESPACE}.{change.table} cannot be written"
    table, before = find_rows(warehouse, change.table, change.cluster, change.identity)
    about = {"pulsar-admin.cluster": change.cluster}
    about |= {INCOMPLETE: change.incomplete} if change.incomplete else {}
    try:
        with _translated(what), _quiet():
            transaction = _new_table(warehouse, change.table) if table is None else table.transaction()
            # pyiceberg's own retries would keep what another run of the cluster added meanwhile.
            transaction._table.metadata.properties["commit.retry.num-retries"] = "0"
            _add_columns(transaction, change.table, what)
            transaction.set_properties({_OF_CLUSTER + change.cluster: change.identity})
            if before:
                transaction.delete(_of(change.cluster), about)
            if change.paths:
                transaction.add_files(list(change.paths), about, check_duplicate_files=False)
            transaction.commit_transaction()
            table = find_table(warehouse, change.table)
            current = table.current_snapshot()
            return Committed(current.snapshot_id if current else None, before, _rows(table, change.cluster))
    except (CommitFailedException, TableAlreadyExistsError) as error:
        raise errors.StalePlan(
            f"another run has written {change.table} meanwhile: nothing was added", hint="run the same command again"
        ) from error


def _add_columns(transaction: Any, name: str, what: str) -> None:  # Any: pyiceberg's Transaction
    """Add the columns that the table lacks; raises Refused if an existing one has another type."""
    from pyiceberg.exceptions import ValidationError

    try:
        with transaction.update_schema() as update:
            update.union_by_name(TABLES[name])
    except ValidationError as error:
        raise errors.Refused(
            f"{what}: {errors.brief(error)}",
            hint="rename that column in the table, or export to another directory and catalogue",
        ) from error


def _new_table(warehouse: Warehouse, name: str) -> Any:  # Any: pyiceberg's Transaction
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import NestedField, StringType

    # Ids are given anew when a table is made; the first column's is what the partition is declared by.
    warehouse.catalog.create_namespace_if_not_exists(NAMESPACE)
    return warehouse.catalog.create_table_transaction(
        f"{NAMESPACE}.{name}",
        schema=Schema(NestedField(1, _CLUSTER, StringType(), required=False)),
        location=warehouse.location(name),
        partition_spec=PartitionSpec(PartitionField(1, 1000, IdentityTransform(), _CLUSTER)),
        properties=_PROPERTIES | {MARK: name},
    )


def _of(cluster: str) -> Any:  # Any: pyiceberg's expression
    from pyiceberg import expressions

    equal: Any = expressions.EqualTo  # its checked signature is pydantic's, not the one that is called
    return equal(_CLUSTER, cluster)


def _rows(table: Any, cluster: str) -> int:  # Any: pyiceberg's Table
    """Return how many rows of a cluster a table has; raises Corrupt."""
    try:
        return sum(task.file.record_count for task in table.scan(row_filter=_of(cluster)).plan_files())
    except _UNREADABLE as error:
        said = errors.brief(error)
        raise errors.Corrupt(
            f"the files of the Iceberg table {'.'.join(table.name())} cannot be listed: {said}",
            hint=f"restore the missing files in {table.location()}, or export to another directory and catalogue",
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress pyiceberg's warning about each column without statistics: columns of long values have none."""
    logger = logging.getLogger("pyiceberg.io.pyarrow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
