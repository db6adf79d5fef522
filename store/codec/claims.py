"""The custom metadata by which a ledger names its owner and role (upstream ``LedgerMetadataUtils``, Pulsar 4.0.8)."""

from collections.abc import Mapping

from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.names import MANAGED_LEDGERS, Position, TopicName, parse_topic, topic_of_path

COMPONENT = "component"
APPLICATION = {"application": b"pulsar"}
TOPIC_KEY, CURSOR_KEY, SCHEMA_KEY = "pulsar/managed-ledger", "pulsar/cursor", "pulsar/schemaId"
COMPACTED_COMPONENT, COMPACTED_TOPIC, COMPACTED_TO = b"compacted-ledger", "pulsar/compactedTopic", "pulsar/compactedTo"
BUCKET_COMPONENT = b"delayed-index-bucket"
BUCKET_TOPIC, BUCKET_CURSOR, BUCKET_KEY = (
    "pulsar/delayedIndexTopic",
    "pulsar/delayedIndexCursor",
    "pulsar/delayedIndexBucketKey",
)

NAMING_KEYS = frozenset([TOPIC_KEY, SCHEMA_KEY, COMPACTED_TOPIC, BUCKET_TOPIC])
"""Keys of which each ledger of Pulsar's has one: what it is of."""


def topic_claims(name: TopicName) -> dict[str, bytes]:
    """Return the custom metadata of a topic's ledger."""
    return {COMPONENT: b"managed-ledger", TOPIC_KEY: name.managed_ledger_name.encode()}


def cursor_claims(name: TopicName, subscription: str) -> dict[str, bytes]:
    """Return the custom metadata of a subscription's cursor ledger."""
    return {**topic_claims(name), CURSOR_KEY: subscription.encode()}


def schema_claims(name: TopicName) -> dict[str, bytes]:
    """Return the custom metadata of a ledger with versions of a topic's schema."""
    return {COMPONENT: b"schema", SCHEMA_KEY: name.schema_id.encode()}


def compacted_claims(name: TopicName, horizon: Position) -> dict[str, bytes]:
    """Return the custom metadata of a topic's compacted ledger that covers everything up to a horizon."""
    from pulsar_admin.store.proto.pulsar_api_pb2 import MessageIdData  # 10 ms, and few commands write one

    to = MessageIdData(ledgerId=horizon.ledger_id, entryId=horizon.entry_id, batch_size=0)
    if name.is_partition:
        to.partition = name.partition_index
    return {COMPONENT: COMPACTED_COMPONENT, COMPACTED_TOPIC: str(name).encode(), COMPACTED_TO: to.SerializeToString()}


def bucket_claims(name: TopicName, subscription: str, key: str) -> dict[str, bytes]:
    """Return the custom metadata of a bucket of delayed messages; ``key``: the cursor's property that names the bucket."""
    return {
        COMPONENT: BUCKET_COMPONENT,
        BUCKET_KEY: key.encode(),
        BUCKET_TOPIC: str(name).encode(),
        BUCKET_CURSOR: subscription.encode(),
    }


def claimed_topic(custom: Mapping[str, bytes]) -> TopicName | None:
    """Return the topic to which a ledger's custom metadata says it belongs, in any role, None if it names none."""
    try:
        if TOPIC_KEY in custom:
            return topic_of_path(f"{MANAGED_LEDGERS}/{custom[TOPIC_KEY].decode()}")
        if SCHEMA_KEY in custom:
            return parse_topic(f"persistent://{custom[SCHEMA_KEY].decode()}")
        name = custom.get(COMPACTED_TOPIC) or custom.get(BUCKET_TOPIC)
        return None if name is None else parse_topic(name.decode())
    except (StoreError, ValueError):
        return None
