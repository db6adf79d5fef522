"""Reads large files below a rate limit, and leaves the page cache as it was.

Other processes on the machine, such as a bookie, keep their share of the disk and their cached pages.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

_STEPS_A_SECOND = 10
_LEAST_STEP_BYTES = 4096
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Pace:
    """A limit on the bytes read per second; there is none until ``limit`` is called."""

    def __init__(self) -> None:
        self.unlimit()

    def limit(self, bytes_a_second: int) -> None:
        """Limit all further reading to this rate, on average and within each second."""
        self._rate = bytes_a_second
        self._next = time.monotonic()
        self.step_bytes = max(bytes_a_second // _STEPS_A_SECOND, _LEAST_STEP_BYTES)

    def unlimit(self) -> None:
        """Remove the limit."""
        self._rate = 0
        self._next = 0.0
        self.step_bytes = 1 << 62
        """How many bytes to read at a time."""

    @contextmanager
    def limited(self, bytes_a_second: int | None) -> Iterator[None]:
        """Limit reading within the block to this rate; None leaves the rate unchanged."""
        before = self._rate
        if bytes_a_second is not None:
            self.limit(bytes_a_second)
        try:
            yield
        finally:
            if before:
                self.limit(before)
            else:
                self.unlimit()

    @property
    def is_limited(self) -> bool:
        return self._rate > 0

    def take(self, count: int) -> None:
        """Wait until ``count`` bytes that were read are within the limit; time without reading is not credited."""
        if self._rate:
            now = time.monotonic()
            self._next = max(self._next, now) + count / self._rate
            time.sleep(self._next - now)


PACE = Pace()
"""The rate limit of this process."""


class ColdPages:
    """The pages of an open file that were not in the page cache when it was opened; ``drop`` evicts them.

    Pages that were cached may be in use by other processes and stay. So do all pages if the system does not tell which
    are cached, as for a file that the user neither owns nor may write (``mincore`` since Linux 5.2). With ``ours``, for
    a copy just written, all pages are evicted.
    """

    def __init__(self, descriptor: int, start: int, end: int, *, ours: bool = False) -> None:
        self._descriptor = descriptor
        self._start = start // _PAGE_BYTES * _PAGE_BYTES
        size_bytes = max(min(end, os.fstat(descriptor).st_size) - self._start, 0)
        pages = -(-size_bytes // _PAGE_BYTES)
        self._hot = (
            bytes(pages)
            if ours and hasattr(os, "posix_fadvise")
            else _resident(descriptor, self._start, size_bytes, pages)
        )

    def drop(self, start: int, end: int) -> None:
        """Evict the whole pages between ``start`` and ``end`` that were not cached before."""
        page = max(-(-(start - self._start) // _PAGE_BYTES), 0)
        last = max(min((end - self._start) // _PAGE_BYTES, len(self._hot)), 0)  # below 0 it would count from the end
        while (page := self._hot.find(0, page, last)) >= 0:
            stop = self._hot.find(1, page, last)
            stop = last if stop < 0 else stop
            offset, length = self._start + page * _PAGE_BYTES, (stop - page) * _PAGE_BYTES
            os.posix_fadvise(self._descriptor, offset, length, os.POSIX_FADV_DONTNEED)
            page = stop

    def drop_all(self) -> None:
        """Evict all pages that were not cached before."""
        self.drop(self._start, self._start + len(self._hot) * _PAGE_BYTES)


def _resident(descriptor: int, start: int, size_bytes: int, pages: int) -> bytes:
    """Return a byte per page: 1 if it is in the page cache or the system does not tell, else 0; loads no page."""
    if not hasattr(os, "posix_fadvise"):
        return b"\1" * pages
    if not pages:
        return b""
    import ctypes
    import mmap

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    address = libc.mmap(None, size_bytes, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, start)
    if address == ctypes.c_void_p(-1).value:
        return b"\1" * pages
    try:
        states = ctypes.create_string_buffer(pages)
        if libc.mincore(address, size_bytes, states) != 0:
            return b"\1" * pages
        return states.raw.translate(_LOWEST_BIT)
    finally:
        libc.munmap(address, size_bytes)


_LOWEST_BIT = b"\0\1" * 128
