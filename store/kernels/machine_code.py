"""Compiles functions with numba, and caches their machine code for other processes in this toolkit's own folder.

By default numba caches beside the source, where ``pip uninstall`` leaves the files, or in the user's cache directory,
with a folder for each path at which an archive of this package is unpacked. It also considers the code current as long
as the function's own file is unchanged, although functions of other files are compiled into it. So the folder here is
named by a digest of everything that the machine code depends on: no two versions write the same file.

If several processes need a function at once, as Spark's do on a new machine, one compiles it; the others wait and load
it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import pickle
import stat
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from types import FunctionType
from typing import Any

from numba import __version__, njit
from numba.core.compiler_lock import global_compiler_lock

_FOLDER = "pulsar-admin-toolkit"
_WAIT_S = 120  # of a process that stands still no other waits longer: it compiles for itself
_LOOK_S = 0.05
_DIGEST_BYTES = sha256().digest_size
_FIRST_USE = "first use: compiling for this machine, once; this takes half a minute"

caching: Any = import_module("numba.core.caching")  # Any: which types these two have depends on the version
config: Any = import_module("numba.core.config")


def machine_code(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator: functions are loaded from the cache or compiled at the first call; ``options`` are
    numba's."""

    def decorate(function: Callable[..., Any]) -> Any:  # Any: numba's dispatcher
        compiled = njit(boundscheck=False, **options)(function)
        with suppress(RuntimeError):  # nothing can be written: each process compiles for itself
            compiled._cache = _Cache(function)
            compiled.compile = _in_turn(compiled.compile)
        return compiled

    return decorate


@cache
def _folder() -> Path | None:
    """Return this toolkit's folder: in NUMBA_CACHE_DIR, else in the user's cache directory, else a folder for the user
    in the directory of temporary files; None if none of them is writable."""
    if config.CACHE_DIR:
        return Path(config.CACHE_DIR, _FOLDER)
    usual = Path(caching.AppDirs(_FOLDER, False).user_cache_dir)  # a relative one where there is no home
    with suppress(OSError):
        if usual.is_absolute():
            os.makedirs(usual, exist_ok=True)
            tempfile.TemporaryFile(dir=usual).close()
            return usual
    with suppress(OSError):
        other = Path(tempfile.gettempdir(), f"{_FOLDER}-{os.getuid()}")
        other.mkdir(0o700, exist_ok=True)
        status = other.lstat()
        # Whoever could write there would have us run his code.
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022:
            return other
    return None


@cache
def _digest(package: str) -> str:
    """Return a digest of numba's version and the sources of the kernels and of ``package``, which calls them."""
    found = sha256(__version__.encode())
    for name in sorted({package, __package__}):
        for file in sorted(files(name).iterdir(), key=lambda file: file.name):
            if file.name.endswith(".py"):
                found.update(b"%s\0%s\0" % (file.name.encode(), file.read_bytes()))
    return found.hexdigest()[:16]


class _Locator(caching._CacheLocator):
    """Tells numba where to cache the machine code of a function."""

    def __init__(self, function: FunctionType) -> None:
        self._line = function.__code__.co_firstlineno
        self._digest = _digest(function.__module__.rpartition(".")[0])

    @classmethod
    def from_function(cls, function: FunctionType, file: str) -> _Locator | None:
        """Return the locator for ``function``; None if the folder is not writable."""
        if _folder() is None:
            return None
        found = cls(function)
        try:
            found.ensure_cache_path()
        except OSError:
            return None
        return found

    def get_cache_path(self) -> str:
        """Return the folder."""
        return os.path.join(_folder() or "", self._digest)

    def get_source_stamp(self) -> str:
        """Return the digest of which a change makes cached machine code invalid."""
        return self._digest

    def get_disambiguator(self) -> str:
        """Return the function's line, which distinguishes functions of the same name."""
        return str(self._line)


class _Kept(caching.CompileResultCacheImpl):
    _locator_classes = (_Locator,)


class _Files(caching.IndexDataCacheFile):
    """Cache files with a digest at the end, which unpickling ignores; an incomplete file counts as missing."""

    def _dump(self, kept: Any) -> bytes:  # Any: numba's
        raw: bytes = super()._dump(kept)
        return raw + sha256(raw).digest()

    def _load_index(self) -> Any:  # Any: numba's
        return super()._load_index() if _is_whole(self._index_path, pickle.dumps(self._version, protocol=-1)) else {}

    def _load_data(self, name: str) -> Any:  # Any: numba's; None: compiled again
        return super()._load_data(name) if _is_whole(self._data_path(name)) else None


def _is_whole(path: str, start: bytes = b"") -> bool:
    """Whether the file ``path`` begins with ``start`` and its digest fits the rest; False if it is unreadable."""
    try:
        raw = Path(path).read_bytes()
    except OSError:
        return False
    kept = raw.removeprefix(start)
    return raw.startswith(start) and kept.endswith(sha256(kept[:-_DIGEST_BYTES]).digest())


class _Turn:
    """The right to compile into a cache folder, which one process of a machine has at a time, until the function for
    which it was taken, and the functions that it calls, are compiled."""

    def __init__(self) -> None:
        self.depth = 0
        self._descriptor = -1

    def take(self, folder: str) -> bool:
        """Wait for the right; return whether another process may have compiled something meanwhile."""
        if self._descriptor >= 0 or not self.depth:
            return False
        end = time.monotonic() + _WAIT_S
        try:
            self._descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            while time.monotonic() < end:
                with suppress(BlockingIOError):
                    fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(_LOOK_S)
        except OSError:  # a file system without locks
            return False
        return True

    def leave(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


_TURN = _Turn()


def _in_turn(compile_for: Callable[[Any], Any]) -> Callable[[Any], Any]:  # Any: numba's
    """Wrap a dispatcher's ``compile`` so that the turn is released when it ends or fails."""

    def compile_in_turn(signature: Any) -> Any:  # Any: numba's
        with global_compiler_lock:
            _TURN.depth += 1
            try:
                return compile_for(signature)
            finally:
                _TURN.depth -= 1
                if not _TURN.depth:
                    _TURN.leave()

    return compile_in_turn


@cache
def _say_first_use(folder: str) -> None:
    """On a terminal, if ``folder`` has no machine code yet, log once that compiling takes a while."""
    if os.isatty(2) and not any(Path(folder).glob("*.nbi")):
        logging.getLogger(__name__).warning(_FIRST_USE)


class _Cache(caching.FunctionCache):
    _impl_class = _Kept

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp())

    def load_overload(self, signature: Any, context: Any) -> Any:  # Any: numba's
        """Return the cached code for ``signature``; None: the caller compiles it, and other processes wait."""
        found = super().load_overload(signature, context)
        if found is None and _TURN.take(self._cache_path):
            found = super().load_overload(signature, context)
        if found is None:
            _say_first_use(self._cache_path)
        return found

    def save_overload(self, signature: Any, compiled: Any) -> None:  # Any: numba's
        """Keep what was ``compiled`` for ``signature``; on a full disk the next process compiles it again."""
        with suppress(OSError):
            super().save_overload(signature, compiled)
