"""Ledger metadata values and paths."""

import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.ledgermetadata import (
    LedgerMetadata,
    LedgerState,
    Segment,
    decode_digest_type,
    decode_ledger_metadata,
    decode_members,
    encode_ledger_metadata,
    ledger_id_of_path,
    ledger_path,
)
from pulsar_admin.store.errors import MetadataCorrupt, Unsupported
from tests.codec.bookkeeper_vectors import METADATA_V3
from tests.worlds import world
from tests.zookeeper_files import read_zookeeper_nodes

MEMBERS = ("10.0.0.1:3181", "10.0.0.2:3181")
CLOSED = LedgerMetadata(
    version=3,
    write_quorum=2,
    ensemble_size=2,
    ack_quorum=2,
    length=6,
    last_entry_id=2,
    state=LedgerState.CLOSED,
    segments=(Segment(0, MEMBERS),),
    digest_type=DigestType.CRC32C,
    password=b"",
    custom={"application": b"pulsar", "component": b"managed-ledger"},
    ctoken=0,
)
OPEN = replace(CLOSED, length=0, last_entry_id=-1, state=LedgerState.OPEN)
OPEN_V3 = (
    METADATA_V3[:30]
    + b"\x71"
    + METADATA_V3[31:35]
    + bytes.fromhex("18 00 20 ff ff ff ff ff ff ff ff ff 01 28 01")
    + METADATA_V3[41:]
)

TEXT_V2 = b"""BookieMetadataFormatVersion\t2
quorumSize: 2
ensembleSize: 3
length: 100
lastEntryId: 9
state: CLOSED
segment {
  ensembleMember: "a:1"
  ensembleMember: "b:1"
  ensembleMember: "c:1"
  firstEntryId: 0
}
segment {
  ensembleMember: "a:1"
  ensembleMember: "d:1"
  ensembleMember: "c:1"
  firstEntryId: 5
}
digestType: HMAC
password: "\\000pw\\""
ackQuorumSize: 1
ctime: 1700000000000
customMetadata {
  key: "k"
  value: "\\303\\244\\377"
}
"""


def test_version_3_vectors() -> None:
    assert len(OPEN_V3) == 144
    assert decode_ledger_metadata(METADATA_V3, "x") == CLOSED
    assert decode_ledger_metadata(OPEN_V3, "x") == OPEN
    assert encode_ledger_metadata(CLOSED) == METADATA_V3
    assert encode_ledger_metadata(OPEN) == OPEN_V3
    assert encode_ledger_metadata(CLOSED, base=OPEN_V3) == METADATA_V3


def test_version_2() -> None:
    found = decode_ledger_metadata(TEXT_V2, "x")
    assert found == LedgerMetadata(
        version=2,
        write_quorum=2,
        ensemble_size=3,
        ack_quorum=1,
        length=100,
        last_entry_id=9,
        state=LedgerState.CLOSED,
        segments=(Segment(0, ("a:1", "b:1", "c:1")), Segment(5, ("a:1", "d:1", "c:1"))),
        digest_type=DigestType.HMAC,
        password=b'\0pw"',
        ctime_ms=1700000000000,
        custom={"k": b"\xc3\xa4\xff"},
        ctoken=None,
    )
    assert decode_ledger_metadata(encode_ledger_metadata(found, base=TEXT_V2), "x") == replace(found, version=3)


@pytest.mark.parametrize(
    ("last_line", "state", "last_entry_id", "length"),
    [
        (b"", LedgerState.OPEN, -1, 0),
        (b"41\tCLOSED\n", LedgerState.CLOSED, 41, 1234),
        (b"41\tCLOSED", LedgerState.CLOSED, 41, 1234),
        (b"-1\tCLOSED\n", LedgerState.CLOSED, -1, 1234),
        (b"-102\tCLOSED\n", LedgerState.IN_RECOVERY, -1, 0),
    ],
)
def test_version_1(last_line: bytes, state: LedgerState, last_entry_id: int, length: int) -> None:
    value = b"BookieMetadataFormatVersion\t1\n2\n3\n1234\n0\ta:1\tb:1\tc:1\n10\ta:1\td:1\tc:1\n" + last_line
    assert decode_ledger_metadata(value, "x") == LedgerMetadata(
        version=1,
        write_quorum=2,
        ensemble_size=3,
        ack_quorum=2,
        length=length,
        last_entry_id=last_entry_id,
        state=state,
        segments=(Segment(0, ("a:1", "b:1", "c:1")), Segment(10, ("a:1", "d:1", "c:1"))),
    )


def test_digest_type_without_password_is_ignored() -> None:
    assert METADATA_V3[75:79] == bytes.fromhex("38034200")
    value = METADATA_V3[:30] + b"\x66" + METADATA_V3[31:77] + METADATA_V3[79:]
    found = decode_ledger_metadata(value, "x")
    assert (found.digest_type, found.password) == (None, None)
    assert decode_digest_type(value, "x") is None


@pytest.mark.parametrize(
    "value",
    [
        METADATA_V3[:30] + b"\x66" + METADATA_V3[31:75] + METADATA_V3[77:],
        TEXT_V2.replace(b"digestType: HMAC\n", b""),
    ],
)
def test_a_password_without_a_digest_type_is_that_of_crc32(value: bytes) -> None:
    """As BookKeeper's client reads it: the first of the enum."""
    assert len(value) in (len(METADATA_V3) - 2, len(TEXT_V2) - len("digestType: HMAC\n"))
    assert decode_ledger_metadata(value, "x").digest_type is DigestType.CRC32
    assert decode_digest_type(value, "x") is DigestType.CRC32


def test_the_digest_type_alone() -> None:
    assert decode_digest_type(METADATA_V3, "x") is DigestType.CRC32C
    assert decode_digest_type(TEXT_V2, "x") is DigestType.HMAC
    assert decode_digest_type(b"BookieMetadataFormatVersion\t1\n2\n3\n1234\n0\ta:1\tb:1\tc:1\n", "x") is None
    with pytest.raises(Unsupported):
        decode_digest_type(b"BookieMetadataFormatVersion\t4\n", "x")


def test_a_missing_ack_quorum_is_the_write_quorum() -> None:
    assert METADATA_V3[79:81] == bytes.fromhex("4802")
    value = METADATA_V3[:30] + b"\x66" + METADATA_V3[31:79] + METADATA_V3[81:]
    assert decode_ledger_metadata(value, "x").ack_quorum == 2


def test_unknown_fields_of_the_base_survive() -> None:
    unknown = bytes.fromhex("a20605 68656c6c6f")
    base = METADATA_V3[:30] + bytes([0x68 + len(unknown)]) + METADATA_V3[31:] + unknown
    assert decode_ledger_metadata(base, "x") == CLOSED
    assert encode_ledger_metadata(CLOSED, base) == base
    changed = encode_ledger_metadata(replace(CLOSED, last_entry_id=1, length=3), base)
    assert changed.endswith(unknown)
    assert decode_ledger_metadata(changed, "x") == replace(CLOSED, last_entry_id=1, length=3)


def test_changing_segments_and_custom_metadata() -> None:
    changed = replace(CLOSED, segments=(Segment(0, ("c:1", "d:1")),), custom={"component": b"schema"}, ctoken=None)
    assert decode_ledger_metadata(encode_ledger_metadata(changed, METADATA_V3), "x") == changed


def test_a_base_that_is_no_metadata_is_refused() -> None:
    with pytest.raises(MetadataCorrupt):
        encode_ledger_metadata(CLOSED, b"nothing")


@pytest.mark.parametrize("version", [0, 4, 9999999999])
def test_unknown_versions_are_unsupported(version: int) -> None:
    with pytest.raises(Unsupported):
        decode_ledger_metadata(b"BookieMetadataFormatVersion\t%d\n" % version, "x")


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"BookieMetadataFormatVersion\t3",
        b"BookieMetadataFormatVersion\t\n",
        b"BookieMetadataFormatVersion\t3\n",
        METADATA_V3[:-1],
        METADATA_V3 + b"\0",
        METADATA_V3[:30] + b"\x67" + METADATA_V3[31:],
        METADATA_V3[:40] + b"\x09" + METADATA_V3[41:],
        METADATA_V3[:34] + b"\x03" + METADATA_V3[35:],
        METADATA_V3[:32] + b"\x03" + METADATA_V3[33:],
        TEXT_V2.replace(b"state: CLOSED\n", b""),
        TEXT_V2.replace(b"lastEntryId: 9\n", b""),
        TEXT_V2.replace(b"firstEntryId: 5", b"firstEntryId: 0"),
        TEXT_V2.replace(b'  ensembleMember: "d:1"\n', b""),
        TEXT_V2.replace(b"ackQuorumSize: 1", b"ackQuorumSize: 3"),
        TEXT_V2.replace(b"state: CLOSED", b"state: NONE"),
        TEXT_V2.replace(b"segment {", b"segment [", 1),
        TEXT_V2 + b"\xff",
        TEXT_V2.replace(b'\\"', b"\\#"),
        TEXT_V2[: TEXT_V2.index(b"segment")],
        b"BookieMetadataFormatVersion\t1\n",
        b"BookieMetadataFormatVersion\t1\n1\n1\n0\n",
        b"BookieMetadataFormatVersion\t1\n1\n1\nx\n0\ta:1\n",
        b"BookieMetadataFormatVersion\t1\n1\n1\n0\n0\ta:1\tb:1\n",
        b"BookieMetadataFormatVersion\t1\n1\n1\n0\n0\ta:1\n1\tOPEN\tCLOSED\n",
        b"BookieMetadataFormatVersion\t1\n1\n1\n0\n\xff\ta:1\n",
    ],
)
def test_damaged_values_are_refused(value: bytes) -> None:
    with pytest.raises(MetadataCorrupt):
        decode_ledger_metadata(value, "x")


def test_every_cut_is_refused() -> None:
    for size in range(len(METADATA_V3)):
        for decode in (decode_ledger_metadata, decode_digest_type):
            with pytest.raises(MetadataCorrupt):
                decode(METADATA_V3[:size], "x")


@pytest.mark.parametrize(
    ("ledger_id", "path"),
    [
        (12345, "/ledgers/00/0001/L2345"),
        (0, "/ledgers/00/0000/L0000"),
        (2147483646, "/ledgers/21/4748/L3646"),
        (2147483647, "/ledgers/000/0000/0021/4748/L3647"),
        (4294967296, "/ledgers/000/0000/0042/9496/L7296"),
        (2**63 - 1, "/ledgers/922/3372/0368/5477/L5807"),
    ],
)
def test_path_table(ledger_id: int, path: str) -> None:
    assert ledger_path(ledger_id) == path
    assert ledger_id_of_path(path) == ledger_id


@pytest.mark.parametrize(("path", "ledger_id"), [("/ledgers/L0000012345", 12345), ("/ledgers/L4294967296", 4294967296)])
def test_flat_paths(path: str, ledger_id: int) -> None:
    assert ledger_id_of_path(path) == ledger_id


@pytest.mark.parametrize(
    "path",
    [
        *("/ledgers", "/ledgers/00", "/ledgers/00/0001", "/ledgers/LAYOUT", "/ledgers/INSTANCEID"),
        *("/ledgers/available/10.0.0.1:3181", "/ledgers/cookies/10.0.0.1:3181"),
        *("/ledgers/idgen/ID-0000000001", "/ledgers/idgen-long"),
        *("/ledgers/underreplication/ledgers/0000/0000/0000/0001/urL0000000001", "/ledgers/00/0001/L234"),
        *("/ledgers/00/0001/2345", "/ledgers/999/9999/9999/9999/L9999", "/ledgers/L123"),
        *("/ledgersx/00/0001/L2345", "/other/00/0001/L2345"),
    ],
)
def test_other_paths_name_no_ledger(path: str) -> None:
    assert ledger_id_of_path(path) is None


def test_members_are_those_of_the_whole_value() -> None:
    """Of the recorded cluster's ledgers, and of versions, ensemble changes and long ids that take the long way."""
    found = read_zookeeper_nodes(world("cluster") / "clean" / "zookeeper" / "version-2", [])
    values = [node.data for node in found if ledger_id_of_path(node.path) is not None]
    assert len(values) > 100
    one, other, long = Segment(0, ("a:1", "b:1")), Segment(7, ("b:1", "c:1")), Segment(0, ("x" * 80, "y" * 80))
    for segments in ((one,), (one, other), (long,), (long, other), (one, *(Segment(9 + n, MEMBERS) for n in range(9)))):
        values.append(encode_ledger_metadata(replace(CLOSED, segments=segments)))
    for value in values:
        expected = {member for segment in decode_ledger_metadata(value, "").segments for member in segment.members}
        assert decode_members(value, "") == expected
