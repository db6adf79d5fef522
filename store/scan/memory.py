"""``--memory``: how much a process that scans may use, and how large its slices are then."""

from __future__ import annotations

import resource
from pathlib import Path

from store.errors import LimitExceeded
from store.scan.slices import LEAST_SLICE_BYTES, SLICE_BYTES, Cut

BASE_BYTES = 192 << 20
"""What a scan process takes before it reads anything: Python, numpy, numba, Arrow."""
_SLICE_COPIES = 6  # a slice's bytes, its columns, its answer, packed and on its way, twice
_STACKS_BYTES = 64 << 20  # of threads: reserved, hardly used


def slice_bytes(memory_bytes: int | None) -> int:
    """Return how large the slices of a process with MEMORY_BYTES are; raises LimitExceeded when it could not even start."""
    if memory_bytes is None:
        return SLICE_BYTES
    room = memory_bytes - BASE_BYTES
    if room < _SLICE_COPIES * LEAST_SLICE_BYTES:
        least = (BASE_BYTES + _SLICE_COPIES * LEAST_SLICE_BYTES) >> 20
        raise LimitExceeded(
            f"--memory {memory_bytes >> 20}M is too small: a process that scans needs {least}M",
            hint=f"give it more: --memory 512M, or {least}M with fewer --jobs",
            memory=memory_bytes,
        )
    return min(SLICE_BYTES, room // _SLICE_COPIES)


def cut_for(memory_bytes: int | None) -> Cut:
    """Return how to cut files for processes with MEMORY_BYTES each."""
    return Cut(slice_bytes(memory_bytes))


def bound_process(memory_bytes: int) -> None:
    """Let this process grow to MEMORY_BYTES: what it asks for beyond is a MemoryError. Files that it maps do not count."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    resident, data = (int(status[name].split()[0]) << 10 for name in ("VmRSS", "VmData"))
    limit = data + max(memory_bytes - resident, 0) + _STACKS_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
