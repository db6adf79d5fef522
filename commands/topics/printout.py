"""Rendering messages: as the text that ``pulsar-admin`` prints, or as rows, with decoded values for ``--value``."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Protocol

import click
from msgspec import Struct

from pulsar_admin.api.messages import Messages
from pulsar_admin.columns import Column, time_text, words_of
from pulsar_admin.context import App, Result
from pulsar_admin.jsonify import dump_json
from pulsar_admin.options import flag, together
from pulsar_admin.store.dump.messages import COLUMNS
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.messages import Decoded, Message, MessageRow, marker_name, redacted
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.redaction import redact, redact_value
from pulsar_admin.store.names import Position, TopicName
from pulsar_admin.store.wording import camel_case
from pulsar_admin.visible import clean_text

SEPARATOR = "-" * 73 + "\n\n"

_RULE = "+--------+-------------------------------------------------+----------------+"
_HEAD = (
    " " * 9 + "+-------------------------------------------------+",
    " " * 9 + "|  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |",
    _RULE,
)
_LINE_BYTES = 16
_TEXT = 120
"""Letters of a payload or a value that a row shows."""
_LAST = 1000
"""A narrow terminal leaves out the last fields of a record first, and other columns before them."""


def _position(row: object) -> str:
    return str(Position(*(getattr(row, name) for name in ("ledger_id", "entry_id", "batch_index"))))


SHORT = (
    Column("POSITION", _position),
    Column("PUBLISHED", "publish_time", "time"),
    Column("BROKER TIME", "broker_time", "time", drop=3),
    Column("KEY", "key"),
    Column("PRODUCER", "producer", drop=2),
    Column("BYTES", "size", "number", drop=1),
)
"""What a terminal has room for."""

_KINDS = {
    **dict.fromkeys(("ledger_id", "entry_id", "batch_index", "sequence_id", "broker_index", "schema_version"), "id"),
    **dict.fromkeys(("publish_time", "broker_time", "deliver_at_time"), "time"),
    **dict.fromkeys(("size", "chunks"), "number"),
}
FULL = tuple(
    Column("eventTime", lambda row: row.event_time or None, "time")
    if name == "event_time"
    else Column(camel_case(name), name, _KINDS.get(name, "text"))
    for name in MessageRow.__struct_fields__
)
"""Every key of the JSON, for CSV."""


def short_columns(*, several: bool, value: bool, seen: Sequence[Column] | None = None) -> tuple[Column, ...]:
    """Return the columns of a table of messages: TOPIC first if ``several``, VALUE last if ``value``.

    ``seen``: the ``seen_columns`` if the table is for people, which then ends with PAYLOAD.
    """
    held = (Column("VALUE", "value"),) if value else ()
    columns = (*SHORT, *held) if seen is None else (*SHORT, *seen, _PAYLOAD)
    return (Column("TOPIC", "topic"), *columns) if several else columns


def is_read(app: App, options: Hiding) -> bool:
    """Whether the answer goes to a terminal and is not redacted."""
    return app.in_terminal and not options.redact


def seen_columns(reader: EntryReader, names: Sequence[TopicName], *, value: bool) -> tuple[Column, ...]:
    """Return the columns for decoded values in a terminal.

    A column per field if all topics have one record schema, otherwise one column with the value as words. () for a
    topic without a schema, unless ``value``.
    """
    from pulsar_admin.store.model.schemas import read_schemas, record_fields

    of_one = {name.schema_path: name for name in names[:1] if len({name.schema_path for name in names}) == 1}
    words = (Column("VALUE", lambda row: _seen(row.value), "prose", sparse=True),)
    for name in of_one.values():
        with suppress(StoreError):  # reading the messages reports it
            schemas = read_schemas(reader, name)
            if schemas.newest is None or schemas.newest.type_name in ("BYTES", "NONE"):
                return words if value else ()
            versions = [schemas.versions[version] for version in sorted(schemas.versions, reverse=True)]
            kinds = {field: kind for version in reversed(versions) for field, kind in record_fields(version).items()}
            return tuple(map(_field_column, kinds.items(), count())) or words
    return words


def _field_column(field: tuple[str, str], place: int) -> Column:
    name, kind = field
    kind = "id" if kind in ("int", "long", "float", "double") else "prose"

    def value(row: MessageRow) -> object:
        return _seen(row.value.get(name)) if isinstance(row.value, dict) else None

    return Column(name, value, kind, drop=_LAST - place)


def _seen(value: object) -> object:
    return value if type(value) in (int, float) else _beginning(words_of(value))


def _beginning(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[:_TEXT]} …"


def _payload_text(row: MessageRow) -> str:
    """Return the beginning of a row's payload as ``text_of``, "" if the row has a decoded value."""
    return "" if row.value is not None else text_of(b64decode(row.payload or ""))


def text_of(payload: bytes) -> str:
    """Return the beginning of a payload as text in one line, "" if it is not text."""
    text = " ".join(payload.decode(errors="replace").split())
    if not text.isprintable() or "\ufffd" in text:
        return ""
    return _beginning(text)


_PAYLOAD = Column("PAYLOAD", _payload_text, "prose", sparse=True)


def message_columns(
    *, payload: bool, value: bool, markers: bool = False, seen: Sequence[Column] | None = None
) -> tuple[str, ...]:
    """Return the message columns to read: the default ones, those that options name, and those that ``seen`` shows."""
    asked = {"payload": payload or seen is not None, "value": value or bool(seen), "marker_type": markers}
    return (*COLUMNS, *(name for name, is_asked in asked.items() if is_asked))


def messages_result(
    found: Messages, *, several: bool, value: bool, hide: bool, seen: Sequence[Column] | None
) -> Result:
    """Return messages as rows, redacted with ``hide``; the other parameters are those of ``short_columns``."""
    rows = map(redacted, found.json_rows()) if hide else found.json_rows()
    screen = None if hide else lambda _: found.json_lines()  # as text, not as rows
    columns = short_columns(several=several, value=value, seen=seen)
    return Result(rows=rows, columns=columns, csv=FULL, screen=screen, texts=("jsonl",))


class Hiding(Protocol):
    """Options of a command that has ``--redact``."""

    @property
    def redact(self) -> bool: ...


class Printing(Struct, frozen=True):
    """How to print messages: ``iso`` times instead of milliseconds; ``redelivery`` adds the count that only
    ``get-message-by-id`` shows, ``markers`` the type of a server's marker; ``redact`` shows SHA-256 and length of
    property values and payload; ``reads`` adds ``seen_line``.
    """

    iso: bool = False
    redelivery: bool = False
    markers: bool = False
    redact: bool = False
    reads: bool = False


def render_message(message: Message, printing: Printing) -> str:
    """Return a message as pulsar-admin prints it: its fields, its properties and a hex dump of its payload."""
    return "".join(line + "\n" for line in _lines(message, printing))


def _lines(message: Message, printing: Printing) -> Iterator[str]:
    position = message.position
    batch = "Batch " if position.batch_index >= 0 else ""
    yield f"{batch}Message ID: {position}"
    when = time_text if printing.iso else str
    yield f"Publish time: {when(message.publish_ms)}"
    yield f"Event time: {when(message.event_ms) if message.event_ms else 0}"
    if printing.redelivery:
        yield "Redelivery count: 0"
    if message.deliver_at_ms:
        yield f"Deliver at time: {when(message.deliver_at_ms)}"
    if printing.markers and message.marker_type is not None:
        yield f"Marker Type: {marker_name(message.marker_type)}"
    if message.broker_ms is not None:
        yield f"Broker entry metadata timestamp: {when(message.broker_ms)}"
    if message.broker_index is not None:
        yield f"Broker entry metadata index: {message.broker_index}"
    if message.properties:
        yield "Properties:"
        shown = redact if printing.redact else clean_text
        yield from (f"{clean_text(key)}    {shown(value)}" for key, value in message.properties.items())
    yield f"Payload: {redact(bytes(message.payload))}" if printing.redact else "\n".join(hex_dump(message.payload))


def hex_dump(payload: bytes | memoryview) -> Iterator[str]:
    """Yield the lines of netty's ``ByteBufUtil.prettyHexDump``: none for an empty payload."""
    data = bytes(payload)
    if not data:
        return
    yield from _HEAD
    for offset in range(0, len(data), _LINE_BYTES):
        part = data[offset : offset + _LINE_BYTES]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        yield f"|{offset:08x}| {part.hex(' '):<47} |{text:<16}|"
    yield _RULE


redact_option = flag("--redact", help="SHA-256 and length instead of keys, property values, payloads and values.")

private_key_option = click.option(
    "--private-key",
    "private_keys",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Open encrypted payloads with the private key in this PEM file, or those in a directory; may be repeated.",
)

value_option = flag("--value", help="Also values, decoded by the topic's schema: AVRO, JSON, primitives, KEY_VALUE.")

content_options = together(value_option, redact_option, private_key_option)
"""What is shown of messages: values, digests alone, what keys decrypt."""


def open_with(reader: EntryReader, paths: Sequence[Path]) -> None:
    """Let ``reader`` open encrypted payloads with the private keys at ``paths``; raises InvalidValue, MissingComponent."""
    if paths:
        from pulsar_admin.store.codec.encryption import read_private_keys

        reader.keys = read_private_keys(paths)


def seen_line(message: Message, decoded: Decoded | None) -> str:
    """Return the line below a message's hex dump with its decoded value, or its payload if that is text; may be ""."""
    if decoded is not None and decoded.value is not None:
        return value_line(decoded)
    text = text_of(bytes(message.payload))
    return f"Text: {text}\n" if text else ""


def value_line(decoded: Decoded | None, *, redacted: bool = False) -> str:
    """Return the line with the value below a message printed as text; "" if values are not requested."""
    if decoded is None:
        return ""
    value, error = decoded
    if error is not None:
        return f"Value: not decoded: {clean_text(error)}\n"
    if redacted and value is not None:
        return f"Value: {redact_value(value)}\n"
    return f"Value: {'none' if value is None else clean_text(dump_json(value, pretty=False))}\n"
