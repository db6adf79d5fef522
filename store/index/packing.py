"""Location blocks from columns of their entries, by numpy alone. Layout: ``store.db.blocks``."""

from __future__ import annotations

import numpy as np

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.db.blocks import BLOCK_BITS, BLOCK_ENTRIES, FILES, MESSAGES, NO_MAX, NO_MIN, SLOTS, BlockHeader
from pulsar_admin.store.kernels.columns import HAS_BROKER_TIME, UNFRAMED


def pack_columns(
    header: BlockHeader, slots: Array, offsets: Array, sizes: Array, messages: Array, files: Array
) -> bytes:
    """Return a block of entries in ascending slots; the header's times and digest bytes are given, its counts are computed."""
    count, first = len(slots), int(slots[0])
    flags = SLOTS if int(slots[-1]) - first != count - 1 else 0
    flags |= (0 if (messages == 1).all() else MESSAGES) | (0 if (files == files[0]).all() else FILES)
    counted = header._replace(
        entries=count,
        flags=flags,
        file_id=int(files[0]),
        messages=int(messages.sum(dtype=np.int64)),
        payload_bytes=int(np.maximum(sizes.astype(np.int64) - 32 - header.digest_bytes, 0).sum()),
        first_slot=first,
    )
    parts = [counted.pack(), offsets.astype("<u4").tobytes(), sizes.astype("<u4").tobytes()]
    if flags & MESSAGES:
        parts.append(messages.astype("<u4").tobytes())
    if flags & FILES:
        parts.append(files.astype("<u4").tobytes())
    if flags & SLOTS:
        parts.append(slots.astype("<u2").tobytes())
    return b"".join(parts)


def pack_block(records: Array, files: Array) -> tuple[int, int, bytes]:
    """Return (ledger id, block number, block) of records of one block, in the order of entries, and the files that hold them."""
    flags = records["flags"]
    framed, stamped = flags & UNFRAMED == 0, flags & HAS_BROKER_TIME != 0
    automatic = np.where(stamped, records["broker_ms"], records["publish_ms"])
    header = BlockHeader(
        0, 0, 0, 0, 0,
        *_bounds(records["publish_ms"][framed]),
        *_bounds(records["broker_ms"][stamped]),
        *_bounds(automatic[framed]),
        int(np.count_nonzero(stamped)),
        int(records["digest_bytes"][0]),
        int(np.count_nonzero(~framed)),
        0,
    )  # fmt: skip
    slots = records["entry_id"] & (BLOCK_ENTRIES - 1)
    # A batch that claims a negative number of messages has none.
    messages = np.maximum(records["messages"], 0)
    block = pack_columns(header, slots, records["offset"], records["size"], messages, files)
    return int(records["ledger_id"][0]), int(records["entry_id"][0]) >> BLOCK_BITS, block


def _bounds(times: Array) -> tuple[int, int]:
    return (int(times.min()), int(times.max())) if len(times) else (NO_MIN, NO_MAX)
