"""Messages as text, the way ``pulsar-admin`` prints them, the columns of their rows, and ``--value``: the same keys everywhere."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from msgspec import Struct

from pulsar_admin.api.messages import COLUMNS, Messages
from pulsar_admin.columns import Column, time_text, words_of
from pulsar_admin.context import Result
from pulsar_admin.jsonify import dump_json
from pulsar_admin.store.model.messages import Decoded, Message, MessageRow, marker_name, redacted
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.redaction import redact, redact_value
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
"""Letters of a payload that a row shows."""


def _position(row: object) -> str:
    ledger_id, entry_id, batch_index = (getattr(row, name) for name in ("ledger_id", "entry_id", "batch_index"))
    return f"{ledger_id}:{entry_id}" + (f":{batch_index}" if batch_index >= 0 else "")


SHORT = (
    Column("POSITION", _position),
    Column("PUBLISHED", "publish_time", "time"),
    Column("BROKER TIME", "broker_time", "time", drop=3),
    Column("KEY", "key"),
    Column("PRODUCER", "producer", drop=2),
    Column("BYTES", "size", "number", drop=1),
)
"""What a terminal has room for."""

FULL = (
    Column("topic", "topic"),
    Column("ledgerId", "ledger_id", "id"),
    Column("entryId", "entry_id", "id"),
    Column("batchIndex", "batch_index", "id"),
    Column("publishTime", "publish_time", "time"),
    Column("brokerTime", "broker_time", "time"),
    Column("eventTime", lambda row: row.event_time or None, "time"),
    Column("key", "key"),
    Column("orderingKey", "ordering_key"),
    Column("producer", "producer"),
    Column("sequenceId", "sequence_id", "id"),
    Column("properties", "properties"),
    Column("size", "size", "number"),
    Column("sha1", "sha1"),
    Column("payload", "payload"),
    Column("brokerIndex", "broker_index", "id"),
    Column("deliverAtTime", "deliver_at_time", "time"),
    Column("encrypted", "encrypted"),
    Column("nullValue", "null_value"),
    Column("chunks", "chunks", "number"),
    Column("markerType", "marker_type"),
    Column("transaction", "transaction"),
    Column("schemaVersion", "schema_version", "id"),
    Column("value", "value"),
    Column("valueError", "value_error"),
)
"""Every key of the JSON, for CSV."""


def short_columns(*, several: bool, value: bool = False, payload: bool = False) -> tuple[Column, ...]:
    """Return the columns of tables of messages; ``several`` topics have theirs in front, ``value`` comes last. With ``payload``, for
    people, that is text, and a value is words."""
    words = Column("VALUE", lambda row: words_of(row.value), "prose") if payload else Column("VALUE", "value")
    columns = (*SHORT, words) if value else (*SHORT, Column("PAYLOAD", _payload_text, "prose")) if payload else SHORT
    return (Column("TOPIC", "topic"), *columns) if several else columns


def _payload_text(row: MessageRow) -> str:
    """Return the beginning of a payload (base64 in the row), "" of one that is no text."""
    payload = b64decode(row.payload or "")
    text = " ".join(payload.decode(errors="replace").split())
    if not text.isprintable() or "\ufffd" in text:
        return ""
    return text if len(text) <= _TEXT else f"{text[:_TEXT]} …"


def message_columns(*, payload: bool, value: bool, markers: bool = False) -> tuple[str, ...]:
    """Return the columns of the Python interface that options name."""
    asked = {"payload": payload, "value": value, "marker_type": markers}
    return (*COLUMNS, *(name for name, is_asked in asked.items() if is_asked))


def messages_result(found: Messages, *, several: bool, value: bool, hide: bool, payload: bool = False) -> Result:
    """Return the messages ``found`` as rows, those of ``several`` topics, with their VALUEs; ``hide``: redacted; ``payload``: as
    ``short_columns`` has it."""
    rows = map(redacted, found.json_rows()) if hide else found.json_rows()
    screen = None if hide else lambda _: found.json_lines()  # as text, not as rows
    columns = short_columns(several=several, value=value, payload=payload)
    return Result(rows=rows, columns=columns, csv=FULL, screen=screen, texts=("jsonl",))


class Printing(Struct, frozen=True):
    """How to print messages: ``iso`` times in place of milliseconds; ``redelivery`` adds the count that only ``get-message-by-id``
    shows, ``markers`` the type of a server's marker; ``redact`` shows SHA-256 and length of property values and payload.
    """

    iso: bool = False
    redelivery: bool = False
    markers: bool = False
    redact: bool = False


_USUAL = Printing()


def render_message(message: Message, printing: Printing = _USUAL) -> str:
    """Return ``message`` as pulsar-admin prints it: its fields, its properties and a hex dump of its payload."""
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


redact_option = click.option(
    "--redact", is_flag=True, help="SHA-256 and length instead of keys, property values, payloads and values."
)

private_key_option = click.option(
    "--private-key",
    "private_keys",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Open encrypted payloads with the private key in this PEM file, or those in a directory; may be repeated.",
)

value_option = click.option(
    "--value", is_flag=True, help="Also values, decoded by the topic's schema: AVRO, JSON, primitives, KEY_VALUE."
)


def open_with(reader: EntryReader, paths: Sequence[Path]) -> None:
    """Let ``reader`` open encrypted payloads with the private keys at ``paths``; raises InvalidValue, MissingComponent."""
    if paths:
        from pulsar_admin.store.codec.encryption import read_private_keys

        reader.keys = read_private_keys(paths)


def value_line(decoded: Decoded | None, *, redacted: bool = False) -> str:
    """Return the line about a value that stands below a message printed as text; empty where values are not wanted."""
    if decoded is None:
        return ""
    value, error = decoded
    if error is not None:
        return f"Value: not decoded: {clean_text(error)}\n"
    if redacted and value is not None:
        return f"Value: {redact_value(value)}\n"
    return f"Value: {'none' if value is None else clean_text(dump_json(value, pretty=False))}\n"
