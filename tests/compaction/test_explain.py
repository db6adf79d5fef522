"""``compaction explain``: beside the real reader of the compacted view, beside what a compaction keeps, and where it is torn."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.codec.message import encode_message_entry
from pulsar_admin.store.compaction import occurrences
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.compacted_view import open_view
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata
from tests.conftest import Cli
from tests.stores import copied, imported
from tests.synthetic import Made, MadeCompacted, MadeTopic, make_store
from tests.worlds import asked_topics, oracle

WORLDS = ("small", "nometa")
COMPACTED = [
    (world, topic)
    for world in WORLDS
    for topic, said in oracle(world)["topics"].items()
    if "compacted_messages" in said and not topic.endswith("-secret")
]
KEYS = 12  # of a topic, a pass over it each


@pytest.fixture(scope="module")
def readers() -> Iterator[dict[str, EntryReader]]:
    stores = {world: open_store(imported(world, "clean")) for world in WORLDS}
    with open_reader(stores["small"]) as small, open_reader(stores["nometa"]) as nometa:
        yield {"small": small, "nometa": nometa}
    for store in stores.values():
        store.close()


def explained(reader: EntryReader, name: str, key: str, rule: str = "4.0") -> occurrences.KeyHistory:
    topic = read_topic(reader.txn, parse_topic(name))
    return occurrences.explain_key(reader, topic, open_view(reader, topic), key, rule=rule)


def place(row: Any) -> Position:
    return Position(*row[:3])


@pytest.mark.parametrize(("world", "topic"), COMPACTED)
def test_the_ledger_of_the_real_broker(world: str, topic: str, readers: dict[str, EntryReader]) -> None:
    said = oracle(world)["topics"][topic]
    found = 0
    for key in sorted({row[5] for row in said["messages"] if row[5]})[:KEYS]:
        history = explained(readers[world], topic, key)
        rows = history.occurrences
        # Every message of the key that a client read is one row, and nothing else is.
        assert [row.position for row in rows] == [place(row) for row in said["messages"] if row[5] == key]
        # A reader of the compacted view got what the ledger holds, then what lies behind the horizon.
        got = [place(row) for row in said["compacted_messages"] if row[4] == key]
        assert [row.position for row in rows if row.in_view or row.fate == occurrences.BEHIND] == got, key
        assert [row.in_view for row in rows if row.fate != occurrences.BEHIND] == [
            row.fate == occurrences.KEPT for row in rows if row.fate != occurrences.BEHIND
        ]
        assert not any(row.is_wrong for row in rows)
        found += len(rows)
    assert found or topic.endswith("nokey")


@pytest.mark.parametrize("topic", ["acme/orders/compacted", "acme/orders/compacted-single", "public/default/batched"])
def test_what_a_compaction_keeps_is_what_was_said(
    topic: str, cli: Cli, tmp_path: Path, readers: dict[str, EntryReader]
) -> None:
    wanted = {
        row.position
        for key in {row[5] for row in asked_topics("small")[topic]["messages"] if row[5]}
        for row in explained(readers["small"], topic, key, rule="4.2").occurrences
        if row.next == occurrences.KEPT
    }
    store = copied("small", "clean", tmp_path)
    assert cli.on(store, f"compaction run {topic} --yes").exit_code == 0
    rows = cli.rows(store, f"compaction read {topic}")
    kept = {Position(row["ledgerId"], row["entryId"], row["batchIndex"]) for row in rows if row["key"] is not None}
    assert kept == wanted != set()


def test_reasons(readers: dict[str, EntryReader]) -> None:
    rows = explained(readers["small"], "acme/orders/compacted-single", "k0023", rule="4.2").occurrences
    assert [(row.fate, row.next) for row in rows] == [
        (occurrences.SUPERSEDED, occurrences.SUPERSEDED),
        (occurrences.TOMBSTONE, occurrences.TOMBSTONE),
        (occurrences.KEPT, occurrences.SUPERSEDED),
        (occurrences.BEHIND, occurrences.KEPT),
    ]
    assert [row.why for row in rows] == [
        "83:20 is later",
        "a null value; 83:20 is later",
        "the latest value up to the horizon 84:9; the next compaction drops it: 84:14 is later",
        "after the horizon 84:9; the next compaction keeps it, the latest value",
    ]
    assert occurrences.UNCOMMITTED not in {row.fate for row in rows}


def test_what_is_encrypted_is_told(cli: Cli, store: Path) -> None:
    result = cli.on(store, "compaction explain acme/secure/compacted-secret --key k0000")
    assert result.exit_code == 5
    assert "4 encrypted batches may hold the key too" in result.stderr


def test_a_ledger_that_lacks_the_value_is_wrong(cli: Cli, tmp_path: Path) -> None:
    topic = "persistent://public/default/t"
    made = [Made(1_700_000_000_000 + number, raw=keyed(b"a", b"v%d" % number, number)) for number in range(3)]
    compacted = MadeCompacted(9, [], Position(10, 2))
    store = make_store(tmp_path / "store", {topic: MadeTopic([made], compacted=compacted)})
    result = cli.on(store, f"compaction explain {topic} --key a -o jsonl").ends(1)
    assert [(row["fate"], row["compacted"], row.get("isWrong", False)) for row in result.json_lines] == [
        (occurrences.SUPERSEDED, False, False),
        (occurrences.SUPERSEDED, False, False),
        (occurrences.KEPT, False, True),
    ]
    assert result.json_lines[-1]["why"] == "the compacted ledger lacks it: see compaction verify"


def keyed(key: bytes, value: bytes, number: int) -> bytes:
    metadata = MessageMetadata(
        producer_name="p", sequence_id=number, publish_time=1_700_000_000_000 + number, partition_key=key.decode()
    )
    return encode_message_entry(metadata, value)
