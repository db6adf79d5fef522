"""``tables.json``: the files of the last whole export of each cluster. Readers that go by it see one export or the next, never both.

Fields: docs/formats/tables.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import google_crc32c
from msgspec import Struct, field
from msgspec.structs import asdict

from pulsar_admin.store.errors import Corrupt, Refused, Unsupported, reason_of
from pulsar_admin.store.names import PROFILES, Profile
from pulsar_admin.store.tables.folder import Folder

NAME = "tables.json"
FORMAT = 2
"""1: files were proven by a checksum in their names, and the list had none of them."""
_CHECKSUM = "crc32c"
_KINDS: Mapping[type, str] = {dict: "an object", list: "a list", str: "a text", int: "a whole number"}
_Kind = TypeVar("_Kind", dict[str, Any], list[Any], str, int)  # Any: JSON


class Part(Struct, frozen=True):
    """A file of a table: its path in the folder, rows, bytes, SHA-256 (hex), and the least and greatest ledger id, None: it has none."""

    path: str
    rows: int
    size_bytes: int
    sha256: str
    ledgers: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """Its name in its table's directory."""
        return self.path.rpartition("/")[2]


class ClusterTables(Struct, frozen=True):
    """What one cluster has. ``identity``: what tells it from another of the same name (see ``store.tables.cluster``)."""

    identity: str
    store: str
    tables: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    exported_ms: Mapping[str, int] = field(default_factory=dict)  # by table
    columns: Profile | None = None  # whose names ``messages`` has; None: our own
    incomplete: Mapping[str, str] = field(
        default_factory=dict
    )  # table → what was not whole of the metadata it was made of

    def rows(self, table: str) -> int:
        """Return the rows of TABLE, 0 where there is none."""
        return sum(part.rows for part in self.tables.get(table, ()))


class Manifest(Struct, frozen=True):
    """What the folder has, by cluster."""

    clusters: Mapping[str, ClusterTables] = field(default_factory=dict)


def read_manifest(folder: Folder) -> Manifest | None:
    """Return what FOLDER has, None where nothing was exported to it; raises Corrupt, Unsupported (a later format)."""
    where = folder.at(NAME)
    raw = folder.read(NAME)
    if raw is None:
        return None
    try:
        found = _typed(json.loads(raw), "the whole", dict)
        version = _member(found, "", "tables", int)
        if version == FORMAT:
            clusters = _member(found, "", "clusters", dict)
            manifest = Manifest({name: _cluster_of(clusters, name) for name in clusters})
            _prove(found, clusters)
            return manifest
    except (ValueError, RecursionError) as error:
        raise Corrupt(
            f"{where} is damaged: {reason_of(error)}", hint="export the tables again into another directory", path=where
        ) from error
    if version < FORMAT:
        raise Unsupported(
            f"{where}: an earlier version exported these tables", hint="export them again, into another directory"
        )
    raise Unsupported(f"{where} has format {version}, this version reads {FORMAT}", hint="take a newer pulsar-admin")


def _prove(found: Mapping[str, Any], clusters: Mapping[str, Any]) -> None:  # Any: JSON
    """Raise ValueError when CLUSTERS are not what the checksum in FOUND is of."""
    expected, computed = _member(found, "", _CHECKSUM, str), _checksum_of(clusters)
    if expected != computed:
        raise ValueError(f"checksum of its clusters: expected {expected}, found {computed}")


def _checksum_of(clusters: Mapping[str, Any]) -> str:  # Any: JSON
    """Return the CRC-32C of CLUSTERS, whatever the spaces and the order of names in the file are."""
    return f"{google_crc32c.value(json.dumps(clusters, sort_keys=True, separators=(',', ':')).encode()):08x}"


def _cluster_of(clusters: Mapping[str, Any], name: str) -> ClusterTables:  # Any: JSON
    found, where = _member(clusters, "clusters", name, dict), f"clusters.{name}"
    times, tables = _member(found, where, "exportedMs", dict), _member(found, where, "tables", dict)
    return ClusterTables(
        _member(found, where, "identity", str),
        _member(found, where, "store", str),
        {table: _parts_of(tables, f"{where}.tables", table) for table in tables},
        {table: _member(times, f"{where}.exportedMs", table, int) for table in times},
        _profile_of(found.get("columns"), f"{where}.columns"),
        _texts_of(found, where, "incomplete"),
    )


def _texts_of(found: Mapping[str, Any], where: str, name: str) -> dict[str, str]:  # Any: JSON
    texts = _member({name: {}, **found}, where, name, dict)
    return {key: _member(texts, f"{where}.{name}", key, str) for key in texts}


def _profile_of(text: object, where: str) -> Profile | None:
    if text is None:
        return None
    for profile in PROFILES:
        if text == profile:
            return profile
    raise ValueError(f"{where}: expected one of {', '.join(PROFILES)}, found {json.dumps(text)[:40]}")


def _parts_of(tables: Mapping[str, Any], where: str, table: str) -> tuple[Part, ...]:  # Any: JSON
    rows = _member(tables, where, table, list)
    parts = tuple(
        _part_of(_typed(row, at, dict), at) for place, row in enumerate(rows) for at in [f"{where}.{table}[{place}]"]
    )
    if len({part.path for part in parts}) < len(parts):
        raise ValueError(f"{where}.{table}: a file is there twice")
    return parts


def _part_of(row: Mapping[str, Any], where: str) -> Part:  # Any: JSON
    path = _member(row, where, "path", str)
    if path.startswith("/") or ".." in path.split("/") or "://" in path:
        raise ValueError(f"{where}.path: expected a file of this directory, found {path!r}")
    ledgers = row.get("ledgers")
    if ledgers is not None:
        pair = [_typed(one, f"{where}.ledgers", int) for one in _typed(ledgers, f"{where}.ledgers", list)]
        if len(pair) != 2 or pair[0] > pair[1]:
            raise ValueError(f"{where}.ledgers: expected two ids, the least first, found {pair}")
        ledgers = pair[0], pair[1]
    rows, size_bytes = (_member(row, where, name, int) for name in ("rows", "bytes"))
    return Part(path, rows, size_bytes, _member(row, where, "sha256", str), ledgers)


def _member(found: Mapping[str, Any], where: str, name: str, kind: type[_Kind]) -> _Kind:  # Any: JSON
    """Return the member NAME, a KIND, of the object FOUND that stands at WHERE; raises ValueError."""
    place = f"{where}.{name}" if where else name
    if name not in found:
        raise ValueError(f"{place}: expected {_KINDS[kind]}, found nothing")
    return _typed(found[name], place, kind)


def _typed(value: Any, where: str, kind: type[_Kind]) -> _Kind:  # Any: JSON
    if type(value) is not kind:
        raise ValueError(f"{where}: expected {_KINDS[kind]}, found {json.dumps(value)[:40]}")
    return value


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the file's bytes, a line a file of a table."""
    clusters = {
        name: {
            "identity": one.identity,
            "store": one.store,
            "exportedMs": dict(one.exported_ms),
            **({"incomplete": dict(one.incomplete)} if one.incomplete else {}),
            **({} if one.columns is None else {"columns": one.columns}),
            "tables": {table: [_row_of(part) for part in parts] for table, parts in one.tables.items()},
        }
        for name, one in manifest.clusters.items()
    }
    whole = {"tables": FORMAT, _CHECKSUM: _checksum_of(clusters), "clusters": clusters}
    return json.dumps(whole, indent=1).encode() + b"\n"


def _row_of(part: Part) -> dict[str, Any]:  # Any: JSON
    row = asdict(part)
    return {"path": row["path"], "rows": row["rows"], "bytes": row["size_bytes"]} | {
        name: row[name] for name in ("sha256", "ledgers")
    }


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


def check_columns(folder: Folder, manifest: Manifest | None, cluster: str, columns: Profile | None) -> None:
    """Raise Refused when messages of a cluster other than CLUSTER have other names than COLUMNS: a query reads all side by side."""
    for name, there in {} if manifest is None else manifest.clusters.items():
        if name != cluster and "messages" in there.tables and there.columns != columns:
            have, would = (f"the columns of {one}" if one else "their own columns" for one in (there.columns, columns))
            option = f"--columns {there.columns}" if there.columns else "no --columns"
            raise Refused(
                f"{folder.place} has messages of {name} with {have}, those of {cluster} would have {would}",
                hint=f"export with {option}, or name another directory",
            )
