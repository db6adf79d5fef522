"""Read model of schemas: the versions of a topic's schema, the values of its messages decoded by them, and tests of such a value.

Upstream: ``BookkeeperSchemaStorage``. A message's metadata names a version; a message without one was sent without a schema, and
its value is not decoded.
"""

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct, field

from pulsar_admin.store.codec.schema import (
    IndexEntry,
    SchemaEntry,
    SchemaLocator,
    decode_schema_entry,
    decode_schema_locator,
)
from pulsar_admin.store.codec.value import (
    DECODE_ERRORS,
    Decode,
    Value,
    ValueSchema,
    decoder_of,
    json_text,
    key_bytes,
    plain,
    split_pair,
    undecodable,
    value_schema,
)
from pulsar_admin.store.db.environment import Txn
from pulsar_admin.store.db.tree import find_node
from pulsar_admin.store.errors import (
    EntryCorrupt,
    EntryNotFound,
    InvalidValue,
    LedgerNotFound,
    NothingMatches,
    StoreError,
)
from pulsar_admin.store.model.messages import Decoded, Message
from pulsar_admin.store.model.reader import EntryReader
from pulsar_admin.store.names import TopicName
from pulsar_admin.store.wording import Answer


class TopicSchemas(Struct, frozen=True):
    """The versions of one topic's schema, plain data that travels to executors; ``problems``: why a version does not exist."""

    versions: Mapping[int, ValueSchema] = field(default_factory=dict)
    problems: Mapping[int, str] = field(default_factory=dict)

    @property
    def newest(self) -> ValueSchema | None:
        """The newest version that can be read."""
        return self.versions[max(self.versions)] if self.versions else None


class Encoded(NamedTuple):
    """The parts of a message from which its value is decoded. ``version``: of its schema, None if it was sent without a schema."""

    version: int | None
    payload: bytes
    key: str | None = None
    key_encoded: bool = False
    null_value: bool = False
    encrypted: bool = False
    is_chunk: bool = False


def encoded(message: Message) -> Encoded:
    """Return the parts of ``message``, complete as a consumer gets it, from which its value is decoded."""
    return Encoded(
        message.schema_number,
        bytes(message.payload),
        message.key,
        message.key_encoded,
        message.null_value,
        message.encrypted,
    )


def find_locator(txn: Txn, topic: TopicName) -> SchemaLocator | None:
    """Return the locator of the schemas of ``topic`` (of its base topic for a partition), None if it has none; raises MetadataCorrupt."""
    node = find_node(txn, topic.schema_path)
    return None if node is None else decode_schema_locator(node.value, node.path)


def find_schema(reader: EntryReader, topic: TopicName, version: int | None) -> SchemaEntry | None:
    """Return a ``version`` of the schema of ``topic`` (None: the newest), None when it is not here; raises MetadataCorrupt,
    EntryCorrupt."""
    locator = find_locator(reader.txn, topic)
    if locator is None:
        return None
    wanted = locator.newest.version if version is None else version
    entry = next((item for item in (*locator.index, locator.newest) if item.version == wanted), None)
    try:
        return None if entry is None else read_version(reader, entry)
    except (EntryNotFound, LedgerNotFound):
        return None


def live_versions(reader: EntryReader, topic: TopicName) -> list[tuple[int, SchemaEntry]]:
    """Return (version, schema) of ``topic`` oldest first, after the last one that deletes (upstream ``trimDeletedSchemaAndGetList``).

    Raises MetadataCorrupt, EntryCorrupt, EntryNotFound, LedgerNotFound.
    """
    locator = find_locator(reader.txn, topic)
    live: list[tuple[int, SchemaEntry]] = []
    for item in () if locator is None else locator.index:
        entry = read_version(reader, item)
        live = [] if entry.deleted else [*live, (item.version, entry)]
    return live


class SchemaVersion(Answer, frozen=True):
    """One version of a topic's schema: ``type`` by upstream's name, ``definition`` as uploaded, such as JSON of Avro."""

    version: int
    type: str
    definition: bytes
    timestamp_ms: int
    properties: Mapping[str, str]


def read_versions(reader: EntryReader, topic: TopicName) -> tuple[SchemaVersion, ...]:
    """Return the versions of ``live_versions`` as records; raises as that."""
    return tuple(
        SchemaVersion(version, entry.type_name, entry.definition, entry.timestamp_ms, entry.properties)
        for version, entry in live_versions(reader, topic)
    )


def find_version(reader: EntryReader, topic: TopicName, version: int | None) -> SchemaVersion:
    """Return a version of the schema of ``topic``, None: the newest; raises NothingMatches, and as ``live_versions``."""
    versions = [one for one in read_versions(reader, topic) if version in (None, one.version)]
    if not versions:
        what = "none" if version is None else f"no version {version}"
        raise NothingMatches(f"Schema not found: {topic} has {what}", topic=str(topic))
    return versions[-1]


def read_schemas(reader: EntryReader, topic: TopicName) -> TopicSchemas:
    """Return the schemas of ``topic`` (of its base topic for a partition), none when it has no schema; raises MetadataCorrupt."""
    locator = find_locator(reader.txn, topic)
    if locator is None:
        return TopicSchemas()
    versions: dict[int, ValueSchema] = {}
    problems: dict[int, str] = {}
    for item in (*locator.index, locator.newest):
        try:
            entry = read_version(reader, item)
        except StoreError as error:
            problems[item.version] = f"schema version {item.version}: {error.message}"
            continue
        if entry.deleted:
            problems[item.version] = f"schema version {item.version} is deleted"
        else:
            versions[item.version] = value_schema(entry)
    return TopicSchemas(versions, problems)


def read_version(reader: EntryReader, item: IndexEntry) -> SchemaEntry:
    """Return the schema that ``item`` of a locator names; raises EntryNotFound, EntryCorrupt, LedgerNotFound."""
    payload = reader.read(item.position.ledger_id, item.position.entry_id).payload
    return decode_schema_entry(payload, f"entry {item.position}")


class ValueReader:
    """Decodes the values of one topic's messages with ``decode``, which raises StoreError or one of ``DECODE_ERRORS``."""

    def __init__(self, schemas: TopicSchemas, decode: Callable[[ValueSchema, Encoded], Value]) -> None:
        self._schemas = schemas
        self._decode = decode

    def read(self, message: Encoded) -> Decoded:
        """Return the value of ``message``, or the reason for its absence."""
        if message.version is None or message.encrypted:
            return Decoded()
        if message.is_chunk:
            return Decoded(error="a chunk of a larger message")
        schema = self._schemas.versions.get(message.version)
        if schema is None:
            unknown = f"schema version {message.version} is not in the store"
            return Decoded(error=self._schemas.problems.get(message.version, unknown))
        if message.null_value and not schema.is_separated:
            return Decoded()
        try:
            return Decoded(self._decode(schema, message))
        except (StoreError, *DECODE_ERRORS) as error:
            return Decoded(error=undecodable(schema, error))


class PlainValues:
    """Decodes values to plain JSON values; caches a decoder per version of one topic's schema."""

    def __init__(self) -> None:
        self._decoders: dict[tuple[int | None, str], Decode] = {}

    def value(self, schema: ValueSchema, message: Encoded) -> Value:
        """Return the value of ``message``; a KEY_VALUE has ``key`` and ``value``."""
        if schema.type_name != "KEY_VALUE":
            return self._plain(message, "", schema, message.payload)
        parts = key_and_value_bytes(schema, message)
        schemas = schema.key_and_value
        return {
            name: None if part is None else self._plain(message, name, of, part)
            for name, part, of in zip(("key", "value"), parts, schemas, strict=True)
        }

    def text(self, schema: ValueSchema, message: Encoded) -> Value:
        """Return the value of ``message`` as JSON; that of a JSON schema as it was sent."""
        value = self.value(schema, message)
        return message.payload.decode() if schema.type_name == "JSON" else json_text(value)

    def _plain(self, message: Encoded, name: str, schema: ValueSchema, data: bytes) -> Value:
        where = (message.version, name)
        if where not in self._decoders:
            self._decoders[where] = decoder_of(schema)
        return plain(self._decoders[where](data))


def record_fields(schema: ValueSchema) -> dict[str, str]:
    """Return the fields of the records that a schema describes, with the names of their Avro types; none where it describes no record."""
    try:
        definition = json.loads(schema.definition) if schema.type_name in ("AVRO", "JSON") else None
    except (ValueError, RecursionError):
        return {}
    if not isinstance(definition, dict) or definition.get("type") != "record":
        return {}
    fields = definition.get("fields")
    named = (
        [one for one in fields if isinstance(one, dict) and isinstance(one.get("name"), str)]
        if isinstance(fields, list)
        else []
    )
    return {one["name"]: _avro_type(one.get("type")) for one in named}


def _avro_type(found: object) -> str:
    """Return the name of an Avro type, of an optional one without its null; "" if it is not a plain type."""
    others = [one for one in found if one != "null"] if isinstance(found, list) else [found]
    return others[0] if len(others) == 1 and isinstance(others[0], str) else ""


def value_decoder(
    reader: EntryReader, topic: TopicName, problems: list[StoreError] | None = None
) -> Callable[[Message], Decoded]:
    """Return a decoder for the values of messages of ``topic``; errors of values are also added to ``problems``."""
    values = ValueReader(read_schemas(reader, topic), PlainValues().value)

    def decode(message: Message) -> Decoded:
        decoded = values.read(encoded(message))
        if decoded.error is not None and problems is not None:
            problems.append(EntryCorrupt(f"the value of {message.position} of {topic}: {decoded.error}"))
        return decoded

    return decode


def key_and_value_bytes(schema: ValueSchema, message: Encoded) -> tuple[bytes | None, bytes | None]:
    """Return a KEY_VALUE's two parts as encoded; raises one of ``DECODE_ERRORS``."""
    if schema.is_separated:
        return key_bytes(message.key, message.key_encoded), None if message.null_value else message.payload
    return split_pair(message.payload)


# -- tests of a value by a path into it -------------------------------------------------------------------------------


_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]=!<>~'"\s*]+)|\[(?P<index>-?\d+)\]|\[(?P<quoted>'[^']*'|"[^"]*")\]|(?P<any>\.\*|\[\*\])"""
)
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {  # Any: two texts or two numbers
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPARISON = re.compile(r"\s*(?P<sign>!=|<=|>=|=|<|>)\s*(?P<wanted>.*)\Z", re.DOTALL)
Step = str | int | None
"""A member's name, an index, or None for all of them."""


class PathTest(Struct, frozen=True):
    """A path with a condition on its value. ``sign``: the comparison, None: any value; ``wanted``: the compared value as typed."""

    steps: tuple[Step, ...]
    sign: str | None = None
    wanted: str = ""

    def holds(self, value: object) -> bool:
        """Whether any value at the path in ``value``, parsed JSON, satisfies the condition."""
        return any(self._passes(leaf) for leaf in _lead(value, self.steps))

    def _passes(self, found: object) -> bool:
        if self.sign is None:
            return True
        wanted = _parsed(self.wanted)
        if self.sign not in _ORDERS:
            is_same = found == wanted and isinstance(found, bool) == isinstance(wanted, bool)
            return (is_same or found == self.wanted) == (self.sign == "=")
        order = _ORDERS[self.sign]
        if isinstance(found, str):
            return order(found, wanted if isinstance(wanted, str) else self.wanted)
        return _is_number(found) and _is_number(wanted) and order(found, wanted)


def parse_path_test(text: str) -> PathTest:
    """Return the test that ``text`` writes; raises InvalidValue."""
    if not text.startswith("$"):
        raise _wrong(text, 0)
    at, steps = 1, list[Step]()
    while step := _STEP.match(text, at):
        at = step.end()
        if step["name"] is not None:
            steps.append(step["name"])
        elif step["index"] is not None:
            steps.append(int(step["index"]))
        else:
            steps.append(step["quoted"][1:-1] if step["quoted"] else None)
    rest = text[at:]
    if not rest.strip():
        return PathTest(tuple(steps))
    match = _COMPARISON.match(rest)
    if match is None:
        raise _wrong(text, at)
    return PathTest(tuple(steps), match["sign"], match["wanted"])


def _wrong(text: str, at: int) -> InvalidValue:
    return InvalidValue(
        f"{text!r} is not a path into a value: {text[at:]!r} is not understood",
        hint="write $.order.id=42, $.items[0].sku, $['a name']!=x; also < <= > >=",
        value=text,
    )


def _lead(value: object, steps: tuple[Step, ...]) -> Iterator[object]:
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if step is None:
        members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for member in members:
            yield from _lead(member, rest)
    elif isinstance(step, str):
        if isinstance(value, dict) and step in value:
            yield from _lead(value[step], rest)
    elif isinstance(value, list) and -len(value) <= step < len(value):
        yield from _lead(value[step], rest)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
