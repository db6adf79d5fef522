"""ManagedLedgerInfo: a topic's ledgers, the value of ``/managed-ledgers/<managed ledger>``.

Upstream: ``MLDataFormats.proto``, ``MetaStoreImpl``, ``ManagedLedgerImpl`` (Pulsar 4.0.8; 2.11 to 5.0 read the same).
The value may be empty (topic created, never opened), wrapped (``store.codec.wrapper``) or protobuf text.

PIP-345 numbers ``beginPublishTimestamp`` 6 and ``endPublishTimestamp`` 7 in LedgerInfo, where merged Pulsar has
``repeated KeyValue properties = 6``. The wire types differ, so both are read; the varints are never written, because a
broker would fail on them or drop them.
"""

from collections.abc import Mapping
from operator import attrgetter

from google.protobuf.unknown_fields import UnknownFieldSet
from msgspec import Struct, field

from pulsar_admin.store.codec.buffer import VARINT, compiled, encode_varint, number_of, signed
from pulsar_admin.store.codec.protobuf import (
    loses_unknown_fields,
    parse_protobuf_or_text,
    properties_of,
    replace_pairs,
    unknown_fields,
)
from pulsar_admin.store.codec.wrapper import PLAIN, Wrapping, unwrap, wrap
from pulsar_admin.store.errors import MetadataCorrupt, StoreError
from pulsar_admin.store.names import Position
from pulsar_admin.store.proto import managed_ledger_pb2

_BEGIN_PUBLISH, _END_PUBLISH = 6, 7
_VARINT = 0
_PUBLISH_TIMES = [("LedgerInfo", number, _VARINT) for number in (_BEGIN_PUBLISH, _END_PUBLISH)]
_64_BITS = 2**64 - 1
_NO_PROPERTIES: Mapping[str, str] = {}
_BARE = rb"(?s)\n(.)(\x08(%b)(?:\x10(%b))?(?:\x18(%b))?(?:\x20(%b))?)" % ((VARINT,) * 4)
"""A ledger in a ManagedLedgerInfo as brokers write nearly all: no properties, not offloaded."""
_INDEX = rb"(?s)\x1a(.)\n\x05index\x12(.)(-?[0-9]+)"
"""The property that the broker's interceptor of entries adds (``ManagedLedgerInterceptorImpl``)."""
_INDEX_BYTES = 9  # of its tags, sizes and key


class LedgerInfo(Struct, frozen=True, order=True):
    """One ledger of a topic.

    ``timestamp_ms`` is the time of closing, 0 while open and None when absent; an open ledger has entries and size 0.
    ``offloaded`` means the copy in tiered storage is complete, ``offload_uuid`` is there from the first attempt on, and
    ``bookkeeper_deleted`` with ``offloaded`` means that no bookie has the entries any more.
    """

    ledger_id: int
    entries: int = 0
    size_bytes: int = 0
    timestamp_ms: int | None = 0
    offloaded: bool = False
    offload_uuid: str | None = None
    properties: Mapping[str, str] = _NO_PROPERTIES
    begin_publish_ms: int | None = None
    end_publish_ms: int | None = None
    bookkeeper_deleted: bool = False


SHADOW_SOURCE = "PULSAR.SHADOW_SOURCE"
"""The property of a shadow topic that names the topic whose ledgers it has."""


class ManagedLedger(Struct, frozen=True):
    """A topic's ledgers by ascending id, its end when terminated, and its properties."""

    ledgers: tuple[LedgerInfo, ...] = ()
    terminated: Position | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def decode_managed_ledger(value: bytes, where: str, *, as_stored: bool = False) -> ManagedLedger:
    """Return a decoded ManagedLedgerInfo; an empty value is a topic without ledgers.

    A broker that offloads stores the ledgers in the order of a HashMap (``transformLedgerInfo``) and reads them into a
    sorted map, so that of two with the same id the last one counts: so does this function, unless ``as_stored``. Raises
    MetadataCorrupt, and as ``unwrap``.
    """
    return _from_message(_parse(value, where)[0], where, as_stored=as_stored)


def decode_ledger_ids(value: bytes, where: str, *, on_bookies: bool = False) -> list[int]:
    """Return the ids of the ledgers in a ManagedLedgerInfo: for a pass over every topic. Raises as ``decode_managed_ledger``.

    ``on_bookies``: leave out ledgers that are only in tiered storage.
    """
    message, _ = _parse(value, where)
    properties_of(message.properties, where, MetadataCorrupt)
    infos = {info.ledgerId: info for info in message.ledgerInfo}
    for info in message.ledgerInfo:
        if len(info.properties):
            properties_of(info.properties, where, MetadataCorrupt)
    if not on_bookies:
        return list(infos)
    return [
        key
        for key, info in infos.items()
        if not (info.offloadContext.complete and info.offloadContext.bookkeeperDeleted)
    ]


PlainLedger = tuple[int, int, int, int]
"""The id, entries, bytes of a ledger, and when it was closed or 0."""


class UsualLedgers(Struct, frozen=True):
    """A list of ledgers without unknown fields: their ids; ``plain``: as ``find_plain_ledgers`` returns."""

    ledger_ids: list[int]
    plain: list[PlainLedger] | None


def find_usual_ledgers(value: bytes) -> UsualLedgers | None:
    """Return the ledgers in a ManagedLedgerInfo, None unless ``decode_managed_ledger`` decodes it and knows all its fields."""
    bare = _find_bare_ledgers(value)
    if bare is not None:
        return UsualLedgers([one[0] for one in bare], bare)
    try:
        message, _ = _parse(value, "")
        if loses_unknown_fields(message):  # also those of publish times, which are known
            return None
        if message.properties:
            properties_of(message.properties, "", MetadataCorrupt)
        plain = _plain(message, is_known=True)
        if plain is not None:
            return UsualLedgers([one[0] for one in plain], plain)
        infos = list(message.ledgerInfo)
        if any(info.properties for info in infos):
            _from_message(message, "")
    except StoreError:
        return None
    return UsualLedgers(list({info.ledgerId: None for info in infos}), None)


def find_plain_ledgers(value: bytes) -> list[PlainLedger] | None:
    """Return the ledgers in a ManagedLedgerInfo by ascending id, as ``decode_managed_ledger`` would.

    None if decoding fails, the value is empty, the topic is terminated or a shadow topic, ids do not ascend, or a
    ledger is offloaded or has properties or unknown fields. For a pass over every topic, at a third of the cost.
    """
    if not value:
        return None
    bare = _find_bare_ledgers(value)
    if bare is not None:
        return bare
    try:
        message, _ = _parse(value, "")
        properties_of(message.properties, "", MetadataCorrupt)
    except StoreError:
        return None
    return _plain(message)


def _find_bare_ledgers(value: bytes) -> list[PlainLedger] | None:
    """Return the ledgers of a value of ``_BARE`` ones and perhaps ``_INDEX``, else None; half the cost of decoding."""
    ledgers, last, start = list[PlainLedger](), -1, 0
    while one := compiled(_BARE).match(value, start):
        size, body, ledger_id, entries, size_bytes, closed_ms = one.groups(b"")
        number, start = number_of(ledger_id), one.end()
        if len(body) != size[0] or number <= last:
            return None
        last = number
        ledgers.append((number, number_of(entries), number_of(size_bytes), number_of(closed_ms)))
    if start < len(value):
        index = compiled(_INDEX).fullmatch(value, start)
        if index is None or index[2][0] != len(index[3]) or index[1][0] != len(index[3]) + _INDEX_BYTES:
            return None
    return ledgers


def _plain(message: managed_ledger_pb2.ManagedLedgerInfo, *, is_known: bool = False) -> list[PlainLedger] | None:
    """Return as ``find_plain_ledgers`` for a parsed message; ``is_known``: it has no unknown fields."""
    if message.HasField("terminatedPosition") or any(one.key == SHADOW_SOURCE for one in message.properties):
        return None
    ledgers, last = [], -1
    for info in message.ledgerInfo:
        if info.ledgerId <= last or info.HasField("offloadContext") or info.properties:
            return None
        if not is_known and len(UnknownFieldSet(info)):
            return None
        last = info.ledgerId
        ledgers.append((last, info.entries, info.size, info.timestamp))
    return ledgers


def unknown_managed_ledger_fields(value: bytes, where: str) -> tuple[str, ...]:
    """Return the names of fields of a ManagedLedgerInfo that are unknown here; raises as ``decode_managed_ledger``."""
    return unknown_fields(_parse(value, where)[0], _PUBLISH_TIMES)


def managed_ledger_text(value: bytes, where: str) -> str:
    """Return a ManagedLedgerInfo in protobuf's text format; raises as ``decode_managed_ledger``."""
    return str(_parse(value, where)[0])


def encode_managed_ledger(managed_ledger: ManagedLedger, base: bytes = b"") -> bytes:
    """Return the value to store in place of ``base``.

    Unknown fields and the offload contexts of ``base`` stay with their ledgers, its wrapping is used again, and if
    nothing changes ``base`` itself is returned. Publish times (PIP-345) go into the proposal's fields; of a repeated
    field the last one counts. Raises MetadataCorrupt if ``base`` is not a ManagedLedgerInfo.
    """
    message, wrapping = _parse(base, "value to replace")
    if base and _from_message(message, "value to replace") == managed_ledger:
        return base
    saved: dict[int, managed_ledger_pb2.LedgerInfo] = {}
    for info in message.ledgerInfo:
        saved[info.ledgerId] = copy = managed_ledger_pb2.LedgerInfo()
        copy.CopyFrom(info)
    del message.ledgerInfo[:]
    for ledger in managed_ledger.ledgers:
        _fill_ledger(message.ledgerInfo.add(), ledger, saved.get(ledger.ledger_id))
    if managed_ledger.terminated is None:
        message.ClearField("terminatedPosition")
    else:
        message.terminatedPosition.ledgerId = managed_ledger.terminated.ledger_id
        message.terminatedPosition.entryId = managed_ledger.terminated.entry_id
    replace_pairs(message.properties, managed_ledger.properties)
    return wrap(message.SerializeToString(), wrapping, "managed-ledger")


def _parse(value: bytes, where: str) -> tuple[managed_ledger_pb2.ManagedLedgerInfo, Wrapping]:
    if not value:
        return managed_ledger_pb2.ManagedLedgerInfo(), PLAIN
    plain, wrapping = unwrap(value, "managed-ledger", where)
    return parse_protobuf_or_text(managed_ledger_pb2.ManagedLedgerInfo, plain, where, MetadataCorrupt), wrapping


def _from_message(
    message: managed_ledger_pb2.ManagedLedgerInfo, where: str, *, as_stored: bool = False
) -> ManagedLedger:
    terminated = None
    if message.HasField("terminatedPosition"):
        terminated = Position(message.terminatedPosition.ledgerId, message.terminatedPosition.entryId)
    ledgers = [_ledger(info, where) for info in message.ledgerInfo]
    if not as_stored:
        ledgers = sorted({ledger.ledger_id: ledger for ledger in ledgers}.values(), key=attrgetter("ledger_id"))
    return ManagedLedger(tuple(ledgers), terminated, properties_of(message.properties, where, MetadataCorrupt))


def _ledger(info: managed_ledger_pb2.LedgerInfo, where: str) -> LedgerInfo:
    unknown = UnknownFieldSet(info)
    begin_ms, end_ms = _publish_times(unknown) if len(unknown) else (None, None)
    offloaded = bookkeeper_deleted = False
    offload_uuid = None
    if info.HasField("offloadContext"):
        context = info.offloadContext
        offloaded, bookkeeper_deleted = context.complete, context.bookkeeperDeleted
        # The standard module would cost every command 2 ms of imports.
        digits = f"{context.uidMsb & _64_BITS:016x}{context.uidLsb & _64_BITS:016x}"
        offload_uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return LedgerInfo(
        info.ledgerId,
        info.entries,
        info.size,
        info.timestamp if info.HasField("timestamp") else None,
        offloaded,
        offload_uuid,
        properties_of(info.properties, where, MetadataCorrupt) if len(info.properties) else _NO_PROPERTIES,
        begin_ms,
        end_ms,
        bookkeeper_deleted,
    )


def _publish_times(unknown: UnknownFieldSet) -> tuple[int | None, int | None]:
    fields = [unknown[index] for index in range(len(unknown))]
    times = {entry.field_number: signed(entry.data) for entry in fields if entry.wire_type == _VARINT}
    return times.get(_BEGIN_PUBLISH), times.get(_END_PUBLISH)


def _fill_ledger(
    message: managed_ledger_pb2.LedgerInfo, ledger: LedgerInfo, base: managed_ledger_pb2.LedgerInfo | None
) -> None:
    if base is not None:
        message.CopyFrom(base)
    message.ledgerId = ledger.ledger_id
    # An open ledger is stored without entries and size, so zeros are written for a closed one only.
    closed = bool(ledger.timestamp_ms)
    if ledger.entries or closed or message.HasField("entries"):
        message.entries = ledger.entries
    if ledger.size_bytes or closed or message.HasField("size"):
        message.size = ledger.size_bytes
    if ledger.timestamp_ms is None:
        message.ClearField("timestamp")
    else:
        message.timestamp = ledger.timestamp_ms
    if ledger.offload_uuid is None:
        message.ClearField("offloadContext")
    else:
        uuid = int(ledger.offload_uuid.replace("-", ""), 16)
        context = message.offloadContext
        context.uidMsb, context.uidLsb = signed(uuid >> 64), signed(uuid & _64_BITS)
        # An absent flag is false: it is not written where a broker left it out.
        if ledger.offloaded != context.complete:
            context.complete = ledger.offloaded
        if ledger.bookkeeper_deleted != context.bookkeeperDeleted:
            context.bookkeeperDeleted = ledger.bookkeeper_deleted
    replace_pairs(message.properties, ledger.properties)
    times = ledger.begin_publish_ms, ledger.end_publish_ms
    if None not in times and times != _publish_times(UnknownFieldSet(message)):
        # Bytes of another wire type than the field of that number has today: protobuf keeps them as unknown.
        message.MergeFromString(
            b"".join(
                bytes([number << 3]) + encode_varint(time or 0)
                for number, time in zip((_BEGIN_PUBLISH, _END_PUBLISH), times, strict=True)
            )
        )
