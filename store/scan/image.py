"""Making the image of the scan's kernels: their machine code, compiled by numba, in a form that ``native`` loads without it."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from llvmlite import binding
from numba import carray, cfunc, from_dtype, types  # type: ignore[attr-defined]

from store.atomic import rename, replace_file
from store.errors import StoreError
from store.scan import blocks, kernel
from store.scan.native import SCAN_JOURNAL, SCAN_LOG, Entry, entry_at, machine
from store.scan.record import RECORD, RUN

_SECTION = struct.Struct("<IIQQQQIIQQ")  # of ELF, 64 bits, little-endian
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_TABLE = 2
_UNDEFINED = 0
_SIGNATURE = types.void(
    types.CPointer(types.uint8),
    types.CPointer(from_dtype(RECORD)),
    types.CPointer(from_dtype(RUN)),
    types.CPointer(types.int64),
    types.CPointer(types.int16),
    types.CPointer(types.int64),
    types.CPointer(types.int64),
)


def _call(data, records, runs, known, kinds, numbers, result):
    """The one entry: NUMBERS are which kernel, bytes of DATA, RECORDS, RUNS, KNOWN, then the kernel's own numbers."""
    window = carray(data, (numbers[1],))
    rows = carray(records, (numbers[2],))
    ledgers = (carray(known, (numbers[4],)), carray(kinds, (numbers[4],)))
    verify = numbers[8] != 0
    if numbers[0] == SCAN_LOG:
        count, at, why = kernel.scan_log(window, numbers[5], numbers[6], numbers[7], ledgers, verify, rows)
    elif numbers[0] == SCAN_JOURNAL:
        count, at, why = kernel.scan_journal(window, numbers[5], numbers[7], ledgers, verify, rows)
    else:
        count, at, why = blocks.sum_blocks(rows, carray(runs, (numbers[3],))), 0, 0
    result[0], result[1], result[2] = count, at, why


def make_entry(image: Path | None) -> Entry:
    """Return the compiled entry; leave its machine code in the file IMAGE for other processes where that can be written."""
    keeps = image is not None and os.access(image.parent, os.W_OK)
    compiled = cfunc(_SIGNATURE, cache=not keeps)(_call)
    if image is not None and keeps:
        _keep(image, compiled.native_name, _machine_code(compiled.inspect_llvm()))
    assert compiled.address is not None
    return entry_at(compiled.address)


def _machine_code(assembly: str) -> bytes:
    """Return the object file of LLVM's ASSEMBLY, which is optimized already, for this processor."""
    native_machine = machine(opt=3)
    code: bytes = native_machine.emit_object(binding.parse_assembly(assembly))
    return code


def _keep(image: Path, symbol: str, code: bytes) -> None:
    about = {"symbol": symbol, "undefined": sorted(set(undefined_symbols(code)))}
    body = json.dumps(about).encode() + b"\n" + code
    trial = image.with_suffix(".trial")
    try:
        replace_file(trial, sha256(body).digest() + body)
        if _loads(trial):
            rename(trial, image)
    except StoreError:
        return  # a read-only installation: every process asks numba then
    for other in image.parent.glob("kernels-*"):
        if other != image:
            other.unlink(missing_ok=True)


def _loads(image: Path) -> bool:
    """Whether a process of its own can load IMAGE: LLVM ends a process in which it cannot."""
    code = "import sys; sys.path[:] = {!r}; from pathlib import Path; from store.scan.native import load; sys.exit(not load(Path({!r})))"
    trial = [sys.executable, "-c", code.format(sys.path, str(image))]
    return subprocess.run(trial, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


def undefined_symbols(code: bytes) -> Iterator[str]:
    """Yield the names that an ELF object expects from elsewhere."""
    offset, count = struct.unpack_from("<Q", code, 40)[0], struct.unpack_from("<H", code, 60)[0]
    sections = [_SECTION.unpack_from(code, offset + number * _SECTION.size) for number in range(count)]
    for _, kind, _, _, start, size, link, *_ in sections:
        if kind != _SYMBOL_TABLE:
            continue
        names = sections[link][4]
        for at in range(start, start + size, _SYMBOL.size):
            name, _, _, section, _, _ = _SYMBOL.unpack_from(code, at)
            if section == _UNDEFINED and name:
                yield code[names + name : code.index(0, names + name)].decode()
