"""Topic policies as messages of ``__change_events``: AVRO by the schema of the topic, one key a topic.

Upstream: ``PulsarEvent``, ``TopicPoliciesEvent``, ``TopicPolicies``, ``TopicPoliciesService`` (Pulsar 4.0.8). Fields are kept by name,
so that what a newer broker added survives a change. The schema of 4.0.8 is ``store/proto/pulsar_event.avsc``, byte for byte as that
broker registers it. Offsets and fields: docs/formats/topic-policies.md.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

from msgspec import Struct, field

from pulsar_admin.store.codec.avro import avro_decoder, avro_encoder
from pulsar_admin.store.codec.message import encode_message_entry
from pulsar_admin.store.codec.value import DECODE_ERRORS
from pulsar_admin.store.errors import EntryCorrupt, InvalidValue, reason_of
from pulsar_admin.store.names import TopicName, parse_topic
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata

GLOBAL_PREFIX = "__G__"
"""Before the key of policies for all clusters; brokers before upstream's pull request 24286 leave it out."""
UPDATE, DELETE, INSERT = "UPDATE", "DELETE", "INSERT"
NEW_POLICIES: Mapping[str, Any] = {  # Any: values by the schema
    "backLogQuotaMap": {},
    "isGlobal": False,
    "subscriptionPolicies": {},
    "subscriptionTypesEnabled": [],
}
"""``TopicPolicies`` that sets nothing, as a broker writes it; fields left out are null."""
_TOPIC_POLICY = "TOPIC_POLICY"


class PolicyEvent(Struct, frozen=True):
    """A change of one topic's policies. ``policies``: fields of ``TopicPolicies``, None where the event has none.

    ``replicate_to``: the clusters to which the event is replicated: the local one for policies of this cluster, None:
    all.
    """

    topic: TopicName
    action: str
    policies: Mapping[str, Any] | None  # Any: values by the schema
    replicate_to: tuple[str, ...] | None = None

    @property
    def is_global(self) -> bool:
        """Whether the policies apply to all clusters (global) instead of the local one."""
        return bool((self.policies or {}).get("isGlobal"))


class AvroSchema(Struct, frozen=True):
    """A schema with which events are written. ``version``: the schema version as the bytes in messages."""

    definition: bytes
    version: bytes = field(default=b"\0" * 8)


def builtin_schema() -> bytes:
    """Return the definition of ``PulsarEvent`` as Pulsar 4.0.8 registers it."""
    return (files("pulsar_admin.store.proto") / "pulsar_event.avsc").read_bytes()  # also in an archive of packages


def event_key(topic: TopicName, *, is_global: bool) -> str:
    """Return the key of a topic's events; partitions share their topic's."""
    return (GLOBAL_PREFIX if is_global else "") + str(topic.base)


def topic_of_key(key: str) -> tuple[TopicName, bool]:
    """Return (topic, whether the key is for global policies); raises InvalidValue."""
    return parse_topic(key.removeprefix(GLOBAL_PREFIX)).base, key.startswith(GLOBAL_PREFIX)


def decode_policy_event(payload: bytes | memoryview, schema: AvroSchema, where: str) -> PolicyEvent | None:
    """Return the event in a payload, None if it is not about policies of a persistent topic; raises EntryCorrupt."""
    try:
        record = _decoder(schema.definition)(bytes(payload))
    except DECODE_ERRORS as error:
        raise EntryCorrupt(f"{where}: no PulsarEvent: {reason_of(error)}") from error
    except EntryCorrupt as error:
        raise EntryCorrupt(f"{where}: {error.message}") from error
    if not isinstance(record, dict) or record.get("eventType") != _TOPIC_POLICY:
        return None
    return _event(record, where)


def _event(record: dict[str, Any], where: str) -> PolicyEvent | None:  # Any: by the schema
    inner, action, replicate_to = record.get("topicPoliciesEvent"), record.get("actionType"), record.get("replicateTo")
    names = [
        inner.get(name) if isinstance(inner, dict) else None for name in ("domain", "tenant", "namespace", "topic")
    ]
    if not isinstance(inner, dict) or not all(isinstance(name, str) and name for name in names):
        raise EntryCorrupt(f"{where}: a PulsarEvent that names no topic")
    domain, tenant, namespace, local_name = names
    if domain == "non-persistent":
        return None
    policies = inner.get("policies")
    try:
        topic = parse_topic(f"{domain}://{tenant}/{namespace}/{local_name}")
    except InvalidValue as error:
        raise EntryCorrupt(f"{where}: {error.message}") from error
    return PolicyEvent(
        topic,
        str(action),
        policies if isinstance(policies, dict) else None,
        tuple(map(str, replicate_to)) if isinstance(replicate_to, list) else None,
    )


def encode_policy_event(event: PolicyEvent, schema: AvroSchema) -> bytes:
    """Return an event as a broker with this schema writes it; fields that the schema lacks are dropped.

    Raises EntryCorrupt if the schema is not one of ``PulsarEvent``.
    """
    topic = event.topic.base
    record = {
        "actionType": event.action,
        "eventType": _TOPIC_POLICY,
        "replicateTo": None if event.replicate_to is None else list(event.replicate_to),
        "topicPoliciesEvent": {
            "domain": "persistent",
            "tenant": topic.namespace.tenant,
            "namespace": topic.namespace.namespace,
            "topic": topic.local_name,
            "policies": None if event.policies is None else dict(event.policies),
        },
    }
    try:
        return avro_encoder(schema.definition)(record)
    except DECODE_ERRORS as error:
        raise EntryCorrupt(
            f"an event of {topic} does not fit the schema of __change_events: {reason_of(error)}"
        ) from error


def encode_event_entry(
    event: PolicyEvent, schema: AvroSchema, *, producer: str, sequence_id: int, publish_ms: int
) -> bytes:
    """Return an event as the message that a broker's producer sends: an entry, not batched; raises EntryCorrupt.

    An event that deletes policies has a key and no value.
    """
    deletes = event.action == DELETE
    payload = b"" if deletes else encode_policy_event(event, schema)
    metadata = MessageMetadata(
        producer_name=producer,
        sequence_id=sequence_id,
        publish_time=publish_ms,
        partition_key=event_key(event.topic, is_global=event.is_global),
        replicate_to=list(event.replicate_to or ()),
        uncompressed_size=len(payload),
        schema_version=schema.version,
        partition_key_b64_encoded=False,
    )
    if deletes:
        metadata.null_value = True
    return encode_message_entry(metadata, payload)


@lru_cache(maxsize=8)
def _decoder(definition: bytes) -> Callable[[bytes], Any]:  # Any: by the schema
    return avro_decoder(definition)
