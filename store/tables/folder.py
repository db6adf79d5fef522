"""The folder of exported tables, a directory or a prefix of an object store, and its list ``tables.json``. Picklable,
so that executors can write there themselves.

The list has the files of the last complete export of each cluster. Readers that follow it see one export or the next,
never a mixture: files get names that readers would find only when the list names them. Fields: docs/formats/tables.md.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import google_crc32c
from msgspec import Struct, field
from msgspec.structs import asdict

from pulsar_admin.store import errors, files
from pulsar_admin.store.names import PROFILES, Profile
from pulsar_admin.store.scan.sources import plain_path
from pulsar_admin.store.urls import file_system_of, info_of, is_url, translated

_DIRECTORY_MODE = 0o700
NO_SPACE = ("No space left", "XMinioStorageFull", "InsufficientStorage", "status 507")
"""Words of errors of a place that is full."""


class Folder(Struct, frozen=True):
    """A directory (absolute) or the URL of one; its query, such as ``?endpoint_override=…``, is kept."""

    place: str

    @staticmethod
    def of(text: str) -> Folder:
        """Return the folder that a text names; raises InvalidValue."""
        if not text:
            raise errors.InvalidValue(
                "the directory of the tables is empty: it has no name", hint="name it, or . for this one"
            )
        text = plain_path(text)
        return Folder(text if is_url(text) else str(Path(text).absolute()))

    @property
    def is_remote(self) -> bool:
        """Whether the folder is in an object store."""
        return is_url(self.place)

    def at(self, relative: str) -> str:
        """Return the path or URL of a relative path."""
        base, mark, query = self.place.partition("?") if self.is_remote else (self.place, "", "")
        return f"{base.rstrip('/')}/{relative}".rstrip("/") + mark + query

    def make(self, relative: str = "") -> None:
        """Make the directory, and those above it below this one."""
        if self.is_remote:
            return
        path = Path(self.place)
        for part in (path, *(path.joinpath(*relative.split("/")[: end + 1]) for end in range(relative.count("/") + 1))):
            if not path.parent.is_dir() or not part.is_dir():
                files.create_directory(part, exist_ok=True, mode=_mode_below(part.parent))

    @contextmanager
    def create(self, relative: str) -> Iterator[Any]:  # Any: a stream of pyarrow
        """Open a new file for writing; it is durable when the block ends, and removed when the block raises.

        Raises DiskFull, NotWritable, NotFound.
        """
        where = self.at(relative)
        with _new_object(where) if self.is_remote else _new_file(Path(where)) as stream:
            yield stream

    def read(self, relative: str) -> bytes | None:
        """Return the bytes of a file, None if it does not exist."""
        if not self.is_remote:
            try:
                with open(files.open_regular(self.at(relative)), "rb") as file:
                    return file.read()
            except (FileNotFoundError, NotADirectoryError):
                return None
            except OSError as error:
                raise errors.NotWritable(f"cannot read {self.at(relative)}: {error.strerror}") from error
        with translated(self.at(relative)):
            system, path = file_system_of(self.at(relative))
            if not info_of(system, path).is_file:
                return None
            with system.open_input_stream(path) as stream:
                return bytes(stream.read())

    def replace(self, relative: str, data: bytes) -> None:
        """Replace a file's content, atomically."""
        if not self.is_remote:
            files.replace_file(Path(self.at(relative)), data)
            return
        with _new_object(self.at(relative)) as stream:
            stream.write(data)

    def open_input(self, relative: str) -> Any:  # Any: a file of pyarrow
        """Open a file for reading at any offset; raises SourceNotFound, EntryLogCorrupt."""
        import pyarrow as pa

        where = self.at(relative)
        with translated(where):
            if not self.is_remote:
                os.close(files.open_regular(where))  # pyarrow would wait for the other end of a FIFO
                return pa.OSFile(where, "rb")
            system, path = self.system_of(relative)
            return system.open_input_file(path)

    def system_of(self, relative: str) -> tuple[Any, str]:  # Any: a file system of pyarrow
        """Return the file system of a file, and its path there."""
        from pyarrow import fs

        where = self.at(relative)
        return file_system_of(where) if self.is_remote else (fs.LocalFileSystem(), where)

    def size(self, relative: str) -> int | None:
        """Return the size of a file in bytes, None if it does not exist for this process."""
        if not self.is_remote:
            try:
                return os.stat(self.at(relative)).st_size
            except OSError:
                return None
        with translated(self.at(relative)):
            system, path = file_system_of(self.at(relative))
            info = info_of(system, path)
            return info.size if info.is_file else None

    def move(self, source: str, target: str) -> None:
        """Rename the file ``source`` to ``target``."""
        if not self.is_remote:
            self.make(target.rpartition("/")[0])
            files.rename(Path(self.at(source)), Path(self.at(target)))
            return
        with _written(self.at(target)):
            system, path = file_system_of(self.at(source))
            system.move(path, file_system_of(self.at(target))[1])

    def remove(self, relative: str) -> None:
        """Remove a file or directory, if it exists."""
        if not self.is_remote:
            there = Path(self.at(relative))
            if there.is_dir() and not there.is_symlink():
                files.remove_tree(there)
            elif os.path.lexists(there):
                files.remove_file(there)
            return
        from pyarrow import fs

        with translated(self.at(relative)):
            system, path = file_system_of(self.at(relative))
            info = info_of(system, path)
            if info.is_file:
                system.delete_file(path)
            elif info.type != fs.FileType.NotFound:
                system.delete_dir(path)  # also the empty objects that stand for directories

    def names(self, relative: str = "") -> list[str]:
        """Return the names directly below a directory, empty if it does not exist."""
        if not self.is_remote:
            try:
                return sorted(os.listdir(self.at(relative)))
            except (FileNotFoundError, NotADirectoryError):
                return []
        from pyarrow import fs

        with translated(self.at(relative)):
            system, path = file_system_of(self.at(relative))
            infos = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
            return sorted(info.base_name for info in infos)

    @contextmanager
    def locked(self, name: str, *, wait: bool = False) -> Iterator[None]:
        """Hold a named lock; does nothing for an object store. Raises StoreBusy unless ``wait``."""
        if self.is_remote:
            yield
            return
        path = Path(self.place) / name
        descriptor = files.open_lock_file(path)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError as error:
                raise errors.StoreBusy(
                    f"another process is writing tables into {self.place}",
                    hint="wait for it, or name another directory",
                ) from error
            yield
        finally:
            os.close(descriptor)


@contextmanager
def _new_file(path: Path) -> Iterator[Any]:  # Any: a stream of pyarrow
    import pyarrow as pa

    with files.writing(path):
        mode = files.mode_below(path.parent)
    # Arrow writes to the file itself: through Python's every page would be copied.
    with files.create_file(path, mode=mode), pa.OSFile(str(path), "wb") as stream:
        yield stream


@contextmanager
def _new_object(where: str) -> Iterator[Any]:  # Any: a stream of pyarrow
    with _written(where):
        system, path = file_system_of(where)
        with system.open_output_stream(path) as stream:
            yield stream


def _mode_below(parent: Path) -> int:
    """Return the mode for a new directory, readable by those who may enter its parent."""
    return _DIRECTORY_MODE | (parent.stat().st_mode & 0o077) if parent.is_dir() else _DIRECTORY_MODE


@contextmanager
def _written(where: str) -> Iterator[None]:
    """Turn errors of writing ``where`` into ours."""
    from pyarrow import ArrowException

    try:
        yield
    except errors.StoreError:
        raise
    except (OSError, ValueError, ArrowException) as error:
        said = errors.brief(error)
        if any(word in said for word in NO_SPACE):
            raise errors.DiskFull(
                f"no space left writing {where}: {said}", hint="free some space and run it again"
            ) from error
        raise errors.NotWritable(
            f"cannot write {where}: {said}", hint="check address, bucket and credentials"
        ) from error


NAME = "tables.json"
FORMAT = 2
"""1: files were proven by a checksum in their names, and the list had none of them."""
_CHECKSUM = "crc32c"
_KINDS: Mapping[type, str] = {dict: "an object", list: "a list", str: "a text", int: "a whole number"}
_Kind = TypeVar("_Kind", dict[str, Any], list[Any], str, int)  # Any: JSON


class TableFile(Struct, frozen=True):
    """A file of a table: its path in the folder, rows, bytes, SHA-256 (hex), and the least and greatest ledger id,
    None: no ledger column."""

    path: str
    rows: int
    size_bytes: int
    sha256: str
    ledgers: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """The file's name in its table's directory."""
        return self.path.rpartition("/")[2]


class ClusterTables(Struct, frozen=True):
    """The tables of one cluster. ``identity``: tells it from another cluster of the same name (see ``store.tables.rows``)."""

    identity: str
    store: str
    tables: Mapping[str, tuple[TableFile, ...]] = field(default_factory=dict)
    exported_ms: Mapping[str, int] = field(default_factory=dict)  # by table
    columns: Profile | None = None  # whose names ``messages`` has; None: our own
    incomplete: Mapping[str, str] = field(
        default_factory=dict
    )  # table → what was not whole of the metadata it was made of

    def rows(self, table: str) -> int:
        """Return the number of rows of a table, 0 if it does not exist."""
        return sum(part.rows for part in self.tables.get(table, ()))


class Manifest(Struct, frozen=True):
    """The content of ``tables.json``: cluster → its tables."""

    clusters: Mapping[str, ClusterTables] = field(default_factory=dict)


def read_manifest(folder: Folder) -> Manifest | None:
    """Return the manifest of a folder, None if nothing was exported there; raises Corrupt, Unsupported (a later format)."""
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
            expected, computed = _member(found, "", _CHECKSUM, str), _checksum_of(clusters)
            if expected != computed:
                raise ValueError(f"checksum of its clusters: expected {expected}, found {computed}")
            return manifest
    except (ValueError, RecursionError) as error:
        raise errors.Corrupt(
            f"{where} is damaged: {errors.reason_of(error)}",
            hint="export the tables again into another directory",
            path=where,
        ) from error
    if version < FORMAT:
        raise errors.Unsupported(
            f"{where}: an earlier version exported these tables", hint="export them again, into another directory"
        )
    raise errors.Unsupported(
        f"{where} has format {version}, this version reads {FORMAT}", hint="take a newer pulsar-admin"
    )


def _checksum_of(clusters: Mapping[str, Any]) -> str:  # Any: JSON
    """Return the CRC-32C of the clusters, independent of spaces and the order of names in the file."""
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
        _incomplete_of(found, where),
    )


def _incomplete_of(found: Mapping[str, Any], where: str) -> dict[str, str]:  # Any: JSON
    texts = _member({"incomplete": {}, **found}, where, "incomplete", dict)
    return {key: _member(texts, f"{where}.incomplete", key, str) for key in texts}


def _profile_of(text: object, where: str) -> Profile | None:
    if text is None:
        return None
    for profile in PROFILES:
        if text == profile:
            return profile
    raise ValueError(f"{where}: expected one of {', '.join(PROFILES)}, found {json.dumps(text)[:40]}")


def _parts_of(tables: Mapping[str, Any], where: str, table: str) -> tuple[TableFile, ...]:  # Any: JSON
    rows = _member(tables, where, table, list)
    parts = tuple(
        _part_of(_typed(row, at, dict), at) for place, row in enumerate(rows) for at in [f"{where}.{table}[{place}]"]
    )
    if len({part.path for part in parts}) < len(parts):
        raise ValueError(f"{where}.{table}: a file is there twice")
    return parts


def _part_of(row: Mapping[str, Any], where: str) -> TableFile:  # Any: JSON
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
    return TableFile(path, rows, size_bytes, _member(row, where, "sha256", str), ledgers)


def _member(found: Mapping[str, Any], where: str, name: str, kind: type[_Kind]) -> _Kind:  # Any: JSON
    """Return the member ``name`` of a JSON object; raises ValueError naming ``where`` unless it has this kind."""
    place = f"{where}.{name}" if where else name
    if name not in found:
        raise ValueError(f"{place}: expected {_KINDS[kind]}, found nothing")
    return _typed(found[name], place, kind)


def _typed(value: Any, where: str, kind: type[_Kind]) -> _Kind:  # Any: JSON
    if type(value) is not kind:
        raise ValueError(f"{where}: expected {_KINDS[kind]}, found {json.dumps(value)[:40]}")
    return value


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the file's bytes, a line per file of a table."""
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


def _row_of(part: TableFile) -> dict[str, Any]:  # Any: JSON
    row = asdict(part)
    return {"path": row["path"], "rows": row["rows"], "bytes": row["size_bytes"]} | {
        name: row[name] for name in ("sha256", "ledgers")
    }


def check_identity(folder: Folder, manifest: Manifest | None, cluster: str, identity: str) -> None:
    """Raise Refused if the folder has tables of another cluster with the same name."""
    there = None if manifest is None else manifest.clusters.get(cluster)
    if there is not None and there.identity != identity:
        raise errors.Refused(
            f"{folder.place} has tables of another cluster {cluster!r}, exported from {there.store}: it is {there.identity},"
            f" this one is {identity}",
            hint="choose another --cluster name, or another directory",
            cluster=cluster,
            expected=there.identity,
            found=identity,
        )


def check_columns(folder: Folder, manifest: Manifest | None, cluster: str, columns: Profile | None) -> None:
    """Raise Refused if messages of other clusters have other column names: a query reads all clusters together."""
    for name, there in {} if manifest is None else manifest.clusters.items():
        if name != cluster and "messages" in there.tables and there.columns != columns:
            have, would = (f"the columns of {one}" if one else "their own columns" for one in (there.columns, columns))
            option = f"--columns {there.columns}" if there.columns else "no --columns"
            raise errors.Refused(
                f"{folder.place} has messages of {name} with {have}, those of {cluster} would have {would}",
                hint=f"export with {option}, or name another directory",
            )
