import hashlib
import struct

import pytest

from pulsar_admin.store.codec import schema as codec
from pulsar_admin.store.codec.value import key_bytes, split_pair
from pulsar_admin.store.errors import EntryCorrupt, MetadataCorrupt
from pulsar_admin.store.names import Position

# /schemas/public/default/avro of a Pulsar 4.0.8.
HASH = bytes.fromhex("11838e04d77c68e6e620bc8f660fd751762ab5f83011856240a081b848015e4c")
LOCATOR = (bytes.fromhex("0a2a 0800 1204 0847 1000 1a20") + HASH) + (
    bytes.fromhex("122a 0800 1204 0847 1000 1a20") + HASH
)
FIRST = codec.IndexEntry(0, Position(71, 0), HASH)

DEFINITION = b'"string"'
INFO = b"\x0a\x05t/n/a\x12\x00\x18\x05\x22\x08" + DEFINITION + bytes.fromhex("28 80d095ffbc31 3000")
ENTRY = (
    b"\x12"
    + bytes([len(INFO)])
    + INFO
    + bytes.fromhex("2a3c 0800 1216 08ffffffffffffffffff01 10ffffffffffffffffff01 1a20")
    + hashlib.sha256(DEFINITION).digest()
)


def test_locator() -> None:
    expected = codec.SchemaLocator(FIRST, (FIRST,))
    assert codec.decode_schema_locator(LOCATOR, "/path") == expected
    assert codec.encode_schema_locator(expected) == LOCATOR
    assert expected.ledger_ids == (71,)


def test_entry() -> None:
    expected = codec.SchemaEntry(
        schema_id="t/n/a",
        user="",
        type=5,
        definition=DEFINITION,
        timestamp_ms=1700000000000,
        deleted=False,
        index=(codec.IndexEntry(0, Position(-1, -1), hashlib.sha256(DEFINITION).digest()),),
    )
    assert codec.decode_schema_entry(ENTRY, "71:0") == expected
    assert codec.encode_schema_entry(expected) == ENTRY
    assert expected.type_name == "AVRO"


def test_unknown_fields_of_a_locator_survive() -> None:
    base = LOCATOR + bytes.fromhex("a23f03616263")
    second = codec.IndexEntry(1, Position(80, 0), b"hash")
    changed = codec.encode_schema_locator(codec.SchemaLocator(second, (FIRST, second)), base)
    assert changed.endswith(bytes.fromhex("a23f03616263"))
    assert codec.decode_schema_locator(changed, "/path") == codec.SchemaLocator(second, (FIRST, second))


def test_values_that_are_no_schema() -> None:
    with pytest.raises(MetadataCorrupt, match="/path"):
        codec.decode_schema_locator(b"", "/path")
    with pytest.raises(EntryCorrupt, match="71:0"):
        codec.decode_schema_entry(bytes.fromhex("1203 0a0161"), "71:0")


def test_keys_are_text_unless_they_say_that_they_are_base64() -> None:
    assert [key_bytes(key, False) for key in ("a2V5", "", "k-1", "é")] == [b"a2V5", b"", b"k-1", b"\xc3\xa9"]
    assert [key_bytes(key, True) for key in ("a2V5", "", "AAEC")] == [b"key", b"", b"\x00\x01\x02"]
    assert [key_bytes(None, is_base64) for is_base64 in (False, True)] == [None, None]
    with pytest.raises(ValueError, match="its key is not base64"):
        key_bytes("k-1", True)


def test_the_two_parts_of_a_pair() -> None:
    """``KeyValue.decode``: a length, −1 for null, and its bytes, twice."""
    null, empty = b"\xff" * 4, bytes(4)
    assert split_pair(empty + b"\0\0\0\2ab") == (b"", b"ab")
    assert split_pair(null + b"\0\0\0\1a") == (None, b"a")
    assert split_pair(b"\0\0\0\1a" + null) == (b"a", None)
    for bad in (b"\xff\xff\xff\xfe" + empty, b"\0\0\0\6a" + empty, empty + empty + b"x"):
        with pytest.raises(ValueError, match="bytes"):
            split_pair(bad)
    for cut in (empty + b"\0\0", b"\0\0\0\5a" + empty, b""):
        with pytest.raises(struct.error):
            split_pair(cut)
