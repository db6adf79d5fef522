import random

import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec.managedledger import (
    LedgerInfo,
    ManagedLedger,
    decode_ledger_ids,
    decode_managed_ledger,
    encode_managed_ledger,
    find_plain_ledgers,
    find_usual_ledgers,
)
from pulsar_admin.store.errors import MetadataCorrupt
from pulsar_admin.store.names import Position
from pulsar_admin.store.proto import managed_ledger_pb2

VECTOR_7 = bytes.fromhex("0a0e080a100518f4032080d095ffbc31 0a04080b2000")
VECTOR_8 = bytes.fromhex("4778 00000004 08011016 f007 0a0e080a100518f4032080d095ffbc310a04080b2000")
MEANING_7 = ManagedLedger((LedgerInfo(10, 5, 500, 1700000000000), LedgerInfo(11)))


@pytest.mark.parametrize("value", [VECTOR_7, VECTOR_8], ids=["plain", "LZ4"])
def test_vectors(value: bytes) -> None:
    assert decode_managed_ledger(value, "/path") == MEANING_7
    assert encode_managed_ledger(MEANING_7, value) == value
    assert encode_managed_ledger(MEANING_7) == VECTOR_7


def test_an_empty_value_is_a_topic_that_was_never_opened() -> None:
    assert decode_managed_ledger(b"", "/path") == ManagedLedger()
    assert encode_managed_ledger(ManagedLedger()) == b""


def test_a_value_of_a_real_broker() -> None:
    """Pulsar 4.0.8 with the index interceptor: two closed ledgers, one open, and the property of the last rollover."""
    value = bytes.fromhex(
        "0a0f 0807 1019 18efe003 209e8babeb9f34 0a0e 0821 1019 18f232 209095abeb9f34 0a04 082b 2000"
        "1a0c 0a05696e646578 1203313931"
    )
    expected = ManagedLedger(
        (LedgerInfo(7, 25, 61551, 1795252995486), LedgerInfo(33, 25, 6514, 1795252996752), LedgerInfo(43)),
        None,
        {"index": "191"},
    )
    assert decode_managed_ledger(value, "/path") == expected
    assert encode_managed_ledger(expected) == value


def test_terminated_and_minus_one() -> None:
    value = VECTOR_7 + bytes.fromhex("120d 080b 10ffffffffffffffffff01")
    expected = replace(MEANING_7, terminated=Position(11, -1))
    assert decode_managed_ledger(value, "/path") == expected
    assert encode_managed_ledger(expected) == value
    assert encode_managed_ledger(MEANING_7, value) == VECTOR_7


def test_field_6_as_the_proposal_numbers_it_and_as_merged() -> None:
    seed = bytes.fromhex("0a1c 080a 1005 18f403 2080d095ffbc31 30e807 38ffffffffffffffffff01")
    merged = bytes.fromhex("0a16 080a 1005 18f403 2080d095ffbc31 3206 0a016b 120176")
    both = bytes.fromhex("0a24 080a 1005 18f403 2080d095ffbc31 30e807 38ffffffffffffffffff01 3206 0a016b 120176")
    closed = MEANING_7.ledgers[0]
    assert decode_managed_ledger(seed, "/path").ledgers == (replace(closed, begin_publish_ms=1000, end_publish_ms=-1),)
    assert decode_managed_ledger(merged, "/path").ledgers == (replace(closed, properties={"k": "v"}),)
    assert decode_managed_ledger(both, "/path").ledgers == (
        replace(closed, properties={"k": "v"}, begin_publish_ms=1000, end_publish_ms=-1),
    )


def test_publish_times_are_kept_but_never_added() -> None:
    assert b"\x30" not in encode_managed_ledger(ManagedLedger((LedgerInfo(1, begin_publish_ms=5),)))
    seed = bytes.fromhex("0a0a 080a 2000 30e807 38e907")
    found = decode_managed_ledger(seed, "/path")
    changed = encode_managed_ledger(replace(found, properties={"k": "v"}), seed)
    assert decode_managed_ledger(changed, "/path") == replace(found, properties={"k": "v"})


def test_offload_context() -> None:
    message = managed_ledger_pb2.ManagedLedgerInfo()
    info = message.ledgerInfo.add(ledgerId=10, entries=5, size=500, timestamp=1)
    info.offloadContext.uidMsb = -0x1122334455667789
    info.offloadContext.uidLsb = 0x1122334455667788
    info.offloadContext.driverMetadata.name = "s3"
    found = decode_managed_ledger(message.SerializeToString(), "/path")
    assert found.ledgers[0].offload_uuid == "eeddccbb-aa99-8877-1122-334455667788"
    assert not found.ledgers[0].offloaded
    info.offloadContext.complete = info.offloadContext.bookkeeperDeleted = True
    found = decode_managed_ledger(message.SerializeToString(), "/path")
    assert (found.ledgers[0].offloaded, found.ledgers[0].bookkeeper_deleted) == (True, True)
    changed = encode_managed_ledger(replace(found, terminated=Position(10, 4)), message.SerializeToString())
    assert managed_ledger_pb2.ManagedLedgerInfo.FromString(changed).ledgerInfo[0] == info


def test_unknown_fields_survive_with_their_ledger() -> None:
    unknown = bytes.fromhex("a23f 03 616263")  # field 1012
    base = bytes.fromhex("0a0a 080a 2000") + unknown + bytes.fromhex("0a04 080b 2000") + unknown
    found = decode_managed_ledger(base, "/path")
    assert [info.ledger_id for info in found.ledgers] == [10, 11]
    first_gone = encode_managed_ledger(replace(found, ledgers=found.ledgers[1:]), base)
    assert first_gone == bytes.fromhex("0a04 080b 2000") + unknown
    last_gone = encode_managed_ledger(replace(found, ledgers=found.ledgers[:1]), base)
    assert last_gone == bytes.fromhex("0a0a 080a 2000") + unknown + unknown


def test_protobuf_text() -> None:
    text = b"ledgerInfo {\n  ledgerId: 10\n  entries: 5\n  size: 500\n  timestamp: 1700000000000\n}\n" + (
        b"ledgerInfo {\n  ledgerId: 11\n  timestamp: 0\n}\n"
    )
    assert decode_managed_ledger(text, "/path") == MEANING_7
    assert encode_managed_ledger(replace(MEANING_7, properties={"k": "v"}), text).startswith(VECTOR_7)


@pytest.mark.parametrize("value", [b"ledgerInfo {", b"hello", b"ledgerInfo { entries: 5 }", "é{".encode()])
def test_text_that_is_no_managed_ledger(value: bytes) -> None:
    with pytest.raises(MetadataCorrupt, match="/path"):
        decode_managed_ledger(value, "/path")


def test_missing_required_fields_and_bad_text() -> None:
    with pytest.raises(MetadataCorrupt, match="ledgerId"):
        decode_managed_ledger(bytes.fromhex("0a02 2000"), "/path")
    with pytest.raises(MetadataCorrupt, match="UTF-8"):
        decode_managed_ledger(bytes.fromhex("1a06 0a01ff 120176"), "/path")


def test_thirty_thousand_ledgers() -> None:
    many = ManagedLedger(tuple(LedgerInfo(number, 50_000, 10**9, 1700000000000 + number) for number in range(30_000)))
    value = encode_managed_ledger(many)
    assert decode_managed_ledger(value, "/path") == many


def test_ledgers_in_the_order_of_a_hash_map() -> None:
    """As the broker of the world ``offloaded`` stored those of topic large: it reads them into a sorted map."""
    stored = ManagedLedger(tuple(LedgerInfo(number, 400, 1, 1) for number in (8, 9, 21, 7)))
    value = encode_managed_ledger(stored)
    assert decode_managed_ledger(value, "/path", as_stored=True) == stored
    assert [info.ledger_id for info in decode_managed_ledger(value, "/path").ledgers] == [7, 8, 9, 21]
    assert encode_managed_ledger(decode_managed_ledger(value, "/path"), value) == value


def test_a_ledger_that_is_listed_twice_is_one() -> None:
    """``ManagedLedgerImpl.initialize`` (4.0.8) puts the ledgers into a map, one after the other."""
    first, second, last = LedgerInfo(8, 3, 30, 1), LedgerInfo(9, 4, 40, 1), LedgerInfo(8, 5, 50, 2)
    value = encode_managed_ledger(ManagedLedger((first, second, last)))
    assert decode_managed_ledger(value, "/path").ledgers == (last, second)
    assert decode_ledger_ids(value, "/path") == [8, 9]


def _drawn(draw: random.Random) -> bytes:
    """A ManagedLedgerInfo: half of them as brokers write nearly all, others with what a list may have besides."""
    message, odd = managed_ledger_pb2.ManagedLedgerInfo(), draw.random() < 0.5
    for ledger_id in (
        draw.sample((1, 2, 300, 2**40), draw.randrange(4)) if odd else sorted((5, 6, 2**33)[draw.randrange(4) :])
    ):
        info = message.ledgerInfo.add(ledgerId=ledger_id, timestamp=draw.choice((0, 1_700_000_000_000)))
        if info.timestamp:
            info.entries, info.size = draw.choice((0, 7)), draw.choice((0, 500))
        if odd and draw.random() < 0.4:
            info.offloadContext.complete, info.offloadContext.bookkeeperDeleted = (
                draw.random() < 0.7,
                draw.random() < 0.7,
            )
        if odd and draw.random() < 0.3:
            info.properties.add(key="k", value="v")
    if odd and message.ledgerInfo and draw.random() < 0.3:
        message.ledgerInfo.add().CopyFrom(message.ledgerInfo[0])
    if odd and draw.random() < 0.2:
        message.terminatedPosition.ledgerId, message.terminatedPosition.entryId = 5, 6
    for key in draw.choice(([], ["index"], ["PULSAR.SHADOW_SOURCE"], ["a", "b"]) if odd else ([], ["index"])):
        message.properties.add(key=key, value="17")
    return message.SerializeToString() + draw.choice((b"", b"", b"", b"\x98\x06\x01", b"\x0a\x03") if odd else (b"",))


def test_what_is_read_quickly_is_what_is_decoded() -> None:
    """Of lists as brokers write them, and of others; an unknown field, and a value that ends within one, are none of the usual."""
    draw, plain = random.Random(3), 0
    for _ in range(600):
        value = _drawn(draw)
        usual = find_usual_ledgers(value)
        if value.endswith((b"\x98\x06\x01", b"\x0a\x03")):
            assert usual is None
            continue
        decoded = decode_managed_ledger(value, "/path")
        assert usual is not None
        assert sorted(usual.ledger_ids) == [one.ledger_id for one in decoded.ledgers]
        assert sorted(decode_ledger_ids(value, "/path")) == [one.ledger_id for one in decoded.ledgers]
        assert sorted(decode_ledger_ids(value, "/path", on_bookies=True)) == [
            one.ledger_id for one in decoded.ledgers if not (one.offloaded and one.bookkeeper_deleted)
        ]
        rows = [(one.ledger_id, one.entries, one.size_bytes, one.timestamp_ms) for one in decoded.ledgers]
        is_odd = decoded.terminated is not None or "PULSAR.SHADOW_SOURCE" in decoded.properties
        is_odd |= any(one.offload_uuid or one.properties for one in decoded.ledgers)
        ids = [one.ledgerId for one in managed_ledger_pb2.ManagedLedgerInfo.FromString(value).ledgerInfo]
        is_odd |= ids != sorted(set(ids))
        assert usual.plain == (None if is_odd else rows)
        assert find_plain_ledgers(value) == (usual.plain if value else None)
        plain += not is_odd
    assert 200 < plain < 500
    later = b"\x0a\x11" + VECTOR_7[2:16] + b"\x98\x06\x01"
    assert find_usual_ledgers(later) is find_plain_ledgers(later) is None
    assert decode_managed_ledger(later, "/path").ledgers == MEANING_7.ledgers[:1]
