"""Due times that the ordinary kernel does not know: ``delayed_ms``, varint field 18 of the metadata (PIP of 2018), relative.

Field 18 of today's metadata is ``ordering_key``, bytes: the wire type tells them apart. Compiled by numba.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

import numpy as np
from numba import njit

from store.scan.kernel import _i32, _skip, _varint

DELAYED_MS = 18


@njit(cache=True, boundscheck=False)
def add_relative_delays(data, starts, ends, publish_ms, deliver_at_ms):
    """Set DELIVER_AT_MS of messages that have none to publish time + ``delayed_ms``, where that is above 0 and fits 64 bits.

    STARTS and ENDS: where each entry's payload lies in DATA, all of it or at least its metadata.
    """
    for row in range(len(starts)):
        if deliver_at_ms[row] == 0:
            delay = _find_delay(data, starts[row], ends[row])
            if delay > 0 and publish_ms[row] >= 0 and delay <= np.int64(2**63 - 1) - publish_ms[row]:
                deliver_at_ms[row] = publish_ms[row] + delay


@njit(cache=True, boundscheck=False)
def _find_delay(data, at, end):
    """Return the value of the field in the metadata of the payload data[at:end], 0 when there is none."""
    if end - at >= 6 and data[at] == 0x0E and data[at + 1] == 0x02:
        at += 6 + np.int64(np.uint32(_i32(data, at + 2)))
    if end - at >= 6 and data[at] == 0x0E and data[at + 1] == 0x01:
        at += 6
    if end - at < 4:
        return np.int64(0)
    stop = min(end, at + 4 + np.int64(np.uint32(_i32(data, at))))
    at += 4
    delay = np.int64(0)
    while at >= 0 and at < stop:
        tag, at = _varint(data, at, stop)
        if at < 0:
            break
        if tag == DELAYED_MS << 3:
            delay, at = _varint(data, at, stop)
        else:
            at = _skip(data, at, stop, tag & 7)
    return delay
