"""Where tables lie: a directory, or a prefix of a store of objects. Plain data, so that executors write there themselves.

What is written has no name that readers look at before ``store.tables.manifest`` names it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from pulsar_admin.store.errors import DiskFull, InvalidValue, NotWritable, StoreBusy, StoreError
from pulsar_admin.store.files import (
    create_directory,
    create_file,
    mode_below,
    open_lock_file,
    open_regular,
    remove_file,
    remove_tree,
    rename,
    replace_file,
    writing,
)
from pulsar_admin.store.scan.sources import file_system_of, is_url, plain_path, translated

_DIRECTORY_MODE = 0o700
NO_SPACE = ("No space left", "XMinioStorageFull", "InsufficientStorage", "status 507")
"""Words of errors of a place that is full."""


class Folder(Struct, frozen=True):
    """A directory (absolute) or a URL of one; its query, such as ``?endpoint_override=…``, goes along."""

    place: str

    @staticmethod
    def of(text: str) -> Folder:
        """Return the folder that TEXT names; raises InvalidValue for none."""
        if not text:
            raise InvalidValue(
                "the directory of the tables is empty: it has no name", hint="name it, or . for this one"
            )
        text = plain_path(text)
        return Folder(text if is_url(text) else str(Path(text).absolute()))

    @property
    def is_remote(self) -> bool:
        """Whether it is a store of objects."""
        return is_url(self.place)

    def at(self, relative: str) -> str:
        """Return the path or URL of what is RELATIVE to it."""
        base, mark, query = self.place.partition("?") if self.is_remote else (self.place, "", "")
        return f"{base.rstrip('/')}/{relative}".rstrip("/") + mark + query

    def make(self, relative: str = "") -> None:
        """Make the directory, and those above it below this one."""
        if self.is_remote:
            return
        path = Path(self.place)
        for part in (path, *(path.joinpath(*relative.split("/")[: end + 1]) for end in range(relative.count("/") + 1))):
            if not path.parent.is_dir() or not part.is_dir():
                create_directory(part, exist_ok=True, mode=_mode_below(part.parent))

    @contextmanager
    def create(self, relative: str) -> Iterator[Any]:  # Any: a stream of pyarrow
        """Give what a new file at RELATIVE is written to; durable when the block ends, gone when it raises.

        Raises DiskFull, NotWritable, NotFound.
        """
        where = self.at(relative)
        with _new_object(where) if self.is_remote else _new_file(Path(where)) as stream:
            yield stream

    def read(self, relative: str) -> bytes | None:
        """Return the bytes of the file at RELATIVE, None where there is none."""
        if not self.is_remote:
            try:
                with open(open_regular(self.at(relative)), "rb") as file:
                    return file.read()
            except (FileNotFoundError, NotADirectoryError):
                return None
            except OSError as error:
                raise NotWritable(f"cannot read {self.at(relative)}: {error.strerror}") from error
        with translated(self.at(relative)):
            system, path = file_system_of(self.at(relative))
            if not system.get_file_info(path).is_file:
                return None
            with system.open_input_stream(path) as stream:
                return bytes(stream.read())

    def replace(self, relative: str, data: bytes) -> None:
        """Put DATA in the place of the file at RELATIVE, at once."""
        if not self.is_remote:
            replace_file(Path(self.at(relative)), data)
            return
        with _written(self.at(relative)):
            system, path = file_system_of(self.at(relative))
            with system.open_output_stream(path) as stream:
                stream.write(data)

    def open_input(self, relative: str) -> Any:  # Any: a file of pyarrow
        """Open the file at RELATIVE for reading anywhere in it; raises SourceNotFound, EntryLogCorrupt."""
        import pyarrow as pa

        where = self.at(relative)
        with translated(where):
            if not self.is_remote:
                os.close(open_regular(where))  # pyarrow would wait for the other end of a FIFO
                return pa.OSFile(where, "rb")
            system, path = self.system_of(relative)
            return system.open_input_file(path)

    def system_of(self, relative: str) -> tuple[Any, str]:  # Any: a file system of pyarrow
        """Return the file system of the file at RELATIVE, and its path there."""
        from pyarrow import fs

        where = self.at(relative)
        return file_system_of(where) if self.is_remote else (fs.LocalFileSystem(), where)

    def size(self, relative: str) -> int | None:
        """Return the bytes of the file at RELATIVE, None where this process sees none."""
        if not self.is_remote:
            try:
                return os.stat(self.at(relative)).st_size
            except OSError:
                return None
        with translated(self.at(relative)):
            system, path = file_system_of(self.at(relative))
            info = system.get_file_info(path)
            return info.size if info.is_file else None

    def move(self, source: str, target: str) -> None:
        """Give the file at SOURCE the name TARGET."""
        if not self.is_remote:
            self.make(target.rpartition("/")[0])
            rename(Path(self.at(source)), Path(self.at(target)))
            return
        with _written(self.at(target)):
            system, path = file_system_of(self.at(source))
            system.move(path, file_system_of(self.at(target))[1])

    def remove(self, relative: str) -> None:
        """Remove the file or the directory at RELATIVE, where there is one."""
        if not self.is_remote:
            there = Path(self.at(relative))
            if there.is_dir() and not there.is_symlink():
                remove_tree(there)
            elif os.path.lexists(there):
                remove_file(there)
            return
        from pyarrow import fs

        with translated(self.at(relative)):
            system, path = file_system_of(self.at(relative))
            info = system.get_file_info(path)
            if info.is_file:
                system.delete_file(path)
            elif info.type != fs.FileType.NotFound:
                system.delete_dir(path)  # also the empty objects that stand for directories

    def names(self, relative: str = "") -> list[str]:
        """Return the names directly below RELATIVE, none where nothing is."""
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
        """Hold the lock NAME, of a directory of this machine; a store of objects has none. Raises StoreBusy, unless it is to WAIT."""
        if self.is_remote:
            yield
            return
        path = Path(self.place) / name
        descriptor = open_lock_file(path)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError as error:
                raise StoreBusy(
                    f"another process is writing tables into {self.place}",
                    hint="wait for it, or name another directory",
                ) from error
            yield
        finally:
            os.close(descriptor)


@contextmanager
def _new_file(path: Path) -> Iterator[Any]:  # Any: a stream of pyarrow
    import pyarrow as pa

    with writing(path):
        mode = mode_below(path.parent)
    # Arrow writes to the file itself: through Python's every page would be copied.
    with create_file(path, mode=mode), pa.OSFile(str(path), "wb") as stream:
        yield stream


@contextmanager
def _new_object(where: str) -> Iterator[Any]:  # Any: a stream of pyarrow
    with _written(where):
        system, path = file_system_of(where)
        with system.open_output_stream(path) as stream:
            yield stream


def _mode_below(parent: Path) -> int:
    """Return the mode of a new directory: whom PARENT lets in may read it."""
    return _DIRECTORY_MODE | (parent.stat().st_mode & 0o077) if parent.is_dir() else _DIRECTORY_MODE


@contextmanager
def _written(where: str) -> Iterator[None]:
    """Say what is wrong with WHERE while it is written."""
    from pyarrow import ArrowException

    try:
        yield
    except StoreError:
        raise
    except (OSError, ValueError, ArrowException) as error:
        said = " ".join(str(error).split())[:300]
        if any(word in said for word in NO_SPACE):
            raise DiskFull(f"no space left writing {where}: {said}", hint="free some space and run it again") from error
        raise NotWritable(f"cannot write {where}: {said}", hint="check address, bucket and credentials") from error
