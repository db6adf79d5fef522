"""Stored protobuf, as bytes and in protobuf's text format; invalid messages of any kind raise this package's errors.

Cookies and version 2 ledger metadata are texts, which protobuf-java and LightProto (from BookKeeper 4.18) may indent and escape
differently: parse them, never compare bytes. Fields that a definition here does not have were written by a newer version, and are
kept as they are. The protobuf runtime accepts two things that upstream refuses: a message without its required fields, and text that is
not UTF-8, which it hands out as ``bytes`` where the stubs promise ``str``. Both are checked here.
"""

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from pulsar_admin.store.errors import Corrupt, MetadataCorrupt

MessageT = TypeVar("MessageT", bound=Message)
Known = Collection[tuple[str, int, int]]
"""(message, field number, wire type) of fields that are known although the definition has another type under their number."""


class KeyAndValue(Protocol):
    """A protobuf pair of texts; upstream defines one in each file."""

    @property
    def key(self) -> str: ...
    @property
    def value(self) -> str: ...


def parse_protobuf(
    kind: type[MessageT], data: bytes | memoryview, where: str, error: type[Corrupt], *, strict: bool = False
) -> MessageT:
    """Return a parsed message; raises ``error`` if the bytes are not such a message or lack a required field.

    With ``strict`` also for a field that is not known: bytes that bear no mark of their kind are probably of another one.
    """
    try:
        message = kind.FromString(data)  # type: ignore[arg-type]  # the runtime takes any buffer, the stubs say bytes
    except DecodeError as cause:
        raise error(
            f"{where}: no {kind.DESCRIPTOR.name}: the protobuf cannot be parsed",
            where=where,
            expected=kind.DESCRIPTOR.name,
            size_bytes=len(data),
        ) from cause
    if not message.IsInitialized():
        missing = message.FindInitializationErrors()  # type: ignore[attr-defined]  # the stubs leave it out
        raise error(
            f"{where}: no {kind.DESCRIPTOR.name}: it lacks {', '.join(missing[:4])}",
            where=where,
            expected=kind.DESCRIPTOR.name,
            missing=missing[:4],
        )
    if strict and len(UnknownFieldSet(message)):
        raise error(f"{where}: fields that are not known", where=where)
    return message


def text_of(value: str | bytes, where: str, error: type[Corrupt]) -> str:
    """Return a parsed text field; raises ``error`` if its bytes are not UTF-8."""
    if isinstance(value, str):
        return value
    raise error(f"{where}: a text field is not UTF-8: {value[:32].hex()}", where=where, found=value[:32].hex())


def properties_of(pairs: Iterable[KeyAndValue], where: str, error: type[Corrupt]) -> dict[str, str]:
    """Return key-value pairs as a mapping, the last of equal keys winning; raises ``error`` for text that is not UTF-8."""
    return {text_of(pair.key, where, error): text_of(pair.value, where, error) for pair in pairs}


def parse_protobuf_or_text(kind: type[MessageT], data: bytes, where: str, error: type[Corrupt]) -> MessageT:
    """Return a parsed message, from protobuf or, as very old clusters wrote, from protobuf's text form.

    Raises ``error`` with the reason of the binary form if it is neither.
    """
    try:
        return parse_protobuf(kind, data, where, error)
    except error as binary:
        message = _parse_text(kind, data)
        if message is None:
            raise binary
        return message


def _parse_text(kind: type[MessageT], data: bytes) -> MessageT | None:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if not text.lstrip()[:1].isalpha():
        return None
    from google.protobuf import text_format

    message = kind()
    try:
        text_format.Parse(text, message)
    except (text_format.ParseError, RecursionError, ValueError):
        return None
    return message if message.IsInitialized() else None


def replace_pairs(
    pairs: Any,  # a repeated field: its container type has no public name, and the pair's type differs by file
    values: Mapping[str, str] | Mapping[str, int],
    name: str = "key",
) -> None:
    """Set the repeated field ``pairs`` to values, in their order; a pair that stays keeps its unknown fields.

    ``name`` is the pair's own name for its key. The field is untouched if it has these values already.
    """
    saved: dict[str, Message] = {}
    for pair in pairs:
        saved[getattr(pair, name)] = copy = type(pair)()
        copy.CopyFrom(pair)
    if len(saved) == len(pairs) and list(saved) == list(values):
        for pair, value in zip(pairs, values.values(), strict=True):
            pair.value = value
        return
    del pairs[:]
    for key, value in values.items():
        pair = pairs.add()
        if key in saved:
            pair.CopyFrom(saved[key])
        setattr(pair, name, key)
        pair.value = value


def unknown_fields(message: Message, known: Known = ()) -> tuple[str, ...]:
    """Return the names of fields in a message, and in messages inside it, that their definitions lack, as ``LedgerInfo
    field 9``, in order."""
    bare = type(message)()
    bare.CopyFrom(message)
    bare.DiscardUnknownFields()
    # Nearly always so, and the walk is a loop of Python's over every position of a cursor.
    if bare.ByteSize() == message.ByteSize():
        return ()
    return tuple(sorted(set(_walk(message, known))))


def loses_unknown_fields(message: Message) -> bool:
    """Whether a message has unknown fields, which it loses: for a pass over millions, at half the cost of ``unknown_fields``."""
    before = message.ByteSize()
    message.DiscardUnknownFields()
    return message.ByteSize() != before


def _walk(message: Message, known: Known) -> Iterator[str]:
    name = message.DESCRIPTOR.name
    unknown = UnknownFieldSet(message)
    for index in range(len(unknown)):
        found = unknown[index]
        if (name, found.field_number, found.wire_type) not in known:
            yield f"{name} field {found.field_number}"
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for one in value if field.is_repeated else (value,):
                yield from _walk(one, known)


def parse_text(kind: type[MessageT], text: bytes, where: str) -> MessageT:
    """Return a message parsed from text format, ignoring unknown fields; raises MetadataCorrupt."""
    # Imported here: every command decodes ledger metadata, hardly any meets one in text.
    from google.protobuf import text_format

    try:
        with warnings.catch_warnings():
            # The library only warns of an escape that text format does not have; Java refuses it.
            warnings.simplefilter("error", DeprecationWarning)
            message = text_format.Parse(text.decode("utf-8"), kind(), allow_unknown_field=True)
    except (text_format.ParseError, ValueError, RecursionError, DeprecationWarning) as cause:
        raise MetadataCorrupt(
            f"{where}: no {kind.DESCRIPTOR.name}: {cause}", where=where, expected=kind.DESCRIPTOR.name
        ) from cause
    if not message.IsInitialized():
        raise MetadataCorrupt(
            f"{where}: no {kind.DESCRIPTOR.name}: a required field is missing",
            where=where,
            expected=kind.DESCRIPTOR.name,
        )
    return message


def render_text(message: Message) -> bytes:
    """Return a message in text format, one field per line."""
    from google.protobuf import text_format

    return text_format.MessageToString(message, as_utf8=True).encode("utf-8")
