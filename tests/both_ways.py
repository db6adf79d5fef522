"""Every kernel that a test calls on little data runs both ways, compiled and in Python: same answers, same bytes written."""

import os
from collections import Counter
from typing import Any

import numpy as np

from pulsar_admin.store.kernels.compiled import Kernel
from pulsar_admin.store.kernels.producers import number_spans

_MOST_ROWS = 500
"""What a kernel runs both ways in the tests of a file, which mostly look at the same data; beyond these it is only compiled."""
_OF_KERNELS = ("tests/test_kernels.py", "tests/scan/", "tests/compaction/")
"""Where each test has as many rows of its own: these are about kernels."""
_rows: Counter[tuple[str, str]] = Counter()
"""Rows that ran both ways, by kernel and test or file of tests."""

Arguments = tuple[Any, ...]


def run_kernels_both_ways() -> None:
    """Have kernels called in this process fail an assertion where their two forms differ."""
    Kernel.__call__ = _both  # type: ignore[method-assign]


def _both(kernel: Kernel, *arguments: Any) -> Any:
    rows = kernel.rows_in(*arguments)
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    counted = kernel.__name__, test if test.startswith(_OF_KERNELS) else test.partition("::")[0]
    if rows + _rows[counted] > _MOST_ROWS:
        return kernel.compiled(*arguments)
    _rows[counted] += rows
    return run_both_ways(kernel, *arguments)


def run_both_ways(kernel: Kernel, *arguments: Any) -> Any:
    """Run KERNEL compiled, put ARGUMENTS back, and run it in Python; return its answer."""
    rows = kernel.rows_in(*arguments)
    arrays = [_part(array, rows) for array in _arrays(arguments) if array is not _scratch(kernel, arguments)]
    before = [array.copy() for array in arrays]
    wanted = kernel.compiled(*arguments)
    after = [array.tobytes() for array in arrays]
    for array, old in zip(arrays, before, strict=True):
        if array.flags.writeable:
            array[...] = old
    found = kernel.run_plain(*arguments)
    assert found == wanted, f"{kernel.__name__}: {found} in Python, {wanted} compiled"
    for number, (array, written) in enumerate(zip(arrays, after, strict=True)):
        assert array.tobytes() == written, f"{kernel.__name__}: array {number} of its arguments differs"
    return found


def _scratch(kernel: Kernel, arguments: Arguments) -> Any:
    """Return the argument that nobody looks at afterwards: a table for hashing, in place of which Python has a dictionary."""
    return arguments[4] if kernel is number_spans else None


def _part(array: Any, rows: int) -> Any:
    """Return what ROWS can have touched of room for a whole batch, 20 MB of it."""
    return array[: rows + 1] if array.dtype.names and len(array) > 2 * _MOST_ROWS else array


def _arrays(arguments: Arguments) -> Any:
    for value in arguments:
        if isinstance(value, tuple):
            yield from _arrays(value)
        elif isinstance(value, np.ndarray):
            yield value
