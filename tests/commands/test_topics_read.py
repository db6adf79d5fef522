"""``topics read``: every message of the recorded worlds, parts of topics, and what could not be read."""

from __future__ import annotations

import base64
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import pulsar_admin
from pulsar_admin.jsonify import to_json
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.ledgers import find_place
from pulsar_admin.store.model.messages import TXN_COMMIT, MessageReader
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.model.topics import read_topic
from pulsar_admin.store.model.transactions import read_buffer
from pulsar_admin.store.names import EARLIEST, Position, parse_topic
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata
from tests import shapes
from tests.altering import flip
from tests.compaction.entries import framed
from tests.compaction.test_last_id import _transaction
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.stores import imported
from tests.synthetic import Made, MadeTopic, make_store
from tests.test_cli_output import on_terminal
from tests.worlds import CLUSTER, WORLD_NAMES, asked_topics, oracle, scratch_copy

T = "persistent://public/default/t"
START_MS = 1_700_000_000_000


def rows(cli: Cli, store: Path, *arguments: object, exit_code: int = 0) -> list[Any]:
    result = cli("--store", store, "topics", "read", *arguments, "-o", "jsonl")
    assert result.exit_code == exit_code, result.stderr
    return result.json_lines


def as_recorded(row: Any) -> list[Any]:
    """The row as a reader of the official client saw it: ids, times, key, ordering key, bytes, SHA-1, properties, producer."""
    ordering_key = base64.b64decode(row["orderingKey"] or "").decode()
    ids = [row["ledgerId"], row["entryId"], row["batchIndex"], row["publishTime"], row["eventTime"]]
    return [*ids, row["key"] or "", ordering_key, row["size"], row["sha1"], row["properties"], row["producer"]]


@pytest.mark.parametrize(
    ("world", "messages", "encrypted"), [("small", 3304, 21), ("nometa", 6358, 40), (CLUSTER, 4065, 20)]
)
def test_every_recorded_message(world: str, messages: int, encrypted: int, cli: Cli) -> None:
    found: dict[str, list[Any]] = {}
    for row in rows(cli, imported(world, "clean"), "--all-topics"):
        found.setdefault(row["topic"].removeprefix("persistent://"), []).append(row)
    compared = hidden = 0
    for topic, answers in asked_topics(world).items():
        expected = answers["messages"]
        if topic.startswith("acme/secure/") and any(row.get("encrypted") for row in found[topic]):
            # Nobody gave us the key: one row an entry, as stored.
            entries = dict.fromkeys((row[0], row[1], row[3], row[10]) for row in expected)
            shown = [(row["ledgerId"], row["entryId"], row["publishTime"], row["producer"]) for row in found[topic]]
            assert shown == list(entries)
            hidden += len(shown)
            continue
        assert [as_recorded(row) for row in found[topic]] == expected, topic
        if world != "nometa" and topic in (
            "public/default/plain",
            "public/default/batched",
        ):  # from their first message on, without markers
            assert [row["brokerIndex"] for row in found[topic]] == [*range(len(expected))]
        compared += len(expected)
    assert (compared, hidden) == (messages, encrypted)


@pytest.mark.parametrize("world", [*WORLD_NAMES, CLUSTER])
def test_every_confirmed_message_of_the_crash(world: str, cli: Cli) -> None:
    for topic, sent in oracle(world)["crash"]["acknowledged_to_producer"].items():
        found = {
            (row["ledgerId"], row["entryId"], max(row["batchIndex"], 0)): row["sha1"]
            for row in rows(cli, imported(world, "crashed"), topic)
        }
        confirmed = [row for row in sent if row["id"] is not None]
        for row in confirmed:
            ledger_id, entry_id, batch_index = row["id"][:3]
            assert found[ledger_id, entry_id, max(batch_index, 0)] == row["sha1"]
        assert len(confirmed) > 100


def test_parts_of_a_topic(cli: Cli, demo_store: Path) -> None:
    everything = rows(cli, demo_store, "public/default/batched")
    ids = [(row["ledgerId"], row["entryId"], row["batchIndex"]) for row in everything]

    def part(*arguments: object) -> list[tuple[int, int, int]]:
        found = rows(cli, demo_store, "public/default/batched", *arguments)
        return [(row["ledgerId"], row["entryId"], row["batchIndex"]) for row in found]

    assert part("--from", "8:3", "--to", "8:4") == [found for found in ids if found[0] == 8 and found[1] in (3, 4)]
    assert part("--from", "8:24:18", "--to", "16:0:1") == [(8, 24, 18), (8, 24, 19), (16, 0, 0), (16, 0, 1)]
    assert part("--from", "latest") == ids[-20:]
    assert part("--to", "earliest") == []
    assert part("-n", 0) == []
    keyed = [row for row in everything if row["key"] == "k0021"]
    assert rows(cli, demo_store, "public/default/batched", "--key", "k0021") == keyed
    assert len(keyed) > 3


@cache
def _everything(topic: str) -> list[dict[str, Any]]:
    with pulsar_admin.open_store(imported("small", "clean")) as store:
        return [to_json(row) for row in store.topic(topic).messages().json_rows()]


@pytest.mark.parametrize("clock", ["auto", "publish", "broker", "event"])
@pytest.mark.parametrize(("first", "last"), [(0.2, 0.3), (0.0, 0.5), (0.5, 1.1), (0.4, 0.4)])
def test_times_equal_brute_force(first: float, last: float, clock: str, cli: Cli, demo_store: Path) -> None:
    topic = "acme/iot/skewed-batched" if clock in ("auto", "publish") else "public/default/batched"
    key = {"auto": "brokerTime", "publish": "publishTime", "broker": "brokerTime", "event": "eventTime"}[clock]
    everything = _everything(topic)
    times = sorted(row[key] for row in everything if row[key]) or [1_700_000_000_000]
    start_ms, end_ms = (round(times[0] + share * (times[-1] - times[0])) for share in (first, last))
    window = ("--start-time", f"@{start_ms:013}", "--end-time", f"@{end_ms:013}", "--clock", clock)
    expected = [row for row in everything if row[key] and start_ms <= row[key] < end_ms]
    assert rows(cli, demo_store, topic, *window) == expected


def test_times_prune_but_never_lose(cli: Cli, tmp_path: Path) -> None:
    """Several blocks, clocks that run backwards, entries with and without a broker time."""
    ledgers = [
        [Made(START_MS + (index * 7919) % 5000, START_MS + index if index % 3 else None) for index in range(count)]
        for count in (1300, 1, 600)
    ]
    store = make_store(tmp_path / "store", {T: MadeTopic(ledgers)})
    everything = rows(cli, store, T)
    assert len(everything) == 1901
    for clock, time_of in (
        ("publish", lambda row: row["publishTime"]),
        ("broker", lambda row: row["brokerTime"]),
        ("auto", lambda row: row["publishTime"] if row["brokerTime"] is None else row["brokerTime"]),
    ):
        for start, end in ((0, 1), (100, 103), (1024, 1500), (2400, 5000), (4999, 6000)):
            window = ("--start-time", f"@{START_MS + start}", "--end-time", f"@{START_MS + end}", "--clock", clock)
            expected = [row for row in everything if (ms := time_of(row)) is not None and start <= ms - START_MS < end]
            assert rows(cli, store, T, *window) == expected, (clock, start, end)


def test_transactions(cli: Cli, demo_store: Path) -> None:
    topic = "public/default/txn-out"
    committed = rows(cli, demo_store, topic)
    all_of_them = rows(cli, demo_store, topic, "--uncommitted")
    with_markers = rows(cli, demo_store, topic, "--uncommitted", "--markers")
    assert len(all_of_them) == 2 * len(committed) == 120
    markers = [row["markerType"] for row in with_markers if "markerType" in row]
    assert (markers.count("TXN_COMMIT"), markers.count("TXN_ABORT")) == (15, 15)
    # A part sees the markers behind its end.
    first = committed[0]
    position = f"{first['ledgerId']}:{first['entryId']}"
    assert rows(cli, demo_store, topic, "--from", position, "--to", position)[0] == first


@pytest.mark.parametrize(
    ("sent", "first", "errors"),
    [
        *[("a0 a1 a2", 0, 0), ("a0 b0 a1 b1 a2", 0, 0), ("a0 a1 a1 a2", 0, 0), ("a0 a1 a0 a1 a2", 2, 0)],
        *[("a0 a1 a1 a0 a1 a2", 3, 0), ("a0 a2", None, 1), ("a1 a2", None, 2), ("a0 a2 a1", None, 2)],
        *[("a0 a1 a2 a2", 0, 0), ("a0 a1 a2 b0 a1 a2", 0, 0)],
    ],
)
def test_chunks_lost_and_sent_again(sent: str, first: int | None, errors: int, tmp_path: Path) -> None:
    """Consumers drop what a producer sent twice, and begin anew at a first chunk (``ConsumerImpl.processMessageChunk``)."""
    made = []
    for uuid, number in sent.split():
        chunk = MessageMetadata(producer_name="p", sequence_id=0, publish_time=START_MS, uuid=uuid)
        chunk.num_chunks_from_msg, chunk.total_chunk_msg_size, chunk.chunk_id = 3, 6, int(number)
        made.append(Made(START_MS, raw=framed(chunk, f"{uuid}{number}".encode())))
    store = make_store(tmp_path / "store", {T: MadeTopic([made])})
    with open_store(store) as opened, open_reader(opened) as reader:
        messages = MessageReader(reader)
        found = [*messages.iter_messages(read_topic(reader.txn, parse_topic(T)).iter_positions(EARLIEST))]
    whole = [] if first is None else [(b"a0a1a2", 3, Position(10, first))]
    assert [(bytes(one.payload), one.chunks, one.first_chunk) for one in found] == whole
    assert len(messages.errors) == errors


def test_a_commit_after_an_unreadable_entry_counts(tmp_path: Path) -> None:
    entries = [
        Made(START_MS, raw=raw) for raw in (_transaction(1), b"\xff", _transaction(1, TXN_COMMIT), _transaction(2))
    ]
    store = make_store(tmp_path / "store", {T: MadeTopic([entries])})
    with open_store(store) as opened, open_reader(opened) as reader:
        messages = MessageReader(reader)
        found = [*messages.iter_messages(read_topic(reader.txn, parse_topic(T)).iter_positions(EARLIEST))]
        buffer = read_buffer(reader, parse_topic(T))
    assert [(one.position, one.transaction) for one in found] == [(Position(10, 0), (0, 1))]
    assert [*buffer.first.values()] == [Position(10, 3)]  # the one that is open
    assert len(messages.errors) == 1


def test_several_topics_and_a_missing_one(cli: Cli, demo_store: Path) -> None:
    result = cli.on(demo_store, "topics read public/default/avro no/such/topic -o jsonl")
    assert (result.exit_code, len(result.json_lines), result.error["code"]) == (1, 20, "topic-not-found")
    result = cli.on(demo_store, "topics read no/such/topic -o jsonl")
    assert (result.exit_code, result.stdout) == (5, "")
    found = rows(cli, demo_store, "--pattern", "acme/iot/*", "-n", 2)
    topics = [row["topic"].rpartition("/")[2] for row in found]
    assert topics == ["skewed", "skewed", "skewed-batched", "skewed-batched"]


# -- damage ---------------------------------------------------------------------------------------------------------------


def test_bad_records_are_passed_over_and_counted(tmp_path: Path, cli: Cli) -> None:
    """A bit of two entries flips in the log before the import; the journal has no copy any more."""
    source = scratch_copy("small", "clean", tmp_path)
    for journal in source.rglob("*.txn"):
        journal.unlink()
    with open_store(imported("small", "clean")) as store, open_reader(store) as reader:
        places = [find_place(reader.txn, 9, entry_id) for entry_id in (3, 7)]
        names = [Path(reader.files.name(place[0])).name for place in places if place is not None]
    for place, name in zip(places, names, strict=True):
        (path,) = source.rglob(name)
        flip(path, place[1] + place[2] - 1, 0x10)
    store_path = tmp_path / "store"
    assert cli.on(store_path, f"store import standalone {source} -q").exit_code == 1
    result = cli.on(store_path, "topics read public/default/plain -o jsonl")
    whole = rows(cli, imported("small", "clean"), "public/default/plain")
    left = [row for row in whole if (row["ledgerId"], row["entryId"]) not in {(9, 3), (9, 7)}]
    assert (result.exit_code, result.json_lines) == (1, left)
    assert result.stderr.count(".log @ 0x") == 2
    assert ("9:3" in result.stderr, "9:7" in result.stderr) == (True, True)


def test_lost_entries_are_counted(tmp_path: Path, cli: Cli) -> None:
    ledger = [Made(START_MS + index, lost=index in (1, 2)) for index in range(5)]
    store = make_store(tmp_path / "store", {T: MadeTopic([ledger, [Made(START_MS + 9)]])})
    result = cli.on(store, f"topics read {T} -o jsonl")
    assert (result.exit_code, [row["entryId"] for row in result.json_lines]) == (1, [0, 3, 4, 0])
    assert result.stderr.count("is lost: no imported file holds it") == 2
    assert "2 of its 5 entries are lost" in result.stderr
    result = cli.on(store, f"topics read {T} --start-time @{START_MS} -o jsonl")
    assert (result.exit_code, len(result.json_lines)) == (1, 4)
    assert "2 of 5 entries are in no imported file" in result.stderr


def test_values_as_json(cli: Cli) -> None:
    found = rows(cli, shapes.store(), "--pattern", "acme/shapes/*", "--value", exit_code=1)
    for row in found:
        _check_sent(row)
    assert len(found) == len(_sent())


def test_a_value_that_cannot_be_decoded_is_named(cli: Cli) -> None:
    result = cli.on(shapes.store(), "topics read acme/shapes/orders-avro --value -o plain")
    assert result.exit_code == 1
    assert "the value of 3:17 of persistent://acme/shapes/orders-avro: no value of its AVRO schema" in result.stderr
    assert '{"id":0,"item":"item é世 0"}' in result.stdout
    (row, *_) = rows(cli, shapes.store(), "acme/shapes/int8", "--value", "--redact")
    assert re.fullmatch("sha256:[0-9a-f]{64}:[0-9]+", row["value"])
    assert "value" not in rows(cli, shapes.store(), "acme/shapes/int8")[0]


def test_a_terminal_shows_the_fields_of_values_and_text_that_has_no_schema() -> None:
    words = ("--store", str(shapes.store()), "--no-progress", "--color", "never")
    avro = on_terminal(120, *words, "topics", "read", "acme/shapes/orders-avro", PAGER="cat").splitlines()
    assert avro[0].split()[-5:] == ["id", "item", "qty", "note", "PAYLOAD"]
    orders = [row for row in shapes.sent() if row["topic"].endswith("orders-avro")]
    sent = {"{}:{}:{}".format(*row["id"]): row["value"] for row in orders if isinstance(row.get("value"), dict)}
    assert sent
    shown = {line.split()[0]: line for line in avro[1:]}
    for position, value in sent.items():
        line = shown[position.removesuffix(":-1")]
        assert f" {value['id']}  {value['item']}" in line
    assert any(line.endswith("  raw 0") for line in avro)
    assert not any("cannot be decoded" in line or "the value of" in line for line in avro)
    peeked = on_terminal(80, *words, "topics", "examine-messages", "acme/shapes/orders-avro", "-i", "earliest")
    assert 'Value: {"id":0,"item":"item é世 0"}' in peeked


def _sent() -> dict[tuple[Any, ...], Any]:  # Any: the recorded message
    return {(row["topic"], *row["id"]): row for row in shapes.sent()}


def _check_sent(row: Any) -> None:  # Any: a JSON object
    was = _sent()[row["topic"], row["ledgerId"], row["entryId"], row["batchIndex"]]
    assert row.get("value") == was.get("value"), was
    assert ("valueError" in row) == (was.get("why") in ("broken", "protobuf"))
    assert ("schemaVersion" not in row) == (was.get("why") == "no schema")


# -- much is read as columns: what is read entry by entry, here, in processes, and stopping early -------------------

ALL = ("--all-topics",)
PARTS: list[tuple[str, ...]] = [
    ALL,
    (*ALL, "--payload", "--value"),
    (*ALL, "--uncommitted", "--markers"),
    (*ALL, "--redact", "--payload"),
    (*ALL, "--key", "k0021"),
    (*ALL, "-n", "7", "--key", "k0003"),
    (*ALL, "--from", "8:3:2", "--to", "16:0:1"),
    (*ALL, "--from", "latest"),
    (*ALL, "--start-time", "@1795200000", "--end-time", "@1795230000", "--clock", "event"),
    (*ALL, "--start-time", "@1795230000", "--end-time", "@1795253003", "--payload"),
    (*ALL, "--start-time", "@1795230000", "--clock", "publish", "--key", "k0003", "-n", "9"),
    (*ALL, "--end-time", "@1795253003", "--clock", "broker", "--from", "8:3:2"),
]


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little there is to read, it is read as columns."""
    monkeypatch.setattr("pulsar_admin.store.search.window.SMALL_MESSAGES", -1)


def read(cli: Cli, store: Path, *words: str) -> tuple[int, str]:
    result = cli("--store", store, "topics", "read", *words)
    return result.exit_code, result.stdout


@deep_but_for((1, 2, 3, 6, 7, 8, 9, 10, 11), "words", PARTS, ids=" ".join)
def test_columns_are_the_messages_read_one_by_one(words: tuple[str, ...], cli: Cli, request: Any) -> None:
    """``nometa`` has no times of a broker: it is read whole, and by each clock that would take them; ``shapes`` has every schema."""
    stores = [imported("small", "clean")]
    if words == ALL or "--value" in words:
        stores.append(shapes.store())
    if words == ALL or ("--end-time" in words and "publish" not in words):
        stores.append(imported("nometa", "mutated"))
    expected = [read(cli, store, *words, "-o", "jsonl") for store in stores]
    request.getfixturevalue("columns")
    assert [read(cli, store, *words, "-o", "jsonl") for store in stores] == expected
    assert any(text for _, text in expected)


@pytest.mark.usefixtures("columns")
def test_what_is_lost_is_counted_and_the_first_named(tmp_path: Path, cli: Cli) -> None:
    ledger = [Made(START_MS + index, lost=index in (1, 2)) for index in range(5)]
    store = make_store(tmp_path / "store", {T: MadeTopic([ledger, [Made(START_MS + 9)]])})
    answers = [cli("--store", store, "topics", "read", T, "-o", "jsonl", *more) for more in ((), ("--jobs", "2"))]
    for result in answers:
        assert (result.exit_code, [row["entryId"] for row in result.json_lines]) == (1, [0, 3, 4, 0])
        assert "of the window 2 entries are in no imported file; the first: entry" in result.stderr
        assert result.stderr.count(":1 is lost") == 1
    # What lies behind the last message wanted is not looked at.
    assert cli.on(store, f"topics read {T} -n 1 --key none").exit_code == 1


def test_a_large_window_of_times_is_read_as_columns(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 6,000 messages none is read alone; a narrow window, or a few of a wide one, are read without numpy's help."""
    store = make_store(tmp_path / "store", {T: MadeTopic([[Made(START_MS + index) for index in range(6000)]])})
    alone, heads = _counted(monkeypatch)
    times = ("--start-time", f"@{START_MS + 10}", "-o", "jsonl")

    def entries(*words: str) -> list[int]:
        alone.clear()
        heads.clear()
        return [row["entryId"] for row in cli("--store", store, "topics", "read", T, *times, *words).json_lines]

    assert (entries(), len(alone)) == (list(range(10, 6000)), 0)
    assert sum(heads) <= 6000
    assert (entries("--end-time", f"@{START_MS + 20}"), heads) == (list(range(10, 20)), [])
    assert (entries("-n", "3"), heads) == ([10, 11, 12], [])


def _counted(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[int]]:
    """Count the entries that are read one by one, and those read as columns."""
    from pulsar_admin.store.model.reader import EntryReader
    from pulsar_admin.store.scan.places import PlacesReader

    alone: list[int] = []
    together: list[int] = []
    read_one, read_many = EntryReader.read, PlacesReader.read_places

    def one(reader: EntryReader, ledger_id: int, entry_id: int) -> Any:  # Any: Entry
        alone.append(entry_id)
        return read_one(reader, ledger_id, entry_id)

    def many(scan: PlacesReader, places: Any) -> Any:  # Any: Places → EntryBatch
        together.append(len(places))
        return read_many(scan, places)

    monkeypatch.setattr(EntryReader, "read", one)
    monkeypatch.setattr(PlacesReader, "read_places", many)
    return alone, together
