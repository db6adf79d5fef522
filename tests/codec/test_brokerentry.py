from __future__ import annotations

import pytest

from pulsar_admin.store.codec.brokerentry import BrokerEntry, encode_broker_entry, split_broker_entry, strip
from pulsar_admin.store.errors import EntryCorrupt

VECTOR_2 = bytes.fromhex("0e0200000009 0885d095ffbc311000 0e012037e6350000000c0a017010071880d095ffbc316869")


def test_vector() -> None:
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
