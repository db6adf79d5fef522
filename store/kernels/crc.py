"""CRC-32 and CRC-32C over parts of a byte array; the state goes in and out without the final inversion."""

import zlib

import numpy as np

from pulsar_admin.store.kernels.compiled import part
from pulsar_admin.store.kernels.wire import i32

_MACHINE = "pulsar_admin.store.kernels.machine"

START = np.uint32(0xFFFFFFFF)
"""The state before the first byte; the CRC is the last state exclusive-or this."""


@part(machine=_MACHINE)
def crc32(data, start, end, state):
    """Return the CRC-32 state after data[start:end]."""
    return zlib.crc32(data[start:end], state ^ 0xFFFFFFFF) ^ 0xFFFFFFFF


@part(machine=_MACHINE)
def crc32c(data, start, end, state):
    """Return the CRC-32C state after data[start:end]."""
    import google_crc32c  # 2 ms; compiled code has its own

    return google_crc32c.extend(state ^ 0xFFFFFFFF, bytes(data[start:end])) ^ 0xFFFFFFFF


@part(machine=_MACHINE)
def load_8(data, at):
    """Read eight little-endian bytes of a uint8 array at ``at``, unaligned."""
    return int.from_bytes(data[at : at + 8], "little")


@part()
def checksum_matches(data, start, end):
    """Whether the four big-endian bytes before ``start`` are the CRC-32C of data[start:end]."""
    return np.uint32(i32(data, start - 4)) == np.uint32(crc32c(data, start, end, START)) ^ START
