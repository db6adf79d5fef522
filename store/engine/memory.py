"""``--memory``: a bound on the memory of each scanning process, and the slice size that fits into it."""

import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from pulsar_admin.store.engine.slices import LEAST_SLICE_BYTES, SLICE_BYTES, Cut
from pulsar_admin.store.errors import LimitExceeded

BASE_BYTES = 192 << 20
"""What a scan process takes before it reads anything: Python, numpy, numba, Arrow."""
_SLICE_COPIES = 6  # a slice's bytes, its columns, its answer, packed and on its way, twice
_RESERVED_BYTES = 144 << 20
"""Beside it: stacks of threads, hardly used, and what compiling a kernel for the first time takes."""


def check_memory(memory_bytes: int) -> None:
    """Raise LimitExceeded when a process with this much memory could not scan the smallest slice."""
    least = BASE_BYTES + _SLICE_COPIES * LEAST_SLICE_BYTES
    if memory_bytes < least:
        given = f"{memory_bytes >> 20}M" if memory_bytes >> 20 else f"{memory_bytes} bytes"
        raise LimitExceeded(
            f"--memory {given} is too small: a process that scans needs {least >> 20}M",
            hint="give it more, such as --memory 512M, with fewer --jobs if the sum is too large",
            memory=memory_bytes,
        )


def slice_bytes(memory_bytes: int | None) -> int:
    """Return the slice size in bytes for a process with this much memory."""
    if memory_bytes is None:
        return SLICE_BYTES
    return min(SLICE_BYTES, max(LEAST_SLICE_BYTES, (memory_bytes - BASE_BYTES) // _SLICE_COPIES))


def cut_for(memory_bytes: int | None) -> Cut:
    """Return how to cut files for processes with this much memory each."""
    return Cut(slice_bytes(memory_bytes))


def give_back() -> None:
    """Return freed memory to the system, before something large is read or written.

    Otherwise the C library and this thread's part of Arrow's pool keep tens of MiB for further arrays.
    """
    import ctypes

    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's own
    if trim is not None:
        trim(0)


@cache
def keep_loaded() -> None:
    """Freeze the objects loaded so far, once a process: otherwise the garbage collection that Spark runs after every task takes 40 ms."""
    gc.collect()
    gc.freeze()


def bound_process(memory_bytes: int) -> None:
    """Limit this process to this many bytes: allocating more raises MemoryError. Mapped files do not count."""
    from numba.core.registry import cpu_target

    cpu_target.target_context.refresh()  # numba that finds no memory half way fails with a SystemError, or aborts
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    resident, data = (int(status[name].split()[0]) << 10 for name in ("VmRSS", "VmData"))
    limit = data + max(memory_bytes - resident, 0) + _RESERVED_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))

    cpu_target.target_context.refresh()


_BOUNDS: list[int] = []


def own_memory_bytes() -> int | None:
    """Return the limit in bytes that ``bounded`` set for this process; None: no limit."""
    return _BOUNDS[-1] if _BOUNDS else None


@contextmanager
def bounded(memory_bytes: int) -> Iterator[None]:
    """Bound this process while the block runs."""
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    bound_process(memory_bytes)
    _BOUNDS.append(memory_bytes)
    try:
        yield
    finally:
        _BOUNDS.pop()
        resource.setrlimit(resource.RLIMIT_DATA, limits)
