"""The tables that ``store export tables`` wrote as what SQL finds: of one cluster, or of all that lie there side by side.

pyarrow reads the files, on a disk or at a URL, and leaves out row groups and columns that a statement does not want. Each file is proven
by its SHA-256 before its first use, and its pages by their checksums whenever they are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from threading import Lock

import pyarrow as pa
import pyarrow.dataset as ds

from pulsar_admin.store.errors import InvalidValue, NotFound, SourceNotFound, StoreError
from pulsar_admin.store.names import PARTITION_SUFFIX, parse_topic
from pulsar_admin.store.tables.checked import check_file, explained, lacking, open_checked
from pulsar_admin.store.tables.folder import Folder
from pulsar_admin.store.tables.manifest import Manifest, Part, read_manifest
from pulsar_admin.store.tables.pruning import MadeTable, Pruner
from pulsar_admin.store.tables.schemas import TABLES, known_schema
from pulsar_admin.store.tables.sql import TopicsMeant

_PARQUET = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)


class ExportedTables:
    """What is in a folder, of CLUSTER or of all. Raises SourceNotFound where nothing was exported to it, NotFound, Corrupt."""

    def __init__(self, folder: Folder, cluster: str | None) -> None:
        self._folder, self._cluster = folder, cluster
        self._manifest: Manifest | None = None
        self.problems: list[StoreError] = []
        self.errors: list[BaseException] = []
        self._proven: set[str] = set()
        self.renew()

    def renew(self) -> bool:
        """Take what is in the folder by now, and return whether that is another export than before."""
        folder, cluster = self._folder, self._cluster
        manifest = read_manifest(folder)
        if manifest is None:
            raise SourceNotFound(
                f"{folder.place} has no tables",
                hint="make them with: pulsar-admin --store STORE store export tables DIR",
            )
        if cluster is not None and cluster not in manifest.clusters:
            there = ", ".join(manifest.clusters)
            raise NotFound(f"{folder.place} has no tables of {cluster!r}", hint=f"there are {there}", cluster=cluster)
        if manifest == self._manifest:
            return False
        self._manifest = manifest
        wanted = [manifest.clusters[name] for name in manifest.clusters if cluster in (None, name)]
        self._columns = next((one.columns for one in wanted if "messages" in one.tables), None)
        self._parts: dict[str, list[Part]] = {}
        for name in TABLES:
            if any(name in one.tables for one in wanted):
                self._parts[name] = [part for one in wanted for part in one.tables.get(name, ())]
        return True

    @property
    def incomplete(self) -> str:
        """Why the metadata of one of the tables was not whole, "" where it was of all."""
        clusters = self._manifest.clusters if self._manifest else {}
        wanted = (clusters[name] for name in clusters if self._cluster in (None, name))
        return next((reason for one in wanted for reason in one.incomplete.values()), "")

    @property
    def parts(self) -> list[Part]:
        """The files of the tables that are there."""
        return [part for parts in self._parts.values() for part in parts]

    @property
    def names(self) -> tuple[str, ...]:
        """The tables that are there."""
        return (*self._parts,)

    def told(self) -> list[str]:
        """Return what to say of the last statement: DuckDB does not say what it read."""
        return []

    def topics_like(self, begin: str, most: int) -> list[str]:
        """Return nothing: to complete names would read files."""
        return []

    def find(self, name: str) -> MadeTable | TopicsMeant | None:
        """Return the table NAME, None where there is none: a topic, a namespace and a glob are messages."""
        if name in self._parts:
            return self._table(name, self._parts[name])
        if name in TABLES or "messages" not in self._parts:
            return None
        condition = _condition_of(name)
        known = [table for table in ("topics", "messages") if table in self._parts]
        return None if condition is None else TopicsMeant(condition, known)

    def _table(self, name: str, parts: Sequence[Part]) -> MadeTable:
        schema = TABLES[name]
        if name == "messages" and self._columns is not None:
            schema = known_schema()
        for part in parts:
            self._prove(part, schema)
        return MadeTable(schema, partial(self._rows, schema, parts), Lock(), self.errors)

    def _prove(self, part: Part, schema: pa.Schema) -> None:
        """Raise what is wrong with PART, a file of a table of SCHEMA; one of an earlier version may lack the last columns."""
        if part.path in self._proven:
            return
        check_file(self._folder, part)
        missing = open_checked(self._folder, part, schema)
        if missing != schema.names[len(schema) - len(missing) :]:
            raise lacking(part, missing)
        self._proven.add(part.path)

    def _rows(
        self, schema: pa.Schema, parts: Sequence[Part], columns: Collection[str], pruner: Pruner
    ) -> Iterator[pa.RecordBatch]:
        names = [name for name in schema.names if name in columns]
        for part in parts:
            system, path = self._folder.system_of(part.path)
            with explained(self._folder, part.path):
                yield from _PARQUET.make_fragment(path, system).to_batches(
                    schema=schema, columns=names, filter=pruner.condition
                )


def _condition_of(name: str) -> str | None:
    """Return which messages NAME means, None where it names no topics."""
    plain = name.removeprefix("persistent://")
    if any(sign in name for sign in "*?["):
        return f"topic GLOB {_text(f'persistent://{plain}')}"
    if plain.count("/") == 1:
        return f"starts_with(topic, {_text(f'persistent://{plain}/')})"
    try:
        topic = str(parse_topic(name))
    except InvalidValue:
        return None
    part = _text(topic + PARTITION_SUFFIX)
    is_partition = f"starts_with(topic, {part}) AND regexp_full_match(substr(topic, length({part}) + 1), '[0-9]+')"
    return f"topic = {_text(topic)} OR ({is_partition})"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
