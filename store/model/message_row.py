"""One message as one row: the columns that scripts rely on, the same in ``topics read``, ``peek-messages`` and ``dump``."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from hashlib import sha1
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from pulsar_admin.store.codec.buffer import signed
from pulsar_admin.store.model.messages import Message
from pulsar_admin.store.model.redaction import redact, redact_value
from pulsar_admin.store.names import TopicName

if TYPE_CHECKING:
    from pulsar_admin.store.model.schemas import Decoded


MARKER_NAMES = {
    10: "REPLICATED_SUBSCRIPTION_SNAPSHOT_REQUEST",
    11: "REPLICATED_SUBSCRIPTION_SNAPSHOT_RESPONSE",
    12: "REPLICATED_SUBSCRIPTION_SNAPSHOT",
    13: "REPLICATED_SUBSCRIPTION_UPDATE",
    20: "TXN_COMMITTING",
    21: "TXN_COMMIT",
    22: "TXN_ABORT",
}


class MessageRow(Struct, frozen=True):
    """A message. Times in epoch ms, event time 0 = none; ``size`` and ``sha1`` are those of the payload.

    ``ordering_key`` and ``payload`` are base64. From ``payload`` on a key is there only when it says something:
    ``encrypted`` means that size, digest and payload are the entry's stored bytes, ``chunks`` how many entries made the message.
    ``value`` is what the schema makes of the payload, as JSON can say it.
    """

    JSON_OPTIONAL: ClassVar[tuple[str, ...]] = (
        "payload",
        "broker_index",
        "deliver_at_time",
        "encrypted",
        "null_value",
        "chunks",
        "marker_type",
        "transaction",
        "schema_version",
        "value",
        "value_error",
    )

    topic: str
    ledger_id: int
    entry_id: int
    batch_index: int
    publish_time: int
    broker_time: int | None
    event_time: int
    key: str | None
    ordering_key: str | None
    producer: str
    sequence_id: int
    properties: Mapping[str, str]
    size: int
    sha1: str | None
    payload: str | None = None
    broker_index: int | None = None
    deliver_at_time: int | None = None
    encrypted: bool | None = None
    null_value: bool | None = None
    chunks: int | None = None
    marker_type: str | None = None
    transaction: str | None = None
    schema_version: int | None = None
    value: object = None
    value_error: str | None = None


def message_row(
    topic: TopicName,
    message: Message,
    *,
    payload: bool = False,
    decoded: Decoded | None = None,
) -> MessageRow:
    """Return the row of MESSAGE. DECODED: its value and why it has none, when they are asked for."""
    body = message.payload
    value, error = (None, None) if decoded is None else decoded
    return MessageRow(
        topic=str(topic),
        ledger_id=message.position.ledger_id,
        entry_id=message.position.entry_id,
        batch_index=message.position.batch_index,
        publish_time=signed(message.publish_ms),
        broker_time=None if message.broker_ms is None else signed(message.broker_ms),
        event_time=signed(message.event_ms),
        key=message.key,
        ordering_key=None if message.ordering_key is None else b64encode(message.ordering_key).decode(),
        producer=message.producer,
        sequence_id=signed(message.sequence_id),
        properties=message.properties,
        size=len(body),
        sha1=sha1(body, usedforsecurity=False).hexdigest(),
        payload=b64encode(body).decode() if payload else None,
        broker_index=None if message.broker_index is None else signed(message.broker_index),
        deliver_at_time=message.deliver_at_ms or None,
        encrypted=message.encrypted or None,
        null_value=message.null_value or None,
        chunks=message.chunks if message.chunks > 1 else None,
        marker_type=marker_name(message.marker_type),
        transaction=None if message.transaction is None else f"{message.transaction[0]}:{message.transaction[1]}",
        schema_version=None if decoded is None else message.schema_number,
        value=value,
        value_error=error,
    )


def redacted(row: MessageRow) -> MessageRow:
    """Return ROW with SHA-256 and length in place of keys, property values, payload and value, and without the payload's SHA-1."""
    return replace(
        row,
        key=None if row.key is None else redact(row.key),
        ordering_key=None if row.ordering_key is None else redact(b64decode(row.ordering_key)),
        properties={name: redact(value) for name, value in row.properties.items()},
        sha1=None,
        payload=None if row.payload is None else redact(b64decode(row.payload)),
        value=None if row.value is None else redact_value(row.value),
    )


def marker_name(marker_type: int | None) -> str | None:
    """Return upstream's name of a marker (MarkerType), or its number."""
    return None if marker_type is None else MARKER_NAMES.get(marker_type, str(marker_type))
