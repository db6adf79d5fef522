"""SHA-1 on the processor's own instructions, for numba; see ``store.kernels.sha1``."""

from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.extending import intrinsic

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.kernels import sha1
from pulsar_admin.store.kernels.machine_code import machine_code

HAS_INSTRUCTIONS = bool(get_host_cpu_features().get("sha", False))
# Vectors of four words, the first word of the standard in the highest lane: d c b a, 0 0 0 e.
_START = np.array([0x10325476, 0x98BADCFE, 0xEFCDAB89, 0x67452301, 0, 0, 0, 0xC3D2E1F0], np.uint32)
_WORDS = ir.VectorType(ir.IntType(32), 4)
_BYTES = ir.VectorType(ir.IntType(8), 16)


@intrinsic
def _compress(typingctx: Any, state: Any, data: Any, offset: Any) -> Any:  # Any: numba's typing objects
    """Advance ``state`` (eight u32) by the 64 bytes at data[offset]."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = context.make_array(signature.args[1])(context, builder, arguments[1]).data
        place = builder.gep(place, [arguments[2]])
        abcd_place = builder.bitcast(words, _WORDS.as_pointer())
        e_place = builder.gep(abcd_place, [ir.Constant(ir.IntType(32), 1)])
        abcd, e = builder.load(abcd_place, align=4), builder.load(e_place, align=4)
        _leave_wide_registers(builder)
        rounds = _Rounds(builder)
        new_abcd, new_e = rounds.run(abcd, e, [rounds.load(place, index) for index in range(4)])
        builder.store(builder.add(new_abcd, abcd), abcd_place, align=4)
        builder.store(new_e, e_place, align=4)
        return context.get_dummy_value()

    return types.void(state, data, offset), codegen


def _leave_wide_registers(builder: Any) -> None:
    """Clear the upper halves of vector registers: with them in use these instructions take a hundred times as long."""
    if get_host_cpu_features().get("avx", False):
        name = "llvm.x86.avx.vzeroupper"
        function = builder.module.globals.get(name)
        if function is None:
            function = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), []), name)
        builder.call(function, [])


class _Rounds:
    """Emits the eighty rounds, four at a time."""

    def __init__(self, builder: Any) -> None:
        self._builder = builder

    def load(self, place: Any, index: int) -> Any:
        """Return 16 bytes at ``index`` as four big-endian words, the first in the highest lane."""
        at = self._builder.gep(place, [ir.Constant(ir.IntType(64), 16 * index)])
        raw = self._builder.load(self._builder.bitcast(at, _BYTES.as_pointer()), align=1)
        backwards = ir.Constant(ir.VectorType(ir.IntType(32), 16), list(range(15, -1, -1)))
        return self._builder.bitcast(self._builder.shuffle_vector(raw, raw, backwards), _WORDS)

    def run(self, abcd: Any, e: Any, message: list[Any]) -> tuple[Any, Any]:
        """Return the new a, b, c, d (without the old ones added) and the new e."""
        add = self._builder.add
        before = None
        for group in range(20):
            if group >= 4:
                mixed = self._call("msg1", message[group - 4], message[group - 3])
                mixed = self._builder.xor(mixed, message[group - 2])
                message.append(self._call("msg2", mixed, message[group - 1]))
            word = message[group]
            word = add(e, word) if before is None else self._call("nexte", before, word)
            before, abcd = abcd, self._call("rnds4", abcd, word, group // 5)
        return abcd, self._call("nexte", before, e)

    def _call(self, name: str, left: Any, right: Any, constant: int | None = None) -> Any:
        full = f"llvm.x86.sha1{name}"
        kinds = [_WORDS, _WORDS, *([] if constant is None else [ir.IntType(8)])]
        function = self._builder.module.globals.get(full)
        if function is None:
            function = ir.Function(self._builder.module, ir.FunctionType(_WORDS, kinds), full)
        last = [] if constant is None else [ir.Constant(ir.IntType(8), constant)]
        return self._builder.call(function, [left, right, *last])


@machine_code(nogil=True)
def _on_instructions(data, starts, sizes, out):
    state = np.empty(8, np.uint32)
    tail = np.empty(128, np.uint8)
    for i in range(starts.shape[0]):
        state[:] = _START
        at, end = starts[i], starts[i] + sizes[i]
        while at + 64 <= end:
            _compress(state, data, at)
            at += 64
        for block in range(_pad(data, at, end, sizes[i], tail)):
            _compress(state, tail, block * 64)
        for k in range(20):
            word = state[3 - (k >> 2)] if k < 16 else state[7]
            out[i, k] = (word >> np.uint32(8 * (3 - (k & 3)))) & np.uint32(0xFF)


@machine_code()
def _pad(data, at, end, size, tail):
    """Fill ``tail`` with the remaining bytes, 0x80, zeros and the length in bits; return how many blocks that makes."""
    left = end - at
    total = 64 if left < 56 else 128
    tail[:total] = 0
    for k in range(left):
        tail[k] = data[at + k]
    tail[left] = 0x80
    bits = size * 8
    for k in range(8):
        tail[total - 1 - k] = (bits >> (8 * k)) & 0xFF
    return total >> 6


def digest_spans(data: Array, starts: Array, sizes: Array, out: Array) -> None:
    """See ``store.kernels.sha1``; without the instructions hashlib is used."""
    if HAS_INSTRUCTIONS:
        _on_instructions(data, starts, sizes, out)
    else:
        sha1.digest_spans.run_plain(data, starts, sizes, out)
