"""Kernel of compaction over entries: framing and metadata as spans and numbers.

It reads well-formed entries; any other is marked ``STRANGE`` and kept whole. Layouts: docs/formats/message.md,
compacted-ledger.md.
"""
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False, check-untyped-defs=False

import numpy as np

from pulsar_admin.store.kernels.compiled import kernel, part
from pulsar_admin.store.kernels.crc import checksum_matches
from pulsar_admin.store.kernels.wire import (
    MESSAGE_ID,
    METADATA,
    PACKED,
    START,
    copy,
    frame,
    has,
    new_fields,
    put_32,
    put_number,
    read_field,
    read_message,
    tag_of,
    u32,
    varint,
)

SINGLE, BATCH, ENCRYPTED_BATCH, CHUNK, MARKER, STRANGE, BROKEN, UNCOMMITTED = range(8)
"""Kinds of entries. STRANGE: no message that can be read; BROKEN: not even a compacted entry; UNCOMMITTED: of a transaction
that was not committed (told by the caller)."""

HAS_TRANSACTION, IN_SCRATCH, HAS_PLAIN_SIZE, BAD_INDEXES, SAYS_NULL, NULLS_AS_4_0 = 1, 2, 4, 8, 16, 32
"""Flags of entries. BAD_INDEXES: field 31 does not ascend within the batch. SAYS_NULL: field 25. NULLS_AS_4_0: told by the caller."""

ENTRY = np.dtype(
    [
        ("ledger_id", np.int64),  # the original position
        ("entry_id", np.int64),
        ("id_start", np.int64),  # the MessageIdData of a compacted entry; 0, 0 for others
        ("id_end", np.int64),
        ("start", np.int64),  # the entry as a topic holds it, broker metadata included
        ("end", np.int64),
        ("front_end", np.int64),  # after the broker metadata
        ("meta_start", np.int64),
        ("meta_end", np.int64),
        ("key_start", np.int64),
        ("key_length", np.int64),  # −1: no key
        ("plain_start", np.int64),  # the uncompressed payload, in scratch memory with IN_SCRATCH
        ("plain_end", np.int64),
        ("plain_bytes", np.int64),  # field 9, with HAS_PLAIN_SIZE
        ("publish_ms", np.int64),
        ("transaction_most", np.int64),
        ("transaction_least", np.int64),
        ("uuid_start", np.int64),
        ("uuid_length", np.int64),
        ("messages", np.int32),  # field 11, 1 outside batches
        ("codec", np.int32),
        ("chunk_id", np.int32),
        ("chunks", np.int32),
        ("indexes", np.int32),  # how many field 31 lists
        ("last_index", np.int64),  # the last one of them, −1 for none
        ("kind", np.uint8),
        ("flags", np.uint8),
    ]
)


@kernel("begins")
def read_entries(data, begins, ends, compacted, verify, rows):
    """Fill ``rows`` from the entry payloads data[begins[i]:ends[i]], which are a compacted ledger's if ``compacted``.

    Positions of others are left as they are. ``verify``: an entry whose own CRC-32C is wrong is STRANGE.
    """
    fields = new_fields()
    for i in range(begins.shape[0]):
        row = rows[i]
        _clear(row, begins[i], ends[i])
        if compacted and not _read_id(data, fields, row):
            row.kind = BROKEN
        elif _read_front(data, row, verify) and _read_metadata(data, fields, row):
            row.plain_start, row.plain_end = row.meta_end, row.end


@part()
def _clear(row, begin, end):
    row.id_start = row.id_end = 0
    row.start = row.front_end = row.meta_start = row.meta_end = row.plain_start = begin
    row.end = row.plain_end = end
    row.key_start = row.uuid_start = row.uuid_length = 0
    row.key_length = -1
    row.plain_bytes = row.publish_ms = row.transaction_most = row.transaction_least = 0
    row.messages = row.last_index = -1
    row.codec = row.chunk_id = row.chunks = row.indexes = 0
    row.kind = STRANGE
    row.flags = 0


@part()
def _read_id(data, fields, row):
    """Read ``u32 a | MessageIdData(a) | u32 b`` of a compacted entry; return False if the bytes are not that."""
    at, end = row.start, row.end
    if end - at < 8:
        return False
    id_start = at + 4
    id_end = id_start + u32(data, at)
    if id_end + 4 > end or u32(data, id_end) != end - id_end - 4:
        return False
    seen = read_message(data, id_start, id_end, fields)
    if seen & MESSAGE_ID.required != MESSAGE_ID.required:
        return False
    row.ledger_id, row.entry_id = fields[MESSAGE_ID.ledgerId], fields[MESSAGE_ID.entryId]
    row.id_start, row.id_end = id_start, id_end
    row.start = row.front_end = id_end + 4
    return True


@part()
def _read_front(data, row, verify):
    """Find the metadata after broker metadata and checksum; return False if the framing or the checksum is wrong."""
    row.front_end, checked, start, end = frame(data, row.start, row.end)
    if start < 0:
        return False
    if verify and checked > row.front_end and not checksum_matches(data, checked, row.end):
        return False
    row.meta_start, row.meta_end = start, end
    return True


@part()
def _read_metadata(data, fields, row):
    """Read the MessageMetadata; return False if it is not valid or lacks a required field."""
    seen = read_message(data, row.meta_start, row.meta_end, fields)
    if seen & METADATA.required != METADATA.required:
        return False
    row.publish_ms = fields[METADATA.publish_time]
    if has(seen, METADATA.compression):
        row.codec = fields[METADATA.compression]
    if has(seen, METADATA.uncompressed_size):
        row.plain_bytes = fields[METADATA.uncompressed_size]
        row.flags |= HAS_PLAIN_SIZE
    if has(seen, METADATA.num_messages_in_batch):
        row.messages = fields[METADATA.num_messages_in_batch]
    if has(seen, METADATA.txnid_least_bits) and has(seen, METADATA.txnid_most_bits):
        row.transaction_least = fields[METADATA.txnid_least_bits]
        row.transaction_most = fields[METADATA.txnid_most_bits]
        row.flags |= HAS_TRANSACTION
    if has(seen, METADATA.null_value) and fields[METADATA.null_value] != 0:
        row.flags |= SAYS_NULL
    if has(seen, METADATA.num_chunks_from_msg):
        row.chunks = fields[METADATA.num_chunks_from_msg]
    if has(seen, METADATA.chunk_id):
        row.chunk_id = fields[METADATA.chunk_id]
    if has(seen, METADATA.partition_key):
        row.key_start, row.key_length = fields[START + METADATA.partition_key], fields[METADATA.partition_key]
    if has(seen, METADATA.uuid):
        row.uuid_start, row.uuid_length = fields[START + METADATA.uuid], fields[METADATA.uuid]
    if has(seen, METADATA.compacted_batch_indexes) or has(seen, METADATA.compacted_batch_indexes + PACKED):
        _read_indexes(data, row)
    row.kind = _kind(row, seen)
    return True


@part()
def _read_indexes(data, row):
    """Read the indexes of the messages that compaction retained in the batch: in one packed field, or one each."""
    at, end = row.meta_start, row.meta_end
    while at < end:
        tag, value, start, at = read_field(data, at, end)
        if tag == tag_of(METADATA.compacted_batch_indexes):
            _take_index(row, value)
        elif tag == tag_of(METADATA.compacted_batch_indexes + PACKED):
            while 0 <= start < at:
                value, start = varint(data, start, at)
                _take_index(row, value)
    if row.indexes > 0 and row.last_index >= row.messages:
        row.flags |= BAD_INDEXES


@part()
def _take_index(row, index):
    row.indexes += 1
    if index <= row.last_index:
        row.flags |= BAD_INDEXES
    row.last_index = index


@part(inline="always")
def _kind(row, seen):
    if has(seen, METADATA.marker_type):
        return MARKER
    if row.chunks > 1:
        return CHUNK
    if row.messages == -1:
        return SINGLE
    if has(seen, METADATA.encryption_keys):
        return ENCRYPTED_BATCH
    return BATCH if row.messages >= 0 else STRANGE


# -- entries kept whole -----------------------------------------------------------------------------------------------


@kernel("chosen")
def frame_whole(data, rows, chosen, partition, out, starts):
    """Write ``u32 a | MessageIdData(a) | u32 b | entry(b)`` of every entry of ``chosen`` into ``out``; fills ``starts``, one more for the
    end.

    An entry of a compacted ledger keeps its id; any other gets one with ``partition``.
    """
    at = 0
    for k in range(chosen.shape[0]):
        row = rows[chosen[k]]
        starts[k] = at
        id_start = at + 4
        if row.id_end > row.id_start:
            end = copy(out, id_start, data, row.id_start, row.id_end - row.id_start)
        else:
            end = put_number(out, id_start, MESSAGE_ID.ledgerId, row.ledger_id)
            end = put_number(out, end, MESSAGE_ID.entryId, row.entry_id)
            end = put_number(out, end, MESSAGE_ID.partition, partition)
        put_32(out, at, end - id_start)
        put_32(out, end, row.end - row.start)
        at = copy(out, end + 4, data, row.start, row.end - row.start)
    starts[chosen.shape[0]] = at
