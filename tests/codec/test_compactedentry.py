from __future__ import annotations

import pytest

from pulsar_admin.store.codec.batch import iter_batch
from pulsar_admin.store.codec.compactedentry import decode_compacted_entry, decode_original_id
from pulsar_admin.store.codec.message import decode_message_entry
from pulsar_admin.store.errors import EntryCorrupt
from pulsar_admin.store.names import Position
from tests.encoders import encode_compacted_entry, encode_compacted_to, original_id

VECTOR_6 = bytes.fromhex(
    "00000004 080a1003 00000031 0e011617538b 00000013 0a017010081880d095ffbc3148145802f80101"
    "0000000418002001 0000000612026b3118027631"
)


def test_vector() -> None:
    entry = decode_compacted_entry(VECTOR_6, "77:0")
    assert entry.position == Position(10, 3)
    assert entry.headers_and_payload == VECTOR_6[12:]
    assert encode_compacted_entry(entry.message_id, entry.headers_and_payload) == VECTOR_6
    header = decode_message_entry(entry.headers_and_payload, "10:3")
    assert header.checksum == 0x1617538B
    messages = list(iter_batch(header.payload, 2, "10:3", header.metadata.compacted_batch_indexes))
    assert [(message.index, message.metadata.partition_key) for message in messages] == [(1, "k1")]


def test_ids_as_the_broker_writes_them() -> None:
    """Seen in Pulsar 4.0.8: partition −1 as ten bytes, no batch index; ``compactedTo`` with batch size 0."""
    written = encode_compacted_entry(original_id(Position(10, 3)), b"entry")
    assert written == bytes.fromhex("0000000f 080a 1003 18ffffffffffffffffff01 00000005") + b"entry"
    assert encode_compacted_entry(original_id(Position(10, 3), 2), b"")[4:10] == bytes.fromhex("080a10031802")
    assert encode_compacted_to(Position(10, 3)) == bytes.fromhex("080a 1003 3000")
    assert decode_original_id(bytes.fromhex("080a 1003 3000"), "ledger 77") == Position(10, 3)


@pytest.mark.parametrize("size", range(len(VECTOR_6)))
def test_cut_anywhere(size: int) -> None:
    with pytest.raises(EntryCorrupt, match="77:0"):
        decode_compacted_entry(VECTOR_6[:size], "77:0")


def test_bytes_behind_the_entry() -> None:
    with pytest.raises(EntryCorrupt, match="1 bytes after"):
        decode_compacted_entry(VECTOR_6 + b"\0", "77:0")
