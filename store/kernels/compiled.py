"""How a kernel runs: compiled by numba for many rows, by Python itself for few.

Loading numba and a compiled function takes half a second, in which Python processes some ten thousand rows. So each
public kernel declares how its number of rows follows from its arguments, and Python runs the first ``LITTLE_ROWS`` rows
of a process. When these are used up, or a call has more, every kernel is compiled. Callers see no difference.

Both run the same source, with the same effect on its arguments. When Python runs it,

- arrays of numbers are memoryviews: an element is an int, which does not wrap; ``np.int64`` and the like make it wrap;
- a row of a structured array is a ctypes structure: a field keeps the low bits of a stored value, as with numba;
- a function that would be too slow like that, or that wraps, has a separate plain form: ``@NAME.plain_form``.
"""

import sys
from collections.abc import Callable
from functools import cache, cached_property
from importlib import import_module
from threading import RLock
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

LITTLE_ROWS = 16384
"""Rows that Python goes through before numba would be imported: at most 0.2 s."""

Function = Callable[..., Any]
Rows = str | Callable[..., int]
_PLAIN, _COMPILED = "plain", "compiled"


class Meter:
    """Counts how many more rows this process runs in Python instead of compiling."""

    def __init__(self, left: int = LITTLE_ROWS) -> None:
        self.left = left

    def expect(self, rows: int) -> None:
        """Have all kernels compiled from now on if the expected ``rows`` exceed ``LITTLE_ROWS``."""
        if rows > LITTLE_ROWS:
            self.left = 0

    def takes(self, rows: int) -> bool:
        """Count ``rows``; return whether Python may run them."""
        self.left = max(self.left - rows, 0)
        return self.left > 0


METER = Meter()


class Part:
    """A function that kernels call; ``options`` are numba's.

    ``machine``: the module with the compiled form, under the same name; the function itself is then the plain form.
    """

    def __init__(self, function: Function, machine: str = "", **options: Any) -> None:
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__
        self._function: Any = function
        self._machine, self._options = machine, options
        self._plain = function if machine else None

    def plain_form(self, function: Function) -> Function:
        """Set ``function`` as the form that Python runs; for use as a decorator."""
        self._plain = function
        return function

    def __call__(self, *arguments: Any) -> Any:
        """Run the compiled form."""
        return self.compiled(*arguments)

    @cached_property
    def plain(self) -> Function:
        """The form that Python runs."""
        return self._plain or _function_in(_PLAIN, self._function)

    @cached_property
    def compiled(self) -> Any:
        """The form that numba compiles at the first call, and caches for other processes."""
        if self._machine:
            return getattr(import_module(self._machine), self.__name__)
        from pulsar_admin.store.kernels.machine_code import machine_code

        return machine_code(**self._options)(_function_in(_COMPILED, self._function))


class Kernel(Part):
    """A kernel that other modules call. ``rows``: the name of the argument whose length is the number of rows, or a
    function of the arguments that returns it."""

    def __init__(self, function: Function, rows: Rows, **options: Any) -> None:
        super().__init__(function, **options)
        code = self._function.__code__
        self._rows = code.co_varnames.index(rows) if isinstance(rows, str) else rows

    def __call__(self, *arguments: Any) -> Any:
        if METER.left and METER.takes(self.rows_in(*arguments)):
            return self.run_plain(*arguments)
        return self.compiled(*arguments)

    def rows_in(self, *arguments: Any) -> int:
        """Return how many rows ``arguments`` have."""
        return self._rows(*arguments) if callable(self._rows) else len(arguments[self._rows])

    def run_plain(self, *arguments: Any) -> Any:
        """Run without numba."""
        return self.plain(*map(_plain_argument, arguments))


def part(**options: Any) -> Callable[[Function], Part]:
    """Return a decorator that makes a Part."""
    return lambda function: Part(function, **options)


def kernel(rows: Rows, **options: Any) -> Callable[[Function], Kernel]:
    """Return a decorator that makes a Kernel."""
    return lambda function: Kernel(function, rows, **options)


# -- the source in two worlds -----------------------------------------------------------------------------------------


def _function_in(form: str, function: Any) -> FunctionType:
    """Return a copy of ``function`` whose global names refer to the PLAIN or the COMPILED forms of other parts."""
    found = FunctionType(function.__code__, _names_in(form, function.__module__), function.__name__)
    found.__qualname__ = function.__qualname__
    return found


_NAMING = RLock()


@cache
def _empty_names(form: str, module: str) -> dict[str, Any]:
    return {}


def _names_in(form: str, module: str) -> dict[str, Any]:
    with _NAMING:
        made = _empty_names(form, module)
        if not made:
            known = dict(vars(sys.modules[module]))
            made.update(known)  # at once: its parts also ask for it
            made.update({name: getattr(value, form) for name, value in known.items() if isinstance(value, Part)})
            if form == _PLAIN:
                scalars = {name: value.item() for name, value in known.items() if isinstance(value, np.generic)}
                made.update(scalars, np=_NUMBERS)
        return made


def _unsigned(bits: int) -> Callable[[int], int]:
    mask = (1 << bits) - 1
    return lambda value: value & mask


def signed(value: int, bits: int) -> int:
    """Return the low ``bits`` of ``value`` as a signed number."""
    half = 1 << (bits - 1)
    return (value + half & (1 << bits) - 1) - half


_NUMBERS = SimpleNamespace(
    int64=int,  # of what is in range
    int32=lambda value: signed(value, 32),
    int16=lambda value: signed(value, 16),
    uint64=_unsigned(64),
    uint32=_unsigned(32),
    uint8=_unsigned(8),
)


# -- arguments --------------------------------------------------------------------------------------------------------


def _plain_argument(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_plain_argument, value))
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.names is not None:
        return _Rows(value.view(np.uint8).data, value.dtype)
    if not value.dtype.isnative or not value.flags.aligned:  # which memoryview cannot read
        value = value.astype(value.dtype.newbyteorder("="))
        value.flags.writeable = False  # what a kernel would write would be lost
    return memoryview(value)


class _Rows:
    """A structured array for Python: ``rows[i]`` is a ctypes structure, a slice is another ``_Rows``."""

    def __init__(self, data: memoryview, dtype: np.dtype[np.void]) -> None:
        self._data, self._dtype, self._row_bytes = data, dtype, dtype.itemsize
        self.shape = (len(data) // dtype.itemsize,)
        row = _row_class(dtype)
        self._row_at = row.from_buffer_copy if data.readonly else row.from_buffer

    def array(self, dtype: np.dtype[np.void]) -> np.ndarray[Any, Any]:
        """Return the rows as a numpy array of this dtype."""
        return np.frombuffer(self._data, dtype)

    def __getitem__(self, index: Any) -> Any:  # an int or a slice
        if isinstance(index, slice):
            start, stop, _ = index.indices(self.shape[0])
            return _Rows(self._data[start * self._row_bytes : stop * self._row_bytes], self._dtype)
        return self._row_at(self._data, index * self._row_bytes)


@cache
def _row_class(dtype: Any) -> Any:  # Any: the dtype of a row, whose ctypes.Structure numpy's types do not know
    return np.ctypeslib.as_ctypes_type(dtype)
