"""Tables of what a store knows. Imports pyarrow."""

from __future__ import annotations

from collections.abc import Generator

import pyarrow as pa

from pulsar_admin.api.batches import Batches
from pulsar_admin.api.session import Session
from store.errors import InvalidValue, StoreError
from store.model.ledgers import EntryReader
from store.tables.cluster import find_cluster_name
from store.tables.rows import SMALL_TABLES, iter_table
from store.tables.schemas import TABLES


def table_of(session: Session, name: str) -> Batches:
    """Return the table NAME; raises InvalidValue."""
    if name not in SMALL_TABLES:
        raise InvalidValue(f"there is no table {name!r}", hint=f"tables: {', '.join(SMALL_TABLES)}", table=name)

    def source(reader: EntryReader, problems: list[StoreError]) -> Generator[pa.RecordBatch, None, None]:
        yield from iter_table(reader, name, find_cluster_name(reader.txn), problems.append)

    return Batches(session, TABLES[name], source)
