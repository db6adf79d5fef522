"""``--value`` of the commands that show messages: values decoded by the topic's schema, with the same keys everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pulsar_admin.jsonify import dump_json
from pulsar_admin.store.model.redaction import redact_value
from pulsar_admin.visible import clean_text

if TYPE_CHECKING:
    from pulsar_admin.store.model.messages import Decoded
    from pulsar_admin.store.model.reader import EntryReader

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
    """Let READER open encrypted payloads with the private keys at PATHS; raises InvalidValue, MissingComponent."""
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
