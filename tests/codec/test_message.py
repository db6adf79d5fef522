from __future__ import annotations

import pytest

from pulsar_admin.store.codec.brokerentry import BrokerEntry
from pulsar_admin.store.codec.message import (
    decode_entry_times,
    decode_message_entry,
    deliver_at_ms,
    encode_message_entry,
    is_batch,
    is_chunk,
    is_encrypted,
    is_marker,
    message_count,
    transaction_id,
)
from pulsar_admin.store.errors import EntryCorrupt
from pulsar_admin.store.proto.pulsar_api_pb2 import MarkerType, MessageMetadata

VECTOR_1 = bytes.fromhex("0a017010071880d095ffbc31")
VECTOR_2 = bytes.fromhex("0e02000000090885d095ffbc3110000e012037e6350000000c0a017010071880d095ffbc316869")
VECTOR_4 = bytes.fromhex(
    "0e0187aa57330000 00100a0170100818 80d095ffbc314818 580200000006 12026b3018027630 00000006 12026b3118027631"
)
NO_CHECKSUM = b"\x00\x00\x00\x0c" + VECTOR_1 + b"hi"


def _metadata(suffix: str = "") -> MessageMetadata:
    return MessageMetadata.FromString(VECTOR_1 + bytes.fromhex(suffix))


def test_vector_2() -> None:
    header = decode_message_entry(VECTOR_2, "10:0")
    assert header.broker == BrokerEntry(1700000000005, 0)
    assert header.checksum == 0x2037E635
    assert (header.metadata.producer_name, header.metadata.sequence_id) == ("p", 7)
    assert header.metadata.publish_time == 1700000000000
    assert header.payload == b"hi"
    assert header.headers_and_payload == VECTOR_2[15:]
    assert decode_entry_times(VECTOR_2) == (1700000000000, 1700000000005)
    assert encode_message_entry(_metadata(), b"hi", broker=BrokerEntry(1700000000005, 0)) == VECTOR_2


def test_vector_4() -> None:
    header = decode_message_entry(memoryview(VECTOR_4), "10:1")
    assert header.broker is None
    assert (header.metadata.uncompressed_size, message_count(header.metadata)) == (24, 2)
    assert is_batch(header.metadata)
    assert header.payload == VECTOR_4[-24:]
    assert decode_entry_times(memoryview(VECTOR_4)) == (1700000000000, None)
    assert encode_message_entry(header.metadata, header.payload) == VECTOR_4


def test_without_checksum() -> None:
    header = decode_message_entry(NO_CHECKSUM, "10:0")
    assert (header.checksum, header.payload) == (None, b"hi")
    assert decode_entry_times(NO_CHECKSUM) == (1700000000000, None)
    assert encode_message_entry(_metadata(), b"hi", checksum=False) == NO_CHECKSUM


@pytest.mark.parametrize("offset", range(21, len(VECTOR_2)))
def test_every_flipped_byte_behind_the_checksum_is_found(offset: int) -> None:
    damaged = bytearray(VECTOR_2)
    damaged[offset] ^= 0x40
    with pytest.raises(EntryCorrupt) as caught:
        decode_message_entry(bytes(damaged), "10:0")
    assert caught.value.context["expected"] == 0x2037E635


def test_the_checksum_can_be_left_out() -> None:
    damaged = VECTOR_2[:-1] + b"o"
    assert decode_message_entry(damaged, "10:0", verify=False).payload == b"ho"


@pytest.mark.parametrize("entry", [VECTOR_2, VECTOR_4, NO_CHECKSUM], ids=["broker", "batch", "no checksum"])
def test_cut_anywhere(entry: bytes) -> None:
    payload_bytes = {VECTOR_2: 2, VECTOR_4: 24, NO_CHECKSUM: 2}[entry]
    for size in range(len(entry) - payload_bytes):
        with pytest.raises(EntryCorrupt):
            decode_message_entry(entry[:size], "10:0", verify=False)
        with pytest.raises(EntryCorrupt):
            decode_entry_times(entry[:size], "10:0")


def test_entries_that_are_no_messages() -> None:
    """Transaction logs and schema entries are bare protobuf."""
    for entry in (bytes.fromhex("0801100018ff"), bytes.fromhex("12080a0161120162"), b""):
        with pytest.raises(EntryCorrupt, match="10:0"):
            decode_message_entry(entry, "10:0")
        with pytest.raises(EntryCorrupt, match="10:0"):
            decode_entry_times(entry, "10:0")


def test_text_that_is_not_utf_8() -> None:
    for suffix in ("3201ff", "2a01ff", "2206 0a01ff 120176", "3a01ff", "d20101ff"):
        entry = encode_message_entry(_metadata(suffix.replace(" ", "")), b"")
        with pytest.raises(EntryCorrupt, match="UTF-8"):
            decode_message_entry(entry, "10:0")


def test_kinds_of_entries() -> None:
    plain = _metadata()
    assert not any(is_kind(plain) for is_kind in (is_batch, is_marker, is_encrypted, is_chunk))
    assert message_count(plain) == 1
    assert is_batch(_metadata("5801"))
    assert is_marker(_metadata("a001" + f"{MarkerType.TXN_COMMIT:02x}"))
    assert is_marker(_metadata("a00100"))
    assert is_encrypted(_metadata("6a060a01611201 62".replace(" ", "")))
    assert is_chunk(_metadata("d80103"))
    assert transaction_id(plain) is None
    assert transaction_id(_metadata("b00105b80109")) == (9, 5)


def test_an_unknown_codec_is_not_taken_for_none() -> None:
    assert _metadata("4063").compression == 99


def test_field_18_as_ordering_key_and_as_the_first_proposal_has_it() -> None:
    key, delay = _metadata("9201026f6b"), _metadata("9001e807")
    assert (key.ordering_key, deliver_at_ms(key)) == (b"ok", 0)
    assert (delay.ordering_key, deliver_at_ms(delay)) == (b"", delay.publish_time + 1000)
    assert deliver_at_ms(_metadata("9001ffffffffffffffffff01")) == 0  # a delay of −1
    assert deliver_at_ms(_metadata("a03f01")) == 0
