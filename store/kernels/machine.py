"""Parts of kernels that use processor instructions, for numba; ``store.kernels.wire`` and ``store.kernels.crc`` have
plain forms.

The state of a CRC is passed in and out without the final inversion. CRC-32C uses the processor's instruction if it
exists (SSE 4.2): three lanes at once over 768 bytes, because the instruction has a latency of three cycles. Tables that
advance a state over 256 zero bytes combine the lanes.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from pulsar_admin.store.kernels.machine_code import machine_code
from pulsar_admin.store.kernels.wire import START

_LANE_BYTES = 256

Table = np.ndarray[Any, np.dtype[np.uint32]]


def _tables(polynomial: int) -> Table:
    """Return the eight tables of slicing-by-8 for a reflected 32-bit ``polynomial``."""
    tables = np.zeros((8, 256), np.uint32)
    tables[0] = np.arange(256)
    for _ in range(8):
        tables[0] = (tables[0] >> 1) ^ np.where(tables[0] & 1, np.uint32(polynomial), np.uint32(0))
    for row in range(1, 8):
        tables[row] = (tables[row - 1] >> 8) ^ tables[0][tables[row - 1] & 0xFF]
    return tables


def _lane_tables(first: Table) -> Table:
    """Return four tables (one for each byte of a state) that advance a state over _LANE_BYTES zero bytes."""
    states = (np.arange(256, dtype=np.uint32)[None, :] << np.array([[0], [8], [16], [24]], np.uint32)).astype(np.uint32)
    for _ in range(_LANE_BYTES):
        states = (states >> 8) ^ first[states & 0xFF]
    return states


_CRC32_TABLES = _tables(0xEDB88320)
_CRC32C_TABLES = _tables(0x82F63B78)
_LANE_TABLES = _lane_tables(_CRC32C_TABLES[0])
_HAS_INSTRUCTION = bool(get_host_cpu_features().get("sse4.2", False))


def _instruction(name: str, state_bits: int, data_bits: int) -> Any:  # Any: numba's typing objects, here and below
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        state, data = ir.IntType(state_bits), ir.IntType(data_bits)
        function = builder.module.globals.get(name)
        if function is None:
            function = ir.Function(builder.module, ir.FunctionType(state, [state, data]), name)
        return builder.call(function, arguments)

    return codegen


@intrinsic
def _advance_8(typingctx: Any, state: Any, word: Any) -> Any:
    """Advance a CRC-32C by eight bytes."""
    return types.uint64(types.uint64, types.uint64), _instruction("llvm.x86.sse42.crc32.64.64", 64, 64)


@intrinsic
def _advance_1(typingctx: Any, state: Any, byte: Any) -> Any:
    """Advance a CRC-32C by one byte."""
    return types.uint32(types.uint32, types.uint8), _instruction("llvm.x86.sse42.crc32.32.8", 32, 8)


@intrinsic
def load_8(typingctx: Any, array: Any, offset: Any) -> Any:
    """Read eight little-endian bytes of a uint8 array at ``offset``, unaligned."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.gep(data, [arguments[1]])
        pointer = builder.bitcast(place, ir.IntType(64).as_pointer())
        return builder.load(pointer, align=1)

    return types.uint64(array, types.int64), codegen


@intrinsic
def prefetch(typingctx: Any, array: Any, offset: Any) -> Any:  # Any: numba's typing objects, here and below
    """Have the processor fetch the bytes of a uint8 array at ``offset``, which may lie past its end."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", [cgutils.voidptr_t], kind)
        read, keep, is_data = ir.Constant(word, 0), ir.Constant(word, 3), ir.Constant(word, 1)
        builder.call(function, [builder.gep(data, [arguments[1]]), read, keep, is_data])
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


@intrinsic
def move(typingctx: Any, out: Any, at: Any, source: Any, start: Any, count: Any) -> Any:
    """Copy bytes with memcpy: numba compiles a loop to single byte moves, because the arrays might overlap."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        origin = context.make_array(signature.args[2])(context, builder, arguments[2]).data
        cgutils.raw_memcpy(
            builder, builder.gep(to, [arguments[1]]), builder.gep(origin, [arguments[3]]), arguments[4], 1
        )
        return context.get_dummy_value()

    return types.void(out, types.int64, source, types.int64, types.int64), codegen


@intrinsic
def new_fields(typingctx: Any) -> Any:
    """Return room for what ``read_message`` finds, two numbers for each slot, in the frame of the calling function.

    An array's reference would be counted at every call, which takes as long as reading two fields.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return cgutils.alloca_once(builder, ir.IntType(64), size=2 * START)

    return types.CPointer(types.int64)(), codegen


# -- checksums --------------------------------------------------------------------------------------------------------


@machine_code()
def _sliced(data, start, end, crc, tables):
    """Slicing-by-8 over data[start:end]."""
    crc = np.uint32(crc)
    at = start
    while at + 8 <= end:
        word = load_8(data, at) ^ np.uint64(crc)
        crc = (
            tables[7, word & 0xFF]
            ^ tables[6, (word >> np.uint64(8)) & 0xFF]
            ^ tables[5, (word >> np.uint64(16)) & 0xFF]
            ^ tables[4, (word >> np.uint64(24)) & 0xFF]
            ^ tables[3, (word >> np.uint64(32)) & 0xFF]
            ^ tables[2, (word >> np.uint64(40)) & 0xFF]
            ^ tables[1, (word >> np.uint64(48)) & 0xFF]
            ^ tables[0, (word >> np.uint64(56)) & 0xFF]
        )
        at += 8
    while at < end:
        crc = (crc >> np.uint32(8)) ^ tables[0, (crc ^ np.uint32(data[at])) & np.uint32(0xFF)]
        at += 1
    return crc


@machine_code()
def crc32(data, start, end, state):
    """Return the CRC-32 state after data[start:end]."""
    return _sliced(data, start, end, state, _CRC32_TABLES)


@machine_code(inline="always")
def _over_lane(state):
    return np.uint64(
        _LANE_TABLES[0, state & np.uint64(0xFF)]
        ^ _LANE_TABLES[1, (state >> np.uint64(8)) & np.uint64(0xFF)]
        ^ _LANE_TABLES[2, (state >> np.uint64(16)) & np.uint64(0xFF)]
        ^ _LANE_TABLES[3, (state >> np.uint64(24)) & np.uint64(0xFF)]
    )


if _HAS_INSTRUCTION:

    @machine_code()
    def crc32c(data, start, end, state):
        """Return the CRC-32C state after data[start:end]."""
        first = np.uint64(state)
        at = start
        while at + 3 * _LANE_BYTES <= end:
            second = third = np.uint64(0)
            stop = at + _LANE_BYTES
            while at < stop:
                first = _advance_8(first, load_8(data, at))
                second = _advance_8(second, load_8(data, at + _LANE_BYTES))
                third = _advance_8(third, load_8(data, at + 2 * _LANE_BYTES))
                at += 8
            first = _over_lane(_over_lane(first) ^ second) ^ third
            at += 2 * _LANE_BYTES
        while at + 8 <= end:
            first = _advance_8(first, load_8(data, at))
            at += 8
        crc = np.uint32(first)
        while at < end:
            crc = _advance_1(crc, data[at])
            at += 1
        return crc

else:

    @machine_code()
    def crc32c(data, start, end, state):
        """Return the CRC-32C state after data[start:end]."""
        return _sliced(data, start, end, state, _CRC32C_TABLES)
