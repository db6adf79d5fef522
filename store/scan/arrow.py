"""Byte spans and columns as Arrow arrays, built from buffers, without an object per value.

``pyarrow.array``, ``pyarrow.scalar`` and ``to_numpy`` import pandas, a quarter of a second that nothing here needs.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.kernels.messages import gather


def spans_array(data: Array, starts: Array, sizes: Array, kind: pa.DataType) -> pa.Array:
    """Return spans of ``data`` as an array of strings or binaries; a span of size −1 is null.

    If one span is most of ``data``, that span is not copied. Raises pyarrow's ArrowInvalid for a string that is not
    UTF-8.
    """
    if len(starts) == 1 and 2 * sizes[0] > len(data):
        ends = np.array([starts[0], starts[0] + sizes[0]], np.int32)
        return _checked(pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(ends), pa.py_buffer(data)]))
    present = sizes >= 0
    total = int(sizes[present].sum())
    offsets = np.empty(len(starts) + 1, np.int32)
    out = np.empty(total, np.uint8)
    gather(data, starts, sizes, offsets, out)
    buffers = [None if present.all() else bitmap(present), pa.py_buffer(offsets), pa.py_buffer(out)]
    return _checked(pa.Array.from_buffers(kind, len(starts), buffers))


def _checked(array: pa.Array) -> pa.Array:
    if array.type == pa.string():
        array.validate(full=True)
    return array


def bitmap(mask: Array) -> pa.Buffer:
    """Return a boolean mask as Arrow's validity bitmap."""
    return pa.py_buffer(np.packbits(mask, bitorder="little"))


def column(values: Array) -> pa.Array:
    """Return numbers or booleans as a column without nulls."""
    return _numbers(values, None)


def nullable(values: Array, present: Array) -> pa.Array:
    """Return values as a column, null where ``present`` is false."""
    return _numbers(values, None if present.all() else bitmap(present))


def _numbers(values: Array, validity: pa.Buffer | None) -> pa.Array:
    data = bitmap(values) if values.dtype == bool else pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [validity, data])


def constant(value: int | None, kind: pa.DataType, length: int) -> pa.Array:
    """Return a column that repeats a number or boolean (None: null) ``length`` times."""
    return pa.nulls(length, kind) if value is None else column(np.full(length, value, kind.to_pandas_dtype()))


def scalar(value: int | str | None, kind: pa.DataType) -> pa.Scalar:
    """Return a number, boolean or text as an Arrow scalar (None: null)."""
    return (strings([value], kind) if isinstance(value, str) else constant(value, kind, 1))[0]


def strings(values: Sequence[str | None], kind: pa.DataType) -> pa.Array:
    """Return texts as an array of strings or large strings."""
    data = [b"" if value is None else value.encode() for value in values]
    offsets = np.zeros(len(data) + 1, np.int64)
    np.cumsum([len(each) for each in data], out=offsets[1:])
    if offsets[-1] >= 1 << 31:
        return pa.array(values, kind)  # which knows what to do
    present = np.array([value is not None for value in values], bool)
    ends = offsets if pa.types.is_large_string(kind) else offsets.astype(np.int32)
    buffers = [None if present.all() else bitmap(present), pa.py_buffer(ends), pa.py_buffer(b"".join(data))]
    return pa.Array.from_buffers(kind, len(data), buffers)


def texts_of(numbers: Array, text: Callable[[int], str | None]) -> pa.Array:
    """Return the text of each number as a column; ``text`` is called once for each distinct number."""
    known, places = np.unique(numbers, return_inverse=True)
    return strings([text(number) for number in known.tolist()], pa.string()).take(column(places))


def packed_row(schema: pa.Schema, *values: bytes) -> pa.RecordBatch:
    """Return a batch of one row with binary or string columns."""
    return packed_rows(schema, [values])


def packed_rows(schema: pa.Schema, rows: Sequence[Sequence[bytes]]) -> pa.RecordBatch:
    """Return a batch of rows with binary or string columns; a single row's bytes are not copied."""
    columns = [packed_column(values, field.type) for field, values in zip(schema, zip(*rows, strict=True), strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def packed_column(values: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    """Return bytes or texts as a binary or string column."""
    data = values[0] if len(values) == 1 else b"".join(values)
    ends = np.cumsum([0, *map(len, values)]).astype(np.int32)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(ends), pa.py_buffer(data)])


def bools_of(array: pa.Array) -> Array:
    """Return the values of a column of truth values, false for null."""
    validity, data = array.buffers()
    bits = np.frombuffer(data, np.uint8)
    if validity is not None:
        bits = bits & np.frombuffer(validity, np.uint8)[: len(bits)]
    part = np.unpackbits(bits, bitorder="little")[array.offset : array.offset + len(array)]
    return part.astype(bool)


def numbers_of(array: pa.Array) -> tuple[Array, Array]:
    """Return the values of a column of numbers, and a mask of the valid ones; nulls have arbitrary values."""
    validity, data = array.buffers()
    part = slice(array.offset, array.offset + len(array))
    values = np.frombuffer(data, array.type.to_pandas_dtype())[part]
    if not array.null_count:
        return values, np.ones(len(array), bool)
    return values, np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")[part].astype(bool)
