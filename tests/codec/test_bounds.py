"""Codecs at their bounds: the largest numbers, none, a byte too few, and what they say of what they refuse."""

import struct
from functools import partial
from zlib import adler32, compress

from pulsar_admin.store.codec import (
    avro,
    bookie,
    brokerentry,
    buffer,
    claims,
    compression,
    cursor,
    dbledger,
    entry,
    entrylog,
    interceptors,
    java,
    journal,
    jute,
    ledgerindex,
    ledgermetadata,
    logscan,
    message,
    offload,
    packages,
    policies,
    policyevent,
    protobuf,
    scalable,
    schema,
    sequencefile,
    strict_values,
    transactions,
    value,
    wrapper,
    zookeeper,
    zookeeper_log,
)
from pulsar_admin.store.errors import EntryCorrupt, EntryLogCorrupt, JournalCorrupt, MetadataCorrupt, Unsupported
from pulsar_admin.store.proto.bookkeeper_pb2 import LedgerMetadataFormat
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageIdData
from tests.at_bounds import A_TOPIC, DAY, LONG, Answers, N, Texts, asking


def _offload_index(count: int, *blocks: tuple[int, int, int]) -> bytes:
    """Return the index of a data object of 5 bytes that says it has so many blocks."""
    metadata = LedgerMetadataFormat(
        quorumSize=1, ensembleSize=1, ackQuorumSize=1, length=0, state="OPEN", lastEntryId=-1
    )
    metadata.segment.add(ensembleMember=["a:1"], firstEntryId=0)
    body = metadata.SerializeToString()
    rows = b"".join(struct.pack(">qiq", *block) for block in blocks)
    size = offload._INDEX_HEAD.size + len(body) + len(rows)
    head = offload._INDEX_HEAD.pack(offload.INDEX_MAGIC, size, 5, offload._BLOCK_HEAD.size, count, len(body))
    return head + body + rows


MAP_FILE = b"SEQ\x06" + b"".join(
    bytes([len(name)]) + name.encode() for name in (sequencefile._KEY, sequencefile._VALUE)
)
EVENT = {"domain": "x", "tenant": "a", "namespace": "b", "topic": "c"}
HASHES = {"segmentId": 0, "hashRange": {"start": 0, "end": 1}, "state": "ACTIVE"}
ANSWERS: Answers = {
    buffer.signed: [((2**63,), -(2**63)), ((LONG,), LONG)],
    buffer.number_of: [((b"\xff" * 8 + b"\x7f",), LONG), ((b"\x80" * 9 + b"\x01",), -1)],
    compression.codec_name: [((0,), "NONE"), ((5,), "5"), ((-1,), "-1")],
    compression.may_fill: [((1, b"x", 255 + 64), True), ((1, b"x", 255 + 65), False), ((1, b"", 0), True)],
    dbledger.decode_location_row: [((bytes(16), bytes(8), "x"), dbledger.LocationRow(0, 0, 0, 0))],
    journal.encode_header: [((4,), b"BKLG\0\0\0\4"), ((5,), b"BKLG\0\0\0\5".ljust(512, b"\0"))],
    ledgermetadata.ledger_path: [((2**31 - 2,), "/ledgers/21/4748/L3646"),
        ((2**31 - 1,), "/ledgers/000/0000/0021/4748/L3647")],
    ledgermetadata.ledger_id_of_path: [(("/ledgers/922/3372/0368/5477/L5807",), LONG),
        (("/ledgers/922/3372/0368/5477/L5808",), None)],
    packages.decode_log_segment: [((b"0;1;2", "x"), MetadataCorrupt), ((b"256;1;2;3", "x"), (3, 1, 0))],
    strict_values.integer: [((0, "x"), 0), ((LONG, "x"), LONG), ((-1, "x"), ValueError)],
    strict_values.parse_integer: [((str(LONG),), LONG), ((str(LONG + 1),), None)],
    value._fraction: [((0,), ""), ((1000,), ".000001")],
    value._instant: [((bytes(12),), "1970-01-01T00:00:00Z"), ((struct.pack(">qi", 0, 10**9),), ValueError)],
    value._time_of_day: [((0,), "00:00:00"), ((DAY * 10**6,), ValueError)],
    value.split_pair: [((b"\xff" * 8,), (None, None)), ((bytes(8),), (b"", b"")),
        ((b"\xff\xff\xff\xfe" + bytes(4),), ValueError), ((b"\0\0\0\1a\0\0\0\1b",), (b"a", b"b"))],
    zookeeper_log._may_go_on: [((bytes(8) + b"\xff" * 4,), True), ((bytes(11) + b"\1\0",), True)],
    brokerentry.metadata_end: [((memoryview(b"\x0e\x02" + data), "x"), answer)
        for data, answer in ((bytes(4), 6), (bytes(3), EntryCorrupt), (b"\0\0\0\1", EntryCorrupt))],
    compression._stated_size_bytes: [((4, b"\x80\x80\x80\x80\x01"), 1 << 28), ((3, b"\x28\xb5\x2f\xfd"), None),
        ((3, b"\x28\xb5\x2f\xfd\x20\x07"), 7), ((3, b"\x28\xb5\x2f\xfd\x40\0\x01\0"), 257),
        ((3, b"\x28\xb5\x2f\xfd\0\0"), None)],
    entry._check_size: [((memoryview(b"ab"), 2, "x"), None), ((memoryview(b"ab"), 3, "x"), EntryCorrupt)],
    entrylog.EntryLogHeader.has_map: [
        ((N(version=version, ledgers_map_offset=1),), version == 1) for version in (0, 1)],
    entrylog.decode_header: [
        (((b"BKLO" + struct.pack(">iqi", version, 0, 0)).ljust(1024, b"\0"), "x"), answer)
        for version, answer in ((0, entrylog.EntryLogHeader(0, 0, 0)), (1, entrylog.EntryLogHeader(1, 0, 0)), (2, Unsupported))],
    entrylog._decode_map_batch: [
        ((struct.pack(">iqqi", 20 + 16 * count, -1, -2, count) + b"".join(struct.pack(">qq", ledger_id, size)
          for ledger_id in range(first, first + count)), 0, "x", {}), answer)
        for first, count, size, answer in ((0, 1, 1, 40), (0, 10_000, 1, 160_024), (0, 10_001, 1, EntryLogCorrupt),
                                           (-1, 1, 1, EntryLogCorrupt), (0, 1, 0, EntryLogCorrupt))],
    java.java_integer: [(("+2147483647", 2**31 - 1), 2**31 - 1), (("-2147483648", 2**31 - 1), -(2**31)),
        (("2147483648", 2**31 - 1), None), (("00", 1), 0), (("1.0", 1), None), (("1" * 20, LONG), None)],
    java.java_split: [(("",), [""]), (("a,,",), ["a"]), ((",",), [])],
    journal.decode_header: [
        ((b"BKLG" + struct.pack(">i", version), "x"), answer)
        for version, answer in ((1, Unsupported), (2, journal.JournalHeader(2, 8)), (4, journal.JournalHeader(4, 8)),
                                (5, journal.JournalHeader(5, 512)), (6, journal.JournalHeader(6, 512)), (7, Unsupported))],
    journal.journal_id_of: [
        (("f" * 16 + ".txn",), 2**64 - 1), (("f" * 17 + ".txn",), None), (("0.txn",), 0), ((".txn",), None)],
    jute.read_count: [
        ((N(i32=lambda: 5, remaining=left, where="x"),), 5 if left == 5 else MetadataCorrupt) for left in (4, 5)],
    jute.read_buffer: [((N(i32=lambda: 0, take=lambda size: b"!"),), b"")],
    ledgerindex._length: [
        ((N(i32=partial(int, size)), "x", "size"), size if 0 <= size <= 1024 else MetadataCorrupt)
        for size in (-1, 0, 1024, 1025)],
    ledgermetadata._version_of: [
        ((b"BookieMetadataFormatVersion\t%d\nrest" % version, "x"), (version, b"rest") if 1 <= version <= 3 else Unsupported)
        for version in (0, 1, 3, 4)],
    ledgermetadata._check: [
        ((N(ensemble_size=quorums[0], write_quorum=quorums[1], ack_quorum=quorums[2], length=length, last_entry_id=last,
            segments=[N(members=("a",), first_entry_id=first)]), "x"), answer)
        for quorums, length, last, first, answer in (
            ((1, 1, 1), 0, -1, 0, None), ((1, 1, 0), 0, -1, 0, None), ((1, 1, -1), 0, -1, 0, MetadataCorrupt),
            ((1, 0, 0), 0, -1, 0, MetadataCorrupt), ((1, 2, 1), 0, -1, 0, MetadataCorrupt),
            ((1, 1, 1), -1, -1, 0, MetadataCorrupt), ((1, 1, 1), 0, -2, 0, MetadataCorrupt),
            ((1, 1, 1), 0, -1, -1, MetadataCorrupt))],
    ledgermetadata._lone_of: [
        ((N(ensembleSize=1, quorumSize=1, ackQuorumSize=1, state=3, lastEntryId=last, length=length, customMetadata=[],
            segment=[N(ensembleMember=["b"], firstEntryId=0)], HasField=bool),), answer)
        for last, length, answer in ((-1, 0, ledgermetadata.LoneLedger(True, -1, 0, "b")), (-2, 0, None), (-1, -1, None))],
    logscan._frame: [
        ((struct.pack(">iqqqq", size, *ids) + bytes(8), 0, limit), answer)
        for size, ids, limit, answer in ((32, (0, 0, -1, 0), 36, logscan.Record(0, 32, 0, 0)), (41, (0, 0, -1, 0), 44, None),
            (31, (0, 0, -1, 0), 44, None), (32, (0, -1, -1, 0), 44, None), (32, (0, 0, -2, 0), 44, None),
            (32, (0, 0, -1, -1), 44, None))],
    logscan._torn_bytes: [((struct.pack(">iqqqq", size, *ids), 0, limit), answer)
        for size, ids, limit, answer in ((40, (0, 0, -1, 0), 3, 4), (40, (0, 0, -1, 0), 4, 44), (32, (0, 0, -1, 0), 36, None),
            (32, (0, 0, -1, 0), 20, 36), (31, (0, 0, -1, 0), 20, None), (256 << 20, (0, 0, -1, 0), 36, 4 + (256 << 20)),
            ((256 << 20) + 1, (0, 0, -1, 0), 36, None), (40, (-1, 0, 0, 0), 36, 44), (40, (-1, -2, 0, 0), 36, 44),
            (40, (-1, -3, 0, 0), 36, None), (40, (-1, 1, 0, 0), 36, None), (40, (0, 0, -2, 0), 36, None))],
    message.is_chunk: [((N(num_chunks_from_msg=count),), count > 1) for count in (1, 2)],
    message.is_encrypted: [((N(encryption_keys=keys),), bool(keys)) for keys in ([], [1])],
    offload.OffloadIndex.extent: [
        ((N(blocks=[N(offset=0), N(offset=5)], data_bytes=9), number), answer) for number, answer in ((0, (0, 5)), (1, (5, 9)))],
    policies._partitioned_topic: [
        (({"partitions": 2**31 - 1}, "x"), policies.PartitionedTopic(2**31 - 1, False, None)),
        (({"partitions": 2**31}, "x"), MetadataCorrupt)],
    schema.SchemaLocator.ledger_ids: [
        ((N(index=[N(position=N(ledger_id=0))], newest=N(position=N(ledger_id=-1))),), (0,))],
    sequencefile._vint: [
        ((N(u8=partial(int, first), take=lambda size: bytes([size])),), answer)
        for first, answer in ((127, 127), (144, -112), (143, 1), (136, 8), (135, -2), (128, -9))],
    value.plain: [((float(text),), text) for text in ("Infinity", "-Infinity")],
    zookeeper_log._record_end: [
        ((struct.pack(">qi", checksum, size) + rest, 0), answer)
        for checksum, size, rest, answer in (
            (1, 0, b"", 0), (1, 0, b"B", 0), (adler32(b"x"), 1, b"x", 0), (adler32(b"x"), 1, b"xB", 14), (1, 1, b"xB", 0))],
    interceptors.parse_interceptors: [(("timestamp,,timestamp, index",),
        ("AppendBrokerTimestampMetadataInterceptor", "AppendIndexMetadataInterceptor")), (("none",), ())],
    avro._Values._of: [((N(), {"type": "fixed", "size": size}), answer)
        for size, answer in ((0, 1), (1, 1 - avro.VALUES_PER_BYTE), (-1, EntryCorrupt))] + [((N(unpaid=int), schema), answer)
        for schema, answer in (({"type": "array", "items": 0}, 1 - avro.VALUES_PER_BYTE),
            ({"type": "array", "items": 1}, EntryCorrupt), ({"type": "map", "values": avro.VALUES_PER_BYTE}, EntryCorrupt),
            ({"type": "map", "values": avro.VALUES_PER_BYTE - 1}, 1 - avro.VALUES_PER_BYTE),
            ({"type": "record", "fields": [{"type": 2}, {"type": 3}]}, 6), ({"type": "enum"}, 1 - avro.VALUES_PER_BYTE))],
    entrylog.decode_trusted_map: [  # a size of 0 ends it, as the padding of direct writes does; a cut map is none
        ((bytes(1024) + tail, entrylog.EntryLogHeader(1, 1024, 0)), answer)
        for tail, answer in ((bytes(4), {}), (bytes(3), None), (b"\xff" * 4, {}), (b"", {}), (struct.pack(">i", 1), None),
                             (struct.pack(">iqqi", 20, -1, -2, 0), {}))] + [
        ((b"x" + struct.pack(">iqqiqqqq", 52, *batch) + bytes(4), entrylog.EntryLogHeader(version, 1, ledgers)), answer)
        for version, ledgers, *batch, answer in (
            (1, 1, -1, -2, 2, 0, 5, 0, 7, {0: 12}), (1, 2, -1, -2, 2, 0, 0, 1, 0, {0: 0, 1: 0}), (1, 2, -1, -2, 2, 0, 5, 0, 7, None),
            (0, 1, -1, -2, 2, 0, 5, 0, 7, None), (1, 1, -2, -2, 2, 0, 5, 0, 7, None), (1, 1, -1, -1, 2, 0, 5, 0, 7, None),
            (1, 1, -1, -2, 1, 0, 5, 0, 7, None), (1, 2, -1, -2, 2, 0, 5, -1, 7, None), (1, 2, -1, -2, 2, 0, 5, 1, -1, None))],
    zookeeper.SnapshotReader._fill: [
        ((N(_where="x", _data=b"", _more=lambda size: 5), size), answer)
        for size, answer in ((0, None), (5, None), (6, MetadataCorrupt), (-1, MetadataCorrupt))],
    journal._record: [
        ((struct.pack(">iqq", size, *ids) + tail, 0, size, "x", N(written_end=int, digest_type=lambda *span: "CRC32C")),
            answer) for size, *ids, tail, answer in ((16, 0, -0x2000, b"", journal.Fence(0, 0)),
            (16, -1, -0x2000, b"", JournalCorrupt), (17, 0, -0x2000, b"x", JournalCorrupt),
            (16, 0, -0x1000, b"", JournalCorrupt), (21, 0, -0x1000, b"\0\0\0\1k", journal.MasterKey(0, 0, b"k")),
            (20, 0, -0x8000, bytes(4), journal.ExplicitLac(0, 0, b"")),
            (16, 0, -1, b"", journal.UnknownRecord(0, 16, 0, -1)),
            (32, 0, 0, bytes(16), journal.JournalEntry(0, 32, 0, 0)), (31, 0, 0, bytes(15), JournalCorrupt))],
    claims.claimed_topic: [(({claims.SCHEMA_KEY: b"x"},), None)],
    compression.fills: [((compression.ZLIB, b"xx", memoryview(bytearray(3))), False)],
    cursor.rename_properties: [((b"\xff", str), None)],
    cursor._footer: [((b"{",), None), ((b'{"numParts":1}',), None), ((b'{"numParts":1,"length":2}',), (1, 2))],
    zookeeper_log._decode_usual: [((b"", 0, 0), None)],
}  # fmt: skip
REFUSED: Texts = {
    bookie.decode_cookie: [((b"3\nx", "c"), "lines of a cookie")],
    bookie.decode_last_mark: [((b"x", "m"), "last log mark")],
    buffer.Reader.varint: [((buffer.Reader(b"\xff" * 9 + b"\2", "v", EntryCorrupt),), "longer than 64 bits"),
        ((buffer.Reader(b"\xff" * 11, "v", EntryCorrupt),), "longer than 64 bits")],
    dbledger.decode_location_row: [((b"\xff" * 8 + bytes(8), bytes(8), "r"), "ledger, entry and log")],
    entrylog._decode_map_batch: [((memoryview(bytes(64)), 0, "m", {}), "no ledgers map @ 0x0")],
    jute.read_text: [((buffer.Reader(b"\0\0\0\1\xff", "j", MetadataCorrupt),), "a path that is not UTF-8")],
    ledgerindex.decode_ledger_index_header: [
        ((b"BKLE" + struct.pack(">4i", 1, 0, 0, 8) + bytes(1024), "i"), "length of the explicit LAC")],
    ledgermetadata._decode_text_v1: [((b"x", "m"), "version 1 text")],
    ledgermetadata._check: [((N(ensemble_size=2, write_quorum=1, ack_quorum=1, length=0, last_entry_id=-1,
        segments=[N(members=("a",), first_entry_id=0)]), "m"), "members of each segment")],
    message.decode_message_id: [((b"\xff",), "no message id"), ((b"",), "no whole message id")],
    policyevent._event: [(({"topicPoliciesEvent": None}, "e"), "names no topic"),
        (({"topicPoliciesEvent": EVENT}, "e"), "e: invalid topic domain")],
    protobuf.parse_text: [((MessageIdData, b"nonsense", "t"), "no MessageIdData"),
        ((MessageIdData, b"", "t"), "a required field is missing")],
    scalable.decode_scalable_topic: [((b'{"segments": []}', "s", A_TOPIC), "s: segments: expected an object"),
        ((b'{"properties": [1]}', "s", A_TOPIC), "properties: expected an object")],
    scalable._segment: [(("1", HASHES, "s", A_TOPIC), "its id is 0"),
        (("1", [], "s", A_TOPIC), "segment 1: expected an object"),
        (("0", HASHES | {"entryBucketSplits": {"a": 1}}, "s", A_TOPIC), "entryBucketSplits of segment 0: expected a list"),
        (("0", HASHES | {"legacyTopicName": "topic://a/b/c"}, "s", A_TOPIC), "is no persistent topic")],
    scalable._ids: [(({"parentIds": {"a": 1}}, "parentIds"), "parentIds: expected a list")],
    sequencefile._inflated: [((memoryview(b"xx"), "f", 0), "zlib: "),
        ((memoryview(compress(b"a"))[:-1], "f", 0), "do not end with it")],
    sequencefile._block: [((buffer.Reader(b"\0" + b"".join(bytes([len(part)]) + part
        for part in map(compress, (b"", b"", b"\1", b""))), "f", EntryLogCorrupt), "f", 0), "more than its records")],
    sequencefile.iter_map_file: [((MAP_FILE + b"\1\0\3lzo", "f"), "compressed with lzo"),
        ((b"SEQ\5", "f"), "version 6, found b'SEQ' version 5"), ((MAP_FILE + bytes(22) + b"\0\0\0\5\0\0\0\7", "f"), "a key of 7 bytes"),
        ((MAP_FILE + b"\0\1" + bytes(20) + b"\0\0\0\5", "f"), "no mark before a block")],
    strict_values.finite: [(("NaN",), "is not a number of JSON")],
    strict_values.json_value: [(("[" * 10**6,), "more than")],
    transactions.txn_of_key: [(("x", "t"), "expected COORDINATOR_NUMBER, found x")],
    transactions.decode_txn_header: [((b"{}", "t"), "no TxnHeader")],
    transactions.decode_txn_operation: [((b"{}", "t"), "no TxnOp")],
    wrapper.unwrap: [((b"\x47\x78" + b"\0\0\0\x63" + bytes(9), None, "w"), "compression header of 99 bytes")],
    zookeeper.iter_snappy: [((b"\0\0\0\1x", "z"), "no snappy stream")],
    bookie._decode_dirs: [(("3\ta", "c"), "expected 3 of them")],
    offload.decode_offload_index: [
        ((offload._INDEX_HEAD.pack(offload.INDEX_V2_MAGIC, 32, 0, 28, 1, 0), "o"), "an index of streaming offload"),
        ((_offload_index(1, (0, 0, 0), (1, 0, 3)), "o"), "1 blocks do not fill"),
        ((_offload_index(1, (1, 0, 0)), "o"), "do not follow each other"),
        ((_offload_index(1, (0, 0, 5)), "o"), "do not follow each other"),
        ((_offload_index(2, (0, 0, 0), (0, 1, 1)), "o"), "do not follow each other")],
    offload.iter_block_entries: [
        ((offload._BLOCK_HEAD.pack(offload.BLOCK_MAGIC, 28, 40, 3) + offload._ENTRY_HEAD.pack(size, entry_id), 3, "o"), said)
        for size, entry_id, said in ((0, 4, "o + 0x1c: expected entry 3, found one of id 4"), (1, 3, "found one of id 3 and 1 bytes"))],
    policyevent.encode_policy_event: [
        ((policyevent.PolicyEvent(A_TOPIC, "INSERT", {}), policyevent.AvroSchema(b'"int"')), "does not fit the schema of __change_events")],
}  # fmt: skip
test_at_bounds = asking(ANSWERS, refused=REFUSED)
