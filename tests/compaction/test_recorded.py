"""The recorded compacted readers, last ids and time answers of both golden worlds."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pulsar_admin.store.compaction.compactor import Compaction, CompactionRules, SourceOptions, prepare
from pulsar_admin.store.compaction.last_id import ENCRYPTED, find_last_id
from pulsar_admin.store.compaction.reading import bisect_view, find_in_view, iter_view
from pulsar_admin.store.compaction.status import read_status
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.errors import StoreError
from pulsar_admin.store.model.compacted_view import find_compacted_view, open_view, read_compacted_entry
from pulsar_admin.store.model.cursors import iter_ledger_parts
from pulsar_admin.store.model.messages import message_row
from pulsar_admin.store.model.reader import EntryReader, open_reader
from pulsar_admin.store.model.topics import Topic, read_topic
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata
from tests.compaction.entries import LZ4, PUBLISH_MS, Batch, Slot, compacted, decompressed, entry, split
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.stores import imported, read_store
from tests.synthetic import Made, MadeCompacted, MadeTopic, make_store
from tests.worlds import oracle

WORLDS = ("small", "nometa")
COMPACTED = [
    (world, topic)
    for world in WORLDS
    for topic, said in oracle(world)["topics"].items()
    if "compacted_messages" in said
]
ID_KEYS = ("ledgerId", "entryId", "batchIndex")
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
        rows = cli.rows(store, f"compaction read {topic}") if _recorded(world, topic) else []
        assert [[row[key] for key in ID_KEYS] for row in rows] == [row[:3] for row in _recorded(world, topic)]
        status = cli.json(store, f"compaction status {topic}")
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


# -- topics that Pulsar 4.2.4 wrote (tests/golden/README.md) --------------------------------------------------------

SAID: dict[str, dict[str, Any]] = oracle("compacted")["topics"]
NEWER_SECRET = "public/default/secret"
TOPIC = "public/default/t"


@pytest.mark.parametrize("name", SAID)
def test_read_is_the_recorded_reader_of_newer(name: str) -> None:
    """Message by message; the reader had the key of the encrypted ones, whose entries are compared."""
    said = SAID[name]["compacted_messages"]
    rows = read_store(imported("compacted", "clean"), lambda reader: read_rows(reader, name))
    found = [[ledger, entry_id, index, key, sha1, size] for ledger, entry_id, index, _, key, size, sha1 in rows]
    if name == NEWER_SECRET:
        assert [row[:2] for row in found] == [list(place) for place in sorted({tuple(row[:2]) for row in said})]
    else:
        assert found == said


@pytest.mark.parametrize("name", SAID)
def test_last_id_is_the_broker_s(name: str) -> None:
    with open_store(imported("compacted", "clean")) as store, open_reader(store) as reader:
        found = find_last_id(reader, read_topic(reader.txn, parse_topic(name)), verify=True).position
    assert [found.ledger_id, found.entry_id, found.batch_index] == SAID[name]["last_message_id"]


@pytest.mark.parametrize("name", SAID)
def test_status_of_a_healthy_topic(name: str) -> None:
    """``batched-lz4`` stands at (next ledger, −1), others so in an empty one; ``ends-with-nulls`` behind its last value."""
    stats = SAID[name]["internal_stats"]
    with open_store(imported("compacted", "clean")) as store, open_reader(store) as reader:
        found = read_status(reader, read_topic(reader.txn, parse_topic(name)))
    assert found.problems == ()
    assert (found.ledger.ledger_id, found.ledger.entries, found.ledger.size_bytes) == (
        stats["compactedLedger"]["ledgerId"],
        stats["compactedLedger"]["entries"],
        stats["compactedLedger"]["size"],
    )
    assert found.entries_since == {"public/default/batched-lz4": 2, "public/default/single": 10}.get(name, 0)


@pytest.mark.parametrize("name", SAID)
def test_verify_finds_nothing_and_recognises_the_broker(name: str, cli: Cli) -> None:
    """Its compactor is a client: entries that it kept whole lack the broker metadata that the topic's have."""
    report = cli.on(imported("compacted", "clean"), f"compaction verify {name} -o json")
    assert (report.exit_code, report.json["findings"]) == (0, [])
    entries = SAID[name]["internal_stats"]["compactedLedger"]["entries"]
    is_batched = "batched" in name or "parts" in name or "once" in name
    assert report.json["formats"] == ({"indexed": entries} if is_batched and entries else {})
    # Only messages alone that state no size are null by one rule and not by the other.
    is_told = name.split("/")[-1] in ("single", "all-null", "ends-with-nulls")
    assert report.json["rule"] == ("4.2" if is_told else None)


@pytest.mark.parametrize("name", SAID)
def test_ledger_is_the_broker_s(name: str) -> None:
    """The two phases over the topic's own entries give what 4.2.4 wrote in two compactions one after the other.

    Byte by byte but for compressed payloads, which its libraries pack otherwise.
    """
    with open_store(imported("compacted", "clean")) as store, open_reader(store) as reader:
        topic = read_topic(reader.txn, parse_topic(name))
        view = find_compacted_view(reader, topic)
        prepared = prepare(reader, topic, SourceOptions(from_start=True, encrypted_by_key=True))
        prepared.source.parts = tuple(iter_ledger_parts(topic, 0, topic.place(view.horizon)))
        compaction = Compaction(prepared.source, CompactionRules(), topic.name.partition_index)
        compaction.find_latest()
        written = [[found] if isinstance(found, bytes) else list(found) for found in compaction.payloads()]
        recorded = [bytes(reader.read(view.ledger_id, number).payload) for number in range(view.last_entry_id + 1)]
    assert [_unpacked(_without_broker_metadata(payload)) for part in written for payload in part] == list(
        map(_unpacked, recorded)
    )


def _unpacked(payload: bytes) -> tuple[bytes, MessageMetadata, bytes] | bytes:
    """A compacted entry with its payload uncompressed, one that is not compressed as it is."""
    front, metadata, packed = split(payload)
    if not metadata.compression:
        return payload
    return front, metadata, decompressed(metadata.compression, packed, metadata.uncompressed_size)


def _without_broker_metadata(payload: bytes) -> bytes:
    """The entry of a compacted ledger as a client writes that never got the broker's part of it."""
    (id_size,) = struct.unpack_from(">I", payload)
    front, inner = payload[: 4 + id_size], payload[8 + id_size :]
    assert inner[:2] == b"\x0e\x02"
    (size,) = struct.unpack_from(">I", inner, 2)
    return front + struct.pack(">I", len(inner) - 6 - size) + inner[6 + size :]


# -- the place of a position ------------------------------------------------------------------------------------------

VALUE, NULL = (entry(Batch([Slot("k", value)], alone=True)) for value in (b"v", None))


def _problems(path: Path, ledgers: list[list[bytes]], horizon: Position, compacted_to: Position) -> tuple[str, ...]:
    made = MadeCompacted(77, [compacted(10, 0, VALUE)], horizon, compacted_to=compacted_to)
    entries = [[Made(PUBLISH_MS, raw=raw) for raw in ledger] for ledger in ledgers]
    store = make_store(path / "s", {TOPIC: MadeTopic(entries, compacted=made)})
    return read_store(store, lambda reader: read_status(reader, read_topic(reader.txn, parse_topic(TOPIC))).problems)


@pytest.mark.parametrize("horizon", [Position(11, 0), Position(12, -1)])
def test_a_message_between_is_missed(tmp_path: Path, horizon: Position) -> None:
    (problem,) = _problems(tmp_path, [[VALUE, VALUE], [VALUE], []], horizon, Position(10, 1))
    assert problem.startswith("__compaction is ahead: it is at 11:0, but its ledger is compacted to 10:1;")
    assert problem.endswith("miss the messages between the two, 11:0 first")


# -- null values ------------------------------------------------------------------------------------------------------

FIRST = entry(Batch([Slot("k", b"first")], alone=True))
STATED_EMPTY = {"uncompressed_size": 0}
CASES = {  # the last message of a key, and the rules by which it deletes the key
    "says null, no size": (Batch([Slot("k", None)], alone=True), {"4.2"}),
    "says null, size 0": (Batch([Slot("k", None)], alone=True, more=STATED_EMPTY), {"4.0", "4.2"}),
    "says null, has a value": (Batch([Slot("k", None)], alone=True, payload=b"v"), {"4.2"}),
    "says null, compressed": (Batch([Slot("k", None)], LZ4, alone=True), {"4.0", "4.2"}),
    "empty, no size": (Batch([Slot("k", b"")], alone=True), {"4.2"}),
    "empty, size 0": (Batch([Slot("k", b"")], alone=True, more=STATED_EMPTY), {"4.0", "4.2"}),
    "empty, compressed": (Batch([Slot("k", b"")], LZ4, alone=True), {"4.0", "4.2"}),
    "a value, no size": (Batch([Slot("k", b"v")], alone=True), set[str]()),
    "a value, compressed": (Batch([Slot("k", b"v")], LZ4, alone=True), set[str]()),
    "empty in a batch": (Batch([Slot("k", b"")]), {"4.0", "4.2"}),
}


@deep_but_for(
    (0, 1, 3, 6, 9, 12, 15, 18, 20, 22),
    ("case", "rule"),
    [(case, rule) for case in CASES for rule in ("4.0", "4.2")]
    + [(case, None) for case, (_, rules) in CASES.items() if len(rules) == 1],  # the default shows where they differ
)
def test_what_deletes_a_key(tmp_path: Path, cli: Cli, case: str, rule: str | None) -> None:
    """With and without an earlier compaction; ``verify`` tells the rule where it matters."""
    batch, rules = CASES[case]
    raw = [FIRST, entry(batch, 1), entry(Batch([Slot("other", b"x")], alone=True), 2)]
    log = {TOPIC: MadeTopic([[Made(PUBLISH_MS, raw=found) for found in raw]])}
    earlier = MadeCompacted(77, [compacted(10, 0, FIRST)], Position(10, 0))
    for number, made in enumerate((None, earlier)):
        topic = MadeTopic(log[TOPIC].ledgers, compacted=made)
        store = make_store(tmp_path / str(number), {TOPIC: topic})
        option = [] if rule is None else ["--rule", rule]
        report = cli("--store", store, "compaction", "run", TOPIC, *option, "-o", "json").json
        is_deleted = (rule or "4.2") in rules
        rows = cli.rows(store, f"compaction read {TOPIC}")
        assert [row["entryId"] for row in rows] == ([2] if is_deleted else [1, 2])
        assert report["messagesByReason"]["nullValues"] == is_deleted
        found = cli.json(store, f"compaction verify {TOPIC}")
        assert (found["problems"], found["rule"]) == (0, (rule or "4.2") if len(rules) == 1 else None)


@pytest.mark.parametrize(
    ("kept", "rule", "problems"),
    [
        ([0, 1], "4.0", []),
        ([], "4.2", []),
        ([1], "both", []),
        ([2], "4.2", ["stale"]),  # what an empty message replaced is gone by either rule
        ([1, 2], "both", ["stale"]),
    ],
)
def test_verify_tells_the_rule(tmp_path: Path, cli: Cli, kept: list[int], rule: str, problems: list[str]) -> None:
    empty = [entry(Batch([Slot(key, None)], alone=True), number) for number, key in ((1, "k"), (2, "l"))]
    raw = [FIRST, *empty]
    chosen = sorted({0: 1, 1: 2, 2: 0}[number] for number in kept)
    made = MadeCompacted(77, [compacted(10, number, raw[number]) for number in chosen], Position(10, 2))
    store = make_store(
        tmp_path / "s", {TOPIC: MadeTopic([[Made(PUBLISH_MS, raw=found) for found in raw]], compacted=made)}
    )
    found = cli.json(store, f"compaction verify {TOPIC}")
    assert (found["rule"], [row["kind"] for row in found["findings"]]) == (rule, problems)


# -- topics that Pulsar 2.11.0 wrote, some closed before their last add ---------------------------------------------

Row = list[Any]
OLDER_SAID: dict[str, dict[str, Any]] = oracle("compacted-old")["topics"]
LOST = {"public/default/batched-lz4": (5, 13), "public/default/batched-none": (1, 14)}
"""Where their ledgers' pulsar/compactedTo ends, short of the cursor: a batch with a null value in it was taken for deleted."""


def _got(name: str) -> list[Row]:
    """Rows of the reader; 2.11.0 says of a last message outside batches that it has index 0, so that its reader waits for more."""
    return [row for row in OLDER_SAID[name]["compacted_messages"] if row != ["Pulsar error: TimeOut"]]


def _horizon(name: str) -> tuple[int, int]:
    ledger, _, entry = OLDER_SAID[name]["internal_stats"]["cursors"]["__compaction"]["markDeletePosition"].partition(
        ":"
    )
    return int(ledger), int(entry)


def _missed(name: str, end: tuple[int, int]) -> set[tuple[int, ...]]:
    """The latest values up to END, by a reader of all messages, that the reader with read-compacted did not get."""
    latest: dict[str, Row] = {}
    for row in OLDER_SAID[name]["messages"]:
        if row[3] and (row[0], row[1]) <= end:
            latest[row[3]] = row
    got = _got(name)
    return {tuple(row[:3]) for row in latest.values() if row[5] and row not in got}


@pytest.mark.parametrize("name", OLDER_SAID)
def test_read_is_the_recorded_reader_of_older(name: str) -> None:
    """The client shows no empty messages without a key in a batch."""
    rows = read_store(imported("compacted-old", "clean"), lambda reader: read_rows(reader, name))
    found = [[ledger, entry_id, index, key, sha1, size] for ledger, entry_id, index, _, key, size, sha1 in rows]
    assert [row for row in found if row[3] or row[5]] == _got(name)


@pytest.mark.parametrize("name", OLDER_SAID)
def test_verify_names_what_the_reader_missed_and_nothing_else(name: str, cli: Cli) -> None:
    found = cli.json(imported("compacted-old", "clean"), f"compaction verify {name}")
    places = [row["position"] for row in found["findings"] if row["kind"] == "missing"]
    named = {(place["ledgerId"], place["entryId"], place["batchIndex"]) for place in places}
    assert named == _missed(name, LOST.get(name, _horizon(name)))
    assert {row["kind"] for row in found["findings"]} == ({"status", "missing"} if name in LOST else set())
    assert found["rule"] in ("4.2", None)


@pytest.mark.parametrize("name", OLDER_SAID)
def test_status_counts_what_is_there(name: str) -> None:
    with open_store(imported("compacted-old", "clean")) as store, open_reader(store) as reader:
        found = read_status(reader, read_topic(reader.txn, parse_topic(name)))
    stated = OLDER_SAID[name]["internal_stats"]["compactedLedger"]
    assert (found.ledger.entries, found.ledger.size_bytes) == (stated["entries"], stated["size"])
    assert found.ledger.missing_entries == 0
    assert found.ledger.unread_entries == (1 if name == "public/default/batched-none" else 0)
    assert bool(found.problems) == (name in LOST)
