"""Objects of tiered storage: below a directory, or a prefix of an object store (any URL that pyarrow's file systems open)."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from pulsar_admin.store.codec.offload import INDEX_SUFFIX, parse_object_name
from pulsar_admin.store.codec.sequencefile import parse_map_file_name
from pulsar_admin.store.errors import EntryLogCorrupt, SourceNotFound, reason_of
from pulsar_admin.store.urls import file_system_of, translated

_MAP_DATA = "data"


class OffloadedLedger(NamedTuple):
    """The objects of an offloaded ledger: paths of its data and of its index ("" for a MapFile, which is both)."""

    uuid: str
    ledger_id: int
    data_path: str
    index_path: str


class Objects(Protocol):
    """Objects of tiered storage; paths are those that ``paths`` yields."""

    def paths(self) -> Iterator[str]:
        """Yield the paths of all objects."""

    def size(self, path: str) -> int:
        """Return how many bytes the object has."""

    def read(self, path: str, offset: int, size_bytes: int) -> bytes:
        """Return the bytes from ``offset`` on, fewer at the end."""


class Directory:
    """The objects in a local directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def paths(self) -> Iterator[str]:
        for folder, _, names in os.walk(self._root):
            yield from (os.path.join(folder, name) for name in names)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def read(self, path: str, offset: int, size_bytes: int) -> bytes:
        with _translated(path), open(path, "rb") as file:
            file.seek(offset)
            return file.read(size_bytes)


class Bucket:
    """The objects of an object store, by URL."""

    def __init__(self, url: str) -> None:
        with translated(url):
            self._system, self._root = file_system_of(url)
        self._url = url

    def paths(self) -> Iterator[str]:
        from pyarrow import fs

        with translated(self._url):
            infos = self._system.get_file_info(fs.FileSelector(self._root, recursive=True))
        yield from (info.path for info in infos if info.type == fs.FileType.File)

    def size(self, path: str) -> int:
        with translated(self._url):
            return int(self._system.get_file_info(path).size or 0)

    def read(self, path: str, offset: int, size_bytes: int) -> bytes:
        with translated(self._url), self._system.open_input_file(path) as file:
            return bytes(file.read_at(size_bytes, offset))


def open_objects(place: str) -> Objects:
    """Return the objects in a directory or at a URL; raises SourceNotFound."""
    if "://" in place:
        return Bucket(place)
    if not Path(place).is_dir():
        raise SourceNotFound(
            f"{place} is not a directory", hint="name the directory of the objects, or s3://BUCKET/PREFIX"
        )
    return Directory(Path(place))


def find_offloaded(objects: Objects) -> dict[tuple[int, str], OffloadedLedger]:
    """Return (ledger id, UUID) → the object that holds the ledger, for every object with an offloader's name."""
    paths = set(objects.paths())
    offloaded = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        of_object, of_map = parse_object_name(name), parse_map_file_name(folder.rpartition("/")[2])
        if of_object is not None and path + INDEX_SUFFIX in paths:
            offloaded[of_object.ledger_id, of_object.uuid] = OffloadedLedger(*of_object, path, path + INDEX_SUFFIX)
        elif name == _MAP_DATA and of_map is not None:
            offloaded[of_map.ledger_id, of_map.uuid] = OffloadedLedger(*of_map, path, "")
    return offloaded


@contextmanager
def _translated(where: str) -> Iterator[None]:
    """Turn errors from reading a file into SourceNotFound and EntryLogCorrupt."""
    try:
        yield
    except FileNotFoundError as error:
        raise SourceNotFound(f"{where} does not exist", hint="check the directory") from error
    except OSError as error:
        raise EntryLogCorrupt(f"{where} cannot be read: {reason_of(error)}", where=where) from error
