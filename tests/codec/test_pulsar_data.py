"""Every codec of Pulsar's own bytes on everything a real Pulsar 4.0.8 left behind, against its live broker's answers."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.codec import (
    batch,
    compression,
    cursor,
    delayedbucket,
    managedledger,
    message,
    policies,
    rocksvalue,
    schema,
)
from pulsar_admin.store.codec.compactedentry import decode_compacted_entry
from pulsar_admin.store.codec.ledgermetadata import LedgerMetadata, decode_ledger_metadata, ledger_id_of_path
from pulsar_admin.store.errors import EntryCorrupt
from pulsar_admin.store.names import Position, TopicName, parse_topic, topic_of_path
from pulsar_admin.store.sources.rocksdb import open_for_reading
from tests import encoders
from tests.encoders import encode_compacted_entry, encode_position_info, original_id
from tests.worlds import STATES, WORLD_NAMES, oracle, world

ALL = [(name, state) for name in WORLD_NAMES for state in STATES]
_DIGEST_BYTES = {"CRC32C": 4, "CRC32": 8}


@cache
def _nodes(name: str, state: str) -> dict[str, bytes]:
    with open_for_reading(world(name) / state / "metadata") as items:
        raw = {key.decode(): value for key, value in items}
    nodes = {}
    for path, value in raw.items():
        if path.encode() in rocksvalue.COUNTER_KEYS:
            assert rocksvalue.encode_counter(rocksvalue.decode_counter(value, path)) == value
        else:
            stat, nodes[path] = rocksvalue.decode_value(value, path)
            assert rocksvalue.encode_value(stat, nodes[path]) == value
    return nodes


def _topics(name: str, state: str) -> dict[TopicName, bytes]:
    return {topic: value for path, value in _nodes(name, state).items() if (topic := topic_of_path(path))}


def _cursor_paths(name: str, state: str) -> list[str]:
    nodes = _nodes(name, state)
    return [path for path in nodes if nodes[path] and topic_of_path(path.rpartition("/")[0])]


@pytest.mark.parametrize(("name", "state"), ALL)
def test_every_metadata_value_is_written_as_it_was_read(name: str, state: str) -> None:
    seen: Counter[str] = Counter()
    nodes = _nodes(name, state)
    for topic, value in _topics(name, state).items():
        found = managedledger.decode_managed_ledger(value, str(topic))
        assert managedledger.encode_managed_ledger(found) == value
        seen["managed ledger"] += 1
    for path in _cursor_paths(name, state):
        info = cursor.decode_cursor_info(nodes[path], path)
        assert cursor.encode_cursor_info(info) == nodes[path]
        seen["cursor"] += 1
        seen["ranges"] += len(info.ranges)
        seen["batch deletes"] += len(info.batch_deletes)
        seen["buckets"] += sum(delayedbucket.parse_bucket_key(key) is not None for key in info.cursor_properties)
    for path, value in nodes.items():
        if path.startswith("/schemas/"):
            assert schema.encode_schema_locator(schema.decode_schema_locator(value, path)) == value
            seen["schema"] += 1
        elif path.startswith("/admin/partitioned-topics/"):
            assert policies.encode_partitioned_topic(policies.decode_partitioned_topic(value, path)) == value
            seen["partitioned topic"] += 1
        elif path.startswith("/admin/policies/") and path.count("/") == 4:
            policies.decode_policies(value, path)
            assert policies.encode_json_object(policies.decode_json_object(value, path)) == value
            seen["policies"] += 1
    assert {"managed ledger", "cursor", "ranges", "schema", "partitioned topic", "policies"} <= set(+seen)
    # A broker writes partly acknowledged batches on a clean stop and does not read them back.
    assert ("batch deletes" in +seen) == (state == "clean")
    assert seen["managed ledger"] >= 40
    assert seen["cursor"] >= 40


@pytest.mark.parametrize("name", WORLD_NAMES)
def test_managed_ledgers_and_cursors_say_what_the_broker_said(name: str) -> None:
    topics, nodes = _topics(name, "clean"), _nodes(name, "clean")
    for short, answers in oracle(name)["topics"].items():
        topic = parse_topic(short)
        found = managedledger.decode_managed_ledger(topics[topic], short)
        expected = answers["internal_info"]
        assert [info.ledger_id for info in found.ledgers] == [info["ledgerId"] for info in expected["ledgers"]]
        for info, told in zip(found.ledgers[:-1], expected["ledgers"][:-1], strict=True):
            assert [info.entries, info.size_bytes, info.timestamp_ms] == [
                told[key] for key in ("entries", "size", "timestamp")
            ]
        assert found.ledgers[-1] == managedledger.LedgerInfo(expected["ledgers"][-1]["ledgerId"])
        assert found.properties == expected.get("properties", {})
        for component, told in answers["internal_stats"]["cursors"].items():
            path = f"{topic.path}/{component}"
            info = cursor.decode_cursor_info(nodes[path], path)
            assert info.cursors_ledger_id == cursor.NO_CURSOR_LEDGER
            assert str(info.mark_delete) == told["markDeletePosition"]
            ranges = ",".join(f"({lower}..{upper}]" for lower, upper in info.ranges)
            assert f"[{ranges}]" == told["individuallyDeletedMessages"]
            assert info.properties == told["properties"]


def _entries(name: str, state: str) -> Iterator[tuple[Position, bytes]]:
    """Entry bodies behind the ids, from the logs; a plain walk over records, which have no gaps here."""
    for path in sorted((world(name) / state / "bookkeeper" / "current").glob("*.log")):
        data, offset = Path(path).read_bytes(), 1024
        while offset + 4 < len(data) and (size := int.from_bytes(data[offset : offset + 4], "big")) > 0:
            body = data[offset + 4 : offset + 4 + size]
            ledger_id, entry_id = (int.from_bytes(body[at : at + 8], "big", signed=True) for at in (0, 8))
            if ledger_id >= 0:
                yield Position(ledger_id, entry_id), body
            offset += 4 + size


def _ledgers(name: str, state: str) -> dict[int, LedgerMetadata]:
    found = {}
    for path, value in _nodes(name, state).items():
        ledger_id = ledger_id_of_path(path)
        if ledger_id is not None:
            found[ledger_id] = decode_ledger_metadata(value, path)
    return found


def _payloads(name: str, state: str) -> Iterator[tuple[str, TopicName | None, Position, memoryview]]:
    """Component, topic, position and payload of every entry whose ledger still exists."""
    ledgers = _ledgers(name, state)
    owners = {
        info.ledger_id: topic
        for topic, value in _topics(name, state).items()
        for info in managedledger.decode_managed_ledger(value, str(topic)).ledgers
    }
    for position, body in _entries(name, state):
        metadata = ledgers.get(position.ledger_id)
        if metadata is None or metadata.digest_type is None:
            continue
        component = "cursor" if "pulsar/cursor" in metadata.custom else metadata.custom["component"].decode()
        start = 32 + _DIGEST_BYTES[metadata.digest_type.name]
        yield component, owners.get(position.ledger_id), position, memoryview(body)[start:]


def _is_unframed(topic: TopicName | None) -> bool:
    local = topic.local_name if topic is not None else ""
    return local.startswith("__transaction_log_") or local.endswith("__transaction_pending_ack")


@pytest.mark.parametrize(("name", "state"), [("small", "clean"), ("nometa", "clean"), ("small", "crashed")])
def test_every_entry_is_written_as_it_was_read(name: str, state: str) -> None:
    seen: Counter[str] = Counter()
    for component, topic, position, payload in _payloads(name, state):
        where = str(position)
        seen[component] += 1
        if component == "cursor":
            assert encode_position_info(cursor.decode_position_info(payload, where)) == payload
        elif component == "schema":
            found = schema.decode_schema_entry(payload, where)
            assert schema.encode_schema_entry(found) == payload
            assert found.index[0].hash == hashlib.sha256(found.definition).digest()
        elif component == "delayed-index-bucket" and position.entry_id:
            indexes = delayedbucket.decode_snapshot_segment(payload, where)
            assert encoders.encode_snapshot_segment(indexes) == payload
        elif component == "delayed-index-bucket":
            segments = delayedbucket.decode_snapshot_metadata(payload, where)
            for bitmap in (bitmap for segment in segments for bitmap in segment.bitmaps.values()):
                assert encoders.encode_entry_ids(delayedbucket.decode_entry_ids(bitmap, where)) == bitmap
        elif component == "compacted-ledger":
            compacted = decode_compacted_entry(payload, where)
            assert encode_compacted_entry(original_id(compacted.position), compacted.headers_and_payload) == payload
            _check_message(compacted.headers_and_payload, where)
        elif _is_unframed(topic):
            assert payload[0] == 0x08
            with pytest.raises(EntryCorrupt):
                message.decode_message_entry(payload, where)
            seen["unframed"] += 1
        else:
            _check_message(payload, where)
    assert set(seen) == {"managed-ledger", "cursor", "schema", "delayed-index-bucket", "compacted-ledger", "unframed"}


def _check_message(payload: memoryview, where: str) -> None:
    header = message.decode_message_entry(payload, where)
    written = message.encode_message_entry(header.metadata, header.payload, broker=header.broker)
    assert written == payload
    broker_ms = header.broker.timestamp_ms if header.broker else None
    assert message.decode_entry_times(payload) == (header.metadata.publish_time, broker_ms)


@pytest.mark.parametrize("name", WORLD_NAMES)
def test_messages_are_those_a_client_read(name: str) -> None:
    told: dict[tuple[str, int, int], dict[int, list[Any]]] = {}
    for short, answers in oracle(name)["topics"].items():
        for row in answers["messages"]:
            told.setdefault((str(parse_topic(short)), row[0], row[1]), {})[row[2]] = row
    compared = 0
    for component, topic, position, payload in _payloads(name, "clean"):
        rows = told.get((str(topic), position.ledger_id, position.entry_id))
        if component != "managed-ledger" or rows is None:
            continue
        header = message.decode_message_entry(payload, str(position))
        metadata = header.metadata
        if message.is_encrypted(metadata) or message.is_chunk(metadata):
            continue
        assert metadata.publish_time == next(iter(rows.values()))[3]
        plain = compression.decompress(
            metadata.compression, header.payload, metadata.uncompressed_size, where=str(position)
        )
        found = {-1: plain}
        if message.is_batch(metadata):
            slots = list(batch.iter_batch(plain, message.message_count(metadata), str(position)))
            assert batch.encode_batch(slots) == plain
            found = {slot.index: slot.payload for slot in slots}
        for index, row in rows.items():
            data = found[index]
            assert (len(data), hashlib.sha1(data).hexdigest()) == (row[7], row[8])
            compared += 1
    assert compared > 3000
