"""Tables of a small store, written entry by entry with the reference readers: what readers of tables are tried on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from store.codec.buffer import signed
from store.codec.message import EntryHeader, decode_message_entry, is_batch
from store.db.environment import Txn, open_store
from store.errors import EntryCorrupt, StoreError
from store.model.ledgers import find_place, iter_entry_ids
from store.model.reader import EntryReader, open_reader
from store.tables.rows import iter_table
from store.tables.schemas import TABLES
from store.timespec import MAX_TIME_MS

Row = dict[str, Any]  # Any: a column's own type


def write_tables(
    store: Path, folder: Path, cluster: str = "c", *, rows_in_group: int = 200, rows_in_file: int = 1 << 30
) -> Path:
    """Write the tables of the store at STORE that answers need, as the cluster CLUSTER; return FOLDER."""
    tables = _tables_of(store, cluster)
    listed = {
        name: [
            _write(folder, f"{name}/cluster={cluster}/part-{number}.parquet", part, rows_in_group)
            for number, part in enumerate(_parts(rows, rows_in_file))
        ]
        for name, rows in tables.items()
    }
    path = folder / "tables.json"
    found = json.loads(path.read_text()) if path.exists() else {"tables": 1, "clusters": {}}
    found["clusters"][cluster] = {"identity": cluster, "store": str(store), "exportedMs": {}, "tables": listed}
    path.write_text(json.dumps(found))
    return folder


@cache
def _tables_of(store: Path, cluster: str) -> dict[str, pa.Table]:
    """The tables of a store that nobody writes."""
    with open_store(store) as opened, open_reader(opened) as reader:
        tables = {name: _small(reader, name, cluster) for name in ("nodes", "rows", "bodies")}
        rows = [{"cluster": cluster} | row for row in _entries(reader)]
    return tables | {"entries": pa.Table.from_pylist(rows, TABLES["entries"])}


def _small(reader: EntryReader, name: str, cluster: str) -> pa.Table:
    def fail(error: StoreError) -> None:
        raise error

    return pa.Table.from_batches(iter_table(reader, name, cluster, fail), TABLES[name])


def _parts(rows: pa.Table, rows_in_file: int) -> Iterator[pa.Table]:
    for first in range(0, max(len(rows), 1), rows_in_file):
        yield rows.slice(first, rows_in_file)


def _write(folder: Path, relative: str, rows: pa.Table, rows_in_group: int) -> Row:
    (folder / relative).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, folder / relative, row_group_size=rows_in_group)
    ids = rows.column("ledger_id").to_pylist() if "ledger_id" in rows.column_names else []
    bounds = [min(ids), max(ids)] if ids else None
    return {"path": relative, "rows": len(rows), "bytes": (folder / relative).stat().st_size, "ledgers": bounds}


def _entries(reader: EntryReader) -> Iterator[Row]:
    ledgers = [int.from_bytes(key, "big") for key in reader.txn.keys("times", b"")]
    for ledger_id in ledgers:
        for entry_id in iter_entry_ids(reader.txn, ledger_id):
            yield _entry(reader, reader.txn, ledger_id, entry_id)


def _entry(reader: EntryReader, txn: Txn, ledger_id: int, entry_id: int) -> Row:
    place = find_place(txn, ledger_id, entry_id)
    assert place is not None
    entry = reader.read(ledger_id, entry_id)
    row = {
        "ledger_id": ledger_id,
        "entry_id": entry_id,
        "path": str(reader.files.path_of(place[0])),
        "offset": place[1],
        "size": place[2],
        "payload_bytes": len(entry.payload),
        "last_add_confirmed": entry.last_add_confirmed,
        "digest_ok": True,
        "messages": 1,
        "framed": False,
        "copies": 1,
    }
    try:
        return row | _message(decode_message_entry(entry.payload, "entry"))
    except EntryCorrupt:
        return row


def _message(header: EntryHeader) -> Row:
    metadata, broker = header.metadata, header.broker
    return {
        "framed": True,
        "messages": metadata.num_messages_in_batch if is_batch(metadata) else 1,
        "publish_time": _micros(metadata.publish_time),
        "broker_time": _micros(broker.timestamp_ms) if broker else None,
        "deliver_at_time": _micros(metadata.deliver_at_time) or None,
        "producer": metadata.producer_name,
        "sequence_id": signed(metadata.sequence_id),
        "batch": is_batch(metadata),
        "marker": metadata.HasField("marker_type"),
    }


def _micros(time_ms: int | None) -> int | None:
    return None if time_ms is None or not 0 <= time_ms <= MAX_TIME_MS else time_ms * 1000
