"""``last-message-id``, ``get-message-by-id``, ``examine-messages``, ``peek-messages`` on the command line."""

import base64
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import pulsar_admin as pa
from pulsar_admin.commands.topics.printout import Printing, hex_dump, render_message
from pulsar_admin.store.codec.batch import encode_batch
from pulsar_admin.store.codec.brokerentry import BrokerEntry
from pulsar_admin.store.codec.message import encode_message_entry
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.model.ledgers import find_place
from pulsar_admin.store.model.messages import Message
from pulsar_admin.store.model.reader import open_reader
from pulsar_admin.store.names import Position
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata
from tests.conftest import Cli
from tests.deep import deep_but_for
from tests.stores import imported
from tests.synthetic import Made, MadeTopic, make_store
from tests.worlds import WORLD_NAMES, oracle, scratch_copy

START_MS = 1_700_000_000_000
T = "public/default/t"


def rows(cli: Cli, store: Path, command: str, *arguments: object, exit_code: int = 0) -> list[Any]:
    result = cli("--store", store, "topics", command, *arguments, "-o", "jsonl")
    assert result.exit_code == exit_code, result.stderr
    return result.json_lines


def id_of(row: Any) -> tuple[int, int, int]:
    return row["ledgerId"], row["entryId"], row["batchIndex"]


# -- last-message-id ------------------------------------------------------------------------------------------------------


def test_last_id_of_what_is_no_message(cli: Cli, demo_store: Path) -> None:
    (found,) = rows(cli, demo_store, "last-message-id", "persistent://pulsar/system/__transaction_log_0")
    assert (found["entryId"] > 0, found["batchIndex"]) == (True, -1)


def test_last_id_when_the_entry_is_lost(cli: Cli, tmp_path: Path) -> None:
    store = make_store(
        tmp_path / "store", {T: MadeTopic([[Made(START_MS), Made(START_MS, lost=True)]], open_last=False)}
    )
    result = cli.on(store, f"topics last-message-id {T} -o json")
    assert (result.exit_code, id_of(result.json)) == (1, (10, 1, -1))
    assert "is lost" in result.stderr


# -- get-message-by-id ----------------------------------------------------------------------------------------------------


@deep_but_for((0,), "world", WORLD_NAMES)
def test_messages_by_id(world: str, cli: Cli) -> None:
    """The first message of an entry, against what a reader saw; every fifth entry, of a large topic every twentieth."""
    compared = 0
    for topic, answers in oracle(world)["topics"].items():
        if topic.startswith("acme/secure/") or topic.endswith("chunked"):
            continue
        first = {(row[0], row[1]): row for row in reversed(answers["messages"])}
        for (ledger_id, entry_id), row in list(first.items())[:: 5 if len(first) < 100 else 20]:
            command = ("get-message-by-id", topic, "-l", ledger_id, "-e", entry_id)
            (found,) = rows(cli, imported(world, "clean"), *command)
            assert (*id_of(found), found["publishTime"], found["sha1"]) == (*row[:4], row[8])
            assert hashlib.sha1(base64.b64decode(found["payload"])).hexdigest() == row[8]
            compared += 1
    assert compared > 100


@pytest.mark.parametrize(("ledger_id", "entry_id"), [(9, 25), (9, -1), (8, 0), (424242, 0)])
def test_no_such_message(ledger_id: int, entry_id: int, cli: Cli, demo_store: Path) -> None:
    command = ("get-message-by-id", "public/default/plain", f"--ledgerId={ledger_id}", f"--entryId={entry_id}")
    result = cli("--store", demo_store, "topics", *command, "-o", "json").fails(5, "entry-not-found")
    expected = f"Cannot find any messages based on ledgerId:{ledger_id} entryId:{entry_id}"
    assert result.error["message"] == expected


# -- examine-messages -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", WORLD_NAMES)
@pytest.mark.parametrize("topic", ["public/default/steady-batched", "acme/secure/trimmed"])
def test_nth_entries(world: str, topic: str, cli: Cli) -> None:
    recorded = oracle(world)["topics"][topic]["messages"]
    entries = list(dict.fromkeys((row[0], row[1]) for row in recorded))
    for number in (1, 2, len(entries) // 2, len(entries)):
        for origin, expected in (("earliest", entries[number - 1]), ("latest", entries[-number])):
            command = ("examine-messages", topic, "-i", origin, "-m", number)
            (found,) = rows(cli, imported(world, "clean"), *command)
            assert id_of(found)[:2] == expected
    (first,) = rows(cli, imported(world, "clean"), "examine-messages", topic, "-i", "earliest", "-m", 0)
    assert id_of(first)[:2] == entries[0]
    (last,) = rows(cli, imported(world, "clean"), "examine-messages", topic)
    assert id_of(last)[:2] == entries[-1]


# -- peek-messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "subscription"),
    [
        ("public/default/plain", "holes"),
        ("public/default/plain", "half"),
        ("public/default/batched", "batch-holes"),
        ("acme/orders/codecs", "keys"),
        ("acme/iot/skewed", "fail/over:1"),
        ("acme/delayed/reminders", "workers"),
    ],
)
def test_peeks_are_the_backlog(topic: str, subscription: str, cli: Cli, demo_store: Path) -> None:
    """All messages of the entries that the broker's mark-delete and ranges leave, in order; -n cuts them."""
    answers = oracle("small")["topics"][topic]
    cursor = answers["internal_stats"]["cursors"][subscription.replace("/", "%2F").replace(":", "%3A")]
    mark = tuple(map(int, cursor["markDeletePosition"].split(":")))
    text = cursor["individuallyDeletedMessages"].strip("[]").removesuffix("]").removeprefix("(")
    ranges = [
        tuple(tuple(map(int, part.split(":"))) for part in item.split("..")) for item in text.split("],(") if item
    ]
    left = [
        tuple(row[:3])
        for row in answers["messages"]
        if (row[0], row[1]) > mark and not any(lower < (row[0], row[1]) <= upper for lower, upper in ranges)
    ]
    found = rows(cli, demo_store, "peek-messages", topic, "-s", subscription, "-n", 10_000)
    assert [id_of(row) for row in found] == left
    found = rows(cli, demo_store, "peek-messages", topic, "-s", subscription, "-n", 7)
    assert [id_of(row) for row in found] == left[:7]


# -- damage ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def flipped(tmp_path: Path, cli: Cli) -> Path:
    """A store with its own copy of the logs, where one bit of entry 9:3 of ``plain`` flipped after the import."""
    source = scratch_copy("small", "clean", tmp_path)
    store = tmp_path / "store"
    assert cli.on(store, f"store import standalone {source} --copy -q").exit_code == 0
    with open_store(store) as opened, open_reader(opened) as reader:
        place = find_place(reader.txn, 9, 3)
        path = store / reader.files.name(place[0])
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(place[1] + 100)
        byte = file.read(1)[0]
        file.seek(place[1] + 100)
        file.write(bytes([byte ^ 4]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return store


@pytest.mark.usefixtures("damages_stores")
def test_a_bad_record_is_named_or_passed_over(flipped: Path, cli: Cli) -> None:
    result = cli.on(flipped, "topics get-message-by-id public/default/plain -l 9 -e 3 -o json")
    assert (result.exit_code, result.error["code"]) == (6, "entry-corrupt")
    assert ".log @ 0x" in result.error["message"]
    examine = ("examine-messages", "public/default/plain", "-i", "earliest", "-m", 4)
    result = cli("--store", flipped, "topics", *examine, "-o", "json")
    assert (result.exit_code, ".log @ 0x" in result.error["message"]) == (6, True)
    peek = ("peek-messages", "public/default/plain", "-s", "never", "-n", 5)
    assert [row["entryId"] for row in rows(cli, flipped, *peek, exit_code=1)] == [0, 1, 2, 4, 5]
    assert len(rows(cli, flipped, "read", "public/default/plain", exit_code=1)) == 299
    result = cli("--store", flipped, "topics", *peek)
    assert (result.exit_code, result.stdout.count("Message ID: ")) == (1, 5)
    assert ".log @ 0x" in result.stderr


def test_an_entry_that_cannot_be_decoded_is_named_by_its_place(tmp_path: Path, cli: Cli) -> None:
    raw = b"\x0e\x01" + bytes(20)  # a checksum that is wrong
    store = make_store(tmp_path / "store", {T: MadeTopic([[Made(START_MS), Made(START_MS, raw=raw)]])})
    offset = (store / "entries/0.log").read_bytes().index(raw) - 4 - 32 - 4  # size, header, digest
    last = cli("--store", store, "topics", "last-message-id", T, "-o", "json")
    assert (last.exit_code, last.json["entryId"]) == (1, 1)
    assert f"(entries/0.log @ {offset:#x})" in last.stderr
    error = cli("--store", store, "topics", "get-message-by-id", T, "-l", 10, "-e", 1, "-o", "json").error
    assert (error["context"]["path"], error["context"]["offset"]) == ("entries/0.log", offset)


# -- as upstream's admin client shows them --------------------------------------------------------------------------------


def _batch(number: int) -> tuple[Made, bytes]:
    """An entry of two messages, with properties of its own and of each of them, and the bytes of its messages."""
    metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=START_MS, event_time=number)
    metadata.num_messages_in_batch = 2
    metadata.properties.add(key="entry", value=f"e{number}")
    metadata.properties.add(key="both", value="entry")
    each = []
    for index in range(2):
        single = SingleMessageMetadata(payload_size=3, event_time=900 + index)
        single.properties.add(key=f"m{index}", value=f"v{number}")
        single.properties.add(key="both", value=f"message {index}")
        each.append((single, b"abc"))
    payload = encode_batch(each)
    return Made(
        START_MS, raw=encode_message_entry(metadata, payload, broker=BrokerEntry(START_MS, 50 + number))
    ), payload


def test_messages_of_a_batch_are_shown_as_upstreams_admin_does(tmp_path: Path) -> None:
    """``TopicsImpl.getMessagesFromHttpResponse``, 4.0.8: event time, index and one map of properties of the entry."""
    (first, payload), (second, _) = _batch(1), _batch(2)
    store = make_store(tmp_path / "store", {T: MadeTopic([[first, Made(START_MS), second]])})
    with pa.open_store(store) as opened:
        found = [message for _, message, _ in opened.topic(T).messages().as_admin_shows()]
    assert [message.position.batch_index for message in found] == [0, 1, -1, 0, 1]
    for message in found[:2] + found[3:]:
        number = message.position.entry_id // 2 + 1
        assert (message.event_ms, message.broker_index, message.publish_ms) == (number, 50 + number, START_MS)
        assert message.properties == {
            "X-Pulsar-batch-size": message.properties["X-Pulsar-batch-size"],
            "X-Pulsar-num-batch-message": "2",
            "both": "message 1",
            "entry": f"e{number}",
            "m0": f"v{number}",
            "m1": f"v{number}",
        }
        assert list(message.properties) == sorted(message.properties)
        assert int(message.properties["X-Pulsar-batch-size"]) >= len(payload)
    assert (found[2].properties, found[2].event_ms, found[2].broker_index) == ({}, 0, None)


# -- messages as text; the dumps were printed by netty 4.1.128, which pulsar-admin 4.0.8 uses -----------------------

HEAD = """\
         +-------------------------------------------------+
         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |
+--------+-------------------------------------------------+----------------+
"""
RULE = "+--------+-------------------------------------------------+----------------+"
COUNTING = bytes((37 * index + 10) % 256 for index in range(33))
DUMPS = {
    b"hi": "|00000000| 68 69                                           |hi              |\n",
    COUNTING[:15]: "|00000000| 0a 2f 54 79 9e c3 e8 0d 32 57 7c a1 c6 eb 10    |./Ty....2W|.... |\n",
    COUNTING[:16]: "|00000000| 0a 2f 54 79 9e c3 e8 0d 32 57 7c a1 c6 eb 10 35 |./Ty....2W|....5|\n",
    COUNTING: "|00000000| 0a 2f 54 79 9e c3 e8 0d 32 57 7c a1 c6 eb 10 35 |./Ty....2W|....5|\n"
    "|00000010| 5a 7f a4 c9 ee 13 38 5d 82 a7 cc f1 16 3b 60 85 |Z.....8].....;`.|\n"
    "|00000020| aa                                              |.               |\n",
}


@pytest.mark.parametrize("payload", DUMPS, ids=len)
def test_hex_dump(payload: bytes) -> None:
    assert "\n".join(hex_dump(payload)) == HEAD + DUMPS[payload] + RULE


def test_hex_dump_of_nothing() -> None:
    assert list(hex_dump(b"")) == []


def test_only_printable_ascii_is_text() -> None:
    shown = "".join(line[-17:-1] for line in list(hex_dump(bytes(range(256))))[3:-1])
    assert shown == "." * 32 + "".join(map(chr, range(0x20, 0x7F))) + "." * 129


MESSAGE = Message(Position(10, 3), 1_700_000_000_000, None, None, 0, None, None, "p", 4, {}, b"")


def test_every_line() -> None:
    message = replace(
        MESSAGE,
        position=Position(10, 3, 0),
        broker_ms=1_700_000_000_003,
        broker_index=41,
        event_ms=7,
        properties={"key": "value", "bell": "\x07"},
        deliver_at_ms=1_700_000_005_000,
        marker_type=21,
    )
    assert render_message(message, Printing(redelivery=True, markers=True)) == (
        "Batch Message ID: 10:3:0\n"
        "Publish time: 1700000000000\n"
        "Event time: 7\n"
        "Redelivery count: 0\n"
        "Deliver at time: 1700000005000\n"
        "Marker Type: TXN_COMMIT\n"
        "Broker entry metadata timestamp: 1700000000003\n"
        "Broker entry metadata index: 41\n"
        "Properties:\n"
        "key    value\n"
        "bell    \\x07\n"
        "\n"
    )
