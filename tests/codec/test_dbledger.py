"""Rows of DbLedgerStorage's databases."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.codec.dbledger import (
    LedgerData,
    LedgerRow,
    LocationRow,
    StorageFlags,
    decode_ledger_data,
    decode_ledgers_row,
    decode_location_row,
    encode_ledger_data,
    encode_ledgers_row,
    encode_location_row,
    newest_rows,
)
from store.errors import MetadataCorrupt
from tests.codec.bookkeeper_vectors import EMPTY_PASSWORD_KEY, FIXED, refusal

IDS = st.integers(0, 2**63 - 1)
KEY_1 = bytes.fromhex("0000000000000001")
VALUE_1 = bytes.fromhex("080110001a14") + EMPTY_PASSWORD_KEY
FLAGS_KEY = bytes.fromhex("ffffffffffff1103")

ledger_data = st.builds(
    LedgerData,
    exists=st.booleans(),
    fenced=st.booleans(),
    master_key=st.binary(max_size=20),
    explicit_lac=st.none() | st.binary(max_size=40),
    limbo=st.none() | st.booleans(),
)


def test_location_vector() -> None:
    key, value = bytes.fromhex("00000000000000010000000000000000"), bytes.fromhex("0000000100000404")
    row = LocationRow(ledger_id=1, entry_id=0, log_id=1, pos=1028)
    assert decode_location_row(key, value, "locations") == row
    assert encode_location_row(row) == (key, value)


@FIXED
@given(IDS, IDS, st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1))
def test_location_round_trip(ledger_id: int, entry_id: int, log_id: int, pos: int) -> None:
    row = LocationRow(ledger_id, entry_id, log_id, pos)
    assert decode_location_row(*encode_location_row(row), "locations") == row


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
    with pytest.raises(MetadataCorrupt, match="locations: "):
        decode_location_row(key, value, "locations")


def test_ledgers_vector() -> None:
    row = LedgerRow(1, LedgerData(exists=True, fenced=False, master_key=EMPTY_PASSWORD_KEY))
    assert decode_ledgers_row(KEY_1, VALUE_1, "ledgers") == row
    assert encode_ledgers_row(row) == (KEY_1, VALUE_1)


def test_optional_fields() -> None:
    value = VALUE_1 + bytes.fromhex("2204 01020304 2801")
    data = LedgerData(True, False, EMPTY_PASSWORD_KEY, b"\1\2\3\4", True)
    assert decode_ledger_data(value, "x") == data
    assert encode_ledger_data(data) == value


def test_the_8_byte_key_wins_over_the_stale_16_byte_one() -> None:
    stale_value = bytes.fromhex("080110011a00")
    rows = [decode_ledgers_row(KEY_1, VALUE_1, "x"), decode_ledgers_row(KEY_1 + bytes(8), stale_value, "x")]
    assert rows[1] == LedgerRow(1, LedgerData(True, True, b""), is_long_key=True)
    assert encode_ledgers_row(rows[1]) == (KEY_1 + bytes(8), stale_value)
    for order in (rows, rows[::-1], [*rows, StorageFlags(1)]):
        assert newest_rows(order) == {1: LedgerData(True, False, EMPTY_PASSWORD_KEY)}
    assert newest_rows(rows[1:]) == {1: LedgerData(True, True, b"")}


@pytest.mark.parametrize(("value", "needed"), [(0, False), (1, True), (2, False), (3, True)])
def test_storage_flags(value: int, needed: bool) -> None:
    row = decode_ledgers_row(FLAGS_KEY, value.to_bytes(8, "big"), "ledgers")
    assert row == StorageFlags(value)
    assert isinstance(row, StorageFlags)
    assert row.needs_integrity_check is needed
    assert encode_ledgers_row(row) == (FLAGS_KEY, value.to_bytes(8, "big"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", VALUE_1),
        (KEY_1[:7], VALUE_1),
        (KEY_1 + bytes(7), VALUE_1),
        (KEY_1 + bytes(7) + b"\1", VALUE_1),
        (b"\xff" * 8, VALUE_1),
        (FLAGS_KEY, bytes(7)),
        (FLAGS_KEY + bytes(8), VALUE_1),
        (KEY_1, b""),
        (KEY_1, VALUE_1[:-1]),
        (KEY_1, VALUE_1[:4]),
        (KEY_1, b"\xff" + VALUE_1),
    ],
)
def test_impossible_ledger_rows_are_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(MetadataCorrupt, match="ledgers"):
        decode_ledgers_row(key, value, "ledgers")


@FIXED
@given(IDS, ledger_data, st.booleans())
def test_ledgers_round_trip(ledger_id: int, data: LedgerData, is_long_key: bool) -> None:
    row = LedgerRow(ledger_id, data, is_long_key)
    assert decode_ledgers_row(*encode_ledgers_row(row), "ledgers") == row


@FIXED
@given(st.binary(max_size=20) | st.sampled_from([KEY_1, FLAGS_KEY, bytes(16)]), st.binary(max_size=60))
def test_arbitrary_bytes_raise_only_our_errors(key: bytes, value: bytes) -> None:
    for decode in (decode_location_row, decode_ledgers_row):
        error = refusal(partial(decode, key, value, "x"))
        assert error is None or str(error.context["where"]).startswith("x")
