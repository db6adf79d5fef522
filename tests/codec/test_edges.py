"""What each codec writes it reads again, at the bounds of its numbers and texts, and over an older value of its own."""

from collections.abc import Callable
from typing import Any

import pytest

from pulsar_admin.store.codec import bookie, cursor, dbledger, delayedbucket, entry, ledgermetadata, policies, schema
from pulsar_admin.store.codec import managedledger as lists
from pulsar_admin.store.codec.brokerentry import BrokerEntry, encode_broker_entry, split_broker_entry
from pulsar_admin.store.codec.cursor import CursorInfo, CursorState
from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata, LedgerState, Segment
from pulsar_admin.store.codec.message import decode_message_entry, encode_message_entry
from pulsar_admin.store.codec.rocksvalue import NodeStat, decode_value, encode_value
from pulsar_admin.store.names import Position
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata
from tests import encoders

LONG, LEAST, UNSIGNED = 2**63 - 1, -(2**63), 2**64 - 1
TEXTS = {"": "", "ü🎈": "\0", "k" * 200: '"\\'}
FIRST, LAST = Position(0, -1), Position(LONG, LONG)
INDEX = schema.IndexEntry(LONG, LAST, b"\xff"), schema.IndexEntry(0, Position(-1, -1), b"")
OFFLOADED = lists.LedgerInfo(
    7, offloaded=True, offload_uuid=f"{'0' * 8}-0000-0001-ffff-{'f' * 12}", bookkeeper_deleted=True
)
LISTED = lists.LedgerInfo(0), OFFLOADED, lists.LedgerInfo(LONG, LONG, LONG, LONG, properties={"ü": ""})
QUOTA = {"message_age": policies.BacklogQuota(-1, LONG, "ü"), "": policies.BacklogQuota(0, 0, "")}


def metadata(state: LedgerState, segments: int, digest: DigestType | None, **more: Any) -> LedgerMetadata:
    members = tuple(Segment(first, ("ü:1", "", "b" * 80)) for first in (0, 1, LONG)[:segments])
    ends = (0, LONG) if state is LedgerState.CLOSED else (0, -1)
    return LedgerMetadata(3, 2, 3, 0, *ends, state, members, digest, None if digest is None else b"\0pw", **more)


Codec = tuple[Callable[..., Any], Callable[..., Any], list[Any]]
OVER: list[Codec] = [
    (
        cursor.encode_cursor_info,
        cursor.decode_cursor_info,
        [
            CursorInfo(-1, FIRST),
            CursorInfo(LONG, LAST, ((FIRST, LAST),), {LAST: (1,)}, {"": LEAST, "ü": LONG}, TEXTS, 0),
        ],
    ),
    (
        ledgermetadata.encode_ledger_metadata,
        ledgermetadata.decode_ledger_metadata,
        [
            metadata(LedgerState.OPEN, 1, None),
            *(metadata(LedgerState.CLOSED, 2, kind, ctime_ms=LONG, ctoken=-LONG) for kind in DigestType),
            metadata(LedgerState.IN_RECOVERY, 3, None, custom={"": b"", "ü": b"\xff" * 300}, ctoken=0),
        ],
    ),
    (
        lists.encode_managed_ledger,
        lists.decode_managed_ledger,
        [lists.ManagedLedger(), lists.ManagedLedger(LISTED), lists.ManagedLedger(LISTED[1:], LAST, TEXTS)],
    ),
    (
        policies.encode_policies,
        policies.decode_policies,
        [
            policies.Policies(),
            policies.Policies(policies.DelayedDelivery(False, 0), 0, policies.Retention(-1, -1)),
            policies.Policies(policies.DelayedDelivery(True, LONG), 2**31 - 1, policies.Retention(0, LONG), QUOTA),
        ],
    ),
]
"""Those that write over an older value, of which they keep what they do not know."""
ALONE: list[Codec] = [
    (
        lambda row: dbledger.encode_location_row(row),
        lambda row, where: dbledger.decode_location_row(*row, where),
        [dbledger.LocationRow(0, 0, 0, 0), dbledger.LocationRow(LONG, LONG, 2**31 - 1, 2**32 - 1)],
    ),
    (
        encoders.encode_position_info,
        cursor.decode_position_info,
        [CursorState(FIRST), CursorState(LAST, ((FIRST, LAST),), {LAST: (LEAST, LONG)}, {"": -1, "ü": LONG})],
    ),
    (
        encoders.encode_snapshot_segment,
        delayedbucket.decode_snapshot_segment,
        [(), (delayedbucket.DelayedIndex(0, 0, 0), delayedbucket.DelayedIndex(UNSIGNED, UNSIGNED, UNSIGNED))],
    ),
    (
        encoders.encode_snapshot_metadata,
        delayedbucket.decode_snapshot_metadata,
        [(), tuple(delayedbucket.SegmentMetadata(0, UNSIGNED, one) for one in ({}, {0: b"", UNSIGNED: b"\xff"}))],
    ),
    (
        encoders.encode_entry_ids,
        lambda bitmap, where: {*delayedbucket.decode_entry_ids(bitmap, where)},
        [set(), {0}, {2**32 - 1}, {*range(4097)}, {*range(70_000)}, {0, 65_535, 65_536}],
    ),
    (
        encoders.encode_entry,
        lambda body, where: entry.decode_entry(memoryview(body), None, where=where),
        [
            entry.Entry(LONG, LONG, -1, LONG, kind, memoryview(b"x" * 70))
            for kind in (DigestType.CRC32C, DigestType.HMAC)
        ],
    ),
    (
        bookie.encode_cookie,
        bookie.decode_cookie,
        [
            bookie.Cookie(3, 'a"\\', ("/ü",), ("/l",)),
            bookie.Cookie(4, "a", ("/j", "/k"), ('/l"', "/m"), "i"),
            bookie.Cookie(5, "a", ("/j",), ("/l",), None, ("/x", "/\\")),
        ],
    ),
    (
        ledgermetadata.ledger_path,
        lambda path, _: ledgermetadata.ledger_id_of_path(path),
        [0, 9, 10**9, 2**31, 10**18, LONG],
    ),
    (
        policies.encode_partitioned_topic,
        policies.decode_partitioned_topic,
        [policies.PartitionedTopic(0), policies.PartitionedTopic(2**31 - 1, True, TEXTS)],
    ),
    (
        lambda stat: encode_value(stat, b"\0\xff"),
        lambda raw, where: decode_value(raw, where)[0],
        [NodeStat(0, 0, 0, 0, False), NodeStat(LONG, LEAST, -1, LONG, True)],
    ),
    (
        schema.encode_schema_locator,
        schema.decode_schema_locator,
        [schema.SchemaLocator(INDEX[1], ()), schema.SchemaLocator(INDEX[0], INDEX)],
    ),
    (
        schema.encode_schema_entry,
        schema.decode_schema_entry,
        [
            schema.SchemaEntry("", "", 0, b"", 0, False),
            schema.SchemaEntry("ü", "u", -(2**31), b"\xff", LEAST, True, TEXTS, INDEX),
        ],
    ),
]


@pytest.mark.parametrize("number", range(len(OVER + ALONE)))
def test_what_is_written_is_read(number: int) -> None:
    encode, decode, values = [*OVER, *ALONE][number]
    for new in values:
        assert decode(encode(new), "x") == new
        for old in values if number < len(OVER) else ():
            assert decode(encode(new, encode(old)), "x") == new


@pytest.mark.parametrize(
    "broker", [None, BrokerEntry(None, None), BrokerEntry(UNSIGNED, 0), BrokerEntry(None, UNSIGNED)]
)
@pytest.mark.parametrize("checksum", [True, False])
def test_messages(broker: BrokerEntry | None, checksum: bool) -> None:
    if broker is not None:  # nothing stands behind it
        assert split_broker_entry(memoryview(encode_broker_entry(broker)), "x") == (broker, b"")
    metadata = MessageMetadata(producer_name="ü", sequence_id=UNSIGNED, publish_time=UNSIGNED, num_messages_in_batch=-1)
    for payload in (b"", b"\x0e\x01" * 20):
        header = decode_message_entry(encode_message_entry(metadata, payload, broker=broker, checksum=checksum), "x")
        assert (header.broker, header.metadata, header.payload) == (broker, metadata, payload)
        assert (header.checksum is not None) == checksum
