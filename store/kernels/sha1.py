"""SHA-1 of many spans of a byte array at once: compiled, on the processor's own instructions (FIPS 180-4).

hashlib uses the same instructions, and its call costs as much as hashing a kilobyte: for a million short messages that is most
of the time. Few messages, and processors without the instructions, get hashlib.
"""

import numpy as np

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.kernels.compiled import kernel


def sha1_spans(data: Array, starts: Array, sizes: Array) -> Array:
    """Return the SHA-1 of each data[starts[i]:starts[i] + sizes[i]] as rows of 20 bytes."""
    out = np.empty((len(starts), 20), np.uint8)
    digest_spans(data, starts, sizes, out)
    return out


@kernel("starts", machine="pulsar_admin.store.kernels.sha1_machine")
def digest_spans(data, starts, sizes, out):
    """Fill the rows of ``out`` with the SHA-1 of each data[starts[i]:starts[i] + sizes[i]]."""
    from hashlib import sha1  # 2 ms

    rows = np.asarray(out)
    for row, start, size in zip(rows, starts, sizes, strict=True):
        row[:] = np.frombuffer(sha1(data[start : start + size], usedforsecurity=False).digest(), np.uint8)
