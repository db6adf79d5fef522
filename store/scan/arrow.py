"""Byte spans and columns as Arrow arrays, built from buffers: no object a value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from store.scan.message_kernel import gather

Array = np.ndarray[Any, Any]  # a column; its dtype is stated where it is made


def spans_array(data: Array, starts: Array, sizes: Array, kind: pa.DataType) -> pa.Array:
    """Return the spans of DATA as an array of KIND (string or binary); a span of size −1 is null.

    Raises pyarrow's ArrowInvalid for a string that is no UTF-8.
    """
    present = sizes >= 0
    total = int(sizes[present].sum())
    offsets = np.empty(len(starts) + 1, np.int32)
    out = np.empty(total, np.uint8)
    gather(data, starts, sizes, offsets, out)
    buffers = [None if present.all() else bitmap(present), pa.py_buffer(offsets), pa.py_buffer(out)]
    array = pa.Array.from_buffers(kind, len(starts), buffers)
    if kind == pa.string():
        array.validate(full=True)
    return array


def bitmap(mask: Array) -> pa.Buffer:
    """Return MASK as a validity bitmap."""
    return pa.py_buffer(np.packbits(mask, bitorder="little"))


def nullable(values: Array, present: Array) -> pa.Array:
    """Return VALUES, null where PRESENT is false."""
    if present.all():
        return pa.array(values)
    buffers = [bitmap(present), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def constant(value: Any, kind: pa.DataType, length: int) -> pa.Array:  # Any: what the type holds
    """Return LENGTH times VALUE (None: null)."""
    return pa.nulls(length, kind) if value is None else pa.repeat(pa.scalar(value, kind), length)
