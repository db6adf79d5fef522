"""Protobuf's text format as BookKeeper stores it: cookies and version 2 ledger metadata.

protobuf-java and LightProto (from BookKeeper 4.18) may indent and escape differently: parse it, never compare bytes.
"""

from __future__ import annotations

import warnings
from typing import TypeVar

from google.protobuf.message import Message

from pulsar_admin.store.errors import MetadataCorrupt

MessageT = TypeVar("MessageT", bound=Message)


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
