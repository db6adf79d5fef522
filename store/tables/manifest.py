"""``tables.json``: the files of the last whole export of each cluster. Readers that go by it see one export or the next, never both.

Fields: docs/formats/tables.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from store.errors import Corrupt, Refused, Unsupported, reason_of
from store.tables.folder import Folder

NAME = "tables.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a table: its path in the folder, rows, bytes, and the least and greatest ledger id, None where it has none."""

    path: str
    rows: int
    size_bytes: int
    ledgers: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ClusterTables:
    """What one cluster has. ``identity``: what tells it from another of the same name (see ``store.tables.cluster``)."""

    identity: str
    store: str
    tables: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    exported_ms: Mapping[str, int] = field(default_factory=dict)  # by table

    def rows(self, table: str) -> int:
        """Return the rows of TABLE, 0 where there is none."""
        return sum(part.rows for part in self.tables.get(table, ()))


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the folder has, by cluster."""

    clusters: Mapping[str, ClusterTables] = field(default_factory=dict)


def read_manifest(folder: Folder) -> Manifest | None:
    """Return what FOLDER has, None where nothing was exported to it; raises Corrupt, Unsupported (a later format)."""
    where = folder.at(NAME)
    raw = folder.read(NAME)
    if raw is None:
        return None
    try:
        found = json.loads(raw)
        if found["tables"] == FORMAT:
            return Manifest({name: _cluster_of(one) for name, one in found["clusters"].items()})
        version = found["tables"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Corrupt(
            f"{where} is damaged: {reason_of(error)}", hint="export the tables again into another directory", path=where
        ) from error
    raise Unsupported(f"{where} has format {version}, this version reads {FORMAT}", hint="take a newer pulsar-admin")


def _cluster_of(found: Any) -> ClusterTables:  # Any: JSON
    tables = {name: tuple(_part_of(row) for row in rows) for name, rows in found["tables"].items()}
    return ClusterTables(found["identity"], found["store"], tables, dict(found["exportedMs"]))


def _part_of(row: Any) -> Part:  # Any: JSON
    ledgers = row.get("ledgers")
    return Part(row["path"], int(row["rows"]), int(row["bytes"]), None if ledgers is None else (ledgers[0], ledgers[1]))


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the file's bytes, a line a file of a table."""
    clusters = {
        name: {
            "identity": one.identity,
            "store": one.store,
            "exportedMs": dict(one.exported_ms),
            "tables": {table: [_row_of(part) for part in parts] for table, parts in one.tables.items()},
        }
        for name, one in manifest.clusters.items()
    }
    return json.dumps({"tables": FORMAT, "clusters": clusters}, indent=1).encode() + b"\n"


def _row_of(part: Part) -> dict[str, Any]:  # Any: JSON
    row = asdict(part)
    return {"path": row["path"], "rows": row["rows"], "bytes": row["size_bytes"], "ledgers": row["ledgers"]}


def check_identity(folder: Folder, manifest: Manifest | None, cluster: str, identity: str) -> None:
    """Raise Refused when FOLDER has tables of another cluster that is called CLUSTER, too."""
    there = None if manifest is None else manifest.clusters.get(cluster)
    if there is not None and there.identity != identity:
        raise Refused(
            f"{folder.place} has tables of another cluster {cluster!r}, exported from {there.store}: it is {there.identity},"
            f" this one is {identity}",
            hint="call this one otherwise, --cluster NAME, or name another directory",
            cluster=cluster,
            expected=there.identity,
            found=identity,
        )
