"""What a broker keeps for itself is guarded wherever a cursor is changed; previews name what a broker does besides."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import pulsar_admin as pa
from pulsar_admin.store.codec.cursor import CursorInfo, decode_cursor_info
from pulsar_admin.store.codec.message import encode_message_entry
from pulsar_admin.store.db.environment import open_store
from pulsar_admin.store.db.owners import find_owners
from pulsar_admin.store.db.tree import read_node, tree_key
from pulsar_admin.store.errors import EntryCorrupt
from pulsar_admin.store.names import Position, parse_topic
from pulsar_admin.store.proto.pulsar_api_pb2 import MessageMetadata
from tests.commands.changing import check_undo, rows_of
from tests.compaction.entries import Batch, Slot, compacted, entry
from tests.conftest import Cli
from tests.synthetic import CREATED_MS, Made, MadeCompacted, MadeTopic, make_store

PENDING_ACKS = "a/b/t-sub__transaction_pending_ack"
LOG = "pulsar/system/__transaction_log_0"
GUARDED = {
    "a/b/compacted": "__compaction",
    "a/b/deduplicated": "pulsar.dedup",
    PENDING_ACKS: "__pending_ack_state",
    LOG: "transaction.subscription",
}


def made_store(path: Path, topics: Mapping[str, MadeTopic]) -> Path:
    return make_store(path / "s", topics)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Each of the guarded cursors in the middle of two ledgers of four entries, and one of users with such a name."""
    ledgers = [[Made(CREATED_MS + number) for number in range(4)] for _ in range(2)]
    names = GUARDED | {"a/b/users": "transaction.subscription"}
    topics = {
        topic: MadeTopic(ledgers, cursors={cursor: CursorInfo(-1, Position(10 + 2 * place, 1))})
        for place, (topic, cursor) in enumerate(names.items())
    }
    return made_store(tmp_path, topics)


def mlp(topic: str) -> str:
    namespace, _, local = topic.rpartition("/")
    return f"{namespace}/persistent/{local}"


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("a/b/compacted", "topics reset-cursor TOPIC -s CURSOR -m earliest"),
        ("a/b/deduplicated", "topics reset-cursor TOPIC -s CURSOR -m latest --rule broker"),
        (PENDING_ACKS, "topics reset-cursor TOPIC -s CURSOR --shift-by 1"),
        (LOG, "topics reset-cursor TOPIC -s CURSOR -t 1970-01-01T00:00:01Z"),
        ("a/b/compacted", "topics skip TOPIC -s CURSOR -n 1"),
        ("a/b/deduplicated", "topics clear-backlog TOPIC -s CURSOR"),
        *((topic, "topics unsubscribe TOPIC -s CURSOR") for topic in GUARDED),
        *((topic, "managed-ledger update-mark-delete-cursor -mlp MLP -cn CURSOR -cm LEDGER:3") for topic in GUARDED),
    ],
)
def test_every_change_of_it_is_refused_and_warns_when_forced(store: Path, cli: Cli, topic: str, words: str) -> None:
    for word, value in (("TOPIC", topic), ("CURSOR", GUARDED[topic]), ("MLP", mlp(topic))):
        words = words.replace(word, value)
    words = words.replace("LEDGER", str(10 + 2 * list(GUARDED).index(topic)))
    before = rows_of(store)
    refused = cli("--store", store, *words.split(), "-o", "json").ends(3)
    assert GUARDED[topic] in refused.error["message"]
    assert "--force" in refused.error["hint"]
    assert rows_of(store) == before
    forced = cli.done("--store", store, *words.split(), "--force", "-o", "json")
    if "unsubscribe" not in words:
        assert any("moved" in text for text in forced.json["warnings"])
    check_undo(cli, store, 1, before)


def test_an_expiry_of_it_is_refused(store: Path, cli: Cli) -> None:
    for topic, cursor in GUARDED.items():
        for more in ((), ("--rule", "broker")):
            cli("--store", store, "topics", "expire", topic, "-s", cursor, "-t", "1s", *more).ends(3)


def test_a_row_of_a_file_is_named(store: Path, cli: Cli, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"topic": PENDING_ACKS, "subscription": "__pending_ack_state", "messageId": "earliest"}))
    cli.on(store, f"topics reset-cursor --from-file {rows}").ends(3, "line 1: __pending_ack_state of")


def test_the_cure_of_a_dead_pending_ack_log_is_allowed(tmp_path: Path, cli: Cli) -> None:
    """The log is one empty ledger, its cursor in a ledger that was trimmed (apache/pulsar#26368): nothing lies between."""
    cursors = {"__pending_ack_state": CursorInfo(-1, Position(7, 13))}
    store = made_store(tmp_path, {PENDING_ACKS: MadeTopic([[]], cursors=cursors)})
    cure = ("managed-ledger", "update-mark-delete-cursor", "-mlp", mlp(PENDING_ACKS), "-cn", "__pending_ack_state")
    cli.done("--store", store, *cure, "-cm", "10:-1")
    with open_store(store) as opened, opened.read() as txn:
        path = parse_topic(PENDING_ACKS).cursor_path("__pending_ack_state")
        assert decode_cursor_info(read_node(txn, path).value, path).mark_delete == Position(10, -1)


# -- truncate of a compacted topic ------------------------------------------------------------------------------------

T = "a/b/t"


def keyed(*keys: str) -> list[Made]:
    return [
        Made(CREATED_MS, raw=entry(Batch([Slot(key, b"v")], alone=True), number)) for number, key in enumerate(keys)
    ]


def compacted_store(path: Path) -> Path:
    """Compacted to 10:3 (k0 to k3 in ledger 42); then k3 to k7 in 11 and k7 in 12; a subscription at the beginning."""
    old = keyed("k0", "k1", "k2", "k3")
    payloads = [compacted(10, number, one.raw or b"") for number, one in enumerate(old)]
    made = MadeTopic(
        [old, keyed("k3", "k4", "k5", "k6", "k7"), keyed("k7")],
        cursors={"s": CursorInfo(-1, Position(10, -1))},
        compacted=MadeCompacted(42, payloads, Position(10, 3)),
    )
    return made_store(path, {T: made})


def test_truncate_drops_the_compacted_view_as_a_broker_does(tmp_path: Path, cli: Cli) -> None:
    """Pulsar 4.0.8 and 4.2.4 left ``__compaction`` at the end without properties, and the compacted ledger to nobody."""
    store = compacted_store(tmp_path)
    before = rows_of(store)
    assert "k0" in cli.on(store, f"compaction read {T} -o jsonl").stdout
    dry = cli.on(store, f"topics truncate {T} --dry-run -o json")
    (text,) = [text for part in dry.json for text in part.get("warnings", ())]
    assert "its ledger 42 stays in BookKeeper without any reference" in text
    assert "3 keys ('k0', 'k1' and 'k2') are only in that ledger" in text
    assert "4 keys ('k3', 'k4', 'k5' and 'k6') are no longer in any ledger" in text
    (own,) = [part for part in dry.json if part.get("subscription") == "__compaction"]
    assert (own["before"]["compactedLedger"], own["after"]["compactedLedger"]) == (42, None)
    assert cli.on(store, f"topics truncate {T} -y").exit_code == 0
    with open_store(store) as opened, opened.read() as txn:
        path = parse_topic(T).cursor_path("__compaction")
        info = decode_cursor_info(read_node(txn, path).value, path)
        assert (info.mark_delete, dict(info.properties)) == (Position(12, 0), {})
        assert not find_owners(txn, 42)
        assert txn.get("tree", tree_key("/ledgers/00/0000/L0042")) is not None
    left = [row["key"] for row in cli.rows(store, f"compaction read {T}")]
    assert left == ["k7"]
    check_undo(cli, store, 1, before)


# -- chunked messages -------------------------------------------------------------------------------------------------


def chunk(uuid: str, number: int, of: int) -> Made:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=CREATED_MS + 1)
    if of > 1:
        metadata.uuid, metadata.chunk_id = uuid, number
        metadata.num_chunks_from_msg = metadata.total_chunk_msg_size = of
    return Made(CREATED_MS, raw=encode_message_entry(metadata, b"x"))


@pytest.fixture
def chunked(tmp_path: Path) -> Path:
    """As a client wrote it: a message, one of three chunks, with one of another producer among them, a message."""
    entries = [chunk("", 0, 1), chunk("u", 0, 3), chunk("v", 0, 2), chunk("u", 1, 3), chunk("u", 2, 3), chunk("", 0, 1)]
    return made_store(tmp_path, {T: MadeTopic([entries], cursors={"s": CursorInfo(-1, Position(10, -1))})})


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            "reset-cursor T -s s -m 10:3",
            "10:3 is chunk 2 of 3 of a message that begins at 10:1: consumers get only 2 chunks of it",
        ),
        ("reset-cursor T -s s -m 10:4", "that begins at 10:1: consumers get only 1 chunk of it"),
        ("reset-cursor T -s s -m 10:2", "10:3 is chunk 2 of 3 of a message that begins at 10:1"),
        ("skip T -s s -n 3", "to deliver the whole message again: -m 10:1"),
        ("reset-cursor T -s s --shift-by 4", "to deliver the whole message again: -m 10:1"),
    ],
)
def test_a_move_into_a_chunked_message_is_told(chunked: Path, cli: Cli, words: str, text: str) -> None:
    """A real client of 4.0.8 dropped the rest of such a message, and its entries stayed in the backlog."""
    done = cli("--store", chunked, "topics", *words.replace("T", T, 1).split(), "--dry-run", "-o", "json")
    assert any(text in warning for warning in done.json["warnings"]), done.json


# -- partitions that are there ----------------------------------------------------------------------------------------


def partitions(path: Path, *indexes: int) -> Path:
    """Partitions of a/b/readings without its record: 20 entries each, subscription of the first one at the beginning."""
    entries = [[Made(CREATED_MS + number) for number in range(20)]]
    topics = {
        f"a/b/readings-partition-{index}": MadeTopic(
            entries, cursors={"workers": CursorInfo(-1, Position(10 + place, -1))} if not place else {}
        )
        for place, index in enumerate(indexes)
    }
    return made_store(path, topics | {"a/b/readings-partition-x": MadeTopic(entries), "a/b/other": MadeTopic(entries)})


def test_a_partitioned_topic_says_what_it_adopts(tmp_path: Path, cli: Cli) -> None:
    store = partitions(tmp_path, 0, 2)
    create = ("--store", store, "topics", "create-partitioned-topic", "a/b/readings", "-p")
    done = cli(*create, "4", "-o", "json").json
    assert done["after"]["adopted"] == [0, 2]
    adopted, created, broker = done["warnings"]
    assert adopted == "partitions 0 and 2 exist and become part of the topic, with 40 entries and subscription workers"
    assert created == "partitions 1 and 3 are created empty, without subscriptions"
    assert "409" in broker
    listed = cli.json(store, "topics list a/b")
    assert {f"persistent://a/b/readings-partition-{index}" for index in range(4)} <= set(listed)


def test_fewer_partitions_than_are_there_are_refused_as_by_4_2(tmp_path: Path, cli: Cli) -> None:
    """4.2.4: "The topic has a max partition index of 4, the number of partitions must be at least 5"; 4.0.8: 409 in any case."""
    store = partitions(tmp_path, 0, 4, 10)
    refused = cli.on(store, "topics create-partitioned-topic a/b/readings -p 10")
    assert refused.exit_code == 3
    assert "The topic has a max partition index of 10, the number of partitions must be at least 11" in refused.stderr
    assert cli.on(store, "topics create-partitioned-topic a/b/readings -p 11").exit_code == 0


@pytest.mark.parametrize("topic", [PENDING_ACKS, LOG])
@pytest.mark.parametrize("verb", ["truncate", "terminate", "delete"])
def test_no_log_of_transactions_ends(topic: str, verb: str, store: Path, cli: Cli, tmp_path: Path) -> None:
    """Seen: truncating a log of pending acks, which a broker opens as no topic, deleted what transactions had acknowledged."""
    for words in ((), ("--dry-run",), ("--plan", tmp_path / "plan.json")):
        refused = cli("--store", store, "topics", verb, topic, *words, "-o", "json").fails(3, "refused")
    assert not (tmp_path / "plan.json").exists()
    with pa.open_store(store) as opened, pytest.raises(pa.Refused):
        opened.delete_topics(topic) if verb == "delete" else getattr(opened.topic(topic), verb)()
    if verb == "delete":
        assert "--force" in refused.error["hint"]
        assert cli.on(store, f"topics {verb} {topic} --force").exit_code == 0


def test_truncate_keeps_what_a_broker_writes_again(tmp_path: Path, cli: Cli) -> None:
    info = CursorInfo(-1, Position(10, 0), properties={"p": 7})
    ledgers = [[Made(CREATED_MS)], [Made(CREATED_MS)]]
    store = made_store(tmp_path, {T: MadeTopic(ledgers, cursors={"pulsar.dedup": info})})
    done = cli.on(store, f"topics truncate {T} -y -o json")
    assert not any(part.get("warnings") for part in done.json)
    with open_store(store) as opened, opened.read() as txn:
        path = parse_topic(T).cursor_path("pulsar.dedup")
        found = decode_cursor_info(read_node(txn, path).value, path)
        assert (found.mark_delete, dict(found.properties)) == (Position(11, 0), {"p": 7})


def test_a_topic_goes_with_its_log_of_pending_acks(tmp_path: Path, cli: Cli) -> None:
    ledgers = [[Made(CREATED_MS)]]
    store = made_store(
        tmp_path,
        {
            "a/b/t": MadeTopic(ledgers, cursors={"sub": CursorInfo(-1, Position(10, -1))}),
            PENDING_ACKS: MadeTopic(ledgers),
        },
    )
    assert cli.on(store, "topics delete a/b/t").exit_code == 0
    assert cli.on(store, f"topics stats {PENDING_ACKS}").exit_code == 5


def test_a_compacted_view_that_cannot_be_read_is_dropped_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from pulsar_admin.store.changes import deleting

    def unreadable(*_: object) -> None:
        raise EntryCorrupt("entry 7:0 is damaged")

    monkeypatch.setattr(deleting, "find_compacted_view", unreadable)
    nothing: Any = None
    text = deleting._dropped_view(nothing, nothing, 7)
    assert text.endswith("; its keys cannot be read: entry 7:0 is damaged")
