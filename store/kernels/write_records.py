"""Entry-log records made of payloads, digests included. Layout: docs/formats/entry-log.md, entry.md."""

from __future__ import annotations

import numpy as np

from pulsar_admin.store.kernels.compiled import kernel
from pulsar_admin.store.kernels.crc import START, crc32, crc32c
from pulsar_admin.store.kernels.wire import copy, put_32, put_64


@kernel("starts", nogil=True)
def write_records(data, starts, sizes, ledger_id, entry_ids, length, digest_bytes, out):
    """Fill ``out`` with the records of the payloads data[starts[i]:starts[i] + sizes[i]]; return (bytes, cumulative length).

    ``length``: payload bytes of the ledger before the first; ``digest_bytes``: 4 for CRC-32C, 8 for CRC-32.
    """
    at = np.int64(0)
    for i in range(starts.shape[0]):
        size = sizes[i]
        length += size
        body = at + 4
        put_32(out, at, 32 + digest_bytes + size)
        put_64(out, body, ledger_id)
        put_64(out, body + 8, entry_ids[i])
        put_64(out, body + 16, entry_ids[i] - 1)
        put_64(out, body + 24, length)
        payload = body + 32 + digest_bytes
        copy(out, payload, data, starts[i], size)
        if digest_bytes == 4:
            state = crc32c(out, payload, payload + size, crc32c(out, body, body + 32, START))
            put_32(out, body + 32, np.int64(np.uint32(state) ^ START))
        else:
            state = crc32(out, payload, payload + size, crc32(out, body, body + 32, START))
            put_64(out, body + 32, np.int64(np.uint32(state) ^ START))
        at = payload + size
    return at, length
