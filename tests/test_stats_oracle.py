"""What the live broker answered about topics, against what a store of its files answers: every field of every topic.

A field that a store cannot know is in a ``LEFT_OUT`` table with its reason, and in docs/what-a-store-knows.md. A table that
names a field which does not differ fails, so that it stays as short as it can be.
"""

import hashlib
import json
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.jsonify import to_json
from pulsar_admin.store.codec.buffer import signed
from pulsar_admin.store.codec.compression import decompress
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.cursors import read_cursor
from pulsar_admin.store.model.messages import MessageReader, read_last_id, read_message
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import EARLIEST, Position, TopicName, parse_topic
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata
from pulsar_admin.store.reports.backlog import analyze_backlog
from pulsar_admin.store.reports.internal_stats import iso_time, read_internal_info, read_internal_stats
from pulsar_admin.store.reports.stats import StatsOptions, read_topic_stats
from tests.stores import imported
from tests.worlds import CLUSTER, WORLD_NAMES, asked_topics, oracle

WORLDS = (*WORLD_NAMES, CLUSTER)
Json = Any  # a JSON value
Answer = Callable[[EntryReader, TopicName], object]
Path_ = tuple[str, ...]

DOCS = Path(__file__).resolve().parent.parent / "docs" / "what-a-store-knows.md"

LIVE_READER = "a dispatcher reads ahead; a store shows where it would begin"
SINCE_LOADING = "counts since the broker loaded the topic; a store shows 0, or the value at loading"
STOPPING = "stopping the broker wrote the cursor anew, into its metadata"
OPEN_LEDGER = "open while the broker ran, closed by its stop"
NEVER_STORED = "only in the broker's memory"
BOOKIES = "compares with the bookies that are up"
MISPLACED = "4.0.8 shows a schema ledger's metadata under compactedLedger; a store shows each under its own"
RELOADED = "the broker loaded the topic again while it stopped"
NOW = "the broker prints the present time for the open ledger, a store the stored 0"

INTERNAL_CLEAN: dict[str, str] = {
    "entriesAddedCounter": SINCE_LOADING,
    "lastLedgerCreatedTimestamp": "the time of the metadata node, some milliseconds earlier",
    "ledgers.*.underReplicated": BOOKIES,
    "ledgers.last.underReplicated": BOOKIES,
    "ledgers.last.metadata": OPEN_LEDGER,
    "schemaLedgers.*.metadata": MISPLACED,
    "compactedLedger.metadata": MISPLACED,
    "cursors.*.readPosition": LIVE_READER,
    "cursors.*.messagesConsumedCounter": SINCE_LOADING,
    "cursors.*.numberOfEntriesSinceFirstNotAckedMessage": LIVE_READER,
    "cursors.*.lastLedgerSwitchTimestamp": NEVER_STORED,
    "cursors.*.cursorLedger": STOPPING,
    "cursors.*.cursorLedgerLastEntry": STOPPING,
    "cursors.*.state": STOPPING,
}
# Taken just after loading: what counts since then can be compared.
INTERNAL_MUTATED = {
    key: reason
    for key, reason in INTERNAL_CLEAN.items()
    if key
    not in {
        "entriesAddedCounter",
        "cursors.*.readPosition",
        "cursors.*.messagesConsumedCounter",
        "cursors.*.numberOfEntriesSinceFirstNotAckedMessage",
    }
} | {"lastConfirmedEntry": "a broker keeps the last position of a topic whose every ledger was trimmed"}

INFO_CLEAN = {
    "ledgers.last.timestamp": NOW,
    "cursors.*.version": STOPPING,
    "cursors.*.modificationDate": STOPPING,
    "cursors.*.cursorsLedgerId": STOPPING,
    "cursors.*.markDelete.ledgerId": STOPPING,
    "cursors.*.markDelete.entryId": STOPPING,
    "cursors.*.individualDeletedMessages": STOPPING,
    "cursors.*.properties": STOPPING,
}

STATS_CLEAN = {
    "bytesInCounter": SINCE_LOADING,
    "msgInCounter": SINCE_LOADING,
    "bytesOutCounter": SINCE_LOADING,
    "msgOutCounter": SINCE_LOADING,
    "bytesOutInternalCounter": SINCE_LOADING,
    "abortedTxnCount": SINCE_LOADING,
    "committedTxnCount": SINCE_LOADING,
    "backlogQuotaLimitSize": "the broker's configuration, where no policy says it",
    "oldestBacklogMessageAgeSeconds": NEVER_STORED,
    "oldestBacklogMessageSubscriptionName": NEVER_STORED,
    "delayedMessageIndexSizeInBytes": NEVER_STORED,
    "ownerBroker": NEVER_STORED,
    "compaction.lastCompactionRemovedEventCount": SINCE_LOADING,
    "compaction.lastCompactionSucceedTimestamp": NEVER_STORED,
    "compaction.lastCompactionDurationTimeInMills": NEVER_STORED,
    "subscriptions.*.bytesOutCounter": SINCE_LOADING,
    "subscriptions.*.msgOutCounter": SINCE_LOADING,
    "subscriptions.*.type": "the type of the last dispatcher",
    "subscriptions.*.keySharedMode": "the mode of the last dispatcher",
    "subscriptions.*.lastConsumedFlowTimestamp": NEVER_STORED,
    "subscriptions.*.lastMarkDeleteAdvancedTimestamp": NEVER_STORED,
    "subscriptions.*.msgDelayed": "what the delayed-delivery tracker holds: see the commands of `delayed`",
    "subscriptions.*.msgBacklogNoDelayed": "msgBacklog minus msgDelayed",
    "subscriptions.*.delayedMessageIndexSizeInBytes": NEVER_STORED,
}

CLUSTER_LEFT_OUT = {
    "internal_stats": INTERNAL_CLEAN,
    "internal_stats_after": INTERNAL_MUTATED | {"cursors.*.readPosition": RELOADED},
    "internal_info": INFO_CLEAN | dict.fromkeys(("version", "modificationDate", "properties"), RELOADED),
    "stats": STATS_CLEAN,
}
TRIMMED = (
    "acme/secure/compacted-secret"  # of the cluster, by that loading; of the standalone worlds, before ``mutated``
)

COMPARED = {
    ("small", "internal_stats"): 1014,
    ("nometa", "internal_stats"): 944,
    ("small", "internal_stats_after"): 1210,
    ("nometa", "internal_stats_after"): 1140,
    ("small", "internal_info"): 478,
    ("nometa", "internal_info"): 382,
    ("small", "stats"): 1687,
    ("nometa", "stats"): 1687,
    ("cluster", "internal_stats"): 902,
    ("cluster", "internal_stats_after"): 1103,
    ("cluster", "internal_info"): 311,
    ("cluster", "stats"): 1624,
}
"""Values of 26 topics that are in no table of what is left out: all of them equal."""

OURS_ALONE = re.compile(r"ledgers\.(\*|last)\.((begin|end)PublishTimestamp|publishTimestampsFrom)")


def internal_stats(reader: EntryReader, name: TopicName) -> object:
    return read_internal_stats(reader, name, True, True, [])


def internal_info(reader: EntryReader, name: TopicName) -> object:
    return read_internal_info(reader.txn, name, True, [])


def topic_stats(reader: EntryReader, name: TopicName) -> object:
    return read_topic_stats(reader, name, StatsOptions(), [])


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(
    ("state", "key", "ask", "left_out"),
    [
        pytest.param("clean", "internal_stats", internal_stats, INTERNAL_CLEAN, id="stats-internal"),
        pytest.param("mutated", "internal_stats_after", internal_stats, INTERNAL_MUTATED, id="mutated"),
        pytest.param("clean", "internal_info", internal_info, INFO_CLEAN, id="info-internal"),
        pytest.param("clean", "stats", topic_stats, STATS_CLEAN, id="stats"),
    ],
)
def test_every_field(world: str, state: str, key: str, ask: Answer, left_out: dict[str, str]) -> None:
    equal: Counter[str] = Counter()
    different: dict[str, list[str]] = {}
    left_out = CLUSTER_LEFT_OUT[key] if world == CLUSTER else left_out
    with open_store(imported(world, state)) as store, open_reader(store) as reader:
        for topic, answers in (asked_topics(world) if state == "clean" else oracle(world)["topics"]).items():
            answer = to_json(ask(reader, parse_topic(topic)))
            is_reloaded(answer, answers[key])
            ours, theirs = dict(leaves(answer)), dict(leaves(answers[key]))
            for path in {**theirs, **ours}:
                rule = rule_of(path)
                if OURS_ALONE.fullmatch(rule):
                    continue
                found, expected = ours.get(path, "absent"), theirs.get(path, "absent")
                if found == expected:
                    equal[rule] += 1
                else:
                    different.setdefault(rule, []).append(f"{topic} {'.'.join(path)}: {found!r}, broker {expected!r}")
    unexplained = {rule: cases[:3] for rule, cases in different.items() if rule not in left_out}
    assert not unexplained
    assert set(different) == set(left_out), "a field that is left out does not differ"
    assert sum(count for rule, count in equal.items() if rule not in left_out) == COMPARED[world, key]


def is_reloaded(ours: Json, theirs: Json) -> bool:
    """Whether the topic was loaded again after the broker was asked, which gave it an empty ledger at the end; takes that away from OURS.

    The cluster's broker unloaded its topics to stop, and clients that were still there had it load them again.
    """
    mine, listed = ours.get("ledgers", [{}]), theirs.get("ledgers", [{}])
    if mine[-1].get("ledgerId") == listed[-1].get("ledgerId"):
        return False
    assert not mine[-1].get("entries")
    if len(mine) == len(listed):  # the one before was empty, too
        mine[-1]["ledgerId"] = listed[-1]["ledgerId"]
        return True
    mine.pop()
    assert mine[-1]["ledgerId"] == listed[-1]["ledgerId"]
    if "currentLedgerEntries" in ours:
        ours["currentLedgerEntries"], ours["currentLedgerSize"] = mine[-1]["entries"], mine[-1]["size"]
    was_open = {name: listed[-1].get(name) for name in ("entries", "size", "timestamp")}
    mine[-1] = {name: was_open.get(name, value) for name, value in mine[-1].items() if name in listed[-1]}
    return True


def leaves(value: Json, path: Path_ = ()) -> Iterator[tuple[Path_, Json]]:
    """Yield (path, leaf); an empty object or list is a leaf, an individual range too, BookKeeper's text without its order."""
    if isinstance(value, dict) and value and path[-1:] not in {("properties",), ("subscriptionProperties",)}:
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list) and value and path[-1] != "individualDeletedMessages":
        for index, item in enumerate(value):
            yield from leaves(item, (*path, "last" if index == len(value) - 1 else str(index)))
    elif path[-1] == "metadata" and isinstance(value, str):
        yield path, unordered(value)
    else:
        yield path, value


def unordered(metadata: str) -> tuple[str, frozenset[str]]:
    """BookKeeper's text with its custom metadata as a set: their order is that of a Java map."""
    head, _, custom = metadata.partition(", customMetadata={")
    return head, frozenset(custom.rstrip("}").split(", "))


def rule_of(path: Path_) -> str:
    """The path with names of cursors and numbers of ledgers as ``*``; of the topic's own ledgers the last stays apart."""
    parts = list(path)
    if parts[0] in {"cursors", "subscriptions"} and len(parts) > 1:
        parts[1] = "*"
    if parts[0] in {"ledgers", "schemaLedgers"} and len(parts) > 1 and (parts[0] != "ledgers" or parts[1] != "last"):
        parts[1] = "*"
    return ".".join(parts)


@pytest.mark.parametrize("table", [INTERNAL_CLEAN, INTERNAL_MUTATED, INFO_CLEAN, STATS_CLEAN])
def test_left_out_is_documented(table: dict[str, str]) -> None:
    text = DOCS.read_text()
    missing = [rule for rule in table if not any(f"`{name}`" in text for name in names_of(rule))]
    assert not missing


def names_of(rule: str) -> list[str]:
    """``cursors.*.markDelete.entryId``, ``*.markDelete.entryId``, ``markDelete.entryId``, ``entryId``."""
    parts = rule.split(".")
    return [".".join(parts[start:]) for start in range(len(parts))]


# -- what is left out above and can still be compared some other way ------------------------------------------------------


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("state", "key"), [("clean", "internal_stats"), ("mutated", "internal_stats_after")])
def test_near_misses(world: str, state: str, key: str) -> None:
    schemas = 0
    with open_store(imported(world, state)) as store, open_reader(store) as reader:
        for topic, answers in oracle(world)["topics"].items():
            ours, theirs = to_json(internal_stats(reader, parse_topic(topic))), answers[key]
            delay_ms = millis(theirs["lastLedgerCreatedTimestamp"]) - millis(ours["lastLedgerCreatedTimestamp"])
            assert is_reloaded(ours, theirs) if world == CLUSTER and delay_ms < 0 else 0 <= delay_ms < 1000
            if ours["schemaLedgers"]:
                schemas += 1
                text = ours["schemaLedgers"][-1]["metadata"]
                assert unordered(text) == unordered(theirs["compactedLedger"]["metadata"])
    assert schemas == 2


@pytest.mark.parametrize("world", WORLDS)
def test_only_a_topic_trimmed_empty_has_another_end(world: str) -> None:
    with open_store(imported(world, "mutated")) as store, open_reader(store) as reader:
        different = {
            topic: to_json(internal_stats(reader, parse_topic(topic)))["numberOfEntries"]
            for topic, answers in oracle(world)["topics"].items()
            if str(read_topic(reader.txn, parse_topic(topic)).last_confirmed)
            != answers["internal_stats_after"]["lastConfirmedEntry"]
        }
    assert different == {"acme/secure/compacted-secret": 0}


def millis(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize("world", WORLDS)
def test_publish_times_of_ledgers(world: str) -> None:
    """PIP-345's bounds, against the publish times that a reader saw."""
    compared = 0
    with open_store(imported(world, "clean")) as store, open_reader(store) as reader:
        for topic, answers in oracle(world)["topics"].items():
            if "txn" in topic or topic.endswith("chunked"):
                continue  # markers and first chunks have times that no reader sees
            times: dict[int, list[int]] = {}
            for row in answers["messages"]:
                times.setdefault(row[0], []).append(row[3])
            for ledger in to_json(internal_stats(reader, parse_topic(topic)))["ledgers"]:
                seen = times.get(ledger["ledgerId"])
                expected = (min(seen), max(seen)) if seen else (None, None)
                assert (ledger.get("beginPublishTimestamp"), ledger.get("endPublishTimestamp")) == expected, topic
                compared += 1
    assert compared > 60


@pytest.mark.parametrize("world", WORLDS)
def test_last_message_ids(world: str) -> None:
    with open_store(imported(world, "clean")) as store, open_reader(store) as reader:
        for topic, answers in asked_topics(world).items():
            problems: list[Any] = []
            assert to_json(read_last_id(reader, parse_topic(topic), problems)) == answers["last_message_id"]
            assert not problems


@pytest.mark.parametrize("world", WORLDS)
def test_analyzed_backlogs(world: str) -> None:
    """The broker was asked from -1:-1 on; from the mark-delete on the entries are the backlog of its stats."""
    compared = 0
    with open_store(imported(world, "clean")) as store, open_reader(store) as reader:
        for name, answers in asked_topics(world).items():
            topic = read_topic(reader.txn, parse_topic(name))
            for subscription, expected in answers["analyze"].items():
                state = read_cursor(reader.txn, reader, topic, subscription).state
                assert to_json(analyze_backlog(reader.txn, topic, state, EARLIEST)) == expected
                left = analyze_backlog(reader.txn, topic, state, None)
                assert left.entries == answers["stats"]["subscriptions"][subscription]["msgBacklog"]
                compared += 1
    assert compared == (26 if world == CLUSTER else 27)


# -- headers of single entries --------------------------------------------------------------------------------------------

HEADERS_LEFT_OUT = {
    "X-Pulsar-txn-uncommitted": "asks the transaction buffer",
    "X-Pulsar-txn-aborted": "asks the transaction buffer",
    "X-Pulsar-batch-size": "the size of the body, which is compared itself",
    "X-Pulsar-PROPERTY-TOTAL-CHUNKS": "num-chunks-from-msg again",
    "X-Pulsar-PROPERTY-CHUNK-ID": "chunk-id again",
}


@pytest.mark.parametrize(
    ("world", "entries", "headers"), [("small", 150, 1522), ("nometa", 152, 1236), (CLUSTER, 145, 1456)]
)
def test_headers_of_single_entries(world: str, entries: int, headers: int) -> None:
    compared: Counter[str] = Counter()
    with open_store(imported(world, "clean")) as store, open_reader(store) as reader:
        for name, answers in asked_topics(world).items():
            for asked in answers["peek"]:
                found, body = headers_of(reader, Position(asked["ledger"], asked["entry"]))
                expected = {key: value for key, value in asked["headers"].items() if key not in HEADERS_LEFT_OUT}
                expected["X-Pulsar-PROPERTY"] = property_json(json.loads(expected["X-Pulsar-PROPERTY"]).items())
                assert found == expected, name
                assert (hashlib.sha1(body).hexdigest(), len(body)) == (asked["sha1"], asked["n"])
                compared.update(["body", *found])
    assert (compared["body"], sum(compared.values()) - compared["body"]) == (entries, headers)


def property_json(pairs: Iterable[tuple[str, str]]) -> str:
    """JSON of properties in one order: theirs is that of a Java map."""
    return json.dumps(dict(pairs), sort_keys=True)


def headers_of(reader: EntryReader, position: Position) -> tuple[dict[str, str], bytes]:
    """What ``GET …/ledger/L/entry/E`` answers about an entry: its headers and the body."""
    header = MessageReader(reader).read_header(position)
    message, metadata = read_message(reader, position), header.metadata
    found: dict[str, object] = {
        "Message-ID": position,
        "publish-time": iso_time(message.publish_ms),
        "producer-name": message.producer,
        "sequence-id": signed(metadata.sequence_id),
        "Is-Encrypted": str(message.encrypted).lower(),
        "PROPERTY": property_json((pair.key, pair.value) for pair in metadata.properties),
    }
    if header.broker is not None:
        found["Broker-Entry-METADATA-timestamp"] = iso_time(header.broker.timestamp_ms or 0)
        found["Broker-Entry-METADATA-index"] = header.broker.index
    found |= {key: value for key, value in optional_headers(metadata).items() if value is not None}
    body = bytes(header.payload)
    if metadata.compression and not message.encrypted:
        body = bytes(decompress(metadata.compression, header.payload, metadata.uncompressed_size, where="entry"))
    return {f"X-Pulsar-{key}": str(value) for key, value in found.items()}, body


def optional_headers(metadata: MessageMetadata) -> dict[str, object]:
    def given(field: str) -> Json:
        return getattr(metadata, field) if metadata.HasField(field) else None  # type: ignore[arg-type]

    def base64(value: bytes | None) -> str | None:
        return None if value is None else b64encode(value).decode()

    codecs = {0: None, 1: "LZ4", 2: "ZLIB", 3: "ZSTD", 4: "SNAPPY"}
    keys = [key.SerializeToString() for key in metadata.encryption_keys]
    return {
        "num-batch-message": given("num_messages_in_batch"),
        "partition-key": given("partition_key"),
        "Base64-ordering-key": base64(given("ordering_key")),
        "compression": codecs[metadata.compression],
        "uncompressed-size": given("uncompressed_size"),
        "deliver-at-time": iso_time(metadata.deliver_at_time) if metadata.HasField("deliver_at_time") else None,
        "event-time": iso_time(metadata.event_time) if metadata.event_time else None,
        "Base64-schema-version": base64(given("schema_version")),
        "Base64-encryption-param": base64(given("encryption_param")),
        "Base64-encryption-keys": base64(keys[0]) if keys else None,
        "uuid": given("uuid"),
        "num-chunks-from-msg": given("num_chunks_from_msg"),
        "total-chunk-msg-size": given("total_chunk_msg_size"),
        "chunk-id": given("chunk_id"),
        "txnid-least-bits": given("txnid_least_bits"),
        "txnid-most-bits": given("txnid_most_bits"),
        "highest-sequence-id": given("highest_sequence_id"),
    }
