"""``store import tables``: creates a store from the exported tables of one cluster; messages stay in the logs, where
they are read.

It needs ``nodes`` (the metadata tree), ``rows`` (the store's small databases), ``bodies`` (entries that contain
metadata, of cursor and schema ledgers) and ``entries`` (for the location blocks), all from one export.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.rocksvalue import NodeStat
from pulsar_admin.store.db.blocks import block_key
from pulsar_admin.store.db.bodies import body_key
from pulsar_admin.store.db.environment import Store, Txn, create_store, open_store
from pulsar_admin.store.db.files import FileMode, iter_logs, put_log
from pulsar_admin.store.db.storeinfo import StoreState
from pulsar_admin.store.db.tree import Node, row_of
from pulsar_admin.store.errors import Corrupt, InvalidValue, NotFound, SourceChanged, SourceNotFound, Unsupported
from pulsar_admin.store.files import new_directory
from pulsar_admin.store.index.writer import pack_block
from pulsar_admin.store.kernels import columns as kernel
from pulsar_admin.store.names import shell_word
from pulsar_admin.store.scan.runs import Run, pack_runs
from pulsar_admin.store.scan.schemas import FLAGS, INVERTED
from pulsar_admin.store.tables.folder import NAME, ClusterTables, Folder, TableFile, read_manifest
from pulsar_admin.store.tables.parquet import check_file, read_groups
from pulsar_admin.store.tables.rows import KEPT, STORE
from pulsar_admin.store.tables.schemas import TABLES
from pulsar_admin.store.timespec import shown_time
from pulsar_admin.store.wording import counted, one_line

NEEDED = ("nodes", "rows", "bodies", "entries")
"""The tables that a store is made of."""
_NODE_COLUMNS = ("path", "value", "version", "created_time", "modified_time", "owner")
_ROW_COLUMNS = ("database", "key", "value")
_KEYS = ("ledger_id", "entry_id")
_PLACES = ("offset", "size", "payload_bytes", "messages", "last_add_confirmed")
_TIMES = {"publish_time": "publish_ms", "broker_time": "broker_ms", "deliver_at_time": "deliver_at_ms"}
_ENTRY_COLUMNS = (*_KEYS, *_PLACES, *_TIMES, *FLAGS, "path")
_AGAIN = "export them again: pulsar-admin store export tables DIR"

Row = tuple[bytes, bytes]
Read = Callable[[str, Sequence[str]], Iterator[pa.Table]]


class TablesImported(Struct):
    """The result of an import of tables. ``elsewhere``: files of entries that cannot be reached from here;
    ``incomplete``: why the tables are incomplete."""

    __repr__ = one_line

    store: str
    source: str
    cluster: str
    nodes: int = 0
    ledgers: int = 0
    entries: int = 0
    files: int = 0
    elsewhere: int = 0
    incomplete: str = ""


class FoundTables(Struct, frozen=True):
    """The tables of one cluster in a folder."""

    folder: Folder
    name: str
    cluster: ClusterTables

    @property
    def incomplete(self) -> str:
        """Why the required tables are incomplete, "" if they are complete."""
        return next((self.cluster.incomplete[table] for table in NEEDED if table in self.cluster.incomplete), "")

    @property
    def parts(self) -> list[TableFile]:
        """The files of the required tables."""
        return [part for table in NEEDED for part in self.cluster.tables[table]]

    @property
    def rows(self) -> int:
        """The number of rows in the required tables."""
        return sum(map(self.cluster.rows, NEEDED))

    def read(self, table: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the row groups of a table in their order; raises SourceNotFound, SourceChanged, Unsupported, Corrupt."""
        schema = pa.schema([TABLES[table].field(name) for name in columns])
        for part in self.cluster.tables[table]:
            yield from read_groups(self.folder, part, schema)


def find_tables(place: str, cluster: str | None) -> FoundTables:
    """Return the tables of ``cluster`` (None: the only one) in a directory or at a URL, from which a store can be made.

    Raises SourceNotFound, Unsupported, NotFound, InvalidValue, SourceChanged (tables of several exports) and Corrupt.
    """
    folder = Folder.of(place)
    manifest = read_manifest(folder)
    clusters = {} if manifest is None else manifest.clusters
    if not clusters:
        raise SourceNotFound(
            f"{place} has no tables ({NAME} names none)",
            hint="create them with: pulsar-admin --store STORE store export tables DIR",
            path=place,
        )
    names = ", ".join(sorted(clusters))
    if cluster is None and len(clusters) != 1:
        raise InvalidValue(f"{place} has tables of several clusters: {names}", hint="say which one: --cluster NAME")
    name = next(iter(clusters)) if cluster is None else cluster
    if name not in clusters:
        raise NotFound(f"{place} has no tables of the cluster {name!r}", hint=f"there are: {names}", cluster=name)
    missing = [table for table in NEEDED if table not in clusters[name].tables]
    if missing:
        raise Unsupported(
            f"{folder.place} has no table {' and no '.join(missing)} of the cluster {name}: a store is made of {', '.join(NEEDED)}",
            hint=_again(folder, name, clusters[name]),
        )
    # One export has to have written all tables that a store is made of.
    tables = clusters[name]
    times: dict[int | None, list[str]] = {}
    for table in NEEDED:
        times.setdefault(tables.exported_ms.get(table), []).append(table)
    if len(times) > 1:
        said = "; ".join(f"{', '.join(some)} {_time_text(at)}" for at, some in times.items())
        raise SourceChanged(
            f"{folder.place} has tables of {name} that were exported at different times: {said}",
            hint=_again(folder, name, tables),
            cluster=name,
        )
    return FoundTables(folder, name, clusters[name])


def _again(folder: Folder, name: str, cluster: ClusterTables) -> str:
    command = (
        f"pulsar-admin --store {shell_word(cluster.store)} store export tables {shell_word(folder.place)}"
        f" --cluster {shell_word(name)} --only {','.join(NEEDED)}"
    )
    return f"export them together: {command}"


def _time_text(time_ms: int | None) -> str:
    return "at no known time" if time_ms is None else f"at {shown_time(time_ms)}"


def import_tables(found: FoundTables, path: Path, advance: Callable[[int], None]) -> TablesImported:
    """Create a new store from found tables; nothing is created if they cannot be read. ``advance`` gets the numbers of rows.

    Raises AlreadyExists, DiskFull, NotWritable, SourceNotFound, SourceChanged, Unsupported, Corrupt.
    """
    result = TablesImported(str(path), found.folder.place, found.name, incomplete=found.incomplete)

    def read(table: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        for rows in found.read(table, columns):
            yield rows
            advance(len(rows))

    with new_directory(path) as making:
        for part in found.parts:
            check_file(found.folder, part)
        about = _about(found)
        sources = tuple(about["sources"])
        create_store(making, now_ms=about["created"], state=StoreState.IMPORTING, sources=sources)
        with open_store(making, writable=True, unfinished=True) as store:
            store.replace_all("tree", _nodes(read, result))
            for database, rows in groupby(_rows(read), itemgetter(0)):
                if database != STORE:
                    store.replace_all(database, (row[1:] for row in rows))
            files = _place_logs(store, Path(about["path"]), result)
            for bodies in map(_bodies, read("bodies", (*_KEYS, "record"))):
                store.write(lambda txn, rows=bodies: txn.put_all("state", rows))  # type: ignore[misc]  # binds these
            store.replace_all("entries", pack_blocks(_entries(read, files, result)))
            with store.read() as txn:
                result.ledgers = txn.count("times")
            store.update_info(state=StoreState.READY)
    return result


def _about(found: FoundTables) -> Mapping[str, Any]:  # Any: JSON
    """Return the exported store's description of itself; raises Unsupported for tables of an earlier version."""
    for rows in found.read("rows", _ROW_COLUMNS):
        for database, _, value in _row_values(rows):
            if database == STORE and tuple(json.loads(value).get("kept", ())) == KEPT:
                about: Mapping[str, Any] = json.loads(value)
                return about
    raise Unsupported(f"{found.folder.place}: an earlier version exported these tables", hint=_AGAIN)


def _row_values(rows: pa.Table) -> Iterator[tuple[str, bytes, bytes]]:
    return zip(*(rows.column(name).to_pylist() for name in _ROW_COLUMNS), strict=True)


def _rows(read: Read) -> Iterator[tuple[str, bytes, bytes]]:
    for rows in read("rows", _ROW_COLUMNS):
        yield from _row_values(rows)


def _nodes(read: Read, result: TablesImported) -> Iterator[Row]:
    for table in read("nodes", _NODE_COLUMNS):
        columns = [table.column(name) for name in ("path", "value", "version", "owner")]
        times = [table.column(name).cast("int64") for name in ("created_time", "modified_time")]
        result.nodes += len(table)
        for path, value, version, owner, created, modified in zip(
            *(column.to_pylist() for column in (*columns, *times)), strict=True
        ):
            stat = NodeStat(version, owner or 0, (created or 0) // 1000, (modified or 0) // 1000, False)
            yield row_of(Node(path, stat, value))


def _place_logs(store: Store, origin: Path, result: TablesImported) -> Mapping[str, int]:
    """Catalogue the files in a new store, at their paths in the exported store; return path → file id."""
    with store.read() as txn:
        logs = [replace(log, path=str(log.locate(origin).absolute())) for log in iter_logs(txn)]
    result.files, result.elsewhere = len(logs), sum(not Path(log.path).exists() for log in logs)

    def put(txn: Txn) -> None:
        for log in logs:
            put_log(txn, log if log.mode is FileMode.OWN else replace(log, mode=FileMode.REFERENCED))

    store.write(put)
    return {log.path: log.file_id for log in logs}


def _bodies(table: pa.Table) -> list[Row]:
    columns = (table.column(name).to_pylist() for name in (*_KEYS, "record"))
    return [(body_key(ledger_id, entry_id), record) for ledger_id, entry_id, record in zip(*columns, strict=True)]


def _entries(read: Read, files: Mapping[str, int], result: TablesImported) -> Iterator[EntryRows]:
    for table in read("entries", _ENTRY_COLUMNS):
        rows = rows_of(table, files)
        result.entries += len(rows.files)
        yield rows


class EntryRows(NamedTuple):
    """Good entries in order of ledger and entry: records as a scan makes them, and the file id of each."""

    records: Array  # kernel.RECORD
    files: Array  # u32

    def part(self, low: int, high: int | None = None) -> EntryRows:
        """Return the rows from ``low`` to ``high`` (excluded)."""
        return EntryRows(self.records[low:high], self.files[low:high])


def rows_of(table: pa.Table, file_ids: Mapping[str, int]) -> EntryRows:
    """Return the entries in a table, except those with a wrong digest, which no index has; raises Corrupt."""
    records = np.zeros(table.num_rows, kernel.RECORD)
    for name in (*_KEYS, "offset", "size", "messages"):
        records[name] = _numbers(table, name)
    records["lac"] = _numbers(table, "last_add_confirmed", -1)
    records["digest_bytes"] = records["size"] - 32 - _numbers(table, "payload_bytes")
    for name, bit in FLAGS.items():
        is_set = (_numbers(table, name) != 0) != (name in INVERTED)
        records["flags"] |= np.where(is_set, bit, 0).astype(np.int16)
    for name, target in _TIMES.items():
        there = table.column(name).is_valid().to_numpy()
        times = _numbers(table, name) // 1000
        records[target] = np.where(there, times, 0 if name == "deliver_at_time" else -1)
        if name == "broker_time":
            records["flags"] |= np.where(there, kernel.HAS_BROKER_TIME, 0).astype(np.int16)
    paths = table.column("path").combine_chunks().dictionary_encode()
    known = np.array([_file_id(path, file_ids) for path in paths.dictionary.to_pylist()], np.uint32)
    good = records["flags"] & kernel.BAD_DIGEST == 0
    return EntryRows(records[good], known[paths.indices.to_numpy()][good])


def _file_id(path: str, file_ids: Mapping[str, int]) -> int:
    if path not in file_ids:
        raise Corrupt(
            f"the table entries names {path}, which the table rows does not know: expected one of {counted(len(file_ids), 'file')}",
            hint=_AGAIN,
            path=path,
        )
    return file_ids[path]


def _numbers(table: pa.Table, name: str, null: int = 0) -> Array:
    """Return the numbers, times or booleans of a column, with ``null`` in the place of nulls."""
    column = table.column(name)
    numbers: Array = column.cast("int64").fill_null(null).to_numpy()
    return numbers


def pack_blocks(parts: Iterable[EntryRows]) -> Iterator[Row]:
    """Yield the location block rows of ``parts``, which are in order of ledger and entry."""
    held = EntryRows(np.zeros(0, kernel.RECORD), np.zeros(0, np.uint32))
    for part in parts:
        rows = EntryRows(*(np.concatenate(both) for both in zip(held, part, strict=True))) if len(held.files) else part
        runs = pack_runs(rows.records, keep_first=True).rows  # one of each block
        for run in runs[:-1]:
            yield _packed(run, rows)
        held = rows.part(runs[-1].start) if runs else rows  # it may go on in the next part
    for run in pack_runs(held.records, keep_first=True).rows:
        yield _packed(run, held)


def _packed(run: Run, rows: EntryRows) -> Row:
    part = rows.part(run.start, run.end)
    return block_key(run.ledger_id, run.block), pack_block(run, part.records, part.files)
