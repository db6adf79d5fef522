"""New entries of a compacted ledger: kept whole, or batches with only the messages that stay.

Forms: ``store.compaction.forms``. In all of them the number of messages in the batch stays what it was, the codec too; the entry's
checksum is computed anew, its broker metadata is kept.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from pulsar_admin.store.aliases import Array
from pulsar_admin.store.codec.batch import encode_batch, placeholder
from pulsar_admin.store.codec.compression import LIMIT_BYTES, compress
from pulsar_admin.store.codec.message import encode_message_entry
from pulsar_admin.store.compaction.batches import MessageBatch
from pulsar_admin.store.compaction.forms import LEGACY, REDUCED
from pulsar_admin.store.errors import LimitExceeded
from pulsar_admin.store.kernels import compaction as kernel
from pulsar_admin.store.kernels import slots as slot_kernel
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageIdData, MessageMetadata

_SIZE = struct.Struct(">I")
_PLACEHOLDER = encode_batch([placeholder()])


_MOST_FRAMING_BYTES = 4 + 3 * 11 + 4


class EntryColumns(Struct, frozen=True):
    """Payloads of many entries: data[starts[i]:starts[i] + sizes[i]]; u8, i64, i64."""

    data: Array
    starts: Array
    sizes: Array

    def __iter__(self) -> Iterator[bytes]:
        for start, size in zip(self.starts.tolist(), self.sizes.tolist(), strict=True):
            yield bytes(self.data.data[start : start + size])


class Rewriter:
    """Builds entries in one format; ``partition``: of the topic, −1 for none."""

    def __init__(self, form: str, partition: int) -> None:
        self._form = form
        self._partition = partition
        self.stored_bytes = 0  # payload of the entry rebatched last, as it is stored

    def whole(self, batch: MessageBatch, chosen: Array) -> EntryColumns:
        """Return the compacted entries that hold the entries CHOSEN as they are."""
        rows = batch.rows[chosen]
        sizes = rows["end"] - rows["start"] + rows["id_end"] - rows["id_start"] + _MOST_FRAMING_BYTES
        data = np.empty(int(sizes.sum()), np.uint8)
        starts = np.empty(len(chosen) + 1, np.int64)
        kernel.frame_whole(batch.data, batch.rows, chosen, self._partition, data, starts)
        return EntryColumns(data, starts[:-1], np.diff(starts))

    def is_as_wanted(self, batch: MessageBatch, index: int, kept: Array) -> bool:
        """Whether batch INDEX is a compacted one of the wanted format and loses no message; KEPT: bool, a message.

        A topic's own batch is always written anew, as the broker does: its uncompressed size may not even be stated.
        """
        if not batch.compacted:
            return False
        row = batch.rows[index]
        slots = batch.slots[batch.firsts[index] : batch.firsts[index + 1]]
        if self._form == REDUCED:
            return bool(kept.all()) and int(row["indexes"]) == len(slots)
        out = slots["flags"] & slot_kernel.COMPACTED_OUT != 0
        if len(slots) != int(row["messages"]) or not (kept | out).all():
            return False
        if self._form == LEGACY:
            return int(row["indexes"]) == 0
        return int(row["indexes"]) == int(kept.sum()) and int(row["last_index"]) == int(np.flatnonzero(kept)[-1])

    def rebatched(self, batch: MessageBatch, index: int, kept: Array) -> bytes:
        """Return the compacted entry of batch INDEX with the messages KEPT; raises LimitExceeded for an absurd count."""
        row = batch.rows[index]
        view = batch.data.data
        metadata = MessageMetadata.FromString(view[row["meta_start"] : row["meta_end"]])  # type: ignore[arg-type]
        slots = batch.slots[batch.firsts[index] : batch.firsts[index + 1]]
        numbers = np.arange(len(slots))
        if len(slots) < metadata.num_messages_in_batch:
            numbers = np.array(metadata.compacted_batch_indexes)
        plain = batch.plain(index).data
        spans = zip(slots["start"][kept].tolist(), slots["end"][kept].tolist(), strict=True)
        parts: list[bytes | memoryview] = [plain[start:end] for start, end in spans]
        indexes = numbers[kept].tolist()
        del metadata.compacted_batch_indexes[:]
        if self._form != LEGACY:
            metadata.compacted_batch_indexes.extend(indexes)
        if self._form != REDUCED:
            parts = _with_placeholders(parts, indexes, metadata.num_messages_in_batch)
        payload = b"".join(parts)
        metadata.uncompressed_size = len(payload)
        stored = compress(metadata.compression, payload)
        self.stored_bytes = len(stored)
        entry = encode_message_entry(metadata, stored)
        return self._framed(batch, index, entry, view[row["start"] : row["front_end"]])

    def _framed(
        self, batch: MessageBatch, index: int, entry: bytes | memoryview, front: bytes | memoryview = b""
    ) -> bytes:
        """Return ``u32 a | MessageIdData(a) | u32 b | entry``; a compacted entry keeps the id it has."""
        row = batch.rows[index]
        if batch.compacted:
            message_id: bytes | memoryview = batch.data.data[row["id_start"] : row["id_end"]]
        else:
            message_id = MessageIdData(
                ledgerId=int(row["ledger_id"]), entryId=int(row["entry_id"]), partition=self._partition
            ).SerializeToString()
        size = _SIZE.pack(len(front) + len(entry))
        return b"".join((_SIZE.pack(len(message_id)), message_id, size, front, entry))


def _with_placeholders(parts: list[bytes | memoryview], indexes: list[int], count: int) -> list[bytes | memoryview]:
    if count * len(_PLACEHOLDER) > LIMIT_BYTES:
        raise LimitExceeded(
            f"a batch of {count} messages and a placeholder for each does not fit an entry",
            hint="use --format reduced, which keeps none",
            messages=count,
        )
    listed: list[bytes | memoryview] = [_PLACEHOLDER] * count
    for index, part in zip(indexes, parts, strict=True):
        listed[index] = part
    return listed
