"""Reads and writes protobuf fields and Pulsar's framing, for the other kernels.

``read_message`` walks a protobuf message once. It returns which fields it saw, a set of bits, and fills FIELDS, ``new_fields()``:
``fields[slot]`` is a number or a size, ``fields[START + slot]`` where bytes start. The slot of a field is its number, for bytes
32 more; ``METADATA.publish_time`` and the like name them, ``METADATA.required`` is the set of those that must be there. The
last of a repeated field wins: ``read_field`` reads them one by one.

Values are signed, so one with bit 63 set is negative: comparing signed with unsigned numbers would cost more than the
rest.
"""

import struct
from collections import namedtuple
from typing import Any

import numpy as np

from pulsar_admin.store.kernels.compiled import kernel, part, signed
from pulsar_admin.store.proto import pulsar_api_pb2

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_TAG_MAX = 2**32 - 1
_MACHINE = "pulsar_admin.store.kernels.machine"
_I32, _U32, _I64 = struct.Struct(">i"), struct.Struct(">I"), struct.Struct(">q")

PACKED = 32
"""From the slot of a repeated number to the slot that it has when it is packed."""

BROKER_MAGIC, CHECKSUM_MAGIC = 0x0E02, 0x0E01
"""The marks before an entry's broker metadata and before its checksum, two bytes each."""

START = 2 * PACKED
"""In FIELDS, from a slot to where its bytes start."""

MALFORMED = 1
"""In place of the fields seen: the bytes are not a protobuf message. No field has this bit, as none has number 0."""


_named_tuple: Any = namedtuple  # a type checker wants the names written out


def _slots(name: str) -> Any:  # a named tuple, which numba takes for constants
    fields = [field for field in pulsar_api_pb2.DESCRIPTOR.message_types_by_name[name].fields if field.number < PACKED]
    slots = {}
    for field in fields:
        has_bytes = field.type in (field.TYPE_STRING, field.TYPE_BYTES, field.TYPE_MESSAGE)
        slots[field.name] = field.number + PACKED * has_bytes
    required = sum(1 << slots[field.name] for field in fields if field.is_required)
    return _named_tuple(name, [*slots, "required"])(*slots.values(), required)


METADATA = _slots("MessageMetadata")
SINGLE_METADATA = _slots("SingleMessageMetadata")
BROKER_METADATA = _slots("BrokerEntryMetadata")
KEY_VALUE = _slots("KeyValue")
MESSAGE_ID = _slots("MessageIdData")


# -- integers ---------------------------------------------------------------------------------------------------------


@part(forceinline=True)
def i32(data, at):
    """Return the signed big-endian 32-bit integer at ``at``."""
    return np.int32(
        (np.uint32(data[at]) << 24)
        | (np.uint32(data[at + 1]) << 16)
        | (np.uint32(data[at + 2]) << 8)
        | np.uint32(data[at + 3])
    )


@i32.plain_form
def _plain_i32(data, at):
    return _I32.unpack_from(data, at)[0]


@part(forceinline=True)
def u32(data, at):
    """Return the unsigned big-endian 32-bit integer at ``at``, as i64."""
    return np.int64(np.uint32(i32(data, at)))


@u32.plain_form
def _plain_u32(data, at):
    return _U32.unpack_from(data, at)[0]


@part(forceinline=True)
def i64(data, at):
    """Return the signed big-endian 64-bit integer at ``at``."""
    return (np.int64(i32(data, at)) << 32) | u32(data, at + 4)


@i64.plain_form
def _plain_i64(data, at):
    return _I64.unpack_from(data, at)[0]


@part(machine=_MACHINE)
def prefetch(array, offset):
    """Have the processor fetch the bytes of a uint8 array at ``offset``, which may lie past its end."""


@part(forceinline=True)
def varint(data, at, end):
    """Return (value, next offset); next offset −1 when the varint runs past ``end`` or is too long."""
    value = np.int64(0)
    shift = np.int64(0)
    while at < end and shift < 70:
        byte = np.int64(data[at])
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return value, np.int64(-1)


@varint.plain_form
def _plain_varint(data, at, end):
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        if byte < 0x80:
            value |= byte << shift
            return value if shift < 63 else signed(value, 64), at
        value |= (byte & 0x7F) << shift
        shift += 7
    return signed(value, 64), -1


@part(inline="always")
def put_32(out, at, value):
    """Write four big-endian bytes."""
    out[at] = (value >> 24) & 0xFF
    out[at + 1] = (value >> 16) & 0xFF
    out[at + 2] = (value >> 8) & 0xFF
    out[at + 3] = value & 0xFF


@part(inline="always")
def put_64(out, at, value):
    """Write eight big-endian bytes."""
    put_32(out, at, value >> 32)
    put_32(out, at + 4, value)


@part(inline="always")
def put_varint(out, at, value):
    """Write a varint, a negative one as ten bytes; return the offset after it."""
    rest = np.uint64(value)
    while rest >= np.uint64(0x80):
        out[at] = np.uint8(rest & np.uint64(0x7F)) | np.uint8(0x80)
        at += 1
        rest >>= np.uint64(7)
    out[at] = np.uint8(rest)
    return at + 1


@part(machine=_MACHINE)
def move(out, at, source, start, count):
    """Copy ``count`` bytes between arrays that do not overlap."""
    out[at : at + count] = source[start : start + count]


@part(inline="always")
def copy(out, at, source, start, count):
    """Copy ``count`` bytes; return the offset after them."""
    move(out, at, source, start, count)
    return at + count


# -- protobuf ---------------------------------------------------------------------------------------------------------


@part(machine=_MACHINE)
def new_fields():
    """Return room for what ``read_message`` finds, two numbers for each slot, in the frame of the calling function.

    An array's reference would be counted at every call, which takes as long as reading two fields.
    """
    return [0] * (2 * START)


def _tag_of(slot):
    """Return the tag before the field of ``slot``."""
    return (slot & (PACKED - 1)) << 3 | (_BYTES if slot >= PACKED else _VARINT)


tag_of = part(forceinline=True)(_tag_of)

METADATA_TAGS = METADATA._make(map(_tag_of, METADATA))
BROKER_METADATA_TAGS = BROKER_METADATA._make(map(_tag_of, BROKER_METADATA))


@part(inline="always")
def put_tag(out, at, slot):
    """Write the tag of the field of ``slot``; return the offset after it."""
    return put_varint(out, at, tag_of(slot))


@part(inline="always")
def put_number(out, at, slot, value):
    """Write the field of ``slot``, a varint; return the offset after it."""
    return put_varint(out, put_tag(out, at, slot), value)


@part(forceinline=True)
def has(seen, slot):
    """Whether the set ``seen``, from ``read_message``, has the field of ``slot``."""
    return (seen >> slot) & 1 != 0


@part(forceinline=True)
def read_field(data, at, end):
    """Return (tag, number or size, offset of its bytes, offset after it) of the field at ``at``; −1 if malformed."""
    return _read_any_field(data, at, end)


@read_field.plain_form
def _plain_field(data, at, end):
    if end - at >= 2 and 8 <= data[at] < 0x80 and data[at + 1] < 0x80:  # which most are
        tag, value = data[at], data[at + 1]
        at += 2
        if tag & 7 == _VARINT:
            return tag, value, at, at
        if tag & 7 == _BYTES and value <= end - at:
            return tag, value, at, at + value
        at -= 2
    return _read_any_field.plain(data, at, end)


@part(forceinline=True)
def _read_any_field(data, at, end):
    nothing = np.int64(-1)
    tag, at = varint(data, at, end)
    if at < 0 or tag < 8 or tag > _TAG_MAX:
        return tag, nothing, at, nothing
    wire = tag & 7
    if wire == _VARINT:
        value, at = varint(data, at, end)
        return tag, value, at, at
    if wire == _BYTES:
        size, at = varint(data, at, end)
    elif wire == _FIXED_64:
        size = np.int64(8)
    elif wire == _FIXED_32:
        size = np.int64(4)
    else:
        return tag, nothing, at, nothing
    if at < 0 or size < 0 or size > end - at:
        return tag, size, at, nothing
    return tag, size, at, at + size


@part(forceinline=True)
def read_message(data, at, end, fields):
    """Fill ``fields`` from the message data[at:end]; return the set of its fields, MALFORMED if it is not a message."""
    seen = np.int64(0)
    while at < end:
        tag, value, start, at = read_field(data, at, end)
        if at < 0:
            return np.int64(MALFORMED)
        wire = tag & 7
        if tag < PACKED << 3 and wire in (_VARINT, _BYTES):
            slot = (tag >> 3) + (PACKED if wire == _BYTES else 0)
            fields[slot] = value
            fields[START + slot] = start
            seen |= np.int64(1) << slot
    return seen


# -- framing of entries -----------------------------------------------------------------------------------------------


@part(forceinline=True)
def _is_magic(data, at, end, magic):
    """Whether ``magic`` and its four bytes are at ``at``."""
    return end - at >= 6 and data[at] == magic >> 8 and data[at + 1] == magic & 0xFF


@part(forceinline=True)
def frame(data, at, end):
    """Find the parts of the message entry data[at:end]: ``[broker metadata] [checksum] size, MessageMetadata, payload``.

    Returns (offset after the broker metadata, offset after the checksum, start and end of the MessageMetadata). Absent parts
    are empty. The last two are −1 when the bytes are not a message entry. The checksum's own four bytes end
    at the second, the BrokerEntryMetadata starts six bytes after ``at``.
    """
    front = np.int64(at)
    if _is_magic(data, front, end, BROKER_MAGIC):
        size = u32(data, front + 2)
        if size <= end - front - 6:
            front += 6 + size
    checked = front
    if _is_magic(data, front, end, CHECKSUM_MAGIC):
        checked += 6
    if end - checked < 4:
        return front, checked, np.int64(-1), np.int64(-1)
    size = u32(data, checked)
    if size == 0 or size > end - checked - 4:
        return front, checked, np.int64(-1), np.int64(-1)
    return front, checked, checked + 4, checked + 4 + size


@kernel("starts")
def find_metadata_ends(data, starts, ends, found):
    """Fill ``found`` with where the MessageMetadata of each entry data[starts[i]:ends[i]] ends; −1: not a message entry."""
    for i in range(starts.shape[0]):
        _, _, _, found[i] = frame(data, starts[i], ends[i])


@part()
def read_single(data, at, end, fields):
    """Read the message of a batch at ``at``: ``u32 size, SingleMessageMetadata, payload``; fills ``fields``.

    Returns (fields seen, start of the payload, its end); MALFORMED when there is no whole message.
    """
    start = np.int64(at)
    bad = np.int64(MALFORMED), start, start
    if end - start < 4:
        return bad
    size = u32(data, start)
    body = start + 4 + size
    if body > end:
        return bad
    seen = read_message(data, start + 4, body, fields)
    payload_size = fields[SINGLE_METADATA.payload_size]
    if not has(seen, SINGLE_METADATA.payload_size) or payload_size < 0 or payload_size > end - body:
        return bad
    return seen, body, body + payload_size
