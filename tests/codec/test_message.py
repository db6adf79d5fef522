import pytest

from pulsar_admin.store.codec import message as codec
from pulsar_admin.store.codec.batch import encode_batch, iter_batch, placeholder
from pulsar_admin.store.codec.brokerentry import BrokerEntry, encode_broker_entry, split_broker_entry, strip
from pulsar_admin.store.codec.compactedentry import decode_compacted_entry, decode_original_id
from pulsar_admin.store.codec.message import decode_message_entry
from pulsar_admin.store.errors import EntryCorrupt
from pulsar_admin.store.names import Position
from pulsar_admin.store.proto.pulsar_api_pb2 import MarkerType, MessageMetadata, SingleMessageMetadata
from tests.encoders import encode_compacted_entry, encode_compacted_to, original_id

VECTOR_1 = bytes.fromhex("0a017010071880d095ffbc31")
VECTOR_2 = bytes.fromhex("0e02000000090885d095ffbc3110000e012037e6350000000c0a017010071880d095ffbc316869")
VECTOR_4 = bytes.fromhex(
    "0e0187aa57330000 00100a0170100818 80d095ffbc314818 580200000006 12026b3018027630 00000006 12026b3118027631"
)
NO_CHECKSUM = b"\x00\x00\x00\x0c" + VECTOR_1 + b"hi"


def _metadata(suffix: str = "") -> MessageMetadata:
    return MessageMetadata.FromString(VECTOR_1 + bytes.fromhex(suffix))


def test_vector_2() -> None:
    header = codec.decode_message_entry(VECTOR_2, "10:0")
    assert header.broker == BrokerEntry(1700000000005, 0)
    assert header.checksum == 0x2037E635
    assert (header.metadata.producer_name, header.metadata.sequence_id) == ("p", 7)
    assert header.metadata.publish_time == 1700000000000
    assert header.payload == b"hi"
    assert header.headers_and_payload == VECTOR_2[15:]
    assert codec.decode_entry_times(VECTOR_2) == (1700000000000, 1700000000005)
    assert codec.encode_message_entry(_metadata(), b"hi", broker=BrokerEntry(1700000000005, 0)) == VECTOR_2


def test_vector_4() -> None:
    header = codec.decode_message_entry(memoryview(VECTOR_4), "10:1")
    assert header.broker is None
    assert (header.metadata.uncompressed_size, codec.message_count(header.metadata)) == (24, 2)
    assert codec.is_batch(header.metadata)
    assert header.payload == VECTOR_4[-24:]
    assert codec.decode_entry_times(memoryview(VECTOR_4)) == (1700000000000, None)
    assert codec.encode_message_entry(header.metadata, header.payload) == VECTOR_4


def test_without_checksum() -> None:
    header = codec.decode_message_entry(NO_CHECKSUM, "10:0")
    assert (header.checksum, header.payload) == (None, b"hi")
    assert codec.decode_entry_times(NO_CHECKSUM) == (1700000000000, None)
    assert codec.encode_message_entry(_metadata(), b"hi", checksum=False) == NO_CHECKSUM


@pytest.mark.parametrize("offset", range(21, len(VECTOR_2)))
def test_every_flipped_byte_behind_the_checksum_is_found(offset: int) -> None:
    damaged = bytearray(VECTOR_2)
    damaged[offset] ^= 0x40
    with pytest.raises(EntryCorrupt) as caught:
        codec.decode_message_entry(bytes(damaged), "10:0")
    assert caught.value.context["expected"] == 0x2037E635


def test_the_checksum_can_be_left_out() -> None:
    damaged = VECTOR_2[:-1] + b"o"
    assert codec.decode_message_entry(damaged, "10:0", verify=False).payload == b"ho"


@pytest.mark.parametrize("entry", [VECTOR_2, VECTOR_4, NO_CHECKSUM], ids=["broker", "batch", "no checksum"])
def test_cut_anywhere(entry: bytes) -> None:
    payload_bytes = {VECTOR_2: 2, VECTOR_4: 24, NO_CHECKSUM: 2}[entry]
    for size in range(len(entry) - payload_bytes):
        with pytest.raises(EntryCorrupt):
            codec.decode_message_entry(entry[:size], "10:0", verify=False)
        with pytest.raises(EntryCorrupt):
            codec.decode_entry_times(entry[:size], "10:0")


def test_entries_that_are_no_messages() -> None:
    """Transaction logs and schema entries are bare protobuf."""
    for entry in (bytes.fromhex("0801100018ff"), bytes.fromhex("12080a0161120162"), b""):
        with pytest.raises(EntryCorrupt, match="10:0"):
            codec.decode_message_entry(entry, "10:0")
        with pytest.raises(EntryCorrupt, match="10:0"):
            codec.decode_entry_times(entry, "10:0")


def test_text_that_is_not_utf_8() -> None:
    for suffix in ("3201ff", "2a01ff", "2206 0a01ff 120176", "3a01ff", "d20101ff"):
        entry = codec.encode_message_entry(_metadata(suffix.replace(" ", "")), b"")
        with pytest.raises(EntryCorrupt, match="UTF-8"):
            codec.decode_message_entry(entry, "10:0")


def test_kinds_of_entries() -> None:
    plain = _metadata()
    assert not any(is_kind(plain) for is_kind in (codec.is_batch, codec.is_marker, codec.is_encrypted, codec.is_chunk))
    assert codec.message_count(plain) == 1
    assert codec.is_batch(_metadata("5801"))
    assert codec.is_marker(_metadata("a001" + f"{MarkerType.TXN_COMMIT:02x}"))
    assert codec.is_marker(_metadata("a00100"))
    assert codec.is_encrypted(_metadata("6a060a01611201 62".replace(" ", "")))
    assert codec.is_chunk(_metadata("d80103"))
    assert codec.transaction_id(plain) is None
    assert codec.transaction_id(_metadata("b00105b80109")) == (9, 5)


def test_an_unknown_codec_is_not_taken_for_none() -> None:
    assert _metadata("4063").compression == 99


def test_field_18_as_ordering_key_and_as_the_first_proposal_has_it() -> None:
    key, delay = _metadata("9201026f6b"), _metadata("9001e807")
    assert (key.ordering_key, codec.deliver_at_ms(key)) == (b"ok", 0)
    assert (delay.ordering_key, codec.deliver_at_ms(delay)) == (b"", delay.publish_time + 1000)
    assert codec.deliver_at_ms(_metadata("9001ffffffffffffffffff01")) == 0  # a delay of −1
    assert codec.deliver_at_ms(_metadata("a03f01")) == 0


# -- batches --------------------------------------------------------------------------------------------------------

VECTOR_3 = bytes.fromhex("00000006 12026b30 18027630 00000006 12026b31 18027631")
VECTOR_5 = bytes.fromhex("00000004 18002001 00000006 12026b31 18027631")
SLOT_1 = VECTOR_3[12:]


def _read(data: bytes, count: int, indexes: tuple[int, ...] = (), **options: bool) -> list[tuple[int, str, bytes]]:
    return [
        (message.index, message.metadata.partition_key, bytes(message.payload))
        for message in iter_batch(data, count, "10:1", indexes, **options)
    ]


def test_vector_3() -> None:
    assert _read(VECTOR_3, 2) == [(0, "k0", b"v0"), (1, "k1", b"v1")]
    assert encode_batch(iter_batch(VECTOR_3, 2, "10:1")) == VECTOR_3


def test_vector_5_with_and_without_the_retained_indexes() -> None:
    for indexes in ((), (1,)):
        assert _read(VECTOR_5, 2, indexes) == [(1, "k1", b"v1")]
    assert _read(VECTOR_5, 2, placeholders=True) == [(0, "", b""), (1, "k1", b"v1")]
    kept = SingleMessageMetadata(partition_key="k1")
    assert encode_batch([placeholder(), (kept, b"v1")]) == VECTOR_5


def test_only_the_retained_messages_are_there() -> None:
    """The other reading of the proposal: four messages, only index 1 kept, no placeholders."""
    assert _read(SLOT_1, 4, (1,)) == [(1, "k1", b"v1")]
    assert _read(VECTOR_3, 4, (0, 2)) == [(0, "k0", b"v0"), (2, "k1", b"v1")]


def test_nothing_left() -> None:
    gone = VECTOR_5[:8] * 2
    assert _read(gone, 2) == []


@pytest.mark.parametrize(
    ("data", "count", "indexes"),
    [
        (VECTOR_3, 3, ()),
        (VECTOR_3, 1, ()),
        (VECTOR_3, 0, ()),
        (VECTOR_3, -1, ()),
        (b"", 1, ()),
        (VECTOR_3, 4, (1,)),
        (VECTOR_3, 4, (0, 1, 2)),
        (VECTOR_3, 4, (2, 1)),
        (VECTOR_3, 4, (1, 1)),
        (VECTOR_3, 4, (1, 4)),
        (VECTOR_3, 4, (-1, 1)),
    ],
)
def test_counts_that_disagree(data: bytes, count: int, indexes: tuple[int, ...]) -> None:
    with pytest.raises(EntryCorrupt, match="10:1"):
        _read(data, count, indexes)


@pytest.mark.parametrize("size", [size for size in range(1, 24) if size != 12])
def test_cut_anywhere_of_batch(size: int) -> None:
    with pytest.raises(EntryCorrupt, match="10:1"):
        _read(VECTOR_3[:size], 2)


@pytest.mark.parametrize("slot", ["00000002 187f", "0000000b 18ffffffffffffffffff01", "00000003 120161", "ffffffff"])
def test_slots_that_lie(slot: str) -> None:
    with pytest.raises(EntryCorrupt):
        _read(bytes.fromhex(slot), 1)


# -- the broker's own metadata in front -----------------------------------------------------------------------------


def test_vector_of_brokerentry() -> None:
    entry, rest = split_broker_entry(memoryview(VECTOR_2), "10:0")
    assert entry == BrokerEntry(timestamp_ms=1700000000005, index=0)
    assert rest == VECTOR_2[15:]
    assert strip(memoryview(VECTOR_2), "10:0") == VECTOR_2[15:]
    assert encode_broker_entry(BrokerEntry(1700000000005, 0)) == VECTOR_2[:15]


def test_an_entry_without_it_is_left_alone() -> None:
    for payload in (VECTOR_2[15:], b"", b"\x0e"):
        assert split_broker_entry(memoryview(payload), "10:0") == (None, payload)


def test_either_field_may_be_absent() -> None:
    assert split_broker_entry(memoryview(b"\x0e\x02\0\0\0\x02\x10\x07rest"), "10:0") == (BrokerEntry(None, 7), b"rest")
    assert split_broker_entry(memoryview(b"\x0e\x02\0\0\0\0rest"), "10:0") == (BrokerEntry(None, None), b"rest")


@pytest.mark.parametrize("size", range(2, 15))
def test_cut_inside(size: int) -> None:
    with pytest.raises(EntryCorrupt, match="10:0"):
        split_broker_entry(memoryview(VECTOR_2[:size]), "10:0")


# -- entries of compacted ledgers -----------------------------------------------------------------------------------

VECTOR_6 = bytes.fromhex(
    "00000004 080a1003 00000031 0e011617538b 00000013 0a017010081880d095ffbc3148145802f80101"
    "0000000418002001 0000000612026b3118027631"
)


def test_vector_of_compactedentry() -> None:
    entry = decode_compacted_entry(VECTOR_6, "77:0")
    assert entry.position == Position(10, 3)
    assert entry.headers_and_payload == VECTOR_6[12:]
    assert encode_compacted_entry(entry.message_id, entry.headers_and_payload) == VECTOR_6
    header = codec.decode_message_entry(entry.headers_and_payload, "10:3")
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
def test_cut_anywhere_of_compactedentry(size: int) -> None:
    with pytest.raises(EntryCorrupt, match="77:0"):
        decode_compacted_entry(VECTOR_6[:size], "77:0")


def test_bytes_behind_the_entry() -> None:
    with pytest.raises(EntryCorrupt, match="1 bytes after"):
        decode_compacted_entry(VECTOR_6 + b"\0", "77:0")


@pytest.mark.parametrize("size", [2, 5])
def test_an_entry_cut_in_its_checksum_says_how_much_was_asked_for(size: int) -> None:
    with pytest.raises(EntryCorrupt) as cut:
        decode_message_entry(b"\x0e\x01\0\0\0\0"[:size], "here")
    assert (cut.value.context["expected"], cut.value.context["found"]) == (6, size)
