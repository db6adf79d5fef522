"""Kernel over the heads of entries: the sender and its sequence ids. Layouts: docs/formats/message.md."""

import numpy as np

from pulsar_admin.store.kernels.compiled import kernel, part
from pulsar_admin.store.kernels.wire import BROKER_METADATA, METADATA, START, frame, has, i64, new_fields, read_message

SENT = np.dtype(
    [
        ("framed", np.int64),  # 1: a message or a marker; 0: no message entry, and nothing else is filled
        ("producer_start", np.int64),
        ("producer_size", np.int64),
        ("replicated_start", np.int64),
        ("replicated_size", np.int64),  # −1: sent to this cluster
        ("sequence_id", np.int64),
        ("last_sequence_id", np.int64),  # of its last message
        ("messages", np.int64),
        ("broker_index", np.int64),  # of its last message; −1: none
        ("schema_version", np.int64),  # −1: none, or one that is no number
        ("txn_most", np.int64),
        ("txn_least", np.int64),  # −1: in no transaction
        ("is_marker", np.int64),
        ("is_chunk", np.int64),
        ("key_start", np.int64),
        ("key_size", np.int64),  # −1: none
    ]
)
"""Who sent an entry; places are offsets into the batch's bytes."""


@kernel("starts")
def read_sent(data, starts, ends, sent):
    """Fill ``sent`` from the entry payloads data[starts[i]:ends[i]], of which ``data`` need only have the heads."""
    fields = new_fields()
    for i in range(starts.shape[0]):
        _read_one(data, starts[i], ends[i], fields, sent[i])


@part()
def _read_one(data, start, end, fields, out):
    out.framed = 0
    out.producer_size = out.replicated_size = out.key_size = -1
    out.broker_index = out.schema_version = out.txn_least = -1
    front, _, at, stop = frame(data, start, end)
    if at < 0:
        return
    if front > start:
        seen = read_message(data, start + 6, front, fields)
        if has(seen, BROKER_METADATA.index):
            out.broker_index = fields[BROKER_METADATA.index]
    seen = read_message(data, at, stop, fields)
    if seen & METADATA.required != METADATA.required:
        return
    out.framed = 1
    out.producer_start, out.producer_size = _span(fields, seen, METADATA.producer_name)
    out.replicated_start, out.replicated_size = _span(fields, seen, METADATA.replicated_from)
    out.sequence_id = fields[METADATA.sequence_id]
    out.messages = 1
    if has(seen, METADATA.num_messages_in_batch):
        out.messages = max(np.int64(1), fields[METADATA.num_messages_in_batch])
    out.last_sequence_id = out.sequence_id + out.messages - 1
    if has(seen, METADATA.highest_sequence_id):
        out.last_sequence_id = max(out.sequence_id, fields[METADATA.highest_sequence_id])
    if has(seen, METADATA.schema_version) and fields[METADATA.schema_version] == 8:
        out.schema_version = i64(data, fields[START + METADATA.schema_version])
    if has(seen, METADATA.txnid_least_bits) and has(seen, METADATA.txnid_most_bits):
        out.txn_most, out.txn_least = fields[METADATA.txnid_most_bits], fields[METADATA.txnid_least_bits]
    out.is_marker = has(seen, METADATA.marker_type)
    out.is_chunk = has(seen, METADATA.num_chunks_from_msg)
    out.key_start, out.key_size = _span(fields, seen, METADATA.partition_key)


@part(forceinline=True)
def _span(fields, seen, slot):
    if not has(seen, slot):
        return np.int64(0), np.int64(-1)
    return fields[START + slot], fields[slot]
