"""``schemas``: the versions of a topic's schema, registering and deleting them, spelled as upstream spells them."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

from pulsar_admin.context import App
from pulsar_admin.gson import gson_text
from pulsar_admin.upstream import mirrored
from store.changes.schemas import NewSchema, check_compatible, parse_schema, plan_delete_schema, plan_upload
from store.codec.javamap import in_hash_map_order
from store.codec.schema import IndexEntry, SchemaEntry
from store.errors import InvalidValue, MetadataCorrupt, NamespaceNotFound, NothingMatches, Refused, StalePlan, reason_of
from store.files import read_file
from store.model.schemas import find_locator, live_versions
from store.names import TopicName

_NOTHING = "Nothing, like pulsar-admin; the change and its undo command are on stderr."
_FILE = {"filename": 'A file such as {"type": "AVRO", "schema": "{\\"type\\": …}", "properties": {}}.'}
_OBJECTS = ("AVRO", "JSON", "PROTOBUF", "PROTOBUF_NATIVE")


@mirrored(
    "schemas get",
    examples=[
        "pulsar-admin schemas get public/default/avro",
        "pulsar-admin schemas get public/default/avro -v 0",
        "pulsar-admin schemas get public/default/avro --all-version",
    ],
    output="`version` and `schemaInfo`, with -v what stands in that; with --all-version every version, definitions in base64 and as text.",
    errors=[NothingMatches, InvalidValue, MetadataCorrupt],
    helps={
        "all_version": "Every version, oldest first, from behind the last deletion.",
        "version": "This version; default: the newest.",
    },
)
def get(app: App, topic: TopicName, all_version: bool, version: int | None) -> None:
    """Show the schema of a topic."""
    with app.session.reader() as reader:
        found = live_versions(reader, topic)
    if version is not None and version < 0:
        raise InvalidValue(f"Option --version must be greater than 0, but found {version}", value=str(version))
    if all_version and version is not None:
        raise InvalidValue("Only one or neither of --version and --all-version can be specified.")
    if all_version:
        app.answer([_info(topic, entry) for _, entry in found])
        return
    wanted = [one for one in found if version in (None, one[0])]
    if not wanted:
        what = "none" if version is None else f"no version {version}"
        raise NothingMatches(f"Schema not found: {topic} has {what}", topic=str(topic))
    _answer_version(app, *wanted[-1], topic, alone=version is not None)


def _answer_version(app: App, version: int, entry: SchemaEntry, topic: TopicName, *, alone: bool) -> None:
    shown = _info(topic, entry)
    # Upstream's gson writes the definition of a primitive type, which some clients fill with "null", in base64.
    is_text = entry.type_name in (*_OBJECTS, "KEY_VALUE")
    info = {
        "name": shown["name"],
        "schema": entry.definition.decode("utf-8", "replace") if is_text else shown["schema"],
        "type": shown["type"],
        "timestamp": entry.timestamp_ms,
        "properties": dict(sorted(entry.properties.items())),
    }
    parsed = ("schema",) if entry.type_name in _OBJECTS else ()
    text = gson_text(info if alone else {"version": version, "schemaInfo": info}, parsed=parsed)
    value = shown if alone else {"version": version, "schemaInfo": shown}
    app.emit(value, plain=None if app.settings.output else text + "\n")


def _info(topic: TopicName, entry: SchemaEntry) -> dict[str, Any]:  # Any: JSON
    """Return a version as Jackson writes upstream's ``SchemaInfo``."""
    return {
        "name": topic.local_name,
        "schema": b64encode(entry.definition).decode(),
        "type": entry.type_name,
        "timestamp": entry.timestamp_ms,
        "properties": in_hash_map_order(entry.properties),
        "schemaDefinition": entry.definition.decode("utf-8", "replace"),
    }


@mirrored(
    "schemas metadata",
    examples=["pulsar-admin schemas metadata public/default/avro"],
    output="`info` and `index`: where the newest version lies, and every version; `null` without a schema.",
    errors=[MetadataCorrupt],
)
def metadata(app: App, topic: TopicName) -> None:
    """Show where the versions of a topic's schema are stored."""
    with app.session.read() as txn:
        locator = find_locator(txn, topic)
    if locator is None:
        app.answer(None)
        return
    app.answer({"info": _place(locator.newest), "index": [_place(item) for item in locator.index]})


def _place(item: IndexEntry) -> dict[str, int]:
    return {"ledgerId": item.position.ledger_id, "entryId": item.position.entry_id, "version": item.version}


def _read(filename: str) -> NewSchema:
    try:
        return parse_schema(read_file(Path(filename)), filename)
    except FileNotFoundError as error:
        raise InvalidValue(f"Schema file {filename} is not found.", path=filename) from error
    except OSError as error:
        raise InvalidValue(f"{filename} cannot be read: {error.strerror or reason_of(error)}", path=filename) from error


@mirrored(
    "schemas upload",
    changes=True,
    writes_first=True,
    examples=(),
    elsewhere=["pulsar-admin schemas upload acme/orders/eu -f order.json"],
    output=_NOTHING,
    errors=[InvalidValue, NamespaceNotFound, Refused, StalePlan],
    helps=_FILE,
)
def upload(app: App, topic: TopicName, filename: str) -> None:
    """Register a new version of a topic's schema, if it is compatible with the existing versions.

    A schema that is already registered is not changed.
    """
    app.change(app.session.plan(plan_upload, topic, _read(filename)))


@mirrored(
    "schemas compatibility",
    examples=(),
    elsewhere=["pulsar-admin schemas compatibility acme/orders/eu -f order.json"],
    output="Nothing when it may follow, as pulsar-admin; else an error.",
    errors=[InvalidValue, Refused],
    helps=_FILE,
)
def compatibility(app: App, topic: TopicName, filename: str) -> None:
    """Check whether a schema is compatible with the versions of a topic's schema."""
    with app.session.reader() as reader:
        check_compatible(reader, topic, _read(filename))


@mirrored(
    "schemas delete",
    changes=True,
    writes_first=True,
    examples=["pulsar-admin schemas delete public/default/avro"],
    output=_NOTHING,
    errors=[MetadataCorrupt, StalePlan],
    helps={"force": "All versions go, with their ledgers; else a version is added that says it is deleted."},
)
def delete(app: App, topic: TopicName, force: bool) -> None:
    """Delete the schema of a topic."""
    app.change(app.session.plan_rows(lambda txn, now_ms: plan_delete_schema(txn, topic, force=force, now_ms=now_ms)))
