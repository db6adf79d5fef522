"""Tables of what a store knows. Imports pyarrow."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa

from pulsar_admin.api.batches import Batches
from pulsar_admin.api.session import Session
from pulsar_admin.store.errors import InvalidValue, StoreError
from pulsar_admin.store.extras import require
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.tables.cluster import find_cluster_name
from pulsar_admin.store.tables.rows import SMALL_TABLES, iter_table
from pulsar_admin.store.tables.schemas import TABLES

if TYPE_CHECKING:
    from pulsar_admin.store.tables.sql import Database


def table_of(session: Session, name: str) -> Batches:
    """Return the table NAME; raises InvalidValue."""
    if name not in SMALL_TABLES:
        raise InvalidValue(f"there is no table {name!r}", hint=f"tables: {', '.join(SMALL_TABLES)}", table=name)

    def source(reader: EntryReader, problems: list[StoreError]) -> Generator[pa.RecordBatch, None, None]:
        yield from iter_table(reader, name, find_cluster_name(reader.txn), problems.append)

    return Batches(session, lambda: TABLES[name], source)


def rows_of(session: Session, statement: str) -> Batches:
    """Return the rows of one SELECT; raises BadSql, Refused, MissingComponent."""
    require("duckdb", "sql")
    with session.reader() as reader, _opened(reader, []) as database:
        statements = database.split(statement)
        if len(statements) != 1:
            raise InvalidValue(f"{len(statements)} statements where one is wanted", hint="ask one after the other")
        schema = database.schema(statements[0])

    def source(reader: EntryReader, problems: list[StoreError]) -> Generator[pa.RecordBatch, None, None]:
        with _opened(reader, problems) as database:
            yield from database.batches(statements[0])

    return Batches(session, lambda: schema, source)


@contextmanager
def _opened(reader: EntryReader, problems: list[StoreError]) -> Iterator[Database]:
    """Open what asks the tables of a snapshot; what they could not read is added to PROBLEMS."""
    from pulsar_admin.store.tables.catalog import StoreTables
    from pulsar_admin.store.tables.sql import Database

    with TemporaryDirectory(prefix="pulsar-admin-") as spill:
        tables = StoreTables(reader, find_cluster_name(reader.txn))
        database = Database(tables, spill=spill)
        try:
            yield database
        finally:
            database.close()
            problems += tables.problems
