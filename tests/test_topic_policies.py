"""Topic policies as a real 4.0.8 broker wrote them: read with its own answers as oracle, set, undone, damaged."""

import contextlib
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_admin.store.changes.topic_policies import java_hash
from pulsar_admin.store.codec.avro import avro_decoder
from pulsar_admin.store.codec.brokerentry import BrokerEntry
from pulsar_admin.store.codec.cursor import Position
from pulsar_admin.store.codec.managedledger import LedgerInfo, ManagedLedger, encode_managed_ledger
from pulsar_admin.store.codec.message import decode_message_entry, encode_message_entry
from pulsar_admin.store.codec.policies import (
    BacklogQuota,
    DelayedDelivery,
    Retention,
    backlog_quota_json,
    delayed_delivery_json,
    retention_json,
)
from pulsar_admin.store.codec.policyevent import (
    AvroSchema,
    PolicyEvent,
    builtin_schema,
    decode_policy_event,
    encode_policy_event,
)
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.errors import EntryCorrupt, InvalidValue, MetadataCorrupt, StoreError
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import parse_namespace, parse_topic
from pulsar_admin.store.policies import in_force, offload, quotas, retention, rules, table
from pulsar_admin.store.policies.events import find_policy_events
from pulsar_admin.store.policies.in_force import (
    find_delivery,
    find_message_ttl,
    find_quotas,
    find_retention,
    find_topic_policies,
)
from pulsar_admin.store.policies.rules import TOPIC_POLICIES
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata
from tests.at_bounds import A_TOPIC, LONG, UNREADABLE, Answers, N, Texts, asking
from tests.conftest import Cli
from tests.stores import change_value, copied, imported, lose_nodes, read_rows
from tests.synthetic import Made, MadeTopic, make_store
from tests.worlds import oracle

ANSWERS: dict[str, Any] = oracle("policies")["topics"]
EVENTS = "acme/policies/__change_events"
SCHEMA = AvroSchema(builtin_schema())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return copied("policies", "clean", tmp_path)


# -- what the broker wrote --------------------------------------------------------------------------------------------


def _json(value: Any) -> Any:
    shown = {DelayedDelivery: delayed_delivery_json, Retention: retention_json, BacklogQuota: backlog_quota_json}
    return shown[type(value)](value) if type(value) in shown else value


@pytest.mark.parametrize("scope", ["own", "global"])
def test_a_topics_own_policies_are_the_brokers_answers(scope: str) -> None:
    nothing = {"delayedDelivery": None, "messageTTL": None, "retention": None, "backlogQuotaMap": {}}
    with open_store(imported("policies", "clean")) as store, store.read() as txn:
        for topic, answers in ANSWERS.items():
            found = find_topic_policies(txn, parse_topic(topic), is_global=scope == "global")
            expected = (
                nothing
                if found is None
                else {
                    "delayedDelivery": _json(found.delayed_delivery),
                    "messageTTL": found.message_ttl_seconds,
                    "retention": _json(found.retention),
                    "backlogQuotaMap": {kind: _json(quota) for kind, quota in found.backlog_quotas.items()},
                }
            )
            assert {kind: answer[scope] for kind, answer in answers.items()} == expected, topic


@pytest.mark.parametrize("topic", [topic for topic in ANSWERS if topic.startswith("acme/policies")])
def test_policies_in_force_are_those_the_broker_applies(topic: str) -> None:
    said = {kind: answers["applied"] for kind, answers in ANSWERS[topic].items()}
    with open_store(imported("policies", "clean")) as store, store.read() as txn:
        name = parse_topic(topic)
        delivery, ttl, retention = find_delivery(txn, name), find_message_ttl(txn, name), find_retention(txn, name)
        quotas = find_quotas(txn, name)
    # 4.0.8 answers without policies for all clusters; the topic itself goes by them (PolicyHierarchyValue).
    expected = ANSWERS[topic]["delayedDelivery"]["own"] or ANSWERS[topic]["delayedDelivery"]["global"]
    assert _json(delivery.delivery) == (expected or said["delayedDelivery"])
    assert (ttl.seconds, _json(retention.retention)) == (said["messageTTL"], said["retention"])
    # The answer has the topic's map or the namespace's; in force is each type for itself.
    assert {kind: _json(quotas[kind].quota) for kind in said["backlogQuotaMap"]} == said["backlogQuotaMap"]
    assert set(quotas) == {"message_age"} | set(ANSWERS[topic]["backlogQuotaMap"]["own"])


def test_keys_go_to_the_brokers_partitions() -> None:
    seen = {}
    with open_store(imported("policies", "clean")) as store, open_reader(store) as reader:
        for index in (0, 1):
            topic = read_topic(reader.txn, parse_topic(f"acme/spread/__change_events-partition-{index}"))
            for position in topic.iter_positions(topic.first_position):
                payload = reader.read(position.ledger_id, position.entry_id).payload
                seen[decode_message_entry(payload, "entry").metadata.partition_key] = index
    assert seen == {key: java_hash(key) % 2 for key in seen}
    assert sorted(seen.values()) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("text", "found"), [("", 0), ("hello", 99_162_322), ("\u65e5\u672c", 835_047), ("\U0001d11e", 1_772_394)]
)
def test_the_hash_of_a_text_is_that_of_its_utf_16_units(text: str, found: int) -> None:
    """``String.hashCode`` of Java: the sum of s[i] * 31^(n-1-i)."""
    assert java_hash(text) == found


def test_the_builtin_schema_is_the_brokers() -> None:
    said = oracle("policies")["schema"]
    assert json.loads(builtin_schema()) == json.loads(said["data"])
    with open_store(imported("policies", "clean")) as store, store.read() as txn:
        from pulsar_admin.store.model.schemas import find_locator

        locator = find_locator(txn, parse_topic(EVENTS))
    assert locator.newest.hash == hashlib.sha256(builtin_schema()).digest()


def test_events_are_written_as_the_broker_writes_them() -> None:
    """Every event of the recorded topic, decoded and encoded, gives the broker's bytes."""
    count = 0
    with open_store(imported("policies", "clean")) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic(EVENTS))
        for position in topic.iter_positions(topic.first_position):
            header = decode_message_entry(reader.read(position.ledger_id, position.entry_id).payload, "entry")
            if len(header.payload):
                event = decode_policy_event(header.payload, SCHEMA, "entry")
                assert event is not None
                assert encode_policy_event(event, SCHEMA) == bytes(header.payload)
                count += 1
    assert count == 16


# -- other brokers, damage --------------------------------------------------------------------------------------------


def _entry(key: str, payload: bytes, version: bytes | None = None) -> Made:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, partition_key=key)
    if version is not None:
        metadata.schema_version = version
    if not payload:
        metadata.null_value = True
    return Made(1, raw=encode_message_entry(metadata, payload))


def _event(topic: str, action: str = "UPDATE", **policies: Any) -> bytes:
    return encode_policy_event(PolicyEvent(parse_topic(topic), action, policies or None), SCHEMA)


def _ttls(path: Path) -> tuple[Any, Any]:
    with open_store(path) as store, store.read() as txn:
        own = find_topic_policies(txn, parse_topic("a/b/t"))
        everywhere = find_topic_policies(txn, parse_topic("a/b/t"), is_global=True)
    return own and own.message_ttl_seconds, everywhere and everywhere.message_ttl_seconds


def _made(path: Path, *entries: Made) -> Path:
    return make_store(path, {"a/b/t": MadeTopic([[]]), "a/b/__change_events": MadeTopic([entries])})


def test_actions(tmp_path: Path) -> None:
    key = "persistent://a/b/t"
    set_here = _entry(key, _event("a/b/t", messageTTLInSeconds=5))
    inserted = _entry(key, _event("a/b/t", "INSERT", messageTTLInSeconds=7))
    deleted = _entry(key, _event("a/b/t", "DELETE"))
    assert _ttls(_made(tmp_path / "1", set_here, inserted)) == (5, None)  # an insert does not replace
    assert _ttls(_made(tmp_path / "2", inserted)) == (7, None)
    assert _ttls(_made(tmp_path / "3", set_here, deleted)) == (None, None)
    assert _ttls(_made(tmp_path / "4", set_here, deleted, inserted)) == (7, None)
    assert _ttls(_made(tmp_path / "5", set_here, _entry(key, b""), inserted)) == (7, None)


def test_an_event_that_cannot_be_read_leaves_policies_unknown(tmp_path: Path, cli: Cli) -> None:
    good, bad = _entry("persistent://a/b/t", _event("a/b/t", messageTTLInSeconds=5)), _entry("k", b"\xff" * 9)
    for place, last in enumerate((Made(1, lost=True), bad)):
        path = _made(tmp_path / f"{place}", good, last)
        with (
            open_store(path) as store,
            store.read() as txn,
            pytest.raises(MetadataCorrupt, match=r"^the topic policies of a/b are unknown: entry 11:1"),
        ):
            find_message_ttl(txn, parse_topic("a/b/t"))
    cli("--store", path, "topics", "get-message-ttl", "a/b/t", "-o", "json").fails(6, "metadata-corrupt")


def test_topics_whose_events_are_lost_are_named(tmp_path: Path, cli: Cli, damages_stores: None) -> None:
    event = _event("a/b/t", messageTTLInSeconds=5)
    events = MadeTopic([[_entry("x://a", event), _entry("persistent://a/b/t", event)], []])
    path = make_store(tmp_path / "s", {"a/b/t": MadeTopic([[]]), "a/b/__change_events": events})
    lose_nodes(path, "/ledgers/00/0000/L0011")
    told = cli.on(path, "ledgers forget 11 --dry-run --force").stdout
    assert (
        "2 events of topic policies are lost: these topics have policies from before them, or none: persistent://a/b/t\n"
        in told
    )


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_cut_and_changed_events_raise_only_our_errors(data: st.DataObject) -> None:
    quotas = {"message_age": backlog_quota_json(BacklogQuota(1, 2, "producer_exception"))}
    raw = bytearray(_event("a/b/t", messageTTLInSeconds=5, backLogQuotaMap=quotas))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(StoreError):
        decode_policy_event(bytes(raw[: data.draw(st.integers(0, len(raw)))]), SCHEMA, "entry")


def test_nesting_without_end_raises_only_our_errors() -> None:
    """Records inside themselves, which overflow the stack of a compiled reader, and a definition of a thousand arrays."""
    chain = b'{"type":"record","name":"N","fields":[{"name":"next","type":["null","N"]}]}'
    with pytest.raises(EntryCorrupt, match="entry: no PulsarEvent"):
        decode_policy_event(b"\2" * 1_000_000, AvroSchema(chain), "entry")
    for depth in (300, 1000, 100_000):
        with pytest.raises(EntryCorrupt, match="entry: the AVRO definition"):
            decode_policy_event(b"\0", AvroSchema(_arrays(depth)), "entry")
    assert avro_decoder(_arrays(299))(b"\0") == []


def _arrays(depth: int) -> bytes:
    return b'{"type":"array","items":' * depth + b'"int"' + b"}" * depth


def test_a_newer_brokers_fields_stay(tmp_path: Path) -> None:
    """A schema with a field more: what it holds is in the event after a change."""
    definition = json.loads(builtin_schema())
    inner = next(one for one in definition["fields"] if one["name"] == "topicPoliciesEvent")["type"][1]
    policies = next(one for one in inner["fields"] if one["name"] == "policies")["type"][1]
    policies["fields"].append({"name": "someday", "type": ["null", "int"], "default": None})
    newer = AvroSchema(json.dumps(definition).encode())
    raw = encode_policy_event(PolicyEvent(parse_topic("a/b/t"), "UPDATE", {"someday": 3}), newer)
    event = decode_policy_event(raw, newer, "entry")
    assert event.policies is not None
    again = encode_policy_event(PolicyEvent(event.topic, "UPDATE", {**event.policies, "messageTTLInSeconds": 1}), newer)
    record: Any = fastavro.schemaless_reader(io.BytesIO(again), fastavro.parse_schema(definition), None)
    assert record["topicPoliciesEvent"]["policies"]["someday"] == 3


# -- setting them -----------------------------------------------------------------------------------------------------


def test_the_metadata_backends_node_is_written_where_it_is_used(cli: Cli, tmp_path: Path) -> None:
    from tests.plans.test_expiry import put_json

    path = make_store(tmp_path / "s", {"a/b/t": MadeTopic([[]]), "a/b/u": MadeTopic([[]])})
    put_json(path, "/admin/topic-policies/local/a/b/persistent/t", {"messageTTLInSeconds": 7, "someday": 1})
    assert cli("--store", path, "topics", "set-delayed-delivery", "a/b/t", "a/b/u", "-d").exit_code == 0
    kept = cli.json(path, "store cat /admin/topic-policies/local/a/b/persistent/t")["value"]
    assert kept == {
        "messageTTLInSeconds": 7,
        "someday": 1,
        "delayedDeliveryEnabled": False,
        "delayedDeliveryTickTimeMillis": 1000,
        "delayedDeliveryMaxDelayInMillis": 0,
    }
    assert cli("--store", path, "topics", "get-delayed-delivery", "a/b/u", "-o", "json").json["active"] is False


def test_the_brokers_index_goes_on(cli: Cli, tmp_path: Path) -> None:
    """Behind an entry with time and index of a broker the events have both, and ManagedLedgerInfo keeps the last index."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, partition_key="persistent://a/b/u")
    event = PolicyEvent(parse_topic("a/b/u"), "UPDATE", {"messageTTLInSeconds": 1}, ("here",))
    raw = encode_message_entry(metadata, encode_policy_event(event, SCHEMA), broker=BrokerEntry(1000, 41))
    path = _made(tmp_path / "s", Made(1, raw=raw))
    for seconds in (5, 6):
        ask = ("--store", path, "--now", f"@{2_000_000_000_000 + seconds}", "topics", "set-message-ttl", "a/b/t")
        assert cli(*ask, "-t", seconds).exit_code == 0
    with open_store(path) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic("a/b/__change_events"))
        found = [
            decode_message_entry(reader.read(position.ledger_id, position.entry_id).payload, "entry").broker
            for position in topic.iter_positions(topic.first_position)
        ]
    assert found == [BrokerEntry(1000, 41), BrokerEntry(2_000_000_000_005, 42), BrokerEntry(2_000_000_000_006, 43)]
    assert topic.managed.properties == {"index": "43"}
    assert _ttls(path) == (6, None)


def test_which_cluster_it_is_must_be_known(cli: Cli, tmp_path: Path) -> None:
    path = make_store(tmp_path / "s", {"a/b/t": MadeTopic([[]])})
    cli("--store", path, "topics", "set-message-ttl", "a/b/t", "-t", "5", "-o", "json").fails(3, "refused")
    from tests.plans.test_expiry import put_json

    put_json(path, "/admin/policies/a/b", {"replication_clusters": ["here"]})
    assert cli("--store", path, "topics", "set-message-ttl", "a/b/t", "-t", "5").exit_code == 0
    assert _ttls(path) == (5, None)


def test_a_ttl_or_quota_where_messages_are_delayed_is_warned_of(cli: Cli, path: Path) -> None:
    set_ttl = ("topics", "set-message-ttl", "acme/policies/plain", "-t", "70")
    assert "the message TTL of 70 s drops" in cli("--store", path, *set_ttl, "-o", "json").json["warnings"][0]
    quota = ("set-backlog-quota", "acme/policies", "-l", "1G", "-p", "consumer_backlog_eviction")
    warnings = " ".join(cli("--store", path, "namespaces", *quota, "-o", "json").json["warnings"])
    assert "the message TTL of 3600 s" in warnings
    assert "the backlog quota destination_storage" in warnings
    elsewhere = ("topics", "set-message-ttl", "acme/policies/off", "-t", "70")  # delivers at once
    assert "warnings" not in cli("--store", path, *elsewhere, "-o", "json").json


def test_enabling_a_namespace_names_topics_with_policies_of_their_own(cli: Cli, path: Path) -> None:
    enable = ("namespaces", "enable-delayed-message", "acme/policies", "--dry-run", "-o", "json")
    warnings = " ".join(cli("--store", path, *enable).json["warnings"])
    assert (
        "2 topics have a message TTL of their own, the shortest persistent://acme/policies/late with 60 s" in warnings
    )
    assert "1 topic has a backlog quota of its own" in warnings
    assert "persistent://acme/policies/lived" in warnings


def test_without_the_logs_policies_are_unknown_and_cursors_move(cli: Cli, path: Path, tmp_path: Path) -> None:
    """Moving a cursor by position needs no entry: it goes on without the files, and nothing counts as deletable then."""
    from tests.worlds import scratch_copy

    source = scratch_copy("policies", "clean", tmp_path)
    store = tmp_path / "referenced"
    assert cli("--store", store, "store", "import", "standalone", source).exit_code == 0
    for log in (source / "bookkeeper" / "current").iterdir():
        if log.suffix in (".log", ".txn"):
            log.unlink()
    cli("--store", store, "topics", "get-message-ttl", "acme/policies/lived", "-o", "json").fails(6, "metadata-corrupt")
    moved = cli("--store", store, "topics", "clear-backlog", "acme/policies/lived", "-s", "workers", "-o", "json")
    assert (moved.exit_code, moved.json["entries"]) == (0, 20)


def test_a_retention_of_its_own_releases_nothing_beside_damaged_policies(cli: Cli, path: Path) -> None:
    """The namespace may set a compaction threshold: a broker then creates compaction's cursor, which keeps every ledger."""
    topic = "acme/policies/plain"
    ledgers = (LedgerInfo(4, 10, 1000, 1), LedgerInfo(5, 10, 1000, 2), LedgerInfo(10))
    change_value(path, parse_topic(topic).path, lambda _: encode_managed_ledger(ManagedLedger(ledgers)))
    cli.on(path, f"topicPolicies set-retention {topic} --time 0 --size 0").ends(0)
    trim = f"topics trim-topic {topic} --dry-run"
    assert cli.json(path, trim)["after"]["ledgers"] == [10]
    change_value(path, "/admin/policies/acme/policies", lambda value: value[:-1])
    assert "nothing to change" in cli.on(path, trim).stdout


def test_status_goes_by_the_topics_own_policies(cli: Cli, path: Path) -> None:
    cli.done("--store", path, "topics", "set-delayed-delivery", "acme/policies/lived", "-e", "-t", "3s")
    (row,) = cli("--store", path, "delayed", "status", "acme/policies/lived", "-o", "json").json
    assert (row["policy"]["tickTime"], row["policySource"]) == (3000, "topic")
    assert row["evictingQuotas"] == ["destination_storage"]
    assert (row["ttlConflict"]["ttlSeconds"], row["ttlConflict"]["messages"]) == (600, 13)


def test_events_that_compaction_alone_keeps(path: Path, cli: Cli) -> None:
    """A broker compacts ``__change_events`` and trims it: then every policy is in the compacted ledger, and no entry in its own."""
    before = _policies_of(path)
    assert before
    cli.done("--store", path, "compaction", "run", EVENTS, "-o", "json")
    managed = ManagedLedger((LedgerInfo(900_000),))
    change_value(path, parse_topic(EVENTS).path, lambda _: encode_managed_ledger(managed))
    assert _policies_of(path) == before


def _policies_of(path: Path) -> Any:
    found = read_rows(path, lambda txn: find_policy_events(txn, parse_namespace("acme/policies")))
    return found and (found.local, found.global_)


KIND = N(name="x", like=None, default=None, unset=None)
AT_BOUNDS: Answers = {
    retention.consumed_by: [(([0, 3, 6, 6], {"a": 6}), (2, None)), (([0, 3, 6, 6], {"a": 3, "b": 5}), (1, "a"))],
    retention.count_let_go: [(([(5, 1000), (1, 0)], 1, Retention(1, -1), 61_000), 0),
        (([(5, 1000), (1, 0)], 1, Retention(1, -1), 61_001), 1), (([(5, 1000)], 1, Retention(0, -1), 1001), 1),
        (([(5, 1000)], 1, Retention(-1, 0), 1000), 1), (([(5, 1000), (2**20, 0)], 1, Retention(-1, 1), 1000), 1),
        (([(5, 1000), (2**20 - 1, 0)], 1, Retention(-1, 1), 1000), 0)],
    rules._exceeds: [(({"limitSize": 1 << 20}, {"retentionSizeInMB": 1}), True),
        (({"limitSize": (1 << 20) - 1}, {"retentionSizeInMB": 1}), False),
        (({"limitTime": 60}, {"retentionTimeInMinutes": 1}), True),
        (({"limitTime": 59}, {"retentionTimeInMinutes": 1}), False), (({"limit": 0, "limitTime": 0}, {}), False)],
    rules.check_retention: [
        ((N(of_topic=False, namespace_policies={}), {"retentionTimeInMinutes": minutes, "retentionSizeInMB": -1}, {}), answer)
        for minutes, answer in ((-1, None), (-2, InvalidValue))],
    rules.check_persistence: [
        ((None, {"bookkeeperEnsemble": most, "bookkeeperWriteQuorum": write, "bookkeeperAckQuorum": ack}, {}), answer)
        for most, write, ack, answer in ((5, 5, 5, None), (6, 5, 5, InvalidValue), (3, 2, 3, InvalidValue))],
    rules.check_message_size: [
        ((None, size, {}), answer) for size, answer in ((0, None), (5 << 20, None), ((5 << 20) + 1, InvalidValue))],
    table.Policy.check_kind: [
        ((KIND, {"k": number}), None if -(2**31) <= number < 2**31 else InvalidValue)
        for number in (2**31 - 1, -(2**31), -(2**31) - 1)],
    table._fits: [((LONG, 0), True), ((LONG + 1, 0), False), ((LONG + 1, int), False), (({"a": 1}, {"a": 1}), True),
        (({}, {"a": 1}), False)],
    quotas._closed_ms: [
        ((N(ids=[7, 9], next_valid=lambda place: Position(9, 0),
            ledger=lambda ledger_id: N(entries=5, info=N(timestamp_ms=ledger_id))), Position(*place)), answer)
        for place, answer in (((7, 3), 7), ((7, 4), 9), ((9, 0), None))],
    in_force.may_delay: [((UNREADABLE, A_TOPIC), True)],
}  # fmt: skip
REFUSED: Texts = {
    offload.check_offload: [((N(group=TOPIC_POLICIES), {"managedLedgerOffloadReadBufferSizeInBytes": 0}, {}),
        "readBufferSizeInBytes cannot be less than or equal to 0!")],
}  # fmt: skip
test_at_bounds = asking(AT_BOUNDS, refused=REFUSED)
