"""The tables that ``store export tables`` wrote as what SQL finds: of one cluster, or of all that lie there side by side.

In a directory DuckDB's own reader opens the files; at a URL, which it cannot, pyarrow's datasets do. Both leave out row groups and
columns that a statement does not want.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pyarrow.dataset as ds

from store.errors import InvalidValue, NotFound, SourceNotFound, StoreError
from store.names import PARTITION_SUFFIX, parse_topic
from store.scan.sources import file_system_of
from store.tables.folder import Folder
from store.tables.groups import Files, Opened, ReadCount
from store.tables.manifest import Part, read_manifest
from store.tables.schemas import TABLES
from store.tables.sql import TopicsMeant

_CHECKED = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)


class ExportedTables:
    """What is in a folder, of CLUSTER or of all. Raises SourceNotFound where nothing was exported to it, NotFound, Corrupt."""

    def __init__(self, folder: Folder, cluster: str | None) -> None:
        manifest = read_manifest(folder)
        if manifest is None:
            raise SourceNotFound(
                f"{folder.place} has no tables", hint="write some: pulsar-admin store export tables DIR"
            )
        if cluster is not None and cluster not in manifest.clusters:
            there = ", ".join(manifest.clusters)
            raise NotFound(f"{folder.place} has no tables of {cluster!r}", hint=f"there are {there}", cluster=cluster)
        wanted = [manifest.clusters[name] for name in manifest.clusters if cluster in (None, name)]
        self._folder = folder
        self._parts: dict[str, list[Part]] = {}
        for name in TABLES:
            if any(name in one.tables for one in wanted):
                self._parts[name] = [part for one in wanted for part in one.tables.get(name, ())]
        parts = () if folder.is_remote else itertools.chain(*self._parts.values())
        self.files = [folder.at(part.path) for part in parts]
        self.problems: list[StoreError] = []
        self.errors: list[BaseException] = []

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

    def find(self, name: str) -> ds.Dataset | str | TopicsMeant | None:
        """Return the table NAME as a dataset or a query, None where there is none: a topic, a namespace and a glob are messages."""
        if name in self._parts:
            return self._table(name, self._parts[name])
        if name in TABLES or "messages" not in self._parts:
            return None
        condition = _condition_of(name)
        known = [table for table in ("topics", "messages") if table in self._parts]
        return None if condition is None else TopicsMeant(condition, known)

    def _table(self, name: str, parts: Sequence[Part]) -> ds.Dataset | str:
        if not parts:
            return ds.dataset([], schema=TABLES[name])
        places = [self._folder.at(part.path) for part in parts]
        if not self._folder.is_remote and self._are_whole(name, parts):
            listed = ", ".join(map(_text, places))
            columns = ", ".join(f'"{column}"' for column in TABLES[name].names)
            return f"SELECT {columns} FROM read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
        system, _ = file_system_of(places[0])
        paths = [file_system_of(place)[1] for place in places]
        return ds.dataset(paths, schema=TABLES[name], format=_CHECKED, filesystem=system)

    def _are_whole(self, name: str, parts: Sequence[Part]) -> bool:
        """Whether PARTS have all columns of the table NAME; those of an earlier version lack the last. Raises what is wrong with one."""
        schema, whole, files = TABLES[name], True, Files(self._folder)
        for part in parts:
            opened = Opened(files, part, ReadCount())
            missing = opened.missing(schema)
            if missing != schema.names[len(schema) - len(missing) :]:
                opened.check(schema)
            whole = whole and not missing
        return whole


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
