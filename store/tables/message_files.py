"""The table ``messages``, made beside ``entries``: the entries that a range keeps are read from their files and taken apart.

Every entry stands for itself, as in ``store.scan.operations``: batches are exploded, a chunk is a row of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.kernels.records import BAD_DIGEST, UNFRAMED
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.schemas import TopicSchemas, read_schemas
from pulsar_admin.store.model.topics import iter_topics
from pulsar_admin.store.names import parse_owner
from pulsar_admin.store.scan.operations import PlainFiles, ReadMessages, ScanOptions
from pulsar_admin.store.scan.places import BATCH_BYTES, BATCH_ENTRIES, Places, PlacesReader
from pulsar_admin.store.scan.schemas import MESSAGE_SCHEMA
from pulsar_admin.store.scan.typed_values import Values
from pulsar_admin.store.tables.schemas import TABLES
from pulsar_admin.store.tables.staging import entry_keys

if TYPE_CHECKING:
    from pulsar_admin.store.tables.entries import Chosen


class Listed(NamedTuple):
    """A ledger in a topic's list, and its entries as the topic counts them: what lies behind, no broker delivers."""

    topic: str
    entries: int


class MessageFiles(Struct, frozen=True):
    """What the rows have: values by the topics' SCHEMAS, payloads where asked for."""

    payload: bool = False
    schemas: Mapping[str, TopicSchemas] = field(default_factory=dict)

    def batches(
        self, cluster: str, records: Chosen, listed: Mapping[int, Listed], problems: list[StoreError]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages of RECORDS in order, as in SQL of a store: of LISTED ledgers up to their ends, the system's topics left out.

        What cannot be taken apart is told to PROBLEMS.
        """
        left_out = {"path"} if self.payload else {"path", "payload"}
        names = tuple(name for name in MESSAGE_SCHEMA.names if name not in left_out)
        topics = {ledger_id: one.topic for ledger_id, one in listed.items()}
        reader = ReadMessages(ScanOptions(topics=topics), names, values=Values(self.schemas))
        paths = pa.array([origin.path for origin in records.files], pa.string())
        with closing(PlainFiles({number: origin.path for number, origin in enumerate(records.files)})) as files:
            for part in _groups(records, _told(listed)):
                rows = records.rows[part]
                entries = PlacesReader(files, False, None).read_places(_places(rows, records.origins[part]))
                for batch in reader.rows([entries], "", problems):
                    at = np.searchsorted(entry_keys(rows["ledger_id"], rows["entry_id"]), _keys_of(batch))
                    yield _whole(batch, cluster, paths.take(pa.array(records.origins[part][at])))


def read_all_schemas(reader: EntryReader) -> dict[str, TopicSchemas]:
    """Return topic → its schemas of all topics that have one."""
    found: dict[str, TopicSchemas] = {}
    for name in iter_topics(reader.txn):
        try:
            schemas = read_schemas(reader, name)
        except StoreError:
            continue  # the table of schemas tells it
        if schemas.versions or schemas.problems:
            found[str(name)] = schemas
    return found


def _told(listed: Mapping[int, Listed]) -> dict[int, int]:
    """Return ledger id → entries of the LISTED that are not of a system's topic."""
    system = {name for name in {one.topic for one in listed.values()} if parse_owner(name).is_system}
    return {ledger_id: one.entries for ledger_id, one in listed.items() if one.topic not in system}


def _groups(records: Chosen, ends: Mapping[int, int]) -> Iterator[Array]:
    """Yield the numbers of the records that are messages before the ENDS of their ledgers, as many at a time as are read at once."""
    is_good = records.rows["flags"] & (UNFRAMED | BAD_DIGEST) == 0
    ledgers, places = np.unique(records.rows["ledger_id"], return_inverse=True)
    end = np.array([ends.get(one, 0) for one in ledgers.tolist()], np.int64)[places]
    good = np.flatnonzero(is_good & (records.rows["entry_id"] < end))
    total = np.cumsum(records.rows["size"][good], dtype=np.int64)
    groups = np.maximum(total // BATCH_BYTES, np.arange(len(good)) // BATCH_ENTRIES)
    yield from (part for part in np.split(good, np.flatnonzero(np.diff(groups)) + 1) if len(part))


def _places(rows: Array, files: Array) -> Places:
    return Places(
        rows["ledger_id"].copy(),
        rows["entry_id"].copy(),
        files.astype(np.uint32),
        rows["offset"].astype(np.uint32),
        rows["size"].astype(np.uint32),
        rows["digest_bytes"].astype(np.int64),
    )


def _keys_of(batch: pa.RecordBatch) -> Array:
    return entry_keys(*(batch.column(name).to_numpy() for name in ("ledger_id", "entry_id")))


def _whole(batch: pa.RecordBatch, cluster: str, paths: pa.Array) -> pa.RecordBatch:
    """Return BATCH with all columns of the table, null where it has none."""
    schema = TABLES["messages"]
    made = {"cluster": pa.repeat(pa.scalar(cluster, pa.string()), len(batch)), "path": paths}
    made |= {name: batch.column(name) for name in batch.schema.names}
    columns = [made[item.name] if item.name in made else pa.nulls(len(batch), item.type) for item in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
