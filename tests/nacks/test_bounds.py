"""Negative acknowledgements at their bounds: the largest delays, ids and sizes, and columns that do not fit."""

import numpy as np

from pulsar_admin.store.codec.cursor import Position
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.nacks import buckets, holes, segments, sizes, tracker
from tests.at_bounds import A_TOPIC, LONG, Answers, N, Texts, asking

ANSWERS: Answers = {
    sizes.seed_bytes: [((10, 4096, 4096), 20), ((10, 4095, 4096), 40)],
    holes._begins_by: [((5, N(entry_id=lambda index: 5)), True)],
    segments.check_column: [
        (("x", [0]), [0]), (("x", [LONG]), [LONG]), (("x", [-1]), InvalidValue), (("x", [LONG + 1]), InvalidValue)],
    segments.add_times: [
        ((np.array([LONG]), np.array([0])), [LONG]), ((np.array([LONG]), np.array([1])), InvalidValue)],
    sizes.NackLoad.__post_init__: [
        ((N(messages_per_second=1, delay_ms=delay_ms, batch_size=1, entries_per_ledger=1, acknowledged_every=every),),
            answer) for delay_ms, every, answer in ((1, 0, None), (LONG // 2**20, 2, None), (0, 0, InvalidValue),
            (LONG // 2**20 + 1, 0, InvalidValue), (1, -1, InvalidValue))] + [((N(messages_per_second=rate, delay_ms=1,
            batch_size=1, entries_per_ledger=1, acknowledged_every=0),), answer)
        for rate, answer in ((10**9, None), (10**9 + 1, InvalidValue), (0, InvalidValue))],
    tracker.NegativeAcksTracker.__init__: [
        ({"self": N(), "partition_index": index}, None if -2 <= index < 2**31 else InvalidValue)
        for index in (-3, -2, 2**31 - 1, 2**31)],
    tracker.NegativeAcksTracker.add: [
        ({"self": N(precision_bits=0, _put=lambda *ids: None), "position": Position(*ids), "delay_ms": 0, "now_ms": 7}, answer)
        for ids, answer in (((0, 0), 7), ((LONG, LONG), 7), ((LONG + 1, 0), InvalidValue), ((0, LONG + 1), InvalidValue))],
}  # fmt: skip
REFUSED: Texts = {
    buckets.iter_position_rows: [((['{"ledgerId": 1, "entryId": 1, ' + more], "f", A_TOPIC), text) for more, text in (
        ('"topic": "a/b/d"}', "it belongs to topic a/b/d"), ('"chunks": {}}', "chunks must be a list"),
        ('"chunks": [1]}', "a chunk is a position"), ('"delay": []}', "delay is a duration"))],
    segments._verify: [((N(precision_bits=0, buckets=np.array(buckets), ledgers=np.array([0, 0]), lengths=np.array([0, 0]),
        bitmaps=b""),), text) for buckets, text in (([-1, 0], "a negative number"), ([2, 1], "not in order"), ([1, 1], "not in order"))],
    segments.check_column: [(("x", [1.5]), "is not a column"), (("x", [[1], [1, 2]]), "invalid x: setting an array element")],
    segments.add_times: [((np.arange(2), np.arange(3)), "columns of different lengths")],
    tracker.NegativeAcksTracker.add_many: [({"self": tracker.NegativeAcksTracker(), "ledger_ids": [1], "entry_ids": [1, 2],
        "delays_ms": 1, "now_ms": 1}, "columns of different lengths")],
}  # fmt: skip
test_at_bounds = asking(ANSWERS, refused=REFUSED)
