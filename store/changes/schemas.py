"""Registering and deleting schemas as a broker does: each version is a ledger of one entry that the locator lists.

Upstream: ``SchemaRegistryServiceImpl``, ``BookkeeperSchemaStorage``, ``SchemaCompatibilityStrategy`` (Pulsar 4.0.8).
"""

import hashlib
import json
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import DecodeError
from msgspec import Struct, field
from msgspec.structs import replace

from pulsar_admin.store.changes.log_writer import LedgerSpec, apply_written, write_ledgers
from pulsar_admin.store.changes.plan import (
    ChangeKind,
    ChangePart,
    ChangeReport,
    Plan,
    WritingPlan,
    check_transaction,
    delete_step,
    put_value_step,
)
from pulsar_admin.store.codec.avro import find_flaw, parse_definition
from pulsar_admin.store.codec.avrocompat import can_read
from pulsar_admin.store.codec.claims import schema_claims
from pulsar_admin.store.codec.ledgermetadata import ledger_path
from pulsar_admin.store.codec.policies import decode_json_object
from pulsar_admin.store.codec.schema import (
    TYPE_NUMBERS,
    IndexEntry,
    SchemaEntry,
    SchemaLocator,
    encode_schema_entry,
    encode_schema_locator,
)
from pulsar_admin.store.codec.value import ValueSchema, join_pair
from pulsar_admin.store.db.environment import Store, Txn
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import EntryCorrupt, InvalidValue, Refused, reason_of
from pulsar_admin.store.files import read_file
from pulsar_admin.store.model.nodes import other_path
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.model.schemas import find_locator, live_versions
from pulsar_admin.store.model.topics import check_namespace
from pulsar_admin.store.names import Position, TopicName, shell_word
from pulsar_admin.store.policies.events import find_policy_events

_STRUCTURED = ("AVRO", "JSON", "PROTOBUF")
_UNDEFINED = "UNDEFINED"
BROKER_DEFAULT = "FULL"
"""``schemaCompatibilityStrategy`` of a broker that sets nothing."""


class NewSchema(Struct, frozen=True):
    """A schema to register (upstream's ``PostSchemaPayload``)."""

    type: str
    definition: bytes
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """The number under which the schema's type is stored."""
        return TYPE_NUMBERS[self.type]


def parse_schema(data: bytes | Mapping[str, Any], where: str) -> NewSchema:  # Any: JSON
    """Return the schema in ``data``, the JSON that ``schemas upload`` reads; raises InvalidValue."""
    try:
        schema = data if isinstance(data, Mapping) else json.loads(data)
        kind, definition = str(schema["type"]), schema.get("schema") or ""
        properties = {str(key): str(value) for key, value in (schema.get("properties") or {}).items()}
        "".join(map(str, (definition, *properties, *properties.values()))).encode()  # half a surrogate pair is no text
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidValue(f"{where} is not a schema: {error}", hint="see the example in --help", path=where) from error
    if not isinstance(definition, str):
        raise InvalidValue(
            f'{where}: "schema" is not text', hint="write the definition as a text in quotes", path=where
        )
    if kind not in TYPE_NUMBERS:
        raise InvalidValue(f"No enum constant org.apache.pulsar.common.schema.SchemaType.{kind}", value=kind)
    new = NewSchema(kind, _pair(definition) if kind == "KEY_VALUE" else definition.encode(), properties)
    whole = ValueSchema(kind, new.definition, properties)
    for part in whole.key_and_value if kind == "KEY_VALUE" else (whole,):
        _check_definition(part)
    return new


def read_schema(path: Path | str) -> NewSchema:
    """Return the schema in a file for ``schemas upload``; raises InvalidValue."""
    try:
        return parse_schema(read_file(Path(path)), str(path))
    except FileNotFoundError as error:
        raise InvalidValue(f"Schema file {path} is not found.", path=str(path)) from error
    except OSError as error:
        raise InvalidValue(f"{path} cannot be read: {error.strerror or reason_of(error)}", path=str(path)) from error


def _check_definition(schema: ValueSchema) -> None:
    """Raise InvalidValue for a definition that does not fit the schema's type (upstream ``SchemaDataValidator``)."""
    kind = schema.type_name
    if kind in _STRUCTURED:
        definition = _parsed(schema.definition, kind)
        if kind == "AVRO" and isinstance(definition, list):
            raise InvalidValue("Avro schema typed [UNION] is not supported", value=kind)
        if (flaw := find_flaw(schema.definition)) is not None:
            raise InvalidValue(f"Invalid schema definition data for {kind} schema: {flaw}", value=kind)
    elif kind == "PROTOBUF_NATIVE":
        _check_native(schema.definition)
    elif schema.definition and kind not in ("KEY_VALUE", "NONE", "BYTES"):
        text = schema.definition.decode()
        raise InvalidValue(f"Invalid schema definition data for {kind.lower()} schema : '{text}'", value=kind)


def _check_native(definition: bytes) -> None:
    """Raise InvalidValue for a PROTOBUF_NATIVE definition without the message that it names."""
    try:
        native = json.loads(definition)
        files = FileDescriptorSet.FromString(b64decode(native["fileDescriptorSet"])).file
        (root,) = (file for file in files if file.name == native["rootFileDescriptorName"])
        messages = root.message_type
        for name in native["rootMessageTypeName"].removeprefix(root.package).removeprefix(".").split("."):
            (found,) = (message for message in messages if message.name == name)
            messages = found.nested_type
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, DecodeError) as error:
        raise InvalidValue(f"deserialize ProtobufNative Schema failed: {reason_of(error)}") from error


def _pair(definition: str) -> bytes:
    """Return the stored form of a key-value definition (upstream ``convertKeyValueDataStringToSchemaInfoSchema``)."""
    try:
        pair = json.loads(definition)
        key, value = (
            json.dumps(pair[part], separators=(",", ":"), ensure_ascii=False).encode() if pair[part] != "" else b""
            for part in ("key", "value")
        )
        return join_pair(key, value)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidValue(
            f"Invalid schema definition data for KEY_VALUE schema: {reason_of(error)}",
            hint='write {"key": DEFINITION, "value": DEFINITION} as a text in quotes; "" for a primitive type',
        ) from error


def _parsed(definition: bytes, kind: str) -> Any:  # Any: a definition of AVRO
    try:
        parse_definition(definition)
    except EntryCorrupt as error:
        raise InvalidValue(f"Invalid schema definition data for {kind} schema: {error.message}", value=kind) from error
    return json.loads(definition)


def compatibility_strategy(txn: Txn, name: TopicName) -> str:
    """Return the compatibility strategy of the topic, otherwise of its namespace; UNDEFINED means the broker's default."""
    events = find_policy_events(txn, name.namespace)
    own = "" if events is None else events.local.get(name.base, {}).get("schemaCompatibilityStrategy")
    if own and own != _UNDEFINED:
        return str(own)
    node = find_node(txn, name.namespace.policies_path)
    policies = {} if node is None else decode_json_object(node.value, node.path)
    strategy = str(policies.get("schema_compatibility_strategy") or _UNDEFINED)
    return BROKER_DEFAULT if strategy == _UNDEFINED else strategy


def check_compatible(reader: EntryReader, name: TopicName, new: NewSchema) -> None:
    """Raise Refused unless ``new`` is compatible with the topic's schemas."""
    strategy = compatibility_strategy(reader.txn, name)
    entries = [entry for _, entry in live_versions(reader, name)]
    if not entries or strategy == "ALWAYS_COMPATIBLE":
        return
    if strategy == "ALWAYS_INCOMPATIBLE":
        raise Refused(f"no schema may follow that of {name}: the strategy is {strategy}", topic=str(name))
    for entry in entries if strategy.endswith("_TRANSITIVE") else entries[-1:]:
        if entry.type != new.number:
            raise Refused(
                f"Incompatible schema: exists schema type {entry.type_name}, new schema type {new.type}",
                topic=str(name),
            )
        if new.type in _STRUCTURED:
            _check_pair(name, strategy, entry, new)


def _check_pair(name: TopicName, strategy: str, entry: SchemaEntry, new: NewSchema) -> None:
    try:
        old, added = _parsed(entry.definition, entry.type_name), json.loads(new.definition)
    except InvalidValue as error:
        raise Refused(
            f"the schema of {name} cannot be read, so that nothing is known to be compatible with it: {error.message}",
            hint=f"see it with: pulsar-admin schemas get {shell_word(name)}",
            topic=str(name),
        ) from error
    # BACKWARD: consumers with the new schema read old messages; FORWARD: old consumers read new ones; FULL: both.
    pairs = {"BACKWARD": [(added, old)], "FORWARD": [(old, added)]}
    for reading, writing in pairs.get(strategy.removesuffix("_TRANSITIVE"), [(added, old), (old, added)]):
        if not can_read(reading, writing):
            raise Refused(
                f"Error during schema compatibility check with strategy {strategy}: Unable to read schema: "
                f"{json.dumps(writing)} using schema: {json.dumps(reading)}",
                hint=f"its namespace decides: pulsar-admin namespaces get-schema-compatibility-strategy {shell_word(name.namespace)}",
                topic=str(name),
            )


_UPLOAD = ChangeKind("schemas upload", "upload a schema of {place}")
_DELETE = ChangeKind("schemas delete", "delete the schemas of {place}")


def plan_upload(reader: EntryReader, name: TopicName, new: NewSchema, now_ms: int) -> Plan | WritingPlan:
    """Plan registering a schema; one that is already registered is not written again.

    Raises NamespaceNotFound, Refused.
    """
    check_namespace(reader.txn, name.namespace)
    for version, entry in live_versions(reader, name):
        if entry.type == new.number and _same_definition(entry, new):
            shown = {"version": version, "type": new.type}
            return Plan(_UPLOAD, reader.txn.id, (), (ChangePart(topic=str(name), before=shown, after=shown),))
    check_compatible(reader, name, new)
    entry = SchemaEntry("", "", new.number, new.definition, now_ms, False, new.properties)
    return _plan_version(reader.txn, _UPLOAD, name, entry, now_ms)


def _same_definition(entry: SchemaEntry, new: NewSchema) -> bool:
    if new.type not in _STRUCTURED or entry.definition == new.definition:
        return entry.definition == new.definition
    try:
        return bool(json.loads(entry.definition) == json.loads(new.definition))
    except (ValueError, RecursionError):  # what is stored is no definition
        return False


def plan_delete_schema(txn: Txn, name: TopicName, force: bool, now_ms: int) -> Plan | WritingPlan:
    """Plan adding a version that marks a topic's schema as deleted or, with ``force``, deleting all versions and ledgers.

    Raises Refused if a topic of a newer Pulsar shares the schema.
    """
    other = other_path(txn, name.base)
    if other:
        raise Refused(
            f"{other}, which a newer Pulsar wrote, also has the schema of {name}",
            hint=f"look at the node: pulsar-admin store ls {shell_word(other)}; that Pulsar's own admin deletes the schema",
            topic=str(name),
            path=other,
        )
    locator = find_locator(txn, name)
    if not force:
        gone = SchemaEntry("", "", TYPE_NUMBERS["NONE"], b"", now_ms, True)
        return _plan_version(txn, _DELETE, name, gone, now_ms)
    ledgers = () if locator is None else locator.ledger_ids
    paths = [name.schema_path, *map(ledger_path, ledgers)]
    steps = tuple(delete_step(txn, path) for path in paths if find_node(txn, path) is not None)
    before = {"versions": 0 if locator is None else len(locator.index)}
    part = ChangePart(topic=str(name), before=before, after={"versions": 0}, unreferenced_ledgers=ledgers)
    return Plan(_DELETE, txn.id, steps, (part,))


def _plan_version(txn: Txn, kind: ChangeKind, name: TopicName, entry: SchemaEntry, now_ms: int) -> WritingPlan:
    """Plan adding ``entry`` as the newest version of a topic's schema, in a ledger of its own."""
    locator = find_locator(txn, name)
    index = () if locator is None else locator.index
    version = 0 if locator is None else locator.newest.version + 1
    digest = b"" if entry.deleted else hashlib.sha256(entry.definition).digest()
    entry = replace(entry, schema_id=name.schema_id, index=index or (IndexEntry(version, Position(-1, -1), digest),))
    before = None if locator is None else {"version": locator.newest.version}
    after = {"version": version, **({"deleted": True} if entry.deleted else {"type": entry.type_name})}
    part = ChangePart(topic=str(name), before=before, after=after)
    plan = Plan(kind, txn.id, (), (part,))

    def make(store: Store) -> tuple[ChangeReport, ...]:
        with store.read() as current:
            check_transaction(plan.txn_id, current.id)
        with write_ledgers(store, [(LedgerSpec(schema_claims(name)), [encode_schema_entry(entry)])]) as written:
            item = IndexEntry(version, Position(written.ledgers[0].ledger_id, 0), digest)
            with store.read() as current:
                node = find_node(current, name.schema_path)
                value = encode_schema_locator(SchemaLocator(item, (*index, item)), b"" if node is None else node.value)
                steps = (*written.steps(current, now_ms), put_value_step(current, name.schema_path, value, now_ms))
            return (apply_written(written, replace(plan, steps=steps), now_ms),)

    return WritingPlan(kind, txn.id, lambda: (plan.preview(),), make)
