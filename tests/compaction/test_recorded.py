"""The recorded compacted readers, last ids and time answers of both golden worlds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pulsar_admin.store.compaction.last_id import ENCRYPTED, find_last_id
from pulsar_admin.store.compaction.reading import bisect_view, find_in_view, iter_view
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.compacted_view import open_view, read_compacted_entry
from pulsar_admin.store.model.messages import message_row
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import parse_topic
from tests.conftest import Cli
from tests.stores import imported
from tests.worlds import oracle

WORLDS = ("small", "nometa")
COMPACTED = [
    (world, topic)
    for world in WORLDS
    for topic, said in oracle(world)["topics"].items()
    if "compacted_messages" in said
]
READABLE = [case for case in COMPACTED if not case[1].endswith("-secret")]
SECRET = [case for case in COMPACTED if case[1].endswith("-secret")]
OTHERS = [
    (world, topic)
    for world in WORLDS
    for topic, said in oracle(world)["topics"].items()
    if "compacted_messages" not in said
]


@pytest.fixture(scope="module")
def readers() -> Iterator[dict[str, EntryReader]]:
    stores = {world: open_store(imported(world, "mutated")) for world in WORLDS}
    with open_reader(stores["small"]) as small, open_reader(stores["nometa"]) as nometa:
        yield {"small": small, "nometa": nometa}
    for store in stores.values():
        store.close()


def _topic(reader: EntryReader, name: str) -> Topic:
    return read_topic(reader.txn, parse_topic(name))


def _recorded(world: str, topic: str) -> list[list[Any]]:
    """What the recorded reader got, without the empty messages that the C++ client makes of what was compacted out."""
    rows: list[list[Any]] = oracle(world)["topics"][topic]["compacted_messages"]
    return [row for row in rows if not (row[2] >= 0 and row[4] == "" and row[5] == 0)]


def read_rows(reader: EntryReader, name: str) -> list[list[Any]]:
    """``compaction read``: ledger, entry, batch index, publish time, key, size, SHA-1."""
    topic, problems = _topic(reader, name), list[StoreError]()
    rows = [
        message_row(topic.name, message) for message in iter_view(reader, topic, open_view(reader, topic), problems)
    ]
    assert problems == []
    return [
        [row.ledger_id, row.entry_id, row.batch_index, row.publish_time, row.key or "", row.size, row.sha1]
        for row in rows
    ]


@pytest.mark.parametrize(("world", "topic"), READABLE)
def test_read_is_the_recorded_reader(readers: dict[str, EntryReader], world: str, topic: str) -> None:
    assert read_rows(readers[world], topic) == _recorded(world, topic)


@pytest.mark.parametrize(("world", "topic"), SECRET)
def test_encrypted_view_simply_works(readers: dict[str, EntryReader], world: str, topic: str) -> None:
    """The live broker failed here: its answers of the uncompacted topic are what there is to compare with."""
    said = oracle(world)["topics"][topic]
    assert said["compacted_messages"] == [["stopped", "Pulsar error: BrokerMetadataError"]]
    found = [tuple(row[:2]) for row in read_rows(readers[world], topic)]
    batches = sorted({(row[0], row[1]) for row in said["messages"]})
    assert set(found) <= set(batches)
    assert found == sorted(found)
    assert len(found) == said["internal_stats"]["compactedLedger"]["entries"]


@pytest.mark.parametrize(("world", "topic"), READABLE)
def test_last_id_is_where_the_recorded_reader_ended(readers: dict[str, EntryReader], world: str, topic: str) -> None:
    found = find_last_id(readers[world], _topic(readers[world], topic), verify=True)
    rows = _recorded(world, topic)
    place = found.position
    if not rows:
        assert (place.ledger_id, place.entry_id, place.batch_index, found.publish_ms) == (-1, -1, 0, 0)
    else:
        assert [place.ledger_id, place.entry_id, place.batch_index, found.publish_ms] == rows[-1][:4]


@pytest.mark.parametrize(("world", "topic"), SECRET)
def test_last_id_of_an_encrypted_batch(readers: dict[str, EntryReader], world: str, topic: str) -> None:
    found = find_last_id(readers[world], _topic(readers[world], topic))
    last = oracle(world)["topics"][topic]["messages"][-1]
    assert [found.position.ledger_id, found.position.entry_id, found.position.batch_index, found.publish_ms] == last[:4]
    assert found.rule == ENCRYPTED
    assert found.bytes_read < 2048


@pytest.mark.parametrize(("world", "topic"), OTHERS)
def test_last_id_of_a_topic_never_compacted(readers: dict[str, EntryReader], world: str, topic: str) -> None:
    """It is where a reader of the live topic ended; markers and aborted transactions do not count."""
    found = find_last_id(readers[world], _topic(readers[world], topic), verify=True).position
    last = oracle(world)["topics"][topic]["messages"][-1]
    assert [found.ledger_id, found.entry_id, found.batch_index] == last[:3]


@pytest.mark.parametrize(("world", "topic"), READABLE)
def test_time_search_is_the_broker_s(readers: dict[str, EntryReader], world: str, topic: str) -> None:
    """The broker answers GET messageid/{time} from the compacted ledger up to the publish time of its last entry."""
    reader = readers[world]
    view = open_view(reader, _topic(reader, topic))
    if view.last_entry_id < 0:
        assert find_in_view(reader, view, 0).position is None
        return
    entries = [read_compacted_entry(reader, view, entry_id) for entry_id in range(view.last_entry_id + 1)]
    times = [entry.header.metadata.publish_time for entry in entries]
    compared = 0
    for probe, answer in oracle(world)["topics"][topic]["by_time"].items():
        if int(probe) < times[-1]:
            found = bisect_view(reader, view, int(probe)).position
            assert [found.ledger_id, found.entry_id] == answer
            compared += 1
        exact = next((e.position for e, at in zip(entries, times, strict=True) if at >= int(probe)), None)
        assert find_in_view(reader, view, int(probe)).position == exact
    assert compared >= 1


def test_time_search_says_why_it_found_nothing(cli: Cli) -> None:
    store = imported("small", "clean")
    command = ("--store", store, "compaction", "find-by-time", "-o", "json", "--time")
    never = cli(*command, "1000000000000", "public/default/plain")
    assert (never.exit_code, never.json["position"]) == (5, None)
    assert "never compacted" in never.json["why"]
    assert "pulsar-admin topics find-by-time persistent://public/default/plain --time 1000000000000" in never.stderr
    later = cli(*command, "9999999999999", "acme/orders/compacted")
    assert (later.exit_code, later.json["position"]) == (5, None)
    assert "nothing published at or after" in later.json["why"]
    assert cli(*command, "1000000000000", "acme/orders/compacted").json["why"] is None


@pytest.mark.parametrize("world", WORLDS)
def test_commands(world: str, cli: Cli) -> None:
    store = imported(world, "clean")
    for _, topic in [case for case in READABLE if case[0] == world]:
        rows = (
            cli("--store", store, "compaction", "read", topic, "-o", "jsonl").json_lines
            if _recorded(world, topic)
            else []
        )
        assert [[row["ledgerId"], row["entryId"], row["batchIndex"]] for row in rows] == [
            row[:3] for row in _recorded(world, topic)
        ]
        status = cli("--store", store, "compaction", "status", topic, "-o", "json").json
        said = oracle(world)["topics"][topic]["internal_stats"]["compactedLedger"]
        assert (status["ledger"]["ledgerId"], status["ledger"]["entries"], status["ledger"]["size"]) == (
            said["ledgerId"],
            said["entries"],
            said["size"],
        )
        cursor = oracle(world)["topics"][topic]["internal_stats"]["cursors"]["__compaction"]
        horizon = status["horizon"]
        assert f"{horizon['ledgerId']}:{horizon['entryId']}" == cursor["markDeletePosition"]
        backlog = oracle(world)["topics"][topic]["stats"]["subscriptions"]["__compaction"]["msgBacklog"]
        assert status["entriesSince"] == backlog
        assert status["problems"] == []
