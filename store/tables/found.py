"""The tables of one cluster in a folder: checked against what the folder's list says before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from store.errors import InvalidValue, NotFound, SourceChanged, SourceNotFound, Unsupported
from store.tables.folder import Folder
from store.tables.groups import Files, Group, LedgerGroups, Opened, ReadCount
from store.tables.manifest import NAME, ClusterTables, Part, read_manifest
from store.tables.schemas import TABLES
from store.timespec import shown_time

ANSWERING = ("nodes", "rows", "bodies", "entries")
"""The tables that commands answer from."""


class Found:
    """What FOLDER has of the cluster NAME."""

    def __init__(self, folder: Folder, name: str, cluster: ClusterTables) -> None:
        self._folder, self._name, self._cluster = folder, name, cluster
        self._files = Files(folder)
        self.count = ReadCount()

    @property
    def incomplete(self) -> str:
        """Why the metadata of the tables that commands answer from was not whole, "" where it was."""
        return next((self._cluster.incomplete[table] for table in ANSWERING if table in self._cluster.incomplete), "")

    @property
    def place(self) -> str:
        """Where the folder is."""
        return self._folder.place

    def groups(self, table: str, keys: Sequence[str], columns: Sequence[str]) -> list[Group]:
        """Return the row groups of TABLE with bounds of KEYS; raises SourceNotFound, SourceChanged, Unsupported, Corrupt."""
        opened = self._opened(table, keys, columns)
        return [group for part in self._parts(table) for group in opened(part)]

    def ledger_groups(self, table: str, keys: Sequence[str], columns: Sequence[str]) -> LedgerGroups:
        """Return the row groups of TABLE, whose first key is the ledger; raises Unsupported, and what ``groups`` raises when asked."""
        return LedgerGroups(self._parts(table), self._opened(table, keys, columns), self.count)

    def _parts(self, table: str) -> tuple[Part, ...]:
        parts = self._cluster.tables.get(table)
        if parts is None:
            raise Unsupported(
                f"{self.place} has no table {table} of the cluster {self._name}",
                hint="export all tables: pulsar-admin store export tables DIR",
            )
        return parts

    def _opened(self, table: str, keys: Sequence[str], columns: Sequence[str]) -> Callable[[Part], list[Group]]:
        schema = pa.schema([TABLES[table].field(name) for name in dict.fromkeys((*keys, *columns))])

        def opened(part: Part) -> list[Group]:
            with self.count.noting():
                file = Opened(self._files, part, self.count)
                file.check(schema)
                return list(file.groups(keys))

        return opened


def find_tables(place: str, cluster: str | None) -> Found:
    """Find the tables of CLUSTER, or of the only one that there is at PLACE; raises SourceNotFound, Unsupported, NotFound,
    InvalidValue and Corrupt."""
    folder = Folder.of(place)
    manifest = read_manifest(folder)
    found = {} if manifest is None else manifest.clusters
    if not found:
        raise SourceNotFound(
            f"{place} has no tables ({NAME} names none)",
            hint="make them with: pulsar-admin --store STORE store export tables DIR",
            path=place,
        )
    names = ", ".join(sorted(found))
    if cluster is None and len(found) != 1:
        raise InvalidValue(f"{place} has tables of several clusters: {names}", hint="say which one: --cluster NAME")
    name = next(iter(found)) if cluster is None else cluster
    if name not in found:
        raise NotFound(f"{place} has no tables of the cluster {name!r}", hint=f"there are: {names}", cluster=name)
    _check_times(folder, name, found[name])
    return Found(folder, name, found[name])


def _check_times(folder: Folder, name: str, cluster: ClusterTables) -> None:
    """Raise SourceChanged unless one export wrote all tables that commands answer from."""
    times: dict[int | None, list[str]] = {}
    for table in ANSWERING:
        if table in cluster.tables:
            times.setdefault(cluster.exported_ms.get(table), []).append(table)
    if len(times) > 1:
        said = "; ".join(f"{', '.join(tables)} {_time_text(at)}" for at, tables in times.items())
        raise SourceChanged(
            f"{folder.place} has tables of {name} that were exported at different times: {said}",
            hint=f"export them at once: pulsar-admin store export tables DIR --only {','.join(ANSWERING)}",
            cluster=name,
        )


def _time_text(time_ms: int | None) -> str:
    return "at no known time" if time_ms is None else f"at {shown_time(time_ms)}"
