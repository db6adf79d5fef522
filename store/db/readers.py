"""LMDB's table of readers, ``meta/lock.mdb``: emptied of readers that were killed where no slot is left.

A reader that is killed leaves its slot behind. LMDB takes it for dead once somebody asks (``mdb_reader_check``), but py-lmdb asks only
for an environment that is open, and to open one it takes a slot itself. So a full table is emptied by LMDB's own function, called
directly: it holds the table's lock, and lets alone who is alive.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_NAMES = ("mdb09_", "mdb_")
"""What begins the names of LMDB 0.9's functions: py-lmdb from 3.0 on has those of LMDB 1.0 in the same library."""
_READ_ONLY, _NO_TLS = 0x20000, 0x200000  # MDB_RDONLY, MDB_NOTLS
_MODE = 0o600


def clear_dead_readers(directory: Path, library: str) -> None:
    """Free the slots of killed readers in an environment that this process has not open; ``library``: py-lmdb's own.

    Does nothing if the library does not export these functions.
    """
    functions = ctypes.CDLL(library)
    prefix = next((name for name in _NAMES if hasattr(functions, f"{name}reader_check")), None)
    if prefix is None:
        return
    create, open_, check, close = (
        getattr(functions, f"{prefix}{name}") for name in ("env_create", "env_open", "reader_check", "env_close")
    )
    close.restype = None
    environment, dead = ctypes.c_void_p(), ctypes.c_int()
    if create(ctypes.byref(environment)):
        return
    try:
        if not open_(environment, os.fsencode(directory), ctypes.c_uint(_READ_ONLY | _NO_TLS), ctypes.c_uint(_MODE)):
            check(environment, ctypes.byref(dead))
    finally:
        close(environment)
