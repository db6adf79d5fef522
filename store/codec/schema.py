"""The schema registry at rest: the locator in the metadata and the entries of schema ledgers.

Upstream: ``BookkeeperSchemaStorage``, ``SchemaRegistryServiceImpl`` (Pulsar 4.0.8). A locator lists, per version, the
position of a SchemaEntry, which wraps a SchemaInfo. Entries are bare protobuf (first byte 0x12), not framed messages.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from pulsar_admin.store.codec.protobuf import parse_protobuf, properties_of, text_of, unknown_fields
from pulsar_admin.store.errors import EntryCorrupt, MetadataCorrupt
from pulsar_admin.store.names import Position
from pulsar_admin.store.proto import schema_pb2
from pulsar_admin.store.wording import Answer

# Upstream's proto names five; the broker stores SchemaType's own number plus one.
_TYPE_NAMES = dict(
    enumerate(
        (
            *("NONE", "STRING", "JSON", "PROTOBUF", "AVRO", "BOOLEAN", "INT8", "INT16", "INT32", "INT64", "FLOAT"),
            *("DOUBLE", "DATE", "TIME", "TIMESTAMP", "KEY_VALUE", "INSTANT", "LOCAL_DATE", "LOCAL_TIME"),
            *("LOCAL_DATE_TIME", "PROTOBUF_NATIVE"),
        ),
        start=1,
    )
)
TYPE_NUMBERS = {name: number for number, name in _TYPE_NAMES.items()} | {"BYTES": 1}
"""The stored number of each of upstream's names; a schema of bytes is stored as none."""


class IndexEntry(Answer, frozen=True):
    """The place of a schema version (−1:−1 = in the entry itself) and the SHA-256 of its definition."""

    version: int
    position: Position
    hash: bytes


class SchemaLocator(Answer, frozen=True):
    """The value at ``/schemas/<tenant>/<namespace>/<topic>``: the newest version, and every version."""

    newest: IndexEntry
    index: tuple[IndexEntry, ...]

    @property
    def ledger_ids(self) -> tuple[int, ...]:
        """The schema ledgers, each once, in the order of versions."""
        ids = (entry.position.ledger_id for entry in (*self.index, self.newest))
        return tuple(dict.fromkeys(ledger_id for ledger_id in ids if ledger_id >= 0))


class SchemaEntry(Struct, frozen=True):
    """One version of a schema; ``type`` is upstream's number, see ``type_name``."""

    schema_id: str
    user: str
    type: int
    definition: bytes
    timestamp_ms: int
    deleted: bool
    properties: Mapping[str, str] = field(default_factory=dict)
    index: tuple[IndexEntry, ...] = ()

    @property
    def type_name(self) -> str:
        """Upstream's name of the type, or its number."""
        return _TYPE_NAMES.get(self.type, str(self.type))


def decode_schema_locator(value: bytes, where: str) -> SchemaLocator:
    """Return the locator in a metadata value; raises MetadataCorrupt."""
    message = parse_protobuf(schema_pb2.SchemaLocator, value, where, MetadataCorrupt)
    return SchemaLocator(_index_entry(message.info), _index(message.index))


def unknown_locator_fields(value: bytes, where: str) -> tuple[str, ...]:
    """Return the names of fields of a SchemaLocator that are unknown here; raises MetadataCorrupt."""
    return unknown_fields(parse_protobuf(schema_pb2.SchemaLocator, value, where, MetadataCorrupt))


def encode_schema_locator(locator: SchemaLocator, base: bytes = b"") -> bytes:
    """Return a locator as a value to store in place of ``base``, with the unknown fields of ``base`` and of its
    remaining versions.

    Raises MetadataCorrupt.
    """
    message = schema_pb2.SchemaLocator()
    if base:
        message = parse_protobuf(schema_pb2.SchemaLocator, base, "value to replace", MetadataCorrupt)
    saved: dict[int, schema_pb2.IndexEntry] = {}
    for entry in message.index:
        saved[entry.version] = copy = schema_pb2.IndexEntry()
        copy.CopyFrom(entry)
    if not base or message.info.version != locator.newest.version:
        _fill_like(message.info, locator.newest, saved)
    _fill_index_entry(message.info, locator.newest)
    del message.index[:]
    for one in locator.index:
        _fill_like(message.index.add(), one, saved)
    return message.SerializeToString()


def _fill_like(message: schema_pb2.IndexEntry, entry: IndexEntry, saved: Mapping[int, schema_pb2.IndexEntry]) -> None:
    """Fill a message from an entry, with the unknown fields that this version had in ``saved``."""
    if entry.version in saved:
        message.CopyFrom(saved[entry.version])
    _fill_index_entry(message, entry)


def decode_schema_entry(payload: bytes | memoryview, where: str, *, strict: bool = False) -> SchemaEntry:
    """Return the schema in an entry of a schema ledger; raises EntryCorrupt. ``strict`` as of ``parse_protobuf``."""
    outer = parse_protobuf(schema_pb2.SchemaEntry, payload, where, EntryCorrupt, strict=strict)
    info = parse_protobuf(schema_pb2.SchemaInfo, outer.schema_data, where, EntryCorrupt, strict=strict)
    return SchemaEntry(
        text_of(info.schema_id, where, EntryCorrupt),
        text_of(info.user, where, EntryCorrupt),
        info.type,
        info.schema,
        info.timestamp,
        info.deleted,
        properties_of(info.props, where, EntryCorrupt),
        _index(outer.index),
    )


def encode_schema_entry(entry: SchemaEntry) -> bytes:
    """Return a schema version as an entry of a schema ledger."""
    info = schema_pb2.SchemaInfo(
        schema_id=entry.schema_id,
        user=entry.user,
        type=entry.type,
        schema=entry.definition,
        timestamp=entry.timestamp_ms,
        deleted=entry.deleted,
    )
    for key, value in entry.properties.items():
        info.props.add(key=key, value=value)
    outer = schema_pb2.SchemaEntry(schema_data=info.SerializeToString())
    for item in entry.index:
        _fill_index_entry(outer.index.add(), item)
    return outer.SerializeToString()


def _index(entries: Iterable[schema_pb2.IndexEntry]) -> tuple[IndexEntry, ...]:
    return tuple([_index_entry(entry) for entry in entries])


def _index_entry(entry: schema_pb2.IndexEntry) -> IndexEntry:
    return IndexEntry(entry.version, Position(entry.position.ledgerId, entry.position.entryId), entry.hash)


def _fill_index_entry(message: schema_pb2.IndexEntry, entry: IndexEntry) -> None:
    message.version, message.hash = entry.version, entry.hash
    message.position.ledgerId, message.position.entryId = entry.position.ledger_id, entry.position.entry_id
