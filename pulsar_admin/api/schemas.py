"""A topic's schemas, as ``Topic`` shows and takes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pulsar_admin.api.given import given_path, given_properties
from pulsar_admin.api.session import Session
from pulsar_admin.store.errors import InvalidValue, reason_of
from pulsar_admin.store.model.schemas import live_versions
from pulsar_admin.store.names import TopicName

if TYPE_CHECKING:
    from pulsar_admin.store.changes.schemas import NewSchema


class SchemaVersion(Struct, frozen=True):
    """One version of a topic's schema. ``type`` is upstream's name of it, ``definition`` what was uploaded, such as JSON of Avro."""

    version: int
    type: str
    definition: bytes
    timestamp_ms: int
    properties: Mapping[str, str]


def read_versions(session: Session, name: TopicName) -> tuple[SchemaVersion, ...]:
    """Return the versions of the schema of NAME as ``Topic.schemas`` does."""
    with session.reader() as reader:
        return tuple(
            SchemaVersion(version, entry.type_name, entry.definition, entry.timestamp_ms, entry.properties)
            for version, entry in live_versions(reader, name)
        )


def given_schema(schema: Mapping[str, Any] | Path | str) -> NewSchema:  # Any: JSON
    """Return SCHEMA, upstream's ``PostSchemaPayload`` or the path of a file that has one; raises InvalidValue."""
    from pulsar_admin.store.changes.schemas import parse_schema
    from pulsar_admin.store.files import read_file

    if isinstance(schema, Mapping):
        return parse_schema({**schema, "properties": given_properties(schema.get("properties"))}, "schema")
    path = given_path("schema", schema)
    try:
        return parse_schema(read_file(path), str(schema))
    except FileNotFoundError as error:
        raise InvalidValue(f"Schema file {schema} is not found.", path=str(schema)) from error
    except OSError as error:
        raise InvalidValue(
            f"{schema} cannot be read: {error.strerror or reason_of(error)}", path=str(schema)
        ) from error
