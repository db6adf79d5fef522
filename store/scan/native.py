"""The scan's kernels without numba's start-up.

numba needs a quarter of a second of processor time to start and to find code it has cached: more than a scan of 500,000
entries. So the machine code it made is kept once more, as an image beside the byte code, which llvmlite alone loads in 0.04 s.
Without an image (first run, another processor, a changed kernel, a read-only installation, another system than Linux) numba is
asked, and leaves an image where it can. An image is bound to the kernels' source, llvmlite and the processor by its name, and
carries a digest of itself.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from store.scan.record import RECORD, RUN

Array = np.ndarray[Any, Any]
Entry = Callable[..., None]  # see ``image._call``

SCAN_LOG, SCAN_JOURNAL, SUM_BLOCKS = 0, 1, 2

_HERE = Path(__file__).resolve().parent
_SOURCES = ("blocks.py", "crc.py", "image.py", "kernel.py", "record.py")
_DIGEST_BYTES = 32
_POINTERS = 7
_NO_BYTES = np.zeros(1, np.uint8)
_NO_RECORDS = np.zeros(1, RECORD)
_NO_RUNS = np.zeros(1, RUN)
_NO_IDS, _NO_KINDS = np.zeros(1, np.int64), np.zeros(1, np.int16)


def scan_log(
    window: Array, start: int, stop: int, behind: int, how: tuple[tuple[Array, Array], bool], out: Array
) -> tuple[int, int, int]:
    """Call ``kernel.scan_log``; HOW: the ledgers' digests, and whether to verify."""
    ledgers, verify = how
    return _run((SCAN_LOG, start, stop, behind, verify), window, out, _NO_RUNS, ledgers)


def scan_journal(
    window: Array, start: int, behind: int, how: tuple[tuple[Array, Array], bool], out: Array
) -> tuple[int, int, int]:
    """Call ``kernel.scan_journal``; HOW: the ledgers' digests, and whether to verify."""
    ledgers, verify = how
    return _run((SCAN_JOURNAL, start, 0, behind, verify), window, out, _NO_RUNS, ledgers)


def sum_blocks(records: Array, runs: Array) -> int:
    """Call ``blocks.sum_blocks``."""
    if not len(records):
        return 0
    return _run((SUM_BLOCKS, 0, 0, 0, False), _NO_BYTES, records, runs, (_NO_IDS, _NO_KINDS))[0]


def _run(
    numbers: tuple[int, int, int, int, bool], data: Array, records: Array, runs: Array, ledgers: tuple[Array, Array]
) -> tuple[int, int, int]:
    which, *own = numbers
    assert which == SUM_BLOCKS or records.flags.c_contiguous, "rows to be filled must be the caller's own"
    known, kinds = (np.ascontiguousarray(column) for column in ledgers)
    rows = np.ascontiguousarray(records)
    told = np.array([which, len(data), len(rows), len(runs), len(known), *own], np.int64)
    result = np.empty(3, np.int64)
    arrays = (data, rows, runs, known, kinds, told, result)
    _entry()(*(array.ctypes.data for array in arrays))
    count, at, why = result.tolist()
    return count, at, why


@lru_cache(1)
def _entry() -> Entry:
    image = image_path()
    entry = None if image is None else load(image)
    if entry is not None:
        return entry
    from store.scan.image import make_entry  # numba

    return make_entry(image)


def image_path() -> Path | None:
    """Return where the image for this processor and these kernels is kept; None where there is none."""
    if sys.platform != "linux":
        return None
    import llvmlite
    from llvmlite import binding

    key = sha256()
    try:
        for name in _SOURCES:
            key.update((_HERE / name).read_bytes())
    except OSError:
        return None  # the package lies in an archive, as on Spark's workers
    features = ",".join(sorted(name for name, has in binding.get_host_cpu_features().items() if has))
    key.update(f"{llvmlite.__version__} {binding.get_host_cpu_name()} {features} {sys.version}".encode())
    return _HERE / "__pycache__" / f"kernels-{key.hexdigest()[:24]}.image"


def load(image: Path) -> Entry | None:
    """Return the entry in the file IMAGE, or None when it is not there or not whole."""
    try:
        raw = image.read_bytes()
    except OSError:
        return None
    body = raw[_DIGEST_BYTES:]
    if sha256(body).digest() != raw[:_DIGEST_BYTES]:
        return None
    about, _, code = body.partition(b"\n")
    return _link(json.loads(about), code)


def _link(about: dict[str, Any], code: bytes) -> Entry:  # Any: JSON
    from llvmlite import binding

    # What numba's helpers would do only after an error inside a kernel, which has none: it checks nothing and allocates nothing.
    stop = ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value
    for name in about["undefined"]:
        if binding.address_of_symbol(name) is None:
            binding.add_symbol(name, stop)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine(opt=0))
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)  # the code lives as long as its engine
    return entry_at(engine.get_function_address(about["symbol"]))


def machine(opt: int) -> Any:
    """Return LLVM's code generator for this processor."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    features = binding.get_host_cpu_features().flatten()
    cpu = binding.get_host_cpu_name()
    return binding.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=opt, jit=True)


def entry_at(address: int) -> Entry:
    """Return the compiled entry at ADDRESS as a function of seven pointers; it runs without Python's lock."""
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * _POINTERS)(address)


_engines: list[Any] = []  # Any: llvmlite has no stubs
