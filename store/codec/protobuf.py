"""Parsing of stored protobuf: every way bytes can fail to be a message becomes one of our errors.

The protobuf runtime accepts two things that upstream refuses: a message without its required fields, and text that is
not UTF-8, which it hands out as ``bytes`` where the stubs promise ``str``. Both are checked here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from pulsar_admin.store.errors import Corrupt

MessageT = TypeVar("MessageT", bound=Message)


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
