"""``schemas``: showing, registering and deleting the versions of a topic's schema, with upstream's command names."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

from pulsar_admin.context import App, Printed, Result, Shown
from pulsar_admin.jsonify import dump_schema, parse_schema_text
from pulsar_admin.store import errors
from pulsar_admin.store.codec.java import in_hash_map_order
from pulsar_admin.store.codec.value import ValueSchema
from pulsar_admin.store.names import TopicName
from pulsar_admin.upstream import mirrored

if TYPE_CHECKING:
    from pulsar_admin.store.codec.schema import IndexEntry
    from pulsar_admin.store.model.schemas import SchemaVersion

_STRUCTURED = ("AVRO", "JSON", "PROTOBUF")
_FILE = {"filename": 'A file such as {"type": "AVRO", "schema": "{\\"type\\": …}", "properties": {}}.'}


@mirrored(
    "schemas get",
    "public/default/avro",
    "public/default/avro -v 0",
    "public/default/avro --all-version",
    output="`version` and `schemaInfo`, with -v the content of `schemaInfo`; with --all-version every version, "
    "definitions in base64 and as text.",
    errors=[errors.NothingMatches, errors.InvalidValue, errors.MetadataCorrupt, errors.EntryCorrupt],
    helps={
        "all_version": "Every version, oldest first, since the last deletion.",
        "version": "This version; default: the newest.",
    },
)
def get(app: App, topic: TopicName, all_version: bool, version: int | None) -> Shown:
    """Show the schema of a topic."""
    if version is not None and version < 0:
        raise errors.InvalidValue(f"Option --version must be greater than 0, but found {version}", value=str(version))
    if all_version and version is not None:
        raise errors.InvalidValue("Only one or neither of --version and --all-version can be specified.")
    if all_version:
        return Printed([_info(topic, schema) for schema in app.topic(topic).schemas()])
    schema = app.topic(topic).schema(version)
    shown = _info(topic, schema)
    return Result(
        shown if version is not None else {"version": schema.version, "schemaInfo": shown},
        screen=lambda _: [_gson(schema, shown, alone=version is not None)],
        texts=(None,),
    )


def _gson(found: SchemaVersion, shown: dict[str, Any], *, alone: bool) -> str:  # Any: JSON
    info = _as_gson(shown["name"], ValueSchema(found.type, found.definition, found.properties), found.timestamp_ms)
    return dump_schema(info if alone else {"version": found.version, "schemaInfo": info}) + "\n"


def _as_gson(name: str, schema: ValueSchema, timestamp_ms: int = 0) -> dict[str, Any]:  # Any: JSON
    """Return a schema as upstream's ``SchemaUtils.jsonifySchemaInfo`` writes it."""
    text = schema.definition.decode("utf-8", "replace")
    shown: object = b64encode(schema.definition).decode()  # of a primitive type some clients fill it with "null"
    if schema.type_name == "KEY_VALUE":
        shown = _key_and_value(schema)
    elif schema.type_name in _STRUCTURED:
        shown = parse_schema_text(text)
    elif schema.type_name == "PROTOBUF_NATIVE":
        shown = text
    properties = dict(sorted(schema.properties.items()))
    return {
        "name": name,
        "schema": shown,
        "type": schema.type_name,
        "timestamp": timestamp_ms,
        "properties": properties,
    }


def _key_and_value(schema: ValueSchema) -> dict[str, Any]:  # Any: JSON
    names = (schema.properties.get(f"{part}.schema.name", "") for part in ("key", "value"))
    key, value = (_as_gson(name, part) for name, part in zip(names, schema.key_and_value, strict=True))
    return {"key": key, "value": value}


def _info(topic: TopicName, found: SchemaVersion) -> dict[str, Any]:  # Any: JSON
    """Return a schema version with the keys that Jackson writes for upstream's ``SchemaInfo``."""
    text = encoded = b64encode(found.definition).decode()
    if found.type == "KEY_VALUE":
        pair = _key_and_value(ValueSchema(found.type, found.definition, found.properties))
        text = dump_schema(pair, pretty=False)
    elif found.type in (*_STRUCTURED, "PROTOBUF_NATIVE"):
        text = found.definition.decode("utf-8", "replace")
    return {
        "name": topic.local_name,
        "schema": encoded,
        "type": found.type,
        "timestamp": found.timestamp_ms,
        "properties": in_hash_map_order(found.properties),
        "schemaDefinition": text,
    }


@mirrored(
    "schemas metadata",
    "public/default/avro",
    output="`info` and `index`: where the newest version lies, and every version; `null` without a schema.",
    errors=[errors.MetadataCorrupt],
)
def metadata(app: App, topic: TopicName) -> Shown:
    """Show where the versions of a topic's schema are stored."""
    locator = app.topic(topic).schema_locator()
    if locator is None:
        return Printed(None)
    return Printed({"info": _place(locator.newest), "index": [_place(item) for item in locator.index]})


def _place(item: IndexEntry) -> dict[str, int]:
    return {"ledgerId": item.position.ledger_id, "entryId": item.position.entry_id, "version": item.version}


@mirrored(
    "schemas upload",
    elsewhere=["acme/orders/eu -f order.json"],
    changes=True,
    errors=[errors.InvalidValue, errors.NamespaceNotFound, errors.Refused, errors.StalePlan],
    helps=_FILE,
)
def upload(app: App, topic: TopicName, filename: str) -> None:
    """Register a new version of a topic's schema, if it is compatible with the existing versions.

    A schema that is already registered is not changed.
    """
    app.change(app.topic(topic).upload_schema(filename))


@mirrored(
    "schemas compatibility",
    elsewhere=["acme/orders/eu -f order.json"],
    output="Nothing if it is compatible, as pulsar-admin; otherwise an error.",
    errors=[errors.InvalidValue, errors.Refused],
    helps=_FILE,
)
def compatibility(app: App, topic: TopicName, filename: str) -> None:
    """Check whether a schema is compatible with the versions of a topic's schema."""
    app.topic(topic).check_schema(filename)


@mirrored(
    "schemas delete",
    "public/default/avro",
    changes=True,
    errors=[errors.MetadataCorrupt, errors.Refused, errors.StalePlan],
    helps={"force": "Delete all versions, with their ledgers; otherwise a version that marks the deletion is added."},
)
def delete(app: App, topic: TopicName, force: bool) -> None:
    """Delete the schema of a topic.

    As with a broker, the topic need not exist: a version that is deleted is then its first one.
    """
    app.change(app.topic(topic).delete_schema(force=force))
