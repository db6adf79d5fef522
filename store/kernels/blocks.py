"""One pass over scanned records that cuts them into location blocks and sums each."""

from __future__ import annotations

import numpy as np

from store.kernels.compiled import kernel, part
from store.kernels.records import BAD_DIGEST, HAS_BROKER_TIME, UNFRAMED
from store.names import LONG_MAX, LONG_MIN

RUN = np.dtype(
    [
        ("start", np.int64),
        ("end", np.int64),
        ("ledger_id", np.int64),
        ("block", np.int64),
        ("messages", np.int64),
        ("payload_bytes", np.int64),
        ("publish_min_ms", np.int64),
        ("publish_max_ms", np.int64),
        ("broker_min_ms", np.int64),
        ("broker_max_ms", np.int64),
        ("auto_min_ms", np.int64),
        ("auto_max_ms", np.int64),
        ("broker_count", np.int64),
        ("unframed", np.int64),
        ("others", np.int64),  # records that do not hold exactly one message
        ("max_lac", np.int64),
        ("digest_bytes", np.int64),  # of the first record
        ("first_slot", np.int64),  # entry id & 1023
        ("last_slot", np.int64),
    ]
)


@part()
def _begin(run, record, start, block_bits):
    run.start = start
    run.ledger_id = record.ledger_id
    run.block = record.entry_id >> block_bits
    run.messages = run.payload_bytes = run.broker_count = run.unframed = run.others = 0
    run.publish_min_ms = run.broker_min_ms = run.auto_min_ms = LONG_MAX
    run.publish_max_ms = run.broker_max_ms = run.auto_max_ms = LONG_MIN
    run.max_lac = -1
    run.digest_bytes = record.digest_bytes
    run.first_slot = record.entry_id & ((1 << block_bits) - 1)


@part()
def _add(run, record, block_bits):
    messages = max(np.int64(record.messages), 0)  # a batch that claims a negative number has none
    run.last_slot = record.entry_id & ((1 << block_bits) - 1)
    run.messages += messages
    run.others += messages != 1
    run.payload_bytes += max(np.int64(record.size) - 32 - record.digest_bytes, 0)
    run.max_lac = max(run.max_lac, record.lac)
    has_broker = record.flags & HAS_BROKER_TIME != 0
    if has_broker:
        run.broker_count += 1
        run.broker_min_ms = min(run.broker_min_ms, record.broker_ms)
        run.broker_max_ms = max(run.broker_max_ms, record.broker_ms)
    if record.flags & UNFRAMED:
        run.unframed += 1
        return
    run.publish_min_ms = min(run.publish_min_ms, record.publish_ms)
    run.publish_max_ms = max(run.publish_max_ms, record.publish_ms)
    auto_ms = record.broker_ms if has_broker else record.publish_ms
    run.auto_min_ms = min(run.auto_min_ms, auto_ms)
    run.auto_max_ms = max(run.auto_max_ms, auto_ms)


@kernel(lambda records, *_: len(records) // 2)  # a row is half the work that one is elsewhere
def sum_blocks(records, runs, block_bits):
    """Cut RECORDS into RUNS, one for each block of 1 << BLOCK_BITS entry ids in turn; return how many.

    −1: a digest is bad, or the records are not in strictly ascending order of (ledger, entry); ``runs`` is worthless then.
    """
    count = 0
    for i in range(records.shape[0]):
        record = records[i]
        if record.flags & BAD_DIGEST:
            return -1
        block = record.entry_id >> block_bits
        begins = i == 0
        if i > 0:
            before = records[i - 1]
            same = before.ledger_id == record.ledger_id
            if before.ledger_id > record.ledger_id or (same and before.entry_id >= record.entry_id):
                return -1
            begins = not same or runs[count - 1].block != block
        if begins:
            if count > 0:
                runs[count - 1].end = i
            _begin(runs[count], record, i, block_bits)
            count += 1
        _add(runs[count - 1], record, block_bits)
    if count > 0:
        runs[count - 1].end = records.shape[0]
    return count
