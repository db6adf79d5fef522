"""Rows of DbLedgerStorage's databases."""

import pytest

from pulsar_admin.store.codec import dbledger as codec
from pulsar_admin.store.errors import MetadataCorrupt
from tests.codec.bookkeeper_vectors import EMPTY_PASSWORD_KEY

KEY_1 = bytes.fromhex("0000000000000001")
VALUE_1 = bytes.fromhex("080110001a14") + EMPTY_PASSWORD_KEY


def test_location_vector() -> None:
    key, value = bytes.fromhex("00000000000000010000000000000000"), bytes.fromhex("0000000100000404")
    row = codec.LocationRow(ledger_id=1, entry_id=0, log_id=1, pos=1028)
    assert codec.decode_location_row(key, value, "locations") == row
    assert codec.encode_location_row(row) == (key, value)
    first = codec.LocationRow(ledger_id=0, entry_id=0, log_id=0, pos=1028)
    assert codec.decode_location_row(bytes(16), bytes.fromhex("0000000000000404"), "locations") == first


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (bytes(15), bytes(8)),
        (bytes(17), bytes(8)),
        (bytes(16), bytes(7)),
        (bytes(16), bytes(9)),
        (b"\xff" + bytes(15), bytes(8)),
        (bytes(8) + b"\x80" + bytes(7), bytes(8)),
        (bytes(16), b"\x80" + bytes(7)),
    ],
)
def test_impossible_locations_are_refused(key: bytes, value: bytes) -> None:
    sizes = rf" expected \[16, 8\], found \[{len(key)}, {len(value)}\]"
    with pytest.raises(MetadataCorrupt, match="locations: .*" + (sizes if len(key + value) != 24 else " >= 0")):
        codec.decode_location_row(key, value, "locations")


def test_ledgers_vector() -> None:
    data = codec.LedgerData(exists=True, fenced=False, master_key=EMPTY_PASSWORD_KEY)
    assert codec.encode_ledgers_row(1, data) == (KEY_1, VALUE_1)


def test_optional_fields() -> None:
    value = VALUE_1 + bytes.fromhex("2204 01020304 2801")
    data = codec.LedgerData(True, False, EMPTY_PASSWORD_KEY, b"\1\2\3\4", True)
    assert codec.encode_ledgers_row(1, data) == (KEY_1, value)
