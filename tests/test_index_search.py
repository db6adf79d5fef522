"""``topics find-by-index`` against the indexes that a real broker gave, and against brute force on counts that were lost."""

import random
from pathlib import Path

import msgspec
import pytest

from pulsar_admin.store.codec.brokerentry import BrokerEntry
from pulsar_admin.store.codec.message import encode_message_entry
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.names import parse_topic
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata
from pulsar_admin.store.search.by_index import find_by_index
from pulsar_admin.store.search.index_cover import FindCover, Hit, Seen
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.stores import imported
from tests.synthetic import Made, MadeTopic, make_store
from tests.worlds import oracle

TOPICS = ("public/default/batched", "public/default/plain", "acme/orders/codecs", "acme/iot/skewed-batched")


@pytest.mark.parametrize("name", TOPICS)
def test_every_message_is_found_by_its_index(name: str) -> None:
    """What a client read, in order, is what the broker numbered: message i has index i (recorded from the first one on)."""
    recorded = oracle("small")["topics"][name]["messages"]
    with open_store(imported("small", "clean")) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic(name))
        for index, row in enumerate(recorded):
            found = find_by_index(reader, topic, index)
            position = found.position
            assert [position.ledger_id, position.entry_id, position.batch_index] == row[:3]
            assert not found.scanned
            assert found.entries_read <= 12
        behind = find_by_index(reader, topic, len(recorded))
        assert (behind.position, behind.scanned, behind.indexed, behind.next_index) == (None, True, True, None)


def test_the_id_by_an_index_is_that_of_a_broker(cli: Cli) -> None:
    """Pulsar 4.2.4, ``getMessageIdByIndex``: the entry that covers the index, without the place in its batch; 404 beside them."""
    recorded = oracle("small")["topics"]["public/default/batched"]["messages"]
    ask = ("--store", imported("small", "clean"), "topics", "get-message-id-by-index", "public/default/batched")
    for index in (0, 1, 58, 59, len(recorded) - 1):
        ledger_id, entry_id = recorded[index][:2]
        expected = {"ledgerId": ledger_id, "entryId": entry_id, "partitionIndex": -1, "batchIndex": -1, "batchSize": 0}
        assert cli(*ask, "-i", index).json == expected
    assert cli(*ask, "-i", len(recorded)).ends(5, f"Message not found for index {len(recorded)}").stdout == ""
    assert cli(*ask, "-i", -2).exit_code == 2
    partition = cli(*ask[:-1], "acme/orders/parts-partition-1", "-i", 0)
    assert partition.json["partitionIndex"] == 1


def test_peeked_headers_have_the_same_index() -> None:
    asked = 0
    with open_store(imported("small", "clean")) as store, open_reader(store) as reader:
        for name, recorded in oracle("small")["topics"].items():
            topic = read_topic(reader.txn, parse_topic(name))
            for peek in recorded["peek"]:
                index = peek.get("headers", {}).get("X-Pulsar-Broker-Entry-METADATA-index")
                if index is not None:
                    found = find_by_index(reader, topic, int(index))
                    assert (found.position.ledger_id, found.position.entry_id) == (peek["ledger"], peek["entry"])
                    assert found.last_index == int(index)
                    asked += 1
    assert asked > 60


def _raw(index: int | None) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    return encode_message_entry(metadata, b"x", broker=None if index is None else BrokerEntry(None, index))


@deep_but_for((0, 3), "seed", range(6))
def test_lost_counts_gaps_and_entries_without_index(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    indexes: list[int | None] = []
    count = 0
    for number in range(200):
        if seed >= 3 and number in (70, 150):
            count = rng.randrange(40)  # the count was lost and began again
        if number == 100:
            count += 50  # entries appended without the interceptor
        indexes.append(None if rng.random() < 0.3 else count)
        count += 1
    made = [Made(1, raw=_raw(index), lost=rng.random() < 0.05) for index in indexes]
    path = make_store(tmp_path / "s", {"t/n/x": MadeTopic([made[:90], [], made[90:]], open_last=False)})
    there = {
        index: number
        for number, (index, entry) in reversed(list(enumerate(zip(indexes, made, strict=True))))
        if index is not None and not entry.lost
    }
    with open_store(path) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic("t/n/x"))
        for index in range(300):
            found = find_by_index(reader, topic, index)
            if index not in there:
                assert found.position is None
                following = min((other for other in there if other > index), default=None)
                assert (found.next_index and found.next_index[0]) == following
                continue
            assert found.position is not None
            assert indexes[topic.rank(found.position)] == index
            assert seed >= 3 or not found.scanned


def test_command(cli: Cli, demo_store: Path, tmp_path: Path) -> None:
    common = ("--store", demo_store, "topics", "find-by-index")
    document = cli(*common, "public/default/batched", "--index", 45).json
    assert document["position"] == {"ledgerId": 8, "entryId": 2, "partitionIndex": -1, "batchIndex": 5}
    assert (document["firstIndex"], document["lastIndex"]) == (40, 59)
    assert cli(*common, "public/default/batched", "--index", 10**6).exit_code == 5
    nothing = cli(
        "--store", imported("nometa", "clean"), *common[2:], "public/default/plain", "--index", 0, "-o", "json"
    ).fails(5, "nothing-matches")
    assert "AppendIndexMetadataInterceptor" in nothing.error["hint"]
    assert cli(*common, "public/default/batched", "--index", -1).exit_code == 2


def test_of_rows_that_follow_each_other_the_least_index_above_is_kept() -> None:
    """Of equal ones the first; of the entries that cover the index those to the first that is verified."""
    find = FindCover(5)
    doubtful, sound, later = (
        Hit(1, 1, 0, 5, 5, False, False),
        Hit(2, 2, 0, 4, 6, True, True),
        Hit(1, 3, 0, 5, 5, False, True),
    )
    seen = [
        Seen(2, True, (doubtful,), (9, 1, 0)),
        Seen(3, False, (sound,), (7, 2, 0)),
        Seen(1, False, (later,), (7, 3, 0)),
    ]
    merged = find.merge([{"seen": msgspec.msgpack.encode(one)} for one in seen])
    assert find.read(merged) == Seen(6, True, (doubtful, Hit(4, 2, 0, 4, 6, True, True)), (7, 2, 0))
    assert [find.is_enough(find.merge([{"seen": msgspec.msgpack.encode(one)}])) for one in seen] == [False, True, True]
