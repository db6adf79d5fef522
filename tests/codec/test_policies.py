import json

import pytest
from msgspec.structs import replace

from pulsar_admin.store.codec import policies as codec
from pulsar_admin.store.errors import MetadataCorrupt

# /admin/policies/acme/delayed of a Pulsar 4.0.8, without some of its keys.
REAL = (
    b'{"auth_policies":{"namespace_auth":{},"destination_auth":{},"subscription_auth_roles":{}},'
    b'"replication_clusters":["standalone"],"backlog_quota_map":{},"deleted":false,"encryption_required":false,'
    b'"delayed_delivery_policies":{"tickTime":2000,"active":true,"maxDeliveryDelayInMillis":864000000},'
    b'"subscription_auth_mode":"None","offload_threshold":-1,"properties":{}}'
)
DELAYED = codec.DelayedDelivery(active=True, tick_time_ms=2000, max_delay_ms=864000000)


def test_a_real_value() -> None:
    assert codec.decode_policies(REAL, "/path") == codec.Policies(delayed_delivery=DELAYED)
    assert codec.encode_json_object(codec.decode_json_object(REAL, "/path")) == REAL
    assert codec.encode_policies(codec.Policies(delayed_delivery=DELAYED), REAL) == REAL


def test_a_change_touches_its_key_only() -> None:
    off = codec.encode_policies(codec.Policies(delayed_delivery=replace(DELAYED, active=False)), REAL)
    assert off == REAL.replace(b'"active":true', b'"active":false')
    gone = codec.encode_policies(codec.Policies(), REAL)
    assert gone == REAL.replace(
        b'"delayed_delivery_policies":{"tickTime":2000,"active":true,"maxDeliveryDelayInMillis":864000000},', b""
    )
    more = codec.encode_policies(codec.Policies(DELAYED, 60, codec.Retention(-1, 5)), REAL)
    assert more == REAL[:-1] + (
        b',"message_ttl_in_seconds":60,"retention_policies":{"retentionTimeInMinutes":-1,"retentionSizeInMB":5}}'
    )


def test_the_first_policies_of_a_namespace() -> None:
    """Where nothing is stored yet the value has what is set, and no more."""
    assert codec.encode_policies(codec.Policies()) == b"{}"
    assert codec.encode_policies(codec.Policies(message_ttl_seconds=0)) == b'{"message_ttl_in_seconds":0}'
    quotas = {"message_age": codec.BacklogQuota(-1, 60, "producer_exception")}
    assert codec.encode_policies(codec.Policies(DELAYED, 60, codec.Retention(0, 0), quotas)) == (
        b'{"delayed_delivery_policies":{"tickTime":2000,"active":true,"maxDeliveryDelayInMillis":864000000},'
        b'"message_ttl_in_seconds":60,"retention_policies":{"retentionTimeInMinutes":0,"retentionSizeInMB":0},'
        b'"backlog_quota_map":{"message_age":{"limit":-1,"limitSize":-1,"limitTime":60,"policy":"producer_exception"}}}'
    )
    assert codec.encode_partitioned_topic(codec.PartitionedTopic(0)) == b'{"partitions":0,"deleted":false}'
    assert codec.encode_partitioned_topic(codec.PartitionedTopic(3, True, {"k": "v"})) == (
        b'{"partitions":3,"deleted":true,"properties":{"k":"v"}}'
    )


def test_unknown_keys_inside_a_policy_stay() -> None:
    base = b'{"delayed_delivery_policies":{"new":[1],"tickTime":1,"active":true}}'
    assert codec.decode_policies(base, "/path").delayed_delivery == codec.DelayedDelivery(True, 1)
    changed = codec.encode_policies(codec.Policies(codec.DelayedDelivery(False, 2)), base)
    assert changed == (
        b'{"delayed_delivery_policies":{"new":[1],"tickTime":2,"active":false,"maxDeliveryDelayInMillis":0}}'
    )


def test_backlog_quotas() -> None:
    base = (
        b'{"backlog_quota_map":{"destination_storage":{"limit":10,"policy":"producer_exception"},'
        b'"message_age":{"limit":0,"limitSize":-1,"limitTime":3600,"policy":"consumer_backlog_eviction"}}}'
    )
    storage = codec.BacklogQuota(10, 0, "producer_exception")
    age = codec.BacklogQuota(-1, 3600, "consumer_backlog_eviction")
    found = codec.decode_policies(base, "/path")
    assert found == codec.Policies(backlog_quotas={"destination_storage": storage, "message_age": age})
    changed = codec.encode_policies(
        replace(
            found, backlog_quotas={"destination_storage": storage, "message_age": replace(age, limit_time_seconds=1)}
        ),
        base,
    )
    assert changed == (
        b'{"backlog_quota_map":{"destination_storage":{"limit":10,"policy":"producer_exception"},'
        b'"message_age":{"limit":-1,"limitSize":-1,"limitTime":1,"policy":"consumer_backlog_eviction"}}}'
    )
    assert codec.encode_policies(codec.Policies(), base) == b'{"backlog_quota_map":{}}'
    assert codec.decode_policies(b'{"backlog_quota_map":null}', "/path") == codec.Policies()
    assert json.loads(codec.encode_policies(found, b'{"backlog_quota_map":null}'))["backlog_quota_map"].keys() == {
        "destination_storage",
        "message_age",
    }


def test_partitioned_topics() -> None:
    real = b'{"partitions":3,"deleted":false}'
    assert codec.decode_partitioned_topic(real, "/path") == codec.PartitionedTopic(3)
    assert codec.encode_partitioned_topic(codec.PartitionedTopic(3)) == real
    assert codec.encode_partitioned_topic(codec.PartitionedTopic(4), real) == b'{"partitions":4,"deleted":false}'
    with_properties = b'{"partitions":3,"deleted":true,"properties":{"k":"v"},"x":1.5}'
    assert codec.decode_partitioned_topic(with_properties, "/path") == codec.PartitionedTopic(3, True, {"k": "v"})
    assert codec.encode_partitioned_topic(codec.PartitionedTopic(4, True), with_properties) == (
        b'{"partitions":4,"deleted":true,"properties":{},"x":1.5}'
    )


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"[]", b"1", b"{", b"\xff", b'{"message_ttl_in_seconds":"60"}'),
        *(b'{"message_ttl_in_seconds":true}', b'{"message_ttl_in_seconds":1.5}', b'{"retention_policies":[]}'),
        *(b'{"backlog_quota_map":{"a":1}}', b'{"delayed_delivery_policies":{"active":1}}', b'{"a":NaN}'),
        *(b'{"a":1e999}', b'{"a":' + b"1" * 5000 + b"}", b"[" * 100_000),
    ],
)
def test_values_that_are_no_policies(value: bytes) -> None:
    with pytest.raises(MetadataCorrupt, match="/path"):
        codec.decode_policies(value, "/path")


@pytest.mark.parametrize("value", [b'{"partitions":"3"}', b'{"properties":{"k":1}}', b'{"properties":[1]}'])
def test_values_that_are_no_partitioned_topic(value: bytes) -> None:
    with pytest.raises(MetadataCorrupt, match="/path"):
        codec.decode_partitioned_topic(value, "/path")


def test_texts_beyond_ascii() -> None:
    for value in ('{"é":"☃"}'.encode(), b'{"lone":"\\ud800"}'):
        assert codec.encode_json_object(codec.decode_json_object(value, "/path")) == value
