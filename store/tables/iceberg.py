"""The tables as Apache Iceberg tables, partitioned by cluster: a catalogue, and one commit a table and cluster.

Data files are Parquet without field ids, as engines write them that never ask the catalogue: the property
``schema.name-mapping.default`` maps their columns by name (Iceberg's specification, "Column Projection"). Read from Apache
Iceberg's table format 2 and pyiceberg 0.12.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from store.errors import Corrupt, DiskFull, InvalidValue, NotWritable, Refused, SourceNotFound, StalePlan, StoreBusy
from store.extras import require
from store.files import create_directory
from store.frozen import frozen
from store.tables.folder import NO_SPACE
from store.tables.schemas import TABLES
from store.tables.writing import INCOMPLETE

NAMESPACE = "pulsar"
CATALOG_FILE = "catalog.db"
MARK = "pulsar-admin.table"
"""The property of tables of ours: its value is the table's name."""
_OF_CLUSTER = "pulsar-admin.cluster."
"""With a cluster's name: the property that says which cluster that is."""

_CLUSTER = "cluster"
_ATTEMPTS = 10
_MAPPING = "schema.name-mapping.default"
_SAID_CHARACTERS = 300
_NO_SPACE = ("disk is full", *NO_SPACE)  # SQLite's words first
_READ_ONLY = ("readonly database", "read-only transaction")  # SQLite's, PostgreSQL's
_THERE = ("already exists", "UNIQUE constraint", "duplicate key")  # SQLite's twice, PostgreSQL's
_LOCKED = ("database is locked",)  # SQLite's, after five seconds
_UNREADABLE = (OSError, ValueError, EOFError, KeyError, IndexError)  # what pyiceberg raises of a manifest
_PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
}


Made = TypeVar("Made")


@frozen
class DataFile:
    """A file of a table, and the least and greatest ledger in it; None where the table has no ledgers, or the file no rows."""

    path: str
    rows: int
    size_bytes: int
    ledgers: tuple[int, int] | None


@frozen
class Warehouse:
    """A catalogue, and the directory or URL below which its tables of ours lie."""

    root: str
    catalog: Any  # pyiceberg.catalog.Catalog

    def location(self, table: str) -> str:
        """Return where TABLE lies, metadata and data."""
        return f"{self.root}/{table}"


@frozen
class Commit:
    """Files, below the table's location, that become rows of a cluster.

    ``known`` None: all that the table has of it, one snapshot; else they are added to these files, by path, as ``files_of`` gave them when
    the rows were chosen. ``identity``: what tells the cluster from another of the same name. ``incomplete``: why the metadata that the rows
    are of was not whole, "" where it was.
    """

    table: str
    cluster: str
    identity: str
    paths: Sequence[str]
    known: Collection[str] | None = None
    incomplete: str = ""


@frozen
class Committed:
    """What a commit made of a table: its rows of one cluster before and after; no snapshot where nothing was to be done."""

    snapshot: int | None
    rows_before: int
    rows_after: int


def open_warehouse(directory: str, catalog: str | None = None) -> Warehouse:
    """Return the warehouse at DIRECTORY, a path or a URL; raises MissingComponent, Refused, SourceNotFound, StoreBusy.

    CATALOG is a name in pyiceberg's configuration, or a URI (``http…`` is a REST catalogue, ``sqlite:///…`` a file); without it,
    the catalogue is a file of SQLite in DIRECTORY.
    """
    require("pyiceberg", "--iceberg", instead="leave --iceberg away: the tables become Parquet files")
    from pyiceberg.catalog import load_catalog

    place, _, query = directory.partition("?")
    local = "://" not in place
    if odd := set("#%?") & set(directory if local else place):
        raise InvalidValue(f"{directory}: Iceberg's paths are URIs and cannot have {' '.join(sorted(odd))} in them")
    root = f"file://{Path(place).absolute()}" if local else place.rstrip("/")
    if catalog is None:
        if not local:
            raise Refused(
                f"{place} has no room for a catalogue of SQLite, which needs a directory of this machine",
                hint="name one: --catalog sqlite:////var/lib/tables/catalog.db, http://host:8181, or one that pyiceberg knows",
            )
        create_directory(Path(place), exist_ok=True)
        catalog = f"sqlite:///{Path(place).absolute() / CATALOG_FILE}"
    storage = _storage(place, query)
    with _translated(f"the Iceberg catalogue {catalog} cannot be opened"):
        if "://" in catalog:
            return Warehouse(root, _made(lambda: load_catalog(NAMESPACE, uri=catalog, warehouse=root, **storage)))
        return Warehouse(root, _made(lambda: load_catalog(catalog, **storage)))


def _made(make: Callable[[], Made]) -> Made:
    """Return what MAKE makes or finds: pyiceberg looks first, and two runs at once both see nothing and make it."""
    from sqlalchemy.exc import SQLAlchemyError

    for _ in range(_ATTEMPTS):
        try:
            return make()
        except SQLAlchemyError as error:
            if not any(words in str(error) for words in _THERE):
                raise
    return make()


def _storage(place: str, query: str) -> dict[str, str]:
    """Return the properties of pyiceberg that the QUERY of a URL of pyarrow's stands for."""
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
    """Return what pyiceberg raises of catalogues and files that are not as they should be; drivers have errors of their own."""
    from pyiceberg.exceptions import RESTError, ValidationError
    from sqlalchemy.exc import SQLAlchemyError

    return OSError, ValueError, KeyError, ImportError, RESTError, ValidationError, SQLAlchemyError


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except _failures() as error:
        said = " ".join(str(error).split())[:_SAID_CHARACTERS]
        if any(words in said for words in _NO_SPACE):
            hint = "free some space and run the same command again; a table has its rows of before or those of now"
            raise DiskFull(f"{what}: {said}", hint=hint) from error
        if any(words in said for words in _READ_ONLY):
            raise NotWritable(
                f"{what}: the catalogue is read-only: {said}",
                hint="let this user write it, or name another one: --catalog",
            ) from error
        if any(words in said for words in _LOCKED):
            raise StoreBusy(
                f"{what}: {said}", hint="another process writes to it: run the same command again"
            ) from error
        hint = "--catalog takes a URI, or a name that ~/.pyiceberg.yaml or PYICEBERG_CATALOG__NAME__URI explains"
        raise SourceNotFound(f"{what}: {said}", hint=hint) from error


def check_tables(warehouse: Warehouse, tables: Sequence[str], cluster: str, identity: str) -> None:
    """Raise Refused when one of TABLES is there and cannot take rows of CLUSTER, the one that IDENTITY tells from others."""
    for name in tables:
        table = _find_table(warehouse, name)
        if table is not None:
            _check_table(warehouse, name, table, (cluster, identity))


def _find_table(warehouse: Warehouse, name: str) -> Any:  # Any: pyiceberg's Table, or None
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    with _translated(f"the Iceberg table {NAMESPACE}.{name} cannot be opened"):
        try:
            return warehouse.catalog.load_table(f"{NAMESPACE}.{name}")
        except (NoSuchTableError, NoSuchNamespaceError):
            return None


def _check_table(warehouse: Warehouse, name: str, table: Any, cluster: tuple[str, str]) -> None:
    """Raise Refused unless pyiceberg's TABLE can take rows of CLUSTER, a name and an identity."""
    what = f"the Iceberg table {NAMESPACE}.{name}"
    if table.properties.get(MARK) != name:
        hint = "give another catalogue, or rename that table"
        raise Refused(f"{what} was not made by store export tables", hint=hint)
    if table.location().rstrip("/") != warehouse.location(name):
        raise Refused(
            f"{what} lies at {table.location()}, not at {warehouse.location(name)}",
            hint=f"export to {table.location().rstrip('/').rpartition('/')[0]}, or take another catalogue",
        )
    fields = [(table.schema().find_column_name(one.source_id), str(one.transform)) for one in table.spec().fields]
    if fields != [(_CLUSTER, "identity")]:
        raise Refused(f"{what} is partitioned by {fields or 'nothing'}, not by cluster alone", table=name)
    known = table.properties.get(_OF_CLUSTER + cluster[0], cluster[1])
    if known != cluster[1]:
        raise Refused(
            f"{what} has rows of another cluster {cluster[0]!r}: that is {known}, this one is {cluster[1]}",
            hint="call this one otherwise, --cluster NAME, or take another catalogue",
            cluster=cluster[0],
            expected=known,
            found=cluster[1],
        )
    for problem in _iter_conflicts(TABLES[name], table.schema().as_arrow()):
        raise Refused(
            f"{what}, column {problem}: nothing was written",
            hint="rename that column in the table, or export to another directory and catalogue",
        )


def _iter_conflicts(ours: pa.Schema, theirs: pa.Schema) -> Iterator[str]:
    """Yield what columns of OURS cannot be read as, by the table's schema as it stands."""
    for field in ours:
        index = theirs.get_field_index(field.name)
        if index >= 0 and not _fits(field.type, theirs.field(index).type):
            yield f"{field.name}: it has {theirs.field(index).type}, rows to be added have {field.type}"
    for field in theirs:
        if not field.nullable and ours.get_field_index(field.name) < 0:
            yield f"{field.name}: it must not be null, and rows to be added have none"


def _fits(ours: pa.DataType, theirs: pa.DataType) -> bool:
    """Whether values of OURS can be read as THEIRS: integers of at most their width, strings and lists of either size."""
    if pa.types.is_integer(ours) and pa.types.is_integer(theirs):
        return int(ours.bit_width) <= int(theirs.bit_width)
    return _plain(ours) == _plain(theirs)


def _plain(kind: pa.DataType) -> object:
    if pa.types.is_large_string(kind) or pa.types.is_string(kind):
        return "string"
    if pa.types.is_large_binary(kind) or pa.types.is_binary(kind):
        return "binary"
    if pa.types.is_map(kind):
        return "map", _plain(kind.key_type), _plain(kind.item_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return "list", _plain(kind.value_type)
    if pa.types.is_struct(kind):
        return "struct", *((field.name, _plain(field.type)) for field in kind)
    return str(kind)


def files_of(warehouse: Warehouse, name: str, cluster: str) -> list[DataFile]:
    """Return the files that the table NAME has of CLUSTER; none where it is not there."""
    table = _find_table(warehouse, name)
    return [] if table is None else [_as_file(table, one) for one in _data_files(table, cluster)]


def _data_files(table: Any, cluster: str) -> list[Any]:  # Any: pyiceberg's Table and DataFile
    from pyiceberg import expressions

    equal: Any = expressions.EqualTo  # its checked signature is pydantic's, not the one that is called
    try:
        return [task.file for task in table.scan(row_filter=equal(_CLUSTER, cluster)).plan_files()]
    except _UNREADABLE as error:
        said = " ".join(str(error).split())[:_SAID_CHARACTERS]
        raise Corrupt(
            f"the files of the Iceberg table {'.'.join(table.name())} cannot be listed: {said}",
            hint=f"bring back what is missing in {table.location()}, or export to another directory and catalogue",
        ) from error


def _as_file(table: Any, file: Any) -> DataFile:  # Any: pyiceberg's Table and DataFile
    from pyiceberg.conversions import from_bytes
    from pyiceberg.types import LongType

    column = next((one.field_id for one in table.schema().fields if one.name == "ledger_id"), -1)
    low, high = ((bounds or {}).get(column) for bounds in (file.lower_bounds, file.upper_bounds))
    ledgers = None
    if low is not None and high is not None:
        ledgers = int(from_bytes(LongType(), low)), int(from_bytes(LongType(), high))
    return DataFile(file.file_path, file.record_count, file.file_size_in_bytes, ledgers)


def commit(warehouse: Warehouse, change: Commit) -> Committed:
    """Make CHANGE one commit of its table, behind those of other clusters that come between; the table is made where it is not there.

    Raises StalePlan when the table has other files of the cluster by now than it was compared with, Refused as ``check_tables``.
    """
    from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

    what = f"the Iceberg table {NAMESPACE}.{change.table} cannot be written"
    with _translated(what):
        _made(lambda: warehouse.catalog.create_namespace_if_not_exists(NAMESPACE))
    for _ in range(_ATTEMPTS):
        table = _find_table(warehouse, change.table)
        if table is not None:
            _check_table(warehouse, change.table, table, (change.cluster, change.identity))
        there = [] if table is None else _data_files(table, change.cluster)
        if change.known is not None and set(change.known) != {file.file_path for file in there}:
            raise StalePlan(
                f"another run has written {change.table} of the cluster {change.cluster} meanwhile: nothing was added",
                hint="run the same command again",
            )
        with _translated(what), suppress(CommitFailedException, TableAlreadyExistsError):
            return _commit_once(
                _new_table(warehouse, change.table) if table is None else table.transaction(), change, there
            )
    raise StalePlan(
        f"{change.table}: {_ATTEMPTS} commits in turn came behind those of other clusters",
        hint="run the same command again",
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """pyiceberg warns of every column without statistics: those of long values have none."""
    logger = logging.getLogger("pyiceberg.io.pyarrow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _new_table(warehouse: Warehouse, name: str) -> Any:  # Any: pyiceberg's Transaction
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import NestedField, StringType

    # Ids are given anew when a table is made; the first column's is what the partition is declared by.
    first = Schema(NestedField(1, _CLUSTER, StringType(), required=False))
    return warehouse.catalog.create_table_transaction(
        f"{NAMESPACE}.{name}",
        schema=first,
        location=warehouse.location(name),
        partition_spec=PartitionSpec(PartitionField(1, 1000, IdentityTransform(), _CLUSTER)),
        properties=_PROPERTIES | {MARK: name},
    )


def _commit_once(transaction: Any, change: Commit, there: Sequence[Any]) -> Committed:
    """Commit CHANGE by pyiceberg's TRANSACTION, with columns that the table did not have; THERE: its files of the cluster."""
    from pyiceberg.table import _parquet_files_to_data_files

    table = transaction._table
    # pyiceberg's own retries would append to rows that nobody compared with: who calls does them.
    table.metadata.properties["commit.retry.num-retries"] = "0"
    with transaction.update_schema() as update:
        update.union_by_name(TABLES[change.table])
    if transaction.table_metadata.name_mapping() is None:
        transaction.set_properties({_MAPPING: transaction.table_metadata.schema().name_mapping.model_dump_json()})
    if table.properties.get(_OF_CLUSTER + change.cluster) is None:
        transaction.set_properties({_OF_CLUSTER + change.cluster: change.identity})
    with _quiet():
        added = list(_parquet_files_to_data_files(transaction.table_metadata, list(change.paths), table.io))
    gone = there if change.known is None else []
    if added or gone:
        about = {"pulsar-admin.cluster": change.cluster}
        about |= {INCOMPLETE: change.incomplete} if change.incomplete else {}
        snapshot = transaction.update_snapshot(snapshot_properties=about)
        with snapshot.overwrite() if gone else snapshot.merge_append() as update:
            for file in gone:
                update.delete_data_file(file)
            for file in added:
                update.append_data_file(file)
    before = sum(file.record_count for file in there)
    after = sum(file.record_count for file in added) + (0 if gone else before)
    transaction.commit_transaction()
    current = table.current_snapshot() if added or gone else None
    return Committed(current.snapshot_id if current else None, before, after)
