"""Ledger metadata: the value of a ledger's node in the metadata store, and the node's path.

Source: ``LedgerMetadataSerDe``, ``LedgerMetadataImpl``, ``HierarchicalLedgerManager``,
``LongHierarchicalLedgerManager``, ``FlatLedgerManager``, ``StringUtils``; BookKeeper 4.9 to 4.18.

Value: ``BookieMetadataFormatVersion`` TAB version LF, then by version:

=======  ==============================================================================================
version  rest
=======  ==============================================================================================
1        text lines: write quorum; ensemble size; length; a line per segment (``firstEntry TAB bookie TAB …``);
         ``lastEntryId TAB CLOSED``, or ``-102 TAB CLOSED`` = in recovery, or nothing = open
2        LedgerMetadataFormat in protobuf's text format
3        varint byte count, LedgerMetadataFormat in binary
=======  ==============================================================================================

Paths below the root: ``00/0001/L2345`` (``%010d`` cut 2-4-4, ids below 2147483647), ``000/0000/0042/9496/L7296``
(``%019d`` cut 3-4-4-4-4), or flat ``L%010d``. We write version 3 and the hierarchical paths only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

from google.protobuf.message import Message
from msgspec import Struct, field

from pulsar_admin.store.codec.buffer import VARINT, Reader, compiled, encode_varint, number_of
from pulsar_admin.store.codec.digest import DigestType
from pulsar_admin.store.codec.protobuf import loses_unknown_fields, parse_protobuf, parse_text, text_of, unknown_fields
from pulsar_admin.store.errors import MetadataCorrupt, Unsupported
from pulsar_admin.store.names import LONG_MAX
from pulsar_admin.store.proto.bookkeeper_pb2 import LedgerMetadataFormat
from pulsar_admin.store.wording import Answer, one_line

LEDGERS_ROOT = "/ledgers"
INSTANCE_ID, COOKIES = f"{LEDGERS_ROOT}/INSTANCEID", f"{LEDGERS_ROOT}/cookies"
"""Nodes of the cluster's instance id, and of its bookies' cookies."""
LAYOUT = f"{LEDGERS_ROOT}/LAYOUT"
"""The node that names the class by which bookies list ledgers (``LedgerLayout``, ``AbstractZkLedgerManagerFactory``)."""
PULSARS_LAYOUT = "2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
_LAYOUT = (
    rb"2\norg\.apache\.bookkeeper\.meta\.(Hierarchical|LegacyHierarchical|LongHierarchical|Flat)LedgerManagerFactory:1(?:\n(?s:.*))?"
    rb"|1\n(hierarchical|flat):1(?:\n(?s:.*))?"
)
_DEPTHS = {b"Hierarchical": (3, 5), b"LegacyHierarchical": (3,), b"LongHierarchical": (5,), b"Flat": (1,)}

_VERSION_KEY = b"BookieMetadataFormatVersion\t"
_VERSION_LINE = rb"BookieMetadataFormatVersion\t(\d{1,10})\n"
_VERSION_3 = _VERSION_KEY + b"3\n"
_SEGMENT_TAG = b"2"  # field 6, with a length
_ONE_SEGMENT = (
    rb"(?s)BookieMetadataFormatVersion\t3\n[\x80-\xff]*[\x00-\x7f]"
    rb"(?:[\x08\x10\x18\x20\x28][\x80-\xff]*[\x00-\x7f])+2([\x01-\x7f])"
)
"""A usual value up to the first byte of its first segment: fields 1 to 5 are integers; the group is the segment's length."""
_OF_PULSAR = (
    rb"(?s)BookieMetadataFormatVersion\t3\n([\x80-\xff])([\x01-\x7f])"
    rb"(\x08[\x00-\x7f]\x10[\x00-\x7f])\x18(?!\xff{9})(%b)(?:\x20(%b))?(\x28.*?)Z([\x00-\x7f])\n\x15pulsar/managed-ledger\x12([\x00-\x7f])"
) % (VARINT, VARINT)
"""A value as Pulsar writes nearly all, up to the name of the topic: the numbers and that name are what tells ledgers apart.
No length is −1."""
_PAIR_BYTES = 25  # of the tags, sizes and key before that name
_IN_RECOVERY_V1: Final = -102
_LONG_PATH_FROM = 2**31 - 1

# Compiled where they are first used, as _ONE_SEGMENT: a cold question parses no paths.
_SHORT = r"/(\d{2})/(\d{4})/L(\d{4})"
_LONG = r"/(\d{3})/(\d{4})/(\d{4})/(\d{4})/L(\d{4})"
_FLAT = r"/L(\d{10,19})"
_DIGEST_TYPES = {int(kind): kind for kind in DigestType}  # five times as fast as calling the class


class LedgerState(IntEnum):
    """``LedgerMetadataFormat.State``."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


class Segment(NamedTuple):
    """The ensemble that holds the entries from ``first_entry_id`` on; members are bookie ids."""

    first_entry_id: int
    members: tuple[str, ...]

    def __repr__(self) -> str:
        return one_line(self)


class LedgerMetadata(Answer, frozen=True):
    """A ledger as its creator and its closer described it.

    ``length`` (payload bytes) and ``last_entry_id`` are meaningful if CLOSED and are 0 and -1 otherwise.
    ``digest_type`` is None without a password, as upstream ignores it then, and CRC32 with a password alone. ``ctoken`` is None if absent.
    """

    version: int
    write_quorum: int
    ensemble_size: int
    ack_quorum: int
    length: int
    last_entry_id: int
    state: LedgerState
    segments: tuple[Segment, ...]
    digest_type: DigestType | None = None
    password: bytes | None = None
    ctime_ms: int | None = None
    custom: Mapping[str, bytes] = field(default_factory=dict)
    ctoken: int | None = None


def closed_ledger(
    bookie: str, entries: int, length: int, custom: Mapping[str, bytes], digest_type: DigestType = DigestType.CRC32C
) -> LedgerMetadata:
    """Return the metadata of a closed ledger without a password, with all its entries on one bookie."""
    return closed_over((Segment(0, (bookie,)),), 1, entries - 1, length, custom, digest_type)


def closed_over(
    segments: tuple[Segment, ...],
    write_quorum: int,
    last_entry_id: int,
    length: int,
    custom: Mapping[str, bytes],
    digest_type: DigestType | None,
    ack_quorum: int = 0,
) -> LedgerMetadata:
    """Return the metadata of a closed ledger without a password; ``ack_quorum`` 0 means the write quorum."""
    return LedgerMetadata(
        version=3,
        write_quorum=write_quorum,
        ensemble_size=len(segments[0].members),
        ack_quorum=ack_quorum or write_quorum,
        length=length,
        last_entry_id=last_entry_id,
        state=LedgerState.CLOSED,
        segments=segments,
        digest_type=digest_type,
        password=b"",
        custom=custom,
        ctoken=0,
    )


@lru_cache(maxsize=1024)  # one pass of a check asks for the same ledger at four places
def decode_ledger_metadata(value: bytes, where: str) -> LedgerMetadata:
    """Return decoded ledger metadata (versions 1 to 3); raises MetadataCorrupt, or Unsupported for another version."""
    version, rest = _version_of(value, where)
    if version == 1:
        metadata = _decode_text_v1(rest, where)
    else:
        metadata = _from_message(_parse_message(version, rest, where), version, where)
    _check(metadata, where)
    return metadata


def unknown_ledger_fields(value: bytes, where: str) -> tuple[str, ...]:
    """Return the names of fields of ledger metadata that are unknown here; raises as ``decode_ledger_metadata``."""
    version, rest = _version_of(value, where)
    return () if version == 1 else unknown_fields(_parse_message(version, rest, where))


class UsualLedger(Struct, frozen=True):
    """The result of ``find_usual_ledger``; ``lone``: that of ``find_lone_ledger``."""

    lone: LoneLedger | None


def find_usual_ledger(value: bytes) -> UsualLedger | None:
    """Return a ``UsualLedger`` for ledger metadata of version 3 without unknown fields, None for any other value.

    For other values use ``decode_ledger_metadata``, which also says what is wrong.
    """
    usual = _find_of_pulsar(value)
    if usual is not None:
        return usual
    message = _find_version_3(value)
    return None if message is None or loses_unknown_fields(message) else UsualLedger(_lone_of(message))


def decode_digest_type(value: bytes, where: str) -> DigestType | None:
    """Return the digest type in ledger metadata without checking the rest: for a pass over every ledger.

    Raises as ``decode_ledger_metadata`` if it cannot be parsed; version 1 names no type.
    """
    version, rest = _version_of(value, where)
    return None if version == 1 else _digest_type(_parse_message(version, rest, where))


def decode_members(value: bytes, where: str) -> frozenset[str]:
    """Return the ids of all bookies in the ensembles of ledger metadata; raises as ``decode_digest_type``."""
    usual = re.match(_ONE_SEGMENT, value)
    if usual is not None:
        end = usual.end() + usual[1][0]
        if value[end : end + 1] not in (b"", _SEGMENT_TAG):
            return _segment_members(value[usual.end() : end])
    version, rest = _version_of(value, where)
    if version == 1:
        segments = decode_ledger_metadata(value, where).segments
        return frozenset(member for segment in segments for member in segment.members)
    message = _parse_message(version, rest, where)
    return frozenset(member for segment in message.segment for member in segment.ensembleMember)


_CLOSED = LedgerMetadataFormat.CLOSED


class LoneLedger(Struct, frozen=True):
    """Metadata of a ledger with one bookie; ``last_entry_id`` and ``length`` (payload bytes) are -1 and 0 unless
    closed."""

    is_closed: bool
    last_entry_id: int
    length: int
    bookie: str


def find_lone_ledger(value: bytes) -> LoneLedger | None:
    """Return the metadata of a ledger with one ensemble of one bookie; None for any other or damaged value.

    For a pass over every ledger: a third of the time of ``decode_ledger_metadata``, which accepts the same values.
    """
    usual = _find_of_pulsar(value)
    if usual is not None:
        return usual.lone
    message = _find_version_3(value)
    return None if message is None else _lone_of(message)


def _find_version_3(value: bytes) -> LedgerMetadataFormat | None:
    """Return the message in metadata of version 3; None for any other or damaged value."""
    try:
        return _parse_message(3, value[len(_VERSION_3) :], "") if value.startswith(_VERSION_3) else None
    except MetadataCorrupt:
        return None


def _find_of_pulsar(value: bytes) -> UsualLedger | None:
    """Return as ``find_usual_ledger`` for a value that matches ``_OF_PULSAR``, else None: a third of the cost of
    decoding the message, because the remaining fields, equal in many ledgers, are cached."""
    match = compiled(_OF_PULSAR).match(value)
    if match is None:
        return None
    low, high, quorums, length, last_entry_id, rest, pair_size, name_size = match.groups()
    end, size = match.end() + name_size[0], low[0] & 0x7F | high[0] << 7
    if name_size[0] + _PAIR_BYTES != pair_size[0] or size != len(value) - match.start(3) or end > len(value):
        return None
    last = b"" if last_entry_id is None else b"\x20\0"
    usual = _find_usual_parts(b"%b\x18\0%b%b" % (quorums, last, rest), value[end:])
    if usual is None or usual.lone is None or not usual.lone.is_closed:
        return usual
    return UsualLedger(LoneLedger(True, number_of(last_entry_id), number_of(length), usual.lone.bookie))


@lru_cache(maxsize=1024)
def _find_usual_parts(start: bytes, end: bytes) -> UsualLedger | None:
    """Return a ``UsualLedger`` for the message ``start + end``, None unless both are whole, known, canonical fields."""
    try:
        parse_protobuf(LedgerMetadataFormat, start, "", MetadataCorrupt)
        message = parse_protobuf(LedgerMetadataFormat, start + end, "", MetadataCorrupt)
    except MetadataCorrupt:
        return None
    message.DiscardUnknownFields()
    return UsualLedger(_lone_of(message)) if message.SerializeToString() == start + end else None


def _lone_of(message: LedgerMetadataFormat) -> LoneLedger | None:
    segments = message.segment
    if message.ensembleSize != 1 or message.quorumSize != 1 or len(segments) != 1:
        return None
    segment = segments[0]
    members = segment.ensembleMember
    if len(members) != 1 or segment.firstEntryId != 0:
        return None
    if message.ackQuorumSize != 1 and message.HasField("ackQuorumSize"):
        return None
    is_closed = message.state == _CLOSED
    if is_closed and not message.HasField("lastEntryId"):
        return None
    last_entry_id, length, bookie = (
        (message.lastEntryId if is_closed else -1),
        (message.length if is_closed else 0),
        members[0],
    )
    if last_entry_id < -1 or length < 0 or not isinstance(bookie, str):
        return None
    for pair in message.customMetadata:
        if not isinstance(pair.key, str):
            return None
    return LoneLedger(is_closed, last_entry_id, length, bookie)


@lru_cache(maxsize=4096)
def _segment_members(segment: bytes) -> frozenset[str]:
    return frozenset(
        parse_protobuf(LedgerMetadataFormat.Segment, segment, "an ensemble", MetadataCorrupt).ensembleMember
    )


def decode_offloaded_metadata(value: bytes | memoryview, where: str) -> LedgerMetadata:
    """Return the metadata that lies in tiered storage with a ledger: protobuf without the first line (``OffloadUtils``)."""
    return _from_message(parse_protobuf(LedgerMetadataFormat, value, where, MetadataCorrupt), 3, where)


def _version_of(value: bytes, where: str) -> tuple[int, bytes]:
    """Return the version in the first line, 1 to 3, and what follows it."""
    line = re.match(_VERSION_LINE, value)
    if line is None:
        raise MetadataCorrupt.expected(where, "first line", _VERSION_KEY.decode() + "<version>", value[:40].hex())
    version = int(line[1])
    if not 1 <= version <= 3:
        raise Unsupported(f"{where}: ledger metadata version {version}, known are 1 to 3", where=where, version=version)
    return version, value[line.end() :]


def encode_ledger_metadata(metadata: LedgerMetadata, base: bytes | None = None) -> bytes:
    """Return ledger metadata as a version 3 value, whatever its ``version``.

    ``base`` is the value that it replaces: fields unknown to this toolkit survive. Raises MetadataCorrupt if ``base``
    is not ledger metadata.
    """
    message = LedgerMetadataFormat()
    if base is not None:
        version = decode_ledger_metadata(base, "base").version
        if version > 1:
            message = _parse_message(version, base.partition(b"\n")[2], "base")
    _fill_message(message, metadata)
    packed = message.SerializeToString()
    return b"%s3\n%s%s" % (_VERSION_KEY, encode_varint(len(packed)), packed)


def ledger_path(ledger_id: int) -> str:
    """Return the path of a ledger's node under the hierarchical manager, Pulsar's."""
    if ledger_id < _LONG_PATH_FROM:
        digits = f"{ledger_id:010d}"
        return f"{LEDGERS_ROOT}/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger_id:019d}"
    return f"{LEDGERS_ROOT}/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


def ledger_id_of_path(path: str) -> int | None:
    """Return the ledger id of a node below ``/ledgers`` (hierarchical, long or flat), None for every other node."""
    if not path.startswith(LEDGERS_ROOT):
        return None
    rest = path[len(LEDGERS_ROOT) :]
    match = re.fullmatch(_SHORT, rest) or re.fullmatch(_LONG, rest) or re.fullmatch(_FLAT, rest)
    if match is None:
        return None
    ledger_id = int("".join(match.groups()))
    return ledger_id if ledger_id <= LONG_MAX else None


def find_listed_depths(layout: bytes) -> tuple[int, ...] | None:
    """Return the depths below the root at which the class in a ``LAYOUT`` finds ledgers: 3 and 5 for Pulsar's.

    None if no bookie starts with this layout.
    """
    match = re.fullmatch(_LAYOUT, layout)
    return None if match is None else _DEPTHS[match[1] or match[2].capitalize()]


def layout_text(layout: bytes) -> str:
    """Return a ``LAYOUT`` in one line, at most its beginning."""
    return repr(" ".join(layout[:80].decode("utf-8", "replace").split()))


def check_layout(layout: bytes, where: str) -> None:
    """Raise Unsupported unless a ``LAYOUT`` names the class whose paths Pulsar uses: others use other paths."""
    if find_listed_depths(layout) != _DEPTHS[b"Hierarchical"]:
        raise Unsupported(
            f"{where}: {LAYOUT}: expected version 2 and HierarchicalLedgerManagerFactory:1, found {layout_text(layout)}",
            hint="see: pulsar-admin doctor --explain bookkeeper-layout-unknown",
            path=LAYOUT,
        )


def _parse_message(version: int, rest: bytes, where: str) -> LedgerMetadataFormat:
    if version == 2:
        return parse_text(LedgerMetadataFormat, rest, where)
    packed: bytes | memoryview = rest[2:]
    if not (len(packed) > 127 and len(packed) == (rest[0] & 127 | rest[1] << 7) and rest[0] > 127 > rest[1]):
        # Not as nearly all are: of 128 bytes to 16 KiB.
        reader = Reader(rest, where, MetadataCorrupt)
        size = reader.varint()
        packed = reader.take(size)
        if reader.remaining:
            raise MetadataCorrupt.expected(where, "bytes after the metadata", 0, reader.remaining)
    return parse_protobuf(LedgerMetadataFormat, packed, where, MetadataCorrupt)


def _from_message(message: LedgerMetadataFormat, version: int, where: str) -> LedgerMetadata:
    state = LedgerState(message.state)
    is_closed = state is LedgerState.CLOSED
    if is_closed and not message.HasField("lastEntryId"):
        raise MetadataCorrupt.expected(where, "closed ledger", "lastEntryId", None)
    return LedgerMetadata(
        version=version,
        write_quorum=message.quorumSize,
        ensemble_size=message.ensembleSize,
        ack_quorum=message.ackQuorumSize if message.HasField("ackQuorumSize") else message.quorumSize,
        length=message.length if is_closed else 0,
        last_entry_id=message.lastEntryId if is_closed else -1,
        state=state,
        segments=tuple(
            Segment(s.firstEntryId, tuple(text_of(member, where, MetadataCorrupt) for member in s.ensembleMember))
            for s in message.segment
        ),
        digest_type=_digest_type(message),
        password=message.password if message.HasField("password") else None,
        ctime_ms=message.ctime if message.HasField("ctime") else None,
        custom={text_of(e.key, where, MetadataCorrupt): e.value for e in message.customMetadata},
        ctoken=message.cToken if message.HasField("cToken") else None,
    )


def _digest_type(message: LedgerMetadataFormat) -> DigestType | None:
    return _DIGEST_TYPES[message.digestType] if message.HasField("password") else None


def _fill_message(message: LedgerMetadataFormat, metadata: LedgerMetadata) -> None:
    """Set the fields of a message that differ from the metadata; unknown fields survive in the others."""
    is_closed = metadata.state is LedgerState.CLOSED
    message.quorumSize = metadata.write_quorum
    message.ensembleSize = metadata.ensemble_size
    message.ackQuorumSize = metadata.ack_quorum
    message.length = metadata.length if is_closed else 0
    message.lastEntryId = metadata.last_entry_id if is_closed else -1
    message.state = LedgerMetadataFormat.State.ValueType(metadata.state)
    segments = [(s.firstEntryId, tuple(s.ensembleMember)) for s in message.segment]
    if segments != [(s.first_entry_id, s.members) for s in metadata.segments]:
        del message.segment[:]
        for segment in metadata.segments:
            message.segment.add(firstEntryId=segment.first_entry_id, ensembleMember=segment.members)
    if {e.key: e.value for e in message.customMetadata} != metadata.custom:
        del message.customMetadata[:]
        for key, value in metadata.custom.items():
            message.customMetadata.add(key=key, value=value)
    _set_optional(message, "digestType", metadata.digest_type)
    _set_optional(message, "password", metadata.password)
    _set_optional(message, "ctime", metadata.ctime_ms)
    _set_optional(message, "cToken", metadata.ctoken)


def _set_optional(message: Message, name: str, value: int | bytes | None) -> None:
    if value is None:
        message.ClearField(name)
    else:
        setattr(message, name, value)


def _decode_text_v1(rest: bytes, where: str) -> LedgerMetadata:
    try:
        lines = rest.decode("utf-8").split("\n")
        if lines[-1] == "":
            lines.pop()
        write_quorum, ensemble_size, length = (int(line) for line in lines[:3])
        rows = [line.split("\t") for line in lines[3:]]
        state, last_entry_id = LedgerState.OPEN, -1
        if rows and rows[-1][1:] == ["CLOSED"]:
            last_entry_id = int(rows.pop()[0])
            state = LedgerState.CLOSED
            if last_entry_id == _IN_RECOVERY_V1:
                state, last_entry_id = LedgerState.IN_RECOVERY, -1
        segments = tuple(Segment(int(row[0]), tuple(row[1:])) for row in rows)
    except ValueError as cause:
        raise MetadataCorrupt.expected(where, "version 1 text", "numbers and segments", rest[:200].hex()) from cause
    return LedgerMetadata(
        version=1,
        write_quorum=write_quorum,
        ensemble_size=ensemble_size,
        ack_quorum=write_quorum,
        length=length if state is LedgerState.CLOSED else 0,
        last_entry_id=last_entry_id,
        state=state,
        segments=segments,
    )


def _check(metadata: LedgerMetadata, where: str) -> None:
    quorums = (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    if not quorums[0] >= quorums[1] >= quorums[2] >= 0 or quorums[1] < 1:
        raise MetadataCorrupt.expected(where, "quorums", "ensemble size >= write quorum >= ack quorum", quorums)
    if metadata.length < 0 or metadata.last_entry_id < -1:
        raise MetadataCorrupt.expected(
            where, "length, last entry", ">= 0, >= -1", [metadata.length, metadata.last_entry_id]
        )
    sizes = {len(segment.members) for segment in metadata.segments}
    if sizes != {metadata.ensemble_size}:
        raise MetadataCorrupt.expected(where, "members of each segment", metadata.ensemble_size, sorted(sizes))
    starts = [segment.first_entry_id for segment in metadata.segments]
    if starts[0] < 0 or starts != sorted(set(starts)):
        raise MetadataCorrupt.expected(where, "first entries of the segments", "ascending", starts)
